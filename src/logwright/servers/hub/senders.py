"""Senders: all journals that are copied at the same time, and who wakes them up.

One watch is for all of them, because the system limits how many there may be. It tells which journals have changed;
and as no notice comes from some file systems, all are looked at in rotation, a bounded number of them a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, Self

from ...core.io.watch import Watch, watch_directories
from ...errors import LogwrightError
from ...sej.model.aio import changed
from .errors import Barred
from .sending import Sender, Sent
from .turns import Turns

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
