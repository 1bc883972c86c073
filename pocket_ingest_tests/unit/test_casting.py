"""Casts against what Python makes of the same text: exactly that value, or a refusal."""

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pocket_ingest.core.casting import cast_chunk
from pocket_ingest.core.dataset import Column
from pocket_ingest.core.failures import Failure
from pocket_ingest_tests.examples import declare, nullable

INSTANT = Annotated[pl.Datetime, "us", "UTC"]
REFUSED = object()


def cast_all(
    dtype: Any, cells: list[str | None], *, required: bool = False, **options: Any
) -> tuple[pl.Series, list[Failure]]:
    dataset = declare(
        {"id": str, "x": dtype},
        checks={} if required else {"x": nullable()},
        options={"x": Column(**options)},
    )
    field = dataset.contract.field("x")
    typed, failures = cast_chunk(pl.DataFrame({"x": cells}, schema={"x": pl.String}), (field,))
    assert typed.schema == {"x": field.dtype}
    return typed["x"], failures


def cast(dtype: Any, cell: str | None, **options: Any) -> Any:
    """The value of one cell, or REFUSED."""
    return cast_many(dtype, [cell], **options)[0]


def cast_many(dtype: Any, cells: list[str | None], **options: Any) -> list[Any]:
    values, failures = cast_all(dtype, cells, **options)
    refused = {row for failure in failures for row in failure.rows}
    assert len(failures) <= 1
    assert all(values[row] is None for row in refused)
    return [REFUSED if row in refused else value for row, value in enumerate(values.to_list())]


def texts(alphabet: str) -> st.SearchStrategy[list[str]]:
    """Cells that are nearly right, and any other text."""
    near = st.text(alphabet, min_size=1, max_size=12)
    anything = st.text(min_size=1, max_size=6)
    return st.lists(near | near | anything, min_size=1, max_size=20)


class TestIntegers:
    @given(st.integers(-(2**63) - 5, 2**63 + 5) | st.integers(), st.sampled_from(["", "+", "00"]))
    @example(2**63 - 1, "")
    @example(2**63, "")
    @example(-(2**63), "")
    @example(2**53 + 1, "")
    def test_are_exact_or_refused(self, number: int, prefix: str) -> None:
        text = str(number) if number < 0 else f"{prefix}{number}"
        fits = -(2**63) <= number < 2**63
        assert cast(int, text) == (number if fits else REFUSED)

    @pytest.mark.parametrize("bits", [8, 16, 32, 64])
    def test_fit_their_column(self, bits: int) -> None:
        dtype = {8: pl.Int8, 16: pl.Int16, 32: pl.Int32, 64: pl.Int64}[bits]
        top = 2 ** (bits - 1)
        cells = [str(n) for n in (top - 1, top, -top, -top - 1)]
        assert cast_many(dtype, cells) == [top - 1, REFUSED, -top, REFUSED]

    @given(texts("0123456789+-._ ,eE\u0663\u00a0x"))
    def test_any_text_is_what_it_says_or_refused(self, cells: list[str]) -> None:
        said = [
            int(c) if re.fullmatch(r"[+-]?[0-9]+", c) and abs(int(c)) < 2**63 else REFUSED
            for c in cells
        ]
        assert cast_many(int, list(cells)) == said

    @given(texts("0123456789+-.,"), st.sampled_from([",", ".", " ", "'", "\u202f"]))
    def test_groups_are_of_three_digits(self, cells: list[str], mark: str) -> None:
        cells = [c.replace(",", mark) for c in cells]
        m = re.escape(mark)
        shape = rf"[+-]?([0-9]+|[0-9]{{1,3}}({m}[0-9]{{3}})+)"
        said = [int(c.replace(mark, "")) if re.fullmatch(shape, c) else REFUSED for c in cells]
        decimal = "," if mark == "." else "."
        found = cast_many(int, list(cells), grouping=mark, decimal_mark=decimal)
        assert found == said

    @given(st.integers(-(10**15), 10**15))
    def test_a_grouped_number_comes_back(self, number: int) -> None:
        assert cast(int, f"{number:,}", grouping=",") == number


