"""Measuring: rounds in which all candidates take turns, medians, and figures with their goals."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEY = b"key-000000001"
VALUE = b"v" * 100
MESSAGE_BYTES = 26 + len(KEY) + len(VALUE)

assert MESSAGE_BYTES == 139


@dataclass(slots=True)
class Plan:
    """The settings of a subject: where to work, the number of rounds, and whether to be quick."""

    place: Path
    rounds: int = 5
    quick: bool = False
    log: Callable[[str], None] = print
    results: Path | None = None
    """The directory for plots, besides the one of all figures; None for none."""

    def amount(self, whole: int, quick: int) -> int:
        return quick if self.quick else whole


@dataclass(slots=True)
class Figure:
    """One row of the table. `ratio` says how many times better than the peer ours is, whatever the unit."""

    subject: str
    what: str
    ours: float
    peer: float
    unit: str
    peer_name: str
    goal: float | None = None
    smaller_is_better: bool = True
    spread: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        if self.ours == 0 or self.peer == 0:
            return 0.0
        return self.peer / self.ours if self.smaller_is_better else self.ours / self.peer

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached; None for a figure without a goal."""
        return None if self.goal is None else self.ratio >= self.goal

    def as_json(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "what": self.what,
            "ours": self.ours,
            "peer": self.peer,
            "unit": self.unit,
            "peer_name": self.peer_name,
            "ratio": self.ratio,
            "goal": self.goal,
            "reached": self.reached,
            "rounds": self.spread,
        }


class Turns:
    """Candidates that take turns, so that other load on the machine affects all of them alike."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.results: dict[str, list[float]] = {}

    def run(self, things: dict[str, Callable[[], float]], together: Callable[[], dict[str, float]] = dict) -> Turns:
        """Run every candidate once per round. `together` alternates by itself, and returns several results."""
        for _ in range(max(3, self.rounds)):
            for name, thing in things.items():
                gc.collect()
                self.results.setdefault(name, []).append(thing())
            for name, result in together().items():
                self.results.setdefault(name, []).append(result)
        return self

    def median(self, name: str) -> float:
        return statistics.median(self.results[name])


class Clock:
    """The seconds that a `with` block took: wall time, or with `processor` the CPU time of this thread.

    Code that never waits is measured in CPU time, which includes system calls. On a shared machine, wall time would
    include the work of other programs.
    """

    def __init__(self, *, processor: bool = False) -> None:
        self.seconds = 0.0
        self._now = time.thread_time if processor else time.perf_counter

    @contextmanager
    def running(self) -> Iterator[None]:
        started = self._now()
        yield
        self.seconds += self._now() - started

    def per_item_ns(self, items: int) -> float:
        return self.seconds / items * 1e9


def peak_bytes() -> int:
    """The peak of this process's resident memory. Not by getrusage, which includes that of the parent."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def bytes_read_by(action: Callable[[], Any]) -> int | None:
    """The bytes that a call reads from files, also from the page cache; None if the system does not count them.

    It is called twice, and counted the second time, because the imports of the first call read files as well.
    """
    counter = Path("/proc/self/io")
    if not counter.exists():
        return None

    def total() -> int:
        return next(int(line.split()[1]) for line in counter.read_text().splitlines() if line.startswith("rchar"))

    action()
    before = total()
    overhead = total() - before
    before = total()
    action()
    return total() - before - overhead
