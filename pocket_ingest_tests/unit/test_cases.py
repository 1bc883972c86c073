"""Inputs that break other loaders: each as its file, and as all of its kind."""

import csv
import gzip
import io
import zipfile
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocket_ingest.core.dataset import Column
from pocket_ingest.core.errors import PermanentError
from pocket_ingest_tests.examples import declare, nullable
from pocket_ingest_tests.validated import Result, validate

ENDS = st.sampled_from(["\n", "\r\n", "\r"])
ENCODINGS = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"])
SOME = settings(max_examples=25, deadline=None)


def texts(*names: str, **said):
    """A dataset whose columns are all text and may be empty, but for the first, its key."""
    return declare(
        dict.fromkeys(names, str),
        key=(names[0],),
        checks={name: nullable() for name in names[1:]},
        **said,
    )


def rows(result: Result) -> list[tuple]:
    return result.accepted.drop("_record").rows()


def faults(result: Result) -> list[tuple[int, int, str]]:
    return [(e["record"], e["line"], e["code"]) for e in result.errors]


def every_line_is_explained(content: bytes, result: Result) -> None:
    ends = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = ends.count(b"\n") + (not ends.endswith(b"\n") and bool(ends))
    assert sum(result.validated.report["lines"].values()) == lines


def code_of(content: bytes, dataset, **said) -> str:
    with pytest.raises(PermanentError) as refused:
        validate(content, dataset, **said)
    return str(refused.value.code)


@pytest.fixture
def case(shared_folder: Path):
    return lambda name: (shared_folder / "cases" / name).read_bytes()


# -- the beginning and the end of a file -------------------------------------------------------


def test_byte_order_mark(case):
    result = validate(case("bom_utf8.csv"), texts("id", "name"))
    assert rows(result) == [("1", "Ana")]
    assert result.validated.report["file"]["encoding"] == "utf-8-sig"


@SOME
@given(ENDS, st.sampled_from(["utf-8-sig", "utf-16", "utf-32"]), st.sampled_from(",;\t"))
def test_a_mark_is_never_part_of_the_first_name(end, encoding, delimiter):
    content = end.join([f'"id"{delimiter}name', f"1{delimiter}Zoë", ""]).encode(encoding)
    assert rows(validate(content, texts("id", "name"))) == [("1", "Zoë")]


def test_non_ascii_comes_late(case):
    content = case("utf8_late.csv")
    result = validate(content, texts("id", "name"))
    expected = list(csv.reader(io.StringIO(content.decode(), newline="")))[1:]
    assert [list(row) for row in rows(result)] == expected


@SOME
@given(st.integers(0, 30_000), ENDS, st.sampled_from(["utf-8", "cp1252"]))
def test_the_first_accent_anywhere(before, end, encoding):
    lines = ["id,name", *(f"{n},plain" for n in range(before)), "x,Zoë", "y,plain", ""]
    result = validate(end.join(lines).encode(encoding), texts("id", "name"))
    assert rows(result)[before] == ("x", "Zoë")
    assert result.validated.rejected == 0


def test_empty(case):
    assert code_of(case("empty.csv"), texts("id", "name")) == "empty_file"


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n\r\n", b"\xef\xbb\xbf", b"\xff\xfe", b" \n"])
def test_nothing_but_white_space_is_empty(content):
    assert code_of(content, texts("id", "name")) == "empty_file"


def test_header_only(case):
    result = validate(case("header_only.csv"), texts("id", "name"))
    assert (result.validated.records_read, rows(result)) == (0, [])


@SOME
@given(ENDS, ENCODINGS, st.booleans(), st.integers(0, 3))
def test_a_header_alone_is_no_fault(end, encoding, ended, blank):
    content = ("id;name" + end * ended + end * blank).encode(encoding)
    assert validate(content, texts("id", "name")).validated.records_read == 0


def test_no_final_newline(case):
    assert rows(validate(case("no_final_newline.csv"), texts("id", "name"))) == [
        ("1", "a"),
        ("2", "b"),
    ]


# -- records that cannot be read ---------------------------------------------------------------


def test_nul_byte(case):
    result = validate(case("nul_byte.csv"), texts("id", "name"))
    assert rows(result) == [("2", "ok")]
    assert faults(result) == [(1, 2, "nul_byte")]


def test_ragged(case):
    result = validate(case("ragged.csv"), texts("id", "name", "city"))
    assert rows(result) == [("1", "a", "b")]
    assert faults(result) == [(2, 3, "field_count"), (3, 4, "field_count")]
    hints = [error["hint"] for error in result.errors]
    assert hints == ["found 2 fields, expected 3", "found 4 fields, expected 3"]


