"""MortalDisk: the real disk, which kills its process with SIGKILL at a chosen call.

Rotating, packing and recovering take almost no time, so a kill from outside rarely hits their steps. A process with
this disk dies right before or right after the n-th call of a kind.
"""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..core.io.disk import REAL_DISK, Buffer, OpenMode, RealFile

Result = TypeVar("Result")


class Moment(NamedTuple):
    """When to die: at the `call`-th call of a kind, before it is done or after it.

    The kinds are `create`, `open`, `write`, `write temporary`, `sync`, `truncate`, `allocate`, `rename`, `remove` and
    `sync directory`. A temporary file has `~~` in its name.
    """

    kind: str
    call: int
    is_after: bool


class MortalDisk:
    """The real disk, until the moment comes; without a moment it never kills."""

    def __init__(self, moment: Moment | None) -> None:
        self._moment = moment
        self._calls = 0

    def at(self, kind: str, action: Callable[[], Result]) -> Result:
        """Make a call, and die before or after it at the chosen moment."""
        moment = self._moment
        if moment is None or moment.kind != kind:
            return action()
        self._calls += 1
        if self._calls == moment.call and not moment.is_after:
            _die()
        result = action()
        if self._calls == moment.call:
            _die()
        return result

    def open(self, path: Path, mode: OpenMode) -> MortalFile:
        kind = "create" if mode == "create" else "open"
        return MortalFile(self, self.at(kind, lambda: REAL_DISK.open(path, mode)))

    def rename(self, source: Path, target: Path) -> None:
        self.at("rename", lambda: REAL_DISK.rename(source, target))

    def remove(self, path: Path) -> None:
        self.at("remove", lambda: REAL_DISK.remove(path))

    def sync_directory(self, path: Path) -> None:
        self.at("sync directory", lambda: REAL_DISK.sync_directory(path))

    def __getattr__(self, name: str) -> Any:
        return getattr(REAL_DISK, name)


class MortalFile:
    """A file of such a disk. It can be mapped, as a real one can."""

    def __init__(self, disk: MortalDisk, file: RealFile) -> None:
        self.path = file.path
        self._disk = disk
        self._file = file
        self._write = "write temporary" if "~~" in file.path.name else "write"

    def write_at(self, position: int, data: Buffer) -> int:
        return self._disk.at(self._write, lambda: self._file.write_at(position, data))

    def sync(self) -> None:
        self._disk.at("sync", self._file.sync)

    def truncate(self, size: int) -> None:
        self._disk.at("truncate", lambda: self._file.truncate(size))

    def map(self, size: int, *, private: bool = False) -> mmap.mmap:
        return self._file.map(size, private=private)

    def allocate(self, size: int) -> None:
        self._disk.at("allocate", lambda: self._file.allocate(size))

    def data_from(self, position: int) -> int:
        return self._file.data_from(position)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
