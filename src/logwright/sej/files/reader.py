"""Reader: a sej journal opened for reading. It needs no lock, changes nothing, and works while a writer appends.

`messages` returns objects, `scan` objects with their places, and `chunks` the buffers that columns are made of. See
`core/read/chunk_reader.py` for damage, and for a torn tail of the last segment.

If a segment has checksums, a block that does not match is damage: messages that touch it are not returned.
"""

from __future__ import annotations

import base64
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...core.bytes.outcome import Damage, Mode, Span, check_mode
from ...core.format import Located
from ...core.io.disk import REAL_DISK, Disk, File
from ...core.read.chunk import Choice
from ...core.read.chunk_reader import ChunkReader, Shares
from ...core.read.chunk_reader import located as located_in
from ...core.read.report import Progress
from ...errors import DamagedJournal, Gap, NotFound, WrongUse
from ..bytes import codec, kernel
from ..bytes.layout import CHECKSUM_SUFFIX, HEAD, NO_TIMESTAMP, OVERHEAD, SEGMENT_DIRECTORY, parse_segment_name
from ..bytes.records import Message
from ..model.replay import Extent, SejState, replay, rewind
from . import check
from .checksums import CheckedFile, Checksums
from .ending import End, find_end, plausible_last
from .index import Index, build_entries, indexed_end
from .lost import are_known, messages_between
from .missing import MissingSegment, missing_after
from .offset_file import read_consumers
from .segment import (
    Chunk,
    Cursor,
    Segment,
    find_truncation,
    judge,
    list_segments,
    message_span,
    open_segment,
    step_back,
    unchecked,
)

logger = logging.getLogger("logwright.sej")


