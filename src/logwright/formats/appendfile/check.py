"""Checking a journal: `verify` goes through all of it, `summarize` looks at names, sizes and both ends.

A problem is something that costs records: bytes that are none, a file that is missing or cannot be read. An anomaly is
odd and costs nothing: the journal stays sound. What is wrong in one place never hides the next: reading goes on behind.

    problems    torn_tail malformed gap doubled_id unreadable
    anomalies   checkpoint_order empty_record large_file recovery unfinished_move foreign_file repair
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import LogwrightError, is_refusal
from ...core.format import Located
from ...core.keep import kept_bytes
from ...core.look import MOST_LOOKED_AT_BYTES, MOST_SHOWN_BYTES, Look
from ...core.outcome import Damage, Span
from ...core.reading import Shares
from ...core.repair import report_interrupted
from ...core.report import Problem, Progress, Report, Summary
from . import codec, kernel
from .cursor import Chunk
from .files import Files, JournalFile, wrong_names
from .layout import HEADER_BYTES, MAX_FILE_BYTES, SUFFIX, parse_name

if TYPE_CHECKING:
    from .reader import Reader

_MOST_TOLD: Final = 1000
"""How many anomalies of one kind are told one by one."""


# --- every record -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Order:
    """The checkpoint before, of the same generation, and what was odd so far."""

    report: Report
    pair: tuple[int, int] | None = None
    told: int = 0

    def note(self, file: str, item: Chunk) -> None:
        """Note the checkpoints of a chunk: ids never go back, and `current` grows by one at most."""
        for _, position, checked, current in zip(*item.turns(), strict=True):
            before, self.pair = self.pair, (checked, current)
            if before is None or (before[0] <= checked and before[1] <= current <= before[1] + 1):
                continue
            self.told += 1
            if self.told <= _MOST_TOLD:
                message = f"the pair {checked}, {current} cannot follow {before[0]}, {before[1]}"
                place = item.base + position
                self.report.anomalies.append(Problem(file, place, "checkpoint_order", message))


def verify(reader: Reader, *, progress: Progress | None = None) -> Report:
    """Check every record, whether checkpoints follow each other as they should, and what is beside the files.

    Whatever is there, the answer is a report; where we may not look there is none (`StorageFailed`).
    """
    report = Report("appendfile")
    with reader.snapshot() as files:
        sizes = [files.size(source) for source in files.files]
        report.bytes = sum(sizes)
        shares = Shares(progress, sizes)
        order = _Order(report)
        for number, source in enumerate(files.files):
            if number and files.files[number - 1].generation != source.generation:
                order.pair = None
            _check_name(report, source)
            _check_file(reader, report, order, files, source, shares.of(number))
            files.done_with(source)
        if order.told > _MOST_TOLD:
            last = report.anomalies[-1]
            message = f"{order.told - _MOST_TOLD} more of these are behind this"
            report.anomalies.append(Problem(last.file, last.position, last.kind, message))
    if not reader.is_single_file:
        _check_directory(reader, report)
    report_interrupted(reader.disk, reader.directory, report)
    return report


def _check_name(report: Report, source: JournalFile) -> None:
    wrong = wrong_names(source)
    if wrong is not None:
        report.problems.append(Problem(source.name, 0, *wrong))


def _check_file(reader: Reader, report: Report, order: _Order, files: Files, source: JournalFile, told: Any) -> None:
    position = 0
    try:
        file = files.file(source)
        empty = 0
        for item in reader.file_chunks(source, file, None, None, "permissive", told):
            position = item.end
            if isinstance(item, Damage):
                _note_damage(report, item, file.size())
                continue
            order.note(source.name, item)
            report.records += item.count
            empty += _empty_records(item)
        if empty:
            message = f"{empty} records have no data: nobody can tell them from zeros"
            report.anomalies.append(Problem(source.name, 0, "empty_record", message))
        if file.size() > MAX_FILE_BYTES:
            message = f"it has {file.size()} bytes, and a file has at most {MAX_FILE_BYTES}"
            report.anomalies.append(Problem(source.name, MAX_FILE_BYTES, "large_file", message))
    except LogwrightError as error:
        if is_refusal(error):
            raise
        report.problems.append(Problem(source.name, position, "unreadable", str(error)))


def _empty_records(item: Chunk) -> int:
    if kernel.walk(item.data, item.start, item.stop, 0, -1, True)[2] != codec.EMPTY:
        return 0
    starts = item.starts()
    return sum(after - start == HEADER_BYTES for start, after in pairwise(starts))


def _note_damage(report: Report, damage: Damage, size: int) -> None:
    if damage.kind == "torn_tail":
        message = f"{damage.reason}; the last {damage.size} bytes are a torn tail"
    elif damage.end < size:
        message = f"{damage.reason}; the next checkpoint is at {damage.end}"
    else:
        message = f"{damage.reason}; no checkpoint follows in this file"
    report.problems.append(Problem(damage.file, damage.start, damage.kind, message))


def _check_directory(reader: Reader, report: Report) -> None:
    """What lies beside the files that count, and what a recovery has left."""

    def odd(file: str, kind: str, message: str) -> None:
        report.anomalies.append(Problem(file, 0, kind, message))

    listing = reader.listing()
    for file in listing.left_behind:
        odd(file.name, "unfinished_move", "a recovery was interrupted before it had moved this; the next writer does")
    older = listing.older
    if older:
        message = f"{len(older)} files wait to be recovered; the next program that opens the journal gets them first"
        odd(older[0].name, "recovery", message)
    for name in reader.disk.list_directory(reader.directory):
        if name.endswith(SUFFIX) and parse_name(name) is None:
            odd(name, "foreign_file", "this is no name of a file of a journal's")


# --- names, sizes, and both ends ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Look(Look):
    """What a look at the files has found."""

    records: int = 0
    complete: bool = True
    first: dict[str, Any] | None = None
    last: tuple[JournalFile, Span, int] | None = None
    pair: tuple[int, int] | None = None


def summarize(reader: Reader) -> Summary:
    """What this is. Of a journal of more than `MOST_LOOKED_AT_BYTES` only so much is read, from its beginning.

    The data of a first or last record of more than `MOST_SHOWN_BYTES` is not shown, and None in its place.
    """
    listing = reader.listing()
    with reader.snapshot() as files:
        look = _look(reader, files)
        total = sum(files.size(source) for source in files.files)
        last = _last_record(reader, files, look)
    reader.torn_tail = look.torn
    return Summary(
        format="appendfile",
        path=str(reader.path),
        files=len(listing.files),
        bytes=total,
        records=look.records if look.complete and look.damage is None else None,
        first=look.first,
        last=last,
        health=look.health,
        details={
            "checked": None if look.pair is None or not look.complete else look.pair[0],
            "current": None if look.pair is None or not look.complete else look.pair[1],
            "to_recover": len(listing.older),
            "kept_bytes": kept_bytes(reader.disk, reader.directory),
        },
    )


def _look(reader: Reader, files: Files) -> _Look:
    look = _Look()
    done = 0
    for source in files.files:
        if done >= MOST_LOOKED_AT_BYTES:
            look.complete = False
            break
        wrong = wrong_names(source)
        if wrong is not None:
            look.note_damage(Damage(source.name, 0, 0, wrong[1], wrong[0]))
        with look.reading(source.name):
            file = files.file(source)
            for item in reader.file_chunks(source, file, None, None, "permissive"):
                if not _note(reader, look, item):
                    continue
                if done + item.end >= MOST_LOOKED_AT_BYTES and item.end < file.size():
                    look.complete = False
                    break
            done += file.size()
    return look


def _note(reader: Reader, look: _Look, item: Chunk | Damage) -> bool:
    """Note a chunk or damage; whether it was a chunk."""
    if isinstance(item, Damage):
        look.note_damage(item)
        return False
    starts = item.starts()
    _, _, checked, current = item.turns()
    if checked:
        look.pair = (checked[-1], current[-1])
    look.records += item.count
    segment = kernel.walk(item.data, item.start, starts[-2] - item.base, item.segment)[3]
    look.last = (item.source, Span(starts[-2], starts[-1]), segment)
    if look.first is None:
        head = bytes(item.data[item.start : item.start + starts[1] - starts[0]])
        look.first = _shown(reader, item.source, Span(starts[0], starts[1]), head, item.segment)
    return True


def _last_record(reader: Reader, files: Files, look: _Look) -> dict[str, Any] | None:
    """The last record, None where nobody has looked that far."""
    if look.last is None or not look.complete:
        return None
    source, span, segment = look.last
    data = files.file(source).read_at(span.start, span.size)
    return _shown(reader, source, span, data, segment) if len(data) == span.size else None


def _shown(reader: Reader, source: JournalFile, span: Span, data: bytes, segment: int) -> dict[str, Any]:
    """A record as JSON; a large one without its data."""
    (record,) = kernel.records(data, 0, span.size, 1, segment)
    found = reader.as_json(Located(record, source.name, span))
    return {**found, "data": None} if span.size > MOST_SHOWN_BYTES else found
