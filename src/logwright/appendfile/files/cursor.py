"""Reading one file of a journal, and continuing after damage.

A `Cursor` returns chunks: a buffer and a range of it that holds only whole records. Objects, columns, counts and
segments are all made from chunks, so validity is decided in one place. Files are read into a reused buffer and never
mapped: if another process truncates a mapped file, this process gets SIGBUS.

A file begins with a checkpoint record; if it does not, it begins with bad bytes. After bad bytes reading continues
where whole records begin that follow each other up to the next checkpoint record, or where there is none, to the exact
end of the file; and only if there is no second way to read those bytes (`codec.find_chain`). Where there is, it
continues where the ways meet. After a bad beginning of a file it continues at a checkpoint record: nothing else says
which segment follows.

A checkpoint registers one segment or checks one: one of its ids is larger by one than in the checkpoint before it. Only
the second record of a file may repeat the first. A checkpoint with other ids is bad bytes if the next one follows those
before it, or if none confirms it. If the next one follows it instead, or if it is the last one and the next file begins
with its ids or those after them, checkpoints are missing before it (`gap`), and reading continues with it. The account
of losses may explain that (`JournalFile.knows_jump`).

A torn tail is what a crash leaves at the end of the last file: bad bytes that no whole record follows. One record that
ends exactly where the file does is enough, however small: among random bytes, a matching header occurs once in 2^32
places. Only the rest of a record that was cut short may hold data in which many places read like a header, for example
small numbers of eight bytes each; there more records are required. A checkpoint with wrong ids is a torn tail only if
its end is wrong, because a torn write is bad up to its end. A file that waits for recovery has none, because it was cut
off before the file was moved. The first checkpoint record of a file is on the disk before anything else is written to
it, so bad bytes in its place are a torn tail only if nothing follows them.

Four zeros are an empty record, but no writer of ours leaves one: a power cut leaves zeros, and so does damage to a
checkpoint record. They are read as records only if that is proven: whole records lead from them to the next checkpoint
record, whose ids follow, or to the exact end of the file. In what is after the last checkpoint record two records
after them are enough, because a torn tail may follow. Data of nothing but zeros proves nothing. All other zeros are bad
bytes: 32 or more, those at the end of the last file, and those that begin inside a checkpoint record.
"""

from __future__ import annotations

import contextlib
import re
from array import array
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from ...core.bytes.outcome import Damage, Ending, Tail
from ...core.io.disk import Disk, File, skip_hole
from ...core.read.chunk import FileChunk
from ...errors import LogwrightError
from ..bytes import codec, kernel
from ..bytes.layout import (
    CHECKPOINT,
    CHECKPOINT_BYTES,
    DATA,
    HEADER,
    HEADER_BYTES,
    ID_BYTES,
    MAX_CHECKPOINTS,
    MAX_FILE_BYTES,
    MAX_HEAD_BYTES,
    MAX_ID,
    MAX_RECORD_BYTES,
    PAIR,
    PAIR_BYTES,
    header,
)
from ..bytes.records import Checkpoint
from .files import JournalFile

READ_BYTES: Final = 256 * 1024
"""Small enough to stay in a processor's second cache between being read and being decoded."""
_FIRST_BYTES: Final = 512
"""The first read after damage; later reads are larger. A file may be damaged in very many places."""
assert READ_BYTES % _FIRST_BYTES == 0
_SEARCH_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(_SEARCH_BYTES)
_HOLE_BYTES: Final = 32
"""This many zeros are not empty records: the data never reached the disk."""
_LEAST_RECORDS: Final = 2
"""This many records after empty ones, or of the beginning of a file that is there again, are not a coincidence."""
_RARE: Final = 64
"""A match that chance produces in at most one of this many cuts is not a coincidence."""
_FEW: Final = 2
"""Up to this many places that look like a header are ignored."""
_HEADERS: Final = re.compile(rb"\0(?!\0\0\0)(?=..[\0-\x0f])", re.DOTALL)
"""The type of what could be a header of data."""
_CHECKPOINT_HEADER: Final = HEADER.pack(header(CHECKPOINT, PAIR_BYTES))
_NO_CHECKPOINT: Final = "a file begins with a checkpoint record, and this is none"

