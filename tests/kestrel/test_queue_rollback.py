"""A write that fails half-way leaves nothing of the failed call: no item is lost, and none is duplicated."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from logwright.core.io.disk import Buffer
from logwright.errors import LogwrightError
from logwright.kestrel.model.memory import GATHER_BYTES
from logwright.kestrel.model.queue import Queue
from tests.support.faulty_disk import NEEDS_SPACE, FaultyDisk, failing_calls
from tests.support.simulated_disk import SimulatedDisk, SimulatedFile

HOME = Path("/queues")
ITEMS = [b"%d" % number for number in range(20)]
LARGE = bytes(GATHER_BYTES // 2)

Call = Callable[[Queue], object]
CALLS: dict[str, tuple[Call, list[bytes]]] = {
    "get_many": (lambda queue: queue.get_many(15), ITEMS[15:]),
    "reserve_many": (lambda queue: queue.confirm(*queue.reserve_many(15)), ITEMS[15:]),
    "put_many": (lambda queue: queue.put_many([b"a", b"b", b"c"]), [*ITEMS, b"a", b"b", b"c"]),
    "put_many in several writes": (lambda queue: queue.put_many([LARGE] * 5), [*ITEMS, *[LARGE] * 5]),
    "flush": (lambda queue: queue.clear(), []),
    "put": (lambda queue: queue.put(b"a"), [*ITEMS, b"a"]),
}
ALL_CALLS = pytest.mark.parametrize(("call", "done"), CALLS.values(), ids=CALLS)


def prepared() -> SimulatedDisk:
    """A disk with a queue on it."""
    disk = SimulatedDisk()
    with Queue(HOME, "q", disk=disk) as queue:
        queue.put_many(ITEMS)
    return disk


def disks(kinds: Iterable[str]) -> Iterator[FaultyDisk[SimulatedDisk]]:
    """A queue on a disk whose k-th call of some kinds finds no space; a write fails when half of it is done."""
    return failing_calls(prepared, error=errno.ENOSPC, partial=True, only=kinds, format="kestrel")


@ALL_CALLS
@pytest.mark.parametrize("sync", ["none", "always"])
def test_call_that_fails_without_space_changes_nothing(sync: str, call: Call, done: list[bytes]) -> None:
    failures = 0
    for disk in disks({"write"}):
        try:
            with Queue(HOME, "q", sync=sync, background=False, disk=disk) as queue:
                call(queue)
        except LogwrightError:
            failures += 1
        expected = ITEMS if disk.failures else done
        with Queue(HOME, "q", disk=disk.inner) as queue:
            assert list(queue) == expected, disk.story
    assert failures >= 1


@pytest.mark.parametrize("name", ["get_many", "reserve_many", "put_many"])
def test_call_interrupted_during_a_write_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_at = SimulatedFile.write_at

    def interrupted(file: SimulatedFile, position: int, data: Buffer) -> int:
        monkeypatch.undo()
        write_at(file, position, memoryview(data)[: len(data) // 2])
        raise KeyboardInterrupt

    disk = prepared()
    with Queue(HOME, "q", background=False, disk=disk) as queue:
        monkeypatch.setattr(SimulatedFile, "write_at", interrupted)
        with pytest.raises(KeyboardInterrupt):
            CALLS[name][0](queue)
    with Queue(HOME, "q", disk=disk) as queue:
        assert list(queue) == ITEMS


@pytest.mark.parametrize("sync", ["none", "always"])
def test_failed_delete_without_space_keeps_all_items(sync: str) -> None:
    failures = 0
    for disk in disks(NEEDS_SPACE):
        try:
            Queue(HOME, "q", sync=sync, background=False, disk=disk).delete()
        except LogwrightError:
            failures += 1
            with Queue(HOME, "q", disk=disk.inner) as again:
                assert list(again) == ITEMS, disk.story
        else:
            assert not disk.exists(HOME / "q")
    assert failures >= 2
