"""The benchmarks by name: what is compared with what.

Here: one function for each; docs/performance.md explains the figures.
Not here: the work that is measured (work.py) and how (measuring.py).
"""

import shutil
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy.engine import make_url

from benchmarks.measuring import (
    DATASET,
    TENANT,
    Measured,
    Result,
    copy_into,
    in_turn,
    median,
    private_folder,
    private_server,
    ratio,
    run_child,
    run_work,
    size_mb,
)

STAGES = {
    "upload": ("started_at", "verified_at"),
    "validated": ("verified_at", "validated_at"),
    "loaded": ("validated_at", "loaded_at"),
    "exports": ("loaded_at", "exported_at"),
}


def compare_imports(records: int, repetitions: int) -> Result:
    """A whole import in a fresh process against a bare COPY of the good rows."""
    found: dict[str, list[float]] = {}
    peaks: list[float] = []

    def note(**values: float) -> None:
        for name, value in values.items():
            found.setdefault(name, []).append(value)

    with private_folder() as folder, private_server(folder) as server:
        good = run_work("generate", folder, records, folder=folder).said["good"]
        permits, clean, again = (folder / f"{n}.csv" for n in ("permits", "clean", "again"))
        shutil.copyfile(permits, again)
        template = _create(server, "template")
        run_work("prepare", template, folder=folder)
        for number in range(repetitions):
            url = _create(server, f"bench_{number}", template="template")
            columns = _make_bare(url)
            home = folder / f"home_{number}"
            _settle(url)
            note(copy=copy_into(url, "bare", columns, clean))
            _settle(url)
            first = _import(permits, url, home)
            _expect(first.said, "created", good)
            note(new=first.seconds, **_stages(first.said))
            peaks.append(first.peak_mb)
            _settle(url)
            second = _import(again, url, home)
            _expect(second.said, "unchanged", good)
            note(unchanged=second.seconds, unchanged_load=_stages(second.said)["stage loaded"])
            note(recognised_process=_import(permits, url, home).seconds)
            seen = run_work("recognise", url, home, TENANT, permits, folder=folder)
            note(recognised=seen.said["seconds"])
            _drop(server, f"bench_{number}")
            shutil.rmtree(home)
        sizes = {"file": size_mb(permits), "clean file": size_mb(clean)}
    inside = [
        sum(parts) for parts in zip(*(found[f"stage {name}"] for name in STAGES), strict=True)
    ]
    return Result(
        name="import",
        ratios={
            "import, whole process / bare COPY": ratio(found["new"], found["copy"]),
            "import, its four stages / bare COPY": ratio(inside, found["copy"]),
            "import, loading alone / bare COPY": ratio(found["stage loaded"], found["copy"]),
            "all unchanged, whole process / bare COPY": ratio(found["unchanged"], found["copy"]),
            "all unchanged, loading alone / bare COPY": ratio(
                found["unchanged_load"], found["copy"]
            ),
        },
        seconds={
            "bare COPY": median(found["copy"]),
            "import": median(found["new"]),
            **{f"  {name}": median(found[f"stage {name}"]) for name in STAGES},
            "  start, imports, intake": median(
                [whole - part for whole, part in zip(found["new"], inside, strict=True)]
            ),
            "all unchanged": median(found["unchanged"]),
            "  loaded, all unchanged": median(found["unchanged_load"]),
            "same file again, whole process": median(found["recognised_process"]),
            "same file again, recognised": median(found["recognised"]),
        },
        peak_mb={"import": median(peaks)},
        sizes_mb=sizes,
        rows={"records": records, "good": good},
        repetitions=repetitions,
    )


