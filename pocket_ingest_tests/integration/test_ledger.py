"""The ledger's promises on a real server: recognition, claims, fencing, states, audit, outbox."""

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from pocket_ingest.adapters.postgres.ledger import lock_tenant
from pocket_ingest.core.errors import Cancelled, Code, PermanentError, TransientError
from pocket_ingest.core.intake import take_in
from pocket_ingest.core.jobs import (
    FINISHED,
    RUNNING,
    TRANSITIONS,
    Claim,
    ImportJob,
    JobState,
    Outcomes,
    Stage,
)
from pocket_ingest.core.ports import Registered, StoredObject
from pocket_ingest.core.process import Engine
from pocket_ingest_tests.examples import (
    ask,
    batch_of,
    begin_loading,
    claim,
    declare,
    finish,
    new_upload,
    register,
    send,
)

THINGS = declare({"id": str, "value": str})


@pytest.fixture
def engine(make_engine: Callable[..., Engine]) -> Engine:
    return make_engine([THINGS])


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What ``work(0)`` to ``work(count - 1)`` give, or raise, when all begin together."""
    results: list[Any] = [None] * count
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        barrier.wait()
        try:
            results[number] = work(number)
        except Exception as error:  # noqa: BLE001 - it is the result
            results[number] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def state(engine: Engine, job: ImportJob) -> JobState:
    return engine.ledger.job(job.id).state


def audit(url: str, job: ImportJob) -> list[tuple[str, str, str | None, str]]:
    rows = ask(
        url,
        "SELECT actor, event, from_state, to_state FROM pocket.audit_log WHERE job_id = %s "
        "ORDER BY id",
        job.id,
    )
    return [(r["actor"], r["event"], r["from_state"], r["to_state"]) for r in rows]


def stall(engine: Engine, job: ImportJob, *, max_losses: int = 3) -> JobState | None:
    """Take a job out of its worker's hands, as reconcile does."""
    (found,) = [u for u in engine.ledger.unfinished(limit=100) if u.job_id == job.id]
    return engine.ledger.requeue(found, reason="it fell silent", max_losses=max_losses)


