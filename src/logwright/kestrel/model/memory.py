"""Memory: a queue's journal, open for writing, and the items of the queue that fit in memory.

Opening reads all files once, before anything is cut (see `files/survey.py`). Then it loads the first items, and puts
items that were reserved back at the head. The other items are read when they are needed: the queue reads behind. If a
file is damaged, opening fails and changes no file; a torn tail of the newest file is not damage.

An operation is written at once, unless `buffer_bytes` is set.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...core.bytes.compiled import COMPILED
from ...core.io.disk import Disk, write_all
from ...core.io.durability import SyncLike
from ...core.io.threads import Flag
from ...core.read.chunk import POSITION_BITS
from ...core.write.closing import is_failure
from ...errors import DamagedJournal, LogwrightError, Poisoned, StorageFailed, WrongUse
from ..bytes import codec
from ..bytes.layout import (
    ADD_XID_HEAD,
    ADDX_HEAD,
    CONFIRM_REMOVE,
    DOCUMENTED,
    KESTREL2,
    UNDECIDED,
    UNREMOVE,
    XID_HEAD,
    note_name,
    rotated_name,
    rotated_note_name,
)
from ..bytes.records import Dialect, Operation
from ..files.cursor import Cursor
from ..files.files import JournalFile, Listing, OpenFiles, list_files
from ..files.queue_files import QueueFiles
from ..files.reader import Reader
from ..files.survey import Survey, effects_of
from .packing import Packed, finish_pack, state_operations
from .read_behind import ReadBehind
from .shelf import NO_LIMIT, Entry, ShelfOwner

if TYPE_CHECKING or not COMPILED:
    from .shelf import Shelf as Shelf
else:
    from ._shelf import Shelf as Shelf

Result = TypeVar("Result")

GATHER_BYTES: Final = 1 << 20
"""The size of the buffer of a call with many operations."""


class Fate(Enum):
    """What happens on opening to an item that was reserved."""

    IS_PUT_BACK = auto()
    STAYS = auto()
    """It stays reserved."""
    IS_FINISHED = auto()
    """It is in another queue already."""


class Memory(QueueFiles):
    """The journal of a queue, and its `shelf` with the items in memory; both are changed with the `mutex` held.

    `xid` is the last used id, `open_items` has the reserved items by id.
    """

    def _open_journal(
        self, path: Path, sync: SyncLike, dialect: Dialect, buffer_bytes: int, disk: Disk, owner: ShelfOwner
    ) -> None:
        if not isinstance(buffer_bytes, int) or not 0 <= buffer_bytes < 2**62:
            raise WrongUse(f"buffer_bytes cannot be {buffer_bytes!r}")
        self.shelf = self._operations = Shelf(0, buffer_bytes or GATHER_BYTES, UNDECIDED, owner)
        self.mutex = self.shelf.mutex
        self.disk = disk
        self.xid = 0
        self.added_before = 0
        """The number of items that were added before the queue was opened."""
        self.open_items: dict[int, Entry] = {}
        self.open_bytes = 0
        self.rotated: dict[int, int] = {}
        """The sizes of the rotated files by their numbers."""
        self._unusual_names: dict[int, str] = {}
        """The names of rotated files that differ from `rotated_name`: their numbers have leading zeros."""
        self._behind: ReadBehind | None = None
        self._survey: Survey | None = None
        self._surveying = contextlib.ExitStack()
        self._holds_writes = False
        self._acknowledged_bytes = 0
        """The end of the acknowledged operations of the newest file; the callers of later ones still wait."""
        self._names_are_final = Flag()
        """Not set while a pack is in use under a name that is about to change."""
        self._names_are_final.set()
        with self._surveying:
            self._open_files(path, sync, dialect, disk)
            is_buffered = buffer_bytes > 0 or self._always  # callers that share a sync also share the write
            self._acknowledged_bytes = self._file_size
            self._own(self.shelf)
            self.shelf.position, self.shelf.dialect = self._file_size, self._dialect
            self._writes_through = not is_buffered
            self._begin()
            self._survey = None
            try:
                self._surveying.close()
            except BaseException:  # the queue is open, and the caller cannot close it
                with contextlib.suppress(LogwrightError):
                    self.close()
                raise

    @property
    def refusing(self) -> bool:  # type: ignore[override]
        """Whether every call is refused: the queue is closed, or has failed."""
        return self.shelf.refusing

    @property
    def _file_size(self) -> int:
        """The size of the newest file: the shelf writes to it as well."""
        return self.shelf.file_size

    @_file_size.setter
    def _file_size(self, size: int) -> None:
        self.shelf.file_size = size

    def _configure(self) -> None:
        """Set the limits: called after the shelf is created, and before anything is put on it."""

    def _prepare_to_load(self) -> None:
        """Called before the items are loaded, and before anything is written."""

    def _fate_of(self, xid: int, entry: Entry) -> Fate:
        """What happens on opening to an item that was reserved under this id."""
        return Fate.IS_PUT_BACK

    # --- opening ----------------------------------------------------------------------------------------------------

    def _examine(self, listing: Listing) -> None:
        for file in listing.files:
            if file.timestamp is not None:
                self.rotated[file.timestamp] = self._disk.file_size(file.path)
                if file.name != rotated_name(self.queue, file.timestamp):
                    self._unusual_names[file.timestamp] = file.name
        if not listing.files:
            return
        reader = Reader(self.path, dialect=self._asked_dialect, disk=self._disk)
        files = self._surveying.enter_context(reader.snapshot())
        try:
            self._survey = Survey(reader, files)
        except DamagedJournal as damage:
            raise self._explained(damage) from None

    def _check_rotated(self, listing: Listing) -> None:
        """Nothing: `_examine` has read all files."""

    def _choose_dialect(self, found: int, wanted: int) -> int:
        """The dialect of the journal: kestrel2 if its operations do not show it, as in a new queue.

        Releases of Kestrel from 2.1 on replay every REMOVE_TENTATIVE as transaction 0. In a `documented` journal they
        would lose one of two open items.
        """
        if wanted != UNDECIDED:
            return super()._choose_dialect(found, wanted)
        survey = self._survey  # all files were read
        if survey is None or (survey.dialect == UNDECIDED and not survey.reserves_by_position):
            return KESTREL2
        return DOCUMENTED if survey.dialect == UNDECIDED else survey.dialect

    def _start(self) -> None:
        with self._or_released():
            self._configure()
            self._choose_write()
            self.opened = self.shelf.now()
            """When the queue was opened, in milliseconds. Items of unknown time count as added then."""
            self._prepare_to_load()
            if self._survey is not None:
                self._load(self._survey)
                if self._always:
                    self._sync()
        super()._start()

    def _load(self, survey: Survey) -> None:
        replay = survey.replay
        self.xid = replay.xid
        self.shelf.added = self.added_before = replay.added
        front, reserved = replay.front(), replay.open()
        loaded = survey.load([item for item, _ in front] + [item for _, item, _ in reserved])
        for item, attempts in reversed(front):
            self.shelf.put_back(_entry(loaded[item], attempts))

        def put_back() -> None:
            for xid, item, attempts in sorted(reserved, reverse=True):  # the lowest id ends at the head
                fate = self._fate_of(xid, _entry(loaded[item], attempts))
                if fate is Fate.STAYS:
                    self.open_items[xid] = _entry(loaded[item], attempts)
                    self.open_bytes += len(self.open_items[xid][0])
                elif fate is Fate.IS_FINISHED:
                    self.shelf.emit(XID_HEAD.pack(CONFIRM_REMOVE, xid))
                else:
                    self.shelf.emit(XID_HEAD.pack(UNREMOVE, xid))
                    self.shelf.put_back(_entry(loaded[item], attempts + 1))

        self.atomically(put_back)
        self._load_run(survey)

    def _load_run(self, survey: Survey) -> None:
        """Load the rest of the queue if it fits in memory, else store where it begins."""
        replay = survey.replay
        if replay.first == replay.added:
            return
        place = survey.find(replay.first)
        timestamp = survey.files.files[place.file].timestamp
        if timestamp is None and self._is_ended:  # it had a state dump, so it has been rotated
            timestamp = self._last_timestamp
        self._behind = self._reader_at(timestamp, place.position)
        self.shelf.items += replay.added - replay.first
        self.shelf.data_bytes += replay.added_bytes - place.bytes_before
        if self.shelf.items <= self.shelf.max_memory_items and self.shelf.data_bytes <= self.shelf.max_memory_bytes:
            while self._behind is not None:
                self._refill()

    # --- writing ----------------------------------------------------------------------------------------------------

    def _choose_write(self) -> None:
        """Let the shelf write to the newest file, or buffer operations."""
        self.shelf.write = self._file.write_at if self._writes_through and not self._holds_writes else None

    def check(self) -> None:
        """Raise if the queue is closed or has failed. The mutex is held."""
        if self.refusing or self.shelf.unsettled:
            self._refuse()

    def atomically(self, work: Callable[[], Result], *, together: bool = True) -> Result:
        """Do work completely or not at all, and write its operations `together`. The mutex is held.

        If the work raises a `LogwrightError`, the operations so far take effect. If it raises anything else, such as an
        exception of a signal handler, none of them does, and the queue is poisoned, because the memory has changed.
        """
        if self.shelf.unsettled:  # the enclosing call does the rest
            return work()
        self.shelf.unsettled = True
        self.shelf.began = self.shelf.position
        together = together and self._writes_through and not self._holds_writes
        try:
            try:
                if together:
                    self._holds_writes = True
                    self._acknowledged_bytes = self.shelf.file_size
                    self._choose_write()
                result = work()
            except LogwrightError:
                if self._failure is None:
                    self._end_atomic(together)
                raise
            self._end_atomic(together)
            return result
        except BaseException as error:
            if self.shelf.unsettled:
                self.shelf.refusing = True
                self.interrupted(error)
            raise

    def _end_atomic(self, together: bool) -> None:
        if together:
            self._holds_writes = False
            self._write_buffered()
            self._choose_write()
        self.shelf.unsettled = False

    def interrupted(self, error: BaseException) -> None:
        """Poison the queue, and remove the operations of the interrupted call from the journal."""
        if is_failure(self._failure):
            return
        self._poison(error)
        with contextlib.suppress(LogwrightError), self._writing:
            buffer, used = self.shelf.take()
            before = self.shelf.began - self.shelf.file_size  # operations of earlier calls that are not written yet
            if 0 < before <= used:
                write_all(self._file, self.shelf.file_size, memoryview(buffer)[:before])
            if self._file.size() > self.shelf.began:
                self._file.truncate(self.shelf.began)

    def _refuse(self) -> None:
        if self._failure is None and self.shelf.unsettled:
            raise Poisoned(f"{self.path}: a call was interrupted; open the queue again")
        super()._refuse()

    def hold_writes(self) -> None:
        """Buffer the operations of all callers until `release_writes`, which writes them together."""
        with self.mutex:
            if self._writes_through and not self._holds_writes:
                self._holds_writes = True
                self._acknowledged_bytes = self.shelf.file_size
                self._choose_write()

    def release_writes(self) -> None:
        """Write the operations buffered since `hold_writes`, and write at once from now on."""
        with self.mutex:
            self.check()
            if self._writes_through and self._holds_writes:
                self._holds_writes = False
                try:
                    self._write_buffered()
                finally:
                    self._choose_write()

    def _write_buffered(self) -> None:
        """Write the buffered operations."""
        with self._writing:
            if self._failure is not None:
                self._refuse()
            self._write_gathered()

    _resumes = True

    def _write_out(self) -> None:
        is_left = True
        while is_left:
            is_left = self.shelf.in_flight is not None  # left by an interrupted call
            buffer, used = self.shelf.take()
            written = 0
            with memoryview(buffer) as view:
                try:
                    while written < used:
                        written += self._file.write_at(self.shelf.file_size + written, view[written:used])
                except StorageFailed:
                    self._roll_back(view, written)
                    raise
            self.shelf.file_size += used
            self.shelf.in_flight = None

    def _take_back(self, size: int) -> None:
        """Cut the last bytes off the journal: operations whose caller did not get the result. The mutex is held."""
        self._write_buffered()
        with self._writing:
            self._file.truncate(self.shelf.file_size - size)
            self.shelf.file_size = self.shelf.position = self.shelf.file_size - size
            self._acknowledged_bytes = min(self._acknowledged_bytes, self.shelf.file_size)
            self.shelf.serial += 1

    def _attend(self) -> None:
        self._write_buffered()

    def write_failed(self, error: BaseException) -> None:
        self._poison(error)

    def poison(self, error: BaseException) -> None:
        """Refuse further calls: an error may have made the journal and the memory inconsistent."""
        self._poison(error)

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    @property
    def is_usable(self) -> bool:
        """Whether calls are accepted. The mutex is held."""
        return not self.refusing and not self.shelf.unsettled

    @property
    def syncs_always(self) -> bool:
        return self._always

    def write_rest(self, data: bytes, done: int) -> None:
        with memoryview(data) as view:
            try:
                while done < len(data):
                    done += self._file.write_at(self.shelf.file_size + done, view[done:])
            except BaseException as error:
                if isinstance(error, StorageFailed):
                    self._cut_back(self.shelf.file_size)
                self.write_failed(error)
                raise

    def _roll_back(self, view: memoryview, written: int) -> None:
        """Remove the operations of a failed write: an item that was removed but not delivered would be lost.

        Operations in a buffer of `buffer_bytes` have been acknowledged, so as many of them as possible are kept.
        """
        if self._writes_through or self._always:
            self._cut_back(self._acknowledged_bytes)
        else:
            super()._roll_back(view, written)

    def _cut_back(self, size: int) -> None:
        with contextlib.suppress(LogwrightError):
            self._file.truncate(size)

    def _to_sync(self) -> Callable[[], None]:
        self._acknowledged_bytes = self.shelf.file_size
        return super()._to_sync()

    def _rotate(self) -> None:
        size = self.shelf.file_size
        super()._rotate()
        self.shelf.serial += 1
        self._acknowledged_bytes = 0
        self.rotated[self._last_timestamp] = size
        if self._behind is not None and self._behind.timestamp is None:
            self._behind.timestamp = self._last_timestamp
        self._choose_write()

    def _open_replaced(self) -> None:
        super()._open_replaced()
        self.shelf.serial += 1
        self._acknowledged_bytes = self.shelf.file_size
        self._choose_write()

    # --- replacing the files by others with the same state --------------------------------------------------------

    @property
    def next_number(self) -> int:
        """The number of the next operation (see `files.py`). It only grows until `replace`."""
        return (self._last_timestamp << POSITION_BITS) + self.shelf.position

    def bytes_before(self, number: int, size: int) -> bytes:
        """The bytes of the journal that end at a number; others or fewer if it has no such operation."""
        path = self.path_of(self._next_file(number >> POSITION_BITS))
        start = (number & ((1 << POSITION_BITS) - 1)) - size
        with contextlib.closing(self.disk.open(path, "read")) as file:
            return file.read_at(start, size) if start >= 0 else b""

    def before_replacing(self) -> None:
        """Called before operations get other places: the newest file is replaced, or the others are packed.

        The mutex is held.
        """

    @property
    def journal_bytes(self) -> int:
        """The size of all files, including operations that are not yet written."""
        return sum(self.rotated.values()) + self.shelf.position

    def live_bytes(self) -> int:
        """The approximate size of a journal with only the state of the queue."""
        waiting = self.shelf.data_bytes + ADDX_HEAD.size * self.shelf.items
        return waiting + self.open_bytes + (ADD_XID_HEAD.size + 1) * len(self.open_items)

    def replace(self) -> None:
        """Replace the newest file by the state of the queue, all of which is in memory. The mutex is held."""
        self.before_replacing()
        with self._writing:
            self._write_gathered()
            with self._syncing:
                self._replace(self._state_pieces())

    def _state_pieces(self) -> Iterator[bytes]:
        entries = self.shelf.entries()
        tried = [entry for entry in entries if entry[3]]  # the first ones: they were put back
        items = zip(
            operations_of([*self.open_items.values(), *tried]), [*self.open_items.values(), *tried], strict=True
        )
        named = [(operation, entry[3]) for operation, entry in items]
        reserved = [(xid, *found) for xid, found in zip(self.open_items, named, strict=False)]
        yield from state_operations(self.xid, reserved, named[len(reserved) :], self._dialect)
        yield from map(codec.encode, operations_of(entries[len(tried) :]))

    def adopt(self, packed: Packed, added: int, path: Path, mutex: contextlib.AbstractContextManager[Any]) -> None:
        """Use a complete pack instead of the files up to its number, and remove these.

        `mutex` is held where other callers must wait. `added` is how many items had been added when the newest of these
        files was rotated.
        """

        def adopt() -> None:
            try:
                with mutex:
                    self._names_are_final.clear()
                    self._read_from_pack(packed, added, path)
                self._finish_pack()
            finally:
                self._names_are_final.set()

        self._or_poison(adopt)

    def _finish_pack(self) -> None:
        finish_pack(self.disk, self.directory, list_files(self.disk, self.directory, self.queue))

    def _read_from_pack(self, packed: Packed, added: int, path: Path) -> None:
        rotated = {timestamp: size for timestamp, size in self.rotated.items() if timestamp > packed.timestamp}
        behind = self._behind
        if behind is not None and behind.timestamp is not None and behind.timestamp <= packed.timestamp:
            left = added - (self.shelf.added - self.behind_items)
            if left > 0:
                near, position = packed.near(packed.run_items - left)
                fresh = self._reader_at(packed.timestamp, position)
                fresh.open(path)
                fresh.skip(packed.run_items - left - near)
            else:  # its items are in memory or have been taken
                fresh = self._reader_at(min(rotated, default=None), 0)
            behind.close()
            self._behind = fresh
        self.rotated = {packed.timestamp: packed.size_bytes, **rotated}
        self._unusual_names = {
            timestamp: name for timestamp, name in self._unusual_names.items() if timestamp in rotated
        }

    def forget_items(self) -> None:
        """Forget all waiting and reserved items. The journal is not changed."""
        self.shelf.clear()
        self.end_behind()
        self.open_items, self.open_bytes, self.xid = {}, 0, 0

    def remove_files(self) -> None:
        """Remove all files of an empty queue. A crash leaves the empty queue, or none."""
        noted = self.directory / rotated_note_name(self.queue)
        if self.disk.exists(noted):  # first, and durably: otherwise a crash could leave a noted file missing
            self.disk.remove(noted)
            self.disk.sync_directory(noted.parent)
        for file in list_files(self.disk, self.directory, self.queue).files:
            self.disk.remove(file.path)
        self.disk.sync_directory(self.directory)
        self.disk.remove(self.directory / note_name(self.queue))

    # --- reading behind ---------------------------------------------------------------------------------------------

    @property
    def behind_items(self) -> int:
        """The number of items that are not in memory."""
        return self.shelf.items - self.shelf.memory_items

    @property
    def journal_files(self) -> int:
        """The number of files of the journal."""
        return 1 + len(self.rotated)

    def path_of(self, timestamp: int | None) -> Path:
        """The path of the file of this number; None is the newest."""
        if timestamp is None:
            return self.path
        return self.directory / (self._unusual_names.get(timestamp) or rotated_name(self.queue, timestamp))

    def _next_file(self, timestamp: int) -> int | None:
        """The number of the file after one; None for the newest."""
        return min((other for other in self.rotated if other > timestamp), default=None)

    def _reader_at(self, timestamp: int | None, position: int) -> ReadBehind:
        places = self._next_file, self.path_of
        return ReadBehind(self._disk, self.queue, self._dialect, *places, timestamp, position)

    def fall_behind(self, position: int) -> None:
        self._behind = self._reader_at(None, position)

    def end_behind(self) -> None:
        """Stop reading behind: all items are in memory, or were removed."""
        behind, self._behind = self._behind, None
        if behind is not None:
            behind.close()

    def _refill(self) -> None:
        """Load the next items into memory. The queue reads behind."""
        self.atomically(self._stock_shelf, together=False)

    def _stock_shelf(self) -> None:
        assert self._behind is not None
        before, is_flushed = self.shelf.memory_items, False
        while self.shelf.memory_items == before:
            if self._behind.stock(self.shelf.stock, self.shelf.max_memory_items, self.shelf.max_memory_bytes):
                continue
            if is_flushed:
                reason = f"{self.behind_items} more items should be here; has another program changed the file?"
                raise DamagedJournal(self.path, self._behind.position, reason)
            self._write_buffered()
            is_flushed = True
        if not self.behind_items:
            self.end_behind()

    def head_added(self) -> int:
        """When the head was added, in milliseconds; 0 if there is none or it is unknown. The mutex is held."""
        if not self.shelf.memory_items and self.behind_items and not self.refusing:
            with contextlib.suppress(LogwrightError):  # the next call that takes an item raises the error
                self._refill()
        return self.shelf.head()[1] if self.shelf.memory_items else 0

    # --- all waiting items ------------------------------------------------------------------------------------------

    def waiting_entries(self) -> Iterator[Entry]:
        """The waiting items, from head to tail, as they are now."""
        self._names_are_final.wait()
        with self.mutex:
            self.check()
            entries, behind = self.shelf.entries(), self._behind
            if behind is None:
                return iter(entries)
            self._write_buffered()
            files = OpenFiles(self._disk, [self._source_of(number) for number in self._numbers_from(behind.timestamp)])
            files.open_all()
            return chain(entries, _entries_of(files, behind.position, self.behind_items, self._dialect))

    def _numbers_from(self, timestamp: int | None) -> list[int | None]:
        rotated = sorted(self.rotated) if timestamp is not None else []
        return [*(number for number in rotated if timestamp is not None and number >= timestamp), None]

    def _source_of(self, timestamp: int | None) -> JournalFile:
        path = self.path_of(timestamp)
        return JournalFile(self.queue, path.name, path, timestamp)

    def _release(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(super()._release)
            stack.callback(self.end_behind)


def _entries_of(files: OpenFiles, position: int, count: int, dialect: int) -> Iterator[Entry]:
    """The next `count` items from a position of the first file. The files are closed at the end."""
    shelf = Shelf(0, 1, dialect)
    try:
        for source in files.files:
            cursor = Cursor(files.file(source), source, position, dialect=dialect)
            position = 0
            while count and (chunk := cursor.read()) is not None:
                kinds, numbers, positions, end, is_last = effects_of(chunk)
                shelf.stock(chunk.data, chunk.base, kinds, numbers, positions, end, NO_LIMIT, NO_LIMIT)
                entries = shelf.entries()[:count]
                shelf.clear()
                count -= len(entries)
                yield from entries
                if is_last:
                    break
            files.done_with(source)
    finally:
        files.close()


def _entry(operation: Operation, attempts: int) -> Entry:
    return operation.data or b"", operation.added or 0, operation.expires or 0, attempts, 0


def operations_of(entries: Sequence[Entry]) -> list[Operation]:
    """The operations that add some items."""
    return [
        Operation("add_xid", name, added=added, expires=expires or None, data=data)
        if name
        else Operation("addx", added=added, expires=expires or None, data=data)
        for data, added, expires, _, name in entries
    ]
