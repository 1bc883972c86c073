"""Dagster's side on a real instance: what is defined, what sensors ask for, what a run reports."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pandera.polars as pa
import pytest
from dagster import (
    AssetKey,
    AssetRecordsFilter,
    DagsterInstance,
    DagsterRunStatus,
    Definitions,
    ResourceDefinition,
    SensorResult,
    SkipReason,
    TableMetadataValue,
    build_sensor_context,
)

from pocket_ingest.core.dataset import Dataset
from pocket_ingest.core.jobs import JobState
from pocket_ingest.core.process import Engine, process_import
from pocket_ingest.orchestration.build import build_defs
from pocket_ingest.orchestration.sensors import parse_cursor
from pocket_ingest.settings import Settings
from pocket_ingest_tests.conftest import MakeEngine, MakeSettings

STAGES = ("upload", "validated", "loaded", "exports")


class Meter(pa.DataFrameModel):
    """A meter reading."""

    meter: str
    value: int = pa.Field(ge=0)


METERS = Dataset(name="meters", model=Meter, key=("meter",))


@dataclass
class GivenEngine:
    """Stands in for the resource that builds an engine from the environment."""

    given: Engine

    def engine(self) -> Engine:
        return self.given


@pytest.fixture
def engine(make_engine: MakeEngine) -> Engine:
    return make_engine([METERS])


@pytest.fixture
def defs(engine: Engine, make_settings: MakeSettings) -> Definitions:
    return defs_of(engine, make_settings(run_files=3))


def defs_of(engine: Engine, settings: Settings) -> Definitions:
    return build_defs(
        settings=settings,
        datasets={METERS.name: METERS},
        engine=ResourceDefinition.hardcoded_resource(GivenEngine(engine)),
    )


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as made:
        yield made


def drop(engine: Engine, name: str, text: str) -> None:
    path = engine.store._root / "inbox" / "meters" / "town" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def tick(defs: Definitions, instance: DagsterInstance, name: str, cursor: str | None = None):
    (found,) = [sensor for sensor in defs.sensors or [] if sensor.name == name]
    context = build_sensor_context(
        instance=instance,
        cursor=cursor,
        definitions=defs,
        sensor_name=name,
        resources=defs.resources,
    )
    with context:
        return found(context)


def dispatch(
    defs: Definitions, instance: DagsterInstance, cursor: str | None = None
) -> SensorResult:
    """One tick, with its partitions added as the daemon adds them."""
    answer = tick(defs, instance, "dispatch", cursor)
    assert isinstance(answer, SensorResult), answer
    for request in answer.dynamic_partitions_requests or []:
        instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
    return answer


def run(defs: Definitions, instance: DagsterInstance, key: str):
    return defs.resolve_job_def("import_meters").execute_in_process(
        instance=instance, partition_key=key, raise_on_error=False
    )


def test_what_is_defined(defs: Definitions) -> None:
    graph = defs.resolve_asset_graph()
    assert sorted(key.to_user_string() for key in graph.get_all_asset_keys()) == sorted(
        f"meters/{stage}" for stage in STAGES
    )
    for before, after in pairwise(STAGES):
        assert graph.get(AssetKey(["meters", after])).parent_keys == {AssetKey(["meters", before])}
    assert {sensor.name for sensor in defs.sensors or []} == {"inbox", "dispatch", "reconcile"}
    assert defs.resolve_job_def("import_meters").executor_def.name == "in_process"
    assert "dagster/max_runtime" in defs.resolve_job_def("import_meters").tags


def test_inbox_then_dispatch_gives_shared_runs(
    defs: Definitions, engine: Engine, instance: DagsterInstance
) -> None:
    for number in range(5):
        drop(engine, f"{number}.csv", f"meter,value\nm{number},1\n")
    said = tick(defs, instance, "inbox")
    assert isinstance(said, SkipReason)
    assert said.skip_message == "Files in the inbox: 5 new, 0 known."
    first = dispatch(defs, instance)
    assert [request.tags["pocket/files"] for request in first.run_requests] == ["3", "2"]
    keys = instance.get_dynamic_partitions("meters_uploads")
    ranges = [
        (r.tags["dagster/asset_partition_range_start"], r.tags["dagster/asset_partition_range_end"])
        for r in first.run_requests
    ]
    assert ranges == [(keys[0], keys[2]), (keys[3], keys[4])]
    # The daemon died before it saved the cursor: the same tick asks for the same runs.
    again = dispatch(defs, instance)
    assert [r.run_key for r in again.run_requests] == [r.run_key for r in first.run_requests]
    assert instance.get_dynamic_partitions("meters_uploads") == keys
    # With the cursor saved, they have been handed over.
    after = tick(defs, instance, "dispatch", cursor=again.cursor)
    assert isinstance(after, SkipReason)
    assert not engine.ledger.pending(datasets=["meters"], limit=10)


@pytest.mark.parametrize("cursor", ["", "{", "[]", "nonsense", '{"x": 1}', "7", "null"])
def test_an_unreadable_cursor_loses_no_job(
    defs: Definitions, engine: Engine, instance: DagsterInstance, cursor: str
) -> None:
    assert parse_cursor(cursor) == {}
    drop(engine, "a.csv", "meter,value\na,1\n")
    tick(defs, instance, "inbox")
    assert len(dispatch(defs, instance, cursor).run_requests) == 1


def test_a_retry_has_another_run_key(
    defs: Definitions, engine: Engine, instance: DagsterInstance
) -> None:
    drop(engine, "bad.csv", "wrong,columns\n1,2\n")
    tick(defs, instance, "inbox")
    first = dispatch(defs, instance)
    (request,) = first.run_requests
    assert not run(defs, instance, request.partition_key).success
    tick(defs, instance, "dispatch", cursor=first.cursor)
    (job,) = engine.ledger.jobs()
    assert job.state is JobState.FAILED
    engine.ledger.retry(job.id, actor="test")
    (second,) = dispatch(defs, instance, cursor="{}").run_requests
    assert second.partition_key == request.partition_key
    assert second.run_key != request.run_key


def test_a_run_reports_each_stage_and_never_a_cell(
    defs: Definitions, engine: Engine, instance: DagsterInstance
) -> None:
    drop(engine, "Jan, #1.csv", "meter,value\nsecretmeter,1\nsecretmeter2,secretvalue\n")
    tick(defs, instance, "inbox")
    (request,) = dispatch(defs, instance).run_requests
    assert run(defs, instance, request.partition_key).success
    shown = metadata(instance, "loaded", request.partition_key)
    assert shown["file"] == "Jan, #1.csv"
    assert (shown["created"], shown["rejected"], shown["records_read"]) == (1, 1, 2)
    validated = metadata(instance, "validated", request.partition_key)
    assert validated["rejects_by_field_and_code"][0].data == {
        "field": "value",
        "code": "invalid_integer",
        "count": 1,
    }
    events = instance.all_logs(instance.get_runs()[0].run_id)
    assert "secret" not in "\n".join(str(event) for event in events)


def test_a_failed_file_is_observed_with_its_reason(
    defs: Definitions, engine: Engine, instance: DagsterInstance
) -> None:
    drop(engine, "bad.csv", "meter\nm1\n")
    tick(defs, instance, "inbox")
    (request,) = dispatch(defs, instance).run_requests
    assert not run(defs, instance, request.partition_key).success
    (record,) = instance.fetch_observations(AssetKey(["meters", "validated"]), limit=5).records
    shown = {k: v.value for k, v in record.asset_observation.metadata.items()}
    assert shown["error_code"] == "missing_column"
    assert "'value'" in shown["error"]


def test_a_finished_file_is_reported_again_and_not_run_again(
    defs: Definitions, engine: Engine, instance: DagsterInstance
) -> None:
    drop(engine, "a.csv", "meter,value\na,1\n")
    tick(defs, instance, "inbox")
    (job,) = engine.ledger.jobs()
    process_import(engine, job.id, worker="cli")  # another trigger was faster
    (request,) = dispatch(defs, instance).run_requests
    assert run(defs, instance, request.partition_key).success
    for stage in STAGES:
        assert "skipped" in metadata(instance, stage, request.partition_key)
    assert engine.ledger.job(job.id).attempt == 1


def test_reconcile_finds_a_job_whose_run_is_over(
    defs: Definitions, engine: Engine, instance: DagsterInstance
) -> None:
    drop(engine, "a.csv", "meter,value\na,1\n")
    tick(defs, instance, "inbox")
    first = dispatch(defs, instance)
    tick(defs, instance, "dispatch", cursor=first.cursor)
    (job,) = engine.ledger.jobs()
    made = instance.create_run_for_job(
        defs.resolve_job_def("import_meters"),
        tags={"dagster/run_key": first.run_requests[0].run_key},
        status=DagsterRunStatus.FAILURE,
    )
    engine.ledger.claim(
        job.id, worker="dead", run_id=made.run_id, lease_seconds=600, contract_version=None
    )
    said = tick(defs, instance, "reconcile")
    assert said.skip_message == "1 jobs are in hand, 1 needed help."
    healed = engine.ledger.job(job.id)
    assert (healed.state, healed.attempt) == (JobState.QUEUED, 2)
    (request,) = dispatch(defs, instance, cursor="{}").run_requests
    assert run(defs, instance, request.partition_key).success
    assert engine.ledger.job(job.id).state is JobState.SUCCEEDED


def test_reconcile_cancels_what_a_person_canceled(
    defs: Definitions, engine: Engine, instance: DagsterInstance
) -> None:
    drop(engine, "a.csv", "meter,value\na,1\n")
    tick(defs, instance, "inbox")
    first = dispatch(defs, instance)
    tick(defs, instance, "dispatch", cursor=first.cursor)
    instance.create_run_for_job(
        defs.resolve_job_def("import_meters"),
        tags={"dagster/run_key": first.run_requests[0].run_key},
        status=DagsterRunStatus.CANCELED,
    )
    tick(defs, instance, "reconcile")
    (job,) = engine.ledger.jobs()
    assert job.state is JobState.CANCELLED


def test_reconcile_ends_a_run_that_only_dagster_believes_in(
    defs: Definitions, engine: Engine, instance: DagsterInstance
) -> None:
    drop(engine, "a.csv", "meter,value\na,1\n")
    tick(defs, instance, "inbox")
    (job,) = engine.ledger.jobs()
    made = instance.create_run_for_job(
        defs.resolve_job_def("import_meters"), status=DagsterRunStatus.STARTED
    )
    engine.ledger.claim(
        job.id, worker="dead", run_id=made.run_id, lease_seconds=-1, contract_version=None
    )
    tick(defs, instance, "reconcile")
    assert instance.get_run_by_id(made.run_id).status is DagsterRunStatus.FAILURE
    assert engine.ledger.job(job.id).state is JobState.QUEUED


def test_a_key_that_the_ledger_does_not_know_fails_with_a_sentence(
    defs: Definitions, instance: DagsterInstance
) -> None:
    instance.add_dynamic_partitions("meters_uploads", ["made-up"])
    done = run(defs, instance, "made-up")
    assert not done.success
    assert "unknown_job" in json.dumps([str(event) for event in instance.all_logs(done.run_id)])


def metadata(instance: DagsterInstance, stage: str, key: str) -> dict:
    wanted = AssetRecordsFilter(asset_key=AssetKey(["meters", stage]), asset_partitions=[key])
    (record,) = instance.fetch_materializations(wanted, limit=5).records
    values = record.asset_materialization.metadata
    return {
        name: v.records if isinstance(v, TableMetadataValue) else v.value
        for name, v in values.items()
    }
