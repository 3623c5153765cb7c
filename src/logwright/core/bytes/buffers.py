"""Buffers that a codec reads: range checks, and columns of numbers. `_buffers.pyx` is the same for the kernels.

A walk checks every record of a range. The functions that make objects, columns or spans take the range that was walked
and the number of its records. For a range that was not walked they raise `Malformed` before they allocate anything.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TypeAlias

from ...errors import TooLarge, WrongUse
from .outcome import Malformed

Buffer: TypeAlias = bytes | bytearray | memoryview


def check_range(buffer: Buffer, start: int, end: int) -> None:
    """Raise `WrongUse` unless a range is within a buffer."""
    if not 0 <= start <= end <= len(buffer):
        raise WrongUse(f"the range {start}..{end} is not within a buffer of {len(buffer)} bytes")


def check_count(start: int, stop: int, count: int, least_bytes: int) -> None:
    """Raise `Malformed` if the range is too short for `count` records of at least `least_bytes` each."""
    if not 0 <= count <= (stop - start) // least_bytes:
        raise not_walked(start)


def not_walked(position: int) -> Malformed:
    """The error for a range that was not walked."""
    return Malformed(position, "the range was not walked")


def starts_of(start: int, stop: int, count: int, size_at: Callable[[int], int | None]) -> array[int]:
    """Where each of the `count` records of a walked range begins, and where the last one ends.

    `size_at` returns the size of the record at a position, or None if there is no record.
    """
    starts = array("q", [start])
    position = start
    for _ in range(count):
        size = size_at(position)
        if size is None or position + size > stop:
            raise not_walked(position)
        position += size
        starts.append(position)
    return starts


def as_bytes(data: Buffer) -> bytes:
    """The contents of a buffer. `TypeError` for anything else, such as numbers and lists."""
    if isinstance(data, bytes):
        return data
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("memoryview: underlying buffer is not C-contiguous")
    return view.tobytes()


# --- columns to be packed ---------------------------------------------------------------------------------------------


def column_items(code: str, buffer: Buffer | None, count: int, name: str) -> array[int] | None:
    """The first `count` numbers of a column; None if the column is missing."""
    if buffer is None:
        return None
    items = array(code)
    view = memoryview(buffer).cast("B")
    if count < 0 or len(view) < count * items.itemsize:
        raise WrongUse(f"column {name} is shorter than its rows")
    items.frombytes(view[: count * items.itemsize])
    return items


def column_bytes(buffer: Buffer | None) -> memoryview:
    """The bytes of a column; empty if the column is missing."""
    return memoryview(b"" if buffer is None else buffer).cast("B")


def check_ends(ends: array[int] | None, count: int, have: int, limit: int, name: str) -> None:
    """Raise unless the ends of a column rise, are within its bytes, and leave no item longer than the limit."""
    if ends is None or count == 0:
        return
    if ends[0] < 0 or ends[count] > have:
        raise WrongUse("the ends of a column lie outside of its data")
    for row in range(count):
        width = ends[row + 1] - ends[row]
        if width < 0:
            raise WrongUse("the ends of a column do not rise")
        if width > limit:
            raise TooLarge(f"a {name} of {width} bytes does not fit: the limit is {limit} bytes")


def column_part(data: memoryview, ends: array[int] | None, row: int) -> bytes:
    """The bytes of a row; empty in a column without ends."""
    if ends is None:
        return b""
    if not 0 <= ends[row] <= ends[row + 1] <= len(data):
        raise WrongUse(f"row {row} is not within its columns")
    return bytes(data[ends[row] : ends[row + 1]])
