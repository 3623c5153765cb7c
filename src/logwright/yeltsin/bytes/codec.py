"""Bytes <-> transactions, in plain Python: the reference for the kernel, used if the kernel is not built.

A transaction is valid if and only if its operations have the types 1, 2 and 3, each with data of the size of its type
(24; 12 and twice the size of an image, which is in the data itself; 16), up to and including one of the type FE or FF,
whose data may have any size, and all of its bytes exist. A transaction without such an end is still valid, but
incomplete, if its operations end exactly where `next` says that the next transaction begins; none may go beyond that.
Any flag, any time and any page is valid.

A link is checked when it is followed: `next` must be a position after the end of its transaction, and the transaction
there must have this one as its `previous`. So a walk along links only goes forwards, and ends.

Strategy: read from head to head, operation by operation, and skip the images. If the bytes end before the end of an
operation, more bytes are needed; only the caller knows whether there are more.

Links are offsets in the file, and buffers are windows into it: `base` is where a buffer begins in its file. Nothing
here opens a file. Every length is checked against the bytes in the buffer before it is used.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ...core.bytes.buffers import Buffer, check_count, check_range, not_walked
from ...core.bytes.column_builder import Bytes, ColumnBuilder, Numbers
from ...core.bytes.outcome import NEED_MORE, Malformed, NeedMore, Span
from .layout import (
    ALLOCATION,
    ALLOCATION_DATA,
    COMPLETION,
    HEADER,
    HEADER_BYTES,
    LEAST_TRANSACTION_BYTES,
    MODIFICATION,
    MODIFICATION_HEAD,
    OPERATION_HEAD,
    OPERATION_HEAD_BYTES,
    REMOVAL,
    REMOVAL_DATA,
    ROLLBACK,
    SIGNATURE,
    TRANSACTION_HEAD,
    TRANSACTION_HEAD_BYTES,
)
from .records import Allocate, Modify, Operation, Remove, Transaction

CLEAN, INCOMPLETE, MALFORMED, ASTRAY, JUMP = range(5)
"""How a walk ends: at the end of its bytes, inside a transaction, at bytes that are not a transaction, at one with
another `previous` than expected, or after one that is the last or whose `next` is not where it ends.
"""
ENDS: Final = (ROLLBACK, COMPLETION)


# --- the header of the file -------------------------------------------------------------------------------------------


def encode_header(first: int, last: int) -> bytes:
    """The first bytes of a journal: the offsets of its first and of its last transaction, 0 for none."""
    return HEADER.pack(SIGNATURE, first, last)


def decode_header(buffer: Buffer) -> tuple[int, int] | NeedMore:
    """The offsets of the first and of the last transaction. They are not checked here."""
    start = bytes(buffer[: len(SIGNATURE)])
    if start != SIGNATURE[: len(start)]:
        raise Malformed(0, f"a journal begins with {SIGNATURE!r}, and not with {start!r}")
    if len(buffer) < HEADER_BYTES:
        return NEED_MORE
    _, first, last = HEADER.unpack_from(buffer)
    return first, last


# --- one transaction --------------------------------------------------------------------------------------------------


def encode(transaction: Transaction) -> bytes:
    """The bytes of a transaction."""
    transaction.validate()
    head = TRANSACTION_HEAD.pack(transaction.previous, transaction.next, transaction.timestamp, transaction.flags)
    end = b"" if transaction.end is None else encode_end(transaction.end, transaction.end_data)
    return head + b"".join(map(encode_operation, transaction.operations)) + end


def encode_operation(operation: Operation) -> bytes:
    """The bytes of an operation, which has been validated."""
    if isinstance(operation, Modify):
        size = len(operation.after)
        head = OPERATION_HEAD.pack(MODIFICATION, MODIFICATION_HEAD.size + 2 * size)
        images = operation.before + operation.after
        return head + MODIFICATION_HEAD.pack(operation.page, operation.page_offset, size) + images
    if isinstance(operation, Allocate):
        head = OPERATION_HEAD.pack(ALLOCATION, ALLOCATION_DATA.size)
        return head + ALLOCATION_DATA.pack(operation.page, operation.free_before, operation.free_after)
    return OPERATION_HEAD.pack(REMOVAL, REMOVAL_DATA.size) + REMOVAL_DATA.pack(operation.page, operation.free_before)


def encode_end(end: int, data: bytes = b"") -> bytes:
    """The bytes of the operation that ends a transaction."""
    return OPERATION_HEAD.pack(end, len(data)) + data


def operation_size(buffer: Buffer, position: int, end: int) -> int | None:
    """The size of the operation at a position by its head; None if the head is incomplete. `Malformed` if it is
    invalid.
    """
    if end <= position:
        return None
    kind = buffer[position]
    if kind not in (ALLOCATION, MODIFICATION, REMOVAL, ROLLBACK, COMPLETION):
        raise Malformed(position, f"there is no operation {kind:#04x}")
    if end - position < OPERATION_HEAD_BYTES:
        return None
    size: int = OPERATION_HEAD.unpack_from(buffer, position)[1]
    if kind in ENDS:
        return OPERATION_HEAD_BYTES + size
    if kind == MODIFICATION:
        if size < MODIFICATION_HEAD.size:
            raise Malformed(position, f"a modification has at least {MODIFICATION_HEAD.size} bytes, and not {size}")
        if end - position < OPERATION_HEAD_BYTES + MODIFICATION_HEAD.size:
            return None
        images = MODIFICATION_HEAD.unpack_from(buffer, position + OPERATION_HEAD_BYTES)[2]
        if size != MODIFICATION_HEAD.size + 2 * images:
            raise Malformed(position, f"a modification of {images} bytes has not {size} bytes of data")
        return OPERATION_HEAD_BYTES + size
    needed = ALLOCATION_DATA.size if kind == ALLOCATION else REMOVAL_DATA.size
    if size != needed:
        name = "an allocation" if kind == ALLOCATION else "a removal"
        raise Malformed(position, f"{name} has {needed} bytes of data, and not {size}")
    return OPERATION_HEAD_BYTES + needed


def transaction_size(buffer: Buffer, position: int, end: int, base: int = 0, *, follow_next: bool = True) -> int | None:
    """The size of the transaction at a position; None if it is incomplete; `Malformed` if it is not a transaction.

    Without `follow_next` its operations may go beyond the position in `next`.
    """
    if end - position < TRANSACTION_HEAD_BYTES:
        return None
    following = TRANSACTION_HEAD.unpack_from(buffer, position)[1] - base
    at = position + TRANSACTION_HEAD_BYTES
    bounded = follow_next and following >= at
    while True:
        if bounded and at == following:
            return at - position
        size = operation_size(buffer, at, end)
        if size is None:
            return None
        if bounded and at + size > following:
            raise Malformed(at, f"the operation continues beyond {base + following}, where the next transaction begins")
        if end - at < size:
            return None
        at += size
        if buffer[at - size] in ENDS:
            return at - position


def decode(
    buffer: Buffer, position: int = 0, end: int | None = None, base: int = 0
) -> tuple[Transaction, Span] | NeedMore:
    """The transaction at a position, `NEED_MORE`, or `Malformed`. Bytes from `end` on are ignored."""
    end = len(buffer) if end is None else end
    size = transaction_size(buffer, position, end, base)
    if size is None:
        return NEED_MORE
    return _transaction(buffer, position, position + size), Span(position, position + size)


def _transaction(buffer: Buffer, start: int, stop: int) -> Transaction:
    """The transaction that fills a range."""
    previous, following, timestamp, flags = TRANSACTION_HEAD.unpack_from(buffer, start)
    operations: list[Operation] = []
    at = start + TRANSACTION_HEAD_BYTES
    while at < stop:
        kind, size = OPERATION_HEAD.unpack_from(buffer, at)
        at += OPERATION_HEAD_BYTES
        if kind in ENDS:
            data = bytes(buffer[at : at + size])
            return Transaction(previous, following, timestamp, flags, tuple(operations), kind, data)
        operations.append(_operation(buffer, kind, at, at + size))
        at += size
    return Transaction(previous, following, timestamp, flags, tuple(operations), None)


def _operation(buffer: Buffer, kind: int, start: int, stop: int) -> Operation:
    """The operation whose data fills a range."""
    if kind == MODIFICATION:
        page, page_offset, size = MODIFICATION_HEAD.unpack_from(buffer, start)
        middle = start + MODIFICATION_HEAD.size + size
        return Modify(page, page_offset, bytes(buffer[middle - size : middle]), bytes(buffer[middle:stop]))
    if kind == ALLOCATION:
        return Allocate(*ALLOCATION_DATA.unpack_from(buffer, start))
    return Remove(*REMOVAL_DATA.unpack_from(buffer, start))


def explain(buffer: Buffer, position: int, end: int, base: int = 0, most: int | None = None) -> str:
    """Why there is no transaction at a position, in words; `most` is how many bytes from there on are in the file."""
    try:
        size = transaction_size(buffer, position, end, base)
    except Malformed as malformed:
        at = base + malformed.position
        return f"{malformed.reason} (at {at})" if malformed.position > position else malformed.reason
    have = end - position if most is None else most
    if size is not None:
        return "the transaction is whole"
    return f"the transaction has no end within the {have} bytes that are there"


# --- many transactions ------------------------------------------------------------------------------------------------


def walk(
    buffer: Buffer, start: int, end: int, base: int, previous: int, last: int, most: int = -1
) -> tuple[int, int, int, int]:
    """Walk over consecutive transactions, at most `most` of them (-1: any number).

    `previous` is the offset of the one before the first, 0 for none, and `last` the one to stop after, which must have
    an ending operation: its `next` does not end it. Returns where it stopped, how many it passed, how it ended (`CLEAN`
    …), and the offset of the last one passed, which is `previous` if there was none.
    """
    check_range(buffer, start, end)
    position, count = start, 0
    while position < end and count != most:
        if end - position < TRANSACTION_HEAD_BYTES:
            return position, count, INCOMPLETE, previous
        said, following, _, _ = TRANSACTION_HEAD.unpack_from(buffer, position)
        if said != previous:
            return position, count, ASTRAY, previous
        try:
            size = transaction_size(buffer, position, end, base)
            is_last = size is not None and base + position == last
            if is_last and size != transaction_size(buffer, position, end, base, follow_next=False):
                return position, count, MALFORMED, previous
        except Malformed:
            return position, count, MALFORMED, previous
        if size is None:
            return position, count, INCOMPLETE, previous
        previous = base + position
        position += size
        count += 1
        if previous == last or following != base + position:
            return position, count, JUMP, previous
    return position, count, CLEAN, previous


def hop(
    buffer: Buffer, start: int, end: int, base: int, previous: int, last: int, most: int = -1
) -> tuple[int, int, int, int]:
    """Follow `next` from head to head while the heads are in the buffer, at most `most` of them (-1: any number).

    Operations are not read. `last` is the offset of the transaction to stop after; no `next` may go beyond it. Returns
    the offset where it stopped, how many heads it passed, how it ended, and the offset of the last one passed. It ends
    `CLEAN` where the next head is not in the buffer. It ends with `JUMP` after the last transaction and after an
    impossible `next`, and the offset is then that of `next`.
    """
    check_range(buffer, start, end)
    at, count = base + start, 0
    while base + start <= at <= base + end - TRANSACTION_HEAD_BYTES and count != most:
        said, following, _, _ = TRANSACTION_HEAD.unpack_from(buffer, at - base)
        if said != previous:
            return at, count, ASTRAY, previous
        previous = at
        count += 1
        if at == last or not at + TRANSACTION_HEAD_BYTES <= following <= last:
            return following, count, JUMP, previous
        at = following
    return at, count, CLEAN, previous


def skim(buffer: Buffer, start: int, end: int, following: int) -> tuple[int, int, int, int]:
    """Walk over the operations of one transaction while their heads are in the buffer.

    `following` is the position in the buffer, or beyond its end, where the next transaction begins; negative if
    unknown. Returns where it stopped, which may also be beyond the buffer, and how: `CLEAN` after the end of the
    transaction, `INCOMPLETE` at an operation whose head is not in the buffer, `MALFORMED` at bytes that are not an
    operation. Then the type of the operation that ends the transaction, 0 for none, and its position, or where the walk
    stopped.
    """
    check_range(buffer, start, end)
    at = start
    while at != following:
        try:
            size = operation_size(buffer, at, end)
        except Malformed:
            return at, MALFORMED, 0, at
        if size is None:
            return at, INCOMPLETE, 0, at
        if 0 <= following < at + size:
            return at, MALFORMED, 0, at
        if buffer[at] in ENDS:
            return at + size, CLEAN, buffer[at], at
        at += size
    return at, CLEAN, 0, at


def spans(buffer: Buffer, start: int, stop: int, count: int, base: int) -> array[int]:
    """Where each of the `count` transactions of a walked range begins, and where the last one ends."""
    check_range(buffer, start, stop)
    check_count(start, stop, count, TRANSACTION_HEAD_BYTES)
    starts = array("q", [start])
    for _ in range(count):
        position = starts[-1]
        try:
            size = transaction_size(buffer, position, stop, base)
        except Malformed:
            size = None
        if size is None:
            raise not_walked(position)
        starts.append(position + size)
    return starts


def transactions(buffer: Buffer, start: int, stop: int, count: int, base: int) -> list[Transaction]:
    """The `count` transactions of a range that `walk` has checked. They are not checked again."""
    starts = spans(buffer, start, stop, count, base)
    return [_transaction(buffer, starts[row], starts[row + 1]) for row in range(count)]


# --- columns ----------------------------------------------------------------------------------------------------------

(
    TRANSACTIONS,
    OFFSETS,
    TIMESTAMPS,
    FLAGS,
    ENDINGS,
    OPERATIONS,
    KINDS,
    PAGES,
    PAGE_OFFSETS,
    BEFORE,
    AFTER,
    FREE_BEFORE,
    FREE_AFTER,
    POSITIONS,
    SIZES,
    END_DATA,
) = (1 << bit for bit in range(16))
"""Which columns to decode, added up."""
ALL_COLUMNS: Final = (1 << 16) - 1


@dataclass(slots=True)
class Columns:
    """Operations as columns of plain buffers in the machine's byte order; a column that was not asked for is None.

    A transaction without operations has a row as well, of the kind 0, whose position and size are those of its end. Of
    its transaction a row has `transactions`, its number in the journal (i64), `offsets`, where it begins (u64),
    `timestamps` (i64), `flags` and `endings`, the operation that ends it, 0 for none (u8). `operations` counts within
    the transaction (i32), `kinds` says which (u8), `pages`, `free_before` and `free_after` are u64, `page_offsets` i32;
    `positions` (u64) and `sizes` (i64) are those of the operation in the file. Fields that an operation does not have
    are 0 or empty. The n-th image is between `before_ends[n]` and `before_ends[n + 1]` (i32), and likewise for `after`
    and for `end_data`: the data of the ending operation, which is in the last row of its transaction.
    """

    count: int
    transactions: Buffer | None = None
    offsets: Buffer | None = None
    timestamps: Buffer | None = None
    flags: Buffer | None = None
    endings: Buffer | None = None
    operations: Buffer | None = None
    kinds: Buffer | None = None
    pages: Buffer | None = None
    page_offsets: Buffer | None = None
    before_ends: Buffer | None = None
    before: Buffer | None = None
    after_ends: Buffer | None = None
    after: Buffer | None = None
    free_before: Buffer | None = None
    free_after: Buffer | None = None
    positions: Buffer | None = None
    sizes: Buffer | None = None
    end_data_ends: Buffer | None = None
    end_data: Buffer | None = None


_LAYOUT: Final = (
    Numbers(TRANSACTIONS, "transactions", "q"),
    Numbers(OFFSETS, "offsets", "Q"),
    Numbers(TIMESTAMPS, "timestamps", "q"),
    Numbers(FLAGS, "flags", "B"),
    Numbers(ENDINGS, "endings", "B"),
    Numbers(OPERATIONS, "operations", "i"),
    Numbers(KINDS, "kinds", "B"),
    Numbers(PAGES, "pages", "Q"),
    Numbers(PAGE_OFFSETS, "page_offsets", "i"),
    Bytes(BEFORE, "before", "before_ends"),
    Bytes(AFTER, "after", "after_ends"),
    Numbers(FREE_BEFORE, "free_before", "Q"),
    Numbers(FREE_AFTER, "free_after", "Q"),
    Numbers(POSITIONS, "positions", "Q"),
    Numbers(SIZES, "sizes", "q"),
    Bytes(END_DATA, "end_data", "end_data_ends"),
)


class _BatchBuilder(ColumnBuilder[Columns]):
    """Collects the operations of transactions as rows."""

    def __init__(self, want: int, rows: int, image_bytes: int, end_bytes: int) -> None:
        room = {"before": image_bytes, "after": image_bytes, "end_data": end_bytes}
        super().__init__(Columns(0), _LAYOUT, want, rows, room, bytearray)

    def add(self, record: Transaction, number: int, offset: int, places: list[tuple[int, int]]) -> None:
        """Add the operations of one transaction; `places` are the positions and sizes of them and of its end in the
        file.
        """
        operations = record.operations or (None,)
        for row, operation in enumerate(operations):
            numbers = {
                "transactions": number,
                "offsets": offset,
                "timestamps": record.timestamp,
                "flags": record.flags,
                "endings": record.end or 0,
                "operations": row,
                "kinds": 0 if operation is None else operation.number,
                "pages": 0 if operation is None else operation.page,
                "page_offsets": operation.page_offset if isinstance(operation, Modify) else 0,
                "free_before": operation.free_before if isinstance(operation, Allocate | Remove) else 0,
                "free_after": operation.free_after if isinstance(operation, Allocate) else 0,
                "positions": places[row][0],
                "sizes": places[row][1],
            }
            before, after = (operation.before, operation.after) if isinstance(operation, Modify) else (b"", b"")
            end_data = record.end_data if row == len(operations) - 1 else b""
            self._put(numbers, {"before": before, "after": after, "end_data": end_data})


def columns(
    buffer: Buffer, start: int, stop: int, count: int, base: int, number: int = 0, want: int = ALL_COLUMNS
) -> Columns:
    """The operations of the `count` transactions of a walked range as columns; `number` is that of the first one."""
    starts = spans(buffer, start, stop, count, base)
    found = [_transaction(buffer, starts[row], starts[row + 1]) for row in range(count)]
    image_bytes = sum(len(item.after) for record in found for item in record.operations if isinstance(item, Modify))
    end_bytes = sum(len(record.end_data) for record in found) if want & END_DATA else 0
    builder = _BatchBuilder(want, sum(len(record.operations) or 1 for record in found), image_bytes, end_bytes)
    for row, record in enumerate(found):
        places = list(_places(buffer, starts[row], starts[row + 1], base))
        builder.add(record, number + row, base + starts[row], places)
    return builder.take()


def _places(buffer: Buffer, start: int, stop: int, base: int) -> Iterator[tuple[int, int]]:
    """The position and size in the file of each operation of a transaction; the last is its end, if it has one."""
    at = start + TRANSACTION_HEAD_BYTES
    while at < stop:
        size = OPERATION_HEAD_BYTES + OPERATION_HEAD.unpack_from(buffer, at)[1]
        yield base + at, size
        at += size
    yield base + at, 0


assert LEAST_TRANSACTION_BYTES > TRANSACTION_HEAD_BYTES