def compare_reading(records: int, repetitions: int) -> Result:
    """This project's reader against pyarrow's streaming reader, both to chunks of text.

    Of two files: one with quotes in most records, and newlines in some, and one without a quote.
    """
    with private_folder() as folder:
        run_work("generate", folder, records, folder=folder)
        files = {"quoted": folder / "permits.csv", "plain": folder / "plain.csv"}
        found = {
            kind: in_turn(repetitions, _rivals(("read_own", "read_pyarrow"), file, folder))
            for kind, file in files.items()
        }
        for each in found.values():
            if each["read_own"][0].said["good"] != each["read_pyarrow"][0].said["good"]:
                raise RuntimeError("the two readers found different numbers of records")
        sides = {
            f"{kind}, {side}": found[kind][f"read_{side}"]
            for kind in files
            for side in ("own", "pyarrow")
        }
        return Result(
            name="reading",
            ratios={
                f"{kind}, own / pyarrow": ratio(
                    _seconds(found[kind]["read_own"]), _seconds(found[kind]["read_pyarrow"])
                )
                for kind in files
            },
            seconds={name: median(_seconds(runs)) for name, runs in sides.items()},
            peak_mb={name: _peak(runs) for name, runs in sides.items()},
            sizes_mb={name: size_mb(file) for name, file in files.items()},
            rows={
                "records": records,
                "malformed": found["quoted"]["read_own"][0].said["malformed"],
            },
            repetitions=repetitions,
        )


def compare_normalizing(records: int, repetitions: int) -> Result:
    """``inspect --normalized`` as a whole process against the reader alone."""
    with private_folder() as folder:
        run_work("generate", folder, records, folder=folder)
        file, normal = folder / "permits.csv", folder / "normal.csv"
        command = [sys.executable, "-m", "pocket_ingest", "inspect", str(file), "--json"]
        found = in_turn(
            repetitions,
            {
                "inspect": lambda: run_child(
                    [*command, "--normalized", str(normal)], folder=folder, good_exits=(3,)
                ),
                "read": lambda: run_work("read_own", file, folder=folder),
            },
        )
        whole = [run.seconds for run in found["inspect"]]
        return Result(
            name="normalizing",
            ratios={
                "whole process / reading alone": ratio(whole, _seconds(found["read"])),
            },
            seconds={"inspect --normalized": median(whole)},
            peak_mb={"inspect --normalized": _peak(found["inspect"])},
            sizes_mb={"file": size_mb(file), "normalized": size_mb(normal)},
            rows={"records": records},
            repetitions=repetitions,
        )


def compare_spreadsheets(records: int, repetitions: int) -> Result:
    """A workbook to chunks of text, against openpyxl's read-only mode to rows of values."""
    with private_folder() as folder:
        run_work("generate_workbook", folder, records, folder=folder)
        file = folder / "permits.xlsx"
        found = in_turn(repetitions, _rivals(("read_own", "read_openpyxl"), file, folder))
        own, other = found["read_own"], found["read_openpyxl"]
        if own[0].said["good"] != other[0].said["good"]:
            raise RuntimeError("the two readers found different numbers of records")
        return Result(
            name="spreadsheets",
            ratios={
                "openpyxl / own": ratio(_seconds(other), _seconds(own)),
                "openpyxl / own, whole process": ratio(
                    [run.seconds for run in other], [run.seconds for run in own]
                ),
            },
            seconds={"own": median(_seconds(own)), "openpyxl": median(_seconds(other))},
            peak_mb={"own": _peak(own), "openpyxl": _peak(other)},
            sizes_mb={"file": size_mb(file)},
            rows={"records": records},
            repetitions=repetitions,
        )


