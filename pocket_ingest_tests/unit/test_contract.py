"""What a declaration may not say, in sentences for its author; and when its version changes."""

import importlib.util
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, time
from pathlib import Path
from typing import Annotated, Any

import pandera.polars as pa
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocket_ingest.core.contract import Kind
from pocket_ingest.core.dataset import Column, Dataset, Existing, Fixed, FromColumn, FromPath
from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.file_format import FileFormat
from pocket_ingest.core.reading.expectation import fold
from pocket_ingest_tests.examples import declare, nullable

COLUMNS = {"id": str, "count": int, "day": date, "at": datetime, "owner": str}


def base(**said: Any) -> Dataset:
    return declare(COLUMNS, **said)


def options(column: str, **said: Any) -> dict[str, Column]:
    return {column: Column(**said)}


REFUSED: list[tuple[Callable[[], Dataset], str, str | None]] = [
    # declaration, what the sentence says, the column that it names
    (lambda: base(name="Things"), "the name must be", None),
    (lambda: base(name="1things"), "the name must be", None),
    (lambda: base(name="t" * 49), "at most 48", None),
    (lambda: base(name="things\n"), "the name must be", None),
    (lambda: base(format=FileFormat(delimiter="")), "delimiter", None),
    (lambda: base(format=FileFormat(quote="ab")), "quote", None),
    (lambda: base(format=FileFormat(delimiter='"')), "delimiter", None),
    (lambda: base(format=FileFormat(delimiter="\n")), "delimiter", None),
    (lambda: base(format=FileFormat(encoding="utf-9")), "encoding", None),
    (lambda: base(existing="replace"), "existing is 'replace'", None),
    (lambda: base(duplicates="any"), "duplicates is 'any'", None),
    (lambda: base(key=()), "key must be a tuple", None),
    (lambda: base(key="id"), "key must be a tuple", None),
    (lambda: base(key=("id", "none")), "the model does not have", "none"),
    (lambda: base(options=options("none")), "the model does not have", "none"),
    (lambda: declare({"id": str | None}), "must be required and not nullable", "id"),
    (
        lambda: declare({"id": str}, checks={"id": nullable()}),
        "must be required and not nullable",
        "id",
    ),
    (lambda: declare({"id": float}), "is a float", "id"),
    (lambda: declare({"ID": str}, key=("ID",)), "must be lower-case letters", "ID"),
    (lambda: declare({"id": str, "a b": str}), "must be lower-case letters", "a b"),
    (lambda: declare({"id": str, "x" * 49: str}), "must be lower-case letters", "x" * 49),
    (
        lambda: declare({"id": str, "x": str}, checks={"x": pa.Field(alias="_tenant")}),
        "must be lower-case letters",
        "_tenant",
    ),
    (lambda: declare({"id": str, "xmin": str}), "Postgres keeps for itself", "xmin"),
    (
        lambda: declare({"id": str}, checks={"id": pa.Field(unique=True)}),
        "looks at a part of a file only",
        "id",
    ),
    (lambda: declare({"id": str, "x": time}), "has no place in a table", "x"),
    (lambda: declare({"id": str, "x": pl.UInt64}), "has no place in a table", "x"),
    (lambda: declare({"id": str, "x": pl.Categorical}), "has no place in a table", "x"),
    (
        lambda: declare({"id": str, "x": Annotated[pl.Datetime, "ns", None]}),
        "has no place in a table",
        "x",
    ),
    (lambda: base(options=options("count", decimal_mark="")), "decimal_mark is one", "count"),
    (lambda: base(options=options("count", grouping="..")), "grouping one or none", "count"),
    (lambda: base(options=options("count", grouping=".")), "are the same", "count"),
    (lambda: base(options=options("at", time_zone="Mars/Olympus")), "no time zone", "at"),
    (lambda: base(options=options("at", time_zone="../x")), "no time zone", "at"),
    (
        lambda: base(options=options("count", true=("Yes",), false=("YES", "no"))),
        "means both true and false",
        "count",
    ),
    (lambda: base(options=options("count", formats=("%Y",))), "for dates and times", "count"),
    (lambda: base(options=options("day", formats=("%Y-%m",))), "does not name a day", "day"),
    (
        lambda: base(options=options("at", formats=("%Y-%m-%dT%H:%M:%S%z",))),
        "which the column would lose",
        "at",
    ),
    (
        lambda: base(options=options("at", formats=("epoch_s",))),
        "which the column would lose",
        "at",
    ),
    (
        lambda: declare(
            {"id": str, "at": Annotated[pl.Datetime, "us", "UTC"]},
            options=options("at", formats=("%Y-%m-%d %H:%M:%S",)),
        ),
        "say its time_zone",
        "at",
    ),
    (lambda: base(tenant=FromPath(), inbox="things/*"), "needs a {tenant}", None),
    (lambda: base(tenant=Fixed("a"), inbox="x/{tenant}/*"), "does not come from the path", None),
    (lambda: base(tenant=FromColumn("none")), "must be a required text column", "none"),
    (lambda: base(tenant=FromColumn("count")), "must be a required text column", "count"),
    (
        lambda: declare({"id": str, "owner": str | None}, tenant=FromColumn("owner")),
        "must be a required text column",
        "owner",
    ),
    (lambda: base(tenant=Fixed(" ")), "A tenant's name is 1 to 100", None),
    (
        lambda: base(options={"id": Column(aliases=("Nr.",)), "owner": Column(aliases=("NR",))}),
        "would mean both 'id' and 'owner'",
        "owner",
    ),
    (lambda: base(options=options("id", aliases=("The Day", "DAY"))), "would mean both", "day"),
]


