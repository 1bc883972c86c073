"""A dataset's declaration, checked and compiled: fields, schema, version.

Here: what a contract may say, and errors that tell its author what to mend.
Not here: the casts (casting.py), the checks on data (validation.py), the table's DDL (adapters).
"""

import hashlib
import inspect
import json
import re
import zoneinfo
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import polars as pl

from pocket_ingest.core.dataset import (
    Column,
    Dataset,
    Duplicates,
    Existing,
    Fixed,
    FromColumn,
    FromPath,
    check_tenant,
)
from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.formats import FormatError, compile_format
from pocket_ingest.core.reading.expectation import CellForm, Expectation, ExpectedColumn, fold

# Postgres cuts identifiers at 63 bytes; the rest leaves room for constraint suffixes.
MAX_NAME = 48
MAX_HEADER_ROWS = 3
IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*\Z")
# Columns that every table of Postgres has; no table can have another of these names.
SYSTEM_COLUMNS = frozenset({"cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"})


class Kind(StrEnum):
    """What a column's text is cast to."""

    TEXT = "text"
    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, kw_only=True)
class Field:
    """One column of a contract. ``nullable`` is what the table allows."""

    name: str
    kind: Kind
    dtype: pl.DataType
    nullable: bool
    required: bool
    description: str
    column: Column

    @property
    def accepts_null(self) -> bool:
        """Whether the table's column may be NULL: an optional column may be absent from a file."""
        return self.nullable or not self.required


