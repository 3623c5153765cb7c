"""Opening a journal for writing: its lock, its last transaction, and what becomes of one that was not finished.

1. The last transaction has no end, or is cut off, wholly perhaps, and is not flagged to be in the storage: it never was
   there. It is cut off: the one before it becomes the last. If it was the only one, a header is left and nothing else.
2. After the last transaction is something that the header does not know: a writer was appending it and was not done,
   so it was never acknowledged. It is cut off, unless a transaction in there is flagged to be in the storage.
   Transactions that are sealed (see `seal.py`) and whole are there as much as any, flagged or not: they are taken in.
   And the link to a last transaction that is sealed and whole is made if it is missing.
3. The last transaction that was not rolled back is whole, and not flagged to be in the storage: a redo is due. That is
   for the owner of the storage to do.

Anything else is damage: it is reported with its position, and nothing is changed. So all is looked at first, and what
is to be done to the file is a list of steps; a caller that has more to check, such as a table, does them after that.

Before a cut a copy is written and synced: where none can be made, nothing is changed. Then header and link are written,
and the file is made shorter; whichever of these a power cut leaves undone, the next opening does the cut again. They
are synced before anything is appended: what was cut off must not be back where something else was going to be.

The last transaction is found along the links from head to head, and images are never read. A caller that need not know
how many transactions there are need not go it, however long it is: a last transaction that the header names, and that
the one before it names and ends at, is what it seems. Links that are broken before that are found by reading or
`verify`.
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
from .cursor import Cursor, believed, read_transaction
from .files import Head, Header, Hopped, JournalFile, Nearby, find_redo, hop, is_whole, measure, read_head, read_header
from .lost import lost_with_header
from .salvage import whole_transactions_follow
from .stretch import End, find_end, has_end, is_room, is_torn_link

logger = logging.getLogger("logwright.yeltsin")


@dataclass(slots=True)
class Opened:
    """A journal that is open for writing: its transactions end at `end`, and the last of them begins at `last`.

    That is so in the file when the `steps` are done, by `settle`; `kept` is known then, or after `keep`.
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
    """Makes a copy of what is to be cut off."""
    steps: list[Callable[[], None]] = field(default_factory=list)
    ends: dict[int, End] = field(default_factory=dict)
    """How transactions end that were taken in: they may be many, and their seals have been checked."""

    def write(self, position: int, data: bytes) -> None:
        """Have bytes put in place as the next step."""
        self.steps.append(functools.partial(write_all, self.file, position, data))

    def truncate(self, size: int) -> None:
        """Have the file end here as the next step."""
        self.steps.append(functools.partial(self.file.truncate, size))

    def sync(self) -> None:
        """Have all steps before this one be durable before the next."""
        self.steps.append(self.file.sync)

    def keep(self) -> None:
        """Have a copy of what is to be cut off; the file stays as it is. A second call does nothing."""
        if self.keeps is not None:
            self.kept = self.keeps()
            self.keeps = None
            logger.warning("%s: cut off, kept in %s", self.cut, self.kept)

    def settle(self) -> None:
        """Do to the file what is to be done."""
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
    """Lock and recover a journal, creating it when there is none. `count` is right if it `counts`.

    Unless this `settles` it, what is there already stays as it is until `Opened.settle` is called.
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
    try:  # no `with`: leaving it is a call, and an interrupt there would leave all open
        file.lock()  # it may have other names, whose locks are others
        opened = Opened(file, Lock(path))  # not held yet
        _bring_in_order(disk, path, opened, counts=counts)
        if settles:
            opened.settle()
        disk.sync_directory(path.parent)  # the process that gave it its name may have been killed before that
    except BaseException:
        file.close()
        raise
    return opened


def _bring_in_order(disk: Disk, path: Path, opened: Opened, *, counts: bool) -> None:
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
    header = believed(file, header, size)
    if header != named:
        opened.write(LAST_AT, LINK.pack(header.last))
    hopped = _arrived(header) if not counts and _is_last(file, header, size) else _hop(file, header, size)
    if hopped.last != header.last:
        hopped = _mend_link(opened, header, hopped, size)
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
    """Go to the last transaction, through memory where the system can map files.

    Where transactions are large, a call for each of their heads takes twenty times as long.
    """
    if isinstance(file, Mappable) and HEADER_BYTES <= header.first <= size - TRANSACTION_HEAD_BYTES:
        with contextlib.suppress(StorageFailed), file.map(size, private=True) as memory, memoryview(memory) as view:
            following, count, ending, last = kernel.hop(view, header.first, size, 0, 0, header.last)
            return Hopped(last, count, following, ending)
    return hop(file, header)


def _is_last(file: File, header: Header, size: int) -> bool:
    """Whether the transaction that the header names is seen to be in the chain without going along all of it."""
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


def _mend_link(opened: Opened, header: Header, hopped: Hopped, size: int) -> Hopped:
    """The way to the last transaction; the link to it is made if the sync that should have carried it did not come."""
    file, last, before = opened.file, header.last, hopped.last
    head, before_head = read_head(file, last), read_head(file, before)
    if head is None or before_head is None:
        return hopped
    if not is_torn_link(before_head.next, last) or _ends_at(file, before, size) != last:
        return hopped
    end = find_end(file, last, size)
    if head.complete or end is None or not end.seal:  # only a sealing writer writes the link together with its target
        return hopped
    opened.write(before + NEXT_AT, LINK.pack(last))
    return hop(PatchedFile(file).with_patch(before + NEXT_AT, LINK.pack(last)), header)


def _adopt(path: Path, file: File, opened: Opened, size: int) -> None:
    """Take in the transactions after the last one that are sealed and whole: only their name was not written yet.

    Their writer may not have synced them, so they are named when they and their links are on the disk.
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
    """Let each of these transactions name the next one; the first of them is 0 where there was none."""
    pairs = itertools.pairwise(known)
    write_places(file, ((before + NEXT_AT, LINK.pack(position)) for before, position in pairs if before))


