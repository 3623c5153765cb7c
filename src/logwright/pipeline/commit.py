"""Publish all tables of a batch together or not at all, even if the run fails or crashes at any point.

    OUT/<table>/part-<batch>-<number>.parquet     what readers see: plain directories, with folders if partitioned
    OUT/report.html
    OUT/_logwright/pipeline.json                  the checkpoint: the number of the last batch, and the state of its run
    OUT/_logwright/manifest.json                  a batch that is committed but not completely in place
    OUT/_logwright/staging/<run>/…                what is being written; not for readers
    OUT/_logwright/lock                           one run at a time

The steps of `publish`, and what a crash after each leaves:

1. Staged files and their names are synced: the old tables; the next run removes what was staged.
2. The manifest gets its name and is synced: the batch is committed. The next run does the remaining steps.
3. Staged files are renamed into their tables, replaced files are removed, and the folders are synced.
4. The checkpoint is replaced, then the manifest is removed: the new tables.

Steps 3 and 4 can be repeated from any point: a file is in staging, in its table, or after a crash in both. During these
steps a reader may see some old and some new files; `manifest.json` exists for exactly that long.

File names contain the number of their batch, so no batch overwrites a file of another one. Only files with names of
this form are ever removed.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Final, Self

from ..core.io.disk import REAL_DISK, Disk, make_directories, remove_tree, replace_file
from ..core.io.lock import Lock
from ..errors import DamagedJournal, Locked, LogwrightError, NotFound, WrongUse

HOME: Final = "_logwright"
REPORT: Final = "report.html"
_CHECKPOINT: Final = "pipeline.json"
_MANIFEST: Final = "manifest.json"
_STAGING: Final = "staging"
_LOCK: Final = "lock"
_VERSION: Final = 1
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
    found = _read_json(disk, out / HOME / _CHECKPOINT)
    if found is None:
        return None
    try:
        return Checkpoint(int(found["batch"]), dict(found["state"]))
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedJournal(out / HOME / _CHECKPOINT, 0, f"not a checkpoint of the pipeline: {error}") from error


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


class Output:
    """The directory of the tables, locked by one run.

    The directory is created if it is missing; one that contains other files is refused. Opening it completes or removes
    what an earlier run has left; `completed` says whether a batch was completed.
    """

    def __init__(self, path: Path | str, *, disk: Disk = REAL_DISK) -> None:
        self.path = Path(path)
        self.disk = disk
        _refuse_others(disk, self.path)
        make_directories(disk, self.path / HOME)
        try:
            self._lock = Lock.acquire(disk, self.path / HOME / _LOCK)
        except Locked as error:
            raise Locked(f"{path}: another run of the pipeline is writing there", error.holder) from None
        try:
            self.completed = _recover(disk, self.path)
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
        _commit(disk, out, manifest)
        with _noting_that_it_is_committed(out):
            _roll_forward(disk, out, manifest)
        output.checkpoint = Checkpoint(manifest.batch, manifest.state)
        _clear_staging(disk, out)
        return output.checkpoint

    def discard(self) -> None:
        """Remove the staged files unless the batch is committed. The next run removes what cannot be removed now."""
        disk, out = self._output.disk, self._output.path
        with contextlib.suppress(LogwrightError):
            if not is_being_changed(out, disk=disk):
                _clear_staging(disk, out)


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


def _commit(disk: Disk, out: Path, manifest: _Manifest) -> None:
    """Write the manifest, which commits the batch. If that fails, remove it: nothing is in place yet.

    If the manifest reappears after a power failure, the next run completes the batch: all files in it were synced.
    """
    path = out / HOME / _MANIFEST
    data = json.dumps({"version": _VERSION, **asdict(manifest)}).encode()
    try:
        replace_file(disk, path, data, path.with_name(f"{_MANIFEST}.tmp"))
    except BaseException:
        with contextlib.suppress(LogwrightError):
            disk.remove(path)
        raise


@contextlib.contextmanager
def _noting_that_it_is_committed(out: Path) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"The batch is committed but not completely in place in {out}: the next run completes it.")
        raise


# --- putting in place -----------------------------------------------------------------------------------------------


def _roll_forward(disk: Disk, out: Path, manifest: _Manifest) -> None:
    """Carry out the steps of a manifest that are not done yet."""
    staging = out / HOME / _STAGING / manifest.run
    for folder in sorted({(out / move.target).parent for move in manifest.moves}):
        make_directories(disk, folder)
    for move in manifest.moves:
        _put(disk, staging / move.source, out / move.target)
    for name in manifest.removals:
        disk.remove(out / name)
    for folder in _folders(out, manifest):
        if disk.is_directory(folder):
            disk.sync_directory(folder)
    data = json.dumps({"version": _VERSION, "batch": manifest.batch, "state": dict(manifest.state)}, indent=1).encode()
    checkpoint = out / HOME / _CHECKPOINT
    replace_file(disk, checkpoint, data, checkpoint.with_name(f"{_CHECKPOINT}.tmp"))
    disk.remove(out / HOME / _MANIFEST)
    _remove_empty_folders(disk, out, manifest.removals)


def _put(disk: Disk, source: Path, target: Path) -> None:
    try:
        disk.rename(source, target)
    except NotFound:
        if not disk.exists(target):
            raise NotFound(f"{source}: the file staged for {target} is missing") from None


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


# --- after a crash --------------------------------------------------------------------------------------------------


def _recover(disk: Disk, out: Path) -> bool:
    """Complete a committed batch and remove everything else that was staged; whether there was one to complete."""
    found = _read_json(disk, out / HOME / _MANIFEST)
    if found is not None:
        manifest = _manifest_of(out / HOME / _MANIFEST, found)
        with _noting_that_it_is_committed(out):
            disk.sync_directory(out / HOME)  # the run that wrote the manifest may have been killed before this sync
            _roll_forward(disk, out, manifest)
    _clear_staging(disk, out)
    return found is not None


def _clear_staging(disk: Disk, out: Path) -> None:
    """Remove all staged files; none of them is committed. The next run removes what cannot be removed now."""
    with contextlib.suppress(LogwrightError):
        disk.sync_directory(out / HOME)  # a removed manifest must not reappear without its files
        for name in (f"{_MANIFEST}.tmp", f"{_CHECKPOINT}.tmp"):
            disk.remove(out / HOME / name)
        remove_tree(disk, out / HOME / _STAGING)


def _manifest_of(path: Path, found: dict[str, Any]) -> _Manifest:
    try:
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
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedJournal(path, 0, f"this is not a manifest: {error}") from error
    return manifest


def _read_json(disk: Disk, path: Path) -> dict[str, Any] | None:
    try:
        file = disk.open(path, "read")
    except NotFound:
        return None
    try:
        data = file.read_at(0, file.size())
    finally:
        file.close()
    try:
        found = json.loads(data)
        if not isinstance(found, dict) or found.get("version") != _VERSION:
            raise ValueError("its version is unknown")
    except ValueError as error:
        raise DamagedJournal(path, 0, f"this cannot be parsed: {error}") from error
    return found
