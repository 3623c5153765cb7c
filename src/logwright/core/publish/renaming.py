"""Batches that are put in place by a rename: each staged file becomes a file of its journal, in the root itself.

Before the commit there is one file for each journal: what several tasks have staged for it is put together, as its
format does that. Behind it nothing is written any more: so no power cut can tear a batch, and which of its files are in
place can be seen.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ..io.disk import Disk
from .manifest import FilesOf, Part, StagedFile, staged_name, staging_directory


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
