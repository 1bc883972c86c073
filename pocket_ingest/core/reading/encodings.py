"""The encoding of a text file: declared, marked, or told from all of its bytes.

Here: the choice and its reason. A choice that the bytes do not prove is said, as a notice.
Not here: decoding (transcription.py).
"""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass

from charset_normalizer import from_bytes

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.reading.records import Notice
from pocket_ingest.core.reading.survey import Survey

# Longer marks first: UTF-32's little-endian mark begins with that of UTF-16.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
SAMPLE = 4_096
# Letters and marks that people write in western Europe and America, as cp1252 has them.
# Þ, þ and ÿ are letters too, but where they occur it is mostly as 0xDE, 0xFE and 0xFF of something
# else.
WESTERN = frozenset("ŠŽŒšžœŸ") | {chr(n) for n in range(0xC0, 0x100)} - set("\u00d7\u00f7Þþÿ")
SYMBOLS = frozenset(
    # Quotation marks, dashes, bullet, ellipsis; then the signs of Latin-1.
    "\u2018\u2019\u201a\u201c\u201d\u201e\u2013\u2014\u2022\u2026"
    "€™§©«®°±²³\u00b4µ·¹º»¼½¾¿¡£¥ª\N{NO-BREAK SPACE}"
)
# What else people in Europe save files in; tried where a header can tell.
ALTERNATIVES = ("cp1250", "iso8859-2", "cp1257", "cp1254", "mac-roman", "cp850", "cp852")
# Beyond this share of high bytes among letters, a text is not written in Latin letters: German
# has 2 %, Czech 15 %, Vietnamese 25 %.
MOSTLY_HIGH = 0.4


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """The encoding of a file.

    Attributes:
        codec: Python's name of it, without a mark: "utf-8", "utf-16-le", "cp1252", ...
        mark: the byte order mark that the file begins with, or nothing.
        reason: how it was found out.
        notices: what a person should know.
    """

    codec: str
    mark: bytes = b""
    reason: str
    notices: tuple[Notice, ...] = ()

    @property
    def name(self) -> str:
        """The codec's name, which tells a mark in UTF-8 as Python does."""
        return "utf-8-sig" if self.mark == codecs.BOM_UTF8 else self.codec


def first_look(head: bytes, declared: str | None) -> Encoding | None:
    """The encoding, where the declaration or the file's first bytes say it."""
    if declared is not None:
        return _declared(head, declared)
    for mark, codec in MARKS:
        if head.startswith(mark):
            return Encoding(codec=codec, mark=mark, reason="byte order mark")
    codec = _by_zeros(head[:SAMPLE])
    if codec:
        return Encoding(codec=codec, reason="zero bytes of ASCII characters")
    return None


def choose_encoding(found: Survey, *, refuse_doubt: bool) -> Encoding:
    """The encoding of a file without a mark, told from all of its bytes.

    Args:
        found: the survey.
        refuse_doubt: whether a text that is not in Latin letters is refused, since nobody could
            tell from a wrong choice that it was one.

    Raises:
        PermanentError: ambiguous_encoding.
    """
    notices = _garbled(found)
    if found.is_ascii:
        return Encoding(codec="utf-8", reason="only ASCII characters", notices=notices)
    if not found.stray:
        return Encoding(codec="utf-8", reason="every byte is valid UTF-8", notices=notices)
    if found.multibyte >= found.stray:
        reason = f"{found.multibyte} characters of valid UTF-8 against {found.stray} other bytes"
        return Encoding(codec="utf-8", reason=reason, notices=notices)
    if found.stray > MOSTLY_HIGH * (found.stray + found.letters):
        return _not_latin(found, refuse_doubt=refuse_doubt)
    if _looks_western(found):
        detail = (
            f"The file is not UTF-8 ({found.stray} bytes are not); it is read as cp1252, Windows' "
            "western encoding. If names look wrong, declare FileFormat(encoding=...)."
        )
        notice = Notice(code=Code.ASSUMED_ENCODING, detail=detail)
        reason = "not UTF-8; its bytes are western letters"
        return Encoding(codec="cp1252", reason=reason, notices=(*notices, notice))
    reason = f"{found.stray} bytes are neither UTF-8 nor western letters"
    return Encoding(codec="utf-8", reason=reason, notices=notices)


