"""Readings of any format, put together."""

import io
from dataclasses import dataclass

from pocket_ingest.core.reading import Expectation, Found, LineAccount, ReadingLimits, open_table


@dataclass
class Whole:
    """Everything that a reading says."""

    names: tuple[str, ...]
    rows: list[tuple[str | None, ...]]
    lines: list[int]
    faults: list[tuple[int, int, str]]
    fields: list[tuple[str, ...]]
    raws: list[bytes]
    found: Found
    account: LineAccount

    @property
    def columns(self) -> dict[str, list[str | None]]:
        values = zip(*self.rows, strict=True) if self.rows else [()] * len(self.names)
        return dict(zip(self.names, map(list, values), strict=True))


def read_whole(
    data: bytes, *, expectation: Expectation | None = None, name: str = "", **limits: int
) -> Whole:
    """Read a file whose format is found out; numbers are checked on the way."""
    rows, lines, faults, fields, raws, expected = [], [], [], [], [], 1
    with open_table(
        lambda: io.BytesIO(data),
        expectation=expectation or Expectation(),
        limits=ReadingLimits(**limits),
        name=name,
    ) as reading:
        for chunk in reading:
            assert chunk.first_record == expected
            expected = chunk.last_record + 1
            met = [*chunk.records.tolist(), *(record.record for record in chunk.malformed)]
            assert sorted(met) == list(range(chunk.first_record, chunk.last_record + 1))
            rows += zip(*(column.to_pylist() for column in chunk.columns.columns), strict=True)
            lines += chunk.lines.tolist()
            raws += [chunk.raw(row) for row in range(len(chunk.records))]
            faults += [(bad.record, bad.line, str(bad.code)) for bad in chunk.malformed]
            fields += [reading.split(bad) for bad in chunk.malformed]
        assert reading.records_read == expected - 1
        return Whole(
            names=reading.header.names,
            rows=rows,
            lines=lines,
            faults=faults,
            fields=fields,
            raws=raws,
            found=reading.found,
            account=reading.account,
        )
