"""The ledger in Postgres: every statement that reads or changes uploads, jobs and the outbox.

Here: one method per promise of core.ports.Ledger, each one transaction.
Not here: rows of datasets and receipts (loader.py); which transitions there are (the migration's
trigger and core/jobs.py).
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from psycopg.errors import LockNotAvailable
from psycopg.types.json import Jsonb

from pocket_ingest.adapters.postgres.connection import Connection, Database
from pocket_ingest.core.errors import Cancelled, Code, PermanentError, TransientError
from pocket_ingest.core.intake import slug
from pocket_ingest.core.jobs import (
    OUTCOME_NAMES,
    RETRYABLE,
    Claim,
    ImportJob,
    JobState,
    OutboxEntry,
    Outcomes,
    Stage,
    Upload,
)
from pocket_ingest.core.ports import JobEvent, NewUpload, Registered, StoredObject, Unfinished

JOB = f"""
    SELECT j.id, j.state, j.attempt, j.idempotency_key, j.contract_version, j.queued_at,
           j.started_at, j.verified_at, j.validated_at, j.loaded_at, j.exported_at, j.finished_at,
           j.claimed_by, j.run_id, j.lease_expires_at, j.cancel_requested_at, j.error_code,
           j.error_summary, j.records_read, j.artifacts, j.report,
           {", ".join(f"j.{name}" for name in OUTCOME_NAMES)},
           u.id AS upload_id, u.dataset, u.tenant, u.source_key, u.source_version, u.pinned_key,
           u.file_name, u.size_bytes, u.sha256, u.partition_key, u.received_at, u.same_content_as
    FROM pocket.import_jobs j JOIN pocket.uploads u ON u.id = j.upload_id
