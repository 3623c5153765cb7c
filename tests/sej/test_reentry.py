"""Messages that are appended during an append, and bytes that change while they are read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from logwright.core.bytes.outcome import Malformed
from logwright.errors import LogwrightError, WrongUse
from logwright.sej.bytes import kernel, wire
from logwright.sej.bytes.kernel import AppendBuffer
from tests.support.reentry import at_collections, in_threads, run_apart, while_bytes_change


def packed(count: int) -> bytes:
    buffer = AppendBuffer(0, 0, 1 << 40, 1 << 40)
    for number in range(count):
        buffer.append(b"v" * (number % 90), b"k" * (number % 20))
    data, used = buffer.take()[:2]
    return bytes(data[:used])


class Taken:
    """The taken contents of a buffer, checked: every message once, in order of offsets, and each cut between two."""

    def __init__(self, buffer: AppendBuffer) -> None:
        self.buffer = buffer
        self.next_offset = 0
        self.cuts = 0

    def take(self) -> None:
        data, used, cuts, _, _ = self.buffer.take()
        end, count, ending, _, _ = kernel.walk(data, 0, used, self.next_offset)
        assert (end, ending) == (used, 0)
        starts = {start: self.next_offset + row for row, start in enumerate(kernel.spans(data, 0, used, count))}
        assert list(cuts) == sorted(cuts)
        for position, next_offset, _, _ in cuts:
            assert starts[position] == next_offset
        self.next_offset += count
        self.cuts += len(cuts)


def appending_when_the_collector_runs() -> None:
    """A finalizer that appends loses nothing: neither in `take` nor at the end of a segment."""
    buffer = AppendBuffer(0, 0, 200, 1 << 40)
    taken, offsets = Taken(buffer), set()
    with at_collections(lambda: offsets.add(buffer.append(b"from a finalizer"))):
        for _ in range(300):
            offsets.add(buffer.append(b"x" * 80))
            taken.take()
    taken.take()
    assert offsets == set(range(taken.next_offset))
    assert taken.cuts > 100


def appending_by_threads() -> None:
    buffer = AppendBuffer(0, 0, 500, 1 << 40)
    taken = Taken(buffer)

    def append() -> None:
        for number in range(3000):
            buffer.append(b"x" * (number % 100))

    def take() -> None:
        for _ in range(1000):
            taken.take()

    in_threads(append, append, take)
    taken.take()
    assert taken.next_offset == 6000


def closing_while_an_argument_is_converted() -> None:
    buffer = AppendBuffer(0, 0, 500, 1 << 40)

    class Closing:
        def __index__(self) -> int:
            buffer.refusing = True
            return 1

    with pytest.raises(WrongUse):
        buffer.append(b"", type=Closing())  # type: ignore[arg-type]
    assert buffer.buffered_bytes == 0


def reading_bytes_that_change() -> None:
    count = 200
    sound = packed(count)

    def read(buffer: bytearray) -> None:
        kernel.walk(buffer, 0, len(buffer), 0)
        for function in (kernel.columns, kernel.messages, kernel.spans):
            with contextlib.suppress(LogwrightError, Malformed):
                function(buffer, 0, len(buffer), count)
        kernel.find_head(buffer, 0, len(buffer), 5, 50, len(buffer))
        with contextlib.suppress(LogwrightError, Malformed):
            wire.from_wire(wire.to_wire(buffer, 0, len(buffer), count, 1), 1, 1 << 30)
        wire.from_wire(buffer, 1, 1 << 30)

    while_bytes_change(sound, read, LogwrightError, Malformed)


@pytest.mark.parametrize(
    "scenario",
    [
        appending_when_the_collector_runs,
        appending_by_threads,
        closing_while_an_argument_is_converted,
        reading_bytes_that_change,
    ],
    ids=lambda scenario: str(scenario.__name__),
)
def test_reentrant_calls_lose_nothing_and_read_within_bounds(scenario: Callable[[], None]) -> None:
    run_apart(scenario)
