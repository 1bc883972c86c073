"""The product from outside: `pocket-ingest dev` as a process, its Dagit, its database."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.rows import dict_row

from pocket_ingest.adapters.embedded_postgres import attach_or_start

PATIENCE = 240.0
TEAM_DATASETS = Path(__file__).parent / "team_datasets"

FAST = {
    "POCKET_INBOX_INTERVAL_SECONDS": "1",
    "POCKET_INBOX_QUIET_SECONDS": "0.5",
    "POCKET_RECONCILE_INTERVAL_SECONDS": "2",
    "POCKET_LEASE_SECONDS": "6",
    "POCKET_WEBSERVER_PORT": "3900",
    "POCKET_DATASETS": str(TEAM_DATASETS),
}


def clean_environment(**variables: str) -> dict[str, str]:
    """This environment without any setting of the product, and these variables."""
    kept = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("POCKET_", "DAGSTER_")) and k != "DATABASE_URL"
    }
    return {**kept, **variables}


class RunningStack:
    """A stack that was started, with what a test asks of it."""

    def __init__(self, folder: Path, url: str, process: subprocess.Popen[str]) -> None:
        self.folder = folder
        self.home = folder / ".pocket"
        self.inbox = self.home / "files" / "inbox"
        self.url = url
        self.process = process
        self.lines: list[str] = []
        self.dagit = ""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            found = re.search(r"Dagit is at (\S+)", line)
            if found:
                self.dagit = found.group(1)
        self.process.stdout.close()

    def said(self) -> str:
        """What it has printed."""
        return "\n".join(self.lines)

    def drop(self, path: str, content: bytes) -> None:
        """Put a file into the inbox."""
        target = self.inbox / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def query(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """Rows of the stack's database."""
        with psycopg.connect(self.url, row_factory=dict_row) as connection:
            return connection.execute(statement, values).fetchall()

    def graphql(self, query: str, **variables: Any) -> dict[str, Any]:
        """What Dagit answers."""
        request = urllib.request.Request(
            f"{self.dagit}/graphql",
            data=json.dumps({"query": query, "variables": variables}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)
        assert "errors" not in found, found["errors"]
        return dict(found["data"])

    def wait_until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for a condition, or fail with what the stack has said."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = condition()
            if found:
                return found
            assert self.process.poll() is None, f"the stack ended:\n{self.said()}"
            time.sleep(0.3)
        raise AssertionError(f"{what} did not come.\n{self.said()}\n{self._logs()}")

    def wait_until_idle(self, *, uploads: int) -> None:
        """Wait until so many uploads are registered and finished, and Dagster has no run left."""
        self.wait_until(
            lambda: (
                self.query(
                    "SELECT count(*) = %s AND bool_and(finished_at IS NOT NULL) AS done "
                    "FROM pocket.import_jobs",
                    uploads,
                )[0]["done"]
                and not self.runs("QUEUED", "NOT_STARTED", "STARTING", "STARTED", "CANCELING")
            ),
            f"the end of {uploads} uploads",
        )

    def runs(self, *statuses: str) -> list[dict[str, Any]]:
        """Dagster's runs, newest first, in these states or in any."""
        found = self.graphql(
            "query ($f: RunsFilter) {runsOrError(filter: $f, limit: 1000) "
            "{... on Runs {results {runId status jobName tags {key value}}}}}",
            f={"statuses": list(statuses)} if statuses else {},
        )
        return list(found["runsOrError"]["results"])

    def partition_status(self, dataset: str, stage: str) -> dict[str, list[str]]:
        """Partition keys of an asset by status, as Dagit's partitions page asks for them."""
        found = self.graphql(
            "query ($k: AssetKeyInput!) {assetNodeOrError(assetKey: $k) {... on AssetNode {"
            "assetPartitionStatuses {... on DefaultPartitionStatuses {materializedPartitions "
            "failedPartitions unmaterializedPartitions}}}}}",
            k={"path": [dataset, stage]},
        )["assetNodeOrError"]["assetPartitionStatuses"]
        return {name.removesuffix("Partitions"): keys for name, keys in found.items()}

    def backfill(self, dataset: str, keys: list[str]) -> None:
        """Launch a backfill of a dataset's four assets, and wait for its end."""
        stages = ("upload", "validated", "loaded", "exports")
        answer = self.graphql(
            "mutation ($p: LaunchBackfillParams!) {launchPartitionBackfill(backfillParams: $p) "
            "{__typename ... on LaunchBackfillSuccess {backfillId} "
            "... on PythonError {message}}}",
            p={
                "partitionNames": keys,
                "assetSelection": [{"path": [dataset, stage]} for stage in stages],
            },
        )["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        self.wait_until(
            lambda: (
                self.graphql(
                    "query ($id: String!) {partitionBackfillOrError(backfillId: $id) "
                    "{... on PartitionBackfill {status}}}",
                    id=answer["backfillId"],
                )["partitionBackfillOrError"]["status"]
                in {"COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED"}
            ),
            "the end of the backfill",
        )

    def descendants(self) -> list[psutil.Process]:
        """Every process that the stack has started."""
        return list(psutil.Process(self.process.pid).children(recursive=True))

    def stop(self) -> int:
        """Ctrl-C, and the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=PATIENCE)

    def close(self) -> None:
        """After its end: wait for its last words."""
        self._listener.join(timeout=10)

    def _logs(self) -> str:
        return "\n".join(
            f"--- {log.name}\n" + log.read_text(errors="replace")[-4000:]
            for log in sorted((self.home / "logs").glob("*.log"))
        )


@contextmanager
def running_stack(
    *arguments: str, folder: Path | None = None, **variables: str
) -> Iterator[RunningStack]:
    """Start `pocket-ingest dev` in a folder; all that it started is stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="pocket-stack-") as temporary:
        place = folder or Path(temporary).resolve()
        place.chmod(0o755)  # as root, so that the database's own user can enter
        with attach_or_start(place / ".pocket" / "postgres") as address:
            process = subprocess.Popen(
                [sys.executable, "-m", "pocket_ingest", "dev", *arguments],
                cwd=place,
                env=clean_environment(**{**FAST, **variables}),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            stack = RunningStack(place, address.url, process)
            try:
                stack.wait_until(lambda: stack.dagit, "Dagit")
                yield stack
            finally:
                family = stack.descendants() if process.poll() is None else []
                if process.poll() is None:
                    stack.stop()
                _, alive = psutil.wait_procs(family, timeout=5)
                for left in alive:
                    left.kill()
                stack.close()
