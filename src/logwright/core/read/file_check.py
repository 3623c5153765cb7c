"""FileCheck: `verify` for the formats whose files are checked one after the other.

A problem in one file never hides the next file: a file that cannot be read is a problem of that file only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from ...errors import DamagedJournal, LogwrightError, is_refusal
from ..bytes.outcome import Damage
from ..format import concerns
from ..io.disk import Disk, File
from ..io.quarantine import DIRECTORY
from ..repair.losses import ACCOUNT_NAME, read_losses
from ..repair.plan import find_interrupted
from .chunk_reader import Shares
from .report import Problem, Progress, Report
from .snapshot import Listed, Snapshot

MOST_ANOMALIES: Final = 100
"""The most anomalies of one file that are listed."""

F = TypeVar("F", bound=Listed)
OnPosition = Callable[[int], None] | None
"""Called with the position that a check has reached in a file."""


def each_file(files: Snapshot[F], report: Report, progress: Progress | None) -> Iterator[tuple[int, F, OnPosition]]:
    """The files, each with its index and its `OnPosition`. Sets the total size in the report."""
    sizes = [files.size(source) for source in files.files]
    report.bytes = sum(sizes)
    shares = Shares(progress, sizes)
    for number, source in enumerate(files.files):
        yield number, source, shares.of(number)
        files.done_with(source)


class FileCheck:
    """The check of one file. A subclass has `check`, which advances `position`."""

    def __init__(self, report: Report, files: Snapshot[Any], source: Any) -> None:
        self.report = report
        self.files = files
        self.source = source
        self.position = 0
        self._odd = 0

    def run(self, on_position: OnPosition) -> None:
        """Check the file, and report what is wrong."""
        try:
            self.check(self.files.file(self.source), on_position)
        except LogwrightError as error:
            if is_refusal(error):
                raise
            self.problem(self.position, "unreadable", str(error))

    def check(self, file: File, on_position: OnPosition) -> None:
        """Check the records of the file."""
        raise NotImplementedError

    def problem(self, position: int, kind: str, message: str) -> None:
        """Report a loss of records."""
        self.report.problems.append(Problem(self.source.name, position, kind, message))

    def damage(self, damage: Damage, message: str) -> None:
        """Report damage, which may belong to another file than the one that is being checked."""
        self.report.problems.append(Problem(damage.file, damage.start, damage.kind, message))

    def anomaly(self, position: int, kind: str, message: str) -> None:
        """Report an anomaly. After `MOST_ANOMALIES` only that there are more."""
        self._odd += 1
        if self._odd <= MOST_ANOMALIES:
            self.report.anomalies.append(Problem(self.source.name, position, kind, message))
        elif self._odd == MOST_ANOMALIES + 1:
            self.report.anomalies.append(Problem(self.source.name, position, kind, "there are more of these"))


def torn_message(damage: Damage) -> str:
    """The message about a torn tail."""
    return f"{damage.reason}; the last {damage.size} bytes are a torn tail"


def note_more(report: Report, unlisted: int) -> None:
    """Report that there are more anomalies of the kind of the last one than are listed."""
    if unlisted > 0:
        last = report.anomalies[-1]
        report.anomalies.append(Problem(last.file, last.position, last.kind, f"{unlisted} more of these follow"))


def report_repairs(disk: Disk, home: Path, report: Report, part: str = "") -> None:
    """Add the losses of a journal to a report, and a problem for a repair of it that was not finished."""
    try:
        report.losses += read_losses(disk, home, part or None)
    except LogwrightError as error:
        position, reason = (error.position, error.reason) if isinstance(error, DamagedJournal) else (0, str(error))
        report.problems.append(Problem(f"{DIRECTORY}/{ACCOUNT_NAME}", position, "unreadable", reason))
    try:
        repair = find_interrupted(disk, home)
    except LogwrightError as error:
        report.anomalies.append(Problem("", 0, "repair", str(error)))
        return
    if repair is not None and concerns(repair, part):
        report.problems.append(Problem(repair.log.relative_to(home).as_posix(), 0, "repair", repair.describe()))
