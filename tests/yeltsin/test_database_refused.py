"""Openings that are refused: whatever is wrong with one file, both of them stay unchanged, byte for byte.

Each case combines remains of a crash or of another program in one file with a reason to refuse the other one: nothing
is cut, linked, named or redone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.core.io.quarantine import cut_directory
from logwright.errors import DamagedJournal, Locked, LogwrightError, NotFound, StorageFailed
from logwright.yeltsin.bytes import codec
from logwright.yeltsin.bytes.layout import FLAGS_AT, HEADER_BYTES, LAST_AT, LOCK_SUFFIX, NEXT_AT
from logwright.yeltsin.bytes.records import Allocate, Modify
from logwright.yeltsin.bytes.table_layout import PAGE_BYTES, new_table
from logwright.yeltsin.files.writer import TransactionJournal
from logwright.yeltsin.model.database import Database
from logwright.yeltsin.model.table import Table
from tests.support.children import forked
from tests.support.trees import Tree, read_tree
from tests.yeltsin.samples import journal, modify, sealed, transaction
from tests.yeltsin.tables import page_at, patched

SETTINGS = [("always", 0), ("none", 0), ("always", 1 << 20), ("interval(60000)", 0)]
TORN = bytes(range(40))

# --- tables -----------------------------------------------------------------------------------------------------------

TABLE = new_table()
PADDED = TABLE + bytes(2 * PAGE_BYTES)
"""With pages at its end for a transaction that never happened."""
UNFINISHED = b"TBL?" + PADDED[4:]
LOST = patched(UNFINISHED, 22, page_at(1))
"""Its free list begins at a page in use."""

# --- journals ---------------------------------------------------------------------------------------------------------


ONE = transaction(modify(b"\0", b"a"))
DUE = replace(ONE, flags=0)
SOUND = journal([ONE, ONE])
SECOND = HEADER_BYTES + len(codec.encode(ONE))
BEYOND = transaction(Modify(page_at(7), 0, b"\0", b"x"), flags=0)
IMPOSSIBLE = journal([ONE, BEYOND])
"""A redo is due for a page that does not exist."""
UNNAMED = patched(patched(sealed(ONE, DUE), LAST_AT, HEADER_BYTES), HEADER_BYTES + NEXT_AT, 0)
"""The last transaction is whole, but neither the header nor a link leads there."""
UNLINKED = patched(sealed(ONE, DUE), HEADER_BYTES + NEXT_AT, 0)
HALF_NAMED = patched(sealed(transaction(modify(bytes(300), b"b" * 300)), ONE), LAST_AT + 1, 0, "<B")
STALE = patched(patched(SOUND, LAST_AT, HEADER_BYTES), HEADER_BYTES + NEXT_AT, 0)
"""The header does not name a transaction that is in the storage."""
BROKEN = patched(SOUND, HEADER_BYTES + NEXT_AT, 5)

CASES: dict[str, tuple[bytes | None, bytes | None, type[LogwrightError], str]] = {
    "no table, a torn tail": (None, SOUND + TORN, NotFound, "is missing"),
    "no table, no name": (None, UNNAMED, NotFound, "is missing"),
    "no table, no link": (None, UNLINKED, NotFound, "is missing"),
    "no table, half a name": (None, HALF_NAMED, NotFound, "is missing"),
    "no table, zeros ahead": (None, sealed(ONE) + bytes(99), NotFound, "is missing"),
    "an empty table, a torn tail": (b"", SOUND + TORN, DamagedJournal, "a table begins"),
    "half a table, no name": (TABLE[:900], UNNAMED, DamagedJournal, "ends before"),
    "another signature, no journal": (b"TBLX" + TABLE[4:], None, DamagedJournal, "a table begins"),
    "another version, half a header": (patched(TABLE, 4, 9, "<B"), SOUND[:11], DamagedJournal, "version"),
    "unfinished, no journal": (UNFINISHED, None, DamagedJournal, "does not know"),
    "unfinished, an empty journal": (UNFINISHED, journal([]), DamagedJournal, "does not know"),
    "unfinished, half a header": (UNFINISHED, SOUND[:19], DamagedJournal, "does not know"),
    "unfinished and lost, a torn tail": (LOST, SOUND + TORN, DamagedJournal, "broken after the redo"),
    "unused pages, no journal at all": (PADDED, b"JRNX" + SOUND[4:], DamagedJournal, "begins with"),
    "unused pages, a broken link": (PADDED, BROKEN + TORN, DamagedJournal, "link|names|lies|transaction"),
    "unused pages, a stale header": (PADDED, STALE, DamagedJournal, "follows it"),
    "unused pages, no redo": (PADDED, IMPOSSIBLE, DamagedJournal, "where no page is"),
    "unused pages, no redo, a torn tail": (PADDED, IMPOSSIBLE + TORN, DamagedJournal, "where no page is"),
    "an allocation beyond the end": (
        PADDED,
        journal([transaction(Allocate(page_at(9), 0, 0), flags=0)]),
        DamagedJournal,
        "where no page is",
    ),
}


def files(directory: Path) -> Tree:
    """All files except locks and their directory."""
    tree = read_tree(REAL_DISK, directory)
    return {name: data for name, data in tree.items() if name != ".logwright" and not name.endswith(LOCK_SUFFIX)}


def prepare(directory: Path, table: bytes | None, log: bytes | None) -> Tree:
    for name, data in (("t.ydb", table), ("t.jrnl", log)):
        if data is not None:
            (directory / name).write_bytes(data)
    return files(directory)


def opened(directory: Path, sync: str = "always", checkpoint_bytes: int = 0) -> Database:
    return Database(directory / "t.ydb", directory / "t.jrnl", sync=sync, checkpoint_bytes=checkpoint_bytes)


@pytest.mark.parametrize(("sync", "checkpoint_bytes"), SETTINGS)
@pytest.mark.parametrize("name", CASES)
def test_refused_opening_changes_nothing(name: str, sync: str, checkpoint_bytes: int, tmp_path: Path) -> None:
    table, log, error, message = CASES[name]
    before = prepare(tmp_path, table, log)
    for _ in range(2):
        with pytest.raises(error, match=message):
            opened(tmp_path, sync, checkpoint_bytes)
        assert files(tmp_path) == before


@pytest.mark.parametrize(("table", "log"), [(PADDED, SOUND + TORN), (PADDED, UNNAMED), (TABLE, UNLINKED), (None, None)])
def test_state_left_by_a_refusal_is_recovered_by_an_opening(
    table: bytes | None, log: bytes | None, tmp_path: Path
) -> None:
    before = prepare(tmp_path, table, log)
    opened(tmp_path).close()
    assert files(tmp_path) != before
    assert (tmp_path / "t.ydb").stat().st_size == len(TABLE)
    before = files(tmp_path)
    opened(tmp_path).close()
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    "make", [Path.mkdir, lambda path: path.symlink_to("elsewhere"), os.mkfifo], ids=["directory", "link", "pipe"]
)
@pytest.mark.parametrize("name", ["t.ydb", "t.jrnl"])
def test_entry_that_is_not_a_file_is_refused_and_the_other_file_stays(
    name: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    data = {"t.ydb": PADDED, "t.jrnl": SOUND + TORN}
    data.pop(name)
    make(tmp_path / name)
    for other, content in data.items():
        (tmp_path / other).write_bytes(content)
    with pytest.raises((StorageFailed, LogwrightError)):
        opened(tmp_path)
    assert {other: (tmp_path / other).read_bytes() for other in data} == data
    assert sorted(os.listdir(tmp_path)) == [".logwright", "t.jrnl", "t.ydb"]


@pytest.mark.parametrize(
    ("table", "log"),
    [
        (None, journal([]) + TORN),
        (None, SOUND[:11]),
        (PADDED, SOUND + TORN),
        (TABLE, UNNAMED + TORN),
        (TABLE, UNLINKED + TORN),
        (TABLE, HALF_NAMED + TORN),
    ],
    ids=["no table", "no table, half a header", "unused pages", "no name", "no link", "half a name"],
)
def test_nothing_is_cut_if_no_copy_can_be_kept(table: bytes | None, log: bytes, tmp_path: Path) -> None:
    cut_directory(tmp_path).parent.mkdir()
    cut_directory(tmp_path).write_bytes(b"in the way")
    before = prepare(tmp_path, table, log)
    for open_it in (lambda: opened(tmp_path), lambda: TransactionJournal(tmp_path / "t.jrnl")):
        with pytest.raises(StorageFailed, match="create directory"):
            open_it()
        assert files(tmp_path) == before
    cut_directory(tmp_path).unlink()
    with opened(tmp_path) as db:
        assert db.recovered is not None
        assert db.kept is not None
        assert db.kept.read_bytes() == log[db.recovered.start :]


# --- locks ------------------------------------------------------------------------------------------------------------


def test_file_that_is_open_under_another_name_is_refused_and_stays(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.modify(page_at(0), 0, b"one")
        os.link(tmp_path / "t.ydb", tmp_path / "u.ydb")
        os.link(tmp_path / "t.jrnl", tmp_path / "u.jrnl")
        before = files(tmp_path)
        attempts: list[Callable[[], object]] = [
            lambda: Database(tmp_path / "u.ydb", tmp_path / "new.jrnl"),
            lambda: Database(tmp_path / "new.ydb", tmp_path / "u.jrnl"),
            lambda: Database(tmp_path / "u.ydb", tmp_path / "u.jrnl", sync="none"),
            lambda: Table(tmp_path / "u.ydb"),
            lambda: TransactionJournal(tmp_path / "u.jrnl"),
        ]
        for attempt in attempts:
            with pytest.raises(Locked, match=r"u\."):
                attempt()
            assert files(tmp_path) == before
        with Table(tmp_path / "u.ydb", read_only=True) as table:
            assert table.read(page_at(0), 0, 3) == b"one"
        db.modify(page_at(0), 0, b"two")
    with Database(tmp_path / "u.ydb", tmp_path / "u.jrnl") as db:
        assert (db.redone, db.read(page_at(0), 0, 3)) == ((), b"two")
        with pytest.raises(Locked, match=r"t\.ydb"):
            opened(tmp_path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(("sync", "checkpoint_bytes"), SETTINGS)
def test_closed_database_can_be_opened_while_an_older_child_lives(
    sync: str, checkpoint_bytes: int, tmp_path: Path
) -> None:
    db = opened(tmp_path, sync, checkpoint_bytes)
    with forked():
        with pytest.raises(Locked):
            opened(tmp_path)
        db.close()
        with opened(tmp_path) as db:
            db.modify(page_at(0), 0, b"on")


def test_flag_of_a_journal_is_at_the_expected_position() -> None:
    assert (SOUND[SECOND + FLAGS_AT], IMPOSSIBLE[SECOND + FLAGS_AT]) == (1, 0)
