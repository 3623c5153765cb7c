"""Records -> segments.

A segment is the data between two checkpoints. A segment that the next checkpoint has closed is complete; the last one,
which is still being written, is not, and neither is one with missing records or checkpoints. A segment is checked once
a checkpoint names a later one as the oldest unchecked segment.

Segments are numbered within a generation: a generation continues the ids of the preceding one, so that the last segment
of that, which was never closed, and the first one of the next may have the same id.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import eq
from typing import Any, Protocol, overload

from ..bytes.records import Data, Record


class Part(Protocol):
    """Some of the data of a segment. Each iteration may create new objects."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[bytes]: ...


class Records(Sequence[bytes]):
    """The data of a segment, in order: an immutable sequence that is equal to a list of the same bytes.

    An iteration creates one record at a time. Access by index creates a list of all records, which stays in memory.
    """

    __slots__ = ("_listed", "_parts")

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts = list(parts)
        self._listed: list[bytes] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[bytes]:
        return chain.from_iterable(self._parts)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if self._listed is None:
            self._listed = list(self)
            self._parts = [self._listed]
        return self._listed[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Records | list):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __add__(self, other: Iterable[bytes]) -> list[bytes]:
        return [*self, *other]

    def __radd__(self, other: Iterable[bytes]) -> list[bytes]:
        return [*other, *self]

    def __reduce__(self) -> tuple[type[Records], tuple[list[list[bytes]]]]:
        return Records, ([list(self)],)

    def __repr__(self) -> str:
        return repr(list(self))


@dataclass(slots=True)
class Segment:
    """The data of one segment. A recovery never returns `checked` segments.

    `generation` distinguishes segments with the same id: None for segments written since the journal was last opened,
    otherwise the id of the file after those that were put aside together. It is not compared.
    """

    id: int
    records: Sequence[bytes] = field(default_factory=list)
    complete: bool = False
    checked: bool = False
    generation: int | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The unique name of the segment in the journal."""
        return str(self.id) if self.generation is None else f"{self.generation}/{self.id}"

    def as_json(self) -> dict[str, Any]:
        """The segment as `state --json` prints it where nothing waits to be recovered: without its generation."""
        return {"id": self.id, **self.described()}

    def described(self) -> dict[str, Any]:
        """A description without the name."""
        records = [base64.b64encode(record).decode() for record in self.records]
        return {"complete": self.complete, "checked": self.checked, "records": records}


class Segments:
    """Makes the segments of one generation from its records, in order. `checked` and `current` are the last pair.

    Ids only grow. `went_back` is set once they did not: then some ids are wrong, and it is unknown which. `add` and
    `turn` take the records; `lose` says that something was left out. `finish` returns the last segment.
    """

    def __init__(self, generation: int | None = None) -> None:
        self.generation = generation
        self.checked = 0
        self.current: int | None = None
        self.went_back = False
        self._repaired: tuple[tuple[int, int], ...] = ()
        self._parts: list[Part] = []
        self._lost = False
        self._is_doubtful = False
        self._damaged: list[int] = []

    def add(self, data: Part) -> None:
        """The next data, which is ours from now on."""
        if len(data):
            self._parts.append(data)

    def turn(self, checked: int, current: int) -> Segment | None:
        """The next checkpoint; the segment that it closes."""
        before, self.current = self.current, current
        if before is not None and (current < before or checked < self.checked):
            self.went_back = True
        self.checked = checked
        if before == current:
            return None
        if before is None:  # data before the first checkpoint belongs to no known segment
            self._parts, self._lost = [], self._is_doubtful
            return None
        if current != before + 1:
            self.lose()
        found = self._closed(before, complete=True)
        return found if current == before + 1 or len(found.records) else None

    @property
    def pair(self) -> tuple[int, int] | None:
        """The last pair; None before the first one."""
        return None if self.current is None else (self.checked, self.current)

    @property
    def is_exact(self) -> bool:
        """Whether no checkpoint can have followed the last pair that could not be read."""
        return not self._lost

    def all_damaged(self) -> list[int]:
        """The segments that something is missing of, by what could be read."""
        return [*self._damaged, *([self.current or 0] if self._lost else [])]

    def lose(self) -> None:
        """Something could not be read here: what it belonged to is not complete."""
        self._lost = True

    def begin_file(self, lost: tuple[tuple[int, int], ...], *, is_doubtful: bool = False) -> None:
        """The next file; these segments, first and last, have lost records by a repair, or with files before this one.

        If it `is_doubtful`, records of it are missing anywhere: none of its segments is complete.
        """
        self._repaired = tuple({*self._repaired, *lost})
        self._lost |= self._is_doubtful or is_doubtful
        self._is_doubtful = is_doubtful

    def finish(self) -> Segment | None:
        """The segment that nothing has closed, unless it is empty."""
        return self._closed(self.current or 0, complete=False) if self._parts else None

    def _closed(self, segment: int, *, complete: bool) -> Segment:
        is_repaired = any(first <= segment <= last for first, last in self._repaired)
        is_whole = complete and not self._lost and not is_repaired
        if self._lost:
            self._damaged.append(segment)
        found = Segment(segment, Records(self._parts), is_whole, generation=self.generation)
        self._parts, self._lost = [], self._is_doubtful
        return found


def replay(records: Iterable[Record]) -> list[Segment]:
    """The segments of the records of one generation, checked ones among them."""
    segments = Segments()
    found = list(_each(segments, records))
    for segment in found:
        segment.checked = segment.id < segments.checked
    return found


def difference(before: list[Segment], after: list[Segment]) -> dict[str, Any]:
    """The segments that came, that went, and that were added to, closed or checked, by their names.

    A segment that is written since the journal was opened last is called by its id, others by `GENERATION/ID`.
    """
    old, new = ({segment.name: segment for segment in segments} for segments in (before, after))
    return {
        "added": {name: segment.described() for name, segment in new.items() if name not in old},
        "changed": {
            name: {"before": old[name].described(), "after": segment.described()}
            for name, segment in new.items()
            if name in old and segment != old[name]
        },
        "removed": {name: segment.described() for name, segment in old.items() if name not in new},
    }


def _each(segments: Segments, records: Iterable[Record]) -> Iterator[Segment]:
    gathered: list[bytes] = []
    for record in records:
        if isinstance(record, Data):
            gathered.append(record.data)
            continue
        segments.add(gathered)
        gathered = []
        closed = segments.turn(record.checked, record.current)
        if closed is not None:
            yield closed
    segments.add(gathered)
    last = segments.finish()
    if last is not None:
        yield last
