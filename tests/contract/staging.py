"""StagingSubject: a format as the contract tests of staging see it, and the batches that they stage and publish.

The subject defines what differs between formats: where rows go, what a root holds, which writers there are. A root of
these tests is empty, or holds what `make_journals` puts there (`none`); a batch of two tasks, `FIRST` and `SECOND`,
comes on top of that (`everything`). Both tasks have rows for every journal of the batch.

A format that only writes new journals gives the rows of another `batch` to other journals.
"""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from logwright.core.io.disk import Disk, OpenMode, RealDisk, RealFile
from logwright.core.publish.manifest import Batch
from logwright.core.publish.staging import publish, recover_staging
from tests.support.simulated_disk import SimulatedDisk

ROOT = Path("/target")
STAGING = ROOT / ".logwright" / "staging"
QUERY = Batch("query", 0)

Row: TypeAlias = tuple[Any, ...]
"""What becomes a record: the columns of the format's batches, in their order."""
Contents: TypeAlias = dict[str, list[Any]]
"""The records of every journal of a root that has any, by the names that `StagedFile.part` has."""


class StagingSubject(ABC):
    """A format that is written by staging."""

    name: ClassVar[str]
    target: Any
    most_states: ClassVar[int] = 16
    """At how many crash states of each operation the contract looks."""
    killed_stride: ClassVar[int] = 3
    killed_states: ClassVar[int] = 4
    """A power cut within the recovery is tried after every n-th operation, in this number of states each."""
    renames: ClassVar[bool] = True
    """Whether what one task alone has staged for a journal is put in place without a copy."""
    staged_syncs: ClassVar[tuple[str, ...]]
    """The staged files, by order and number, without whose sync a power cut does harm."""
    wrong_manifests: ClassVar[list[Callable[[dict[str, Any]], object]]] = []
    """Changes of a manifest that this format must refuse, besides those of every format."""
    strangers: ClassVar[tuple[str, ...]]
    """Names of journals that have nothing to do with a batch, and may be written at any time."""

    def __init__(self) -> None:
        self.first, self.second = self.rows(2, 8), self.rows(3, 6)
        self.none = self.before()
        self.everything = self.placed(self.none, self.first, self.second)
        self.alone = self.placed({}, self.first, self.second)

    # --- rows and what they become ----------------------------------------------------------------------------------

    @abstractmethod
    def rows(self, seed: int, count: int, batch: int = 0) -> list[Row]:
        """Rows, the same ones every time."""

    @abstractmethod
    def as_batch(self, rows: list[Row]) -> Any:
        """Rows as an Arrow batch."""

    @abstractmethod
    def before(self) -> Contents:
        """What `make_journals` puts into the root."""

    @abstractmethod
    def placed(self, before: Contents, *batches: list[Row]) -> Contents:
        """What a root holds, journals by name, once batches are published on top of what it had before."""

    @abstractmethod
    def contents(self, disk: Disk, root: Path = ROOT) -> Contents:
        """What a root holds. All of it must be sound."""

    # --- roots ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def make_journals(self, disk: SimulatedDisk) -> None:
        """Put some journals into the root."""

    def with_journals(self) -> SimulatedDisk:
        """A disk with some journals. They are made once: a copy of what is durable is as good as new."""
        return self._with_journals.copy()

    @cached_property
    def _with_journals(self) -> SimulatedDisk:
        disk = self.empty()
        self.make_journals(disk)
        disk.settle()
        return disk

    def empty(self) -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.make_directory(ROOT)
        disk.settle()
        return disk

    # --- writers ----------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def writers(self) -> list[Callable[[Disk, str, Any], None]]:
        """What opens a journal of the root for writing, appends a record like the one that is given, and closes it."""

    @abstractmethod
    def open_writer(self, disk: Disk, part: str) -> Any:
        """A writer of a journal of the root, open."""

    @property
    @abstractmethod
    def holders(self) -> list[tuple[str, Callable[[Disk], AbstractContextManager[Any]]]]:
        """Journals of the batch, each with an idle writer that locks it."""

    def bystander(self, disk: Disk) -> AbstractContextManager[Any]:
        """A writer of a journal that is no part of the batch."""
        return nullcontext()

    @abstractmethod
    def lock_path(self, part: str) -> Path:
        """The lock of a journal."""

    def target_of(self, part: str) -> Any:
        """A target that names this journal, where a target can."""
        return self.target

    # --- staging and publishing -------------------------------------------------------------------------------------

    def stage(self, disk: Disk, run: str, order: int, rows: list[Row], *, root: Path = ROOT, target: Any = None) -> Any:
        task = (target or self.target).stage(root, run, order, disk=disk)
        for start in range(0, len(rows), 7):
            task.append_batch(self.as_batch(rows[start : start + 7]))
        return task.finish()

    def stage_two(self, disk: Disk, run: str = "run") -> list[Any]:
        return [self.stage(disk, run, 1, self.second), self.stage(disk, run, 0, self.first)]

    def publish(self, disk: Disk, run: str, staged: list[Any], batch: Batch | None = None) -> Any:
        return publish(ROOT, run, staged, self.target, batch, disk=disk)

    def publish_two(self, disk: Disk, batch: Batch | None = QUERY, run: str = "run") -> Any:
        return self.publish(disk, run, self.stage_two(disk, run), batch)

    def published(self, disk: SimulatedDisk) -> SimulatedDisk:
        self.publish_two(disk)
        disk.mark("published")
        return disk

    def committed(self) -> SimulatedDisk:
        """A disk whose publisher was killed right after the commit."""
        return self._committed.copy()

    @cached_property
    def _committed(self) -> SimulatedDisk:
        disk = self.with_journals()
        self.publish_two(disk)
        for state in disk.process_kills(format=""):
            if state.exists(STAGING / "run.manifest"):
                return state.copy()
        raise AssertionError("no manifest was ever there")

    def recover(self, disk: Disk) -> Any:
        return recover_staging(ROOT, disk=disk)

    def check(self, state: SimulatedDisk, none: Contents | None = None, everything: Contents | None = None) -> None:
        """All or none after the recovery, and all once after the batch was tried again."""
        none = self.none if none is None else none
        everything = self.everything if everything is None else everything
        self.recover(state)
        found = self.contents(state)
        assert found in (none, everything), state.story
        if "published" in state.marks:
            assert found == everything, state.story
        left = state.list_directory(STAGING) if state.is_directory(STAGING) else []
        assert [name for name in left if name != "sink.lck"] == [], state.story
        self.publish_two(state, run="again")
        assert self.contents(state) == everything, state.story
        assert state.open_files == 0

    # --- batch after batch ------------------------------------------------------------------------------------------

    def batch_of(self, number: int) -> list[Row]:
        return self.rows(100 + number, 10, number)

    def publish_number(self, disk: Disk, root: Path, number: int) -> None:
        """One batch of a query, of two tasks."""
        rows, run = self.batch_of(number), f"run-{time.time_ns()}"
        staged = [self.stage(disk, run, order, rows[5 * order : 5 * order + 5], root=root) for order in (0, 1)]
        publish(root, run, staged, self.target, Batch("query", number), disk=disk)

    def publish_for_ever(self, root: Path, number: int) -> None:
        """The work of a process that is killed: it continues with the given batch, and reports each finished one."""
        for following in itertools.count(number):
            self.publish_number(PrintingDisk(), root, following)
            print(f"done {following}", flush=True)


class PrintingDisk(RealDisk):
    """The real disk, which prints each step before it."""

    def open(self, path: Path, mode: OpenMode) -> RealFile:
        print("open", flush=True)
        return super().open(path, mode)

    def rename(self, source: Path, target: Path) -> None:
        print("rename", flush=True)
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        print("remove", flush=True)
        super().remove(path)

    def sync_directory(self, path: Path) -> None:
        print("sync", flush=True)
        super().sync_directory(path)
