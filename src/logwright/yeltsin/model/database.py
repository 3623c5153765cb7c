"""Database: a table and its journal. After a crash, a transaction is applied completely or not at all.

    with Database("t.ydb", "t.jrnl") as db:
        with db.transaction() as tx:              # commits on leaving, rolls back on an exception
            page = tx.allocate()
            tx.modify(page, 0, b"hello")
        db.read(page, 0, 5)

The order of a commit, and what a crash after each step leaves:

    1. operations and completion into the journal     no end, or a seal that does not hold: none of it, it is cut off
    2. sync of the journal                            all of it: opening redoes it
    3. after images into the table, which is `TBL?`   all of it: redo from any mixture, see `redo.py`
    4. sync of the table, which is `TBL!` again       all of it: redo changes nothing
    5. the flag of the transaction in the journal     all of it

The flag is not synced by itself, and neither is `TBL!`: the next commit or `close` makes them durable. If the flag is
missing, the redo changes nothing. A table that is still `TBL?` is repaired by redoing the last transaction, flagged or
not.

With `checkpoint_bytes` the steps from 3 on wait until the journal has grown by this many bytes. Each commit is then one
sync of the journal, which threads share, and after a crash a few more transactions are redone. Until then committed
pages are in memory (see `overlay.py`), and the table file does not change. With `interval` they wait for the background
thread, which syncs the journal before anything is written to the table. With `none` nothing is ever synced: committed
transactions survive the process, but a power cut may leave any mixture of table and journal.

One process at a time can open a database. One transaction runs at a time, and others wait; reading does not wait. A
failed write or sync is final: `Poisoned` from then on, reading still works, and opening again recovers.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ...core.bytes.outcome import Damage
from ...core.io.disk import REAL_DISK, Buffer, Disk
from ...core.io.durability import NONE, GroupCommit, SyncLike
from ...core.read.report import Report
from ...core.write.appending import Appending
from ...errors import Closed, WrongUse, is_no_space
from ..bytes.layout import MAX_MODIFICATION_BYTES, OPERATION_HEAD_BYTES, TRANSACTION_HEAD_BYTES
from ..bytes.table_layout import PAGE_DATA_BYTES
from ..files.area import HeldArea
from .kernel import Changes, modify_at_once
from .overlay import Changeable
from .page_links import check_page
from .recovery import open_both
from .table import TableFile, as_bytes, check_range, lock_table, open_file
from .table_check import check_table, walk_free, walk_pages
from .transaction import Transaction
from .transaction_log import TransactionLog

INTERVAL_CHECKPOINT_BYTES: Final = 16 << 20
"""With `interval`, the most bytes of journal that wait for the background thread."""
AHEAD_BYTES: Final = 1 << 19
"""How many bytes of zeros are written ahead in a journal that is synced for each commit, or never; at most twice that.
"""
NOTHING_BYTES: Final = Changes(bytearray()).size
"""The size of a transaction without modifications."""
END_BYTES: Final = NOTHING_BYTES - TRANSACTION_HEAD_BYTES
"""The size of the end of a transaction that only modifies pages."""


class Database(Appending):
    """The pages of a table, changed by transactions.

    The table and its journal are created if they are missing. Opening recovers from a crash: `recovered` is what was
    cut off the end of the journal, None if nothing was, and `kept` is the path of the copy; `redone` are the offsets of
    the transactions that were redone.
    """

    # Slots, because Python accesses the attributes of an object slowly once it has more than 30 of them.
    __slots__ = (
        *("_access", "_alone", "_checkpoint_bytes", "_group", "_has_short_way", "_held", "_known", "_lock", "_log"),
        *("_log_memory", "_overlay", "_pages", "_running", "_running_in", "_syncs", "_table", "_table_memory", "_turn"),
        *("_waiting", "_waiting_bytes"),
    )
    refusing = False
    _sync_resumes = False

    def __init__(
        self,
        table: Path | str,
        journal: Path | str,
        *,
        sync: SyncLike = "always",
        checkpoint_bytes: int = 0,
        disk: Disk = REAL_DISK,
    ) -> None:
        self.path = Path(os.path.abspath(table))
        self.journal_path = Path(os.path.abspath(journal))
        if self.path == self.journal_path:
            raise WrongUse(f"{self.path} cannot be a table and its journal as well")
        if not isinstance(checkpoint_bytes, int) or not 0 <= checkpoint_bytes < 2**62:
            raise WrongUse(f"{checkpoint_bytes} bytes of journal between checkpoints make no sense")
        self._prepare(self.path, sync)
        self._checkpoint_bytes = checkpoint_bytes
        if self.policy.name == "interval":
            self._checkpoint_bytes = checkpoint_bytes or INTERVAL_CHECKPOINT_BYTES
        self._syncs = self.policy != NONE
        self._turn = threading.RLock()  # it knows its owner: see `_take_turn`
        self._running: Transaction | None = None
        self._alone = Transaction(self)
        """Stands for the transaction of a single call."""
        self._running_in = 0
        self._access = threading.Lock()
        self._waiting: list[int] = []
        """Offsets of the transactions that are not in the table yet."""
        self._waiting_bytes = 0
        stack = contextlib.ExitStack()
        try:  # no `with`: an interrupt while it exits would leave everything open
            stack.callback(self._release_lock)
            self._lock = lock_table(disk, self.path)
            self._open_files(disk, stack)
            area = self._table.area
            self._held = area if isinstance(area, HeldArea) else None
            self._pages: Changeable = self._overlay if self._held is None else self._table
            """The committed pages, in the table or not."""
            self._has_short_way = not self._syncs and not checkpoint_bytes
            self._known: set[int] = set()
            """Pages that are known to be in use, for the fast path."""
            self._log_memory = bytearray()
            self._table_memory: bytearray | None = None
            self._refresh_memory()
            stack.callback(self._end_sync)
            self._start()
            self._group = GroupCommit(self._sync_commits)
        except BaseException:
            stack.close()
            raise

    def _release_lock(self) -> None:
        if hasattr(self, "_lock"):
            self._lock.release()

    # --- opening ------------------------------------------------------------------------------------------------------

    def _open_files(self, disk: Disk, stack: contextlib.ExitStack) -> None:
        """Open both files, and write missing transactions to the table."""
        waits = self._syncs and self._checkpoint_bytes > 0

        def open_table() -> TableFile:
            return open_file(self.path, written=self._syncs, held=waits, disk=disk)

        found = open_both(self.path, self.journal_path, open_table, disk, stack)
        found.settle()
        self._table, self._overlay = found.table, found.overlay
        self._log = TransactionLog(
            found.journal,
            ahead_bytes=0 if self.policy.name == "interval" else AHEAD_BYTES,
            syncs=self._syncs,
            names_later=waits,
        )
        stack.callback(self._log.close)
        self.recovered: Damage | None = found.journal.cut
        self.kept: Path | None = found.journal.kept
        self.redone = tuple(redone.position for redone in found.again)
        self._waiting = [redone.position for redone in found.due]
        self._log.unknown_flags = {redone.position: redone.flags for redone in found.due if redone.flags}
        if self.redone:
            self._settle(syncs=True)
            self._log.sync()
            found.finish()

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, page: int, offset: int = 0, size: int | None = None) -> bytes:
        """The data of a page, or a range of it, as the last committed transaction has left it."""
        size = PAGE_DATA_BYTES - offset if size is None else size
        check_range(self.path, page, offset, size)
        with self._access:
            self._check_open()
            check_page(self._pages, page)
            return self._pages.load(page, offset, size)

    def pages(self) -> list[int]:
        """The pages in use, from the first to the last."""
        with self._access:
            self._check_open()
            return list(walk_pages(self._pages))

    def free_pages(self) -> list[int]:
        """The removed pages, the one removed last first."""
        with self._access:
            self._check_open()
            return list(walk_free(self._pages))

    def verify(self) -> Report:
        """Check every link of every page of the table."""
        with self._access:
            self._check_open()
            return check_table(self._pages)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"{self.path}: this database is closed")

    # --- transactions -------------------------------------------------------------------------------------------------

    def transaction(self) -> Transaction:
        """A transaction for a `with` statement. Entering the block waits until no other one runs."""
        return Transaction(self)

    def modify(self, page: int, offset: int, data: Buffer) -> None:
        """Replace bytes of a page's data in a transaction of its own."""
        if type(data) is not bytes:
            data = as_bytes(data)
        if self._table_memory is None:
            with self.transaction() as tx:
                tx.modify(page, offset, data)
            return
        alone = self._alone
        try:
            self._take_turn(alone)
            size = len(data)
            if offset < 0 or offset + size > PAGE_DATA_BYTES or page not in self._known:
                self._check_in_use(page, offset, size)
            if not size:
                self._leave(alone)
                return
            if self._held is None:
                self._modify_at_once(self._table_memory, page, offset, data)
                self._leave(alone)
                return
            changes = Changes(self._table_memory)
            changes.modify(page, offset, data)
            self._write_held(changes, self._held)
            self._leave(alone)
        except BaseException:
            self._leave(alone)
            raise
        self._wait_for_sync()

    def _modify_at_once(self, table: bytearray, page: int, offset: int, data: bytes) -> None:
        """Commit one modification without a sync, with one call that stores all of it."""
        try:
            log, journal = self._log, self._log_memory
            position = log.end
            most = position + NOTHING_BYTES + OPERATION_HEAD_BYTES + MAX_MODIFICATION_BYTES
            if most > len(journal):
                journal = self._log_memory = log.make_room(most)
            now = int(time.time())
            log.register_stored(position, modify_at_once(table, journal, page, offset, data, position, log.last, now))
        except BaseException as error:
            self._failure, self._failure_raised, self.refusing = error, True, True
            raise

    def _enter(self, transaction: Transaction) -> Changes | None:
        """Wait for a transaction's turn; returns the `Changes` for its modifications if the fast path is possible."""
        self._take_turn(transaction)
        return None if self._table_memory is None else Changes(self._table_memory)

    def _take_turn(self, transaction: Transaction) -> None:
        """Wait until no other transaction is running, and let this one run."""
        me = threading.get_ident()
        if self._running_in == me:
            raise WrongUse(f"{self.path}: a transaction is running in this thread already")
        try:
            self._turn.acquire()
            self._running, self._running_in = transaction, me
            if self.refusing:
                self._refuse()
        except BaseException:
            if self._turn._is_owned():  # type: ignore[attr-defined]
                self._running, self._running_in = None, 0
                self._turn.release()
            raise

    def _leave(self, transaction: Transaction) -> None:
        """Let the next transaction run; a second call for the same one does nothing."""
        if self._running is transaction and self._running_in == threading.get_ident():
            self._running, self._running_in = None, 0
            self._turn.release()

    def _roll_back(self, transaction: Transaction) -> None:
        try:
            if not transaction.is_empty:
                with self._writing:
                    if self.refusing:
                        self._refuse()
                    self._or_poison(lambda: self._write_void(transaction))
        finally:
            self._leave(transaction)

    def _commit(self, transaction: Transaction) -> None:
        try:
            if transaction.is_empty:
                return
            with self._writing:
                if self.refusing:
                    self._refuse()
                self._reserve(transaction.end)
                self._or_poison(lambda: self._write(transaction))
        finally:
            self._leave(transaction)
        self._wait_for_sync()

    def _reserve(self, end: int) -> None:
        """Reserve space for new pages before the journal names them.

        If there is no space, nothing changes, and the database stays usable. After a crash, opening removes the space.
        """
        if end > self._table.area.size:
            try:
                self._table.area.add_zeros(end)
            except BaseException as error:
                if not is_no_space(error):
                    self._failure, self._failure_raised, self.refusing = error, True, True
                raise

    def _commit_shortly(self, transaction: Transaction, changes: Changes) -> None:
        """Commit modifications of pages without a sync: one call stores all of them, and nothing can interrupt it."""
        if self._held is not None:
            self._commit_held(transaction, changes, self._held)
            return
        try:
            if self.refusing:
                self._refuse()
            size = changes.size
            if size == NOTHING_BYTES:
                return
            log, memory = self._log, self._log_memory
            position = log.end
            end = position + size
            if end > len(memory):
                memory = self._log_memory = log.make_room(end)
            with self._access:  # without the kernel each change of the table is a separate call
                changes.commit(memory, position, log.last, int(time.time()))
            log.register_stored(position, end)
        except BaseException as error:
            if not self.refusing:
                self._failure, self._failure_raised, self.refusing = error, True, True
            raise
        finally:
            self._leave(transaction)

    def _commit_held(self, transaction: Transaction, changes: Changes, held: HeldArea) -> None:
        """Commit modifications of pages of a table whose changes wait in memory."""
        try:
            if changes.size == NOTHING_BYTES:
                return
            self._write_held(changes, held)
        finally:
            self._leave(transaction)
        self._wait_for_sync()

    def _write_held(self, changes: Changes, held: HeldArea) -> None:
        """Write modifications to the journal with one write; in the table they wait."""
        with self._writing:
            if self.refusing:
                self._refuse()
            try:
                log, size = self._log, changes.size
                data = changes.encode(log.last, int(time.time()))
                self._waiting.append(log.append_encoded(data, size - END_BYTES))
                with self._access:
                    changes.apply(held.memory)
                held.hold(changes.ranges())
                self._waiting_bytes += size
                if self._waiting_bytes >= self._checkpoint_bytes:
                    self._settle(syncs=True)
                    self._refresh_memory()
            except BaseException as error:
                self._poison(error)
                raise

    def _wait_for_sync(self) -> None:
        """Wait until the journal is on the disk, if the policy requires that for each commit."""
        if self._always and self._waiting:
            self._group.wait()

    def _refresh_memory(self) -> None:
        """Get the memory of both files: it is another object after a file has grown."""
        if self._held is not None:
            self._table_memory = self._held.memory
            return
        log_memory = self._log.memory if self._has_short_way else None
        self._log_memory = bytearray() if log_memory is None else log_memory
        self._table_memory = None if log_memory is None else self._table.area.memory

    def _check_in_use(self, page: int, offset: int, size: int) -> None:
        """Raise `WrongUse` for a page that is not in use, or a range that is not in it."""
        check_range(self.path, page, offset, size)
        if page not in self._known:
            check_page(self._table, page)
            self._known.add(page)

    def _write(self, transaction: Transaction) -> None:
        """Write a transaction to the journal, and if a checkpoint is due, everything that waits to the table."""
        log = self._log
        start = log.end
        heads = transaction.sealed()
        if heads:
            self._known.clear()
        position = log.append(int(time.time()), transaction.operations(), heads)
        self._waiting_bytes += log.end - start
        settles = self._waiting_bytes >= self._checkpoint_bytes
        if settles and self._syncs:
            self._sync_log()
        with self._access:
            transaction.apply_to(self._pages)
        self._waiting.append(position)
        if settles:
            self._settle(syncs=self._syncs)
        self._refresh_memory()

    def _write_void(self, transaction: Transaction) -> None:
        self._log.append_void(int(time.time()), transaction.operations())
        self._refresh_memory()

    def _settle(self, *, syncs: bool) -> None:
        """Write everything that waits to the table, and flag it. `_writing` is held, except on opening."""
        log, table, overlay = self._log, self._table, self._overlay
        if overlay.is_empty and not table.area.holds and table.is_whole and not self._waiting:
            return
        if syncs:
            self._sync_log()  # nothing reaches the table before it is on the disk
        with self._access:
            table.begin()
            overlay.write_to(table)
            overlay.forget()
            table.area.release()
        if syncs:
            table.area.sync()
        table.finish()
        log.complete(*self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        if syncs:
            log.publish()

    def _sync_log(self) -> None:
        with self._syncing:  # a sync that another thread began must end before anything relies on it
            self._log.sync_appended()

    def checkpoint(self) -> None:
        """Write all committed transactions to the table, and make them durable there and in the journal."""
        self._check_process()
        with self._writing:
            if self.refusing:
                self._refuse()
            self._or_poison(self._settle_durably)

    def _settle_durably(self) -> None:
        self._settle(syncs=True)
        self._table.area.sync()
        self._log.sync()
        self._refresh_memory()

    def _refuse(self) -> None:
        self._check_process()
        super()._refuse()

    # --- see Appending ------------------------------------------------------------------------------------------------

    def _write_out(self) -> None:
        """Nothing to write: committed transactions are in the journal already."""

    def _to_sync(self) -> Callable[[], None]:
        return self._log.sync_appended

    def _sync_commits(self) -> None:
        """Sync the journal for commits that wait for it. Nothing must be written before."""
        with self._syncing:
            if self._failure is not None:
                self._refuse()  # another thread's sync failed meanwhile: ours could succeed and mean nothing
            self._or_poison(self._log.sync_appended)

    def _sync_in_background(self) -> None:
        try:
            self.checkpoint()
        except BaseException:
            self._failure_raised = False  # no caller saw it: the next call or `close` reports it
            raise

    def close(self) -> None:
        """Write everything to the table, sync both files, and release the locks. A second call does nothing.

        It waits for a transaction that runs in another thread.
        """
        if self._running_in == threading.get_ident():
            raise WrongUse(f"{self.path}: a transaction is still running in this thread")
        with self._turn:
            try:
                if not self._closed and self._failure is None:
                    self.checkpoint()
                    self._or_poison(self._log.trim)
            finally:
                super().close()

    def _release(self) -> None:
        with self._access, contextlib.ExitStack() as stack:
            stack.callback(self._lock.release)
            stack.callback(self._log.close)
            stack.callback(self._table.area.close)

    def _reset_after_fork(self) -> None:
        """Refuse in a forked child: it shares the files of its parent's databases, and must not write to them."""
        super()._reset_after_fork()
        self.refusing = True
        self._turn = threading.RLock()  # another thread, which the child does not have, may hold it
