"""POCKET_HOME: the folders of a local stack, and the environment of the processes in it.

Here: paths, Dagster's home, environment variables.
Not here: the processes (processes.py) or the database server (adapters/embedded_postgres.py).
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from pocket_ingest.adapters.embedded_postgres import attach_or_start
from pocket_ingest.adapters.postgres.connection import dagster_url
from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.settings import Settings

DAGSTER_FILES = ("dagster.yaml", "workspace.yaml")


def dagster_home(settings: Settings) -> Path:
    """The folder that DAGSTER_HOME names."""
    return settings.home / "dagster"


def workspace_file(settings: Settings) -> Path:
    """The workspace that webserver and daemon load."""
    return dagster_home(settings) / "workspace.yaml"


def postgres_folder(settings: Settings) -> Path:
    """The embedded Postgres's folder."""
    return settings.home / "postgres"


def prepare_home(settings: Settings) -> None:
    """Make the folders, and bring Dagster's two files up to date with this version."""
    for folder in (dagster_home(settings), settings.home / "logs", settings.files_root / "inbox"):
        folder.mkdir(parents=True, exist_ok=True)
    for name in DAGSTER_FILES:
        text = _shipped(name).replace(
            f"max_runtime_seconds: {Settings.model_fields['max_runtime_seconds'].default}",
            f"max_runtime_seconds: {settings.max_runtime_seconds}",
        )
        (dagster_home(settings) / name).write_text(text, encoding="utf-8")


@contextmanager
def only_stack(settings: Settings) -> Iterator[None]:
    """Hold the home for one stack: two daemons on one database would do everything twice.

    Raises:
        PermanentError: already_running.
    """
    settings.home.mkdir(parents=True, exist_ok=True)
    with (settings.home / "stack.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermanentError(
                Code.ALREADY_RUNNING,
                f"A stack is running in {settings.home} already. Use that one, or stop it first.",
            ) from None
        yield


def stack_environment(settings: Settings, url: str) -> dict[str, str]:
    """The variables that every process of the stack needs, beyond those that are set already."""
    places = [
        str(Path(place).absolute()) if Path(place).is_dir() else place
        for place in settings.datasets
    ]
    return {
        "DATABASE_URL": url,
        "POCKET_DAGSTER_DATABASE_URL": dagster_url(url),
        "POCKET_HOME": str(settings.home),
        "POCKET_DATASETS": ",".join(places),
        "DAGSTER_HOME": str(dagster_home(settings)),
        # Dagster asks no server about its version, and prints no advertisement.
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "PYTHONUNBUFFERED": "1",
    }


@contextmanager
def database(settings: Settings) -> Iterator[str]:
    """The URL of the configured database, or of the embedded one, started if it does not run."""
    if settings.database_url is not None:
        yield settings.database_url.get_secret_value()
        return
    with attach_or_start(postgres_folder(settings)) as address:
        yield address.url


def upgrade_dagster(settings: Settings, url: str) -> None:
    """Create Dagster's tables where they are missing, and bring them to its version's shape.

    In a process of its own: nothing outside pocket_ingest.orchestration imports dagster.

    Raises:
        PermanentError: database_refused, with the end of what Dagster said.
    """
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "dagster", "instance", "migrate"],
        env=inherited(stack_environment(settings, url)),
        capture_output=True,
        text=True,
        check=False,
    )
    if said.returncode:
        raise PermanentError(
            Code.DATABASE_REFUSED,
            f"Dagster could not bring its tables up to date: {said.stderr.strip()[-500:]}",
        )


def _shipped(name: str) -> str:
    """A file that stands at the project's root and is packed into the wheel beside this module."""
    packed = files("pocket_ingest.stack").joinpath(name)
    if packed.is_file():
        return packed.read_text(encoding="utf-8")
    return (Path(__file__).parents[2] / name).read_text(encoding="utf-8")


def inherited(environment: dict[str, str]) -> dict[str, str]:
    """This process's environment with the stack's variables on top."""
    return {**os.environ, **environment}
