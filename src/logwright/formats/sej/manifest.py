"""The manifest: a batch that is committed, and where its messages belong.

It lies in the root whose shards the batch is for. From the moment that it has its name the batch is in force, though
its messages may not all be in place yet; once they are, it goes. So whoever finds one is to complete its batch before
anything else is written to the journals that it speaks of: see `staging.py`, which does it, and `Writer`, which asks.

    ROOT/.logwright/staging/RUN.manifest                    a batch that is committed and not yet all in place
    ROOT/.logwright/staging/RUN.ORDER-TOKEN.INDEX.staged    what a task staged for one shard
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from ...core.disk import Disk, replace_file
from ...core.errors import DamagedJournal, LogwrightError, NotFound, WrongUse
from ...core.keep import DIRECTORY
from .layout import DEFAULT_SEGMENT_BYTES
from .shard import parse_shard_name, shard_name

STAGING_DIRECTORY: Final = "staging"
MANIFEST_SUFFIX: Final = ".manifest"
STAGED_SUFFIX: Final = ".staged"
_VERSION: Final = 1
_STAGED_NAME: Final = re.compile(r"([a-zA-Z0-9_-]+)\.\d+-[0-9a-f]+\.[0-9a-f]{3}\.staged")


@dataclass(frozen=True, slots=True)
class Target:
    """How the journals of a root are written: see `ShardedWriter`."""

    prefix: str = ""
    bit: int = 0
    segment_size: int = DEFAULT_SEGMENT_BYTES
    checksums: bool = False

    def __post_init__(self) -> None:
        shard_name(self.prefix, self.bit, 0)  # says what is wrong with them
        if self.segment_size < 1:
            raise WrongUse(f"a segment size of {self.segment_size} bytes makes no sense")


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Messages for one shard, in a file of the staging directory."""

    name: str
    index: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Which batch of which streaming query this is: the numbers of a query only rise."""

    query: str
    number: int


@dataclass(frozen=True, slots=True)
class Part:
    """One shard's share of a batch, and the offset that it begins with there."""

    index: int
    start: int
    files: tuple[StagedFile, ...]

    @property
    def messages(self) -> int:
        return sum(file.messages for file in self.files)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one run has committed."""

    run: str
    batch: Batch | None
    target: Target
    parts: tuple[Part, ...]


def staging_directory(root: Path) -> Path:
    return root / DIRECTORY / STAGING_DIRECTORY


def manifest_path(root: Path, run: str) -> Path:
    return staging_directory(root) / f"{run}{MANIFEST_SUFFIX}"


def write_manifest(disk: Disk, root: Path, manifest: Manifest) -> None:
    """Commit. When that fails nothing has been put in place yet, so it is taken back, as far as the system lets us."""
    path = manifest_path(root, manifest.run)
    data = json.dumps({"version": _VERSION, **asdict(manifest)}).encode()
    try:
        replace_file(disk, path, data, path.with_name(path.name + ".tmp"))
    except BaseException:
        with contextlib.suppress(LogwrightError):
            disk.remove(path)
            disk.sync_directory(path.parent)
        raise


def list_manifests(disk: Disk, root: Path) -> list[Manifest]:
    """The batches of a root that are committed and not yet all in place."""
    directory = staging_directory(root)
    names = [name for name in disk.list_directory(directory) if name.endswith(MANIFEST_SUFFIX)]
    return [read_manifest(disk, directory / name) for name in names]


def read_manifest(disk: Disk, path: Path) -> Manifest:
    file = disk.open(path, "read")
    try:
        data = file.read_at(0, file.size())
    finally:
        file.close()
    try:
        found = json.loads(data)
        if found["version"] != _VERSION:
            raise ValueError(f"version {found['version']} is not known here")
        parts = tuple(
            Part(int(part["index"]), int(part["start"]), tuple(StagedFile(**file) for file in part["files"]))
            for part in found["parts"]
        )
        names = [file.name for part in parts for file in part.files]
        if found["run"] != path.name.removesuffix(MANIFEST_SUFFIX) or not all(map(_STAGED_NAME.fullmatch, names)):
            raise ValueError("it names files that are none of its own")
        batch = None if found["batch"] is None else Batch(**found["batch"])
        manifest = Manifest(found["run"], batch, Target(**found["target"]), parts)
        shards_of(manifest)
        return manifest
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedJournal(path, 0, f"this is no manifest: {error}") from error


def shards_of(manifest: Manifest) -> list[str]:
    """The names of the shards that a manifest speaks of, in the order of its parts."""
    return [shard_name(manifest.target.prefix, manifest.target.bit, part.index) for part in manifest.parts]


def find_waiting(disk: Disk, journal: Path) -> Path | None:
    """The root of a batch that is committed for a journal, however much of it is in place there; None without one."""
    for root, name in ((journal, ""), (journal.parent, journal.name)):
        if (name and parse_shard_name(name) is None) or not disk.is_directory(staging_directory(root)):
            continue
        try:
            manifests = list_manifests(disk, root)
        except NotFound:  # completed while we looked
            return root
        if any(name in shards_of(manifest) for manifest in manifests):
            return root
    return None
