"""The grammar of a CSV record, read exactly, one record at a time.

Here: where a record ends, how many fields it has, and where its quoting breaks (RFC 4180, with
the csv module's reading of what the RFC leaves open: a quote inside an unquoted field is text,
and so is one after a space). Not here: what to do about a broken record (``resync``), or how to
get through clean stretches fast (``splitting``).
"""

import re
from dataclasses import dataclass, field
from enum import Enum

from pocket_ingest.core.reading.window import Window, WindowEnd

CR, LF = b"\r\n"
NO_BYTE = -1
"""What no byte is equal to."""
LINE_END = re.compile(rb"\r\n|\r|\n")
BLANK_LINES = re.compile(rb"[\r\n]*")


class Outcome(Enum):
    """How the scan of one record came to an end."""

    COMPLETE = "complete"
    TEXT_AFTER_QUOTE = "text after quote"
    OPEN = "open"  # inside quotes at the end of the file, or at the bound
    LONG = "long"  # outside quotes at the bound


class Leniency(Enum):
    """What a closing quote that text follows is taken for."""

    NONE = "none"  # a fault: the scan stops there
    CLOSED = "closed"  # the end of the quoted part; the text after it belongs to the field
    LITERAL = "literal"  # text inside the field, which is still open


@dataclass(frozen=True, kw_only=True, slots=True)
class Scan:
    """One record as the grammar reads it. Offsets are the window's.

    Attributes:
        end: one past the record's last byte; the bound, where the record does not end before it.
        next: one past the record's line terminator.
        fields: fields begun so far.
        quotes: offsets of the opening quotes.
        fault: offset of the closing quote that text follows, or -1.
    """

    outcome: Outcome
    end: int
    next: int
    fields: int
    quotes: list[int] = field(default_factory=list)
    fault: int = -1


