"""Sample journals, and the facts that the original's own tests establish."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from logwright.kestrel.bytes import codec
from logwright.kestrel.bytes.records import Operation

FACTS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "kestrel" / "facts.json").read_text())
ADDED = 1_300_000_000_000
"""The time when the items of the facts were added."""


def addx(data: bytes, *, expires: int | None = None, added: int = ADDED) -> Operation:
    return Operation("addx", added=added, expires=expires, data=data)


def add_xid(xid: int, data: bytes) -> Operation:
    return Operation("add_xid", xid, added=ADDED, data=data)


def continue_(xid: int, data: bytes) -> Operation:
    return Operation("continue", xid, added=ADDED, data=data)


REMOVE = Operation("remove")
RESERVE = Operation("remove_tentative")


def reserve_as(xid: int) -> Operation:
    return Operation("remove_tentative_xid", xid)


def confirm(xid: int) -> Operation:
    return Operation("confirm_remove", xid)


def unremove(xid: int) -> Operation:
    return Operation("unremove", xid)


def save_xid(xid: int) -> Operation:
    return Operation("save_xid", xid)


def state_dump(xid: int, count: int) -> Operation:
    return Operation("state_dump", xid, count)


def encoded(operations: Iterable[Operation]) -> bytes:
    return b"".join(map(codec.encode, operations))


def write(path: Path, *operations: Operation, tail: bytes = b"") -> Path:
    """A file of these operations, followed by some bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(operations) + tail)
    return path


def scenario_operations(scenario: dict[str, Any]) -> list[Operation]:
    """The operations of a scenario of the facts."""
    return [_operation(*item) for item in scenario["ops"]]


def _operation(op: str, *arguments: Any) -> Operation:
    match op, arguments:
        case "add", [int() as size]:
            return addx(bytes(size))
        case "add", [str() as data]:
            return addx(data.encode())
        case "remove", []:
            return REMOVE
        case "remove-tentative", [xid]:
            return reserve_as(xid)
        case "unremove", [xid]:
            return unremove(xid)
        case "confirm-remove", [xid]:
            return confirm(xid)
        case "continue", [xid, data]:
            return continue_(xid, data.encode())
    raise ValueError(f"{op} {arguments}")
