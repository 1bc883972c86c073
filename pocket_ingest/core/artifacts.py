"""The files that a job publishes: their names, their keys and how they are written.

Here: accepted.parquet, rejects.csv, errors.parquet, duplicates.parquet and the export files, each
written to a local folder first and published whole.
Not here: what goes into them (validation.py, exporting.py) or the store (adapters).
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pocket_ingest.core.contract import Contract
from pocket_ingest.core.errors import Code
from pocket_ingest.core.jobs import Claim, ImportJob
from pocket_ingest.core.ports import Store

ACCEPTED = "accepted.parquet"
REJECTS = "rejects.csv"
ERRORS = "errors.parquet"
DUPLICATES = "duplicates.parquet"
VALIDATION = (ACCEPTED, REJECTS, ERRORS, DUPLICATES)
EXPORT_CSV = "export.csv"
EXPORT_PARQUET = "export.parquet"

RECORD = "_record"
PLAN = b"pocket_ingest.plan"

ERRORS_SCHEMA = pa.schema(
    [
        pa.field("record", pa.int64(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
        pa.field("field", pa.string(), nullable=False),
        pa.field("code", pa.string(), nullable=False),
        pa.field("hint", pa.string(), nullable=False),
    ]
)
DUPLICATES_SCHEMA = pa.schema(
    [
        pa.field("record", pa.int64(), nullable=False),
        pa.field("winner", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, kw_only=True)
class RecordError:
    """Why one record was refused: one row of errors.parquet. ``field`` is empty for a whole one."""

    record: int
    line: int
    field: str
    code: Code
    hint: str


@dataclass(frozen=True, kw_only=True)
class PlannedBatch:
    """A run of records that will commit at once; ``accepted`` of them are a row group."""

    first_record: int
    last_record: int
    accepted: int
    rejected: int


def artifact_key(job: ImportJob, claim: Claim, name: str) -> str:
    """Where an artifact goes.

    The claim's token in it keeps a worker that came back from the dead off its successor's files.
    """
    upload = job.upload
    return f"artifacts/{upload.dataset}/{upload.partition_key}/{claim.token}/{name}"


@contextmanager
def scratch(folder: Path | None) -> Iterator[Path]:
    """A private folder for files that are not whole yet, gone at the end."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pocket-", dir=folder) as path:
        yield Path(path)


def publish(
    store: Store, job: ImportJob, claim: Claim, files: Mapping[str, Path]
) -> dict[str, str]:
    """Publish finished files; returns artifact name to key, for the ledger to commit last."""
    keys = {}
    for name, path in files.items():
        keys[name] = artifact_key(job, claim, name)
        store.publish(path, key=keys[name])
    return keys


def accepted_schema(contract: Contract) -> pa.Schema:
    """Arrow schema of accepted.parquet: the record number, then the contract's fields."""
    empty = pl.DataFrame(schema={f.name: f.dtype for f in contract.fields}).to_arrow(
        compat_level=pl.CompatLevel.oldest()
    )
    fields = [
        pa.field(f.name, empty.schema.field(f.name).type, nullable=f.accepts_null)
        for f in contract.fields
    ]
    return pa.schema([pa.field(RECORD, pa.int64(), nullable=False), *fields])


class AcceptedWriter:
    """Writes accepted.parquet, one row group a batch, and its plan into the footer."""

    def __init__(self, path: Path, contract: Contract) -> None:
        self._schema = accepted_schema(contract)
        # lz4 costs a third of zstd's time here and the file is read once, by the loader.
        self._writer = pq.ParquetWriter(path, self._schema, compression="lz4")
        self._plan: list[PlannedBatch] = []

    def write(self, rows: pl.DataFrame, batch: PlannedBatch) -> None:
        """Append a batch: its accepted rows (with the record number) and its place in the plan."""
        if rows.height:
            table = rows.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(self._schema)
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._plan.append(batch)

    def close(self) -> None:
        """Finish the file."""
        plan = json.dumps([list(asdict(batch).values()) for batch in self._plan])
        self._writer.add_key_value_metadata({PLAN.decode(): plan})
        self._writer.close()


@dataclass(frozen=True, kw_only=True)
class AcceptedFile:
    """accepted.parquet, open for reading batch by batch."""

    file: pq.ParquetFile
    plan: Sequence[PlannedBatch]

    @classmethod
    def open(cls, source: BinaryIO) -> "AcceptedFile":
        """Open a published file."""
        file = pq.ParquetFile(source)
        rows = json.loads(file.metadata.metadata[PLAN])
        names = ("first_record", "last_record", "accepted", "rejected")
        return cls(
            file=file,
            plan=tuple(PlannedBatch(**dict(zip(names, row, strict=True))) for row in rows),
        )

    def batches(
        self, columns: list[str] | None = None, *, wanted: Any = None
    ) -> Iterator[tuple[PlannedBatch, pa.Table]]:
        """Each planned batch with its rows; ``wanted(batch)`` false skips it unread."""
        group = 0
        for batch in self.plan:
            mine, group = group, group + (1 if batch.accepted else 0)
            if wanted is not None and not wanted(batch):
                continue
            if batch.accepted:
                yield batch, self.file.read_row_group(mine, columns=columns)
            else:
                yield batch, self.file.schema_arrow.empty_table()


class ErrorsWriter:
    """Writes errors.parquet."""

    def __init__(self, path: Path) -> None:
        self._writer = pq.ParquetWriter(path, ERRORS_SCHEMA, compression="zstd")

    def write(self, errors: Sequence[RecordError]) -> None:
        """Append a chunk's errors."""
        if errors:
            columns = [[getattr(e, name) for e in errors] for name in ERRORS_SCHEMA.names]
            self._writer.write_table(
                pa.table(
                    [pa.array(c, t) for c, t in zip(columns, ERRORS_SCHEMA.types, strict=True)],
                    schema=ERRORS_SCHEMA,
                )
            )

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()


REJECT_COLUMNS = ("_record", "_line", "_codes", "_hint")


class RejectsWriter:
    """Writes rejects.csv: the refused records in the file's own bytes, behind four columns.

    The leading columns say which record it is and what is wrong with it; what follows them is the
    record's original text, untouched, so that a person fixes it where it is wrong.
    """

    def __init__(self, path: Path, *, header: bytes, delimiter: bytes) -> None:
        self._file = path.open("wb")
        self._delimiter = delimiter
        self._write([c.encode() for c in REJECT_COLUMNS], header)

    def write(self, record: int, line: int, errors: Sequence[RecordError], raw: bytes) -> None:
        """Append one rejected record."""
        codes = " ".join(dict.fromkeys(str(e.code) for e in errors))
        hint = "; ".join(f"{e.field} {e.hint}" if e.field else e.hint for e in errors)
        quoted = '"' + hint.replace('"', '""') + '"'
        self._write(
            [str(record).encode(), str(line).encode(), codes.encode(), quoted.encode()], raw
        )

    def _write(self, cells: list[bytes], raw: bytes) -> None:
        self._file.write(self._delimiter.join([*cells, raw]) + b"\n")

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


def write_duplicates(path: Path, records: pa.Array, winners: pa.Array) -> None:
    """Write duplicates.parquet: the records that lost against another one with the same key."""
    pq.write_table(pa.table([records, winners], schema=DUPLICATES_SCHEMA), path)
