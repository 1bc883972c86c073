"""Pandera's failures as codes and sentences: each built-in check, and the hint that it gives."""

from dataclasses import replace
from typing import Any

import pandera.polars as pa
import polars as pl
import pytest

from pocket_ingest.core.checking import Checker
from pocket_ingest.core.errors import Code
from pocket_ingest.core.failures import Failure
from pocket_ingest_tests.examples import declare, nullable


@pytest.mark.parametrize(
    ("dtype", "check", "good", "bad", "code", "hint"),
    [
        (int, {"gt": 1}, 2, 1, "out_of_range", "must be above 1"),
        (int, {"ge": 1}, 1, 0, "out_of_range", "must be at least 1"),
        (int, {"lt": 1}, 0, 1, "out_of_range", "must be below 1"),
        (int, {"le": 1}, 1, 2, "out_of_range", "must be at most 1"),
        (
            int,
            {"in_range": {"min_value": 1, "max_value": 3}},
            3,
            4,
            "out_of_range",
            "must be from 1 to 3",
        ),
        (str, {"isin": ["a", "b"]}, "a", "c", "not_allowed", "must be one of a, b"),
        (str, {"notin": ["a", "b"]}, "c", "a", "not_allowed", "must be none of a, b"),
        (int, {"eq": 1}, 1, 2, "not_allowed", "must be 1"),
        (int, {"ne": 1}, 2, 1, "not_allowed", "must not be 1"),
        (str, {"str_matches": "^a+$"}, "aa", "b", "pattern", "must have the form ^a+$"),
        (str, {"str_contains": "a"}, "bab", "b", "pattern", "must contain a"),
        (str, {"str_startswith": "a"}, "ab", "b", "pattern", "must begin with a"),
        (str, {"str_endswith": "a"}, "ba", "b", "pattern", "must end with a"),
        (
            str,
            {"str_length": {"min_value": 1, "max_value": 2}},
            "é",
            "abc",
            "text_length",
            "must have at least 1 and at most 2 characters",
        ),
        (
            str,
            {"str_length": {"max_value": 2}},
            "",
            "abc",
            "text_length",
            "must have at most 2 characters",
        ),
    ],
)
def test_each_check_has_its_code_and_its_sentence(
    dtype: Any, check: dict[str, Any], good: Any, bad: Any, code: str, hint: str
) -> None:
    contract = declare({"id": str, "x": dtype}, checks={"x": nullable(**check)}).contract
    frame = pl.DataFrame(
        {"id": ["1", "2", "3", "4"], "x": [good, bad, None, bad]},
        schema={"id": pl.String, "x": contract.field("x").dtype},
    )
    found = Checker(contract).check(frame)
    assert [(f.rows, f.field, str(f.code), f.hint) for f in found] == [([1, 3], "x", code, hint)]


def test_a_long_list_is_cut() -> None:
    allowed = [f"v{n:02}" for n in range(40)]
    contract = declare({"id": str}, checks={"id": pa.Field(isin=allowed)}).contract
    (failure,) = Checker(contract).check(pl.DataFrame({"id": ["x"]}))
    assert failure.hint.startswith("must be one of v00, v01")
    assert failure.hint.endswith("v11 and 28 more")


def test_a_pattern_comes_with_the_columns_description() -> None:
    field = pa.Field(str_matches=r"^\d+$", description="Digits only.")
    contract = declare({"id": str}, checks={"id": field}).contract
    (failure,) = Checker(contract).check(pl.DataFrame({"id": ["x"]}))
    assert failure.hint == r"must have the form ^\d+$ (Digits only)"


def owned(**said: Any) -> Any:
    @pa.check("id", **said)
    def is_short(cls: Any, data: Any) -> Any:
        return data.lazyframe.select(pl.col(data.key).str.len_chars() < 3)

    return is_short


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ({}, "does not pass 'is short'"),
        ({"description": "two letters at most"}, "two letters at most"),
        ({"title": "short"}, "short"),
    ],
)
def test_a_teams_own_check_speaks_in_its_own_words(said: dict[str, str], hint: str) -> None:
    contract = declare({"id": str}, checks={"is_short": owned(**said)}).contract
    (failure,) = Checker(contract).check(pl.DataFrame({"id": ["ab", "abc"]}))
    assert (failure.rows, failure.field, str(failure.code)) == ([1], "id", "check_failed")
    assert failure.hint == hint


def test_several_checks_on_several_columns_are_all_told() -> None:
    contract = declare(
        {"id": str, "x": int, "y": int},
        checks={
            "id": pa.Field(str_length={"max_value": 2}, str_matches="^a"),
            "x": pa.Field(ge=0, le=10, ne=-1),
            "y": pa.Field(ge=0),
        },
    ).contract
    frame = pl.DataFrame({"id": ["bbb", "a"], "x": [-1, 11], "y": [-5, 0]})
    failures = Checker(contract).check(frame)
    found = {(row, f.field, str(f.code)) for f in failures for row in f.rows}
    assert found == {
        (0, "id", "text_length"),
        (0, "id", "pattern"),
        (0, "x", "out_of_range"),
        (0, "x", "not_allowed"),
        (0, "y", "out_of_range"),
        (1, "x", "out_of_range"),
    }


def test_rows_that_are_not_whole_are_judged_by_single_columns() -> None:
    rule = pa.dataframe_check(
        lambda cls, data: data.lazyframe.select(pl.col("x") == pl.col("y")), name="same"
    )
    contract = declare(
        {"id": str, "x": int, "y": int}, checks={"same": rule, "x": pa.Field(ge=0)}
    ).contract
    frame = pl.DataFrame({"id": ["1", "2"], "x": [-1, None], "y": [None, 3]})
    uncast = [
        Failure(field=name, code=Code.INVALID_INTEGER, hint="", mask=frame[name].is_null())
        for name in ("x", "y")
    ]
    found = Checker(contract).check(frame, uncast)
    assert [(f.rows, f.field) for f in found] == [([0], "x")]
    one_whole = pl.concat([frame, pl.DataFrame({"id": ["3"], "x": [1], "y": [2]})])
    uncast = [replace(f, mask=f.mask.extend(pl.Series([False]))) for f in uncast]
    found = Checker(contract).check(one_whole, uncast)
    assert [(f.rows, f.field) for f in found] == [([0], "x"), ([2], "")]
