"""The pages that transactions imply equal those of a real table, before every one of them."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from logwright.yeltsin.bytes.records import Allocate, Modify, Operation, Remove, Transaction
from logwright.yeltsin.model.replay import Pages, Ranges, difference

PAGE_BYTES = 60


@pytest.mark.parametrize("seed", range(30))
def test_ranges_behave_like_a_page(seed: int) -> None:
    chance = random.Random(seed)
    ranges = Ranges()
    model: dict[int, int] = {}
    for _ in range(40):
        start, data = chance.randrange(80), chance.randbytes(chance.choice((0, 1, 3, 12)))
        if chance.random() < 0.7:
            ranges.put(start, data)
            model.update(enumerate(data, start))
        else:
            ranges.fill(start, data)
            model = {**dict(enumerate(data, start)), **model}
        found = ranges.items()
        assert {start + at: byte for start, data in found for at, byte in enumerate(data)} == model
        ends = [(start, start + len(data)) for start, data in found]
        assert all(end < following for (_, end), (following, _) in pairwise(ends)), "they touch"


def history(chance: random.Random, count: int) -> tuple[list[Transaction], list[dict[int, bytes]]]:
    """Transactions on a table, and all of its pages before each of them and after the last."""
    table = {page: bytearray(chance.randbytes(PAGE_BYTES)) for page in (30, 60, 90)}
    found: list[Transaction] = []
    states = []
    for number in range(count):
        states.append({page: bytes(data) for page, data in table.items()})
        is_void = chance.random() < 0.2
        before = {page: bytearray(data) for page, data in table.items()}
        operations = [_operation(chance, table, number) for _ in range(chance.randrange(4))]
        if is_void:
            table = before
        found.append(Transaction(0, 0, number, 1, tuple(operations), 0xFE if is_void else 0xFF))
    states.append({page: bytes(data) for page, data in table.items()})
    return found, states


def _operation(chance: random.Random, table: dict[int, bytearray], number: int) -> Operation:
    kind = chance.randrange(8)
    if kind == 0 or not table:
        page = 1000 + 10 * chance.randrange(5)
        table[page] = bytearray(PAGE_BYTES)
        return Allocate(page, 0, 0)
    page = chance.choice(sorted(table))
    if kind == 1:
        del table[page]
        return Remove(page, 0)
    start = chance.randrange(PAGE_BYTES - 10)
    after = chance.randbytes(chance.randrange(10))
    operation = Modify(page, start, bytes(table[page][start : start + len(after)]), after)
    table[page][start : start + len(after)] = after
    return operation


@pytest.mark.parametrize("seed", range(20))
def test_known_bytes_of_a_page_before_a_transaction_are_correct(seed: int) -> None:
    transactions, states = history(random.Random(seed), 25)
    known: list[dict[int, Ranges]] = []
    for at, state in enumerate(states):
        pages = Pages()
        for number, transaction in enumerate(transactions):
            (pages.apply if number < at else pages.look_back)(transaction)
        assert pages.transactions == at
        assert set(pages.known) <= set(state)
        for page, ranges in pages.known.items():
            for start, data in ranges.items():
                assert data == state[page][start : start + len(data)]
        known.append(pages.known)
    changed = difference(known[5], known[20])
    between = [item for transaction in transactions[5:20] for item in transaction.operations]
    allocated = {item.page for item in between if isinstance(item, Allocate)}  # their past is unknown
    for page in {int(page) for page in changed["changed"]} - allocated:
        assert states[5][page] != states[20][page]
    assert {int(page) for page in changed["added"]} == set(known[20]) - set(known[5])


def test_bytes_that_a_transaction_changes_are_known_on_both_sides_of_it() -> None:
    transactions, _ = history(random.Random(5), 25)
    for at, transaction in enumerate(transactions):
        before, after = Pages(), Pages()
        for number, item in enumerate(transactions):
            (before.apply if number < at else before.look_back)(item)
            (after.apply if number <= at else after.look_back)(item)
        last = transaction.operations[-1] if transaction.operations else None
        if transaction.outcome == "completed" and isinstance(last, Modify) and last.after:
            end = last.page_offset + len(last.after)
            assert after.known[last.page].part(last.page_offset, end) == last.after
