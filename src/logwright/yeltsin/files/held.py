"""HeldArea: the bytes of a table's file, with what was stored on top: it waits in memory until `release` writes it.

The file is mapped for this process alone: whatever is stored makes a copy of the system's page that nobody else sees,
so reading and changing are memory, and the file stays as it was. Which ranges have changed is kept in a list, and they
are written by calls, which leave no more to the next sync than they touch (see `Area`).

Copies stay until there are many, and are given back then by mapping the file anew.
"""

from __future__ import annotations

import contextlib
from typing import Final, cast

from ...core.io.disk import Buffer, File, Mappable, write_all
from .area import Area

_MOST_COPIED_BYTES: Final = 16 << 20
"""So much may have been stored before the copies are given back."""


class HeldArea(Area):
    """A file that is open for update and can be mapped, its size, and the ranges of it that wait."""

    def __init__(self, file: File) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._copied_bytes = 0
        super().__init__(file, written=True)

    def _map(self, *, reserve: bool = True) -> None:
        del reserve  # whoever writes is told that the disk is full
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
        """The bytes, to which one may store whose ranges are told to `hold`; they are others after a `release`."""
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
