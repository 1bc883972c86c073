"""Which position holds which field: by name, whatever the case, the order and the rest."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocket_ingest.core.dataset import Column
from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.header import match_header
from pocket_ingest_tests.examples import declare

CONTRACT = declare(
    {"id": str, "issue_date": str, "more": int | None},
    options={"id": Column(aliases=("Permit #", "No.")), "issue_date": Column(aliases=("Datum",))},
).contract


@pytest.mark.parametrize(
    ("names", "positions", "reordered"),
    [
        (("id", "issue_date", "more"), {"id": 0, "issue_date": 1, "more": 2}, False),
        (("ID", "Issue Date"), {"id": 0, "issue_date": 1}, False),
        (("issue-date", "PERMIT"), {"id": 1, "issue_date": 0}, True),
        ((" no ", "x", "DATUM", ""), {"id": 0, "issue_date": 2}, False),
        (("more", "id", "issuedate"), {"id": 1, "issue_date": 2, "more": 0}, True),
    ],
)
def test_columns_are_found_by_name(
    names: tuple[str, ...], positions: dict[str, int], reordered: bool
) -> None:
    match = match_header(names, CONTRACT)
    assert match.positions == positions
    assert match.reordered == reordered
    assert match.absent == tuple(f for f in ("more",) if f not in positions)
    assert len(match.extra) == len(names) - len(positions)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("id", "issue_date", "id"), ("Columns 1 and 3", "mean 'id'")),
        (("Permit #", "x", "issue_date", "NO"), ("Columns 1 and 4", "mean 'id'")),
        (("id", "issue_date", "Datum"), ("Columns 2 and 3", "mean 'issue")),
        (("id", "issue_date", "a", " a "), ("Columns 3 and 4", "the same name")),
        (("more", "id", "issue_date", "More"), ("Columns 1 and 4", "mean 'more'")),
    ],
)
def test_a_name_twice_is_refused_with_both_positions(
    names: tuple[str, ...], said: tuple[str, str]
) -> None:
    with pytest.raises(PermanentError) as error:
        match_header(names, CONTRACT)
    assert error.value.code is Code.DUPLICATE_HEADER
    assert all(part in error.value.detail for part in said)


def test_columns_without_a_name_may_be_many() -> None:
    match = match_header(("id", "", "issue_date", "", " "), CONTRACT)
    assert match.extra == ("", "", " ")


@pytest.mark.parametrize(
    ("names", "missing"),
    [(("id",), "'issue_date'"), (("x", "y"), "'id', 'issue_date'"), (("more",), "'id'")],
)
def test_a_required_column_that_is_not_there_is_named(names: tuple[str, ...], missing: str) -> None:
    with pytest.raises(PermanentError) as error:
        match_header(names, CONTRACT)
    assert error.value.code is Code.MISSING_COLUMN
    assert missing in error.value.detail
    assert "'more'" not in error.value.detail


@given(st.permutations(["id", "issue_date", "more", "one", "two"]), st.data())
def test_any_order_and_any_case_give_the_same_fields(names: list[str], data: Any) -> None:
    dressed = [
        data.draw(st.sampled_from([n, n.upper(), n.title(), f" {n}", n.replace("_", " ")]))
        for n in names
    ]
    match = match_header(tuple(dressed), CONTRACT)
    assert {field: names[place] for field, place in match.positions.items()} == {
        field: field for field in ("id", "issue_date", "more")
    }
    assert [n.strip().lower() for n in match.extra] == [n for n in names if n in {"one", "two"}]
    known = [n for n in names if n not in {"one", "two"}]
    assert match.reordered == (known != ["id", "issue_date", "more"])


def test_a_file_without_a_header_is_told_so_without_its_cells() -> None:
    with pytest.raises(PermanentError) as error:
        match_header(("John Smith", "John Smith", "12"), CONTRACT)
    assert error.value.code is Code.MISSING_COLUMN
    assert "Smith" not in error.value.detail
