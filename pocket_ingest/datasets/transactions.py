"""Bank transactions of families, as a European bank exports them: `transactions/<family>/<file>`.

Semicolons between fields, `1.234,56` for amounts. A bank never changes what it has booked, so a
booking that comes again with other values is a conflict for a person to look at, and a reference
that comes twice in one file leaves no way to tell which of the two is true.
"""

from datetime import date
from typing import Annotated

import pandera.polars as pa
import polars as pl

from pocket_ingest import Column, Dataset, FileFormat

IBAN = r"^[A-Z]{2}\d{2}[A-Z0-9]{11,30}$"


class Transaction(pa.DataFrameModel):
    """One booking on one account."""

    account: str = pa.Field(str_matches=IBAN, description="IBAN of the family's own account.")
    reference: str = pa.Field(str_length={"min_value": 1, "max_value": 40})
    booked_on: date
    amount: Annotated[pl.Decimal, 14, 2] = pa.Field(description="Negative where money leaves.")
    currency: str = pa.Field(isin=["CHF", "CZK", "DKK", "EUR", "GBP", "NOK", "PLN", "SEK", "USD"])
    counterparty: str = pa.Field(nullable=True)
    counterparty_iban: str = pa.Field(str_matches=IBAN, nullable=True)
    purpose: str = pa.Field(nullable=True)


transactions = Dataset(
    name="transactions",
    model=Transaction,
    key=("account", "reference"),
    columns={
        "account": Column(aliases=("Auftragskonto",)),
        "reference": Column(aliases=("Referenz",), trim=True),
        "booked_on": Column(aliases=("Booking date", "Buchungstag")),
        "amount": Column(aliases=("Betrag",), decimal_mark=",", grouping="."),
        "currency": Column(aliases=("Währung",)),
        "counterparty": Column(aliases=("Zahlungsbeteiligter",)),
        "counterparty_iban": Column(aliases=("IBAN Zahlungsbeteiligter",)),
        "purpose": Column(aliases=("Verwendungszweck",)),
    },
    existing="conflict",
    duplicates="reject",
    format=FileFormat(delimiter=";"),
    description="Booked transactions of families' bank accounts.",
)
