"""The command line: the use cases from a shell.

Here: arguments, output for people or (``--json``) for programs, exit codes.
Not here: what the commands do (core, stack); heavy imports wait until a command needs them.
"""

import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NoReturn
from uuid import UUID

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pocket_ingest.core.errors import Code, IngestError, PermanentError, TransientError
from pocket_ingest.settings import Settings

if TYPE_CHECKING:
    from pocket_ingest.core.jobs import ImportJob
    from pocket_ingest.core.process import Engine

app = typer.Typer(
    name="pocket-ingest",
    help="Every uploaded file is a partition, every record has an outcome.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# Where nobody looks (a log, a pipe) there is no width to fit; 80 columns would fold every name.
out = Console(width=None if sys.stdout.isatty() else 140)
err = Console(stderr=True)

STANDARD_OUTPUT = "-"

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
DatasetName = Annotated[str | None, typer.Option("--dataset", help="Only this dataset.")]
TenantName = Annotated[str | None, typer.Option("--tenant", help="Only this tenant.")]


class Exit(IntEnum):
    """What the exit codes mean."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REJECTED = 3
    SYSTEM = 4
    BUSY = 5


USAGE_CODES = frozenset(
    {
        Code.UNKNOWN_DATASET,
        Code.UNKNOWN_JOB,
        Code.INVALID_TENANT,
        Code.INVALID_SETTING,
        Code.INVALID_CONTRACT,
        Code.UPLOAD_MISSING,
    }
)


@app.command()
def dev(
    samples: Annotated[
        bool, typer.Option("--samples", help="Put the shipped sample files into the inbox.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="End when every file in the inbox is finished.")
    ] = False,
) -> None:
    """Run the whole stack here: Postgres, Dagit, sensors. Ctrl-C stops everything."""
    from pocket_ingest.stack.dev import run_stack  # noqa: PLC0415

    raise typer.Exit(run_stack(_settings(), samples=samples, once=once, console=out))


@app.command()
def run(
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="The file.")
    ],
    dataset: Annotated[str, typer.Option("--dataset", help="The dataset it belongs to.")],
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", help="Who owns it; needed unless the dataset says so itself."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import one file now, in this process.

    Exit code 0: every record is in. 1: the file failed. 3: loaded, but records were rejected.
    5: another worker has the file in hand.
    """
    from pocket_ingest.core.intake import (  # noqa: PLC0415
        choose_tenant,
        find_dataset,
        take_in_file,
    )
    from pocket_ingest.core.process import process_import  # noqa: PLC0415
    from pocket_ingest.wiring import worker_name  # noqa: PLC0415

    with _engine() as engine:
        declared = find_dataset(dataset, engine.datasets)
        owner = choose_tenant(declared, tenant)
        intake = take_in_file(engine.store, engine.ledger, file, dataset=declared, tenant=owner)
        done = process_import(engine, intake.job.id, worker=worker_name())
        _tell_job(engine, done.job, as_json=as_json, note=done.skipped)
        raise typer.Exit(_exit_of(done.job))


@app.command()
def inspect(
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="The file.")
    ],
    dataset: Annotated[
        str | None, typer.Option("--dataset", help="Read it as a file of this dataset.")
    ] = None,
    normalized: Annotated[
        Path | None,
        typer.Option(
            "--normalized",
            metavar="OUT.csv",
            help="Write what was read as UTF-8 CSV with commas; - for standard output.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what the reader makes of a file. Needs no database.

    Exit code 0: every record can be read, and the header fits the dataset. 1: the file cannot be
    read, or does not fit. 3: some records cannot be read.
    """
    from pocket_ingest.core.inspecting import inspect_file  # noqa: PLC0415
    from pocket_ingest.core.intake import find_dataset  # noqa: PLC0415
    from pocket_ingest.stack.findings import inspection_facts, print_inspection  # noqa: PLC0415
    from pocket_ingest.wiring import load_datasets, reading_limits  # noqa: PLC0415

    settings = _settings()
    declared = find_dataset(dataset, load_datasets(settings)) if dataset else None
    with _output(normalized, file) as target:
        found = inspect_file(
            lambda: file.open("rb"),
            limits=reading_limits(settings),
            dataset=declared,
            name=file.name,
            normalized=target,
        )
    aside = normalized is not None and str(normalized) == STANDARD_OUTPUT
    if as_json:
        _print_json(inspection_facts(found, file.name), aside=aside)
    else:
        print_inspection(err if aside else out, found, file.name)
    if found.mismatch is not None:
        raise typer.Exit(Exit.FAILED)
    raise typer.Exit(Exit.REJECTED if found.problem_counts else Exit.DONE)


@app.command()
def status(
    job: Annotated[str | None, typer.Argument(help="A job's id; without it, the newest.")] = None,
    dataset: DatasetName = None,
    tenant: TenantName = None,
    limit: Annotated[int, typer.Option(help="How many jobs to list.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show what became of files: the newest jobs, or one job in detail."""
    from pocket_ingest.stack.progress import summary_table  # noqa: PLC0415

    with _engine() as engine:
        if job is not None:
            found = engine.ledger.job(_job_id(job))
            _tell_job(engine, found, as_json=as_json)
            raise typer.Exit(_exit_of(found))
        jobs = engine.ledger.jobs(dataset=dataset, tenant=tenant, limit=limit)
        if as_json:
            _print_json([_job_facts(engine, j) for j in jobs])
        elif jobs:
            out.print(summary_table(jobs[::-1]))
        else:
            out.print("No file has come yet.")


@app.command()
def datasets(as_json: AsJson = False) -> None:
    """List the declared datasets, checking each contract."""
    from pocket_ingest.wiring import load_datasets  # noqa: PLC0415

    found = load_datasets(_settings())
    facts = [
        {
            "name": name,
            "inbox": f"inbox/{dataset.inbox_pattern}",
            "key": list(dataset.key),
            "columns": {f.name: str(f.dtype) for f in dataset.contract.fields},
            "existing": str(dataset.contract.existing),
            "duplicates": str(dataset.contract.duplicates),
            "contract_version": dataset.contract.version,
            "description": dataset.description,
        }
        for name, dataset in found.items()
    ]
    if as_json:
        _print_json(facts)
        return
    table = Table("dataset", "inbox", "key", "columns", "existing rows", "contract")
    for fact in facts:
        table.add_row(
            escape(str(fact["name"])),
            escape(str(fact["inbox"])),
            ", ".join(fact["key"]),
            str(len(fact["columns"])),
            str(fact["existing"]),
            str(fact["contract_version"]),
        )
    out.print(table)


@app.command()
def migrate(as_json: AsJson = False) -> None:
    """Bring the ledger's and Dagster's tables to this version's shape."""
    from pocket_ingest.adapters.postgres.schema import migrate as bring_up  # noqa: PLC0415
    from pocket_ingest.stack.home import database, prepare_home, upgrade_dagster  # noqa: PLC0415

    settings = _settings()
    prepare_home(settings)
    with database(settings) as url:
        revision = bring_up(url)
        upgrade_dagster(settings, url)
    if as_json:
        _print_json({"revision": revision})
    else:
        out.print(f"The ledger is at revision {revision}; Dagster's tables are up to date.")


@app.command("retry-failed")
def retry_failed(
    dataset: DatasetName = None,
    tenant: TenantName = None,
    code: Annotated[
        str | None, typer.Option("--code", help="Only those that failed with this error code.")
    ] = None,
    here: Annotated[
        bool, typer.Option("--here", help="Run them in this process, without Dagster.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Queue failed files again; the sensors start their runs."""
    from pocket_ingest.core.jobs import RETRYABLE, JobState  # noqa: PLC0415
    from pocket_ingest.core.process import process_import  # noqa: PLC0415
    from pocket_ingest.wiring import worker_name  # noqa: PLC0415

    with _engine() as engine:
        failed = engine.ledger.jobs(dataset=dataset, tenant=tenant, states=RETRYABLE, limit=100_000)
        retried = []
        for job in reversed(failed):
            wanted = code is None or job.error_code == code
            if wanted and engine.ledger.retry(job.id, actor="cli"):
                if here:
                    job = process_import(engine, job.id, worker=worker_name()).job  # noqa: PLW2901
                retried.append(job)
        if as_json:
            _print_json([str(job.id) for job in retried])
        else:
            out.print(f"{len(retried)} files are {'done' if here else 'queued again'}.")
        if any(job.state is JobState.FAILED for job in retried if here):
            raise typer.Exit(Exit.FAILED)


@app.command()
def cancel(job: Annotated[str, typer.Argument(help="The job's id.")]) -> None:
    """Cancel a file's job; what has been committed stays."""
    with _engine() as engine:
        found = engine.ledger.request_cancel(_job_id(job), actor="cli")
        out.print(f"The job is {found.state}" + (" and will stop." if found.is_running else "."))


@app.command()
def env() -> None:
    """Print the stack's variables for a shell: eval "$(pocket-ingest env)".

    With them, `psql "$DATABASE_URL"` and Dagster's own commands work on the running stack.
    """
    from pocket_ingest.stack.home import database, stack_environment  # noqa: PLC0415

    settings = _settings()
    with database(settings) as url:
        for name, value in stack_environment(settings, url).items():
            print(f"export {name}={shlex.quote(value)}")  # noqa: T201 - for a shell to read


def main() -> NoReturn:
    """Run the command line; errors become one sentence and an exit code."""
    try:
        app()
    except IngestError as error:
        err.print(f"[red]{escape(str(error))}[/]", soft_wrap=True)
        sys.exit(_exit_of_error(error))
    sys.exit(Exit.DONE)


def _exit_of_error(error: IngestError) -> Exit:
    if isinstance(error, TransientError):
        return Exit.SYSTEM
    return Exit.USAGE if error.code in USAGE_CODES else Exit.FAILED


def _settings() -> Settings:
    try:
        return Settings()
    except ValueError as error:
        raise PermanentError(Code.INVALID_SETTING, str(error)) from None


@contextmanager
def _engine() -> Iterator["Engine"]:
    """The engine on a database that is up to date."""
    from pocket_ingest.adapters.postgres.schema import migrate as bring_up  # noqa: PLC0415
    from pocket_ingest.stack.home import database  # noqa: PLC0415
    from pocket_ingest.wiring import build_engine  # noqa: PLC0415

    settings = _settings()
    with database(settings) as url:
        bring_up(url)
        yield build_engine(settings, url=url)


def _job_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise PermanentError(
            Code.UNKNOWN_JOB, "A job's id looks like 123e4567-e89b-12d3-a456-426614174000."
        ) from None


def _exit_of(job: "ImportJob") -> Exit:
    from pocket_ingest.core.jobs import FINISHED, JobState  # noqa: PLC0415

    if job.state is JobState.SUCCEEDED:
        return Exit.REJECTED if job.outcomes.rejected else Exit.DONE
    return Exit.FAILED if job.state in FINISHED else Exit.BUSY


def _tell_job(
    engine: "Engine", job: "ImportJob", *, as_json: bool, note: str | None = None
) -> None:
    from pocket_ingest.stack.progress import describe_job, print_lines  # noqa: PLC0415

    facts = _job_facts(engine, job)
    if as_json:
        _print_json(facts | ({"skipped": note} if note else {}))
        return
    print_lines(out, [describe_job(job)])
    if note:
        out.print(f"Skipped: {note}. No row was touched.")
    table = Table(show_header=False, box=None)
    for name in ("id", "partition_key", "sha256", "attempt"):
        table.add_row(name, str(facts[name]))
    for name, address in facts["artifacts"].items():
        table.add_row(name, escape(address))
    out.print(table)
    rejects = job.report.get("validated", {}).get("rejects_by_field_and_code", [])
    if rejects:
        counts = Table("field", "error code", "records", title="Rejected", title_justify="left")
        for entry in rejects:
            counts.add_row(entry["field"] or "(record)", entry["code"], str(entry["count"]))
        out.print(counts)


def _job_facts(engine: "Engine", job: "ImportJob") -> dict[str, Any]:
    """A job as plain values. Artifact keys become addresses."""
    facts: dict[str, Any] = asdict(job)
    upload: Mapping[str, Any] = facts.pop("upload")
    facts["artifacts"] = {n: engine.store.address(k) for n, k in job.artifacts.items()}
    return {**facts, **{name: upload[name] for name in upload if name != "id"}}


@contextmanager
def _output(path: Path | None, source: Path) -> Iterator[BinaryIO | None]:
    """Where the normalized records go; a file is there whole or not at all."""
    if path is None:
        yield None
        return
    if str(path) == STANDARD_OUTPUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.exists() and path.samefile(source):
        raise typer.BadParameter("it is the file that is read", param_hint="--normalized")
    unfinished = path.with_name(f"{path.name}.part")
    try:
        with unfinished.open("wb") as target:
            yield target
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _print_json(value: Any, *, aside: bool = False) -> None:
    text = json.dumps(value, default=str, indent=2)
    print(text, file=sys.stderr if aside else sys.stdout)


if __name__ == "__main__":
    main()
