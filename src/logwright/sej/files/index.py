"""A sparse index of a segment: offsets, positions and times, about one entry for each 256 KiB.

`idx/%016x.idx`, little-endian:

    0          8               16
    | LWSEJIX2 | first_offset | entry | entry | …                   magic, u64

    0        8          16          24         32        40    44      48
    | offset | position | timestamp | smallest | largest | crc | flags |     u64 u64 i64 i64 i64 u32 u32

An entry means: the message with this offset begins at this position and has this timestamp; and the messages between
the preceding entry (or the beginning of the segment) and this one have timestamps from `smallest` to `largest`.
Messages without a timestamp are ignored; if no message has one, `smallest` is the largest i64 and `largest` the
smallest. `crc` is CRC-32 of the segment's first offset, of the position of the preceding entry, and of the preceding 40
bytes: an entry is valid only after the entry that it was written after. Flag 1 marks the end of a finished segment: no
message begins there, and `timestamp` is that of the last one.

The file overrides the index. An entry is valid only if its checksum is right and the file has a whole message with that
offset and timestamp at that position (or, for an end entry, ends there with the preceding message). A missing, short,
foreign or outdated index only means a longer walk, so it needs no sync, and other programs may ignore or delete it. The
times of a stretch are used only if the file confirms the entry at its end.

An end entry is written after the segment was synced. So if the segment ends before it, messages are lost.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple

from ...core.io.disk import Disk, File, make_directories, write_all
from ...errors import LogwrightError, NotFound
from ..bytes.layout import HEAD, INDEX_DIRECTORY, INDEX_SUFFIX, MAX_TIMESTAMP, NO_TIMESTAMP, TRAILER
from .segment import Cursor, Segment, message_span, step_back

MAGIC: Final = b"LWSEJIX2"
STRIDE_BYTES: Final = 256 * 1024
_LEAST_BYTES: Final = STRIDE_BYTES * 3 // 4
"""How long a stretch is at least: a buffer that is read or written ends with a message, a little before it is full."""
_HEADER: Final = struct.Struct("<8sQ")
_ENTRY: Final = struct.Struct("<QQqqqII")
_FIELDS: Final = struct.Struct("<QQqqq")
_CHECK: Final = struct.Struct("<II")
_SEED: Final = struct.Struct("<QQ")
END_FLAG: Final = 1
HEADER_BYTES: Final = _HEADER.size
ENTRY_BYTES: Final = _ENTRY.size

assert _HEADER.size == 16
assert _ENTRY.size == _FIELDS.size + _CHECK.size == 48


class Entry(NamedTuple):
    """A message boundary, and the times of the stretch before it. `is_end`: the end of a finished segment."""

    offset: int
    position: int
    timestamp: int
    smallest: int
    largest: int
    is_end: bool = False

    def pack(self, first_offset: int, since: int) -> bytes:
        """Its bytes in the index of a segment, after an entry with the position `since`, which is 0 for the first."""
        fields = _FIELDS.pack(*self[:5])
        return fields + _CHECK.pack(_checksum(fields, first_offset, since, self.is_end), int(self.is_end) * END_FLAG)

    @classmethod
    def unpack(cls, data: bytes, first_offset: int, since: int) -> Entry | None:
        """The entry in these bytes; None if it is invalid, or does not belong to this segment after that entry."""
        offset, position, timestamp, smallest, largest, checksum, flags = _ENTRY.unpack(data)
        is_end = flags == END_FLAG
        if flags not in (0, END_FLAG) or _checksum(data[: _FIELDS.size], first_offset, since, is_end) != checksum:
            return None
        return cls(offset, position, timestamp, smallest, largest, is_end)


def _checksum(fields: bytes, first_offset: int, since: int, is_end: bool) -> int:
    return zlib.crc32(fields, zlib.crc32(_SEED.pack(first_offset ^ (int(is_end) << 63), since)))


def header_of(segment: Segment) -> bytes:
    """How the index of a segment begins."""
    return _HEADER.pack(MAGIC, segment.first_offset)


def index_path(segment: Segment) -> Path:
    """Where the index of a segment is."""
    return segment.path.parent.parent / INDEX_DIRECTORY / (segment.path.stem + INDEX_SUFFIX)


# --- reading --------------------------------------------------------------------------------------------------------


class Index:
    """The entries of one segment, each checked against the file when it is used."""

    def __init__(self, segment: Segment, entries: list[Entry]) -> None:
        self.segment = segment
        self.entries = entries
        self._largest_before = list(accumulate((entry.largest for entry in entries), max))

    @classmethod
    def load(cls, disk: Disk, segment: Segment, size_of_segment: int) -> Index | None:
        """The index of a segment; None if it is missing or invalid. Reads no more than a segment of this size needs."""
        most_bytes = _HEADER.size + _ENTRY.size * (size_of_segment // _LEAST_BYTES + 16)
        entries = read_entries(disk, segment, most_bytes, size_of_segment)
        return cls(segment, entries) if entries else None

    def before_offset(self, file: File, offset: int) -> Entry | None:
        """The last entry at or before an offset that the file confirms."""
        at = bisect_right(self.entries, offset, key=lambda entry: entry.offset)
        return self._confirmed(file, at)

    def before_position(self, file: File, position: int) -> Entry | None:
        """The last entry at or before a position that the file confirms."""
        at = bisect_right(self.entries, position, key=lambda entry: entry.position)
        return self._confirmed(file, at)

    def before_time(self, file: File, timestamp: int) -> Entry | None:
        """The last confirmed entry before which every message is earlier than `timestamp`."""
        return self._confirmed(file, bisect_right(self._largest_before, timestamp - 1))

    def last(self, file: File) -> Entry | None:
        """The last confirmed entry."""
        return self._confirmed(file, len(self.entries))

    def end(self, file: File) -> Entry | None:
        """The end entry of a finished segment, if the file still ends with it."""
        entry = self.entries[-1]
        return entry if entry.is_end and confirms(file, entry) else None

    def times(self, file: File) -> tuple[int, int] | None:
        """The smallest and the largest timestamp of a finished segment; None if the index does not have it."""
        if self.end(file) is None:
            return None
        return min(entry.smallest for entry in self.entries), self._largest_before[-1]

    def _confirmed(self, file: File, at: int) -> Entry | None:
        """The nearest confirmed entry below `at`. If the file does not confirm an entry, later ones are not tried."""
        while at > 0:
            entry = self.entries[at - 1]
            if confirms(file, entry):
                return entry
            at //= 2
        return None


def read_entries(disk: Disk, segment: Segment, most_bytes: int, most_position: int | None = None) -> list[Entry] | None:
    """The valid entries of the index of a segment, up to a position; None if there is no index of this segment."""
    try:
        file = disk.open(index_path(segment), "read")
    except LogwrightError:
        return None
    try:
        data = file.read_at(0, min(most_bytes, file.size()))
    except LogwrightError:
        return None
    finally:
        file.close()
    if len(data) < _HEADER.size or _HEADER.unpack_from(data) != (MAGIC, segment.first_offset):
        return None
    entries: list[Entry] = []
    since = 0
    for at in range(_HEADER.size, len(data) - _ENTRY.size + 1, _ENTRY.size):
        entry = Entry.unpack(data[at : at + _ENTRY.size], segment.first_offset, since)
        if entry is None or not _rises(entries, entry):
            break
        if most_position is not None and entry.position > most_position:
            break
        entries.append(entry)
        since = entry.position
    return entries


def read_end(disk: Disk, segment: Segment, file: File) -> Entry | None:
    """The end entry of the index of a segment: the segment was synced up to there. None if it has none.

    Ask before the end of the segment is read: a writer may add to both. An index of an earlier file of the same name
    does not count: the first message has a time that this one does not have.
    """
    try:
        index = disk.open(index_path(segment), "read")
    except LogwrightError:
        return None
    try:
        count = (index.size() - _HEADER.size) // _ENTRY.size
        first = index.read_at(_HEADER.size, _ENTRY.size)
        last = index.read_at(_HEADER.size + _ENTRY.size * max(0, count - 2), 2 * _ENTRY.size)[: count * _ENTRY.size]
        head = file.read_at(0, HEAD.size)
    except LogwrightError:
        return None
    finally:
        index.close()
    if len(last) < _ENTRY.size:
        return None
    since = _ENTRY.unpack_from(last)[1] if count > 1 else 0
    beginning = Entry.unpack(first, segment.first_offset, 0)
    end = Entry.unpack(last[-_ENTRY.size :], segment.first_offset, since)
    if beginning is None or end is None or not end.is_end or not _can_begin(head, segment, beginning):
        return None
    return end


def indexed_end(disk: Disk, segment: Segment, file: File) -> int:
    """Up to where the index of a segment shows that it was synced; 0 if it does not."""
    entry = read_end(disk, segment, file)
    return 0 if entry is None else entry.position


def _can_begin(head: bytes, segment: Segment, entry: Entry) -> bool:
    """Whether the stretch of the first entry of an index can begin with this head of a message."""
    if len(head) < HEAD.size:
        return True
    offset, timestamp, _, _ = HEAD.unpack(head)
    if offset != segment.first_offset or timestamp == NO_TIMESTAMP:  # it is damaged, or has no time
        return True
    return bool(entry.smallest <= timestamp <= entry.largest)


def _rises(entries: list[Entry], entry: Entry) -> bool:
    if not entries:
        return True
    last = entries[-1]
    return not last.is_end and last.offset < entry.offset and last.position < entry.position


def confirms(file: File, entry: Entry) -> bool:
    """Whether the file says the same as an entry."""
    size = file.size()
    if entry.is_end:
        found = step_back(file, size) if entry.position == size else None
        offset = entry.offset - 1
    else:
        found = message_span(file, entry.position, size)
        offset = entry.offset
    return found is not None and found[0] == offset and _timestamp_at(file, found[1].start) == entry.timestamp


def agrees(file: File, segment: Segment, entries: list[Entry]) -> bool:
    """Whether each entry has what the file says of its message, and of the messages since the preceding entry."""
    since = Entry(segment.first_offset, 0, 0, 0, 0)
    for entry in entries:
        cursor = Cursor(file, segment, since.position, since.offset, end=entry.position)
        stretch = Stretch(since.position)
        while (chunk := cursor.read()) is not None:
            stretch.add(chunk.smallest_timestamp, chunk.largest_timestamp)
        found = stretch.end_at(cursor.expected, cursor.position, entry.timestamp, is_end=entry.is_end)
        if found != entry or not confirms(file, entry):
            return False
        since = entry
    return True


def last_timestamp(file: File, end: int) -> int:
    """The timestamp of the message that ends at a position, `NO_TIMESTAMP` where none does."""
    found = step_back(file, end)
    return NO_TIMESTAMP if found is None else _timestamp_at(file, found[1].start)


def _timestamp_at(file: File, position: int) -> int:
    timestamp: int = HEAD.unpack(file.read_at(position, HEAD.size))[1]
    return timestamp


# --- writing --------------------------------------------------------------------------------------------------------


class Stretch:
    """The messages after the last entry: where they begin, and the smallest and largest timestamp so far."""

    def __init__(self, position: int = 0, smallest: int = MAX_TIMESTAMP, largest: int = NO_TIMESTAMP) -> None:
        self.position = position
        self.smallest = smallest
        self.largest = largest

    def add(self, smallest: int, largest: int) -> None:
        """Messages with such times are in it as well."""
        self.smallest = min(self.smallest, smallest)
        self.largest = max(self.largest, largest)

    def is_long(self, position: int) -> bool:
        """Whether it is time for an entry at a position."""
        return position - self.position >= _LEAST_BYTES

    def end_at(self, offset: int, position: int, timestamp: int, *, is_end: bool = False) -> Entry:
        """The entry at its end."""
        return Entry(offset, position, timestamp, self.smallest, self.largest, is_end)


class IndexWriter:
    """Adds entries to a segment's index as the segment grows. A failure to write one ends the index, nothing else."""

    def __init__(self, segment: Segment, file: File, size: int, stretch: Stretch) -> None:
        self._segment = segment
        self._file: File | None = file
        self._size = size
        self._stretch = stretch
        self._last_timestamp = NO_TIMESTAMP

    @classmethod
    def create(cls, disk: Disk, segment: Segment) -> IndexWriter | None:
        """A new index for a segment that begins; None when the system does not let us."""
        path = index_path(segment)
        try:
            make_directories(disk, path.parent)
            disk.remove(path)
            file = disk.open(path, "create")
        except LogwrightError:
            return None
        writer = cls(segment, file, _HEADER.size, Stretch())
        writer._write(0, header_of(segment))
        return writer

    @classmethod
    def resume(cls, disk: Disk, segment: Segment, index: Index, last: Entry) -> IndexWriter | None:
        """Continue after the entry `last` of an index, dropping the entries after it; the segment is not finished."""
        kept = index.entries[: index.entries.index(last) + 1]
        stretch = Stretch(last.position)
        if last.is_end:
            kept.pop()
            stretch = Stretch(kept[-1].position if kept else 0, last.smallest, last.largest)
        try:
            file = disk.open(index_path(segment), "update")
        except LogwrightError:
            return None
        writer = cls(segment, file, _HEADER.size + len(kept) * _ENTRY.size, stretch)
        try:
            file.truncate(writer._size)
        except LogwrightError:
            writer.close()
            return None
        return writer

    def note(self, messages: memoryview, position: int, smallest: int, largest: int) -> None:
        """Whole messages with such times are in the segment, from a position on.

        Makes an entry of the first one when the last entry is far enough away.
        """
        if self._stretch.is_long(position):
            offset, timestamp, _, _ = HEAD.unpack_from(messages)
            self._append(self._stretch.end_at(offset, position, timestamp))
        self._stretch.add(smallest, largest)
        (last_size,) = TRAILER.unpack_from(messages, len(messages) - TRAILER.size)
        self._last_timestamp = HEAD.unpack_from(messages, len(messages) - last_size)[1]

    def finish(self, offset: int, position: int) -> None:
        """The segment is complete: its messages end before an offset and a position."""
        self._append(self._stretch.end_at(offset, position, self._last_timestamp, is_end=True))
        self.close()

    def _append(self, entry: Entry) -> None:
        self._write(self._size, entry.pack(self._segment.first_offset, self._stretch.position))
        self._size += _ENTRY.size
        self._stretch = Stretch(entry.position)

    def _write(self, position: int, data: bytes) -> None:
        if self._file is None:
            return
        try:
            write_all(self._file, position, data)
        except LogwrightError:
            self.close()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(LogwrightError):  # it is closed all the same, and an index is only an index
                file.close()


