"""Batches that many tasks write and one place publishes: all of a batch or none of it, once. For every format.

A task encodes its records into files of its own, one for each journal, and syncs them. Whoever has gathered what the
tasks staged publishes it: under the locks of all journals concerned it writes a manifest, and puts the records in
place, each format in its own way (`Target`).

    ROOT/.logwright/staging/RUN.ORDER-TOKEN.NUMBER.staged   what a task staged for one journal
    ROOT/.logwright/staging/RUN.manifest                    a batch that is committed and not yet all in place
    ROOT/.logwright/staging/sink.lck                        one publisher at a time
    ROOT/.logwright/published/QUERY.json                    the last batch of a streaming query that is in place

The manifest's name is the commit. What a crash leaves:
- before it: staged files that nobody knows of; they are removed by the next one who publishes, and nothing is visible;
- behind it: the batch is put in place by the next one who publishes there, by the next writer of one of its journals
  (`lock_journal`), or by `recover_staging`. It may be tried as often as need be;
- once all is synced, the batch of a query is noted as published, then the manifest goes, then the staged files.

No writer of ours comes in between: a publisher holds the locks of all journals concerned from before the commit on, and
a writer that finds a manifest for its journal has the batch completed before it takes anything.

There must be enough space before anything is committed; when others take it away in that moment, the error says that
the batch is committed, and the next one who writes there completes it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from ...errors import DamagedJournal, Locked, LogwrightError, NotFound, StorageFailed, WrongUse
from ..bytes.text import why_invalid
from ..io.disk import REAL_DISK, Buffer, Disk, File, make_directories, replace_file, write_all
from ..io.lock import Lock
from ..io.quarantine import DIRECTORY
from .manifest import (
    Batch,
    FilesOf,
    Manifest,
    Part,
    Staged,
    StagedFile,
    Target,
    list_manifests,
    manifest_path,
    run_of,
    staged_name,
    staging_directory,
    write_manifest,
)

logger = logging.getLogger("logwright.staging")

PUBLISHED_DIRECTORY: Final = "published"
_RUN: Final = re.compile(r"[a-zA-Z0-9_-]+")
_SPARE_BYTES: Final = 16 << 10
"""What names, locks and the manifest take, besides the records: so much, and so much again for each journal."""


# --- what is handed from one to the other ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Published:
    """How many records were put in place, and where in each journal; none if they were there `already`."""

    records: int
    starts: dict[str, int]
    already: bool = False


@dataclass(frozen=True, slots=True)
class Recovered:
    """The runs whose batches were put in place, and how many staged files were removed."""

    rolled_forward: list[str]
    removed_files: int


# --- staging, in a task ---------------------------------------------------------------------------------------------


class StageFile(Protocol):
    """The records for one journal, as a format encodes them."""

    def finish(self) -> tuple[int, int]:
        """Sync and close it; how many records and bytes there are."""

    def close(self) -> None: ...


class PackedFile:
    """A staged file that encoded records are written to, one piece behind the other."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._size = 0
        self._records = 0

    def write(self, data: Buffer, records: int) -> None:
        """Write the bytes of so many records."""
        write_all(self._file, self._size, data)
        self._size += len(data)
        self._records += records

    def finish(self) -> tuple[int, int]:
        """How many records and bytes there are, now that they are on the disk."""
        self._file.sync()
        self._file.close()
        return self._records, self._size

    def close(self) -> None:
        """Leave the file as it is."""
        self._file.close()


SomeFile = TypeVar("SomeFile", bound=StageFile)


