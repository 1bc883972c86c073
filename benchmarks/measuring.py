"""How a thing is measured: in a process of its own, several times, in turn with its rival.

Here: child processes with their time and memory, medians, the server, what else a result names.
Not here: what is measured.

This process stays small, since Linux counts the parent's memory at the time of the fork as a
child's own peak (getrusage(2), ru_maxrss): polars and pyarrow are imported by children only.
"""

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg

from pocket_ingest.adapters.embedded_postgres import EmbeddedPostgres

PACKAGES = ("polars", "pyarrow", "pandera", "pgpq", "psycopg")
DATASET = "bench_permits"
TENANT = "bench"


def find_versions() -> dict[str, str]:
    """Of everything whose speed is in the figures."""
    found = {"python": platform.python_version(), "postgres": version("embedded-postgres")}
    return found | {package: version(package) for package in PACKAGES}


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a benchmark found; every figure is the median of its repetitions.

    Attributes:
        ratios: what to what, by name; below 1 is faster than the rival.
        seconds: wall clock.
        peak_mb: largest resident memory of a process, in 10^6 bytes.
        sizes: of files, in 10^6 bytes.
        rows: counts.
    """

    name: str
    ratios: dict[str, float]
    seconds: dict[str, float]
    peak_mb: dict[str, float]
    sizes_mb: dict[str, float]
    rows: dict[str, int]
    repetitions: int
    versions: dict[str, str] = field(default_factory=find_versions)
    cores: int = field(default_factory=lambda: os.cpu_count() or 0)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run of a child process; ``said`` is the JSON that it printed."""

    seconds: float
    peak_mb: float
    said: dict[str, Any]


def run_child(
    command: Sequence[str],
    *,
    folder: Path,
    environment: dict[str, str] | None = None,
    good_exits: Sequence[int] = (0,),
) -> Measured:
    """Run a program to its end.

    Args:
        command: the program with its arguments; it prints one JSON value.
        folder: where it runs; with no ``.env``.
        environment: variables to add to those that are not this product's.
        good_exits: exit codes that mean success.

    Raises:
        RuntimeError: it failed; with the end of what it said.
    """
    own = {n: v for n, v in os.environ.items() if not n.startswith("POCKET_")}
    own.pop("DATABASE_URL", None)
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=own | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        for stream in (output, errors):
            stream.seek(0)
        if process.returncode not in good_exits:
            end = errors.read()[-2000:].decode(errors="replace")
            raise RuntimeError(f"{command[:4]} ended with {process.returncode}: {end}")
        said = json.loads(output.read() or b"null")
    # Kilobytes on Linux, bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    return Measured(seconds=seconds, peak_mb=usage.ru_maxrss * unit / 1e6, said=said)


def run_work(work: str, *arguments: object, folder: Path) -> Measured:
    """Run one function of work.py in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.work", work, *map(str, arguments)]
    project = str(Path(__file__).resolve().parents[1])
    return run_child(command, folder=folder, environment={"PYTHONPATH": project})


def in_turn(
    repetitions: int, rivals: dict[str, Callable[[], Measured]]
) -> dict[str, list[Measured]]:
    """Each rival once, then each again: what slows the machine for a while slows all of them."""
    found: dict[str, list[Measured]] = {name: [] for name in rivals}
    for _ in range(repetitions):
        for name, measure in rivals.items():
            found[name].append(measure())
    return found


def median(values: Iterator[float] | Sequence[float]) -> float:
    """The median, with four significant digits."""
    return float(f"{statistics.median(values):.4g}")


def ratio(
    ours: Sequence[float] | Iterator[float], theirs: Sequence[float] | Iterator[float]
) -> float:
    """The median of the ratios of one repetition each."""
    return median([a / b for a, b in zip(ours, theirs, strict=True)])


def size_mb(path: Path) -> float:
    """The size of a file in 10^6 bytes."""
    return round(path.stat().st_size / 1e6, 1)


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder that is gone afterwards; as root, the server's own user can pass through it."""
    folder = Path(tempfile.mkdtemp(prefix="pocket-bench-")).resolve()
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def private_server(folder: Path) -> Iterator[str]:
    """A server of the benchmark's own; yields the URL of its empty database."""
    with EmbeddedPostgres(folder=folder / "postgres", system_folder=folder / "system") as server:
        yield server.url


def copy_into(url: str, table: str, columns: Sequence[str], file: Path) -> float:
    """Seconds of a bare COPY of a CSV file with a header, its commit included."""
    statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT csv, HEADER true)"
    with psycopg.connect(url) as connection, file.open("rb") as source:
        started = time.perf_counter()
        with connection.cursor().copy(statement.encode()) as copy:
            while block := source.read(2**20):
                copy.write(block)
        connection.commit()
        return time.perf_counter() - started
