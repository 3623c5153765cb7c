"""A disk that is full, or fails: the answer is SERVER_ERROR, reading still works, and nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.core.io.durability import ALWAYS, NONE, Sync, interval
from logwright.errors import StorageFailed
from logwright.kestrel.model.limits import Limits
from logwright.servers.queue import commits
from logwright.servers.queue.limits import ServerLimits
from logwright.servers.queue.queues import Phase
from logwright.servers.queue.upkeep import Space
from tests.servers.queue.support import Client, Serving, serving
from tests.support.small_disk import small_disk

NO_SPACE = b"SERVER_ERROR out of disk space\r\n"
FAILED = b"SERVER_ERROR the queue's journal failed\r\n"
QUICK = ServerLimits(retry_seconds=0.01, answer_seconds=0.04)


class FickleDisk:
    """The real disk, until writes or syncs are made to fail; `free` is the reported free space."""

    def __init__(self) -> None:
        self.failing: dict[str, int] = {}
        self.failing_file: str | None = None
        """The name of the only file whose calls fail; None for all files."""
        self.spared = 0
        """The number of calls that succeed first."""
        self.failing_after_write: dict[str, int] = {}
        """What becomes `failing` right after the next write."""
        self.free = 1 << 40
        self.syncs: list[tuple[str, bool]] = []
        """The synced files of queues, and whether a separate thread synced them."""

    def check(self, kind: str, path: Path) -> None:
        if kind in self.failing and self.failing_file in (None, path.name):
            self.spared -= 1
            if self.spared >= 0:
                return
            raise StorageFailed(kind, path, OSError(self.failing[kind], "simulated failure"))

    def open(self, path: Path, mode: Any) -> Any:
        return FickleFile(self, REAL_DISK.open(path, mode))

    def free_bytes(self, path: Path) -> int:
        return self.free

    def __getattr__(self, name: str) -> Any:
        return getattr(REAL_DISK, name)


class FickleFile:
    """A file of such a disk."""

    def __init__(self, disk: FickleDisk, file: Any) -> None:
        self._disk, self._file = disk, file

    def write_at(self, position: int, data: Any) -> int:
        self._disk.check("write", self._file.path)
        written = int(self._file.write_at(position, data))
        if self._disk.failing_after_write:
            self._disk.failing, self._disk.failing_after_write = self._disk.failing_after_write, {}
        return written

    def sync(self) -> None:
        self._disk.check("sync", self._file.path)
        if not self._file.path.name.startswith("."):
            self._disk.syncs.append((self._file.path.name, "sync" in threading.current_thread().name))
        self._file.sync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence the log of failures, which these tests do not check."""
    logging.getLogger("logwright").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("logwright").setLevel(logging.NOTSET)


