"""Opening a journal for writing: finding the end of its records, cutting off a torn tail, putting older files aside.

The steps are done in this order, with the lock held, and each is durable before the next one:

    1. the files of a finished recovery are removed, and moves that an earlier opening did not finish are completed
    2. a torn tail of the last file is kept in `.logwright/cut/` and cut off
    3. `.logwright/recovery/N/` is created, N being the id after the last file
    4. the files are moved there, oldest first
    5. the new journal begins with the file N, once something is appended

Only a recovery does steps 3 to 5. A crash at any point loses nothing: N and the ids of the files show which files
belong together, in whichever directory they are (see `files.py`). From step 3 on all files before N are to be
recovered, and nothing is added to them.

The end of a recovery is one rename, of `.logwright/recovery` with all its files; these can be removed at any later
time. The new name has the ids that the journal continues with, so the files can be removed before a record with these
ids is written, even on a full disk. It also has the end of the last data: a reader that follows the journal and had
reached it has missed nothing. So the directory stays, empty, until later files are removed too.

If a generation was begun during the walk, which the walk does not return, a directory of that name with a mark in it is
created instead: files before its id in `.logwright/recovery` are finished. The mark is removed after these files, so
that a generation that is put back later does not count as finished.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ...core.bytes.outcome import Damage
from ...core.io.disk import Disk, File, make_directories, remove_tree
from ...core.io.quarantine import cut_tail
from ...core.publish.protocol import move_into_place
from ...core.write.opening import JournalToWrite
from ...errors import DamagedJournal, Gap, TooLarge
from ..bytes.layout import LOCK_NAME, MAX_ID, RECOVERY_DIRECTORY, Done
from .boundaries import Seen, look, lost_end, note_beginnings, pair_of
from .cursor import Cursor, read_hint
from .files import (
    JournalFile,
    Listing,
    generation_directory,
    list_files,
    names_in,
    wrong_names,
)
from .note import Note, Noted

logger = logging.getLogger("logwright.appendfile")

_NEW: Final = "recovered.new"
_MARK: Final = "ended"
"""The mark in the directory of a finished recovery, until its files are removed."""


@dataclass(slots=True)
class End:
    """Where a journal continues: the position in a file, the ids of segments, and the files before it.

    `file` is the last file, opened, None if the next record begins a new one. See `codec.AppendBuffer` for the rest.
    """

    file_id: int = 0
    position: int = 0
    checked: int = 0
    current: int = 0
    has_data: bool = False
    starts: list[tuple[int, int]] = field(default_factory=list)
    file: File | None = None
    ids: tuple[int, int] = (0, 0)
    """The ids that the file begins with."""
    paths: list[tuple[int, Path]] = field(default_factory=list)
    """The files of this generation, oldest first."""
    older: list[JournalFile] = field(default_factory=list)
    """The files of the earlier generations, which are to be recovered."""
    cut: Damage | None = None
    kept: Path | None = None


def journal_to_write(disk: Disk, directory: Path) -> JournalToWrite:
    """A journal for `open_for_writing`: all of the directory."""
    places = ((directory, ""),)
    return JournalToWrite(disk, "appendfile", directory, directory / LOCK_NAME, places)


def open_end(disk: Disk, directory: Path, note: Note, *, recovering: bool) -> End:
    """Prepare a journal for a writer, open its last file, and note its size, which is on the disk.

    With `recovering` all existing files are put aside, and a new generation begins.
    """
    remove_done(disk, directory)
    listing = list_files(disk, directory)
    note_beginnings(disk, listing)
    check_names(listing)
    if listing.left_behind:
        for boundary in listing.boundaries:
            left = [file for file in listing.left_behind if file.generation == boundary]
            _move(disk, directory, left, boundary)
        listing = list_files(disk, directory)
    elif listing.older:
        _sync_names(disk, directory, listing)  # an earlier move may not have been synced
    end = _open_last(disk, directory, listing)
    note.forget_before(listing.files[0].file_id if listing.files else end.file_id)
    if end.file is not None:
        note.put(end.file_id, Noted(end.position, end.ids))
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
    """Put all existing files aside; a new generation begins with the segment `current`."""
    listing = list_files(disk, directory)
    if listing.next_id > MAX_ID:
        raise TooLarge(f"{directory}: the journal has used up its 64-bit ids of files")
    _move(disk, directory, listing.current, listing.next_id)
    listing = list_files(disk, directory)
    return End(listing.next_id, checked=current, current=current, older=listing.older)


def check_names(listing: Listing) -> None:
    """Raise `Gap` or `DamagedJournal` for a file that is missing or there twice."""
    for file in listing.files:
        for kind, reason in wrong_names(file):
            raise (Gap if kind == "gap" else DamagedJournal)(file.path, 0, f"{reason} (see logwright repair)")
    for lost in listing.lost:
        raise Gap(listing.directory / lost.place, 0, f"{lost.reason} (see logwright repair)")


# --- moving files aside -----------------------------------------------------------------------------------------------


def _move(disk: Disk, directory: Path, files: list[JournalFile], boundary: int) -> None:
    """Put files into the directory of their generation, oldest first."""
    folder = generation_directory(directory, boundary)
    for path in (folder.parent, folder):  # neither of which may be a link
        make_directories(disk, path)
    for file in sorted(files, key=lambda file: file.file_id):
        move_into_place(disk, file.path, folder / file.path.name)
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
    """End a recovery: files that were put aside before its id are no longer visible. `remove_done` removes them."""
    recovery = directory / RECOVERY_DIRECTORY
    if any(boundary > done.file_id for boundary in list_files(disk, directory).boundaries):
        new = recovery.parent / _NEW
        make_directories(disk, new / _MARK)
        disk.rename(new, directory / done.name)
    else:
        disk.rename(recovery, directory / done.name)  # which needs no space
    disk.sync_directory(recovery.parent)


def remove_done(disk: Disk, directory: Path) -> None:
    """Remove the files of finished recoveries. The directories stay: their names may be the only place with the ids."""
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
    """Remove the directories whose ids are also in a file, once later files were removed."""
    listing = list_files(disk, directory)
    useless = [done for done in listing.done if listing.files and listing.files[0].file_id != done.file_id]
    _, known = pair_of(disk, listing.files) if useless else (0, 0)
    for done in useless:
        if done.segment <= known and any(file.file_id >= done.file_id for file in listing.files):
            remove_tree(disk, directory / done.name)


def _following(disk: Disk, listing: Listing) -> int:
    """The segment that a journal without ids of its own continues with: ids only grow."""
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
        seen = Seen()
        end.cut = _torn_tail(seen, Cursor(file, last, disk=disk))
        end.ids = seen.first or end.ids
        end.position = file.size() if end.cut is None else end.cut.start
        if end.cut is not None:
            end.kept = cut_tail(disk, directory, file, end.cut.start)
            logger.warning("%s: cut off a torn tail, kept in %s", end.cut, end.kept)
        else:
            file.sync()  # the last writer may not have synced: new records must not become durable first
        disk.sync_directory(directory)  # the same for the name
        _find_pair(disk, listing, end, seen)
    except BaseException:
        file.close()
        raise
    return end


def _torn_tail(seen: Seen, cursor: Cursor) -> Damage | None:
    """Go through the last file; its torn tail. Other damage is an error."""
    damage = seen.walk(cursor, is_strict=True)
    if damage is None or damage.kind == "torn_tail":
        return damage
    reason = f"{damage.reason}; this is not what a crash leaves, so nothing is cut off (see logwright repair)"
    raise (Gap if damage.kind == "gap" else DamagedJournal)(cursor.source.path, damage.start, reason)


def _find_pair(disk: Disk, listing: Listing, end: End, seen: Seen) -> None:
    """The ids that hold at the end, whether the segment there has data, and where the open ones begin."""
    earlier = listing.current[:-1]
    firsts = {end.file_id: seen.first}
    has_data = seen.has_data
    pair = seen.last
    before = _check_hint(disk, listing.current, end, seen)
    while earlier and (pair is None or (not has_data and seen.first is not None and seen.first[1] == pair[1])):
        seen, before = before or look(disk, earlier[-1]), None
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


def _check_hint(disk: Disk, files: list[JournalFile], end: End, seen: Seen) -> Seen | None:
    """Raise `Gap` if the last file has only ids that do not follow those of the file before, which was looked at."""
    if len(files) == 1 or seen.first != seen.last:
        return None
    assert end.file is not None
    before = look(disk, files[-2])
    gap = lost_end(end.file, files[-1], before.last, is_exact=before.is_exact)
    if gap is not None:
        raise Gap(files[-1].path, 0, f"{gap.reason} (see logwright repair)")
    return before


def _starts(disk: Disk, files: list[JournalFile], firsts: dict[int, tuple[int, int] | None]) -> list[tuple[int, int]]:
    """The file that each segment begins in or after, by the hints of the files.

    Ids only grow. Where they do not, a file may have another one's name, and a check could remove a file that is
    needed: then no file is removed before the next recovery.
    """
    found = [(0, files[0].file_id)]
    before = (0, 0)
    for file in files:
        hint = firsts[file.file_id] if file.file_id in firsts else read_hint(disk, file.path)
        if hint is None:
            continue
        if hint[0] < before[0] or hint[1] < before[1]:
            return [(0, files[0].file_id)]
        before = hint
        found.append((hint[1] + 1, file.file_id))
    return found
