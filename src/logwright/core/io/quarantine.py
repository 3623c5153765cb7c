"""Quarantine: bytes that are cut from a journal are copied first.

The copies are in `.logwright/cut/` in the journal's directory, named by file, position and time:

    .logwright/cut/0000000000000000.jnl.@4096.1763241600123456789

The order of a cut is: write the copy, sync it, sync its name, truncate the journal's file, sync that. A crash at any
point leaves the bytes in the journal, in the copy, or in both.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from ...errors import LogwrightError
from ..bytes.outcome import Damage
from .disk import Disk, File, make_directories, skip_hole, write_all

DIRECTORY = ".logwright"
CUT_DIRECTORY = "cut"
_COPY_BYTES = 1 << 20
_MOST_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening for writing did to a journal: the torn tail that it cut off, and the path of the copy."""

    cut: Damage | None
    kept: Path | None


def cut_directory(home: Path) -> Path:
    """Where the copies of a journal are kept; `home` is its directory."""
    return home / DIRECTORY / CUT_DIRECTORY


def make_cut_directory(disk: Disk, home: Path) -> Path:
    """The directory of the copies, created if missing."""
    directory = cut_directory(home)
    make_own_directories(disk, directory)
    return directory


def make_own_directories(disk: Disk, path: Path) -> None:
    """Create a directory in `.logwright`. Neither it nor `.logwright` may be a link."""
    if disk.exists(path.parent):
        disk.make_directory(path.parent)  # creates nothing, and refuses a link
    make_directories(disk, path)


def kept_bytes(disk: Disk, home: Path, beginning: str = "") -> int:
    """The size of the copies whose names begin so: the journals of a directory share one place for copies."""
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
            following = skip_hole(file, position, end)
            copy.truncate(following - start)  # a hole takes no space in the copy either
            data = file.read_at(following, min(_COPY_BYTES, end - following))
            if not data:
                break
            write_all(copy, following - start, data)
            position = following + len(data)
        copy.sync()
    except BaseException:  # the original is unchanged; half a copy would only take space on a full disk
        copy.close()
        with contextlib.suppress(LogwrightError):
            disk.remove(path)
        raise
    copy.close()
    disk.sync_directory(directory)
    return path


def keep_file(disk: Disk, home: Path, path: Path) -> Path:
    """Move a file that is no longer part of the journal into its `cut` directory, and sync that; the new path.

    The removal of the old name is durable after a sync of the old directory.
    """
    directory = make_cut_directory(disk, home)
    kept = directory / _kept_name(path.name, 0)
    disk.rename(path, kept)
    disk.sync_directory(directory)
    return kept


def _kept_name(name: str, start: int) -> str:
    """The name of a copy. A name that would be too long is shortened; the time keeps names unique."""
    more = f".@{start}.{time.time_ns()}"
    while len(os.fsencode(name)) > _MOST_NAME_BYTES - len(more):
        name = name[:-1]
    return name + more


def cut_tail(disk: Disk, home: Path, file: File, start: int) -> Path | None:
    """Truncate a file to `start` and keep the rest; the path of the copy, None if there was nothing to cut."""
    end = file.size()
    if end <= start:
        return None
    path = keep_range(disk, home, file, start, end)
    file.truncate(start)
    file.sync()
    return path
