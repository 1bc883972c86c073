"""A CSV file as a whole: which dialect, where the header stands, what is no record.

Here: the choice among the readings of a file, and the walk between its titles and its footer.
Not here: what speaks for a dialect (dialects.py) or a header (layout.py), and the records
themselves (csv_records.py).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.reading.csv_records import CsvRecords
from pocket_ingest.core.reading.dialects import (
    LINE,
    WEAKEST,
    Cut,
    Dialect,
    cut_rows,
    escape_is_used,
    score_dialects,
)
from pocket_ingest.core.reading.encodings import Encoding
from pocket_ingest.core.reading.expectation import Expectation, Match
from pocket_ingest.core.reading.layout import Layout, count_footer, find_layout
from pocket_ingest.core.reading.records import (
    DEFAULT_LIMITS,
    Found,
    Header,
    LineAccount,
    MalformedRecord,
    Notice,
    ReadingLimits,
    RecordChunk,
)
from pocket_ingest.core.reading.survey import Survey, bytes_that_occur
from pocket_ingest.core.reading.transcription import (
    ERRORS,
    FREE,
    TranscribedStream,
    Transcript,
    encode,
)
from pocket_ingest.core.reading.window import Source

SAMPLE_LINES = 300
"""Lines in which each dialect is tried; the chosen one is looked at in all of the sample."""


class CsvTable:
    """A CSV file, opened; fulfils ``Reading``."""

    def __init__(
        self,
        *,
        records: CsvRecords,
        header: Header,
        found: Found,
        outside: LineAccount,
    ) -> None:
        self._records = records
        self._outside = outside
        self.header = header
        self.found = found

    def __iter__(self) -> Iterator[RecordChunk]:
        return iter(self._records)

    @property
    def records_read(self) -> int:
        """Records met so far."""
        return self._records.records_read

    @property
    def account(self) -> LineAccount:
        """The lines read so far, and those of titles, header and footer."""
        outside = self._outside
        return replace(
            outside,
            record_lines=self._records.record_lines,
            blank_lines=outside.blank_lines + self._records.blank_lines,
            comment_lines=outside.comment_lines + self._records.comment_lines,
        )

    def split(self, record: MalformedRecord) -> tuple[str, ...]:
        """The fields of a malformed record, as well as they can be told apart."""
        return self._records.split(record)


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """One reading of a file's beginning, and what speaks for it."""

    dialect: Dialect
    score: float
    rows: Sequence[Cut]
    layout: Layout
    match: Match | None
    fit: float

    @property
    def rank(self) -> tuple[float, ...]:
        """Sorts better readings first: the contract's columns, then steadiness."""
        by_contract = self.match.rank if self.match else ()
        return (*by_contract, -self.fit * self.score, -self.score)


def open_csv(
    open_stream: Callable[[], BinaryIO],
    survey: Survey,
    encoding: Encoding,
    *,
    expectation: Expectation,
    limits: ReadingLimits,
) -> CsvTable:
    """Open a CSV file for one walk through its records.

    Args:
        open_stream: opens the file's bytes, from their beginning.
        survey: of all bytes.
        encoding: of the file.
        expectation: the contract's columns, if there is one, and what is declared.
        limits: bounds.

    Raises:
        PermanentError: empty_file, header_unreadable, ambiguous_dialect, too_many_columns.
    """
    return _Opening(open_stream, survey, encoding, expectation, limits).open()


def header_match(
    open_stream: Callable[[], BinaryIO],
    survey: Survey,
    encoding: Encoding,
    *,
    expectation: Expectation,
) -> tuple[int, ...]:
    """How well the header names the contract's columns under an encoding; less is better."""
    opening = _Opening(open_stream, survey, encoding, expectation, DEFAULT_LIMITS)
    match = opening.choice().match
    return match.rank[:2] if match else ()


