"""Workbooks that would take all memory are refused before they do; honest ones are not."""

import io
import zipfile

import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl.styles import Font

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.reading.workbook_sizes import CELL_BYTES, PLACE_BYTES, TooLarge, measure
from pocket_ingest_tests.unit.reading.formats import read_whole
from pocket_ingest_tests.unit.reading.workbooks import ods, xlsb, xlsx

HEAD = '<row r="1"><c r="A1" t="inlineStr"><is><t>id</t></is></c></row>'
TEXT_ROW = '<table:table-row{0}><table:table-cell office:value-type="string"{1}>'
TEXT_ROW += "<text:p>some text</text:p></table:table-cell></table:table-row>"
NOTE = "a note of some length " * 1_000
NOTES = "".join(f'<row r="{n}"><c r="A{n}" t="s"><v>0</v></c></row>' for n in range(1, 20_000))
WIDE_ROW = "<row>" + "<c><v>1</v></c>" * 16_000 + "</row>"

BOMBS = {
    "a value in the last cell": xlsx(
        HEAD + '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
    ),
    "in single quotes": xlsx(HEAD + "<row r='1048576'><c r='XFD1048576'><v>1</v></c></row>"),
    "with its place at the end of the tag": xlsx(
        HEAD + '<row r="1048576"><c t="n" s="1"\n r="XFD1048576"><v>1</v></c></row>'
    ),
    "a long text in many cells": xlsx(NOTES, shared=[NOTE]),
    "a wide row and many rows, without their places": xlsx(
        WIDE_ROW + "<row><c><v>1</v></c></row>" * 2_000
    ),
    "XLSB: a value in the last cell": xlsb({0: {0: "id"}, 1_048_575: {16_383: 1.0}}),
    "XLSB: a long text in many cells": xlsb(
        {row: {0: (0,)} for row in range(20_000)}, shared=[NOTE]
    ),
    "ODS: a repeated row": ods(TEXT_ROW.format(' table:number-rows-repeated="1048576"', "")),
    "ODS: repeated rows of repeated cells": ods(
        TEXT_ROW.format("", "")
        + TEXT_ROW.format(
            ' table:number-rows-repeated="100000"', ' table:number-columns-repeated="16384"'
        )
    ),
    "ODS: a value below many empty rows": ods(
        TEXT_ROW.format("", "")
        + '<table:table-row table:number-rows-repeated="1000000"><table:table-cell '
        'table:number-columns-repeated="1000"/></table:table-row>'
        + TEXT_ROW.format("", "").replace(
            "<table:table-cell",
            '<table:table-cell table:number-columns-repeated="999"/><table:table-cell',
        )
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_refused(bomb):
    with pytest.raises(PermanentError) as refused:
        read_whole(BOMBS[bomb], max_sheet_bytes=32 * 2**20)
    assert refused.value.code is Code.SPREADSHEET_TOO_LARGE


def test_what_is_empty_takes_no_memory():
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["id"])
    sheet.append(["a"])
    for place in ("XFD1", "A1048576", "XFD1048576"):
        sheet[place].font = Font(bold=True)
    target = io.BytesIO()
    book.save(target)
    assert read_whole(target.getvalue(), max_sheet_bytes=100_000).rows == [("a",)]


def test_what_an_office_repeats_to_the_end_takes_no_memory():
    tail = '<table:table-row table:number-rows-repeated="1048574"><table:table-cell '
    tail += 'table:number-columns-repeated="16384"/></table:table-row>'
    data = ods(TEXT_ROW.format("", "") * 2 + tail)
    assert read_whole(data, max_sheet_bytes=100_000).rows == [("some text",)]


def test_places_may_be_left_out():
    row = "<row><c t='s'><v>{}</v></c><c><v>{}</v></c></row>"
    rows = row.format(0, 1) + row.format(1, 2)
    whole = read_whole(xlsx(rows, shared=["id", "a"]), max_sheet_bytes=100_000)
    assert whole.rows == [("id", "1"), ("a", "2")]


@settings(max_examples=60, deadline=None)
@given(
    places=st.sets(st.tuples(st.integers(1, 3_000), st.integers(1, 800)), min_size=1, max_size=12),
    empty=st.sets(st.tuples(st.integers(1, 4_000), st.integers(1, 1_000)), max_size=5),
    at_once=st.sampled_from([64, 300, 2**20]),
)
def test_the_places_of_the_filled_cells_decide(places, empty, at_once):
    book = openpyxl.Workbook()
    for row, column in empty - places:
        book.active.cell(row, column).font = Font(bold=True)
    for row, column in places:
        book.active.cell(row, column).value = row * column
    target = io.BytesIO()
    book.save(target)
    rectangle = max(row for row, _ in places) * max(column for _, column in places)
    size = len(places) * CELL_BYTES + rectangle * PLACE_BYTES
    with pytest.MonkeyPatch.context() as patch, zipfile.ZipFile(target) as archive:
        patch.setattr("pocket_ingest.core.reading.workbook_sizes.BLOCK_BYTES", at_once)
        assert measure(archive, most=size) is False
        with pytest.raises(TooLarge):
            measure(archive, most=size - 1)
