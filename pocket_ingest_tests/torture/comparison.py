"""What is there after the torture, against what a run without kills leaves behind.

Here: the clean run, in the order of the uploads, and every promise that is compared.
Not here: how it came to this (supervision.py).

Which of several uploads of a tenant was loaded first is left to chance, so the outcomes that depend
on it are compared by their sum; content is compared exactly.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pyarrow.parquet as pq
from psycopg import sql
from psycopg.rows import dict_row

from pocket_ingest.core.artifacts import (
    ACCEPTED,
    DUPLICATES,
    EXPORT_CSV,
    EXPORT_PARQUET,
    RECORD,
    VALIDATION,
    AcceptedFile,
)
from pocket_ingest.core.dataset import Dataset, Existing
from pocket_ingest.core.intake import find_address, take_in
from pocket_ingest.core.jobs import ImportJob, JobState, Outcomes
from pocket_ingest.core.process import Engine, process_import
from pocket_ingest_tests.torture.workload import Workload

ORDERED = ("created", "updated", "unchanged", "stale", "conflict")


@dataclass(kw_only=True)
class Comparison:
    """What was found.

    Attributes:
        lost: uploads, rows and outcomes that should be there and are not.
        doubled: those that are there too often.
        differences: every deviation, in a sentence.
    """

    jobs: int = 0
    rows: int = 0
    records: int = 0
    states: Counter[str] = field(default_factory=Counter)
    outcomes: Outcomes = field(default_factory=Outcomes)
    lost: int = 0
    doubled: int = 0
    differences: list[str] = field(default_factory=list)

    def note(self, sentence: str, *, lost: int = 0, doubled: int = 0) -> None:
        """Add a deviation."""
        self.lost += lost
        self.doubled += doubled
        self.differences.append(sentence)


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two runs: its engine, its database, and where its home is."""

    engine: Engine
    url: str
    home: Path

    def ask(self, query: Any, *values: Any) -> list[dict[str, Any]]:
        """Rows of a query."""
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as connection:
            return connection.execute(query, values or None).fetchall()

    def jobs(self) -> dict[str, ImportJob]:
        """All jobs by partition, oldest first."""
        jobs = self.engine.ledger.jobs(limit=1_000_000)
        return {f"{j.upload.dataset}/{j.upload.partition_key}": j for j in reversed(jobs)}


def run_clean(clean: Side, tortured: Side) -> None:
    """Send what the tortured ledger took in once more, in that order, one file after another."""
    engine = clean.engine
    for job in tortured.jobs().values():
        key = job.upload.source_key
        path = Path(engine.store.address(key))
        path.parent.mkdir(parents=True, exist_ok=True)
        with tortured.engine.store.open(job.upload.pinned_key) as pinned:
            path.write_bytes(pinned.read())
        address = find_address(key.removeprefix("inbox/"), engine.datasets.values())
        taken = take_in(
            engine.store,
            engine.ledger,
            engine.store.stat(key),
            dataset=address.dataset,
            tenant=address.tenant,
        )
        process_import(engine, taken.job.id, worker="clean")


def compare(tortured: Side, clean: Side, workload: Workload) -> Comparison:
    """Hold the tortured run to every promise."""
    found = Comparison()
    ours, theirs = tortured.jobs(), clean.jobs()
    _compare_uploads(found, ours, workload)
    if ours.keys() != theirs.keys():
        found.note("the clean run has other partitions", lost=len(theirs.keys() - ours.keys()))
    provenance: dict[tuple[str, int], dict[int, tuple[Any, ...]]] = {}
    for name, job in ours.items():
        found.jobs += 1
        found.states[job.state] += 1
        found.records += job.records_read or 0
        found.outcomes += job.outcomes
        if name in theirs:
            _compare_job(found, name, job, theirs[name])
            _compare_artifacts(found, name, (tortured, job), (clean, theirs[name]))
        if job.state is JobState.SUCCEEDED:
            accepted = _accepted(tortured.engine, job)
            provenance[job.upload.dataset, job.upload.id] = accepted
    _check_receipts(found, tortured, ours)
    _check_endings(found, tortured, ours)
    for dataset in tortured.engine.datasets.values():
        _compare_rows(found, dataset, tortured, clean, ours, provenance)
    return found


