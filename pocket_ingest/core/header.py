"""A file's header against the contract's columns.

Here: which position holds which field, and what differs (drift).
Not here: finding the header in the file (reading/).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pocket_ingest.core.contract import Contract
from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.reading.expectation import fold


@dataclass(frozen=True, kw_only=True)
class HeaderMatch:
    """Where each field stands in the file.

    Attributes:
        positions: field name to 0-based position; an optional field that is absent is not in it.
        extra: header names that the contract does not know; their cells are not read.
        absent: optional fields that the file does not have.
        reordered: whether the known columns come in another order than the contract's.
    """

    positions: Mapping[str, int]
    extra: tuple[str, ...]
    absent: tuple[str, ...]
    reordered: bool


def match_header(names: tuple[str, ...], contract: Contract) -> HeaderMatch:
    """Match by name, folded, and by position only where the contract declares one.

    Raises:
        PermanentError: duplicate_header if two columns claim the same name or field,
            missing_column if a required field has no column.
    """
    placed = _placed(names, contract)
    meaning = {
        fold(name): field.name
        for field in contract.fields
        if field.column.position is None
        for name in (field.name, *field.column.aliases)
    }
    positions = {name: place for place, name in placed.items()}
    seen: dict[str, int] = {}
    extra: list[str] = []
    _refuse_missing(names, meaning, contract)
    for position, name in enumerate(names):
        if position in placed:
            continue
        field = meaning.get(fold(name))
        earlier = positions.get(field) if field else seen.get(name.strip())
        if earlier is not None and name.strip():
            # A name that the contract does not know may be a cell: some files have no header.
            what = f"both mean {field!r}" if field else "have the same name"
            raise PermanentError(
                Code.DUPLICATE_HEADER,
                f"Columns {earlier + 1} and {position + 1} of the header {what}. Rename or remove "
                "one of them; or the team declares the position of the right one.",
            )
        if field:
            positions[field] = position
        else:
            extra.append(name)
            seen[name.strip()] = position
    order = sorted(positions, key=positions.__getitem__)
    absent = [f for f in contract.fields if f.name not in positions]
    return HeaderMatch(
        positions=positions,
        extra=tuple(extra),
        absent=tuple(f.name for f in absent),
        reordered=order != [f.name for f in contract.fields if f.name in positions],
    )


def _placed(names: tuple[str, ...], contract: Contract) -> dict[int, str]:
    """The fields that are found by their place in the file."""
    placed = {
        field.column.position - 1: field.name
        for field in contract.fields
        if field.column.position is not None
    }
    beyond = [name for place, name in placed.items() if place >= len(names)]
    if beyond:
        raise PermanentError(
            Code.MISSING_COLUMN,
            f"The file has {len(names)} columns, which leaves none for "
            f"{', '.join(map(repr, beyond))}.",
        )
    return placed


def _refuse_missing(names: tuple[str, ...], meaning: Mapping[str, str], contract: Contract) -> None:
    found = {meaning.get(fold(name)) for name in names}
    missing = [
        f.name
        for f in contract.fields
        if f.required and f.column.position is None and f.name not in found
    ]
    if missing:
        raise PermanentError(
            Code.MISSING_COLUMN,
            f"The header has no column for {', '.join(map(repr, missing))}. It has "
            f"{len(names)} columns. Add the column, or an alias to the contract if it only has "
            "another name now.",
        )
