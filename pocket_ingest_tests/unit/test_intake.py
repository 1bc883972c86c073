"""Inbox paths, tenants and names; what is taken in is tested on real adapters (test_inbox.py)."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocket_ingest.adapters.local_store import LocalStore
from pocket_ingest.core.dataset import Dataset, Fixed, FromColumn
from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.intake import (
    check_tenant,
    choose_tenant,
    find_address,
    find_dataset,
    is_unfinished,
    slug,
    take_in,
    take_in_file,
)
from pocket_ingest.core.ports import NewUpload, StoredObject
from pocket_ingest_tests.examples import declare

PERMITS = declare({"id": str}, name="permits")
BANK = declare({"id": str}, name="bank", tenant=Fixed("house"), inbox="bank/**/*.csv")
ROWS = declare({"id": str, "owner": str}, name="rows", tenant=FromColumn("owner"))
DEEP = declare({"id": str}, name="deep", inbox="deep/{tenant}/in.box/**")


def code_of(call: object, *args: object) -> Code:
    assert callable(call)
    with pytest.raises(PermanentError) as error:
        call(*args)
    return error.value.code


@pytest.mark.parametrize(
    ("path", "dataset", "tenant"),
    [
        ("permits/ann/a.csv", PERMITS, "ann"),
        ("permits/Ann & Co, Ltd./a b.csv", PERMITS, "Ann & Co, Ltd."),
        ("bank/2024/01/a.csv", BANK, "house"),
        ("rows/a.csv", ROWS, "rows"),
        ("deep/ann/in.box/a/b/c", DEEP, "ann"),
    ],
)
def test_a_path_says_dataset_and_tenant(path: str, dataset: Dataset, tenant: str) -> None:
    address = find_address(path, [PERMITS, BANK, ROWS, DEEP])
    assert (address.dataset, address.tenant) == (dataset, tenant)


@pytest.mark.parametrize(
    "path",
    [
        "permits/a.csv",
        "permits/ann/b/a.csv",
        "permits//a.csv",
        "Permits/ann/a.csv",
        "xpermits/ann/a.csv",
        "permits/ann/a.csv\n",
        "bank/a.txt",
        "deep/ann/inxbox/a",
        "rows/ann/a.csv",
        "",
        "permits/ann/M\udce4rz.csv",
    ],
)
def test_a_path_that_fits_nothing_is_refused(path: str) -> None:
    assert code_of(find_address, path, [PERMITS, BANK, ROWS, DEEP]) is Code.NO_INBOX_MATCH


def test_a_path_that_fits_two_names_both() -> None:
    other = declare({"id": str}, name="other", inbox="permits/{tenant}/*")
    with pytest.raises(PermanentError, match="permits and other"):
        find_address("permits/ann/a.csv", [PERMITS, other])


@pytest.mark.parametrize(
    ("name", "unfinished"),
    [
        ("a.csv", False),
        ("a.csv.part", True),
        ("a.CSV.TMP", True),
        (".a.csv", True),
        ("~$a.xlsx", True),
        ("a.csv~", True),
        ("a.partial.csv", False),
        ("inbox/.folder/a.csv", False),
        ("inbox/folder.tmp/a.csv", False),
        ("inbox/x/a.crdownload", True),
        ("inbox/x/a.csv.filepart", True),
        ("inbox/x/.a.csv.swp", True),
    ],
)
def test_unfinished_names(name: str, unfinished: bool) -> None:
    assert is_unfinished(name) == unfinished


@pytest.mark.parametrize("tenant", ["a", "Ann & Co, Ltd.", "ü" * 100, "a..b", "-"])
def test_tenants_that_are_names(tenant: str) -> None:
    assert check_tenant(tenant) == tenant


@pytest.mark.parametrize("tenant", ["", " ", "a/b", "..", ".", "a\nb", "a\0", "a" * 101, "\udce4"])
def test_tenants_that_are_none(tenant: str) -> None:
    assert code_of(check_tenant, tenant) is Code.INVALID_TENANT


def test_the_tenant_of_a_file_that_somebody_names() -> None:
    assert choose_tenant(PERMITS, "ann") == "ann"
    assert code_of(choose_tenant, PERMITS, None) is Code.INVALID_TENANT
    assert choose_tenant(BANK, None) == choose_tenant(BANK, "house") == "house"
    assert code_of(choose_tenant, BANK, "ann") is Code.INVALID_TENANT
    assert choose_tenant(ROWS, None) == "rows"


def test_a_dataset_that_is_not_there_is_told_with_those_that_are() -> None:
    datasets = {"permits": PERMITS, "bank": BANK}
    assert find_dataset("bank", datasets) is BANK
    with pytest.raises(PermanentError, match="There are: bank, permits"):
        find_dataset("x", datasets)
    with pytest.raises(PermanentError, match="There are: none"):
        find_dataset("x", {})


@given(st.text(), st.integers(4, 80))
def test_a_slug_is_safe_and_short(text: str, longest: int) -> None:
    made = slug(text, longest=longest)
    assert re.fullmatch(r"[A-Za-z0-9._-]+", made)
    assert ".." not in made
    assert len(made) <= longest
    assert not made.startswith((".", "-"))
    assert slug(made, longest=longest) == made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("comma, name #1.csv", "comma-name-1.csv"),
        ("März 2024.csv", "Marz-2024.csv"),
        ("../../etc/passwd", "etc-passwd"),
        ("a...b", "a.b"),
        ("日本", "file"),
        ("", "file"),
    ],
)
def test_a_slug_can_be_read(text: str, expected: str) -> None:
    assert slug(text) == expected


class NoLedger:
    """A ledger that must not be asked."""

    def register(self, new: NewUpload) -> None:
        raise AssertionError("nothing was to be registered")


def test_nothing_is_pinned_for_a_tenant_that_is_no_name(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    path = tmp_path / "store" / "inbox" / "a.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"id\n")
    (found,) = store.list("inbox/")
    for call in (
        lambda: take_in(store, NoLedger(), found, dataset=PERMITS, tenant=".."),  # type: ignore[arg-type]
        lambda: take_in_file(store, NoLedger(), path, dataset=PERMITS, tenant="a/b"),  # type: ignore[arg-type]
    ):
        assert code_of(call) is Code.INVALID_TENANT
    assert list(store.list("uploads/")) == []


def test_an_object_that_changed_is_not_registered(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    gone = StoredObject(key="inbox/permits/ann/a.csv", version="1", size_bytes=1)
    take = lambda: take_in(store, NoLedger(), gone, dataset=PERMITS, tenant="ann")  # type: ignore[arg-type]  # noqa: E731
    assert code_of(take) is Code.UPLOAD_MISSING
