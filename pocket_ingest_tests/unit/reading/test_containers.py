"""Containers: all kinds unpack to what was packed; nothing ends short, escapes or explodes."""

import bz2
import gzip
import io
import lzma
import random
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pocket_ingest.core.errors import Code, PermanentError, TransientError
from pocket_ingest.core.reading import containers
from pocket_ingest.core.reading.containers import (
    is_workbook,
    is_workbook_head,
    recognise,
    refuse_unsupported,
    unpack,
)
from pocket_ingest.core.reading.records import DEFAULT_LIMITS, ReadingLimits

CSV = b"id,name\n1,Anna\n2,Bob\n3,Anna\n"
# A frame with a checksum, which Arrow cannot write: CSV again.
ZSTD_CHECKED = bytes.fromhex(
    "28b52ffd241ce1000069642c6e616d650a312c416e6e610a322c426f620a332c416e6e610a9e33f4a8"
)


def zipped(*members, method=zipfile.ZIP_DEFLATED):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return target.getvalue()


def zstd(data):
    return pa.compress(data, codec="zstd", asbytes=True)


PACKERS = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd,
    "zip": lambda data: zipped(("data.csv", data)),
    "zip, stored": lambda data: zipped(("data.csv", data), method=zipfile.ZIP_STORED),
}
STREAMS = ["gzip", "bzip2", "xz", "zstd"]


class Hesitant(io.RawIOBase):
    """A source that returns at most a few bytes at once, and perhaps cannot seek."""

    def __init__(self, data, *, most=3, seekable=True):
        self._data = io.BytesIO(data)
        self._most = most
        self._seekable = seekable

    def readable(self):
        return True

    def seekable(self):
        return self._seekable

    def seek(self, offset, whence=0):
        if not self._seekable:
            raise io.UnsupportedOperation("seek")
        return self._data.seek(offset, whence)

    def tell(self):
        return self._data.tell()

    def readinto(self, buffer):
        data = self._data.read(min(len(buffer), self._most))
        buffer[: len(data)] = data
        return len(data)


class Failing(io.BytesIO):
    """A source whose disk fails behind some byte, in the middle of the file or at its end."""

    def __init__(self, data, error, after):
        super().__init__(data)
        self._error, self._after = error, after

    def read(self, size=-1):
        end = len(self.getvalue()) if size < 0 else self.tell() + size
        if end > self._after:
            raise self._error
        return super().read(size)


def opening(data):
    return lambda: io.BytesIO(data)


def read_all(stream, sizes=(4096,)):
    parts = []
    while True:
        size = sizes[len(parts) % len(sizes)]
        part = stream.read(size)
        assert len(part) <= size
        if not part:
            return b"".join(parts)
        parts.append(part)


def content(data, *, member=None, limits=DEFAULT_LIMITS, sizes=(4096,)):
    open_file = data if callable(data) else opening(data)
    with unpack(open_file, member=member, limits=limits) as unpacked:
        return unpacked.containers, unpacked.member, read_all(unpacked.stream, sizes)


def refusal(data, **options):
    with pytest.raises(PermanentError) as refused:
        content(data, **options)
    assert refused.value.detail.isprintable()
    return refused.value


# what comes out


@given(
    packer=st.sampled_from(sorted(PACKERS)),
    data=st.binary(max_size=300) | st.binary(min_size=1, max_size=40).map(lambda b: b * 9000),
    sizes=st.lists(st.integers(1, 200_000), min_size=1, max_size=3),
)
def test_roundtrip(packer, data, sizes):
    if recognise(data):
        return
    sizes = sizes if len(data) < 1000 else [max(size, 1000) for size in sizes]
    kinds, _, found = content(PACKERS[packer](data), sizes=sizes)
    assert kinds == (packer.partition(",")[0],)
    assert found == data


