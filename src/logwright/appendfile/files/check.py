"""Checking a journal: `verify` reads all of it, `summarize` only names, sizes and both ends.

A problem loses records: bytes that are not a record, a file that is missing or cannot be read. An anomaly loses
nothing: the journal stays sound. A problem never hides the next one: reading continues after it.

    problems    torn_tail malformed gap doubled_id repeated truncated changed_file unreadable
    anomalies   empty_record large_file recovery unfinished_move foreign_file repair
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ...core.bytes.outcome import Damage, Span
from ...core.format import Located
from ...core.io.disk import File
from ...core.io.quarantine import kept_bytes
from ...core.read.file_check import FileCheck, OnPosition, each_file, report_repairs, torn_message
from ...core.read.report import Problem, Progress, Report, Summary
from ...core.read.survey import MOST_SHOWN_BYTES, Survey
from ..bytes import codec, kernel
from ..bytes.layout import HEADER_BYTES, MAX_FILE_BYTES, SUFFIX, parse_name
from .boundaries import GenerationEnd, lost_end
from .cursor import Chunk
from .files import Files, JournalFile, wrong_names

if TYPE_CHECKING:
    from .reader import Reader

# --- every record -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Order:
    """The checkpoint before, of the same generation; `is_exact` if no other can have followed that was not read."""

    pair: tuple[int, int] | None = None
    is_exact: bool = True
    earlier: GenerationEnd | None = None
    """The end of the generation before."""
    is_known: bool = True
    """Whether the file before could be read."""

    def lost_end(self, file: File, source: JournalFile) -> Damage | None:
        """What must be missing before a file."""
        if not self.is_known:
            return None
        if self.pair is None and self.earlier is not None:
            return self.earlier.lost_end(file, source)
        return lost_end(file, source, self.pair, is_exact=self.is_exact)

    def note(self, item: Chunk) -> None:
        """Note the last checkpoint of a chunk."""
        _, _, checked, current = item.checkpoints()
        if checked:
            self.pair, self.is_exact, self.is_known = (checked[-1], current[-1]), True, True


def verify(reader: Reader, *, progress: Progress | None = None) -> Report:
    """Check every record, the order of checkpoints, and the other files of the directory.

    Damage never raises. A file that we are not allowed to read raises `StorageFailed`.
    """
    report = Report("appendfile")
    with reader.snapshot() as files:
        order = _Order()
        for number, source, on_position in each_file(files, report, progress):
            last = files.files[number - 1]
            if number and last.generation != source.generation:
                before = [file for file in files.files[:number] if file.generation == last.generation]
                earlier = GenerationEnd.of(before, order.pair, order.is_exact, order.earlier)
                order = _Order(earlier=earlier, is_known=order.is_known)
            _FileCheck(reader, report, order, files, source).run(on_position)
    if not reader.is_single_file:
        _check_directory(reader, report)
    report_repairs(reader.disk, reader.directory, report, reader.part)
    return report


class _FileCheck(FileCheck):
    """The check of one file, and of its id."""

    def __init__(self, reader: Reader, report: Report, order: _Order, files: Files, source: JournalFile) -> None:
        super().__init__(report, files, source)
        self._reader = reader
        self._order = order
        for wrong in wrong_names(source):
            self.problem(0, *wrong)

    def check(self, file: File, on_position: OnPosition) -> None:
        """Go through the file."""
        empty = 0
        gap = self._order.lost_end(file, self.source)
        if gap is not None:
            self.problem(0, gap.kind, gap.reason)
        for item in self._reader.file_chunks(self.source, file, None, None, "permissive", on_position):
            self.position = item.end
            if isinstance(item, Damage):
                self._note_damage(item, file.size())
                self._order.is_exact = False
                continue
            self._order.note(item)
            self.report.records += item.count
            empty += _empty_records(item)
        if self.source.others:
            self._order.pair = None  # it is unknown which of them is right
        if empty:
            self.anomaly(0, "empty_record", f"{empty} records have no data: they cannot be distinguished from zeros")
        if file.size() > MAX_FILE_BYTES:
            message = f"it has {file.size()} bytes, and a file has at most {MAX_FILE_BYTES}"
            self.anomaly(MAX_FILE_BYTES, "large_file", message)

    def problem(self, position: int, kind: str, message: str) -> None:
        """Report a loss of records. The last ids of a file that cannot be read are unknown."""
        if kind == "unreadable":
            self._order.is_known = False
        super().problem(position, kind, message)

    def _note_damage(self, damage: Damage, size: int) -> None:
        if damage.kind == "torn_tail":
            message = torn_message(damage)
        elif damage.kind == "gap":
            message = f"{damage.reason}: checkpoints are missing between them, or these ids are wrong"
        elif damage.kind in ("truncated", "changed_file"):
            message = damage.reason
        elif damage.kind == "repeated":
            message = f"the first {damage.size} bytes of the file are there again; no writer does that"
        elif damage.end < size:
            message = f"{damage.reason}; whole records follow at {damage.end}"
        else:
            message = f"{damage.reason}; no whole record is found after that in this file"
        self.damage(damage, message)


def _empty_records(item: Chunk) -> int:
    if kernel.walk(item.data, item.start, item.stop, 0, -1, True)[2] != codec.EMPTY:
        return 0
    starts = item.starts()
    return sum(after - start == HEADER_BYTES for start, after in pairwise(starts))


def _check_directory(reader: Reader, report: Report) -> None:
    """Report other files in the directory, and leftovers of a recovery."""
    odd = report.odd_file
    listing = reader.listing()
    for lost in [] if listing.files else listing.lost:
        report.problems.append(Problem(lost.place, 0, "gap", lost.reason))
    for file in listing.left_behind:
        odd(file.name, "unfinished_move", "a recovery was interrupted before it had moved this; the next writer does")
    older = listing.older
    if older:
        waiting = "1 file waits" if len(older) == 1 else f"{len(older)} files wait"
        message = f"{waiting} to be recovered: the next program that opens the journal gets that first"
        odd(older[0].name, "recovery", message)
    for name in reader.disk.list_directory(reader.directory):
        if name.endswith(SUFFIX) and parse_name(name) is None:
            odd(name, "foreign_file", "this is no name of a file of a journal's")


# --- names, sizes, and both ends ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Survey(Survey):
    """The survey of the files."""

    first: dict[str, Any] | None = None
    last: tuple[JournalFile, Span, int] | None = None
    pair: tuple[int, int] | None = None


def summarize(reader: Reader) -> Summary:
    """What this is. Of a larger journal only the first `MOST_READ_BYTES` are read.

    If a first or last record is larger than `MOST_SHOWN_BYTES`, its data is None.
    """
    listing = reader.listing()
    with reader.snapshot() as files:
        look = _look(reader, files)
        pair = look.pair if look.complete else None
        details = {
            "checked": None if pair is None else pair[0],
            "current": None if pair is None else pair[1],
            "to_recover": len(listing.older),
            "kept_bytes": kept_bytes(reader.disk, reader.directory),
        }
        last = _last_record(reader, files, look)
        return look.summary("appendfile", reader, files, first=look.first, last=last, details=details)


def _look(reader: Reader, files: Files) -> _Survey:
    look = _Survey()
    look.go_through(
        files,
        lambda source, file: _named_items(reader, source, file),
        lambda chunk: _note(reader, look, chunk),
    )
    return look


def _named_items(reader: Reader, source: JournalFile, file: File) -> Iterator[Chunk | Damage]:
    """What a file has, behind what is wrong about its id."""
    yield from reader.report_names(source, "permissive")
    yield from reader.file_chunks(source, file, None, None, "permissive")


def _note(reader: Reader, look: _Survey, item: Chunk) -> None:
    starts = item.starts()
    _, _, checked, current = item.checkpoints()
    if checked:
        look.pair = (checked[-1], current[-1])
    look.records += item.count
    segment = kernel.walk(item.data, item.start, starts[-2] - item.base, item.segment)[3]
    look.last = (item.source, Span(starts[-2], starts[-1]), segment)
    if look.first is None:
        head = bytes(item.data[item.start : item.start + starts[1] - starts[0]])
        look.first = _shown(reader, item.source, Span(starts[0], starts[1]), head, item.segment)


def _last_record(reader: Reader, files: Files, look: _Survey) -> dict[str, Any] | None:
    """The last record, None if the check did not get that far."""
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
