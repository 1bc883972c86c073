"""The loader on a real server: against a simple model, under parallel use, and at its edges."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any
from uuid import uuid4

import polars as pl
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pocket_ingest.adapters.postgres.ledger import lock_tenant
from pocket_ingest.adapters.postgres.loader import PostgresLoader
from pocket_ingest.core.artifacts import DUPLICATES, RECORD
from pocket_ingest.core.dataset import Dataset, Existing, FromColumn
from pocket_ingest.core.errors import Cancelled, Code, PermanentError, TransientError
from pocket_ingest.core.exporting import export_rows
from pocket_ingest.core.jobs import Claim, ImportJob, Outcomes
from pocket_ingest.core.loading import load_accepted
from pocket_ingest.core.ports import LoadBatch
from pocket_ingest.core.process import Engine
from pocket_ingest.core.reading import ReadingLimits
from pocket_ingest.core.validation import validate_file
from pocket_ingest_tests.examples import (
    ask,
    batch_of,
    begin_loading,
    declare,
    finish,
    nullable,
    read_csv_rows,
    register,
    write_csv,
)

SIMPLE = {"id": str, "value": str}


def simple(**said: Any) -> Dataset:
    return declare(SIMPLE, checks={"value": nullable()}, **said)


def table(url: str, name: str = "things", where: str = "true") -> list[dict[str, Any]]:
    return ask(url, f"SELECT * FROM public.{name} WHERE {where} ORDER BY _tenant, _record")


def load_rows(engine: Engine, dataset: Dataset, rows: list[dict[str, Any]], **said: Any):
    """Register an upload and load it in one batch."""
    job = register(engine, dataset.name, **said)
    held = begin_loading(engine, job, records=len(rows))
    engine.loader.prepare(dataset.contract)
    outcomes = engine.loader.load(held, dataset.contract, job, batch_of(dataset.contract, rows))
    return job, held, outcomes


# -- against a model ---------------------------------------------------------------------------


@dataclass
class Model:
    """What the loader promises, as simply as it can be said.

    A row remembers the newest upload that wrote it, or that said the same while an older upload
    could still come.
    """

    policy: Existing
    rows: dict[str, tuple[str | None, int]] = field(default_factory=dict)

    def load(
        self, upload: int, batch: list[tuple[str, str | None]], *, older_to_come: bool
    ) -> Outcomes:
        counts = dict.fromkeys(("created", "updated", "unchanged", "stale", "conflict"), 0)
        for key, value in batch:
            outcome = self._outcome(upload, key, value)
            counts[outcome] += 1
            same = key in self.rows and self.rows[key][0] == value
            if outcome in {"created", "updated"} or (
                outcome == "unchanged" and same and older_to_come
            ):
                self.rows[key] = value, upload
        return Outcomes(**counts)

    def _outcome(self, upload: int, key: str, value: str | None) -> str:
        if key not in self.rows:
            return "created"
        there, writer = self.rows[key]
        if writer > upload:
            return "stale"
        if there == value:
            return "unchanged"
        return {"update": "updated", "keep": "unchanged", "conflict": "conflict"}[self.policy]


@dataclass
class Sent:
    """An upload on its way: its job, its batches, and how far it is."""

    job: ImportJob
    records: list[tuple[str, str | None]]
    batches: list[LoadBatch]
    duplicates: int
    held: Claim | None = None
    loaded: int = 0
    outcomes: Outcomes = field(default_factory=Outcomes)
    over: bool = False


RECORDS = st.lists(
    st.tuples(st.sampled_from("abcde"), st.sampled_from(["x", "y", "", None])), max_size=9
)
PLANS = st.lists(st.tuples(RECORDS, st.integers(1, 4)), min_size=1, max_size=4)
STEPS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("llllllfck")), max_size=40)


def prepare_upload(
    engine: Engine, dataset: Dataset, tenant: str, records: list[Any], chunk_records: int
) -> Sent:
    """Validate a file in chunks of the wanted size and plan its batches."""
    job = register(engine, dataset.name, tenant=tenant)
    content = write_csv(("id", "value"), records)
    batches: list[LoadBatch] = []

    def keep(batch: LoadBatch) -> Outcomes:
        batches.append(batch)
        return Outcomes()

    with TemporaryDirectory() as folder:
        validated = validate_file(
            lambda: io.BytesIO(content),
            dataset.contract,
            folder=Path(folder),
            limits=ReadingLimits(chunk_records=chunk_records),
            check=lambda: None,
        )
        losers = validated.files.get(DUPLICATES)
        load_accepted(
            io.BytesIO(validated.files["accepted.parquet"].read_bytes()),
            io.BytesIO(losers.read_bytes()) if losers else None,
            done=set(),
            load=keep,
            check=lambda: None,
        )
    return Sent(job=job, records=records, batches=batches, duplicates=validated.duplicates)


def winners(records: list[tuple[str, str | None]], policy: str) -> dict[str, str | None]:
    """The value of each key that counts within one file."""
    chosen: dict[str, str | None] = {}
    for key, value in records:
        if policy == "last" or key not in chosen:
            chosen[key] = value
    return chosen


@pytest.mark.parametrize("policy", list(Existing))
@given(plan=PLANS, steps=STEPS, duplicates=st.sampled_from(["first", "last"]))
@settings(max_examples=35, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_of_batches_ends_as_the_model_says(
    make_engine, database_url: str, policy: Existing, plan, steps, duplicates: str
) -> None:
    """Uploads in any order, interrupted, failed and retried, cancelled in the middle."""
    dataset = simple(existing=policy, duplicates=duplicates, name=f"t_{policy}_{duplicates}")
    engine = _engine_of(make_engine, dataset)
    contract = dataset.contract
    engine.loader.prepare(contract)
    tenant = uuid4().hex
    model = Model(policy)
    sent = [prepare_upload(engine, dataset, tenant, *said) for said in plan]
    loaded: dict[int, dict[str, str | None]] = {}

    def step(place: int, what: str) -> None:
        upload = sent[place % len(sent)]
        if upload.over:
            return
        if upload.held is None:
            upload.held = begin_loading(engine, upload.job, records=len(upload.records))
        if what == "c":
            engine.ledger.request_cancel(upload.job.id, actor="test")
            if upload.loaded < len(upload.batches):
                with pytest.raises(Cancelled):
                    load_next(upload)
            engine.ledger.cancel(upload.held)
            upload.over = True
        elif what == "f":
            engine.ledger.fail(upload.held, code="internal", summary="as planned")
            assert engine.ledger.retry(upload.job.id, actor="test")
            upload.held = None
        elif what == "k" and upload.loaded < len(upload.batches):
            dying = PostgresLoader(Dying(engine.ledger._database), schema="public")
            with pytest.raises(KeyboardInterrupt):
                dying.load(upload.held, contract, upload.job, upload.batches[upload.loaded])
        elif upload.loaded < len(upload.batches):
            batch = upload.batches[upload.loaded]
            rows = list(zip(*(batch.rows[n].to_pylist() for n in ("id", "value")), strict=True))
            to_come = any(s.job.upload.id < upload.job.upload.id and not s.over for s in sent)
            said = model.load(upload.job.upload.id, rows, older_to_come=to_come)
            said += Outcomes(duplicate=batch.duplicate, rejected=batch.rejected)
            assert load_next(upload) == said
            upload.outcomes += said
            upload.loaded += 1
            loaded.setdefault(upload.job.upload.id, {}).update(rows)
        if not upload.over and upload.held and upload.loaded == len(upload.batches):
            upload.over = True
            ended = finish(engine, upload.held)
            assert ended.outcomes == upload.outcomes
            assert ended.outcomes.duplicate == upload.duplicates
            assert loaded.get(upload.job.upload.id, {}) == winners(upload.records, duplicates)

    def load_next(upload: Sent) -> Outcomes:
        # Another process would have met no collision yet: half of the batches try the fast way.
        loader = PostgresLoader(engine.ledger._database, schema="public")
        chosen = loader if upload.loaded % 2 else engine.loader
        return chosen.load(upload.held, contract, upload.job, upload.batches[upload.loaded])

    for place, what in steps:
        step(place, what)
    for place in reversed(range(len(sent))):
        while not sent[place].over:
            step(place, "l")

    rows = table(database_url, dataset.name, f"_tenant = '{tenant}'")
    assert {r["id"]: (r["value"], r["_upload_id"]) for r in rows} == model.rows
    if policy is Existing.UPDATE:
        in_order: dict[str, str | None] = {}
        for upload_id in sorted(loaded):
            in_order |= loaded[upload_id]
        assert {r["id"]: r["value"] for r in rows} == in_order


_engines: dict[int, Engine] = {}


def _engine_of(make_engine: Any, dataset: Dataset) -> Engine:
    """One engine for all examples of a test."""
    key = id(make_engine)
    if key not in _engines:
        _engines.clear()
        _engines[key] = make_engine([dataset])
    return _engines[key]


class Dying:
    """A database whose client is killed after a transaction's last statement, before its commit."""

    def __init__(self, database: Any) -> None:
        self._database = database

    @contextmanager
    def transaction(self, **said: Any) -> Iterator[Any]:
        with self._database.transaction(**said) as connection:
            yield connection
            raise KeyboardInterrupt


