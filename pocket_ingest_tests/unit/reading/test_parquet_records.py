"""Parquet: every type as text that loses nothing."""

import io
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.reading.expectation import CellForm, Expectation, ExpectedColumn
from pocket_ingest_tests.unit.reading.formats import read_whole

TEXT = st.one_of(
    st.none(), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
)


def parquet(table: pa.Table, **options) -> bytes:
    target = io.BytesIO()
    pq.write_table(table, target, **options)
    return target.getvalue()


@given(st.lists(st.tuples(TEXT, TEXT), max_size=20), st.integers(1, 7))
def test_texts_come_back(rows, group):
    table = pa.table({"a": [a for a, _ in rows], "é": [b for _, b in rows]}).cast(
        pa.schema([("a", pa.string()), ("é", pa.string())])
    )
    whole = read_whole(parquet(table, row_group_size=group), chunk_records=4)
    assert whole.rows == rows
    assert whole.lines == list(range(1, len(rows) + 1))
    assert whole.account.total == len(rows)


@pytest.mark.parametrize(
    ("values", "kind", "texts"),
    [
        ([1, -5, None], pa.int64(), ["1", "-5", None]),
        ([2**63 - 1], pa.int64(), ["9223372036854775807"]),
        ([1.0, 0.1, 1e20, -2.5e-7], pa.float64(), ["1", "0.1", "1" + "0" * 20, "-0.00000025"]),
        ([Decimal("1.50"), Decimal("-0.01")], pa.decimal128(10, 2), ["1.50", "-0.01"]),
        ([True, False, None], pa.bool_(), ["true", "false", None]),
        ([date(2024, 2, 29), date(900, 1, 2)], pa.date32(), ["2024-02-29", "0900-01-02"]),
        ([datetime(2024, 1, 2, 3, 4, 5)], pa.timestamp("us"), ["2024-01-02T03:04:05"]),
        (
            [datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)],
            pa.timestamp("ms", "UTC"),
            ["2024-01-02T03:04:05+00:00"],
        ),
        ([1_700_000_000_123_456_789], pa.timestamp("ns"), ["2023-11-14T22:13:20.123456789"]),
        ([b"ab", None], pa.binary(), ["ab", None]),
        ([[1, 2], None], pa.list_(pa.int64()), ["[1,2]", None]),
        ([{"x": "é"}], pa.struct([("x", pa.string())]), ['{"x":"é"}']),
        ([None, None], pa.null(), [None, None]),
    ],
)
def test_types(values, kind, texts):
    table = pa.table({"a": pa.array(values, kind)})
    assert read_whole(parquet(table)).columns["a"] == texts


def test_dictionaries_are_their_values():
    table = pa.table({"a": pa.array(["x", "y", "x"]).dictionary_encode()})
    assert read_whole(parquet(table)).columns["a"] == ["x", "y", "x"]


def test_the_column_decides_how_values_are_spelled():
    form = CellForm(date="%d.%m.%Y", decimal_mark=",", true="ja")
    columns = tuple(
        ExpectedColumn(name=name, headers=frozenset({name}), form=form) for name in "abc"
    )
    table = pa.table({"a": [date(2024, 2, 1)], "b": [1.5], "c": [True]})
    whole = read_whole(parquet(table), expectation=Expectation(columns=columns))
    assert whole.rows == [("01.02.2024", "1,5", "ja")]


def test_bytes_that_are_no_text_cost_one_record():
    table = pa.table({"a": pa.array([b"x", b"\xff", b"y"], pa.binary()), "b": ["1", "2", "3"]})
    whole = read_whole(parquet(table))
    assert whole.rows == [("x", "1"), ("y", "3")]
    assert whole.faults == [(2, 2, "invalid_encoding")]


@pytest.mark.parametrize("cut", [5, 100, -1, -20])
def test_a_damaged_file_is_refused(cut):
    data = parquet(pa.table({"a": list(range(1000))}))
    with pytest.raises(PermanentError) as refused:
        read_whole(data[:cut])
    assert refused.value.code is Code.PARQUET_UNREADABLE


def test_too_many_columns_are_refused():
    data = parquet(pa.table({f"c{n}": [1] for n in range(11)}))
    with pytest.raises(PermanentError) as refused:
        read_whole(data, max_columns=10)
    assert refused.value.code is Code.TOO_MANY_COLUMNS
