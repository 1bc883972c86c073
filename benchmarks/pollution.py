"""How much of polluted files a reader reads right: ours beside others, on the same files.

Here: the score, the readers, and ``python -m benchmarks.pollution``.
Not here: the files (polluted.py); speed.

A file scores 0 to 10: 1 for being read at all, and precision, recall and F1 of its header cells, of
its records and of all its cells, header and records alike. They are compared as multisets of raw
text. The score of a set is the mean over its files, or over its kinds with ``--weights kinds``.

Readers that are no dependencies of this project run where they can be imported; ``--packages DIR``
names a folder to import them from (``pip install --target DIR duckdb clevercsv pandas``). csv,
clevercsv and pandas take the first row for the header, as they do by default; duckdb decides.
"""

import argparse
import csv
import importlib
import importlib.util
import io
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.polluted import Polluted, Row, make_polluted, make_real_like

Table = tuple[list[Row], list[Row]]
Reader = Callable[[Path], Table]
"""Header rows and records of a file; raises Refused where there is nothing to read."""

SETS = {"polluted": make_polluted, "real-like": make_real_like}
SCORES = (
    "success",
    *(
        f"{part} {of}"
        for part in ("header", "record", "cell")
        for of in ("precision", "recall", "F1")
    ),
)
READ = frozenset({0, 3})
"""Exit codes of ``inspect``: everything is read, or some records are malformed."""
SHOWN = 300
csv.field_size_limit(2**30)


class Refused(Exception):  # noqa: N818 - not an error of this program
    """The reader says that it cannot read a file."""


# ---------------------------------------------------------------------------- the score


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a reader made of a file.

    Attributes:
        file: which one.
        scores: ten numbers of 0 to 1, named in SCORES.
        difference: the first thing that is not right, in words; nothing where all is.
    """

    file: Polluted
    scores: tuple[float, ...]
    difference: str

    @property
    def total(self) -> float:
        """Of 0 to 10."""
        return sum(self.scores)


def score(file: Polluted, read: Table) -> tuple[float, ...]:
    """Compare what was read of a file with what is right."""
    header, records = read
    return (
        1.0,
        *_compare(_cells(file.header), _cells(header)),
        *_compare(map(tuple, file.records), map(tuple, records)),
        *_compare(_cells([*file.header, *file.records]), _cells([*header, *records])),
    )


def _cells(rows: Iterable[Row]) -> Iterable[str]:
    return (cell for row in rows for cell in row)


def _compare(right: Iterable[Hashable], found: Iterable[Hashable]) -> tuple[float, float, float]:
    wanted, given = Counter(right), Counter(found)
    if not wanted and not given:
        return 1.0, 1.0, 1.0
    common = (wanted & given).total()
    precision = common / given.total() if given else 0.0
    recall = common / wanted.total() if wanted else 0.0
    both = precision + recall
    return precision, recall, 2 * precision * recall / both if both else 0.0


def try_reader(reader: Reader, file: Polluted, path: Path) -> Outcome:
    """Read a file and score it; a reader that fails scores nothing.

    Nothing to read may be refused as well as read as nothing, but not by a crash.
    """
    try:
        found = reader(path)
    except Refused as refusal:
        nothing = not file.header and not file.records
        scores = tuple([1.0 if nothing else 0.0] * len(SCORES))
        return Outcome(
            file=file, scores=scores, difference="" if nothing else f"refused: {refusal}"
        )
    except Exception as error:  # noqa: BLE001 - whatever it raises, it has not read the file
        scores = tuple([0.0] * len(SCORES))
        return Outcome(file=file, scores=scores, difference=f"failed: {error!r}")
    difference = first_difference(file, found)
    return Outcome(file=file, scores=score(file, found), difference=difference)


def first_difference(file: Polluted, read: Table) -> str:
    """Where the reading leaves the right one; nothing where it does not."""
    for what, right, found in (
        ("header row", file.header, read[0]),
        ("record", file.records, read[1]),
    ):
        for number, (wanted, given) in enumerate(zip(right, found, strict=False), 1):
            if wanted != given:
                return f"{what} {number}: right {_short(wanted)}\n  read {_short(given)}"
        if len(right) != len(found):
            rest = right[len(found) :] or found[len(right) :]
            word = "missing" if len(right) > len(found) else "too many"
            return f"{len(right)} {what}s right, {len(found)} read; first {word}: {_short(rest[0])}"
    return ""


def _short(row: Row) -> str:
    text = f"{len(row)} cells {row!r}"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


# ---------------------------------------------------------------------------- the readers


def read_with_inspect(path: Path, *, in_child: bool = False) -> Table:
    """What ``pocket-ingest inspect`` writes of a file.

    Args:
        path: of the file.
        in_child: in a process of its own, as people run it.
    """
    with tempfile.TemporaryDirectory(prefix="pocket-inspect-") as folder:
        target = Path(folder) / "normalized.csv"
        arguments = ["inspect", str(path), "--normalized", str(target), "--json"]
        report = (_run_child if in_child else _run_here)(arguments)
        with target.open(encoding="utf-8", newline="") as text:
            # A line of nothing is a record of one empty cell.
            rows = [row or [""] for row in csv.reader(text)]
    header_rows = int(report["header"]["rows"])
    # Where the file has no header, the first line holds made-up names.
    return rows[:header_rows], rows[max(header_rows, 1) :]


def _run_here(arguments: list[str]) -> dict[str, Any]:
    from typer.testing import CliRunner  # noqa: PLC0415 - readers load what they need

    from pocket_ingest.cli import app  # noqa: PLC0415
    from pocket_ingest.core.errors import IngestError  # noqa: PLC0415

    done = CliRunner().invoke(app, arguments)
    if isinstance(done.exception, IngestError):
        raise Refused(str(done.exception)) from done.exception
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if done.exit_code not in READ:
        raise RuntimeError(f"exit code {done.exit_code}: {done.output}")
    return _report(done.stdout)


def _run_child(arguments: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "pocket_ingest", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in READ:
        crashed = "Traceback" in done.stderr
        raise (RuntimeError if crashed else Refused)(done.stderr.strip())
    return _report(done.stdout)


def _report(text: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(text)
    return report


def read_with_csv(path: Path) -> Table:
    """Python's csv with the dialect that its Sniffer finds."""
    text = path.read_bytes().decode("utf-8-sig")
    if not text:
        return [], []
    dialect = csv.Sniffer().sniff(text)
    return _first_is_header(csv.reader(io.StringIO(text, newline=""), dialect))