"""  # noqa: S608 - own constants
STAMPS = {
    Stage.UPLOAD: "verified_at",
    Stage.VALIDATED: "validated_at",
    Stage.LOADED: "loaded_at",
    Stage.EXPORTS: "exported_at",
}
# Intake takes milliseconds; a batch of 16 MB takes seconds, minutes on a disk that is full of work.
MAX_ATTEMPTS = 100
"""A job that is handed over so often without a worker ever taking it needs a person."""
LOCK_SECONDS = {"intake": 10, "load": 300}
IS_RUNNING = "state IN ('validating', 'loading', 'exporting')"
IS_MINE = f"id = %(job_id)s AND claim_token = %(token)s AND {IS_RUNNING}"
IS_MINE_AND_WANTED = f"{IS_MINE} AND cancel_requested_at IS NULL"


class PostgresLedger:
    """core.ports.Ledger on Postgres."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- intake --------------------------------------------------------------------------------

    def known_versions(self, dataset: str, objects: Sequence[StoredObject]) -> set[tuple[str, str]]:
        """Which (key, version) pairs were taken in before."""
        with self._database.transaction() as connection:
            rows = connection.execute(
                "SELECT source_key, source_version FROM pocket.sightings WHERE dataset = %s "
                "AND (source_key, source_version) IN "
                "(SELECT * FROM unnest(%s::text[], %s::text[]))",
                (dataset, [o.key for o in objects], [o.version for o in objects]),
            )
            return {(row["source_key"], row["source_version"]) for row in rows}

    def register(self, new: NewUpload) -> Registered:
        """Write upload, job, outbox row and sighting in one transaction, or recognise them."""
        with self._database.transaction(actor="intake") as connection:
            # Upload ids of a tenant are committed in their order: "newer" has one meaning only.
            lock_tenant(connection, "intake", new.dataset, new.tenant)
            known = self._recognised(connection, new)
            if known is None:
                upload = self._insert_upload(connection, new)
                known = upload["id"]
                _queue_outbox(connection, self._insert_job(connection, new, known), attempt=1)
                is_new = True
            else:
                is_new = False
            connection.execute(
                "INSERT INTO pocket.sightings (dataset, source_key, source_version, upload_id) "
                "VALUES (%s, %s, %s, %s) ON CONFLICT (dataset, source_key, source_version) "
                "DO UPDATE SET upload_id = excluded.upload_id",
                (new.dataset, new.source_key, new.pinned.source_version, known),
            )
            job = _job(connection, "j.upload_id = %s", known)
            return Registered(job=job, is_new=is_new)

    def _recognised(self, connection: Connection, new: NewUpload) -> int | None:
        """The upload that this one repeats."""
        if new.idempotency_key is not None:
            row = connection.execute(
                "SELECT u.id, u.sha256 FROM pocket.import_jobs j "
                "JOIN pocket.uploads u ON u.id = j.upload_id "
                "WHERE (j.dataset, j.tenant, j.idempotency_key) = (%s, %s, %s)",
                (new.dataset, new.tenant, new.idempotency_key),
            ).fetchone()
            if row is not None and row["sha256"] != new.pinned.sha256:
                raise PermanentError(
                    Code.IDEMPOTENCY_CONFLICT,
                    f"{new.file_name!r} came under an idempotency key that stands for other "
                    "content. Send it under a new key.",
                )
            if row is not None:
                return int(row["id"])
        # A cancelled job never runs again, so its upload is nothing to be recognised as.
        seen = connection.execute(
            "SELECT s.upload_id FROM pocket.sightings s "
            "JOIN pocket.import_jobs j ON j.upload_id = s.upload_id AND j.state <> 'cancelled' "
            "WHERE (s.dataset, s.source_key, s.source_version) = (%s, %s, %s)",
            (new.dataset, new.source_key, new.pinned.source_version),
        ).fetchone()
        if seen is not None:
            return int(seen["upload_id"])
        latest = connection.execute(
            "SELECT u.id, u.sha256, j.state FROM pocket.uploads u "
            "JOIN pocket.import_jobs j ON j.upload_id = u.id "
            "WHERE (u.dataset, u.tenant, u.source_key) = (%s, %s, %s) ORDER BY u.id DESC LIMIT 1",
            (new.dataset, new.tenant, new.source_key),
        ).fetchone()
        # The latest only: a file that went from A to B and back to A is meant to be A again.
        if latest is None or latest["state"] == JobState.CANCELLED:
            return None
        return int(latest["id"]) if latest["sha256"] == new.pinned.sha256 else None

    def _insert_upload(self, connection: Connection, new: NewUpload) -> dict[str, Any]:
        before = connection.execute(
            "SELECT count(*) FILTER (WHERE source_key = %(key)s) AS versions, "
            "(array_agg(partition_key ORDER BY id DESC) FILTER (WHERE sha256 = %(sha)s))[1] "
            "AS twin FROM pocket.uploads WHERE dataset = %(dataset)s AND tenant = %(tenant)s "
            "AND (source_key = %(key)s OR sha256 = %(sha)s)",
            {
                "dataset": new.dataset,
                "tenant": new.tenant,
                "key": new.source_key,
                "sha": new.pinned.sha256,
            },
        ).fetchone()
        assert before is not None  # noqa: S101 - an aggregate always has a row
        row = connection.execute(
            "INSERT INTO pocket.uploads (dataset, tenant, source_key, source_version, pinned_key, "
            "file_name, size_bytes, sha256, partition_key, same_content_as) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) RETURNING id",
            (
                new.dataset,
                new.tenant,
                new.source_key,
                new.pinned.source_version,
                new.pinned.key,
                new.file_name,
                new.pinned.size_bytes,
                new.pinned.sha256,
                partition_key(new, version=before["versions"]),
                before["twin"],
            ),
        ).fetchone()
        assert row is not None  # noqa: S101 - RETURNING
        return row

    def _insert_job(self, connection: Connection, new: NewUpload, upload_id: int) -> UUID:
        row = connection.execute(
            "INSERT INTO pocket.import_jobs (upload_id, dataset, tenant, idempotency_key) "
            "VALUES (%s, %s, %s, %s) RETURNING id",
            (upload_id, new.dataset, new.tenant, new.idempotency_key),
        ).fetchone()
        assert row is not None  # noqa: S101 - RETURNING
        return UUID(str(row["id"]))

    # -- looking -------------------------------------------------------------------------------

    def job(self, job_id: UUID) -> ImportJob:
        """One job by id."""
        with self._database.transaction() as connection:
            return _job(connection, "j.id = %s", job_id)

    def job_for_partition(self, dataset: str, partition_key: str) -> ImportJob:
        """The job of a partition."""
        with self._database.transaction() as connection:
            return _job(
                connection, "u.dataset = %s AND u.partition_key = %s", dataset, partition_key
            )

    def jobs(
        self,
        *,
        dataset: str | None = None,
        tenant: str | None = None,
        states: Iterable[JobState] = (),
        limit: int = 1000,
    ) -> list[ImportJob]:
        """Jobs, newest first."""
        with self._database.transaction() as connection:
            rows = connection.execute(
                f"{JOB} WHERE (%(dataset)s::text IS NULL OR j.dataset = %(dataset)s) "
                "AND (%(tenant)s::text IS NULL OR j.tenant = %(tenant)s) "
                "AND (%(states)s::text[] IS NULL OR j.state = ANY(%(states)s)) "
                "ORDER BY j.upload_id DESC LIMIT %(limit)s",
                {
                    "dataset": dataset,
                    "tenant": tenant,
                    "states": [str(s) for s in states] or None,
                    "limit": limit,
                },
            )
            return [_to_job(row) for row in rows]

    def last_event(self) -> int:
        """The id of the newest entry of the audit log; 0 if there is none."""
        with self._database.transaction() as connection:
            row = connection.execute(
                "SELECT coalesce(max(id), 0) AS id FROM pocket.audit_log"
            ).fetchone()
            return int(row["id"]) if row else 0

    def events(self, *, after: int, limit: int) -> list[JobEvent]:
        """Entries of the audit log behind an id, oldest first."""
        with self._database.transaction() as connection:
            rows = connection.execute(
                "SELECT id, job_id, event, to_state FROM pocket.audit_log WHERE id > %s "
                "ORDER BY id LIMIT %s",
                (after, limit),
            )
            return [JobEvent(**{**row, "to_state": JobState(row["to_state"])}) for row in rows]

    # -- work ----------------------------------------------------------------------------------

    def claim(
        self,
        job_id: UUID,
        *,
        worker: str,
        run_id: str | None,
        lease_seconds: float,
        contract_version: str | None,
    ) -> Claim | None:
        """Take a queued job by one conditional UPDATE."""
        redo = (
            "(contract_version IS DISTINCT FROM %(version)s AND NOT EXISTS "
            "(SELECT FROM pocket.batch_receipts r WHERE r.job_id = j.id))"
        )
        with self._database.transaction(actor=worker) as connection:
            _take_over(connection, job_id)
            row = connection.execute(
                "UPDATE pocket.import_jobs j SET claim_token = claim_token + 1, "  # noqa: S608
                "claimed_by = %(worker)s, run_id = %(run_id)s, "
                "started_at = coalesce(started_at, clock_timestamp()), "
                "lease_expires_at = clock_timestamp() + make_interval(secs => %(lease)s), "
                f"validated_at = CASE WHEN NOT {redo} THEN validated_at END, "
                # A file without records has nothing loaded and yet its stamps; they go with it.
                f"loaded_at = CASE WHEN NOT {redo} THEN loaded_at END, "
                f"exported_at = CASE WHEN NOT {redo} THEN exported_at END, "
                f"state = CASE WHEN validated_at IS NULL OR {redo} THEN 'validating' "
                "WHEN loaded_at IS NULL THEN 'loading' ELSE 'exporting' END "
                "WHERE id = %(job_id)s AND state = 'queued' "
                "RETURNING claim_token, attempt",
                {
                    "job_id": job_id,
                    "worker": worker,
                    "run_id": run_id,
                    "lease": lease_seconds,
                    "version": contract_version,
                },
            ).fetchone()
            if row is None:
                return None
            if run_id is not None:
                connection.execute(
                    "UPDATE pocket.outbox SET dispatched_at = clock_timestamp(), run_key = %s "
                    "WHERE job_id = %s AND attempt = %s AND dispatched_at IS NULL",
                    (run_id, job_id, row["attempt"]),
                )
        return Claim(
            job_id=job_id,
            token=row["claim_token"],
            attempt=row["attempt"],
            worker=worker,
            run_id=run_id,
        )

    def renew(self, claim: Claim, *, lease_seconds: float) -> bool:
        """Prolong the lease; False if it was lost."""
        with self._database.transaction() as connection:
            done = connection.execute(
                "UPDATE pocket.import_jobs SET "  # noqa: S608
                "lease_expires_at = clock_timestamp() + make_interval(secs => %(lease)s) "
                f"WHERE {IS_MINE}",
                {**_mine(claim), "lease": lease_seconds},
            )
            return done.rowcount == 1

    def check(self, claim: Claim) -> None:
        """Raise if a person cancelled the job or another worker has it."""
        with self._database.transaction() as connection:
            refuse_lost(connection, claim)

    def enter(self, claim: Claim, state: JobState) -> None:
        """Move the claimed job to a running state; where it is there already, only check."""
        with self._database.transaction(actor=claim.worker) as connection:
            _change(connection, claim, "state = %(state)s", {"state": state})

    def note(
        self, claim: Claim, *, artifacts: Mapping[str, str | None], report: Mapping[str, Any]
    ) -> None:
        """Set artifact keys and parts of the report."""
        with self._database.transaction(actor=claim.worker) as connection:
            _change(
                connection,
                claim,
                "artifacts = jsonb_strip_nulls(artifacts || %(artifacts)s), "
                "report = report || %(report)s",
                {"artifacts": Jsonb(dict(artifacts)), "report": Jsonb(dict(report))},
            )

    def finish_stage(
        self,
        claim: Claim,
        stage: Stage,
        *,
        records_read: int | None = None,
        contract_version: str | None = None,
    ) -> ImportJob:
        """Stamp a stage as committed."""
        with self._database.transaction(actor=claim.worker) as connection:
            _change(
                connection,
                claim,
                f"{STAMPS[stage]} = clock_timestamp(), "
                "records_read = coalesce(%(read)s, records_read), "
                "contract_version = coalesce(%(version)s, contract_version)",
                {"read": records_read, "version": contract_version},
            )
            return _job(connection, "j.id = %s", claim.job_id)

    def succeed(self, claim: Claim) -> ImportJob:
        """The last transition; a cancel that came first wins."""
        return self._end(claim, JobState.SUCCEEDED, where=IS_MINE_AND_WANTED)

    def fail(self, claim: Claim, *, code: str, summary: str) -> ImportJob:
        """End the claimed job as failed."""
        return self._end(
            claim,
            JobState.FAILED,
            where=IS_MINE,
            extra=", error_code = %(code)s, error_summary = %(summary)s",
            code=code,
            summary=summary,
        )

    def cancel(self, claim: Claim) -> ImportJob:
        """End the claimed job as cancelled."""
        return self._end(claim, JobState.CANCELLED, where=IS_MINE)

    def _end(
        self, claim: Claim, state: JobState, *, where: str, extra: str = "", **values: str
    ) -> ImportJob:
        with self._database.transaction(actor=claim.worker) as connection:
            if _has_ended(connection, claim, state):  # the answer to the commit was lost
                return _job(connection, "j.id = %s", claim.job_id)
            if claim.run_id is None:
                _ask_for_a_report(connection, claim)
            _change(
                connection,
                claim,
                "state = %(state)s, finished_at = clock_timestamp(), lease_expires_at = NULL"
                + extra,
                {"state": state, **values},
                where=where,
            )
            return _job(connection, "j.id = %s", claim.job_id)

    def release(self, claim: Claim, *, reason: str, dispatch: bool) -> None:
        """Put a claimed job back to queued, or end it if that was asked for meanwhile."""
        with self._database.transaction(actor=claim.worker, reason=reason) as connection:
            row = connection.execute(
                "UPDATE pocket.import_jobs SET attempt = attempt + 1, "  # noqa: S608
                "claim_token = claim_token + 1, lease_expires_at = NULL, "
                "queued_at = clock_timestamp(), "
                "state = CASE WHEN cancel_requested_at IS NULL THEN 'queued' "
                "ELSE 'cancelled' END, "
                "finished_at = CASE WHEN cancel_requested_at IS NOT NULL "
                f"THEN clock_timestamp() END WHERE {IS_MINE} RETURNING attempt, state",
                _mine(claim),
            ).fetchone()
            if row is not None and dispatch and row["state"] == JobState.QUEUED:
                _queue_outbox(connection, claim.job_id, attempt=row["attempt"])

    # -- people --------------------------------------------------------------------------------

    def retry(self, job_id: UUID, *, actor: str) -> bool:
        """Queue a failed or quarantined job again and ask for a run; False if it is neither."""
        with self._database.transaction(actor=actor, reason="retry") as connection:
            row = connection.execute(
                "UPDATE pocket.import_jobs SET state = 'queued', attempt = attempt + 1, "
                "losses = 0, finished_at = NULL, error_code = NULL, error_summary = NULL, "
                "cancel_requested_at = NULL, queued_at = clock_timestamp() "
                "WHERE id = %s AND state = ANY(%s) RETURNING attempt",
                (job_id, [str(s) for s in RETRYABLE]),
            ).fetchone()
            if row is not None:
                _queue_outbox(connection, job_id, attempt=row["attempt"])
            return row is not None

    def request_cancel(self, job_id: UUID, *, actor: str) -> ImportJob:
        """Ask for a cancel; a job that no one works on ends at once."""
        with self._database.transaction(actor=actor) as connection:
            connection.execute(
                "UPDATE pocket.import_jobs SET cancel_requested_at = clock_timestamp(), "
                "state = CASE WHEN state IN ('queued', 'uploading') THEN 'cancelled' "
                "ELSE state END, "
                "finished_at = CASE WHEN state IN ('queued', 'uploading') "
                "THEN clock_timestamp() END "
                "WHERE id = %s AND cancel_requested_at IS NULL AND finished_at IS NULL",
                (job_id,),
            )
            return _job(connection, "j.id = %s", job_id)

    # -- handing over --------------------------------------------------------------------------

    def pending(self, *, datasets: Iterable[str] | None = None, limit: int) -> list[OutboxEntry]:
        """Jobs of these datasets that wait for a run and were not handed over, oldest first."""
        with self._database.transaction() as connection:
            rows = connection.execute(
                "SELECT o.id, o.job_id, o.attempt, o.created_at, j.losses, u.dataset, u.tenant, "
                "u.partition_key, u.file_name, u.size_bytes "
                "FROM pocket.outbox o JOIN pocket.import_jobs j ON j.id = o.job_id "
                "JOIN pocket.uploads u ON u.id = j.upload_id "
                "WHERE o.dispatched_at IS NULL "
                "AND j.state IN ('queued', 'succeeded', 'failed') "
                "AND j.attempt = o.attempt "
                "AND (%(datasets)s::text[] IS NULL OR j.dataset = ANY(%(datasets)s)) "
                "ORDER BY o.id LIMIT %(limit)s",
                {"datasets": None if datasets is None else list(datasets), "limit": limit},
            )
            return [OutboxEntry(**row) for row in rows]

    def mark_dispatched(self, run_keys: Mapping[int, str]) -> None:
        """Note that these outbox entries were handed to the orchestrator."""
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE pocket.outbox o SET dispatched_at = clock_timestamp(), run_key = k.run_key "
                "FROM unnest(%s::bigint[], %s::text[]) AS k (id, run_key) "
                "WHERE o.id = k.id AND o.dispatched_at IS NULL",
                (list(run_keys), list(run_keys.values())),
            )

    def unfinished(self, *, limit: int) -> list[Unfinished]:
        """Jobs that were handed over and have not ended, oldest first."""
        with self._database.transaction() as connection:
            rows = connection.execute(
                "SELECT j.id AS job_id, j.state, j.attempt, j.claim_token AS token, j.run_id, "  # noqa: S608
                "o.run_key, extract(epoch FROM clock_timestamp() - CASE WHEN j.state = 'queued' "
                "THEN o.dispatched_at ELSE j.lease_expires_at END)::float8 AS silent_seconds "
                "FROM pocket.import_jobs j "
                "LEFT JOIN LATERAL (SELECT run_key, dispatched_at FROM pocket.outbox "
                "WHERE job_id = j.id AND attempt = j.attempt ORDER BY id DESC LIMIT 1) o ON true "
                f"WHERE j.state NOT IN ('succeeded', 'cancelled') AND (j.{IS_RUNNING} "
                "OR (j.state = 'queued' AND o.dispatched_at IS NOT NULL)) "
                "ORDER BY j.upload_id LIMIT %s",
                (limit,),
            )
            return [Unfinished(**{**row, "state": JobState(row["state"])}) for row in rows]

    def requeue(self, job: Unfinished, *, reason: str, max_losses: int) -> JobState | None:
        """Give a stalled job a new attempt and a new outbox row, or fail it as worker_lost."""
        lost = f"(state <> 'queued' AND losses >= %(most)s OR attempt >= {MAX_ATTEMPTS})"
        with self._database.transaction(actor="reconcile", reason=reason) as connection:
            row = connection.execute(
                "UPDATE pocket.import_jobs SET attempt = attempt + 1, "  # noqa: S608
                # A file that only waited in a run that died has lost no worker.
                "losses = losses + (state <> 'queued')::int, "
                "claim_token = claim_token + 1, lease_expires_at = NULL, "
                "queued_at = clock_timestamp(), "
                "state = CASE WHEN cancel_requested_at IS NOT NULL THEN 'cancelled' "
                f"WHEN {lost} THEN 'failed' ELSE 'queued' END, "
                f"finished_at = CASE WHEN cancel_requested_at IS NOT NULL OR {lost} "
                "THEN clock_timestamp() END, "
                f"error_code = CASE WHEN {lost} THEN 'worker_lost' END, "
                f"error_summary = CASE WHEN {lost} THEN 'Workers died or vanished ' || "
                "'several times while they had this file. See their logs, then retry it.' END "
                "WHERE id = %(job_id)s AND claim_token = %(token)s AND attempt = %(attempt)s "
                "AND state = %(state)s RETURNING state, attempt",
                {
                    "job_id": job.job_id,
                    "token": job.token,
                    "attempt": job.attempt,
                    "state": job.state,
                    "most": max_losses,
                },
            ).fetchone()
            if row is None:
                return None
            state = JobState(row["state"])
            if state is JobState.QUEUED:
                _queue_outbox(connection, job.job_id, attempt=row["attempt"])
            return state


