"""Queues: several queues in one directory, read as one, and written to by the rows of tables."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from ...core.format import Located
from ...core.io.disk import REAL_DISK, Disk
from ...core.read.parts import SideBySideReader
from ...core.write.closing import Closing
from ...errors import NotFound
from ..bytes.layout import check_queue_name, parse_name
from ..bytes.records import Dialect, Operation
from .files import list_queues
from .reader import ROW_FIELDS, Reader, operation_as_json
from .writer import Writer


class QueuesReader(SideBySideReader[Operation, Reader]):
    """All queues of a directory opened for reading. The verbs are those of `Reader`; queues come by name.

    `start` and `stop` are numbers within each queue. Queues that appear later are found by the next call.
    """

    format = "kestrel"
    part_name = "queue"
    row_fields = ROW_FIELDS

    def __init__(self, directory: Path | str, *, dialect: Dialect = "auto", disk: Disk = REAL_DISK) -> None:
        super().__init__()
        self.path = Path(directory)
        self.disk = disk
        self._dialect = dialect
        if not self.queues():
            raise NotFound(f"{self.path}: no queues are here")

    def queues(self) -> list[str]:
        """The names of the queues there are now."""
        return list_queues(self.disk, self.path)

    def open(self, queue: str) -> Reader:
        """The reader of one queue."""
        return Reader(self.path / queue, dialect=self._dialect, disk=self.disk)

    def names(self) -> list[str]:
        """The same, as all readers of several journals call it."""
        return self.queues()

    def part_of(self, file: str) -> str | None:
        """The queue that a file belongs to by its name."""
        parsed = parse_name(file)
        return None if parsed is None else parsed[0]

    operations = SideBySideReader.records

    def history(self, key: str) -> list[dict[str, Any]]:
        """What happened to the item that was added at a place; see `Reader.history`."""
        (queue,) = self.find_place(key)
        return self.open(queue).history(key)

    def as_json(self, located: Located) -> dict[str, Any]:
        """An operation as `dump --json` prints it, with its queue."""
        return {**operation_as_json(located), "queue": self.part_of(located.file) or located.file}


class QueuesWriter(Closing):
    """Appends the rows of tables to the queues of a directory, each to the one that its column `queue` names."""

    format = "kestrel"

    def __init__(self, directory: Path | str, default: str, *, disk: Disk = REAL_DISK) -> None:
        """Rows without a queue go to `default`, which is there in any case."""
        self._directory = Path(directory)
        self._default = default
        self._disk = disk
        self._writers: dict[str, Writer] = {}

    def append_batch(self, batch: Any) -> int:
        """Append the rows of an Arrow record batch; how many those were. See `Writer.append_batch`."""
        from ..tables.columns import by_queue

        parts = by_queue(batch, self._default)
        return sum(self._writer(queue).append_batch(part) for queue, part in parts)

    def _writer(self, queue: str) -> Writer:
        found = self._writers.get(queue)
        if found is None:
            check_queue_name(queue)
            found = self._writers[queue] = Writer(self._directory / queue, disk=self._disk)
        return found

    def close(self) -> None:
        """Close all queues."""
        if not self._writers:
            self._writer(self._default)
        with contextlib.ExitStack() as stack:
            for writer in self._writers.values():
                stack.callback(writer.close)
