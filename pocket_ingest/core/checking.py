"""Pandera's checks on the records that did cast, each violation as (row, field, code, hint).

Here: the translation of Pandera's failure cases into stable codes and sentences.
Not here: casts (casting.py), the walk through a file (validation.py).

Pandera is given eager frames of typed columns: a LazyFrame would skip the checks on data in
silence, and ``coerce=True`` would report one failing column only (both measured on 0.35).
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from pocket_ingest.core.contract import Contract
from pocket_ingest.core.errors import Code, PermanentError

MAX_LISTED = 12
"""Allowed values that a hint spells out; a list of every county would bury the sentence."""

CODES = {
    "str_matches": Code.PATTERN,
    "str_contains": Code.PATTERN,
    "str_startswith": Code.PATTERN,
    "str_endswith": Code.PATTERN,
    "str_length": Code.TEXT_LENGTH,
    "isin": Code.NOT_ALLOWED,
    "notin": Code.NOT_ALLOWED,
    "equal_to": Code.NOT_ALLOWED,
    "not_equal_to": Code.NOT_ALLOWED,
    "greater_than": Code.OUT_OF_RANGE,
    "greater_than_or_equal_to": Code.OUT_OF_RANGE,
    "less_than": Code.OUT_OF_RANGE,
    "less_than_or_equal_to": Code.OUT_OF_RANGE,
    "in_range": Code.OUT_OF_RANGE,
}


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One check that one row of a chunk does not pass; ``field`` is empty for a rule on the row."""

    row: int
    field: str
    code: Code
    hint: str


def check_rows(
    frame: pl.DataFrame, contract: Contract, *, complete: bool = True
) -> Iterator[Violation]:
    """Run the contract's Pandera schema over typed rows.

    Args:
        frame: one typed column per field that the file has.
        contract: its schema is used.
        complete: false for rows of which some cells did not cast and are null for that reason.
            Then the checks of single columns run, so that one bad cell does not hide another; rules
            across columns do not, since they would judge a row that is not there.

    Raises:
        PermanentError: invalid_contract if a check fails without saying on which rows.
    """
    from pandera.errors import SchemaErrors  # noqa: PLC0415 - two seconds of import, once needed

    schema = contract.schema if complete else _single_columns(contract.schema)
    try:
        schema.validate(frame, lazy=True)
    except SchemaErrors as error:
        for case in error.failure_cases.iter_rows(named=True):
            yield _violation(case, schema, contract)


def _single_columns(schema: Any) -> Any:
    """The schema without rules across columns, every column taking nulls."""
    import pandera.polars as pa  # noqa: PLC0415

    columns = copy.deepcopy(schema.columns)
    for column in columns.values():
        column.nullable = True
    return pa.DataFrameSchema(columns, strict=schema.strict)


def _violation(case: dict[str, Any], schema: Any, contract: Contract) -> Violation:
    wide = case["schema_context"] != "Column"
    owner = schema if wide else schema.columns.get(case["column"])
    number = case["check_number"]
    check = owner.checks[number] if owner is not None and number is not None else None
    if check is None and case["check"] == "not_nullable" and case["index"] is not None:
        return Violation(
            row=case["index"],
            field=case["column"],
            code=Code.REQUIRED,
            hint="has no value, and the column needs one",
        )
    if check is None or case["index"] is None:
        raise PermanentError(
            Code.INVALID_CONTRACT,
            f"Dataset {contract.name!r}: the check {_name(check, case)!r} failed as a whole or "
            "stopped with an error, so no record can be named. Make it return one boolean a row.",
        )
    return Violation(
        row=case["index"],
        field="" if wide else case["column"],
        code=CODES.get(check.name, Code.CHECK_FAILED),
        hint=check.description or check.title or _sentence(check, owner.description),
    )


def _name(check: Any, case: dict[str, Any]) -> str:
    return str(check.name) if check is not None else str(case["check"]).partition("(")[0]


def _sentence(check: Any, described: str | None) -> str:
    """What the check asks for, from the contract's own words and numbers.

    A pattern says little to the person who fixes a file, so the column's description goes with it.
    """
    asked = dict(check.statistics or {})
    words = {
        "greater_than": "must be above {min_value}",
        "greater_than_or_equal_to": "must be at least {min_value}",
        "less_than": "must be below {max_value}",
        "less_than_or_equal_to": "must be at most {max_value}",
        "in_range": "must be from {min_value} to {max_value}",
        "isin": "must be one of {allowed_values}",
        "notin": "must be none of {forbidden_values}",
        "equal_to": "must be {value}",
        "not_equal_to": "must not be {value}",
        "str_matches": "must have the form {pattern}",
        "str_contains": "must contain {pattern}",
        "str_startswith": "must begin with {string}",
        "str_endswith": "must end with {string}",
    }
    if check.name == "str_length":
        low, high = asked.get("min_value"), asked.get("max_value")
        return (
            "must have "
            + " and ".join(
                part
                for part in (
                    f"at least {low}" if low is not None else "",
                    f"at most {high}" if high is not None else "",
                )
                if part
            )
            + " characters"
        )
    template = words.get(check.name)
    if template is None:
        return f"does not pass {str(check.name or check.error).replace('_', ' ')!r}"
    try:
        said = template.format(**{name: _plain(value) for name, value in asked.items()})
    except KeyError:
        return f"does not pass {check.name!r}"
    if described and CODES[check.name] is Code.PATTERN:
        return f"{said} ({described.rstrip('.')})"
    return said


def _plain(value: Any) -> str:
    if hasattr(value, "pattern"):
        return str(value.pattern)
    if isinstance(value, list | tuple | set | frozenset):
        shown = [str(item) for item in list(value)[:MAX_LISTED]]
        more = len(value) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
    return str(value)
