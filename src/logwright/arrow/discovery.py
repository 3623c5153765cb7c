"""Find journals at or below a path, and name them.

Every directory is visited once, even if several links lead to it: under its own name if it is below the path, otherwise
under the first link to it. Names are unique text: see `core/io/file_names.py`.

A directory that cannot be read is passed to the callback `refused`; without one it is an error. With a callback
`elsewhere` the search stays on one file system: the name of each directory on another one is passed to it instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ..core.format import Format, detect, find_format, is_there
from ..core.format import open_journal as open_any
from ..core.io.disk import Disk
from ..core.io.file_names import printed
from ..errors import NotFound, StorageFailed, UnknownFormat
from ..location import is_local, joined, locate, without_secrets

Refused: TypeAlias = Callable[[str, StorageFailed], None]
"""Called with the name of what cannot be read and the error, which it may raise."""
Elsewhere: TypeAlias = Callable[[str], None]
"""Called with the name of a directory on another file system."""


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal: its format, its location, and its name below the search path."""

    format: str
    location: str
    name: str


def open_journal(journal: Journal) -> Any:
    """Open a reader of a journal at any location."""
    disk, path = locate(journal.location)
    return open_any(path, journal.format, disk=disk)


def find_journals(location: str, format: str | None, refused: Refused | None = None) -> list[Journal]:
    """The journals at or below a location, in the order of their names; of one format, or of any."""
    found = list_journals(location, format, refused)
    if not found:
        kind = format or "any known format"
        raise UnknownFormat(f"{without_secrets(location)}: no journal of {kind} is at or below this path")
    return found


def list_journals(
    location: str, format: str | None, refused: Refused | None = None, elsewhere: Elsewhere | None = None
) -> list[Journal]:
    """As `find_journals`, but the result may be empty."""
    disk, root = locate(location)
    if not is_there(disk, root):
        raise NotFound(f"{without_secrets(location)}: no such file or directory")
    search = _Search(disk, format, refused, elsewhere)
    found = search.look_at(root, location, "", by_link=True)
    while search.links:
        found += search.try_at(*search.links.pop(0), by_link=True)
    return sorted(found, key=lambda journal: journal.location.split("/"))


class _Search:
    """One search. `links` to directories are followed last: a directory's own name takes precedence."""

    def __init__(self, disk: Disk, format: str | None, refused: Refused | None, elsewhere: Elsewhere | None) -> None:
        self.links: list[tuple[Path, str, str]] = []
        self._disk = disk
        self._format = format
        self._refused = refused
        self._elsewhere = elsewhere
        self._device: int | None = None  # that of the first directory
        self._seen: set[str] = set()
        self._closed: set[str] = set()  # directories that are journals, with their contents

    def try_at(
        self, path: Path, location: str, name: str, *, by_link: bool = False, only_directories: bool = False
    ) -> list[Journal]:
        """As `look_at`, but ignores paths that are gone or cannot be read."""
        try:
            return self.look_at(path, location, name, by_link=by_link, only_directories=only_directories)
        except NotFound:  # removed in the meantime
            return []
        except StorageFailed as error:
            if self._refused is None:
                raise
            self._refused(printed(name), error)
            return []

    def look_at(
        self, path: Path, location: str, name: str, *, by_link: bool = False, only_directories: bool = False
    ) -> list[Journal]:
        """Add the directory if it is a journal, and search it. What is not recognised is not a journal.

        The contents of a directory that is a journal belong to it, unless journals of its format are single files.
        """
        if not self._disk.is_directory(path):
            chosen = None if only_directories else self._detect(path)
            return self._journals(chosen, path, location, name)
        if not by_link and self._disk.is_link(path):
            self.links.append((path, location, name))
            return []
        real = os.path.realpath(path) if is_local(self._disk) else location
        is_within = by_link and any(str(above) in self._closed for above in Path(real).parents)
        if real in self._seen or is_within:
            return []
        self._seen.add(real)
        if self._elsewhere is not None and self._is_elsewhere(Path(real)):
            self._elsewhere(printed(name))
            return []
        chosen = self._detect(path)
        found = self._journals(chosen, path, location, name)
        if chosen is not None and not chosen.flat:
            self._closed.add(real)
            return found
        return self._look_into(path, location, name, found, only_directories=chosen is not None)

    def _is_elsewhere(self, directory: Path) -> bool:
        """Whether a directory is on another file system than the first one."""
        identity = self._disk.identity(directory)
        device = None if identity is None else identity[0]
        if self._device is None:
            self._device = device
        return device != self._device

    def _detect(self, path: Path) -> Format | None:
        try:
            return detect(path, disk=self._disk)
        except UnknownFormat:
            return None
        except StorageFailed as error:
            # An unreadable link does not make its directory unreadable; it is reported by itself.
            if self._refused is None or Path(error.path).parent != path or not self._disk.is_link(Path(error.path)):
                raise
            return None

    def _journals(self, chosen: Format | None, path: Path, location: str, name: str) -> list[Journal]:
        if chosen is None or self._format not in (None, chosen.name):
            return []
        return [Journal(chosen.name, location, printed(name or path.name))]

    def _look_into(
        self, path: Path, location: str, name: str, found: list[Journal], *, only_directories: bool
    ) -> list[Journal]:
        """Add the journals found, and search a directory."""
        seen = {location}
        for entry in self._disk.list_directory(path):
            if entry.startswith("."):
                continue
            below = joined(location, entry)
            called = f"{name}/{entry}" if name else entry
            for journal in self.try_at(path / entry, below, called, only_directories=only_directories):
                if journal.location == below:
                    journal = _as_a_whole(self._disk, path / entry, journal, location)
                if journal.location not in seen:
                    found.append(journal)
                    seen.add(journal.location)
        return found


def _as_a_whole(disk: Disk, path: Path, journal: Journal, directory: str) -> Journal:
    """The journal that a file belongs to if its directory may have several: one queue is one journal."""
    if not find_format(journal.format).flat or disk.is_directory(path):
        return journal
    whole = find_format(journal.format).journal_of(path.name)
    name = f"{journal.name.rpartition('/')[0]}/{printed(whole)}".lstrip("/")
    return Journal(journal.format, joined(directory, whole), name)
