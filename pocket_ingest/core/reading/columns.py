"""The values of a chunk's records: from split bytes to Arrow columns of text.

Here: everything that is judged per record once its borders are known (NUL, UTF-8, the number of
fields), and the call of Arrow's own parser, which gets proven records only. Not here: where a
record begins and ends.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from pocket_ingest.core.errors import Code
from pocket_ingest.core.reading.grammar import CR, LF, Grammar
from pocket_ingest.core.reading.records import Positions
from pocket_ingest.core.reading.resync import field_count_hint
from pocket_ingest.core.reading.transcription import Transcript

BOM = b"\xef\xbb\xbf"
LAST_ASCII = 0x7F

Faults = dict[int, tuple[Code, str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Records:
    """Split records, as int64 arrays of equal length. Offsets are those of the bytes they lie in.

    Attributes:
        starts: offset of each record's first byte.
        ends: one past its last byte.
        nexts: one past its line terminator.
        lines: physical line where it begins.
        numbers: its record number.
    """

    starts: Positions
    ends: Positions
    nexts: Positions
    lines: Positions
    numbers: Positions

    def __len__(self) -> int:
        return len(self.starts)


def unreadable(data: bytes, records: Records, transcript: Transcript) -> Faults:
    """Records with a NUL byte or with bytes that are no text, by their index."""
    if not len(records):
        return {}
    start, end = int(records.starts[0]), int(records.ends[-1])
    faults: Faults = {}
    block = np.frombuffer(data, dtype=np.uint8, count=end - start, offset=start)
    if not _is_utf8(data, start, end):
        for index in _records_of(np.flatnonzero(block > LAST_ASCII) + start, records):
            begin = int(records.starts[index])
            try:
                data[begin : int(records.ends[index])].decode()
            except UnicodeDecodeError as error:
                hint = _undecodable(data, begin, error.start, transcript)
                faults[index] = Code.INVALID_ENCODING, hint
    if data.find(b"\0", start, end) >= 0:
        for index in _records_of(np.flatnonzero(block == 0) + start, records):
            begin = int(records.starts[index])
            offset = len(transcript.original(data[begin : data.index(b"\0", begin)]))
            hint = f"a NUL byte at offset {offset} of the record cannot be stored as text"
            faults[index] = Code.NUL_BYTE, hint
    return faults


def _undecodable(data: bytes, begin: int, offset: int, transcript: Transcript) -> str:
    """The sentence for bytes that are no text, with their place in the file's own record."""
    place = len(transcript.original(data[begin : begin + offset]))
    at = begin + offset
    # A byte that could not be decoded arrives as the three bytes of a lone surrogate.
    size = 3 if not transcript.is_utf8 else 1
    byte = transcript.original(data[at : at + size])[0]
    name = "UTF-8" if transcript.is_utf8 else transcript.encoding
    return f"byte 0x{byte:02X} at offset {place} of the record is not {name}"


def without_long_fields(
    columns: pa.RecordBatch, indexes: Positions, records: Records, *, most: int
) -> tuple[pa.RecordBatch, Faults]:
    """The rows whose fields are short enough, and the others by their index in ``records``."""
    if not len(indexes) or int((records.ends - records.starts)[indexes].max()) <= most:
        return columns, {}
    faults: Faults = {}
    long = np.zeros(columns.num_rows, dtype=bool)
    for position, column in enumerate(columns.columns):
        lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(lengths > most).tolist():
            hint = f"field {position + 1} is longer than {most} bytes"
            faults.setdefault(int(indexes[row]), (Code.FIELD_TOO_LONG, hint))
            long[row] = True
    return columns.filter(pa.array(~long)), faults


def parse(
    data: bytes, records: Records, kept: npt.NDArray[np.bool_], *, grammar: Grammar, columns: int
) -> tuple[pa.RecordBatch, Faults]:
    """Parse the kept records.

    Returns:
        One text column per field, named by position, of the kept records that have ``columns``
        fields; and the kept records that have not, by their index in ``records``.
    """
    names = [str(position) for position in range(columns)]
    schema = pa.schema([(name, pa.string()) for name in names])
    chosen = np.flatnonzero(kept)
    if not len(chosen):
        return pa.RecordBatch.from_pylist([], schema=schema), {}
    text = _joined(data, records, chosen)
    faults: Faults = {}

    def note_field_count(row: pyarrow.csv.InvalidRow) -> str:
        index = int(chosen[row.number - 1])
        faults[index] = Code.FIELD_COUNT, field_count_hint(row.actual_columns, columns)
        return "skip"

    table = pyarrow.csv.read_csv(
        pa.BufferReader(text),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, block_size=len(text) + 1, column_names=names
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=grammar.delimiter.decode(),
            quote_char=grammar.quote.decode() or False,
            newlines_in_values=True,
            # An empty line is a record in a file of one column only.
            ignore_empty_lines=columns > 1,
            invalid_row_handler=note_field_count,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            check_utf8=False,
            column_types=schema,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
    if len(table) + len(faults) != len(chosen):
        raise AssertionError(
            f"split {len(chosen)} records, but parsed {len(table)} and refused {len(faults)}"
        )
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema), faults


def _is_utf8(data: bytes, start: int, end: int) -> bool:
    """Whether the bytes are UTF-8, by Arrow's validation: without a copy, unlike decoding."""
    offsets = pa.py_buffer(np.array([0, end - start], dtype=np.int64))
    text = pa.py_buffer(memoryview(data)[start:end])
    try:
        pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, text]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _records_of(positions: Positions, records: Records) -> Iterator[int]:
    """Indexes of the records that hold any of the sorted byte positions."""
    owners = np.searchsorted(records.starts, positions, side="right") - 1
    within = positions < records.ends[owners]
    yield from np.unique(owners[within]).tolist()


def _joined(data: bytes, records: Records, chosen: Positions) -> pa.Buffer:
    """The bytes of the chosen records with their terminators, shared where they are one run."""
    starts, nexts = records.starts[chosen], records.nexts[chosen]
    gaps = np.flatnonzero(starts[1:] != nexts[:-1]) + 1
    runs = zip(
        starts[np.concatenate(([0], gaps))].tolist(),
        nexts[np.concatenate((gaps - 1, [-1]))].tolist(),
        strict=True,
    )
    view = memoryview(data)
    parts: list[memoryview] = []
    for start, end in runs:
        if parts and parts[-1][-1] == CR and view[start] == LF:
            # Two terminators that a broken record kept apart must not become one.
            parts.append(memoryview(b"\n"))
        parts.append(view[start:end])
    if parts[-1][-1] not in (CR, LF):
        # Arrow 26 reads a bare empty field at the very end as quoted if a field before it was.
        parts.append(memoryview(b"\n"))
    # Arrow takes a BOM at the beginning for its own to drop.
    if bytes(parts[0][:3]) == BOM:
        parts.insert(0, memoryview(BOM))
    return pa.py_buffer(parts[0] if len(parts) == 1 else b"".join(parts))
