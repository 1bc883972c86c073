"""Repeated keys: suspects by hash, judged by value, with collisions forced."""

from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocket_ingest.core import uniqueness
from pocket_ingest.core.artifacts import RECORD
from pocket_ingest.core.dataset import Duplicates
from pocket_ingest.core.uniqueness import find_duplicates, hash_keys, repeated_hashes

HASHES = st.lists(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 5), max_size=8), max_size=5)


@given(HASHES)
def test_repeated_hashes_are_those_that_occur_twice(chunks: list[list[int]]) -> None:
    counts = Counter(value for chunk in chunks for value in chunk)
    found = repeated_hashes([np.array(chunk, dtype=np.uint64) for chunk in chunks])
    assert found.tolist() == sorted(value for value, count in counts.items() if count > 1)


@given(
    keys=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=20),
    size=st.integers(1, 7),
    policy=st.sampled_from(list(Duplicates)),
    collide=st.booleans(),
    tight=st.booleans(),
)
def test_duplicates_are_judged_by_value_even_where_every_hash_is_the_same(
    keys: list[tuple[str, int]], size: int, policy: Duplicates, collide: bool, tight: bool
) -> None:
    frame = pl.DataFrame(
        {
            RECORD: range(1, len(keys) + 1),
            "a": [key[0] for key in keys],
            "b": [key[1] for key in keys],
        },
        schema={RECORD: pl.Int64, "a": pl.String, "b": pl.Int64},
    )
    chunks = [frame[start : start + size] for start in range(0, len(keys), size)]
    with pytest.MonkeyPatch.context() as patch:
        if collide:
            patch.setattr(uniqueness, "hash_keys", same_for_all)
        suspects = repeated_hashes([uniqueness.hash_keys(c, ("a", "b")) for c in chunks])
        if tight:
            patch.setattr(uniqueness, "MAX_BYTES", 1)
        found = find_duplicates(lambda: chunks, ("a", "b"), suspects, policy, records=len(keys))
    places: dict[Any, list[int]] = {}
    for number, key in enumerate(keys, 1):
        places.setdefault(key, []).append(number)
    expected = {}
    for numbers in places.values():
        winner = numbers[-1] if policy is Duplicates.LAST else numbers[0]
        losing = numbers if policy is Duplicates.REJECT else [n for n in numbers if n != winner]
        if len(numbers) > 1:
            expected |= dict.fromkeys(losing, winner)
    pieces = list(found.pieces())
    listed = [pair for piece in pieces for pair in zip(*map(np.ndarray.tolist, piece), strict=True)]
    assert listed == sorted(expected.items())
    assert found.count == len(expected)


def same_for_all(rows: pl.DataFrame, key: tuple[str, ...]) -> np.ndarray:
    return np.zeros(rows.height, dtype=np.uint64)


def test_columns_do_not_run_into_each_other() -> None:
    rows = pl.DataFrame({"a": ["ab", "a", ""], "b": ["c", "bc", "abc"]})
    assert len(set(hash_keys(rows, ("a", "b")).tolist())) == 3


def test_nothing_to_judge_is_nothing_found() -> None:
    nothing = find_duplicates(list, ("a",), np.empty(0, np.uint64), Duplicates.LAST, records=3)
    assert nothing.count == 0
    assert list(nothing.pieces()) == []
    assert len(repeated_hashes([])) == 0
