"""Writer: appends to a journal, for programs without asyncio. There is one writer at a time.

    with Writer("orders") as writer:                       # continues at the end of the journal
        writer.append(b"first")
        writer.register_checkpoint()                       # 1: what was appended is a segment, complete in itself
        writer.check_checkpoint()                          # and not needed any more

    with Writer("orders", recovering=True) as writer:      # begins a new generation
        for segment in writer.recovery():                  # what was not checked
            ...

The guarantee of an append when it returns depends on the sync policy:

    none            the record is in the writer's buffer; `flush` writes it, `sync` makes it durable
    interval(ms)    the same, and a background thread syncs at this interval
    always          the record is on the disk; threads that append at the same time share one sync

A crash leaves a prefix of the appended records, and at most one incomplete record after it, which the next writer cuts
off and keeps (`recovered`, `kept`). A file is synced before the next one is created, so only the last can be torn.
Files are removed oldest first, and only after the checkpoint record is durable. The format has no checksums: if a file
system extends a file before it writes the bytes, the last records may have wrong bytes; none of them was acknowledged
as durable.

A failed write or sync is final: the writer accepts nothing more (`Poisoned`), the partial record is rolled back, and
acknowledged records stay. Open a new writer to continue.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.bytes.buffers import Buffer
from ...core.bytes.outcome import Damage, Mode
from ...core.io.disk import REAL_DISK, Disk, File, make_directories
from ...core.io.durability import SyncLike
from ...core.write.appending import Buffering
from ...core.write.opening import open_for_writing
from ...errors import LogwrightError, StorageFailed, WrongUse
from ..bytes import kernel
from ..bytes.layout import (
    CHECKPOINT,
    CHECKPOINT_BYTES,
    HEADER_BYTES,
    HOME_DIRECTORY,
    MAX_FILE_BYTES,
    MAX_HEAD_BYTES,
    MAX_ID,
    PAIR,
    Done,
    file_name,
)
from .files import add_lost_segments
from .note import Note, Noted
from .opening import End, drop_older, journal_to_write, open_end, put_aside

if TYPE_CHECKING:
    from ..bytes.codec import Columns
    from ..model.recovery import Recovery

BUFFER_BYTES = 256 * 1024
"""How much is gathered before it is written: few enough calls, and still in the processor's cache."""


