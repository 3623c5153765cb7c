"""Restoring a journal from its copy on a hub: the same bytes, in the same files.

A journal that is there already is completed, if what it has is the same: so an interrupted restore goes on where it
was. Every answer says which segment its messages are of, where the hub is one of ours; else segments roll by size.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...core.io.disk import REAL_DISK, Disk
from ...errors import DamagedJournal
from ...sej.files.reader import Reader
from ...sej.model.copying import Batch, CopyWriter, find_difference
from ...sej.model.journal import looks_like
from .client import HubClient
from .errors import Conflict

Progress = Callable[[int], None]
"""Told how many bytes have come since the last time."""


@dataclass(slots=True)
class Restored:
    """What came from the hub. `next_offset` is where the journal goes on."""

    journal: str
    directory: Path
    messages: int = 0
    bytes: int = 0
    next_offset: int = 0


async def restore(
    hub: HubClient, done: Restored, *, progress: Progress | None = None, disk: Disk = REAL_DISK
) -> Restored:
    """Write a journal, or what it lacks, from the copy that a hub has of it. All of it is on the disk at the end.

    `done` says which and where to, and is told how much has come: more, if it is tried again after a failure.
    """
    journal = done.journal
    there = await asyncio.to_thread(_next_of, disk, done.directory)
    # The last message is asked for once more, to be compared.
    batch = await hub.get(journal, max(0, there - 1))
    writer = await asyncio.to_thread(_open, disk, done.directory, batch, there)
    try:
        while batch.count or batch.segment == writer.next_offset:
            new = await asyncio.to_thread(_behind, disk, done.directory, batch, writer.next_offset)
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
    """Where a journal goes on, 0 when there is none."""
    if looks_like(disk, directory) is None:
        return 0
    with CopyWriter(directory, disk=disk) as writer:
        return writer.next_offset


def _open(disk: Disk, directory: Path, batch: Batch, there: int) -> CopyWriter:
    """The journal's writer: it begins where the copy does."""
    begins_later = not there and batch.lost_from is None and (batch.count > 0 or batch.segment is not None)
    first_offset = batch.first_offset if begins_later else 0
    writer = CopyWriter(directory, first_offset=first_offset, disk=disk)
    if writer.next_offset < batch.first_offset and batch.count and not batch.continues(writer.next_offset):
        expected = writer.next_offset
        writer.close()
        raise Conflict(
            f"{directory} goes on with offset {expected}, and the copy has only {batch.first_offset} on", expected
        )
    return writer


def _behind(disk: Disk, directory: Path, batch: Batch, expected: int) -> Batch:
    """A batch without what is there already, which must be the same."""
    if batch.first_offset > expected and not batch.continues(expected):
        raise DamagedJournal(directory, 0, f"the hub sent offset {batch.first_offset} where {expected} was expected")
    if batch.first_offset >= expected or not batch.count:
        return batch
    stop = min(expected, batch.next_offset)
    differs = find_difference(Reader(directory, disk=disk), batch, stop)
    if differs is not None:
        raise Conflict(f"{directory} has another message of offset {differs} than the copy", expected)
    return batch.behind(stop)
