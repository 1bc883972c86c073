"""Records that are cells already become chunks: for every format that is not CSV.

Here: the bounds of a record, the numbers, and a record as a line of CSV for those who mend it.
Not here: where cells come from.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from pocket_ingest.core.errors import Code
from pocket_ingest.core.reading.records import (
    MalformedRecord,
    ReadingLimits,
    RecordChunk,
)

KEPT_BYTES = 4_096
CELL_BYTES = 32
"""A cell's share of a chunk, besides its text: Python spends some fifty bytes on a text of one."""
Cells = Sequence[str | None]


def csv_line(cells: Cells) -> bytes:
    """Cells as a line of CSV: no value is a bare empty field, empty text a quoted one."""
    return ",".join(map(_field, cells)).encode("utf-8", "replace")


def _field(cell: str | None) -> str:
    if cell is None:
        return ""
    if cell and not any(char in cell for char in '",\r\n'):
        return cell
    return '"' + cell.replace('"', '""') + '"'


class RowChunks:
    """Collects records into chunks within the limits.

    Attributes:
        records_read: records that were added, sound or malformed.
    """

    def __init__(self, width: int, limits: ReadingLimits) -> None:
        self._schema = pa.schema([(str(n), pa.string()) for n in range(width)])
        self._limits = limits
        # A character takes four bytes at most.
        self._harmless = min(limits.max_record_bytes, limits.max_field_bytes) // 4
        self.records_read = 0
        self._begin()

    def add(self, cells: Cells, line: int, *, lines: int = 1) -> Iterator[RecordChunk]:
        """Add a record of as many cells as columns; gives the chunk that it fills, if it does."""
        text = "".join(filter(None, cells))
        suspicious = "\0" in text or len(text) > self._harmless or not text.isascii()
        if suspicious and (fault := self._fault(cells, text)) is not None:
            code, hint, field = fault
            raw = csv_line(cells)
            if code is Code.RECORD_TOO_LONG:
                raw = raw[:KEPT_BYTES]
            yield from self.refuse(line, code, hint, raw, lines=lines, field=field)
            return
        self.records_read += 1
        self._rows.append(cells)
        self._records.append(self.records_read)
        self._lines.append(line)
        self._size += len(text) + CELL_BYTES * len(cells)
        if self._is_full():
            yield self._finish()

    def add_columns(self, columns: Sequence[Cells], first_line: int) -> Iterator[RecordChunk]:
        """Add records of one line each, given by column; gives the chunks that they fill."""
        texts = ["".join(filter(None, column)) for column in columns]
        size, count = sum(map(len, texts)), len(columns[0])
        room = self._limits.chunk_records - (self.records_read + 1 - self._first)
        if (
            count > room
            or any("\0" in text or not text.isascii() for text in texts)
            or max(map(len, texts)) > self._harmless
        ):
            for line, cells in enumerate(zip(*columns, strict=True), start=first_line):
                yield from self.add(cells, line)
            return
        self._flush()
        for own, column in zip(self._columns, columns, strict=True):
            own.extend(column)
        self._records.extend(range(self.records_read + 1, self.records_read + count + 1))
        self._lines.extend(range(first_line, first_line + count))
        self.records_read += count
        self._size += size + CELL_BYTES * count * len(columns)
        if self._is_full():
            yield self._finish()

    def refuse(
        self,
        line: int,
        code: Code,
        hint: str,
        raw: bytes,
        *,
        lines: int = 1,
        field: int | None = None,
    ) -> Iterator[RecordChunk]:
        """Add a malformed record; gives the chunk that it fills, if it does."""
        self.records_read += 1
        self._malformed.append(
            MalformedRecord(
                record=self.records_read,
                line=line,
                lines=lines,
                code=code,
                hint=hint,
                raw=raw,
                field=field,
            )
        )
        self._size += len(raw)
        if self._is_full():
            yield self._finish()

    def rest(self) -> Iterator[RecordChunk]:
        """The last chunk, if anything is left."""
        if self._records or self._malformed:
            yield self._finish()

    def _begin(self) -> None:
        self._first = self.records_read + 1
        self._columns: list[list[str | None]] = [[] for _ in self._schema]
        self._rows: list[Cells] = []
        self._records: list[int] = []
        self._lines: list[int] = []
        self._malformed: list[MalformedRecord] = []
        self._size = 0

    def _is_full(self) -> bool:
        count = self.records_read + 1 - self._first
        return count >= self._limits.chunk_records or self._size >= self._limits.chunk_bytes

    def _fault(self, cells: Cells, text: str) -> tuple[Code, str, int | None] | None:
        limits = self._limits
        if "\0" in text:
            place = next(n for n, cell in enumerate(cells) if cell and "\0" in cell)
            hint = f"field {place + 1} holds a NUL, which cannot be stored as text"
            return Code.NUL_BYTE, hint, place
        if len(text) > self._harmless:
            sizes = [len(cell.encode("utf-8", "replace")) if cell else 0 for cell in cells]
            if sum(sizes) > limits.max_record_bytes:
                hint = f"the record is longer than {limits.max_record_bytes} bytes"
                return Code.RECORD_TOO_LONG, hint, None
            if max(sizes) > limits.max_field_bytes:
                place = sizes.index(max(sizes))
                hint = f"field {place + 1} is longer than {limits.max_field_bytes} bytes"
                return Code.FIELD_TOO_LONG, hint, place
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            return Code.INVALID_ENCODING, "the record holds half of a character", None
        return None

    def _flush(self) -> None:
        """Put the rows where the columns are."""
        for own, column in zip(self._columns, zip(*self._rows, strict=True), strict=False):
            own.extend(column)
        self._rows = []

    def _finish(self) -> RecordChunk:
        self._flush()
        batch = pa.RecordBatch.from_arrays(
            [pa.array(column, pa.string()) for column in self._columns], schema=self._schema
        )
        chunk = RecordChunk(
            first_record=self._first,
            last_record=self.records_read,
            columns=batch,
            records=np.array(self._records, np.int64),
            lines=np.array(self._lines, np.int64),
            malformed=tuple(self._malformed),
            raw=lambda row: csv_line([column[row].as_py() for column in batch.columns]),
        )
        self._begin()
        return chunk
