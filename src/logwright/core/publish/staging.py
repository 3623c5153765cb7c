"""Batches that many tasks stage and one publisher publishes: all or nothing, and exactly once. For every format.

A task encodes its records into files of its own, one for each journal, and syncs them. The publisher collects the
staged files, locks all journals of the batch, commits it (`protocol.py`), and puts the records in place as the format
does it (`Target`).

    ROOT/.logwright/staging/RUN.ORDER-TOKEN.NUMBER.staged   what a task staged for one journal
    ROOT/.logwright/staging/RUN.manifest                    a batch that is committed and not yet all in place
    ROOT/.logwright/staging/sink.lck                        one publisher at a time
    ROOT/.logwright/published/QUERY.json                    the last batch of a streaming query that is in place

After a crash a committed batch is put in place by the next publisher, by the next writer of one of its journals
(`core/write/opening.py`), or by `recover_staging`. Once all is synced, the batch of a query is recorded as published;
then the manifest is removed.

A publisher holds the locks of all journals from before the commit to the end, and a writer that finds a manifest for
its journal completes the batch before it accepts records. So no records are written in between.

The free space is checked before the commit. If the disk is full all the same, the error says that the batch is
committed, and the next writer completes it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from ...errors import DamagedJournal, LogwrightError, NotFound, StorageFailed, WrongUse
from ..io.disk import REAL_DISK, Buffer, Disk, File, write_all
from ..io.lock import Lock
from ..io.quarantine import DIRECTORY, make_own_directories
from .manifest import (
    Batch,
    FilesOf,
    Manifest,
    Part,
    Staged,
    StagedFile,
    Target,
    commit_of,
    list_manifests,
    run_of,
    staged_name,
    staging_directory,
)
from .protocol import clear, is_moved, lock_alone, read_json, replace_json

PUBLISHED_DIRECTORY: Final = "published"
_RUN: Final = re.compile(r"[a-zA-Z0-9_-]+")
_SPARE_BYTES: Final = 16 << 10
"""Space for names, locks and the manifest: this much, and as much again for each journal."""


# --- results --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Published:
    """The number of records put in place, and where in each journal; none if they were in place `already`."""

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
        """Sync and close it; the number of records and of bytes."""

    def close(self) -> None: ...


class PackedFile:
    """A staged file of encoded records."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._size = 0
        self._records = 0

    def write(self, data: Buffer, records: int) -> None:
        """Append the bytes of some records."""
        write_all(self._file, self._size, data)
        self._size += len(data)
        self._records += records

    def finish(self) -> tuple[int, int]:
        self._file.sync()
        self._file.close()
        return self._records, self._size

    def close(self) -> None:
        self._file.close()


SomeFile = TypeVar("SomeFile", bound=StageFile)


class StageFiles(Generic[SomeFile]):
    """The files that one task stages. `finish` syncs and describes them; `discard` removes them.

    A format's `Stage` adds `append_batch`, which gets the file of a journal from `_file_of`. `encoder` wraps a new file
    in an object that encodes records.
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
        """The file for one journal of the root, created if missing."""
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
        """Remove the staged files. Those that cannot be removed now are removed by the next publisher."""
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
    """Put the staged files of tasks into the journals, all or none. A batch that was published before is skipped.

    A failure before the commit leaves nothing visible, and the staged files for `discard`. `Locked` without waiting if
    a writer holds one of the journals; waits at most `patience_seconds` for another publisher.
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
            commit_of(disk, root, run).discard()
            return Published(0, {}, already=True)
        _check_staged(disk, root, files_of)
        target.check_root(disk, root)
        _check_space(disk, root, target.needed_bytes(files_of) + _SPARE_BYTES * (1 + len(files_of)))
        return _commit(disk, root, run, files_of, target, batch)


def _commit(disk: Disk, root: Path, run: str, files_of: FilesOf, target: Target, batch: Batch | None) -> Published:
    with target.open_parts(disk, root, run, files_of) as (parts, put):

        def put_all() -> None:
            for part in parts:
                put(part)
            _note_published(disk, root, batch)

        manifest = asdict(Manifest(run, batch, target, parts))
        commit_of(disk, root, run).publish({"format": target.format, **manifest}, put_all)
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
                raise NotFound(f"{path}: this staged file is gone; nothing was published")
            if (size := disk.file_size(path)) != file.bytes:
                raise DamagedJournal(path, min(size, file.bytes), f"{size} bytes are here, {file.bytes} were staged")


def _check_space(disk: Disk, root: Path, needed: int) -> None:
    free = disk.free_bytes(root)
    if free < needed:
        reason = f"the batch needs {needed} bytes and {free} are free; nothing was published"
        raise StorageFailed("publish into", root, OSError(errno.ENOSPC, reason))


# --- after a crash --------------------------------------------------------------------------------------------------


def recover_staging(
    root: Path | str,
    *,
    is_dead: Callable[[str], bool] = lambda run: True,
    disk: Disk = REAL_DISK,
    patience_seconds: float = 0,
) -> Recovered:
    """Put committed batches in place, and remove the staged files of dead runs.

    Only the caller knows whether a run is still active: without `is_dead` all count as dead. A run that is still active
    finds its files gone when it publishes, and publishes nothing.
    """
    root = Path(root)
    if not disk.is_directory(staging_directory(root)):
        return Recovered([], 0)
    with _alone(disk, root, patience_seconds):
        rolled_forward = _roll_all_forward(disk, root)
        removed = _remove_left(disk, root, is_dead)
        return Recovered(rolled_forward, removed)