class _Opening:
    """The way from a survey to an opened table."""

    def __init__(
        self,
        open_stream: Callable[[], BinaryIO],
        survey: Survey,
        encoding: Encoding,
        expectation: Expectation,
        limits: ReadingLimits,
    ) -> None:
        self._open_stream = open_stream
        self._survey = survey
        self._encoding = encoding
        self._expectation = expectation
        self._declared = expectation.format
        self._limits = limits
        self._plain = Transcript(encoding=encoding.codec)
        self._notices = list(encoding.notices)
        self._text = self._head_text()

    def open(self) -> CsvTable:
        """Choose, and position the walk at the first record."""
        if not self._text.strip("\r\n \t\0"):
            self._refuse_blank()
        choice = self.choice()
        dialect = self._with_escape(choice.dialect)
        comment = self._comment(choice)
        rows = choice.rows
        layout = choice.layout
        self._refuse_unreadable(choice)
        transcript = self._transcript(dialect)
        lines_before = sum(row.lines for row in rows[: layout.header_at + layout.header_rows])
        prefix = _first_lines(self._text, lines_before)
        footer = self._footer(choice, dialect, lines_before)
        if layout.header_rows == 0 or len(layout.names) > len(rows[layout.header_at].cells):
            self._notice_names(choice)
        source = self._positioned(transcript, prefix, footer)
        delimiter = self._delimiter_byte(dialect, transcript)
        records = CsvRecords(
            source,
            width=len(layout.names),
            first_line=lines_before + 1,
            delimiter=delimiter,
            quote=dialect.quote.encode(),
            comment=comment.encode(),
            doubt_comments=self._declared.comment is None,
            transcript=transcript,
            limits=self._limits,
        )
        return CsvTable(
            records=records,
            header=self._header(choice, dialect, prefix),
            outside=self._outside(choice, comment, footer),
            found=Found(
                format="csv",
                encoding=self._encoding.name,
                encoding_reason=self._encoding.reason,
                delimiter=dialect.delimiter,
                quote=dialect.quote,
                escape=dialect.escape,
                comment=comment,
                dialect_reason=self._reason(choice),
                notices=tuple(self._notices),
            ),
        )

    def _head_text(self) -> str:
        head = self._survey.head[len(self._encoding.mark) :]
        if not self._survey.is_whole:
            head = head[: len(head) - len(head) % 4]
        text = head.decode(self._encoding.codec, ERRORS)
        if self._survey.is_whole:
            return text
        end = max(text.rfind("\n"), text.rfind("\r"))
        if end < 0:
            return text
        # A CR at the cut may be half a line end.
        return text[: end + 1] if text[end] == "\n" else text[:end]

    def _refuse_blank(self) -> None:
        if self._survey.is_whole:
            raise PermanentError(
                Code.EMPTY_FILE, "The file is empty: it has neither a header nor a record."
            )
        raise PermanentError(
            Code.HEADER_UNREADABLE, f"The first {len(self._survey.head)} bytes hold no text."
        )

    def choice(self) -> _Choice:
        declared = self._declared
        scored = score_dialects(self._text, declared)
        sample = _first_lines(self._text, SAMPLE_LINES)
        choices = [self._read_as(one.dialect, one.score, sample) for one in scored[:20]]
        if declared.delimiter is None and (self._expectation.columns or scored[0].score < WEAKEST):
            quote = '"' if declared.quote is None else declared.quote
            plain = Dialect(delimiter="", quote=quote, escape=declared.escape or "")
            choices.append(self._read_as(plain, WEAKEST, sample))
        best = min(choices, key=lambda choice: choice.rank)
        return self._read_as(best.dialect, best.score, self._text)

    def _read_as(self, dialect: Dialect, score: float, text: str) -> _Choice:
        rows = self._cut(text, dialect)
        layout = find_layout([self._cells(row) for row in rows], self._expectation)
        match = self._expectation.match(layout.names) if self._expectation.columns else None
        after = [row for row in rows[layout.header_at + layout.header_rows :] if any(row.cells)]
        width = len(layout.names)
        fit = sum(len(row.cells) == width for row in after) / len(after) if after else 1.0
        return _Choice(dialect=dialect, score=score, rows=rows, layout=layout, match=match, fit=fit)

    @staticmethod
    def _cut(text: str, dialect: Dialect) -> list[Cut]:
        if dialect.delimiter:
            return cut_rows(text, dialect)
        return cut_rows(text, replace(dialect, delimiter="\x1f"))

    def _cells(self, row: Cut) -> list[str]:
        """The cells of a row as the search for a header is to see them."""
        comment = self._declared.comment
        return [] if comment and row.cells[0].startswith(comment) else row.cells

    def _with_escape(self, dialect: Dialect) -> Dialect:
        """The dialect with an escape where the whole file speaks for one."""
        survey = self._survey
        if self._declared.escape is not None or dialect.escape or survey.escaped < 0:
            return dialect
        if not dialect.quote or not dialect.delimiter:
            return dialect
        sample = survey.around_escaped.decode(self._encoding.codec, "replace")
        lines = sample.splitlines(keepends=True)
        sample = "".join(lines[1:-1]) if len(lines) > 3 else sample  # noqa: PLR2004 - cut lines
        if f"\\{dialect.quote}" not in sample:
            return dialect
        used = escape_is_used(sample, dialect)
        if used is None:
            detail = (
                "A backslash before a quote can be an escape or a character of its own, and both "
                'readings explain the file. Declare FileFormat(escape="\\\\") or '
                'FileFormat(escape="").'
            )
            if self._expectation.columns:
                raise PermanentError(Code.AMBIGUOUS_DIALECT, detail)
            self._notices.append(Notice(code=Code.AMBIGUOUS_DIALECT, detail=detail))
        return replace(dialect, escape="\\") if used else dialect

    def _comment(self, choice: _Choice) -> str:
        """The mark of comment lines: declared, or # where such lines are never records."""
        if self._declared.comment is not None:
            return self._declared.comment
        layout = choice.layout
        after = choice.rows[layout.header_at + layout.header_rows :]
        marked = [row for row in after if row.cells[0].startswith("#")]
        width = len(layout.names)
        if marked and width > 1 and all(len(row.cells) != width for row in marked):
            return "#"
        return ""

    def _refuse_unreadable(self, choice: _Choice) -> None:
        layout, most = choice.layout, self._limits.max_columns
        if len(layout.names) > most:
            raise PermanentError(
                Code.TOO_MANY_COLUMNS,
                f"The file has {len(layout.names)} columns; at most {most} are read.",
            )
        before = choice.rows[: layout.header_at]
        line = sum(row.lines for row in before) + 1
        if not self._survey.is_whole and not any(char in self._text for char in "\r\n"):
            raise PermanentError(
                Code.HEADER_UNREADABLE,
                f"The first line is longer than {len(self._survey.head)} bytes.",
            )
        rows = choice.rows[layout.header_at : layout.header_at + layout.header_rows]
        names = "".join(layout.names)
        if "\0" in names:
            raise PermanentError(
                Code.HEADER_UNREADABLE, f"The header on line {line} holds a NUL byte."
            )
        if any("\udc00" <= char <= "\udcff" for char in names):
            raise PermanentError(
                Code.HEADER_UNREADABLE,
                f"The header on line {line} is not text in {self._encoding.codec}. Save the file "
                "as UTF-8 and send it again.",
            )
        broken = any(row.broken for row in rows)
        if broken and self._expectation.columns and not (choice.match and choice.match.whole):
            raise PermanentError(
                Code.HEADER_UNREADABLE,
                f"The header on line {line} has a quote that is not closed, or that text follows.",
            )

    def _notice_names(self, choice: _Choice) -> None:
        if choice.layout.header_rows == 0:
            detail = "The file has no header; columns are named by their position."
            if self._declared.header_rows == 0:
                return
        else:
            detail = "The records have more columns than the header has names."
        self._notices.append(Notice(code=Code.MADE_UP_HEADER, detail=detail))

    def _reason(self, choice: _Choice) -> str:
        if self._declared.delimiter is not None:
            return "declared"
        if choice.match is not None and choice.match.found:
            wanted = len(self._expectation.columns)
            return f"its header names {choice.match.found} of the contract's {wanted} columns"
        if choice.score == 0:
            return "no delimiter occurs"
        return f"{choice.fit:.0%} of the first records have as many fields as the header"

    # -- the walk ----------------------------------------------------------------------------

    def _transcript(self, dialect: Dialect) -> Transcript:
        if len(dialect.delimiter) == 1 and not dialect.escape:
            return self._plain
        if not dialect.delimiter and not dialect.escape:
            return self._plain
        return self._plain.with_marks(
            delimiter=dialect.delimiter,
            quote=dialect.quote,
            escape=dialect.escape,
            taken=self._taken(),
        )

    def _taken(self) -> set[int]:
        return bytes_that_occur(TranscribedStream(self._open_stream(), self._plain))

    def _delimiter_byte(self, dialect: Dialect, transcript: Transcript) -> bytes:
        if len(dialect.delimiter) > 1:
            return transcript.marks[-1].byte
        if dialect.delimiter:
            return dialect.delimiter.encode()
        used = {mark.byte[0] for mark in transcript.marks} | self._taken()
        return bytes((next(byte for byte in FREE if byte not in used),))

    def _positioned(
        self, transcript: Transcript, prefix: str, footer: "_Footer"
    ) -> TranscribedStream:
        """The records' bytes: behind the header, before the footer."""
        source = self._open_stream()
        _skip(source, len(self._encoding.mark))
        size = self._survey.size - len(self._encoding.mark) - footer.size
        stream = TranscribedStream(_Limited(source, size), transcript)
        _skip(stream, len(transcript.mark(encode(prefix))))
        return stream

    def _footer(self, choice: _Choice, dialect: Dialect, lines_before: int) -> "_Footer":
        if self._survey.is_whole:
            text = self._text[len(_first_lines(self._text, lines_before)) :]
        else:
            text = self._tail_text()
        rows = self._cut(text, dialect)
        cells = [self._cells(row) for row in rows]
        count = self._footer_rows(cells, choice.layout)
        if not count:
            return _Footer(size=0, lines=0, blank=0)
        last = rows[-count:]
        lines = sum(row.lines for row in last)
        blank = sum(not any(cells) for cells in cells[-count:])
        ended = _last_lines(text, lines)
        return _Footer(
            size=len(self._plain.original(encode(ended))), lines=lines - blank, blank=blank
        )

    def _footer_rows(self, rows: Sequence[Sequence[str]], layout: Layout) -> int:
        declared = self._declared.footer_lines
        if declared is None:
            return count_footer(rows, layout)
        filled = [number for number, row in enumerate(rows) if any(row)]
        if not declared or not filled:
            return 0
        return len(rows) - filled[-min(declared, len(filled))]

    def _tail_text(self) -> str:
        """The end of the file, from the beginning of a line."""
        survey, mark = self._survey, len(self._encoding.mark)
        start = survey.size - len(survey.tail)
        tail = survey.tail[-(start - mark) % 4 :]
        text = tail.decode(self._encoding.codec, ERRORS)
        found = LINE.match(text)
        return text[found.end() :] if found else text

    def _header(self, choice: _Choice, dialect: Dialect, prefix: str) -> Header:
        layout = choice.layout
        before = sum(row.lines for row in choice.rows[: layout.header_at])
        rows = choice.rows[layout.header_at : layout.header_at + layout.header_rows]
        if len(rows) == 1:
            raw = prefix[len(_first_lines(prefix, before)) :].rstrip("\r\n")
        else:
            raw = write_line(layout.names, dialect)
        return Header(
            names=layout.names,
            line=before + 1 if rows else 0,
            raw=self._plain.original(encode(raw)),
            rows=tuple(tuple(row.cells) for row in rows),
        )

    def _outside(self, choice: _Choice, comment: str, footer: "_Footer") -> LineAccount:
        layout = choice.layout
        before = choice.rows[: layout.header_at]
        header = choice.rows[layout.header_at : layout.header_at + layout.header_rows]
        blank = sum(not any(row.cells) for row in before)
        comments = sum(row.lines for row in before if comment and row.cells[0].startswith(comment))
        titles = sum(row.lines for row in before) - blank - comments
        if titles or footer.lines:
            detail = (
                f"{titles} lines before the header and {footer.lines} after the last record are "
                "no records."
            )
            self._notices.append(Notice(code=Code.LINES_OUTSIDE, detail=detail))
        return LineAccount(
            title_lines=titles,
            header_lines=sum(row.lines for row in header),
            blank_lines=blank + footer.blank,
            comment_lines=comments,
            footer_lines=footer.lines,
        )


