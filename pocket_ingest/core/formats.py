"""Date and time formats of contracts: `strptime` directives, compiled for Polars and made strict.

Polars parses with chrono, whose directives differ from Python's in two ways that matter here:
``%f`` means nanoseconds without a point, and ``%Y`` takes more than four digits (so that
``21019`` would be a year). A format is therefore a chrono format and a shape that the text must
have first. Source: the format tables of Python's ``datetime`` and of chrono's ``strftime``.

Not here: the casts that use them (casting.py).
"""

import re
from dataclasses import dataclass

SHAPES = {
    "%Y": r"\d{4}",
    "%y": r"\d{2}",
    "%m": r"\d{1,2}",
    "%d": r"\d{1,2}",
    "%H": r"\d{1,2}",
    "%I": r"\d{1,2}",
    "%M": r"\d{2}",
    "%S": r"\d{2}",
    "%b": r"[A-Za-z]{3}",
    "%B": r"[A-Za-z]+",
    "%p": r"[AaPp][Mm]",
    "%f": r"\d{1,6}",
    "%z": r"[+-]\d{2}:?\d{2}",
    "%%": "%",
}
EPOCHS = {"epoch_s": 1_000_000, "epoch_ms": 1_000}
"""Name to microseconds of one unit."""

DIRECTIVE = re.compile(r"%.")


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
            shape=r"^[+-]?\d{1,15}$",
            has_offset=True,
            has_time=True,
            unit=EPOCHS[text],
        )
    shape, last = [], 0
    for match in DIRECTIVE.finditer(text):
        directive = match.group()
        if directive not in SHAPES:
            raise FormatError(
                f"the format {text!r} has {directive}, which is not supported; "
                f"use {' '.join(SHAPES)}, epoch_s or epoch_ms"
            )
        shape += [re.escape(text[last : match.start()]), SHAPES[directive]]
        last = match.end()
    shape.append(re.escape(text[last:]))
    if not any(d in text for d in ("%Y", "%y")) or "%m" not in text.replace("%b", "%m").replace(
        "%B", "%m"
    ):
        raise FormatError(f"the format {text!r} does not name a year and a month")
    if "%d" not in text:
        raise FormatError(f"the format {text!r} does not name a day")
    return Format(
        text=text,
        chrono=text.replace(".%f", "%.f"),
        shape=f"^{''.join(shape)}$",
        has_offset="%z" in text,
        has_time="%H" in text or "%I" in text,
    )


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
