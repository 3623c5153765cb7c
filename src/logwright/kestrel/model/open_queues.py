"""The open queues of this process, which share engines.

A queue has one engine in a process, and at most one handle: that of the `Queue` or `AsyncQueue` that the program has
opened. Opening a second one raises `Locked`. Others may also hold the engine:

- the handle of the parent of a fan-out queue `parent+child`: an item that is put to the parent is put to every child;
- an engine whose items move to this queue: because of `expire_to`, or to be parked.

An engine is closed when it has no holder. Queues that other processes have open cannot be used: they are locked.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, cast

from ...core.io.disk import REAL_DISK, Disk
from ...core.io.durability import SyncLike, parse_sync
from ...errors import Closed, Locked, LogwrightError, NotFound, WrongUse
from ..bytes.layout import check_queue_name, is_queue_name
from ..bytes.records import Dialect
from ..files.files import list_queues
from .engine import Engine
from .limits import Expires, Limits, check_id, due_ms

_LOCK_TIMEOUT_SECONDS: Final = 0.01


def _with_timeout(lock: threading.RLock) -> AbstractContextManager[bool]:
    """A context that acquires a lock with a timeout, and returns whether it has; if not, its exit raises RuntimeError.

    Enter and exit are compiled code. A Python function could be interrupted after it has acquired the lock, and before
    its caller knows.
    """
    ends: dict[str, Callable[..., Any]] = {
        "__enter__": partial(lock.acquire, timeout=_LOCK_TIMEOUT_SECONDS),
        "__exit__": lock.__exit__,
    }
    kind = type("Attempt", (), {name: staticmethod(end) for name, end in ends.items()})
    return cast(AbstractContextManager[bool], kind())


_lock = threading.RLock()
"""Held while queues are opened and closed."""
_lock_soon = _with_timeout(_lock)
_engines: dict[tuple[int, Path], Engine] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of opening a queue, other than its limits."""

    sync: SyncLike = "none"
    dialect: Dialect = "auto"
    buffer_bytes: int = 0
    background: bool = True
    clock: Callable[[], float] | None = None
    disk: Disk = REAL_DISK


def _acquire(path: Path, limits: Limits, settings: Settings, holder: object) -> Engine:
    """The engine of a queue, which is opened if necessary; `holder` must `_release` it."""
    key = id(settings.disk), path

    def register(opened: Engine) -> None:
        _engines[key] = opened  # the last step of opening: an interrupt before it closes the engine again

    engine = _engines.get(key)
    if engine is not None and engine.refusing and engine.handle is None:
        _close(engine)  # it has failed: its holders reopen it when they need it
        engine = None
    if engine is None:
        engine = Engine(
            path,
            limits,
            sync=settings.sync,
            dialect=settings.dialect,
            buffer_bytes=settings.buffer_bytes,
            background=settings.background,
            clock=settings.clock,
            borrow=_borrower(key, settings),
            is_open=register,
            disk=settings.disk,
        )
    else:
        engine.ensure_durability(parse_sync(settings.sync), settings.buffer_bytes)
    engine.holders.add(holder)
    return engine


def _borrower(key: tuple[int, Path], settings: Settings) -> Callable[[str], Engine]:
    """The function that opens the queues that the items of one move to."""
    plain = replace(settings, dialect="auto")

    def borrow(name: str) -> Engine:
        while True:
            _check_borrower(key)  # the thread that has the lock may be closing this queue, and waiting for us
            is_held = False
            try:
                with _lock_soon as is_held:
                    if is_held:
                        _check_borrower(key)  # a closed queue would never release what it borrows
                        return _acquire(key[1].with_name(name), Limits(), plain, key)
            except RuntimeError:
                if is_held:
                    raise

    return borrow


def _check_borrower(key: tuple[int, Path]) -> None:
    engine = _engines.get(key)
    if engine is None or engine.is_closing:
        raise Closed(f"{key[1]}: this queue is closed")


