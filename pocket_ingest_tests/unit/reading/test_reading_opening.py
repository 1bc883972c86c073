"""How a file begins: marks, other content, the header; and the small files that break loaders."""

import io
import json
from pathlib import Path

import pytest

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.reading import ReadingLimits, open_table
from pocket_ingest.core.reading.csv_records import CsvRecords
from pocket_ingest.core.reading.survey import HEAD_BYTES
from pocket_ingest_tests.unit.reading.csv_texts import read

SHARED = Path(__file__).resolve().parents[3] / ".." / "shared"
CASES = SHARED / "cases"
SPECTRUM = SHARED / "corpus" / "csv-spectrum"


def refusal(data: bytes, **limits) -> PermanentError:
    with pytest.raises(PermanentError) as caught:
        read(data, sizes=[3], **limits)
    return caught.value


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", Code.EMPTY_FILE),
        (b"\xef\xbb\xbf", Code.EMPTY_FILE),
        (b"\n\r\n\r\n", Code.EMPTY_FILE),
        (b"\xef\xbb\xbf" + b"\r\n" * 10_000, Code.EMPTY_FILE),
        (b"PK\x03\x04" + b"\x14\x00" * 20, Code.ARCHIVE_DAMAGED),
        (b"\x1f\x8b\x08\x00abc", Code.ARCHIVE_DAMAGED),
        (b"%PDF-1.7\n", Code.UNSUPPORTED_TYPE),
        (b"<!doctype html><html>", Code.UNSUPPORTED_TYPE),
        (b"7z\xbc\xaf\x27\x1c" + b"\0" * 30, Code.UNSUPPORTED_TYPE),
        (b"\0" * 5_000, Code.UNSUPPORTED_TYPE),
        (b"id,n\xe9\n1,a\n", Code.HEADER_UNREADABLE),
        (b"id,n\0me, and more\n1,a\n", Code.HEADER_UNREADABLE),
    ],
)
def test_refuses_what_is_no_csv_in_utf8(data, code):
    error = refusal(data)
    assert error.code is code
    assert error.detail.endswith(".")


def test_header_bounds():
    assert refusal(b"a,b,c\n1,2,3\n", max_columns=2).code is Code.TOO_MANY_COLUMNS
    assert refusal(b"a" * 2 * HEAD_BYTES + b"\n").code is Code.HEADER_UNREADABLE
    assert refusal(b"a," * HEAD_BYTES + b"\n").code is Code.TOO_MANY_COLUMNS
    assert len(read(b"," * 1_999 + b"\n").names) == 2_000


def test_header_as_it_is_written():
    found = read(b'\xef\xbb\xbf\r\n\n"a ""b""",,a,a, "c"\r\n1,2,3,4,5\r\n')
    assert found.names == ('a "b"', "", "a", "a", ' "c"')
    assert found.encoding == "utf-8-sig"
    assert found.rows == {1: ("1", "2", "3", "4", "5")}
    assert found.lines == {1: 4}
    assert found.account == (1, 1, 2)


def test_header_of_two_lines():
    with open_table(lambda: io.BytesIO(b'a,"b\n(m)"\n1,2')) as reading:
        assert reading.header.names == ("a", "b\n(m)")
        assert reading.header.raw == b'a,"b\n(m)"'
        assert [chunk.lines.tolist() for chunk in reading] == [[3]]
        assert reading.account.header_lines == 2


def test_a_nul_in_a_record_does_not_condemn_a_small_file():
    found = read(b"id,name\n1,\0\0\0\0\0\0\0\0\0\0\n2,ok\n")
    assert found.faults == [(1, 2, "nul_byte")]
    assert found.rows == {2: ("2", "ok")}


@pytest.mark.parametrize("header", [b"id,name", b"id,name\n", b"id\n", b"id\n\n\n"])
def test_header_only_has_no_chunks(header):
    found = read(header)
    assert found.count == 0
    assert found.rows == {}


