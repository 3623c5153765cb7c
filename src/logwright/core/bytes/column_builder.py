"""ColumnBuilder: the base of every codec's BatchBuilder, which appends records to the columns of one batch.

Columns are plain buffers in native byte order, which Arrow uses without copying. A format declares them once, as
`Numbers` and `Bytes`. Records of walked ranges are added row by row until one does not fit. `_column_builder.pyx` is
the same for the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from struct import calcsize
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from ...errors import TooLarge, WrongUse

MAX_COLUMN_BYTES: Final = 2**31 - 1
"""The most bytes in one column of a batch, because ends are i32."""

ItemCode: TypeAlias = Literal["B", "H", "i", "I", "q", "Q"]


@dataclass(frozen=True, slots=True)
class Numbers:
    """A column of numbers: the bit that selects it, its attribute, and the type code of its items, as in `array`."""

    bit: int
    name: str
    code: ItemCode


@dataclass(frozen=True, slots=True)
class Bytes:
    """A column of bytes: item n is between `ends[n]` and `ends[n + 1]` (i32) of the attribute `name`."""

    bit: int
    name: str
    ends: str


class HasCount(Protocol):
    """The columns of a format: buffers by name, and the number of rows."""

    count: int


C = TypeVar("C", bound=HasCount)


class ColumnBuilder(Generic[C]):
    """The columns selected by `want`, while they are being filled.

    `rows` is the most rows, `room` the most bytes of each column of bytes, by name. `allocate` makes the buffers.
    """

    def __init__(
        self,
        columns: C,
        layout: Sequence[Numbers | Bytes],
        want: int,
        rows: int,
        room: Mapping[str, int],
        allocate: Callable[[int], Any],
    ) -> None:
        if not 0 <= rows <= MAX_COLUMN_BYTES:
            raise TooLarge(f"one batch of columns holds less than 2 GiB of each column, and not {rows} rows")
        for name, size in room.items():
            if not 0 <= size <= MAX_COLUMN_BYTES:
                raise TooLarge(f"one batch of columns holds less than 2 GiB of {name}")
        self.count = 0
        self._columns: C | None = columns
        self._rows = rows
        self._room = room
        self._allocate = allocate
        self._used = dict.fromkeys(room, 0)
        self._views: dict[str, memoryview[int]] = {}
        self._ends: dict[str, str] = {}
        for column in layout:
            if not want & column.bit:
                continue
            if isinstance(column, Numbers):
                self._views[column.name] = self._allocated(column.name, column.code, rows)
            else:
                self._ends[column.name] = column.ends
                self._views[column.name] = self._allocated(column.name, "B", room[column.name])
                self._views[column.ends] = self._allocated(column.ends, "i", rows + 1)
                self._views[column.ends][0] = 0

    def _allocated(self, name: str, code: ItemCode, length: int) -> memoryview[int]:
        needed = length * calcsize(code)
        buffer = self._allocate(needed)
        setattr(self._columns, name, buffer)
        view = memoryview(buffer).cast("B")
        if len(view) < needed:
            raise WrongUse(f"a buffer of {needed} bytes was asked for, not of {len(view)}")
        return view[:needed].cast(code)

    def _ours(self) -> C:
        """The columns, or `WrongUse` after `take`."""
        if self._columns is None:
            raise WrongUse("these columns have been taken")
        return self._columns

    def _put(self, numbers: Mapping[str, int], items: Mapping[str, bytes]) -> bool:
        """Add one record, its bytes by the names of their columns. Returns False and changes nothing if it does not
        fit.

        Columns that were not selected are ignored.
        """
        row = self.count
        if row == self._rows or any(self._used[name] + len(items[name]) > self._room[name] for name in self._ends):
            return False
        for name, number in numbers.items():
            if name in self._views:
                self._views[name][row] = number
        for name, ends in self._ends.items():
            end = self._used[name] + len(items[name])
            self._views[name][self._used[name] : end] = items[name]
            self._views[ends][row + 1] = self._used[name] = end
        self.count = row + 1
        return True

    def take(self) -> C:
        """The columns. Their buffers are as long as was requested; `count` is the number of rows in them."""
        columns = self._ours()
        self._columns = None
        for view in self._views.values():
            view.release()
        columns.count = self.count
        return columns
