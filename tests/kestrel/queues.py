"""Shared by the tests of the queue: a clock that is set, a gate for syncs, the journal as a list of names."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from logwright.core.io.disk import REAL_DISK, Disk
from logwright.kestrel.files.reader import Reader
from tests.support.threads import DEADLINE_SECONDS


class Clock:
    """A clock that returns the time that it was set to, in seconds since the epoch."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def journal_of(path: Path, disk: Disk = REAL_DISK) -> list[str]:
    """The operations of a queue's journal, each as its name with its id and data."""
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
    """All items that can be read."""
    while (data := queue.get()) is not None:  # type: ignore[attr-defined]
        yield data


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true; fail at the deadline."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it does not come about"
        pause.wait(0.001)


class Gate:
    """A disk on which syncs of queues' newest files wait until the gate is open; `arrived` is set when one does.

    `syncs` counts them.
    """

    def __init__(self, inner: Disk = REAL_DISK) -> None:
        self.arrived = threading.Event()
        self.opened = threading.Event()
        self.syncs = 0
        self._inner = inner

    def open(self, path: Path, mode: Any) -> Any:
        file = self._inner.open(path, mode)
        return _GatedFile(self, file) if mode in ("update", "create") and path.parent.name != ".logwright" else file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _GatedFile:
    def __init__(self, gate: Gate, inner: Any) -> None:
        self._gate = gate
        self._inner = inner

    def sync(self) -> None:
        self._gate.syncs += 1
        self._gate.arrived.set()
        assert self._gate.opened.wait(DEADLINE_SECONDS)
        self._inner.sync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