class TestRegister:
    def test_a_new_upload_has_a_job_and_waits_for_a_run(self, engine: Engine) -> None:
        new = new_upload(name="März, #1.csv", tenant="Ann & Co")
        registered = engine.ledger.register(new)
        job = registered.job
        assert registered.is_new
        assert job.state is JobState.QUEUED
        assert (job.attempt, job.outcomes, job.stages_done) == (1, Outcomes(), ())
        assert job.upload.sha256 == new.pinned.sha256
        assert job.upload.pinned_key == new.pinned.key
        assert (job.upload.tenant, job.upload.file_name) == ("Ann & Co", "März, #1.csv")
        assert job.upload.same_content_as is None
        prefix, _, digest = job.upload.partition_key.rpartition(".")
        assert prefix == "Ann-Co.Marz-1.csv"
        assert len(digest) == 8
        (entry,) = engine.ledger.pending(limit=10)
        assert (entry.job_id, entry.attempt, entry.size_bytes) == (job.id, 1, new.pinned.size_bytes)
        assert engine.ledger.job(job.id) == job
        assert engine.ledger.job_for_partition("things", job.upload.partition_key) == job

    def test_the_same_version_again_is_the_same_upload(self, engine: Engine) -> None:
        new = new_upload()
        first = engine.ledger.register(new)
        again = engine.ledger.register(new)
        assert not again.is_new
        assert again.job == first.job
        assert len(engine.ledger.pending(limit=10)) == 1

    def test_a_touched_file_is_recognised_by_its_content(self, engine: Engine) -> None:
        first = engine.ledger.register(new_upload(name="a.csv", content="A", version="1"))
        touched = engine.ledger.register(new_upload(name="a.csv", content="A", version="2"))
        assert not touched.is_new
        assert touched.job == first.job
        seen = [
            StoredObject(key=first.job.upload.source_key, version=v, size_bytes=1) for v in "123"
        ]
        known = engine.ledger.known_versions("things", seen)
        assert known == {(first.job.upload.source_key, v) for v in "12"}
        assert engine.ledger.known_versions("other", seen) == set()
        assert engine.ledger.known_versions("things", []) == set()

    def test_back_and_forth_gives_three_uploads(self, engine: Engine) -> None:
        jobs = [
            engine.ledger.register(new_upload(name="a.csv", content=content, version=str(n)))
            for n, content in enumerate("ABA")
        ]
        assert [r.is_new for r in jobs] == [True, True, True]
        keys = [r.job.upload.partition_key for r in jobs]
        assert len(set(keys)) == 3
        assert [r.job.upload.same_content_as for r in jobs] == [None, None, keys[0]]

    def test_the_same_content_under_another_name_is_new_and_says_so(self, engine: Engine) -> None:
        first = engine.ledger.register(new_upload(name="a.csv", content="A"))
        other = engine.ledger.register(new_upload(name="b.csv", content="A"))
        assert other.is_new
        assert other.job.upload.same_content_as == first.job.upload.partition_key

    def test_another_tenants_content_is_not_spoken_of(self, engine: Engine) -> None:
        engine.ledger.register(new_upload(name="a.csv", content="A", tenant="acme"))
        other = engine.ledger.register(new_upload(name="a.csv", content="A", tenant="umbrella"))
        assert other.is_new
        assert other.job.upload.same_content_as is None

    def test_an_idempotency_key_stands_for_one_content(self, engine: Engine) -> None:
        said = {"idempotency_key": "k1"}
        first = engine.ledger.register(new_upload(name="a.csv", content="A", **said))
        again = engine.ledger.register(new_upload(name="b.csv", content="A", **said))
        assert not again.is_new
        assert again.job == first.job
        with pytest.raises(PermanentError) as conflict:
            engine.ledger.register(new_upload(name="c.csv", content="B", **said))
        assert conflict.value.code is Code.IDEMPOTENCY_CONFLICT
        elsewhere = engine.ledger.register(new_upload(content="B", tenant="umbrella", **said))
        assert elsewhere.is_new
        assert len(engine.ledger.jobs(tenant="acme")) == 1

    def test_ids_grow_in_the_order_of_a_tenants_uploads(self, engine: Engine) -> None:
        results = at_once(8, lambda n: engine.ledger.register(new_upload(name=f"{n}.csv")))
        assert all(isinstance(r, Registered) and r.is_new for r in results)
        newest_first = [job.upload.id for job in engine.ledger.jobs()]
        assert newest_first == sorted(newest_first, reverse=True)
        assert len(set(newest_first)) == 8
        later = register(engine)
        assert later.upload.id > max(newest_first)

    def test_an_upload_that_is_not_committed_keeps_the_next_one_waiting(
        self, engine: Engine, database_url: str
    ) -> None:
        """Else a smaller id could become visible after a greater one."""
        done = threading.Event()

        def second() -> None:
            register(engine, tenant="acme")
            done.set()

        with psycopg.connect(database_url) as first:
            lock_tenant(first, "intake", "things", "acme")  # type: ignore[arg-type]
            thread = threading.Thread(target=second)
            thread.start()
            register(engine, tenant="umbrella")  # another tenant does not wait
            assert not done.wait(0.2)
            first.commit()
        thread.join()
        assert done.is_set()

    def test_two_looks_at_one_object_make_one_upload(self, engine: Engine) -> None:
        new = new_upload()
        results = at_once(6, lambda _: engine.ledger.register(new))
        assert sorted(r.is_new for r in results) == [False] * 5 + [True]
        assert len({r.job.id for r in results}) == 1
        assert len(engine.ledger.pending(limit=10)) == 1

    def test_a_failed_file_that_comes_again_is_tried_again(self, engine: Engine) -> None:
        job = send(engine, THINGS, b"id,value\n1,x\n")
        held = claim(engine, job)
        engine.ledger.fail(held, code="internal", summary="no")
        again = send(engine, THINGS, b"id,value\n1,x\n")
        assert (again.id, again.state, again.attempt) == (job.id, JobState.QUEUED, 2)
        assert (again.error_code, again.error_summary, again.finished_at) == (None, None, None)
        assert [e.attempt for e in engine.ledger.pending(limit=10)] == [2]

    def test_a_finished_file_that_comes_again_stays_as_it_is(self, engine: Engine) -> None:
        job = send(engine, THINGS, b"id,value\n")
        ended = finish(engine, begin_loading(engine, job, records=0))
        assert send(engine, THINGS, b"id,value\n") == ended

    def test_unknown_jobs_are_told(self, engine: Engine) -> None:
        for look in (
            lambda: engine.ledger.job(uuid4()),
            lambda: engine.ledger.job_for_partition("things", "none"),
        ):
            with pytest.raises(PermanentError) as unknown:
                look()
            assert unknown.value.code is Code.UNKNOWN_JOB

    def test_jobs_are_listed_by_dataset_tenant_and_state(self, engine: Engine) -> None:
        a = register(engine)
        b = register(engine, tenant="umbrella")
        c = register(engine, "others")
        claim(engine, b)

        def ids(**said: Any) -> list[Any]:
            return [job.id for job in engine.ledger.jobs(**said)]

        assert ids() == [c.id, b.id, a.id]
        assert ids(limit=1) == [c.id]
        assert ids(dataset="things") == [b.id, a.id]
        assert ids(tenant="acme") == [c.id, a.id]
        assert ids(states=[JobState.VALIDATING]) == [b.id]
        assert ids(states=[JobState.VALIDATING], tenant="acme") == []


