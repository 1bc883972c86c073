"""Validation over real bytes: exactly the planted errors, exactly the records that have them."""

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import pandera.polars as pa
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocket_ingest.core.artifacts import RECORD
from pocket_ingest.core.dataset import Column, FromColumn
from pocket_ingest.core.errors import Cancelled, Code, PermanentError
from pocket_ingest.core.reading import ReadingLimits
from pocket_ingest.core.validation import refuse_too_many, validate_file
from pocket_ingest_tests.examples import declare, nullable, quoted, read_csv_rows, write_csv
from pocket_ingest_tests.validated import validate

# -- planted errors ----------------------------------------------------------------------------

ORDERS = declare(
    {
        "id": str,
        "count": int,
        "amount": Annotated[pl.Decimal, 10, 2],
        "ratio": float,
        "paid": bool,
        "day": date,
        "status": str,
        "note": str,
    },
    name="orders",
    checks={
        "id": pa.Field(str_matches=r"^K\d+$"),
        "count": pa.Field(ge=0),
        "amount": nullable(le=1000),
        "ratio": nullable(),
        "paid": nullable(),
        "day": nullable(),
        "status": pa.Field(isin=["new", "done"]),
        "note": nullable(str_length={"max_value": 5}),
        "is_settled": pa.dataframe_check(
            lambda cls, data: data.lazyframe.select(
                (pl.col("status") != "done") | pl.col("paid").fill_null(value=False)
            ),
            name="is_settled",
            description="what is done is paid",
        ),
    },
    options={"amount": Column(grouping=",")},
)
NAMES = ("id", "count", "amount", "ratio", "paid", "day", "status", "note")

# field, what is written there instead of something good, code
FAULTS = [
    ("id", "k1", Code.PATTERN),
    ("id", "", Code.PATTERN),
    ("id", None, Code.REQUIRED),
    ("count", "1.5", Code.INVALID_INTEGER),
    ("count", "-1", Code.OUT_OF_RANGE),
    ("count", "", Code.REQUIRED),
    ("count", "99999999999999999999", Code.INVALID_INTEGER),
    ("amount", "1.234", Code.INVALID_DECIMAL),
    ("amount", "1,00", Code.INVALID_DECIMAL),
    ("amount", "1,000.01", Code.OUT_OF_RANGE),
    ("ratio", "1,5", Code.INVALID_NUMBER),
    ("ratio", "NaN", Code.INVALID_NUMBER),
    ("paid", "yes", Code.INVALID_BOOLEAN),
    ("day", "2023-02-29", Code.INVALID_DATE),
    ("day", "21019-01-01", Code.INVALID_DATE),
    ("status", "NEW", Code.NOT_ALLOWED),
    ("status", None, Code.REQUIRED),
    ("note", "toolong", Code.TEXT_LENGTH),
]
BROKEN = [
    (b"K1,1", Code.FIELD_COUNT),
    (b"K1,1,1,1,true,2020-01-01,new,n,more", Code.FIELD_COUNT),
    (b'K1,1,1,1,true,2020-01-01,new,"n"x', Code.TEXT_AFTER_QUOTE),
    (b"K1,1,1,1,true,2020-01-01,new,\0", Code.NUL_BYTE),
    (b"K1,1,1,1,true,2020-01-01,new,\xff", Code.INVALID_ENCODING),
]


@dataclass
class Planted:
    """A file, and what was planted in it."""

    lines: list[bytes] = field(default_factory=list)
    starts: dict[int, int] = field(default_factory=dict)
    expected: set[tuple[int, str, str]] = field(default_factory=set)
    content: bytes = b""


@st.composite
def planted_files(draw: st.DrawFn) -> Planted:
    planted = Planted()
    line = 2
    for number in range(1, draw(st.integers(0, 30)) + 1):
        planted.starts[number] = line
        kind = draw(st.sampled_from(["good", "good", "good", "faulty", "broken", "rule"]))
        if kind == "broken":
            raw, code = draw(st.sampled_from(BROKEN))
            planted.expected.add((number, "", str(code)))
        else:
            cells: dict[str, str | None] = {
                "id": f"K{number}",
                "count": "7",
                "amount": draw(st.sampled_from(["12.30", "1,000.00", None])),
                "ratio": draw(st.sampled_from(["1e3", ".5", None])),
                "paid": "true",
                "day": draw(st.sampled_from(["2024-02-29", None])),
                "status": draw(st.sampled_from(["new", "done"])),
                "note": draw(st.sampled_from(["a,b", 'a"b', "a\nb", "", "äöü", None])),
            }
            if kind == "faulty":
                chosen = draw(
                    st.lists(st.sampled_from(FAULTS), min_size=1, unique_by=lambda f: f[0])
                )
                for name, text, code in chosen:
                    cells[name] = text
                    planted.expected.add((number, name, str(code)))
                # A rule on the row is judged on rows that are whole only.
                cells["status"] = "new" if cells["status"] == "done" else cells["status"]
            if kind == "rule":
                cells |= {"status": "done", "paid": "false"}
                planted.expected.add((number, "", str(Code.CHECK_FAILED)))
            raw = ",".join("" if c is None else quoted(c) for c in cells.values()).encode()
        planted.lines.append(raw)
        line += raw.count(b"\n") + 1
    end = draw(st.sampled_from([b"\n", b"\r\n"]))
    planted.content = end.join([",".join(NAMES).encode(), *planted.lines, b""])
    return planted


