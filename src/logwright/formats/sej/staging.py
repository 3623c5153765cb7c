"""Batches that many tasks write and one place publishes: all of a batch or none of it, once.

A task encodes its messages into files of its own, one for each shard, numbered from 0, and syncs them. Whoever has
gathered what the tasks staged publishes it: under the locks of all shards concerned it writes a manifest that says at
which offset each shard goes on, and appends the messages through `Writer`, so that the bytes in the journals, their
segments and their indexes are what a writer makes of these messages.

    ROOT/.logwright/staging/RUN.ORDER-TOKEN.INDEX.staged    what a task staged for one shard
    ROOT/.logwright/staging/RUN.manifest                    a batch that is committed and not yet all in place
    ROOT/.logwright/staging/sink.lck                        one publisher at a time
    ROOT/.logwright/published/QUERY.json                    the last batch of a streaming query that is in place

The manifest's name is the commit. What a crash leaves:
- before it: staged files that nobody knows of; they are removed by the next one who publishes, and nothing is visible;
- behind it: the batch is put in place by the next one who publishes there, by the next `Writer` of one of its journals,
  or by `recover_staging`. How much of it is there already is found by comparing the journal, from the offset on that
  the manifest names, with what was staged; the rest is appended. So it may be tried as often as need be;
- once all is synced, the batch of a query is noted as published, then the manifest goes, then the staged files.

No writer of ours comes in between: a publisher holds the locks of all journals concerned from before the commit on, and
a `Writer` that finds a manifest for its journal has the batch completed before it takes anything. What a program that
knows nothing of this adds in that state does no harm, unless it is, by chance, the very message that is missing.

A batch needs its space twice for a while. There must be enough of it before anything is committed; when others take it
away in that moment, the error says that the batch is committed, and the next one who writes there completes it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...core.disk import REAL_DISK, Disk, File, make_directories, replace_file, write_all
from ...core.errors import DamagedJournal, Locked, LogwrightError, NotFound, StorageFailed, WrongUse
from ...core.keep import DIRECTORY, cut_tail
from ...core.lock import Lock
from ...core.outcome import Damage
from . import kernel
from .codec import CLEAN, Columns
from .layout import LOCK_NAME, SEGMENT_DIRECTORY
from .manifest import (
    STAGED_SUFFIX,
    Batch,
    Manifest,
    Part,
    StagedFile,
    Target,
    list_manifests,
    manifest_path,
    staging_directory,
    write_manifest,
)
from .reader import Reader
from .segment import Chunk, Cursor, Segment, list_segments
from .shard import find_shards, shard_name
from .shard_writer import refuse_other_bits, split_batch, stable_indexes
from .writer import BUFFER_BYTES, Writer

__all__ = [
    "OPTIONS",
    "Batch",
    "Published",
    "Recovered",
    "Stage",
    "Staged",
    "StagedFile",
    "Target",
    "complete",
    "discard",
    "publish",
    "recover_staging",
    "refuse_live_writers",
]

PUBLISHED_DIRECTORY: Final = "published"
_NO_LIMIT: Final = 2**62
_RUN: Final = re.compile(r"[a-zA-Z0-9_-]+")
_LEFT_NAME: Final = re.compile(r"([a-zA-Z0-9_-]+)\.(?:manifest\.tmp|\d+-[0-9a-f]+\.[0-9a-f]{3}\.staged)")
_SPARE_BYTES: Final = 16 << 10
"""What names, locks and the manifest take, besides the messages: so much, and so much again for each shard."""

OPTIONS: Final = {"prefix": ("prefix", "text"), "shardBit": ("bit", "number"), "segmentSize": ("segment_size", "bytes")}
OPTIONS["checksums"] = ("checksums", "flag")
"""The options of a sink, each with the field of `Target` that it sets, and what kind of thing it is."""


# --- what is handed from one to the other ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Staged:
    """What a task has staged. The parts of a batch are published by their `order`."""

    run: str
    order: int
    files: tuple[StagedFile, ...]


@dataclass(frozen=True, slots=True)
class Published:
    """How many messages were put in place, and the first offset in each shard; none if they were there `already`."""

    messages: int
    first_offsets: dict[str, int]
    already: bool = False


@dataclass(frozen=True, slots=True)
class Recovered:
    """The runs whose batches were put in place, and how many staged files were removed."""

    rolled_forward: list[str]
    removed_files: int


# --- staging, in a task ---------------------------------------------------------------------------------------------


class Stage:
    """What one task writes. `finish` makes it durable and tells what it was; `discard` removes it."""

    def __init__(self, root: Path | str, run: str, order: int, target: Target, *, disk: Disk = REAL_DISK) -> None:
        if not _RUN.fullmatch(run):
            raise WrongUse(f"{run!r} cannot be the name of a run: letters, digits, _ and - only")
        self._disk = disk
        self._target = target
        self._run = run
        self._order = order
        self._directory = staging_directory(Path(root))
        self._token = secrets.token_hex(8)
        self._open: dict[int, _StageFile] = {}

    def append_batch(self, batch: Any) -> None:
        """Take the rows of an Arrow record batch, each for its shard; `Writer.append_batch` says which columns."""
        bit = self._target.bit
        for index, parts in split_batch(batch, lambda parts: stable_indexes(parts, bit)).items():
            self._file_of(index).append(parts)

    def _file_of(self, index: int) -> _StageFile:
        file = self._open.get(index)
        if file is None:
            if not self._open:
                _make_directories(self._disk, self._directory)
            name = f"{self._run}.{self._order:06d}-{self._token}.{index:03x}{STAGED_SUFFIX}"
            file = self._open[index] = _StageFile(self._disk.open(self._directory / name, "create"))
        return file

    def finish(self) -> Staged:
        """Sync and close everything."""
        files = tuple(StagedFile(file.path.name, index, *file.finish()) for index, file in sorted(self._open.items()))
        if files:
            self._disk.sync_directory(self._directory)
        return Staged(self._run, self._order, files)

    def discard(self) -> None:
        """Remove what was staged, as far as the system lets us: what stays is removed by whoever publishes next."""
        for file in self._open.values():
            with contextlib.suppress(LogwrightError):
                file.close()
            with contextlib.suppress(LogwrightError):
                self._disk.remove(file.path)


class _StageFile:
    """The messages for one shard, encoded as a segment that begins with 0."""

    def __init__(self, file: File) -> None:
        self.path = file.path
        self._file = file
        self._size = 0
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
            write_all(self._file, self._size, view[:used])
        self._size += used

    def finish(self) -> tuple[int, int]:
        """How many messages and bytes there are, now that they are on the disk."""
        self._write()
        self._file.sync()
        self._file.close()
        return self._buffer.next_offset, self._size

    def close(self) -> None:
        self._file.close()


# --- publishing -----------------------------------------------------------------------------------------------------


def publish(
    root: Path | str,
    run: str,
    staged: Iterable[Staged],
    target: Target,
    batch: Batch | None = None,
    *,
    disk: Disk = REAL_DISK,
    patience_seconds: float = 0,
) -> Published:
    """Put what tasks have staged into the journals, all of it or nothing. A batch that is there already is not again.

    Whatever fails before the commit leaves nothing visible, and the staged files for `discard`. `Locked` at once when a
    live writer holds one of the journals; another publisher is waited for, `patience_seconds` at most.
    """
    root = Path(root)
    parts = _parts_of(staged)
    if not parts:
        return Published(0, {})
    with _alone(disk, root, patience_seconds):
        _roll_all_forward(disk, root)
        if _is_published(disk, root, batch):
            _forget(disk, root, run)
            return Published(0, {}, already=True)
        _check_staged(disk, root, parts)
        refuse_other_bits(disk, root, target.prefix, target.bit)
        _check_space(disk, root, parts)
        done = _commit(disk, root, run, parts, target, batch)
        _forget(disk, root, run)
        return done


def _forget(disk: Disk, root: Path, run: str) -> None:
    """Remove what attempts of a run have staged that did not count. What cannot be removed now is, as a dead run's."""
    with contextlib.suppress(LogwrightError):
        _remove_left(disk, root, run.__eq__)


