"""The files that a job publishes: their names, their keys and how they are written.

Here: accepted.parquet, rejects.csv, errors.parquet, duplicates.parquet and the export files, each
written to a local folder first and published whole.
Not here: what goes into them (validation.py, exporting.py) or the store (adapters).
"""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pocket_ingest.core.contract import Contract
from pocket_ingest.core.failures import Reason, Refused
from pocket_ingest.core.jobs import Claim, ImportJob
from pocket_ingest.core.ports import Store
from pocket_ingest.core.reading import Found

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
    """Writes errors.parquet: a row for each listed error; ``field`` is empty for a whole record.

    Fields, codes and hints are handed over as dictionaries and read back as plain text.
    """

    def __init__(self, path: Path) -> None:
        self._schema = pa.schema(
            pa.field(f.name, _dictionary_of(f.type), nullable=False) for f in ERRORS_SCHEMA
        )
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd", store_schema=False)

    def write(self, refused: Refused) -> None:
        """Append the errors of some records."""
        if len(refused.owners):
            columns = [
                pa.array(refused.records[refused.owners]),
                pa.array(refused.lines[refused.owners]),
                *(_chosen(texts, refused.kinds) for texts in zip(*refused.reasons, strict=True)),
            ]
            self._writer.write_table(pa.table(columns, schema=self._schema))

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()


def _dictionary_of(kind: pa.DataType) -> pa.DataType:
    return pa.dictionary(pa.int32(), kind) if pa.types.is_string(kind) else kind


def _chosen(texts: Sequence[str], kinds: np.ndarray) -> pa.DictionaryArray:
    """``texts[kind]`` for each kind. Parquet takes dictionaries only if no entry is there twice."""
    distinct = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    places = np.array([distinct[text] for text in texts], np.int32)
    return pa.DictionaryArray.from_arrays(
        pa.array(places[kinds]), pa.array(map(str, distinct), pa.string())
    )


REJECT_COLUMNS = ("_record", "_line", "_codes", "_hint")


class RejectsWriter:
    """Writes rejects.csv: the refused records in the file's own bytes, behind four columns.

    The leading columns say which record it is and what is wrong with it; what follows them is the
    record's original text in the file's own encoding and dialect, untouched, so that a person
    fixes it where it is wrong. Of a file that is not CSV, the text is a line of CSV.
    """

    def __init__(self, path: Path, *, header: bytes, found: Found) -> None:
        self._file = path.open("wb")
        is_csv = found.format == "csv"
        self._codec = found.encoding if is_csv else "utf-8"
        self._delimiter = found.delimiter or ","
        self._quote = found.quote if is_csv else '"'
        self._end = self._encoded("\n")
        between = self._encoded(self._delimiter)
        if self._codec.startswith(("utf-16", "utf-32")):
            self._file.write(self._encoded("\N{BYTE ORDER MARK}"))
        self._file.write(between.join([*map(self._encoded, REJECT_COLUMNS), header]) + self._end)

    def write(self, refused: Refused) -> None:
        """Append some records."""
        ends = np.searchsorted(refused.owners, np.arange(len(refused.records)), side="right")
        # Records that fail in the same way say the same; most files have few ways.
        said: dict[tuple[int, ...], str] = {}
        kinds = refused.kinds.tolist()
        start, between = 0, self._delimiter
        for record, line, end, raw in zip(
            refused.records.tolist(),
            refused.lines.tolist(),
            ends.tolist(),
            refused.raws,
            strict=True,
        ):
            mine = tuple(kinds[start:end])
            start = end
            cells = said.get(mine)
            if cells is None:
                cells = said[mine] = self._say([refused.reasons[kind] for kind in mine])
            leading = f"{record}{between}{line}{between}{cells}{between}"
            self._file.write(self._encoded(leading) + raw + self._end)

    def _say(self, reasons: Sequence[Reason]) -> str:
        """The cells of codes and hint."""
        codes = " ".join(dict.fromkeys(code for _, code, _ in reasons))
        hint = "; ".join(f"{name} {hint}" if name else hint for name, _, hint in reasons)
        if self._quote:
            hint = f"{self._quote}{hint.replace(self._quote, self._quote * 2)}{self._quote}"
        else:
            hint = hint.replace(self._delimiter, " ")
        return f"{codes}{self._delimiter}{hint}"

    def _encoded(self, text: str) -> bytes:
        # A hint may name a field with letters that the file's encoding does not have.
        return text.encode("utf-8" if self._codec == "utf-8-sig" else self._codec, "replace")

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


def write_duplicates(path: Path, pieces: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
    """Write duplicates.parquet: the records that lost against another one with the same key.

    Args:
        path: of the file.
        pieces: records and their winners, ascending by record within and across pieces.
    """
    with pq.ParquetWriter(path, DUPLICATES_SCHEMA) as writer:
        for records, winners in pieces:
            columns = [pa.array(records), pa.array(winners)]
            writer.write_table(pa.table(columns, schema=DUPLICATES_SCHEMA))


class DuplicatesFile:
    """duplicates.parquet, open for asking which records of a range lost.

    One row group is held at a time: who asks in ascending order reads each of them once.
    """

    def __init__(self, source: BinaryIO) -> None:
        self._file = pq.ParquetFile(source)
        metadata = self._file.metadata
        groups = [
            metadata.row_group(n).column(0).statistics for n in range(metadata.num_row_groups)
        ]
        self._firsts = np.array([group.min for group in groups], np.int64)
        self._lasts = np.array([group.max for group in groups], np.int64)
        self._held = -1, np.empty(0, np.int64)

    def records(self, first: int, last: int) -> np.ndarray:
        """The records from ``first`` to ``last`` that lost, ascending."""
        groups = np.flatnonzero((self._firsts <= last) & (self._lasts >= first))
        found = [np.empty(0, np.int64)]
        for group in groups.tolist():
            records = self._group(group)
            start, end = np.searchsorted(records, [first, last + 1])
            found.append(records[start:end])
        return np.concatenate(found)

    def _group(self, group: int) -> np.ndarray:
        if self._held[0] != group:
            table = self._file.read_row_group(group, columns=["record"])
            self._held = group, table["record"].to_numpy()
        return self._held[1]
