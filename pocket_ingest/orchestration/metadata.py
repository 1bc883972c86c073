"""What people see in Dagit: the ledger's facts about a job as Dagster metadata.

Here: one function for each stage.
Not here: raw cell values; an event log is read by more people than a tenant's report.
"""

from collections.abc import Mapping
from typing import Any

from dagster import (
    MetadataValue,
    TableColumn,
    TableColumnConstraints,
    TableRecord,
    TableSchema,
)

from pocket_ingest.core.artifacts import ERRORS, EXPORT_CSV, EXPORT_PARQUET, REJECTS
from pocket_ingest.core.contract import Contract
from pocket_ingest.core.jobs import ImportJob, Stage
from pocket_ingest.core.process import Engine

Metadata = Mapping[str, Any]

ERROR_COLUMNS = TableSchema(
    columns=[
        TableColumn("record", "int"),
        TableColumn("line", "int"),
        TableColumn("field", "string"),
        TableColumn("code", "string"),
        TableColumn("hint", "string"),
    ]
)
COUNT_COLUMNS = TableSchema(
    columns=[
        TableColumn("field", "string"),
        TableColumn("code", "string"),
        TableColumn("count", "int"),
    ]
)


def stage_metadata(stage: Stage, job: ImportJob, engine: Engine) -> Metadata:
    """The metadata of one stage's materialization."""
    common: dict[str, Any] = {
        "file": job.upload.file_name,
        "tenant": job.upload.tenant,
        "job": str(job.id),
        "attempt": job.attempt,
    }
    return common | dict(BUILDERS[stage](job, engine))


def failure_metadata(job: ImportJob, engine: Engine) -> Metadata:
    """Why a file stopped, and what it left for the person who mends it."""
    facts: dict[str, Any] = {
        "file": job.upload.file_name,
        "tenant": job.upload.tenant,
        "job": str(job.id),
        "attempt": job.attempt,
        "error_code": job.error_code or "",
        "error": job.error_summary or "",
        "dagster/uri": engine.store.address(job.upload.pinned_key),
    }
    return facts | _rejects(job) | _links(job, engine, (REJECTS, ERRORS))


def column_schema(contract: Contract) -> TableSchema:
    """The contract's columns, as Dagit shows a table's."""
    return TableSchema(
        columns=[
            TableColumn(
                name=field.name,
                type=str(field.dtype),
                description=field.description or None,
                constraints=TableColumnConstraints(
                    nullable=field.accepts_null,
                    other=[str(check) for check in contract.schema.columns[field.name].checks],
                ),
            )
            for field in contract.fields
        ]
    )


def _upload(job: ImportJob, engine: Engine) -> Metadata:
    upload = job.upload
    facts: dict[str, Any] = {
        "size_bytes": upload.size_bytes,
        "sha256": upload.sha256,
        "source": upload.source_key,
        "received_at": MetadataValue.timestamp(upload.received_at),
        "dagster/uri": engine.store.address(upload.pinned_key),
    }
    if upload.same_content_as:
        facts["same_content_as"] = upload.same_content_as
    return facts


def _validated(job: ImportJob, engine: Engine) -> Metadata:
    report = job.report.get(Stage.VALIDATED, {})
    facts: dict[str, Any] = {
        "records_read": job.records_read or 0,
        "accepted": report.get("accepted", 0),
        "rejected": report.get("rejected", 0),
        "file": _file(report.get("file", {})),
        "lines": ", ".join(
            f"{count} {kind.removesuffix('_lines')}"
            for kind, count in report.get("lines", {}).items()
            if count
        ),
        "contract": job.contract_version or "",
    }
    notices = report.get("file", {}).get("notices", ())
    if notices:
        facts["notices"] = " ".join(f"{n['code']}: {n['detail']}" for n in notices)
    facts |= _rejects(job)
    if report.get("extra_columns"):
        facts["columns_not_in_contract"] = ", ".join(report["extra_columns"])
    if report.get("absent_columns"):
        facts["columns_absent"] = ", ".join(report["absent_columns"])
    if report.get("reordered"):
        facts["columns_reordered"] = True
    facts["dagster/column_schema"] = column_schema(engine.datasets[job.upload.dataset].contract)
    return facts | _links(job, engine, (REJECTS, ERRORS))


def _loaded(job: ImportJob, _engine: Engine) -> Metadata:
    counts = job.outcomes.as_dict()
    facts: dict[str, Any] = {"records_read": job.records_read or 0, **counts}
    facts["dagster/partition_row_count"] = sum(
        counts[name] for name in ("created", "updated", "unchanged")
    )
    if job.validated_at and job.loaded_at and job.records_read:
        seconds = (job.loaded_at - job.validated_at).total_seconds()
        facts["records_per_second"] = round(job.records_read / max(seconds, 0.001))
    return facts


def _exports(job: ImportJob, engine: Engine) -> Metadata:
    rows = job.report.get(Stage.EXPORTS, {}).get("rows", 0)
    return {"dagster/partition_row_count": rows} | _links(job, engine, (EXPORT_CSV, EXPORT_PARQUET))


BUILDERS = {
    Stage.UPLOAD: _upload,
    Stage.VALIDATED: _validated,
    Stage.LOADED: _loaded,
    Stage.EXPORTS: _exports,
}


def _file(found: dict[str, Any]) -> str:
    """What the reader found out about the file, in a line."""
    said = [found.get("format", ""), found.get("encoding", "")]
    said += [
        f"{name} {found[name]!r}"
        for name in ("delimiter", "quote", "escape", "comment", "sheet", "member")
        if found.get(name)
    ]
    said += [f"in {container}" for container in found.get("containers", ())]
    return ", ".join(filter(None, said))


def _rejects(job: ImportJob) -> dict[str, Any]:
    """Rejected records by field and code, and a sample of them without their values."""
    report = job.report.get(Stage.VALIDATED, {})
    if not report.get("rejects_by_field_and_code"):
        return {}
    return {
        "rejects_by_field_and_code": _table(report["rejects_by_field_and_code"], COUNT_COLUMNS),
        "rejects_sample": _table(report["sample_errors"], ERROR_COLUMNS),
    }


def _links(job: ImportJob, engine: Engine, names: tuple[str, ...]) -> dict[str, Any]:
    return {
        name: MetadataValue.path(engine.store.address(job.artifacts[name]))
        for name in names
        if name in job.artifacts
    }


def _table(rows: list[dict[str, Any]], schema: TableSchema) -> MetadataValue[Any]:
    # An error that is no single field's is the record's.
    named = [{**row, "field": row["field"] or "(record)"} for row in rows]
    return MetadataValue.table(records=[TableRecord(row) for row in named], schema=schema)


__all__ = ["column_schema", "failure_metadata", "stage_metadata"]
