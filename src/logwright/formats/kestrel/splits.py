"""Journals of queues in splits: a split lies within one file, and the part that it belongs to is its queue.

Where operations begin is found by going from one to the next: the format has no other way. A rotated file that is small
enough is one split without that. Damage belongs to the split that it begins in. The file of a split is found again by
the numbers of its operations, so it may have been rotated in the meantime.

For streams, which go on where they stopped: `extent` says what there is, up to the last operation that is there as a
whole, `reach` how far a number of bytes goes, and `advance` a number of operations.

An operation keeps its number when its file is rotated. But a pack, and a newest file that was written anew because the
queue was empty, have other operations under the numbers of what they replace. So a stream notes a `mark` where it
stops, a digest of the bytes right before that place, and `resume` compares it with what is there now. A split knows by
its `mark` whether it still is what was planned.
"""

from __future__ import annotations

import hashlib
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from ...core.disk import File
from ...core.errors import NotFound
from ...core.outcome import Damage, Mode, check_mode
from ...core.split import TARGET_BYTES, Bound, Split
from .cursor import Chunk
from .files import POSITION_BITS, JournalFile
from .queues import QueuesReader
from .reader import Reader

AnyReader = Reader | QueuesReader

_MARKED_BYTES: Final = 4096
_SPLIT_MARK_BYTES: Final = 64
_POSITION: Final = (1 << POSITION_BITS) - 1


def file_of(part: str, file: str) -> str:
    """The name of a file of a queue as it is seen from the directory: queues have no directories of their own."""
    return file


def parts(reader: AnyReader) -> Iterator[tuple[str, Reader]]:
    """The queues, each with its reader."""
    if isinstance(reader, QueuesReader):
        for queue in reader.queues():
            with suppress(NotFound):
                yield queue, reader.open(queue)
    else:
        yield reader.queue, reader


def _part(reader: AnyReader, queue: str) -> Reader:
    if isinstance(reader, QueuesReader):
        return reader.open(queue)
    if reader.queue != queue:
        raise NotFound(f"{reader.path}: the queue {queue} is gone")
    return reader


# --- what there is ----------------------------------------------------------------------------------------------------


def extent(reader: AnyReader) -> dict[str, tuple[int, int]]:
    """The first number and the next one of every queue. An operation that is not there as a whole is not counted."""
    found = {}
    for queue, journal in parts(reader):
        with suppress(NotFound):  # removed while we looked
            found[queue] = (journal.first, journal.next)
    return found


def reach(reader: AnyReader, part: str, start: int, stop: int, max_bytes: int) -> tuple[int, int]:
    """How far `max_bytes` go from the operation `start` on, but not beyond `stop`: where to stop, and the bytes to it.

    At least one operation is within reach, however large it is.
    """
    number, used = start, 0
    for item in _part(reader, part).chunks(start, stop, mode="permissive", load=False):
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
    """How far `most` operations go from `start` on, but not beyond `stop`: where to stop, and how many there are."""
    count = 0
    for item in _part(reader, part).chunks(start, stop, mode="dropmalformed", load=False):
        assert not isinstance(item, Damage)
        if count + item.count >= most:
            return item.source.first_number + item.starts()[most - count], most
        count += item.count
    return stop, count


# --- going on where one stopped ---------------------------------------------------------------------------------------


def mark(reader: AnyReader, part: str, number: int) -> str:
    """A digest of the bytes of the file right before a number; empty at the beginning of a file."""
    with _part(reader, part).snapshot() as files:
        source = _source_of(files.files, number)
        return "" if source is None else _mark(files.file(source), number & _POSITION)


def resume(reader: AnyReader, part: str, number: int, mark: str) -> tuple[int, str]:
    """Where to go on that had come to `number`, and why that is another number, if it is.

    What was packed before it was read is gone: it goes on with the file behind the pack. A newest file that was written
    anew is read from its beginning. Without a mark it is not known what was read, and what is there is believed.
    """
    journal = _part(reader, part)
    with journal.snapshot() as files:
        source = _source_of(files.files, number)
        position = number & _POSITION
        if source is None:
            behind = [file.first_number for file in files.files if file.first_number > number]
            last = (files.files[-1].timestamp or 0) << POSITION_BITS if files.files else 0
            if number == last:  # it was read to the end, and the file that follows is yet to come
                return number, ""
            following = min(behind, default=last)
            return following, _gone(number, following, "was packed")
        file = files.file(source)
        if file.size() >= position and mark in ("", _mark(file, position)):
            return number, ""
        following = source.first_number if source.timestamp is None else source.timestamp << POSITION_BITS
        return following, _gone(number, following, "was written anew" if source.timestamp is None else "was packed")


def _source_of(files: list[JournalFile], number: int) -> JournalFile | None:
    """The file that a number lies in."""
    return next((file for file in files if file.before == number >> POSITION_BITS), None)


