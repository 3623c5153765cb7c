"""Going through one file of a store, archive or not, and finding the way past damage.

A `Cursor` returns what is in the file in its order: the head with the metadata, then chunks, which are ranges of a
buffer that hold only whole entries, and a `Damage` where there is something else. Objects, columns, counts and states
are all made from chunks, so there is one place that judges what is valid. Files are read as streams into a buffer that
is used again and again, never mapped: a map of a file that another process cuts short ends this one with SIGBUS.

How far the entries go is said by the position in the header, and what is after it is not looked at. Where neither the
header nor the metadata is whole, or the position is past a file that has its mark, entries go to the zeros at the end
of the file. Bad bytes before the position end at the next place from which on whole entries follow up to it, each as
every known writer begins one, and none earlier than the last one before the damage. Where bytes are gone, zeros may
have come up between the last of them and the position; where bytes were inserted, the position is within an entry, or
before the last ones. Entries that end anywhere else may be part of a value, and do not count.

Times never decrease in a journal, after the state that it begins with. An entry that is earlier than the one before it
was copied or moved there, or one of the two has a wrong time: it is damage, of the kind `time_goes_back`.

Whole entries after the position are what a crash leaves between an entry and its position. They do not count. But they
are damage where no crash explains them, for then they were moved there: in a file whose mark was moved, in one that was
closed at this position, and in one without a mark in which entries of their size are there twice (`disorder.py`).

In the active journal bad bytes that no whole entry follows are a torn tail: the position reached the disk, and what it
speaks of did not. But where the position is within an entry that is whole, the position is what is wrong, and nothing
is torn. Where whole entries follow after the position, up to the zeros at the end of the file, bytes were inserted
before them. No crash makes a file shorter than its position. Nor is anything torn in a file whose mark was moved, or
before that mark (see `buffer.py`), which was on the disk, or in a file whose mark names a place within an entry. After
the mark an entry of which a sector is missing is the work of a power cut, whatever follows it (see `lacks_sector`). If
its zeros begin before that sector and end after it, they may be another program's, and are damage.

Only of a missing sector after the mark it is known that a power cut did it (`is_by_power_cut`). In a journal without a
mark, or behind that of a closed store, removed entries look the same as those that a power cut has left out. So what
is cut off there is in the account of losses.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ...core.bytes.outcome import NEED_MORE, Damage, Malformed, Span
from ...core.io.disk import File
from ...core.read.chunk import FileChunk
from ...core.times import shown_time
from ...errors import TooLarge
from ..bytes import codec, kernel
from ..bytes.layout import (
    ARRAY_AT,
    ARRAY_START,
    ENTRY_START,
    HEADER,
    HEADER_BYTES,
    MAX_TIMESTAMP,
    POSITION,
    POSITION_AT,
    VERSION,
)
from ..bytes.records import Metadata
from .archive_stream import DEFAULT_LIMITS, READ_BYTES, ArchiveLimits, InflatedStream, PlainStream, open_stream
from .buffer import (
    CLOSED_MAGIC,
    MARK,
    MARK_MAGIC,
    MARK_TAIL_BYTES,
    SECTOR_BYTES,
    Mark,
    find_mark,
    has_zero_sector,
    is_missing_sector,
    mark_at,
)
from .disorder import find_repeated
from .files import JournalFile

_LEAST_WINDOW_BYTES: Final = 4 << 10
_SEARCH_BYTES: Final = 16 << 20
"""An entry that begins behind bad bytes and is larger than this is not found: most that claim so are none."""
_BEYOND_BYTES: Final = 1 << 20
"""How far after the position we look for the end of the entry that it is in."""
_MOST_ATTEMPTS: Final = 10_000
"""At how many places we look there for a whole entry."""
EARLIER: Final = "time_goes_back"
"""The kind of damage that an entry is whose time is earlier than that of the entry before it."""
_ZEROS: Final = "a sector of the entry is zeros: another program wrote it, or a power cut left it after our last sync"


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a journal: its metadata, None where it is damaged, and where that is; the next position."""

    source: JournalFile
    metadata: Metadata | None
    span: Span
    position: int

    @property
    def file(self) -> str:
        """The name of its file, relative to the directory."""
        return self.source.name


