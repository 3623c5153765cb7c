"""Parquet directories on a POSIX file system: the files of a batch are staged, named in a manifest, and renamed.

    OUT/_logwright/staging/<run>/<table>/…     what workers write; not for readers

The protocol is in `core/publish/protocol.py`. Once a batch is committed, staged files are renamed into their tables,
replaced files are removed, the folders are synced, and the checkpoint is replaced. Meanwhile a reader may see some old
and some new files; `manifest.json` exists for exactly that long.

File names contain the number of their batch, so no batch overwrites a file of another one. Only files with names of
this form are ever removed. The checkpoint lists the files of all tables with their numbers of rows. One that an earlier
release has written does not: the directories are listed then.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyarrow import fs

from ...core.io.disk import REAL_DISK, Disk, make_directories, replace_file
from ...core.io.lock import Lock
from ...core.publish.protocol import Commit, lock_alone, move_into_place, read_json, replace_json
from ...errors import DamagedJournal, LogwrightError, WrongUse
from .control import (
    CHECKPOINT,
    CHECKPOINT_HINT,
    HOME,
    LOCK,
    MANIFEST,
    MANIFEST_HINT,
    as_json,
    by_table,
    parse_checkpoint,
    parse_file,
    read_format,
    refuse_format,
    refuse_others,
    with_changes,
)
from .publisher import REPORT, RETENTION, Batch, Checkpoint, Publisher, TableFile, batch_of, check_table

NAME: Final = "parquet"
STAGING: Final = "staging"
_LEFT: Final = (STAGING, f"{MANIFEST}.tmp", f"{CHECKPOINT}.tmp")
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"

Files = dict[str, list[TableFile]]


@dataclass(frozen=True, slots=True)
class Move:
    """A staged file and where it goes: `source` is below the run's staging directory, `target` below OUT."""

    source: str
    target: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A batch that is committed. `files` are the files of all tables after it; None if they are not known."""

    run: str
    batch: int
    moves: tuple[Move, ...]
    removals: tuple[str, ...]
    state: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """The manifest as JSON has it. The state is not copied: it is large if there are many journals."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return found | {"moves": [asdict(move) for move in self.moves]}


class ParquetPublisher(Publisher):
    """Publishes tables as directories of Parquet files: all of a batch, or nothing."""

    filesystem: fs.FileSystem = fs.LocalFileSystem()

    def __init__(self, out: Path | str, *, disk: Disk = REAL_DISK) -> None:
        self.out = Path(out)
        self._disk = disk
        self._commit = commit_of(disk, self.out)
        self._run = secrets.token_hex(8)
        refuse_others(disk, self.out)
        refuse_format(str(out), NAME, read_format(disk, self.out) or NAME)
        make_directories(disk, self.out / HOME)
        self._lock = lock_output(disk, self.out)
        try:
            self.completed = recover(disk, self.out, self._commit)
            self.checkpoint = read_checkpoint(self.out, disk=disk)
            self._files = self._read_files()
        except BaseException:
            self._lock.release()
            raise

    def where(self, table: str) -> str:
        check_table(table)
        path = self._staging / table
        for folder in (path.parent.parent, path.parent, path):  # publishing syncs them
            if not self._disk.is_directory(folder):
                self._disk.make_directory(folder)
        return str(path)

    def files(self, table: str) -> list[TableFile]:
        return list(self._files.get(table, ()))

    def path(self, file: TableFile) -> str:
        return str(self.out / file.table / file.name)

    def publish(self, batch: Batch) -> Checkpoint:
        self._begin(batch)
        after = with_changes(self._files, batch.added, batch.removed)
        moves = [Move(f"{file.table}/{file.name}", f"{file.table}/{file.name}", file.bytes) for file in batch.added]
        if batch.report is not None:
            moves.append(self._stage_report(batch.report))
        removals = tuple(f"{file.table}/{file.name}" for file in batch.removed)
        files = {table: [as_json(file) for file in found] for table, found in after.items()}
        manifest = Manifest(self._run, batch.number, tuple(moves), removals, dict(batch.state), files)
        check_places(manifest)
        if moves:
            sync_staged(self._disk, self._staging, moves)
        try:
            self._commit.publish(manifest.as_json(), partial(put, self._disk, self.out, manifest))
        except BaseException:
            self._end(f"{self.out}: publishing batch {batch.number} failed; open the directory again to complete it")
            raise
        self._run = secrets.token_hex(8)
        self._files = after
        self.checkpoint = Checkpoint(batch.number, manifest.state)
        return self.checkpoint

    def note(self, state: Mapping[str, Any]) -> None:
        checkpoint = self._noting(state)
        files = {table: [as_json(file) for file in found] for table, found in self._files.items()}
        contents = {"batch": checkpoint.batch, "state": checkpoint.state, "files": files}
        replace_json(self._disk, self.out / HOME / CHECKPOINT, contents)
        self.checkpoint = checkpoint

    def discard(self) -> None:
        self._commit.discard()
        self._run = secrets.token_hex(8)

    def vacuum(self, retention: datetime.timedelta = RETENTION) -> int:
        """Nothing is left: files are removed when they are replaced, and staged files by `discard` and by opening."""
        return 0

    def close(self) -> None:
        self._lock.release()

    @property
    def _staging(self) -> Path:
        return self.out / HOME / STAGING / self._run

    def _stage_report(self, report: Path) -> Move:
        data = report.read_bytes()
        make_directories(self._disk, self._staging)
        replace_file(self._disk, self._staging / REPORT, data, self._staging / f"{REPORT}.tmp")
        return Move(REPORT, REPORT, len(data))

    def _read_files(self) -> Files:
        def parse(found: Any) -> Files | None:
            known = found.get("files")
            if known is None:
                return None
            return {table: [parse_file(table, file) for file in files] for table, files in known.items()}

        path = self.out / HOME / CHECKPOINT
        known = read_json(self._disk, path, parse, "checkpoint of the pipeline", CHECKPOINT_HINT)
        if known is not None:
            return known
        if self.checkpoint is None:
            return {}
        tables = [name for name in self._disk.list_directory(self.out) if name not in (HOME, REPORT)]
        names = (name for table in tables for name in table_files(self.out, table, disk=self._disk))
        return by_table(_described(self._disk, self.out, name) for name in names)


