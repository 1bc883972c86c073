"""What a file is packed in, and a stream of the data inside.

A container is known by its first bytes, never by its name. One layer is unpacked: a gzip, bzip2,
xz or Zstandard file, or the one file with data in a zip archive. A workbook is a zip archive as
well, but a document: it stays as it is.

Here: recognising containers, choosing an archive's member, and unpacking it in bounded memory,
whatever the archive claims. A stream either ends with the last byte that was packed, or raises.
Not here: what the data is.
"""

import bz2
import io
import lzma
import re
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Protocol
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import pyarrow as pa

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.reading.records import ReadingLimits

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

HEAD_BYTES = 512
"""Enough to tell every kind: the mark of a tar archive, the last one, ends at byte 262."""
BLOCK_BYTES = 2**16
"""Of what is packed, read at once; of what is unpacked, asked of a library at once."""
RATIO_FLOOR = 8 * 2**20
"""Below it a ratio tells nothing: some hundred KB of equal lines pack a thousandfold, and do no
harm. It is half of a chunk, which the reader holds anyway."""
XZ_MEMORY = 72 * 2**20
"""``xz -9`` needs 65 MiB. A file may declare a dictionary of 4 GiB, and it would be allocated."""
DIRECTORY_BYTES = 2**10
"""Of a zip archive's directory, for each member that it may have: 46, two names, extra fields. A
directory is read at once, so its size is bounded before its members can be counted."""
NAMES_SHOWN = 5
NAME_LENGTH = 80

KINDS = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "bzip2": re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    # A frame of data, or one to skip, with which parallel compressors begin.
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
    # A member, the end of an archive without any, or the mark of one that was to be split.
    "zip": re.compile(rb"PK(?:\x03\x04|\x05\x06|\x07\x08)"),
    "tar": re.compile(rb".{257}ustar", re.DOTALL),
    "7z": re.compile(rb"7z\xbc\xaf\x27\x1c"),
    "rar": re.compile(rb"Rar!\x1a\x07"),
}
UNSUPPORTED = {"tar": "a tar archive", "7z": "a 7-Zip archive", "rar": "a RAR archive"}
# Workbooks begin with one of these members; the length of its name stands 4 bytes before it.
WORKBOOK = re.compile(
    rb"PK\x03\x04.{22}(?:"
    rb"\x08\x00..mimetype|\x13\x00..\[Content_Types\]\.xml|.{4}(?:xl|_rels|docProps|customXml)/"
    rb")",
    re.DOTALL,
)
ZIP_METHODS = {9: "Deflate64", 12: "bzip2", 14: "LZMA", 93: "Zstandard", 95: "xz", 98: "PPMd"}
ENCRYPTED = 0x1
DRIVE = re.compile(r"[A-Za-z]:")
LITTER = frozenset({".ds_store", "thumbs.db"})

# What the libraries raise over a damaged file: bz2 and Arrow an OSError; zipfile over a name in a
# wrong encoding a ValueError, over features that it lacks a RuntimeError, and over places in the
# file that no file has an OverflowError.
DAMAGE = (
    zlib.error,
    lzma.LZMAError,
    BadZipFile,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    RuntimeError,
    OverflowError,
    pa.ArrowException,
)


@dataclass(frozen=True, kw_only=True)
class Unpacked:
    """The data of a file, out of its container.

    Attributes:
        stream: the data. Of a file that is not packed the file itself, else a stream that cannot
            seek and that raises ``archive_damaged`` or ``archive_too_large`` where it has to.
        containers: "gzip", "bzip2", "xz", "zstd" or "zip"; nothing if the file is not packed.
        member: of a zip archive, the name of what is read, made printable.
    """

    stream: BinaryIO
    containers: tuple[str, ...] = ()
    member: str = ""


def recognise(head: bytes) -> str:
    """The kind of a container or archive by its first HEAD_BYTES: a key of KINDS, or nothing.

    A workbook is a "zip" here; ``is_workbook_head`` tells it apart.
    """
    return next((kind for kind, mark in KINDS.items() if mark.match(head)), "")


def is_workbook_head(head: bytes) -> bool:
    """Whether a zip archive begins as workbooks do (and other office documents)."""
    return WORKBOOK.match(head) is not None


def is_workbook(names: Sequence[str]) -> bool:
    """Whether the members of a zip archive are those of an Excel or OpenDocument workbook."""
    if "[Content_Types].xml" in names:
        return any(name.startswith("xl/") for name in names)
    return "mimetype" in names and "content.xml" in names


