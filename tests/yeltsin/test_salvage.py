"""Salvage: whole transactions after damage are found and keep their offsets, even if bytes were inserted or removed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logwright.yeltsin.bytes import codec
from logwright.yeltsin.bytes.layout import HEADER_BYTES, LEAST_TRANSACTION_BYTES, LINK
from logwright.yeltsin.bytes.records import Transaction
from logwright.yeltsin.files.reader import Reader
from logwright.yeltsin.files.repair import apply, plan, undo
from logwright.yeltsin.model.database import Database
from tests.support.damage import cut, drop, insert, overwrite, repeat
from tests.yeltsin.samples import CREATED, journal, linked, modify, numbered, transaction

COUNT = 123
ITEMS, STARTS = linked(numbered(COUNT))
DATA = journal(numbered(COUNT))
INNER = journal(numbered(20))


def repaired(path: Path, data: bytes) -> list[Transaction]:
    """Repair a file, undo this, and repair it again; the remaining transactions."""
    path.write_bytes(data)
    made = plan(path)
    apply(path, made)
    assert Reader(path).verify().problems == []
    assert plan(path).empty
    undo(path)
    assert path.read_bytes() == data
    apply(path, made)
    return list(Reader(path))


def numbers(items: list[Transaction]) -> list[int]:
    return [item.timestamp - CREATED for item in items]


def lost(path: Path) -> list[tuple[int, int | None]]:
    return [(loss.at_least, loss.at_most) for loss in Reader(path).losses() if loss.kind == "lost"]


def restored(path: Path) -> list[str]:
    return [loss.what for loss in Reader(path).losses() if loss.kind == "restored"]


# --- bytes that were removed or inserted ----------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 3, 20])
def test_number_of_lost_transactions_is_not_exact_if_the_link_to_the_ones_before_is_gone(
    tmp_path: Path, number: int
) -> None:
    path = tmp_path / "t.jrnl"
    end = STARTS[number] + LINK.size
    assert numbers(repaired(path, drop(DATA, 0, end))) == [*range(number + 1, COUNT)]
    assert lost(path) == [(1, (STARTS[number + 1] - HEADER_BYTES) // LEAST_TRANSACTION_BYTES)]


def test_three_removed_bytes_lose_their_transaction(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    found = repaired(path, drop(DATA, STARTS[5] + 30, STARTS[5] + 33))
    assert numbers(found) == [*range(5), *range(6, COUNT)]
    assert [item.operations for item in found] == [item.operations for item in ITEMS[:5] + ITEMS[6:]]
    assert lost(path) == [(1, 1)]
    assert restored(path) == [
        f"`next` of the transaction at {STARTS[4]}, `previous` of the transaction at {STARTS[6]}",
        "the places of 117 transactions: 3 bytes were removed before them",
    ]


def test_three_inserted_bytes_lose_their_transaction(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    assert numbers(repaired(path, insert(DATA, STARTS[60] + 30, b"abc"))) == [*range(60), *range(61, COUNT)]
    assert lost(path) == [(1, 1)]


@pytest.mark.parametrize("at", [0, 3, 7, 8])
def test_bytes_inserted_between_transactions_or_into_a_link_lose_nothing(tmp_path: Path, at: int) -> None:
    path = tmp_path / "t.jrnl"
    repaired(path, insert(DATA, STARTS[60] + at, b"abc"))
    assert path.read_bytes() == DATA
    assert lost(path) == []
    assert restored(path)[-1] == "the places of 63 transactions: 3 bytes were inserted before them"


def test_transactions_keep_their_original_offsets(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    repaired(path, drop(DATA, STARTS[5] + 30, STARTS[5] + 33))
    assert [item.span.start for item in Reader(path).scan()] == STARTS[:5] + STARTS[6:]
    after = path.read_bytes()
    assert after[STARTS[5] : STARTS[6]] == bytes(STARTS[6] - STARTS[5])
    assert after[STARTS[6] + 8 :] == DATA[STARTS[6] + 8 :]


def test_removed_transactions_are_reported_as_lost(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    assert numbers(repaired(path, drop(DATA, STARTS[50], STARTS[53]))) == [*range(50), *range(53, COUNT)]
    assert lost(path) == [(1, (STARTS[53] - STARTS[50]) // 30)]


def test_duplicated_bytes_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    repaired(path, repeat(DATA, STARTS[10] + 5, STARTS[20] + 5))
    assert path.read_bytes() == DATA
    assert lost(path) == []


def test_last_transaction_is_found_by_the_header(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    assert numbers(repaired(path, drop(DATA, STARTS[-2] + 30, STARTS[-2] + 33))) == [*range(COUNT - 2), COUNT - 1]
    assert lost(path) == [(1, 1)]


def test_bytes_removed_and_inserted_in_two_places_are_repaired(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    data = drop(insert(DATA, STARTS[80] + 30, b"12345"), STARTS[40] + 30, STARTS[40] + 33)
    assert numbers(repaired(path, data)) == [*range(40), *range(41, 80), *range(81, COUNT)]
    assert lost(path) == [(1, 1), (1, 1)]


# --- the beginning --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0, 4, 20])
def test_zeroed_first_page_loses_only_its_content(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "t.jrnl"
    first = next(number for number, start in enumerate(STARTS) if start >= 4096)
    assert numbers(repaired(path, overwrite(DATA, kept, bytes(4096 - kept)))) == list(range(first, COUNT))
    assert lost(path) == [(1, (STARTS[first] - 20) // 30)]


def test_bytes_before_the_header_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    repaired(path, b"abc" + DATA)
    assert path.read_bytes() == DATA


def test_file_without_its_beginning_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    found = numbers(repaired(path, DATA[1000:]))
    assert found == list(range(COUNT - len(found), COUNT))
    assert STARTS[found[0] - 1] < 1020 <= STARTS[found[0]]


# --- journals within pages ------------------------------------------------------------------------------------------


def outer(after: int) -> tuple[list[Transaction], list[int]]:
    """Transactions; the second one writes another journal to a page, and `after` follow it."""
    holds = transaction(modify(bytes(len(INNER)), INNER), timestamp=CREATED - 1)
    more = [transaction(timestamp=CREATED + 1000 + number) for number in range(after)]
    return linked([transaction(timestamp=CREATED - 2), holds, *more])


@pytest.mark.parametrize("after", [0, 1, 5])
@pytest.mark.parametrize(
    ("damage", "at", "more"),
    [
        (overwrite, 25, b"\x77"),
        (overwrite, 25, bytes(60)),
        (overwrite, -30, bytes(70)),
        (overwrite, 1900, b"\x77"),
        (drop, 25, 3),
        (insert, 45, b"abc"),
    ],
)
def test_journal_within_a_page_is_not_mistaken_for_this_one(
    tmp_path: Path, after: int, damage: Callable[..., bytes], at: int, more: bytes | int
) -> None:
    items, starts = outer(after)
    place = starts[1] + at
    path = tmp_path / "t.jrnl"
    path.write_bytes(damage(journal(items), place, place + more if isinstance(more, int) else more))
    apply(path, plan(path))
    found = [item.timestamp for item in Reader(path).transactions(mode="dropmalformed")]
    expected = [item.timestamp for item in items]
    assert found == [time for time in expected if time in found]
    assert found[len(found) - after :] == expected[2:]


def test_file_that_ends_with_a_transaction_of_a_journal_within_a_page_is_cut_short(tmp_path: Path) -> None:
    data = journal([transaction(modify(bytes(len(INNER)), INNER))])
    path = tmp_path / "t.jrnl"
    for size in (len(data) - 5, len(data) - 5 - len(codec.encode(numbered(20)[-1]))):
        path.write_bytes(cut(data, size))
        apply(path, plan(path))
        assert list(Reader(path)) == []


# --- seals ----------------------------------------------------------------------------------------------------------


def test_sealed_transaction_after_lost_ones_is_redone(tmp_path: Path) -> None:
    path, copy = tmp_path / "t.jrnl", tmp_path / "copy" / "t.jrnl"
    copy.parent.mkdir()
    with Database(tmp_path / "t.ydb", path, checkpoint_bytes=1 << 20) as db:
        table = (tmp_path / "t.ydb").read_bytes()
        starts = []
        for number in range(6):
            starts.append(Reader(path).next)
            with db.transaction() as tx:
                tx.modify(30, number, b"x")
        data = path.read_bytes()
    copy.write_bytes(drop(data, starts[2] + 30, starts[2] + 33))
    copy.with_name("t.ydb").write_bytes(table)
    apply(copy, plan(copy))
    assert lost(copy) == [(1, 1)]
    with Database(copy.with_name("t.ydb"), copy) as db:
        assert (len(db.redone), db.read(30, 0, 7)) == (5, b"xx\0xxx\0")


def test_plan_for_isolated_transactions_reads_few_bytes_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = journal([transaction(modify(b"before", b"after!"))])[HEADER_BYTES:]
    every = len(whole) + 30
    preadv, pread = os.preadv, os.pread
    read: list[int] = []

    def counting_preadv(*arguments: Any) -> int:
        read.append(preadv(*arguments))
        return read[-1]

    def counting_pread(*arguments: Any) -> bytes:
        data = pread(*arguments)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "preadv", counting_preadv)
    monkeypatch.setattr(os, "pread", counting_pread)
    path = tmp_path / "t.jrnl"
    found = []
    for count in (200, 400):
        starts = range(HEADER_BYTES, HEADER_BYTES + count * every, every)
        parts = [LINK.pack(start + 1) + LINK.pack(start + len(whole)) + whole[16:] + b"U" * 30 for start in starts]
        path.write_bytes(codec.encode_header(HEADER_BYTES, 0) + b"".join(parts))
        read.clear()
        assert len(plan(path).losses) == count + 1
        found.append((len(read), sum(read)))
    assert found[1][0] < 2.1 * found[0][0]
    assert found[1][1] < 2.2 * found[0][1]
    assert found[1][1] < 400 * 40_000