@pytest.fixture(params=["in the loop", "by threads"])
def sync_place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where a commit syncs: every disk is considered quick, or none is."""
    monkeypatch.setattr(commits, "QUICK_SECONDS", math.inf if request.param == "in the loop" else 0.0)
    return str(request.param)


def wait_until_usable(served: Serving) -> None:
    """Wait until the queue can be used again."""
    service = served.service
    served.until(
        lambda: b"q" in service.queues.by_key and not service.suspended and not service.queues.is_changing(b"q")
    )


@pytest.mark.parametrize("sync", [NONE, ALWAYS], ids=str)
def test_failed_write_is_reported_and_acknowledged_items_are_kept(sync: Sync, tmp_path: Path) -> None:
    disk = FickleDisk()
    settings: dict[str, Any] = {"disk": disk, "limits": QUICK, "sync": sync}
    with serving(tmp_path, **settings) as served, Client(served) as client, Client(served) as other:
        assert client.ask(b"set q 0 0 1\r\n1\r\nset q 0 0 1\r\n2\r\n") == b"STORED\r\n" * 2
        disk.failing = {"write": errno.ENOSPC}
        assert client.ask(b"set q 0 0 1\r\n3\r\n") == NO_SPACE
        served.until(lambda: not served.service.queues.is_changing(b"q"))
        assert other.ask(b"get other\r\nstatus\r\n") == b"END\r\nUP\r\n"
        disk.failing = {}
        wait_until_usable(served)
        assert served.items("q") == [b"1", b"2"]
        assert client.ask(b"set q 0 0 1\r\n4\r\nget q\r\n") == b"STORED\r\nVALUE q 0 1\r\n1\r\nEND\r\n"
    with serving(tmp_path) as served:
        assert served.items("q") == [b"2", b"4"]


@pytest.mark.usefixtures("sync_place")
@pytest.mark.parametrize("kind", ["write", "sync"])
def test_item_whose_removal_failed_is_not_delivered(kind: str, tmp_path: Path) -> None:
    disk = FickleDisk()
    with serving(tmp_path, disk=disk, limits=QUICK, sync=ALWAYS) as served, Client(served) as client:
        client.ask(b"set q 0 0 1\r\n1\r\n")
        disk.failing = {kind: errno.EIO}
        assert client.ask(b"get q\r\n") == FAILED
        disk.failing = {}
        wait_until_usable(served)
        # A removal that was written but not synced may exist; it was not acknowledged.
        gone = [b"END\r\n"] if kind == "sync" else []
        assert client.ask(b"get q\r\n") in [b"VALUE q 0 1\r\n1\r\nEND\r\n", *gone]


@pytest.mark.parametrize("at_once", [True, False], ids=["alone", "with others"])
@pytest.mark.parametrize(("sync", "kind"), [(NONE, "write"), (ALWAYS, "write"), (ALWAYS, "sync")], ids=str)
@pytest.mark.parametrize("request_line", [b"get a q c", b"get a c q", b"get a/open q c/open", b"gets q a q c"])
def test_items_of_other_queues_are_delivered_when_one_queue_fails(
    request_line: bytes, sync: Sync, kind: str, at_once: bool, tmp_path: Path
) -> None:
    disk = FickleDisk()
    with serving(tmp_path, disk=disk, limits=QUICK, sync=sync) as served, Client(served) as client:
        for name in (b"a", b"q", b"c"):
            client.ask(b"set %b 0 0 3\r\n1\r\n\r\nset %b 0 0 1\r\n2\r\n" % (name, name))
        disk.failing, disk.failing_file = {kind: errno.EIO}, "q"
        if at_once:
            client.say(request_line + b"\r\n")
            answer = client.line()
            while not answer.endswith((b"END\r\n", FAILED)):
                answer += client.line()
        else:
            answer = client.ask(b"get nobody\r\n" + request_line + b"\r\n").removeprefix(b"END\r\n")
        disk.failing = {}
        wait_until_usable(served)
        taken = [line.split()[1].partition(b"/")[0].decode() for line in answer.splitlines() if line[:5] == b"VALUE"]
        assert b"VALUE q" not in answer
        assert answer.count(b"END\r\n") + answer.count(FAILED) == 1
        assert bool(taken) != (answer == FAILED)
        for queue in ("a", "c"):
            assert served.items(queue) == ([b"2"] if queue in taken else [b"1\r\n", b"2"])
        if kind == "write":
            assert served.items("q") == [b"1\r\n", b"2"]


def test_reads_open_at_a_journal_failure_are_aborted_and_cannot_be_closed(tmp_path: Path) -> None:
    disk = FickleDisk()
    with serving(tmp_path, disk=disk, limits=QUICK) as served, Client(served) as client, Client(served) as other:
        client.ask(b"set q 0 0 1\r\n1\r\nset q 0 0 1\r\n2\r\n")
        assert client.ask(b"get q/open\r\n").startswith(b"VALUE")
        disk.failing = {"write": errno.ENOSPC}
        assert other.ask(b"set q 0 0 1\r\n3\r\n") == NO_SPACE
        disk.failing = {}
        wait_until_usable(served)
        assert client.ask(b"get q/close\r\n") == FAILED
        assert client.ask(b"get q/close\r\n") == b"END\r\n"
        assert served.state() == {"q": ([b"1", b"2"], 0)}


def test_waiting_client_is_served_after_the_queue_recovers(tmp_path: Path) -> None:
    disk = FickleDisk()
    with serving(tmp_path, disk=disk, limits=QUICK) as served, Client(served) as client, Client(served) as other:
        client.say(b"get q/t=60000\r\n")
        served.until(lambda: b"q" in served.service.queues.by_key and served.service.queues.by_key[b"q"].waiters)
        disk.failing = {"write": errno.ENOSPC}
        assert other.ask(b"set q 0 0 1\r\n1\r\n") == NO_SPACE
        disk.failing = {}
        wait_until_usable(served)
        assert other.ask(b"set q 0 0 1\r\n2\r\n") == b"STORED\r\n"
        assert client.line() == b"VALUE q/t=60000 0 1\r\n"
        assert client.line() == b"2\r\n"
        assert served.items("q") == []


def test_all_requests_of_a_failed_group_write_get_an_error(tmp_path: Path) -> None:
    disk = FickleDisk()
    with serving(tmp_path, disk=disk, limits=QUICK) as served, Client(served) as client, Client(served) as other:
        assert client.ask(b"set q 0 0 1\r\n1\r\n") == b"STORED\r\n"

        def fail_after_the_first() -> None:
            """Let the first write of an iteration succeed, and the following ones fail."""
            queue = served.service.queues.by_key[b"q"]
            served.service.put(queue, b"2", 0)
            disk.failing = {"write": errno.ENOSPC}
            for number in b"345":
                served.service.put(queue, bytes([number]), 0)

        served.call(fail_after_the_first)
        served.until(lambda: served.service.suspended)
        disk.failing = {}
        wait_until_usable(served)
        assert served.items("q") == [b"1", b"2"]
        assert other.ask(b"get q\r\n") == b"VALUE q 0 1\r\n1\r\nEND\r\n"


@pytest.mark.parametrize("sync", [NONE, interval(60_000), ALWAYS], ids=str)
@pytest.mark.parametrize("at_once", [True, False], ids=["alone", "with others"])
@pytest.mark.parametrize("writes", [1, 2])
def test_item_is_delivered_if_and_only_if_its_removal_is_written(
    writes: int, at_once: bool, sync: Sync, tmp_path: Path
) -> None:
    disk = FickleDisk()
    settings: dict[str, Any] = {"disk": disk, "limits": QUICK, "sync": sync}
    with serving(tmp_path, **settings) as served, Client(served) as client, Client(served) as other:
        items = [b"1", b"2", b"3", b"4"]
        client.ask(b"".join(b"set q 0 0 1\r\n%b\r\n" % item for item in items))
        if not at_once:
            other.ask(b"get nobody\r\n")  # so the client is not the last one that sent something
        disk.failing, disk.failing_file, disk.spared = {"write": errno.ENOSPC}, "q", writes
        answer = client.ask(b"get q\r\nget q\r\nget q\r\n")
        disk.failing = {}
        wait_until_usable(served)
        taken = [line for line in answer.split(b"\r\n") if line.isdigit()]
        assert taken + served.items("q") == items
        assert answer.count(NO_SPACE) == 3 - len(taken)


def test_pipelined_requests_of_other_queues_succeed_beside_a_failed_one(tmp_path: Path) -> None:
    disk = FickleDisk()
    with serving(tmp_path, disk=disk, limits=QUICK) as served, Client(served) as client:
        client.ask(b"set q 0 0 1\r\n1\r\nset r 0 0 1\r\n1\r\n")
        disk.failing = {"write": errno.ENOSPC}
        answer = client.ask(b"version\r\nset q 0 0 1\r\n2\r\nget none\r\nget r/peek\r\n")
        assert answer.endswith(NO_SPACE + b"END\r\nVALUE r/peek 0 1\r\n1\r\nEND\r\n")


def test_low_space_refuses_puts_and_allows_reads(tmp_path: Path) -> None:
    disk = FickleDisk()
    limits = ServerLimits(handshake_seconds=0.02, keep_free_bytes=1 << 20)  # so it checks often
    with serving(tmp_path, disk=disk, limits=limits) as served:

        def ask(request: bytes) -> bytes:
            with Client(served) as client:
                return client.ask(request)

        assert ask(b"set q 0 0 1\r\n1\r\nset q 0 0 1\r\n2\r\nset q 0 0 1\r\n3\r\n") == b"STORED\r\n" * 3
        disk.free = (1 << 20) - 1
        served.until(lambda: served.service.space.is_low)
        assert ask(b"set q 0 0 1\r\n4\r\nset new 0 0 1\r\n4\r\nset q 0 0 1 noreply\r\n4\r\n") == NO_SPACE * 2
        assert ask(b"get q\r\nget q/open\r\nget q/close\r\nget q/peek\r\n").count(b"VALUE") == 3
        disk.free = 1 << 20
        served.until(lambda: not served.service.space.is_low)
        assert ask(b"set q 0 0 1\r\n5\r\n") == b"STORED\r\n"
        assert served.items("q") == [b"3", b"5"]


@pytest.mark.parametrize("keep_free", [1, 1 << 20], ids=["to the last byte", "with something left"])
def test_full_real_disk_loses_nothing(keep_free: int, tmp_path: Path) -> None:
    limits = ServerLimits(retry_seconds=0.01, answer_seconds=0.01, keep_free_bytes=keep_free)
    item = bytes(500)
    with small_disk(tmp_path / "small", 256 << 10) as directory:
        stored = 0
        with serving(directory / "queues", limits=limits) as served, Client(served) as client:
            refused = 0
            while refused < 3:
                answer = client.ask(b"set q 0 0 510\r\n%010d%b\r\n" % (stored, item))
                if answer == b"STORED\r\n":
                    stored += 1
                else:
                    assert answer == NO_SPACE
                    refused += 1
                    if keep_free == 1:
                        wait_until_usable(served)
            assert stored > 300
            assert [int(data[:10]) for data in served.items("q")] == list(range(stored))
            assert client.ask(b"get q/peek\r\n").startswith(b"VALUE q/peek 0 510\r\n0000000000")
            if keep_free > 1:
                for number in range(stored):
                    assert client.ask(b"get q\r\n").startswith(b"VALUE q 0 510\r\n%010d" % number)
                stored = 0
        with serving(directory / "queues", limits=limits) as served:
            assert [int(data[:10]) for data in served.items("q")] == list(range(stored))


def fill(client: Client, item: bytes) -> int:
    """Put items until there is no space; their number."""
    stored = 0
    while (answer := client.ask(b"set q 0 0 %d\r\n%b\r\n" % (len(item), item))) == b"STORED\r\n":
        stored += 1
    assert answer == NO_SPACE
    return stored


@pytest.mark.parametrize("drain", ["get", "flush", "open"])
@pytest.mark.parametrize("memory_bytes", [128 << 20, 1 << 18], ids=["one file", "rotated files"])
def test_nearly_full_disk_accepts_items_again_once_the_queue_is_empty(
    drain: str, memory_bytes: int, tmp_path: Path
) -> None:
    limits = ServerLimits(retry_seconds=0.01, answer_seconds=0.01)
    queues = Limits(max_memory_bytes=memory_bytes)
    with small_disk(tmp_path / "small", 2 << 20) as directory:
        with serving(directory / "queues", limits=limits, queues=queues) as served, Client(served) as client:
            stored = fill(client, bytes(5000))
            assert stored > 300
            assert served.service.space.is_low
            if drain == "flush":
                assert client.ask(b"flush q\r\n") == b"END\r\n"
            request = b"get q/open\r\nget q/close\r\n" if drain == "open" else b"get q\r\n"
            assert client.ask(request * stored).count(b"VALUE") == (0 if drain == "flush" else stored)
            served.until(lambda: not served.service.space.is_low)
            assert fill(client, bytes(5000)) >= stored - 8
        with serving(directory / "queues", limits=limits) as served:
            assert len(served.items("q")) >= stored - 8


def test_write_without_space_succeeds_once_the_queues_are_empty(tmp_path: Path) -> None:
    limits = ServerLimits(retry_seconds=0.01, keep_free_bytes=1)
    item = bytes(300_000)
    with small_disk(tmp_path / "small", 2 << 20) as directory:
        with serving(directory / "queues", limits=limits) as served, Client(served) as client:
            assert client.ask(b"set other 0 0 300000\r\n%b\r\nget other/open\r\n" % item).startswith(b"STORED")
            stored = fill(client, item)
            wait_until_usable(served)
            assert not served.service.space.is_low
            assert client.ask(b"get q\r\n" * stored).count(b"VALUE") == stored
            again = fill(client, item)  # nothing, unless the queue had failed earlier
            wait_until_usable(served)
            assert again + fill(client, item) == stored
            assert client.ask(b"get other/close\r\n") == b"END\r\n"
            more = fill(client, item)
            served.until(lambda: served.service.queues.by_key[b"other"].engine.journal_bytes < 100)
            wait_until_usable(served)
            assert more + fill(client, item) == 1
        with serving(directory / "queues", limits=limits) as served:
            assert served.state() == {"other": ([], 0), "q": ([item] * (stored + 1), 0)}


def test_reserved_space_is_not_used_for_puts_to_other_queues(tmp_path: Path) -> None:
    disk = FickleDisk()
    with serving(tmp_path, disk=disk) as served, Client(served) as client:
        assert client.ask(b"set q 0 0 1\r\n1\r\nset other 0 0 1\r\n1\r\n") == b"STORED\r\n" * 2
        disk.failing, disk.failing_file, disk.free = {"write": errno.ENOSPC}, "q", 1 << 20
        assert client.ask(b"set q 0 0 1\r\n2\r\n") == NO_SPACE
        assert client.ask(b"set other 0 0 1\r\n2\r\n") == NO_SPACE
        assert client.ask(b"get other\r\n") == b"VALUE other 0 1\r\n1\r\nEND\r\n"


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_space_reserve_that_does_not_fit_is_given_up(kind: str, tmp_path: Path) -> None:
    """Some file systems allocate space only when a file is synced."""
    disk: Any = FickleDisk()
    (tmp_path / ".logwright").mkdir()
    tasks: list[Callable[[], None]] = []
    space = Space(disk, tmp_path, 1 << 16, lambda: None, tasks.append)
    for is_full in (True, False):
        disk.failing = {kind: errno.ENOSPC} if is_full else {}
        space.check()
        tasks.pop()()
        assert (tmp_path / ".logwright" / ".server.reserve").exists() is not is_full
    space.check()
    assert tasks == []


@pytest.mark.parametrize("sync", [NONE, ALWAYS], ids=str)
@pytest.mark.parametrize("drain", ["get", "open", "flush", "delete"])
def test_items_can_be_removed_when_other_programs_fill_the_disk(drain: str, sync: Sync, tmp_path: Path) -> None:
    count = 9000  # more than a page, because each removed item takes a byte
    with (
        small_disk(tmp_path / "small", 4 << 20) as directory,
        serving(directory / "queues", limits=QUICK, sync=sync) as served,
        Client(served) as client,
    ):
        client.ask(b"".join(b"set q 0 0 5\r\n%05d\r\n" % number for number in range(count)))
        reserve = directory / "queues" / ".logwright" / ".server.reserve"
        served.until(lambda: reserve.exists() and reserve.stat().st_size == served.service.space.kept_bytes // 2)
        fill_up(directory / "other")
        request = {"open": b"get q/open\r\nget q/close\r\n", "get": b"get q\r\n"}.get(
            drain, b"%b q\r\n" % drain.encode()
        )
        taken, failures = [], 0
        while b"q" in served.service.queues.by_key and served.items("q"):
            answer = client.ask(request * (100 if request.startswith(b"get") else 1))
            taken += [line for line in answer.split(b"\r\n") if line.isdigit()]
            failures += b"SERVER_ERROR" in answer
            assert failures <= 1, answer
            served.until(lambda: not served.service.queues._changing)
        assert failures == (drain != "delete")  # needs only a name for an empty file
        assert reserve.exists() == (drain == "delete")
        if request.startswith(b"get"):
            assert sorted(set(taken)) == [b"%05d" % number for number in range(count)]
            assert len(taken) - count <= (
                100 if drain == "open" else 0
            )  # the items open when the disk was full were aborted
        (directory / "other").unlink()
        service = served.service
        served.until(lambda: reserve.exists() and not service.space.is_low and not service.suspended)
        assert client.ask(b"set q 0 0 1\r\n1\r\n") == b"STORED\r\n"
    assert not reserve.exists()


def fill_up(path: Path) -> None:
    """Use all free space of a disk."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1 << 16)):
            pass