_ENDINGS: Final = {
    codec.CLEAN: Ending.CLEAN,
    codec.INCOMPLETE: Ending.INCOMPLETE,
    codec.MALFORMED: Ending.MALFORMED,
    codec.EMPTY: Ending.INCOMPLETE,
}


@dataclass(slots=True)
class Chunk(FileChunk):
    """Whole records: `data[start:stop]` holds `count` of them. `pair` are the ids before them, None if unknown.

    `position` is where `start` is in the file. The buffer is valid until the cursor reads again.
    """

    source: JournalFile
    pair: tuple[int, int] | None

    @property
    def segment(self) -> int:
        """The segment that the first record belongs to, unless it is a checkpoint."""
        return 0 if self.pair is None else self.pair[1]

    def starts(self) -> list[int]:
        """Where the records begin in the file, and where the last one ends."""
        base = self.base
        return [base + start for start in kernel.spans(self.data, self.start, self.stop, self.count)]

    def has_data(self) -> bool:
        """Whether there is data among the records."""
        only_checkpoints = self.stop - self.start == self.count * CHECKPOINT_BYTES  # or data of the same size
        return not only_checkpoints or len(self.checkpoints()[0]) < self.count

    def checkpoints(self) -> tuple[array[int], array[int], array[int], array[int]]:
        """The checkpoints among the records: see `codec.checkpoints`. Positions are those in the buffer."""
        return kernel.checkpoints(self.data, self.start, self.stop, self.count)

    def _part(self, starts: Any, first: int, last: int) -> Self | None:
        part = FileChunk._part(self, starts, first, last)
        if part is None or first == 0:
            return part
        stop, repeated = starts[first] - self.base, CHECKPOINT_BYTES - self.base
        passed = kernel.follow(self.data, self.start, stop, first, *(self.pair or (0, 0)), -1, repeated)
        return replace(part, pair=(passed[2], passed[3]))


