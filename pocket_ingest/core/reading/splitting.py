"""The fast way through clean stretches: record borders by numpy, a block at a time.

Here: proving that the quotes of a block are where RFC 4180 puts them, and the positions of the
records in the proven part. Not here: anything about a record that cannot be proven; the first
such record ends the stretch, and ``resync`` looks at it.

The proof: with quotes numbered from a record's beginning, each even one must follow a delimiter,
a line end or a quote, and each odd one must come before one. Then a line end is a record's end
exactly where an even number of quotes came before it (a doubled quote counts twice and changes
nothing). A record of several lines may still owe them to a stray quote: it must have the right
number of fields too, and where its lines could be records themselves, the judge is asked.
"""

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pocket_ingest.core.reading.grammar import CR, LF, Grammar
from pocket_ingest.core.reading.records import Positions
from pocket_ingest.core.reading.resync import Judge
from pocket_ingest.core.reading.window import Window, WindowEnd

Bytes = npt.NDArray[np.uint8]

# Masks and positions of a block of this size stay in a core's own cache.
BLOCK_BYTES = 256 * 1024
FEW_LINES = 64
USUAL_LINE_BYTES = 160


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """Consecutive lines that are whole records, or blank. Offsets are the window's.

    Attributes:
        starts: offset of each record's first byte.
        ends: one past each record's last byte.
        nexts: one past each record's line terminator.
        lines: physical lines from the stretch's beginning to the record's.
        lines_after: physical lines from the stretch's beginning to what follows the record.
    """

    starts: Positions
    ends: Positions
    nexts: Positions
    lines: Positions
    lines_after: Positions

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, chosen: slice | npt.NDArray[np.intp]) -> "Stretch":
        return Stretch(
            starts=self.starts[chosen],
            ends=self.ends[chosen],
            nexts=self.nexts[chosen],
            lines=self.lines[chosen],
            lines_after=self.lines_after[chosen],
        )


_NOTHING = Stretch(
    **dict.fromkeys(("starts", "ends", "nexts", "lines", "lines_after"), np.empty(0, np.int64))
)


