"""Where the table stands between titles and footers, told from rows of text.

Here: rows that are cells already, of a CSV file or a spreadsheet.
Not here: how rows are cut into cells.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pocket_ingest.core.reading.expectation import Expectation

Row = Sequence[str | None]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the header stands.

    Attributes:
        header_at: index of the first header row; rows before it are titles, or blank. Where there
            is no header, the index of the first record.
        header_rows: how many rows the header takes; 0 where there is none.
        names: of the columns; made up where there is no header.
    """

    header_at: int
    header_rows: int
    names: tuple[str, ...]


def find_layout(rows: Sequence[Row], expectation: Expectation) -> Layout:
    """Find the header among the first rows of a table.

    Args:
        rows: the first rows, blank ones too; a blank row has no cell or only empty ones.
        expectation: what is known.
    """
    declared = expectation.format
    at = declared.skip_lines or 0
    while at < len(rows) and not any(rows[at]):
        at += 1
    names = tuple(cell or "" for cell in rows[at]) if at < len(rows) else ()
    return Layout(header_at=at, header_rows=1, names=names)


def count_footer(rows: Sequence[Row], layout: Layout) -> int:
    """How many of the last rows of a table are no records: blank ones, totals, sources.

    Args:
        rows: the last rows of the file, after the header.
        layout: of the table.
    """
    count = 0
    while count < len(rows) and not any(rows[-1 - count][: len(layout.names)]):
        count += 1
    return count
