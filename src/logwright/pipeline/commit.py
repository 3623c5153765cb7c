"""Publish all tables of a batch together or not at all, even if the run fails or crashes at any point.

    OUT/<table>/part-<batch>-<number>.parquet     what readers see: plain directories, with folders if partitioned
    OUT/report.html
    OUT/_logwright/pipeline.json                  the checkpoint: the number of the last batch, and the state of its run
    OUT/_logwright/manifest.json                  a batch that is committed but not completely in place
    OUT/_logwright/staging/<run>/…                what is being written; not for readers
    OUT/_logwright/lock                           one run at a time

The protocol is in `core/publish/protocol.py`. Once a batch is committed, staged files are renamed into their tables,
replaced files are removed, the folders are synced, and the checkpoint is replaced. Meanwhile a reader may see some old
and some new files; `manifest.json` exists for exactly that long.

File names contain the number of their batch, so no batch overwrites a file of another one. Only files with names of
this form are ever removed.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final

from ..core.io.disk import REAL_DISK, Disk, make_directories
from ..core.publish.protocol import Commit, lock_alone, move_into_place, read_json, replace_json
from ..core.write.closing import Closing
from ..errors import DamagedJournal, LogwrightError, WrongUse

HOME: Final = "_logwright"
REPORT: Final = "report.html"
_CHECKPOINT: Final = "pipeline.json"
_MANIFEST: Final = "manifest.json"
_STAGING: Final = "staging"
_LOCK: Final = "lock"
_LEFT: Final = (_STAGING, f"{_MANIFEST}.tmp", f"{_CHECKPOINT}.tmp")
_FILE: Final = re.compile(r"part-\d{8,}-\d{5,}\.[A-Za-z0-9_.]+")
"""The names of files of tables. Spark and other readers ignore only names that begin with `_` or `.`."""


@dataclass(frozen=True, slots=True)
class Move:
    """A staged file and where it goes: `source` is below the run's staging directory, `target` below OUT."""

    source: str
    target: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The last published batch: its number, and the state that its run saved for the next one."""

    batch: int
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Manifest:
    run: str
    batch: int
    moves: tuple[Move, ...]
    removals: tuple[str, ...]
    state: Mapping[str, Any] = field(default_factory=dict)


def part_name(batch: int, number: int, suffix: str) -> str:
    """The name of a file of a table; `suffix` has no leading dot."""
    return f"part-{batch:08d}-{number:05d}.{suffix}"


# --- looking --------------------------------------------------------------------------------------------------------


def read_checkpoint(out: Path, *, disk: Disk = REAL_DISK) -> Checkpoint | None:
    """The checkpoint of the last batch published into a directory; None if there is none."""

    def parse(found: Any) -> Checkpoint:
        return Checkpoint(int(found["batch"]), dict(found["state"]))

    hint = "restore it from a copy, or rebuild the tables in another directory"
    return read_json(disk, out / HOME / _CHECKPOINT, parse, "checkpoint of the pipeline", hint)


def is_being_changed(out: Path, *, disk: Disk = REAL_DISK) -> bool:
    """Whether a batch is committed but not completely in place: its run is still at it, or was interrupted."""
    return disk.exists(out / HOME / _MANIFEST)


def table_files(out: Path, table: str, *, disk: Disk = REAL_DISK) -> list[str]:
    """The files of a table, relative to `out`, including those in partition folders."""
    return list(_files_below(disk, out, table))


def _files_below(disk: Disk, out: Path, place: str) -> Iterator[str]:
    if not disk.is_directory(out / place):
        return
    for name in disk.list_directory(out / place):
        below = f"{place}/{name}"
        if _FILE.fullmatch(name):
            yield below
        elif "=" in name and not disk.is_link(out / below):
            yield from _files_below(disk, out, below)


# --- one run --------------------------------------------------------------------------------------------------------


class Output(Closing):
    """The directory of the tables, locked by one run.

    The directory is created if it is missing; one that contains other files is refused. Opening it completes or removes
    what an earlier run has left; `completed` says whether a batch was completed.
    """

    def __init__(self, path: Path | str, *, disk: Disk = REAL_DISK) -> None:
        self.path = Path(path)
        self.disk = disk
        note = f"The batch is committed but not completely in place in {path}: the next run completes it."
        self.commit = Commit(disk, self.path / HOME / _MANIFEST, _LEFT.__contains__, note)
        _refuse_others(disk, self.path)
        make_directories(disk, self.path / HOME)
        busy = f"{path}: another run of the pipeline is writing there"
        self._lock = lock_alone(disk, self.path / HOME / _LOCK, busy)
        try:
            self.completed = self._recover()
            self.checkpoint = read_checkpoint(self.path, disk=disk)
        except BaseException:
            self._lock.release()
            raise

    @property
    def batch(self) -> int:
        """The number of the next batch."""
        return 1 if self.checkpoint is None else self.checkpoint.batch + 1

    def stage(self) -> Staging:
        """A new staging directory for files to be published together."""
        run = secrets.token_hex(8)
        path = self.path / HOME / _STAGING / run
        make_directories(self.disk, path)
        return Staging(self, run, path)

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    def _recover(self) -> bool:
        """Complete a committed batch and remove everything else that was staged; whether there was one to complete."""
        hint = "restore it from a copy: without it the files of the batch are not put in place"
        manifest = read_json(self.disk, self.commit.path, _parse_manifest, "manifest of the pipeline", hint)
        if manifest is None:
            self.commit.discard()
        else:
            self.commit.resume(partial(_put, self.disk, self.path, manifest))
        return manifest is not None


class Staging:
    """The files being written for one batch, below `path`: either published together by `publish`, or discarded."""

    def __init__(self, output: Output, run: str, path: Path) -> None:
        self.path = path
        self._output = output
        self._run = run

    def publish(self, moves: Sequence[Move], replaced: Iterable[str], state: Mapping[str, Any]) -> Checkpoint:
        """Move files into place, remove those they replace, and save `state`: all of it or nothing."""
        output = self._output
        disk, out = output.disk, output.path
        manifest = _Manifest(self._run, output.batch, tuple(moves), tuple(replaced), dict(state))
        _check_places(manifest)
        _sync_staged(disk, self.path, moves)
        output.commit.publish(asdict(manifest), partial(_put, disk, out, manifest))
        output.checkpoint = Checkpoint(manifest.batch, manifest.state)
        return output.checkpoint

    def discard(self) -> None:
        """Remove the staged files unless the batch is committed. The next run removes what cannot be removed now."""
        self._output.commit.discard()


def _refuse_others(disk: Disk, path: Path) -> None:
    """Raise `WrongUse` for a directory that the pipeline did not create."""
    if not disk.exists(path):
        return
    if not disk.is_directory(path):
        raise WrongUse(f"{path} is not a directory")
    home = path / HOME
    if disk.exists(home / _CHECKPOINT) or disk.exists(home / _MANIFEST):
        return
    others = [name for name in disk.list_directory(path) if name != HOME]
    if others:
        raise WrongUse(f"{path} contains other files ({others[0]}, …): choose a new or empty directory for tables")


# --- deciding -------------------------------------------------------------------------------------------------------


def _check_places(manifest: _Manifest) -> None:
    """Raise for names that would lead outside of the directory."""
    for move in manifest.moves:
        place = PurePosixPath(move.target)
        if move.target != REPORT and not (_FILE.fullmatch(place.name) and _is_table_place(place)):
            raise WrongUse(f"{move.target} is not a path of a file of a table")
        if not _is_below(PurePosixPath(move.source)):
            raise WrongUse(f"{move.source} is not below the staging directory")
    for name in manifest.removals:
        if not (_FILE.fullmatch(PurePosixPath(name).name) and _is_table_place(PurePosixPath(name))):
            raise WrongUse(f"{name} is not a file of a table")


def _is_table_place(place: PurePosixPath) -> bool:
    folders = place.parts[1:-1]
    return _is_below(place) and len(place.parts) > 1 and place.parts[0] != HOME and all("=" in name for name in folders)


def _is_below(place: PurePosixPath) -> bool:
    return bool(place.parts) and not place.is_absolute() and ".." not in place.parts


def _sync_staged(disk: Disk, staging: Path, moves: Iterable[Move]) -> None:
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


def _put(disk: Disk, out: Path, manifest: _Manifest) -> None:
    """Carry out the steps of a manifest that are not done yet."""
    staging = out / HOME / _STAGING / manifest.run
    for folder in sorted({(out / move.target).parent for move in manifest.moves}):
        make_directories(disk, folder)
    for move in manifest.moves:
        move_into_place(disk, staging / move.source, out / move.target)
    for name in manifest.removals:
        disk.remove(out / name)
    for folder in _folders(out, manifest):
        if disk.is_directory(folder):
            disk.sync_directory(folder)
    replace_json(disk, out / HOME / _CHECKPOINT, {"batch": manifest.batch, "state": dict(manifest.state)})
    _remove_empty_folders(disk, out, manifest.removals)


def _folders(out: Path, manifest: _Manifest) -> list[Path]:
    names = (*(move.target for move in manifest.moves), *manifest.removals)
    return sorted({(out / name).parent for name in names})


def _remove_empty_folders(disk: Disk, out: Path, removed: Iterable[str]) -> None:
    """Remove the folders of partitions that have become empty."""
    folders = {folder for name in removed for folder in PurePosixPath(name).parents if "=" in folder.name}
    for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
        with contextlib.suppress(LogwrightError):
            if not disk.list_directory(out / folder):
                disk.remove_directory(out / folder)


def _parse_manifest(found: Any) -> _Manifest:
    manifest = _Manifest(
        str(found["run"]),
        int(found["batch"]),
        tuple(Move(str(move["source"]), str(move["target"]), int(move["bytes"])) for move in found["moves"]),
        tuple(str(name) for name in found["removals"]),
        dict(found["state"]),
    )
    if not re.fullmatch(r"[0-9a-f]+", manifest.run):
        raise ValueError(f"{manifest.run!r} is not the id of a run")
    _check_places(manifest)
    return manifest
