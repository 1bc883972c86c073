"""The yardstick for reading files as they come: its files hold what they claim, its score is exact.

No test here says how well a reader does.
"""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.polluted import Polluted, Row, make_polluted, make_real_like, make_tables
from benchmarks.pollution import (
    SCORES,
    Refused,
    by_kind,
    choose,
    first_difference,
    keep,
    main,
    mean,
    read_with_inspect,
    score,
    try_reader,
)

POLLUTED = list(make_polluted())
REAL_LIKE = list(make_real_like())
EVERY = [*POLLUTED, *REAL_LIKE]
NOWHERE = Path("nowhere")


def example(header: list[Row], records: list[Row]) -> Polluted:
    return Polluted(name="example", kind="example", data=b"", header=header, records=records)


def test_a_reader_that_is_right_has_the_full_score_in_every_file() -> None:
    outcomes = [
        try_reader(lambda _, file=file: (file.header, file.records), file, NOWHERE)
        for file in EVERY
    ]
    assert [o.file.name for o in outcomes if o.total != 10.0 or o.difference] == []
    assert mean(outcomes) == mean(outcomes, "kinds") == 10.0


def test_files_are_many_and_named_apart() -> None:
    names = [file.name for file in EVERY]
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"[\w-]+", name)] == []
    assert 1_900 <= len(POLLUTED) <= 2_100
    assert len(REAL_LIKE) >= 100
    assert len(set(map(len, (file.data for file in REAL_LIKE)))) > 90


def test_the_same_seed_makes_the_same_files() -> None:
    assert list(make_polluted()) == POLLUTED
    assert list(make_real_like()) == REAL_LIKE
    assert {f.data for f in REAL_LIKE}.isdisjoint(f.data for f in make_real_like(2))


DIALECTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "size: ": {},
    "end of file: ": {},
    "delimiter: semicolon": {"delimiter": ";"},
    "delimiter: tab": {"delimiter": "\t"},
    "delimiter: pipe": {"delimiter": "|"},
    "delimiter: space": {"delimiter": " "},
    "delimiter: comma and space": {"delimiter": ",", "skipinitialspace": True},
    "delimiter: colon": {"delimiter": ":"},
    "delimiter: caret": {"delimiter": "^"},
    "delimiter: unit separator": {"delimiter": "\x1f"},
    "quotes: apostrophes": {"quotechar": "'"},
    "quotes: none": {"quoting": csv.QUOTE_NONE},
    "quotes: around ": {},
    "quotes in cells: doubled": {},
    "quotes in cells: doubled, apostrophes": {"quotechar": "'"},
    "quotes in cells: with a backslash": {"doublequote": False, "escapechar": "\\"},
    "quotes in cells: with a backslash, apostrophes": {
        "doublequote": False,
        "escapechar": "\\",
        "quotechar": "'",
    },
    "record end: ": {},
    "blank lines: ": {},
    "empty column: ": {},
    "two tables: ": {},
    "row: delimiter missing": {},
    "row: delimiter too many": {},
    "row: other delimiter: ": {},
    "row: other quotes: ": {},
    "row: stray quote: middle": {},
    "row: stray quote: end": {},
}


@pytest.mark.parametrize("kind", DIALECTS)
def test_a_parser_that_is_told_the_dialect_agrees_with_what_is_right(kind: str) -> None:
    exact = not kind.endswith((": ", "around "))
    files = [f for f in POLLUTED if (f.kind == kind if exact else f.kind.startswith(kind))]
    assert files
    for file in files:
        usual = ";" if "-bookings" in file.name and not kind.startswith("delimiter") else ","
        text = io.StringIO(file.data.decode(), newline="")
        rows = [row for row in csv.reader(text, **({"delimiter": usual} | DIALECTS[kind])) if row]
        assert rows == [*file.header, *file.records], file.name


@pytest.mark.parametrize("mark", ["||", "::"])
def test_a_delimiter_of_two_characters_stands_bare_only_between_cells(mark: str) -> None:
    kind = {"||": "delimiter: two pipes", "::": "delimiter: two colons"}[mark]
    for file in POLLUTED:
        if file.kind == kind:
            # Quoted texts cannot hold the delimiter once their own characters are put aside.
            bare = re.sub(r'"[^"]*"', "x", file.data.decode()).splitlines()
            assert [len(line.split(mark)) for line in bare] == [
                len(row) for row in [*file.header, *file.records]
            ]


def test_one_row_is_changed_where_one_row_is_said_to_be() -> None:
    plain = {f.name.removeprefix("plain-"): f for f in POLLUTED if f.kind == "plain"}
    rows = [f for f in POLLUTED if f.kind.startswith("row: ") and "none in a row" not in f.kind]
    assert len(rows) > 1_000
    for file in rows:
        name, row, _ = file.name.rsplit("-", 2)
        clean = plain[name.rsplit("-", 1)[1]]
        assert file.header == clean.header
        changed = [n for n, (a, b) in enumerate(_both(file, clean), 1) if a != b]
        assert changed in ([], [int(row)])
        assert changed or file.kind == "row: other quotes: around all"
        assert file.data != clean.data


