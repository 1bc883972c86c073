"""What is happening, file by file, for a person who watches.

Here: lines and tables about jobs, for the CLI and the running stack.
Not here: how the jobs are found or what they do.
"""

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pocket_ingest.core.jobs import ImportJob, JobState, Outcomes

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
    said = escape(job.sentence)
    return f"[{style}]{mark}[/] {name}  [dim]{said}[/]"


def summary_table(jobs: Iterable[ImportJob], expected: Mapping[str, bool] | None = None) -> Table:
    """Every file with its state and outcomes, and their sums.

    Args:
        jobs: in the order to show.
        expected: job id to whether it ended as expected, where something was.
    """
    table = Table(title="What became of every file", title_justify="left")
    table.add_column("file", overflow="fold")
    table.add_column("state")
    table.add_column("read", justify="right")
    table.add_column("outcomes")
    if expected:
        table.add_column("as expected", justify="center")
    read, outcomes = 0, Outcomes()
    for job in jobs:
        read, outcomes = read + (job.records_read or 0), outcomes + job.outcomes
        _, style = STYLES.get(job.state, ("", "dim"))
        said = job.error_code if job.state is JobState.FAILED else job.state
        row = [
            escape(f"{job.upload.dataset}/{job.upload.tenant}/{job.upload.file_name}"),
            f"[{style}]{said}[/]",
            "" if job.records_read is None else str(job.records_read),
            str(job.outcomes),
        ]
        if expected:
            row.append("✓" if expected.get(str(job.id)) else "[red]no[/]")
        table.add_row(*row)
    table.add_section()
    table.add_row("[bold]all[/]", "", f"[bold]{read}[/]", f"[bold]{outcomes}[/]")
    return table


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines that hold Rich's markup, unwrapped."""
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False)
