"""Where a setting comes from, and which values are refused."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.settings import Settings
from pocket_ingest.wiring import database_url


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_settings: Any) -> None:
    """Neither the environment nor a ``.env`` of whoever runs the tests has a say."""
    monkeypatch.chdir(tmp_path)


def test_defaults_work_without_anything(tmp_path: Path) -> None:
    settings = Settings()
    assert settings.database_url is None
    assert settings.home == tmp_path / ".pocket"
    assert settings.files_root == tmp_path / ".pocket" / "files"
    assert settings.datasets == ()
    assert settings.shipped_datasets


def test_without_a_database_the_reader_is_told_what_to_do() -> None:
    with pytest.raises(PermanentError) as error:
        database_url(Settings())
    assert error.value.code is Code.INVALID_SETTING
    assert "pocket-ingest dev" in error.value.detail


@pytest.mark.parametrize(
    ("environment", "dotenv", "expected"),
    [
        ({"DATABASE_URL": "postgresql://a"}, "", "postgresql://a"),
        ({"POCKET_DATABASE_URL": "postgresql://b"}, "", "postgresql://b"),
        (
            {"DATABASE_URL": "postgresql://a", "POCKET_DATABASE_URL": "postgresql://b"},
            "",
            "postgresql://b",
        ),
        ({}, "DATABASE_URL=postgresql://c", "postgresql://c"),
        ({}, "DATABASE_URL=postgresql://c\nPOCKET_DATABASE_URL=postgresql://d", "postgresql://d"),
        (
            {"POCKET_DATABASE_URL": "postgresql://b"},
            "POCKET_DATABASE_URL=postgresql://d",
            "postgresql://b",
        ),
        ({"DATABASE_URL": ""}, "", None),
        ({"DATABASE_URL": "", "POCKET_DATABASE_URL": "postgresql://b"}, "", "postgresql://b"),
        ({"DATABASE_URL": "postgresql://a", "POCKET_DATABASE_URL": ""}, "", "postgresql://a"),
    ],
)
def test_the_database(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    environment: dict[str, str],
    dotenv: str,
    expected: str | None,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / ".env").write_text(dotenv)
    found = Settings().database_url
    assert (found.get_secret_value() if found else None) == expected


def test_the_password_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://pocket:s3cret@db/pocket")
    settings = Settings()
    assert "s3cret" not in f"{settings!r}{settings}{settings.model_dump()}"
    assert database_url(settings) == "postgresql://pocket:s3cret@db/pocket"


def test_dotenv_and_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "POCKET_RUN_FILES=7\nPOCKET_HOME=somewhere\nOTHER=1\nPOCKET_TABLE_SCHEMA=\n"
        "POCKET_DATASETS= a , b.c ,\n"
    )
    monkeypatch.setenv("POCKET_RUN_FILES", "8")
    settings = Settings()
    assert settings.run_files == 8
    assert settings.home == tmp_path / "somewhere"
    assert settings.table_schema == "public"
    assert settings.datasets == ("a", "b.c")
    assert Settings(run_files=9).run_files == 9


def test_files_may_be_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POCKET_FILES", "~/files")
    assert Settings().files_root == Path("~/files").expanduser()


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Settings().run_files = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RUN_FILES", "0"),
        ("RUN_FILES", "many"),
        ("LEASE_SECONDS", "0"),
        ("CHUNK_BYTES", "1"),
        ("TABLE_SCHEMA", 'public"; DROP TABLE x'),
        ("TABLE_SCHEMA", "Public"),
        ("STORAGE", "ftp"),
        ("WEBSERVER_PORT", "70000"),
        ("MAX_LOSSES", "-1"),
    ],
)
def test_values_that_make_no_sense_are_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"POCKET_{name}", value)
    with pytest.raises(ValidationError, match=f"(?i){name}"):
        Settings()


def test_every_setting_says_what_it_is() -> None:
    assert [n for n, field in Settings.model_fields.items() if not field.description] == []
