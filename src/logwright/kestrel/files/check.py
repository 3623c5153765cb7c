"""Checking the journal of a queue: `verify` goes through all of it, `summarize` looks at names, sizes and both ends.

A problem is something that costs operations: bytes that are none, a file that cannot be read. An anomaly is odd and
costs nothing: the journal stays sound. What is wrong in one place never hides the next: reading continues after it.

    problems    torn_tail malformed unreadable doubled_name empty_pack changed_pack missing_file truncated changed_file
    anomalies   empty_queue not_open open_already after_state_dump dialect dead_file temporary_file pack foreign_file
                repair
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...core.bytes.outcome import Damage, Span
from ...core.format import Located
from ...core.io.disk import File
from ...core.io.quarantine import kept_bytes
from ...core.read.file_check import FileCheck, OnPosition, each_file, note_more, report_repairs, torn_message
from ...core.read.report import Problem, Progress, Report, Summary
from ...core.read.survey import MOST_SHOWN_BYTES, Survey
from ..bytes import codec, kernel
from ..bytes.layout import TEMPORARY, UNDECIDED, parse_name
from ..model.replay import ANOMALIES, Replay
from .cursor import Chunk
from .files import BAD_PACKS, JournalFile, Listing, OpenFiles, known_dead
from .note import blocked_notes

if TYPE_CHECKING:
    from .reader import Reader

_OF_NAMES: Final = ("doubled_name", *BAD_PACKS)
"""What is wrong with a name, and not with bytes at a position."""


# --- every operation ------------------------------------------------------------------------------------------------


def verify(reader: Reader, *, progress: Progress | None = None) -> Report:
    """Check every operation, whether it fits the queue as it was then, and what is beside the files.

    Whatever is there, the answer is a report; where we may not look there is none (`StorageFailed`).
    """
    report = Report("kestrel")
    reader = reader.for_check()
    with reader.snapshot() as files:
        replay = Replay()
        for number, source, on_position in each_file(files, report, progress):
            replay.begin_file(number)
            _FileCheck(reader, report, replay, files, source).run(on_position)
        _note_anomalies(report, replay, files)
    if reader.verdict.both_fit:
        message = "an 8 in it reads as a state dump and as a continue alike; it is taken to be documented"
        report.anomalies.append(Problem(reader.files()[0].name, 0, "dialect", message))
    if not reader.is_single_file:
        _check_names(reader, report)
    report_repairs(reader.disk, reader.directory, report, reader.part)
    return report


class _FileCheck(FileCheck):
    """The check of one file: its operations go into the replay."""

    def __init__(self, reader: Reader, report: Report, replay: Replay, files: OpenFiles, source: JournalFile) -> None:
        super().__init__(report, files, source)
        self._reader = reader
        self._replay = replay

    def check(self, file: File, on_position: OnPosition) -> None:
        """Go through the file."""
        for item in self._reader.file_chunks(self.source, file, None, None, "permissive", on_position, load=False):
            if isinstance(item, Damage):
                self._note_damage(item, file.size())
            else:
                self._replay.add(*item.effects(), item.end)
                self.report.records += item.count
            self.position = item.end

    def _note_damage(self, damage: Damage, size: int) -> None:
        if damage.kind in _OF_NAMES:
            message = damage.reason
        elif damage.kind == "torn_tail":
            message = torn_message(damage)
        elif damage.end < size:
            message = f"{damage.reason}; operations continue at {damage.end}"
        else:
            message = f"{damage.reason}; reading cannot continue in this file, and operations may be in the rest of it"
        self.damage(damage, message)


def _note_anomalies(report: Report, replay: Replay, files: OpenFiles) -> None:
    for file, position, which, xid in replay.anomalies:
        kind, message = ANOMALIES[which]
        report.anomalies.append(Problem(files.files[file].name, position, kind, message.format(xid)))
    note_more(report, replay.anomaly_count - len(replay.anomalies))


def _check_names(reader: Reader, report: Report) -> None:
    """What is stored beside the files that count."""
    odd = report.odd_file
    listing = reader.listing()
    damaged = {problem.file for problem in report.problems if problem.kind == "malformed"}
    for lost in reader.lost_files(damaged):
        report.problems.append(Problem(lost.name, lost.size or 0, lost.kind, f"{lost.reason}; {lost.consequence}"))
    for name, reason in blocked_notes(reader.disk, reader.directory, reader.queue).items():
        report.problems.append(Problem(name, 0, "unreadable", reason))
    if listing.pack is not None and listing.pack.flaw is not None:  # then no writer opens the queue
        for name in listing.dead:
            odd(name, "dead_file", f"it does not count as long as {listing.pack.name} is there")
    elif listing.pack is not None and any(problem.kind != "torn_tail" for problem in report.problems):
        odd(listing.pack.name, "pack", "a pack that was not finished: no writer does that while there are problems")
        for name in listing.dead:
            odd(name, "dead_file", f"{listing.pack.name} replaces it; it stays while there are problems")
    elif listing.pack is not None:
        odd(listing.pack.name, "pack", "a pack that was not finished: the next writer takes it over")
        known = known_dead(reader.disk, reader.directory, listing)
        for name in listing.dead:
            becomes = "removes it" if name in known else "keeps it in .logwright/cut, as the pack is from elsewhere"
            odd(name, "dead_file", f"{listing.pack.name} replaces it; the next writer {becomes}")
    for name in listing.temporary:
        odd(name, "temporary_file", "a temporary file that was left behind; the next writer removes it")
    for name in reader.disk.list_directory(reader.directory):
        if name.startswith(reader.queue + ".") and TEMPORARY not in name and parse_name(name) is None:
            odd(name, "foreign_file", "this is no name of a file of a queue's")


# --- names, sizes, and both ends ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Survey(Survey):
    """What a look at the files has found."""

    first: dict[str, Any] | None = None
    last: tuple[JournalFile, Span] | None = None


def summarize(reader: Reader) -> Summary:
    """What this is. Of a larger journal only the first `MOST_READ_BYTES` are read.

    The data of a first or last operation of more than `MOST_SHOWN_BYTES` is not read, and None in its place.
    """
    listing = reader.listing()
    reader = reader.for_check()
    with reader.snapshot() as files:
        look = _look(reader, files)
        details = _details(reader, listing, look)
        last = _last_record(reader, files, look)
        return look.summary("kestrel", reader, files, first=look.first, last=last, details=details)


def _details(reader: Reader, listing: Listing, look: _Survey) -> dict[str, Any]:
    verdict = reader.verdict
    nothing_differs = True if look.complete else None
    return {
        "queue": reader.queue,
        "dialect": "documented" if verdict.dialect == UNDECIDED else verdict.name,
        "both_dialects_fit": nothing_differs if verdict.dialect == UNDECIDED else verdict.both_fit,
        "rotated": sum(not source.is_newest for source in listing.files),
        "dead": listing.dead,
        "temporary": listing.temporary,
        "kept_bytes": kept_bytes(reader.disk, reader.directory, reader.queue + "."),
    }


def _look(reader: Reader, files: OpenFiles) -> _Survey:
    look = _Survey()
    look.go_through(
        files,
        lambda source, file: reader.file_chunks(source, file, None, None, "permissive", load=False),
        lambda chunk: _note(reader, look, chunk),
    )
    return look


def _note(reader: Reader, look: _Survey, item: Chunk) -> None:
    starts = item.starts()
    look.records += item.count
    look.last = (item.source, Span(starts[-2], starts[-1]))
    if look.first is None:
        head = bytes(item.data[item.start : item.start + MOST_SHOWN_BYTES])
        look.first = _shown(reader, item.source, Span(starts[0], starts[1]), head, item.dialect)


def _last_record(reader: Reader, files: OpenFiles, look: _Survey) -> dict[str, Any] | None:
    """The last operation, None if the check did not get that far."""
    if look.last is None or not look.complete:
        return None
    source, span = look.last
    head = files.file(source).read_at(span.start, min(span.size, MOST_SHOWN_BYTES))
    return _shown(reader, source, span, head, reader.verdict.dialect)


def _shown(reader: Reader, source: JournalFile, span: Span, head: bytes, dialect: int) -> dict[str, Any]:
    """An operation as JSON; a large one without its data."""
    if span.size <= len(head):
        (operation,) = kernel.operations(head, 0, span.size, 1, dialect)
        return reader.as_json(Located(operation, source.name, span))
    operation = codec.without_data(head, 0, dialect)
    return {**reader.as_json(Located(operation, source.name, span)), "data": None}
