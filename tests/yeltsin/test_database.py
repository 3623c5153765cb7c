"""Databases: transactions take effect completely or not at all, and are visible when they should be."""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logwright.errors import Closed, DamagedJournal, Locked, NotFound, WrongUse
from logwright.yeltsin.bytes.layout import HEADER_BYTES, LINK, NEXT_AT
from logwright.yeltsin.bytes.table_layout import PAGE_DATA_BYTES
from logwright.yeltsin.files.check import verify
from logwright.yeltsin.files.reader import Reader
from logwright.yeltsin.model import transaction
from logwright.yeltsin.model.database import Database
from logwright.yeltsin.model.table import Table
from logwright.yeltsin.model.transaction import Transaction
from tests.support.counting_disk import CountingDisk
from tests.support.simulated_disk import SimulatedDisk
from tests.support.threads import DEADLINE_SECONDS, in_a_thread
from tests.yeltsin.tables import page_at

FIRST = page_at(0)
SETTINGS = [("always", 0), ("none", 0), ("interval(60000)", 0), ("always", 1 << 20), ("none", 1 << 20)]


def opened(directory: Path, sync: str = "always", checkpoint_bytes: int = 0) -> Database:
    return Database(directory / "t.ydb", directory / "t.jrnl", sync=sync, checkpoint_bytes=checkpoint_bytes)


def spoil(tx: Transaction, page: int) -> None:
    tx.remove(FIRST)
    tx.modify(page, 0, b"lost")
    tx.allocate()
    raise ZeroDivisionError


def modify_and(tx: Transaction, action: Callable[[Transaction], object]) -> None:
    tx.modify(FIRST, 0, b"void")
    action(tx)


@pytest.mark.parametrize(("sync", "checkpoint_bytes"), SETTINGS)
def test_committed_changes_are_kept_and_rolled_back_ones_are_not(
    sync: str, checkpoint_bytes: int, tmp_path: Path
) -> None:
    with opened(tmp_path, sync, checkpoint_bytes) as db:
        with db.transaction() as tx:
            page = tx.allocate()
            tx.modify(page, 3, b"hello")
            tx.modify(page, 5, b"y")
            assert tx.read(page, 2, 7) == b"\0heylo\0"
            assert list(tx.pages()) == [FIRST, page]
            assert db.pages() == [FIRST]
        assert db.read(page, 2, 7) == b"\0heylo\0"
        with pytest.raises(ZeroDivisionError), db.transaction() as tx:
            spoil(tx, page)
        assert (db.pages(), db.free_pages()) == ([FIRST, page], [])
        assert db.read(page, 0, 4) == b"\0\0\0h"
        with db.transaction() as tx:
            tx.remove(FIRST)
        assert (db.pages(), db.free_pages()) == ([page], [FIRST])
        with db.transaction() as tx:
            assert tx.allocate() == FIRST
            tx.modify(FIRST, PAGE_DATA_BYTES - 3, b"end")
    with opened(tmp_path) as db:
        assert (db.recovered, db.redone) == (None, ())
        assert db.pages() == [page, FIRST]
        assert db.read(FIRST, PAGE_DATA_BYTES - 4) == b"\0end"
        assert db.verify().sound
    with Table(tmp_path / "t.ydb") as table:
        assert table.read(page, 3, 5) == b"heylo"


