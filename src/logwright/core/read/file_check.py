"""Checking: what `verify` does in every format whose files are gone through one after the other.

What is wrong in one file never hides the next: what cannot be read, or may not be, is a problem of that file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from ...errors import LogwrightError, is_refusal
from ..bytes.outcome import Damage
from ..io.disk import File
from .chunk_reader import Shares
from .report import Problem, Progress, Report
from .snapshot import Listed, Snapshot

MOST_ANOMALIES: Final = 100
"""How many anomalies of one file are told one by one."""

F = TypeVar("F", bound=Listed)
Told = Callable[[int], None] | None
"""What a check reports its position in a file to."""


def each_file(files: Snapshot[F], report: Report, progress: Progress | None) -> Iterator[tuple[int, F, Told]]:
    """The files, each with its index, and what to report to. The report gets to know how large they are together."""
    sizes = [files.size(source) for source in files.files]
    report.bytes = sum(sizes)
    shares = Shares(progress, sizes)
    for number, source in enumerate(files.files):
        yield number, source, shares.of(number)
        files.done_with(source)


class FileCheck:
    """The check of one file. A subclass has `check`, which moves `position` on as far as it has come."""

    def __init__(self, report: Report, files: Snapshot[Any], source: Any) -> None:
        self.report = report
        self.files = files
        self.source = source
        self.position = 0
        self._odd = 0

    def run(self, told: Told) -> None:
        """Check it, and note what is wrong."""
        try:
            self.check(self.files.file(self.source), told)
        except LogwrightError as error:
            if is_refusal(error):
                raise
            self.problem(self.position, "unreadable", str(error))

    def check(self, file: File, told: Told) -> None:
        """Go through the file."""
        raise NotImplementedError

    def problem(self, position: int, kind: str, message: str) -> None:
        """Note what costs records."""
        self.report.problems.append(Problem(self.source.name, position, kind, message))

    def damage(self, damage: Damage, message: str) -> None:
        """Note damage, which may be told of another file than that it was met in."""
        self.report.problems.append(Problem(damage.file, damage.start, damage.kind, message))

    def anomaly(self, position: int, kind: str, message: str) -> None:
        """Note what is odd; where there are very many of these, that there are more."""
        self._odd += 1
        if self._odd <= MOST_ANOMALIES:
            self.report.anomalies.append(Problem(self.source.name, position, kind, message))
        elif self._odd == MOST_ANOMALIES + 1:
            self.report.anomalies.append(Problem(self.source.name, position, kind, "there are more of these"))


def torn_message(damage: Damage) -> str:
    """What is told of a torn tail."""
    return f"{damage.reason}; the last {damage.size} bytes are a torn tail"


def note_more(report: Report, untold: int) -> None:
    """Note that there are more anomalies of the kind of the last one than are told."""
    if untold > 0:
        last = report.anomalies[-1]
        report.anomalies.append(Problem(last.file, last.position, last.kind, f"{untold} more of these are behind this"))
