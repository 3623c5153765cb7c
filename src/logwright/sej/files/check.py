"""Checking a sej journal: `verify` reads every byte, `summarize` only names, sizes and both ends.

A problem loses messages or the position of a consumer: bytes that are not a message, missing offsets, a block that does
not match its checksum, an offset file that cannot be read. An anomaly loses nothing: the journal stays sound. A problem
never hides the next one: reading continues after it.

    problems    torn_tail malformed unexpected_offset gap overlap truncated missing_segment checksum offset_file
                unreadable repair
    anomalies   timestamp empty_segment doubled_name index checksum_file consumer_ahead consumer_behind side_file
                leftover foreign_file lock_file repair (of a log that cannot be read)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from operator import gt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...core.bytes.outcome import Damage, Span
from ...core.format import Located
from ...core.io.disk import Disk, File
from ...core.io.quarantine import kept_bytes
from ...core.read.file_check import report_repairs
from ...core.read.report import Problem, Progress, Report, Summary
from ...core.read.survey import MOST_SHOWN_BYTES, Survey
from ...core.repair.plan import TEMPORARY_SUFFIX
from ...errors import DamagedJournal, LogwrightError, NotFound, StorageFailed, is_refusal
from ..bytes import codec, kernel
from ..bytes.layout import (
    CHECKSUM_SUFFIX,
    HEAD,
    INDEX_DIRECTORY,
    INDEX_SUFFIX,
    LOCK_NAME,
    MAX_KEY_BYTES,
    NO_TIMESTAMP,
    OFFSET_DIRECTORY,
    OFFSET_LOCK_SUFFIX,
    OFFSET_SUFFIX,
    OVERHEAD,
    SEGMENT_DIRECTORY,
    VALUE_SIZE,
)
from ..bytes.records import Message
from .checksums import CheckedFile, checksum_path
from .ending import End, damage_of_last_block, find_end, plausible_last
from .index import ENTRY_BYTES, HEADER_BYTES, Entry, Index, Stretch, header_of, index_path, last_timestamp
from .lost import count_known
from .missing import find_following, find_missing
from .offset_file import passed_from, read_consumers, stored_offset
from .segment import Chunk, Cursor, Segment, find_truncation, judge, message_span, open_segment, step_back, unchecked

if TYPE_CHECKING:
    from .reader import Reader


# --- every byte -----------------------------------------------------------------------------------------------------


def verify(reader: Reader, *, progress: Progress | None = None) -> Report:
    """Check every byte of every segment, and the other files of the journal.

    Damage never raises. A file that we are not allowed to read raises `StorageFailed`.
    """
    report = Report("sej")
    segments = reader.segments()
    sizes = [_size_or_nothing(reader, segment) for segment in segments]
    report.bytes = sum(sizes)
    expected: int | None = None
    ends: dict[str, int] = {}
    times = _Times(report)
    after_last = None if reader.is_single_file else find_following(reader.disk, reader.directory, segments)
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        following = after_last if is_last else segments[number + 1]
        _check_transition(reader, report, segments, number, expected)
        if not is_last and sizes[number] == 0:
            message = "no message is in it, and another segment follows"
            report.anomalies.append(Problem(segment.name, 0, "empty_segment", message))
        check = _SegmentCheck(reader, report, times, segment, following, is_last)
        expected = ends[segment.name] = check.run(progress, sum(sizes[:number]), report.bytes)
    if not reader.is_single_file:
        _check_missing(reader, report, segments, ends)
        _check_other_files(reader.disk, reader.directory, segments, expected, report)
    return report


def _size_or_nothing(reader: Reader, segment: Segment) -> int:
    """The size of a segment; 0 if it cannot be read, which reading it will report."""
    try:
        return reader.disk.file_size(segment.path)
    except LogwrightError:
        return 0


def _check_transition(
    reader: Reader, report: Report, segments: list[Segment], number: int, expected: int | None
) -> None:
    """Whether a segment continues where the preceding one ended. A gap in the account of losses is not a problem."""
    segment = segments[number]
    first = segment.first_offset
    if number and segments[number - 1].first_offset == first:
        message = f"it has the same offset as {segments[number - 1].name}"
        report.anomalies.append(Problem(segment.name, 0, "doubled_name", message))
    if expected is None or first == expected:
        return
    if first > expected:
        if reader.gap_before(segment, expected).kind == "lost":
            return
        message = f"the segment begins with offset {first} where {expected} was expected: {_lost(expected, first)}"
        report.problems.append(Problem(segment.name, 0, "gap", message))
    else:
        message = f"the segment begins with offset {first}, but the one before it goes up to {expected - 1}"
        report.problems.append(Problem(segment.name, 0, "overlap", message))


def _check_missing(reader: Reader, report: Report, segments: list[Segment], ends: dict[str, int]) -> None:
    """Segments of which only other files are left, unless a gap or other damage there is reported or known."""
    bad = {problem.file for problem in report.problems}
    for missing in find_missing(reader.disk, reader.directory, segments):
        number = bisect_left(segments, missing.first_offset, key=lambda segment: segment.first_offset)
        if number < len(segments):
            preceding, following = segments[number - 1].name, segments[number].name
            if {preceding, following} & bad or ends[preceding] <= missing.first_offset:
                continue
        message = f"{missing.reason}; lost: {missing.what}"
        report.problems.append(Problem(missing.name, 0, "missing_segment", message))


def _lost(first: int, after: int) -> str:
    """The messages between two offsets, in words."""
    if after <= first:
        return "no message is missing"
    return f"message {first} is missing" if after == first + 1 else f"messages {first} to {after - 1} are missing"


class _SegmentCheck:
    """One segment: its messages, its index, its checksums."""

    def __init__(
        self, reader: Reader, report: Report, times: _Times, segment: Segment, following: Segment | None, is_last: bool
    ) -> None:
        self._reader = reader
        self._report = report
        self._times = times
        self._segment = segment
        self._following = following
        self._is_last = is_last

    def run(self, progress: Progress | None, before: int, total: int) -> int:
        """Check it; the offset that the next segment should begin with."""
        segment = self._segment
        position = 0
        expected = segment.first_offset
        try:
            file = self._reader.open_file(segment, quiet=True)
            try:
                plain = unchecked(file)
                index = _IndexCheck(self._reader, self._report, segment, plain)
                cursor = Cursor(plain, segment, 0, expected)
                cursor.covered_end = file.checksums.covered_end if isinstance(file, CheckedFile) else 0
                goes_on = True
                while goes_on:
                    while (chunk := cursor.read()) is not None:
                        position, expected = cursor.position, cursor.expected
                        self._report.records += chunk.count
                        self._times.note(chunk)
                        index.note(chunk)
                        if progress is not None:
                            progress(before + position, total)
                    goes_on, expected = self._pass(cursor, index)
                index.finish(cursor, plain.size())
                self._check_sums(file)
            finally:
                file.close()
        except (StorageFailed, NotFound) as error:
            if is_refusal(error):
                raise
            self._problem(position, "unreadable", str(error))
            most = expected + _size_or_nothing(self._reader, segment) // OVERHEAD
            expected = self._following.first_offset if self._following is not None else most
        self._times.finish(segment)
        return expected

    def _pass(self, cursor: Cursor, index: _IndexCheck) -> tuple[bool, int]:
        """Report why the cursor stopped; whether it continues, and the offset that is expected next."""
        expected = cursor.expected
        if cursor.ending == codec.CLEAN:
            truncation = find_truncation(cursor, self._following) if self._is_last else None
            if truncation is not None:
                self._problem(truncation.start, truncation.kind, f"{truncation.reason}; {self._rest_lost(expected)}")
            return False, expected
        if self._following is None and cursor.ending == codec.INCOMPLETE and _has_grown(cursor):
            return True, expected
        damage, goes_on_at = judge(cursor, self._following)
        index.lose_track()
        if damage.kind == "torn_tail":
            self._problem(damage.start, "torn_tail", f"{damage.reason}; the last {damage.size} bytes are a torn tail")
            return False, expected
        if goes_on_at is None:
            self._problem(damage.start, damage.kind, f"{damage.reason}; {self._rest_lost(expected)}")
            return False, self._following.first_offset if self._following is not None else expected
        lost = _lost(expected, goes_on_at)
        where = "" if damage.kind == "gap" else f"; the next whole message is at {damage.end}"
        self._problem(damage.start, damage.kind, f"{damage.reason}; {lost}{where}")
        return True, goes_on_at

    def _rest_lost(self, expected: int) -> str:
        """Report what is lost if the rest of this segment cannot be read."""
        if self._following is None or expected > self._following.first_offset:
            return f"whatever comes from offset {expected} on is missing"
        return f"nothing whole follows in this file: {_lost(expected, self._following.first_offset)}"

    def _check_sums(self, file: File) -> None:
        if not isinstance(file, CheckedFile):
            return
        for block in file.bad_blocks(0, file.size()):
            self._problem(block.start, "checksum", f"the checksum of the block of {block.size} bytes does not match")
        side_name = self._segment.name + CHECKSUM_SUFFIX
        if file.checksums.unreadable:
            self._report.problems.append(Problem(side_name, 0, "unreadable", file.checksums.unreadable))
            return
        for note in file.notes():
            self._report.anomalies.append(Problem(side_name, note.position, "checksum_file", note.message))

    def _problem(self, position: int, kind: str, message: str) -> None:
        self._report.problems.append(Problem(self._segment.name, position, kind, message))


def _has_grown(cursor: Cursor) -> bool:
    """Whether a writer has meanwhile completed the message at which the cursor stopped."""
    head = cursor.file.read_at(cursor.position, HEAD.size + MAX_KEY_BYTES + VALUE_SIZE.size)
    size = codec.claimed_size(head, 0, len(head))
    return size is not None and cursor.position + size <= cursor.file.size()


@dataclass(slots=True)
class _Times:
    """Finds timestamps that decrease, and reports them once for each segment."""

    report: Report
    _previous: int = NO_TIMESTAMP
    _count: int = 0
    _position: int = 0

    def note(self, chunk: Chunk) -> None:
        columns = kernel.columns(chunk.data, chunk.start, chunk.stop, chunk.count, codec.TIMESTAMPS)
        assert columns.timestamps is not None
        stamps: Any = memoryview(columns.timestamps).cast("q")[: chunk.count]
        if columns.untimed:
            stamps = [stamp for stamp in stamps if stamp != NO_TIMESTAMP]
        if not stamps:
            return
        back = int(self._previous > stamps[0]) + sum(map(gt, stamps[:-1], stamps[1:]))
        if back and not self._count:
            self._position = self._first_back(chunk)
        self._count += back
        self._previous = stamps[-1]

    def _first_back(self, chunk: Chunk) -> int:
        """Where the first message of a chunk is that is earlier than the one before."""
        previous = self._previous
        starts = kernel.spans(chunk.data, chunk.start, chunk.stop, chunk.count)
        for start in starts[:-1]:
            timestamp: int = HEAD.unpack_from(chunk.data, start)[1]
            if timestamp != NO_TIMESTAMP:
                if timestamp < previous:
                    return chunk.base + start
                previous = timestamp
        return chunk.position

    def finish(self, segment: Segment) -> None:
        if self._count:
            message = f"{self._count} messages are earlier than the one before them, the first of them here"
            if self._count == 1:
                message = "the message is earlier than the one before it"
            self.report.anomalies.append(Problem(segment.name, self._position, "timestamp", message))
        self._count = 0


# --- the index ------------------------------------------------------------------------------------------------------


class _IndexCheck:
    """Compares the index of a segment with its messages while they are read."""

    def __init__(self, reader: Reader, report: Report, segment: Segment, file: File) -> None:
        self._stretch: Stretch | None = Stretch()  # None after damage: the messages there are unknown
        self._report = report
        self._name = f"{INDEX_DIRECTORY}/{index_path(segment).name}"
        self._entries: list[Entry] = []
        self._next = 0
        self._wrong: list[int] = []
        path = index_path(segment)
        if reader.is_single_file or not reader.disk.exists(path):
            return
        index_bytes = reader.disk.file_size(path)  # before the segment's own: a writer is in the segment first
        index = Index.load(reader.disk, segment, file.size())
        self._entries = [] if index is None else index.entries
        if not _begins_with(reader.disk, path, header_of(segment)):
            self._anomaly(0, "this is not an index of the segment")
        elif len(self._entries) < (index_bytes - HEADER_BYTES) // ENTRY_BYTES:
            at = HEADER_BYTES + ENTRY_BYTES * len(self._entries)
            self._anomaly(at, "the entries from here on are damaged, out of order, or beyond the end of the segment")

    def lose_track(self) -> None:
        """Damage was passed: what the next entry says of the times before it cannot be compared."""
        self._stretch = None

    def note(self, chunk: Chunk) -> None:
        at, offset, after = chunk.start, chunk.first_offset, chunk.first_offset + chunk.count
        while self._next < len(self._entries) and self._entries[self._next].offset < after:
            entry = self._entries[self._next]
            if entry.offset >= offset and not entry.is_end:
                at, offset = self._compare(chunk, at, offset, entry), entry.offset
            elif self._stretch is not None or entry.is_end:
                self._wrong.append(self._next)
            self._next += 1
        if self._stretch is not None:
            self._stretch.add(*kernel.walk(chunk.data, at, chunk.stop, offset)[3:])

    def _compare(self, chunk: Chunk, at: int, offset: int, entry: Entry) -> int:
        """Go on to an entry's message, and compare; where that message is in the chunk."""
        at, _, _, smallest, largest = kernel.walk(chunk.data, at, chunk.stop, offset, entry.offset - offset)
        position, timestamp = chunk.base + at, HEAD.unpack_from(chunk.data, at)[1]
        if self._stretch is None:
            found = entry._replace(position=position, timestamp=timestamp)
        else:
            self._stretch.add(smallest, largest)
            found = self._stretch.end_at(entry.offset, position, timestamp)
        if found != entry:
            self._wrong.append(self._next)
        self._stretch = Stretch(position)
        return at

    def finish(self, cursor: Cursor, size: int) -> None:
        """The segment has been passed: what the index says of its end, and beyond."""
        if self._stretch is not None and self._next < len(self._entries):
            end = self._stretch.end_at(cursor.expected, size, last_timestamp(cursor.file, size), is_end=True)
            self._wrong += [n for n in range(self._next, len(self._entries)) if self._entries[n] != end]
        if self._wrong:
            first = self._wrong[0]
            message = f"{len(self._wrong)} of {len(self._entries)} entries do not agree with the segment"
            self._anomaly(HEADER_BYTES + ENTRY_BYTES * first, f"{message}, the first of them here")

    def _anomaly(self, position: int, message: str) -> None:
        self._report.anomalies.append(Problem(self._name, position, "index", message))


