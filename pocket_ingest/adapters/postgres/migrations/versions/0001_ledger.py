"""The ledger's first shape.

Revision ID: 0001
Revises:
"""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the ledger from the SQL beside this file."""
    # exec_driver_sql, since op.execute would read the colons of the SQL as bind parameters.
    op.get_bind().exec_driver_sql(
        Path(__file__).with_suffix(".sql").read_text(encoding="utf-8").replace("%", "%%")
    )
