"""`logwright verify`: checks every byte of a journal, or of all journals below a directory, and lists each problem."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.format import detect
from ..core.read.report import Problem, Report
from ..core.repair.losses import listed
from ..errors import DamagedJournal, LogwrightError, NotFound, StorageFailed, UnknownFormat
from .arguments import DAMAGE_FOUND, GOOD, WRONG_USE, journal_verb, opened
from .output import RED, Column, Table, format_size, print_json, print_line, progress_bar, warn

if TYPE_CHECKING:
    from ..arrow.discovery import Journal


@journal_verb(
    "verify",
    examples=[
        ("check a journal; see the exit code", "logwright verify orders"),
        ("list the problems, for a program", "logwright verify damaged --json"),
        ("check all shards below a root", "logwright verify events"),
        ("check all journals below a directory", "logwright verify ."),
        ("exit with 1 for known losses too", "logwright verify orders --strict"),
    ],
)
@click.option("--strict", is_flag=True, help="Exit with 1 for known losses as well.")
def command(path: Path, strict: bool, format_name: str | None, as_json: bool) -> int:
    """Check every byte, and print each problem with its file and position.

    Needs no lock and changes nothing. Exits with 1 if there is a problem, including a torn tail; harmless
    irregularities are listed as anomalies. Records that earlier repairs have removed are listed as losses: the journal
    is sound, with known losses, and the exit code is 0 unless --strict is given.

    If PATH is a directory that is no journal itself, all journals below it are checked: a line for each, with its first
    problem, and a sum. What cannot be read does not stop the rest: a file is a problem of its journal, a directory
    makes the exit code 2. In JSON there is an object for each, with `journal`, and `error` if it cannot be read.
    Directories on other file systems, such as /proc, are left out, and a warning names them.
    """
    if format_name is None and _is_tree(path):
        return _verify_tree(path, strict, as_json)
    with opened(path, format_name) as reader, progress_bar("verifying") as progress:
        report = reader.verify(progress=progress)
    code = _code(report, strict)
    if as_json:
        print_json(report.as_json())
        return code
    print_line(f"{path}: {_found(report)} ({report.format}, {report.records} records, {format_size(report.bytes)})")
    for loss in report.losses:
        print_line(loss.describe())
    listed = [("problem", problem) for problem in report.problems]
    listed += [("anomaly", anomaly) for anomaly in report.anomalies]
    with Table([Column("severity"), Column("kind"), Column("place"), Column("message")]) as table:
        for severity, problem in listed:
            table.add(severity, problem.kind, f"{problem.file} @ {problem.position}", problem.message)
    return code


def _code(report: Report, strict: bool) -> int:
    return GOOD if report.sound and not (strict and report.losses) else DAMAGE_FOUND


def _found(report: Report) -> str:
    """The result in a few words."""
    if not report.sound:
        return f"{len(report.problems)} problem{'' if len(report.problems) == 1 else 's'}"
    return "sound, with known losses" if report.losses else "sound"


# --- a tree of journals -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Sum:
    """What was found in all journals."""

    sound: int = 0
    damaged: int = 0
    unreadable: int = 0
    records: int = 0
    bytes: int = 0

    def add(self, report: Report) -> None:
        self.sound += report.sound
        self.damaged += not report.sound
        self.records += report.records
        self.bytes += report.bytes

    def describe(self) -> str:
        journals = self.sound + self.damaged + self.unreadable
        found = f"{journals} journals: {self.sound} sound, {self.damaged} with problems"
        unreadable = f", {self.unreadable} not readable" if self.unreadable else ""
        return f"{found}{unreadable}; {self.records} records, {format_size(self.bytes)}"


def _is_tree(path: Path) -> bool:
    """Whether a path is a directory that is no journal itself."""
    if not path.is_dir():
        return False
    try:
        detect(path)
    except (UnknownFormat, NotFound):
        return True
    except StorageFailed:  # a file in it: the journals beside it can still be checked
        return True
    return False


def _verify_tree(path: Path, strict: bool, as_json: bool) -> int:
    from ..arrow.discovery import list_journals

    unreadable: list[tuple[str, str, LogwrightError]] = []
    elsewhere: list[str] = []
    journals = list_journals(
        str(path), None, lambda name, error: unreadable.append((name, "", error)), elsewhere.append
    )
    if elsewhere:
        warn(f"{path}: left out, because they are on other file systems: {listed(elsewhere, len(elsewhere))}")
    if not journals and not unreadable:
        detect(path)  # which says that this is no journal
    code, total = GOOD, _Sum()
    columns = [Column("journal"), Column("format"), Column("records", right=True), Column("bytes", right=True)]
    with Table([*columns, Column("result", flexible=True)]) as table:
        for journal in journals:
            try:
                report = _verified(journal)
            except LogwrightError as error:
                unreadable.append((journal.name, journal.format, error))
                continue
            code = max(code, _code(report, strict))
            total.add(report)
            if as_json:
                print_json({"journal": journal.name, **report.as_json()})
                continue
            first = "".join(f": {item.file} @ {item.position}: {item.message}" for item in report.problems[:1])
            style = "" if report.sound else RED
            cells = (report.format, str(report.records), format_size(report.bytes), _found(report) + first)
            table.add(journal.name, *cells, style=style)
        for name, format, refusal in unreadable:
            code = WRONG_USE
            total.unreadable += 1
            if as_json:
                print_json({"journal": name, "format": format or None, "error": str(refusal)})
            else:
                table.add(name, format or "-", "-", "-", f"not readable: {refusal}", style=RED)
    if not as_json:
        print_line(total.describe())
    return code


def _verified(journal: Journal) -> Report:
    """The report of one journal. What keeps it from being opened is a problem of it."""
    from ..arrow.discovery import open_journal

    try:
        with open_journal(journal) as reader, progress_bar(f"verifying {journal.name}") as progress:
            report: Report = reader.verify(progress=progress)
            return report
    except DamagedJournal as error:
        problem = Problem(str(error.file), error.position, "malformed", error.reason)
        return Report(journal.format, problems=[problem])
