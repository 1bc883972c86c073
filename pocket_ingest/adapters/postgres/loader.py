"""Rows into a dataset's table and out again, and the receipts that make it exactly once.

Here: the transaction of a batch: rows, receipt, counters and the fence, all or none of them.
Not here: which batches there are (core/loading.py) and DDL (schema.py).

A batch is first tried as a binary COPY straight into the table under a savepoint, at 0.90 of the
time of a bare CSV COPY. Where it meets a key that is there already, it is staged and merged (1.7),
and so are the job's later batches: a job that collided once will collide again, and a failed try
costs more than it saves (2.8 when every batch collides).
"""

import time
from collections.abc import Iterator
from typing import BinaryIO
from uuid import UUID

import pgpq
import pyarrow as pa
from psycopg import errors, sql

from pocket_ingest.adapters.postgres.connection import Connection, Database
from pocket_ingest.adapters.postgres.ledger import lock_tenant, refuse_lost
from pocket_ingest.adapters.postgres.schema import (
    JOB,
    RECORD,
    TENANT,
    UPLOAD,
    ensure_table,
    table_columns,
)
from pocket_ingest.core.contract import Contract
from pocket_ingest.core.dataset import Existing, FromColumn
from pocket_ingest.core.errors import Code, TransientError
from pocket_ingest.core.jobs import OUTCOME_NAMES, Claim, ImportJob, Outcomes
from pocket_ingest.core.ports import LoadBatch

COPY_BLOCK_ROWS = 16_384
"""Rows encoded at once: some megabytes, so that encoding and sending alternate in cache."""


class PostgresLoader:
    """core.ports.Loader on Postgres."""

    def __init__(self, database: Database, *, schema: str) -> None:
        self._database = database
        self._schema = schema
        self._collided: set[UUID] = set()

    def prepare(self, contract: Contract) -> None:
        """Create the dataset's table where it is missing, or compare it with the contract."""
        with self._database.transaction(actor="loader") as connection:
            ensure_table(connection, contract, schema=self._schema)

    def receipts(self, job_id: UUID) -> set[tuple[int, int]]:
        """(first record, last record) of each batch that has committed."""
        with self._database.transaction() as connection:
            rows = connection.execute(
                "SELECT first_record, last_record FROM pocket.batch_receipts WHERE job_id = %s",
                (job_id,),
            )
            return {(row["first_record"], row["last_record"]) for row in rows}

    def load(self, claim: Claim, contract: Contract, job: ImportJob, batch: LoadBatch) -> Outcomes:
        """Commit one batch: rows, receipt and job counters in one transaction."""
        started = time.monotonic()
        rows = _with_provenance(batch.rows, contract, job)
        merge = _Merge(contract, self._schema)
        with self._database.transaction(actor=claim.worker) as connection:
            refuse_lost(connection, claim)
            lock_tenant(connection, "load", contract.name, job.upload.tenant)
            written = None
            if job.id not in self._collided:
                written = merge.try_copy(connection, rows)
            if written is None:
                self._collided.add(job.id)
                written = merge.stage_and_merge(connection, rows, job)
            outcomes = written + Outcomes(duplicate=batch.duplicate, rejected=batch.rejected)
            _write_receipt(connection, claim, batch, outcomes, time.monotonic() - started)
            _count(connection, claim, outcomes)
        return outcomes

    def export_csv(self, contract: Contract, job: ImportJob, target: BinaryIO) -> int:
        """Write the rows that this upload last wrote, as of one snapshot."""
        query = sql.SQL(
            "COPY (SELECT {columns} FROM {table} WHERE {upload} = {id}{tenant} ORDER BY {record}) "
            "TO STDOUT (FORMAT csv, HEADER true, ENCODING 'UTF8')"
        ).format(
            columns=_names([RECORD, *(f.name for f in contract.fields)]),
            table=sql.Identifier(self._schema, contract.name),
            upload=sql.Identifier(UPLOAD),
            id=sql.Literal(job.upload.id),
            tenant=sql.SQL("")
            if isinstance(contract.dataset.tenant, FromColumn)
            else sql.SQL(" AND {} = {}").format(
                sql.Identifier(TENANT), sql.Literal(job.upload.tenant)
            ),
            record=sql.Identifier(RECORD),
        )
        with self._database.transaction() as connection:
            # Neither dates nor the last digit of a float may depend on the server's settings.
            connection.execute(
                "SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO, YMD'; "
                "SET LOCAL extra_float_digits = 1"
            )
            cursor = connection.cursor()
            with cursor.copy(query) as copy:
                for block in copy:
                    target.write(block)
            # The command tag counts the rows of a COPY, its header not among them.
            return max(cursor.rowcount, 0)


