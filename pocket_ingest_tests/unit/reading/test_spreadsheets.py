"""Workbooks: the right sheet, values with their types, errors that are found."""

import datetime as dt
import io
import zipfile

import openpyxl
import pytest
import xlwt
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl.utils.datetime import CALENDAR_MAC_1904

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.file_format import FileFormat
from pocket_ingest.core.reading.expectation import CellForm, Expectation, ExpectedColumn, fold
from pocket_ingest_tests.unit.reading.formats import read_whole
from pocket_ingest_tests.unit.reading.workbooks import ods, xlsb

PLAIN = CellForm()
Sheets = dict[str, list[list[object]]]


def workbook(sheets: Sheets, *, change=lambda book: None) -> bytes:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    change(book)
    target = io.BytesIO()
    book.save(target)
    return target.getvalue()


def old_workbook(rows: list[list[object]]) -> bytes:
    book = xlwt.Workbook()
    sheet = book.add_sheet("Data")
    day = xlwt.easyxf(num_format_str="YYYY-MM-DD")
    for y, row in enumerate(rows):
        for x, value in enumerate(row):
            if isinstance(value, dt.date):
                sheet.write(y, x, value, day)
            elif value is not None:
                sheet.write(y, x, value)
    target = io.BytesIO()
    book.save(target)
    return target.getvalue()


def expecting(*names: str, form: CellForm | None = None, **declared) -> Expectation:
    return Expectation(
        columns=tuple(
            ExpectedColumn(name=name, headers=frozenset({fold(name)}), form=form or PLAIN)
            for name in names
        ),
        format=FileFormat(**declared),
    )


DAY = dt.date(2024, 3, 5)
MOMENT = dt.datetime(2024, 3, 5, 10, 11, 12)


def test_values_keep_their_types():
    rows = [
        ["zip", "n", "x", "day", "at", "ok", "long"],
        ["02134", 3, 0.1, DAY, MOMENT, True, "12345678901234567890"],
        [" NA ", -7, 1e20, None, None, False, 123456789012345],
    ]
    whole = read_whole(workbook({"Data": rows}))
    assert whole.rows == [
        ("02134", "3", "0.1", "2024-03-05", "2024-03-05T10:11:12", "true", "12345678901234567890"),
        (" NA ", "-7", "1" + "0" * 20, None, None, "false", "123456789012345"),
    ]
    assert whole.lines == [2, 3]
    assert (whole.found.format, whole.found.sheet) == ("xlsx", "Data")
    assert whole.raws[1] == b" NA ,-7,100000000000000000000,,,false,123456789012345"


def test_dates_are_spelled_as_the_contract_reads_them():
    data = workbook({"Data": [["day", "amount"], [DAY, 1.5]]})
    form = CellForm(date="%m/%d/%Y", decimal_mark=",")
    whole = read_whole(data, expectation=expecting("day", "amount", form=form))
    assert whole.rows == [("03/05/2024", "1,5")]


def test_a_date_in_a_column_of_timestamps_is_its_midnight():
    data = workbook({"Data": [["at"], [DAY]]})
    form = CellForm(is_instant=True)
    assert read_whole(data, expectation=expecting("at", form=form)).rows == [
        ("2024-03-05T00:00:00",)
    ]


def test_the_system_of_1904():
    def change(book):
        book.epoch = CALENDAR_MAC_1904

    assert read_whole(workbook({"Data": [["day"], [DAY]]}, change=change)).rows == [("2024-03-05",)]


def test_the_table_may_begin_anywhere():
    rows = [[], ["", "", "Permits of 2024"], [], ["", "", "id", "name"], ["", "", "1", "a"], []]
    rows += [["", "", "2", "b"], ["", "", "Source: the county"]]
    cells = [[cell or None for cell in row] for row in rows]
    whole = read_whole(workbook({"Data": cells}))
    assert whole.names == ("id", "name")
    assert whole.rows == [("1", "a"), ("2", "b")]
    assert whole.lines == [5, 7]
    account = whole.account
    assert (account.title_lines, account.header_lines, account.footer_lines) == (1, 1, 1)
    assert (account.record_lines, account.blank_lines, account.total) == (2, 3, 8)