@dataclass(frozen=True, kw_only=True)
class Contract:
    """A dataset ready for work.

    ``version`` changes with anything that could change what a file becomes.
    """

    dataset: Dataset
    fields: tuple[Field, ...]
    key: tuple[str, ...]
    schema: Any  # pandera.polars.DataFrameSchema; Any keeps Pandera's import out of here
    existing: Existing
    duplicates: Duplicates
    version: str

    @property
    def name(self) -> str:
        """The dataset's name, which is also the table's."""
        return self.dataset.name

    @property
    def expectation(self) -> Expectation:
        """What the reader may expect of a file."""
        return Expectation(
            columns=tuple(_expected(field) for field in self.fields), format=self.dataset.format
        )

    def field(self, name: str) -> Field:
        """The field of that name. Raises KeyError."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)


def _expected(field: Field) -> ExpectedColumn:
    options = field.column
    names = (field.name, *options.aliases) if options.position is None else ()
    first = options.formats[0] if options.formats else ""
    return ExpectedColumn(
        name=field.name,
        headers=frozenset(map(fold, names)),
        required=field.required,
        position=options.position,
        form=CellForm(
            date=first if field.kind is Kind.DATE else "",
            timestamp=first if field.kind is Kind.TIMESTAMP else "",
            is_instant=field.kind is Kind.TIMESTAMP,
            decimal_mark=options.decimal_mark,
            true=next(iter(options.true), "true"),
            false=next(iter(options.false), "false"),
        ),
    )


def compile_contract(dataset: Dataset) -> Contract:
    """Check a declaration and compile it.

    Raises:
        PermanentError: invalid_contract, with the sentence that says what to mend.
    """
    _check_name(dataset)
    _check_file_format(dataset)
    try:
        schema = dataset.model.to_schema()
    except Exception as error:
        raise _invalid(dataset, f"Pandera refuses the model: {error}") from error
    if schema.unique:
        raise _invalid(
            dataset, "unique=[...] on the model looks at a part of a file only; use the key instead"
        )
    stray = set(dataset.columns) - set(schema.columns)
    if stray:
        raise _invalid(dataset, f"columns names {sorted(stray)}, which the model does not have")
    fields = tuple(
        _compile_field(dataset, name, column, dataset.columns.get(name, Column()))
        for name, column in schema.columns.items()
    )
    _check_key(dataset, fields)
    _check_tenant(dataset, fields)
    _check_aliases(dataset, fields)
    return Contract(
        dataset=dataset,
        fields=fields,
        key=tuple(dataset.key),
        schema=schema,
        existing=_choice(dataset, Existing, dataset.existing, "existing"),
        duplicates=_choice(dataset, Duplicates, dataset.duplicates, "duplicates"),
        version=_version(dataset, schema),
    )


def _invalid(dataset: Dataset, detail: str) -> PermanentError:
    return PermanentError(Code.INVALID_CONTRACT, f"Dataset {dataset.name!r}: {detail}.")


def _check_name(dataset: Dataset) -> None:
    if not IDENTIFIER.match(dataset.name) or len(dataset.name) > MAX_NAME:
        raise _invalid(
            dataset, f"the name must be lower-case letters, digits and _, at most {MAX_NAME} long"
        )


def _check_file_format(dataset: Dataset) -> None:
    declared = dataset.format
    if declared.encoding is not None and not _is_codec(declared.encoding):
        raise _invalid(dataset, f"format: Python has no text encoding {declared.encoding!r}")
    if declared.delimiter is not None and not re.fullmatch(r"[^\r\n\0\"]+", declared.delimiter):
        raise _invalid(dataset, "format: delimiter is one or more characters, no quote or line end")
    for name in ("quote", "escape"):
        mark = getattr(declared, name)
        if mark and (len(mark.encode()) != 1 or mark in "\r\n\0" or mark == declared.delimiter):
            raise _invalid(dataset, f"format: {name} is one ASCII character, or none")
    if declared.comment is not None and not re.fullmatch(r"[!-~]*", declared.comment):
        raise _invalid(dataset, "format: comment is visible ASCII characters, or none")
    for name, most in (
        ("header_rows", MAX_HEADER_ROWS),
        ("skip_lines", None),
        ("footer_lines", None),
    ):
        count = getattr(declared, name)
        if count is not None and (count < 0 or (most is not None and count > most)):
            raise _invalid(
                dataset, f"format: {name} is a number from 0{f' to {most}' if most else ''}"
            )


def _is_codec(name: str) -> bool:
    try:
        return isinstance("".encode(name), bytes)
    except LookupError:
        return False


def _choice(dataset: Dataset, kind: type[Any], value: str, name: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(repr(str(v)) for v in kind)
        raise _invalid(dataset, f"{name} is {value!r}; it can be {allowed}") from None


def _compile_field(dataset: Dataset, name: str, column: Any, options: Column) -> Field:
    if not IDENTIFIER.match(name) or len(name) > MAX_NAME:
        raise _invalid(
            dataset,
            f"column {name!r} must be lower-case letters, digits and _ (name the file's header "
            "with Column(aliases=...))",
        )
    if name in SYSTEM_COLUMNS:
        raise _invalid(dataset, f"column {name!r} has a name that Postgres keeps for itself")
    if column.unique:
        raise _invalid(
            dataset,
            f"unique on column {name!r} looks at a part of a file only; use the key instead",
        )
    dtype = column.dtype.type if column.dtype is not None else pl.String()
    dtype = dtype() if isinstance(dtype, type) else dtype
    kind = _kind(dtype)
    if kind is None:
        raise _invalid(
            dataset,
            f"column {name!r} has the type {dtype}, which has no place in a table; use str, int "
            "(Int8 to Int64), float, bool, datetime.date, datetime.datetime or "
            "Annotated[pl.Decimal, precision, scale]",
        )
    field = Field(
        name=name,
        kind=kind,
        dtype=dtype,
        nullable=bool(column.nullable),
        required=bool(column.required),
        description=column.description or column.title or "",
        column=options,
    )
    _check_options(dataset, field)
    return field


def _kind(dtype: pl.DataType) -> Kind | None:
    if isinstance(dtype, pl.String):
        return Kind.TEXT
    if isinstance(dtype, pl.Boolean):
        return Kind.BOOLEAN
    if isinstance(dtype, pl.Int8 | pl.Int16 | pl.Int32 | pl.Int64):
        return Kind.INTEGER
    if isinstance(dtype, pl.Float32 | pl.Float64):
        return Kind.FLOAT
    if isinstance(dtype, pl.Decimal):
        return Kind.DECIMAL
    if isinstance(dtype, pl.Date):
        return Kind.DATE
    if isinstance(dtype, pl.Datetime) and dtype.time_unit == "us":  # which is what Postgres has
        return Kind.TIMESTAMP
    return None


def _check_options(dataset: Dataset, field: Field) -> None:
    options = field.column
    where = f"Column {field.name!r}"
    if options.position is not None and options.position < 1:
        raise _invalid(dataset, f"{where}: position counts from 1")
    if len(options.decimal_mark) != 1 or len(options.grouping) > 1:
        raise _invalid(dataset, f"{where}: decimal_mark is one character, grouping one or none")
    if options.decimal_mark == options.grouping:
        raise _invalid(dataset, f"{where}: decimal_mark and grouping are the same")
    if options.time_zone is not None:
        try:
            zoneinfo.ZoneInfo(options.time_zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError):
            raise _invalid(dataset, f"{where}: no time zone {options.time_zone!r}") from None
    _check_formats(dataset, field)
    folded = {*map(str.casefold, options.true)} & {*map(str.casefold, options.false)}
    if folded:
        raise _invalid(dataset, f"{where}: {sorted(folded)} means both true and false")


def _check_formats(dataset: Dataset, field: Field) -> None:
    """Formats are readable, and say as much about time zones as the column's type needs."""
    options = field.column
    where = f"Column {field.name!r}"
    if options.formats and field.kind not in {Kind.DATE, Kind.TIMESTAMP}:
        raise _invalid(dataset, f"{where}: formats are for dates and timestamps")
    aware = isinstance(field.dtype, pl.Datetime) and field.dtype.time_zone is not None
    for text in options.formats:
        try:
            compiled = compile_format(text)
        except FormatError as error:
            raise _invalid(dataset, f"{where}: {error}") from None
        if field.kind is Kind.TIMESTAMP and aware and not compiled.has_offset:
            if options.time_zone is None:
                raise _invalid(
                    dataset,
                    f"{where}: the format {text!r} has no offset; say its time_zone",
                )
        elif field.kind is Kind.TIMESTAMP and not aware and compiled.has_offset:
            raise _invalid(
                dataset,
                f"{where}: the format {text!r} has an offset, which the column would lose; use "
                'Annotated[pl.Datetime, "us", "UTC"]',
            )


