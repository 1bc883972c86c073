"""Dagster resources.

Here: the one resource, which builds the engine from the settings.
Not here: what the engine does.
"""

from functools import cache

from dagster import ConfigurableResource

from pocket_ingest.core.process import Engine
from pocket_ingest.settings import Settings
from pocket_ingest.wiring import build_engine


class EngineResource(ConfigurableResource[Engine]):
    """The engine, built once in each process from the environment's settings."""

    def engine(self) -> Engine:
        """The engine of this process."""
        return _engine()


@cache
def _engine() -> Engine:
    return build_engine(Settings())


__all__ = ["EngineResource"]