def refuse_unsupported(head: bytes) -> None:
    """Refuse archives that are not unpacked.

    Raises:
        PermanentError: ``unsupported_type``.
    """
    kind = recognise(head)
    if kind in UNSUPPORTED:
        raise PermanentError(
            Code.UNSUPPORTED_TYPE,
            f"The file is {UNSUPPORTED[kind]}, which is not unpacked. "
            "Send the file in it as it is, or pack it with zip or gzip.",
        )


@contextmanager
def unpack(
    open_file: Callable[[], BinaryIO], *, member: str | None, limits: ReadingLimits
) -> Iterator[Unpacked]:
    """The data of a file, whether it is packed or not, for as long as the block lasts.

    Args:
        open_file: opens the file at its beginning; called more than once.
        member: of a zip archive, which file to read: its path, its name, or a pattern of either.
        limits: how many bytes, how large a ratio and how many members are unpacked at most.

    Raises:
        PermanentError: ``unsupported_type``, or one of the codes of archives. Failures of the file
            itself pass through as they are: the next attempt may succeed.
    """
    with open_file() as file:
        head = _head(file)
    refuse_unsupported(head)
    kind = recognise(head)
    with ExitStack() as closing:
        packed = None
        if kind == "zip" and not is_workbook_head(head):
            packed = _open_member(closing, open_file, member, limits)
        elif kind in STREAMS:
            packed = _open_stream(closing.enter_context(open_file()), kind)
        if packed is None:
            yield Unpacked(stream=closing.enter_context(open_file()))
            return
        raw = _UnpackedStream(packed, limits)
        stream = closing.enter_context(io.BufferedReader(raw, BLOCK_BYTES))
        _refuse_nested(stream.peek(HEAD_BYTES))
        yield Unpacked(stream=stream, containers=(kind,), member=packed.member)


