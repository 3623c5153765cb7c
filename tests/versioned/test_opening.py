"""Opening a store for writing: refusals, cut and kept bytes, the size of the buffer, and a full disk."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from logwright.errors import StorageFailed, WrongUse
from logwright.versioned import Reader, VersionedKVStore
from logwright.versioned.files import buffer as buffer_module
from logwright.versioned.files import repair
from logwright.versioned.files.buffer import LEAST_BYTES, Mark, mark_at
from tests.support.faulty_disk import FaultyDisk
from tests.support.mapping_disk import MappingDisk
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file, write_file
from tests.versioned.stores import HOME, Clock, content_of, journal

ACTIVE = HOME / "cars.jrn"
ENTRIES: list[tuple[int, str, Any]] = [(1001, "a", 1), (1002, "b", "two")]
CONTENT = {"a": (1, 1001), "b": ("two", 1002)}
END = len(journal(ENTRIES))


@pytest.fixture(autouse=True)
def _no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")


def laid_out(data: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    disk.make_directory(HOME / ".logwright")
    write_file(disk, ACTIVE, data)
    disk.settle()
    return disk


def opened(disk: Any, capacity: int = LEAST_BYTES, **options: Any) -> VersionedKVStore:
    return VersionedKVStore(HOME, "cars", capacity, disk=disk, background=False, clock=Clock(), **options)


def ending_at(position: int, size: int) -> bytes:
    """A journal of one entry that ends at a position, in a file of a size."""
    letters = position - len(journal([(1001, "a", "")]))
    while len(data := journal([(1001, "a", "x" * letters)])) > position:
        letters -= 1
    assert len(data) == position
    return data.ljust(size, b"\0")


# --- a repair that was interrupted ------------------------------------------------------------------------------------


def test_half_repaired_store_is_not_opened_and_others_are() -> None:
    disk = laid_out(journal(ENTRIES, position=END + 50))
    done = repair.apply(ACTIVE, repair.plan(ACTIVE, disk=disk), disk=disk)
    assert done is not None
    done.state, done.done = "applying", 0
    done.save(disk)
    with pytest.raises(WrongUse, match="a repair of this store was interrupted; `logwright repair` finishes it"):
        opened(disk)
    with VersionedKVStore(HOME, "bikes", disk=disk, background=False) as other:
        assert len(other) == 0


def test_repair_of_another_format_in_the_directory_is_ignored() -> None:
    disk = laid_out(journal(ENTRIES, position=END + 50))
    done = repair.apply(ACTIVE, repair.plan(ACTIVE, disk=disk), disk=disk)
    assert done is not None
    done.state, done.done = "applying", 0
    done.save(disk)
    log = read_file(disk, done.log)
    disk.remove(done.log)
    write_file(disk, done.log, log.replace(b'"cars.jrn"', b'"mail"'))
    assert log != read_file(disk, done.log)
    with opened(disk) as store:
        assert content_of(store) == CONTENT


# --- what follows the entries -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("at", [END, 500, 1023])
def test_foreign_bytes_after_the_entries_are_kept_and_cleared(at: int, mapped: bool) -> None:
    data = bytearray(journal(ENTRIES, size=1024))
    data[at] = 7
    inner = laid_out(bytes(data))
    with opened(MappingDisk(inner) if mapped else inner) as store:
        assert content_of(store) == CONTENT
        assert store.recovered is None
        assert store.kept is not None
        assert read_file(inner, store.kept) == data[END : at + 1]
    assert read_file(inner, ACTIVE) == journal(ENTRIES, size=1008) + Mark(END, is_closed=True).pack(1008)


@pytest.mark.parametrize("mapped", [True, False])
def test_bytes_after_a_long_range_of_zeros_are_cleared_unless_the_file_is_mapped(
    mapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a mapping, zeros are written before entries reach that place."""
    monkeypatch.setattr(buffer_module, "AHEAD_BYTES", 512)
    data = bytearray(journal(ENTRIES, size=4096))
    data[3000] = 7
    inner = laid_out(bytes(data))
    with opened(MappingDisk(inner) if mapped else inner) as store:
        assert (store.kept is None) == mapped
        assert read_file(inner, ACTIVE)[3000] == (7 if mapped else 0)


def test_torn_tail_of_another_program_is_logged_and_accounted_for_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="logwright")
    data = journal([*ENTRIES, (1003, "c", "x" * 100)])
    disk = laid_out(data[:-20] + bytes(20))
    with opened(disk) as store:
        assert content_of(store) == CONTENT
        assert store.recovered is not None
        assert (store.recovered.start, store.recovered.end) == (END, len(data))
        cut, accounted = caplog.messages
        assert cut == f"{store.recovered}: cut off a torn tail, kept in {store.kept}"
        assert accounted.endswith("this is in the account of losses now")
    (loss,) = Reader(ACTIVE, disk=disk).losses()
    assert (loss.position, loss.bytes, loss.at_least, loss.fields["from"]) == (END, len(data) - END, 0, 1002)
    caplog.clear()
    opened(disk).close()
    assert caplog.messages == []


