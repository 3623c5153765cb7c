"""Queues that are changed in the middle of a call, and bytes that change while they are read."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from logwright.core.bytes.outcome import Malformed
from logwright.errors import LogwrightError, WrongUse
from logwright.kestrel.bytes import kernel
from logwright.kestrel.bytes.kernel import AppendBuffer, copy_adds
from logwright.kestrel.bytes.layout import ADD_XID, ADDX, DOCUMENTED, REMOVE, REMOVE_TENTATIVE, UNREMOVE
from logwright.kestrel.model.memory import Shelf
from logwright.kestrel.model.replay import Replay
from tests.support.reentry import at_collections, in_threads, run_apart, while_bytes_change


def packed(count: int) -> bytes:
    buffer = AppendBuffer(0, 1 << 40)
    for number in range(count):
        buffer.addx(b"x" * (number % 50), added=1)
        buffer.remove_tentative()
        buffer.unremove(number)
    data, used = buffer.take()
    return bytes(data[:used])


def operations(kinds: list[int], ids: list[int] | None = None) -> tuple[bytes, Any, Any, int]:
    positions = array("q", range(0, 100 * len(kinds), 100))
    return bytes(kinds), array("i", ids or [0] * len(kinds)), positions, 100 * len(kinds)


ADDED = operations([ADDX] * 50 + [ADD_XID] * 50, [0] * 50 + list(range(1, 51)))
RESERVED = operations([REMOVE_TENTATIVE] * 40)
PUT_BACK = operations([UNREMOVE] * 40, list(range(1, 41)))


def asking_a_replay_while_the_collector_adds_to_it() -> None:
    """The result is the state at one moment."""
    replay = Replay()
    for batch in (ADDED, RESERVED, PUT_BACK, RESERVED):
        replay.add(*batch)
    replay.add(*operations([UNREMOVE] * 20, list(range(41, 61))))
    before = replay.open()
    left = [20]

    def add() -> None:
        left[0] -= 1
        if left[0] >= 0:
            replay.add(*ADDED)

    with at_collections(add):
        for _ in range(20):
            left[0] = 5
            assert replay.open() == before
            left[0] = 5
            assert len(replay.front()) == 20
            left[0] = 5
            assert replay.items()[20:60] == list(range(40, 80))
    removed = operations([REMOVE] * 3)
    with at_collections(lambda: replay.add(*removed)):
        for _ in range(100):
            count = len(replay)
            assert count - len(replay.items()) in range(0, 60, 3)
            replay.open()  # starts the collector


def a_replay_among_threads() -> None:
    replay = Replay()
    large = operations([ADDX] * 500)

    def add() -> None:
        for _ in range(20):
            replay.add(*large)

    def ask() -> None:
        for _ in range(20):
            assert len(replay.items()) % 500 == 0
            assert replay.open() == []
            assert replay.anomalies == []
            assert replay.events == []

    in_threads(add, add, ask)


class Item(bytes):
    """An item that puts another one when it is finalized."""

    shelf: Shelf | None = None

    def __del__(self) -> None:
        if self.shelf is not None:
            with self.shelf.mutex:
                self.shelf.put_locked(b"from a finalizer", 0, 0)


def clearing_a_shelf_of_items_that_put_others() -> None:
    shelf = Shelf(0, 1 << 40, DOCUMENTED)
    for _ in range(100):
        item = Item(b"item")
        item.shelf = shelf
        shelf.put(item)
        del item
    shelf.clear()
    entries = shelf.entries()
    assert (shelf.items, shelf.memory_items) == (len(entries), len(entries))
    assert {entry[0] for entry in entries} <= {b"from a finalizer"}


def a_shelf_that_changes_while_its_items_are_listed() -> None:
    for number in range(30):
        shelf = Shelf(0, 1 << 40, DOCUMENTED)
        for place in range(100):
            shelf.put(b"item %d" % place)
        left = [number]

        def change(shelf: Shelf = shelf, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0 and shelf.memory_items:
                shelf.pop()
                shelf.put(b"more")

        with at_collections(change):
            for entry in shelf.entries():
                assert entry[0].startswith((b"item ", b"more"))
            while shelf.memory_items > 50:
                assert shelf.pop()[0].startswith((b"item ", b"more"))


def calling_a_queue_from_within_its_own_call() -> None:
    """Refused, instead of deadlocking."""
    shelf = Shelf(0, 1 << 40, DOCUMENTED)

    def clock() -> int:
        shelf.put(b"another")
        return 0

    shelf.clock = clock
    with pytest.raises(WrongUse):
        shelf.put(b"one")
    shelf.clock = None
    shelf.put(b"one")
    assert shelf.get() == b"one"


def closing_while_an_argument_is_converted() -> None:
    buffer = AppendBuffer(0, 1 << 40)

    class Closing:
        def __index__(self) -> int:
            buffer.refusing = True
            return 1

    calls: list[Callable[[], object]] = [
        lambda: buffer.unremove(Closing()),  # type: ignore[arg-type]
        lambda: buffer.addx(b"", added=Closing()),  # type: ignore[arg-type]
    ]
    for call in calls:
        buffer.refusing = False
        with pytest.raises(WrongUse):
            call()
    assert buffer.buffered_bytes == 0


def reading_bytes_that_change() -> None:
    sound = packed(100)
    count = kernel.walk(sound, 0, len(sound), DOCUMENTED)[1]

    def read(buffer: bytearray) -> None:
        kernel.walk(buffer, 0, len(buffer), DOCUMENTED)
        kernel.find_add(buffer, 0, len(buffer), len(buffer), DOCUMENTED, True)
        for function in (kernel.columns, kernel.operations, kernel.spans, kernel.effects):
            with contextlib.suppress(LogwrightError, Malformed):
                function(buffer, 0, len(buffer), count, DOCUMENTED)

    while_bytes_change(sound, read, LogwrightError, Malformed)


def copying_adds_whose_places_change() -> None:
    sound = packed(200)
    kinds, _, positions = kernel.effects(sound, 0, len(sound), 600, DOCUMENTED)
    places = bytes(positions.tobytes())

    def read(buffer: bytearray) -> None:
        copy_adds(sound, 0, kinds, memoryview(buffer).cast("q"), len(sound), 0)

    while_bytes_change(places, read, ValueError)


@pytest.mark.parametrize(
    "scenario",
    [
        asking_a_replay_while_the_collector_adds_to_it,
        a_replay_among_threads,
        clearing_a_shelf_of_items_that_put_others,
        a_shelf_that_changes_while_its_items_are_listed,
        calling_a_queue_from_within_its_own_call,
        closing_while_an_argument_is_converted,
        reading_bytes_that_change,
        copying_adds_whose_places_change,
    ],
    ids=lambda scenario: str(scenario.__name__),
)
def test_reentrant_calls_lose_nothing_and_read_within_bounds(scenario: Callable[[], None]) -> None:
    run_apart(scenario)
