"""Writes what the documentation takes from the code: error codes, settings, commands.

`python docs/generate.py` writes it; a test fails where that was forgotten.
"""

import re
import sys
from pathlib import Path
from typing import Any

import typer

from pocket_ingest.cli import app
from pocket_ingest.core.errors import CATALOGUE, Scope
from pocket_ingest.settings import Settings

PROJECT = Path(__file__).parents[1]
ERROR_CODES = PROJECT / "docs" / "error-codes.md"
README = PROJECT / "README.md"

SCOPES = {
    Scope.RECORD: (
        "Rejected records",
        "The record is in `rejects.csv` with its code and a hint; the rest of the file is loaded.",
    ),
    Scope.FILE: (
        "Refused files",
        (
            "The job fails and nothing more of the file is loaded. Mended, it is run again by a "
            "backfill of its partition or `pocket-ingest retry-failed`."
        ),
    ),
    Scope.NOTICE: (
        "Notices",
        "The file is read all the same; its report and `pocket-ingest inspect` say this of it.",
    ),
    Scope.SYSTEM: ("Everything else", "About the configuration or the system, not about a file."),
}


def error_codes() -> str:
    """The text of docs/error-codes.md."""
    lines = [
        "# Error codes",
        "",
        (
            "Each code is stable: it is never renamed and never means anything else. This page is "
            "written by `docs/generate.py` from `pocket_ingest/core/errors.py`."
        ),
    ]
    for scope, (title, text) in SCOPES.items():
        lines += [
            "",
            f"## {title}",
            "",
            text,
            "",
            "| code | meaning | what to do |",
            "|---|---|---|",
        ]
        lines += [
            f"| `{code}` | {entry.meaning} | {entry.remedy} |"
            for code, entry in CATALOGUE.items()
            if entry.scope is scope
        ]
    return "\n".join(lines) + "\n"


def settings_table() -> str:
    """The README's table of settings."""
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        default = field.default
        shown = "" if default in (None, (), "") else f"`{default}`".replace("True", "true")
        rows.append(f"| `POCKET_{name.upper()}` | {shown} | {field.description} |")
    return "\n".join(rows)


def commands_table() -> str:
    """The README's table of commands."""
    rows = ["| command | what it does |", "|---|---|"]
    for name, command in sorted(typer.main.get_command(app).commands.items()):
        words = [_shown(p) for p in command.params if p.name != "help"]
        usage = " ".join(["pocket-ingest", name, *words])
        rows.append(f"| `{usage}` | {command.get_short_help_str(200)} |")
    return "\n".join(rows)


def _shown(parameter: Any) -> str:
    """An argument or option as a usage line shows it."""
    is_argument = parameter.param_type_name == "argument"
    name = parameter.name.upper() if is_argument else parameter.opts[0]
    return str(name if parameter.required else f"[{name}]")


def readme(text: str) -> str:
    """The README with its generated parts written anew."""
    for name, content in {"settings": settings_table(), "commands": commands_table()}.items():
        text = re.sub(
            rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)",
            lambda match, content=content: f"{match[1]}{content}\n{match[2]}",
            text,
            flags=re.DOTALL,
        )
    return text


def main() -> int:
    """Write everything."""
    ERROR_CODES.write_text(error_codes(), encoding="utf-8")
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