def _commit(
    disk: Disk, root: Path, run: str, files_of: dict[int, list[StagedFile]], target: Target, batch: Batch | None
) -> Published:
    with contextlib.ExitStack() as stack:
        writers: dict[int, Writer] = {}
        locks: dict[int, Lock] = {}
        for index in files_of:
            home = root / shard_name(target.prefix, target.bit, index)
            locks[index] = stack.enter_context(_lock(disk, home))
            if disk.is_directory(home / SEGMENT_DIRECTORY):  # a new journal comes into being after the commit
                writers[index] = stack.enter_context(_PartWriter(disk, home, target, locks[index]))
        starts = {index: writers[index].next_offset if index in writers else 0 for index in files_of}
        parts = tuple(Part(index, starts[index], tuple(files)) for index, files in files_of.items())
        manifest = Manifest(run, batch, target, parts)
        write_manifest(disk, root, manifest)
        with _telling_that_it_is_committed(root, manifest):
            for part in parts:
                home = root / shard_name(target.prefix, target.bit, part.index)
                with writers.get(part.index) or _PartWriter(disk, home, target, locks[part.index]) as writer:
                    _append(disk, root, writer, part, 0)
            _finish(disk, root, manifest)
    first_offsets = {shard_name(target.prefix, target.bit, part.index): part.start for part in parts}
    return Published(sum(part.messages for part in parts), first_offsets)


