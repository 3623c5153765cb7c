"""The records of a YeltsinDB journal: transactions, which consist of operations on pages.

allocate    a page is taken from the free list, or from the end of the table
modify      bytes of a page's data become others; both are kept
remove      a page goes to the free list

A page is named by its offset in the table. A transaction ends with a completion, or with a rollback, which makes it
void. One without an end never reached the storage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from ...errors import TooLarge, WrongUse
from .layout import ALLOCATION, COMPLETE, COMPLETION, MAX_END_BYTES, MAX_IMAGE_BYTES, MODIFICATION, REMOVAL, ROLLBACK

Outcome: TypeAlias = Literal["completed", "rolled_back", "incomplete"]
OUTCOMES: Final[dict[int | None, Outcome]] = {COMPLETION: "completed", ROLLBACK: "rolled_back", None: "incomplete"}
"""The outcome of a transaction, by the operation that ends it."""
OPS: Final[dict[str, int]] = {"allocate": ALLOCATION, "modify": MODIFICATION, "remove": REMOVAL}
"""The names of the operations, and their numbers."""
END: Final = "end"
"""The name of the operation in the row of a transaction without operations."""


_MOST_SHOWN_BYTES: Final = 32
"""How many bytes of an image are printed in a line for people."""


def check_offset(name: str, offset: int) -> None:
    """Raise `WrongUse` for an offset that does not fit its field."""
    if not 0 <= offset < 2**64:
        raise WrongUse(f"{name} {offset} does not fit 64 bits")


def check_images(page_offset: int, before_bytes: int, after_bytes: int) -> None:
    """Raise `WrongUse` or `TooLarge` for images that no modification can hold."""
    if not 0 <= page_offset < 2**16:
        raise WrongUse(f"an offset of {page_offset} in a page does not fit 16 bits")
    if before_bytes != after_bytes:
        raise WrongUse(f"the image before has {before_bytes} bytes, and the one after {after_bytes}")
    if after_bytes > MAX_IMAGE_BYTES:
        raise TooLarge(f"an image of {after_bytes} bytes is more than the {MAX_IMAGE_BYTES} of one modification")


@dataclass(frozen=True, slots=True)
class Allocate:
    """A page is allocated. `free_before` and `free_after` are the last page of the free list, 0 for none."""

    page: int
    free_before: int
    free_after: int

    op = "allocate"
    number = ALLOCATION

    def validate(self) -> None:
        """Raise `WrongUse` for what the format cannot hold."""
        check_offset("the page", self.page)
        check_offset("the free page", self.free_before)
        check_offset("the free page", self.free_after)

    def as_json(self) -> dict[str, Any]:
        """Name and fields."""
        return {"op": self.op, "page": self.page, "free_before": self.free_before, "free_after": self.free_after}

    def __str__(self) -> str:
        return f"allocate {self.page}"


@dataclass(frozen=True, slots=True)
class Modify:
    """Bytes of a page's data, from `page_offset` on, are replaced by as many others."""

    page: int
    page_offset: int
    before: bytes
    after: bytes

    op = "modify"
    number = MODIFICATION

    def validate(self) -> None:
        """Raise `WrongUse` or `TooLarge` for what the format cannot hold."""
        check_offset("the page", self.page)
        check_images(self.page_offset, len(self.before), len(self.after))

    def as_json(self) -> dict[str, Any]:
        """Name and fields; images stay bytes."""
        return {
            "op": self.op,
            "page": self.page,
            "page_offset": self.page_offset,
            "before": self.before,
            "after": self.after,
        }

    def __str__(self) -> str:
        return f"modify {self.page} @ {self.page_offset}: {_shown(self.before)} -> {_shown(self.after)}"


@dataclass(frozen=True, slots=True)
class Remove:
    """A page goes to the free list, whose last page was `free_before`, 0 for none."""

    page: int
    free_before: int

    op = "remove"
    number = REMOVAL

    def validate(self) -> None:
        """Raise `WrongUse` for what the format cannot hold."""
        check_offset("the page", self.page)
        check_offset("the free page", self.free_before)

    def as_json(self) -> dict[str, Any]:
        """Name and fields."""
        return {"op": self.op, "page": self.page, "free_before": self.free_before}

    def __str__(self) -> str:
        return f"remove {self.page}"


Operation: TypeAlias = Allocate | Modify | Remove
"""An operation of a transaction."""


def _shown(image: bytes) -> str:
    """An image in hex; only its beginning if it is long."""
    rest = len(image) - _MOST_SHOWN_BYTES
    return image[:_MOST_SHOWN_BYTES].hex() + (f" and {rest} bytes more" if rest > 0 else "")


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction. `previous` and `next` are offsets in the journal, 0 for none; `timestamp` is in seconds.

    `end` is the type of the operation that ends it, None if it has no end; `end_data` is the data of that operation.
    """

    previous: int
    next: int
    timestamp: int
    flags: int
    operations: tuple[Operation, ...]
    end: int | None = COMPLETION
    end_data: bytes = b""

    @property
    def complete(self) -> bool:
        """Whether the transaction is in the storage, by its flag."""
        return bool(self.flags & COMPLETE)

    @property
    def outcome(self) -> Outcome:
        """`completed`: the journal holds all of it; `rolled_back`: it is void; `incomplete`: it has no end."""
        return OUTCOMES[self.end]

    @property
    def redo_is_due(self) -> bool:
        """Whether the journal has all of it, and it is not flagged as stored."""
        return self.end == COMPLETION and not self.complete

    def validate(self) -> None:
        """Raise `WrongUse` or `TooLarge` for what the format cannot hold."""
        check_offset("the previous transaction", self.previous)
        check_offset("the next transaction", self.next)
        if not -(2**63) <= self.timestamp < 2**63:
            raise WrongUse(f"the time {self.timestamp} does not fit 64 bits of seconds")
        if not 0 <= self.flags < 2**8:
            raise WrongUse(f"the flags {self.flags} do not fit a byte")
        if self.end not in OUTCOMES:
            raise WrongUse(f"no transaction ends with the operation {self.end}")
        if self.end is None and self.end_data:
            raise WrongUse("a transaction without an end has no data there")
        if len(self.end_data) > MAX_END_BYTES:
            raise TooLarge(f"the end of a transaction cannot carry {len(self.end_data)} bytes")
        for operation in self.operations:
            operation.validate()

    def as_json(self) -> dict[str, Any]:
        """The fields that `dump --json` prints; images stay bytes."""
        found = {
            "previous": self.previous,
            "next": self.next,
            "timestamp": self.timestamp,
            "flags": self.flags,
            "complete": self.complete,
            "outcome": self.outcome,
            "operations": [operation.as_json() for operation in self.operations],
        }
        return {**found, "end_data": self.end_data} if self.end_data else found
