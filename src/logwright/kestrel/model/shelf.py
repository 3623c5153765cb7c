# cython: annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Shelf: the items of a queue that are in memory, and the operations to be written to the journal. Runs put and get.

The first items of the queue are on the shelf. When it is full, new items are written only to the journal, and the queue
reads behind: when the shelf is empty, it is stocked again from the journal. `items` and `data_bytes` count all waiting
items, `memory_items` and `memory_bytes` those on the shelf.

If `write`, the method of a file, is set, an operation is written at once: the operating system has it before the call
returns. Otherwise operations collect in a buffer until it has `attention_bytes`, and `take` returns them. In both cases
they are written in the order of the calls, each of which holds the `mutex` from its check to its operation.

A call is `unsettled` from its first operation, whose position is `began`, until memory and journal agree again. If an
error ends it before that, none of its operations may take effect, and all later calls are refused. `serial` counts the
operations and the changes of the newest file: if it is unchanged, the caller's own operations are the last ones. The
caller of `get_and_hold` may be interrupted after the operation, and must not lose the item. So its thread `holds` the
item, which can be put back, until it sets `holds` to False.

The `owner` of the shelf does what is not needed in every call, in addition to `attend` and `refuse` (see
`WriteBuffer`). It is called with the mutex held:

    deadline(expires, now) convert `expires` to milliseconds
    make_room(size)        the queue has `max_items` or `max_bytes`: discard something, or raise
    fall_behind(position)  the item added at this position is the first that is not on the shelf
    ready()                bring an item that may be delivered to the head; returns whether there is one
    compact()              the journal has grown to `compact_bytes`, or has `erase_bytes` and the queue is empty
    wake()                 a caller is `waiting`, and an item has arrived
    write_rest(data, done) `write` has written only the first `done` bytes
    write_failed(error)    `write` has raised this error
    interrupted(error)     this error has ended a call while it was unsettled

Items are in a ring: a list of their data, and an array with four numbers of each. The n-th item is at
`(first + n) & (capacity - 1)`.

This source runs interpreted, and compiled as `_shelf` with the C types of `_shelf.pxd`, which has C versions of the
functions at the end of this file. Compiled code does not check indexes. Allocating a container may run other Python
code, which may call the shelf, so no value that it could change is kept across an allocation. Nothing interrupts
compiled code between two calls of Python, so `take` is safe without the mutex.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from os import pwrite
from sys import exc_info as exc_info  # for `_shelf.pxd`
from typing import Any, Final, Protocol, TypeAlias, cast

from ...core.bytes.buffers import Buffer, as_bytes
from ...core.io.disk import RealFile
from ...errors import StorageFailed, TooLarge
from ..bytes.layout import MAX_DATA_BYTES
from ..bytes.records import OPS

try:
    import cython
except ModuleNotFoundError:
    from ...core.bytes import cython_shim as cython

if not cython.compiled:
    import time
    from threading import Lock as Mutex
    from threading import get_ident

    from ...core.bytes.write_buffer import WriteBuffer
    from ..bytes.layout import ADD, ADD_XID, ADDX, ADDX_HEAD, DATA_HEAD_BYTES
    from ..bytes.records import head_bytes

Entry: TypeAlias = tuple[bytes, int, int, int, int]
"""An item in memory: data, when it was added, when it expires (0: never), attempts, the id of its ADD_XID (0: none)."""
NO_LIMIT: Final = 2**62

REMOVE_BYTE: Final = bytes([OPS["remove"]])
# For `_shelf.pxd`, which writes to a file as `RealFile.write_at` does, but without a Python call.
REAL_WRITE: Final = RealFile.write_at
PWRITE: Final = pwrite
WRITE_ERROR: Final = StorageFailed


