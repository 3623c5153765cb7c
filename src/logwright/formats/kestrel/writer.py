"""Writer: appends operations to the journal of a queue, alone and safely. It knows nothing of the queue's state.

What an append guarantees when it returns, by the sync policy:

    none            the operation is in the writer's buffer; `flush` gives it to the system, `sync` to the disk
    interval(ms)    the same, and a background thread syncs that often
    always          the operation is on the disk; threads that append at the same time share one sync

What a crash leaves: a beginning of what was appended, and at most one operation cut short behind it, which the next
writer cuts off and keeps (`recovered`, `kept`). The format has no checksums: where a file system makes a file longer
before its new bytes are there, the last operations, none of which was acknowledged, may be left with wrong bytes in
them. A file is synced before it is rotated, so only the newest can ever be torn.

A failed write or sync is final: the writer takes nothing more (`Poisoned`), the partial operation is rolled back, and
what was acknowledged before stays. Open a new writer to go on.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.appending import Appending
from ...core.disk import REAL_DISK, Disk, make_directories
from ...core.durability import SyncLike
from ...core.errors import DamagedJournal, LogwrightError, StorageFailed, WrongUse
from ...core.format import find_format
from ...core.keep import cut_tail
from ...core.lock import Lock
from ...core.outcome import Damage
from ...core.repair import find_interrupted
from . import codec, kernel
from .cursor import Cursor, judge
from .files import JournalFile, list_files
from .layout import DOCUMENTED, HOME_DIRECTORY, KESTREL2, STATE_DUMP, UNDECIDED, is_queue_name, lock_name, rotated_name
from .packing import finish_pack, next_timestamp, pack, remove_temporary
from .reader import Reader
from .records import DIALECT_OF, DIALECTS, Dialect, Operation, check_dialect

if TYPE_CHECKING:
    from .codec import Columns

logger = logging.getLogger("logwright.kestrel")

BUFFER_BYTES = 256 * 1024
"""How much is gathered before it is written: few enough calls, and still in the processor's cache."""


