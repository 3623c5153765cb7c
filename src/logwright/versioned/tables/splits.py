"""Journals of stores in splits: a split is within one file, and the part that it belongs to is its store.

Each change is read once, without the copies that compaction made (see `reader.changes_start`). Only the preceding
journal shows how many copies there are. A plan reads no archive for this: it marks the splits of every file but the
first as `AFTER_COPIES`, and the reader of a split finds where they end. A plan that continues a stream finds it itself,
because archives may be removed before a split is read.

A journal that is missing between two others is reported before the changes of the later one: by the plan if it has read
the head of that one, otherwise by the reader of the split.

An archive can only be read from its beginning, so it is one split, however large. The active journal is cut at entries
that were found by reading from one to the next. If it is damaged, it is one split as well: what is damage depends on
the entries before it, and damage of the header is found at the end. The file of a split is found by the numbers of its
entries, so it may become an archive in the meantime. An archive is opened by its name, which no other file ever gets,
without listing the directory, unless the names of archives are not in their order; so is the active journal where
nothing before it is needed, and its metadata shows that it is the one that was planned.

A range of times leaves out whole files: the changes of a file are later than the preceding archive, and not later than
the time in its own name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final, cast

from ...core.bytes.outcome import Damage, Mode, check_mode
from ...core.read.chunk import POSITION_BITS
from ...core.read.file_splits import AnyReader, FileSplits, Wanted, cut_file, part_of, source_of
from ...core.read.snapshot import Snapshot
from ...core.read.splits import Split, Times
from ...errors import NotFound
from ..files import places
from ..files.cursor import Chunk, Cursor, Head
from ..files.files import MOST_TAKEN_NS, JournalFile, Kind, archive_name, parse_name
from ..files.reader import Reader
from ..files.stores import StoresReader

AFTER_COPIES: Final = 1
"""The mark of a split without the copies that compaction made."""
AFTER_COPIES_LISTED: Final = 2
"""The same, if the names of its file or of the preceding one do not show which files these are."""


class StoreSplits(FileSplits):
    """The splits of stores."""

    prunes_times = True

    def mark(self, reader: AnyReader, part: str, number: int) -> str:
        """What a place in a store is known by: see `places.py`."""
        return places.mark_of(part_of(reader, part), number)

    def resume(self, reader: AnyReader, part: str, number: int, mark: str) -> tuple[int, str]:
        """The number that a place has now, and why it cannot be found, if it cannot."""
        return places.find(part_of(reader, part), number, mark)

    def plan_part(self, reader: Reader, wanted: Wanted) -> list[Split]:
        target_bytes, start, stop, resumed, times = wanted
        found: list[Split] = []
        with reader.snapshot() as files:
            for number, source in enumerate(files.files):
                first = source.first_number
                if stop is not None and first >= stop:
                    break
                if start is not None and start - first >= 1 << POSITION_BITS:
                    continue
                before = files.files[number - 1] if number else None
                if times is not None and not _may_hold(source, before, times):
                    continue
                begins = start is None or start <= first
                at = reader.changes_start(files, number) if resumed and begins else None
                low = start if at is None else max(start or 0, first + at)
                resumed_at = reader.resumed_at(source, start) if resumed else None
                has_copies = number > 0 and not resumed
                if source.compressed and begins and (stop is None or _ends_before(source, stop)):
                    size = files.size(source)
                    planned = [Split(source.name, at or 0, first + (at or 0), _end_number(source), size)]
                    gap_is_reported = has_copies  # by the reader of the split: so a plan reads no archive
                else:
                    most = None if source.compressed else target_bytes
                    items = _Items(
                        reader.file_items(
                            source, files.file(source), start, stop, "permissive", at=resumed_at, changes_at=at
                        )
                    )
                    planned = cut_file(source, items, most, low, resumed=resumed)
                    if planned and items.is_damaged and not source.compressed:
                        planned = [_whole(source, start, resumed_at or 0, items.end, planned)]
                    gap_is_reported = False
                if number and begins and not gap_is_reported:
                    planned = _with_gap(reader, files, number, planned)
                mark = AFTER_COPIES if _is_named(source, before) else AFTER_COPIES_LISTED
                found += [replace(split, mark=mark) for split in planned] if has_copies else planned
                files.done_with(source)
        return found

    def planned_extent(self, splits: Sequence[Split]) -> tuple[int, int] | None:
        """Known if the last split is of an active journal without damage: then it begins and ends with an entry."""
        if not splits or splits[-1].position == 0 or splits[-1].after is not None:
            return None
        return splits[0].start >> POSITION_BITS << POSITION_BITS, splits[-1].stop

    def chunks(self, reader: AnyReader, split: Split, mode: Mode = "failfast") -> Iterator[Chunk | Damage]:
        """The changes of a split. A chunk's buffer is valid until the next chunk is requested."""
        check_mode(mode)
        opened = _open_by_name(reader, split)
        if opened is not None:
            journal, files = opened
            with closing(files):
                yield from _chunks(journal, files, len(files.files) - 1, split, mode)
            return
        journal = part_of(reader, split.part)
        with journal.snapshot() as files:
            source = source_of(files.files, split.start)
            number = -1 if source is None else files.files.index(source)
            if source is None or (number == 0 and split.mark is not None):
                raise NotFound(f"{journal.path}: {split.file}, or what was before it, is not kept any more")
            yield from _chunks(journal, files, number, split, mode)


