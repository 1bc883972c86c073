"""How much memory a workbook takes, told from its markup before anything of it is loaded.

Calamine holds a sheet as a full rectangle, up to its last filled cell, and a shared text once for
each cell that shows it. A workbook of 5 KB with one value in its last row and column asks for
550 GB; that allocation fails, and with it ends the process, not a function that could be caught.

Here: the sizes of XLSX (ECMA-376 part 1, 18.3), XLSB (MS-XLSB 2.1.4 and 2.4) and ODS (OpenDocument
1.3 part 3, 9). XLS has at most 65,536 rows of 256 columns, and its own size tells enough. Not
here: reading a value.
"""

import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO
from xml.parsers import expat

import numpy as np
import numpy.typing as npt

BLOCK_BYTES = 2**20
CELL_BYTES = 40
"""A filled cell, before the rectangle is made. Measured: 75 bytes for a cell and its place."""
PLACE_BYTES = 32
"""A place of the rectangle, filled or not."""
TEXT_BYTES = 24
"""A text, besides its characters."""

SHARED_VALUE = re.compile(rb"""\st=["']s["'][^>]*>\s*<(?:\w+:)?v>(\d{1,9})<""")
SHARED_TEXT = re.compile(rb"<(?:\w+:)?si[>\s]")
CELL = re.compile(rb"<(?:\w+:)?c[>\s]")
ROW = re.compile(rb"<(?:\w+:)?row[>\s]")

# Kinds of XLSB's records.
ROW_HEADER, SHARED_CELL_RECORD, SHARED_TEXT_RECORD = 0, 7, 19
CELL_RECORDS = range(2, 12)
HEAD_BYTES = 12


class TooLarge(Exception):  # noqa: N818 - not an error of the program, an answer
    """The workbook takes more memory than is allowed."""


@dataclass(kw_only=True)
class _Extent:
    """The filled cells of a sheet, as far as it was looked at."""

    most: int
    cells: int = 0
    text_bytes: int = 0
    last_row: int = 0
    last_column: int = 0

    def add(self, *, cells: int, text_bytes: int, last_row: int, last_column: int) -> None:
        """Add cells, and the last row and column of them, from 1.

        Raises:
            TooLarge: with them, the sheet takes more than is allowed.
        """
        self.cells += cells
        self.text_bytes += text_bytes
        self.last_row = max(self.last_row, last_row)
        self.last_column = max(self.last_column, last_column)
        places = self.last_row * self.last_column
        if self.cells * CELL_BYTES + places * PLACE_BYTES + self.text_bytes > self.most:
            raise TooLarge


def measure(archive: zipfile.ZipFile, *, most: int) -> bool:
    """See that each sheet of a workbook fits into ``most`` bytes.

    Returns:
        Whether a sheet may hold cells that are errors.

    Raises:
        TooLarge: one does not.
        zipfile.BadZipFile, OSError, EOFError, ValueError, NotImplementedError, RuntimeError,
            zlib.error, expat.ExpatError: the archive is damaged, or packed in an unknown way.
    """
    names = archive.namelist()
    if "content.xml" in names:
        with archive.open("content.xml") as content:
            _OdsExtents(most).read(content)
        return True
    errors = False
    texts = _shared_texts(archive, names, most)
    for name in names:
        if not name.startswith("xl/worksheets/"):
            continue
        with archive.open(name) as content:
            if name.endswith(".bin"):
                _measure_xlsb(content, texts, most)
                errors = True
            elif name.endswith(".xml"):
                errors |= _measure_xlsx(content, texts, most)
    return errors


def _blocks(content: IO[bytes], mark: bytes) -> Iterator[bytes]:
    """A member in blocks, each cut before the last ``mark`` in it."""
    rest = b""
    while block := content.read(BLOCK_BYTES):
        block = rest + block
        cut = block.rfind(mark)
        cut = cut if cut > 0 else len(block)
        yield block[:cut]
        rest = block[cut:]
    yield rest


# -- shared texts ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Texts:
    """The sizes of a workbook's shared texts, by number."""

    sizes: npt.NDArray[np.int64]
    longest: int

    def of(self, numbers: Sequence[bytes]) -> int:
        """Bytes of some texts, each as often as it is named."""
        named = np.array(numbers, dtype=np.int64)
        return int(self.sizes[named[named < len(self.sizes)]].sum())


