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
from ...core.options import with_named_options
from ...errors import LogwrightError, NotFound, WrongUse
from ...sej.files.shard import find_shards
from ...sej.model.aio import changed
from ...sej.model.copying import BATCH_BYTES
from .client import HubClient
from .client_access import Access
from .errors import Barred
from .requests import check_journal
from .retry import PATIENCE_SECONDS
from .scheduler import IN_FLIGHT, Scheduler
from .sender import Sender, Sent

_SEGMENTS: Final = "jnl"
_NEW_SHARDS_SECONDS: Final = 2.0
Total = Callable[[int, int], None]
"""Called with the bytes that are done, and the total."""
_CHECK_SECONDS: Final = 1.0
_CHECKS_PER_SECOND: Final = 100
"""The rate of checks without a notice: 100 journals are checked every second, 1000 every ten seconds."""


class _Upload:
    """The senders of all journals below a path, and one watch that wakes those with new messages."""

    def __init__(self, in_flight: int, failed: Callable[[LogwrightError], None] | None) -> None:
        self.scheduler = Scheduler(in_flight)
        self.tasks: dict[str, asyncio.Task[Sent]] = {}
        self._failed = failed
        self._reported: set[str] = set()
        self._watch = watch_directories([])
        self._by_directory: dict[Path, Sender] = {}
        self._rotation: deque[Sender] = deque()
        self._waking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks: list[asyncio.Task[Any]] = [*self.tasks.values()]
        tasks += [] if self._waking is None else [self._waking]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._watch.close()
        self.scheduler.close()

    def watched(self, directory: Path) -> Watch:
        """Add a directory to the watch, and return the watch."""
        # The system limits the number of watches. Journals without one are still checked in rotation.
        with contextlib.suppress(OSError):
            self._watch.add(directory)
        if self._waking is None:
            self._waking = asyncio.ensure_future(self._wake_all())
        return self._watch

    def start(self, sender: Sender, directory: Path, send: Callable[[Sender], Coroutine[Any, Any, Sent]]) -> None:
        """Start a sender. It is woken when its directory changes, and in rotation."""
        self._by_directory[directory] = sender
        self._rotation.append(sender)
        self.tasks[sender.sent.journal] = asyncio.ensure_future(send(sender))

    async def _wake_all(self) -> None:
        """Wake the senders of changed journals, and the others in rotation, as notices may be missing."""
        checked_at = time.monotonic()
        while True:
            found = self._watch.drain()
            if found is None and self._watch.descriptor() is not None:  # the system has dropped notices
                found = set(self._by_directory)
            for directory in found or ():
                self._by_directory[directory].wake.set()
            checks = int((time.monotonic() - checked_at) * _CHECKS_PER_SECOND)
            if checks:
                checked_at = time.monotonic()
            for _ in range(min(checks, len(self._rotation))):
                self._rotation[0].wake.set()
                self._rotation.rotate(-1)
            await changed(self._watch, _CHECK_SECONDS)

    async def wait(self, most_seconds: float | None) -> None:
        """Wait until all are done or the time is over; report failures as soon as they happen."""
        deadline = None if most_seconds is None else time.monotonic() + most_seconds
        waking = [] if self._waking is None else [self._waking]
        while running := [task for task in self.tasks.values() if not task.done()]:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            await asyncio.wait([*running, *waking], timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for task in waking:
                if task.done():  # a bug: it has no end
                    task.result()
            for journal, sending in self.tasks.items():
                if sending.done() and journal not in self._reported:
                    self._reported.add(journal)
                    self._report(journal, sending.exception())

    def _report(self, journal: str, error: BaseException | None) -> None:
        if error is None:
            return
        if not isinstance(error, LogwrightError):  # a bug
            raise error
        if self._failed is not None:
            self._failed(error)
        if isinstance(error, Barred):
            raise error  # it concerns all journals
        if len(self.tasks) > 1:
            self.scheduler.limited_log.log(str(error), f"{journal} is no longer copied: {error}")

    @property
    def are_done(self) -> bool:
        """Whether all senders have ended."""
        return all(task.done() for task in self.tasks.values())

    def results(self) -> list[Sent]:
        """The results of all senders; raises the first failure."""
        return [task.result() for task in self.tasks.values()]


def named_journals(path: Path, name: str | None) -> list[tuple[str, Path]]:
    """The journal at a path, or the shards below it, each with its name on the hub."""
    path = path.absolute()
    if REAL_DISK.is_directory(path / _SEGMENTS):
        found = [(path.name if name is None else name, path)]
    elif REAL_DISK.is_directory(path):
        shards = find_shards(REAL_DISK, path)
        found = [(shard.name if name is None else f"{name}.{shard.name}", shard.path) for shard in shards]
    else:
        found = []
    if not found:
        raise NotFound(f"{path}: there is no sej journal here")
    for journal, directory in found:
        try:
            check_journal(journal)
        except WrongUse as error:
            raise WrongUse(f"{directory} needs another name on the hub: {error}") from None
    return found


class _TotalProgress:
    """The progress of several journals as one."""

    def __init__(self, report: Total | None) -> None:
        self._report = report
        self._done = 0
        self._totals: dict[str, int] = {}

    def of(self, journal: str) -> Callable[[int, int], None] | None:
        """The progress function of one journal."""
        if self._report is None:
            return None
        report = self._report

        def note(more_bytes: int, total_bytes: int) -> None:
            self._done += more_bytes
            self._totals[journal] = total_bytes
            total = max(self._done, sum(self._totals.values()))
            report(self._done, total)

        return note


@with_named_options
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
    finished: Callable[[Sent], None] | None = None,
    failed: Callable[[LogwrightError], None] | None = None,
) -> list[Sent]:
    """Copy a journal, or every shard below a root, to a hub. With `follow` until cancelled, including new shards.

    `in_flight` is the most unanswered requests of all journals together. `finished` is called with the result of each
    journal when it is done, cancelled, or has failed, unless no hub answered. A journal that fails does not stop the
    others: `failed` is called with the error, which is raised when all others have ended.
    """
    path, together = Path(path), _TotalProgress(progress)
    async with HubClient(access, client) as hub, _Upload(in_flight, failed) as upload:
        options = {"request_bytes": request_bytes, "patience_seconds": patience_seconds}

        async def send(sender: Sender) -> Sent:
            try:
                return await sender.run(follow=follow)
            finally:
                if finished is not None and sender.reached:
                    finished(sender.sent)

        while True:
            for journal, directory in await asyncio.to_thread(named_journals, path, name):
                if journal not in upload.tasks:
                    segments = directory / _SEGMENTS
                    watch = upload.watched(segments) if follow else None
                    more: dict[str, Any] = {**options, "progress": together.of(journal), "watch": watch}
                    upload.start(Sender(hub, directory, journal, upload.scheduler, **more), segments, send)
            await upload.wait(_NEW_SHARDS_SECONDS if follow else None)
            if upload.are_done:
                return upload.results()
