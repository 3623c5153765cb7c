"""Which files of a store count for a reader, whatever step of a rotation a crash has left them in.

    active                        the active journal
    old, no active                the old journal is the active one: the new one had not got its name yet. Without
                                  a whole `.tmp` it may have been lost (`stands_in`)
    neither                       the archives: the active one is missing
    old and a whole active        the old one ended when the active one was initialized, or at the next time that no
                                  archive has in its name; it counts until an archive with the same content is there.
                                  One that has only its beginning was not finished, and does not count
    old and an active one that    the old one is the truth; if its beginning is damaged as well, both count
    has no whole beginning

What is temporary never counts. Nothing is changed here: opening the store brings the files in order.

The order of the files is that in which they became active. The times in the names of Logwright's archives say it. Other
programs name an archive by the latest key that is left in it, so that names may go down, and entries may be later than
the name of their archive: there the journals themselves say when they began.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

from ...core.bytes.outcome import Malformed
from ...core.io.disk import Disk
from ...errors import LogwrightError
from ..bytes.codec import decode_header, decode_metadata
from ..bytes.layout import HEADER_BYTES, MAX_TIMESTAMP
from ..bytes.records import Metadata
from .archiving import archives_of_old, initialized_of, is_whole_archive
from .cursor import Chunk, Cursor, Head
from .files import MOST_TAKEN_NS, JournalFile, Listing, active_name, agree, archive_name, old_name, temporary_name

_HEAD_BYTES = 64 << 10


def counting_files(disk: Disk, listing: Listing) -> list[JournalFile]:
    """The files of a store that hold its journals, oldest first."""
    listing = _looked_again(disk, listing)
    files = listing.archive_files()
    has_active = listing.has_active and not disk.is_directory(listing.path(active_name(listing.store)))
    if not listing.has_old:
        return [*files, _newest(listing, active_name(listing.store))] if has_active else files
    if not has_active:
        return [*files, _newest(listing, old_name(listing.store))]
    active = read_metadata(disk, listing, active_name(listing.store))
    if active is None:
        if read_metadata(disk, listing, old_name(listing.store)) is not None:
            return [*files, _newest(listing, old_name(listing.store))]
        return [*files, *_both_damaged(disk, listing)]
    finished, half = _archives_of_old(disk, listing, active.initialized)
    if half:
        listing = replace(listing, archives=[timestamp for timestamp in listing.archives if timestamp not in half])
        files = listing.archive_files()
    if not finished:
        name, ended = old_name(listing.store), _free_time(listing, active.initialized)
        files.append(JournalFile(listing.store, name, listing.path(name), ended, listing.last_timestamp))
    before = files[-1].timestamp or 0
    return [*files, _newest(listing, active_name(listing.store), before)]


def _both_damaged(disk: Disk, listing: Listing) -> list[JournalFile]:
    """The old journal and the active one, if neither has a whole beginning: the old one ends with its last entry."""
    name = old_name(listing.store)
    old = JournalFile(listing.store, name, listing.path(name), MAX_TIMESTAMP, listing.last_timestamp)
    try:
        with closing(disk.open(old.path, "read")) as file:
            last = max((item.largest for item in Cursor(file, old).items() if isinstance(item, Chunk)), default=0)
    except LogwrightError:
        last = 0
    ended = _free_time(listing, max(last, listing.last_timestamp))
    return [replace(old, timestamp=ended), _newest(listing, active_name(listing.store), ended)]


def stands_in(disk: Disk, listing: Listing) -> str:
    """Why `.old` is read in the place of the active journal, if that may have been lost; else empty.

    An interrupted rotation leaves `.old` without an active journal, but with all of the next one in `.tmp`.
    """
    name = active_name(listing.store)
    if not listing.has_old or read_metadata(disk, listing, old_name(listing.store)) is None:
        return ""
    if not listing.has_active:
        if _has_next(disk, listing) or disk.exists(listing.path(name)):  # a rotation may end after the listing
            return ""
        return "it is missing, and no interrupted rotation explains that"
    return "" if read_metadata(disk, listing, name) is not None else "it does not begin like a journal"


def _has_next(disk: Disk, listing: Listing) -> bool:
    """Whether `.tmp` is a journal that a rotation has finished: whole, with only the state that it begins with.

    A rotation syncs it before it gives `.old` its name.
    """
    name = temporary_name(listing.store)
    begun = read_metadata(disk, listing, name)
    if begun is None:
        return False
    source = JournalFile(listing.store, name, listing.path(name))
    try:
        with closing(disk.open(source.path, "read")) as file:
            return all(
                isinstance(item, Head) or (isinstance(item, Chunk) and item.largest <= begun.initialized)
                for item in Cursor(file, source).items()
            )
    except LogwrightError:
        return False


def _looked_again(disk: Disk, listing: Listing) -> Listing:
    """The listing, unless it has missed both names of the newest journal while that was rotated."""
    if not listing.lacks_newest:
        return listing
    active, old = listing.path(active_name(listing.store)), listing.path(old_name(listing.store))
    is_active, is_old = disk.exists(active), disk.exists(old)
    return replace(listing, has_active=is_active or disk.exists(active), has_old=is_old)


def _free_time(listing: Listing, ended: int) -> int:
    """The time that the archive of the old journal will have in its name: numbers are the same before and after."""
    while ended in listing.archives:
        ended += 1
    return ended


def _archives_of_old(disk: Disk, listing: Listing, active_begun: int) -> tuple[list[int], list[int]]:
    try:
        return archives_of_old(disk, listing, active_begun)
    except LogwrightError:  # it is gone by now, or cannot be read: then by its name
        return [active_begun] if active_begun in listing.archives else [], []


class Beginnings:
    """Since when journals were active, as they say themselves; None where that cannot be read.

    An archive is asked once: its name never gets another content.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._archives: dict[str, int | None] = {}
        self._whole: dict[str, bool] = {}

    def __call__(self, source: JournalFile) -> int | None:
        if source.name in self._archives:
            return self._archives[source.name]
        try:
            begun = initialized_of(self._disk, source.path, compressed=source.compressed)
        except LogwrightError:
            return None
        if source.compressed:
            self._archives[source.name] = begun
        return begun

    def is_proven(self, source: JournalFile) -> bool:
        """Whether a journal is an archive whose checksum fits."""
        if source.name not in self._whole:
            self._whole[source.name] = source.compressed and is_whole_archive(self._disk, source.path)
        return self._whole[source.name]


