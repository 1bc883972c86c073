"""The datasets of the torture: one that newer uploads update, one that keeps its first row."""

from datetime import date
from typing import Annotated

import pandera.polars as pa
import polars as pl

from pocket_ingest import Dataset


class Parcel(pa.DataFrameModel):
    """One parcel of land."""

    number: str = pa.Field(str_matches=r"^P-\d+$")
    street: str
    value: Annotated[pl.Decimal, 12, 2] = pa.Field(ge=0)
    assessed_on: date = pa.Field(nullable=True)
    rooms: int = pa.Field(ge=0, nullable=True)


parcels = Dataset(
    name="parcels",
    model=Parcel,
    key=("number",),
    existing="update",
    duplicates="last",
    max_reject_ratio=0.5,
)

first_parcels = Dataset(
    name="first_parcels",
    model=Parcel,
    key=("number",),
    existing="keep",
    duplicates="first",
    max_reject_ratio=0.5,
)
