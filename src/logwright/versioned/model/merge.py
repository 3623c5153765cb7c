"""Merge: makes one journal from several runs of entries, each sorted by time and in one file.

Merging reads a piece of each run at a time, so its memory does not depend on the length of the runs. On equal times the
entries of an earlier run come first, and those of one run keep their order. Consecutive entries of one run are copied
together if no entry of another run comes between them, so runs that hardly overlap cost little more than a copy.
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
"""The total size of the pieces of all runs, unless there are very many runs."""
_LEAST_PIECE_BYTES: Final = 4 << 10
_MOST_PIECE_BYTES: Final = 1 << 20
_WRITE_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """The entries between two positions of a file, sorted by time."""

    path: Path
    start: int
    stop: int

    @property
    def bytes(self) -> int:
        return self.stop - self.start


def write_head(file: File, initialized: int, position: int) -> int:
    """Write the head of a journal; returns the position of the first entry."""
    head = codec.encode_header(position) + codec.encode_metadata(Metadata(initialized))
    write_all(file, 0, head)
    return len(head)


def write_merged(disk: Disk, path: Path, initialized: int, runs: Sequence[Run]) -> int:
    """Write the entries of runs to a journal, synced except for its name; returns its size."""
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
    """Yield the entries of all runs in the order of their times, in consecutive ranges."""
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
    """The piece of a run that is being merged: entries from `row` on are not merged yet."""

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
        """The time of the next entry."""
        return self._times[self._row]

    def load(self) -> bool:
        """Load the next piece if necessary; False at the end of the run."""
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
        """A piece of the file. The file is closed again: there may be more runs than a process can have open files."""
        file = self._disk.open(self._run.path, "read")
        try:
            return file.read_at(self._at, size)
        finally:
            file.close()

    def take(self, limit: tuple[int, int] | None) -> Buffer:
        """The entries before the next entry of another run, given by its time and order; at least one."""
        first = self._row
        if limit is None:
            self._row = self._count
        else:
            find = bisect_right if self.order < limit[1] else bisect_left
            self._row = find(self._times, limit[0], first, self._count)
        return memoryview(self._data)[self._starts[first] : self._starts[self._row]]


class _Output:
    """Collects bytes, so that few calls write them to a file."""

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