@given(
    packer=st.sampled_from(STREAMS),
    parts=st.lists(st.binary(max_size=50), min_size=1, max_size=5),
    padding=st.integers(0, 9),
)
@example(packer="gzip", parts=[b"a", b"b"], padding=2 * containers.BLOCK_BYTES)
def test_streams_one_after_the_other(packer, parts, padding):
    zeros = b"" if packer == "zstd" else b"\0" * padding
    packed = zeros.join(map(PACKERS[packer], parts)) + zeros
    if not recognise(b"".join(parts)):
        assert content(packed)[2] == b"".join(parts)


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("size", [5, 3 * 2**20 + 1])
def test_source_that_returns_little_at_once(packer, size):
    data = random.Random(1).randbytes(size)
    most = 3 if size < 100 else 5000
    packed = PACKERS[packer](data)
    assert content(lambda: Hesitant(packed, most=most))[2] == data
    assert content(lambda: Hesitant(packed, most=most, seekable=False))[2] == data


@pytest.mark.parametrize("packer", PACKERS)
def test_one_large_read(packer):
    data = random.Random(2).randbytes(2**20)
    with unpack(opening(PACKERS[packer](data)), member=None, limits=DEFAULT_LIMITS) as unpacked:
        assert not unpacked.stream.seekable()
        assert unpacked.stream.read(10) == data[:10]
        assert unpacked.stream.read() == data[10:]
        assert unpacked.stream.read(1) == b""
    assert unpacked.stream.closed


@pytest.mark.parametrize("data", [b"", b"B", b"BZ,h9\n", b"PK,name\n1,2\n", CSV, b"\xff\xfei\0"])
def test_file_that_is_not_packed(data):
    with unpack(opening(data), member="x", limits=DEFAULT_LIMITS) as unpacked:
        assert (unpacked.containers, unpacked.member) == ((), "")
        assert unpacked.stream.read() == data
        assert unpacked.stream.seek(0) == 0
    assert unpacked.stream.closed


def test_zstd_with_checksum_and_frames_to_skip():
    skipped = b"\x5f\x2a\x4d\x18\x04\0\0\0abcd"
    assert content(skipped + ZSTD_CHECKED + skipped) == (("zstd",), "", CSV)


def test_gzip_with_a_name_in_it():
    target = io.BytesIO()
    with gzip.GzipFile("data.csv", "wb", fileobj=target) as file:
        file.write(CSV)
    assert content(target.getvalue()) == (("gzip",), "", CSV)


# what is damaged


SMALL = {kind: pack(CSV) for kind, pack in PACKERS.items()} | {
    "zstd, checked": ZSTD_CHECKED,
    "gzip, twice": gzip.compress(b"id\n1\n") + gzip.compress(CSV),
    "zstd, twice": zstd(b"id\n1\n") + zstd(CSV),
    "xz, twice": lzma.compress(b"id\n1\n") + lzma.compress(CSV),
    "bzip2, twice": bz2.compress(b"id\n1\n") + bz2.compress(CSV),
}
FIRST = {kind: len(PACKERS[kind](b"id\n1\n")) for kind in STREAMS}


@pytest.mark.parametrize("kind", SMALL)
def test_cut_off_anywhere(kind):
    packed = SMALL[kind]
    for end in range(len(packed)):
        # Where a whole stream ends, nobody can know that there was another.
        if "twice" in kind and end == FIRST[kind.partition(",")[0]]:
            continue
        if not recognise(packed[:end]):
            assert content(packed[:end]) == ((), "", packed[:end])
        else:
            assert refusal(packed[:end]).code is Code.ARCHIVE_DAMAGED


@pytest.mark.parametrize("packer", STREAMS)
def test_cut_off_late(packer):
    packed = PACKERS[packer](random.Random(3).randbytes(2**20 + 5))
    # bzip2 gives nothing before it has a block of 900 KB; the others go on where a read ended.
    for end in (len(packed) - 1, len(packed) - 20, 15 * containers.BLOCK_BYTES):
        with unpack(opening(packed[:end]), member=None, limits=DEFAULT_LIMITS) as unpacked:
            for _ in range(2):
                # Asked again, it still does not end as if that were all.
                with pytest.raises(PermanentError) as refused:
                    read_all(unpacked.stream)
                assert refused.value.code is Code.ARCHIVE_DAMAGED


