"""How an inspection is told: for a person, and as plain values.

Here: tables and sentences. Not here: what is found (core/inspecting.py).
"""

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pocket_ingest.core.inspecting import Inspection

SHOWN_PROBLEMS = 20
SHOWN_COLUMNS = 100
SHOWN_RECORDS = 3
SHOWN_WIDTH = 30


def inspection_facts(found: Inspection, name: str) -> dict[str, Any]:
    """An inspection as plain values, for ``--json``."""
    file = asdict(found.found)
    file["notices"] = [{"code": str(n.code), "detail": n.detail} for n in found.found.notices]
    return {
        "file": name,
        "found": file,
        "header": {
            "line": found.header.line,
            "rows": len(found.header.rows),
            "names": list(found.header.names),
        },
        "dataset": _mapping_facts(found),
        "records": {
            "read": found.records_read,
            "sound": found.sound,
            "malformed": found.records_read - found.sound,
            "malformed_by_code": dict(found.problem_counts.most_common()),
        },
        "lines": asdict(found.account) | {"total": found.account.total},
        "first_records": [asdict(record) for record in found.first],
        "problems": [
            {
                "record": problem.record,
                "line": problem.line,
                "lines": problem.lines,
                "field": problem.field,
                "code": str(problem.code),
                "hint": problem.hint,
            }
            for problem in found.problems
        ],
    }


def print_inspection(console: Console, found: Inspection, name: str) -> None:
    """An inspection for a person."""
    facts = Table(title=escape(name), title_justify="left", show_header=False, box=None)
    for title, text in _file_lines(found):
        facts.add_row(title, escape(text))
    console.print(facts)
    for notice in found.found.notices:
        console.print(f"[yellow]{notice.code}[/]: {escape(notice.detail)}", soft_wrap=True)
    console.print(_columns_table(found))
    if found.mismatch is not None:
        console.print(f"[red]{escape(str(found.mismatch))}[/]", soft_wrap=True)
    if found.problems:
        console.print(_problems_table(found))
    console.print(_accounting(found), soft_wrap=True)


def _file_lines(found: Inspection) -> list[tuple[str, str]]:
    file = found.found
    packed = "".join(f" in {container}" for container in reversed(file.containers))
    lines = [("format", file.format + packed)]
    if file.member:
        lines.append(("member", file.member))
    if file.encoding:
        lines.append(("encoding", f"{file.encoding} ({file.encoding_reason})"))
    if file.format == "csv":
        marks = [
            f"{title} {getattr(file, title)!r}" if getattr(file, title) else f"no {title}"
            for title in ("delimiter", "quote", "escape", "comment")
        ]
        lines.append(("dialect", f"{', '.join(marks)} ({file.dialect_reason})"))
    if file.sheet:
        lines.append(("sheet", file.sheet))
    if found.header.rows:
        rows = "" if len(found.header.rows) == 1 else f", {len(found.header.rows)} rows"
        lines.append(("header", f"line {found.header.line}{rows}"))
    else:
        lines.append(("header", "none"))
    return lines


def _columns_table(found: Inspection) -> Table:
    """The columns, one a row, with what the first records have in each."""
    fields = _fields_by_position(found)
    shown = found.first[:SHOWN_RECORDS]
    table = Table("#", "column", *(["field"] if fields is not None else []))
    for record in shown:
        table.add_column(f"record {record.record}", max_width=SHOWN_WIDTH, no_wrap=True)
    for position, name in enumerate(found.header.names[:SHOWN_COLUMNS]):
        row = [str(position + 1), escape(name) or "[dim](no name)[/]"]
        if fields is not None:
            row.append(fields.get(position, "[yellow]not in the contract[/]"))
        table.add_row(*row, *(_shown(record.cells[position]) for record in shown))
    hidden = len(found.header.names) - SHOWN_COLUMNS
    if hidden > 0:
        table.add_row("", f"[dim]and {hidden} more[/]")
    if found.match is not None:
        for name in found.match.absent:
            table.add_row("", "[yellow]absent[/]", name)
    return table


def _fields_by_position(found: Inspection) -> dict[int, str] | None:
    if found.match is None:
        return None
    return {position: name for name, position in found.match.positions.items()}


def _shown(cell: str | None) -> str:
    if cell is None:
        return "[dim]-[/]"
    text = cell if cell.isprintable() else repr(cell)[1:-1]
    return escape(text if len(text) <= SHOWN_WIDTH else f"{text[: SHOWN_WIDTH - 1]}…")


def _problems_table(found: Inspection) -> Table:
    counts = ", ".join(f"{count} {code}" for code, count in found.problem_counts.most_common())
    table = Table("record", "line", "code", "what is wrong", title=f"Problems: {counts}")
    table.title_justify = "left"
    for problem in found.problems[:SHOWN_PROBLEMS]:
        table.add_row(
            str(problem.record), str(problem.line), str(problem.code), escape(problem.hint)
        )
    hidden = sum(found.problem_counts.values()) - min(SHOWN_PROBLEMS, len(found.problems))
    if hidden:
        table.add_row("", "", "", f"[dim]and {hidden} more; --json lists them[/]")
    return table


def _accounting(found: Inspection) -> str:
    account = found.account
    parts = [
        f"{count} {kind.removesuffix('_lines')}" for kind, count in asdict(account).items() if count
    ]
    malformed = found.records_read - found.sound
    return (
        f"{found.records_read} records: {found.sound} sound, {malformed} malformed. "
        f"{account.total} lines: {', '.join(parts) or 'none'}."
    )


def _mapping_facts(found: Inspection) -> dict[str, Any] | None:
    if found.mismatch is not None:
        return {"error": str(found.mismatch.code), "detail": found.mismatch.detail}
    if found.match is None:
        return None
    return {
        "positions": {name: place + 1 for name, place in found.match.positions.items()},
        "extra": list(found.match.extra),
        "absent": list(found.match.absent),
        "reordered": found.match.reordered,
    }