@given(
    planted=planted_files(),
    chunk_bytes=st.sampled_from([1, 30, 100, 400, 10_000]),
    chunk_records=st.sampled_from([1, 2, 7, 1000]),
)
@settings(max_examples=35)
def test_exactly_the_planted_errors_are_found(
    planted: Planted, chunk_bytes: int, chunk_records: int
) -> None:
    result = validate(planted.content, ORDERS, chunk_bytes=chunk_bytes, chunk_records=chunk_records)
    assert result.found == planted.expected
    assert len(result.errors) == len(planted.expected)
    assert {e["record"]: e["line"] for e in result.errors}.items() <= planted.starts.items()
    assert result.validated.records_read == len(planted.lines)
    rejected = sorted({record for record, _, _ in planted.expected})
    header, *rows = split_rejects(result.rejects, rejected, planted.lines)
    assert header == b"_record,_line,_codes,_hint," + ",".join(NAMES).encode()
    for number, row in zip(rejected, rows, strict=True):
        codes = {code for record, _, code in planted.expected if record == number}
        record, line, said, _ = row.split(b",", 3)
        assert (int(record), int(line)) == (number, planted.starts[number])
        assert set(said.decode().split()) == codes


def split_rejects(content: bytes, numbers: list[int], lines: list[bytes]) -> Iterator[bytes]:
    """The rows of rejects.csv, each of which must end in the record's own bytes."""
    header, _, rest = content.partition(b"\n")
    yield header
    for number in numbers:
        own = b"," + lines[number - 1] + b"\n"
        row, found, rest = rest.partition(own)
        assert found, f"record {number} is not there as it was written"
        yield row + found
    assert rest == b""


def test_rejects_are_a_file_that_can_be_read_and_sent_again() -> None:
    content = write_csv(NAMES, [["K1", "x", None, None, None, None, "new", 'say "hi",\nyou']])
    result = validate(content, ORDERS)
    header, row = read_csv_rows(result.rejects)
    assert header == ["_record", "_line", "_codes", "_hint", *NAMES]
    assert row[:3] == ["1", "2", "invalid_integer text_length"]
    assert "count is not a whole number" in row[3]
    assert row[4:] == ["K1", "x", "", "", "", "", "new", 'say "hi",\nyou']
    again = validate(
        result.rejects.replace(b",x,", b",5,").replace(b'say ""hi"",\nyou', b"hi"), ORDERS
    )
    assert (again.validated.accepted, again.validated.rejected) == (1, 0)
    assert again.validated.report["extra_columns"] == ["_record", "_line", "_codes", "_hint"]


def test_every_error_of_a_record_is_reported() -> None:
    row = ["k", "-1", "1.234", "x", "maybe", "soon", "old", "toolong"]
    result = validate(write_csv(NAMES, [row]), ORDERS)
    assert {(e["field"], e["code"]) for e in result.errors} == {
        ("id", "pattern"),
        ("count", "out_of_range"),
        ("amount", "invalid_decimal"),
        ("ratio", "invalid_number"),
        ("paid", "invalid_boolean"),
        ("day", "invalid_date"),
        ("status", "not_allowed"),
        ("note", "text_length"),
    }
    assert result.validated.rejected == 1


def test_no_report_and_no_hint_has_a_cell() -> None:
    secret = "s3cr3t"
    row = [secret, secret, secret, secret, secret, secret, secret, secret]
    result = validate(write_csv(NAMES, [row]), ORDERS)
    assert len(result.errors) == 8
    assert secret not in json.dumps(result.errors)
    assert secret not in json.dumps(result.validated.report)
    assert secret.encode() in result.rejects


