"""Going through one file of a journal, and finding the way past damage.

A `Cursor` hands out chunks: a buffer and a range of it that holds only whole records. Objects, columns, counts and
segments are all made from chunks, so there is one place that judges what is valid. Files are read into a buffer that is
used again and again, never mapped: a map of a file that another process cuts short ends this one with SIGBUS.

A file begins with a checkpoint record; if it does not, it begins with bad bytes. Behind bad bytes reading goes on at
the next checkpoint record, whose twenty bytes are no accident, and nowhere else: nearly anything can be read as data.
What is given up for that is the rest of a segment which has lost some of its records already.

In the last file bad bytes that no checkpoint record follows are a torn tail: what a crash leaves; unless one flipped
bit of a header explains them, and with it what follows is whole (see `mend.py`). There zeros are bad
bytes as well, although each four of them would be an empty record: up to the end of the file, right before other bad
bytes, and 32 of them or more anywhere. No writer of ours leaves an empty record; a power cut leaves zeros. The same
holds in any file behind its first 4 MiB, where nobody writes records.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from ...core.chunk import FileChunk
from ...core.disk import File, behind_hole
from ...core.outcome import Damage, Ending, Malformed, Tail
from . import codec, kernel
from .files import JournalFile
from .layout import CHECKPOINT, CHECKPOINT_BYTES, DATA, HEADER_BYTES, MAX_FILE_BYTES, MAX_ID, MAX_RECORD_BYTES
from .mend import find_fixes

READ_BYTES: Final = 256 * 1024
"""Small enough to stay in a processor's second cache between being read and being decoded."""
_FIRST_BYTES: Final = 512
"""So much is read at first behind damage, and then more: a file may be damaged in a great many places."""
assert READ_BYTES % _FIRST_BYTES == 0
_SEARCH_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(_SEARCH_BYTES)
_MOST_CHECKPOINTS: Final = MAX_FILE_BYTES // CHECKPOINT_BYTES
"""How many segments can begin in what is left of a file."""
_HOLE_BYTES: Final = 32
"""So many zeros are no empty records, but what never reached the disk."""
_NO_CHECKPOINT: Final = "a file begins with a checkpoint record, and this is none"

_ENDINGS: Final = {
    codec.CLEAN: Ending.CLEAN,
    codec.INCOMPLETE: Ending.INCOMPLETE,
    codec.MALFORMED: Ending.MALFORMED,
    codec.EMPTY: Ending.INCOMPLETE,
}


@dataclass(slots=True)
class Chunk(FileChunk):
    """Whole records: `data[start:stop]` holds `count` of them, the first of which lies in `segment`.

    `position` is where `start` is in the file. The buffer is valid until the cursor reads again.
    """

    source: JournalFile
    data: memoryview
    start: int
    stop: int
    position: int
    count: int
    segment: int

    def starts(self) -> list[int]:
        """Where the records begin in the file, and where the last one ends."""
        base = self.base
        return [base + start for start in kernel.spans(self.data, self.start, self.stop, self.count)]

    def has_data(self) -> bool:
        """Whether there is data among the records."""
        only_checkpoints = self.stop - self.start == self.count * CHECKPOINT_BYTES  # or data of the same size
        return not only_checkpoints or len(self.turns()[0]) < self.count

    def turns(self) -> tuple[array[int], array[int], array[int], array[int]]:
        """The checkpoints among the records: see `codec.turns`. Positions are those in the buffer."""
        return kernel.turns(self.data, self.start, self.stop, self.count)

    def _part(self, starts: Any, first: int, last: int) -> Self | None:
        part = FileChunk._part(self, starts, first, last)
        if part is None or first == 0:
            return part
        segment = kernel.walk(self.data, self.start, starts[first] - self.base, self.segment)[3]
        return replace(part, segment=segment)


