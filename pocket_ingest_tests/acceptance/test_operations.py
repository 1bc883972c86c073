"""What the data team does and what happens at night: backfills by hand, and a killed worker."""

import os
import random
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocket_ingest_tests.acceptance.running_stack import RunningStack, running_stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

READINGS = """
    import pandera.polars as pa
    from pocket_ingest import Column, Dataset

    class Reading(pa.DataFrameModel):
        meter: str
        value: int = pa.Field(ge=0)
        note: str = pa.Field(nullable=True)

    readings = Dataset(
        name="readings", model=Reading, key=("meter",),
        columns={{"value": Column(aliases={aliases})}},
    )
"""
ROWS = 60_000
BATCH = 2_000


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A team's dataset, which knows one header name."""
    folder = tmp_path_factory.mktemp("team")
    declare(folder, aliases=("Value",))
    return folder


@pytest.fixture(scope="module")
def stack(declared: Path) -> Iterator[RunningStack]:
    with running_stack(POCKET_DATASETS=str(declared), POCKET_CHUNK_RECORDS=str(BATCH)) as started:
        yield started


def declare(folder: Path, *, aliases: tuple[str, ...]) -> None:
    (folder / "readings.py").write_text(textwrap.dedent(READINGS.format(aliases=aliases)))


def test_exactly_the_failed_files_show_as_failed(stack: RunningStack) -> None:
    for number in range(6):
        header = "meter,Amount,note" if number in {1, 4} else "meter,Value,note"
        stack.drop(f"readings/town/{number}.csv", f"{header}\nm{number},{number},\n".encode())
    stack.wait_until_idle(uploads=6)
    for stage, failed in {"upload": 0, "validated": 2, "loaded": 2, "exports": 2}.items():
        found = stack.partition_status("readings", stage)
        assert len(found["failed"]) == failed, stage
        assert len(found["materialized"]) == 6 - failed
        assert found["unmaterialized"] == found["failed"] or not found["unmaterialized"]
    reasons = stack.query(
        "SELECT DISTINCT error_code FROM pocket.import_jobs WHERE state = 'failed'"
    )
    assert reasons == [{"error_code": "missing_column"}]


def test_a_backfill_runs_failed_files_again_and_leaves_a_finished_one_alone(
    stack: RunningStack, declared: Path
) -> None:
    before = stack.partition_status("readings", "loaded")
    finished = before["materialized"][0]
    untouched = (
        "SELECT t.meter, t.xmin::text, t.ctid::text FROM readings t JOIN pocket.uploads u "
        "ON u.id = t._upload_id WHERE u.partition_key = %s"
    )
    row = stack.query(untouched, finished)
    receipts = stack.query("SELECT count(*) AS n FROM pocket.batch_receipts")[0]["n"]
    declare(declared, aliases=("Value", "Amount"))
    stack.backfill("readings", [*before["failed"], finished])

    for stage in ("upload", "validated", "loaded", "exports"):
        found = stack.partition_status("readings", stage)
        assert found["failed"] == []
        assert len(found["materialized"]) == 6
    rows = stack.query("SELECT meter, value FROM readings ORDER BY meter")
    assert rows == [{"meter": f"m{n}", "value": n} for n in range(6)]
    attempts = stack.query("SELECT attempt FROM pocket.import_jobs ORDER BY upload_id")
    assert [found["attempt"] for found in attempts] == [1, 2, 1, 1, 2, 1]

    assert stack.query(untouched, finished) == row
    now = stack.query("SELECT count(*) AS n FROM pocket.batch_receipts")[0]["n"]
    assert now == receipts + len(before["failed"])
    assert "skipped" in labels(stack, "loaded", finished)
    assert "skipped" not in labels(stack, "loaded", before["failed"][0])


def labels(stack: RunningStack, stage: str, key: str) -> set[str]:
    """What the newest materialization of a partition tells about."""
    told = stack.graphql(
        "query ($k: AssetKeyInput!, $p: [String!]) {assetNodeOrError(assetKey: $k) {... on "
        "AssetNode {assetMaterializations(partitions: $p, limit: 1) {metadataEntries {label}}}}}",
        k={"path": ["readings", stage]},
        p=[key],
    )["assetNodeOrError"]["assetMaterializations"]
    return {entry["label"] for entry in told[0]["metadataEntries"]}


