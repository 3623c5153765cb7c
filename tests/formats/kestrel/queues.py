"""What the tests of the queue share: a clock that stands still, and the journal of a queue as a list of names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from logwright.core.disk import REAL_DISK, Disk
from logwright.formats.kestrel.reader import Reader


class Clock:
    """Tells the time that it was set to, in seconds since the epoch."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def journal_of(path: Path, disk: Disk = REAL_DISK) -> list[str]:
    """The operations of a queue's journal, each as its name and what it has of id and data."""
    return [
        " ".join(
            [operation.op]
            + ([str(operation.xid)] if operation.xid is not None else [])
            + ([operation.data.decode()] if operation.data is not None else [])
        )
        for operation in Reader(path, disk=disk)
    ]


def files_of(path: Path) -> list[str]:
    """The files of a queue."""
    return sorted(file.name for file in path.parent.iterdir() if file.name.split(".")[0].split("~")[0] == path.name)


def drained(queue: object) -> Iterator[bytes]:
    """All that can be got."""
    while (data := queue.get()) is not None:  # type: ignore[attr-defined]
        yield data
