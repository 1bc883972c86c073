"""CSV bytes in, numbered records of text out, in bounded chunks.

Here: the walk through the records of a file: chunk by chunk, fast where the
bytes are proven clean (``splitting``), record by record where they are not (``resync``), with
every record numbered and every physical line accounted for. Not here: casting, contracts, the
choice of a dialect, what stands before the first record and after the last (``csv_table``).

Where a chunk ends follows from the file's bytes and the limits alone, never from the sizes in
which the source hands the bytes over, so that a load that resumes meets the same chunks again.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

import numpy as np

from pocket_ingest.core.errors import Code
from pocket_ingest.core.reading import columns
from pocket_ingest.core.reading.fragments import split_loosely
from pocket_ingest.core.reading.grammar import (
    BLANK_LINES,
    LINE_END,
    Grammar,
    after_line_end,
    count_line_ends,
    count_lines,
)
from pocket_ingest.core.reading.records import (
    DEFAULT_LIMITS,
    MalformedRecord,
    Positions,
    ReadingLimits,
    RecordChunk,
)
from pocket_ingest.core.reading.resync import Judge, Skip, Verdict
from pocket_ingest.core.reading.splitting import Splitter, Stretch
from pocket_ingest.core.reading.transcription import PLAIN, Transcript
from pocket_ingest.core.reading.window import Source, Window, WindowEnd

PARSED_AT_ONCE = 2
"""Chunks in the hands of Arrow's parser, while one is being split and the caller has another."""
BROKEN = frozenset({Code.TEXT_AFTER_QUOTE, Code.UNTERMINATED_QUOTE, Code.RECORD_TOO_LONG})
"""What is wrong with records whose quotes cannot be believed."""


