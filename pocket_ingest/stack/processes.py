"""Child processes of the stack: started apart from the terminal, watched, stopped with all theirs.

Here: one `Service` and what keeps it running.
Not here: which services there are (dev.py).
"""

import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from pocket_ingest.adapters.child_processes import follow_parent

MAX_RESTARTS = 5
"""Restarts of one service; what dies that often needs a person."""
STOP_SECONDS = 20.0
LOG_BYTES = 10 * 2**20
TAIL_BYTES = 4_000


@dataclass(kw_only=True)
class Service:
    """One long-lived child process with its log file."""

    name: str
    command: Sequence[str]
    environment: dict[str, str]
    log: Path
    restarts: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it in a session of its own, so that Ctrl-C reaches only the one who stops it."""
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - our own commands
                self.command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=follow_parent(signal.SIGTERM),  # noqa: PLW1509 - see there
            )

    def has_died(self) -> bool:
        """Whether it ended by itself."""
        return self.process is not None and self.process.poll() is not None

    def restart(self) -> bool:
        """Start it again; False where it has died too often."""
        self.restarts += 1
        if self.restarts > MAX_RESTARTS:
            return False
        self.start()
        return True

    def tail(self) -> str:
        """The end of its log."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
            return log.read().decode(errors="replace")


def stop_services(services: Sequence[Service]) -> None:
    """Stop services and everything that they have started: ask, wait, then kill.

    Dagster's code servers and runs are grandchildren; a run that is asked puts its job back to the
    queue.
    """
    own = [service.process for service in services if service.process is not None]
    family = [member for process in own for member in _family(process.pid)]
    for member in family:
        _ask(member, signal.SIGTERM)
    _, alive = psutil.wait_procs(family, timeout=STOP_SECONDS)
    for member in alive:
        _ask(member, signal.SIGKILL)
    for process in own:
        process.wait()


def _family(pid: int) -> list[psutil.Process]:
    """A process and everything below it."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _ask(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