def leftovers(tortured: Side) -> dict[str, int]:
    """What killed processes have left on the disk, which no key and no row names."""
    files = tortured.home / "files"
    scratch = tortured.home / "scratch"
    return {
        "unfinished files beside artifacts and uploads": sum(1 for _ in files.rglob(".aside-*")),
        "scratch folders": sum(1 for _ in scratch.iterdir()) if scratch.exists() else 0,
    }


def _compare_uploads(found: Comparison, ours: dict[str, ImportJob], workload: Workload) -> None:
    """Each content that a key had is one upload, in the order in which it was sent."""
    taken: dict[str, list[str]] = defaultdict(list)
    for job in ours.values():
        taken[job.upload.source_key].append(job.upload.sha256)
    sent = workload.contents_by_key()
    for key in sent.keys() | taken.keys():
        if taken[key] != sent.get(key, []):
            more = len(taken[key]) - len(sent.get(key, []))
            found.note(
                f"{key}: {len(sent.get(key, []))} contents were sent, {len(taken[key])} taken in",
                lost=max(-more, 0),
                doubled=max(more, 0),
            )


def _compare_job(found: Comparison, name: str, ours: ImportJob, theirs: ImportJob) -> None:
    for what in ("state", "error_code", "error_summary", "records_read", "contract_version"):
        if getattr(ours, what) != getattr(theirs, what):
            found.note(f"{name}: {what} {getattr(ours, what)}, not {getattr(theirs, what)}")
    if ours.report.get("validated") != theirs.report.get("validated"):
        found.note(f"{name}: another report")
    mine, clean = ours.outcomes, theirs.outcomes
    if ours.state is JobState.SUCCEEDED and mine.total != ours.records_read:
        missing = (ours.records_read or 0) - mine.total
        found.note(f"{name}: outcomes", lost=max(missing, 0), doubled=max(-missing, 0))
    if (mine.rejected, mine.duplicate) != (clean.rejected, clean.duplicate):
        found.note(f"{name}: other counts of rejected or duplicate records")
    if sum(mine.as_dict()[n] for n in ORDERED) != sum(clean.as_dict()[n] for n in ORDERED):
        found.note(f"{name}: another number of rows")


def _compare_artifacts(
    found: Comparison, name: str, mine: tuple[Side, ImportJob], clean: tuple[Side, ImportJob]
) -> None:
    (tortured, ours), (other, theirs) = mine, clean
    if ours.artifacts.keys() != theirs.artifacts.keys():
        found.note(f"{name}: artifacts {sorted(ours.artifacts)}, not {sorted(theirs.artifacts)}")
        return
    for artifact, key in ours.artifacts.items():
        try:
            same = _is_same(
                artifact,
                lambda s=tortured, k=key: s.engine.store.open(k),
                lambda s=other, k=theirs.artifacts[artifact]: s.engine.store.open(k),
            )
        except Exception as error:  # noqa: BLE001 - whatever keeps it from being read
            found.note(f"{name}: {artifact} cannot be read ({type(error).__name__})", lost=1)
            continue
        if not same:
            found.note(f"{name}: another {artifact}")
    if EXPORT_CSV in ours.artifacts:
        _check_exports(found, name, tortured.engine, ours)


def _is_same(artifact: str, mine: Callable[[], Any], other: Callable[[], Any]) -> bool:
    if artifact not in VALIDATION:
        return True  # what an upload last wrote depends on who came first
    with mine() as a, other() as b:
        if not artifact.endswith(".parquet"):
            return bool(a.read() == b.read())
        if artifact == ACCEPTED:
            left, right = AcceptedFile.open(a), AcceptedFile.open(b)
            return left.plan == right.plan and left.file.read().equals(right.file.read())
        return bool(pq.read_table(a).equals(pq.read_table(b)))


def _check_exports(found: Comparison, name: str, engine: Engine, job: ImportJob) -> None:
    """Both exports are whole and hold the same records."""
    with engine.store.open(job.artifacts[EXPORT_PARQUET]) as source:
        records = pq.read_table(source)[RECORD].to_pylist()
    with engine.store.open(job.artifacts[EXPORT_CSV]) as source:
        text = pl.read_csv(source.read(), infer_schema=False)[RECORD].cast(pl.Int64).to_list()
    if records != text or len(text) != job.report["exports"]["rows"]:
        found.note(f"{name}: its exports differ")


