"""One torture from an empty folder to its figures.

Here: the folder, the server, the two databases, and what is reported.
Not here: kills (supervision.py) and promises (comparison.py).
"""

import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy.engine import make_url

from pocket_ingest.adapters.embedded_postgres import EmbeddedPostgres
from pocket_ingest.adapters.postgres.schema import migrate
from pocket_ingest.settings import Settings
from pocket_ingest.wiring import build_engine
from pocket_ingest_tests.torture.comparison import Side, compare, leftovers, run_clean
from pocket_ingest_tests.torture.datasets import first_parcels, parcels
from pocket_ingest_tests.torture.supervision import CHUNK_RECORDS, Supervisor
from pocket_ingest_tests.torture.workload import Workload


def run_torture(*, kills: int, seed: int, keep: bool = False) -> dict[str, Any]:
    """Torture, compare, clean up.

    Args:
        kills: how many.
        seed: of the files, the kinds of kills and their moments.
        keep: leave the folder where something differs.

    Returns:
        The figures; ``differences`` is empty where every promise was kept.
    """
    # As root the server has a user of its own, who must be able to pass.
    root = Path(tempfile.mkdtemp(prefix="pocket-torture-")).resolve()
    root.chmod(0o755)
    figures: dict[str, Any] = {"differences": ["it did not come to an end"]}
    server = EmbeddedPostgres(folder=root / "postgres", system_folder=root / "system")
    try:
        figures = _run(root, server, kills=kills, seed=seed)
    finally:
        server.stop()
        if keep and figures["differences"]:
            print(f"Everything is still in {root}")
        else:
            shutil.rmtree(root)
    return figures


def _run(root: Path, server: EmbeddedPostgres, *, kills: int, seed: int) -> dict[str, Any]:
    started = time.monotonic()
    url = server.start().url
    tortured, clean = (_side(root, url, name) for name in ("tortured", "clean"))
    workload = Workload(random=random.Random(f"files {seed}"))
    supervisor = Supervisor(
        server=server,
        url=tortured.url,
        home=tortured.home,
        workload=workload,
        chance=random.Random(f"kills {seed}"),
    )
    supervisor.torture(kills)
    tortured_seconds = time.monotonic() - started
    run_clean(clean, tortured)
    found = compare(tortured, clean, workload)
    done = supervisor.figures
    (lives,) = tortured.ask(
        "SELECT sum(attempt) AS attempts, max(attempt) AS most, (SELECT count(*) FROM "
        "pocket.audit_log WHERE from_state = 'failed') AS retried FROM pocket.import_jobs"
    )
    differences = [*found.differences, *(f"it ended by itself: {said}" for said in done.died)]
    if done.stuck:
        differences.append(f"{done.stuck} files are stuck")
    return {
        "seed": seed,
        "killed": done.kills,
        "kills": dict(sorted(done.kinds.items())),
        "killed workers had in hand": dict(sorted(done.stages.items())),
        "interrupts sent": done.interrupts,
        "files sent": len(workload.sent),
        "jobs": found.jobs,
        "jobs by state": dict(sorted(found.states.items())),
        "attempts": int(lives["attempts"]),
        "most attempts of a job": int(lives["most"]),
        "retried after database_unavailable": int(lives["retried"]),
        "records": found.records,
        "outcomes": found.outcomes.as_dict(),
        "rows": found.rows,
        "lost": found.lost,
        "doubled": found.doubled,
        "stuck": done.stuck,
        "left behind by the killed": leftovers(tortured),
        "seconds": round(tortured_seconds),
        "differences": differences,
    }


def _side(root: Path, server_url: str, name: str) -> Side:
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    url = make_url(server_url).set(database=name).render_as_string(hide_password=False)
    migrate(url)
    home = root / name
    home.mkdir()
    settings = Settings(
        _env_file=None,
        home=home,
        inbox_quiet_seconds=0.0,
        chunk_records=CHUNK_RECORDS,
    )
    datasets = {dataset.name: dataset for dataset in (parcels, first_parcels)}
    return Side(engine=build_engine(settings, url=url, datasets=datasets), url=url, home=home)
