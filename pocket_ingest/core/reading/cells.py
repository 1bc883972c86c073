"""Typed cells of spreadsheets, JSON and Parquet, spelled as text that the contract reads back.

Here: one value at a time. Not here: which column has which form (``expectation``).
"""

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import cast

from pocket_ingest.core.reading.expectation import CellForm

EPOCHS = {"epoch_s": 1, "epoch_ms": 1_000}


def spell(value: object, form: CellForm) -> str | None:
    """A cell as text; None where it has no value.

    Numbers have neither an exponent nor a ".0"; dates and timestamps the column's first declared
    form, or ISO 8601 where there is none or it would lose a part of them.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return form.true if value else form.false
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float | Decimal):
        return _marked(_number(value), form)
    return _spell_time(value, form)


def spell_column(values: Sequence[object], form: CellForm) -> Sequence[str | None]:
    """``spell`` for consecutive cells of a sheet's column, which are mostly of one kind.

    A sheet's empty cell is an empty text, which has no value.
    """
    kinds = set(map(type, values))
    if kinds == {str}:
        texts = cast("Sequence[str]", values)
        return [text or None for text in texts] if "" in texts else texts
    if kinds == {float}:
        texts = list(map(repr, values))
        if "e" not in "".join(texts):
            texts = [text[:-2] if text.endswith(".0") else text for text in texts]
            return texts if form.decimal_mark == "." else [_marked(text, form) for text in texts]
    return [None if value == "" else spell(value, form) for value in values]


def _spell_time(value: object, form: CellForm) -> str:
    match value:
        case datetime():
            return _instant(value, form.timestamp or form.date)
        case date() if form.is_instant:
            return _instant(_midnight(value), form.timestamp)
        case date():
            return _day(value, form.date)
        case time():
            return value.isoformat()
        case timedelta():
            return _duration(value)
    raise TypeError(f"a cell cannot be of type {type(value).__name__}")


def _midnight(value: date) -> datetime:
    return datetime(value.year, value.month, value.day)


def _number(value: float | Decimal) -> str:
    text = repr(value) if isinstance(value, float) else str(value)
    if "e" in text or "E" in text:
        text = f"{Decimal(text):f}"
    return text.removesuffix(".0") if isinstance(value, float) else text


def _marked(number: str, form: CellForm) -> str:
    return number.replace(".", form.decimal_mark)


@lru_cache(maxsize=2**14)
def _day(value: date, form: str) -> str:
    if form in EPOCHS:
        return _instant(_midnight(value), form)
    return _formatted(value, form) or value.isoformat()


@lru_cache(maxsize=2**14)
def _instant(value: datetime, form: str) -> str:
    if form in EPOCHS:
        since = value.replace(tzinfo=None) - datetime(1970, 1, 1)
        return _number(since / timedelta(seconds=1) * EPOCHS[form])
    return _formatted(value, form) or value.isoformat()


def _formatted(value: date, form: str) -> str:
    """The value in a form, if that loses nothing of it."""
    if not form:
        return ""
    # strftime leaves out zeros before a year below 1000 on Linux.
    text = value.strftime(form.replace("%Y", f"{value.year:04d}"))
    try:
        back: date = datetime.strptime(text, form)
    except ValueError:
        return ""
    if not isinstance(value, datetime):
        back = datetime.date(back)  # type: ignore[arg-type]
    return text if back == value else ""


def _duration(value: timedelta) -> str:
    seconds, sign = abs(value) // timedelta(seconds=1), "-" if value < timedelta() else ""
    rest = abs(value) % timedelta(seconds=1)
    fraction = f".{rest.microseconds:06d}" if rest else ""
    return f"{sign}{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
