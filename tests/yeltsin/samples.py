"""Sample journals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from logwright.yeltsin.bytes import codec
from logwright.yeltsin.bytes.layout import COMPLETE, HEADER_BYTES
from logwright.yeltsin.bytes.records import Allocate, Modify, Operation, Remove, Transaction
from logwright.yeltsin.files.seal import seal

GOLDEN = Path(__file__).parents[1] / "golden" / "yeltsin"
CREATED = 1_700_000_000
"""The time of the first transaction; each of the others is one second later."""
PAGE = 30
"""The first page of a table."""


def transaction(
    *operations: Operation, timestamp: int = CREATED, flags: int = COMPLETE, end: int | None = 0xFF, data: bytes = b""
) -> Transaction:
    """A transaction that is not linked yet."""
    return Transaction(0, 0, timestamp, flags, operations, end, data)


def modify(before: bytes, after: bytes, page_offset: int = 0, page: int = PAGE) -> Modify:
    return Modify(page, page_offset, before, after)


def numbered(count: int, *, flags: int = COMPLETE) -> list[Transaction]:
    """Transactions with different operations and sizes."""
    found = []
    for number in range(count):
        operations: list[Operation] = [modify(bytes(number % 7), bytes([number % 251]) * (number % 7), number % 100)]
        if number % 3 == 1:
            operations.insert(0, Allocate(PAGE + 65536 * number, number, number + 1))
        if number % 5 == 4:
            operations.append(Remove(PAGE + 65536 * number, 0))
        found.append(transaction(*operations, timestamp=CREATED + number, flags=flags))
    return found


def linked(transactions: Iterable[Transaction], *, gap_bytes: int = 0) -> tuple[list[Transaction], list[int]]:
    """The consecutive transactions with their links, and the position of each."""
    found: list[Transaction] = []
    starts: list[int] = []
    at = HEADER_BYTES
    items = list(transactions)
    for number, item in enumerate(items):
        following = at + len(codec.encode(item)) + gap_bytes
        starts.append(at)
        is_last = number == len(items) - 1
        found.append(replace(item, previous=starts[-2] if number else 0, next=0 if is_last else following))
        at = following
    return found, starts


def journal(transactions: Sequence[Transaction], *, gap_bytes: int = 0) -> bytes:
    """The bytes of a journal of these transactions."""
    items, starts = linked(transactions, gap_bytes=gap_bytes)
    header = codec.encode_header(starts[0] if starts else 0, starts[-1] if starts else 0)
    return header + bytes(gap_bytes).join(map(codec.encode, items))


def sealed(*transactions: Transaction, gap_bytes: int = 0) -> bytes:
    """A journal of transactions that carry seals."""
    placed, _ = linked([replace(item, end_data=bytes(8)) for item in transactions], gap_bytes=gap_bytes)
    found = []
    for item in placed:
        operations = b"".join(map(codec.encode_operation, item.operations))
        found.append(replace(item, end_data=seal(item.previous, item.timestamp, operations)))
    return journal(found, gap_bytes=gap_bytes)


def write(path: Path, *transactions: Transaction, tail: bytes = b"") -> Path:
    """A file of these transactions, followed by some bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(journal(transactions) + tail)
    return path
