"""Reader: the journals of a store opened for reading. It needs no lock, changes nothing, and works beside a writer.

Three ways through the same chunks: `scan` for records with their places, as they are in the files; `chunks` for
columns, without the copies that compaction made, so that each change comes once; `state`, `history` and `diff` for the
state that results. What happens at damage, and at a torn tail of the active journal, is described in
`core/read/chunk_reader.py`; where reading continues after damage, in `cursor.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

from ...core.bytes.outcome import Damage, Mode, check_mode
from ...core.format import Located
from ...core.io.disk import REAL_DISK, Disk, File
from ...core.read.chunk import POSITION_BITS, Choice
from ...core.read.chunk_reader import FilesReader
from ...core.read.chunk_reader import located as located_in
from ...core.read.report import Progress
from ...core.read.snapshot import Snapshot
from ...errors import NotFound
from ..bytes import kernel
from ..bytes.codec import plain_value
from ..bytes.layout import HEADER_BYTES
from ..bytes.records import Entry, Metadata
from . import check
from .archive_stream import DEFAULT_LIMITS, ArchiveLimits, is_compressed
from .cursor import Chunk, Cursor, Head
from .files import JournalFile, Kind, Listing, archive_name, arrange, list_files, old_name, parse_name
from .lost import LostTimes
from .succession import Items, find_changes, find_gap, missing_newest
from .surroundings import Beginnings, counting_files, current_since, in_order
from .timeline import Timeline

ROW_FIELDS: Final = ("t", "k", "o")
"""What a table of entries has."""


class Reader(FilesReader[Chunk, JournalFile, Entry]):
    """The journals of a store, or one file of them, opened for reading.

    `path` is that of the active journal, whether it is there or not: the archives beside it belong to it. A path with
    the name of an archive, or any other, is that file alone. With `is_to_be_there` off it is not checked whether there
    is anything: that is for callers that have a file of it already. `listed` is the listing of the store a moment ago,
    for callers that read many stores of one directory: as long as it is right, the directory is not listed.
    """

    format = "versioned"
    part_name = "store"
    records_name = "entries"
    first_position = HEADER_BYTES
    counted_by: ClassVar = {"copies": True}
    scanned_by: ClassVar = counted_by
    resumed_by: ClassVar = {"resumed": True}
    row_fields = ROW_FIELDS
    states_by_time = True
    """`state` and `diff` take times, not the numbers of records."""

    summarize = check.summarize
    verify = check.verify

    def __init__(
        self,
        path: Path | str,
        *,
        limits: ArchiveLimits = DEFAULT_LIMITS,
        disk: Disk = REAL_DISK,
        is_to_be_there: bool = True,
        listed: Listing | None = None,
    ) -> None:
        self.path = Path(path)
        self.disk = disk
        self.limits = limits
        self._known = listed
        self._since: int | None = None
        """Of the active journal, where that was looked at to see whether what is known is right."""
        self.damages: list[Damage] = []
        parsed = parse_name(self.path.name)
        self._single = parsed is None or parsed[1] is not Kind.ACTIVE
        self.store = self.path.name if parsed is None else parsed[0]
        self._beginnings = Beginnings(disk)
        self._changes_starts: dict[tuple[str, int, int | None], int | None] = {}
        self._alone = self._lone_file(None if parsed is None else parsed[2]) if self._single else None
        if is_to_be_there and not self.files():
            raise NotFound(f"{self.path}: no journal of a store is here")

    def _lone_file(self, timestamp: int | None) -> JournalFile | None:
        if not self.disk.exists(self.path) or self.disk.is_directory(self.path):
            return None
        return JournalFile(self.store, self.path.name, self.path, timestamp, 0, is_compressed(self.disk, self.path))

    @property
    def part(self) -> str:
        """The store."""
        return self.store

    def listing(self) -> Listing:
        """What is there of the store now by names, temporary files included."""
        self._since = None if self._known is None else current_since(self.disk, self._known)
        if self._known is not None and self._since is not None:
            return self._known
        self._known = None
        try:
            return list_files(self.disk, self.directory, self.store)
        except NotFound:
            return arrange(self.directory, self.store, [])

    def files(self) -> list[JournalFile]:
        """The files that count, oldest first.

        The first one is numbered by when it was initialized, which is before it ended also where both are the same
        time: a store may be rotated before its clock advances.
        """
        files = self._listed()
        if files and not self._single:
            files = in_order(files, self.begun, self._beginnings.is_proven)
            begun, ended = self.begun(files[0]) or 0, files[0].timestamp
            before = begun if ended is None or begun < ended else max(0, ended - 1)
            files[0] = replace(files[0], before=before)
        return files

    def _listed(self) -> list[JournalFile]:
        """The files that count, by names alone: without the numbers of the first one."""
        if self._single:
            return [] if self._alone is None else [self._alone]
        return counting_files(self.disk, self.listing())

    def files_without(self, names: Set[str], begun: Callable[[JournalFile], int | None]) -> list[JournalFile]:
        """The files that will count when some that have ended are gone and all others are whole, oldest first."""
        listing = self.listing()
        kept = [time for time in listing.archives if archive_name(self.store, time) not in names]
        has_old = listing.has_old and old_name(self.store) not in names
        files = counting_files(self.disk, replace(listing, archives=kept, has_old=has_old))
        return in_order(files, begun, lambda source: source.compressed) if files else []

    def begun(self, source: JournalFile) -> int | None:
        """Since when a journal was the active one, as it says itself."""
        return self._since if source.is_newest and self._since is not None else self._beginnings(source)

    # --- going through it -------------------------------------------------------------------------------------------

    entries = FilesReader.records

    def decoded(self, chunk: Chunk) -> list[Entry]:
        """The entries of a chunk."""
        return kernel.entries(chunk.data, chunk.start, chunk.stop, chunk.count)

    def _scan(
        self, start: int | None, stop: int | None, mode: Mode, progress: Progress | None, choice: Choice | None
    ) -> Iterator[Located | Damage]:
        """Every record with the place of its bytes: of each file the metadata, then its entries, copies included.

        A choice is made among entries.
        """
        check_mode(mode)
        if choice is not None:
            yield from self._scan_chosen(start, stop, mode, progress, choice)
            return
        yield from self.half_repaired(mode)
        with self.snapshot() as files:
            for item in self._snapshot_items(files, start, stop, mode, progress, copies=True):
                if isinstance(item, Head):
                    if item.metadata is not None and _within(item, start, stop):
                        yield Located(item.metadata, item.file, item.span)
                elif isinstance(item, Damage):
                    yield item
                else:
                    yield from located(item)

    def snapshot_chunks(
        self,
        files: Snapshot[JournalFile],
        start: int | None,
        stop: int | None,
        mode: Mode,
        progress: Progress | None = None,
        **how: Any,
    ) -> Iterator[Chunk | Damage]:
        """The chunks of files that are open. With `copies` (off by default) those that compaction made come as well."""
        for item in self._snapshot_items(files, start, stop, mode, progress, **how):
            if not isinstance(item, Head):
                yield item

    def _snapshot_items(
        self,
        files: Snapshot[JournalFile],
        start: int | None,
        stop: int | None,
        mode: Mode,
        progress: Progress | None = None,
        *,
        copies: bool = False,
        resumed: bool = False,
    ) -> Iterator[Head | Chunk | Damage]:
        """Heads, chunks and damage of files that are open, and what is missing between two of them.

        With `resumed` a change is known to begin at `start`.
        """
        for number, source, report in self.files_between(files, start, stop, progress):
            at = self.resumed_at(source, start) if resumed else None
            changes_at = None if copies or at is not None else self.changes_start(files, number)
            for item in self.file_items(
                source, files.file(source), start, stop, mode, report, at=at, changes_at=changes_at
            ):
                if isinstance(item, Head) and number and (start is None or start <= source.first_number):
                    gap = self.gap_before(files, number)
                    yield from () if gap is None else self.report(gap, mode)
                yield item
        gap = self.gap_after(files.files)
        if gap is not None:
            end = (files.files[-1].timestamp or 0) << POSITION_BITS
            if (start is None or start < end) and (stop is None or stop > end):
                yield from self.report(gap, mode)

    def file_items(
        self,
        source: JournalFile,
        file: File,
        start: int | None,
        stop: int | None,
        mode: Mode,
        report: Callable[[int], None] | None = None,
        *,
        at: int | None = None,
        changes_at: int | None = None,
    ) -> Iterator[Head | Chunk | Damage]:
        """The head, chunks and damage of one file; `at` is where an entry of a plain file is known to begin.

        Entries before `changes_at` are left out, but not damage: that of the header is found at the end of the file.
        """
        low, high = source.positions(start, stop)
        for item in Cursor(file, source, at=at, limits=self.limits).items(report):
            if isinstance(item, Chunk):
                if high is not None and item.position >= high:
                    return
                part = item.within(max(low, changes_at or 0), high)
                if part is not None:
                    yield part
            elif isinstance(item, Head):
                yield item
            elif high is not None and item.start >= high:
                return
            elif item.end >= low:
                yield from self.report(item, mode)

    def resumed_at(self, source: JournalFile, start: int | None) -> int | None:
        """Where to begin in a file if a change is known to begin at `start`; None for its beginning.

        An archive can only be read from its beginning.
        """
        low, _ = source.positions(start, None)
        return None if source.compressed or low == 0 else low

    def changes_start(self, files: Snapshot[JournalFile], number: int) -> int | None:
        """Where the changes of a file begin, after the copies that compaction made; None where it has none.

        Where the journal before it is missing, or does not end with what this one begins with, nothing is a copy.
        """
        if number == 0:
            return None
        source, before = files.files[number], files.files[number - 1]
        place = before.name, source.before, source.timestamp
        if place not in self._changes_starts:  # what a journal begins with stays so
            lost = LostTimes.of(self.disk, self.directory, self.store)
            begun = self._begun_in(files, source)
            self._changes_starts[place] = find_changes(self._items_of(files), before, source, begun, lost)
        return self._changes_starts[place]

    def gap_before(self, files: Snapshot[JournalFile], number: int, last: int | None = None) -> Damage | None:
        """What is missing before a file, if a journal is, and the account of losses does not have it.

        `last` is the time of the last entry before it, if that is known.
        """
        if number == 0:
            return None
        source, before = files.files[number], files.files[number - 1]
        lost = LostTimes.of(self.disk, self.directory, self.store)
        return find_gap(self._items_of(files), before, source, self._begun_in(files, source), lost, last)

    def gap_after(self, files: Sequence[JournalFile]) -> Damage | None:
        """What is missing after the last file, if that is an archive of the store."""
        if self._single or not files or files[-1].is_newest:
            return None
        return missing_newest(files[-1])

    def missing(self) -> list[Damage]:
        """The active journal, if there are only archives."""
        gap = self.gap_after(self.files())
        return [] if gap is None else [gap]

    def _begun_in(self, files: Snapshot[JournalFile], source: JournalFile) -> int | None:
        """Since when a journal that is open was the active one: another one may have its name by now."""
        if source.compressed:
            return self._beginnings(source)
        items = self._items_of(files)(source)
        return next((item.metadata.initialized for item in items if isinstance(item, Head) and item.metadata), None)

    def _items_of(self, files: Snapshot[JournalFile]) -> Items:
        return lambda source: Cursor(files.file(source), source, limits=self.limits).items()

    # --- finding a place --------------------------------------------------------------------------------------------

    @property
    def next(self) -> int:
        """The number behind the last entry: the one that the next entry will get."""
        with self.snapshot() as files:
            if not files.files:
                return 0
            source = files.files[-1]
            if source.timestamp is not None and not self._single:
                return int(source.timestamp) << POSITION_BITS
            end = 0
            for item in self.file_items(source, files.file(source), None, None, "dropmalformed"):
                end = item.span.end if isinstance(item, Head) else item.end
            return int(source.first_number) + end

    def find_time(self, timestamp: int) -> int:
        """The number of the first change that is not earlier than `timestamp` (ns); `next` if none is."""
        with self.snapshot() as files:
            for source in files.files:
                if source.timestamp is not None and source.timestamp < timestamp and not self._single:
                    continue
                for item in self.file_items(source, files.file(source), None, None, "dropmalformed"):
                    if isinstance(item, Chunk) and item.largest >= timestamp:
                        return _first_not_earlier(item, timestamp)
        return self.next

    def file_chunks(self, *what: Any, **how: Any) -> Iterator[Chunk | Damage]:
        """The chunks of one file, without its metadata."""
        return (item for item in self.file_items(*what, **how) if not isinstance(item, Head))

    def last_chunks(self, files: Snapshot[JournalFile], number: int) -> Iterator[Any]:
        """The chunks of one file, without the copies of earlier changes at its beginning."""
        source = files.files[number]
        at = self.changes_start(files, number)
        return self.file_chunks(source, files.file(source), None, None, "failfast", changes_at=at)

    # --- the state -------------------------------------------------------------------------------------------------

    def timeline(self, mode: Mode = "dropmalformed") -> Timeline:
        """What the journals know about any time."""
        return Timeline(self.disk, self.path, self._listed, is_store=not self._single, mode=mode, limits=self.limits)

    def latest(self, at: int | None = None, *, mode: Mode = "dropmalformed") -> kernel.Latest:
        """The last entry of each key at a time, or now; `damages` is what was left out."""
        timeline = self.timeline(mode)
        found = timeline.latest(at)
        self._take_damages(timeline)
        return found

    def _take_damages(self, timeline: Timeline) -> None:
        torn = [damage for damage in timeline.damages if damage.kind == "torn_tail"]
        self.torn_tail = torn[0] if torn else None
        self.damages = [damage for damage in timeline.damages if damage.kind != "torn_tail"]

    def state(self, at: int | None = None) -> dict[str, Any]:
        """The value of each key and since when it has it, as JSON, at a time (ns) or now."""
        return {
            key: {"value": plain_value(value), "timestamp": timestamp}
            for key, (value, timestamp) in self.latest(at).state().items()
        }

    def diff(self, start: int, stop: int) -> dict[str, Any]:
        """What changed between two times (ns), by key, as JSON."""
        timeline = self.timeline()
        changes: dict[str, Any] = plain_value(timeline.diff(start, stop))
        self._take_damages(timeline)
        return changes

    def history(self, key: str) -> list[dict[str, Any]]:
        """Every change of a key that is kept, oldest first, as JSON."""
        timeline = self.timeline()
        found = [
            {"t": entry.t, "deleted": True} if entry.deleted else {"t": entry.t, "value": plain_value(entry.o)}
            for entry in timeline.history(key)
        ]
        self._take_damages(timeline)
        if not found:
            raise NotFound(f"{self.path}: nothing is known of the key {key!r}")
        return found

    def as_json(self, located: Located) -> dict[str, Any]:
        """A record as `dump --json` prints it."""
        return record_as_json(located)


# --- chunks to objects ----------------------------------------------------------------------------------------------


def located(chunk: Chunk) -> Iterator[Located]:
    """The entries of a chunk with their places."""
    return located_in(chunk, kernel.entries(chunk.data, chunk.start, chunk.stop, chunk.count))


def record_as_json(located: Located) -> dict[str, Any]:
    """A record and its place, ready to be printed as JSON."""
    record: Metadata | Entry = located.record
    place = {"file": located.file, "position": located.span.start, "size": located.span.size}
    fields: dict[str, Any] = plain_value(record.as_json())
    return {**place, **{name: value for name, value in fields.items() if name not in place}}


def _within(head: Head, start: int | None, stop: int | None) -> bool:
    number = head.source.first_number + head.span.start
    return (start is None or start <= number) and (stop is None or number < stop)


def _first_not_earlier(chunk: Chunk, timestamp: int) -> int:
    """The number of the first entry of a chunk that is not earlier than this; there is one."""
    starts = chunk.starts()
    entries = kernel.entries(chunk.data, chunk.start, chunk.stop, chunk.count)
    for row, entry in enumerate(entries):
        if entry.t >= timestamp:
            return chunk.source.first_number + starts[row]
    return chunk.first_number
