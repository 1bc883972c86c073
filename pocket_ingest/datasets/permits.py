"""Building permits, one file per jurisdiction and month: `permits/<jurisdiction>/<file>`.

A permit changes while it lives (it is finaled, its valuation is corrected), so a later upload
updates it.
"""

from datetime import date
from typing import Annotated

import pandera.polars as pa
import polars as pl

from pocket_ingest import Column, Dataset


class Permit(pa.DataFrameModel):
    """One permit. A type with `| None` is a column that a file may leave out."""

    permit_number: str = pa.Field(str_length={"min_value": 1, "max_value": 40})
    permit_type: str = pa.Field(
        isin=["Building", "Demolition", "Electrical", "Mechanical", "Plumbing", "Roofing", "Sign"]
    )
    status: str = pa.Field(isin=["Issued", "Finaled", "Expired", "Withdrawn"])
    issued_on: date
    finaled_on: date = pa.Field(nullable=True)
    parcel: str = pa.Field(str_matches=r"^\d{3}-\d{3}-\d{2}$", description="Leading zeros count.")
    address: str
    contractor: str = pa.Field(nullable=True)
    valuation: Annotated[pl.Decimal, 14, 2] = pa.Field(ge=0, description="Dollars of work.")
    fee: Annotated[pl.Decimal, 10, 2] = pa.Field(ge=0, nullable=True)
    square_feet: int = pa.Field(ge=0, nullable=True)
    latitude: float | None = pa.Field(ge=-90, le=90, nullable=True)
    longitude: float | None = pa.Field(ge=-180, le=180, nullable=True)

    @pa.dataframe_check(description="a finaled permit needs a final date")
    @classmethod
    def has_final_date(cls, data: pa.PolarsData) -> pl.LazyFrame:
        """A finaled permit has the date on which it was finaled."""
        return data.lazyframe.select(
            (pl.col("status") != "Finaled") | pl.col("finaled_on").is_not_null()
        )


permits = Dataset(
    name="permits",
    model=Permit,
    key=("permit_number",),
    columns={
        "permit_number": Column(aliases=("Permit #", "Permit No."), trim=True),
        "issued_on": Column(aliases=("Issue Date",), formats=("%m/%d/%Y",)),
        "finaled_on": Column(aliases=("Final Date",), formats=("%m/%d/%Y",)),
        "parcel": Column(aliases=("Parcel ID", "APN")),
        "valuation": Column(aliases=("Job Value",), grouping=","),
        "fee": Column(aliases=("Total Fees",), grouping=","),
        "square_feet": Column(aliases=("Sq. Ft.",), grouping=","),
    },
    description="Building permits of jurisdictions, as their permit systems export them.",
)
