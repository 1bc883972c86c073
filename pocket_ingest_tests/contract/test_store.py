"""What every object store promises, whatever it is made of; below, what a folder promises more.

Another store joins by a bench of its own in ``BENCHES``.
"""

import hashlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pocket_ingest.adapters import local_store
from pocket_ingest.adapters.local_store import LocalStore
from pocket_ingest.core.errors import Code, PermanentError
from pocket_ingest.core.intake import is_unfinished
from pocket_ingest.core.ports import Store, StoredObject

PATIENCE = 60.0


class Bench(Protocol):
    """A store, and the other side of it: whoever puts objects there."""

    store: Store

    def put(self, key: str, content: bytes) -> None: ...

    def delete(self, key: str) -> None: ...


class LocalBench:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = LocalStore(root)

    def path(self, key: str) -> Path:
        return self.root / key

    def put(self, key: str, content: bytes) -> None:
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.tick()
        path.write_bytes(content)

    def delete(self, key: str) -> None:
        self.path(key).unlink()

    def tick(self) -> None:
        """Wait until the file system's clock, which moves in steps, has moved."""
        probe = self.root / ".probe"
        self.root.mkdir(parents=True, exist_ok=True)
        probe.touch()
        begun = probe.stat().st_ctime_ns
        while probe.stat().st_ctime_ns == begun:
            probe.touch()
        probe.unlink()


BENCHES: dict[str, Callable[[Path], Bench]] = {"local": LocalBench}


@pytest.fixture(params=list(BENCHES))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return BENCHES[request.param](tmp_path / "store")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.bin"
    path.write_bytes(b"published")
    return path


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def read(store: Store, key: str) -> bytes:
    with store.open(key) as opened:
        return opened.read()


def keys(store: Store, prefix: str = "inbox/") -> list[str]:
    return [found.key for found in store.list(prefix)]


def refusal(call: Callable[[], Any]) -> Code:
    with pytest.raises(PermanentError) as error:
        call()
    return error.value.code


class TestListing:
    def test_is_in_key_order_and_below_the_prefix(self, bench: Bench) -> None:
        names = ["a/b.csv", "a.csv", "a-b.csv", "b/c/d.csv", "a/a/z.csv", "B.csv", "a0.csv"]
        for name in names:
            bench.put(f"inbox/{name}", b"x")
        bench.put("other/a.csv", b"x")
        assert keys(bench.store) == sorted(f"inbox/{name}" for name in names)
        assert keys(bench.store, "inbox/a/") == ["inbox/a/a/z.csv", "inbox/a/b.csv"]
        assert keys(bench.store, "none/") == []

    @given(
        names=st.sets(
            st.lists(
                st.text("ab-./ 0_é", min_size=1, max_size=4).filter(
                    lambda part: part.strip("./ ") and "/" not in part
                ),
                min_size=1,
                max_size=3,
            ).map("/".join),
            max_size=8,
        )
    )
    @settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_is_in_key_order_for_any_names(self, tmp_path: Path, names: set[str]) -> None:
        root = tmp_path / "any"
        shutil.rmtree(root, ignore_errors=True)
        put = set()
        for name in sorted(names):
            path = root / "inbox" / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"x")
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                continue  # a name that is a folder's as well, which a file system cannot have
            put.add(f"inbox/{name}")
        assert keys(LocalStore(root)) == sorted(put)

    def test_agrees_with_a_look_at_the_object(self, bench: Bench) -> None:
        bench.put("inbox/a.csv", b"four")
        (listed,) = bench.store.list("inbox/")
        assert listed == bench.store.stat("inbox/a.csv")
        assert listed.size_bytes == 4
        assert listed.settled

    @pytest.mark.parametrize(
        "name",
        [
            "comma, name #1.csv",
            "100%.csv",
            "%2e%2e.csv",
            "Übung 🙂 ﬁ.csv",
            "a\u0301 decomposed.csv",
            "quote ' and \".csv",
            "back\\slash.csv",
            "line\nbreak.csv",
            " spaces .csv ",
            "..csv",
            "...",
            "a?b&c=d;e.csv",
            "-rf *",
        ],
    )
    def test_takes_names_as_they_are(self, bench: Bench, name: str) -> None:
        key = f"inbox/permits/ann & co/{name}"
        bench.put(key, b"content")
        (found,) = bench.store.list("inbox/")
        assert found.key == key
        assert read(bench.store, key) == b"content"
        pinned = bench.store.pin(found, under="uploads/permits/ann")
        assert read(bench.store, pinned.key) == b"content"
        assert bench.store.address(key)


