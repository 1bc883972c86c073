"""Business keys that occur twice in one file: found with 8 bytes a record, compared exactly.

Here: the whole-file rule on keys. Chunks give 64-bit hashes of their keys; sorting them in place
finds those that occur twice, and only the rows behind those are compared value by value, a range of
hashes at a time. (Merging sorted runs of hashes while reading was 60 times slower and took 500 MB
at 5M records.)
Not here: what a duplicate means (the contract's policy, applied by validation.py and loading.py).

Memory: 8 bytes a record for the hashes; then, where keys repeat, 8 bytes a record for the winners
and one range of keys, of MAX_BYTES or 8 bytes a record, whichever is more, so that the number of
ranges does not grow with the file. Many rows with one key are one row of a range.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from pocket_ingest.core.artifacts import RECORD
from pocket_ingest.core.dataset import Duplicates

MAX_BYTES = 32 * 2**20
"""Of the rows with the keys of one range of hashes, of which there are half a million if they are
short. Grouping them takes three times as much."""
BLOCK = 2**20
"""Hashes or records looked at in one step of a walk over all of them."""
PAIR = 2
HASH, FIRST, LAST, TIMES = "_hash", "_first", "_last", "_times"
# Nobody outside this process can make a file whose different keys hash equal.
SEED = secrets.randbits(64)


@dataclass(frozen=True, kw_only=True)
class Duplicated:
    """Records that share a key with another record of the file.

    Attributes:
        winners: int64, for each record number (index 0 is none) the record that stands for its key
            if that is another one, else 0. With ``reject`` every record of the key has the first.
        count: how many records have a winner.
    """

    winners: np.ndarray
    count: int

    def pieces(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Those records and their winners, int64, ascending by record within and across pieces."""
        for start in range(0, len(self.winners), BLOCK):
            block = self.winners[start : start + BLOCK]
            places = np.flatnonzero(block)
            if len(places):
                yield places + start, block[places]


def hash_keys(rows: pl.DataFrame, key: tuple[str, ...]) -> np.ndarray:
    """64-bit hashes of the key of each row (uint64). Equal keys hash equal within a process."""
    return rows.select(key).hash_rows(seed=SEED).to_numpy()


def repeated_hashes(hashes: list[np.ndarray]) -> np.ndarray:
    """The hashes that occur more than once, ascending.

    Args:
        hashes: of all records, in chunks; the list is emptied, so that nothing is held twice.
    """
    ordered = np.empty(sum(map(len, hashes)), np.uint64)
    end = len(ordered)
    while hashes:
        chunk = hashes.pop()
        ordered[end - len(chunk) : end] = chunk
        end -= len(chunk)
    ordered.sort()
    # They are gathered at the array's own beginning, which the walk has passed.
    found = 0
    for start in range(0, len(ordered) - 1, BLOCK):
        block = ordered[start : start + BLOCK + 1]
        repeated = np.unique(block[1:][block[1:] == block[:-1]])
        if found and len(repeated) and repeated[0] == ordered[found - 1]:
            repeated = repeated[1:]
        ordered[found : found + len(repeated)] = repeated
        found += len(repeated)
    return ordered[:found].copy()


def find_duplicates(
    keys: Callable[[], Iterable[pl.DataFrame]],
    key: tuple[str, ...],
    suspects: np.ndarray,
    policy: Duplicates,
    *,
    records: int,
) -> Duplicated:
    """Compare the suspects exactly and choose the winners.

    Args:
        keys: walks over the file's key columns and record numbers, in chunks; called once or twice
            for each range of hashes.
        key: names of the key columns.
        suspects: hashes that occur more than once, ascending.
        policy: which record of a key wins; with ``reject`` all of them are returned.
        records: number of the file's last record.
    """
    winners = np.zeros(records + 1, np.int64)
    left, taken = suspects, len(suspects)
    limit = max(MAX_BYTES, winners.nbytes)
    while len(left):
        groups, taken = _group_range(keys(), key, left[:taken], limit)
        groups = groups.filter(pl.col(TIMES) > 1)
        _settle_ends(groups, policy, winners)
        many = groups.filter(pl.col(TIMES) > PAIR)
        if many.height:
            for chunk in keys():
                _settle_others(chunk, many, key, policy, winners)
        left = left[taken:]
    return Duplicated(winners=winners, count=int(np.count_nonzero(winners)))


