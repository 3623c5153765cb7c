"""VersionedKVStore: a key-value store in a directory that keeps its whole history, for the threads of one process.

    with VersionedKVStore("state", "settings") as store:
        store["limits"] = {"per_hour": 100}
        store["limits"], "limits" in store, len(store)      from memory, as is get, keys, values, items
        store.get_with_timestamp("limits")                  the value, and when it was written
        t = store.insert("limits", {"per_hour": 250})       the time of this change, in nanoseconds
        del store["limits"]                                 remove does the same, and returns the time
        store.at(t), store.history("limits")                from the files: the state at a time, all changes of a key

Every change is appended to the journal, and nothing is overwritten. When the journal is nearly full, its state goes to
a new one, and the old one becomes a compressed archive: `VersionedRecovery` has the state at any time from both.

What a call guarantees when it returns, by the sync policy:

    none            the change is with the operating system: it survives the end of this process, however that comes
                    about, but not a power cut
    interval(ms)    the same, and a background thread makes it durable that often
    always          the change is on the disk; threads that call at the same time share one sync

What a crash leaves: the store as it was after one of its changes, none left out before it, none half done.

One process has the store at a time; another one gets `Locked`. After a failed write or sync every change raises
`Poisoned`, and reading still works: open the store again, and what was acknowledged is there. A full disk is no
failure: the change that needs space raises, and all is as it was.
"""

from __future__ import annotations

import contextlib
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypedDict

from ...core.bytes.outcome import Damage
from ...core.io.disk import REAL_DISK, Disk, make_directories
from ...core.io.durability import ALWAYS, SyncLike
from ...core.write.appending import Appending
from ...core.write.opening import open_for_writing
from ...errors import CapacityExceeded, LogwrightError, StorageFailed, WrongUse, is_no_space
from ..bytes import kernel
from ..bytes.layout import HOME_DIRECTORY
from ..bytes.records import Entry, check_timestamp
from ..files.archiving import Archiver, Standing, following, initialized_of
from ..files.buffer import Buffer, abandon, has_zero_sector
from ..files.files import Listing, active_name, archive_name, check_store_name, list_files, old_name
from .kernel import Moves, Table
from .opening import journal_to_write, open_journal
from .recovery import RecoveredState, VersionedRecovery
from .retention import KEEP_ALL, Retention, remove_archives
from .rotation import Sizes, head_bytes, new_journal, put_in_place, retire_active, room, write_journal

logger = logging.getLogger("logwright.versioned")
_HEAD_BYTES: Final = 12
"""The largest number of bytes of an entry before its key."""
_SYNCS_PER_MARK: Final = 4
"""With `always` one mark is set for this number of syncs, because the sync after a mark writes one more page."""


class StoreOptions(TypedDict, total=False):
    """The options of a store, which has their defaults."""

    max_capacity: int | None
    sync: SyncLike
    retention: Retention
    background: bool
    clock: Callable[[], int] | None
    disk: Disk