class TestVersions:
    def test_stay_while_nothing_changes(self, bench: Bench) -> None:
        bench.put("inbox/a.csv", b"one")
        first = bench.store.stat("inbox/a.csv")
        assert bench.store.stat("inbox/a.csv") == first
        read(bench.store, "inbox/a.csv")
        assert bench.store.stat("inbox/a.csv").version == first.version

    @pytest.mark.parametrize("content", [b"two", b"one", b"three", b""])
    def test_change_with_every_write(self, bench: Bench, content: bytes) -> None:
        bench.put("inbox/a.csv", b"one")
        first = bench.store.stat("inbox/a.csv")
        bench.put("inbox/a.csv", content)
        assert bench.store.stat("inbox/a.csv").version != first.version

    def test_of_a_file_that_went_and_came_again_differ(self, bench: Bench) -> None:
        bench.put("inbox/a.csv", b"one")
        first = bench.store.stat("inbox/a.csv")
        bench.delete("inbox/a.csv")
        bench.put("inbox/a.csv", b"one")
        assert bench.store.stat("inbox/a.csv").version != first.version

    def test_checksums_are_of_the_version_that_was_found(self, bench: Bench) -> None:
        bench.put("inbox/a.csv", b"one")
        found = bench.store.stat("inbox/a.csv")
        assert bench.store.checksum(found) == sha256(b"one")
        bench.put("inbox/a.csv", b"two")
        assert refusal(lambda: bench.store.checksum(found)) is Code.UPLOAD_CHANGED
        bench.delete("inbox/a.csv")
        assert refusal(lambda: bench.store.checksum(found)) is Code.UPLOAD_MISSING