def _parts_of(staged: Iterable[Staged]) -> dict[int, list[StagedFile]]:
    """The files of each shard, in the order of their tasks."""
    found: dict[int, list[StagedFile]] = {}
    for one in sorted(staged, key=lambda one: one.order):
        for file in one.files:
            found.setdefault(file.index, []).append(file)
    return dict(sorted(found.items()))


def _check_staged(disk: Disk, root: Path, parts: dict[int, list[StagedFile]]) -> None:
    for files in parts.values():
        for file in files:
            path = staging_directory(root) / file.name
            if not disk.exists(path):
                raise NotFound(f"{path}: what a task staged is gone; nothing was published")
            if (size := disk.file_size(path)) != file.bytes:
                raise DamagedJournal(path, min(size, file.bytes), f"{size} bytes are here, {file.bytes} were staged")


def _check_space(disk: Disk, root: Path, parts: dict[int, list[StagedFile]]) -> None:
    needed = sum(file.bytes for files in parts.values() for file in files) + _SPARE_BYTES * (1 + len(parts))
    free = disk.free_bytes(root)
    if free < needed:
        reason = f"the batch needs {needed} bytes and {free} are free; nothing was published"
        raise StorageFailed("publish into", root, OSError(errno.ENOSPC, reason))


class _PartWriter(Writer):
    """A writer of whoever publishes, who has the lock already, and knows of all manifests that there are."""

    def __init__(self, disk: Disk, home: Path, target: Target, lock: Lock) -> None:
        self._held = lock
        super().__init__(home, segment_size=target.segment_size, checksums=target.checksums, disk=disk)

    def _take_lock(self) -> Lock:
        return self._held


def _lock(disk: Disk, home: Path) -> Lock:
    """The lock of a journal, which need not be there yet."""
    make_directories(disk, home)
    try:
        return Lock.acquire(disk, home / LOCK_NAME)
    except Locked as error:
        raise _held_by_another(home, error) from error


def _held_by_another(home: Path, error: Locked) -> Locked:
    return Locked(f"{home} is held by a live writer: close it, then write again ({error})")


def _append(disk: Disk, root: Path, writer: Writer, part: Part, skip: int) -> None:
    """Append what was staged for a shard, without the first `skip` messages."""
    with contextlib.closing(_chunks(disk, root, part, skip)) as chunks:
        for chunk in chunks:
            writer.append_columns([kernel.columns(chunk.data, chunk.start, chunk.stop, chunk.count)])


