"""Compaction: keeps the journal of a queue small, by erasing, rewriting, rotating and packing it.

    erase       if the queue is empty, and the journal has `default_journal_bytes`
    rewrite     if the journal is larger than `max_journal_bytes`, and this at least halves its size
    rotate      if the newest file is larger than `max_memory_bytes`
    shrink      if the disk is full: erase the journal of an empty queue, however small it is

A journal of one file with a small state is restated at once: the state of the queue is written to a temporary file,
which is synced and renamed over the newest file. A crash leaves one of the two. Otherwise the newest file is rotated,
and then all rotated files are packed: by a thread, while the queue is in use, or with `background=False` by the call
that made it due. `packing.py` describes what a crash leaves. When the pack is complete, the queue reads behind from it,
and only then are the files that it replaces removed.

Compaction that fails before it has changed anything, as on a full disk, is retried later; until then the queue
continues with its present files.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...core.io.threads import Background, Flag
from ...errors import Closed, LogwrightError
from ..bytes.layout import CONFIRM_REMOVE, KESTREL2, PACK_SUFFIX, REMOVE, XID_HEAD, rotated_name
from ..bytes.records import Dialect
from ..files.reader import Reader
from .limits import Limits
from .memory import Memory, operations_of
from .packing import write_pack
from .shelf import NO_LIMIT, Entry

logger = logging.getLogger("logwright.kestrel")

SMALL_BYTES: Final = 1 << 20
"""The largest state that is written, and the most bytes that are synced, while all callers wait."""
_RESTATED_BYTES: Final = 16 << 20
"""The largest state that is rewritten to put items back at the head."""
_STEP_BYTES: Final = 1 << 16
_PAGE_BYTES: Final = 1 << 12
"""The unit in which a file system allocates space: making a file smaller than this gains nothing."""


class Compaction:
    """Keeps the journal of a queue small. The queue's mutex is held unless a method says otherwise."""

    def __init__(self, queue: Memory, name: str, limits: Limits, *, background: bool) -> None:
        self.limits = limits
        self.thread = MaintenanceThread(name, self._run_in_background) if background else None
        self._is_packing = False
        """Whether the thread is working on the files. Changed with the mutex held."""
        self._queue = queue
        self._restated_bytes = 0
        self._is_stopped = False
        self._has_refilled = False
        self._erases_when_empty = False
        """Whether to erase the journal as soon as the queue is empty, however small it is."""
        self._can_compact = True
        """False after a failure from which only reopening the queue recovers."""

    # --- choosing what is due ---------------------------------------------------------------------------------------

    def set_thresholds(self, *, later: bool = False) -> None:
        """Set the sizes of the newest file at which the queue calls `run`.

        With `later`, `run` is called only after the file has grown, although a threshold has been reached.
        """
        queue = self._queue
        if not self._can_compact:
            queue.shelf.compact_bytes = queue.shelf.erase_bytes = NO_LIMIT
            return
        rotated, most = queue.journal_bytes - queue.shelf.position, self.limits.max_journal_bytes
        again = queue.shelf.position + max(_STEP_BYTES, min(queue.shelf.position, most) // 16)
        sizes = most - rotated, self.limits.max_memory_bytes
        queue.shelf.compact_bytes = min(again if size < queue.shelf.position else size for size in sizes)
        queue.shelf.erase_bytes = max(0, self.limits.default_journal_bytes - rotated)
        if later:
            queue.shelf.erase_bytes = max(queue.shelf.erase_bytes, queue.shelf.position + _STEP_BYTES)

    def _due(self) -> Callable[[], None] | None:
        """The action that the journal needs, if any."""
        queue = self._queue
        total, live = queue.journal_bytes, queue.live_bytes()
        is_idle = not queue.shelf.items and (self._erases_when_empty or total >= self.limits.default_journal_bytes)
        if is_idle and total >= 2 * min(live, self._restated_bytes):  # or else it would be repeated for ever
            return self.restate if self._is_small(live) else self.rewrite
        if total > self.limits.max_journal_bytes and total >= 2 * live:
            return self.restate if self._is_small(live) else self.rewrite
        return self._rotate if queue.shelf.position > self.limits.max_memory_bytes else None

    def _is_small(self, live: int) -> bool:
        return live <= SMALL_BYTES and not self._queue.behind_items and not self._queue.rotated

    def run_if_due(self) -> None:
        """Compact the journal if that is due, at the end of a call that has taken items."""
        shelf = self._queue.shelf
        self.run_if_refilled()
        if shelf.position > shelf.compact_bytes or (not shelf.items and shelf.position >= shelf.erase_bytes):
            self.run()

    def note_refill(self) -> None:
        """The queue has read behind: compaction may be worthwhile long before the journal grows again."""
        self._has_refilled = True
        self.run_if_refilled()

    def run_if_refilled(self) -> None:
        """Compact the journal if reading behind has made that worthwhile."""
        queue = self._queue
        if self._has_refilled and not queue.shelf.unsettled:  # otherwise the enclosing call does it
            self._has_refilled = False
            most = max(self.limits.max_journal_bytes, 2 * queue.live_bytes())
            if queue.shelf.compact_bytes < NO_LIMIT and queue.journal_bytes > most:
                self.run()

    def run(self) -> None:
        """Do what is due, or let the thread do it if it takes time."""
        due = self._due()
        if due is None:
            self.set_thresholds(later=True)
        elif self.thread is not None and self._takes_time(due):
            self._queue.shelf.compact_bytes = self._queue.shelf.erase_bytes = NO_LIMIT  # until it is done
            self.thread.request()
        else:
            self._attempt(due)

    def _takes_time(self, due: Callable[[], None]) -> bool:
        """Whether the thread should do it."""
        if due == self.restate:
            return False
        return (self._queue.shelf.position if due == self._rotate else self._queue.journal_bytes) > SMALL_BYTES

    def _attempt(self, action: Callable[[], None]) -> None:
        """Compact the journal; if that fails without a change, retry later."""
        failed = False
        try:
            action()
        except LogwrightError as error:
            if self._queue.has_failed:
                raise
            failed = True
            logger.warning("%s: the journal could not be compacted; this is retried later: %s", self._queue.path, error)
        self.set_thresholds(later=failed)

    # --- when the disk is full --------------------------------------------------------------------------------------

    @property
    def can_shrink(self) -> bool:
        """Whether the queue is empty and erasing its journal would free disk space."""
        queue = self._queue
        if queue.shelf.items or queue.refusing or queue.shelf.compact_bytes == NO_LIMIT:
            return False  # in the last case the thread is working on it
        total = queue.journal_bytes
        return total != self._restated_bytes and total > 2 * queue.live_bytes() + _PAGE_BYTES

    def shrink(self) -> None:
        """Erase the journal of an empty queue at once. If that fails, it stays as it is. The mutex is free."""
        with self._queue.mutex:
            if self.can_shrink:
                self._erases_when_empty = True
                try:
                    self.run()
                finally:
                    # It stays set while the thread does it.
                    self._erases_when_empty &= self._queue.shelf.compact_bytes == NO_LIMIT

    # --- restating --------------------------------------------------------------------------------------------------

    def restate(self) -> None:
        """Replace the journal by one new file with the state of the queue, all of which is in memory."""
        self._queue.replace()
        self._restated_bytes = self._queue.shelf.position

    def restate_with(self, entries: Sequence[Entry]) -> bool:
        """Put items at the head and rewrite the journal accordingly; False if that was not done."""
        queue = self._queue
        if queue.live_bytes() > _RESTATED_BYTES or self._is_packing:
            return False
        # These items must precede all others, so they get at least one attempt if the head has any.
        least = queue.shelf.head()[3] if queue.shelf.memory_items else 0
        first = [(*entry[:3], max(entry[3], min(least, 1)), entry[4]) for entry in entries]
        for entry in reversed(first):
            queue.shelf.put_back(entry)
        try:
            if queue.rotated or queue.behind_items:
                self._pack(contextlib.nullcontext(), first)
            else:
                self.restate()
        except LogwrightError:
            if queue.has_failed:
                raise
            for _ in first:
                queue.shelf.pop()
            return False
        except BaseException as error:  # the journal may differ from the memory
            queue.poison(error)
            raise
        self.set_thresholds()
        return True

    # --- rotating and packing ---------------------------------------------------------------------------------------

    def _rotate(self) -> None:
        self._queue.rotate()

    def rewrite(self) -> None:
        """Rotate and pack while all callers wait."""
        self._pack(contextlib.nullcontext())

    def _run_in_background(self) -> None:
        """The work of the thread, on request. The mutex is free."""
        with self._queue.mutex:
            self._is_packing = True
        try:
            while self._run_once():
                pass
        finally:
            with self._queue.mutex:
                self._is_packing = False

    def _run_once(self) -> bool:
        """Do what is due; returns whether to check again. The mutex is free."""
        queue = self._queue
        later = False
        with queue.mutex:
            due = None if queue.refusing else self._due()
            if due is None or not self._takes_time(due):
                self._attempt(due or (lambda: None))
                return False
        try:
            queue.sync()  # so that little is left to sync in the rotation, for which callers wait
            if due == self._rotate:
                with queue.mutex:
                    self._rotate()
            else:
                self._pack(queue.mutex)
        except LogwrightError as error:
            later = True
            if not isinstance(error, Closed):
                logger.warning("%s: the journal could not be compacted; this is retried later: %s", queue.path, error)
        with queue.mutex:
            self.set_thresholds(later=later)
        return not later

    def _pack(self, mutex: contextlib.AbstractContextManager[Any], first: Sequence[Entry] = ()) -> None:
        """Rotate, and pack all rotated files. `mutex` is held where other callers must wait.

        The items `first` are at the head, although the files do not show it.
        """
        queue = self._queue
        with mutex:
            self._erases_when_empty = False
            upto = queue.rotate()
            queue.before_replacing()
            added = queue.shelf.added
        name: Dialect = "kestrel2" if queue.shelf.dialect == KESTREL2 else "documented"
        pack_path = queue.path.with_name(rotated_name(queue.queue, upto) + PACK_SUFFIX)
        self._can_compact = False  # if the rest fails, the next opening completes it
        try:
            reader = Reader(queue.path, dialect=name, disk=queue.disk)
            front = list(zip(operations_of(first), (entry[3] for entry in first), strict=True))
            packed = write_pack(queue.disk, reader, upto, front, go_on=self._check_stopped)
        except LogwrightError:
            self._can_compact = not queue.disk.exists(pack_path)
            raise
        if packed is not None:
            queue.adopt(packed, added, pack_path, mutex)
            self._restated_bytes = packed.size_bytes
        self._can_compact = True

    def _check_stopped(self) -> None:
        if self._is_stopped:
            raise Closed(f"{self._queue.path}: the queue was closed")

    # --- the end ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop the thread, even while it writes a pack. The mutex is free."""
        self._is_stopped = True
        if self.thread is not None:
            self.thread.stop()

    def shorten(self) -> None:
        """Reduce the journal of a queue without waiting items to its open items. The thread is stopped."""
        queue = self._queue
        self._is_stopped = False
        if self._can_compact and queue.journal_bytes > queue.live_bytes() + XID_HEAD.size:
            self._attempt(self.rewrite if queue.rotated else self.restate)

    def erase(self) -> None:
        """Remove all items, and write the journal of an empty queue. The thread is stopped."""
        queue = self._queue
        self._is_stopped = False
        if queue.rotated:  # a pack is made from the files, not from memory
            queue.atomically(self._remove_from_files)
        queue.forget_items()
        (self.rewrite if queue.rotated else self.restate)()

    def _remove_from_files(self) -> None:
        queue = self._queue
        queue.shelf.emit(bytes([REMOVE]) * queue.shelf.items)
        queue.shelf.emit(b"".join(XID_HEAD.pack(CONFIRM_REMOVE, xid) for xid in queue.open_items))


class MaintenanceThread:
    """A thread that compacts a journal on request, and does other work periodically."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._name = name
        self._work = work
        self._periodic_work: Callable[[], object] | None = None
        self._every_seconds: float | None = None
        self._requested = Flag()
        self._is_due = False
        self._is_stopped = False
        self._thread: Background | None = None

    def request(self) -> None:
        """Let the thread do its work now."""
        self._is_due = True
        self._begin()

    def repeat(self, seconds: float, work: Callable[[], object]) -> None:
        """Do other work at this interval."""
        self._every_seconds, self._periodic_work = seconds, work
        self._begin()

    def _begin(self) -> None:
        if self._thread is None and not self._is_stopped:
            self._thread = Background(self._run)
        self._requested.set()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._is_stopped:
            every = self._every_seconds
            self._requested.wait(None if every is None else max(0.0, last + every - time.monotonic()))
            self._requested.clear()
            if self._is_due and not self._is_stopped:
                self._is_due = False
                self._do(self._work)
            if every is not None and self._periodic_work is not None and time.monotonic() - last >= every:
                last = time.monotonic()
                self._do(self._periodic_work)

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        except LogwrightError as error:
            if not isinstance(error, Closed):
                logger.warning("%s: compaction or a sweep failed: %s", self._name, error)

    def stop(self) -> None:
        """Stop the thread after its current work."""
        self._is_stopped = True
        self._requested.set()
        if self._thread is not None:
            self._thread.join()
