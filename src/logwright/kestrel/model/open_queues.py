"""Which queues this process has open, and how they reach each other.

A queue has one engine in a process, and one handle: the `Queue` or `AsyncQueue` that the program has opened; a second
one gets `Locked`. Others may need the engine as well, and share it:

- the handle of the parent of a fan-out queue `parent+child`: whatever is put to the parent is put to every child;
- an engine whose items move: to `expire_to`, or to where failed items are parked.

An engine is closed when nothing holds it any more. Queues of other processes cannot be reached: they are locked.
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
from ...errors import Closed, Locked, LogwrightError, NotFound
from ..bytes.layout import check_queue_name, is_queue_name
from ..bytes.records import Dialect
from ..files.files import list_queues
from .engine import Engine
from .limits import Limits

_PATIENCE_SECONDS: Final = 0.01


def _attempt_at(lock: threading.RLock) -> AbstractContextManager[bool]:
    """A context that takes a lock if it becomes free soon, and says whether it has; if not, its end raises an error.

    Both ends are compiled code. A Python function could be interrupted after it has taken the lock, and before its
    caller knows.
    """
    ends: dict[str, Callable[..., Any]] = {
        "__enter__": partial(lock.acquire, timeout=_PATIENCE_SECONDS),
        "__exit__": lock.__exit__,
    }
    kind = type("Attempt", (), {name: staticmethod(end) for name, end in ends.items()})
    return cast(AbstractContextManager[bool], kind())


_lock = threading.RLock()
"""Held while queues are opened and closed."""
_attempt = _attempt_at(_lock)
_engines: dict[tuple[int, Path], Engine] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a queue is opened, beside its limits."""

    sync: SyncLike = "none"
    dialect: Dialect = "auto"
    buffer_bytes: int = 0
    background: bool = True
    clock: Callable[[], float] | None = None
    disk: Disk = REAL_DISK


def _hold(path: Path, limits: Limits, settings: Settings, holder: object) -> Engine:
    """The engine of a queue, opened if it is not; `holder` must `_let_go` of it."""
    key = id(settings.disk), path

    def register(opened: Engine) -> None:
        _engines[key] = opened  # an assignment: after a call an interrupt could follow, and the engine be closed again

    engine = _engines.get(key)
    if engine is not None and engine.refusing and engine.handle is None:
        _forget(engine)  # it has failed: other holders open it again when they need it
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
        engine.keep_promises(parse_sync(settings.sync), settings.buffer_bytes)
    engine.holders.add(holder)
    return engine


def _borrower(key: tuple[int, Path], settings: Settings) -> Callable[[str], Engine]:
    """What finds the queues that the items of one move to."""
    plain = replace(settings, dialect="auto")

    def borrow(name: str) -> Engine:
        while True:
            _check_borrower(key)  # the thread that has the lock may be closing our queue, and wait for us
            is_held = False
            try:
                with _attempt as is_held:
                    if is_held:
                        _check_borrower(key)  # a closed queue would never give back what it borrows
                        return _hold(key[1].with_name(name), Limits(), plain, key)
            except RuntimeError:
                if is_held:
                    raise

    return borrow


def _check_borrower(key: tuple[int, Path]) -> None:
    engine = _engines.get(key)
    if engine is None or engine.is_closing:
        raise Closed(f"{key[1]}: this queue is closed")


def _let_go(engine: Engine, holder: object) -> None:
    engine.holders.discard(holder)
    if not engine.holders:
        _forget(engine)


def _forget(engine: Engine, end: Callable[[], None] | None = None) -> None:
    """Close an engine, or end it otherwise, and let go of what it has borrowed."""
    key = id(engine.disk), engine.path
    if _engines.get(key) is engine:
        del _engines[key]
    with contextlib.ExitStack() as stack:
        for other in list(_engines.values()):
            if key in other.holders:
                stack.callback(_let_go, other, key)
        stack.callback(_ended, engine, end or engine.close)


def _ended(engine: Engine, end: Callable[[], None]) -> None:
    """End an engine; if that fails, as deleting can on a full disk, it is at least closed: nothing else could do it."""
    try:
        end()
    except BaseException:
        with contextlib.suppress(LogwrightError):
            engine.close()
        raise


def can_open(name: str) -> bool:
    """Whether this is what a queue can be called. It cannot lead out of its directory then."""
    return is_queue_name(name)


