"""What was read of a file, written again as plain CSV: UTF-8, commas, LF, quotes where needed.

Here: one line for each record, in the file's order, text unchanged. A record that cannot be read
is written as well as its fields can be told apart, so that none is missing; who asks for the
output is told of each.
Not here: the file's own dialect, which rejects are written in (artifacts.py).
"""

import csv
import io
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pocket_ingest.core.reading import Header, Reading, RecordChunk

SPECIAL = '[",\r\n]'


class NormalizedWriter:
    """Writes records as plain CSV."""

    def __init__(self, target: BinaryIO, header: Header) -> None:
        """Write the header rows as they are; made-up names where the file has none."""
        self._target = target
        for row in header.rows or (header.names,):
            target.write(_line(row))

    def write(self, chunk: RecordChunk, reading: Reading) -> None:
        """Append a chunk's records in their order."""
        lines = _lines(chunk.columns)
        passed = 0
        for record in chunk.malformed:
            row = int(np.searchsorted(chunk.records, record.record))
            self._target.write(_text(lines[passed:row]))
            self._target.write(_line(reading.split(record)))
            passed = row
        self._target.write(_text(lines[passed:]))


def _line(cells: Sequence[str]) -> bytes:
    target = io.StringIO()
    csv.writer(target, lineterminator="\n").writerow(cells)
    return target.getvalue().encode("utf-8", "replace")


def _lines(columns: pa.RecordBatch) -> pa.Array:
    """The rows of a chunk as one text each, with the line end."""
    cells = [_cells(column) for column in columns.columns]
    if len(cells) == 1:
        # A bare line would be taken for no record at all.
        cells = [pc.if_else(pc.equal(cells[0], ""), '""', cells[0])]
    joined = pc.binary_join_element_wise(*cells, ",") if len(cells) > 1 else cells[0]
    return pc.binary_join_element_wise(joined, "", "\n")


def _cells(column: pa.Array) -> pa.Array:
    """The cells in quotes where they need them; empty text in quotes, no value without."""
    quoted = pc.or_(pc.match_substring_regex(column, SPECIAL), pc.equal(column, ""))
    if pc.any(quoted).as_py():
        doubled = pc.replace_substring(column, '"', '""')
        column = pc.if_else(quoted, pc.binary_join_element_wise('"', doubled, '"', ""), column)
    return pc.fill_null(column, "")


def _text(lines: pa.Array) -> memoryview:
    """The texts of an array, one behind the other."""
    if not len(lines):
        return memoryview(b"")
    _, offsets, text = lines.buffers()
    ends = np.frombuffer(offsets, np.int32)
    start, end = ends[lines.offset], ends[lines.offset + len(lines)]
    return memoryview(text)[start:end]
