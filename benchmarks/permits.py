"""The data of all benchmarks: building permits of twelve columns, and the dataset for them.

Here: the declaration, which ``pocket-ingest`` finds through POCKET_DATASETS, and the generator.
Not here: anything that is measured.
"""

import csv
import random
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated

import pandera.polars as pa
import polars as pl

from pocket_ingest import Column, Dataset

TYPES = ["Building", "Demolition", "Electrical", "Mechanical", "Plumbing", "Roofing", "Sign"]
STATUSES = ["Issued", "Finaled", "Expired", "Withdrawn"]
PARCEL = r"^\d{3}-\d{3}-\d{2}$"
BAD_SHARE = 0.01
FILLED_SHARE = 0.8
"""Of the cells that may be empty."""
NEEDS_QUOTES = str.maketrans({",": " ", '"': "'", "\n": " "})
STREETS = ["Elm Street", "Main Street", "Oak Avenue", "Lakeview Drive", "County Road 12"]
WORKS = [
    "Reroof",
    "New deck, rear",
    'Replace "temporary" service',
    "Kitchen remodel\nno structural work",
    "Detached garage, 24x30, on slab",
    "Solar panels on the south roof",
]


class Permit(pa.DataFrameModel):
    """One permit."""

    permit_number: str = pa.Field(str_length={"min_value": 1, "max_value": 40})
    permit_type: str = pa.Field(isin=TYPES)
    status: str = pa.Field(isin=STATUSES)
    issued_on: date
    finaled_on: date = pa.Field(nullable=True)
    parcel: str = pa.Field(str_matches=PARCEL)
    address: str
    work: str = pa.Field(nullable=True)
    contractor: str = pa.Field(nullable=True)
    valuation: Annotated[pl.Decimal, 14, 2] = pa.Field(ge=0)
    fee: Annotated[pl.Decimal, 10, 2] = pa.Field(ge=0, nullable=True)
    square_feet: int = pa.Field(ge=0, nullable=True)

    @pa.dataframe_check(description="a finaled permit needs a final date")
    @classmethod
    def has_final_date(cls, data: pa.PolarsData) -> pl.LazyFrame:
        """A finaled permit has the date on which it was finaled."""
        return data.lazyframe.select(
            (pl.col("status") != "Finaled") | pl.col("finaled_on").is_not_null()
        )


bench_permits = Dataset(
    name="bench_permits",
    model=Permit,
    key=("permit_number",),
    columns={
        "permit_number": Column(trim=True),
        "issued_on": Column(formats=("%m/%d/%Y",)),
        "finaled_on": Column(formats=("%m/%d/%Y",)),
        "valuation": Column(grouping=","),
        "fee": Column(grouping=","),
    },
)

HEADER = list(Permit.to_schema().columns)


def write_permits(folder: Path, records: int, *, seed: int = 1) -> int:
    """Write the same permits three times.

    ``permits.csv`` is as a system exports it, and 1 % of it bad; ``clean.csv`` has its good rows as
    COPY takes them; ``plain.csv`` has those without anything that needs quotes.

    Args:
        folder: where to.
        records: of permits.csv, the header not counted.
        seed: the same files for the same seed.

    Returns:
        How many rows are good.
    """
    chance = random.Random(seed)
    good = 0
    with (
        (folder / "permits.csv").open("w", encoding="utf-8", newline="") as dirty_file,
        (folder / "clean.csv").open("w", encoding="utf-8", newline="") as clean_file,
        (folder / "plain.csv").open("w", encoding="utf-8", newline="") as plain_file,
    ):
        dirty, clean, plain = (
            csv.writer(file, lineterminator="\n") for file in (dirty_file, clean_file, plain_file)
        )
        for writer in (dirty, clean, plain):
            writer.writerow(HEADER)
        for row in _permits(chance, records):
            if chance.random() < BAD_SHARE:
                dirty.writerow(_spoil(chance, _as_exported(row)))
            else:
                dirty.writerow(_as_exported(row))
                clean.writerow(row)
                plain.writerow([cell.translate(NEEDS_QUOTES) for cell in row])
                good += 1
    return good


def _permits(chance: random.Random, records: int) -> Iterator[list[str]]:
    start = date(2015, 1, 1)
    for number in range(1, records + 1):
        issued = start + timedelta(days=chance.randrange(3650))
        status = chance.choice(STATUSES)
        finaled = issued + timedelta(days=chance.randrange(400))
        yield [
            f"BP{issued.year}-{number:07}",
            chance.choice(TYPES),
            status,
            issued.isoformat(),
            finaled.isoformat() if status == "Finaled" else "",
            f"{chance.randrange(1000):03}-{chance.randrange(1000):03}-{chance.randrange(100):02}",
            f"{chance.randrange(1, 9999)} {chance.choice(STREETS)}, Unit {chance.randrange(1, 99)}",
            chance.choice(WORKS),
            _or_nothing(chance, f"Contractor {chance.randrange(4000)} LLC"),
            f"{chance.randrange(100, 2_000_000)}.{chance.randrange(100):02}",
            _or_nothing(chance, f"{chance.randrange(25, 9000)}.00"),
            _or_nothing(chance, str(chance.randrange(80, 9000))),
        ]


def _or_nothing(chance: random.Random, cell: str) -> str:
    return cell if chance.random() < FILLED_SHARE else ""


def _as_exported(row: list[str]) -> list[str]:
    """As a permit system writes it: American dates, thousands in groups."""
    shown = list(row)
    for place in (3, 4):
        if row[place]:
            year, month, day = row[place].split("-")
            shown[place] = f"{month}/{day}/{year}"
    whole, cents = row[9].split(".")
    shown[9] = f"{int(whole):,}.{cents}"
    return shown


def _spoil(chance: random.Random, row: list[str]) -> list[str]:
    match chance.randrange(6):
        case 0:
            return [*row[:3], "02/30/2020", *row[4:]]
        case 1:
            return [*row[:9], "unknown", *row[10:]]
        case 2:
            return [*row[:5], "12-3", *row[6:]]
        case 3:
            return [*row[:1], "Fence", *row[2:]]
        case 4:
            return row[:-1]
        case _:
            return [*row[:6], "", *row[7:]]