class _Source:
    """The packed file as libraries see it.

    It never returns less than is asked for before its end, which zipfile takes for damage. And it
    remembers its own failure, since zipfile reports a disk that fails as a file that is no archive.

    Attributes:
        count: bytes read so far.
        failure: what the file raised when it was read.
        closed: for Arrow; the file is closed by whoever opened it.
    """

    def __init__(self, file: BinaryIO, *, max_read: int = 2 * BLOCK_BYTES) -> None:
        self._file = file
        self._max_read = max_read
        self.count = 0
        self.failure: Exception | None = None
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """``size`` bytes, or all; fewer only at the end."""
        if size > self._max_read:
            raise PermanentError(
                Code.ARCHIVE_MEMBERS,
                f"The archive's directory takes {size} bytes, more than the members that it may "
                "have. Pack the one file with the data.",
            )
        parts = []
        try:
            while size and (part := self._file.read(size)):
                parts.append(part)
                size -= len(part) if size > 0 else 0
        except Exception as error:
            self.failure = error
            raise
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.count += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to another place."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """The place to read from next."""
        return self._file.tell()

    def seekable(self) -> bool:
        """For zipfile, which asks before it seeks."""
        return self._file.seekable()

    def close(self) -> None:
        """For Arrow."""
        self.closed = True


@contextmanager
def _telling_damage(source: _Source) -> Iterator[None]:
    """Translate what a library raises, unless it was the source that failed."""
    try:
        yield
    except DAMAGE as error:
        if source.failure is not None:
            raise source.failure from None
        # The words of liblzma and of libzstd (which takes windows up to 128 MiB).
        if "memory" in str(error).lower():
            raise PermanentError(
                Code.ARCHIVE_TOO_LARGE,
                "The file was packed so that unpacking it takes too much memory. "
                "Pack it with the usual settings, or send it unpacked.",
            ) from error
        raise PermanentError(
            Code.ARCHIVE_DAMAGED,
            "The archive is cut off or damaged. Pack the file again and send it.",
        ) from error


@dataclass(frozen=True, kw_only=True)
class _Packed:
    """An open container: ``read(size)`` unpacks at most ``size`` bytes, none only at the end."""

    source: _Source
    read: Callable[[int], bytes]
    member: str = ""


class _UnpackedStream(io.RawIOBase):
    """What comes out of a container, counted against the limits."""

    def __init__(self, packed: _Packed, limits: ReadingLimits) -> None:
        self._packed = packed
        self._limits = limits
        # Behind a zip archive's directory, which is not the member.
        self._begin = packed.source.count
        self._given = 0
        self._failure: Exception | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view) and (part := self._part(len(view) - filled)):
            view[filled : filled + len(part)] = part
            filled += len(part)
        return filled

    def _part(self, size: int) -> bytes:
        # A library may forget that it failed, and end as if all were well when it is asked again.
        if self._failure is not None:
            raise self._failure
        try:
            with _telling_damage(self._packed.source):
                part = self._packed.read(min(size, BLOCK_BYTES))
            self._given += len(part)
            _refuse_bomb(self._given, self._packed.source.count - self._begin, self._limits)
        except Exception as error:
            self._failure = error
            raise
        return part


def _refuse_bomb(unpacked: int, packed: int, limits: ReadingLimits) -> None:
    if unpacked > limits.max_unpacked_bytes:
        raise PermanentError(
            Code.ARCHIVE_TOO_LARGE,
            f"Unpacked, the file has more than {limits.max_unpacked_bytes} bytes. "
            "Send it in parts, or have the limit raised.",
        )
    if unpacked > RATIO_FLOOR and unpacked > packed * limits.max_unpack_ratio:
        raise PermanentError(
            Code.ARCHIVE_TOO_LARGE,
            f"Unpacked, the file is more than {limits.max_unpack_ratio} times as large as packed. "
            "If that is right, send it unpacked, or have the limit raised.",
        )


def _refuse_nested(head: bytes) -> None:
    kind = recognise(head)
    if kind and not is_workbook_head(head):
        raise PermanentError(
            Code.NESTED_ARCHIVE,
            f"What is packed in the file is packed once more, as {kind}. Pack the file itself.",
        )


def _head(file: BinaryIO) -> bytes:
    return _Source(file).read(HEAD_BYTES)


# gzip, bzip2, xz and Zstandard: streams of one file


class _Decompressor(Protocol):
    """What Python's decompressors have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _GzipDecompressor:
    """One member of a gzip file; zlib checks its sum and length, but keeps no input by itself."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)


class _Concatenated:
    """Streams one after the other, zero bytes after each, as compressors and tapes leave them."""

    def __init__(self, source: _Source, begin: Callable[[], _Decompressor]) -> None:
        self._source = source
        self._begin = begin
        self._stream = begin()
        self._input = b""
        self._hungry = True

    def read(self, size: int) -> bytes:
        while True:
            if self._stream.eof and not self._next_stream():
                return b""
            if self._hungry and not self._input:
                self._input = self._source.read(BLOCK_BYTES)
                if not self._input:
                    raise EOFError
            data, self._input = self._input, b""
            given = self._stream.decompress(data, size)
            # As much as was asked for: there may be more without more input.
            self._hungry = len(given) < size
            if given:
                return given

    def _next_stream(self) -> bool:
        rest = self._stream.unused_data
        while not (rest := rest.lstrip(b"\0")):
            rest = self._source.read(BLOCK_BYTES)
            if not rest:
                return False
        self._stream = self._begin()
        self._input = rest
        return True


# Arrow reads Zstandard frames one after the other, and notices where one is cut off.
STREAMS: dict[str, Callable[[], _Decompressor] | None] = {
    "gzip": _GzipDecompressor,
    "bzip2": bz2.BZ2Decompressor,
    "xz": partial(lzma.LZMADecompressor, format=lzma.FORMAT_XZ, memlimit=XZ_MEMORY),
    "zstd": None,
}


def _open_stream(file: BinaryIO, kind: str) -> _Packed:
    source = _Source(file)
    begin = STREAMS[kind]
    if begin is not None:
        return _Packed(source=source, read=_Concatenated(source, begin).read)
    with _telling_damage(source):
        stream = pa.CompressedInputStream(pa.PythonFile(source, mode="r"), "zstd")
    return _Packed(source=source, read=stream.read)


# zip: a directory of members


def _open_member(
    closing: ExitStack, open_file: Callable[[], BinaryIO], member: str | None, limits: ReadingLimits
) -> _Packed | None:
    """The member with the data; None if the archive is a workbook."""
    file = closing.enter_context(open_file())
    if not file.seekable():
        file = closing.enter_context(_spooled(file, limits))
    source = _Source(file, max_read=limits.max_members * DIRECTORY_BYTES + 2 * BLOCK_BYTES)
    with _telling_damage(source):
        archive = ZipFile(source)
    if is_workbook(archive.namelist()):
        return None
    info = _choose(archive.infolist(), member, limits)
    name = _shown(info.orig_filename)
    if info.flag_bits & ENCRYPTED:
        raise PermanentError(
            Code.ARCHIVE_DAMAGED,
            f"The archive's member {name} is protected by a password. Pack it without one.",
        )
    # zipfile unpacks the others in pieces as large as they like: 4 KB of bzip2 hold up to 80 MB.
    if info.compress_type not in {ZIP_STORED, ZIP_DEFLATED}:
        method = ZIP_METHODS.get(info.compress_type, f"number {info.compress_type}")
        raise PermanentError(
            Code.ARCHIVE_DAMAGED,
            f"The archive's member {name} is packed by the method {method}, which is not unpacked. "
            "Pack it with the usual method, Deflate, or with gzip.",
        )
    # What the directory declares is not trusted, but it is enough to refuse a file.
    _refuse_bomb(info.file_size, info.compress_size, limits)
    with _telling_damage(source):
        stream = archive.open(info)
    return _Packed(source=source, read=stream.read, member=name)


def _spooled(file: BinaryIO, limits: ReadingLimits) -> BinaryIO:
    """A copy that can seek: a zip archive's directory is at its end."""
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the caller
    try:
        while data := file.read(BLOCK_BYTES):
            copy.write(data)
            _refuse_bomb(copy.tell(), copy.tell(), limits)
        copy.seek(0)
    except BaseException:
        copy.close()
        raise
    return copy