class Cursor:
    """Reads one file from the beginning of a record on. It can continue after the file has grown.

    `pair` are the ids before that, None where a checkpoint begins there whose ids are taken as they are. `hint` are the
    ids that the file must begin with, if known. `end` is where to stop although the file may be longer. `room` is a
    buffer to read into, to share it between many files: larger than the file, or at least as large as the largest
    record. `disk` has the next file, whose first ids may confirm the last ones here.
    """

    def __init__(
        self,
        file: File,
        source: JournalFile,
        position: int = 0,
        *,
        pair: tuple[int, int] | None = None,
        end: int | None = None,
        hint: tuple[int, int] | None = None,
        room: memoryview | None = None,
        disk: Disk | None = None,
    ) -> None:
        self.file = file
        self._disk = disk
        self.source = source
        self.position = position
        self.begin = position
        """The position from which on all records so far were whole."""
        self.pair = pair
        self.refused: tuple[int, int] | None = None
        """The ids of the checkpoint record here, which cannot be right, or cannot follow those before it."""
        self.ending = codec.CLEAN
        self.reason = ""
        self._most = 1
        if position == 0 and pair is None and hint is None:
            hint = source.known_ids(file.size())
        if hint is not None:
            self.pair, self._most = hint, 0
        self._is_confirmed = position > 0
        self._end = end
        self._is_begun = position > 0
        self._seen: int | None = None
        self._empty_until = 0
        self._buffer = memoryview(bytearray(READ_BYTES)) if room is None else room
        self._reach = len(self._buffer)

    @property
    def segment(self) -> int:
        """The segment that the next record belongs to."""
        return 0 if self.pair is None else self.pair[1]

    def read(self, most: int = -1) -> Chunk | None:
        """The next whole records, at most `most`; None when there are none, and `ending` says why."""
        room = self._buffer
        self.refused = None
        while True:
            stop = min(len(room), self._reach, (2**63 if self._end is None else self._end) - self.position)
            if self.position < self._empty_until:
                stop = min(stop, self._empty_until - self.position)
            have = self.file.read_into(self.position, room[:stop]) if stop > 0 else 0
            self._seen = self.position + have if have < stop else None
            checks_empty = self.position >= self._empty_until
            end, count, ending, _ = kernel.walk(room, 0, have, 0, most, checks_empty)
            if not self._is_begun and self._begins_badly(room, have) and (count or ending != codec.EMPTY):
                count, ending = 0, codec.MALFORMED
            can_reach_further = have == self._reach < len(room)
            if can_reach_further:
                self._reach *= 2
            if count:
                self._is_begun = True
                if (chunk := self._following(room, end, count)) is not None:
                    return chunk
                if self._knows_jump(room):
                    continue
                return None
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
            if ending == codec.MALFORMED and have >= CHECKPOINT_BYTES and room[:HEADER_BYTES] == _CHECKPOINT_HEADER:
                self.refused = PAIR.unpack_from(room, HEADER_BYTES)
            return None

    def _following(self, room: memoryview, end: int, count: int) -> Chunk | None:
        """The records up to a checkpoint that cannot follow; None if that is the first one."""
        before = (0, 0, -1) if self.pair is None else (*self.pair, self._most)
        end, count, *pair = kernel.follow(room, 0, end, count, *before, CHECKPOINT_BYTES - self.position)
        if not count:
            return None
        chunk = Chunk(self.source, room, 0, end, self.position, count, self.pair)
        if self.position == 0:
            self.pair, self._most = PAIR.unpack_from(room, HEADER_BYTES), 1
        if self.pair != (pair[0], pair[1]):
            self.pair, self._most, self._is_confirmed = (pair[0], pair[1]), 1, True
        elif self._most > 1 and len(chunk.checkpoints()[0]):
            self._most = 1
        self.position += end
        return chunk

    def _knows_jump(self, room: memoryview) -> bool:
        """Whether the ids of the checkpoint here, which cannot follow, are explained; else they are refused."""
        assert self.pair is not None
        found: tuple[int, int] = PAIR.unpack_from(room, HEADER_BYTES)
        if self.source.knows_jump(self.pair, found):
            self.pair = None
            return True
        self.refused, self.ending = found, codec.MALFORMED
        self.reason = f"the ids {found[0]}, {found[1]} cannot follow {self.pair[0]}, {self.pair[1]}"
        return False

    def _begins_badly(self, room: memoryview, have: int) -> bool:
        """Whether a file cannot begin with these bytes. Only the last one may have none."""
        if have == 0:
            return self.limit() == 0 and not self.source.is_newest and not self.source.ends_last
        return have >= HEADER_BYTES and room[0] != CHECKPOINT

    def continue_at(self, position: int, pair: tuple[int, int] | None, most: int = MAX_CHECKPOINTS) -> None:
        """Continue after damage. `most` is how much larger the ids of the next checkpoint may be than `pair`."""
        self.position = self.begin = position
        self._reach = _FIRST_BYTES
        self.pair, self._most = pair, most
        self._is_begun, self.refused = True, None

    def pair_after(self) -> tuple[int, int] | None:
        """The ids that the next file begins with; None if unknown."""
        if self._disk is None or self.source.following is None:
            return None
        with contextlib.suppress(LogwrightError):  # reading that file reports the error
            return read_hint(self._disk, self.source.following)
        return None

    @property
    def likely_segments(self) -> tuple[int, int]:
        """The smallest and the largest segment that can be written next: ids only grow, and by one each time.

        The first ids of a file alone say nothing about that: they may be wrong.
        """
        if self.pair is None or not self._is_confirmed:
            return 0, MAX_ID
        return self.segment, min(MAX_ID, self.segment + MAX_CHECKPOINTS)

    @property
    def following(self) -> int:
        """The first place where the next whole record may begin, after one that was refused or at bad bytes."""
        return self.position + (self.refused is not None)

    def _passes_empty(self) -> bool:
        """Whether the empty records here were written; then they are skipped, as far as they were checked."""
        size = self.limit()
        if self.position == 0 or self._is_within_checkpoint():
            return False
        position, reach, records, others = self.position, _FIRST_BYTES, 0, 0
        while position < size:
            window = self.file.read_at(position, min(reach, size - position))
            stop, count, ending, _ = kernel.walk(window, 0, len(window), 0, -1, True)
            _, turned, checked, current = kernel.checkpoints(window, 0, stop, count)
            if turned:
                is_proven = self.segment <= current[0] <= self.segment + 1
                if self.pair is not None and self._most == 1:
                    is_proven = _steps(self.pair, (checked[0], current[0])) == 1
                self._empty_until = position + turned[0] if is_proven else 0
                return is_proven
            is_at_end = position + len(window) == size
            zeros = _count_zeros(window, stop, count)
            position, records, others = position + stop, records + count - zeros, others + zeros
            reach = min(2 * reach, MAX_RECORD_BYTES)
            if ending == codec.EMPTY:
                end = _end_of_zeros(self.file, position, size)
                if end - position >= _HOLE_BYTES or (end == size and self._may_be_torn(end - position)):
                    break
                position = end - (end - position) % HEADER_BYTES
            elif ending == codec.MALFORMED or is_at_end:
                break
        if position == size:
            is_proven = records > 0 or not others
        else:
            is_proven = records >= _LEAST_RECORDS and find_next(self.file, position, size, self.likely_segments) is None
        self._empty_until = position if is_proven else 0
        return is_proven

    def _is_within_checkpoint(self) -> bool:
        """Whether a checkpoint record spans this place: then the preceding record contains its beginning."""
        start = max(0, self.position - CHECKPOINT_BYTES + 1)
        window = self.file.read_at(start, self.position + CHECKPOINT_BYTES - 1 - start)
        return kernel.find_checkpoint(window, 0, len(window), 0, self.segment, min(MAX_ID, self.segment + 1)) >= 0

    def _may_be_torn(self, zeros: int) -> bool:
        """Whether n zeros at the end of the file are not records: its tail is torn, or was cut off."""
        return zeros % HEADER_BYTES > 0 or self.source.is_newest or self.source.ends_generation

    def _explained(self, room: memoryview, have: int) -> str:
        if self.ending == codec.CLEAN:
            return ""
        if self.ending == codec.EMPTY:
            return "there are zeros where a record should be"
        if self.position == 0 and (have == 0 or (have >= HEADER_BYTES and room[0] == DATA)):
            return _NO_CHECKPOINT
        return codec.explain(room, 0, have, self.limit() - self.position)

    def limit(self) -> int:
        """Where the file ends, or where we stop before that."""
        size = self.file.size()
        return size if self._end is None else min(self._end, size)

    @property
    def is_at_end(self) -> bool:
        """Whether it has read all of the file, and not only a part of it."""
        return self._end is None or self._end >= self.file.size()

    def seen_size(self) -> int:
        """How large the file was when `read` came to its end: a writer may be adding to it at this moment."""
        size = self.limit()
        return size if self._seen is None else min(self._seen, size)

    def tail(self) -> Tail:
        """How the records end here, after `read` has answered None."""
        return Tail(self.position, _ENDINGS[self.ending], self.reason)


