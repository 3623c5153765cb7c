"""The outcomes of decoding, the same for every format.

A decoder reads bytes from a position and has one of three outcomes:

- a record, with its `Span`;
- `NEED_MORE`: the bytes may be the beginning of a record, but end too early;
- it raises `Malformed`: no continuation of these bytes is a record.

For a whole file, a `Tail` describes how its records end, and a `Damage` names a range of bytes that is not a record,
with the reason. In the reading mode `permissive` readers return `Damage` among the records.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ...errors import WrongUse


class Malformed(Exception):
    """These bytes are not a record, whatever follows them."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"@ {self.position}: {self.reason}"


class NeedMore(enum.Enum):
    """The type of the one value `NEED_MORE`."""

    NEED_MORE = "need more bytes"


NEED_MORE: Final = NeedMore.NEED_MORE
"""The bytes may be the beginning of a record, but end too early."""


@dataclass(frozen=True, slots=True)
class Span:
    """The half-open range of bytes `[start, end)` in a file."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class Ending(enum.Enum):
    """How the records of a buffer or file end."""

    CLEAN = "clean"
    """The last record ends where the bytes end."""
    INCOMPLETE = "incomplete"
    """The bytes end inside a record: more may still come."""
    MALFORMED = "malformed"
    """Bytes that cannot be a record follow the last one."""


@dataclass(frozen=True, slots=True)
class Tail:
    """Where the whole records end, and what follows them."""

    end: int
    ending: Ending
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Damage:
    """A range of bytes of a file that holds no valid record, and why.

    `kind` is one word for programs: `torn_tail`, `malformed`, `unexpected_offset`, `gap`, `checksum`. Three kinds have
    no bytes: `lost` for records that the account of losses names, `truncated` for synced ones after the end of a file,
    and `history_unavailable` for a time before the oldest record that is kept.
    """

    file: str
    start: int
    end: int
    reason: str
    kind: str = "malformed"

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.file} @ {self.start}: {self.reason} ({self.size} bytes)"


Mode: TypeAlias = Literal["failfast", "permissive", "dropmalformed"]
RecordsOnly: TypeAlias = Literal["failfast", "dropmalformed"]
"""The modes in which a reader yields records and no `Damage`."""
MODES: Final[tuple[Mode, ...]] = ("failfast", "permissive", "dropmalformed")


def check_mode(mode: str) -> Mode:
    """The reading mode of this name, or `WrongUse`."""
    if mode not in MODES:
        raise WrongUse(f"mode {mode!r} is none of {', '.join(MODES)}")
    return mode
