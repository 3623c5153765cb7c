"""The records of an appendfile journal: data of the application, and checkpoints between its segments.

A segment is the data between two checkpoints, complete in itself. Segments are numbered from 0 on; registering a
checkpoint closes the current one, and checking a segment says that it is not needed any more.
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
    """Raise `WrongUse` for data that is too large, or empty: at the end of a file empty data would look like zeros."""
    if size == 0:
        raise WrongUse("an empty record cannot be distinguished from the zeros that a power cut leaves")
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
    """A record of the application's. `segment` is the segment that it belongs to, if known; it is not compared."""

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
    """The ids that are valid from here on: the oldest unchecked segment, and the segment that is being written.

    `header_size` is the size in the header: 16, or 0 as in the original description.
    """

    checked: int
    current: int
    header_size: int = PAIR_BYTES

    kind = KINDS[CHECKPOINT]

    @property
    def segment(self) -> int:
        """The segment of the records that follow."""
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
"""A record of a segment."""
