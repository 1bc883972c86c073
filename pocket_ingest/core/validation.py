"""The second stage: records of text become typed rows, or rejected records with a reason.

Here: the walk through a pinned file, chunk by chunk, and what it publishes.
Not here: reading (reading/), single casts (casting.py), Pandera (checking.py), what is listed of
the refused records (failures.py), file formats of the artifacts (artifacts.py).

Memory is bounded by a chunk of the reader and MAX_CELLS, whatever is wrong with the file, and by 8
bytes a record for its keys (uniqueness.py).
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from pocket_ingest.core.artifacts import (
    ACCEPTED,
    DUPLICATES,
    ERRORS,
    RECORD,
    REJECTS,
    AcceptedFile,
    AcceptedWriter,
    ErrorsWriter,
    PlannedBatch,
    RejectsWriter,
    write_duplicates,
)
from pocket_ingest.core.casting import cast_chunk
from pocket_ingest.core.checking import Checker
from pocket_ingest.core.contract import Contract
from pocket_ingest.core.dataset import Duplicates, FromColumn
from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.failures import Failure, Refused, failing_rows, list_refused
from pocket_ingest.core.header import HeaderMatch, match_header
from pocket_ingest.core.reading import (
    MalformedRecord,
    Reading,
    ReadingLimits,
    RecordChunk,
    open_table,
)
from pocket_ingest.core.uniqueness import Duplicated, find_duplicates, hash_keys, repeated_hashes

MAX_COUNTED = 500
"""Pairs of field and code that a report lists; a contract of 2,000 columns must not fill a job."""
MAX_SAMPLES = 20
MAX_CELLS = 2**22
"""Cells that are cast at once, some 40 bytes each; a chunk of empty ones has four times as many."""


@dataclass(frozen=True, kw_only=True)
class Validated:
    """What validation found; ``files`` are local and not published yet.

    ``too_many`` is the sentence that says why the file is refused as a whole, if it is.
    """

    files: dict[str, Path]
    records_read: int
    accepted: int
    rejected: int
    duplicates: int
    report: dict[str, Any]
    too_many: str | None


@dataclass(kw_only=True)
class _Tally:
    """Counts of a walk, in bounded memory but for the hashes: 8 bytes a record."""

    accepted: int = 0
    rejected: int = 0
    by_field_and_code: Counter[tuple[str, str]] = field(default_factory=Counter)
    samples: list[dict[str, Any]] = field(default_factory=list)
    hashes: list[np.ndarray] = field(default_factory=list)

    def count(self, failures: list[Failure], malformed: tuple[MalformedRecord, ...]) -> None:
        for failure in failures:
            self.by_field_and_code[failure.field, str(failure.code)] += int(failure.mask.sum())
        self.by_field_and_code.update(("", str(record.code)) for record in malformed)

    def sample(self, refused: Refused) -> None:
        room = MAX_SAMPLES - len(self.samples)
        for owner, kind in zip(refused.owners[:room], refused.kinds[:room], strict=True):
            name, code, hint = refused.reasons[kind]
            self.samples.append(
                {
                    "record": int(refused.records[owner]),
                    "line": int(refused.lines[owner]),
                    "field": name,
                    "code": str(code),
                    "hint": hint,
                }
            )


def validate_file(
    open_file: Callable[[], BinaryIO],
    contract: Contract,
    *,
    folder: Path,
    limits: ReadingLimits,
    check: Callable[[], None],
    name: str = "",
) -> Validated:
    """Validate one file.

    Args:
        open_file: opens the pinned file; called again for each look at the whole of it that some
            choice of the reader needs, and for a second walk where the contract rejects every
            record of a repeated key, which is known at the end of the first.
        contract: the dataset's.
        name: of the file, to say where it misleads.
        folder: where the artifacts are written.
        limits: bounds of the reader.
        check: called between chunks; raises where the job was cancelled or its lease lost.

    Raises:
        PermanentError: the file as a whole is refused (empty_file, missing_column, ...).
    """
    walk = partial(_walk, open_file, contract, folder=folder, limits=limits, check=check, name=name)
    validated, duplicated = walk(repeated=None)
    if contract.duplicates is Duplicates.REJECT and duplicated.count:
        validated, _ = walk(repeated=duplicated)
    elif duplicated.count:
        path = folder / DUPLICATES
        write_duplicates(path, duplicated.pieces())
        validated.files[DUPLICATES] = path
    return validated


def _walk(
    open_file: Callable[[], BinaryIO],
    contract: Contract,
    *,
    folder: Path,
    limits: ReadingLimits,
    check: Callable[[], None],
    name: str,
    repeated: Duplicated | None,
) -> tuple[Validated, Duplicated]:
    """One pass over the file; ``repeated`` are records that an earlier pass found to share keys."""
    expectation = contract.expectation
    with open_table(open_file, expectation=expectation, limits=limits, name=name) as reading:
        match = match_header(reading.header.names, contract)
        checker = Checker(contract)
        tally = _Tally()
        accepted = AcceptedWriter(folder / ACCEPTED, contract)
        errors = ErrorsWriter(folder / ERRORS)
        rejects = RejectsWriter(folder / REJECTS, header=reading.header.raw, found=reading.found)
        try:
            for chunk in reading:
                check()
                good = []
                for part in _parts(chunk, len(contract.fields)):
                    rows, failures = _validate_part(part, match, checker, contract, repeated)
                    good.append(rows)
                    tally.count(failures, part.malformed)
                    for refused in list_refused(
                        chunk, failures, part.malformed, start=part.start, height=part.height
                    ):
                        errors.write(refused)
                        rejects.write(refused)
                        tally.sample(refused)
                rows = pl.concat(good)
                batch = PlannedBatch(
                    first_record=chunk.first_record,
                    last_record=chunk.last_record,
                    accepted=rows.height,
                    rejected=chunk.last_record + 1 - chunk.first_record - rows.height,
                )
                tally.accepted += batch.accepted
                tally.rejected += batch.rejected
                if repeated is None:
                    tally.hashes.append(hash_keys(rows, _unique_key(contract)))
                accepted.write(rows, batch)
        finally:
            accepted.close()
            errors.close()
            rejects.close()
    duplicated = _duplicates(folder / ACCEPTED, contract, tally, reading.records_read, check)
    return _sum_up(folder, contract, reading, match, tally, duplicated.count), duplicated


class _Part(NamedTuple):
    """A run of a chunk's rows, and the malformed records among them."""

    chunk: RecordChunk
    start: int
    height: int
    malformed: tuple[MalformedRecord, ...]


