"""Snapshot: the files of a journal as they were at one moment, open for reading.

A writer may rotate the newest file, or put another in the place of several, while somebody reads. So the files are
listed, opened, and listed again: if nothing has changed meanwhile they belong together, and an open file stays what it
is, whatever becomes of its name. Only of a journal with very many files some are opened later, by their names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from ...errors import LogwrightError, NotFound
from ..io.disk import Disk, File

_MOST_OPEN: Final = 128
_ATTEMPTS: Final = 20


class Listed(Protocol):
    """A file of a journal, as its format lists it. Two that are equal are the same file in the same place."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> Path: ...


F = TypeVar("F", bound=Listed)


class Snapshot(Generic[F]):
    """Files in their order. `file` gives an open one, or raises what kept it from being opened."""

    def __init__(self, disk: Disk, files: list[F]) -> None:
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

    def file(self, source: F) -> File:
        """The file itself."""
        if source.name in self._failed:
            raise self._failed[source.name]
        found = self._open.get(source.name)
        if found is None:
            found = self._open[source.name] = self._disk.open(source.path, "read")
        return found

    def keep(self, source: F) -> File:
        """The file itself, for whoever closes it: it stays open when the others are closed."""
        found = self.file(source)
        del self._open[source.name]
        return found

    def done_with(self, source: F) -> None:
        """Close a file that will not be needed soon, if there are so many that it matters."""
        if len(self.files) > _MOST_OPEN and source.name in self._open:
            self._open.pop(source.name).close()

    def size(self, source: F) -> int:
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
def snapshot(disk: Disk, listed: Callable[[], list[F]], where: Path) -> Iterator[Snapshot[F]]:
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
    raise NotFound(f"{where}: its files change faster than they can be opened")
