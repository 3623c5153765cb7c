"""Item: what a queue hands out when more than the data is wanted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...errors import WrongUse
from .shelf import Entry


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a queue. `xid` is what to confirm or abort it by, 0 when it is not open.

    `added` and `expires` are milliseconds since the epoch; `added` is None where nobody knows, `expires` for never.
    `attempts` is how often it was open before and came back: by an abort, or because its reader was gone.
    """

    data: bytes
    xid: int = 0
    added: int | None = None
    expires: int | None = None
    attempts: int = 0


def as_item(entry: Entry, xid: int = 0) -> Item:
    """An entry of the shelf for people."""
    data, added, expires, attempts, _ = entry
    return Item(data, xid, added or None, expires or None, attempts)


def xids_of(items: Iterable[Item | int]) -> list[int]:
    """The ids that some items are reserved under, each given by the item or by the id itself."""
    return [item.xid if isinstance(item, Item) else _checked(item) for item in items]


def _checked(xid: object) -> int:
    if not isinstance(xid, int) or isinstance(xid, bool):
        raise WrongUse(f"{xid!r} is neither an item nor its id: give items one by one, or several as confirm(*items)")
    return xid
