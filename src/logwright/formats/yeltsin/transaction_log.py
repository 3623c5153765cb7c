"""TransactionLog: the journal of a database, to which sealed transactions are appended, by one sync each.

`TransactionJournal` writes transactions for anybody, and syncs twice: first the transaction, then the header that names
it. Here one sync is enough, because each completion carries a seal (see `seal.py`). What a power cut can leave of an
append that was not synced, and what opening makes of it:

    the header names it     | its bytes are whole           | the link to it is made if it is missing: it counts
    the header names it     | or not, which the seal tells  | it has no end, and is cut off
    the header does not     | whatever else is there        | it is cut off, and the link to it with it

With `ahead_bytes` the file is longer than what is in it while it is open: zeros are written ahead of the transactions,
which makes a sync twice as fast, and where the system can map files they are stored without a call. Nothing leads
there, so nobody who goes along the links comes there; closing takes them off, and so does opening after a crash.

Whoever uses this sees to it that one thread appends at a time, and that a failure is final.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ...core.disk import REAL_DISK, Disk
from ...core.errors import DamagedJournal
from .area import Area
from .files import read_head
from .layout import (
    COMPLETE,
    COMPLETION,
    FIRST_AT,
    FLAGS_AT,
    LAST_AT,
    LINK,
    NEXT_AT,
    OPERATION_HEAD,
    ROLLBACK,
    TRANSACTION_HEAD,
)
from .opening import open_for_writing
from .overlay import Overlay
from .redo import Redone, redo
from .seal import seal
from .stretch import find_end

_COMPLETE_FLAG: Final = bytes([COMPLETE])


class TransactionLog:
    """The file of a journal. `last` is the offset of the last transaction, `end` is where the next one will be."""

    def __init__(self, path: Path, *, ahead_bytes: int = 0, disk: Disk = REAL_DISK) -> None:
        opened = open_for_writing(disk, path)
        self.path = path
        self._lock = opened.lock
        try:
            self.recovered, self.kept = opened.cut, opened.kept
            self.last, self.end = opened.last, opened.end
            self._ahead_bytes = ahead_bytes
            self._area = Area(opened.file, mapped=bool(ahead_bytes))
            self._is_synced = True
        except BaseException:
            opened.file.close()
            self._lock.release()
            raise

    # --- what is due --------------------------------------------------------------------------------------------------

    def due(self) -> list[Redone]:
        """The transactions at the end that may be missing in the table, earliest first.

        That is the last one, if the journal holds all of it and it is not flagged, and before it those of ours that are
        not flagged either. Transactions that were rolled back are passed over.
        """
        found: list[Redone] = []
        for position, flags in self._backwards():
            end = find_end(self._area.file, position, self.end)
            if end is not None and end.kind == ROLLBACK:
                continue
            if end is None or flags & COMPLETE or (found and not end.seal):
                break
            found.append(Redone(position, end))
        return found[::-1]

    def last_completed(self) -> Redone | None:
        """The last transaction that was not rolled back, flagged or not."""
        for position, _ in self._backwards():
            end = find_end(self._area.file, position, self.end)
            if end is not None and end.kind == COMPLETION:
                return Redone(position, end)
        return None

    def _backwards(self) -> Iterator[tuple[int, int]]:
        """Where transactions begin, the last one first, and their flags."""
        position = self.last
        while position:
            head = read_head(self._area.file, position)
            if head is None or head.previous >= position:
                raise DamagedJournal(self.path, position, "the transaction names none before it as its previous")
            yield position, head.flags
            position = head.previous

    def redo(self, due: Redone, target: Overlay) -> None:
        """Do a transaction to the pages of an overlay."""
        redo(self._area.file, due, self.end, target)

    # --- appending ----------------------------------------------------------------------------------------------------

    def append(self, timestamp: int, operations: bytes, heads: bytes = b"") -> int:
        """Append a transaction that is completed; its offset. It is with the system when this returns."""
        data = seal(self.last, timestamp, operations, heads)
        return self._append(timestamp, operations, OPERATION_HEAD.pack(COMPLETION, len(data)) + data)

    def append_void(self, timestamp: int, operations: bytes) -> int:
        """Append a transaction that was rolled back."""
        return self._append(timestamp, operations, OPERATION_HEAD.pack(ROLLBACK, 0))

    def _append(self, timestamp: int, operations: bytes, end: bytes) -> int:
        position, area = self.end, self._area
        data = b"".join((TRANSACTION_HEAD.pack(self.last, 0, timestamp, 0), operations, end))
        following = position + len(data)
        if self._ahead_bytes and following > area.size:
            area.add_zeros(following + self._ahead_bytes)
        area.store(position, data)
        # A process that dies before the last of these leaves bytes that nothing leads to, and perhaps a link to them.
        link = LINK.pack(position)
        if self.last:
            area.store(self.last + NEXT_AT, link)
            area.store(LAST_AT, link)
        else:
            area.store(FIRST_AT, link + link)
        self.last, self.end = position, following
        self._is_synced = False
        return position

    def complete(self, position: int) -> None:
        """Say that a transaction is in the table, which must have been synced."""
        self._area.store(position + FLAGS_AT, _COMPLETE_FLAG)
        self._is_synced = False

    def sync(self) -> None:
        """Make everything so far durable."""
        if not self._is_synced:
            self._is_synced = True  # before: what is stored while the system is busy says that it is not
            self._area.sync()

    # --- the end ------------------------------------------------------------------------------------------------------

    def trim(self) -> None:
        """Take the zeros off that were written ahead."""
        self._area.cut(self.end)

    def close(self) -> None:
        """Close the file, and let others open the journal."""
        try:
            self._area.close()
        finally:
            self._lock.release()
