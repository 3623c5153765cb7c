"""Restoring a journal from tables: the same records in the same files.

The bytes of a record follow from its kind and its fields, and a file consists of records only. So an intact journal is
restored byte for byte, with the files that a recovery has put aside, and its empty files. Only a checkpoint record with
the size 0 gets the size 16. Damaged bytes are not in the tables: the file is written without them. The tables do have
that a repair has removed records of a segment.

Tables that grew by increments may have the records of a file under two names: the original one, and the one that a
recovery has given it. `settled` returns the latter. Locks and copies of cut bytes are not restored. A journal has no
consumers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ...core.io.disk import REAL_DISK, Disk
from ...core.publish.restore import Restore, RestoredFile, Written
from ...errors import WrongUse
from ..bytes import kernel
from ..bytes.codec import Columns
from ..bytes.layout import RECOVERY_DIRECTORY, file_name, parse_boundary, parse_name
from ..files.files import add_lost_segments
from ..files.writer import BUFFER_BYTES

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


class FileWriter(RestoredFile):
    """Writes one file of a journal."""

    def __init__(self, directory: Path, file: str, *, disk: Disk = REAL_DISK) -> None:
        _, name = _split(file)
        super().__init__(directory, file, disk=disk)
        self._home = directory
        self._file_id = parse_name(name) or 0
        self._lost: set[int] = set()

    def _encoded(self, batch: Any) -> Iterator[bytes]:
        from .spark_columns import lost_segments, records

        columns = records(batch)
        self._lost |= lost_segments(batch)
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


class SegmentRestore(Restore):
    """Files of a journal with checkpoints."""

    renames_files = True

    def part_of(self, file: str) -> str:
        return part_of(file)

    def writer(self, directory: Path, file: str, *, disk: Disk, listed: Sequence[str] = ()) -> FileWriter:
        return FileWriter(directory, file, disk=disk)

    def settled(self, names: Iterable[tuple[str, int | None]]) -> dict[tuple[str, int | None], str]:
        """The last name of each file by those that it had, and its id: files that are put aside stay there."""
        found = {(name, sequence): name for name, sequence in names}
        aside = {sequence: name for name, sequence in found if _split(name)[0] is not None}
        return {(name, sequence): name if sequence is None else aside.get(sequence, name) for name, sequence in found}


RESTORE: Final = SegmentRestore()
