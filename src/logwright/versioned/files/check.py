"""Checking the journals of a store: `verify` goes through all of them, `summarize` looks at names, sizes and both ends.

A problem is something that costs entries: bytes that are none, an archive that cannot be decompressed or whose checksum
does not fit, a time of which nothing is kept between two journals or after the last archive. An anomaly is odd and
costs nothing: the store stays sound. What is wrong in one place never hides the next: reading continues after it.

    problems    torn_tail malformed checksum time_goes_back unreadable gap
    anomalies   behind_position unknown_fields name leftover temporary_file foreign_file repair
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...core.bytes.outcome import Damage, Span
from ...core.format import Located
from ...core.io.disk import File
from ...core.io.quarantine import kept_bytes
from ...core.read.file_check import FileCheck, OnPosition, each_file, report_repairs, torn_message
from ...core.read.report import Problem, Progress, Report, Summary
from ...core.read.snapshot import Snapshot
from ...core.read.survey import MOST_READ_BYTES, MOST_SHOWN_BYTES, Survey
from ...core.times import shown_time
from ...errors import LogwrightError
from ..bytes import kernel
from ..bytes.layout import JOURNAL_SUFFIX
from .cursor import Chunk, Head
from .files import (
    JournalFile,
    active_name,
    archive_name,
    old_name,
    parse_name,
    temporary_archive_name,
    temporary_name,
)
from .surroundings import stands_in

if TYPE_CHECKING:
    from .reader import Reader

_BEHIND_BYTES: Final = 64 << 10


# --- every entry ------------------------------------------------------------------------------------------------------


def verify(reader: Reader, *, progress: Progress | None = None) -> Report:
    """Check every entry, that the files follow each other, and what is beside them.

    Whatever is there, the answer is a report; where we may not look there is none (`StorageFailed`).
    """
    report = Report("versioned")
    last: int | None = None
    with reader.snapshot() as files:
        for number, source, on_position in each_file(files, report, progress):
            check = _FileCheck(reader, report, files, source, number, last)
            check.run(on_position)
            last = check.last
        gap = reader.gap_after(files.files)
        if gap is not None:
            report.problems.append(Problem(gap.file, gap.start, gap.kind, gap.reason))
    if not reader.is_single_file:
        _check_names(reader, report)
    report_repairs(reader.disk, reader.directory, report, reader.part)
    return report


class _FileCheck(FileCheck):
    """The check of one file."""

    def __init__(
        self,
        reader: Reader,
        report: Report,
        files: Snapshot[JournalFile],
        source: JournalFile,
        number: int,
        last_before: int | None,
    ) -> None:
        super().__init__(report, files, source)
        self._reader = reader
        self._number = number
        self._last_before = last_before
        self._begun = 0
        self._last = 0
        self._whole = True

    @property
    def last(self) -> int | None:
        """The time of the last entry, or of the beginning; None if the file is damaged."""
        return max(self._begun, self._last) if self._whole else None

    def check(self, file: File, on_position: OnPosition) -> None:
        """Go through the file."""
        for item in self._reader.file_items(self.source, file, None, None, "permissive", on_position):
            if isinstance(item, Damage):
                self._note_damage(item)
            elif isinstance(item, Head):
                self._check_head(item)
            else:
                self._check_chunk(item)
        if self._whole:
            self._check_end()

    def _note_damage(self, damage: Damage) -> None:
        self._whole = False
        self.position = damage.end
        if damage.kind == "torn_tail":
            message = torn_message(damage)
        elif damage.kind == "checksum":
            message = f"{damage.reason}; any of its entries may be wrong"
        else:
            message = f"{damage.reason} ({damage.size} bytes)"
        self.damage(damage, message)

    def _check_head(self, head: Head) -> None:
        self.position = head.span.end
        metadata = head.metadata
        if metadata is None:
            return
        self._begun = metadata.initialized
        if metadata.extra:
            self.anomaly(head.span.start, "unknown_fields", f"unknown fields: {', '.join(metadata.extra)}")
        if self._number == 0:
            return
        gap: Damage | None = None
        with contextlib.suppress(LogwrightError):  # the one before cannot be read, and its own check says so
            gap = self._reader.gap_before(self.files, self._number, self._last_before)
        before = self.files.files[self._number - 1]
        if gap is not None:
            self.problem(head.span.start, "gap", gap.reason)
        elif metadata.initialized < (before.ended or 0):
            message = f"it was initialized at {shown_time(metadata.initialized)}, before {before.name} ended"
            self.anomaly(head.span.start, "name", message)

    def _check_chunk(self, chunk: Chunk) -> None:
        self.report.records += chunk.count
        self.position = chunk.end
        self._last = max(self._last, chunk.largest)

    def _check_end(self) -> None:
        """All entries are whole: whether the name fits them, and whether entries follow the position."""
        source = self.source
        if source.compressed:
            ended = source.timestamp
            if ended is not None and ended < self._last:
                self.anomaly(0, "name", f"its last entry is of {shown_time(self._last)}, later than its name says")
            return
        behind = self.files.file(source).read_at(self.position, _BEHIND_BYTES)
        _, count, _, _, _ = kernel.walk(behind, 0, len(behind))
        if count:
            message = f"{count} whole entries follow the position: they do not count, and were never acknowledged"
            self.anomaly(self.position, "behind_position", message)


def _check_names(reader: Reader, report: Report) -> None:
    """What is stored beside the files that count."""
    odd = report.odd_file
    listing = reader.listing()
    active = active_name(reader.store)
    counting = {source.name for source in reader.files()}
    reason = stands_in(reader.disk, listing)
    if reason:
        kind = "gap" if not listing.has_active else "malformed" if _has_bytes(reader, active) else "torn_tail"
        message = f"{reason}: the journal before it, .old, is used in its place, and later changes may be missing"
        report.problems.append(Problem(active, 0, kind, message))
    for timestamp in listing.archives:
        name = archive_name(reader.store, timestamp)
        if name not in counting:
            odd(name, "leftover", "an archive of .old that was not finished; the next writer makes it again")
    if listing.has_old:
        odd(old_name(reader.store), "leftover", "a rotation was not finished; the next writer finishes it")
    if listing.has_temporary:
        odd(temporary_name(reader.store), "temporary_file", "a leftover; the next writer removes it")
    for timestamp in listing.temporary_archives:
        name = temporary_archive_name(reader.store, timestamp)
        odd(name, "temporary_file", "an archive that was not finished; the next writer makes it again")
    for name in reader.disk.list_directory(reader.directory):
        if name.startswith(reader.store + JOURNAL_SUFFIX + ".") and parse_name(name) is None:
            odd(name, "foreign_file", "this is not the name of a file of a store")


def _has_bytes(reader: Reader, name: str) -> bool:
    """Whether a file begins with anything but zeros, or is none that can be read."""
    try:
        file = reader.disk.open(reader.directory / name, "read")
    except LogwrightError:
        return True
    try:
        return any(file.read_at(0, _BEHIND_BYTES))
    finally:
        file.close()


# --- names, sizes, and both ends ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Survey(Survey):
    """What a look at the files has found."""

    first: dict[str, Any] | None = None
    last: dict[str, Any] | None = None
    initialized: int | None = None


def summarize(reader: Reader) -> Summary:
    """What this is. Of a larger store only the first `MOST_READ_BYTES` are read.

    The value of a first or last entry of more than `MOST_SHOWN_BYTES` is None in its place.
    """
    with reader.snapshot() as files:
        look = _look(reader, files)
        details = _details(reader, files.files, look)
        return look.summary("versioned", reader, files, first=look.first, last=look.last, details=details)


def _details(reader: Reader, files: list[JournalFile], look: _Survey) -> dict[str, Any]:
    listing = reader.listing()
    leftovers = [name for name, there in _leftovers(reader, listing) if there]
    return {
        "store": reader.store,
        "archives": sum(source.compressed for source in files),
        "history_from": look.initialized,
        "leftovers": [] if reader.is_single_file else leftovers,
        "kept_bytes": kept_bytes(reader.disk, reader.directory, reader.store + JOURNAL_SUFFIX),
    }


def _leftovers(reader: Reader, listing: Any) -> list[tuple[str, bool]]:
    found = [(old_name(reader.store), listing.has_old), (temporary_name(reader.store), listing.has_temporary)]
    return found + [(temporary_archive_name(reader.store, stamp), True) for stamp in listing.temporary_archives]


def _look(reader: Reader, files: Snapshot[JournalFile]) -> _Survey:
    look = _Survey()
    done = 0
    for number, source in enumerate(files.files):
        if done >= MOST_READ_BYTES:
            look.complete = False
            break
        with look.reading(source.name):
            for item in reader.file_items(source, files.file(source), None, None, "permissive"):
                _note(reader, look, item)
                if isinstance(item, Head) and (gap := reader.gap_before(files, number)) is not None:
                    look.note_damage(gap)
                if isinstance(item, Chunk) and done + item.end >= MOST_READ_BYTES:
                    look.complete = False
                    break
            done += files.size(source)
    gap = reader.gap_after(files.files)
    if gap is not None:
        look.note_damage(gap)
    return look


def _note(reader: Reader, look: _Survey, item: Head | Chunk | Damage) -> None:
    if isinstance(item, Damage):
        look.note_damage(item)
    elif isinstance(item, Head):
        if look.initialized is None and item.metadata is not None:
            look.initialized = item.metadata.initialized
    else:
        starts = item.starts()
        look.records += item.count
        look.first = look.first or _shown(reader, item, Span(starts[0], starts[1]))
        look.last = _shown(reader, item, Span(starts[-2], starts[-1]))


def _shown(reader: Reader, chunk: Chunk, span: Span) -> dict[str, Any]:
    """An entry as JSON; a large one without its value."""
    base = chunk.base
    (entry,) = kernel.entries(chunk.data, span.start - base, span.end - base, 1)
    found = reader.as_json(Located(entry, chunk.file, span))
    return found if span.size <= MOST_SHOWN_BYTES else {**found, "o": None}