# The store is a `Table` instead of owning one: `insert` and `get` run in the compiled base, without another call.
class VersionedKVStore(Appending, Table):
    """The store `name` in a directory, created if there is none.

    `capacity` is the size of the journal's buffer in bytes, `high_water_mark` the fraction of it that is used before a
    rotation. If the state needs more, the buffer doubles, up to `max_capacity`; after that a change raises
    `CapacityExceeded`, and the store stays as it was. `retention` says which archives are removed. `clock` returns the
    time in nanoseconds since the epoch; with `background` a separate thread makes the archives.
    """

    def __init__(
        self,
        directory: Path | str,
        name: str,
        capacity: int = 1 << 20,
        high_water_mark: float = 0.8,
        *,
        max_capacity: int | None = None,
        sync: SyncLike = "none",
        retention: Retention = KEEP_ALL,
        background: bool = True,
        clock: Callable[[], int] | None = None,
        disk: Disk = REAL_DISK,
    ) -> None:
        super().__init__()
        self.directory = Path(directory).absolute()  # a change of the working directory must not matter
        self.name = check_store_name(name)
        self.path = self.directory / active_name(name)
        self._sizes = Sizes.of(capacity, high_water_mark, max_capacity)
        self._not_rotated = Standing(logger, f"{self.path}: is not rotated yet")
        self._prepare(self.path, sync)
        self._disk = disk
        if not isinstance(retention, Retention):
            raise WrongUse(f"retention is {retention!r}, and must be a Retention")
        self._retention = retention
        self.clock = None if clock is None else _checked(clock)
        self.always = self.policy == ALWAYS
        self._syncs = 0
        make_directories(disk, self.directory / HOME_DIRECTORY)  # also syncs the renames of a killed process
        try:
            self._archiver = Archiver(disk, self.directory, name, background=background, done=self._archived)
            self._lock, opened = open_for_writing(
                journal_to_write(disk, self.directory, name),
                lambda: open_journal(disk, self.directory, name, self, self._sizes),
            )
            self.recovered: Damage | None = opened.recovered
            """The torn tail that was cut off the journal on opening; None if it was whole."""
            self.kept: Path | None = opened.kept
            """The copy of the bytes after the last whole entry."""
            self._adopt(opened.buffer, opened.position, opened.initialized)
            self._start()
            self._update_attention()
            if opened.pending:
                self._archiver.begin(opened.initialized)
        except BaseException:
            self.refusing = True
            self._end_sync()
            self.detach()
            self._lock.release()
            raise

    def _adopt(self, buffer: Buffer, position: int, initialized: int, moves: Moves | None = None) -> None:
        """Write to this buffer from now on."""
        self._buffer = buffer
        self._is_mapped = buffer.is_mapped
        self.initialized = initialized
        self.attach(buffer.memory, position, moves)
        self._set_full_at(self._sizes.soft_end(buffer.size, position))

    def _set_full_at(self, position: int) -> None:
        """Set the position from which on a rotation or a larger buffer is needed; zeros are written ahead up to it."""
        self._full_at = position
        self.soft_end = min(position, self._buffer.zeroed)

    @property
    def capacity(self) -> int:
        """The current size of the buffer."""
        return self._buffer.size

    def __bool__(self) -> bool:
        """True, also for an empty store."""
        return True

    # --- a mapping --------------------------------------------------------------------------------------------------

    def __getitem__(self, key: str) -> Any:
        """The value of a key. It belongs to the store: copy it before you change it."""
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        self.insert(key, value)

    def __delitem__(self, key: str) -> None:
        if self.remove(key) is None:
            raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> list[str]:
        """All keys, as they are now."""
        if self.index is None:
            self._refuse()
        return list(self.index)

    def values(self) -> list[Any]:
        """All values, as they are now. They belong to the store: copy one before you change it."""
        return [value for _, value in self.items()]

    def items(self) -> list[tuple[str, Any]]:
        """All keys and values, as they are now. The values belong to the store: copy one before you change it."""
        with self._writing:
            return self.pairs()

    # --- the past -----------------------------------------------------------------------------------------------------

    def at(self, time: int | datetime) -> RecoveredState:
        """The state at a time, in nanoseconds or as a datetime with a zone: after all changes that are not later."""
        return self._recovery().recover_at(time)

    def history(self, key: str) -> list[Entry]:
        """Every change of a key that is kept, oldest first; a deletion has the value None."""
        return self._recovery().history(key)

    def _recovery(self) -> VersionedRecovery:
        if self.index is None:
            self._refuse()
        return VersionedRecovery.load(self.directory, store=self.name, disk=self._disk)

    # --- changes ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Exclude all other changes."""
        with self._writing:
            self._stop_direct_changes()
            try:
                yield
            finally:
                self._update_attention()

    def _stop_direct_changes(self) -> None:
        """Make all changes call `_change`; raise if the store refuses changes."""
        self.attention = True
        if self.refusing:
            self._refuse()
        self._check_process()

    def _update_attention(self) -> None:
        """Let changes be stored in memory directly again, if the buffer is mapped.

        Changes that are synced at once are written by system calls: see buffer.py.
        """
        self.attention = self.always or not self._is_mapped

    def _change(self, key: str, tail: bytes, value: Any) -> int | None:
        # Every durable change takes this path, with cold caches after the previous sync: so it makes few calls.
        with self._writing:
            self._stop_direct_changes()
            try:
                if value is None and key not in self:
                    return None
                size = _HEAD_BYTES + len(tail)
                if self.position + size > self.soft_end:
                    self._make_room(size, removes=value is None)
                t, entry, has_zeros = self.entry(tail)
                try:
                    end = self._append(entry, has_zeros)
                    self.accept(key, value, t, end, len(tail))
                except BaseException as error:
                    self._poison(error)
                    raise
            finally:
                self._update_attention()
        if self.always:
            self._group.wait()
        return t

    def _append(self, entry: bytes, has_zeros: bool) -> int:
        """Write entries; returns their end."""
        if not has_zeros:
            return self._buffer.append(self.position, entry, has_zeros)
        with self._syncing:  # otherwise a sync of earlier entries could take the mark back
            return self._buffer.append(self.position, entry, has_zeros)

    def append_packed(self, data: bytes, starts: Sequence[int]) -> None:
        """Append changes that are packed already; `starts` are where each entry begins, and where the last one ends.

        Their times must rise, and not precede the last change. An entry may remove a key that does not exist.
        """
        end, rows, _, _, _ = kernel.walk(data, 0, len(data), -1, self.last_timestamp, 0)
        if end < len(data) or rows != len(starts) - 1:
            raise WrongUse(f"{self.path}: entries to append must be consecutive, and none earlier than the last one")
        row = 0
        while row < rows:
            with self._alone():
                stop = bisect_right(starts, starts[row] + self.soft_end - self.position, row) - 1
                if stop <= row:
                    self._make_room(starts[row + 1] - starts[row], removes=False)
                    stop = row + 1
                self._or_poison(partial(self._take_packed, data[starts[row] : starts[stop]]))
            row = stop
        if self.always:
            self._group.wait()

    def _take_packed(self, entries: bytes) -> None:
        """Write entries, then load them from the buffer."""
        start = self.position
        end = self._append(entries, has_zero_sector(entries, 0, len(entries), start))
        taken, _, _ = self.scan(start, end, end)
        assert taken == end
        self.position = end

    def _commit(self) -> None:
        self._group.wait()

    def _write_out(self) -> None:
        """Nothing to write: the system has all stored and published entries."""

    def _sync(self) -> None:
        """Sync the current buffer, and raise its mark. A rotation has synced the buffer that it replaced.

        Nothing must be written first, so this does not wait for changes. A buffer is closed only with `_syncing` held.
        """
        self._check_process()
        with self._syncing:
            if self._failure is not None:
                self._refuse()  # another thread's sync failed meanwhile: ours could succeed and mean nothing
            if not self._is_released:  # otherwise it was closed, and synced for that, meanwhile
                self._or_poison(self._sync_buffer, resumes=True)

    def _sync_buffer(self) -> None:
        buffer = self._buffer
        position = buffer.position
        buffer.sync()
        self._syncs += 1
        if not self.always or self._syncs % _SYNCS_PER_MARK == 0:
            buffer.raise_mark(position)

    def _finish(self) -> None:
        super()._finish()
        if self._failure is None:
            self._buffer.set_closed()

    # --- room for more ------------------------------------------------------------------------------------------------

    def _make_room(self, size: int, *, removes: bool) -> None:
        """Make room for an entry that does not fit before the soft end: rotate, use the rest, or grow."""
        if self.position + size <= self._full_at:
            self._or_poison(lambda: self._buffer.zero_ahead(self.position, size))
            self._set_full_at(self._full_at)
            if self.position + size <= self.soft_end:
                return
        failure: LogwrightError | None = None
        self._archiver.resume()
        if not self._archiver.pending:
            failure = self._try(lambda: self._rotate(size, removes=removes))
            if isinstance(failure, StorageFailed):
                self._not_rotated.stands(failure)
        if failure is not None or self._archiver.pending:
            if self._has_room(size, removes):
                return
            grown = self._sizes.grown(self._buffer.size, self.position + size)
            if grown is not None:
                failure = self._try(lambda: self._grow(grown))
            elif self._archiver.pending and failure is None:
                self._archiver.wait()  # at the limit, and the old journal is not archived yet
                self._archiver.raise_failure()
                self._rotate(size, removes=removes)
        if failure is not None:
            raise failure
        if not self._has_room(size, removes):
            raise CapacityExceeded(f"{self.path}: {size} bytes more do not fit the buffer of {self._buffer.size} bytes")

    def _has_room(self, size: int, removes: bool) -> bool:
        """Whether this many bytes fit into the buffer; if so, the next rotation is postponed."""
        rest = room(self._buffer.size, removes=removes) - self.position - size
        if rest < 0:
            return False
        self._set_full_at(max(self._full_at, self.position + size + rest // 2))
        return True

    def _try(self, action: Callable[[], object]) -> LogwrightError | None:
        """Do something that either poisons this store or changes nothing; returns why it was not done."""
        try:
            action()
        except LogwrightError as error:
            if self.refusing:
                raise
            return error
        return None

    def _grow(self, size: int) -> None:
        buffer = self._buffer
        with self._syncing:
            self._or_poison(buffer.sync)
            self._unless_full(lambda: self._grow_in_place(buffer, size))

    def _grow_in_place(self, buffer: Buffer, size: int) -> None:
        buffer.grow(size, self.position)
        self._adopt(buffer, self.position, self.initialized)

    def _rotate(self, extra: int = 0, *, removes: bool = False) -> int:
        """Write the state to a new journal with room for this many more bytes; returns the time at which it begins.

        If it raises without poisoning the store, nothing has changed.
        """
        if self._archiver.pending:
            raise CapacityExceeded(f"{self.path}: the journal before this one is not archived yet")
        disk, directory, name = self._disk, self.directory, self.name
        timestamp = self._free_timestamp()
        size = self._sizes.fitting(head_bytes(timestamp) + self.live_bytes + extra, removes=removes)
        self._or_poison(self._buffer.sync)  # the future archive must be complete
        file = new_journal(disk, directory, name)
        buffer, moves = self._unless_full(lambda: write_journal(disk, file, size, timestamp, self))
        try:
            try:
                self._unless_full(lambda: retire_active(disk, directory, name))
            except BaseException as error:
                buffer.forget()
                if isinstance(error, LogwrightError):  # otherwise the old journal may have its new name already
                    abandon(disk, file)
                raise
            self._or_poison(lambda: self._replace(buffer, moves, timestamp))
            self._archiver.note(timestamp)
        except BaseException as error:
            if not isinstance(error, LogwrightError):  # it is unknown which file has the name now
                self._poison(error)
            raise
        self._archiver.resume()
        self._not_rotated.is_over()
        return timestamp

    def _replace(self, buffer: Buffer, moves: Moves, timestamp: int) -> None:
        """Put the new journal in place of the old one, which was renamed, and write to it from now on."""
        try:
            put_in_place(self._disk, self.directory, self.name)
        except BaseException:
            buffer.close()
            raise
        buffer.file.path = self.path
        before = self._buffer
        self._adopt(buffer, moves.end, timestamp, moves)
        self.last_timestamp = timestamp
        with self._syncing:
            before.close()

    def _unless_full(self, action: Callable[[], Any]) -> Any:
        """Do something to the files; any failure except a full disk poisons this store."""
        done: list[Any] = []
        full: list[StorageFailed] = []

        def attempt() -> None:
            try:
                done.append(action())
            except StorageFailed as error:
                if not is_no_space(error):
                    raise
                full.append(error)

        self._or_poison(attempt)
        if full:
            raise full[0]
        return done[0]

    def _free_timestamp(self) -> int:
        """The time of the last entry, or the next time that no archive has."""
        latest = list_files(self._disk, self.directory, self.name).last_timestamp
        return following(latest) if self.last_timestamp <= latest else self.last_timestamp

    def rotate(self) -> int:
        """Begin a new journal with the current state, and archive this one; returns the time between them.

        When this returns, the archive is complete. If that failed, it is logged, and the next rotation or opening tries
        again. Other threads can read and write meanwhile.
        """
        self.sync()  # otherwise others would wait for this as well
        while True:
            with self._alone():  # a closed store makes no archives: another process may have opened it
                self._archiver.resume()
                if not self._archiver.pending:
                    timestamp = self._rotate()
                    break
            self._archiver.wait()
            self._archiver.raise_failure()
        self._archiver.wait()
        return timestamp

    def _archived(self, timestamp: int) -> None:
        """After an archive was made: remove those that need not be kept."""
        self.advance(timestamp)  # it may have a later name, if the right one was taken
        remove_archives(self._disk, self.directory, self.name, self._retention, self.now())

    def earliest(self) -> int:
        """The earliest time whose state is known, in nanoseconds."""
        if self.index is None:
            self._refuse()
        listing = list_files(self._disk, self.directory, self.name)
        while True:
            found = self._earliest(listing)
            again = list_files(self._disk, self.directory, self.name)
            if again == listing:
                return found
            listing = again  # an archive was made or removed meanwhile

    def _earliest(self, listing: Listing) -> int:
        for timestamp in listing.archives:
            path = self.directory / archive_name(self.name, timestamp)
            found = initialized_of(self._disk, path, compressed=True)
            if found is not None:
                return found
        found = initialized_of(self._disk, self.directory / old_name(self.name), compressed=False)
        return self.initialized if found is None else found

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Sync, finish the archive that is being made, and release the lock. A second call does nothing."""
        super().close()

    def _release(self) -> None:
        self.attention = True
        with contextlib.ExitStack() as stack:
            stack.callback(self._lock.release)
            stack.callback(self._buffer.close)
            stack.callback(self.detach)
            stack.callback(self._archiver.wait)

    def _reset_after_fork(self) -> None:
        """Let every change call `_change`, which refuses it: a child shares the memory of its parent's stores."""
        super()._reset_after_fork()
        self.attention = True


def _checked(clock: Callable[[], int]) -> Callable[[], int]:
    """The clock, or `WrongUse` if the journal cannot hold its times."""
    if not callable(clock):
        raise WrongUse(f"{clock!r} is no clock: it cannot be called")

    def checked() -> int:
        now = clock()
        check_timestamp(now, "what the clock tells")
        return now

    return checked