DECIMALS = st.integers(-(10**38) + 1, 10**38 - 1)


class TestDecimals:
    @given(DECIMALS, st.sampled_from([0, 1, 2, 19, 37, 38]))
    def test_of_38_digits_are_exact(self, digits: int, scale: int) -> None:
        number = Context(prec=38).scaleb(Decimal(digits), -scale)
        found = cast(Annotated[pl.Decimal, 38, scale], f"{number:f}")
        assert found == number

    @given(st.decimals(allow_nan=False, allow_infinity=False, places=4))
    def test_more_decimals_than_the_column_has_are_refused_unless_zero(self, n: Decimal) -> None:
        exact = Context(prec=60, Emax=10**6)
        fits = exact.remainder(n, Decimal("0.01")) == 0 and abs(n) < 10**12
        found = cast(Annotated[pl.Decimal, 14, 2], f"{n:f}")
        assert found == (n if fits else REFUSED)

    @given(texts("0123456789+-.,eE\u0663"))
    @example([".", "-", "+.", "-.5", "5.", "+.50", "-0", "1.230", "1.2300", "0" * 50 + "1"])
    def test_any_text_is_what_it_says_or_refused(self, cells: list[str]) -> None:
        said = []
        for cell in cells:
            shape = re.fullmatch(r"[+-]?(?=\.?[0-9])[0-9]*(\.[0-9]*)?", cell)
            value = Decimal(cell) if shape else None
            fits = value is not None and value == round(value, 2) and abs(value) < 10**12
            said.append(value if fits else REFUSED)
        assert cast_many(Annotated[pl.Decimal, 14, 2], list(cells)) == said

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("-236,48", "-236.48"),
            ("1.488,69", "1488.69"),
            ("-1.000", "-1000"),
            ("1.00", None),
            ("1.0000", None),
            ("12.34.567", None),
            ("1.234.567,8", "1234567.8"),
            ("1234567,80", "1234567.80"),
            ("1234.567,80", None),
            (".000", None),
            ("1,5,5", None),
            (",5", "0.5"),
            ("-,5", "-0.5"),
            ("5,", "5"),
            ("1,000", "1"),
            ("1,001", None),
        ],
    )
    def test_with_a_comma_and_points_between_groups(self, text: str, value: str | None) -> None:
        found = cast(Annotated[pl.Decimal, 14, 2], text, decimal_mark=",", grouping=".")
        assert found == (REFUSED if value is None else Decimal(value))

    def test_the_hint_says_how_many_digits(self) -> None:
        _, (failure,) = cast_all(Annotated[pl.Decimal, 14, 2], ["1", "x", None, "1.234"])
        assert failure.rows == [1, 3]
        assert "14 digits, 2 of them decimals" in failure.hint


class TestFloats:
    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_come_back(self, number: float) -> None:
        assert cast(float, repr(number)) == number

    @given(texts("0123456789+-.,eEnaif_\u0663"))
    @example(["nan", "inf", "-Infinity", "1e400", "1_0", "0x10", "1e", "e1", ".e1", "1e-400"])
    def test_any_text_is_what_it_says_or_refused(self, cells: list[str]) -> None:
        said = []
        for cell in cells:
            shape = r"[+-]?(?=\.?[0-9])[0-9]*(\.[0-9]*)?([eE][+-]?[0-9]+)?"
            value = float(cell) if re.fullmatch(shape, cell) else None
            infinite = value in {float("inf"), float("-inf")}
            said.append(REFUSED if value is None or infinite else value)
        assert cast_many(float, list(cells)) == said

    def test_a_single_that_would_be_infinite_is_refused(self) -> None:
        assert cast(pl.Float32, "1e39") is REFUSED


