"""Sample files to try the package with, and what becomes of each.

Here: files as people send them, good and bad, laid out as they go below ``inbox/``
(``permits/<jurisdiction>/<file>``, ``transactions/<family>/<file>``), and ``expected.json``, which
says what the shipped datasets make of them. Every town, family and account in them is invented.
Not here: files that tests make up for one case.

The files are kept byte for byte: some hold a NUL, a byte order mark or a byte that is not UTF-8 on
purpose.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What becomes of one sample file.

    Attributes:
        about: what the file is a sample of.
        state: the job's last state.
        error_code: why the file fails, if it does.
        records_read: records in the file; 0 where it fails before the first.
        rejected: records that are rejected.
        codes: error code to the number of (record, field) pairs that have it.
        outcomes: outcome to count, without those that are 0; None where they depend on which of
            the tenant's files is loaded first.
    """

    about: str
    state: Literal["succeeded", "failed"]
    error_code: str | None
    records_read: int
    rejected: int
    codes: Mapping[str, int]
    outcomes: Mapping[str, int] | None = None


def sample_files() -> dict[str, Path]:
    """The sample files by their path below the inbox, in its order."""
    root = _root()
    files = [path for path in root.glob("*/*/*") if path.is_file()]
    return {path.relative_to(root).as_posix(): path for path in sorted(files)}


def expected() -> dict[str, Expected]:
    """What becomes of each sample file, by its path below the inbox."""
    entries = json.loads((_root() / "expected.json").read_text(encoding="utf-8"))
    return {path: Expected(**entry) for path, entry in entries.items()}


def _root() -> Path:
    # Wheels are installed unzipped, so the resource is a folder on disk.
    return Path(str(resources.files(__name__)))
