"""Opening a journal for writing: lock it, find its last transaction, and handle one that was not finished.

1. The last transaction has no end, or is cut short or missing, and is not flagged as stored: it never reached the
   storage. It is cut off, and the one before it becomes the last. If it was the only one, only the header stays.
2. Bytes follow the last transaction that the header names: a writer had not finished appending them, so they were never
   acknowledged. They are cut off, unless a transaction in them is flagged as stored. Sealed transactions (see
   `seal.py`) that are whole stay, flagged or not: links and header are changed to include them. If the link to a last
   transaction that is sealed and whole is missing, it is written.
3. The last transaction that was not rolled back is whole, and not flagged as stored: a redo is due. The owner of the
   storage does it.

Anything else is damage: it is reported with its position, and nothing is changed. So everything is checked first, and
the changes to the file are collected as steps. A caller with more to check, such as a table, carries them out later.

Before a cut a copy is written and synced; if that fails, nothing is changed. Then the header and the link are written,
and the file is truncated. If a power cut undoes any of these, the next opening cuts again. They are synced before
anything is appended, so that the cut bytes cannot reappear in place of new ones.

The last transaction is found by following the links from head to head; images are never read. A caller that does not
need the number of transactions can skip this: it is enough that the header and the preceding transaction name the last
one, and that the preceding one ends where it begins. Reading and `verify` find links that are broken earlier.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ...core.bytes.outcome import Damage, Malformed
from ...core.io.disk import Disk, File, Mappable, make_directories, replace_file, write_all
from ...core.io.lock import Lock
from ...core.io.quarantine import keep_range
from ...core.repair.losses import add_losses
from ...core.repair.patched import PatchedFile
from ...core.write.opening import JournalToWrite, open_for_writing
from ...errors import DamagedJournal, NotFound, StorageFailed, WrongUse
from ..bytes import codec, kernel
from ..bytes.layout import (
    COMPLETE,
    HEADER_BYTES,
    HOME_DIRECTORY,
    LAST_AT,
    LINK,
    NEXT_AT,
    TRANSACTION_HEAD_BYTES,
    lock_name,
)
from ..bytes.records import Transaction
from .area import write_places
from .continuation import UNLINKED, judge
from .cursor import Cursor, plausible_header, read_transaction
from .files import Head, Header, Hopped, JournalFile, Nearby, find_redo, hop, is_whole, measure, read_head, read_header
from .lost import lost_with_header
from .operations import End, find_end, has_end, is_room, is_torn_link
from .salvage import whole_transactions_follow

logger = logging.getLogger("logwright.yeltsin")


@dataclass(slots=True)
class Opened:
    """A journal that is open for writing: its transactions end at `end`, and the last of them begins at `last`.

    The file is in this state after `settle` has done the `steps`; `kept` is known then, or after `keep`.
    """

    file: File
    lock: Lock
    first: int = 0
    last: int = 0
    end: int = HEADER_BYTES
    count: int = 0
    cut: Damage | None = None
    kept: Path | None = None
    redo: tuple[int, Transaction] | None = None
    keeps: Callable[[], Path] | None = None
    """Makes a copy of the bytes that will be cut off."""
    steps: list[Callable[[], None]] = field(default_factory=list)
    ends: dict[int, End] = field(default_factory=dict)
    """The ends of transactions that were adopted. There may be many, and their seals have been checked."""

    def write(self, position: int, data: bytes) -> None:
        """Add a step that writes bytes."""
        self.steps.append(functools.partial(write_all, self.file, position, data))

    def truncate(self, size: int) -> None:
        """Add a step that truncates the file."""
        self.steps.append(functools.partial(self.file.truncate, size))

    def sync(self) -> None:
        """Add a step that makes all preceding steps durable."""
        self.steps.append(self.file.sync)

    def keep(self) -> None:
        """Make a copy of what will be cut off; the file does not change. A second call does nothing."""
        if self.keeps is not None:
            self.kept = self.keeps()
            self.keeps = None
            logger.warning("%s: cut off, kept in %s", self.cut, self.kept)

    def settle(self) -> None:
        """Carry out the steps."""
        self.keep()
        for step in self.steps:
            step()
        self.steps.clear()
        self.ends.clear()

    def close(self) -> None:
        """Close the file, and let others open the journal."""
        try:
            self.file.close()
        finally:
            self.lock.release()


def open_journal(disk: Disk, path: Path, *, counts: bool = True, settles: bool = True) -> Opened:
    """Lock and recover a journal, creating it if there is none. The `count` is determined only if `counts` is set.

    Without `settles` an existing file is not changed until `Opened.settle` is called.
    """
    make_directories(disk, path.parent / HOME_DIRECTORY)
    lock_path, places = path.parent / lock_name(path.name), ((path.parent, path.name),)
    journal = JournalToWrite(disk, "yeltsin", path, lock_path, places, batches=False)
    lock, opened = open_for_writing(journal, lambda: _open_file(disk, path, counts=counts, settles=settles))
    opened.lock = lock
    return opened


def _open_file(disk: Disk, path: Path, *, counts: bool, settles: bool) -> Opened:
    if not disk.exists(path):
        temporary = path.parent / HOME_DIRECTORY / f"{path.name}.new"
        replace_file(disk, path, codec.encode_header(0, 0), temporary)
    if disk.is_directory(path):
        raise WrongUse(f"{path} is a directory, and a journal is a file")
    file = disk.open(path, "update")
    try:  # no `with`: an interrupt while it exits would leave everything open
        file.lock()  # it may have other names, which have other locks
        opened = Opened(file, Lock(path))  # not held yet
        _recover(disk, path, opened, counts=counts)
        if settles:
            opened.settle()
        disk.sync_directory(path.parent)  # the process that renamed it may have been killed before that
    except BaseException:
        file.close()
        raise
    return opened


def _recover(disk: Disk, path: Path, opened: Opened, *, counts: bool) -> None:
    file = opened.file
    try:
        header = read_header(file)
    except Malformed as malformed:
        raise _explained(path, malformed.position, malformed.reason) from None
    if header is None:
        _replace_header(disk, path, opened)
        return
    size = file.size()
    named = header
    header = plausible_header(file, header, size)
    if header != named:
        opened.write(LAST_AT, LINK.pack(header.last))
    hopped = _arrived(header) if not counts and _is_last(file, header, size) else _hop(file, header, size)
    if hopped.last != header.last:
        hopped = _write_missing_link(opened, header, hopped, size)
    opened.first, opened.count = header.first, hopped.count
    found = _find_last(path, file, header, hopped, size)
    if found != header.last:
        opened.count -= hopped.last == header.last
        _cut(disk, path, opened, found, header.last, "the last transaction has no end, and never reached the storage")
    else:
        opened.last = found
        opened.end = _end_of(file, found, size)
        _adopt(path, file, opened, size)
        head = read_head(file, opened.last)
        if opened.end < size or (head is not None and head.next):
            if whole_transactions_follow(file, JournalFile(path.name, path), opened.end):
                raise _explained(path, opened.end, UNLINKED)
            reason = "the bytes after the last transaction are of one that was never finished"
            _cut(disk, path, opened, opened.last, opened.end, reason)
        else:
            opened.sync()  # its writer may have been killed before that
    redo = find_redo(file, opened.last, opened.end)
    if redo is not None:
        opened.redo = redo, read_transaction(file, JournalFile(path.name, path), redo)


def _arrived(header: Header) -> Hopped:
    return Hopped(header.last, 0, 0, codec.JUMP)


def _hop(file: File, header: Header, size: int) -> Hopped:
    """Find the last transaction, through memory if the system can map files.

    If transactions are large, a system call for each head takes twenty times as long.
    """
    if isinstance(file, Mappable) and HEADER_BYTES <= header.first <= size - TRANSACTION_HEAD_BYTES:
        with contextlib.suppress(StorageFailed), file.map(size, private=True) as memory, memoryview(memory) as view:
            following, count, ending, last = kernel.hop(view, header.first, size, 0, 0, header.last)
            return Hopped(last, count, following, ending)
    return hop(file, header)


def _is_last(file: File, header: Header, size: int) -> bool:
    """Whether the transaction that the header names is in the chain, found without following all of it."""
    head = read_head(file, header.last)
    if head is None:
        return False
    if head.previous == 0:
        return header.first == header.last
    if not HEADER_BYTES <= header.first <= head.previous < header.last:
        return False
    before = read_head(file, head.previous)
    assert before is not None
    return before.next == header.last and _ends_at(file, head.previous, size) == header.last


def _write_missing_link(opened: Opened, header: Header, hopped: Hopped, size: int) -> Hopped:
    """The walk to the last transaction; if the link to it never reached the disk, a step writes it."""
    file, last, before = opened.file, header.last, hopped.last
    head, before_head = read_head(file, last), read_head(file, before)
    if head is None or before_head is None:
        return hopped
    if not is_torn_link(before_head.next, last) or _ends_at(file, before, size) != last:
        return hopped
    end = find_end(file, last, size)
    if head.complete or end is None or not end.seal:  # only a writer that seals writes a link together with its target
        return hopped
    opened.write(before + NEXT_AT, LINK.pack(last))
    return hop(PatchedFile(file).with_patch(before + NEXT_AT, LINK.pack(last)), header)


def _adopt(path: Path, file: File, opened: Opened, size: int) -> None:
    """Adopt the sealed and whole transactions after the last one: only the header does not name them yet.

    Their writer may not have synced them, so the header names them after they and their links are on the disk.
    """
    known, last, end = [opened.last], opened.last, opened.end
    nearby = Nearby(file)
    while (head := read_head(nearby, end)) is not None and head.previous == last:
        found = find_end(nearby, end, size)
        if found is None or not found.seal:
            if head.complete and is_whole(file, end, size):
                name = last or "none"
                reason = f"the header names {name} as the last transaction, and one that is in the storage follows it"
                raise _explained(path, LAST_AT, reason)
            break
        known.append(end)
        opened.ends[end] = found
        last, end = end, found.end
    if last == opened.last:
        return
    opened.steps.append(functools.partial(_write_links, file, known))
    opened.sync()
    opened.first, opened.last, opened.end = opened.first or known[1], last, end
    opened.count += len(known) - 1
    opened.write(0, codec.encode_header(opened.first, opened.last))


def _write_links(file: File, known: list[int]) -> None:
    """Link each of these transactions to the next one; the first of them is 0 if there was none."""
    pairs = itertools.pairwise(known)
    write_places(file, ((before + NEXT_AT, LINK.pack(position)) for before, position in pairs if before))


def _end_of(file: File, last: int, size: int) -> int:
    """The end of the transactions; the last of them is known to be whole."""
    end = measure(file, last, size, follow_next=False) if last else HEADER_BYTES
    assert end is not None
    return end


def _replace_header(disk: Disk, path: Path, opened: Opened) -> None:
    """Replace the header of a file that is shorter than one, and add the loss to the account, as `repair` does."""
    size = opened.file.size()
    loss = lost_with_header(path.name, size)
    _keep_first(disk, path, opened, 0, size, loss.reason)
    if not size:
        opened.keeps = None
    opened.steps.append(functools.partial(add_losses, disk, path.parent, [loss], repair=f"opening of {path.name}"))
    opened.write(0, codec.encode_header(0, 0))
    opened.sync()


# --- the last transaction ---------------------------------------------------------------------------------------------


def _find_last(path: Path, file: File, header: Header, hopped: Hopped, size: int) -> int:
    """The transaction that is now the last one, 0 for none. Damage of the journal is raised."""
    last = header.last
    if last == 0 and header.first == 0:
        return 0
    arrived = hopped.last == last
    whole = HEADER_BYTES <= last < size and has_end(file, last, size)
    if arrived and whole:
        return last
    head = read_head(file, last)
    before = (head.previous if head is not None else 0) if arrived else hopped.last
    if whole or _ends_at(file, before, size) != last or _is_known(file, last, head, before):
        raise _damage(path, file, header)
    return before


def _is_known(file: File, last: int, head: Head | None, before: int) -> bool:
    """Whether the head of a transaction without an end credibly says that it is in the storage.

    After a power cut, bytes that were never written may be anything, also a flag, but hardly a valid head. And if
    another transaction follows that names it as `previous`, it was not the last one: the header is wrong.
    """
    if head is None or head.previous != before:
        return False
    following = read_head(file, head.next)
    return (head.next, head.flags) == (0, COMPLETE) or (following is not None and following.previous == last)


def _ends_at(file: File, position: int, size: int) -> int | None:
    """The end of a transaction, or of the header."""
    if position == 0:
        return HEADER_BYTES
    try:
        return measure(file, position, size, follow_next=False)
    except Malformed:
        return None


def _damage(path: Path, file: File, header: Header) -> DamagedJournal:
    """The first damage that a reader finds, or that the header is wrong."""
    cursor = Cursor(file, JournalFile(path.name, path), header)
    while cursor.read(load=False) is not None:
        pass
    damage, _ = judge(cursor)
    if damage is None:
        return _explained(path, LAST_AT, f"the header names {header.last} as the last transaction, which it is not")
    return _explained(path, damage.start, damage.reason)


def _explained(path: Path, position: int, reason: str) -> DamagedJournal:
    hint = f"run `logwright verify {path}` to see all of it, and `logwright repair {path}`"
    return DamagedJournal(path, position, f"{reason}; nothing was changed: {hint}")


# --- cutting ----------------------------------------------------------------------------------------------------------


def _cut(disk: Disk, path: Path, opened: Opened, last: int, start: int, reason: str) -> None:
    """Make a transaction the last one, and truncate the file at `start`."""
    file, size = opened.file, opened.file.size()
    if size > start and not (last == opened.last and is_room(file, last, start, size)):
        _keep_first(disk, path, opened, start, size, reason)
    opened.first = opened.first if last else 0
    if last:
        opened.write(last + NEXT_AT, bytes(LINK.size))
    opened.write(0, codec.encode_header(opened.first, last))
    opened.truncate(start)
    opened.sync()
    opened.last, opened.end = last, start


def _keep_first(disk: Disk, path: Path, opened: Opened, start: int, end: int, reason: str) -> None:
    """Let the first step keep a copy of the bytes that will be cut off."""
    opened.cut = Damage(path.name, start, end, reason, "torn_tail")
    opened.keeps = functools.partial(keep_range, disk, path.parent, opened.file, start, end)


def check_is_journal(disk: Disk, path: Path) -> None:
    """Raise `NotFound` unless there is a journal to be recovered."""
    if not disk.exists(path) or disk.is_directory(path):
        raise NotFound(f"{path}: no journal is here")
