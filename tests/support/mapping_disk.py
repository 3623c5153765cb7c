"""MappingDisk: a simulated disk whose files can be mapped, with the effects of a power cut on mapped memory.

A store to memory cannot be observed. So before every call, and at every mark, the changes in each mapping since the
last time are written back to the simulated file: one write for each sector of 512 bytes, none of them synced. After a
crash, each of those sectors may be new or old, as with the pages of a real mapping, which the system writes at any
time. A sync makes all preceding stores durable.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

from tests.support.simulated_disk import SimulatedDisk

SECTOR_BYTES = 512


class MappingDisk:
    """Passes every call to a simulated disk, `inner`, after it has written the changes of mappings there."""

    def __init__(self, inner: SimulatedDisk) -> None:
        self.inner = inner
        self.stored_sectors = 0
        self._files: list[MappingFile] = []

    def __getattr__(self, name: str) -> Any:
        self.write_back()
        return getattr(self.inner, name)

    def mark(self, label: Any) -> None:
        """Record that something has happened by now; see `SimulatedDisk.mark`."""
        self.write_back()
        self.inner.mark(label)

    def open(self, path: Path, mode: Any) -> MappingFile:
        self.write_back()
        file = MappingFile(self, self.inner.open(path, mode))
        self._files.append(file)
        return file

    def write_back(self) -> None:
        """Write the changes of all mappings to the files."""
        for file in self._files:
            self.stored_sectors += file.write_back()

    def forget(self, file: MappingFile) -> None:
        """Forget a file that was closed."""
        if file in self._files:
            self._files.remove(file)


class MappingFile:
    """A file of a `MappingDisk`."""

    def __init__(self, disk: MappingDisk, inner: Any) -> None:
        self._disk = disk
        self._inner = inner
        self._memory: mmap.mmap | None = None

    def __getattr__(self, name: str) -> Any:
        self._disk.write_back()
        return getattr(self._inner, name)

    @property
    def path(self) -> Path:
        path: Path = self._inner.path
        return path

    @path.setter
    def path(self, path: Path) -> None:
        self._inner.path = path

    def map(self, size: int, *, private: bool = False) -> mmap.mmap:
        self._disk.write_back()
        assert size <= self._inner.size()
        memory = mmap.mmap(-1, size, (mmap.MAP_PRIVATE if private else mmap.MAP_SHARED) | mmap.MAP_ANONYMOUS)
        memory[:] = self._inner.read_at(0, size)
        if not private:
            self._memory = memory
        return memory

    def allocate(self, size: int) -> None:
        self._disk.write_back()
        if size > self._inner.size():
            self._inner.truncate(size)

    def write_at(self, position: int, data: Any) -> int:
        self._disk.write_back()
        count: int = self._inner.write_at(position, data)
        self._read_again(position, position + count)
        return count

    def truncate(self, size: int) -> None:
        self._disk.write_back()
        self._inner.truncate(size)
        self._memory = None  # a store past the end of the file would raise SIGBUS

    def close(self) -> None:
        self._disk.write_back()
        self._disk.forget(self)
        self._inner.close()

    def _read_again(self, start: int, stop: int) -> None:
        """Copy written data to the mapping as well."""
        if self._memory is not None:
            stop = min(stop, len(self._memory))
            if start < stop:
                self._memory[start:stop] = self._inner.read_at(start, stop - start)

    def write_back(self) -> int:
        """Write the sectors that were changed in the mapping; their number."""
        memory, count = self._memory, 0
        if memory is None:
            return 0
        content = self._inner.read_at(0, len(memory))
        if memory[:] == content:
            return 0
        for at in range(0, len(memory), SECTOR_BYTES):
            stop = min(at + SECTOR_BYTES, len(memory))
            if memory[at:stop] != content[at:stop]:
                self._inner.write_at(at, memory[at:stop])
                count += 1
        return count
