"""The items of a queue that are not done, as Arrow data in the order of their numbers, in memory or in temporary files.

    item            its number in the queue, from 0
    data            its data
    added, expires  in milliseconds; null if unknown, or if it never expires
    changes         its changes, in order: what (see `EVENTS`), file, position, xid (0 for none)

Items leave a queue in the order in which they were added. So those that were never reserved are a run of consecutive
numbers, which grows at its end and shrinks at its beginning. The others are *held*: they are reserved, or were put
back. There are usually few of them, and they are rewritten when they change.

Both are stored in segments of some MiB. Beyond `memory_bytes`, segments are written to temporary files, and read again
one at a time.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...core.io.disk import REAL_DISK, make_directories, write_all
from ..model.replay import EVENTS

CHANGE: Final = pa.struct(
    [("what", pa.int8()), ("file", pa.string()), ("position", pa.int64()), ("xid", pa.int32())],
)
ITEMS: Final = pa.schema(
    [
        ("item", pa.int64()),
        ("data", pa.binary()),
        ("added", pa.int64()),
        ("expires", pa.int64()),
        ("changes", pa.list_(CHANGE)),
    ]
)
SEGMENT_BYTES: Final = 4 << 20
MEMORY_BYTES: Final = 64 << 20
_MOST_BATCHES: Final = 64
"""The most batches of a segment before they are joined: a batch needs more memory than a few rows."""
_RESERVED: Final = EVENTS.index("reserved")


def last_changes(changes: pa.ListArray) -> pa.Array:
    """The last change of each item."""
    offsets = changes.offsets
    return changes.values.field("what").take(pc.subtract(offsets[1:], 1))


def _waiting_expiries(items: pa.RecordBatch) -> pa.Array:
    """The expiry times of the items that are not reserved."""
    expires = items.column("expires")
    if expires.null_count == len(expires):
        return expires
    return expires.filter(pc.not_equal(last_changes(items.column("changes")), _RESERVED))


class _Segment:
    """Items with numbers from `first` to `last`, perhaps not all of them; in memory until they are spilled."""

    def __init__(self, items: pa.RecordBatch) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._path: Path | None = None
        self._expiries: tuple[int, int] | None = None
        """The first and the last expiry of the waiting items."""
        self.first: int = items.column("item")[0].as_py()
        self.last = self.first
        self.bytes = 0
        self.append(items)

    @property
    def is_spilled(self) -> bool:
        return self._path is not None

    def append(self, items: pa.RecordBatch) -> None:
        """Add items with greater numbers."""
        self._batches.append(items)
        if len(self._batches) > _MOST_BATCHES:
            self._batches = [self.items()]
        self.last = items.column("item")[-1].as_py()
        self.bytes += items.nbytes
        found = pc.min_max(_waiting_expiries(items))
        if found["min"].is_valid:
            first, last = found["min"].as_py(), found["max"].as_py()
            known = self._expiries or (first, last)
            self._expiries = min(first, known[0]), max(last, known[1])

    def items(self) -> pa.RecordBatch:
        batches = self._batches if self._path is None else _read(self._path)
        return _joined(batches)

    def take(self) -> pa.RecordBatch:
        """The items of the segment, which is removed."""
        items = self.items()
        self.remove()
        return items

    def expiry_after(self, now: int | None) -> int | None:
        if self._expiries is None or now is None or self._expiries[0] > now:
            return self._expiries and self._expiries[0]
        if self._expiries[1] <= now:
            return None
        expiries = _waiting_expiries(self.items())
        found: int = pc.min(expiries.filter(pc.greater(expiries, now))).as_py()
        return found

    def spill(self, path: Path) -> None:
        """Move the items to a file."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, ITEMS) as writer:
            for batch in self._batches:
                writer.write_batch(batch)
        file = REAL_DISK.open(path, "create")
        try:
            write_all(file, 0, memoryview(sink.getvalue()).cast("B"))
        finally:
            file.close()
        self._batches, self._path = [], path

    def remove(self) -> None:
        """Remove the file, if there is one."""
        if self._path is not None:
            REAL_DISK.remove(self._path)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _read(path: Path) -> list[pa.RecordBatch]:
    file = REAL_DISK.open(path, "read")
    try:
        data = file.read_at(0, file.size())
    finally:
        file.close()
    return list(pa.ipc.open_stream(data))


