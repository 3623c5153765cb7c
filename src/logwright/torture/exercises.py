"""Exercise: a writer that is killed, and what must be there afterwards.

An exercise has two sides. `use` runs in the process that is killed: it writes through the public classes, and sends a
report at each acknowledgement. An `Expectation` stays with the process that kills: it gets the reports, and checks the
files. Records are a function of a seed and a number, so both sides know them.

What an acknowledgement is depends on the sync policy and on the fault:

    always                  the call has returned
    interval, none; kill    the call has returned; where a writer buffers records, `flush` has returned
    interval; power cut     `sync` has returned
"""

from __future__ import annotations

import hashlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias

from ..core.io.disk import Disk
from ..core.read.report import Report
from ..errors import NotFound

Acknowledged: TypeAlias = Literal["return", "flush", "sync"]
"""The call after whose return a record counts as acknowledged: the one that wrote it, `flush` or `sync`."""
Send: TypeAlias = Callable[[list[Any]], None]
BATCH: Final = 4
"""The number of records for each `flush` or `sync`, where these acknowledge."""


class Wrong(Exception):
    """Records were found that were not written, or not in this form, number or order."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a process writes: where, from which record on, and what acknowledges it. `seed` determines the rest."""

    home: Path
    seed: int
    policy: str
    acknowledged: Acknowledged
    start: Any = 0


@dataclass(slots=True)
class Settled:
    """What a check has found: the number of compared records, and of acknowledged ones that are missing."""

    checked: int
    lost: int = 0
    problems: list[str] = field(default_factory=list)


class Expectation(ABC):
    """What must be in one journal, according to the reports of its writers."""

    acknowledged = 0
    """The number of acknowledged records, calls, changes or transactions."""

    @property
    @abstractmethod
    def start(self) -> Any:
        """Where the next writer begins: `Task.start`."""

    @abstractmethod
    def hear(self, report: list[Any], *, counts: bool = True) -> None:
        """Take a report. It does not count as an acknowledgement if it came after a power cut."""

    @abstractmethod
    def settle(self, home: Path) -> Settled:
        """Check the files that a killed writer left: first without a change, then by opening them for writing.

        Raises `Wrong` or a `LogwrightError` if it finds records that were never written.
        """


class Exercise(ABC):
    """One kind of writer. It is sent to the process that is killed, so it has no state."""

    format: ClassVar[str]
    buffers: ClassVar[bool] = False
    """Whether a record is acknowledged by `flush` only, unless it is synced."""

    @abstractmethod
    def use(self, task: Task, disk: Disk, send: Send) -> None:
        """Open the journal, and write until the process is killed."""

    @abstractmethod
    def expect(self, task: Task) -> Expectation:
        """The expectation of a new journal."""


# --- numbered records -------------------------------------------------------------------------------------------------


class Opened(Protocol):
    """A journal that is open for writing."""

    def flush(self) -> None: ...

    def sync(self) -> None: ...


class Numbered(Exercise):
    """A writer of numbered records, one after the other."""

    @abstractmethod
    def open(self, task: Task, disk: Disk) -> Opened:
        """Open the journal for writing; create it if it does not exist."""

    @abstractmethod
    def write(self, journal: Any, task: Task, number: int) -> None:
        """Write the record of a number."""

    @abstractmethod
    def verify(self, home: Path) -> Report: ...

    @abstractmethod
    def count(self, home: Path, task: Task) -> int:
        """The number of records. Raises `Wrong` unless they are the first ones, in order."""

    @abstractmethod
    def recount(self, home: Path, task: Task, count: int) -> None:
        """Open the journal for writing, and close it. Raises `Wrong` unless it still has `count` records."""

    def use(self, task: Task, disk: Disk, send: Send) -> None:
        journal = self.open(task, disk)
        send(["open"])
        for number in itertools.count(task.start):
            self.write(journal, task, number)
            if task.acknowledged != "return":
                if (number + 1) % BATCH:
                    continue
                journal.flush() if task.acknowledged == "flush" else journal.sync()
            send(["done", number + 1])

    def expect(self, task: Task) -> Expectation:
        return _Count(self, task)


class _Count(Expectation):
    def __init__(self, exercise: Numbered, task: Task) -> None:
        self._exercise = exercise
        self._task = task
        self._there = self._reported = 0

    @property
    def start(self) -> int:
        return self._there

    def hear(self, report: list[Any], *, counts: bool = True) -> None:
        if report[0] == "done":
            self._reported = report[1]
            if counts:
                self.acknowledged = report[1]

    def settle(self, home: Path) -> Settled:
        found = self._found(home)
        settled = Settled(found)
        most = max(self._reported, self._there) + (1 if self._task.acknowledged == "return" else BATCH)
        if found < self.acknowledged:
            settled.lost = self.acknowledged - found
            settled.problems.append(f"{self.acknowledged} records were acknowledged, and {found} are there")
        elif found > most:
            settled.problems.append(f"at most {most} records were written, and {found} are there")
        elif found:
            self._exercise.recount(home, self._task, found)
        self._there = found
        return settled

    def _found(self, home: Path) -> int:
        try:
            check_sound(self._exercise.verify(home))
            return self._exercise.count(home, self._task)
        except NotFound:
            return 0  # it was killed before it had made the files


def check_sound(report: Report) -> None:
    """Raise `Wrong` if a journal has a problem other than a torn tail, which a killed write may leave."""
    for problem in report.problems:
        if problem.kind != "torn_tail":
            raise Wrong(f"verify: {problem.file} @ {problem.position}: {problem.message}")


def data_of(seed: int, number: int) -> bytes:
    """The data of a record: 1 to about 600 bytes that no other record has."""
    text = b"%d %d" % (seed, number)
    size = number * 37 % 600 if number % 9 else 0
    return b"%d " % number + hashlib.shake_128(text).digest(size)
