"""The sink `trapped`: the sink of sej, with a trap before a step of its commit on the disk.

`trapped_queues` is the sink of kestrel with such a trap, `trapped_stores` that of versioned. Options, besides those of
the format:

    trapBatch       the batch whose commit has the trap; -1 for a table
    trapStep        a regular expression for the step, for instance `rename .*manifest`; steps are the changes `create`,
                    `write`, `truncate`, `rename` and `remove` with the name of the file
    trapNumber      the trap is before the n-th step of this kind; after all of them if there are fewer
    trap            kill: ends the processes `victims` and this one; fill: fills the file system
    victims         process ids, separated by commas
    report          a file for the steps, one per line, written when the commit has ended

`limited` is the sink of sej in whose tasks no file may become larger than `fileLimit` bytes.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from logwright.core.io.disk import Buffer, File, OpenMode, RealDisk
from logwright.spark.options import folded
from logwright.spark.sink import JournalStreamWriter, JournalWriter, TaskDone
from logwright.spark.source import JournalSource, KestrelSource, SejSource, VersionedSource


class TrappedFile:
    """A file that reports each step to its disk."""

    def __init__(self, file: File, disk: TrappedDisk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write_at(self, position: int, data: Buffer) -> int:
        self._disk.step("write", self._file.path)
        return self._file.write_at(position, data)

    def truncate(self, size: int) -> None:
        self._disk.step("truncate", self._file.path)
        self._file.truncate(size)


class TrappedDisk(RealDisk):
    """The real disk with a trap before one of its steps."""

    def __init__(self, options: dict[str, str], root: Path) -> None:
        self.options = options
        self.root = root
        self.steps: list[str] = []
        self.number = int(options.get("trapnumber", "0"))

    def step(self, kind: str, path: Path) -> None:
        self.steps.append(f"{kind} {path.name}")
        if re.fullmatch(self.options.get("trapstep", ""), self.steps[-1]):
            self.number -= 1
            if self.number == 0:
                self.spring()

    def spring(self) -> None:
        if self.options["trap"] == "fill":
            fill(self.root)
            return
        for victim in filter(None, self.options.get("victims", "").split(",")):
            os.kill(int(victim), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def finish(self) -> None:
        if self.number > 0:
            self.spring()
        if "report" in self.options:
            Path(self.options["report"]).write_text("".join(f"{step}\n" for step in self.steps))

    def open(self, path: Path, mode: OpenMode) -> Any:
        if mode == "create":
            self.step("create", path)
        file = super().open(path, mode)
        return file if mode == "read" else TrappedFile(file, self)

    def rename(self, source: Path, target: Path) -> None:
        self.step("rename", target)
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self.step("remove", path)
        super().remove(path)


def fill(root: Path) -> None:
    """Fill a file system completely, with the file `filler`."""
    descriptor = os.open(root / "filler", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with contextlib.suppress(OSError):
        while True:
            os.write(descriptor, bytes(4096))
    os.close(descriptor)


OURS = frozenset({"trapbatch", "trapstep", "trapnumber", "trap", "victims", "report", "filelimit"})


def of_format(options: dict[str, str]) -> dict[str, str]:
    """The options of the format, without our own."""
    return {name: value for name, value in options.items() if name not in OURS}


class TrappedStreamWriter(JournalStreamWriter):
    def __init__(self, schema: StructType, options: dict[str, str], format: str | None, overwrite: bool) -> None:
        super().__init__(schema, of_format(options), format, overwrite)
        self.options = options

    def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803 - Spark's name
        if batchId != int(self.options.get("trapbatch", "-1")):
            super().commit(messages, batchId)
            return
        self.disk = trap = TrappedDisk(self.options, self.root)
        super().commit(messages, batchId)
        trap.finish()


class TrappedWriter(JournalWriter):
    def __init__(self, schema: StructType, options: dict[str, str], format: str | None, overwrite: bool) -> None:
        super().__init__(schema, of_format(options), format, overwrite)
        self.options = options

    def commit(self, messages: Any) -> None:
        self.disk = trap = TrappedDisk(self.options, self.root)
        super().commit(messages)
        trap.finish()


class LimitedWriter(JournalWriter):
    def __init__(self, schema: StructType, options: dict[str, str], overwrite: bool) -> None:
        super().__init__(schema, of_format(options), "sej", overwrite)
        self.limit_bytes = int(options["filelimit"])

    def write(self, iterator: Iterator[Any]) -> TaskDone:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit_bytes, hard))
        try:
            return super().write(iterator)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Trapped(JournalSource):
    """A source whose writers have traps."""

    def writer(self, schema: StructType, overwrite: bool) -> JournalWriter:
        return TrappedWriter(schema, folded(self.options), self.format, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> JournalStreamWriter:  # noqa: N802 - Spark's name
        return TrappedStreamWriter(schema, folded(self.options), self.format, overwrite)


class TrappedSource(Trapped, SejSource):
    @classmethod
    def name(cls) -> str:
        return "trapped"


class TrappedQueueSource(Trapped, KestrelSource):
    @classmethod
    def name(cls) -> str:
        return "trapped_queues"


class TrappedStoreSource(Trapped, VersionedSource):
    @classmethod
    def name(cls) -> str:
        return "trapped_stores"


class LimitedSource(SejSource):
    @classmethod
    def name(cls) -> str:
        return "limited"

    def writer(self, schema: StructType, overwrite: bool) -> JournalWriter:
        return LimitedWriter(schema, folded(self.options), overwrite)
