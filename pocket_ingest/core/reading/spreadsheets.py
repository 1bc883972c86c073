"""Workbooks (XLSX, XLSM, XLS, XLSB, ODS): the sheet with the table, cell by cell.

Calamine reads them, by two packages: python-calamine gives each cell with its own type, and
fastexcel, asked only where a sheet may hold some, says which empty cells are errors.

What is defined here: the value of merged cells stands in the first of them, the others are empty.
Hidden rows and columns are read like any other. A formula is its last computed value. Rows and
columns that are formatted but empty at the end are not there. Lines are the sheet's own row
numbers.

Here: the choice of a sheet, and its rows as records of text. Not here: how a value is spelled
(cells.py), where the header stands (layout.py).
"""

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

import python_calamine as calamine

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.reading.cells import spell
from pocket_ingest.core.reading.expectation import CellForm, Expectation
from pocket_ingest.core.reading.layout import (
    LOOKED_AT,
    MOST_FOOTER_ROWS,
    Layout,
    count_footer,
    find_layout,
)
from pocket_ingest.core.reading.records import (
    Found,
    Header,
    LineAccount,
    MalformedRecord,
    Notice,
    ReadingLimits,
    RecordChunk,
)
from pocket_ingest.core.reading.rows import RowChunks, csv_line

ZIP = b"PK\x03\x04"
BLOCK_BYTES = 2**20
ERROR_MARK = b't="e"'
PLAIN = CellForm()
MOST_NAMED = 5
Cell = object


@dataclass(frozen=True, kw_only=True)
class _Sheet:
    """A sheet with its rows: ``first_row`` is the number of the first one, from 1."""

    name: str
    first_row: int
    first_column: int
    rows: Sequence[Sequence[Cell]]

    def texts(self, start: int, end: int) -> list[list[str | None]]:
        """Some rows as text, each as wide as it is filled: a sheet has the width of its widest."""
        return [
            [spell(_value(cell), PLAIN) for cell in row[: _extent(row)]]
            for row in self.rows[start:end]
        ]


@dataclass(frozen=True, kw_only=True)
class _Choice:
    sheet: _Sheet
    layout: Layout
    is_whole: bool
    rank: tuple[int, ...]


