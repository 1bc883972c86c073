"""The command line against a real database: what it prints and its exit codes."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from pocket_ingest_tests.acceptance.running_stack import clean_environment

DECLARATION = """
    import pandera.polars as pa
    from pocket_ingest import Column, Dataset, Fixed

    class Meter(pa.DataFrameModel):
        meter: str
        value: int = pa.Field(ge=0)

    meters = Dataset(name="meters", model=Meter, key=("meter",), tenant=Fixed("town"))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "meters.py").write_text(textwrap.dedent(DECLARATION))
    (tmp_path / "good.csv").write_text("meter,value\na,1\nb,2\n")
    (tmp_path / "mixed.csv").write_text("meter,value\nc,1\nd,x\n")
    (tmp_path / "bad.csv").write_text("meter,reading\ne,1\n")
    return tmp_path


class Shell:
    """Calls the command line in a folder, on a database."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.environment = clean_environment(DATABASE_URL=url, POCKET_DATASETS="team")

    def __call__(self, *words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "pocket_ingest", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return done.returncode, done.stdout, done.stderr

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json")[1])


@pytest.fixture
def shell(folder: Path, database_url: str) -> Shell:
    return Shell(folder, database_url)


def test_exit_codes_say_what_became_of_the_file(shell: Shell) -> None:
    assert shell("run", "good.csv", "--dataset", "meters")[0] == 0
    assert shell("run", "mixed.csv", "--dataset", "meters")[0] == 3
    code, out, _ = shell("run", "bad.csv", "--dataset", "meters")
    assert code == 1
    assert "missing_column" in out


def test_status_lists_files_and_shows_one(shell: Shell) -> None:
    job = shell.json("run", "mixed.csv", "--dataset", "meters")
    code, out, _ = shell("status")
    assert code == 0
    assert "meters/town/mixed.csv" in out
    assert "1 created, 1 rejected" in out
    code, out, _ = shell("status", job["id"])
    assert code == 3
    assert "invalid_integer" in out
    rejects = Path(job["artifacts"]["rejects.csv"]).read_text()
    assert rejects.splitlines()[1].endswith("d,x")


def test_a_failed_file_is_retried_once_the_cause_is_mended(shell: Shell, folder: Path) -> None:
    assert shell("run", "bad.csv", "--dataset", "meters")[0] == 1
    assert shell.json("retry-failed", "--code", "other") == []
    declaration = folder / "team" / "meters.py"
    declaration.write_text(
        declaration.read_text().replace(
            'tenant=Fixed("town")',
            'tenant=Fixed("town"), columns={"value": Column(aliases=("Reading",))}',
        )
    )
    code, out, _ = shell("retry-failed", "--here")
    assert (code, out.strip()) == (0, "1 files are done.")
    (job,) = shell.json("status")
    assert (job["state"], job["attempt"], job["outcomes"]["created"]) == ("succeeded", 2, 1)


def test_the_declared_datasets_are_listed(shell: Shell) -> None:
    names = [entry["name"] for entry in shell.json("datasets")]
    assert names == ["meters", "permits", "transactions"]
    assert "inbox/permits/{tenant}/*" in shell("datasets")[1]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("run", "good.csv", "--dataset", "bills"), 2, "unknown_dataset"),
        (("run", "good.csv", "--dataset", "permits"), 2, "invalid_tenant"),
        (("run", "good.csv", "--dataset", "meters", "--tenant", "x"), 2, "invalid_tenant"),
        (("run", "nothing.csv", "--dataset", "meters"), 2, "does not exist"),
        (("status", "no-id"), 2, "unknown_job"),
        (("status", "00000000-0000-0000-0000-000000000000"), 2, "unknown_job"),
    ],
)
def test_wrong_usage_is_a_sentence(
    shell: Shell, words: tuple[str, ...], code: int, sentence: str
) -> None:
    found, _, said = shell(*words)
    assert found == code
    assert sentence in said
    assert "Traceback" not in said


def test_a_broken_declaration_names_its_line(shell: Shell, folder: Path) -> None:
    (folder / "team" / "meters.py").write_text("import pandera\n\nmeters = Dataset(\n")
    code, _, said = shell("datasets")
    assert code == 2
    assert "meters.py" in said
    assert "line 3" in said
    assert "Traceback" not in said


def test_an_unreachable_database_is_the_system_s_fault(shell: Shell) -> None:
    shell.environment["DATABASE_URL"] = "postgresql://nobody:secret@127.0.0.1:1/none"
    code, _, said = shell("status")
    assert code == 4
    assert "database_unavailable" in said
    assert "secret" not in said


def test_a_wrong_setting_is_named(shell: Shell) -> None:
    shell.environment["POCKET_RUN_FILES"] = "many"
    code, _, said = shell("status")
    assert code == 2
    assert "run_files" in said


def test_migrate_and_env_prepare_dagster_s_own_commands(shell: Shell, folder: Path) -> None:
    assert shell("migrate")[0] == 0
    code, out, _ = shell("env")
    assert code == 0
    variables = dict(line.removeprefix("export ").partition("=")[::2] for line in out.splitlines())
    assert "postgresql+psycopg2://" in variables["POCKET_DAGSTER_DATABASE_URL"]
    home = Path(variables["DAGSTER_HOME"].strip("'"))
    assert (home / "dagster.yaml").exists()
    assert (home / "workspace.yaml").exists()


def test_a_job_is_cancelled_and_its_file_can_be_sent_again(shell: Shell, folder: Path) -> None:
    job = shell.json("run", "bad.csv", "--dataset", "meters")
    assert "failed" in shell("cancel", job["id"])[1]  # it has ended; there is nothing to cancel
    assert shell("retry-failed")[0] == 0
    assert "The job is cancelled." in shell("cancel", job["id"])[1]
    again = shell.json("run", "bad.csv", "--dataset", "meters")
    assert again["id"] != job["id"]