class StageFiles(Generic[SomeFile]):
    """What one task writes. `finish` makes it durable and tells what it was; `discard` removes it.

    A format's `Stage` is this with `append_batch`, which asks for the file of a journal by `_file_of`. `encoder` makes
    what encodes records into a new file.
    """

    def __init__(self, root: Path | str, run: str, order: int, encoder: Callable[[File], SomeFile], disk: Disk) -> None:
        if not _RUN.fullmatch(run):
            raise WrongUse(f"{run!r} cannot be the name of a run: letters, digits, _ and - only")
        self._disk = disk
        self._run = run
        self._order = order
        self._directory = staging_directory(Path(root))
        self._token = secrets.token_hex(8)
        self._encoder = encoder
        self._open: dict[str, tuple[Path, SomeFile]] = {}

    def _file_of(self, part: str) -> SomeFile:
        """The file for one journal of the root, created if need be."""
        found = self._open.get(part)
        if found is None:
            if not self._open:
                make_own_directories(self._disk, self._directory)
            path = self._directory / staged_name(self._run, self._order, self._token, len(self._open))
            found = self._open[part] = (path, self._encoder(self._disk.open(path, "create")))
        return found[1]

    def finish(self) -> Staged:
        """Sync and close everything."""
        files = tuple(StagedFile(path.name, part, *file.finish()) for part, (path, file) in sorted(self._open.items()))
        if files:
            self._disk.sync_directory(self._directory)
        return Staged(self._run, self._order, files)

    def discard(self) -> None:
        """Remove what was staged, as far as the system lets us: what stays is removed by whoever publishes next."""
        for path, file in self._open.values():
            with contextlib.suppress(LogwrightError):
                file.close()
            with contextlib.suppress(LogwrightError):
                self._disk.remove(path)


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
    files_of = _files_of(staged)
    if not files_of:
        return Published(0, {})
    for part in files_of:
        target.check_name(part)
    with _alone(disk, root, patience_seconds):
        _roll_all_forward(disk, root)
        if _is_published(disk, root, batch):
            _forget(disk, root, run)
            return Published(0, {}, already=True)
        _check_staged(disk, root, files_of)
        target.check_root(disk, root)
        _check_space(disk, root, target.needed_bytes(files_of) + _SPARE_BYTES * (1 + len(files_of)))
        return _commit(disk, root, run, files_of, target, batch)


def _commit(disk: Disk, root: Path, run: str, files_of: FilesOf, target: Target, batch: Batch | None) -> Published:
    with target.open_parts(disk, root, run, files_of) as (parts, put):
        manifest = Manifest(run, batch, target, parts)
        write_manifest(disk, root, manifest)
        with _telling_that_it_is_committed(root, manifest):
            for part in parts:
                put(part)
            _finish(disk, root, manifest)
    return Published(sum(part.records for part in parts), {part.name: part.start for part in parts})


def _files_of(staged: Iterable[Staged]) -> dict[str, list[StagedFile]]:
    """The files of each journal, in the order of their tasks."""
    found: dict[str, list[StagedFile]] = {}
    for one in sorted(staged, key=lambda one: one.order):
        for file in one.files:
            found.setdefault(file.part, []).append(file)
    return dict(sorted(found.items()))


def _check_staged(disk: Disk, root: Path, files_of: FilesOf) -> None:
    for files in files_of.values():
        for file in files:
            path = staging_directory(root) / file.name
            if not disk.exists(path):
                raise NotFound(f"{path}: what a task staged is gone; nothing was published")
            if (size := disk.file_size(path)) != file.bytes:
                raise DamagedJournal(path, min(size, file.bytes), f"{size} bytes are here, {file.bytes} were staged")


def _check_space(disk: Disk, root: Path, needed: int) -> None:
    free = disk.free_bytes(root)
    if free < needed:
        reason = f"the batch needs {needed} bytes and {free} are free; nothing was published"
        raise StorageFailed("publish into", root, OSError(errno.ENOSPC, reason))


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


def _remove_left(disk: Disk, root: Path, is_dead: Callable[[str], bool]) -> int:
    """Remove the staged files of dead runs. What a manifest speaks of belongs to the living."""
    directory = staging_directory(root)
    disk.sync_directory(directory)  # a manifest that is gone must not come back without its files
    committed = {manifest.run for manifest in list_manifests(disk, root)}
    removed = 0
    for name in disk.list_directory(directory):
        run = run_of(name)
        if run is not None and run not in committed and is_dead(run):
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
                    manifest.target.complete_part(disk, root, part)
            _finish(disk, root, manifest)
        done.append(manifest.run)
    return done


def _finish(disk: Disk, root: Path, manifest: Manifest) -> None:
    """All is in place and synced: note it, and only then forget where it came from."""
    if manifest.batch is not None:
        _note_published(disk, root, manifest.batch)
    disk.remove(manifest_path(root, manifest.run))
    _forget(disk, root, manifest.run)


