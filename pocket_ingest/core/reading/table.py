"""A file of any kind becomes a reading: the one way into this package.

Here: which reader a file's content asks for, and what it is refused for at once. A name decides
nothing; where it misleads, that is said. The readers of formats other than CSV are imported when a
file asks for them: most files are CSV, and a process that reads one should start fast.
Not here: any format.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import PurePath
from typing import BinaryIO, TypedDict, cast

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.reading.containers import Unpacked, refuse_unsupported, unpack
from pocket_ingest.core.reading.csv_table import header_match, open_csv
from pocket_ingest.core.reading.encodings import (
    Encoding,
    choose_encoding,
    first_look,
    other_encodings,
)
from pocket_ingest.core.reading.expectation import Expectation
from pocket_ingest.core.reading.records import (
    DEFAULT_LIMITS,
    Found,
    Header,
    LineAccount,
    MalformedRecord,
    Notice,
    Reading,
    ReadingLimits,
    RecordChunk,
)
from pocket_ingest.core.reading.survey import HEAD_BYTES, Survey, survey
from pocket_ingest.core.reading.transcription import TranscribedStream, Transcript

NO_EXPECTATION = Expectation()
SPOOLED_BYTES = 8 * 2**20
"""A packed workbook larger than this waits on disk, since its reader has to move about in it."""
BLOCK_BYTES = 2**20
BINARY_SAMPLE = 4_096

PARQUET = b"PAR1"
# Workbooks: zip archives with XML inside, and the compound files of older versions.
WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
# Marks of what people send instead of a table.
OTHER_TYPES = (
    (b"ARROW1\x00\x00", "an Arrow file"),
    (b"Obj\x01", "an Avro file"),
    (b"ORC", "an ORC file"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"%PDF-", "a PDF document"),
    (b"{\\rtf", "a text document"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"<!DOCTYPE html", "a web page"),
    (b"<html", "a web page"),
    (b"<?xml", "an XML file"),
)
# What names say, where they say anything. ".txt", ".dat" and many more say nothing.
EXTENSIONS = {
    ".csv": {"csv"},
    ".tsv": {"csv"},
    ".tab": {"csv"},
    ".psv": {"csv"},
    ".json": {"json", "jsonl"},
    ".jsonl": {"jsonl"},
    ".ndjson": {"jsonl"},
    ".parquet": {"parquet"},
    ".xlsx": {"xlsx"},
    ".xlsm": {"xlsx"},
    ".xls": {"xls"},
    ".xlsb": {"xlsb"},
    ".ods": {"ods"},
    ".zip": {"zip"},
    ".gz": {"gzip"},
    ".bz2": {"bzip2"},
    ".xz": {"xz"},
    ".zst": {"zstd"},
}


@contextmanager
def open_table(
    open_file: Callable[[], BinaryIO],
    *,
    expectation: Expectation = NO_EXPECTATION,
    limits: ReadingLimits = DEFAULT_LIMITS,
    name: str = "",
) -> Iterator[Reading]:
    """Open a file of any supported kind for one walk through its records.

    Args:
        open_file: opens the file from its beginning; called more than once, since some choices
            need a look at the whole file.
        expectation: the contract's columns, if there is one, and what is declared of the file.
        limits: bounds of memory and size.
        name: of the file; only to say where it misleads.

    Raises:
        PermanentError: the file as a whole cannot be read; see the codes for files.
    """
    with ExitStack() as stack:
        source = _Source(open_file, stack, expectation, limits)
        yield source.open(name)


class _Source:
    """A file that is opened as often as it takes, and unpacked each time."""

    def __init__(
        self,
        open_file: Callable[[], BinaryIO],
        stack: ExitStack,
        expectation: Expectation,
        limits: ReadingLimits,
    ) -> None:
        self._open_file = open_file
        self._stack = stack
        self._expectation = expectation
        self._limits = limits

    def open(self, name: str) -> Reading:
        """The reading."""
        first = self._unpacked()
        head = _read(first.stream, HEAD_BYTES)
        if not head:
            raise PermanentError(
                Code.EMPTY_FILE, "The file is empty: it has neither a header nor a record."
            )
        refuse_unsupported(head)
        _refuse_other_types(head)
        reading: Reading
        if head.startswith(PARQUET):
            from pocket_ingest.core.reading.parquet_records import open_parquet  # noqa: PLC0415

            reading = open_parquet(self._seekable(), **self._known())
        elif head.startswith(WORKBOOKS):
            from pocket_ingest.core.reading.spreadsheets import open_spreadsheet  # noqa: PLC0415

            reading = open_spreadsheet(self._seekable(), **self._known())
        else:
            reading = self._open_text(head)
        found = reading.found
        return _Described(
            reading,
            replace(
                found,
                containers=first.containers,
                member=first.member,
                notices=(*_name_notices(name, found.format, first.containers), *found.notices),
            ),
        )

    def _open_text(self, head: bytes) -> Reading:
        declared = self._expectation.format.encoding
        encoding = first_look(head, declared)
        looked = survey(self._stream(), escaped_quotes=_escaped_quotes(encoding))
        if encoding is None:
            encoding = choose_encoding(looked, refuse_doubt=bool(self._expectation.columns))
        _refuse_binary(head, encoding)
        transcript = Transcript(encoding=encoding.codec)
        text = transcript.transcribe(head[len(encoding.mark) :])
        if text.lstrip().startswith((b"{", b"[")):
            from pocket_ingest.core.reading.json_records import recognise_json  # noqa: PLC0415

            kind = recognise_json(text)
            if kind:
                return self._open_json(kind, encoding)
        if self._expectation.columns:
            encoding = self._best_for_the_header(looked, encoding)
        return open_csv(
            self._stream, looked, encoding, expectation=self._expectation, limits=self._limits
        )

    def _best_for_the_header(self, looked: Survey, encoding: Encoding) -> Encoding:
        """The assumed encoding, or another under which the header names more of the columns."""
        others = list(other_encodings(encoding))
        if not others:
            return encoding
        return min(
            (encoding, *others),
            key=lambda one: header_match(self._stream, looked, one, expectation=self._expectation),
        )

    def _open_json(self, kind: str, encoding: Encoding) -> Reading:
        from pocket_ingest.core.reading.json_records import open_json  # noqa: PLC0415

        def open_text() -> BinaryIO:
            source = self._stream()
            _read(source, len(encoding.mark))
            return cast("BinaryIO", TranscribedStream(source, Transcript(encoding=encoding.codec)))

        reading = open_json(open_text, lines=kind == "jsonl", **self._known())
        return _Described(
            reading,
            replace(
                reading.found,
                encoding=encoding.name,
                encoding_reason=encoding.reason,
                notices=(*encoding.notices, *reading.found.notices),
            ),
        )

    def _known(self) -> "_Known":
        return {"expectation": self._expectation, "limits": self._limits}

    def _unpacked(self) -> Unpacked:
        return self._stack.enter_context(
            unpack(self._open_file, member=self._expectation.format.member, limits=self._limits)
        )

    def _stream(self) -> BinaryIO:
        """The unpacked bytes from their beginning."""
        return self._unpacked().stream

    def _seekable(self) -> BinaryIO:
        """The unpacked bytes, for readers that move about in them."""
        stream = self._stream()
        if stream.seekable():
            return stream
        waiting = tempfile.SpooledTemporaryFile(SPOOLED_BYTES)  # noqa: SIM115 - the stack closes it
        spooled = self._stack.enter_context(waiting)
        shutil.copyfileobj(stream, spooled, BLOCK_BYTES)
        spooled.seek(0)
        return cast("BinaryIO", spooled)


class _Known(TypedDict):
    expectation: Expectation
    limits: ReadingLimits


class _Described:
    """A reading with more said of what was found."""

    def __init__(self, reading: Reading, found: Found) -> None:
        self._reading = reading
        self.found = found

    @property
    def header(self) -> Header:
        return self._reading.header

    @property
    def account(self) -> LineAccount:
        return self._reading.account

    @property
    def records_read(self) -> int:
        return self._reading.records_read

    def __iter__(self) -> Iterator[RecordChunk]:
        return iter(self._reading)

    def split(self, record: MalformedRecord) -> tuple[str, ...]:
        return self._reading.split(record)


def _escaped_quotes(encoding: Encoding | None) -> tuple[bytes, ...]:
    codec = encoding.codec if encoding else "ascii"
    return tuple(text.encode(codec) for text in ('\\"', "\\'"))


def _refuse_other_types(head: bytes) -> None:
    start = head.lstrip()[:BINARY_SAMPLE]
    for mark, kind in OTHER_TYPES:
        if start[: len(mark)].lower() == mark.lower():
            raise PermanentError(
                Code.UNSUPPORTED_TYPE,
                f"The file is {kind}, not a table. Export it as CSV and send it again.",
            )


def _refuse_binary(head: bytes, encoding: Encoding) -> None:
    """A NUL in a record condemns that record only; many of them mean that this is no text."""
    if encoding.codec.startswith(("utf-16", "utf-32")):
        return
    sample = head[:BINARY_SAMPLE]
    if b"\0" in sample.splitlines()[0] and sample.count(0) * 4 >= len(sample):
        raise PermanentError(
            Code.UNSUPPORTED_TYPE,
            "The file holds binary data, not text, and is of no supported type. Export it as CSV.",
        )


def _name_notices(name: str, form: str, containers: tuple[str, ...]) -> tuple[Notice, ...]:
    """What the name says wrongly, if it says anything."""
    suffixes = [suffix.lower() for suffix in PurePath(name).suffixes[-2:]]
    kinds = [EXTENSIONS[suffix] for suffix in suffixes if suffix in EXTENSIONS]
    are = {form, *containers}
    if not kinds or kinds[-1] & are:
        return ()
    detail = (
        f"The name ends in {suffixes[-1]!r}, but the file is {' in '.join([form, *containers])}."
    )
    return (Notice(code=Code.WRONG_EXTENSION, detail=detail),)


def _read(source: BinaryIO, size: int) -> bytes:
    """The next ``size`` bytes, or all there are."""
    parts = []
    while size > 0 and (part := source.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
