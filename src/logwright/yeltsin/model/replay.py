"""Transactions -> the pages that result from them. It works on operations, not on bytes of a journal.

A journal knows those bytes of a page that were ever changed, as ranges. Ranges that touch each other are joined.
Allocating a page empties it, so its earlier bytes are forgotten; a removed page is gone.

The state of pages at a point in the past follows from both directions: forwards, the images after each change give it
from the beginning up to that point; backwards, the images before each change give bytes that were not changed earlier.

Transactions that were rolled back, and those without an end, are void. A lost transaction may have changed any page. So
everything known is forgotten there, in both directions.
"""

from __future__ import annotations

import base64
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ...core.repair.losses import Loss
from ..bytes.records import Allocate, Modify, Operation, Remove, Transaction


class Ranges:
    """The known bytes of a page, in ranges that do not touch each other. `size` is the number of these bytes."""

    __slots__ = ("_data", "_starts", "size")

    def __init__(self) -> None:
        self.size = 0
        self._starts: list[int] = []
        self._data: list[bytes] = []

    def items(self) -> list[tuple[int, bytes]]:
        """The ranges in order: the start of each, and its bytes."""
        return list(zip(self._starts, self._data, strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self.items() == other.items()

    def __hash__(self) -> int:
        return hash(tuple(self.items()))

    def put(self, start: int, data: bytes) -> None:
        """Set the known bytes from `start` on."""
        self._merge(start, data, over=True)

    def fill(self, start: int, data: bytes) -> None:
        """Set the bytes from `start` on that are not known yet."""
        self._merge(start, data, over=False)

    def _merge(self, start: int, data: bytes, *, over: bool) -> None:
        if not data:
            return
        end = start + len(data)
        low = bisect_left(self._starts, start)
        if low and self._starts[low - 1] + len(self._data[low - 1]) >= start:
            low -= 1
        high = bisect_right(self._starts, end)
        first = min(start, self._starts[low]) if low < high else start
        last = max(end, self._starts[high - 1] + len(self._data[high - 1])) if low < high else end
        merged = bytearray(last - first)
        pieces = [(self._starts[row], self._data[row]) for row in range(low, high)]
        for at, piece in [*pieces, (start, data)] if over else [(start, data), *pieces]:
            merged[at - first : at - first + len(piece)] = piece
        self.size += len(merged) - sum(map(len, self._data[low:high]))
        self._starts[low:high] = [first]
        self._data[low:high] = [bytes(merged)]

    def part(self, start: int, end: int) -> bytes | None:
        """The bytes of a piece that is within one range; None if it is not."""
        row = bisect_right(self._starts, start) - 1
        if row < 0 or end > self._starts[row] + len(self._data[row]):
            return None
        return self._data[row][start - self._starts[row] : end - self._starts[row]]

    def copy(self) -> Ranges:
        """An independent copy."""
        found = Ranges()
        found._starts, found._data, found.size = self._starts.copy(), self._data.copy(), self.size
        return found

    def as_json(self) -> list[dict[str, Any]]:
        """The ranges; bytes are base64."""
        return [{"offset": start, "data": base64.b64encode(data).decode()} for start, data in self.items()]


class Pages:
    """The pages after some transactions. `apply` adds the next one; after the first `look_back` only the past is added
    to.
    """

    def __init__(self) -> None:
        self.known: dict[int, Ranges] = {}
        self.transactions = 0
        self._is_closed = False
        self._closed: set[int] = set()
        """Pages whose later images say nothing about the requested point."""

    def apply(self, transaction: Transaction) -> None:
        """Apply a transaction, if it was completed."""
        self.transactions += 1
        if transaction.outcome == "completed":
            for operation in transaction.operations:
                change(self.known, operation)

    def forget(self) -> None:
        """Forget what a lost transaction may have changed."""
        self.known.clear()

    def stop_looking_back(self) -> None:
        """Ignore transactions after a lost one."""
        self._is_closed = True

    def look_back(self, transaction: Transaction) -> None:
        """Add the bytes that a later transaction had found."""
        if transaction.outcome != "completed" or self._is_closed:
            return
        for operation in transaction.operations:
            if operation.page in self._closed:
                continue
            if isinstance(operation, Modify):
                self.known.setdefault(operation.page, Ranges()).fill(operation.page_offset, operation.before)
            else:
                if isinstance(operation, Remove):  # it existed until now, even if it was never changed
                    self.known.setdefault(operation.page, Ranges())
                self._closed.add(operation.page)


def change(pages: dict[int, Ranges], operation: Operation) -> None:
    """Apply an operation to the pages."""
    if isinstance(operation, Modify):
        pages.setdefault(operation.page, Ranges()).put(operation.page_offset, operation.after)
    elif isinstance(operation, Allocate):
        pages[operation.page] = Ranges()
    else:
        pages.pop(operation.page, None)


@dataclass(frozen=True, slots=True)
class PagesState:
    """The state of a journal: the number of transactions, the last one, and the known bytes of pages."""

    transactions: int
    last: int | None
    redo: bool
    pages: dict[int, Ranges]
    losses: tuple[Loss, ...] = ()
    """What was lost up to this point: bytes of pages that no transaction has changed since are unknown."""

    def as_json(self) -> dict[str, Any]:
        """As `state --json` prints it."""
        found: dict[str, Any] = {
            "transactions": self.transactions,
            "last": self.last,
            "redo": self.redo,
            "pages": {str(page): self.pages[page].as_json() for page in sorted(self.pages)},
        }
        if self.losses:
            lines = [{"position": gap_of(loss), "lost": loss.records, "what": loss.what} for loss in self.losses]
            return {**found, "losses": lines}
        return found


def gap_of(loss: Loss) -> int:
    """The offset at which transactions are missing."""
    return int(loss.fields.get("start", loss.position))


def difference(before: dict[int, Ranges], after: dict[int, Ranges]) -> dict[str, Any]:
    """The pages that were added, removed and changed; of a changed page the bytes that differ."""
    changed = {}
    for page in sorted(before.keys() & after.keys()):
        old, new = _differing(before[page], after[page])
        if old.items() or new.items():
            changed[str(page)] = {"before": old.as_json(), "after": new.as_json()}
    return {
        "added": {str(page): after[page].as_json() for page in sorted(after.keys() - before.keys())},
        "changed": changed,
        "removed": {str(page): before[page].as_json() for page in sorted(before.keys() - after.keys())},
    }


def _differing(before: Ranges, after: Ranges) -> tuple[Ranges, Ranges]:
    """The ranges in which two versions of a page differ."""
    old, new = Ranges(), Ranges()
    both = [*before.items(), *after.items()]
    edges = sorted({edge for start, data in both for edge in (start, start + len(data))})
    for start, end in pairwise(edges):
        was, now = before.part(start, end), after.part(start, end)
        if was == now:
            continue
        first, last = 0, end - start
        if was is not None and now is not None:
            first = next(at for at in range(last) if was[at] != now[at])
            last = next(at for at in range(last, 0, -1) if was[at - 1] != now[at - 1])
        old.put(start + first, (was or b"")[first:last])
        new.put(start + first, (now or b"")[first:last])
    return old, new