def _choose(infos: Sequence[ZipInfo], member: str | None, limits: ReadingLimits) -> ZipInfo:
    if len(infos) > limits.max_members:
        raise PermanentError(
            Code.ARCHIVE_MEMBERS,
            f"The archive has {len(infos)} members; at most {limits.max_members} are looked at. "
            "Pack the one file with the data.",
        )
    candidates = [info for info in infos if _is_data(info)]
    chosen = candidates if member is None else _matching(candidates, member)
    if len(chosen) == 1:
        return chosen[0]
    if not candidates:
        raise PermanentError(Code.ARCHIVE_MEMBERS, "The archive holds no file. Pack the data file.")
    if member is None:
        raise PermanentError(
            Code.ARCHIVE_MEMBERS,
            f"The archive holds {len(candidates)} files: {_listed(candidates)}. "
            "Pack one file, or declare `member` in the dataset's `FileFormat`.",
        )
    if not chosen:
        raise PermanentError(
            Code.ARCHIVE_MEMBERS,
            f"No file in the archive is the declared member {_shown(member)}; "
            f"it holds: {_listed(candidates)}.",
        )
    raise PermanentError(
        Code.ARCHIVE_MEMBERS,
        f"{len(chosen)} files in the archive are the declared member {_shown(member)}: "
        f"{_listed(chosen)}. Pack one of them.",
    )


def _path(info: ZipInfo) -> str:
    # `filename` ends at a NUL, and what is behind it should not go unseen.
    return info.orig_filename.replace("\\", "/")


def _is_data(info: ZipInfo) -> bool:
    """Whether a member is a file that someone meant to send.

    Raises:
        PermanentError: ``unsafe_archive_path`` if its path leads out of the archive.
    """
    path = _path(info)
    *folders, name = path.split("/")
    if not name and not info.file_size:
        return False
    if _leads_out(path):
        raise PermanentError(
            Code.UNSAFE_ARCHIVE_PATH,
            f"The archive's member {_shown(info.orig_filename)} has a path that leads out of the "
            "archive. Pack the file again, without its folders.",
        )
    # What macOS and Windows leave in folders; "._name" holds the attributes of the file "name".
    return not ("__MACOSX" in folders or name.startswith("._") or name.casefold() in LITTER)


def _leads_out(path: str) -> bool:
    if path.startswith("/") or DRIVE.match(path) or "\0" in path:
        return True
    depth = 0
    for part in path.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return True
    return False


def _matching(infos: Sequence[ZipInfo], member: str) -> list[ZipInfo]:
    """Those whose path is meant, or else whose path or name fits."""
    exact = [info for info in infos if _path(info) == member]
    return exact or [
        info
        for info in infos
        for path in (_path(info),)
        for name in (path.rpartition("/")[2],)
        if name == member or fnmatchcase(path, member) or fnmatchcase(name, member)
    ]


def _listed(infos: Sequence[ZipInfo]) -> str:
    names = ", ".join(_shown(info.orig_filename) for info in infos[:NAMES_SHOWN])
    return names if len(infos) <= NAMES_SHOWN else f"{names}, ..."


def _shown(name: str) -> str:
    """A name that is safe to print: no control characters, none that turn the text around."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    return shown if len(shown) <= NAME_LENGTH else f"...{shown[-NAME_LENGTH:]}"
