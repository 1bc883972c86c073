"""A fault costs its own record, with its number, line and code, and no other."""

import csv

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocket_ingest_tests.unit.reading.csv_texts import count_lines, read, write_record

COUNT = 24
LIMITS = {"max_record_bytes": 256}

FAULTS = {
    "too few fields": ("field_count", lambda r: r.rsplit(b",", 1)[0]),
    "too many fields": ("field_count", lambda r: r + b",more"),
    "text after a quoted field": ("text_after_quote", lambda r: b'"ab"c,' + r.split(b",", 1)[1]),
    "text after an empty quoted field": (
        "text_after_quote",
        lambda r: r.rsplit(b",", 1)[0] + b',""x',
    ),
    "quotes inside a quoted field": (
        "text_after_quote",
        lambda r: r.rsplit(b",", 1)[0] + b',"say "hi" twice"',
    ),
    "open quote in the first field": ("unterminated_quote", lambda r: b'"' + r),
    "open quote in the middle": ("unterminated_quote", lambda r: r.replace(b",", b',"', 1)),
    "open quote in the last field": (
        "unterminated_quote",
        lambda r: r.rsplit(b",", 1)[0] + b',"abc',
    ),
    "a single quote at the end": ("unterminated_quote", lambda r: r.rsplit(b",", 1)[0] + b',"'),
    "closed by the next field's quote": (
        "unterminated_quote",
        lambda r: r.split(b",", 1)[0] + b',"word,"x"',
    ),
    "nul": ("nul_byte", lambda r: r + b"\0"),
    "latin-1": ("invalid_encoding", lambda r: r + b"\xe9"),
    "cut utf-8": ("invalid_encoding", lambda r: r + "é".encode()[:1]),
    "surrogate": ("invalid_encoding", lambda r: r + b"\xed\xa0\x80"),
    "too long": ("record_too_long", lambda r: r + b"z" * 300),
    "too long in quotes": ("record_too_long", lambda r: r[:-1] + b',"' + b"z" * 300 + b'"'),
}

STYLES = {
    "plain": (csv.QUOTE_MINIMAL, "\n", lambda n: ["some", "remark"][n % 2]),
    "crlf": (csv.QUOTE_MINIMAL, "\r\n", lambda n: "x" * (n % 4)),
    "cr": (csv.QUOTE_MINIMAL, "\r", lambda n: "remark"),
    "all quoted": (csv.QUOTE_ALL, "\r\n", lambda n: "remark"),
    "multi-line": (csv.QUOTE_MINIMAL, "\n", lambda n: f"line one\nline two of {n}"),
    "commas": (csv.QUOTE_MINIMAL, "\n", lambda n: 'a, "b", c'),
}


