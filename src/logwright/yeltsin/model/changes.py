"""Changes: a transaction that only modifies pages of a table that is mapped: the short way from bytes to bytes.

Such a transaction needs no lists and no copies of pages: each modification is written as the journal has it, with the
bytes that are in the table now, and `commit` stores all of it, first in the journal, then in the table. A process that
dies in between leaves what any commit leaves, for what is stored is with the system, in this order.

This is the reference for the kernel, and used instead where it is not built. The caller has checked that the
pages are in use and that the ranges lie within them, and that there is room in the journal.
"""

from __future__ import annotations

from types import TracebackType
from typing import TypeAlias

from ...core.io.disk import Buffer
from ..bytes.layout import (
    COMPLETE,
    COMPLETION,
    FIRST_AT,
    FLAGS_AT,
    LAST_AT,
    LINK,
    MODIFICATION,
    MODIFICATION_HEAD,
    NEXT_AT,
    OPERATION_HEAD,
    OPERATION_HEAD_BYTES,
    TRANSACTION_HEAD,
    TRANSACTION_HEAD_BYTES,
)
from ..bytes.table_layout import PAGE_HEAD_BYTES, UNFINISHED, WHOLE
from ..files.seal import SEAL_HEAD, seal

Memory: TypeAlias = bytearray
"""Bytes of a fixed number that can be changed: those of a mapping, which are used alike."""
AROUND_BYTES = TRANSACTION_HEAD_BYTES + OPERATION_HEAD_BYTES + SEAL_HEAD.size
"""What a transaction has besides its modifications."""


class Ending:
    """The end of a `with` block, `_end`, and what follows if that is interrupted, `_leave`.

    The twin in `_changes.pyx` cannot be interrupted before it has begun with that.
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

    __slots__ = ("_places", "_table", "operations")

    def __init__(self, table: Memory) -> None:
        self._table = table
        self.operations = bytearray()
        self._places: list[tuple[int, int, int]] = []
        """Where each change is in the table, how many bytes it has, and where they are in the operations."""

    @property
    def size(self) -> int:
        """How many bytes the transaction will have in the journal."""
        return AROUND_BYTES + len(self.operations)

    def modify(self, page: int, offset: int, data: Buffer) -> None:
        """Replace bytes of a page's data."""
        size = len(data)
        before = self.load(page, offset, size)
        self.operations += OPERATION_HEAD.pack(MODIFICATION, MODIFICATION_HEAD.size + 2 * size)
        self.operations += MODIFICATION_HEAD.pack(page, offset, size)
        self.operations += before
        self._places.append((page + PAGE_HEAD_BYTES + offset, size, len(self.operations)))
        self.operations += data

    def load(self, page: int, offset: int, size: int) -> bytes:
        """Bytes of a page's data, with the changes so far."""
        start = page + PAGE_HEAD_BYTES + offset
        found = bytearray(self._table[start : start + size])
        for place, count, at in self._places:
            first, last = max(place, start), min(place + count, start + size)
            if first < last:
                found[first - start : last - start] = self.operations[at + first - place : at + last - place]
        return bytes(found)

    def items(self) -> list[tuple[int, bytes]]:
        """Where in the table each change goes, and what it is, in their order."""
        return [(place, bytes(self.operations[at : at + size])) for place, size, at in self._places]

    def encode(self, previous: int, timestamp: int) -> bytes:
        """The whole transaction as the journal has it."""
        sealed = seal(previous, timestamp, self.operations)
        end = OPERATION_HEAD.pack(COMPLETION, len(sealed)) + sealed
        return b"".join((TRANSACTION_HEAD.pack(previous, 0, timestamp, 0), self.operations, end))

    def ranges(self) -> list[tuple[int, int]]:
        """Where in the table each change begins and ends, in their order."""
        return [(place, place + size) for place, size, _ in self._places]

    def apply(self, table: Memory) -> None:
        """Make the changes in the memory of a table."""
        for place, size, at in self._places:
            table[place : place + size] = self.operations[at : at + size]

    def commit(self, journal: Memory, position: int, previous: int, timestamp: int) -> None:
        """Store the transaction in the journal after the last one, and then in the table, and say so in both."""
        data = self.encode(previous, timestamp)
        journal[position : position + len(data)] = data
        link = LINK.pack(position)
        if previous:
            journal[previous + NEXT_AT : previous + NEXT_AT + LINK.size] = link
            journal[LAST_AT : LAST_AT + LINK.size] = link
        else:
            journal[FIRST_AT : FIRST_AT + 2 * LINK.size] = link + link
        table = self._table
        table[: len(UNFINISHED)] = UNFINISHED
        self.apply(table)
        table[: len(WHOLE)] = WHOLE
        journal[position + FLAGS_AT] = COMPLETE


def modify_at_once(
    table: Memory, journal: Memory, page: int, offset: int, data: bytes, position: int, previous: int, timestamp: int
) -> int:
    """Commit a transaction of one modification; where it ends in the journal."""
    changes = Changes(table)
    changes.modify(page, offset, data)
    changes.commit(journal, position, previous, timestamp)
    return position + changes.size
