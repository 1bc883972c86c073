"""Connections: the pool, and what a database error means to the engine.

Here: URLs, the pool, transactions with an actor, the translation of psycopg's errors.
Not here: statements on tables.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool, PoolTimeout
from sqlalchemy.engine import make_url

from pocket_ingest.core.errors import Code, PermanentError, TransientError

Connection = psycopg.Connection[dict[str, Any]]

# SQLSTATE classes that another try may pass: connection, rollback (deadlock, serialisation),
# resources, object state (lock), intervention (shutdown, cancel), system; and the session timeouts.
TRANSIENT_CLASSES = frozenset({"08", "40", "53", "55", "57", "58"})
TRANSIENT_STATES = frozenset({"25P03", "25P04"})
# A worker that froze, or whose host is gone, must not keep its locks for the two hours that TCP
# waits by default.
CONNECTION_OPTIONS = {
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 6,
    "tcp_user_timeout": 120_000,
    "options": "-c idle_in_transaction_session_timeout=300000",
}


def driver_url(url: str, driver: str) -> str:
    """The same database under SQLAlchemy's name for a driver, ``psycopg`` or ``psycopg2``.

    ``postgres://``, which hosting providers hand out and SQLAlchemy refuses, is understood.
    """
    parsed = make_url(url.replace("postgres://", "postgresql://", 1))
    return parsed.set(drivername=f"postgresql+{driver}").render_as_string(hide_password=False)


def dagster_url(url: str) -> str:
    """The URL for Dagster's own tables: the same database, in the schema ``dagster``.

    psycopg2 by name: SQLAlchemy 2.1 made psycopg 3 the driver of a bare ``postgresql://``, and
    dagster-postgres 0.29 then fails to store any event (``NOTIFY run_events, $1`` is a syntax
    error).
    """
    parsed = make_url(driver_url(url, "psycopg2"))
    options = str(parsed.query.get("options", ""))
    merged = parsed.update_query_dict({"options": f"{options} -csearch_path=dagster".strip()})
    return merged.render_as_string(hide_password=False)


class Database:
    """A pool of connections to one database."""

    def __init__(self, url: str, *, application: str = "pocket_ingest") -> None:
        self.url = url
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            url.replace("postgres://", "postgresql://", 1),
            connection_class=psycopg.Connection[dict[str, Any]],
            kwargs={
                "row_factory": dict_row,
                "application_name": application,
                **_options(url),
            },
            min_size=0,
            max_size=8,
            max_idle=30,
            # Half of the server's usual patience with a restart; the engine tries again after it.
            timeout=30,
            check=ConnectionPool.check_connection,
            open=False,
            name="pocket_ingest",
        )
        # Closed at the latest when the interpreter ends: left to its own, the pool waits five
        # seconds for its threads there (seen on Python 3.13).
        self._close = weakref.finalize(self, self._pool.close)

    @contextmanager
    def transaction(self, *, actor: str = "", reason: str = "") -> Iterator[Connection]:
        """A connection with one transaction, committed at the end of the block.

        Args:
            actor: who is acting, for the audit log.
            reason: why, for the audit log.

        Raises:
            TransientError: database_unavailable, worth another try.
            PermanentError: database_refused.
        """
        self._pool.open()
        with translated(), self._pool.connection() as connection, connection.transaction():
            if actor or reason:
                connection.execute(
                    "SELECT set_config('pocket.actor', %s, true), "
                    "set_config('pocket.reason', %s, true)",
                    (actor, reason),
                )
            yield connection

    def close(self) -> None:
        """Close the pool."""
        self._close()


@contextmanager
def translated() -> Iterator[None]:
    """Give database errors their meaning. A server's message may quote values, so none is kept."""
    try:
        yield
    except (psycopg.Error, PoolTimeout) as error:
        if _is_transient(error):
            raise TransientError(
                Code.DATABASE_UNAVAILABLE,
                f"The database did not answer as it should ({_name(error)}). It is tried again.",
            ) from error
        raise PermanentError(
            Code.DATABASE_REFUSED, f"The database refused a statement ({_name(error)})."
        ) from error


def _is_transient(error: Exception) -> bool:
    """By the server's own word; without one, the connection did not stand."""
    state = getattr(error, "sqlstate", None)
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state[:2] in TRANSIENT_CLASSES or state in TRANSIENT_STATES


def _options(url: str) -> dict[str, Any]:
    """Connection options, below those that the URL itself sets."""
    given = conninfo_to_dict(url.replace("postgres://", "postgresql://", 1))
    chosen = {name: value for name, value in CONNECTION_OPTIONS.items() if name not in given}
    if "options" in given:
        chosen["options"] = f"{CONNECTION_OPTIONS['options']} {given['options']}"
    return chosen


def _name(error: Exception) -> str:
    state = getattr(error, "sqlstate", None)
    constraint = getattr(getattr(error, "diag", None), "constraint_name", None)
    return ", ".join(str(part) for part in (type(error).__name__, state, constraint) if part)
