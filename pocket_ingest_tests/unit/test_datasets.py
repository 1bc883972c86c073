import csv
import inspect
import io
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from pocket_ingest.core.contract import Kind
from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.intake import find_address
from pocket_ingest.core.reading import ReadingLimits
from pocket_ingest.core.validation import Validated, validate_file
from pocket_ingest.datasets import find_datasets
from pocket_ingest.datasets.samples import expected, sample_files

DECLARATION = """\
from pocket_ingest import Dataset


class Model:
    here = {here!r}


{name} = Dataset(name={name!r}, model=Model, key=("id",))
"""


def declare(file: Path, name: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(DECLARATION.format(name=name, here=str(file)), encoding="utf-8")


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(text), encoding="utf-8")


def refusal(*places: str | Path, shipped: bool = False) -> PermanentError:
    with pytest.raises(PermanentError) as caught:
        find_datasets([str(place) for place in places], shipped=shipped)
    return caught.value


@pytest.fixture
def importable(tmp_path, monkeypatch):
    """A folder on the import path, whose modules are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


class TestFolders:
    def test_every_file_counts_and_names_are_sorted(self, tmp_path):
        declare(tmp_path / "one.py", "zebras")
        declare(tmp_path / "two.py", "antelopes")
        assert list(find_datasets([str(tmp_path)], shipped=False)) == ["antelopes", "zebras"]

    def test_private_hidden_and_other_files_are_left_alone(self, tmp_path):
        declare(tmp_path / "kept.py", "kept")
        declare(tmp_path / "sub" / "deeper.py", "deeper")
        for name in ("_private.py", "__init__.py", "._kept.py", "notes.txt"):
            (tmp_path / name).write_bytes(b"raise SystemExit('\0')")
        (tmp_path / "folder.py").mkdir()
        assert list(find_datasets([str(tmp_path)], shipped=False)) == ["kept"]

    def test_equal_file_names_in_two_folders_do_not_meet(self, tmp_path):
        declare(tmp_path / "a" / "files.py", "first")
        declare(tmp_path / "b" / "files.py", "second")
        found = find_datasets([str(tmp_path / "a"), str(tmp_path / "b")], shipped=False)
        assert {name: Path(found[name].model.here) for name in found} == {
            "first": tmp_path / "a" / "files.py",
            "second": tmp_path / "b" / "files.py",
        }

    @pytest.mark.parametrize("folder", ["with space", "Größe, 表 #1", "a.b", "-x"])
    @pytest.mark.parametrize("stem", ["my permits", "zürich", "2026.v1", "class"])
    def test_any_name_of_folder_and_file_will_do(self, tmp_path, folder, stem):
        declare(tmp_path / folder / f"{stem}.py", "odd")
        found = find_datasets([str(tmp_path / folder)], shipped=False)
        assert "here =" in inspect.getsource(found["odd"].model)

    def test_stems_that_differ_in_a_dot_are_two_files(self, tmp_path):
        declare(tmp_path / "v1.a.py", "dotted")
        declare(tmp_path / "v1_a.py", "lined")
        declare(tmp_path / "v1.py", "short")
        found = find_datasets([str(tmp_path)], shipped=False)
        assert list(found) == ["dotted", "lined", "short"]

    def test_a_relative_folder_is_found(self, tmp_path, monkeypatch):
        declare(tmp_path / "mine" / "a.py", "relative")
        monkeypatch.chdir(tmp_path)
        assert list(find_datasets(["mine"], shipped=False)) == ["relative"]

    def test_a_folder_named_twice_counts_once(self, tmp_path):
        declare(tmp_path / "a.py", "single")
        once = find_datasets([str(tmp_path)], shipped=False)
        twice = find_datasets([str(tmp_path), str(tmp_path / ".." / tmp_path.name)], shipped=False)
        assert twice["single"] is once["single"]

    def test_files_share_a_private_neighbour(self, tmp_path):
        write(tmp_path / "_shared.py", "KEY = ('id',)\n")
        for name, stem in (("left", "left"), ("right", "right.v2")):
            write(
                tmp_path / f"{stem}.py",
                f"""
                from pocket_ingest import Dataset
                from ._shared import KEY
                d = Dataset(name={name!r}, model=object, key=KEY)
                """,
            )
        found = find_datasets([str(tmp_path)], shipped=False)
        assert found["left"].key is found["right"].key

    def test_a_dataset_imported_from_a_neighbour_counts_once(self, tmp_path):
        declare(tmp_path / "origin.py", "original")
        write(tmp_path / "again.py", "from .origin import original\nalias = original\n")
        assert list(find_datasets([str(tmp_path)], shipped=False)) == ["original"]

    def test_a_folder_without_datasets_gives_none(self, tmp_path):
        assert find_datasets([str(tmp_path)], shipped=False) == {}

    def test_a_contract_that_does_not_compile_is_found_all_the_same(self, tmp_path):
        write(
            tmp_path / "a.py",
            "from pocket_ingest import Dataset\nd = Dataset(name='d', model=object, key=())\n",
        )
        found = find_datasets([str(tmp_path)], shipped=False)
        with pytest.raises(PermanentError, match="'d'") as caught:
            _ = found["d"].contract
        assert caught.value.code is Code.INVALID_CONTRACT


class TestModules:
    def test_a_module(self, importable):
        declare(importable / "pi_module.py", "in_module")
        assert list(find_datasets(["pi_module"], shipped=False)) == ["in_module"]

    def test_a_package_and_its_modules_one_level_deep(self, importable):
        root = importable / "pi_package"
        declare(root / "__init__.py", "in_package")
        declare(root / "plain.py", "in_plain")
        declare(root / "_hidden.py", "in_hidden")
        declare(root / "inner" / "__init__.py", "in_inner")
        declare(root / "inner" / "deep.py", "in_deep")
        found = find_datasets(["pi_package"], shipped=False)
        assert list(found) == ["in_inner", "in_package", "in_plain"]

    def test_a_module_inside_a_package(self, importable):
        declare(importable / "pi_outer" / "__init__.py", "outer")
        declare(importable / "pi_outer" / "chosen.py", "chosen")
        assert list(find_datasets(["pi_outer.chosen"], shipped=False)) == ["chosen"]

    def test_a_package_without_init(self, importable):
        declare(importable / "pi_bare" / "a.py", "in_bare")
        assert list(find_datasets(["pi_bare"], shipped=False)) == ["in_bare"]

    def test_importing_the_search_does_not_import_pandera(self):
        script = "import sys, pocket_ingest.datasets.samples; print('pandera' in sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "False"


class TestRefusals:
    def test_two_datasets_of_one_name_name_both_files(self, tmp_path):
        declare(tmp_path / "a" / "here.py", "same")
        declare(tmp_path / "b" / "there.py", "same")
        error = refusal(tmp_path / "a", tmp_path / "b")
        assert error.code is Code.INVALID_CONTRACT
        assert "'same'" in error.detail
        assert str(tmp_path / "a" / "here.py") in error.detail
        assert str(tmp_path / "b" / "there.py") in error.detail

    def test_equal_declarations_are_still_two(self, tmp_path):
        declare(tmp_path / "a.py", "same")
        with (tmp_path / "a.py").open("a", encoding="utf-8") as file:
            file.write("import dataclasses\ncopy = dataclasses.replace(same)\n")
        assert refusal(tmp_path).code is Code.INVALID_CONTRACT

    def test_a_shipped_name_is_taken(self, tmp_path):
        declare(tmp_path / "mine.py", "permits")
        error = refusal(tmp_path, shipped=True)
        assert error.code is Code.INVALID_CONTRACT
        assert "POCKET_SHIPPED_DATASETS" in error.detail
        assert list(find_datasets([str(tmp_path)], shipped=False)) == ["permits"]

    def test_a_syntax_error_has_its_line(self, tmp_path):
        write(tmp_path / "broken.py", "x = 1\ny = 2\ndef f(:\n")
        error = refusal(tmp_path)
        assert error.code is Code.INVALID_CONTRACT
        assert f"{tmp_path / 'broken.py'}, line 3: SyntaxError: " in error.detail

    def test_an_error_is_told_with_the_line_of_the_file_not_of_the_library(self, tmp_path):
        write(tmp_path / "broken.py", "import json\n\n\njson.loads('{')\n")
        error = refusal(tmp_path)
        assert f"{tmp_path / 'broken.py'}, line 4: JSONDecodeError: Expecting" in error.detail

    def test_a_missing_import_has_its_line(self, tmp_path):
        write(tmp_path / "broken.py", "import sys\nimport pi_nowhere_to_be_found\n")
        error = refusal(tmp_path)
        assert error.code is Code.INVALID_CONTRACT
        assert "line 2: ModuleNotFoundError: No module named 'pi_nowhere" in error.detail

    @pytest.mark.parametrize(
        ("text", "line"),
        [("\n1 / 0\n", "line 2: ZeroDivisionError"), ("\n\nx = (\n", "line 3: Syn")],
    )
    def test_a_broken_neighbour_is_the_file_to_mend(self, tmp_path, text, line):
        write(tmp_path / "a.py", "from ._shared import KEY\n")
        write(tmp_path / "_shared.py", text)
        error = refusal(tmp_path)
        assert f"{tmp_path / '_shared.py'}, {line}" in error.detail

    def test_a_file_that_is_not_python_text(self, tmp_path):
        (tmp_path / "binary.py").write_bytes(b"x = '\xff'\n")
        error = refusal(tmp_path)
        assert error.code is Code.INVALID_CONTRACT
        assert str(tmp_path / "binary.py") in error.detail

    def test_a_file_that_exits_does_not_end_the_process(self, tmp_path):
        write(tmp_path / "script.py", "import sys\nsys.exit('done')\n")
        assert f"{tmp_path / 'script.py'}, line 2: SystemExit: done" in refusal(tmp_path).detail

    def test_a_mended_file_loads(self, tmp_path):
        write(tmp_path / "a.py", "raise ValueError('not yet')\n")
        refusal(tmp_path)
        declare(tmp_path / "a.py", "mended")
        assert list(find_datasets([str(tmp_path)], shipped=False)) == ["mended"]

    def test_a_module_that_fails_has_its_line(self, importable):
        write(importable / "pi_failing" / "__init__.py", "")
        write(importable / "pi_failing" / "inner.py", "import json\n\njson.loads('')\n")
        for place in ("pi_failing", "pi_failing.inner"):
            error = refusal(place)
            assert error.code is Code.INVALID_CONTRACT
            assert f"{importable / 'pi_failing' / 'inner.py'}, line 3: JSON" in error.detail

    def test_a_package_that_fails_is_not_taken_for_a_missing_one(self, importable):
        write(importable / "pi_sick" / "__init__.py", "\nimport pi_not_installed\n")
        write(importable / "pi_sick" / "permits.py", "")
        error = refusal("pi_sick.permits")
        assert error.code is Code.INVALID_CONTRACT
        assert f"{importable / 'pi_sick' / '__init__.py'}, line 2" in error.detail

    @pytest.mark.parametrize(
        "place",
        ["pi_missing", "json.pi_missing", "csv.missing", "pi.missing", "./nowhere", "a b", ".x"],
    )
    def test_a_place_that_does_not_exist(self, place, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        error = refusal(place)
        assert error.code is Code.INVALID_SETTING
        assert repr(place) in error.detail

    def test_a_file_is_no_place(self, tmp_path):
        declare(tmp_path / "a.py", "lonely")
        assert refusal(tmp_path / "a.py").code is Code.INVALID_SETTING


@pytest.fixture(scope="module")
def shipped():
    return find_datasets((), shipped=True)


class TestShipped:
    def test_they_are_there_unless_unwanted(self, shipped):
        assert list(shipped) == ["permits", "transactions"]
        assert find_datasets((), shipped=False) == {}

    def test_their_contracts_compile(self, shipped):
        permits, transactions = (dataset.contract for dataset in shipped.values())
        assert permits.field("valuation").kind is Kind.DECIMAL
        assert [f.name for f in permits.fields if not f.required] == ["latitude", "longitude"]
        assert transactions.key == ("account", "reference")

    def test_a_team_may_take_one_of_them(self, shipped, tmp_path):
        write(tmp_path / "ours.py", "from pocket_ingest.datasets.permits import permits\n")
        assert find_datasets([str(tmp_path)], shipped=False) == {"permits": shipped["permits"]}

    def test_they_are_short(self, shipped):
        for dataset in shipped.values():
            source = Path(inspect.getfile(dataset.model))
            assert len(source.read_text(encoding="utf-8").splitlines()) <= 60


SAMPLES = sample_files()
FILE_ERRORS = ("empty_file", "missing_column", "duplicate_header")


def rows_of(path: str) -> list[dict[str, str]]:
    """A sample's records by the standard library's reader; blank lines are none of them."""
    delimiter = ";" if path.startswith("transactions/") else ","
    text = SAMPLES[path].read_bytes().decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter))


def validate(path: str, shipped, folder: Path) -> Validated:
    address = find_address(path, shipped.values())
    return validate_file(
        lambda: SAMPLES[path].open("rb"),
        address.dataset.contract,
        folder=folder,
        limits=ReadingLimits(),
        check=lambda: None,
    )


class TestSamples:
    def test_every_file_is_expected_and_every_expectation_has_its_file(self):
        assert list(SAMPLES) == sorted(expected())
        assert len(SAMPLES) >= 10

    def test_every_file_lies_in_an_inbox(self, shipped):
        for path in SAMPLES:
            address = find_address(path, shipped.values())
            assert [address.dataset.name, address.tenant] == path.split("/")[:2]

    @pytest.mark.parametrize("path", SAMPLES)
    def test_validation_finds_what_is_expected(self, path, shipped, tmp_path):
        entry = expected()[path]
        if entry.state == "failed":
            with pytest.raises(PermanentError) as caught:
                validate(path, shipped, tmp_path)
            assert caught.value.code == entry.error_code
            return
        assert entry.error_code is None
        found = validate(path, shipped, tmp_path)
        codes = Counter()
        for item in found.report["rejects_by_field_and_code"]:
            codes[item["code"]] += item["count"]
        assert (found.records_read, found.rejected) == (entry.records_read, entry.rejected)
        assert codes == entry.codes
        if entry.outcomes is not None:
            assert found.duplicates == entry.outcomes.get("duplicate", 0)
            assert found.accepted - found.duplicates == entry.outcomes.get("created", 0)

    @pytest.mark.parametrize("path", [p for p, e in expected().items() if e.state == "succeeded"])
    def test_the_expected_numbers_add_up(self, path):
        entry = expected()[path]
        assert sum(entry.codes.values()) >= entry.rejected
        if entry.outcomes is not None:
            assert sum(entry.outcomes.values()) == entry.records_read
            assert entry.outcomes.get("rejected", 0) == entry.rejected
            assert 0 not in entry.outcomes.values()

    @pytest.mark.parametrize("path", [p for p, e in expected().items() if e.state == "succeeded"])
    def test_records_counted_by_other_means(self, path):
        try:
            count = len(rows_of(path))
        except UnicodeDecodeError:
            # Of the damaged file, each record is a line: its stray quotes are what is wrong.
            count = len(SAMPLES[path].read_bytes().splitlines()) - 1
        assert count == expected()[path].records_read

    def test_damage_counted_by_other_means(self):
        path = "permits/cedar-hollow/Permits issued, October #2.csv"
        lines = SAMPLES[path].read_bytes().splitlines()
        undecodable = [line for line in lines if b"\xe9" in line]
        nul = [line for line in lines if b"\0" in line]
        codes = expected()[path].codes
        assert codes["invalid_encoding"] == len(undecodable)
        assert codes["nul_byte"] == len(nul)
        with pytest.raises(UnicodeDecodeError):
            undecodable[0].decode()

    @pytest.mark.parametrize(
        ("path", "key", "repeated"),
        [
            ("permits/birch-county/nightly-2026-10-17.csv", "Permit #", 2),
            ("transactions/family-heron/Auszug 10, Konto #2.csv", "Referenz", 1),
        ],
    )
    def test_repeated_keys_counted_by_other_means(self, path, key, repeated):
        times = Counter(row[key] for row in rows_of(path))
        assert [n for n in times.values() if n > 1] == [2] * repeated

    @pytest.mark.parametrize(
        ("first", "second", "key", "outcomes"),
        [
            (
                "permits/maple-falls/permits 2026-09.csv",
                "permits/maple-falls/permits 2026-10.csv",
                "Permit #",
                {"new": 18, "same": 5, "other": 7},
            ),
            (
                "transactions/family-birch/giro 2026-09.csv",
                "transactions/family-birch/giro 2026-10.csv",
                "Reference",
                {"new": 22, "same": 4, "other": 1},
            ),
        ],
    )
    def test_a_second_month_repeats_some_of_the_first(self, first, second, key, outcomes):
        before = {row[key]: row for row in rows_of(first)}
        found = Counter(
            "new" if row[key] not in before else "same" if before[row[key]] == row else "other"
            for row in rows_of(second)
        )
        assert found == outcomes

    def test_the_samples_hold_what_they_are_samples_of(self):
        text = {path: file.read_bytes() for path, file in SAMPLES.items()}
        azure = text["permits/port-azure/quarter 3.csv"]
        assert azure.startswith(b"\xef\xbb\xbf")
        assert azure.count(b"\r\n") == azure.count(b"\n") >= 10
        assert not azure.endswith(b"\n")
        assert b"\r\n0000042," in azure
        assert b",NA," in azure
        assert b";-1.000;CHF;" in text["transactions/family-birch/giro 2026-09.csv"]
        assert b";12.000,00;EUR;" in text["transactions/family-birch/giro 2026-09.csv"]
        assert {e.error_code for e in expected().values() if e.error_code} == {*FILE_ERRORS}

    def test_values_arrive_as_they_are_written(self, shipped, tmp_path):
        validate("permits/port-azure/quarter 3.csv", shipped, tmp_path)
        rows = pl.read_parquet(tmp_path / "accepted.parquet")
        written = rows_of("permits/port-azure/quarter 3.csv")
        assert rows["permit_number"].to_list() == [row["Permit No."] for row in written]
        assert rows["parcel"].to_list() == [row["APN"] for row in written]
        assert rows["contractor"].to_list() == [row["Contractor"] or None for row in written]
        assert {"NA", "NULL", "N/A"} <= set(rows["contractor"].drop_nulls())
        assert rows["address"].to_list() == [row["Address"] for row in written]

    def test_european_amounts_are_exact(self, shipped, tmp_path):
        path = "transactions/family-birch/giro 2026-09.csv"
        validate(path, shipped, tmp_path)
        cents = (pl.read_parquet(tmp_path / "accepted.parquet")["amount"] * 100).cast(pl.Int64)
        assert cents.to_list() == [european_cents(row["Amount"]) for row in rows_of(path)]


def european_cents(text: str) -> int:
    whole, _, fraction = text.replace(".", "").partition(",")
    return int(whole + fraction.ljust(2, "0"))
