"""The fourth stage: the rows of an upload out again, for the next reader.

Here: which files an upload exports and how they are made from one snapshot.
Not here: the query (adapters/postgres/loader.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from pocket_ingest.core.artifacts import (
    EXPORT_CSV,
    EXPORT_PARQUET,
    RECORD,
    accepted_schema,
)
from pocket_ingest.core.contract import Contract


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The export files, local and not published yet, and their number of rows."""

    files: dict[str, Path]
    rows: int


def export_rows(
    contract: Contract,
    *,
    folder: Path,
    write_csv: Callable[[BinaryIO], int],
    check: Callable[[], None],
    max_record_bytes: int,
) -> Exported:
    """Write the CSV from one snapshot, then the Parquet from that CSV: both hold the same rows.

    Args:
        contract: gives the types.
        folder: where the files are written.
        write_csv: writes the rows, record number first, and returns how many there are.
        check: called between blocks; raises where the job was cancelled or its lease lost.
        max_record_bytes: of the records that the rows were read from.
    """
    csv_path, parquet_path = folder / EXPORT_CSV, folder / EXPORT_PARQUET
    with csv_path.open("wb") as target:
        rows = write_csv(target)
    check()
    schema = accepted_schema(contract)
    described = pa.schema(
        [
            field.with_metadata({"description": contract.field(field.name).description})
            if field.name != RECORD and contract.field(field.name).description
            else field
            for field in schema
        ],
        metadata={
            "pocket_ingest.dataset": contract.name,
            "pocket_ingest.contract": contract.version,
        },
    )
    with pq.ParquetWriter(parquet_path, described, compression="zstd") as writer:
        if rows:
            for block in _typed_blocks(csv_path, schema, max_record_bytes):
                check()
                writer.write_table(pa.Table.from_batches([block]).cast(described))
    return Exported(files={EXPORT_CSV: csv_path, EXPORT_PARQUET: parquet_path}, rows=rows)


def _typed_blocks(
    path: Path, schema: pa.Schema, max_record_bytes: int
) -> pyarrow.csv.CSVStreamingReader:
    """The CSV's rows as Arrow, with the types that the contract gives; nothing is inferred."""
    # Arrow refuses a record that is longer than a block. An export may double a record, if it is
    # all quotes, and writes numbers and dates out in full.
    block_size = min(max(8 * 2**20, 2 * max_record_bytes + 2**20), 2**31 - 1)
    return pyarrow.csv.open_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(block_size=block_size, use_threads=False),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=schema,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        ),
    )
