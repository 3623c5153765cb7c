"""Finding journals at or below a path, and what each of them is called.

Every directory is looked through once, whatever links lead to it: by its own name where it is below the path, and else
by the first link to it. Names are text, each another one: see `core/io/file_names.py`.

A directory that may not be read is told to whoever asks, and is an error where nobody does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ..core.format import Format, detect, find_format, is_there
from ..core.io.disk import Disk
from ..core.io.file_names import printed
from ..errors import NotFound, StorageFailed, UnknownFormat
from ..location import is_local, locate

Refused: TypeAlias = Callable[[str, StorageFailed], None]
"""Gets the name of what cannot be looked at, and why; it may raise that."""


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal that was found: its format, where it is, and what it is called below the path that was asked for."""

    format: str
    location: str
    name: str


def open_journal(journal: Journal) -> Any:
    """A reader of a journal, wherever it is."""
    disk, path = locate(journal.location)
    return find_format(journal.format).open(path, disk=disk)


def find_journals(location: str, format: str | None, refused: Refused | None = None) -> list[Journal]:
    """The journals at or below a location, in the order of their names; of one format, or of any."""
    found = list_journals(location, format, refused)
    if not found:
        raise UnknownFormat(f"{location}: no journal of {format or 'any known format'} is here or below")
    return found


def list_journals(location: str, format: str | None, refused: Refused | None = None) -> list[Journal]:
    """As `find_journals`, but there may be none yet."""
    disk, root = locate(location)
    if not is_there(disk, root):
        raise NotFound(f"{location}: no such file or directory")
    search = _Search(disk, format, refused)
    found = search.look_at(root, location, "", by_link=True)
    while search.links:
        found += search.try_at(*search.links.pop(0), by_link=True)
    return sorted(found, key=lambda journal: journal.location.split("/"))


class _Search:
    """One search. `links` are those to directories, which are for the end: a directory's own name counts first."""

    def __init__(self, disk: Disk, format: str | None, refused: Refused | None) -> None:
        self.links: list[tuple[Path, str, str]] = []
        self._disk = disk
        self._format = format
        self._refused = refused
        self._seen: set[str] = set()
        self._closed: set[str] = set()  # directories that are journals, with all that is in them

    def try_at(
        self, path: Path, location: str, name: str, *, by_link: bool = False, only_directories: bool = False
    ) -> list[Journal]:
        """As `look_at`, but what is gone, or may not be looked at, is nothing."""
        try:
            return self.look_at(path, location, name, by_link=by_link, only_directories=only_directories)
        except NotFound:  # removed while we looked
            return []
        except StorageFailed as error:
            if self._refused is None:
                raise
            self._refused(printed(name), error)
            return []

    def look_at(
        self, path: Path, location: str, name: str, *, by_link: bool = False, only_directories: bool = False
    ) -> list[Journal]:
        """The directory itself if it is a journal, and what is in it. What cannot be recognised is not a journal.

        What is in a directory that is a journal is part of that, unless its format knows nothing but files.
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
        chosen = self._detect(path)
        found = self._journals(chosen, path, location, name)
        if chosen is not None and not chosen.flat:
            self._closed.add(real)
            return found
        return self._look_into(path, location, name, found, only_directories=chosen is not None)

    def _detect(self, path: Path) -> Format | None:
        try:
            return detect(path, disk=self._disk)
        except UnknownFormat:
            return None
        except StorageFailed as error:
            # A link out of here that may not be followed says nothing about its directory, and is told by itself.
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
        """What was found, and what is in a directory."""
        seen = {location}
        for entry in self._disk.list_directory(path):
            if entry.startswith("."):
                continue
            below = f"{location.rstrip('/')}/{entry}"
            called = f"{name}/{entry}" if name else entry
            for journal in self.try_at(path / entry, below, called, only_directories=only_directories):
                journal = journal if journal.location != below else _as_a_whole(self._disk, path, journal)
                if journal.location not in seen:
                    found.append(journal)
                    seen.add(journal.location)
        return found


def _as_a_whole(disk: Disk, directory: Path, journal: Journal) -> Journal:
    """The journal that a file in a directory belongs to, where that may have several: one queue is one journal."""
    entry = journal.location.rpartition("/")[2]
    if not find_format(journal.format).flat or disk.is_directory(directory / entry):
        return journal
    whole = find_format(journal.format).journal_of(entry)
    location, name = journal.location.removesuffix(entry) + whole, printed(whole)
    return Journal(journal.format, location, f"{journal.name.rpartition('/')[0]}/{name}".lstrip("/"))
