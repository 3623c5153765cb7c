"""Restoring queues from tables: the same operations in the same files.

The name and fields of an operation determine its bytes, in both dialects, and a file has only consecutive operations.
So an undamaged journal is restored byte for byte, with its rotated and empty files, and the operations after a state
dump. Damaged bytes are not in the tables: the operations after them directly follow those before them. A replay that
continues after damage does the same, so the queue has the same state.

Tables that grew by increments may have the operations of a file under two names: that of the newest file, and the name
after its rotation. `settled` returns the final name: every operation of the next file has the number of this one.

A journal is always a directory: a queue that was found as a single file is restored to a directory of that name, with
its files in it. Locks and the copies of cut bytes (`.logwright/`) are not restored. Queues have no consumers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ...core.io.disk import REAL_DISK, Disk
from ...core.publish.restore import Restore, RestoredFile
from ...errors import WrongUse
from ..bytes import kernel
from ..bytes.codec import Columns
from ..bytes.layout import DOCUMENTED, KESTREL2, TEMPORARY, parse_name, rotated_name
from ..bytes.records import DIALECT_OF, OPS
from ..files.writer import BUFFER_BYTES

_OF_KESTREL2: Final = bytes(OPS[op] for op, dialect in DIALECT_OF.items() if dialect == "kestrel2")
_MAX_NAME_BYTES: Final = 255


def part_of(file: str) -> str:
    """The queue that a file belongs to."""
    parsed = parse_name(file)
    if parsed is not None:
        return parsed[0]
    if not file or file.startswith(".") or {"/", "\0"} & set(file) or TEMPORARY in file:
        raise WrongUse(f"{file!r} cannot be the name of a file of a queue")
    return file


class FileWriter(RestoredFile):
    """Writes one file of a queue."""

    records_name = "operations"

    def __init__(self, directory: Path, file: str, *, disk: Disk = REAL_DISK) -> None:
        part_of(file)
        if len(file.encode()) > _MAX_NAME_BYTES:
            raise WrongUse(f"{file!r} is too long for a file name")
        super().__init__(directory, file, disk=disk)

    def _encoded(self, batch: Any) -> Iterator[bytes]:
        from .spark_columns import operations

        columns = operations(batch)
        return packed(columns)


def packed(columns: list[Columns]) -> Iterator[bytes]:
    """The bytes of operations."""
    for part in columns:
        kinds = bytes(part.kinds or b"")[: part.count]
        dialect = KESTREL2 if any(kind in _OF_KESTREL2 for kind in kinds) else DOCUMENTED
        row = 0
        while row < part.count:
            data, _, row = kernel.pack(part, row, BUFFER_BYTES, dialect, 0)
            yield data


class QueueRestore(Restore):
    """Files of queues."""

    renames_files = True

    def part_of(self, file: str) -> str:
        return part_of(file)

    def writer(self, directory: Path, file: str, *, disk: Disk, listed: Sequence[str] = ()) -> FileWriter:
        return FileWriter(directory, file, disk=disk)

    def settled(self, names: Iterable[tuple[str, int | None]]) -> dict[tuple[str, int | None], str]:
        """The final name of each file by a name that it had and the number of the file before it, which is constant."""
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


RESTORE: Final = QueueRestore()