class TestBooleans:
    def test_have_their_own_words(self) -> None:
        said = {"true": ("Ja", "weiß", "1"), "false": ("Nein", "")}
        cells = ["ja", "JA", "Weiß", "1", "nein", "true", "weiss", " ja", "0"]
        assert cast_many(bool, list(cells), **said) == [
            *[True] * 4,
            False,
            *[REFUSED] * 4,
        ]

    @given(st.lists(st.text(min_size=1, max_size=6), min_size=1))
    def test_nothing_else_is_one(self, cells: list[str]) -> None:
        words = {"true": True, "false": False}
        said = [words.get(cell.lower(), REFUSED) for cell in cells]
        assert cast_many(bool, list(cells)) == said


class TestDates:
    @given(st.dates())
    def test_come_back(self, day: date) -> None:
        assert cast(date, day.isoformat()) == day
        german = f"{day.day}.{day.month}.{day.year:04}"
        assert cast(date, german, formats=("%d.%m.%Y",)) == day
        compact = day.strftime("%m%d") + f"{day.year:04}"
        assert cast(date, compact, formats=("%m%d%Y",)) == day

    @given(texts("0123456789-+/ \u0663"))
    @example(["2023-02-29", "2024-02-29", "2024-02-30", "2024-13-01", "2024-00-01"])
    @example(["21019-01-01", "0000-01-01", "0001-01-01", "9999-12-31", "+2024-01-01", "24-01-01"])
    @example(["2024-1-2", "2024-001-02", "2024-01-02 ", " 2024-01-02", "2024-01-02T00:00:00"])
    def test_any_text_is_what_it_says_or_refused(self, cells: list[str]) -> None:
        said = []
        for cell in cells:
            parts = re.fullmatch(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})", cell)
            try:
                said.append(date(*map(int, parts.groups())) if parts else REFUSED)
            except ValueError:
                said.append(REFUSED)
        assert cast_many(date, list(cells)) == said

    @given(st.dates(), st.booleans())
    def test_a_cell_with_two_meanings_is_refused(self, day: date, us: bool) -> None:
        """Never guessed by the rest of the column, nor by the order of the formats."""
        formats = ("%d/%m/%Y", "%m/%d/%Y")
        text = f"{day.day}/{day.month}/{day.year:04}"
        clear = day.day == day.month or day.day > 12
        assert cast(date, text, formats=formats[::-1] if us else formats) == (
            day if clear else REFUSED
        )

    @pytest.mark.parametrize(
        ("form", "text", "value"),
        [
            ("%Y%m%d", "20200111", date(2020, 1, 11)),
            ("%Y%m%d", "2020111", REFUSED),
            ("%d %b %Y", "3 Mar 2024", date(2024, 3, 3)),
            ("%d %b %Y", "3 March 2024", REFUSED),
            ("%d %B %Y", "3 March 2024", date(2024, 3, 3)),
            ("%d %b %Y", "3 Mär 2024", REFUSED),
            ("%m/%d/%y", "1/2/24", date(2024, 1, 2)),
            ("%m/%d/%y", "1/2/2024", REFUSED),
            ("%d.%m.%Y %H:%M", "1.2.2024 23:59", date(2024, 2, 1)),
            ("%d.%m.%Y %H:%M", "1.2.2024 24:00", REFUSED),
        ],
    )
    def test_of_a_declared_form(self, form: str, text: str, value: Any) -> None:
        assert cast(date, text, formats=(form,)) == value

    def test_of_an_instant_are_those_of_the_zone(self) -> None:
        said = {"formats": ("epoch_ms",), "time_zone": "Asia/Tokyo"}
        instant = datetime(2024, 1, 1, 15, 0, tzinfo=UTC)
        milliseconds = round(instant.timestamp() * 1000)
        assert cast(date, str(milliseconds), **said) == date(2024, 1, 2)
        assert cast(date, str(milliseconds - 1), **said) == date(2024, 1, 1)

    def test_the_hint_names_the_forms(self) -> None:
        _, (failure,) = cast_all(date, ["x"], formats=("%d/%m/%Y", "%m/%d/%Y"))
        assert failure.hint.endswith("(%d/%m/%Y or %m/%d/%Y)")