class SheetReading:
    """A sheet, opened; fulfils ``Reading``."""

    def __init__(
        self,
        choice: _Choice,
        errors: set[tuple[int, int]],
        *,
        expectation: Expectation,
        limits: ReadingLimits,
        found: Found,
    ) -> None:
        sheet, layout = choice.sheet, choice.layout
        self._sheet, self._errors = sheet, errors
        self._forms = expectation.forms(layout.names)
        self._chunks = RowChunks(len(layout.names), limits)
        first = layout.header_at + layout.header_rows
        header = sheet.texts(layout.header_at, first)
        self.header = Header(
            names=layout.names,
            line=sheet.first_row + layout.header_at if header else 0,
            raw=csv_line(layout.names),
            rows=tuple(tuple(cell or "" for cell in _widened(row, layout)) for row in header),
        )
        self.found = found
        start = max(first, len(sheet.rows) - LOOKED_AT)
        last = sheet.texts(start, len(sheet.rows))
        count = _footer_rows([_widened(row, layout) for row in last], layout, expectation)
        self._first, self._end = first, len(sheet.rows) - count
        footer = last[len(last) - count :]
        before = sheet.texts(0, layout.header_at)
        blank = [not any(row) for row in (*before, *footer)]
        titles = len(before) - sum(blank[: len(before)])
        self._outside = LineAccount(
            title_lines=titles,
            header_lines=len(header),
            footer_lines=len(footer) - sum(blank[len(before) :]),
            blank_lines=sheet.first_row - 1 + sum(blank),
        )
        self._blank = self._taken = 0
        self._started = False

    @property
    def records_read(self) -> int:
        """Records met so far."""
        return self._chunks.records_read

    @property
    def account(self) -> LineAccount:
        """The rows read so far."""
        return replace(
            self._outside,
            record_lines=self._chunks.records_read,
            blank_lines=self._outside.blank_lines + self._blank,
        )

    def __iter__(self) -> Iterator[RecordChunk]:
        if self._started:
            raise RuntimeError("a reading is iterable once; open the file again")
        self._started = True
        return self._walk()

    def split(self, record: MalformedRecord) -> tuple[str, ...]:
        """The cells of a malformed record."""
        row = self._sheet.rows[record.line - self._sheet.first_row]
        cells = [
            "#ERROR" if (record.line, place) in self._errors else spell(_value(cell), PLAIN) or ""
            for place, cell in enumerate(row)
        ]
        width = len(self._forms)
        return tuple(cells[:width]) if not any(cells[width:]) else tuple(cells)

    def _walk(self) -> Iterator[RecordChunk]:
        width = len(self._forms)
        for at in range(self._first, self._end):
            row, line = self._sheet.rows[at], self._sheet.first_row + at
            wrong = [place for place in range(len(row)) if (line, place) in self._errors]
            if not wrong and not any(map(_is_filled, row)):
                self._blank += 1
                continue
            cells = [
                spell(_value(cell), form) for cell, form in zip(row, self._forms, strict=False)
            ]
            cells += [None] * (width - len(cells))
            if wrong:
                yield from self._refuse_error(cells, wrong[0], line)
            elif any(_is_filled(cell) for cell in row[width:]):
                count = _extent(row)
                hint = f"found {count} fields, expected {width}"
                raw = csv_line([spell(_value(cell), PLAIN) for cell in row])
                yield from self._chunks.refuse(line, Code.FIELD_COUNT, hint, raw)
            else:
                yield from self._chunks.add(cells, line)
        yield from self._chunks.rest()

    def _refuse_error(
        self, cells: list[str | None], place: int, line: int
    ) -> Iterator[RecordChunk]:
        cells = ["#ERROR" if (line, n) in self._errors else cell for n, cell in enumerate(cells)]
        name = f"{_letters(self._sheet.first_column + place)}{line}"
        hint = f"cell {name} holds an error, like #REF! or #N/A"
        yield from self._chunks.refuse(line, Code.ERROR_CELL, hint, csv_line(cells), field=place)


def open_spreadsheet(
    source: BinaryIO, *, expectation: Expectation, limits: ReadingLimits
) -> SheetReading:
    """Open a workbook for one walk through the sheet with the table.

    Args:
        source: seekable; all of it is the workbook.
        expectation: the contract's columns, if there is one, and what is declared.
        limits: bounds.

    Raises:
        PermanentError: ambiguous_sheet, missing_sheet, empty_file, too_many_columns,
            spreadsheet_unreadable, spreadsheet_too_large, unsupported_type.
    """
    form = _form(source, limits)
    source.seek(0)
    try:
        workbook = calamine.CalamineWorkbook.from_filelike(source)
    except calamine.PasswordError as error:
        raise PermanentError(
            Code.SPREADSHEET_UNREADABLE,
            "The workbook is protected by a password. Save it without one and send it again.",
        ) from error
    except (calamine.CalamineError, calamine.XmlError, calamine.ZipError, OSError) as error:
        raise _unreadable() from error
    notices: list[Notice] = []
    choice = _choose(workbook, expectation, notices)
    if len(choice.layout.names) > limits.max_columns:
        raise PermanentError(
            Code.TOO_MANY_COLUMNS,
            f"The sheet has {len(choice.layout.names)} columns; at most {limits.max_columns} are "
            "read.",
        )
    found = Found(format=form, sheet=choice.sheet.name, notices=tuple(notices))
    return SheetReading(
        choice,
        _error_cells(source, form, choice.sheet),
        expectation=expectation,
        limits=limits,
        found=found,
    )


