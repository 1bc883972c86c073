"""Every setting, read once from the environment and `.env`.

Here: one frozen `Settings`; the only place that reads environment variables.
Not here: a dataset's own policies, which are in its declaration.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


class Settings(BaseSettings):
    """The settings, each with a default that works."""

    model_config = SettingsConfigDict(
        env_prefix="POCKET_",
        env_file=".env",
        env_file_encoding="utf-8",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        populate_by_name=True,
        # A value may be a URL with a password.
        hide_input_in_errors=True,
    )

    home: Path = Field(
        default=Path(".pocket"),
        description="Folder of everything local: embedded Postgres, files, Dagster's home.",
    )
    database_url: SecretStr | None = Field(
        default=None,
        validation_alias=AliasChoices("POCKET_DATABASE_URL", "DATABASE_URL"),
        description="A Postgres to use instead of the embedded one. `DATABASE_URL` works as well.",
    )
    table_schema: str = Field(
        default="public",
        pattern=r"^[a-z_][a-z0-9_]*$",
        description="Database schema of the datasets' tables.",
    )
    datasets: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Folders or importable modules with your datasets, separated by commas.",
    )
    shipped_datasets: bool = Field(
        default=True, description="Whether the datasets that ship with the package are there too."
    )
    storage: Literal["local"] = Field(default="local", description="Where files are kept.")
    files: Path | None = Field(
        default=None,
        description="Folder of the local store: `inbox/`, `uploads/`, `artifacts/`. "
        "Default: `files` in `POCKET_HOME`.",
    )
    inbox_quiet_seconds: float = Field(
        default=2.0,
        ge=0,
        description="A file changed more recently than this may still be being written.",
    )
    inbox_interval_seconds: int = Field(
        default=5, ge=1, description="Seconds between two looks into the inbox and the outbox."
    )
    reconcile_interval_seconds: int = Field(
        default=30, ge=1, description="Seconds between two looks for jobs whose worker is gone."
    )
    run_files: int = Field(
        default=50, ge=1, le=1000, description="Most files that share a Dagster run."
    )
    run_bytes: int = Field(
        default=64 * 2**20, ge=1, description="Most bytes of files that share a Dagster run."
    )
    max_runtime_seconds: int = Field(
        default=6 * 3600, ge=60, description="A run is ended after this time."
    )
    lease_seconds: float = Field(
        default=60.0,
        gt=0,
        description="How long a worker may be silent before its job is given to another.",
    )
    max_losses: int = Field(
        default=3,
        ge=0,
        description="Lost workers after which a job fails instead of being retried.",
    )
    transient_tries: int = Field(
        default=6, ge=1, description="Tries of a stage that meets a lost connection, deadlock, ..."
    )
    chunk_bytes: int = Field(
        default=4 * 2**20,
        ge=1024,
        description="Bytes of a file that are read, validated and committed at once.",
    )
    chunk_records: int = Field(
        default=50_000, ge=1, description="Most records that are committed at once."
    )
    max_record_bytes: int = Field(
        default=8 * 2**20, ge=1024, description="A longer record is rejected."
    )
    max_field_bytes: int = Field(
        default=8 * 2**20, ge=1024, description="A record with a longer field is rejected."
    )
    max_columns: int = Field(default=2_000, ge=1, description="A wider file is refused.")
    max_unpacked_bytes: int = Field(
        default=64 * 2**30, ge=1024, description="A packed file that holds more is refused."
    )
    max_unpack_ratio: int = Field(
        default=200, ge=2, description="A packed file that grows by more than this is refused."
    )
    max_members: int = Field(
        default=1_000, ge=1, description="An archive with more members is refused."
    )
    max_sheet_bytes: int = Field(
        default=256 * 2**20,
        ge=2**20,
        description="A spreadsheet that takes more memory to read is refused.",
    )
    webserver_host: str = Field(
        default="127.0.0.1",
        description="Address that Dagit listens on. It has no login: keep it behind a proxy.",
    )
    webserver_port: int = Field(
        default=3000,
        ge=0,
        le=65535,
        description="Port of Dagit; the next free one is taken if it is in use.",
    )

    @field_validator("database_url", mode="after")
    @classmethod
    def _postgres(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().startswith(
            ("postgres://", "postgresql://")
        ):
            raise ValueError("must begin with postgresql://")
        return value

    @field_validator("datasets", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("home", "files", mode="after")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return None if value is None else value.expanduser().absolute()

    @property
    def files_root(self) -> Path:
        """Root folder of the local store."""
        return self.files if self.files is not None else self.home.absolute() / "files"
