"""Care for a queue's journal: it is erased, rewritten, rotated and packed, so that it does not grow for ever.

    erase       the queue is empty, and the journal is `default_journal_bytes` large
    rewrite     the journal is larger than `max_journal_bytes`, and would be half as large or less
    rotate      the newest file is larger than `max_memory_bytes`
    shrink      somebody says that the disk is full: then an empty queue's journal is erased, however small it is

A journal of one file whose state is small is restated at once: what stands for the queue is written to a temporary
file, synced, and renamed over the newest. A crash leaves the one or the other. Otherwise the newest file is rotated,
and then all rotated files are packed: by a thread, while the queue goes on, or with `background=False` by the call
that made it due. `packing.py` says what a crash leaves of that. When the pack is written and counts, the queue goes on
to read behind from it, and only then the files that it replaces are removed.

Care that fails before it has changed anything, as on a full disk, is put off; the queue goes on with the files it has.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from ...core.io.disk import Disk
from ...core.io.durability import SyncLike
from ...core.io.threads import Background, Flag
from ...errors import Closed, LogwrightError
from ..bytes import codec
from ..bytes.layout import (
    ADD_XID_HEAD,
    ADDX_HEAD,
    CONFIRM_REMOVE,
    KESTREL2,
    PACK_SUFFIX,
    REMOVE,
    XID_HEAD,
    note_name,
    rotated_name,
    rotated_note_name,
)
from ..bytes.records import Dialect
from ..files.files import list_files
from ..files.reader import Reader
from .limits import Limits
from .memory import Memory, operations_of
from .packing import Packed, finish_pack, state_operations, write_pack
from .shelf import NO_LIMIT, Entry

logger = logging.getLogger("logwright.kestrel")

SMALL_BYTES: Final = 1 << 20
"""A state so large is written while everybody waits, and so much is synced."""
_RESTATED_BYTES: Final = 16 << 20
"""A state so large is rewritten to put items back to the head."""
_STEP_BYTES: Final = 1 << 16
_PAGE_BYTES: Final = 1 << 12
"""What a file system gives at a time: a file that is no larger leaves nothing to be gained."""


class JournalCare(Memory):
    """A queue's memory and journal, and the care for the latter."""

    limits: Limits

    def _open_cared(
        self, path: Path, sync: SyncLike, dialect: Dialect, buffer_bytes: int, background: bool, disk: Disk
    ) -> None:
        self._caretaker = Caretaker(path.name, self._care_in_background) if background else None
        self._restated_bytes = 0
        self._is_closing = False
        self._has_refilled = False
        self._packing = threading.Lock()
        """Held while the thread works on the files; taken before the mutex."""
        self._is_pressed = False
        """Whether the journal is to be erased as soon as the queue is empty, however small it is."""
        self._cares = True
        """False after a failure that only opening the queue again will put right."""
        self._open_journal(path, sync, dialect, buffer_bytes, disk)

    def _start(self) -> None:
        super()._start()
        self.set_thresholds()

    # --- when something is due --------------------------------------------------------------------------------------

    @property
    def journal_bytes(self) -> int:
        """How large the files are together, with what waits to be written."""
        return sum(self._rotated.values()) + self.position

    def live_bytes(self) -> int:
        """About how large a journal would be that stands for the queue as it is and for nothing else."""
        waiting = self.data_bytes + ADDX_HEAD.size * self.items
        return waiting + self.open_bytes + (ADD_XID_HEAD.size + 1) * len(self.open_items)

    def set_thresholds(self, *, later: bool = False) -> None:
        """Say at which sizes of the newest file care is due, or is to be thought about again.

        `later` says that now is not the time, although one of them is reached.
        """
        if not self._cares:
            self.care_bytes = self.erase_bytes = NO_LIMIT
            return
        rotated, most = self.journal_bytes - self.position, self.limits.max_journal_bytes
        again = self.position + max(_STEP_BYTES, min(self.position, most) // 16)
        sizes = most - rotated, self.limits.max_memory_bytes
        self.care_bytes = min(again if size < self.position else size for size in sizes)
        self.erase_bytes = max(0, self.limits.default_journal_bytes - rotated)
        if later:
            self.erase_bytes = max(self.erase_bytes, self.position + _STEP_BYTES)

    def _due(self) -> Callable[[], None] | None:
        """What has to be done to the journal, if anything has."""
        total, live = self.journal_bytes, self.live_bytes()
        is_idle = not self.items and (self._is_pressed or total >= self.limits.default_journal_bytes)
        if is_idle and total >= 2 * min(live, self._restated_bytes):  # so that it is not done again and again
            return self._restate if self._is_small(live) else self._rewrite
        if total > self.limits.max_journal_bytes and total >= 2 * live:
            return self._restate if self._is_small(live) else self._rewrite
        return self._rotate_held if self.position > self.limits.max_memory_bytes else None

    def _is_small(self, live: int) -> bool:
        return live <= SMALL_BYTES and not self.behind_items and not self._rotated

    def care_if_due(self) -> None:
        """What a call does at its end that has taken items away."""
        self.care_if_refilled()
        if self.position > self.care_bytes or (not self.items and self.position >= self.erase_bytes):
            self._care()

    @property
    def can_shrink(self) -> bool:
        """Whether the queue is empty and its journal is not, so that erasing it makes room on the disk."""
        if self.items or self.refusing or self.care_bytes == NO_LIMIT:  # then it is being cared for
            return False
        total = self.journal_bytes
        return total != self._restated_bytes and total > 2 * self.live_bytes() + _PAGE_BYTES

    def shrink(self) -> None:
        """Erase the journal of an empty queue at once, as the disk is full. If that fails, it stays as it is."""
        with self.mutex:
            if self.can_shrink:
                self._is_pressed = True
                try:
                    self._care()
                finally:
                    self._is_pressed &= self.care_bytes == NO_LIMIT  # then the thread was asked to do it

    def _refill(self) -> None:
        super()._refill()
        self._has_refilled = True
        self.care_if_refilled()

    def care_if_refilled(self) -> None:
        """Reading behind makes room on the disk long before it adds as much to the journal."""
        if self._has_refilled and not self.unsettled:  # else the enclosing call does it
            self._has_refilled = False
            most = max(self.limits.max_journal_bytes, 2 * self.live_bytes())
            if self.care_bytes < NO_LIMIT and self.journal_bytes > most:
                self._care()

    def _care(self) -> None:
        due = self._due()
        if due is None:
            self.set_thresholds(later=True)
        elif self._caretaker is not None and self._takes_time(due):
            self.care_bytes = self.erase_bytes = NO_LIMIT  # until it is done
            self._caretaker.request()
        else:
            self._attempt(due)

    def _takes_time(self, due: Callable[[], None]) -> bool:
        """Whether it is for the thread to do."""
        if due == self._restate:
            return False
        return (self.position if due == self._rotate_held else self.journal_bytes) > SMALL_BYTES

    def _attempt(self, action: Callable[[], None]) -> None:
        """Care for the journal; put it off if that fails and nothing has happened. The mutex is held."""
        failed = False
        try:
            action()
        except LogwrightError as error:
            if self._failure is not None:
                raise
            failed = True
            logger.warning("%s: the journal is left as it is for now: %s", self.path, error)
        self.set_thresholds(later=failed)

    # --- restating --------------------------------------------------------------------------------------------------

    def _restate(self) -> None:
        """Let one new file stand for the queue. Everything is in memory, and the mutex is held."""
        with self._writing:
            self._write_gathered()
            with self._syncing:
                self._replace(self._statement())
        self._restated_bytes = self.position

    def restate_with(self, entries: Sequence[Entry]) -> bool:
        """Put items to the head and rewrite the journal to say so; False if that is not to be. The mutex is held."""
        if self.live_bytes() > _RESTATED_BYTES or not self._packing.acquire(blocking=False):
            return False
        # Items that were put back are before all others, and so are these.
        least = self.head()[3] if self.memory_items else 0
        first = [(*entry[:3], max(entry[3], min(least, 1)), entry[4]) for entry in entries]
        for entry in reversed(first):
            self.put_back(entry)
        try:
            if self._rotated or self.behind_items:
                self._pack(contextlib.nullcontext(), first)
            else:
                self._restate()
        except LogwrightError:
            if self._failure is not None:
                raise
            for _ in first:
                self.pop()
            return False
        except BaseException as error:  # the journal may not say what is in memory
            self._poison(error)
            raise
        finally:
            self._packing.release()
        self.set_thresholds()
        return True

    def _statement(self) -> Iterator[bytes]:
        entries = self.entries()
        tried = [entry for entry in entries if entry[3]]  # those that were put back are the first ones
        items = zip(
            operations_of([*self.open_items.values(), *tried]), [*self.open_items.values(), *tried], strict=True
        )
        named = [(operation, entry[3]) for operation, entry in items]
        reserved = [(xid, *found) for xid, found in zip(self.open_items, named, strict=False)]
        yield from state_operations(self.xid, reserved, named[len(reserved) :], self._dialect)
        yield from map(codec.encode, operations_of(entries[len(tried) :]))

    # --- rotating and packing ---------------------------------------------------------------------------------------

    def _rotate_held(self) -> None:
        self.rotate()

    def _rewrite(self) -> None:
        """Rotate and pack while everybody waits."""
        self._pack(contextlib.nullcontext())

    def _care_in_background(self) -> None:
        """What the thread does when it was asked to. The mutex is free."""
        with self._packing:
            while self._care_once():
                pass

    def _care_once(self) -> bool:
        """Do what is due; whether to look again."""
        later = False
        with self.mutex:
            due = None if self.refusing else self._due()
            if due is None or not self._takes_time(due):
                self._attempt(due or (lambda: None))
                return False
        try:
            self._sync()  # so that rotating, for which others wait, has little to sync
            if due == self._rotate_held:
                with self.mutex:
                    self._rotate_held()
            else:
                self._pack(self.mutex)
        except LogwrightError as error:
            later = True
            if not isinstance(error, Closed):
                logger.warning("%s: the journal is left as it is for now: %s", self.path, error)
        with self.mutex:
            self.set_thresholds(later=later)
        return not later

    def _pack(self, mutex: contextlib.AbstractContextManager[Any], first: Sequence[Entry] = ()) -> None:
        """Rotate, and pack all that was rotated. `mutex` is held where others must wait.

        The items `first` are at the head, and the files do not say so.
        """
        with mutex:
            self._is_pressed = False
            upto = self.rotate()
            added = self.added
        name: Dialect = "kestrel2" if self._dialect == KESTREL2 else "documented"
        pack_path = self.path.with_name(rotated_name(self.queue, upto) + PACK_SUFFIX)
        self._cares = False  # if what follows ends half-way, the files are for the next opening to put in order
        try:
            reader = Reader(self.path, dialect=name, disk=self._disk)
            front = list(zip(operations_of(first), (entry[3] for entry in first), strict=True))
            packed = write_pack(self._disk, reader, upto, front, go_on=self._go_on)
        except LogwrightError:
            self._cares = not self._disk.exists(pack_path)
            raise
        if packed is not None:
            self._or_poison(lambda: self._take_over(packed, added, pack_path, mutex))
        self._cares = True

    def _take_over(self, packed: Packed, added: int, path: Path, mutex: contextlib.AbstractContextManager[Any]) -> None:
        """Go on with a pack that counts, and remove what it replaces."""
        try:
            with mutex:
                self._names_in_order.clear()
                self._adopt(packed, added, path)
            self._finish_pack()
        finally:
            self._names_in_order.set()
        self._restated_bytes = packed.size_bytes

    def _finish_pack(self) -> None:
        finish_pack(self._disk, self.directory, list_files(self._disk, self.directory, self.queue))

    def _go_on(self) -> None:
        if self._is_closing:
            raise Closed(f"{self.path}: the queue was closed")

    def _adopt(self, packed: Packed, added: int, path: Path) -> None:
        """Go on with a pack in the place of the files up to its number. `added` items had been added by then."""
        rotated = {timestamp: size for timestamp, size in self._rotated.items() if timestamp > packed.timestamp}
        behind = self._behind
        if behind is not None and behind.timestamp is not None and behind.timestamp <= packed.timestamp:
            left = added - (self.added - self.behind_items)
            if left > 0:
                near, position = packed.near(packed.run_items - left)
                fresh = self._reader_at(packed.timestamp, position)
                fresh.open(path)
                fresh.skip(packed.run_items - left - near)
            else:  # all of its items are in memory, or gone
                fresh = self._reader_at(min(rotated, default=None), 0)
            behind.close()
            self._behind = fresh
        self._rotated = {packed.timestamp: packed.size_bytes, **rotated}
        self._odd_names = {timestamp: name for timestamp, name in self._odd_names.items() if timestamp in rotated}

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let a pack that is being written be, shorten the journal of an empty queue, and release the lock."""
        self._is_closing = True
        if self._caretaker is not None:
            self._caretaker.stop()
        try:
            with self.mutex:
                if not self._closed and self._failure is None and not self.items:
                    self._shorten()
                self._wake_all()
        finally:
            super().close()

    def _shorten(self) -> None:
        """Let the journal of a queue without waiting items hold the open ones and nothing else."""
        self._is_closing = False
        if self._cares and self.journal_bytes > self.live_bytes() + XID_HEAD.size:
            self._attempt(self._rewrite if self._rotated else self._restate)

    def _wake_all(self) -> None:
        """Let everybody who waits find out that the queue is closed."""
        self.refusing = True

    def delete(self) -> None:
        """Remove all items and all files, and close. A crash leaves the queue, an empty one, or none."""
        self._is_closing = True
        if self._caretaker is not None:
            self._caretaker.stop()
        with self.mutex:
            self._check()
            self._is_closing = False
            self._or_poison(self._remove_all)
        super().close()

    def _remove_all(self) -> None:
        if self._rotated:  # a pack is made of what the files say, and not of what is in memory
            self.settled(self._say_it_is_empty)
        self.clear()
        self.end_behind()
        self.open_items, self.open_bytes, self.xid = {}, 0, 0
        # Files that stand for an empty queue can go one by one; others would stand for another queue meanwhile.
        (self._rewrite if self._rotated else self._restate)()
        self._wake_all()
        self._remove_files()

    def _say_it_is_empty(self) -> None:
        self.emit(bytes([REMOVE]) * self.items)
        self.emit(b"".join(XID_HEAD.pack(CONFIRM_REMOVE, xid) for xid in self.open_items))

    def _remove_files(self) -> None:
        noted = self.directory / rotated_note_name(self.queue)
        if self._disk.exists(noted):  # first, and durably: after a crash a file that is noted must not be missing
            self._disk.remove(noted)
            self._disk.sync_directory(noted.parent)
        listing = list_files(self._disk, self.directory, self.queue)
        for file in listing.files:
            self._disk.remove(file.path)
        self._disk.sync_directory(self.directory)
        self._disk.remove(self.directory / note_name(self.queue))


class Caretaker:
    """A thread that does something when it is asked to, and something else every now and then."""

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
        """Have the work done soon."""
        self._is_due = True
        self._begin()

    def repeat(self, seconds: float, chore: Callable[[], object]) -> None:
        """Do something else so often."""
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
                logger.warning("the journal of %s is not cared for: %s", self._name, error)

    def stop(self) -> None:
        """End the thread, once it is done with what it does."""
        self._is_stopped = True
        self._asked.set()
        if self._thread is not None:
            self._thread.join()
