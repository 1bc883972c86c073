r"""Which delimiter, quote and escape a text was written with.

Here: the candidates, what speaks for each, and rows of a sample cut under one of them. The
measure follows van den Burg, Nazábal and Sutton, "Wrangling messy CSV files by detecting row and
type patterns" (2019): a good dialect gives rows of one width whose cells look like values. Added
to it are quotes that break, delimiters of several characters, and the contract's header, which
decides before any of this.
Not here: where the header stands (layout.py), and the exact reading of records (grammar.py).
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pocket_ingest.core.file_format import FileFormat

DELIMITERS = {
    # What a delimiter weighs before anything is known: spaces and colons are common inside cells.
    ",": 1.0,
    ";": 1.0,
    "\t": 1.0,
    "|": 1.0,
    "\x1f": 1.0,
    "\x01": 1.0,
    "^": 0.9,
    "~": 0.9,
    "¦": 0.9,
    ":": 0.8,
    " ": 0.8,
}
LONG_DELIMITER = re.compile(r"[|;:,~^#!$%&*+=@\t-]{2,3}|[,;|:] ")
SCORED_LINES = 300
OPEN_LINES = 60
"""Lines that a quoted cell of a sample may take; a longer one is taken for a stray quote."""
LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
# How a sample's delimiter, escaped escape and escaped quote are written while it is cut.
CUT, ESCAPE, QUOTE = "\ue0f0", "\ue0f1", "\ue0f2"
NUMBER = re.compile(r"[-+(]?[$€£¥]?\s?[-+]?\d[\d.,' \u00a0\u202f]*(?:[eE][-+]?\d+)?\s?[%€$£)]?")
TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?"
DATE = re.compile(
    rf"\d{{1,4}}[-/.]\d{{1,2}}[-/.]\d{{1,4}}(?:[T ]{TIME}(?:Z|[-+]\d\d:?\d\d)?)?|{TIME}"
    r"|\d{1,2}[-. ][A-Za-z]{3,9}[-., ]+\d{2,4}|[A-Za-z]{3,9}\.? \d{1,2},? \d{4}"
)
# Delimiters that few people write in a text; a cell that holds one was cut in the wrong place.
STRONG = ";\t|\x1f\x01"
QUOTED = re.compile(r"\"[^\"]*\"")
COMMON = " :"
"""Delimiters that are so common inside cells that the header must have them too."""
FEWEST_STRAYS = 5
FEWEST_NAMES = 3
ALL_BUT_SOME = 0.95
RARELY = 0.1
WEAKEST = 0.05
"""Below this score no delimiter is believed: the text is one column."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How records are cut into fields.

    Attributes:
        delimiter: one character or several.
        quote: one character; empty where quotes mean nothing.
        escape: one character; empty where only doubling escapes a quote.
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """A record of a sample.

    Attributes:
        cells: its fields.
        lines: physical lines that it spans.
        broken: its quotes are out of place; the fields are cut as if they were text.
        quoted: its fields in quotes.
    """

    cells: list[str]
    lines: int = 1
    broken: bool = False
    quoted: int = 0


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A dialect and what speaks for it: 0, nothing, to 1, everything."""

    dialect: Dialect
    score: float


def cut_rows(text: str, dialect: Dialect, *, most: int = 2**31) -> list[Cut]:
    """Cut a sample into records, blank lines among them, giving up none for a bad quote."""
    mark, escape = CUT, dialect.escape
    if escape:
        text = text.replace(escape * 2, ESCAPE)
        if dialect.quote:
            text = text.replace(escape + dialect.quote, QUOTE)
        text = text.replace(escape + dialect.delimiter, "\ue0f3")
    text = text.replace(dialect.delimiter, mark)
    lines = [match.groups() for match in LINE.finditer(text) if match[0]]
    rows: list[Cut] = []
    number = 0
    while number < len(lines) and len(rows) < most:
        row = _cut(lines, number, dialect)
        if row.quoted or escape:
            row = replace(row, cells=[_restored(cell, dialect) for cell in row.cells])
        rows.append(row)
        number += row.lines
    return rows


def score_dialects(text: str, declared: FileFormat) -> list[Scored]:
    """Every dialect that a sample may be written in, best first; one column at least.

    Args:
        text: the beginning of the file, ending at a line end if the file goes on.
        declared: what needs no guess.
    """
    text = _first_lines(text)
    scored = [
        Scored(dialect=dialect, score=_score(text, dialect))
        for dialect in _candidates(text, declared)
    ]
    scored.sort(key=lambda one: -one.score)
    return _without_parts(scored)


def escape_is_used(text: str, dialect: Dialect) -> bool | None:
    """Whether backslashes escape quotes; None if both readings explain the sample equally.

    Args:
        text: a sample around a backslash before a quote.
        dialect: without an escape.
    """
    plain = cut_rows(text, dialect)
    escaped = cut_rows(text, replace(dialect, escape="\\"))
    width = _dominant([len(row.cells) for row in plain + escaped if any(row.cells)])

    def sound(rows: Sequence[Cut]) -> float:
        filled = [row for row in rows if any(row.cells)]
        good = sum(not row.broken and len(row.cells) == width for row in filled)
        return good / max(1, len(filled))

    with_it, without = sound(escaped), sound(plain)
    if with_it != without:
        return with_it > without
    # Both cut alike: a difference inside quotes matters, elsewhere a backslash is only text.
    differ = [row.cells for row in escaped] != [row.cells for row in plain]
    return None if differ and any(row.quoted for row in escaped) else False


def _first_lines(text: str) -> str:
    end = 0
    for number, match in enumerate(LINE.finditer(text)):
        if number == SCORED_LINES:
            break
        end = match.end()
    return text[:end]


def _candidates(text: str, declared: FileFormat) -> Iterator[Dialect]:
    delimiters = [declared.delimiter] if declared.delimiter else _delimiters(text)
    if declared.quote is not None:
        quotes = [declared.quote]
    else:
        quotes = ['"', *(["'"] if "'" in text else []), *([""] if '"' in text else [])]
    if declared.escape is not None:
        escapes = [declared.escape]
    else:
        escapes = ["", *(["\\"] if '\\"' in text or "\\'" in text else [])]
    for delimiter in delimiters:
        for quote in quotes:
            for escape in escapes:
                if escape and escape + quote not in text and declared.escape is None:
                    continue
                yield Dialect(delimiter=delimiter, quote=quote, escape=escape)


def _delimiters(text: str) -> list[str]:
    found = [delimiter for delimiter in DELIMITERS if delimiter in text]
    lines = [line for line in text.splitlines()[:50] if line.strip()]
    longer: Counter[str] = Counter()
    for line in lines:
        longer.update(set(LONG_DELIMITER.findall(line)))
    often = [mark for mark, count in longer.items() if 2 * count >= len(lines)]
    bare = QUOTED.sub("", text)
    return [*found, *(mark for mark in often if _stands_alone(mark, bare))] or [","]


def _stands_alone(mark: str, text: str) -> bool:
    """Whether the first character of a longer delimiter never occurs but in it."""
    rest = text.replace(mark, "")
    return mark[0] not in rest and (mark[-1] != " " or mark + " " not in text)


def _cut(lines: Sequence[Sequence[str]], number: int, dialect: Dialect) -> Cut:
    """The record at a line, given as its text and its end."""
    line, quote = lines[number][0], dialect.quote
    if not quote or quote not in line:
        return Cut(cells=line.split(CUT))
    before = ""
    for count in range(1, OPEN_LINES + 1):
        record = before + lines[number + count - 1][0]
        try:
            cells = next(csv.reader([record], delimiter=CUT, quotechar=quote, strict=True))
        except csv.Error as error:
            if "unexpected end" not in str(error) or number + count >= len(lines):
                break
            before = record + lines[number + count - 1][1]
            continue
        quoted = _count_quoted(record, quote)
        return Cut(cells=cells, lines=count, quoted=quoted)
    return Cut(cells=line.split(CUT), broken=True)


def _count_quoted(record: str, quote: str) -> int:
    return record.count(CUT + quote) + record.startswith(quote)


def _restored(cell: str, dialect: Dialect) -> str:
    if CUT in cell:
        cell = cell.replace(CUT, dialect.delimiter)
    if dialect.escape:
        cell = cell.replace(ESCAPE, dialect.escape).replace(QUOTE, dialect.quote)
        cell = cell.replace("\ue0f3", dialect.delimiter)
    return cell


def _dominant(widths: Sequence[int]) -> int:
    counts = Counter(widths)
    return max(counts, key=lambda width: (counts[width] * (width - 1), counts[width]), default=1)


def _score(text: str, dialect: Dialect) -> float:
    rows = [row for row in cut_rows(text, dialect) if any(row.cells)]
    widths = [len(row.cells) for row in rows]
    width = _dominant(widths)
    if width < 2:  # noqa: PLR2004 - one column says nothing of a delimiter
        return 0.0
    share = widths.count(width) / len(rows)
    aligned = share < ALL_BUT_SOME and _is_aligned(rows)
    if dialect.delimiter in COMMON and (widths[0] != width or aligned):
        return 0.0
    # A text with bare commas in the last column has rows that are wider than the header, never
    # narrower.
    if widths[0] >= FEWEST_NAMES:
        wide = sum(other >= widths[0] for other in widths) / len(rows)
        share = max(share, 0.5 * wide)
    # Several tables in one file have several widths, but neighbours are alike.
    alike = sum(a == b > 1 for a, b in pairwise(widths))
    steady = max(share, 0.9 * alike / max(1, len(rows) - 1))
    pattern = steady * steady * (width - 1) / width
    broken = sum(row.broken for row in rows) / len(rows)
    weight = DELIMITERS.get(dialect.delimiter, 1.0)
    quotes = _quotes(rows, text, dialect)
    return pattern * _cleanness(rows, width, dialect) * (1 - broken) * weight * quotes


def _is_aligned(rows: Sequence[Cut]) -> bool:
    """Whether runs of spaces fill columns of a fixed width."""
    cells = [cell for row in rows for cell in row.cells]
    return 2 * cells.count("") > len(cells)


def _cleanness(rows: Sequence[Cut], width: int, dialect: Dialect) -> float:
    """The share of cells that look like values and not like a record cut in the wrong places."""
    clean = total = 0
    for row in rows:
        if len(row.cells) == width:
            total += width
            clean += sum(_is_clean(cell, row, dialect) for cell in row.cells)
    return clean / max(1, total)


def _is_clean(cell: str, row: Cut, dialect: Dialect) -> bool:
    if not cell or NUMBER.fullmatch(cell) or DATE.fullmatch(cell):
        return True
    if row.quoted and not row.broken:
        return True
    if '"' in cell and (cell.startswith('"') or cell.endswith('"')):
        return False
    if "," in cell and dialect.delimiter != "," and re.search(r",\S", cell):
        return False
    return not any(mark in cell for mark in STRONG if mark != dialect.delimiter)


def _quotes(rows: Sequence[Cut], text: str, dialect: Dialect) -> float:
    """Double quotes unless there is a reason; single ones only where they enclose cells."""
    if dialect.quote == "'":
        quoted = sum(row.quoted > 0 for row in rows if not row.broken)
        return 1.05 if quoted > 1 and quoted >= RARELY * len(rows) else 0.8
    if not dialect.quote:
        doubted = cut_rows(text, replace(dialect, quote='"'))
        stray = sum(row.broken for row in doubted)
        sound = sum(row.quoted > 0 for row in doubted if not row.broken)
        # One stray quote is a fault; quotes that are never closed are marks of inches, or text.
        return 1.0 if stray >= FEWEST_STRAYS and stray > 10 * sound else 0.0
    return 1.0


def _without_parts(scored: list[Scored]) -> list[Scored]:
    """Without delimiters that occur only as a part of a longer one that fits as well."""

    def is_part(one: Scored) -> bool:
        mark = one.dialect.delimiter
        return any(
            len(other.dialect.delimiter) > len(mark)
            and mark in other.dialect.delimiter
            and other.score >= 0.5 * one.score > 0
            for other in scored
        )

    return [one for one in scored if not is_part(one)]
