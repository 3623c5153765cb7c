"""Helpers of the classes for asyncio: work that must be completed when its task is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from ..options import NamedOptions

Result = TypeVar("Result")


class _Closable(Protocol):
    def close(self) -> None: ...


Openable = TypeVar("Openable", bound=_Closable)


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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        raise NotImplementedError


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
