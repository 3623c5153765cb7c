"""Restoring stores from tables: the same state at every time, and the same history of every key.

Tables have each change once, and when the journal that it is in became the active one (`sequence`). So the files of a
store are restored in order: each journal begins with the copies of the state that the previous one ended with, which
are not in the tables; then its changes follow. A journal that another one follows becomes an archive, named by the time
at which that one began, or by its own last change if another program has rotated it later. Journals without changes are
restored if the table `files` has them.

Of an undamaged store of ours, the active journal is restored byte for byte up to its position, after which nothing
counts, and archives have the same bytes once they are decompressed. Entries that another program has written in another
form are written in ours; fields that we do not know are not in tables; NaN and the infinities are strings there. Where
that changes the size of an entry, it is reported.

What was damaged is not in the tables, and what they do not know is not guessed. Where the changes of a journal begin
with the copies themselves, because what was before it is damaged or missing, they are taken as they are, and nothing is
said about the time before. Where it is not known since when a journal was the active one, because it was read as a file
by itself, it is taken to have begun at the latest time that its entries allow.

A journal of a pipeline is always a directory. Locks and what was cut off and kept (`.logwright/`) are not restored.
Stores have no consumers.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...core.io.disk import REAL_DISK, Disk, File, make_directories, write_all
from ...core.publish.restore import Restore, Written
from ...core.read.chunk import POSITION_BITS
from ...errors import DamagedJournal, LogwrightError, WrongUse
from ..files.archiving import compress
from ..files.files import MOST_TAKEN_NS, Kind, active_name, archive_name, check_store_name, parse_name, temporary_name
from ..model.merge import write_head
from ..model.rotation import head_bytes

_WRITE_BYTES: Final = 1 << 20
_MAX_NAME_BYTES: Final = 255
_NOT_KNOWN: Final = (-1, 0)
"""The `sequence` of a journal whose start as the active one is unknown."""


def part_of(file: str) -> str:
    """The store that a file belongs to. A file of any other name is taken for a store of that name."""
    parsed = parse_name(file)
    store = file if parsed is None else parsed[0]
    try:
        return check_store_name(store)
    except WrongUse:
        raise WrongUse(f"{file!r} cannot be the name of a file of a store") from None


class Change(NamedTuple):
    """A row of the table `kv_changes`: an entry, and where it was."""

    sequence: int
    position: int
    size: int
    t: int
    key: str
    deleted: bool
    entry: bytes


@dataclass(slots=True)
class _Journal:
    """A journal that is being written. `end` is the end of the original journal."""

    sequence: int
    file: File
    initialized: int | None
    end: int
    size: int = 0
    records: int = 0
    earliest: int | None = None
    latest: int = 0
    waiting: list[bytes] = field(default_factory=list)
    waiting_bytes: int = 0
    keys: set[str] = field(default_factory=set)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    odd: list[int] = field(default_factory=list)

    def begin(self, initialized: int) -> None:
        """It is known since when it was the active one."""
        self.initialized = initialized
        self.size = head_bytes(initialized)

    def begin_later(self, initialized: int) -> None:
        """It was the active one since another time, if that takes as many bytes."""
        if self.initialized is not None and head_bytes(initialized) == head_bytes(self.initialized):
            self.initialized = initialized

    def append(self, entry: bytes) -> None:
        self.waiting.append(entry)
        self.waiting_bytes += len(entry)
        if self.waiting_bytes >= _WRITE_BYTES and self.initialized is not None:
            self.write()

    def write(self) -> None:
        data = b"".join(self.waiting)
        write_all(self.file, self.size, data)
        self.size += len(data)
        self.waiting, self.waiting_bytes = [], 0

    def look_for_beginning(self, change: Change) -> None:
        """The first entry that cannot be a copy is not earlier than the journal: it has one of each key at most."""
        if change.deleted or change.key in self.keys:
            self.begin(change.t)
            self.keys = set()
        else:
            self.keys.add(change.key)

    def finish(self, latest: int) -> None:
        """Make it whole, and durable but for its name; it began at the latest then."""
        if self.initialized is None:
            self.begin(latest)
        self.write()
        assert self.initialized is not None
        write_head(self.file, self.initialized, self.size)
        self.file.sync()


class FileWriter:
    """Writes all files of a store. `listed` are those that the table `files` has of it."""

    def __init__(self, directory: Path, file: str, *, listed: Sequence[str] = (), disk: Disk = REAL_DISK) -> None:
        self._store = part_of(file)
        self._disk = disk
        self._directory = directory
        longest = archive_name(self._store, 2**64 - 1)
        if len(longest.encode()) > _MAX_NAME_BYTES:
            raise WrongUse(f"{longest!r} is longer than a file's name can be")
        parsed = [found for name in listed if (found := parse_name(name)) is not None]
        self._ends = sorted({timestamp for _, kind, timestamp in parsed if kind is Kind.ARCHIVE and timestamp})
        self._has_active = not self._ends or any(kind is not Kind.ARCHIVE for _, kind, _ in parsed)
        self._live: dict[str, Change] = {}
        self._journal: _Journal | None = None
        self._done: list[Written] = []
        make_directories(disk, directory)

    def append_batch(self, batch: Any) -> None:
        """Add rows of the table `kv_changes`: those of this store, in the order of `sequence` and `position`."""
        from .spark_columns import changes

        for row in changes(batch):
            self._take(Change(*row))

    def _take(self, change: Change) -> None:
        journal = self._journal
        if journal is None or journal.sequence != change.sequence:
            journal = self._turn(change)
        if change.position < journal.end:
            reason = f"the tables have two entries here, one of them ends at {journal.end}"
            raise DamagedJournal(self._store, change.position, reason)
        if change.position > journal.end:
            journal.gaps.append((journal.end, change.position))
        journal.end = change.position + change.size
        journal.records += 1
        journal.earliest = change.t if journal.earliest is None else min(journal.earliest, change.t)
        journal.latest = max(journal.latest, change.t)
        if len(change.entry) != change.size:
            journal.odd.append(change.position)
        if journal.initialized is None:
            journal.look_for_beginning(change)
        journal.append(change.entry)
        self._live.pop(change.key, None)  # so that the last one written comes last
        if not change.deleted:
            self._live[change.key] = change

    # --- from journal to journal ------------------------------------------------------------------------------------

    def _turn(self, change: Change) -> _Journal:
        """The journal that begins with a change, after those that end before it."""
        begins = change.sequence
        head = head_bytes(max(0, begins))
        copied = sum(live.size for live in self._live.values())
        has_copies_in_rows = bool(copied) and change.position == head
        if self._journal is not None:
            ends = [end for end in self._ends_after(self._journal) if end < begins]
            if not ends or begins in self._ends:  # else another program has let the next journal begin later
                ends.append(begins)
            self._end(self._name_of(self._journal, ends[0]))
            if not has_copies_in_rows:  # else the contents of those in between are unknown
                self._write_unchanged(ends)
        if has_copies_in_rows:
            self._live = {}
        is_known = begins not in _NOT_KNOWN and not has_copies_in_rows
        journal = self._begin(begins, begins if is_known else None)
        if not self._live or change.position - head == copied:
            journal.end = change.position  # nothing is missing before it
        return journal

    def _ends_after(self, journal: _Journal) -> list[int]:
        """The times in the names of archives at which a journal may have ended: other programs name them too early."""
        return [end for end in self._ends if journal.sequence < end >= journal.latest]

    def _name_of(self, journal: _Journal, end: int) -> int:
        """The time in the name of an archive that ended at a time: that of its last change.

        Another program lets the next journal begin later. A name that is later than all of its entries would say that
        it is the name of another archive.
        """
        last = max(journal.latest, journal.sequence)
        is_free = archive_name(self._store, last) not in {written.file for written in self._done[-1:]}
        return end if end - last <= MOST_TAKEN_NS or not journal.records or not is_free else last

    def _begin(self, sequence: int, initialized: int | None) -> _Journal:
        """A new journal, with copies of the current state."""
        file = self._disk.open(self._directory / temporary_name(self._store), "create")
        self._journal = journal = _Journal(sequence, file, None, head_bytes(max(0, sequence)))
        if initialized is not None:
            journal.begin(initialized)
        for live in self._live.values():
            journal.append(live.entry)
        return journal

    def _end(self, timestamp: int | None) -> None:
        """The journal ends, as the archive of a time, or as the active one."""
        journal = self._journal
        assert journal is not None
        if not self._done and timestamp == journal.sequence + 1 and journal.earliest == timestamp:
            journal.begin_later(timestamp)  # a first journal that ended when it began is numbered by the time before
        journal.finish(time.time_ns() if timestamp is None else timestamp)
        path = journal.file.path
        name = active_name(self._store) if timestamp is None else archive_name(self._store, timestamp)
        try:
            if timestamp is not None:
                compress(self._disk, journal.file, journal.size, self._directory / name)
        finally:
            journal.file.close()
        if timestamp is None:
            self._disk.rename(path, self._directory / name)
        else:
            self._disk.remove(path)
        first = max(0, journal.sequence) << POSITION_BITS
        self._done.append(
            Written(
                name,
                first,
                first + journal.end,
                journal.records,
                self._disk.file_size(self._directory / name),
                gaps=tuple((first + start, first + end) for start, end in journal.gaps),
                problems=_reported(name, journal.odd),
            )
        )
        self._journal = None

    def _write_unchanged(self, ends: Sequence[int]) -> None:
        """The archives between these times, in which nothing has changed."""
        for begin, end in pairwise(ends):
            self._begin(begin, begin)
            self._end(end)

    # --- the end ----------------------------------------------------------------------------------------------------

    def finish(self) -> list[Written]:
        """The files, on the disk."""
        ends = self._ends
        if self._journal is None:  # archives before the first change are unknown
            ends = ends[-1:]
            last = ends[0] if ends else None
            self._begin(last or 0, last)
            self._end(None if self._has_active else last)
        else:
            ends = self._ends_after(self._journal)
            self._end(ends[0] if ends else None)
            self._write_unchanged(ends)
            if ends and self._has_active:
                self._begin(ends[-1], ends[-1])
                self._end(None)
        self._disk.sync_directory(self._directory)
        return self._done

    def discard(self) -> None:
        """Close what is open."""
        if self._journal is not None:
            with contextlib.suppress(LogwrightError):
                self._journal.file.close()


def _reported(file: str, odd: Sequence[int]) -> tuple[str, ...]:
    """What is reported of entries whose size has changed."""
    if not odd:
        return ()
    what = "1 entry has" if len(odd) == 1 else f"{len(odd)} entries have"
    return (f"{file}: {what} another form than before, the first one was @ {odd[0]}",)


class StoreRestore(Restore):
    """All files of a store."""

    renames_files = True

    def part_of(self, file: str) -> str:
        return part_of(file)

    def writer(self, directory: Path, file: str, *, disk: Disk, listed: Sequence[str] = ()) -> FileWriter:
        return FileWriter(directory, file, listed=listed, disk=disk)

    def unit_of(self, file: str) -> str:
        """All files of a store are written by one writer, which has the name of the active journal."""
        return active_name(part_of(file))

    def settled(self, names: Iterable[tuple[str, int | None]]) -> dict[tuple[str, int | None], str]:
        """By any name that a file had: the writer that writes it."""
        return {(name, before): self.unit_of(name) for name, before in names}


RESTORE: Final = StoreRestore()
