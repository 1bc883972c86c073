"""Parquet: typed columns, spelled as text that the contract reads back.

Texts are as they are, also in dictionaries; lists, structs and maps become JSON text; timestamps
finer than a microsecond keep all their digits.

Here: columns of a batch. Not here: how a single value is spelled (cells.py).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.reading.cells import spell
from pocket_ingest.core.reading.expectation import CellForm, Expectation
from pocket_ingest.core.reading.records import (
    Found,
    Header,
    LineAccount,
    MalformedRecord,
    ReadingLimits,
    RecordChunk,
)
from pocket_ingest.core.reading.rows import RowChunks, csv_line

BUFFER_BYTES = 2**20
MOST_ROWS = 10_000
"""Rows that are decoded at once; a row of a hundred columns takes some 10 KB as Python's values."""
Texts = list[str | None]


class ParquetReading:
    """A Parquet file, opened; fulfils ``Reading``."""

    def __init__(
        self, file: pq.ParquetFile, *, expectation: Expectation, limits: ReadingLimits
    ) -> None:
        self._file = file
        names = tuple(file.schema_arrow.names)
        self._forms = expectation.forms(names)
        self._chunks = RowChunks(len(names), limits)
        self._rows = max(1, min(MOST_ROWS, limits.chunk_records))
        self._started = False
        self.header = Header(names=names, line=0, raw=csv_line(names))
        self.found = Found(format="parquet")

    @property
    def records_read(self) -> int:
        """Records met so far."""
        return self._chunks.records_read

    @property
    def account(self) -> LineAccount:
        """The rows read so far; a Parquet file has no lines."""
        return LineAccount(record_lines=self._chunks.records_read)

    def __iter__(self) -> Iterator[RecordChunk]:
        if self._started:
            raise RuntimeError("a reading is iterable once; open the file again")
        self._started = True
        return self._walk()

    def split(self, record: MalformedRecord) -> tuple[str, ...]:
        """What is left of a malformed record."""
        return (record.raw.decode("utf-8", "replace"),)

    def _walk(self) -> Iterator[RecordChunk]:
        batches = self._file.iter_batches(batch_size=self._rows, use_threads=False)
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError) as error:
                raise _unreadable() from error
            if batch is None:
                break
            columns = [
                _texts(column, form)
                for column, form in zip(batch.columns, self._forms, strict=True)
            ]
            for row in zip(*columns, strict=True):
                yield from self._add(row)
        yield from self._chunks.rest()

    def _add(self, row: "tuple[str | _NoText | None, ...]") -> Iterator[RecordChunk]:
        line = self._chunks.records_read + 1
        for place, cell in enumerate(row):
            if isinstance(cell, _NoText):
                cells = [None if isinstance(one, _NoText) else one for one in row]
                hint = f"the bytes of field {place + 1} are not UTF-8"
                yield from self._chunks.refuse(
                    line, Code.INVALID_ENCODING, hint, csv_line(cells), field=place
                )
                return
        yield from self._chunks.add(row, line)  # type: ignore[arg-type]


def open_parquet(
    source: BinaryIO, *, expectation: Expectation, limits: ReadingLimits
) -> ParquetReading:
    """Open a Parquet file for one walk through its records.

    Args:
        source: seekable.
        expectation: the contract's columns, if there is one.
        limits: bounds.

    Raises:
        PermanentError: parquet_unreadable, too_many_columns.
    """
    source.seek(0)
    try:
        # Without these two, a whole row group is read at once.
        file = pq.ParquetFile(source, buffer_size=BUFFER_BYTES, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable() from error
    if len(file.schema_arrow) > limits.max_columns:
        raise PermanentError(
            Code.TOO_MANY_COLUMNS,
            f"The file has {len(file.schema_arrow)} columns; at most {limits.max_columns} are "
            "read.",
        )
    return ParquetReading(file, expectation=expectation, limits=limits)


def _unreadable() -> PermanentError:
    return PermanentError(
        Code.PARQUET_UNREADABLE,
        "The Parquet file is damaged, cut off or encrypted. Write it again and send it.",
    )


@dataclass(frozen=True, slots=True)
class _NoText:
    """A cell of bytes that are no text."""


def _texts(column: pa.Array, form: CellForm) -> "list[str | _NoText | None]":
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if _is_text(kind):
        found: list[str | _NoText | None] = column.to_pylist()
        return found
    if _is_binary(kind):
        return [None if value is None else _decoded(value) for value in column.to_pylist()]
    if pa.types.is_nested(kind):
        return [None if value is None else _nested(value) for value in column.to_pylist()]
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return _fine_instants(column)
    if pa.types.is_time64(kind) or pa.types.is_duration(kind):
        return [*pc.cast(column, pa.string()).to_pylist()]
    return [spell(value, form) for value in column.to_pylist()]


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _decoded(value: bytes) -> str | _NoText:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _NoText()


def _nested(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":"))


def _fine_instants(column: pa.Array) -> "list[str | _NoText | None]":
    """Timestamps of nanoseconds, which Python's own type would cut off."""
    zone = "+00:00" if column.type.tz else ""
    plain = pc.cast(pc.cast(column, pa.timestamp("ns")), pa.string()).to_pylist()
    return [None if text is None else text.replace(" ", "T") + zone for text in plain]
