"""Memory is bounded whatever the file: each case is read by a process of its own, under a limit.

The limit alone would not do: it counts what is reserved as well as what is used, so it is twice
the bound, and the peak is asked for besides.
"""

import bz2
import gzip
import io
import subprocess
import sys
import zipfile

import pytest

BOUND_MB = 256

PROGRAM = """
import io
import resource
import sys
from pathlib import Path

from pocket_ingest.core.errors import PermanentError
from pocket_ingest.core.reading import open_table

class Made(io.RawIOBase):
    # A source of any size that exists nowhere: a head, then one unit again and again.
    def __init__(self, head, unit, size):
        self.rest, self.unit, self.left = head, unit * max(1, 2**20 // len(unit)), size

    def read(self, size):
        if not self.rest and self.left > 0:
            self.rest, self.left = self.unit, self.left - len(self.unit)
        part, self.rest = self.rest[:size], self.rest[size:]
        return part

source, bound = eval(sys.stdin.read()), int(sys.argv[1])
def open_source():
    return Path(source).open("rb") if isinstance(source, str) else Made(*source)

resource.setrlimit(resource.RLIMIT_DATA, (2 * bound * 2**20,) * 2)
rows = bad = lines = 0
codes = set()
try:
    with open_table(open_source) as reading:
        for chunk in reading:
            rows += len(chunk.records)
            bad += len(chunk.malformed)
            codes |= {str(one.code) for one in chunk.malformed}
        lines = reading.account.total
except PermanentError as refusal:
    codes.add(f"refused:{refusal.code}")
# Not ru_maxrss, which begins with what the process was before exec: the test runner's own peak.
status = Path("/proc/self/status").read_text()
peak = int(status.partition("VmHWM:")[2].split()[0]) // 1024
print(rows, bad, ",".join(sorted(codes)) or "-", lines, peak)
"""

MB = 2**20
RECORDS = b"1,two,three and more\n" * 50
NAMED = b'{"id": 1, "name": "Anna Maria", "street": "Main street 44", "paid": true}'
HUNDRED_THOUSAND = b",".join(b"c%d" % number for number in range(100_000)) + b"\n"
NEARLY_TOO_MANY = b",".join(b"c%d" % number for number in range(1_900)) + b"\n"

CASES = {
    "2 GB": ((b"a,b,c\n", RECORDS, 2048 * MB), None, 0, "-"),
    "short records": ((b"a\n", b"1\n", 8 * MB), 4 * MB, 0, "-"),
    "1,900 columns": ((NEARLY_TOO_MANY, NEARLY_TOO_MANY.replace(b"c", b""), 50 * MB), None, 0, "-"),
    "100,000 columns": (
        (HUNDRED_THOUSAND, HUNDRED_THOUSAND, 50 * MB),
        0,
        0,
        "refused:too_many_columns",
    ),
    "cp1252": ((b"a;b\n", b"1;un \xe9t\xe9\n" * 9, 20 * MB), None, 0, "-"),
    "UTF-16": (
        ("\ufeffa\tb\n".encode("utf-16-le"), "1\tun été\n".encode("utf-16-le"), 20 * MB),
        None,
        0,
        "-",
    ),
    "every record broken": (
        (b"a,b\n", b"1,some text and \xff\n", 5 * MB),
        0,
        None,
        "invalid_encoding",
    ),
    "one field of 1 GB": (
        (b'a,b,c\n1,2,"', b"some text, and more ", 1024 * MB),
        0,
        1,
        "record_too_long",
    ),
    "one long line": (
        (b"a,b,c\n1,2,3", b"some text, and more ", 200 * MB),
        0,
        1,
        "record_too_long",
    ),
    "nothing but quotes": ((b"a,b,c\n1,2,", b'"', 100 * MB), 0, 1, "record_too_long"),
    "nothing but blank lines": ((b"a\n", b"\r\n", 100 * MB), 0, 0, "-"),
    "an open quote before many records": (
        (b'a,b,c\n1,2,"x\n', RECORDS, 500 * MB),
        None,
        1,
        "unterminated_quote",
    ),
    "an open quote before many records without a number": (
        (b'a,b,c\n1,2,"x\n', b"one,two,three and more\n" * 50, 500 * MB),
        None,
        1,
        "unterminated_quote",
    ),
    "JSON Lines": ((b"", NAMED + b"\n", 20 * MB), None, 0, "-"),
    "a JSON array": ((b"[", NAMED + b",\n", 20 * MB), None, 0, "-"),
    "a JSON text without an end": (
        (b'[{"a": "', b"some text ", 100 * MB),
        0,
        0,
        "refused:json_unreadable",
    ),
    "nothing but brackets": ((b'{"a": ', b"[1,", 20 * MB), 0, 0, "refused:json_unreadable"),
}


def read(source):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(BOUND_MB)],
        input=repr(source),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows, bad, codes, lines, peak = done.stdout.split()
    assert int(peak) < BOUND_MB
    return int(rows), int(bad), codes, int(lines)


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells it on Linux only")


@pytest.mark.parametrize("case", CASES)
def test_peak_memory(case):
    source, rows, bad, codes = CASES[case]
    found_rows, found_bad, found_codes, lines = read(source)
    assert found_codes == codes
    assert rows is None or found_rows == rows
    assert bad is None or found_bad == bad
    if rows is None and "JSON array" not in case:
        assert found_rows + found_bad + 1 * ("JSON" not in case) == lines


def zip_bomb(size):
    """Many members that share what they hold, as far as the format allows: deflated zeros."""
    target = io.BytesIO()
    with (
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.csv", "w") as member,
    ):
        for _ in range(size // MB):
            member.write(bytes(MB))
    return target.getvalue()


def nested(depth):
    packed = b"a,b\n1,2\n"
    for _ in range(depth):
        packed = gzip.compress(packed)
    return packed


BOMBS = {
    "gzip": (lambda: gzip.compress(bytes(512 * MB), 1), "refused:archive_too_large"),
    "bzip2": (lambda: bz2.compress(bytes(512 * MB), 1), "refused:archive_too_large"),
    "zip": (lambda: zip_bomb(512 * MB), "refused:archive_too_large"),
    "nested": (lambda: nested(5), "refused:nested_archive"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs(bomb, tmp_path):
    make, codes = BOMBS[bomb]
    path = tmp_path / "bomb"
    path.write_bytes(make())
    rows, bad, found, _ = read(str(path))
    assert (rows, bad, found) == (0, 0, codes)
