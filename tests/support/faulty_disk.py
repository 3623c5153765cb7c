"""FaultyDisk: passes every call to another disk, and fails the k-th one.

    for disk in failing_calls(make_disk, error=errno.ENOSPC):
        try:
            work(disk)
        except StorageFailed:
            ...
        check(disk.inner)

`make_disk` returns a new disk for each round. The k-th round fails the k-th call, and the loop ends after the first
round in which nothing failed. Every call that reaches the file system counts, including reading and closing; `only`
restricts the count and the failure to some kinds of calls.

The disk behaves like a real system: closing a file closes it even if it reports an error, and a full disk first writes
a part of the data and reports the error at the next write (`partial`). Two faults are not errors. With `SHORT_WRITE`
the k-th write writes less than requested, as any write may. With `FORGOTTEN` the k-th sync is silently not done. That
is a negative control: a test of crash safety must detect it (`forgotten_syncs`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any, Final, Generic, NamedTuple, TypeVar

from logwright.core.io.disk import Buffer, Disk, File, OpenMode
from logwright.core.io.watch import Watch
from logwright.errors import StorageFailed
from tests.support.counts import COUNTS
from tests.support.replay import each

SomeDisk = TypeVar("SomeDisk", bound=Disk)

SHORT_WRITE: Final = 0
"""The "error" of a write that writes less than requested."""
FORGOTTEN: Final = -1
"""The "error" of a sync that is not done, and reports success."""

READS: Final = frozenset({"open", "read", "stat", "list"})
WRITES: Final = frozenset({"write"})
SYNCS: Final = frozenset({"sync", "sync directory"})
RENAMES: Final = frozenset({"rename"})
NAMES: Final = frozenset({"create", "create directory", "rename", "remove", "sync directory"})
NEEDS_SPACE: Final = frozenset({"write", "create", "create directory", "rename"})
"""The calls that a full disk refuses; reading, truncating and removing still work."""
KINDS: Final = READS | WRITES | SYNCS | NAMES | {"truncate", "lock", "close"}


class Fault(NamedTuple):
    """The failure of the k-th call: which error, for how long, and for which kinds of calls."""

    error: int = errno.EIO
    forever: bool = False
    partial: bool = False
    only: frozenset[str] = KINDS

    def __str__(self) -> str:
        error = {SHORT_WRITE: "short write", FORGOTTEN: "forgotten"}.get(self.error) or errno.errorcode[self.error]
        words = [error, "forever" if self.forever else "once"]
        if self.partial:
            words.append("partial")
        if self.only != KINDS:
            words.append(f"only {'/'.join(sorted(self.only))}")
        return " ".join(words)


FAULTS: Final = (
    Fault(errno.EIO),
    Fault(errno.EIO, forever=True),
    Fault(errno.EIO, partial=True, only=WRITES),
    Fault(errno.EIO, only=SYNCS),
    Fault(errno.ENOSPC, partial=True, only=NEEDS_SPACE),
    Fault(errno.ENOSPC, forever=True, partial=True, only=NEEDS_SPACE),
    Fault(SHORT_WRITE, only=WRITES),
    Fault(SHORT_WRITE, forever=True, only=WRITES),
)
"""The faults that a thorough test tries with `every_fault`."""


def failing_calls(
    make_disk: Callable[[], SomeDisk],
    *,
    error: int = errno.EIO,
    forever: bool = False,
    partial: bool = False,
    only: Iterable[str] = KINDS,
    format: str = "core",
) -> Iterator[FaultyDisk[SomeDisk]]:
    """A new disk for each k = 1, 2, … whose k-th call fails, until a round in which no call failed."""
    return every_fault(make_disk, [Fault(error, forever, partial, frozenset(only))], format=format)


def every_fault(
    make_disk: Callable[[], SomeDisk], faults: Iterable[Fault] = FAULTS, *, format: str = "core"
) -> Iterator[FaultyDisk[SomeDisk]]:
    """The rounds of `failing_calls` for each fault in turn. Each round that passes is counted."""
    for disk in each(_rounds(make_disk, faults)):
        yield disk
        if disk.failures and format:
            COUNTS.add("k-th call fails", 1, format)


def forgotten_syncs(make_disk: Callable[[], SomeDisk], only: Iterable[str] = SYNCS) -> Iterator[FaultyDisk[SomeDisk]]:
    """A new disk for each sync of a run, on which that sync is silently not done; `failed` names it."""
    return every_fault(make_disk, [Fault(FORGOTTEN, only=frozenset(only))], format="")


def _rounds(make_disk: Callable[[], SomeDisk], faults: Iterable[Fault]) -> Iterator[tuple[str, FaultyDisk[SomeDisk]]]:
    for fault in faults:
        fail_at = 1
        while True:
            disk = FaultyDisk(make_disk(), fail_at, *fault)
            yield f"call {fail_at} {fault}", disk
            if disk.calls < fail_at:
                break
            fail_at += 1


class FaultyDisk(Generic[SomeDisk]):
    """A `Disk` whose `fail_at`-th call fails; with 0, no call fails.

    `calls` counts the calls of the kinds in `only`, `failures` those that failed or were short; `failed` names the
    first of them.
    """

    def __init__(
        self,
        inner: SomeDisk,
        fail_at: int = 0,
        error: int = errno.EIO,
        forever: bool = False,
        partial: bool = False,
        only: Iterable[str] = KINDS,
    ) -> None:
        self.inner = inner
        self.calls = 0
        self.failures = 0
        self.failed = ""
        self._fail_at = fail_at
        self._error = error
        self._forever = forever
        self._partial = partial
        self._only = frozenset(only)
        self._owed_to: FaultyFile | None = None
        unknown = self._only - KINDS
        if unknown:
            raise ValueError(f"{', '.join(sorted(unknown))}: known are {', '.join(sorted(KINDS))}")
        if error == FORGOTTEN and not self._only <= SYNCS:
            raise ValueError("only a sync can be forgotten")

    @property
    def story(self) -> str:
        """The failures so far, in words."""
        return f"{self.failures} of {self.calls} calls failed, the first one: {self.failed or 'none'}"

    # the Disk protocol

    def open(self, path: Path, mode: OpenMode) -> FaultyFile:
        creates = mode == "create" or (mode == "update" and not self.inner.exists(path))
        self.reach("create" if creates else "open", path)
        return FaultyFile(self, self.inner.open(path, mode))

    def list_directory(self, path: Path) -> list[str]:
        self.reach("list", path)
        return self.inner.list_directory(path)

    def is_directory(self, path: Path) -> bool:
        self.reach("stat", path)
        return self.inner.is_directory(path)

    def is_link(self, path: Path) -> bool:
        self.reach("stat", path)
        return self.inner.is_link(path)

    def exists(self, path: Path) -> bool:
        self.reach("stat", path)
        return self.inner.exists(path)

    def file_size(self, path: Path) -> int:
        self.reach("stat", path)
        return self.inner.file_size(path)

    def identity(self, path: Path) -> tuple[int, int] | None:
        self.reach("stat", path)
        return self.inner.identity(path)

    def make_directory(self, path: Path) -> None:
        self.reach("create directory", path)
        self.inner.make_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        self.reach("rename", source)
        self.inner.rename(source, target)

    def remove(self, path: Path) -> None:
        self.reach("remove", path)
        self.inner.remove(path)

    def remove_directory(self, path: Path) -> None:
        self.reach("remove", path)
        self.inner.remove_directory(path)

    def sync_directory(self, path: Path) -> None:
        if self.reach("sync directory", path):
            self.inner.sync_directory(path)

    def free_bytes(self, path: Path) -> int:
        self.reach("stat", path)
        return self.inner.free_bytes(path)

    def watch(self, path: Path) -> Watch:
        return self.inner.watch(path)  # falls back to polling by itself and never fails

    # counting and failing

    def reach(self, kind: str, path: PurePath) -> bool:
        """Count a call, and fail if it is its turn; False if the call is to be skipped."""
        if not self._is_due(kind) or self._error == SHORT_WRITE:
            return True
        if self._error == FORGOTTEN:
            self._remember(kind, path)
            return False
        raise self._failure(kind, path)

    def reach_write(self, file: FaultyFile, size: int) -> int:
        """Count a write; the number of bytes to write before it ends, or the failure."""
        if self._owed_to is file:  # the preceding write was short because of this error
            self._owed_to = None
            raise self._failure("write", file.path)
        if not self._is_due("write"):
            return size
        part = size // 2
        if self._error == SHORT_WRITE:
            if part:
                self._remember("write", file.path)
            return part or size
        if not self._partial or not part or self._owed_to is not None:
            raise self._failure("write", file.path)
        self._owed_to = file
        return part

    def _is_due(self, kind: str) -> bool:
        if kind not in self._only:
            return False
        self.calls += 1
        return bool(self._fail_at) and (self.calls == self._fail_at or (self._forever and self.calls > self._fail_at))

    def _failure(self, kind: str, path: PurePath) -> StorageFailed:
        self._remember(kind, path)
        return StorageFailed(kind, path, OSError(self._error, os.strerror(self._error)))

    def _remember(self, kind: str, path: PurePath) -> None:
        self.failures += 1
        self.failed = self.failed or f"{kind} {path}"


class FaultyFile:
    """A file of a `FaultyDisk`."""

    def __init__(self, disk: FaultyDisk[Any], inner: File) -> None:
        self.path = inner.path
        self._disk = disk
        self._inner = inner

    def read_at(self, position: int, size: int) -> bytes:
        self._disk.reach("read", self.path)
        return self._inner.read_at(position, size)

    def read_into(self, position: int, buffer: memoryview) -> int:
        self._disk.reach("read", self.path)
        return self._inner.read_into(position, buffer)

    def write_at(self, position: int, data: Buffer) -> int:
        size = self._disk.reach_write(self, len(data))
        return self._inner.write_at(position, memoryview(data)[:size])

    def truncate(self, size: int) -> None:
        self._disk.reach("truncate", self.path)
        self._inner.truncate(size)

    def size(self) -> int:
        self._disk.reach("stat", self.path)
        return self._inner.size()

    def identity(self) -> tuple[int, int]:
        self._disk.reach("stat", self.path)
        return self._inner.identity()

    def has_name(self) -> bool:
        self._disk.reach("stat", self.path)
        return self._inner.has_name()

    def sync(self) -> None:
        if self._disk.reach("sync", self.path):
            self._inner.sync()

    def lock(self) -> None:
        self._disk.reach("lock", self.path)
        self._inner.lock()

    def close(self) -> None:
        self._inner.close()
        self._disk.reach("close", self.path)