class ShelfOwner(Protocol):
    """The methods that a shelf calls: see above."""

    def deadline(self, expires: Any, now: int) -> int: ...
    def make_room(self, size: int) -> None: ...
    def fall_behind(self, position: int) -> None: ...
    def ready(self) -> bool: ...
    def compact(self) -> None: ...
    def wake(self) -> None: ...
    def write_rest(self, data: bytes, done: int) -> None: ...
    def write_failed(self, error: BaseException) -> None: ...
    def interrupted(self, error: BaseException) -> None: ...


class Shelf(WriteBuffer):
    """Items and operations of one queue. Limits are plain numbers, `NO_LIMIT` for none; times are milliseconds."""

    def __init__(self, position: int, attention_bytes: int, dialect: int, owner: ShelfOwner | None = None) -> None:
        """A shelf that is only stocked and emptied needs no owner."""
        WriteBuffer.__init__(self, attention_bytes, first_bytes=4096)  # a program may have thousands of queues
        self.owner = cast(ShelfOwner, owner)
        self.mutex = Mutex()
        # operations to be written
        self.position = position
        self.file_size = position
        self.dialect = dialect
        self.write: Callable[[int, bytes], int] | None = None
        self.in_flight: tuple[bytearray, int] | None = None
        """The result of `take`; the caller sets it to None when it is written."""
        self.unsettled = False
        self.began = 0
        self.serial = 0
        # the item that a thread holds; those of other threads are in the dict
        self._holder = 0
        self._held_data: bytes | None = None
        self._held_added = self._held_expires = self._held_attempts = self._held_name = self._held_serial = 0
        self._held_by_others: dict[int, tuple[Entry, int]] = {}
        # items
        self.items = self.data_bytes = 0
        self.memory_items = self.memory_bytes = 0
        self.added = 0
        """The number of items ever added, which is the number of the next one."""
        self.taken = 0
        self.waiting = 0
        self._data: list[bytes | None] = []
        self._numbers = memoryview(array("q"))
        self._capacity = 0
        self._first = 0
        # limits
        self.clock: Callable[[], int] | None = None
        self.max_items = self.max_bytes = self.max_memory_items = self.max_memory_bytes = NO_LIMIT
        self.max_item_bytes = MAX_DATA_BYTES
        self.max_age = 0
        self.max_attempts = 2**31 - 1
        self.compact_bytes = self.erase_bytes = NO_LIMIT

    # --- the hot path -----------------------------------------------------------------------------------------------

    def put(self, data: Buffer, expires: Any = None) -> None:
        """Add an item at the tail. `expires` is passed to `deadline` of the owner."""
        content = data if isinstance(data, bytes) else as_bytes(data)
        if self.refusing:
            self.refuse()
        put_in_turn(self, content, expires)

    def _put_now(self, data: bytes, expires: Any) -> None:
        now = self._now()
        self._put(data, now, 0 if expires is None else self.owner.deadline(expires, now))

    def put_locked(self, data: bytes, added: int, expires: int) -> None:
        """Add an item at the tail; the mutex is held."""
        self._put(data, added, expires)

    def _put(self, data: bytes, added: int, expires: int) -> None:
        size = size_of(data)
        is_part = self.unsettled
        if self.refusing:
            self.refuse()
        if size > self.max_item_bytes:
            raise TooLarge(f"an item of {size} bytes is more than the {self.max_item_bytes} that this queue takes")
        if self.items >= self.max_items or self.data_bytes + size > self.max_bytes:
            self.owner.make_room(size)
        if not self.unsettled:
            if self.position > self.compact_bytes:
                self.owner.compact()
            self.unsettled = True
            self.began = self.position
        position = emit_add(self, data, size, added, expires)
        self.added += 1
        if self.items == self.memory_items:
            if self.memory_items < self.max_memory_items and self.memory_bytes + size <= self.max_memory_bytes:
                self._push(data, added, expires, 0)
                self.memory_bytes += size
            else:
                self.owner.fall_behind(position)
        self.items += 1
        self.data_bytes += size
        self.unsettled = is_part
        if self.waiting:
            self.owner.wake()

    def get(self) -> bytes | None:
        """Remove the head; returns its data, None if there is no item."""
        if self.refusing:
            self.refuse()
        return get_in_turn(self, False)

    def get_and_hold(self) -> bytes | None:
        """The same, and this thread `holds` the item until it sets that to False."""
        if self.refusing:
            self.refuse()
        return get_in_turn(self, True)

    def _get(self, is_held: bool) -> bytes | None:
        if not self.items:
            return None
        at = 4 * self._first
        if not self.memory_items or self.max_age or self._numbers[at + 1] or self._numbers[at + 2]:
            if not self.owner.ready():
                return None
            if not self.memory_items:
                raise IndexError("the shelf is empty")
        if is_held and self._holder:
            self._hold_for_others()
        thread = get_ident()
        self.unsettled = True
        self.began = self.position
        self._emit(REMOVE_BYTE)
        self.taken += 1
        at = 4 * self._first
        data = self._take_first()
        if is_held:
            self._held_data = data
            self._held_added = self._numbers[at]
            self._held_expires = self._numbers[at + 1]
            self._held_attempts = self._numbers[at + 2]
            self._held_name = self._numbers[at + 3]
            self._held_serial = self.serial
            self._holder = thread
        self.unsettled = False
        if self.position > self.compact_bytes or (self.items == 0 and self.position >= self.erase_bytes):
            self.owner.compact()
        return data

    def _end_with_error(self, error: BaseException) -> None:
        """A call ends with an error: if it is unsettled, refuse all later calls."""
        if self.unsettled:
            self.refusing = True
            self.owner.interrupted(error)

    def _hold_for_others(self) -> None:
        """Move the item that another thread holds to the dict, to make space for the next one."""
        if self._holder != get_ident():
            self._held_by_others[self._holder] = self._held_entry(), self._held_serial
        self._holder = 0
        self._held_data = None

    def _held_entry(self) -> Entry:
        data = self._held_data
        assert data is not None
        return data, self._held_added, self._held_expires, self._held_attempts, self._held_name

    @property
    def holds(self) -> bool:
        """Whether this thread holds an item. It sets this to False when the item is delivered."""
        return self._holder == get_ident() or get_ident() in self._held_by_others

    @holds.setter
    def holds(self, value: bool) -> None:
        thread = get_ident()
        if self._holder == thread:  # no call from here on: an interrupt could follow it
            self._holder = 0
            self._held_data = None
        if self._held_by_others and thread in self._held_by_others:
            del self._held_by_others[thread]

    def held(self) -> tuple[Entry, int] | None:
        """The item that this thread holds, and `serial` when it was removed; None if it holds none."""
        thread = get_ident()
        data = self._held_data
        if self._holder == thread and data is not None:  # no call from here on: another thread could run and hold one
            return (data, self._held_added, self._held_expires, self._held_attempts, self._held_name), self._held_serial
        return self._held_by_others.get(thread)

    def now(self) -> int:
        """Milliseconds since the epoch, by the `clock` if there is one."""
        return self._now()

    def _now(self) -> int:
        return now_ms() if self.clock is None else self.clock()

    # --- items; the mutex is held -----------------------------------------------------------------------------------

    def _push(self, data: bytes, added: int, expires: int, name: int) -> None:
        """Add an item at the end of the shelf; its bytes are not counted."""
        while self.memory_items == self._capacity:
            self._grow()
        place = (self._first + self.memory_items) & (self._capacity - 1)
        self._data[place] = data
        self._numbers[4 * place] = added
        self._numbers[4 * place + 1] = expires
        self._numbers[4 * place + 2] = 0
        self._numbers[4 * place + 3] = name
        self.memory_items += 1

    def _grow(self) -> None:
        """Double the size of the ring, unless it has grown while memory was allocated."""
        capacity = 2 * self._capacity if self._capacity else 64
        data: list[bytes | None] = [None] * capacity
        numbers = memoryview(array("q", bytes(32 * capacity)))
        if capacity > self._capacity:
            for row in range(self.memory_items):
                place = (self._first + row) & (self._capacity - 1)
                data[row] = self._data[place]
                for number in range(4):
                    numbers[4 * row + number] = self._numbers[4 * place + number]
            self._numbers = numbers
            self._first = 0
            self._capacity = capacity
            self._data = data

    def _take_first(self) -> bytes:
        """Take the first item from the shelf; returns its data."""
        if not self.memory_items:
            raise IndexError("the shelf is empty")
        data = self._data[self._first]
        assert data is not None
        self._data[self._first] = None
        self._first = (self._first + 1) & (self._capacity - 1)
        size = size_of(data)
        self.memory_items -= 1
        self.memory_bytes -= size
        self.items -= 1
        self.data_bytes -= size
        return data

    def _entry(self, place: int) -> Entry:
        return self._with_numbers(self._data[place], 4 * place)

    def _with_numbers(self, data: bytes | None, at: int) -> Entry:
        """The item whose numbers are at this index; it may have been taken already."""
        assert data is not None
        return data, self._numbers[at], self._numbers[at + 1], self._numbers[at + 2], self._numbers[at + 3]

    def head(self) -> Entry:
        """The first item on the shelf."""
        if not self.memory_items:
            raise IndexError("the shelf is empty")
        return self._entry(self._first)

    def pop(self) -> Entry:
        """Take the first item from the shelf. The journal is not changed."""
        at = 4 * self._first
        return self._with_numbers(self._take_first(), at)

    def put_back(self, entry: Entry) -> None:
        """Put an item at the head, regardless of the limits. The journal is not changed."""
        data, added, expires, attempts, name = entry
        if not isinstance(data, bytes):
            raise TypeError("the data of an item is bytes")
        while self.memory_items == self._capacity:
            self._grow()
        place = (self._first - 1) & (self._capacity - 1)
        self._data[place] = data
        self._numbers[4 * place] = added
        self._numbers[4 * place + 1] = expires
        self._numbers[4 * place + 2] = attempts
        self._numbers[4 * place + 3] = name
        self._first = place
        self.memory_items += 1
        self.memory_bytes += size_of(data)
        self.items += 1
        self.data_bytes += size_of(data)

    def entries(self) -> list[Entry]:
        """The items on the shelf from the head on."""
        found: list[Entry] = []
        row = 0
        while row < self.memory_items:  # it may change, because a tuple is allocated
            found.append(self._entry((self._first + row) & (self._capacity - 1)))
            row += 1
        return found

    def clear(self) -> None:
        """Remove all items at once: code that runs while they are released sees an empty shelf."""
        data: list[bytes | None] = []
        numbers = memoryview(array("q"))
        data, self._data = self._data, data
        self._numbers = numbers
        self._capacity = self._first = 0
        self.items = self.data_bytes = self.memory_items = self.memory_bytes = 0

    def stock(
        self,
        buffer: Buffer,
        base: int,
        kinds: bytes,
        numbers: Sequence[int],
        positions: Sequence[int],
        end: int,
        most_items: int,
        most_bytes: int,
    ) -> int:
        """Put items that are already counted on the shelf, from the operations that added them.

        Stops at `most_items` and `most_bytes`, but stocks at least one item. The operations are those of a chunk: see
        `Effects`; `base` is where the buffer begins in its file. Returns how many operations were passed.
        """
        view = memoryview(buffer)
        codes = memoryview(kinds)
        ids = memoryview(numbers)  # type: ignore[arg-type]
        starts = memoryview(positions)  # type: ignore[arg-type]
        count = len(codes)
        taken = 0
        if len(ids) != count or len(starts) != count:
            raise ValueError("there must be as many kinds as numbers and positions")
        for row in range(count):
            kind = codes[row]
            if not has_data(kind):
                continue
            start = starts[row] - base
            stop = (starts[row + 1] if row + 1 < count else end) - base
            data_start = start + head_bytes(kind)
            size = stop - data_start
            if start < 0 or size < 0 or stop > len(view):
                raise ValueError("these operations are not within the buffer")
            if taken and (self.memory_items >= most_items or self.memory_bytes + size > most_bytes):
                return row
            if kind == ADD:
                added, expires = 0, load_i32(view, start + 5) * 1000
            else:
                added, expires = load_i64(view, data_start - 16), load_i64(view, data_start - 8)
            self._push(bytes_of(view, data_start, size), added, expires, ids[row] if kind == ADD_XID else 0)
            self.memory_bytes += size
            taken += 1
        return count

    # --- operations to be written -----------------------------------------------------------------------------------

    def emit(self, data: bytes) -> int:
        """Write operations, or add them to the buffer; returns the position of the first. The mutex is held."""
        return self._emit(data)

    def _emit(self, data: bytes) -> int:
        position = self.position
        if self.write is not None:
            self.serial += 1
            self.position = position + len(data)
            self._write_through(data)
        elif add_to_buffer(self, data) >= self.attention_bytes:
            self.attend()
        return position

    def _write_through(self, data: bytes) -> None:
        try:
            written = write_at(self.write, self.file_size, data)
        except BaseException as error:
            self.owner.write_failed(error)
            raise
        if written < len(data):
            self.owner.write_rest(data, written)
        self.file_size += len(data)

    def take(self) -> tuple[bytearray, int]:
        """The buffered operations; if those that were taken last are still `in_flight`, these."""
        if self.in_flight is None:
            take_buffer(self)
        assert self.in_flight is not None
        return self.in_flight


