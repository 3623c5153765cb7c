"""One segment file: reading it forwards, stepping back from its end, and continuing after damage.

A `Cursor` returns chunks: a buffer and a range of it that holds only whole, valid messages. Objects, columns, counts
and checks are all made from chunks, so validity is decided in one place. Files are read into a reused buffer and never
mapped: if another process truncates a mapped file, this process gets SIGBUS.

If a segment has checksums, messages that touch a block that does not match are not returned. A writer publishes a
checksum, and the end of a segment in its index, only after it has synced the bytes. So a torn tail never begins before
the end of what they cover.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ...core.bytes.outcome import Damage, Ending, Span, Tail
from ...core.bytes.text import LOOKED_AT_BYTES, is_text
from ...core.io.disk import Disk, File
from ...errors import NotFound
from ..bytes import codec, kernel
from ..bytes.layout import (
    HEAD,
    MAX_KEY_BYTES,
    MAX_OFFSET,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    OFFSET,
    OVERHEAD,
    SEGMENT_DIRECTORY,
    TRAILER,
    VALUE_SIZE,
    parse_segment_name,
)
from .checksums import CheckedFile

_TYPE_AT: Final = HEAD.size - 2
"""Where the type of a message is: after its offset and its time."""
READ_BYTES: Final = 256 * 1024
"""Small enough to stay in a processor's second cache between being read and being decoded."""
_SEARCH_BYTES: Final = 1 << 20
_LOST_OFFSETS: Final = 1 << 40
"""How far offsets may jump over damage: beyond this a number is noise and no offset."""

BAD_CHECKSUM: Final = codec.UNEXPECTED_OFFSET + 1
"""Another ending of a cursor: the next message touches a block that does not match its checksum."""

_ENDINGS: Final = {
    codec.CLEAN: Ending.CLEAN,
    codec.INCOMPLETE: Ending.INCOMPLETE,
    codec.MALFORMED: Ending.MALFORMED,
    codec.UNEXPECTED_OFFSET: Ending.MALFORMED,
    BAD_CHECKSUM: Ending.MALFORMED,
}


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A file of the journal. `name` is its path relative to the journal, with forward slashes."""

    first_offset: int
    name: str
    path: Path


def list_segments(disk: Disk, directory: Path) -> list[Segment]:
    """The segments of a journal, in order of their offsets. Other names are ignored."""
    folder = directory / SEGMENT_DIRECTORY
    found = []
    for name in disk.list_directory(folder):
        first_offset = parse_segment_name(name)
        if first_offset is not None:
            found.append(Segment(first_offset, f"{SEGMENT_DIRECTORY}/{name}", folder / name))
    return sorted(found)


@dataclass(slots=True)
class Chunk:
    """Whole messages: `data[start:stop]` holds `count` of them from `first_offset` on.

    `position` is where `start` is in the file. The smallest and the largest timestamp are those of the messages that
    have one. The buffer is valid until the cursor reads again.
    """

    segment: Segment
    data: memoryview
    start: int
    stop: int
    position: int
    first_offset: int
    count: int
    smallest_timestamp: int
    largest_timestamp: int

    @property
    def file(self) -> str:
        """The name of its file, relative to the journal."""
        return self.segment.name

    @property
    def base(self) -> int:
        """Where the buffer's first byte is in the file."""
        return self.position - self.start

    def starts(self) -> list[int]:
        """Where the messages begin in the file, and where the last one ends."""
        base = self.base
        return [base + start for start in kernel.spans(self.data, self.start, self.stop, self.count)]


