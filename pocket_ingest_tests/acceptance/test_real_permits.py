"""Spearfish's 146 monthly files and Nashville's one, through real sensors, daemon and Postgres.

Every number is compared with a count of its own by Python's csv module.
"""

import csv
import datetime
import os
import zoneinfo
from collections import Counter
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pytest

from pocket_ingest_tests.acceptance.running_stack import RunningStack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MONEY = ("cost_approximate", "permit_fee", "hookup_fee")
STAGES = ("upload", "validated", "loaded", "exports")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def spearfish_row(raw: dict[str, str]) -> dict[str, Any] | None:
    """The row as the contract means it, or None where it has to be rejected."""
    if not raw["permit_number"]:
        return None
    row: dict[str, Any] = {name: value or None for name, value in raw.items()}
    row["year"], row["month"] = int(raw["year"]), int(raw["month"])
    for name in MONEY:
        text = raw[name].replace(",", "") if name == "permit_fee" else raw[name]
        try:
            row[name] = Decimal(text) if text else None
        except InvalidOperation:
            return None
    row["outside_city_limits"] = {"True": True, "False": False, "": None}[
        raw["outside_city_limits"]
    ]
    return row


@pytest.fixture(scope="module")
def spearfish(shared_folder: Path) -> list[Path]:
    files = sorted((shared_folder / "real" / "spearfish").glob("*.csv"))
    if not files:
        pytest.skip("the Spearfish files are not there")
    return files


@pytest.fixture(scope="module")
def nashville(shared_folder: Path) -> Path:
    file = shared_folder / "real" / "nashville_building_permits.csv"
    if not file.exists():
        pytest.skip("the Nashville file is not there")
    return file


@pytest.fixture(scope="module")
def loaded(stack: RunningStack, spearfish: list[Path], nashville: Path) -> RunningStack:
    """Both cities dropped into the inbox, and worked off."""
    for file in spearfish:
        stack.drop(f"spearfish/{file.name}", file.read_bytes())
    stack.drop(f"nashville/metro-nashville/{nashville.name}", nashville.read_bytes())
    stack.wait_until_idle(uploads=len(spearfish) + 1)
    return stack


def test_every_spearfish_file_is_a_partition_of_every_asset(
    loaded: RunningStack, spearfish: list[Path]
) -> None:
    for stage in STAGES:
        found = loaded.partition_status("spearfish", stage)
        assert len(found["materialized"]) == len(spearfish) == 146
        assert found["failed"] == found["unmaterialized"] == []


def test_every_spearfish_record_has_an_outcome(loaded: RunningStack, spearfish: list[Path]) -> None:
    expected = {file.name: rows_of(file) for file in spearfish}
    jobs = loaded.query(
        "SELECT u.file_name, j.* FROM pocket.import_jobs j "
        "JOIN pocket.uploads u ON u.id = j.upload_id WHERE j.dataset = 'spearfish'"
    )
    assert sum(job["records_read"] for job in jobs) == 5326
    for job in jobs:
        rows = expected[job["file_name"]]
        keep = [row for row in map(spearfish_row, rows) if row]
        keys = Counter(row["permit_number"] for row in keep)
        assert job["state"] == "succeeded"
        assert job["records_read"] == len(rows)
        assert job["rejected"] == len(rows) - len(keep)
        assert job["duplicate"] == sum(n - 1 for n in keys.values())
        written = sum(job[n] for n in ("created", "updated", "unchanged", "stale", "conflict"))
        assert written == len(keys)


def test_the_spearfish_table_is_what_the_newest_file_says(
    loaded: RunningStack, spearfish: list[Path]
) -> None:
    expected: dict[str, tuple[str, dict[str, Any]]] = {}
    for file in spearfish:  # in the order in which the inbox lists them
        for row in filter(None, map(spearfish_row, rows_of(file))):
            expected[row["permit_number"]] = (file.name, row)
    found = loaded.query(
        "SELECT t.*, u.file_name FROM spearfish t JOIN pocket.uploads u ON u.id = t._upload_id"
    )
    assert len(found) == len(expected)
    for row in found:
        name, wanted = expected[row["permit_number"]]
        assert {key: row[key] for key in wanted} == wanted
        assert (row["_tenant"], row["file_name"]) == ("spearfish-sd", name)


