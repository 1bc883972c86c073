"""The beginning of a file: is it text in UTF-8 at all, and what are its columns called?

Here: byte order marks, the marks of other file types, and the header record. Not here: whether
the names are the ones that a contract expects, or differ from each other.
"""

from dataclasses import dataclass

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.reading.columns import BOM
from pocket_ingest.core.reading.grammar import (
    BLANK_LINES,
    Grammar,
    Outcome,
    count_line_ends,
    count_lines,
)
from pocket_ingest.core.reading.records import Header
from pocket_ingest.core.reading.resync import Judge
from pocket_ingest.core.reading.window import Window

HEAD_BYTES = 4_096

# Longer marks first: UTF-32's little-endian mark begins with that of UTF-16.
OTHER_ENCODINGS = (
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
OTHER_TYPES = (
    (b"PK\x03\x04", "a ZIP archive or an Excel workbook"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel workbook of the old format"),
    (b"\x1f\x8b\x08", "a gzip file"),
    (b"BZh91AY&SY", "a bzip2 file"),
    (b"\xfd7zXZ\x00", "an xz file"),
    (b"(\xb5/\xfd", "a Zstandard file"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1\x00\x00", "an Arrow file"),
    (b"Obj\x01", "an Avro file"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"%PDF-", "a PDF document"),
)


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What precedes the first data record, and how many lines that is."""

    header: Header
    encoding: str
    blank_lines: int
    header_lines: int


def open_csv(window: Window, grammar: Grammar, *, max_columns: int) -> Opening:
    """Read up to the first data record, which begins at the window's offset 0 afterwards.

    Raises:
        PermanentError: ``unsupported_encoding``, ``unsupported_type``, ``empty_file``,
            ``header_unreadable`` or ``too_many_columns``.
    """
    window.grow(HEAD_BYTES)
    _refuse_other_content(window.data[:HEAD_BYTES])
    encoding = "utf-8"
    if window.data.startswith(BOM):
        encoding = "utf-8-sig"
        window.discard(len(BOM))
    blank_lines = _skip_blank_lines(window)
    line = blank_lines + 1
    # A header's verdict may look as far ahead as that of any record.
    window.grow(2 * grammar.max_record_bytes + HEAD_BYTES)
    scan = grammar.scan(window, 0)
    if scan.outcome is Outcome.LONG:
        raise PermanentError(
            Code.HEADER_UNREADABLE,
            f"The header on line {line} is longer than {grammar.max_record_bytes} bytes.",
        )
    if scan.outcome is not Outcome.COMPLETE or not _believed(window, grammar):
        raise PermanentError(
            Code.HEADER_UNREADABLE,
            f"The header on line {line} has a quote that is not closed, or that text follows.",
        )
    if scan.fields > max_columns:
        raise PermanentError(
            Code.TOO_MANY_COLUMNS,
            f"The header on line {line} has {scan.fields} columns; at most {max_columns} are read.",
        )
    raw = window.data[: scan.end]
    header = Header(names=_names(raw, grammar, line), line=line, raw=raw)
    header_lines = count_lines(window.data, 0, scan.next)
    window.discard(scan.next)
    return Opening(
        header=header, encoding=encoding, blank_lines=blank_lines, header_lines=header_lines
    )


def _refuse_other_content(head: bytes) -> None:
    for mark, encoding in OTHER_ENCODINGS:
        if head.startswith(mark):
            raise PermanentError(
                Code.UNSUPPORTED_ENCODING,
                f"The file is encoded in {encoding}. Save it as UTF-8 and send it again.",
            )
    for mark, kind in OTHER_TYPES:
        if head.startswith(mark):
            raise PermanentError(
                Code.UNSUPPORTED_TYPE,
                f"The file is {kind}, not a CSV text. Export it as CSV in UTF-8 and send it again.",
            )
    # A NUL in a record condemns that record only. Where the first line holds one there is no
    # header anyway, and NULs in a quarter of the bytes mean UTF-16 without a mark, or no text.
    first_line = head.splitlines()[0] if head else b""
    if b"\0" in first_line and head.count(0) * 4 >= len(head):
        even, odd = head[0::2].count(0), head[1::2].count(0)
        if min(even, odd) * 4 < max(even, odd):
            raise PermanentError(
                Code.UNSUPPORTED_ENCODING,
                "The file looks like UTF-16 without a byte order mark. "
                "Save it as UTF-8 and send it again.",
            )
        raise PermanentError(
            Code.UNSUPPORTED_TYPE,
            "The file holds binary data, not a CSV text. Export it as CSV in UTF-8.",
        )


def _skip_blank_lines(window: Window) -> int:
    blank_lines = 0
    while True:
        found = BLANK_LINES.match(window.data)
        end = found.end() if found else 0
        if end < len(window.data) or window.final:
            break
        # The last byte stays: it may be the first half of CRLF.
        blank_lines += count_line_ends(window.data, 0, end - 1)
        window.discard(end - 1)
        window.grow(HEAD_BYTES)
    blank_lines += count_line_ends(window.data, 0, end)
    window.discard(end)
    if not window.data:
        raise PermanentError(
            Code.EMPTY_FILE, "The file is empty: it has neither a header nor a record."
        )
    return blank_lines


def _believed(window: Window, grammar: Grammar) -> bool:
    """Whether the quotes of the header are believed; the rule is that of any record."""
    scan = grammar.scan(window, 0)
    return Judge(grammar, scan.fields).believes(window, 0, scan)


def _names(raw: bytes, grammar: Grammar, line: int) -> tuple[str, ...]:
    if b"\0" in raw:
        raise PermanentError(Code.HEADER_UNREADABLE, f"The header on line {line} holds a NUL byte.")
    try:
        return tuple(name.decode() for name in grammar.split(raw))
    except UnicodeDecodeError as error:
        raise PermanentError(
            Code.HEADER_UNREADABLE,
            f"The header on line {line} is not UTF-8. Save the file as UTF-8 and send it again.",
        ) from error
