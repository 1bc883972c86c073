"""Migrations, and the tables of datasets, on a real server."""

import threading
from datetime import date, datetime
from typing import Annotated

import polars as pl
import psycopg
import pytest
from psycopg.rows import dict_row

from pocket_ingest.adapters.postgres.schema import ensure_table, migrate
from pocket_ingest.core.dataset import FromColumn
from pocket_ingest.core.errors import Code, PermanentError, TransientError
from pocket_ingest_tests.examples import ask, declare, nullable

COLUMNS = {
    "id": str,
    "count": int,
    "day": date,
    "at": datetime,
    "instant": Annotated[pl.Datetime, "us", "UTC"],
    "amount": Annotated[pl.Decimal, 14, 2],
    "extra": float | None,
}
NO_KEY = "ALTER TABLE things DROP CONSTRAINT things_pkey"


def shape(url: str, name: str = "things") -> dict[str, str]:
    rows = ask(
        url,
        "SELECT attname AS name, format_type(atttypid, atttypmod) || "
        "CASE WHEN attnotnull THEN '' ELSE ' NULL' END AS type FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        f"public.{name}",
    )
    return {row["name"]: row["type"] for row in rows}


class TestMigrate:
    def test_twice_is_once(self, empty_database_url: str) -> None:
        first = migrate(empty_database_url)
        ask(empty_database_url, "INSERT INTO pocket.dataset_tables VALUES ('a', 'b', 'c', 'd')")
        assert migrate(empty_database_url) == first
        assert ask(empty_database_url, "SELECT dataset FROM pocket.dataset_tables")

    def test_two_at_once_make_one(self, empty_database_url: str) -> None:
        revisions: list[str] = []
        threads = [
            threading.Thread(target=lambda: revisions.append(migrate(empty_database_url)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(revisions) == 3
        assert len(set(revisions)) == 1

    def test_makes_the_schema_of_the_orchestrator_too(self, database_url: str) -> None:
        found = ask(database_url, "SELECT nspname AS name FROM pg_namespace")
        assert {"pocket", "dagster"} <= {row["name"] for row in found}

    def test_a_server_that_is_not_there_is_transient(self) -> None:
        with pytest.raises(TransientError) as error:
            migrate("postgresql://nobody:secret@127.0.0.1:1/none")
        assert error.value.code is Code.DATABASE_UNAVAILABLE
        assert "secret" not in str(error.value)


class TestTable:
    def test_has_the_contracts_columns(self, make_engine, database_url: str) -> None:
        dataset = declare(COLUMNS, checks={"day": nullable(description="It's the day.")})
        engine = make_engine([dataset])
        engine.loader.prepare(dataset.contract)
        assert shape(database_url) == {
            "_tenant": "text",
            "id": "text",
            "count": "bigint",
            "day": "date NULL",
            "at": "timestamp without time zone",
            "instant": "timestamp with time zone",
            "amount": "numeric(14,2)",
            "extra": "double precision NULL",
            "_upload_id": "bigint",
            "_job_id": "uuid",
            "_record": "bigint",
        }
        (comment,) = ask(
            database_url, "SELECT col_description('public.things'::regclass, 4) AS said"
        )
        assert comment["said"] == "It's the day."
        (known,) = ask(database_url, "SELECT * FROM pocket.dataset_tables")
        assert known["contract_version"] == dataset.contract.version

    def test_twice_is_once(self, make_engine) -> None:
        dataset = declare(COLUMNS)
        engine = make_engine([dataset])
        engine.loader.prepare(dataset.contract)
        engine.loader.prepare(dataset.contract)

    def test_two_at_once_make_one(self, make_engine) -> None:
        dataset = declare(COLUMNS)
        engine = make_engine([dataset])
        errors: list[BaseException] = []

        def prepare() -> None:
            try:
                engine.loader.prepare(dataset.contract)
            except BaseException as error:  # noqa: BLE001 - told by the test's own thread
                errors.append(error)

        threads = [threading.Thread(target=prepare) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []

    def test_a_schema_of_its_own(self, make_engine, database_url: str) -> None:
        dataset = declare(COLUMNS)
        make_engine([dataset], table_schema="imports").loader.prepare(dataset.contract)
        assert ask(database_url, "SELECT to_regclass('imports.things') AS it")[0]["it"]

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ("ALTER TABLE things DROP COLUMN amount", "amount"),
            ("ALTER TABLE things ADD COLUMN more text", "more"),
            ("ALTER TABLE things ALTER COLUMN amount TYPE numeric(15,2)", "amount"),
            ("ALTER TABLE things ALTER COLUMN count DROP NOT NULL", "count"),
            ("ALTER TABLE things ALTER COLUMN extra SET NOT NULL", "extra"),
            ("ALTER TABLE things RENAME COLUMN day TO days", "day, days"),
            (NO_KEY, "primary key"),
            (f"{NO_KEY}, ADD PRIMARY KEY (_tenant, id, count)", "primary key"),
        ],
    )
    def test_in_another_shape_is_refused(
        self, make_engine, database_url: str, change: str, named: str
    ) -> None:
        dataset = declare(COLUMNS)
        engine = make_engine([dataset])
        engine.loader.prepare(dataset.contract)
        ask(database_url, change)
        with pytest.raises(PermanentError) as error:
            engine.loader.prepare(dataset.contract)
        assert error.value.code is Code.TABLE_DIFFERS
        assert f": {named}." in error.value.detail
        assert "public.things" in error.value.detail

    def test_another_key_is_refused(self, make_engine) -> None:
        engine = make_engine([])
        engine.loader.prepare(declare({"id": str, "part": str}).contract)
        with pytest.raises(PermanentError) as error:
            engine.loader.prepare(declare({"id": str, "part": str}, key=("id", "part")).contract)
        assert error.value.code is Code.TABLE_DIFFERS

    def test_the_order_of_columns_and_what_else_is_on_the_table_do_not_matter(
        self, make_engine, database_url: str
    ) -> None:
        dataset = declare({"id": str, "value": str})
        engine = make_engine([dataset])
        engine.loader.prepare(dataset.contract)
        ask(database_url, "ALTER TABLE things ADD CHECK (value <> 'x')")
        ask(database_url, "CREATE INDEX ON things (value)")
        ask(database_url, "ALTER TABLE things DROP COLUMN value")
        ask(database_url, "ALTER TABLE things ADD COLUMN value text NOT NULL")
        engine.loader.prepare(dataset.contract)

    def test_names_that_are_words_of_sql(self, make_engine) -> None:
        columns = {"select": str, "user": str, "order": str}
        dataset = declare(columns, name="table", key=("select",), tenant=FromColumn("user"))
        make_engine([dataset]).loader.prepare(dataset.contract)

    def test_without_the_right_to_create_says_so(self, database_url: str) -> None:
        with psycopg.connect(database_url, row_factory=dict_row) as connection:
            # Roles belong to the whole server, but this one is never committed.
            connection.execute("CREATE ROLE pocket_guest")
            connection.execute("GRANT USAGE ON SCHEMA pocket TO pocket_guest")
            connection.execute("SET LOCAL ROLE pocket_guest")
            with pytest.raises(PermanentError) as error:
                ensure_table(connection, declare({"id": str}).contract, schema="not_ours")
            connection.rollback()
        assert error.value.code is Code.DATABASE_REFUSED
        assert "Grant it CREATE" in error.value.detail
