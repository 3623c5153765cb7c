# cython: annotation_typing=False, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Changes: a transaction that only modifies pages of a mapped table. This is the fast path.

Such a transaction needs no lists and no copies of pages. Each modification is encoded at once as in the journal, with
the bytes that are in the table now, and `commit` stores all of it, first in the journal, then in the table. A process
that dies in between leaves the same as after any commit, because the system keeps what was stored, in this order.

This source runs interpreted, and compiled as `_changes` with the C types of `_changes.pxd`, which also has in C what
the last part of this file has in Python. The caller has checked that the pages are in use and that the ranges lie
within them, and that there is room in the journal. Compiled, every place is checked once more against the memory before
it is read or written, and so is what `operations` say, which their owner can change: what does not fit is an
`IndexError`, and nothing is stored. From that check on nothing runs Python until all is stored.
"""

from __future__ import annotations

from types import TracebackType
from typing import TypeAlias

from ...core.io.disk import Buffer
from ..bytes.layout import MODIFICATION_HEAD
from ..bytes.table_layout import PAGE_HEAD_BYTES

try:
    import cython
except ModuleNotFoundError:
    from ...core.bytes import cython_shim as cython

if not cython.compiled:
    from ..bytes.layout import (
        COMPLETE,
        COMPLETION,
        FIRST_AT,
        FLAGS_AT,
        HEADER_BYTES,
        LAST_AT,
        LINK,
        MAX_IMAGE_BYTES,
        MODIFICATION,
        NEXT_AT,
        OPERATION_HEAD,
        OPERATION_HEAD_BYTES,
        TIMESTAMP_AT,
        TRANSACTION_HEAD,
        TRANSACTION_HEAD_BYTES,
    )
    from ..bytes.table_layout import TABLE_HEAD_BYTES, UNFINISHED, WHOLE
    from ..files.seal import MARK, SEAL_HEAD, seal

    AROUND_BYTES = TRANSACTION_HEAD_BYTES + OPERATION_HEAD_BYTES + SEAL_HEAD.size
    """The size of a transaction without its modifications."""
    HEAD_BYTES = OPERATION_HEAD_BYTES + MODIFICATION_HEAD.size
    """The size of a modification before its images: first the replaced bytes, then the new ones."""

    # As in _changes.pxd.
    assert (HEADER_BYTES, FIRST_AT, LAST_AT, AROUND_BYTES, HEAD_BYTES, OPERATION_HEAD_BYTES) == (20, 4, 12, 38, 17, 5)
    assert (TRANSACTION_HEAD_BYTES, NEXT_AT, TIMESTAMP_AT, FLAGS_AT, COMPLETE) == (25, 8, 16, 24, 1)
    assert (MODIFICATION, COMPLETION, MAX_IMAGE_BYTES, MARK, SEAL_HEAD.size) == (2, 0xFF, 0xFFFF, b"LWR1", 8)
    assert (PAGE_HEAD_BYTES, TABLE_HEAD_BYTES, UNFINISHED, WHOLE) == (19, 30, b"TBL?", b"TBL!")

Memory: TypeAlias = bytearray
"""Memory of a fixed size that can be changed; a mapping is used in the same way."""


class Ending:
    """The end of a `with` block: calls `_end`, and `_leave` if that is interrupted.

    Compiled, it cannot be interrupted before it calls `_end`.
    """

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end(error)
        except BaseException:
            self._leave()
            raise

    def _end(self, error: BaseException | None) -> None:
        raise NotImplementedError

    def _leave(self) -> None:
        raise NotImplementedError


class Changes:
    """The modifications of one transaction; `operations` are their bytes."""

    def __init__(self, table: Memory) -> None:
        self._table = table
        self.operations = bytearray()

    @property
    def size(self) -> int:
        """How many bytes the transaction will have in the journal."""
        return AROUND_BYTES + len(self.operations)

    def modify(self, page: int, offset: int, data: Buffer) -> None:
        """Replace bytes of a page's data."""
        add_modification(self.operations, self._table, page, offset, data)

    def load(self, page: int, offset: int, size: int) -> bytes:
        """Bytes of a page's data, with the changes so far."""
        return load_changed(self.operations, self._table, page, offset, size)

    def ranges(self) -> list[tuple[int, int]]:
        """The start and end of each change in the table, in the order of the changes."""
        return [(place, place + size) for place, size, _ in places_in(self.operations)]

    def items(self) -> list[tuple[int, bytes]]:
        """The position of each change in the table, and its bytes, in the order of the changes."""
        return [(place, bytes(self.operations[at : at + size])) for place, size, at in places_in(self.operations)]

    def encode(self, previous: int, timestamp: int) -> bytes:
        """The whole transaction, encoded for the journal."""
        return encode_transaction(self.operations, previous, timestamp)

    def apply(self, table: Memory) -> None:
        """Make the changes in the memory of a table."""
        store_changes(self.operations, table)

    def commit(self, journal: Memory, position: int, previous: int, timestamp: int) -> None:
        """Store the transaction in the journal, then in the table, and update the marks of both."""
        store_transaction(self.operations, self._table, journal, position, previous, timestamp)