def plain_record(number: int) -> bytes:
    return f"{number},word {number},remark".encode()


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_costs_one_record(fault, style):
    code, spoil = FAULTS[fault]
    quoting, end, remark = STYLES[style]
    rows = [(str(n), f"word {n}", remark(n)) for n in range(1, COUNT + 1)]
    for at in (1, COUNT // 2, COUNT):
        data = write_record(["id", "word", "remark"], quoting=quoting, end=end)
        line, lines = 2, 0
        for number, row in enumerate(rows, start=1):
            record = write_record(row, quoting=quoting, end="")
            if number == at:
                lines = line
                spoilt = spoil(plain_record(number))
                border = len(data) + len(spoilt)
                record = spoilt
            data += record + end.encode()
            line += count_lines(record)
        sizes = {1, 100, border - 1, border, border + 1, 2**20}
        for chunk_bytes in sizes:
            found = read(data, chunk_bytes=chunk_bytes, **LIMITS)
            assert found.faults == [(at, lines, code)], (at, chunk_bytes)
            assert found.malformed[0][2] == 1
            raw = found.malformed[0][5]
            assert raw == spoilt
            assert found.rows == {
                n: tuple(v or (None if quoting == csv.QUOTE_MINIMAL else "") for v in row)
                for n, row in enumerate(rows, start=1)
                if n != at
            }
            assert found.total == count_lines(data)
            assert found.account[2] == 0


def body(*records: str, end: str = "\n") -> bytes:
    return "".join(record + end for record in ("id,word,remark", *records)).encode()


PLAIN = [f"{n},word {n},remark" for n in range(100)]


@pytest.mark.parametrize(
    ("record", "code"),
    [
        ('7,"first\nsecond "quoted" part\nthird",x', "text_after_quote"),
        ('7,"first "quoted" part\nsecond\nthird",x', "text_after_quote"),
        ('7,"a\nb",x,more', "field_count"),
        ('7,"a\n\nb\nc"', "field_count"),
        ('7,"a\nb","open', "unterminated_quote"),
        ('7,"a\nb, c","open,x', "unterminated_quote"),
    ],
)
def test_a_broken_record_of_several_lines_is_one(record, code):
    found = read(body(*PLAIN[:7], record, *PLAIN[8:]))
    assert found.faults == [(8, 9, code)]
    assert found.malformed[0][2] == count_lines(record.encode())
    assert found.malformed[0][5] == record.encode()
    assert len(found.rows) == 99


def test_neighbouring_faults_keep_their_own_verdicts():
    spoilt = ['10,"open,x', "11,short", '12,"ab"c,x', '13,"open,x', '14,"open,x', "15,a,b,c"]
    found = read(body(*PLAIN[:10], *spoilt, *PLAIN[16:]))
    assert found.faults == [
        (11, 12, "unterminated_quote"),
        (12, 13, "field_count"),
        (13, 14, "text_after_quote"),
        (14, 15, "unterminated_quote"),
        (15, 16, "unterminated_quote"),
        (16, 17, "field_count"),
    ]
    assert len(found.rows) == 94


@pytest.mark.parametrize("distance", [2, 3, 10, 60])
@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_legal_close_far_away_hides_nothing(distance, column):
    records = [record.split(",") for record in PLAIN]
    records[20][column] = '"' + records[20][column]
    records[20 + distance][column] += '"'
    found = read(body(*map(",".join, records)))
    assert found.faults == [(21, 22, "unterminated_quote")]
    assert "line 22" in found.malformed[0][4]
    assert found.malformed[0][2] == 1
    assert len(found.rows) == 99
    assert found.rows[21 + distance][column].endswith('"')


def test_a_few_ragged_lines_do_not_hide_a_swallowing():
    records = [*PLAIN]
    records[20] = '20,word 20,"remark'
    records[30] = "30,short"
    records[60] += '"'
    found = read(body(*records))
    assert found.faults == [(21, 22, "unterminated_quote"), (31, 32, "field_count")]


def test_a_fault_between_does_not_hide_a_swallowing():
    records = [*PLAIN]
    records[20] = '"20,word 20,remark'
    records[22] = '""22,word 22,remark'
    records[28] = '28",word 28,remark'
    found = read(body(*records))
    assert found.faults == [(21, 22, "unterminated_quote"), (23, 24, "text_after_quote")]


def test_a_swallowing_that_ends_in_a_genuine_text_of_two_lines():
    records = [*PLAIN]
    records[20] = '20,word 20,"remark'
    records[25] = '25,word 25,"\nremark"'
    found = read(body(*records))
    assert found.faults == [(21, 22, "unterminated_quote")]
    assert found.rows[26] == ("25", "word 25", "\nremark")


GENUINE = [
    "12 High Street\nLeeds, LS1 4DY\nUnited Kingdom",
    "Dear all,\nplease note, as agreed, the fence.\nRegards, Ana",
    '{\n  "a": 1,\n  "b": [2, 3],\n  "c": "x, y"\n}',
    "one\n\n\ntwo",
    "one, two\nthree, four\nfive, six",
    "1\n2\n3\n4",
    "-, -\n-, -\n-, -\n",
    "\n,\n,\n",
]


@pytest.mark.parametrize("text", GENUINE)
@pytest.mark.parametrize("width", [2, 3, 6])
def test_a_genuine_text_of_several_lines_is_one_value(text, width):
    for column in range(1, width):
        rows = []
        for number in range(50):
            row = [str(number)] + [f"word {i}" for i in range(1, width)]
            row[column] = text
            rows.append(tuple(row))
        data = write_record([f"c{i}" for i in range(width)])
        data += b"".join(write_record(row) for row in rows)
        found = read(data)
        assert found.malformed == []
        assert list(found.rows.values()) == rows


def test_one_column_believes_a_legal_quote_and_recovers_from_an_open_one():
    found = read(b'a\n"x\ny\nz"\n"open\np\nq\n')
    assert found.faults == [(2, 5, "unterminated_quote")]
    assert found.rows == {1: ("x\ny\nz",), 3: ("p",), 4: ("q",)}


def test_an_open_quote_at_the_end_takes_the_lines_that_are_no_records():
    found = read(body(*PLAIN[:3], '3,"one\ntwo\nthree'))
    assert found.faults == [(4, 5, "unterminated_quote")]
    assert found.malformed[0][2] == 3
    assert found.malformed[0][5] == b'3,"one\ntwo\nthree'


@pytest.mark.parametrize("line", ["z" * 79, "z, z", 'z ""quoted"" z'])
def test_a_long_quoted_text_ends_where_its_quote_closes(line):
    text = "\n".join([line] * 100)
    found = read(body(*PLAIN[:3], f'3,word,"{text}"', *PLAIN[4:]), **LIMITS)
    assert found.faults == [(4, 5, "record_too_long")]
    assert found.malformed[0][2] == 100
    assert len(found.rows) == 99


def test_a_long_open_text_ends_where_records_begin_again():
    text = "\n".join(["z" * 79] * 100)
    found = read(body(*PLAIN[:3], f'3,word,"{text}', *PLAIN[4:]), **LIMITS)
    assert found.faults == [(4, 5, "record_too_long")]
    assert found.malformed[0][2] == 100
    assert len(found.rows) == 99


def test_the_raw_of_a_long_record_is_its_beginning():
    found = read(body(PLAIN[0], "1,a," + "z" * 20_000, PLAIN[2]), max_record_bytes=10_000)
    assert found.faults == [(2, 3, "record_too_long")]
    assert found.malformed[0][5] == b"1,a," + b"z" * 4092


def test_a_record_may_be_as_long_as_the_bound():
    exact = "1,a," + "z" * 252
    assert read(body(exact), **LIMITS).malformed == []
    assert read(body(exact + "z"), **LIMITS).faults == [(1, 2, "record_too_long")]
    quoted = '1,a,"' + "z" * 250 + '"'
    assert read(body(quoted), **LIMITS).malformed == []
    assert read(body(quoted + " "), **LIMITS).faults == [(1, 2, "record_too_long")]


def test_hints_name_places_and_never_values():
    spoilt = ['1,"secret,x', "2,secret", '3,"secret"secret,x', "4,secret\0,x"]
    found = read(body(*PLAIN[:1], *spoilt, *PLAIN[5:]) + b"5,secret\xe9,x\n")
    hints = [hint for _, _, _, _, hint, _ in found.malformed]
    assert hints == [
        "the quote opened on line 3 is never closed",
        "found 2 fields, expected 3",
        (
            "text follows the closing quote of field 2 on line 5; "
            "a quote inside a quoted field is written twice"
        ),
        "a NUL byte at offset 8 of the record cannot be stored as text",
        "byte 0xE9 at offset 8 of the record is not UTF-8",
    ]


CORRUPTIONS = [b'"', b'"', b'""', b"\n", b"\r", b",", b"\0", b"\xff"]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_what_no_corruption_touched_comes_back(data):
    """Each untouched record is as written, or lies in the span of a malformed one.

    At most two records are touched, once each: with three (a quote that opens, one that closes,
    a fault between) a text can arise that is legal and resembles no swallowed records.
    """
    draw = data.draw
    quoting, end, remark = STYLES[draw(st.sampled_from(sorted(STYLES)))]
    count = draw(st.integers(1, 30))
    rows = [(str(n), f"word {n}", remark(n) or "x") for n in range(1, count + 1)]
    records = [write_record(row, quoting=quoting, end=end) for row in rows]
    touched = draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=2))
    for at in touched:
        where = draw(st.integers(0, len(records[at]) - len(end)))
        what = draw(st.sampled_from(CORRUPTIONS))
        records[at] = records[at][:where] + what + records[at][where:]
    header = write_record(["id", "word", "remark"], quoting=quoting, end=end)
    text = header + b"".join(records)
    found = read(text, chunk_bytes=draw(st.integers(1, 2_000)), **LIMITS)
    assert found.total == count_lines(text)
    by_line = {found.lines[number]: row for number, row in found.rows.items()}
    spans = [range(line, line + lines) for _, line, lines, _, _, _ in found.malformed]
    so_far = header
    for number, record in enumerate(records):
        line = count_lines(so_far) + 1
        so_far += record
        if number not in touched and by_line.get(line) != rows[number]:
            assert any(line in span for span in spans), (number, line)
