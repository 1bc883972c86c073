"""Reading: from the bytes of a file to numbered records of text, in bounded chunks.

Here: what a table is in each format, and what to do where a file is not one. Not here: what the
text means; that is the contract's word, in validation.
"""

from pocket_ingest.core.reading.csv_records import CsvReading, read_csv
from pocket_ingest.core.reading.records import (
    Header,
    LineAccount,
    MalformedRecord,
    Reading,
    ReadingLimits,
    RecordChunk,
)

__all__ = [
    "CsvReading",
    "Header",
    "LineAccount",
    "MalformedRecord",
    "Reading",
    "ReadingLimits",
    "RecordChunk",
    "read_csv",
]
