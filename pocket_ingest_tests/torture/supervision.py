"""Starts the victims, feeds them files, kills them and what they stand on, and lets them finish.

Here: the moments and kinds of kills, restarts, and waiting until nothing is left to do.
Not here: what the files are (workload.py) and whether the result is right (comparison.py).
"""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from pocket_ingest.adapters.child_processes import follow_parent
from pocket_ingest.adapters.embedded_postgres import EmbeddedPostgres
from pocket_ingest_tests.torture.workload import Workload

PROJECT = Path(__file__).resolve().parents[2]
WORKERS = 3
LEASE_SECONDS = 3.0
BACKLOG = 8
"""Files on their way; fewer, and workers idle; many more, and the end takes long."""
CHUNK_RECORDS = 40
WAIT_FOR_STAGE_SECONDS = 10.0
ASK_AGAIN_SECONDS = 15.0
"""A worker that has not ended by then is interrupted again, as a person would do."""
DEAF_SECONDS = 120.0
"""A worker that was interrupted has put its job back and ended by then, on any machine."""
NO_PROGRESS_SECONDS = 180.0
"""Without a single entry in the audit log for so long, what is unfinished counts as stuck."""

# What is killed, and how often in proportion. A stage is where the victim's job stands then.
KINDS = {
    "worker in upload": 4,
    "worker in validated": 4,
    "worker in loaded": 6,
    "worker in exports": 4,
    "any worker": 3,
    "intake": 2,
    "reconcile": 2,
    "worker frozen beyond its lease": 2,
    "worker interrupted": 1,
    "backend terminated": 2,
    "backend killed": 1,
    "server killed": 1,
}
STAGE_OF = (
    "CASE WHEN verified_at IS NULL THEN 'upload' WHEN validated_at IS NULL THEN 'validated' "
    "WHEN loaded_at IS NULL THEN 'loaded' ELSE 'exports' END"
)
RUNNING = "state IN ('validating', 'loading', 'exporting')"


