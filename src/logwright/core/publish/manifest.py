"""The manifest of a batch that is committed: which journals get which staged files.

It is in the root of the journals (`protocol.py` says what it is for). A process that finds a manifest must complete its
batch before it writes to the journals that it names: `staging.py` does this for every format.

    ROOT/.logwright/staging/RUN.manifest                    a batch that is committed and not yet all in place
    ROOT/.logwright/staging/RUN.ORDER-TOKEN.NUMBER.staged   what a task staged for one journal

A format implements `Target`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias

from ..format import find_format
from ..io.disk import Disk
from ..io.quarantine import DIRECTORY
from .protocol import Commit, read_json

if TYPE_CHECKING:
    import pyarrow as pa

STAGING_DIRECTORY: Final = "staging"
MANIFEST_SUFFIX: Final = ".manifest"
_STAGED_NAME: Final = re.compile(r"([a-zA-Z0-9_-]+)\.\d+-[0-9a-f]+\.[0-9a-f]{3,}\.staged")
_TEMPORARY_NAME: Final = re.compile(r"([a-zA-Z0-9_-]+)\.manifest\.tmp")


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Records for one journal, in a file of the staging directory. `part` is the name of the journal in its root."""

    name: str
    part: str
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of a streaming query. The numbers of a query only rise."""

    query: str
    number: int


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a batch for one journal, and the record number, in the format's terms, that it begins with."""

    name: str
    start: int
    files: tuple[StagedFile, ...]

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)


FilesOf: TypeAlias = Mapping[str, Sequence[StagedFile]]
"""The staged files of each journal, by its name, in their order."""
OpenedParts: TypeAlias = tuple[tuple[Part, ...], Callable[[Part], None]]
"""The parts of a batch that is about to be committed, and the function that puts one of them in place."""


@dataclass(frozen=True, slots=True)
class Staged:
    """The files that a task has staged. A batch is published in the `order` of its tasks."""

    run: str
    order: int
    files: tuple[StagedFile, ...]


class Stage(Protocol):
    """The files that one task writes, one for each journal."""

    def append_batch(self, batch: Any) -> None:
        """Add the rows of an Arrow record batch."""

    def finish(self) -> Staged:
        """Sync the files, and return what was staged."""

    def discard(self) -> None:
        """Remove the files, if the task failed."""


class Target(ABC):
    """How the journals of a root are written by many tasks. A frozen dataclass whose fields are valid JSON."""

    format: ClassVar[str]
    options: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """The options of a sink on Spark, each with the field that it sets and the kind of its value."""
    no_streams: ClassVar[str | None] = None
    """Why streams cannot be written; None if they can."""

    @abstractmethod
    def check_name(self, part: str) -> None:
        """Raise `WrongUse` unless a journal of the root may have this name: it must not lead out of the root."""

    def check_root(self, disk: Disk, root: Path) -> None:
        """Raise if the root cannot be written in its current state."""
        return

    @abstractmethod
    def refuse_live_writers(self, root: Path, *, disk: Disk) -> None:
        """Raise early if publishing would fail now, such as `Locked`."""

    @abstractmethod
    def check_writable(self, schema: pa.Schema) -> None:
        """Raise `WrongUse` for columns that cannot be written, before there are any rows."""

    def writable(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch from Spark as `Stage.append_batch` takes it."""
        return batch

    @abstractmethod
    def stage(self, root: Path, run: str, order: int, *, disk: Disk) -> Stage:
        """What the task of this order writes into."""

    def needed_bytes(self, files_of: FilesOf) -> int:
        """How many more bytes are needed to put these files in place: all of them, if everything is copied."""
        return sum(file.bytes for files in files_of.values() for file in files)

    @abstractmethod
    def open_parts(self, disk: Disk, root: Path, run: str, files_of: FilesOf) -> AbstractContextManager[OpenedParts]:
        """Lock the journals, and check everything that could fail except the disk.

        The locks are held until the end of the block. The function in the result syncs what it puts in place. `Locked`
        without waiting if a writer is active.
        """

    @abstractmethod
    def complete_part(self, disk: Disk, root: Path, part: Part) -> None:
        """Put in place, and sync, what a killed publisher did not. May be repeated."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A batch that one run has committed."""

    run: str
    batch: Batch | None
    target: Target
    parts: tuple[Part, ...]


def staging_directory(root: Path) -> Path:
    """Where the staged files and the manifests of a root are."""
    return root / DIRECTORY / STAGING_DIRECTORY


def staged_name(run: str, order: int, token: str, number: int) -> str:
    """The name of the n-th file that a task stages. `token` is unique to an attempt of a task."""
    return f"{run}.{order:06d}-{token}.{number:03x}.staged"


def run_of(name: str) -> str | None:
    """The run that a staged or temporary file belongs to; None for other names."""
    match = _STAGED_NAME.fullmatch(name) or _TEMPORARY_NAME.fullmatch(name)
    return None if match is None else match[1]


def manifest_path(root: Path, run: str) -> Path:
    """The manifest of the batch of a run."""
    return staging_directory(root) / f"{run}{MANIFEST_SUFFIX}"


def commit_of(disk: Disk, root: Path, run: str) -> Commit:
    """The commit of the batch of a run."""
    path = manifest_path(root, run)
    note = (
        f"The batch is committed but not all of it is in place yet in {root}:"
        f" the next writer completes it, and so does recover_staging. To continue without it move {path} away."
    )
    return Commit(disk, path, lambda name: run_of(name) == run, note)


def list_manifests(disk: Disk, root: Path) -> list[Manifest]:
    """The batches of a root that are committed and not yet all in place."""
    directory = staging_directory(root)
    names = [name for name in disk.list_directory(directory) if name.endswith(MANIFEST_SUFFIX)]
    found = [read_manifest(disk, directory / name) for name in names]
    return [manifest for manifest in found if manifest is not None]


def read_manifest(disk: Disk, path: Path) -> Manifest | None:
    """A manifest of any format; None if its batch was completed meanwhile. None of its names leads out of the root."""

    def parse(found: Any) -> Manifest:
        target = _target(found["format"], found["target"])
        parts = tuple(
            Part(part["name"], int(part["start"]), tuple(StagedFile(**file) for file in part["files"]))
            for part in found["parts"]
        )
        for part in parts:
            target.check_name(part.name)
        run = path.name.removesuffix(MANIFEST_SUFFIX)
        staged = [_STAGED_NAME.fullmatch(file.name) for part in parts for file in part.files]
        if found["run"] != run or any(match is None or match[1] != run for match in staged):
            raise ValueError("it names files of another run")
        return Manifest(run, None if found["batch"] is None else Batch(**found["batch"]), target, parts)

    hint = "restore it from a copy: without it the files of the batch that wait beside it are not put in place"
    return read_json(disk, path, parse, "manifest of a batch", hint)


def _target(format: str, fields: dict[str, Any]) -> Target:
    kind = find_format(format).target
    if kind is None:
        raise ValueError(f"journals of the format {format} are not written this way")
    return kind(**fields)


def is_waiting(disk: Disk, root: Path, format: str, part: str) -> bool:
    """Whether a batch is committed for a journal of a root and not yet complete."""
    return disk.is_directory(staging_directory(root)) and any(
        manifest.target.format == format and part in (waiting.name for waiting in manifest.parts)
        for manifest in list_manifests(disk, root)
    )
