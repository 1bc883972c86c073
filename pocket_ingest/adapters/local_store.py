"""A folder as an object store.

Here: core.ports.Store on a local or mounted file system: versions from what the file system knows,
immutable copies, publication by rename.
Not here: which objects are looked for, and when.
"""

import errno
import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

from pocket_ingest.core.errors import Code, PermanentError, TransientError
from pocket_ingest.core.ports import PinnedObject, StoredObject

logger = logging.getLogger(__name__)

BLOCK = 2**20
ASIDE = ".aside-"
"""How files that are not whole yet are called; no listing shows them."""
UNCERTAIN = 10
"""Times the quiet time, where nobody can tell whether a file is still open for writing."""


class LocalStore:
    """core.ports.Store on a folder.

    The version of a file is its inode, size and times of change; the inode's change time moves with
    every write and cannot be set back, so ``cp -p`` and ``touch -d`` hide nothing.
    """

    def __init__(self, root: Path, *, quiet_seconds: float = 0.0) -> None:
        """Use a folder.

        Args:
            root: the folder; created when something is first written.
            quiet_seconds: a file changed within this time may still be being written.
        """
        self._root = root
        self._quiet_seconds = quiet_seconds

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the files below a prefix in key order; links are not followed."""
        base = self._path(prefix)
        if not base.is_dir():
            return
        yield from self._walk(base)

    def stat(self, key: str) -> StoredObject:
        """Describe a file."""
        with _translated(key):
            return self._describe(self._path(key))

    def checksum(self, found: StoredObject) -> str:
        """The sha256 of exactly the version found."""
        with _translated(found.key), self._path(found.key).open("rb") as source:
            _refuse_changed(found.key, found.version, source)
            digest = hashlib.file_digest(source, "sha256").hexdigest()
            _refuse_changed(found.key, found.version, source)
            return digest

    def pin(self, found: StoredObject, *, under: str) -> PinnedObject:
        """Copy exactly the version found to ``<under>/<sha256>``, where it is never changed."""
        with _translated(found.key), self._path(found.key).open("rb") as source:
            return self._copy(source, found.key, found.version, under)

    def take(self, source: Path, *, under: str) -> PinnedObject:
        """Copy a file from anywhere to ``<under>/<sha256>``."""
        with _translated(source.name), source.open("rb") as content:
            return self._copy(content, source.name, _version_of(content), under)

    def open(self, key: str) -> BinaryIO:
        """Open a file for reading."""
        with _translated(key):
            return self._path(key).open("rb")

    def publish(self, source: Path, *, key: str) -> int:
        """Put a finished local file under a key, whole or not at all."""
        path = self._path(key)
        with (
            _translated(key),
            source.open("rb") as content,
            _aside(path.parent) as (aside, target),
        ):
            shutil.copyfileobj(content, target, BLOCK)
            size = target.tell()
            _put_in_place(aside, target, path)
        return size

    def address(self, key: str) -> str:
        """The file's path."""
        return str(self._path(key))

    def _path(self, key: str) -> Path:
        path = self._root / key
        if ".." in Path(key).parts or Path(key).is_absolute():
            raise PermanentError(Code.UPLOAD_MISSING, f"{key!r} is not a key of this store.")
        return path

    def _walk(self, folder: Path) -> Iterator[StoredObject]:
        """Regular files only: a link could name any file that this process may read."""
        entries: list[tuple[str, os.DirEntry[str]]] = []
        with _one_of_many(folder):
            entries += [
                # Folders sort with their slash, so that the whole comes in key order.
                (f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name, entry)
                for entry in os.scandir(folder)
                if not entry.name.startswith(ASIDE)
            ]
        for name, entry in sorted(entries, key=itemgetter(0)):
            if name.endswith("/"):
                yield from self._walk(Path(entry.path))
                continue
            found = None
            with _one_of_many(Path(entry.path)):
                if entry.is_file(follow_symlinks=False):
                    found = self._describe(Path(entry.path))
            if found is not None:
                yield found

    def _describe(self, path: Path) -> StoredObject:
        status = path.stat()
        return StoredObject(
            key=path.relative_to(self._root).as_posix(),
            version=_version_of(status),
            size_bytes=status.st_size,
            settled=self._is_settled(path, status),
        )

    def _is_settled(self, path: Path, status: os.stat_result) -> bool:
        if self._quiet_seconds == 0:
            return True
        quiet = abs(time.time() - max(status.st_mtime, status.st_ctime))
        if quiet < self._quiet_seconds:
            return False
        is_open = _is_open_for_writing(path)
        return quiet >= UNCERTAIN * self._quiet_seconds if is_open is None else not is_open

    def _copy(self, source: BinaryIO, key: str, version: str, under: str) -> PinnedObject:
        """Copy an open file that must be, and stay, in a version."""
        folder = self._path(under)
        with _aside(folder) as (aside, target):
            _refuse_changed(key, version, source)
            digest = hashlib.sha256()
            while block := source.read(BLOCK):
                digest.update(block)
                target.write(block)
            _refuse_changed(key, version, source)
            sha256, size = digest.hexdigest(), target.tell()
            # Over one that may be there: the same name is the same content, unless it was damaged.
            _put_in_place(aside, target, folder / sha256)
        return PinnedObject(
            key=f"{under}/{sha256}", source_version=version, size_bytes=size, sha256=sha256
        )


