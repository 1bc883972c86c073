"""Where a broken record ends: the part of the reader that decides what a bad quote costs.

Here: judging one record exactly, and, where its quoting is broken, finding the line from which
the file makes sense again. Not here: the grammar itself (``grammar``).

**A broken record.** Several ends are possible: the end of its first line; the end of the line on
which the doubtful quote opened; the end it has if the doubtful quote ends its field, and the one
it has if that quote is text; the end that its quotes give it; the end of the file. Each possible
end has a price: the lines it swallows that resemble records, plus the records among the next
three that are broken. The cheapest end is taken, and of equal ones the earliest, so that a fault
costs the lines it truly swallowed and its neighbours keep their own verdicts. Where text follows
a quote, ends beyond the next thousand lines are not looked for.

**A quote that swallows lines in silence.** A stray opening quote may be closed by a quote many
lines later that is legal to the letter, with the right number of fields in sum. A record is taken
for such a swallowing, and its lines are read on their own, when all of this holds:

- the file has two columns or more, and the record spans at least three physical lines, so that at
  least one complete line lies inside the quotes;
- its first line has the expected number of fields if the quote left open there is taken as text;
- the complete lines inside, blank ones apart, have each the expected number of fields, read
  strictly; one in ten may differ, or fewer than half if the record begins with a number;
- its last line, read from that line's beginning, is a record with the expected number of fields;
- where the record's first field looks like a number, so do the first fields of those lines.

What this cannot tell apart: a genuine text of three lines or more that looks like records in all
of these ways (a CSV table of the same width pasted into one cell) is reported as a swallowing;
and a stray quote passes as the beginning of a genuine text if it is legally closed on the very
next line, or if its own line, its last one or too many in between have other faults as well. In
a file of one column a legal quote is always believed, since any line resembles a record there.

A line resembles a record if it begins with a number, where the broken record does; elsewhere, if
it has the expected number of fields. A record that would never end by that rule, though it begins
with a number, is judged as if it did not.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pocket_ingest.core.errors import Code
from pocket_ingest.core.reading.grammar import (
    BLANK_LINES,
    LINE_END,
    Grammar,
    Leniency,
    Outcome,
    Scan,
    after_line_end,
    count_line_ends,
    count_lines,
    line_end,
)
from pocket_ingest.core.reading.window import Window, WindowEnd

# Records that must make sense after a possible end. One may do so by chance; three seldom do.
LOOKAHEAD = 3
# A number that begins a record is not looked for further than this.
NUMBER_BYTES = 64
# Lines inside a possible end that are looked at. A price above LOOKAHEAD never wins, so more
# than a few matter only in long texts.
SWALLOWED_LINES = 1_000
# A record that begins inside a possible end is followed so far beyond its line.
NEAR_BYTES = 1_024
# Of a record that is too long, this much is kept for the person who looks for it.
KEPT_BYTES = 4_096


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What became of the record at an offset.

    Attributes:
        end: one past the record's last byte.
        next: one past its line terminator.
        code: what is wrong with it, or None.
        hint: the same as a sentence; empty if nothing is wrong.
        endless: the record does not end within the longest record; ``Skip`` finds its end.
        inside: a quote is open where ``end`` is, for an endless record.
    """

    end: int
    next: int
    code: Code | None = None
    hint: str = ""
    endless: bool = False
    inside: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """An endless record that was passed over: its beginning, and the lines that it spans."""

    raw: bytes
    lines: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _End:
    """A possible end of a broken record, what follows it, and its price."""

    price: int
    end: int = -1
    next: int = -1


_NO_END = _End(price=LOOKAHEAD + 1)