class Way(NamedTuple):
    """The way past bad bytes: n whole `records` lead from `start` to `end`.

    `end` is a checkpoint record, or the end of the file. `start` may lie before the bad bytes: in a record whose size
    is wrong, so that it has swallowed others. It is `end` where no such records are found. `checkpoint` is the first
    checkpoint record from `start` on. `last` is where the record before the bad bytes begins, None where it is not
    known. Readers do not take the way past a bad beginning of a file: they do not know which segment its records
    belong to.

    `kind` is `gap` where only checkpoints are missing, and `repeated` where the beginning of the file is there again.
    `is_whole` says that the bad bytes are one record with wrong ids.
    """

    start: int
    records: int
    end: int
    checkpoint: int | None
    last: int | None = None
    kind: str = ""
    is_whole: bool = False

    @property
    def found(self) -> bool:
        """Whether whole records follow the bad bytes."""
        return self.checkpoint is not None or self.records > 0


def find_way(cursor: Cursor) -> Way:
    """Find the way past the bad bytes where a cursor stopped."""
    past_ids = _way_past_ids(cursor)
    if past_ids is not None:
        return past_ids
    at = cursor.position
    size = cursor.limit() if cursor.ending == codec.EMPTY else cursor.seen_size()
    likely = cursor.likely_segments
    checkpoint = find_next(cursor.file, cursor.following, size, likely)
    end = size if checkpoint is None else checkpoint
    way = Way(end, 0, end, checkpoint)
    begin = cursor.begin if end - cursor.begin <= MAX_FILE_BYTES else at
    if end - begin > MAX_FILE_BYTES:
        return way
    data = cursor.file.read_at(begin, end - begin)
    if len(data) < end - begin:
        return way
    passed = kernel.walk(data, 0, at - begin)[1]
    last = kernel.spans(data, 0, at - begin, passed)[-2] if passed else None
    search = cursor.following - begin
    if last is not None and data[last] == DATA and cursor.following == at:
        search = last + HEADER_BYTES
    elif last is not None and cursor.following == at and cursor.refused is None and checkpoint is not None:
        # The ids before may have lost bytes, so that the next record begins in them. At the end of the file a place in
        # them would only make the records that lead there ambiguous, and they must not be cut off.
        search = at - begin - HEADER_BYTES + 1
    start, count = kernel.find_chain(data, search, end - begin, *likely)
    if checkpoint is None and count == 0 and last is not None and cursor.refused is None:
        # The record before may have lost bytes, so that the next one begins in its header or at its end.
        search = last + 1 if data[last] == DATA else at - begin - HEADER_BYTES + 1
        start, count = kernel.find_chain(data, search, end - begin, *likely)
    kind = ""
    if cursor.refused is not None and (within := _skip_to(data, start, count, at + CHECKPOINT_BYTES - begin)):
        if within[1] == 0 < count and any(data[start + HEADER_BYTES : end - begin]):
            kind = "malformed"  # it ends like a record, which no torn write does
        start, count = within
    while count and data[start] == DATA and not any(data[start + HEADER_BYTES : (after := _end_of(data, start))]):
        start, count = after, count - 1  # the zeros of a damaged checkpoint record read like this
    is_in_rest = checkpoint is None and cursor.ending == codec.INCOMPLETE
    if is_in_rest and count and _is_coincidence(cursor, data[search:], at - begin - search, start - search, count):
        start, count = end - begin, 0
    if checkpoint is None and count == 0 and not kind and (by_size := _way_by_size(cursor, size)) is not None:
        return by_size._replace(last=None if last is None else begin + last)
    turned = kernel.checkpoints(data, start, end - begin, count)[1]
    first = begin + turned[0] if turned else checkpoint
    is_whole = cursor.refused is not None and begin + start == at + CHECKPOINT_BYTES
    return Way(begin + start, count, end, first, None if last is None else begin + last, kind, is_whole)