class Writer(Appending, kernel.AppendBuffer):
    """Appends operations to the journal of the queue at `directory / name`, creating it when there is none.

    One writer at a time: a second one gets `Locked` at once. Safe to use from many threads. `addx`, `remove` and the
    others append one operation and return its position in the newest file. With `max_file_bytes` a file that has grown
    so large is rotated.

    `recovered` tells what was cut off the end on opening, None when it was whole; `kept` is where those bytes are now.
    `dialect` is the one that the journal is in; a new one is documented unless this says otherwise.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        sync: SyncLike = "none",
        dialect: Dialect = "auto",
        max_file_bytes: int | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        disk: Disk = REAL_DISK,
    ) -> None:
        for name, size in (("file", max_file_bytes), ("buffer", buffer_bytes)):
            if size is not None and (not isinstance(size, int) or not 0 < size < 2**62):
                raise WrongUse(f"a {name} of {size} bytes makes no sense")
        self.path = Path(path).absolute()  # so that a change of directory changes nothing
        self.queue = self.path.name
        self.directory = self.path.parent
        if not is_queue_name(self.queue):
            raise WrongUse(f"{self.queue!r} is no name of a queue: none of / ~ + . may be in it, but for one + within")
        self._prepare(self.path, sync)
        self.recovered: Damage | None = None
        self.kept: Path | None = None
        self._disk = disk
        self._max_file_bytes = max_file_bytes
        wanted = DIALECTS[check_dialect(dialect)]
        make_directories(disk, self.directory / HOME_DIRECTORY)
        self._lock = Lock.acquire(disk, self.directory / lock_name(self.queue))
        try:
            is_ended = self._open_newest(wanted)
            super().__init__(self._file_size, 1 if self._always else buffer_bytes, self._dialect)
            if is_ended:
                self._rotate()  # behind a state dump nothing is replayed
        except BaseException as error:
            self._failure = error
            self._release()
            raise
        self._start()

    # --- opening ----------------------------------------------------------------------------------------------------

    def _open_newest(self, wanted: int) -> bool:
        """Bring the files in order and open the newest where its operations end; whether a state dump has ended it."""
        disk, directory = self._disk, self.directory
        self._refuse_half_repaired()
        listing = list_files(disk, directory, self.queue)
        remove_temporary(disk, directory, listing)
        finish_pack(disk, directory, listing)
        listing = list_files(disk, directory, self.queue)
        self._last_timestamp = listing.last_timestamp
        source = listing.newest or JournalFile(self.queue, self.queue, self.path, None, self._last_timestamp)
        self._source = source
        self._file = disk.open(source.path, "update")
        end, dialect, is_ended = self._find_end(wanted)
        self._dialect = self._choose_dialect(dialect, wanted)
        if end is not None:
            self.recovered = end
            self.kept = cut_tail(disk, directory, self._file, end.start)
            logger.warning("%s: cut off a torn tail, kept in %s", end, self.kept)
        else:
            self._file.sync()  # whoever wrote it may have been killed before that
        disk.sync_directory(directory)  # and so may have been whoever gave it its name
        self._file_size = self._file.size()
        return is_ended

    def _refuse_half_repaired(self) -> None:
        repair = find_interrupted(self._disk, self.directory)
        if repair is not None and any(_is_of(self.queue, step.file) for step in repair.plan.steps):
            raise WrongUse(f"{repair.log}: a repair of this queue was interrupted; finish it, or undo it, first")

    def _find_end(self, wanted: int) -> tuple[Damage | None, int, bool]:
        """The torn tail of the newest file, the dialect as far as it shows, and whether there is a state dump in it."""
        settle = Reader(self.path, disk=self._disk).verdict.settle if wanted == UNDECIDED else None
        cursor = Cursor(self._file, self._source, dialect=wanted, settle=settle)
        is_ended = False
        while (chunk := cursor.read(load=False)) is not None:
            if cursor.dialect == DOCUMENTED and not is_ended:
                is_ended = STATE_DUMP in chunk.turns()[0]
        if cursor.ending == codec.CLEAN:
            return None, cursor.dialect, is_ended
        if wanted != UNDECIDED:
            self._refuse_other_dialect(wanted)
        damage, goes_on = judge(cursor)
        if goes_on:
            reason = f"{damage.reason}; items follow, so nothing is cut off (see logwright repair)"
            raise DamagedJournal(self.path, damage.start, reason)
        return damage, cursor.dialect, is_ended

    def _choose_dialect(self, found: int, wanted: int) -> int:
        """The dialect to write in: the one that was asked for, else that of the journal, else documented."""
        if wanted != UNDECIDED:
            return wanted
        if found == UNDECIDED and self._last_timestamp:
            found = Reader(self.path, disk=self._disk).verdict.settle()  # it may show in a rotated file
        return DOCUMENTED if found == UNDECIDED else found

    def _refuse_other_dialect(self, wanted: int) -> None:
        """Raise `WrongUse` when the file ends badly in the dialect that was asked for, and well in the other one."""
        other = KESTREL2 if wanted == DOCUMENTED else DOCUMENTED
        cursor = Cursor(self._file, self._source, dialect=other)
        while cursor.read(load=False) is not None:
            pass
        if cursor.ending == codec.CLEAN:
            names = {number: name for name, number in DIALECTS.items()}
            raise WrongUse(f"{self.path} is in the dialect {names[other]}, and not in {names[wanted]}")

    # --- appending --------------------------------------------------------------------------------------------------

    def append(self, operation: Operation) -> int:
        """Append an operation; its position in the newest file."""
        needed = DIALECT_OF.get(operation.op)
        if needed is not None and DIALECTS[needed] != self.dialect:
            raise WrongUse(f"the operation {operation.op} is of the dialect {needed}, which this journal is not in")
        return self.append_encoded(codec.encode(operation), 1)

    def append_batch(self, batch: Any) -> int:
        """Append the rows of an Arrow record batch or table; how many those were.

        Columns: `op`, and of `xid`, `count`, `added`, `expires` and `data` those that the operations have. Without `op`
        every row is an item to be added: `data` or `value`, and if present `added` or `timestamp`, and `expires`. Other
        columns are ignored. Everything is checked before anything is written.
        """
        columns: list[Columns] = find_format("kestrel").room("columns").from_arrow(batch)
        return self.append_columns(columns)

    def append_columns(self, parts: list[Columns]) -> int:
        """Append operations that are columns of plain buffers; how many those were. See `append_batch`."""
        now = time.time_ns() // 1_000_000
        for part in parts:
            row = 0
            while row < part.count:  # in vain, but for the errors
                _, _, row = kernel.pack(part, row, BUFFER_BYTES, self.dialect, now)
        for part in parts:
            row = 0
            while row < part.count:
                data, count, row = kernel.pack(part, row, BUFFER_BYTES, self.dialect, now)
                self.append_encoded(data, count)
        return sum(part.count for part in parts)

    # --- writing ----------------------------------------------------------------------------------------------------

    def _write_out(self) -> None:
        buffer, used = self.take()
        with memoryview(buffer) as view:
            written = 0
            try:
                while written < used:
                    written += self._file.write_at(self._file_size + written, view[written:used])
            except StorageFailed:
                self._roll_back(view, written)
                raise
        self._file_size += used
        if self._max_file_bytes is not None and self._file_size >= self._max_file_bytes:
            with self._syncing:
                self._rotate()

    def _roll_back(self, view: memoryview, written: int) -> None:
        """After a write that failed half-way: leave whole operations only, as far as the system lets us."""
        whole = kernel.walk(view, 0, written, self.dialect)[0]
        with contextlib.suppress(LogwrightError):
            self._file.truncate(self._file_size + whole)

    def _to_sync(self) -> Callable[[], None]:
        file = self._file

        def sync() -> None:
            if file is self._file:  # else it was rotated, and synced for that
                file.sync()

        return sync

    # --- rotating and packing ---------------------------------------------------------------------------------------

    @property
    def last_timestamp(self) -> int:
        """The number of the latest rotated file, 0 when there is none."""
        return self._last_timestamp

    @property
    def file_bytes(self) -> int:
        """How large the newest file is, with what waits to be written to it."""
        return self._file_size + self.buffered_bytes

    def rotate(self) -> int:
        """Finish the newest file and begin another; the number of the latest rotated file, 0 when there is none.

        An empty file is not rotated. Positions count from 0 again.
        """
        self._check_process()
        with self._writing:
            if self.refusing:
                self._refuse()
            self._or_poison(self._write_out)
            with self._syncing:
                if self._file_size:
                    self._or_poison(self._rotate)
            return self._last_timestamp

    def _rotate(self) -> None:
        """Synced before it is renamed: a rotated file is never torn. The names are synced one after the other."""
        self._file.sync()
        timestamp = next_timestamp(self._last_timestamp)
        self._disk.rename(self.path, self.directory / rotated_name(self.queue, timestamp))
        self._disk.sync_directory(self.directory)
        self._last_timestamp = timestamp
        self._file.close()
        self._file = self._disk.open(self.path, "create")
        self._disk.sync_directory(self.directory)
        self.position -= self._file_size
        self._file_size = 0

    def pack(self, upto: int | None = None) -> bool:
        """Put one file in the place of the rotated ones, all or those up to a number; False when there are none.

        Reads them, so it can be done in the background, while others append and rotate. See `packing.py`.
        """
        self._check_process()
        if self.refusing:
            self._refuse()
        name: Dialect = "kestrel2" if self.dialect == KESTREL2 else "documented"
        reader = Reader(self.path, dialect=name, disk=self._disk)
        return pack(self._disk, reader, self._last_timestamp if upto is None else upto)

    def rewrite(self) -> None:
        """Let the journal hold the state of the queue and nothing else: rotate, and pack what was rotated."""
        self.rotate()
        self.pack()

    # --- closing ----------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self._lock.release)
            if hasattr(self, "_file"):  # unless opening failed before there was one
                stack.callback(self._file.close)


def _is_of(queue: str, name: str) -> bool:
    """Whether a file is one of a queue's."""
    return name == queue or name.startswith((queue + ".", queue + "~~"))
