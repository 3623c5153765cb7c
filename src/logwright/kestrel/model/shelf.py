"""Shelf: the items of a queue that are in memory, and the operations on their way to the journal. Put and get run here.

The first items of the queue are on the shelf. When it is full, items that are put go to the journal alone, and the
queue reads behind: the shelf is stocked again from there once it is empty. `items` and `data_bytes` count all that
wait, `memory_items` and `memory_bytes` those on the shelf.

An operation goes straight to `write`, the file's, where there is one: it is with the system before the call returns.
Without it operations collect in a buffer until there are `attention_bytes` of them, and `take` hands them over. Either
way they leave in the order of the calls, each of which holds the `mutex` from its check to its operation.

A call is `unsettled` from its first operation, which goes to the position where it `began`, until memory and journal
agree again. If it is left in between, whatever was raised, none of its operations may count, and no other call is taken
from then on. `serial` counts the operations, and every change of the newest file: a caller that finds it unchanged
knows that its own operations are the last ones. So that an item is not lost when the caller of `hand_out` is
interrupted after all of that, the thread `holds` it until it sets that to False: before that it can be put back.

What does not happen every time is done by methods that a subclass has. They are called with the mutex held:

    _refuse()               raise: `refusing` is set
    _deadline(expires, now) what `expires` means, in milliseconds
    _make_room(size)        there are `max_items` or `max_bytes`: discard something, or raise
    _fall_behind(position)  the item added at this position is the first that is not on the shelf
    _ready()                bring an item that may be handed out to the head; whether there is one
    _care()                 the journal has grown to `care_bytes`, or is `erase_bytes` large and the queue is empty
    _wake()                 a caller is `waiting`, and an item has arrived
    _attend()               `attention_bytes` have gathered
    _write_rest(data, done) `write` has written only `done` bytes of it
    _write_failed(error)    `write` has raised this
    _interrupted(error)     this has left a call while it was unsettled

This is the reference; `_shelf.pyx` has a twin.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from ...core.bytes.buffers import Buffer, as_bytes
from ...core.bytes.write_buffer import WriteBuffer
from ...errors import TooLarge
from ..bytes.layout import (
    ADD,
    ADD_HEAD,
    ADD_XID,
    ADD_XID_HEAD,
    ADDX,
    ADDX_HEAD,
    DATA_HEAD_BYTES,
    MAX_DATA_BYTES,
    REMOVE,
)

Entry: TypeAlias = tuple[bytes, int, int, int, int]
"""An item in memory: data, when it was added, when it expires (0: never), attempts, the id that it is named by (0)."""
NO_LIMIT: Final = 2**62

_REMOVE_BYTE: Final = bytes([REMOVE])


class Shelf(WriteBuffer):
    """Items and operations of one queue. Limits are plain numbers, `NO_LIMIT` for none; times are milliseconds."""

    def __init__(self, position: int, attention_bytes: int, dialect: int) -> None:
        super().__init__(attention_bytes)
        self.mutex = threading.Lock()
        # operations on their way
        self.position = position
        self.dialect = dialect
        self.write: Callable[[int, bytes], int] | None = None
        self.leaving: tuple[bytearray, int] | None = None
        """What `take` has handed over; the caller sets it to None once it is written."""
        self.unsettled = False
        self.began = 0
        self.serial = 0
        self._held: dict[int, tuple[Entry, int] | None] = {}
        # items
        self.items = self.data_bytes = 0
        self.memory_items = self.memory_bytes = 0
        self.added = 0
        """How many items were ever added: the number of the next one."""
        self.taken = 0
        self.waiting = 0
        self._shelf: deque[Entry] = deque()
        # limits
        self.clock: Callable[[], int] | None = None
        self.max_items = self.max_bytes = self.max_memory_items = self.max_memory_bytes = NO_LIMIT
        self.max_item_bytes = MAX_DATA_BYTES
        self.max_age = 0
        self.max_attempts = 2**31 - 1
        self.care_bytes = self.erase_bytes = NO_LIMIT

    # --- what is called all the time --------------------------------------------------------------------------------

    def put(self, data: Buffer, expires: Any = None) -> None:
        """Add an item at the tail. `expires` is handed to `_deadline`."""
        content = as_bytes(data)
        if self.refusing:
            self._refuse()
        with self.mutex:
            if self.unsettled:
                self._refuse()
            try:
                now = self.now()
                self.put_held(content, now, 0 if expires is None else self._deadline(expires, now))
            except BaseException as error:
                self._leave(error)
                raise

    def _leave(self, error: BaseException) -> None:
        """A call ends with an error: if it has left something half-way, nothing more is taken."""
        if self.unsettled:
            self.refusing = True
            self._interrupted(error)

    def put_held(self, data: bytes, added: int, expires: int) -> None:
        """Add an item at the tail; the mutex is held."""
        is_part = self.unsettled
        if self.refusing:
            self._refuse()
        size = len(data)
        if size > self.max_item_bytes:
            raise TooLarge(f"an item of {size} bytes is more than the {self.max_item_bytes} that this queue takes")
        if self.items >= self.max_items or self.data_bytes + size > self.max_bytes:
            self._make_room(size)
        if not self.unsettled:
            if self.position > self.care_bytes:
                self._care()
            self.unsettled = True
            self.began = self.position
        position = self.emit(ADDX_HEAD.pack(ADDX, 16 + size, added, expires) + data)
        self.added += 1
        if self.items == self.memory_items:
            if self.memory_items < self.max_memory_items and self.memory_bytes + size <= self.max_memory_bytes:
                self._shelf.append((data, added, expires, 0, 0))
                self.memory_items += 1
                self.memory_bytes += size
            else:
                self._fall_behind(position)
        self.items += 1
        self.data_bytes += size
        self.unsettled = is_part
        if self.waiting:
            self._wake()

    def get(self) -> bytes | None:
        """Remove the head; its data, None when there is nothing."""
        return self._get(0)

    def hand_out(self) -> bytes | None:
        """The same, and this thread `holds` the item until it says that it does not."""
        return self._get(threading.get_ident())

    @property
    def holds(self) -> bool:
        """Whether this thread holds an item. A thread that has delivered it sets this to False."""
        return self.held() is not None

    @holds.setter
    def holds(self, value: bool) -> None:
        thread = threading.get_ident()
        self._held[thread] = None  # an assignment: after a call an interrupt might follow

    def held(self) -> tuple[Entry, int] | None:
        """The item that this thread holds, and `serial` when it was removed; None for none."""
        return self._held.get(threading.get_ident())

    def _get(self, holder: int) -> bytes | None:
        if self.refusing:
            self._refuse()
        with self.mutex:
            if self.refusing or self.unsettled:
                self._refuse()
            try:
                if not self.items:
                    return None
                is_plain = self._shelf and not (self.max_age or self._shelf[0][2] or self._shelf[0][3])
                if not is_plain and not self._ready():
                    return None
                self.unsettled = True
                self.began = self.position
                self.emit(_REMOVE_BYTE)
                self.taken += 1
                entry = self.pop()
                if holder:
                    self._held[holder] = entry, self.serial
                self.unsettled = False
                if self.position > self.care_bytes or (self.items == 0 and self.position >= self.erase_bytes):
                    self._care()
                return entry[0]
            except BaseException as error:
                self._leave(error)
                raise

    def now(self) -> int:
        """Milliseconds since the epoch, by the clock that was given."""
        return time.time_ns() // 1_000_000 if self.clock is None else self.clock()

    # --- items; the mutex is held -----------------------------------------------------------------------------------

    def head(self) -> Entry:
        """The first item on the shelf."""
        return self._shelf[0]

    def pop(self) -> Entry:
        """Take the first item from the shelf. The journal is not changed."""
        entry = self._shelf.popleft()
        self.memory_items -= 1
        self.memory_bytes -= len(entry[0])
        self.items -= 1
        self.data_bytes -= len(entry[0])
        return entry

    def put_back(self, entry: Entry) -> None:
        """Put an item to the head, whatever the limits are. The journal is not changed."""
        self._shelf.appendleft(entry)
        self.memory_items += 1
        self.memory_bytes += len(entry[0])
        self.items += 1
        self.data_bytes += len(entry[0])

    def entries(self) -> list[Entry]:
        """The items on the shelf from the head on."""
        return list(self._shelf)

    def clear(self) -> None:
        """Forget all items. The journal is not changed."""
        self._shelf.clear()
        self.items = self.data_bytes = self.memory_items = self.memory_bytes = 0

    def stock(
        self,
        buffer: Buffer,
        base: int,
        kinds: Sequence[int],
        numbers: Sequence[int],
        positions: Sequence[int],
        end: int,
        most_items: int,
        most_bytes: int,
    ) -> int:
        """Put items that are counted already onto the shelf, from the operations that have added them.

        Stops at `most_items` and `most_bytes`, but stocks at least one. The operations are those of
        a chunk: see `Turns`; `base` is where the buffer begins in its file. How many operations were passed.
        """
        taken = 0
        for row, kind in enumerate(kinds):
            if kind not in DATA_HEAD_BYTES:
                continue
            start = positions[row] - base
            stop = (positions[row + 1] if row + 1 < len(positions) else end) - base
            size = stop - start - DATA_HEAD_BYTES[kind]
            if start < 0 or size < 0 or stop > len(buffer):
                raise ValueError("these operations are not within the buffer")
            if taken and (self.memory_items >= most_items or self.memory_bytes + size > most_bytes):
                return row
            added, expires = _times(buffer, start, kind)
            name = numbers[row] if kind == ADD_XID else 0
            self._shelf.append((bytes(buffer[stop - size : stop]), added, expires, 0, name))
            self.memory_items += 1
            self.memory_bytes += size
            taken += 1
        return len(kinds)

    # --- operations on their way ------------------------------------------------------------------------------------

    def emit(self, data: bytes) -> int:
        """Send operations on their way; the position of the first one. The mutex is held."""
        with self._adding:
            position = self.position
            self.serial += 1
            self.position = position + len(data)
            if self.write is None:
                self._buffer += data
        if self.write is not None:
            self._write_through(data)
        elif len(self._buffer) >= self.attention_bytes:
            self._attend()
        return position

    def take(self) -> tuple[bytearray, int]:
        """What has gathered, or what was taken last, as long as it is `leaving`."""
        with self._adding:
            if self.leaving is None:
                fresh, size = bytearray(), len(self._buffer)
                self.leaving = self._buffer, size
                self._buffer = fresh
            return self.leaving

    def _write_through(self, data: bytes) -> None:
        assert self.write is not None
        try:
            written = self.write(self._file_size, data)
        except BaseException as error:
            self._write_failed(error)
            raise
        if written < len(data):
            self._write_rest(data, written)
        self._file_size += len(data)

    # --- what a subclass has ----------------------------------------------------------------------------------------

    _file_size = 0

    def _deadline(self, expires: Any, now: int) -> int:
        raise NotImplementedError

    def _make_room(self, size: int) -> None:
        raise NotImplementedError

    def _fall_behind(self, position: int) -> None:
        raise NotImplementedError

    def _ready(self) -> bool:
        raise NotImplementedError

    def _care(self) -> None:
        raise NotImplementedError

    def _wake(self) -> None:
        raise NotImplementedError

    def _write_rest(self, data: bytes, done: int) -> None:
        raise NotImplementedError

    def _write_failed(self, error: BaseException) -> None:
        raise NotImplementedError

    def _interrupted(self, error: BaseException) -> None:
        raise NotImplementedError


def _times(buffer: Buffer, start: int, kind: int) -> tuple[int, int]:
    """When the item of an operation was added, 0 if unknown, and when it expires."""
    if kind == ADDX:
        _, _, added, expires = ADDX_HEAD.unpack_from(buffer, start)
    elif kind == ADD:
        added, expires = 0, ADD_HEAD.unpack_from(buffer, start)[2] * 1000
    else:
        _, _, _, added, expires = ADD_XID_HEAD.unpack_from(buffer, start)
    return added, expires