def _way_by_size(cursor: Cursor, size: int) -> Way | None:
    """The way to whole records that follow a bad one directly, by the size in its header, and end before a torn tail.

    None if there are fewer than `_LEAST_RECORDS`; data of nothing but zeros does not count.
    """
    at = cursor.position
    head = cursor.file.read_at(at, HEADER_BYTES)
    start = at + HEADER_BYTES + (HEADER.unpack(head)[0] >> 8 if len(head) == HEADER_BYTES else 0)
    if at == 0 or cursor.ending != codec.MALFORMED or start == at + HEADER_BYTES:
        return None
    stop, records, _ = walk_to_checkpoint(cursor.file, start, size)
    data = cursor.file.read_at(start, min(stop - start, MAX_FILE_BYTES))
    if records - _count_zeros(data, *kernel.walk(data, 0, len(data))[:2]) < _LEAST_RECORDS:
        return None
    return Way(start, records, stop, None, is_whole=cursor.refused is not None and start == at + CHECKPOINT_BYTES)


def _skip_to(data: bytes, start: int, count: int, stop: int) -> tuple[int, int] | None:
    """The part from `stop` on of n records that follow each other; None if none begins or ends there."""
    while count and start < stop:
        start, count = _end_of(data, start), count - 1
    return (start, count) if start == stop else None


def _is_coincidence(cursor: Cursor, data: bytes, at: int, start: int, count: int) -> bool:
    """Whether `count` records at `start` may be data of a record that was cut short, which begins at `at`.

    They may if many other places of the data look like headers, because then a cut at random often leaves as many such
    records. If the ids of the next checkpoint precede them, it is no coincidence.
    """
    if cursor.pair is not None and data[:start].endswith(tuple(ids[-ID_BYTES:] for ids in _wanted(cursor.pair))):
        return False
    claimed = at + (codec.claimed_size(data, at, len(data)) or HEADER_BYTES)
    most = max(_FEW, len(data) * _RARE ** (-1 / count))
    own = {at, *kernel.spans(data, start, len(data), count)}
    others = 0
    for match in _HEADERS.finditer(data):
        place = match.start()
        if place not in own and place + HEADER_BYTES + (HEADER.unpack_from(data, place)[0] >> 8) <= claimed:
            others += 1
            if others > most:
                return True
    return False


