"""The second stage: records of text become typed rows, or rejected records with a reason.

Here: the walk through a pinned file, chunk by chunk, and what it publishes.
Not here: reading (reading/), single casts (casting.py), Pandera (checking.py), file formats of the
artifacts (artifacts.py).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

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
    RecordError,
    RejectsWriter,
    write_duplicates,
)
from pocket_ingest.core.casting import cast_chunk
from pocket_ingest.core.checking import check_rows
from pocket_ingest.core.contract import Contract
from pocket_ingest.core.dataset import Duplicates, FromColumn
from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.header import HeaderMatch, match_header
from pocket_ingest.core.reading import CsvReading, ReadingLimits, RecordChunk, read_csv
from pocket_ingest.core.uniqueness import Duplicated, find_duplicates, hash_keys, repeated_hashes

MAX_COUNTED = 500
"""Pairs of field and code that a report lists; a contract of 2,000 columns must not fill a job."""
MAX_SAMPLES = 20


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
    """Counts of a walk, in bounded memory."""

    accepted: int = 0
    rejected: int = 0
    by_field_and_code: Counter[tuple[str, str]] = field(default_factory=Counter)
    samples: list[RecordError] = field(default_factory=list)
    hashes: list[np.ndarray] = field(default_factory=list)

    def note(self, errors: list[RecordError]) -> None:
        self.by_field_and_code.update((e.field, str(e.code)) for e in errors)
        self.samples += errors[: MAX_SAMPLES - len(self.samples)]


def validate_file(
    open_file: Callable[[], BinaryIO],
    contract: Contract,
    *,
    folder: Path,
    limits: ReadingLimits,
    check: Callable[[], None],
) -> Validated:
    """Validate one file.

    Args:
        open_file: opens the pinned file; called twice only where the contract rejects every
            record of a repeated key, which is known at the end of the first walk.
        contract: the dataset's.
        folder: where the artifacts are written.
        limits: bounds of the reader.
        check: called between chunks; raises where the job was cancelled or its lease lost.

    Raises:
        PermanentError: the file as a whole is refused (empty_file, missing_column, ...).
    """
    refused: dict[int, int] = {}
    validated, duplicated = _walk(open_file, contract, folder, limits, check, refused)
    if contract.duplicates is Duplicates.REJECT and len(duplicated.records):
        refused = dict(zip(duplicated.records.tolist(), duplicated.winners.tolist(), strict=True))
        validated, _ = _walk(open_file, contract, folder, limits, check, refused)
    elif len(duplicated.records):
        path = folder / DUPLICATES
        write_duplicates(path, pa.array(duplicated.records), pa.array(duplicated.winners))
        validated.files[DUPLICATES] = path
    return validated


def _walk(
    open_file: Callable[[], BinaryIO],
    contract: Contract,
    folder: Path,
    limits: ReadingLimits,
    check: Callable[[], None],
    refused: dict[int, int],
) -> tuple[Validated, Duplicated]:
    """One pass over the file; ``refused`` are records known to repeat a key, with the first one."""
    delimiter = contract.dataset.delimiter.encode()
    with open_file() as source:
        reading = read_csv(source, delimiter=delimiter, limits=limits)
        match = match_header(reading.header.names, contract)
        tally = _Tally()
        accepted = AcceptedWriter(folder / ACCEPTED, contract)
        errors = ErrorsWriter(folder / ERRORS)
        rejects = RejectsWriter(folder / REJECTS, header=reading.header.raw, delimiter=delimiter)
        try:
            for chunk in reading:
                check()
                rows, bad = _validate_chunk(chunk, match, contract, refused)
                found = [error for record in bad for error in record.errors]
                errors.write(found)
                for record in bad:
                    rejects.write(record.record, record.line, record.errors, record.raw)
                tally.note(found)
                tally.accepted += rows.height
                tally.rejected += len(bad)
                tally.hashes.append(hash_keys(rows, _unique_key(contract)))
                accepted.write(
                    rows,
                    PlannedBatch(
                        first_record=chunk.first_record,
                        last_record=chunk.last_record,
                        accepted=rows.height,
                        rejected=len(bad),
                    ),
                )
        finally:
            accepted.close()
            errors.close()
            rejects.close()
    duplicated = _duplicates(folder / ACCEPTED, contract, tally)
    return _sum_up(folder, contract, reading, match, tally, len(duplicated.records)), duplicated


@dataclass(frozen=True, kw_only=True)
class _Rejected:
    record: int
    line: int
    errors: list[RecordError]
    raw: bytes


def _validate_chunk(
    chunk: RecordChunk, match: HeaderMatch, contract: Contract, refused: dict[int, int]
) -> tuple[pl.DataFrame, list[_Rejected]]:
    """Typed rows with their record numbers, and the chunk's rejected records in file order."""
    typed, failures = cast_chunk(_text(chunk, match, contract), contract.fields)
    errors = _Errors(chunk=chunk)
    for failure in failures:
        if failure.code is not Code.REQUIRED or failure.field not in match.absent:
            for row in failure.rows:
                errors.note(row, failure.field, failure.code, failure.hint)
    if refused:
        _refuse_repeated(errors, refused)
    _check(errors, typed.drop(match.absent), contract)
    found = errors.by_row
    good = np.setdiff1d(np.arange(typed.height), list(found), assume_unique=True)
    bad = [
        _Rejected(record=errors[0].record, line=errors[0].line, errors=errors, raw=chunk.raw(row))
        for row, errors in found.items()
    ]
    bad += [
        _Rejected(
            record=record.record,
            line=record.line,
            raw=record.raw,
            errors=[
                RecordError(
                    record=record.record,
                    line=record.line,
                    field="",
                    code=record.code,
                    hint=record.hint,
                )
            ],
        )
        for record in chunk.malformed
    ]
    bad.sort(key=lambda record: record.record)
    typed = typed.with_columns(pl.Series(RECORD, chunk.records))
    rows = typed if len(good) == typed.height else typed[good]
    return rows.select(RECORD, *(f.name for f in contract.fields)), bad


