"""The kernel returns the same results as the codec; the contract tests do the same with damaged bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from logwright.core.bytes.compiled import COMPILED
from logwright.core.bytes.outcome import Malformed
from logwright.yeltsin.bytes import codec, kernel
from tests.contract.twins import Twins
from tests.yeltsin.samples import CREATED, journal, linked, modify, numbered, transaction

pytestmark = pytest.mark.skipif(not COMPILED, reason="the kernel is not built: there is nothing to compare")

TWINS = Twins("logwright.yeltsin", compiled=COMPILED)


def assert_twins_agree(data: bytes, chance: random.Random) -> None:
    """Assert that both twins return the same results for some bytes."""
    start = min(len(data), chance.choice((0, 20, 20, chance.randrange(len(data) + 1))))
    end = chance.choice((len(data), len(data), chance.randrange(start, len(data) + 1)))
    base = chance.choice((0, 0, 7, 2**40))
    previous = chance.choice((0, 0, 20, 2**64 - 1))
    last = chance.choice((len(data), 20, base + 20, 2**64 - 1))
    most = chance.choice((-1, -1, 0, 1, 3))
    stop, count, _, _ = TWINS.answers("walk", data, start, end, base, previous, last, most)
    TWINS.answers("hop", data, start, end, base, previous, last, most)
    TWINS.answers("skim", data, start, end, chance.choice((-1, start, end + 5)))
    want = chance.choice((codec.ALL_COLUMNS, chance.randrange(1 << 16)))
    for here, rows in ((stop, count), (end, chance.choice((0, 1, 2, count + 1, end)))):  # and where no walk has been
        for function in ("spans", "transactions"):
            TWINS.answers(function, data, start, here, rows, base)
        TWINS.answers("columns", data, start, here, rows, base, 5, want)


def mutated(data: bytes, chance: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(chance.choice((0, 1, 1, 3))):
        at = chance.randrange(len(found))
        found[at : at + chance.choice((1, 1, 2, 8))] = chance.choice((b"\x00", b"\xff", b"\x02", chance.randbytes(4)))
    return bytes(found[: chance.choice((len(found), chance.randrange(len(found) + 1)))])


@pytest.mark.parametrize("seed", range(40))
def test_both_implementations_agree_on_damaged_journals(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(25):
        items = numbered(chance.randrange(1, 8))
        items.insert(chance.randrange(len(items)), chance.choice((transaction(), transaction(end=0xFE, data=b"why"))))
        items.append(transaction(modify(b"a", b"b"), data=chance.choice((b"", b"carried", bytes(40)))))
        whole = journal(items, gap_bytes=chance.choice((0, 0, 3)))
        assert_twins_agree(mutated(whole, chance), chance)


def numbers(code: str, buffer: Any) -> Sequence[int]:
    found: Sequence[int] = memoryview(buffer).cast("B").cast(code).tolist()  # type: ignore[call-overload]
    return found


def test_columns_have_a_row_for_every_operation() -> None:
    data = journal(numbered(6))
    items, starts = linked(numbered(6))
    found = kernel.columns(data, 20, len(data), 6, 0, 100)
    expected = [(row, item) for row, record in enumerate(items) for item in record.operations]
    assert found.count == len(expected) == 9
    assert numbers("q", found.transactions) == [100 + row for row, _ in expected]
    assert numbers("Q", found.offsets) == [starts[row] for row, _ in expected]
    assert numbers("q", found.timestamps) == [CREATED + row for row, _ in expected]
    assert numbers("B", found.kinds) == [item.number for _, item in expected]
    assert numbers("Q", found.pages) == [item.page for _, item in expected]
    assert numbers("i", found.operations) == [0, 0, 1, 0, 0, 0, 1, 2, 0]
    assert numbers("B", found.endings) == [0xFF] * 9
    images = [getattr(item, "after", b"") for _, item in expected]
    assert bytes(found.after or b"") == b"".join(images)
    assert numbers("i", found.after_ends) == [sum(map(len, images[:row])) for row in range(len(images) + 1)]


def test_transaction_without_operations_has_a_row_and_ends_carry_data() -> None:
    items = [transaction(data=b"one"), transaction(modify(b"a", b"b"), modify(b"b", b"c"), data=b"two")]
    items += [transaction(end=0xFE), transaction(end=None), transaction(modify(b"d", b"e"))]
    data = journal(items)
    found = kernel.columns(data, 20, len(data), 5, 0)
    _, starts = linked(items)
    assert numbers("q", found.transactions) == [0, 1, 1, 2, 3, 4]
    assert numbers("B", found.kinds) == [0, 2, 2, 0, 0, 2]
    assert numbers("i", found.operations) == [0, 0, 1, 0, 0, 0]
    assert numbers("B", found.endings) == [0xFF, 0xFF, 0xFF, 0xFE, 0, 0xFF]
    assert numbers("q", found.sizes) == [8, 19, 19, 5, 0, 19]
    positions = [starts[0] + 25, starts[1] + 25, starts[1] + 44, starts[2] + 25, starts[3] + 25, starts[4] + 25]
    assert numbers("Q", found.positions) == positions
    assert bytes(found.end_data or b"") == b"onetwo"
    assert numbers("i", found.end_data_ends) == [0, 3, 3, 6, 6, 6, 6]
    without = kernel.columns(data, 20, len(data), 5, 0, 0, codec.ALL_COLUMNS & ~codec.END_DATA)
    assert (without.count, without.end_data) == (6, None)


def test_columns_of_an_unwalked_range_are_refused() -> None:
    data = journal(numbered(2))
    with pytest.raises(Malformed, match="not walked"):
        kernel.columns(data, 21, len(data), 1, 0)