def test_a_confirmed_value_is_not_undone_by_an_older_upload_that_comes_late(
    make_engine, database_url: str
) -> None:
    dataset = simple()
    engine = make_engine([dataset])
    engine.loader.prepare(dataset.contract)
    jobs = [register(engine) for _ in range(3)]
    values = ("A", "B", "A")

    def load(number: int) -> Outcomes:
        held = begin_loading(engine, jobs[number], records=1)
        batch = batch_of(dataset.contract, [{"id": "k", "value": values[number]}])
        outcomes = engine.loader.load(held, dataset.contract, jobs[number], batch)
        finish(engine, held)
        return outcomes

    assert load(0) == Outcomes(created=1)
    assert load(2) == Outcomes(unchanged=1)
    assert load(1) == Outcomes(stale=1)
    assert [row["value"] for row in table(database_url)] == ["A"]


# -- values ------------------------------------------------------------------------------------

EVERY_TYPE = {
    "id": str,
    "tiny": pl.Int8,
    "small": pl.Int16,
    "middle": pl.Int32,
    "big": pl.Int64,
    "single": pl.Float32,
    "double": pl.Float64,
    "yes": bool,
    "day": date,
    "local": datetime,
    "instant": Annotated[pl.Datetime, "us", "UTC"],
    "berlin": Annotated[pl.Datetime, "us", "Europe/Berlin"],
    "whole": Annotated[pl.Decimal, 38, 0],
    "money": Annotated[pl.Decimal, 14, 2],
    "fine": Annotated[pl.Decimal, 38, 38],
    "text": str,
}
INSTANTS = st.datetimes(
    min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC)
)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    top = 10**precision - 1
    exact = Context(prec=precision)
    return st.integers(-top, top).map(lambda n: exact.scaleb(Decimal(n), -scale))


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


