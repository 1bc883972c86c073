"""One look at a whole text file before it is read: its size, its ends, and what its bytes say.

Here: facts of the bytes, gathered in bounded memory, for the choices of encoding and dialect that
no sample can make: the first accented letter, or the first escaped quote, may come late.
Not here: the choices (encodings.py, dialects.py).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from pocket_ingest.core.reading.window import Source

BLOCK_BYTES = 2**20
HEAD_BYTES = 2**17
"""Of the beginning, for the choice of a dialect: some thousand records, cut in all likely ways."""
TAIL_BYTES = 2**16
"""Of the end, for footers."""
MOST_CONTEXTS = 2_000
"""High bytes that are looked at with their neighbours; more would say the same."""

MULTIBYTE = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
)
HIGH = re.compile(rb"[\x80-\xff]")
# UTF-8 that was read as cp1252 and written as UTF-8 again: Ã and Â before what was a continuation
# byte, and â€ before the second half of a quotation mark or dash.
MOJIBAKE = re.compile(
    rb"\xc3[\x82\x83](?:\xc2[\x80-\xbf]|\xc5[\x92-\xbe]|\xe2\x80[\x98-\xba])|\xc3\xa2\xe2\x82\xac"
)
REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()


@dataclass(kw_only=True)
class Survey:
    """What a look at all bytes found.

    Attributes:
        size: bytes of the file.
        head: the first HEAD_BYTES.
        tail: the last TAIL_BYTES.
        is_ascii: no byte is above 0x7F.
        multibyte: well-formed sequences of UTF-8 above ASCII.
        stray: bytes above ASCII that belong to none.
        contexts: some of the stray bytes with the byte before and after each.
        around_high: a stretch with stray bytes.
        letters: ASCII letters beside stray bytes, in the blocks that have any.
        mojibake: sequences that were UTF-8, read as something else, before they were written.
        replaced: characters that a program had given up before: U+FFFD.
        escaped: offset of the first backslash before a quote, or -1.
        around_escaped: the bytes around it.
    """

    size: int = 0
    head: bytes = b""
    tail: bytes = b""
    is_ascii: bool = True
    multibyte: int = 0
    stray: int = 0
    contexts: list[bytes] = field(default_factory=list)
    around_high: bytes = b""
    letters: int = 0
    mojibake: int = 0
    replaced: int = 0
    escaped: int = -1
    around_escaped: bytes = b""

    @property
    def is_whole(self) -> bool:
        """Whether the head is all there is."""
        return len(self.head) == self.size


def survey(source: Source, *, escaped_quotes: Iterable[bytes] = (b'\\"', b"\\'")) -> Survey:
    """Look at all bytes of a source once.

    Args:
        source: read from where it stands to its end.
        escaped_quotes: how escaped quotes are encoded.
    """
    found = Survey()
    carry = b""
    while block := source.read(BLOCK_BYTES):
        if len(found.head) < HEAD_BYTES:
            found.head += block[: HEAD_BYTES - len(found.head)]
        found.tail = block[-TAIL_BYTES:] if len(block) >= TAIL_BYTES else found.tail + block
        found.tail = found.tail[-TAIL_BYTES:]
        # A sequence may be cut in two between blocks.
        _look_for_escapes(found, carry, block, escaped_quotes)
        if carry.isascii() and block.isascii():
            carry = block[-4:]
        else:
            found.is_ascii = False
            seen = carry + block
            cut = len(seen) - _unfinished(seen)
            _look_at_high_bytes(found, seen[:cut])
            carry = seen[cut:]
        found.size += len(block)
    if not carry.isascii():
        _look_at_high_bytes(found, carry)
    return found


def bytes_that_occur(source: Source) -> set[int]:
    """Every byte value of a source, below 0x20 only."""
    missing = set(range(0x20))
    while missing and (block := source.read(BLOCK_BYTES)):
        missing = {value for value in missing if bytes((value,)) not in block}
    return set(range(0x20)) - missing


def _look_for_escapes(
    found: Survey, carry: bytes, block: bytes, escaped_quotes: Iterable[bytes]
) -> None:
    # One byte is looked for ten times faster than two.
    if found.escaped >= 0 or (b"\\" not in block and b"\\" not in carry):
        return
    seen = carry + block
    places = [place for mark in escaped_quotes if (place := seen.find(mark)) >= 0]
    if places:
        found.escaped = found.size - len(carry) + min(places)
        start = max(0, min(places) - HEAD_BYTES // 8)
        found.around_escaped = seen[start - start % 4 : min(places) + HEAD_BYTES // 4]


def _unfinished(seen: bytes) -> int:
    """Bytes at the end that may be the beginning of a longer sequence."""
    for back in range(1, min(3, len(seen)) + 1):
        byte = seen[-back]
        if byte < 0x80:  # noqa: PLR2004 - ASCII
            return 0
        if byte >= 0xC0:  # noqa: PLR2004 - a lead byte
            return back
    return 0


def _look_at_high_bytes(found: Survey, seen: bytes) -> None:
    found.mojibake += len(MOJIBAKE.findall(seen))
    found.replaced += seen.count(REPLACEMENT)
    sequences = MULTIBYTE.findall(seen)
    found.multibyte += len(sequences)
    high = len(seen.translate(None, bytes(range(0x80))))
    stray = high - sum(map(len, sequences))
    if not stray:
        return
    found.stray += stray
    found.letters += len(re.findall(rb"[A-Za-z]", seen))
    if not found.around_high:
        found.around_high = seen[: HEAD_BYTES // 8]
    rest = MULTIBYTE.sub(lambda match: b"?" * len(match[0]), seen)
    for match in HIGH.finditer(rest):
        if len(found.contexts) == MOST_CONTEXTS:
            break
        place = match.start()
        found.contexts.append(rest[max(0, place - 1) : place + 2].rjust(2) + b" ")
