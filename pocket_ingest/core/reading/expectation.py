"""What is known of a file before it is read: the contract's columns, and what is declared.

Here: plain values that the reader asks when a file can be read in several ways.
Not here: contracts and datasets, which make an expectation (core/contract.py).
"""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass


def fold(name: str) -> str:
    """A header name without case, spaces, punctuation and diacritics: ``Année #`` is ``annee``."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", name).casefold())
    return "".join(c for c in plain if c.isalnum())


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """What a dataset declares of its files. What is not declared is found in each file.

    Attributes:
        encoding: a codec of Python's, like "cp1252" or "shift_jis".
        delimiter: between fields; one character or several.
        quote: around fields; empty if quotes mean nothing in these files.
        escape: before a quote, delimiter, line end or itself; empty if nothing is escaped so.
        comment: begins lines that are no records; empty if no line is a comment.
        header_rows: rows of column names; 0 if the columns come in the contract's order.
        skip_lines: lines (rows, in a spreadsheet) before the header.
        footer_lines: lines (rows) with text after the last record.
        sheet: of a spreadsheet, by name.
        member: of an archive, by name or pattern (``*.csv``).
    """

    encoding: str | None = None
    delimiter: str | None = None
    quote: str | None = None
    escape: str | None = None
    comment: str | None = None
    header_rows: int | None = None
    skip_lines: int | None = None
    footer_lines: int | None = None
    sheet: str | None = None
    member: str | None = None


@dataclass(frozen=True, kw_only=True)
class CellForm:
    """How a typed cell (of a spreadsheet, JSON or Parquet) is spelled as text.

    The contract's cast reads the text back without loss, whatever the column's formats are.

    Attributes:
        date, timestamp: ``strptime`` forms, or ``epoch_s`` / ``epoch_ms``; empty for ISO 8601.
        decimal_mark: of numbers.
        true, false: the words of booleans.
    """

    date: str = ""
    timestamp: str = ""
    decimal_mark: str = "."
    true: str = "true"
    false: str = "false"


@dataclass(frozen=True, kw_only=True)
class ExpectedColumn:
    """A column that the contract knows.

    Attributes:
        name: of the contract's field.
        headers: the header names that mean it, folded.
        required: whether the file must have it.
        form: how its typed cells are spelled.
    """

    name: str
    headers: frozenset[str]
    required: bool = True
    form: CellForm = CellForm()


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """The contract's columns in their order, none without a contract, and what is declared."""

    columns: tuple[ExpectedColumn, ...] = ()
    format: FileFormat = FileFormat()

    def match(self, names: Iterable[str]) -> "Match":
        """How well a row of names fits the contract's columns."""
        meaning = {header: column for column in self.columns for header in column.headers}
        found: set[str] = set()
        repeated = foreign = 0
        for name in names:
            column = meaning.get(fold(name))
            if column is None:
                foreign += bool(name.strip())
            elif column.name in found:
                repeated += 1
            else:
                found.add(column.name)
        missing = sum(c.required and c.name not in found for c in self.columns)
        return Match(missing=missing, found=len(found), repeated=repeated, foreign=foreign)

    def forms(self, names: Iterable[str]) -> list[CellForm]:
        """How the typed cells of a file's columns are spelled."""
        meaning = {header: c.form for c in self.columns for header in c.headers}
        return [meaning.get(fold(name), CellForm()) for name in names]


@dataclass(frozen=True, kw_only=True)
class Match:
    """How well a row of names fits the contract's columns.

    Attributes:
        missing: required columns that no name means.
        found: columns that a name means.
        repeated: names that mean a column that an earlier name means.
        foreign: names that mean none.
    """

    missing: int
    found: int
    repeated: int
    foreign: int

    @property
    def whole(self) -> bool:
        """Whether every required column is there."""
        return self.found > 0 and self.missing == 0

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """Sorts better matches first."""
        return (self.missing, -self.found, self.repeated, self.foreign)
