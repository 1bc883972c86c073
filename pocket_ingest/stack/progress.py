"""What is happening, file by file, for a person who watches.

Here: lines and tables about jobs, for the CLI and the running stack.
Not here: how the jobs are found or what they do.
"""

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pocket_ingest.core.jobs import FINISHED, OUTCOME_NAMES, ImportJob, JobState

STYLES = {
    JobState.SUCCEEDED: ("✓", "green"),
    JobState.FAILED: ("✗", "red"),
    JobState.CANCELLED: ("-", "yellow"),
    JobState.QUARANTINED: ("!", "yellow"),
}


def describe_job(job: ImportJob) -> str:
    """One line about a job, with Rich's markup."""
    mark, style = STYLES.get(job.state, ("·", "dim"))
    name = escape(f"{job.upload.dataset}/{job.upload.tenant}/{job.upload.file_name}")
    if job.state is JobState.FAILED:
        said = escape(f"{job.error_code}: {job.error_summary}")
    elif job.state in FINISHED:
        said = describe_outcomes(job)
    else:
        said = str(job.state)
    return f"[{style}]{mark}[/] {name}  [dim]{said}[/]"


def describe_outcomes(job: ImportJob) -> str:
    """The counts of a job, those that are zero left out."""
    counts = ", ".join(f"{n} {name}" for name, n in job.outcomes.as_dict().items() if n)
    read = job.records_read or 0
    return f"{read} records: {counts}" if counts else f"{read} records"


def summary_table(jobs: Iterable[ImportJob], expected: Mapping[str, bool] | None = None) -> Table:
    """Every file with its state and the seven outcomes, and their sums.

    Args:
        jobs: in the order to show.
        expected: job id to whether it ended as expected, where something was.
    """
    table = Table(title="What became of every file", title_justify="left")
    table.add_column("file", overflow="fold")
    table.add_column("state")
    for name in ("read", *OUTCOME_NAMES):
        table.add_column(name, justify="right")
    if expected:
        table.add_column("as expected", justify="center")
    sums = [0] * (1 + len(OUTCOME_NAMES))
    for job in jobs:
        counts = [job.records_read or 0, *job.outcomes.as_dict().values()]
        sums = [a + b for a, b in zip(sums, counts, strict=True)]
        _, style = STYLES.get(job.state, ("", "dim"))
        said = job.error_code if job.state is JobState.FAILED else job.state
        row = [
            escape(f"{job.upload.dataset}/{job.upload.tenant}/{job.upload.file_name}"),
            f"[{style}]{said}[/]",
            *(str(n) if n else "[dim]·[/]" for n in counts),
        ]
        if expected:
            row.append("✓" if expected.get(str(job.id)) else "[red]no[/]")
        table.add_row(*row)
    table.add_section()
    table.add_row("[bold]all[/]", "", *(f"[bold]{n}[/]" for n in sums))
    return table


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines that hold Rich's markup, unwrapped."""
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)
