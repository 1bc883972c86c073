"""The third stage: accepted rows into the dataset's table, batch by batch, each with its receipt.

Here: which batches there are (fixed by accepted.parquet, whatever the machine or its settings), and
which of them have committed already.
Not here: the SQL of a batch (adapters/postgres/loader.py).
"""

from collections.abc import Callable
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pocket_ingest.core.artifacts import RECORD, AcceptedFile, PlannedBatch
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
    losers = pa.array([], pa.int64())
    if duplicates is not None:
        losers = pq.read_table(duplicates, columns=["record"])["record"].combine_chunks()
    total = Outcomes()

    def wanted(batch: PlannedBatch) -> bool:
        return (batch.first_record, batch.last_record) not in done

    for batch, rows in AcceptedFile.open(accepted).batches(wanted=wanted):
        check()
        kept = rows
        if len(losers):
            kept = rows.filter(pc.invert(pc.is_in(rows[RECORD], value_set=losers)))
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
