"""The base of the classes for asyncio, and work that must be completed when its task is cancelled.

`AsyncWrapper` makes a blocking object usable by the tasks of an event loop. Its methods are called in a thread:

    class AsyncStore(AsyncWrapper[Store]):
        history = in_thread(Store.history)      # await store.history(key)
        keys = at_once(Store.keys)              # store.keys(), which does not block
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from ...errors import Closed
from ..io.durability import ALWAYS, AsyncGroupCommit, Sync
from ..options import NamedOptions
from .closing import at_the_end_of_a_block

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class _Closable(Protocol):
    def close(self) -> None: ...


class _Syncable(_Closable, Protocol):
    def sync(self) -> None: ...


Openable = TypeVar("Openable", bound=_Closable)
Inner = TypeVar("Inner", bound=_Syncable)


class _Open:
    """`Thing.open(…)` is `Thing(…)`, with the same arguments, to the type checker as well."""

    def __get__(self, instance: object, owner: type[Result]) -> type[Result]:
        return owner


class AsyncOpening(NamedOptions):
    """The base of what is opened in an event loop.

    thing = await Thing.open(…)             to be closed by `await thing.close()`
    async with Thing.open(…) as thing:      closed at the end of the block; `Thing(…)` is the same
    """

    open = _Open()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        await self.close()

    async def close(self) -> None:
        raise NotImplementedError


class AsyncWrapper(AsyncOpening, Generic[Inner]):
    """The base of a class that opens a blocking object, `inner`, and closes it.

    With the sync policy `always`, tasks that change the object at the same time share a sync: see `_commit`. The object
    itself must not sync then.
    """

    what: ClassVar[str]
    """The object in messages."""

    def __init__(self, name: Path | str, policy: Sync, open_inner: Callable[[], Inner]) -> None:
        self.policy = policy
        self._name = name
        self._open_inner = open_inner
        self._inner: Inner | None = None
        self._group: AsyncGroupCommit | None = None

    @property
    def inner(self) -> Inner:
        """The blocking object. `Closed` unless this one is open."""
        if self._inner is None:
            raise Closed(f"{self._name}: this {self.what} is not open")
        return self._inner

    async def _commit(self) -> None:
        """With `always`, wait until all changes so far are durable."""
        if self._group is not None:
            await self._group.wait()

    async def close(self) -> None:
        """Sync, and let others open the object. A second call does nothing."""
        inner, self._inner = self._inner, None
        if inner is not None:
            await to_the_end(self._close(inner))

    async def _close(self, inner: Inner) -> None:
        group, self._group = self._group, None
        try:
            if group is not None:
                await group.close()
        finally:
            await asyncio.to_thread(inner.close)

    async def __aenter__(self) -> Self:
        if self._inner is None:
            self._inner = await opened(self._open_inner)
            self._group = AsyncGroupCommit(self._inner.sync) if self.policy == ALWAYS else None
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with at_the_end_of_a_block(error):
            await self.close()


def in_thread(
    method: Callable[Concatenate[Any, Parameters], Result],
) -> Callable[Concatenate[Any, Parameters], Coroutine[Any, Any, Result]]:
    """A method of an `AsyncWrapper` that calls this method of its inner object in a thread."""

    @functools.wraps(method)
    async def call(self: AsyncWrapper[Any], /, *arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        return await asyncio.to_thread(method, self.inner, *arguments, **options)

    return call


def at_once(method: Callable[Concatenate[Any, Parameters], Result]) -> Callable[Concatenate[Any, Parameters], Result]:
    """The same for a method that does not block."""

    @functools.wraps(method)
    def call(self: AsyncWrapper[Any], /, *arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        return method(self.inner, *arguments, **options)

    return call


async def to_the_end(work: Awaitable[Result]) -> Result:
    """Wait for work that must be completed. A cancellation is raised after it."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it
        raise


async def opened(open_it: Callable[[], Openable]) -> Openable:
    """Open something in a thread. If the task is cancelled meanwhile, close it again."""
    opening = asyncio.ensure_future(asyncio.to_thread(open_it))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await asyncio.wait([opening])
        if opening.exception() is None:
            await asyncio.to_thread(opening.result().close)
        raise