class Reader(ChunkReader[Chunk, Message]):
    """A journal, or one segment file of it, opened for reading.

    `path` is the journal's directory (the one that has `jnl/` in it) or a `.jnl` file. With `check_sums` (the default)
    every block that has a checksum beside its segment is checked when it is read.
    """

    format = "sej"

    summarize = check.summarize
    verify = check.verify

    def __init__(self, path: Path | str, *, disk: Disk = REAL_DISK, check_sums: bool = True) -> None:
        self.path = Path(path)
        self.disk = disk
        self._check_sums = check_sums
        self._single = parse_segment_name(self.path.name) if not disk.is_directory(self.path) else None
        if self._single is None and not disk.is_directory(self.path):
            raise NotFound(f"{self.path}: no sej journal is here")
        self._built: dict[Segment, Index] = {}
        self._loaded: dict[Segment, tuple[int, Index | None]] = {}
        self._warned: set[str] = set()
        self.segments()

    @property
    def is_single_file(self) -> bool:
        """Whether this is one segment file, and not a journal's directory."""
        return self._single is not None

    @property
    def directory(self) -> Path:
        """The journal's directory; of a lone segment file the one that it is in."""
        if self._single is None:
            return self.path
        folder = self.path.parent
        return folder.parent if folder.name == SEGMENT_DIRECTORY else folder

    def segments(self) -> list[Segment]:
        """The current segment files, oldest first."""
        if self._single is not None:
            return [Segment(self._single, self.path.name, self.path)]
        return list_segments(self.disk, self.path)

    def files(self) -> list[Segment]:
        """The same, as every reader calls it."""
        return self.segments()

    def open_file(self, segment: Segment, *, quiet: bool = False) -> File:
        """A segment's file, checked against its checksums where it has some.

        If these cannot be read, a warning says so, once for each segment, unless the caller reports it (`quiet`).
        """
        file: File = open_segment(self.disk, segment)
        if not self._check_sums:
            return file
        try:
            sums = Checksums.load(self.disk, segment.path.with_name(segment.path.name + CHECKSUM_SUFFIX))
        except BaseException:
            file.close()
            raise
        if sums is None:
            return file
        if sums.unreadable and not quiet and segment.name not in self._warned:
            self._warned.add(segment.name)
            logger.warning("%s is read without its checksums: %s", segment.path, sums.unreadable)
        return CheckedFile(file, sums)

    # --- going through it -------------------------------------------------------------------------------------------

    messages = ChunkReader.records

    def decoded(self, chunk: Chunk) -> list[Message]:
        """The messages of a chunk."""
        return kernel.messages(chunk.data, chunk.start, chunk.stop, chunk.count)

    def chunks(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        mode: Mode = "failfast",
        progress: Progress | None = None,
    ) -> Iterator[Chunk | Damage]:
        """Whole messages as they are stored. The buffer of a chunk is valid until the next chunk is requested."""
        check_mode(mode)
        yield from self.half_repaired(mode)
        self.torn_tail = None
        segments = self.segments()
        begin = self._segment_of(segments, start)
        shares = Shares(progress, (self.disk.file_size(segment.path) for segment in segments) if progress else ())
        expected: int | None = None
        for number in range(begin, len(segments)):
            segment = segments[number]
            following = segments[number + 1] if number + 1 < len(segments) else None
            if stop is not None and segment.first_offset >= stop:
                return
            if expected is not None and expected != segment.first_offset:
                yield from self.report(self.gap_before(segment, expected), mode)
            expected = yield from self.segment_chunks(segment, following, start, stop, mode, shares.of(number))
        for missing in self._missing_after(segments):
            if stop is None or missing.first_offset < stop:
                yield from self.report(missing.damage, mode)

    def missing(self) -> list[Damage]:
        """The segments after the last one that other files show."""
        return [missing.damage for missing in self._missing_after(self.segments())]

    def _missing_after(self, segments: list[Segment]) -> list[MissingSegment]:
        return [] if self.is_single_file else missing_after(self.disk, self.directory, segments)

    def segment_chunks(
        self,
        segment: Segment,
        following: Segment | None,
        start: int | None,
        stop: int | None,
        mode: Mode,
        report: Callable[[int], None] | None = None,
        *,
        at: int | None = None,
        near: int | None = None,
    ) -> Generator[Chunk | Damage, None, int]:
        """The chunks of one segment; returns the offset that the next one should begin with.

        `at` is where the message `start`, or one before it, is believed to begin, and `near` where `stop` is.
        """
        file = self.open_file(segment)
        try:
            cursor = self._cursor_at(file, segment, start, at)
            cursor.near = near
            if following is None and not self.is_single_file:
                cursor.covered_end = max(cursor.covered_end, indexed_end(self.disk, segment, cursor.file))
            while True:
                if stop is not None and cursor.expected >= stop:
                    return cursor.expected
                chunk = cursor.read(-1 if stop is None else stop - cursor.expected)
                if chunk is not None:
                    yield from self._from(chunk, start)
                    if report is not None:
                        report(cursor.position)
                    continue
                if cursor.ending == codec.CLEAN:
                    truncation = find_truncation(cursor) if following is None else None
                    if truncation is not None:
                        yield from self.report(truncation, mode)
                    return cursor.expected
                damage, goes_on_at = judge(cursor, following)
                yield from self.report(damage, mode)
                if goes_on_at is None:
                    return following.first_offset if following is not None else cursor.expected
        finally:
            file.close()

    def gap_before(self, segment: Segment, expected: int) -> Damage:
        """The damage to report for a segment that should begin with the offset `expected`: a gap, or a known loss."""
        first = segment.first_offset
        if self._is_known_loss(expected, first):
            reason = f"{messages_between(expected, first)} passed: lost, as the account of losses says"
            return Damage(segment.name, 0, 0, reason, "lost")
        return Damage(
            segment.name, 0, 0, f"the segment begins with offset {first} where {expected} was expected", "gap"
        )

    def _is_known_loss(self, first: int, after: int) -> bool:
        try:
            return first < after and are_known(self.losses(), first, after)
        except DamagedJournal:  # the account cannot be read: `verify` reports that, and nothing is known
            return False

    def _from(self, chunk: Chunk, start: int | None) -> Iterator[Chunk]:
        """A chunk without the messages before `start`."""
        if start is not None and chunk.first_offset < start:
            skipped = min(start - chunk.first_offset, chunk.count)
            at = kernel.walk(chunk.data, chunk.start, chunk.stop, chunk.first_offset, skipped)[0]
            chunk.position += at - chunk.start
            chunk.start = at
            chunk.first_offset += skipped
            chunk.count -= skipped
        if chunk.count:
            yield chunk

    # --- finding a place --------------------------------------------------------------------------------------------

    def _segment_of(self, segments: list[Segment], offset: int | None) -> int:
        """The number of the segment that an offset is in, or would be in."""
        begin = 0
        for number, segment in enumerate(segments):
            if offset is not None and segment.first_offset <= offset:
                begin = number
        return begin

    def _cursor_at(self, file: File, segment: Segment, offset: int | None, at: int | None = None) -> Cursor:
        """A cursor at an offset, or at the last message boundary before it that is known: `at`, or by the index."""
        if offset is None or offset <= segment.first_offset:
            return Cursor(file, segment, 0, segment.first_offset)
        plain = unchecked(file)
        hint = message_span(plain, at, plain.size()) if at is not None else None
        if at is not None and hint is not None and hint[0] <= offset:
            return Cursor(file, segment, at, hint[0])
        index = Index.load(self.disk, segment, plain.size())
        entry = index.before_offset(plain, offset) if index is not None else None
        if entry is None or entry.is_end:
            cursor = Cursor(plain, segment, 0, segment.first_offset)
        else:
            cursor = Cursor(plain, segment, entry.position, entry.offset)
        if plain is not file:
            cursor.skip_to(offset)  # skipped messages need not match their checksums
            cursor = Cursor(file, segment, cursor.position, cursor.expected)
        return cursor

    @property
    def first(self) -> int:
        """The offset of the first message, or of the next one if there is none."""
        segments = self.segments()
        return segments[0].first_offset if segments else 0

    @property
    def next(self) -> int:
        """The offset that the next message will get."""
        segments = self.segments()
        if not segments:
            return 0
        file = open_segment(self.disk, segments[-1])
        try:
            return find_end(self.disk, segments[-1], file).next_offset
        finally:
            file.close()

    def find_time(self, timestamp: int) -> int:
        """The offset of the first message that is not earlier than `timestamp` (ns); `next` if all are earlier.

        Exact within every segment, and for segments with an index, even if clocks were set back. A finished segment
        without an index is assumed to be no later than its last message and the next message.
        """
        segments = self.segments()
        for number, segment in enumerate(segments):
            file = open_segment(self.disk, segment)
            try:
                if number + 1 < len(segments) and self._all_earlier(file, segment, segments[number + 1 :], timestamp):
                    continue
                found = self._find_time_in(file, segment, timestamp)
            finally:
                file.close()
            if found is not None:
                return found
        return self.next

    def _all_earlier(self, file: File, segment: Segment, following: list[Segment], timestamp: int) -> bool:
        index = self._index(file, segment)
        times = index.times(file) if index is not None else None
        if times is not None:
            return times[1] < timestamp
        last = self._last_timestamp(file, segment)
        if last is not None and last >= timestamp:
            return False
        for later in following:
            first = self._first_timestamp(later)
            if first is not None:
                return first < timestamp
        return False

    def _index(self, file: File, segment: Segment) -> Index | None:
        """The index of a segment. It is loaded once for each size of the segment: a timeline looks up many times."""
        size = file.size()
        known = self._loaded.get(segment)
        if known is None or known[0] != size:
            known = self._loaded[segment] = size, Index.load(self.disk, segment, size)
        return known[1]

    def _last_timestamp(self, file: File, segment: Segment) -> int | None:
        found = step_back(file, find_end(self.disk, segment, file).position)
        timestamp = NO_TIMESTAMP if found is None else HEAD.unpack(file.read_at(found[1].start, HEAD.size))[1]
        return None if timestamp == NO_TIMESTAMP else timestamp

    def _first_timestamp(self, segment: Segment) -> int | None:
        file = open_segment(self.disk, segment)
        try:
            head = file.read_at(0, HEAD.size)
        finally:
            file.close()
        if len(head) < HEAD.size or HEAD.unpack(head)[0] != segment.first_offset:
            return None
        timestamp: int = HEAD.unpack(head)[1]
        return None if timestamp == NO_TIMESTAMP else timestamp

    def _find_time_in(self, file: File, segment: Segment, timestamp: int) -> int | None:
        index = self._index(file, segment) or self._built.get(segment)
        if index is None and file.size() > 64 * OVERHEAD:
            entries = build_entries(file, segment, file.size(), finished=False)
            index = self._built[segment] = Index(segment, entries)
        entry = index.before_time(file, timestamp) if index is not None else None
        if entry is not None and entry.is_end:
            return None
        position, expected = (entry.position, entry.offset) if entry is not None else (0, segment.first_offset)
        cursor = Cursor(file, segment, position, expected)
        while True:
            chunk = cursor.read()
            if chunk is None:
                if cursor.ending == codec.CLEAN or judge(cursor, None)[1] is None:
                    return None
                continue  # after the damage: reading from there reports it
            if chunk.largest_timestamp < timestamp:
                continue
            for message in kernel.messages(chunk.data, chunk.start, chunk.stop, chunk.count):
                if message.timestamp is not None and message.timestamp >= timestamp:
                    return message.offset

    def last(self, count: int, choice: Choice | None = None) -> list[Located]:
        """The last `count` messages, oldest first, read backwards by their trailing sizes.

        If messages among them are missing it raises `Gap`, whose `after` has those that follow. `damages` has the gap
        before the oldest segment that was read, if there is one, and says if synced messages after the last one are
        missing.
        """
        return raise_gap(self.last_to_gap(count, choice), count, self.damages)

    def last_to_gap(self, count: int, choice: Choice | None = None) -> list[Located]:
        """The same; a gap ends them, and is in `damages`."""
        if count < 0:
            raise WrongUse(f"cannot give the last {count} messages")
        list(self.half_repaired("failfast"))
        found: list[Located] = []
        self.damages = ()
        segments = self.segments()
        gap: tuple[Damage, ...] = ()
        for number in range(len(segments) - 1, -1, -1):
            if len(found) >= count:
                break
            try:
                found.extend(self._last_of(segments, number, count - len(found), choice))
            except Gap as error:
                gap = (Damage(str(error.file), error.position, error.position, error.reason, "gap"),)
                break
        found.reverse()
        names = [segment.name for segment in segments]
        if found and not gap:
            gap = self._gap_at(segments, names.index(found[0].file))
        self.damages = (*gap, *self.damages)
        return found

    def _gap_at(self, segments: list[Segment], number: int) -> tuple[Damage, ...]:
        """The gap before a segment, by the last message of the preceding one."""
        if not number:
            return ()
        file = open_segment(self.disk, segments[number - 1])
        try:
            last = plausible_last(file, file.size(), segments[number - 1])
        finally:
            file.close()
        segment = segments[number]
        if last is None or last + 1 == segment.first_offset:
            return ()
        gap = self.gap_before(segment, last + 1)
        return (gap,) if gap.kind == "gap" else ()

    def _last_of(self, segments: list[Segment], number: int, count: int, choice: Choice | None = None) -> list[Located]:
        """The last messages of one segment, newest first."""
        segment = segments[number]
        found: list[Located] = []
        checked = self.open_file(segment)
        file = unchecked(checked)
        try:
            ending = find_end(self.disk, segment, file)
            if number == len(segments) - 1:
                self.torn_tail = ending.torn
                if ending.damage is not None and ending.was_synced:
                    self.damages = (ending.damage,)
            else:
                self._check_joined(segment, ending, segments[number + 1])
            if choice is not None:
                following = segments[number + 1] if number + 1 < len(segments) else None
                return self._last_chosen(segment, following, count, choice)
            end, expected, checked_from = ending.position, ending.next_offset - 1, ending.position
            while len(found) < count and end > 0:
                answer = step_back(file, end)
                if answer is None or answer[0] != expected:
                    reason = f"no message with offset {expected} ends here"
                    raise DamagedJournal(segment.name, end, reason)
                span = answer[1]
                if isinstance(checked, CheckedFile) and span.start < checked_from:
                    checked_from = _check_blocks(checked, segment, Span(span.start, checked_from))
                data = file.read_at(span.start, span.size)
                (message,) = kernel.messages(data, 0, len(data), 1)
                found.append(Located(message, segment.name, span))
                end, expected = span.start, expected - 1
        finally:
            file.close()
        return found

    def _last_chosen(self, segment: Segment, following: Segment | None, count: int, choice: Choice) -> list[Located]:
        """The last chosen messages of one segment, newest first."""
        torn_tail = self.torn_tail  # of the last segment, which was read first
        found: deque[Located] = deque(maxlen=count)
        for item in choice.through(self.segment_chunks(segment, following, None, None, "failfast")):
            if not isinstance(item, Damage) and item[1]:
                found.extend(located(*item))
        self.torn_tail = torn_tail
        return list(reversed(found))

    def _check_joined(self, segment: Segment, ending: End, following: Segment) -> None:
        """Raise if there is damage between the last message of a segment and the first one of the next."""
        if ending.torn is not None:
            raise DamagedJournal(segment.name, ending.torn.start, ending.torn.reason)
        if ending.next_offset != following.first_offset:
            for _ in self.report(self.gap_before(following, ending.next_offset), "failfast"):
                pass

    # --- what it is -------------------------------------------------------------------------------------------------

    def state(self, at: int | None = None) -> dict[str, Any]:
        """First and next offset, segments, and committed offsets of the consumers; `at` an offset cuts it there."""
        return read_state(self, at).as_json()

    def number_of(self, located: Located) -> tuple[str, int]:
        """The part, always empty here, and the offset of a message."""
        return "", located.record.offset

    def as_json(self, located: Located) -> dict[str, Any]:
        """A message as `dump --json` prints it."""
        return message_as_json(located)