def _mark(file: File, position: int) -> str:
    if position == 0:
        return ""
    begin = max(0, position - _MARKED_BYTES)
    return hashlib.blake2b(file.read_at(begin, position - begin), digest_size=12).hexdigest()


def _gone(number: int, following: int, why: str) -> str:
    before, position = number >> POSITION_BITS, number & _POSITION
    place = f"position {position} of the file {'behind number ' + str(before) if before else 'that was the first'}"
    return f"records from {number} on ({place}) went before they were read, because what held them {why}; " + (
        f"it goes on with {following}"
    )


# --- planning ---------------------------------------------------------------------------------------------------------


def plan(
    reader: AnyReader,
    target_bytes: int = TARGET_BYTES,
    start: Bound = None,
    stop: Bound = None,
    *,
    resumed: bool = False,
) -> list[Split]:
    """The operations with `start` <= number < `stop`, as they are now, in splits of about `target_bytes`.

    What is appended later is in none of them. Bounds are for every queue, or for each by its name; then those that are
    not named are left out. `resumed` says that what lies before `start` has been read before: damage that began there
    was told then.
    """
    found: list[Split] = []
    for queue, journal in parts(reader):
        if any(isinstance(bound, Mapping) and queue not in bound for bound in (start, stop)):
            continue
        low = start[queue] if isinstance(start, Mapping) else start
        high = stop[queue] if isinstance(stop, Mapping) else stop
        with suppress(NotFound):
            found += [replace(split, part=queue) for split in _plan(journal, target_bytes, low, high, resumed)]
    return found


def _plan(reader: Reader, target_bytes: int, start: int | None, stop: int | None, resumed: bool) -> list[Split]:
    found: list[Split] = []
    with reader.snapshot() as files:
        for source in files.files:
            first = source.first_number
            if stop is not None and first >= stop:
                break
            if start is not None and start - first >= 1 << POSITION_BITS:
                continue
            file = files.file(source)
            size = file.size()
            is_whole = (start is None or start <= first) and (stop is None or stop >= first + size)
            if is_whole and not source.is_newest and size <= target_bytes:
                planned = [Split(source.name, 0, first, first + size, size)] if size else []
            else:
                planned = _split_file(reader, source, file, target_bytes, start, stop, resumed)
            found += [replace(split, mark=_split_mark(file, split)) for split in planned]
            files.done_with(source)
    return found


def _split_file(
    reader: Reader,
    source: JournalFile,
    file: File,
    target_bytes: int,
    start: int | None,
    stop: int | None,
    resumed: bool,
) -> list[Split]:
    """One file, from operation to operation."""
    low = 0 if start is None else max(0, start - source.first_number)
    found: list[Split] = []
    begin: int | None = None
    end = 0
    for item in reader.file_chunks(source, file, start, stop, "permissive", load=False):
        if isinstance(item, Damage):
            if item.kind == "torn_tail":
                found.append(_split(source, item.start if begin is None else begin, end or item.start))
                found[-1] = replace(found[-1], behind=item, bytes=found[-1].bytes + item.size)
                return found
            if resumed and item.start < low:
                continue
        at = item.start if isinstance(item, Damage) else item.position
        if begin is not None and at - begin >= target_bytes:
            found.append(_split(source, begin, at))
            begin = None
        begin = at if begin is None else begin
        end = item.end
    if begin is not None:
        found.append(_split(source, begin, end))
    return found


def _split_mark(file: File, split: Split) -> int:
    """What the bytes of a split begin with, as far as they were there when it was planned."""
    size = min(_SPLIT_MARK_BYTES, split.stop - split.start)
    return zlib.crc32(file.read_at(split.position, size))


def _split(source: JournalFile, begin: int, end: int) -> Split:
    first = source.first_number
    return Split(source.name, begin, first + begin, first + end, end - begin)


# --- reading ----------------------------------------------------------------------------------------------------------


def chunks(reader: AnyReader, split: Split, mode: Mode = "failfast") -> Iterator[Chunk | Damage]:
    """The operations of a split. A chunk's buffer is valid until the next one is asked for."""
    check_mode(mode)
    journal = _part(reader, split.part)
    with journal.snapshot() as files:
        source = next((file for file in files.files if file.before == split.start >> POSITION_BITS), None)
        if source is None:
            raise NotFound(f"{journal.path}: what was in {split.file} was packed: it is not kept")
        file = files.file(source)
        if split.mark is not None and _split_mark(file, split) != split.mark:
            raise NotFound(f"{journal.path}: what was in {split.file} was packed or written anew: it is not kept")
        found = journal.file_chunks(source, file, split.start, split.stop, "permissive", at=split.position)
        for item in found:
            if not isinstance(item, Damage):
                yield item
            elif item.start >= split.position and item.kind != "torn_tail":
                yield from journal.report(item, mode)
        if split.behind is not None:
            yield from journal.report(split.behind, mode)
