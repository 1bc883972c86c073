"""Checks on typed rows: Pandera's, and what a key must be to have a place in the table.

Here: the translation of Pandera's failures into stable codes and sentences, one failure for all the
rows that do not pass a check.
Not here: casts (casting.py), the walk through a file (validation.py), how failures are listed
(failures.py).

Pandera is given eager frames of typed columns: a LazyFrame would skip the checks on data in
silence, and ``coerce=True`` would report one failing column only (both measured on 0.35). Which
rows fail is taken from each check's output; the table of failure cases, for which a rule across
columns makes a Python object of each failing row, is held to one case a check.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from pocket_ingest.core.casting import NO_VALUE
from pocket_ingest.core.contract import Contract, Kind
from pocket_ingest.core.dataset import FromColumn
from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.failures import Failure, failing_rows

MAX_KEY_BYTES = 2_000
"""UTF-8 bytes of the text in a key; an entry of Postgres' B-tree has room for some 2,700 in all."""
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


class Checker:
    """A contract's checks, made ready once for all the rows of a file."""

    def __init__(self, contract: Contract) -> None:
        import pandera.polars as pa  # noqa: PLC0415 - two seconds of import, once needed

        self._contract = contract
        columns = copy.deepcopy(contract.schema.columns)
        rules = copy.deepcopy(contract.schema.checks)
        for column in columns.values():
            # The casts have found the values that are missing, and leave nulls of their own.
            column.nullable = True
        for check in [*rules, *(c for column in columns.values() for c in column.checks)]:
            check.n_failure_cases = 1
        self._columns = pa.DataFrameSchema(columns)
        self._rules = pa.DataFrameSchema(checks=rules) if rules else None

    def check(self, frame: pl.DataFrame, uncast: Sequence[Failure] = ()) -> list[Failure]:
        """Check typed rows.

        Args:
            frame: one typed column per field that the file has.
            uncast: cells that are null because they did not cast. A check of their own column says
                nothing about them, and a rule across columns nothing about their rows, since it
                would judge a row that is not there. So one bad cell hides no other.

        Returns:
            Failures of the key, of columns in their order, and of rules across columns.

        Raises:
            PermanentError: invalid_contract if a check fails without saying on which rows.
        """
        if frame.is_empty():
            return []
        failures = [*self._check_key(frame)]
        for failure in self._run(self._columns, frame):
            mask = failure.mask
            for cells in uncast:
                if cells.field == failure.field:
                    mask = mask & ~cells.mask
            if mask.any():
                failures.append(replace(failure, mask=mask))
        return failures + self._check_rules(frame, ~failing_rows(uncast, frame.height))

    def _check_rules(self, frame: pl.DataFrame, whole: pl.Series) -> list[Failure]:
        if self._rules is None or not whole.any():
            return []
        if whole.all():
            return [*self._run(self._rules, frame)]
        failures = []
        places = whole.arg_true().to_numpy()
        for failure in self._run(self._rules, frame.filter(whole)):
            mask = np.zeros(frame.height, np.bool_)
            mask[places[failure.mask.to_numpy()]] = True
            failures.append(replace(failure, mask=pl.Series(mask)))
        return failures

    def _check_key(self, frame: pl.DataFrame) -> Iterator[Failure]:
        """A key that the index has room for, and a tenant that has a name."""
        contract, rule = self._contract, self._contract.dataset.tenant
        names = dict.fromkeys(contract.key)
        if isinstance(rule, FromColumn):
            nameless = (frame[rule.column] == "").fill_null(value=False)
            if nameless.any():
                yield Failure(field=rule.column, code=Code.REQUIRED, hint=NO_VALUE, mask=nameless)
            names[rule.column] = None
        texts = [name for name in names if contract.field(name).kind is Kind.TEXT]
        if texts:
            size = pl.sum_horizontal(pl.col(name).str.len_bytes() for name in texts)
            long = frame.select(size > MAX_KEY_BYTES).to_series()
            if long.any():
                others = [name for name in texts if name != contract.key[0]]
                said = f" with {', '.join(others)}" if others else ""
                yield Failure(
                    field=contract.key[0],
                    code=Code.TEXT_LENGTH,
                    hint=f"is part of a key{said} of more than {MAX_KEY_BYTES:,} bytes, which the "
                    "table cannot index",
                    mask=long,
                )

    def _run(self, schema: Any, frame: pl.DataFrame) -> Iterator[Failure]:
        """The failures of one schema, in Pandera's order."""
        from pandera.errors import SchemaErrors  # noqa: PLC0415

        try:
            schema.validate(frame, lazy=True)
        except SchemaErrors as errors:
            for error in errors.schema_errors:
                yield self._failure(error, schema, frame.height)

    def _failure(self, error: Any, schema: Any, height: int) -> Failure:
        check, owner, output = error.check, error.schema, error.check_output
        if (
            isinstance(check, str)
            or not isinstance(error.failure_cases, pl.DataFrame)
            or output.height != height
        ):
            name = check.partition("(")[0] if isinstance(check, str) else str(check.name)
            raise PermanentError(
                Code.INVALID_CONTRACT,
                f"Dataset {self._contract.name!r}: the check {name!r} failed as a whole or "
                "stopped with an error, so no record can be named. Make it return one boolean a "
                "row.",
            )
        return Failure(
            field="" if schema is self._rules else owner.name,
            code=CODES.get(check.name, Code.CHECK_FAILED),
            hint=check.description or check.title or _sentence(check, owner.description),
            mask=~output.to_series(),
        )


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
