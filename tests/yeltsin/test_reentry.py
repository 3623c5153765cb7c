"""Journals and tables that change while they are read, and positions outside of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from logwright.core.bytes.outcome import Malformed
from logwright.errors import LogwrightError
from logwright.yeltsin.bytes import kernel
from logwright.yeltsin.bytes.codec import encode_header
from logwright.yeltsin.model.kernel import Changes, modify_at_once
from tests.support.reentry import run_apart, while_bytes_change
from tests.yeltsin.samples import journal, numbered
from tests.yeltsin.tables import golden, page_at


def reading_bytes_that_change() -> None:
    count = 60
    sound = journal(numbered(count))

    def read(buffer: bytearray) -> None:
        kernel.walk(buffer, 20, len(buffer), 0, 0, len(buffer))
        kernel.hop(buffer, 20, len(buffer), 0, 0, len(buffer))
        kernel.skim(buffer, 45, len(buffer), -1)
        for function in (kernel.columns, kernel.transactions, kernel.spans):
            with contextlib.suppress(LogwrightError, Malformed):
                function(buffer, 20, len(buffer), count, 0)

    while_bytes_change(sound, read, LogwrightError, Malformed)


def changing_places_far_outside() -> None:
    """Numbers that overflow when they are added do not become positions."""
    table = bytearray(golden("append3"))
    log = bytearray(encode_header(0, 0)) + bytes(1 << 16)
    before = bytes(table), bytes(log)
    most = 2**63 - 1
    for page in (most, most - 19, 2**62, len(table) + 1):
        for offset in (0, 1, 20):
            with pytest.raises(IndexError):
                Changes(table).modify(page, offset, b"data")
            with pytest.raises(IndexError):
                Changes(table).load(page, offset, 4)
            with pytest.raises(IndexError):
                modify_at_once(table, log, page, offset, b"data", 20, 0, 0)
    for place in (most, most - 60, 2**62):
        with pytest.raises(IndexError):
            Changes(table).load(page_at(0), place, 4)
        with pytest.raises(IndexError):
            Changes(table).load(page_at(0), 0, place)
        with pytest.raises(IndexError):
            modify_at_once(table, log, page_at(0), 0, b"data", place, 0, 0)
    assert (bytes(table), bytes(log)) == before


def cutting_the_operations_of_a_transaction_short() -> None:
    table = bytearray(golden("append3"))
    log = bytearray(encode_header(0, 0)) + bytes(1 << 16)
    before = bytes(table)
    changes = Changes(table)
    changes.modify(page_at(0), 0, b"data" * 100)
    changes.operations.clear()
    changes.load(page_at(0), 0, 400)
    calls: list[Callable[[], object]] = [lambda: changes.apply(table), lambda: changes.commit(log, 20, 0, 0)]
    for call in calls:
        with contextlib.suppress(IndexError):
            call()
    assert bytes(table)[4:] == before[4:]


@pytest.mark.parametrize(
    "scenario",
    [reading_bytes_that_change, changing_places_far_outside, cutting_the_operations_of_a_transaction_short],
    ids=lambda scenario: str(scenario.__name__),
)
def test_reentrant_calls_access_memory_within_bounds(scenario: Callable[[], None]) -> None:
    run_apart(scenario)