class Grammar:
    """Delimiter, quote (or none) and the longest record that is read at all."""

    def __init__(self, *, delimiter: bytes, quote: bytes, max_record_bytes: int) -> None:
        special = b"\r\n\0"
        for name, value in (("delimiter", delimiter), ("quote", quote or b'"')):
            if len(value) != 1 or value in special or not value.isascii():
                raise ValueError(f"{name} must be one ASCII byte, and no line end or NUL")
        if delimiter == quote:
            raise ValueError("delimiter and quote must differ")
        self.delimiter = delimiter
        self.quote = quote
        self._quote_byte = quote[0] if quote else NO_BYTE
        self.max_record_bytes = max_record_bytes
        self._field_end = re.compile(b"[" + re.escape(delimiter) + rb"\r\n]")

    def scan(
        self,
        window: Window,
        start: int,
        *,
        within: int | None = None,
        leniency: Leniency = Leniency.NONE,
    ) -> Scan:
        """Read the record that begins at ``start``.

        Args:
            window: the bytes at hand.
            start: offset of the record's first byte.
            within: an offset that the scan must not pass, beside the longest record.
            leniency: how to go on after a closing quote that text follows.

        Raises:
            WindowEnd: the record goes on beyond the window.
        """
        data, quote, delimiter = window.data, self._quote_byte, self.delimiter[0]
        bound = start + self.max_record_bytes + 1
        bound = bound if within is None else min(bound, within)
        stop = min(bound, len(data))
        quotes: list[int] = []
        position, fields = start, 0
        while True:
            fields += 1
            if position < stop and data[position] == quote:
                quotes.append(position)
                closing = self._closing_quote(window, position + 1, stop, leniency)
                if closing < 0:
                    self._require_end(window, bound)
                    return Scan(
                        outcome=Outcome.OPEN, end=stop, next=stop, fields=fields, quotes=quotes
                    )
                position = closing + 1
                if leniency is not Leniency.CLOSED and not self.ends_field(data, position):
                    return Scan(
                        outcome=Outcome.TEXT_AFTER_QUOTE,
                        end=position,
                        next=position,
                        fields=fields,
                        quotes=quotes,
                        fault=closing,
                    )
            found = self._field_end.search(data, position, stop)
            if found is None:
                self._require_end(window, bound)
                return self._last(window, bound, fields, quotes)
            position = found.start()
            if data[position] != delimiter:
                return Scan(
                    outcome=Outcome.COMPLETE,
                    end=position,
                    next=after_line_end(window, position),
                    fields=fields,
                    quotes=quotes,
                )
            position += 1

    def split(self, record: bytes) -> list[bytes]:
        """The unquoted fields of one record without faults."""
        window = Window.of(record)
        position, fields = 0, []
        while True:
            if self.quote and record[position : position + 1] == self.quote:
                closing = self._closing_quote(window, position + 1, len(record), Leniency.NONE)
                text = record[position + 1 : closing]
                fields.append(text.replace(self.quote * 2, self.quote))
                end = closing + 1
            else:
                end = record.find(self.delimiter, position)
                end = len(record) if end < 0 else end
                fields.append(record[position:end])
            if end == len(record):
                return fields
            position = end + 1

    def _closing_quote(self, window: Window, position: int, stop: int, leniency: Leniency) -> int:
        """Offset of the quote that ends the field, or -1 where none does before ``stop``."""
        data, quote = window.data, self.quote
        found = data.find(quote, position, stop)
        while found >= 0:
            if found + 1 == len(data) and not window.final:
                raise WindowEnd
            if data[found + 1 : found + 2] == quote:
                found = data.find(quote, found + 2, stop)
            elif leniency is Leniency.LITERAL and not self.ends_field(data, found + 1):
                found = data.find(quote, found + 1, stop)
            else:
                return found
        return -1

    def ends_field(self, data: bytes, position: int) -> bool:
        """Whether a field may end at ``position``: at a delimiter, a line end, the file's end."""
        return position == len(data) or data[position] in (self.delimiter[0], CR, LF)

    @staticmethod
    def _require_end(window: Window, bound: int) -> None:
        if len(window.data) < bound and not window.final:
            raise WindowEnd

    @staticmethod
    def _last(window: Window, bound: int, fields: int, quotes: list[int]) -> Scan:
        """The record that no terminator ends: the file's last one, or one beyond the bound."""
        size = len(window.data)
        outcome = Outcome.LONG if size >= bound else Outcome.COMPLETE
        end = min(size, bound)
        return Scan(outcome=outcome, end=end, next=end, fields=fields, quotes=quotes)


def after_line_end(window: Window, position: int) -> int:
    """Offset that follows the line terminator at ``position``."""
    data = window.data
    if data[position] == LF:
        return position + 1
    if position + 1 == len(data) and not window.final:
        raise WindowEnd
    return position + 2 if data[position + 1 : position + 2] == b"\n" else position + 1


def line_end(window: Window, position: int, stop: int) -> tuple[int, int] | None:
    """End of the physical line that ``position`` lies on, and the beginning of the next one.

    None if the line goes on beyond ``stop``. The end of the file ends a line.
    """
    found = LINE_END.search(window.data, position, min(stop, len(window.data)))
    if found is not None:
        return found.start(), after_line_end(window, found.start())
    if stop <= len(window.data):
        return None
    if not window.final:
        raise WindowEnd
    return len(window.data), len(window.data)


def count_line_ends(data: bytes, start: int, end: int) -> int:
    """Line terminators (LF, CR or CRLF) in ``data[start:end]``."""
    returns = data.count(b"\r", start, end)
    pairs = data.count(b"\r\n", start, end) if returns else 0
    return data.count(b"\n", start, end) + returns - pairs


def count_lines(data: bytes, start: int, end: int) -> int:
    """Physical lines of ``data[start:end]``; the last one may lack its terminator."""
    terminated = end == start or data[end - 1] in b"\r\n"
    return count_line_ends(data, start, end) + (not terminated)