ROWS = st.fixed_dictionaries(
    {
        "tiny": maybe(st.integers(-(2**7), 2**7 - 1)),
        "small": maybe(st.integers(-(2**15), 2**15 - 1)),
        "middle": maybe(st.integers(-(2**31), 2**31 - 1)),
        "big": maybe(st.integers(-(2**63), 2**63 - 1)),
        "single": maybe(st.floats(width=32, allow_nan=False, allow_infinity=False)),
        "double": maybe(st.floats(allow_nan=False, allow_infinity=False)),
        "yes": maybe(st.booleans()),
        "day": maybe(st.dates()),
        "local": maybe(st.datetimes()),
        "instant": maybe(INSTANTS),
        "berlin": maybe(INSTANTS),
        "whole": maybe(decimals(38, 0)),
        "money": maybe(decimals(14, 2)),
        "fine": maybe(decimals(38, 38)),
        "text": maybe(TEXT | st.sampled_from(["", '"', "\\.", "\\N", "a\r\nb", "🙂, é", "NULL"])),
    }
)


@given(rows=st.lists(ROWS, min_size=1, max_size=8), twice=st.booleans())
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_type_comes_back_as_it_was(
    make_engine, database_url: str, tmp_path: Path, rows: list[dict[str, Any]], twice: bool
) -> None:
    """From Arrow into the table, by both ways, and out again as CSV and Parquet."""
    dataset = declare(EVERY_TYPE, checks={n: nullable() for n in EVERY_TYPE if n != "id"})
    contract = dataset.contract
    engine = _engine_of(make_engine, dataset)
    tenant = uuid4().hex
    rows = [{"id": str(number), **row} for number, row in enumerate(rows)]
    if twice:  # the second upload meets the rows of the first: staged and merged
        before = [{"id": row["id"], "text": "before"} for row in rows]
        load_rows(engine, dataset, before, tenant=tenant)
    job, _, outcomes = load_rows(engine, dataset, rows, tenant=tenant)
    assert outcomes.total == len(rows)
    assert outcomes.created == (0 if twice else len(rows))

    found = ask(
        database_url,
        # psycopg reads the shortest text of a real as a double, which is another number
        "SELECT *, single::float8 AS single FROM public.things WHERE _tenant = %s ORDER BY _record",
        tenant,
    )
    assert [{name: row[name] for name in EVERY_TYPE} for row in found] == rows
    assert {row["_job_id"] for row in found} == {job.id}
    assert {row["_upload_id"] for row in found} == {job.upload.id}
    assert [row["_record"] for row in found] == list(range(1, len(rows) + 1))

    exported = export_rows(
        contract,
        folder=tmp_path,
        write_csv=lambda target: engine.loader.export_csv(contract, job, target),
        check=lambda: None,
        max_record_bytes=2 * 2**20,
    )
    frame = pl.read_parquet(exported.files["export.parquet"])
    assert exported.rows == len(rows)
    assert frame.drop(RECORD).to_dicts() == rows


