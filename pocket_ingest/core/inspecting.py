"""What the reader makes of one file, for a person who wants to know: no database, no import.

Here: the walk through the file and the facts that are told of it.
Not here: how they are shown (cli.py), the output of the records (normalizing.py).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import BinaryIO

from pocket_ingest.core.dataset import Dataset
from pocket_ingest.core.errors import PermanentError
from pocket_ingest.core.header import HeaderMatch, match_header
from pocket_ingest.core.normalizing import NormalizedWriter
from pocket_ingest.core.reading import (
    Expectation,
    Found,
    Header,
    LineAccount,
    MalformedRecord,
    Reading,
    ReadingLimits,
    open_table,
)

FIRST_RECORDS = 5
MAX_PROBLEMS = 1_000
"""Problems that are listed one by one; all of them are counted."""


@dataclass(frozen=True, kw_only=True)
class FirstRecord:
    """One of the first records; a cell without a value is None."""

    record: int
    line: int
    cells: tuple[str | None, ...]


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """What was found in a file.

    Attributes:
        found: format, encoding, dialect and the reasons.
        header: the column names.
        match: which column is which field of the dataset, if one was named and it fits.
        mismatch: why the header does not fit the dataset.
        first: the first sound records.
        records_read: all records; ``sound`` of them can be read.
        problems: the first malformed records.
        problem_counts: all of them by code.
        account: what every line of the file is.
    """

    found: Found
    header: Header
    match: HeaderMatch | None
    mismatch: PermanentError | None
    first: tuple[FirstRecord, ...]
    records_read: int
    sound: int
    problems: tuple[MalformedRecord, ...]
    problem_counts: Counter[str]
    account: LineAccount


def inspect_file(
    open_file: Callable[[], BinaryIO],
    *,
    limits: ReadingLimits,
    dataset: Dataset | None = None,
    name: str = "",
    normalized: BinaryIO | None = None,
) -> Inspection:
    """Read a whole file and tell what is in it.

    Args:
        open_file: opens the file from its beginning.
        limits: bounds of the reader.
        dataset: whose contract guides the reader, if there is one.
        name: of the file, to say where it misleads.
        normalized: where the records are written as plain CSV.

    Raises:
        PermanentError: the file cannot be read at all.
    """
    expectation = dataset.contract.expectation if dataset else Expectation()
    with open_table(open_file, expectation=expectation, limits=limits, name=name) as reading:
        match, mismatch = _match(reading, dataset)
        writer = NormalizedWriter(normalized, reading.header) if normalized else None
        first: list[FirstRecord] = []
        problems: list[MalformedRecord] = []
        counts: Counter[str] = Counter()
        sound = 0
        for chunk in reading:
            sound += len(chunk.records)
            counts.update(str(record.code) for record in chunk.malformed)
            # Without their bytes: a thousand records of 8 MB are as many gigabytes.
            kept = chunk.malformed[: MAX_PROBLEMS - len(problems)]
            problems += [replace(record, raw=b"") for record in kept]
            for row in range(min(FIRST_RECORDS - len(first), len(chunk.records))):
                cells = tuple(column[row].as_py() for column in chunk.columns.columns)
                place = int(chunk.records[row]), int(chunk.lines[row])
                first.append(FirstRecord(record=place[0], line=place[1], cells=cells))
            if writer is not None:
                writer.write(chunk, reading)
        return Inspection(
            found=reading.found,
            header=reading.header,
            match=match,
            mismatch=mismatch,
            first=tuple(first),
            records_read=reading.records_read,
            sound=sound,
            problems=tuple(problems),
            problem_counts=counts,
            account=reading.account,
        )


def _match(
    reading: Reading, dataset: Dataset | None
) -> tuple[HeaderMatch | None, PermanentError | None]:
    if dataset is None:
        return None, None
    try:
        return match_header(reading.header.names, dataset.contract), None
    except PermanentError as error:
        return None, error
