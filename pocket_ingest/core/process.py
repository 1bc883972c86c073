"""process_import: a whole import in one call, and the four stages that it is made of.

Here: the order of the stages, what is skipped because it is done, retries, and how a job ends.
Not here: what a stage does to data (its own module), how a trigger reports (the trigger).
"""

import logging
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from pocket_ingest.core.artifacts import ACCEPTED, DUPLICATES, VALIDATION, publish, scratch
from pocket_ingest.core.contract import Contract
from pocket_ingest.core.dataset import Dataset
from pocket_ingest.core.errors import Cancelled, Code, IngestError, PermanentError, TransientError
from pocket_ingest.core.exporting import export_rows
from pocket_ingest.core.intake import find_dataset
from pocket_ingest.core.jobs import FINISHED, STAGES, Claim, ImportJob, JobState, Stage
from pocket_ingest.core.loading import load_accepted
from pocket_ingest.core.ports import Ledger, Loader, Store
from pocket_ingest.core.reading import ReadingLimits
from pocket_ingest.core.validation import refuse_too_many, validate_file

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Everything that the use cases need: the ports, the datasets and the bounds.

    Attributes:
        scratch: local folder for unfinished files; None for the system's.
        lease_seconds: how long a worker may be silent before another takes its job.
        transient_tries: tries of a stage that meets transient errors, the first included.
    """

    store: Store
    ledger: Ledger
    loader: Loader
    datasets: Mapping[str, Dataset]
    limits: ReadingLimits
    scratch: Path | None
    lease_seconds: float
    transient_tries: int


@dataclass(frozen=True, kw_only=True)
class Processed:
    """What process_import did.

    Attributes:
        job: the job as the ledger has it now.
        ran: the stages that this call completed.
        skipped: why nothing was done, where nothing was.
        error: what ended the job, where it did not succeed.
    """

    job: ImportJob
    ran: tuple[Stage, ...] = ()
    skipped: str | None = None
    error: IngestError | None = None


OnStage = Callable[[Stage, ImportJob], None]


def process_import(
    engine: Engine,
    job_id: UUID,
    *,
    worker: str,
    run_id: str | None = None,
    through: Stage = Stage.EXPORTS,
    on_stage: OnStage | None = None,
) -> Processed:
    """Take a queued job through its stages, up to and including ``through``.

    Stages that have committed are not run again. A finished job is left alone, and so is one that
    another worker holds.

    Args:
        engine: ports and bounds.
        job_id: the job.
        worker: names this process in the ledger.
        run_id: the orchestrator's run, if there is one.
        through: the last stage wanted; a job that is not at its end then waits as queued.
        on_stage: called after each stage that this call completed.

    Returns:
        What happened; a job that failed or was cancelled is told there, not raised.

    Raises:
        TransientError: the ledger cannot be reached, or the lease was lost; the job is resumed by
            whoever claims it next.
        BaseException: an interrupt passes through after the job was put back to queued.
    """
    contract = _contract_of(engine, engine.ledger.job(job_id))
    claim = engine.ledger.claim(
        job_id,
        worker=worker,
        run_id=run_id,
        lease_seconds=engine.lease_seconds,
        contract_version=contract.version if isinstance(contract, Contract) else None,
    )
    if claim is None:
        job = engine.ledger.job(job_id)
        why = f"finished as {job.state}" if job.state in FINISHED else f"in hand: {job.state}"
        return Processed(job=job, skipped=why)
    ran: list[Stage] = []

    def note(stage: Stage, job: ImportJob) -> None:
        ran.append(stage)
        if on_stage is None:
            return
        try:
            on_stage(stage, job)
        except Exception as error:  # noqa: BLE001 - telling about a stage must not undo it
            # The orchestrator's own storage may be away.
            logger.warning("job %s: %s was not reported: %s", job_id, stage, type(error).__name__)

    try:
        with _renewed_lease(engine, claim):
            job = _run_stages(engine, claim, contract, through, note)
        return Processed(job=job, ran=tuple(ran))
    except IngestError as error:
        if error.code is Code.LEASE_LOST:
            raise
        known = error
    except Exception as error:  # noqa: BLE001 - whatever it is, it ends the job
        # The text of a foreign exception may quote a cell; its type and its places may not.
        name, places = type(error).__name__, traceback.format_tb(error.__traceback__)
        logger.error("job %s met an unexpected %s\n%s", job_id, name, "".join(places))  # noqa: TRY400
        known = PermanentError(
            Code.INTERNAL, f"Unexpected {name}; the worker's log has the traceback."
        )
    except BaseException:
        try:
            engine.ledger.release(claim, reason="the worker was interrupted", dispatch=True)
        except IngestError as error:  # the lease will run out instead
            logger.warning("job %s could not be put back: %s", job_id, error)
        raise
    return Processed(job=_end(engine, claim, known), ran=tuple(ran), error=known)


def _run_stages(
    engine: Engine,
    claim: Claim,
    contract: Contract | PermanentError,
    through: Stage,
    note: OnStage,
) -> ImportJob:
    """The stages that have not committed yet, in order, and the last transition."""
    if isinstance(contract, PermanentError):
        raise contract
    retrying = _retrying(engine)
    job = retrying(engine.ledger.job, claim.job_id)
    for stage in STAGES[: STAGES.index(through) + 1]:
        if stage not in job.stages_done:
            job = retrying(RUNNERS[stage], engine, claim, job)
            note(stage, job)
    if through is STAGES[-1]:
        return retrying(engine.ledger.succeed, claim)
    retrying(engine.ledger.release, claim, reason=f"{through} is done", dispatch=False)
    return retrying(engine.ledger.job, claim.job_id)


def _end(engine: Engine, claim: Claim, error: IngestError) -> ImportJob:
    """End the job as what the error means. Transient ones have had all their tries by now."""
    if isinstance(error, Cancelled):
        return engine.ledger.cancel(claim)
    logger.info("job %s failed: %s", claim.job_id, error)
    return engine.ledger.fail(claim, code=error.code, summary=error.detail)


def _contract_of(engine: Engine, job: ImportJob) -> Contract | PermanentError:
    """The job's contract; a broken one is kept as the error that will end the job."""
    try:
        return find_dataset(job.upload.dataset, engine.datasets).contract
    except PermanentError as error:
        return error


