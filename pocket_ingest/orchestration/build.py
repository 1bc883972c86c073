"""build_defs: everything that Dagster is told, assembled.

Here: the assembly, keyword-only, so that a test or another deployment builds a variant.
Not here: connections or environment reads beyond the settings; loading a code location opens
nothing.
"""

from collections.abc import Mapping

from dagster import Definitions, in_process_executor

from pocket_ingest.core.dataset import Dataset
from pocket_ingest.orchestration.assets import build_assets
from pocket_ingest.orchestration.jobs import build_job
from pocket_ingest.orchestration.resources import EngineResource
from pocket_ingest.orchestration.sensors import build_sensors
from pocket_ingest.settings import Settings
from pocket_ingest.wiring import load_datasets


def build_defs(
    *,
    settings: Settings | None = None,
    datasets: Mapping[str, Dataset] | None = None,
    engine: EngineResource | None = None,
) -> Definitions:
    """Assemble the definitions.

    Args:
        settings: default from the environment.
        datasets: by name; default those of the settings.
        engine: default built from the settings in the process that needs it.
    """
    settings = Settings() if settings is None else settings
    datasets = load_datasets(settings) if datasets is None else datasets
    jobs = [
        build_job(dataset, max_runtime_seconds=settings.max_runtime_seconds)
        for dataset in datasets.values()
    ]
    return Definitions(
        assets=[
            build_assets(dataset, files_per_run=settings.run_files) for dataset in datasets.values()
        ],
        jobs=jobs,
        sensors=build_sensors(settings, datasets, jobs),
        resources={"engine": EngineResource() if engine is None else engine},
        executor=in_process_executor,
    )


__all__ = ["build_defs"]
