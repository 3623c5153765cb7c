"""Snapshot: the files of a queue as they were at one moment, open for reading.

A writer may rotate the newest file, or put a pack in the place of others, while somebody reads. So the files are
listed, opened, and listed again: if nothing has changed meanwhile they belong together, and an open file stays what it
is, whatever becomes of its name. Only of a queue with very many files some are opened later, by their names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from ...core.disk import Disk, File
from ...core.errors import LogwrightError, NotFound
from .files import JournalFile

_MOST_OPEN: Final = 128
_ATTEMPTS: Final = 20


class Snapshot:
    """Files in their order. `file` gives an open one, or raises what kept it from being opened."""

    def __init__(self, disk: Disk, files: list[JournalFile]) -> None:
        self.files = files
        self._disk = disk
        self._open: dict[str, File] = {}
        self._failed: dict[str, LogwrightError] = {}

    def open_all(self) -> None:
        """Open the files, as many as is reasonable."""
        for source in self.files[-_MOST_OPEN:]:
            try:
                self._open[source.name] = self._disk.open(source.path, "read")
            except LogwrightError as error:
                self._failed[source.name] = error

    def file(self, source: JournalFile) -> File:
        """The file itself."""
        if source.name in self._failed:
            raise self._failed[source.name]
        found = self._open.get(source.name)
        if found is None:
            found = self._open[source.name] = self._disk.open(source.path, "read")
        return found

    def done_with(self, source: JournalFile) -> None:
        """Close a file that will not be needed soon, if there are so many that it matters."""
        if len(self.files) > _MOST_OPEN and source.name in self._open:
            self._open.pop(source.name).close()

    def size(self, source: JournalFile) -> int:
        """How large a file is; 0 where it cannot be told, which reading it will."""
        try:
            return self.file(source).size()
        except LogwrightError:
            return 0

    def close(self) -> None:
        """Close the files."""
        with contextlib.ExitStack() as stack:
            for file in self._open.values():
                stack.callback(file.close)
            self._open = {}


@contextmanager
def snapshot(disk: Disk, listed: Callable[[], list[JournalFile]]) -> Iterator[Snapshot]:
    """The files that `listed` tells of, open for as long as the block runs."""
    files = listed()
    for _ in range(_ATTEMPTS):
        found = Snapshot(disk, files)
        try:
            found.open_all()
            again = listed()
            if again == files:
                yield found
                return
            files = again
        finally:
            found.close()
    where = files[0].path.parent if files else "the queue"
    raise NotFound(f"{where}: its files change faster than they can be opened")
