"""ReadBehind: the place in the journal from which a queue reads the items that do not fit in memory.

Items leave a queue at the head, so those that are not in memory were added last, and are in the files in their order.
One place is enough to find them: the number of the file, and a position.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...core.io.disk import Disk, File
from ...errors import DamagedJournal
from ..bytes import codec
from ..files.cursor import Cursor
from ..files.files import JournalFile
from ..files.survey import effects_of

Stock = Callable[..., int]
"""The type of `Shelf.stock`."""


class ReadBehind:
    """A place in the files of a queue. `timestamp` is the number of the file, None for the newest.

    `following` returns the number of the file after one. The file is opened when it is read, and stays readable if it
    is renamed or removed.
    """

    def __init__(
        self,
        disk: Disk,
        queue: str,
        dialect: int,
        following: Callable[[int], int | None],
        path_of: Callable[[int | None], Path],
        timestamp: int | None,
        position: int,
    ) -> None:
        self.timestamp = timestamp
        self._disk = disk
        self._queue = queue
        self._dialect = dialect
        self._following = following
        self._path_of = path_of
        self._position = position
        self._file: File | None = None
        self._cursor: Cursor | None = None

    def stock(self, stock: Stock, most_items: int, most_bytes: int) -> bool:
        """Read the next operations and stock a shelf with their items; False at the end of the newest file."""
        cursor = self._opened()
        chunk = cursor.read()
        if chunk is None:
            return self._at_end(cursor)
        effects = effects_of(chunk)
        passed = stock(
            chunk.data,
            chunk.base,
            effects.kinds,
            effects.numbers,
            effects.positions,
            effects.end,
            most_items,
            most_bytes,
        )
        if passed < len(effects.kinds):
            cursor.position = effects.positions[passed]
        elif effects.is_last:
            self._next_file()
        return True

    def skip(self, items: int) -> None:
        """Skip this number of items of the file."""
        cursor = self._opened()
        while items:
            chunk = cursor.read(load=False)
            if chunk is None:
                raise DamagedJournal(cursor.source.path, cursor.position, f"{items} more items should be here")
            effects = effects_of(chunk)
            rows = effects.adds()
            if len(rows) > items:
                cursor.position = effects.positions[rows[items]]
                return
            items -= len(rows)

    def open(self, path: Path) -> None:
        """Open the file by a path that it may not keep."""
        self._file = self._disk.open(path, "read")
        source = JournalFile(self._queue, path.name, path, self.timestamp)
        self._cursor = Cursor(self._file, source, self._position, dialect=self._dialect)

    def _opened(self) -> Cursor:
        if self._cursor is None:
            self.open(self._path_of(self.timestamp))
            assert self._cursor is not None
        return self._cursor

    def _at_end(self, cursor: Cursor) -> bool:
        if self.timestamp is None:
            return False  # there may be an incomplete operation that is being written
        if cursor.ending != codec.CLEAN:
            reason = f"{cursor.reason} (see logwright verify and logwright repair)"
            raise DamagedJournal(cursor.source.path, cursor.position, reason)
        self._next_file()
        return True

    def _next_file(self) -> None:
        """Go to the beginning of the next file."""
        assert self.timestamp is not None
        self.close()
        self.timestamp, self._position = self._following(self.timestamp), 0

    @property
    def position(self) -> int:
        """Where in the file the next operation begins."""
        return self._position if self._cursor is None else self._cursor.position

    def close(self) -> None:
        """Close the file."""
        self._position = self.position
        self._cursor = None
        file, self._file = self._file, None
        if file is not None:
            file.close()