def _chunks(disk: Disk, root: Path, part: Part, skip: int = 0) -> Generator[Chunk, None, None]:
    """The messages staged for a shard, without the first `skip`."""
    for staged in part.files:
        if skip >= staged.messages:
            skip -= staged.messages
            continue
        path = staging_directory(root) / staged.name
        file = disk.open(path, "read")
        try:
            cursor = Cursor(file, Segment(0, staged.name, path), 0, 0)
            if cursor.skip_to(skip):
                while (chunk := cursor.read()) is not None:
                    yield chunk
            if cursor.ending != CLEAN or cursor.expected != staged.messages:
                what = cursor.reason or f"{cursor.expected} messages are here, {staged.messages} were staged"
                raise DamagedJournal(path, cursor.position, what)
        finally:
            file.close()
        skip = 0


@contextlib.contextmanager
def _telling_that_it_is_committed(root: Path, manifest: Manifest) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(
            f"The batch is committed but not all of it is in place yet in {root}:"
            " whoever writes there next completes it, and so does recover_staging."
            f" To go on without it move {manifest_path(root, manifest.run)} away."
        )
        raise


# --- after a crash --------------------------------------------------------------------------------------------------


def recover_staging(
    root: Path | str,
    *,
    is_dead: Callable[[str], bool] = lambda run: True,
    disk: Disk = REAL_DISK,
    patience_seconds: float = 0,
) -> Recovered:
    """Put committed batches in place, and remove what dead runs have staged.

    Only the caller can know whether a run is still at work: without `is_dead` all are taken for dead. One that is not
    will find its files gone when it publishes, and publish nothing.
    """
    root = Path(root)
    if not disk.is_directory(staging_directory(root)):
        return Recovered([], 0)
    with _alone(disk, root, patience_seconds):
        rolled_forward = _roll_all_forward(disk, root)
        removed = _remove_left(disk, root, is_dead)
        return Recovered(rolled_forward, removed)


def complete(root: Path | str, *, disk: Disk = REAL_DISK) -> list[str]:
    """Put committed batches in place, and leave what is staged alone; the runs whose batches they were."""
    root = Path(root)
    with _alone(disk, root, 0):
        return _roll_all_forward(disk, root)


def discard(root: Path | str, runs: Iterable[str], *, disk: Disk = REAL_DISK, patience_seconds: float = 0) -> None:
    """Remove what these runs have staged, unless it is committed."""
    root = Path(root)
    if not disk.is_directory(staging_directory(root)):
        return
    unwanted = frozenset(runs)
    with _alone(disk, root, patience_seconds):
        _remove_left(disk, root, unwanted.__contains__)


def refuse_live_writers(root: Path | str, target: Target, *, disk: Disk = REAL_DISK) -> None:
    """Raise what publishing would raise for the journals there are now: better before the work than behind it."""
    root = Path(root)
    refuse_other_bits(disk, root, target.prefix, target.bit)
    if disk.is_directory(root):
        for shard in find_shards(disk, root, target.prefix):
            try:
                Lock.acquire(disk, shard.path / LOCK_NAME).release()
            except Locked as error:
                raise _held_by_another(shard.path, error) from error


def _remove_left(disk: Disk, root: Path, is_dead: Callable[[str], bool]) -> int:
    """Remove the staged files of dead runs. What a manifest speaks of belongs to the living."""
    directory = staging_directory(root)
    disk.sync_directory(directory)  # a manifest that was taken back must not come back without its files
    committed = {manifest.run for manifest in list_manifests(disk, root)}
    removed = 0
    for name in disk.list_directory(directory):
        match = _LEFT_NAME.fullmatch(name)
        if match is not None and match[1] not in committed and is_dead(match[1]):
            disk.remove(directory / name)
            removed += 1
    return removed


def _roll_all_forward(disk: Disk, root: Path) -> list[str]:
    done = []
    for manifest in list_manifests(disk, root):
        with _telling_that_it_is_committed(root, manifest):
            disk.sync_directory(staging_directory(root))  # whoever committed it may have been killed before that
            if not _is_published(disk, root, manifest.batch):
                for part in manifest.parts:
                    _roll_part_forward(disk, root, manifest.target, part)
            _finish(disk, root, manifest)
        done.append(manifest.run)
    return done


