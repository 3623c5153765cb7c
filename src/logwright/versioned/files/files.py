"""The files of a store: which name is what, which of them count, in which order, and how their entries are numbered.

The number of an entry is the time at which its journal was initialized, which is that in the name of the archive before
it, times 2^64, plus its position in its file, which for an archive is that in what was compressed. So the numbers of
entries do not change for as long as their file is there, whether it becomes an archive or older ones are removed; but
where an archive has to get a later name than it should have, they do, and `places.py` finds a place again. In a file
that is read alone, numbers are positions.

Names are matched as a whole, and nothing in a name leads out of the directory.
"""

from __future__ import annotations

import enum
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...core.io.disk import Disk
from ...core.io.file_names import list_beginning
from ...core.read.chunk import NumberedFile
from ...errors import WrongUse
from ..bytes.layout import (
    ARCHIVE_SUFFIX,
    HOME_DIRECTORY,
    JOURNAL_SUFFIX,
    LOCK_SUFFIX,
    MAX_TIMESTAMP,
    OLD_SUFFIX,
    TEMPORARY_SUFFIX,
)

MOST_TAKEN_NS: Final = 64
"""How much later than its end the name of an archive may be: that many names would be taken."""

MAX_STORE_NAME_BYTES: Final = 255 - len(f"{JOURNAL_SUFFIX}.t{MAX_TIMESTAMP}{ARCHIVE_SUFFIX}{TEMPORARY_SUFFIX}")
"""A file's name has 255 bytes at most, and no file of a store has a longer one than an archive that is being made."""
_STORE_NAME: Final = re.compile(r"[^./\x00][^/\x00]*", re.DOTALL)
_FILE_NAME: Final = re.compile(
    r"(?P<store>[^./\x00][^/\x00]*)\.jrn"
    r"(?P<rest>|\.tmp|\.old|\.t(?P<timestamp>0|[1-9][0-9]{0,19})\.zz(?P<temporary>\.tmp)?)",
    re.DOTALL,
)


def agree(ended: int | None, begun: int) -> bool:
    """Whether a journal began when the one before it ended by its name, which may be a little late.

    Logwright's journals do. Other programs name an archive by the latest key that is left, and let the next journal
    begin when they rotate.
    """
    return ended is not None and 0 <= ended - begun <= MOST_TAKEN_NS


class Kind(enum.Enum):
    """What a file of a store is."""

    ACTIVE = "active"
    ARCHIVE = "archive"
    OLD = "old"
    TEMPORARY = "temporary"
    TEMPORARY_ARCHIVE = "temporary archive"


def check_store_name(name: str) -> str:
    """The name itself if a store may have it, or `WrongUse`."""
    if not isinstance(name, str) or not _STORE_NAME.fullmatch(name):
        raise WrongUse(f"a store cannot be called {name!r}: no slash, and no dot at the beginning")
    try:
        size = len(os.fsencode(name))
    except UnicodeEncodeError:
        raise WrongUse(f"a store cannot be called {name!a}: no file can have such a name") from None
    if size > MAX_STORE_NAME_BYTES:
        raise WrongUse(f"a store cannot be called {name[:40]!r}…: {MAX_STORE_NAME_BYTES} bytes is the most")
    return name


def parse_name(name: str) -> tuple[str, Kind, int | None] | None:
    """The store that a file belongs to, what it is, and the time in its name; None for any other name."""
    match = _FILE_NAME.fullmatch(name)
    if match is None:
        return None
    store, rest = match["store"], match["rest"]
    if match["timestamp"] is not None:
        timestamp = int(match["timestamp"])
        if timestamp > MAX_TIMESTAMP:
            return None
        return store, Kind.TEMPORARY_ARCHIVE if match["temporary"] else Kind.ARCHIVE, timestamp
    return store, {"": Kind.ACTIVE, OLD_SUFFIX: Kind.OLD, TEMPORARY_SUFFIX: Kind.TEMPORARY}[rest], None


def active_name(store: str) -> str:
    """The name of the active journal."""
    return store + JOURNAL_SUFFIX


def old_name(store: str) -> str:
    """The name of the journal that waits to become an archive."""
    return active_name(store) + OLD_SUFFIX


def temporary_name(store: str) -> str:
    """The name of the next journal while it is made."""
    return active_name(store) + TEMPORARY_SUFFIX