def _forget(disk: Disk, root: Path, run: str) -> None:
    """Remove what the tasks of a run have staged, counted or not. What cannot be removed now is, as a dead run's."""
    directory = staging_directory(root)
    disk.sync_directory(directory)  # a manifest that is gone must not come back without its files
    with contextlib.suppress(LogwrightError):
        for name in disk.list_directory(directory):
            if run_of(name) == run:
                disk.remove(directory / name)


# --- which batches are published ------------------------------------------------------------------------------------


def is_published(root: Path | str, batch: Batch | None, *, disk: Disk = REAL_DISK) -> bool:
    """Whether publishing a batch would find it in place already."""
    return _is_published(disk, Path(root), batch)


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
        reason = f"this note of the last batch is damaged: {why_invalid(error)}"
        hint = "restore it from a copy: it says which batches are not to be published again"
        raise DamagedJournal(path, 0, f"{reason}; {hint}") from error


def _note_published(disk: Disk, root: Path, batch: Batch) -> None:
    path = _published_path(root, batch.query)
    make_own_directories(disk, path.parent)
    if _is_published(disk, root, batch):
        disk.sync_directory(path.parent)
        return
    data = json.dumps({"query": batch.query, "batch": batch.number}).encode()
    replace_file(disk, path, data, path.with_suffix(".tmp"))


# --- one at a time --------------------------------------------------------------------------------------------------


def make_own_directories(disk: Disk, path: Path) -> None:
    """Create a directory of ours. Neither it nor `.logwright` may be a link."""
    if disk.exists(path.parent):
        disk.make_directory(path.parent)  # creates nothing, and refuses a link
    make_directories(disk, path)


def lock_journal(disk: Disk, path: Path, find_waiting: Callable[[], Path | None]) -> Lock:
    """The lock of a journal, for a writer. A batch that a killed publisher has left half in place is completed first.

    `find_waiting` gives the root of a batch that is committed for the journal; None without one.
    """
    while True:
        lock = Lock.acquire(disk, path)
        try:
            root = find_waiting()
        except BaseException:
            lock.release()
            raise
        if root is None:
            return lock
        lock.release()
        for run in complete(root, disk=disk):
            logger.warning("%s: put the rest of the committed batch %s in place", root, run)


def lock_to_publish(disk: Disk, path: Path, journal: Path) -> Lock:
    """The lock of a journal, for whoever publishes into it. A live writer is never robbed of it."""
    try:
        return Lock.acquire(disk, path)
    except Locked as error:
        raise Locked(f"{journal} is held by a live writer: close it, then write again ({error})") from error


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


def bytes_to_put_together(files_of: FilesOf) -> int:
    """How much is copied where one staged file is only renamed, and several are put together."""
    return sum(file.bytes for files in files_of.values() if len(files) > 1 for file in files)


def put_together(
    disk: Disk,
    root: Path,
    run: str,
    files_of: FilesOf,
    starts: Mapping[str, int],
    as_one: Callable[[Sequence[StagedFile], Path], int],
) -> tuple[Part, ...]:
    """The parts of a batch with one file each. `as_one` makes a file of several, durable but for its name; its size."""
    directory, token = staging_directory(root), secrets.token_hex(8)

    def only(number: int, part: str, files: Sequence[StagedFile]) -> StagedFile:
        if len(files) == 1:
            return files[0]
        name = staged_name(run, 0, token, number)
        size = as_one(files, directory / name)
        return StagedFile(name, part, sum(file.records for file in files), size)

    found = enumerate(files_of.items())
    parts = tuple(Part(part, starts[part], (only(number, part, files),)) for number, (part, files) in found)
    disk.sync_directory(directory)  # what was put together must be there when it is committed
    return parts


def give_name(disk: Disk, root: Path, staged: StagedFile, path: Path) -> None:
    """Make a staged file a file of its journal, in the root itself."""
    disk.rename(staging_directory(root) / staged.name, path)
    disk.sync_directory(root)


def has_name(disk: Disk, root: Path, staged: StagedFile, paths: Iterable[Path]) -> bool:
    """Whether a staged file has been given its name: nothing else takes away what is committed.

    Where a power cut has left both names, they are the same file: `paths` is where that may be by now.
    """
    identity = disk.identity(staging_directory(root) / staged.name)
    return identity is None or any(disk.identity(path) == identity for path in paths)
