"""The four assets of each dataset: upload, validated, loaded, exports.

Here: one multi-asset for each dataset, which walks the run's partitions (uploaded files) and takes
each through its stages. One op, not four: when an op fails, Dagster skips what follows it for every
file of the run, while here a bad file fails alone.
Not here: the stages (core), what is shown of them (metadata.py), which files share a run (sensors).
"""

import logging
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    AssetsDefinition,
    AssetSpec,
    BackfillPolicy,
    DagsterExecutionInterruptedError,
    DagsterRunStatus,
    DynamicPartitionsDefinition,
    Failure,
    MaterializeResult,
    MetadataValue,
    multi_asset,
)

from pocket_ingest.core.dataset import Dataset
from pocket_ingest.core.errors import IngestError
from pocket_ingest.core.jobs import RETRYABLE, STAGES, ImportJob, JobState, Stage
from pocket_ingest.core.process import Engine, process_import
from pocket_ingest.orchestration.metadata import failure_metadata, stage_metadata
from pocket_ingest.orchestration.resources import EngineResource
from pocket_ingest.wiring import worker_name

logger = logging.getLogger(__name__)

RUN_KEY_TAG = "dagster/run_key"
MAX_RUNTIME_TAG = "dagster/max_runtime"
STOPPED = frozenset({DagsterRunStatus.CANCELING, DagsterRunStatus.CANCELED})

KINDS = {
    Stage.UPLOAD: {"file"},
    Stage.VALIDATED: {"pandera", "parquet"},
    Stage.LOADED: {"postgres", "table"},
    Stage.EXPORTS: {"parquet", "csv"},
}
DESCRIPTIONS = {
    Stage.UPLOAD: "The uploaded file, pinned and verified by size and sha256.",
    Stage.VALIDATED: "Typed rows that keep the contract, and the rejected records with reasons.",
    Stage.LOADED: "The rows in Postgres: every record has one outcome, and they add up.",
    Stage.EXPORTS: "The rows that this upload wrote, as Parquet and CSV.",
}


def partitions_of(dataset: Dataset) -> DynamicPartitionsDefinition:
    """One partition for each uploaded file; the keys come from the ledger."""
    return DynamicPartitionsDefinition(name=f"{dataset.name}_uploads")


def asset_key(dataset: Dataset, stage: Stage) -> AssetKey:
    """The key of a stage's asset."""
    return AssetKey([dataset.name, str(stage)])


def build_assets(dataset: Dataset, *, files_per_run: int) -> AssetsDefinition:
    """The multi-asset of a dataset.

    Args:
        dataset: its declaration; the contract is not compiled here.
        files_per_run: how many neighbouring partitions a backfill puts into one run.
    """
    specs = [
        AssetSpec(
            asset_key(dataset, stage),
            deps=[asset_key(dataset, before)] if before else [],
            skippable=True,
            group_name=dataset.name,
            kinds=KINDS[stage],
            description=f"{DESCRIPTIONS[stage]} {dataset.description}".strip(),
            metadata={"dagster/table_name": dataset.name} if stage is Stage.LOADED else None,
        )
        for before, stage in zip((None, *STAGES), STAGES, strict=False)
    ]

    @multi_asset(
        name=f"{dataset.name}_import",
        specs=specs,
        can_subset=True,
        partitions_def=partitions_of(dataset),
        backfill_policy=BackfillPolicy.multi_run(files_per_run),
    )
    def import_files(
        context: AssetExecutionContext, engine: EngineResource
    ) -> Iterator[MaterializeResult[None]]:
        wanted = [s for s in STAGES if asset_key(dataset, s) in context.selected_asset_keys]
        failed = import_partitions(context, engine.engine(), dataset, wanted)
        if failed:
            raise _failure(failed)
        # Every materialization has been logged when its stage committed; there is none to yield.
        yield from ()

    return import_files


def import_partitions(
    context: AssetExecutionContext, engine: Engine, dataset: Dataset, wanted: Sequence[Stage]
) -> dict[str, str]:
    """Take each partition of the run through its stages; returns key to sentence of failed ones."""
    failed: dict[str, str] = {}
    keys = list(context.partition_keys)
    for place, key in enumerate(keys):
        try:
            sentence = _import_partition(context, engine, dataset, key, wanted)
        except DagsterExecutionInterruptedError:
            _stop(context, engine, dataset, keys[place:])
            # Not the interrupt itself: the in-process executor would take it for a fault and, with
            # a retry policy, run the step again to a SUCCESS (dagster#15026).
            raise Failure("The run was stopped.", allow_retries=False) from None
        except IngestError as error:
            sentence = str(error)
        except Exception as error:  # noqa: BLE001
            # One file's surprise must not cost the run's other files theirs. The text of a foreign
            # exception may quote a cell: it goes to the process's own log, not to the event log.
            frames = "".join(traceback.format_tb(error.__traceback__))
            logger.error("%s met an unexpected %s\n%s", key, type(error).__name__, frames)  # noqa: TRY400
            sentence = f"internal: unexpected {type(error).__name__}; see the run's stderr."
        if sentence:
            context.log.error(f"{key}: {sentence}")
            failed[key] = sentence
    return failed


