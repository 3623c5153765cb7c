"""Snapshot: the files of a journal as they were at one moment, open for reading.

A writer may rotate the newest file, or replace several files by one, during reading. So the files are listed, opened,
and listed again: if nothing has changed they belong together, and an open file stays readable when its name changes. If
a journal has very many files, some are opened later, by their names.
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
    """A file of a journal, as its format lists it. Equal objects are the same file in the same place."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> Path: ...


F = TypeVar("F", bound=Listed)


class Snapshot(Generic[F]):
    """Files in their order. `file` returns an open file, or raises the error of opening it."""

    def __init__(self, disk: Disk, files: list[F]) -> None:
        self.files = files
        self._disk = disk
        self._open: dict[str, File] = {}
        self._failed: dict[str, LogwrightError] = {}

    def open_all(self) -> None:
        """Open the files, at most `_MOST_OPEN` of them."""
        for source in self.files[-_MOST_OPEN:]:
            try:
                self._open[source.name] = self._disk.open(source.path, "read")
            except LogwrightError as error:
                self._failed[source.name] = error

    def file(self, source: F) -> File:
        """The open file."""
        if source.name in self._failed:
            raise self._failed[source.name]
        found = self._open.get(source.name)
        if found is None:
            found = self._open[source.name] = self._disk.open(source.path, "read")
        return found

    def keep(self, source: F) -> File:
        """The open file. The caller closes it: `close` does not."""
        found = self.file(source)
        del self._open[source.name]
        return found

    def done_with(self, source: F) -> None:
        """Close a file that is not needed soon, if there are more than `_MOST_OPEN`."""
        if len(self.files) > _MOST_OPEN and source.name in self._open:
            self._open.pop(source.name).close()

    def size(self, source: F) -> int:
        """The size of a file; 0 if it cannot be opened, which reading it will report."""
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
    """The files that `listed` returns, open until the end of the block."""
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
