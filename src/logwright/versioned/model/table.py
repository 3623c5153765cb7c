"""Table: the keys of a store in memory, and the place in its buffer where each has its value. Insert and get run here.

A key leads to a `Slot`: when it was written, and where its entry is in the buffer. A value that was inserted is kept
beside it, as a copy of its own, so that nobody changes it behind the journal's back; one that was found in the journal
is decoded when it is asked for the first time. What `get` returns is the store's own: whoever wants to change it copies
it first. The journal has it as bytes either way, and compaction copies those.

A change is encoded first, all but its time. If nothing is in the way it is then stored in the buffer, the position
after it, and the slot at last. Three things are in the way, and leave the change to `_change`, which the subclass has:
`attention` (the buffer is to be written to by calls, or about to be exchanged), `refusing`, and an entry that does not
end before `soft_end` or that has a whole sector of zeros (see `buffer.py`).

This is the reference; `_store.pyx` has a twin, which is not interrupted between its last check and the slot. Here every
change is left to `_change`, which holds a lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from ...core.bytes.outcome import Malformed
from ...errors import WrongUse
from ..bytes import codec
from ..bytes.bonjson import decode, decode_prefix, encode, size_of
from ..bytes.bonjson.layout import END_CODE, LONG_STRING_CODE, OBJECT_CODE, SHORT_STRING_CODE
from ..bytes.layout import KEY, TIMESTAMP, VALUE
from ..bytes.records import check_key
from ..files.buffer import Memory, has_zero_sector

_TIMESTAMP: Final = bytes([OBJECT_CODE]) + encode(TIMESTAMP)
_KEY: Final = encode(KEY)
_VALUE: Final = encode(VALUE)
_END: Final = bytes([END_CODE])
_NULL: Final = encode(None)
PIECE_BYTES: Final = 1 << 20
"""So many bytes are put elsewhere at a time."""
NO_VALUE: Final = "None cannot be a value of a store, where null means that a key is removed: use remove"


class Slot:
    """What is known of a key: its value, None for one that was not decoded yet, and where its entry is."""

    __slots__ = ("end", "start", "t", "value", "value_end", "value_start")

    def __init__(self, value: Any, t: int, start: int, end: int, value_start: int, value_end: int) -> None:
        self.value = value
        self.t = t
        self.start = start
        self.end = end
        self.value_start = value_start
        self.value_end = value_end


class Moves:
    """Where the entries of some slots are in another buffer: one behind the other up to `end`."""

    def __init__(self, slots: list[Slot], start: int, end: int) -> None:
        self.slots = slots
        self.start = start
        self.end = end


class Table:
    """The keys of a store. `soft_end` is where `_change` is asked, `last_timestamp` the time of the last entry."""

    refusing: bool

    def __init__(self) -> None:
        self.refusing = False
        self.attention = True
        self.always = False
        self.clock: Callable[[], int] | None = None
        self.position = self.soft_end = 0
        self.last_timestamp = 0
        self.live_bytes = 0
        self.memory: Memory | None = None
        self.index: dict[str, Slot] | None = {}
        self._reading = threading.RLock()  # a callback of the collector may enter it again in the same thread

    # --- what a subclass has ----------------------------------------------------------------------------------------

    def _change(self, key: str, tail: bytes, value: Any) -> int | None:
        """Write a change that something is in the way of; a `value` of None removes the key."""
        raise NotImplementedError

    def _commit(self) -> None:
        """Return once everything that was changed is durable."""
        raise NotImplementedError

    def _refuse(self) -> None:
        """Raise: the store is closed."""
        raise NotImplementedError

    # --- what is called all the time --------------------------------------------------------------------------------

    def insert(self, key: str, value: Any) -> int:
        """Let a key have a value, anything that JSON has but null; the time of this change, in nanoseconds."""
        if value is None:
            raise WrongUse(NO_VALUE)
        check_key(key)
        encoded = encode(value)
        tail = b"".join((_KEY, encode(key), _VALUE, encoded, _END))
        t = self._change(str.__str__(key), tail, decode(encoded))
        assert t is not None
        return t

    def remove(self, key: str) -> int | None:
        """Remove a key; the time of this change, None when there is no such key, and so no change."""
        if key not in self:
            return None
        return self._change(str.__str__(key), b"".join((_KEY, encode(key), _VALUE, _NULL, _END)), None)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default. It is the store's own: copy it before you change it."""
        slot = self._slot(key)
        return default if slot is None else self._value(slot)

    def get_with_timestamp(self, key: str) -> tuple[Any, int] | None:
        """The value of a key and when it was written; None when there is no such key."""
        slot = self._slot(key)
        return None if slot is None else (self._value(slot), slot.t)

    def __contains__(self, key: object) -> bool:
        return self._slot(key) is not None

    def __len__(self) -> int:
        if self.index is None:
            self._refuse()
            return 0
        return len(self.index)

    def _slot(self, key: Any) -> Slot | None:
        if self.index is None:
            self._refuse()
            return None
        return self.index.get(key)

    def _value(self, slot: Slot) -> Any:
        if slot.value is None:
            with self._reading:  # so that the buffer is not exchanged meanwhile
                if self.memory is None:
                    self._refuse()
                assert self.memory is not None
                data = bytes(self.memory[slot.value_start : slot.value_end])
            value = decode_prefix(data, 0, len(data), last_key_wins=True, allow_nan=True)[0]
            if slot.value is None:
                slot.value = value
        return slot.value

    def pairs(self) -> Iterator[tuple[str, Any]]:
        """All keys and values, as they are now. It starts again when the buffer is exchanged meanwhile: a
        slot that has left the index does not move then.
        """
        while True:
            if self.index is None:
                self._refuse()
            memory = self.memory
            found = []
            for key, slot in (self.index or {}).copy().items():
                with self._reading:
                    if slot.value is None and self.memory is not memory:
                        break
                    found.append((key, self._value(slot)))
            else:
                return iter(found)

    # --- what `_change` uses ------------------------------------------------------------------------------------------

    def now(self) -> int:
        """The time for an entry that is written now: that of the last one when the clock has gone back."""
        return max(time.time_ns() if self.clock is None else self.clock(), self.last_timestamp)

    def advance(self, timestamp: int) -> None:
        """Let no entry from now on have an earlier time."""
        self.last_timestamp = max(self.last_timestamp, timestamp)

    def entry(self, tail: bytes) -> tuple[int, bytes, bool]:
        """The next entry, which nothing is stored of yet: its time, its bytes, and whether a sector of it is zeros."""
        t = self.now()
        entry = b"".join((_TIMESTAMP, encode(t), tail))
        return t, entry, has_zero_sector(entry, 0, len(entry), self.position)

    def accept(self, key: str, value: Any, t: int, end: int, tail_bytes: int) -> None:
        """The entry that was stored counts: the next one comes behind it. `tail_bytes` is the size of its tail."""
        assert self.index is not None
        start, self.position, self.last_timestamp = self.position, end, t
        before = self.index.pop(key, None) if value is None else self.index.get(key)
        if before is not None:
            self.live_bytes -= before.end - before.start
        if value is not None:
            value_start = end - tail_bytes + len(_KEY) + len(encode(key)) + len(_VALUE)
            self.index[key] = Slot(value, t, start, end, value_start, end - 1)
            self.live_bytes += end - start

    # --- the buffer -------------------------------------------------------------------------------------------------

    def attach(self, memory: Memory, position: int, moves: Moves | None = None) -> None:
        """Use another buffer from now on, to which the entries have moved, or that has the same bytes."""
        with self._reading:
            self.memory = memory
            self.position = position
            if moves is not None:
                at = moves.start
                for slot in moves.slots:
                    distance = at - slot.start
                    at += slot.end - slot.start
                    slot.start += distance
                    slot.end += distance
                    slot.value_start += distance
                    slot.value_end += distance

    def detach_memory(self) -> None:
        """Give the buffer back. What was not decoded yet cannot be read any more."""
        with self._reading:
            self.memory = None

    def detach(self) -> None:
        """Give the buffer back, and the keys as well: the store is closed."""
        with self._reading:
            self.memory = None
            self.index = None

    def scan(self, start: int, end: int, trusted: int) -> tuple[int, int]:
        """Take over the entries of the buffer from `start` to `end`: where that ended, and how many they were.

        It ends early at what is no entry, and at an entry from `trusted` on that has a whole sector of zeros.
        """
        assert self.memory is not None
        assert self.index is not None
        count = 0
        while start < end:
            found = _entry_at(self.memory, start, end)
            if found is None or (start >= trusted and has_zero_sector(self.memory, start, found[1].end)):
                break
            key, slot = found
            self.last_timestamp = max(self.last_timestamp, slot.t)
            before = self.index.get(key)
            if before is not None:
                self.live_bytes -= before.end - before.start
            if self.memory[slot.value_start] != _NULL[0]:
                self.index[key] = slot
                self.live_bytes += slot.end - slot.start
            else:
                self.index.pop(key, None)
            start = slot.end
            count += 1
        return start, count

    def compact(self, start: int, put: Callable[[int, bytes], None]) -> Moves:
        """Put the entries of all keys elsewhere, from a position on, the oldest first; `attach` makes it count.

        `put` is given a position and what goes there, a good many entries at a time.
        """
        slots = sorted((self.index or {}).values(), key=lambda slot: slot.start)
        end = start
        piece = bytearray()
        for slot in slots:
            assert self.memory is not None
            if len(piece) >= PIECE_BYTES:
                put(end - len(piece), bytes(piece))
                piece.clear()
            piece += self.memory[slot.start : slot.end]
            end += slot.end - slot.start
        if piece:
            put(end - len(piece), bytes(piece))
        return Moves(slots, start, end)


def _entry_at(memory: Memory, start: int, end: int) -> tuple[str, Slot] | None:
    """The entry that begins somewhere, None where there is none."""
    try:
        found = codec.decode_entry(memory, start, end)
    except Malformed:
        return None
    if not isinstance(found, tuple):
        return None
    entry, span = found
    position = start + 1
    value_start = value_end = 0
    while memory[position] != END_CODE:
        code = memory[position]
        assert code & 0xF0 == SHORT_STRING_CODE or code == LONG_STRING_CODE
        name, position = decode_prefix(memory, position, span.end)
        size = size_of(memory, position, span.end, allow_nan=True)
        assert isinstance(size, int)
        if name == VALUE:
            value_start, value_end = position, position + size
        position += size
    return entry.k, Slot(None, entry.t, start, span.end, value_start, value_end)