CHECKED = ["gzip", "gzip, twice", "bzip2", "xz", "zstd, checked", "zip", "zip, stored"]


@pytest.mark.parametrize("kind", CHECKED)
def test_one_byte_changed(kind):
    whole = content(SMALL[kind])[2]
    for place in range(len(SMALL[kind])):
        for bits in (0x01, 0x80, 0xFF):
            packed = bytearray(SMALL[kind])
            packed[place] ^= bits
            try:
                kinds, _, found = content(bytes(packed))
            except PermanentError:
                continue
            assert found == (whole if kinds else packed)


@pytest.mark.parametrize("packer", STREAMS)
@pytest.mark.parametrize("rest", [b"garbage", b"\0\0garbage", CSV])
def test_garbage_behind_the_end(packer, rest):
    assert refusal(PACKERS[packer](CSV) + rest).code is Code.ARCHIVE_DAMAGED


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize(
    "error", [OSError(5, "the disk"), TransientError(Code.STORE_UNAVAILABLE, "x"), EOFError("x")]
)
def test_failure_of_the_source_passes_through(packer, error):
    packed = PACKERS[packer](random.Random(4).randbytes(200_000))
    for after in (600, 100_000):
        with pytest.raises(type(error)) as raised:
            content(lambda after=after: Failing(packed, error, after))
        assert raised.value is error


# what would take too much


def dictionary_declared(packed, size_bits):
    """An xz file whose only filter declares another dictionary."""
    changed = bytearray(packed)
    end = 12 + (packed[12] + 1) * 4
    assert changed[14:16] == b"\x21\x01"
    changed[16] = size_bits
    changed[end - 4 : end] = struct.pack("<I", zlib.crc32(changed[12 : end - 4]))
    return bytes(changed)


def test_xz_dictionary():
    packed = lzma.compress(CSV)
    assert content(dictionary_declared(packed, 28))[2] == CSV  # 64 MiB, that of xz -9
    for bits in (30, 36, 39, 40):  # 128 MiB, 1 GiB, 3 GiB, 4 GiB
        refused = refusal(dictionary_declared(packed, bits))
        assert refused.code is Code.ARCHIVE_TOO_LARGE
        assert "memory" in refused.detail


def test_zstd_window():
    def declared(log):
        # A frame of one raw block.
        size = struct.pack("<I", len(CSV) << 3 | 1)[:3]
        return b"\x28\xb5\x2f\xfd\x00" + bytes([(log - 10) << 3]) + size + CSV

    assert content(declared(27))[2] == CSV
    for log in (28, 31, 41):
        assert refusal(declared(log)).code is Code.ARCHIVE_TOO_LARGE


@pytest.mark.parametrize("packer", PACKERS)
def test_bombs(packer):
    packed = PACKERS[packer](b"0" * 2**23)
    assert len(content(packed)[2]) == containers.RATIO_FLOOR
    more = PACKERS[packer](b"0" * 2**25)
    if "stored" not in packer:
        refused = refusal(more)
        assert refused.code is Code.ARCHIVE_TOO_LARGE
        assert "200 times" in refused.detail
    assert len(content(more, limits=ReadingLimits(max_unpack_ratio=10**9))[2]) == 2**25
    refused = refusal(packed, limits=ReadingLimits(max_unpacked_bytes=2**23 - 1))
    assert refused.code is Code.ARCHIVE_TOO_LARGE
    assert str(2**23 - 1) in refused.detail


def test_many_small_streams_are_a_bomb_too():
    packed = gzip.compress(b"0" * 2**20) * 50
    assert refusal(packed).code is Code.ARCHIVE_TOO_LARGE


