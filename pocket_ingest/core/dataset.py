"""How a data team declares a dataset: one `Dataset` in one small file.

Here: the words of the declaration, with their defaults.
Not here: what they are turned into (contract.py) or how a folder of them is found (datasets/).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.file_format import UNDECLARED, FileFormat

if TYPE_CHECKING:
    from pocket_ingest.core.contract import Contract


class Existing(StrEnum):
    """What happens to a row that is in the table already and differs."""

    UPDATE = "update"
    """The newer upload's values win (outcome ``updated``)."""
    KEEP = "keep"
    """The row stays as it is (outcome ``unchanged``)."""
    CONFLICT = "conflict"
    """The row stays as it is and the record is listed (outcome ``conflict``)."""


class Duplicates(StrEnum):
    """Which record wins when one file has the same business key twice."""

    FIRST = "first"
    LAST = "last"
    REJECT = "reject"
    """None of them: each is rejected as ``duplicate_key``."""


@dataclass(frozen=True)
class FromPath:
    """The tenant is the ``{tenant}`` part of the inbox pattern."""


@dataclass(frozen=True)
class FromColumn:
    """Each row's tenant is the value of a column, which must be text and required."""

    column: str


@dataclass(frozen=True)
class Fixed:
    """Every row of the dataset belongs to one tenant."""

    tenant: str


TenantRule = FromPath | FromColumn | Fixed

MAX_TENANT = 100


def check_tenant(tenant: str) -> str:
    """Accept a tenant's name, or raise PermanentError(invalid_tenant)."""
    bad = not tenant.strip() or len(tenant) > MAX_TENANT or not tenant.isprintable()
    if bad or "/" in tenant or tenant in {".", ".."}:
        raise PermanentError(
            Code.INVALID_TENANT,
            f"A tenant's name is 1 to {MAX_TENANT} printable characters without a slash.",
        )
    return tenant


@dataclass(frozen=True, kw_only=True)
class Column:
    """How text becomes a column's values, where that is not obvious. Everything has a default.

    Attributes:
        aliases: other header names of the column. Case, spaces, punctuation and diacritics never
            matter.
        position: 1-based place of the column in the file, for files in which its name is missing
            or stands twice; its header is not looked at then.
        formats: of dates and timestamps, ``strptime`` directives, or ``epoch_s`` / ``epoch_ms``.
            A cell must fit one; a cell that fits two with different results is rejected.
        time_zone: IANA zone of timestamps written without an offset, and the zone in which an
            instant becomes a date.
        decimal_mark: of decimals and floats.
        grouping: the mark between groups of three digits, where the file uses one.
        null: words that mean "no value", compared exactly.
        bare_empty_is_null: an empty field without quotes is no value (else empty text).
        quoted_empty_is_null: the field ``""`` is no value too. Columns that are not text always
            read it so.
        true, false: the words of booleans, compared without case.
        trim: strip white space (no-break spaces too) before anything else.
    """

    aliases: tuple[str, ...] = ()
    position: int | None = None
    formats: tuple[str, ...] = ()
    time_zone: str | None = None
    decimal_mark: str = "."
    grouping: str = ""
    null: tuple[str, ...] = ()
    bare_empty_is_null: bool = True
    quoted_empty_is_null: bool = False
    true: tuple[str, ...] = ("true",)
    false: tuple[str, ...] = ("false",)
    trim: bool = False


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A kind of file that people upload.

    Attributes:
        name: lower-case identifier; names the table, the assets and the inbox folder.
        model: a ``pandera.polars.DataFrameModel``: columns, types, checks.
        key: the columns of the business key, unique per tenant.
        tenant: who owns the rows.
        columns: casting and header names of single columns.
        existing: what happens to rows that are there already and differ.
        duplicates: which record wins when a file has a key twice.
        inbox: pattern of inbox paths, with ``{tenant}``, ``*`` (no slash) and ``**``; default
            ``<name>/{tenant}/*`` with a tenant from the path, else ``<name>/*``.
        format: what is declared of the files; the rest is found in each of them.
        max_rejects, max_reject_ratio: above either, the file fails and nothing is loaded.
        description: shown in Dagit.
    """

    name: str
    model: type[Any]
    key: tuple[str, ...]
    tenant: TenantRule = FromPath()
    columns: Mapping[str, Column] = field(default_factory=dict)
    existing: Existing | str = Existing.UPDATE
    duplicates: Duplicates | str = Duplicates.LAST
    inbox: str = ""
    format: FileFormat = UNDECLARED
    max_rejects: int | None = None
    max_reject_ratio: float | None = None
    description: str = ""

    @property
    def inbox_pattern(self) -> str:
        """The inbox pattern, with its default."""
        tenant = "{tenant}/" if isinstance(self.tenant, FromPath) else ""
        return self.inbox or f"{self.name}/{tenant}*"

    @cached_property
    def contract(self) -> "Contract":
        """The declaration, checked and compiled. Raises PermanentError(invalid_contract)."""
        from pocket_ingest.core.contract import compile_contract  # noqa: PLC0415 - imports Pandera

        return compile_contract(self)