def _unreadable() -> PermanentError:
    return PermanentError(
        Code.SPREADSHEET_UNREADABLE,
        "The workbook is damaged, or no workbook of a known version. Open it, save it again and "
        "send it.",
    )


def _form(source: BinaryIO, limits: ReadingLimits) -> str:
    """The format, with a look at how much memory it will take."""
    source.seek(0)
    if source.read(len(ZIP)) != ZIP:
        size = source.seek(0, 2)
        _refuse_large(size, limits)
        return "xls"
    try:
        with zipfile.ZipFile(source) as archive:
            members = archive.infolist()
            names = {member.filename for member in members}
            # A shared text and a cell take more memory than what stands for them in XML.
            _refuse_large(sum(_real_size(archive, member, limits) for member in members), limits)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise _unreadable() from error
    if "xl/workbook.xml" in names:
        return "xlsx"
    if "xl/workbook.bin" in names:
        return "xlsb"
    if "content.xml" in names:
        return "ods"
    raise PermanentError(
        Code.UNSUPPORTED_TYPE,
        "The file is a document, not a workbook. Export the table as CSV and send it again.",
    )


def _real_size(archive: zipfile.ZipFile, member: zipfile.ZipInfo, limits: ReadingLimits) -> int:
    """Bytes of a member, unpacked and counted where the declared number could be a lie."""
    if not member.filename.startswith("xl/worksheets/sheet") and member.filename not in {
        "content.xml",
        "xl/sharedStrings.xml",
    }:
        return 0
    if member.file_size > limits.max_sheet_bytes:
        return member.file_size
    size = 0
    with archive.open(member) as content:
        while block := content.read(BLOCK_BYTES):
            size += len(block)
            if size > limits.max_sheet_bytes:
                break
    return size


def _refuse_large(size: int, limits: ReadingLimits) -> None:
    if size > limits.max_sheet_bytes:
        raise PermanentError(
            Code.SPREADSHEET_TOO_LARGE,
            f"The workbook's sheets are larger than {limits.max_sheet_bytes} bytes, which is more "
            "than is read at once. Save the sheet as CSV and send that.",
        )


# -- the choice of a sheet ---------------------------------------------------------------------


def _choose(
    workbook: calamine.CalamineWorkbook, expectation: Expectation, notices: list[Notice]
) -> _Choice:
    names = _candidates(workbook, expectation.format.sheet)
    choices = []
    for name in names:
        sheet = _load(workbook, name)
        if sheet is None:
            continue
        choices.append(_choice(sheet, expectation))
        if not expectation.columns:
            break
    if not choices:
        raise PermanentError(Code.EMPTY_FILE, "The workbook has no sheet with a filled cell.")
    whole = [choice for choice in choices if choice.is_whole]
    if len(whole) > 1:
        told = " and ".join(repr(choice.sheet.name) for choice in whole[:MOST_NAMED])
        raise PermanentError(
            Code.AMBIGUOUS_SHEET,
            f"The sheets {told} all have the contract's columns. Remove all but one, or declare "
            "FileFormat(sheet=...).",
        )
    chosen = min(choices, key=lambda choice: choice.rank)
    others = [name for name in names if name != chosen.sheet.name]
    if others and not expectation.format.sheet:
        told = ", ".join(repr(name) for name in others[:MOST_NAMED])
        notices.append(
            Notice(code=Code.OTHER_SHEETS, detail=f"The workbook has other sheets: {told}.")
        )
    return chosen


def _candidates(workbook: calamine.CalamineWorkbook, declared: str | None) -> list[str]:
    """Sheets of cells, visible ones first."""
    sheets = [
        sheet for sheet in workbook.sheets_metadata if sheet.typ == calamine.SheetTypeEnum.WorkSheet
    ]
    visible = calamine.SheetVisibleEnum.Visible
    names = [sheet.name for sheet in sorted(sheets, key=lambda one: one.visible != visible)]
    if declared is None:
        return names
    if declared not in names:
        told = ", ".join(repr(name) for name in names[:MOST_NAMED])
        raise PermanentError(
            Code.MISSING_SHEET, f"The workbook has no sheet {declared!r}. It has: {told}."
        )
    return [declared]


