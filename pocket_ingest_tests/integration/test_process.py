"""A whole import on a real server and folder: what is skipped, repeated, given up, resumed."""

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tenacity import wait_none

from pocket_ingest.core import process
from pocket_ingest.core.artifacts import RECORD
from pocket_ingest.core.dataset import Dataset
from pocket_ingest.core.errors import Code, PermanentError, TransientError
from pocket_ingest.core.jobs import STAGES, ImportJob, JobState, Outcomes, Stage
from pocket_ingest.core.process import Engine, process_import
from pocket_ingest_tests.examples import ask, claim, declare, nullable, read_csv_rows, send
from pocket_ingest_tests.fakes import Failing, Killed, Mortal, behind

THINGS = declare({"id": str, "value": int}, checks={"value": nullable()})
CONTENT = b"id,value\na,1\nb,x\nc,3\na,4\nd,\n"
SECRET = 424242


@pytest.fixture
def engine(make_engine: Callable[..., Engine]) -> Engine:
    return make_engine([THINGS], chunk_records=2)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "wait_random_exponential", lambda **_: wait_none())


def run(engine: Engine, job: ImportJob, **said: Any) -> process.Processed:
    return process_import(engine, job.id, worker="w", **said)


def rows(url: str, tenant: str = "acme") -> list[tuple[Any, ...]]:
    found = ask(url, "SELECT * FROM things WHERE _tenant = %s ORDER BY id", tenant)
    return [(row["id"], row["value"], row["_record"]) for row in found]


def artifact(engine: Engine, job: ImportJob, name: str) -> bytes:
    with engine.store.open(job.artifacts[name]) as source:
        return source.read()


class TestTheWholeWay:
    def test_a_file_becomes_rows_and_files(self, engine: Engine, database_url: str) -> None:
        job = send(engine, THINGS, CONTENT)
        stages: list[tuple[Stage, tuple[Stage, ...]]] = []
        done = run(engine, job, on_stage=lambda s, j: stages.append((s, j.stages_done)))
        assert done.error is None
        assert done.skipped is None
        assert done.ran == STAGES
        assert stages == [(stage, STAGES[: n + 1]) for n, stage in enumerate(STAGES)]
        ended = done.job
        assert ended.state is JobState.SUCCEEDED
        assert ended.records_read == 5
        assert ended.outcomes == Outcomes(created=3, duplicate=1, rejected=1)
        assert ended.sentence == "5 records: 3 created, 1 duplicate, 1 rejected"
        assert ended.contract_version == THINGS.contract.version
        assert ended.finished_at is not None
        assert rows(database_url) == [("a", 4, 4), ("c", 3, 3), ("d", None, 5)]
        assert set(ended.artifacts) == {
            "accepted.parquet",
            "duplicates.parquet",
            "errors.parquet",
            "rejects.csv",
            "export.csv",
            "export.parquet",
        }
        assert read_csv_rows(artifact(engine, ended, "rejects.csv"))[1][0] == "2"
        assert artifact(engine, ended, "export.csv") == b"_record,id,value\n3,c,3\n4,a,4\n5,d,\n"
        exported = pl.read_parquet(artifact(engine, ended, "export.parquet"))
        assert exported.rows() == [(3, "c", 3), (4, "a", 4), (5, "d", None)]
        assert exported.columns == [RECORD, "id", "value"]
        assert ended.report["exports"] == {"rows": 3}

    def test_a_header_alone_succeeds_and_says_so(self, engine: Engine) -> None:
        done = run(engine, send(engine, THINGS, b"id,value\n"))
        assert done.job.state is JobState.SUCCEEDED
        assert done.job.outcomes == Outcomes()
        assert "header only" in done.job.sentence
        assert artifact(engine, done.job, "export.csv") == b"_record,id,value\n"
        assert pl.read_parquet(artifact(engine, done.job, "export.parquet")).height == 0

    def test_a_file_of_rejects_only_succeeds(self, engine: Engine) -> None:
        done = run(engine, send(engine, THINGS, b"id,value\na,x\nb,y\nc\n"))
        assert done.job.outcomes == Outcomes(rejected=3)

    def test_no_scratch_is_left(self, engine: Engine) -> None:
        run(engine, send(engine, THINGS, CONTENT))
        assert engine.scratch is not None
        assert list(engine.scratch.iterdir()) == []