class Backlog:
    """The items of a queue that are not done. Temporary files are in the directory `scratch`."""

    def __init__(self, scratch: Path, memory_bytes: int = MEMORY_BYTES, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._prefix = scratch / f"queue-{secrets.token_hex(8)}"
        self._files = 0
        self._memory_bytes = memory_bytes
        self._segment_bytes = segment_bytes
        self._held: deque[_Segment] = deque()
        self._run: deque[_Segment] = deque()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """All items, in the order of their numbers."""
        found: list[pa.RecordBatch] = []
        for segment in chain(self._held, self._run):
            if found and segment.bytes + sum(items.nbytes for items in found) > self._segment_bytes:
                yield _joined(found)
                found = []
            found.append(segment.items())
        if found:
            yield _joined(found)

    @property
    def bytes(self) -> int:
        """The size of all items."""
        return sum(segment.bytes for segment in chain(self._held, self._run))

    def expiry_after(self, now: int | None) -> int | None:
        """The earliest time after `now` at which a waiting item expires; None if there is none."""
        found = (segment.expiry_after(now) for segment in chain(self._held, self._run))
        return min((expiry for expiry in found if expiry is not None), default=None)

    def push(self, items: pa.RecordBatch) -> None:
        """Add items at the end of the run."""
        self._append(self._run, items)

    def hold(self, items: pa.RecordBatch) -> None:
        """Add held items; their numbers are greater than those of all other held items."""
        self._append(self._held, items)

    def take(self, numbers: pa.Array, popped: int) -> Iterator[pa.RecordBatch]:
        """Remove the held items of these numbers, which are sorted, and the first `popped` items of the run.

        They are returned in order, together with other held items. Before it asks for the next batch, the caller must
        `hold` those that are not done.
        """
        held, self._held = self._held, deque()
        firsts = pc.search_sorted(numbers, pa.array([segment.first for segment in held], pa.int64()), side="left")
        lasts = pc.search_sorted(numbers, pa.array([segment.last for segment in held], pa.int64()), side="right")
        for segment, is_untouched in zip(held, pc.equal(firsts, lasts).to_pylist(), strict=True):
            if not is_untouched:
                yield segment.take()
            elif self._fits(self._held, segment.bytes) and not segment.is_spilled:
                self._held[-1].append(segment.items())
            else:
                self._held.append(segment)
        while popped:
            items = self._run.popleft().take()
            if items.num_rows > popped:
                self._run.appendleft(_Segment(items.slice(popped)))
                items = items.slice(0, popped)
            popped -= items.num_rows
            yield items

    def _append(self, segments: deque[_Segment], items: pa.RecordBatch) -> None:
        if not items.num_rows:
            return
        if self._fits(segments, items.nbytes):
            segments[-1].append(items)
        else:
            segments.append(_Segment(items))
            self._spill()

    def _fits(self, segments: deque[_Segment], size: int) -> bool:
        """Whether the last segment has space for this many bytes."""
        return bool(segments) and not segments[-1].is_spilled and segments[-1].bytes + size <= self._segment_bytes

    def _spill(self) -> None:
        """Spill the segments that will be needed last, but not those that grow."""
        growing = [segments[-1] for segments in (self._held, self._run) if segments]
        found = [segment for segment in chain(self._held, self._run) if not segment.is_spilled]
        size = sum(segment.bytes for segment in found)
        while size > self._memory_bytes and found:
            segment = found.pop()
            if segment not in growing:
                if not self._files:
                    make_directories(REAL_DISK, self._prefix.parent)
                self._files += 1
                segment.spill(self._prefix.with_name(f"{self._prefix.name}-{self._files}"))
                size -= segment.bytes

    def close(self) -> None:
        """Remove all temporary files."""
        for segment in chain(self._held, self._run):
            segment.remove()