@dataclass(slots=True)
class Chunk(FileChunk):
    """Whole entries: `data[start:stop]` holds `count` of them, with times from `smallest` to `largest`.

    `position` is where `start` is in the file, which for an archive is what it was before it was compressed. The buffer
    is valid until the cursor moves. `folded` says that the entries were applied already: see `Cursor`. `since` is
    when the journal became the active one, as it says itself; None where that is damaged.
    """

    source: JournalFile
    smallest: int
    largest: int
    folded: bool = False
    since: int | None = None

    def starts(self) -> list[int]:
        """Where the entries begin in the file, and where the last one ends."""
        base = self.base
        return [base + start for start in kernel.spans(self.data, self.start, self.stop, self.count)]


class Cursor:
    """Goes through one file. `items` gives all of it; `at` is where an entry of a plain file is known to begin.

    `latest` is applied what is passed, where that can be done while it is walked over: such a chunk is `folded`.
    `position` is how far the entries were whole by now, `limit` where the header says that they end.
    """

    def __init__(
        self,
        file: File,
        source: JournalFile,
        *,
        at: int | None = None,
        latest: kernel.Latest | None = None,
        limits: ArchiveLimits = DEFAULT_LIMITS,
        read_bytes: int = READ_BYTES,
    ) -> None:
        self.file = file
        self.source = source
        self.position = 0
        self.limit = 0
        self.metadata: Metadata | None = None
        self.mark: Mark | None = None
        self.is_by_power_cut = False  # the torn tail: a sector of it is missing
        self._torn_from: int | None = None
        self._at = at
        self._latest = latest
        self._read_bytes = read_bytes
        self._buffer = bytearray(read_bytes)
        self._have = 0
        self._base = 0  # where the buffer begins in the file
        self._ended = False
        self._last = 0  # the latest time of an entry by now
        self._before = 0  # the time of the entry before the position
        self._displaced: bool | None = None  # whether the mark is; None if that was not looked at
        self._is_followed = False  # by a whole entry, wherever that belongs
        self._stream: PlainStream | InflatedStream = open_stream(file, compressed=source.compressed, limits=limits)

    # --- the buffer -------------------------------------------------------------------------------------------------

    def _more(self, keep: int) -> bool:
        """Read on, dropping what is before the offset `keep` of the buffer; whether there was more."""
        if self._ended:
            return False
        left = self._have - keep
        if keep:
            self._buffer[:left] = self._buffer[keep : self._have]
            self._base += keep
            self._have = left
        if left == len(self._buffer):
            self._grow()
        with memoryview(self._buffer) as view:
            count = self._stream.read_into(view[self._have :])
        self._ended = count < len(self._buffer) - self._have
        self._have += count
        return count > 0

    def _grow(self) -> None:
        try:
            self._buffer += bytes(len(self._buffer))
        except (MemoryError, BufferError):
            size = 2 * len(self._buffer)
            raise TooLarge(f"{self.source.path} @ {self._base}: there is no memory for {size} bytes") from None

    def _stop(self) -> int:
        """Where in the buffer the entries must end."""
        return max(0, min(self._have, self.limit - self._base))

    def _is_all(self) -> bool:
        """Whether no byte that counts will be read any more."""
        return self._ended or self._base + self._have >= self.limit

    # --- the beginning ----------------------------------------------------------------------------------------------

    def items(self, report: Callable[[int], None] | None = None) -> Iterator[Head | Chunk | Damage]:
        """The head, chunks of entries, and what is damaged; `report` is called with how far the file was read."""
        goes_on = yield from self._begin()
        if goes_on and self._at is not None:
            self._jump(self._at)
        if goes_on:
            yield from self._entries(report)

    def _begin(self) -> Generator[Head | Damage, None, bool]:
        """The header and the metadata; whether there is something to read behind them."""
        while self._have < HEADER_BYTES and self._more(0):
            pass
        if self._have < HEADER_BYTES:
            problem = self._stream.problem or f"only {self._have} of the header's {HEADER_BYTES} bytes are there"
            yield self._damage(0, self._have, problem)
            return False
        version, self.limit, array_start = HEADER.unpack_from(self._buffer)
        self.mark = self._read_mark()  # after the position: what that counts by now, the mark knows
        self._torn_from = None if self.mark is None else self.mark.torn_from
        found = self._read_metadata()
        wrong = self._wrong_in_header(version, array_start)
        if found is None and (wrong is not None or self.limit < HEADER_BYTES):
            start, reason = wrong or (POSITION_AT, _reason(self._buffer[:HEADER_BYTES]))
            return (yield from self._begin_without_head(start, reason))
        if wrong is not None:
            yield self._damage(wrong[0], wrong[0] + (POSITION.size if wrong[0] < ARRAY_AT else 1), wrong[1])
        if self.limit < HEADER_BYTES:
            self.position = self.limit = HEADER_BYTES
            reason = _reason(self._buffer[:HEADER_BYTES])
            yield self._damage(POSITION_AT, ARRAY_AT, f"{reason}; so no entry counts")
            return False
        if self.has_its_length and self.limit > self._size():
            yield self._damage(POSITION_AT, ARRAY_AT, f"{self._past()}, of which nothing is missing")
            self.limit = self._end_of_data()
        self.position = HEADER_BYTES
        if found is None:
            yield Head(self.source, None, Span(HEADER_BYTES, HEADER_BYTES), self.limit)
            if self.limit == HEADER_BYTES:  # no torn tail: there is nothing to cut off that would make this a journal
                yield self._damage(HEADER_BYTES, HEADER_BYTES, self._wrong_metadata())
                return False
            return (yield from self._pass_bad(HEADER_BYTES, self._wrong_metadata()))
        self.metadata, span = found
        self.position = span.end
        yield Head(self.source, self.metadata, span, self.limit)
        return True

    def _begin_without_head(self, start: int, reason: str) -> Generator[Head | Damage, None, bool]:
        """Neither the header nor the metadata is whole: entries count if they go to the end of what is in the file."""
        if not self.source.compressed:
            self.limit = self._end_of_data()
            self.mark = self._read_mark()
        self.position = HEADER_BYTES
        found = None if self.source.compressed else self._find_next(start + 1)
        if found is None:
            yield self._damage(start, self._size(), reason)
            return False
        yield Head(self.source, None, Span(HEADER_BYTES, HEADER_BYTES), self.limit)
        yield self._damage(start, found, reason)
        self.position = found
        return True

    def _end_of_data(self) -> int:
        """Behind the last byte of the file that is not zero, and not the mark."""
        size = self.file.size()
        mark = self._find_mark(size)
        end = size if mark is None else mark[0]
        while end > 0:
            start = max(0, end - READ_BYTES)
            found = self.file.read_at(start, end - start).rstrip(b"\0")
            if found:
                return start + len(found)
            end = start
        return 0

    def _read_mark(self) -> Mark | None:
        if self.source.compressed:
            return None
        size = self.file.size()
        found = self._find_mark(size)
        return None if found is None or found[0] < self.limit <= size else found[1]  # else an entry is in its place

    def _find_mark(self, size: int) -> tuple[int, Mark] | None:
        return find_mark(self.file.read_at(max(0, size - MARK_TAIL_BYTES), MARK_TAIL_BYTES), size)

    def _wrong_in_header(self, version: int, array_start: int) -> tuple[int, str] | None:
        """The position of the byte that is wrong, and why; what the position says is judged elsewhere."""
        if version == VERSION and array_start == ARRAY_START:
            return None
        trial = HEADER.pack(version, HEADER_BYTES, array_start)
        return (0 if version != VERSION else ARRAY_AT), _reason(trial)

    def _read_metadata(self) -> tuple[Metadata, Span] | None:
        """The metadata, None where it is not whole before the position."""
        limit = self.limit if self.limit >= HEADER_BYTES else 2**64
        while True:
            try:
                found = codec.decode_metadata(self._buffer, HEADER_BYTES, max(HEADER_BYTES, min(self._have, limit)))
            except Malformed:
                return None
            if found is not NEED_MORE:
                return found
            if self._have >= min(limit, _SEARCH_BYTES) or not self._more(0):
                return None

    def _wrong_metadata(self) -> str:
        if self.limit == HEADER_BYTES:
            return "there is no metadata"
        try:
            codec.decode_metadata(self._buffer, HEADER_BYTES, self._stop())
        except Malformed as malformed:
            return malformed.reason
        return self._stream.problem or f"only {self._stop() - HEADER_BYTES} bytes of the metadata are there"

    def _size(self) -> int:
        """Where the file ends, as far as that is known."""
        return self._base + self._have if self.source.compressed else max(self.file.size(), self._base + self._have)

    def _jump(self, position: int) -> None:
        """Go on at the beginning of an entry."""
        self._stream = PlainStream(self.file, position)
        self._base = self.position = position
        self._have = 0
        self._ended = False

    # --- entries ----------------------------------------------------------------------------------------------------

    def _entries(self, report: Callable[[int], None] | None) -> Iterator[Chunk | Damage]:
        while True:
            start, stop = self.position - self._base, self._stop()
            # What may be torn is looked at before it counts.
            folds = self._latest is not None and not self._has_zeros(start, stop)
            end, count, ending, smallest, largest = self._walk(start, stop, self._latest if folds else None)
            torn = None if folds else self._first_torn(start, end, count)
            if torn is not None:
                count, end, following = torn
                is_missing = is_missing_sector(self._buffer, end, following, self._base)
                following += self._base
            if count:
                place = self.position
                self.position = self._base + end
                self._last = max(self._last, largest)
                self._before = largest  # that of the last one, or not later than when the journal began
                since = None if self.metadata is None else self.metadata.initialized
                yield Chunk(self.source, self._buffer, start, end, place, count, smallest, largest, folds, since)
                if report is not None:
                    report(self.position)
            if torn is not None and is_missing:
                yield self._tear(self.position, "a sector of the entry is missing")
                return
            if torn is not None:
                start, self.position = self.position, following
                yield self._damage(start, following, _ZEROS)
                continue
            if ending == codec.EARLY:
                yield self._pass_earlier(stop)
                continue
            if ending != codec.MALFORMED and not self._is_all():
                self._more(end)
                continue
            if ending == codec.CLEAN:
                break
            if self._is_torn_by_power(self.position):
                yield self._tear(self.position, codec.explain(self._buffer, end, stop))
                return
            goes_on = yield from self._pass_bad(self.position, codec.explain(self._buffer, end, stop))
            if not goes_on:
                return
        yield from self._finish()

    def _walk(self, start: int, stop: int, latest: kernel.Latest | None) -> tuple[int, int, int, int, int]:
        """Go from entry to entry as `codec.walk` does, and apply them."""
        begun = MAX_TIMESTAMP if self.metadata is None else self.metadata.initialized
        if latest is not None:
            return latest.walk(self._buffer, start, stop, self._before, begun)
        return kernel.walk(self._buffer, start, stop, -1, self._before, begun)

    def _pass_earlier(self, stop: int) -> Damage:
        """Move past the entry at the position, which is earlier than the one before it."""
        start, before = self.position, self._before
        end, _, _, self._before, _ = kernel.walk(self._buffer, start - self._base, stop, 1)
        self.position = self._base + end
        reason = f"its time is {shown_time(self._before)}, earlier than {shown_time(before)} of the entry before it"
        return self._damage(start, self.position, reason, EARLIER)

    def _has_zeros(self, start: int, end: int) -> bool:
        """Whether a range of the buffer has a whole sector of zeros behind the mark."""
        if self._torn_from is None or self._base + end <= self._torn_from + SECTOR_BYTES:
            return False
        return has_zero_sector(self._buffer, max(start, self._torn_from - self._base), end, self._base)

    def _first_torn(self, start: int, end: int, count: int) -> tuple[int, int, int] | None:
        """How many entries precede the first one that has a sector of zeros, where that begins, and where it ends."""
        if self._torn_from is None or not count or not self._has_zeros(start, end):
            return None
        base = self._base
        starts = kernel.spans(self._buffer, start, end, count)
        for row in range(count):
            is_after = base + starts[row] >= self._torn_from
            if is_after and has_zero_sector(self._buffer, starts[row], starts[row + 1], base):
                return row, starts[row], starts[row + 1]
        return None

    def _is_torn_by_power(self, start: int) -> bool:
        """Whether the bad bytes at `start` are what a power cut leaves, whatever follows them."""
        if self._torn_from is None or start < self._torn_from or not self.source.is_newest:
            return False
        if self.mark is not None and self._is_displaced(self.mark):
            return False
        size = self._size()
        return lacks_sector(
            lambda first, end: self.file.read_at(first, end - first), start, min(self.limit, size), size
        )

    def _tear(self, start: int, reason: str) -> Damage:
        """All that is left before the position is a torn tail."""
        self.position = end = max(start, min(self.limit, self._size()))
        kind = self._kind(start)
        self.is_by_power_cut = kind == "torn_tail"
        return self._damage(start, end, reason, kind)

    def _finish(self) -> Iterator[Damage]:
        """All entries were whole; what remains is whether the file ends as it should."""
        if isinstance(self._stream, InflatedStream):
            self._stream.drain()
        if self._stream.problem:
            yield self._damage(self.position, self.position, self._stream.problem, "checksum")
        elif self.position < self.limit:
            yield self._damage(self.position, self.position, self._short(), self._kind(self.position))
        elif self.mark is not None and self.limit < self.mark.synced and self._is_position_low(self.mark):
            reason = f"the position is {self.limit}, and the entries up to {self.mark.synced} were on the disk"
            yield self._damage(POSITION_AT, ARRAY_AT, reason)
        elif not self.source.compressed and (reason := self._why_displaced()):
            yield self._damage(POSITION_AT, ARRAY_AT, reason)

    @property
    def has_its_length(self) -> bool:
        """Whether it is known that no bytes were removed from the file, nor inserted."""
        return self.mark is not None and not self._is_cut(self.mark)

    def _is_cut(self, mark: Mark) -> bool:
        """Whether the mark shows that bytes were removed from the file, or inserted."""
        return mark.is_moved or mark.synced > self._size()

    def _is_displaced(self, mark: Mark) -> bool:
        """Whether the mark is within an entry: entries before it were removed, or inserted.

        A writer sets it between two entries. Nothing is said if what precedes it is not whole.
        """
        if self._displaced is None:
            self._displaced = False
            for item in Cursor(self.file, self.source).items():
                end = (item.span if isinstance(item, Head) else item).end
                if end >= mark.synced:
                    is_whole = not isinstance(item, Damage) or item.kind == EARLIER
                    self._displaced = is_whole and mark.synced not in _ends(item)
                    break
        return self._displaced

    def _is_position_low(self, mark: Mark) -> bool:
        """Whether whole entries follow the position up to the mark, so that the position must be wrong.

        One that has a sector of zeros is synced before the position counts it: a crash can leave that.
        """
        start, end = self.limit, mark.synced
        if end > self._size() or self.file.read_at(POSITION_AT, POSITION.size) != POSITION.pack(start):
            return False  # what the mark says is wrong, or a writer has raised both since we have read the position
        data = self.file.read_at(start, end - start)
        stop, count, _, smallest, _ = kernel.walk(data, 0, len(data))
        is_whole = count > 0 and stop == len(data) == end - start and smallest >= self._least_time()
        return is_whole and (mark.is_closed or not has_zero_sector(data, 0, len(data), start))

    def _why_displaced(self) -> str:
        """Why whole entries that follow the position were moved there; empty if there are none, or a crash left them.

        Position and mark are read again: a writer may have changed both meanwhile.
        """
        if self.file.read_at(self.limit, len(ENTRY_START)) != ENTRY_START:
            return ""
        data = self.file.read_at(self.limit, _BEYOND_BYTES)
        size, count, _, smallest, _ = kernel.walk(data, 0, len(data))
        if not count or smallest < self._least_time() or not _is_unused(data[size:]):
            return ""
        mark = self._read_mark()
        if self.file.read_at(POSITION_AT, POSITION.size) != POSITION.pack(self.limit):
            return ""
        reason = f"{count} whole {'entry follows' if count == 1 else 'entries follow'} the position {self.limit}"
        if mark is None:
            begun = 0 if self.metadata is None else self.metadata.initialized
            is_repeated = find_repeated(self._entries_again(), begun, size)
            return f"{reason}, and entries of that size are there twice" if is_repeated else ""
        if mark.is_moved:
            return f"{reason}, and bytes of the file are missing, or were inserted"
        return f"{reason}, at which the store was closed" if mark.is_closed and mark.synced == self.limit else ""

    def _entries_again(self) -> Iterator[tuple[int, bytes]]:
        """The times and bytes of all entries before the position."""
        for item in Cursor(self.file, self.source).items():
            if isinstance(item, Chunk):
                places = pairwise(kernel.spans(item.data, item.start, item.stop, item.count))
                entries = kernel.entries(item.data, item.start, item.stop, item.count)
                for entry, (start, end) in zip(entries, places, strict=True):
                    yield entry.t, bytes(item.data[start:end])
            if (item.span if isinstance(item, Head) else item).end >= self.limit:
                return  # what follows is being judged

    def _short(self) -> str:
        return f"the position is {self.limit}, and the file ends at {self._base + self._have}"

    def _past(self) -> str:
        return f"the position is {self.limit}, past the end of the file, {self._size()}"

    def _kind(self, start: int) -> str:
        """What bad bytes are that no entry follows: damage where no crash of a writer leaves this.

        A crash leaves no file that is shorter than its position, moves neither a mark nor the entries before it, and
        changes nothing that was synced.
        """
        mark = self.mark
        is_intact = mark is None or (self.has_its_length and start >= mark.synced and not self._is_displaced(mark))
        return "torn_tail" if self.source.is_newest and is_intact and self.limit <= self._size() else "malformed"

    # --- behind damage ----------------------------------------------------------------------------------------------

    def _pass_bad(self, start: int, reason: str) -> Generator[Damage, None, bool]:
        """Report the bad bytes from `start` on; whether the cursor was moved to entries after them."""
        found = self._find_next(start + 1)
        if found is not None:
            self.position = found
            yield self._damage(start, found, reason)
            return True
        end = max(start, self._base + self._stop())
        self.position = end
        if self._stream.problem:
            yield self._damage(start, end, self._stream.problem)
        elif (whole := self._end_of_whole(start)) is not None:
            reason = f"the position {self.limit} is within this entry, which ends at {whole}"
            yield self._damage(start, end, reason)
        elif (beyond := self._find_beyond(start)) is not None:
            yield self._damage(start, end, f"{reason}; whole entries follow the position, from {beyond.start} on")
        else:
            past = f"{reason}; {self._short()}" if self._base + self._have < self.limit else reason
            mark = self.mark
            if mark is not None and (self._is_cut(mark) or (start >= mark.synced and self._is_displaced(mark))):
                past += "; bytes of the file are missing, or were inserted"
            yield self._damage(start, end, past, "malformed" if self._is_followed else self._kind(start))
        return False

    def _find_next(self, position: int) -> int | None:
        """Where entries go on; see the top of this file. What is before it is dropped."""
        probe = position - self._base
        self._is_followed = False
        while True:
            stop = self._stop()
            at = self._buffer.find(ENTRY_START, min(probe, stop), stop)
            if at < 0:
                keep = max(min(probe, stop), stop - len(ENTRY_START) + 1)
                if self._is_all() or not self._more(keep):
                    return None
                probe = 0
                continue
            end, count, ending, smallest, _ = kernel.walk(self._buffer, at, stop)
            is_large = self._have - at >= _SEARCH_BYTES
            ends_there = ending == codec.MALFORMED and any(self._buffer[end:stop])
            if not ends_there and not self._is_all() and not is_large and self._more(at):
                probe = 0
                continue
            self._is_followed |= count > 0
            if count and not ends_there and smallest >= self._least_time():
                return self._base + at
            probe = max(at + 1, end)

    def _least_time(self) -> int:
        """What entries after damage must have at least. The state that a journal begins with may be in any order."""
        begun = 0 if self.metadata is None else self.metadata.initialized
        return self._last if self._last > begun else 0

    def _end_of_whole(self, start: int) -> int | None:
        """Where the entry ends that the position is in, if it is whole; None if nothing shows that there is one."""
        if self.source.compressed or self.limit <= start or self._size() <= self.limit:
            return None
        data = self.file.read_at(start, self.limit - start + _BEYOND_BYTES) if self.limit - start < 1 << 26 else b""
        end, count, _, _, _ = kernel.walk(data, 0, len(data), 1)
        return start + end if count else None

    def _find_beyond(self, start: int) -> Span | None:
        if self.source.compressed or self._size() <= self.limit:
            return None
        return find_beyond(self.file, start, self.limit, self._least_time())

    def _damage(self, start: int, end: int, reason: str, kind: str = "malformed") -> Damage:
        return Damage(self.source.name, start, end, reason, kind)


