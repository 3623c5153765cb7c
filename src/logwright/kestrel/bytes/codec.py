"""Bytes <-> operations, in plain Python: the reference for the kernel, used if the kernel is not built.

An operation is valid if and only if its first byte is an opcode of the dialect (0 to 8, in `kestrel2` also 9), its size
is at least 4 (ADD) or 16 (ADDX, ADD_XID, CONTINUE), its count (STATE_DUMP) is not negative, and all of its bytes exist.
Every id and every time is valid.

Strategy: the first byte determines the operation, and so the position of its size. If the bytes end before the end of
the operation, more bytes are needed; only the caller knows whether there are more. In the dialect `UNDECIDED` an 8 or a
9 is not decoded: a walk stops there with `DIALECT_NEEDED`.

Nothing here opens a file. Every length is checked against the bytes in the buffer before it is used.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, Final

from ...core.bytes.buffers import (
    Buffer,
    as_bytes,
    check_count,
    check_range,
    column_bytes,
    column_items,
    column_part,
    not_walked,
    starts_of,
)
from ...core.bytes.column_builder import Bytes, ColumnBuilder, Numbers
from ...core.bytes.outcome import NEED_MORE, Malformed, NeedMore, Span
from ...core.bytes.write_buffer import WriteBuffer
from ...errors import WrongUse
from .layout import (
    ADD,
    ADD_HEAD,
    ADD_XID,
    ADD_XID_HEAD,
    ADDX,
    ADDX_HEAD,
    CONFIRM_REMOVE,
    CONTINUE,
    CONTINUE_BYTE,
    DATA_HEAD_BYTES,
    DOCUMENTED,
    FIRST_PLAUSIBLE_MS,
    KESTREL2,
    LAST_PLAUSIBLE_MS,
    LEAST_SIZE,
    LONGEST_HEAD_BYTES,
    REMOVE,
    REMOVE_TENTATIVE,
    REMOVE_TENTATIVE_XID,
    SAVE_XID,
    SIZE,
    STATE_DUMP,
    STATE_DUMP_HEAD,
    UNDECIDED,
    UNREMOVE,
    XID,
    XID_HEAD,
)
from .records import FIELDS, OP_NAMES, OPS, Operation, check_item, check_xid, refuse_kestrel2

CLEAN, INCOMPLETE, MALFORMED, DIALECT_NEEDED = range(4)
"""How a walk ends: at the end of the bytes, in an operation, at invalid bytes, or where the dialect is needed."""

KINDS, XIDS, COUNTS, ADDED, EXPIRES, DATA, POSITIONS, SIZES = (1 << bit for bit in range(8))
"""Bits that select the columns to decode."""
ALL_COLUMNS: Final = (1 << 8) - 1
NO_TIME: Final = -(2**63)
"""The latest time among operations that have none."""

_WITH_XID: Final = tuple(OPS[name] for name, fields in FIELDS.items() if "xid" in fields)
_HEAD_BYTES: Final = {**DATA_HEAD_BYTES, REMOVE: 1, REMOVE_TENTATIVE: 1, STATE_DUMP: STATE_DUMP_HEAD.size}
"""The size of an operation without its data; operations that are not listed have only an id."""


# --- one operation ------------------------------------------------------------------------------------------------


def encode(operation: Operation) -> bytes:
    """The bytes of an operation."""
    operation.validate()
    kind = operation.number
    xid = operation.xid or 0
    data = operation.data or b""
    added, expires = operation.added or 0, operation.expires or 0
    size = LEAST_SIZE.get(kind, 0) + len(data)
    if kind == ADD:
        return ADD_HEAD.pack(kind, size, expires // 1000) + data
    if kind == ADDX:
        return ADDX_HEAD.pack(kind, size, added, expires) + data
    if kind in (ADD_XID, CONTINUE):
        return ADD_XID_HEAD.pack(byte_of(kind), xid, size, added, expires) + data
    if kind == STATE_DUMP:
        return STATE_DUMP_HEAD.pack(kind, xid, operation.count)
    return XID_HEAD.pack(kind, xid) if kind in _WITH_XID else bytes([kind])


def byte_of(kind: int) -> int:
    """The byte of an operation in a file."""
    return CONTINUE_BYTE if kind == CONTINUE else kind


def kind_of(opcode: int, dialect: int) -> int:
    """The operation of an opcode; -1 if there is none."""
    if opcode == CONTINUE_BYTE and dialect == KESTREL2:
        return CONTINUE
    return opcode if opcode <= (STATE_DUMP if dialect == DOCUMENTED else REMOVE_TENTATIVE_XID) else -1


def _size_at(kind: int) -> int:
    """The position of the size in an operation."""
    return 5 if kind in (ADD_XID, CONTINUE) else 1


def claimed_size(buffer: Buffer, position: int, end: int, dialect: int) -> int | None:
    """The size of the operation at a position according to its bytes; None if these end before it.

    Raises `Malformed` if there is no operation.
    """
    if end <= position:
        return None
    opcode = buffer[position]
    kind = kind_of(opcode, dialect)
    if kind < 0:
        raise Malformed(position, f"there is no operation {opcode}")
    if kind not in LEAST_SIZE:
        if kind == STATE_DUMP and end - position >= STATE_DUMP_HEAD.size:
            count = STATE_DUMP_HEAD.unpack_from(buffer, position)[2]
            if count < 0:
                raise Malformed(position, f"the count of a state dump is {count}")
        return _HEAD_BYTES.get(kind, XID_HEAD.size)
    at = position + _size_at(kind)
    if end - at < SIZE.size:
        return None
    (size,) = SIZE.unpack_from(buffer, at)
    if size < LEAST_SIZE[kind]:
        raise Malformed(position, f"the size is {size}, but that of {OP_NAMES[kind]} is at least {LEAST_SIZE[kind]}")
    whole: int = at - position + SIZE.size + size
    return whole


def decode(
    buffer: Buffer, position: int = 0, end: int | None = None, dialect: int = DOCUMENTED
) -> tuple[Operation, Span] | NeedMore:
    """The operation at a position, or `NEED_MORE`; raises `Malformed`. Bytes from `end` on are not used."""
    end = len(buffer) if end is None else end
    if dialect == UNDECIDED:
        raise WrongUse("an operation cannot be decoded without a dialect")
    size = claimed_size(buffer, position, end, dialect)
    if size is None or end - position < size:
        return NEED_MORE
    return _operation(buffer, position, position + size, dialect), Span(position, position + size)


def _operation(buffer: Buffer, start: int, end: int, dialect: int) -> Operation:
    """The operation that fills a range."""
    kind = kind_of(buffer[start], dialect)
    op = OP_NAMES[kind]
    if kind == ADD:
        _, _, seconds = ADD_HEAD.unpack_from(buffer, start)
        return Operation(op, expires=seconds * 1000 or None, data=bytes(buffer[start + ADD_HEAD.size : end]))
    if kind == ADDX:
        _, _, added, expires = ADDX_HEAD.unpack_from(buffer, start)
        data = bytes(buffer[start + ADDX_HEAD.size : end])
        return Operation(op, added=added, expires=expires or None, data=data)
    if kind in (ADD_XID, CONTINUE):
        _, xid, _, added, expires = ADD_XID_HEAD.unpack_from(buffer, start)
        data = bytes(buffer[start + ADD_XID_HEAD.size : end])
        return Operation(op, xid, added=added, expires=expires or None, data=data)
    if kind == STATE_DUMP:
        _, xid, count = STATE_DUMP_HEAD.unpack_from(buffer, start)
        return Operation(op, xid, count)
    return Operation(op, XID.unpack_from(buffer, start + 1)[0]) if kind in _WITH_XID else Operation(op)


def without_data(buffer: Buffer, position: int, dialect: int) -> Operation:
    """The operation that begins at a position, without its data. The buffer must have its head."""
    kind = kind_of(buffer[position], dialect)
    head = bytes(buffer[position : position + _HEAD_BYTES.get(kind, XID_HEAD.size)])
    return _operation(head, 0, len(head), dialect)


def explain(buffer: Buffer, position: int, end: int, dialect: int, most: int | None = None) -> str:
    """Why a walk ended here, in words; `most` is how many bytes of the operation are in the file."""
    if dialect == UNDECIDED and position < end and buffer[position] in (CONTINUE_BYTE, REMOVE_TENTATIVE_XID):
        return f"the meaning of operation {buffer[position]} depends on the dialect, which is unknown"
    try:
        size = claimed_size(buffer, position, end, dialect)
    except Malformed as malformed:
        return malformed.reason
    have = end - position if most is None else most
    if size is None:
        return f"only {have} byte{'' if have == 1 else 's'} of {OP_NAMES[kind_of(buffer[position], dialect)]} are there"
    return f"only {have} of the operation's {size} bytes are there" if have < size else "the operation is whole"


# --- many operations ----------------------------------------------------------------------------------------------


def walk(buffer: Buffer, start: int, end: int, dialect: int, most: int = -1) -> tuple[int, int, int, int]:
    """Go from operation to operation, at most `most` of them (-1: any number).

    Returns where it stopped, how many operations it passed, how it ended (`CLEAN` …), and the latest `added` of them
    (`NO_TIME` if there was none).
    """
    check_range(buffer, start, end)
    _check_dialect(dialect)
    position, count, latest = start, 0, NO_TIME
    while position < end and count != most:
        if dialect == UNDECIDED and buffer[position] in (CONTINUE_BYTE, REMOVE_TENTATIVE_XID):
            return position, count, DIALECT_NEEDED, latest
        try:
            size = claimed_size(buffer, position, end, dialect)
        except Malformed:
            return position, count, MALFORMED, latest
        if size is None or end - position < size:
            return position, count, INCOMPLETE, latest
        latest = max(latest, added_at(buffer, position, dialect))
        position += size
        count += 1
    return position, count, CLEAN, latest


def added_at(buffer: Buffer, position: int, dialect: int) -> int:
    """When the item of a complete operation was added; `NO_TIME` if the operation does not say."""
    kind = kind_of(buffer[position], dialect)
    if kind == ADDX:
        return int(ADDX_HEAD.unpack_from(buffer, position)[2])
    return int(ADD_XID_HEAD.unpack_from(buffer, position)[3]) if kind in (ADD_XID, CONTINUE) else NO_TIME


def _check_dialect(dialect: int) -> None:
    if not DOCUMENTED <= dialect <= UNDECIDED:
        raise WrongUse(f"there is no dialect {dialect}")


def spans(buffer: Buffer, start: int, stop: int, count: int, dialect: int) -> array[int]:
    """Where each of the `count` operations of a walked range begins, and where the last one ends."""
    check_range(buffer, start, stop)
    _check_dialect(dialect)
    check_count(start, stop, count, 1)
    return starts_of(start, stop, count, lambda position: _walked_size(buffer, position, stop, dialect))


def _walked_size(buffer: Buffer, position: int, stop: int, dialect: int) -> int | None:
    """The size of the operation at a position; None if a walk in this dialect would stop there."""
    try:
        size = claimed_size(buffer, position, stop, dialect)
    except Malformed:
        return None
    if size is None or position + size > stop:
        return None
    return None if dialect == UNDECIDED and buffer[position] in (CONTINUE_BYTE, REMOVE_TENTATIVE_XID) else size


def operations(buffer: Buffer, start: int, stop: int, count: int, dialect: int) -> list[Operation]:
    """The `count` operations of a range that `walk` has passed. They are not validated again."""
    starts = spans(buffer, start, stop, count, dialect)
    return [_operation(buffer, starts[row], starts[row + 1], dialect) for row in range(count)]


def effects(
    buffer: Buffer, start: int, stop: int, count: int, dialect: int, base: int = 0
) -> tuple[bytes, array[int], array[int]]:
    """What a replay needs of the `count` operations of a walked range: kinds, ids, positions.

    A STATE_DUMP has its count in place of the id, and an operation without an id has 0. `base` is where the buffer
    begins in its file.
    """
    starts = spans(buffer, start, stop, count, dialect)
    found = [turn_at(buffer, position, dialect) for position in starts[:-1]]
    kinds, numbers = bytes(kind for kind, _ in found), array("i", (number for _, number in found))
    return kinds, numbers, array("q", (base + position for position in starts[:-1]))


def turn_at(buffer: Buffer, position: int, dialect: int) -> tuple[int, int]:
    """The kind and the id of one walked operation, as in `effects`. The buffer must have its head."""
    kind = kind_of(buffer[position], dialect)
    at = position + 5 if kind == STATE_DUMP else position + 1
    return kind, XID.unpack_from(buffer, at)[0] if kind in _WITH_XID else 0


def copy_adds(
    buffer: Buffer, base: int, kinds: Sequence[int], positions: Sequence[int], end: int, row: int
) -> tuple[bytes, int]:
    """The bytes of the operations from a row on that add items, and their number.

    `base` is where the buffer begins in its file. A CONTINUE becomes an ADDX: its second half.
    """
    found = bytearray()
    count = 0
    for at in range(row, len(kinds)):
        kind = kinds[at]
        if kind in DATA_HEAD_BYTES:
            start = positions[at] - base
            stop = (positions[at + 1] if at + 1 < len(positions) else end) - base
            if not 0 <= start <= stop <= len(buffer) or stop - start < DATA_HEAD_BYTES[kind]:
                raise ValueError("these operations are not within the buffer")
            if kind == CONTINUE:
                found.append(ADDX)
                start += 5
            found += buffer[start:stop]
            count += 1
    return bytes(found), count


def find_add(buffer: Buffer, start: int, end: int, room: int, dialect: int, anytime: bool = False) -> int:
    """The first position from `start` on where an ADDX, ADD_XID or CONTINUE could begin; -1 if there is none.

    An operation could begin at a position if its head ends before `end`, it ends within `room` bytes from the beginning
    of the buffer (which may be after `end`), its item was added between 2000 and 2100, and it expires then or never.
    With `anytime` the item may also have been added between 1970 and 2000.
    """
    check_range(buffer, start, end)
    _check_dialect(dialect)
    for position in range(start, end - ADDX_HEAD.size + 1):
        opcode = buffer[position]
        if opcode == ADDX:
            _, size, added, expires = ADDX_HEAD.unpack_from(buffer, position)
            whole = ADDX_HEAD.size - 16 + size
        elif opcode == ADD_XID or (opcode == CONTINUE_BYTE and dialect != DOCUMENTED):
            if end - position < ADD_XID_HEAD.size:
                continue
            _, _, size, added, expires = ADD_XID_HEAD.unpack_from(buffer, position)
            whole = ADD_XID_HEAD.size - 16 + size
        else:
            continue
        if size >= 16 and position + whole <= room and is_plausible(added, expires, anytime):
            return position
    return -1


def is_plausible(added: int, expires: int, anytime: bool = False) -> bool:
    """Whether these could be the times of an item."""
    first = 0 if anytime else FIRST_PLAUSIBLE_MS
    return first <= added < LAST_PLAUSIBLE_MS and (expires == 0 or first < expires < LAST_PLAUSIBLE_MS)


# --- columns --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Columns:
    """Operations as columns of plain buffers in the machine's byte order; a column that was not requested is None.

    `kinds` u8; `xids`, `counts` i32; `added`, `expires` i64 in milliseconds; `positions` u64; `sizes` i64. Fields that
    an operation does not have are 0. The data of the n-th operation is between `data_ends[n]` and `data_ends[n + 1]`
    (i32) in `data`. A buffer may be longer than its `count` rows.
    """

    count: int
    kinds: Buffer | None = None
    xids: Buffer | None = None
    counts: Buffer | None = None
    added: Buffer | None = None
    expires: Buffer | None = None
    data_ends: Buffer | None = None
    data: Buffer | None = None
    positions: Buffer | None = None
    sizes: Buffer | None = None


_LAYOUT: Final = (
    Numbers(KINDS, "kinds", "B"),
    Numbers(XIDS, "xids", "i"),
    Numbers(COUNTS, "counts", "i"),
    Numbers(ADDED, "added", "q"),
    Numbers(EXPIRES, "expires", "q"),
    Bytes(DATA, "data", "data_ends"),
    Numbers(POSITIONS, "positions", "Q"),
    Numbers(SIZES, "sizes", "q"),
)


class BatchBuilder(ColumnBuilder[Columns]):
    """Collects the operations of many walked ranges as the columns of one batch.

    It holds a fixed number of rows and bytes of data; `add` adds what fits, `take` returns the columns. `allocate`
    makes the writable buffers of the columns.
    """

    def __init__(self, want: int, rows: int, data_bytes: int, allocate: Callable[[int], Any] = bytearray) -> None:
        super().__init__(Columns(0), _LAYOUT, want, rows, {"data": data_bytes}, allocate)

    def add(self, buffer: Buffer, start: int, stop: int, count: int, dialect: int, base: int = 0) -> tuple[int, int]:
        """Add the operations of a walked range, as many as fit; returns where the rest begins, and how many were added.

        `base` is where the buffer begins in its file.
        """
        self._ours()
        check_range(buffer, start, stop)
        _check_dialect(dialect)
        check_count(start, stop, count, 1)
        position, added = start, 0
        while added < count and self.count < self._rows:
            size = _walked_size(buffer, position, stop, dialect)
            if size is None:
                raise not_walked(position)
            operation = _operation(buffer, position, position + size, dialect)
            numbers = {
                "kinds": operation.number,
                "xids": operation.xid or 0,
                "counts": operation.count or 0,
                "added": operation.added or 0,
                "expires": operation.expires or 0,
                "positions": base + position,
                "sizes": size,
            }
            if not self._put(numbers, {"data": operation.data or b""}):
                break
            position += size
            added += 1
        return position, added


def columns(
    buffer: Buffer, start: int, stop: int, count: int, dialect: int, want: int = ALL_COLUMNS, base: int = 0
) -> Columns:
    """The `count` operations of a walked range as columns; `base` is where the buffer begins in its file."""
    starts = spans(buffer, start, stop, count, dialect)
    data_bytes = sum(_data_bytes(buffer, starts[row], starts[row + 1], dialect) for row in range(count))
    builder = BatchBuilder(want, count, data_bytes)
    builder.add(buffer, start, stop, count, dialect, base)
    return builder.take()


def _data_bytes(buffer: Buffer, start: int, end: int, dialect: int) -> int:
    kind = kind_of(buffer[start], dialect)
    return end - start - DATA_HEAD_BYTES[kind] if kind in DATA_HEAD_BYTES else 0


# --- building what will be written ----------------------------------------------------------------------------------


class AppendBuffer(WriteBuffer):
    """Encoded operations that are to be written to a file.

    Each method adds one operation; `take` returns what is buffered. `position` is where the next operation will be in
    the file. `on_other_dialect` is called for an operation of kestrel2 while the buffer is not in that dialect: it
    changes the dialect, or raises.
    """

    def __init__(self, position: int, attention_bytes: int, dialect: int = DOCUMENTED) -> None:
        super().__init__(attention_bytes)
        self.position = position
        self.dialect = dialect
        self.on_other_dialect: Callable[[int], object] = refuse_kestrel2

    def addx(self, data: Buffer, expires: int | None = None, added: int | None = None) -> int:
        """Add an item at the tail, by default now; returns the position of the operation. Times are milliseconds."""
        return self._append_item(ADDX, 0, data, expires, added)

    def add_xid(self, xid: int, data: Buffer, expires: int | None = None, added: int | None = None) -> int:
        """Add an item that will be reserved under this id."""
        return self._append_item(ADD_XID, xid, data, expires, added)

    def continue_(self, xid: int, data: Buffer, expires: int | None = None, added: int | None = None) -> int:
        """Finish a reserved item and add another one (kestrel2)."""
        return self._append_item(CONTINUE, xid, data, expires, added)

    def remove(self) -> int:
        """Remove the head."""
        return self._append(bytes([REMOVE]))

    def remove_tentative(self) -> int:
        """Reserve the head under the next id."""
        return self._append(bytes([REMOVE_TENTATIVE]))

    def save_xid(self, xid: int) -> int:
        """Set the last used id."""
        return self._append_xid(SAVE_XID, xid)

    def unremove(self, xid: int) -> int:
        """Put a reserved item back at the head."""
        return self._append_xid(UNREMOVE, xid)

    def confirm_remove(self, xid: int) -> int:
        """Finish a reserved item."""
        return self._append_xid(CONFIRM_REMOVE, xid)

    def remove_tentative_xid(self, xid: int) -> int:
        """Reserve the head under this id (kestrel2)."""
        return self._append_xid(REMOVE_TENTATIVE_XID, xid)

    def append_encoded(self, data: Buffer, count: int) -> int:
        """Add the bytes of `count` complete operations of this buffer's dialect; returns the position of the first."""
        view = memoryview(data).cast("B")
        stop, passed, ending, _ = walk(view, 0, len(view), self.dialect)
        if ending != CLEAN or passed != count:
            raise WrongUse(f"these bytes are not {count} operations: {passed} of them end at {stop}")
        return self._append(bytes(view))

    def _append_item(self, kind: int, xid: int, data: Buffer, expires: int | None, added: int | None) -> int:
        if self.refusing:
            self.refuse()
        xid = index(xid)
        added = time.time_ns() // 1_000_000 if added is None else index(added)
        expires = None if expires is None else index(expires)
        data = as_bytes(data)
        check_xid(xid)
        check_item(len(data), added, expires)
        self._check_kind(kind)
        if kind == ADDX:
            head = ADDX_HEAD.pack(kind, 16 + len(data), added, expires or 0)
        else:
            head = ADD_XID_HEAD.pack(byte_of(kind), xid, 16 + len(data), added, expires or 0)
        return self._append(head + data)

    def _append_xid(self, kind: int, xid: int) -> int:
        if self.refusing:
            self.refuse()
        xid = index(xid)
        check_xid(xid)
        self._check_kind(kind)
        return self._append(XID_HEAD.pack(kind, xid))

    def _check_kind(self, kind: int) -> None:
        if kind in (CONTINUE, REMOVE_TENTATIVE_XID) and self.dialect != KESTREL2:
            self.on_other_dialect(kind)

    def _append(self, data: bytes) -> int:
        if self.refusing:
            self.refuse()
        with self._adding:
            position = self.position
            self._buffer += data
            self.position = position + len(data)
        if len(self._buffer) >= self.attention_bytes:
            self.attend()
        return position


