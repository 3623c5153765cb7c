"""Redo of transactions of another program: they do not contain the links beside a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright.errors import DamagedJournal
from logwright.yeltsin.bytes.layout import ROLLBACK
from logwright.yeltsin.bytes.records import Allocate, Modify, Operation, Remove
from logwright.yeltsin.bytes.table_layout import PAGE_DATA_BYTES
from logwright.yeltsin.files.writer import TransactionJournal
from logwright.yeltsin.model.database import Database
from logwright.yeltsin.model.table import Table
from tests.support.counts import COUNTS
from tests.yeltsin.databases import Model
from tests.yeltsin.tables import golden, page_at

A, B, C, D, E = (page_at(number) for number in range(5))
CASES: dict[str, tuple[str, list[Operation], list[int], list[int]]] = {
    "modify": ("append3", [Modify(B, 2, b"lpha", b"LPHA"), Modify(B, 4, b"HA", b"ha")], [A, B, C, D], []),
    "allocate at the end": ("append3", [Allocate(E, 0, 0), Modify(E, 0, b"\0", b"x")], [A, B, C, D, E], []),
    "allocate a free page": ("delete_middle", [Allocate(B, B, 0)], [A, C, D, B], []),
    "allocate two free pages": ("delete_two", [Allocate(C, C, B), Allocate(B, B, 0)], [A, D, C, B], []),
    "remove in the middle": ("append3", [Remove(B, 0)], [A, C, D], [B]),
    "remove the first and the last": ("append3", [Remove(A, 0), Remove(D, A)], [B, C], [D, A]),
    "remove and allocate again": ("append3", [Remove(B, 0), Allocate(B, B, 0)], [A, C, D, B], []),
    "allocate and remove again": ("append3", [Allocate(E, 0, 0), Remove(E, 0)], [A, B, C, D], [E]),
    "turn two around": (
        "append3",
        [Remove(C, 0), Remove(D, C), Allocate(D, D, C), Allocate(C, C, 0)],
        [A, B, D, C],
        [],
    ),
    "the only page": ("new", [Remove(A, 0)], [A], []),
    "the only page, and another": ("new", [Remove(A, 0), Allocate(B, 0, 0)], [A, B], []),
    "another in the place of the only page": ("new", [Allocate(B, 0, 0), Remove(A, 0)], [B], [A]),
    "all but one": ("append3", [Remove(A, 0), Remove(B, A), Remove(C, B), Remove(D, C)], [D], [C, B, A]),
}


def write(directory: Path, table: str, *transactions: list[Operation], end: int = 255) -> None:
    (directory / "t.ydb").write_bytes(golden(table))
    with TransactionJournal(directory / "t.jrnl") as journal:
        for operations in transactions:
            journal.append(operations, end=end)


def opened(directory: Path) -> Database:
    return Database(directory / "t.ydb", directory / "t.jrnl")


@pytest.mark.parametrize("name", CASES)
def test_redo_is_idempotent(name: str, tmp_path: Path) -> None:
    table, operations, pages, free = CASES[name]
    write(tmp_path, table, operations)
    journal = (tmp_path / "t.jrnl").read_bytes()
    with opened(tmp_path) as db:
        assert db.redone == (20,)
        assert (db.pages(), db.free_pages(), db.verify().problems) == (pages, free, [])
        for operation in operations:
            if isinstance(operation, Modify) and operation.page in pages:
                assert db.read(operation.page, 2, 4) in (b"LPha", bytes(4))
        if pages[-1] == E:
            assert db.read(E) == b"x".ljust(PAGE_DATA_BYTES, b"\0")
    once = (tmp_path / "t.ydb").read_bytes()
    with opened(tmp_path) as db:
        assert db.redone == ()
    (tmp_path / "t.jrnl").write_bytes(journal)
    with opened(tmp_path) as db:
        assert db.redone == (20,)
    assert (tmp_path / "t.ydb").read_bytes() == once


def test_only_the_last_transaction_of_another_program_is_redone(tmp_path: Path) -> None:
    write(tmp_path, "append3", [Modify(B, 1, b"alpha", b"OTHER")], [Modify(C, 1, b"beta", b"BETA")])
    with opened(tmp_path) as db:
        assert len(db.redone) == 1
        assert (db.read(B, 1, 5), db.read(C, 1, 4)) == (b"alpha", b"BETA")


def test_rolled_back_transaction_is_never_redone(tmp_path: Path) -> None:
    write(tmp_path, "append3", [Modify(B, 1, b"alpha", b"OTHER")], end=ROLLBACK)
    with opened(tmp_path) as db:
        assert (db.redone, db.read(B, 1, 5)) == ((), b"alpha")
    assert (tmp_path / "t.ydb").read_bytes() == golden("append3")


def test_unfinished_table_is_repaired_by_the_last_transaction(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        with db.transaction() as tx:
            tx.modify(tx.allocate(), 0, b"data")
        with pytest.raises(ZeroDivisionError), db.transaction() as tx:
            tx.modify(A, 0, bytes([1 // int(tx.read(A, 0, 1)[0])]))
    whole = (tmp_path / "t.ydb").read_bytes()
    half = bytearray(whole)
    half[:4], half[14:22], half[B + 9 : B + 25] = b"TBL?", bytes(8), bytes(16)
    (tmp_path / "t.ydb").write_bytes(half)
    with pytest.raises(DamagedJournal, match="TBL"):
        Table(tmp_path / "t.ydb")
    with opened(tmp_path) as db:
        assert db.redone == (20,)
    assert (tmp_path / "t.ydb").read_bytes() == whole


def test_table_that_the_last_transaction_cannot_repair_stays_unfinished(tmp_path: Path) -> None:
    with opened(tmp_path) as db, db.transaction() as tx:
        tx.modify(A, 0, b"data")
    half = bytearray((tmp_path / "t.ydb").read_bytes())
    half[:4], half[14:22] = b"TBL?", bytes(8)
    (tmp_path / "t.ydb").write_bytes(half)
    with pytest.raises(DamagedJournal, match="broken after the redo"):
        opened(tmp_path)
    assert (tmp_path / "t.ydb").read_bytes() == half


HOSTILE: dict[str, list[Operation]] = {
    "modify past the end": [Modify(E, 0, b"a", b"b")],
    "modify in the header": [Modify(0, 0, b"a", b"b")],
    "modify beyond the page": [Modify(A, 65000, b"a" * 600, b"b" * 600)],
    "modify far away": [Modify(2**64 - 65536 + 30, 0, b"a", b"b")],
    "allocate far away": [Allocate(E + 65536, 0, 0)],
    "allocate between pages": [Allocate(A + 1, 0, 0)],
    "remove nothing": [Remove(7, 0)],
    "free list into a live page": [Remove(B, A)],
    "free list in a circle": [Remove(B, B)],
    "free list past the end": [Allocate(E, 0, 2**63)],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_impossible_operations_are_reported_and_change_nothing(name: str, tmp_path: Path) -> None:
    write(tmp_path, "append3", [Modify(A, 0, b"\0", b"z"), *HOSTILE[name]])
    journal = (tmp_path / "t.jrnl").read_bytes()
    with pytest.raises(DamagedJournal):
        opened(tmp_path)
    assert (tmp_path / "t.ydb").read_bytes() == golden("append3")
    assert (tmp_path / "t.jrnl").read_bytes() == journal
    COUNTS.add("hostile inputs", 1, "yeltsin")


def test_model_matches_the_files_of_the_original(tmp_path: Path) -> None:
    write(tmp_path, "append3")
    with opened(tmp_path) as db:
        model = Model([A, B, C, D], [], {page: db.read(page) for page in (A, B, C, D)})
        assert model.is_in(db)
        with db.transaction() as tx:
            for step in (tx, model):
                step.remove(B)
                step.modify(D, 0, b"new")
                step.modify(step.allocate(), 5, b"empty before")
        assert model.is_in(db)
