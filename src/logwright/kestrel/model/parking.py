"""Putting parked items back from outside, on the files of queues that no program has open.

An item that has failed too often is in another queue of the directory, by default `NAME_parked`. Nothing in it says
where it came from, so the name says it; where it does not, the caller must.

Items go to the tail in batches. Each is reserved where it is parked, put and made durable where it goes, and only then
finished where it was. A crash in between loses none of them. It leaves one batch in both queues, reserved where it was
parked: the next opening puts them back with one more attempt. So a parked item with attempts may be in the
other queue already, and `unpark` says how many of these it finds there. It puts them back all the same: two items can
be alike, and one too many is better than one too few.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ...core.format import Unparked
from ...core.io.disk import REAL_DISK, Disk
from ...errors import NotFound, WrongUse
from ..bytes.layout import is_queue_name, parked_name
from ..files.files import list_queues
from ..files.reader import Reader
from ..files.survey import Survey
from .engine import Engine
from .limits import Limits, check_count
from .open_queues import Handle, Settings
from .shelf import Entry


def unpark(path: Path | str, to: str | None = None, *, most: int | None = None, disk: Disk = REAL_DISK) -> Unparked:
    """Put the items of a queue, at most `most`, back to the tail of another one, with no attempts counted.

    `to` is a queue of the same directory; without it the one whose items are parked under this name. `Locked` when
    one of the two is open.
    """
    source, target = _places(Path(path), to, disk)
    if most is not None:
        check_count(most)
    with _opened(source, disk) as parked, _opened(target, disk) as queue:
        doubled = _count_doubled(parked.shelf.entries()[:most], queue)
        moved = queue.moving.take_over(parked, most)
        return Unparked(source, target, moved, parked.shelf.items, doubled)


def plan_unpark(
    path: Path | str, to: str | None = None, *, most: int | None = None, disk: Disk = REAL_DISK
) -> Unparked:
    """What `unpark` would do. Needs no lock and changes nothing; what is reserved counts, as it would come back."""
    source, target = _places(Path(path), to, disk)
    if most is not None:
        check_count(most)
    reader = Reader(source, disk=disk)
    with reader.snapshot() as files:
        replay = Survey(reader, files).replay
        there = len(replay) + len(replay.open())
    items = there if most is None else min(there, most)
    return Unparked(source, target, items, there - items)


def _places(path: Path, to: str | None, disk: Disk) -> tuple[Path, Path]:
    """Where the items are, and where they go. Both queues must be there."""
    if disk.is_directory(path) or not is_queue_name(path.name):
        raise WrongUse(f"{path} is not the journal of one queue: give its newest file, such as queues/orders_parked")
    queues = list_queues(disk, path.parent)
    if path.name not in queues:
        raise NotFound(f"{path}: there is no such queue")
    if to is None:
        to = _origin(path, queues)
    if to == path.name:
        raise WrongUse(f"{path}: items cannot go back to the queue that they are parked in")
    if to not in queues:
        raise NotFound(f"{path.with_name(to) if is_queue_name(to) else repr(to)}: there is no such queue")
    return path, path.with_name(to)


def _origin(path: Path, queues: list[str]) -> str:
    """The queue whose items are parked here, by its name."""
    found = [queue for queue in queues if parked_name(queue) == path.name]
    if len(found) == 1:
        return found[0]
    several = f" (it may be {' or '.join(found)})" if found else ""
    raise WrongUse(f"{path}: nothing says which queue these items came from{several}: name it, by --to")


@contextlib.contextmanager
def _opened(path: Path, disk: Disk) -> Iterator[Engine]:
    handle = Handle(path.parent, path.name, Limits(), Settings(disk=disk, background=False)).open()
    try:
        yield handle.engine
    finally:
        handle.close()


def _count_doubled(parked: list[Entry], queue: Engine) -> int:
    """How many items that were on their way before are in the other queue, by their data and their time.

    What was put back is at the head, so it is among those in memory.
    """
    doubtful = Counter(_mark(entry) for entry in parked if entry[3])
    found = 0
    if doubtful:
        for entry in queue.waiting_entries():
            mark = _mark(entry)
            if doubtful[mark] > 0:
                doubtful[mark] -= 1
                found += 1
    return found


def _mark(entry: Entry) -> tuple[bytes, int]:
    data, added, *_ = entry
    return data, added
