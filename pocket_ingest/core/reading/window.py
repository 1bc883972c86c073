"""The bytes that the reader holds at the moment, cut out of a source of any size.

Here: filling, growing and discarding a bounded stretch of the source. Not here: what the bytes
mean; nothing in this module knows of lines or quotes.
"""

from io import BytesIO
from typing import Protocol


class Source(Protocol):
    """What bytes are read from."""

    def read(self, size: int = -1, /) -> bytes:
        """At most ``size`` bytes, perhaps fewer; nothing only at the end."""


class WindowEnd(Exception):  # noqa: N818 - a question answered by growing, not a fault
    """The answer lies beyond the bytes at hand: grow the window and ask again."""


class Window:
    """A stretch of the source, addressed from its own beginning.

    Offsets stay valid until ``discard``; growing only appends.

    Attributes:
        data: the bytes at hand. Immutable: Arrow and ``RecordChunk.raw`` share them.
        final: True once nothing follows ``data`` in the source.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.data = b""
        self.final = False

    def grow(self, size: int) -> None:
        """Hold at least ``size`` bytes, or everything up to the end of the source.

        A source may return fewer bytes than asked for; only an empty answer means its end.
        """
        missing = size - len(self.data)
        if missing <= 0 or self.final:
            return
        parts = [self.data] if self.data else []
        while missing > 0:
            part = self._source.read(missing)
            if not part:
                self.final = True
                break
            parts.append(part)
            missing -= len(part)
        self.data = parts[0] if len(parts) == 1 else b"".join(parts)

    def discard(self, size: int) -> None:
        """Let go of the first ``size`` bytes."""
        self.data = self.data[size:]

    @classmethod
    def of(cls, data: bytes) -> "Window":
        """A window over bytes that are all there is."""
        window = cls(BytesIO())
        window.data = data
        window.final = True
        return window