MOMENTS = st.datetimes()
INSTANTS = st.datetimes(
    min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC)
)


class TestTimestamps:
    @given(MOMENTS, st.sampled_from(["T", " "]))
    def test_without_an_offset_come_back(self, moment: datetime, between: str) -> None:
        assert cast(datetime, moment.isoformat(between)) == moment

    @given(INSTANTS, st.integers(-14 * 60, 14 * 60), st.booleans())
    def test_with_an_offset_are_the_same_instant(
        self, instant: datetime, minutes: int, colon: bool
    ) -> None:
        sign, (hours, rest) = "-" if minutes < 0 else "+", divmod(abs(minutes), 60)
        offset = f"{sign}{hours:02}{':' * colon}{rest:02}"
        local = (instant + timedelta(minutes=minutes)).replace(tzinfo=None)
        assert cast(INSTANT, f"{local.isoformat()}{offset}") == instant

    @given(INSTANTS)
    def test_z_is_utc(self, instant: datetime) -> None:
        text = instant.replace(tzinfo=None).isoformat()
        assert cast_many(INSTANT, [f"{text}Z", f"{text}z"]) == [instant] * 2

    @pytest.mark.parametrize(
        "text",
        [
            "2024-01-01T23:59:60",  # a leap second is not the next minute
            "2024-01-01T24:00:00",
            "2024-01-01T23:60:00",
            "2024-01-01T1:2:3",
            "2024-01-01T01:02",
            "2024-01-01  01:02:03",
            "2024-01-01T01:02:03.",
            "2024-01-01T01:02:03.1234567",
            "2024-01-01T01:02:03,5",
            "2024-01-01T01:02:03Z",
            "2024-01-01T01:02:03+00:00",
            "0000-01-01T00:00:00",
            "10000-01-01T00:00:00",
            "2024-02-30T00:00:00",
        ],
    )
    def test_that_are_none_are_refused(self, text: str) -> None:
        assert cast(datetime, text) is REFUSED

    @pytest.mark.parametrize(
        "text",
        [
            "2024-01-01T01:02:03",
            "2024-01-01T01:02:03 +01:00",
            "2024-01-01T01:02:03+1:00",
            "2024-01-01T01:02:03+24:00",
            "2024-01-01T01:02:03+01:60",
            "2024-01-01T01:02:03CET",
            "2024-01-01T01:02:03ZZ",
            "0001-01-01T00:00:00+14:00",
            "9999-12-31T23:59:59-14:00",
        ],
    )
    def test_that_are_no_instant_are_refused(self, text: str) -> None:
        assert cast(INSTANT, text) is REFUSED

    @given(st.datetimes(min_value=datetime(1980, 1, 1), max_value=datetime(2037, 1, 1)))
    @example(datetime(2024, 3, 31, 2, 30))
    @example(datetime(2024, 10, 27, 2, 30))
    @example(datetime(2024, 10, 27, 3, 0))
    @example(datetime(2024, 3, 31, 3, 0))
    def test_an_hour_that_is_skipped_or_repeated_is_refused(self, local: datetime) -> None:
        zone = ZoneInfo("Europe/Berlin")
        local = local.replace(microsecond=0, fold=0)
        both = [local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
        expected = both[0] if both[0] == both[1] else REFUSED
        said = {"formats": ("%Y-%m-%d %H:%M:%S",), "time_zone": "Europe/Berlin"}
        assert cast(INSTANT, str(local), **said) == expected

    @given(st.integers(-(10**16), 10**16), st.sampled_from([1, 1000]))
    @example(253_402_300_799, 1)
    @example(253_402_300_800, 1)
    @example(999_999_999_999_999, 1)
    @example(-62_135_596_800, 1)
    @example(-62_135_596_801, 1)
    def test_epochs_are_exact_or_refused(self, number: int, per_second: int) -> None:
        form = {1: "epoch_s", 1000: "epoch_ms"}[per_second]
        try:
            expected: Any = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
                microseconds=number * 10**6 // per_second
            )
        except OverflowError:
            expected = REFUSED
        assert cast(INSTANT, str(number), formats=(form,)) == expected

    def test_a_date_alone_is_midnight_where_the_contract_says_so(self) -> None:
        assert cast(datetime, "2024-03-03", formats=("%Y-%m-%d",)) == datetime(2024, 3, 3)

    @pytest.mark.parametrize(
        ("text", "hour"), [("12:00 AM", 0), ("12:00 pm", 12), ("1:05 PM", 13), ("13:00 PM", None)]
    )
    def test_with_am_and_pm(self, text: str, hour: int | None) -> None:
        found = cast(datetime, f"2024-03-03 {text}", formats=("%Y-%m-%d %I:%M %p",))
        assert (found.hour if found is not REFUSED else None) == hour

    @given(texts("0123456789-+:.TZ \u0663"))
    def test_no_text_is_taken_for_what_it_is_not(self, cells: list[str]) -> None:
        shape = r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}[T ][0-9]{1,2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
        for cell, value in zip(cells, cast_many(datetime, list(cells)), strict=True):
            assert value is REFUSED or re.fullmatch(shape, cell)


class TestNothing:
    """What is no value, and what is a value that looks like none."""

    @pytest.mark.parametrize(
        ("said", "expected"),
        [
            ({}, [None, "", "NA", "NULL", " "]),
            ({"null": ("NA", "NULL")}, [None, "", None, None, " "]),
            ({"null": ("na",)}, [None, "", "NA", "NULL", " "]),
            ({"bare_empty_is_null": False}, ["", "", "NA", "NULL", " "]),
            ({"quoted_empty_is_null": True}, [None, None, "NA", "NULL", " "]),
            ({"trim": True}, [None, "", "NA", "NULL", ""]),
            ({"trim": True, "quoted_empty_is_null": True}, [None, None, "NA", "NULL", None]),
        ],
    )
    def test_in_text(self, said: dict[str, Any], expected: list[str | None]) -> None:
        assert cast_many(str, [None, "", "NA", "NULL", " "], **said) == expected

    @pytest.mark.parametrize("dtype", [int, float, bool, date, datetime, INSTANT])
    def test_in_other_types_empty_is_none_and_words_must_be_declared(self, dtype: Any) -> None:
        assert cast_many(dtype, [None, "", "n/a"]) == [None, None, REFUSED]
        said = {"null": ("n/a",), "bare_empty_is_null": False}
        assert cast_many(dtype, [None, "", "n/a"], **said) == [None, None, None]

    def test_where_a_value_is_needed_it_is_told(self) -> None:
        _, failures = cast_all(int, [None, "", "1", "x"], required=True)
        assert [(f.code, f.rows) for f in failures] == [
            ("invalid_integer", [3]),
            ("required", [0, 1]),
        ]

    @given(st.text(" \t\n\r\x0b\x0c\u00a0\u202f\u3000\u2007", max_size=4))
    def test_trimming_takes_every_kind_of_space_from_the_ends(self, space: str) -> None:
        assert cast(str, f"{space}a \u00a0b{space}", trim=True) == "a \u00a0b"
        assert cast(int, f"{space}7{space}", trim=True) == 7
        assert cast(int, f"\u00a0{space}7") is REFUSED

    @given(st.lists(st.none() | st.text(), min_size=1))
    def test_text_is_never_changed(self, cells: list[str | None]) -> None:
        assert cast_many(str, list(cells)) == cells