class Splitter:
    """Splits the clean blocks of a file into records."""

    def __init__(self, grammar: Grammar, judge: Judge, *, comment: bytes = b"") -> None:
        self._grammar = grammar
        self._quote_byte = grammar.quote[0] if grammar.quote else LF
        self._mark = comment
        self._comment = re.compile(rb"[\r\n]" + re.escape(comment)) if comment else None
        self._judge = judge
        self._borders = np.zeros(256, dtype=bool)
        # Without a quote, a byte that no line holds stands for it.
        delimiter, quote = re.escape(grammar.delimiter), re.escape(grammar.quote or b"\n")
        text = b"[^" + quote + rb"\r\n]*+"
        field = b"(?:" + quote + text + b"(?:" + quote * 2 + text + b")*+" + quote
        field += b"|(?!" + quote + b")[^" + delimiter + rb"\r\n]*+)"
        self._line = re.compile(
            # A line with text on it; a CR is an end only if the next byte is known to be no LF.
            rb"(?=[^\r\n])" + field + b"(?:" + delimiter + field + rb")*+(?:\n|\r\n|\r(?=[^\n]))"
        )
        self._borders[[CR, LF, *grammar.delimiter, *grammar.quote]] = True
        self._openings = np.zeros(256, dtype=bool)
        self._openings[[CR, LF, *grammar.delimiter]] = True

    def split(self, window: Window, start: int, stop: int) -> Stretch:
        """The records from ``start``, where one begins, that a proof covers up to ``stop``.

        Empty where the first record is not proven: it has a quote out of place, is too long, or
        does not end before ``stop``.
        """
        block, inside, is_end, returns = self._block(window, start, stop)
        data, stop = window.data, start + len(inside)
        quotes = None
        if self._grammar.quote and data.find(self._grammar.quote, start, stop) >= 0:
            # One search for both: looking for single bytes is what a proof spends its time on.
            special = np.flatnonzero(is_end | (inside == self._grammar.quote[0]))
            is_quote = inside[special] == self._grammar.quote[0]
            is_end = ~is_quote
            quotes, line_ends = special.compress(is_quote), special.compress(is_end)
            outside = (is_quote.cumsum().compress(is_end) & 1) == 0
            last_lines = self._record_ends(block, quotes, line_ends, outside, final=window.final)
        else:
            line_ends = np.flatnonzero(is_end)
            last_lines = np.arange(len(line_ends))
        stretch = _stretch(block, start, line_ends, last_lines, returns=returns)
        stretch = self._short_enough(stretch)
        if quotes is not None:
            stretch = self._believed(window, inside, start, quotes, stretch)
        return stretch

    def split_lines(self, window: Window, start: int, stop: int, limit: int) -> Stretch:
        """At most ``limit`` records from ``start`` that are one sound line each.

        Each line with a quoted field is looked at alone, which is slower than ``split`` by far,
        but a quote that is text inside an unquoted field, which ends a proof, is nothing here.
        """
        if limit <= FEW_LINES:
            return self._match_lines(window, start, stop, limit)
        stop = min(stop, start + limit * USUAL_LINE_BYTES)
        block, inside, is_end, returns = self._block(window, start, stop)
        line_ends = np.flatnonzero(is_end)
        stretch = _stretch(block, start, line_ends, np.arange(len(line_ends)), returns=returns)
        stretch = self._short_enough(stretch[:limit])
        # Where no quote is the first byte of a field, all of them are text.
        quotes = np.flatnonzero(inside == self._quote_byte)
        opening = quotes[self._openings.take(block.take(quotes - 1)) | (quotes == 0)] + start
        owners = np.unique(np.searchsorted(stretch.nexts, opening, side="right"))
        for owner in owners[owners < len(stretch)].tolist():
            found = self._line.match(window.data, int(stretch.starts[owner]))
            if found is None or found.end() != stretch.nexts[owner]:
                return stretch[:owner]
        return stretch

    def _match_lines(self, window: Window, start: int, stop: int, limit: int) -> Stretch:
        """The same for so few lines that each is matched sooner than the block is searched."""
        data, match = window.data, self._line.match
        stop = self._before_comment(data, start, stop)
        nexts = [start]
        while len(nexts) <= limit and (found := match(data, nexts[-1], stop)) is not None:
            nexts.append(found.end())
        if len(nexts) == 1:
            return _NOTHING
        borders = np.array(nexts, dtype=np.int64)
        block = np.frombuffer(data, dtype=np.uint8)
        starts, last = borders[:-1], borders[1:] - 1
        ends = last - ((block[last] == LF) & (last > starts) & (block[last - 1] == CR))
        lines = np.arange(len(last), dtype=np.int64)
        return self._short_enough(
            Stretch(starts=starts, ends=ends, nexts=borders[1:], lines=lines, lines_after=lines + 1)
        )

    def _block(
        self, window: Window, start: int, stop: int
    ) -> tuple[Bytes, Bytes, npt.NDArray[np.bool_], bool]:
        """The bytes of a block, also without the one behind it; line ends; whether any is a CR."""
        stop = self._before_comment(window.data, start, min(stop, start + BLOCK_BYTES))
        data = window.data
        # One byte more than the block, where there is one: a border may depend on it.
        size = min(stop + 1, len(data)) - start
        block = np.frombuffer(data, dtype=np.uint8, count=size, offset=start)
        inside = block[: stop - start]
        is_end = inside == LF
        returns = data.find(b"\r", start, stop) >= 0
        if returns:
            is_end |= _lone_returns(block, len(inside), final=window.final)
        return block, inside, is_end, returns

    def _before_comment(self, data: bytes, start: int, stop: int) -> int:
        """The offset before which no line begins like a comment, though perhaps inside quotes."""
        if self._comment is None:
            return stop
        if data.startswith(self._mark, start):
            return start
        found = self._comment.search(data, start, stop)
        return stop if found is None else found.start() + 1

    def _short_enough(self, stretch: Stretch) -> Stretch:
        too_long = stretch.ends - stretch.starts > self._grammar.max_record_bytes
        return stretch[: int(too_long.argmax())] if too_long.any() else stretch

    def _record_ends(
        self,
        block: Bytes,
        quotes: Positions,
        line_ends: Positions,
        outside: npt.NDArray[np.bool_],
        *,
        final: bool,
    ) -> Positions:
        """Which of ``line_ends`` end a record, up to the first quote out of place.

        ``outside`` says which of them have an even number of quotes before them.
        """
        proven = np.ones(len(quotes), dtype=bool)
        opening, after = quotes[0::2], quotes[1::2] + 1
        proven[0::2] = self._borders.take(block.take(opening - 1)) | (opening == 0)
        beyond = after == len(block)
        proven[1::2] = self._borders.take(block.take(after - beyond)) | beyond
        if beyond.any() and not final:
            proven[-1] = False
        ends = np.flatnonzero(outside)
        if proven.all():
            return ends
        first_misplaced = quotes[int(proven.argmin())]
        return ends[: int(np.searchsorted(line_ends[ends], first_misplaced))]

    def _believed(
        self, window: Window, inside: Bytes, start: int, quotes: Positions, stretch: Stretch
    ) -> Stretch:
        """The stretch up to the first record of several lines that the judge has to look at."""
        line_count = stretch.lines_after - stretch.lines
        several = np.flatnonzero(line_count > 1)
        if not len(several):
            return stretch
        starts, ends = stretch.starts[several] - start, stretch.ends[several] - start
        outside, as_text = self._delimiters(inside, starts, ends, quotes)
        needed = self._judge.columns - 1
        refused = outside != needed
        # A swallowed first line and a swallowed inner one hold that many delimiters as text.
        doubtful = (needed > 0) & (line_count[several] > 2) & (as_text >= needed)  # noqa: PLR2004
        for index in np.flatnonzero(refused | doubtful).tolist():
            record = int(several[index])
            if refused[index] or not self._believes(window, int(stretch.starts[record])):
                return stretch[:record]
        return stretch

    def _delimiters(
        self, inside: Bytes, starts: Positions, ends: Positions, quotes: Positions
    ) -> tuple[Positions, Positions]:
        """Delimiters of records of a block: how many outside quotes, and how many as text."""
        # A record is cut at its quotes; an even number of them before a part is outside.
        first, last = np.searchsorted(quotes, starts), np.searchsorted(quotes, ends)
        sizes = last - first + 2
        after = sizes.cumsum()
        records = np.repeat(np.arange(len(starts)), sizes)
        part = np.arange(len(records)) - (after - sizes).take(records)
        cuts = quotes.take((first - 1).take(records) + part, mode="clip")
        cuts[part == 0], cuts[after - 1] = starts, ends
        counts = np.add.reduceat(inside == self._grammar.delimiter[0], cuts, dtype=np.int32)
        # What follows a record's end is none of its own.
        counts[after - 1] = 0
        is_text = (part & 1).astype(bool)
        outside = np.add.reduceat(counts * ~is_text, after - sizes, dtype=np.int64)
        as_text = np.add.reduceat(counts * is_text, after - sizes, dtype=np.int64)
        return outside, as_text

    def _believes(self, window: Window, start: int) -> bool:
        try:
            return self._judge.believes(window, start, self._grammar.scan(window, start))
        except WindowEnd:
            return False


def _lone_returns(block: Bytes, size: int, *, final: bool) -> npt.NDArray[np.bool_]:
    """Which of the first ``size`` bytes are a CR that no LF follows, as far as is known."""
    lone: npt.NDArray[np.bool_] = block[:size] == CR
    known = len(block) - 1
    lone[:known] &= block[1 : size + 1] != LF
    if known < size and not final:
        lone[-1] = False
    return lone


def _stretch(
    block: Bytes,
    start: int,
    line_ends: Positions,
    last_lines: Positions,
    *,
    returns: bool,
) -> Stretch:
    """Records from the line ends of a block and the numbers of those that end a record."""
    ends = line_ends[last_lines]
    nexts = ends + 1
    starts = np.empty_like(ends)
    lines = np.empty_like(ends)
    starts[:1], starts[1:] = 0, nexts[:-1]
    lines[:1], lines[1:] = 0, last_lines[:-1] + 1
    if returns:
        # The pair CRLF is marked at its LF; a record's text ends before the CR.
        ends = ends - ((block[ends] == LF) & (ends > starts) & (block[ends - 1] == CR))
    return Stretch(
        starts=starts + start,
        ends=ends + start,
        nexts=nexts + start,
        lines=lines,
        lines_after=last_lines + 1,
    )