class TestClaim:
    def test_exactly_one_wins(self, engine: Engine) -> None:
        job = register(engine)
        said = {"run_id": None, "lease_seconds": 60, "contract_version": "c1"}
        won = at_once(8, lambda n: engine.ledger.claim(job.id, worker=f"w{n}", **said))
        claims = [c for c in won if c is not None]
        assert len(claims) == 1
        assert isinstance(claims[0], Claim)
        held = engine.ledger.job(job.id)
        assert held.claimed_by == claims[0].worker
        assert held.state is JobState.VALIDATING
        assert isinstance(held.started_at, datetime)
        assert held.lease_expires_at is not None

    @pytest.mark.parametrize("ending", ["fail", "cancel", "succeed"])
    def test_a_finished_job_is_not_taken(self, engine: Engine, ending: str) -> None:
        job = register(engine)
        held = begin_loading(engine, job, records=0)
        if ending == "fail":
            engine.ledger.fail(held, code="internal", summary="no")
        elif ending == "cancel":
            engine.ledger.cancel(held)
        else:
            finish(engine, held)
        assert (
            engine.ledger.claim(
                job.id, worker="w", run_id=None, lease_seconds=1, contract_version="c1"
            )
            is None
        )

    def test_goes_on_where_the_last_worker_stopped(self, engine: Engine) -> None:
        job = register(engine)
        held = begin_loading(engine, job, records=0)
        engine.ledger.release(held, reason="interrupted", dispatch=True)
        held = claim(engine, job)
        assert state(engine, job) is JobState.LOADING
        engine.ledger.finish_stage(held, Stage.LOADED)
        engine.ledger.release(held, reason="interrupted", dispatch=True)
        claim(engine, job)
        assert state(engine, job) is JobState.EXPORTING

    def test_another_contract_means_another_validation(self, engine: Engine) -> None:
        job = register(engine)
        held = begin_loading(engine, job, records=0)
        engine.ledger.finish_stage(held, Stage.LOADED)
        engine.ledger.release(held, reason="interrupted", dispatch=True)
        held = claim(engine, job, contract_version="c2")
        redone = engine.ledger.job(job.id)
        assert redone.state is JobState.VALIDATING
        assert redone.stages_done == (Stage.UPLOAD,)
        engine.ledger.finish_stage(held, Stage.VALIDATED, records_read=0, contract_version="c2")
        engine.ledger.enter(held, JobState.LOADING)
        assert finish(engine, held).contract_version == "c2"

    def test_another_contract_does_not_undo_what_was_loaded(self, engine: Engine) -> None:
        job = register(engine)
        held = begin_loading(engine, job, records=2)
        engine.loader.prepare(THINGS.contract)
        rows = [{"id": "1", "value": "x"}]
        engine.loader.load(held, THINGS.contract, job, batch_of(THINGS.contract, rows))
        engine.ledger.release(held, reason="interrupted", dispatch=True)
        held = claim(engine, job, contract_version="c2")
        going_on = engine.ledger.job(job.id)
        assert going_on.state is JobState.LOADING
        assert Stage.VALIDATED in going_on.stages_done

    def test_a_lease_is_renewed_while_it_holds(self, engine: Engine) -> None:
        job = register(engine)
        held = claim(engine, job, lease_seconds=1)
        before = engine.ledger.job(job.id).lease_expires_at
        assert engine.ledger.renew(held, lease_seconds=600)
        after = engine.ledger.job(job.id).lease_expires_at
        assert before is not None
        assert after is not None
        assert after > before
        (unfinished,) = engine.ledger.unfinished(limit=10)
        assert -600 <= unfinished.silent_seconds < -500
        stall(engine, job)
        assert not engine.ledger.renew(held, lease_seconds=600)


