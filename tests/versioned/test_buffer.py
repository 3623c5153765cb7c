"""The durable parts of a store's files after a step of opening, growing or cleaning."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from logwright.errors import StorageFailed
from logwright.versioned.files import buffer as buffer_module
from logwright.versioned.files.buffer import (
    AHEAD_BYTES,
    LEAST_BYTES,
    MARK,
    MARK_MAGIC,
    SECTOR_BYTES,
    Buffer,
    Mark,
    has_zero_sector,
    is_missing_sector,
    mark_at,
    read_mark,
)
from logwright.versioned.model.retention import Retention, remove_archives
from logwright.versioned.model.store import VersionedKVStore
from tests.support.mapping_disk import MappingDisk, MappingFile
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file, write_file
from tests.versioned.stores import HOME, Clock, content_of, journal

ACTIVE, OLD = HOME / "cars.jrn", HOME / "cars.jrn.old"
ENTRIES: list[tuple[int, str, Any]] = [(1001, "a", 1), (1002, "b", "x" * 3000)]


@pytest.fixture(autouse=True)
def _no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")


def disk_with(**files: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    for kind, data in files.items():
        write_file(disk, {"active": ACTIVE, "old": OLD}[kind], data)
    disk.settle()
    return disk


def opened(disk: Any, capacity: int = 8192) -> VersionedKVStore:
    return VersionedKVStore(HOME, "cars", capacity, disk=disk, background=False, clock=Clock())


@pytest.mark.parametrize(
    "files",
    [{}, {"active": journal(ENTRIES, size=8192)}, {"active": journal(ENTRIES)}, {"old": journal(ENTRIES, size=8192)}],
    ids=["a new store", "a whole journal", "a journal that has to grow", "an old journal"],
)
def test_opened_store_has_nothing_unsynced(files: dict[str, bytes]) -> None:
    disk = disk_with(**files)
    with opened(disk) as store:
        assert [change for change in disk.unsynced() if ".logwright" not in change] == []
        assert len(store) == (2 if files else 0)


def test_tail_is_cut_before_it_is_cleared() -> None:
    """Without a mark a sector of zeros in a string is part of the string."""
    data = journal([(1001, "a", 1), (1002, "b", "x" * 1100)], size=2048)
    disk = disk_with(active=data[:700] + b"\xff" * 4 + data[704:])
    opened(disk, 2048).close()
    for seed in range(12):
        for state in disk.crash_states(most=60, kinds=("torn",), seed=seed, format="versioned"):
            with opened(state, 2048) as store:
                assert content_of(store) == {"a": (1, 1001)}


def test_grown_buffer_is_durable_with_its_mark() -> None:
    disk = disk_with(active=journal(ENTRIES, size=4096))
    buffer = Buffer.open(disk, ACTIVE)
    buffer.set_mark(3500)
    buffer.sync()
    buffer.grow(8192, 3600)
    assert disk.unsynced() == []
    assert (buffer.size, read_mark(buffer.memory, 8192)) == (8192, Mark(3600))
    assert read_file(disk, ACTIVE)[mark_at(4096) : 4096] == bytes(16), "the old mark is gone"
    buffer.close()


@pytest.mark.parametrize("mapped", [True, False])
def test_grown_buffer_has_only_zeros_after_its_entries(mapped: bool) -> None:
    inner = disk_with(active=journal(ENTRIES, size=4096))
    disk: Any = MappingDisk(inner) if mapped else inner
    buffer = Buffer.open(disk, ACTIVE)
    buffer.set_mark(3500)
    buffer.grow(8192, mark_at(4096))
    assert not any(buffer.memory[mark_at(4096) : mark_at(8192)]), "entries that end at the old mark take its place"
    assert not any(read_file(inner, ACTIVE)[mark_at(4096) : mark_at(8192)])
    assert buffer.zeroed == (mark_at(4096) if mapped else 8192), "zeros are not written ahead in what was reserved"
    buffer.close()


def test_power_cut_while_a_buffer_grows_leaves_every_entry() -> None:
    disk = disk_with(active=journal(ENTRIES, size=4096))
    buffer = Buffer.open(disk, ACTIVE)
    buffer.set_mark(3500)
    buffer.sync()
    buffer.grow(8192, 3500)
    buffer.close()
    for state in disk.crash_states(most=60, format="versioned"):
        with opened(state) as store:
            assert content_of(store) == {"a": (1, 1001), "b": ("x" * 3000, 1002)}
            assert store.recovered is None


def test_buffer_that_could_not_grow_keeps_its_old_length_durably() -> None:
    disk = disk_with(active=journal(ENTRIES, size=4096))
    disk.capacity_bytes = 6000
    buffer = Buffer.open(disk, ACTIVE)
    with pytest.raises(StorageFailed, match="No space left"):
        buffer.grow(8192, 3500)
    assert disk.file_size(ACTIVE) == buffer.size == 4096
    assert disk.unsynced() == []
    buffer.close()


def test_new_buffer_without_space_is_closed_and_removed() -> None:
    disk = disk_with()
    disk.capacity_bytes = 6000
    with pytest.raises(StorageFailed, match="No space left"):
        Buffer.create(disk, disk.open(HOME / "new", "create"), 8192, 100)
    assert disk.list_directory(HOME) == []
    assert disk.open_files == 0


@pytest.mark.parametrize("has_garbage", [False, True])
def test_zeros_over_old_bytes_are_durable_before_entries_follow(has_garbage: bool) -> None:
    size = 2 * AHEAD_BYTES
    data = bytearray(journal(ENTRIES, size=size))
    if has_garbage:
        data[AHEAD_BYTES // 2] = 7
    inner = disk_with(active=bytes(data))
    disk: Any = MappingDisk(inner)
    buffer = Buffer.open(disk, ACTIVE)
    buffer.zero_ahead(4096)
    assert inner.unsynced() == ([] if has_garbage else [f"contents of {ACTIVE}"])
    assert buffer.zeroed == 4096 + AHEAD_BYTES
    assert not any(buffer.memory[4096 : buffer.zeroed])
    buffer.close()


def test_zeros_end_at_the_mark() -> None:
    disk: Any = MappingDisk(disk_with(active=journal(ENTRIES, size=AHEAD_BYTES)))
    buffer = Buffer.open(disk, ACTIVE)
    buffer.set_mark(4096)
    buffer.zero_ahead(4096)
    assert read_mark(buffer.memory, AHEAD_BYTES) == Mark(4096)
    assert buffer.zeroed == AHEAD_BYTES
    buffer.close()


def test_space_of_a_buffer_with_holes_is_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    allocated: list[int] = []
    monkeypatch.setattr(MappingFile, "allocate", lambda file, size: allocated.append(size))
    disk: Any = MappingDisk(disk_with(active=journal(ENTRIES, size=8192)))
    opened(disk).close()
    assert allocated == [8192]


@pytest.mark.parametrize("mapped", [True, False])
def test_closed_buffer_holds_no_memory(mapped: bool) -> None:
    inner = disk_with(active=journal(ENTRIES, size=8192))
    buffer = Buffer.open(MappingDisk(inner) if mapped else inner, ACTIVE)
    assert len(buffer.memory) == 8192
    buffer.close()
    assert len(buffer.memory) == 0


def test_archives_are_removed_oldest_first_despite_reordered_name_changes() -> None:
    disk = disk_with()
    names = [f"cars.jrn.t{timestamp}.zz" for timestamp in (1001, 1002, 1003, 1004)]
    for name in names:
        write_file(disk, HOME / name, b"archive")
    disk.settle()
    assert remove_archives(disk, HOME, "cars", Retention(max_archives=1), 10**9) == [1001, 1002, 1003]
    disk.mark("removed")
    for state in disk.crash_states(reorder_names=True, format="versioned"):
        left = state.list_directory(HOME)
        assert left == names[-len(left) :]
        assert "removed" not in state.marks or len(left) == 1


def test_smallest_buffer_has_space_for_a_mark() -> None:
    memory = bytearray(LEAST_BYTES)
    MARK.pack_into(memory, mark_at(LEAST_BYTES), MARK_MAGIC, 77)
    assert read_mark(memory, LEAST_BYTES) == Mark(77)
    assert read_mark(memory[:-1], LEAST_BYTES - 1) is None


@pytest.mark.parametrize("found", [has_zero_sector, is_missing_sector])
def test_zero_sector_is_found_only_if_it_is_within_the_range(found: Callable[..., bool]) -> None:
    memory = b"x" * SECTOR_BYTES + bytes(SECTOR_BYTES)
    assert found(memory, 0, 2 * SECTOR_BYTES)
    assert not found(memory, 0, 2 * SECTOR_BYTES - 1)
    assert not found(memory, SECTOR_BYTES + 1, 2 * SECTOR_BYTES)
    assert found(memory[3:], 0, 2 * SECTOR_BYTES - 3, base=3)


@pytest.mark.parametrize(
    ("before", "after", "is_missing"),
    [(0, 0, True), (7, 0, True), (0, 7, True), (7, 7, False), (SECTOR_BYTES, 7, True), (600, 600, False)],
)
def test_zeros_of_a_missing_sector_begin_or_end_with_it(before: int, after: int, is_missing: bool) -> None:
    memory = bytearray(b"x" * 6 * SECTOR_BYTES)
    memory[2 * SECTOR_BYTES - before : 3 * SECTOR_BYTES + after] = bytes(SECTOR_BYTES + before + after)
    assert is_missing_sector(memory, 5, len(memory) - 5) == is_missing
    assert is_missing_sector(memory[3:], 2, len(memory) - 8, base=3) == is_missing


def test_zeros_are_written_ahead_in_a_new_file_that_can_be_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[int, int]] = []
    monkeypatch.setattr(buffer_module, "write_zeros", lambda file, start, end: written.append((start, end)))
    disk = MappingDisk(SimulatedDisk())
    disk.make_directory(HOME)
    Buffer.create(disk, disk.open(HOME / "new", "create"), 3 * AHEAD_BYTES, 100).close()
    assert written == [(100, 100 + AHEAD_BYTES)]
    written.clear()
    Buffer.create(disk, disk.open(HOME / "small", "create"), 4096, 100).close()
    assert written == [(100, 4096)]
    written.clear()
    Buffer.create(disk.inner, disk.inner.open(HOME / "other", "create"), 4096, 100).close()
    assert written == [(0, 4096)], "where a file cannot be mapped all of it is written at once"


@pytest.mark.parametrize("mapped", [True, False])
def test_entry_with_a_sector_of_zeros_is_synced_before_the_position_includes_it(mapped: bool) -> None:
    inner = SimulatedDisk()
    disk = MappingDisk(inner) if mapped else inner
    disk.make_directory(HOME)
    buffer = Buffer.create(disk, disk.open(HOME / "new", "create"), 8192, 100)
    buffer.sync()
    buffer.append(100, b"x" + bytes(1500) + b"x", has_zeros=True)
    assert read_mark(buffer.memory, buffer.size) == Mark(1602)
    buffer.append(1602, b"plain", has_zeros=False)
    assert read_mark(buffer.memory, buffer.size) == Mark(1602)
    assert bytes(buffer.memory[8:16]) == (1607).to_bytes(8, "little")
    buffer.close()


class Recorded:
    """The calls of a file that change it, and the limit on the bytes of each write."""

    def __init__(self, buffer: Buffer, monkeypatch: pytest.MonkeyPatch, most: int = 1 << 20) -> None:
        self.calls: list[str] = []
        write_at, sync = buffer.file.write_at, buffer.file.sync

        def recorded_write(position: int, data: Any) -> int:
            self.calls.append(f"write {min(most, len(data))} at {position}")
            return write_at(position, bytes(data[:most]))

        def recorded_sync() -> None:
            self.calls.append("sync")
            sync()

        monkeypatch.setattr(buffer.file, "write_at", recorded_write)
        monkeypatch.setattr(buffer.file, "sync", recorded_sync)


def mapped_buffer() -> Buffer:
    disk = MappingDisk(SimulatedDisk())
    disk.make_directory(HOME)
    return Buffer.create(disk, disk.open(HOME / "new", "create"), 8192, 100)


def test_entry_is_written_before_the_position_and_with_zeros_synced_and_marked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    buffer = mapped_buffer()
    recorded = Recorded(buffer, monkeypatch)
    buffer.append(100, b"plain", has_zeros=False)
    assert recorded.calls == ["write 5 at 100", "write 8 at 8"]
    recorded.calls.clear()
    buffer.append(105, bytes(600), has_zeros=True)
    assert recorded.calls == ["write 600 at 105", "sync", f"write 16 at {mark_at(8192)}", "sync", "write 8 at 8"]
    buffer.close()


def test_short_writes_are_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = mapped_buffer()
    recorded = Recorded(buffer, monkeypatch, most=6)
    assert buffer.append(100, b"an entry", has_zeros=False) == 108
    assert bytes(buffer.memory[100:109]) == b"an entry\0"
    assert bytes(buffer.memory[8:16]) == (108).to_bytes(8, "little")
    entry, position = ["write 6 at 100", "write 2 at 106"], ["write 6 at 8", "write 6 at 8", "write 2 at 14"]
    assert recorded.calls == entry + position
    buffer.close()
