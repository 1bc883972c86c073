"""The encoding is told from all bytes; what they do not prove is said or refused."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.reading.encodings import Encoding, choose_encoding, first_look
from pocket_ingest.core.reading.survey import BLOCK_BYTES, HEAD_BYTES, bytes_that_occur, survey
from pocket_ingest_tests.unit.reading.csv_texts import Trickle

WESTERN = "name,city\nJosé,Málaga\nJürgen,Köln\nFrançois,Orléans\n"
RUSSIAN = "имя,город\nИван,Москва\nПётр,Тверь\nОльга,Казань\n" * 10
JAPANESE = "名前,都市\n山田太郎,東京都\n鈴木花子,大阪府\n" * 10


def encoding_of(data: bytes, *, declared: str | None = None, refuse: bool = False) -> Encoding:
    found = first_look(data[:HEAD_BYTES], declared)
    return found or choose_encoding(survey(io.BytesIO(data)), refuse_doubt=refuse)


def codes(encoding: Encoding) -> list[Code]:
    return [notice.code for notice in encoding.notices]


@pytest.mark.parametrize(
    "codec", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "cp1252"]
)
def test_a_western_text_is_read_in_its_encoding_without_a_mark(codec):
    found = encoding_of(WESTERN.encode(codec))
    assert (found.codec, found.mark) == (codec, b"")
    assert codes(found) == ([Code.ASSUMED_ENCODING] if codec == "cp1252" else [])


@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_byte_order_mark_decides(codec):
    mark = "\N{BYTE ORDER MARK}".encode(codec)
    found = encoding_of(mark + WESTERN.encode(codec))
    assert (found.codec, found.mark, found.reason) == (codec, mark, "byte order mark")


def test_a_mark_in_utf_8_has_the_name_that_python_gives_it():
    assert encoding_of(b"\xef\xbb\xbfa\n").name == "utf-8-sig"
    assert encoding_of(b"a\n").name == "utf-8"


@pytest.mark.parametrize("at", [10, HEAD_BYTES + 1, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES])
@pytest.mark.parametrize("codec", ["utf-8", "cp1252"])
def test_the_first_accent_may_come_late(codec, at):
    line = b"123,abc\n"
    data = line * (at // len(line)) + "é,Münster\n".encode(codec) + line * 10
    assert encoding_of(data).codec == codec


@pytest.mark.parametrize("at", range(BLOCK_BYTES - 4, BLOCK_BYTES + 2))
def test_a_character_across_two_blocks_is_one(at):
    data = b"a" * at + "é€🙂".encode() + b"b" * 100
    found = survey(io.BytesIO(data))
    assert (found.multibyte, found.stray) == (3, 0)


def test_single_bad_bytes_in_utf_8_do_not_change_the_encoding():
    data = WESTERN.encode() + b"bad \xe9 byte,x\n"
    assert encoding_of(data).codec == "utf-8"


@pytest.mark.parametrize("bad", [b"\xff", b"\xfe\xff", b"\x81", b"\xc0\x80"])
def test_bytes_that_no_text_has_are_no_reason_for_another_encoding(bad):
    assert encoding_of(b"a,b\n1,x" + bad + b"\n2,y\n").codec == "utf-8"


def test_russian_is_refused_for_a_contract_and_said_without_one():
    data = RUSSIAN.encode("cp1251")
    found = encoding_of(data)
    assert found.codec == "cp1251"
    assert codes(found) == [Code.ASSUMED_ENCODING]
    with pytest.raises(PermanentError, match="cp1251") as refused:
        encoding_of(data, refuse=True)
    assert refused.value.code is Code.AMBIGUOUS_ENCODING


def test_japanese_is_recognised():
    assert encoding_of(JAPANESE.encode("shift_jis")).codec in {"shift_jis", "cp932"}


@pytest.mark.parametrize("declared", ["latin-1", "cp1250", "shift_jis", "UTF8", "utf-16"])
def test_what_is_declared_is_not_doubted(declared):
    found = encoding_of(WESTERN.encode("utf-8"), declared=declared)
    assert found.reason == "declared"


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("marked", [True, False])
def test_declared_utf_16_still_finds_its_byte_order(codec, marked):
    mark = "\N{BYTE ORDER MARK}".encode(codec) if marked else b""
    found = encoding_of(mark + WESTERN.encode(codec), declared="utf-16")
    assert (found.codec, found.mark) == (codec, mark)


@pytest.mark.parametrize("garbled", ["JosÃ©", "donâ€™t", "MÃ¼ller", "gone: \ufffd"])
def test_text_that_was_garbled_before_is_said(garbled):
    assert Code.MOJIBAKE in codes(encoding_of(f"a,b\n1,{garbled}\n".encode()))


@pytest.mark.parametrize("sound", ["São Paulo, Ångström, Â, Ã, €", "âge", "naïve – “quoted”"])
def test_sound_text_is_not_called_garbled(sound):
    assert codes(encoding_of(sound.encode())) == []


@given(st.binary(max_size=300), st.lists(st.integers(1, 7), max_size=4))
def test_the_sizes_of_reads_do_not_matter(data, sizes):
    whole = survey(io.BytesIO(data))
    parts = survey(Trickle(data, sizes))
    for name in ("size", "head", "tail", "is_ascii", "multibyte", "stray", "escaped"):
        assert getattr(parts, name) == getattr(whole, name), name


@given(st.text(max_size=50))
def test_all_of_a_text_in_utf_8_is_counted(text):
    found = survey(io.BytesIO(text.encode()))
    assert found.stray == 0
    assert found.multibyte == sum(not char.isascii() for char in text)
    assert found.size == len(text.encode())


def test_control_bytes_are_found_wherever_they_are():
    assert bytes_that_occur(io.BytesIO(b"a\x1fb" + b"x" * BLOCK_BYTES + b"\x01\n")) == {1, 10, 31}


def test_the_first_escaped_quote_is_found_in_the_middle_of_a_large_file():
    line = b"1,2,3\n"
    before = line * (2 * BLOCK_BYTES // len(line))
    found = survey(io.BytesIO(before + b'1,"a \\"b\\"",3\n' + line))
    assert found.escaped == len(before) + 5
    assert b'"a \\"b\\"",3\n' in found.around_escaped