class Cursor:
    """Goes through one file from the beginning of a record on, which lies in `segment`. It can go on in a larger file.

    `end` is where to stop although the file may be longer. `room` is a buffer to read into, for who goes through
    many files: larger than the file, or at least as large as the largest record.
    """

    def __init__(
        self,
        file: File,
        source: JournalFile,
        position: int = 0,
        *,
        segment: int = 0,
        end: int | None = None,
        room: memoryview | None = None,
    ) -> None:
        self.file = file
        self.source = source
        self.position = position
        self.begin = position
        """From where on all records were whole by now."""
        self.segment = segment
        self.ending = codec.CLEAN
        self.reason = ""
        self._end = end
        self._seen: int | None = None
        self._empty_until = 0
        self._buffer = memoryview(bytearray(READ_BYTES)) if room is None else room
        self._reach = len(self._buffer)

    def read(self, most: int = -1) -> Chunk | None:
        """The next whole records, at most `most`; None when there are none, and `ending` says why."""
        room = self._buffer
        while True:
            stop = min(len(room), self._reach, (2**63 if self._end is None else self._end) - self.position)
            if self.position < self._empty_until:
                stop = min(stop, self._empty_until - self.position)
            have = self.file.read_into(self.position, room[:stop]) if stop > 0 else 0
            self._seen = self.position + have if have < stop else None
            end, count, ending, segment = self._walk(room, have, most)
            if self.position == 0 and have >= HEADER_BYTES and room[0] != CHECKPOINT and ending != codec.EMPTY:
                count, ending = 0, codec.MALFORMED
            can_reach_further = have == self._reach < len(room)
            if can_reach_further:
                self._reach *= 2
            if count:
                chunk = Chunk(self.source, room, 0, end, self.position, count, self.segment)
                self.position += end
                self.segment = segment
                return chunk
            if ending == codec.EMPTY and self._passes_empty():
                continue
            if ending == codec.INCOMPLETE and have == len(room) < MAX_RECORD_BYTES:
                room = self._buffer = memoryview(bytearray(MAX_RECORD_BYTES))
                self._reach = MAX_RECORD_BYTES
                continue
            if ending == codec.INCOMPLETE and can_reach_further:
                continue
            self.ending = ending
            self.reason = self._explained(room, have)
            return None

    def _walk(self, room: memoryview, have: int, most: int) -> tuple[int, int, int, int]:
        """Go through what was read, with zeros as bad bytes or not: that turns at one place, however it is read."""
        if not self.source.is_newest and self.position < MAX_FILE_BYTES:
            before = kernel.walk(room, 0, min(have, MAX_FILE_BYTES - self.position), self.segment, most)
            ends_there = self.position + have <= MAX_FILE_BYTES or before[1]
            return before if ends_there else kernel.walk(room, 0, have, self.segment, 1)
        checks_empty = self.position >= self._empty_until
        return kernel.walk(room, 0, have, self.segment, most, checks_empty)

    def go_on(self, position: int) -> None:
        """Go on behind damage."""
        self.position = self.begin = position
        self._reach = _FIRST_BYTES

    def _passes_empty(self) -> bool:
        """Whether the empty records here are meant to be there; then they are passed as far as they go."""
        size = self.limit()
        stop = _end_of_zeros(self.file, self.position, size)
        following = self.position + (stop - self.position) // HEADER_BYTES * HEADER_BYTES
        if stop >= size or stop - self.position >= _HOLE_BYTES or self.position == 0:
            return False
        head = self.file.read_at(following, CHECKPOINT_BYTES)
        try:
            claimed = codec.claimed_size(head, 0, len(head))
        except Malformed:
            claimed = None
        is_whole = claimed is not None and following + claimed <= size
        if not is_whole and find_next(self.file, following, size, self.segment) is None:
            return False
        self._empty_until = following
        return True

    def _explained(self, room: memoryview, have: int) -> str:
        if self.ending == codec.CLEAN:
            return ""
        if self.ending == codec.EMPTY:
            return "there are zeros where a record should be"
        if self.position == 0 and have >= HEADER_BYTES and room[0] == DATA:
            return _NO_CHECKPOINT
        return codec.explain(room, 0, have, self.limit() - self.position)

    def limit(self) -> int:
        """Where the file ends, or where we stop before that."""
        size = self.file.size()
        return size if self._end is None else min(self._end, size)

    def seen_size(self) -> int:
        """How large the file was when `read` came to its end: a writer may be adding to it at this moment."""
        size = self.limit()
        return size if self._seen is None else min(self._seen, size)

    def tail(self) -> Tail:
        """How the records end here, after `read` has answered None."""
        return Tail(self.position, _ENDINGS[self.ending], self.reason)


def judge(cursor: Cursor) -> tuple[Damage | None, bool]:
    """What is wrong where a cursor stopped short of the end of its file, and whether reading can go on behind it.

    The cursor is moved to where it goes on, or to the end. At the end of the file nothing is wrong.
    """
    if cursor.ending == codec.CLEAN:
        return None, False
    start = cursor.position
    size = cursor.limit() if cursor.ending == codec.EMPTY else cursor.seen_size()
    found = find_next(cursor.file, start, size, cursor.segment if start else None)
    name = cursor.source.name
    if found is not None:
        cursor.go_on(found)
        return Damage(name, start, found, cursor.reason), True
    cursor.position = size
    if not cursor.source.is_newest:
        return Damage(name, start, size, cursor.reason), False
    if cursor.ending != codec.EMPTY and find_fixes(cursor.file, cursor.begin, start, size):
        reason = f"{cursor.reason}; a flipped bit before this explains it, and whole records follow"
        return Damage(name, start, size, reason), False
    return Damage(name, start, size, cursor.reason, "torn_tail"), False


def find_next(file: File, start: int, size: int, segment: int | None) -> int | None:
    """Where a checkpoint record follows bad bytes at `start`; None when there is none.

    `segment` is the one that was being written before them, if that is known: ids only grow, and by one each time.
    """
    least, most = (0, MAX_ID) if segment is None else (segment, min(MAX_ID, segment + _MOST_CHECKPOINTS))
    position, reach = start, _FIRST_BYTES
    while size - position >= CHECKPOINT_BYTES:
        position = behind_hole(file, position, size)  # a checkpoint record does not begin with a zero
        window = file.read_at(position, min(reach, size - position))
        reach = min(2 * reach, _SEARCH_BYTES)
        found = kernel.find_checkpoint(window, 0, len(window), 0, least, most)
        if found >= 0:
            return position + found
        if len(window) < CHECKPOINT_BYTES:
            return None
        position += len(window) - CHECKPOINT_BYTES + 1
    return None


def _end_of_zeros(file: File, start: int, size: int) -> int:
    """Where the zeros that begin at a position end."""
    position = start
    while (position := behind_hole(file, position, size)) < size:
        window = file.read_at(position, min(_SEARCH_BYTES, size - position))
        if not window or window != _ZEROS[: len(window)]:  # which is compared many bytes at a time
            return position + len(window) - len(window.lstrip(b"\0"))
        position += len(window)
    return size
