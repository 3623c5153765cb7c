"""Copying and restoring by path: one journal, or every shard below a root, each under its own name.

A journal is kept under the name of its directory, a shard under that of the shard's, or under `NAME.SHARD` when a name
is given; two roots of one client need one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

from ...core.disk import REAL_DISK
from ...core.errors import NotFound, WrongUse
from ...formats.sej.copying import BATCH_BYTES
from ...formats.sej.shard import find_shards, parse_shard_name
from . import restoring
from .access import Access
from .client import HubClient
from .names import MOST_CHARACTERS, check_journal
from .restoring import Restored
from .sending import IN_FLIGHT, PATIENCE_SECONDS, Sender, Sent

_SEGMENTS: Final = "jnl"
_AT_A_TIME: Final = 4
"""How many shards are sent at the same time, where all of them have an end."""
_NEW_SHARDS_SECONDS: Final = 2.0
Total = Callable[[int, int], None]
"""Told how many bytes are done, and how many there are."""


def named_journals(path: Path, name: str | None) -> list[tuple[str, Path]]:
    """The journal at a path, or the shards below it, each with the name that it is kept under on a hub."""
    path = path.absolute()
    if REAL_DISK.is_directory(path / _SEGMENTS):
        found = [(path.name if name is None else name, path)]
    elif REAL_DISK.is_directory(path):
        shards = find_shards(REAL_DISK, path)
        found = [(shard.name if name is None else f"{name}.{shard.name}", shard.path) for shard in shards]
    else:
        found = []
    if not found:
        raise NotFound(f"{path}: no sej journal is here")
    for journal, directory in found:
        try:
            check_journal(journal, MOST_CHARACTERS)
        except WrongUse as error:
            raise WrongUse(f"{directory} needs another name on a hub: {error}") from None
    return found


class _Sum:
    """The progress of several journals as that of one."""

    def __init__(self, tell: Total | None) -> None:
        self._tell = tell
        self._done = 0
        self._totals: dict[str, int] = {}

    def of(self, journal: str) -> Callable[[int, int], None] | None:
        """What one of them is to be told."""
        if self._tell is None:
            return None
        tell = self._tell

        def note(more_bytes: int, total_bytes: int) -> None:
            self._done += more_bytes
            self._totals[journal] = total_bytes
            total = max(self._done, sum(self._totals.values()))
            tell(self._done, total)

        return note


async def send_path(
    access: Access,
    path: Path | str,
    *,
    client: str,
    name: str | None = None,
    follow: bool = False,
    in_flight: int = IN_FLIGHT,
    request_bytes: int = BATCH_BYTES,
    patience_seconds: float = PATIENCE_SECONDS,
    progress: Total | None = None,
    told: Callable[[Sent], None] | None = None,
) -> list[Sent]:
    """Copy a journal, or every shard below a root, to a hub. With `follow` until cancelled, new shards as well.

    `told` is called with what was sent of each journal, when it is done, cancelled, or has failed,
    unless no hub was reached.
    """
    path, together = Path(path), _Sum(progress)
    options: dict[str, Any] = {
        "in_flight": in_flight,
        "request_bytes": request_bytes,
        "patience_seconds": patience_seconds,
    }
    turns = asyncio.Semaphore(_AT_A_TIME)
    async with HubClient(access, client) as hub:

        async def send(journal: str, directory: Path) -> Sent:
            sender = Sender(hub, directory, journal, progress=together.of(journal), **options)
            try:
                async with turns if not follow else contextlib.nullcontext():
                    return await sender.run(follow=follow)
            finally:
                if told is not None and sender.reached:
                    told(sender.sent)

        started: dict[str, asyncio.Task[Sent]] = {}
        async with _cancelled_at_the_end(started):
            while True:
                for journal, directory in await asyncio.to_thread(named_journals, path, name):
                    if journal not in started:
                        started[journal] = asyncio.ensure_future(send(journal, directory))
                most_seconds = _NEW_SHARDS_SECONDS if follow else None
                await asyncio.wait(started.values(), timeout=most_seconds, return_when=asyncio.FIRST_EXCEPTION)
                failed = [task for task in started.values() if task.done() and task.exception() is not None]
                if failed or not follow:
                    return [await task for task in failed or started.values()]


@contextlib.asynccontextmanager
async def _cancelled_at_the_end(tasks: dict[str, asyncio.Task[Sent]]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def restore_path(
    access: Access,
    path: Path | str,
    *,
    client: str,
    name: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Restored]:
    """Write a journal from its copy on a hub; where the hub has shards of it instead, every one below the path.

    Shards are those of `name`; where none is given, and the hub has no journal of the directory's name, all there are.
    """
    path = Path(path).absolute()
    async with HubClient(access, client) as hub:
        there = await hub.journals()
        wanted = path.name if name is None else name
        if wanted in there:
            found = [(wanted, path)]
        else:
            prefix = "" if name is None else f"{name}."
            shards = [journal.removeprefix(prefix) for journal in there if journal.startswith(prefix)]
            found = [(prefix + shard, path / shard) for shard in shards if (parse_shard_name(shard) or ("", 0))[1] > 0]
        if not found:
            raise NotFound(f"{access.address}: the hub has no journal {wanted} of {client}, nor shards of it")
        return [await restoring.restore(hub, journal, directory, progress=progress) for journal, directory in found]