def test_an_export_tells_null_from_empty_text(make_engine) -> None:
    dataset = simple()
    engine = make_engine([dataset])
    rows = [{"id": "1", "value": None}, {"id": "2", "value": ""}, {"id": "3", "value": 'a"b,\n'}]
    job, _, _ = load_rows(engine, dataset, rows)
    target = io.BytesIO()
    assert engine.loader.export_csv(dataset.contract, job, target) == 3
    assert target.getvalue() == b'_record,id,value\n1,1,\n2,2,""\n3,3,"a""b,\n"\n'


def test_cells_of_a_megabyte(make_engine, database_url: str, tmp_path: Path) -> None:
    dataset = simple()
    engine = make_engine([dataset])
    rows = [{"id": str(n), "value": c * 2**20} for n, c in enumerate(('"', "é", "\n", "\\"))]
    job, _, _ = load_rows(engine, dataset, rows)
    assert [row["value"] for row in table(database_url)] == [row["value"] for row in rows]
    exported = export_rows(
        dataset.contract,
        folder=tmp_path,
        write_csv=lambda target: engine.loader.export_csv(dataset.contract, job, target),
        check=lambda: None,
        max_record_bytes=2 * 2**20,
    )
    frame = pl.read_parquet(exported.files["export.parquet"])
    assert frame["value"].to_list() == [row["value"] for row in rows]


def test_an_export_holds_only_what_the_upload_wrote_last(make_engine) -> None:
    dataset = simple()
    engine = make_engine([dataset])
    first, held, _ = load_rows(engine, dataset, [{"id": k, "value": "1"} for k in "abc"])
    finish(engine, held)
    second, _, _ = load_rows(engine, dataset, [{"id": "b", "value": "2"}])
    load_rows(engine, dataset, [{"id": "a", "value": "other"}], tenant="umbrella")

    def exported(job: ImportJob) -> list[list[str]]:
        target = io.BytesIO()
        count = engine.loader.export_csv(dataset.contract, job, target)
        rows = read_csv_rows(target.getvalue())[1:]
        assert count == len(rows)
        return rows

    assert exported(first) == [["1", "a", "1"], ["3", "c", "1"]]
    assert exported(second) == [["1", "b", "2"]]


