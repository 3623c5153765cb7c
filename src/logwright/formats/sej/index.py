"""A sparse index of a segment: which offset and time is at which position, about every quarter of a mebibyte.

`idx/%016x.idx`, little-endian:

    0          8               16
    | LWSEJIX2 | first_offset | entry | entry | …                   magic, u64

    0        8          16          24               32                 40    44      48
    | offset | position | timestamp | largest_before | smallest_between | crc | flags |     u64 u64 i64 i64 i64 u32 u32

An entry says: the message with this offset begins at this position and has this timestamp, the largest timestamp of all
messages before it in the segment is `largest_before`, and `smallest_between` the smallest one of those that are between
the entry before and this one; for both the smallest i64 stands for none. `crc` is CRC-32 of the 40 bytes before it and
of the segment's first offset. Flag 1 marks the end of a finished segment: no message begins there. (An index of the
first kind, LWSEJIX1, had no `smallest_between`, and is not used any more.)

The index is never trusted over the file. An entry counts only if its checksum is right and the file has a whole
message with that offset and timestamp at that position (or, for an end entry, is exactly that long); a missing, short,
foreign or outdated index only means a longer walk. So it needs no sync, and other programs may ignore or delete it.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from bisect import bisect_right
from pathlib import Path
from typing import Final, NamedTuple

from ...core.disk import Disk, File, make_directories, write_all
from ...core.errors import LogwrightError, NotFound
from . import codec, kernel
from .layout import HEAD, INDEX_DIRECTORY, INDEX_SUFFIX, NO_TIMESTAMP
from .segment import Chunk, Cursor, Segment, message_span

MAGIC: Final = b"LWSEJIX2"
STRIDE_BYTES: Final = 256 * 1024
_HEADER: Final = struct.Struct("<8sQ")
_ENTRY: Final = struct.Struct("<QQqqqII")
_FIELDS: Final = struct.Struct("<QQqqq")
_CHECK: Final = struct.Struct("<II")
_SEED: Final = struct.Struct("<Q")
END_FLAG: Final = 1
HEADER_BYTES: Final = _HEADER.size
ENTRY_BYTES: Final = _ENTRY.size

assert _HEADER.size == 16
assert _ENTRY.size == _FIELDS.size + _CHECK.size == 48


class Entry(NamedTuple):
    """A message boundary. For the end of a finished segment `is_end` is set and `timestamp` means nothing."""

    offset: int
    position: int
    timestamp: int
    largest_before: int
    is_end: bool = False
    smallest_between: int = NO_TIMESTAMP

    def pack(self, first_offset: int) -> bytes:
        fields = _FIELDS.pack(self.offset, self.position, self.timestamp, self.largest_before, self.smallest_between)
        return fields + _CHECK.pack(_checksum(fields, first_offset, self.is_end), END_FLAG if self.is_end else 0)

    @classmethod
    def unpack(cls, data: bytes, first_offset: int) -> Entry | None:
        offset, position, timestamp, largest_before, smallest_between, checksum, flags = _ENTRY.unpack(data)
        if flags not in (0, END_FLAG) or _checksum(data[: _FIELDS.size], first_offset, flags == END_FLAG) != checksum:
            return None
        return cls(offset, position, timestamp, largest_before, flags == END_FLAG, smallest_between)


def _checksum(fields: bytes, first_offset: int, is_end: bool) -> int:
    return zlib.crc32(fields, zlib.crc32(_SEED.pack(first_offset ^ (int(is_end) << 63))))


def header_of(segment: Segment) -> bytes:
    """How the index of a segment begins."""
    return _HEADER.pack(MAGIC, segment.first_offset)


def index_path(segment: Segment) -> Path:
    """Where the index of a segment is."""
    return segment.path.parent.parent / INDEX_DIRECTORY / (segment.path.stem + INDEX_SUFFIX)


class Index:
    """The entries of one segment, each checked against the file when it is used."""

    def __init__(self, segment: Segment, entries: list[Entry]) -> None:
        self.segment = segment
        self.entries = entries

    @classmethod
    def load(cls, disk: Disk, segment: Segment, size_of_segment: int) -> Index | None:
        """The index of a segment, None when there is none that can be used. Reads no more than such a segment needs."""
        try:
            file = disk.open(index_path(segment), "read")
        except LogwrightError:
            return None
        try:
            most = _HEADER.size + _ENTRY.size * (size_of_segment // STRIDE_BYTES + 16)
            data = file.read_at(0, most)
        except LogwrightError:
            return None
        finally:
            file.close()
        if len(data) < _HEADER.size or _HEADER.unpack_from(data) != (MAGIC, segment.first_offset):
            return None
        entries: list[Entry] = []
        for at in range(_HEADER.size, len(data) - _ENTRY.size + 1, _ENTRY.size):
            entry = Entry.unpack(data[at : at + _ENTRY.size], segment.first_offset)
            if entry is None or entry.position > size_of_segment or not _rises(entries, entry):
                break
            entries.append(entry)
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
        at = bisect_right(self.entries, timestamp - 1, key=lambda entry: entry.largest_before)
        return self._confirmed(file, at)

    def last(self, file: File) -> Entry | None:
        """The last confirmed entry."""
        return self._confirmed(file, len(self.entries))

    def end(self, file: File) -> Entry | None:
        """The end entry of a finished segment, if the file is still exactly that long."""
        entry = self.entries[-1]
        return entry if entry.is_end and confirms(file, entry) else None

    def _confirmed(self, file: File, at: int) -> Entry | None:
        """The nearest confirmed entry below `at`. What the file does not confirm once, it confirms less further on."""
        while at > 0:
            entry = self.entries[at - 1]
            if confirms(file, entry):
                return entry
            at //= 2
        return None


def _rises(entries: list[Entry], entry: Entry) -> bool:
    if not entries:
        return True
    last = entries[-1]
    return (
        not last.is_end
        and last.offset < entry.offset
        and last.position < entry.position
        and last.largest_before <= entry.largest_before
    )


def confirms(file: File, entry: Entry) -> bool:
    """Whether the file says the same as an entry."""
    size = file.size()
    if entry.is_end:
        return entry.position == size
    found = message_span(file, entry.position, size)
    if found is None or found[0] != entry.offset:
        return False
    timestamp: int = HEAD.unpack(file.read_at(entry.position, HEAD.size))[1]
    return timestamp == entry.timestamp


class IndexWriter:
    """Adds entries to a segment's index as the segment grows. A failure to write one ends the index, nothing else."""

    def __init__(self, disk: Disk, segment: Segment, file: File, size: int, last_position: int) -> None:
        self._disk = disk
        self._segment = segment
        self._file: File | None = file
        self._size = size
        self._last_position = last_position
        self._smallest = NO_TIMESTAMP  # since the last entry

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
        writer = cls(disk, segment, file, _HEADER.size, 0)
        writer._write(0, _HEADER.pack(MAGIC, segment.first_offset))
        return writer

    @classmethod
    def resume(cls, disk: Disk, segment: Segment, index: Index, last: Entry) -> IndexWriter | None:
        """Go on after the entry `last` of an index, forgetting the entries behind it."""
        try:
            file = disk.open(index_path(segment), "update")
        except LogwrightError:
            return None
        kept = index.entries.index(last) + (0 if last.is_end else 1)
        size = _HEADER.size + kept * _ENTRY.size
        writer = cls(disk, segment, file, size, last.position)
        if last.is_end:
            writer.passed(last.smallest_between)
        try:
            file.truncate(size)
        except LogwrightError:
            writer.close()
            return None
        return writer

    def note(self, offset: int, position: int, timestamp: int, largest_before: int) -> None:
        """A message begins here. Makes an entry of it when the last one is far enough away."""
        if position - self._last_position >= STRIDE_BYTES:
            self._append(Entry(offset, position, timestamp, largest_before, smallest_between=self._smallest))

    def passed(self, smallest: int) -> None:
        """What is written behind the message that was noted last has this smallest timestamp."""
        self._smallest = codec.earlier(self._smallest, smallest)

    def finish(self, offset: int, position: int, largest_before: int) -> None:
        """The segment is complete."""
        self._append(Entry(offset, position, 0, largest_before, True, self._smallest))
        self.close()

    def add(self, entry: Entry) -> None:
        """An entry that a walk has found."""
        self._append(entry)

    def _append(self, entry: Entry) -> None:
        self._last_position = entry.position
        self._smallest = NO_TIMESTAMP
        self._write(self._size, entry.pack(self._segment.first_offset))
        self._size += _ENTRY.size

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


