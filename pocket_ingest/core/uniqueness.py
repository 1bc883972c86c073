"""Business keys that occur twice in one file: found with 8 bytes a record, compared exactly.

Here: the whole-file rule on keys. Chunks give 64-bit hashes of their keys; sorting them finds the
few that occur twice, and only the rows behind those are compared value by value. (Merging sorted
runs of hashes while reading was 60 times slower and took 500 MB at 5M records.)
Not here: what a duplicate means (the contract's policy, applied by validation.py and loading.py).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from pocket_ingest.core.artifacts import RECORD
from pocket_ingest.core.dataset import Duplicates


@dataclass(frozen=True, kw_only=True)
class Duplicated:
    """Records that share a key with another record of the file; arrays of equal length.

    ``records`` is ascending; ``winners[i]`` is the record that stands for ``records[i]``'s key,
    and the winners themselves are not among ``records`` unless every one of a key is rejected.
    """

    records: np.ndarray
    winners: np.ndarray


def hash_keys(rows: pl.DataFrame, key: tuple[str, ...]) -> np.ndarray:
    """64-bit hashes of the key of each row (uint64). Equal keys hash equal within a process."""
    return rows.select(key).hash_rows(seed=0).to_numpy()


def repeated_hashes(hashes: list[np.ndarray]) -> np.ndarray:
    """The hashes that occur more than once, ascending."""
    if not hashes:
        return np.empty(0, dtype=np.uint64)
    ordered = np.concatenate(hashes)
    ordered.sort()
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def find_duplicates(
    keys: Iterable[pl.DataFrame], key: tuple[str, ...], suspects: np.ndarray, policy: Duplicates
) -> Duplicated:
    """Compare the suspects exactly and choose the winners.

    Args:
        keys: the file's key columns and record numbers, in chunks.
        key: names of the key columns.
        suspects: hashes that occur more than once, ascending.
        policy: which record of a key wins; with ``reject`` all of them are returned.
    """
    found = [
        chunk.filter(pl.Series(np.isin(hash_keys(chunk, key), suspects, assume_unique=False)))
        for chunk in keys
    ]
    rows = pl.concat(found) if found else pl.DataFrame()
    if rows.is_empty():
        return Duplicated(records=np.empty(0, np.int64), winners=np.empty(0, np.int64))
    chosen = pl.col(RECORD).max() if policy is Duplicates.LAST else pl.col(RECORD).min()
    rows = rows.with_columns(
        chosen.over(key).alias("_winner"), pl.len().over(key).alias("_times")
    ).filter(pl.col("_times") > 1)
    if policy is not Duplicates.REJECT:
        rows = rows.filter(pl.col(RECORD) != pl.col("_winner"))
    rows = rows.sort(RECORD)
    return Duplicated(records=rows[RECORD].to_numpy(), winners=rows["_winner"].to_numpy())
