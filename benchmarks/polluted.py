"""CSV files with a known right reading: clean tables with one pollution each, and files as found.

Here: the tables, how they are written, what is done to them, and what a reader ought to find then.
Not here: readers, scores.

What is right follows from one rule: the cells as the file holds them, nothing repaired. A lost
delimiter makes a record shorter, one too many makes it longer, a stray quote is a character like
any other. Titles, footers, comments and blank lines are no records.
"""

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import cycle, islice

Row = list[str]

FIRST = ["Ana", "Bo", "Carla", "Dmitri", "Elena", "Farid", "Grace", "Hugo", "Ines", "José"]
LAST = ["Okafor", "O'Neil", "Müller", "Silva", "Novak", "Dubois", "Tanaka", "Weber", "Lund", "Hart"]
PRODUCTS = ["Kettle", "Desk lamp", "Café press", "Garden hose", "Bookshelf", "Wall clock", "Mug"]
COMMENTS = [
    "Leave at the door, please",
    "Gift, wrap it",
    "Call first\nbefore noon",
    "Two parcels, one invoice,\nas last time",
    "None",
    "Express",
    "Repeat customer",
    "Pay on delivery",
]
STREETS = ["Elm Street", "Main Street", "Oak Avenue", "Lakeview Drive", "County Road 12"]
WORKS = ["Reroof", "New deck, rear", "Kitchen remodel", "Detached garage", "Sign", "Owner's pool"]
PAYEES = ["Stadtwerke Köln", "Müller & Söhne", "Bäckerei Groß", "Miete", "Café “Zur Post”", "Shop"]
CITIES = [
    ("Münster", "Westphalia", "Germany", "Seat of a bishop, and of many bicycles"),
    ("Besançon", "Doubs", "France", "Watchmaking town"),
    ("Ávila", "Castile", "Spain", "Walls all around"),
    ("Galway", "Connacht", "Ireland", "Harbour, festivals, rain"),
    ("Malmö", "Scania", "Sweden", "Bridge to Copenhagen"),
    ("Coimbra", "Beira", "Portugal", "University on a hill"),
    ("Namur", "Wallonia", "Belgium", "Where two rivers meet"),
    ("Ghent", "Flanders", "Belgium", "Three towers, one castle"),
    ("Siena", "Tuscany", "Italy", "Horse race in the square"),
    ("Zürich", "Zürich", "Switzerland", "Banks by the lake"),
    ("Ålesund", "Møre og Romsdal", "Norway", "Rebuilt after a fire"),
    ("St David's", "Dyfed", "Wales", "The smallest city"),
]
NUMBER = re.compile(r"[-+]?[\d.,]*\d")
DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Polluted:
    """One file.

    Attributes:
        name: unique, and fit for a file.
        kind: what was done to it.
        data: its bytes.
        header: the header rows that a reader ought to find.
        records: the records that it ought to find.
    """

    name: str
    kind: str
    data: bytes
    header: list[Row]
    records: list[Row]


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """How a table is written.

    Attributes:
        delimiter: one character or more.
        quote: one character.
        backslash: quotes in cells are escaped by one, not doubled.
        quoting: which cells are quoted: those that need it, all, texts, none.
        end: of a record.
    """

    delimiter: str = ","
    quote: str = '"'
    backslash: bool = False
    quoting: str = "needed"
    end: str = "\n"

    def needs_quotes(self, cell: str) -> bool:
        """Whether a cell cannot be written bare."""
        if self.delimiter == " " and not cell:
            return True
        special = {self.quote, "\n", "\r", *(self.delimiter.strip(" ") or self.delimiter)}
        return not special.isdisjoint(cell)

    def write_cell(self, cell: str) -> str:
        """A cell as it stands in the file."""
        quoted = self.quoting == "all" or (
            self.quoting != "none"
            and (self.needs_quotes(cell) or (self.quoting == "text" and not NUMBER.fullmatch(cell)))
        )
        if not quoted:
            return cell
        escaped = "\\" + self.quote if self.backslash else self.quote * 2
        return self.quote + cell.replace(self.quote, escaped) + self.quote

    def write_row(self, row: Row) -> str:
        """A row, without its end."""
        return self.delimiter.join(map(self.write_cell, row))

    def write(self, lines: Iterable[str]) -> str:
        """Lines with their ends."""
        return "".join(line + self.end for line in lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A clean table and how it is written where nothing else is said."""

    name: str
    header: Row
    records: list[Row]
    dialect: Dialect = Dialect()

    @property
    def is_text_only(self) -> bool:
        """Whether no record tells that the header is none of them."""
        return not any(NUMBER.fullmatch(cell) for cell in self.records[0])

    def lines(self, dialect: Dialect | None = None) -> list[str]:
        """The header and the records, written."""
        written = dialect or self.dialect
        return [written.write_row(row) for row in (self.header, *self.records)]


def make_tables(seed: int = 1) -> list[Table]:
    """Six clean tables, the same for the same seed."""
    chance = random.Random(seed)
    return [
        _orders(chance, 84),
        _permits(chance, 48),
        _bookings(chance, 40),
        Table(
            name="places",
            header=["City", "Region", "Country", "Known for"],
            records=[list(city) for city in CITIES],
        ),
        _readings(chance, 24, 40),
        _survey(chance, 50),
    ]


def make_polluted(seed: int = 1) -> Iterator[Polluted]:
    """Every kind of pollution on every table that it fits, one in each file."""
    tables = make_tables(seed)
    for table in tables:
        for pollute in (
            _sizes,
            _ends_of_file,
            _delimiters,
            _quotes,
            _record_ends,
            _around,
            _between,
            _header_rows,
            _two_tables,
            _encodings,
            _empty_columns,
        ):
            yield from pollute(table)
    yield Polluted(name="no-bytes", kind="size: no bytes", data=b"", header=[], records=[])
    yield from _row_by_row(tables, random.Random(seed + 1))


def make_real_like(seed: int = 1, each: int = 4) -> Iterator[Polluted]:
    """Files that look like published ones, ``each`` of every kind."""
    for kind, make in REAL_LIKE.items():
        for number in range(1, each + 1):
            made = make(random.Random(f"{seed} {kind} {number}"))
            yield replace(made, name=f"{_slug(kind)}-{number}", kind=kind)


# ---------------------------------------------------------------------------- clean tables


def _day(chance: random.Random, form: str = "%d/%m/%Y", first: int = 2013) -> str:
    return (date(first, 1, 1) + timedelta(days=chance.randrange(700))).strftime(form)


def _orders(chance: random.Random, records: int) -> Table:
    rows = []
    for number in range(records):
        first, last = chance.choice(FIRST), chance.choice(LAST)
        plain = f"{first}.{last}".lower().replace("'", "").replace("é", "e").replace("ü", "ue")
        rows.append(
            [
                _day(chance),
                f"{chance.randrange(7, 22):02}:{chance.randrange(60):02}:00",
                str(40_001 + number),
                str(chance.randrange(1, 40)),
                f"{chance.randrange(1, 900)}.{chance.randrange(100):02}",
                chance.choice(PRODUCTS),
                chance.choice(COMMENTS),
                f"{plain}@example.org",
                f"https://shop.example.org/orders?id={number}&lang=en",
            ]
        )
    header = ["Date", "Time", "Order", "Quantity", "Price", "Product", "Comment", "E-mail", "Link"]
    return Table(name="orders", header=header, records=rows)


def _permits(chance: random.Random, records: int) -> Table:
    rows = [
        [
            f"BP2014-{number:05}",
            chance.choice(["Issued", "Finaled", "Expired"]),
            _day(chance, "%Y-%m-%d"),
            f"{chance.randrange(1, 9999)} {chance.choice(STREETS)}, Unit {chance.randrange(1, 99)}",
            chance.choice(WORKS),
            str(chance.randrange(100, 2_000_000)),
            f"{chance.randrange(25, 9000)}.00",
            f"{chance.choice(LAST[3:])} & Sons LLC",
        ]
        for number in range(1, records + 1)
    ]
    header = ["permit", "status", "issued", "address", "work", "valuation", "fee", "contractor"]
    return Table(name="permits", header=header, records=rows)


def _bookings(chance: random.Random, records: int) -> Table:
    rows = [
        [
            _day(chance, "%d.%m.%Y"),
            _day(chance, "%d.%m.%Y"),
            chance.choice(PAYEES),
            f"Rechnung {chance.randrange(1000, 9999)}, danke \N{EN DASH} Gruß",
            f"DE{chance.randrange(10**19, 10**20)}",
            _german(chance.randrange(-900_000, 900_000)),
            "EUR",
        ]
        for _ in range(records)
    ]
    header = ["Buchung", "Wert", "Empfänger", "Zweck", "IBAN", "Betrag", "Währung"]
    return Table(name="bookings", header=header, records=rows, dialect=Dialect(delimiter=";"))


def _german(cents: int) -> str:
    return f"{cents / 100:,.2f}".translate(str.maketrans(",.", ".,"))


def _readings(chance: random.Random, columns: int, records: int) -> Table:
    rows = [
        [str(number), *(f"{chance.gauss(20, 9):.{place % 4}f}" for place in range(1, columns))]
        for number in range(1, records + 1)
    ]
    header = ["hour", *(f"sensor_{place:02}" for place in range(1, columns))]
    return Table(name="readings", header=header, records=rows)


def _survey(chance: random.Random, records: int) -> Table:
    rows = []
    for number in range(1, records + 1):
        answers = [
            str(chance.randrange(18, 90)),
            chance.choice(["yes", "no"]),
            chance.choice(STREETS),
            str(chance.randrange(1, 6)),
            f"{chance.random():.3f}",
            "Too loud, too late",
            _day(chance),
            chance.choice(["agree", "disagree"]),
            str(chance.randrange(100)),
        ]
        rows.append([str(number), *(a if chance.random() < 0.35 else "" for a in answers)])  # noqa: PLR2004
    header = ["no", "age", "owner", "street", "rooms", "share", "remark", "day", "opinion", "score"]
    return Table(name="survey", header=header, records=rows)


# ---------------------------------------------------------------------------- whole files


def _slug(text: str) -> str:
    return re.sub(r"\W+", "-", text.lower()).strip("-")


def _file(table: Table, kind: str, text: str | bytes, **right: list[Row]) -> Polluted:
    """A file of a table; its header and records, where ``right`` does not say other."""
    return Polluted(
        name=f"{_slug(kind)}-{table.name}",
        kind=kind,
        data=text if isinstance(text, bytes) else text.encode(),
        header=right.get("header", [table.header]),
        records=right.get("records", table.records),
    )


def _sizes(table: Table) -> Iterator[Polluted]:
    lines, write = table.lines(), table.dialect.write
    yield _file(table, "plain", write(lines))
    yield _file(table, "size: header only", write(lines[:1]), records=[])
    yield _file(table, "size: one record", write(lines[:2]), records=table.records[:1])
    if not table.is_text_only:
        yield _file(table, "header: none", write(lines[1:]), header=[])


def _ends_of_file(table: Table) -> Iterator[Polluted]:
    text = table.dialect.write(table.lines())
    yield _file(table, "end of file: no line end", text.removesuffix(table.dialect.end))
    yield _file(table, "end of file: two line ends", text + table.dialect.end)
    yield _file(table, "end of file: three line ends", text + table.dialect.end * 2)


DELIMITERS = {
    "comma": ",",
    "semicolon": ";",
    "tab": "\t",
    "pipe": "|",
    "space": " ",
    "comma and space": ", ",
    "colon": ":",
    "caret": "^",
    "two pipes": "||",
    "two colons": "::",
    "unit separator": "\x1f",
}


def _delimiters(table: Table) -> Iterator[Polluted]:
    for name, delimiter in DELIMITERS.items():
        if delimiter != table.dialect.delimiter:
            dialect = replace(table.dialect, delimiter=delimiter)
            yield _file(table, f"delimiter: {name}", dialect.write(table.lines(dialect)))


def _quotes(table: Table) -> Iterator[Polluted]:
    dialect, write = table.dialect, table.dialect.write
    for name, other in {
        "apostrophes": replace(dialect, quote="'"),
        "around all": replace(dialect, quoting="all"),
        "around texts": replace(dialect, quoting="text"),
    }.items():
        yield _file(table, f"quotes: {name}", write(table.lines(other)))
    bare = [
        [re.sub(f"[\n{dialect.delimiter}]+", " ", cell) for cell in row] for row in table.records
    ]
    none = replace(table, records=bare)
    yield _file(none, "quotes: none", write(none.lines()))
    around = replace(dialect, quoting="all").write_cell
    one = [
        dialect.delimiter.join([*map(dialect.write_cell, row[:-1]), around(row[-1])])
        for row in (table.header, *table.records)
    ]
    yield _file(table, "quotes: around the last column", write(one))
    for name, quote, backslash in (
        ("doubled", '"', False),
        ("with a backslash", '"', True),
        ("doubled, apostrophes", "'", False),
        ("with a backslash, apostrophes", "'", True),
    ):
        escaping = replace(dialect, quote=quote, backslash=backslash)
        holding = replace(table, records=_with_quotes(table.records, quote))
        yield _file(holding, f"quotes in cells: {name}", write(holding.lines(escaping)))


def _with_quotes(records: Sequence[Row], quote: str) -> list[Row]:
    """The records, two cells in every third of them holding quotes."""
    found = [list(row) for row in records]
    for number, row in enumerate(found[::3]):
        first, second = number % len(row), (number + 2) % len(row)
        row[first] = f"so {quote}called{quote} {row[first]}".rstrip()
        row[second] = f"5{quote} {row[second]}".rstrip()
    return found


def _record_ends(table: Table) -> Iterator[Polluted]:
    lines = table.lines()
    for name, ends in {
        "CR": ["\r"],
        "CRLF": ["\r\n"],
        "LF and CRLF": ["\n", "\r\n", "\r\n"],
        "LF, CRLF and CR": ["\n", "\r\n", "\r"],
    }.items():
        text = "".join(line + end for line, end in zip(lines, cycle(ends), strict=False))
        yield _file(table, f"record end: {name}", text)


PREAMBLE = [
    "Extract of the register, all branches, as approved",
    "Prepared by the statistics office",
    "Period: January to December, provisional, unaudited",
    "Contact: data@example.org",
    "Licence: open, with attribution",
    "Figures are as reported",
    "Definitions, methods, and sources are described elsewhere",
    "Do not edit",
    "Version 3",
    "End of notes",
]
FOOTER = [
    "Total",
    "Source: register office, own counts",
    "Note: rows may be revised without notice",
]


def _around(table: Table) -> Iterator[Polluted]:
    """Text before and after the table."""
    lines, write = table.lines(), table.dialect.write
    for count in (1, 3, 10):
        for delimiters in (False, True):
            for blank in (False, True):
                told = [
                    line.replace(",", table.dialect.delimiter if delimiters else "")
                    for line in PREAMBLE[:count]
                ]
                kind = f"preamble: {count} {'line' if count == 1 else 'lines'}"
                kind += (", delimiters" if delimiters else "") + (", blank line" if blank else "")
                yield _file(table, kind, write([*told, *([""] if blank else []), *lines]))
    for count in (1, 2, 3):
        for blank in (False, True):
            kind = f"footer: {count} {'line' if count == 1 else 'lines'}"
            kind += ", blank line" if blank else ""
            told = [line.replace(",", table.dialect.delimiter) for line in FOOTER[:count]]
            yield _file(table, kind, write([*lines, *([""] if blank else []), *told]))
    note = [*lines, "", "Note: rows may be revised without notice"]
    yield _file(table, "footer: note, blank line", write(note))


def _between(table: Table) -> Iterator[Polluted]:
    """Lines that are no records among those that are."""
    lines, write = table.lines(), table.dialect.write
    comment = "# corrected by hand"
    half = len(lines) // 2
    among = [*lines[:half], comment, *lines[half : half + 3], comment, *lines[half + 3 :]]
    yield _file(table, "comments: before", write([comment, "# version 3, final", *lines]))
    yield _file(table, "comments: among records", write(among))
    yield _file(table, "blank lines: one", write([*lines[:half], "", *lines[half:]]))
    yield _file(table, "blank lines: two in a row", write([*lines[:half], "", "", *lines[half:]]))
    tenth = [
        text for n, line in enumerate(lines, 1) for text in ([line, ""] if n % 10 == 0 else [line])
    ]
    yield _file(table, "blank lines: after every tenth", write(tenth))
    yield _file(
        table, "blank lines: before and after the header", write(["", lines[0], "", *lines[1:]])
    )


def _header_rows(table: Table) -> Iterator[Polluted]:
    if table.is_text_only:
        return
    groups = [
        f"Group {place // 3 + 1}" if place % 3 == 0 else "" for place in range(len(table.header))
    ]
    units = [_unit(next((c for c in cells if c), "")) for cells in zip(*table.records, strict=True)]
    for kind, header in {
        "header: two rows, groups first": [groups, table.header],
        "header: two rows, units last": [table.header, units],
        "header: three rows": [groups, table.header, units],
    }.items():
        rows = [*header, *table.records]
        text = table.dialect.write(map(table.dialect.write_row, rows))
        yield _file(table, kind, text, header=header)


def _unit(cell: str) -> str:
    if DATE.fullmatch(cell):
        return "(day)"
    return "(number)" if NUMBER.fullmatch(cell) else "(text)"


def _two_tables(table: Table) -> Iterator[Polluted]:
    write, columns = table.dialect.write, len(table.header)
    for name, width in {
        "same columns": columns,
        "fewer columns": columns - 2,
        "more columns": columns + 2,
    }.items():
        other = _readings(random.Random(width), width, 20)
        added = [other.header, *other.records]
        right = [*table.records, *added]
        lines = [table.dialect.write_row(row) for row in added]
        for blank in (False, True):
            kind = f"two tables: {name}{', blank line' if blank else ''}"
            text = write([*table.lines(), *([""] if blank else []), *lines])
            yield _file(table, kind, text, records=right)


def _encodings(table: Table) -> Iterator[Polluted]:
    text = table.dialect.write(table.lines())
    for name, codec, mark in (
        ("UTF-8 with mark", "utf-8", True),
        ("cp1252", "cp1252", False),
        ("latin-1", "latin-1", False),
        ("UTF-16 LE with mark", "utf-16-le", True),
        ("UTF-16 BE with mark", "utf-16-be", True),
        ("UTF-16 LE", "utf-16-le", False),
        ("UTF-16 BE", "utf-16-be", False),
        ("UTF-32 LE with mark", "utf-32-le", True),
        ("UTF-32 BE with mark", "utf-32-be", True),
    ):
        try:
            data = (("\ufeff" if mark else "") + text).encode(codec)
        except UnicodeEncodeError:
            continue
        if data != text.encode():
            yield _file(table, f"encoding: {name}", data)


def _empty_columns(table: Table) -> Iterator[Polluted]:
    delimiter, write = table.dialect.delimiter, table.dialect.write
    lines = table.lines()
    before = [["", *row] for row in table.records]
    after = [[*row, ""] for row in table.records]
    yield _file(
        table,
        "empty column: first",
        write(delimiter + line for line in lines),
        header=[["", *table.header]],
        records=before,
    )
    yield _file(
        table,
        "empty column: last",
        write(line + delimiter for line in lines),
        header=[[*table.header, ""]],
        records=after,
    )
    yield _file(
        table,
        "empty column: last, not in the header",
        write([lines[0], *(line + delimiter for line in lines[1:])]),
        records=after,
    )


# ---------------------------------------------------------------------------- one row


@dataclass(frozen=True, kw_only=True, slots=True)
class _Spot:
    """A cell of a table: where one row is changed."""

    table: Table
    row: int
    column: int

    @property
    def cells(self) -> Row:
        return self.table.records[self.row]

    @property
    def cell(self) -> str:
        return self.cells[self.column]

    def bare(self, *columns: int) -> bool:
        """Whether the cells of the columns, or all, stand unquoted in the file."""
        chosen = [self.cells[column] for column in columns] if columns else self.cells
        return not any(map(self.table.dialect.needs_quotes, chosen))


Change = Callable[[_Spot], tuple[str, Row] | None]
"""The row's text and its right cells, or nothing where the change does not fit the spot."""

ROW_CHANGES_EACH = {
    "delimiter missing": 300,
    "delimiter too many": 300,
    "stray quote": 200,
    "stray quote in a quoted cell": 40,
    "other delimiter": 50,
    "other quotes": 30,
}
"""Files of every kind that begins so."""


def _row_by_row(tables: Sequence[Table], chance: random.Random) -> Iterator[Polluted]:
    for kind, change in _changes().items():
        wanted = ROW_CHANGES_EACH[kind.removeprefix("row: ").partition(":")[0]]
        whole = [_all_quoted(t) for t in tables] if kind.endswith("none in a row") else tables
        found = [_fitting(table, change, chance) for table in whole]
        # Each table in turn, so that the smallest gives what it has and the rest is shared.
        spots = [spot for turn in _turns(found) for spot in turn]
        for spot, text, cells in spots[:wanted]:
            lines = spot.table.lines()
            lines[spot.row + 1] = text
            records = [*spot.table.records[: spot.row], cells, *spot.table.records[spot.row + 1 :]]
            made = _file(spot.table, kind, spot.table.dialect.write(lines), records=records)
            yield replace(made, name=f"{made.name}-{spot.row + 1}-{spot.column + 1}")


def _all_quoted(table: Table) -> Table:
    return replace(table, dialect=replace(table.dialect, quoting="all"))


def _fitting(
    table: Table, change: Change, chance: random.Random
) -> Iterator[tuple[_Spot, str, Row]]:
    places = [
        (row, column) for row in range(len(table.records)) for column in range(len(table.header))
    ]
    chance.shuffle(places)
    for row, column in places:
        spot = _Spot(table=table, row=row, column=column)
        if changed := change(spot):
            yield spot, *changed


def _turns(
    found: Sequence[Iterator[tuple[_Spot, str, Row]]], most: int = 400
) -> Iterator[list[tuple[_Spot, str, Row]]]:
    for _ in range(most):
        turn = [spot for spots in found for spot in islice(spots, 1)]
        if not turn:
            return
        yield turn


def _changes() -> dict[str, Change]:
    changes: dict[str, Change] = {
        "row: delimiter missing": _lose_delimiter,
        "row: delimiter too many": _add_delimiter,
    }
    for place in ("beginning", "middle", "end"):
        changes[f"row: stray quote: {place}"] = _stray(place, quoted=False)
        changes[f"row: stray quote in a quoted cell: {place}"] = _stray(place, quoted=True)
    for name, other in {"semicolon": ";", "tab": "\t", "space": " "}.items():
        changes[f"row: other delimiter: {name}"] = _other_delimiter(other)
    changes["row: other quotes: around all"] = _quote_row
    changes["row: other quotes: apostrophes"] = _apostrophe_row
    changes["row: other quotes: none in a row"] = _bare_row
    return changes


def _lose_delimiter(spot: _Spot) -> tuple[str, Row] | None:
    row, column, dialect = spot.cells, spot.column, spot.table.dialect
    if column + 1 == len(row) or not spot.bare(column, column + 1):
        return None
    right = [*row[:column], row[column] + row[column + 1], *row[column + 2 :]]
    return dialect.write_row(right), right


def _add_delimiter(spot: _Spot) -> tuple[str, Row]:
    right = [*spot.cells[: spot.column + 1], "", *spot.cells[spot.column + 1 :]]
    return spot.table.dialect.write_row(right), right


def _stray(place: str, *, quoted: bool) -> Change:
    def change(spot: _Spot) -> tuple[str, Row] | None:
        cell, dialect = spot.cell, spot.table.dialect
        if spot.bare(spot.column) == quoted or "\n" in cell or not cell:
            return None
        at = {"beginning": 0, "middle": len(cell) // 2, "end": len(cell)}[place]
        # Between letters or digits: elsewhere a quote may well open or close.
        while place == "middle" and at < len(cell) and not (cell[at - 1] + cell[at]).isalnum():
            at += 1
        if place == "middle" and not 0 < at < len(cell):
            return None
        with_quote = cell[:at] + dialect.quote + cell[at:]
        written = [dialect.write_cell(other) for other in spot.cells]
        written[spot.column] = dialect.quote + with_quote + dialect.quote if quoted else with_quote
        right = [*spot.cells[: spot.column], with_quote, *spot.cells[spot.column + 1 :]]
        return dialect.delimiter.join(written), right

    return change


def _other_delimiter(other: str) -> Change:
    def change(spot: _Spot) -> tuple[str, Row] | None:
        # The file's own delimiter, or a comma in its place.
        instead = other if other != spot.table.dialect.delimiter else ","
        # At the very end nothing would tell it from a footer.
        if spot.column or spot.row + 1 == len(spot.table.records) or not spot.bare():
            return None
        text = instead.join(spot.cells)
        return text, [text]

    return change


def _quote_row(spot: _Spot) -> tuple[str, Row] | None:
    if spot.column:
        return None
    return replace(spot.table.dialect, quoting="all").write_row(spot.cells), spot.cells


def _apostrophe_row(spot: _Spot) -> tuple[str, Row] | None:
    """Apostrophes quote nothing in a file that quotes with something else."""
    if spot.column or not spot.bare() or any("'" in cell for cell in spot.cells):
        return None
    right = [f"'{cell}'" for cell in spot.cells]
    return spot.table.dialect.write_row(right), right


def _bare_row(spot: _Spot) -> tuple[str, Row] | None:
    if spot.column or not spot.bare():
        return None
    return spot.table.dialect.delimiter.join(spot.cells), spot.cells


# ---------------------------------------------------------------------------- as published

COMMA = Dialect()
SEMICOLON = Dialect(delimiter=";", end="\r\n")
TAB = Dialect(delimiter="\t", quoting="none")


def _made(
    header: list[Row],
    records: list[Row],
    dialect: Dialect = COMMA,
    *,
    before: Sequence[str] = (),
    after: Sequence[str] = (),
    encoding: str = "utf-8",
) -> Polluted:
    """A file with lines of text before and after; its name and kind are given later."""
    rows = [dialect.write_row(row) for row in (*header, *records)]
    text = dialect.write([*before, *rows, *after])
    return Polluted(name="", kind="", data=text.encode(encoding), header=header, records=records)


def _some(chance: random.Random, least: int = 18, most: int = 60) -> range:
    return range(1, chance.randrange(least, most) + 1)


def _money(chance: random.Random, grouped: bool = False) -> str:
    value = chance.randrange(500, 90_000_000) / 100
    return f"{value:,.2f}" if grouped else f"{value:.2f}"


def _person(chance: random.Random) -> str:
    return f"{chance.choice(FIRST)} {chance.choice(LAST)}"


def _council_spend(chance: random.Random) -> Polluted:
    header = ["Body Name", "Date", "Transaction Number", "Amount", "Supplier Name", "Expense Area"]
    records = [
        [
            "Exampleshire Council",
            _day(chance),
            str(510_000 + number),
            _money(chance, grouped=chance.random() < 0.5),  # noqa: PLR2004
            f"{chance.choice(LAST)} Ltd",
            chance.choice(["Adult Care", "Highways, Parks & Waste", "Corporate"]),
        ]
        for number in _some(chance)
    ]
    empty = "," * (len(header) - 1)
    before = [f"Spend over £500{empty}", f"{chance.choice(['May', 'June'])} 2013{empty}", empty]
    return _made([header], records, replace(COMMA, end="\r\n"), before=before, encoding="cp1252")


def _trailing_empty_columns(chance: random.Random) -> Polluted:
    more = [""] * chance.randrange(2, 6)
    header = ["Ward", "Councillor", "Allowance", "Expenses", *more]
    records = [
        [f"Ward {number}", _person(chance), _money(chance), _money(chance), *more]
        for number in _some(chance)
    ]
    return _made([header], records)


def _padded_cells(chance: random.Random) -> Polluted:
    header = ["CODE ", " NAME", "POPULATION ", "AREA"]
    records = [
        [
            f"E{number:04} ",
            f"{chance.choice(STREETS):<22}",
            f"{chance.randrange(90_000):>9}",
            f"{chance.random() * 90:.2f}",
        ]
        for number in _some(chance)
    ]
    return _made([header], records)


def _totals_and_notes(chance: random.Random) -> Polluted:
    header = ["Department", "Posts", "Cost", "Share"]
    numbers = _some(chance, 12, 30)
    records = [
        [f"Department {n}", str(chance.randrange(90)), _money(chance, grouped=True), "3.4"]
        for n in numbers
    ]
    total = COMMA.write_row(["Total", "1204", "12,400,310.00", ""])
    notes = ["Notes", "1. Posts are full-time equivalents, rounded", "Source: finance office"]
    return _made([header], records, after=["", total, "", *notes[: chance.randrange(1, 4)]])


def _merged_header(chance: random.Random) -> Polluted:
    years = range(2008, 2008 + chance.randrange(2, 6))
    groups = ["Area", "", *(text for year in years for text in (str(year), ""))]
    names = ["Code", "Name", *(["Count", "Rate"] * len(years))]
    records = [
        [
            f"W{number:03}",
            chance.choice(STREETS),
            *(
                text
                for _ in years
                for text in (str(chance.randrange(900)), f"{chance.random() * 20:.1f}")
            ),
        ]
        for number in _some(chance)
    ]
    return _made([groups, names], records)


def _decimal_comma(chance: random.Random) -> Polluted:
    header = ["Gemeinde", "Einwohner", "Fläche", "Anteil", "Straße"]
    records = [
        [
            chance.choice(["Köln", "Düren", "Bonn", "Kürten", "Much"]) + f" {number}",
            f"{chance.randrange(1000, 900_000):,}".replace(",", "."),
            f"{chance.random() * 300:.2f}".replace(".", ","),
            f"{chance.random():.3f}".replace(".", ","),
            f"Hauptstraße {number}",
        ]
        for number in _some(chance)
    ]
    return _made([header], records, SEMICOLON, encoding=chance.choice(["cp1252", "utf-8"]))


def _french_accents(chance: random.Random) -> Polluted:
    header = ["Année", "Département", "Catégorie", "Montant", "Bénéficiaire"]
    records = [
        [
            str(chance.randrange(2005, 2016)),
            chance.choice(["Hérault", "Isère", "Finistère", "Côte-d'Or", "Orne"]),
            chance.choice(["Étude", "Travaux", "Œuvres sociales", "Prêt"]),
            f"{chance.randrange(90_000)},{chance.randrange(100):02} €",
            f"Association n° {number}",
        ]
        for number in _some(chance)
    ]
    return _made([header], records, SEMICOLON, encoding="cp1252")


def _tabs(chance: random.Random) -> Polluted:
    header = ["id", "taxon", "locality", "size", "remark"]
    records = [
        [
            str(number),
            chance.choice(["Larus canus", "Parus major", "Ciconia ciconia"]),
            f"{chance.choice(STREETS)}, {chance.randrange(1, 9)} km N, near mill",
            str(chance.randrange(5, 90)),
            chance.choice(["", 'called "the big one" here', '5" long', "seen; photographed"]),
        ]
        for number in _some(chance)
    ]
    return _made([header], records, TAB)


def _multi_line_texts(chance: random.Random) -> Polluted:
    header = ["Ref", "Received", "Description", "Decision"]
    texts = [
        "Erection of a shed,\nto the rear\n\nAmended plans",
        'Sign reading "Open", illuminated',
        "Two dwellings;\naccess, parking, and landscaping",
        "Felling of one oak",
    ]
    records = [
        [
            f"14/{number:05}/FUL",
            _day(chance),
            chance.choice(texts),
            chance.choice(["Approve", "Refuse"]),
        ]
        for number in _some(chance)
    ]
    return _made([header], records, replace(COMMA, end=chance.choice(["\n", "\r\n"])))


def _marks_in_texts(chance: random.Random) -> Polluted:
    header = ["Item", "Vendor", "Size", "Price"]
    records = [
        [
            chance.choice(["Pipe", "Women's gloves", "Builder's tape", "'Economy' bolts"]),
            chance.choice(["O'Neil & Co", "Dubois", "D'Arcy's"]),
            chance.choice(['5"', "3' 6\"", '1/2" x 4"', "n/a"]),
            _money(chance),
        ]
        for _ in _some(chance)
    ]
    return _made([header], records)


def _dates_with_commas(chance: random.Random) -> Polluted:
    header = ["Meeting", "Held on", "Attended", "Chair"]
    records = [
        [f"Board {n}", _day(chance, "%B %d, %Y"), str(chance.randrange(3, 40)), _person(chance)]
        for n in _some(chance)
    ]
    return _made([header], records)


def _grouped_thousands(chance: random.Random) -> Polluted:
    header = ["State", "Population", "Households", "Median income"]
    records = [
        [
            f"State {number}",
            f"{chance.randrange(900, 40_000_000):,}",
            f"{chance.randrange(900, 9_000_000):,}",
            f"${chance.randrange(20_000, 90_000):,}",
        ]
        for number in _some(chance)
    ]
    return _made([header], records, replace(COMMA, quoting=chance.choice(["needed", "all"])))


def _key_values_before(chance: random.Random) -> Polluted:
    mark = chance.choice([",", ": "])
    before = [
        f"Station{mark}Hillside",
        f"Latitude{mark}{chance.random() * 60:.4f}",
        f"Longitude{mark}-3.2",
        f"Elevation{mark}{chance.randrange(400)} m",
        "",
    ]
    header = ["Date", "Rain", "Max temp", "Min temp", "Wind"]
    records = [
        [_day(chance, "%Y-%m-%d"), *(f"{chance.random() * 30:.1f}" for _ in range(4))]
        for _ in _some(chance)
    ]
    return _made([header], records, before=before)


def _units_row(chance: random.Random) -> Polluted:
    header = [["Time", "Depth", "Salinity", "Oxygen"], ["(UTC)", "m", "PSU", "ml/l"]]
    records = [
        [
            f"2014-05-{1 + number % 28:02}T{chance.randrange(24):02}:00:00Z",
            *(f"{chance.random() * 40:.2f}" for _ in range(3)),
        ]
        for number in _some(chance)
    ]
    return _made(header, records)


def _commas_in_the_last_column(chance: random.Random) -> Polluted:
    header = ["id", "year", "rating", "comment"]
    texts = [
        "good, but slow, and far",
        "fine",
        "we came, saw, left, and wrote this",
        "not again, ever",
    ]
    records = [
        [str(n), str(chance.randrange(2000, 2020)), str(chance.randrange(6)), chance.choice(texts)]
        for n in _some(chance)
    ]
    return _made([header], records, replace(COMMA, quoting="none"))


def _one_column(chance: random.Random) -> Polluted:
    lists: dict[str, Callable[[], str]] = {
        "postcode": lambda: f"AB{chance.randrange(1, 30)} {chance.randrange(9)}XY",
        "e-mail": lambda: f"user{chance.randrange(9999)}@example.org",
        "street_name": lambda: chance.choice(STREETS),
        "amount": lambda: _money(chance),
    }
    name, make = chance.choice(list(lists.items()))
    return _made([[name]], [[make()] for _ in _some(chance)])


def _urls(chance: random.Random) -> Polluted:
    header = ["title", "link", "image", "hits"]
    records = [
        [
            f"Data set {number}",
            f"http://data.example.org/view;jsession={chance.randrange(9999)}?a=1|2&b={number}",
            f"http://img.example.org/{number}.png;w=10;h=20|thumb",
            str(chance.randrange(90_000)),
        ]
        for number in _some(chance)
    ]
    return _made([header], records)


def _json_in_cells(chance: random.Random) -> Polluted:
    header = ["id", "created", "payload", "ok"]
    records = [
        [
            str(number),
            f"2015-01-{1 + number % 28:02} 10:00:{chance.randrange(60):02}",
            json.dumps({"name": _person(chance), "tags": ["a", "b"], "n": chance.randrange(9)}),
            chance.choice(["true", "false"]),
        ]
        for number in _some(chance)
    ]
    return _made([header], records)


def _booleans(chance: random.Random) -> Polluted:
    yes, no = chance.choice([("TRUE", "FALSE"), ("Y", "N"), ("yes", "no"), ("1", "0")])
    header = ["Site", "Open", "Accessible", "Parking", "Toilets"]
    records = [
        [f"Site {number}", *(chance.choice([yes, no]) for _ in range(4))]
        for number in _some(chance)
    ]
    return _made([header], records)


def _years_as_names(chance: random.Random) -> Polluted:
    years = range(1990, 1990 + chance.randrange(8, 26))
    header = ["Country", "Code", "Indicator", *map(str, years)]
    records = [
        [
            f"Country {number}",
            f"C{number:02}",
            "Births per 1,000",
            *(f"{chance.random() * 40:.1f}" if chance.random() < 0.8 else "" for _ in years),  # noqa: PLR2004
        ]
        for number in _some(chance)
    ]
    return _made([header], records, replace(COMMA, quoting=chance.choice(["needed", "all"])))


def _text_only(chance: random.Random) -> Polluted:
    header = ["Name", "Office", "Role", "Languages"]
    records = [
        [
            _person(chance),
            chance.choice(["North", "South", "West"]),
            chance.choice(["Clerk", "Head of unit, acting", "Inspector"]),
            chance.choice(["en", "en, fr", "de"]),
        ]
        for _ in _some(chance, 8, 30)
    ]
    return _made([header], records)


def _commented_log(chance: random.Random) -> Polluted:
    before = ["# logger 12, firmware 3.1", "# clock: UTC", "#"]
    header = ["timestamp", "channel", "value", "flag"]
    records = [
        [
            f"2016-03-01T{n // 60:02}:{n % 60:02}:00.000Z",
            f"ch{chance.randrange(4)}",
            f"{chance.gauss(0, 1):.5f}",
            chance.choice(["", "E", "M"]),
        ]
        for n in _some(chance)
    ]
    return _made([header], records, before=before[: chance.randrange(1, 4)])


def _pipes(chance: random.Random) -> Polluted:
    header = ["ID", "LAST", "FIRST", "MIDDLE", "CITY", "FILED", "FEE"]
    records = [
        [
            f"{number:08}",
            chance.choice(LAST).upper(),
            chance.choice(FIRST).upper(),
            "",
            chance.choice(["SPRINGFIELD, IL", "AURORA", ""]),
            _day(chance, "%m/%d/%Y"),
            chance.choice(["", "25"]),
        ]
        for number in _some(chance)
    ]
    return _made([header], records, Dialect(delimiter="|", quoting="none"))


def _bank_statement(chance: random.Random) -> Polluted:
    dialect = replace(SEMICOLON, quoting="all")
    before = [
        '"Kontonummer:";"DE02 1203 0000 0000 2020 51";',
        f'"Von:";"{_day(chance, "%d.%m.%Y")}";',
        f'"Kontostand:";"{_german(chance.randrange(900_000))} EUR";',
        "",
    ]
    table = _bookings(chance, len(_some(chance)))
    return _made([table.header], table.records, dialect, before=before, encoding="cp1252")


def _unicode_text(chance: random.Random) -> Polluted:
    table = _orders(chance, len(_some(chance)))
    data = _made([table.header], table.records, Dialect(delimiter="\t", end="\r\n"))
    return replace(data, data=("\ufeff" + data.data.decode()).encode("utf-16-le"))


def _numbers_without_header(chance: random.Random) -> Polluted:
    width = chance.randrange(4, 12)
    records = [[f"{chance.gauss(5, 2):.3f}" for _ in range(width)] for _ in _some(chance)]
    return _made([], records)


def _line_breaks_in_the_header(chance: random.Random) -> Polluted:
    header = ["Ward", "Electorate\n(number)", "Votes cast\n(number)", "Turnout,\n%", "Elected"]
    records = [
        [
            f"Ward {number}",
            f"{chance.randrange(1000, 9000):,}",
            f"{chance.randrange(100, 1000)}",
            f"{chance.random() * 100:.1f}%",
            _person(chance),
        ]
        for number in _some(chance)
    ]
    return _made([header], records, replace(COMMA, end="\r\n"))


REAL_LIKE: dict[str, Callable[[random.Random], Polluted]] = {
    "council spend with titles": _council_spend,
    "trailing empty columns": _trailing_empty_columns,
    "padded cells": _padded_cells,
    "totals and notes after": _totals_and_notes,
    "merged header": _merged_header,
    "decimal commas": _decimal_comma,
    "accents in cp1252": _french_accents,
    "tabs and bare quotes": _tabs,
    "texts of several lines": _multi_line_texts,
    "apostrophes and inches": _marks_in_texts,
    "dates with commas": _dates_with_commas,
    "grouped thousands": _grouped_thousands,
    "key-value lines before": _key_values_before,
    "units row": _units_row,
    "bare commas in the last column": _commas_in_the_last_column,
    "one column": _one_column,
    "URLs": _urls,
    "JSON in cells": _json_in_cells,
    "booleans": _booleans,
    "years as names": _years_as_names,
    "texts only": _text_only,
    "comments before": _commented_log,
    "pipes": _pipes,
    "bank statement": _bank_statement,
    "UTF-16 tabs": _unicode_text,
    "numbers without header": _numbers_without_header,
    "line breaks in the header": _line_breaks_in_the_header,
}