def archive_name(store: str, timestamp: int) -> str:
    """The name of the archive that ends with the entry of a time."""
    return f"{active_name(store)}.t{timestamp}{ARCHIVE_SUFFIX}"


def temporary_archive_name(store: str, timestamp: int) -> str:
    """The name of an archive while it is made."""
    return archive_name(store, timestamp) + TEMPORARY_SUFFIX


def lock_name(store: str) -> str:
    """The path of a store's lock, relative to its directory."""
    return f"{HOME_DIRECTORY}/{store}{LOCK_SUFFIX}"


@dataclass(frozen=True, slots=True)
class JournalFile(NumberedFile):
    """A file of a store. `timestamp` is when it ended, None for the newest; `before` when the one before it did.

    By names alone these are the times in the names of archives. Once the files are in order (see `surroundings.py`) a
    journal ends when the next one begins, whatever its name says.
    `name` is relative to the store's directory; `compressed` says that its bytes are zlib's.
    """

    store: str
    name: str
    path: Path
    timestamp: int | None = None
    before: int = 0
    compressed: bool = False

    @property
    def ended(self) -> int | None:
        """When it ended by its name, if that says so."""
        parsed = parse_name(self.name)
        return self.timestamp if parsed is None or parsed[2] is None else parsed[2]


@dataclass(slots=True)
class Listing:
    """What is there of a store, by names alone: archives by their time, and the other files if they are there."""

    store: str
    directory: Path
    archives: list[int] = field(default_factory=list)
    has_active: bool = False
    has_old: bool = False
    has_temporary: bool = False
    temporary_archives: list[int] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is there that a journal could be read from."""
        return not (self.archives or self.has_active or self.has_old)

    def path(self, name: str) -> Path:
        """The path of a file."""
        return self.directory / name

    def archive_files(self) -> list[JournalFile]:
        """The archives, oldest first."""
        found = []
        before = 0
        for timestamp in self.archives:
            name = archive_name(self.store, timestamp)
            found.append(JournalFile(self.store, name, self.directory / name, timestamp, before, compressed=True))
            before = timestamp
        return found

    @property
    def lacks_newest(self) -> bool:
        """Whether there are archives, and neither the journal after them nor one that a rotation has put away."""
        return bool(self.archives) and not self.has_active and not self.has_old

    @property
    def last_timestamp(self) -> int:
        """The time of the newest archive, 0 when there is none."""
        return self.archives[-1] if self.archives else 0


def list_files(disk: Disk, directory: Path, store: str) -> Listing:
    """What is there of one store."""
    beginning = active_name(store)  # a directory may well have thousands of stores: most names are quickly excluded
    return arrange(directory, store, list_beginning(disk, directory, beginning))


def list_stores(disk: Disk, directory: Path) -> list[str]:
    """The stores that have a journal in a directory, by name. A directory is no file of a store."""
    return list(list_all(disk, directory))


def list_all(disk: Disk, directory: Path) -> dict[str, Listing]:
    """What is there of every store that has a journal in a directory, by name; the directory is listed once."""
    names: dict[str, list[str]] = {}
    there = set()
    for name in disk.list_directory(directory):
        parsed = parse_name(name)
        if parsed is None:
            continue
        names.setdefault(parsed[0], []).append(name)
        if parsed[0] in there or parsed[1] in (Kind.TEMPORARY, Kind.TEMPORARY_ARCHIVE):
            continue
        if not disk.is_directory(directory / name):
            there.add(parsed[0])
    return {store: arrange(directory, store, names[store]) for store in sorted(there)}


def arrange(directory: Path, store: str, names: list[str]) -> Listing:
    """The listing of a store out of the names in its directory."""
    listing = Listing(store, directory)
    for name in names:
        parsed = parse_name(name)
        if parsed is None or parsed[0] != store:
            continue
        _, kind, timestamp = parsed
        if kind is Kind.ACTIVE:
            listing.has_active = True
        elif kind is Kind.OLD:
            listing.has_old = True
        elif kind is Kind.TEMPORARY:
            listing.has_temporary = True
        elif timestamp is not None:
            (listing.archives if kind is Kind.ARCHIVE else listing.temporary_archives).append(timestamp)
    listing.archives.sort()
    listing.temporary_archives.sort()
    return listing