class Survey(NamedTuple):
    """What a walk through a segment has found. `smallest` is the smallest timestamp behind the last entry."""

    entries: list[Entry]
    largest: int
    smallest: int


def survey(file: File, segment: Segment, size: int, *, finished: bool) -> Survey:
    """Walk a segment. Ends at damage."""
    entries: list[Entry] = []
    cursor = Cursor(file, segment, 0, segment.first_offset, end=size)
    largest = smallest = NO_TIMESTAMP
    last_position = 0
    while (chunk := cursor.read()) is not None:
        if chunk.position - last_position >= STRIDE_BYTES:
            timestamp = HEAD.unpack_from(chunk.data, chunk.start)[1]
            entries.append(Entry(chunk.first_offset, chunk.position, timestamp, largest, False, smallest))
            last_position, smallest = chunk.position, NO_TIMESTAMP
        largest = max(largest, chunk.largest_timestamp)
        smallest = codec.earlier(smallest, smallest_of(chunk))
    if finished and cursor.position == size:
        entries.append(Entry(cursor.expected, size, 0, largest, True, smallest))
    return Survey(entries, largest, smallest)


def smallest_of(chunk: Chunk) -> int:
    """The smallest timestamp of a chunk."""
    return kernel.smallest_timestamp(chunk.data, chunk.start, chunk.stop)


def build_entries(file: File, segment: Segment, size: int, *, finished: bool) -> list[Entry]:
    """The entries of a segment by walking it. Ends at damage."""
    return survey(file, segment, size, finished=finished).entries


def write_index(disk: Disk, segment: Segment, entries: list[Entry]) -> None:
    """Put an index in place, whole or not at all."""
    path = index_path(segment)
    make_directories(disk, path.parent)
    temporary = path.with_suffix(".tmp")
    disk.remove(temporary)
    file = disk.open(temporary, "create")
    try:
        packed = b"".join(entry.pack(segment.first_offset) for entry in entries)
        write_all(file, 0, _HEADER.pack(MAGIC, segment.first_offset) + packed)
    finally:
        file.close()
    disk.rename(temporary, path)


def remove_index(disk: Disk, segment: Segment) -> None:
    """Remove the index of a segment that goes."""
    try:
        disk.remove(index_path(segment))
    except NotFound:
        return
