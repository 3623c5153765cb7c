"""Restore journals from their copies on a hub: the same bytes in the same files.

An existing journal is completed if its messages equal those of the copy, so an interrupted restore continues. Answers
name the segment of their messages; those of another program's hub do not, and then segments roll by size.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from ...core.io.disk import REAL_DISK, Disk
from ...core.options import with_named_options
from ...errors import DamagedJournal, NotFound
from ...sej.files.reader import Reader
from ...sej.files.shard import parse_shard_name
from ...sej.format import looks_like
from ...sej.model.copying import Batch, CopyWriter, find_difference
from .client import HubClient
from .client_access import Access
from .errors import Conflict
from .retry import PATIENCE_SECONDS, RateLimitedLog, Retry

logger = logging.getLogger("logwright.hub")

_MOST_NAMED: Final = 10
Progress = Callable[[int], None]
"""Called with the number of bytes received since the last call."""


@dataclass(slots=True)
class Restored:
    """The received messages. `next_offset` is the offset that the journal continues with."""

    journal: str
    directory: Path
    messages: int = 0
    bytes: int = 0
    next_offset: int = 0


async def restore(
    hub: HubClient, done: Restored, *, progress: Progress | None = None, disk: Disk = REAL_DISK
) -> Restored:
    """Write or complete a journal from its copy on a hub. On return all of it is on the disk.

    `done` names the journal and its directory, and counts the messages, also over several attempts.
    """
    journal = done.journal
    there = await asyncio.to_thread(_next_of, disk, done.directory)
    # The last message is requested again, to be compared.
    batch = await hub.get(journal, max(0, there - 1))
    writer = await asyncio.to_thread(_open, disk, done.directory, batch, there)
    try:
        while batch.count or batch.segment == writer.next_offset:
            new = await asyncio.to_thread(_without_present, disk, done.directory, batch, writer.next_offset)
            following = asyncio.ensure_future(hub.get(journal, batch.next_offset)) if batch.count else None
            try:
                await asyncio.to_thread(writer.write, new)
                done.messages += new.count
                done.bytes += len(new.frames)
                if progress is not None:
                    progress(len(new.frames))
            finally:
                arrived = None if following is None else await following
            if arrived is None:
                break
            batch = arrived
        done.next_offset = writer.next_offset
    finally:
        await asyncio.to_thread(writer.close)
    return done


def _next_of(disk: Disk, directory: Path) -> int:
    """The offset that a journal continues with, 0 if there is none."""
    if looks_like(disk, directory) is None:
        return 0
    with CopyWriter(directory, disk=disk) as writer:
        return writer.next_offset


def _open(disk: Disk, directory: Path, batch: Batch, there: int) -> CopyWriter:
    """The writer of the journal, which begins where the copy begins."""
    begins_later = not there and batch.lost_from is None and (batch.count > 0 or batch.segment is not None)
    first_offset = batch.first_offset if begins_later else 0
    writer = CopyWriter(directory, first_offset=first_offset, disk=disk)
    if writer.next_offset < batch.first_offset and batch.count and not batch.continues(writer.next_offset):
        expected = writer.next_offset
        writer.close()
        raise Conflict(
            f"{directory} continues with offset {expected}, but the copy begins with {batch.first_offset}", expected
        )
    return writer


def _without_present(disk: Disk, directory: Path, batch: Batch, expected: int) -> Batch:
    """The batch without the messages that the journal has, which must be equal."""
    if batch.first_offset > expected and not batch.continues(expected):
        raise DamagedJournal(directory, 0, f"the hub sent offset {batch.first_offset} where {expected} was expected")
    if batch.first_offset >= expected or not batch.count:
        return batch
    stop = min(expected, batch.next_offset)
    differs = find_difference(Reader(directory, disk=disk), batch, stop)
    if differs is not None:
        raise Conflict(f"{directory} and the copy have different messages at offset {differs}", expected)
    return batch.from_offset(stop)


@with_named_options
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
    """Write a journal from its copy on a hub; if the hub has shards of that name, write each of them below the path.

    The name is `name`, or that of the directory. `all_shards` selects the shards that were copied without a name.
    """
    path = Path(path).absolute()
    wanted = path.name if name is None else name
    async with HubClient(access, client) as hub:
        limited_log = RateLimitedLog(logger)
        retry = Retry(hub, limited_log, patience_seconds)
        there = await retry.run(hub.journals, lambda: 0)
        found = _chosen(there, None if all_shards else wanted, path)
        if not found:
            raise NotFound(f"{access.address}: {_not_found(there, None if all_shards else wanted, client)}")
        restored = []
        for journal, directory in found:
            done = Restored(journal, directory)
            retry = Retry(hub, limited_log, patience_seconds)
            work = partial(restore, hub, done, progress=progress)
            restored.append(await retry.run(work, partial(getattr, done, "messages")))
        return restored


def _chosen(there: list[str], wanted: str | None, path: Path) -> list[tuple[str, Path]]:
    """The journals to restore and their directories: one journal or its shards; None selects shards without a name."""
    if wanted is not None and wanted in there:
        return [(wanted, path)]
    prefix = "" if wanted is None else f"{wanted}."
    shards = [journal.removeprefix(prefix) for journal in there if journal.startswith(prefix)]
    return [(prefix + shard, path / shard) for shard in shards if (parse_shard_name(shard) or ("", 0))[1] > 0]


def _not_found(there: list[str], wanted: str | None, client: str) -> str:
    """The message if nothing was found, with the names that the hub has."""
    if not there:
        return f"the hub has no journals of the client {client}"
    missing = "shards without a name" if wanted is None else f"journal {wanted}"
    named = ", ".join(there[:_MOST_NAMED]) + (f" and {len(there) - _MOST_NAMED} more" if there[_MOST_NAMED:] else "")
    also = ", or all shards with --shards" if wanted is not None and _chosen(there, None, Path()) else ""
    return f"the hub has no {missing} of the client {client}; it has {named}: choose with --name{also}"