class _Merge:
    """The statements that write one batch into one contract's table."""

    def __init__(self, contract: Contract, schema: str) -> None:
        self._policy = contract.existing
        names = [name for name, _, _ in table_columns(contract)]
        key = [TENANT, *contract.key]
        data = [f.name for f in contract.fields if f.name not in contract.key]
        own = [UPLOAD, JOB, RECORD]
        self._table = sql.Identifier(schema, contract.name)
        self._stage = sql.Identifier("pocket_stage")
        self._columns = _names(names)
        self._key = _names(key)
        # The planner needs to know how many rows there are and how their keys are spread; the
        # other columns' statistics cost 0.1 s for 50,000 rows.
        self._analyze = sql.SQL("ANALYZE {} ({})").format(self._stage, self._key)
        self._same_key = sql.SQL(" AND ").join(
            sql.SQL("t.{0} = s.{0}").format(sql.Identifier(name)) for name in key
        )
        self._differs = (
            sql.SQL("({}) IS DISTINCT FROM ({})").format(_names(data, "t"), _names(data, "s"))
            if data
            else sql.SQL("false")
        )
        self._set = sql.SQL(", ").join(
            sql.SQL("{0} = s.{0}").format(sql.Identifier(name)) for name in [*data, *own]
        )
        self._set_own = sql.SQL(", ").join(
            sql.SQL("{0} = s.{0}").format(sql.Identifier(name)) for name in own
        )

    def try_copy(self, connection: Connection, rows: pa.Table) -> Outcomes | None:
        """COPY straight into the table; None, and nothing written, if a key is there already."""
        if not rows.num_rows:
            return Outcomes()
        try:
            with connection.transaction():
                _copy(connection, self._table, self._columns, rows)
        except errors.UniqueViolation:
            return None
        return Outcomes(created=rows.num_rows)

    def stage_and_merge(self, connection: Connection, rows: pa.Table, job: ImportJob) -> Outcomes:
        """COPY into a staging table, then one merge, sorted by key so that no two deadlock."""
        upload = job.upload
        connection.execute(
            sql.SQL("CREATE TEMP TABLE {} (LIKE {}) ON COMMIT DROP").format(
                self._stage, self._table
            )
        )
        _copy(connection, self._stage, self._columns, rows)
        connection.execute(self._analyze)
        # A batch is held in memory here as well; the usual 4 MB would spill it, and with it the
        # whole table, into temporary files.
        connection.execute("SET LOCAL work_mem = '64MB'")
        # Who was there before is asked first: afterwards everything is.
        seen = self._existing(connection, upload.id)
        created = 0
        if sum(seen.values()) < rows.num_rows:
            created = self._insert(connection)
        updated = 0
        if self._policy is Existing.UPDATE and seen["different"]:
            updated = self._update(connection, self._set, sql.SQL("AND {}").format(self._differs))
        if seen["unchanged"] and _older_is_unfinished(connection, job):
            # An older upload may still come. It must find that this newer one said the same.
            self._update(connection, self._set_own, sql.SQL("AND NOT ({})").format(self._differs))
        conflict = seen["different"] if self._policy is Existing.CONFLICT else 0
        return Outcomes(
            created=created,
            updated=updated,
            stale=seen["stale"],
            conflict=conflict,
            unchanged=rows.num_rows - created - updated - seen["stale"] - conflict,
        )

    def _existing(self, connection: Connection, upload_id: int) -> dict[str, int]:
        """Of the staged rows with a row in the table: how many are stale, different, unchanged.

        Rows that are stale or different are locked until the end of the transaction, so that
        another session's edit cannot come between this count and the merge. The unchanged ones are
        not: nothing is done to them, and a lock is a write, which doubled the time of a file that
        brings nothing new.
        """
        seen = self._count_existing(connection, upload_id)
        if seen["stale"] or seen["different"]:
            locked = self._count_existing(connection, upload_id, lock=True)
            seen |= {name: locked[name] for name in ("stale", "different")}
        return seen

    def _count_existing(
        self, connection: Connection, upload_id: int, *, lock: bool = False
    ) -> dict[str, int]:
        only = sql.SQL("WHERE t.{} > %(id)s OR {} FOR NO KEY UPDATE OF t").format(
            sql.Identifier(UPLOAD), self._differs
        )
        row = connection.execute(
            sql.SQL(
                "WITH existing AS (SELECT t.{upload} AS upload, {differs} AS differs "
                "FROM {table} t JOIN {stage} s ON {same_key} {only}) "
                "SELECT count(*) AS there, count(*) FILTER (WHERE upload > %(id)s) AS stale, "
                "count(*) FILTER (WHERE upload <= %(id)s AND differs) AS different "
                "FROM existing"
            ).format(
                upload=sql.Identifier(UPLOAD),
                differs=self._differs,
                table=self._table,
                stage=self._stage,
                same_key=self._same_key,
                only=only if lock else sql.SQL(""),
            ),
            {"id": upload_id},
        ).fetchone()
        assert row is not None  # noqa: S101 - an aggregate always has a row
        unchanged = row["there"] - row["stale"] - row["different"]
        return {"stale": row["stale"], "different": row["different"], "unchanged": unchanged}

    def _insert(self, connection: Connection) -> int:
        return connection.execute(
            sql.SQL(
                "INSERT INTO {table} ({columns}) SELECT {columns} FROM {stage} s ORDER BY {key} "
                "ON CONFLICT ({key}) DO NOTHING"
            ).format(table=self._table, columns=self._columns, stage=self._stage, key=self._key)
        ).rowcount

    def _update(
        self, connection: Connection, assignments: sql.Composable, condition: sql.Composable
    ) -> int:
        return connection.execute(
            sql.SQL(
                "UPDATE {table} t SET {assignments} FROM {stage} s "
                "WHERE {same_key} AND t.{upload} < s.{upload} {condition}"
            ).format(
                table=self._table,
                assignments=assignments,
                stage=self._stage,
                same_key=self._same_key,
                upload=sql.Identifier(UPLOAD),
                condition=condition,
            )
        ).rowcount


