"""Versions: the last change of each key of a store, and the changes that later ones have superseded.

Records are taken in the order of the journals, as columns. Each change of a key has a number, counted from 1. When the
next change of the key comes, the one before it is superseded, and is returned with the time of the next one.

A copy that compaction made is not a change. Copies are at the beginning of a journal: none is later than the journal
itself (`sequence`, the time when it became the active one), none is a deletion, and no key has two. The first record
that cannot be a copy ends this head of the journal; all after it are changes. A record of the head is a copy if the
last record of its key is in an earlier journal and has the same time and value. A record with the time of the journal
itself may also be a change to the same value at the same time. The head decides: its copies are among the records if
and only if one of its records is earlier than the journal. Until that is known such a record is undecided, and the last
change of its key is the one before it; `rows` returns both, as if it were a change. No other record waits.

If all records of the head are there (`is_complete`), a key without one was deleted, and the record of that is missing.
It is deleted at the time of the journal, at the position 0. The end of the head decides; until then `rows` returns the
deletion as well.

`_versions.pyx` is the same compiled. Memory goes with the last changes, not with the history.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final

from ...core.bytes.buffers import Buffer, check_ends, column_bytes, column_items, column_part
from ...errors import WrongUse
from ..bytes.layout import MAX_TIMESTAMP

NO_SEQUENCE: Final = -1
"""The sequence of a journal whose start as the active one is unknown."""
NOT_BEGUN: Final = -2
"""The sequence before the first record."""
OVER: Final = 0
UNDECIDED: Final = 1
COPIED: Final = 2
"""The head of the current journal: over, undecided, or known to have its copies among the records."""
ROW_BYTES: Final = 64
"""The size of a row without its key and value, where the size of rows is limited."""
MOST_BYTES: Final = 2**31 - 1


@dataclass(slots=True)
class Changes:
    """Changes of keys as columns of plain buffers in the machine's byte order.

    Keys and values are between `ends[n]` and `ends[n + 1]` (i32) of their bytes. `times` and `next_times` are u64,
    `sequences`, `positions` and `numbers` i64, the others u8. The columns from `numbers` on are for changes that are
    returned: the number among the changes of the key, the time of the next change, whether there is none, and whether
    the last record of the key is in the current journal. `follows` is for changes that are taken: whether no record is
    missing between a record and the preceding one of its journal, or the beginning of the journal.
    """

    count: int
    key_ends: Buffer
    keys: Buffer
    value_ends: Buffer
    values: Buffer
    deleted: Buffer
    times: Buffer
    sequences: Buffer
    positions: Buffer
    numbers: Buffer = b""
    next_times: Buffer = b""
    is_last: Buffer = b""
    is_here: Buffer = b""
    follows: Buffer = b""


@dataclass(slots=True)
class _Version:
    """The last change of a key, and the position of a record that may be a copy of it or the next change."""

    value: bytes
    deleted: bool
    t: int
    sequence: int
    position: int
    number: int
    journal: int
    undecided: int | None = None


class Versions:
    """The last change of each key. Changes later than `until` are ignored; without `closes` no superseded changes are
    returned.

    `sequence`, `head` and `is_complete` describe the current journal.
    """

    def __init__(self, until: int | None = None, *, closes: bool = True) -> None:
        self.sequence = NOT_BEGUN
        self.head = OVER
        self.is_complete = False
        self._until = MAX_TIMESTAMP if until is None else until
        self._closes = closes
        self._journal = 1
        self._versions: dict[bytes, _Version] = {}
        self._undecided: list[bytes] = []

    def __len__(self) -> int:
        return len(self._versions)

    def add(self, changes: Changes, start: int, most_bytes: int) -> tuple[int, Changes]:
        """Add the changes from a row on; returns the row to continue at, and the superseded changes.

        It stops early if these would exceed `most_bytes`, but not before the first one.
        """
        rows, out = _Rows(changes, start), _Out(most_bytes)
        rows.follows = _numbers("B", changes.follows, changes.count, "follows")
        row = start
        while row < changes.count and self._take(rows, row, out):
            row += 1
        return row, out.changes()

    def _take(self, rows: _Rows, row: int, out: _Out) -> bool:
        """Add one record; False if the superseded rows do not fit."""
        t, sequence, deleted = rows.times[row], rows.sequences[row], bool(rows.deleted[row])
        if sequence != self.sequence:
            if not self._end_head(out):
                return False
            self.sequence = sequence
            self._journal += 1
            self.head = UNDECIDED if sequence >= 0 else OVER
            self.is_complete = True
        self.is_complete &= bool(rows.follows[row])
        key = rows.key(row)
        last = self._versions.get(key)
        if self.head != OVER:
            if deleted or t > sequence or (last is not None and last.journal == self._journal):
                if not self._end_head(out):
                    return False
                self.head = OVER
                last = self._versions.get(key)
            elif t < sequence and self.head == UNDECIDED:
                self._forget()
                self.head = COPIED
        if t > self._until:
            return True
        value = b"" if deleted else rows.value(row)
        if self.head != OVER and last is not None and not last.deleted and (last.t, last.value) == (t, value):
            last.journal = self._journal
            if self.head == UNDECIDED:
                last.undecided = rows.positions[row]
                self._undecided.append(key)
            return True
        if last is not None and self._closes and not out.put(key, last, next_time=t):
            return False
        number = 1 if last is None else last.number + 1
        self._versions[key] = _Version(value, deleted, t, sequence, rows.positions[row], number, self._journal)
        return True

    def _end_head(self, out: _Out) -> bool:
        """The undecided records are changes, and the keys that are missing are deleted."""
        while self._undecided:
            last = self._versions[self._undecided[-1]]
            if self._closes and not out.put(self._undecided[-1], last, next_time=last.t):
                return False
            self._undecided.pop()
            assert last.undecided is not None
            last.sequence, last.position, last.undecided = self.sequence, last.undecided, None
            last.number += 1
        for key, last in self._versions.items() if self.head != OVER else ():
            if self._is_gone(last):
                if self._closes and not out.put(key, last, next_time=self.sequence):
                    return False
                self._versions[key] = self._deletion(last)
        return True

    def _is_gone(self, last: _Version) -> bool:
        """Whether a key is not among the records of the head, though it should be."""
        is_known = self.head != OVER and self.is_complete and self.sequence <= self._until
        return is_known and last.journal != self._journal and not last.deleted

    def _deletion(self, last: _Version) -> _Version:
        return _Version(b"", True, self.sequence, self.sequence, 0, last.number + 1, self._journal)

    def _forget(self) -> None:
        """The undecided records are copies."""
        for key in self._undecided:
            self._versions[key].undecided = None
        self._undecided.clear()

    def rows(self, start: int, most_bytes: int) -> tuple[int, Changes]:
        """The last changes of the keys from a number on, and the number to continue at.

        An undecided record comes after the change that it may be a copy of, a deletion after the change of its key.
        """
        out = _Out(most_bytes)
        keys = list(self._versions)
        for number in range(start, len(keys)):
            key = keys[number]
            last = self._versions[key]
            is_here = last.journal == self._journal
            following: _Version | None = None
            if last.undecided is not None:
                place = self.sequence, last.undecided
                following = _Version(last.value, False, last.t, *place, last.number + 1, last.journal)
            elif self._is_gone(last):
                following = self._deletion(last)
            next_time = None if following is None else following.t
            if not out.put(key, last, next_time=next_time, is_here=is_here):
                return number, out.changes()
            if following is not None:
                out.put(key, following, is_here=is_here, is_forced=True)
        return len(keys), out.changes()

    def load(self, changes: Changes) -> None:
        """Load rows that `rows` has returned. After the last call, set `sequence`, `head` and `is_complete`."""
        rows = _Rows(changes)
        numbers = column_items("q", changes.numbers, changes.count, "numbers")
        is_here = column_items("B", changes.is_here, changes.count, "is_here")
        assert numbers is not None
        assert is_here is not None
        for row in range(changes.count):
            key = rows.key(row)
            last = self._versions.get(key)
            if last is not None and rows.deleted[row]:
                continue  # the end of the head decides
            if last is not None:
                last.undecided = rows.positions[row]
                self._undecided.append(key)
                continue
            value = b"" if rows.deleted[row] else rows.value(row)
            place = rows.sequences[row], rows.positions[row]
            journal = self._journal if is_here[row] else 0
            self._versions[key] = _Version(
                value, bool(rows.deleted[row]), rows.times[row], *place, numbers[row], journal
            )


class _Rows:
    """Rows of columns."""

    def __init__(self, changes: Changes, start: int = 0) -> None:
        count = changes.count
        if not 0 <= start <= max(0, count):
            raise WrongUse(f"there is no row {start} among {count}")
        self._keys, self._values = column_bytes(changes.keys), column_bytes(changes.values)
        self._key_ends = _numbers("i", changes.key_ends, count + 1, "key_ends")
        self._value_ends = _numbers("i", changes.value_ends, count + 1, "value_ends")
        check_ends(self._key_ends, count, len(self._keys), MOST_BYTES, "key")
        check_ends(self._value_ends, count, len(self._values), MOST_BYTES, "value")
        self.deleted = _numbers("B", changes.deleted, count, "deleted")
        self.times = _numbers("Q", changes.times, count, "times")
        self.sequences = _numbers("q", changes.sequences, count, "sequences")
        self.positions = _numbers("q", changes.positions, count, "positions")
        self.follows = array("B")

    def key(self, row: int) -> bytes:
        return column_part(self._keys, self._key_ends, row)

    def value(self, row: int) -> bytes:
        return column_part(self._values, self._value_ends, row)


def _numbers(code: str, buffer: Buffer, count: int, name: str) -> array[int]:
    items = column_items(code, buffer, count, name)
    assert items is not None
    return items


_CODES: Final = {
    "deleted": "B",
    "times": "Q",
    "sequences": "q",
    "positions": "q",
    "numbers": "q",
    "next_times": "Q",
    "is_last": "B",
    "is_here": "B",
}


class _Out:
    """Rows that are returned, of about `most_bytes`."""

    def __init__(self, most_bytes: int) -> None:
        if not 0 < most_bytes <= MOST_BYTES:
            raise WrongUse(f"rows of {most_bytes} bytes are not within 1 byte and 2 GiB")
        self._left = most_bytes
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._numbers: dict[str, array[int]] = {name: array(code) for name, code in _CODES.items()}

    def put(
        self,
        key: bytes,
        version: _Version,
        *,
        next_time: int | None = None,
        is_here: bool = False,
        is_forced: bool = False,
    ) -> bool:
        """Add a row; False if it does not fit, and is not the first one."""
        size = ROW_BYTES + len(key) + len(version.value)
        if self._keys and size > self._left and not is_forced:
            return False
        self._left -= size
        self._keys.append(key)
        self._values.append(version.value)
        items = {
            "deleted": version.deleted,
            "times": version.t,
            "sequences": version.sequence,
            "positions": version.position,
            "numbers": version.number,
            "next_times": next_time or 0,
            "is_last": next_time is None,
            "is_here": is_here,
        }
        for name, item in items.items():
            self._numbers[name].append(item)
        return True

    def changes(self) -> Changes:
        (key_ends, keys), (value_ends, values) = _joined(self._keys), _joined(self._values)
        numbers = {name: items.tobytes() for name, items in self._numbers.items()}
        return Changes(len(self._keys), key_ends, keys, value_ends, values, **numbers)


def _joined(parts: list[bytes]) -> tuple[bytes, bytes]:
    ends = array("i", [0])
    for part in parts:
        ends.append(ends[-1] + len(part))
    return ends.tobytes(), b"".join(parts)
