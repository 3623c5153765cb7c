"""Stamps: which parts of a journal have changed since they were read, without opening them.

The stamp of a part is a digest of the names, sizes and times of its files, and of the first bytes of files that a
writer may have mapped into memory (`Format.mapped_bytes`). A part whose stamp is the one that was saved with the tables
has nothing new. A part with a file that was written within the last two seconds has no stamp: it may be written again
without another time.

    stamps_of(journal)      {part: stamp}; OWN has the files of no part: offsets, indexes, accounts of losses
    tree_of(root, journals) what changes whenever anything at or below a directory does; for runs that follow
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from ..arrow.discovery import Journal
from ..core.format import Format, find_format
from ..core.io.quarantine import DIRECTORY
from ..errors import WrongUse
from ..location import is_local, locate

OWN: Final = "\0own"
_RECENT_NS: Final = 2_000_000_000


def stamps_of(journal: Journal) -> dict[str, str] | None:
    """The stamps of the parts of a journal, or None if it has none.

    It has none if it is not a directory of this machine, contains links, or may change without a trace.
    """
    disk, path = locate(journal.location)
    format = find_format(journal.format)
    mapped_bytes = format.mapped_bytes
    if mapped_bytes is None or not is_local(disk) or not os.path.isdir(path):
        return None
    places: dict[str, list[str]] = {OWN: []}
    recent: set[str] = set()
    recent_ns = time.time_ns() - _RECENT_NS
    try:
        for name, found in sorted(_files(path, "", is_flat=format.flat)):
            part = _part_of(format, name)
            beginning = _beginning(path / name, mapped_bytes) if mapped_bytes and part != OWN else b""
            place = (name, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, beginning)
            places.setdefault(part, []).append(repr(place))
            if max(found.st_mtime_ns, found.st_ctime_ns) > recent_ns:
                recent.add(part)
    except OSError:
        return None
    return {part: "" if part in recent else _digest(each) for part, each in places.items()}


Tree: TypeAlias = list[tuple[object, ...]]


def tree_of(root: str, journals: Iterable[Journal], left_out: str) -> Tree | None:
    """The names, sizes and times of all files and directories below a directory; `left_out` is skipped.

    None if a change may leave no trace: as for `stamps_of`, and if anything was written within the last two seconds.
    """
    mapped: dict[str, int] = {}
    for journal in journals:
        mapped_bytes = find_format(journal.format).mapped_bytes
        if mapped_bytes is None:
            return None
        if mapped_bytes:
            mapped[str(locate(journal.location)[1])] = mapped_bytes
    disk, path = locate(root)
    if not is_local(disk):
        return None
    found: Tree = []
    recent_ns = time.time_ns() - _RECENT_NS
    waiting = [(str(path), 0)]
    try:
        while waiting:
            directory, outer = waiting.pop()
            size = mapped.get(directory, outer)
            status = os.stat(directory)
            found.append((directory, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        return None
                    if entry.path == left_out:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, size))
                        continue
                    of_file = entry.stat(follow_symlinks=False)
                    read = mapped.get(entry.path, size)
                    beginning = _beginning(entry.path, read) if read else b""
                    times = (of_file.st_mtime_ns, of_file.st_ctime_ns)
                    if max(times) > recent_ns:
                        return None
                    found.append((entry.path, *times, of_file.st_size, of_file.st_ino, beginning))
            if max(status.st_mtime_ns, status.st_ctime_ns) > recent_ns:
                return None
    except OSError:
        return None
    return found


def _beginning(path: Path | str, size: int) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.read(file, size)
    finally:
        os.close(file)


def _digest(places: list[str]) -> str:
    return hashlib.blake2b("\n".join(places).encode(), digest_size=12).hexdigest()


def _files(directory: Path, folder: str, *, is_flat: bool) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            name = f"{folder}{entry.name}"
            if entry.is_symlink():
                raise OSError(f"{entry.path} is a link")  # the times of what it names are not its own
            if not entry.is_dir(follow_symlinks=False):
                yield name, entry.stat(follow_symlinks=False)
            elif not is_flat or entry.name == DIRECTORY or folder.startswith(DIRECTORY):
                yield from _files(Path(entry.path), f"{name}/", is_flat=is_flat)


def _part_of(format: Format, name: str) -> str:
    """The part that a file belongs to; `OWN` for files that belong to no part."""
    if name.startswith(f"{DIRECTORY}/"):
        return OWN
    try:
        return format.restore.part_of(name)
    except WrongUse:
        return OWN