@dataclass(frozen=True, kw_only=True)
class _Errors:
    """The errors of a chunk's rows, by row."""

    chunk: RecordChunk
    by_row: dict[int, list[RecordError]] = field(default_factory=dict)

    def note(self, row: int, name: str, code: Code, hint: str) -> None:
        error = RecordError(
            record=int(self.chunk.records[row]),
            line=int(self.chunk.lines[row]),
            field=name,
            code=code,
            hint=hint,
        )
        self.by_row.setdefault(row, []).append(error)


def _refuse_repeated(errors: _Errors, refused: dict[int, int]) -> None:
    records = errors.chunk.records
    for row in np.flatnonzero(np.isin(records, list(refused))).tolist():
        first = refused[int(records[row])]
        hint = f"the business key occurs more than once in the file, first in record {first}"
        errors.note(row, "", Code.DUPLICATE_KEY, hint)


def _check(errors: _Errors, typed: pl.DataFrame, contract: Contract) -> None:
    """Pandera's checks: all of them on rows that did cast, those of single columns on the others.

    So a cell that did not cast hides no other violation of its record.
    """
    uncast = sorted(errors.by_row)
    cast = np.setdiff1d(np.arange(typed.height), uncast, assume_unique=True)
    for violation in check_rows(typed[cast] if uncast else typed, contract):
        row = int(cast[violation.row])
        errors.note(row, violation.field, violation.code, violation.hint)
    if uncast:
        cells = {(row, e.field) for row, known in errors.by_row.items() for e in known}
        for violation in check_rows(typed[uncast], contract, complete=False):
            row = uncast[violation.row]
            if (row, violation.field) not in cells:
                errors.note(row, violation.field, violation.code, violation.hint)


def _text(chunk: RecordChunk, match: HeaderMatch, contract: Contract) -> pl.DataFrame:
    """The contract's columns as text; an optional column that the file lacks is all null."""
    arrow = chunk.columns
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


def _duplicates(path: Path, contract: Contract, tally: _Tally) -> Duplicated:
    suspects = repeated_hashes(tally.hashes)
    tally.hashes.clear()
    key = _unique_key(contract)

    def keys() -> Iterator[pl.DataFrame]:
        with path.open("rb") as source:
            for _, table in AcceptedFile.open(source).batches([RECORD, *key]):
                frame = pl.from_arrow(table.select([RECORD, *key]))
                assert isinstance(frame, pl.DataFrame)  # noqa: S101 - a table gives a frame
                yield frame

    return find_duplicates(keys() if len(suspects) else (), key, suspects, contract.duplicates)


def _sum_up(
    folder: Path,
    contract: Contract,
    reading: CsvReading,
    match: HeaderMatch,
    tally: _Tally,
    duplicates: int,
) -> Validated:
    counted = tally.by_field_and_code.most_common(MAX_COUNTED)
    report = {
        "encoding": reading.encoding,
        "delimiter": contract.dataset.delimiter,
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
        "sample_errors": [{**asdict(e), "code": str(e.code)} for e in tally.samples],
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
