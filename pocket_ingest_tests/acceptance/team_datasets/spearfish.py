"""Building permits of Spearfish, South Dakota: one file a month, permit numbers as text."""

from typing import Annotated

import pandera.polars as pa
import polars as pl

from pocket_ingest import Column, Dataset, Fixed

Dollars = Annotated[pl.Decimal, 14, 2]


class Permit(pa.DataFrameModel):
    year: int
    month: int = pa.Field(in_range={"min_value": 1, "max_value": 12})
    permit_number: str
    applicant_name: str = pa.Field(nullable=True)
    site_address: str = pa.Field(nullable=True)
    construction_type: str = pa.Field(nullable=True)
    contractor: str = pa.Field(nullable=True)
    cost_approximate: Dollars = pa.Field(nullable=True, ge=0)
    permit_fee: Dollars = pa.Field(nullable=True, ge=0)
    hookup_fee: Dollars = pa.Field(nullable=True, ge=0)
    outside_city_limits: bool = pa.Field(nullable=True)


spearfish = Dataset(
    name="spearfish",
    model=Permit,
    key=("permit_number",),
    tenant=Fixed("spearfish-sd"),
    columns={"permit_fee": Column(grouping=",")},
)