def _shared_texts(archive: zipfile.ZipFile, names: Sequence[str], most: int) -> _Texts:
    sizes = np.empty(0, np.int64)
    if "xl/sharedStrings.xml" in names:
        with archive.open("xl/sharedStrings.xml") as content:
            sizes = _text_sizes(content, most)
    elif "xl/sharedStrings.bin" in names:
        with archive.open("xl/sharedStrings.bin") as content:
            texts = [size for kind, size, _ in _records(content) if kind == SHARED_TEXT_RECORD]
            sizes = np.array(texts, np.int64)
    if int(sizes.sum()) + len(sizes) * TEXT_BYTES > most:
        raise TooLarge
    return _Texts(sizes=sizes, longest=int(sizes.max(initial=0)))


def _text_sizes(content: IO[bytes], most: int) -> npt.NDArray[np.int64]:
    """Bytes from each shared text to the next: its markup as well, so no less than its own."""
    borders: list[int] = []
    passed = 0
    for block in _blocks(content, b"<si"):
        borders += [passed + found.start() for found in SHARED_TEXT.finditer(block)]
        passed += len(block)
        if passed > most:
            raise TooLarge
    ends = np.array([*borders[1:], passed], dtype=np.int64)
    return ends - np.array(borders, dtype=np.int64) if borders else ends[:0]


# -- XLSX --------------------------------------------------------------------------------------


def _measure_xlsx(content: IO[bytes], texts: _Texts, most: int) -> bool:
    """Whether the sheet, which fits, may hold errors."""
    extent = _Extent(most=most)
    errors = False
    unnumbered = 0
    for block in _blocks(content, b" r="):
        errors = errors or _count(block, b"e") > 0
        rows, columns, empty = _places(block)
        filled, last_row, last_column = len(rows), rows.max(initial=0), columns.max(initial=0)
        if not filled and not empty and CELL.search(block):
            # Places may be left out: each row is the next one then, and each cell in it.
            parts = ROW.split(block)
            unnumbered += len(parts) - 1
            widths = [len(CELL.findall(part)) for part in parts]
            filled, last_row, last_column = sum(widths), unnumbered, max(widths)
        extent.add(
            cells=filled,
            text_bytes=_text_bytes(block, texts),
            last_row=int(last_row),
            last_column=int(last_column),
        )
    return errors