def test_parent_and_children_fail_and_recover_together(tmp_path: Path) -> None:
    disk = FickleDisk()
    with serving(tmp_path, disk=disk, limits=QUICK) as served, Client(served) as client:
        assert client.ask(b"set q 0 0 1\r\n1\r\nget q+a\r\nget q+b\r\nset q 0 0 1\r\n2\r\n").endswith(b"STORED\r\n")
        disk.failing = {"write": errno.ENOSPC}
        assert client.ask(b"set q 0 0 1\r\n3\r\n") == NO_SPACE
        disk.failing = {}
        service = served.service
        served.until(lambda: sorted(service.queues.by_key) == [b"q", b"q+a", b"q+b"] and not service.suspended)
        assert served.state() == {"q": ([b"1", b"2"], 0), "q+a": ([b"2"], 0), "q+b": ([b"2"], 0)}
        assert client.ask(b"set q 0 0 1\r\n4\r\n") == b"STORED\r\n"
        assert served.state() == {"q": ([b"1", b"2", b"4"], 0), "q+a": ([b"2", b"4"], 0), "q+b": ([b"2", b"4"], 0)}


@pytest.mark.parametrize("is_stray", [False, True], ids=["served", "not served again yet"])
@pytest.mark.parametrize(("sync", "kind"), [(NONE, "write"), (ALWAYS, "write"), (ALWAYS, "sync")], ids=str)
def test_set_to_a_parent_is_stored_only_when_every_child_has_it(
    sync: Sync, kind: str, is_stray: bool, tmp_path: Path
) -> None:
    disk = FickleDisk()
    with serving(tmp_path, disk=disk, limits=QUICK, sync=sync) as served, Client(served) as client:
        assert client.ask(b"get q+a\r\nget q+b\r\nset q 0 0 1\r\n1\r\n").endswith(b"STORED\r\n")
        queues = served.service.queues
        if is_stray:
            served.call(lambda: queues._by_engine.pop(queues.by_key[b"q+a"].engine))
        assert client.ask(b"get nobody\r\nset q 0 0 1\r\n2\r\n") == b"END\r\nSTORED\r\n"
        disk.failing, disk.failing_file = {kind: errno.EIO}, "q+a"
        assert client.ask(b"get nobody\r\nset q 0 0 1\r\n3\r\n") == b"END\r\n" + FAILED
        disk.failing = {}
        served.until(lambda: sorted(queues.by_key) == [b"q", b"q+a", b"q+b"] and not queues._changing)
        state = served.state()
        if kind == "write":
            assert state["q+a"] == ([b"1", b"2"], 0)
        assert client.ask(b"set q 0 0 1\r\n4\r\n") == b"STORED\r\n"
        assert served.state() == {name: ([*items, b"4"], 0) for name, (items, _) in state.items()}


