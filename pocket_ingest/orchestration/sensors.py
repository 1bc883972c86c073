"""The sensors: `inbox` takes files in, `dispatch` starts runs, `reconcile` repairs.

Here: thin shells: ask the ledger and Dagster, let core decide, answer in Dagster's terms.
Not here: the decisions (core/inbox.py, core/dispatch.py).

Every one of them may run twice for the same tick: a daemon killed in mid-tick starts the tick again
with the old cursor. What they write is idempotent, and what they ask for has a run key.
"""

import json
import threading
from collections.abc import Iterable, Mapping, Sequence

from dagster import (
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)
from dagster._core.definitions.unresolved_asset_job_definition import (
    UnresolvedAssetJobDefinition,
)

from pocket_ingest.core.dataset import Dataset
from pocket_ingest.core.dispatch import RunFate, RunPlan, dead_runs, judge, new_keys, plan_runs
from pocket_ingest.core.inbox import Sweep, sweep_inbox
from pocket_ingest.core.jobs import RUNNING
from pocket_ingest.core.ports import Unfinished
from pocket_ingest.orchestration.assets import partitions_of
from pocket_ingest.orchestration.jobs import job_name
from pocket_ingest.orchestration.resources import EngineResource
from pocket_ingest.settings import Settings

# A tick is cut off after 60 seconds (DAGSTER_SENSOR_GRPC_TIMEOUT_SECONDS).
TICK_BUDGET_SECONDS = 40.0
ENTRIES_PER_TICK = 500
REFUSED_NAMED = 3
RECONCILED_PER_TICK = 5_000
# Dagster submits a tick's runs after its answer, within seconds; a queue of ticks takes longer.
GRACE_SECONDS = 120.0

RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
RUN_KEY = "dagster/run_key"


def build_sensors(
    settings: Settings,
    datasets: Mapping[str, Dataset],
    jobs: Sequence[UnresolvedAssetJobDefinition],
) -> Sequence[SensorDefinition]:
    """The three sensors; they are on from the start, since nothing happens without them."""
    return [
        _build_inbox(settings),
        _build_dispatch(settings, datasets, jobs),
        _build_reconcile(settings),
    ]


def _build_inbox(settings: Settings) -> SensorDefinition:
    """Files into the ledger."""
    sweeping = threading.Lock()

    @sensor(
        minimum_interval_seconds=settings.inbox_interval_seconds,
        default_status=DefaultSensorStatus.RUNNING,
        description="Looks through the inbox; every file that the ledger does not know is pinned "
        "and gets its job.",
    )
    def inbox(context: SensorEvaluationContext, engine: EngineResource) -> SkipReason:
        # A tick that was cut off goes on in its thread, copying a large file; the next one must
        # not start to copy it as well.
        if not sweeping.acquire(blocking=False):
            return SkipReason("The last look is still busy with a large file.")
        try:
            swept = sweep_inbox(engine.engine(), budget_seconds=TICK_BUDGET_SECONDS)
        finally:
            sweeping.release()
        for job in swept.taken:
            context.log.info(f"Took in {job.upload.source_key!r} as {job.upload.partition_key}.")
        for job in swept.recognised:
            context.log.info(
                f"{job.upload.source_key!r} was touched, but its content is the same as before."
            )
        return SkipReason(describe_sweep(swept))

    return inbox


def _build_dispatch(
    settings: Settings,
    datasets: Mapping[str, Dataset],
    jobs: Sequence[UnresolvedAssetJobDefinition],
) -> SensorDefinition:
    """The ledger's outbox into runs."""

    @sensor(
        minimum_interval_seconds=settings.inbox_interval_seconds,
        default_status=DefaultSensorStatus.RUNNING,
        jobs=jobs,
        description="Turns jobs that wait into runs; small files share one.",
    )
    def dispatch(
        context: SensorEvaluationContext, engine: EngineResource
    ) -> SensorResult | SkipReason:
        ledger = engine.engine().ledger
        # The cursor is saved together with the ids of the runs that a tick asked for, so what it
        # names has been submitted, or will be by Dagster itself.
        ledger.mark_dispatched(parse_cursor(context.cursor))
        entries = ledger.pending(datasets=datasets, limit=ENTRIES_PER_TICK)
        if not entries:
            context.update_cursor("{}")
            return SkipReason("No job waits for a run.")
        known = {
            name: context.instance.get_dynamic_partitions(partitions_of(datasets[name]).name or "")
            for name in {e.dataset for e in entries}
        }
        plans = plan_runs(
            entries, known, max_files=settings.run_files, max_bytes=settings.run_bytes
        )
        return SensorResult(
            run_requests=[run_request(plan, datasets[plan.dataset]) for plan in plans],
            dynamic_partitions_requests=[
                partitions_of(datasets[name]).build_add_request(keys)
                for name, keys in new_keys(plans, known).items()
            ],
            cursor=json.dumps({entry.id: plan.run_key for plan in plans for entry in plan.entries}),
        )

    return dispatch