def _load(workbook: calamine.CalamineWorkbook, name: str) -> _Sheet | None:
    """A sheet without what is empty around it; None if all of it is."""
    try:
        loaded = workbook.get_sheet_by_name(name)
        start = loaded.start
        rows = loaded.to_python(skip_empty_area=True) if start is not None else []
    except (calamine.CalamineError, calamine.XmlError, calamine.ZipError) as error:
        raise _unreadable() from error
    if start is None:
        return None
    while rows and not any(_is_filled(cell) for cell in rows[-1]):
        rows.pop()
    if not rows:
        return None
    return _Sheet(name=name, first_row=start[0] + 1, first_column=start[1], rows=rows)


def _choice(sheet: _Sheet, expectation: Expectation) -> _Choice:
    layout = find_layout(sheet.texts(0, LOOKED_AT), expectation)
    match = expectation.match(layout.names)
    return _Choice(
        sheet=sheet,
        layout=layout,
        is_whole=match.whole if expectation.columns else False,
        rank=match.rank if expectation.columns else (),
    )


def _footer_rows(
    last: Sequence[Sequence[str | None]], layout: Layout, expectation: Expectation
) -> int:
    declared = expectation.format.footer_lines
    if declared is None:
        return count_footer(last, layout)
    filled = [number for number, row in enumerate(last) if any(row)]
    if not declared or not filled:
        return 0
    return len(last) - filled[-min(declared, len(filled), MOST_FOOTER_ROWS)]


# -- cells -------------------------------------------------------------------------------------


def _value(cell: Cell) -> Cell:
    """The cell's value; an empty cell has none."""
    return None if cell == "" else cell


def _is_filled(cell: Cell) -> bool:
    return cell != "" and not (isinstance(cell, str) and cell.isspace())


def _extent(row: Sequence[Cell]) -> int:
    """Cells up to the last one that is filled."""
    return max((place + 1 for place, cell in enumerate(row) if _is_filled(cell)), default=0)


def _widened(row: Sequence[str | None], layout: Layout) -> list[str | None]:
    """A row with a cell for each name at least."""
    return [*row, *[None] * (len(layout.names) - len(row))]


def _letters(column: int) -> str:
    """The name of a column: 0 is A, 26 is AA."""
    name = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        name = chr(ord("A") + rest) + name
    return name


def _error_cells(source: BinaryIO, form: str, sheet: _Sheet) -> set[tuple[int, int]]:
    """Row number and place in the row of each error; python-calamine shows them as empty."""
    if form == "xlsx" and not _may_hold_errors(source):
        return set()
    import fastexcel  # noqa: PLC0415 - for the few workbooks that need it

    source.seek(0)
    try:
        loaded = fastexcel.read_excel(source.read()).load_sheet(
            sheet.name, header_row=None, dtypes="string"
        )
        _, errors = loaded.to_arrow_with_errors()
    except fastexcel.FastExcelError as error:
        raise _unreadable() from error
    found = errors.errors if errors else []
    return {(sheet.first_row + row, column) for row, column in (one.position for one in found)}


def _may_hold_errors(source: BinaryIO) -> bool:
    """Whether any sheet has a cell of the type for errors."""
    source.seek(0)
    with zipfile.ZipFile(source) as archive:
        for name in archive.namelist():
            if not name.startswith("xl/worksheets/"):
                continue
            before = b""
            with archive.open(name) as content:
                while block := content.read(BLOCK_BYTES):
                    if ERROR_MARK in before + block:
                        return True
                    before = block[-len(ERROR_MARK) :]
    return False
