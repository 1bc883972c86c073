"""Text to types, column by column, as the contract says; a failed cast is a code on that field.

Here: the casts, as Polars expressions. Nothing is coerced: a cell becomes exactly what it says or
is refused, so leading zeros, ``NA``, integers over 2**53 and ``1.234,56`` never change in silence.
Not here: Pandera's checks on what did cast (validation.py).
"""

import re
from functools import reduce

import polars as pl

from pocket_ingest.core.contract import Field, Kind
from pocket_ingest.core.errors import Code
from pocket_ingest.core.failures import Failure
from pocket_ingest.core.formats import Format, compile_format, default_dates, default_timestamps

HINTS = {
    Kind.INTEGER: (Code.INVALID_INTEGER, "is not a whole number that fits the column"),
    Kind.DECIMAL: (Code.INVALID_DECIMAL, "is not a decimal number that fits the column exactly"),
    Kind.FLOAT: (Code.INVALID_NUMBER, "is not a number"),
    Kind.BOOLEAN: (Code.INVALID_BOOLEAN, "is not one of the words for true and false"),
    Kind.DATE: (Code.INVALID_DATE, "is not a date of the declared form"),
    Kind.TIMESTAMP: (Code.INVALID_TIMESTAMP, "is not a date and time of the declared form"),
}

NO_VALUE = "has no value, and the column needs one"

# Days, and microseconds, from 1970 to the first and the last of the years 1 to 9999. Outside of
# them Postgres writes "BC" or a fifth digit, which neither Python nor Arrow reads.
YEARS = {
    Kind.DATE: (-719_162, 2_932_896),
    Kind.TIMESTAMP: (-62_135_596_800_000_000, 253_402_300_799_999_999),
}


def cast_chunk(text: pl.DataFrame, fields: tuple[Field, ...]) -> tuple[pl.DataFrame, list[Failure]]:
    """Cast a chunk's columns of text.

    Args:
        text: one String column per field, named by it; null is a bare empty field.
        fields: the fields to cast, in the order wanted.

    Returns:
        The typed columns, null where a cast failed, and the failures (a required field without
        a value among them).
    """
    typed = text.select(
        expression
        for field in fields
        for expression in (
            cast_expression(field).alias(field.name),
            _given(field).is_not_null().alias(f"{field.name}\0given"),
        )
    )
    failures: list[Failure] = []
    for field in fields:
        value, given = typed[field.name], typed[f"{field.name}\0given"]
        if field.kind is not Kind.TEXT and value.null_count():
            failed = value.is_null() & given
            if failed.any():
                code, hint = HINTS[field.kind]
                failures.append(
                    Failure(field=field.name, code=code, hint=_said(field, hint), mask=failed)
                )
        if not field.nullable and not given.all():
            failures.append(
                Failure(field=field.name, code=Code.REQUIRED, hint=NO_VALUE, mask=~given)
            )
    return typed.select(field.name for field in fields), failures


def cast_expression(field: Field) -> pl.Expr:
    """The field's typed value, null where there is none or where the text does not cast."""
    given = _given(field)
    match field.kind:
        case Kind.TEXT:
            return given
        case Kind.INTEGER:
            number = _matching(given, rf"^[+-]?{_digits(field)}$").pipe(_plain_number, field)
            return number.cast(field.dtype, strict=False)
        case Kind.DECIMAL:
            return _decimal(given, field)
        case Kind.FLOAT:
            value = _fractional(given, field, rest=r"\d*", tail=r"(?:[eE][+-]?\d+)?")
            value = value.cast(field.dtype, strict=False)
            return pl.when(value.is_finite()).then(value)
        case Kind.BOOLEAN:
            word = given.str.to_lowercase()
            return (
                pl.when(word.is_in([w.lower() for w in field.column.true]))
                .then(statement=True)
                .when(word.is_in([w.lower() for w in field.column.false]))
                .then(statement=False)
            )
        case Kind.DATE:
            formats = [compile_format(f) for f in field.column.formats] or list(default_dates())
            return _in_our_years(_one_meaning([_date(given, f, field) for f in formats]), field)
        case Kind.TIMESTAMP:
            assert isinstance(field.dtype, pl.Datetime)  # noqa: S101 - the kind says so
            aware = field.dtype.time_zone is not None
            formats = [compile_format(f) for f in field.column.formats] or list(
                default_timestamps(aware=aware)
            )
            return _in_our_years(
                _one_meaning([_timestamp(given, f, field) for f in formats]), field
            )


