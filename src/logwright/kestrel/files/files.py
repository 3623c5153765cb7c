"""The files of a queue: which of them count, in which order, and how their operations are numbered.

The number of an operation is the number in the name of the file before its own, 0 where there is none, times 2^64, plus
its position in its file. The newest file keeps the one before it when it is rotated, and a pack has the largest name of
those that it replaces, so the numbers of operations do not change for as long as their file is there. What a pack
holds is numbered like the first file of a queue.

Three things are damage, although every byte can be read, and they are reported where reading begins with the
file that they are about (`flaw`); a queue that has one cannot be opened for writing:

    doubled_name    `cars.904` and `cars.0904` have the same number, so their order is unknown: the second one is not
                    read
    empty_pack      a pack that came from elsewhere is empty, and what it would replace is not
    changed_pack    a pack of ours has another size than it was written with, and all that it would replace is there
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from ...core.bytes.outcome import Damage
from ...core.io.disk import Disk
from ...core.io.file_names import list_beginning
from ...core.read.chunk import NumberedFile
from ...core.read.snapshot import Snapshot
from ...errors import NotFound
from ..bytes.layout import PACK_SUFFIX, TEMPORARY, parse_name, rotated_name, rotated_note_name
from .note import contradicted, noted_queues, number_of, pack_note, rotated_files


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


_ATTEMPTS: Final = 100
"""How often the files of a queue are listed while a writer changes them."""
BAD_PACKS: Final = ("empty_pack", "changed_pack")
"""Flaws of a pack that a repair removes: what it would replace counts again."""
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


def list_files(disk: Disk, directory: Path, queue: str, without: str = "") -> Listing:
    """The files of one queue, as if the file `without` were not there."""
    names = [name for name in list_beginning(disk, directory, queue) if name != without]
    listing = arrange(directory, queue, names)
    pack = listing.pack
    if pack is not None and listing.dead and pack.flaw is None:
        listing.files[0] = replace(pack, flaw=_flaw_of_pack(disk, directory, listing, pack))
    return listing


def known_dead(disk: Disk, directory: Path, listing: Listing) -> frozenset[str]:
    """The dead files that a pack of ours has replaced: the others are not known to be in any pack."""
    pack = listing.pack
    if pack is None or pack.timestamp is None:
        return frozenset()
    note = pack_note(disk, directory, pack.queue)
    if note[:2] != (pack.timestamp, _size(disk, pack.path)):
        return frozenset()
    return note.replaces & set(listing.dead)


class Lost(NamedTuple):
    """A file that is missing or has another size than was noted. What is unknown or not there is None.

    `exchanged_with` is the file whose contents it has, if the names of files were exchanged; else empty. `newest` is
    the newest file if that has the noted size: their names may have been exchanged, and nothing proves it.
    """

    name: str
    noted: int | None
    size: int | None
    exchanged_with: str = ""
    newest: str = ""

    @property
    def kind(self) -> str:
        """The kind of a problem that it is."""
        if self.size is None:
            return "missing_file"
        return "truncated" if self.missing_bytes else "changed_file"

    @property
    def missing_bytes(self) -> int:
        return 0 if self.exchanged_with else max(0, (self.noted or 0) - (self.size or 0))

    @property
    def at_least(self) -> int:
        """How many operations are lost at least."""
        return int(self.missing_bytes > 0)

    @property
    def at_most(self) -> int | None:
        """How many operations are lost at most, as each has one byte or more; None if nothing bounds it."""
        return self.missing_bytes or None

    @property
    def consequence(self) -> str:
        """How many operations are lost, and what can be done about it."""
        if self.exchanged_with:
            return "no operation is lost: a repair gives each its own name"
        if self.newest:
            note = rotated_note_name(self.newest)
            return f"put each in its place, or remove {note} to take them as they are"
        bounds = "an unknown number of operations is lost"
        if self.at_most is not None:
            bounds = f"at least {self.at_least} and at most {self.at_most} operations are lost"
        return f"{bounds}: put it back as it was, or accept the loss by a repair"

    @property
    def reason(self) -> str:
        if self.exchanged_with:
            sizes = f"it has the {self.size} bytes of {self.exchanged_with}, where it had {self.noted}"
            return f"{sizes}: the names were exchanged"
        if self.size is None:
            return "this file is missing" + (f", which had {self.noted} bytes" if self.noted is not None else "")
        more = f"it has {self.size - (self.noted or 0)} bytes too many"
        less = f"{self.missing_bytes} bytes of it are missing"
        reason = f"{less if self.missing_bytes else more}: when it was rotated it had {self.noted}"
        if self.newest:
            reason += f", which {self.newest} has now: their names may have been exchanged"
        return reason


def lost_files(disk: Disk, directory: Path, queue: str, without: str = "", damaged: Container[str] = ()) -> list[Lost]:
    """The files of a queue that are missing or have another size than the note says, as if `without` were not there.

    `damaged` are files with bad bytes: see `contradicted`.

    A writer may rotate or pack the queue meanwhile. So the note must be the same before and after the files are listed.
    """
    for attempt in range(_ATTEMPTS):
        noted = rotated_files(disk, directory, queue)
        if not noted:
            return []
        listing = list_files(disk, directory, queue, without)
        try:
            present = present_files(disk, directory, listing)
        except NotFound:  # it was renamed or removed meanwhile
            if attempt + 1 == _ATTEMPTS:
                raise
            continue
        if rotated_files(disk, directory, queue) == noted:
            break
    counting = [file.name for file in listing.files if not file.is_newest and file.flaw is None]
    names = {name.removesuffix(PACK_SUFFIX): name for name in counting}
    pack = listing.pack
    if pack is None or pack.flaw is not None:
        names |= {name: name for name in listing.dead}  # they count again
    elif pack_note(disk, directory, queue).timestamp != pack.timestamp:  # its size was not noted
        noted = {name: size for name, size in noted.items() if number_of(name) > (pack.timestamp or 0)}
        names.pop(pack.name.removesuffix(PACK_SUFFIX))
    sizes = {known: present[name] for known, name in names.items()}
    wrong = contradicted(disk, directory, queue, noted, sizes, damaged)
    wrong = {name: size for name, size in wrong.items() if is_plain(disk, directory / names.get(name, name))}
    lost = [Lost(names.get(name, name), size, present.get(names.get(name, ""))) for name, size in wrong.items()]
    exchanged = _find_exchanged([one for one in lost if one.name in wrong and one.name in counting])
    lost = [one._replace(exchanged_with=exchanged.get(one.name, "")) for one in lost]
    newest = None if listing.newest is None else _size(disk, listing.newest.path)
    alike = {one.name for one in lost if one.noted == newest and one.size is not None and not one.exchanged_with}
    lost = [one._replace(newest=queue if one.name in alike else "") for one in lost]
    latest = listing.files[-1].name if listing.files else queue
    if latest in noted or not listing.files:  # a file is noted when the newest is there
        lost.append(Lost(queue, None, None))
    return lost


def is_plain(disk: Disk, path: Path) -> bool:
    """Whether a path is not a directory or a link, which cannot be read: that is reported, and not its size."""
    return not disk.is_link(path) and not disk.is_directory(path)


def _find_exchanged(lost: list[Lost]) -> dict[str, str]:
    """The files that have exchanged their names, each with the file whose contents it has.

    Each has the size that was noted for another one of them, and no two of the files have the same size.
    """
    noted, sizes = [one.noted for one in lost], [one.size for one in lost]
    owners = {one.noted: one.name for one in lost if noted.count(one.noted) == 1}
    found = {one.name: owners[one.size] for one in lost if one.size in owners and sizes.count(one.size) == 1}
    while open_ends := found.keys() ^ set(found.values()):
        found = {name: other for name, other in found.items() if not open_ends & {name, other}}
    return found


def present_files(disk: Disk, directory: Path, listing: Listing) -> dict[str, int]:
    """The rotated files that are there, dead ones too, with their sizes."""
    names = [*(file.name for file in listing.files if not file.is_newest), *listing.dead]
    return {name: disk.file_size(directory / name) for name in names}


def _flaw_of_pack(disk: Disk, directory: Path, listing: Listing, pack: JournalFile) -> Damage | None:
    try:
        if disk.is_directory(pack.path):
            return None
        size = disk.file_size(pack.path)
    except NotFound:  # it has lost its suffix by now
        return None
    note = pack_note(disk, directory, pack.queue)
    if note.timestamp == pack.timestamp and note.size != size and note.replaces <= set(listing.dead):
        reason = f"the pack has {size} bytes, and {note.size} were written; the files that it would replace are there"
        return Damage(pack.name, 0, 0, reason, "changed_pack")
    known = known_dead(disk, directory, listing)
    if size or not any(_size(disk, directory / name) for name in listing.dead if name not in known):
        return None
    return Damage(pack.name, 0, 0, "the pack is empty, and the files that it would replace are not", "empty_pack")


def _size(disk: Disk, path: Path) -> int:
    try:
        return disk.file_size(path)
    except NotFound:
        return 0


def list_queues(disk: Disk, directory: Path) -> list[str]:
    """The queues that have a file in a directory, by name. What is a directory is no file of a queue.

    A queue whose files are all missing is among them if they were noted.
    """
    found = noted_queues(disk, directory)
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