def _retrying(engine: Engine) -> Retrying:
    """Calls what it is given; transient errors again, with exponential backoff and full jitter."""
    return Retrying(
        retry=retry_if_exception(_is_worth_another_try),
        stop=stop_after_attempt(engine.transient_tries),
        wait=wait_random_exponential(multiplier=0.5, max=20),
        reraise=True,
    )


def _is_worth_another_try(error: BaseException) -> bool:
    return isinstance(error, TransientError) and error.code is not Code.LEASE_LOST


@contextmanager
def _renewed_lease(engine: Engine, claim: Claim) -> Iterator[None]:
    """Renew the lease from a thread while the block runs; losing it shows at the next check."""
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(engine.lease_seconds / 3):
            try:
                if not engine.ledger.renew(claim, lease_seconds=engine.lease_seconds):
                    return
            except TransientError as error:
                logger.warning("job %s: the lease was not renewed: %s", claim.job_id, error)

    thread = threading.Thread(target=renew, name=f"lease-{claim.job_id}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _verify(engine: Engine, claim: Claim, job: ImportJob) -> ImportJob:
    """Stage ``upload``: the pinned bytes are the ones that were registered."""
    engine.ledger.enter(claim, JobState.VALIDATING)
    upload = job.upload
    found = engine.store.stat(upload.pinned_key)
    if found.size_bytes != upload.size_bytes or engine.store.checksum(found) != upload.sha256:
        raise PermanentError(
            Code.UPLOAD_CHANGED,
            f"The stored copy of {upload.file_name!r} is not the file that was taken in: its size "
            "or sha256 differs. Send the file again.",
        )
    return engine.ledger.finish_stage(claim, Stage.UPLOAD)


def _validate(engine: Engine, claim: Claim, job: ImportJob) -> ImportJob:
    """Stage ``validated``: accepted rows and rejected records as published artifacts."""
    engine.ledger.enter(claim, JobState.VALIDATING)
    contract = find_dataset(job.upload.dataset, engine.datasets).contract
    with scratch(engine.scratch) as folder:
        validated = validate_file(
            lambda: engine.store.open(job.upload.pinned_key),
            contract,
            folder=folder,
            limits=engine.limits,
            check=lambda: engine.ledger.check(claim),
            name=job.upload.file_name,
        )
        engine.ledger.check(claim)
        keys = publish(engine.store, job, claim, validated.files)
    # Every name is said, so that a second validation leaves no key of the first behind.
    named = {name: keys.get(name) for name in VALIDATION}
    engine.ledger.note(claim, artifacts=named, report={Stage.VALIDATED: validated.report})
    refuse_too_many(validated)
    return engine.ledger.finish_stage(
        claim,
        Stage.VALIDATED,
        records_read=validated.records_read,
        contract_version=contract.version,
    )


def _load(engine: Engine, claim: Claim, job: ImportJob) -> ImportJob:
    """Stage ``loaded``: every batch that has no receipt yet."""
    engine.ledger.enter(claim, JobState.LOADING)
    contract = find_dataset(job.upload.dataset, engine.datasets).contract
    done = engine.loader.receipts(job.id)
    if done and job.contract_version != contract.version:
        raise PermanentError(
            Code.CONTRACT_CHANGED,
            f"The contract of {contract.name!r} is no longer the one ({job.contract_version}) "
            f"under which {len(done)} batches of this file were loaded. Restore that one and run "
            "the file again, or send the file under another name.",
        )
    engine.loader.prepare(contract)
    losers = job.artifacts.get(DUPLICATES)
    with engine.store.open(job.artifacts[ACCEPTED]) as accepted:
        duplicates = engine.store.open(losers) if losers else None
        try:
            load_accepted(
                accepted,
                duplicates,
                done=done,
                load=lambda batch: engine.loader.load(claim, contract, job, batch),
                check=lambda: engine.ledger.check(claim),
            )
        finally:
            if duplicates is not None:
                duplicates.close()
    return engine.ledger.finish_stage(claim, Stage.LOADED)


def _export(engine: Engine, claim: Claim, job: ImportJob) -> ImportJob:
    """Stage ``exports``: the rows that this upload last wrote, from one snapshot."""
    engine.ledger.enter(claim, JobState.EXPORTING)
    contract = find_dataset(job.upload.dataset, engine.datasets).contract
    with scratch(engine.scratch) as folder:
        exported = export_rows(
            contract,
            folder=folder,
            write_csv=lambda target: engine.loader.export_csv(contract, job, target),
            check=lambda: engine.ledger.check(claim),
            max_record_bytes=engine.limits.max_record_bytes,
        )
        engine.ledger.check(claim)
        keys = publish(engine.store, job, claim, exported.files)
    engine.ledger.note(claim, artifacts=keys, report={Stage.EXPORTS: {"rows": exported.rows}})
    return engine.ledger.finish_stage(claim, Stage.EXPORTS)


RUNNERS: Mapping[Stage, Callable[[Engine, Claim, ImportJob], ImportJob]] = {
    Stage.UPLOAD: _verify,
    Stage.VALIDATED: _validate,
    Stage.LOADED: _load,
    Stage.EXPORTS: _export,
}
