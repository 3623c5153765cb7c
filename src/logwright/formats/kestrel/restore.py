"""Restoring queues from tables: the same operations in the same files.

The bytes of an operation follow from its name and its fields, whatever the dialect, and a file is nothing but
operations, one behind the other. So a journal that was whole comes back byte for byte, with its rotated files, its
empty ones, and what follows a state dump. What was damaged is not in the tables: the operations behind it come right
behind those before it, which is how a replay that goes on behind damage sees them, so the queue is in the same state.

Tables that grew by increments may have the operations of a file under two names, that of the newest file and the one
it was rotated to. `settled` says which it has now: the number of the file behind it is in every operation of that one.

A journal is always a directory: a queue that was found as a file by itself comes back in a directory of that name, with
its files in it. Locks and what was cut off and kept (`.logwright/`) are not restored. Queues have no consumers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ...core.disk import REAL_DISK, Disk, make_directories, write_all
from ...core.errors import DamagedJournal, LogwrightError, WrongUse
from ...core.format import find_format
from ...core.restore import Missing, Written, numbered_missing
from . import kernel
from .codec import Columns
from .files import POSITION_BITS
from .layout import DOCUMENTED, KESTREL2, TEMPORARY, parse_name, rotated_name
from .records import DIALECT_OF, OPS
from .writer import BUFFER_BYTES

_OF_KESTREL2: Final = bytes(OPS[op] for op, dialect in DIALECT_OF.items() if dialect == "kestrel2")
_MAX_NAME_BYTES: Final = 255


# --- names ----------------------------------------------------------------------------------------------------------


def part_of(file: str) -> str:
    """The queue that a file belongs to."""
    parsed = parse_name(file)
    if parsed is not None:
        return parsed[0]
    if not file or file.startswith(".") or {"/", "\0"} & set(file) or TEMPORARY in file:
        raise WrongUse(f"{file!r} cannot be the name of a file of a queue")
    return file


def is_single_file(file: str) -> bool:
    """Never: a queue may get further files at any time, so that it is a directory that comes back."""
    part_of(file)
    return False


def settled(names: Iterable[tuple[str, int | None]]) -> dict[tuple[str, int | None], str]:
    """The name of each file by one that it had, and the number of the file before it, which never changes."""
    by_queue: dict[str, dict[int, set[str]]] = {}
    found: dict[tuple[str, int | None], str] = {}
    for name, before in names:
        found[name, before] = name
        if before is not None:
            by_queue.setdefault(part_of(name), {}).setdefault(before, set()).add(name)
    for queue, files in by_queue.items():
        numbers = sorted(files)
        for before, following in zip(numbers, [*numbers[1:], None], strict=True):
            rotated = [name for name in files[before] if name != queue]
            name = queue if following is None else rotated_name(queue, following)
            for each in files[before]:
                found[each, before] = max(rotated, default=name)
    return found


# --- files ----------------------------------------------------------------------------------------------------------


class FileWriter:
    """Writes one file of a queue."""

    def __init__(self, directory: Path, file: str, *, disk: Disk = REAL_DISK) -> None:
        part_of(file)
        if len(file.encode()) > _MAX_NAME_BYTES:
            raise WrongUse(f"{file!r} is longer than a file's name can be")
        self._disk = disk
        self._name = file
        self._directory = directory
        make_directories(disk, directory)
        self._file = disk.open(directory / file, "create")
        self._size = 0
        self._records = 0
        self._before: int | None = None
        self._end = 0
        """Where the operations end that there are by now, in the file that the tables were made of."""
        self._gaps: list[tuple[int, int]] = []

    def append_batch(self, batch: Any) -> None:
        """Add rows of the table `events`, which must be of this file and in the order of their positions."""
        if not batch.num_rows:
            return
        room = find_format("kestrel").room("tables")
        self._check_file(batch.column("sequence").to_pylist())
        columns: list[Columns] = room.operations(batch)
        positions, sizes = batch.column("position").to_pylist(), batch.column("size").to_pylist()
        for position, size in zip(positions, sizes, strict=True):
            if position < self._end:
                reason = f"the tables have two operations here, one of them ends at {self._end}"
                raise DamagedJournal(self._name, position, reason)
            if position > self._end:
                self._gaps.append((self._end, position))
            self._end = position + size
        grown = sum(self._append(part) for part in columns)
        if grown != sum(sizes):
            reason = f"the tables say that operations from here on have {sum(sizes)} bytes, and they have {grown}"
            raise DamagedJournal(self._name, positions[0], reason)
        self._records += batch.num_rows

    def _check_file(self, sequences: list[int | None]) -> None:
        found = set(sequences)
        if self._records:
            found.add(self._before)
        if len(found) > 1:
            raise DamagedJournal(self._name, self._end, "the tables have operations of several files under this name")
        self._before = sequences[0]

    def _append(self, part: Columns) -> int:
        """Write operations; how many bytes those were."""
        kinds = bytes(part.kinds or b"")[: part.count]
        dialect = KESTREL2 if any(kind in _OF_KESTREL2 for kind in kinds) else DOCUMENTED
        row, before = 0, self._size
        while row < part.count:
            data, _, row = kernel.pack(part, row, BUFFER_BYTES, dialect, 0)
            write_all(self._file, self._size, data)
            self._size += len(data)
        return self._size - before

    def finish(self) -> list[Written]:
        """The file, on the disk."""
        self._file.sync()
        self._file.close()
        self._disk.sync_directory(self._directory)
        first = (self._before or 0) << POSITION_BITS
        gaps = tuple((first + start, first + end) for start, end in self._gaps)
        return [Written(self._name, first, first + self._end, self._records, self._size, gaps=gaps)]

    def discard(self) -> None:
        """Close what is open."""
        with contextlib.suppress(LogwrightError):
            self._file.close()


def missing(written: Sequence[Written], extents: Mapping[str, int]) -> list[Missing]:
    """What is missing within files, and behind the last operation of a queue whose only file ended further on."""
    return numbered_missing(written, extents, part_of)


def write_consumers(directory: Path, part: str, offsets: Mapping[str, int | None], *, disk: Disk = REAL_DISK) -> None:
    """Refuse: there are none."""
    if offsets:
        raise WrongUse(f"the queue {part} has consumers in these tables, and queues have none")