def test_page_from_the_free_list_is_empty_in_its_transaction_and_afterwards(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        with db.transaction() as tx:
            page = tx.allocate()
            tx.modify(page, 0, b"old")
        with db.transaction() as tx:
            tx.remove(page)
            assert tx.allocate() == page
            assert tx.read(page) == bytes(PAGE_DATA_BYTES)
            tx.modify(page, 1, b"n")
        assert db.read(page, 0, 4) == b"\0n\0\0"


def test_only_page_cannot_be_removed(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        with db.transaction() as tx:
            tx.modify(FIRST, 0, b"kept")
            tx.remove(FIRST)
            tx.remove(FIRST)
        assert (db.pages(), db.free_pages(), db.read(FIRST, 0, 4)) == ([FIRST], [], b"kept")
        with db.transaction() as tx:
            other = tx.allocate()
            tx.remove(FIRST)
        assert (db.pages(), db.free_pages()) == ([other], [FIRST])


def test_whole_page_and_empty_range_can_be_modified(tmp_path: Path) -> None:
    data = os.urandom(PAGE_DATA_BYTES)
    with opened(tmp_path) as db:
        with db.transaction() as tx:
            tx.modify(FIRST, 0, data)
            tx.modify(FIRST, PAGE_DATA_BYTES, b"")
        assert db.read(FIRST) == data
        with pytest.raises(WrongUse), db.transaction() as tx:
            tx.modify(FIRST, 1, data)
        assert db.read(FIRST) == data


def test_many_changes_of_one_page_in_one_transaction_are_read_back(tmp_path: Path) -> None:
    expected = bytearray(200)
    with opened(tmp_path) as db, db.transaction() as tx:
        for number in range(60):
            at = number * 37 % 190
            tx.modify(FIRST, at, bytes([number]) * 10)
            expected[at : at + 10] = bytes([number]) * 10
            assert tx.read(FIRST, 0, 200) == expected
        tx.remove(FIRST)
    with opened(tmp_path) as db:
        assert db.read(FIRST, 0, 200) == expected


@pytest.mark.parametrize(("sync", "checkpoint_bytes"), SETTINGS)
def test_size_of_a_view_is_counted_in_bytes(sync: str, checkpoint_bytes: int, tmp_path: Path) -> None:
    wide = memoryview(array("I", range(1, 9)))  # 8 items, 32 bytes
    with opened(tmp_path, sync, checkpoint_bytes) as db:
        with db.transaction() as tx:
            page = tx.allocate()
        with pytest.raises(WrongUse, match="32 from"), db.transaction() as tx:
            tx.modify(FIRST, PAGE_DATA_BYTES - 8, wide)
        with db.transaction() as tx:
            tx.modify(FIRST, PAGE_DATA_BYTES - 32, wide)
            tx.modify(FIRST, 0, memoryview(b"a-b-c-")[::2])
            tx.modify(FIRST, 3, bytearray(b"d"))
        assert db.read(FIRST, PAGE_DATA_BYTES - 32) == bytes(wide)
        assert db.read(FIRST, 0, 5) == b"abcd\0"
        for wrong in (5, [1, 2], "text"):
            with pytest.raises(TypeError), db.transaction() as tx:
                tx.modify(FIRST, 0, wrong)  # type: ignore[arg-type]
        assert db.read(FIRST, 0, 5) == b"abcd\0"
        assert (db.pages(), db.verify().problems) == ([FIRST, page], [])


def test_very_large_transaction_leaves_the_fast_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(transaction, "MOST_SHORT_BYTES", 500)
    expected = bytearray(300)
    with opened(tmp_path, "none") as db:
        with db.transaction() as tx:
            for number in range(50):
                at = number * 37 % 290
                tx.modify(FIRST, at, bytes([number + 1]) * 10)
                expected[at : at + 10] = bytes([number + 1]) * 10
                assert tx.read(FIRST, 0, 300) == expected
                assert number < 15 or tx._short is None  # otherwise each would be compared with all others
        assert db.read(FIRST, 0, 300) == expected
    with Reader(tmp_path / "t.jrnl") as reader:
        (found,) = reader.pages().pages[FIRST].items()
    assert found == (0, bytes(expected).rstrip(b"\0"))


@pytest.mark.parametrize("sync", ["always", "none"])
def test_pages_may_be_removed_during_iteration(sync: str, tmp_path: Path) -> None:
    with opened(tmp_path, sync) as db:
        with db.transaction() as tx:
            pages = [FIRST, *(tx.allocate() for _ in range(3))]
        with db.transaction() as tx:
            for page in tx.pages():
                tx.remove(page)
        assert (db.pages(), db.free_pages()) == (pages[3:], pages[2::-1])


def test_transaction_that_changes_nothing_leaves_no_trace(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        with db.transaction():
            pass
        with pytest.raises(ZeroDivisionError), db.transaction():
            raise ZeroDivisionError
    assert (tmp_path / "t.jrnl").read_bytes() == b"JRNL" + bytes(16)


def test_rollback_within_the_block_ends_the_transaction(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        with db.transaction() as tx:
            tx.modify(FIRST, 0, b"no")
            tx.rollback()
            with pytest.raises(WrongUse, match="rolled back"):
                tx.modify(FIRST, 0, b"no")
        with pytest.raises(WrongUse, match="rolled back"), tx:
            pass
        assert db.read(FIRST, 0, 2) == b"\0\0"
        with db.transaction() as tx:
            tx.modify(FIRST, 0, b"yes")
        with pytest.raises(WrongUse, match="committed"):
            tx.read(FIRST)
        assert db.read(FIRST, 0, 3) == b"yes"


def test_wrong_use_is_reported_and_rolls_back(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        for wrong in (
            lambda tx: tx.modify(31, 0, b"x"),
            lambda tx: tx.remove(page_at(1)),
            lambda tx: tx.read(FIRST, -1, 5),
            lambda tx: db.transaction().__enter__(),
            lambda tx: db.close(),
        ):
            with pytest.raises(WrongUse), db.transaction() as tx:
                modify_and(tx, wrong)
        assert db.read(FIRST, 0, 4) == bytes(4)
        with pytest.raises(Locked):
            opened(tmp_path)
        with pytest.raises(Locked):
            Table(tmp_path / "t.ydb")
    with pytest.raises(Closed):
        db.read(FIRST)
    with pytest.raises(Closed), db.transaction():
        pass
    with pytest.raises(WrongUse, match="as well"):
        Database(tmp_path / "t.ydb", tmp_path / "t.ydb")
    for wrong_bytes in (-1, 2**70, 0.5, "many", None):
        with pytest.raises(WrongUse, match="make no sense"):
            opened(tmp_path, checkpoint_bytes=wrong_bytes)  # type: ignore[arg-type]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not list mappings")
@pytest.mark.parametrize(("sync", "checkpoint_bytes"), SETTINGS)
def test_closed_database_holds_no_file(sync: str, checkpoint_bytes: int, tmp_path: Path) -> None:
    with opened(tmp_path, sync, checkpoint_bytes) as db:
        for _ in range(2):
            with db.transaction() as tx:
                tx.modify(tx.allocate(), 0, b"data")
            with db.transaction() as other:
                other.modify(FIRST, 0, b"data")
    maps = Path("/proc/self/maps").read_text().splitlines()
    assert [line for line in maps if str(tmp_path) in line] == []
    descriptors = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]
    assert [file for file in descriptors if file.exists() and file.readlink().is_relative_to(tmp_path)] == []
    assert all((tx, other, db))  # these references hold no resources


def test_journal_without_its_table_gets_no_new_table(tmp_path: Path) -> None:
    with opened(tmp_path) as db, db.transaction() as tx:
        tx.modify(FIRST, 0, b"data")
    (tmp_path / "t.ydb").unlink()
    with pytest.raises(NotFound, match="table"):
        opened(tmp_path)
    assert not (tmp_path / "t.ydb").exists()


def test_table_left_unfinished_by_another_program_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    data = (tmp_path / "t.ydb").read_bytes()
    (tmp_path / "t.ydb").write_bytes(b"TBL?" + data[4:])
    with pytest.raises(DamagedJournal, match="does not know"):
        opened(tmp_path)
    assert (tmp_path / "t.ydb").read_bytes() == b"TBL?" + data[4:]


# --- when things are where --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", ["always", "none"])
def test_commit_completes_the_table_and_sets_the_flag(sync: str, tmp_path: Path) -> None:
    with opened(tmp_path, sync) as db:
        for number in range(3):
            with db.transaction() as tx:
                tx.modify(FIRST, number, b"x")
            table, journal = (tmp_path / "t.ydb").read_bytes(), (tmp_path / "t.jrnl").read_bytes()
            assert table[:4] == b"TBL!"
            assert table[49 : 49 + number + 2] == b"x" * (number + 1) + b"\0"
            assert journal[int.from_bytes(journal[12:20], "little") + 24] == 1


@pytest.mark.parametrize(("sync", "checkpoint_bytes"), SETTINGS)
def test_after_a_checkpoint_everything_is_durable(sync: str, checkpoint_bytes: int) -> None:
    disk, home = SimulatedDisk(), Path("/database")
    disk.make_directory(home)
    table, journal = home / "t.ydb", home / "t.jrnl"
    with Database(table, journal, sync=sync, checkpoint_bytes=checkpoint_bytes, disk=disk) as db:
        for _ in range(2):
            with db.transaction() as tx:
                tx.modify(tx.allocate(), 0, b"x")
        db.checkpoint()
        assert [what for what in disk.unsynced() if what.endswith((table.name, journal.name))] == []


def test_table_is_unchanged_until_the_next_checkpoint(tmp_path: Path) -> None:
    with opened(tmp_path, "always", 900) as db:
        before = (tmp_path / "t.ydb").read_bytes()
        with db.transaction() as tx:
            tx.modify(FIRST, 0, b"x" * 400)
        assert (tmp_path / "t.ydb").read_bytes() == before
        assert db.read(FIRST, 399, 2) == b"x\0"
        with db.transaction() as tx:
            tx.modify(FIRST, 0, b"y")
        after = (tmp_path / "t.ydb").read_bytes()
        assert (after[:4], after[49:450]) == (b"TBL!", b"y" + b"x" * 399 + b"\0")
        with db.transaction() as tx:
            tx.modify(FIRST, 1, b"z")
        db.checkpoint()
        assert (tmp_path / "t.ydb").read_bytes()[49:53] == b"yzxx"
    assert (tmp_path / "t.jrnl").stat().st_size < 2000


# --- threads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sync", "checkpoint_bytes"), [("always", 0), ("always", 1 << 14), ("interval(1)", 0)])
def test_threads_alternate_and_readers_see_complete_transactions(
    sync: str, checkpoint_bytes: int, tmp_path: Path
) -> None:
    done = threading.Event()
    torn: list[bytes] = []

    def count(db: Database) -> None:
        for _ in range(40):
            with db.transaction() as tx:
                value = int.from_bytes(tx.read(FIRST, 0, 8), "little") + 1
                tx.modify(FIRST, 0, value.to_bytes(8, "little") * 2)
                tx.remove(tx.allocate())

    def look(db: Database) -> None:
        while not done.is_set():
            seen = db.read(FIRST, 0, 16)
            if seen[:8] != seen[8:] or db.pages() != [FIRST]:
                torn.append(seen)

    with opened(tmp_path, sync, checkpoint_bytes) as db:
        writers = [threading.Thread(target=count, args=(db,)) for _ in range(4)]
        reader = threading.Thread(target=look, args=(db,))
        for thread in (*writers, reader):
            thread.start()
        for thread in writers:
            thread.join(DEADLINE_SECONDS)
        done.set()
        reader.join(DEADLINE_SECONDS)
        assert torn == []
        assert db.read(FIRST, 0, 8) == (160).to_bytes(8, "little")
    with opened(tmp_path) as db:
        assert (db.redone, db.read(FIRST, 8, 8)) == ((), (160).to_bytes(8, "little"))


def test_child_process_cannot_write(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        child = os.fork()
        if child == 0:
            try:
                with db.transaction() as tx:
                    tx.modify(FIRST, 0, b"no")
            except WrongUse:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert db.read(FIRST, 0, 2) == b"\0\0"


class GatedDisk:
    """A simulated disk that counts the syncs of a journal, and makes them wait at a gate."""

    def __init__(self) -> None:
        self.inner = SimulatedDisk()
        self.gate: threading.Event | None = None
        self.waiting = threading.Event()
        self.syncs = 0

    def open(self, path: Path, mode: Any) -> Any:
        file = self.inner.open(path, mode)
        return GatedFile(self, file) if path.suffix == ".jrnl" else file

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class GatedFile:
    def __init__(self, disk: GatedDisk, file: Any) -> None:
        self._disk = disk
        self._file = file

    def sync(self) -> None:
        self._disk.syncs += 1
        if self._disk.gate is not None:
            self._disk.waiting.set()
            assert self._disk.gate.wait(DEADLINE_SECONDS)
        self._file.sync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_threads_committing_during_a_sync_share_the_next_one() -> None:
    disk: Any = GatedDisk()
    disk.make_directory(Path("/home"))
    started = [threading.Event() for _ in range(6)]

    def commit(db: Database, number: int) -> None:
        with db.transaction() as tx:
            started[number].set()
            tx.modify(FIRST, number, b"x")

    with Database("/home/t.ydb", "/home/t.jrnl", checkpoint_bytes=1 << 30, disk=disk) as db:
        disk.gate, disk.syncs = threading.Event(), 0
        first = in_a_thread(lambda: commit(db, 0))
        assert disk.waiting.wait(DEADLINE_SECONDS)
        others = [in_a_thread(lambda number=number: commit(db, number)) for number in range(1, 6)]  # type: ignore[misc]
        for event in started:  # a started thread has waited for the preceding ones to be in the journal
            assert event.wait(DEADLINE_SECONDS)
        disk.gate.set()
        for thread in (first, *others):
            thread.result(DEADLINE_SECONDS)
        assert disk.syncs <= 4
        assert db.read(FIRST, 0, 7) == b"x" * 6 + b"\0"


@pytest.mark.parametrize("sync", ["always", "none"])
def test_opening_reads_no_more_of_a_long_journal_than_of_a_short_one(sync: str, tmp_path: Path) -> None:
    def bytes_read() -> int:
        disk: Any = CountingDisk(".jrnl")
        Database(tmp_path / "t.ydb", tmp_path / "t.jrnl", sync=sync, disk=disk).close()
        return int(disk.bytes_read)

    def commit(count: int) -> None:
        with opened(tmp_path, "none") as db:
            for number in range(count):
                with db.transaction() as tx:
                    tx.modify(FIRST, 0, number.to_bytes(4, "little") * 100)

    commit(20)
    few = bytes_read()
    commit(500)
    assert 0 < bytes_read() <= few
    with Reader(tmp_path / "t.jrnl") as reader:
        assert len(list(reader)) == 520


def test_old_broken_link_does_not_prevent_writing_and_is_reported_by_verify(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        for text in (b"one", b"two", b"three", b"four"):
            with db.transaction() as tx:
                tx.modify(FIRST, 0, text)
    data = bytearray((tmp_path / "t.jrnl").read_bytes())
    (second,) = LINK.unpack_from(data, HEADER_BYTES + NEXT_AT)
    LINK.pack_into(data, second + NEXT_AT, 2**40)
    (tmp_path / "t.jrnl").write_bytes(data)
    with opened(tmp_path) as db:
        assert db.recovered is None
        with db.transaction() as tx:
            tx.modify(FIRST, 0, b"fifth")
    with Reader(tmp_path / "t.jrnl") as reader:
        report = verify(reader)
    assert [(problem.kind, problem.position) for problem in report.problems] == [("link", second + NEXT_AT)]
    assert report.records == 5
