"""Restoring sej journals from tables: the same bytes, segment for segment.

The bytes of a message follow from its offset, timestamp, type, key and value, and a segment consists of messages from
the offset in its name on. So an intact journal is restored byte for byte, with its empty segments, its shards and its
consumers' offsets. Damaged messages are not in the tables: at a gap in the offsets a new segment begins, named by the
next offset. The journal is then sound except for the gap, which every reader reports.

Indexes are rebuilt. Checksums, locks and the copies in `.logwright/` are not restored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ...core.io.disk import REAL_DISK, Disk, make_directories, write_all
from ...core.publish.restore import Missing, Restore, Written
from ...errors import DamagedJournal, LogwrightError, WrongUse
from ..bytes import kernel
from ..bytes.codec import Columns
from ..bytes.layout import (
    NO_TIMESTAMP,
    OFFSET,
    OFFSET_SUFFIX,
    SEGMENT_DIRECTORY,
    check_offset,
    parse_segment_name,
    segment_name,
)
from ..files.index import IndexWriter, index_path
from ..files.offset_file import offset_path
from ..files.segment import Segment
from ..files.shard import parse_shard_name
from ..files.writer import BUFFER_BYTES

_NO_LIMIT: Final = 2**62
_MAX_NAME_BYTES: Final = 255


def _parsed(file: str) -> tuple[str, str, int]:
    """Shard, file name and first offset of a segment: `SHARD/jnl/NAME`, `jnl/NAME`, or `NAME` where it is a journal."""
    *folders, name = file.split("/")
    first_offset = parse_segment_name(name)
    match folders:
        case [] | ["jnl"]:
            shard: str | None = ""
        case [shard, "jnl"] if parse_shard_name(shard) is not None:
            pass
        case _:
            shard = None
    if shard is None or first_offset is None:
        raise WrongUse(f"{file!r} cannot be the name of a segment of a sej journal")
    return shard, name, first_offset


def part_of(file: str) -> str:
    """The shard that a segment belongs to; empty in a journal without shards."""
    return _parsed(file)[0]


class FileWriter:
    """Writes one segment, and where offsets jump the further ones that it falls into."""

    def __init__(self, directory: Path, file: str, *, disk: Disk = REAL_DISK) -> None:
        _, name, first_offset = _parsed(file)
        self._disk = disk
        self._origin = file
        self._home = directory
        self._prefix = file.removesuffix(name)
        self._folder = directory / self._prefix
        self._indexed = "/" in file
        self._done: list[Written] = []
        self._index: IndexWriter | None = None
        make_directories(disk, self._folder)
        self._begin(name, first_offset)

    def _begin(self, name: str, first_offset: int) -> None:
        self._segment = Segment(first_offset, f"{SEGMENT_DIRECTORY}/{name}", self._folder / name)
        self._file = self._disk.open(self._segment.path, "create")
        self._index = IndexWriter.create(self._disk, self._segment) if self._indexed else None
        self._buffer = kernel.AppendBuffer(first_offset, 0, _NO_LIMIT, BUFFER_BYTES)
        self._size = 0

    def append_batch(self, batch: object) -> None:
        """Add rows of the table `messages`, which must be of this segment and in the order of their positions."""
        from .spark_columns import consecutive_messages

        for run in consecutive_messages(batch):
            expected: int = self._buffer.next_offset
            if run.first_offset < expected:
                reason = f"the tables have offset {run.first_offset} where {expected} was expected"
                raise DamagedJournal(self._origin, run.position, reason)
            if run.first_offset > expected:
                self._end()
                self._begin(segment_name(run.first_offset), run.first_offset)
            before = self._size + self._buffer.buffered_bytes
            self._append(run.columns)
            grown = self._size + self._buffer.buffered_bytes - before
            if grown != run.bytes:
                reason = f"the tables say that messages from here on have {run.bytes} bytes, and they have {grown}"
                raise DamagedJournal(self._origin, run.position, reason)

    def _append(self, parts: list[Columns]) -> None:
        for part in parts:
            kernel.check_columns(part)
            row = 0
            while row < part.count:
                row = self._buffer.extend(part, row, NO_TIMESTAMP, BUFFER_BYTES)
                if self._buffer.buffered_bytes >= BUFFER_BYTES:
                    self._write()

    def _write(self) -> None:
        data, used, _, smallest, largest = self._buffer.take()
        with memoryview(data) as view:
            write_all(self._file, self._size, view[:used])
            if used and self._index is not None:
                self._index.note(view[:used], self._size, smallest, largest)
        self._size += used

    def _end(self) -> None:
        """The segment is complete: make its bytes durable."""
        self._write()
        self._file.sync()
        self._file.close()
        following: int = self._buffer.next_offset
        beside: tuple[str, ...] = ()
        if self._index is not None:
            self._index.finish(following, self._size)
            path = index_path(self._segment)
            beside = (path.relative_to(self._home).as_posix(),)
        first = self._segment.first_offset
        name = self._prefix + self._segment.path.name
        self._done.append(Written(name, first, following, following - first, self._size, beside))

    def finish(self) -> list[Written]:
        """The segments that were written, with their names, on the disk."""
        self._end()
        self._disk.sync_directory(self._folder)
        return self._done

    def discard(self) -> None:
        """Close the open file."""
        for close in (self._file.close, *(() if self._index is None else (self._index.close,))):
            with contextlib.suppress(LogwrightError):
                close()


class MessageRestore(Restore):
    """Segments, with their consumers."""

    def part_of(self, file: str) -> str:
        return part_of(file)

    def writer(self, directory: Path, file: str, *, disk: Disk, listed: Sequence[str] = ()) -> FileWriter:
        return FileWriter(directory, file, disk=disk)

    def is_single_file(self, file: str) -> bool:
        """Whether the journal is one segment file by itself."""
        _parsed(file)
        return "/" not in file

    def missing(self, written: Sequence[Written], extents: Mapping[str, int]) -> list[Missing]:
        """The offsets that no segment has: between segments, and after the last one up to the original end."""
        following: dict[str, int] = {}
        found = []
        for one in sorted(written, key=lambda one: one.first):
            part = part_of(one.file)
            if following.setdefault(part, one.first) < one.first:
                found.append(Missing(part, following[part], one.first))
            following[part] = max(following[part], one.next)
        for part, end in extents.items():
            if part in following and following[part] < end:
                found.append(Missing(part, following[part], end))
        return sorted(found, key=lambda gap: (gap.part, gap.first))

    def write_consumers(
        self, directory: Path, part: str, offsets: Mapping[str, int | None], *, disk: Disk = REAL_DISK
    ) -> None:
        """Write the offset files of a shard's consumers; an empty one for a consumer that has not committed yet."""
        if part and parse_shard_name(part) is None:
            raise WrongUse(f"{part!r} cannot be the name of a shard")
        home = directory / part
        for name, offset in offsets.items():
            if not name or {"/", "\0"} & set(name) or len((name + OFFSET_SUFFIX).encode()) > _MAX_NAME_BYTES:
                raise WrongUse(f"{name!r} cannot be the name of a consumer")
            if offset is not None:
                check_offset(offset)
            path = offset_path(home, name)
            make_directories(disk, path.parent)
            file = disk.open(path, "create")
            try:
                write_all(file, 0, b"" if offset is None else OFFSET.pack(offset))
                file.sync()
            finally:
                file.close()
        if offsets:
            disk.sync_directory(offset_path(home, "").parent)


RESTORE: Final = MessageRestore()