def test_nashville_is_what_the_csv_module_reads(loaded: RunningStack, nashville: Path) -> None:
    central = zoneinfo.ZoneInfo("America/Chicago")
    rows = rows_of(nashville)
    keep = [row for row in rows if len(row["ZIP"]) == 5]
    expected = {row["Permit__"]: row for row in keep}
    (job,) = loaded.query("SELECT * FROM pocket.import_jobs WHERE dataset = 'nashville'")
    assert job["state"] == "succeeded"
    assert job["records_read"] == len(rows) == 5996
    assert job["rejected"] == len(rows) - len(keep)
    assert job["duplicate"] == len(keep) - len(expected)
    assert job["created"] == len(expected)
    found = loaded.query("SELECT * FROM nashville")
    assert len(found) == len(expected)
    for row in found:
        raw = expected[row["permit"]]
        entered = datetime.datetime.fromtimestamp(int(raw["Date_Entered"]) / 1000, central)
        assert row["date_entered"] == entered.date()
        assert row["parcel"] == raw["Parcel"]
        assert row["const_cost"] == (Decimal(raw["Const_Cost"]) if raw["Const_Cost"] else None)
        assert row["purpose"] == (raw["Purpose"] or None)
        assert row["contact"] == (raw["Contact"] or None)
        assert row["lon"] == (float(raw["Lon"]) if raw["Lon"] else None)
        assert row["zip"] == raw["ZIP"]
        assert row["_tenant"] == "metro-nashville"


def test_the_same_inbox_again_changes_no_row_and_says_so(
    loaded: RunningStack, spearfish: list[Path]
) -> None:
    # xmin changes with every write to a row, whatever its values.
    table = "SELECT permit_number, xmin::text, ctid::text FROM spearfish ORDER BY 1"
    before = loaded.query(table)
    seen = loaded.query("SELECT count(*) AS n FROM pocket.sightings")[0]["n"]
    for file in spearfish:
        os.utime(loaded.inbox / "spearfish" / file.name)
    loaded.wait_until(
        lambda: (
            loaded.query("SELECT count(*) AS n FROM pocket.sightings")[0]["n"]
            == seen + len(spearfish)
        ),
        "the recognition of touched files",
    )
    assert loaded.query("SELECT count(*) AS n FROM pocket.uploads")[0]["n"] == len(spearfish) + 1
    assert loaded.query(table) == before
    loaded.wait_until(lambda: _tick_says(loaded, "inbox", "known"), "the sensor's word")


def _tick_says(stack: RunningStack, sensor: str, word: str) -> bool:
    answer = stack.graphql(
        "query ($s: SensorSelector!) {sensorOrError(sensorSelector: $s) {... on Sensor "
        "{sensorState {ticks(limit: 5) {skipReason}}}}}",
        s={
            "repositoryLocationName": "pocket_ingest",
            "repositoryName": "__repository__",
            "sensorName": sensor,
        },
    )
    ticks = answer["sensorOrError"]["sensorState"]["ticks"]
    return any(word in (tick["skipReason"] or "") for tick in ticks)


def test_a_file_changed_under_its_name_is_a_new_upload(
    loaded: RunningStack, spearfish: list[Path]
) -> None:
    last = spearfish[-1]
    rows = rows_of(last)
    first = next(row for row in rows if spearfish_row(row))
    changed = last.read_bytes().replace(first["applicant_name"].encode(), b"Somebody Else")
    loaded.drop(f"spearfish/{last.name}", changed)
    loaded.wait_until_idle(uploads=len(spearfish) + 2)
    jobs = loaded.query(
        "SELECT j.state, j.updated, j.unchanged, j.rejected, j.records_read, u.partition_key "
        "FROM pocket.import_jobs j JOIN pocket.uploads u ON u.id = j.upload_id "
        "WHERE u.file_name = %s AND u.dataset = 'spearfish' ORDER BY u.id",
        last.name,
    )
    assert len({job["partition_key"] for job in jobs}) == 2
    assert jobs[1]["updated"] >= 1
    assert jobs[1]["updated"] + jobs[1]["unchanged"] + jobs[1]["rejected"] == len(rows)
    (row,) = loaded.query(
        "SELECT applicant_name FROM spearfish WHERE permit_number = %s", first["permit_number"]
    )
    assert row["applicant_name"] == "Somebody Else"
