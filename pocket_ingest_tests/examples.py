"""What several tests need: small datasets, the files for them, and jobs at a wanted stage."""

import csv
import hashlib
import io
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandera.polars as pa
import polars as pl
import psycopg
import pyarrow
from psycopg.rows import dict_row

from pocket_ingest.core.artifacts import RECORD, accepted_schema
from pocket_ingest.core.contract import Contract
from pocket_ingest.core.dataset import Dataset
from pocket_ingest.core.intake import take_in
from pocket_ingest.core.jobs import Claim, ImportJob, JobState, Stage
from pocket_ingest.core.ports import LoadBatch, NewUpload, PinnedObject
from pocket_ingest.core.process import Engine

_numbers = itertools.count(1)


def declare(
    columns: Mapping[str, Any],
    *,
    name: str = "things",
    key: tuple[str, ...] = ("id",),
    options: Mapping[str, Any] | None = None,
    checks: Mapping[str, Any] | None = None,
    **declaration: Any,
) -> Dataset:
    """A dataset.

    Args:
        columns: column name to type, as in a Pandera model.
        name: of the dataset.
        key: of the dataset.
        options: column name to ``Column``.
        checks: column name to ``pandera.Field(...)``; other names become methods of the model.
        declaration: further arguments of ``Dataset``.
    """
    body = {"__annotations__": dict(columns), "__module__": __name__, **(checks or {})}
    model = type("Model", (pa.DataFrameModel,), body)
    return Dataset(name=name, model=model, key=key, columns=dict(options or {}), **declaration)


def nullable(**checks: Any) -> Any:
    """A field that may have no value."""
    return pa.Field(nullable=True, **checks)


def write_csv(header: Sequence[str], rows: Iterable[Sequence[str | None]]) -> bytes:
    """A CSV file; None is a bare empty field and empty text a quoted one."""
    buffer = io.StringIO()
    # QUOTE_NOTNULL would say the same, from Python 3.12 on.
    for row in itertools.chain([header], rows):
        buffer.write(",".join("" if cell is None else quoted(cell) for cell in row) + "\n")
    return buffer.getvalue().encode()


def quoted(cell: str) -> str:
    """The cell in quotes where it needs them."""
    if cell and not any(c in cell for c in '",\r\n'):
        return cell
    return '"' + cell.replace('"', '""') + '"'


def read_csv_rows(content: bytes) -> list[list[str]]:
    """The rows of a CSV file as Python's own module reads them."""
    return list(csv.reader(io.StringIO(content.decode(), newline="")))


def send(
    engine: Engine, dataset: Dataset, content: bytes, *, tenant: str = "acme", name: str = "a.csv"
) -> ImportJob:
    """Put a file into the inbox of an engine's store and take it in."""
    key = f"inbox/{dataset.name}/{tenant}/{name}"
    path = Path(engine.store.address(key))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    found = engine.store.stat(key)
    return take_in(engine.store, engine.ledger, found, dataset=dataset, tenant=tenant).job


def new_upload(dataset: str = "things", **said: Any) -> NewUpload:
    """An upload that nobody has sent yet; its content is told apart by ``content``."""
    number = next(_numbers)
    content = str(said.pop("content", number)).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    name = said.pop("name", f"file-{number}.csv")
    tenant = said.pop("tenant", "acme")
    version = said.pop("version", f"v{number}")
    values = {
        "dataset": dataset,
        "tenant": tenant,
        "source_key": f"inbox/{dataset}/{tenant}/{name}",
        "pinned": PinnedObject(
            key=f"uploads/{dataset}/{tenant}/{sha256}",
            source_version=version,
            size_bytes=len(content),
            sha256=sha256,
        ),
        "file_name": name,
        "idempotency_key": None,
    }
    return NewUpload(**{**values, **said})


def register(engine: Engine, dataset: str = "things", **said: Any) -> ImportJob:
    """The job of a new upload of which the store knows nothing."""
    return engine.ledger.register(new_upload(dataset, **said)).job


def claim(engine: Engine, job: ImportJob, worker: str = "w", **said: Any) -> Claim:
    """Claim a job that is there to be claimed."""
    values = {"run_id": None, "lease_seconds": 60.0, "contract_version": "c1", **said}
    held = engine.ledger.claim(job.id, worker=worker, **values)
    assert held is not None, "the job was not there to be claimed"
    return held


def begin_loading(engine: Engine, job: ImportJob, *, records: int, **said: Any) -> Claim:
    """Claim a job and take it to where its batches are loaded."""
    held = claim(engine, job, **said)
    if Stage.VALIDATED not in engine.ledger.job(job.id).stages_done:
        engine.ledger.finish_stage(held, Stage.UPLOAD)
        engine.ledger.finish_stage(
            held, Stage.VALIDATED, records_read=records, contract_version="c1"
        )
    engine.ledger.enter(held, JobState.LOADING)
    return held


def finish(engine: Engine, held: Claim) -> ImportJob:
    """Take a job from loading to its end."""
    engine.ledger.finish_stage(held, Stage.LOADED)
    engine.ledger.enter(held, JobState.EXPORTING)
    engine.ledger.finish_stage(held, Stage.EXPORTS)
    return engine.ledger.succeed(held)


def batch_of(
    contract: Contract,
    rows: Sequence[Mapping[str, Any]],
    *,
    first: int = 1,
    rejected: int = 0,
    duplicate: int = 0,
) -> LoadBatch:
    """A batch of Python values, numbered from ``first``."""
    names = [field.name for field in contract.fields]
    frame = pl.DataFrame(
        {name: [row.get(name) for row in rows] for name in names},
        schema={field.name: field.dtype for field in contract.fields},
    )
    numbers = pl.Series(RECORD, range(first, first + len(rows)), dtype=pl.Int64)
    table: pyarrow.Table = (
        frame.insert_column(0, numbers)
        .to_arrow(compat_level=pl.CompatLevel.oldest())
        .cast(accepted_schema(contract))
    )
    return LoadBatch(
        first_record=first,
        last_record=first + len(rows) + rejected + duplicate - 1,
        rows=table,
        rejected=rejected,
        duplicate=duplicate,
    )


def ask(url: str, query: Any, *values: Any) -> list[dict[str, Any]]:
    """Rows of a query on a connection of its own."""
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        cursor = connection.execute(query, values or None)
        return cursor.fetchall() if cursor.description else []