# --- looking --------------------------------------------------------------------------------------------------------


def read_checkpoint(out: Path, *, disk: Disk = REAL_DISK) -> Checkpoint | None:
    """The checkpoint of the last batch published into a directory; None if there is none."""
    return read_json(disk, out / HOME / CHECKPOINT, parse_checkpoint, "checkpoint of the pipeline", CHECKPOINT_HINT)


def is_being_changed(out: Path, *, disk: Disk = REAL_DISK) -> bool:
    """Whether a batch is committed but not completely in place: its run is still at it, or was interrupted."""
    return disk.exists(out / HOME / MANIFEST)


def table_files(out: Path, table: str, *, disk: Disk = REAL_DISK) -> list[str]:
    """The files in the directory of a table, relative to `out`, including those in partition folders."""
    return list(_files_below(disk, out, table))


def _files_below(disk: Disk, out: Path, place: str) -> Iterator[str]:
    if not disk.is_directory(out / place):
        return
    for name in disk.list_directory(out / place):
        below = f"{place}/{name}"
        if batch_of(name) is not None:
            yield below
        elif "=" in name and not disk.is_link(out / below):
            yield from _files_below(disk, out, below)


def _described(disk: Disk, out: Path, name: str) -> TableFile:
    """A file of a table, as its name and its footer describe it."""
    table, _, below = name.partition("/")
    path = out / name
    if not name.endswith(".parquet"):
        raise WrongUse(f"{path} is not a Parquet file: choose another directory, or the format of these tables")
    folders = [folder.partition("=") for folder in PurePosixPath(below).parts[:-1]]
    partition = {column: None if value == _NULL else unquote(value) for column, _, value in folders}
    return TableFile(table, below, pq.read_metadata(path).num_rows, disk.file_size(path), partition)


# --- one run at a time, and what an earlier one has left --------------------------------------------------------------


def commit_of(disk: Disk, out: Path) -> Commit:
    """The commit of a batch in a directory of tables."""
    note = f"The batch is committed but not completely in place in {out}: the next run completes it."
    return Commit(disk, out / HOME / MANIFEST, _LEFT.__contains__, note)