def _with_gap(reader: Reader, files: Snapshot[JournalFile], number: int, planned: list[Split]) -> list[Split]:
    """The splits of a file, the first of which reports a journal that is missing before it, if one is."""
    source = files.files[number]
    gap = reader.gap_before(files, number)
    if gap is None:
        return planned
    place = source.first_number + gap.start
    first, *others = planned or [Split(source.name, gap.start, place, place, 0)]
    return [replace(first, before=gap), *others]


def _may_hold(source: JournalFile, before: JournalFile | None, times: Times) -> bool:
    """Whether a file may have a change of these times; of the first one, copies count as changes."""
    latest = 2**64 if source.timestamp is None else source.timestamp
    if before is None:
        return times.reach(0, latest)
    ended = min(source.before, before.ended or 0)
    return times.reach(max(0, ended - MOST_TAKEN_NS), latest)  # it may have ended before the time in its name


def _end_number(source: JournalFile) -> int:
    """A number greater than those of all entries of a file that has ended."""
    return source.first_number + (1 << POSITION_BITS)


def _ends_before(source: JournalFile, stop: int) -> bool:
    return stop >= _end_number(source)


class _Items:
    """The chunks and damages of one file; then whether it is damaged, and where they end."""

    def __init__(self, items: Iterable[Head | Chunk | Damage]) -> None:
        self._items = items
        self.is_damaged = False
        self.end = 0

    def __iter__(self) -> Iterator[Chunk | Damage]:
        for item in self._items:
            if isinstance(item, Head):
                continue
            self.is_damaged |= isinstance(item, Damage) and item.kind != "torn_tail"
            self.end = max(self.end, item.end, (item.start if isinstance(item, Damage) else item.position) + 1)
            yield item


def _whole(source: JournalFile, start: int | None, position: int, end: int, planned: list[Split]) -> Split:
    """One split for a file, from a position on, with the torn tail of others."""
    first = source.first_number
    number = first + position if start is None else max(start, first + position)
    return Split(source.name, position, number, first + end, end - position, after=planned[-1].after)


def _is_named(source: JournalFile, before: JournalFile | None) -> bool:
    """Whether the names of a file and of the one before it are those that the times of the two lead to."""
    if before is None or not source.compressed:
        return True
    return source.ended == source.timestamp and before.name == archive_name(source.store, source.before)


def _open_by_name(reader: AnyReader, split: Split) -> tuple[Reader, Snapshot[JournalFile]] | None:
    """The file of a split, after the one before it if that is needed, by their names alone.

    None where one of them has another name, or is gone, and where the active journal is another one by now.
    """
    parsed = parse_name(split.file)
    if parsed is None or (isinstance(reader, Reader) and reader.is_single_file):
        return None
    store, kind, timestamp = parsed
    is_archive, is_active = kind is Kind.ARCHIVE, kind is Kind.ACTIVE
    if not (is_archive and split.mark != AFTER_COPIES_LISTED) and not (is_active and split.mark is None):
        return None
    directory = reader.path if isinstance(reader, StoresReader) else reader.path.parent
    before = split.start >> POSITION_BITS
    sources = [JournalFile(store, split.file, directory / split.file, timestamp, before, compressed=is_archive)]
    if split.mark == AFTER_COPIES:
        name = archive_name(store, before)
        sources.insert(0, JournalFile(store, name, directory / name, before, compressed=True))
    files = Snapshot(reader.disk, sources)
    try:
        for source in sources:
            files.file(source)
        if is_active and _active_since(files, sources[0]) != before:
            raise NotFound(f"{directory / split.file}: another journal has its name")
    except NotFound:
        files.close()
        return None
    journal = reader.look_up(store) if isinstance(reader, StoresReader) else reader
    return cast(Reader, journal), files


def _active_since(files: Snapshot[JournalFile], source: JournalFile) -> int | None:
    """When the journal that now has the name of the active one became active; None if its beginning cannot be read."""
    head = next((item for item in Cursor(files.file(source), source).items() if isinstance(item, Head)), None)
    return None if head is None or head.metadata is None else head.metadata.initialized


def _chunks(
    journal: Reader, files: Snapshot[JournalFile], number: int, split: Split, mode: Mode
) -> Iterator[Chunk | Damage]:
    """The changes of a split in the file of this number."""
    source = files.files[number]
    changes_at = journal.changes_start(files, number) if split.mark is not None else None
    at = None if source.compressed or split.position == 0 else split.position
    if split.before is not None:
        yield from journal.report(split.before, mode)
    must_report_gap = split.before is None and split.mark is not None and split.position == 0
    items = journal.file_items(
        source, files.file(source), split.start, split.stop, "permissive", at=at, changes_at=changes_at
    )
    for item in items:
        if isinstance(item, Head):
            gap = journal.gap_before(files, number) if must_report_gap else None
            yield from () if gap is None else journal.report(gap, mode)
        elif isinstance(item, Chunk):
            yield item
        elif isinstance(item, Damage) and item.start >= split.position and item.kind != "torn_tail":
            yield from journal.report(item, mode)
    if split.after is not None:
        yield from journal.report(split.after, mode)


SPLITS: Final = StoreSplits()