def _begins_with(disk: Disk, path: Path, header: bytes) -> bool:
    try:
        file = disk.open(path, "read")
    except LogwrightError:
        return False
    try:
        return file.read_at(0, len(header)) == header
    finally:
        file.close()


# --- names, sizes, and both ends ------------------------------------------------------------------------------------


def _count(reader: Reader, first: int, following: int) -> int | None:
    """How many messages there are, by their offsets and the account of losses; None if that is damaged."""
    try:
        losses = reader.losses()
    except DamagedJournal:
        return None
    return following - first - count_known(losses, first, following)


@dataclass(slots=True)
class _Survey(Survey):
    """The survey of the segments."""

    bytes: int = 0
    following: int = 0


def summarize(reader: Reader) -> Summary:
    """What this is, quickly, by the names, the sizes, and both ends of each segment.

    If a first or last message is larger than `MOST_SHOWN_BYTES`, its value is not read and is None.
    """
    segments = reader.segments()
    look = _look(reader, segments)
    first_offset = segments[0].first_offset if segments else 0
    details: dict[str, Any] = {
        "segments": len(segments),
        "first_offset": first_offset,
        "next_offset": look.following,
        "consumers": read_consumers(reader),
        "indexes": sum(reader.disk.exists(index_path(segment)) for segment in segments),
        "checksums": sum(reader.disk.exists(checksum_path(segment.path)) for segment in segments),
        "kept_bytes": kept_bytes(reader.disk, reader.directory),
    }
    return Summary(
        format="sej",
        path=str(reader.path),
        files=len(segments),
        bytes=look.bytes,
        records=None if look.damage is not None else _count(reader, first_offset, look.following),
        first=_if_readable(_first_record, reader, segments),
        last=_if_readable(_last_record, reader, segments),
        health=look.health,
        damaged=look.damage is not None,
        details=details,
    )


