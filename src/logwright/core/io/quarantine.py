"""Keeping what is cut: no byte leaves a journal without a copy beside it.

The copies are in `.logwright/cut/` in the journal's directory, named by file, position and time:

    .logwright/cut/0000000000000000.jnl.@4096.1763241600123456789

A cut is done in this order, so that a crash at any point leaves the bytes in the journal, in the copy, or in both:
write the copy, sync it, sync its name, truncate the journal's file, sync that.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from ...errors import LogwrightError
from ..bytes.outcome import Damage
from .disk import Disk, File, behind_hole, make_directories, write_all

DIRECTORY = ".logwright"
CUT_DIRECTORY = "cut"
_COPY_BYTES = 1 << 20
_MOST_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening for writing did to a journal: the torn tail it cut off, and where that is kept."""

    cut: Damage | None
    kept: Path | None


def cut_directory(home: Path) -> Path:
    """Where the copies of a journal are kept; `home` is its directory."""
    return home / DIRECTORY / CUT_DIRECTORY


def make_cut_directory(disk: Disk, home: Path) -> Path:
    """The directory of the copies, created if need be. Neither it nor the one that it is in may be a link."""
    directory = cut_directory(home)
    if disk.exists(directory.parent):
        disk.make_directory(directory.parent)  # creates nothing, and refuses a link
    make_directories(disk, directory)
    return directory


def kept_bytes(disk: Disk, home: Path, beginning: str = "") -> int:
    """How much the copies take whose names begin so: journals of one directory keep theirs in one place."""
    directory = cut_directory(home)
    if not disk.is_directory(directory):
        return 0
    names = [name for name in disk.list_directory(directory) if name.startswith(beginning)]
    return sum(disk.file_size(directory / name) for name in names)


def keep_range(disk: Disk, home: Path, file: File, start: int, end: int) -> Path:
    """Copy a range of a file into the journal's `cut` directory, durably; the path of the copy."""
    directory = make_cut_directory(disk, home)
    path = directory / _kept_name(file.path.name, start)
    copy = disk.open(path, "create")
    try:
        position = start
        while position < end:
            following = behind_hole(file, position, end)
            data = file.read_at(following, min(_COPY_BYTES, end - following))
            if following > position:  # it shall not take more space than it did
                copy.truncate(following - start)
            elif not data:
                break
            write_all(copy, following - start, data)
            position = following + len(data)
        copy.sync()
    except BaseException:  # the bytes are still where they were: half a copy, at every try on a full disk, helps nobody
        copy.close()
        with contextlib.suppress(LogwrightError):
            disk.remove(path)
        raise
    copy.close()
    disk.sync_directory(directory)
    return path


def keep_file(disk: Disk, home: Path, path: Path) -> Path:
    """Move a file that no longer counts into the journal's `cut` directory, durably there; its new path.

    That its old name is gone is durable after a sync of the directory that it was in.
    """
    directory = make_cut_directory(disk, home)
    kept = directory / _kept_name(path.name, 0)
    disk.rename(path, kept)
    disk.sync_directory(directory)
    return kept


def _kept_name(name: str, start: int) -> str:
    """What a copy is called; a name that leaves no room for more is cut short: the time still tells copies apart."""
    more = f".@{start}.{time.time_ns()}"
    while len(os.fsencode(name)) > _MOST_NAME_BYTES - len(more):
        name = name[:-1]
    return name + more


def cut_tail(disk: Disk, home: Path, file: File, start: int) -> Path | None:
    """Shorten a file to `start`, keeping what was behind; the path of the copy, None when there was nothing."""
    end = file.size()
    if end <= start:
        return None
    path = keep_range(disk, home, file, start, end)
    file.truncate(start)
    file.sync()
    return path
