"""Rotation: the state of a store in a new journal, in place of the one that led to it; crash safe at every step.

What a crash right after each step leaves, and what opening the store makes of it:

    1. T, the time of the last entry, is chosen so that no archive has it       the journal as it was
    2. the state is written to `.tmp`, which is synced; so is the journal       the same; `.tmp` is removed
    3. the journal becomes `.old`, and that is synced                           `.old` becomes the journal again
    4. `.tmp` becomes the journal, and that is synced                           the new journal; `.old` is archived
    5. the archive is made, see `archiving.py`                                  the same, or only `.old` is removed

Writers wait for 2 to 4, that is for the state to be written, and never for 5. An old journal that has not been archived
yet must not be replaced by another one: until it is gone, the journal grows in place.

What fails before anything is written (the directory cannot be listed, `.tmp` not created), or for want of space, has
changed nothing: the store continues in the rest of its buffer, or in a larger one, and rotates later. Any other failure
is final for it, as a failed write always is.

The state has the last entry of each key as it was, with its own time, the oldest first.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from ...core.io.disk import Disk, File
from ...errors import CapacityExceeded, WrongUse
from ..bytes import codec
from ..bytes.layout import HEADER_BYTES
from ..bytes.records import Metadata
from ..files.buffer import LEAST_BYTES, Buffer, abandon, mark_at
from ..files.files import active_name, old_name, temporary_name
from .kernel import Moves, Table

MAX_CAPACITY: Final = 1 << 30
_MOST_RESERVED_BYTES: Final = 4096
_MOST_FILE_BYTES: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a store's buffer is at first and at most, and how much of it is used before it is rotated."""

    capacity: int = 1 << 20
    high_water_mark: float = 0.8
    max_capacity: int = MAX_CAPACITY

    def __post_init__(self) -> None:
        for name in ("capacity", "max_capacity"):
            _check_size(name, getattr(self, name))
        if self.capacity < LEAST_BYTES:
            raise WrongUse(f"a capacity of {self.capacity} bytes is too small: {LEAST_BYTES} is the least")
        if self.max_capacity < self.capacity:
            raise WrongUse(f"max_capacity, {self.max_capacity}, is less than the capacity, {self.capacity}")
        if not isinstance(self.high_water_mark, int | float) or not 0 < self.high_water_mark <= 1:
            raise WrongUse(f"high_water_mark is {self.high_water_mark!r}, and must be above 0 and at most 1")

    @classmethod
    def of(cls, capacity: int, high_water_mark: float, max_capacity: int | None) -> Self:
        """These sizes; without a limit the usual one, or what is asked for if that is more."""
        _check_size("capacity", capacity)
        return cls(capacity, high_water_mark, max(MAX_CAPACITY, capacity) if max_capacity is None else max_capacity)

    def soft_end(self, size: int, base: int) -> int:
        """Where a buffer of this size is to be rotated, when it began with a state that ends at `base`.

        That is at the high-water mark, but not before half of what the state has left is used: or a store at its limit
        would do nothing but rotate.
        """
        end = room(size)
        return min(end, max(int(size * self.high_water_mark), base + (end - base) // 2))

    def fitting(self, needed: int, *, removes: bool = False) -> int:
        """The size of a buffer for a state of `needed` bytes: so that it fills no more than half of it, if it may.

        `CapacityExceeded` when no size will do.
        """
        size = self.capacity
        while size < self.max_capacity and needed > int(size * self.high_water_mark) // 2:
            size = min(2 * size, self.max_capacity)
        if needed > room(size, removes=removes):
            raise CapacityExceeded(
                f"the store needs {needed} bytes, and its buffer may have {self.max_capacity} (max_capacity)"
            )
        return size

    def grown(self, size: int, needed: int) -> int | None:
        """The size that a buffer has to grow to; None when it may not."""
        while needed > room(size):
            if size >= self.max_capacity:
                return None
            size = min(2 * size, self.max_capacity)
        return size


def _check_size(name: str, size: int) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or size > _MOST_FILE_BYTES:
        raise WrongUse(f"{name} is {size!r}, and must be a number of bytes that a file can have")


def room(size: int, *, removes: bool = False) -> int:
    """Where the entries of a buffer end at most. A little is left for those that remove keys: or nothing ever could."""
    return mark_at(size) - (0 if removes else min(size // 16, _MOST_RESERVED_BYTES))


def head_bytes(initialized: int) -> int:
    """How many bytes of a journal are before its first entry."""
    return HEADER_BYTES + len(codec.encode_metadata(Metadata(initialized)))


def new_journal(disk: Disk, directory: Path, store: str) -> File:
    """The file of the next journal, with nothing in it; until something is, nothing has changed."""
    path = directory / temporary_name(store)
    disk.remove(path)
    return disk.open(path, "create")


def write_journal(disk: Disk, file: File, size: int, initialized: int, table: Table) -> tuple[Buffer, Moves]:
    """Write the state of a store to a new journal, and sync it. It is removed again if that fails."""
    start = head_bytes(initialized)
    buffer = Buffer.create(disk, file, size, start + table.live_bytes)
    try:
        moves = table.compact(start, buffer.put)
        buffer.put(0, codec.encode_header(moves.end) + codec.encode_metadata(Metadata(initialized)))
        buffer.set_mark(moves.end)
        buffer.sync()
    except BaseException:
        buffer.forget()  # the error holds this frame, which must not hold the mapping
        abandon(disk, buffer.file)
        raise
    return buffer, moves


def put_away(disk: Disk, directory: Path, store: str) -> None:
    """Step 3, but for the sync: if this is refused, nothing has changed."""
    disk.rename(directory / active_name(store), directory / old_name(store))


def put_in_place(disk: Disk, directory: Path, store: str) -> None:
    """Step 4. Before it there is no active journal, and no way to lose the old one."""
    disk.sync_directory(directory)
    disk.rename(directory / temporary_name(store), directory / active_name(store))
    disk.sync_directory(directory)
