"""The jobs: one import job for each dataset, over its four assets.

Here: names, selections and the executor.
Not here: what starts them (sensors.py).
"""

from dagster import AssetSelection, define_asset_job, in_process_executor
from dagster._core.definitions.unresolved_asset_job_definition import (
    UnresolvedAssetJobDefinition,
)

from pocket_ingest.core.dataset import Dataset


def job_name(dataset: Dataset) -> str:
    """The name of a dataset's import job."""
    return f"import_{dataset.name}"


def build_job(dataset: Dataset, *, max_runtime_seconds: int) -> UnresolvedAssetJobDefinition:
    """The import job of a dataset.

    In process: a step's own process would cost 16 to 25 seconds for a file instead of one.

    Args:
        dataset: its declaration.
        max_runtime_seconds: run monitoring ends a run after this time.
    """
    return define_asset_job(
        job_name(dataset),
        selection=AssetSelection.groups(dataset.name),
        executor_def=in_process_executor,
        tags={"dagster/max_runtime": str(max_runtime_seconds)},
        description=f"Takes uploaded files of {dataset.name} through all stages.",
    )


__all__ = ["build_job", "job_name"]
