"""Appending: the parts of a writer that are the same for all formats.

A writer collects records in a buffer, writes them (`flush`) and makes them durable (`sync`) as its policy or its caller
requires. This module has the policies, threads that share a sync, the background thread of `interval`, final failures,
forks that must not write, and the order of closing.

A failed write or sync is final: the kernel may drop what it could not write and report success the next time. So the
writer accepts nothing more (`Poisoned`), and what was acknowledged before stays. The failure is raised where it
happens. If it happened in the background, the next call or `close` raises it.

A signal handler may raise an exception inside a call. An interrupted call has been done completely or not at all. If
neither is certain, the writer is poisoned as well: what was appended and not yet flushed may be lost, and the next call
or `close` raises that. A sync can be interrupted and repeated.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from ...errors import Closed, LogwrightError, Poisoned, WrongUse
from ..io.durability import ALWAYS, GroupCommit, IntervalSync, SyncLike, parse_sync
from ..io.lock import Lock
from .closing import Closing, is_failure

Owned = TypeVar("Owned", bound="GatheringBuffer")

_writers: weakref.WeakSet[Appending] = weakref.WeakSet()


class Gate(Protocol):
    """The object that refuses the appends of a writer: the writer itself, or the buffer that it owns.

    `refusing` is a plain attribute, because setting it cannot be interrupted; calling a property could be.
    """

    refusing: bool


class Appending(Closing):
    """The base of a writer.

    A subclass calls `_prepare` before anything can fail and `_start` when it is open. It has `_write_out`, which writes
    the buffer to the files; `_to_sync`, which returns a function that makes that durable; and `_release`, which closes
    the files and releases the lock. While `refusing` is set, every append calls `_refuse`.
    """

    refusing: bool
    _held_lock: Lock | None = None
    """The journal's lock, if the caller has it: a publisher."""
    _resumes = False
    """Whether `_write_out` can be called again after an interrupt to write the rest."""

    _sync_resumes = True
    """The same for the function of `_to_sync`: by default it syncs the file, which can be repeated."""

    def _prepare(self, path: Path, sync: SyncLike) -> None:
        self._name = path
        self._lock = Lock(path)  # not held yet
        self.policy = parse_sync(sync)
        self._always = self.policy == ALWAYS
        self._writing = threading.Lock()
        self._syncing = threading.Lock()
        self._failure: BaseException | None = None
        self._failure_raised = False
        self._closed = False
        self._is_finished = False
        """Whether all was written and synced for closing, or cannot be."""
        self._is_released = False
        """Whether the files are closed, which is the last step of closing."""
        self._process = os.getpid()
        self._interval: IntervalSync | None = None
        self._gate: Gate = self
        _writers.add(self)

    def _own(self, buffer: Owned) -> Owned:
        """Let a buffer call this writer when it is full, and when it refuses a record."""
        buffer.attend, buffer.refuse = self._attend, self._refuse
        self._gate = buffer
        return buffer

    def _start(self) -> None:
        self._group = GroupCommit(self.sync)
        if self.policy.name == "interval":
            self._interval = IntervalSync(self.policy.interval_ms, self._sync_in_background)

    def _end_sync(self) -> None:
        """End the thread of `_start`, if there is one."""
        if self._interval is not None:
            self._interval.close()

    # --- what a subclass has ----------------------------------------------------------------------------------------

    def _write_out(self) -> None:
        """Write the buffer. `_writing` is held."""
        raise NotImplementedError

    def _to_sync(self) -> Callable[[], None]:
        """A function that makes durable what was written so far. Called with `_writing` held, and the function with
        `_syncing`.
        """
        raise NotImplementedError

    def _release(self) -> None:
        """Close the files, then release the lock."""
        raise NotImplementedError

    # --- writing ----------------------------------------------------------------------------------------------------

    def _attend(self) -> None:
        """The buffer is full: write it, or sync it if that is the policy."""
        if self._always:
            self._group.wait()
        elif not self._closed:  # otherwise `close` is writing it
            self.flush()

    def flush(self) -> None:
        """Write everything appended so far to the operating system."""
        self._check_process()
        with self._writing:
            if self.refusing:
                self._refuse()
            self._write_gathered()

    def sync(self) -> None:
        """Make everything appended so far durable: it is on the disk when this returns."""
        if self.refusing:
            self._refuse()
        self._sync()

    def _sync(self) -> None:
        self._check_process()
        with self._writing:
            if self._failure is not None:
                self._refuse()
            self._write_gathered()
            make_durable = self._to_sync()
        # Outside of the lock, so that others can append and write meanwhile.
        with self._syncing:
            if self._failure is not None:
                self._refuse()  # another thread's sync failed meanwhile: ours could succeed and mean nothing
            if not self._is_released:  # else it was closed meanwhile, and synced for that
                self._or_poison(make_durable, resumes=self._sync_resumes)

    def _sync_in_background(self) -> None:
        try:
            self.sync()
        except BaseException:
            self._failure_raised = False  # no caller saw it: the next call or `close` raises it
            raise

    def _check_process(self) -> None:
        """Refuse in a forked child: it shares the file and the lock with its parent, and would overwrite it."""
        if os.getpid() != self._process:
            raise WrongUse(f"{self._name}: this writer belongs to another process; open one after the fork")

    def _reset_after_fork(self) -> None:
        """In a forked child, replace the locks: the threads that held them do not exist here."""
        self._writing = threading.Lock()
        self._syncing = threading.Lock()
        self._group = GroupCommit(self.sync)
        self._interval = None

    def _write_gathered(self) -> None:
        """Write the buffer. `_writing` is held."""
        try:
            self._or_poison(self._write_out, resumes=self._resumes)
        except BaseException as error:
            if self._failure is error:
                self._poison(error, loses=True)
            raise

    def _or_poison(self, action: Callable[[], None], *, resumes: bool = False) -> None:
        """Do something to the files; any failure poisons this writer.

        So does an interrupt, unless the action `resumes` when it is called again.
        """
        try:
            action()
        except BaseException as error:
            if not resumes or is_failure(error):
                self._poison(error)
            raise

    def _poison(self, error: BaseException, *, loses: bool = False) -> None:
        """Accept nothing more from now on; this error is being raised.

        If it `loses` records that were not written, an interrupt does not say so: the next call or `close` raises that.
        """
        self._failure = error
        self._failure_raised = not loses or is_failure(error)
        self._gate.refusing = True

    def _refuse(self) -> None:
        if self._failure is not None:
            self._failure_raised = True
            raise Poisoned(f"{self._name}: {_reason(self._failure)}") from self._failure
        raise Closed(f"{self._name}: this writer is closed")

    # --- closing ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush, sync, and release the lock. A second call does nothing, unless the first one was interrupted.

        Appends from now on raise `Closed`. `Poisoned` if this call or an earlier one was interrupted half-way and that
        was not raised yet.
        """
        with self._writing:
            if self._is_released:
                self._report_failure()
                return
            self._closed = self._gate.refusing = True  # no more records are added to the buffer
        self._end_sync()
        try:
            if not self._is_finished:
                self._finish()
        except BaseException as error:
            self._is_finished = is_failure(error) or self._failure is not None  # nothing more can be done
            raise
        finally:
            if self._is_finished:
                with self._writing, self._syncing:
                    if not self._is_released:
                        self._release()
                        self._is_released = True

    def _finish(self) -> None:
        if self._failure is None:
            self._sync()
        self._report_failure()
        self._is_finished = True

    def _report_failure(self) -> None:
        if self._failure is not None and not self._failure_raised:
            self._refuse()


class GatheringBuffer(Gate, Protocol):
    """The interface of a `WriteBuffer` for the writer that owns it."""

    attend: Callable[[], object]
    refuse: Callable[[], object]

    @property
    def buffered_bytes(self) -> int: ...


class Buffering(Appending):
    """The base of a writer that owns a buffer of its format.

    The buffer's methods are bound to the writer where they are called for every record: a wrapping method would take as
    long as they do.
    """

    _buffer: GatheringBuffer

    @property
    def refusing(self) -> bool:  # type: ignore[override]
        """Whether every append is refused: the writer is closed, or has failed."""
        return self._buffer.refusing

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes that are not written yet."""
        return self._buffer.buffered_bytes


def _reason(failure: BaseException) -> str:
    if isinstance(failure, LogwrightError | OSError):
        return f"this writer failed earlier ({failure})"
    return (
        f"a call was interrupted half-way ({failure!r}): records that were not flushed yet may be lost; open it again"
    )


def _after_fork() -> None:
    for writer in _writers:
        writer._reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
