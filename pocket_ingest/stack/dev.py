"""`pocket-ingest dev`: the whole product in one terminal.

Here: the order of starting and stopping, the watch over the services, what is printed meanwhile.
Not here: processes (processes.py), folders and variables (home.py), tables and lines (progress.py).
"""

import json
import shutil
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from rich.console import Console
from rich.markup import escape

from pocket_ingest.adapters.embedded_postgres import EmbeddedPostgres
from pocket_ingest.adapters.postgres.schema import migrate
from pocket_ingest.core.errors import Code, IngestError, TransientError
from pocket_ingest.core.inbox import survey_inbox
from pocket_ingest.core.jobs import FINISHED, ImportJob, JobState
from pocket_ingest.core.process import Engine
from pocket_ingest.datasets.samples import Expected, expected, sample_files
from pocket_ingest.settings import Settings
from pocket_ingest.stack.home import (
    inherited,
    only_stack,
    postgres_folder,
    prepare_home,
    stack_environment,
    upgrade_dagster,
    workspace_file,
)
from pocket_ingest.stack.processes import MAX_RESTARTS, Service, stop_services
from pocket_ingest.stack.progress import describe_job, print_lines, summary_table
from pocket_ingest.wiring import build_engine

POLL_SECONDS = 1.0
OVERLAP = 100
WEBSERVER_START_SECONDS = 180.0
# Longer than a lease and two rounds of the sensors: what has not moved by then will not.
STUCK_SECONDS = 300.0
PORTS_TRIED = 50
MAX_TABLE_ROWS = 200

RUNS_ON_THEIR_WAY = (
    "{runsOrError(filter:{statuses:[QUEUED,NOT_STARTED,STARTING,STARTED,CANCELING]},limit:1)"
    "{... on Runs {results {runId}}}}"
)
LOAD_ERRORS = (
    "{workspaceOrError {... on Workspace {locationEntries {locationOrLoadError "
    "{... on PythonError {message}}}}}}"
)


def run_stack(settings: Settings, *, samples: bool, once: bool, console: Console) -> int:
    """Start everything, show what happens, stop everything.

    Args:
        settings: the settings.
        samples: put the shipped sample files into the inbox.
        once: end when every file is finished, instead of at Ctrl-C.
        console: where to print.

    Raises:
        PermanentError: already_running, or a dataset's invalid_contract.

    Returns:
        The exit code: 0, or 1 if a service could not be kept running or, with ``once``, if a file
        did not end as expected.
    """
    with _stop_signals() as stop, only_stack(settings):
        prepare_home(settings)
        with _database(settings, console) as server:
            console.print("Bringing the ledger's tables up to date")
            migrate(server.url)
            engine = build_engine(settings, url=server.url)
            for dataset in engine.datasets.values():
                _ = dataset.contract  # a broken one is said here, not in the first run
            if samples:
                _bring_samples(settings, console)
            stack = _Stack(settings=settings, server=server, engine=engine, console=console)
            return stack.serve(stop, once=once)


@dataclass(kw_only=True)
class _Server:
    """The database: somebody else's, or ours to keep alive."""

    url: str
    embedded: EmbeddedPostgres | None = None

    def keep_alive(self, console: Console) -> None:
        if self.embedded is not None and not self.embedded.is_alive():
            console.print("[yellow]Postgres ended; it is started again.[/]")
            self.embedded.stop()
            self.url = self.embedded.start().url


