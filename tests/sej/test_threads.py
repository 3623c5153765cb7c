"""Many threads on one writer: every message gets its own offset and is written once, with kernel or codec."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.errors import LogwrightError, Poisoned, StorageFailed
from logwright.sej.bytes import codec, kernel
from logwright.sej.files.reader import Reader
from logwright.sej.files.writer import Writer
from tests.support.threads import DEADLINE_SECONDS

TWINS = list(dict.fromkeys([codec.AppendBuffer, kernel.AppendBuffer]))
THREADS = 8
MESSAGES = 250


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    """Let threads interrupt each other as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def on_threads(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__module__)
def test_buffer_numbers_every_message_once_while_it_is_written(twin: type[codec.AppendBuffer]) -> None:
    buffer = twin(0, 0, 700, 1 << 30)
    taken: list[bytes] = []
    taking = threading.Lock()

    def work(thread: int) -> None:
        for number in range(MESSAGES):
            buffer.append(b"%d %d" % (thread, number), timestamp=None)
            if number % 10 == thread:
                with taking:
                    data, used, *_ = buffer.take()
                    taken.append(bytes(data[:used]))

    on_threads(work)
    data, used, *_ = buffer.take()
    taken.append(bytes(data[:used]))
    whole = b"".join(taken)
    stop, count, ending, *_ = codec.walk(whole, 0, len(whole), 0)
    assert (stop, count, ending) == (len(whole), THREADS * MESSAGES, codec.CLEAN)
    values = [message.value.split() for message in codec.messages(whole, 0, stop, count)]
    for thread in range(THREADS):
        assert [int(n) for t, n in values if int(t) == thread] == list(range(MESSAGES)), "each thread's in its order"


@pytest.mark.parametrize("sync", ["none", "always", "interval(1)"])
def test_every_message_of_every_thread_gets_its_own_offset(tmp_path: Path, sync: str) -> None:
    offsets: list[dict[int, bytes]] = [{} for _ in range(THREADS)]

    def work(thread: int) -> None:
        for number in range(MESSAGES):
            value = b"%d %d" % (thread, number)
            offsets[thread][writer.append(value)] = value
            if number % 50 == thread:
                writer.flush()

    with Writer(tmp_path, sync=sync, segment_size=3000, buffer_bytes=500) as writer:
        on_threads(work)
    written = {message.offset: message.value for message in Reader(tmp_path)}
    assert list(written) == list(range(THREADS * MESSAGES))
    assert {offset: value for part in offsets for offset, value in part.items()} == written


class FailingOnce:
    """A disk on which the first sync of a segment waits for `opened` and fails; every later one would succeed."""

    def __init__(self) -> None:
        self.arrived, self.opened, self.written = threading.Event(), threading.Event(), threading.Event()
        self.syncs = 0

    def open(self, path: Path, mode: Any) -> Any:
        file = REAL_DISK.open(path, mode)
        return FailingOnceFile(self, file) if path.suffix == ".jnl" else file

    def __getattr__(self, name: str) -> Any:
        return getattr(REAL_DISK, name)


class FailingOnceFile:
    def __init__(self, disk: FailingOnce, inner: Any) -> None:
        self._disk = disk
        self._inner = inner

    def write_at(self, position: int, data: Any) -> int:
        count: int = self._inner.write_at(position, data)
        if self._disk.arrived.is_set():
            self._disk.written.set()
        return count

    def sync(self) -> None:
        self._disk.syncs += 1
        if self._disk.syncs == 1:
            self._disk.arrived.set()
            assert self._disk.opened.wait(DEADLINE_SECONDS)
            raise StorageFailed("sync", self._inner.path, OSError(errno.EIO, "failed once"))
        self._inner.sync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_failed_sync_is_not_retried_by_another_thread(tmp_path: Path) -> None:
    disk = FailingOnce()
    outcomes: dict[str, BaseException | None] = {}

    def append_and_sync(name: str) -> None:
        try:
            writer.append(name.encode())
            writer.sync()
            outcomes[name] = None
        except LogwrightError as error:
            outcomes[name] = error

    writer = Writer(tmp_path, disk=disk)
    threads = [threading.Thread(target=append_and_sync, args=(name,)) for name in ("first", "second")]
    threads[0].start()
    assert disk.arrived.wait(DEADLINE_SECONDS)
    threads[1].start()
    assert disk.written.wait(DEADLINE_SECONDS)
    disk.opened.set()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    writer.close()
    assert {name: type(outcome) for name, outcome in outcomes.items()} == {"first": StorageFailed, "second": Poisoned}
    assert disk.syncs == 1
