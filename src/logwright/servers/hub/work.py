"""Copying and restoring by path: one journal, or every shard below a root, each under its own name.

A journal is kept under the name of its directory, a shard under that of the shard's, or under `NAME.SHARD` when a name
is given; two roots of one client need one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from ...core.io.disk import REAL_DISK
from ...errors import LogwrightError, NotFound, WrongUse
from ...sej.files.shard import find_shards, parse_shard_name
from ...sej.model.copying import BATCH_BYTES
from . import restoring
from .access import Access
from .client import HubClient
from .names import check_journal
from .patience import PATIENCE_SECONDS, Patience
from .reminders import Reminders
from .restoring import Restored
from .senders import Senders
from .sending import Sender, Sent
from .turns import IN_FLIGHT

logger = logging.getLogger("logwright.hub")

_SEGMENTS: Final = "jnl"
_NEW_SHARDS_SECONDS: Final = 2.0
_MOST_NAMED: Final = 10
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


async def restore_path(
    access: Access,
    path: Path | str,
    *,
    client: str,
    name: str | None = None,
    all_shards: bool = False,
    patience_seconds: float = PATIENCE_SECONDS,
    progress: Callable[[int], None] | None = None,
) -> list[Restored]:
    """Write a journal from its copy on a hub; where the hub has shards of it instead, each of them below the path.

    It is the one of `name`, or of the directory's name. With `all_shards` it is those that were copied without a name.
    """
    path = Path(path).absolute()
    wanted = path.name if name is None else name
    async with HubClient(access, client) as hub:
        reminders = Reminders(logger)
        patience = Patience(hub, reminders, patience_seconds)
        there = await patience.through(hub.journals, lambda: 0)
        found = _chosen(there, None if all_shards else wanted, path)
        if not found:
            raise NotFound(f"{access.address}: {_what_is_there(there, None if all_shards else wanted, client)}")
        restored = []
        for journal, directory in found:
            done = Restored(journal, directory)
            patience = Patience(hub, reminders, patience_seconds)
            work = partial(restoring.restore, hub, done, progress=progress)
            restored.append(await patience.through(work, partial(getattr, done, "messages")))
        return restored


def _chosen(there: list[str], wanted: str | None, path: Path) -> list[tuple[str, Path]]:
    """What is to be restored of all that a hub has, and where to: a journal or its shards; None: shards of no name."""
    if wanted is not None and wanted in there:
        return [(wanted, path)]
    prefix = "" if wanted is None else f"{wanted}."
    shards = [journal.removeprefix(prefix) for journal in there if journal.startswith(prefix)]
    return [(prefix + shard, path / shard) for shard in shards if (parse_shard_name(shard) or ("", 0))[1] > 0]


def _what_is_there(there: list[str], wanted: str | None, client: str) -> str:
    """Why nothing was found, and what there is to choose from."""
    if not there:
        return f"the hub has nothing of a client {client}"
    missing = "shards without a name" if wanted is None else f"journal {wanted}"
    named = ", ".join(there[:_MOST_NAMED]) + (f" and {len(there) - _MOST_NAMED} more" if there[_MOST_NAMED:] else "")
    also = ", or all shards by --shards" if wanted is not None and _chosen(there, None, Path()) else ""
    return f"the hub has no {missing} of the client {client}, but {named}: choose by --name{also}"
