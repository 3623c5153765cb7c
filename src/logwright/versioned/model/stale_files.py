"""Stale files: which of a store's files is its journal after a crash, and what happens to the others.

    active          `.old`        is the journal          becomes of the other
    whole           whole         the active one          `.old` is archived
    whole           no journal    the active one          `.old` is kept aside, or removed if it is blank
    not there       whole         `.old`
    has not the     whole         `.old`                  the active one is kept aside
    whole state
    the same, and has changes     none: `DamagedJournal`, nothing is touched
    that `.old` has not
    blank           not there     a new one, if there are no archives
    earlier than    whole         none: `DamagedJournal`, for the names were swapped, or it is an earlier copy
    `.old`, or than the last archive
    anything else                 the active one, or `DamagedJournal` if that cannot be opened

What may be lost is written to the account of losses first: changes after `.old` if that replaces the active one, unless
`.tmp` shows that a rotation was interrupted; all of an `.old` that is not a journal; and a store whose only file is
blank.

The state is the beginning of a journal after a rotation, one entry for each key. It is synced before that journal gets
its name, so a journal without it was left by another program, or by damage that no power cut causes.

When the journal is open, `.tmp` and temporary archives are removed. But a whole one may be the only copy: a store that
has only a `.tmp` with entries is not opened, and `.tmp` beside a journal that had to be cut is kept aside; so is a
whole temporary archive whose entries are in neither `.old` nor an archive. What is kept aside is in `.logwright/cut/`.
An incomplete archive, as other programs leave it, is removed if `.old` has all of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from ...core.io.disk import Disk
from ...core.io.quarantine import keep_range
from ...core.repair.losses import Loss, add_losses
from ...core.times import shown_time
from ...errors import DamagedJournal, StorageFailed, is_no_space
from ..files.archiving import archives_of_old, initialized_of, is_whole_archive
from ..files.buffer import Buffer, last_byte
from ..files.files import Listing, active_name, agree, archive_name, old_name, temporary_archive_name, temporary_name
from ..files.lost import loss_fields, settled
from ..files.reader import Reader
from ..files.repair import lost_after_old
from ..files.surroundings import stands_in
from .ending import is_blank, later_entries, opened_ending, read_ending, refuse_damage

logger = logging.getLogger("logwright.versioned")


def settle(disk: Disk, listing: Listing) -> Path | None:
    """Give the journal the name of the active one, if there is a journal; the path of the copy of the file that it
    replaces.

    The listing is updated: `has_old` says that a journal must be archived.
    """
    active = listing.path(active_name(listing.store))
    if not listing.has_old:
        return None
    old = listing.path(old_name(listing.store))
    kept: Path | None = None
    if listing.has_active and _has_the_state(disk, active, old):
        return None
    with opened_ending(disk, old) as (buffer, _, ending):
        if ending is not None:
            refuse_damage(buffer, ending)
    if ending is None:
        if not is_blank(disk, old):
            raise DamagedJournal(old, 0, "this is no journal, and there is no other one; restore it first")
        refuse_to_lose(disk, listing)
    reason = "it has not the whole state that it began with" if listing.has_active else stands_in(disk, listing)
    if reason and ending is not None:
        loss = lost_after_old(Reader(active, disk=disk), reason)
        account_for(disk, active, [loss], f"after {loss.fields['from']}")
    if listing.has_active:
        kept = keep_aside(disk, listing.directory, active)
    disk.rename(old, active)
    disk.sync_directory(listing.directory)
    listing.has_old, listing.has_active = False, True
    return kept


def refuse_disorder(disk: Disk, listing: Listing) -> None:
    """Raise `DamagedJournal` if the active journal is not later than another one that should precede it."""
    path = listing.path(active_name(listing.store))
    begun = initialized_of(disk, path, compressed=False)
    old_begun = initialized_of(disk, listing.path(old_name(listing.store)), compressed=False)
    if begun is None or (begun >= listing.last_timestamp and (old_begun is None or begun > old_begun)):
        return
    reader = Reader(path, disk=disk)
    with reader.snapshot() as files:
        gap = reader.gap_before(files, len(files.files) - 1)
    if gap is not None:
        raise DamagedJournal(path, gap.start, f"{gap.reason}; restore the files, or move one of them away")


def account_for(disk: Disk, path: Path, losses: Iterable[Loss], what: str) -> None:
    """Add what opening a store has found to be lost to the account of losses, once for each `what`."""
    found = settled(losses)
    add_losses(disk, path.parent, found, repair=f"opening of {path.name} {what}")
    for loss in found:
        logger.warning("%s: %s; this is in the account of losses now", path, loss.describe())


def _has_the_state(disk: Disk, active: Path, old: Path) -> bool:
    """Whether the active journal has at least the final state of the old one; True if that is not whole.

    `DamagedJournal` if it does not, but has changes of its own: then neither of the two is complete.
    """
    with opened_ending(disk, active) as (buffer, _, ending):
        if ending is not None and not ending.reason:
            return True
        with opened_ending(disk, old) as (_, state, old_ending):
            if old_ending is None or old_ending.reason:
                return True
            if ending is not None and ending.count >= len(state):
                return True
            start, why = (0, "its beginning is broken") if ending is None else (ending.end, ending.reason)
            for entry in later_entries(buffer, start, buffer.size):
                if entry is None or state.get_with_timestamp(entry.k) != (entry.o, entry.t):
                    reason = f"{why}; the journal before it is whole, but has not all of its changes"
                    raise DamagedJournal(active, start, f"{reason}: move one of the two away")
            return False


def keep_aside(disk: Disk, directory: Path, path: Path) -> Path | None:
    """Keep a copy of a file that will be replaced or removed; None if it is empty."""
    buffer = Buffer.open(disk, path)
    try:
        end = last_byte(buffer.memory, 0, buffer.size)
        if not end:
            return None
        kept = keep_range(disk, directory, buffer.file, 0, end)
    finally:
        buffer.close()
    logger.warning("%s: is not used; a copy is kept in %s", path, kept)
    return kept


def refuse_to_lose(disk: Disk, listing: Listing) -> None:
    """Raise `DamagedJournal` if a new store would replace files that are not empty."""
    active = listing.path(active_name(listing.store))
    if listing.archives:
        raise DamagedJournal(
            active, 0, "there are archives of this store, and no active journal; restore it, or see logwright repair"
        )
    path = listing.path(temporary_name(listing.store))
    found = read_ending(disk, path) if listing.has_temporary else None
    if found is not None and found.count:
        reason = f"it has {found.count} entries, and there is no journal; rename it to {active.name}, or remove it"
        raise DamagedJournal(path, 0, reason)


def remove_stale_files(disk: Disk, listing: Listing, *, active_begun: int, is_whole: bool, was_old: bool) -> None:
    """Remove temporary files, an `.old` that is not a journal, and an incomplete archive of a whole `.old`.

    The active journal is open; `is_whole` says that nothing was cut off it, `was_old` that it was the old one.
    """
    directory, store = listing.directory, listing.store
    old_is_whole = is_whole and was_old
    if listing.has_old:
        found = read_ending(disk, listing.path(old_name(store)))
        old_is_whole = found is not None and not found.reason
        if found is None:
            _account_for_old(disk, listing, active_begun)
            keep_aside(disk, directory, listing.path(old_name(store)))
            disk.remove(listing.path(old_name(store)))
            listing.has_old = False
        elif old_is_whole:
            _remove_half_archives(disk, listing, active_begun)
    for timestamp in listing.temporary_archives:
        path = listing.path(temporary_archive_name(store, timestamp))
        has_other = old_is_whole or is_whole_archive(disk, listing.path(archive_name(store, timestamp)))
        if has_other or not is_whole_archive(disk, path) or _keep_if_there_is_room(disk, directory, path):
            disk.remove(path)
    if listing.has_temporary:
        path = listing.path(temporary_name(store))
        if is_whole or _keep_if_there_is_room(disk, directory, path):
            disk.remove(path)


def _account_for_old(disk: Disk, listing: Listing, active_begun: int) -> None:
    """Account for an `.old` that is not a journal: its changes are lost, unless an archive ended when it did."""
    if any(agree(timestamp, active_begun) for timestamp in listing.archives):
        return
    start = max((timestamp for timestamp in listing.archives if timestamp < active_begun), default=0)
    name = old_name(listing.store)
    what = f"every change until {shown_time(active_begun)}"
    what += f" from {shown_time(start)} on" if start else ""
    fields = loss_fields(listing.store, start, active_begun)
    size = disk.file_size(listing.path(name))
    loss = Loss(name, 0, size, 0, None, what, "this is no journal", part=listing.store, fields=fields)
    account_for(disk, listing.path(name), [loss], f"until {active_begun}")


def _remove_half_archives(disk: Disk, listing: Listing, active_begun: int) -> None:
    """Remove incomplete archives of the old journal; and the old journal itself, if one of them is complete.

    Their names are durable: opening a store syncs its directory first.
    """
    whole, half = archives_of_old(disk, listing, active_begun)
    for timestamp in half:
        path = listing.path(archive_name(listing.store, timestamp))
        logger.warning("%s: this archive was not finished; it is written again", path)
        disk.remove(path)
    if whole:
        disk.remove(listing.path(old_name(listing.store)))
        listing.has_old = False


def _keep_if_there_is_room(disk: Disk, directory: Path, path: Path) -> bool:
    try:
        keep_aside(disk, directory, path)
    except StorageFailed as error:
        if not is_no_space(error):
            raise
        return False
    return True