class TestPinning:
    @pytest.mark.parametrize("content", [b"", b"one", os.urandom(3 * 2**20 + 7)])
    def test_copies_exactly_what_was_found(self, bench: Bench, content: bytes) -> None:
        bench.put("inbox/a.csv", content)
        found = bench.store.stat("inbox/a.csv")
        pinned = bench.store.pin(found, under="uploads/permits/ann")
        assert pinned.key == f"uploads/permits/ann/{sha256(content)}"
        assert pinned.sha256 == sha256(content)
        assert pinned.size_bytes == len(content)
        assert pinned.source_version == found.version
        assert read(bench.store, pinned.key) == content

    def test_keeps_it_whatever_becomes_of_the_object(self, bench: Bench) -> None:
        bench.put("inbox/a.csv", b"one")
        pinned = bench.store.pin(bench.store.stat("inbox/a.csv"), under="uploads/p/t")
        bench.put("inbox/a.csv", b"two")
        assert read(bench.store, pinned.key) == b"one"
        bench.delete("inbox/a.csv")
        assert read(bench.store, pinned.key) == b"one"

    def test_twice_is_once(self, bench: Bench) -> None:
        bench.put("inbox/a.csv", b"one")
        found = bench.store.stat("inbox/a.csv")
        first = bench.store.pin(found, under="uploads/p/t")
        assert bench.store.pin(found, under="uploads/p/t") == first
        bench.put("inbox/b.csv", b"one")
        other = bench.store.pin(bench.store.stat("inbox/b.csv"), under="uploads/p/t")
        assert other.key == first.key
        assert keys(bench.store, "uploads/") == [first.key]

    def test_again_mends_a_damaged_copy(self, bench: Bench, tmp_path: Path) -> None:
        bench.put("inbox/a.csv", b"one")
        found = bench.store.stat("inbox/a.csv")
        pinned = bench.store.pin(found, under="uploads/p/t")
        damaged = tmp_path / "damaged"
        damaged.write_bytes(b"o")
        bench.store.publish(damaged, key=pinned.key)
        bench.store.pin(found, under="uploads/p/t")
        with bench.store.open(pinned.key) as content:
            assert content.read() == b"one"

    def test_of_what_changed_is_refused(self, bench: Bench) -> None:
        bench.put("inbox/a.csv", b"one")
        found = bench.store.stat("inbox/a.csv")
        bench.put("inbox/a.csv", b"two")
        pin = lambda: bench.store.pin(found, under="uploads/p/t")  # noqa: E731
        assert refusal(pin) is Code.UPLOAD_CHANGED
        assert keys(bench.store, "uploads/") == []

    def test_of_what_is_gone_is_refused(self, bench: Bench) -> None:
        bench.put("inbox/a.csv", b"one")
        found = bench.store.stat("inbox/a.csv")
        bench.delete("inbox/a.csv")
        pin = lambda: bench.store.pin(found, under="uploads/p/t")  # noqa: E731
        assert refusal(pin) is Code.UPLOAD_MISSING

    def test_of_a_file_from_elsewhere(self, bench: Bench, source: Path) -> None:
        pinned = bench.store.take(source, under="uploads/p/t")
        assert pinned.key == f"uploads/p/t/{sha256(b'published')}"
        assert read(bench.store, pinned.key) == b"published"
        source.unlink()
        take = lambda: bench.store.take(source, under="uploads/p/t")  # noqa: E731
        assert refusal(take) is Code.UPLOAD_MISSING


class TestPublishing:
    def test_puts_a_file_under_its_key(self, bench: Bench, source: Path) -> None:
        assert bench.store.publish(source, key="artifacts/a/b.csv") == 9
        assert read(bench.store, "artifacts/a/b.csv") == b"published"
        assert source.read_bytes() == b"published"

    def test_replaces_what_was_there(self, bench: Bench, source: Path) -> None:
        bench.put("artifacts/a.csv", b"something much longer than that")
        bench.store.publish(source, key="artifacts/a.csv")
        assert read(bench.store, "artifacts/a.csv") == b"published"
        assert keys(bench.store, "artifacts/") == ["artifacts/a.csv"]

    def test_of_a_file_that_is_not_there_leaves_nothing(self, bench: Bench, tmp_path: Path) -> None:
        publish = lambda: bench.store.publish(tmp_path / "none", key="artifacts/a.csv")  # noqa: E731
        assert refusal(publish) is Code.UPLOAD_MISSING
        assert keys(bench.store, "artifacts/") == []

    def test_a_reader_sees_all_of_a_file_or_the_one_before(
        self, bench: Bench, tmp_path: Path
    ) -> None:
        contents = {bytes([n]) * (2**18 + n) for n in range(4)}
        sources = []
        for content in contents:
            sources.append(tmp_path / f"{content[0]}.bin")
            sources[-1].write_bytes(content)
        bench.store.publish(sources[0], key="artifacts/a.bin")
        stop = threading.Event()
        seen: set[bytes] = set()

        def look() -> None:
            while not stop.is_set():
                seen.add(read(bench.store, "artifacts/a.bin"))

        reader = threading.Thread(target=look)
        reader.start()
        for _ in range(10):
            for path in sources:
                bench.store.publish(path, key="artifacts/a.bin")
        stop.set()
        reader.join()
        assert seen
        assert seen <= contents


