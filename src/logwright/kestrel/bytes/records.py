"""The records of kestrel: operations on a queue.

add                     add an item at the tail, without the time when it was added (from Starling, 2007)
addx                    add an item at the tail
remove                  remove the head
remove_tentative        reserve the head under the next transaction id
remove_tentative_xid    reserve the head under this id                                 (kestrel2)
save_xid                set the last used transaction id
unremove                put the reserved item back at the head
confirm_remove          finish the reserved item
add_xid                 add an item at the tail, to be reserved under this id
continue                finish the reserved item, and add this one                     (kestrel2)
state_dump              the state for a process that reads behind: `count` add_xid follow (documented)

The dialect of a journal decides which of them it can contain: `documented` is the dialect of the original's
description, `kestrel2` that of its releases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from ...errors import TooLarge, WrongUse
from .layout import (
    ADD,
    ADD_XID,
    ADDX,
    CONFIRM_REMOVE,
    CONTINUE,
    DATA_HEAD_BYTES,
    DOCUMENTED,
    KESTREL2,
    MAX_DATA_BYTES,
    REMOVE,
    REMOVE_TENTATIVE,
    REMOVE_TENTATIVE_XID,
    SAVE_XID,
    STATE_DUMP,
    UNDECIDED,
    UNREMOVE,
)

Dialect: TypeAlias = Literal["documented", "kestrel2", "auto"]
DIALECTS: Final[dict[str, int]] = {"documented": DOCUMENTED, "kestrel2": KESTREL2, "auto": UNDECIDED}

OPS: Final[dict[str, int]] = {
    "add": ADD,
    "remove": REMOVE,
    "addx": ADDX,
    "remove_tentative": REMOVE_TENTATIVE,
    "save_xid": SAVE_XID,
    "unremove": UNREMOVE,
    "confirm_remove": CONFIRM_REMOVE,
    "add_xid": ADD_XID,
    "state_dump": STATE_DUMP,
    "remove_tentative_xid": REMOVE_TENTATIVE_XID,
    "continue": CONTINUE,
}
"""The names of the operations, and their numbers."""
OP_NAMES: Final = tuple(sorted(OPS, key=lambda name: OPS[name]))
"""The names by number."""

_OF_ITEMS: Final = ("added", "expires", "data")
FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "add": ("expires", "data"),
    "remove": (),
    "addx": _OF_ITEMS,
    "remove_tentative": (),
    "save_xid": ("xid",),
    "unremove": ("xid",),
    "confirm_remove": ("xid",),
    "add_xid": ("xid", *_OF_ITEMS),
    "state_dump": ("xid", "count"),
    "remove_tentative_xid": ("xid",),
    "continue": ("xid", *_OF_ITEMS),
}
"""The fields of each operation."""
DIALECT_OF: Final[dict[str, Dialect]] = {
    "state_dump": "documented",
    "remove_tentative_xid": "kestrel2",
    "continue": "kestrel2",
}
"""The operations that only one dialect has."""


def head_bytes(number: int) -> int:
    """The size of an operation that adds an item, without its data."""
    return DATA_HEAD_BYTES[number]


def check_dialect(dialect: str) -> Dialect:
    """The dialect of this name, or `WrongUse`."""
    if dialect not in DIALECTS:
        raise WrongUse(f"dialect {dialect!r} is none of {', '.join(DIALECTS)}")
    return dialect  # type: ignore[return-value]


def refuse_kestrel2(kind: int) -> None:
    """Raise `WrongUse`: only journals of kestrel2 can contain this operation."""
    raise WrongUse(f"the operation {OP_NAMES[kind]} is of the dialect kestrel2, which this journal is not in")


def check_xid(xid: int) -> None:
    """Raise `WrongUse` for a transaction id that does not fit its field."""
    if not -(2**31) <= xid < 2**31:
        raise WrongUse(f"transaction id {xid} does not fit 32 bits")


def check_item(data_bytes: int, added: int | None, expires: int | None) -> None:
    """Raise `WrongUse` or `TooLarge` for an item that the format cannot hold."""
    if data_bytes > MAX_DATA_BYTES:
        raise TooLarge(f"an item of {data_bytes} bytes is more than the {MAX_DATA_BYTES} that a journal can hold")
    if added is not None and not -(2**63) <= added < 2**63:
        raise WrongUse(f"the time {added} does not fit 64 bits of milliseconds")
    if expires is not None and (expires == 0 or not -(2**63) <= expires < 2**63):
        raise WrongUse(f"an item cannot expire at {expires}: give milliseconds since the epoch, or None for never")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a journal. Fields that it does not have are None; times are milliseconds since the epoch.

    `expires` is also None for an item that never expires. The `expires` of an `add` is a whole number of seconds.
    """

    op: str
    xid: int | None = None
    count: int | None = None
    added: int | None = None
    expires: int | None = None
    data: bytes | None = None

    @property
    def number(self) -> int:
        """The number of the operation; it equals the byte in the file, except for `continue`."""
        return OPS[self.op]

    def validate(self) -> None:
        """Raise `WrongUse` or `TooLarge` for an operation that the format cannot hold."""
        if self.op not in OPS:
            raise WrongUse(f"there is no operation {self.op!r}; the operations are {', '.join(OPS)}")
        fields = FIELDS[self.op]
        for name in ("xid", "count", "added", "expires", "data"):
            value = getattr(self, name)
            if value is not None and name not in fields:
                raise WrongUse(f"the operation {self.op} has no {name}")
            if value is None and name in fields and name != "expires":
                raise WrongUse(f"the operation {self.op} needs {name}")
        if self.xid is not None:
            check_xid(self.xid)
        if self.count is not None and not 0 <= self.count < 2**31:
            raise WrongUse(f"a count of {self.count} is not between 0 and 2^31 - 1")
        if self.data is not None:
            check_item(len(self.data), self.added, self.expires)
        if self.op == "add" and self.expires is not None:
            seconds, rest = divmod(self.expires, 1000)
            if rest or not -(2**31) <= seconds < 2**31:
                raise WrongUse(f"the expiry of an add is a whole number of seconds of 32 bits, not {self.expires} ms")

    def as_json(self) -> dict[str, Any]:
        """Name and fields; `data` is bytes."""
        return {"op": self.op, **{name: getattr(self, name) for name in FIELDS[self.op]}}
