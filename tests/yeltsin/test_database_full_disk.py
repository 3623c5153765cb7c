"""A disk that is full: committed changes are intact, changes that did not fit are absent, and reading still works."""

from __future__ import annotations

import pytest

from logwright.errors import Poisoned, StorageFailed
from logwright.yeltsin.bytes.table_layout import PAGE_BYTES
from logwright.yeltsin.model.database import Database
from tests.support.simulated_disk import SimulatedDisk
from tests.yeltsin.databases import HOME, JOURNAL, TABLE, pattern
from tests.yeltsin.tables import page_at


def almost_full(left: int) -> SimulatedDisk:
    """A disk with a database of two pages, and this number of bytes left."""
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    with Database(TABLE, JOURNAL, disk=disk) as db, db.transaction() as tx:
        tx.modify(tx.allocate(), 0, b"kept")
    disk.capacity_bytes = disk.file_size(TABLE) + disk.file_size(JOURNAL) + left
    return disk


@pytest.mark.parametrize("checkpoint_bytes", [0, 1 << 20])
def test_new_page_without_space_is_refused_and_the_database_stays_usable(checkpoint_bytes: int) -> None:
    disk = almost_full(3000)
    before = disk.open(TABLE, "read").read_at(0, 1 << 20), disk.open(JOURNAL, "read").read_at(0, 1 << 20)
    with Database(TABLE, JOURNAL, checkpoint_bytes=checkpoint_bytes, disk=disk) as db:
        with pytest.raises(StorageFailed), db.transaction() as tx:
            tx.modify(tx.allocate(), 0, b"no space")
        assert disk.open(TABLE, "read").read_at(0, 1 << 20) == before[0]
        assert disk.open(JOURNAL, "read").read_at(0, 1 << 20) == before[1]
        assert db.pages() == [page_at(0), page_at(1)]
        with db.transaction() as tx:
            tx.remove(page_at(0))
        with db.transaction() as tx:
            assert tx.allocate() == page_at(0)
        disk.capacity_bytes = None
        with db.transaction() as tx:
            assert tx.allocate() == page_at(2)
    with Database(TABLE, JOURNAL, disk=disk) as db:
        assert (db.recovered, db.pages()) == (None, [page_at(1), page_at(0), page_at(2)])


def test_journal_that_cannot_grow_is_unchanged_and_poisons_the_database() -> None:
    disk = almost_full(3000)
    before = disk.open(JOURNAL, "read").read_at(0, 1 << 20)
    with Database(TABLE, JOURNAL, disk=disk) as db:
        with pytest.raises(StorageFailed), db.transaction() as tx:
            tx.modify(page_at(1), 0, pattern(1, 5000))
        with pytest.raises(Poisoned), db.transaction() as tx:
            tx.modify(page_at(1), 0, b"small")
        assert db.read(page_at(1), 0, 5) == b"kept\0"
    assert disk.open(JOURNAL, "read").read_at(0, 1 << 20) == before
    with Database(TABLE, JOURNAL, disk=disk) as db:
        assert (db.recovered, db.redone) == (None, ())
        with db.transaction() as tx:
            tx.modify(page_at(1), 0, b"small")
        assert db.read(page_at(1), 0, 6) == b"small\0"


def test_pages_of_a_transaction_that_was_never_written_are_removed() -> None:
    disk = almost_full(1 << 20)
    size = disk.file_size(TABLE)
    disk.open(TABLE, "update").truncate(size + 2 * PAGE_BYTES + 77)
    with Database(TABLE, JOURNAL, disk=disk) as db:
        assert disk.file_size(TABLE) == size
        with db.transaction() as tx:
            assert tx.allocate() == page_at(2)
        assert (db.verify().problems, db.verify().anomalies) == ([], [])
