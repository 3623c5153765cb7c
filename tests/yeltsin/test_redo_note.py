"""Crashes within the redo of another program's transaction that adds or removes pages: its outcome is noted first."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.errors import DamagedJournal, LogwrightError
from logwright.yeltsin.bytes import codec
from logwright.yeltsin.bytes.layout import FLAGS_AT, HEADER_BYTES, LAST_AT, LINK, NEXT_AT, ROLLBACK
from logwright.yeltsin.bytes.records import Allocate, Operation, Remove
from logwright.yeltsin.bytes.table_layout import PAGE_BYTES, UNFINISHED
from logwright.yeltsin.model.database import Database
from logwright.yeltsin.model.redo import find_due
from logwright.yeltsin.model.redo_note import RedoNote
from tests.contract.scenarios import ForgetfulDisk
from tests.support.damage import cut, flip_bit
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file, read_tree, write_file, write_tree
from tests.yeltsin.crashed import contents, fresh
from tests.yeltsin.databases import HOME, JOURNAL, TABLE
from tests.yeltsin.samples import journal, transaction
from tests.yeltsin.tables import golden, page_at
from tests.yeltsin.test_redo import CASES as REDONE
from tests.yeltsin.test_redo import A, B, C, D, E

NOTE = HOME / ".logwright" / "t.ydb.redo"
LEFT_OVER = "allocate and remove again, and another from the free ones"
CASES: dict[str, tuple[str, list[Operation], list[int], list[int]]] = {
    **REDONE,
    LEFT_OVER: ("append3", [Allocate(E, 0, 0), Remove(E, 0), Remove(A, E), Allocate(A, A, E)], [B, C, D, A], [E]),
}
"""Including one that leaves other bytes, which are meaningless, in a free page when it is computed a second time."""
NAMES = [name for name in CASES if name != "modify"]
MIDDLE = "remove in the middle"


@pytest.fixture(autouse=True)
def _silent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="logwright")


def due(name: str) -> SimulatedDisk:
    """A disk with the table and the journal of a case, before any redo."""
    table, operations, _, _ = CASES[name]
    return placed(golden(table), operations)


def placed(table: bytes, operations: list[Operation], **choices: Any) -> SimulatedDisk:
    disk = fresh()
    disk.make_directory(NOTE.parent)
    write_file(disk, TABLE, table)
    write_file(disk, JOURNAL, journal([transaction(*operations, flags=0, **choices)]))
    disk.settle()
    return disk


def opened(disk: Any) -> Database:
    return Database(TABLE, JOURNAL, disk=disk)


def redone(name: str) -> tuple[bytes, bytes]:
    """The table and the journal after an undisturbed redo."""
    disk = due(name)
    opened(disk).close()
    return contents(disk)


def noted(name: str) -> SimulatedDisk:
    """A disk of a case, with the note and an unchanged table."""
    disk = due(name)
    opened(disk).close()
    return next(state for state in disk.process_kills(format="") if state.exists(NOTE))


def check(disk: SimulatedDisk, name: str, wanted: tuple[bytes, bytes]) -> None:
    """The transaction is complete after a crash within its redo, and nothing else remains to be done."""
    _, _, pages, free = CASES[name]
    with opened(disk) as db:
        assert (db.pages(), db.free_pages(), db.verify().problems) == (pages, free, [])
    assert contents(disk) == wanted
    assert not disk.exists(NOTE)
    with opened(disk) as db:
        assert db.redone == ()
    assert contents(disk) == wanted


@pytest.mark.parametrize("name", NAMES)
def test_killed_redo_is_repeated(name: str) -> None:
    disk, wanted = due(name), redone(name)
    opened(disk).close()
    for state in disk.process_kills(format="yeltsin"):
        check(state, name, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_redo_after_a_power_cut_is_repeated(name: str) -> None:
    disk, wanted = due(name), redone(name)
    opened(disk).close()
    for state in disk.crash_states(most=6, format="yeltsin"):
        check(state, name, wanted)


@pytest.mark.parametrize("name", [MIDDLE, "turn two around", "another in the place of the only page"])
def test_second_redo_survives_a_kill_or_power_cut(name: str) -> None:
    disk, wanted = due(name), redone(name)
    opened(disk).close()
    for before in itertools.islice(disk.process_kills(format=""), 0, None, 3):
        opened(before).close()
        states = before.process_kills(format="yeltsin"), before.crash_states(most=3, format="yeltsin")
        for state in itertools.chain(*states):
            check(state, name, wanted)


@pytest.mark.parametrize(("sync", "checkpoint_bytes"), [("always", 1 << 20), ("none", 0)])
@pytest.mark.parametrize("name", [MIDDLE, "allocate at the end"])
def test_redo_of_a_table_in_memory_is_repeated(name: str, sync: str, checkpoint_bytes: int, tmp_path: Path) -> None:
    disk, wanted = due(name), redone(name)
    opened(disk).close()
    table, journal_path = tmp_path / TABLE.name, tmp_path / JOURNAL.name
    for state in disk.process_kills(format="yeltsin"):
        write_tree(REAL_DISK, tmp_path, read_tree(state, HOME))
        Database(table, journal_path, sync=sync, checkpoint_bytes=checkpoint_bytes).close()
        assert (table.read_bytes(), journal_path.read_bytes()) == wanted
        assert not (tmp_path / ".logwright" / NOTE.name).exists()


def test_foreign_transaction_after_ours_is_redone_with_them() -> None:
    disk = fresh()
    write_file(disk, TABLE, golden("append3"))
    with opened(disk) as db, db.transaction() as tx:
        tx.remove(C)
        tx.modify(D, 0, b"ours")
    ours = bytearray(read_file(disk, JOURNAL))
    ours[20 + FLAGS_AT] = 0
    theirs = replace(transaction(Remove(B, C), Allocate(B, B, C), Allocate(C, C, 0), flags=0), previous=20)
    ours[20 + NEXT_AT : 28 + NEXT_AT] = ours[LAST_AT : LAST_AT + 8] = LINK.pack(len(ours))
    write_file(disk, JOURNAL, bytes(ours) + codec.encode(theirs))
    write_file(disk, TABLE, golden("append3"))
    disk.settle()
    opened(disk).close()
    wanted = contents(disk)
    for state in itertools.chain(disk.process_kills(format="yeltsin"), disk.crash_states(most=6, format="yeltsin")):
        with opened(state) as db:
            assert (db.pages(), db.free_pages(), db.read(D, 0, 4)) == ([A, D, B, C], [], b"ours")
        assert contents(state) == wanted


def fails(disk: SimulatedDisk, wanted: tuple[bytes, bytes]) -> bool:
    """Whether a crash within a redo can leave a state that opening does not repair."""
    for state in disk.crash_states(most=30, format=""):
        try:
            check(state, MIDDLE, wanted)
        except (AssertionError, LogwrightError):
            return True
    return False


FORGOTTEN: dict[str, Callable[[str, Path], bool]] = {
    "the note": lambda kind, path: kind == "sync" and path.name.startswith(NOTE.name),
    "its name": lambda kind, path: kind == "sync directory" and path == NOTE.parent,
    "the table": lambda kind, path: kind == "sync" and path == TABLE,
}


@pytest.mark.parametrize(
    ("begin", "what"), [(due, "the note"), (due, "its name"), (due, "the table"), (noted, "its name")]
)
def test_every_omitted_sync_is_detected(begin: Callable[[str], SimulatedDisk], what: str) -> None:
    disk, wanted = begin(MIDDLE), redone(MIDDLE)
    forgetful: Any = ForgetfulDisk(disk, FORGOTTEN[what])
    opened(forgetful).close()
    assert forgetful.forgotten
    assert fails(disk, wanted)


def test_name_of_a_note_of_a_killed_writer_is_durable_before_the_table_changes() -> None:
    disk, wanted = noted(MIDDLE), redone(MIDDLE)
    opened(disk).close()
    assert not fails(disk, wanted)


def test_killed_redo_without_a_note_breaks_the_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = due(MIDDLE)
    monkeypatch.setattr(RedoNote, "settle", lambda note: None)
    opened(disk).close()
    assert fails(disk, redone(MIDDLE))


def test_note_is_written_only_if_a_page_is_added_or_removed() -> None:
    disk = due("modify")
    opened(disk).close()
    assert all(not state.exists(NOTE) for state in disk.process_kills(format=""))


# --- notes that are not valid ----------------------------------------------------------------------------------------

GARBAGE: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda note: b"",
    "zeros": lambda note: bytes(len(note)),
    "another transaction": lambda note: LINK.pack(21) + note[LINK.size :],
    "no links": lambda note: note[: LINK.size + 8],
    "longer": lambda note: note + bytes(27),
    **{f"{size} bytes": partial(cut, size=size) for size in (7, 8, 15, 39, 40, 67)},
    **{f"a bit of byte {at}": partial(flip_bit, bit=8 * at) for at in range(0, 60, 3)},
}


@pytest.mark.parametrize("what", GARBAGE)
def test_changed_note_is_ignored(what: str) -> None:
    disk = noted(MIDDLE)
    note = read_file(disk, NOTE)
    assert GARBAGE[what](note) != note
    write_file(disk, NOTE, GARBAGE[what](note))
    check(disk, MIDDLE, redone(MIDDLE))


def test_note_is_believed_for_the_transaction_that_it_names() -> None:
    disk = noted(MIDDLE)
    note = read_file(disk, NOTE)
    with contextlib.closing(disk.open(JOURNAL, "read")) as file:
        (redo_due,) = find_due(file, HEADER_BYTES, file.size(), {})
        sealed = RedoNote(disk, TABLE).sealed(file, redo_due)
        assert sealed is not None
        assert sealed.end.seal == note[LINK.size :]
        write_file(disk, NOTE, LINK.pack(HEADER_BYTES + 1) + note[LINK.size :])
        assert RedoNote(disk, TABLE).sealed(file, redo_due) is None


def test_note_of_another_transaction_at_the_same_offset_is_ignored() -> None:
    disk = due(MIDDLE)
    write_file(disk, NOTE, read_file(noted("remove the first and the last"), NOTE))
    check(disk, MIDDLE, redone(MIDDLE))


def test_note_for_another_table_of_this_name_is_ignored() -> None:
    other = bytearray(golden("append3"))
    for position, page in ((6, D), (14, A), (A + 1, 0), (A + 9, B), (B + 1, A), (B + 9, C), (C + 1, B), (C + 9, D)):
        other[position : position + 8] = LINK.pack(page)
    other[D + 1 : D + 17] = LINK.pack(C) + LINK.pack(0)
    disk = placed(bytes(other), CASES[MIDDLE][1])
    write_file(disk, NOTE, read_file(noted(MIDDLE), NOTE))
    with opened(disk) as db:
        assert (db.pages(), db.free_pages(), db.verify().problems) == ([D, C, A], [B], [])
    assert not disk.exists(NOTE)


def test_note_of_a_finished_redo_is_removed_and_changes_nothing() -> None:
    disk = due(MIDDLE)
    opened(disk).close()
    before = contents(disk)
    write_file(disk, NOTE, read_file(noted(MIDDLE), NOTE))
    with opened(disk) as db:
        assert db.redone == ()
    assert (contents(disk), disk.exists(NOTE)) == (before, False)


def test_note_of_a_rolled_back_transaction_is_ignored() -> None:
    table, operations, _, _ = CASES[MIDDLE]
    disk = placed(golden(table), operations, end=ROLLBACK)
    before = contents(disk)
    write_file(disk, NOTE, read_file(noted(MIDDLE), NOTE))
    with opened(disk) as db:
        assert db.redone == ()
    assert (contents(disk), disk.exists(NOTE)) == (before, False)


def test_opening_that_is_refused_leaves_the_note_and_both_files() -> None:
    disk = noted(MIDDLE)
    data = bytearray(read_file(disk, TABLE))
    data[:4], data[B + 1 : B + 17] = UNFINISHED, bytes(16)
    data[page_at(3) + 1 : page_at(3) + 9] = LINK.pack(A + 7 * PAGE_BYTES)
    write_file(disk, TABLE, bytes(data))
    before = read_tree(disk, HOME)
    with pytest.raises(DamagedJournal, match=r"cannot be redone|broken"):
        opened(disk)
    assert read_tree(disk, HOME) == before
