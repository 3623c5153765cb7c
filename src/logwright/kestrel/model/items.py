"""Item: an item of a queue, as callers see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol, Self

from ...errors import WrongUse
from .shelf import Entry


class Owner(Protocol):
    """The queue that an item is reserved in."""

    def settle(self, item: Item, error: BaseException | None) -> None:
        """Confirm an item that is still reserved, or abort it because of an error."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a queue. `xid` is the id by which to confirm or abort it, 0 if it is not reserved.

    `added` and `expires` are milliseconds since the epoch. `added` is None if it is unknown, `expires` if the item
    never expires. `attempts` is how many times the item was reserved and put back: by an abort, or because its reader
    died.

    An item that `Queue.reserve` has returned is a context manager. The end of the block confirms it; an exception
    aborts it. A block may also confirm or abort the item itself.
    """

    data: bytes
    xid: int = 0
    added: int | None = None
    expires: int | None = None
    attempts: int = 0
    _owner: Owner | None = field(default=None, repr=False, compare=False)

    def __enter__(self) -> Self:
        if self._owner is None:
            raise WrongUse("only an item that Queue.reserve or reserve_many has returned can be used in a with block")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._owner is not None:
            self._owner.settle(self, error)


def set_owner(items: list[Item], owner: Owner) -> list[Item]:
    """Set the owner of items, so that they can be used as context managers."""
    for item in items:
        object.__setattr__(item, "_owner", owner)  # the class is frozen
    return items


def as_item(entry: Entry, xid: int = 0) -> Item:
    """An entry of the shelf as an item."""
    data, added, expires, attempts, _ = entry
    return Item(data, xid, added or None, expires or None, attempts)


def xids_of(items: Iterable[Item | int]) -> list[int]:
    """The ids of reserved items, each given as the item or as its id."""
    return [item.xid if isinstance(item, Item) else _checked(item) for item in items]


def _checked(xid: object) -> int:
    if not isinstance(xid, int) or isinstance(xid, bool):
        raise WrongUse(f"{xid!r} is neither an item nor its id: give items one by one, or several as confirm(*items)")
    return xid
