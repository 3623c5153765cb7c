"""Compaction: a queue's journal is erased, rewritten, rotated and packed, so that it does not grow without limit.

    erase       the queue is empty, and the journal is `default_journal_bytes` large
    rewrite     the journal is larger than `max_journal_bytes`, and would be half as large or less
    rotate      the newest file is larger than `max_memory_bytes`
    shrink      the disk is full: the journal of an empty queue is erased, however small it is

A journal of one file whose state is small is restated at once: the state of the queue is written to a temporary file,
which is synced and renamed over the newest. A crash leaves the one or the other. Otherwise the newest file is rotated,
and then all rotated files are packed: by a thread, while the queue is in use, or with `background=False` by the call
that made it due. `packing.py` says what a crash leaves of that. Once the pack is complete, the queue reads behind from
it, and only then the files that it replaces are removed.

Compaction that fails before it has changed anything, as on a full disk, is tried again later; until then the queue
continues with the files it has.
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
"""A state of up to this size is written, and this much synced, while all callers wait."""
_RESTATED_BYTES: Final = 16 << 20
"""A state of up to this size is rewritten to put items back to the head."""
_STEP_BYTES: Final = 1 << 16
_PAGE_BYTES: Final = 1 << 12
"""The unit in which a file system allocates space: making a file smaller than this gains nothing."""


class Compaction:
    """Keeps the journal of a queue small. The queue's mutex is held unless a method says otherwise."""

    def __init__(self, queue: Memory, name: str, limits: Limits, *, background: bool) -> None:
        self.limits = limits
        self.thread = Caretaker(name, self._run_in_background) if background else None
        self._is_packing = False
        """Whether the thread works on the files. Set and reset with the mutex held."""
        self._queue = queue
        self._restated_bytes = 0
        self._is_stopped = False
        self._has_refilled = False
        self._is_pressed = False
        """Whether the journal is to be erased as soon as the queue is empty, however small it is."""
        self._is_possible = True
        """False after a failure from which only opening the queue again recovers."""

    # --- what is due ------------------------------------------------------------------------------------------------

    def set_thresholds(self, *, later: bool = False) -> None:
        """Set the sizes of the newest file at which the queue asks for compaction.

        With `later` it is not to be tried now, although a threshold has been reached.
        """
        queue = self._queue
        if not self._is_possible:
            queue.shelf.care_bytes = queue.shelf.erase_bytes = NO_LIMIT
            return
        rotated, most = queue.journal_bytes - queue.shelf.position, self.limits.max_journal_bytes
        again = queue.shelf.position + max(_STEP_BYTES, min(queue.shelf.position, most) // 16)
        sizes = most - rotated, self.limits.max_memory_bytes
        queue.shelf.care_bytes = min(again if size < queue.shelf.position else size for size in sizes)
        queue.shelf.erase_bytes = max(0, self.limits.default_journal_bytes - rotated)
        if later:
            queue.shelf.erase_bytes = max(queue.shelf.erase_bytes, queue.shelf.position + _STEP_BYTES)

    def _due(self) -> Callable[[], None] | None:
        """What has to be done to the journal, if anything."""
        queue = self._queue
        total, live = queue.journal_bytes, queue.live_bytes()
        is_idle = not queue.shelf.items and (self._is_pressed or total >= self.limits.default_journal_bytes)
        if is_idle and total >= 2 * min(live, self._restated_bytes):  # so that it is not done again and again
            return self.restate if self._is_small(live) else self.rewrite
        if total > self.limits.max_journal_bytes and total >= 2 * live:
            return self.restate if self._is_small(live) else self.rewrite
        return self._rotate if queue.shelf.position > self.limits.max_memory_bytes else None

    def _is_small(self, live: int) -> bool:
        return live <= SMALL_BYTES and not self._queue.behind_items and not self._queue.rotated

    def run_if_due(self) -> None:
        """Called at the end of a call that has taken items."""
        shelf = self._queue.shelf
        self.run_if_refilled()
        if shelf.position > shelf.care_bytes or (not shelf.items and shelf.position >= shelf.erase_bytes):
            self.run()

    def note_refill(self) -> None:
        """The queue has read behind: this makes space in the journal long before it adds as much to it."""
        self._has_refilled = True
        self.run_if_refilled()

    def run_if_refilled(self) -> None:
        """Compact the journal if reading behind has made that worthwhile."""
        queue = self._queue
        if self._has_refilled and not queue.shelf.unsettled:  # else the enclosing call does it
            self._has_refilled = False
            most = max(self.limits.max_journal_bytes, 2 * queue.live_bytes())
            if queue.shelf.care_bytes < NO_LIMIT and queue.journal_bytes > most:
                self.run()

    def run(self) -> None:
        """Do what is due, or let the thread do it if it takes long."""
        due = self._due()
        if due is None:
            self.set_thresholds(later=True)
        elif self.thread is not None and self._takes_time(due):
            self._queue.shelf.care_bytes = self._queue.shelf.erase_bytes = NO_LIMIT  # until it is done
            self.thread.request()
        else:
            self._attempt(due)

    def _takes_time(self, due: Callable[[], None]) -> bool:
        """Whether the thread should do it."""
        if due == self.restate:
            return False
        return (self._queue.shelf.position if due == self._rotate else self._queue.journal_bytes) > SMALL_BYTES

    def _attempt(self, action: Callable[[], None]) -> None:
        """Compact the journal; try again later if that fails and nothing has changed."""
        failed = False
        try:
            action()
        except LogwrightError as error:
            if self._queue.has_failed:
                raise
            failed = True
            logger.warning("%s: the journal is left as it is for now: %s", self._queue.path, error)
        self.set_thresholds(later=failed)

    # --- when the disk is full --------------------------------------------------------------------------------------

    @property
    def can_shrink(self) -> bool:
        """Whether the queue is empty and its journal is not, so that erasing it frees space on the disk."""
        queue = self._queue
        if queue.shelf.items or queue.refusing or queue.shelf.care_bytes == NO_LIMIT:
            return False  # in the last case the thread works on it
        total = queue.journal_bytes
        return total != self._restated_bytes and total > 2 * queue.live_bytes() + _PAGE_BYTES

    def shrink(self) -> None:
        """Erase the journal of an empty queue at once. If that fails, it stays as it is. The mutex is free."""
        with self._queue.mutex:
            if self.can_shrink:
                self._is_pressed = True
                try:
                    self.run()
                finally:
                    self._is_pressed &= self._queue.shelf.care_bytes == NO_LIMIT  # then the thread was asked to do it

    # --- restating --------------------------------------------------------------------------------------------------

    def restate(self) -> None:
        """Replace the journal by one new file with the state of the queue, all of which is in memory."""
        self._queue.replace()
        self._restated_bytes = self._queue.shelf.position

    def restate_with(self, entries: Sequence[Entry]) -> bool:
        """Put items to the head and rewrite the journal accordingly; False if that is not done."""
        queue = self._queue
        if queue.live_bytes() > _RESTATED_BYTES or self._is_packing:
            return False
        # Items that were put back are before all others, and so are these.
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
        """What the thread does on request. The mutex is free."""
        with self._queue.mutex:
            self._is_packing = True
        try:
            while self._run_once():
                pass
        finally:
            with self._queue.mutex:
                self._is_packing = False

    def _run_once(self) -> bool:
        """Do what is due; whether to look again. The mutex is free."""
        queue = self._queue
        later = False
        with queue.mutex:
            due = None if queue.refusing else self._due()
            if due is None or not self._takes_time(due):
                self._attempt(due or (lambda: None))
                return False
        try:
            queue.sync()  # so that rotating, for which callers wait, has little to sync
            if due == self._rotate:
                with queue.mutex:
                    self._rotate()
            else:
                self._pack(queue.mutex)
        except LogwrightError as error:
            later = True
            if not isinstance(error, Closed):
                logger.warning("%s: the journal is left as it is for now: %s", queue.path, error)
        with queue.mutex:
            self.set_thresholds(later=later)
        return not later

    def _pack(self, mutex: contextlib.AbstractContextManager[Any], first: Sequence[Entry] = ()) -> None:
        """Rotate, and pack all rotated files. `mutex` is held where other callers must wait.

        The items `first` are at the head, which the files do not say.
        """
        queue = self._queue
        with mutex:
            self._is_pressed = False
            upto = queue.rotate()
            added = queue.shelf.added
        name: Dialect = "kestrel2" if queue.shelf.dialect == KESTREL2 else "documented"
        pack_path = queue.path.with_name(rotated_name(queue.queue, upto) + PACK_SUFFIX)
        self._is_possible = False  # if what follows ends half-way, the next opening finishes it
        try:
            reader = Reader(queue.path, dialect=name, disk=queue.disk)
            front = list(zip(operations_of(first), (entry[3] for entry in first), strict=True))
            packed = write_pack(queue.disk, reader, upto, front, go_on=self._go_on)
        except LogwrightError:
            self._is_possible = not queue.disk.exists(pack_path)
            raise
        if packed is not None:
            queue.adopt(packed, added, pack_path, mutex)
            self._restated_bytes = packed.size_bytes
        self._is_possible = True

    def _go_on(self) -> None:
        if self._is_stopped:
            raise Closed(f"{self._queue.path}: the queue was closed")

    # --- the end ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop the thread, and a pack that is being written. The mutex is free."""
        self._is_stopped = True
        if self.thread is not None:
            self.thread.stop()

    def shorten(self) -> None:
        """Reduce the journal of a queue without waiting items to the open ones. The thread is stopped."""
        queue = self._queue
        self._is_stopped = False
        if self._is_possible and queue.journal_bytes > queue.live_bytes() + XID_HEAD.size:
            self._attempt(self.rewrite if queue.rotated else self.restate)

    def erase(self) -> None:
        """Remove all items, and make the journal that of an empty queue. The thread is stopped."""
        queue = self._queue
        self._is_stopped = False
        if queue.rotated:  # a pack is made from the files, not from memory
            queue.settled(self._remove_from_files)
        queue.forget_items()
        (self.rewrite if queue.rotated else self.restate)()

    def _remove_from_files(self) -> None:
        queue = self._queue
        queue.shelf.emit(bytes([REMOVE]) * queue.shelf.items)
        queue.shelf.emit(b"".join(XID_HEAD.pack(CONFIRM_REMOVE, xid) for xid in queue.open_items))


class Caretaker:
    """A thread that compacts a journal on request, and does something else at intervals."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._name = name
        self._work = work
        self._chore: Callable[[], object] | None = None
        self._every_seconds: float | None = None
        self._asked = Flag()
        self._is_due = False
        self._is_stopped = False
        self._thread: Background | None = None

    def request(self) -> None:
        """Let the thread do its work soon."""
        self._is_due = True
        self._begin()

    def repeat(self, seconds: float, chore: Callable[[], object]) -> None:
        """Do something else at this interval."""
        self._every_seconds, self._chore = seconds, chore
        self._begin()

    def _begin(self) -> None:
        if self._thread is None and not self._is_stopped:
            self._thread = Background(self._run)
        self._asked.set()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._is_stopped:
            every = self._every_seconds
            self._asked.wait(None if every is None else max(0.0, last + every - time.monotonic()))
            self._asked.clear()
            if self._is_due and not self._is_stopped:
                self._is_due = False
                self._do(self._work)
            if every is not None and self._chore is not None and time.monotonic() - last >= every:
                last = time.monotonic()
                self._do(self._chore)

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        except LogwrightError as error:
            if not isinstance(error, Closed):
                logger.warning("the journal of %s is not compacted: %s", self._name, error)

    def stop(self) -> None:
        """Stop the thread, after what it is doing."""
        self._is_stopped = True
        self._asked.set()
        if self._thread is not None:
            self._thread.join()
