"""The journal as a whole: recognising one, opening it for reading, following and recovering it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...core.bytes.outcome import Damage, Mode
from ...core.format import Evidence
from ...core.io.disk import REAL_DISK, Disk
from ...errors import LogwrightError, NotFound
from ..bytes import codec
from ..bytes.layout import CHECKPOINT, CHECKPOINT_BYTES, parse_name
from ..bytes.records import Record
from ..files.files import list_files
from ..files.reader import Reader, is_opened
from ..files.scanner import Scanner
from ..files.writer import Writer

__all__ = ["Reader", "Recovered", "Scanner", "Writer", "follow", "looks_like", "open_reader", "recover"]

_ENOUGH: Final = 2
"""This many files that begin with a checkpoint are enough evidence."""


def looks_like(disk: Disk, path: Path) -> Evidence | None:
    """Whether a path is the directory of a journal, or a file of one.

    It is recognized by its name and by the checkpoint record at the beginning. A path that cannot be read raises an
    error.
    """
    try:
        if disk.is_directory(path):
            return _directory_looks_like(disk, path)
        if _begins_with_checkpoint(disk, path):
            return Evidence(2, "it begins with a checkpoint record")
        if parse_name(path.name) is not None:
            return Evidence(1, "it is named like the file of a journal")
    except NotFound:  # removed while we looked
        pass
    return None


def _directory_looks_like(disk: Disk, path: Path) -> Evidence | None:
    files = list_files(disk, path).files
    good = 0
    for file in files:
        good += _begins_with_checkpoint(disk, file.path)
        if good == _ENOUGH:
            return Evidence(3, f"{file.name} and others begin with a checkpoint record")
    if good:
        return Evidence(2, f"{files[0].name} begins with a checkpoint record")
    if files:
        return Evidence(1, f"{files[0].name} is named like the file of a journal")
    return Evidence(1, "a writer has opened it, and written nothing yet") if is_opened(disk, path) else None


def _begins_with_checkpoint(disk: Disk, path: Path) -> bool:
    try:
        file = disk.open(path, "read")
        try:
            head = file.read_at(0, CHECKPOINT_BYTES)
        finally:
            file.close()
    except LogwrightError:
        return False
    return codec.walk(head, 0, len(head), most=1)[1] == 1 and head[0] == CHECKPOINT


def open_reader(path: Path, *, disk: Disk = REAL_DISK) -> Reader:
    """A reader of a journal, or of one file."""
    return Reader(path, disk=disk)


def follow(path: Path, ends: Any, *, timeout: float | None, mode: Mode) -> Scanner[Record | Damage]:
    """A scanner of a journal from a number on."""
    return Scanner(path, ends, timeout=timeout, mode=mode)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What opening for writing did to a journal: the torn tail that it cut off, and the path of the copy."""

    cut: Damage | None
    kept: Path | None


def recover(path: Path | str, *, disk: Disk = REAL_DISK) -> Recovered:
    """Recover a journal: lock it, cut off a torn tail, and keep that in quarantine.

    Its segments stay where they are: see `Writer.recovery`, which returns them.
    """
    Reader(path, disk=disk)
    with Writer(path, disk=disk) as writer:
        return Recovered(writer.recovered, writer.kept)
