"""Area: the bytes of a file that are read and changed in place, as memory where the system can map files.

What is stored is with the system at once, in the order in which it was stored: a process that is killed takes nothing
back. A mapping saves the calls; elsewhere the same bytes are read and written. A file that is mapped has space for all
of its bytes, for there is nobody to be told later that the disk is full; a file that somebody else shortens meanwhile
may end the process, as in every database that maps its files.
"""

from __future__ import annotations

import contextlib
import mmap
from typing import cast

from ...core.disk import Buffer, File, Mappable, write_all, write_zeros
from ...core.errors import LogwrightError


class Area:
    """A file that is open for update, and its size."""

    def __init__(self, file: File, *, mapped: bool = True) -> None:
        self.file = file
        self.size = file.size()
        self._mapped = mapped and isinstance(file, Mappable)
        self._memory: mmap.mmap | None = None
        if self._mapped:
            self._map()

    def _map(self, *, reserve: bool = True) -> None:
        """Map all of the file, which has the space for it unless that is still to be reserved."""
        assert isinstance(self.file, Mappable)
        if not self.size:
            return
        if reserve:
            self.file.allocate(self.size)
        if self._memory is not None:
            # To map a large file anew for each piece that it grows by would cost more than all else.
            with contextlib.suppress(SystemError, ValueError, BufferError, OSError):
                self._memory.resize(self.size)
                return
        self._memory = self.file.map(self.size)

    @property
    def memory(self) -> bytearray | None:
        """The bytes of the file where it is mapped; they are others after it has grown."""
        return cast("bytearray | None", self._memory)

    def load(self, position: int, size: int) -> bytes:
        """Bytes from a position on, fewer than `size` only at the end."""
        if self._memory is None:
            return self.file.read_at(position, size)
        return self._memory[position : position + size]

    def store(self, position: int, data: Buffer) -> None:
        """Put bytes in place; behind the end the file grows, and what lies between is zeros."""
        end = position + len(data)
        if self._mapped and end > self.size:
            self.grow(end)
        if self._memory is None:
            write_all(self.file, position, data)
            self.size = max(self.size, end)
        else:
            self._memory[position:end] = data

    def grow(self, size: int) -> None:
        """Let the file have so many bytes; those that are new are zeros."""
        if size <= self.size:
            return
        if self._mapped:
            self.size = size
            self._map()
        else:
            self.file.truncate(size)
            self.size = size

    def add_zeros(self, size: int) -> None:
        """Let the file have so many bytes, by writing zeros: space that was only promised costs time at every sync.

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
            self._memory = None
            self.file.truncate(size)
            self.size = size
            if self._mapped:
                self._map(reserve=False)

    def sync(self) -> None:
        """Make everything that was stored durable."""
        self.file.sync()

    def close(self) -> None:
        """Close the file, and give the memory back."""
        self._memory = None
        self.file.close()
