# cython: language_level=3, annotation_typing=False
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Table: the keys of a store in memory, and the place in its buffer where each has its value. Insert and get run here.

A key leads to a `Slot`: when it was written, and where its entry is in the buffer. A value that was inserted is kept
there as a copy of its own, so that nothing changes it without the journal; one that was found in the journal is decoded
when it is asked for the first time. What `get` returns belongs to the store: copy it before you change it. The journal
has it as bytes either way, and compaction copies those.

A change is encoded first, all but its time. If nothing prevents it, it is then stored in the buffer, the position
next, and the slot last. Three things prevent it, and leave the change to `_change`, which the subclass has: `attention`
(the buffer is to be written to by calls, or about to be exchanged), `refusing`, and an entry that does not end before
`soft_end` or that has a whole sector of zeros (see `buffer.py`).

This runs compiled, as `_table`, and interpreted. `_table.pxd` has the C types, and in C what the last part of this file
has in Python. Compiled, nothing interrupts a change between its last check and its slot. Interpreted, every change is
left to `_change`, which holds a lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from ...core.bytes.outcome import Malformed
from ...errors import WrongUse
from ..bytes import codec
from ..bytes.bonjson import codec as bonjson_codec
from ..bytes.bonjson import decode, decode_prefix, encode, size_of
from ..bytes.bonjson.layout import END_CODE, OBJECT_CODE
from ..bytes.layout import KEY, POSITION_AT, TIMESTAMP, VALUE
from ..bytes.records import check_key
from ..files.buffer import SECTOR_BYTES, Memory, has_zero_sector

try:
    import cython
except ModuleNotFoundError:
    from ...core.bytes import cython_shim as cython

_TIMESTAMP: Final = bytes([OBJECT_CODE]) + encode(TIMESTAMP)
_KEY: Final = encode(KEY)
_VALUE: Final = encode(VALUE)
_END: Final = bytes([END_CODE])
_NULL: Final = encode(None)
PIECE_BYTES: Final = 1 << 20
"""The number of bytes of entries that are copied at a time."""
encode_or_say_why: Final = bonjson_codec.encode
"""What `_table.pxd` calls for a value that cannot be encoded."""
NO_VALUE: Final = "None cannot be a value of a store, where null means that a key is removed: use remove"

assert (SECTOR_BYTES, POSITION_AT) == (512, 8)  # as in _table.pxd


class Moves:
    """The new places of the entries of some slots, consecutive from `start` to `end` in another buffer."""

    def __init__(self, slots: list[Slot], start: int, end: int) -> None:
        self.slots = slots
        self.start = start
        self.end = end


