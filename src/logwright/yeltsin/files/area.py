"""Area: the bytes of a file that are read and changed in place, as memory where the system can map files.

What is stored is with the system at once, in the order in which it was stored: a process that is killed takes nothing
back. A mapping saves the calls; elsewhere the same bytes are read and written. A file that is stored to in memory has
space for all of its bytes, for a full disk could not be reported later; a file that another program
shortens meanwhile may end the process, as in every database that maps its files.

A file that is synced often is better `written`, and mapped for reading only: the system keeps a file in pieces of up to
some mebibytes, of which a store in memory makes the whole one dirty, and a write only the blocks that it touches. So a
sync after a store of 4 KiB takes twice as long.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterable
from typing import Final, cast

from ...core.io.disk import Buffer, File, Mappable, write_all, write_zeros
from ...errors import LogwrightError

_MOST_COPIED_BYTES: Final = 16 << 20
"""How much may be stored before the copies are given back."""
_NEAR_BYTES: Final = 16 << 10
"""Places that are no further apart are written together: a disk takes longer for two blocks than for all between."""
_MOST_BYTES: Final = 256 << 10
"""The most that is written together."""


def write_places(file: File, places: Iterable[tuple[int, bytes]]) -> None:
    """Put bytes in many places of a file that has them, in the order of the places.

    The bytes between nearby places are written again as they are: no other writer may be active there.
    """
    near: list[tuple[int, bytes]] = []
    for position, data in places:
        if near and (position - near[-1][0] > _NEAR_BYTES or position - near[0][0] > _MOST_BYTES):
            _write_near(file, near)
            near.clear()
        near.append((position, data))
    if near:
        _write_near(file, near)


def _write_near(file: File, places: list[tuple[int, bytes]]) -> None:
    start = places[0][0]
    last, last_data = places[-1]
    if last == start:
        write_all(file, start, last_data)
        return
    together = bytearray(last - start + len(last_data))
    with memoryview(together) as view:
        file.read_into(start, view[: last - start])
    for position, data in places:
        together[position - start : position - start + len(data)] = data
    write_all(file, start, together)


class Area:
    """A file that is open for update, and its size. `written` if it is mapped for reading only."""

    def __init__(self, file: File, *, mapped: bool = True, written: bool = False) -> None:
        self.file = file
        self.size = file.size()
        self._mapped = mapped and isinstance(file, Mappable)
        self._written = written or not self._mapped
        self._memory: mmap.mmap | None = None
        if self._mapped:
            self._map(reserve=not written)

    def _map(self, *, reserve: bool = True) -> None:
        """Map all of the file, which has the space for it unless that is still to be reserved."""
        assert isinstance(self.file, Mappable)
        if not self.size:
            return
        if reserve:
            self.file.allocate(self.size)
        if self._memory is not None:
            # To map a large file again for each piece that it grows by would cost more than all else.
            with contextlib.suppress(SystemError, ValueError, BufferError, OSError):
                self._memory.resize(self.size)
                return
        self._memory = self.file.map(self.size)

    @property
    def memory(self) -> bytearray | None:
        """The bytes of the file where they may be stored to; they are others after it has grown."""
        return None if self._written else cast("bytearray | None", self._memory)

    def load(self, position: int, size: int) -> bytes:
        """Bytes from a position on, fewer than `size` only at the end."""
        if self._memory is None:
            return self.file.read_at(position, size)
        return self._memory[position : position + size]

    def store(self, position: int, data: Buffer) -> None:
        """Put bytes in place; after the end the file grows, and the gap is zeros."""
        end = position + len(data)
        if self._written:
            write_all(self.file, position, data)
            if end > self.size:
                self.size = end
                if self._mapped:
                    self._map(reserve=False)
            return
        if end > self.size:
            self.size = end
            self._map()
        assert self._memory is not None
        self._memory[position:end] = data

    def store_places(self, places: list[tuple[int, bytes]]) -> None:
        """Put bytes in many places that are there, in the order of the places."""
        if self._written:
            write_places(self.file, places)
            return
        for position, data in places:
            self.store(position, data)

    def put(self, position: int, data: Buffer) -> None:
        """Put bytes in place at once, also where what is stored waits (see `held.py`)."""
        self.store(position, data)

    def add_zeros(self, size: int) -> None:
        """Extend the file by writing zeros: space that is only reserved costs time at every sync.

        Without the space for all of them it has none of them.
        """
        try:
            write_zeros(self.file, self.size, size)
        except BaseException:
            with contextlib.suppress(LogwrightError):
                self.file.truncate(self.size)
            raise
        self.size = size
        if self._mapped:
            self._map(reserve=False)

    def cut(self, size: int) -> None:
        """Let the file end here."""
        if size < self.size:
            self.file.truncate(size)
            self.size = size
            self._unmap()
            if self._mapped:
                self._map(reserve=False)

    @property
    def holds(self) -> bool:
        """Whether anything waits that was stored."""
        return False

    def release(self) -> None:
        """Write what waits; here everything is in place when it is stored."""

    def _unmap(self) -> None:
        """Give the memory back, even if it is still referenced."""
        memory, self._memory = self._memory, None
        if memory is not None:
            with contextlib.suppress(BufferError):  # a reader is using it just now
                memory.close()

    def sync(self) -> None:
        """Make everything that was stored durable."""
        self.file.sync()

    def close(self) -> None:
        """Close the file, and give the memory back."""
        try:
            self.file.close()
        finally:
            self._unmap()


class HeldArea(Area):
    """An area of which what was stored waits in memory until `release` writes it, in ranges.

    The file is mapped for this process alone: whatever is stored makes a copy of the system's page that no one else
    sees, so reading and changing are memory, and the file stays as it was. Which ranges have changed is kept in a
    list, and they are written by calls, which leave no more to the next sync than they touch (see `Area`).

    Copies stay until there are many, and are given back then by mapping the file again.
    """

    def __init__(self, file: File) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._copied_bytes = 0
        super().__init__(file, written=True)

    def _map(self, *, reserve: bool = True) -> None:
        del reserve  # the writer gets an error: the disk is full
        assert isinstance(self.file, Mappable)
        if not self.size:
            return
        before = self._memory
        if before is not None:
            with contextlib.suppress(SystemError, ValueError, BufferError, OSError):
                before.resize(self.size)
                return
        self._memory = self.file.map(self.size, private=True)
        for start, stop in self._ranges:
            assert before is not None
            self._memory[start:stop] = before[start:stop]

    @property
    def memory(self) -> bytearray:
        """The bytes; ranges named by `hold` may be changed. After a `release` they are another object."""
        return cast(bytearray, self._memory)

    @property
    def holds(self) -> bool:
        """Whether anything waits."""
        return bool(self._ranges)

    def hold(self, ranges: list[tuple[int, int]]) -> None:
        """Know of ranges, by where they begin and end, that were stored to."""
        self._ranges += ranges

    def store(self, position: int, data: Buffer) -> None:
        end = position + len(data)
        if end > self.size:
            self.add_zeros(end)
        self.memory[position:end] = data
        self._ranges.append((position, end))

    def put(self, position: int, data: Buffer) -> None:
        super().store(position, data)
        self.memory[position : position + len(data)] = data

    def release(self) -> None:
        """Write everything that waits."""
        memory = self.memory
        for start, stop in joined(self._ranges):
            write_all(self.file, start, memory[start:stop])
            self._copied_bytes += stop - start
        self._ranges.clear()
        if self._copied_bytes > _MOST_COPIED_BYTES:
            self._copied_bytes = 0
            self._memory = None
            self._map()


def joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, those that overlap or touch made one."""
    found: list[tuple[int, int]] = []
    first, last = 0, -1
    for start, stop in sorted(ranges):
        if start > last:
            if last > first:
                found.append((first, last))
            first, last = start, stop
        elif stop > last:
            last = stop
    if last > first:
        found.append((first, last))
    return found
