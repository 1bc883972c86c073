"""Ports that misbehave: real adapters behind a thin skin that fails, dies or watches."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pocket_ingest.core.process import Engine


class Skin:
    """Passes every method on to the real port, through ``around(name, call)``."""

    def __init__(self, port: Any, around: Callable[[str, Callable[[], Any]], Any]) -> None:
        self._port = port
        self._around = around

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if not callable(method):
            return method
        return lambda *args, **said: self._around(name, lambda: method(*args, **said))


@dataclass(kw_only=True)
class Failing:
    """Raises ``error`` instead of the first ``times`` calls of a method; counts all calls."""

    method: str
    error: BaseException
    times: int
    calls: int = 0

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        if name != self.method:
            return call()
        self.calls += 1
        if self.calls <= self.times:
            raise self.error
        return call()


class Killed(BaseException):
    """The process is dead; nothing of it runs any more."""


@dataclass(kw_only=True)
class Mortal:
    """A process that is killed after its n-th call of a port, and never says another word."""

    calls_left: int
    called: list[str] = field(default_factory=list)

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        if not self.calls_left:
            raise Killed
        self.calls_left -= 1
        self.called.append(name)
        result = call()
        if not self.calls_left:
            if hasattr(result, "close"):
                result.close()  # which the system does for a dead process
            raise Killed
        return result


def behind(engine: Engine, around: Callable[..., Any], *ports: str) -> Engine:
    """The engine with these ports (default: all) behind a skin."""
    chosen = ports or ("store", "ledger", "loader")
    return replace(engine, **{port: Skin(getattr(engine, port), around) for port in chosen})
