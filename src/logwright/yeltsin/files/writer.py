"""TransactionJournal: appends page transactions to a journal, alone and safely. It knows nothing of the table.

A transaction is part of the journal once the header names it as the last one. So the transaction and the link to it are
written and synced before the header is written and synced. A crash before that leaves bytes after the last transaction,
and perhaps a link to them, that were never acknowledged. They are not transactions, even if they look whole; the next
writer cuts them off and keeps a copy (`recovered`, `kept`).

What an append guarantees when it returns, by the sync policy:

    none            the transaction is in the writer's buffer; `flush` gives it to the system, `sync` to the disk
    interval(ms)    the same, and a background thread syncs that often
    always          the transaction is on the disk; threads that append at the same time share one sync

The owner of the storage sets the flag of a transaction with `complete`, after the storage was synced. The flag is never
written before the header names its transaction. So a flag after the last transaction proves that the header is wrong,
and nothing is cut. Appending transactions with the flag needs one more sync.

A failed write or sync is final: the writer accepts nothing more (`Poisoned`), and what was acknowledged before stays.
Open a new writer to continue.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from ...core.bytes.outcome import Damage
from ...core.io.disk import REAL_DISK, Disk, write_all
from ...core.io.durability import SyncLike
from ...core.write.appending import Appending
from ...errors import LogwrightError, StorageFailed, WrongUse
from ..bytes import codec
from ..bytes.layout import COMPLETE, COMPLETION, FIRST_AT, FLAGS_AT, HEADER_BYTES, LINK, LINKS, NEXT_AT
from ..bytes.records import Operation, Transaction
from .files import read_head
from .opening import Opened, open_journal

BUFFER_BYTES = 256 * 1024
"""How many bytes are collected before they are written: few system calls, and still in the processor's cache."""


class Target(NamedTuple):
    """The first and the last transaction in a file, and the end of the file."""

    first: int
    last: int
    end: int


