"""Restoring a journal from tables: the same records in the same files.

The bytes of a record follow from its kind and its fields, and a file is nothing but records, one behind the other. So a
journal that was whole comes back byte for byte, with what a recovery had put aside, and its empty files. Only a
checkpoint record that was written as the description has it, with the size 0, comes back with 16. What was damaged is
not in the tables: the records behind it come right behind those before it. That a repair had taken records out of a
segment is.

Tables that grew by increments may have the records of a file under two names: the one that it was written under, and
the one that a recovery has moved it to. `settled` says that it is the latter. Locks and what was cut off and kept are
not restored. A journal has no consumers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ...core.disk import REAL_DISK, Disk
from ...core.errors import WrongUse
from ...core.format import find_format
from ...core.refilling import RefilledFile
from ...core.restore import Missing, Written, numbered_missing
from . import kernel
from .codec import Columns
from .files import add_lost_segments
from .layout import RECOVERY_DIRECTORY, file_name, parse_boundary, parse_name
from .writer import BUFFER_BYTES

_ASIDE: Final = re.compile(rf"{re.escape(RECOVERY_DIRECTORY)}/([^/]+)/([^/]+)", re.DOTALL)


def _split(file: str) -> tuple[str | None, str]:
    """The boundary of the generation that a file was put aside with, None for one that was not, and its own name."""
    match = _ASIDE.fullmatch(file)
    boundary, name = (match[1], match[2]) if match else (None, file)
    if (boundary is not None and parse_boundary(boundary) is None) or parse_name(name) is None:
        raise WrongUse(f"{file!r} cannot be the name of a file of a journal")
    return boundary, name


def part_of(file: str) -> str:
    """A journal has no parts."""
    _split(file)
    return ""


def is_single_file(file: str) -> bool:
    """Never: a journal is a directory."""
    _split(file)
    return False


def settled(names: Iterable[tuple[str, int | None]]) -> dict[tuple[str, int | None], str]:
    """The last name of each file by those that it had, and its id: files are put aside, and never come back."""
    found = {(name, sequence): name for name, sequence in names}
    aside = {sequence: name for name, sequence in found if _split(name)[0] is not None}
    return {(name, sequence): name if sequence is None else aside.get(sequence, name) for name, sequence in found}


class FileWriter(RefilledFile):
    """Writes one file of a journal."""

    def __init__(self, directory: Path, file: str, *, disk: Disk = REAL_DISK) -> None:
        _, name = _split(file)
        super().__init__(directory, file, disk=disk)
        self._home = directory
        self._file_id = parse_name(name) or 0
        self._lost: set[int] = set()

    def _encoded(self, batch: Any) -> Iterator[bytes]:
        room = find_format("appendfile").room("tables")
        columns: list[Columns] = room.records(batch)
        self._lost |= room.lost_segments(batch)
        return _packed(columns)

    def finish(self) -> list[Written]:
        """The file, on the disk, and in the account of losses which segments of it are not complete."""
        add_lost_segments(self._disk, self._home, file_name(self._file_id), self._file_id, sorted(self._lost))
        return super().finish()


def _packed(columns: list[Columns]) -> Iterator[bytes]:
    for part in columns:
        row = 0
        while row < part.count:
            data, _, row = kernel.pack(part, row, BUFFER_BYTES)
            yield data


def missing(written: Sequence[Written], extents: Mapping[str, int]) -> list[Missing]:
    """What is missing within files, and behind the last record of a journal whose last file ended further on."""
    return numbered_missing(written, extents, part_of)


def write_consumers(directory: Path, part: str, offsets: Mapping[str, int | None], *, disk: Disk = REAL_DISK) -> None:
    """Refuse: there are none."""
    if offsets:
        raise WrongUse("the journal has consumers in these tables, and journals of this format have none")
