"""Rotation: replaces the journal of a store by a new one that begins with its state; crash-safe at every step.

What a crash right after each step leaves, and what opening the store makes of it:

    1. T, the time of the last entry, is chosen so that no archive has it       the journal as it was
    2. the state is written to `.tmp`, which is synced; so is the journal       the same; `.tmp` is removed
    3. the journal becomes `.old`, and that is synced                           `.old` becomes the journal again
    4. `.tmp` becomes the journal, and that is synced                           the new journal; `.old` is archived
    5. the archive is made, see `archiving.py`                                  the same, or only `.old` is removed

Writers wait for steps 2 to 4, while the state is written, and never for 5. An old journal that has not been archived
yet must not be replaced by another one: until it is archived, the journal grows in place.

A failure before anything is written (the directory cannot be listed, `.tmp` cannot be created), or because of a full
disk, changes nothing: the store continues in the rest of its buffer, or in a larger one, and rotates later. Any other
failure is final, as a failed write always is.

The state has the last entry of each key unchanged, with its original time, the oldest first.
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
    """The initial and largest size of a store's buffer, and how much of it is used before a rotation."""

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
        """These sizes; without a limit the default limit, or the initial size if that is larger."""
        _check_size("capacity", capacity)
        return cls(capacity, high_water_mark, max(MAX_CAPACITY, capacity) if max_capacity is None else max_capacity)

    def soft_end(self, size: int, base: int) -> int:
        """The position at which a buffer of this size is rotated, if its state ends at `base`.

        It is the high-water mark, but not before half of the space after the state is used: otherwise a store at its
        limit would rotate all the time.
        """
        end = room(size)
        return min(end, max(int(size * self.high_water_mark), base + (end - base) // 2))

    def fitting(self, needed: int, *, removes: bool = False) -> int:
        """The size of a buffer for a state of `needed` bytes: at least twice that, if the limit allows it.

        `CapacityExceeded` if no size is enough.
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
        """The size that a buffer must grow to; None if the limit does not allow it."""
        while needed > room(size):
            if size >= self.max_capacity:
                return None
            size = min(2 * size, self.max_capacity)
        return size


def _check_size(name: str, size: int) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or size > _MOST_FILE_BYTES:
        raise WrongUse(f"{name} is {size!r}, and must be a number of bytes that a file can have")


def room(size: int, *, removes: bool = False) -> int:
    """The largest end of the entries of a buffer. Some space is reserved for removing keys, which must always be
    possible.
    """
    return mark_at(size) - (0 if removes else min(size // 16, _MOST_RESERVED_BYTES))


def head_bytes(initialized: int) -> int:
    """The number of bytes before the first entry of a journal."""
    return HEADER_BYTES + len(codec.encode_metadata(Metadata(initialized)))


def new_journal(disk: Disk, directory: Path, store: str) -> File:
    """Create the empty file of the next journal."""
    path = directory / temporary_name(store)
    disk.remove(path)
    return disk.open(path, "create")


def write_journal(disk: Disk, file: File, size: int, initialized: int, table: Table) -> tuple[Buffer, Moves]:
    """Write the state of a store to a new journal, and sync it. The file is removed if that fails."""
    start = head_bytes(initialized)
    buffer = Buffer.create(disk, file, size, start + table.live_bytes)
    try:
        moves = table.compact(start, buffer.put)
        buffer.put(0, codec.encode_header(moves.end) + codec.encode_metadata(Metadata(initialized)))
        buffer.set_mark(moves.end)
        buffer.sync()
    except BaseException:
        buffer.forget()  # the error references this frame, which must not reference the mapping
        abandon(disk, buffer.file)
        raise
    return buffer, moves


def retire_active(disk: Disk, directory: Path, store: str) -> None:
    """Step 3 without the sync: if it fails, nothing has changed."""
    disk.rename(directory / active_name(store), directory / old_name(store))


def put_in_place(disk: Disk, directory: Path, store: str) -> None:
    """Step 4. Before it there is no active journal, and the old one cannot be lost."""
    disk.sync_directory(directory)
    disk.rename(directory / temporary_name(store), directory / active_name(store))
    disk.sync_directory(directory)