def patched(archive, *, local=(), central=()):
    """Bytes written into the headers of the only member: (offset, bytes)."""
    changed = bytearray(archive)
    for begin, patches in ((archive.index(b"PK\3\4"), local), (archive.index(b"PK\1\2"), central)):
        for offset, data in patches:
            changed[begin + offset : begin + offset + len(data)] = data
    return bytes(changed)


def test_zip_that_declares_too_little():
    archive = zipped(("data.csv", b"0" * 2**25))
    few = struct.pack("<I", 1000)
    lying = patched(archive, local=[(22, few)], central=[(24, few)])
    # No more than the declared size is unpacked, and its sum is wrong.
    assert refusal(lying).code is Code.ARCHIVE_DAMAGED


def test_zip_that_declares_too_much_is_refused_unread():
    archive = zipped(("data.csv", CSV))
    lying = patched(archive, central=[(24, struct.pack("<I", 2**31))])
    assert refusal(lying).code is Code.ARCHIVE_TOO_LARGE
    limits = ReadingLimits(max_unpacked_bytes=len(CSV) - 1)
    assert refusal(archive, limits=limits).code is Code.ARCHIVE_TOO_LARGE


def test_zip_that_cannot_seek_is_copied_within_the_limit():
    archive = zipped(("data.csv", random.Random(5).randbytes(300_000)))
    limits = ReadingLimits(max_unpacked_bytes=200_000)

    def open_file():
        return Hesitant(archive, most=1000, seekable=False)

    assert refusal(open_file, limits=limits).code is Code.ARCHIVE_TOO_LARGE


