"""The fast path of a transaction: compiled and plain, it stores the same bytes as the slow path."""

from __future__ import annotations

import random
from typing import Any

import pytest

from logwright.core.bytes.compiled import COMPILED
from logwright.yeltsin.bytes.codec import decode, encode_header
from logwright.yeltsin.bytes.records import Modify, Transaction
from logwright.yeltsin.bytes.table_layout import PAGE_DATA_BYTES, PAGE_HEAD_BYTES
from logwright.yeltsin.files.seal import seal
from logwright.yeltsin.model import changes, kernel
from tests.yeltsin.tables import golden, page_at

TWINS = [pytest.param(changes.Changes, id="plain"), pytest.param(kernel.Changes, id="compiled")]


def some_changes(seed: int) -> list[tuple[int, int, bytes]]:
    chance = random.Random(seed)
    found = []
    for _ in range(chance.choice((1, 2, 20))):
        data = chance.randbytes(chance.choice((0, 1, 40, 300, PAGE_DATA_BYTES)))
        offset = chance.randrange(PAGE_DATA_BYTES - len(data) + 1)
        found.append((page_at(chance.randrange(4)), min(offset, chance.choice((100, PAGE_DATA_BYTES))), data))
    return found


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("seed", range(8))
def test_modifications_are_read_back_written_to_the_journal_and_made_in_the_table(twin: Any, seed: int) -> None:
    table, expected = bytearray(golden("append3")), bytearray(golden("append3"))
    journal = bytearray(encode_header(0, 0)) + bytes(4 << 20)
    end, previous = 20, 0
    for number in range(3):
        transaction = twin(table)
        operations = []
        for page, offset, data in some_changes(seed * 10 + number):
            start = page + PAGE_HEAD_BYTES + offset
            before = bytes(expected[start : start + len(data)])
            transaction.modify(page, offset, data)
            operations.append(Modify(page, offset, before, data))
            expected[start : start + len(data)] = data
            low = max(0, offset - 5)
            assert transaction.load(page, low, 50) == expected[page + 19 + low : page + 69 + low]
        before = bytes(table)
        transaction.commit(journal, end, previous, 1000 + number)
        assert table == expected
        assert before[:30] == table[:30]
        found = decode(journal, end)
        assert isinstance(found, tuple)
        sealed = seal(previous, 1000 + number, transaction.operations)
        assert found[0] == Transaction(previous, 0, 1000 + number, 1, tuple(operations), 0xFF, sealed)
        assert found[1].size == transaction.size
        assert journal[:20] == encode_header(20, end)
        assert not previous or int.from_bytes(journal[previous + 8 : previous + 16], "little") == end
        encoded = transaction.encode(previous, 1000 + number)
        assert encoded[:24] + b"\1" + encoded[25:] == journal[end : found[1].end]  # except for the flag
        applied = bytearray(before)
        transaction.apply(applied)
        assert applied == table
        assert transaction.ranges() == [(place, place + len(data)) for place, data in transaction.items()]
        assert b"".join(data for _, data in transaction.items()) == b"".join(each.after for each in operations)
        previous, end = end, found[1].end
    assert not any(journal[end:])


@pytest.mark.parametrize("twin", [pytest.param(changes, id="plain"), pytest.param(kernel, id="compiled")])
@pytest.mark.parametrize("seed", range(4))
def test_single_modification_equals_a_transaction_of_one(twin: Any, seed: int) -> None:
    table, journal = bytearray(golden("append3")), bytearray(encode_header(0, 0)) + bytes(4 << 20)
    expected = bytearray(table), bytearray(journal)
    end, previous = 20, 0
    for page, offset, data in some_changes(seed):
        if data:
            transaction = changes.Changes(expected[0])
            transaction.modify(page, offset, data)
            transaction.commit(expected[1], end, previous, 77)
            found = twin.modify_at_once(table, journal, page, offset, data, end, previous, 77)
            assert found == end + transaction.size
            previous, end = end, found
    assert (table, journal) == expected


def test_compiled_single_modification_writes_within_its_memory() -> None:
    if not COMPILED:
        pytest.skip("the kernel is not built")
    table, journal = bytearray(golden("new")), bytearray(encode_header(0, 0)) + bytes(200)
    kept = bytes(table), bytes(journal)
    page = page_at(0)
    for where in (
        (page_at(1), 0, b"x", 20, 0),
        (page, PAGE_DATA_BYTES, b"x", 20, 0),
        (page, 2**16, b"x", 20, 0),
        (page, -1, b"x", 20, 0),
        (2**62, 0, b"x", 20, 0),
        (-9, 0, b"x", 20, 0),
        (page, 0, bytes(2**16), 20, 0),
        (page, 0, bytes(70), 26, 0),
        (page, 0, b"x", 2**62, 0),
        (page, 0, b"x", 19, 0),
        (page, 0, b"x", 20, 20),
        (page, 0, b"x", 50, 7),
    ):
        with pytest.raises(IndexError):
            kernel.modify_at_once(table, journal, *where, 0)
    with pytest.raises(BufferError):
        kernel.modify_at_once(bytes(table), journal, page, 0, b"x", 20, 0, 0)  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        kernel.modify_at_once(table, bytes(journal), page, 0, b"x", 20, 0, 0)  # type: ignore[arg-type]
    assert (bytes(table), bytes(journal)) == kept


def test_compiled_modification_writes_within_its_memory() -> None:
    if not COMPILED:
        pytest.skip("the kernel is not built")
    table, journal = bytearray(golden("new")), bytearray(encode_header(0, 0)) + bytes(200)
    transaction = kernel.Changes(table)
    for page, offset, size in ((page_at(1), 0, 1), (page_at(0), PAGE_DATA_BYTES, 1), (2**62, 0, 1), (-9, 0, 1)):
        with pytest.raises(IndexError):
            transaction.modify(page, offset, bytes(size))
        with pytest.raises(IndexError):
            transaction.load(page, offset, size)
    transaction.modify(page_at(0), 0, bytes(70))
    kept = bytes(table), bytes(journal)
    for position, previous in ((26, 0), (219, 0), (2**62, 0), (20, 20), (0, 0), (-5, 0), (50, 7)):
        with pytest.raises(IndexError):
            transaction.commit(journal, position, previous, 0)
    with pytest.raises(BufferError):
        transaction.commit(bytes(journal), 20, 0, 0)  # type: ignore[arg-type]
    for short in (table[:100], bytearray()):
        with pytest.raises(IndexError):
            transaction.apply(short)
    with pytest.raises(BufferError):
        transaction.apply(bytes(table))  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        kernel.Changes(table[:3]).commit(journal, 20, 0, 0)
    del table[100:]
    with pytest.raises(IndexError):
        transaction.commit(bytearray(4096), 20, 0, 0)
    assert (bytes(table), bytes(journal)) == (kept[0][:100], kept[1])