def _check_key(dataset: Dataset, fields: tuple[Field, ...]) -> None:
    if not isinstance(dataset.key, tuple) or not dataset.key:
        raise _invalid(dataset, 'key must be a tuple of column names, like ("permit_number",)')
    by_name = {f.name: f for f in fields}
    for name in dataset.key:
        if name not in by_name:
            raise _invalid(dataset, f"the key names {name!r}, which the model does not have")
        if by_name[name].accepts_null:
            raise _invalid(dataset, f"key column {name!r} must be required and not nullable")
        if by_name[name].kind is Kind.FLOAT:
            raise _invalid(dataset, f"key column {name!r} is a float; equality needs a decimal")


def _check_tenant(dataset: Dataset, fields: tuple[Field, ...]) -> None:
    rule = dataset.tenant
    in_pattern = "{tenant}" in dataset.inbox_pattern
    if isinstance(rule, FromPath) and not in_pattern:
        raise _invalid(dataset, "the tenant comes from the path, so inbox needs a {tenant}")
    if not isinstance(rule, FromPath) and in_pattern:
        raise _invalid(dataset, "inbox has a {tenant}, but the tenant does not come from the path")
    if isinstance(rule, FromColumn):
        field = next((f for f in fields if f.name == rule.column), None)
        if field is None or field.kind is not Kind.TEXT or field.accepts_null:
            raise _invalid(
                dataset, f"the tenant column {rule.column!r} must be a required text column"
            )
    if isinstance(rule, Fixed):
        try:
            check_tenant(rule.tenant)
        except PermanentError as error:
            raise _invalid(dataset, error.detail.rstrip(".")) from None


def _check_aliases(dataset: Dataset, fields: tuple[Field, ...]) -> None:
    owner: dict[str, str] = {}
    places: dict[int, str] = {}
    for field in fields:
        place = field.column.position
        if place is not None:
            other = places.setdefault(place, field.name)
            if other != field.name:
                raise _invalid(dataset, f"{other!r} and {field.name!r} have the same position")
            continue
        for name in {field.name, *field.column.aliases}:
            other = owner.setdefault(fold(name), field.name)
            if other != field.name:
                raise _invalid(
                    dataset, f"the header {name!r} would mean both {other!r} and {field.name!r}"
                )


def _version(dataset: Dataset, schema: Any) -> str:
    """Twelve hex digits over the declaration, the schema and the files of custom checks."""
    checks = {
        name: [str(check) for check in column.checks] for name, column in schema.columns.items()
    }
    said = {
        "name": dataset.name,
        "columns": {name: asdict(dataset.columns.get(name, Column())) for name in schema.columns},
        "key": list(dataset.key),
        "tenant": repr(dataset.tenant),
        "policies": [
            str(dataset.existing),
            str(dataset.duplicates),
            asdict(dataset.format),
            dataset.max_rejects,
            dataset.max_reject_ratio,
        ],
        "schema": {
            name: [str(column.dtype), column.nullable, column.required]
            for name, column in schema.columns.items()
        },
        "checks": checks,
        "source": _sources(dataset.model),
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]


def _sources(model: type[Any]) -> list[str]:
    """The files in which the model and its bases are written.

    A check that calls a function of another file may change without the version: what a version
    guards is a retry in the middle of a load, where the shape of the rows is what matters.
    """
    sources = []
    for base in model.__mro__:
        if base.__module__.partition(".")[0] in {"builtins", "pandera", "typing"}:
            continue
        try:
            sources.append(inspect.getsource(inspect.getmodule(base) or base))
        except (OSError, TypeError):  # made in a REPL: no source, its schema must do
            sources.append("")
    return sources
