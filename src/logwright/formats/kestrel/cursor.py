"""Going through one file of a queue, and finding the way past damage.

A `Cursor` hands out chunks: a buffer and a range of it that holds only whole operations. Objects, columns, counts and
replays are all made from chunks, so there is one place that judges what is valid. Files are read into a buffer that is
used again and again, never mapped: a map of a file that another process cuts short ends this one with SIGBUS.

The format has no marks to go on from after bad bytes, and nearly any byte can be read as an operation: a 1 removes an
item. So reading goes on only where something has the looks of an item that was added: an ADDX, ADD_XID or CONTINUE that
is whole, was added between 2000 and 2100, and expires then or never; the first one that is followed by another
operation or the end of the file, or the first one of all if none is. Where no item has such a time, one from 1970 on
will do, but only if everything from there to the end of the file can be read. Removals between the bad bytes and that
item are given up: an item that comes back is better than one that a made-up removal takes.

In the newest file bad bytes that nothing of this kind follows are a torn tail: what a crash leaves.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ...core.chunk import FileChunk
from ...core.disk import File
from ...core.errors import TooLarge
from ...core.outcome import Damage, Ending, Malformed, Tail
from . import codec, kernel
from .files import JournalFile
from .layout import ADDX_HEAD, CONTINUE_BYTE, KESTREL2, LONGEST_HEAD_BYTES, UNDECIDED

READ_BYTES: Final = 256 * 1024
"""Small enough to stay in a processor's second cache between being read and being decoded."""
_SEARCH_BYTES: Final = 1 << 20
_MOST_TRIES: Final = 16
"""From how many places the rest of a file is tried when no item has a plausible time."""

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
    one large operation of which only the head is at hand: `stop` lies beyond the buffer.
    """

    source: JournalFile
    data: memoryview
    start: int
    stop: int
    position: int
    count: int
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

    def turns(self) -> tuple[bytes, array[int], array[int]]:
        """What a replay needs of the operations: see `codec.turns`. Positions are those in the file."""
        if self.hollow:
            kind, number = codec.turn_at(self.data, self.start, self.dialect)
            return bytes([kind]), array("i", [number]), array("q", [self.position])
        return kernel.turns(self.data, self.start, self.stop, self.count, self.dialect, self.base)


class Cursor:
    """Goes through one file from the beginning of an operation on. After the file has grown it can go on.

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
        self._seen: int | None = None
        self._buffer = memoryview(bytearray(READ_BYTES))

    def read(self, most: int = -1, *, load: bool = True) -> Chunk | None:
        """The next whole operations, at most `most`; None when there are none, and `ending` says why.

        Without `load` the data of an operation that is larger than our buffer is not read: its chunk is hollow.
        """
        room = self._buffer
        while True:
            if self._end is not None:
                room = room[: max(0, self._end - self.position)]
            have = self.file.read_into(self.position, room) if room else 0
            self._seen = self.position + have if have < len(room) else self._end
            stop, count, ending, latest = kernel.walk(room, 0, have, self.dialect, most)
            if count:
                chunk = Chunk(self.source, room, 0, stop, self.position, count, self.dialect, latest)
                self.position += stop
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
        self.position += size
        return chunk

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


def judge(cursor: Cursor) -> tuple[Damage | None, bool]:
    """What is wrong where a cursor stopped short of the end of its file, and whether reading can go on behind it.

    The cursor is moved to where it goes on, or to the end. At the end of the file nothing is wrong.
    """
    if cursor.ending == codec.CLEAN:
        return None, False
    start, size = cursor.position, cursor.seen_size()
    found = find_next(cursor.file, cursor.source, start, size, cursor.dialect)
    name = cursor.source.name
    if found is not None:
        cursor.position = found
        return Damage(name, start, found, cursor.reason), True
    cursor.position = size
    return Damage(name, start, size, cursor.reason, "torn_tail" if cursor.source.is_newest else "malformed"), False


# --- behind damage --------------------------------------------------------------------------------------------------


def find_next(file: File, source: JournalFile, start: int, size_of_file: int, dialect: int) -> int | None:
    """Where operations go on behind bad bytes at `start`; None when nothing shows it. See the top of this file."""
    lonely: int | None = None
    for position in _candidates(file, start, size_of_file, dialect, anytime=False):
        if _is_followed(file, position, size_of_file, dialect):
            return position
        lonely = position if lonely is None else lonely
    if lonely is not None:
        return lonely
    tries = 0
    for position in _candidates(file, start, size_of_file, dialect, anytime=True):
        if not _is_followed(file, position, size_of_file, dialect):
            continue
        if _leads_to_end(file, source, position, size_of_file, dialect):
            return position
        tries += 1
        if tries == _MOST_TRIES:
            break
    return None


def _candidates(file: File, start: int, size_of_file: int, dialect: int, *, anytime: bool) -> Iterator[int]:
    """Where an operation that adds an item could begin, one place after the other."""
    position = start
    while size_of_file - position >= ADDX_HEAD.size:
        window = file.read_at(position, min(_SEARCH_BYTES, size_of_file - position))
        room = size_of_file - position
        at = kernel.find_add(window, 0, len(window), room, dialect, anytime)
        while at >= 0:
            yield position + at
            at = kernel.find_add(window, at + 1, len(window), room, dialect, anytime)
        if len(window) < LONGEST_HEAD_BYTES or position + len(window) >= size_of_file:
            return
        position += len(window) - (LONGEST_HEAD_BYTES - 1)


def _is_followed(file: File, position: int, size_of_file: int, dialect: int) -> bool:
    """Whether behind the operation at a position there is the end of the file or what can be another operation."""
    either = KESTREL2 if dialect == UNDECIDED else dialect
    head = file.read_at(position, LONGEST_HEAD_BYTES)
    size = codec.claimed_size(head, 0, len(head), either)
    if size is None or position + size > size_of_file:
        return False
    if position + size == size_of_file:
        return True
    head = file.read_at(position + size, LONGEST_HEAD_BYTES)
    if dialect == UNDECIDED and head[0] == CONTINUE_BYTE:
        return True
    try:
        codec.claimed_size(head, 0, len(head), either)
    except Malformed:
        return False
    return True


def _leads_to_end(file: File, source: JournalFile, position: int, size_of_file: int, dialect: int) -> bool:
    cursor = Cursor(file, source, position, dialect=dialect, end=size_of_file)
    while cursor.read(load=False) is not None:
        pass
    return cursor.ending == codec.CLEAN
