"""Schemas of the database: the ledger's migrations and the datasets' tables.

Here: `migrate`, and the DDL of a contract's table.
Not here: rows (loader.py, ledger.py).
"""

import hashlib
from pathlib import Path

import polars as pl
import psycopg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg import sql
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Connection as SqlConnection
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from pocket_ingest.adapters.postgres.connection import Connection, driver_url
from pocket_ingest.core.contract import Contract, Field, Kind
from pocket_ingest.core.errors import Code, PermanentError, TransientError

MIGRATIONS = Path(__file__).parent / "migrations"
LEDGER_SCHEMA = "pocket"
DAGSTER_SCHEMA = "dagster"
# Any constant that is ours: two starts at once must not create the same tables.
MIGRATION_LOCK = 0x706F636B6574

TENANT, UPLOAD, JOB, RECORD = "_tenant", "_upload_id", "_job_id", "_record"


def migrate(url: str) -> str:
    """Bring the ledger to its newest shape; returns the revision it has then.

    Raises:
        TransientError: database_unavailable.
        PermanentError: database_refused, if the role may not.
    """
    engine = create_engine(driver_url(url, "psycopg"))
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    newest = str(ScriptDirectory.from_config(config).get_current_head())
    try:
        with engine.connect() as connection:
            # A role that may use the ledger need not be one that may change it.
            if _revision(connection) == newest:
                return newest
            connection.execute(text(f"SELECT pg_advisory_lock({MIGRATION_LOCK})"))
            for schema in (LEDGER_SCHEMA, DAGSTER_SCHEMA):
                # IF NOT EXISTS asks for the right to create even where there is nothing to do.
                there = connection.execute(text(f"SELECT to_regnamespace('{schema}')")).scalar()
                if there is None:
                    connection.execute(text(f"CREATE SCHEMA {schema}"))
            connection.commit()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
            connection.execute(text(f"SELECT pg_advisory_unlock({MIGRATION_LOCK})"))
            connection.commit()
            return newest
    except OperationalError as error:
        raise TransientError(
            Code.DATABASE_UNAVAILABLE,
            "The database cannot be reached. Check DATABASE_URL and that the server runs.",
        ) from error
    except SQLAlchemyError as error:
        reason = type(getattr(error, "orig", None) or error).__name__
        raise PermanentError(
            Code.DATABASE_REFUSED,
            f"The database refused to change the ledger's tables ({reason}). Let a role that may "
            "create schemas run `pocket-ingest migrate`.",
        ) from error
    finally:
        engine.dispose()


def _revision(connection: SqlConnection) -> str | None:
    there = connection.execute(text("SELECT to_regclass('pocket.migrations')")).scalar()
    if there is None:
        return None
    found = connection.execute(text("SELECT version_num FROM pocket.migrations")).scalar()
    return None if found is None else str(found)


def column_type(field: Field) -> str:
    """The Postgres type of a field."""
    match field.kind:
        case Kind.TEXT:
            return "text"
        case Kind.INTEGER:
            if isinstance(field.dtype, pl.Int64):
                return "bigint"
            return "integer" if isinstance(field.dtype, pl.Int32) else "smallint"
        case Kind.DECIMAL:
            assert isinstance(field.dtype, pl.Decimal)  # noqa: S101 - the kind says so
            return f"numeric({field.dtype.precision},{field.dtype.scale})"
        case Kind.FLOAT:
            return "double precision" if isinstance(field.dtype, pl.Float64) else "real"
        case Kind.BOOLEAN:
            return "boolean"
        case Kind.DATE:
            return "date"
        case Kind.TIMESTAMP:
            assert isinstance(field.dtype, pl.Datetime)  # noqa: S101 - the kind says so
            zone = "with" if field.dtype.time_zone is not None else "without"
            return f"timestamp {zone} time zone"