def _places(block: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
    """Rows and columns, from 1, of the filled cells of a block, and how many others there are.

    They are told by ``<c r="AB12">``, and an empty cell ends with its tag.

    By numpy: a regular expression takes six times as long, and as long as reading the sheet.
    """
    found = np.frombuffer(block + bytes(HEAD_BYTES), dtype=np.uint8)
    at = np.flatnonzero((found[1:-1] == ord("r")) & (found[2:] == ord("="))) + 1
    at = at[found[at - 1] <= ord(" ")] + 3
    rows, columns = np.zeros((2, len(at)), np.int64)
    for _ in range(3):
        letter = found[at].astype(np.int64) - ord("A")
        is_letter = (letter >= 0) & (letter < 26)  # noqa: PLR2004
        columns = np.where(is_letter, columns * 26 + letter + 1, columns)
        at += is_letter
    for _ in range(7):
        digit = found[at].astype(np.int64) - ord("0")
        is_digit = (digit >= 0) & (digit < 10)  # noqa: PLR2004
        rows = np.where(is_digit, rows * 10 + digit, rows)
        at += is_digit
    closings = np.append(np.flatnonzero(found == ord(">")), len(block))
    closing = closings[np.searchsorted(closings, np.minimum(at, len(block)))]
    empty = (found[closing - 1] == ord("/")) | (
        (found[closing + 1] == ord("<")) & (found[closing + 2] == ord("/"))
    )
    cells = (rows > 0) & (columns > 0)
    filled = cells & ~empty
    return rows[filled], columns[filled], int((cells & empty).sum())


def _count(block: bytes, kind: bytes) -> int:
    """Cells of a kind."""
    return block.count(b't="' + kind + b'"') + block.count(b"t='" + kind + b"'")


def _text_bytes(block: bytes, texts: _Texts) -> int:
    """Bytes of the texts of a block's cells; no less, and not many times more."""
    own = _count(block, b"str") + _count(block, b"inlineStr")
    shared = _count(block, b"s")
    size = shared * texts.longest
    if size > len(block):
        size = texts.of(SHARED_VALUE.findall(block))
    return (own + shared) * TEXT_BYTES + size + (_between_tags(block) if own else 0)


def _between_tags(block: bytes) -> int:
    """Bytes outside of all tags, of a block that may begin and end within one."""
    found = np.frombuffer(block, dtype=np.uint8)
    opening, closing = np.flatnonzero(found == ord("<")), np.flatnonzero(found == ord(">"))
    if len(opening) and len(closing) and opening[0] < closing[0]:
        opening = opening[1:]
    closing = closing[: len(opening)]
    if len(opening) > len(closing) or (opening < closing).any():
        return len(block)
    return int((opening - closing - 1).sum())


# -- XLSB --------------------------------------------------------------------------------------


def _measure_xlsb(content: IO[bytes], texts: _Texts, most: int) -> None:
    extent = _Extent(most=most)
    row = 0
    for kind, size, head in _records(content):
        if kind == ROW_HEADER:
            row = int.from_bytes(head[:4], "little") + 1
        elif kind in CELL_RECORDS:
            text_bytes = TEXT_BYTES + size
            if kind == SHARED_CELL_RECORD:
                number = int.from_bytes(head[8:12], "little")
                text_bytes += int(texts.sizes[number]) if number < len(texts.sizes) else 0
            column = int.from_bytes(head[:4], "little") + 1
            extent.add(cells=1, text_bytes=text_bytes, last_row=row, last_column=column)


def _records(content: IO[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """Kind, size and first bytes of each record."""
    while first := content.read(1):
        kind = first[0]
        if kind & 0x80:
            kind = (kind & 0x7F) | (_byte(content) & 0x7F) << 7
        size = 0
        for place in range(4):
            part = _byte(content)
            size |= (part & 0x7F) << 7 * place
            if not part & 0x80:
                break
        head = content.read(min(size, HEAD_BYTES))
        yield kind, size, head
        rest = size - len(head)
        while rest and (skipped := content.read(min(rest, BLOCK_BYTES))):
            rest -= len(skipped)


def _byte(content: IO[bytes]) -> int:
    found = content.read(1)
    return found[0] if found else 0


# -- ODS ---------------------------------------------------------------------------------------


class _OdsExtents:
    """Adds up the cells of each table of a document, repeated ones as often as they are."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._extent = _Extent(most=most)
        self._row = self._row_repeats = 0
        self._column = self._repeats = 0

    def read(self, content: IO[bytes]) -> None:
        """Walk through the whole document.

        Raises:
            TooLarge: a table takes more than is allowed.
            expat.ExpatError: this is no XML.
        """
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.ParseFile(content)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        match name.rpartition(":")[2]:
            case "table":
                self._extent = _Extent(most=self._most)
                self._row = 0
            case "table-row":
                self._row_repeats = _repeats(attributes, "number-rows-repeated")
                self._row += self._row_repeats
                self._column = 0
            case "table-cell" | "covered-table-cell":
                self._repeats = _repeats(attributes, "number-columns-repeated")
                self._column += self._repeats
                if any(key.endswith((":value-type", ":formula")) for key in attributes):
                    self._extent.add(
                        cells=self._repeats * self._row_repeats,
                        text_bytes=0,
                        last_row=self._row,
                        last_column=self._column,
                    )

    def _end(self, name: str) -> None:
        if name.rpartition(":")[2] in {"table-cell", "covered-table-cell"}:
            self._repeats = 0

    def _text(self, text: str) -> None:
        size = len(text) * self._repeats * self._row_repeats
        self._extent.add(cells=0, text_bytes=size, last_row=0, last_column=0)


def _repeats(attributes: dict[str, str], name: str) -> int:
    for key, value in attributes.items():
        if key.endswith(name):
            return max(int(value), 1) if value.isdecimal() else 1
    return 1
