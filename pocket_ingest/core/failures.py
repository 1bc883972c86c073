"""What records are refused for: one mask over many rows, spelled out only in bounded pieces.

Here: a failure (field, code, hint) with the rows that it condemns, and the way from all failures of
a chunk to the errors that are listed of each record.
Not here: who finds failures (casting.py, checking.py, validation.py), nor the files that they are
written to (artifacts.py).

One object per bad cell took 3.9 GB for a file of 17 MB whose 300 columns were all bad. A mask takes
one bit a row, whatever is in it, and counting it takes no list.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from pocket_ingest.core.errors import Code
from pocket_ingest.core.reading import MalformedRecord, RecordChunk

MAX_LISTED = 50
"""Errors of one record that are listed; the last of them says how many more there are.

All of them are counted. A record that fails in more places than this is not mended cell by cell.
"""
MAX_PIECE = 2**17
"""Errors that are spelled out at once, in whole records: about 10 MB with all that is made of them.
"""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Rows that fail in one field for one reason.

    Attributes:
        field: its name; empty for the record as a whole.
        code: the reason.
        hint: the reason as a sentence, without any cell's value.
        mask: boolean without nulls, one a row, true where it failed.
        numbers: where the sentence ends in a record number, that number for each row.
    """

    field: str
    code: Code
    hint: str
    mask: pl.Series
    numbers: np.ndarray | None = None

    @property
    def rows(self) -> list[int]:
        """The rows, 0-based."""
        return self.mask.arg_true().to_list()


def failing_rows(failures: Sequence[Failure], height: int) -> pl.Series:
    """Which of ``height`` rows fail at all: a boolean a row."""
    failing = pl.repeat(value=False, n=height, eager=True)
    for failure in failures:
        failing = failing | failure.mask
    return failing


class Reason(NamedTuple):
    """What a listed error says."""

    field: str
    code: Code
    hint: str


@dataclass(frozen=True, kw_only=True)
class Refused:
    """Consecutive refused records, in file order, and what is listed of each.

    Attributes:
        records, lines: int64, number and line of each record.
        raws: the original bytes of each record, iterable once.
        owners: int64, ascending: for each listed error, which of the records it is about.
        kinds: int32: for each listed error, which of the reasons it has.
        reasons: those that occur here.
    """

    records: np.ndarray
    lines: np.ndarray
    raws: Iterator[bytes]
    owners: np.ndarray
    kinds: np.ndarray
    reasons: list[Reason]


def list_refused(
    chunk: RecordChunk,
    failures: Sequence[Failure],
    malformed: Sequence[MalformedRecord],
    *,
    start: int = 0,
    height: int,
) -> Iterator[Refused]:
    """The refused records of a run of a chunk's rows, in pieces of at most MAX_PIECE errors.

    Args:
        chunk: the rows' own.
        failures: of the run, in the order in which a record's errors are listed.
        malformed: the malformed records among them.
        start: the run's first row in the chunk.
        height: rows of the run.
    """
    rows = failing_rows(failures, height).arg_true().to_numpy().astype(np.int64)
    # A malformed record is a negative number: it has no row.
    sources = np.concatenate([rows, -1 - np.arange(len(malformed))])
    records = np.concatenate(
        [chunk.records[rows + start], np.array([m.record for m in malformed], np.int64)]
    )
    sources = sources[np.argsort(records, kind="stable")]
    size = MAX_PIECE // max(1, min(len(failures), MAX_LISTED))
    for first in range(0, len(sources), size):
        yield _spell_out(chunk, failures, malformed, sources[first : first + size], start)


def _spell_out(
    chunk: RecordChunk,
    failures: Sequence[Failure],
    malformed: Sequence[MalformedRecord],
    sources: np.ndarray,
    start: int,
) -> Refused:
    listed = _Listed(len(sources))
    sound = np.flatnonzero(sources >= 0)
    rows = sources[sound]
    for failure in failures:
        failing = failure.mask.gather(rows).to_numpy()
        reason = Reason(failure.field, failure.code, failure.hint)
        if failure.numbers is None:
            listed.add(sound[failing], reason)
        else:
            listed.add_numbered(sound[failing], reason, failure.numbers[rows[failing]])
    broken = np.flatnonzero(sources < 0)
    faults = [malformed[-1 - source] for source in sources[broken].tolist()]
    for owner, fault in zip(broken, faults, strict=True):
        listed.add(owner.reshape(1), Reason("", fault.code, fault.hint))
    records, lines = np.empty((2, len(sources)), np.int64)
    records[sound], lines[sound] = chunk.records[rows + start], chunk.lines[rows + start]
    records[broken] = [fault.record for fault in faults]
    lines[broken] = [fault.line for fault in faults]
    owners, kinds = listed.in_order()
    return Refused(
        records=records,
        lines=lines,
        raws=(
            chunk.raw(source + start) if source >= 0 else malformed[-1 - source].raw
            for source in sources.tolist()
        ),
        owners=owners,
        kinds=kinds,
        reasons=listed.reasons,
    )


class _Listed:
    """The errors of some records as they are listed, at most MAX_LISTED of each."""

    def __init__(self, records: int) -> None:
        self.reasons: list[Reason] = []
        self._places: dict[Reason, int] = {}
        self._found = np.zeros(records, np.int32)
        self._owners: list[np.ndarray] = []
        self._kinds: list[np.ndarray] = []

    def add(self, owners: np.ndarray, reason: Reason) -> None:
        """List one reason for some records, each named once."""
        self._add(owners, np.full(len(owners), self._kind(reason), np.int32))

    def add_numbered(self, owners: np.ndarray, reason: Reason, numbers: np.ndarray) -> None:
        """List a reason that ends in another number for each record."""
        field, code, hint = reason
        distinct, places = np.unique(numbers, return_inverse=True)
        kinds = places + len(self.reasons)
        self.reasons += [Reason(field, code, f"{hint} {number}") for number in distinct.tolist()]
        self._add(owners, kinds.astype(np.int32))

    def in_order(self) -> tuple[np.ndarray, np.ndarray]:
        """Owners and kinds by record; a record's in the order in which they were added."""
        owners = np.concatenate([np.empty(0, np.int64), *self._owners])
        kinds = np.concatenate([np.empty(0, np.int32), *self._kinds])
        order = np.argsort(owners, kind="stable")
        owners, kinds = owners[order], kinds[order]
        full = np.flatnonzero(self._found > MAX_LISTED)
        if len(full):
            last = np.searchsorted(owners, full, side="right") - 1
            beyond = self._found[full] - MAX_LISTED
            for place, more in zip(last.tolist(), beyond.tolist(), strict=True):
                reason = self.reasons[kinds[place]]
                said = f"{reason.hint}; and {more} more errors of this record, which are not listed"
                kinds[place] = self._kind(reason._replace(hint=said))
        return owners, kinds

    def _kind(self, reason: Reason) -> int:
        kind = self._places.setdefault(reason, len(self.reasons))
        if kind == len(self.reasons):
            self.reasons.append(reason)
        return kind

    def _add(self, owners: np.ndarray, kinds: np.ndarray) -> None:
        room = self._found[owners] < MAX_LISTED
        self._found[owners] += 1
        self._owners.append(owners[room])
        self._kinds.append(kinds[room])