def build_entries(file: File, segment: Segment, size: int, *, finished: bool) -> list[Entry]:
    """The entries of a segment by walking it. Ends at damage."""
    entries: list[Entry] = []
    cursor = Cursor(file, segment, 0, segment.first_offset, end=size)
    stretch = Stretch()
    while (chunk := cursor.read()) is not None:
        if stretch.is_long(chunk.position):
            timestamp = HEAD.unpack_from(chunk.data, chunk.start)[1]
            entries.append(stretch.end_at(chunk.first_offset, chunk.position, timestamp))
            stretch = Stretch(chunk.position)
        stretch.add(chunk.smallest_timestamp, chunk.largest_timestamp)
    if finished and cursor.position == size > 0:
        entries.append(stretch.end_at(cursor.expected, size, last_timestamp(file, size), is_end=True))
    return entries


def write_index(disk: Disk, segment: Segment, entries: list[Entry]) -> None:
    """Put an index in place, whole or not at all."""
    path = index_path(segment)
    make_directories(disk, path.parent)
    temporary = path.with_suffix(".tmp")
    disk.remove(temporary)
    file = disk.open(temporary, "create")
    try:
        write_all(file, 0, header_of(segment) + packed(entries, segment.first_offset))
    finally:
        file.close()
    disk.rename(temporary, path)


def packed(entries: list[Entry], first_offset: int) -> bytes:
    """Entries as they follow each other in the index of a segment."""
    since = [0, *(entry.position for entry in entries)]
    return b"".join(entry.pack(first_offset, before) for entry, before in zip(entries, since, strict=False))


def remove_index(disk: Disk, segment: Segment) -> None:
    """Remove the index of a segment that goes."""
    try:
        disk.remove(index_path(segment))
    except NotFound:
        return
