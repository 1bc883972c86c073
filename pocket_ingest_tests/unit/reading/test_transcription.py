"""What is transcribed can be written back to the byte, and means the same."""

import io

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.reading.transcription import TranscribedStream, Transcript
from pocket_ingest_tests.unit.reading.csv_texts import Trickle

CODECS = [
    "utf-8",
    "utf-16-le",
    "utf-16-be",
    "utf-32-le",
    "cp1252",
    "latin-1",
    "cp1250",
    "mac_roman",
]
DIALECTS = st.tuples(
    st.sampled_from([",", "||", "|~|", "::", ", ", "aab"]),
    st.sampled_from(['"', "'"]),
    st.sampled_from(["", "\\", "^"]),
)


def transcribed(data: bytes, transcript: Transcript, sizes: list[int]) -> bytes:
    stream = TranscribedStream(Trickle(data, sizes), transcript)
    parts = []
    while part := stream.read(sizes[0] if sizes else 100):
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
def test_text_arrives_as_utf_8_whatever_the_sizes_of_reads(codec, data):
    text = data.draw(st.text(st.characters(codec=codec), max_size=40))
    sizes = data.draw(st.lists(st.integers(1, 9), max_size=3))
    assert transcribed(text.encode(codec), Transcript(encoding=codec), sizes) == text.encode()


@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "utf-32-be", "cp1252", "cp1250"])
@given(raw=st.binary(max_size=40), sizes=st.lists(st.integers(1, 9), max_size=3))
def test_bytes_that_are_no_text_come_back_as_they_were(codec, raw, sizes):
    transcript = Transcript(encoding=codec)
    given_over = transcribed(raw, transcript, sizes)
    assert transcript.original(given_over) == raw


@pytest.mark.parametrize(
    ("codec", "raw"), [("cp1252", b"\x81"), ("utf-16-le", b"\x00\xd8a\x00"), ("utf-16-le", b"x")]
)
def test_undecodable_bytes_are_never_valid(codec, raw):
    with pytest.raises(UnicodeDecodeError):
        transcribed(raw, Transcript(encoding=codec), []).decode()


@given(
    dialect=DIALECTS,
    data=st.text("|~:, ab\"'\\^\n\r", max_size=40).map(str.encode),
    sizes=st.lists(st.integers(1, 9), max_size=3),
)
def test_marks_do_not_depend_on_the_sizes_of_reads(dialect, data, sizes):
    delimiter, quote, escape = dialect
    transcript = Transcript().with_marks(
        delimiter=delimiter, quote=quote, escape=escape, taken=set()
    )
    marked = transcribed(data, transcript, sizes)
    assert marked == transcript.transcribe(data)
    assert transcript.original(marked) == data
    if len(delimiter) > 1 and not escape:
        assert marked.split(transcript.marks[-1].byte) == data.split(delimiter.encode())


def test_marks_mean_what_they_stand_for_inside_values():
    transcript = Transcript().with_marks(delimiter="||", quote='"', escape="\\", taken={0x1F})
    assert not any(mark.byte == b"\x1f" for mark in transcript.marks)
    text = transcript.transcribe(rb"say \"hi\" at C:\\ or a || b")
    columns = pa.RecordBatch.from_arrays([pa.array([text.decode(), None])], names=["0"])
    assert transcript.values(columns)[0].to_pylist() == ['say "hi" at C:\\ or a || b', None]
    assert transcript.text(text) == 'say "hi" at C:\\ or a || b'


def test_a_file_with_every_control_byte_leaves_no_mark():
    with pytest.raises(PermanentError) as refused:
        Transcript().with_marks(delimiter="||", quote='"', escape="", taken=set(range(32)))
    assert refused.value.code is Code.AMBIGUOUS_DIALECT


def test_a_long_line_without_an_end_is_passed_on_in_bounded_parts():
    transcript = Transcript().with_marks(delimiter="||", quote='"', escape="", taken=set())
    stream = TranscribedStream(io.BytesIO(b"ab||" * 2**20), transcript)
    assert len(stream.read()) < 2 * 2**20