def _way_past_ids(cursor: Cursor) -> Way | None:
    """The way past a checkpoint with wrong ids; None if there is none here, or if nothing proves where it ends."""
    at, size, before, pair = cursor.position, cursor.limit(), cursor.pair, cursor.refused
    if before is None or pair is None or at == 0:
        return None
    repeated = _count_repeated(cursor.file, at, size)
    if repeated:
        return Way(at + repeated, 0, size, None, kind="repeated")
    stop, records, following = walk_to_checkpoint(cursor.file, at + CHECKPOINT_BYTES, size)
    confirming, least = following, 1
    if following is None and stop == size:
        confirming, least = cursor.pair_after(), 0  # which may be the same
    is_confirmed = confirming is not None and least <= _steps(pair, confirming) <= 1
    if confirming is not None and is_confirmed and _steps(before, confirming) not in (0, 1, 2):
        return Way(at, records + 1, stop, at, kind="gap")
    is_likely = following is None or 0 <= _steps(before, following) <= MAX_CHECKPOINTS
    if not is_likely or not _is_in_place(before, pair) or (following is None and stop < size):
        return None
    checkpoint = None if following is None else stop
    return Way(at + CHECKPOINT_BYTES, records, stop, checkpoint, is_whole=True)


def read_hint(disk: Disk, path: Path) -> tuple[int, int] | None:
    """The ids that a file begins with; None where they are damaged."""
    file = disk.open(path, "read")
    try:
        return pair_in(file.read_at(0, CHECKPOINT_BYTES))
    finally:
        file.close()


def pair_in(head: bytes) -> tuple[int, int] | None:
    """The ids of a checkpoint record; None for other bytes."""
    if codec.walk(head, 0, len(head), most=1)[1] == 0:
        return None
    (record,) = codec.records(head, 0, len(head), 1)
    return (record.checked, record.current) if isinstance(record, Checkpoint) else None


def _steps(before: tuple[int, int], pair: tuple[int, int]) -> int:
    """How many checkpoints lead from one pair of ids to another; -1 if none do, because an id is smaller."""
    steps = (pair[0] - before[0], pair[1] - before[1])
    return -1 if min(steps) < 0 else sum(steps)


def _wanted(before: tuple[int, int]) -> list[bytes]:
    """The bytes that the ids of the next checkpoint can be."""
    return [PAIR.pack(before[0], min(MAX_ID, before[1] + 1)), PAIR.pack(min(MAX_ID, before[0] + 1), before[1])]


def _is_in_place(before: tuple[int, int], pair: tuple[int, int]) -> bool:
    """Whether no bytes of wrong ids are missing, and none were inserted: one byte is wrong, or only the first id."""
    found = PAIR.pack(*pair)
    wrong = [sum(one != other for one, other in zip(found, wanted, strict=True)) for wanted in _wanted(before)]
    return min(wrong) == 1 or 0 <= pair[1] - before[1] <= 1


def _may_end_torn(before: tuple[int, int], pair: tuple[int, int]) -> bool:
    """Whether wrong ids are what a torn write leaves: bad bytes up to the last one, or zeros."""
    found = PAIR.pack(*pair)
    for wanted in _wanted(before):
        same = next((at for at, one in enumerate(found) if one != wanted[at]), len(found))
        if found[-1] != wanted[-1] or not any(found[same:]):
            return True
    return False


def walk_to_checkpoint(file: File, start: int, size: int) -> tuple[int, int, tuple[int, int] | None]:
    """Go from record to record up to a checkpoint: where that is, how many records are before it, and its ids.

    If there is none, the ids are None, and the records end there.
    """
    position, reach, records = start, _FIRST_BYTES, 0
    while position < size:
        window = file.read_at(position, min(reach, size - position))
        stop, count, ending, _ = kernel.walk(window, 0, len(window), 0, -1, True)
        rows, turned, checked, current = kernel.checkpoints(window, 0, stop, count)
        if turned:
            return position + turned[0], records + rows[0], (checked[0], current[0])
        is_at_end = position + len(window) == size or reach == MAX_RECORD_BYTES > stop == 0
        position, records = position + stop, records + count
        reach = min(2 * reach, MAX_RECORD_BYTES)
        if ending in (codec.MALFORMED, codec.EMPTY) or is_at_end:
            break
    return position, records, None