def _end_of(file: File, last: int, size: int) -> int:
    """Where the transactions end; the last of them is known to be whole."""
    end = measure(file, last, size, follow_next=False) if last else HEADER_BYTES
    assert end is not None
    return end


def _replace_header(disk: Disk, path: Path, opened: Opened) -> None:
    """The file is shorter than a header: it was cut short, or its creation was. The account says so, as by `repair`."""
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
    """The transaction that is the last one from now on, 0 for none. Raises what is wrong with the journal."""
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
    """Whether the head of a transaction that has no end says that it is in the storage, and may be believed.

    What was never written may be anything after a power cut, a flag as well; but then hardly the rest of a head. And
    one that another one follows, which names it, was not the last one: the header is wrong.
    """
    if head is None or head.previous != before:
        return False
    following = read_head(file, head.next)
    return (head.next, head.flags) == (0, COMPLETE) or (following is not None and following.previous == last)


def _ends_at(file: File, position: int, size: int) -> int | None:
    """Where a transaction ends, or the header."""
    if position == 0:
        return HEADER_BYTES
    try:
        return measure(file, position, size, follow_next=False)
    except Malformed:
        return None


def _damage(path: Path, file: File, header: Header) -> DamagedJournal:
    """What a reader meets first, or that the header is wrong."""
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
    """Let a transaction be the last one, and end the file at `start`."""
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
    """Have bytes kept that are to be cut off, before anything else is done."""
    opened.cut = Damage(path.name, start, end, reason, "torn_tail")
    opened.keeps = functools.partial(keep_range, disk, path.parent, opened.file, start, end)


def check_is_journal(disk: Disk, path: Path) -> None:
    """Raise `NotFound` unless there is a journal to be recovered."""
    if not disk.exists(path) or disk.is_directory(path):
        raise NotFound(f"{path}: no journal is here")