PROGRAM = """
import bz2, gzip, io, lzma, zipfile
from pathlib import Path

import pyarrow as pa

from pocket_ingest.core.errors import PermanentError
from pocket_ingest.core.reading.containers import unpack
from pocket_ingest.core.reading.records import ReadingLimits

def peak():
    # Not ru_maxrss, which begins with what the process was before exec.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024

def drain(packed, **limits):
    size = 0
    with unpack(lambda: io.BytesIO(packed), member=None, limits=ReadingLimits(**limits)) as found:
        while part := found.stream.read(2**20):
            size += len(part)
    return size

before, MB = peak(), 2**20
zeros = bytes(MB)
def streamed(begin):
    return b"".join([*(begin.compress(zeros) for _ in range(100)), begin.flush()])
def zstd():
    target = pa.BufferOutputStream()
    with pa.CompressedOutputStream(target, "zstd") as file:
        for _ in range(200):
            file.write(zeros)
    return target.getvalue().to_pybytes()
def zipped():
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("data.csv", "w") as file:
            for _ in range(100):
                file.write(zeros)
    return target.getvalue()
packed = [
    gzip.compress(zeros) * 200,
    streamed(bz2.BZ2Compressor()),
    streamed(lzma.LZMACompressor(preset=0)),
    zstd(),
    zipped(),
]
# A zip directory of 400,000 members, which says that it has one; as objects they take 110 MB.
entry, count = b"PK\\1\\2" + bytes(24) + b"\\1" + bytes(17) + b"a", 400_000
end = b"PK\\5\\6\\0\\0\\0\\0\\1\\0\\1\\0" + (len(entry) * count).to_bytes(4, "little") + bytes(6)
crowd = b"".join([b"PK\\3\\4", *[entry] * count, end])

def refused(packed):
    try:
        drain(packed)
    except PermanentError as error:
        return error.code

made = peak()
assert all(refused(one) == "archive_too_large" for one in packed)
assert all(drain(one, max_unpack_ratio=10**9) in (100 * MB, 200 * MB) for one in packed)
assert refused(crowd) == "archive_members"
print(before, made, peak())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells it on Linux only")
def test_memory():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    before, made, peak = map(int, done.stdout.split())
    assert peak - made < 30, (before, made, peak)
    assert peak < 150, (before, made, peak)


# what a zip archive may hold


def test_zip_names_its_member():
    archive = zipped(("march/", b""), ("march/data.csv", CSV))
    assert content(archive) == (("zip",), "march/data.csv", CSV)


LITTER = [
    ("__MACOSX/._data.csv", b"\0\5\x16\7"),
    ("__MACOSX/data.csv", CSV),
    ("march/__MACOSX/._x", b"x"),
    ("._data.csv", b""),
    ("march/._data.csv", b"\0\5\x16\7"),
    (".DS_Store", b"Bud1"),
    ("march/.DS_Store", b"Bud1"),
    ("Thumbs.db", b"x"),
    ("march\\thumbs.db", b"x"),
    ("/", b""),
    ("../", b""),
    ("march/", b""),
    ("march\\", b""),
]


@pytest.mark.parametrize("litter", LITTER)
def test_zip_litter_is_not_data(litter):
    assert content(zipped(litter, ("data.csv", CSV)))[1:] == ("data.csv", CSV)
    assert refusal(zipped(litter)).code is Code.ARCHIVE_MEMBERS
    assert refusal(zipped(litter), member="*").code is Code.ARCHIVE_MEMBERS


def test_zip_without_members():
    assert refusal(zipped()).code is Code.ARCHIVE_MEMBERS


UNSAFE = [
    "../data.csv",
    "a/../../data.csv",
    "./../data.csv",
    "/data.csv",
    "//server/data.csv",
    "\\data.csv",
    "\\\\server\\data.csv",
    "..\\data.csv",
    "a\\..\\..\\data.csv",
    "a/..\\../data.csv",
    "C:data.csv",
    "c:\\data.csv",
    "z:/data.csv",
    "__MACOSX/../../data.csv",
    "/.DS_Store",
    "..",
]


@pytest.mark.parametrize("name", UNSAFE)
def test_zip_path_that_leads_out(name):
    for archive in (zipped((name, CSV)), zipped(("data.csv", CSV), (name, b"x"))):
        for member in (None, "data.csv"):
            refused = refusal(archive, member=member)
            assert refused.code is Code.UNSAFE_ARCHIVE_PATH


def test_zip_path_with_a_nul():
    archive = zipped(("data.csvX../x", CSV)).replace(b"csvX", b"csv\0")
    assert refusal(archive).code is Code.UNSAFE_ARCHIVE_PATH


@pytest.mark.parametrize("name", ["a/../data.csv", "./data.csv", "a\\data.csv", "..data..csv"])
def test_zip_path_that_stays_inside(name):
    assert content(zipped((name, CSV)))[1:] == (name, CSV)


THREE = [("a.csv", b"a\n1\n"), ("march/b.csv", b"b\n1\n"), ("march/notes.txt", b"x")]


@pytest.mark.parametrize(
    ("member", "chosen"),
    [
        ("a.csv", "a.csv"),
        ("march/b.csv", "march/b.csv"),
        ("b.csv", "march/b.csv"),
        ("b.*", "march/b.csv"),
        ("march/*.csv", "march/b.csv"),
        ("*/notes*", "march/notes.txt"),
        ("[ab].txt", None),
        ("B.csv", None),
        ("*.csv", None),
        ("", None),
    ],
)
def test_zip_member_declared(member, chosen):
    if chosen:
        assert content(zipped(*THREE), member=member)[1] == chosen
    else:
        assert refusal(zipped(*THREE), member=member).code is Code.ARCHIVE_MEMBERS


def test_zip_member_declared_by_its_whole_path_is_meant():
    archive = zipped(("old/data[1].csv", b"old"), ("data[1].csv", CSV), ("data1.csv", b"other"))
    assert content(archive, member="data[1].csv")[2] == CSV


def test_zip_member_declared_does_not_replace_the_only_one():
    refused = refusal(zipped(("data.csv", CSV)), member="other.csv")
    assert refused.code is Code.ARCHIVE_MEMBERS
    assert "other.csv" in refused.detail
    assert "data.csv" in refused.detail


def test_zip_of_several_names_five():
    refused = refusal(zipped(*((f"{n}.csv", CSV) for n in range(7))))
    assert refused.code is Code.ARCHIVE_MEMBERS
    assert "7 files: 0.csv, 1.csv, 2.csv, 3.csv, 4.csv, ..." in refused.detail


def test_zip_names_are_made_printable():
    names = ("a\n\x1b[31m.csv", "b\N{RIGHT-TO-LEFT OVERRIDE}vsc.exe", "c" * 60_000 + ".csv")
    refused = refusal(zipped(*((name, CSV) for name in names)))
    assert len(refused.detail) < 400
    assert content(zipped((names[1], CSV)))[1] == "b\N{REPLACEMENT CHARACTER}vsc.exe"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zip_of_two_members_of_one_name():
    archive = zipped(("data.csv", CSV), ("data.csv", b"other"))
    assert refusal(archive).code is Code.ARCHIVE_MEMBERS
    assert refusal(archive, member="data.csv").code is Code.ARCHIVE_MEMBERS


def test_zip_of_too_many_members():
    archive = zipped(*((f"f/{n}/", b"") for n in range(3)), ("data.csv", CSV))
    assert content(archive, limits=ReadingLimits(max_members=4))[2] == CSV
    refused = refusal(archive, limits=ReadingLimits(max_members=3))
    assert refused.code is Code.ARCHIVE_MEMBERS
    assert "4 members" in refused.detail


def test_zip_directory_is_not_read_if_it_is_too_large():
    archive = zipped(*(("x" * 60_000 + str(n), b"") for n in range(5)))
    refused = refusal(archive, limits=ReadingLimits(max_members=10))
    assert refused.code is Code.ARCHIVE_MEMBERS
    assert "directory" in refused.detail


def test_zip_with_a_password():
    archive = zipped(("data.csv", CSV))
    refused = refusal(patched(archive, local=[(6, b"\1")], central=[(8, b"\1")]))
    assert refused.code is Code.ARCHIVE_DAMAGED
    assert "password" in refused.detail


@pytest.mark.parametrize(
    ("method", "name"), [(9, "Deflate64"), (12, "bzip2"), (14, "LZMA"), (99, "number 99")]
)
def test_zip_of_another_method(method, name):
    archive = zipped(("data.csv", CSV))
    raw = struct.pack("<H", method)
    refused = refusal(patched(archive, local=[(8, raw)], central=[(10, raw)]))
    assert refused.code is Code.ARCHIVE_DAMAGED
    assert name in refused.detail


def test_zip_of_a_later_version_or_patched():
    archive = zipped(("data.csv", CSV))
    assert refusal(patched(archive, central=[(6, b"\xff")])).code is Code.ARCHIVE_DAMAGED
    flags = patched(archive, local=[(6, b"\x20")], central=[(8, b"\x20")])
    assert refusal(flags).code is Code.ARCHIVE_DAMAGED


def test_zip_whose_headers_name_different_files():
    archive = patched(zipped(("data.csv", CSV)), local=[(30, b"DATA")])
    assert refusal(archive).code is Code.ARCHIVE_DAMAGED


def test_zip_name_in_a_wrong_encoding():
    archive = zipped(("dé.csv", CSV)).replace("é".encode(), b"\xe9x")
    assert refusal(archive).code is Code.ARCHIVE_DAMAGED


def test_zip_of_unknown_length_from_a_pipe():
    class Pipe(io.RawIOBase):
        def __init__(self):
            self.data = b""

        def writable(self):
            return True

        def write(self, data):
            self.data += bytes(data)
            return len(data)

    target = Pipe()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.csv", CSV)
    assert content(target.data) == (("zip",), "data.csv", CSV)


# archives in archives, and workbooks


def tarred():
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        info = tarfile.TarInfo("data.csv")
        info.size = len(CSV)
        archive.addfile(info, io.BytesIO(CSV))
    return target.getvalue()


ARCHIVES = {
    **{kind: SMALL[kind] for kind in PACKERS},
    "empty zip": zipped(),
    "tar": tarred(),
    "7z": b"7z\xbc\xaf\x27\x1c\0\4",
    "rar": b"Rar!\x1a\x07\x01\0",
}


@pytest.mark.parametrize("inner", ARCHIVES)
@pytest.mark.parametrize("outer", PACKERS)
def test_archive_in_an_archive(outer, inner):
    assert refusal(PACKERS[outer](ARCHIVES[inner])).code is Code.NESTED_ARCHIVE


@pytest.mark.parametrize(("kind", "said"), [("tar", "tar"), ("7z", "7-Zip"), ("rar", "RAR")])
def test_archive_that_is_not_unpacked(kind, said):
    refused = refusal(ARCHIVES[kind])
    assert refused.code is Code.UNSUPPORTED_TYPE
    assert said in refused.detail
    with pytest.raises(PermanentError):
        refuse_unsupported(ARCHIVES[kind])


def test_recognise():
    for kind, packed in ARCHIVES.items():
        assert recognise(packed[: containers.HEAD_BYTES]) == kind.partition(",")[0].split()[-1]
        refuse_unsupported(packed[:4])
    for text in (b"", CSV, b"BZh9,x\n", b"%PDF-1.7", b"PK\1\2"):
        assert recognise(text) == ""
    assert recognise(bz2.compress(b"")) == "bzip2"


WORKBOOKS = {
    "Excel": ["[Content_Types].xml", "_rels/.rels", "xl/workbook.xml"],
    "others": ["docProps/app.xml", "[Content_Types].xml", "xl/workbook.xml"],
    "a late sign": ["xl/worksheets/sheet1.xml", "[Content_Types].xml"],
    "OpenDocument": ["mimetype", "content.xml", "META-INF/manifest.xml"],
}


@pytest.mark.parametrize("made_by", WORKBOOKS)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_workbook_stays_packed(made_by, method):
    names = WORKBOOKS[made_by]
    workbook = zipped(*((name, b"<x/>") for name in names), method=method)
    assert is_workbook(names)
    assert is_workbook_head(workbook)
    assert content(workbook) == ((), "", workbook)
    assert content(lambda: Hesitant(workbook, seekable=False))[2] == workbook
    for packer, pack in PACKERS.items():
        kinds, _, found = content(pack(workbook))
        assert (kinds, found) == ((packer.partition(",")[0],), workbook)


@pytest.mark.parametrize("seekable", [True, False])
def test_workbook_that_begins_with_something_else(seekable):
    names = ["a.bin", "[Content_Types].xml", "xl/workbook.xml"]
    workbook = zipped(*((name, b"<x/>") for name in names))
    assert not is_workbook_head(workbook)
    assert content(lambda: Hesitant(workbook, seekable=seekable)) == ((), "", workbook)


@pytest.mark.parametrize("name", ["xl.csv", "mimetypes.csv", "docProps.csv", "data/xl/x.csv"])
def test_data_that_is_named_like_a_workbook(name):
    assert content(zipped((name, CSV))) == (("zip",), name, CSV)


def test_old_workbook_in_a_zip():
    old = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
    assert content(zipped(("a.xls", old))) == (("zip",), "a.xls", old)


# the cases beside the project


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("bomb.csv.gz", Code.ARCHIVE_TOO_LARGE),
        # It holds two files, one of them with a path that leads out, which is said first.
        ("two_members.zip", Code.UNSAFE_ARCHIVE_PATH),
    ],
)
def test_case(shared_folder, name, code):
    data = (shared_folder / "cases" / name).read_bytes()
    assert refusal(data).code is code


def test_repetitive_file_is_no_bomb():
    data = b"id,name\n" + b"1,Anna\n" * 100_000
    for packer, pack in PACKERS.items():
        assert content(pack(data))[2] == data, packer