def _build_reconcile(settings: Settings) -> SensorDefinition:
    """Jobs that were left behind into the outbox again."""

    @sensor(
        minimum_interval_seconds=settings.reconcile_interval_seconds,
        default_status=DefaultSensorStatus.RUNNING,
        description="Finds jobs whose run or worker is gone and gives them another.",
    )
    def reconcile(context: SensorEvaluationContext, engine: EngineResource) -> SkipReason:
        ledger = engine.engine().ledger
        jobs = ledger.unfinished(limit=RECONCILED_PER_TICK)
        fates = find_fates(context.instance, jobs)
        repairs = judge(jobs, fates, grace_seconds=GRACE_SECONDS)
        for repair in repairs:
            if repair.cancel:
                ledger.request_cancel(repair.job.job_id, actor="reconcile")
            state = ledger.requeue(repair.job, reason=repair.reason, max_losses=settings.max_losses)
            context.log.info(f"Job {repair.job.job_id}: {repair.reason}; now {state}.")
        for run_id in dead_runs(jobs, repairs, fates):
            # Where the code server died as well, nobody else would ever end this run, and the
            # files that wait in it would wait for ever.
            run = context.instance.get_run_by_id(run_id)
            if run is not None and not run.is_finished:
                context.instance.report_run_failed(run, "Its worker fell silent; see reconcile.")
        return SkipReason(f"{len(jobs)} jobs are in hand, {len(repairs)} needed help.")

    return reconcile


def parse_cursor(cursor: str | None) -> dict[int, str]:
    """Outbox ids and run keys of the tick before.

    An unreadable cursor says nothing, which costs no job: the entries are handed over again, under
    the same run keys.
    """
    try:
        return {int(entry): str(key) for entry, key in json.loads(cursor or "{}").items()}
    except (ValueError, AttributeError):
        return {}


def run_request(plan: RunPlan, dataset: Dataset) -> RunRequest:
    """A run over one partition, or over a range of them."""
    keys = plan.partition_keys
    tags = {"pocket/files": str(len(keys)), "pocket/dataset": dataset.name}
    tenants = {entry.tenant for entry in plan.entries}
    if len(tenants) == 1:
        tags["pocket/tenant"] = tenants.pop()
    if len(keys) == 1:
        tags["pocket/job"] = str(plan.entries[0].job_id)
        return RunRequest(
            run_key=plan.run_key, job_name=job_name(dataset), partition_key=keys[0], tags=tags
        )
    tags |= {RANGE_START: keys[0], RANGE_END: keys[-1]}
    return RunRequest(run_key=plan.run_key, job_name=job_name(dataset), tags=tags)


def find_fates(instance: DagsterInstance, jobs: Iterable[Unfinished]) -> dict[str, RunFate]:
    """What became of the runs that these jobs were given to."""
    run_ids = {job.run_id for job in jobs if job.state in RUNNING and job.run_id}
    run_keys = {job.run_key for job in jobs if job.state not in RUNNING and job.run_key}
    fates = dict.fromkeys(run_ids, RunFate.MISSING)
    if run_ids:
        for run in instance.get_runs(filters=RunsFilter(run_ids=list(run_ids))):
            fates[run.run_id] = _fate(run.status)
    for key in run_keys:
        runs = instance.get_runs(filters=RunsFilter(tags={RUN_KEY: key}), limit=1)
        fates[key] = _fate(runs[0].status) if runs else RunFate.MISSING
    return fates


def describe_sweep(swept: Sweep) -> str:
    """A look through the inbox in words."""
    parts = [f"{len(swept.taken)} new", f"{swept.known} known"]
    for label, items in (
        ("recognised by their content", swept.recognised),
        ("still being written", swept.waiting),
        ("refused", swept.refused),
    ):
        if items:
            parts.append(f"{len(items)} {label}")
    said = [f"Files in the inbox: {', '.join(parts)}."]
    # Here and not in the log: the same files would be logged again every few seconds.
    said += [f"{key!r}: {sentence}" for key, sentence in swept.refused[:REFUSED_NAMED]]
    if not swept.complete:
        said.append("The time was up; the next look goes on.")
    return " ".join(said)


def _fate(status: DagsterRunStatus) -> RunFate:
    if status is DagsterRunStatus.CANCELED:
        return RunFate.CANCELED
    over = status in {DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE}
    return RunFate.OVER if over else RunFate.ALIVE


__all__ = ["build_sensors"]
