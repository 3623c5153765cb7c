"""What the classes for asyncio share: work that must not be left half-way when its task is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class _Closable(Protocol):
    def close(self) -> None: ...


Openable = TypeVar("Openable", bound=_Closable)


async def to_the_end(work: Awaitable[Result]) -> Result:
    """Wait for something that must not be left half-way; a cancellation comes after it."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # seen: what matters now is that we were cancelled
        raise


async def opened(open_it: Callable[[], Openable]) -> Openable:
    """Open something in a thread. If we are cancelled meanwhile it is closed again: nobody else would."""
    opening = asyncio.ensure_future(asyncio.to_thread(open_it))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await asyncio.wait([opening])
        if opening.exception() is None:
            await asyncio.to_thread(opening.result().close)
        raise
