"""What a CSV writer wrote comes back as it was, however the bytes arrive."""

import csv
import io

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pocket_ingest_tests.unit.reading.csv_texts import LINE_END, Table, count_lines, read, tables

SIZES = st.lists(st.integers(1, 40), max_size=4)


@settings(max_examples=400, deadline=None)
@given(tables(), st.booleans(), SIZES, st.integers(1, 300), st.integers(1, 5))
def test_reads_back_what_was_written(table, cut_last_end, sizes, chunk_bytes, chunk_records):
    data = table.data
    if cut_last_end and table.rows:
        data = LINE_END.sub(lambda m: b"" if m.end() == len(data) else m[0], data)
    found = read(data, sizes=sizes, chunk_bytes=chunk_bytes, chunk_records=chunk_records)
    assert found.names == tuple(table.header)
    assert found.encoding == ("utf-8-sig" if data.startswith(b"\xef\xbb\xbf") else "utf-8")
    assert found.malformed == []
    assert found.rows == dict(enumerate(table.rows, start=1))
    assert found.lines == dict(enumerate(table.lines, start=1))
    assert found.count == len(table.rows)
    assert found.total == count_lines(data)
    assert found.account == (1, sum(table.line_counts), 0)
    assert rebuilt(data, found) == data


def rebuilt(data: bytes, found) -> bytes:
    """The file from its raw records, with the terminators that stand behind them."""
    position = LINE_END.search(data).end() if LINE_END.search(data) else len(data)
    out = data[:position]
    for number in range(1, found.count + 1):
        out += found.raws[number]
        end = LINE_END.match(data, len(out))
        out += end[0] if end else b""
    return out


ODD_BYTES = st.lists(
    st.sampled_from(
        [
            b"a",
            b"1",
            b",",
            b",",
            b'"',
            b'"',
            b"\n",
            b"\n",
            b"\r",
            b"\r\n",
            b"\0",
            b"\xe9",
            "é".encode(),
        ]
    ),
    max_size=60,
).map(b"".join)


@settings(max_examples=1500, deadline=None)
@given(
    st.sampled_from([b"a,b\n", b"a\n", b"a,b,c\r\n"]),
    ODD_BYTES,
    SIZES,
    st.integers(1, 60),
    st.integers(1, 4),
    st.sampled_from([5, 12, 1000]),
)
@example(b"a\n", b"\n\n\nx\n\n", [1], 1, 1, 5)
def test_any_bytes_read_alike_in_any_pieces(
    header, body, sizes, chunk_bytes, chunk_records, max_record_bytes
):
    data = header + body
    whole = read(data, max_record_bytes=max_record_bytes)
    pieces = read(
        data,
        sizes=sizes,
        chunk_bytes=chunk_bytes,
        chunk_records=chunk_records,
        max_record_bytes=max_record_bytes,
    )
    assert pieces == whole
    again = read(
        data,
        chunk_bytes=chunk_bytes,
        chunk_records=chunk_records,
        max_record_bytes=max_record_bytes,
    )
    assert again.chunk_ends == pieces.chunk_ends
    assert whole.total == count_lines(data)
    assert whole.count == len(whole.rows) + len(whole.malformed)
    spans = [(line, len(LINE_END.split(whole.raws[n]))) for n, line in whole.lines.items()]
    spans += [(line, lines) for _, line, lines, _, _, _ in whole.malformed]
    following = 2
    blank = 0
    for line, lines in sorted(spans):
        assert line >= following
        blank += line - following
        following = line + lines
    blank += whole.total + 1 - following
    assert whole.account == (1, sum(lines for _, lines in spans), blank)


@settings(max_examples=1500, deadline=None)
@given(ODD_BYTES, st.integers(1, 60))
def test_where_nothing_is_refused_the_csv_module_agrees(body, chunk_bytes):
    data = b"a,b\n" + body
    found = read(data, chunk_bytes=chunk_bytes)
    # A third, empty field of most records makes a third column.
    if not found.malformed and len(found.names) == 2:
        text = io.StringIO(data.decode(), newline="")
        expected = [tuple(row) for row in csv.reader(text, strict=True) if row]
        rows = [tuple(value or "" for value in row) for row in found.rows.values()]
        assert [found.names, *rows] == expected


@settings(max_examples=100, deadline=None)
@given(tables(min_width=2))
def test_other_delimiter_and_quote(table: Table):
    swap = bytes.maketrans(b",\"|'", b"|',\"")
    data = table.data.translate(swap)
    found = read(data, delimiter="|", quote="'")
    back = str.maketrans(",\"|'", "|',\"")
    rows = [tuple(v and v.translate(back) for v in row) for row in table.rows]
    assert found.rows == dict(enumerate(rows, start=1))
