"""The files that a job publishes: whole batches in and out, and exports that hold the same rows."""

import io
from pathlib import Path
from uuid import uuid4

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pocket_ingest.core.artifacts import (
    RECORD,
    AcceptedFile,
    AcceptedWriter,
    PlannedBatch,
    artifact_key,
    scratch,
)
from pocket_ingest.core.exporting import export_rows
from pocket_ingest.core.jobs import Claim
from pocket_ingest_tests.examples import declare, nullable
from pocket_ingest_tests.unit.test_jobs import job

CONTRACT = declare({"id": str, "value": int}, checks={"value": nullable()}).contract
BATCHES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=8)


@given(sizes=BATCHES, skipped=st.sets(st.integers(0, 7)))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_batches_come_back_as_they_were_planned(
    tmp_path: Path, sizes: list[tuple[int, int]], skipped: set[int]
) -> None:
    path = tmp_path / "accepted.parquet"
    writer = AcceptedWriter(path, CONTRACT)
    planned, first = [], 1
    for accepted, rejected in sizes:
        last = first + accepted + rejected - 1
        planned.append(
            PlannedBatch(first_record=first, last_record=last, accepted=accepted, rejected=rejected)
        )
        records = range(first, first + accepted)
        rows = pl.DataFrame(
            {RECORD: records, "id": [f"k{n}" for n in records], "value": [None] * accepted},
            schema={RECORD: pl.Int64, "id": pl.String, "value": pl.Int64},
        )
        writer.write(rows, planned[-1])
        first = last + 1
    writer.close()
    opened = AcceptedFile.open(io.BytesIO(path.read_bytes()))
    assert list(opened.plan) == planned
    wanted = [batch for n, batch in enumerate(planned) if n not in skipped]
    found = list(opened.batches(wanted=lambda batch: batch in wanted))
    # Empty batches may be equal; whoever is wanted comes, in order, with its own rows.
    assert [batch for batch, _ in found] == [b for b in planned if b in wanted]
    for batch, table in found:
        start = batch.first_record
        assert table[RECORD].to_pylist() == list(range(start, start + batch.accepted))
        assert table["id"].to_pylist() == [f"k{n}" for n in table[RECORD].to_pylist()]


def test_keys_of_two_claims_never_meet() -> None:
    claims = [Claim(job_id=uuid4(), token=n, attempt=1, worker="w", run_id=None) for n in (1, 2)]
    keys = {artifact_key(job(), claim, "export.csv") for claim in claims}
    assert len(keys) == 2
    assert all(key.startswith("artifacts/things/k/") for key in keys)


def test_scratch_is_gone_after_an_error(tmp_path: Path) -> None:
    def die() -> None:
        with scratch(tmp_path / "new") as folder:
            (folder / "half").write_bytes(b"x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        die()
    assert list((tmp_path / "new").iterdir()) == []


def export(content: bytes, rows: int, folder: Path, *, longest: int = 1024) -> pl.DataFrame:
    def write_csv(target: io.BufferedWriter) -> int:
        target.write(content)
        return rows

    exported = export_rows(
        CONTRACT,
        folder=folder,
        write_csv=write_csv,  # type: ignore[arg-type]
        check=lambda: None,
        max_record_bytes=longest,
    )
    assert exported.rows == rows
    assert exported.files["export.csv"].read_bytes() == content
    return pl.read_parquet(exported.files["export.parquet"])


def test_an_export_of_nothing_has_its_columns(tmp_path: Path) -> None:
    frame = export(b"_record,id,value\n", 0, tmp_path)
    assert frame.schema == {RECORD: pl.Int64, "id": pl.String, "value": pl.Int64}


def test_text_that_looks_like_something_else_stays_text(tmp_path: Path) -> None:
    cells = ["NULL", "NA", "null", "1", "true", "00", "", "1e5", "2024-01-01", " ", "=1+1"]
    lines = [f'{n},"{cell}",' for n, cell in enumerate(cells)]
    frame = export("\n".join(["_record,id,value", *lines, ""]).encode(), len(cells), tmp_path)
    assert frame["id"].to_list() == cells
    assert frame["value"].null_count() == len(cells)


def test_the_longest_record_is_exported(tmp_path: Path) -> None:
    """In the file, a cell of quotes is twice as long as in the record that it was read from."""
    cell = '"' * (10 * 2**20)
    content = f'_record,id,value\n1,"{cell}",2\n3,b,4\n'.encode()
    frame = export(content, 2, tmp_path, longest=len(cell))
    assert frame["id"].to_list() == [cell[::2], "b"]