@dataclass(kw_only=True)
class _Stack:
    settings: Settings
    server: _Server
    engine: Engine
    console: Console
    told: set[str] = field(default_factory=set)
    seen: set[int] = field(default_factory=set)
    first_event: int = 0

    def serve(self, stop: threading.Event, *, once: bool) -> int:
        """Run webserver and daemon until told to stop, or until the inbox is done with."""
        environment = inherited(stack_environment(self.settings, self.server.url))
        self._create_dagster_tables()
        port = _free_port(self.settings.webserver_host, self.settings.webserver_port)
        services = self._services(environment, port)
        address = f"http://{self.settings.webserver_host}:{port}"
        self.first_event = last_event = self.engine.ledger.last_event()
        self._tell_what_is_known()
        try:
            for service in services:
                service.start()
            if not self._wait_for_dagit(address, services, stop):
                return 1
            self.console.print(f"\n[bold]Dagit is at {address}[/]")
            self.console.print(
                f"Inbox: {escape(str(self.settings.files_root / 'inbox'))}  "
                "(Ctrl-C stops everything)\n"
            )
            return self._watch(services, stop, address, last_event, once=once)
        finally:
            self.console.print("[dim]Stopping[/]")
            stop_services(services)

    def _create_dagster_tables(self) -> None:
        """Before webserver and daemon both try to, on the first start."""
        with psycopg.connect(self.server.url) as connection:
            row = connection.execute("SELECT to_regclass('dagster.runs') IS NULL").fetchone()
        if row is not None and row[0]:
            self.console.print("Creating Dagster's tables")
            upgrade_dagster(self.settings, self.server.url)

    def _services(self, environment: dict[str, str], port: int) -> list[Service]:
        workspace = str(workspace_file(self.settings))
        commands = {
            "webserver": [
                *("dagster_webserver", "-h", self.settings.webserver_host, "-p", str(port)),
                *("-w", workspace),
            ],
            "daemon": ["dagster._daemon", "run", "-w", workspace],
        }
        return [
            Service(
                name=name,
                command=[sys.executable, "-m", *command],
                environment=environment,
                log=self.settings.home / "logs" / f"{name}.log",
            )
            for name, command in commands.items()
        ]

    def _tell_what_is_known(self) -> None:
        survey = survey_inbox(self.engine)
        if survey.known:
            self.console.print(
                f"{survey.known} files in the inbox are known by name and content: "
                "nothing to do for them."
            )

    def _wait_for_dagit(self, address: str, services: list[Service], stop: threading.Event) -> bool:
        self.console.print("Starting Dagster's webserver and daemon")
        deadline = time.monotonic() + WEBSERVER_START_SECONDS
        while time.monotonic() < deadline and not stop.wait(0.3):
            if not self._keep_running(services):
                return False
            if _is_up(address):
                return self._is_loaded(address)
        if not stop.is_set():
            self.console.print(f"[red]Dagit did not come up.[/]\n{escape(services[0].tail())}")
        return False

    def _is_loaded(self, address: str) -> bool:
        """Whether Dagster could import the definitions; says why where it could not."""
        answer = _ask_dagit(address, LOAD_ERRORS)
        problems = [
            entry["locationOrLoadError"]["message"]
            for entry in answer["workspaceOrError"].get("locationEntries", [])
            if entry["locationOrLoadError"].get("message")
        ]
        for problem in problems:
            self.console.print(f"[red]Dagster cannot load the definitions:[/] {escape(problem)}")
        return not problems

    def _watch(
        self,
        services: list[Service],
        stop: threading.Event,
        address: str,
        last_event: int,
        *,
        once: bool,
    ) -> int:
        moved = time.monotonic()
        while not stop.wait(POLL_SECONDS):
            if not self._keep_running(services):
                return 1
            try:
                self.server.keep_alive(self.console)
                before = last_event
                last_event = self._tell_events(last_event)
                moved = time.monotonic() if last_event != before else moved
                if once and self._is_done() and _runs_are_over(address):
                    return self._sum_up()
            except TransientError as error:
                self.console.print(f"[yellow]{escape(str(error))}[/]")
            if once and time.monotonic() - moved > STUCK_SECONDS:
                self.console.print(f"[red]Nothing has moved for {STUCK_SECONDS:.0f} s.[/]")
                self._sum_up()
                return 1
        return self._sum_up() if once else 0

    def _keep_running(self, services: list[Service]) -> bool:
        for service in services:
            if service.has_died():
                self.console.print(f"[yellow]The {service.name} ended; it is started again.[/]")
                if not service.restart():
                    self.console.print(
                        f"[red]The {service.name} ended {MAX_RESTARTS + 1} times. "
                        f"The end of its log, {escape(str(service.log))}:[/]\n"
                        f"{escape(service.tail())}"
                    )
                    return False
        return True

    def _tell_events(self, after: int) -> int:
        # Transactions commit in another order than they took ids, so some are looked at again.
        for event in self.engine.ledger.events(after=max(after - OVERLAP, 0), limit=500):
            if event.id in self.seen or event.id <= self.first_event:
                continue
            self.seen = {number for number in self.seen if number > after - OVERLAP} | {event.id}
            after = max(after, event.id)
            if event.event == "registered":
                job = self.engine.ledger.job(event.job_id)
                name = f"{job.upload.dataset}/{job.upload.tenant}/{job.upload.file_name}"
                print_lines(self.console, [f"[dim]+ {escape(name)}  taken in[/]"])
            elif event.to_state in FINISHED and event.event == "transition":
                print_lines(self.console, [describe_job(self.engine.ledger.job(event.job_id))])
        return after

    def _is_done(self) -> bool:
        survey = survey_inbox(self.engine)
        for key, sentence in survey.refused:
            if key not in self.told:
                self.told.add(key)
                print_lines(self.console, [f"[red]✗[/] {escape(key)}  {escape(sentence)}"])
        if survey.new or survey.waiting:
            return False
        going = [s for s in JobState if s not in FINISHED]
        return not self.engine.ledger.jobs(states=going, limit=1)

    def _sum_up(self) -> int:
        """Print the closing table; 0 if every file ended as expected."""
        jobs = self.engine.ledger.jobs(limit=MAX_TABLE_ROWS)[::-1]
        foretold = {f"inbox/{path}": entry for path, entry in expected().items()}
        verdicts = {str(job.id): _is_as_expected(job, foretold) for job in jobs}
        self.console.print()
        self.console.print(summary_table(jobs, verdicts))
        unexpected = sum(not good for good in verdicts.values()) + len(self.told)
        accounted = all(
            job.records_read == job.outcomes.total
            for job in jobs
            if job.state is JobState.SUCCEEDED
        )
        if not unexpected and accounted:
            self.console.print(f"{len(jobs)} files ended as expected; every record has an outcome.")
            return 0
        self.console.print(f"[red]{unexpected} files did not end as expected.[/]")
        return 1


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C, SIGTERM and a closed terminal set, instead of breaking off."""
    stop = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _database(settings: Settings, console: Console) -> Iterator[_Server]:
    if settings.database_url is not None:
        yield _Server(url=settings.database_url.get_secret_value())
        return
    console.print("Starting the embedded Postgres")
    postgres = EmbeddedPostgres(folder=postgres_folder(settings))
    try:
        yield _Server(url=postgres.start().url, embedded=postgres)
    finally:
        postgres.stop()


def _bring_samples(settings: Settings, console: Console) -> None:
    """Put the sample files into the inbox; one that is there already is left as it is."""
    brought = 0
    for path, source in sample_files().items():
        target = settings.files_root / "inbox" / path
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            aside = target.with_name(f".{target.name}.part")
            shutil.copyfile(source, aside)
            aside.rename(target)
            brought += 1
    console.print(f"{brought} sample files put into the inbox")


def _is_as_expected(job: ImportJob, foretold: dict[str, Expected]) -> bool:
    entry = foretold.get(job.upload.source_key)
    if entry is None:
        return job.state is JobState.SUCCEEDED
    if job.state != entry.state or job.error_code != entry.error_code:
        return False
    if job.state is not JobState.SUCCEEDED:
        return True
    counts = {"rejected": entry.rejected, **(entry.outcomes or {})}
    return job.records_read == entry.records_read and all(
        job.outcomes.as_dict()[name] == count for name, count in counts.items()
    )


def _free_port(host: str, wanted: int) -> int:
    """The wanted port, or the next one that is free."""
    for port in range(wanted, min(wanted + PORTS_TRIED, 65536)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise IngestError(
        Code.INVALID_SETTING,
        f"No port from {wanted} on is free on {host}. Set POCKET_WEBSERVER_PORT.",
    )


def _is_up(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/server_info", timeout=2) as answer:  # noqa: S310
            return bool(answer.status == 200)  # noqa: PLR2004
    except (urllib.error.URLError, OSError):
        return False


def _runs_are_over(address: str) -> bool:
    """Whether Dagster has no run on its way: the ledger is ahead of the event log by a little."""
    try:
        return not _ask_dagit(address, RUNS_ON_THEIR_WAY)["runsOrError"]["results"]
    except (urllib.error.URLError, OSError, KeyError, TypeError, ValueError):
        return False


def _ask_dagit(address: str, query: str) -> dict[str, Any]:
    request = urllib.request.Request(  # noqa: S310 - our own address
        f"{address}/graphql",
        data=json.dumps({"query": query}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return dict(json.load(answer)["data"])
