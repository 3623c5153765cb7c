"""FileSplits: splits of the formats whose records are numbered by file and position.

The reader is that of one journal, or of all journals of a directory: then a part is one of them. The plan of one part
is made with `whole_file` and `cut_file`, and a split is read through `split_items`.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from ...errors import NotFound
from ..bytes.outcome import Damage, Mode
from .chunk import POSITION_BITS, NumberedFile
from .chunk_reader import FilesReader
from .parts import SideBySideReader, bound_of
from .splits import TARGET_BYTES, Bound, FileEntry, Inventory, Split, Splits, Times

AnyReader: TypeAlias = FilesReader[Any, Any, Any] | SideBySideReader


class Wanted(NamedTuple):
    """What a plan is asked for: see `Splits.plan`. The bounds are those of one part."""

    target_bytes: int
    start: int | None
    stop: int | None
    resumed: bool
    times: Times | None


class FileSplits(Splits[AnyReader]):
    """The splits of a format: a split lies within one file. A subclass plans one part, and reads a split."""

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
        for name, journal in parts(reader, named):
            if any(isinstance(bound, Mapping) and name not in bound for bound in (start, stop)):
                continue
            wanted = Wanted(target_bytes, bound_of(name, start), bound_of(name, stop), resumed, times)
            with suppress(NotFound):
                found += [replace(split, part=name) for split in self.plan_part(journal, wanted)]
        return found

    @abstractmethod
    def plan_part(self, reader: Any, wanted: Wanted) -> list[Split]:
        """The splits of one part."""

    def extent(self, reader: AnyReader) -> dict[str, tuple[int, int]]:
        """The first number and the next one of every part. A record that is not there as a whole is not counted."""
        found = {}
        for name, journal in parts(reader):
            with suppress(NotFound):  # removed while we looked
                found[name] = (journal.first, journal.next)
        return found

    def reach(self, reader: AnyReader, part: str, start: int, stop: int, max_bytes: int) -> tuple[int, int]:
        """How far `max_bytes` go from the record `start` on, but not beyond `stop`: where to stop, and the bytes to it.

        At least one record is within reach, however large it is.
        """
        journal = part_of(reader, part)
        number, used = start, 0
        for item in journal.chunks(start, stop, mode="permissive", **journal.skimmed_by):
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
        """How far `most` records go from `start` on, but not beyond `stop`: where to stop, and how many there are."""
        journal = part_of(reader, part)
        count = 0
        for item in journal.chunks(start, stop, mode="dropmalformed", **journal.skimmed_by):
            if count + item.count >= most:
                return item.source.first_number + item.starts()[most - count], most
            count += item.count
        return stop, count

    def inventory(self, reader: AnyReader) -> Inventory:
        """The files of all parts with their sizes and the numbers of their records; there are no consumers."""
        found = Inventory()
        for name, journal in parts(reader):
            with suppress(NotFound):
                found.files += _entries(name, journal)
        return found

    def file_of(self, part: str, file: str) -> str:
        """The name of a file of a part as it is seen from the directory: parts have no directories of their own."""
        return file


def parts(reader: AnyReader, named: Iterable[str] | None = None) -> Iterator[tuple[str, Any]]:
    """The parts, or of a directory those that are named, as far as they are there; each with its reader."""
    if isinstance(reader, SideBySideReader):
        for name in reader.names() if named is None else named:
            with suppress(NotFound):
                yield name, reader.open(name)
    else:
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
    """The chunks and damages of one file, from record to record, in splits of about so many bytes; None: in one.

    `resumed` says that what lies before `start` has been read before: damage that began there was told then.
    """
    low = 0 if start is None else max(0, start - source.first_number)
    found: list[Split] = []
    begin: int | None = None
    end = 0
    for item in items:
        if isinstance(item, Damage):
            if item.kind == "torn_tail":
                found.append(_split(source, item.start if begin is None else begin, end or item.start))
                found[-1] = replace(found[-1], behind=item, bytes=found[-1].bytes + item.size)
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
    """A file that is not written any more, and small enough, in one split, without reading it; none where it is empty.

    None for any other file, and for one of which only a part is asked for.
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
    """The file that a number lies in; None when it is not there."""
    return next((file for file in files if file.before == number >> POSITION_BITS), None)


def split_items(journal: FilesReader[Any, Any, Any], split: Split, items: Iterable[Any], mode: Mode) -> Iterator[Any]:
    """The chunks of a split, and what is damaged: what begins in it, and what its plan has found before and behind it.

    `items` are those of its file between its numbers. The torn tail is told by the plan, as there may be none by now.
    """
    if split.before is not None:
        yield from journal.report(split.before, mode)
    for item in items:
        if not isinstance(item, Damage):
            yield item
        elif item.start >= split.position and item.kind != "torn_tail":
            yield from journal.report(item, mode)
    if split.behind is not None:
        yield from journal.report(split.behind, mode)


def _entries(part: str, reader: FilesReader[Any, Any, Any]) -> Iterator[FileEntry]:
    for source in reader.files():
        with suppress(NotFound):
            size = reader.disk.file_size(source.path)
            following = reader.next if source.timestamp is None else source.timestamp << POSITION_BITS
            yield FileEntry(part, source.name, size, source.first_number, following)