@pytest.mark.parametrize(("make", "said", "column"), REFUSED)
def test_each_refusal_says_what_to_mend(
    make: Callable[[], Dataset], said: str, column: str | None
) -> None:
    dataset = make()
    with pytest.raises(PermanentError) as error:
        _ = dataset.contract
    assert error.value.code is Code.INVALID_CONTRACT
    detail = error.value.detail
    assert said in detail
    assert f"Dataset {dataset.name!r}" in detail
    if column is not None:
        assert repr(column) in detail
    assert detail.endswith(".")


def test_a_model_that_pandera_refuses_is_told() -> None:
    dataset = declare({"id": str}, checks={"x": pa.Field(ge=1)})
    with pytest.raises(PermanentError) as error:
        _ = dataset.contract
    assert "Pandera refuses the model" in error.value.detail


def test_uniqueness_over_columns_is_refused() -> None:
    class Model(pa.DataFrameModel):
        id: str

        class Config:
            unique = ["id"]  # noqa: RUF012

    with pytest.raises(PermanentError, match=r"unique=\[\.\.\.\]"):
        _ = Dataset(name="things", model=Model, key=("id",)).contract


def test_kinds_and_what_may_be_null() -> None:
    contract = declare(
        {
            "id": str,
            "n": pl.Int16,
            "d": Annotated[pl.Decimal, 10, 2],
            "f": float | None,
            "b": bool,
            "day": date,
            "at": datetime,
        },
        checks={"b": nullable(description="Whether.")},
    ).contract
    assert [f.kind for f in contract.fields] == [
        Kind.TEXT,
        Kind.INTEGER,
        Kind.DECIMAL,
        Kind.FLOAT,
        Kind.BOOLEAN,
        Kind.DATE,
        Kind.TIMESTAMP,
    ]
    assert [f.name for f in contract.fields if f.accepts_null] == ["f", "b"]
    assert [f.name for f in contract.fields if not f.required] == ["f"]
    assert contract.field("b").description == "Whether."
    assert contract.existing is Existing.UPDATE
    with pytest.raises(KeyError):
        contract.field("none")