def test_one_queue_is_synced_in_the_loop_on_a_quick_disk_and_several_by_threads(
    sync_place: str, tmp_path: Path
) -> None:
    disk = FickleDisk()
    with serving(tmp_path, disk=disk, sync=ALWAYS) as served, Client(served) as client:
        client.ask(b"set q 0 0 1\r\n1\r\nset r 0 0 1\r\n1\r\n")
        disk.syncs.clear()
        assert client.ask(b"get nobody\r\nset q 0 0 1\r\n2\r\nset q 0 0 1\r\n3\r\n") == b"END\r\nSTORED\r\nSTORED\r\n"
        assert disk.syncs == [("q", sync_place == "by threads")]
        disk.syncs.clear()
        assert client.ask(b"get q r\r\n").count(b"VALUE") == 2
        assert sorted(disk.syncs) == [("q", True), ("r", True)]


def test_failed_background_sync_reopens_the_queue(tmp_path: Path) -> None:
    disk = FickleDisk()
    with serving(tmp_path, disk=disk, limits=QUICK, sync=interval(5)) as served, Client(served) as client:
        assert client.ask(b"set q 0 0 1\r\n1\r\n") == b"STORED\r\n"
        before = served.call(lambda: served.service.queues.by_key[b"q"])
        served.until(lambda: (tmp_path / "q").stat().st_size > 0)
        disk.failing_after_write = {"sync": errno.EIO}  # not at once: the first item may not be synced yet
        client.ask(b"set q 0 0 1\r\n2\r\n")
        served.until(lambda: before.phase is Phase.FAILED)
        disk.failing = {}
        wait_until_usable(served)
        assert served.items("q") == [b"1", b"2"]
