"""StagingSubject: a format in the contract tests of staging, and the batches that they stage and publish.

The subject defines the differences between formats: the journal for a row, the contents of a root, the writers. A root
of these tests is empty, or has the journals of `make_journals` (`none`). A batch of two tasks, `FIRST` and `SECOND`, is
added to that (`everything`). Both tasks have rows for every journal of the batch.

A format that only writes new journals puts the rows of another `batch` into other journals.
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
"""The fields of a record: the columns of the format's batches, in their order."""
Contents: TypeAlias = dict[str, list[Any]]
"""The records of every non-empty journal of a root, by the names in `StagedFile.part`."""


class StagingSubject(ABC):
    """A format that is written by staging."""

    name: ClassVar[str]
    target: Any
    most_states: ClassVar[int] = 16
    """The number of crash states that are tried for each operation."""
    killed_stride: ClassVar[int] = 3
    killed_states: ClassVar[int] = 4
    """A power cut within the recovery is tried after every n-th operation, in this number of states each."""
    renames: ClassVar[bool] = True
    """Whether the file of a journal that only one task has staged is put in place without a copy."""
    staged_syncs: ClassVar[tuple[str, ...]]
    """The staged files, by order and number, that a power cut can damage if they are not synced."""
    wrong_manifests: ClassVar[list[Callable[[dict[str, Any]], object]]] = []
    """Changes of a manifest that this format must refuse, in addition to those of every format."""
    strangers: ClassVar[tuple[str, ...]]
    """Names of journals that are not part of a batch, and may be written at any time."""

    def __init__(self) -> None:
        self.first, self.second = self.rows(2, 8), self.rows(3, 6)
        self.none = self.before()
        self.everything = self.placed(self.none, self.first, self.second)
        self.alone = self.placed({}, self.first, self.second)

    # --- rows and what they become ----------------------------------------------------------------------------------

    @abstractmethod
    def rows(self, seed: int, count: int, batch: int = 0) -> list[Row]:
        """Rows, the same every time."""

    @abstractmethod
    def as_batch(self, rows: list[Row]) -> Any:
        """Rows as an Arrow batch."""

    @abstractmethod
    def before(self) -> Contents:
        """The contents of `make_journals`."""

    @abstractmethod
    def placed(self, before: Contents, *batches: list[Row]) -> Contents:
        """The contents of a root, journals by name, after batches were added to the earlier contents."""

    @abstractmethod
    def contents(self, disk: Disk, root: Path = ROOT) -> Contents:
        """The contents of a root. All of it must be sound."""

    # --- roots ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def make_journals(self, disk: SimulatedDisk) -> None:
        """Put some journals into the root."""

    def with_journals(self) -> SimulatedDisk:
        """A disk with some journals. They are made once; later calls return a copy of the durable contents."""
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
        """A function that opens a journal of the root for writing, appends a record like the given one, and closes."""

    @abstractmethod
    def open_writer(self, disk: Disk, part: str) -> Any:
        """An open writer of a journal of the root."""

    @property
    @abstractmethod
    def holders(self) -> list[tuple[str, Callable[[Disk], AbstractContextManager[Any]]]]:
        """Journals of the batch, each with an idle writer that locks it."""

    def bystander(self, disk: Disk) -> AbstractContextManager[Any]:
        """A writer of a journal that is not part of the batch."""
        return nullcontext()

    @abstractmethod
    def lock_path(self, part: str) -> Path:
        """The lock of a journal."""

    def target_of(self, part: str) -> Any:
        """A target that names this journal, if a target can."""
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
        """All or none after the recovery, and all of it once after the batch was tried again."""
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
    """The real disk, which prints each step before it is done."""

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