def test_values_arrive_typed_and_in_order() -> None:
    rows = [
        ["K2", "007", "1,000.00", "-.5", "TRUE", "2024-02-29", "done", "NA"],
        ["K1", "0", None, None, None, None, "new", ""],
    ]
    accepted = validate(write_csv(NAMES, rows), ORDERS).accepted
    assert accepted.columns == [RECORD, *NAMES]
    first, second = accepted.to_dicts()
    assert first["id"] == "K2"
    assert (first["count"], str(first["amount"]), first["ratio"]) == (7, "1000.00", -0.5)
    assert (first["day"], first["note"]) == (date(2024, 2, 29), "NA")
    assert (second["amount"], second["note"]) == (None, "")


# -- headers -----------------------------------------------------------------------------------


def test_a_header_alone_is_no_error() -> None:
    for content in (b"id,value", b"id,value\n", b"\xef\xbb\xbfid,value\r\n"):
        result = validate(content, declare({"id": str, "value": str}))
        assert (result.validated.records_read, result.plan, result.errors) == (0, [], [])
        assert result.accepted.columns == [RECORD, "id", "value"]
        assert result.validated.too_many is None


def test_an_optional_column_may_be_missing_and_is_null_then() -> None:
    dataset = declare(
        {"id": str, "more": int | None, "value": str},
        checks={"more": pa.Field(ge=5)},
    )
    result = validate(b"value,id\nx,1\ny,2\n", dataset)
    assert result.errors == []
    assert result.accepted.columns == [RECORD, "id", "more", "value"]
    assert result.accepted["more"].to_list() == [None, None]
    assert result.validated.report["absent_columns"] == ["more"]
    assert result.validated.report["reordered"] is True
    assert validate(b"id,more,value\n1,4,x\n", dataset).found == {(1, "more", "out_of_range")}
    assert validate(b"id,more,value\n1,,x\n", dataset).found == {(1, "more", "required")}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", Code.EMPTY_FILE),
        (b"id\n1\n", Code.MISSING_COLUMN),
        (b"id,value,ID\n1,2,3\n", Code.DUPLICATE_HEADER),
        (b"id;other\n1;2\n", Code.MISSING_COLUMN),
        (b"PK\x03\x04 and so on", Code.ARCHIVE_DAMAGED),
    ],
)
def test_files_that_are_refused_as_a_whole(content: bytes, code: Code) -> None:
    with pytest.raises(PermanentError) as refused:
        validate(content, declare({"id": str, "value": str}))
    assert refused.value.code is code


def test_columns_without_a_name_here_are_not_read() -> None:
    result = validate(b"id,,Extra,value,\n1,a,b,x,c\n", declare({"id": str, "value": str}))
    assert result.accepted.row(0) == (1, "1", "x")
    assert result.validated.report["extra_columns"] == ["", "Extra", ""]


# -- keys --------------------------------------------------------------------------------------

KEYS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["1", "2", "01", "x"])), max_size=25
)


def model_of_duplicates(keys: Sequence[Any], policy: str) -> tuple[set[int], dict[int, int]]:
    """Records that are refused, and losers with their winners; None is a record that is bad."""
    places: dict[Any, list[int]] = {}
    for number, key in enumerate(keys, 1):
        if key is not None:
            places.setdefault(key, []).append(number)
    refused: set[int] = set()
    losers: dict[int, int] = {}
    for numbers in places.values():
        if policy == "reject" and len(numbers) > 1:
            refused.update(numbers)
        winner = numbers[-1] if policy == "last" else numbers[0]
        if policy != "reject":
            losers |= {n: winner for n in numbers if n != winner}
    return refused, losers


@pytest.mark.parametrize("policy", ["first", "last", "reject"])
@pytest.mark.parametrize("tenant", [False, True])
@given(keys=KEYS, chunk_records=st.integers(1, 9))
@settings(max_examples=25)
def test_keys_are_unique_within_a_file(
    policy: str, tenant: bool, keys: list[tuple[str, str]], chunk_records: int
) -> None:
    """A key of several columns, one of them a number, across chunks."""
    dataset = declare(
        {"part": str, "number": int, "value": str},
        key=("number",) if tenant else ("part", "number"),
        duplicates=policy,
        **({"tenant": FromColumn("part")} if tenant else {}),
    )
    content = write_csv(("part", "number", "value"), [(*key, "v") for key in keys])
    result = validate(content, dataset, chunk_records=chunk_records)
    bad = {n for n, key in enumerate(keys, 1) if key[1] == "x"}
    meant = [None if n in bad else (k[0], int(k[1])) for n, k in enumerate(keys, 1)]
    refused, losers = model_of_duplicates(meant, policy)
    assert result.found == {(n, "number", "invalid_integer") for n in bad} | {
        (n, "", "duplicate_key") for n in refused
    }
    assert dict(result.duplicates) == losers
    # Losers are accepted rows; the loader leaves them out.
    assert set(result.accepted[RECORD].to_list()) == set(range(1, len(keys) + 1)) - bad - refused
    assert result.validated.duplicates == len(losers) or policy == "reject"


