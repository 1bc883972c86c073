"""What reading yields, whatever the format of the file: numbered records of text in chunks.

Here: the values that every reader of a format speaks in, and the bounds that it keeps.
Not here: how any format is read.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pocket_ingest.core.errors import Code

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ReadingLimits:
    """Bounds of what the reader holds and accepts.

    Attributes:
        chunk_bytes: bytes of a chunk at most, unless its only record is longer.
        chunk_records: records of a chunk at most.
        max_record_bytes: a longer record is rejected as ``record_too_long``.
        max_field_bytes: a record with a longer field is rejected as ``field_too_long``.
        max_columns: a file with more columns is refused.
        max_unpacked_bytes: an archive that holds more is refused.
        max_unpack_ratio: so is one that grows by more than this factor.
        max_members: and one of more members.
        max_sheet_bytes: a spreadsheet whose sheet takes more memory than this is refused.
    """

    chunk_bytes: int = 4 * 2**20
    chunk_records: int = 100_000
    max_record_bytes: int = 8 * 2**20
    max_field_bytes: int = 8 * 2**20
    max_columns: int = 2_000
    max_unpacked_bytes: int = 64 * 2**30
    max_unpack_ratio: int = 200
    max_members: int = 1_000
    max_sheet_bytes: int = 256 * 2**20

    def __post_init__(self) -> None:
        if min(getattr(self, limit.name) for limit in fields(self)) < 1:
            raise ValueError("every reading limit must be at least 1")
        # Arrow's text columns address 2 GiB; half of it leaves room for one long record.
        if self.chunk_bytes + self.max_record_bytes > 2**30:
            raise ValueError("chunk_bytes and max_record_bytes must not exceed 1 GiB in sum")


DEFAULT_LIMITS = ReadingLimits()


@dataclass(frozen=True, kw_only=True)
class Header:
    """The column names of a file.

    Attributes:
        names: as they are written: perhaps empty, perhaps twice the same. Of several header rows,
            the names of a column joined by spaces; where there is no header, the contract's, or
            ``column_1``, ``column_2``, ...
        line: physical line where the header begins; 0 where the file has none.
        raw: the header as one line of the file's own bytes, without its terminator.
        rows: the header rows, cell by cell; empty where the file has none.
    """

    names: tuple[str, ...]
    line: int
    raw: bytes
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class MalformedRecord:
    """A record that cannot be read.

    Attributes:
        record: 1-based number of the record.
        line: 1-based physical line where it begins.
        lines: physical lines that it spans, which is what it cost.
        code: what is wrong.
        hint: the same as a sentence, without any cell's value.
        raw: its original bytes without the line terminator; of a record that is too long, the
            first 4096.
        field: 0-based position of the field that is wrong, where one can be named.
    """

    record: int
    line: int
    lines: int
    code: Code
    hint: str
    raw: bytes
    field: int | None = None


@dataclass(frozen=True, kw_only=True)
class RecordChunk:
    """Consecutive records; each number is either a row of ``columns`` or in ``malformed``.

    Attributes:
        first_record: number of the first record, sound or not.
        last_record: number of the last one.
        columns: the sound records; all columns are text, named by POSITION ("0", "1", ...), so
            that a header with an empty name, or the same name twice, can be shown too. A bare
            empty field is null, a quoted one is the empty text.
        records: int64 number of each row's record.
        lines: int64 physical line where each row's record begins; in a spreadsheet its row, in a
            file without lines the record's number.
        malformed: the others, by number.
        raw: gives the original bytes of a row's record, without its line terminator; of a format
            that is not CSV, the record as a line of CSV.
    """

    first_record: int
    last_record: int
    columns: pa.RecordBatch
    records: Positions
    lines: Positions
    malformed: tuple[MalformedRecord, ...]
    raw: Callable[[int], bytes]


@dataclass(frozen=True, kw_only=True)
class LineAccount:
    """What every physical line of the file is; of a spreadsheet, every row.

    Attributes:
        title_lines: lines with text before the header.
        header_lines: lines of the header.
        record_lines: lines of records, sound or malformed.
        blank_lines: lines without a byte that are no record.
        comment_lines: lines that a comment mark begins.
        footer_lines: lines with text after the last record: totals, sources, signatures.
    """

    title_lines: int = 0
    header_lines: int = 0
    record_lines: int = 0
    blank_lines: int = 0
    comment_lines: int = 0
    footer_lines: int = 0

    @property
    def total(self) -> int:
        """Physical lines of the file."""
        return sum(getattr(self, kind.name) for kind in fields(self))


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something that the reader noticed of a file and that a person should know."""

    code: Code
    detail: str


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the reader found out about a file before its first record.

    Attributes:
        format: "csv", "xlsx", "xls", "xlsb", "ods", "jsonl", "json" or "parquet".
        containers: what it was packed in, outermost first: "zip", "gzip", "bzip2", "xz", "zstd".
        member: the archive's member that was read.
        encoding: a codec's name; empty for formats that are not text.
        encoding_reason: how it was found out.
        delimiter, quote, escape, comment: of a CSV file; empty where there is none.
        dialect_reason: how they were found out.
        sheet: of a spreadsheet.
        notices: what else a person should know.
    """

    format: str
    containers: tuple[str, ...] = ()
    member: str = ""
    encoding: str = ""
    encoding_reason: str = ""
    delimiter: str = ""
    quote: str = ""
    escape: str = ""
    comment: str = ""
    dialect_reason: str = ""
    sheet: str = ""
    notices: tuple[Notice, ...] = field(default=())


class Reading(Protocol):
    """One walk through a file; iterable once.

    ``account`` and ``records_read`` are complete after the last chunk.
    """

    @property
    def header(self) -> Header:
        """The column names."""

    @property
    def found(self) -> Found:
        """What the file is."""

    @property
    def account(self) -> LineAccount:
        """The lines read so far."""

    @property
    def records_read(self) -> int:
        """Records met so far, sound or malformed."""

    def __iter__(self) -> Iterator[RecordChunk]:
        """The chunks in order."""

    def split(self, record: MalformedRecord) -> tuple[str, ...]:
        """The fields of a malformed record, as well as they can be told apart."""