ATTEMPTS: dict[str, Callable[[Engine, Claim], Any]] = {
    "check": lambda e, c: e.ledger.check(c),
    "enter": lambda e, c: e.ledger.enter(c, JobState.LOADING),
    "note": lambda e, c: e.ledger.note(c, artifacts={"a": "b"}, report={"x": 1}),
    "finish": lambda e, c: e.ledger.finish_stage(c, Stage.LOADED, records_read=7),
    "succeed": lambda e, c: e.ledger.succeed(c),
    "fail": lambda e, c: e.ledger.fail(c, code="internal", summary="no"),
    "cancel": lambda e, c: e.ledger.cancel(c),
}


class TestFence:
    """A worker that lost its claim changes nothing, whatever it tries."""

    @pytest.mark.parametrize("attempt", list(ATTEMPTS))
    @pytest.mark.parametrize("successor", [False, True])
    def test_after_a_requeue(self, engine: Engine, attempt: str, successor: bool) -> None:
        job = register(engine)
        old = begin_loading(engine, job, records=0)
        stall(engine, job)
        if successor:
            claim(engine, job, worker="other")
        before = engine.ledger.job(job.id)
        with pytest.raises(TransientError) as lost:
            ATTEMPTS[attempt](engine, old)
        assert lost.value.code is Code.LEASE_LOST
        engine.ledger.release(old, reason="late", dispatch=True)
        assert engine.ledger.job(job.id) == before

    @pytest.mark.parametrize("attempt", ["check", "enter", "note", "finish", "succeed"])
    def test_after_a_cancel_was_asked_for(self, engine: Engine, attempt: str) -> None:
        job = register(engine)
        held = begin_loading(engine, job, records=0)
        asked = engine.ledger.request_cancel(job.id, actor="ann")
        assert asked.state is JobState.LOADING
        assert asked.cancel_requested_at is not None
        with pytest.raises(Cancelled):
            ATTEMPTS[attempt](engine, held)
        assert engine.ledger.job(job.id) == asked
        assert engine.ledger.cancel(held).state is JobState.CANCELLED


class TestCancel:
    def test_a_waiting_job_ends_at_once(self, engine: Engine) -> None:
        job = register(engine)
        assert engine.ledger.request_cancel(job.id, actor="ann").state is JobState.CANCELLED
        assert engine.ledger.pending(limit=10) == []
        assert not engine.ledger.retry(job.id, actor="ann")

    def test_a_finished_job_stays_as_it_is(self, engine: Engine) -> None:
        job = register(engine)
        ended = finish(engine, begin_loading(engine, job, records=0))
        assert engine.ledger.request_cancel(job.id, actor="ann") == ended

    def test_a_stalled_one_is_not_tried_again(self, engine: Engine) -> None:
        job = register(engine)
        begin_loading(engine, job, records=0)
        engine.ledger.request_cancel(job.id, actor="ann")
        assert stall(engine, job) is JobState.CANCELLED

    @pytest.mark.parametrize("dispatch", [False, True])
    def test_one_that_is_put_back_is_not_tried_again(self, engine: Engine, dispatch: bool) -> None:
        """The request came between the worker's last look and its release."""
        job = register(engine)
        held = begin_loading(engine, job, records=0)
        engine.ledger.request_cancel(job.id, actor="ann")
        engine.ledger.release(held, reason="interrupted", dispatch=dispatch)
        ended = engine.ledger.job(job.id)
        assert ended.state is JobState.CANCELLED
        assert ended.finished_at is not None
        assert engine.ledger.pending(limit=10) == []

    def test_and_success_never_both_win(self, engine: Engine) -> None:
        met = set()
        for _ in range(12):
            job = register(engine)
            held = begin_loading(engine, job, records=0)
            engine.ledger.finish_stage(held, Stage.LOADED)
            engine.ledger.enter(held, JobState.EXPORTING)

            def race(number: int, held: Claim = held, job: ImportJob = job) -> Any:
                if number:
                    return engine.ledger.succeed(held)
                return engine.ledger.request_cancel(job.id, actor="ann")

            asked, ended = at_once(2, race)
            if isinstance(ended, Cancelled):
                assert asked.cancel_requested_at is not None
                assert state(engine, job) is JobState.EXPORTING
                assert engine.ledger.cancel(held).state is JobState.CANCELLED
            else:
                assert ended.state is JobState.SUCCEEDED
                assert asked.cancel_requested_at is None
                assert engine.ledger.job(job.id) == ended
            met.add(type(ended))
        assert met <= {Cancelled, ImportJob}


