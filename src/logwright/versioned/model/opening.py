"""Opening: recovers a store after any crash, so that its journal can be written to.

See `stale_files.py` for which file is the journal, and for what happens to the others. If there is none, a new journal
is created; it gets its name when it is complete.

The active journal is read. If it does not end with a whole entry at its position, the rest may be a torn tail: then it
is copied, reported, and overwritten with zeros. `cursor.py` decides that, as for `verify`. Any other damage is raised,
nothing is changed, and `repair` is needed. See `buffer.py` for what a power cut does. Unless a power cut is known to be
the cause, entries may have been removed: that is written to the account of losses before the position changes, as
`repair` does it.

All of this can be interrupted at any point and repeated.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from ...core.bytes.outcome import Damage, Malformed
from ...core.io.disk import Disk
from ...core.io.quarantine import keep_range
from ...core.repair.losses import Loss
from ...core.write.opening import JournalToWrite
from ...errors import DamagedJournal, StorageFailed, is_no_space
from ..files.buffer import LEAST_BYTES, Buffer, garbage_end, last_byte, mark_at
from ..files.files import Listing, active_name, list_files, lock_name, temporary_name
from ..files.lost import loss_fields
from ..files.repair import lost_at_end
from .ending import Ending, find_ending, is_blank, refuse_damage
from .kernel import Table
from .rotation import Sizes, new_journal, write_journal
from .stale_files import account_for, refuse_disorder, refuse_to_lose, remove_stale_files, settle

logger = logging.getLogger("logwright.versioned")


@dataclass(slots=True)
class Opened:
    """The active journal: its buffer, the time it became active, the end of its entries, and what was cut off.

    `pending` says that an old journal, which ended when this one began, must be archived.
    """

    buffer: Buffer
    initialized: int
    position: int
    pending: bool = False
    recovered: Damage | None = None
    kept: Path | None = None


def journal_to_write(disk: Disk, directory: Path, store: str) -> JournalToWrite:
    """The journal of a store for `open_for_writing`."""
    path, places = directory / active_name(store), ((directory, store),)
    return JournalToWrite(disk, "versioned", path, directory / lock_name(store), places, "store")


def open_journal(disk: Disk, directory: Path, store: str, table: Table, sizes: Sizes) -> Opened:
    """Recover the files, load the entries into the table, and prepare the journal for writing."""
    listing = list_files(disk, directory, store)
    had_old = listing.has_old
    refuse_disorder(disk, listing)
    kept = settle(disk, listing)
    is_new = _is_new(disk, listing)
    opened = (_create if is_new else _open_active)(disk, listing, table, sizes)
    is_whole = not is_new and opened.recovered is None
    try:
        was_old = had_old and not listing.has_old
        remove_stale_files(disk, listing, active_begun=opened.initialized, is_whole=is_whole, was_old=was_old)
    except BaseException:
        opened.buffer.close()
        raise
    opened.kept = opened.kept or kept
    opened.pending = listing.has_old
    return opened


def _is_new(disk: Disk, listing: Listing) -> bool:
    """Whether there is no journal to open, and a new one may be created."""
    active = listing.path(active_name(listing.store))
    if listing.has_active and (listing.has_old or listing.archives or not is_blank(disk, active)):
        return False
    refuse_to_lose(disk, listing)
    return True


def _create(disk: Disk, listing: Listing, table: Table, sizes: Sizes) -> Opened:
    """The first journal of a store."""
    directory, store = listing.directory, listing.store
    path = directory / active_name(store)
    initialized = table.now()
    if listing.has_active:  # from a crash of another program, or all that is left of a store
        fields = loss_fields(store, 0, initialized - 1)
        loss = Loss(path.name, 0, 0, 0, None, "every change that was in it", "it is empty", part=store, fields=fields)
        account_for(disk, path, [loss], "@ 0")
    buffer, moves = write_journal(disk, new_journal(disk, directory, store), sizes.capacity, initialized, table)
    try:
        disk.rename(directory / temporary_name(store), path)
        disk.sync_directory(directory)
    except BaseException:
        buffer.close()
        raise
    buffer.file.path = path
    listing.has_temporary = False
    table.last_timestamp = initialized
    return Opened(buffer, initialized, moves.end)


# --- ready to be written to -------------------------------------------------------------------------------------------


def _open_active(disk: Disk, listing: Listing, table: Table, sizes: Sizes) -> Opened:
    directory = listing.directory
    path = directory / active_name(listing.store)
    buffer = Buffer.open(disk, path)
    try:
        try:
            ending = find_ending(buffer, table)
        except Malformed as malformed:
            raise DamagedJournal(path, malformed.position, f"{malformed.reason} (see logwright repair)") from None
        opened = Opened(buffer, ending.initialized, ending.end)
        is_by_power_cut = refuse_damage(buffer, ending)
        if ending.reason:
            stop = min(ending.position, buffer.size)
            opened.recovered = Damage(path.name, ending.end, stop, ending.reason, "torn_tail")
        _keep_the_rest(disk, directory, buffer, ending, opened, is_by_power_cut=is_by_power_cut)
        _make_ready(buffer, opened.position, sizes)
    except BaseException:
        buffer.close()
        raise
    return opened


def _keep_the_rest(
    disk: Disk, directory: Path, buffer: Buffer, ending: Ending, opened: Opened, *, is_by_power_cut: bool
) -> None:
    """End the journal at its last whole entry, with only zeros after it; keep a copy of what was there."""
    end = ending.end
    limit = buffer.size if ending.mark is None or ending.mark.is_moved else mark_at(buffer.size)
    # In a mapped file zeros are written ahead of the entries anyway: no need to read all of it now.
    last = garbage_end(buffer.memory, end, limit) if buffer.is_mapped else last_byte(buffer.memory, end, limit)
    until = last if opened.recovered is None else max(last, opened.recovered.end)
    if until > end:
        opened.kept = keep_range(disk, directory, buffer.file, end, until)
    if opened.recovered is not None:
        logger.warning("%s: cut off a torn tail, kept in %s", opened.recovered, opened.kept)
    if not is_by_power_cut:
        account_for(disk, buffer.file.path, lost_at_end(disk, buffer.file.path), f"@ {end}")
    if ending.position != end:
        buffer.set_position(end)
        buffer.sync()  # otherwise zeros could be in entries that are still valid
    buffer.clear(end, last)
    buffer.sync()  # including what a process wrote that was killed before its sync


def _make_ready(buffer: Buffer, position: int, sizes: Sizes) -> None:
    """Make room, and set the mark: from here on `buffer.py` describes what a power cut leaves."""
    size = max(buffer.size, sizes.capacity, LEAST_BYTES)
    size = sizes.grown(size, position) or max(size, 2 * position)
    if size == buffer.size:
        buffer.reserve()
    else:
        try:
            buffer.grow(size, position)
        except StorageFailed as error:  # on a full disk the store can be read, and changed as far as there is room
            if not is_no_space(error) or buffer.size < LEAST_BYTES or position > mark_at(buffer.size):
                raise
            logger.warning("%s: its buffer stays as small as it is: %s", buffer.file.path, error)
    buffer.zero_ahead(position)
    buffer.set_mark(position)
    buffer.sync()