def _look(reader: Reader, segments: list[Segment]) -> _Survey:
    look = _Survey()
    for number, segment in enumerate(segments):
        following = segments[number + 1] if number + 1 < len(segments) else None
        with look.reading(segment.name):
            look.following = _look_at(reader, look, segment, following)
    return look


def _look_at(reader: Reader, look: _Survey, segment: Segment, following: Segment | None) -> int:
    """Check both ends of a segment; the offset after its last message."""
    file = open_segment(reader.disk, segment)
    try:
        size = file.size()
        look.bytes += size
        head = file.read_at(0, HEAD.size)
        if following is None:
            end = find_end(reader.disk, segment, file)
            bad_block = damage_of_last_block(reader.disk, segment, file, end)
            look.torn, look.damage = end.torn, look.damage or end.damage or bad_block
            reader.torn_tail = end.torn
        else:
            last = plausible_last(file, size, segment)
            end = End(size, segment.first_offset if last is None else last + 1)
            is_joined = end.next_offset == following.first_offset
            if not is_joined and reader.gap_before(following, end.next_offset).kind != "lost":
                reason = f"its messages do not lead to offset {following.first_offset}, where the next one begins"
                look.damage = look.damage or Damage(segment.name, size, size, reason)
        if end.position and len(head) == HEAD.size and HEAD.unpack(head)[0] != segment.first_offset:
            reason = f"the offset is {HEAD.unpack(head)[0]} where {segment.first_offset} was expected"
            look.damage = look.damage or Damage(segment.name, 0, 0, reason)
        return end.next_offset
    finally:
        file.close()