# -- batches -----------------------------------------------------------------------------------


def test_an_empty_batch_leaves_its_receipt(make_engine, database_url: str) -> None:
    dataset = simple()
    engine = make_engine([dataset])
    job = register(engine)
    held = begin_loading(engine, job, records=5)
    engine.loader.prepare(dataset.contract)
    batch = batch_of(dataset.contract, [], rejected=3, duplicate=2)
    expected = Outcomes(rejected=3, duplicate=2)
    assert engine.loader.load(held, dataset.contract, job, batch) == expected
    assert engine.loader.receipts(job.id) == {(1, 5)}
    assert finish(engine, held).outcomes == expected
    assert table(database_url) == []


def test_a_batch_that_has_its_receipt_is_not_loaded_again(make_engine, database_url: str) -> None:
    dataset = simple(duplicates="last")
    engine = make_engine([dataset])
    engine.loader.prepare(dataset.contract)
    records = [("a", "1"), ("b", "2"), ("c", "3"), ("a", "4"), ("d", "5")]
    sent = prepare_upload(engine, dataset, "acme", records, 2)
    sent.held = begin_loading(engine, sent.job, records=5)
    first, *rest = sent.batches
    engine.loader.load(sent.held, dataset.contract, sent.job, first)
    with pytest.raises(PermanentError) as refused:  # and the database itself holds it
        engine.loader.load(sent.held, dataset.contract, sent.job, first)
    assert refused.value.code is Code.DATABASE_REFUSED
    for batch in rest:
        engine.loader.load(sent.held, dataset.contract, sent.job, batch)
    ended = finish(engine, sent.held)
    assert ended.outcomes == Outcomes(created=4, duplicate=1)
    assert [row["id"] for row in table(database_url)] == ["b", "c", "a", "d"]


@pytest.mark.parametrize("collides", [False, True])
def test_a_kill_before_the_commit_leaves_nothing(
    make_engine, database_url: str, collides: bool
) -> None:
    dataset = simple()
    engine = make_engine([dataset])
    engine.loader.prepare(dataset.contract)
    if collides:
        load_rows(engine, dataset, [{"id": "1", "value": "before"}])
    before = table(database_url)
    job = register(engine)
    held = begin_loading(engine, job, records=1)
    batch = batch_of(dataset.contract, [{"id": "1", "value": "after"}])
    dying = PostgresLoader(Dying(engine.ledger._database), schema="public")
    with pytest.raises(KeyboardInterrupt):
        dying.load(held, dataset.contract, job, batch)
    assert table(database_url) == before
    assert engine.loader.receipts(job.id) == set()
    assert engine.ledger.job(job.id).outcomes == Outcomes()
    engine.loader.load(held, dataset.contract, job, batch)
    assert [row["value"] for row in table(database_url)] == ["after"]


def test_a_lost_connection_in_the_middle_is_transient_and_leaves_nothing(
    make_engine, database_url: str
) -> None:
    dataset = simple()
    engine = make_engine([dataset])
    engine.loader.prepare(dataset.contract)
    job = register(engine)
    held = begin_loading(engine, job, records=1)

    class Severed(Dying):
        @contextmanager
        def transaction(self, **said: Any) -> Iterator[Any]:
            with self._database.transaction(**said) as connection:
                yield connection
                ask(database_url, "SELECT pg_terminate_backend(%s)", connection.info.backend_pid)

    severed = PostgresLoader(Severed(engine.ledger._database), schema="public")
    batch = batch_of(dataset.contract, [{"id": "1", "value": "x"}])
    with pytest.raises(TransientError) as lost:
        severed.load(held, dataset.contract, job, batch)
    assert lost.value.code is Code.DATABASE_UNAVAILABLE
    assert table(database_url) == []
    assert engine.loader.load(held, dataset.contract, job, batch) == Outcomes(created=1)


