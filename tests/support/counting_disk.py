"""A disk that counts the bytes that are read from it, and the listings of directories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from logwright.core.io.disk import REAL_DISK, Disk


class CountingDisk:
    """Wraps a disk, and counts the bytes that are read from its files: from all, or from those with certain suffixes.

    `listings` is the number of listings of directories.
    """

    def __init__(self, *suffixes: str, inner: Disk = REAL_DISK) -> None:
        self.inner = inner
        self.suffixes = suffixes
        self.bytes_read = 0
        self.listings = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def open(self, path: Path, mode: Any) -> Any:
        file = self.inner.open(path, mode)
        return file if self.suffixes and path.suffix not in self.suffixes else _CountingFile(self, file)

    def list_directory(self, path: Path) -> list[str]:
        self.listings += 1
        return self.inner.list_directory(path)


class _CountingFile:
    def __init__(self, disk: CountingDisk, file: Any) -> None:
        self._disk = disk
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read_at(self, position: int, size: int) -> bytes:
        data: bytes = self._file.read_at(position, size)
        self._disk.bytes_read += len(data)
        return data

    def read_into(self, position: int, buffer: memoryview) -> int:
        count: int = self._file.read_into(position, buffer)
        self._disk.bytes_read += count
        return count