@dataclass(frozen=True, kw_only=True)
class _Footer:
    """The end of the file that is no record: bytes, lines with text, blank lines."""

    size: int
    lines: int
    blank: int


class _Limited:
    """The first bytes of a source."""

    def __init__(self, source: Source, size: int) -> None:
        self._source = source
        self._left = size

    def read(self, size: int = -1) -> bytes:
        """At most ``size`` bytes."""
        size = self._left if size < 0 else min(size, self._left)
        data = self._source.read(size) if size else b""
        self._left -= len(data)
        return data


def write_line(names: Sequence[str], dialect: Dialect) -> str:
    """Names as one line of the dialect."""
    special = [part for part in (dialect.delimiter, dialect.quote, "\r", "\n") if part]
    return dialect.delimiter.join(
        f"{dialect.quote}{name.replace(dialect.quote, dialect.quote * 2)}{dialect.quote}"
        if dialect.quote and any(part in name for part in special)
        else name
        for name in names
    )


def _first_lines(text: str, count: int) -> str:
    end = 0
    for match, _ in zip(LINE.finditer(text), range(count), strict=False):
        end = match.end()
    return text[:end]


def _last_lines(text: str, count: int) -> str:
    starts = [match.start() for match in LINE.finditer(text) if match[0]]
    return text[starts[-count] :] if count else ""


def _skip(source: Source, size: int) -> None:
    while size > 0 and (data := source.read(min(size, 2**16))):
        size -= len(data)