def find_beyond(file: File, start: int, position: int, least_time: int) -> Span | None:
    """Whole entries beyond the position up to where a file has only zeros, or a mark: bytes were inserted before them.

    They begin after `start`, where bad bytes begin, and none is earlier than `least_time`.
    """
    base = max(start + 1, position - _BEYOND_BYTES)
    if base >= file.size():
        return None
    data = file.read_at(base, position - base + _BEYOND_BYTES)
    at = -1
    for _ in range(_MOST_ATTEMPTS):
        at = data.find(ENTRY_START, at + 1)
        if at < 0:
            break
        end, count, _, smallest, _ = kernel.walk(data, at, len(data))
        if count and base + end > position and smallest >= least_time and _is_unused(data[end:]):
            return Span(base + at, base + end)
        at = max(at, end - 1)
    return None


def _is_unused(data: bytes) -> bool:
    """Whether bytes are zeros, but for a mark at their end."""
    rest = data.strip(b"\0")
    return not rest or (len(rest) <= MARK.size and rest.startswith((MARK_MAGIC, CLOSED_MAGIC)))


def _ends(item: Head | Chunk | Damage) -> list[int]:
    """Where a part of a file ends, and each entry in it."""
    return item.starts() if isinstance(item, Chunk) else [(item.span if isinstance(item, Head) else item).end]