def in_order(
    files: list[JournalFile],
    begun: Callable[[JournalFile], int | None],
    is_proven: Callable[[JournalFile], bool],
) -> list[JournalFile]:
    """Files in the order in which they became active; each ends when the next one begins.

    `files` are in the order of their names, `begun` gives when one became active, None where that cannot be read: then
    its name counts. So it does where the next journal began when this one ended by its name, and what this one says
    does not lie between the two names and is not proven: it is damaged. `.old` has no time in its name, and the archive
    before it may have a wrong one: it must only have begun after that. Where the names say the same as the files,
    nothing changes; the first one must have begun before it ended by its name.
    """
    starts = {file.name: begun(file) for file in files}
    earliest = 0
    for file, following in pairwise(files):
        start, next_start, ended = starts[file.name], starts[following.name], file.ended or 0
        is_named = next_start is not None and agree(ended, next_start)
        first = file.before - MOST_TAKEN_NS if file.compressed else earliest
        is_between = start is None or first <= start <= ended
        if is_named and not is_between and not is_proven(file):
            starts[file.name] = None
        earliest = start or 0
    first_ended = files[0].ended
    is_first = first_ended is None or (starts[files[0].name] or 0) <= first_ended
    known = [start for start in starts.values() if start is not None]
    if (
        is_first
        and known == sorted(known)
        and all(
            start is None or agree(one.ended, start) for one, other in pairwise(files) for start in [starts[other.name]]
        )
    ):
        return files
    by_begin = sorted(files, key=lambda file: (file.is_newest, _start(file, starts), file.ended or 0))
    placed: list[JournalFile] = []
    for file in by_begin:
        start = _start(file, starts)
        if placed:
            before = placed[-1]
            first = before.ended if before.ended is not None and agree(before.ended, start) else start
            first = max(first, before.before + 1)
            placed[-1] = replace(before, timestamp=first)
            file = replace(file, before=first)
        else:
            file = replace(file, before=0)  # as names have it: nothing is before it
        placed.append(file)
    last = placed[-1]
    if last.timestamp is not None and last.timestamp <= last.before:
        placed[-1] = replace(last, timestamp=last.before + 1)
    return placed


def _start(file: JournalFile, starts: dict[str, int | None]) -> int:
    start = starts[file.name]
    return file.before if start is None else start


def current_since(disk: Disk, listing: Listing) -> int | None:
    """Since when the active journal is that; None if the store was rotated, or lost archives, since it was listed.

    A journal that became the active one since then began later than the last archive that was there, and has put one
    there, or `.old`. So looking at a few names is enough, whatever else is in the directory; where it is not, the
    answer is None as well, and the directory must be listed again.
    """
    if listing.has_old or not listing.has_active:
        return None
    active = read_metadata(disk, listing, active_name(listing.store))
    if active is None:
        return None
    if listing.archives:
        oldest = archive_name(listing.store, listing.archives[0])
        is_same = active.initialized == listing.last_timestamp and disk.exists(listing.path(oldest))
    else:
        later = (old_name(listing.store), archive_name(listing.store, active.initialized))
        is_same = not any(disk.exists(listing.path(name)) for name in later)
    return active.initialized if is_same else None


def _newest(listing: Listing, name: str, before: int | None = None) -> JournalFile:
    before = listing.last_timestamp if before is None else before
    return JournalFile(listing.store, name, listing.path(name), None, before)


def read_metadata(disk: Disk, listing: Listing, name: str) -> Metadata | None:
    """The metadata of a journal that is not compressed; None where its beginning is not whole."""
    try:
        file = disk.open(listing.path(name), "read")
        try:
            data = file.read_at(0, _HEAD_BYTES)
        finally:
            file.close()
        header = decode_header(data)
        if not isinstance(header, tuple) or header[0].position < HEADER_BYTES:
            return None
        found = decode_metadata(data, HEADER_BYTES, min(len(data), header[0].position))
    except (LogwrightError, Malformed):
        return None
    return found[0] if isinstance(found, tuple) else None
