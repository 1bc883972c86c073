"""CSV texts for the reader's tests, and a second, slow opinion on what is in them."""

import csv
import io
import re
from dataclasses import dataclass, field

from hypothesis import strategies as st

from pocket_ingest.core.file_format import FileFormat
from pocket_ingest.core.reading import Expectation, Reading, ReadingLimits, open_table

LINE_END = re.compile(rb"\r\n|\r|\n")


class Trickle(io.RawIOBase):
    """A source that returns as many bytes as it pleases."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self._stream = io.BytesIO(data)
        self._sizes = sizes or [2**30]
        self._turn = 0

    def read(self, size: int = -1) -> bytes:
        self._turn += 1
        mine = self._sizes[self._turn % len(self._sizes)]
        return self._stream.read(mine if size < 0 else min(size, mine))


@dataclass
class Read:
    """Everything that a reading says, put together over its chunks."""

    names: tuple[str, ...]
    encoding: str
    rows: dict[int, tuple[str | None, ...]]
    lines: dict[int, int]
    raws: dict[int, bytes]
    malformed: list[tuple]
    faults: list[tuple[int, int, str]]
    account: tuple[int, int, int]
    total: int
    count: int
    # Where the chunks end: no part of what is read, so it does not count in a comparison.
    chunk_ends: list[int] = field(compare=False)


def declared(*, delimiter: str = ",", quote: str = '"', **others) -> Expectation:
    """Nothing is left to be found out: UTF-8, one header row first, no titles, no footers."""
    known = {
        "encoding": "utf-8",
        "escape": "",
        "comment": "",
        "header_rows": 1,
        "skip_lines": 0,
        "footer_lines": 0,
    }
    return Expectation(format=FileFormat(delimiter=delimiter, quote=quote, **{**known, **others}))


def read(
    data: bytes, *, sizes: list[int] | None = None, delimiter=",", quote='"', **limits
) -> Read:
    bounds = ReadingLimits(**limits)
    with open_table(
        lambda: Trickle(data, sizes or []),
        expectation=declared(delimiter=delimiter, quote=quote),
        limits=bounds,
    ) as reading:
        return collect(reading, bounds)


def collect(reading: Reading, limits: ReadingLimits) -> Read:
    rows, lines, raws, malformed, chunk_ends = {}, {}, {}, [], []
    expected = 1
    for chunk in reading:
        assert chunk.first_record == expected
        assert chunk.last_record - chunk.first_record < limits.chunk_records
        expected = chunk.last_record + 1
        chunk_ends.append(chunk.last_record)
        numbers = chunk.records.tolist()
        met = sorted(numbers + [bad.record for bad in chunk.malformed])
        assert met == list(range(chunk.first_record, chunk.last_record + 1))
        assert chunk.columns.num_rows == len(numbers) == len(chunk.lines)
        assert chunk.columns.schema.names == [str(i) for i in range(len(reading.header.names))]
        chunk.columns.validate(full=True)
        values = list(zip(*(column.to_pylist() for column in chunk.columns.columns), strict=True))
        for row, number in enumerate(numbers):
            rows[number] = values[row]
            lines[number] = int(chunk.lines[row])
            raws[number] = chunk.raw(row)
        malformed += [(m.record, m.line, m.lines, m.code, m.hint, m.raw) for m in chunk.malformed]
    assert reading.records_read == expected - 1
    account = reading.account
    return Read(
        names=reading.header.names,
        encoding=reading.found.encoding,
        rows=rows,
        lines=lines,
        raws=raws,
        malformed=malformed,
        faults=[(record, line, str(code)) for record, line, _, code, _, _ in malformed],
        account=(account.header_lines, account.record_lines, account.blank_lines),
        total=account.total,
        count=reading.records_read,
        chunk_ends=chunk_ends,
    )


def count_lines(data: bytes) -> int:
    """Physical lines, counted without the reader's code."""
    ends = list(LINE_END.finditer(data))
    tail = data[ends[-1].end() :] if ends else data
    return len(ends) + bool(tail)


VALUES = st.text(
    alphabet=st.one_of(
        st.sampled_from("ab1,;\"\n\r \t'é漢🙂\ufeff\u2028\x0b\x85"),
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    ),
    max_size=8,
)


@dataclass
class Table:
    """A table as a writer wrote it: the bytes, and where each record lies."""

    data: bytes
    header: list[str]
    rows: list[tuple[str | None, ...]]
    lines: list[int]
    line_counts: list[int]


def write_record(values, *, quoting=csv.QUOTE_MINIMAL, delimiter=",", end="\n") -> bytes:
    # Until Python 3.13 the writer quotes only those line ends that occur in its own terminator.
    out = io.StringIO()
    csv.writer(out, quoting=quoting, lineterminator="\r\n", delimiter=delimiter).writerow(values)
    return out.getvalue().removesuffix("\r\n").encode() + end.encode()


def lines_of(record: bytes) -> list[bytes]:
    return LINE_END.split(record)


def strict_width(line: bytes) -> int | None:
    """Fields of a line that is a record of its own by the strict csv module, or None."""
    text = line.decode()
    try:
        # One line must be one record, and none of it may still be open.
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error:
        return None
    return len(rows[0]) if len(rows) == 1 else None


def resembles_lines_of_records(record: bytes, width: int) -> bool:
    """Whether a genuine record could be taken for lines behind a stray quote.

    Coarser than the reader's own rule, so that no case near it gets into a test by chance.
    """
    lines = lines_of(record)
    return width > 1 and len(lines) > 2 and any(strict_width(x) == width for x in lines[1:-1])


@st.composite
def tables(draw, *, min_width: int = 1, max_width: int = 4) -> Table:
    width = draw(st.integers(min_width, max_width))
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]))
    ends = draw(st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=1, max_size=3))
    bare_empties = quoting == csv.QUOTE_MINIMAL
    header = [f"c{i}" for i in range(width)]
    data = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    data += write_record(header, quoting=quoting, end=ends[0])
    line = 2
    rows, lines, counts = [], [], []
    for number, values in enumerate(
        draw(st.lists(st.lists(VALUES, min_size=width, max_size=width), max_size=12))
    ):
        record = write_record(values, quoting=quoting, end="")
        if resembles_lines_of_records(record, width):
            continue
        end = ends[number % len(ends)].encode()
        # CR then LF would be one line end; the next record must not begin with LF, and none does.
        rows.append(tuple(None if bare_empties and width > 1 and not v else v for v in values))
        lines.append(line)
        counts.append(len(lines_of(record)))
        line += counts[-1]
        data += record + end
    return Table(data=data, header=header, rows=rows, lines=lines, line_counts=counts)
