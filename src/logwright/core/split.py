"""Split: a part of a journal that one task reads, and how a journal is cut into them.

A split begins and ends at record boundaries that were found in the file, never guessed. It is small, immutable and can
be pickled: it names files and numbers, and whoever gets it opens the journal again. A journal that has grown since
then gives the same records; one that has lost the file says so.

What the room `splits` of a format offers:

    plan(reader, target_bytes, start, stop)      -> list[Split]; `resumed=True` where a stream goes on; `times=` where
                                                    only records of some time are wanted, if the format has the trait
                                                    "prune_times": what cannot hold any of them may be left out
    chunks(reader, split, mode)                  -> what the format's `columns.Collector` takes, and `Damage`s
    extent(reader)                               -> {part: (first, next)}, the record numbers that each part has now
    reach(reader, part, start, stop, max_bytes)  -> how far so many bytes go, at least one record; the bytes up to there
    file_of(part, file)                          -> a file of a part as seen from the journal; without this PART/FILE

Record numbers of a part rise, and no record ever gets the number that another one had. A format that cannot promise
this, or whose numbers are not those of the records one by one, offers more, and streams ask for it:

    mark(reader, part, number)                   -> a short text about what lies right before a number, "" for nothing
    resume(reader, part, number, mark)           -> (number, reason): where to go on that had come to `number` and noted
                                                    `mark` there; a reason says why that is another record
    advance(reader, part, start, stop, most)     -> (number, count): how far so many records go, and how many they are

A plan may leave out whatever it knows to hold no record of the `times`, and it need not: who reads a split looks at
the times again. It must not guess, and never leave out a record that is meant. Damage in what is left out is not told,
since nobody looks there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from .outcome import Damage

T = TypeVar("T")

TARGET_BYTES: Final = 128 << 20
"""What Spark gives a task of its own files. Before its first row a task costs as much as reading some 16 MiB."""

Bound: TypeAlias = int | Mapping[str, int] | None
"""A bound of record numbers: one for all parts of a journal, or one for each by its name."""


@dataclass(frozen=True, slots=True)
class Times:
    """Times in nanoseconds since the epoch, both included; None is no bound. A record without a time is never meant."""

    earliest: int | None = None
    latest: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no time is meant."""
        return self.earliest is not None and self.latest is not None and self.earliest > self.latest

    def reach(self, smallest: int, largest: int) -> bool:
        """Whether something between two times may be meant."""
        late_enough = self.earliest is None or largest >= self.earliest
        return late_enough and (self.latest is None or smallest <= self.latest)


@dataclass(frozen=True, slots=True)
class Split:
    """Records `start` to `stop` (not included) of a file, from `position` on, about `bytes` long.

    `part` is the shard, or whatever else a journal consists of, that the file belongs to; empty where there is only
    one. `before` and `behind` are what the plan has found to be wrong at the edges: records missing before the first
    one, a torn tail behind the last. Who reads the split tells of it. `mark` is for the format to know its records by.
    """

    file: str
    position: int
    start: int
    stop: int
    bytes: int
    part: str = ""
    before: Damage | None = None
    behind: Damage | None = None
    mark: int | None = None


def pack(items: Iterable[T], target_bytes: int, bytes_of: Callable[[T], int]) -> list[list[T]]:
    """Items in groups of about `target_bytes`, in their order: many small files make few tasks."""
    groups: list[list[T]] = []
    used = 0
    for item in items:
        if not groups or used + bytes_of(item) > target_bytes:
            groups.append([])
            used = 0
        groups[-1].append(item)
        used += bytes_of(item)
    return groups