def table_columns(contract: Contract) -> list[tuple[str, str, bool]]:
    """(name, type, may be NULL) of the table's columns, in order."""
    return [
        (TENANT, "text", False),
        *((f.name, column_type(f), f.accepts_null) for f in contract.fields),
        (UPLOAD, "bigint", False),
        (JOB, "uuid", False),
        (RECORD, "bigint", False),
    ]


def ensure_table(connection: Connection, contract: Contract, *, schema: str) -> None:
    """Create the dataset's table if it is missing, else compare it with the contract.

    Raises:
        PermanentError: table_differs, naming the columns.
    """
    lock = int.from_bytes(hashlib.sha256(contract.name.encode()).digest()[:8], signed=True)
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
    found = {
        row["name"]: (row["type"], row["nullable"])
        for row in connection.execute(
            "SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, "
            "NOT a.attnotnull AS nullable FROM pg_attribute a "
            "JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped",
            (schema, contract.name),
        )
    }
    if not found:
        _create(connection, contract, schema)
        return
    wanted = {name: (kind, nullable) for name, kind, nullable in table_columns(contract)}
    different = sorted(
        name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)
    )
    # Without it the fast way meets no collision, and rows double; with another one, rows are lost.
    if _primary_key(connection, contract, schema) != {TENANT, *contract.key}:
        different.append("primary key")
    if different:
        raise PermanentError(
            Code.TABLE_DIFFERS,
            f"The table {schema}.{contract.name} is not what the contract of {contract.name!r} "
            f"says: {', '.join(different)}. Change the table to fit, or rename the dataset.",
        )


def _primary_key(connection: Connection, contract: Contract, schema: str) -> set[str]:
    rows = connection.execute(
        "SELECT a.attname AS name FROM pg_index i "
        "JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey) "
        "WHERE n.nspname = %s AND c.relname = %s AND i.indisprimary",
        (schema, contract.name),
    )
    return {row["name"] for row in rows}


def _create(connection: Connection, contract: Contract, schema: str) -> None:
    table = sql.Identifier(schema, contract.name)
    columns = [
        sql.SQL("{} {}{}{}").format(
            sql.Identifier(name),
            sql.SQL(kind),
            # Keys are compared byte by byte: no collation's opinion on equality or order.
            sql.SQL(' COLLATE "C"' if kind == "text" and name in {TENANT, *contract.key} else ""),
            sql.SQL("" if nullable else " NOT NULL"),
        )
        for name, kind, nullable in table_columns(contract)
    ]
    key = sql.SQL("PRIMARY KEY ({})").format(
        sql.SQL(", ").join(map(sql.Identifier, (TENANT, *contract.key)))
    )
    try:
        there = connection.execute("SELECT to_regnamespace(%s) AS schema", (schema,)).fetchone()
        if there is None or there["schema"] is None:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        connection.execute(
            sql.SQL("CREATE TABLE {} ({}, {})").format(table, sql.SQL(", ").join(columns), key)
        )
        # Exports look rows up by upload. Uploads come in order, so a block range index of a few
        # pages serves, where a B-tree would cost every load.
        connection.execute(
            sql.SQL("CREATE INDEX ON {} USING brin ({})").format(table, sql.Identifier(UPLOAD))
        )
    except psycopg.errors.InsufficientPrivilege as error:
        raise PermanentError(
            Code.DATABASE_REFUSED,
            f"The database role may not create tables in the schema {schema!r}. Grant it CREATE "
            "there, or set POCKET_TABLE_SCHEMA.",
        ) from error
    connection.execute(
        "INSERT INTO pocket.dataset_tables (dataset, table_schema, table_name, contract_version) "
        "VALUES (%s, %s, %s, %s) ON CONFLICT (dataset) DO UPDATE SET "
        "table_schema = excluded.table_schema, contract_version = excluded.contract_version",
        (contract.name, schema, contract.name, contract.version),
    )
    for name, description in [(f.name, f.description) for f in contract.fields if f.description]:
        connection.execute(
            sql.SQL("COMMENT ON COLUMN {}.{} IS {}").format(
                table, sql.Identifier(name), sql.Literal(description)
            )
        )
