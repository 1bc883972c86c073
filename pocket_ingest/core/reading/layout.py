"""Where the table stands between titles and footers, told from rows of text.

Here: rows that are cells already, of a CSV file or a spreadsheet. With a contract in hand, the
rows that name its columns are the header; without one, the first row that is as full as the
records are.
Not here: how rows are cut into cells.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from pocket_ingest.core.reading.dialects import DATE, NUMBER
from pocket_ingest.core.reading.expectation import Expectation

Row = Sequence[str | None]

MOSTLY = 0.8
NARROW = 3
FEWEST_ROWS = 5
LONGEST_UNIT = 20
NOTHING = re.compile(r"[-.*?x]*|n\.?/?[ad]\.?|nan|null|none|nil|missing|unknown|\\N", re.IGNORECASE)
LOOKED_AT = 200
"""Rows among which a header is looked for."""
MOST_HEADER_ROWS = 3
MOST_FOOTER_ROWS = 20
TOTAL = re.compile(
    r"\W*(grand|sub|overall)?[\s-]*(totals?|sum|summe|gesamt(summe)?|insgesamt|totale|totaux|"
    r"subtotal|somme|suma|totaal|summa|yhteens[aä]|celkem|razem|итого|всего)\b.*",
    re.IGNORECASE | re.DOTALL,
)
NOTE = re.compile(
    r"\W*(source|note|notes|footnote|disclaimer|generated|exported|printed|report|end of|"
    r"copyright|©|quelle|stand|hinweis|fuente|fonte|\d+ (rows?|records?|entries))\b.*",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the header stands.

    Attributes:
        header_at: index of the first header row; rows before it are titles, or blank. Where there
            is no header, the index of the first record.
        header_rows: how many rows the header takes; 0 where there is none.
        names: of the columns; made up where there is no header.
    """

    header_at: int
    header_rows: int
    names: tuple[str, ...]


def find_layout(rows: Sequence[Row], expectation: Expectation) -> Layout:
    """Find the header among the first rows of a table.

    Args:
        rows: the first rows, blank ones too; a blank row has no cell or only empty ones.
        expectation: what is known.
    """
    rows = rows[:LOOKED_AT]
    declared, known = expectation.format, bool(expectation.columns)
    if declared.header_rows == 0:
        return _without_header(rows, _first_filled(rows, declared.skip_lines or 0), expectation)
    if declared.skip_lines is not None:
        at = _first_filled(rows, declared.skip_lines)
        return _layout(rows, at, declared.header_rows or 1, known=known)
    by_contract = _by_contract(rows, expectation) if known else None
    if by_contract is not None:
        return by_contract
    at = _first_full(rows)
    if declared.header_rows is None and not known and _is_data(rows, at):
        return _without_header(rows, at, expectation)
    if declared.header_rows is None and not known:
        return _layout(rows, *_with_neighbours(rows, at), known=False)
    return _layout(rows, at, declared.header_rows or 1, known=known)


