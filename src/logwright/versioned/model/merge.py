"""Merge: runs of entries in the order of their times, each in one file, become one journal.

Merging reads a piece of each run at a time, so the memory that it needs does not depend on how long the runs are. Of
equal times the entries of an earlier run come first, and those of one run keep their order. What is stored together
stays together: a stretch of entries that no other run has one between is copied as it is, so runs that hardly overlap
cost little more than reading and writing them.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...core.io.disk import Disk, File, write_all
from ...errors import DamagedJournal
from ..bytes import codec, kernel
from ..bytes.codec import Buffer
from ..bytes.records import Metadata
from .rotation import head_bytes

_MEMORY_BYTES: Final = 32 << 20
"""What the pieces of all runs have together, unless there are very many."""
_LEAST_PIECE_BYTES: Final = 4 << 10
_MOST_PIECE_BYTES: Final = 1 << 20
_WRITE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """The entries between two positions of a file, which are in the order of their times."""

    path: Path
    start: int
    stop: int

    @property
    def bytes(self) -> int:
        return self.stop - self.start


def write_head(file: File, initialized: int, position: int) -> int:
    """Write what is before the first entry of a journal; where that goes."""
    head = codec.encode_header(position) + codec.encode_metadata(Metadata(initialized))
    write_all(file, 0, head)
    return len(head)


def write_merged(disk: Disk, path: Path, initialized: int, runs: Sequence[Run]) -> int:
    """Make a journal of the entries of runs, synced but for its name; its size."""
    file = disk.open(path, "create")
    try:
        size = head_bytes(initialized) + sum(run.bytes for run in runs)
        output = _Output(file, write_head(file, initialized, size))
        merge(disk, runs, output.put)
        output.write()
        if output.size != size:
            raise DamagedJournal(path, output.size, f"there should be {size} bytes of merged entries")
        file.sync()
        return size
    finally:
        file.close()


def merge(disk: Disk, runs: Sequence[Run], put: Callable[[Buffer], None], *, memory_bytes: int = _MEMORY_BYTES) -> None:
    """Hand out the entries of all runs, stretch by stretch, in the order of their times."""
    piece_bytes = max(_LEAST_PIECE_BYTES, min(_MOST_PIECE_BYTES, memory_bytes // max(1, len(runs))))
    fronts = [_Front(disk, run, order, piece_bytes) for order, run in enumerate(runs)]
    waiting = [(front.time, front.order) for front in fronts if front.load()]
    heapq.heapify(waiting)
    while waiting:
        front = fronts[heapq.heappop(waiting)[1]]
        put(front.take(waiting[0] if waiting else None))
        if front.load():
            heapq.heappush(waiting, (front.time, front.order))


class _Front:
    """The piece of a run that is being merged: entries from `row` on are still to come."""

    def __init__(self, disk: Disk, run: Run, order: int, piece_bytes: int) -> None:
        self.order = order
        self._disk = disk
        self._run = run
        self._at = run.start
        self._piece_bytes = piece_bytes
        self._data = b""
        self._row = self._count = 0

    @property
    def time(self) -> int:
        """That of the next entry."""
        return self._times[self._row]

    def load(self) -> bool:
        """See to it that there is a next entry; False at the end of the run."""
        if self._row < self._count:
            return True
        left = self._run.stop - self._at
        if not left:
            return False
        size = min(left, self._piece_bytes)
        while True:
            self._data = self._read(size)
            end, self._count, _, _, _ = kernel.walk(self._data, 0, len(self._data))
            if self._count:
                break
            if size >= left or len(self._data) < size:
                reason = codec.explain(self._data, 0, len(self._data))
                raise DamagedJournal(self._run.path, self._at, f"what was staged is no entry: {reason}")
            size = min(left, 2 * size)  # an entry that is larger than a piece
        columns = kernel.columns(self._data, 0, end, self._count, codec.TIMESTAMPS)
        assert columns.timestamps is not None
        self._times = memoryview(columns.timestamps).cast("B")[: 8 * self._count].cast("Q")
        self._starts = kernel.spans(self._data, 0, end, self._count)
        self._row = 0
        self._at += end
        return True

    def _read(self, size: int) -> bytes:
        """A piece of the file, which is open for no longer: there may be more runs than a process may have open."""
        file = self._disk.open(self._run.path, "read")
        try:
            return file.read_at(self._at, size)
        finally:
            file.close()

    def take(self, limit: tuple[int, int] | None) -> Buffer:
        """The entries that come before the next one of another run, which has this time and order; one at least."""
        first = self._row
        if limit is None:
            self._row = self._count
        else:
            find = bisect_right if self.order < limit[1] else bisect_left
            self._row = find(self._times, limit[0], first, self._count)
        return memoryview(self._data)[self._starts[first] : self._starts[self._row]]


class _Output:
    """Bytes on their way to a file, gathered so that few calls write them."""

    def __init__(self, file: File, size: int) -> None:
        self.size = size
        self._file = file
        self._gathered = bytearray()

    def put(self, data: Buffer) -> None:
        self._gathered += data
        if len(self._gathered) >= _WRITE_BYTES:
            self.write()

    def write(self) -> None:
        write_all(self._file, self.size, self._gathered)
        self.size += len(self._gathered)
        self._gathered = bytearray()
