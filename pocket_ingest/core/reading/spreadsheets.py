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
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import BinaryIO, cast
from xml.parsers import expat

import python_calamine as calamine

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.reading.cells import spell, spell_column
from pocket_ingest.core.reading.expectation import CellForm, Expectation
from pocket_ingest.core.reading.grammar import Grammar
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
from pocket_ingest.core.reading.workbook_sizes import TooLarge, measure

ZIP = b"PK\x03\x04"
FORMS = {"xl/workbook.xml": "xlsx", "xl/workbook.bin": "xlsb", "content.xml": "ods"}
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    expat.ExpatError,
    OSError,
    EOFError,
    ValueError,
    NotImplementedError,
    RuntimeError,
)
PLAIN = CellForm()
GRAMMAR = Grammar(delimiter=b",", quote=b'"', max_record_bytes=2**30)
"""How the bytes of a malformed record are written."""
MOST_NAMED = 5
BLOCK_ROWS = 500
"""Rows that are spelled at once, column by column."""
Cell = object


@dataclass(frozen=True, kw_only=True)
class _Sheet:
    """A sheet up to its last filled row.

    Attributes:
        name: its name.
        first_row: number of the first row, from 1.
        first_column: number of the first column, from 0.
        size: how many rows there are.
        head: the first of them.
        tail: the last of them.
        rows: gives all of them, one after the other.
    """

    name: str
    first_row: int
    first_column: int
    size: int
    head: Sequence[Sequence[Cell]]
    tail: Sequence[Sequence[Cell]]
    rows: Callable[[], Iterator[Sequence[Cell]]]


def _texts(rows: Sequence[Sequence[Cell]]) -> list[list[str | None]]:
    """Rows as text, each as wide as it is filled: a sheet has the width of its widest."""
    return [[spell(_value(cell), PLAIN) for cell in row[: _extent(row)]] for row in rows]


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
        errors: dict[int, list[int]],
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
        header = _texts(sheet.head[layout.header_at : first])
        self.header = Header(
            names=layout.names,
            line=sheet.first_row + layout.header_at if header else 0,
            raw=csv_line(layout.names),
            rows=tuple(tuple(cell or "" for cell in _widened(row, layout)) for row in header),
        )
        self.found = found
        last = _texts(sheet.tail)[-(sheet.size - first) :] if sheet.size > first else []
        count = _footer_rows([_widened(row, layout) for row in last], layout, expectation)
        self._first, self._end = first, sheet.size - count
        footer = last[len(last) - count :]
        before = _texts(sheet.head[: layout.header_at])
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
        return tuple(field.decode() for field in GRAMMAR.split(record.raw))

    def _walk(self) -> Iterator[RecordChunk]:
        rows = islice(self._sheet.rows(), self._first, self._end)
        line = self._sheet.first_row + self._first
        width = len(self._forms)
        while block := list(islice(rows, BLOCK_ROWS)):
            columns = [
                spell_column(column, form)
                for column, form in zip(zip(*block, strict=True), self._forms, strict=False)
            ]
            columns += [[None] * len(block)] * (width - len(columns))
            lines = range(line, line + len(block))
            sound = len(block[0]) <= width and any(map(_is_full, columns))
            if sound and self._errors.keys().isdisjoint(lines):
                yield from self._chunks.add_columns(columns, line)
            else:
                for at, row, cells in zip(lines, block, zip(*columns, strict=True), strict=True):
                    yield from self._take(at, row, cells)
            line += len(block)
        yield from self._chunks.rest()

    def _take(
        self, line: int, row: Sequence[Cell], cells: Sequence[str | None]
    ) -> Iterator[RecordChunk]:
        width = len(cells)
        if line in self._errors:
            yield from self._refuse_error(list(cells), self._errors[line], line)
        elif any(map(_is_filled, row[width:])):
            hint = f"found {_extent(row)} fields, expected {width}"
            raw = csv_line(_texts([row])[0])
            yield from self._chunks.refuse(line, Code.FIELD_COUNT, hint, raw)
        elif not any(cell and not cell.isspace() for cell in cells):
            self._blank += 1
        else:
            yield from self._chunks.add(cells, line)

    def _refuse_error(
        self, cells: list[str | None], places: list[int], line: int
    ) -> Iterator[RecordChunk]:
        for place in places:
            cells[place : place + 1] = ["#ERROR"]
        name = f"{_letters(self._sheet.first_column + places[0])}{line}"
        hint = f"cell {name} holds an error, like #REF! or #N/A"
        raw = csv_line(cells)
        yield from self._chunks.refuse(line, Code.ERROR_CELL, hint, raw, field=places[0])


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
    form, may_hold_errors = _form(source, limits)
    source.seek(0)
    with _damage_refused():
        workbook = calamine.CalamineWorkbook.from_filelike(source)
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
        _error_cells(source, choice.sheet) if may_hold_errors else {},
        expectation=expectation,
        limits=limits,
        found=found,
    )