def lock_tenant(connection: Connection, purpose: str, dataset: str, tenant: str) -> None:
    """Serialise this transaction with others of one purpose on the same dataset and tenant.

    Raises:
        TransientError: tenant_busy, if that takes longer than any sound transaction does.
    """
    digest = hashlib.sha256(f"{purpose}\0{dataset}\0{tenant}".encode()).digest()
    connection.execute(
        "SELECT set_config('lock_timeout', %s, true)", (f"{LOCK_SECONDS[purpose]}s",)
    )
    try:
        connection.execute(
            "SELECT pg_advisory_xact_lock(%s)", (int.from_bytes(digest[:8], signed=True),)
        )
    except LockNotAvailable as error:
        raise TransientError(
            Code.TENANT_BUSY,
            f"Another transaction on dataset {dataset!r} and tenant {tenant!r} has not ended for "
            f"{LOCK_SECONDS[purpose]} s. Look for a worker that hangs.",
        ) from error
    connection.execute("SELECT set_config('lock_timeout', '0', true)")


def partition_key(new: NewUpload, *, version: int) -> str:
    """``<tenant>.<file name>.<8 hex>``: readable, safe, and the same on every machine."""
    said = f"{new.tenant}\0{new.source_key}\0{new.pinned.sha256}\0{version}"
    digest = hashlib.sha256(said.encode()).hexdigest()[:8]
    return f"{slug(new.tenant, longest=40)}.{slug(new.file_name)}.{digest}"