class Writer(Buffering):
    """Appends to the journal in a directory, creating it if it is missing.

    One writer at a time: a second one gets `Locked`. Safe to use from many threads. `append` adds one record of data.
    `recovered` is the torn tail that was cut off on opening, or None; `kept` is the path of its copy. `checked` and
    `current` are the ids of the oldest unchecked segment and of the one that is being written.

    `file_bytes` is how large a file may become; readers of other programs expect at most 4 MiB. With `recovering` it
    begins a new generation, and `recovery` returns what was not checked of the earlier ones.
    """

    format = "appendfile"
    _buffer: kernel.AppendBuffer

    def __init__(
        self,
        directory: Path | str,
        *,
        sync: SyncLike = "none",
        file_bytes: int = MAX_FILE_BYTES,
        buffer_bytes: int = BUFFER_BYTES,
        recovering: bool = False,
        disk: Disk = REAL_DISK,
    ) -> None:
        if not isinstance(file_bytes, int) or not CHECKPOINT_BYTES < file_bytes <= MAX_FILE_BYTES:
            raise WrongUse(f"a file of {file_bytes} bytes makes no sense: it has more than 20, and at most 4 MiB")
        if not isinstance(buffer_bytes, int) or not 0 < buffer_bytes < 2**62:
            raise WrongUse(f"a buffer of {buffer_bytes} bytes makes no sense")
        self.directory = Path(directory).absolute()  # so that a change of directory changes nothing
        self._prepare(self.directory, sync)
        self._disk = disk
        self._recovering, self._has_recovery = recovering, False
        self._file: File | None = None
        self._note = Note(disk, self.directory)
        self._finished: tuple[int, Noted] | None = None
        """The file before the one that is written, until the note says that it is finished."""
        self._rows_current: int | None = None
        self._rows_closed: deque[tuple[int, int]] = deque()
        self._rows_generation: int | None = None
        self._rows_lost = False
        """Whether the segment of the rows that are being appended has lost records where they come from."""
        self._lost: int | None = None
        make_directories(disk, self.directory / HOME_DIRECTORY)
        try:
            journal = journal_to_write(disk, self.directory)
            self._lock, end = open_for_writing(journal, self._open_end, self._held_lock)
            self.older = end.older
            """The files to recover when the journal was opened."""
            self.began = (end.file_id, end.current)
            """The file and the segment after that."""
            attention_bytes = 1 if self._always else buffer_bytes
            place = (end.file_id, end.position, file_bytes, end.checked, end.current, end.has_data, end.starts)
            self._buffer = self._own(kernel.AppendBuffer(attention_bytes, *place))
            if type(self).append is Writer.append:
                self.append = self._buffer.append  # type: ignore[method-assign]  # see `Buffering`
            self._start()
        except BaseException as error:
            self._failure = error
            self._end_sync()
            self._release()
            raise

    def recovery(self, *, mode: Mode = "failfast") -> Recovery:
        """The walk over the segments that were not checked when the writer was opened with `recovering`.

        The writer can be used at once, also to append records of the walk again. The old files are removed at the end
        of the walk; until then the next opening returns them again. See `Recovery`.
        """
        from ..model.recovery import Recovery

        if not self._recovering:
            raise WrongUse(f"{self.directory} was opened to continue it; a recovery needs Writer(…, recovering=True)")
        if self._has_recovery:
            raise WrongUse(f"{self.directory}: the recovery has begun already, and there is one for each opening")
        found = Recovery(self, mode=mode)
        self._has_recovery = True
        return found

    def _open_end(self) -> End:
        self._note.read()
        end = open_end(self._disk, self.directory, self._note, recovering=self._recovering)
        self._take_over(end)
        return end

    def _take_over(self, end: End) -> None:
        self.recovered: Damage | None = end.cut
        self.kept: Path | None = end.kept
        self._file = end.file
        self._file_size = end.position
        self._ids = end.ids
        """The ids that the file begins with."""
        self._has_before: bool | None = None
        """Whether the segment that the file begins in has data before it; None if no file is before it, or unknown."""
        self._before = 0
        self._next_id = end.file_id
        self._paths = deque(end.paths)

    @property
    def disk(self) -> Disk:
        """The disk that it writes to."""
        return self._disk

    # --- segments ---------------------------------------------------------------------------------------------------

    @property
    def checked(self) -> int:
        """The id of the oldest unchecked segment; `current` if there is none."""
        return self._buffer.checked

    @property
    def current(self) -> int:
        """The id of the segment that is being written."""
        return self._buffer.current

    @property
    def has_data(self) -> bool:
        """Whether the current segment has records."""
        return self._buffer.has_data

    @property
    def file_id(self) -> int:
        """The id of the file that the next record goes to."""
        return self._buffer.file_id

    def register_checkpoint(self) -> int:
        """Close the current segment; the id of the one that is being written from now on. An empty one stays open."""
        return self._buffer.register()

    def check_checkpoint(self) -> None:
        """Retire the oldest closed segment, and remove files that are not needed; `WrongUse` if there is none."""
        needed = self._buffer.check()
        if self._paths and self._paths[0][0] < needed:
            self.flush()

    def begin_generation(self) -> None:
        """Put all files aside as `open` does, so that later records do not join a segment that is still open.

        A recovery returns these files first. No other thread may append meanwhile.
        """
        self.sync()
        with self._writing, self._syncing:
            if self._paths:
                self._or_poison(self._put_aside)

    def _put_aside(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
        end = put_aside(self._disk, self.directory, self.current)
        end.cut, end.kept = self.recovered, self.kept
        self._take_over(end)
        buffer = self._buffer
        buffer.file_id, buffer.position, buffer.checked, buffer.has_data = end.file_id, 0, end.checked, False

    def end_recovery(self, done: Done) -> None:
        """Let go of what there was to recover, in one step; a generation that was begun since then stays."""
        with self._writing, self._syncing:
            drop_older(self._disk, self.directory, done)
            self._note.forget_before(done.file_id)

    # --- appending --------------------------------------------------------------------------------------------------

    def append(self, data: Buffer) -> None:
        """Append one record of data, which must not be empty: at the end of a file it would look like nothing."""
        self._buffer.append(data)

    def begin(self) -> None:
        """Begin the first file, if nothing was appended yet."""
        self._buffer.begin()

    def append_many(self, records: Iterable[Buffer]) -> None:
        """Append data, one record each."""
        for record in records:
            self.append(record)

    def append_batch(self, batch: Any) -> int:
        """Append the rows of an Arrow record batch or table; how many those were.

        Columns: `data` or `value` (binary or string). With a column `kind`, rows may be checkpoints: where their
        `current` grows a segment is closed, and where their `checked` grows one is checked. With a column `generation`
        rows that follow those of another one begin a generation here as well. A segment with rows that are `lost` is
        not complete here either. Other columns are ignored. Everything is checked before anything is written.
        """
        from ..tables.columns import from_arrow

        columns = from_arrow(batch)
        return self.append_columns(columns)

    def append_columns(self, parts: list[Columns]) -> int:
        """Append records that are columns of plain buffers; how many those were. See `append_batch`."""
        for part in parts:
            kernel.check_columns(part)
        for part in parts:
            self._turn_generation(part)
            row = 0
            self._rows_lost |= part.lost and not _is_checkpoint(part, 0)
            while row < part.count:
                row = self._buffer.extend(part, row, BUFFER_BYTES)
                if self._rows_lost:
                    self._note_loss()
                if row < part.count and _is_checkpoint(part, row):
                    self._turn(part, row)
                    row += 1
                if self.buffered_bytes >= BUFFER_BYTES:
                    self.flush()
        if self._always:
            self._group.wait()
        return sum(part.count for part in parts)

    def _turn_generation(self, part: Columns) -> None:
        """Begin a generation where rows of another one follow: their pairs of ids say nothing about those before."""
        before, self._rows_generation = self._rows_generation, part.generation
        if before is not None and part.generation not in (None, before):
            self.begin_generation()
            self._rows_current, self._rows_lost, self._lost = None, False, None
            self._rows_closed.clear()

    def _turn(self, part: Columns, row: int) -> None:
        """Apply a checkpoint among rows to their segments, which have other ids here.

        Segments that are not among the rows, because their files were removed, are ignored.
        """
        checked, current = (
            0 if column is None else memoryview(column).cast("B").cast("Q")[row]
            for column in (part.checked, part.current)
        )
        before, self._rows_current = self._rows_current, current
        if before is not None and current > before:
            self._rows_lost = False
            if self.has_data:
                self._rows_closed.append((before, self.current))
                self.register_checkpoint()
        self._rows_lost |= part.lost
        if self._rows_lost:
            self._note_loss()
        while self._rows_closed and self._rows_closed[0][0] < checked:
            _, ours = self._rows_closed.popleft()
            if ours == self.checked:  # else an older one of this journal's own waits to be checked
                self.check_checkpoint()

    def _note_loss(self) -> None:
        """Add to the account of losses that the current segment is not complete, before it can be closed."""
        if not self.has_data or self._lost == self.current:
            return  # without data there is no segment yet
        self._lost = self.current
        with self._writing, self._syncing:
            self._or_poison(self._add_to_account)

    def _add_to_account(self) -> None:
        add_lost_segments(self._disk, self.directory, file_name(self.file_id), self.file_id, [self.current])

    # --- writing ----------------------------------------------------------------------------------------------------

    def _to_sync(self) -> Callable[[], None]:
        return partial(self._sync_file, self._file, self._file_size)

    def _sync_file(self, file: File | None, size: int) -> None:
        if file is not None and file is self._file:  # otherwise the next file was begun, which has synced it
            file.sync()
            self._note.put(self._next_id, Noted(size, self._ids, before=self._before))

    def _write_out(self) -> None:
        buffer, used, cuts, needed = self._take()
        start = 0
        with memoryview(buffer) as view:
            for position, file_id, has_data in cuts:
                self._write_piece(view, start, position)
                self._begin_next(file_id)
                self._has_before = has_data
                start = position
            self._write_piece(view, start, used)
        self._remove_before(needed)

    def _take(self) -> tuple[bytearray, int, list[tuple[int, int, bool]], int]:
        return self._buffer.take()

    def _write_piece(self, view: memoryview, start: int, stop: int) -> None:
        if start == stop:
            return
        file = self._file or self._create()
        head = 0
        if self._file_size == 0:
            head, self._ids = _head_bytes(view, start, stop), PAIR.unpack_from(view, start + HEADER_BYTES)
            self._before = 0 if self._has_before is None else min(self._ids[1] + self._has_before, MAX_ID)
        if 0 < head < stop - start:
            self._write_piece(view, start, start + head)
            file.sync()  # so that a file which is longer always begins like this, whatever a power cut leaves
            self._note.put(self._next_id, Noted(self._file_size, self._ids, before=self._before))
            start += head
        written = start
        try:
            while written < stop:
                written += file.write_at(self._file_size + written - start, view[written:stop])
        except StorageFailed:
            whole = kernel.walk(view, start, written)[0]
            with contextlib.suppress(LogwrightError):  # try to leave only whole records
                file.truncate(self._file_size + whole - start)
            raise
        self._file_size += stop - start

    def _begin_next(self, file_id: int) -> None:
        """Finish this file. It is synced first: once the next one exists, this one is never torn."""
        with self._syncing:
            file, self._file = self._file, None
            self._next_id = file_id
            if file is not None:
                try:
                    file.sync()
                finally:
                    file.close()
                self._finished = self._paths[-1][0], Noted(self._file_size, self._ids, True, self._before)

    def _create(self) -> File:
        path = self.directory / file_name(self._next_id)
        self._file = self._disk.open(path, "create")
        self._file_size = 0
        self._paths.append((self._next_id, path))
        self._disk.sync_directory(self.directory)
        if self._finished is not None:
            self._note.put(*self._finished)  # from now on nothing is added to it
            self._finished = None
        return self._file

    def _remove_before(self, needed: int) -> None:
        """Remove the files that no unchecked segment needs, once the disk knows that these are checked."""
        if not self._paths or self._paths[0][0] >= needed:
            return
        with self._syncing:
            if self._file is not None:
                self._file.sync()
            while self._paths and self._paths[0][0] < needed:
                self._disk.remove(self._paths[0][1])
                self._note.forget(self._paths.popleft()[0])

    def begin_file(self) -> int:
        """The id after the last file, made durable with what was appended; no file has it yet."""
        if not self._paths:
            return self.file_id
        self.begin()  # a file of no bytes may only be the last one
        self.sync()
        return self.file_id + 1

    # --- closing ----------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self._lock.release)
            stack.callback(self._note.close)
            if self._file is not None:
                stack.callback(self._file.close)
                self._file = None


def _head_bytes(view: memoryview, start: int, stop: int) -> int:
    """The size of the hint of a file, together with the checkpoint that it repeats if that has begun the file."""
    following = start + CHECKPOINT_BYTES
    return CHECKPOINT_BYTES if following < stop and view[following] != CHECKPOINT else MAX_HEAD_BYTES


def _is_checkpoint(part: Columns, row: int) -> bool:
    return part.kinds is not None and memoryview(part.kinds).cast("B")[row] == CHECKPOINT