def test_a_claim_that_was_lost_loads_nothing(make_engine, database_url: str) -> None:
    dataset = simple()
    engine = make_engine([dataset])
    engine.loader.prepare(dataset.contract)
    job = register(engine)
    old = begin_loading(engine, job, records=1)
    (stalled,) = engine.ledger.unfinished(limit=10)
    engine.ledger.requeue(stalled, reason="it fell silent", max_losses=3)
    batch = batch_of(dataset.contract, [{"id": "1", "value": "x"}])
    with pytest.raises(TransientError) as lost:
        engine.loader.load(old, dataset.contract, job, batch)
    assert lost.value.code is Code.LEASE_LOST
    new = begin_loading(engine, job, records=1)
    with pytest.raises(TransientError):
        engine.loader.load(old, dataset.contract, job, batch)
    assert table(database_url) == []
    assert engine.loader.load(new, dataset.contract, job, batch) == Outcomes(created=1)


@pytest.mark.parametrize("event", ["lost", "taken over", "cancelled"])
def test_what_happens_while_a_batch_is_being_written_undoes_it(
    make_engine, database_url: str, event: str
) -> None:
    """The fence is the last statement: it sees what came after the first look."""
    dataset = simple()
    engine = make_engine([dataset])
    engine.loader.prepare(dataset.contract)
    job = register(engine)
    held = begin_loading(engine, job, records=1)

    def happen() -> None:
        if event == "cancelled":
            engine.ledger.request_cancel(job.id, actor="somebody")
            return
        (stalled,) = engine.ledger.unfinished(limit=10)
        engine.ledger.requeue(stalled, reason="it fell silent", max_losses=3)
        if event == "taken over":
            begin_loading(engine, job, records=1, worker="other")

    class Interrupted:
        """A connection on which the event comes just before the first receipt."""

        def __init__(self, connection: Any) -> None:
            self._connection = connection

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

        def execute(self, query: Any, *values: Any) -> Any:
            if "batch_receipts" in str(query):
                happen()
            return self._connection.execute(query, *values)

    class Between(Dying):
        @contextmanager
        def transaction(self, **said: Any) -> Iterator[Any]:
            with self._database.transaction(**said) as connection:
                yield Interrupted(connection)

    slow = PostgresLoader(Between(engine.ledger._database), schema="public")
    batch = batch_of(dataset.contract, [{"id": "1", "value": "x"}])
    with pytest.raises(Cancelled if event == "cancelled" else TransientError):
        slow.load(held, dataset.contract, job, batch)
    assert table(database_url) == []
    assert engine.loader.receipts(job.id) == set()


# -- several at once ---------------------------------------------------------------------------


def test_parallel_loaders_of_one_tenant_neither_deadlock_nor_lose(
    make_engine, database_url: str
) -> None:
    """Four jobs over the same keys in opposite orders; the outcomes say what happened."""
    dataset = simple()
    engine = make_engine([dataset])
    engine.loader.prepare(dataset.contract)
    keys = [f"{n:03}" for n in range(60)]
    jobs = [register(engine) for _ in range(4)]
    claims = [begin_loading(engine, job, records=len(keys)) for job in jobs]
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(jobs))

    def work(number: int) -> None:
        try:
            loader = PostgresLoader(engine.ledger._database, schema="public")
            mine = keys if number % 2 else keys[::-1]
            barrier.wait()
            for start in range(0, len(mine), 10):
                rows = [{"id": key, "value": str(number)} for key in mine[start : start + 10]]
                batch = batch_of(dataset.contract, rows, first=start + 1)
                loader.load(claims[number], dataset.contract, jobs[number], batch)
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    rows = table(database_url)
    assert sorted(row["id"] for row in rows) == keys
    assert {row["value"] for row in rows} == {"3"}  # the newest upload wins, whatever the order
    ended = [finish(engine, held).outcomes for held in claims]
    assert sum(o.created for o in ended) == len(keys)
    assert [o.total for o in ended] == [len(keys)] * len(jobs)
    assert ended[3].stale == 0


