"""Nearby: the bytes of a file in pieces that stay in memory, for whoever reads many small ranges close to each other.

Going through transactions one by one, forwards or backwards, asks for a head here and an operation there. A call to the
system for each of them would be most of what a redo costs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from ...core.io.disk import File

_PIECE_BYTES: Final = 64 << 10
_FEW_READS: Final = 20
"""So many ranges are read one by one: of a journal that was closed nobody wants more."""


class Readable(Protocol):
    """What bytes can be read from: a file, or what is nearby of one."""

    @property
    def path(self) -> Path: ...

    def read_at(self, position: int, size: int) -> bytes: ...


class Nearby:
    """A file for reading, of which two pieces are in memory. Nobody may change it meanwhile."""

    def __init__(self, file: File) -> None:
        self.path = file.path
        self._file = file
        self._reads = 0
        self._start = 0
        self._window = b""

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from a position on, fewer only at the end of the file."""
        at = position - self._start
        if at < 0 or at + size > len(self._window):
            self._reads += 1
            if size > _PIECE_BYTES or self._reads <= _FEW_READS:
                return self._file.read_at(position, size)
            # From a multiple on, so that it has what lies before the position too, and as much again behind it.
            self._start = position // _PIECE_BYTES * _PIECE_BYTES
            self._window = self._file.read_at(self._start, 2 * _PIECE_BYTES)
            at = position - self._start
        return self._window[at : at + size]
