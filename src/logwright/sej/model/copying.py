"""Copying a sej journal: reading it in batches, and writing messages that already have offsets.

A copy has the same bytes as its source, in the same files. A segment consists of messages only, so a copy also needs to
know where segments begin: each batch is within one segment and has its first offset. A journal whose first segments
were removed begins with the first remaining one.

    feed = Feed(source, offset)
    writer = CopyWriter(target, first_offset=feed.first)
    while (batch := feed.read()) is not None: ...

Messages that the account of the source names as lost are skipped: the copy gets the same gap, and the loss in its own
account.

If batches do not name segments, a copy rolls over at its own segment size.
"""

from __future__ import annotations

import contextlib
import struct
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ...core.bytes.outcome import Damage
from ...core.io.disk import REAL_DISK, Disk, make_directories, replace_file
from ...core.io.quarantine import DIRECTORY as KEPT_DIRECTORY
from ...core.io.quarantine import cut_tail
from ...core.io.watch import Watch
from ...core.repair.losses import add_losses, read_losses
from ...core.write.closing import Closing
from ...errors import DamagedJournal, LogwrightError, NotFound, TooLarge, WrongUse
from ..bytes import kernel
from ..bytes.layout import DEFAULT_SEGMENT_BYTES, MAX_OFFSET, SEGMENT_DIRECTORY, segment_name
from ..files.ending import End
from ..files.lost import are_known, lost_messages
from ..files.reader import Reader
from ..files.scanner import Scanner
from ..files.segment import Chunk, Cursor, Segment, list_segments
from ..files.writer import Writer

SEGMENT_BYTES: Final = DEFAULT_SEGMENT_BYTES
BATCH_BYTES: Final = 1 << 20
"""The default size of a batch."""

_NOTE_NAME: Final = "copying"
_NOTE: Final = struct.Struct(">QQQ")
"""The first offset of a segment, a position in it, and the offset of the message there."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive messages of one segment, as they are stored. `segment` is the first offset of the segment.

    A batch without messages says only that the segment begins here. The two timestamps bound those of the messages.
    `lost_from` is set if the account of the source names the messages before these as lost: it is the offset of the
    first of them.
    """

    frames: bytes | bytearray | memoryview
    first_offset: int
    count: int
    smallest_timestamp: int
    largest_timestamp: int
    segment: int | None
    lost_from: int | None = None

    def continues(self, offset: int) -> bool:
        """Whether only messages that are known to be lost are missing between an offset and the first message."""
        if self.lost_from is None:
            return self.first_offset == offset
        return self.lost_from <= offset <= self.first_offset

    @property
    def next_offset(self) -> int:
        """The offset after its last message."""
        return self.first_offset + self.count

    def check_offsets(self) -> None:
        """Raise `TooLarge` for messages that no journal could hold."""
        if self.next_offset > MAX_OFFSET:
            what = f"{self.count} messages from offset {self.first_offset} on"
            raise TooLarge(f"{what} are more than a journal's 64-bit offsets are for")

    def from_offset(self, offset: int) -> Batch:
        """The messages from an offset on, which must be one of them or the next."""
        with memoryview(self.frames) as view:
            skipped = offset - self.first_offset
            start = kernel.walk(view, 0, len(view), self.first_offset, skipped)[0]
            return replace(self, frames=bytes(view[start:]), first_offset=offset, count=self.count - skipped)


# --- writing --------------------------------------------------------------------------------------------------------