def _group_range(
    keys: Iterable[pl.DataFrame], key: tuple[str, ...], suspects: np.ndarray, limit: int
) -> tuple[pl.DataFrame, int]:
    """The suspects' keys with their first and last record and their number.

    Returns:
        One row a key, for the first so many suspects as fit, and how many suspects these are.
    """
    taken, size = len(suspects), 0
    parts: list[pl.DataFrame] = []
    for chunk in keys:
        parts.append(_suspected(chunk, key, suspects[:taken]))
        size += int(parts[-1].estimated_size())
        if size > limit:
            groups = _merged(parts, key)
            # Each suspect is one key at least, and that of some is still to come.
            fitting = max(1, limit // 2 * groups.height // int(groups.estimated_size()))
            if fitting < taken:
                taken = fitting
                groups = _detached(groups.filter(pl.col(HASH) < suspects[taken]))
            parts, size = [groups], int(groups.estimated_size())
            # Different keys of one hash are held together, whatever that takes.
            limit = max(limit, 2 * size)
    return _merged(parts, key), taken


def _suspected(chunk: pl.DataFrame, key: tuple[str, ...], suspects: np.ndarray) -> pl.DataFrame:
    """The chunk's rows whose hash is among the suspects: keys that occur once, so far."""
    hashes = hash_keys(chunk, key)
    near = np.flatnonzero((hashes >= suspects[0]) & (hashes <= suspects[-1]))
    near = near[suspects[np.searchsorted(suspects, hashes[near])] == hashes[near]]
    number = pl.col(RECORD)
    return _detached(
        chunk[near].select(
            *key,
            pl.Series(HASH, hashes[near], pl.UInt64),
            number.alias(FIRST),
            number.alias(LAST),
            pl.lit(1, pl.Int64).alias(TIMES),
        )
    )


def _merged(parts: list[pl.DataFrame], key: tuple[str, ...]) -> pl.DataFrame:
    return (
        pl.concat(parts)
        .group_by(key)
        .agg(pl.col(HASH).first(), pl.col(FIRST).min(), pl.col(LAST).max(), pl.col(TIMES).sum())
    )


def _detached(frame: pl.DataFrame) -> pl.DataFrame:
    """The same with text of its own: a view would hold the whole chunk that it came from."""
    detached = pl.from_arrow(frame.to_arrow(compat_level=pl.CompatLevel.oldest()))
    assert isinstance(detached, pl.DataFrame)  # noqa: S101 - a table gives a frame
    return detached


def _settle_ends(groups: pl.DataFrame, policy: Duplicates, winners: np.ndarray) -> None:
    """Settle the first and the last record of each key: all there are, for nearly all keys."""
    first, last = groups[FIRST].to_numpy(), groups[LAST].to_numpy()
    if policy is Duplicates.LAST:
        winners[first] = last
    else:
        winners[last] = first
    if policy is Duplicates.REJECT:
        winners[first] = first


def _settle_others(
    rows: pl.DataFrame,
    groups: pl.DataFrame,
    key: tuple[str, ...],
    policy: Duplicates,
    winners: np.ndarray,
) -> None:
    """Settle every row that is between the first and the last record of its key."""
    number = pl.col(RECORD)
    rows = rows.join(groups, on=key).filter(number.is_between(FIRST, LAST, closed="none"))
    winner = LAST if policy is Duplicates.LAST else FIRST
    winners[rows[RECORD].to_numpy()] = rows[winner].to_numpy()
