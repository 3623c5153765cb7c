"""Opening a journal for writing: where its records end, what is cut off there, and how older files are put aside.

What is done, in this order, each step durable before the next one, all of it with the lock held:

    1. what an earlier recovery is done with goes, and files whose move an earlier opening did not finish are moved
    2. a torn tail of the last file is kept in `.logwright/cut/` and cut off
    3. `.logwright/recovery/N/` is created, N being the id behind the last file
    4. the files are moved there, oldest first
    5. the new journal begins with the file N, once something is appended

Steps 3 to 5 are those of a recovery only. A crash in or between any of them loses nothing: which files belong together
follows from N and their ids, wherever they lie (see `files.py`). From step 3 on all files before N are what there is to
recover, and nothing is ever added to them.

A recovery that was walked to its end is ended by one rename, of `.logwright/recovery` with all that is in it; what has
the new name is removed, and it does not matter when. The new name says with which ids the journal goes on: so the space
is free before the first record is written that says it too, and a full disk keeps nobody from getting rid of old files.
It also says where the last data ended: who follows the journal, and had read that, goes on and has missed nothing. So
it stays, an empty directory, until files behind it are gone as well.

Where a generation was begun during the walk, which nobody has been given, a directory of that name is created instead
with a mark in it: what lies before its id in `.logwright/recovery` is done with. The mark goes after that is removed:
a generation that somebody puts back later is not done with.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ...core.bytes.outcome import Damage
from ...core.io.disk import Disk, File, make_directories, remove_tree
from ...core.io.quarantine import cut_tail
from ...core.repair.plan import refuse_half_repaired
from ...errors import DamagedJournal, Gap, TooLarge
from ..bytes import codec
from ..bytes.layout import CHECKPOINT_BYTES, MAX_ID, RECOVERY_DIRECTORY, Done
from ..bytes.records import Checkpoint
from .cursor import Chunk, Cursor, judge
from .files import JournalFile, Listing, generation_directory, list_files, names_in, wrong_names

logger = logging.getLogger("logwright.appendfile")

_NEW: Final = "recovered.new"
_MARK: Final = "ended"
"""What is in the directory of a recovery that is done with, as long as what it was about is still there."""


@dataclass(slots=True)
class End:
    """Where a journal goes on: the position in a file, the ids of segments, and which files there are before it.

    `file` is the last file, opened, None where the next record begins a new one. See `codec.AppendBuffer` for the rest.
    """

    file_id: int = 0
    position: int = 0
    checked: int = 0
    current: int = 0
    has_data: bool = False
    starts: list[tuple[int, int]] = field(default_factory=list)
    file: File | None = None
    paths: list[tuple[int, Path]] = field(default_factory=list)
    """The files of this generation, oldest first."""
    older: list[JournalFile] = field(default_factory=list)
    """The files of the generations before it: what there is to recover."""
    cut: Damage | None = None
    kept: Path | None = None


@dataclass(slots=True)
class _Seen:
    """What one file tells: its first pair of ids and its last, and whether the segment at its end has data in it."""

    first: tuple[int, int] | None = None
    last: tuple[int, int] | None = None
    has_data: bool = False

    def note(self, chunk: Chunk) -> None:
        rows, _, checked, current = chunk.turns()
        following = 0
        for row, *pair in zip(rows, checked, current, strict=True):
            if row > following:
                self.has_data = True
            if self.last is not None and pair[1] != self.last[1]:
                self.has_data = False
            self.first = self.first or (pair[0], pair[1])
            self.last = (pair[0], pair[1])
            following = row + 1
        if chunk.count > following:
            self.has_data = True


def open_end(disk: Disk, directory: Path, *, recovering: bool) -> End:
    """Bring a journal into the state that a writer goes on from, and open its last file.

    With `recovering` all files that are there are put aside, and a new generation begins.
    """
    refuse_half_repaired(disk, directory, "journal", lambda plan: plan.format == "appendfile")
    remove_done(disk, directory)
    listing = list_files(disk, directory)
    check_names(listing)
    if listing.left_behind:
        for boundary in listing.boundaries:
            left = [file for file in listing.left_behind if file.generation == boundary]
            _move(disk, directory, left, boundary)
        listing = list_files(disk, directory)
    elif listing.older:
        _sync_names(disk, directory, listing)  # whoever moved them may have been killed before that
    end = _open_last(disk, directory, listing)
    try:
        forget_done(disk, directory)
    except BaseException:
        if end.file is not None:
            end.file.close()
        raise
    if recovering and listing.current:
        if end.file is not None:
            end.file.close()
        return replace(put_aside(disk, directory, end.current), cut=end.cut, kept=end.kept)
    end.older = listing.older
    return end


def put_aside(disk: Disk, directory: Path, current: int) -> End:
    """Put all files aside that are there, and whole; a new generation begins with the segment `current`."""
    listing = list_files(disk, directory)
    if listing.next_id > MAX_ID:
        raise TooLarge(f"{directory}: the journal has used up its 64-bit ids of files")
    _move(disk, directory, listing.current, listing.next_id)
    listing = list_files(disk, directory)
    return End(listing.next_id, checked=current, current=current, older=listing.older)


def check_names(listing: Listing) -> None:
    """Raise `Gap` or `DamagedJournal` for an id that is missing or there twice."""
    for file in listing.files:
        for kind, reason in wrong_names(file):
            raise (Gap if kind == "gap" else DamagedJournal)(file.path, 0, f"{reason} (see logwright repair)")


# --- moving files aside -----------------------------------------------------------------------------------------------


def _move(disk: Disk, directory: Path, files: list[JournalFile], boundary: int) -> None:
    """Put files into the directory of their generation, oldest first."""
    folder = generation_directory(directory, boundary)
    for path in (folder.parent, folder):  # neither of which may be a link
        make_directories(disk, path)
    for file in sorted(files, key=lambda file: file.file_id):
        target = folder / file.path.name
        if disk.identity(target) == disk.identity(file.path):
            disk.remove(file.path)  # a power cut in the move has left both names
        else:
            disk.rename(file.path, target)
    disk.sync_directory(folder)
    disk.sync_directory(directory)


def _sync_names(disk: Disk, directory: Path, listing: Listing) -> None:
    """Make durable that files were moved."""
    for boundary in listing.boundaries:
        folder = generation_directory(directory, boundary)
        make_directories(disk, folder)
        disk.sync_directory(folder)
    disk.sync_directory(directory)


def drop_older(disk: Disk, directory: Path, done: Done) -> None:
    """End a recovery: nobody will see what was put aside before its id any more. `remove_done` does the rest."""
    recovery = directory / RECOVERY_DIRECTORY
    if any(boundary > done.file_id for boundary in list_files(disk, directory).boundaries):
        new = recovery.parent / _NEW
        make_directories(disk, new / _MARK)
        disk.rename(new, directory / done.name)
    else:
        disk.rename(recovery, directory / done.name)  # which needs no space
    disk.sync_directory(recovery.parent)


def remove_done(disk: Disk, directory: Path) -> None:
    """Remove what recoveries are done with. Their names stay, which may be all that tells their ids."""
    listing = list_files(disk, directory)
    for boundary in listing.ended:
        remove_tree(disk, generation_directory(directory, boundary))
    if listing.ended:
        disk.sync_directory(directory / RECOVERY_DIRECTORY)  # without the mark that says so they would be back
    for done in listing.done:
        _empty(disk, directory / done.name)


def _empty(disk: Disk, done: Path) -> None:
    for name in names_in(disk, done):
        remove_tree(disk, done / name)


def forget_done(disk: Disk, directory: Path) -> None:
    """Remove the directories with ids that a file tells as well, once more files have gone than they know of."""
    listing = list_files(disk, directory)
    useless = [done for done in listing.done if listing.files and listing.files[0].file_id != done.file_id]
    _, told = pair_of(disk, listing.files) if useless else (0, 0)
    for done in useless:
        if done.segment <= told and any(file.file_id >= done.file_id for file in listing.files):
            remove_tree(disk, directory / done.name)


def _following(disk: Disk, listing: Listing) -> int:
    """The segment that a journal without a pair of its own goes on with: ids only grow."""
    return max([pair_of(disk, listing.older)[1], *(done.segment for done in listing.done)])


# --- the end of the last file -----------------------------------------------------------------------------------------


def _open_last(disk: Disk, directory: Path, listing: Listing) -> End:
    """The last file, opened where its records end, a torn tail cut off; or where the next file begins."""
    current = listing.current
    if not current:
        following = _following(disk, listing)
        return End(listing.next_id, checked=following, current=following)
    last = current[-1]
    end = End(last.file_id, paths=[(file.file_id, file.path) for file in current])
    file = end.file = disk.open(last.path, "update")
    try:
        seen = _Seen()
        end.cut = _walk(file, last, seen, strict=True)
        end.position = file.size() if end.cut is None else end.cut.start
        if end.cut is not None:
            end.kept = cut_tail(disk, directory, file, end.cut.start)
            logger.warning("%s: cut off a torn tail, kept in %s", end.cut, end.kept)
        else:
            file.sync()  # whoever wrote it may have been killed before that: what we add must not become durable first
        disk.sync_directory(directory)  # and so may have been whoever gave it its name
        _find_pair(disk, listing, end, seen)
    except BaseException:
        file.close()
        raise
    return end


def _find_pair(disk: Disk, listing: Listing, end: End, seen: _Seen) -> None:
    """The ids that hold at the end, whether the segment there has data, and where the open ones begin."""
    earlier = listing.current[:-1]
    firsts = {end.file_id: seen.first}
    has_data = seen.has_data
    pair = seen.last
    while earlier and (pair is None or (not has_data and seen.first is not None and seen.first[1] == pair[1])):
        seen = _look(disk, earlier[-1])
        firsts[earlier[-1].file_id] = seen.first
        earlier = earlier[:-1]
        pair = pair or seen.last
        has_data = seen.last is not None and pair is not None and seen.last[1] == pair[1] and seen.has_data
    if pair is None:
        following = _following(disk, listing)
        pair = (following, following)
    end.checked, end.current = pair
    end.has_data = has_data
    end.starts = _starts(disk, listing.current, firsts)


def _starts(disk: Disk, files: list[JournalFile], firsts: dict[int, tuple[int, int] | None]) -> list[tuple[int, int]]:
    """For segments the file that each begins in, or behind: later ones than the hint of a file begin there."""
    found = [(0, files[0].file_id)]
    for file in files:
        hint = firsts[file.file_id] if file.file_id in firsts else hint_of(disk, file)
        if hint is not None:
            found.append((hint[1] + 1, file.file_id))
    return found


def hint_of(disk: Disk, source: JournalFile) -> tuple[int, int] | None:
    """The ids that a file begins with; None where they are damaged."""
    file = disk.open(source.path, "read")
    try:
        return pair_in(file.read_at(0, CHECKPOINT_BYTES))
    finally:
        file.close()


def pair_in(head: bytes) -> tuple[int, int] | None:
    """The ids of a checkpoint record; None for other bytes."""
    if codec.walk(head, 0, len(head), most=1)[1] == 0:
        return None
    (record,) = codec.records(head, 0, len(head), 1)
    return (record.checked, record.current) if isinstance(record, Checkpoint) else None


def lost_end(file: File, source: JournalFile, before: tuple[int, int] | None) -> Damage | None:
    """What shows that the file before this one has lost its end; `before` are the ids that it ends with, if known.

    A file begins with these ids, or with those of a checkpoint record that did not fit there. None if it does, and if
    the account of losses has the segment.
    """
    pair = pair_in(file.read_at(0, CHECKPOINT_BYTES))
    if before is None or pair is None or source.missing or pair[0] < before[0] or pair[1] < before[1]:
        return None
    if sum(pair) - sum(before) <= 1 or any(first <= before[1] <= last for first, last in source.lost):
        return None
    reason = f"it begins with the ids {pair[0]}, {pair[1]}, and the file before ends with {before[0]}, {before[1]}"
    return Damage(source.name, 0, 0, f"{reason}: records are missing between them, or these ids are wrong", "gap")


def _look(disk: Disk, source: JournalFile) -> _Seen:
    """What a file tells that is not the last: damage in it is for who reads it."""
    seen = _Seen()
    file = disk.open(source.path, "read")
    try:
        _walk(file, source, seen, strict=False)
    finally:
        file.close()
    return seen


def pair_of(disk: Disk, files: list[JournalFile]) -> tuple[int, int]:
    """The ids that held at the end of files that are not written any more; zeros where nothing tells."""
    found = last_pair(disk, files)
    return (0, 0) if found is None else found[1]


def last_pair(disk: Disk, files: list[JournalFile]) -> tuple[JournalFile, tuple[int, int]] | None:
    """The last of these files that tells ids, and which; None when none does."""
    for file in reversed(files):
        seen = _look(disk, file)
        if seen.last is not None:
            return file, seen.last
    return None


def _walk(file: File, source: JournalFile, seen: _Seen, *, strict: bool) -> Damage | None:
    """Go through a file; its torn tail. With `strict` other damage is an error."""
    cursor = Cursor(file, source)
    while True:
        while (chunk := cursor.read()) is not None:
            seen.note(chunk)
        damage, goes_on = judge(cursor)
        if damage is None or damage.kind == "torn_tail":
            return damage
        if strict:
            reason = f"{damage.reason}; this is not what a crash leaves, so nothing is cut off (see logwright repair)"
            raise DamagedJournal(source.path, damage.start, reason)
        if not goes_on:
            return None
