"""Reading: from the bytes of a file to numbered records of text, in bounded chunks.

Here: what CSV is and what to do where a file is not CSV. Not here: what the text means; that is
the contract's word, in validation.
"""

from pocket_ingest.core.reading.csv_records import (
    CsvReading,
    LineAccount,
    MalformedRecord,
    ReadingLimits,
    RecordChunk,
    read_csv,
)
from pocket_ingest.core.reading.opening import Header

__all__ = [
    "CsvReading",
    "Header",
    "LineAccount",
    "MalformedRecord",
    "ReadingLimits",
    "RecordChunk",
    "read_csv",
]
