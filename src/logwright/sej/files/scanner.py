"""Scanner: follows a sej journal, message by message, across segments, while a writer appends.

    for message in Scanner("orders", offset=42, timeout=5):
        ...

The iteration ends when nothing new came for `timeout` seconds (default 1; None waits for ever, 0 never waits); another
loop over the same scanner continues where the last one ended. Each message is returned once, in order.

The scanner waits at an incomplete last message, also at a torn tail: the next writer cuts it off and continues there.
Other bad bytes are damage, handled by `mode` as in `Reader`, and so is an end before what was synced by its checksums.
A file that becomes shorter than the bytes read of it raises `Truncated`. An unexpected offset is a `Gap`, unless the
account of losses names the missing messages: then the scanner logs that, and continues after them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Generic, TypeVar, Unpack, cast, overload

from ...core.bytes.outcome import Damage, Mode, check_mode
from ...core.format import Located
from ...core.io.disk import REAL_DISK, Disk, File
from ...core.io.watch import Watch
from ...core.read.chunk import Choice
from ...core.read.chunk_reader import chosen_in
from ...core.read.files_scanner import DEFAULT_TIMEOUT_SECONDS, FollowingAll, FollowingRecords, Waiting
from ...core.write.closing import Closing
from ...errors import Closed, DamagedJournal, NotFound, Truncated
from ..bytes import codec, kernel
from ..bytes.layout import SEGMENT_DIRECTORY
from ..bytes.records import Message
from .ending import find_end, synced_end
from .index import indexed_end
from .reader import Reader
from .segment import Chunk, Cursor, Segment, find_truncation, judge, step_back, unchecked

_NEAR_MESSAGES: Final = 1000
"""How many messages are stepped back from the end to find the first one."""
_STALLED_SECONDS: Final = 1.0
"""How long a message may stay incomplete before the scanner looks for valid messages after it."""


T = TypeVar("T", bound=Message | Damage)
"""The items of a scanner: messages, and in `permissive` damage."""


class Scanner(Closing, Generic[T]):
    """An iterator over the messages from `offset` on (None: from the first one), waiting for more."""

    _closed = True  # until it is open

    @overload
    def __init__(
        self: Scanner[Message],
        directory: Path | str,
        offset: int | None = ...,
        *,
        watch: Watch | None = ...,
        **options: Unpack[FollowingRecords],
    ) -> None: ...

    @overload
    def __init__(
        self: Scanner[Message | Damage],
        directory: Path | str,
        offset: int | None = ...,
        *,
        watch: Watch | None = ...,
        **options: Unpack[FollowingAll],
    ) -> None: ...

    def __init__(
        self,
        directory: Path | str,
        offset: int | None = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT_SECONDS,
        mode: Mode = "failfast",
        disk: Disk = REAL_DISK,
        watch: Watch | None = None,
    ) -> None:
        self.mode = check_mode(mode)
        self.timeout = timeout
        self.disk = disk
        self._reader = Reader(Path(directory).absolute(), disk=disk)
        if not disk.is_directory(self._reader.directory / SEGMENT_DIRECTORY):
            raise NotFound(f"{directory}: no sej journal is here")
        self._pending = cast("list[T]", list(self._reader.half_repaired(mode)))
        self._start = offset
        self._owns_watch = watch is None
        self._watch: Watch = disk.watch(self._reader.directory / SEGMENT_DIRECTORY) if watch is None else watch
        self._cursor: Cursor | None = None
        self._judged_size = -1
        self._advanced_at = time.monotonic()
        self._closed = False

    @overload
    @classmethod
    def from_time(
        cls, directory: Path | str, timestamp: int, **options: Unpack[FollowingRecords]
    ) -> Scanner[Message]: ...

    @overload
    @classmethod
    def from_time(
        cls, directory: Path | str, timestamp: int, **options: Unpack[FollowingAll]
    ) -> Scanner[Message | Damage]: ...

    @classmethod
    def from_time(
        cls, directory: Path | str, timestamp: int, *, mode: Mode = "failfast", **options: Unpack[Waiting]
    ) -> Scanner[Message] | Scanner[Message | Damage]:
        """A scanner from the first message on that is not earlier than `timestamp` (nanoseconds since the epoch)."""
        offset = Reader(directory, disk=options.get("disk", REAL_DISK)).find_time(timestamp)
        return cls(directory, offset, mode=mode, **options)

    @property
    def offset(self) -> int:
        """The offset of the next message that the iteration will give."""
        for item in reversed(self._pending):
            if isinstance(item, Message):
                return item.offset
        if self._cursor is not None:
            return max(self._cursor.expected, self._start or 0)
        return self._reader.first if self._start is None else max(self._start, self._reader.first)

    # --- iterating --------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._pending:
            return self._pending.pop()
        batch = self.read_batch()
        if not batch:
            raise StopIteration
        batch.reverse()
        self._pending = batch
        return batch.pop()

    def read_batch(self) -> list[T]:
        """The next messages in one list, waiting for them as the iteration does; empty after the timeout."""
        item = self._wait_for(self.timeout)
        if item is None:
            return []
        if isinstance(item, Damage):
            return cast("list[T]", [item])
        return cast("list[T]", kernel.messages(item.data, item.start, item.stop, item.count))

    def located(self, choice: Choice | None = None) -> Iterator[Located | Damage]:
        """The same messages, each with the place of its bytes; of those that a choice chooses."""
        while (item := self._wait_for(self.timeout)) is not None:
            if isinstance(item, Damage):
                yield item
            else:
                yield from chosen_in(item, self._reader.decoded, choice)

    def _wait_for(self, timeout: float | None) -> Chunk | Damage | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            item = self.poll()
            if item is not None:
                return item
            remaining = _STALLED_SECONDS if deadline is None else deadline - time.monotonic()
            if remaining <= 0:
                return self.poll(stalled=True) if timeout else None
            self._watch.wait(remaining)

    def poll(self, *, stalled: bool = False) -> Chunk | Damage | None:
        """The next messages, without waiting; None if there are none.

        A chunk's buffer is valid until the next call. `stalled` says that an incomplete message is not expected to
        be completed, so that the bytes after it are checked.
        """
        if self._closed:
            raise Closed(f"{self._reader.path}: this scanner is closed")
        while True:
            if self._cursor is None and not self._open_first():
                return None
            assert self._cursor is not None
            chunk = self._cursor.read()
            if chunk is not None:
                self._advanced_at = time.monotonic()
                trimmed = next(self._reader._from(chunk, self._start), None)
                if trimmed is not None:
                    return trimmed
                continue
            self._check_length(self._cursor)
            following = self._following(self._cursor.segment)
            if following is None:
                before = self._cursor.position, self._cursor.expected
                damage = self._at_end_of_last(self._cursor, stalled)
                if damage is not None or (self._cursor.position, self._cursor.expected) == before:
                    return damage
                continue
            # The next segment exists, so this one is complete: read the messages that were appended in between.
            chunk = self._cursor.read()
            if chunk is not None:
                trimmed = next(self._reader._from(chunk, self._start), None)
                if trimmed is not None:
                    return trimmed
                continue
            damage = self._move_on(self._cursor, following)
            if damage is not None:
                return damage

    # --- from file to file ------------------------------------------------------------------------------------------

    def _open_first(self) -> bool:
        while segments := self._reader.segments():
            segment = segments[self._reader._segment_of(segments, self._start)]
            try:
                file = self._reader.open_file(segment)
            except NotFound:
                continue  # removed since it was listed
            try:
                from_end = self._cursor_from_end(file, segment) if segment is segments[-1] else None
                self._read_on(from_end or self._reader._cursor_at(file, segment, self._start))
            except BaseException:
                file.close()
                raise
            return True
        return False

    def _cursor_from_end(self, file: File, segment: Segment) -> Cursor | None:
        """A cursor at a start near the end of the last segment, found backwards, to avoid earlier damage."""
        if self._start is None:
            return None
        plain = unchecked(file)
        end = find_end(self.disk, segment, plain)
        position, offset = end.position, end.next_offset
        if not 0 <= offset - self._start <= _NEAR_MESSAGES:
            return None
        while offset > self._start:
            found = step_back(plain, position)
            if found is None or found[0] != offset - 1:
                return None
            position, offset = found[1].start, found[0]
        return Cursor(file, segment, position, offset)

    def _following(self, segment: Segment) -> Segment | None:
        later = [other for other in self._reader.segments() if other.first_offset > segment.first_offset]
        return later[0] if later else None

    def _check_length(self, cursor: Cursor) -> None:
        now = self.disk.identity(cursor.segment.path)
        if now is not None and now != cursor.file.identity():  # None: removed, after all of it had been written
            raise Truncated(f"{cursor.segment.path} was replaced by another file while it was being read")
        size = cursor.file.size()
        if size < cursor.position:
            raise Truncated(
                f"{cursor.segment.path} was cut to {size} bytes, {cursor.position} bytes of it had been read"
            )

    def _at_end_of_last(self, cursor: Cursor, stalled: bool) -> Damage | None:
        """The damage at the end of the last file, once; None to wait, as at an incomplete message and a torn tail."""
        size = cursor.file.size()
        if size == self._judged_size:
            return None
        before = cursor.position, cursor.expected
        if cursor.position < cursor.covered_end:  # unless it has been repaired meanwhile
            now = synced_end(self.disk, cursor.segment, cursor.file)
            cursor.covered_end = min(cursor.covered_end, now)
        if cursor.ending == codec.CLEAN:
            damage, goes_on_at = find_truncation(cursor), None
        elif cursor.ending != codec.INCOMPLETE or stalled or self._has_stalled() or before[0] < cursor.covered_end:
            damage, goes_on_at = judge(cursor, None)
        else:
            return None
        if damage is None:
            return None
        if goes_on_at is None:
            cursor.position, cursor.expected = before
        found = None if damage.kind == "torn_tail" else self._report(damage, cursor, before)
        self._judged_size = size if goes_on_at is None else -1
        return found

    def _has_stalled(self) -> bool:
        return time.monotonic() - self._advanced_at >= _STALLED_SECONDS

    def _move_on(self, cursor: Cursor, following: Segment) -> Damage | None:
        """Go to the next segment, or past the damage at the end of this one."""
        if cursor.ending != codec.CLEAN:
            before = cursor.position, cursor.expected
            damage, goes_on_at = judge(cursor, following)
            reported = self._report(damage, cursor, before)
            if goes_on_at is None:
                # At the end of this file now, and at nothing that is missing: on to the next one.
                cursor.expected = following.first_offset
            return reported
        reported = None
        if following.first_offset != cursor.expected:
            gap = self._reader.gap_before(following, cursor.expected)
            reported = next(self._reader.report(gap, self.mode), None)
        return reported if self._switch(cursor, following) else None

    def _switch(self, cursor: Cursor, following: Segment) -> bool:
        """Go to the segment that follows; False when it has been removed since it was listed."""
        try:
            file = self._reader.open_file(following)
        except NotFound:
            return False
        cursor.file.close()
        self._read_on(Cursor(file, following, 0, following.first_offset))
        self._judged_size = -1
        return True

    def _read_on(self, cursor: Cursor) -> None:
        cursor.covered_end = max(cursor.covered_end, indexed_end(self.disk, cursor.segment, cursor.file))
        self._cursor = cursor

    def _report(self, damage: Damage, cursor: Cursor, before: tuple[int, int]) -> Damage | None:
        if self.mode == "failfast":
            cursor.position, cursor.expected = before  # another attempt raises the same damage
            raise DamagedJournal(damage.file, damage.start, damage.reason)
        return damage if self.mode == "permissive" else None

    # --- closing ----------------------------------------------------------------------------------------------------

    @property
    def watch(self) -> Watch:
        """The watch of this scanner, for event loops."""
        return self._watch

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._owns_watch:
            self._watch.close()
        if self._cursor is not None:
            self._cursor.file.close()

    def __del__(self) -> None:
        if not self._closed:
            self.close()


__all__ = ["DEFAULT_TIMEOUT_SECONDS", "File", "Scanner"]
