"""The processes that the torture kills: ``python -m pocket_ingest_tests.torture.victims ROLE``.

Here: three endless loops over the product's own use cases, as sensors and runs would call them.
Not here: who starts and who kills them (supervision.py). Settings come from the environment.
"""

import logging
import os
import random
import sys
import time
from collections.abc import Callable

from pocket_ingest.core.dispatch import RunFate, judge
from pocket_ingest.core.errors import Code, IngestError, TransientError
from pocket_ingest.core.inbox import sweep_inbox
from pocket_ingest.core.jobs import JobState
from pocket_ingest.core.process import Engine, process_import
from pocket_ingest.settings import Settings
from pocket_ingest.wiring import build_engine, worker_name

PAUSE_SECONDS = 0.05
MAX_LOSSES = 1_000_000
"""Here the same file may kill many workers, and none of them is the file's fault."""
UNAVAILABLE = {Code.DATABASE_UNAVAILABLE, Code.STORE_UNAVAILABLE, Code.TENANT_BUSY}


def work(engine: Engine) -> None:
    """Import a job that waits, whichever: old uploads come after newer ones."""
    chance = random.Random(os.getpid())
    while True:
        try:
            queued = engine.ledger.jobs(states=[JobState.QUEUED], limit=1000)
            if queued:
                process_import(engine, chance.choice(queued).id, worker=worker_name())
                continue
        except TransientError as error:
            logging.info("%s", error)
        time.sleep(PAUSE_SECONDS)


def take_in(engine: Engine) -> None:
    """Look through the inbox."""
    while True:
        try:
            sweep_inbox(engine, budget_seconds=60)
        except TransientError as error:
            logging.info("%s", error)
        time.sleep(PAUSE_SECONDS)


def reconcile(engine: Engine) -> None:
    """Hand jobs over, repair those whose worker is gone, retry those that had no database.

    The workers are known to take whatever is queued, so a job that was handed over is in good
    hands; one in hand has no run, and its lease alone says whether its worker lives.
    """
    ledger = engine.ledger
    while True:
        try:
            ledger.mark_dispatched({e.id: f"run-{e.id}" for e in ledger.pending(limit=1000)})
            jobs = ledger.unfinished(limit=1000)
            fates = {job.run_key: RunFate.ALIVE for job in jobs if job.run_key}
            for repair in judge(jobs, fates, grace_seconds=60):
                ledger.requeue(repair.job, reason=repair.reason, max_losses=MAX_LOSSES)
            for job in ledger.jobs(states=[JobState.FAILED], limit=1000):
                if job.error_code in UNAVAILABLE:
                    ledger.retry(job.id, actor="torture")
        except TransientError as error:
            logging.info("%s", error)
        time.sleep(PAUSE_SECONDS)


ROLES: dict[str, Callable[[Engine], None]] = {
    "work": work,
    "take_in": take_in,
    "reconcile": reconcile,
}


def main() -> None:
    """Play one role until killed."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(message)s")
    role = ROLES[sys.argv[1]]
    engine = build_engine(Settings(_env_file=None))
    try:
        role(engine)
    except KeyboardInterrupt:
        sys.exit(130)
    except IngestError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