def _accepted(engine: Engine, job: ImportJob) -> dict[int, tuple[Any, ...]]:
    """The rows that the job may write, by record."""
    losers: set[int] = set()
    if DUPLICATES in job.artifacts:
        with engine.store.open(job.artifacts[DUPLICATES]) as source:
            losers = set(pq.read_table(source)["record"].to_pylist())
    with engine.store.open(job.artifacts[ACCEPTED]) as source:
        rows = pq.read_table(source).to_pylist()
    return {
        row[RECORD]: tuple(v for n, v in row.items() if n != RECORD)
        for row in rows
        if row[RECORD] not in losers
    }


def _check_receipts(found: Comparison, tortured: Side, ours: dict[str, ImportJob]) -> None:
    """The receipts of a job follow on each other, from its first record to its last."""
    ranges: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for row in tortured.ask(
        "SELECT job_id, first_record, last_record FROM pocket.batch_receipts ORDER BY 1, 2"
    ):
        ranges[row["job_id"]].append((row["first_record"], row["last_record"]))
    for name, job in ours.items():
        expected = 1
        for first, last in ranges[job.id]:
            if first != expected:
                gap = first - expected
                found.note(f"{name}: receipts", lost=max(gap, 0), doubled=max(-gap, 0))
            expected = last + 1
        whole = (job.records_read or 0) if job.state is JobState.SUCCEEDED else 0
        if expected != whole + 1:
            found.note(f"{name}: receipts end at record {expected - 1} of {whole}")


def _check_endings(found: Comparison, tortured: Side, ours: dict[str, ImportJob]) -> None:
    """Each job ended once, but for those that were asked for again."""
    rows = tortured.ask(
        "SELECT job_id, count(*) FILTER (WHERE to_state = 'succeeded') AS succeeded, "
        "count(*) FILTER (WHERE to_state IN ('failed', 'cancelled', 'quarantined')) AS failed, "
        "count(*) FILTER (WHERE from_state = 'failed') AS retried "
        "FROM pocket.audit_log WHERE event = 'transition' GROUP BY job_id"
    )
    endings = {row["job_id"]: row for row in rows}
    for name, job in ours.items():
        row = endings.get(job.id)
        ended = 0 if row is None else row["succeeded"] + row["failed"] - row["retried"]
        if ended != 1:
            found.note(f"{name}: it ended {ended} times", doubled=max(ended - 1, 0))


def _compare_rows(
    found: Comparison,
    dataset: Dataset,
    tortured: Side,
    clean: Side,
    ours: dict[str, ImportJob],
    provenance: dict[tuple[str, int], dict[int, tuple[Any, ...]]],
) -> None:
    names = [f.name for f in dataset.contract.fields]
    width = 1 + len(dataset.key) if dataset.existing == Existing.KEEP else 1 + len(names)
    # A key first, so that a prefix of the row is the tenant and the key.
    assert tuple(names[: len(dataset.key)]) == dataset.key
    query = sql.SQL("SELECT {} FROM public.{}").format(
        sql.SQL(", ").join(map(sql.Identifier, ["_tenant", *names, "_upload_id", "_record"])),
        sql.Identifier(dataset.name),
    )
    mine = [tuple(row.values()) for row in tortured.ask(query)]
    theirs = [tuple(row.values()) for row in clean.ask(query)]
    found.rows += len(mine)
    a, b = Counter(row[:width] for row in mine), Counter(row[:width] for row in theirs)
    if a != b:
        lost, more = (b - a).total(), (a - b).total()
        found.note(f"{dataset.name}: {lost} rows missing, {more} too many", lost=lost, doubled=more)
    created = Counter[str]()
    for job in ours.values():
        if job.upload.dataset == dataset.name:
            created[job.upload.tenant] += job.outcomes.created
    if +created != Counter(row[0] for row in mine):
        found.note(f"{dataset.name}: {created.total()} rows were created, {len(mine)} are there")
    strangers = sum(
        provenance.get((dataset.name, row[-2]), {}).get(row[-1]) != row[1:-2] for row in mine
    )
    if strangers:
        found.note(f"{dataset.name}: {strangers} rows are not the record that they name")
