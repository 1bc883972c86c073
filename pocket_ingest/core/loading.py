"""The third stage: accepted rows into the dataset's table, batch by batch, each with its receipt.

Here: which batches there are (fixed by accepted.parquet, whatever the machine or its settings), and
which of them have committed already.
Not here: the SQL of a batch (adapters/postgres/loader.py).
"""

from collections.abc import Callable
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from pocket_ingest.core.artifacts import RECORD, AcceptedFile, DuplicatesFile, PlannedBatch
from pocket_ingest.core.jobs import Outcomes
from pocket_ingest.core.ports import LoadBatch


def load_accepted(
    accepted: BinaryIO,
    duplicates: BinaryIO | None,
    *,
    done: set[tuple[int, int]],
    load: Callable[[LoadBatch], Outcomes],
    check: Callable[[], None],
) -> Outcomes:
    """Load every planned batch that has no receipt yet.

    Args:
        accepted: the published accepted.parquet.
        duplicates: the published duplicates.parquet, if any record lost against another.
        done: (first record, last record) of the batches that have committed.
        load: commits one batch and returns its outcomes.
        check: called before each batch; raises where the job was cancelled or its lease lost.

    Returns:
        The outcomes of the batches loaded by this call.
    """
    duplicated = DuplicatesFile(duplicates) if duplicates is not None else None
    total = Outcomes()

    def wanted(batch: PlannedBatch) -> bool:
        return (batch.first_record, batch.last_record) not in done

    for batch, rows in AcceptedFile.open(accepted).batches(wanted=wanted):
        check()
        kept = rows
        if duplicated is not None:
            losers = duplicated.records(batch.first_record, batch.last_record)
            wins = np.isin(rows[RECORD].to_numpy(), losers, assume_unique=True, invert=True)
            kept = rows.filter(pa.array(wins))
        total += load(
            LoadBatch(
                first_record=batch.first_record,
                last_record=batch.last_record,
                rows=kept,
                rejected=batch.rejected,
                duplicate=rows.num_rows - kept.num_rows,
            )
        )
    return total