class CopyWriter(Writer):
    """Writes messages that already have offsets. Everything else is as in `Writer`: lock, recovery, sync.

    `first_offset` is the first offset of a new journal.

    A power cut may lose any part of the bytes that were not synced, and keep later ones. A journal continues after its
    last whole message, with damage before it. But a copy must not, because its source would not send the lost messages
    again. So until the writer is closed, a note (`.logwright/copying`) has the position up to which all was durable
    when it was opened. The next writer walks from there on, and cuts off everything from the first bad byte: those
    messages were never acknowledged, and the source sends them again.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        first_offset: int = 0,
        segment_size: int = SEGMENT_BYTES,
        disk: Disk = REAL_DISK,
    ) -> None:
        self._first_offset = first_offset
        self._noted = False
        super().__init__(directory, segment_size=segment_size, buffer_bytes=1, disk=disk)

    def _open_last_segment(self) -> End:
        segments = list_segments(self._disk, self.directory)
        note = self._read_note()
        if segments and note is not None:
            self._cut_what_is_unsure(segments[-1], note)
        if segments or not self._first_offset:
            end = super()._open_last_segment()
        else:
            self._create_segment(self._first_offset)
            end = End(0, self._first_offset)
        if note is None:  # otherwise the earlier one is still valid, and a full disk need not store another
            self._write_note(end)
        self._noted = True
        return end

    @property
    def _note_path(self) -> Path:
        return self.directory / KEPT_DIRECTORY / _NOTE_NAME

    def _write_note(self, end: End) -> None:
        """Note durably, before anything is written, up to where everything is durable."""
        if self._disk.exists(self._note_path.parent):
            self._disk.make_directory(self._note_path.parent)  # creates nothing, and refuses a link
        make_directories(self._disk, self._note_path.parent)
        data = _NOTE.pack(self._segment.first_offset, end.position, end.next_offset)
        replace_file(self._disk, self._note_path, data, self._note_path.with_name(f"{_NOTE_NAME}.new"))

    def _read_note(self) -> tuple[int, int, int] | None:
        """The first offset of a segment, a position in it and the offset there; None if the last writer was closed."""
        try:
            file = self._disk.open(self._note_path, "read")
        except NotFound:
            return None
        try:
            data = file.read_at(0, _NOTE.size)
        finally:
            file.close()
        return _NOTE.unpack(data) if len(data) == _NOTE.size else (0, 0, 0)

    def _cut_what_is_unsure(self, segment: Segment, note: tuple[int, int, int]) -> None:
        """Walk over what the previous writer may not have synced, and cut off everything from the first bad byte on."""
        file = self._disk.open(segment.path, "update")
        try:
            position, offset = 0, segment.first_offset
            if note[0] == segment.first_offset and note[1] <= file.size():
                position, offset = note[1:]
            cursor = Cursor(file, segment, position, offset)
            while cursor.read() is not None:
                pass
            size = file.size()
            if cursor.position < size:
                self.recovered = Damage(segment.name, cursor.position, size, cursor.reason, "torn_tail")
                self.kept = cut_tail(self._disk, self.directory, file, cursor.position)
        finally:
            file.close()

    def _release(self) -> None:
        if self._noted and self._failure is None:
            with contextlib.suppress(LogwrightError):  # it only costs the next writer a walk
                self._disk.remove(self._note_path)
        super()._release()

    @property
    def failed(self) -> bool:
        """Whether a write or a sync has failed: then this writer accepts nothing more."""
        return self._failure is not None

    def write(self, batch: Batch) -> None:
        """Append and flush the messages of a batch, which must begin with the next offset."""
        if not batch.continues(self.next_offset):
            raise WrongUse(f"{self.directory}: offset {batch.first_offset} does not follow {self.next_offset}")
        if batch.next_offset > MAX_OFFSET:
            raise TooLarge(f"{self.directory}: the journal has used up its 64-bit offsets")
        self._check_process()
        with self._writing:
            if self.refusing:
                self._refuse()
            self._or_poison(lambda: self._write_batch(batch))

    def _write_batch(self, batch: Batch) -> None:
        if batch.first_offset > self.next_offset:
            self._pass_lost(batch.first_offset)
        elif batch.segment is not None and self._segment.first_offset < batch.segment == batch.first_offset:
            self._roll(batch.segment)
            self._buffer.segment_used = 0
        with memoryview(batch.frames) as view:
            if batch.segment is not None or self._buffer.segment_used + len(view) < self._buffer.segment_bytes:
                self._write_piece(view, 0, len(view), batch.smallest_timestamp, batch.largest_timestamp)
                self._buffer.segment_used += len(view)
                self._buffer.next_offset = batch.next_offset
            else:
                self._write_rolling(view, batch)

    def _pass_lost(self, first_offset: int) -> None:
        """Continue after messages that the source has lost: first add them to the account, then leave the gap."""
        known = read_losses(self._disk, self.directory)
        if not are_known(known, self.next_offset, first_offset):
            file = f"{SEGMENT_DIRECTORY}/{segment_name(first_offset)}"
            reason = "the journal that this is a copy of has lost them"
            loss = lost_messages(file, 0, 0, reason, first=self.next_offset, after=first_offset)
            add_losses(self._disk, self.directory, [loss])
        self._roll(self.next_offset, first_offset)
        self._buffer.segment_used = 0
        self._buffer.next_offset = first_offset

    def _write_rolling(self, view: memoryview, batch: Batch) -> None:
        """Write messages that fill one or more segments."""
        starts = kernel.spans(view, 0, len(view), batch.count)
        row = 0
        while row < batch.count:
            full = starts[row] + self._buffer.segment_bytes - self._buffer.segment_used
            last = min(batch.count, max(row + 1, bisect_left(starts, full)))
            _, _, _, *times = kernel.walk(view, starts[row], starts[last], self.next_offset)
            self._write_piece(view, starts[row], starts[last], *times)
            self._buffer.segment_used += starts[last] - starts[row]
            self._buffer.next_offset = batch.first_offset + last
            if self._buffer.segment_used >= self._buffer.segment_bytes:
                self._roll(self.next_offset)
                self._buffer.segment_used = 0
            row = last


def find_difference(reader: Reader, batch: Batch, stop: int) -> int | None:
    """The first offset below `stop` at which a journal differs from a batch; None if there is none.

    Messages that the journal no longer has are not compared.
    """
    position = 0
    with memoryview(batch.frames) as frames:
        for chunk in reader.chunks(batch.first_offset, stop):
            assert isinstance(chunk, Chunk)
            if position == 0 and chunk.first_offset > batch.first_offset:
                missing = chunk.first_offset - batch.first_offset
                position = kernel.walk(frames, 0, len(frames), batch.first_offset, missing)[0]
            size = chunk.stop - chunk.start
            if bytes(chunk.data[chunk.start : chunk.stop]) != bytes(frames[position : position + size]):
                return _first_difference(chunk, frames[position:])
            position += size
    return None


def _first_difference(chunk: Chunk, frames: memoryview) -> int:
    starts = kernel.spans(chunk.data, chunk.start, chunk.stop, chunk.count)
    for row in range(chunk.count):
        start, stop = starts[row], starts[row + 1]
        if bytes(chunk.data[start:stop]) != bytes(frames[start - chunk.start : stop - chunk.start]):
            return chunk.first_offset + row
    raise AssertionError("the bytes differ, and none of the messages does")


# --- reading --------------------------------------------------------------------------------------------------------


class Feed(Closing):
    """A journal in batches, from an offset on, also while it is written. `read` never waits.

    A batch is valid until the next one is read. Without `follow` an incomplete message at the end is checked at once:
    it is damage if valid messages follow it. With `follow` the feed waits for it to become whole. Many feeds can share
    a `watch`, which the caller closes.
    """

    def __init__(
        self,
        directory: Path | str,
        offset: int | None = None,
        *,
        batch_bytes: int = BATCH_BYTES,
        follow: bool = False,
        watch: Watch | None = None,
        disk: Disk = REAL_DISK,
    ) -> None:
        self.directory = Path(directory)
        self._batch_bytes = batch_bytes
        self._follow = follow
        self._scanner = Scanner(directory, offset, timeout=0, disk=disk, watch=watch)
        self._reader = Reader(directory, disk=disk)
        self._reported: int | None = None
        self._next = offset if offset is not None and offset >= self._reader.first else None
        self._pieces: Iterator[Batch] = iter(())

    def read(self) -> Batch | None:
        """The next messages; None if there are none now. The beginning of an empty segment is returned once."""
        batch = next(self._pieces, None)
        if batch is not None:
            return batch
        chunk = self._scanner.poll(stalled=not self._follow)
        if isinstance(chunk, Damage):
            raise DamagedJournal(chunk.file, chunk.start, chunk.reason)
        if chunk is None:
            return self._empty_segment()
        self._reported = chunk.segment.first_offset
        self._pieces = self._cut(chunk)
        return self._noting_lost(next(self._pieces), chunk.first_offset + chunk.count)

    def _noting_lost(self, batch: Batch, following: int) -> Batch:
        """A batch with the offset of the first message that is lost before it, if any."""
        expected, self._next = self._next, following
        return batch if expected is None or expected >= batch.first_offset else replace(batch, lost_from=expected)

    def _cut(self, chunk: Chunk) -> Iterator[Batch]:
        """A chunk as batches of limited size, unless a single message is larger."""
        if chunk.stop - chunk.start <= self._batch_bytes:
            yield self._batch(chunk, chunk.start, chunk.stop, 0, chunk.count)
            return
        starts = kernel.spans(chunk.data, chunk.start, chunk.stop, chunk.count)
        row = 0
        while row < chunk.count:
            after = bisect_left(starts, starts[row] + self._batch_bytes + 1) - 1
            last = max(row + 1, after)
            yield self._batch(chunk, starts[row], starts[last], row, last)
            row = last

    def _batch(self, chunk: Chunk, start: int, stop: int, row: int, last: int) -> Batch:
        return Batch(
            chunk.data[start:stop],
            chunk.first_offset + row,
            last - row,
            chunk.smallest_timestamp,
            chunk.largest_timestamp,
            chunk.segment.first_offset,
        )

    def _empty_segment(self) -> Batch | None:
        segments = self._reader.segments()
        first_offset = segments[-1].first_offset if segments else None
        if first_offset is None or first_offset == self._reported or first_offset != self._scanner.offset:
            return None
        self._reported = first_offset
        return self._noting_lost(Batch(b"", first_offset, 0, 0, 0, first_offset), first_offset)

    @property
    def watch(self) -> Watch:
        """The watch that wakes up when messages may have been appended."""
        return self._scanner.watch

    @property
    def first(self) -> int:
        """The offset that the journal begins with."""
        return self._reader.first

    @property
    def next(self) -> int:
        """The offset that the journal's next message will get."""
        return self._reader.next

    def size_from(self, offset: int) -> int:
        """The total size of the segments from the one with this offset on."""
        segments = self._reader.segments()
        begun = [segment for segment in segments if segment.first_offset <= offset]
        there = segments[max(0, len(begun) - 1) :]
        return sum(self._reader.disk.file_size(segment.path) for segment in there)

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        self._scanner.close()
