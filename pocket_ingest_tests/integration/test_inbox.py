"""Sweeps of an inbox: whatever is new is taken in exactly once, whatever its name and its time."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pocket_ingest.core.dataset import Fixed
from pocket_ingest.core.errors import Code, TransientError
from pocket_ingest.core.inbox import Sweep, survey_inbox, sweep_inbox
from pocket_ingest.core.process import Engine
from pocket_ingest_tests.examples import declare
from pocket_ingest_tests.fakes import Failing, behind

THINGS = declare({"id": str})
OTHERS = declare({"id": str}, name="others", tenant=Fixed("house"))


@pytest.fixture
def engine(make_engine: Callable[..., Engine]) -> Engine:
    return make_engine([THINGS, OTHERS])


@pytest.fixture
def put(make_store_file: Callable[[str, bytes], Path]) -> Callable[..., Path]:
    numbers = iter(range(10**6))

    def make(name: str, content: bytes | None = None, *, at: float | None = None) -> Path:
        said = f"id\n{next(numbers)}\n".encode() if content is None else content
        path = make_store_file(f"inbox/{name}", said)
        if at is not None:
            os.utime(path, (at, at))
        return path

    return make


def sweep(engine: Engine) -> Sweep:
    return sweep_inbox(engine, budget_seconds=60)


def names(sweep: Sweep) -> list[str]:
    return [job.upload.source_key.removeprefix("inbox/") for job in sweep.taken]


def test_takes_in_what_is_new_once(engine: Engine, put: Any) -> None:
    put("things/ann/b.csv")
    put("things/ann/a.csv")
    put("things/bob/a.csv")
    put("others/c.csv")
    first = sweep(engine)
    assert names(first) == [
        "others/c.csv",
        "things/ann/a.csv",
        "things/ann/b.csv",
        "things/bob/a.csv",
    ]
    assert [job.upload.tenant for job in first.taken] == ["house", "ann", "ann", "bob"]
    again = sweep(engine)
    assert (again.taken, again.recognised, again.known) == ([], [], 4)
    assert len(engine.ledger.jobs()) == 4


def test_an_overwritten_file_is_new_and_nothing_else_is_missed(engine: Engine, put: Any) -> None:
    put("things/ann/z.csv", b"id\n1\n")
    assert names(sweep(engine)) == ["things/ann/z.csv"]
    for content in (b"id\n2\n", b"id\n3\n"):
        put("things/ann/z.csv", content)
        put(f"things/ann/{content[3:4].decode()}.csv")
        assert "things/ann/z.csv" in names(sweep(engine))
    assert len(engine.ledger.jobs()) == 5


def test_no_time_decides_what_is_new(engine: Engine, put: Any) -> None:
    """Files of one second, of the future, and one that turns up late with an old time."""
    put("things/ann/m.csv", at=2**31)
    put("things/ann/n.csv", at=1000)
    assert len(sweep(engine).taken) == 2
    put("things/ann/late.csv", at=999)
    put("things/ann/same.csv", at=1000)
    assert sorted(names(sweep(engine))) == ["things/ann/late.csv", "things/ann/same.csv"]


def test_a_touched_file_is_recognised(engine: Engine, put: Any) -> None:
    path = put("things/ann/a.csv")
    (job,) = sweep(engine).taken
    os.utime(path, (0, 0))
    again = sweep(engine)
    assert (again.taken, again.recognised) == ([], [job])
    assert sweep(engine).known == 1


def test_an_old_unseen_file_among_many_is_found(engine: Engine, put: Any) -> None:
    for number in range(1100):  # more than twice what is looked up at once
        put(f"things/ann/{number:05}.csv", b"id\n")
    assert len(sweep(engine).taken) == 1100
    put("things/ann/00500a.csv", at=5)
    last = sweep(engine)
    assert names(last) == ["things/ann/00500a.csv"]
    assert last.known == 1100


def test_a_file_that_went_away_is_no_matter(engine: Engine, put: Any) -> None:
    path = put("things/ann/a.csv")
    sweep(engine)
    path.unlink()
    put("things/ann/b.csv")
    assert names(sweep(engine)) == ["things/ann/b.csv"]


def test_files_that_are_being_written_wait(make_engine: Callable[..., Engine], put: Any) -> None:
    engine = make_engine([THINGS], inbox_quiet_seconds=3600)
    put("things/ann/a.csv")
    put("things/ann/.hidden.csv")
    put("things/ann/a.csv.part")
    put("things/ann/~$a.csv")
    first = sweep(engine)
    assert (first.taken, first.waiting) == ([], ["inbox/things/ann/a.csv"])
    assert survey_inbox(engine).waiting == 1
    assert names(sweep(make_engine([THINGS]))) == ["things/ann/a.csv"]


def test_what_no_dataset_wants_is_told_and_stops_nothing(engine: Engine, put: Any) -> None:
    put("elsewhere/a.csv")
    put("things/a.csv")
    put("things/ann/deeper/a.csv")
    put("things/ /a.csv")
    put("things/ann/good.csv")
    found = sweep(engine)
    assert names(found) == ["things/ann/good.csv"]
    assert {key for key, _ in found.refused} == {
        "inbox/elsewhere/a.csv",
        "inbox/things/a.csv",
        "inbox/things/ann/deeper/a.csv",
        "inbox/things/ /a.csv",
    }
    assert sorted(said.partition(":")[0] for _, said in found.refused) == [
        "invalid_tenant",
        *["no_inbox_match"] * 3,
    ]


def test_a_name_that_is_no_text_stops_nothing(engine: Engine, put: Any) -> None:
    """Linux keeps names as bytes; a client may send them in any encoding."""
    path = put("things/ann/good.csv")
    bad = os.path.join(os.fsencode(path.parent), b"M\xe4rz.csv")  # noqa: PTH118 - bytes
    try:
        with open(bad, "wb") as file:  # noqa: PTH123 - bytes
            file.write(b"id\n1\n")
    except OSError:
        pytest.skip("this file system takes names in UTF-8 only")
    found = sweep(engine)
    assert names(found) == ["things/ann/good.csv"]
    ((key, said),) = found.refused
    assert "M" in key
    assert "UTF-8" in said
    f"{key}{said}".encode()  # can be shown
    assert survey_inbox(engine).refused == ((key, said),)


def test_a_file_that_changes_meanwhile_is_left_for_the_next_sweep(engine: Engine, put: Any) -> None:
    path = put("things/ann/a.csv", b"id\n1\n")
    put("things/ann/b.csv")

    def around(name: str, call: Callable[[], Any]) -> Any:
        if name == "pin" and path.read_bytes() == b"id\n1\n":
            path.write_bytes(b"id\n1\n2\n")
        return call()

    found = sweep(behind(engine, around, "store"))
    assert names(found) == ["things/ann/b.csv"]
    assert [said.partition(":")[0] for _, said in found.refused] == ["upload_changed"]
    (job,) = sweep(engine).taken
    assert job.upload.size_bytes == 7


def test_out_of_time_the_next_sweep_goes_on(engine: Engine, put: Any) -> None:
    for number in range(3):
        put(f"things/ann/{number}.csv")
    nothing = sweep_inbox(engine, budget_seconds=-1)
    assert not nothing.complete
    assert nothing.taken == []
    rest = sweep(engine)
    assert rest.complete
    assert len(rest.taken) == 3


def test_a_store_that_fails_is_the_callers_trouble(engine: Engine, put: Any) -> None:
    put("things/ann/a.csv")
    put("things/ann/b.csv")
    failing = Failing(
        method="pin", error=TransientError(Code.STORE_UNAVAILABLE, "It did not answer."), times=1
    )
    with pytest.raises(TransientError):
        sweep(behind(engine, failing, "store"))
    assert engine.ledger.jobs() == []
    assert len(sweep(engine).taken) == 2


def test_a_survey_changes_nothing(engine: Engine, put: Any) -> None:
    put("things/ann/a.csv")
    sweep(engine)
    put("things/ann/b.csv")
    put("nowhere.csv")
    survey = survey_inbox(engine)
    assert (survey.known, survey.new, survey.waiting, len(survey.refused)) == (1, 1, 0, 1)
    assert survey_inbox(engine) == survey
    assert len(engine.ledger.jobs()) == 1


def test_an_inbox_that_is_not_there_is_empty(engine: Engine) -> None:
    assert sweep(engine) == Sweep()