class TestStates:
    def test_the_database_allows_what_the_table_of_transitions_says(
        self, engine: Engine, database_url: str
    ) -> None:
        """Exhaustive: every pair of states, by hand, on the database itself."""
        job = register(engine)
        # Postgres checks constraints on the row that the trigger has let through, so the row
        # always has what a finished one needs.
        columns = (
            "finished_at = CASE WHEN %(state)s IN ('succeeded', 'failed', 'cancelled', "
            "'quarantined') THEN now() END, error_code = 'internal', records_read = 0"
        )
        allowed: dict[JobState, set[JobState]] = {s: set() for s in JobState}
        with psycopg.connect(database_url) as connection:
            for old, new in itertools.permutations(JobState, 2):
                connection.execute("SET LOCAL session_replication_role = replica")
                connection.execute(
                    f"UPDATE pocket.import_jobs SET state = %(state)s, {columns} WHERE id = %(id)s",
                    {"state": old, "id": job.id},
                )
                connection.execute("SET LOCAL session_replication_role = origin")
                with suppress(psycopg.errors.CheckViolation):
                    connection.execute(
                        f"UPDATE pocket.import_jobs SET state = %(state)s, {columns} "
                        "WHERE id = %(id)s",
                        {"state": new, "id": job.id},
                    )
                    allowed[old].add(new)
                connection.rollback()
        assert allowed == {old: set(TRANSITIONS[old]) for old in JobState}

    def test_there_are_no_other_states(self, engine: Engine, database_url: str) -> None:
        job = register(engine)
        with pytest.raises(psycopg.errors.CheckViolation):
            ask(
                database_url, "UPDATE pocket.import_jobs SET state = 'paused' WHERE id = %s", job.id
            )

    def test_finished_and_running_are_apart(self) -> None:
        assert not FINISHED & RUNNING
        assert {JobState.UPLOADING, JobState.QUEUED} == set(JobState) - FINISHED - RUNNING

    @pytest.mark.parametrize("read", [0, 3, None])
    def test_success_needs_an_outcome_for_every_record(
        self, engine: Engine, database_url: str, read: int | None
    ) -> None:
        job = register(engine)
        held = begin_loading(engine, job, records=2)
        engine.loader.prepare(THINGS.contract)
        rows = [{"id": k, "value": "x"} for k in "12"]
        engine.loader.load(held, THINGS.contract, job, batch_of(THINGS.contract, rows))
        ask(
            database_url,
            "UPDATE pocket.import_jobs SET records_read = %s WHERE id = %s",
            read,
            job.id,
        )
        with pytest.raises(PermanentError) as refused:
            finish(engine, held)
        assert refused.value.code is Code.DATABASE_REFUSED
        ask(database_url, "UPDATE pocket.import_jobs SET records_read = 2 WHERE id = %s", job.id)
        assert engine.ledger.succeed(held).outcomes == Outcomes(created=2)

    def test_success_needs_a_receipt_for_every_outcome(
        self, engine: Engine, database_url: str
    ) -> None:
        """Counters that add up by themselves are not enough."""
        job = register(engine)
        held = begin_loading(engine, job, records=2)
        ask(database_url, "UPDATE pocket.import_jobs SET created = 2 WHERE id = %s", job.id)
        with pytest.raises(PermanentError) as refused:
            finish(engine, held)
        assert refused.value.code is Code.DATABASE_REFUSED
        assert state(engine, job) is JobState.EXPORTING

    def test_the_constraint_itself_refuses_a_wrong_sum(
        self, engine: Engine, database_url: str
    ) -> None:
        job = register(engine)
        finish(engine, begin_loading(engine, job, records=0))
        for change in ("records_read = 1", "created = 1", "rejected = 1", "stale = 1"):
            with pytest.raises(psycopg.errors.CheckViolation) as refused:
                ask(database_url, f"UPDATE pocket.import_jobs SET {change} WHERE id = %s", job.id)
            assert refused.value.diag.constraint_name == "outcomes_add_up"

    def test_a_receipt_must_cover_its_range(self, engine: Engine, database_url: str) -> None:
        job = register(engine)
        with pytest.raises(psycopg.errors.CheckViolation) as refused:
            ask(
                database_url,
                "INSERT INTO pocket.batch_receipts VALUES (%s, 1, 3, 1, 1, 1, 0, 0, 0, 0, 0, 0)",
                job.id,
            )
        assert refused.value.diag.constraint_name == "batch_adds_up"

    def test_a_failure_has_a_code(self, engine: Engine, database_url: str) -> None:
        job = register(engine)
        with pytest.raises(psycopg.errors.CheckViolation):
            ask(
                database_url,
                "UPDATE pocket.import_jobs SET state = 'failed', finished_at = now() WHERE id = %s",
                job.id,
            )

    def test_artifacts_and_report_grow_and_shrink(self, engine: Engine) -> None:
        held = claim(engine, register(engine))
        engine.ledger.note(held, artifacts={"a": "1", "b": "2"}, report={"validated": {"x": 1}})
        engine.ledger.note(held, artifacts={"b": None, "c": "3"}, report={"exports": {"y": 2}})
        job = engine.ledger.job(held.job_id)
        assert job.artifacts == {"a": "1", "c": "3"}
        assert job.report == {"validated": {"x": 1}, "exports": {"y": 2}}


