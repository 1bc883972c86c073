"""`pocket-ingest dev` as a newcomer meets it: samples, once, again, Ctrl-C."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pocket_ingest.datasets.samples import sample_files
from pocket_ingest_tests.acceptance.running_stack import FAST, clean_environment, running_stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """An empty folder, which the tests of this module use one after the other."""
    with tempfile.TemporaryDirectory(prefix="pocket-dev-") as temporary:
        place = Path(temporary).resolve()
        place.chmod(0o755)
        yield place


def pocket_ingest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pocket_ingest", *arguments],
        cwd=folder,
        env=clean_environment(**FAST),
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )


def test_the_samples_end_as_expected(folder: Path) -> None:
    done = pocket_ingest(folder, "dev", "--samples", "--once")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Dagit is at http://127.0.0.1:" in done.stdout
    for path in sample_files():
        assert path in done.stdout.replace("inbox/", "")
    assert f"{len(sample_files())} files ended as expected" in done.stdout
    assert not left_behind(folder)


def test_again_it_goes_on_with_the_same_data(folder: Path) -> None:
    done = pocket_ingest(folder, "dev", "--samples", "--once")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(sample_files())} files in the inbox are known" in done.stdout
    assert "taken in" not in done.stdout


def test_an_unexpected_end_is_exit_code_1(folder: Path) -> None:
    broken = folder / ".pocket" / "files" / "inbox" / "permits" / "elm" / "broken.csv"
    broken.parent.mkdir(parents=True)
    broken.write_text("not,the,columns\n1,2,3\n")
    done = pocket_ingest(folder, "dev", "--once")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "missing_column" in done.stdout


def test_a_second_stack_in_the_same_home_is_refused(folder: Path) -> None:
    with running_stack(folder=folder):
        second = pocket_ingest(folder, "dev")
        assert second.returncode == 1
        assert "already_running" in second.stderr


def test_everything_killed_then_started_again_ends_as_if_nothing_had_been() -> None:
    with tempfile.TemporaryDirectory(prefix="pocket-killed-") as temporary:
        place = Path(temporary).resolve()
        place.chmod(0o755)
        process = subprocess.Popen(
            [sys.executable, "-m", "pocket_ingest", "dev", "--samples"],
            cwd=place,
            env=clean_environment(**FAST),
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            if "taken in" in line:  # files are on their way
                break
        for member in [*psutil.Process(process.pid).children(recursive=True), process]:
            member.kill()
        process.wait()
        process.stdout.close()
        done = pocket_ingest(place, "dev", "--once")
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{len(sample_files())} files ended as expected" in done.stdout


def test_ctrl_c_stops_everything_that_it_started(folder: Path) -> None:
    with running_stack(folder=folder) as stack:
        family = stack.descendants()
        assert len(family) >= 4  # webserver, daemon and a code server each
        assert stack.stop() == 0
        _, alive = psutil.wait_procs(family, timeout=10)
        assert not alive
    assert not left_behind(folder)


def left_behind(folder: Path) -> list[str]:
    """Processes that still have to do with the folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or [])
        if str(folder) in words:
            found.append(words)
    return found
