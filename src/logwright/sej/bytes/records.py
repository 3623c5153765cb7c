"""The message: the record of a sej journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...core.bytes.compiled import COMPILED
from .layout import OVERHEAD, check_fields, check_offset


class Now:
    """The type of `NOW`."""

    def __repr__(self) -> str:
        return "NOW"


NOW: Final = Now()
"""Stands for the time of the append; the default timestamp of a new message."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a journal. `timestamp` is nanoseconds since the epoch; None if the message has none."""

    offset: int
    timestamp: int | None
    type: int
    key: bytes
    value: bytes

    @property
    def size(self) -> int:
        """The size of the message in its file."""
        return OVERHEAD + len(self.key) + len(self.value)

    def validate(self) -> None:
        """Raise `WrongUse` or `TooLarge` for what the format cannot hold."""
        check_offset(self.offset)
        check_fields(self.value, self.key, self.type, self.timestamp)


PlainMessage = Message

if not TYPE_CHECKING and COMPILED:
    from . import _message

    Message = _message.Message
