"""Checking a journal: `verify` reads all of it, `summarize` only its header, its links and both ends.

A problem loses transactions, or the links to them: bytes that are not a transaction, an impossible link. An anomaly
loses nothing: the journal stays sound. A redo that is due is neither: a crash between two steps of a commit leaves it,
and the next `Database` does it. A problem never hides the next one: reading continues after it.

    problems    torn_tail malformed link seal flags unreadable
    anomalies   incomplete time_goes_back unlikely_time not_in_storage unreferenced unknown_flags repair
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ...core.bytes.outcome import Damage, Span
from ...core.format import Located
from ...core.io.disk import File
from ...core.io.quarantine import kept_bytes
from ...core.read.file_check import FileCheck, OnPosition, each_file, report_repairs, torn_message
from ...core.read.report import Progress, Report, Summary
from ...core.read.survey import MOST_SHOWN_BYTES, Survey
from ...core.times import NANOSECONDS, shown_time
from ..bytes.layout import COMPLETE, HEADER_BYTES, LAST_TIME
from ..bytes.records import OUTCOMES, Transaction
from .cursor import Chunk, decoded, read_transaction
from .files import JournalFile, OpenFiles, find_redo, measured, read_head
from .seal import CHANGED, holds, is_sealed

if TYPE_CHECKING:
    from .reader import Reader


# --- every transaction ------------------------------------------------------------------------------------------------


def verify(reader: Reader, *, progress: Progress | None = None) -> Report:
    """Check every transaction and every link, in both directions.

    Damage never raises. A file that we are not allowed to read raises `StorageFailed`.
    """
    report = Report("yeltsin")
    with reader.snapshot() as files:
        for _, source, on_position in each_file(files, report, progress):
            _FileCheck(reader, report, files, source).run(on_position)
    report_repairs(reader.disk, reader.directory, report, reader.part)
    return report


class _FileCheck(FileCheck):
    """The check of one file."""

    def __init__(self, reader: Reader, report: Report, files: OpenFiles, source: JournalFile) -> None:
        super().__init__(report, files, source)
        self._reader = reader
        self._last_time: int | None = None
        self._due = array("Q")
        """Completed transactions without the flag, as far as the next `Database` would redo them."""
        self._is_due_sealed = True
        """Whether the latest of these is sealed. Only the last transaction of the journal need not be."""

    def check(self, file: File, on_position: OnPosition) -> None:
        """Check the file."""
        self.position = HEADER_BYTES
        for item in self._reader.file_chunks(self.source, file, None, None, "permissive", on_position):
            if isinstance(item, Damage):
                self._note_damage(item)
            else:
                self._check_chunk(item)

    def _note_damage(self, damage: Damage) -> None:
        if damage.kind == "torn_tail":
            message = torn_message(damage)
        elif damage.kind == "link":
            message = damage.reason
        else:
            message = f"{damage.reason} ({damage.size} bytes)"
        self.damage(damage, message)
        if damage.kind != "link":
            self.position = damage.end

    def _check_chunk(self, chunk: Chunk) -> None:
        if chunk.position > self.position:
            unknown = chunk.position - self.position
            self.anomaly(self.position, "unreferenced", f"{unknown} bytes here belong to no transaction")
        self.report.records += chunk.count
        self.position = chunk.end
        starts = chunk.starts()
        for record, (start, end) in zip(decoded(chunk), pairwise(starts), strict=True):
            self._check_transaction(record, start)
            if is_sealed(record.end_data):
                self._check_sealed(record, start, chunk.data[start - chunk.base : end - chunk.base])

    def _check_transaction(self, record: Transaction, start: int) -> None:
        timestamp, flags = record.timestamp, record.flags
        self._check_flag(record, start)
        if not 0 <= timestamp <= LAST_TIME:
            self.anomaly(start, "unlikely_time", f"it was created at {shown_time(timestamp * NANOSECONDS)}")
        if self._last_time is not None and timestamp < self._last_time:
            created, before = (shown_time(time * NANOSECONDS) for time in (timestamp, self._last_time))
            message = f"it was created at {created}, earlier than the one before it, at {before}"
            self.anomaly(start, "time_goes_back", message)
        if flags & ~COMPLETE and not is_sealed(record.end_data):
            self.anomaly(start, "unknown_flags", f"its flags are {flags:#04x}, of which only the lowest is known")
        if record.end is None:
            self.anomaly(start, "incomplete", "it has no end, and another one follows it: it is void")
        self._last_time = timestamp

    def _check_sealed(self, record: Transaction, start: int, data: memoryview) -> None:
        if not holds(record, data):
            self.problem(start, "seal", CHANGED)
        if record.flags & ~COMPLETE:
            self.problem(start, "flags", f"its flags are {record.flags:#04x}, and its writer sets only the lowest")

    def _check_flag(self, record: Transaction, start: int) -> None:
        """Of the transactions without the flag, the last one is redone, and those before it that are sealed (see
        `seal.py`).
        """
        if record.outcome == "rolled_back":
            return
        if not record.redo_is_due or not self._is_due_sealed:
            message = "it is complete, but not flagged as stored, although other transactions follow it"
            for position in self._due:
                self.anomaly(position, "not_in_storage", message)
            del self._due[:]
        if record.redo_is_due:
            self._due.append(start)
            self._is_due_sealed = is_sealed(record.end_data)
        else:
            self._is_due_sealed = True


# --- both ends --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Survey(Survey):
    """The survey of the file."""

    first: Span | None = None
    last: Span | None = None

    def note(self, item: Chunk) -> None:
        """Record the transactions of a chunk."""
        starts = item.starts()
        self.records += item.count
        self.first = self.first or Span(starts[0], starts[1])
        self.last = Span(starts[-2], starts[-1])


def summarize(reader: Reader) -> Summary:
    """What this is. Of a larger journal only the first `MOST_READ_BYTES` are read.

    If a first or last transaction is larger than `MOST_SHOWN_BYTES`, its operations are not read and are None.
    """
    first: dict[str, Any] | None = None
    last: dict[str, Any] | None = None
    redo: int | None = None
    with reader.snapshot() as files:
        look = _look(reader, files)
        for source in files.files:
            if look.first is not None:
                first = _shown(reader, files, source, look.first)
            if look.last is not None and look.complete:
                last = _shown(reader, files, source, look.last)
                redo = find_redo(files.file(source), look.last.start, files.size(source))
        details = {
            "redo": redo is not None if look.complete else None,
            "kept_bytes": kept_bytes(reader.disk, reader.directory, f"{reader.part}."),
        }
        return look.summary("yeltsin", reader, files, first=first, last=last, details=details)


def _look(reader: Reader, files: OpenFiles) -> _Survey:
    look = _Survey()
    look.go_through(
        files, lambda source, file: reader.file_chunks(source, file, None, None, "permissive", load=False), look.note
    )
    return look


def _shown(reader: Reader, files: OpenFiles, source: JournalFile, span: Span) -> dict[str, Any]:
    """A transaction as JSON; a large one without its operations."""
    file = files.file(source)
    if span.size <= MOST_SHOWN_BYTES:
        return reader.as_json(Located(read_transaction(file, source, span.start), source.name, span))
    head, found = read_head(file, span.start), measured(file, span.start, span.end)
    assert head is not None
    assert found is not None
    return {
        "file": source.name,
        "position": span.start,
        "size": span.size,
        "previous": head.previous,
        "next": head.next,
        "timestamp": head.timestamp,
        "flags": head.flags,
        "complete": head.complete,
        "outcome": OUTCOMES[found.kind or None],
        "operations": None,
    }
