"""Building permits of Nashville: epoch milliseconds for dates, parcels with leading zeros."""

from datetime import date
from typing import Annotated

import pandera.polars as pa
import polars as pl

from pocket_ingest import Column, Dataset

CENTRAL = Column(formats=("epoch_ms",), time_zone="America/Chicago")


class Permit(pa.DataFrameModel):
    permit: str
    permit_type_description: str
    permit_subtype_description: str = pa.Field(nullable=True)
    parcel: str
    date_entered: date
    date_issued: date = pa.Field(nullable=True)
    const_cost: Annotated[pl.Decimal, 16, 2] = pa.Field(ge=0, nullable=True)
    address: str = pa.Field(nullable=True)
    city: str = pa.Field(nullable=True)
    state: str = pa.Field(nullable=True)
    subdivision_lot: str = pa.Field(nullable=True)
    contact: str = pa.Field(nullable=True)
    per_ty: str = pa.Field(nullable=True)
    per_subty: str = pa.Field(nullable=True)
    ivr_trk: int = pa.Field(nullable=True)
    purpose: str = pa.Field(nullable=True)
    council_dist: int = pa.Field(nullable=True)
    lon: float = pa.Field(ge=-180, le=180, nullable=True)
    lat: float = pa.Field(ge=-90, le=90, nullable=True)
    objectid: int
    zip: str = pa.Field(str_matches=r"^\d{5}$", nullable=True)


nashville = Dataset(
    name="nashville",
    model=Permit,
    key=("permit",),
    columns={"date_entered": CENTRAL, "date_issued": CENTRAL},
    duplicates="last",
)