def complete(root: Path | str, *, disk: Disk = REAL_DISK) -> list[str]:
    """Put committed batches in place, and leave other staged files alone; the runs of these batches."""
    root = Path(root)
    with _alone(disk, root):
        return _roll_all_forward(disk, root)


def discard(root: Path | str, runs: Iterable[str], *, disk: Disk = REAL_DISK, patience_seconds: float = 0) -> None:
    """Remove the staged files of these runs, unless they are committed."""
    root = Path(root)
    if not disk.is_directory(staging_directory(root)):
        return
    unwanted = frozenset(runs)
    with _alone(disk, root, patience_seconds):
        _remove_left(disk, root, unwanted.__contains__)


def _remove_left(disk: Disk, root: Path, is_dead: Callable[[str], bool]) -> int:
    """Remove the staged files of dead runs. Runs with a manifest are not dead."""
    committed = {manifest.run for manifest in list_manifests(disk, root)}

    def is_left(name: str) -> bool:
        run = run_of(name)
        return run is not None and run not in committed and is_dead(run)

    return clear(disk, staging_directory(root), is_left)


def _roll_all_forward(disk: Disk, root: Path) -> list[str]:
    manifests = list_manifests(disk, root)
    for manifest in manifests:
        disk.sync_directory(root)  # a file that was moved there must have its new name before the old one is gone
        commit_of(disk, root, manifest.run).resume(partial(_complete_parts, disk, root, manifest))
    return [manifest.run for manifest in manifests]


def _complete_parts(disk: Disk, root: Path, manifest: Manifest) -> None:
    if not _is_published(disk, root, manifest.batch):
        for part in manifest.parts:
            manifest.target.complete_part(disk, root, part)
    _note_published(disk, root, manifest.batch)


# --- which batches are published ------------------------------------------------------------------------------------


def is_published(root: Path | str, batch: Batch | None, *, disk: Disk = REAL_DISK) -> bool:
    """Whether a batch was published before."""
    return _is_published(disk, Path(root), batch)


def _published_path(root: Path, query: str) -> Path:
    name = query if _RUN.fullmatch(query) and len(query) <= 100 else hashlib.sha256(query.encode()).hexdigest()
    return root / DIRECTORY / PUBLISHED_DIRECTORY / f"{name}.json"


def _is_published(disk: Disk, root: Path, batch: Batch | None) -> bool:
    """Whether a batch is in place. A query publishes its batches in order, so the last number is enough."""
    if batch is None:
        return False
    hint = "restore it from a copy: it says which batches are not to be published again"
    path = _published_path(root, batch.query)
    what = "record of the last published batch"  # the first releases wrote it without a version
    last = read_json(disk, path, lambda found: int(found["batch"]), what, hint, may_lack_version=True)
    return last is not None and batch.number <= last


def _note_published(disk: Disk, root: Path, batch: Batch | None) -> None:
    if batch is None:
        return
    path = _published_path(root, batch.query)
    make_own_directories(disk, path.parent)
    if _is_published(disk, root, batch):
        disk.sync_directory(path.parent)
    else:
        replace_json(disk, path, {"query": batch.query, "batch": batch.number}, path.with_suffix(".tmp"))


# --- one at a time --------------------------------------------------------------------------------------------------


def _alone(disk: Disk, root: Path, patience_seconds: float = 0) -> Lock:
    busy = f"{root}: another job is publishing here"
    return lock_alone(disk, staging_directory(root) / "sink.lck", busy, patience_seconds)


# --- batches that are put in place by a rename ------------------------------------------------------------------------
#
# Each staged file becomes a file of its journal, in the root itself. Before the commit the staged files of a journal
# are joined into one. After the commit nothing is written: a power cut cannot tear a batch, and the names show which
# files are in place.


def bytes_to_put_together(files_of: FilesOf) -> int:
    """The number of bytes to copy: one staged file is only renamed, several are joined."""
    return sum(file.bytes for files in files_of.values() if len(files) > 1 for file in files)


def put_together(
    disk: Disk,
    root: Path,
    run: str,
    files_of: FilesOf,
    starts: Mapping[str, int],
    as_one: Callable[[Sequence[StagedFile], Path], int],
) -> tuple[Part, ...]:
    """The parts of a batch with one file each. `as_one` joins several files, syncs the result, and returns its size."""
    directory, token = staging_directory(root), secrets.token_hex(8)

    def only(number: int, part: str, files: Sequence[StagedFile]) -> StagedFile:
        if len(files) == 1:
            return files[0]
        name = staged_name(run, 0, token, number)
        size = as_one(files, directory / name)
        return StagedFile(name, part, sum(file.records for file in files), size)

    found = enumerate(files_of.items())
    parts = tuple(Part(part, starts[part], (only(number, part, files),)) for number, (part, files) in found)
    disk.sync_directory(directory)  # the joined files must exist when the batch is committed
    return parts


def give_name(disk: Disk, root: Path, staged: StagedFile, path: Path) -> None:
    """Rename a staged file to a file of its journal, in the root itself."""
    disk.rename(staging_directory(root) / staged.name, path)
    disk.sync_directory(root)


def has_name(disk: Disk, root: Path, staged: StagedFile, paths: Iterable[Path]) -> bool:
    """Whether a committed staged file was renamed; `paths` are the names that it may have by now."""
    return is_moved(disk, staging_directory(root) / staged.name, paths)