def read_with_clevercsv(path: Path) -> Table:
    """CleverCSV, which finds encoding and dialect."""
    return _first_is_header(importlib.import_module("clevercsv").read_table(str(path)))


def _first_is_header(rows: Iterable[Row]) -> Table:
    filled = [row for row in rows if row]
    return filled[:1], filled[1:]


def read_with_pandas(path: Path) -> Table:
    """Pandas' own parser with its guess of the delimiter."""
    frame = importlib.import_module("pandas").read_csv(
        path, sep=None, engine="python", dtype=str, keep_default_na=False
    )
    # Where records are longer than the header, their first cells become an index.
    extra = 0 if type(frame.index).__name__ == "RangeIndex" else frame.index.nlevels
    frame = frame.reset_index() if extra else frame
    rows = frame.fillna("").astype(str).to_numpy().tolist()
    return [[str(name) for name in frame.columns[extra:]]], rows


def read_with_duckdb(path: Path, *, options: str = "") -> Table:
    """DuckDB with everything found by itself, all columns text."""
    with importlib.import_module("duckdb").connect() as database:
        database.execute("SET threads TO 1")
        database.execute("SET enable_progress_bar TO false")
        given = f"(?, all_varchar = true{options})"
        sniffed = database.execute(f"SELECT HasHeader FROM sniff_csv{given}", [str(path)])
        (has_header,) = sniffed.fetchone()
        found = database.execute(f"SELECT * FROM read_csv{given}", [str(path)])
        names = [column[0] for column in found.description]
        rows = [["" if cell is None else cell for cell in row] for row in found.fetchall()]
    return [names] if has_header else [], rows


def _refusing(reader: Reader, path: Path) -> Table:
    """Others raise what they like; that they do is their way to refuse."""
    try:
        return reader(path)
    except Exception as error:
        raise Refused(f"{type(error).__name__}: {error}"[:SHOWN]) from error


OURS: dict[str, Reader] = {
    "inspect": read_with_inspect,
    "inspect-process": partial(read_with_inspect, in_child=True),
}
LENIENT = ", strict_mode = false, null_padding = true, ignore_errors = true, parallel = false"
OTHERS: dict[str, tuple[str, Reader]] = {
    "csv": ("csv", read_with_csv),
    "clevercsv": ("clevercsv", read_with_clevercsv),
    "pandas": ("pandas", read_with_pandas),
    "duckdb": ("duckdb", read_with_duckdb),
    "duckdb-lenient": ("duckdb", partial(read_with_duckdb, options=LENIENT)),
}
"""By name: the package that is needed, and the reader."""


def find_readers() -> dict[str, Reader]:
    """Ours, and each of the others that can be imported."""
    found: dict[str, Reader] = dict(OURS)
    for name, (package, reader) in OTHERS.items():
        if importlib.util.find_spec(package):
            found[name] = partial(_refusing, reader)
    return found


# ---------------------------------------------------------------------------- the command