def _check_blocks(file: CheckedFile, segment: Segment, span: Span) -> int:
    """Raise `DamagedJournal` for bytes in a bad block; where the checked bytes begin."""
    for block in file.bad_blocks(span.start, span.end):
        reason = f"the checksum of the block of {block.size} bytes at {block.start} does not match"
        raise DamagedJournal(segment.name, span.start, reason)
    return span.start - span.start % file.checksums.block_bytes


def raise_gap(found: list[Located], count: int, damages: Sequence[Damage]) -> list[Located]:
    """The messages that were found, or `Gap` if there are fewer than `count` because of one."""
    gap = next((damage for damage in damages if damage.kind == "gap" and len(found) < count), None)
    if gap is not None:
        error = Gap(gap.file, gap.start, gap.reason)
        error.after = found
        raise error
    return found


def message_as_json(located: Located) -> dict[str, Any]:
    """A message and its place, ready to be printed as JSON; bytes are base64."""
    message: Message = located.record
    return {
        "file": located.file,
        "position": located.span.start,
        "size": located.span.size,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "type": message.type,
        "key": base64.b64encode(message.key).decode(),
        "value": base64.b64encode(message.value).decode(),
    }


def located(chunk: Chunk, rows: Sequence[int] | None = None) -> Iterator[Located]:
    """The messages of a chunk with their places, or those of some rows."""
    return located_in(chunk, kernel.messages(chunk.data, chunk.start, chunk.stop, chunk.count), rows)