class Cursor:
    """Reads one segment from a message boundary on. It can continue after the file has grown.

    A `CheckedFile` is read without raising: `ending` is `BAD_CHECKSUM` and `bad_block` the block that does not match.
    `file` is always the plain file. It is known to have been synced up to `covered_end`, by its checksums; `synced_end`
    finds what its index shows as well. Set `near` to the expected end of the requested messages: nothing after it is
    read unless the messages continue.
    """

    def __init__(self, file: File, segment: Segment, position: int, expected: int, *, end: int | None = None) -> None:
        self.file = unchecked(file)
        self.segment = segment
        self.position = position
        self.expected = expected
        self.ending = codec.CLEAN
        self.reason = ""
        self.bad_block: Span | None = None
        self.near: int | None = None
        self._checked = file if isinstance(file, CheckedFile) else None
        self.covered_end = 0 if self._checked is None else self._checked.checksums.covered_end
        self._end = end
        self._seen: int | None = None
        self._buffer = memoryview(bytearray(READ_BYTES))

    def read(self, most: int = -1, *, load: bool = True) -> Chunk | None:
        """The next whole messages, at most `most`; None when there are none, and `ending` says why.

        Without `load` a message that is larger than the buffer is passed by its sizes: its chunk is hollow.
        """
        room = self._buffer
        if self.near is not None and self.position < self.near:
            room = room[: self.near - self.position]
        while True:
            if self._end is not None:
                room = room[: max(0, self._end - self.position)]
            have, bad = self._fill(room)
            self._seen = self.position + have if have < len(room) else self._end
            good = have if bad is None else max(0, bad.start - self.position)
            stop, count, ending, smallest, largest = self._walk(room, good, most)
            if count:
                chunk = Chunk(self.segment, room, 0, stop, self.position, self.expected, count, smallest, largest)
                self.position += stop
                self.expected += count
                return chunk
            if self.near is not None:
                self.near, room = None, self._buffer  # they end elsewhere: read all
                continue
            if bad is not None and ending in (codec.CLEAN, codec.INCOMPLETE):
                self.ending, self.bad_block = BAD_CHECKSUM, bad
                self.reason = mismatch(bad)
                return None
            if ending == codec.INCOMPLETE and have == len(room):
                size = self._size_beyond(room, have)
                found = None if size is None else message_span(self.file, self.position, self.position + size)
                if size is not None and found is not None:
                    if not load and found[0] == self.expected:
                        chunk = Chunk(self.segment, room[:0], 0, 0, self.position, self.expected, 1, 0, 0)
                        self.position += size
                        self.expected += 1
                        return chunk
                    room = memoryview(bytearray(size))
                    continue
                if size is not None:
                    self.ending, self.reason = codec.MALFORMED, f"no size of {size} is at the end of so many bytes"
                    return None
            self.ending = ending
            self.reason = "" if ending == codec.CLEAN else codec.explain(room, 0, have, self.expected)
            return None

    def seen_size(self) -> int:
        """How large the file was when `read` came to its end: a writer may be adding to it at this moment."""
        size = self.file.size()
        return size if self._seen is None else min(self._seen, size)

    def _fill(self, room: memoryview) -> tuple[int, Span | None]:
        """Read the next bytes; how many there were, and the first block of them that does not match its checksum."""
        if not room:
            return 0, None
        if self._checked is not None:
            return self._checked.read_and_check(self.position, room)
        return self.file.read_into(self.position, room), None

    def _walk(self, room: memoryview, have: int, most: int) -> tuple[int, int, int, int, int]:
        """Walk over the bytes that were read, up to the largest possible offset."""
        left = MAX_OFFSET + 1 - self.expected
        if left <= 0:
            return 0, 0, codec.MALFORMED if have else codec.CLEAN, MAX_TIMESTAMP, NO_TIMESTAMP
        return kernel.walk(room, 0, have, self.expected, min(have if most < 0 else most, have, left))

    def _size_beyond(self, room: memoryview, have: int) -> int | None:
        """The size of a message that is larger than our buffer, if all of it is in the file."""
        size = codec.claimed_size(room, 0, have)
        limit = self.file.size() if self._end is None else min(self._end, self.file.size())
        return None if size is None or size <= len(room) or self.position + size > limit else size

    def skip_to(self, offset: int) -> bool:
        """Move to the message with this offset; False when the whole messages end before it."""
        while self.expected < offset:
            if self.read(offset - self.expected) is None:
                return False
        return True

    def tail(self) -> Tail:
        """How the messages end here, after `read` has answered None."""
        return Tail(self.position, _ENDINGS[self.ending], self.reason)


def mismatch(block: Span) -> str:
    """The reason of the damage of a block."""
    return f"the checksum of the block of {block.size} bytes at {block.start} does not match"


def message_span(file: File, position: int, size_of_file: int) -> tuple[int, Span] | None:
    """Offset and span of the message at a position if its sizes agree and it is complete; reads no key or value."""
    head = file.read_at(position, HEAD.size + MAX_KEY_BYTES + VALUE_SIZE.size)
    size = codec.claimed_size(head, 0, len(head))
    if size is None or position + size > size_of_file:
        return None
    trailer = file.read_at(position + size - TRAILER.size, TRAILER.size)
    if len(trailer) < TRAILER.size or TRAILER.unpack(trailer)[0] != size:
        return None
    return HEAD.unpack_from(head)[0], Span(position, position + size)


def step_back(file: File, end: int) -> tuple[int, Span] | None:
    """Offset and span of the message that ends at `end`, None if none does."""
    if end < OVERHEAD:
        return None
    trailer = file.read_at(end - TRAILER.size, TRAILER.size)
    if len(trailer) < TRAILER.size:
        return None
    (size,) = TRAILER.unpack(trailer)
    if not OVERHEAD <= size <= end:
        return None
    found = message_span(file, end - size, end)
    return found if found is not None and found[1].end == end else None


