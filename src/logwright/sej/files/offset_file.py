"""The files with the offsets of consumers; see `model/offset.py`. Reading them needs no lock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...core.io.disk import Disk
from ...errors import DamagedJournal, NotFound, StorageFailed
from ..bytes.layout import OFFSET, OFFSET_DIRECTORY, OFFSET_SUFFIX

if TYPE_CHECKING:
    from .reader import Reader


def offset_path(directory: Path, name: str) -> Path:
    """Where the offset of a consumer is."""
    return directory / OFFSET_DIRECTORY / (name + OFFSET_SUFFIX)


def stored_offset(disk: Disk, directory: Path, name: str) -> int | None:
    """The offset that a consumer has committed; None before its first commit. `NotFound` if it does not exist."""
    path = offset_path(directory, name)
    try:
        file = disk.open(path, "read")
    except NotFound:
        raise NotFound(f"{directory}: there is no consumer {name!r}") from None
    try:
        data = file.read_at(0, OFFSET.size + 1)
    finally:
        file.close()
    if not data:
        return None
    if len(data) != OFFSET.size:
        size = len(data) if len(data) < OFFSET.size else disk.file_size(path)
        raise DamagedJournal(
            f"{OFFSET_DIRECTORY}/{path.name}", 0, f"an offset file has 0 or {OFFSET.size} bytes, this one has {size}"
        )
    value: int = OFFSET.unpack(data)[0]
    return value


def list_consumers(disk: Disk, directory: Path) -> list[str]:
    """The names of all consumers of a journal, in order, including names that only other programs use."""
    try:
        names = disk.list_directory(directory / OFFSET_DIRECTORY)
    except NotFound:
        return []
    return [name.removesuffix(OFFSET_SUFFIX) for name in names if name.endswith(OFFSET_SUFFIX)]


def read_consumers(reader: Reader) -> dict[str, int | None]:
    """Where each consumer is; None for one that has not committed, and for one whose offset cannot be read."""
    if reader.is_single_file:
        return {}
    found: dict[str, int | None] = {}
    for name in list_consumers(reader.disk, reader.directory):
        try:
            found[name] = stored_offset(reader.disk, reader.directory, name)
        except (DamagedJournal, StorageFailed):
            found[name] = None
    return found