@dataclass(kw_only=True)
class Figures:
    """What was done.

    Attributes:
        kinds: kills by kind.
        stages: kills of workers by what they had in hand: a stage of a job, or "no job".
        interrupts: how often workers were interrupted; some must be told twice.
        died: victims that ended without being told to, with the end of their log.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    interrupts: int = 0
    died: list[str] = field(default_factory=list)
    stuck: int = 0

    @property
    def kills(self) -> int:
        """How many."""
        return self.kinds.total()


@dataclass(kw_only=True)
class _Victim:
    role: str
    process: subprocess.Popen[bytes]
    log: Path
    resume_at: float | None = None
    end_by: float | None = None
    ask_again_at: float = 0.0


class Supervisor:
    """One torture on one server and one home."""

    def __init__(
        self,
        *,
        server: EmbeddedPostgres,
        url: str,
        home: Path,
        workload: Workload,
        chance: random.Random,
    ) -> None:
        self.figures = Figures()
        self._server = server
        self._url = url
        self._home = home
        self._workload = workload
        self._random = chance
        self._victims: list[_Victim] = []
        self._started = 0
        self._connection: psycopg.Connection[dict[str, Any]] | None = None

    def torture(self, kills: int) -> None:
        """Kill so many times, then let everything finish."""
        try:
            for kind in self._kinds(kills):
                self._tend()
                if self._kill(kind):
                    self.figures.kinds[kind] += 1
                self._rest(self._random.expovariate(5))
            self._finish()
        finally:
            for victim in self._victims:
                victim.process.kill()
                victim.process.wait()
            if self._connection is not None:
                self._connection.close()

    def ask(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """Rows of a query, whatever happened to the server meanwhile."""
        for _ in range(100):
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = psycopg.connect(
                        self._url, autocommit=True, row_factory=dict_row, application_name="torture"
                    )
                return self._connection.execute(query, values).fetchall()  # type: ignore[arg-type]
            except psycopg.OperationalError:
                if self._connection is not None:
                    self._connection.close()
                time.sleep(0.1)
        raise TimeoutError("the server did not come back")

    # -- the victims ---------------------------------------------------------------------------

    def _tend(self) -> None:
        """Replace the dead, wake the frozen, send files."""
        now = time.monotonic()
        for victim in list(self._victims):
            if victim.resume_at is not None and now > victim.resume_at:
                victim.process.send_signal(signal.SIGCONT)
                victim.resume_at = None
            if victim.process.poll() is not None:
                self._bury(victim)
                if victim.end_by is None:
                    self.figures.died.append(f"{victim.role}: {_tail(victim.log)}")
            elif victim.end_by is not None and now < victim.end_by:
                if now > victim.ask_again_at:
                    victim.ask_again_at = now + ASK_AGAIN_SECONDS
                    victim.process.send_signal(signal.SIGINT)
                    self.figures.interrupts += 1
            elif victim.end_by is not None:
                victim.process.kill()
                self._bury(victim)
                self.figures.died.append(f"{victim.role} was deaf: {_tail(victim.log)}")
        wanted = Counter({"work": WORKERS, "take_in": 1, "reconcile": 1})
        there = Counter(v.role for v in self._victims if v.end_by is None)
        for role in (wanted - there).elements():
            self._victims.append(self._start(role))

    def _feed(self) -> None:
        """Send files while few are on their way."""
        known = {
            (row["source_key"], row["sha256"])
            for row in self.ask("SELECT source_key, sha256 FROM pocket.uploads")
        }
        waiting = len(self._unknown(known)) + self._unfinished()
        while waiting < BACKLOG:
            file = self._workload.next_file(known)
            path = self._home / "files" / file.key
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_name(f".{path.name}.part")
            aside.write_bytes(file.content)
            aside.rename(path)
            waiting += 1

    def _unknown(self, known: set[tuple[str, str]]) -> list[str]:
        latest = {file.key: file for file in self._workload.sent}
        return [file.key for file in latest.values() if (file.key, file.sha256) not in known]

    def _unfinished(self) -> int:
        (row,) = self.ask(
            "SELECT count(*) AS jobs FROM pocket.import_jobs WHERE finished_at IS NULL "
            "OR error_code IN ('database_unavailable', 'store_unavailable', 'tenant_busy')"
        )
        return int(row["jobs"])

    def _start(self, role: str) -> _Victim:
        self._started += 1
        log = self._home / "logs" / f"{self._started:05}-{role}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = {
            **{n: v for n, v in os.environ.items() if not n.startswith("POCKET_")},
            "PYTHONPATH": str(PROJECT),
            "DATABASE_URL": self._url,
            "POCKET_HOME": str(self._home),
            "POCKET_DATASETS": "pocket_ingest_tests.torture.datasets",
            "POCKET_SHIPPED_DATASETS": "false",
            "POCKET_CHUNK_RECORDS": str(CHUNK_RECORDS),
            "POCKET_INBOX_QUIET_SECONDS": "0",
            "POCKET_LEASE_SECONDS": str(LEASE_SECONDS),
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pocket_ingest_tests.torture.victims", role],
                cwd=self._home,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Runs before exec; it calls prctl and getppid only.
                preexec_fn=follow_parent(signal.SIGKILL),  # noqa: PLW1509
            )
        return _Victim(role=role, process=process, log=log)

    def _bury(self, victim: _Victim) -> None:
        victim.process.wait()
        self._victims.remove(victim)

    # -- the kills -----------------------------------------------------------------------------

    def _kinds(self, kills: int) -> Iterator[str]:
        """Kinds until there were enough kills: each once first, then as they come."""
        first = list(KINDS)
        self._random.shuffle(first)
        while self.figures.kills < kills:
            yield first.pop() if first else self._random.choices(list(KINDS), [*KINDS.values()])[0]

    def _kill(self, kind: str) -> bool:
        """Kill; False if there was nothing of the kind to be found in time."""
        match kind:
            case "server killed":
                return self._kill_server()
            case "backend terminated" | "backend killed":
                return self._kill_backend(terminate=kind == "backend terminated")
            case "intake" | "reconcile":
                role = "take_in" if kind == "intake" else kind
                victim = next(v for v in self._victims if v.role == role)
                self._doze(0.5)
                victim.process.kill()
                self._bury(victim)
                return True
            case "any worker":
                return self._kill_worker(self._random.choice(self._workers()))
        stage = kind.removeprefix("worker in ")
        found = self._wait_for(None if stage == kind else stage)
        if found is None:
            return False
        self._doze(0.03)
        if kind == "worker frozen beyond its lease":
            found.process.send_signal(signal.SIGSTOP)
            late = self._random.uniform(0.5, 2.0)
            found.resume_at = time.monotonic() + LEASE_SECONDS + late
            return True
        if kind == "worker interrupted":
            found.end_by = time.monotonic() + DEAF_SECONDS
            self._tend()
            return True
        return self._kill_worker(found)

    def _workers(self) -> list[_Victim]:
        return [v for v in self._victims if v.role == "work" and v.end_by is None]

    def _wait_for(self, stage: str | None) -> _Victim | None:
        """A worker that has a job in this stage in hand."""
        deadline = time.monotonic() + WAIT_FOR_STAGE_SECONDS
        while time.monotonic() < deadline:
            rows = self.ask(
                f"SELECT claimed_by, {STAGE_OF} AS stage FROM pocket.import_jobs WHERE {RUNNING}"
            )
            names = {row["claimed_by"] for row in rows if stage in {None, row["stage"]}}
            at_work = [v for v in self._workers() if self._name(v) in names and v.resume_at is None]
            if at_work:
                return self._random.choice(at_work)
            self._tend()
            self._feed()
            time.sleep(0.002)
        return None

    def _name(self, victim: _Victim) -> str:
        """As the ledger has it."""
        return f"{socket.gethostname()}:{victim.process.pid}"

    def _kill_worker(self, victim: _Victim) -> bool:
        victim.process.kill()
        self._bury(victim)
        stages = self.ask(
            f"SELECT {STAGE_OF} AS stage FROM pocket.import_jobs "
            f"WHERE claimed_by = %s AND {RUNNING}",
            self._name(victim),
        )
        self.figures.stages[stages[0]["stage"] if stages else "no job"] += 1
        return True

    def _kill_backend(self, *, terminate: bool) -> bool:
        """One of the victims' backends, a busy one if there is one."""
        deadline = time.monotonic() + WAIT_FOR_STAGE_SECONDS
        while time.monotonic() < deadline:
            rows = self.ask(
                "SELECT pid, state = 'idle' AS idle FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = 'pocket_ingest'"
            )
            if rows:
                break
            self._tend()
            self._rest(0.05)
        else:
            return False
        busy = [row["pid"] for row in rows if not row["idle"]] or [row["pid"] for row in rows]
        pid = self._random.choice(busy)
        if terminate:
            self.ask("SELECT pg_terminate_backend(%s)", pid)
            return True
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def _kill_server(self) -> bool:
        assert self._server.pid is not None
        self._doze(0.5)
        os.kill(self._server.pid, signal.SIGKILL)
        self._server.wait()
        self._server.start()
        return True

    # -- time ----------------------------------------------------------------------------------

    def _doze(self, at_most: float) -> None:
        time.sleep(self._random.uniform(0, at_most))

    def _rest(self, seconds: float) -> None:
        """Pass the time with what has to be done."""
        until = time.monotonic() + seconds
        while True:
            self._tend()
            self._feed()
            if time.monotonic() > until:
                return
            time.sleep(0.02)

    def _finish(self) -> None:
        """No more kills and files; wait until everything that came has ended."""
        last, since = -1, time.monotonic()
        while True:
            self._tend()
            known = {
                (row["source_key"], row["sha256"])
                for row in self.ask("SELECT source_key, sha256 FROM pocket.uploads")
            }
            left = len(self._unknown(known)) + self._unfinished()
            if not left and not any(v.resume_at or v.end_by for v in self._victims):
                return
            (row,) = self.ask("SELECT count(*) AS entries FROM pocket.audit_log")
            if row["entries"] != last:
                last, since = row["entries"], time.monotonic()
            if time.monotonic() - since > NO_PROGRESS_SECONDS:
                self.figures.stuck = left
                return
            time.sleep(0.1)


def _tail(log: Path) -> str:
    return log.read_text("utf-8", "replace")[-1500:].strip()
