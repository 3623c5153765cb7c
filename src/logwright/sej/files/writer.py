"""Writer: appends to a sej journal. There is one writer at a time.

The guarantee of an append when it returns depends on the sync policy:

    none            the message is in the writer's buffer; `flush` writes it, `sync` makes it durable
    interval(ms)    the same, and a background thread syncs at this interval
    always          the message is on the disk; threads that append at the same time share one sync

A crash leaves a prefix of the appended messages, and at most one incomplete message after it, which the next writer
cuts off and keeps (`recovered`, `kept`). A segment is synced before the next one is created, so only the last can be
torn. A committed batch that a killed publisher left incomplete is completed before the writer accepts messages: see
`core/publish/staging.py`.

Opening reads the end of the last segment only. Damage before it does not prevent writing: nothing is cut, and the
damage can be repaired later. If opening meets it, it is logged. But a block with a checksum that does not match is
never continued: that checksum would cover new messages as well, and readers would not return them.

If the end of the journal was lost, consumers may have passed the offsets that new messages get: opening notes these
consumers (see `offset_file.py`).

A failed write or sync is final: the writer accepts nothing more (`Poisoned`), the partial message is rolled back, and
acknowledged messages stay. Open a new writer to continue. The same happens if another program removes the lock
file while this writer holds its lock, as a closing Go writer may (see `core/io/lock.py`): no other writer was
active before, and nothing more is written.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.bytes.buffers import Buffer
from ...core.bytes.outcome import Damage
from ...core.io.disk import REAL_DISK, Disk, File, make_directories
from ...core.io.durability import SyncLike
from ...core.io.quarantine import cut_tail
from ...core.write.appending import Buffering
from ...core.write.closing import is_failure
from ...core.write.opening import JournalToWrite, open_for_writing
from ...errors import DamagedJournal, LogwrightError, StorageFailed, TooLarge, WrongUse
from ..bytes import kernel
from ..bytes.layout import DEFAULT_SEGMENT_BYTES, HEAD, LOCK_NAME, MAX_OFFSET, SEGMENT_DIRECTORY, segment_name
from ..bytes.records import NOW, Now
from .checksums import ChecksumWriter, checksum_path
from .ending import End, damage_of_last_block, find_end
from .index import STRIDE_BYTES, Index, IndexWriter
from .missing import missing_after
from .offset_file import note_ahead
from .segment import Cursor, Segment, list_segments
from .shard import parse_shard_name

if TYPE_CHECKING:
    from ..bytes.codec import Columns

logger = logging.getLogger("logwright.sej")

BUFFER_BYTES = 256 * 1024
"""How much is gathered before it is written: few enough calls, and still in the processor's cache."""
_WALK_BYTES = 16 * STRIDE_BYTES
"""How much of a segment is walked on opening, to find its end reliably and to continue its index."""