def test_a_repeated_key_names_the_first_record_and_no_value() -> None:
    dataset = declare({"id": str}, duplicates="reject")
    result = validate(b"id\nsecret\nother\nsecret\n", dataset)
    assert [e["record"] for e in result.errors] == [1, 3]
    assert all("first in record 1" in e["hint"] for e in result.errors)
    assert "secret" not in json.dumps(result.validated.report)


@pytest.mark.parametrize(
    ("dtype", "options", "same", "other"),
    [
        (str, {}, ("a", "a"), ("a", "a ")),
        (str, {"trim": True}, ("a", " a\u00a0"), ("a", "b")),
        (int, {}, ("7", "+007"), ("7", "-7")),
        (Annotated[pl.Decimal, 10, 2], {}, ("1.5", "01.50"), ("1.5", "1.51")),
        (bool, {}, ("true", "TRUE"), ("true", "false")),
        (
            date,
            {"formats": ("%Y-%m-%d", "%d.%m.%Y")},
            ("2024-01-02", "02.01.2024"),
            ("2024-01-02", "01.02.2024"),
        ),
    ],
)
def test_keys_are_compared_by_what_they_mean(
    dtype: Any, options: dict[str, Any], same: tuple[str, str], other: tuple[str, str]
) -> None:
    dataset = declare({"id": dtype}, options={"id": Column(**options)}, duplicates="first")
    for pair, expected in ((same, [(2, 1)]), (other, [])):
        content = write_csv(("id",), [(cell,) for cell in pair])
        assert validate(content, dataset, chunk_records=1).duplicates == expected


# -- thresholds --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "bad", "good", "refused"),
    [
        ({"max_rejects": 2}, 2, 0, False),
        ({"max_rejects": 2}, 3, 100, True),
        ({"max_rejects": 0}, 1, 100, True),
        ({"max_rejects": 0}, 0, 1, False),
        ({"max_reject_ratio": 0.5}, 1, 1, False),
        ({"max_reject_ratio": 0.5}, 2, 1, True),
        ({"max_reject_ratio": 0.0}, 0, 0, False),
        ({"max_rejects": 5, "max_reject_ratio": 0.1}, 1, 1, True),
        ({}, 5, 0, False),
    ],
)
def test_too_many_rejects_refuse_the_file(
    said: dict[str, Any], bad: int, good: int, refused: bool
) -> None:
    dataset = declare({"id": int}, **said)
    cells = [("x",)] * bad + [(str(n),) for n in range(good)]
    validated = validate(write_csv(("id",), cells), dataset).validated
    assert (validated.too_many is not None) == refused
    if refused:
        with pytest.raises(PermanentError) as error:
            refuse_too_many(validated)
        assert error.value.code is Code.TOO_MANY_REJECTS
        assert f"{bad} of {bad + good} records" in error.value.detail
    else:
        refuse_too_many(validated)


# -- the walk ----------------------------------------------------------------------------------


def test_the_job_is_looked_after_between_chunks() -> None:
    looks: list[int] = []

    def check() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise Cancelled

    with pytest.raises(Cancelled):
        validate(b"id\n" + b"1\n" * 10, declare({"id": int}), chunk_records=2, check=check)
    assert len(looks) == 3


def test_a_check_that_stops_with_an_error_is_the_contracts_fault() -> None:
    def fails(cls: Any, data: Any) -> Any:
        raise ValueError("about secret")

    dataset = declare({"id": str}, checks={"fails": pa.dataframe_check(fails, name="fails")})
    with pytest.raises(PermanentError) as error:
        validate(b"id\nsecret\n", dataset)
    assert error.value.code is Code.INVALID_CONTRACT
    assert "secret" not in str(error.value)


def test_counts_are_bounded_however_wide_the_file() -> None:
    columns = {"id": str, **{f"c{n}": int for n in range(600)}}
    dataset = declare(columns)
    header = list(columns)
    content = write_csv(header, [["1", *["x"] * 600], ["2", *["y"] * 600]])
    with TemporaryDirectory() as name:
        report = validate_file(
            lambda: io.BytesIO(content),
            dataset.contract,
            folder=Path(name),
            limits=ReadingLimits(),
            check=lambda: None,
        ).report
    assert len(report["rejects_by_field_and_code"]) == 500
    assert len(report["sample_errors"]) == 20
