"""What the benchmarks measure in processes of their own: ``python -m benchmarks.work NAME ...``.

Here: one function for each side of a comparison; it prints what it found as JSON. ``seconds`` are
those of the work, without the start of Python and the imports.
Not here: the comparison itself.
"""

import csv
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.permits import HEADER, PARCEL, STATUSES, TYPES, bench_permits, write_permits
from pocket_ingest.adapters.postgres.connection import Database
from pocket_ingest.adapters.postgres.schema import ensure_table, migrate
from pocket_ingest.core.intake import take_in_file
from pocket_ingest.core.reading import ReadingLimits, open_table
from pocket_ingest.core.validation import validate_file
from pocket_ingest.settings import Settings
from pocket_ingest.wiring import build_engine, reading_limits

Found = dict[str, Any]


def limits() -> ReadingLimits:
    """The reader's bounds as they are by default."""
    return reading_limits(Settings())


def generate(folder: str, records: str) -> Found:
    """Write the files."""
    return {"good": write_permits(Path(folder), int(records))}


def generate_workbook(folder: str, records: str) -> Found:
    """Write the good permits as a workbook, numbers and dates as such."""
    import openpyxl  # noqa: PLC0415 - slow, and needed by few

    good = write_permits(Path(folder), int(records))
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("Permits")
    with (Path(folder) / "clean.csv").open(encoding="utf-8", newline="") as source:
        rows = csv.reader(source)
        sheet.append(next(rows))
        for row in rows:
            dates = [date.fromisoformat(cell) if cell else None for cell in row[3:5]]
            numbers = [float(cell) if cell else None for cell in row[9:]]
            sheet.append([*row[:3], *dates, *row[5:9], *numbers])
    book.save(Path(folder) / "permits.xlsx")
    return {"good": good}


def prepare(url: str) -> Found:
    """A database as an import finds it: migrated, with the dataset's table, which is empty."""
    migrate(url)
    database = Database(url)
    with database.transaction() as connection:
        ensure_table(connection, bench_permits.contract, schema="public")
    database.close()
    return {}


def recognise(url: str, home: str, tenant: str, file: str) -> Found:
    """Take a file in that was there before: checksum, pinned copy, one transaction."""
    engine = build_engine(
        Settings(home=Path(home)), url=url, datasets={bench_permits.name: bench_permits}
    )
    times = []
    for _ in range(4):
        started = time.perf_counter()
        taken = take_in_file(
            engine.store, engine.ledger, Path(file), dataset=bench_permits, tenant=tenant
        )
        times.append(time.perf_counter() - started)
        if taken.is_new:
            raise SystemExit("the file was not recognised")
    # The first one opens the connection.
    return {"seconds": min(times[1:])}


def read_own(file: str) -> Found:
    """This project's reader, every record checked and numbered."""
    bounds = limits()
    started = time.perf_counter()
    good = bad = 0
    with open_table(lambda: Path(file).open("rb"), limits=bounds) as reading:
        for chunk in reading:
            good += chunk.columns.num_rows
            bad += len(chunk.malformed)
    return {"seconds": time.perf_counter() - started, "good": good, "malformed": bad}


