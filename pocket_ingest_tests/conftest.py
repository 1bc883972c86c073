"""Fixtures of all tests: a real PostgreSQL, databases and engines on it, the folder of cases.

``POCKET_TEST_DATABASE_URL`` names a server (with the right to create databases) to use instead of
an embedded one of the session's own.
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import settings as hypothesis_settings
from psycopg import sql
from sqlalchemy.engine import make_url

from pocket_ingest.adapters.embedded_postgres import EmbeddedPostgres
from pocket_ingest.adapters.postgres.schema import migrate
from pocket_ingest.core.dataset import Dataset
from pocket_ingest.core.process import Engine
from pocket_ingest.settings import Settings
from pocket_ingest.wiring import build_engine

PROJECT = Path(__file__).resolve().parents[1]

MakeEngine = Callable[..., Engine]
MakeSettings = Callable[..., Settings]

# A slow machine is no failure.
hypothesis_settings.register_profile("pocket_ingest", deadline=None)
hypothesis_settings.load_profile("pocket_ingest")


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A server on which databases may be created."""
    given = os.environ.get("POCKET_TEST_DATABASE_URL")
    if given:
        yield given
        return
    # Not pytest's own folder: as root its parents are closed to the server's user.
    root = Path(tempfile.mkdtemp(prefix="pocket-tests-")).resolve()
    root.chmod(0o755)
    try:
        with EmbeddedPostgres(folder=root / "postgres", system_folder=root / "system") as server:
            yield server.url
    finally:
        shutil.rmtree(root)


@pytest.fixture(scope="session")
def _template(postgres_url: str) -> Iterator[str]:
    """The name of a migrated database to copy: a copy takes a tenth of the migration's time."""
    with _database(postgres_url) as (name, url):
        migrate(url)
        yield name


@pytest.fixture
def database_url(postgres_url: str, _template: str) -> Iterator[str]:
    """A fresh, migrated database that is gone after the test."""
    with _database(postgres_url, template=_template) as (_, url):
        yield url


@pytest.fixture
def empty_database_url(postgres_url: str) -> Iterator[str]:
    """A fresh database without the ledger."""
    with _database(postgres_url) as (_, url):
        yield url


class _database:  # noqa: N801 - used as a context manager only
    def __init__(self, server: str, *, template: str = "template1") -> None:
        self._server = server
        self._template = template
        self._name = f"pocket_test_{uuid.uuid4().hex[:12]}"

    def __enter__(self) -> tuple[str, str]:
        self._tell("CREATE DATABASE {} TEMPLATE {}", self._name, self._template)
        # The tests do not pull the plug, and half of their time would be waiting for the disk.
        self._tell("ALTER DATABASE {} SET synchronous_commit = off", self._name)
        url = make_url(self._server.replace("postgres://", "postgresql://", 1))
        return self._name, url.set(database=self._name).render_as_string(hide_password=False)

    def __exit__(self, *_: object) -> None:
        self._tell("DROP DATABASE {} WITH (FORCE)", self._name)

    def _tell(self, statement: str, *names: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@pytest.fixture
def make_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeSettings:
    """Settings of this test alone: neither the environment nor a ``.env`` has a say."""
    for name in list(os.environ):
        if name.startswith("POCKET_") or name == "DATABASE_URL":
            monkeypatch.delenv(name)

    def make(**overrides: Any) -> Settings:
        chosen = {"home": tmp_path / "home", "inbox_quiet_seconds": 0.0, **overrides}
        return Settings(_env_file=None, **chosen)

    return make


@pytest.fixture
def make_engine(database_url: str, make_settings: MakeSettings) -> Iterator[MakeEngine]:
    """Builds engines on the test's database and folder: ``make_engine(datasets, **settings)``.

    Several engines of one test share both, as several processes would.
    """
    engines: list[Engine] = []

    def make(datasets: Mapping[str, Dataset] | Iterable[Dataset], **overrides: Any) -> Engine:
        named = datasets if isinstance(datasets, Mapping) else {d.name: d for d in datasets}
        engine = build_engine(make_settings(**overrides), url=database_url, datasets=named)
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.ledger._database.close()  # type: ignore[attr-defined]


@pytest.fixture
def make_store_file(tmp_path: Path) -> Callable[[str, bytes], Path]:
    """Writes a file into the store of the test's engines: ``make_store_file(key, content)``."""

    def make(key: str, content: bytes) -> Path:
        path = tmp_path / "home" / "files" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return make


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """The folder of cases beside the project."""
    folder = (PROJECT / ".." / "shared").resolve()
    if not folder.is_dir():
        pytest.skip("there is no folder 'shared' beside the project")
    return folder
