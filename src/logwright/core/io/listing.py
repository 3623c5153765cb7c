"""Names in directories with many files: only those that begin in a certain way, without listing all of them each time.

A directory may hold thousands of queues or stores, each of which asks for its own files. The last list of a directory
is kept for as long as the directory is unchanged by its time of modification. A list that was made shortly after that
time is not kept: clocks of file systems tick in milliseconds, and a later change could have the same time.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from pathlib import Path
from typing import Final, NamedTuple

from .disk import Disk, RealDisk, directory_stamp

_SETTLED_NS: Final = 1_000_000_000
"""For how long a directory must have been unchanged before its list is kept: many ticks of any clock."""
_LEAST_NAMES: Final = 64
"""Shorter lists are not kept."""
_MOST_DIRECTORIES: Final = 16


class _Kept(NamedTuple):
    stamp: tuple[int, int, int, int]
    names: list[str]


_kept: dict[Path, _Kept] = {}
_lock = threading.Lock()


def list_beginning(disk: Disk, directory: Path, beginning: str) -> list[str]:
    """The names in a directory that begin with `beginning`, in order."""
    if type(disk) is not RealDisk:
        return [name for name in disk.list_directory(directory) if name.startswith(beginning)]
    names = _names(disk, directory)
    first = last = bisect_left(names, beginning)
    while last < len(names) and names[last].startswith(beginning):
        last += 1
    return names[first:last]


def _names(disk: RealDisk, directory: Path) -> list[str]:
    stamp = directory_stamp(directory)
    kept = _kept.get(directory)
    if kept is not None and kept.stamp == stamp:
        return kept.names
    names = disk.list_directory(directory)
    if len(names) >= _LEAST_NAMES and time.time_ns() - stamp[0] > _SETTLED_NS and directory_stamp(directory) == stamp:
        with _lock:
            if len(_kept) >= _MOST_DIRECTORIES:
                _kept.clear()
            _kept[directory] = _Kept(stamp, names)
    return names
