"""Repairing the journals of a store: what to do about each kind of damage. `core.repair` does it, and takes it back.

    a torn tail                     the position is put before it; its bytes stay where they are, and do not count
    a position that cannot be       it is put after the last of the whole entries that follow each other
    a wrong version or array start  is restored, where the metadata after it is whole
    no active journal, or one       it is made from the state at the end of the last archive that is whole
    without any whole entry
    damaged metadata                one changed bit is restored, if no other one makes it whole; else the header and the
                                    metadata are made again, with a guess of when the journal began
    entries that their times        go, as `disorder.py` decides. If they are copies, and without them the entries end
    disprove                        at the position, nothing is lost
    other bad bytes                 go: the file is put together from the whole entries before and after them
    bytes after an archive          are cut off: the checksum of the archive fits
    a damaged archive               one changed bit is restored, if no other one makes all of it whole and its checksum
                                    fit; else the archive is taken out. The bit is searched for only if that means to
                                    decompress at most 1 GiB, as for an archive of 5 KB that has 20 KB in it

What comes out of an archive whose checksum does not fit is not proven, however whole it looks: deflate yields wrong
bytes before it notices, if it does. So none of it stays. The states at its beginning and end are in the journals before
and after it.

Every byte that goes is kept in `.logwright/cut/`. Nothing is invented: an entry that is lost is lost, and the account
says so; its fields are described in `lost.py`. The state may then have an older value of its key, until the key is
written again. A journal that is missing between two others stays missing, and the account has its time.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Set
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final, NamedTuple

from ...core.bytes.outcome import Damage, Malformed, Span
from ...core.io.disk import REAL_DISK, Disk, File
from ...core.repair.losses import Loss, listed, read_losses
from ...core.repair.plan import Create, Cut, Patch, Plan, Remove, Rename, Repair, Step
from ...core.repair.side_by_side import FileByFile, SideBySideRepair
from ...core.times import shown_time
from ...errors import LogwrightError, StorageFailed, TooLarge, WrongUse
from ..bytes import codec, kernel
from ..bytes.layout import (
    ARCHIVE_LEVEL,
    ARRAY_AT,
    HEADER_BYTES,
    LEAST_ENTRY_BYTES,
    MAX_TIMESTAMP,
    POSITION_AT,
    VERSION_AT,
)
from ..bytes.records import Metadata
from .archive_stream import InflatedStream
from .cursor import EARLIER, Chunk, Cursor, Head, find_beyond
from .disorder import find_disproved, find_repeated
from .files import (
    MOST_TAKEN_NS,
    JournalFile,
    Kind,
    active_name,
    agree,
    list_stores,
    lock_name,
    old_name,
    parse_name,
    temporary_name,
)
from .lost import NEVER, LostTimes, loss_fields, settled
from .reader import Reader
from .succession import end_of, find_gap, is_next
from .surroundings import read_metadata, stands_in

__all__ = ["Plan", "Repair", "apply", "plan", "undo"]

_MOST_ARCHIVE_BYTES: Final = 64 << 20
"""An archive that becomes larger than this is not remade: its bytes would have to be in memory, and in the log."""
_MOST_TRIED_BYTES: Final = 1 << 30
"""How many bytes are decompressed at most to find the one bit of an archive that has changed."""
_MOST_METADATA_BYTES: Final = 4096
"""Of more bytes no single bit is searched for."""
_SUFFIX: Final = ".repair"
_FIELDS: Final = {VERSION_AT: "the version", POSITION_AT: "the position", ARRAY_AT: "the start of the array"}


def _readers(path: Path, disk: Disk) -> list[Reader]:
    if disk.is_directory(path):
        return [Reader(path / active_name(store), disk=disk) for store in list_stores(disk, path)]
    reader = Reader(path, disk=disk)
    parsed = parse_name(path.name)
    if parsed is not None and parsed[1] is not Kind.ACTIVE and disk.exists(path.with_name(active_name(parsed[0]))):
        raise WrongUse(f"{path} is a part of the store {path.with_name(active_name(parsed[0]))}: repair that")
    return [reader]


# --- one file -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Run:
    """Whole entries that follow each other: the earliest time among them, and the latest."""

    span: Span
    smallest: int
    largest: int


class _KeptTimes:
    """The times of the entries that are kept, before and after any place."""

    def __init__(self, runs: list[_Run]) -> None:
        self._starts = [run.span.start for run in runs]
        self._ends = [run.span.end for run in runs]
        self._largest = list(accumulate((run.largest for run in runs), max))
        self._smallest = list(accumulate((run.smallest for run in reversed(runs)), min))[::-1]
        self.last = self._largest[-1] if runs else 0

    def before(self, place: int) -> int | None:
        """The latest time of an entry that ends by there; None if there is none."""
        index = bisect_right(self._ends, place)
        return self._largest[index - 1] if index else None

    def after(self, place: int) -> int | None:
        """The earliest time of an entry that begins there or later; None if there is none."""
        index = bisect_left(self._starts, place)
        return self._smallest[index] if index < len(self._starts) else None


@dataclass(slots=True)
class _Dropped:
    """Consecutive whole entries that are taken out, and the times of those that are in no other place."""

    span: Span
    times: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Salvage:
    """A file gone through: the runs of whole entries, what is wrong, and where the entries should end."""

    reader: Reader
    source: JournalFile
    file: File
    head: Head | None = None
    runs: list[_Run] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    early: list[Span] = field(default_factory=list)
    """Whole entries that are earlier than the one before them."""
    is_rising: bool = True
    """Whether it is known that times do not decrease."""
    dropped: list[_Dropped] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    content: bytes = b""
    content_bytes: int = 0
    why_lost: str = ""
    """Why the archive is taken out, if it is."""
    why_empty: str = ""
    """Why nothing is left of the active journal, if `.old` has to take its place."""
    entries: int = 0
    keys: dict[str, None] = field(default_factory=dict)
    size: int = 0
    limit: int = 0
    """Where the header says that the entries end; where it cannot be read, where they do."""
    is_begin_known: bool = True
    is_by_power_cut: bool = False

    def walk(self) -> None:
        """Go through the file."""
        self.size = self.file.size()
        cursor = Cursor(self.file, self.source, limits=self.reader.limits)
        for item in cursor.items():
            if isinstance(item, Damage):
                if item.kind == EARLIER:
                    self.early.append(Span(item.start, item.end))
                    self.is_rising = False
                else:
                    self.damages.append(item)
            elif isinstance(item, Head):
                self.head = item
            else:
                self._take(Span(item.position, item.end), item.smallest, item.largest)
                self._count(item)
        self.limit = cursor.limit
        self.is_by_power_cut = cursor.is_by_power_cut

    def _take(self, span: Span, smallest: int, largest: int) -> None:
        last = self.runs[-1] if self.runs else None
        if last is not None and last.span.end == span.start:
            span = Span(last.span.start, span.end)
            self.runs[-1] = _Run(span, min(last.smallest, smallest), max(last.largest, largest))
        else:
            self.runs.append(_Run(span, smallest, largest))

    def _count(self, chunk: Chunk) -> None:
        if self.source.compressed and self.content_bytes <= _MOST_ARCHIVE_BYTES:
            self.content_bytes += chunk.stop - chunk.start
            self.entries += chunk.count
            entries = kernel.entries(chunk.data, chunk.start, chunk.stop, chunk.count)
            self.keys.update(dict.fromkeys(entry.k for entry in entries))

    def steps(self) -> list[Step]:
        """The steps that leave whole entries only, and a position that fits them."""
        if not self.damages and not self.early:
            return []
        if self.source.compressed:
            return self._archive_steps()
        if self.head is None or self.head.metadata is None:
            return self._steps_without_head()
        return self._plain_steps(self.head.span.end)

    # --- a journal that is not compressed ---------------------------------------------------------------------------

    def _plain_steps(self, start: int) -> list[Step]:
        """The steps for a journal whose entries begin at `start`."""
        self._drop_shortened()
        end = self._take_all(start)
        if not self._account_copies(end, start):
            self._account(end)
        if len(self.runs) < 2 and (not self.runs or self.runs[0].span.start == start) and not self.dropped:
            return self._patched(self.source.name, end, self.damages[-1].reason)
        return self._rebuilt([Span(0, start), *(run.span for run in self.runs)])

    def _steps_without_head(self) -> list[Step]:
        """The position is below the least, or the beginning is damaged."""
        found = None
        if self.damages[-1].start == POSITION_AT:  # there is one: without a beginning no entry is too early
            try:
                found = codec.decode_metadata(self.file.read_at(0, 64 << 10), HEADER_BYTES)
            except Malformed:
                found = None
        if not isinstance(found, tuple):
            return self._steps_with_new_head()
        self.head = Head(self.source, *found, 0)
        return self._plain_steps(found[1].end)

    def _steps_with_new_head(self) -> list[Step]:
        """The metadata is damaged, and the header perhaps as well: both are made from what is known elsewhere."""
        first = self.damages[0]
        if not self.runs:
            return self._replaced_by_state(first)
        self._drop_shortened()
        start = self.runs[0].span.start
        metadata, what = self._find_metadata(start)
        head = codec.encode_header(HEADER_BYTES) + codec.encode_metadata(metadata)
        self.head = Head(self.source, metadata, Span(HEADER_BYTES, len(head)), 0)
        self.is_rising = False  # this could not be seen without it
        self.losses.append(Loss(first.file, first.start, first.size, 0, 0, what, first.reason, "restored"))
        self.damages[0] = replace(first, start=min(start, len(head)))
        end = self._take_all(start)
        if start == len(head) and self.limit <= end:
            del self.damages[0]  # nothing is missing, and nothing too much
        self._account(end, is_header_lost=first.start < HEADER_BYTES)
        head = codec.encode_header(end - start + len(head)) + head[HEADER_BYTES:]
        if len(self.runs) == 1 and start == len(head) and not self.dropped:
            return [Patch(self.source.name, 0, self.file.read_at(0, start), head, what)]
        name = self.source.name
        spans = tuple(run.span for run in self.runs)
        head = codec.encode_header(len(head) + sum(span.size for span in spans)) + head[HEADER_BYTES:]
        return self._replaced(first.reason, Create(name + _SUFFIX, name, spans, what, inserts=((0, head),)))

    def _replaced_by_state(self, damage: Damage) -> list[Step]:
        """Nothing can be read: `.old` takes the place of the active journal, or the end of the last archive."""
        reason = f"{damage.reason}; no whole entry can be found in it"
        if self.source.timestamp is not None and not self.reader.is_single_file:
            return self._lost_archive(reason)
        if self.source.name == active_name(self.reader.store) and self.reader.listing().has_old:
            self.why_empty = reason
            return []
        return self.replaced_by_archive(reason)

    def replaced_by_archive(self, reason: str) -> list[Step]:
        """Let the state at the end of the last archive take the place of the active journal."""
        name, newest = self.source.name, _Newest(self.reader)
        if name != active_name(self.reader.store) or not newest.content:
            self.left.append(f"{name} @ 0: {reason}; restore it from a copy, or move it away")
            return []
        self.losses.append(newest.loss(self.size, reason))
        self._becomes(newest.content)
        create = Create(name + _SUFFIX, "", (), "the state at the end of the last archive", newest.content)
        return self._replaced(reason, create)

    def _find_metadata(self, start: int) -> tuple[Metadata, str]:
        """The metadata of a journal whose entries begin at `start`, and how it was found.

        A bit is restored if no other one makes it whole. Else the journal began when the one before it ended. If there
        is none, or its end is lost, the state is known from the last entry on: entries before that may be copies.
        """
        data = bytearray(self.file.read_at(0, start))
        found = [metadata for metadata in _with_one_bit_changed(data) if metadata is not None]
        if len(found) == 1:
            return found[0], "the metadata: no other bit makes it whole"
        begun, known_by = self.source.before, "when the journal before it ended"
        if not begun or self.reader.is_single_file:
            begun, known_by = max(run.largest for run in self.runs), "the time of its last entry"
            self.is_begin_known = False
        return Metadata(begun), f"the header and the metadata, with a guess of when it began: {known_by}"

    def _drop_shortened(self) -> None:
        """Take out the entry before bad bytes that are too few for one: it may be what they belong to."""
        ending = {run.span.end: index for index, run in enumerate(self.runs[:-1])}
        for number, damage in enumerate(self.damages):
            if damage.size >= LEAST_ENTRY_BYTES or damage.start not in ending:
                continue
            index = ending.pop(damage.start)
            run = self.runs[index]
            data = self.file.read_at(run.span.start, run.span.size)
            size, count, _, _, _ = kernel.walk(data, 0, len(data))
            starts = kernel.spans(data, 0, size, count)
            _, _, _, smallest, largest = kernel.walk(data, 0, starts[-2])
            end = run.span.start + starts[-2]
            self.damages[number] = replace(damage, start=end)
            self.runs[index] = _Run(Span(run.span.start, end), smallest, largest)
        self.runs = [run for run in self.runs if run.span.size]

    def _take_all(self, start: int) -> int:
        """Take the entries after the last ones as well, and drop those that are disproved; where they end then."""
        self._drop_disproved()
        self._take_beyond(start)
        self._drop_disproved()
        end = self.runs[-1].span.end if self.runs else start
        if not self.dropped and not self.source.compressed and self.limit < end:
            self._drop_repeated(end - self.limit)
        return end

    def _take_beyond(self, start: int) -> None:
        """Take the whole entries that follow the last ones that count, where the position may be wrong.

        That is so where it cannot be right, and where bytes before it were damaged: they may be more than they were.
        """
        end = max([start, *(run.span.end for run in self.runs), *(one.span.end for one in self.dropped)])
        wrong = self.damages[-1] if self.damages else self._damage_of(self.dropped[-1])
        is_moved = wrong.start >= HEADER_BYTES and self.limit == end
        if wrong.kind == "torn_tail" or not (wrong.start in (POSITION_AT, end) or is_moved):
            return
        last = max((run.largest for run in self.runs), default=0)
        while True:
            data = self.file.read_at(end, 1 << 20)
            size, count, _, smallest, largest = kernel.walk(data, 0, len(data))
            if count and smallest >= (last if last > (self.begun or 0) else 0):  # a state may be in any order
                self.is_rising &= kernel.walk(data, 0, size, -1, last, 0)[1] == count
                self._take(Span(end, end + size), smallest, largest)
                end, last = end + size, max(last, largest)
                continue
            beyond = find_beyond(self.file, end, self.limit, last) if wrong.start == end else None
            if beyond is None:
                return
            self.damages[-1] = replace(wrong, end=beyond.start)
            end = beyond.start

    # --- entries that are disproved ---------------------------------------------------------------------------------

    def _rows(self) -> list[tuple[int, Span]]:
        """The time and the place of each whole entry."""
        found = []
        for span in sorted([*(run.span for run in self.runs), *self.early], key=lambda span: span.start):
            data = self._bytes_of(span)
            end, count, _, _, _ = kernel.walk(data, 0, len(data))
            times = kernel.columns(data, 0, end, count, codec.TIMESTAMPS).timestamps
            assert times is not None
            places = pairwise(span.start + start for start in kernel.spans(data, 0, end, count))
            found += [(time, Span(*place)) for time, place in zip(memoryview(times).cast("Q"), places, strict=True)]
        return found

    def _bytes_of(self, span: Span) -> bytes:
        """Bytes of the journal; those of an archive are decompressed."""
        if not self.source.compressed and not self.content:
            return self.file.read_at(span.start, span.size)
        if not self.content:
            self.content = zlib.decompressobj().decompress(self.file.read_at(0, self.size), 2 * _MOST_ARCHIVE_BYTES)
        return self.content[span.start : span.end]

    def _drop_disproved(self) -> None:
        """Take out the entries that their times disprove."""
        if self.is_rising:
            return
        self.is_rising = True
        begun = MAX_TIMESTAMP if self.head is None or self.head.metadata is None else self.head.metadata.initialized
        rows = self._rows()
        times = [time for time, _ in rows]
        if all(time <= later or time <= begun for time, later in pairwise(times)):
            return
        copies, unproven = find_disproved(times, begun, lambda row: self._bytes_of(rows[row][1]))
        self._drop(rows, copies.keys() | unproven, unproven)

    def _drop_repeated(self, size: int) -> None:
        """Take out entries of a size in all that are there twice, though times do not show it."""
        rows = self._rows()
        entries = ((time, self._bytes_of(span)) for time, span in rows)
        self._drop(rows, find_repeated(entries, self.begun or 0, size), set())

    def _drop(self, rows: list[tuple[int, Span]], gone: Set[int], unproven: Set[int]) -> None:
        """Take some of the entries out."""
        self.runs, self.early = [], []
        for row, (time, span) in enumerate(rows):
            if row not in gone:
                self._take(span, time, time)
                continue
            last = self.dropped[-1] if self.dropped else None
            if last is None or last.span.end != span.start:
                last = _Dropped(Span(span.start, span.start))
                self.dropped.append(last)
            last.span = Span(last.span.start, span.end)
            last.times += [time] if row in unproven else []

    def _damage_of(self, dropped: _Dropped) -> Damage:
        reason = "times do not rise here" if dropped.times else "the same is there twice"
        return Damage(self.source.name, dropped.span.start, dropped.span.end, reason, EARLIER)

    def _account_copies(self, end: int, start: int) -> bool:
        """Account for entries that were there twice, if the position proves that nothing else has changed."""
        size = sum(run.span.size for run in self.runs)
        is_position = [damage.start == POSITION_AT or damage.start < end for damage in self.damages]
        if not self.dropped or start + size != self.limit or not all(is_position):
            return False
        if any(one.times for one in self.dropped):
            return False
        for one in self.dropped:
            reason = f"without this the entries end at the position {self.limit}"
            what = "the entries: some were there twice, and their second copy is taken out"
            self.losses.append(Loss(self.source.name, one.span.start, one.span.size, 0, 0, what, reason, "restored"))
        return True

    def _patched(self, name: str, end: int, reason: str) -> list[Step]:
        """Patches of the header of a file, whose entries end somewhere."""
        old = self.file.read_at(0, HEADER_BYTES)
        new = codec.encode_header(end)
        steps: list[Step] = []
        for start, stop in ((0, 8), (8, 16), (16, 17)):
            if old[start:stop] != new[start:stop]:
                steps.append(Patch(name, start, old[start:stop], new[start:stop], reason))
        return steps

    def _rebuilt(self, spans: list[Span]) -> list[Step]:
        name = self.source.name
        replacement = name + _SUFFIX
        end = sum(span.size for span in spans)
        create = Create(replacement, name, tuple(spans), "the whole entries before and after the damage")
        reason = (self.damages or [self._damage_of(self.dropped[0])])[0].reason
        return self._replaced(reason, create, *self._patched(replacement, end, "the entries end here"))

    def _replaced(self, reason: str, *steps: Step) -> list[Step]:
        """Let the file that these steps make take the place of the damaged one."""
        name = self.source.name
        return [
            *steps,
            Remove(name, reason),
            Rename(name + _SUFFIX, name, "it takes the place of the damaged file"),
        ]

    # --- an archive -------------------------------------------------------------------------------------------------

    def _archive_steps(self) -> list[Step]:
        stream = InflatedStream(self.file, self.reader.limits)
        stream.drain()
        name = self.source.name
        if stream.is_refused:
            self.left.append(f"{name} @ 0: {stream.problem}")
            return []
        if stream.problem and not stream.end:
            return self._unproven_archive(stream)
        if len(self.damages) == 1 and stream.problem and not self.early:
            return [Cut(name, stream.end, self.size, stream.problem)]
        if self.head is None or self.head.metadata is None:
            return self._lost_archive(self.damages[0].reason)
        if self.content_bytes > _MOST_ARCHIVE_BYTES:
            place = self.damages[0].start if self.damages else self.early[0].start
            self.left.append(f"{name} @ {place}: its entries are damaged, and it is too large to be remade")
            return []
        start = self.head.span.end
        self._drop_disproved()
        end = self.runs[-1].span.end if self.runs else start
        if not self._account_copies(end, start):
            self._account(end)
        first = (self.damages or [self._damage_of(self.dropped[0])])[0]
        body = codec.encode(self.head.metadata) + b"".join(self._bytes_of(run.span) for run in self.runs)
        data = zlib.compress(codec.encode_header(HEADER_BYTES + len(body)) + body, ARCHIVE_LEVEL)
        return [
            Create(name + _SUFFIX, "", (), "the whole entries that are in the archive", data),
            Remove(name, first.reason),
            Rename(name + _SUFFIX, name, "it takes the place of the damaged archive"),
        ]

    def _unproven_archive(self, stream: InflatedStream) -> list[Step]:
        name = self.source.name
        if 8 * self.size * max(self.size, stream.bytes_out) > _MOST_TRIED_BYTES:
            return self._lost_archive(f"{stream.problem}; it is too large to be searched for one changed bit")
        data = self.file.read_at(0, self.size)
        found = find_changed_bit(data)
        if found is None:
            return self._lost_archive(stream.problem)
        position, mask = found
        old, new = data[position : position + 1], bytes([data[position] ^ mask])
        journal = _journal_in(bytearray(data[:position] + new + data[position + 1 :]))
        assert journal is not None
        self._becomes(journal)
        what = f"one bit of the archive that ended at {shown_time(self.source.ended or 0)}"
        reason = f"{stream.problem}; with the bit 0x{mask:02x} of this byte changed, and no other, it is whole"
        self.losses.append(Loss(name, position, 1, 0, 0, what, reason, "restored"))
        return [Patch(name, position, old, new, reason)]

    def _lost_archive(self, reason: str) -> list[Step]:
        """Take an archive out, with all changes of its time: see `_Chain`."""
        self.why_lost = reason
        if self.reader.is_single_file:
            self.losses.append(self.loss_of(0, NEVER))
        return [Remove(self.source.name, reason)]

    def loss_of(self, start: int, stop: int | None) -> Loss:
        """The loss of an archive that is taken out, if its changes are of these times."""
        what = f"every change {_times(start, stop)}"
        if self.entries:
            names = listed(map(repr, self.keys), len(self.keys))
            what += f" (what can be read there, unproven, are {self.entries} entries of the keys {names})"
        fields, part = loss_fields(self.reader.store, start, stop), self.reader.part
        return Loss(self.source.name, 0, self.size, 0, None, what, self.why_lost, part=part, fields=fields)

    # --- what is left -----------------------------------------------------------------------------------------------

    def repaired_items(self) -> Iterator[Head | Chunk]:
        """The head and the entries of the file when it is repaired."""
        if not self.damages and not self.dropped:
            cursor = Cursor(self.file, self.source, limits=self.reader.limits)
            yield from (item for item in cursor.items() if not isinstance(item, Damage))
            return
        if self.head is not None:
            yield self.head
        for run in self.runs:
            data = bytearray(self._bytes_of(run.span))
            stop, count, _, _, _ = kernel.walk(data, 0, len(data))
            yield Chunk(self.source, data, 0, stop, run.span.start, count, run.smallest, run.largest)

    @property
    def begun(self) -> int | None:
        """When the journal began, as it says itself when it is repaired."""
        return None if self.head is None or self.head.metadata is None else self.head.metadata.initialized

    @property
    def last(self) -> int:
        """The time of its last entry then, or of its beginning."""
        return max([self.begun or 0, *(run.largest for run in self.runs)])

    @property
    def is_end_known(self) -> bool:
        """Whether its last entry is still there then."""
        end = self.runs[-1].span.end if self.runs else 0
        return not self.why_lost and all(damage.end <= end for damage in self.damages)

    def _becomes(self, journal: bytes) -> None:
        """Let another journal take its place."""
        start, stop = _span_of_entries(journal)
        metadata = codec.decode_metadata(journal, HEADER_BYTES)
        assert isinstance(metadata, tuple)
        _, _, _, smallest, largest = kernel.walk(journal, start, stop)
        self.content = journal
        self.head = Head(self.source, metadata[0], metadata[1], stop)
        self.runs = [_Run(Span(start, stop), smallest, largest)] if start < stop else []

    # --- what is lost -----------------------------------------------------------------------------------------------

    def _account(self, end: int, *, is_header_lost: bool = False) -> None:
        """Account for what the damages cost, where the entries are going to end at `end`.

        What a power cut leaves costs nothing that was durable. Any other torn tail may show that entries were removed,
        unless it is too small for one.
        """
        kept = _KeptTimes(self.runs)
        found: list[tuple[Damage, list[int]]] = [(damage, []) for damage in self.damages]
        for damage, times in (*found, *((self._damage_of(one), one.times) for one in self.dropped)):
            if damage.kind == "torn_tail" and (self.is_by_power_cut or 0 < damage.size < LEAST_ENTRY_BYTES):
                continue
            if damage.start in _FIELDS and damage.end <= HEADER_BYTES:
                self._account_field(damage)
            else:
                self._account_range(damage, end, times, kept, is_header_lost=is_header_lost)

    def _account_field(self, damage: Damage) -> None:
        what = f"{_FIELDS[damage.start]} in the header"
        self.losses.append(Loss(damage.file, damage.start, damage.size, 0, 0, what, damage.reason, "restored"))

    def _account_range(
        self, damage: Damage, end: int, times: list[int], kept: _KeptTimes, *, is_header_lost: bool = False
    ) -> None:
        """Bytes that go. Where entries end before the position, they were moved up by bytes that are gone as well.

        Without the header nothing says how many these are. `times` are those of the entries that go.
        """
        limit = self.limit if not self.source.compressed else 0
        before, after = kept.before(damage.start), kept.after(damage.end)
        is_within = after is not None
        if not is_within and damage.start < end:  # it was the position that was wrong
            self.losses.append(
                Loss(damage.file, POSITION_AT, 8, 0, 0, "the position in the header", damage.reason, "restored")
            )
            return
        gone = max(0, limit - end) if is_within else max(damage.end, limit) - damage.end
        most = (damage.size + gone) // LEAST_ENTRY_BYTES
        has_bytes = self.source.compressed or any(self.file.read_at(damage.start, min(damage.size, 1 << 20)))
        is_torn = damage.kind == "torn_tail"
        least = 1 if has_bytes and end <= limit and most and not is_header_lost and not is_torn else 0
        begun = 0 if self.head is None or self.head.metadata is None else self.head.metadata.initialized
        begun = begun if self.is_begin_known else 0
        start = begun if before is None else before
        is_explained = is_within or has_bytes or len(self.damages) + len(self.dropped) > 1
        if not is_explained:
            start = min(start, begun)  # whole entries may be missing anywhere, and zeros may have taken their space
        start = min([start, *times])
        what = f"changes {_times(start, after)}: any key may have an older value, or be there again, until it changes"
        if before is None and after is not None and after <= start:
            what = f"entries of the state that the journal began with at {shown_time(start)}"
            what += ": keys that have not changed since may be missing"
        stop = self._known_again(kept.last, is_within=is_within and kept.last >= max(times, default=0))
        if stop is not None:
            what += f"; the state is known again from {shown_time(stop)} on"
        fields = loss_fields(self.reader.store, start, stop)
        self.losses.append(
            Loss(
                damage.file,
                damage.start,
                damage.size,
                least,
                None if is_header_lost else max(least, most),
                what,
                damage.reason,
                fields=fields,
            )
        )

    def _known_again(self, last: int, *, is_within: bool) -> int | None:
        """From when on the state is known: an archive's at its end, the active one's after what it has by now.

        None if it has lost something at its end, which may be of any time until it is repaired.
        """
        if self.source.timestamp is not None and not self.reader.is_single_file:
            return self.source.timestamp
        return min(MAX_TIMESTAMP, last) + 1 if is_within else None


def _times(start: int, stop: int | None) -> str:
    """A range of times, for people."""
    if stop is None or stop == NEVER:
        return f"from {shown_time(start)} on"
    if not start:
        return f"until {shown_time(stop)}"
    return f"from {shown_time(start)} to {shown_time(stop)}"


# --- a journal that is missing ---------------------------------------------------------------------------------------


class _Newest:
    """The active journal that a repair makes: the state at the end of the last archive that is whole, or is repaired.

    Nothing is known of what happened after that archive, nor of damaged ones after it.
    """

    def __init__(self, reader: Reader) -> None:
        self.content = b""
        self.problem = "no archive of the store is whole: restore it from a copy"
        self._name = active_name(reader.store)
        self._store = reader.store
        self._ended = 0
        for source in reversed([] if reader.is_single_file else reader.files()):
            if source.compressed:
                try:
                    with closing(reader.disk.open(source.path, "read")) as file:
                        journal = _repaired_archive(reader, source, file)
                except LogwrightError as error:
                    self.problem = str(error)
                    break
                if journal is not None:
                    self.content, self._ended = _state_of(journal, source)
                    break

    def loss(self, size: int, reason: str) -> Loss:
        """What is lost, where `size` bytes are taken out."""
        fields = loss_fields(self._store, self._ended, None)
        return Loss(self._name, 0, size, 0, None, f"every change {_times(self._ended, None)}", reason, fields=fields)


def _repaired_archive(reader: Reader, source: JournalFile, file: File) -> bytes | None:
    """The journal in an archive when it is repaired; None if it is taken out."""
    salvage = _Salvage(reader, source, file)
    salvage.walk()
    if salvage.content_bytes > _MOST_ARCHIVE_BYTES:
        raise TooLarge(f"{source.path}: it has more than {_MOST_ARCHIVE_BYTES} bytes; decompress it in its place")
    data = bytearray(file.read_at(0, salvage.size))
    for step in salvage.steps():
        if isinstance(step, Patch):
            data[step.position : step.position + len(step.new)] = step.new
        elif isinstance(step, Cut):
            del data[step.start :]
        elif isinstance(step, Create):
            data = bytearray(step.data)
    return _journal_in(data)


def _state_of(journal: bytes, source: JournalFile) -> tuple[bytes, int]:
    """A journal that begins with the state at the end of that of an archive, and when that ended.

    Each entry is as it is there, the oldest first.
    """
    start, stop = _span_of_entries(journal)
    _, count, _, _, largest = kernel.walk(journal, start, stop)
    starts = kernel.spans(journal, start, stop, count)
    state: dict[str, tuple[int, bytes]] = {}
    for row, entry in enumerate(kernel.entries(journal, start, stop, count)):
        state.pop(entry.k, None)
        if not entry.deleted:
            state[entry.k] = entry.t, journal[starts[row] : starts[row + 1]]
    entries = b"".join(data for _, data in sorted(state.values(), key=lambda found: found[0]))
    metadata = codec.decode_metadata(journal, HEADER_BYTES)
    assert isinstance(metadata, tuple)
    ended = end_of(source, max(metadata[0].initialized, largest))
    body = codec.encode_metadata(Metadata(ended)) + entries
    return codec.encode_header(HEADER_BYTES + len(body)) + body, ended


# --- the only bit ---------------------------------------------------------------------------------------------------


def _with_one_bit_changed(data: bytearray) -> Iterator[Metadata | None]:
    """What the metadata is with each bit changed that makes it end where the data ends; None where it is none."""
    for position in range(HEADER_BYTES, len(data) if len(data) <= _MOST_METADATA_BYTES else 0):
        for bit in range(8):
            data[position] ^= 1 << bit
            try:
                found = codec.decode_metadata(data, HEADER_BYTES)
                yield found[0] if isinstance(found, tuple) and found[1].end == len(data) else None
            except Malformed:
                pass
            data[position] ^= 1 << bit


def find_changed_bit(data: bytes) -> tuple[int, int] | None:
    """The byte and the bit of an archive that must be changed to make it whole.

    None if there is none, or two that make different journals of it; those of zlib's header may make the same.
    """
    found: tuple[int, int] | None = None
    content = b""
    tried = bytearray(data)
    for position in range(len(data)):
        for bit in range(8):
            tried[position] ^= 1 << bit
            journal = _journal_in(tried)
            tried[position] ^= 1 << bit
            if journal is None:
                continue
            if found is not None and journal != content:
                return None
            found, content = found or (position, 1 << bit), journal
    return found


def _journal_in(data: bytearray) -> bytes | None:
    """The journal in an archive, if the checksum fits and all entries are whole."""
    inflate = zlib.decompressobj()
    try:
        content = inflate.decompress(data, _MOST_ARCHIVE_BYTES)
    except zlib.error:
        return None
    if not inflate.eof or inflate.unused_data:
        return None
    try:
        start, stop = _span_of_entries(content)
    except Malformed:
        return None
    end, _, _, _, _ = kernel.walk(content, start, stop)
    return content if end == stop else None


def _span_of_entries(content: bytes) -> tuple[int, int]:
    """Where the entries of a journal begin and end by its header; `Malformed` if it does not begin as one."""
    header = codec.decode_header(content)
    if not isinstance(header, tuple) or not HEADER_BYTES < header[0].position <= len(content):
        raise Malformed(POSITION_AT, "the position is not within the journal")
    metadata = codec.decode_metadata(content, HEADER_BYTES, header[0].position)
    if not isinstance(metadata, tuple):
        raise Malformed(HEADER_BYTES, "the metadata is not whole")
    return metadata[1].end, header[0].position


# --- the verbs ------------------------------------------------------------------------------------------------------


def lost_at_end(disk: Disk, path: Path) -> list[Loss]:
    """The account that is due for a torn tail of an active journal that entries may be missing from."""
    reader = Reader(path, disk=disk)
    source = next(file for file in reader.files() if file.name == path.name)
    with closing(disk.open(path, "read")) as file:
        salvage = _Salvage(reader, source, file)
        salvage.walk()
        salvage.steps()
    return [replace(loss, part=reader.part) for loss in settled(salvage.losses)]


def _plan(reader: Reader) -> Plan:
    """The plan for the files that are there, and for those that are missing."""
    salvages: list[_Salvage] = []

    def salvage(reader: Reader, source: JournalFile, file: File) -> _Salvage:
        if salvages and not salvages[-1].source.compressed:  # `.old`: when it ended is known when it is repaired
            source = replace(source, before=salvages[-1].last if salvages[-1].is_end_known else 0)
        salvages.append(_Salvage(reader, source, file))
        return salvages[-1]

    plan = FileByFile("versioned", salvage, lock_name)(reader)
    if reader.is_single_file:
        return plan
    empty = next((salvage for salvage in salvages if salvage.why_empty), None)
    if empty is not None and salvages[-2].why_lost:  # which is `.old`
        steps = empty.replaced_by_archive(empty.why_empty)
        added = (replace(loss, part=reader.part) for loss in empty.losses)
        plan = replace(plan, steps=(*plan.steps, *steps), left=(*plan.left, *empty.left), losses=(*plan.losses, *added))
        if empty.left:
            return replace(plan, steps=(), losses=())
        empty = None
    chain = _Chain(reader, salvages)
    losses = chain.losses_of_archives()
    gaps, disorder = chain.gaps((*plan.losses, *losses))
    if disorder:  # what is lost depends on which of the files are right
        return replace(plan, steps=(), losses=(), left=(*disorder, *plan.left))
    plan = replace(plan, losses=(*plan.losses, *losses, *gaps))
    missing = reader.missing()
    if missing:
        return _with_newest(reader, plan, missing[0].reason)
    reason = "" if empty is None else empty.why_empty
    reason = "" if plan.left else reason or stands_in(reader.disk, reader.listing())
    return _with_old(reader, plan, reason) if reason else plan


class _Opening(NamedTuple):
    """A range of times that no journal has, between the end of one and the beginning of the next. None: no end."""

    start: int
    stop: int | None

    def has(self, ended: int, late: int = 0) -> bool:
        """Whether an archive may be from there that ended at a time by its name, which may be a little late."""
        return self.start < ended and (self.stop is None or ended <= self.stop + late)

    @property
    def is_short(self) -> bool:
        """Whether that is nothing, if the name of an archive is a little late."""
        return self.stop is not None and is_next(self.start, self.stop)


class _Chain:
    """The journals of a store when all are repaired, and the archives among them that are taken out.

    What is missing is where a journal does not begin when the one before it ended. What an archive says itself is not
    proven when it is damaged, and its name may be that of another archive. So it is looked for where its name leads to,
    and where a journal ended when it began by its own account. If neither is a place where one is missing, it may be
    missing in any such place.
    """

    def __init__(self, reader: Reader, salvages: list[_Salvage]) -> None:
        self._reader = reader
        self._kept = {salvage.source.name: salvage for salvage in salvages if not salvage.why_lost}
        self._lost = [salvage for salvage in salvages if salvage.why_lost]
        self._files = reader.files_without({salvage.source.name for salvage in self._lost}, self._begun)
        if salvages and salvages[-1].why_empty and self._files[-1].name != self._files[0].name:
            self._files = [*self._files[:-2], replace(self._files[-2], timestamp=None)]

    def _begun(self, source: JournalFile) -> int | None:
        salvage = self._kept.get(source.name)
        return self._reader.begun(source) if salvage is None else salvage.begun

    def _last(self, source: JournalFile) -> int:
        salvage = self._kept.get(source.name)
        return (source.ended or 0) if salvage is None else salvage.last

    def _openings(self) -> list[_Opening]:
        """Where journals are missing, or may be; also before the first one."""
        if not self._files:
            return [_Opening(0, None)]
        found = [_Opening(0, self._begun(self._files[0]) or 0)]
        for before, source in pairwise(self._files):
            ended, begun = end_of(before, self._last(before)), self._begun(source)
            is_known = begun is None or (not before.compressed and agree(before.ended, begun))
            is_named = ended == before.ended  # else its own end may be a little earlier than the name it should have
            if not is_known and begun is not None and ended < begun and (is_named or not is_next(ended, begun)):
                found.append(_Opening(ended, begun))
        newest = self._files[-1]
        return found if newest.is_newest else [*found, _Opening(end_of(newest, self._last(newest)), None)]

    def losses_of_archives(self) -> list[Loss]:
        """The losses of the archives that are taken out."""
        openings = self._openings() if self._lost else []
        long = [opening for opening in openings if not opening.is_short]
        between = [opening for opening in long if opening.start and opening.stop is not None]
        is_foreign = 0 < len(self._files) - 1 == len(between)  # no journal began when the one before it ended
        losses = []
        named: dict[_Opening, list[_Salvage]] = {}
        for salvage in sorted(self._lost, key=lambda salvage: salvage.source.ended or 0):
            ended, begun = salvage.source.ended or 0, self._reader.begun(salvage.source)
            fitting = [one for one in openings if one.has(ended)]
            fitting = fitting or [one for one in openings if one.has(ended, MOST_TAKEN_NS)][-1:]
            if fitting:
                named.setdefault(fitting[0], []).append(salvage)
            others = [one for one in long if begun is not None and one.start and is_next(one.start, begun)]
            if not fitting and not others:
                others = [self._before_newest(ended)] if is_foreign else long
            losses += [salvage.loss_of(*opening) for opening in others if opening not in fitting]
        for opening, salvages in named.items():
            ends = [opening.start, *(salvage.source.ended or 0 for salvage in salvages[:-1]), opening.stop]
            losses += [
                one.loss_of(start or 0, stop) for one, (start, stop) in zip(salvages, pairwise(ends), strict=True)
            ]
        return losses

    def _before_newest(self, ended: int) -> _Opening:
        """Where an archive may have been whose name says nothing, as in stores of other programs."""
        newest = max((begun for file in self._files if (begun := self._begun(file)) is not None), default=None)
        stop = None if newest is None or newest < ended else newest
        return _Opening(max((file.ended for file in self._files if file.ended and file.ended < ended), default=0), stop)

    def gaps(self, losses: Iterable[Loss]) -> tuple[list[Loss], list[str]]:
        """The journals that are missing between two others; and those that are in the wrong order, which are left.

        `losses` are those that the repair adds to the account.
        """
        reader = self._reader
        account = LostTimes([*read_losses(reader.disk, reader.directory, reader.store), *settled(losses)])
        found, left = [], []
        for before, source in pairwise(self._files):
            stop = self._begun(source)
            with suppress(StorageFailed):  # a file that cannot be read is reported by itself
                gap = find_gap(self._items, before, source, stop, LostTimes(), self._last(before))
                start = end_of(before, self._last(before))
                if gap is None or (stop is not None and start < stop and account.covers(start, stop)):
                    continue
                if stop is None or stop <= start:
                    left.append(f"{gap.file} @ {gap.start}: {gap.reason}; restore the files, or move one of them away")
                    continue
                fields = loss_fields(reader.store, start, stop)
                what = f"every change {_times(start, stop)}"
                found.append(Loss(gap.file, gap.start, 0, 0, None, what, gap.reason, part=reader.part, fields=fields))
        return found, left

    def _items(self, source: JournalFile) -> Iterator[Head | Chunk | Damage]:
        with closing(self._reader.disk.open(source.path, "read")) as file:
            salvage = self._kept.get(source.name)
            if salvage is None:
                yield from Cursor(file, source, limits=self._reader.limits).items()
            else:
                salvage.file = file
                yield from salvage.repaired_items()


def lost_after_old(reader: Reader, reason: str) -> Loss:
    """What may be lost where `.old` takes the place of the active journal."""
    listing, name = reader.listing(), active_name(reader.store)
    size = reader.disk.file_size(listing.path(name)) if listing.has_active else 0
    old = old_name(reader.store)
    source = JournalFile(reader.store, old, listing.path(old))
    with closing(reader.disk.open(source.path, "read")) as file:
        items = list(Cursor(file, source, limits=reader.limits).items())
    times = [item.largest for item in items if isinstance(item, Chunk)]
    times += [item.metadata.initialized for item in items if isinstance(item, Head) and item.metadata is not None]
    start = max(times, default=0)
    fields = loss_fields(reader.store, start, None)
    return Loss(name, 0, size, 0, None, f"every change {_times(start, None)}", reason, part=reader.part, fields=fields)


def _with_old(reader: Reader, plan: Plan, reason: str) -> Plan:
    """A plan, and the steps that let `.old` take the place of the active journal."""
    name = active_name(reader.store)
    steps: list[Step] = [Remove(name, reason)] if reader.listing().has_active else []
    steps.append(Rename(old_name(reader.store), name, "it takes the place of the active journal"))
    losses = (*plan.losses, lost_after_old(reader, reason))
    return replace(plan, steps=(*plan.steps, *steps), losses=losses)


def _with_newest(reader: Reader, plan: Plan, reason: str) -> Plan:
    """A plan, and the steps that make the active journal again; nothing at all where no archive is left for that."""
    name, listing = active_name(reader.store), reader.listing()
    temporary = temporary_name(reader.store)
    newest = _Newest(reader)
    advice = ""
    if listing.has_active:
        advice = f"{reader.path} is a directory: move it away"
    elif listing.has_temporary and read_metadata(reader.disk, listing, temporary) is not None:
        advice = f"{temporary} may have a later state: rename it to {name}, or remove it"
    elif not newest.content:
        advice = newest.problem
    if advice:
        return replace(plan, steps=(), losses=(), left=(*plan.left, f"{name} @ 0: {reason}; {advice}"))
    create = Create(name, "", (), "the state at the end of the last archive", newest.content)
    losses = (*plan.losses, replace(newest.loss(0, reason), part=reader.part))
    return replace(plan, steps=(*plan.steps, create), losses=losses)


class _Repairs(SideBySideRepair):
    def apply(self, path: Path | str, plan: Plan, *, disk: Disk = REAL_DISK) -> Repair | None:
        return super().apply(path, replace(plan, losses=settled(plan.losses)), disk=disk)


REPAIRS: Final = _Repairs(
    "versioned",
    list_stores,
    "no journal of a store is here",
    _readers,
    _plan,
)
plan, apply, undo = REPAIRS.plan, REPAIRS.apply, REPAIRS.undo
