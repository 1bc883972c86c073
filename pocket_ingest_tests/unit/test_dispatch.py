"""Which jobs share a run, and which a dead run has left behind: decisions without a system."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocket_ingest.core.dispatch import RunFate, RunPlan, dead_runs, judge, new_keys, plan_runs
from pocket_ingest.core.jobs import RUNNING, JobState, OutboxEntry
from pocket_ingest.core.ports import Unfinished


def entry(
    number: int, key: str, *, dataset: str = "things", size: int = 1, losses: int = 0
) -> OutboxEntry:
    return OutboxEntry(
        id=number,
        job_id=UUID(int=number),
        dataset=dataset,
        tenant="acme",
        partition_key=key,
        file_name=key,
        size_bytes=size,
        attempt=1,
        losses=losses,
        created_at=datetime(2024, 1, 1, tzinfo=UTC),
    )


def keys(plans: list[RunPlan]) -> list[tuple[str, ...]]:
    return [plan.partition_keys for plan in plans]


def plan(entries: list[OutboxEntry], known: Any = None, **limits: int) -> list[RunPlan]:
    return plan_runs(entries, known or {}, **{"max_files": 50, "max_bytes": 1000, **limits})


def test_new_files_share_a_run_in_their_order() -> None:
    plans = plan([entry(n, f"k{n}") for n in (3, 1, 2)])
    assert keys(plans) == [("k3", "k1", "k2")]
    assert plans[0].run_key == "things-3-2-3"


def test_a_run_is_bounded_by_files_and_bytes() -> None:
    entries = [entry(n, f"k{n}", size=n * 100) for n in range(1, 7)]
    assert keys(plan(entries, max_files=2, max_bytes=10**6)) == [
        ("k1", "k2"),
        ("k3", "k4"),
        ("k5", "k6"),
    ]
    assert keys(plan(entries, max_bytes=600)) == [("k1", "k2", "k3"), ("k4",), ("k5",), ("k6",)]
    assert keys(plan([entry(1, "huge", size=10**9)])) == [("huge",)]


def test_known_keys_share_a_run_only_where_they_are_neighbours() -> None:
    known = {"things": ["a", "b", "c", "d", "e"]}
    entries = [entry(1, "e"), entry(2, "b"), entry(3, "a"), entry(4, "new"), entry(5, "newer")]
    # The new ones are added behind the last known one.
    assert keys(plan(entries, known)) == [("a", "b"), ("e", "new", "newer")]


def test_datasets_never_share_a_run() -> None:
    plans = plan([entry(1, "a"), entry(2, "a", dataset="others"), entry(3, "b")])
    assert [(p.dataset, p.partition_keys) for p in plans] == [
        ("things", ("a", "b")),
        ("others", ("a",)),
    ]


def test_a_key_that_waits_twice_runs_once_in_its_latest_attempt() -> None:
    (only,) = plan([entry(1, "a"), entry(2, "a")])
    assert [e.id for e in only.entries] == [2]


def test_new_keys_are_those_that_are_not_known() -> None:
    known = {"things": ["a"]}
    plans = plan([entry(1, "a"), entry(2, "b"), entry(3, "x", dataset="others")], known)
    assert new_keys(plans, known) == {"things": ["b"], "others": ["x"]}
    assert new_keys([], known) == {}


@given(
    known=st.lists(st.sampled_from("abcdefgh"), unique=True),
    waiting=st.lists(
        st.tuples(st.sampled_from("abcdefghij"), st.integers(1, 400)),
        unique_by=lambda item: item[0],
    ),
    max_files=st.integers(1, 4),
)
def test_every_job_is_in_one_run_and_every_run_is_a_range(
    known: list[str], waiting: list[tuple[str, int]], max_files: int
) -> None:
    entries = [entry(n, key, size=size) for n, (key, size) in enumerate(waiting, 1)]
    plans = plan(entries, {"things": known}, max_files=max_files)
    assert sorted(e.id for p in plans for e in p.entries) == [e.id for e in entries]
    order = known + new_keys(plans, {"things": known}).get("things", [])
    assert len(set(order)) == len(order)
    for run in plans:
        first = order.index(run.partition_keys[0])
        assert tuple(order[first : first + len(run.entries)]) == run.partition_keys
        assert len(run.entries) <= max_files
        assert len(run.entries) == 1 or sum(e.size_bytes for e in run.entries) <= 1000
    assert len({run.run_key for run in plans}) == len(plans)


def unfinished(state: JobState, silent: float) -> Unfinished:
    return Unfinished(
        job_id=UUID(int=1),
        state=state,
        attempt=1,
        token=1,
        run_key="key",
        run_id="run",
        silent_seconds=silent,
    )


@pytest.mark.parametrize(
    ("state", "silent", "fate", "helped"),
    [
        # waiting for the run that it was handed to, for 5 seconds or for 500; grace is 60
        (JobState.QUEUED, 5, RunFate.MISSING, False),
        (JobState.QUEUED, 500, RunFate.MISSING, True),
        (JobState.QUEUED, 500, RunFate.ALIVE, False),
        (JobState.QUEUED, 5, RunFate.OVER, True),
        (JobState.QUEUED, 5, RunFate.CANCELED, True),
        # in a worker's hands, with a lease that holds or is over
        (JobState.LOADING, -5, RunFate.ALIVE, False),
        (JobState.LOADING, 5, RunFate.ALIVE, True),
        (JobState.LOADING, -5, RunFate.OVER, True),
        (JobState.LOADING, -5, RunFate.CANCELED, True),
        (JobState.VALIDATING, -5, RunFate.MISSING, False),
        (JobState.EXPORTING, 5, RunFate.MISSING, True),
    ],
)
def test_who_needs_help(state: JobState, silent: float, fate: RunFate, helped: bool) -> None:
    job = unfinished(state, silent)
    # A waiting job is known by the key of its run, a running one by the id.
    mine, other = ("run", "key") if state in RUNNING else ("key", "run")
    fates = {mine: fate, other: RunFate.ALIVE if fate is RunFate.OVER else RunFate.OVER}
    if fate is RunFate.MISSING:
        del fates[mine]
    repairs = judge([job], fates, grace_seconds=60)
    assert bool(repairs) == helped
    if helped:
        assert repairs[0].job == job
        assert repairs[0].reason
        assert repairs[0].cancel == (fate is RunFate.CANCELED)


def test_a_run_that_is_alive_without_its_worker_is_dead() -> None:
    silent = unfinished(JobState.LOADING, 5)
    fates = {"run": RunFate.ALIVE}
    assert dead_runs([silent], judge([silent], fates, grace_seconds=60), fates) == {"run"}
    over = {"run": RunFate.OVER}
    assert dead_runs([silent], judge([silent], over, grace_seconds=60), over) == set()


def test_a_run_of_which_another_job_is_renewed_is_not_dead() -> None:
    silent, held = unfinished(JobState.LOADING, 5), unfinished(JobState.VALIDATING, -5)
    fates = {"run": RunFate.ALIVE}
    both = [silent, held]
    assert dead_runs(both, judge(both, fates, grace_seconds=60), fates) == set()


def test_a_file_that_a_worker_died_of_is_tried_alone() -> None:
    waiting = [entry(1, "a"), entry(2, "b", losses=1), entry(3, "c"), entry(4, "d")]
    plans = plan_runs(waiting, {}, max_files=10, max_bytes=100)
    assert keys(plans) == [("a",), ("b",), ("c", "d")]