def big_file() -> bytes:
    chooser = random.Random(7)
    lines = ["meter,Value,note"]
    for number in range(ROWS):
        value = "much" if chooser.random() < 0.01 else str(chooser.randrange(10**6))
        lines.append(f'meter-{number:07},{value},"note, with a comma {chooser.random()}"')
    return "\n".join(lines).encode() + b"\n"


def loading(stack: RunningStack, tenant: str) -> dict[str, Any] | None:
    """The tenant's job once it is in the middle of loading."""
    found = stack.query(
        "SELECT j.claimed_by, j.run_id, count(r.*) AS batches FROM pocket.import_jobs j "
        "JOIN pocket.batch_receipts r ON r.job_id = j.id "
        "WHERE j.tenant = %s AND j.state = 'loading' GROUP BY 1, 2",
        tenant,
    )
    return found[0] if found and found[0]["batches"] > 1 else None


def test_a_worker_killed_while_loading_is_healed_by_the_daemon(stack: RunningStack) -> None:
    content = big_file()
    stack.drop("readings/killed/big.csv", content)

    found = stack.wait_until(lambda: loading(stack, "killed"), "a worker in the middle of loading")
    os.kill(int(found["claimed_by"].rpartition(":")[2]), signal.SIGKILL)
    (job,) = stack.query("SELECT * FROM pocket.import_jobs WHERE tenant = 'killed'")
    assert job["state"] == "loading"
    assert 0 < job["created"] < ROWS
    stack.wait_until_idle(uploads=7)
    (job,) = stack.query("SELECT * FROM pocket.import_jobs WHERE tenant = 'killed'")
    assert (job["state"], job["losses"]) == ("succeeded", 1)
    assert job["attempt"] > 1

    stack.drop("readings/clean/big.csv", content)
    stack.wait_until_idle(uploads=8)
    (clean,) = stack.query("SELECT * FROM pocket.import_jobs WHERE tenant = 'clean'")
    outcomes = ("records_read", "created", "updated", "unchanged", "duplicate", "rejected")
    assert {name: job[name] for name in outcomes} == {name: clean[name] for name in outcomes}
    assert job["records_read"] == ROWS
    assert job["created"] + job["rejected"] == ROWS
    (different,) = stack.query(
        "SELECT count(*) AS rows FROM (SELECT meter, value, note, _record FROM readings "
        "WHERE _tenant = 'killed') k FULL JOIN (SELECT meter, value, note, _record FROM readings "
        "WHERE _tenant = 'clean') c ON (k.*) = (c.*) WHERE k.meter IS NULL OR c.meter IS NULL"
    )
    assert different["rows"] == 0
    status = stack.partition_status("readings", "exports")
    assert len(status["materialized"]) == 8
    assert status["failed"] == []


def test_a_run_that_is_terminated_in_dagit_cancels_its_file(stack: RunningStack) -> None:
    content = big_file()
    stack.drop("readings/stopped/big.csv", content)
    found = stack.wait_until(lambda: loading(stack, "stopped"), "a run in the middle of loading")
    answer = stack.graphql(
        "mutation ($id: String!) {terminateRun(runId: $id) {__typename}}", id=found["run_id"]
    )["terminateRun"]
    assert answer["__typename"] == "TerminateRunSuccess"
    stack.wait_until_idle(uploads=9)
    (job,) = stack.query("SELECT * FROM pocket.import_jobs WHERE tenant = 'stopped'")
    assert job["state"] == "cancelled"
    assert 0 < job["created"] < ROWS  # what was committed stays
    (run,) = [run for run in stack.runs() if run["runId"] == found["run_id"]]
    assert run["status"] == "CANCELED"
    in_transaction = stack.query(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'pocket_ingest' "
        "AND xact_start < now() - interval '2 seconds'"
    )
    assert in_transaction == []

    os.utime(stack.inbox / "readings" / "stopped" / "big.csv")  # sent again, byte for byte
    stack.wait_until_idle(uploads=10)
    _, again = stack.query(
        "SELECT * FROM pocket.import_jobs WHERE tenant = 'stopped' ORDER BY upload_id"
    )
    assert again["state"] == "succeeded"
    assert again["unchanged"] == job["created"]
    assert again["created"] + again["unchanged"] + again["rejected"] == ROWS
