"""Copy to a hub by path: one journal, or every shard below a root, at the same time.

A journal's name on the hub is that of its directory, a shard's is that of the shard's directory, or `NAME.SHARD` if a
name is given. A client with two roots must name one of them.

One watch serves all journals, because the system limits their number. Some file systems send no notices, so all
journals are also checked in rotation, at a bounded rate.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, Self

from ...core.io.disk import REAL_DISK
from ...core.io.watch import Watch, watch_directories
from ...errors import LogwrightError, NotFound, WrongUse
from ...sej.files.shard import find_shards
from ...sej.model.aio import changed
from ...sej.model.copying import BATCH_BYTES
from .access import Access
from .client import HubClient
from .errors import Barred
from .requests import check_journal
from .retry import PATIENCE_SECONDS
from .sender import Sender, Sent
from .turns import IN_FLIGHT, Turns

_SEGMENTS: Final = "jnl"
_NEW_SHARDS_SECONDS: Final = 2.0
Total = Callable[[int, int], None]
"""Told how many bytes are done, and how many there are."""
_LOOK_SECONDS: Final = 1.0
_LOOKS_PER_SECOND: Final = 100
"""How many journals are looked at without a notice: so up to 100 of them every second, and 1000 every ten."""


class Senders:
    """The senders of all journals below a path, and one watch that tells which of these have something new."""

    def __init__(self, in_flight: int, failed: Callable[[LogwrightError], None] | None) -> None:
        self.turns = Turns(in_flight)
        self.tasks: dict[str, asyncio.Task[Sent]] = {}
        self._failed = failed
        self._told: set[str] = set()
        self._watch = watch_directories([])
        self._by_directory: dict[Path, Sender] = {}
        self._rotation: deque[Sender] = deque()
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks: list[asyncio.Task[Any]] = [*self.tasks.values()]
        tasks += [] if self._looking is None else [self._looking]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._watch.close()
        self.turns.close()

    def watched(self, directory: Path) -> Watch:
        """The watch, which from now on looks after a directory too."""
        # The system limits how many can be watched. What is not watched is still looked at by turns.
        with contextlib.suppress(OSError):
            self._watch.add(directory)
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())
        return self._watch

    def start(self, sender: Sender, directory: Path, send: Callable[[Sender], Coroutine[Any, Any, Sent]]) -> None:
        """Let a sender begin. It is woken when its directory changes, if that is watched, and every now and then."""
        self._by_directory[directory] = sender
        self._rotation.append(sender)
        self.tasks[sender.sent.journal] = asyncio.ensure_future(send(sender))

    async def _look(self) -> None:
        """Wake those that have something new, and the others in rotation: no notice may have come of what they have."""
        looked_at = time.monotonic()
        while True:
            found = self._watch.drain()
            if found is None and self._watch.descriptor() is not None:  # there was more than the system remembers
                found = set(self._by_directory)
            for directory in found or ():
                self._by_directory[directory].wake.set()
            looks = int((time.monotonic() - looked_at) * _LOOKS_PER_SECOND)
            if looks:
                looked_at = time.monotonic()
            for _ in range(min(looks, len(self._rotation))):
                self._rotation[0].wake.set()
                self._rotation.rotate(-1)
            await changed(self._watch, _LOOK_SECONDS)

    async def wait(self, most_seconds: float | None) -> None:
        """Wait until all are done, at most so long, and tell of those that have failed as soon as they have."""
        deadline = None if most_seconds is None else time.monotonic() + most_seconds
        looking = [] if self._looking is None else [self._looking]
        while running := [task for task in self.tasks.values() if not task.done()]:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            await asyncio.wait([*running, *looking], timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for task in looking:
                if task.done():  # by a mistake of ours: it has no end
                    task.result()
            for journal, sending in self.tasks.items():
                if sending.done() and journal not in self._told:
                    self._told.add(journal)
                    self._tell(journal, sending.exception())

    def _tell(self, journal: str, error: BaseException | None) -> None:
        if error is None:
            return
        if not isinstance(error, LogwrightError):  # a mistake of ours
            raise error
        if self._failed is not None:
            self._failed(error)
        if isinstance(error, Barred):
            raise error  # for the others it would be the same
        if len(self.tasks) > 1:
            self.turns.reminders.tell(str(error), f"{journal} is not copied any further: {error}")

    @property
    def are_done(self) -> bool:
        """Whether none is at work any more."""
        return all(task.done() for task in self.tasks.values())

    def results(self) -> list[Sent]:
        """What was sent of each; the first failure is raised, if any."""
        return [task.result() for task in self.tasks.values()]


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
            check_journal(journal)
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
    failed: Callable[[LogwrightError], None] | None = None,
) -> list[Sent]:
    """Copy a journal, or every shard below a root, to a hub. With `follow` until cancelled, new shards as well.

    `in_flight` is how many requests are on their way at most, of all journals together. `told` is called with what was
    sent of each journal, when it is done, cancelled, or has failed, unless no hub was reached. One that fails does not
    stop the others: `failed` is called with why, and it is raised when all others are done, or have failed as well.
    """
    path, together = Path(path), _Sum(progress)
    async with HubClient(access, client) as hub, Senders(in_flight, failed) as senders:
        options = {"request_bytes": request_bytes, "patience_seconds": patience_seconds}

        async def send(sender: Sender) -> Sent:
            try:
                return await sender.run(follow=follow)
            finally:
                if told is not None and sender.reached:
                    told(sender.sent)

        while True:
            for journal, directory in await asyncio.to_thread(named_journals, path, name):
                if journal not in senders.tasks:
                    watch = senders.watched(directory / _SEGMENTS) if follow else None
                    more: dict[str, Any] = {**options, "progress": together.of(journal), "watch": watch}
                    senders.start(Sender(hub, directory, journal, senders.turns, **more), directory / _SEGMENTS, send)
            await senders.wait(_NEW_SHARDS_SECONDS if follow else None)
            if senders.are_done:
                return senders.results()
