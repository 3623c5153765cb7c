"""The files of a queue: which of them count, in which order, and how their operations are numbered.

The number of an operation is the number in the name of the file before its own, 0 where there is none, times 2^64, plus
its position in its file. The newest file keeps the one before it when it is rotated, and a pack has the largest name of
those that it replaces, so the numbers of operations do not change for as long as their file is there. What a pack
holds is numbered like the first file of a queue.

Two things about names are damage, although every byte can be read, and they are reported where reading begins with the
file that they are about (`flaw`); a queue that has one cannot be opened for writing:

    doubled_name    `cars.904` and `cars.0904` have the same number, so their order is unknown: the second one is not
                    read
    empty_pack      a pack that came from elsewhere is empty, and what it would replace is not
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from ...core.bytes.outcome import Damage
from ...core.io.disk import Disk
from ...core.io.listing import list_beginning
from ...core.read.chunk import POSITION_BITS as POSITION_BITS
from ...core.read.chunk import NumberedFile
from ...core.read.snapshot import Snapshot
from ...errors import NotFound
from ..bytes.layout import PACK_SUFFIX, TEMPORARY, parse_name, rotated_name
from .note import missing_files, replaced_files


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
    flaw: Damage | None = None


OpenFiles: TypeAlias = Snapshot[JournalFile]
"""The files of a queue as they were at one moment, open for reading."""


@dataclass(slots=True)
class Listing:
    """What is there of a queue: the files that count, in order; those that a pack has replaced; temporary ones."""

    files: list[JournalFile] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    temporary: list[str] = field(default_factory=list)
    has_pack: bool = False

    @property
    def pack(self) -> JournalFile | None:
        """The pack among the files, which is always the first of them."""
        return self.files[0] if self.has_pack else None

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
    listing = arrange(directory, queue, list_beginning(disk, directory, queue))
    pack = listing.pack
    if pack is not None and listing.dead and pack.flaw is None:
        listing.files[0] = replace(pack, flaw=_flaw_of_pack(disk, directory, listing, pack))
    return listing


def known_dead(disk: Disk, directory: Path, listing: Listing) -> frozenset[str]:
    """The dead files that a pack of ours has replaced: the others are not known to be in any pack."""
    pack = listing.pack
    if pack is None or pack.timestamp is None:
        return frozenset()
    return replaced_files(disk, directory, pack.queue, pack.timestamp, pack.path) & set(listing.dead)


def lost_files(disk: Disk, directory: Path, queue: str, listing: Listing) -> dict[str, int]:
    """The rotated files of a queue that are missing, with the sizes that they had."""
    names = [*(file.name for file in listing.files if not file.is_newest), *listing.dead]
    present = {name.removesuffix(PACK_SUFFIX): _size(disk, directory / name) for name in names}
    lost = missing_files(disk, directory, queue, present)
    return {name: size for name, size in lost.items() if not disk.exists(directory / name)}  # a writer may just rotate


def _flaw_of_pack(disk: Disk, directory: Path, listing: Listing, pack: JournalFile) -> Damage | None:
    try:
        if disk.is_directory(pack.path) or disk.file_size(pack.path):
            return None
    except NotFound:  # it has lost its suffix by now
        return None
    known = known_dead(disk, directory, listing)
    if not any(_size(disk, directory / name) for name in listing.dead if name not in known):
        return None
    return Damage(pack.name, 0, 0, "the pack is empty, and the files that it would replace are not", "empty_pack")


def _size(disk: Disk, path: Path) -> int:
    try:
        return disk.file_size(path)
    except NotFound:
        return 0


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
    rotated.sort(key=lambda item: (item[0], item[2] != _usual_name(queue, *item[:2]), item[2]))
    packed = max((timestamp for timestamp, is_pack, _ in rotated if is_pack), default=-1)
    before = 0
    for timestamp, is_pack, name in rotated:
        if timestamp < packed or (timestamp == packed and not is_pack):
            listing.dead.append(name)
        elif listing.files and listing.files[-1].timestamp == timestamp:
            listing.files[-1] = replace(listing.files[-1], flaw=_doubled(name, listing.files[-1].name))
        else:
            listing.files.append(JournalFile(queue, name, directory / name, timestamp, before))
            listing.has_pack |= is_pack
            before = timestamp
    if has_newest:
        listing.files.append(JournalFile(queue, queue, directory / queue, None, before))
    return listing


def _usual_name(queue: str, timestamp: int, is_pack: bool) -> str:
    return rotated_name(queue, timestamp) + (PACK_SUFFIX if is_pack else "")


def _doubled(name: str, other: str) -> Damage:
    reason = f"its number is that of {other}, so which comes first is unknown, and it is not read: move one away"
    return Damage(name, 0, 0, reason, "doubled_name")
