"""Following journals: each transaction once, in order, while a writer appends."""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.errors import DamagedJournal, Truncated
from logwright.yeltsin.bytes.records import Transaction
from logwright.yeltsin.files.scanner import Scanner
from logwright.yeltsin.files.writer import TransactionJournal
from tests.yeltsin.samples import CREATED, linked, numbered, write
from tests.yeltsin.test_reader import DATA, STARTS, with_link


def new(scanner: Scanner[Transaction]) -> list[int]:
    """The received transactions, by their time."""
    return [record.timestamp - CREATED for record in scanner]


def test_appended_operations_are_read_once_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    with TransactionJournal(path) as writer, Scanner(path, timeout=0) as scanner:
        assert new(scanner) == []
        for item in numbered(5):
            writer.append_transaction(item)
        assert new(scanner) == []
        writer.flush()
        assert new(scanner) == [0, 1, 2, 3, 4]
        writer.append_transaction(numbered(6)[5])
        writer.sync()
        assert new(scanner) == [5]
        assert new(scanner) == []


def test_stream_starts_at_the_given_offset(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jrnl", *numbered(8))
    with Scanner(path, linked(numbered(8))[1][5], timeout=0) as scanner:
        assert new(scanner) == [5, 6, 7]


def test_journals_that_appear_later_are_followed_from_their_beginning(tmp_path: Path) -> None:
    write(tmp_path / "a.jrnl", *numbered(2))
    with Scanner(tmp_path, timeout=0) as scanner:
        assert new(scanner) == [0, 1]
        write(tmp_path / "b.jrnl", *numbered(3))
        assert new(scanner) == [0, 1, 2]


def test_incomplete_tail_is_waited_for_and_damage_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    path.write_bytes(with_link(STARTS[2] + 8, 3) + b"tail")
    with pytest.raises(DamagedJournal), Scanner(path, timeout=0) as scanner:
        new(scanner)
    with Scanner(path, timeout=0, mode="permissive") as scanner:
        found = [
            item.start if isinstance(item, Damage) else item.record.timestamp - CREATED for item in scanner.located()
        ]
        assert found == [0, 1, 2, STARTS[2] + 8, 3, 4, 5]
        assert list(scanner.located()) == []


def test_truncated_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    path.write_bytes(DATA)
    with Scanner(path, timeout=0) as scanner:
        assert len(new(scanner)) == 6
        path.write_bytes(DATA[: STARTS[3]])
        with pytest.raises(Truncated, match="was cut short"):
            new(scanner)