def judge(cursor: Cursor) -> tuple[Damage | None, bool]:
    """The damage where a cursor stopped before the end of its file, and whether reading can continue after it.

    The cursor is moved to where it continues, or to the end. At the end of the file only its size may be wrong.
    """
    if cursor.ending == codec.CLEAN:
        return cursor.source.size_problem(cursor.position) if cursor.is_at_end else None, False
    return take_way(cursor, find_way(cursor))


def take_way(cursor: Cursor, way: Way) -> tuple[Damage, bool]:
    """Move a cursor past bad bytes: see `judge`."""
    start = cursor.position
    resumed = way.start if start or cursor.refused is not None else way.end
    while resumed < start:  # these records were read as the data of the one that has swallowed them
        resumed += _end_of(cursor.file.read_at(resumed, CHECKPOINT_BYTES), 0)
    damage = Damage(cursor.source.name, start, resumed, cursor.reason, way.kind or _kind(cursor, way))
    if resumed < way.end or way.checkpoint is not None:
        pair = cursor.pair if resumed == way.start and way.kind != "gap" else None
        cursor.continue_at(resumed, pair, 2 if way.is_whole else MAX_CHECKPOINTS)
        return damage, True
    cursor.position = way.end
    return damage, False


def _kind(cursor: Cursor, way: Way) -> str:
    """The kind of damage, by what follows the bad bytes."""
    is_begun = cursor.position > 0 or way.end <= MAX_HEAD_BYTES
    is_torn = cursor.refused is None or cursor.pair is None or _may_end_torn(cursor.pair, cursor.refused)
    noted = cursor.source.noted
    is_synced = noted is not None and cursor.position < noted.size
    may_be_torn = cursor.source.is_newest and is_begun and not is_synced
    return "torn_tail" if may_be_torn and is_torn and not way.found else "malformed"


def _end_of(data: bytes, start: int) -> int:
    """Where a record ends that is known to be whole."""
    size = codec.claimed_size(data, start, len(data))
    assert size is not None
    return start + size


def find_next(file: File, start: int, size: int, likely: tuple[int, int]) -> int | None:
    """Where a checkpoint record follows bad bytes at `start`; None when there is none with a likely segment."""
    least, most = likely
    position, reach = start, _FIRST_BYTES
    while size - position >= CHECKPOINT_BYTES:
        position = skip_hole(file, position, size)  # a checkpoint record does not begin with a zero
        window = file.read_at(position, min(reach, size - position))
        reach = min(2 * reach, _SEARCH_BYTES)
        found = kernel.find_checkpoint(window, 0, len(window), 0, least, most)
        if found >= 0:
            return position + found
        if len(window) < CHECKPOINT_BYTES:
            return None
        position += len(window) - CHECKPOINT_BYTES + 1
    return None


def _count_repeated(file: File, position: int, size: int) -> int:
    """How many bytes of the beginning of a file are there again at a position, in whole records; 0 for less than two.

    No writer does that. The ids of the first record alone may occur twice.
    """
    count, reach = 0, _FIRST_BYTES
    most = min(position, size - position)
    while count < most:
        one, other = (file.read_at(at + count, min(reach, most - count)) for at in (0, position))
        same = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))
        count += same
        if same < len(one) or not one:
            break
        reach = min(2 * reach, _SEARCH_BYTES)
    if count < CHECKPOINT_BYTES + HEADER_BYTES:
        return 0
    return count if kernel.walk(file.read_at(0, count), 0, count)[1] >= _LEAST_RECORDS else 0


def _count_zeros(data: bytes, stop: int, count: int) -> int:
    """How many of the records up to `stop` have data of nothing but zeros: the rest of a checkpoint record has that."""
    return sum(not any(data[start + HEADER_BYTES : end]) for start, end in pairwise(kernel.spans(data, 0, stop, count)))


def _end_of_zeros(file: File, start: int, size: int) -> int:
    """Where the zeros that begin at a position end."""
    position = start
    while (position := skip_hole(file, position, size)) < size:
        window = file.read_at(position, min(_SEARCH_BYTES, size - position))
        if not window or window != _ZEROS[: len(window)]:  # which is compared many bytes at a time
            return position + len(window) - len(window.lstrip(b"\0"))
        position += len(window)
    return size