class Judge:
    """Judges the records of a file with a known number of columns.

    Attributes:
        columns: fields that a sound record has.
    """

    def __init__(self, grammar: Grammar, columns: int) -> None:
        self._grammar = grammar
        self.columns = columns

    @property
    def reach(self) -> int:
        """Bytes from a record's beginning that its verdict may depend on, at most."""
        return 2 * self._grammar.max_record_bytes + 16

    def judge(self, window: Window, start: int, line: int) -> Verdict:
        """Judge the record that begins at ``start``, on physical line ``line``.

        A record on a single line is only split here: whether it has the right number of fields
        is found where its values are read.

        Raises:
            WindowEnd: the verdict depends on bytes beyond the window; it never depends on more
                than ``reach``.
        """
        scan = self._grammar.scan(window, start)
        if scan.outcome is Outcome.COMPLETE and self.believes(window, start, scan):
            return Verdict(end=scan.end, next=scan.next)
        numeric = self.begins_with_number(window.data, start)
        verdict = self._resynchronise(window, start, line, scan, numeric=numeric)
        if verdict.endless and numeric:
            # No number begins any of the lines around: this record had one by chance.
            verdict = self._resynchronise(window, start, line, scan, numeric=False)
        return verdict

    def believes(self, window: Window, start: int, scan: Scan) -> bool:
        """Whether a complete record is what it seems, and not lines behind a stray quote."""
        if not scan.quotes or not count_line_ends(window.data, start, scan.end):
            return True
        return scan.fields == self.columns and not self._swallows(window, start, scan)

    def _swallows(self, window: Window, start: int, scan: Scan) -> bool:
        """The rule for silent swallowing, as the module's description words it."""
        bounds = list(self._line_bounds(window, start, scan.end))
        if self.columns == 1 or len(bounds) < 3:  # noqa: PLR2004 - first, inner, last
            return False
        if self._fields_with_open_quote_as_text(window, scan, start, bounds[0][1]) != self.columns:
            return False
        numeric = self.begins_with_number(window.data, start)
        inner = [(begin, end) for begin, end in bounds[1:-1] if end > begin]
        tolerated = (len(inner) - 1) // 2 if numeric else len(inner) // 10
        for begin, end in inner:
            if self._record_at(window, begin, end, numeric=numeric) != end:
                tolerated -= 1
                if tolerated < 0:
                    return False
        last = bounds[-1][0]
        reach = start + self.reach
        return bool(inner) and self._next_record(window, last, reach, numeric=numeric) is not None

    def _fields_with_open_quote_as_text(
        self, window: Window, scan: Scan, start: int, first_line_end: int
    ) -> int:
        """Fields of the first line if the quote left open on it is text."""
        opened = max(quote for quote in scan.quotes if quote < first_line_end)
        before = self._grammar.scan(window, start, within=opened).fields
        return before + window.data.count(self._grammar.delimiter, opened, first_line_end)

    def _resynchronise(
        self, window: Window, start: int, line: int, scan: Scan, *, numeric: bool
    ) -> Verdict:
        """Choose the cheapest of the possible ends of a broken record."""
        bound = start + self._grammar.max_record_bytes + 1
        near = self._near_ends(window, start, scan)
        best = self._cheapest(window, start, near, _NO_END, numeric=numeric)
        if best.price > 0:
            far = self._far_ends(window, start, scan, best.price, numeric=numeric)
            best = self._cheapest(window, start, far, best, numeric=numeric)
        endless = scan.end == bound and scan.outcome in (Outcome.OPEN, Outcome.LONG)
        if best is _NO_END or (
            endless and self._swallowed(window, start, bound, numeric=numeric) < best.price
        ):
            return Verdict(
                end=bound,
                next=bound,
                code=Code.RECORD_TOO_LONG,
                hint=f"the record is longer than {self._grammar.max_record_bytes} bytes",
                endless=True,
                inside=scan.outcome is Outcome.OPEN,
            )
        code, hint = self._blame(window, start, line, scan, best.end)
        return Verdict(end=best.end, next=best.next, code=code, hint=hint)

    def _cheapest(
        self,
        window: Window,
        start: int,
        ends: list[tuple[int, int]],
        best: "_End",
        *,
        numeric: bool,
    ) -> "_End":
        """The cheapest of ``ends`` and ``best``; of equal ones the earliest."""
        for end, following in ends:
            price = self._swallowed(window, start, end, numeric=numeric)
            if price < best.price:
                price += self._broken_ahead(window, following, start, numeric=numeric)
            if price < best.price:
                best = _End(price=price, end=end, next=following)
        return best

    def _near_ends(self, window: Window, start: int, scan: Scan) -> list[tuple[int, int]]:
        """Ends of the record's first line and of the line on which the doubtful quote opened."""
        bound = start + self._grammar.max_record_bytes + 1
        ends = {line_end(window, start, bound)}
        doubtful = self._doubtful_quote(window.data, scan)
        if doubtful >= 0:
            ends.add(line_end(window, doubtful, bound))
        return sorted(end for end in ends if end is not None)

    def _far_ends(
        self, window: Window, start: int, scan: Scan, price: int, *, numeric: bool
    ) -> list[tuple[int, int]]:
        """The ends that other readings of the quotes give, as far as they may beat ``price``."""
        if scan.outcome is Outcome.TEXT_AFTER_QUOTE:
            within = self._affordable(window, start, price, numeric=numeric)
            readings = [
                self._grammar.scan(window, start, within=within, leniency=leniency)
                for leniency in (Leniency.CLOSED, Leniency.LITERAL)
            ]
            return sorted((r.end, r.next) for r in readings if r.outcome is Outcome.COMPLETE)
        if scan.outcome is Outcome.COMPLETE and scan.fields != self.columns:
            return [(scan.end, scan.next)]
        if scan.outcome is Outcome.OPEN and scan.end <= start + self._grammar.max_record_bytes:
            return [self._file_end(window.data)]
        return []

    def _affordable(self, window: Window, start: int, price: int, *, numeric: bool) -> int:
        """The offset that an end must not pass, since it would swallow ``price`` lines or more.

        Without it, each record of a file that is broken throughout would be read up to the
        longest record, to find an end that is never taken.
        """
        swallowed = 0
        bound = start + self._grammar.max_record_bytes + 1
        end = start
        for number, (begin, end) in enumerate(self._line_bounds(window, start, bound)):
            swallowed += number > 0 and self._resembles(window, begin, end, numeric=numeric)
            if swallowed >= price or number == SWALLOWED_LINES:
                break
        return end + 1

    @staticmethod
    def _file_end(data: bytes) -> tuple[int, int]:
        size = len(data)
        terminator = 2 if data.endswith(b"\r\n") else data.endswith((b"\r", b"\n"))
        return size - terminator, size

    @staticmethod
    def _doubtful_quote(data: bytes, scan: Scan) -> int:
        """The last opening quote of the scan whose field goes on to another line, or -1."""
        end = scan.fault if scan.fault >= 0 else scan.end
        for quote in reversed(scan.quotes):
            if count_line_ends(data, quote, end):
                return quote
            end = quote
        return -1

    def _swallowed(self, window: Window, start: int, end: int, *, numeric: bool) -> int:
        """Lines after the first, up to ``end``, that resemble records; a few are enough."""
        swallowed = 0
        bounds = self._line_bounds(window, start, end)
        for number, (begin, stop) in enumerate(bounds):
            if number == 0 or stop == begin:
                continue
            if number > SWALLOWED_LINES or swallowed > LOOKAHEAD:
                break
            swallowed += self._resembles(window, begin, stop, numeric=numeric)
        return swallowed

    def _resembles(self, window: Window, begin: int, end: int, *, numeric: bool) -> bool:
        """Whether a line resembles a record, even one with a fault of its own."""
        if numeric:
            return self.begins_with_number(window.data, begin)
        if self._record_at(window, begin, end, numeric=False) == end:
            return True
        if window.data.find(self._grammar.quote, begin, end) >= 0 and self._begins_record(
            window, begin, end
        ):
            return True
        return window.data.count(self._grammar.delimiter, begin, end) == self.columns - 1

    def _begins_record(self, window: Window, begin: int, end: int) -> bool:
        """Whether a sound record of several lines, but not of many, begins with a line."""
        within = min(end + NEAR_BYTES, len(window.data))
        scan = self._grammar.scan(window, begin, within=within)
        return scan.outcome is Outcome.COMPLETE and scan.fields == self.columns

    def sound_from(self, window: Window, position: int, *, numeric: bool) -> bool:
        """Whether the next few records from ``position`` are sound, or the file ends there."""
        return self._broken_ahead(window, position, position, numeric=numeric, enough=1) == 0

    def _broken_ahead(
        self, window: Window, position: int, start: int, *, numeric: bool, enough: int = LOOKAHEAD
    ) -> int:
        """How many of the next few records from ``position`` are broken."""
        reach = start + self.reach
        broken = 0
        for _ in range(LOOKAHEAD):
            if self.columns > 1:
                position = self._after_blank_lines(window, position, reach)
            if position >= reach or (window.final and position == len(window.data)):
                break
            following = self._next_record(window, position, reach, numeric=numeric)
            if following is None:
                broken += 1
                if broken == enough:
                    break
                ended = line_end(window, position, reach)
                following = reach if ended is None else ended[1]
            position = following
        return broken

    @staticmethod
    def _after_blank_lines(window: Window, position: int, reach: int) -> int:
        found = BLANK_LINES.match(window.data, position, reach)
        position = found.end() if found else position
        if position == len(window.data) < reach and not window.final:
            raise WindowEnd
        return position

    def _next_record(
        self, window: Window, position: int, within: int, *, numeric: bool
    ) -> int | None:
        """Offset after the sound record at ``position``, or None if there is none."""
        if numeric and not self.begins_with_number(window.data, position):
            return None
        scan = self._grammar.scan(window, position, within=within)
        if scan.outcome is not Outcome.COMPLETE or scan.fields != self.columns:
            return None
        return scan.next

    def _record_at(self, window: Window, begin: int, end: int, *, numeric: bool) -> int | None:
        """End of the sound record at ``begin``, if it ends at ``end``; None otherwise."""
        if numeric and not self.begins_with_number(window.data, begin):
            return None
        scan = self._grammar.scan(window, begin, within=end + 1)
        if scan.outcome is not Outcome.COMPLETE or scan.fields != self.columns:
            return None
        return scan.end

    def begins_with_number(self, data: bytes, start: int) -> bool:
        """Whether the first field, quoted or not, holds digits and nothing foreign to a number."""
        end = data.find(self._grammar.delimiter, start, start + NUMBER_BYTES)
        text = data[start:end].strip(self._grammar.quote) if end >= 0 else b""
        return not text.strip(b"0123456789+-.,:/ ") and any(byte in b"0123456789" for byte in text)

    @staticmethod
    def _line_bounds(window: Window, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Begin and end of each physical line of ``start:end``."""
        position = start
        while True:
            found = line_end(window, position, end + 1)
            if found is None or found[0] >= end:
                yield position, end
                return
            yield position, found[0]
            position = found[1]

    def _blame(
        self, window: Window, start: int, line: int, scan: Scan, end: int
    ) -> tuple[Code, str]:
        """Code and hint of a record that ends at ``end``."""
        data = window.data
        if scan.outcome is Outcome.COMPLETE and end == scan.end:
            return Code.FIELD_COUNT, field_count_hint(scan.fields, self.columns)
        if scan.outcome is Outcome.TEXT_AFTER_QUOTE and end > scan.fault:
            before = data[scan.fault - 1]
            opens = scan.fault - 1 > scan.quotes[-1] and before in b"\r\n" + self._grammar.delimiter
            if not opens:
                place = line + count_line_ends(data, start, scan.fault)
                hint = f"text follows the closing quote of field {scan.fields} on line {place}; "
                hint += "a quote inside a quoted field is written twice"
                return Code.TEXT_AFTER_QUOTE, hint
        opened = max((quote for quote in scan.quotes if quote < end), default=start)
        place = line + count_line_ends(data, start, opened)
        return Code.UNTERMINATED_QUOTE, f"the quote opened on line {place} is never closed"


def field_count_hint(found: int, expected: int) -> str:
    """The sentence for a record with too few or too many fields."""
    fields = "field" if found == 1 else "fields"
    return f"found {found} {fields}, expected {expected}"


class Skip:
    """Passes over an endless record in bounded memory.

    Inside quotes, the record goes on to a closing quote that ends a field, or to a line end from
    which the next records are sound; outside them, it ends with its physical line.
    """

    def __init__(self, grammar: Grammar, judge: Judge, window: Window) -> None:
        self._grammar = grammar
        self._judge = judge
        self._window = window
        self._lines = 0
        self._passed = 0
        # A search for one byte out of a set runs six times as fast as one for either kind of run.
        self._landmark = re.compile(rb"[\r\n" + re.escape(grammar.quote) + rb"]")
        self._run = re.compile(re.escape(grammar.quote) + rb"+|[\r\n]+")

    def run(self, position: int, *, inside: bool) -> Skipped:
        """Discard the record at the window's beginning, whose end is not before ``position``.

        Args:
            position: offset from which to look for the end.
            inside: whether a quote is open there.
        """
        self._window.grow(KEPT_BYTES)
        raw = self._window.data[:KEPT_BYTES]
        quote = self._grammar.quote
        # A terminator may have been cut in two by the bound that led here.
        if self._window.data[position - 1 : position + 1] == b"\r\n":
            position -= 1
        numeric = self._judge.begins_with_number(self._window.data, 0)
        while (found := self._find(position, inside=inside)) is not None:
            position = found.end()
            if found[0].startswith(quote):
                inside = len(found[0]) % 2 == 0 or not self._grammar.ends_field(
                    self._window.data, position
                )
            elif not inside or self._judge.sound_from(self._window, position, numeric=numeric):
                end = found.start()
                return self._release(raw, end, after_line_end(self._window, end))
        end = len(self._window.data)
        return self._release(raw, end, end)

    def _find(self, position: int, *, inside: bool) -> re.Match[bytes] | None:
        """The next quotes or line ends from ``position``, whole, with what follows in sight.

        Nothing is found when the file ends first; what was passed on the way is let go of.
        """
        while True:
            data = self._window.data
            found = (self._landmark if inside else LINE_END).search(data, position)
            if found is not None and inside:
                found = self._run.match(data, found.start())
            if self._window.final:
                return found
            if found is None:
                position = self._refill(len(data))
            elif found.end() == len(data):
                position = self._refill(self._kept_from(found))
            elif not inside or self._decides(found):
                return found
            else:
                position = self._refill(found.start())

    def _kept_from(self, found: re.Match[bytes]) -> int:
        """The offset from which a run at the window's end must stay: half a pair of its bytes."""
        if found[0].startswith(self._grammar.quote):
            return found.end() - len(found[0]) % 2
        return found.end() - (2 if found[0].endswith(b"\r\n") else 1)

    def _decides(self, found: re.Match[bytes]) -> bool:
        """Whether the window shows enough after ``found``: of a line end, the next records."""
        ahead = 0 if found[0].startswith(self._grammar.quote) else self._judge.reach
        return len(self._window.data) >= found.end() + ahead

    def _refill(self, position: int) -> int:
        """Let go of the bytes before ``position``, which is at offset 0 afterwards."""
        self._lines += count_line_ends(self._window.data, 0, position)
        self._passed += position
        self._window.discard(position)
        self._window.grow(2 * self._judge.reach)
        return 0

    def _release(self, raw: bytes, end: int, following: int) -> Skipped:
        """Let go of the record's last bytes, and of its terminator before ``following``."""
        lines = self._lines + count_lines(self._window.data, 0, following)
        self._window.discard(following)
        return Skipped(raw=raw[: self._passed + end], lines=lines)