@contextmanager
def _damage_refused() -> Iterator[None]:
    """What calamine says of a workbook that it cannot read, as a refusal."""
    try:
        yield
    except calamine.PasswordError as error:
        raise PermanentError(
            Code.SPREADSHEET_UNREADABLE,
            "The workbook is protected by a password. Save it without one and send it again.",
        ) from error
    except (calamine.CalamineError, OSError, ValueError) as error:
        raise _unreadable() from error
    except BaseException as error:
        # A panic of the Rust code; its class, no Exception, cannot be imported.
        if type(error).__name__ == "PanicException":
            raise _unreadable() from error
        raise


def _unreadable() -> PermanentError:
    return PermanentError(
        Code.SPREADSHEET_UNREADABLE,
        "The workbook is damaged, or no workbook of a known version. Open it, save it again and "
        "send it.",
    )


def _form(source: BinaryIO, limits: ReadingLimits) -> tuple[str, bool]:
    """The format, and whether a cell may be an error; refused if it takes too much memory."""
    source.seek(0)
    if source.read(len(ZIP)) != ZIP:
        if source.seek(0, 2) > limits.max_sheet_bytes:
            raise _too_large(limits)
        return "xls", True
    try:
        with zipfile.ZipFile(source) as archive:
            names = set(archive.namelist())
            form = next((form for mark, form in FORMS.items() if mark in names), None)
            may_hold_errors = form is not None and measure(archive, most=limits.max_sheet_bytes)
    except TooLarge as error:
        raise _too_large(limits) from error
    except DAMAGED as error:
        raise _unreadable() from error
    if form is None:
        raise PermanentError(
            Code.UNSUPPORTED_TYPE,
            "The file is a document, not a workbook. Export the table as CSV and send it again.",
        )
    return form, may_hold_errors


def _too_large(limits: ReadingLimits) -> PermanentError:
    return PermanentError(
        Code.SPREADSHEET_TOO_LARGE,
        f"The workbook takes more than {limits.max_sheet_bytes} bytes of memory, which is more "
        "than one may. Save the sheet as CSV and send that; if it is small, delete what was typed "
        "far below or beside the table.",
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
    with _damage_refused():
        loaded = workbook.get_sheet_by_name(name)
    if loaded.start is None:
        return None
    head: list[Sequence[Cell]] = []
    tail: deque[Sequence[Cell]] = deque(maxlen=LOOKED_AT)
    size = 0
    blank: deque[Sequence[Cell]] = deque(maxlen=LOOKED_AT)
    first_row, first_column = loaded.start

    def rows() -> Iterator[Sequence[Cell]]:
        # They begin with the sheet's first row, filled or not, though not with its first column.
        return islice(loaded.iter_rows(), first_row, None)

    for number, row in enumerate(rows(), start=1):
        if number <= LOOKED_AT:
            head.append(row)
        blank.append(row)
        if any(map(_is_filled, row)):
            tail.extend(blank)
            blank.clear()
            size = number
    if not size:
        return None
    return _Sheet(
        name=name,
        first_row=first_row + 1,
        first_column=first_column,
        size=size,
        head=head[:size],
        tail=tail,
        rows=rows,
    )


def _choice(sheet: _Sheet, expectation: Expectation) -> _Choice:
    layout = find_layout(_texts(sheet.head), expectation)
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


def _is_full(column: Sequence[str | None]) -> bool:
    """Whether each cell is filled."""
    return None not in column and all(map(str.strip, cast("Sequence[str]", column)))


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


def _error_cells(source: BinaryIO, sheet: _Sheet) -> dict[int, list[int]]:
    """Row numbers with the places in the row of errors; python-calamine shows them as empty."""
    import fastexcel  # noqa: PLC0415 - for the few workbooks that need it

    source.seek(0)
    with _damage_refused():
        try:
            book = fastexcel.read_excel(source.read())
            loaded = book.load_sheet(sheet.name, header_row=None, dtypes="string")
            _, errors = loaded.to_arrow_with_errors()
        except fastexcel.FastExcelError as error:
            raise _unreadable() from error
    found: dict[int, list[int]] = {}
    for row, column in sorted(one.position for one in errors.errors) if errors else []:
        found.setdefault(sheet.first_row + row, []).append(column)
    return found
