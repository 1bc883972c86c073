"""Outcomes add up, stages keep their order, errors keep what they say."""

import pickle
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocket_ingest.core.errors import Cancelled, Code, IngestError, PermanentError, TransientError
from pocket_ingest.core.jobs import (
    FINISHED,
    OUTCOME_NAMES,
    RETRYABLE,
    RUNNING,
    STAGES,
    TRANSITIONS,
    ImportJob,
    JobState,
    Outcomes,
    Stage,
    Upload,
)

COUNTS = st.builds(Outcomes, **{name: st.integers(0, 10**12) for name in OUTCOME_NAMES})
NOW = datetime(2024, 1, 1, tzinfo=UTC)


def job(**said: Any) -> ImportJob:
    upload = Upload(
        id=1,
        dataset="things",
        tenant="acme",
        source_key="a",
        source_version="1",
        pinned_key="b",
        file_name="a.csv",
        size_bytes=1,
        sha256="0" * 64,
        partition_key="k",
        received_at=NOW,
    )
    nothing: Mapping[str, Any] = dict.fromkeys(ImportJob.__dataclass_fields__)
    values = {"id": UUID(int=1), "upload": upload, "state": JobState.QUEUED, "attempt": 1}
    return ImportJob(**{**nothing, **values, "outcomes": Outcomes(), **said})


@given(COUNTS, COUNTS, COUNTS)
def test_outcomes_add_up(a: Outcomes, b: Outcomes, c: Outcomes) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + Outcomes() == a
    assert (a + b).total == a.total + b.total
    assert sum(a.as_dict().values()) == a.total


def test_outcomes_are_the_seven_of_the_vocabulary() -> None:
    assert OUTCOME_NAMES == (
        "created",
        "updated",
        "unchanged",
        "duplicate",
        "stale",
        "conflict",
        "rejected",
    )
    assert str(Outcomes(created=17, rejected=13)) == "17 created, 13 rejected"
    assert str(Outcomes()) == ""


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            {"state": JobState.FAILED, "error_code": "empty_file", "error_summary": "It is empty."},
            "empty_file: It is empty.",
        ),
        ({"state": JobState.LOADING}, "loading"),
        ({"state": JobState.SUCCEEDED, "records_read": 0}, "no record: the file has a header only"),
        (
            {
                "state": JobState.SUCCEEDED,
                "records_read": 2,
                "outcomes": Outcomes(created=1, stale=1),
            },
            "2 records: 1 created, 1 stale",
        ),
    ],
)
def test_a_job_says_what_became_of_its_file(said: dict[str, Any], sentence: str) -> None:
    assert job(**said).sentence == sentence


def test_stages_done_are_those_with_a_stamp() -> None:
    assert job().stages_done == ()
    assert job(verified_at=NOW, validated_at=NOW).stages_done == (Stage.UPLOAD, Stage.VALIDATED)
    every = {"verified_at": NOW, "validated_at": NOW, "loaded_at": NOW, "exported_at": NOW}
    assert job(**every).stages_done == STAGES


def test_every_state_has_its_transitions() -> None:
    assert set(TRANSITIONS) == set(JobState)
    assert {s for s, to in TRANSITIONS.items() if not to} == FINISHED - RETRYABLE
    for state in RETRYABLE:
        assert TRANSITIONS[state] == {JobState.QUEUED}
    for state in RUNNING:  # a worker that dies or is interrupted leaves a job that can go on
        assert TRANSITIONS[state] >= {JobState.QUEUED, JobState.FAILED, JobState.CANCELLED}
    assert [s for s, to in TRANSITIONS.items() if JobState.SUCCEEDED in to] == [JobState.EXPORTING]


@pytest.mark.parametrize("kind", [PermanentError, TransientError, Cancelled])
def test_errors_cross_a_process_border_whole(kind: type[IngestError]) -> None:
    error = pickle.loads(pickle.dumps(kind(Code.EMPTY_FILE, "The file is empty.")))
    assert type(error) is kind
    assert (error.code, error.detail) == (Code.EMPTY_FILE, "The file is empty.")
    assert str(error) == "empty_file: The file is empty."


def test_a_cancel_needs_no_words() -> None:
    assert Cancelled().code is Code.CANCELLED
