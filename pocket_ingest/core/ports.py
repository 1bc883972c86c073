"""What the engine needs from the world, as protocols. Adapters implement them; fakes do in tests.

Here: signatures, and the promises that every implementation keeps.
Not here: any implementation.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from uuid import UUID

import pyarrow as pa

from pocket_ingest.core.contract import Contract
from pocket_ingest.core.jobs import Claim, ImportJob, JobState, OutboxEntry, Outcomes, Stage


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """One object as a listing or a stat shows it; ``version`` changes whenever its bytes may have.

    ``settled`` is false while the object may still be being written.
    """

    key: str
    version: str
    size_bytes: int
    settled: bool = True


@dataclass(frozen=True, kw_only=True)
class PinnedObject:
    """The immutable copy of an object, with the checksum of the bytes that were copied.

    ``source_version`` is the version of the object that was copied.
    """

    key: str
    source_version: str
    size_bytes: int
    sha256: str


class Store(Protocol):
    """An object store: keys with ``/``, immutable versions, whole objects or none."""

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects below a prefix in key order."""

    def stat(self, key: str) -> StoredObject:
        """Describe an object. Raises PermanentError(upload_missing)."""

    def checksum(self, found: StoredObject) -> str:
        """The sha256 of exactly the version found.

        Raises PermanentError(upload_changed) if it is there in another version.
        """

    def pin(self, found: StoredObject, *, under: str) -> PinnedObject:
        """Make exactly the version found immutable under the key ``<under>/<its sha256>``.

        Raises PermanentError(upload_changed) if it changed meanwhile, upload_missing if it is gone.
        """

    def take(self, source: Path, *, under: str) -> PinnedObject:
        """Pin a local file that is not in the store, under the key ``<under>/<its sha256>``.

        Raises PermanentError(upload_changed) if it changed meanwhile, upload_missing if it is gone.
        """

    def open(self, key: str) -> BinaryIO:
        """Open an object for reading. Raises PermanentError(upload_missing)."""

    def publish(self, source: Path, *, key: str) -> int:
        """Put a finished local file under a key, whole or not at all; returns its size in bytes."""

    def address(self, key: str) -> str:
        """A link or path for people; never one that carries a credential."""


@dataclass(frozen=True, kw_only=True)
class NewUpload:
    """What intake found and pinned, before the ledger gave it an id and a partition key.

    ``idempotency_key`` is the sender's own, if it gave one.
    """

    dataset: str
    tenant: str
    source_key: str
    pinned: PinnedObject
    file_name: str
    idempotency_key: str | None


@dataclass(frozen=True, kw_only=True)
class Registered:
    """The ledger's answer to a new upload: its job, and whether it was there before."""

    job: ImportJob
    is_new: bool


@dataclass(frozen=True, kw_only=True)
class LoadBatch:
    """A run of records that commits at once.

    Attributes:
        first_record, last_record: the range, which the receipt names.
        rows: the rows to write, one for each key; column ``_record`` and the contract's fields.
        rejected, duplicate: records of the range that have no row, by outcome.
    """

    first_record: int
    last_record: int
    rows: pa.Table
    rejected: int
    duplicate: int


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """One entry of the audit log."""

    id: int
    job_id: UUID
    event: str
    to_state: JobState


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """A job in a run's hands, as ``reconcile`` judges it.

    ``silent_seconds`` is how long its lease has been over (negative while it holds), or for a
    queued job, how long ago it was handed over.
    """

    job_id: UUID
    state: JobState
    attempt: int
    token: int
    run_key: str | None
    run_id: str | None
    silent_seconds: float