def test_batches_of_a_tenant_wait_for_each_other_and_for_nobody_else(
    make_engine, database_url: str
) -> None:
    dataset = simple()
    engine = make_engine([dataset])
    engine.loader.prepare(dataset.contract)
    jobs = {tenant: register(engine, tenant=tenant) for tenant in ("acme", "umbrella")}
    claims = {tenant: begin_loading(engine, job, records=1) for tenant, job in jobs.items()}
    batch = batch_of(dataset.contract, [{"id": "1", "value": "x"}])
    done = threading.Event()

    def load(tenant: str) -> None:
        engine.loader.load(claims[tenant], dataset.contract, jobs[tenant], batch)

    def load_and_say() -> None:
        load("acme")
        done.set()

    with psycopg.connect(database_url) as other:
        lock_tenant(other, "load", "things", "acme")  # type: ignore[arg-type]
        thread = threading.Thread(target=load_and_say)
        thread.start()
        load("umbrella")
        assert not done.wait(0.2)
        other.commit()
    thread.join()
    assert done.is_set()


# -- tenants -----------------------------------------------------------------------------------


def test_tenants_from_a_column_have_separate_keys(make_engine, database_url: str) -> None:
    columns = {"owner": str, "id": str, "value": str}
    dataset = declare(columns, tenant=FromColumn("owner"))
    engine = make_engine([dataset])
    rows = [
        {"owner": "a", "id": "1", "value": "x"},
        {"owner": "b", "id": "1", "value": "y"},
    ]
    job, held, outcomes = load_rows(engine, dataset, rows, tenant="things")
    assert outcomes == Outcomes(created=2)
    finish(engine, held)
    changed = [{"owner": "b", "id": "1", "value": "z"}]
    _, _, outcomes = load_rows(engine, dataset, changed, tenant="things")
    assert outcomes == Outcomes(updated=1)
    assert [(r["_tenant"], r["owner"], r["value"]) for r in table(database_url)] == [
        ("a", "a", "x"),
        ("b", "b", "z"),
    ]
    target = io.BytesIO()
    assert engine.loader.export_csv(dataset.contract, job, target) == 1


def test_tenants_from_the_path_have_separate_keys(make_engine, database_url: str) -> None:
    dataset = simple()
    engine = make_engine([dataset])
    for tenant in ("a", "b"):
        _, _, outcomes = load_rows(engine, dataset, [{"id": "1", "value": tenant}], tenant=tenant)
        assert outcomes == Outcomes(created=1)
    assert [(r["_tenant"], r["value"]) for r in table(database_url)] == [("a", "a"), ("b", "b")]


# -- the table ---------------------------------------------------------------------------------


def test_keys_that_only_differ_in_case_accents_or_spaces_are_different(
    make_engine, database_url: str
) -> None:
    dataset = simple()
    engine = make_engine([dataset])
    keys = ["a", "A", "á", "a ", " a", "ａ", "a\u0301"]
    _, _, outcomes = load_rows(engine, dataset, [{"id": k, "value": "1"} for k in keys])
    assert outcomes == Outcomes(created=len(keys))
    _, _, outcomes = load_rows(engine, dataset, [{"id": k, "value": "1"} for k in keys])
    assert outcomes == Outcomes(unchanged=len(keys))


def test_a_dataset_that_is_all_key_has_nothing_to_update(make_engine) -> None:
    dataset = declare({"id": str, "part": int}, key=("id", "part"))
    engine = make_engine([dataset])
    rows = [{"id": "a", "part": 1}, {"id": "a", "part": 2}]
    assert load_rows(engine, dataset, rows)[2] == Outcomes(created=2)
    assert load_rows(engine, dataset, rows)[2] == Outcomes(unchanged=2)


def test_the_two_ways_of_writing_agree(make_engine, database_url: str) -> None:
    """The fast way is tried first and takes over nothing where it fails."""
    dataset = simple()
    engine = make_engine([dataset])
    _, held, _ = load_rows(engine, dataset, [{"id": "2", "value": "old"}])
    finish(engine, held)
    rows = [{"id": k, "value": "new"} for k in "123"]
    _, _, outcomes = load_rows(engine, dataset, rows)
    assert outcomes == Outcomes(created=2, updated=1)
    assert [(r["id"], r["value"]) for r in table(database_url)] == [(k, "new") for k in "123"]
