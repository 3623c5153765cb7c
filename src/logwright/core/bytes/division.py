"""Integers divided by a thousand, rounded down: times in coarser units. `_division.pyx` is the same, compiled."""

from __future__ import annotations

from array import array

from ...errors import WrongUse
from .buffers import Buffer


def floor_thousandths(source: Buffer, target: bytearray | memoryview, count: int) -> None:
    """Divide `count` integers of 64 bits by 1000 into another buffer."""
    numbers, results = memoryview(source).cast("B"), memoryview(target).cast("B")
    if count < 0 or len(numbers) // 8 < count or len(results) // 8 < count:
        raise WrongUse(f"a buffer is shorter than {count} integers")
    results[: count * 8] = array("q", (number // 1000 for number in numbers[: count * 8].cast("q"))).tobytes()
