"""The inbox, looked through: every object that is new to the ledger is taken in.

Here: one sweep, within a time budget.
Not here: when it happens (a sensor, the CLI) and what taking in means (intake.py).
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from pocket_ingest.core.errors import IngestError, TransientError
from pocket_ingest.core.intake import INBOX, Address, find_address, is_unfinished, take_in
from pocket_ingest.core.jobs import ImportJob
from pocket_ingest.core.ports import StoredObject
from pocket_ingest.core.process import Engine

LOOKED_UP_AT_ONCE = 500


@dataclass(kw_only=True)
class Sweep:
    """What one look through the inbox found.

    Attributes:
        taken: jobs of new uploads.
        recognised: jobs of objects whose content was here before.
        waiting: objects that may still be being written; looked at again next time.
        refused: key and sentence of objects that no dataset wants or that could not be taken in.
        known: objects that were taken in before.
        complete: false where the time budget ended the sweep; the next one goes on.
    """

    taken: list[ImportJob] = field(default_factory=list)
    recognised: list[ImportJob] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    known: int = 0
    complete: bool = True


def sweep_inbox(engine: Engine, *, budget_seconds: float) -> Sweep:
    """Take in whatever the ledger does not know, in key order.

    Args:
        engine: the ports.
        budget_seconds: after this time no further object is started.

    Raises:
        TransientError: the ledger or the store cannot be reached; nothing is half done.
    """
    deadline = time.monotonic() + budget_seconds
    sweep = Sweep()
    for objects in _in_groups(engine.store.list(INBOX)):
        for found, address in _unknown(engine, objects, sweep):
            if time.monotonic() > deadline:
                sweep.complete = False
                return sweep
            _take(engine, found, address, sweep)
    return sweep


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What is in the inbox, nothing taken in: counts, and what no dataset wants."""

    known: int
    new: int
    waiting: int
    refused: tuple[tuple[str, str], ...]


def survey_inbox(engine: Engine) -> Survey:
    """Compare the inbox with the ledger without changing either."""
    sweep = Sweep()
    new = sum(
        1
        for objects in _in_groups(engine.store.list(INBOX))
        for _ in _unknown(engine, objects, sweep)
    )
    return Survey(
        known=sweep.known, new=new, waiting=len(sweep.waiting), refused=tuple(sweep.refused)
    )


def _in_groups(objects: Iterable[StoredObject]) -> Iterator[tuple[StoredObject, ...]]:
    iterator = iter(objects)
    while group := tuple(islice(iterator, LOOKED_UP_AT_ONCE)):
        yield group


def _unknown(
    engine: Engine, objects: Iterable[StoredObject], sweep: Sweep
) -> Iterator[tuple[StoredObject, Address]]:
    """The objects that the ledger does not know, with their addresses, in key order."""
    addressed: dict[str, list[StoredObject]] = {}
    found: list[tuple[StoredObject, Address]] = []
    for item in objects:
        if is_unfinished(item.key):
            continue
        try:
            address = find_address(item.key.removeprefix(INBOX), engine.datasets.values())
        except IngestError as error:
            shown = item.key if item.key.isprintable() else ascii(item.key)
            sweep.refused.append((shown, str(error)))
            continue
        addressed.setdefault(address.dataset.name, []).append(item)
        found.append((item, address))
    known = {
        (name, key, version)
        for name, items in addressed.items()
        for key, version in engine.ledger.known_versions(name, items)
    }
    for item, address in found:
        if (address.dataset.name, item.key, item.version) in known:
            sweep.known += 1
        elif not item.settled:
            sweep.waiting.append(item.key)
        else:
            yield item, address


def _take(engine: Engine, found: StoredObject, address: Address, sweep: Sweep) -> None:
    try:
        intake = take_in(
            engine.store,
            engine.ledger,
            found,
            dataset=address.dataset,
            tenant=address.tenant,
        )
    except TransientError:
        raise
    except IngestError as error:
        sweep.refused.append((found.key, str(error)))
        return
    (sweep.taken if intake.is_new else sweep.recognised).append(intake.job)
