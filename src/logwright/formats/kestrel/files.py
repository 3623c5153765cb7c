"""The files of a queue: which of them count, in which order, and how their operations are numbered.

The number of an operation is the number in the name of the file before its own, 0 where there is none, times 2^64, plus
its position in its file. The newest file keeps the one before it when it is rotated, and a pack has the largest name of
those that it stands for, so the numbers of operations do not change for as long as their file is there. What a pack
holds is numbered like the first file of a queue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from ...core.chunk import POSITION_BITS as POSITION_BITS
from ...core.chunk import NumberedFile
from ...core.disk import Disk
from ...core.snapshot import Snapshot
from .layout import TEMPORARY, parse_name


@dataclass(frozen=True, slots=True)
class JournalFile(NumberedFile):
    """A file of a queue. `timestamp` is the number in its name, None for the newest; `before` that of the one before.

    `name` is relative to the queue's directory.
    """

    queue: str
    name: str
    path: Path
    timestamp: int | None
    before: int = 0


OpenFiles: TypeAlias = Snapshot[JournalFile]
"""The files of a queue as they were at one moment, open for reading."""


@dataclass(slots=True)
class Listing:
    """What is there of a queue: the files that count, in order; those that a pack has replaced; temporary ones.

    `pack` is the pack among the files, which is always the first of them.
    """

    files: list[JournalFile] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    temporary: list[str] = field(default_factory=list)
    pack: JournalFile | None = None

    @property
    def newest(self) -> JournalFile | None:
        """The file without a number, if it is there."""
        return self.files[-1] if self.files and self.files[-1].is_newest else None

    @property
    def last_timestamp(self) -> int:
        """The largest number of a rotated file, 0 when there is none."""
        return max((file.timestamp for file in self.files if file.timestamp is not None), default=0)


def list_files(disk: Disk, directory: Path, queue: str) -> Listing:
    """The files of one queue."""
    return arrange(directory, queue, disk.list_directory(directory))


def list_queues(disk: Disk, directory: Path) -> list[str]:
    """The queues that have a file in a directory, by name. What is a directory is no file of a queue."""
    found = set()
    for name in disk.list_directory(directory):
        parsed = parse_name(name)
        if parsed is not None and parsed[0] not in found and not disk.is_directory(directory / name):
            found.add(parsed[0])
    return sorted(found)


def arrange(directory: Path, queue: str, names: list[str]) -> Listing:
    """The listing of a queue out of the names in its directory."""
    listing = Listing()
    rotated: list[tuple[int, bool, str]] = []
    has_newest = False
    for name in names:
        if name.startswith(queue + TEMPORARY):
            listing.temporary.append(name)
        parsed = parse_name(name)
        if parsed is None or parsed[0] != queue:
            continue
        if parsed[1] is None:
            has_newest = True
        else:
            rotated.append((parsed[1], parsed[2], name))
    rotated.sort(key=lambda item: (item[0], item[2]))
    packed = max((timestamp for timestamp, is_pack, _ in rotated if is_pack), default=None)
    before = 0
    for timestamp, is_pack, name in rotated:
        is_the_pack = is_pack and timestamp == packed and listing.pack is None
        if packed is not None and timestamp <= packed and not is_the_pack:
            listing.dead.append(name)
            continue
        file = JournalFile(queue, name, directory / name, timestamp, before)
        listing.files.append(file)
        before = timestamp
        if is_the_pack:
            listing.pack = file
    if has_newest:
        listing.files.append(JournalFile(queue, queue, directory / queue, None, before))
    return listing
