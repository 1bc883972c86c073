"""Memory is bounded whatever the file: each case is read by a process of its own."""

import subprocess
import sys

import pytest

BOUND_MB = 300

PROGRAM = """
import io
import sys
from pathlib import Path

from pocket_ingest.core.reading import open_table

class Made(io.RawIOBase):
    # A source of any size that exists nowhere: a head, then one unit again and again.
    def __init__(self, head, unit, size):
        self.rest, self.unit, self.left = head, unit * (2**20 // len(unit)), size

    def read(self, size):
        if not self.rest and self.left > 0:
            self.rest, self.left = self.unit, self.left - len(self.unit)
        part, self.rest = self.rest[:size], self.rest[size:]
        return part

head, unit, size = eval(sys.argv[1])
rows = bad = 0
codes = set()
with open_table(lambda: Made(head, unit, size)) as reading:
    for chunk in reading:
        rows += len(chunk.records)
        bad += len(chunk.malformed)
        codes |= {str(one.code) for one in chunk.malformed}
# Not ru_maxrss, which begins with what the process was before exec: the test runner's own peak.
status = Path("/proc/self/status").read_text()
peak = int(status.partition("VmHWM:")[2].split()[0]) // 1024
print(rows, bad, ",".join(sorted(codes)) or "-", reading.account.total, peak)
"""

MB = 2**20
CASES = {
    "plain": ((b"a,b,c\n", b"1,two,three and more\n" * 50, 300 * MB), None, 0, "-"),
    "short records": ((b"a\n", b"1\n", 8 * MB), 4 * MB, 0, "-"),
    "every record broken": (
        (b"a,b\n", b"1,some text and \xff\n", 5 * MB),
        0,
        None,
        "invalid_encoding",
    ),
    "one open quote, no line end": (
        (b'a,b,c\n1,2,"', b"some text, and more ", 200 * MB),
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
    "nothing but quotes": ((b"a,b,c\n1,2,", b'"', 200 * MB), 0, 1, "record_too_long"),
    "nothing but blank lines": ((b"a\n", b"\r\n", 200 * MB), 0, 0, "-"),
    "an open quote before many records": (
        (b'a,b,c\n1,2,"x\n', b"1,two,three and more\n" * 50, 100 * MB),
        None,
        1,
        "unterminated_quote",
    ),
}


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells it on Linux only")
@pytest.mark.parametrize("case", CASES)
def test_peak_memory(case):
    made, rows, bad, codes = CASES[case]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, repr(made)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found_rows, found_bad, found_codes, lines, peak = done.stdout.split()
    assert found_codes == codes
    assert rows is None or int(found_rows) == rows
    assert bad is None or int(found_bad) == bad
    if rows is None:
        assert int(found_rows) + int(found_bad) + 1 == int(lines)
    assert int(peak) < BOUND_MB
