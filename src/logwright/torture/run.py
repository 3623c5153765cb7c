"""Torture: starts writers, kills them, and checks what they leave, again and again.

    with Torture(Path("/mnt/disk"), Interrupt(), seed=7) as torture:
        for format in FORMATS:
            torture.add_kills(format)
        while not over():
            torture.step()                  # one writer is started, killed and checked
        torture.results                     # a `Result` for each writer and policy

It creates one directory, and writes nothing outside it. Leaving the block kills the writer, unmounts what it has
mounted, and removes the directory, unless something has failed.

A writer is killed after some of its reports, while it opens the journal, or at a call of its disk: see `moments.py`.
Half of the checks use a copy of the files: then the next writer has to recover them, and may be killed while it does
so. A journal that has become large is replaced by a new one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

from ..errors import LogwrightError, NotFound, StorageFailed, WrongUse, is_no_space
from .child import write_until_killed
from .database import DatabaseExercise
from .exercises import Acknowledged, Exercise, Expectation, Settled, Task, Wrong
from .journals import AppendfileExercise, SejExercise
from .moments import Moment
from .power import Device, missing_for_power_cuts
from .queue import QueueExercise
from .store import StoreExercise

Fault: TypeAlias = Literal["kill", "power cut"]
EXERCISES: Final[dict[str, Exercise]] = {
    exercise.format: exercise
    for exercise in (SejExercise(), QueueExercise(), AppendfileExercise(), StoreExercise(), DatabaseExercise())
}
POLICIES: Final[dict[Fault, tuple[str, ...]]] = {
    "kill": ("always", "interval(20)", "none"),
    "power cut": ("always", "interval(20)"),
}
"""The sync policies for each fault. With `none`, a power cut may lose everything that the system has not written."""
PREFIX: Final = "logwright-torture-"
LARGE: Final = 4000
"""The number of acknowledged records after which a new journal is begun."""
DEADLINE_SECONDS: Final = 60.0
"""A writer that reports nothing for this time is considered hung."""
_DEVICE_BYTES: Final = 64 << 20
_SLICE_SECONDS: Final = 0.1
"""How often a wait checks whether the user has interrupted it."""
_REPORTS: Final = (1, 2, 5, 20, 60, 150)
_MOST_REPORTS: Final = 250
"""After this number of reports, a writer whose moment has not come is killed from outside."""
_STEPS: Final = {
    "create": 8,
    "rename": 6,
    "remove": 6,
    "sync directory": 12,
    "sync": 40,
    "write": 40,
    "truncate": 2,
    "open": 12,
}
"""The calls of a disk at which a writer dies, and the highest number of the call."""
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


class DiskFull(LogwrightError):
    """The disk has no space for the journals. No loss had been found."""


@dataclass(slots=True)
class Result:
    """What was tried with one writer and one policy, and what was found. `failures` are texts for the user."""

    format: str
    policy: str
    fault: Fault
    faults: int = 0
    acknowledged: int = 0
    checked: int = 0
    lost: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": round(self.seconds, 3)}


class _Plan(NamedTuple):
    """When a writer is killed: this long after a number of reports, or at a moment of its own."""

    reports: int
    seconds: float = 0.0
    moment: Moment | None = None


class _Case:
    """One writer with one policy: its current journal, and what must be in it."""

    def __init__(self, exercise: Exercise, result: Result, parent: Path, chance: random.Random) -> None:
        self.exercise, self.result = exercise, result
        self._parent, self._chance = parent, chance
        self._journals = self._earlier = 0
        self.home = parent
        self.opening_seconds = 0.01
        self.begin()

    def begin(self) -> None:
        """Begin a new journal."""
        result = self.result
        acknowledged: Acknowledged = "return"
        if result.policy != "always" and result.fault == "power cut":
            acknowledged = "sync"
        elif result.policy != "always" and self.exercise.buffers:
            acknowledged = "flush"
        if self._journals:
            self._earlier = result.acknowledged
            shutil.rmtree(self.home)
        self._journals += 1
        name = "-".join((result.format, result.policy, result.fault.replace(" ", "-"), str(self._journals)))
        self.home = self._parent / name
        self.first = Task(self.home, self._chance.randrange(10**9), result.policy, acknowledged)
        self.expectation: Expectation = self.exercise.expect(self.first)

    def task(self) -> Task:
        first = self.first
        return Task(first.home, first.seed, first.policy, first.acknowledged, self.expectation.start)

    def count(self, settled: Settled) -> None:
        """Add what a check has found to the result."""
        self.result.acknowledged = self._earlier + self.expectation.acknowledged
        self.result.checked += settled.checked
        self.result.lost += settled.lost
        self.result.failures += settled.problems

    def plan(self) -> _Plan:
        chance = self._chance
        luck = chance.random()
        if luck < 0.2:
            return _Plan(1, chance.uniform(0, 1.5 * self.opening_seconds))  # while it opens
        if luck < 0.6 or self.result.fault == "power cut":
            return _Plan(1 + chance.choice(_REPORTS), chance.uniform(0, 0.003))
        kind = chance.choice(list(_STEPS))
        moment = Moment(kind, chance.randrange(1, _STEPS[kind] + 1), chance.random() < 0.5)
        return _Plan(_MOST_REPORTS, 0.0, moment)


class Interrupt:
    """Whether the user has asked to stop. A run stops at a safe point, by raising `KeyboardInterrupt`."""

    is_requested = False

    def handle(self, number: int, frame: object) -> None:
        """A signal handler."""
        self.is_requested = True

    def check(self) -> None:
        if self.is_requested:
            raise KeyboardInterrupt


class Torture:
    """A run in a new directory below `parent`. `directory` is that directory."""

    def __init__(self, parent: Path, interrupt: Interrupt, *, seed: int, keeps: bool = False) -> None:
        self.results: list[Result] = []
        self._interrupt = interrupt
        self._chance = random.Random(seed)
        self._keeps = keeps
        self._cases: list[_Case] = []
        self._device: Device | None = None
        self._turn = 0
        if not parent.is_dir():
            raise NotFound(f"{parent}: no such directory; create it, or give another one")
        self._context = _fork_server()
        with _space(parent, "create a directory in"):
            self.directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))

    # --- what is tried ------------------------------------------------------------------------------------------------

    def add_kills(self, format: str) -> None:
        """Kill the writer of a format, with each policy."""
        self._add(format, "kill", self.directory)

    def add_power_cuts(self, format: str) -> None:
        """Cut the power of a file system that the writer of a format uses; `WrongUse` if that is impossible."""
        if self._device is None:
            if (missing := missing_for_power_cuts()) is not None:
                raise WrongUse(missing)
            with _space(self.directory, "create a file system in"):
                self._device = Device(self.directory, _DEVICE_BYTES)
            try:
                self._device.mount()
            except OSError as error:
                raise WrongUse(f"power cuts need a loop device that can be mounted: {error}") from None
        self._add(format, "power cut", self._device.root)

    def _add(self, format: str, fault: Fault, parent: Path) -> None:
        for policy in POLICIES[fault]:
            result = Result(format, policy, fault)
            self.results.append(result)
            self._cases.append(_Case(EXERCISES[format], result, parent, self._chance))

    @property
    def has_failed(self) -> bool:
        return any(result.failures for result in self.results)

    @property
    def is_over(self) -> bool:
        """Whether every case has failed, so that nothing is left to try."""
        return all(case.result.failures for case in self._cases)

    def step(self) -> None:
        """Start the next writer, kill it or cut its power, and check what it leaves.

        A writer that has failed once is not tried again: its files stay as they are.
        """
        self._interrupt.check()
        case = self._cases[self._turn % len(self._cases)]
        self._turn += 1
        if case.result.failures:
            return
        started = time.monotonic()
        try:
            with _space(case.home, "write"):
                self._try(case)
        finally:
            case.result.seconds += time.monotonic() - started

    # --- one fault ----------------------------------------------------------------------------------------------------

    def _try(self, case: _Case) -> None:
        if case.expectation.acknowledged > LARGE:
            case.begin()
        failed: list[Any] | None = None
        settled = Settled(0)
        try:
            failed = self._until_killed(case, case.plan())
            case.result.faults += 1
            if case.result.fault == "power cut" and self._device is not None:
                self._device.unmount()
                self._device.mount()
            settled = self._settle(case)
        except StorageFailed:
            raise
        except (Wrong, LogwrightError) as error:
            settled.problems.append(f"{type(error).__name__}: {error}" if not isinstance(error, Wrong) else str(error))
        if failed is not None and not settled.problems:
            _, number, text = failed
            if number in _NO_SPACE:
                raise DiskFull(text)
            settled.problems.append(f"the writer failed: {text}")
        case.count(settled)

    def _settle(self, case: _Case) -> Settled:
        copy = self.directory / "copy"
        checked = copy if self._chance.random() < 0.5 and case.home.exists() else case.home
        try:
            if checked is copy:
                try:
                    shutil.copytree(case.home, copy)
                except shutil.Error:  # there may be no space for it
                    checked = case.home
            return case.expectation.settle(checked)
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def _until_killed(self, case: _Case, plan: _Plan) -> list[Any] | None:
        """Start a writer, and kill it as planned; returns its failure if it ended by itself."""
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=write_until_killed, args=(case.exercise, case.task(), plan.moment, sender), daemon=True
        )
        failed: list[Any] | None = None
        process.start()
        sender.close()
        try:
            failed = self._listen(case, plan, receiver)
            if case.result.fault == "power cut" and self._device is not None:
                self._device.cut_power()
        finally:
            process.kill()
            process.join()
        with contextlib.suppress(EOFError):
            while receiver.poll():  # sent before it died; after a power cut the results mean nothing
                report = json.loads(receiver.recv_bytes())
                if report[0] != "failed":
                    case.expectation.hear(report, counts=case.result.fault == "kill")
                elif case.result.fault == "kill":
                    failed = report
        receiver.close()
        process.close()
        return failed

    def _listen(self, case: _Case, plan: _Plan, receiver: Any) -> list[Any] | None:
        """Take reports until the writer is to be killed, or has ended. Its failure, if it has one."""
        reports, opening = 0, time.monotonic()
        until = opening + DEADLINE_SECONDS
        while True:
            left = until - time.monotonic()
            if left <= 0:
                if reports < plan.reports:
                    raise Wrong(f"the writer reports nothing for {DEADLINE_SECONDS:.0f} seconds")
                return None
            self._interrupt.check()
            if not receiver.poll(min(left, _SLICE_SECONDS)):
                continue
            try:
                report = json.loads(receiver.recv_bytes())
            except EOFError:
                return None
            if report[0] == "failed":
                return list(report)
            case.expectation.hear(report)
            reports += 1
            now = time.monotonic()
            if report[0] == "open":
                case.opening_seconds = now - opening
            elif report[0] == "opening":
                opening = now
            if reports < plan.reports:
                until = now + DEADLINE_SECONDS
            elif reports == plan.reports:
                until = now + plan.seconds

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Unmount, and remove the directory unless something has failed."""
        if self._device is not None:
            self._device.give_up()
            if self.keeps:
                return
            if os.path.ismount(self._device.root):
                raise StorageFailed("unmount", self._device.root, OSError(errno.EBUSY, "still in use"))
        if not self.keeps:
            shutil.rmtree(self.directory)

    @property
    def keeps(self) -> bool:
        """Whether the directory stays."""
        return self._keeps or self.has_failed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextlib.contextmanager
def _space(path: Path, action: str) -> Iterator[None]:
    """Report a full disk as such, and other refusals of the system as ours."""
    try:
        yield
    except LogwrightError as error:
        if is_no_space(error):
            raise DiskFull(str(error)) from error
        raise
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise DiskFull(f"{path}: {error.strerror}") from error
        raise StorageFailed(action, path, error) from error


def _fork_server() -> Any:
    """Starts the writers. Signals that ask to stop reach neither it nor them: the run kills the writers."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["logwright.torture.run", "logwright.cli"])
    resource_tracker.ensure_running()  # first: starting it unblocks signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context
