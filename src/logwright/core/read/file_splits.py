"""FileSplits: splits of the formats whose records are numbered by file and position.

The reader is that of one journal, or of all journals of a directory; each of these is a part. A format plans one part
with `whole_file` and `cut_file`, and reads a split with `split_items`.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from ...errors import NotFound
from ..bytes.outcome import Damage, Mode
from .chunk import POSITION_BITS, Bound, NumberedFile
from .chunk_reader import FilesReader
from .parts import SideBySideReader, bound_of
from .splits import TARGET_BYTES, FileEntry, Inventory, Split, Splits, Times, report_first

AnyReader: TypeAlias = FilesReader[Any, Any, Any] | SideBySideReader[Any, Any]


class Wanted(NamedTuple):
    """The arguments of `Splits.plan`, with the bounds of one part."""

    target_bytes: int
    start: int | None
    stop: int | None
    resumed: bool
    times: Times | None


class FileSplits(Splits[AnyReader]):
    """The splits of a format: each is within one file. A subclass plans one part, and reads a split."""

    def plan(
        self,
        reader: AnyReader,
        target_bytes: int = TARGET_BYTES,
        start: Bound = None,
        stop: Bound = None,
        *,
        resumed: bool = False,
        times: Times | None = None,
    ) -> list[Split]:
        found: list[Split] = []
        named = next((sorted(bound) for bound in (start, stop) if isinstance(bound, Mapping)), None)
        is_all = start is None and stop is None and times is None
        if isinstance(reader, SideBySideReader) and is_all:
            reader.refuse_missing()
        for name, journal in parts(reader, named):
            if any(isinstance(bound, Mapping) and name not in bound for bound in (start, stop)):
                continue
            wanted = Wanted(target_bytes, bound_of(name, start), bound_of(name, stop), resumed, times)
            with suppress(NotFound):
                damages = journal.whole_damage(resumed=resumed)
                planned = report_first(self.plan_part(journal, wanted), damages, is_all=is_all)
                found += [replace(split, part=name) for split in planned]
        return found

    @abstractmethod
    def plan_part(self, reader: Any, wanted: Wanted) -> list[Split]:
        """The splits of one part."""

    def extent(self, reader: AnyReader, named: Collection[str] | None = None) -> dict[str, tuple[int, int]]:
        found = {}
        for name, journal in parts(reader, named):
            with suppress(NotFound):  # removed meanwhile
                found[name] = (journal.first, journal.next)
        return found

    def aligned(self, reader: AnyReader, part: str, number: int) -> int:
        journal = part_of(reader, part)
        for item in journal.chunks(number, mode="dropmalformed", **journal.skimmed_by):
            return int(item.first_number)
        return max(number, int(journal.next))

    def reach(self, reader: AnyReader, part: str, start: int, stop: int, max_bytes: int) -> tuple[int, int]:
        journal = part_of(reader, part)
        number, used = start, 0
        for item in journal.chunks(start, stop, mode="permissive", **journal.skimmed_by, **journal.resumed_by):
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

    def advance(self, reader: AnyReader, part: str, start: int, stop: int, most: int) -> tuple[int, int]:
        journal = part_of(reader, part)
        count = 0
        for item in journal.chunks(start, stop, mode="dropmalformed", **journal.skimmed_by, **journal.resumed_by):
            if count + item.count >= most:
                return item.source.first_number + item.starts()[most - count], most
            count += item.count
        return stop, count

    def inventory(
        self,
        reader: AnyReader,
        named: Collection[str] | None = None,
        extents: Mapping[str, tuple[int, int]] | None = None,
    ) -> Inventory:
        """The files of all parts; there are no consumers."""
        found = Inventory()
        for name, journal in parts(reader, named):
            with suppress(NotFound):
                found.files += _entries(name, journal, (extents or {}).get(name))
        return found

    def file_of(self, part: str, file: str) -> str:
        """The name itself: parts have no directories."""
        return file


def parts(reader: AnyReader, named: Collection[str] | None = None) -> Iterator[tuple[str, Any]]:
    """The existing parts, or those of them that are named, each with its reader."""
    if isinstance(reader, SideBySideReader):
        for name in reader.names() if named is None else named:
            with suppress(NotFound):
                yield name, reader.open(name)
    elif named is None or reader.part in named:
        yield reader.part, reader


def part_of(reader: AnyReader, name: str) -> Any:
    """The reader of one part."""
    if isinstance(reader, SideBySideReader):
        return reader.open(name)
    if reader.part != name:
        raise NotFound(f"{reader.path}: the {reader.part_name} {name} is gone")
    return reader


def cut_file(
    source: NumberedFile, items: Iterable[Any], target_bytes: int | None, start: int | None, *, resumed: bool
) -> list[Split]:
    """The chunks and damage of one file as splits of about `target_bytes`, or as one split for None.

    `resumed` says that everything before `start` was read earlier: damage that began there was reported then.
    """
    low = 0 if start is None else max(0, start - source.first_number)
    found: list[Split] = []
    begin: int | None = None
    end = 0
    for item in items:
        if isinstance(item, Damage):
            if item.kind == "torn_tail":
                found.append(_split(source, item.start if begin is None else begin, end or item.start))
                found[-1] = replace(found[-1], after=item, bytes=found[-1].bytes + item.size)
                return found
            if resumed and item.start < low:
                continue
        at = item.start if isinstance(item, Damage) else item.position
        if begin is not None and target_bytes is not None and at - begin >= target_bytes:
            found.append(_split(source, begin, at))
            begin = None
        begin = at if begin is None else begin
        end = max(item.end, at + 1)
    if begin is not None:
        found.append(_split(source, begin, end))
    return found


def whole_file(
    source: NumberedFile, size: int, target_bytes: int, start: int | None, stop: int | None
) -> list[Split] | None:
    """One split for a small file that is no longer written, without reading it; no split if the file is empty.

    None for any other file, and if only a part of the file is requested.
    """
    first = source.first_number
    is_asked_for = (start is None or start <= first) and (stop is None or stop >= first + size)
    if source.is_newest or size > target_bytes or not is_asked_for:
        return None
    return [Split(source.name, 0, first, first + size, size)] if size else []


def _split(source: NumberedFile, begin: int, end: int) -> Split:
    first = source.first_number
    return Split(source.name, begin, first + begin, first + end, end - begin)


def source_of(files: Iterable[Any], number: int) -> Any:
    """The file that contains a record number; None if it does not exist."""
    return next((file for file in files if file.before == number >> POSITION_BITS), None)


def split_items(journal: FilesReader[Any, Any, Any], split: Split, items: Iterable[Any], mode: Mode) -> Iterator[Any]:
    """The chunks of a split, and its damage: damage that begins in it, and damage that the plan found at its edges.

    `items` are the chunks and damage of its file in its range. A torn tail is taken from the plan: a writer may have
    removed it since.
    """
    if split.before is not None:
        yield from journal.report(split.before, mode)
    for item in items:
        if not isinstance(item, Damage):
            yield item
        elif item.start >= split.position and item.kind != "torn_tail":
            yield from journal.report(item, mode)
    if split.after is not None:
        yield from journal.report(split.after, mode)


def _entries(part: str, reader: FilesReader[Any, Any, Any], extent: tuple[int, int] | None) -> Iterator[FileEntry]:
    for source in reader.files():
        with suppress(NotFound):
            size = reader.disk.file_size(source.path)
            if source.timestamp is not None:
                following = source.timestamp << POSITION_BITS
            else:
                following = reader.next if extent is None else extent[1]
            yield FileEntry(part, source.name, size, source.first_number, following)