def test_blank_lines_are_records_in_one_column_except_at_the_end():
    found = read(b"a\n\nx\n\r\n\ny\n\n\n", chunk_records=2)
    assert found.rows == {1: (None,), 2: ("x",), 3: (None,), 4: (None,), 5: ("y",)}
    assert found.lines == {1: 2, 2: 3, 3: 4, 4: 5, 5: 6}
    assert found.account == (1, 5, 2)


def test_blank_lines_are_no_records_in_several_columns():
    found = read(b"a,b\n\n1,2\n\n\n3,4\n\n")
    assert found.rows == {1: ("1", "2"), 2: ("3", "4")}
    assert found.lines == {1: 3, 2: 6}
    assert found.account == (1, 2, 4)


def test_iterable_once():
    with open_table(lambda: io.BytesIO(b"a\n1\n")) as reading:
        assert len(list(reading)) == 1
        with pytest.raises(RuntimeError, match="once"):
            iter(reading)


@pytest.mark.parametrize("wrong", [b"", b"ab", b"\n", b"\0", b"\xa7", b'"'])
def test_a_delimiter_of_the_walk_is_one_ascii_byte_of_its_own(wrong):
    with pytest.raises(ValueError, match="delimiter"):
        CsvRecords(io.BytesIO(b"a\n"), width=1, first_line=1, delimiter=wrong)


def test_limits_are_checked():
    with pytest.raises(ValueError, match="at least 1"):
        ReadingLimits(chunk_bytes=0)
    with pytest.raises(ValueError, match="1 GiB"):
        ReadingLimits(max_record_bytes=2**30)


def case(name: str) -> bytes:
    path = CASES / name
    if not path.exists():
        pytest.skip("the shared cases are not here")
    return path.read_bytes()


def test_shared_case_unclosed_quote():
    data = case("unclosed_quote.csv")
    found = read(data)
    assert found.faults == [(36, 37, "unterminated_quote")]
    assert "line 37" in found.malformed[0][4]
    assert found.account == (1, 105, 0)
    assert len(found.rows) == 104


def test_shared_case_late_utf8():
    data = case("utf8_late.csv")
    found = read(data, chunk_bytes=10_000)
    assert found.malformed == []
    expected = [tuple(line.split(",")) for line in data.decode().splitlines()[1:]]
    assert list(found.rows.values()) == expected


def test_shared_case_null_and_empty():
    found = read(case("na_string.csv"))
    assert found.rows == {1: ("1", "NA", None), 2: ("2", "US", "NULL"), 3: ("3", None, "")}


@pytest.mark.parametrize(
    "name",
    [
        "comma_in_quotes",
        "empty",
        "empty_crlf",
        "escaped_quotes",
        "json",
        "location_coordinates",
        "newlines",
        "newlines_crlf",
        "quotes_and_newlines",
        "simple",
        "simple_crlf",
        "utf8",
    ],
)
def test_csv_spectrum(name):
    path = SPECTRUM / "csvs" / f"{name}.csv"
    if not path.exists():
        pytest.skip("the csv-spectrum files are not here")
    found = read(path.read_bytes())
    assert found.malformed == []
    rows = [
        dict(zip(found.names, (value or "" for value in row), strict=True))
        for row in found.rows.values()
    ]
    expected = json.loads((SPECTRUM / "json" / f"{name}.json").read_text())
    expected = expected if isinstance(expected, list) else [expected]
    if name == "location_coordinates":
        # Upstream's JSON holds another phone number than its CSV file does.
        assert rows[0].pop("Contact Phone Number") == "2095257564"
        del expected[0]["Contact Phone Number"]
    # Some of its JSON files have LF where the CSV file has CRLF inside a value.
    assert [{k: v.replace("\r\n", "\n") for k, v in row.items()} for row in rows] == [
        {k: v.replace("\r\n", "\n") for k, v in row.items()} for row in expected
    ]
