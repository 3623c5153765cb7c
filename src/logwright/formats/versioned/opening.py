"""Opening: whatever a crash has left of a store becomes a journal that can be written to.

    found                                           becomes
    nothing                                         a new journal, under its name only when it is whole
    the active journal and `.tmp`                   the active one
    `.old` and no active one                        `.old` is renamed back
    both, and the active one has the state          the active one; `.old` is archived
    both, and it has not, but `.old` is whole       `.old`; what the active one had is kept
    temporary archives                              they are removed, and made again

Then the active journal is read. Where it does not end with a whole entry at its position, the rest is a torn tail: it
is kept beside the journal, reported, and overwritten with zeros. It is none, and nothing is changed, if whole entries
follow and nothing says that a power cut did this: then bytes have changed that were on the disk, which is for `repair`.
What a power cut does is described in `buffer.py`.

All of this may itself be interrupted at any point, and done again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...core.disk import Disk
from ...core.errors import DamagedJournal, StorageFailed, WrongUse
from ...core.keep import keep_range
from ...core.outcome import Damage, Malformed
from ...core.repair import find_interrupted
from . import codec
from .buffer import LEAST_BYTES, Buffer, garbage_end, has_zero_sector, last_byte, mark_at, read_mark
from .files import Listing, active_name, list_files, old_name, parse_name, temporary_archive_name, temporary_name
from .layout import ENTRY_START, HEADER_BYTES
from .quick import Table
from .rotation import Sizes, is_no_space, new_journal, write_journal

logger = logging.getLogger("logwright.versioned")
_MOST_ATTEMPTS: Final = 1000
"""At how many places a whole entry is looked for behind damage."""


@dataclass(slots=True)
class Opened:
    """The active journal: its buffer, since when it was active, where its entries end, and what was cut off.

    `pending` says that there is an old journal to be archived, which ended when this one began.
    """

    buffer: Buffer
    initialized: int
    position: int
    pending: bool = False
    recovered: Damage | None = None
    kept: Path | None = None


@dataclass(slots=True)
class Examined:
    """What a journal looks like: where its whole entries end, and why, if that is not at its position."""

    initialized: int
    position: int
    mark: int | None
    end: int
    count: int
    reason: str = ""


def open_journal(disk: Disk, directory: Path, store: str, table: Table, sizes: Sizes) -> Opened:
    """Bring the files in order, take the entries over into the table, and make the journal ready to be written to."""
    _refuse_half_repaired(disk, directory, store)
    listing = list_files(disk, directory, store)
    for timestamp in listing.temporary_archives:
        disk.remove(directory / temporary_archive_name(store, timestamp))
    if listing.has_temporary:
        disk.remove(directory / temporary_name(store))
    if not listing.has_active:
        if not listing.has_old:
            return _create(disk, listing, table, sizes)
        _rename_back(disk, listing)
        listing.has_old = False
    elif listing.has_old and not _active_has_the_state(disk, listing):
        _keep_all(disk, directory, directory / active_name(store))
        _rename_back(disk, listing)
        listing.has_old = False
    elif not listing.has_old and not listing.archives and _is_blank(disk, directory / active_name(store)):
        return _create(disk, listing, table, sizes)
    opened = _open_active(disk, listing, table, sizes)
    opened.pending = listing.has_old
    return opened


def _refuse_half_repaired(disk: Disk, directory: Path, store: str) -> None:
    repair = find_interrupted(disk, directory)
    if repair is None:
        return
    for step in repair.plan.steps:
        parsed = parse_name(step.file)
        if parsed is not None and parsed[0] == store:
            raise WrongUse(f"{repair.log}: a repair of this store was interrupted; finish it, or undo it, first")


# --- which journal ----------------------------------------------------------------------------------------------------


def _create(disk: Disk, listing: Listing, table: Table, sizes: Sizes) -> Opened:
    """The first journal of a store."""
    directory, store = listing.directory, listing.store
    path = directory / active_name(store)
    if listing.archives:
        raise DamagedJournal(path, 0, "there are archives of this store, and no active journal; restore it first")
    initialized = table.now()
    buffer, moves = write_journal(disk, new_journal(disk, directory, store), sizes.capacity, initialized, table)
    try:
        disk.rename(directory / temporary_name(store), path)
        disk.sync_directory(directory)
    except BaseException:
        buffer.close()
        raise
    buffer.file.path = path
    table.last_timestamp = initialized
    return Opened(buffer, initialized, moves.end)


def _is_blank(disk: Disk, path: Path) -> bool:
    """Whether a journal has nothing in it at all, not even zeros that somebody has counted."""
    buffer = Buffer.open(disk, path)
    try:
        return not any(buffer.memory[:HEADER_BYTES]) and last_byte(buffer.memory, 0, buffer.size) == 0
    finally:
        buffer.close()


def _rename_back(disk: Disk, listing: Listing) -> None:
    """Let the old journal be the active one again."""
    disk.rename(listing.path(old_name(listing.store)), listing.path(active_name(listing.store)))
    disk.sync_directory(listing.directory)


def _keep_all(disk: Disk, directory: Path, path: Path) -> None:
    """Keep what is in a journal that another one takes the place of."""
    buffer = Buffer.open(disk, path)
    try:
        end = last_byte(buffer.memory, 0, buffer.size)
        if end:
            kept = keep_range(disk, directory, buffer.file, 0, end)
            logger.warning("%s: is broken, and the journal before it is not; kept in %s", path, kept)
    finally:
        buffer.close()


def _active_has_the_state(disk: Disk, listing: Listing) -> bool:
    """Whether the active journal has at least the state that the old one ended with; if that is broken, it has.

    A rotation has written that state first, one entry for each key.
    """
    active = _look(disk, listing.path(active_name(listing.store)))
    if active is not None and not active[0].reason:
        return True
    old = _look(disk, listing.path(old_name(listing.store)))
    if old is None or old[0].reason:
        return True
    return active is not None and active[0].count >= len(old[1])


def _look(disk: Disk, path: Path) -> tuple[Examined, Table] | None:
    """What a journal looks like, and what is in it; None when it has not even a beginning."""
    buffer = Buffer.open(disk, path)
    table = Table()
    try:
        return examine(buffer, table), table
    except Malformed:
        return None
    finally:
        table.detach_memory()
        buffer.close()


# --- what is in it ----------------------------------------------------------------------------------------------------


def examine(buffer: Buffer, table: Table) -> Examined:
    """Take over the entries of a journal, up to where they are whole. `Malformed` when it does not begin as one."""
    memory, size = buffer.memory, buffer.size
    head = bytes(memory[:HEADER_BYTES])
    header = codec.decode_header(head)
    if not isinstance(header, tuple):
        raise Malformed(0, f"the file has {size} bytes, and a journal begins with {HEADER_BYTES}")
    position = header[0].position
    stop = min(position, size)
    metadata = codec.decode_metadata(memory, HEADER_BYTES, max(stop, HEADER_BYTES))
    if not isinstance(metadata, tuple):
        raise Malformed(HEADER_BYTES, "the metadata is not there, or not all of it")
    start = metadata[1].end
    mark = read_mark(memory, size)
    if mark is not None and position > mark_at(size):
        mark = None  # an entry is in its place
    table.attach(memory, start)
    table.last_timestamp = max(table.last_timestamp, metadata[0].initialized)
    end, count = table.scan(start, stop, size if mark is None else mark)
    examined = Examined(metadata[0].initialized, position, mark, end, count)
    if end < stop:
        whole = isinstance(_entry_size(buffer, end, stop), int)
        why = "a sector of it is missing" if whole else codec.explain(memory, end, stop)
        examined.reason = f"entries end before the position, {position}: {why}"
    elif position > size:
        examined.reason = f"the position is {position}, and the file has {size} bytes"
    return examined


def _entry_size(buffer: Buffer, start: int, end: int) -> int | None:
    try:
        found = codec.decode_entry(buffer.memory, start, end)
    except Malformed:
        return None
    return found[1].size if isinstance(found, tuple) else None


def _is_torn(buffer: Buffer, examined: Examined) -> bool:
    """Whether what follows the whole entries is the work of a power cut, or ends the journal."""
    start, stop = examined.end, min(examined.position, buffer.size)
    if examined.mark is not None and start >= examined.mark:
        return True
    if has_zero_sector(buffer.memory, start, stop):
        return True
    at = start
    for _ in range(_MOST_ATTEMPTS):
        at = buffer.memory.find(ENTRY_START, at + 1, stop)
        if at < 0:
            return True
        if _entry_size(buffer, at, stop) is not None:
            return False
    return False


# --- ready to be written to -------------------------------------------------------------------------------------------


def _open_active(disk: Disk, listing: Listing, table: Table, sizes: Sizes) -> Opened:
    directory = listing.directory
    path = directory / active_name(listing.store)
    buffer = Buffer.open(disk, path)
    try:
        try:
            examined = examine(buffer, table)
        except Malformed as malformed:
            raise DamagedJournal(path, malformed.position, malformed.reason) from None
        opened = Opened(buffer, examined.initialized, examined.end)
        if examined.reason:
            if not _is_torn(buffer, examined):
                reason = f"{examined.reason}; entries follow, so nothing is cut off (see logwright repair)"
                raise DamagedJournal(path, examined.end, reason)
            stop = min(examined.position, buffer.size)
            opened.recovered = Damage(path.name, examined.end, stop, examined.reason, "torn_tail")
        _clear_the_rest(disk, directory, buffer, examined, opened)
        _make_ready(buffer, opened.position, sizes)
        disk.sync_directory(directory)  # whoever gave the files their names may have been killed before that
    except BaseException:
        table.detach_memory()
        buffer.close()
        raise
    return opened


def _clear_the_rest(disk: Disk, directory: Path, buffer: Buffer, examined: Examined, opened: Opened) -> None:
    """Let the journal end at its last whole entry, with nothing but zeros behind it."""
    end = examined.end
    limit = buffer.size if examined.mark is None else mark_at(buffer.size)
    # Where the file is mapped, zeros are written ahead of the entries anyway: no need to read all of it now.
    last = garbage_end(buffer.memory, end, limit) if buffer.is_mapped else last_byte(buffer.memory, end, limit)
    until = last if opened.recovered is None else max(last, opened.recovered.end)
    if until > end:
        opened.kept = keep_range(disk, directory, buffer.file, end, until)
    if opened.recovered is not None:
        logger.warning("%s: cut off a torn tail, kept in %s", opened.recovered, opened.kept)
    if examined.position != end:
        buffer.set_position(end)
        buffer.sync()  # or zeros could be in entries that still count
    buffer.clear(end, last)
    buffer.sync()  # also what a process has written that was killed before it could sync


def _make_ready(buffer: Buffer, position: int, sizes: Sizes) -> None:
    """Make room, and set the mark: from here on, a power cut leaves what `buffer.py` says."""
    size = max(buffer.size, sizes.capacity, LEAST_BYTES)
    size = sizes.grown(size, position) or max(size, 2 * position)
    if size > buffer.size:
        try:
            buffer.grow(size, position)
        except StorageFailed as error:  # on a full disk what is there can be read, and changed as far as it has room
            if not is_no_space(error) or buffer.size < LEAST_BYTES or position > mark_at(buffer.size):
                raise
            logger.warning("%s: its buffer stays as small as it is: %s", buffer.file.path, error)
    else:
        buffer.reserve()
    buffer.zero_ahead(position)
    buffer.set_mark(position)
    buffer.sync()
