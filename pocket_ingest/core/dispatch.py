"""Which jobs share a run, and which jobs a dead run has left behind.

Here: pure decisions over what the ledger and the orchestrator say.
Not here: asking either of them (the sensors).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pocket_ingest.core.jobs import RUNNING, JobState, OutboxEntry
from pocket_ingest.core.ports import Unfinished


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """Outbox entries of one dataset that share a run; their partitions are contiguous."""

    dataset: str
    entries: tuple[OutboxEntry, ...]

    @property
    def run_key(self) -> str:
        """The same for the same entries; an entry is one attempt, so a retry has another key."""
        return f"{self.dataset}-{self.entries[0].id}-{self.entries[-1].id}-{len(self.entries)}"

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """The run's partitions, in order."""
        return tuple(entry.partition_key for entry in self.entries)


def plan_runs(
    entries: Iterable[OutboxEntry],
    known_keys: Mapping[str, Sequence[str]],
    *,
    max_files: int,
    max_bytes: int,
) -> list[RunPlan]:
    """Group jobs into runs.

    A shared run names its partitions as a range, and a range is contiguous in the order in which
    the keys were added. New keys are added in the order of the entries, behind the known ones.

    Args:
        entries: jobs that wait, of any datasets.
        known_keys: dataset to partition keys that exist, in their order.
        max_files: most files of a run.
        max_bytes: most bytes of a run; a larger file has one of its own.
    """
    waiting: dict[str, dict[str, OutboxEntry]] = {}
    for entry in entries:
        waiting.setdefault(entry.dataset, {})[entry.partition_key] = entry
    plans: list[RunPlan] = []
    for dataset, by_key in waiting.items():
        known = known_keys.get(dataset, ())
        position = {key: place for place, key in enumerate(known) if key in by_key}
        fresh = [key for key in by_key if key not in position]
        position |= {key: len(known) + place for place, key in enumerate(fresh)}
        plans += _stretches(dataset, by_key, position, max_files, max_bytes)
    return plans


def new_keys(
    plan: Iterable[RunPlan], known_keys: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Dataset to partition keys that have to be added first, in order."""
    added: dict[str, list[str]] = {}
    known = {dataset: set(keys) for dataset, keys in known_keys.items()}
    for run in plan:
        fresh = [k for k in run.partition_keys if k not in known.get(run.dataset, set())]
        if fresh:
            added.setdefault(run.dataset, []).extend(fresh)
    return added


def _stretches(
    dataset: str,
    by_key: Mapping[str, OutboxEntry],
    position: Mapping[str, int],
    max_files: int,
    max_bytes: int,
) -> list[RunPlan]:
    plans: list[RunPlan] = []
    run: list[OutboxEntry] = []
    size = 0
    last = -2
    for key in sorted(by_key, key=lambda k: position[k]):
        entry = by_key[key]
        full = len(run) >= max_files or size + entry.size_bytes > max_bytes
        # A file that a worker died of is tried alone, not in the company of others again.
        full = full or bool(entry.losses or (run and run[-1].losses))
        if run and (position[key] != last + 1 or full):
            plans.append(RunPlan(dataset=dataset, entries=tuple(run)))
            run, size = [], 0
        run.append(entry)
        size += entry.size_bytes
        last = position[key]
    if run:
        plans.append(RunPlan(dataset=dataset, entries=tuple(run)))
    return plans


class RunFate(StrEnum):
    """What the orchestrator says about a run."""

    ALIVE = "alive"
    CANCELED = "canceled"
    OVER = "over"
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What is to be done about a job, and why."""

    job: Unfinished
    cancel: bool
    reason: str


def judge(
    jobs: Iterable[Unfinished], fates: Mapping[str, RunFate], *, grace_seconds: float
) -> list[Repair]:
    """Which jobs need help.

    Args:
        jobs: handed over and not ended.
        fates: of the runs, by run id and by run key.
        grace_seconds: how long a job may be handed over without a run to be seen: the orchestrator
            submits runs after the sensor has answered.
    """
    repairs = []
    for job in jobs:
        name = job.run_id if job.state in RUNNING else job.run_key
        fate = fates.get(name or "", RunFate.MISSING)
        reason = _what_is_wrong(job, fate, grace_seconds)
        if reason:
            repairs.append(Repair(job=job, cancel=fate is RunFate.CANCELED, reason=reason))
    return repairs


def dead_runs(
    jobs: Iterable[Unfinished], repairs: Iterable[Repair], fates: Mapping[str, RunFate]
) -> set[str]:
    """Runs that the orchestrator believes in, though their worker has fallen silent.

    A run of which another job has a lease that holds is alive: one that could not be ended while
    the database was away proves nothing.
    """
    alive = {job.run_id for job in jobs if job.state in RUNNING and job.silent_seconds <= 0}
    silent = {
        repair.job.run_id
        for repair in repairs
        if repair.job.run_id
        and repair.job.state in RUNNING
        and repair.job.silent_seconds > 0
        and fates.get(repair.job.run_id) is RunFate.ALIVE
    }
    return silent - alive


def _what_is_wrong(job: Unfinished, fate: RunFate, grace_seconds: float) -> str | None:
    if fate is RunFate.CANCELED:
        return "its run was canceled"
    if job.state is JobState.QUEUED:
        if fate is RunFate.OVER:
            return "its run ended without it"
        if fate is RunFate.MISSING and job.silent_seconds > grace_seconds:
            return "it was handed over, but no run came"
        return None
    if job.run_id is not None and fate is RunFate.OVER:
        return "its run ended while it was in hand"
    if job.silent_seconds > 0:
        return "its worker fell silent"
    return None
