"""What is known of a file before it is read: the contract's columns, and what is declared.

Here: plain values that the reader asks when a file can be read in several ways.
Not here: contracts and datasets, which make an expectation (core/contract.py).
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from pocket_ingest.core.file_format import UNDECLARED, FileFormat


def fold(name: str) -> str:
    """A header name without case, spaces, punctuation and diacritics: ``Année #`` is ``annee``."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", name).casefold())
    return "".join(c for c in plain if c.isalnum())


@dataclass(frozen=True, kw_only=True)
class CellForm:
    """How a typed cell (of a spreadsheet, JSON or Parquet) is spelled as text.

    The contract's cast reads the text back without loss, whatever the column's formats are.

    Attributes:
        date, timestamp: ``strptime`` forms, or ``epoch_s`` / ``epoch_ms``; empty for ISO 8601.
        is_instant: whether the column holds timestamps, so that a date means its midnight.
        decimal_mark: of numbers.
        true, false: the words of booleans.
    """

    date: str = ""
    timestamp: str = ""
    is_instant: bool = False
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
        position: 1-based, of a column that is found by its place and not by a name.
        form: how its typed cells are spelled.
    """

    name: str
    headers: frozenset[str]
    required: bool = True
    position: int | None = None
    form: CellForm = CellForm()


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """The contract's columns in their order, none without a contract, and what is declared."""

    columns: tuple[ExpectedColumn, ...] = ()
    format: FileFormat = UNDECLARED

    def match(self, names: Sequence[str]) -> "Match":
        """How well a row of names fits the contract's columns."""
        meaning = {header: column for column in self.columns for header in column.headers}
        placed = {c.position - 1: c.name for c in self.columns if c.position is not None}
        found = {name for place, name in placed.items() if place < len(names)}
        repeated = foreign = 0
        for place, name in enumerate(names):
            column = meaning.get(fold(name))
            if place in placed:
                continue
            if column is None:
                foreign += bool(name.strip())
            elif column.name in found:
                repeated += 1
            else:
                found.add(column.name)
        missing = sum(c.required and c.name not in found for c in self.columns)
        named = len(found) - len(placed)
        return Match(missing=missing, found=named, repeated=repeated, foreign=foreign)

    def forms(self, names: Sequence[str]) -> list[CellForm]:
        """How the typed cells of a file's columns are spelled."""
        meaning = {header: c.form for c in self.columns for header in c.headers}
        placed = {c.position - 1: c.form for c in self.columns if c.position is not None}
        return [
            placed.get(place) or meaning.get(fold(name)) or CellForm()
            for place, name in enumerate(names)
        ]


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