def _parts(chunk: RecordChunk, columns: int) -> Iterator[_Part]:
    """The chunk in parts of at most MAX_CELLS cells, one at least."""
    rows, size, passed = chunk.columns.num_rows, max(1, MAX_CELLS // columns), 0
    for start in range(0, max(1, rows), size):
        end = min(start + size, rows)
        last = int(chunk.records[end]) - 1 if end < rows else chunk.last_record
        after = bisect_right(chunk.malformed, last, lo=passed, key=attrgetter("record"))
        yield _Part(chunk, start, end - start, chunk.malformed[passed:after])
        passed = after


def _validate_part(
    part: _Part,
    match: HeaderMatch,
    checker: Checker,
    contract: Contract,
    repeated: Duplicated | None,
) -> tuple[pl.DataFrame, list[Failure]]:
    """Typed rows that pass, with their record numbers, and what the others fail in.

    A record's failures come in the order of this list: casts by field, then checks, then what is
    said of the record as a whole.
    """
    records = part.chunk.records[part.start : part.start + part.height]
    typed, failures = cast_chunk(_text(part, match, contract), contract.fields)
    failures = [f for f in failures if f.code is not Code.REQUIRED or f.field not in match.absent]
    failures += checker.check(typed.drop(match.absent), failures)
    if repeated is not None:
        winners = repeated.winners[records]
        failures.append(
            Failure(
                field="",
                code=Code.DUPLICATE_KEY,
                hint="the business key occurs more than once in the file, first in record",
                mask=pl.Series(winners > 0),
                numbers=winners,
            )
        )
    rows = typed.insert_column(0, pl.Series(RECORD, records))
    if failures:
        rows = rows.filter(~failing_rows(failures, part.height))
    return rows, failures


def _text(part: _Part, match: HeaderMatch, contract: Contract) -> pl.DataFrame:
    """The contract's columns as text; an optional column that the file lacks is all null."""
    arrow = part.chunk.columns.slice(part.start, part.height)
    absent = pa.nulls(arrow.num_rows, pa.string())
    columns = {
        f.name: arrow.column(match.positions[f.name]) if f.name in match.positions else absent
        for f in contract.fields
    }
    frame = pl.from_arrow(pa.table(columns))
    assert isinstance(frame, pl.DataFrame)  # noqa: S101 - a table gives a frame
    return frame


def _unique_key(contract: Contract) -> tuple[str, ...]:
    """The columns that are unique within a file: the key, and the tenant where rows carry it."""
    rule = contract.dataset.tenant
    if isinstance(rule, FromColumn) and rule.column not in contract.key:
        return (rule.column, *contract.key)
    return contract.key


def _duplicates(
    path: Path, contract: Contract, tally: _Tally, records: int, check: Callable[[], None]
) -> Duplicated:
    suspects = repeated_hashes(tally.hashes)
    key = _unique_key(contract)

    def keys() -> Iterator[pl.DataFrame]:
        with path.open("rb") as source:
            for _, table in AcceptedFile.open(source).batches([RECORD, *key]):
                check()
                frame = pl.from_arrow(table.select([RECORD, *key]))
                assert isinstance(frame, pl.DataFrame)  # noqa: S101 - a table gives a frame
                yield frame

    return find_duplicates(keys, key, suspects, contract.duplicates, records=records)


def _sum_up(
    folder: Path,
    contract: Contract,
    reading: Reading,
    match: HeaderMatch,
    tally: _Tally,
    duplicates: int,
) -> Validated:
    # By count, then by name: an order that does not depend on the sizes of the chunks.
    by_count = sorted(tally.by_field_and_code.items(), key=lambda item: (-item[1], item[0]))
    counted = by_count[:MAX_COUNTED]
    report = {
        "file": describe(reading),
        "lines": asdict(reading.account),
        "records_read": reading.records_read,
        "accepted": tally.accepted,
        "rejected": tally.rejected,
        "repeated_keys": duplicates,
        "extra_columns": list(match.extra[:MAX_COUNTED]),
        "absent_columns": list(match.absent),
        "reordered": match.reordered,
        "rejects_by_field_and_code": [
            {"field": name, "code": code, "count": count} for (name, code), count in counted
        ],
        "sample_errors": tally.samples,
    }
    return Validated(
        files={name: folder / name for name in (ACCEPTED, ERRORS, REJECTS)},
        records_read=reading.records_read,
        accepted=tally.accepted,
        rejected=tally.rejected,
        duplicates=duplicates,
        report=report,
        too_many=_too_many(contract, reading.records_read, tally.rejected),
    )


def describe(reading: Reading) -> dict[str, Any]:
    """What the reader found out about a file, as plain values."""
    found = asdict(reading.found)
    found["notices"] = [{"code": str(n.code), "detail": n.detail} for n in reading.found.notices]
    found["containers"] = list(reading.found.containers)
    return found | {"header_line": reading.header.line}


def _too_many(contract: Contract, read: int, rejected: int) -> str | None:
    most, ratio = contract.dataset.max_rejects, contract.dataset.max_reject_ratio
    if most is not None and rejected > most:
        return f"{rejected} of {read} records are rejected; the dataset allows {most}."
    if ratio is not None and read and rejected / read > ratio:
        return f"{rejected} of {read} records are rejected; the dataset allows {ratio:.1%}."
    return None


def refuse_too_many(validated: Validated) -> None:
    """Raises PermanentError(too_many_rejects) where the contract's threshold is passed."""
    if validated.too_many:
        raise PermanentError(Code.TOO_MANY_REJECTS, f"{validated.too_many} Nothing was loaded.")