KINDS = {
    "nul_byte": lambda n: f"{n},a\0b,c",
    "field_count": lambda n: f"{n},short",
    "text_after_quote": lambda n: f'{n},"a"b,c',
    "unterminated_quote": lambda n: f'{n},"a,c',
}


@SOME
@given(
    st.sampled_from(sorted(KINDS)),
    st.integers(0, 400),
    st.integers(0, 400),
    ENDS,
    ENCODINGS,
    st.integers(0, 3),
)
def test_one_bad_record_costs_one_record(kind, before, after, end, encoding, titles):
    good = [f"{n},Zoë {n},c" for n in range(before + after)]
    lines = ["A title", "", "second"][:titles]
    lines += ["id,name,city", *good[:before], KINDS[kind]("x"), *good[before:], ""]
    content = end.join(lines).encode(encoding)
    result = validate(content, texts("id", "name", "city"))
    assert faults(result) == [(before + 1, titles + before + 2, kind)]
    assert [row[0] for row in rows(result)] == [str(n) for n in range(before + after)]


@SOME
@given(st.integers(0, 400), st.integers(0, 400), ENDS)
def test_a_bad_byte_costs_one_record(before, after, end):
    good = [f"{n},Zoë {n}".encode() for n in range(before + after + 1)]
    lines = [b"id,name", good[0], *good[1 : before + 1], b"x,\xe9\xff", *good[before + 1 :], b""]
    result = validate(end.encode().join(lines), texts("id", "name"))
    assert faults(result) == [(before + 2, before + 3, "invalid_encoding")]
    assert "offset 2" in result.errors[0]["hint"]
    assert rows(result) == [(str(n), f"Zoë {n}") for n in range(before + after + 1)]


def test_unclosed_quote(case):
    content = case("unclosed_quote.csv")
    result = validate(content, texts("id", "name"))
    (record, line, code), *others = faults(result)
    assert not others
    assert code == "unterminated_quote"
    assert b'"' in content.splitlines()[line - 1]
    assert len(rows(result)) == content.count(b"\n") - 2
    every_line_is_explained(content, result)
    assert record == line - 1


@SOME
@given(st.integers(0, 200), st.integers(1, 300), ENDS, st.sampled_from(",;\t|"), st.integers(0, 2))
def test_a_stray_quote_anywhere(before, after, end, delimiter, field):
    cells = [[str(n), f"name {n}", "c"] for n in range(before + after + 1)]
    cells[before][field] = '"' + cells[before][field]
    lines = ["id,name,city".replace(",", delimiter), *(delimiter.join(row) for row in cells), ""]
    content = end.join(lines).encode()
    result = validate(content, texts("id", "name", "city"))
    assert faults(result) == [(before + 1, before + 2, "unterminated_quote")]
    assert f"line {before + 2}" in result.errors[0]["hint"]
    assert len(rows(result)) == before + after
    every_line_is_explained(content, result)


# -- dialects ----------------------------------------------------------------------------------


def test_escaped_quote(case):
    result = validate(case("escaped_quote.csv"), texts("c1", "c2", "c3"))
    assert rows(result) == [("x", 'two "words"', "z")]
    assert result.validated.report["file"]["escape"] == "\\"


@SOME
@given(st.integers(0, 20_000), ENDS, ENCODINGS, st.sampled_from(",;\t|"))
def test_an_escaped_quote_anywhere(before, end, encoding, delimiter):
    lines = ["id,name", *(f"{n},n" for n in range(before)), r'x,"Zoë \"Z\" \\ Co"', "y,n", ""]
    content = end.join(lines).replace(",", delimiter).encode(encoding)
    result = validate(content, texts("id", "name"))
    assert rows(result)[before] == ("x", 'Zoë "Z" \\ Co')
    assert result.validated.rejected == 0


def test_semicolon(case):
    result = validate(case("semicolon.csv"), texts("codice", "programma", "note"))
    assert rows(result) == [("A", "uno, due", "x"), ("B", "tre, quattro", "y")]


