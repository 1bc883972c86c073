"""The fields of a record that is broken, as well as they can be told apart.

Here: readings of one record that the grammar refuses, for a person who looks at it. Nothing that
is told apart here is ever loaded.
Not here: where the record ends (``resync``).
"""

from collections.abc import Iterator
from itertools import islice

from pocket_ingest.core.reading.grammar import Grammar

MOST_READINGS = 64


def split_loosely(record: bytes, grammar: Grammar, width: int) -> list[bytes]:
    """The fields of one record; of several readings the first with ``width`` fields.

    A quote that is out of place is taken for text, since more text has a stray quote than a stray
    delimiter.
    """
    if not grammar.quote or grammar.quote not in record:
        return record.split(grammar.delimiter)
    first: list[bytes] = []
    for fields in islice(_readings(record, grammar, 0, []), MOST_READINGS):
        if len(fields) == width:
            return fields
        first = first or fields
    return first


def _readings(
    record: bytes, grammar: Grammar, position: int, before: list[bytes]
) -> Iterator[list[bytes]]:
    """Every reading of a record from an offset on: each quote at a border encloses, or is text."""
    while not record.startswith(grammar.quote, position):
        end = record.find(grammar.delimiter, position)
        if end < 0:
            yield [*before, record[position:]]
            return
        before = [*before, record[position:end]]
        position = end + 1
    for text, end in _fields_at_quote(record, position, grammar):
        if end == len(record):
            yield [*before, text]
        else:
            yield from _readings(record, grammar, end + 1, [*before, text])


def _fields_at_quote(record: bytes, position: int, grammar: Grammar) -> Iterator[tuple[bytes, int]]:
    """The fields that may begin at a quote, and where each ends."""
    quote = grammar.quote
    for closing in _closings(record, position + 1, grammar):
        yield record[position + 1 : closing].replace(quote * 2, quote), closing + 1
    end = record.find(grammar.delimiter, position)
    end = len(record) if end < 0 else end
    yield record[position:end], end


def _closings(record: bytes, position: int, grammar: Grammar) -> Iterator[int]:
    """Offsets of quotes before a border: first one that is not half of a doubled one, then any."""
    quote, delimiter = grammar.quote, grammar.delimiter
    doubtful = -1
    found = record.find(quote, position)
    while found >= 0:
        after = found + 1
        if after == len(record) or record.startswith(delimiter, after):
            run = found
            while run > position and record.startswith(quote, run - 1):
                run -= 1
            if (after - run) % 2:
                yield found
                break
            doubtful = found if doubtful < 0 else doubtful
        found = record.find(quote, after)
    if doubtful >= 0:
        yield doubtful