def compare_validation(records: int, repetitions: int) -> Result:
    """The validation stage against the same rules as Polars expressions, on the same reader."""
    with private_folder() as folder:
        good = run_work("generate", folder, records, folder=folder).said["good"]
        file = folder / "permits.csv"
        names = ("validate_own", "validate_by_hand", "read_own")
        found = in_turn(repetitions, _rivals(names, file, folder))
        own, hand, reading = (found[name] for name in names)
        for each in (own, hand):
            if each[0].said["good"] != good:
                raise RuntimeError(f"{each[0].said['good']} of {good} records were accepted")
        beyond = [
            ratio(
                [a - r for a, r in zip(_seconds(own), _seconds(reading), strict=True)],
                [b - r for b, r in zip(_seconds(hand), _seconds(reading), strict=True)],
            )
        ]
        return Result(
            name="validation",
            ratios={
                "stage / by hand": ratio(_seconds(own), _seconds(hand)),
                "stage / by hand, reading apart": beyond[0],
            },
            seconds={
                "stage": median(_seconds(own)),
                "by hand": median(_seconds(hand)),
                "  reading, in both": median(_seconds(reading)),
            },
            peak_mb={"stage": _peak(own), "by hand": _peak(hand)},
            sizes_mb={"file": size_mb(file)},
            rows={"records": records, "good": good},
            repetitions=repetitions,
        )


USUAL_RECORDS = {"reading": 1_000_000, "normalizing": 1_000_000}
"""150 MB, so that the start does not weigh; of any other benchmark 200,000."""

BENCHMARKS: Mapping[str, Callable[[int, int], Result]] = {
    "import": compare_imports,
    "reading": compare_reading,
    "normalizing": compare_normalizing,
    "spreadsheets": compare_spreadsheets,
    "validation": compare_validation,
}


def _rivals(names: tuple[str, ...], file: Path, folder: Path) -> dict[str, Callable[[], Measured]]:
    return {name: lambda n=name: run_work(n, file, folder=folder) for name in names}  # type: ignore[misc]


def _seconds(runs: list[Measured]) -> list[float]:
    return [run.said["seconds"] for run in runs]


def _peak(runs: list[Measured]) -> float:
    return median([run.peak_mb for run in runs])


def _import(file: Path, url: str, home: Path) -> Measured:
    """``pocket-ingest run`` as a person calls it; exit code 3 says that records were rejected."""
    return run_child(
        [
            str(Path(sys.executable).with_name("pocket-ingest")),
            "run",
            str(file),
            f"--dataset={DATASET}",
            f"--tenant={TENANT}",
            "--json",
        ],
        folder=file.parent,
        environment={
            "DATABASE_URL": url,
            "POCKET_HOME": str(home),
            "POCKET_DATASETS": "benchmarks.permits",
            "POCKET_SHIPPED_DATASETS": "false",
        },
        good_exits=(0, 3),
    )


def _stages(job: dict[str, Any]) -> dict[str, float]:
    """Seconds of each stage, from the ledger's stamps."""
    at = {name: datetime.fromisoformat(job[name]) for pair in STAGES.values() for name in pair}
    return {
        f"stage {name}": (at[after] - at[before]).total_seconds()
        for name, (before, after) in STAGES.items()
    }


def _expect(job: dict[str, Any], outcome: str, rows: int) -> None:
    if job["outcomes"][outcome] != rows:
        raise RuntimeError(f"{job['outcomes'][outcome]} of {rows} records are {outcome}")


def _create(server: str, name: str, *, template: str = "template1") -> str:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"'.encode())
    return make_url(server).set(database=name).render_as_string(hide_password=False)


def _drop(server: str, name: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def _make_bare(url: str) -> list[str]:
    """The dataset's table without its provenance columns: same types, same primary key.

    Returns the columns that a file has.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE bare (LIKE {DATASET} INCLUDING ALL);"
            "ALTER TABLE bare DROP COLUMN _upload_id, DROP COLUMN _job_id, DROP COLUMN _record;"
            f"ALTER TABLE bare ALTER COLUMN _tenant SET DEFAULT '{TENANT}'".encode()
        )
        rows = connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'bare'::regclass AND attnum > 0 "
            "AND NOT attisdropped AND attname <> '_tenant' ORDER BY attnum"
        )
        return [row[0] for row in rows]


def _settle(url: str) -> None:
    """Whoever comes next shall not pay for the pages that others have left dirty."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
