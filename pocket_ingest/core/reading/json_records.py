"""JSON Lines, and JSON arrays of objects: each object is a record, each key a column.

Numbers are text as they are written, so that none loses a digit; texts are as they are; null and a
missing key are no value; lists and objects inside a record are JSON text. The columns are the keys
in the order in which they are first met in the whole file, which is why it is read twice.

In an array, the lines before the first object (the bracket) are titles and those after the last
one are footers.

Here: where objects begin and end, and what is wrong with one. Not here: what values mean.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.reading.expectation import CellForm, Expectation
from pocket_ingest.core.reading.grammar import count_line_ends
from pocket_ingest.core.reading.records import (
    Found,
    Header,
    LineAccount,
    MalformedRecord,
    ReadingLimits,
    RecordChunk,
)
from pocket_ingest.core.reading.rows import RowChunks, csv_line
from pocket_ingest.core.reading.window import Source, Window

KEPT_BYTES = 4_096
BLOCK_BYTES = 2**18
FIRST_LINES = 10
BETWEEN = re.compile(rb"[\s,\[\]]*")
BORDER = re.compile(rb"[,\]\r\n]")
STRUCTURE = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\]"]', re.DOTALL)
NEXT_OBJECT = re.compile(rb"[\r\n]\s*(?=\{)")
ONE_BEHIND_THE_OTHER = re.compile(rb"(?<=[},])\s*(?=\{)")
MOST_INDENT = 100
MOST_NESTED = 32
"""Brackets of damaged text that are matched; more of them are likely more damage."""
CLOSING = re.compile(rb"\s*(\]\s*)?\Z")
# Finds ends only: whole numbers as floats, since Python refuses to make one of 4,300 digits.
SCANNER = json.JSONDecoder(parse_int=float)
LONGEST_WORD = len("-Infinity")


class Number(str):
    """A number as it is written."""

    __slots__ = ()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("the record names a key twice")
    return found


# One for all records: making one takes as long as reading a short object.
DECODER = json.JSONDecoder(
    parse_int=Number,
    parse_float=Number,
    parse_constant=_refuse_constant,
    object_pairs_hook=_object,
)


class _Element(NamedTuple):
    """One element of the file: its bytes, its first line, and how many lines it spans."""

    raw: bytes
    line: int
    lines: int
    is_long: bool = False


def recognise_json(head: bytes) -> str:
    """Give "jsonl" or "json" (an array, or objects over several lines), or nothing.

    Args:
        head: the beginning of the file, as UTF-8.
    """
    text = head.lstrip()
    if text.startswith(b"["):
        inside = text[1:].lstrip()
        return "json" if inside.startswith((b"{", b"]")) else ""
    lines = text.split(b"\n", FIRST_LINES)
    if not re.match(rb'\{\s*(?:"|\}|\Z)', lines[0].strip()):
        return ""
    # One that is damaged does not make objects over several lines of the others.
    whole = any(line.startswith(b"{") and _understand(line)[2] is not None for line in lines)
    return "jsonl" if whole else "json"


class JsonReading:
    """A JSON file, opened; fulfils ``Reading``."""

    def __init__(
        self,
        open_text: Callable[[], BinaryIO],
        *,
        lines: bool,
        names: tuple[str, ...],
        forms: list[CellForm],
        limits: ReadingLimits,
    ) -> None:
        self._elements = _Elements(open_text(), lines=lines, limits=limits)
        self._forms = forms
        self._chunks = RowChunks(len(names), limits)
        self._places = {name: place for place, name in enumerate(names)}
        self._started = False
        self.header = Header(names=names, line=0, raw=csv_line(names))
        self.found = Found(format="jsonl" if lines else "json")

    @property
    def records_read(self) -> int:
        """Records met so far."""
        return self._chunks.records_read

    @property
    def account(self) -> LineAccount:
        """The lines read so far."""
        return self._elements.account

    def __iter__(self) -> Iterator[RecordChunk]:
        if self._started:
            raise RuntimeError("a reading is iterable once; open the file again")
        self._started = True
        return self._walk()

    def split(self, record: MalformedRecord) -> tuple[str, ...]:
        """The text of a malformed record; it has no fields."""
        return (record.raw.decode("utf-8", "replace"),)

    def _walk(self) -> Iterator[RecordChunk]:
        for element in self._elements:
            if element.is_long:
                hint = "the record is longer than the longest that is read"
                code, parsed = Code.RECORD_TOO_LONG, None
            else:
                code, hint, parsed = _understand(element.raw)
            if parsed is None:
                raw = csv_line([element.raw[:KEPT_BYTES].decode("utf-8", "replace")])
                yield from self._chunks.refuse(element.line, code, hint, raw, lines=element.lines)
                continue
            cells: list[str | None] = [None] * len(self._forms)
            for key, value in parsed.items():
                place = self._places[key]
                cells[place] = _spelled(value, self._forms[place])
            yield from self._chunks.add(cells, element.line, lines=element.lines)
        yield from self._chunks.rest()


def open_json(
    open_text: Callable[[], BinaryIO],
    *,
    lines: bool,
    expectation: Expectation,
    limits: ReadingLimits,
) -> JsonReading:
    """Open JSON for one walk through its records.

    Args:
        open_text: opens the file as UTF-8 without a mark; called twice.
        lines: whether each line is an object.
        expectation: the contract's columns, if there is one.
        limits: bounds.

    Raises:
        PermanentError: json_unreadable, empty_file, too_many_columns.
    """
    names: dict[str, None] = {}
    sound = met = 0
    for element in _Elements(open_text(), lines=lines, limits=limits):
        met += 1
        _, _, parsed = (None, None, None) if element.is_long else _understand(element.raw)
        if parsed is not None:
            sound += 1
            names.update(dict.fromkeys(parsed))
        if len(names) > limits.max_columns:
            raise PermanentError(
                Code.TOO_MANY_COLUMNS,
                f"The objects have more than {limits.max_columns} keys in all.",
            )
    if met and not sound:
        raise PermanentError(
            Code.JSON_UNREADABLE,
            "The file holds no JSON object that can be read. Send one object a line.",
        )
    if not met:
        if not expectation.columns:
            raise PermanentError(Code.EMPTY_FILE, "The file holds no object.")
        names = dict.fromkeys(column.name for column in expectation.columns)
    # A surrogate in a name would not even be text.
    known = tuple(name.encode("utf-8", "replace").decode() for name in names)
    return JsonReading(
        open_text, lines=lines, names=known, forms=expectation.forms(known), limits=limits
    )


class _Elements:
    """The elements of a file, one by one, in bounded memory; and what its lines are."""

    def __init__(self, source: Source, *, lines: bool, limits: ReadingLimits) -> None:
        self._source = source
        self._most = limits.max_record_bytes
        self._by_line = lines
        self._covered = 0
        self._record_lines = self._before = self._between = self._after = 0
        self._decoded, self._text = b"", ""

    @property
    def account(self) -> LineAccount:
        """The lines read so far: titles and footers are brackets, in a file of lines blank."""
        if self._by_line:
            blank = self._before + self._between + self._after
            return LineAccount(record_lines=self._record_lines, blank_lines=blank)
        return LineAccount(
            title_lines=self._before,
            record_lines=self._record_lines,
            blank_lines=self._between,
            footer_lines=self._after,
        )

    def __iter__(self) -> Iterator[_Element]:
        total = 0
        for element in self._of_lines() if self._by_line else self._of_array():
            if not element.raw:
                # The end of the file, told by an element of nothing.
                total = element.line
                break
            gap = max(0, element.line - self._covered - 1)
            if self._covered:
                self._between += gap
            else:
                self._before = gap
            last = element.line + element.lines - 1
            self._record_lines += max(0, last - max(self._covered, element.line - 1))
            self._covered = max(self._covered, last)
            yield element
        self._after = max(0, total - self._covered)

    def _of_lines(self) -> Iterator[_Element]:
        """Each line that is not blank."""
        rest, number = b"", 0
        while block := self._source.read(BLOCK_BYTES):
            *whole, rest = (rest + block).split(b"\n")
            for line in whole:
                number += 1
                if text := line.strip():
                    is_long = len(text) > self._most
                    yield _Element(raw=text, line=number, lines=1, is_long=is_long)
            if len(rest) > self._most:
                kept, rest = rest[:KEPT_BYTES], self._rest_of_line()
                number += 1
                yield _Element(raw=kept, line=number, lines=1, is_long=True)
        if rest.strip():
            number += 1
            is_long = len(rest) > self._most
            yield _Element(raw=rest.strip(), line=number, lines=1, is_long=is_long)
        elif rest:
            number += 1
        yield _Element(raw=b"", line=number, lines=0)

    def _rest_of_line(self) -> bytes:
        """Pass the rest of a long line; gives what was read beyond it."""
        while block := self._source.read(BLOCK_BYTES):
            _, end, beyond = block.partition(b"\n")
            if end:
                return beyond
        return b""

    def _of_array(self) -> Iterator[_Element]:
        """Each element of an array, or each of several objects one behind the other."""
        window, line, position = Window(self._source), 1, 0
        while True:
            if len(window.data) - position < BLOCK_BYTES and not window.final:
                window.discard(position)
                window.grow(2 * BLOCK_BYTES)
                position = 0
            found = BETWEEN.match(window.data, position)
            end = found.end() if found else position
            line += count_line_ends(window.data, position, end)
            position = end
            if position == len(window.data):
                if window.final:
                    break
                continue
            end = self._element_end(window, position)
            if end - position > self._most:
                raw, lines = window.data[position : position + KEPT_BYTES], 1
                window.discard(position)
                lines += self._pass_long(window)
                position = 0
                yield _Element(raw=raw, line=line, lines=lines, is_long=True)
                line += lines - 1
                continue
            raw = window.data[position:end].rstrip()
            lines = 1 + count_line_ends(raw, 0, len(raw))
            yield _Element(raw=raw, line=line, lines=lines)
            line, position = line + lines - 1, position + len(raw)
        # What follows the last line end is a line of its own only if there is anything.
        ended = window.data.endswith((b"\n", b"\r")) or not window.data
        yield _Element(raw=b"", line=line - ended, lines=0)

    def _element_end(self, window: Window, start: int) -> int:
        """One past the element at ``start``; beyond the longest record if it ends nowhere near."""
        if not window.data.startswith(b"{", start):
            found = BORDER.search(window.data, start + 1)
            return found.start() if found else len(window.data)
        size, is_sound = BLOCK_BYTES, True
        while True:
            if is_sound:
                end, is_sound = self._sound_end(window, start)
            if not is_sound:
                end = _damaged_end(window.data, start)
            if end >= 0:
                return end
            if window.final or len(window.data) - start > self._most:
                break
            size *= 2
            window.grow(start + size)
        if not window.final:
            return max(len(window.data), start + self._most + 1)
        end = _damaged_end(window.data, start)
        closing = CLOSING.search(window.data, start)
        return end if end >= 0 or not closing else closing.start()

    def _sound_end(self, window: Window, start: int) -> tuple[int, bool]:
        """One past the object at ``start``, or -1; and whether it is one, as far as it is here.

        Damage is met where it is, so that a file of nothing but damage costs hardly more than any
        other: matching brackets alone would search megabytes for each object that lacks one.
        """
        if self._decoded is not window.data:
            # One character for each byte, so that places are the same; what they mean is not asked.
            self._decoded, self._text = window.data, window.data.decode("latin-1")
        try:
            return SCANNER.raw_decode(self._text, start)[1], True
        except json.JSONDecodeError as error:
            is_open = error.msg.startswith("Unterminated string")
            return -1, is_open or error.pos >= len(self._text) - LONGEST_WORD
        except (ValueError, RecursionError):
            return -1, False

    @staticmethod
    def _pass_long(window: Window) -> int:
        """Pass a long element, up to the next object on a line of its own; gives its line ends."""
        lines, position = 0, 1
        while True:
            found = NEXT_OBJECT.search(window.data, position)
            if found or window.final:
                end = found.start() if found else len(window.data)
                lines += count_line_ends(window.data, 0, end)
                window.discard(end)
                return lines
            kept = max(0, len(window.data) - KEPT_BYTES)
            lines += count_line_ends(window.data, 0, kept)
            window.discard(kept)
            window.grow(2 * BLOCK_BYTES)
            position = 0


def _damaged_end(data: bytes, start: int) -> int:
    """One past what should be an object and is none; -1 if no end is in sight.

    Where its line begins with it, the next line that begins the same way is another object;
    within this, or without, it ends where its brackets match.
    """
    before = data[max(0, start - MOST_INDENT) : start]
    indent = re.split(rb"[\r\n]", before)[-1]
    is_line = len(indent) < MOST_INDENT and not indent.strip()
    mark = re.compile(rb"[\r\n]" + indent + rb"(?=\{)") if is_line else ONE_BEHIND_THE_OTHER
    following = mark.search(data, start + 1) if is_line else None
    end = _object_end(data, start, following.start() if following else len(data))
    if end < 0 and not is_line:
        following = mark.search(data, start + 1)
    return following.start() if following and end < 0 else end


def _object_end(data: bytes, start: int, limit: int) -> int:
    """One past the object at ``start``, told by its brackets alone; -1 if they do not match."""
    closers: list[bytes] = []
    for found in STRUCTURE.finditer(data, start, limit):
        mark = found[0]
        if mark in b"{[":
            closers.append(b"}" if mark == b"{" else b"]")
        elif mark in b"}]":
            if closers.pop() != mark:
                return -1
            if not closers:
                return found.end()
        # A quote alone is one that is never closed.
        if mark == b'"' or len(closers) > MOST_NESTED:
            return -1
    return -1


def _understand(raw: bytes) -> tuple[Code, str, dict[str, Any] | None]:
    """The object, or why it is none."""
    try:
        parsed = DECODER.decode(raw.decode())
    except UnicodeDecodeError as error:
        hint = f"byte 0x{raw[error.start]:02X} at offset {error.start} of the record is not UTF-8"
        return Code.INVALID_ENCODING, hint, None
    except json.JSONDecodeError as error:
        return Code.INVALID_JSON, f"{error.msg} at character {error.pos + 1} of the record", None
    except (ValueError, RecursionError) as error:
        return Code.INVALID_JSON, str(error), None
    if not isinstance(parsed, dict):
        return Code.INVALID_JSON, "the record is not an object", None
    return Code.INVALID_JSON, "", parsed


def _spelled(value: Any, form: CellForm) -> str | None:
    """A value as text; lists and objects as JSON, their numbers as they are written."""
    if isinstance(value, Number):
        return value.replace(".", form.decimal_mark)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return form.true if value else form.false
    return _nested(value)


def _nested(value: Any) -> str:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        inside = (f"{json.dumps(key, ensure_ascii=False)}:{_nested(v)}" for key, v in value.items())
        return f"{{{','.join(inside)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_nested, value))}]"
    return json.dumps(value, ensure_ascii=False)