def read_pyarrow(file: str) -> Found:
    """The streaming reader of pyarrow with its own choice of threads, to text."""
    bad = 0

    def skip(_: pyarrow.csv.InvalidRow) -> str:
        nonlocal bad
        bad += 1
        return "skip"

    started = time.perf_counter()
    good = 0
    reader = pyarrow.csv.open_csv(
        file,
        read_options=pyarrow.csv.ReadOptions(block_size=limits().chunk_bytes),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(HEADER, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
    for batch in reader:
        good += batch.num_rows
    return {"seconds": time.perf_counter() - started, "good": good, "malformed": bad}


def read_openpyxl(file: str) -> Found:
    """The fastest way that openpyxl has: read-only, values alone."""
    import openpyxl  # noqa: PLC0415 - slow, and needed by few

    started = time.perf_counter()
    sheet = openpyxl.load_workbook(file, read_only=True).worksheets[0]
    good = sum(1 for _ in sheet.iter_rows(values_only=True)) - 1
    return {"seconds": time.perf_counter() - started, "good": good}


def open_file(path: Path) -> BinaryIO:
    """Open for reading bytes."""
    return path.open("rb")


def validate_own(file: str) -> Found:
    """The whole stage: reading, casts, Pandera, keys, and its artifacts on the disk."""
    contract, bounds = bench_permits.contract, limits()
    validate_warm(bounds)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        found = validate_file(
            lambda: open_file(Path(file)),
            contract,
            folder=Path(folder),
            limits=bounds,
            check=lambda: None,
        )
        seconds = time.perf_counter() - started
    return {"seconds": seconds, "good": found.accepted, "rejected": found.rejected}


def validate_warm(bounds: ReadingLimits) -> None:
    """One record through the stage, so that whatever is imported late has been imported."""
    with tempfile.TemporaryDirectory() as folder:
        write_permits(Path(folder), 1)
        validate_file(
            lambda: open_file(Path(folder) / "permits.csv"),
            bench_permits.contract,
            folder=Path(folder),
            limits=bounds,
            check=lambda: None,
        )


def validate_by_hand(file: str) -> Found:
    """The same reader, the same rules as Polars expressions, good rows and reasons on the disk."""
    bounds = limits()
    good = bad = 0
    keys: list[pl.Series] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = time.perf_counter()
        writer: pq.ParquetWriter | None = None
        with (folder / "errors.csv").open("wb") as errors:
            for text, malformed in _texts(file, bounds):
                checked = text.with_columns(**_casts()).with_columns(**_rules())
                passes = checked.select(pl.all_horizontal(*_rules())).to_series()
                rows = checked.filter(passes).select("_record", *HEADER)
                failing = checked.filter(~passes).select("_record", *_rules())
                failing.write_csv(errors, include_header=False)
                keys.append(rows["permit_number"])
                table = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
                writer = writer or pq.ParquetWriter(
                    folder / "good.parquet", table.schema, compression="lz4"
                )
                writer.write_table(table)
                good += rows.height
                bad += failing.height + malformed
        if writer is not None:
            writer.close()
        doubled = pl.concat(keys).is_duplicated().sum()
        seconds = time.perf_counter() - started
    return {"seconds": seconds, "good": good, "rejected": bad, "doubled": doubled}


def _texts(file: str, bounds: ReadingLimits) -> Iterator[tuple[pl.DataFrame, int]]:
    with open_table(lambda: Path(file).open("rb"), limits=bounds) as reading:
        for chunk in reading:
            frame = pl.from_arrow(chunk.columns.rename_columns(HEADER))
            assert isinstance(frame, pl.DataFrame)
            yield frame.with_columns(pl.Series("_record", chunk.records)), len(chunk.malformed)


def _casts() -> dict[str, pl.Expr]:
    def given(name: str) -> pl.Expr:
        return pl.when(pl.col(name) != "").then(pl.col(name))

    def number(name: str) -> pl.Expr:
        return given(name).str.replace_all(",", "", literal=True)

    return {
        "permit_number": given("permit_number").str.strip_chars(),
        "issued_on": given("issued_on").str.to_date("%m/%d/%Y", strict=False),
        "finaled_on": given("finaled_on").str.to_date("%m/%d/%Y", strict=False),
        "valuation": number("valuation").cast(pl.Decimal(14, 2), strict=False),
        "fee": number("fee").cast(pl.Decimal(10, 2), strict=False),
        "square_feet": given("square_feet").cast(pl.Int64, strict=False),
        **{f"{name}_given": given(name).is_not_null() for name in ("finaled_on", "fee")},
        "square_feet_given": given("square_feet").is_not_null(),
    }


def _rules() -> dict[str, pl.Expr]:
    def passes(rule: pl.Expr) -> pl.Expr:
        return rule.fill_null(value=False)

    def optional(name: str, rule: pl.Expr) -> pl.Expr:
        return (pl.col(name).is_not_null() & rule) | ~pl.col(f"{name}_given")

    final = (pl.col("status") != "Finaled") | pl.col("finaled_on").is_not_null()
    return {
        "r_number": passes(pl.col("permit_number").str.len_chars().is_between(1, 40)),
        "r_type": passes(pl.col("permit_type").is_in(TYPES)),
        "r_status": passes(pl.col("status").is_in(STATUSES)),
        "r_issued": pl.col("issued_on").is_not_null(),
        "r_finaled": optional("finaled_on", pl.lit(value=True)),
        "r_parcel": passes(pl.col("parcel").str.contains(PARCEL)),
        "r_address": pl.col("address").is_not_null(),
        "r_valuation": passes(pl.col("valuation") >= 0),
        "r_fee": passes(optional("fee", pl.col("fee") >= 0)),
        "r_feet": passes(optional("square_feet", pl.col("square_feet") >= 0)),
        "r_final_date": passes(final),
    }


WORK: dict[str, Callable[..., Found]] = {
    f.__name__: f
    for f in (
        generate,
        generate_workbook,
        prepare,
        recognise,
        read_own,
        read_pyarrow,
        read_openpyxl,
        validate_own,
        validate_by_hand,
    )
}

if __name__ == "__main__":
    print(json.dumps(WORK[sys.argv[1]](*sys.argv[2:])))
