"""QueueFiles: the files of a queue opened for writing, whatever gathers the operations for them.

Opening (`core/write/opening.py`) finishes a pack that a crash has interrupted, removes what is temporary, and cuts a
torn tail off the newest file, keeping it; but not while a rotated file is damaged. From then on operations are written
to the newest file, it is rotated, and rotated files are packed. A file is synced before it is rotated, so only the
newest can ever be torn.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from ...core.bytes.outcome import Damage
from ...core.bytes.text import LOOKED_AT_BYTES, is_text
from ...core.io.disk import Disk, make_directories
from ...core.io.durability import SyncLike
from ...core.io.quarantine import cut_tail
from ...core.read.snapshot import snapshot
from ...core.write.appending import Appending, GatheringBuffer
from ...core.write.opening import JournalToWrite, open_for_writing
from ...errors import DamagedJournal, LogwrightError, StorageFailed, WrongUse
from ..bytes import codec, kernel
from ..bytes.layout import (
    DOCUMENTED,
    HOME_DIRECTORY,
    KESTREL2,
    STATE_DUMP,
    TEMPORARY,
    UNDECIDED,
    check_journal_name,
    ledger_name,
    lock_name,
    parse_name,
    rotated_name,
)
from ..bytes.records import DIALECTS, Dialect, check_dialect
from ..model.packing import finish_pack, next_timestamp, pack, remove_temporary, write_temporary
from .continuation import judge
from .cursor import Cursor
from .files import BAD_PACKS, JournalFile, Listing, is_plain, list_files, lost_files, present_files
from .note import note_present, note_rotated
from .reader import Reader

logger = logging.getLogger("logwright.kestrel")


class OperationBuffer(GatheringBuffer, Protocol):
    """The buffer of a queue's journal: `position` is where the next operation will be in the newest file."""

    position: int
    dialect: int

    def take(self) -> tuple[bytearray, int]: ...


