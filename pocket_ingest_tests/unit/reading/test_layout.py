"""Where the header stands and what is a footer."""

import pytest

from pocket_ingest.core.file_format import FileFormat
from pocket_ingest.core.reading.expectation import Expectation, ExpectedColumn, fold
from pocket_ingest.core.reading.layout import Layout, count_footer, find_layout

HEADER = ["Permit #", "Issued on", "Valuation"]
RECORDS = [
    ["B-1", "2024-01-05", "1200"],
    ["B-2", "2024-01-06", "350"],
    ["B-3", "2024-01-09", "9000"],
    ["B-4", "2024-02-01", "100"],
]


def expecting(*names: str, optional: tuple[str, ...] = (), **declared) -> Expectation:
    return Expectation(
        columns=tuple(
            ExpectedColumn(
                name=name, headers=frozenset([fold(name)]), required=name not in optional
            )
            for name in (*names, *optional)
        ),
        format=FileFormat(**declared),
    )


CONTRACT = expecting("permit", "issued on", "valuation")


@pytest.mark.parametrize(
    "titles",
    [
        [],
        [["Building permits, 2024"], []],
        [["Report", "", ""], ["", "", ""]],
        [["Printed on", "2024-03-01"], [], ["County of Birch"], []],
        [[], [], []],
    ],
)
@pytest.mark.parametrize("expectation", [CONTRACT, Expectation()])
def test_titles_before_the_header(titles, expectation):
    found = find_layout([*titles, HEADER, *RECORDS], expectation)
    assert found == Layout(header_at=len(titles), header_rows=1, names=tuple(HEADER))


def test_the_contract_finds_a_header_that_looks_like_a_title():
    rows = [["x", "y", "z"], ["PERMIT", "Issued_On", " valuation "], *RECORDS]
    assert find_layout(rows, CONTRACT).header_at == 1


def test_several_header_rows_are_joined_under_their_groups():
    rows = [["", "2024", "", "2025"], ["city", "in", "out", "in"], ["Ulm", "1", "2", "3"]]
    wanted = expecting("city", "2024 in", "2024 out", "2025 in")
    found = find_layout(rows, wanted)
    assert (found.header_at, found.header_rows) == (0, 2)
    assert found.names == ("city", "2024 in", "2024 out", "2025 in")


def test_one_header_row_is_enough_where_it_names_as_much():
    rows = [HEADER, ["text", "date", "number"], *RECORDS]
    assert find_layout(rows, CONTRACT).header_rows == 1


def test_no_header_where_the_contract_says_so():
    found = find_layout(RECORDS, expecting("a", "b", "c", header_rows=0))
    assert found == Layout(header_at=0, header_rows=0, names=("a", "b", "c"))


def test_a_file_of_records_alone_gets_names_by_place():
    found = find_layout([["1", "2024-01-05", "x"], ["2", "2024-01-06", "y"]], Expectation())
    assert found.header_rows == 0
    assert found.names == ("column_1", "column_2", "column_3")


@pytest.mark.parametrize("header", [["country", "2010", "2011"], ["2010", "2011", "2012"]])
def test_years_are_names(header):
    rows = [header, ["1", "3", "4"], ["2", "6", "7"]]
    assert find_layout(rows, Expectation()).names == tuple(header)


def test_skipped_lines_are_what_is_declared():
    found = find_layout([["a", "b"], ["c", "d"], ["1", "2"]], expecting("c", "d", skip_lines=1))
    assert found.header_at == 1


def test_records_with_an_empty_cell_behind_the_header():
    found = find_layout([["a", "b"], ["1", "2", ""], ["3", "4", ""]], expecting("a", "b"))
    assert found.names == ("a", "b", "")


def test_a_header_with_an_empty_name_behind_the_records():
    assert find_layout([["a", "b", ""], ["1", "2"], ["3", "4"]], expecting("a", "b")).names == (
        "a",
        "b",
    )


LAYOUT = Layout(header_at=0, header_rows=1, names=tuple(HEADER))


@pytest.mark.parametrize(
    ("footer", "count"),
    [
        ([], 0),
        ([[], []], 2),
        ([["", "", ""], ["", "", ""]], 2),
        ([["Total", "", "10650"]], 1),
        ([["Grand Total:", "", ""]], 1),
        ([["", "Total", "10650"]], 1),
        ([[], ["Source: County of Birch, 2024"]], 2),
        ([["Note: valuations are estimates"], ["", "", ""], ["end of report"]], 3),
        # What could be a record, or the half of one, stays a record.
        ([["B-5"]], 0),
        ([["B-5", "2024-02-03"]], 0),
        ([["Total", "2024-02-03", "77"]], 0),
        ([["B-5", "2024-02-03", "77", "x"]], 0),
    ],
)
def test_footers(footer, count):
    assert count_footer([*RECORDS, *footer], LAYOUT) == count


@pytest.mark.parametrize("last", [["1"], ["Total"], ["Source: me"]])
def test_one_column_has_no_footer(last):
    layout = Layout(header_at=0, header_rows=1, names=("a",))
    assert count_footer([["x"], ["y"], last], layout) == 0