def _names(names: list[str], alias: str | None = None) -> sql.Composed:
    return sql.SQL(", ").join(
        sql.Identifier(alias, name) if alias else sql.Identifier(name) for name in names
    )


def _with_provenance(rows: pa.Table, contract: Contract, job: ImportJob) -> pa.Table:
    """The table's columns in order: tenant, fields, upload, job and record."""
    count = rows.num_rows
    rule = contract.dataset.tenant
    if isinstance(rule, FromColumn):
        tenant = rows[rule.column]
    else:
        tenant = pa.repeat(pa.scalar(job.upload.tenant, pa.large_string()), count)
    columns = {TENANT: tenant, **{f.name: rows[f.name] for f in contract.fields}}
    columns[UPLOAD] = pa.repeat(pa.scalar(job.upload.id, pa.int64()), count)
    # The binary form of a uuid is its sixteen bytes, which is also that of a bytea of sixteen.
    columns[JOB] = pa.repeat(pa.scalar(job.id.bytes, pa.binary()), count)
    columns[RECORD] = rows[RECORD]
    return pa.table(columns)


def _copy(
    connection: Connection, table: sql.Composable, columns: sql.Composable, rows: pa.Table
) -> None:
    """Binary COPY of an Arrow table."""
    encoder = pgpq.ArrowToPostgresBinaryEncoder(rows.schema)
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(table, columns)
    with connection.cursor().copy(statement) as copy:
        for block in _encoded(encoder, rows):
            copy.write(block)


def _encoded(encoder: pgpq.ArrowToPostgresBinaryEncoder, rows: pa.Table) -> Iterator[bytes]:
    yield encoder.write_header()
    for block in rows.to_batches(max_chunksize=COPY_BLOCK_ROWS):
        yield encoder.write_batch(block)
    yield encoder.finish()


def _older_is_unfinished(connection: Connection, job: ImportJob) -> bool:
    """Whether an upload of the same tenant that came before this one may still load rows."""
    row = connection.execute(
        "SELECT EXISTS (SELECT FROM pocket.import_jobs WHERE dataset = %s AND tenant = %s "
        "AND upload_id < %s AND state <> 'succeeded' AND state <> 'cancelled') AS there",
        (job.upload.dataset, job.upload.tenant, job.upload.id),
    ).fetchone()
    assert row is not None  # noqa: S101 - EXISTS always has a row
    return bool(row["there"])


def _write_receipt(
    connection: Connection, claim: Claim, batch: LoadBatch, outcomes: Outcomes, seconds: float
) -> None:
    counts = outcomes.as_dict()
    columns = ["job_id", "first_record", "last_record", "attempt", "seconds", *counts]
    connection.execute(
        sql.SQL("INSERT INTO pocket.batch_receipts ({}) VALUES ({})").format(
            _names(columns), sql.SQL(", ").join(sql.Placeholder() * len(columns))
        ),
        (
            claim.job_id,
            batch.first_record,
            batch.last_record,
            claim.attempt,
            seconds,
            *counts.values(),
        ),
    )


def _count(connection: Connection, claim: Claim, outcomes: Outcomes) -> None:
    """Add to the job's counters, last in the transaction: this is the fence.

    Where the claim no longer holds, or a person cancelled meanwhile, no row is found and the whole
    batch is rolled back.
    """
    done = connection.execute(
        sql.SQL(
            "UPDATE pocket.import_jobs SET {} WHERE id = %(job_id)s AND claim_token = %(token)s "
            "AND state = 'loading' AND cancel_requested_at IS NULL"
        ).format(
            sql.SQL(", ").join(
                sql.SQL("{0} = {0} + {1}").format(sql.Identifier(name), sql.Placeholder(name))
                for name in OUTCOME_NAMES
            )
        ),
        {"job_id": claim.job_id, "token": claim.token, **outcomes.as_dict()},
    )
    if done.rowcount != 1:
        refuse_lost(connection, claim)
        raise TransientError(Code.LEASE_LOST, "The job changed hands; its last batch was undone.")