def refuse_lost(connection: Connection, claim: Claim) -> None:
    """Raise Cancelled or TransientError(lease_lost) unless the claim holds and is wanted."""
    row = connection.execute(
        f"SELECT cancel_requested_at FROM pocket.import_jobs WHERE {IS_MINE}",  # noqa: S608
        _mine(claim),
    ).fetchone()
    if row is None:
        raise TransientError(
            Code.LEASE_LOST, "Another worker has taken this job over; this one stops."
        )
    if row["cancel_requested_at"] is not None:
        raise Cancelled


def _take_over(connection: Connection, job_id: UUID) -> None:
    """Queue a job whose worker has been silent for longer than its lease."""
    row = connection.execute(
        "UPDATE pocket.import_jobs SET state = 'queued', attempt = attempt + 1, "  # noqa: S608
        "losses = losses + 1, claim_token = claim_token + 1, lease_expires_at = NULL, "
        f"queued_at = clock_timestamp() WHERE id = %s AND {IS_RUNNING} "
        "AND lease_expires_at < clock_timestamp() AND cancel_requested_at IS NULL "
        "RETURNING attempt",
        (job_id,),
    ).fetchone()
    if row is not None:
        _queue_outbox(connection, job_id, attempt=row["attempt"])


def _mine(claim: Claim) -> dict[str, Any]:
    return {"job_id": claim.job_id, "token": claim.token}