def other_encodings(encoding: Encoding) -> Iterator[Encoding]:
    """What a file may be in whose encoding was assumed; a header that a contract knows decides."""
    if not any(notice.code is Code.ASSUMED_ENCODING for notice in encoding.notices):
        return
    for codec in ALTERNATIVES:
        detail = (
            f"The file is not UTF-8; it is read as {codec}, since its header names the contract's "
            f"columns then. Declare FileFormat(encoding={codec!r}) if that is always so."
        )
        notice = Notice(code=Code.ASSUMED_ENCODING, detail=detail)
        yield Encoding(
            codec=codec, reason="its header names the contract's columns", notices=(notice,)
        )


def _declared(head: bytes, declared: str) -> Encoding:
    codec = codecs.lookup(declared).name
    if codec == "utf-8-sig":
        codec = "utf-8"
    wide = codec in {"utf-16", "utf-32"}
    for mark, marked in MARKS:
        if head.startswith(mark) and (marked == codec or (wide and marked.startswith(codec))):
            return Encoding(codec=marked, mark=mark, reason="declared")
    if wide:
        return Encoding(codec=_by_zeros(head[:SAMPLE]) or f"{codec}-le", reason="declared")
    return Encoding(codec=codec, reason="declared")


def _by_zeros(head: bytes) -> str:
    """UTF-16 or UTF-32 without a mark: most characters are ASCII, so most other bytes are zero."""
    size = len(head) - len(head) % 4
    if size < 4 or head.count(0) * 4 < size:  # noqa: PLR2004 - of a character of UTF-32
        return ""
    zeros = [head[place:size:4].count(0) * 4 / size for place in range(4)]
    full = "".join("0" if share > 0.5 else "1" for share in zeros)  # noqa: PLR2004 - most
    return {
        "1000": "utf-32-le",
        "0001": "utf-32-be",
        "1010": "utf-16-le",
        "0101": "utf-16-be",
    }.get(full, "")


def _looks_western(found: Survey) -> bool:
    plausible = 0
    for context in found.contexts:
        text = context.decode("cp1252", "replace")
        before, char = text[0], text[1]
        if char in WESTERN:
            # No word has a capital in its middle, and no number a letter.
            plausible += not (before.islower() and char.isupper()) and not before.isdigit()
        else:
            plausible += char in SYMBOLS
    return plausible >= 0.9 * len(found.contexts)


def _not_latin(found: Survey, *, refuse_doubt: bool) -> Encoding:
    best = from_bytes(found.around_high).best()
    if best is None:
        return Encoding(codec="utf-8", reason="most bytes are text in no known encoding")
    codec = codecs.lookup(best.encoding).name
    detail = (
        f"The file is not UTF-8 and not in Latin letters; it looks like {codec}. "
        f"Declare FileFormat(encoding={codec!r}), or save it as UTF-8."
    )
    if refuse_doubt:
        raise PermanentError(Code.AMBIGUOUS_ENCODING, detail)
    notice = Notice(code=Code.ASSUMED_ENCODING, detail=detail)
    return Encoding(codec=codec, reason="likeliest by its letters", notices=(notice,))


def _garbled(found: Survey) -> tuple[Notice, ...]:
    garbled = found.mojibake + found.replaced
    if not garbled:
        return ()
    detail = (
        f"{garbled} characters were garbled before the file was sent (UTF-8 read as another "
        "encoding, or characters given up as U+FFFD). They are read as they are."
    )
    return (Notice(code=Code.MOJIBAKE, detail=detail),)