def find_valid(
    file: File,
    start: int,
    size_of_file: int,
    least: int,
    most: int,
    accepts: Callable[[int, Span], bool] = lambda offset, span: True,
) -> tuple[int, Span] | None:
    """The first valid message from `start` on with an offset within `least` and `most`; its offset and span.

    A message is valid if the next one follows it, or the file ends within or right after it, and if `accepts` returns
    True for its offset and span.
    """
    position = start
    while least <= most and position + OVERHEAD <= size_of_file:
        window = file.read_at(position, min(_SEARCH_BYTES, size_of_file - position))
        at = kernel.find_head(window, 0, len(window), least, most, size_of_file - position)
        while at >= 0:
            found = message_span(file, position + at, size_of_file)
            is_found = found is not None and _goes_on(file, found[0], found[1].end, size_of_file)
            if found is not None and is_found and not _is_made_up(file, found[1], size_of_file) and accepts(*found):
                return found
            at = kernel.find_head(window, at + 1, len(window), least, most, size_of_file - position)
        if position + len(window) >= size_of_file or len(window) <= OVERHEAD:
            return None
        position += len(window) - (HEAD.size + VALUE_SIZE.size - 1)
    return None


def _goes_on(file: File, offset: int, end: int, size_of_file: int) -> bool:
    if size_of_file - end < HEAD.size:
        return True
    following: int = HEAD.unpack(file.read_at(end, HEAD.size))[0]
    return following == offset + 1


def _is_made_up(file: File, span: Span, size_of_file: int) -> bool:
    """Whether the offset and the time of a message before others are the end of some zeros: it reads like message 0."""
    if not 0 < span.start < span.end < size_of_file:
        return False
    return not any(file.read_at(span.start - 1, 1 + _TYPE_AT))


def find_following(cursor: Cursor, size_of_file: int, most: int) -> tuple[int, Span] | None:
    """Where valid messages continue after the bad bytes at which a cursor stopped.

    If the head there is intact, the bytes of its message are its value, and a value may contain messages. A message
    there is accepted only if the bytes before it are enough for the messages that are missing, or if it and those that
    follow it lead to the end of the file: then bytes may have been deleted, and the announced size is wrong.
    """
    file, start, expected = cursor.file, cursor.position, cursor.expected
    walked_to = start

    def leads_to_end(offset: int, span: Span) -> bool:
        nonlocal walked_to
        if offset <= expected or span.start < walked_to:
            return False
        after = Cursor(file, cursor.segment, span.start, offset, end=size_of_file)
        while after.read(load=False) is not None:
            pass
        walked_to = after.position
        return ends_file(after)

    def accepts(offset: int, span: Span) -> bool:
        lost_at_most = (span.start - start) // OVERHEAD
        if 0 < offset - expected <= lost_at_most or not is_in_value(file, start, expected, span.start):
            return True
        return leads_to_end(offset, span)

    return find_valid(file, start, size_of_file, expected, most, accepts)


def ends_file(cursor: Cursor) -> bool:
    """Whether a cursor that stopped is at the end of the file, or at a message that was cut short."""
    if cursor.ending == codec.CLEAN:
        return True
    begun = cursor.file.read_at(cursor.position, OFFSET.size)
    return cursor.ending == codec.INCOMPLETE and OFFSET.pack(cursor.expected).startswith(begun)


def is_in_value(file: File, start: int, expected: int, position: int, end: int = 0) -> bool:
    """Whether a position, and all up to `end`, is within the value that the head of the message at `start` announces.

    Not if it is within that head, nor if the size right before it says that the message ends there: then it is the head
    that is damaged.
    """
    head = file.read_at(start, HEAD.size + MAX_KEY_BYTES + VALUE_SIZE.size)
    size = codec.claimed_size(head, 0, len(head))
    if size is None or HEAD.unpack_from(head)[0] != expected or not start + HEAD.size <= position < start + size:
        return False
    if end > start + size:
        return False
    if position - start < OVERHEAD:
        return True
    trailing_size: int = TRAILER.unpack(file.read_at(position - TRAILER.size, TRAILER.size))[0]
    return trailing_size != position - start


