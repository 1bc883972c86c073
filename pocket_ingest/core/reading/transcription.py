r"""From a file's own bytes to bytes that the reader of records knows, and back.

The reader of records knows UTF-8, delimiters and quotes of one byte, and doubled quotes. A
transcript turns everything else into that, without losing what it was:

- another encoding is decoded; a byte that cannot be is written as a lone surrogate, U+DC00 plus
  its value, which is never valid UTF-8, so that its record is found and refused as what it is;
- a delimiter of several characters, and an escape with the character that it escapes, are written
  as one control byte each that occurs nowhere else in the file.

Here: these transcripts and the stream that applies one. Not here: which one a file needs.
"""

import codecs
import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.reading.window import Source

BLOCK_BYTES = 2**20
SURROGATE = 0xDC00
SURROGATES = re.compile("([\udc00-\udcff]+)")
ERRORS = "pocket_ingest.undecodable"
# What a mark can be: control bytes without a meaning of their own.
FREE = tuple(byte for byte in range(0x1F, 0, -1) if byte not in b"\t\n\v\f\r")


def _keep_undecodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(chr(SURROGATE + byte) for byte in lost), error.end


codecs.register_error(ERRORS, _keep_undecodable)


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One byte that stands for several.

    Attributes:
        written: what the file has, as UTF-8.
        byte: what stands for it.
        means: what it is inside a value.
    """

    written: bytes
    byte: bytes
    means: bytes


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """How a file's bytes become UTF-8 with marks.

    Attributes:
        encoding: the codec's name; a mark at the file's beginning is not the transcript's.
        marks: in the order in which they are looked for.
    """

    encoding: str = "utf-8"
    marks: tuple[Mark, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether nothing has to be done."""
        return self.is_utf8 and not self.marks

    @cached_property
    def is_utf8(self) -> bool:
        """Whether nothing has to be decoded."""
        return codecs.lookup(self.encoding).name in {"utf-8", "ascii"}

    def transcribe(self, data: bytes) -> bytes:
        """What the reader of records is given for a stretch of the file."""
        if not self.is_utf8:
            data = encode(data.decode(self.encoding, ERRORS))
        return self.mark(data)

    def mark(self, data: bytes) -> bytes:
        """Write marks into UTF-8."""
        for mark in self.marks:
            data = data.replace(mark.written, mark.byte)
        return data

    def original(self, data: bytes) -> bytes:
        """The file's own bytes for a stretch of what the reader of records was given."""
        for mark in reversed(self.marks):
            data = data.replace(mark.byte, mark.written)
        return data if self.is_utf8 else self._encoded(data)

    def values(self, columns: pa.RecordBatch) -> pa.RecordBatch:
        """Columns of text with the meanings in the place of marks."""
        for mark in self.marks:
            columns = pa.RecordBatch.from_arrays(
                [_replaced(column, mark) for column in columns.columns], schema=columns.schema
            )
        return columns

    def text(self, data: bytes) -> str:
        """A stretch of what the reader of records was given, as text to look at."""
        for mark in self.marks:
            data = data.replace(mark.byte, mark.means)
        return data.decode("utf-8", "replace")

    def with_marks(
        self, *, delimiter: str, quote: str, escape: str, taken: AbstractSet[int]
    ) -> "Transcript":
        """This transcript, for a dialect that needs marks.

        Args:
            delimiter: of the dialect, one character or several.
            quote: of the dialect.
            escape: of the dialect, or nothing.
            taken: the control bytes that occur in the file.

        Raises:
            PermanentError: ambiguous_dialect if the file leaves no byte for a mark.
        """
        free = [byte for byte in FREE if byte not in taken]
        marks: list[Mark] = []

        def add(written: str, means: str) -> None:
            if not free:
                raise PermanentError(
                    Code.AMBIGUOUS_DIALECT,
                    "The file holds all kinds of control characters, which leaves no way to read "
                    f"the delimiter {delimiter!r} with the escape {escape!r}.",
                )
            mark = Mark(written=written.encode(), byte=bytes((free.pop(0),)), means=means.encode())
            marks.append(mark)

        if escape:
            # The escaped escape first: it must not lend its second half to what follows.
            for char in dict.fromkeys((escape, quote, delimiter)):
                if char:
                    add(escape + char, char)
        if len(delimiter) > 1:
            add(delimiter, delimiter)
        return replace(self, marks=tuple(marks))

    @cached_property
    def pattern(self) -> re.Pattern[bytes]:
        """Anything that a mark stands for, or the beginning of it at the very end."""
        whole = [re.escape(mark.written) for mark in self.marks]
        begun = {
            re.escape(mark.written[:size])
            for mark in self.marks
            for size in range(1, len(mark.written))
        }
        return re.compile(b"|".join([*whole, *(text + rb"\Z" for text in sorted(begun))]))

    def _encoded(self, data: bytes) -> bytes:
        parts = SURROGATES.split(data.decode("utf-8", "surrogatepass"))
        # Every other part is a run of bytes that could not be decoded.
        return b"".join(
            bytes(ord(char) - SURROGATE for char in part)
            if number % 2
            else part.encode(self.encoding)
            for number, part in enumerate(parts)
        )


PLAIN = Transcript()


def encode(text: str) -> bytes:
    """Text with surrogates in the place of undecodable bytes, as UTF-8 that is not valid there."""
    return text.encode("utf-8", "surrogatepass")


class TranscribedStream:
    """A file as the reader of records is to see it; only ``read``."""

    def __init__(self, source: Source, transcript: Transcript) -> None:
        self._source = source
        self._transcript = transcript
        self._decoder = (
            None
            if codecs.lookup(transcript.encoding).name in {"utf-8", "ascii"}
            else codecs.getincrementaldecoder(transcript.encoding)(ERRORS)
        )
        self._held = b""
        self._ready = b""
        self._ended = False

    def read(self, size: int = -1) -> bytes:
        """At most ``size`` bytes; nothing only at the end."""
        while not self._ready and not self._ended:
            self._fill(size)
        if size < 0 or size >= len(self._ready):
            given, self._ready = self._ready, b""
            return given
        given, self._ready = self._ready[:size], self._ready[size:]
        return given

    def _fill(self, size: int) -> None:
        data = self._source.read(BLOCK_BYTES if size < 0 else max(1, min(size, BLOCK_BYTES)))
        self._ended = not data
        if self._decoder is not None:
            data = encode(self._decoder.decode(data, self._ended))
        if not self._transcript.marks:
            self._ready = data
            return
        data = self._held + data
        cut = len(data) if self._ended else self._safe_cut(data)
        self._held = data[cut:]
        self._ready = self._transcript.mark(data[:cut])

    def _safe_cut(self, data: bytes) -> int:
        """An offset that cuts nothing in two that a mark stands for: no mark spans lines."""
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if cut:
            return cut
        written = {mark.written for mark in self._transcript.marks}
        cut = len(data)
        for found in self._transcript.pattern.finditer(data):
            if found[0] not in written:
                cut = found.start()
        return cut


def _replaced(column: pa.Array, mark: Mark) -> pa.Array:
    text = column.buffers()[2]
    if text is None or mark.byte not in memoryview(text).tobytes():
        return column
    return pc.replace_substring(column, pattern=mark.byte.decode(), replacement=mark.means.decode())