@pytest.mark.parametrize("mapped", [True, False])
def test_writes_of_a_killed_process_are_durable_before_the_mark_is_set(mapped: bool) -> None:
    values = ["x" * 1500, "y" * 1500]
    before = laid_out(journal(ENTRIES, size=8192))
    disk: Any = MappingDisk(before) if mapped else before
    store = opened(disk, 8192)
    for number, value in enumerate(values):
        store.insert(f"value {number}", value)
    *_, killed = before.process_kills(format="")
    store.close()
    with opened(killed, 8192) as store:
        wanted = content_of(store)
        assert [wanted[f"value {number}"][0] for number in range(2)] == values
    for seed in range(4):
        for state in killed.crash_states(most=40, kinds=("subset", "torn"), seed=seed, format="versioned"):
            with opened(state, 8192) as store:
                found = content_of(store)
            assert found == {key: wanted[key] for key in list(wanted)[: len(found)]}, state.story


def test_empty_file_is_a_new_store_even_if_mapped(tmp_path: Path) -> None:
    (tmp_path / "cars.jrn").write_bytes(b"")
    with VersionedKVStore(tmp_path, "cars", LEAST_BYTES, background=False) as store:
        assert (len(store), store.capacity, store.kept) == (0, LEAST_BYTES, None)


# --- how large the buffer is ------------------------------------------------------------------------------------------


def test_state_beyond_the_limit_gets_a_buffer_of_twice_its_size() -> None:
    with opened(laid_out(journal([(1001, "a", "x" * 5000)])), max_capacity=4096) as store:
        assert store.capacity == 2 * store.position


def test_sufficient_buffer_is_unchanged() -> None:
    disk = laid_out(journal(ENTRIES, size=1024))
    with opened(disk, 1024) as store:
        assert store.capacity == 1024
        assert [str(operation) for operation in disk.operations if "cars.jrn" in str(operation)] == [
            "sync /stores/cars.jrn",
            f"write 16 bytes at {mark_at(1024)} of /stores/cars.jrn",
            "sync /stores/cars.jrn",
        ]


def test_zeros_are_written_ahead_of_the_first_change(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[int, int]] = []
    monkeypatch.setattr(buffer_module, "write_zeros", lambda file, start, end: written.append((start, end)))
    with opened(MappingDisk(laid_out(journal(ENTRIES, size=4096)))) as store:
        assert written == [(END, mark_at(4096))]
        store.insert("c", 3)
        assert written == [(END, mark_at(4096))]


# --- a full disk ------------------------------------------------------------------------------------------------------


def full(data: bytes) -> SimulatedDisk:
    """A disk without any more space."""
    disk = laid_out(data)
    disk.capacity_bytes = len(data)
    return disk


@pytest.mark.parametrize(
    "data",
    [ending_at(LEAST_BYTES - 20, LEAST_BYTES), ending_at(mark_at(200), 200)],
    ids=["the smallest buffer", "entries that end at the mark"],
)
def test_buffer_does_not_grow_on_a_full_disk(data: bytes) -> None:
    disk = full(data)
    with opened(disk, 1024) as store:
        assert (store.capacity, list(content_of(store))) == (len(data), ["a"])
    disk.capacity_bytes = None
    with opened(disk, 1024) as store:
        assert (store.capacity, list(content_of(store))) == (1024, ["a"])


@pytest.mark.parametrize(
    "data",
    [ending_at(LEAST_BYTES - 40, LEAST_BYTES - 1), ending_at(mark_at(200) + 1, 200), ending_at(200, 200)],
    ids=["smaller than any buffer", "entries where the mark would be", "no space after the entries"],
)
def test_full_disk_refuses_a_journal_without_space_for_a_mark(data: bytes) -> None:
    disk = full(data)
    with pytest.raises(StorageFailed, match="No space left"):
        opened(disk, 1024)
    assert read_file(disk, ACTIVE) == data
    assert disk.open_files == 0


def test_other_failures_to_grow_a_buffer_prevent_opening() -> None:
    inner = laid_out(journal(ENTRIES, size=512))
    disk = FaultyDisk(inner, 1, errno.EIO, only=["write"])
    with pytest.raises(StorageFailed, match="Input/output error"):
        opened(disk, 1024)
    assert inner.open_files == 0
    with opened(inner, 1024) as store:
        assert content_of(store) == CONTENT
