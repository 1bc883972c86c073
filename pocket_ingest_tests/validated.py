"""Files validated in a folder of their own, and what came of it."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from pocket_ingest.core.artifacts import PLAN, RECORD
from pocket_ingest.core.dataset import Dataset
from pocket_ingest.core.reading import ReadingLimits
from pocket_ingest.core.validation import Validated, validate_file


@dataclass
class Result:
    """What validation published, read back."""

    validated: Validated
    accepted: pl.DataFrame
    errors: list[dict[str, Any]]
    rejects: bytes
    duplicates: list[tuple[int, int]]
    plan: list[list[int]]

    @property
    def found(self) -> set[tuple[int, str, str]]:
        return {(e["record"], e["field"], e["code"]) for e in self.errors}


def validate(
    content: bytes,
    dataset: Dataset,
    *,
    check: Callable[[], None] = lambda: None,
    name: str = "",
    **limits: int,
) -> Result:
    with TemporaryDirectory() as folder:
        validated = validate_file(
            lambda: io.BytesIO(content),
            dataset.contract,
            folder=Path(folder),
            limits=ReadingLimits(**limits),
            check=check,
            name=name,
        )
        files = {n: p.read_bytes() for n, p in validated.files.items()}
    result = Result(
        validated=validated,
        accepted=pl.read_parquet(files["accepted.parquet"]),
        errors=pl.read_parquet(files["errors.parquet"]).to_dicts(),
        rejects=files["rejects.csv"],
        duplicates=[],
        plan=json.loads(pq.read_metadata(io.BytesIO(files["accepted.parquet"])).metadata[PLAN]),
    )
    if "duplicates.parquet" in files:
        result.duplicates = pl.read_parquet(files["duplicates.parquet"]).rows()
    adds_up(result)
    return result


def adds_up(result: Result) -> None:
    """What holds for every file, whatever is in it."""
    validated = result.validated
    expected = 1
    for first, last, accepted, rejected in result.plan:
        assert first == expected
        assert last - first + 1 == accepted + rejected
        expected = last + 1
    assert expected - 1 == validated.records_read
    assert sum(batch[2] for batch in result.plan) == result.accepted.height == validated.accepted
    refused = {e["record"] for e in result.errors}
    assert len(refused) == validated.rejected == sum(batch[3] for batch in result.plan)
    numbers = result.accepted[RECORD].to_list()
    assert sorted([*numbers, *refused]) == list(range(1, validated.records_read + 1))
    assert numbers == sorted(numbers)
    listed = validated.report["rejects_by_field_and_code"]
    assert sum(entry["count"] for entry in listed) == len(result.errors)
    assert validated.duplicates == validated.report["repeated_keys"]
    assert validated.report["records_read"] == validated.records_read