def judge(cursor: Cursor, following: Segment | None) -> tuple[Damage, int | None]:
    """The damage where a cursor stopped before the end of its file, and the offset at which valid messages continue.

    If nothing valid follows in the last file, it is a torn tail: a cut message, zeros or noise. But a file that is text
    from its first byte was not written by a writer, no crash copies earlier messages, and bytes with a checksum were
    synced. The cursor is moved to where reading can continue.
    """
    if cursor.ending == BAD_CHECKSUM:
        return _pass_bad_block(cursor, following)
    file, start, expected = cursor.file, cursor.position, cursor.expected
    size = cursor.seen_size()
    most = most_behind(expected, following)
    found = find_following(cursor, size, most)
    name = cursor.segment.name
    if found is None or found == (expected, Span(start, found[1].end)):  # or whole since the cursor looked
        cursor.position = size
        if following is not None:
            return Damage(name, start, size, cursor.reason, "malformed"), None
        if start == 0 and is_text(file.read_at(0, LOOKED_AT_BYTES)):
            return Damage(name, start, size, f"{cursor.reason}: this is text, and no segment", "malformed"), None
        copied = _find_copy(file, start, expected, size) if found is None else None
        if copied is not None:
            reason = f"{cursor.reason}; a copy of earlier messages follows: from {copied[0]} on, at {copied[1].start}"
            return Damage(name, start, size, reason, "malformed"), None
        torn = Damage(name, start, size, cursor.reason, "torn_tail")
        return damage_of_synced(name, start, torn, cursor.covered_end) if start < cursor.covered_end else torn, None
    offset, span = found
    cursor.position, cursor.expected = span.start, offset
    if span.start == start:
        return Damage(name, start, start, f"the offset is {offset} where {expected} was expected", "gap"), offset
    kind = "unexpected_offset" if cursor.ending == codec.UNEXPECTED_OFFSET else "malformed"
    return Damage(name, start, span.start, cursor.reason, kind), offset


def _find_copy(file: File, start: int, expected: int, size_of_file: int) -> tuple[int, Span] | None:
    """A whole message with an earlier offset than expected and the head of the next one, outside the value at `start`.

    One message by itself proves nothing: zeros and the size of an empty message have this form.
    """

    def accepts(offset: int, span: Span) -> bool:
        return size_of_file - span.end >= HEAD.size and not is_in_value(file, start, expected, span.start)

    return find_valid(file, start, size_of_file, 0, expected - 1, accepts)


def find_truncation(cursor: Cursor, following: Segment | None = None) -> Damage | None:
    """The damage of the last file that ends with a whole message, where a cursor stopped, but before what was synced.

    If less than a message is missing, bytes were deleted elsewhere. `following` is a segment that is missing as well.
    """
    at = cursor.position
    if cursor.ending == codec.CLEAN and following is not None and cursor.expected < following.first_offset:
        reason = f"the file ends here; it went on to message {following.first_offset - 1}"
        return Damage(cursor.segment.name, at, at, reason, "truncated")
    if cursor.ending != codec.CLEAN or cursor.covered_end - at < OVERHEAD:
        return None
    return damage_of_synced(cursor.segment.name, at, None, cursor.covered_end)


def damage_of_synced(name: str, position: int, torn: Damage | None, covered_end: int) -> Damage:
    """The damage of a segment that ends at a position, cleanly or in what looks like a torn tail, but was synced."""
    synced = f"it was synced up to {covered_end}"
    if torn is None:
        return Damage(name, position, position, f"the file ends here; {synced}", "truncated")
    return replace(torn, reason=f"{torn.reason}; {synced}", kind="malformed")


def most_behind(expected: int, following: Segment | None) -> int:
    """The largest offset that a message after damage can have."""
    return following.first_offset - 1 if following is not None else min(MAX_OFFSET, expected + _LOST_OFFSETS)


def _pass_bad_block(cursor: Cursor, following: Segment | None) -> tuple[Damage, int | None]:
    """The messages that touch a block that does not match its checksum; the cursor is moved to the first one after it.

    The sizes of a message show whether it ends within the block: they agree, and the next message follows.
    """
    assert cursor.bad_block is not None
    start, block = cursor.position, cursor.bad_block
    plain = Cursor(cursor.file, cursor.segment, start, cursor.expected)
    while plain.position < block.end:
        chunk = plain.read()
        if chunk is not None and plain.position > block.end:
            starts = kernel.spans(chunk.data, chunk.start, chunk.stop, chunk.count)
            row = bisect_left(starts, block.end - chunk.base)
            plain.position, plain.expected = chunk.base + starts[row], chunk.first_offset + row
        if chunk is None:
            size, most = plain.file.size(), most_behind(plain.expected, following)
            found = find_following(plain, size, most)
            if found is None:
                cursor.position = size
                return Damage(cursor.segment.name, start, size, cursor.reason, "checksum"), None
            plain.position, plain.expected = found[1].start, found[0]
    cursor.position, cursor.expected = plain.position, plain.expected
    return Damage(cursor.segment.name, start, plain.position, cursor.reason, "checksum"), plain.expected


def unchecked(file: File) -> File:
    """The file itself, where its bytes would be checked against checksums."""
    return file.file if isinstance(file, CheckedFile) else file


def open_segment(disk: Disk, segment: Segment) -> File:
    """Open a segment for reading; `NotFound` names it."""
    try:
        return disk.open(segment.path, "read")
    except NotFound:
        raise NotFound(f"{segment.path}: the segment is gone") from None