def test_an_empty_tail_that_is_formatted_is_not_there():
    def change(book):
        for row in range(3, 2_000):
            book["Data"].cell(row, 5).number_format = "0.00"

    whole = read_whole(workbook({"Data": [["id", "n"], ["a", 1]]}, change=change))
    assert whole.rows == [("a", "1")]
    assert whole.account.total == 2


@pytest.mark.parametrize("error", ["#REF!", "#N/A", "#DIV/0!", "#NAME?"])
def test_an_error_costs_its_record(error):
    rows = [["id", "n"], ["a", 1], ["b", error], ["c", None], ["d", 2]]
    whole = read_whole(workbook({"Data": rows}))
    assert whole.rows == [("a", "1"), ("c", None), ("d", "2")]
    assert whole.faults == [(2, 3, "error_cell")]
    assert whole.fields == [("b", "#ERROR")]


def test_a_wide_row_costs_its_record():
    whole = read_whole(
        workbook({"Data": [["id", "n"], ["a", 1], ["b", 2, "more"], ["c", 3]]}),
        expectation=expecting("id", "n"),
    )
    assert whole.faults == [(2, 3, "field_count")]
    assert whole.fields == [("b", "2", "more")]


def test_merged_cells_have_their_value_once():
    def change(book):
        book["Data"].merge_cells("A2:A3")

    whole = read_whole(
        workbook({"Data": [["id", "n"], ["a", 1], [None, 2]]}, change=change),
        expectation=expecting("id", "n"),
    )
    assert whole.rows == [("a", "1"), (None, "2")]


def test_hidden_rows_are_read():
    def change(book):
        book["Data"].row_dimensions[2].hidden = True

    whole = read_whole(workbook({"Data": [["id", "n"], ["a", 1], ["b", 2]]}, change=change))
    assert whole.rows == [("a", "1"), ("b", "2")]


TABLE = [["id", "n"], ["a", 1]]
OTHER = [["x", "y", "z"], [1, 2, 3]]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_sheet_that_fits_the_contract(place):
    sheets = [("One", OTHER), ("Two", [["note"], ["see below"]])]
    sheets.insert(place, ("Right", TABLE))
    whole = read_whole(workbook(dict(sheets)), expectation=expecting("id", "n"))
    assert (whole.found.sheet, whole.rows) == ("Right", [("a", "1")])


def test_two_sheets_that_fit_are_refused_by_name():
    with pytest.raises(PermanentError, match="'June' and 'July'") as refused:
        read_whole(workbook({"June": TABLE, "July": TABLE}), expectation=expecting("id", "n"))
    assert refused.value.code is Code.AMBIGUOUS_SHEET


def test_the_declared_sheet_is_read():
    data = workbook({"June": TABLE, "July": TABLE})
    assert read_whole(data, expectation=expecting("id", "n", sheet="July")).found.sheet == "July"
    with pytest.raises(PermanentError, match="'June', 'July'") as refused:
        read_whole(data, expectation=expecting("id", "n", sheet="May"))
    assert refused.value.code is Code.MISSING_SHEET


def test_without_a_contract_the_first_visible_sheet_is_read():
    def change(book):
        book["Hidden"].sheet_state = "hidden"

    data = workbook({"Hidden": OTHER, "Empty": [], "Data": TABLE, "More": OTHER}, change=change)
    whole = read_whole(data)
    assert whole.found.sheet == "Data"
    assert [notice.code for notice in whole.found.notices] == [Code.OTHER_SHEETS]


def test_an_empty_workbook_is_empty():
    with pytest.raises(PermanentError) as refused:
        read_whole(workbook({"Data": [], "More": []}))
    assert refused.value.code is Code.EMPTY_FILE