class Handle:
    """A queue that the program has opened, and its children; opened by `open`, or by `opening`.

    A child that cannot be opened keeps its parent from being opened as well, unless its parent `is_tolerant`: then
    nothing can be put to the parent, until the child is opened.
    """

    engine: Engine

    def __init__(
        self, directory: Path, name: str, limits: Limits, settings: Settings, *, is_tolerant: bool = False
    ) -> None:
        self._limits, self._settings, self._is_tolerant = limits, settings, is_tolerant
        self._children: dict[str, Engine] = {}
        self._absent: dict[str, LogwrightError] = {}
        """Children that could not be opened, and why."""
        self.has_children = False
        """Asked by every put, so it is no property."""
        self._is_closed = False
        check_queue_name(name)  # alone: a path could hide what is in it
        self._path = directory.absolute() / name

    def open(self) -> Self:
        """Open the queue and its children, or nothing."""
        with self.opening():
            return self

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """The same, and all is given back if the block ends with an error."""
        try:
            with _lock:
                engine = _hold(self._path, self._limits, self._settings, self)
                if engine.handle is not None:
                    engine.holders.discard(self)
                    raise Locked(f"{self._path} is open already in this process")
                self.engine = engine
                engine.handle = self
                engine.configure(self._limits)
                self._meet_family()
            yield
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        with _lock:
            engine = _engines.get((id(self._settings.disk), self._path))
            if engine is not None and not hasattr(self, "engine") and not engine.holders - {self}:
                _let_go(engine, self)  # it was opened for this
            elif hasattr(self, "engine"):
                self.engine.handle = self
                self.close()

    def _meet_family(self) -> None:
        """Open the children that are there, and let a parent know of this child."""
        path, disk = self.engine.path, self._settings.disk
        parent, _, child = path.name.partition("+")
        if child:
            above = _engines.get((id(disk), path.with_name(parent)))
            if above is not None and isinstance(above.handle, Handle):
                above.handle._add_child(path.name)
            return
        with contextlib.suppress(NotFound):
            for name in list_queues(disk, path.parent):
                if name.startswith(f"{parent}+") and is_queue_name(name):  # there may be stray files
                    with contextlib.suppress(LogwrightError) if self._is_tolerant else contextlib.nullcontext():
                        self._add_child(name)

    def _add_child(self, name: str) -> None:
        path = self.engine.path.with_name(name)
        self.has_children = True
        try:
            self._children[name] = _hold(path, self._limits, self._settings, self)
        except LogwrightError as error:
            self._absent[name] = error  # else it would be passed over by the next put
            raise
        self._absent.pop(name, None)

    # --- fan-out ----------------------------------------------------------------------------------------------------

    def family(self) -> list[Engine]:
        """The queue and its children, by name. A child that has failed is opened again, one that is gone is not."""
        if self._absent or any(child.refusing for child in list(self._children.values())):
            with _lock:
                self._renew_children()
        return [self.engine, *(child for _, child in sorted(self._children.items()))]

    def _renew_children(self) -> None:
        if self._is_tolerant and self._absent:
            raise next(iter(self._absent.values())).with_traceback(None)  # it may be raised very often
        for name in [*(name for name, child in self._children.items() if child.refusing), *self._absent]:
            if name in self._children:
                _let_go(self._children[name], self)
                del self._children[name]
            if self._settings.disk.exists(self.engine.path.with_name(name)):
                self._add_child(name)
            else:
                self._absent.pop(name, None)
        self.has_children = bool(self._children)

    def put_to_all(self, contents: Sequence[bytes], expires: Any) -> list[Engine]:
        """Put items to the queue and to every child, all of them or none; the engines of those."""
        if self._is_closed:
            raise Closed(f"{self.engine.path}: this queue is closed")
        family = self.family()
        self._put_with_each(family, 0, contents, expires)
        return family

    def _put_with_each(self, family: list[Engine], held: int, contents: Sequence[bytes], expires: Any) -> None:
        """Take the mutexes that are not held, always in this order, so that no deadlock arises; then put."""
        if held < len(family):
            with family[held].mutex:
                self._put_with_each(family, held + 1, contents, expires)
            return
        now = self.engine.shelf.now()
        deadline = 0 if expires is None else self.engine.deadline(expires, now)
        for engine in family:
            engine.check_room(contents)
        for engine in family:
            engine.prepare_to_put()
        try:
            for engine in reversed(family):
                engine.put_many_held(contents, now, deadline)
        except BaseException as error:
            if not isinstance(error, LogwrightError):
                for engine in family:
                    engine.shelf.refusing = True
                    engine.interrupted(error)
            raise

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the queue and its children."""
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
                        stack.callback(_let_go, child, self)
                    engine.holders.discard(self)
                    if end == engine.delete or engine.refusing or not engine.holders:
                        stack.callback(_forget, engine, end)
                    else:
                        stack.callback(engine.release)
            except BaseException as error:
                self._is_closed = isinstance(error, LogwrightError)  # else it was interrupted, and can be called again
                raise
            self._is_closed = True


def _after_fork() -> None:
    """In a child: the queues belong to the parent, which continues to write to them."""
    global _lock, _attempt
    _lock = threading.RLock()
    _attempt = _attempt_at(_lock)
    for engine in _engines.values():
        engine.shelf.refusing = True
    _engines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