def count_footer(rows: Sequence[Row], layout: Layout) -> int:
    """How many of the last rows of a table are no records: blank ones, totals, sources.

    Nothing that could be a record is taken for a footer: it has one filled cell that is not like
    the records' first, or begins with a word for a total where most other cells are empty.

    Args:
        rows: the last rows of the file, after the header.
        layout: of the table.
    """
    width = len(layout.names)
    count = _blank_at_end(rows, len(rows))
    if width < 2:  # noqa: PLR2004 - any row of one column may be a record
        return count
    body = [row for row in rows if len(row) == width and _filled(row) > 1]
    usual = _usual(body, width)
    for _ in range(MOST_FOOTER_ROWS):
        end = len(rows) - count
        blank = _blank_at_end(rows, end)
        if end - blank <= 0 or not _is_footer(rows[end - blank - 1], usual, body):
            break
        count += blank + 1
    # Blank rows before a footer are the footer's; blank rows before records are theirs.
    return count + (_blank_at_end(rows, len(rows) - count) if count else 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Usual:
    """What is usual of a table's records.

    Attributes:
        filled: cells with text in a record.
        kinds: of each column's cells with text; "empty" where there are none.
        always: whether a column's cells hardly ever lack text.
    """

    filled: float
    kinds: list[str]
    always: list[bool]


def _usual(body: Sequence[Row], width: int) -> _Usual:
    kinds, always = [], []
    for column in range(width):
        counts = Counter(_kind(row[column]) for row in body)
        empty = counts.pop("empty", 0)
        kinds.append(counts.most_common(1)[0][0] if counts else "empty")
        always.append(10 * empty < len(body))
    filled = median([_filled(row) for row in body] or [width])
    return _Usual(filled=filled, kinds=kinds, always=always)


def _is_footer(row: Row, usual: _Usual, body: Sequence[Row]) -> bool:
    width = len(usual.kinds)
    filled = [cell for cell in row if cell and cell.strip()]
    first = filled[0]
    if len(filled) == 1 and usual.filled > 1:
        alike = bool(row[0]) and _kind(first) == usual.kinds[0] != "text"
        seen = any(other[0] == first for other in body)
        # A record that was cut off in its first field looks like one of its kind.
        return not alike and not seen and (" " in first.strip() or _says_so(first))
    few = len(filled) <= max(2, usual.filled / 2)
    if len(row) != width:
        return few and _says_so(first)
    lacks = any(must and not cell for cell, must in zip(row, usual.always, strict=True))
    unlike = few or lacks or _kind(row[0]) != usual.kinds[0]
    return unlike and TOTAL.fullmatch(first) is not None


def _says_so(text: str) -> bool:
    return TOTAL.fullmatch(text) is not None or NOTE.fullmatch(text) is not None


def _by_contract(rows: Sequence[Row], expectation: Expectation) -> Layout | None:
    """The rows that name the contract's columns best; the first of equal ones, the fewest."""
    best, found = None, None
    most = expectation.format.header_rows or MOST_HEADER_ROWS
    least = expectation.format.header_rows or 1
    for count in range(least, most + 1):
        for at in range(len(rows) - count + 1):
            if not _filled(rows[at]):
                continue
            match = expectation.match(_names(rows, at, count))
            if match.found and (best is None or match.rank[:2] < best):
                best, found = match.rank[:2], (at, count)
    if found is None or best is None:
        return None
    at, count = found
    wanted = sum(column.required for column in expectation.columns)
    # A title may hold the name of one column by chance.
    if best[0] > wanted / 2 and _filled(rows[at]) < 2:  # noqa: PLR2004
        return None
    return _layout(rows, at, count, known=True)


def _layout(rows: Sequence[Row], at: int, count: int, *, known: bool) -> Layout:
    """The layout under a header; ``known``: whether a contract says what the columns are."""
    names = list(_names(rows, at, count))
    body = [len(row) for row in rows[at + count :] if _filled(row)]
    width, rate = Counter(body).most_common(1)[0] if body else (len(names), 0)
    # Each record ends in a delimiter that the header does not have; or, where nobody knows what
    # the columns are, it has cells without a name.
    nameless = not known and rate >= MOSTLY * len(body)
    if len(names) < width and (nameless or _only_empty_beyond(rows[at + count :], len(names))):
        names += [""] * (width - len(names))
    while len(names) > width and not names[-1]:
        names.pop()
    return Layout(header_at=at, header_rows=count, names=tuple(names))


def _only_empty_beyond(rows: Sequence[Row], width: int) -> bool:
    longer = [row for row in rows if len(row) > width]
    return 2 * len(longer) > len(rows) and not any(any(row[width:]) for row in longer)


def _without_header(rows: Sequence[Row], at: int, expectation: Expectation) -> Layout:
    widths = Counter(len(row) for row in rows[at:] if _filled(row))
    width = widths.most_common(1)[0][0] if widths else 0
    names = [column.name for column in expectation.columns][: width or None]
    if not width:
        width = len(names)
    names += [f"column_{number + 1}" for number in range(len(names), width)]
    return Layout(header_at=at, header_rows=0, names=tuple(names))


def _names(rows: Sequence[Row], at: int, count: int) -> tuple[str, ...]:
    """The names of the columns; of several rows, joined, where a group's name reaches on."""
    if count == 1:
        return tuple(cell or "" for row in rows[at : at + 1] for cell in row)
    width = max(len(row) for row in rows[at : at + count])
    names = [""] * width
    for number, row in enumerate(rows[at : at + count]):
        group = ""
        for column in range(width):
            cell = (row[column] or "").strip() if column < len(row) else ""
            group = cell or (group if number < count - 1 else "")
            names[column] = f"{names[column]} {group}".strip()
    return tuple(names)


def _first_filled(rows: Sequence[Row], start: int) -> int:
    """The first row with text; where none has any, the first with cells at all."""
    for has_something in (_filled, len):
        for at in range(start, len(rows)):
            if has_something(rows[at]):
                return at
    return start


def _first_full(rows: Sequence[Row]) -> int:
    """The first row that is about as full as the records are, and as wide."""
    rows = _first_table(rows)
    filled = [count for row in rows if (count := _filled(row))]
    # Titles come first, so the later part of the rows says more about the records.
    later = filled[len(filled) // 3 :]
    usual = median(later) if later else 1
    width = usual_width([row for row in rows if _filled(row) >= usual / 2])
    first = next((len(row) for row in rows if _filled(row)), 0)
    varied = 2 * sum(len(row) == width for row in rows) < len(rows)
    if varied and first >= NARROW and sum(len(r) >= first for r in rows) >= MOSTLY * len(rows):
        # Rows that are wider than the first one but hardly ever narrower have bare delimiters.
        width = min(width, first)
    likely = [
        at
        for at, row in enumerate(rows)
        if (count := _filled(row)) and count >= usual / 2 and len(row) >= 0.6 * width
    ]
    for at in likely:
        row = rows[at]
        if len(row) == width:
            return at
        # A title may have some delimiters too; then the names come after it.
        names = next((later for later in likely if len(rows[later]) == width), at)
        if all(_kind(cell) == "text" for cell in rows[names]) and names != at:
            return names
        if not any(_kind(cell) in {"number", "date"} for cell in row):
            return at
    return _first_filled(rows, 0)


def _first_table(rows: Sequence[Row]) -> Sequence[Row]:
    """Of several tables the first: rows that are one from the very first row on."""
    widths = [len(row) for row in rows if _filled(row)]
    same = next((n for n, width in enumerate(widths) if width != widths[0]), len(widths))
    if same < FEWEST_ROWS or not widths[0] >= NARROW:
        return rows
    # Blank rows among them may cut off the last ones, which changes nothing.
    return rows[:same]


def _with_neighbours(rows: Sequence[Row], at: int) -> tuple[int, int]:
    """The header's first row and number of rows: groups above the names, units below them."""
    first, width = at, len(rows[at]) if at < len(rows) else 0
    while first and at - first < MOST_HEADER_ROWS - 1 and _names_groups(rows[first - 1], width):
        first -= 1
    last = at
    while last - first < MOST_HEADER_ROWS - 1 and _names_units(rows, last + 1, width):
        last += 1
    return first, last - first + 1


def _names_groups(row: Row, width: int) -> bool:
    """Whether a row above the names groups them: texts with gaps behind them."""
    kinds = [_kind(cell) for cell in row]
    filled = [place for place, kind in enumerate(kinds) if kind != "empty"]
    gaps = [after - before > 1 for before, after in pairwise(filled)]
    return len(row) == width and any(gaps) and not {"date"} & set(kinds)


def _names_units(rows: Sequence[Row], at: int, width: int) -> bool:
    """Whether a row below the names says more of them: texts where the records have numbers."""
    if at >= len(rows) or len(rows[at]) != width:
        return False
    body = [row for row in rows[at + 1 :] if len(row) == width]
    usual = _usual(body, width)
    typed = [place for place, kind in enumerate(usual.kinds) if kind in {"number", "date"}]
    return (
        len(body) > 1
        and len(typed) > 1
        and _filled(rows[at]) >= MOSTLY * width
        and all(_is_unit(rows[at][place]) for place in typed)
    )


def _is_unit(cell: str | None) -> bool:
    text = (cell or "").strip()
    return _kind(text) == "text" and len(text) <= LONGEST_UNIT and not NOTHING.fullmatch(text)


def usual_width(rows: Sequence[Row]) -> int:
    """The width that most cells belong to rows of."""
    counts = Counter(len(row) for row in rows)
    return max(counts, key=lambda width: (counts[width] * (width - 1), counts[width]), default=1)


def _is_data(rows: Sequence[Row], at: int) -> bool:
    """Whether the row that should be the header is a record like those after it."""
    if at >= len(rows):
        return False
    first = rows[at]
    body = [row for row in rows[at + 1 :] if len(row) == len(first) and _filled(row)]
    if not body:
        return any(_kind(cell) == "date" for cell in first)
    if _is_series(first):
        return False
    typed = alike = 0
    for column, cell in enumerate(first):
        kinds = Counter(_kind(row[column]) for row in body)
        kinds.pop("empty", None)
        kind, count = kinds.most_common(1)[0] if kinds else ("text", 0)
        if kind != "text" and count >= MOSTLY * sum(kinds.values()) and cell:
            typed += 1
            alike += _kind(cell) == kind
    # One typed column of many may be a number in the header by chance.
    return typed > 0 and typed == alike and (typed > 1 or len(first) <= NARROW)


def _is_series(row: Row) -> bool:
    """Whether numbers count on through a row: years, quarters, or places that name columns."""
    numbers = [int(cell) for cell in row if cell and cell.strip().isdecimal()]
    return len(numbers) > 1 and all(after == before + 1 for before, after in pairwise(numbers))


def _kind(cell: str | None) -> str:
    text = (cell or "").strip()
    if not text:
        return "empty"
    if DATE.fullmatch(text):
        return "date"
    return "number" if NUMBER.fullmatch(text) else "text"


def _filled(row: Row) -> int:
    return sum(1 for cell in row if cell and not cell.isspace())


def _blank_at_end(rows: Sequence[Row], end: int) -> int:
    count = 0
    while count < end and not _filled(rows[end - 1 - count]):
        count += 1
    return count
