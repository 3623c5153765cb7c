"""Which files of a store count for a reader, whatever step of a rotation a crash has left them in.

    active                        the active journal
    old, no active                the old journal is the active one: the new one had not got its name yet
    old and a whole active        the old one ended when the active one was initialized; it counts where no archive of
                                  that time is there, which would be the same
    old and an active one that    the old one is the truth
    has no whole beginning

What is temporary never counts. Nothing is changed here: who opens the store puts the files in order.
"""

from __future__ import annotations

from ...core.disk import Disk
from ...core.errors import LogwrightError
from ...core.outcome import Malformed
from .codec import decode_header, decode_metadata
from .files import JournalFile, Listing, active_name, archive_name, old_name
from .layout import HEADER_BYTES
from .records import Metadata

_HEAD_BYTES = 64 << 10


def counting_files(disk: Disk, listing: Listing) -> list[JournalFile]:
    """The files of a store that hold its journals, oldest first."""
    files = listing.archive_files()
    has_active = listing.has_active and not disk.is_directory(listing.path(active_name(listing.store)))
    if not listing.has_old:
        return [*files, _newest(listing, active_name(listing.store))] if has_active else files
    if not has_active:
        return [*files, _newest(listing, old_name(listing.store))]
    active = read_metadata(disk, listing, active_name(listing.store))
    if active is None:
        whole = read_metadata(disk, listing, old_name(listing.store)) is not None
        return [*files, _newest(listing, (old_name if whole else active_name)(listing.store))]
    if active.initialized not in listing.archives:
        name = old_name(listing.store)
        files.append(JournalFile(listing.store, name, listing.path(name), active.initialized, listing.last_timestamp))
    before = files[-1].timestamp or 0
    return [*files, _newest(listing, active_name(listing.store), before)]


def current_since(disk: Disk, listing: Listing) -> int | None:
    """Since when the active journal is that; None if the store was rotated, or lost archives, since it was listed.

    A journal that became the active one since then began later than the last archive that was there, and has put one
    there, or `.old`. So a few looks at names tell, whatever else is in the directory; where they do not, the answer is
    None as well, and the directory is to be listed again.
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