def choose(files: Sequence[Polluted], *, kind: str = "", limit: int = 0) -> list[Polluted]:
    """The files of the kinds that begin with a text, at most so many, in equal steps."""
    chosen = sorted((file for file in files if file.kind.startswith(kind)), key=lambda f: f.kind)
    if not limit or len(chosen) <= limit:
        return chosen
    return [chosen[place * len(chosen) // limit] for place in range(limit)]


def measure(reader: Reader, files: Iterable[Polluted], folder: Path) -> list[Outcome]:
    """Let a reader read files that lie in a folder."""
    return [try_reader(reader, file, folder / f"{file.name}.csv") for file in files]


def by_kind(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """In the order in which the kinds come."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.file.kind, []).append(outcome)
    return found


def mean(outcomes: Sequence[Outcome], weights: str = "none") -> float:
    """Of the files' scores, or of the kinds' means."""
    if weights == "kinds":
        return fmean(mean(group) for group in by_kind(outcomes).values())
    return fmean(outcome.total for outcome in outcomes)


def keep(files: Iterable[Polluted], folder: Path) -> None:
    """Write files, each with its right reading beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        (folder / f"{file.name}.csv").write_bytes(file.data)
        right = {"kind": file.kind, "header": file.header, "records": file.records}
        text = json.dumps(right, ensure_ascii=False, indent=1)
        (folder / f"{file.name}.right.json").write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, read, print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pollution",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--set", choices=[*SETS, "all"], default="all", help="default all")
    parser.add_argument("--kind", default="", help="only kinds that begin so")
    parser.add_argument("--limit", type=int, default=0, help="files of each set (default all)")
    parser.add_argument("--seed", type=int, default=1, help="other files of the same kinds")
    parser.add_argument(
        "--reader", action="append", choices=[*OURS, *OTHERS], help="only this; may be repeated"
    )
    parser.add_argument(
        "--weights",
        choices=["none", "kinds"],
        default="none",
        help="none: every file counts the same (default); kinds: every kind does",
    )
    parser.add_argument("--worst", type=int, default=0, help="tell so many of the worst files")
    parser.add_argument("--keep", type=Path, help="write the files into this folder")
    parser.add_argument("--packages", help="a folder with packages of other readers")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    asked = parser.parse_args(arguments)
    if asked.packages:
        sys.path.append(asked.packages)
    readers = find_readers()
    # The same reader, and slow: only where it is asked for.
    wanted = asked.reader or [name for name in readers if name != "inspect-process"]
    if absent := [name for name in wanted if name not in readers]:
        parser.error(f"not installed: {', '.join(absent)}")
    found = {}
    for name in SETS if asked.set == "all" else [asked.set]:
        files = choose(list(SETS[name](asked.seed)), kind=asked.kind, limit=asked.limit)
        if not files:
            continue
        with tempfile.TemporaryDirectory(prefix="pocket-pollution-") as temporary:
            folder = asked.keep or Path(temporary)
            keep(files, folder)
            found[name] = {reader: measure(readers[reader], files, folder) for reader in wanted}
    if asked.json:
        facts = {name: _facts(of, asked.weights) for name, of in found.items()}
        print(json.dumps(facts, indent=2))
        return
    for name, outcomes in found.items():
        _tell(name, outcomes, asked.weights)
        for reader, of in outcomes.items():
            _tell_worst(reader, of, asked.worst)


def _facts(found: dict[str, list[Outcome]], weights: str) -> dict[str, Any]:
    return {
        reader: {
            "files": len(outcomes),
            "score": round(mean(outcomes, weights), 4),
            "perfect": sum(not outcome.difference for outcome in outcomes),
            "parts": {
                part: round(fmean(outcome.scores[place] for outcome in outcomes), 4)
                for place, part in enumerate(SCORES)
            },
            "kinds": {kind: round(mean(of), 4) for kind, of in by_kind(outcomes).items()},
        }
        for reader, outcomes in found.items()
    }


def _tell(name: str, found: dict[str, list[Outcome]], weights: str) -> None:
    kinds = {reader: by_kind(outcomes) for reader, outcomes in found.items()}
    first = next(iter(kinds.values()))
    print(f"{name}, of 10{'':<42} files" + "".join(f"{reader:>15}" for reader in found))
    for kind, files in first.items():
        means = "".join(f"{mean(groups[kind]):>15.3f}" for groups in kinds.values())
        print(f"  {kind:<50} {len(files):>5}{means}")
    count = sum(map(len, first.values()))
    wholes = "".join(f"{mean(outcomes, weights):>15.3f}" for outcomes in found.values())
    print(
        f"  {'all, every ' + ('kind' if weights == 'kinds' else 'file') + ' the same':<50} "
        f"{count:>5}{wholes}"
    )
    perfect = "".join(f"{sum(not o.difference for o in of):>15}" for of in found.values())
    print(f"  {'files without a difference':<50} {count:>5}{perfect}\n")


def _tell_worst(reader: str, outcomes: Sequence[Outcome], count: int) -> None:
    faulty = [outcome for outcome in outcomes if outcome.difference]
    for outcome in sorted(faulty, key=lambda outcome: outcome.total)[:count]:
        print(f"{reader} {outcome.total:.3f} {outcome.file.name}\n  {outcome.difference}")
    if count:
        print()


if __name__ == "__main__":
    main()