class QueueFiles(Appending):
    """The base of what writes to a queue's journal.

    A subclass calls `_open_files`, then has its buffer of `_operations` for a file of `_file_size` bytes in the dialect
    `_dialect`, and then calls `_begin`.
    """

    _operations: OperationBuffer
    _file_size: int
    _max_file_bytes: int | None = None

    def _open_files(self, path: Path | str, sync: SyncLike, dialect: Dialect, disk: Disk) -> None:
        self.path = Path(path).absolute()  # so that a change of directory changes nothing
        self.queue = self.path.name
        self.directory = self.path.parent
        check_journal_name(self.queue)
        self._prepare(self.path, sync)
        self._asked_dialect = dialect
        self.recovered: Damage | None = None
        self.kept: Path | None = None
        self._disk = disk
        wanted = DIALECTS[check_dialect(dialect)]
        make_directories(disk, self.directory / HOME_DIRECTORY)
        with self._or_released():
            journal = journal_to_write(disk, self.path)
            self._lock, self._is_ended = open_for_writing(journal, lambda: self._open_newest(wanted), self._held_lock)

    def _begin(self) -> None:
        """The buffer is there: what is gathered from now on is written."""
        with self._or_released():
            if self._is_ended:
                self._rotate()  # behind a state dump nothing is replayed
        self._start()

    @contextlib.contextmanager
    def _or_released(self) -> Iterator[None]:
        """Give everything back if opening fails."""
        try:
            yield
        except BaseException as error:
            self._failure = error
            self._release()
            raise

    # --- opening ----------------------------------------------------------------------------------------------------

    def _open_newest(self, wanted: int) -> bool:
        """Bring the files in order and open the newest where its operations end; whether a state dump has ended it."""
        disk, directory = self._disk, self.directory
        listing = list_files(disk, directory, self.queue)
        self._check_names(listing)
        self._check_lost()
        self._check_pack(listing)
        remove_temporary(disk, directory, listing)
        finish_pack(disk, directory, listing)
        listing = list_files(disk, directory, self.queue)
        self._examine(listing)
        self._last_timestamp = listing.last_timestamp
        source = listing.newest or JournalFile(self.queue, self.queue, self.path, None, self._last_timestamp)
        self._source = source
        self._file = disk.open(source.path, "update")
        end, dialect, is_ended = self._find_end(wanted)
        self._dialect = self._choose_dialect(dialect, wanted)
        if end is not None:
            self._check_rotated(listing)
            self.recovered = end
            self.kept = cut_tail(disk, directory, self._file, end.start)
            logger.warning("%s: cut off a torn tail, kept in %s", end, self.kept)
        else:
            self._file.sync()  # its writer may have been killed before that
        disk.sync_directory(directory)  # and before it synced the directory
        note_present(disk, directory, self.queue, present_files(disk, directory, listing))
        self._file_size = self._file.size()
        return is_ended

    def _examine(self, listing: Listing) -> None:
        """Look at the files before anything of them is cut; what this raises leaves them as they are."""

    def _check_rotated(self, listing: Listing) -> None:
        """Raise what is wrong with a rotated file: then the newest one is not cut, torn as it may be.

        A repair needs the journal as the accident has left it.
        """
        self._check_files([file for file in listing.files if not file.is_newest])

    def _check_names(self, listing: Listing) -> None:
        """Raise what is wrong with a file by its name alone, or because it is a directory or a link."""
        for path in (file.path for file in listing.files):
            if not is_plain(self._disk, path):
                self._disk.open(path, "read").close()
        for flaw in (file.flaw for file in listing.files if file.flaw is not None):
            damage = DamagedJournal(flaw.file, flaw.start, flaw.reason)
            if flaw.kind in BAD_PACKS:
                raise self._explained(damage, _hint_at(listing))
            raise DamagedJournal(self.directory / flaw.file, flaw.start, f"{flaw.reason}; nothing was changed")

    def _check_lost(self) -> None:
        """Raise if a file, or a part of it, is lost: what follows it would be replayed on another queue."""
        for lost in lost_files(self._disk, self.directory, self.queue):
            raise self._explained(DamagedJournal(lost.name, lost.size or 0, lost.reason))

    def _check_pack(self, listing: Listing) -> None:
        """Raise what is wrong with a pack that is not finished, or with a file after it, before it is finished.

        A repair may need the files that it has replaced, and the journal as the accident has left it.
        """
        if listing.pack is not None:
            self._check_files([listing.pack], _hint_at(listing) if listing.dead else "")
            self._check_files([file for file in listing.files if file is not listing.pack])

    def _check_files(self, listed: list[JournalFile], more: str = "") -> None:
        reader = Reader(self.path, dialect=self._asked_dialect, disk=self._disk)
        with snapshot(self._disk, lambda: listed, self.path) as files:
            try:
                for _ in reader.snapshot_chunks(files, None, None, "failfast", load=False):
                    pass
            except DamagedJournal as damage:
                raise self._explained(damage, more) from None

    def _explained(self, damage: DamagedJournal, more: str = "") -> DamagedJournal:
        """The same with the path of the file, and what one can do."""
        path = self.directory / damage.file
        nature = self._nature_of(path) if damage.position == 0 and self._disk.exists(path) else ""
        return DamagedJournal(path, damage.position, f"{damage.reason}; {nature}{self._nothing_changed()}{more}")

    def _nature_of(self, path: Path) -> str:
        """What a file is that begins with no operation, as far as it shows."""
        with contextlib.closing(self._disk.open(path, "read")) as file:
            beginning = file.read_at(0, LOOKED_AT_BYTES)
        if is_text(beginning):
            return "this is text, and no journal of a queue; "
        if beginning and not any(beginning):
            return "it begins with zeros, so it was overwritten, or a crash came before it was ever synced; "
        return ""

    def _nothing_changed(self) -> str:
        hint = f"run `logwright verify {self.path}` to see all of it, and `logwright repair {self.path}`"
        return f"nothing was changed: {hint}"

    def _find_end(self, wanted: int) -> tuple[Damage | None, int, bool]:
        """The torn tail of the newest file, the dialect as far as it shows, and whether there is a state dump in it."""
        settle = Reader(self.path, disk=self._disk).verdict.settle if wanted == UNDECIDED else None
        cursor = Cursor(self._file, self._source, dialect=wanted, settle=settle)
        is_ended = False
        while (chunk := cursor.read(load=False)) is not None:
            if cursor.dialect == DOCUMENTED and not is_ended:
                is_ended = STATE_DUMP in chunk.effects()[0]
        if cursor.ending == codec.CLEAN:
            return None, cursor.dialect, is_ended
        if wanted != UNDECIDED:
            self._refuse_other_dialect(wanted)
        damage, _ = judge(cursor)
        if damage is not None and damage.kind != "torn_tail":
            raise self._explained(DamagedJournal(damage.file, damage.start, f"{damage.reason}; this is no torn tail"))
        return damage, cursor.dialect, is_ended

    def _choose_dialect(self, found: int, wanted: int) -> int:
        """The dialect to write in: the one that was asked for, else that of the journal, else documented."""
        self._is_settled = wanted != UNDECIDED or found != UNDECIDED
        if wanted != UNDECIDED:
            return wanted
        if found == UNDECIDED and self._last_timestamp:
            verdict = Reader(self.path, disk=self._disk).verdict  # it may show in a rotated file
            found, self._is_settled = verdict.settle(), verdict.is_settled
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

    # --- writing ----------------------------------------------------------------------------------------------------

    def _write_out(self) -> None:
        buffer, used = self._operations.take()
        if not used:
            return
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
        """After a write that failed half-way, try to leave only whole operations."""
        whole = kernel.walk(view, 0, written, self._operations.dialect)[0]
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
        return self._file_size + self._operations.buffered_bytes

    def rotate(self) -> int:
        """Finish the newest file and begin another; the number of the latest rotated file, 0 when there is none.

        An empty file is not rotated. Positions count from 0 again.
        """
        self._check_process()
        with self._writing:
            if self.refusing:
                self._refuse()
            self._write_gathered()
            with self._syncing:
                if self._file_size:
                    self._following_timestamp()  # without one nothing has happened yet
                    self._or_poison(self._rotate)
            return self._last_timestamp

    def _following_timestamp(self) -> int:
        """The number for a file that is rotated now. `WrongUse` if it had more digits than the name of a file has."""
        timestamp = next_timestamp(self._last_timestamp)
        if parse_name(rotated_name(self.queue, timestamp)) is None:
            last = self.directory / rotated_name(self.queue, self._last_timestamp)
            raise WrongUse(f"{last}: there is no greater number for a file after this one")
        return timestamp

    def _rotate(self) -> None:
        """Synced before it is renamed: a rotated file is never torn. The names are synced one after the other."""
        timestamp = self._following_timestamp()
        self._file.sync()
        self._disk.rename(self.path, self.directory / rotated_name(self.queue, timestamp))
        self._disk.sync_directory(self.directory)
        self._last_timestamp = timestamp
        self._file.close()
        self._file = self._disk.open(self.path, "create")
        self._disk.sync_directory(self.directory)
        note_rotated(self._disk, self.directory, self.queue, rotated_name(self.queue, timestamp), self._file_size)
        self._operations.position -= self._file_size
        self._file_size = 0

    def _replace(self, pieces: Iterable[bytes]) -> None:
        """Let a new file with these operations be the newest one; a crash leaves the one or the other.

        Nothing waits to be written, and `_writing` and `_syncing` are held. What fails before the new file has the name
        has changed nothing; what fails then is final.
        """
        temporary = self.directory / f"{self.queue}{TEMPORARY}{next_timestamp(self._last_timestamp)}"
        write_temporary(self._disk, temporary, pieces)
        try:
            try:
                self._disk.rename(temporary, self.path)
            except LogwrightError:
                with contextlib.suppress(LogwrightError):
                    self._disk.remove(temporary)
                raise
            self._or_poison(self._open_replaced)
        except BaseException as error:
            if not isinstance(error, LogwrightError):  # it is unknown which file has the name
                self._poison(error)
            raise

    def _open_replaced(self) -> None:
        self._disk.sync_directory(self.directory)
        self._file.close()
        self._file = self._disk.open(self.path, "update")
        self._file_size = self._operations.position = self._file.size()

    def pack(self, upto: int | None = None) -> bool:
        """Put one file in the place of the rotated ones, all or those up to a number; False when there are none.

        Reads them, so it can be done in the background, while others append and rotate. See `packing.py`.
        """
        self._check_packable()
        if self.refusing:
            self._refuse()
        name: Dialect = "kestrel2" if self._operations.dialect == KESTREL2 else "documented"
        reader = Reader(self.path, dialect=name, disk=self._disk)
        return pack(self._disk, reader, self._last_timestamp if upto is None else upto)

    def rewrite(self) -> None:
        """Let the journal hold the state of the queue and nothing else: rotate, and pack what was rotated."""
        self._check_packable()
        self.rotate()
        self.pack()

    def _check_packable(self) -> None:
        """Refuse to pack a journal that notes of delays and ids refer to: only `Queue` changes the notes with it."""
        self._check_process()
        if self._disk.exists(self.directory / ledger_name(self.queue)):
            raise WrongUse(f"{self.path} has delayed items or ids: open it as a Queue, which packs it by itself")

    # --- closing ----------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self._lock.release)
            if hasattr(self, "_file"):  # unless opening failed before there was one
                stack.callback(self._file.close)


def _hint_at(listing: Listing) -> str:
    return f"; look first at what it was to replace and is still there: {', '.join(listing.dead)}"


def journal_to_write(disk: Disk, path: Path) -> JournalToWrite:
    """The journal of a queue for `open_for_writing`."""
    directory, queue = path.parent, path.name
    places = ((directory, queue),)
    return JournalToWrite(disk, "kestrel", path, directory / lock_name(queue), places, "queue")
