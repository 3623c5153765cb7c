"""Splits: the parts of a journal that tasks read, and the inventory of its files.

A split begins and ends at record boundaries that were found in the file, never guessed. It is small, immutable and can
be pickled: it names files and record numbers, and its reader opens the journal again. If the journal has grown since,
the split has the same records. If the file is gone, reading fails.

Each format has a `Splits`. The record numbers of a part rise and are never reused; a format that cannot guarantee this
overrides `mark` and `resume`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Generic, TypeVar

from ...errors import DamagedJournal
from ..bytes.outcome import Damage, Mode
from .chunk import Bound

T = TypeVar("T")
R = TypeVar("R", contravariant=True)

TARGET_BYTES: Final = 128 << 20
"""The default size of a task on Spark. Starting a task costs as much as reading about 16 MiB."""


@dataclass(frozen=True, slots=True)
class Times:
    """Times in nanoseconds since the epoch, both inclusive; None is no bound. Records without a time never match."""

    earliest: int | None = None
    latest: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no time matches."""
        return self.earliest is not None and self.latest is not None and self.earliest > self.latest

    def reach(self, smallest: int, largest: int) -> bool:
        """Whether a time between these two may match."""
        late_enough = self.earliest is None or largest >= self.earliest
        return late_enough and (self.latest is None or smallest <= self.latest)


@dataclass(frozen=True, slots=True)
class Split:
    """Records `start` to `stop` (not included) of a file, from `position` on, about `bytes` long.

    `part` is the shard, queue or store that the file belongs to; empty if there is only one. `before` and `after` are
    damage that the plan found at the edges: records missing before the first one, a torn tail after the last one. The
    reader of the split reports them. `mark` is for the format to identify its records.
    """

    file: str
    position: int
    start: int
    stop: int
    bytes: int
    part: str = ""
    before: Damage | None = None
    after: Damage | None = None
    mark: int | None = None


def pack(items: Iterable[T], target_bytes: int, bytes_of: Callable[[T], int]) -> list[list[T]]:
    """Items in groups of about `target_bytes`, in their order, so that many small files make few tasks."""
    groups: list[list[T]] = []
    used = 0
    for item in items:
        if not groups or used + bytes_of(item) > target_bytes:
            groups.append([])
            used = 0
        groups[-1].append(item)
        used += bytes_of(item)
    return groups


def report_first(splits: list[Split], damages: Sequence[Damage], *, is_all: bool) -> list[Split]:
    """The splits of a part, the first of which report damage that concerns all of the part.

    If there are none, and none were left out, `DamagedJournal` is raised.
    """
    if not damages or not (splits or is_all):
        return splits
    if not splits:
        raise DamagedJournal(damages[0].file, damages[0].start, damages[0].reason)
    empty = replace(splits[0], stop=splits[0].start, bytes=0, after=None, mark=None)  # a mark is of records
    return [*(replace(empty, before=damage) for damage in damages), *splits]


class Splits(ABC, Generic[R]):
    """How the journals of a format are cut into splits, and how streams continue in them.

    `reader` is what the format opened: one journal, or several as parts of one. `prunes_numbers` says that the column
    `sequence` on Spark is the record number that splits are planned by, `prunes_times` that `plan` uses `times`.
    """

    prunes_numbers: ClassVar[bool] = False
    prunes_times: ClassVar[bool] = False

    @abstractmethod
    def plan(
        self,
        reader: R,
        target_bytes: int = TARGET_BYTES,
        start: Bound = None,
        stop: Bound = None,
        *,
        resumed: bool = False,
        times: Times | None = None,
    ) -> list[Split]:
        """The records with `start` <= number < `stop`, as they are now, in splits of about `target_bytes`.

        What is appended later is in none of them. Bounds hold for every part, or for each by its name; parts without a
        name are then left out. `resumed` says that everything before `start` was read earlier: damage that begins there
        has been reported.

        With `times` the plan may leave out ranges that are known to hold no record of these times. It never leaves out
        a record that matches; the reader of a split checks times again. Damage in these ranges is not reported.
        """

    @abstractmethod
    def chunks(self, reader: R, split: Split, mode: Mode = "failfast") -> Iterator[Any]:
        """The records of a split as chunks for the format's `Collector`, and `Damage`.

        The buffer of a chunk is valid until the next chunk is requested.
        """

    @abstractmethod
    def extent(self, reader: R, named: Collection[str] | None = None) -> dict[str, tuple[int, int]]:
        """The first record number and the next one of every part, or of those named. Only whole records count."""

    def planned_extent(self, splits: Sequence[Split]) -> tuple[int, int] | None:
        """The extent of a part by a plan of all its records; None if the plan does not show it."""
        return None

    def aligned(self, reader: R, part: str, number: int) -> int:
        """The number of the first record that has this number or a later one, or of the next record."""
        return number

    @abstractmethod
    def reach(self, reader: R, part: str, start: int, stop: int, max_bytes: int) -> tuple[int, int]:
        """How far `max_bytes` go from the record `start`, but not beyond `stop`: where to stop, and the bytes to it.

        At least one record is within reach, however large it is.
        """

    @abstractmethod
    def inventory(
        self, reader: R, named: Collection[str] | None = None, extents: Mapping[str, tuple[int, int]] | None = None
    ) -> Inventory:
        """The files of a journal and its consumers, or of the parts named, without reading its records.

        `extents` are results of `extent` that are to be used; those of other parts are looked up.

        Files are named as in the column `file` of tables: relative to the journal, including the name of the part.
        Temporary files are left out, and so is what is removed during the call. Damage is not reported.
        """

    def final(self, reader: R, part: str, start: int, stop: int) -> int:
        """The number, between `start` and `stop`, of the first record that may still be changed in place.

        The tables of records from there on are made again with every increment.
        """
        return stop

    def advance(self, reader: R, part: str, start: int, stop: int, most: int) -> tuple[int, int]:
        """How far `most` records go from `start`, but not beyond `stop`: where to stop, and how many there are."""
        return min(stop, start + most), min(stop - start, most)

    def mark(self, reader: R, part: str, number: int) -> str:
        """A short text that identifies the record before a number; empty if records keep their numbers forever."""
        return ""

    def resume(self, reader: R, part: str, number: int, mark: str) -> tuple[int, str]:
        """Where a stream continues that had reached `number` and stored `mark` there.

        The text says why it continues at another record, if it does.
        """
        return number, ""

    def file_of(self, part: str, file: str) -> str:
        """The name of a file of a part, relative to the journal."""
        return f"{part}/{file}" if part else file


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file with the records `first` <= n < `next` of a part; it may hold fewer where some are damaged or missing."""

    part: str
    file: str
    bytes: int
    first: int | None
    next: int | None


@dataclass(frozen=True, slots=True)
class ConsumerEntry:
    """A consumer of a part: the number of its next record, and the first and the next record number of the part.

    `offset` is None if it has not committed anything, or if it cannot be read; then `problem` says why.
    """

    part: str
    consumer: str
    offset: int | None
    first: int | None
    next: int | None
    problem: str | None = None


@dataclass(slots=True)
class Inventory:
    """The files and consumers of a journal, in the order of parts and files.

    Record numbers are those of `Splits.extent`; an unknown number is None.
    """

    files: list[FileEntry] = field(default_factory=list)
    consumers: list[ConsumerEntry] = field(default_factory=list)
