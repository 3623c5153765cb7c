"""Journals of stores in splits: a split lies within one file, and the part that it belongs to is its store.

Each change comes once: a split begins behind the copies that compaction made (see `reader.changes_start`). An archive
can only be read from its beginning, so it is one split, however large; the active journal is cut at entries that were
found by going from one to the next. Damage belongs to the split that it begins in. The file of a split is found again
by the numbers of its entries, so it may have become an archive in the meantime.

By time whole files are left out: the changes of a file are later than the archive before it, and not later than the
time in its own name.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from ...core.errors import NotFound
from ...core.outcome import Damage, Mode, check_mode
from ...core.snapshot import Snapshot
from ...core.split import TARGET_BYTES, Bound, Split, Times
from .cursor import Chunk, Head
from .files import POSITION_BITS, JournalFile
from .reader import Reader
from .stores import StoresReader

AnyReader = Reader | StoresReader


def file_of(part: str, file: str) -> str:
    """The name of a file of a store as it is seen from the directory: stores have no directories of their own."""
    return file


def parts(reader: AnyReader) -> Iterator[tuple[str, Reader]]:
    """The stores, each with its reader."""
    if isinstance(reader, StoresReader):
        for store in reader.stores():
            with suppress(NotFound):
                yield store, reader.open(store)
    else:
        yield reader.store, reader


def _part(reader: AnyReader, store: str) -> Reader:
    if isinstance(reader, StoresReader):
        return reader.open(store)
    if reader.store != store:
        raise NotFound(f"{reader.path}: the store {store} is gone")
    return reader


# --- what there is ----------------------------------------------------------------------------------------------------


def extent(reader: AnyReader) -> dict[str, tuple[int, int]]:
    """The first number and the next one of every store. An entry that is not there as a whole is not counted."""
    found = {}
    for store, journal in parts(reader):
        with suppress(NotFound):  # removed while we looked
            found[store] = (journal.first, journal.next)
    return found


def reach(reader: AnyReader, part: str, start: int, stop: int, max_bytes: int) -> tuple[int, int]:
    """How far `max_bytes` go from the entry `start` on, but not beyond `stop`: where to stop, and the bytes to it.

    At least one entry is within reach, however large it is.
    """
    number, used = start, 0
    for item in _part(reader, part).chunks(start, stop, mode="permissive"):
        if isinstance(item, Damage):
            used += item.size
            continue
        if used + item.end - item.position <= max_bytes:
            number, used = item.source.first_number + item.end, used + item.end - item.position
            continue
        starts = item.starts()
        rows = bisect_right(starts, item.position + max_bytes - used) - 1
        rows = max(rows, 1 if number == start else 0)
        if rows:
            number, used = item.source.first_number + starts[rows], used + starts[rows] - item.position
        return number, used
    return stop, used


def advance(reader: AnyReader, part: str, start: int, stop: int, most: int) -> tuple[int, int]:
    """How far `most` changes go from `start` on, but not beyond `stop`: where to stop, and how many there are."""
    count = 0
    for item in _part(reader, part).chunks(start, stop, mode="dropmalformed"):
        assert not isinstance(item, Damage)
        if count + item.count >= most:
            return item.source.first_number + item.starts()[most - count], most
        count += item.count
    return stop, count


# --- planning ---------------------------------------------------------------------------------------------------------


def plan(
    reader: AnyReader,
    target_bytes: int = TARGET_BYTES,
    start: Bound = None,
    stop: Bound = None,
    *,
    resumed: bool = False,
    times: Times | None = None,
) -> list[Split]:
    """The changes with `start` <= number < `stop`, as they are now, in splits of about `target_bytes`.

    What is appended later is in none of them. Bounds are for every store, or for each by its name; then those that are
    not named are left out. `resumed` says that what lies before `start` has been read before: damage that began there
    was told then.
    """
    found: list[Split] = []
    for store, journal in parts(reader):
        if any(isinstance(bound, Mapping) and store not in bound for bound in (start, stop)):
            continue
        low = start[store] if isinstance(start, Mapping) else start
        high = stop[store] if isinstance(stop, Mapping) else stop
        with suppress(NotFound):
            found += [replace(split, part=store) for split in _plan(journal, target_bytes, low, high, resumed, times)]
    return found


def _plan(
    reader: Reader, target_bytes: int, start: int | None, stop: int | None, resumed: bool, times: Times | None
) -> list[Split]:
    found: list[Split] = []
    with reader.snapshot() as files:
        for number, source in enumerate(files.files):
            first = source.first_number
            if stop is not None and first >= stop:
                break
            if start is not None and start - first >= 1 << POSITION_BITS:
                continue
            if times is not None and not _may_hold(source, number, times):
                continue
            at = reader.changes_start(files, number)
            low = start if at is None else max(start or 0, first + at)
            if source.compressed and (start is None or start <= first) and (stop is None or _is_behind(source, stop)):
                size = files.size(source)
                found.append(Split(source.name, at or 0, first + (at or 0), _end_number(source), size))
            else:
                found += _split_file(reader, files, source, target_bytes, low, stop, resumed)
            files.done_with(source)
    return found


def _may_hold(source: JournalFile, number: int, times: Times) -> bool:
    """Whether a file may have a change of these times; of the first one, copies count as changes."""
    latest = 2**64 if source.timestamp is None else source.timestamp
    return times.reach(source.before if number else 0, latest)


def _end_number(source: JournalFile) -> int:
    """A number behind all entries of a file that has ended."""
    return source.first_number + (1 << POSITION_BITS)


def _is_behind(source: JournalFile, stop: int) -> bool:
    return stop >= _end_number(source)


def _split_file(
    reader: Reader,
    files: Snapshot[JournalFile],
    source: JournalFile,
    target_bytes: int,
    start: int | None,
    stop: int | None,
    resumed: bool,
) -> list[Split]:
    """One file, from entry to entry."""
    low = 0 if start is None else max(0, start - source.first_number)
    found: list[Split] = []
    begin: int | None = None
    end = 0
    for item in reader.file_items(source, files.file(source), start, stop, "permissive"):
        if isinstance(item, Head):
            continue
        if isinstance(item, Damage):
            if item.kind == "torn_tail":
                found.append(_split(source, item.start if begin is None else begin, end or item.start))
                found[-1] = replace(found[-1], behind=item, bytes=found[-1].bytes + item.size)
                return found
            if resumed and item.start < low:
                continue
        at = item.start if isinstance(item, Damage) else item.position
        if begin is not None and at - begin >= target_bytes and not source.compressed:
            found.append(_split(source, begin, at))
            begin = None
        begin = at if begin is None else begin
        end = max(item.end, at + 1)
    if begin is not None:
        found.append(_split(source, begin, end))
    return found


def _split(source: JournalFile, begin: int, end: int) -> Split:
    first = source.first_number
    return Split(source.name, begin, first + begin, first + end, end - begin)


# --- reading ----------------------------------------------------------------------------------------------------------


def chunks(reader: AnyReader, split: Split, mode: Mode = "failfast") -> Iterator[Chunk | Damage]:
    """The changes of a split. A chunk's buffer is valid until the next one is asked for."""
    check_mode(mode)
    journal = _part(reader, split.part)
    with journal.snapshot() as files:
        source = next((file for file in files.files if file.before == split.start >> POSITION_BITS), None)
        if source is None:
            raise NotFound(f"{journal.path}: {split.file} is not kept any more")
        at = None if source.compressed or split.position == 0 else split.position
        for item in journal.file_items(source, files.file(source), split.start, split.stop, "permissive", at=at):
            if isinstance(item, Chunk):
                yield item
            elif isinstance(item, Damage) and item.start >= split.position and item.kind != "torn_tail":
                yield from journal.report(item, mode)
        if split.behind is not None:
            yield from journal.report(split.behind, mode)