@contextmanager
def _aside(folder: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A temporary file in the folder where the finished one will be; gone unless renamed."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=ASIDE, dir=folder)
    try:
        with open(descriptor, "wb") as target:  # noqa: PTH123 - a descriptor, not a path
            yield Path(name), target
    finally:
        Path(name).unlink(missing_ok=True)


def _version_of(file: BinaryIO | os.stat_result) -> str:
    status = file if isinstance(file, os.stat_result) else os.fstat(file.fileno())
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}"


def _refuse_changed(key: str, version: str, source: BinaryIO) -> None:
    if _version_of(source) != version:
        raise PermanentError(
            Code.UPLOAD_CHANGED,
            f"{key!r} was changed while it was being taken in. It is taken in as it is now, "
            "next time.",
        )


def _put_in_place(aside: Path, target: BinaryIO, path: Path) -> None:
    """Rename a written file to its name once its bytes are on the disk."""
    target.flush()
    os.fsync(target.fileno())
    # mkstemp's 0600 would hide artifacts from the people who share the folder.
    umask = os.umask(0)
    os.umask(umask)
    aside.chmod(0o666 & ~umask)
    aside.rename(path)
    # The name is on the disk before the ledger says that the object is there.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _is_open_for_writing(path: Path) -> bool | None:
    """Whether some process has the file open for writing; None where the system does not tell.

    Linux grants a read lease only on a file that nobody has open for writing, to the file's owner
    and to root. Elsewhere, for other people's files, and on file systems without leases, a longer
    quiet time has to do.
    """
    if not hasattr(fcntl, "F_SETLEASE"):
        return None
    try:
        with path.open("rb") as source:
            fcntl.fcntl(source, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(source, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    return False


@contextmanager
def _one_of_many(path: Path) -> Iterator[None]:
    """One file or folder that is gone or closed must not hide the others."""
    try:
        yield
    except FileNotFoundError:  # it went away between the listing and the look
        return
    except PermissionError:
        logger.warning("%a may not be read; it is not seen.", str(path))
    except OSError as error:
        raise TransientError(
            Code.STORE_UNAVAILABLE,
            f"The store failed while it was listed ({errno.errorcode.get(error.errno or 0)}).",
        ) from error


@contextmanager
def _translated(key: str) -> Iterator[None]:
    """Give file system errors their meaning."""
    try:
        yield
    except FileNotFoundError as error:
        raise PermanentError(
            Code.UPLOAD_MISSING, f"{key!r} is not there any more. Send the file again."
        ) from error
    except PermissionError as error:
        raise PermanentError(
            Code.UPLOAD_MISSING, f"{key!r} may not be read or written. Check its permissions."
        ) from error
    except OSError as error:
        raise TransientError(
            Code.STORE_UNAVAILABLE,
            f"The store failed at {key!r} ({errno.errorcode.get(error.errno or 0, 'unknown')}).",
        ) from error
