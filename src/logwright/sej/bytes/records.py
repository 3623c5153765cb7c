"""What the bytes of a sej journal mean: the message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...core.bytes.compiled import COMPILED
from ...errors import TooLarge, WrongUse
from .layout import MAX_KEY_BYTES, MAX_MESSAGE_BYTES, MAX_OFFSET, NO_TIMESTAMP, OVERHEAD


class Now:
    """The type of `NOW`."""

    def __repr__(self) -> str:
        return "NOW"


NOW: Final = Now()
"""Stands for the time of the append; the default timestamp of a new message."""


def check_offset(offset: int) -> None:
    """Raise `WrongUse` for an offset that does not fit its field."""
    if not 0 <= offset <= MAX_OFFSET:
        raise WrongUse(f"offset {offset} is not within 0 and 2^64 - 1")


def check_fields(value: bytes, key: bytes, type: int, timestamp: int | None) -> None:
    """Raise `WrongUse` or `TooLarge` for a message that the format cannot hold."""
    if len(key) > MAX_KEY_BYTES:
        raise TooLarge(f"the key has {len(key)} bytes, a sej key has at most {MAX_KEY_BYTES}")
    if OVERHEAD + len(key) + len(value) > MAX_MESSAGE_BYTES:
        raise TooLarge(f"a value of {len(value)} bytes makes a message of more than {MAX_MESSAGE_BYTES} bytes")
    if not 0 <= type <= 255:
        raise WrongUse(f"type {type} is not within 0 and 255")
    if timestamp is not None and not NO_TIMESTAMP < timestamp < 2**63:
        raise WrongUse(f"timestamp {timestamp} does not fit 64 bits of nanoseconds")


@dataclass(frozen=True, slots=True)
class PlainMessage:
    """One message of a journal. `timestamp` is nanoseconds since the epoch, None when the message has none."""

    offset: int
    timestamp: int | None
    type: int
    key: bytes
    value: bytes

    @property
    def size(self) -> int:
        """How many bytes the message takes in its file."""
        return OVERHEAD + len(self.key) + len(self.value)

    def validate(self) -> None:
        """Raise `WrongUse` or `TooLarge` for what the format cannot hold."""
        check_offset(self.offset)
        check_fields(self.value, self.key, self.type, self.timestamp)


PlainMessage.__name__ = PlainMessage.__qualname__ = "Message"

if TYPE_CHECKING or not COMPILED:
    Message = PlainMessage
else:
    from . import _message

    Message = _message.Message
