"""The composition root: settings in, an engine out.

Here: which adapter serves which port.
Not here: anything that an adapter or the engine does.
"""

import os
import socket
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING

from pocket_ingest.core.dataset import Dataset
from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.reading import ReadingLimits
from pocket_ingest.datasets import find_datasets
from pocket_ingest.settings import Settings

if TYPE_CHECKING:
    from pocket_ingest.core.process import Engine


def load_datasets(settings: Settings) -> dict[str, Dataset]:
    """The shipped datasets and the team's own, by name."""
    return find_datasets(settings.datasets, shipped=settings.shipped_datasets)


def database_url(settings: Settings) -> str:
    """The URL of the configured database.

    Raises:
        PermanentError: invalid_setting if there is none; `pocket-ingest dev` starts one and tells
            the processes that it starts.
    """
    if settings.database_url is None:
        raise PermanentError(
            Code.INVALID_SETTING,
            "DATABASE_URL is not set. Start the stack with `pocket-ingest dev`, which brings its "
            "own Postgres, or set DATABASE_URL.",
        )
    return settings.database_url.get_secret_value()


def build_engine(
    settings: Settings, *, url: str | None = None, datasets: Mapping[str, Dataset] | None = None
) -> "Engine":
    """Build the engine for these settings. Opens no connection yet.

    Args:
        settings: the settings.
        url: the database, if not the one of the settings.
        datasets: by name, if not those of the settings.
    """
    # Imported here: `inspect`, which asks for bounds alone, starts in half the time without them.
    from pocket_ingest.adapters.local_store import LocalStore  # noqa: PLC0415
    from pocket_ingest.adapters.postgres.connection import Database  # noqa: PLC0415
    from pocket_ingest.adapters.postgres.ledger import PostgresLedger  # noqa: PLC0415
    from pocket_ingest.adapters.postgres.loader import PostgresLoader  # noqa: PLC0415
    from pocket_ingest.core.process import Engine  # noqa: PLC0415

    database = Database(url or database_url(settings))
    return Engine(
        store=LocalStore(settings.files_root, quiet_seconds=settings.inbox_quiet_seconds),
        ledger=PostgresLedger(database),
        loader=PostgresLoader(database, schema=settings.table_schema),
        datasets=load_datasets(settings) if datasets is None else datasets,
        limits=reading_limits(settings),
        scratch=settings.home / "scratch",
        lease_seconds=settings.lease_seconds,
        transient_tries=settings.transient_tries,
    )


def reading_limits(settings: Settings) -> ReadingLimits:
    """The reader's bounds."""
    return ReadingLimits(
        **{limit.name: getattr(settings, limit.name) for limit in fields(ReadingLimits)}
    )


def worker_name() -> str:
    """Names this process in the ledger and the audit log."""
    return f"{socket.gethostname()}:{os.getpid()}"