class TestSkipped:
    def test_a_finished_job(self, engine: Engine, database_url: str) -> None:
        job = send(engine, THINGS, CONTENT)
        first = run(engine, job)
        before = rows(database_url)
        again = run(engine, job)
        assert again.skipped == "finished as succeeded"
        assert again.ran == ()
        assert again.job == first.job
        assert rows(database_url) == before

    def test_a_job_in_other_hands(self, engine: Engine) -> None:
        job = send(engine, THINGS, CONTENT)
        held = claim(engine, job, worker="other")
        done = run(engine, job)
        assert done.skipped == "in hand: validating"
        assert engine.ledger.job(job.id).claimed_by == "other"
        engine.ledger.check(held)

    def test_a_failed_job_until_somebody_asks(self, engine: Engine) -> None:
        job = send(engine, THINGS, b"")
        assert run(engine, job).job.state is JobState.FAILED
        assert run(engine, job).skipped == "finished as failed"


class TestErrors:
    @pytest.mark.parametrize(
        ("port", "method"),
        [
            ("store", "stat"),
            ("store", "checksum"),
            ("store", "publish"),
            ("store", "open"),
            ("loader", "prepare"),
            ("loader", "load"),
            ("loader", "receipts"),
            ("loader", "export_csv"),
            ("ledger", "enter"),
            ("ledger", "note"),
            ("ledger", "finish_stage"),
        ],
    )
    def test_a_transient_one_is_tried_again(
        self, engine: Engine, database_url: str, port: str, method: str
    ) -> None:
        job = send(engine, THINGS, CONTENT)
        error = TransientError(Code.DATABASE_UNAVAILABLE, "It did not answer.")
        failing = Failing(method=method, error=error, times=2)
        done = run(behind(replace(engine, transient_tries=3), failing, port), job)
        assert done.error is None
        assert done.job.outcomes == Outcomes(created=3, duplicate=1, rejected=1)
        assert failing.calls > 2
        assert len(rows(database_url)) == 3

    def test_a_transient_one_that_stays_fails_the_job(self, engine: Engine) -> None:
        job = send(engine, THINGS, CONTENT)
        error = TransientError(Code.STORE_UNAVAILABLE, "It did not answer.")
        failing = Failing(method="load", error=error, times=99)
        done = run(behind(replace(engine, transient_tries=3), failing, "loader"), job)
        assert failing.calls == 3
        assert done.error is error
        assert done.job.state is JobState.FAILED
        assert done.job.error_code == "store_unavailable"
        assert done.ran == (Stage.UPLOAD, Stage.VALIDATED)

    def test_a_permanent_one_is_not_tried_again(self, engine: Engine) -> None:
        job = send(engine, THINGS, CONTENT)
        error = PermanentError(Code.TABLE_DIFFERS, "The table is another one.")
        failing = Failing(method="prepare", error=error, times=99)
        done = run(behind(engine, failing, "loader"), job)
        assert failing.calls == 1
        assert done.job.state is JobState.FAILED
        assert done.job.sentence == "table_differs: The table is another one."

    def test_after_a_failure_a_retry_goes_on_from_there(
        self, engine: Engine, database_url: str
    ) -> None:
        job = send(engine, THINGS, CONTENT)
        error = PermanentError(Code.DATABASE_REFUSED, "No.")
        run(behind(engine, Failing(method="export_csv", error=error, times=1), "loader"), job)
        assert engine.ledger.retry(job.id, actor="ann")
        done = run(engine, job)
        assert done.ran == (Stage.EXPORTS,)
        assert done.job.state is JobState.SUCCEEDED
        assert len(rows(database_url)) == 3

    def test_an_unexpected_one_fails_the_job_without_a_cell(
        self, engine: Engine, caplog: pytest.LogCaptureFixture
    ) -> None:
        job = send(engine, THINGS, CONTENT)
        error = ValueError(f"cannot use {SECRET}")
        with caplog.at_level(logging.DEBUG):
            done = run(behind(engine, Failing(method="load", error=error, times=1), "loader"), job)
        assert done.job.state is JobState.FAILED
        assert done.job.error_code == "internal"
        assert "ValueError" in (done.job.error_summary or "")
        assert str(SECRET) not in done.job.sentence
        assert str(SECRET) not in caplog.text
        assert "fakes.py" in caplog.text  # where it was raised can be found

    def test_what_the_database_refuses_is_told_without_the_value(
        self, engine: Engine, database_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        engine.loader.prepare(THINGS.contract)
        ask(database_url, f"ALTER TABLE things ADD CONSTRAINT no CHECK (value <> {SECRET})")
        content = f"id,value\na,1\nb,2\nc,{SECRET}\n".encode()
        with caplog.at_level(logging.DEBUG):
            done = run(engine, send(engine, THINGS, content))
        assert done.job.state is JobState.FAILED
        assert done.job.error_code == "database_refused"
        assert "CheckViolation" in done.job.sentence
        said = f"{done.job}{done.error!r}{caplog.text}"
        assert str(SECRET) not in said
        assert [row[0] for row in rows(database_url)] == ["a", "b"]  # the batch before it stays
        assert str(SECRET) not in json.dumps(
            [row["details"] for row in ask(database_url, "SELECT details FROM pocket.audit_log")]
        )

    @pytest.mark.parametrize(
        ("content", "code"),
        [
            (b"", "empty_file"),
            (b"id\na\n", "missing_column"),
            (b"\x1f\x8b\x08\x00", "archive_damaged"),
        ],
    )
    def test_a_file_that_cannot_be_taken_fails(
        self, engine: Engine, content: bytes, code: str
    ) -> None:
        done = run(engine, send(engine, THINGS, content))
        assert (done.job.state, done.job.error_code) == (JobState.FAILED, code)
        assert done.ran == (Stage.UPLOAD,)

    def test_too_many_rejects_load_nothing_and_leave_the_reasons(
        self, make_engine: Callable[..., Engine], database_url: str
    ) -> None:
        dataset = replace(THINGS, max_rejects=0)
        engine = make_engine([dataset])
        done = run(engine, send(engine, dataset, CONTENT))
        assert (done.job.state, done.job.error_code) == (JobState.FAILED, "too_many_rejects")
        assert read_csv_rows(artifact(engine, done.job, "rejects.csv"))[1][4:] == ["b", "x"]
        assert done.job.report["validated"]["rejected"] == 1
        assert ask(database_url, "SELECT to_regclass('things') AS it")[0]["it"] is None

    def test_a_dataset_that_is_gone_fails_the_job(
        self, engine: Engine, make_engine: Callable[..., Engine]
    ) -> None:
        job = send(engine, THINGS, CONTENT)
        done = run(make_engine([]), job)
        assert (done.job.state, done.job.error_code) == (JobState.FAILED, "unknown_dataset")

    def test_a_contract_that_is_broken_fails_the_job(
        self, engine: Engine, make_engine: Callable[..., Engine]
    ) -> None:
        job = send(engine, THINGS, CONTENT)
        done = run(make_engine([replace(THINGS, key=("none",))]), job)
        assert (done.job.state, done.job.error_code) == (JobState.FAILED, "invalid_contract")
        assert engine.ledger.retry(job.id, actor="ann")
        assert run(engine, job).job.state is JobState.SUCCEEDED

    @pytest.mark.parametrize(
        ("tampered", "code"),
        [(CONTENT.replace(b"3", b"4"), "upload_changed"), (CONTENT + b"e,5\n", "upload_changed")],
    )
    def test_a_pinned_file_that_was_changed_is_refused(
        self, engine: Engine, tampered: bytes, code: str
    ) -> None:
        job = send(engine, THINGS, CONTENT)
        Path(engine.store.address(job.upload.pinned_key)).write_bytes(tampered)
        done = run(engine, job)
        assert (done.job.state, done.job.error_code) == (JobState.FAILED, code)
        assert done.ran == ()

    def test_a_pinned_file_that_is_gone_is_refused(self, engine: Engine) -> None:
        job = send(engine, THINGS, CONTENT)
        Path(engine.store.address(job.upload.pinned_key)).unlink()
        assert run(engine, job).job.error_code == "upload_missing"

    def test_no_database_is_the_callers_trouble(self, engine: Engine) -> None:
        job = send(engine, THINGS, CONTENT)
        error = TransientError(Code.DATABASE_UNAVAILABLE, "It did not answer.")
        failing = Failing(method="claim", error=error, times=1)
        with pytest.raises(TransientError):
            run(behind(engine, failing, "ledger"), job)
        assert engine.ledger.job(job.id).state is JobState.QUEUED


class TestInterrupted:
    @pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
    @pytest.mark.parametrize("method", ["checksum", "publish", "load", "export_csv", "succeed"])
    def test_an_interrupt_puts_the_job_back_and_asks_for_a_run(
        self, engine: Engine, database_url: str, error: BaseException, method: str
    ) -> None:
        job = send(engine, THINGS, CONTENT)
        (entry,) = engine.ledger.pending(limit=10)
        engine.ledger.mark_dispatched({entry.id: "run"})
        with pytest.raises(type(error)):
            run(behind(engine, Failing(method=method, error=error, times=1)), job)
        assert engine.ledger.job(job.id).state is JobState.QUEUED
        (entry,) = engine.ledger.pending(limit=10)
        assert (entry.job_id, entry.attempt) == (job.id, 2)
        assert run(engine, job).job.outcomes == Outcomes(created=3, duplicate=1, rejected=1)
        assert rows(database_url) == [("a", 4, 4), ("c", 3, 3), ("d", None, 5)]

    def test_an_interrupt_passes_through_a_dead_database(self, engine: Engine) -> None:
        job = send(engine, THINGS, CONTENT)
        gone = TransientError(Code.DATABASE_UNAVAILABLE, "It did not answer.")
        interrupt = Failing(method="load", error=KeyboardInterrupt(), times=1)
        dead = Failing(method="release", error=gone, times=1)
        with pytest.raises(KeyboardInterrupt):
            run(behind(behind(engine, dead, "ledger"), interrupt, "loader"), job)
        assert engine.ledger.job(job.id).state is JobState.LOADING  # until its lease is over

    def test_a_kill_after_any_step_changes_nothing_in_the_end(
        self, engine: Engine, database_url: str
    ) -> None:
        """Dead without a word after the n-th call of a port, for every n; then recovered."""
        before = b"id,value\na,0\nc,3\nz,9\n"
        clean = self.clean_run(engine, before)
        expected = rows(database_url, "clean")
        died = 0
        for n in range(1, 200):
            tenant = f"t{n}"
            run(engine, send(engine, THINGS, before, tenant=tenant, name="before.csv"))
            job = send(engine, THINGS, CONTENT, tenant=tenant)
            mortal = Mortal(calls_left=n)
            try:
                run(behind(engine, mortal), job)
            except Killed:
                died += 1
            if mortal.calls_left:
                break
            for stalled in engine.ledger.unfinished(limit=10):
                engine.ledger.requeue(stalled, reason="its worker fell silent", max_losses=3)
            run(engine, job)
            ended = engine.ledger.job(job.id)
            assert ended.state is JobState.SUCCEEDED, mortal.called
            assert ended.outcomes == clean.outcomes, mortal.called
            assert rows(database_url, tenant) == expected, mortal.called
            for name in ("export.csv", "rejects.csv"):
                assert artifact(engine, ended, name) == artifact(engine, clean, name)
        assert died > 20  # the walk has that many steps, and it was killed after each

    def clean_run(self, engine: Engine, before: bytes) -> ImportJob:
        run(engine, send(engine, THINGS, before, tenant="clean", name="before.csv"))
        done = run(engine, send(engine, THINGS, CONTENT, tenant="clean"))
        assert done.job.outcomes == Outcomes(
            created=1, updated=1, unchanged=1, duplicate=1, rejected=1
        )
        return done.job

    def test_a_cancel_between_two_batches_ends_the_job(
        self, engine: Engine, database_url: str
    ) -> None:
        job = send(engine, THINGS, CONTENT)

        def around(name: str, call: Callable[[], Any]) -> Any:
            result = call()
            if name == "load":
                engine.ledger.request_cancel(job.id, actor="ann")
            return result

        done = run(behind(engine, around, "loader"), job)
        assert done.job.state is JobState.CANCELLED
        assert done.error is not None
        assert done.error.code is Code.CANCELLED
        assert len(engine.loader.receipts(job.id)) == 1  # what was committed stays
        assert run(engine, job).skipped == "finished as cancelled"

    def test_a_cancel_before_the_last_transition_wins(self, engine: Engine) -> None:
        job = send(engine, THINGS, CONTENT)

        def around(name: str, call: Callable[[], Any]) -> Any:
            if name == "succeed":
                engine.ledger.request_cancel(job.id, actor="ann")
            return call()

        assert run(behind(engine, around, "ledger"), job).job.state is JobState.CANCELLED

    @pytest.mark.parametrize("method", ["note", "load", "finish_stage", "fail", "succeed"])
    def test_a_worker_that_was_given_up_stops(
        self, engine: Engine, database_url: str, method: str
    ) -> None:
        """Its successor has finished the job meanwhile."""
        content = CONTENT if method != "fail" else b""
        job = send(engine, THINGS, content)
        overtaken: list[ImportJob] = []

        def around(name: str, call: Callable[[], Any]) -> Any:
            if name == method and not overtaken:
                (stalled,) = engine.ledger.unfinished(limit=10)
                engine.ledger.requeue(stalled, reason="its worker fell silent", max_losses=3)
                overtaken.append(process_import(engine, job.id, worker="other").job)
            return call()

        with pytest.raises(TransientError) as lost:
            run(behind(engine, around), job)
        assert lost.value.code is Code.LEASE_LOST
        assert engine.ledger.job(job.id) == overtaken[0]

    def test_the_lease_is_renewed_while_a_stage_runs(self, engine: Engine) -> None:
        job = send(engine, THINGS, CONTENT)
        renewed = threading.Semaphore(0)

        def around(name: str, call: Callable[[], Any]) -> Any:
            if name == "renew":
                renewed.release()
            if name == "load":
                assert renewed.acquire(timeout=60)
            return call()

        done = run(behind(replace(engine, lease_seconds=0.05), around), job)
        assert done.job.state is JobState.SUCCEEDED
        assert not [t for t in threading.enumerate() if t.name.startswith("lease-")]


class TestThrough:
    @pytest.mark.parametrize("stage", STAGES[:-1])
    def test_stops_early_and_goes_on_later(
        self, engine: Engine, database_url: str, stage: Stage
    ) -> None:
        job = send(engine, THINGS, CONTENT)
        place = STAGES.index(stage) + 1
        first = run(engine, job, through=stage)
        assert first.ran == STAGES[:place]
        assert (first.job.state, first.job.stages_done) == (JobState.QUEUED, STAGES[:place])
        again = run(engine, job, through=stage)
        assert again.ran == ()
        assert again.job.state is JobState.QUEUED
        rest = run(engine, job)
        assert rest.ran == STAGES[place:]
        assert rest.job.outcomes == Outcomes(created=3, duplicate=1, rejected=1)

    def test_what_was_validated_is_used_again(self, engine: Engine) -> None:
        job = send(engine, THINGS, CONTENT)
        before = run(engine, job, through=Stage.VALIDATED).job
        after = run(engine, job).job
        assert after.artifacts["accepted.parquet"] == before.artifacts["accepted.parquet"]
        assert after.validated_at == before.validated_at


class TestAnotherContract:
    CHANGED = replace(THINGS, duplicates="first")

    def test_means_another_validation_while_nothing_is_loaded(
        self, engine: Engine, make_engine: Callable[..., Engine], database_url: str
    ) -> None:
        job = send(engine, THINGS, CONTENT)
        before = run(engine, job, through=Stage.VALIDATED).job
        done = run(make_engine([self.CHANGED], chunk_records=2), job)
        assert done.ran == (Stage.VALIDATED, Stage.LOADED, Stage.EXPORTS)
        assert done.job.contract_version == self.CHANGED.contract.version
        assert done.job.artifacts["accepted.parquet"] != before.artifacts["accepted.parquet"]
        assert rows(database_url)[0] == ("a", 1, 1)

    def test_does_not_mix_with_rows_that_are_loaded(
        self, engine: Engine, make_engine: Callable[..., Engine], database_url: str
    ) -> None:
        job = send(engine, THINGS, CONTENT)
        error = PermanentError(Code.DATABASE_REFUSED, "No.")

        def second(name: str, call: Callable[[], Any]) -> Any:
            if name == "load" and engine.loader.receipts(job.id):
                raise error
            return call()

        run(behind(engine, second, "loader"), job)
        engine.ledger.retry(job.id, actor="ann")
        refused = run(make_engine([self.CHANGED], chunk_records=4), job)
        assert refused.error is not None
        assert refused.error.code is Code.CONTRACT_CHANGED
        engine.ledger.retry(job.id, actor="ann")
        done = run(engine, job)
        assert done.ran == (Stage.LOADED, Stage.EXPORTS)
        assert rows(database_url) == [("a", 4, 4), ("c", 3, 3), ("d", None, 5)]

    def test_no_artifact_of_the_first_validation_is_left_behind(
        self, engine: Engine, make_engine: Callable[..., Engine]
    ) -> None:
        job = send(engine, THINGS, CONTENT)
        before = run(engine, job, through=Stage.VALIDATED).job
        assert "duplicates.parquet" in before.artifacts
        rejecting: Dataset = replace(THINGS, duplicates="reject")
        done = run(make_engine([rejecting]), job)
        assert "duplicates.parquet" not in done.job.artifacts
        assert done.job.outcomes == Outcomes(created=2, rejected=3)

    def test_with_a_file_that_has_a_header_only(
        self, engine: Engine, make_engine: Callable[..., Engine]
    ) -> None:
        job = send(engine, THINGS, b"id,value\n")
        run(engine, job, through=Stage.LOADED)
        done = run(make_engine([self.CHANGED]), job)
        assert done.error is None
        assert done.job.state is JobState.SUCCEEDED
