"""Reading: from the bytes of a file to numbered records of text, in bounded chunks.

Here: what a table is in each format, and what to do where a file is not one. Not here: what the
text means; that is the contract's word, in validation.
"""

from pocket_ingest.core.reading.expectation import Expectation
from pocket_ingest.core.reading.records import (
    Found,
    Header,
    LineAccount,
    MalformedRecord,
    Notice,
    Reading,
    ReadingLimits,
    RecordChunk,
)
from pocket_ingest.core.reading.table import open_table

__all__ = [
    "Expectation",
    "Found",
    "Header",
    "LineAccount",
    "MalformedRecord",
    "Notice",
    "Reading",
    "ReadingLimits",
    "RecordChunk",
    "open_table",
]
