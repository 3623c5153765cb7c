"""Batches that many tasks stage and one publisher publishes: `core/publish/staging.py` for the shards of a root.

A task encodes its messages into files of its own, one for each shard, numbered from 0. The manifest has the offset
at which each shard continues, and `Writer` appends the messages, so that the journals, their segments and their indexes
are the same as with a writer.

After a crash the journal, from the offset in the manifest on, is compared with the staged messages, and the missing
ones are appended. A program that ignores manifests may append in between without harm, unless it appends exactly the
missing message.

Until it is complete, a batch takes its space twice.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ...core.bytes.outcome import Damage
from ...core.io.disk import REAL_DISK, Disk, File, make_directories
from ...core.io.lock import Lock
from ...core.io.quarantine import cut_tail
from ...core.publish.manifest import FilesOf, OpenedParts, Part, Target, staging_directory
from ...core.publish.staging import PackedFile, StageFiles
from ...errors import DamagedJournal, WrongUse
from ..bytes import kernel
from ..bytes.codec import CLEAN, Columns
from ..bytes.layout import DEFAULT_SEGMENT_BYTES, SEGMENT_DIRECTORY
from ..files.reader import Reader
from ..files.segment import Chunk, Cursor, Segment, list_segments
from ..files.shard import find_shards, parse_shard_name, shard_name
from ..files.writer import BUFFER_BYTES, Writer, journal_to_write
from ..model.shard_writer import refuse_other_bits, split_batch, stable_indexes

if TYPE_CHECKING:
    import pyarrow as pa

_NO_LIMIT: Final = 2**62


# --- where they go --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShardsTarget(Target):
    """How the journals of a root are written: see `ShardedWriter`."""

    format: ClassVar[str] = "sej"
    options: ClassVar = {
        "prefix": ("prefix", "text"),
        "shardBit": ("bit", "number"),
        "segmentSize": ("segment_size", "bytes"),
        "checksums": ("checksums", "flag"),
    }

    prefix: str = ""
    bit: int = 0
    segment_size: int = DEFAULT_SEGMENT_BYTES
    checksums: bool = False

    def __post_init__(self) -> None:
        shard_name(self.prefix, self.bit, 0)  # says what is wrong with them
        if self.segment_size < 1:
            raise WrongUse(f"a segment size of {self.segment_size} bytes makes no sense")

    def shard(self, index: int) -> str:
        """The name of a shard, empty for the root itself."""
        return shard_name(self.prefix, self.bit, index)

    def check_name(self, part: str) -> None:
        """Raise `WrongUse` for a name that is not a shard of this target."""
        parsed = parse_shard_name(part) if part else ("", 0, 0)
        if parsed is None or parsed[:2] != (self.prefix, self.bit) or self.shard(parsed[2]) != part:
            raise WrongUse(f"{part!r} is no shard of bit {self.bit} and the prefix {self.prefix!r}")

    def check_root(self, disk: Disk, root: Path) -> None:
        """Raise `WrongUse` where there are shards of another bit."""
        refuse_other_bits(disk, root, self.prefix, self.bit)

    @contextlib.contextmanager
    def open_parts(self, disk: Disk, root: Path, run: str, files_of: FilesOf) -> Iterator[OpenedParts]:
        """The shards, locked and, if they exist, opened. New shards are created after the commit."""
        with contextlib.ExitStack() as stack:
            locks = {name: stack.enter_context(_lock(disk, root / name)) for name in files_of}
            writers = {
                name: stack.enter_context(_PartWriter(disk, root / name, self, locks[name]))
                for name in files_of
                if disk.is_directory(root / name / SEGMENT_DIRECTORY)
            }

            def put(part: Part) -> None:
                opened = writers.get(part.name)
                with opened or _PartWriter(disk, root / part.name, self, locks[part.name]) as writer:
                    _append(disk, root, writer, part, 0)

            starts = {name: writers[name].next_offset if name in writers else 0 for name in files_of}
            yield tuple(Part(name, starts[name], tuple(files)) for name, files in files_of.items()), put

    def complete_part(self, disk: Disk, root: Path, part: Part) -> None:
        """Append the missing messages to a shard."""
        home = root / part.name
        with _lock(disk, home) as lock:
            there = _settle(disk, root, home, part)
            with _PartWriter(disk, home, self, lock) as writer:  # also syncs the existing messages
                if writer.next_offset < part.start + there:
                    raise DamagedJournal(home, 0, f"messages up to {part.start + there - 1} were here a moment ago")
                _append(disk, root, writer, part, there)

    def refuse_live_writers(self, root: Path, *, disk: Disk) -> None:
        """Raise early if publishing to the existing journals would fail now."""
        self.check_root(disk, root)
        if disk.is_directory(root):
            for shard in find_shards(disk, root, self.prefix):
                journal_to_write(disk, shard.path).lock_to_publish().release()

    def check_writable(self, schema: pa.Schema) -> None:
        from .spark_columns import check_writable

        check_writable(schema)

    def writable(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        from .spark_columns import writable

        return writable(batch)

    def stage(self, root: Path, run: str, order: int, *, disk: Disk = REAL_DISK) -> Stage:
        return Stage(root, run, order, self, disk=disk)


# --- staging, in a task ---------------------------------------------------------------------------------------------


class _StageFile(PackedFile):
    """The messages for one shard, encoded as a segment that begins with 0."""

    def __init__(self, file: File) -> None:
        super().__init__(file)
        self._buffer = kernel.AppendBuffer(0, 0, _NO_LIMIT, BUFFER_BYTES)

    def append(self, parts: list[Columns]) -> None:
        now = time.time_ns()
        for part in parts:
            row = 0
            while row < part.count:
                row = self._buffer.extend(part, row, now, BUFFER_BYTES)
                if self._buffer.buffered_bytes >= BUFFER_BYTES:
                    self._write()

    def _write(self) -> None:
        data, used, *_ = self._buffer.take()
        with memoryview(data) as view:
            self.write(view[:used], self._buffer.next_offset - self._records)

    def finish(self) -> tuple[int, int]:
        """How many messages and bytes there are, now that they are on the disk."""
        self._write()
        return super().finish()


class Stage(StageFiles[_StageFile]):
    """The files that one task stages: see `core/publish/staging.py`."""

    def __init__(self, root: Path | str, run: str, order: int, target: ShardsTarget, *, disk: Disk = REAL_DISK) -> None:
        super().__init__(root, run, order, _StageFile, disk)
        self._target = target

    def append_batch(self, batch: Any) -> None:
        """Take the rows of an Arrow record batch, each for its shard; `Writer.append_batch` says which columns."""
        bit = self._target.bit
        for index, parts in split_batch(batch, lambda parts: stable_indexes(parts, bit)).items():
            self._file_of(self._target.shard(index)).append(parts)


# --- what goes into a shard -----------------------------------------------------------------------------------------


class _PartWriter(Writer):
    """The writer of a publisher, which holds the lock already and handles manifests itself."""

    def __init__(self, disk: Disk, home: Path, target: ShardsTarget, lock: Lock) -> None:
        self._held_lock = lock
        super().__init__(home, segment_size=target.segment_size, checksums=target.checksums, disk=disk)


def _lock(disk: Disk, home: Path) -> Lock:
    """The lock of a journal, which need not exist yet."""
    make_directories(disk, home)
    return journal_to_write(disk, home).lock_to_publish()


def _append(disk: Disk, root: Path, writer: Writer, part: Part, skip: int) -> None:
    """Append what was staged for a shard, without the first `skip` messages."""
    with contextlib.closing(_chunks(disk, root, part, skip)) as chunks:
        for chunk in chunks:
            writer.append_columns([kernel.columns(chunk.data, chunk.start, chunk.stop, chunk.count)])


def _chunks(disk: Disk, root: Path, part: Part, skip: int = 0) -> Generator[Chunk, None, None]:
    """The messages staged for a shard, without the first `skip`."""
    for staged in part.files:
        if skip >= staged.records:
            skip -= staged.records
            continue
        path = staging_directory(root) / staged.name
        file = disk.open(path, "read")
        try:
            cursor = Cursor(file, Segment(0, staged.name, path), 0, 0)
            if cursor.skip_to(skip):
                while (chunk := cursor.read()) is not None:
                    yield chunk
            if cursor.ending != CLEAN or cursor.expected != staged.records:
                what = cursor.reason or f"{cursor.expected} messages are here, {staged.records} were staged"
                raise DamagedJournal(path, cursor.position, what)
        finally:
            file.close()
        skip = 0


# --- after a crash --------------------------------------------------------------------------------------------------


def _settle(disk: Disk, root: Path, home: Path, part: Part) -> int:
    """How many messages of a part are in their shard, which is locked.

    If a power cut left a gap among them, the rest from the gap on is cut off and kept: all of it was staged, and no
    other program can have written after a gap.
    """
    segments = list_segments(disk, home) if disk.is_directory(home / SEGMENT_DIRECTORY) else []
    if not segments:
        return 0
    if segments[0].first_offset > part.start:
        reason = f"the journal begins with {segments[0].first_offset} now, and a batch was to begin at {part.start}"
        raise DamagedJournal(segments[0].path, 0, f"{reason}: it is unknown how much of it was in place")
    there, damage = _compare(disk, root, home, part)
    if damage is None:
        return there
    if damage.file != segments[-1].name:
        raise DamagedJournal(home / damage.file, damage.start, damage.reason)
    file = disk.open(segments[-1].path, "update")
    try:
        cut_tail(disk, home, file, damage.start)
    finally:
        file.close()
    return there


def _compare(disk: Disk, root: Path, home: Path, part: Part) -> tuple[int, Damage | None]:
    """How many messages of the journal are those of the part, and the damage right after them, if any."""
    end = part.start + part.records
    reading = Reader(home, disk=disk).chunks(part.start, end, mode="permissive")
    staged = _chunks(disk, root, part)
    there = 0
    with contextlib.closing(reading), contextlib.closing(staged):  # type: ignore[type-var]
        found = _one_by_one(reading)
        for ours in _one_by_one(staged):
            item = next(found, None)
            if isinstance(item, Damage):
                return there, item
            if item is None or _content(item) != _content(ours):
                return there, None
            there += 1
    return there, None


def _one_by_one(chunks: Iterable[Chunk | Damage]) -> Iterator[Any]:
    for item in chunks:
        if isinstance(item, Damage):
            yield item
        else:
            yield from kernel.messages(item.data, item.start, item.stop, item.count)


def _content(message: Any) -> tuple[Any, ...]:
    return message.timestamp, message.type, message.key, message.value