class TestRefusals:
    def test_what_is_not_there(self, bench: Bench) -> None:
        assert refusal(lambda: bench.store.stat("inbox/none.csv")) is Code.UPLOAD_MISSING
        assert refusal(lambda: bench.store.open("inbox/none.csv")) is Code.UPLOAD_MISSING

    @pytest.mark.parametrize(
        "key", ["../secret", "inbox/../../secret", "/etc/hostname", "..", "inbox/a/../../../secret"]
    )
    def test_keys_that_lead_out_of_the_store(
        self, bench: Bench, tmp_path: Path, source: Path, key: str
    ) -> None:
        (tmp_path / "secret").write_bytes(b"secret")
        found = StoredObject(key=key, version="1", size_bytes=1)
        for call in (
            lambda: bench.store.stat(key),
            lambda: bench.store.open(key),
            lambda: list(bench.store.list(key)),
            lambda: bench.store.checksum(found),
            lambda: bench.store.pin(found, under="uploads/p/t"),
            lambda: bench.store.take(source, under=key),
            lambda: bench.store.publish(source, key=key),
            lambda: bench.store.address(key),
        ):
            assert refusal(call) is Code.UPLOAD_MISSING
        assert (tmp_path / "secret").read_bytes() == b"secret"


class TestAFolder:
    """What only a file system can do to a file."""

    @pytest.fixture
    def bench(self, tmp_path: Path) -> LocalBench:
        return LocalBench(tmp_path / "store")

    def changed(self, bench: LocalBench, change: Callable[[Path], Any]) -> bool:
        bench.put("inbox/a.csv", b"one")
        before = bench.store.stat("inbox/a.csv")
        bench.tick()
        change(bench.path("inbox/a.csv"))
        return bench.store.stat("inbox/a.csv").version != before.version

    def test_a_rewrite_of_the_same_size_with_the_old_time_is_seen(self, bench: LocalBench) -> None:
        def rewrite(path: Path) -> None:
            status = path.stat()
            path.write_bytes(b"two")
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

        assert self.changed(bench, rewrite)

    def test_a_copy_that_keeps_the_time_is_seen(self, bench: LocalBench) -> None:
        def replace(path: Path) -> None:
            other = path.with_name("b")
            other.write_bytes(b"two")
            shutil.copystat(path, other)
            shutil.copy2(other, path)

        assert self.changed(bench, replace)

    def test_a_rename_onto_it_is_seen(self, bench: LocalBench) -> None:
        def replace(path: Path) -> None:
            other = path.with_name("b")
            other.write_bytes(b"two")
            shutil.copystat(path, other)
            other.rename(path)

        assert self.changed(bench, replace)

    def test_a_touch_is_seen_and_a_look_is_not(self, bench: LocalBench) -> None:
        assert self.changed(bench, lambda path: os.utime(path, (0, 0)))
        assert not self.changed(bench, lambda path: path.read_bytes())

    def test_a_write_while_it_is_copied_is_noticed(
        self, bench: LocalBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.put("inbox/a.csv", b"x" * (3 * 2**20))
        found = bench.store.stat("inbox/a.csv")

        class Meddling:
            """A digest during whose first update somebody appends to the file."""

            def __init__(self) -> None:
                self._digest = hashlib.sha256()
                self._meddled = False

            def update(self, block: bytes) -> None:
                self._digest.update(block)
                if not self._meddled:
                    bench.put("inbox/a.csv", b"y" * (3 * 2**20))
                self._meddled = True

            def hexdigest(self) -> str:
                return self._digest.hexdigest()

        class Hashes:
            sha256 = Meddling

        monkeypatch.setattr(local_store, "hashlib", Hashes)
        pin = lambda: bench.store.pin(found, under="uploads/p/t")  # noqa: E731
        assert refusal(pin) is Code.UPLOAD_CHANGED
        assert keys(bench.store, "uploads/") == []

    def test_nothing_half_written_is_found_under_its_key(
        self, bench: LocalBench, tmp_path: Path
    ) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        publisher = threading.Thread(
            target=lambda: bench.store.publish(pipe, key="artifacts/a.csv"), daemon=True
        )
        publisher.start()
        with pipe.open("wb", buffering=0) as writer:
            writer.write(b"first half, ")
            wait_until(lambda: any((bench.root / "artifacts").glob("*")))
            assert refusal(lambda: bench.store.open("artifacts/a.csv")) is Code.UPLOAD_MISSING
            assert all(is_unfinished(key) for key in keys(bench.store, "artifacts/"))
            writer.write(b"second half")
        publisher.join()
        assert read(bench.store, "artifacts/a.csv") == b"first half, second half"
        assert [p.name for p in (bench.root / "artifacts").iterdir()] == ["a.csv"]

    def test_links_are_not_followed(self, bench: LocalBench, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "secret.csv").write_bytes(b"secret")
        bench.put("inbox/a.csv", b"x")
        (bench.root / "inbox" / "link").symlink_to(outside, target_is_directory=True)
        (bench.root / "inbox" / "loop").symlink_to(bench.root / "inbox")
        (bench.root / "inbox" / "broken.csv").symlink_to(outside / "none")
        (bench.root / "inbox" / "file.csv").symlink_to(outside / "secret.csv")
        assert keys(bench.store) == ["inbox/a.csv"]

    def test_files_are_readable_as_the_umask_says(self, bench: LocalBench, source: Path) -> None:
        before = os.umask(0o022)
        try:
            bench.store.publish(source, key="artifacts/a.csv")
        finally:
            os.umask(before)
        assert bench.path("artifacts/a.csv").stat().st_mode & 0o777 == 0o644

    def test_a_file_that_may_not_be_read_is_told(self, bench: LocalBench) -> None:
        if os.geteuid() == 0:
            pytest.skip("root may read everything")
        bench.put("inbox/a.csv", b"x")
        bench.path("inbox/a.csv").chmod(0)
        assert refusal(lambda: bench.store.open("inbox/a.csv")) is Code.UPLOAD_MISSING


class TestSettled:
    def quiet(self, bench: LocalBench, seconds: float) -> LocalStore:
        return LocalStore(bench.root, quiet_seconds=seconds)

    @pytest.fixture
    def bench(self, tmp_path: Path) -> LocalBench:
        bench = LocalBench(tmp_path / "store")
        bench.put("inbox/a.csv", b"x")
        return bench

    def test_only_after_the_quiet_time(self, bench: LocalBench) -> None:
        assert not self.quiet(bench, 3600).stat("inbox/a.csv").settled
        # Setting the time of change back does not make it quiet: the inode's has moved.
        os.utime(bench.path("inbox/a.csv"), (0, 0))
        assert not self.quiet(bench, 3600).stat("inbox/a.csv").settled
        wait_until(lambda: self.quiet(bench, 0.01).stat("inbox/a.csv").settled)

    def test_without_a_quiet_time_at_once(self, bench: LocalBench) -> None:
        assert self.quiet(bench, 0).stat("inbox/a.csv").settled

    def test_a_time_in_the_future_does_not_wait_for_it(self, bench: LocalBench) -> None:
        later = time.time() + 10**6
        os.utime(bench.path("inbox/a.csv"), (later, later))
        wait_until(lambda: self.quiet(bench, 0.01).stat("inbox/a.csv").settled)

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who has a file open")
    def test_not_while_somebody_has_it_open_for_writing(self, bench: LocalBench) -> None:
        store = self.quiet(bench, 0.01)
        with bench.path("inbox/a.csv").open("ab"):
            bench.tick()
            time.sleep(0.05)  # well over the quiet time
            (found,) = store.list("inbox/")
            assert not found.settled
        wait_until(lambda: store.stat("inbox/a.csv").settled)
        with bench.path("inbox/a.csv").open("rb"):
            assert store.stat("inbox/a.csv").settled


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)
