"""What the bytes of an appendfile journal mean: data of the application, and checkpoints between its segments.

A segment is the data between two checkpoints, complete in itself. Segments are numbered from 0 on; registering a
checkpoint closes the current one, and checking it says that nobody will need it any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from ...errors import TooLarge, WrongUse
from .layout import CHECKPOINT, DATA, DESCRIBED_PAIR_BYTES, MAX_DATA_BYTES, MAX_ID, PAIR_BYTES

KINDS: Final = ("data", "checkpoint")
"""The names of the types of records, by number."""


def check_data(size: int) -> None:
    """Raise `TooLarge` for data that no record can hold."""
    if size > MAX_DATA_BYTES:
        raise TooLarge(f"a record of {size} bytes is more than the {MAX_DATA_BYTES} that a journal can hold")


def check_appendable(size: int) -> None:
    """Raise `WrongUse` for data of no bytes as well: at the end of a file nobody could tell it from nothing."""
    if size == 0:
        raise WrongUse("an empty record cannot be told from the zeros that a power cut leaves")
    check_data(size)


def check_pair(checked: int, current: int) -> None:
    """Raise `WrongUse` for ids that no checkpoint can have."""
    for name, number in (("checked", checked), ("current", current)):
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= MAX_ID:
            raise WrongUse(f"{name} is {number!r}, and must be an integer within 0 and 2^64 - 1")
    if checked > current:
        raise WrongUse(f"segment {checked} cannot be the oldest unchecked one when {current} is being written")


@dataclass(frozen=True, slots=True)
class Data:
    """A record of the application's. `segment` is the one that it lies in, where that is known; it is not compared."""

    data: bytes
    segment: int | None = field(default=None, compare=False)

    kind = KINDS[DATA]

    def validate(self) -> None:
        """Raise `TooLarge` for what the format cannot hold."""
        check_data(len(self.data))

    def as_json(self) -> dict[str, Any]:
        """Kind and fields; `data` stays bytes."""
        return {"kind": self.kind, "segment": self.segment, "data": self.data}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What holds from here on: the oldest segment that is not checked, and the one that is being written.

    `header_size` is what the header says. It is 16, or 0 where somebody has followed the description to the letter.
    """

    checked: int
    current: int
    header_size: int = PAIR_BYTES

    kind = KINDS[CHECKPOINT]

    @property
    def segment(self) -> int:
        """The segment that the records behind this belong to."""
        return self.current

    def validate(self) -> None:
        """Raise `WrongUse` for what the format cannot hold."""
        check_pair(self.checked, self.current)
        if self.header_size not in (PAIR_BYTES, DESCRIBED_PAIR_BYTES):
            raise WrongUse(f"the size of a checkpoint record is {PAIR_BYTES}, not {self.header_size}")

    def as_json(self) -> dict[str, Any]:
        """Kind and fields."""
        return {"kind": self.kind, "segment": self.current, "checked": self.checked, "current": self.current}


Record: TypeAlias = Data | Checkpoint