class Ledger(Protocol):
    """The durable record of uploads and jobs; the only authority on their state."""

    def known_versions(self, dataset: str, objects: Sequence[StoredObject]) -> set[tuple[str, str]]:
        """Which (key, version) pairs were taken in before."""

    def register(self, new: NewUpload) -> Registered:
        """Write upload, job, outbox row and sighting in one transaction.

        Recognised, so that nothing is made and the job that is there is the answer, are: an
        idempotency key that was used before (with other content it raises
        PermanentError(idempotency_conflict)); a version of the source key that was seen before;
        the content that the source key had last.
        """

    def job(self, job_id: UUID) -> ImportJob:
        """Raises PermanentError(unknown_job)."""

    def job_for_partition(self, dataset: str, partition_key: str) -> ImportJob:
        """Raises PermanentError(unknown_job)."""

    def jobs(
        self,
        *,
        dataset: str | None = None,
        tenant: str | None = None,
        states: Iterable[JobState] = (),
        limit: int = 1000,
    ) -> list[ImportJob]:
        """Jobs, newest first."""

    def last_event(self) -> int:
        """The id of the newest entry of the audit log; 0 if there is none."""

    def events(self, *, after: int, limit: int) -> list[JobEvent]:
        """Entries of the audit log behind an id, oldest first."""

    def claim(
        self,
        job_id: UUID,
        *,
        worker: str,
        run_id: str | None,
        lease_seconds: float,
        contract_version: str | None,
    ) -> Claim | None:
        """Take a queued job by one conditional UPDATE; None if it is not there to be taken.

        A running job whose lease is over counts as queued. With a ``run_id`` the orchestrator has
        the job, so it is not asked for another run. A failed or quarantined job is not taken:
        ``retry`` queues it first. A job that was validated under another contract and has loaded
        nothing yet will be validated again.
        """

    def renew(self, claim: Claim, *, lease_seconds: float) -> bool:
        """Prolong the lease; False if it was lost."""

    def check(self, claim: Claim) -> None:
        """Raises Cancelled if a person asked for it, TransientError(lease_lost) if taken over."""

    def enter(self, claim: Claim, state: JobState) -> None:
        """Move the claimed job to a running state. Raises as ``check`` does."""

    def note(
        self, claim: Claim, *, artifacts: Mapping[str, str | None], report: Mapping[str, Any]
    ) -> None:
        """Set artifact keys (None removes one) and parts of the report. Raises as ``check``."""

    def finish_stage(
        self,
        claim: Claim,
        stage: Stage,
        *,
        records_read: int | None = None,
        contract_version: str | None = None,
    ) -> ImportJob:
        """Stamp a stage as committed. Raises as ``check`` does."""

    def succeed(self, claim: Claim) -> ImportJob:
        """The last transition. Raises Cancelled if a cancel came first."""

    def fail(self, claim: Claim, *, code: str, summary: str) -> ImportJob:
        """End the claimed job as failed."""

    def cancel(self, claim: Claim) -> ImportJob:
        """End the claimed job as cancelled."""

    def release(self, claim: Claim, *, reason: str, dispatch: bool) -> None:
        """Put a claimed job back to queued; with ``dispatch``, ask for another run as well.

        A job whose cancel was asked for meanwhile ends as cancelled instead. Does nothing where
        the lease was lost.
        """

    def retry(self, job_id: UUID, *, actor: str) -> bool:
        """Queue a failed or quarantined job again and ask for a run; False if it is neither."""

    def request_cancel(self, job_id: UUID, *, actor: str) -> ImportJob:
        """Ask for a cancel; a job that no one works on ends at once."""

    def pending(self, *, datasets: Iterable[str] | None = None, limit: int) -> list[OutboxEntry]:
        """Jobs of these datasets that wait for a run and were not handed over, oldest first.

        Jobs that another trigger has ended meanwhile are among them: their run only reports.
        """

    def mark_dispatched(self, run_keys: Mapping[int, str]) -> None:
        """Note that these outbox entries (id to run key) were handed to the orchestrator."""

    def unfinished(self, *, limit: int) -> list[Unfinished]:
        """Jobs that were handed over and have not ended, oldest first."""

    def requeue(self, job: Unfinished, *, reason: str, max_losses: int) -> JobState | None:
        """Give a stalled job a new attempt and a new outbox row, or fail it as worker_lost.

        None if the job has moved on since it was looked at.
        """


class Loader(Protocol):
    """Writes accepted rows and their receipts, and reads them back."""

    def prepare(self, contract: Contract) -> None:
        """Create the dataset's table where it is missing.

        Raises PermanentError(table_differs) when it is there in another shape.
        """

    def receipts(self, job_id: UUID) -> set[tuple[int, int]]:
        """(first record, last record) of each batch that has committed."""

    def load(self, claim: Claim, contract: Contract, job: ImportJob, batch: LoadBatch) -> Outcomes:
        """Commit one batch: rows, receipt and job counters in one transaction.

        Raises Cancelled, or TransientError(lease_lost) when the claim's token is no longer the
        job's, in which case nothing was written.
        """

    def export_csv(self, contract: Contract, job: ImportJob, target: BinaryIO) -> int:
        """Write the rows that this upload last wrote, as of one snapshot; returns their number.

        RFC 4180, UTF-8, LF; NULL is a bare empty field and an empty text a quoted one.
        """
