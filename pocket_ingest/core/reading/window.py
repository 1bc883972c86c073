"""The bytes that the reader holds at the moment, cut out of a source of any size.

Here: filling, growing and discarding a bounded stretch of the source. Not here: what the bytes
mean; nothing in this module knows of lines or quotes.
"""

from io import BytesIO
from typing import BinaryIO

PART_BYTES = 256 * 1024


class WindowEnd(Exception):  # noqa: N818 - a question answered by growing, not a fault
    """The answer lies beyond the bytes at hand: grow the window and ask again."""


class Window:
    """A stretch of the source, addressed from its own beginning.

    Offsets stay valid until ``discard``; growing only appends.

    Attributes:
        data: the bytes at hand. Never written to again, since Arrow and ``RecordChunk.raw`` share
            them: growing and discarding put another object in their place.
        final: True once nothing follows ``data`` in the source.
    """

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.data = bytearray()
        self.final = False

    def grow(self, size: int) -> None:
        """Hold at least ``size`` bytes, or everything up to the end of the source.

        A source may return fewer bytes than asked for; only an empty answer means its end.
        """
        held = len(self.data)
        if size <= held or self.final:
            return
        # Filled in small parts, which the allocator hands out again and again: one large read
        # and a join would touch fresh memory three times over, a tenth of the reader's time.
        grown = bytearray(size)
        grown[:held] = self.data
        while held < size:
            part = self._source.read(min(size - held, PART_BYTES))
            if not part:
                self.final = True
                del grown[held:]
                break
            grown[held : held + len(part)] = part
            held += len(part)
        self.data = grown

    def discard(self, size: int) -> None:
        """Let go of the first ``size`` bytes."""
        self.data = self.data[size:]

    @classmethod
    def of(cls, data: bytes) -> "Window":
        """A window over bytes that are all there is."""
        window = cls(BytesIO())
        window.data = bytearray(data)
        window.final = True
        return window
