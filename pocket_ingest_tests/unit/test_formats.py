"""Formats: what is refused, and that the rest means what it means to Python."""

import re
from datetime import datetime

import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pocket_ingest.core.formats import SHAPES, FormatError, compile_format


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("%Y-%m", "day"),
        ("%m-%d", "year and a month"),
        ("%Y-%d", "year and a month"),
        ("", "year and a month"),
        ("%Y-%m-%d %j", "%j"),
        ("%D", "%D"),
        ("%Y-%m-%d %", "has %, which"),
        ("%%Y-%m-%d", "year and a month"),
        ("%Y-%m-%d %I:%M", "%I and %p"),
        ("%Y-%m-%d %H:%M %p", "%I and %p"),
        ("%Y-%m-%d %H", "%H without %M"),
        ("%Y-%m-%d %M:%S", "%M without an hour"),
        ("%Y-%m-%d%z", "%z without an hour"),
        ("%Y-%m-%d %H:%M:%S%f", "point"),
        ("%Y-%m-%d %H:%M:%S,%f", "point"),
        ("%Y-%m-%d %H:%M.%f", "%f without %S"),
        ("epoch_us", "year and a month"),
    ],
)
def test_what_has_no_strict_reading_is_refused(form: str, said: str) -> None:
    with pytest.raises(FormatError, match=re.escape(said)):
        compile_format(form)


PARTS = {
    "year": ["%Y"],
    "month": ["%m", "%b", "%B"],
    "day": ["%d"],
    "time": ["", "%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p", "%H%M%S"],
}
SEPARATORS = st.sampled_from(
    ["-", "/", ".", " ", "", ", ", " of ", "(", "%%", "ü", "\\d", "|", "+"]
)


@st.composite
def formats(draw: st.DrawFn) -> str:
    date = [draw(st.sampled_from(PARTS[part])) for part in ("year", "month", "day")]
    parts = draw(st.permutations(date))
    parts.append(draw(st.sampled_from(PARTS["time"])))
    text = draw(SEPARATORS)
    for part in parts:
        text += part + draw(SEPARATORS)
    return text


@given(form=formats(), moment=st.datetimes(min_value=datetime(1000, 1, 1)))
def test_a_text_is_read_as_python_reads_it(form: str, moment: datetime) -> None:
    text = moment.strftime(form)
    try:
        expected = datetime.strptime(text, form)
    except ValueError:  # such as a fraction that Python takes greedily into the next digits
        assume(False)
    compiled = compile_format(form)
    cells = pl.Series([text])
    assert cells.str.contains(compiled.shape).all()
    if compiled.has_time:
        assert cells.str.to_datetime(compiled.chrono, time_unit="us")[0] == expected
    else:
        assert cells.str.to_date(compiled.chrono)[0] == expected.date()


DIRECTIVES = st.lists(st.sampled_from([*SHAPES, ".%f", "-"]), max_size=6).map("".join)


@given(form=st.text("%YmdHMSfzpIbB:-/. ") | DIRECTIVES.map(lambda some: f"%Y-%m-%d {some}"))
def test_any_format_compiles_or_is_refused(form: str) -> None:
    try:
        compiled = compile_format(form)
    except FormatError:
        return
    # What was let through can be used: Polars raises for a format that it cannot read.
    parse = pl.Series([""]).str
    if compiled.has_offset:
        parse.to_datetime(compiled.chrono, strict=False, time_unit="us", time_zone="UTC")
    elif compiled.has_time:
        parse.to_datetime(compiled.chrono, strict=False, time_unit="us")
    else:
        parse.to_date(compiled.chrono, strict=False)


@pytest.mark.parametrize(
    ("form", "text", "fits"),
    [
        ("%Y%m%d", "20200111", True),
        ("%Y%m%d", "2020111", False),
        ("%d%m%Y", "1112020", False),
        ("%Y-%m-%d", "2020-1-1", True),
        ("%d%b%Y", "1Jan2020", True),
        ("%Y-%m-%d %H%M", "2020-1-1 101", False),
    ],
)
def test_digits_without_a_border_between_are_counted(form: str, text: str, fits: bool) -> None:
    assert bool(re.search(compile_format(form).shape, text)) == fits