def read_state(reader: Reader, at: int | None = None) -> SejState:
    """The state of the journal of a reader: now, or when `at` was the offset of the next message."""
    state = replay(_measure(reader), read_consumers(reader))
    return state if at is None else rewind(state, at, _bytes_before(reader, state, at))


def _measure(reader: Reader) -> list[Extent]:
    """The messages of each segment, found from its end. Damage is not raised: `verify` reports it."""
    segments = reader.segments()
    extents = []
    for segment in segments:
        file = open_segment(reader.disk, segment)
        try:
            end = find_end(reader.disk, segment, file)
        finally:
            file.close()
        if segment is segments[-1]:
            reader.torn_tail = end.torn
        extents.append(Extent(segment.name, segment.first_offset, end.next_offset, end.position))
    return extents


def _bytes_before(reader: Reader, state: SejState, at: int) -> int:
    """Where the message with an offset begins in its file, or would begin if it came next."""
    if not state.first <= at < state.next:
        return state.segments[-1].bytes if state.segments and state.segments[-1].first < at else 0
    for item in reader.chunks(at, at + 1, mode="dropmalformed"):
        if not isinstance(item, Damage):
            return item.position
    return _bytes_before_missing(reader, state, at)


def _bytes_before_missing(reader: Reader, state: SejState, at: int) -> int:
    """The same for a message that is lost: the size of the whole ones before it in its file."""
    segment = max((segment for segment in state.segments if segment.first <= at), key=lambda segment: segment.first)
    end = 0
    for item in reader.chunks(segment.first, at, mode="dropmalformed"):
        if not isinstance(item, Damage) and item.file == segment.file:
            end = item.position + item.stop - item.start
    return end