def test_a_workbook_of_the_old_format():
    whole = read_whole(old_workbook([["id", "n", "day"], ["007", 3, DAY], ["b", 0.5, None]]))
    assert whole.found.format == "xls"
    assert whole.rows == [("007", "3", "2024-03-05"), ("b", "0.5", None)]


def test_an_open_document():
    rows = [["id", "name"], ["007", "Zoë"], ["8", "b"]]
    cell = '<table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>'
    told = ["".join(map(cell.format, row)) for row in rows]
    whole = read_whole(ods("".join(f"<table:table-row>{row}</table:table-row>" for row in told)))
    assert whole.found.format == "ods"
    assert whole.rows == [("007", "Zoë"), ("8", "b")]


def test_a_binary_workbook():
    rows = {0: {0: "id", 1: "n"}, 1: {0: (1,), 1: 3.0}, 4: {0: "b", 1: 0.5}}
    whole = read_whole(xlsb(rows, shared=["", "007"]))
    assert whole.found.format == "xlsb"
    assert whole.rows == [("007", "3"), ("b", "0.5")]
    assert whole.lines == [2, 5]


def test_a_sheet_that_is_cut_is_refused():
    data = xlsb({0: {0: "id"}, 1: {0: "a"}})
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["xl/worksheets/sheet1.bin"] = members["xl/worksheets/sheet1.bin"][:-12]
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(PermanentError) as refused:
        read_whole(target.getvalue())
    assert refused.value.code is Code.SPREADSHEET_UNREADABLE


@pytest.mark.parametrize("name", ["table.csv", "table.txt"])
def test_a_wrong_extension_is_said_and_survived(name):
    whole = read_whole(workbook({"Data": TABLE}), name=name)
    assert whole.rows == [("a", "1")]
    codes = [notice.code for notice in whole.found.notices]
    assert codes == ([Code.WRONG_EXTENSION] if name == "table.csv" else [])


@pytest.mark.parametrize("cut", [50, 1_000, -200])
def test_a_damaged_workbook_is_refused(cut):
    with pytest.raises(PermanentError) as refused:
        read_whole(workbook({"Data": TABLE})[:cut])
    assert refused.value.code in {Code.SPREADSHEET_UNREADABLE, Code.ARCHIVE_DAMAGED}


def test_another_document_is_refused():
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", "<x/>")
    with pytest.raises(PermanentError) as refused:
        read_whole(target.getvalue())
    assert refused.value.code is Code.UNSUPPORTED_TYPE


def test_a_sheet_that_is_too_large_is_refused_before_it_is_read():
    data = workbook({"Data": [["id", "n"], *([f"row {n}", n] for n in range(2_000))]})
    with pytest.raises(PermanentError) as refused:
        read_whole(data, max_sheet_bytes=10_000)
    assert refused.value.code is Code.SPREADSHEET_TOO_LARGE


VALUES = st.one_of(
    st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), min_size=1, max_size=8),
    st.integers(-(10**9), 10**9),
    st.booleans(),
    st.dates(dt.date(1950, 1, 1), dt.date(2100, 1, 1)),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(VALUES, min_size=2, max_size=2), min_size=1, max_size=6))
def test_any_table_comes_back(rows):
    def text(value):
        if isinstance(value, bool):
            return str(value).lower()
        return value.isoformat() if isinstance(value, dt.date) else str(value)

    def change(book):
        # A text that begins with = is a formula to openpyxl.
        for row in book["Data"].iter_rows():
            for cell in row:
                if cell.data_type == "f":
                    cell.data_type = "s"

    expectation = expecting("first name", "second name", footer_lines=0)
    data = workbook({"Data": [["first name", "second name"], *rows]}, change=change)
    whole = read_whole(data, expectation=expectation)
    told = [tuple(text(value) for value in row) for row in rows]
    filled = [row for row in told if any(cell.strip() for cell in row)]
    if len(filled) == len(told):
        assert whole.rows == told