def _given(field: Field) -> pl.Expr:
    """The cell's text, null where the contract says that there is no value."""
    options = field.column
    text = pl.col(field.name)
    if not options.bare_empty_is_null and field.kind is Kind.TEXT:
        text = text.fill_null("")
    if options.trim:
        text = text.str.strip_chars()
    nothing = list(options.null)
    if options.quoted_empty_is_null or field.kind is not Kind.TEXT:
        nothing.append("")
    if nothing:
        text = pl.when(text.is_in(nothing).not_()).then(text)
    return text


def _said(field: Field, hint: str) -> str:
    options = field.column
    if field.kind in {Kind.DATE, Kind.TIMESTAMP} and options.formats:
        return f"{hint} ({' or '.join(options.formats)})"
    if isinstance(field.dtype, pl.Decimal):
        return f"{hint} ({field.dtype.precision} digits, {field.dtype.scale} of them decimals)"
    return hint


def _matching(text: pl.Expr, shape: str) -> pl.Expr:
    return pl.when(text.str.contains(shape)).then(text)


def _digits(field: Field) -> str:
    """Digits, plain or in groups of three; ``1.00`` is no number where ``.`` groups thousands."""
    if not field.column.grouping:
        return r"\d+"
    return rf"(?:\d+|\d{{1,3}}(?:{re.escape(field.column.grouping)}\d{{3}})+)"


def _plain_number(text: pl.Expr, field: Field) -> pl.Expr:
    """The number as Polars reads it: no grouping, a point, no plus sign."""
    if field.column.grouping:
        text = text.str.replace_all(field.column.grouping, "", literal=True)
    if field.column.decimal_mark != ".":
        text = text.str.replace_all(field.column.decimal_mark, ".", literal=True)
    return text.str.strip_prefix("+")


def _fractional(given: pl.Expr, field: Field, *, rest: str, tail: str = "") -> pl.Expr:
    """Digits before or after the decimal mark or both, as Polars reads them."""
    mark = re.escape(field.column.decimal_mark)
    shape = rf"^[+-]?(?:{_digits(field)})?(?:{mark}{rest})?{tail}$"
    some = given.str.contains(r"^[+-]?\D?\d")
    return pl.when(some).then(_matching(given, shape)).pipe(_plain_number, field)


def _decimal(given: pl.Expr, field: Field) -> pl.Expr:
    """Exact: more decimals than the column has are refused unless they are zeros."""
    assert isinstance(field.dtype, pl.Decimal)  # noqa: S101 - the kind says so
    scale = field.dtype.scale
    number = _fractional(given, field, rest=rf"\d{{0,{scale}}}0*")
    number = number.str.replace(r"^(-?)\.", "${1}0.")
    number = number.str.replace(rf"(\.\d{{{scale}}})0+$", "${1}").str.strip_suffix(".")
    return number.cast(field.dtype, strict=False)


def _date(given: pl.Expr, form: Format, field: Field) -> pl.Expr:
    if form.has_offset:
        instant = _instant(given, form)
        return instant.dt.convert_time_zone(field.column.time_zone or "UTC").dt.date()
    return _matching(given, form.shape).str.to_date(form.chrono, strict=False)


def _timestamp(given: pl.Expr, form: Format, field: Field) -> pl.Expr:
    assert isinstance(field.dtype, pl.Datetime)  # noqa: S101 - the kind says so
    zone = field.dtype.time_zone
    if form.has_offset:
        return _instant(given, form).dt.convert_time_zone(zone or "UTC")
    text = _matching(given, form.shape)
    if form.has_time:
        local = text.str.to_datetime(form.chrono, time_unit="us", strict=False)
    else:
        local = text.str.to_date(form.chrono, strict=False).cast(pl.Datetime("us"))
    if zone is None:
        return local
    # An hour that a clock change skipped or repeated has no single meaning: refused.
    return local.dt.replace_time_zone(
        field.column.time_zone or zone, ambiguous="null", non_existent="null"
    ).dt.convert_time_zone(zone)


def _instant(given: pl.Expr, form: Format) -> pl.Expr:
    if form.unit:
        number = _matching(given, form.shape).cast(pl.Int64, strict=False)
        return (number * form.unit).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    # chrono reads Z only as a literal; the shape has been checked with it written out.
    text = _matching(given.str.replace(r"[Zz]$", "+00:00"), form.shape)
    return text.str.to_datetime(form.chrono, time_unit="us", strict=False, time_zone="UTC")


def _one_meaning(readings: list[pl.Expr]) -> pl.Expr:
    """The value on which all formats that fit agree; null where two of them differ."""
    if len(readings) == 1:
        return readings[0]
    value = pl.coalesce(readings)
    agree = reduce(
        lambda a, b: a & b, [(reading == value).fill_null(value=True) for reading in readings]
    )
    return pl.when(agree).then(value)


def _in_our_years(value: pl.Expr, field: Field) -> pl.Expr:
    return pl.when(value.to_physical().is_between(*YEARS[field.kind])).then(value)