def _import_partition(
    context: AssetExecutionContext,
    engine: Engine,
    dataset: Dataset,
    key: str,
    wanted: Sequence[Stage],
) -> str | None:
    """One file; returns the sentence that says why it failed, if it did."""
    job = engine.ledger.job_for_partition(dataset.name, key)
    context.log.info(f"{key}: {job.upload.file_name!r} of {job.upload.tenant!r}, job {job.id}")
    # A person who runs a failed file means another try. A run of `dispatch` only reports it: it
    # failed in other hands after it had been handed over.
    if job.state in RETRYABLE and RUN_KEY_TAG not in context.run.tags:
        engine.ledger.retry(job.id, actor=f"dagster:{context.run.run_id}")
    reported: set[Stage] = set()

    def report(stage: Stage, job: ImportJob) -> None:
        _report(context, engine, dataset, stage, job)
        reported.add(stage)

    done = process_import(
        engine,
        job.id,
        worker=worker_name(),
        run_id=context.run.run_id,
        through=wanted[-1],
        on_stage=report,
    )
    for stage in wanted:
        # What was committed before this run, by one that died or by another trigger, is shown too.
        if stage in done.job.stages_done and stage not in reported:
            skipped = stage not in done.ran
            _report(context, engine, dataset, stage, done.job, skipped=skipped)
    if done.job.state is JobState.FAILED:
        _report_failure(context, engine, dataset, done.job)
        return done.job.sentence
    if done.job.state is JobState.CANCELLED:
        return "The job was cancelled."
    said = f"skipped, {done.skipped}" if done.skipped else done.job.sentence
    context.log.info(f"{key}: {said}")
    return None


def _report(
    context: AssetExecutionContext,
    engine: Engine,
    dataset: Dataset,
    stage: Stage,
    job: ImportJob,
    *,
    skipped: bool = False,
) -> None:
    """Log a materialization of one partition as soon as its stage has committed."""
    metadata = dict(stage_metadata(stage, job, engine))
    if skipped:
        metadata["skipped"] = "This stage had finished before; nothing was touched."
    context.log_event(
        AssetMaterialization(
            asset_key(dataset, stage), partition=job.upload.partition_key, metadata=metadata
        )
    )


def _report_failure(
    context: AssetExecutionContext, engine: Engine, dataset: Dataset, job: ImportJob
) -> None:
    """Say why beside the failed partition: an observation, which leaves it failed."""
    stopped_at = next((s for s in STAGES if s not in job.stages_done), STAGES[-1])
    context.log_event(
        AssetObservation(
            asset_key(dataset, stopped_at),
            partition=job.upload.partition_key,
            metadata=failure_metadata(job, engine),
        )
    )


def _stop(
    context: AssetExecutionContext, engine: Engine, dataset: Dataset, keys: Sequence[str]
) -> None:
    """After an interrupt: cancel the files that were not finished, if a person stopped the run.

    A machine that shuts down interrupts as well, and so does run monitoring when a run has had its
    time. Then the jobs stay queued and `reconcile` finds them a new run.
    """
    record = context.instance.get_run_record_by_id(context.run.run_id)
    if record is None or record.dagster_run.status not in STOPPED:
        return
    longest = float(context.run.tags.get(MAX_RUNTIME_TAG, "inf"))
    if record.start_time is not None and time.time() - record.start_time >= longest:
        return
    for key in keys:
        with suppress(IngestError):  # what is not cancelled here, `reconcile` cancels
            job = engine.ledger.job_for_partition(dataset.name, key)
            engine.ledger.request_cancel(job.id, actor=f"dagster:{context.run.run_id}")


def _failure(failed: dict[str, str]) -> Failure:
    names = ", ".join(list(failed)[:3]) + (", ..." if len(failed) > 3 else "")  # noqa: PLR2004
    return Failure(
        f"{len(failed)} of the run's files failed: {names}",
        metadata={
            key: MetadataValue.text(sentence) for key, sentence in list(failed.items())[:100]
        },
        allow_retries=False,
    )


__all__ = ["asset_key", "build_assets", "import_partitions", "partitions_of"]
