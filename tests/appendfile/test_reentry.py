"""Records that are appended during an append, and bytes that change while they are read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from logwright.appendfile.bytes import kernel
from logwright.appendfile.bytes.kernel import AppendBuffer
from logwright.core.bytes.outcome import Malformed
from logwright.errors import LogwrightError
from tests.support.reentry import at_collections, in_threads, run_apart, while_bytes_change


class Taken:
    """The taken contents of a buffer, checked: whole records; each file begins with a checkpoint."""

    def __init__(self, buffer: AppendBuffer) -> None:
        self.buffer = buffer
        self.payloads: list[bytes] = []
        self.files = 0

    def take(self) -> None:
        data, used, cuts, _ = self.buffer.take()
        end, count, ending, _ = kernel.walk(data, 0, used)
        assert (end, ending) == (used, 0)
        starts = set(kernel.spans(data, 0, used, count))
        assert list(cuts) == sorted(cuts)
        for position, file_id, _ in cuts:
            assert position in starts
            assert data[position] == 1
            assert file_id == self.files + 1
            self.files = file_id
        self.payloads += kernel.payloads(data, 0, used, count)


def appending_when_the_collector_runs() -> None:
    buffer = AppendBuffer(1 << 40, file_bytes=150)
    taken, appended = Taken(buffer), 0

    def append() -> None:
        nonlocal appended
        buffer.append(b"from a finalizer")
        appended += 1
        if appended % 7 == 0:
            buffer.register()

    with at_collections(append):
        for _ in range(300):
            buffer.append(b"x" * 60)
            appended += 1
            taken.take()
    taken.take()
    assert len(taken.payloads) == appended
    assert taken.files > 100


def appending_by_threads() -> None:
    buffer = AppendBuffer(1 << 40, file_bytes=500)
    taken = Taken(buffer)

    def append() -> None:
        for number in range(3000):
            buffer.append(b"x" * (number % 100 + 1))
            if number % 50 == 0:
                buffer.register()

    def take() -> None:
        for _ in range(1000):
            taken.take()

    in_threads(append, append, take)
    taken.take()
    assert len(taken.payloads) == 6000


def reading_bytes_that_change() -> None:
    buffer = AppendBuffer(1 << 40)
    for number in range(200):
        buffer.append(b"x" * (number % 50 + 1))
        if number % 5 == 0:
            buffer.register()
    data, used = buffer.take()[:2]
    sound = bytes(data[:used])
    count = kernel.walk(sound, 0, used)[1]

    def read(buffer: bytearray) -> None:
        kernel.walk(buffer, 0, used)
        kernel.find_checkpoint(buffer, 0, used)
        kernel.find_chain(buffer, 0, used)
        for function in (
            kernel.columns,
            kernel.records,
            kernel.spans,
            kernel.payloads,
            kernel.pieces,
            kernel.checkpoints,
        ):
            with contextlib.suppress(LogwrightError, Malformed):
                function(buffer, 0, used, count)

    while_bytes_change(sound, read, LogwrightError, Malformed)


@pytest.mark.parametrize(
    "scenario",
    [appending_when_the_collector_runs, appending_by_threads, reading_bytes_that_change],
    ids=lambda scenario: str(scenario.__name__),
)
def test_reentrant_calls_lose_nothing_and_read_within_bounds(scenario: Callable[[], None]) -> None:
    run_apart(scenario)