def _first_record(reader: Reader, segments: list[Segment]) -> dict[str, Any] | None:
    for segment in segments:
        file = open_segment(reader.disk, segment)
        try:
            size = file.size()
            if size:
                head = file.read_at(0, HEAD.size + MAX_KEY_BYTES + VALUE_SIZE.size)
                if (codec.claimed_size(head, 0, len(head)) or 0) <= MOST_SHOWN_BYTES:
                    break
                found = message_span(file, 0, size)
                return _without_value(reader, segment, file, found, segment.first_offset)
        finally:
            file.close()
    first = reader.first
    for item in reader.scan(first, first + 1):
        if isinstance(item, Located):
            return reader.as_json(item)
    return None


def _last_record(reader: Reader, segments: list[Segment]) -> dict[str, Any] | None:
    following: Segment | None = None
    for segment in reversed(segments):
        file = open_segment(reader.disk, segment)
        try:
            end = find_end(reader.disk, segment, file)
            found = step_back(file, end.position)
            if found is not None and found[1].size > MOST_SHOWN_BYTES:
                if following is not None and (end.torn is not None or end.next_offset != following.first_offset):
                    return None
                return _without_value(reader, segment, file, found, end.next_offset - 1)
            if end.position:
                break
        finally:
            file.close()
        following = segment
    return next((reader.as_json(item) for item in reader.last(1)), None)


