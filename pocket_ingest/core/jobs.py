"""Uploads, import jobs, their states and the outcomes of their records.

Here: the values that cross layers and the rules of the state machine.
Not here: how they are stored (adapters/postgres) or what a stage does (the stage's own module).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID


class JobState(StrEnum):
    """Where an import job stands. The ledger is the authority; Dagster shows it."""

    UPLOADING = "uploading"
    QUEUED = "queued"
    VALIDATING = "validating"
    LOADING = "loading"
    EXPORTING = "exporting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    QUARANTINED = "quarantined"


RUNNING = frozenset({JobState.VALIDATING, JobState.LOADING, JobState.EXPORTING})
FINISHED = frozenset(
    {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.QUARANTINED}
)
RETRYABLE = frozenset({JobState.FAILED, JobState.QUARANTINED})

# The same table stands in the database as a trigger; a test compares the two.
TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    JobState.UPLOADING: frozenset({JobState.QUEUED, JobState.FAILED, JobState.CANCELLED}),
    JobState.QUEUED: RUNNING | {JobState.FAILED, JobState.CANCELLED},
    JobState.VALIDATING: frozenset(
        {
            JobState.LOADING,
            JobState.QUEUED,
            JobState.FAILED,
            JobState.CANCELLED,
            JobState.QUARANTINED,
        }
    ),
    JobState.LOADING: frozenset(
        {
            JobState.EXPORTING,
            JobState.QUEUED,
            JobState.FAILED,
            JobState.CANCELLED,
            JobState.QUARANTINED,
        }
    ),
    JobState.EXPORTING: frozenset(
        {
            JobState.SUCCEEDED,
            JobState.QUEUED,
            JobState.FAILED,
            JobState.CANCELLED,
            JobState.QUARANTINED,
        }
    ),
    JobState.SUCCEEDED: frozenset(),
    JobState.FAILED: frozenset({JobState.QUEUED}),
    JobState.QUARANTINED: frozenset({JobState.QUEUED}),
    JobState.CANCELLED: frozenset(),
}


class Stage(StrEnum):
    """The four stages, in order; also the names of a dataset's four assets."""

    UPLOAD = "upload"
    VALIDATED = "validated"
    LOADED = "loaded"
    EXPORTS = "exports"


STAGES: tuple[Stage, ...] = tuple(Stage)


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """How many records ended in which of the seven ways."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    duplicate: int = 0
    stale: int = 0
    conflict: int = 0
    rejected: int = 0

    def __add__(self, other: "Outcomes") -> "Outcomes":
        return Outcomes(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        )

    @property
    def total(self) -> int:
        """Records that have an outcome."""
        return sum(self.as_dict().values())

    def as_dict(self) -> dict[str, int]:
        """Outcome name to count, in the order of the vocabulary."""
        return asdict(self)

    def __str__(self) -> str:
        """The counts that are not zero: ``17 created, 13 rejected``."""
        return ", ".join(f"{count} {name}" for name, count in self.as_dict().items() if count)


OUTCOME_NAMES: tuple[str, ...] = tuple(f.name for f in fields(Outcomes))


@dataclass(frozen=True, kw_only=True)
class Upload:
    """One pinned, immutable file.

    ``id`` grows in the order in which the ledger accepted the uploads of a dataset and tenant; it
    alone says which of two uploads is the newer one.
    """

    id: int
    dataset: str
    tenant: str
    source_key: str
    source_version: str
    pinned_key: str
    file_name: str
    size_bytes: int
    sha256: str
    partition_key: str
    received_at: datetime
    same_content_as: str | None = None


@dataclass(frozen=True, kw_only=True)
class ImportJob:
    """The durable record of one upload's way through the stages."""

    id: UUID
    upload: Upload
    state: JobState
    attempt: int
    idempotency_key: str | None
    contract_version: str | None
    queued_at: datetime
    started_at: datetime | None
    verified_at: datetime | None
    validated_at: datetime | None
    loaded_at: datetime | None
    exported_at: datetime | None
    finished_at: datetime | None
    claimed_by: str | None
    run_id: str | None
    lease_expires_at: datetime | None
    cancel_requested_at: datetime | None
    error_code: str | None
    error_summary: str | None
    records_read: int | None
    outcomes: Outcomes
    artifacts: Mapping[str, str]
    report: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        """Whether a worker has it in hand."""
        return self.state in RUNNING

    @property
    def sentence(self) -> str:
        """What became of the file, in one line, without a cell of it."""
        if self.state is JobState.FAILED:
            return f"{self.error_code}: {self.error_summary}"
        if self.state is not JobState.SUCCEEDED:
            return str(self.state)
        if not self.records_read:
            return "no record: the file has a header only"
        return f"{self.records_read} records: {self.outcomes}"

    @property
    def stages_done(self) -> tuple[Stage, ...]:
        """The stages that have committed, in order."""
        stamps = (self.verified_at, self.validated_at, self.loaded_at, self.exported_at)
        return tuple(stage for stage, at in zip(STAGES, stamps, strict=True) if at is not None)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The right to work on a job: who holds it, in which attempt, fenced by a token.

    Every write of a worker names the token; a worker whose lease was taken over finds no row.
    """

    job_id: UUID
    token: int
    attempt: int
    worker: str
    run_id: str | None


@dataclass(frozen=True, kw_only=True)
class OutboxEntry:
    """A job that waits for a run: written in the transaction that queued it."""

    id: int
    job_id: UUID
    dataset: str
    tenant: str
    partition_key: str
    file_name: str
    size_bytes: int
    attempt: int
    losses: int
    created_at: datetime