def _reason(header: bytes | bytearray) -> str:
    """What is wrong with a header, in words."""
    try:
        codec.decode_header(header)
    except Malformed as malformed:
        return malformed.reason
    return "the header is whole"


# --- torn entries -----------------------------------------------------------------------------------------------------


def lacks_sector(read: Callable[[int, int], bytes | bytearray], start: int, stop: int, size: int) -> bool:
    """Whether a sector is missing of the entry that begins at `start`, in a file of `size` bytes that has a mark.

    The space after the position has only zeros, and of an entry that is stored there each sector reaches the disk,
    or does not. So of an entry that was torn a sector is missing: it has zeros from its beginning, or that of the
    entry, up to its end, or up to the beginning of the next entry. What precedes that is the beginning of an entry.
    Other bad bytes were on the disk once, and are damage, whatever comes after them.

    `read` gives the bytes between two places of the file; entries end at `stop`.
    """
    window_bytes = _LEAST_WINDOW_BYTES
    while True:
        end = min(start + window_bytes, stop)
        data = read(start, min(_sector_end(end - 1), mark_at(size)))
        missing = _first_missing(data, start)
        _, count, ending, _, _ = kernel.walk(data, 0, min(missing, end - start), 1)
        is_beginning = not count and ending != codec.MALFORMED
        if missing < len(data) or not is_beginning or end == stop:
            return missing < len(data) and is_beginning
        window_bytes *= 4


def _sector_end(position: int) -> int:
    return (position // SECTOR_BYTES + 1) * SECTOR_BYTES


def _first_missing(data: bytes | bytearray, base: int) -> int:
    """Where the first sector is missing, of bytes from `base` of a file on; their end where none is."""
    at = 0
    while at < len(data):
        end = min(_sector_end(base + at) - base, len(data))
        rest = data[at:end].lstrip(b"\0")
        if len(rest) < end - at and ENTRY_START.startswith(rest[: len(ENTRY_START)]):
            return at
        at = end
    return at