def modify_at_once(
    table: Memory, journal: Memory, page: int, offset: int, data: bytes, position: int, previous: int, timestamp: int
) -> int:
    """Commit a transaction of one modification; its end in the journal."""
    return store_at_once(table, journal, page, offset, data, position, previous, timestamp)


def places_in(operations: bytearray) -> list[tuple[int, int, int]]:
    """For each change: its position in the table, its size, and the position of its bytes in the operations."""
    found = []
    at = 0
    while at < len(operations):
        page, offset, size = MODIFICATION_HEAD.unpack_from(operations, at + OPERATION_HEAD_BYTES)
        found.append((page + PAGE_HEAD_BYTES + offset, size, at + HEAD_BYTES + size))
        at += HEAD_BYTES + 2 * size
    return found


if not cython.compiled:

    def add_modification(operations: bytearray, table: Memory, page: int, offset: int, data: Buffer) -> None:
        """Append a modification of a page to operations."""
        size = len(data)
        before = load_changed(operations, table, page, offset, size)
        head = OPERATION_HEAD.pack(MODIFICATION, MODIFICATION_HEAD.size + 2 * size)
        operations += b"".join((head, MODIFICATION_HEAD.pack(page, offset, size), before, data))

    def load_changed(operations: bytearray, table: Memory, page: int, offset: int, size: int) -> bytes:
        """Bytes of a page, with the changes that operations make."""
        start = page + PAGE_HEAD_BYTES + offset
        found = bytearray(table[start : start + size])
        for place, count, at in places_in(operations):
            first, last = max(place, start), min(place + count, start + size)
            if first < last:
                found[first - start : last - start] = operations[at + first - place : at + last - place]
        return bytes(found)

    def encode_transaction(operations: bytearray, previous: int, timestamp: int) -> bytes:
        """A transaction of these operations, encoded for the journal."""
        sealed = seal(previous, timestamp, operations)
        end = OPERATION_HEAD.pack(COMPLETION, len(sealed)) + sealed
        return b"".join((TRANSACTION_HEAD.pack(previous, 0, timestamp, 0), operations, end))

    def store_changes(operations: bytearray, table: Memory) -> None:
        """Make the changes in the memory of a table."""
        for place, size, at in places_in(operations):
            table[place : place + size] = operations[at : at + size]

    def store_transaction(
        operations: bytearray, table: Memory, journal: Memory, position: int, previous: int, timestamp: int
    ) -> None:
        """Store a transaction in the journal and then in the table."""
        data = encode_transaction(operations, previous, timestamp)
        journal[position : position + len(data)] = data
        link = LINK.pack(position)
        if previous:
            journal[previous + NEXT_AT : previous + NEXT_AT + LINK.size] = link
            journal[LAST_AT : LAST_AT + LINK.size] = link
        else:
            journal[FIRST_AT : FIRST_AT + 2 * LINK.size] = link + link
        table[: len(UNFINISHED)] = UNFINISHED
        store_changes(operations, table)
        table[: len(WHOLE)] = WHOLE
        journal[position + FLAGS_AT] = COMPLETE

    def store_at_once(
        table: Memory,
        journal: Memory,
        page: int,
        offset: int,
        data: bytes,
        position: int,
        previous: int,
        timestamp: int,
    ) -> int:
        """The same for a single modification; its end in the journal."""
        changes = Changes(table)
        changes.modify(page, offset, data)
        changes.commit(journal, position, previous, timestamp)
        return position + changes.size
