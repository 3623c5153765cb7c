r"""File names: as text and back, without collisions; and those in directories with many files.

A name is bytes, but a column, a checkpoint or a report holds text. Names that are valid UTF-8 stay as they are. In
other names, and in names that look like an escaped one, other bytes are written as \xff and a backslash is doubled:

    orders      orders      unchanged, as is a\b
    <ff>        \xff        a byte
    \xff        \\xff       a name of four characters
"""

from __future__ import annotations

import re
import threading
import time
from bisect import bisect_left
from pathlib import Path
from typing import Final, NamedTuple

from .disk import Disk, RealDisk, directory_stamp

_ODD: Final = re.compile("[\udc80-\udcff]")
"""How Python represents a byte of a name that is not UTF-8."""
_ESCAPE: Final = re.compile(r"\\(?:\\|x([89a-f][0-9a-f]))")


def printed(name: str) -> str:
    """A name, or a path, as text. Different names give different texts."""
    if not _ODD.search(name) and not _ESCAPE.search(name):
        return name
    return _ODD.sub(lambda odd: f"\\x{ord(odd[0]) - 0xDC00:02x}", name.replace("\\", "\\\\"))


def name_of(text: str) -> str:
    """The inverse of `printed`. A text that `printed` cannot return is taken as a name."""
    found = _ESCAPE.sub(lambda escape: "\\" if escape[1] is None else chr(0xDC00 + int(escape[1], 16)), text)
    return found if printed(found) == text else text


def as_text(words: str) -> str:
    """A message that may contain file names, as text that a column can hold."""
    return words.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


# --- large directories ----------------------------------------------------------------------------------------------

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
    """The names in a directory that begin with `beginning`, in order.

    A directory may hold thousands of queues or stores, each of which asks for its own files. The last list of a
    directory is kept for as long as the directory is unchanged by its time of modification. A list that was made
    shortly after that time is not kept: clocks of file systems tick in milliseconds, and a later change could have the
    same time.
    """
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
