"""Files and directories that a test cannot read, even as root."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from logwright.core.io.disk import REAL_DISK, Disk, File, OpenMode
from logwright.errors import StorageFailed

NOBODY = 65534


class _Guarded:
    """A disk on which one file cannot be opened; like another disk in everything else."""

    def __init__(self, disk: Disk, refused: Path, number: int) -> None:
        self._disk = disk
        self._refused = refused
        self._number = number

    def open(self, path: Path, mode: OpenMode) -> File:
        if path == self._refused:
            raise StorageFailed("open", path, OSError(self._number, os.strerror(self._number)))
        return self._disk.open(path, mode)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


def guarded(refused: Path, number: int = errno.EACCES, disk: Disk = REAL_DISK) -> Disk:
    """A disk on which one file cannot be opened, for a reason: by default, access is denied."""
    return cast("Disk", _Guarded(disk, refused, number))


@contextlib.contextmanager
def open_to_all() -> Iterator[Path]:
    """A temporary directory that another user can read too; those of pytest are readable only by their owner."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        for path in directory.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(directory)


@contextlib.contextmanager
def without_access(*directories: Path) -> Iterator[None]:
    """Make some directories unreadable. A test that runs as root becomes another user meanwhile."""
    for directory in directories:
        directory.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
        for directory in directories:
            directory.chmod(0o755)
