"""Unpark items of queues that no program has open.

Items that have failed too often are in another queue of the directory, by default `NAME_parked`. The items do not
record where they came from: the name of the queue shows it, or the caller names it.

Items move to the tail in batches. A batch is reserved in the parked queue, put and synced in its target, and then
confirmed in the parked queue. A crash loses no item. It may leave one batch in both queues, reserved in the parked
one: the next opening puts these items back with one more attempt. So a parked item with attempts may already be in the
target. `unpark` reports how many of these it finds there, and moves them nevertheless: items may be equal, and a
duplicate is better than a lost item.
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
    """Move the items of a queue, at most `most`, to the tail of another one, with their attempts reset.

    `to` is a queue of the same directory; by default the one whose items are parked under this name. Raises `Locked` if
    one of the two is open.
    """
    source, target = _places(Path(path), to, disk)
    if most is not None:
        check_count(most)
    with _opened(source, disk) as parked, _opened(target, disk) as queue:
        doubled = _count_doubled(parked.shelf.entries()[:most], queue)
        moved = queue.moving.take_from(parked, most)
        return Unparked(source, target, moved, parked.shelf.items, doubled)


def plan_unpark(
    path: Path | str, to: str | None = None, *, most: int | None = None, disk: Disk = REAL_DISK
) -> Unparked:
    """What `unpark` would do. Needs no lock, and changes nothing. Includes reserved items, which would be put back."""
    source, target = _places(Path(path), to, disk)
    if most is not None:
        check_count(most)
    reader = Reader(source, disk=disk)
    with reader.snapshot() as files:
        replay = Survey(reader, files).replay
        total = len(replay) + len(replay.open())
    items = total if most is None else min(total, most)
    return Unparked(source, target, items, total - items)


def _places(path: Path, to: str | None, disk: Disk) -> tuple[Path, Path]:
    """The paths of the parked queue and of its target. Both must exist."""
    if disk.is_directory(path) or not is_queue_name(path.name):
        raise WrongUse(f"{path} is not the journal of one queue: give its newest file, such as queues/orders_parked")
    queues = list_queues(disk, path.parent)
    if path.name not in queues:
        raise NotFound(f"{path}: there is no such queue")
    if to is None:
        to = _origin(path, queues)
    if to == path.name:
        raise WrongUse(f"{path}: items cannot move to the queue that they are parked in")
    if to not in queues:
        raise NotFound(f"{path.with_name(to) if is_queue_name(to) else repr(to)}: there is no such queue")
    return path, path.with_name(to)


def _origin(path: Path, queues: list[str]) -> str:
    """The queue whose items are parked at a path, by its name."""
    found = [queue for queue in queues if parked_name(queue) == path.name]
    if len(found) == 1:
        return found[0]
    several = f" ({' or '.join(found)})" if found else ""
    raise WrongUse(f"{path}: it is not known which queue these items came from{several}: name it with --to")


@contextlib.contextmanager
def _opened(path: Path, disk: Disk) -> Iterator[Engine]:
    handle = Handle(path.parent, path.name, Limits(), Settings(disk=disk, background=False)).open()
    try:
        yield handle.engine
    finally:
        handle.close()


def _count_doubled(parked: list[Entry], queue: Engine) -> int:
    """How many parked items with attempts are already in the target, by their data and time.

    They were put back at the head, so they are in memory.
    """
    doubtful = Counter(_identity(entry) for entry in parked if entry[3])
    found = 0
    if doubtful:
        for entry in queue.waiting_entries():
            identity = _identity(entry)
            if doubtful[identity] > 0:
                doubtful[identity] -= 1
                found += 1
    return found


def _identity(entry: Entry) -> tuple[bytes, int]:
    data, added, *_ = entry
    return data, added
