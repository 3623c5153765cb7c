"""Databases whose table is mapped: power cuts and killed processes, and changes in memory until a checkpoint."""

from __future__ import annotations

import errno
import itertools
import logging
import mmap
import random
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK, RealFile
from logwright.errors import StorageFailed
from logwright.yeltsin.files import area
from logwright.yeltsin.files.area import HeldArea, joined
from logwright.yeltsin.files.writer import TransactionJournal
from logwright.yeltsin.model import database
from logwright.yeltsin.model.database import Database
from logwright.yeltsin.model.table import Table
from tests.support.counting_disk import CountingDisk
from tests.support.mapping_disk import MappingDisk
from tests.support.simulated_disk import SimulatedDisk
from tests.yeltsin.crashed import check, fresh
from tests.yeltsin.databases import Story
from tests.yeltsin.tables import page_at
from tests.yeltsin.test_database_crash import GROWING, MODIFYING

STORIES = [
    Story("modifying", MODIFYING),
    Story("modifying, checkpoints", MODIFYING, 4000),
    Story("growing, checkpoints", GROWING, 3000),
    Story("growing, one checkpoint", GROWING, 1 << 30),
]
IDS = [story.name for story in STORIES]


@pytest.fixture(autouse=True)
def _small_and_silent(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")
    monkeypatch.setattr(database, "AHEAD_BYTES", 3000)


def crashed(story: Story) -> SimulatedDisk:
    inner = fresh()
    disk: Any = MappingDisk(inner)
    story.run(disk, disk.mark, "always")
    assert disk.stored_sectors == 0  # synced changes are written by calls, and buffered ones are private
    return inner


@pytest.mark.parametrize("story", STORIES, ids=IDS)
def test_power_cut_leaves_all_of_a_transaction_or_none_in_a_mapped_table(story: Story) -> None:
    for state in crashed(story).crash_states(most=3, format="yeltsin"):
        check(story, state, continues=False)


@pytest.mark.parametrize("story", STORIES, ids=IDS)
def test_killed_process_loses_no_buffered_changes(story: Story) -> None:
    for state in itertools.islice(crashed(story).process_kills(format="yeltsin"), 0, None, 3):
        check(story, state)


@pytest.mark.parametrize("most_copied_bytes", [area._MOST_COPIED_BYTES, 0])
def test_buffered_changes_are_readable_and_written_at_a_checkpoint(
    most_copied_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(area, "_MOST_COPIED_BYTES", most_copied_bytes)
    chance, first = random.Random(3), page_at(0)
    model, in_file = bytearray(1000), bytes(1000)
    with Database(tmp_path / "t.ydb", tmp_path / "t.jrnl", checkpoint_bytes=1 << 30) as db:
        for number in range(60):
            with db.transaction() as tx:
                for _ in range(chance.choice((1, 1, 3))):
                    data = chance.randbytes(chance.randrange(1, 50))
                    offset = chance.randrange(1000 - len(data))
                    tx.modify(first, offset, data)
                    model[offset : offset + len(data)] = data
                if number % 20 == 7:
                    tx.modify(tx.allocate(), 0, b"new")  # the mapping grows, with the changes in it
            if number % 15 == 14:
                db.checkpoint()
                in_file = bytes(model)
            assert db.read(first, 0, 1000) == model
            with Table(tmp_path / "t.ydb", read_only=True) as table:
                assert table.read(first, 0, 1000) == in_file
        pages = db.pages()
    with Table(tmp_path / "t.ydb", read_only=True) as table:
        assert table.read(first, 0, 1000) == model
        assert [table.read(page, 0, 4) for page in pages[1:]] == [b"new\0"] * 3


def test_buffered_changes_survive_when_the_file_cannot_grow_in_place(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(5000))
    area = HeldArea(REAL_DISK.open(path, "update"))
    area.store(100, b"waits")
    with memoryview(area.memory):  # a view of the memory prevents it from growing
        area.add_zeros(9000)
    area.store(8998, b"and grows")
    assert (area.load(99, 7), area.load(8996, 99)) == (b"\0waits\0", b"\0\0and grows")
    assert path.read_bytes() == bytes(9007)
    area.release()
    assert path.read_bytes() == bytes(100) + b"waits" + bytes(8893) + b"and grows"
    assert not area.holds
    area.close()


class _Unmappable:
    """A disk that has no memory for a private mapping."""

    def __getattr__(self, name: str) -> Any:
        return getattr(REAL_DISK, name)

    def open(self, path: Path, mode: Any) -> Any:
        class File(RealFile):
            def map(self, size: int, *, private: bool = False) -> mmap.mmap:
                if private:
                    raise StorageFailed("map", self.path, OSError(errno.ENOMEM, "no memory"))
                return super().map(size)

        file = REAL_DISK.open(path, mode)
        descriptor, file.descriptor = file.descriptor, -1
        return File(path, descriptor)


def test_changes_are_buffered_without_memory_for_a_private_mapping(tmp_path: Path) -> None:
    disk: Any = _Unmappable()
    with Database(tmp_path / "t.ydb", tmp_path / "t.jrnl", checkpoint_bytes=1 << 20, disk=disk) as db:
        db.modify(page_at(0), 0, b"waits")
        with Table(tmp_path / "t.ydb", read_only=True) as table:
            assert (db.read(page_at(0), 0, 5), table.read(page_at(0), 0, 5)) == (b"waits", bytes(5))
    with Table(tmp_path / "t.ydb", read_only=True) as table:
        assert table.read(page_at(0), 0, 5) == b"waits"
    with TransactionJournal(tmp_path / "t.jrnl", disk=disk) as journal:
        assert journal.count == 1


def test_large_transactions_are_counted_without_a_call_for_each(tmp_path: Path) -> None:
    with Database(tmp_path / "t.ydb", tmp_path / "t.jrnl", sync="none") as db:
        for number in range(100):
            db.modify(page_at(0), 0, bytes([number]) * 9000)
    disk: Any = CountingDisk(".jrnl")
    with TransactionJournal(tmp_path / "t.jrnl", disk=disk) as journal:
        assert journal.count == 100
    assert disk.bytes_read < 4 * 9000 * 3


def test_ranges_that_overlap_or_touch_become_one() -> None:
    assert joined([]) == []
    assert joined([(5, 9), (0, 2), (2, 3), (6, 7), (8, 12), (20, 20), (30, 31)]) == [(0, 3), (5, 12), (30, 31)]