class CsvRecords:
    """One walk through the records of a file; iterable once.

    Line ends may be LF, CRLF, CR, and mixed. A line without a byte is no record, except in a file
    of one column: there it is a record whose only field is empty, unless nothing but such lines
    follows (an editor leaves them at the end of a file; nobody means them as records).

    Attributes:
        records_read: records met so far, sound or malformed; complete after the last chunk.
        blank_lines: lines met so far that are no record.
        comment_lines: likewise those that begin with the comment mark.
    """

    def __init__(
        self,
        source: Source,
        *,
        width: int,
        first_line: int,
        delimiter: bytes,
        quote: bytes = b'"',
        comment: bytes = b"",
        doubt_comments: bool = False,
        transcript: Transcript = PLAIN,
        limits: ReadingLimits = DEFAULT_LIMITS,
    ) -> None:
        """Begin a walk.

        Args:
            source: the bytes from the first record on; it may return fewer than asked for.
            width: fields of a sound record.
            first_line: physical line of the first record.
            delimiter: one ASCII byte.
            quote: one ASCII byte; nothing if quotes mean nothing.
            comment: what begins lines that are no record; nothing if no line is one.
            doubt_comments: whether such a line is a record all the same if it has ``width`` fields.
            transcript: how the bytes relate to the file's own.
            limits: bounds of memory and size.
        """
        self._limits = limits
        self._grammar = Grammar(
            delimiter=delimiter, quote=quote, max_record_bytes=limits.max_record_bytes
        )
        self._width = width
        self._comment = comment
        self._doubt_comments = doubt_comments
        self._transcript = transcript
        self._window = Window(source)
        self._lines = self._lines_before = first_line - 1
        self._judge = Judge(self._grammar, width)
        self._splitter = Splitter(self._grammar, self._judge, comment=comment)
        self._patience = _Patience()
        self._chunks: Iterator[RecordChunk] | None = None
        self.records_read = 0
        self.blank_lines = 0
        self.comment_lines = 0

    def __iter__(self) -> Iterator[RecordChunk]:
        if self._chunks is not None:
            raise RuntimeError("a reading is iterable once; open the file again")
        self._chunks = self._walk()
        return self._chunks

    @property
    def record_lines(self) -> int:
        """Lines of records met so far, sound or malformed."""
        return self._lines - self._lines_before - self.blank_lines - self.comment_lines

    def split(self, record: MalformedRecord) -> tuple[str, ...]:
        """The fields of a malformed record, as well as they can be told apart."""
        data = self._transcript.transcribe(record.raw)
        if record.code in BROKEN:
            fields = split_loosely(data, self._grammar, self._width)
        else:
            fields = self._grammar.split(data)
        return tuple(self._transcript.text(field) for field in fields)

    @property
    def _one_column(self) -> bool:
        return self._width == 1

    def _walk(self) -> Iterator[RecordChunk]:
        """The chunks in order; they are parsed in threads while the next ones are split."""
        with ThreadPoolExecutor(max_workers=PARSED_AT_ONCE) as parser:
            parsing: deque[Future[RecordChunk]] = deque()
            for split in self._split_chunks():
                parsing.append(parser.submit(split))
                if len(parsing) > PARSED_AT_ONCE:
                    yield parsing.popleft().result()
            while parsing:
                yield parsing.popleft().result()

    def _split_chunks(self) -> Iterator[Callable[[], RecordChunk]]:
        """The chunks as they are split; what is given parses one, and needs nothing of here."""
        window = self._window
        while True:
            # One byte more than a chunk tells whether the file goes on after it.
            window.grow(self._limits.chunk_bytes + 1)
            if not window.data:
                return
            if self._one_column and self._blank_as_far_as_seen():
                yield from self._blank_run()
                continue
            chunk = self._chunk()
            if chunk is not None:
                yield chunk

    def _draft(self) -> "_Draft":
        return _Draft(
            self.records_read,
            grammar=self._grammar,
            width=self._width,
            transcript=self._transcript,
            max_field_bytes=self._limits.max_field_bytes,
        )

    def _blank_as_far_as_seen(self) -> bool:
        end = _blank_run_end(self._window, 0)
        return end == len(self._window.data) or end >= self._limits.chunk_bytes

    def _chunk(self) -> Callable[[], RecordChunk] | None:
        """The next chunk, or None where the window began with nothing but blank lines."""
        window = self._window
        draft = self._draft()
        stop = min(self._limits.chunk_bytes, len(window.data))
        position, by_line = 0, 0
        while position < stop and draft.count < self._limits.chunk_records:
            before = draft.count
            if by_line:
                stretch = self._splitter.split_lines(window, position, stop, by_line)
            else:
                stretch = self._splitter.split(window, position, stop)
            following = self._take_stretch(draft, position, stretch)
            if following == position and not by_line:
                by_line = self._patience.after(self.records_read + draft.count)
                continue
            if following == position:
                judged = self._take_one(draft, position, stop)
                if judged is None:
                    break
                following = judged
            if by_line:
                # A blank line is no record, but a step all the same.
                by_line = max(by_line - max(draft.count - before, 1), 0)
            position = following
        if draft.count:
            chunk = partial(draft.finish, window.data)
            window.discard(position)
            self.records_read += draft.count
            return chunk
        window.discard(position)
        return self._endless() if position < stop else None

    def _take_stretch(self, draft: "_Draft", position: int, stretch: Stretch) -> int:
        """Take the records of a stretch; returns the offset of what follows them."""
        filled = np.flatnonzero(stretch.ends > stretch.starts)
        room = self._limits.chunk_records - draft.count
        if self._one_column:
            # Blank lines are records if another record follows, which their run decides.
            stretch = stretch[: min(room, int(filled[-1]) + 1 if len(filled) else 0)]
            records = stretch
        else:
            if len(filled) > room:
                filled = filled[:room]
                stretch = stretch[: int(filled[-1]) + 1]
            records = stretch if len(filled) == len(stretch) else stretch[filled]
        if not len(stretch):
            return position
        draft.add(records, first_line=self._lines + 1)
        self._lines += int(stretch.lines_after[-1])
        self.blank_lines += len(stretch) - len(records)
        return int(stretch.nexts[-1])

    def _take_one(self, draft: "_Draft", position: int, stop: int) -> int | None:
        """Take the record, or pass the blank lines, at ``position``.

        Returns:
            The offset of what follows; None if the record belongs to the next chunk.
        """
        window = self._window
        if window.data[position] in b"\r\n":
            return self._take_blank(draft, position, stop)
        if self._comment and window.data.startswith(self._comment, position):
            following = self._pass_comment(position)
            if following is not None:
                return following
        goes_on = len(window.data) > stop and LINE_END.search(window.data, position, stop) is None
        if goes_on and draft.count:
            # The last line of nearly every chunk: no verdict need look ahead to tell its end.
            return None
        verdict = self._verdict(position, stop)
        if verdict.endless or (verdict.next > self._limits.chunk_bytes and draft.count):
            return None
        lines = count_lines(window.data, position, verdict.next)
        if verdict.code is None:
            draft.add_one(position, verdict.end, verdict.next, line=self._lines + 1)
        else:
            draft.refuse(
                line=self._lines + 1,
                lines=lines,
                code=verdict.code,
                hint=verdict.hint,
                raw=window.data[position : verdict.end],
            )
        self._lines += lines
        return verdict.next

    def _take_blank(self, draft: "_Draft", position: int, stop: int) -> int | None:
        """Pass blank lines, or, in a file of one column, take them as records."""
        window = self._window
        if not self._one_column:
            self._window.grow(position + 2)
            self._lines += 1
            self.blank_lines += 1
            return after_line_end(window, position)
        run_end = _blank_run_end(window, position)
        if run_end >= stop:
            return None
        while position < run_end and draft.count < self._limits.chunk_records:
            following = after_line_end(window, position)
            self._lines += 1
            draft.add_one(position, position, following, line=self._lines)
            position = following
        return position

    def _pass_comment(self, position: int) -> int | None:
        """Pass a comment line, whatever its length.

        Returns:
            The offset of what follows; None if the line is a record.
        """
        window = self._window
        found = LINE_END.search(window.data, position)
        while not window.final and (found is None or found.end() == len(window.data)):
            window.grow(len(window.data) + self._limits.chunk_bytes)
            found = LINE_END.search(window.data, position)
        end = found.start() if found else len(window.data)
        delimiters = window.data.count(self._grammar.delimiter, position, end)
        if self._doubt_comments and delimiters == self._width - 1:
            return None
        self._lines += 1
        self.comment_lines += 1
        return found.end() if found else end

    def _verdict(self, position: int, stop: int) -> Verdict:
        try:
            return self._judge.judge(self._window, position, self._lines + 1)
        except WindowEnd:
            # At once as far as any verdict of this chunk may need, or every record near the
            # window's end would copy it anew.
            self._window.grow(stop + self._judge.reach)
            return self._judge.judge(self._window, position, self._lines + 1)

    def _endless(self) -> Callable[[], RecordChunk]:
        """The chunk of the endless record at the window's beginning, which is passed over."""
        verdict = self._verdict(0, 0)
        skipped = Skip(self._grammar, self._judge, self._window).run(
            verdict.end, inside=verdict.inside
        )
        draft = self._draft()
        draft.refuse(
            line=self._lines + 1,
            lines=skipped.lines,
            code=Code.RECORD_TOO_LONG,
            hint=verdict.hint,
            raw=skipped.raw,
        )
        self._lines += skipped.lines
        self.records_read += 1
        return partial(draft.finish, b"")

    def _blank_run(self) -> Iterator[Callable[[], RecordChunk]]:
        """Blank lines at the window's beginning, of a file of one column, however many.

        They are records with a null if another record follows, and nothing at the file's end.
        """
        window = self._window
        count = 0
        while (end := _blank_run_end(window, 0)) == len(window.data) and not window.final:
            # A line end stays: the last byte may be its first half, or its second.
            kept = 2 if window.data.endswith(b"\r\n") else 1
            count += count_line_ends(window.data, 0, end - kept)
            window.discard(end - kept)
            window.grow(kept + self._limits.chunk_bytes)
        count += count_line_ends(window.data, 0, end)
        window.discard(end)
        if not window.data:
            self._lines += count
            self.blank_lines += count
            return
        for taken in range(0, count, self._limits.chunk_records):
            size = min(self._limits.chunk_records, count - taken)
            draft = self._draft()
            draft.add_blank(size, first_line=self._lines + 1)
            self._lines += size
            self.records_read += size
            yield partial(draft.finish, b"\n" * size)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Raws:
    """The original bytes of a chunk's sound records."""

    data: bytes
    starts: Positions
    ends: Positions
    transcript: Transcript

    def __call__(self, row: int) -> bytes:
        return self.transcript.original(self.data[int(self.starts[row]) : int(self.ends[row])])


