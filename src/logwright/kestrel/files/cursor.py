"""Reading one file of a queue.

A `Cursor` returns chunks: a buffer and a range of it that holds only whole operations. Objects, columns, counts and
replays are all made from chunks, so validity is decided in one place. Files are read into a reused buffer and never
mapped: if another process truncates a mapped file, this process gets SIGBUS.

`continuation.py` finds where reading continues after bad bytes.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...core.bytes.outcome import Ending, Tail
from ...core.io.disk import File
from ...core.read.chunk import FileChunk
from ...errors import TooLarge
from ..bytes import codec, kernel
from .files import JournalFile

READ_BYTES: Final = 256 * 1024
"""Small enough to stay in a processor's second cache between being read and being decoded."""

_ENDINGS: Final = {
    codec.CLEAN: Ending.CLEAN,
    codec.INCOMPLETE: Ending.INCOMPLETE,
    codec.MALFORMED: Ending.MALFORMED,
    codec.DIALECT_NEEDED: Ending.MALFORMED,
}

Settle = Callable[[], int]
"""Says which dialect it is, once that matters."""


@dataclass(slots=True)
class Chunk(FileChunk):
    """Whole operations: `data[start:stop]` holds `count` of them, in a dialect that may be undecided still.

    `position` is where `start` is in the file. The buffer is valid until the cursor reads again. A `hollow` chunk is
    one large operation of which only the head is at hand: `stop` is beyond the buffer.
    """

    source: JournalFile
    dialect: int
    latest_added: int
    hollow: bool = False

    def starts(self) -> list[int]:
        """Where the operations begin in the file, and where the last one ends."""
        if self.hollow:
            return [self.position, self.end]
        base = self.base
        spans = kernel.spans(self.data, self.start, self.stop, self.count, self.dialect)
        return [base + start for start in spans]

    def effects(self) -> tuple[bytes, array[int], array[int]]:
        """What a replay needs of the operations: see `codec.effects`. Positions are those in the file."""
        if self.hollow:
            kind, number = codec.turn_at(self.data, self.start, self.dialect)
            return bytes([kind]), array("i", [number]), array("q", [self.position])
        return kernel.effects(self.data, self.start, self.stop, self.count, self.dialect, self.base)


class Cursor:
    """Goes through one file from the beginning of an operation on. After the file has grown it can continue.

    `dialect` may be UNDECIDED: then `settle` is asked where it matters, and without it the cursor ends there.
    """

    def __init__(
        self,
        file: File,
        source: JournalFile,
        position: int = 0,
        *,
        dialect: int,
        settle: Settle | None = None,
        end: int | None = None,
    ) -> None:
        self.file = file
        self.source = source
        self.position = position
        self.dialect = dialect
        self.ending = codec.CLEAN
        self.reason = ""
        self._settle = settle
        self._end = end
        self._chunk_start: int | None = None
        self._seen: int | None = None
        self._buffer = memoryview(bytearray(READ_BYTES))

    def read(self, most: int = -1, *, load: bool = True) -> Chunk | None:
        """The next whole operations, at most `most`; None when there are none, and `ending` says why.

        Without `load` the data of an operation that is larger than our buffer is not read: its chunk is hollow.
        """
        room = self._buffer
        chunk_start = self.position
        while True:
            if self._end is not None:
                room = room[: max(0, self._end - self.position)]
            have = self.file.read_into(self.position, room) if room else 0
            self._seen = self.position + have if have < len(room) else self._end
            stop, count, ending, latest = kernel.walk(room, 0, have, self.dialect, most)
            if count:
                chunk = Chunk(self.source, room, 0, stop, self.position, count, self.dialect, latest)
                self.position += stop
                self._chunk_start = chunk_start
                return chunk
            if ending == codec.DIALECT_NEEDED and self._settle is not None:
                self.dialect = self._settle()
                continue
            size = self._size_beyond(room, have) if ending == codec.INCOMPLETE and have == len(room) else None
            if size is None:
                self.ending = ending
                left = self._limit() - self.position
                self.reason = "" if ending == codec.CLEAN else codec.explain(room, 0, have, self.dialect, left)
                return None
            if not load:
                return self._hollow(room, have, size)
            room = _allocated(size, self.source, self.position)

    def _hollow(self, room: memoryview, have: int, size: int) -> Chunk:
        latest = codec.added_at(room, 0, self.dialect)
        chunk = Chunk(self.source, room[:have], 0, size, self.position, 1, self.dialect, latest, hollow=True)
        self._chunk_start = self.position
        self.position += size
        return chunk

    def last_starts(self, most: int) -> list[int]:
        """The positions of the last operations before the current position, at most this many."""
        start = self._chunk_start or 0  # if none was read, the operations before it are found from the first one on
        before = Cursor(self.file, self.source, start, dialect=self.dialect, settle=self._settle, end=self.position)
        last: deque[int] = deque(maxlen=most)
        while (chunk := before.read(load=False)) is not None:
            last.extend(chunk.starts()[:-1][-most:])
        return list(last)

    def seen_size(self) -> int:
        """How large the file was when `read` came to its end: a writer may be adding to it at this moment."""
        size = self.file.size()
        return size if self._seen is None else min(self._seen, size)

    def _limit(self) -> int:
        size = self.file.size()
        return size if self._end is None else min(self._end, size)

    def _size_beyond(self, room: memoryview, have: int) -> int | None:
        """The size of an operation that is larger than our buffer, if all of it is in the file."""
        size = codec.claimed_size(room, 0, have, self.dialect)
        return None if size is None or size <= len(room) or self.position + size > self._limit() else size

    def tail(self) -> Tail:
        """How the operations end here, after `read` has answered None."""
        return Tail(self.position, _ENDINGS[self.ending], self.reason)


def _allocated(size: int, source: JournalFile, position: int) -> memoryview:
    try:
        return memoryview(bytearray(size))
    except MemoryError:
        raise TooLarge(f"{source.path} @ {position}: there is no memory for an operation of {size} bytes") from None