class TestAudit:
    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE pocket.audit_log SET actor = 'x'",
            "UPDATE pocket.audit_log SET actor = 'x' WHERE false",
            "DELETE FROM pocket.audit_log",
            "TRUNCATE pocket.audit_log",
            "TRUNCATE pocket.audit_log CASCADE",
        ],
    )
    def test_is_append_only_for_its_owner_too(
        self, engine: Engine, database_url: str, statement: str
    ) -> None:
        job = register(engine)
        before = audit(database_url, job)
        (role,) = ask(database_url, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        if not role["rolsuper"]:
            pytest.skip("the server's role is not a superuser")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ask(database_url, statement)
        assert audit(database_url, job) == before

    def test_has_a_row_for_each_step_and_who_took_it(
        self, engine: Engine, database_url: str
    ) -> None:
        engine.loader.prepare(THINGS.contract)
        job = register(engine)
        held = begin_loading(engine, job, records=2, worker="w1")
        first = batch_of(THINGS.contract, [{"id": "1", "value": "x"}])
        engine.loader.load(held, THINGS.contract, job, first)
        stall(engine, job)
        held = begin_loading(engine, job, records=2, worker="w2")
        second = batch_of(THINGS.contract, [], first=2, rejected=1)
        engine.loader.load(held, THINGS.contract, job, second)
        finish(engine, held)
        assert audit(database_url, job) == [
            ("intake", "registered", None, "queued"),
            ("w1", "transition", "queued", "validating"),
            ("w1", "transition", "validating", "loading"),
            ("w1", "batch", None, "loading"),
            ("reconcile", "transition", "loading", "queued"),
            ("w2", "transition", "queued", "loading"),
            ("w2", "batch", None, "loading"),
            ("w2", "transition", "loading", "exporting"),
            ("w2", "transition", "exporting", "succeeded"),
        ]
        (batch,) = ask(
            database_url,
            "SELECT details, attempt FROM pocket.audit_log WHERE event = 'batch' AND attempt = 1",
        )
        assert (batch["details"]["created"], batch["details"]["last_record"]) == (1, 1)
        (requeued,) = ask(
            database_url, "SELECT details FROM pocket.audit_log WHERE actor = 'reconcile'"
        )
        assert requeued["details"] == {"reason": "it fell silent"}

    def test_has_the_people_too(self, engine: Engine, database_url: str) -> None:
        job = register(engine)
        held = claim(engine, job, worker="w1")
        engine.ledger.fail(held, code="empty_file", summary="The file is empty.")
        engine.ledger.retry(job.id, actor="ann")
        claim(engine, job, worker="w2")
        engine.ledger.request_cancel(job.id, actor="bob")
        said = audit(database_url, job)
        assert said[2:] == [
            ("w1", "transition", "validating", "failed"),
            ("ann", "transition", "failed", "queued"),
            ("w2", "transition", "queued", "validating"),
            ("bob", "cancel_requested", "validating", "validating"),
        ]

    def test_has_what_is_done_by_hand(self, engine: Engine, database_url: str) -> None:
        job = register(engine)
        ask(
            database_url,
            "UPDATE pocket.import_jobs SET state = 'cancelled', finished_at = now() WHERE id = %s",
            job.id,
        )
        (role,) = ask(database_url, "SELECT current_user AS name")
        assert audit(database_url, job)[-1] == (
            f"sql:{role['name']}",
            "transition",
            "queued",
            "cancelled",
        )

    def test_events_are_read_in_order_from_where_one_stopped(self, engine: Engine) -> None:
        assert engine.ledger.last_event() == 0
        a, b = register(engine), register(engine)
        claim(engine, a)
        events = engine.ledger.events(after=0, limit=10)
        assert [(e.job_id, e.to_state) for e in events] == [
            (a.id, JobState.QUEUED),
            (b.id, JobState.QUEUED),
            (a.id, JobState.VALIDATING),
        ]
        assert engine.ledger.last_event() == events[-1].id
        assert engine.ledger.events(after=events[0].id, limit=1) == [events[1]]
        assert engine.ledger.events(after=events[-1].id, limit=10) == []


class TestOutbox:
    def test_an_entry_is_handed_over_once(self, engine: Engine) -> None:
        jobs = [register(engine) for _ in range(3)]
        entries = engine.ledger.pending(limit=2)
        assert [e.job_id for e in entries] == [j.id for j in jobs[:2]]
        engine.ledger.mark_dispatched({e.id: f"run-{e.id}" for e in entries})
        assert [e.job_id for e in engine.ledger.pending(limit=10)] == [jobs[2].id]
        engine.ledger.mark_dispatched({entries[0].id: "another"})
        waiting = engine.ledger.unfinished(limit=10)
        assert [(u.job_id, u.run_key) for u in waiting] == [
            (e.job_id, f"run-{e.id}") for e in entries
        ]
        assert all(u.silent_seconds >= 0 for u in waiting)
        engine.ledger.mark_dispatched({})

    def test_a_retry_makes_a_new_entry_and_the_old_one_is_void(self, engine: Engine) -> None:
        job = register(engine)
        held = claim(engine, job)
        assert engine.ledger.pending(limit=10) == []  # somebody has it already
        engine.ledger.fail(held, code="internal", summary="no")
        assert engine.ledger.retry(job.id, actor="ann")
        assert not engine.ledger.retry(job.id, actor="ann")
        (entry,) = engine.ledger.pending(limit=10)
        assert (entry.job_id, entry.attempt) == (job.id, 2)

    def test_without_dispatch_nobody_is_asked(self, engine: Engine) -> None:
        job = register(engine)
        held = claim(engine, job)
        engine.ledger.release(held, reason="validated is done", dispatch=False)
        assert state(engine, job) is JobState.QUEUED
        assert engine.ledger.pending(limit=10) == []
        assert engine.ledger.unfinished(limit=10) == []

    def test_a_released_job_is_dispatched_again(self, engine: Engine) -> None:
        job = register(engine)
        engine.ledger.release(claim(engine, job), reason="interrupted", dispatch=True)
        (entry,) = engine.ledger.pending(limit=10)
        assert (entry.job_id, entry.attempt) == (job.id, 2)

    def test_a_job_that_finished_before_its_run_came_is_still_shown(self, engine: Engine) -> None:
        """The command line was faster than the sensor; the orchestrator still learns of it."""
        job = register(engine)
        finish(engine, begin_loading(engine, job, records=0))
        assert [e.job_id for e in engine.ledger.pending(limit=10)] == [job.id]


class TestRequeue:
    def test_gives_a_new_attempt(self, engine: Engine) -> None:
        job = register(engine)
        claim(engine, job, run_id="run-1")
        (stalled,) = engine.ledger.unfinished(limit=10)
        assert (stalled.state, stalled.run_id) == (JobState.VALIDATING, "run-1")
        said = {"reason": "it fell silent", "max_losses": 3}
        assert engine.ledger.requeue(stalled, **said) is JobState.QUEUED
        assert engine.ledger.requeue(stalled, **said) is None
        (entry,) = engine.ledger.pending(limit=10)
        assert entry.attempt == 2

    def test_only_one_of_two_does_it(self, engine: Engine) -> None:
        job = register(engine)
        claim(engine, job)
        (stalled,) = engine.ledger.unfinished(limit=10)
        done = at_once(
            4, lambda _: engine.ledger.requeue(stalled, reason="it fell silent", max_losses=3)
        )
        assert sorted(map(str, done)) == ["None"] * 3 + ["queued"]
        assert engine.ledger.job(job.id).attempt == 2

    def test_leaves_a_job_alone_that_has_moved_on(self, engine: Engine) -> None:
        job = register(engine)
        held = claim(engine, job)
        (seen,) = engine.ledger.unfinished(limit=10)
        engine.ledger.enter(held, JobState.LOADING)
        assert engine.ledger.requeue(seen, reason="late", max_losses=3) is None
        engine.ledger.check(held)

    @pytest.mark.parametrize("max_losses", [0, 1, 3])
    def test_gives_up_after_so_many_losses(self, engine: Engine, max_losses: int) -> None:
        job = register(engine)
        for _ in range(max_losses):
            claim(engine, job)
            assert stall(engine, job, max_losses=max_losses) is JobState.QUEUED
        claim(engine, job)
        assert stall(engine, job, max_losses=max_losses) is JobState.FAILED
        ended = engine.ledger.job(job.id)
        assert ended.error_code == Code.WORKER_LOST
        assert ended.finished_at is not None
        assert engine.ledger.unfinished(limit=10) == []
        # A person's retry counts from the beginning.
        assert engine.ledger.retry(job.id, actor="ann")
        claim(engine, job)
        expected = JobState.QUEUED if max_losses else JobState.FAILED
        assert stall(engine, job, max_losses=max_losses) is expected

    def test_a_job_that_no_run_came_for_is_handed_over_again(self, engine: Engine) -> None:
        job = register(engine)
        (entry,) = engine.ledger.pending(limit=10)
        engine.ledger.mark_dispatched({entry.id: "lost"})
        assert stall(engine, job) is JobState.QUEUED
        (again,) = engine.ledger.pending(limit=10)
        assert (again.job_id, again.attempt) == (job.id, 2)


def test_an_object_of_the_store_becomes_one_upload_whoever_looks(engine: Engine) -> None:
    """Two sensors at once, from the pin to the ledger."""
    job = send(engine, THINGS, b"id,value\n1,x\n")
    (found,) = engine.store.list("inbox/")
    results = at_once(
        4, lambda _: take_in(engine.store, engine.ledger, found, dataset=THINGS, tenant="acme")
    )
    assert [r.is_new for r in results] == [False] * 4
    assert {r.job.id for r in results} == {job.id}


SENT = {"name": "a.csv", "content": "same", "version": "v1"}


class TestCancelledAndSentAgain:
    """Cancelled is final for a job, not for its file."""

    def test_the_same_bytes_are_a_new_upload(self, engine: Engine) -> None:
        first = register(engine, **SENT)
        engine.ledger.request_cancel(first.id, actor="ann")
        again = register(engine, **SENT)
        assert again.id != first.id
        assert again.upload.partition_key != first.upload.partition_key
        finish(engine, begin_loading(engine, again, records=0))
        assert register(engine, **SENT).id == again.id


class TestTakingOver:
    """A job whose worker is gone is there for whoever asks for it."""

    def test_a_lease_that_is_over_is_no_hindrance(self, engine: Engine) -> None:
        job = register(engine)
        old = claim(engine, job, lease_seconds=-1)
        new = claim(engine, job, worker="other")
        assert new.token > old.token
        found = engine.ledger.job(job.id)
        assert (found.claimed_by, found.attempt) == ("other", 2)
        with pytest.raises(TransientError) as lost:
            engine.ledger.succeed(old)
        assert lost.value.code is Code.LEASE_LOST

    def test_success_may_be_said_twice(self, engine: Engine) -> None:
        """The answer to a commit can be lost; the worker then says it again."""
        job = register(engine)
        held = begin_loading(engine, job, records=0)
        finish(engine, held)
        assert engine.ledger.succeed(held).state is JobState.SUCCEEDED

    def test_a_job_that_ends_elsewhere_is_reported_by_a_new_run(self, engine: Engine) -> None:
        job = register(engine)
        (entry,) = engine.ledger.pending(limit=10)
        held = claim(engine, job)
        engine.ledger.mark_dispatched({entry.id: "a run that found it in hand"})
        engine.ledger.fail(held, code="internal", summary="no")
        (report,) = engine.ledger.pending(limit=10)
        assert report.id != entry.id

    def test_only_the_file_in_hand_counts_as_lost(self, engine: Engine) -> None:
        job = register(engine)
        (entry,) = engine.ledger.pending(limit=10)
        engine.ledger.mark_dispatched({entry.id: "run"})
        (waiting,) = engine.ledger.unfinished(limit=10)
        for _ in range(5):
            assert engine.ledger.requeue(waiting, reason="x", max_losses=0) is JobState.QUEUED
            (entry,) = engine.ledger.pending(limit=10)
            assert entry.losses == 0
            engine.ledger.mark_dispatched({entry.id: "run"})
            (waiting,) = engine.ledger.unfinished(limit=10)
        assert state(engine, job) is JobState.QUEUED
