"""The database, the writer, the reader and the check agree on the transactions that must be redone."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from logwright.yeltsin.bytes import codec
from logwright.yeltsin.bytes.layout import COMPLETION, ROLLBACK
from logwright.yeltsin.bytes.records import Modify, Transaction
from logwright.yeltsin.files.check import summarize
from logwright.yeltsin.files.reader import Reader
from logwright.yeltsin.files.seal import seal
from logwright.yeltsin.files.writer import TransactionJournal
from logwright.yeltsin.model.database import Database
from logwright.yeltsin.model.table import create_table
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file, write_file
from tests.yeltsin.databases import HOME, JOURNAL, TABLE
from tests.yeltsin.samples import journal, linked, modify, transaction, write

FLAGGED, UNFLAGGED, SEALED, VOID = "flagged", "unflagged", "sealed", "void"


def story(kinds: tuple[str, ...]) -> tuple[bytes, list[int]]:
    """A journal of transactions of these kinds, and their positions."""
    items = [
        transaction(
            Modify(30, 5 * number, b"\0", bytes([number + 65])),
            timestamp=100 + number,
            flags=int(kind == FLAGGED),
            end=ROLLBACK if kind == VOID else COMPLETION,
            data=bytes(8) if kind == SEALED else b"",
        )
        for number, kind in enumerate(kinds)
    ]
    placed, starts = linked(items)
    sealed = [
        replace(item, end_data=_sealed(item)) if kind == SEALED else item
        for item, kind in zip(placed, kinds, strict=True)
    ]
    return journal(sealed), starts


def _sealed(item: Transaction) -> bytes:
    return seal(item.previous, item.timestamp, b"".join(map(codec.encode_operation, item.operations)))


def due(kinds: tuple[str, ...]) -> list[int]:
    """The transactions to redo: the last that is not void, and the sealed ones preceding it, up to a flag."""
    found: list[int] = []
    for number in reversed(range(len(kinds))):
        if kinds[number] == FLAGGED or (found and kinds[number] == UNFLAGGED):
            break
        if kinds[number] != VOID:
            found.insert(0, number)
    return found


@pytest.mark.parametrize("count", range(5))
def test_database_writer_reader_and_check_agree_on_the_redo(count: int) -> None:
    for kinds in itertools.product((FLAGGED, UNFLAGGED, SEALED, VOID), repeat=count):
        data, starts = story(kinds)
        disk = SimulatedDisk()
        disk.make_directory(HOME)
        write_file(disk, JOURNAL, data)
        wanted = due(kinds)
        reader = Reader(JOURNAL, disk=disk)
        assert reader.state()["redo"] == summarize(reader).details["redo"] == bool(wanted), kinds
        report = reader.verify()
        found = [item.position for item in report.anomalies if item.kind == "not_in_storage"]
        assert sorted(found + [starts[number] for number in wanted]) == [
            start for start, kind in zip(starts, kinds, strict=True) if kind in (UNFLAGGED, SEALED)
        ], kinds
        with TransactionJournal(JOURNAL, disk=disk) as writer:
            assert (None if writer.redo is None else writer.redo[0]) == (starts[wanted[-1]] if wanted else None), kinds
        if len(kinds) < 4:
            create_table(TABLE, disk=disk)
            with Database(TABLE, JOURNAL, disk=disk) as db:
                assert db.redone == tuple(starts[number] for number in wanted), kinds
                assert db.read(30, 0, 20)[::5] == bytes(65 + at if at in wanted else 0 for at in range(4)), kinds
            assert not Reader(JOURNAL, disk=disk).state()["redo"]


def test_unknown_flags_are_kept_by_a_redo() -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    items = [transaction(modify(b"\0", b"a"), flags=0x81), transaction(modify(b"a", b"b"), flags=0xC2)]
    write_file(disk, JOURNAL, journal([replace(item, operations=(Modify(30, 0, b"", b""),)) for item in items]))
    before = read_file(disk, JOURNAL)
    create_table(TABLE, disk=disk)
    with Database(TABLE, JOURNAL, disk=disk) as db:
        (redone,) = db.redone
    after = bytearray(before)
    after[redone + 24] = 0xC3
    assert read_file(disk, JOURNAL) == after


@pytest.mark.parametrize("end", [ROLLBACK, COMPLETION])
def test_summary_of_a_large_transaction_has_its_outcome(end: int, tmp_path: Path) -> None:
    large = transaction(modify(bytes(60_000), bytes(60_000)), flags=0, end=end)
    path = write(tmp_path / "t.jrnl", transaction(), large)
    summary = summarize(Reader(path))
    assert summary.last is not None
    assert summary.last["operations"] is None
    assert (summary.last["outcome"], summary.details["redo"]) == (
        ("rolled_back", False) if end == ROLLBACK else ("completed", True)
    )
