"""Bytes <-> records, in plain Python: the reference for the kernel, used if the kernel is not built.

A data record is valid if and only if its type is 0, its size is at most 2^20 - 4, and all of its bytes exist. A
checkpoint record is valid if and only if its type is 1, its size is 16 or 0, all of its 20 bytes exist, and
`checked` is not larger than `current`. Nothing else is a record.

Strategy: the header of four bytes has the type and the size. If the bytes end before the end of the record, more bytes
are needed. Empty data is a record like any other here: only the reader of the file knows that four zeros at the end of
a journal are not a record.

Nothing here opens a file. Every length is checked against the bytes in the buffer before it is used.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ...core.bytes.buffers import (
    Buffer,
    as_bytes,
    check_count,
    check_ends,
    check_range,
    column_bytes,
    column_items,
    column_part,
    not_walked,
    starts_of,
)
from ...core.bytes.column_builder import Bytes, ColumnBuilder, Numbers
from ...core.bytes.outcome import NEED_MORE, Malformed, NeedMore, Span
from ...core.bytes.write_buffer import WriteBuffer
from ...errors import TooLarge, WrongUse
from .layout import (
    CHECKPOINT,
    CHECKPOINT_BYTES,
    CHECKPOINT_RECORD,
    DATA,
    DESCRIBED_PAIR_BYTES,
    HEADER,
    HEADER_BYTES,
    MAX_DATA_BYTES,
    MAX_ID,
    PAIR,
    PAIR_BYTES,
    header,
)
from .records import Checkpoint, Data, Record, check_appendable

CLEAN, INCOMPLETE, MALFORMED, EMPTY = range(4)
"""How a walk ends: at the end of its bytes, inside a record, at bytes that are none, before data of no bytes."""

KINDS, SEGMENTS, PAYLOADS, CHECKED, CURRENT, POSITIONS, SIZES = (1 << bit for bit in range(7))
"""Which columns to decode, added up."""
ALL_COLUMNS: Final = (1 << 7) - 1
_CHECKPOINT_HEADER: Final = header(CHECKPOINT, PAIR_BYTES)


# --- one record -----------------------------------------------------------------------------------------------------


def encode(record: Record) -> bytes:
    """The bytes of a record."""
    record.validate()
    if isinstance(record, Checkpoint):
        return CHECKPOINT_RECORD.pack(header(CHECKPOINT, record.header_size), record.checked, record.current)
    return HEADER.pack(header(DATA, len(record.data))) + record.data


def claimed_size(buffer: Buffer, position: int, end: int) -> int | None:
    """The size of the record at a position; None if its header is incomplete; `Malformed` if it is not a record."""
    if end - position < HEADER_BYTES:
        return None
    found: int = HEADER.unpack_from(buffer, position)[0]
    kind, size = found & 0xFF, found >> 8
    if kind == DATA:
        if size > MAX_DATA_BYTES:
            raise Malformed(position, f"the size is {size}, and data has at most {MAX_DATA_BYTES} bytes")
        return HEADER_BYTES + size
    if kind != CHECKPOINT:
        raise Malformed(position, f"there are no records of type {kind}")
    if size not in (PAIR_BYTES, DESCRIBED_PAIR_BYTES):
        raise Malformed(position, f"the size of a checkpoint record is {PAIR_BYTES}, not {size}")
    if end - position >= CHECKPOINT_BYTES:
        checked, current = PAIR.unpack_from(buffer, position + HEADER_BYTES)
        if checked > current:
            raise Malformed(position, f"the oldest unchecked segment is {checked}, and only {current} is being written")
    return CHECKPOINT_BYTES


def decode(buffer: Buffer, position: int = 0, end: int | None = None) -> tuple[Record, Span] | NeedMore:
    """The record at a position, `NEED_MORE`, or `Malformed`. Bytes from `end` on are ignored."""
    end = len(buffer) if end is None else end
    size = claimed_size(buffer, position, end)
    if size is None or end - position < size:
        return NEED_MORE
    return _record(buffer, position, position + size, None), Span(position, position + size)


def _record(buffer: Buffer, start: int, end: int, segment: int | None) -> Record:
    """The record that fills a range."""
    if buffer[start] == DATA:
        return Data(bytes(buffer[start + HEADER_BYTES : end]), segment)
    found, checked, current = CHECKPOINT_RECORD.unpack_from(buffer, start)
    return Checkpoint(checked, current, found >> 8)


def explain(buffer: Buffer, position: int, end: int, most: int | None = None) -> str:
    """Why a walk ended here, in words; `most` is how many bytes of the record are in the file."""
    try:
        size = claimed_size(buffer, position, end)
    except Malformed as malformed:
        return malformed.reason
    have = end - position if most is None else most
    if size is None:
        return f"only {have} of the header's {HEADER_BYTES} bytes are there"
    return f"only {have} of the record's {size} bytes are there" if have < size else "the record is whole"


# --- many records ---------------------------------------------------------------------------------------------------


def walk(
    buffer: Buffer, start: int, end: int, segment: int = 0, most: int = -1, stop_at_empty: bool = False
) -> tuple[int, int, int, int]:
    """Go from record to record, at most `most` of them (-1: any number), from one that belongs to `segment`.

    Returns where it stopped, how many records it passed, how it ended (`CLEAN` …), and the segment that is being
    written there. With `stop_at_empty` it stops at empty data.
    """
    check_range(buffer, start, end)
    position, count = start, 0
    while position < end and count != most:
        try:
            size = claimed_size(buffer, position, end)
        except Malformed:
            return position, count, MALFORMED, segment
        if size is None or end - position < size:
            return position, count, INCOMPLETE, segment
        if size == HEADER_BYTES and stop_at_empty:
            return position, count, EMPTY, segment
        if buffer[position] == CHECKPOINT:
            segment = PAIR.unpack_from(buffer, position + HEADER_BYTES)[1]
        position += size
        count += 1
    return position, count, CLEAN, segment


def _walked_size(buffer: Buffer, position: int, stop: int) -> int | None:
    """The size of the record at a position that a walk would pass; None where it would not."""
    try:
        size = claimed_size(buffer, position, stop)
    except Malformed:
        return None
    return None if size is None or position + size > stop else size


def spans(buffer: Buffer, start: int, stop: int, count: int) -> array[int]:
    """Where each of the `count` records of a walked range begins, and where the last one ends."""
    check_range(buffer, start, stop)
    check_count(start, stop, count, HEADER_BYTES)
    return starts_of(start, stop, count, lambda position: _walked_size(buffer, position, stop))


def records(buffer: Buffer, start: int, stop: int, count: int, segment: int = 0) -> list[Record]:
    """The `count` records of a range that `walk` has checked. They are not checked again."""
    starts = spans(buffer, start, stop, count)
    found = []
    for row in range(count):
        record = _record(buffer, starts[row], starts[row + 1], segment)
        segment = record.segment if record.segment is not None else segment
        found.append(record)
    return found


def payloads(buffer: Buffer, start: int, stop: int, count: int) -> list[bytes]:
    """The data of those of the `count` records of a walked range that have some; checkpoints are left out."""
    starts = spans(buffer, start, stop, count)
    return [
        bytes(buffer[starts[row] + HEADER_BYTES : starts[row + 1]])
        for row in range(count)
        if buffer[starts[row]] == DATA
    ]


class Run:
    """The data of consecutive records of a walked range, without a checkpoint among them.

    It has a copy of their bytes. Objects are created each time they are accessed, so an iteration needs memory for one
    record at a time.
    """

    __slots__ = ("_count", "_data")

    def __init__(self, buffer: Buffer, start: int, stop: int, count: int) -> None:
        check_range(buffer, start, stop)
        check_count(start, stop, count, HEADER_BYTES)
        self._data = bytes(buffer[start:stop])
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        data, position = self._data, 0
        for _ in range(self._count):
            size = _walked_size(data, position, len(data))
            if size is None:
                raise not_walked(position)
            yield data[position + HEADER_BYTES : position + size]
            position += size


def pieces(buffer: Buffer, start: int, stop: int, count: int) -> tuple[list[tuple[Run, int, int]], Run]:
    """The data of the `count` records of a walked range, split at its checkpoints.

    For each checkpoint: the data before it, `checked`, `current`; and then the data after the last one.
    """
    rows, positions, checked, current = checkpoints(buffer, start, stop, count)
    found: list[tuple[Run, int, int]] = []
    following = 0
    for row, position, *pair in zip(rows, positions, checked, current, strict=True):
        found.append((Run(buffer, start, position, row - following), pair[0], pair[1]))
        start, following = position + CHECKPOINT_BYTES, row + 1
    return found, Run(buffer, start, spans(buffer, start, stop, count - following)[-1], count - following)


def checkpoints(
    buffer: Buffer, start: int, stop: int, count: int
) -> tuple[array[int], array[int], array[int], array[int]]:
    """The checkpoints among the `count` records of a walked range, for a replay.

    For each: the number of records before it, its position, `checked`, `current`.
    """
    starts = spans(buffer, start, stop, count)
    rows, positions, checked, current = array("q"), array("q"), array("Q"), array("Q")
    for row in range(count):
        if buffer[starts[row]] == CHECKPOINT:
            pair = PAIR.unpack_from(buffer, starts[row] + HEADER_BYTES)
            rows.append(row)
            positions.append(starts[row])
            checked.append(pair[0])
            current.append(pair[1])
    return rows, positions, checked, current


def follow(
    buffer: Buffer,
    start: int,
    stop: int,
    count: int,
    checked: int = 0,
    current: int = 0,
    most: int = 1,
    repeated: int = -1,
) -> tuple[int, int, int, int]:
    """How far the checkpoints of a walked range follow the ids before them, `checked` and `current`.

    Returns where the first one begins that does not, or `stop`; how many records are before it; and the last ids that
    do. A checkpoint registers one segment or checks one, so one of the ids is larger by one. `most` is how much larger
    both together may be in the first checkpoint of the range; if that is not 1, they may also be the same; -1 takes
    that checkpoint as it is. A checkpoint at the position `repeated` may also have the same ids as the one before it.
    """
    check_range(buffer, start, stop)
    check_count(start, stop, count, HEADER_BYTES)
    position = start
    for row in range(count):
        size = _walked_size(buffer, position, stop)
        if size is None:
            raise not_walked(position)
        if buffer[position] == CHECKPOINT:
            found = PAIR.unpack_from(buffer, position + HEADER_BYTES)
            steps = found[0] - checked, found[1] - current
            least = 1 if most == 1 and position != repeated else 0
            if most >= 0 and not (min(steps) >= 0 and least <= sum(steps) <= most):
                return position, row, checked, current
            (checked, current), most = found, 1
        position += size
    return position, count, checked, current


def find_checkpoint(
    buffer: Buffer, start: int, end: int, least_checked: int = 0, least_current: int = 0, most_current: int = MAX_ID
) -> int:
    """The first position from `start` on where a checkpoint record is whole, -1 if there is none before `end`.

    Its size is 16, its ids are not smaller than these, and `current` is not larger than that.
    """
    check_range(buffer, start, end)
    for position in range(start, end - CHECKPOINT_BYTES + 1):
        if buffer[position] == CHECKPOINT:
            found, checked, current = CHECKPOINT_RECORD.unpack_from(buffer, position)
            is_plausible = least_checked <= checked <= current and least_current <= current <= most_current
            if found == _CHECKPOINT_HEADER and is_plausible:
                return position
    return -1


def find_chain(
    buffer: Buffer, start: int, end: int, least_current: int = 0, most_current: int = MAX_ID
) -> tuple[int, int]:
    """Where whole records begin that follow each other to exactly `end`, and how many; `end` and 0 if nowhere.

    The result is unique: no other position from `start` on begins records that follow each other to the end. Empty
    records are ignored, and so are checkpoints with an unlikely size or ids.
    """
    check_range(buffer, start, end)
    following: dict[int, int] = {}
    only_before: dict[int, int] = {}
    for position in range(end - HEADER_BYTES - 1, start - 1, -1):
        after = _likely_end(buffer, position, end, least_current, most_current)
        if after is not None and (after == end or after in following):
            following[position] = after
            only_before[after] = -1 if after in only_before else position
    position, count = end, 0
    while (before := only_before.get(position, -1)) >= 0:
        position, count = before, count + 1
    return position, count


def _likely_end(buffer: Buffer, position: int, end: int, least_current: int, most_current: int) -> int | None:
    """The end of the record at a position; None if there is no whole record, or one that no writer would write."""
    size = _walked_size(buffer, position, end)
    if size is None or size == HEADER_BYTES:
        return None
    if buffer[position] == CHECKPOINT:
        found, _, current = CHECKPOINT_RECORD.unpack_from(buffer, position)
        if found != _CHECKPOINT_HEADER or not least_current <= current <= most_current:
            return None
    return position + size


# --- columns --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Columns:
    """Records as columns of plain buffers in native byte order; a column that was not selected is None.

    `kinds` u8; `segments`, `checked`, `current`, `positions` u64; `sizes` i64. Fields that a record does not have are
    0. The data is concatenated in `data`; item n is between `data_ends[n]` and `data_ends[n + 1]` (i32). A buffer may
    be longer than its `count` rows. `generation` is that of all rows, if known, and `lost` says that the segments of
    all rows have lost records.
    """

    count: int
    kinds: Buffer | None = None
    segments: Buffer | None = None
    data_ends: Buffer | None = None
    data: Buffer | None = None
    checked: Buffer | None = None
    current: Buffer | None = None
    positions: Buffer | None = None
    sizes: Buffer | None = None
    generation: int | None = None
    lost: bool = False


_LAYOUT: Final = (
    Numbers(KINDS, "kinds", "B"),
    Numbers(SEGMENTS, "segments", "Q"),
    Bytes(PAYLOADS, "data", "data_ends"),
    Numbers(CHECKED, "checked", "Q"),
    Numbers(CURRENT, "current", "Q"),
    Numbers(POSITIONS, "positions", "Q"),
    Numbers(SIZES, "sizes", "q"),
)


class BatchBuilder(ColumnBuilder[Columns]):
    """Collects the records of many walked ranges as the columns of one batch.

    It has a fixed capacity of rows and of bytes of data; `add` takes what fits, `take` returns the columns. `allocate`
    makes the writable buffers of the columns.
    """

    def __init__(self, want: int, rows: int, data_bytes: int, allocate: Callable[[int], Any] = bytearray) -> None:
        super().__init__(Columns(0), _LAYOUT, want, rows, {"data": data_bytes}, allocate)

    def add(
        self, buffer: Buffer, start: int, stop: int, count: int, segment: int = 0, base: int = 0
    ) -> tuple[int, int, int]:
        """Add the records of a walked range, the first of which belongs to `segment`, as many as fit.

        Returns where the rest begins, how many were added, and the segment there. `base` is where the buffer begins in
        its file.
        """
        self._ours()
        check_range(buffer, start, stop)
        check_count(start, stop, count, HEADER_BYTES)
        position, added = start, 0
        while added < count and self.count < self._rows:
            size = _walked_size(buffer, position, stop)
            if size is None:
                raise not_walked(position)
            record = _record(buffer, position, position + size, segment)
            is_data = isinstance(record, Data)
            numbers = {
                "kinds": DATA if is_data else CHECKPOINT,
                "segments": segment if record.segment is None else record.segment,
                "checked": 0 if isinstance(record, Data) else record.checked,
                "current": 0 if isinstance(record, Data) else record.current,
                "positions": base + position,
                "sizes": size,
            }
            if not self._put(numbers, {"data": record.data if isinstance(record, Data) else b""}):
                break
            segment = numbers["segments"]
            position += size
            added += 1
        return position, added, segment


def columns(
    buffer: Buffer, start: int, stop: int, count: int, segment: int = 0, want: int = ALL_COLUMNS, base: int = 0
) -> Columns:
    """The `count` records of a walked range as columns; `base` is where the buffer begins in its file."""
    data_bytes = sum(map(len, payloads(buffer, start, stop, count)))
    builder = BatchBuilder(want, count, data_bytes)
    builder.add(buffer, start, stop, count, segment, base)
    return builder.take()


# --- building what will be written ----------------------------------------------------------------------------------


class AppendBuffer(WriteBuffer):
    """Encoded records that wait to be written to the files of a journal, with a hint at the beginning of each file.

    `append`, `register` and `check` add one record each; `take` returns the bytes, and where in them the next file
    begins. `attend` is called when `attention_bytes` wait. The next record goes to `position` of the file `file_id`,
    unless it would end after `file_bytes`.

    `starts` are pairs of a segment and the id of the file that it, or a later one, begins in or after; files before the
    entry of the oldest unchecked segment are not needed any more. `has_data` is whether the current segment has any.
    `added` is how many records were added so far.
    """

    def __init__(
        self,
        attention_bytes: int,
        file_id: int = 0,
        position: int = 0,
        file_bytes: int = 4 << 20,
        checked: int = 0,
        current: int = 0,
        has_data: bool = False,
        starts: Iterable[tuple[int, int]] = (),
    ) -> None:
        super().__init__(attention_bytes)
        self.file_id = file_id
        self.position = position
        self.file_bytes = file_bytes
        self.checked = checked
        self.current = current
        self.has_data = has_data
        self.added = 0
        self._starts = deque(starts)
        self._cuts: list[tuple[int, int, bool]] = []
        self._due = 0

    def append(self, data: Buffer) -> None:
        """Add one record of data, which must not be empty: at the end of a file it would look like zeros."""
        if self.refusing:
            self.refuse()
        payload = as_bytes(data)
        check_appendable(len(payload))
        with self._adding:
            self._put_data(payload)
        self._added()

    def register(self) -> int:
        """Close the current segment, unless it is empty; the id of the one that is being written from now on."""
        if self.refusing:
            self.refuse()
        with self._adding:
            if not self.has_data:
                return self.current
            if self.current == MAX_ID:
                raise TooLarge("the journal has used up its 64-bit ids of segments")
            self.current += 1
            self.has_data = False
            self._put_pair()
            current = self.current
        self._added()
        return current

    def check(self) -> int:
        """Retire the oldest closed segment; the id of the oldest file that is needed from now on."""
        if self.refusing:
            self.refuse()
        with self._adding:
            if self.checked == self.current:
                raise WrongUse("there is no checkpoint to check: all that were registered have been")
            self.checked += 1
            self._put_pair()
            due = self._due = self._oldest_needed()
        self._added()
        return due

    def begin(self) -> None:
        """Add the hint of the first file, if nothing was added yet."""
        if self.refusing:
            self.refuse()
        with self._adding:
            if self.position == 0:
                self._put_hint()
        self._added()

    def extend(self, columns: Columns, row: int, enough_bytes: int) -> int:
        """Add the data of rows from `row` on, up to a checkpoint or until enough bytes wait; the next row.

        The columns must have passed `check_columns`.
        """
        if self.refusing:
            self.refuse()
        rows = _Rows(columns)
        with self._adding:
            while row < columns.count and not rows.is_checkpoint(row) and len(self._buffer) < enough_bytes:
                payload = rows.data(row)
                if not payload:
                    raise WrongUse(f"row {row} is not within its columns")
                self._put_data(payload)
                row += 1
        return row

    def take(self) -> tuple[bytearray, int, list[tuple[int, int, bool]], int]:  # type: ignore[override]
        """The buffer, the number of bytes in it, the cuts, and the id of the oldest file that is needed.

        A cut is the position where the bytes of the next file begin, its id, and whether the segment that it begins in
        has data before it. The last number is 0 if nothing was checked.
        """
        with self._adding:
            buffer, used = self._swap()
            cuts, self._cuts = self._cuts, []
            due, self._due = self._due, 0
            return buffer, used, cuts, due

    def _added(self) -> None:
        if len(self._buffer) >= self.attention_bytes:
            self.attend()

    def _oldest_needed(self) -> int:
        if self.checked == self.current and not self.has_data:
            self._starts.clear()
        while len(self._starts) > 1 and self._starts[1][0] <= self.checked:
            self._starts.popleft()
        return self._starts[0][1] if self._starts else self.file_id

    def _put_data(self, payload: bytes) -> None:
        self._make_room(HEADER_BYTES + len(payload))
        self._put(HEADER.pack(header(DATA, len(payload))) + payload)
        if not self.has_data:
            self.has_data = True
            self._starts.append((self.current, self.file_id))

    def _put_pair(self) -> None:
        self._make_room(CHECKPOINT_BYTES)
        self._put_hint()

    def _make_room(self, size: int) -> None:
        """Let the next file begin if a record does not fit this one; a file begins with a hint."""
        if self.position > CHECKPOINT_BYTES and self.position + size > self.file_bytes:
            if self.file_id == MAX_ID:
                raise TooLarge("the journal has used up its 64-bit ids of files")
            self.file_id += 1
            self.position = 0
            self._cuts.append((len(self._buffer), self.file_id, self.has_data))
        if self.position == 0:
            self._put_hint()

    def _put_hint(self) -> None:
        self._put(CHECKPOINT_RECORD.pack(header(CHECKPOINT, PAIR_BYTES), self.checked, self.current))

    def _put(self, data: bytes) -> None:
        self._buffer += data
        self.position += len(data)
        self.added += 1


# --- columns to bytes -----------------------------------------------------------------------------------------------


def check_columns(columns: Columns) -> None:
    """Raise `WrongUse` or `TooLarge` unless every row can be appended."""
    rows = _Rows(columns)
    check_ends(rows.ends, columns.count, len(rows.bytes), MAX_DATA_BYTES, "record")
    for row in range(columns.count):
        if not rows.is_checkpoint(row):
            try:
                check_appendable(len(rows.data(row)))
            except WrongUse as error:
                raise type(error)(f"row {row}: {error}") from None


def pack(columns: Columns, row: int, enough_bytes: int) -> tuple[bytes, int, int]:
    """The bytes of rows of columns from `row` on, until there are `enough_bytes`; the bytes, their count, the next row.

    Every row is a record of its own, checkpoints included; without kinds all are data.
    """
    rows = _Rows(columns)
    if row < 0:
        raise WrongUse("rows count from 0")
    found = bytearray()
    first = row
    while row < columns.count and len(found) < enough_bytes:
        found += encode(rows.record(row))
        row += 1
    return bytes(found), row - first, row


class _Rows:
    """Rows out of columns."""

    def __init__(self, columns: Columns) -> None:
        count = columns.count
        if count < 0:
            raise WrongUse("columns cannot have a negative number of rows")
        self._kinds = column_items("B", columns.kinds, count, "kinds")
        self._checked = column_items("Q", columns.checked, count, "checked")
        self._current = column_items("Q", columns.current, count, "current")
        self.ends = column_items("i", columns.data_ends, count + 1, "data_ends")
        self.bytes = column_bytes(columns.data)

    def is_checkpoint(self, row: int) -> bool:
        kind = DATA if self._kinds is None else self._kinds[row]
        if kind > CHECKPOINT:
            raise WrongUse(f"row {row}: there are no records of type {kind}")
        return kind == CHECKPOINT

    def data(self, row: int) -> bytes:
        return column_part(self.bytes, self.ends, row)

    def record(self, row: int) -> Record:
        try:
            if not self.is_checkpoint(row):
                found: Record = Data(self.data(row))
            else:
                checked = 0 if self._checked is None else self._checked[row]
                found = Checkpoint(checked, 0 if self._current is None else self._current[row])
            found.validate()
        except WrongUse as error:
            raise type(error)(f"row {row}: {error}") from None
        return found