def _roll_part_forward(disk: Disk, root: Path, target: Target, part: Part) -> None:
    """Append to a shard what is not there yet."""
    home = root / shard_name(target.prefix, target.bit, part.index)
    with _lock(disk, home) as lock:
        there = _settle(disk, root, home, part)
        with _PartWriter(disk, home, target, lock) as writer:  # also syncs what is there: the killed one may not have
            if writer.next_offset < part.start + there:
                raise DamagedJournal(home, 0, f"messages up to {part.start + there - 1} were here a moment ago")
            _append(disk, root, writer, part, there)


def _settle(disk: Disk, root: Path, home: Path, part: Part) -> int:
    """How many messages of a part are in their shard, whose lock is ours.

    Where a power cut has left a hole among them, it and what is behind are cut off and kept: the whole of it was
    staged, and nobody else can have written behind a hole.
    """
    segments = list_segments(disk, home) if disk.is_directory(home / SEGMENT_DIRECTORY) else []
    if not segments:
        return 0
    if segments[0].first_offset > part.start:
        reason = f"the journal begins with {segments[0].first_offset} now, and a batch was to begin at {part.start}"
        raise DamagedJournal(segments[0].path, 0, f"{reason}: nobody can tell how much of it was in place")
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
    """How many messages of the journal are those of the part, and the damage right behind them, if that ends them."""
    end = part.start + part.messages
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


def _finish(disk: Disk, root: Path, manifest: Manifest) -> None:
    """All is in place and synced: note it, and only then forget where it came from."""
    if manifest.batch is not None:
        _note_published(disk, root, manifest.batch)
    disk.remove(manifest_path(root, manifest.run))
    disk.sync_directory(staging_directory(root))
    _remove(disk, root, (file for part in manifest.parts for file in part.files))


def _remove(disk: Disk, root: Path, files: Iterable[StagedFile]) -> None:
    """Remove staged files that are done with. What cannot be removed now is a dead run's, later."""
    for file in files:
        with contextlib.suppress(LogwrightError):
            disk.remove(staging_directory(root) / file.name)


# --- which batches are published ------------------------------------------------------------------------------------


def _published_path(root: Path, query: str) -> Path:
    name = query if _RUN.fullmatch(query) and len(query) <= 100 else hashlib.sha256(query.encode()).hexdigest()
    return root / DIRECTORY / PUBLISHED_DIRECTORY / f"{name}.json"


def _is_published(disk: Disk, root: Path, batch: Batch | None) -> bool:
    """Whether a batch is in place. A query publishes one after the other, so its last one stands for all before."""
    if batch is None:
        return False
    path = _published_path(root, batch.query)
    try:
        file = disk.open(path, "read")
    except NotFound:
        return False
    try:
        data = file.read_at(0, file.size())
    finally:
        file.close()
    try:
        return batch.number <= int(json.loads(data)["batch"])
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedJournal(path, 0, f"this does not say which batch was published: {error}") from error


def _note_published(disk: Disk, root: Path, batch: Batch) -> None:
    path = _published_path(root, batch.query)
    _make_directories(disk, path.parent)
    if _is_published(disk, root, batch):
        disk.sync_directory(path.parent)
        return
    data = json.dumps({"query": batch.query, "batch": batch.number}).encode()
    replace_file(disk, path, data, path.with_suffix(".tmp"))


# --- one at a time --------------------------------------------------------------------------------------------------


def _make_directories(disk: Disk, path: Path) -> None:
    """Create a directory of ours. Neither it nor `.logwright` may be a link."""
    if disk.exists(path.parent):
        disk.make_directory(path.parent)  # creates nothing, and refuses a link
    make_directories(disk, path)


@contextlib.contextmanager
def _alone(disk: Disk, root: Path, patience_seconds: float) -> Iterator[None]:
    """Hold the lock of publishers."""
    path = staging_directory(root) / "sink.lck"
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            lock = Lock.acquire(disk, path)
            break
        except Locked:
            if time.monotonic() >= deadline:
                raise Locked(f"{root}: another job is publishing here") from None
            time.sleep(0.05)
    with lock:
        yield