class Table:
    """The keys of a store. Changes beyond `soft_end` go to `_change`; `last_timestamp` is that of the last entry."""

    def __init__(self) -> None:
        self.refusing = False
        self.attention = True
        self.always = False
        self.clock: Callable[[], int] | None = None
        self.position = self.soft_end = 0
        self.last_timestamp = 0
        self.live_bytes = 0
        self.memory: Memory | None = None
        self.index: dict[str, Slot] = {}  # None when the store is closed
        self._mapped: Memory | None = None
        self._reading = threading.RLock()  # a callback of the garbage collector may enter it again in the same thread

    # --- what a subclass has ----------------------------------------------------------------------------------------

    def _change(self, key: str, tail: bytes, value: Any) -> int | None:
        """Write a change that cannot be stored directly; a `value` of None removes the key."""
        raise NotImplementedError

    def _commit(self) -> None:
        """Return once everything that was changed is durable."""
        raise NotImplementedError

    def _refuse(self) -> None:
        """Raise: the store is closed."""
        raise NotImplementedError

    # --- what is called all the time --------------------------------------------------------------------------------

    def insert(self, key: str, value: Any) -> int:
        """Set a key to a value that JSON can store, except null; the time of this change, in nanoseconds."""
        if value is None:
            raise WrongUse(NO_VALUE)
        return write_change(self, key, value)  # type: ignore[return-value]  # there is a time: it removes nothing

    def remove(self, key: str) -> int | None:
        """Remove a key; the time of this change, None if there is no such key."""
        return write_change(self, key, None) if key in self else None

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default. It belongs to the store: copy it before you change it."""
        slot = find_slot(self, key)
        if slot is None:
            return default
        return self._read(slot) if slot.value is None else slot.value

    def get_with_timestamp(self, key: str) -> tuple[Any, int] | None:
        """The value of a key and when it was written; None if there is no such key."""
        slot = find_slot(self, key)
        return None if slot is None else (self._read(slot), slot.t)

    def __contains__(self, key: object) -> bool:
        return find_slot(self, key) is not None

    def __len__(self) -> int:
        if self.index is None:
            self._refuse()
        return len(self.index)

    def _read(self, slot: Slot) -> Any:
        """The value of a slot in the current buffer."""
        if slot.value is None:
            value = read_value(self, slot)
            if slot.value is None:
                slot.value = value
        return slot.value

    def pairs(self) -> list[tuple[str, Any]]:
        """All keys and values, as they are now. It starts again if the buffer is exchanged meanwhile: slots that have
        left the index are not moved.
        """
        with self._reading:
            while True:
                if self.index is None:
                    self._refuse()
                mapped = self._mapped
                found = []
                for key, slot in self.index.copy().items():
                    if slot.value is None and self._mapped is not mapped:
                        break
                    found.append((key, self._read(slot)))
                else:
                    return found

    # --- what `_change` uses ------------------------------------------------------------------------------------------

    def now(self) -> int:
        """The time for an entry that is written now: that of the last one if the clock went back."""
        return max(time.time_ns() if self.clock is None else self.clock(), self.last_timestamp)

    def advance(self, timestamp: int) -> None:
        """Let no later entry have an earlier time."""
        self.last_timestamp = max(self.last_timestamp, timestamp)

    def entry(self, tail: bytes) -> tuple[int, bytes, bool]:
        """The next entry, before it is stored: its time, its bytes, and whether a sector of it is zeros."""
        t = self.now()
        entry = b"".join((_TIMESTAMP, encode(t), tail))
        return t, entry, len(entry) >= SECTOR_BYTES and has_zero_sector(entry, 0, len(entry), self.position)

    def accept(self, key: str, value: Any, t: int, end: int, tail_bytes: int) -> None:
        """Register the stored entry: the next one follows it. `tail_bytes` is the size of its tail."""
        start = self.position
        self.position = end
        self.last_timestamp = t
        before = self.index.pop(key, None) if value is None else self.index.get(key)
        if before is not None:
            self.live_bytes -= before.end - before.start
        if value is not None:
            slot = Slot.__new__(Slot)
            slot.value = value
            slot.t = t
            slot.start = start
            slot.end = end
            slot.value_start = end - tail_bytes + len(_KEY) + len(encode(key)) + len(_VALUE)
            slot.value_end = end - 1
            self.index[key] = slot
            self.live_bytes += end - start

    # --- the buffer -------------------------------------------------------------------------------------------------

    def attach(self, memory: Memory, position: int, moves: Moves | None = None) -> None:
        """Use another buffer from now on, which has the moved entries or the same bytes."""
        mapped = view_of(memory)
        slots: list[Slot] = []
        at = 0
        if moves is not None:
            slots = moves.slots
            at = moves.start
        with self._reading:
            before = self._mapped, self.memory  # released only at the end
            self._mapped = mapped
            self.memory = memory
            self.position = position
            for slot in slots:
                distance = at - slot.start
                at += slot.end - slot.start
                slot.start += distance
                slot.end += distance
                slot.value_start += distance
                slot.value_end += distance
        del before

    def detach(self) -> None:
        """Release the buffer and the keys: the store is closed."""
        with self._reading:
            self._mapped = self.memory = None
            self.index = None  # type: ignore[assignment]

    def scan(self, start: int, end: int, trusted: int) -> tuple[int, int, bool]:
        """Load the entries of the buffer from `start` to `end`; returns where that ended, and their number.

        Also returns whether their times rise, from the first one that is later than `last_timestamp` was. It ends early
        at bytes that are not an entry, and from `trusted` on at an entry with a whole sector of zeros.
        """
        mapped = self._mapped
        if mapped is None or self.index is None or start < 0:
            raise WrongUse("there is no buffer, or no such position in it")
        count = 0
        begun = self.last_timestamp
        last = 0
        is_rising = True
        slot = Slot.__new__(Slot)
        while start < end:
            key = read_entry(self, mapped, start, end, slot)
            if key is None or (start >= trusted and lacks_sector(mapped, start, slot.end)):
                break
            start = slot.end
            count += 1
            if slot.t < last and last > begun:
                is_rising = False
            last = slot.t
            if last > self.last_timestamp:
                self.last_timestamp = last
            before = find_slot(self, key)
            if before is not None:
                self.live_bytes -= before.end - before.start
            if not is_null(mapped, slot):
                self.live_bytes += slot.end - slot.start
                slot = keep_slot(self, key, before, slot)
            elif before is not None:
                del self.index[key]
        return start, count, is_rising

    def compact(self, start: int, put: Callable[[int, bytes], None]) -> Moves:
        """Copy the entries of all keys to another buffer from a position on, the oldest first; `attach` then uses it.

        `put` is called with a position and the bytes for it, many entries at a time.
        """
        slots = list((self.index or {}).values())
        end = copy_entries(self._mapped, slots, start, PIECE_BYTES, put)
        return Moves(slots, start, end)


if not cython.compiled:

    class Slot:
        """A key's value, None if it was not decoded yet, and the place of its entry."""

        __slots__ = ("end", "start", "t", "value", "value_end", "value_start")

        def __init__(self) -> None:
            self.value: Any = None
            self.t = self.start = self.end = self.value_start = self.value_end = 0

    def view_of(memory: Memory) -> Memory:
        """The value of `_mapped`: compiled, a view of the memory that C can read and write."""
        return memory

    def write_change(table: Table, key: str, value: Any) -> int | None:
        """Write a change, and return its time. A value of None removes the key; then None if it does not exist."""
        check_key(key)
        encoded = encode(value)
        tail = b"".join((_KEY, encode(key), _VALUE, encoded, _END))
        return table._change(str.__str__(key), tail, decode(encoded))

    def read_value(table: Table, slot: Slot) -> Any:
        """The value of a slot, decoded."""
        with table._reading:  # so that the buffer is not exchanged meanwhile
            if table._mapped is None:
                table._refuse()
            assert table._mapped is not None
            data = table._mapped[slot.value_start : slot.value_end]
        return decode_prefix(data, 0, len(data), last_key_wins=True, allow_nan=True)[0]

    def read_entry(table: Table, mapped: Memory, start: int, end: int, slot: Slot) -> str | None:
        """Set a slot to the entry at a position; returns its key, None if there is no entry."""
        try:
            found = codec.decode_entry(mapped, start, end)
        except Malformed:
            return None
        if not isinstance(found, tuple):
            return None
        entry, span = found
        position = start + 1
        while mapped[position] != END_CODE:
            name, position = decode_prefix(mapped, position, span.end)
            size = size_of(mapped, position, span.end, allow_nan=True)
            assert isinstance(size, int)
            if name == VALUE:
                slot.value_start, slot.value_end = position, position + size
            position += size
        slot.value, slot.t, slot.start, slot.end = None, entry.t, start, span.end
        return entry.k

    def lacks_sector(mapped: Memory, start: int, end: int) -> bool:
        """Whether an entry has a whole sector of zeros."""
        return has_zero_sector(mapped, start, end)

    def find_slot(table: Table, key: Any) -> Slot | None:
        """The slot of a key."""
        if table.index is None:
            table._refuse()
        return table.index.get(key)

    def keep_slot(table: Table, key: str, before: Slot | None, slot: Slot) -> Slot:
        """Set the slot of a key; returns the slot to use for the next key."""
        table.index[key] = slot
        return Slot.__new__(Slot)

    def is_null(mapped: Memory, slot: Slot) -> bool:
        """Whether the value of an entry is null, which removes the key."""
        return mapped[slot.value_start] == _NULL[0]

    def copy_entries(
        mapped: Memory | None, slots: list[Slot], at: int, piece_bytes: int, put: Callable[[int, bytes], None]
    ) -> int:
        """Copy the entries of slots to another buffer in large pieces, and sort the slots by age; returns the end."""
        slots.sort(key=attrgetter("start"))
        piece = bytearray()
        for slot in slots:
            assert mapped is not None
            if len(piece) >= piece_bytes:
                put(at, bytes(piece))
                at += len(piece)
                piece.clear()
            piece += mapped[slot.start : slot.end]
        if piece:
            put(at, bytes(piece))
        return at + len(piece)
