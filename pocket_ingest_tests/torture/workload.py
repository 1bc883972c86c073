"""The files of the torture: new, overlapping, sent again, old ones sent anew, and broken ones.

Here: what is in a file and under which key it is sent. The same seed gives the same files, as long
as it is asked for them in the same order.
Not here: when they are sent (supervision.py).
"""

import csv
import hashlib
import io
import random
from dataclasses import dataclass, field

TENANTS = ("ash", "birch", "cedar")
HEADER = ["number", "street", "value", "assessed_on", "rooms"]
LARGEST = 600
"""Records of a file; with 40 in a batch, up to fifteen batches."""
KNOWN_NUMBERS = 3_000
"""Parcels of a tenant that files overlap on."""
KINDS = {
    "new": 4,
    "overlapping": 8,
    "overwritten": 3,
    "touched": 2,
    "same content elsewhere": 2,
    "header only": 1,
    "empty": 1,
    "missing column": 1,
    "doubled column": 1,
    "open quote": 1,
    "mostly bad": 1,
}


@dataclass(frozen=True, kw_only=True)
class SentFile:
    """A file and the inbox key under which it was sent."""

    key: str
    content: bytes
    kind: str

    @property
    def sha256(self) -> str:
        """The checksum of the content."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(kw_only=True)
class Workload:
    """Makes files, and remembers which it has made."""

    random: random.Random
    sent: list[SentFile] = field(default_factory=list)
    fresh_numbers: int = KNOWN_NUMBERS

    def next_file(self, taken_in: set[tuple[str, str]]) -> SentFile:
        """The next file.

        Args:
            taken_in: (key, sha256) of the uploads that the ledger has. A key is written again only
                after its last content was taken in; nobody could know of it otherwise.
        """
        kind = self.random.choices(list(KINDS), list(KINDS.values()))[0]
        latest = {file.key: file for file in self.sent}
        seen = [file for file in latest.values() if (file.key, file.sha256) in taken_in]
        if not seen and kind in {"overwritten", "touched", "same content elsewhere"}:
            kind = "overlapping"
        key = self._new_key()
        match kind:
            case "overwritten":
                key, content = self.random.choice(seen).key, self._rows(new=0.1)
            case "touched":
                file = self.random.choice(seen)
                key, content = file.key, file.content
            case "same content elsewhere":
                # Often an old one, whose values are older than the table's.
                content = self.random.choice(seen).content
            case "new":
                content = self._rows(new=1.0)
            case "overlapping":
                content = self._rows(new=0.2)
            case _:
                content = self._broken(kind)
        file = SentFile(key=key, content=content, kind=kind)
        self.sent.append(file)
        return file

    def contents_by_key(self) -> dict[str, list[str]]:
        """The checksums that each key had, in order; the same twice in a row counts once."""
        found: dict[str, list[str]] = {}
        for file in self.sent:
            contents = found.setdefault(file.key, [])
            if contents[-1:] != [file.sha256]:
                contents.append(file.sha256)
        return found

    def _new_key(self) -> str:
        dataset = self.random.choice(("parcels", "parcels", "first_parcels"))
        tenant = self.random.choice(TENANTS)
        return f"inbox/{dataset}/{tenant}/parcels {len(self.sent):05}.csv"

    def _rows(self, *, new: float, bad: float = 0.04) -> bytes:
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(HEADER)
        number = "P-1"
        for _ in range(self.random.randint(1, LARGEST)):
            if self.random.random() > 0.02:  # otherwise the same parcel twice
                number = self._number(new)
            row = self._row(number)
            if self.random.random() < bad:
                row = self._spoilt(row)
            writer.writerow(row)
        return buffer.getvalue().encode()

    def _number(self, new: float) -> str:
        if self.random.random() < new:
            self.fresh_numbers += 1
            return f"P-{self.fresh_numbers}"
        return f"P-{self.random.randrange(KNOWN_NUMBERS)}"

    def _row(self, number: str) -> list[str]:
        chance = self.random
        # Few values, so that a parcel often comes again unchanged.
        street = chance.choice(("Elm Street", 'Main "Old" Street', "Lane, upper", "High\nStreet"))
        day = "" if chance.random() < 0.1 else f"2026-0{chance.randint(1, 3)}-01"
        return [number, street, f"{chance.randint(1, 3)}000.00", day, str(chance.randint(1, 2))]

    def _spoilt(self, row: list[str]) -> list[str]:
        match self.random.randrange(5):
            case 0:
                return row[:-1]
            case 1:
                return [*row[:2], "much", *row[3:]]
            case 2:
                return [row[0], "", *row[2:]]
            case 3:
                return [*row[:3], "2026-02-30", row[4]]
            case _:
                return [*row[:2], "-1", row[3], "none"]

    def _broken(self, kind: str) -> bytes:
        match kind:
            case "header only":
                return (",".join(HEADER) + "\n").encode()
            case "empty":
                return b""
            case "missing column":
                return b"number,street\nP-1,Elm\n"
            case "doubled column":
                return b"number,street,value,value,assessed_on,rooms\nP-1,Elm,1,2,,\n"
            case "open quote":
                return self._rows(new=0.2) + b'P-2,"Elm,1.00,,\n'
            case _:
                return self._rows(new=0.2, bad=0.9)
