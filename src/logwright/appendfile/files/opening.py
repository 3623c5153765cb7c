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
from ..bytes import codec
from ..bytes.layout import CHECKPOINT_BYTES, LOCK_NAME, MAX_CHECKPOINTS, MAX_ID, RECOVERY_DIRECTORY, Done
from ..bytes.records import Checkpoint
from .cursor import Chunk, Cursor, judge
from .files import JournalFile, Listing, generation_directory, list_files, names_in, wrong_names

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
    paths: list[tuple[int, Path]] = field(default_factory=list)
    """The files of this generation, oldest first."""
    older: list[JournalFile] = field(default_factory=list)
    """The files of the earlier generations, which are to be recovered."""
    cut: Damage | None = None
    kept: Path | None = None


@dataclass(slots=True)
class _Seen:
    """The first and the last pair of ids of a file, and whether the segment at its end has data in it.

    `is_exact` says that no ids that could not be read can have followed the last ones.
    """

    first: tuple[int, int] | None = None
    last: tuple[int, int] | None = None
    has_data: bool = False
    is_exact: bool = True

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
            self.is_exact = True
            following = row + 1
        if chunk.count > following:
            self.has_data = True


def journal_to_write(disk: Disk, directory: Path) -> JournalToWrite:
    """A journal for `open_for_writing`: all of the directory."""
    places = ((directory, ""),)
    return JournalToWrite(disk, "appendfile", directory, directory / LOCK_NAME, places, lambda part, file: True)


def open_end(disk: Disk, directory: Path, *, recovering: bool) -> End:
    """Prepare a journal for a writer, and open its last file.

    With `recovering` all existing files are put aside, and a new generation begins.
    """
    remove_done(disk, directory)
    listing = list_files(disk, directory)
    check_names(listing)
    if listing.left_behind:
        for boundary in listing.boundaries:
            left = [file for file in listing.left_behind if file.generation == boundary]
            _move(disk, directory, left, boundary)
        listing = list_files(disk, directory)
    elif listing.older:
        _sync_names(disk, directory, listing)  # an earlier move may not have been synced
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
    """Put all existing files aside; a new generation begins with the segment `current`."""
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
        seen = _Seen()
        end.cut = _walk(file, last, seen, strict=True)
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


def _find_pair(disk: Disk, listing: Listing, end: End, seen: _Seen) -> None:
    """The ids that hold at the end, whether the segment there has data, and where the open ones begin."""
    earlier = listing.current[:-1]
    firsts = {end.file_id: seen.first}
    has_data = seen.has_data
    pair = seen.last
    before = _check_hint(disk, listing.current, end, seen)
    while earlier and (pair is None or (not has_data and seen.first is not None and seen.first[1] == pair[1])):
        seen, before = before or _look(disk, earlier[-1]), None
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


def _check_hint(disk: Disk, files: list[JournalFile], end: End, seen: _Seen) -> _Seen | None:
    """Raise `Gap` if the last file has only ids that do not follow those of the file before, which was looked at."""
    if len(files) == 1 or seen.first != seen.last:
        return None
    assert end.file is not None
    before = _look(disk, files[-2])
    gap = lost_end(end.file, files[-1], before.last, is_exact=before.is_exact)
    if gap is not None:
        raise Gap(files[-1].path, 0, f"{gap.reason} (see logwright repair)")
    return before


def _starts(disk: Disk, files: list[JournalFile], firsts: dict[int, tuple[int, int] | None]) -> list[tuple[int, int]]:
    """The file that each segment begins in or after, by the hints of the files.

    A hint that goes back is wrong, but does no harm: no file is given up before those with an earlier place here.
    """
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


def lost_end(
    file: File, source: JournalFile, before: tuple[int, int] | None, *, is_exact: bool = True
) -> Damage | None:
    """Why the preceding file must have lost its end, or the first ids of this one must be wrong.

    `before` are the last ids of that, if known; `is_exact` says that no others can have followed them. A file begins
    with these ids, or with those of a checkpoint record that did not fit there. None if it does, and if the account of
    losses explains it.
    """
    pair = pair_in(file.read_at(0, CHECKPOINT_BYTES))
    if before is None or pair is None or source.missing or source.others:
        return None
    steps = (pair[0] - before[0], pair[1] - before[1])
    if min(steps) >= 0 and sum(steps) <= (1 if is_exact else MAX_CHECKPOINTS):
        return None
    if source.knows_jump(before, pair):
        return None
    reason = f"it begins with the ids {pair[0]}, {pair[1]}, and the file before ends with {before[0]}, {before[1]}"
    return Damage(source.name, 0, 0, f"{reason}: records are missing between them, or these ids are wrong", "gap")


def _look(disk: Disk, source: JournalFile) -> _Seen:
    """The ids of a file that is not the last one. Readers report damage in it."""
    seen = _Seen()
    file = disk.open(source.path, "read")
    try:
        _walk(file, source, seen, strict=False)
    finally:
        file.close()
    return seen


def pair_of(disk: Disk, files: list[JournalFile]) -> tuple[int, int]:
    """The ids at the end of files that are not written any more; zeros if unknown."""
    found = last_pair(disk, files)
    return (0, 0) if found is None else found[1]


def last_pair(disk: Disk, files: list[JournalFile]) -> tuple[JournalFile, tuple[int, int]] | None:
    """The last of these files with readable ids, and the ids; None if there is none.

    If a file has no ids but those of its first record, these count only if they follow those of the file before.
    """
    found = None
    for file in reversed(files):
        seen = _look(disk, file)
        if seen.last is None:
            continue
        if found is not None:
            return (file, seen.last) if _begins_wrong(disk, found[0], seen) else found
        found = (file, seen.last)
        if seen.first != seen.last:
            break
    return found


def _begins_wrong(disk: Disk, source: JournalFile, before: _Seen) -> bool:
    file = disk.open(source.path, "read")
    try:
        return lost_end(file, source, before.last, is_exact=before.is_exact) is not None
    finally:
        file.close()


def _walk(file: File, source: JournalFile, seen: _Seen, *, strict: bool) -> Damage | None:
    """Go through a file; its torn tail. With `strict` other damage is an error."""
    cursor = Cursor(file, source)
    while True:
        while (chunk := cursor.read()) is not None:
            seen.note(chunk)
        damage, goes_on = judge(cursor)
        if damage is None or damage.kind == "torn_tail":
            return damage
        seen.is_exact = False
        if strict:
            reason = f"{damage.reason}; this is not what a crash leaves, so nothing is cut off (see logwright repair)"
            raise (Gap if damage.kind == "gap" else DamagedJournal)(source.path, damage.start, reason)
        if not goes_on:
            return None
