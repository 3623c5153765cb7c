"""A modification by one call, without a block: its own transaction, on the fast and the slow path."""

from __future__ import annotations

from concurrent.futures import Future, wait
from pathlib import Path

import pytest

from logwright.errors import Closed, WrongUse
from logwright.yeltsin.bytes.table_layout import PAGE_DATA_BYTES
from logwright.yeltsin.files.reader import Reader
from logwright.yeltsin.model import changes, database
from tests.support.threads import DEADLINE_SECONDS, in_a_thread
from tests.yeltsin.tables import page_at
from tests.yeltsin.test_database import FIRST, SETTINGS, opened


@pytest.mark.parametrize(("sync", "checkpoint_bytes"), SETTINGS)
def test_modification_by_one_call_is_its_own_transaction(sync: str, checkpoint_bytes: int, tmp_path: Path) -> None:
    with opened(tmp_path, sync, checkpoint_bytes) as db:
        db.modify(FIRST, 3, b"hello")
        db.modify(FIRST, 4, memoryview(b"a-")[::2])
        db.modify(FIRST, 9, b"")
        assert db.read(FIRST, 2, 7) == b"\0hallo\0"
        for page, offset, data in ((FIRST, PAGE_DATA_BYTES - 1, b"xx"), (FIRST, -1, b"x"), (page_at(1), 0, b"x")):
            with pytest.raises(WrongUse):
                db.modify(page, offset, data)
        with pytest.raises(TypeError):
            db.modify(FIRST, 0, "text")  # type: ignore[arg-type]
        with db.transaction() as tx:
            tx.modify(FIRST, 0, b"own")
            with pytest.raises(WrongUse, match="running in this thread"):
                db.modify(FIRST, 0, b"no")
        assert db.read(FIRST, 0, 8) == b"ownhallo"
    with pytest.raises(Closed):
        db.modify(FIRST, 0, b"late")
    with Reader(tmp_path / "t.jrnl") as reader:
        found = [[(each.before, each.after) for each in record.operations] for record in reader]  # type: ignore[union-attr]
    assert found == [[(bytes(5), b"hello")], [(b"e", b"a")], [(bytes(3), b"own")]]


def test_reader_waits_for_a_complete_unsynced_commit_without_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[Future[bytes]] = []

    def halting(operations: bytearray, table: changes.Memory) -> None:
        """Lets a thread read between two changes of the table; it may finish before the second one."""
        for place, size, at in changes.places_in(operations):
            table[place : place + size] = operations[at : at + size]
            readers.append(in_a_thread(lambda: db.read(FIRST, 0, 9)))
            wait(readers, 0.05)

    monkeypatch.setattr(changes, "store_changes", halting)
    monkeypatch.setattr(database, "Changes", changes.Changes)
    with opened(tmp_path, "none") as db:
        with db.transaction() as tx:
            tx.modify(FIRST, 0, b"one")
            tx.modify(FIRST, 6, b"two")
        assert [reader.result(DEADLINE_SECONDS) for reader in readers] == [b"one\0\0\0two"] * 2