def test_the_default_inbox_has_the_tenant_where_the_path_says_it() -> None:
    assert base().inbox_pattern == "things/{tenant}/*"
    assert base(tenant=Fixed("a")).inbox_pattern == "things/*"
    assert base(inbox="x/{tenant}/**").inbox_pattern == "x/{tenant}/**"


@given(st.text(max_size=12))
def test_folding_knows_letters_and_digits_only(name: str) -> None:
    folded = fold(name)
    assert fold(folded) == folded
    assert fold(f" {name.upper()}#. ") == fold(name.upper())
    assert all(c.isalnum() for c in folded)


# -- versions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        base(name="others"),
        base(key=("id", "count")),
        base(existing="keep"),
        base(duplicates="first"),
        base(format=FileFormat(delimiter=";")),
        base(max_rejects=1),
        base(max_reject_ratio=0.1),
        base(tenant=Fixed("a")),
        base(tenant=FromColumn("owner")),
        base(options=options("id", trim=True)),
        base(options=options("id", aliases=("Nr",))),
        base(options=options("count", grouping=",")),
        base(options=options("day", formats=("%d.%m.%Y",))),
        base(checks={"count": pa.Field(ge=0)}),
        base(checks={"count": pa.Field(ge=1)}),
        base(checks={"id": pa.Field(isin=["a"])}),
        base(checks={"count": nullable()}),
        declare({**COLUMNS, "count": pl.Int32}),
        declare({**COLUMNS, "count": int | None}),
        declare({**COLUMNS, "more": str}),
    ],
)
def test_the_version_changes_with_what_changes_the_outcome(changed: Dataset) -> None:
    assert changed.contract.version != base().contract.version


def test_changes_of_a_number_in_a_check_are_told_apart() -> None:
    versions = {
        base(checks={"count": pa.Field(ge=n, isin=[n, n + 1])}).contract.version for n in range(5)
    }
    assert len(versions) == 5


@pytest.mark.parametrize(
    "same",
    [
        base(),
        base(existing=Existing.UPDATE),
        base(existing="update", duplicates="last"),
        base(description="Things."),
        base(inbox="elsewhere/{tenant}/*"),
        base(options=options("id")),
        replace(base()),
    ],
)
def test_the_version_stays_with_what_does_not(same: Dataset) -> None:
    assert same.contract.version == base().contract.version
    assert len(same.contract.version) == 12


BASES = """
    import pandera.polars as pa
    import polars as pl

    class Base(pa.DataFrameModel):
        id: str

        @pa.check("id")
        @classmethod
        def is_short(cls, data):
            return data.lazyframe.select(pl.col(data.key).str.len_chars() < {limit})
"""
DERIVED = """
    import pandera.polars as pa
    from pocket_ingest import Dataset
    from {bases} import Base

    class Thing(Base):
        more: str

    things = Dataset(name="things", model=Thing, key=("id",))
"""


def test_the_code_of_a_base_classs_check_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is in the body of a method of another module; nothing else differs."""

    def version(name: str, limit: int) -> str:
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.syspath_prepend(folder)
        (folder / "bases_of_things.py").write_text(textwrap.dedent(BASES.format(limit=limit)))
        derived = folder / "derived_things.py"
        derived.write_text(textwrap.dedent(DERIVED.format(bases="bases_of_things")))
        for module in ("bases_of_things", "derived_things"):
            monkeypatch.delitem(sys.modules, module, raising=False)
        importlib.invalidate_caches()
        spec = importlib.util.spec_from_file_location("derived_things", derived)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "derived_things", module)
        spec.loader.exec_module(module)
        version: str = module.things.contract.version
        monkeypatch.delitem(sys.modules, "bases_of_things")
        return version

    first = version("one", 5)
    assert version("two", 6) != first
    assert version("three", 5) == first


def test_the_version_is_the_same_in_another_process() -> None:
    program = "from pocket_ingest.datasets.permits import permits; print(permits.contract.version)"
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            cwd=Path(__file__).resolve().parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
