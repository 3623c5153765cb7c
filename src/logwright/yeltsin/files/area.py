"""Area: a file that is read and changed in place; mapped into memory if the system can do that.

The system has every stored byte at once, in the order of the stores, so they survive a process that is killed. A
mapping saves system calls; without one the same bytes are read and written. Disk space is allocated for all of a file
that is changed in memory, because a full disk could not be reported later. If another program shortens a mapped file,
this process may be killed, as in every database that maps its files.

A file that is synced often should be `written`, and mapped for reading only. The system caches a file in pieces of up
to a few mebibytes. A store in memory makes a whole piece dirty, a write only the blocks that it touches, so a sync
after a store of 4 KiB takes twice as long.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterable
from typing import Final, cast

from ...core.io.disk import Buffer, File, Mappable, write_all, write_zeros
from ...errors import LogwrightError

_MOST_COPIED_BYTES: Final = 16 << 20
"""How many bytes may be stored before the copied pages are released."""
_NEAR_BYTES: Final = 16 << 10
"""Places that are at most this far apart are written together: two small writes take longer than one larger write."""
_MOST_BYTES: Final = 256 << 10
"""The most that is written together."""


def write_places(file: File, places: Iterable[tuple[int, bytes]]) -> None:
    """Write bytes to many existing places of a file, in the order of the places.

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
        """Map all of the file, and allocate its space if it is not allocated yet."""
        assert isinstance(self.file, Mappable)
        if not self.size:
            return
        if reserve:
            self.file.allocate(self.size)
        if self._memory is not None:
            # Mapping a large file again each time it grows would cost more than everything else.
            with contextlib.suppress(SystemError, ValueError, BufferError, OSError):
                self._memory.resize(self.size)
                return
        self._memory = self.file.map(self.size)

    @property
    def memory(self) -> bytearray | None:
        """The bytes of the file, if they can be changed in memory. This is another object after the file has grown."""
        return None if self._written else cast("bytearray | None", self._memory)

    def load(self, position: int, size: int) -> bytes:
        """`size` bytes from a position on; fewer only at the end."""
        if self._memory is None:
            return self.file.read_at(position, size)
        return self._memory[position : position + size]

    def store(self, position: int, data: Buffer) -> None:
        """Store bytes at a position. The file grows if necessary, and a gap is filled with zeros."""
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
        """Store bytes at many existing places, in the order of the places."""
        if self._written:
            write_places(self.file, places)
            return
        for position, data in places:
            self.store(position, data)

    def put(self, position: int, data: Buffer) -> None:
        """Write bytes at once, also in a `HeldArea`."""
        self.store(position, data)

    def add_zeros(self, size: int) -> None:
        """Extend the file by writing zeros: space that is only reserved makes every sync slower.

        If there is no space for all of them, none are added.
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
        """Truncate the file."""
        if size < self.size:
            self.file.truncate(size)
            self.size = size
            self._unmap()
            if self._mapped:
                self._map(reserve=False)

    @property
    def holds(self) -> bool:
        """Whether stored bytes wait to be written."""
        return False

    def release(self) -> None:
        """Write what waits. In a plain area nothing waits."""

    def _unmap(self) -> None:
        """Unmap the file, even if the memory is still referenced."""
        memory, self._memory = self._memory, None
        if memory is not None:
            with contextlib.suppress(BufferError):  # a reader is using it
                memory.close()

    def sync(self) -> None:
        """Make everything that was stored durable."""
        self.file.sync()

    def close(self) -> None:
        """Unmap and close the file."""
        try:
            self.file.close()
        finally:
            self._unmap()


class HeldArea(Area):
    """An area whose stored bytes wait in memory until `release` writes them.

    The file is mapped privately: a store copies the page of memory, and the file does not change. A list has the
    changed ranges. They are written by system calls, so the next sync has no more to do than they touched (see `Area`).
    When there are many copied pages, mapping the file again releases them.
    """

    def __init__(self, file: File) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._copied_bytes = 0
        super().__init__(file, written=True)

    def _map(self, *, reserve: bool = True) -> None:
        del reserve  # the disk is full: the writer gets an error
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
        """The bytes. Ranges that are then passed to `hold` may be changed. After a `release` this is another object."""
        return cast(bytearray, self._memory)

    @property
    def holds(self) -> bool:
        """Whether anything waits."""
        return bool(self._ranges)

    def hold(self, ranges: list[tuple[int, int]]) -> None:
        """Record changed ranges, each by its start and end."""
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
    """Ranges in order; those that overlap or touch are joined."""
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