def _change(
    connection: Connection,
    claim: Claim,
    assignments: str,
    values: Mapping[str, Any],
    *,
    where: str = IS_MINE_AND_WANTED,
) -> None:
    """Change the claimed job, or raise the reason why it is no longer this worker's to change."""
    done = connection.execute(
        f"UPDATE pocket.import_jobs SET {assignments} WHERE {where}",  # noqa: S608 - own constants
        {**_mine(claim), **values},
    )
    if done.rowcount != 1:
        refuse_lost(connection, claim)
        raise TransientError(Code.LEASE_LOST, "The job changed hands; this worker stops.")


def _has_ended(connection: Connection, claim: Claim, state: JobState) -> bool:
    row = connection.execute(
        "SELECT FROM pocket.import_jobs WHERE id = %s AND claim_token = %s AND state = %s",
        (claim.job_id, claim.token, state),
    ).fetchone()
    return row is not None


def _ask_for_a_report(connection: Connection, claim: Claim) -> None:
    """A job that ends outside the orchestrator is shown there by a run that finds it ended.

    Its outbox entry may have been spent on a run that found the job in this worker's hands.
    """
    connection.execute(
        "INSERT INTO pocket.outbox (job_id, attempt) SELECT %(job)s, %(attempt)s WHERE NOT EXISTS "
        "(SELECT FROM pocket.outbox WHERE job_id = %(job)s AND attempt = %(attempt)s "
        "AND dispatched_at IS NULL)",
        {"job": claim.job_id, "attempt": claim.attempt},
    )


def _queue_outbox(connection: Connection, job_id: UUID, *, attempt: int) -> None:
    connection.execute(
        "INSERT INTO pocket.outbox (job_id, attempt) VALUES (%s, %s)", (job_id, attempt)
    )


def _job(connection: Connection, where: str, *values: Any) -> ImportJob:
    row = connection.execute(f"{JOB} WHERE {where}", values).fetchone()
    if row is None:
        raise PermanentError(Code.UNKNOWN_JOB, "The ledger has no such job.")
    return _to_job(row)


def _to_job(row: dict[str, Any]) -> ImportJob:
    upload_names = set(Upload.__dataclass_fields__) - {"id"}
    upload = Upload(id=row["upload_id"], **{n: row[n] for n in upload_names})
    outcomes = Outcomes(**{name: row[name] for name in OUTCOME_NAMES})
    taken = upload_names | set(OUTCOME_NAMES) | {"upload_id", "state"}
    rest = {name: value for name, value in row.items() if name not in taken}
    return ImportJob(upload=upload, outcomes=outcomes, state=JobState(row["state"]), **rest)