# --- columns to bytes -----------------------------------------------------------------------------------------------


def pack(columns: Columns, row: int, enough_bytes: int, dialect: int, now: int) -> tuple[bytes, int, int]:
    """Encode rows of columns from `row` on, until there are `enough_bytes`; returns bytes, their count, the next row.

    All columns except `kinds` may be missing: then ids and counts are 0, nothing expires, data is empty, and items were
    added `now`. Raises `WrongUse` for a row that is not an operation of the dialect.
    """
    rows = _Rows(columns, now)
    found = bytearray()
    count = 0
    while row < columns.count and len(found) < enough_bytes:
        found += encode(rows.get(row, dialect))
        row += 1
        count += 1
    return bytes(found), count, row


class _Rows:
    """The rows of columns, with the defaults of `pack`."""

    def __init__(self, columns: Columns, now: int) -> None:
        count = columns.count
        if columns.kinds is None:
            raise WrongUse("the column of kinds is missing")
        self._now = now
        self._kinds = column_items("B", columns.kinds, count, "kinds")
        self._xids = column_items("i", columns.xids, count, "xids")
        self._counts = column_items("i", columns.counts, count, "counts")
        self._added = column_items("q", columns.added, count, "added")
        self._expires = column_items("q", columns.expires, count, "expires")
        self._ends = column_items("i", columns.data_ends, count + 1, "data_ends")
        self._data = column_bytes(columns.data)

    def get(self, row: int, dialect: int) -> Operation:
        assert self._kinds is not None
        kind = self._kinds[row]
        known = kind <= CONTINUE and kind_of(byte_of(kind), dialect) == kind
        if not known or dialect == UNDECIDED:
            raise WrongUse(f"row {row} is not an operation of this dialect")
        op = OP_NAMES[kind]
        fields = FIELDS[op]
        values: dict[str, Any] = {}
        if "xid" in fields:
            values["xid"] = self._xids[row] if self._xids is not None else 0
        if "count" in fields:
            values["count"] = self._counts[row] if self._counts is not None else 0
        if "added" in fields:
            values["added"] = self._added[row] if self._added is not None else self._now
        if "expires" in fields:
            values["expires"] = (self._expires[row] if self._expires is not None else 0) or None
        if "data" in fields:
            values["data"] = column_part(self._data, self._ends, row)
        try:
            operation = Operation(op, **values)
            operation.validate()
        except WrongUse as error:
            raise type(error)(f"row {row}: {error}") from None
        return operation


assert max(_HEAD_BYTES.values()) == LONGEST_HEAD_BYTES