def _without_value(
    reader: Reader, segment: Segment, file: File, found: tuple[int, Span] | None, expected: int
) -> dict[str, Any] | None:
    """A large message as JSON, without its value; None if it is not the expected one."""
    if found is None or found[0] != expected:
        return None
    span = found[1]
    head = file.read_at(span.start, HEAD.size + MAX_KEY_BYTES)
    offset, timestamp, type_, key_size = HEAD.unpack_from(head)
    key = head[HEAD.size : HEAD.size + key_size]
    message = Message(offset, None if timestamp == NO_TIMESTAMP else timestamp, type_, key, b"")
    return {**reader.as_json(Located(message, segment.name, span)), "value": None}


def _if_readable(
    record: Callable[[Reader, list[Segment]], dict[str, Any] | None], reader: Reader, segments: list[Segment]
) -> dict[str, Any] | None:
    """A record that a summary shows, None where damage is in its place."""
    try:
        return record(reader, segments)
    except LogwrightError as error:
        if is_refusal(error):
            raise
        return None


# --- other files ------------------------------------------------------------------------------------------------------


_LEFTOVERS: Final = (".tmp", TEMPORARY_SUFFIX)


def _check_other_files(
    disk: Disk, directory: Path, segments: list[Segment], following: int | None, report: Report
) -> None:
    """Check everything but the segments; `following` is the offset after the last message."""
    first = segments[0].first_offset if segments else 0
    _check_segment_names(disk, directory, segments, report)
    _check_index_names(disk, directory, segments, report)
    _check_offsets(disk, directory, first, first if following is None else following, report)
    _check_lock(disk, directory, LOCK_NAME, report)
    report_repairs(disk, directory, report)


