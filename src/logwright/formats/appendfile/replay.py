"""Records -> the segments that they stand for.

A segment is the data between two checkpoints. One that the next checkpoint has closed is complete; the last one, which
is still being written, is not, and neither is one that records or checkpoints are missing of. A segment is checked once
the journal says that a later one is the oldest that is not.

Segments are told generation by generation: ids of segments go on counting where those of the generation before ended,
so that its last one, which was never closed, and the first one of the next may have the same id.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .records import Checkpoint, Data, Record


@dataclass(slots=True)
class Segment:
    """The data of one segment. `checked` ones come only where the whole journal is asked for, never in a recovery.

    `generation` tells segments with the same id apart: None for one that is written since the journal was opened last,
    and else the id of the file behind those that were put aside together. It is not compared.
    """

    id: int
    records: list[bytes] = field(default_factory=list)
    complete: bool = False
    checked: bool = False
    generation: int | None = field(default=None, compare=False)

    def as_json(self) -> dict[str, Any]:
        """The segment as `state --json` prints it where nothing waits to be recovered: without its generation."""
        records = [base64.b64encode(record).decode() for record in self.records]
        return {"id": self.id, "complete": self.complete, "checked": self.checked, "records": records}


class Segments:
    """Makes segments of one generation out of what is read of it, in order. `checked` and `current` are the last pair.

    Ids only grow. `went_back` is set once they did not: then some of them are wrong, and nobody knows which.
    `add` and `turn` are given what lies in the files; `lose` that something was left out. `finish` gives the last one.
    """

    def __init__(self, generation: int | None = None) -> None:
        self.generation = generation
        self.checked = 0
        self.current: int | None = None
        self.went_back = False
        self._repaired: set[int] = set()
        self._records: list[bytes] = []
        self._lost = False

    def add(self, records: list[bytes]) -> None:
        """The next data; the list is ours from now on."""
        if self._records:
            self._records += records
        else:
            self._records = records

    def turn(self, checked: int, current: int) -> Segment | None:
        """The next checkpoint; the segment that it closes."""
        before, self.current = self.current, current
        if before is not None and (current < before or checked < self.checked):
            self.went_back = True
        self.checked = checked
        if before == current:
            return None
        if before is None:  # what lies before the first checkpoint belongs to nothing that is known
            self._records, self._lost = [], False
            return None
        return self._closed(before, complete=current == before + 1)

    def lose(self) -> None:
        """Something could not be read here: what it belonged to is not complete."""
        self._lost = True

    def begin_file(self, lost: Iterable[int | None]) -> None:
        """The next file; a repair has taken records of these segments out of it. None is the one that goes on here."""
        for segment in lost:
            if segment is None:
                self.lose()
            else:
                self._repaired.add(segment)

    def finish(self) -> Segment | None:
        """The segment that nothing has closed, unless it is empty."""
        return self._closed(self.current or 0, complete=False) if self._records else None

    def _closed(self, segment: int, *, complete: bool) -> Segment:
        is_whole = complete and not self._lost and segment not in self._repaired
        found = Segment(segment, self._records, is_whole, generation=self.generation)
        self._records, self._lost = [], False
        return found


def replay(records: Iterable[Record]) -> list[Segment]:
    """The segments of the records of one generation, checked ones among them."""
    segments = Segments()
    found = list(_each(segments, records))
    for segment in found:
        segment.checked = segment.id < segments.checked
    return found


def _each(segments: Segments, records: Iterable[Record]) -> Iterator[Segment]:
    for record in records:
        if isinstance(record, Data):
            segments.add([record.data])
        else:
            assert isinstance(record, Checkpoint)
            closed = segments.turn(record.checked, record.current)
            if closed is not None:
                yield closed
    last = segments.finish()
    if last is not None:
        yield last
