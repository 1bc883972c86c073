"""What a dataset declares of its files, where the reader should not find it out by itself.

Here: plain values. Not here: their use (reading/).
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """What a dataset declares of its files. What is not declared is found in each file.

    Attributes:
        encoding: a codec of Python's, like "cp1252" or "shift_jis".
        delimiter: between fields; one character or several.
        quote: around fields; empty if quotes mean nothing in these files.
        escape: before a quote, delimiter, line end or itself; empty if nothing is escaped so.
        comment: begins lines that are no records; empty if no line is a comment.
        header_rows: rows of column names; 0 if the columns come in the contract's order.
        skip_lines: lines (rows, in a spreadsheet) before the header.
        footer_lines: lines (rows) with text after the last record.
        sheet: of a spreadsheet, by name.
        member: of an archive, by name or pattern (``*.csv``).
    """

    encoding: str | None = None
    delimiter: str | None = None
    quote: str | None = None
    escape: str | None = None
    comment: str | None = None
    header_rows: int | None = None
    skip_lines: int | None = None
    footer_lines: int | None = None
    sheet: str | None = None
    member: str | None = None


UNDECLARED = FileFormat()