class _Patience:
    """How many records are split line by line before the next attempt to prove a whole block.

    An attempt costs as much as a hundred such records; a file that breaks every proof, with inch
    marks in each tenth record for instance, would be read thirty times slower if each of them
    were followed by an attempt. This decides speed alone, never what is read.
    """

    SHORTEST, LONGEST = 16, 8_192

    def __init__(self) -> None:
        self._records = self.SHORTEST
        self._last = 0

    def after(self, record: int) -> int:
        """The number for a proof that failed at ``record``."""
        if record - self._last > 4 * self._records:
            self._records = self.SHORTEST
        else:
            self._records = min(2 * self._records, self.LONGEST)
        self._last = record
        return self._records


class _Draft:
    """The records of a chunk while it is put together."""

    def __init__(
        self,
        records_before: int,
        *,
        grammar: Grammar,
        width: int,
        transcript: Transcript,
        max_field_bytes: int,
    ) -> None:
        self._first = records_before + 1
        self._grammar = grammar
        self._width = width
        self._transcript = transcript
        self._max_field_bytes = max_field_bytes
        self._malformed: list[MalformedRecord] = []
        self._parts: list[Positions | tuple[Stretch, int, int]] = []
        self._rows: list[tuple[int, int, int, int, int]] = []
        self.count = 0

    def add(self, stretch: Stretch, *, first_line: int) -> None:
        """Add the records of a stretch that begins on ``first_line``."""
        self._flush()
        self._parts.append((stretch, first_line, self._first + self.count))
        self.count += len(stretch)

    def add_blank(self, count: int, *, first_line: int) -> None:
        """Add records that are ``count`` line feeds from offset 0 on."""
        starts = np.arange(count, dtype=np.int64)
        self._parts.append(
            np.stack((starts, starts, starts + 1, starts + first_line, starts + self._first))
        )
        self.count += count

    def add_one(self, start: int, end: int, following: int, *, line: int) -> None:
        """Add one record."""
        self._rows.append((start, end, following, line, self._first + self.count))
        self.count += 1

    def refuse(self, *, line: int, lines: int, code: Code, hint: str, raw: bytes) -> None:
        """Add a malformed record."""
        self._malformed.append(
            MalformedRecord(
                record=self._first + self.count,
                line=line,
                lines=lines,
                code=code,
                hint=hint,
                raw=self._transcript.original(raw),
            )
        )
        self.count += 1

    def finish(self, data: bytes) -> RecordChunk:
        """Read the values of the sound records."""
        self._flush()
        table = np.concatenate([_NO_RECORDS, *map(_table, self._parts)], axis=1)
        records = columns.Records(
            starts=table[0], ends=table[1], nexts=table[2], lines=table[3], numbers=table[4]
        )
        faults = columns.unreadable(data, records, self._transcript)
        kept = np.ones(len(records), dtype=bool)
        kept[list(faults)] = False
        batch, uneven = columns.parse(
            data, records, kept, grammar=self._grammar, columns=self._width
        )
        kept[list(uneven)] = False
        batch, long = columns.without_long_fields(
            batch, np.flatnonzero(kept), records, most=self._max_field_bytes
        )
        kept[list(long)] = False
        for index, (code, hint) in (faults | uneven | long).items():
            start, end, following, line, number = table[:, index].tolist()
            self._malformed.append(
                MalformedRecord(
                    record=number,
                    line=line,
                    lines=count_lines(data, start, following),
                    code=code,
                    hint=hint,
                    raw=self._transcript.original(data[start:end]),
                )
            )
        sound = table[:, kept]
        return RecordChunk(
            first_record=self._first,
            last_record=self._first + self.count - 1,
            columns=self._transcript.values(batch),
            records=sound[4],
            lines=sound[3],
            malformed=tuple(sorted(self._malformed, key=attrgetter("record"))),
            raw=_Raws(data=data, starts=sound[0], ends=sound[1], transcript=self._transcript),
        )

    def _flush(self) -> None:
        if self._rows:
            self._parts.append(np.array(self._rows, dtype=np.int64).T)
            self._rows = []


_NO_RECORDS = np.empty((5, 0), dtype=np.int64)


def _table(part: Positions | tuple[Stretch, int, int]) -> Positions:
    """Start, end, next start, line and number of each record of a part, row by row."""
    if isinstance(part, np.ndarray):
        return part
    stretch, first_line, first_number = part
    numbers = np.arange(len(stretch), dtype=np.int64) + first_number
    lines = stretch.lines + first_line
    return np.stack((stretch.starts, stretch.ends, stretch.nexts, lines, numbers))


def _blank_run_end(window: Window, position: int) -> int:
    found = BLANK_LINES.match(window.data, position)
    return found.end() if found else position
