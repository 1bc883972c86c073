"""Date and time formats of contracts: `strptime` directives, compiled for Polars and made strict.

Polars parses with chrono, whose directives differ from Python's in ways that matter here: ``%f``
means nanoseconds without a point, ``%Y`` takes more than four digits (so that ``21019`` would be a
year), and ``%y`` puts 69 into 2069, where Python has 1969. A format is therefore a chrono format
and a shape that the text must have first. Source: the format tables of Python's ``datetime`` and of
chrono's ``strftime``.

Not here: the casts that use them (casting.py).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

ONE_OR_TWO = r"\d{1,2}"
SHAPES = {
    "%Y": r"\d{4}",
    "%y": r"\d{2}",
    "%m": ONE_OR_TWO,
    "%d": ONE_OR_TWO,
    "%H": ONE_OR_TWO,
    "%I": ONE_OR_TWO,
    "%M": r"\d{2}",
    "%S": r"[0-5]\d",  # chrono would take the leap second 60 for the next minute's first
    "%b": r"[A-Za-z]{3}",
    "%B": r"[A-Za-z]+",
    "%p": r"[AaPp][Mm]",
    "%f": r"\d{1,6}",
    "%z": r"[+-]\d{2}:?\d{2}",
    "%%": "%",
}
EPOCHS = {"epoch_s": 1_000_000, "epoch_ms": 1_000}
"""Name to microseconds of one unit."""
EPOCH_DIGITS = {"epoch_s": 12, "epoch_ms": 15}
"""More digits would not fit 64 bits as microseconds."""

NEEDS = {"%H": "%M", "%I": "%M", "%M": "an hour", "%S": "%M", "%f": "%S", "%z": "an hour"}
"""Directive to what it means nothing without."""

DIRECTIVE = re.compile(r"%.?")


class FormatError(ValueError):
    """The format says something that cannot be read strictly."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """A compiled format.

    Attributes:
        text: as the contract says it.
        chrono: the same for Polars; empty for an epoch.
        shape: a regular expression that the whole cell must match.
        has_offset: whether the text fixes an instant by itself.
        has_time: whether it has an hour.
        unit: microseconds of one unit of an epoch, else 0.
    """

    text: str
    chrono: str
    shape: str
    has_offset: bool
    has_time: bool
    unit: int = 0


def compile_format(text: str) -> Format:
    """Compile one format.

    Raises:
        FormatError: naming the directive that is not supported.
    """
    if text in EPOCHS:
        return Format(
            text=text,
            chrono="",
            shape=rf"^[+-]?\d{{1,{EPOCH_DIGITS[text]}}}$",
            has_offset=True,
            has_time=True,
            unit=EPOCHS[text],
        )
    directives = list(DIRECTIVE.finditer(text))
    _check_directives(text, {match.group() for match in directives})
    shape, last = [], 0
    for place, match in enumerate(directives):
        literal = text[last : match.start()]
        digits = SHAPES[match.group()]
        if digits == ONE_OR_TWO and _touches_digits(directives, place):
            digits = r"\d{2}"  # 2020111 would be the first of November, or the eleventh of January
        shape += [re.escape(literal), digits]
        last = match.end()
    shape.append(re.escape(text[last:]))
    return Format(
        text=text,
        chrono=text.replace(".%f", "%.f"),
        shape=f"^{''.join(shape)}$",
        has_offset="%z" in text,
        has_time="%H" in text or "%I" in text,
    )


def _check_directives(text: str, found: set[str]) -> None:
    """Refuse what has no strict reading."""
    for directive in sorted(found - SHAPES.keys()):
        raise FormatError(
            f"the format {text!r} has {directive}, which is not supported; "
            f"use {' '.join(SHAPES)}, epoch_s or epoch_ms"
        )
    if not found & {"%Y", "%y"} or not found & {"%m", "%b", "%B"}:
        raise FormatError(f"the format {text!r} does not name a year and a month")
    if "%d" not in found:
        raise FormatError(f"the format {text!r} does not name a day")
    if ("%I" in found) != ("%p" in found):
        raise FormatError(f"the format {text!r} needs both %I and %p, or neither")
    named = found | ({"an hour"} if found & {"%H", "%I"} else set())
    for directive in sorted(found & NEEDS.keys()):
        if NEEDS[directive] not in named:
            raise FormatError(f"the format {text!r} has {directive} without {NEEDS[directive]}")
    if text.count("%f") != text.count(".%f"):
        raise FormatError(f"the format {text!r} has %f without a point before it")


def _touches_digits(directives: Sequence[re.Match[str]], place: int) -> bool:
    """Whether a neighbour, with nothing between, is of digits too."""
    here = directives[place]
    before, after = directives[max(place - 1, 0)], directives[min(place + 1, len(directives) - 1)]
    neighbours = [m for m in (before, after) if m.end() == here.start() or m.start() == here.end()]
    return any("d" in SHAPES[m.group()] for m in neighbours)


def default_dates() -> tuple[Format, ...]:
    """ISO 8601 dates."""
    return (compile_format("%Y-%m-%d"),)


def default_timestamps(*, aware: bool) -> tuple[Format, ...]:
    """ISO 8601 timestamps with ``T`` or a space, with the offset that the column's type needs."""
    offset = "%z" if aware else ""
    return tuple(
        compile_format(f"%Y-%m-%d{sep}%H:%M:%S{fraction}{offset}")
        for sep in ("T", " ")
        for fraction in ("", ".%f")
    )