if not cython.compiled:

    def put_in_turn(shelf: Shelf, data: bytes, expires: Any) -> None:
        """Put an item with the mutex held."""
        with shelf.mutex:
            if shelf.unsettled:
                shelf.refuse()
            try:
                shelf._put_now(data, expires)
            except BaseException as error:
                shelf._end_with_error(error)
                raise

    def get_in_turn(shelf: Shelf, is_held: bool) -> bytes | None:
        """Remove the head with the mutex held."""
        with shelf.mutex:
            if shelf.refusing or shelf.unsettled:
                shelf.refuse()
            try:
                return shelf._get(is_held)
            except BaseException as error:
                shelf._end_with_error(error)
                raise

    def emit_add(shelf: Shelf, data: bytes, size: int, added: int, expires: int) -> int:
        """Write an ADDX, or add it to the buffer; returns its position."""
        return shelf._emit(ADDX_HEAD.pack(ADDX, 16 + size, added, expires) + data)

    def add_to_buffer(shelf: Shelf, data: bytes) -> int:
        """Add operations to the buffer, and count them; returns the size of the buffer."""
        with shelf._adding:
            shelf.serial += 1
            shelf.position += len(data)
            shelf._buffer += data
            return len(shelf._buffer)

    def take_buffer(shelf: Shelf) -> None:
        """Make the buffered operations `in_flight`."""
        with shelf._adding:
            fresh, size = bytearray(), len(shelf._buffer)
            shelf.in_flight = shelf._buffer, size
            shelf._buffer = fresh

    def write_at(write: Callable[[int, bytes], int] | None, position: int, data: bytes) -> int:
        """Write to a file; returns how many bytes were written."""
        assert write is not None
        return write(position, data)

    def now_ms() -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def size_of(data: bytes) -> int:
        """The number of bytes of an item."""
        return len(data)

    def has_data(kind: int) -> bool:
        """Whether an operation adds an item."""
        return kind in DATA_HEAD_BYTES

    def bytes_of(view: memoryview, start: int, size: int) -> bytes:
        """A part of a buffer."""
        return bytes(view[start : start + size])

    def load_i32(view: memoryview, at: int) -> int:
        """An integer of four bytes."""
        return int.from_bytes(view[at : at + 4], "little", signed=True)

    def load_i64(view: memoryview, at: int) -> int:
        """An integer of eight bytes."""
        return int.from_bytes(view[at : at + 8], "little", signed=True)