def lock_output(disk: Disk, out: Path) -> Lock:
    """The lock of a run."""
    return lock_alone(disk, out / HOME / LOCK, f"{out}: another run of the pipeline is writing there")


def recover(disk: Disk, out: Path, commit: Commit) -> bool:
    """Complete a committed batch and remove everything else that was staged; whether there was one to complete."""
    manifest = read_json(disk, commit.path, _parse_manifest, "manifest of the pipeline", MANIFEST_HINT)
    if manifest is None:
        commit.discard()
    else:
        commit.resume(partial(put, disk, out, manifest))
    return manifest is not None


# --- deciding -------------------------------------------------------------------------------------------------------


def check_places(manifest: Manifest) -> None:
    """Raise for names that would lead outside of the directory."""
    for move in manifest.moves:
        place = PurePosixPath(move.target)
        if move.target != REPORT and not (batch_of(place.name) and _is_table_place(place)):
            raise WrongUse(f"{move.target} is not a path of a file of a table")
        if not _is_below(PurePosixPath(move.source)):
            raise WrongUse(f"{move.source} is not below the staging directory")
    for name in manifest.removals:
        if not (batch_of(name) and _is_table_place(PurePosixPath(name))):
            raise WrongUse(f"{name} is not a file of a table")


def _is_table_place(place: PurePosixPath) -> bool:
    folders = place.parts[1:-1]
    return _is_below(place) and len(place.parts) > 1 and place.parts[0] != HOME and all("=" in name for name in folders)


def _is_below(place: PurePosixPath) -> bool:
    return bool(place.parts) and not place.is_absolute() and ".." not in place.parts


def sync_staged(disk: Disk, staging: Path, moves: Iterable[Move]) -> None:
    """Make staged files and their names durable, and check that their sizes are as reported."""
    folders = {staging, staging.parent, staging.parent.parent}
    for move in moves:
        path = staging / move.source
        file = disk.open(path, "read")
        try:
            if (size := file.size()) != move.bytes:
                reason = f"the file has {size} bytes, but {move.bytes} were staged; nothing was published"
                raise DamagedJournal(path, min(size, move.bytes), reason)
            file.sync()
        finally:
            file.close()
        folders.update(folder for folder in path.parents if folder.is_relative_to(staging))
    for folder in sorted(folders):
        disk.sync_directory(folder)


# --- putting in place -----------------------------------------------------------------------------------------------


def put(disk: Disk, out: Path, manifest: Manifest) -> None:
    """Carry out the steps of a manifest that are not done yet."""
    staging = out / HOME / STAGING / manifest.run
    for folder in sorted({(out / move.target).parent for move in manifest.moves}):
        make_directories(disk, folder)
    for move in manifest.moves:
        move_into_place(disk, staging / move.source, out / move.target)
    for name in manifest.removals:
        disk.remove(out / name)
    for folder in _folders(out, manifest):
        if disk.is_directory(folder):
            disk.sync_directory(folder)
    checkpoint = {"batch": manifest.batch, "state": dict(manifest.state)}
    if manifest.files is not None:
        checkpoint["files"] = manifest.files
    replace_json(disk, out / HOME / CHECKPOINT, checkpoint)
    _remove_empty_folders(disk, out, manifest.removals)


def _folders(out: Path, manifest: Manifest) -> list[Path]:
    names = (*(move.target for move in manifest.moves), *manifest.removals)
    return sorted({(out / name).parent for name in names})


def _remove_empty_folders(disk: Disk, out: Path, removed: Iterable[str]) -> None:
    """Remove the folders of partitions that have become empty."""
    folders = {folder for name in removed for folder in PurePosixPath(name).parents if "=" in folder.name}
    for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
        with contextlib.suppress(LogwrightError):
            if not disk.list_directory(out / folder):
                disk.remove_directory(out / folder)


def _parse_manifest(found: Any) -> Manifest:
    manifest = Manifest(
        str(found["run"]),
        int(found["batch"]),
        tuple(Move(str(move["source"]), str(move["target"]), int(move["bytes"])) for move in found["moves"]),
        tuple(str(name) for name in found["removals"]),
        dict(found["state"]),
        found.get("files"),
    )
    if not re.fullmatch(r"[0-9a-f]+", manifest.run):
        raise ValueError(f"{manifest.run!r} is not the id of a run")
    check_places(manifest)
    return manifest