def _names(disk: Disk, directory: Path, folder: str) -> list[str]:
    return disk.list_directory(directory / folder) if disk.is_directory(directory / folder) else []


def _odd(report: Report, file: str, kind: str, message: str, position: int = 0) -> None:
    report.anomalies.append(Problem(file, position, kind, message))


def _check_segment_names(disk: Disk, directory: Path, segments: list[Segment], report: Report) -> None:
    known = {segment.path.name for segment in segments}
    for name in _names(disk, directory, SEGMENT_DIRECTORY):
        file = f"{SEGMENT_DIRECTORY}/{name}"
        if name in known or name.removesuffix(CHECKSUM_SUFFIX) in known:
            continue
        if name.endswith(_LEFTOVERS):
            _odd(report, file, "leftover", "a temporary file that was left behind")
        elif name.endswith(CHECKSUM_SUFFIX):
            _odd(report, file, "side_file", "checksums of a segment that is not there")
        else:
            _odd(report, file, "foreign_file", "this is no segment's name")


def _check_index_names(disk: Disk, directory: Path, segments: list[Segment], report: Report) -> None:
    known = {index_path(segment).name for segment in segments}
    for name in _names(disk, directory, INDEX_DIRECTORY):
        file = f"{INDEX_DIRECTORY}/{name}"
        if name in known:
            continue
        if name.endswith(_LEFTOVERS):
            _odd(report, file, "leftover", "a temporary file that was left behind")
        elif name.endswith(INDEX_SUFFIX):
            _odd(report, file, "side_file", "the index of a segment that is not there")
        else:
            _odd(report, file, "foreign_file", "this is no index's name")


def _check_offsets(disk: Disk, directory: Path, first: int, following: int, report: Report) -> None:
    for name in _names(disk, directory, OFFSET_DIRECTORY):
        file = f"{OFFSET_DIRECTORY}/{name}"
        if name.endswith(OFFSET_SUFFIX):
            _check_offset(disk, directory, name.removesuffix(OFFSET_SUFFIX), first, following, report)
        elif name.endswith(OFFSET_LOCK_SUFFIX):
            _check_lock(disk, directory, file, report)
        elif name.endswith(_LEFTOVERS):
            _odd(report, file, "leftover", "a commit that was not finished")
        else:
            _odd(report, file, "foreign_file", "this is no offset's name")


def _check_offset(disk: Disk, directory: Path, name: str, first: int, following: int, report: Report) -> None:
    file = f"{OFFSET_DIRECTORY}/{name}{OFFSET_SUFFIX}"
    try:
        offset = stored_offset(disk, directory, name)
    except DamagedJournal as error:
        report.problems.append(Problem(file, error.position, "offset_file", error.reason))
        return
    except LogwrightError as error:
        report.problems.append(Problem(file, 0, "unreadable", str(error)))
        return
    passed = _if_noted(disk, directory, name, offset, report)
    if passed is not None:
        message = f"the consumer is at {offset}, but messages from {passed} on were written after it had passed them"
        _odd(report, file, "consumer_ahead", message)
    elif offset is not None and offset > following:
        _odd(report, file, "consumer_ahead", f"the consumer is at {offset}, but the next message gets {following}")
    elif offset is not None and offset < first:
        _odd(report, file, "consumer_behind", f"the consumer is at {offset}, but the journal begins with {first}")


def _if_noted(disk: Disk, directory: Path, name: str, offset: int | None, report: Report) -> int | None:
    try:
        return None if offset is None else passed_from(disk, directory, name, offset)
    except LogwrightError as error:
        report.problems.append(Problem(f"{OFFSET_DIRECTORY}/{name}{OFFSET_SUFFIX}", 0, "offset_file", str(error)))
        return None


def _check_lock(disk: Disk, directory: Path, name: str, report: Report) -> None:
    """A lock file is empty and of the ordinary kind; anything else keeps programs from locking it, or is not theirs."""
    path = directory / name
    if not disk.exists(path):
        return
    try:
        file = disk.open(path, "read")
    except LogwrightError as error:
        _odd(report, name, "lock_file", f"it cannot be locked: {error}")
        return
    try:
        size = file.size()
    finally:
        file.close()
    if size:
        _odd(report, name, "lock_file", f"it has {size} bytes, where lock files are empty")