def _release(engine: Engine, holder: object) -> None:
    engine.holders.discard(holder)
    if not engine.holders:
        _close(engine)


def _close(engine: Engine, end: Callable[[], None] | None = None) -> None:
    """Close an engine, or end it by `end`, and release the engines that it has borrowed."""
    key = id(engine.disk), engine.path
    if _engines.get(key) is engine:
        del _engines[key]
    with contextlib.ExitStack() as stack:
        for other in list(_engines.values()):
            if key in other.holders:
                stack.callback(_release, other, key)
        stack.callback(_end_or_close, engine, end or engine.close)


def _end_or_close(engine: Engine, end: Callable[[], None]) -> None:
    """End an engine. If that fails, as deleting may on a full disk, close it: no one else could."""
    try:
        end()
    except BaseException:
        with contextlib.suppress(LogwrightError):
            engine.close()
        raise


def can_open(name: str) -> bool:
    """Whether a queue can have this name, for servers: they do not import layouts."""
    return is_queue_name(name)


class Handle:
    """A queue that the program has opened, and its children; opened by `open` or `opening`.

    If a child cannot be opened, neither can its parent, unless the parent `is_tolerant`: then puts to the parent are
    refused until the child is opened.
    """

    engine: Engine

    def __init__(
        self, directory: Path, name: str, limits: Limits, settings: Settings, *, is_tolerant: bool = False
    ) -> None:
        self._limits, self._settings, self._is_tolerant = limits, settings, is_tolerant
        self._children: dict[str, Engine] = {}
        self._refused: dict[str, LogwrightError] = {}
        """Children that could not be opened, and why."""
        self.has_children = False
        """Read by every put, so it is not a property."""
        self._is_closed = False
        check_queue_name(name)  # before it is joined to the directory: it might be a path
        self._path = directory.absolute() / name

    def open(self) -> Self:
        """Open the queue and its children, all of them or none."""
        with self.opening():
            return self

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """The same as a context: if the block raises, everything is closed."""
        try:
            with _lock:
                engine = _acquire(self._path, self._limits, self._settings, self)
                if engine.handle is not None:
                    engine.holders.discard(self)
                    raise Locked(f"{self._path} is already open in this process")
                self.engine = engine
                engine.handle = self
                engine.configure(self._limits)
                self._open_family()
            yield
        except BaseException:
            self._undo_opening()
            raise

    def _undo_opening(self) -> None:
        with _lock:
            engine = _engines.get((id(self._settings.disk), self._path))
            if engine is not None and not hasattr(self, "engine") and not engine.holders - {self}:
                _release(engine, self)  # it was opened for this handle
            elif hasattr(self, "engine"):
                self.engine.handle = self
                self.close()

    def _open_family(self) -> None:
        """Open the existing children, or add this child to its open parent."""
        path, disk = self.engine.path, self._settings.disk
        parent, _, child = path.name.partition("+")
        if child:
            above = _engines.get((id(disk), path.with_name(parent)))
            if above is not None and isinstance(above.handle, Handle):
                above.handle._add_child(path.name)
            return
        with contextlib.suppress(NotFound):
            for name in list_queues(disk, path.parent):
                if name.startswith(f"{parent}+") and is_queue_name(name):  # other files may have such names
                    with contextlib.suppress(LogwrightError) if self._is_tolerant else contextlib.nullcontext():
                        self._add_child(name)

    def _add_child(self, name: str) -> None:
        path = self.engine.path.with_name(name)
        self.has_children = True
        try:
            self._children[name] = _acquire(path, self._limits, self._settings, self)
        except LogwrightError as error:
            self._refused[name] = error  # or else the next put would omit it
            raise
        self._refused.pop(name, None)

    # --- fan-out ----------------------------------------------------------------------------------------------------

    def family(self) -> list[Engine]:
        """The queue and its children, by name. A child that has failed is reopened, unless it was deleted."""
        if self._refused or any(child.refusing for child in list(self._children.values())):
            with _lock:
                self._reopen_children()
        return [self.engine, *(child for _, child in sorted(self._children.items()))]

    def _reopen_children(self) -> None:
        if self._is_tolerant and self._refused:
            raise next(iter(self._refused.values())).with_traceback(None)  # tracebacks would accumulate
        for name in [*(name for name, child in self._children.items() if child.refusing), *self._refused]:
            if name in self._children:
                _release(self._children[name], self)
                del self._children[name]
            if self._settings.disk.exists(self.engine.path.with_name(name)):
                self._add_child(name)
            else:
                self._refused.pop(name, None)
        self.has_children = bool(self._children)

    def put_to_all(
        self,
        contents: Sequence[bytes],
        expires: Expires | None,
        delay: Expires | None = None,
        id: str | bytes | None = None,
    ) -> tuple[bool, list[Engine]]:
        """Put items to the queue and to every child, all of them or none.

        Returns the engines. With an id there is one item; the first result is False if it was put before. It may not be
        durable yet in any of the engines.
        """
        if self._is_closed:
            raise Closed(f"{self.engine.path}: this queue is closed")
        if delay is not None and expires is not None:
            raise WrongUse(
                "an item cannot have both a delay and an expiry: while it waits, the expiry is when it is due"
            )
        family = self.family()
        is_new = self._put_locked(family, 0, contents, expires, delay, None if id is None else check_id(id))
        return is_new, family

    def _put_locked(
        self,
        family: list[Engine],
        held: int,
        contents: Sequence[bytes],
        expires: Expires | None,
        delay: Expires | None,
        id: str | None,
    ) -> bool:
        """Acquire the remaining mutexes, always in this order to prevent deadlocks; then put."""
        if held < len(family):
            with family[held].mutex:
                return self._put_locked(family, held + 1, contents, expires, delay, id)
        now = self.engine.shelf.now()
        deadline = 0 if expires is None else self.engine.deadline(expires, now)
        due = 0 if delay is None else due_ms(delay, now)
        for engine in family:
            engine.check_room(contents)
        if id is not None and self.engine.delays.knows(id, now):
            return False
        for engine in family:
            engine.prepare_to_put()
        try:
            for engine in reversed(family):
                own_id = id if engine is self.engine else None
                if due > now:
                    engine.delays.put(contents, now, due, own_id)
                elif own_id is not None:
                    engine.put_once_locked(contents[0], now, deadline, own_id)
                else:
                    engine.put_many_locked(contents, now, deadline)
            return True
        except BaseException as error:
            if not isinstance(error, LogwrightError):
                for engine in family:
                    engine.shelf.refusing = True
                    engine.interrupted(error)
            raise

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Release the queue and its children."""
        self._end(self.engine.close)

    def delete(self) -> None:
        """Remove the queue; its children stay."""
        self._end(self.engine.delete)

    def _end(self, end: Callable[[], None]) -> None:
        with _lock:
            if self._is_closed:
                return
            engine = self.engine
            engine.handle = None
            try:
                with contextlib.ExitStack() as stack:
                    for child in self._children.values():
                        stack.callback(_release, child, self)
                    engine.holders.discard(self)
                    if end == engine.delete or engine.refusing or not engine.holders:
                        stack.callback(_close, engine, end)
                    else:
                        stack.callback(engine.release)
            except BaseException as error:
                self._is_closed = isinstance(error, LogwrightError)  # otherwise it was interrupted, and can be repeated
                raise
            self._is_closed = True


def _after_fork() -> None:
    """In a forked child: the queues belong to the parent, which continues to write to them."""
    global _lock, _lock_soon
    _lock = threading.RLock()
    _lock_soon = _with_timeout(_lock)
    for engine in _engines.values():
        engine.shelf.refusing = True
    _engines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