def _both(one: Polluted, other: Polluted) -> list[tuple[Row, Row]]:
    return list(zip(one.records, other.records, strict=True))


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("row: delimiter missing", -1),
        ("row: delimiter too many", 1),
        ("row: stray quote: beginning", 0),
        ("row: stray quote in a quoted cell: middle", 0),
    ],
)
def test_a_changed_row_has_the_text_of_the_clean_one(kind: str, change: int) -> None:
    clean = {table.name: table for table in make_tables()}
    for file in POLLUTED:
        if file.kind != kind:
            continue
        table, row, column = file.name.rsplit("-", 3)[1:]
        right = file.records[int(row) - 1]
        before = clean[table].records[int(row) - 1]
        assert len(right) == len(before) + change
        assert "".join(right).replace('"', "") == "".join(before)
        assert right[: int(column) - 1] == before[: int(column) - 1]


def test_a_score_is_exact() -> None:
    file = example([["a", "b"]], [["1", "2"], ["1", "2"], ["3", "4"]])
    found = score(file, ([["a", "x", "b"]], [["1", "2"], ["3"]]))
    assert dict(zip(SCORES, found, strict=True)) == {
        "success": 1.0,
        "header precision": pytest.approx(2 / 3),
        "header recall": 1.0,
        "header F1": pytest.approx(4 / 5),
        "record precision": 1 / 2,
        "record recall": pytest.approx(1 / 3),
        "record F1": pytest.approx(2 / 5),
        "cell precision": pytest.approx(5 / 6),
        "cell recall": pytest.approx(5 / 8),
        "cell F1": pytest.approx(5 / 7),
    }


@pytest.mark.parametrize(
    ("file", "read", "total"),
    [
        (example([], []), ([], []), 10.0),
        (example([["a"]], []), ([["a"]], []), 10.0),
        (example([["a"]], []), ([], [["a"]]), 4.0),
        (example([], [["a"]]), ([], []), 4.0),
        (example([["a"]], [["1"]]), ([["a "]], [[" 1"]]), 1.0),
    ],
)
def test_nothing_is_compared_with_nothing(
    file: Polluted, read: tuple[list[Row], list[Row]], total: float
) -> None:
    assert sum(score(file, read)) == total


def test_nothing_may_be_refused_but_not_by_a_crash() -> None:
    def refuse(path: Path) -> tuple[list[Row], list[Row]]:
        raise Refused("empty")

    def crash(path: Path) -> tuple[list[Row], list[Row]]:
        raise ValueError("oh")

    nothing, something = example([], []), example([["a"]], [])
    assert try_reader(refuse, nothing, NOWHERE).total == 10.0
    assert try_reader(crash, nothing, NOWHERE).total == 0.0
    for reader, said in ((refuse, "refused: empty"), (crash, "failed: ValueError('oh')")):
        outcome = try_reader(reader, something, NOWHERE)
        assert (outcome.total, outcome.difference) == (0.0, said)


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (([["a"]], [["1"], ["2"]]), ""),
        (([["b"]], [["1"], ["2"]]), "header row 1: right 1 cells ['a']\n  read 1 cells ['b']"),
        (([["a"]], [["1"], ["2", ""]]), "record 2: right 1 cells ['2']\n  read 2 cells ['2', '']"),
        (([["a"]], [["1"]]), "2 records right, 1 read; first missing: 1 cells ['2']"),
        (([], []), "1 header rows right, 0 read; first missing: 1 cells ['a']"),
    ],
)
def test_the_first_difference_is_told(read: tuple[list[Row], list[Row]], said: str) -> None:
    assert first_difference(example([["a"]], [["1"], ["2"]]), read) == said


def test_a_few_files_are_chosen_of_all_kinds_alike() -> None:
    chosen = choose(POLLUTED, limit=100)
    assert len(chosen) == 100
    assert 10 <= sum(file.kind == "row: delimiter missing" for file in chosen) <= 20
    assert {file.kind for file in choose(POLLUTED, kind="header: ")} == {
        "header: none",
        "header: two rows, groups first",
        "header: two rows, units last",
        "header: three rows",
    }


def test_kinds_may_count_the_same() -> None:
    def read(path: Path) -> tuple[list[Row], list[Row]]:
        raise Refused("empty")

    files = choose(POLLUTED, kind="size: ")
    outcomes = [try_reader(read, file, NOWHERE) for file in files]
    assert {kind: len(of) for kind, of in by_kind(outcomes).items()} == {
        "size: header only": 6,
        "size: no bytes": 1,
        "size: one record": 6,
    }
    assert mean(outcomes) == pytest.approx(10 / 13)
    assert mean(outcomes, "kinds") == pytest.approx(10 / 3)


def test_the_command_prints_and_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--set", "polluted", "--kind", "end of file: ", "--reader", "csv"]
    main([*arguments, "--limit", "4", "--keep", str(tmp_path), "--worst", "2"])
    shown = capsys.readouterr().out
    assert re.search(r"all, every file the same +4 +10\.000", shown)
    assert len(list(tmp_path.glob("*.csv"))) == len(list(tmp_path.glob("*.right.json"))) == 4
    main([*arguments, "--json"])
    facts = json.loads(capsys.readouterr().out)["polluted"]["csv"]
    assert (facts["files"], facts["score"], facts["perfect"]) == (18, 10.0, 18)
    assert list(facts["parts"]) == list(SCORES)


def test_what_inspect_writes_is_read_back(tmp_path: Path) -> None:
    kinds = ("plain", "header: none", "size: no bytes")
    files = [f for f in POLLUTED if f.kind in kinds and ("orders" in f.name or not f.data)]
    assert len(files) == 3
    keep(files, tmp_path)
    outcomes = [try_reader(read_with_inspect, f, tmp_path / f"{f.name}.csv") for f in files]
    assert [outcome.difference for outcome in outcomes] == ["", "", ""]