class TransactionJournal(Appending):
    """Appends transactions to the journal at `path`, creating it if there is none.

    One writer at a time: a second one gets `Locked` at once. Safe to use from many threads.

    `recovered` is what opening cut off the end, None if it was whole; `kept` is the path of the copy. `redo` is the
    last transaction that was not rolled back, with its offset, if the journal has all of it and it is not flagged as
    stored. Apply it to the storage and call `complete` before you append anything else.
    """

    _sync_resumes = False

    def __init__(
        self,
        path: Path | str,
        *,
        sync: SyncLike = "none",
        buffer_bytes: int = BUFFER_BYTES,
        disk: Disk = REAL_DISK,
    ) -> None:
        if not isinstance(buffer_bytes, int) or not 0 < buffer_bytes < 2**62:
            raise WrongUse(f"a buffer of {buffer_bytes} bytes makes no sense")
        self.path = Path(path).absolute()  # absolute, so that a change of the working directory does not matter
        self._prepare(self.path, sync)
        self.refusing = False
        self._buffer = bytearray()
        """Transactions that are not written yet. Change it with `_adding` held."""
        self._buffer_bytes = 1 if self._always else buffer_bytes
        self._adding = threading.Lock()
        opened = open_journal(disk, self.path)
        self._take_over(opened)
        self._start()

    def _take_over(self, opened: Opened) -> None:
        self._file, self._lock = opened.file, opened.lock
        self.recovered: Damage | None = opened.cut
        self.kept: Path | None = opened.kept
        self.redo: tuple[int, Transaction] | None = opened.redo
        self.count = opened.count
        """The number of transactions in the journal."""
        self._file_size = opened.end
        self._first, self._last = opened.first, opened.last
        self._written_last = opened.last
        """The last transaction in the file, where the link to the next one is written."""
        self._named_last = opened.last
        """The transaction that the header in the file names as the last."""
        self._named_end = opened.end
        self._naming = threading.Lock()
        self._to_flag: list[tuple[int, int]] = []
        """Transactions that were appended with the flag, which is written last."""

    # --- appending --------------------------------------------------------------------------------------------------

    @property
    def last(self) -> int | None:
        """The offset of the last transaction; None if there is none."""
        return self._last or None

    @property
    def position(self) -> int:
        """Where the next transaction will begin."""
        return self._file_size + len(self._buffer)

    def append(
        self,
        operations: Iterable[Operation],
        *,
        end: int = COMPLETION,
        end_data: bytes = b"",
        timestamp: int | None = None,
        flags: int = 0,
    ) -> int:
        """Append a transaction with its end, and return its offset. `timestamp` is in seconds, now by default."""
        created = int(time.time()) if timestamp is None else timestamp
        return self.append_transaction(Transaction(0, 0, created, flags, tuple(operations), end, end_data))

    def append_transaction(self, transaction: Transaction) -> int:
        """Append a transaction, and return its offset. Its links are replaced by the right ones."""
        if self.refusing:
            self._refuse()
        if transaction.end is None:
            raise WrongUse("a transaction without an end is not appended: it would be cut off")
        data = bytearray(codec.encode(transaction))
        data[FLAGS_AT] &= ~COMPLETE & 0xFF
        is_complete = transaction.complete  # first: an interrupt must not leave it without its flag
        with self._adding:
            if self.refusing:
                self._refuse()
            position = self.position
            LINKS.pack_into(data, 0, self._last, 0)
            if self._last >= self._file_size and self._buffer:  # the one before waits as well
                LINK.pack_into(self._buffer, self._last - self._file_size + NEXT_AT, position)
            self._buffer += data
            self._first = self._first or position
            self._last = position
            self.count += 1
            if is_complete:
                self._to_flag.append((position, transaction.flags))
        if len(self._buffer) >= self._buffer_bytes:
            self._attend()
        return position

    def complete(self, position: int) -> None:
        """Flag the transaction at an offset as stored. The flag is durable after the next `sync`."""
        if self.refusing:
            self._refuse()
        self._check_process()
        with self._writing:
            self._write_gathered()
            head = read_head(self._file, position) if position <= self._last else None
            if head is None:
                raise WrongUse(f"{self.path}: there is no transaction at {position}")
            self._or_poison(
                lambda: write_all(self._file, position + FLAGS_AT, bytes([head.flags | COMPLETE])),
            )
        if self.redo is not None and self.redo[0] == position:
            self.redo = None

    # --- writing ----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write everything appended so far to the operating system: it survives the end of this process."""
        self._check_process()
        with self._writing:
            if self.refusing:
                self._refuse()
            self._write_gathered()
            target = self._target()

            def announce() -> None:
                self._announce(target)
                self._write_flags(target)

            self._or_poison(announce)

    def _attend(self) -> None:
        """Write the buffer. The header is written by the next sync."""
        if self._always:
            self._group.wait()
        elif not self._closed:  # else `close` is writing it
            super().flush()

    def _write_out(self) -> None:
        """Write what is buffered after the last transaction, and the link that leads there."""
        with self._adding:
            buffer, used = bytes(self._buffer), len(self._buffer)
            last = self._last
        if not used:
            return
        try:
            write_all(self._file, self._file_size, buffer)
            if self._written_last:
                write_all(self._file, self._written_last + NEXT_AT, LINK.pack(self._file_size))
        except StorageFailed:
            self._withdraw()
            raise
        with self._adding:  # the next call links what was appended meanwhile
            del self._buffer[:used]
            self._file_size += used
            self._written_last = last

    def _withdraw(self) -> None:
        """After a failure, try to remove everything after the transactions that the header names.

        The header is restored first: while it may name transactions that would be removed, nothing is.
        """
        with contextlib.suppress(LogwrightError):
            first = self._first if self._named_last else 0
            write_all(self._file, FIRST_AT, codec.encode_header(first, self._named_last)[FIRST_AT:])
            if self._named_last:
                write_all(self._file, self._named_last + NEXT_AT, bytes(LINK.size))
            self._file.truncate(self._named_end)

    def _target(self) -> Target:
        """What the header should name: everything that was written."""
        return Target(self._first, self._written_last, self._file_size)

    def _to_sync(self) -> Callable[[], None]:
        target = self._target()

        def sync() -> None:
            try:
                self._file.sync()
            except StorageFailed:
                self._withdraw()
                raise
            if self._announce(target):
                self._file.sync()
            if self._write_flags(target):
                self._file.sync()

        return sync

    def _announce(self, target: Target) -> bool:
        """Write the header that names the last transaction, which makes it part of the journal; whether it was new."""
        with self._naming:
            if target.last <= self._named_last:
                return False
            try:
                write_all(self._file, FIRST_AT, codec.encode_header(target.first, target.last)[FIRST_AT:])
            except StorageFailed:
                self._withdraw()
                raise
            self._named_last, self._named_end = target.last, target.end
            return True

    def _write_flags(self, target: Target) -> bool:
        """Write the flags of transactions that were appended with one, if the header names them; whether there were
        any.
        """
        with self._naming:
            with self._adding:
                due = [item for item in self._to_flag if item[0] <= target.last]
                self._to_flag = self._to_flag[len(due) :]
            for position, flags in due:
                write_all(self._file, position + FLAGS_AT, bytes([flags]))
            return bool(due)

    def _release(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self._lock.release)
            stack.callback(self._file.close)


Writer = TransactionJournal
"""Another name of `TransactionJournal`."""

assert 2 * LINK.size == HEADER_BYTES - FIRST_AT
