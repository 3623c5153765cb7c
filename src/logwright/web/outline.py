"""Outline: the rows of one journal, so that a table can scroll over millions of records and read only what it shows.

A row is the place of a record in its journal, from 0. Where records are numbered one by one, as in sej, row and number
differ by a constant, and times are found by the index. Elsewhere a number is a position in a file: one pass over the
journal notes the number of every 256th record, the times of all records in a histogram, and where bytes are damaged;
later calls read only what was appended. Memory is bounded: notes are thinned out when there are too many.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from threading import Lock
from typing import Any, Final

import pyarrow as pa

from ..arrow.rows import UNIFIED, fill, sources_of
from ..core.bytes.outcome import Damage
from ..core.format import Format, Located
from ..core.read.chunk_reader import ChunkReader, located
from ..core.read.splits import FileEntry

_STRIDE: Final = 256
_MOST_ANCHORS: Final = 1 << 16
_MOST_BUCKETS: Final = 4096
_MOST_DAMAGES: Final = 1000
_MOST_SAMPLES: Final = 1000
_PASS_SECONDS: Final = 0.4
"""How long a request reads before it answers with what is known so far."""
_WINDOW_ROWS: Final = 1 << 16
_SCANNED_ROWS: Final = 1000
"""Up to this number of rows, reading all of them is faster than looking up times."""
_NOTED: Final = pa.schema([UNIFIED.field(name) for name in ("timestamp_ns", "op", "position")])

AnyReader = ChunkReader[Any, Any]


@dataclass(frozen=True, slots=True)
class Bucket:
    """Records and bytes from `start` to `end` (ns). `row` is that of the first record, if it is known."""

    start: int
    end: int
    records: int
    bytes: int
    row: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {"ms": self.start // 1_000_000, "records": self.records, "bytes": self.bytes, "row": self.row}


@dataclass(slots=True)
class DamagedRange:
    """Damage as the page shows it."""

    damage: Damage
    row: int
    time: int | None

    def as_json(self) -> dict[str, Any]:
        found = self.damage
        when = None if self.time is None else self.time // 1_000_000
        place = {"file": found.file, "position": found.start, "size": found.size}
        return {**place, "kind": found.kind, "reason": found.reason, "row": self.row, "ms": when}


class Outline(ABC):
    """The rows of one journal, or of one part of it."""

    rows: int = 0
    is_complete: bool = True
    """Whether all of the journal is known."""
    share: float = 1.0
    """How much of the journal is known."""

    @abstractmethod
    def extend(self, reader: AnyReader) -> None:
        """Read what was appended, for a short time."""

    @abstractmethod
    def number_at(self, row: int) -> int:
        """The record number at which to begin reading to reach a row."""

    @abstractmethod
    def after(self, reader: AnyReader, item: Located) -> int:
        """The number of the record after this one; at the end, the number that the next record will get."""

    @abstractmethod
    def row_of(self, reader: AnyReader, number: int) -> int:
        """The row of the first record that has this number or a later one."""

    @abstractmethod
    def items(self, reader: AnyReader, row: int) -> Iterator[tuple[int, Located | Damage]]:
        """The records and the damage from a row on, each with its row."""

    @abstractmethod
    def windows(self, start: int | None) -> Iterator[tuple[int, int | None]]:
        """The numbers from `start` on, in ranges that are searched one by one."""

    @abstractmethod
    def buckets(self, reader: AnyReader, since: int | None, until: int | None, most: int) -> list[Bucket]:
        """Records and bytes over time, in at most this number of steps."""

    def placed(self, reader: AnyReader, damage: Damage, file: FileEntry) -> DamagedRange:
        """Damage with its row and the time before it, estimated by its place in its file."""
        if file.first is None or file.next is None or not file.bytes:
            return DamagedRange(damage, 0, None)
        number = file.first + min(1.0, damage.start / file.bytes) * (file.next - file.first)
        row = self.row_of(reader, int(number))
        near = (item for _, item in self.items(reader, max(0, row - 1)) if not isinstance(item, Damage))
        item = next(near, None)
        return DamagedRange(damage, row, None if item is None else time_of(reader, item))

    def series(self) -> list[dict[str, Any]]:
        """Counts of operations so far, at rows from the first to the last."""
        return []


def outline_of(format: Format) -> Outline:
    """A new outline for a journal of this format."""
    return NumberedOutline(format) if format.splits.prunes_numbers else CountedOutline(format)


# --- records that are numbered one by one ---------------------------------------------------------------------------


class NumberedOutline(Outline):
    """Rows of consecutive numbers. A missing record leaves its row empty."""

    def __init__(self, format: Format) -> None:
        self._format = format
        self.first = 0
        self._files: list[tuple[int, int, int]] = []

    def extend(self, reader: AnyReader) -> None:
        found = list(self._format.splits.extent(reader).values())
        self.first, after = found[0] if found else (0, 0)
        self.rows = after - self.first
        inventory = self._format.splits.inventory(reader)
        self._files = [
            (file.first, file.next, file.bytes)
            for file in inventory.files
            if file.first is not None and file.next is not None and file.next > file.first
        ]

    def number_at(self, row: int) -> int:
        return self.first + row

    def after(self, reader: AnyReader, item: Located) -> int:
        return reader.number_of(item)[1] + 1

    def row_of(self, reader: AnyReader, number: int) -> int:
        return min(max(0, number - self.first), self.rows)

    def items(self, reader: AnyReader, row: int) -> Iterator[tuple[int, Located | Damage]]:
        at = row
        for item in reader.scan(self.first + row, self.first + self.rows, mode="permissive"):
            if not isinstance(item, Damage):
                at = reader.number_of(item)[1] - self.first
            yield at, item
            at += 1

    def windows(self, start: int | None) -> Iterator[tuple[int, int | None]]:
        low, end = self.first if start is None else start, self.first + self.rows
        while low < end:
            yield low, min(end, low + _WINDOW_ROWS)
            low += _WINDOW_ROWS

    def buckets(self, reader: AnyReader, since: int | None, until: int | None, most: int) -> list[Bucket]:
        span = _span(reader, self) if since is None or until is None else (since, until)
        if span is None:
            return []
        low, high = (span[0] if since is None else since), (span[1] + 1 if until is None else until)
        step = max(1, -(-(high - low) // most))
        edges = [low + step * number for number in range(-(-(high - low) // step) + 1)]
        rows = self._rows_at(reader, edges)
        return [
            Bucket(
                edge, edge + step, max(0, after - row), max(0, self._bytes_before(after) - self._bytes_before(row)), row
            )
            for edge, row, after in zip(edges, rows, rows[1:], strict=False)
        ]

    def _rows_at(self, reader: AnyReader, edges: list[int]) -> list[int]:
        """The rows at increasing times. Times between two that have the same row are not looked up."""
        if self.rows <= _SCANNED_ROWS:
            timed = [
                (time_of(reader, item), row) for row, item in self.items(reader, 0) if not isinstance(item, Damage)
            ]
            known = [(when, row) for when, row in timed if when is not None]
            latest = list(accumulate((when for when, _ in known), max))
            rows = [*(row for _, row in known), self.rows]
            return [rows[bisect_left(latest, edge)] for edge in edges]
        found: dict[int, int] = {}

        def look(at: int) -> int:
            if at not in found:
                number = reader.find_time(edges[at])
                assert isinstance(number, int), "a part is read, not several"
                found[at] = self.row_of(reader, number)
            return found[at]

        def between(low: int, high: int) -> None:
            if high - low < 2:
                return
            if look(low) >= look(high):
                found.update(dict.fromkeys(range(low + 1, high), look(low)))
                return
            middle = (low + high) // 2
            look(middle)
            between(low, middle)
            between(middle, high)

        between(0, len(edges) - 1)
        return [look(at) for at in range(len(edges))]

    def _bytes_before(self, row: int) -> int:
        """The bytes before a row: exact at the edges of files, estimated within a file."""
        number, total = self.first + row, 0
        for first, after, size in self._files:
            if number >= after:
                total += size
            elif number > first:
                total += size * (number - first) // (after - first)
        return total


def _span(reader: AnyReader, outline: Outline) -> tuple[int, int] | None:
    """The times of the first and the last record that have one."""
    near = [time_of(reader, item) for _, item in zip(range(8), reader.scan(mode="dropmalformed"), strict=False)]
    last = [time_of(reader, item) for _, item in _last_items(reader, outline)]
    first_known, last_known = [t for t in near if t is not None], [t for t in last if t is not None]
    if not first_known or not last_known:
        return None
    return min(*first_known, *last_known), max(*first_known, *last_known)


def _last_items(reader: AnyReader, outline: Outline) -> Iterator[tuple[int, Located]]:
    for row, item in outline.items(reader, max(0, outline.rows - 8)):
        if not isinstance(item, Damage):
            yield row, item


def time_of(reader: AnyReader, item: Located) -> int | None:
    """The time of a record in nanoseconds, if it has one."""
    return time_in(reader.as_json(item), reader.time_scale)


def time_in(fields: dict[str, Any], scale: int) -> int | None:
    """The time in the fields of `dump --json`, in nanoseconds."""
    if fields.get("timestamp") is not None:
        return int(fields["timestamp"]) * scale
    if fields.get("added") is not None:
        return int(fields["added"]) * 1_000_000
    found = fields.get("t", fields.get("initialized"))
    return None if found is None else int(found)


# --- records that are numbered by file and position -------------------------------------------------------------------


@dataclass(slots=True)
class _Histogram:
    """Records and bytes over time, in steps whose width doubles when there are too many of them."""

    width: int = 1_000_000
    found: dict[int, list[int]] = field(default_factory=dict)

    def add(self, when: int, size: int, row: int) -> None:
        both = self.found.get(when // self.width)
        if both is None:
            self.found[when // self.width] = [1, size, row]
            if len(self.found) > _MOST_BUCKETS:
                self._widen()
        else:
            both[0] += 1
            both[1] += size

    def _widen(self) -> None:
        self.width *= 2
        wider: dict[int, list[int]] = {}
        for at, (records, size, row) in self.found.items():
            both = wider.setdefault(at // 2, [0, 0, row])
            both[0] += records
            both[1] += size
            both[2] = min(both[2], row)
        self.found = wider


class CountedOutline(Outline):
    """Rows that are counted in one pass. Damage takes a row of its own."""

    def __init__(self, format: Format) -> None:
        self._format = format
        self._lock = Lock()
        self._forget()

    def _forget(self) -> None:
        self.is_complete = False
        self.rows = 0
        self._next: int | None = None
        self._first: int | None = None
        self._anchors: list[tuple[int, int]] = []
        self._stride = _STRIDE
        self._histogram = _Histogram()
        self._damages: list[DamagedRange] = []
        self._counts: Counter[str] = Counter()
        self._series: list[dict[str, Any]] = []
        self._sample_rows = 1
        self._sampled_at = 0
        self._latest: int | None = None

    def extend(self, reader: AnyReader) -> None:
        with self._lock:
            extent = list(self._format.splits.extent(reader).values())
            if not extent:
                self._forget()
                self.is_complete = True
                return
            first, after = extent[0]
            is_other = self._first is not None and first != self._first
            if is_other or (self._next is not None and after < self._next):
                self._forget()  # files were removed or replaced
            self._first = first
            self._read_on(reader, after)

    def _read_on(self, reader: AnyReader, after: int) -> None:
        deadline = time.monotonic() + _PASS_SECONDS
        total = max(1, reader.total_bytes())
        done = [0]
        start = self._next
        if start is not None and start >= after:
            self.is_complete, self.share = True, 1.0
            return
        how = {} if start is None else dict(reader.resumed_by)
        for item in reader.chunks(
            start, after, mode="permissive", progress=lambda at, _: done.__setitem__(0, at), **how
        ):
            if isinstance(item, Damage):
                self._note_damage(item)
                continue
            self._note(reader, item)
            if time.monotonic() > deadline:
                self.is_complete = self._next == after
                self.share = min(1.0, done[0] / total)
                return
        self._next = after
        self._sample(self.rows)
        self.is_complete, self.share = True, 1.0  # last: other threads look at it without the lock

    def _note(self, reader: AnyReader, chunk: Any) -> None:
        starts = chunk.starts()
        number = chunk.first_number
        base = starts[0]
        for at in range((-self.rows) % self._stride, chunk.count, self._stride):
            self._anchor(self.rows + at, number + starts[at] - base)
        seen = -1
        for when, op, position in zip(*(column.to_pylist() for column in self._columns(chunk)), strict=True):
            at = bisect_right(starts, position) - 1
            if self.rows + at >= self._sampled_at:
                self._sample(self.rows + at)
            self._counts[op or ""] += 1
            if at != seen and when is not None:  # not another operation of the same transaction
                self._latest = when
                self._histogram.add(when, starts[at + 1] - starts[at], self.rows + at)
            seen = at
        self.rows += chunk.count
        self._next = number + starts[chunk.count] - base

    def _columns(self, chunk: Any) -> list[pa.Array]:
        names = sources_of(_NOTED.names, self._format.name, sharded=False)
        collector = self._format.columns.collector(names, batch_bytes=1 << 30)
        batches = [*collector.add(chunk, ""), *collector.finish()]
        filled = [fill(_NOTED, batch, self._format.name, "") for batch in batches]
        table = pa.Table.from_batches(filled, _NOTED).combine_chunks()
        return [table.column(name) for name in _NOTED.names]

    def _anchor(self, row: int, number: int) -> None:
        self._anchors.append((row, number))
        if len(self._anchors) > _MOST_ANCHORS:
            self._anchors = self._anchors[::2]
            self._stride *= 2

    def _note_damage(self, damage: Damage) -> None:
        if len(self._damages) < _MOST_DAMAGES and damage not in [known.damage for known in self._damages[-4:]]:
            self._damages.append(DamagedRange(damage, self.rows, self._latest))

    def _sample(self, row: int) -> None:
        self._series.append({"row": row, "time": self._latest, **self._counts})
        if len(self._series) > _MOST_SAMPLES:
            self._series = self._series[::2]
            self._sample_rows *= 2
        self._sampled_at = row + self._sample_rows

    # --- what is known ------------------------------------------------------------------------------------------------

    def number_at(self, row: int) -> int:
        return self._before(row)[1]

    def _before(self, row: int) -> tuple[int, int]:
        at = bisect_right(self._anchors, row, key=lambda anchor: anchor[0]) - 1
        return self._anchors[at] if at >= 0 else (0, self._first or 0)

    def after(self, reader: AnyReader, item: Located) -> int:
        return reader.number_of(item)[1] + item.span.size

    def row_of(self, reader: AnyReader, number: int) -> int:
        at = bisect_right(self._anchors, number, key=lambda anchor: anchor[1]) - 1
        if at < 0:
            return 0
        row, start = self._anchors[at]
        for item in reader.chunks(start, number, mode="dropmalformed", **reader.resumed_by):
            assert not isinstance(item, Damage), "it is skipped"
            row += item.count
        return row

    def items(self, reader: AnyReader, row: int) -> Iterator[tuple[int, Located | Damage]]:
        at, number = self._before(row)
        how = dict(reader.resumed_by) if at else {}
        for item in reader.chunks(number if at else None, self._next, mode="permissive", **how):
            if isinstance(item, Damage):
                if at >= row:
                    yield at, item
                continue
            if at + item.count > row:
                for found in located(item, reader.decoded(item)):
                    if at >= row:
                        yield at, found
                    at += 1
            else:
                at += item.count

    def windows(self, start: int | None) -> Iterator[tuple[int, int | None]]:
        numbers = [number for row, number in self._anchors if row % _WINDOW_ROWS == 0 and number > (start or 0)]
        low = start if start is not None else self._first or 0
        for high in [*numbers, None]:
            yield low, high
            low = high or 0

    def buckets(self, reader: AnyReader, since: int | None, until: int | None, most: int) -> list[Bucket]:
        known = sorted(self._histogram.found.items())
        width = self._histogram.width
        inside = [
            (at * width, counted)
            for at, counted in known
            if (since is None or (at + 1) * width > since) and (until is None or at * width < until)
        ]
        if not inside:
            return []
        low = inside[0][0] if since is None else since
        high = inside[-1][0] + width if until is None else until
        step = max(1, -(-(high - low) // most))
        merged: dict[int, list[int]] = {}
        for start, (records, size, row) in inside:
            both = merged.setdefault(max(0, start - low) // step, [0, 0, row])
            both[0] += records
            both[1] += size
            both[2] = min(both[2], row)
        steps = range(-(-(high - low) // step))
        counts = ((low + at * step, merged.get(at)) for at in steps)
        return [Bucket(start, start + step, *(found or (0, 0))) for start, found in counts]

    def placed(self, reader: AnyReader, damage: Damage, file: FileEntry) -> DamagedRange:
        known = (one for one in self._damages if (one.damage.file, one.damage.start) == (damage.file, damage.start))
        return next(known, DamagedRange(damage, self.rows, self._latest))

    def series(self) -> list[dict[str, Any]]:
        return self._series