@SOME
@given(
    st.sampled_from([",", ";", "\t", "|", "^", "~", ":", "||", "::", "|~|", ", "]),
    ENDS,
    ENCODINGS,
    st.lists(st.text("ab,; |:é\"'", max_size=8), min_size=1, max_size=30),
    st.integers(0, 2),
)
def test_the_header_decides_the_delimiter(delimiter, end, encoding, notes, titles):
    table = [["id", "Année", "note"], *([str(n), "x", note] for n, note in enumerate(notes))]
    lines = ["Titel", "created 2024-01-01"][:titles]
    lines += [delimiter.join('"' + c.replace('"', '""') + '"' for c in row) for row in table]
    result = validate(end.join([*lines, ""]).encode(encoding), texts("id", "annee", "note"))
    assert rows(result) == [tuple(row) for row in table[1:]]
    assert result.validated.report["file"]["delimiter"] == delimiter
    assert result.validated.report["lines"]["title_lines"] == titles


# -- headers -----------------------------------------------------------------------------------


def test_duplicate_header(case):
    with pytest.raises(PermanentError, match="2 and 3") as refused:
        validate(case("dup_header.csv"), texts("id", "title"))
    assert str(refused.value.code) == "duplicate_header"


def test_duplicate_header_mapped_by_position(case):
    dataset = texts(
        "id",
        "title",
        "subtitle",
        options={"title": Column(position=2), "subtitle": Column(position=3)},
    )
    assert rows(validate(case("dup_header.csv"), dataset)) == [("1", "first", "second")]


def test_columns_are_matched_by_name(case):
    dataset = texts("name", "age")
    one, two = (validate(case(f"reordered_{n}.csv"), dataset) for n in (1, 2))
    assert rows(one) + rows(two) == [("Bob", "31"), ("Sam", "54")]
    assert (one.validated.report["reordered"], two.validated.report["reordered"]) == (False, True)


# -- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lead_zero.csv", "lead_zero_late.csv"])
def test_leading_zeros(case, name):
    content = case(name)
    header, *table = csv.reader(io.StringIO(content.decode()))
    texts_only = validate(content, texts(*header))
    assert rows(texts_only) == [tuple(row) for row in table]


def test_na_is_text_unless_the_contract_says_otherwise(case):
    plain = validate(case("na_string.csv"), texts("id", "country", "note"))
    assert rows(plain) == [("1", "NA", None), ("2", "US", "NULL"), ("3", None, "")]
    said = texts(
        "id",
        "country",
        "note",
        options={
            "country": Column(null=("NA",)),
            "note": Column(null=("NULL",), quoted_empty_is_null=True),
        },
    )
    assert rows(validate(case("na_string.csv"), said)) == [
        ("1", None, None),
        ("2", "US", None),
        ("3", None, None),
    ]


def test_decimal_comma(case):
    dataset = declare(
        {"id": str, "amount": Annotated[pl.Decimal, 12, 2]},
        options={"amount": Column(decimal_mark=",", grouping=".")},
    )
    result = validate(case("amount_eu.csv"), dataset)
    assert [row[1] for row in rows(result)] == [
        Decimal("-236.48"),
        Decimal("1488.69"),
        Decimal("-1000.00"),
    ]


def test_dates_of_one_form(case):
    dataset = declare({"id": str, "d": date}, options={"d": Column(formats=("%m/%d/%Y",))})
    result = validate(case("dates_mixed.csv"), dataset)
    assert rows(result) == [("1", date(2023, 1, 3))]
    assert {code for *_, code in faults(result)} == {"invalid_date"}


def test_formulas_are_text(case):
    content = case("formula.csv")
    result = validate(content, texts("id", "name", "delta"))
    assert rows(result) == [tuple(row) for row in csv.reader(io.StringIO(content.decode()))][1:]


# -- archives ----------------------------------------------------------------------------------


def test_two_members(case):
    assert code_of(case("two_members.zip"), texts("id", "name")) in {
        "archive_members",
        "unsafe_archive_path",
    }


def test_bomb(case):
    assert code_of(case("bomb.csv.gz"), texts("a")) == "archive_too_large"


def zipped(**members: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target.getvalue()


TABLE = b"id,name\n1,Ana\n"


@pytest.mark.parametrize(
    ("packed", "containers"),
    [
        (gzip.compress(TABLE), ["gzip"]),
        (zipped(**{"a/table.csv": TABLE, "__MACOSX/a/._table.csv": b"x"}), ["zip"]),
    ],
)
def test_packed_files_are_read(packed, containers):
    result = validate(packed, texts("id", "name"), name="table.csv")
    assert rows(result) == [("1", "Ana")]
    report = result.validated.report["file"]
    assert report["containers"] == containers
    assert [n["code"] for n in report["notices"]] == []