class Writer(Buffering):
    """Appends messages to the journal in a directory, creating it if it is missing.

    One writer at a time: a second one gets `Locked`, also in another program. Safe to use from many threads.
    `recovered` is the torn tail that was cut off on opening, or None; `kept` is the path of its copy.
    """

    format = "sej"
    _buffer: kernel.AppendBuffer

    def __init__(
        self,
        directory: Path | str,
        *,
        sync: SyncLike = "none",
        segment_size: int = DEFAULT_SEGMENT_BYTES,
        checksums: bool = False,
        buffer_bytes: int = BUFFER_BYTES,
        disk: Disk = REAL_DISK,
    ) -> None:
        for name, size in (("segment size", segment_size), ("buffer", buffer_bytes)):
            if not isinstance(size, int) or not 0 < size < 2**62:
                raise WrongUse(f"a {name} of {size} bytes makes no sense")
        self.directory = Path(directory).absolute()  # so that a change of directory changes nothing
        self._prepare(self.directory, sync)
        self.recovered: Damage | None = None
        self.kept: Path | None = None
        self._disk = disk
        self._want_checksums = checksums
        self._checksums: ChecksumWriter | None = None
        self._index: IndexWriter | None = None
        make_directories(disk, self.directory / SEGMENT_DIRECTORY)
        try:
            journal = journal_to_write(disk, self.directory)
            self._lock, end = open_for_writing(journal, self._open_last_segment, self._held_lock)
            note_ahead(disk, self.directory, end.next_offset)
            attention_bytes = 1 if self._always else buffer_bytes
            self._buffer = self._own(kernel.AppendBuffer(end.next_offset, end.position, segment_size, attention_bytes))
            if type(self).append is Writer.append:
                self.append = self._buffer.append  # type: ignore[method-assign]  # see `Buffering`
            self._start()
        except BaseException as error:
            self._failure = error
            self._end_sync()
            self._release()
            raise

    # --- opening ----------------------------------------------------------------------------------------------------

    def _open_last_segment(self) -> End:
        """Open the last segment where its messages end, cutting off a torn tail; that end."""
        segments = list_segments(self._disk, self.directory)
        self._refuse_missing(segments)
        if not segments:
            self._create_segment(0)
            return End(0, 0)
        segment = segments[-1]
        file = self._file = self._disk.open(segment.path, "update")
        end = find_end(self._disk, segment, file, walk_bytes=_WALK_BYTES)
        damage = end.damage or damage_of_last_block(self._disk, segment, file, end)
        if damage is not None:
            follow = "valid messages follow, so " if end.position > damage.end else ""
            reason = f"{damage.reason}; {follow}nothing is cut off (see logwright repair)"
            raise DamagedJournal(segment.path, damage.start, reason)
        if end.passed is not None:
            logger.warning("%s: damage before the end of the journal; see logwright verify", end.passed)
        if end.next_offset > MAX_OFFSET:
            raise TooLarge(f"{segment.path}: the journal has used up its 64-bit offsets")
        if end.torn is not None:
            self.recovered = end.torn
            self.kept = cut_tail(self._disk, self.directory, file, end.position)
            logger.warning("%s: cut off a torn tail, kept in %s", end.torn, self.kept)
        else:
            file.sync()  # the last writer may not have synced: new messages must not become durable first
        self._disk.sync_directory(segment.path.parent)  # the same for the name
        self._segment, self._file_size = segment, end.position
        self._resume_index(segment, file, end)
        self._open_checksums(end.position)
        return end

    def _refuse_missing(self, segments: list[Segment]) -> None:
        """A missing last segment is damage: new messages would get its offsets."""
        for missing in missing_after(self._disk, self.directory, segments):
            raise DamagedJournal(self.directory / missing.name, 0, f"{missing.reason} (see logwright repair)")

    def _resume_index(self, segment: Segment, file: File, end: End) -> None:
        """Go on with the segment's index where that takes a short walk only, over messages that are all whole."""
        if end.position <= _WALK_BYTES:
            writer = self._index = IndexWriter.create(self._disk, segment)
            cursor = Cursor(file, segment, 0, segment.first_offset, end=end.position)
        else:
            index = Index.load(self._disk, segment, end.position)
            last = index.last(file) if index is not None else None
            if index is None or last is None or end.position - last.position > _WALK_BYTES:
                return
            writer = self._index = IndexWriter.resume(self._disk, segment, index, last)
            cursor = Cursor(file, segment, last.position, last.offset, end=end.position)
        if writer is None:
            return
        while (chunk := cursor.read()) is not None:
            messages = chunk.data[chunk.start : chunk.stop]
            writer.note(messages, chunk.position, chunk.smallest_timestamp, chunk.largest_timestamp)
        if cursor.position != end.position:
            writer.close()  # damage before: the times of the lost messages are unknown
            self._index = None

    def _create_segment(self, first_offset: int) -> None:
        folder = self.directory / SEGMENT_DIRECTORY
        name = segment_name(first_offset)
        self._segment = Segment(first_offset, f"{SEGMENT_DIRECTORY}/{name}", folder / name)
        self._file = self._disk.open(self._segment.path, "create")
        self._file_size = 0
        self._disk.sync_directory(folder)
        self._index = IndexWriter.create(self._disk, self._segment)
        self._open_checksums(0)

    def _open_checksums(self, size: int) -> None:
        """Go on with the segment's checksums. Where they are not wanted, let old ones speak of nothing beyond `size`:
        what comes there now is not what they are about.
        """
        if self._want_checksums:
            self._checksums = ChecksumWriter.open_at(self._disk, self._file, size)
        elif self._disk.exists(checksum_path(self._segment.path)):
            ChecksumWriter.open_at(self._disk, self._file, size).close()

    # --- appending --------------------------------------------------------------------------------------------------

    @property
    def next_offset(self) -> int:
        """The offset of the next message."""
        return self._buffer.next_offset

    def append(self, value: Buffer, key: Buffer = b"", type: int = 0, timestamp: int | Now | None = NOW) -> int:
        """Append one message; its offset."""
        return self._buffer.append(value, key, type, timestamp)

    def append_batch(self, batch: Any) -> int:
        """Append the rows of an Arrow record batch or table; the offset of the first one.

        Columns: `value` (binary or string), and if present `key`, `type`, `timestamp` (an Arrow timestamp, or
        nanoseconds as int64; null for none). Other columns, `offset` among them, are ignored: new offsets are assigned.
        Everything is checked before anything is written. The offsets are consecutive unless other threads append too.
        """
        from ..tables.columns import from_arrow

        columns = from_arrow(batch)
        return self.append_columns(columns)

    def append_columns(self, parts: list[Columns]) -> int:
        """Append messages that are columns of plain buffers; the offset of the first one. See `append_batch`."""
        for part in parts:
            kernel.check_columns(part)
        first = self.next_offset
        now = time.time_ns()
        left = sum(part.count for part in parts)
        try:
            for part in parts:
                row = 0
                while row < part.count:
                    left += row
                    row = self._buffer.extend(part, row, now, BUFFER_BYTES)
                    left -= row
                    if self.buffered_bytes >= BUFFER_BYTES:
                        self.flush()
        except BaseException as error:
            if left and self._buffer.next_offset != first and not is_failure(error):
                self._poison(error, loses=True)  # an interrupt: some rows may have been appended, and others not
            raise
        if self._always:
            self._group.wait()
        return first

    # --- writing ----------------------------------------------------------------------------------------------------

    def _to_sync(self) -> Callable[[], None]:
        file, checksums = self._file, self._checksums
        held = None if checksums is None else checksums.held()

        def sync() -> None:
            if file is self._file:  # otherwise it was rolled over, which has synced it
                file.sync()
                self._lock.check()
                if checksums is not None and held is not None:
                    checksums.publish(held)

        return sync

    def _write_out(self) -> None:
        buffer, used, cuts, *times = self._buffer.take()
        start = 0
        with memoryview(buffer) as view:
            for position, next_offset, *times_before in cuts:
                self._write_piece(view, start, position, *times_before)
                self._roll(next_offset)
                start = position
            self._write_piece(view, start, used, *times)

    def _write_piece(self, view: memoryview, start: int, stop: int, smallest: int, largest: int) -> None:
        if start == stop:
            return
        self._lock.check()
        written = start
        try:
            while written < stop:
                written += self._file.write_at(self._file_size + written - start, view[written:stop])
        except StorageFailed:
            self._roll_back(view, start, written)
            raise
        if self._checksums is not None:
            self._checksums.hold(self._file_size, view[start:stop])
        if self._index is not None:
            self._index.note(view[start:stop], self._file_size, smallest, largest)
        self._file_size += stop - start

    def _roll_back(self, view: memoryview, start: int, written: int) -> None:
        """After a partial write, try to leave only whole messages."""
        first_offset = HEAD.unpack_from(view, start)[0]
        whole = kernel.walk(view, start, written, first_offset)[0]
        with contextlib.suppress(LogwrightError):
            self._file.truncate(self._file_size + whole - start)

    def _roll(self, next_offset: int, first_offset: int | None = None) -> None:
        """Finish this segment and begin the next. Synced first: once the next one exists, this one is never torn.

        `first_offset` is where the next one begins if messages between are lost.
        """
        with self._syncing:
            self._or_poison(lambda: self._begin_next(next_offset, first_offset or next_offset))

    def _begin_next(self, next_offset: int, first_offset: int) -> None:
        self._file.sync()
        self._lock.check()
        if self._checksums is not None:
            self._checksums.sync()
            self._checksums.close()
            self._checksums = None
        if self._index is not None:
            self._index.finish(next_offset, self._file_size)
        self._file.close()
        self._create_segment(first_offset)

    # --- closing ----------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self._lock.release)
            if hasattr(self, "_file"):  # unless opening failed before there was one
                stack.callback(self._file.close)
            if self._index is not None:
                stack.callback(self._index.close)
            if self._checksums is not None:
                stack.callback(self._close_checksums, self._checksums)

    def _close_checksums(self, checksums: ChecksumWriter) -> None:
        try:
            if self._failure is None:
                checksums.sync()
        finally:
            self._checksums = None  # first: a second call after an interrupt must not use closed checksums
            checksums.close()

    @property
    def _sync_resumes(self) -> bool:  # type: ignore[override]
        return self._checksums is None


def journal_to_write(disk: Disk, directory: Path) -> JournalToWrite:
    """A journal for `open_for_writing`. It is its own root, and may be a shard of the one above it."""
    places = [(directory, "")]
    if parse_shard_name(directory.name) is not None:
        places.append((directory.parent, directory.name))
    return JournalToWrite(disk, "sej", directory, directory / LOCK_NAME, tuple(places))
