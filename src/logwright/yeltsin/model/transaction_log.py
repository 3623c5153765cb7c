"""TransactionLog: the journal of a database, where sealed transactions are appended with one sync each.

`TransactionJournal` writes transactions that any program can read, and syncs twice: first the transaction, then the
header that names it. Here one sync is enough, because the end of each transaction carries a seal (see `seal.py`). What
a power cut can leave of an append that was not synced, and what opening makes of it:

    the header names it     | its bytes are whole           | the link to it is made if it is missing: it counts
    the header names it     | or not: see the seal          | it has no end, and is cut off
    the header does not     | its bytes are whole           | it is linked and named: it counts
    the header does not     | or not                        | it is cut off, and the link to it with it

This holds for one transaction, so before another one is appended, the last one is synced. And an incomplete seal can
only be recognized by its mark: if the beginning of the end spans two sectors, of which the second may be missing, the
header also names the transaction only after a sync. With `names_later` the header names no transaction before `sync`,
and none is linked before `complete` or `sync`, because a sync is faster if fewer places of the file have changed. Then
any number of transactions may follow the one that the header names. Those up to the first incomplete one are part of
the journal.

With `ahead_bytes` zeros are written ahead of the transactions while the journal is open. This makes a sync twice as
fast, and without syncs transactions are stored in memory without a system call. No link leads to the zeros. Closing
removes them, and so does opening after a crash.

The caller ensures that one thread appends at a time, and that a failure is final.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Final

from ...errors import LogwrightError, StorageFailed, is_no_space
from ..bytes.layout import (
    COMPLETE,
    COMPLETION,
    FIRST_AT,
    FLAGS_AT,
    LAST_AT,
    LINK,
    NEXT_AT,
    OPERATION_HEAD,
    OPERATION_HEAD_BYTES,
    ROLLBACK,
    TRANSACTION_HEAD,
)
from ..files.area import Area
from ..files.opening import Opened
from ..files.seal import MARK, seal

SECTOR_BYTES: Final = 512
"""The unit that a disk writes atomically. A larger unit does no harm."""


def lies_in_two_sectors(end: int) -> bool:
    """Whether the head of the operation at a position and the mark of its seal are in different sectors."""
    return end // SECTOR_BYTES != (end + OPERATION_HEAD_BYTES + len(MARK) - 1) // SECTOR_BYTES


class TransactionLog:
    """The file of a journal. `last` is the offset of the last transaction, `end` is the offset of the next one."""

    def __init__(self, opened: Opened, *, ahead_bytes: int = 0, syncs: bool = True, names_later: bool = False) -> None:
        """Append to a recovered journal. If this succeeds, `close` of this object closes it."""
        self._area = Area(opened.file, mapped=bool(ahead_bytes) and not syncs)
        self._opened = opened
        self.last, self.end = opened.last, opened.end
        self._first, self._named = opened.first, opened.last
        self._ahead_bytes = ahead_bytes
        self._syncs_each = syncs and not names_later
        self._names_later = names_later
        self._unlinked: list[int] = []
        """The transactions that are not linked yet."""
        self._linked = self.last
        """The last transaction that can be reached by links."""
        self.unknown_flags: dict[int, int] = {}
        """Other flags, set by other programs, of transactions that will be completed; they are kept."""
        self._is_synced = self._is_appended = True
        """Whether everything is durable, and whether everything but flags is."""

    # --- appending ----------------------------------------------------------------------------------------------------

    def append(self, timestamp: int, operations: bytes, heads: bytes = b"") -> int:
        """Append a completed transaction, and return its offset. It survives the process when this returns."""
        return self._append_parts(timestamp, operations, COMPLETION, heads)

    def append_void(self, timestamp: int, operations: bytes) -> int:
        """Append a transaction that was rolled back."""
        return self._append_parts(timestamp, operations, ROLLBACK, b"")

    @property
    def memory(self) -> bytearray | None:
        """The memory of the file if it is mapped: then transactions can use the fast path."""
        return self._area.memory

    def make_room(self, end: int) -> bytearray:
        """Extend the zeros at least up to here; returns the memory of the file, which is a new object."""
        self._add_zeros(end)
        memory = self._area.memory
        assert memory is not None
        return memory

    def _add_zeros(self, end: int) -> None:
        ahead_bytes = self._ahead_bytes
        try:
            # Up to a multiple: the system caches sequential writes in large aligned pieces.
            self._area.add_zeros((end // ahead_bytes + 2) * ahead_bytes)
        except StorageFailed as error:
            if not is_no_space(error):
                raise
            self._area.add_zeros(end)  # on an almost full disk, only what is needed

    def register_stored(self, position: int, end: int) -> None:
        """Register a transaction that was stored in memory, and is named and flagged already."""
        self._first = self._first or position
        self.last = self._named = position
        self.end = end
        self._is_synced = self._is_appended = False

    def _append_parts(self, timestamp: int, operations: bytes, end: int, heads: bytes) -> int:
        sealed = seal(self.last, timestamp, operations, heads)
        head = TRANSACTION_HEAD.pack(self.last, 0, timestamp, 0)
        data = b"".join((head, operations, OPERATION_HEAD.pack(end, len(sealed)), sealed))
        return self.append_encoded(data, len(head) + len(operations))

    def append_encoded(self, data: bytes, end_at: int) -> int:
        """Append a sealed transaction, whose end begins at `end_at` of these bytes."""
        if self._syncs_each and not self._is_appended:
            self.sync()
        position, area = self.end, self._area
        following = position + len(data)
        if self._ahead_bytes and following > area.size:
            self._add_zeros(following)
        try:
            area.store(position, data)
            if self._names_later:
                self._unlinked.append(position)
            elif self.last:
                area.store(self.last + NEXT_AT, LINK.pack(position))
        except BaseException:
            self._withdraw(position)
            raise
        self._first = self._first or position
        self.last, self.end = position, following
        if not self._names_later:
            if self._syncs_each and lies_in_two_sectors(position + end_at):
                self._area.sync()
            self._name(position)
        self._is_synced = self._is_appended = False
        return position

    def _withdraw(self, position: int) -> None:
        """After a failed write, try to remove everything after the last transaction."""
        with contextlib.suppress(LogwrightError):
            if self.last:
                self._area.store(self.last + NEXT_AT, bytes(LINK.size))
        with contextlib.suppress(LogwrightError):
            self._area.file.truncate(position)

    def _name(self, last: int) -> None:
        """Write the header that names the last transaction."""
        if self._named:
            self._area.store(LAST_AT, LINK.pack(last))
        else:
            self._area.store(FIRST_AT, LINK.pack(self._first) + LINK.pack(last))
        self._named = last

    def _take_links(self) -> list[tuple[int, bytes]]:
        """The missing links between transactions: the position and the bytes of each."""
        chain = [self._linked, *self._unlinked]
        if self._unlinked:
            self._linked = self._unlinked[-1]
            self._unlinked.clear()
        return [(before + NEXT_AT, LINK.pack(position)) for before, position in itertools.pairwise(chain) if before]

    def complete(self, *positions: int) -> None:
        """Flag transactions as stored, after the table was synced, and write missing links."""
        places = self._take_links()
        for position in positions:
            flags = COMPLETE | self.unknown_flags.pop(position, 0)
            places.append((position + FLAGS_AT, bytes([flags])))
        self._store_places(places)

    def _store_places(self, places: list[tuple[int, bytes]]) -> None:
        if places:
            self._area.store_places(sorted(places))
            self._is_synced = False

    def sync_appended(self) -> None:
        """Make all transactions so far durable, whether the header names them or not."""
        if not self._is_appended:
            self._sync_all()

    def _sync_all(self) -> None:
        self._is_synced = self._is_appended = True  # before the sync: a store meanwhile sets it to False again
        self._area.sync()

    def publish(self) -> None:
        """Write missing links and the header. Everything but the header is durable after that."""
        last = self.last
        if self._named == last:
            return
        self._store_places(self._take_links())
        if not self._is_synced:
            self._sync_all()  # a header never names what no link leads to
        self._name(last)
        self._is_synced = False

    def sync(self) -> None:
        """Make everything so far durable, including the header that names it."""
        self.publish()
        if not self._is_synced:
            self._sync_all()

    # --- the end ------------------------------------------------------------------------------------------------------

    def trim(self) -> None:
        """Remove the zeros that were written ahead."""
        self._area.cut(self.end)

    def close(self) -> None:
        """Close the file, and let others open the journal."""
        try:
            self._area.close()
        finally:
            self._opened.close()
