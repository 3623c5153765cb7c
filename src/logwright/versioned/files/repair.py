"""Repairing the journals of a store: what to do about each kind of damage. `core.repair` does it, and takes it back.

    a torn tail                     the position is put before it; its bytes stay where they are, and do not count
    a position that cannot be       it is put after the last of the whole entries that follow each other
    a wrong version or array start  is restored, where the metadata after it is whole
    damaged metadata                one changed bit is restored, if no other one makes it whole; else the header and the
                                    metadata are made again, with a guess of when the journal began
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
written again. A journal that is missing between two others is reported, and stays missing.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ...core.bytes.outcome import Damage, Malformed, Span
from ...core.io.disk import REAL_DISK, Disk, File
from ...core.read.snapshot import Snapshot
from ...core.repair.losses import Loss, listed
from ...core.repair.plan import Create, Cut, Patch, Plan, Remove, Rename, Repair, Step
from ...core.repair.side_by_side import FileByFile, SideBySideRepair
from ...core.times import shown_time
from ...errors import StorageFailed, WrongUse
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
from .archives import InflatedStream
from .cursor import Chunk, Cursor, Head, find_beyond
from .files import JournalFile, Kind, active_name, agree, list_stores, lock_name, parse_name
from .lost import NEVER, loss_fields, settled
from .reader import Reader

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


@dataclass(slots=True)
class _Salvage:
    """A file gone through: the runs of whole entries, what is wrong, and where the entries should end."""

    reader: Reader
    source: JournalFile
    file: File
    head: Head | None = None
    runs: list[_Run] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    content: list[bytes] = field(default_factory=list)
    content_bytes: int = 0
    entries: int = 0
    keys: dict[str, None] = field(default_factory=dict)
    size: int = 0
    limit: int = 0
    """Where the header says that the entries end; where it cannot be read, where they do."""
    is_begin_known: bool = True

    def walk(self) -> None:
        """Go through the file."""
        self.size = self.file.size()
        cursor = Cursor(self.file, self.source, limits=self.reader.limits)
        for item in cursor.items():
            if isinstance(item, Damage):
                self.damages.append(item)
            elif isinstance(item, Head):
                self.head = item
            else:
                self._take(Span(item.position, item.end), item.smallest, item.largest)
                self._keep(item)
        self.limit = cursor.limit

    def _take(self, span: Span, smallest: int, largest: int) -> None:
        last = self.runs[-1] if self.runs else None
        if last is not None and last.span.end == span.start:
            span = Span(last.span.start, span.end)
            self.runs[-1] = _Run(span, min(last.smallest, smallest), max(last.largest, largest))
        else:
            self.runs.append(_Run(span, smallest, largest))

    def _keep(self, chunk: Chunk) -> None:
        if self.source.compressed and self.content_bytes <= _MOST_ARCHIVE_BYTES:
            self.content.append(bytes(chunk.data[chunk.start : chunk.stop]))
            self.content_bytes += chunk.stop - chunk.start
            self.entries += chunk.count
            entries = kernel.entries(chunk.data, chunk.start, chunk.stop, chunk.count)
            self.keys.update(dict.fromkeys(entry.k for entry in entries))

    def steps(self) -> list[Step]:
        """The steps that leave whole entries only, and a position that fits them."""
        if not self.damages:
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
        end = self._take_beyond(start)
        self._account(end)
        if len(self.runs) < 2 and (not self.runs or self.runs[0].span.start == start):
            return self._patched(self.source.name, end, self.damages[-1].reason)
        return self._rebuilt([Span(0, start), *(run.span for run in self.runs)])

    def _steps_without_head(self) -> list[Step]:
        """The position is below the least, or the beginning is damaged."""
        found = None
        if self.damages[0].start == POSITION_AT:
            try:
                found = codec.decode_metadata(self.file.read_at(0, 64 << 10), HEADER_BYTES)
            except Malformed:
                found = None
        return self._plain_steps(found[1].end) if isinstance(found, tuple) else self._steps_with_new_head()

    def _steps_with_new_head(self) -> list[Step]:
        """The metadata is damaged, and the header perhaps as well: both are made from what is known elsewhere."""
        first = self.damages[0]
        if not self.runs:
            advice = "no whole entry can be found in it; restore it from a copy, or move it away"
            self.left.append(f"{first.file} @ {first.start}: {first.reason}; {advice}")
            return []
        self._drop_shortened()
        start = self.runs[0].span.start
        metadata, what = self._find_metadata(start)
        head = codec.encode_header(HEADER_BYTES) + codec.encode_metadata(metadata)
        self.head = Head(self.source, metadata, Span(HEADER_BYTES, len(head)), 0)
        self.losses.append(Loss(first.file, first.start, first.size, 0, 0, what, first.reason, "restored"))
        self.damages[0] = replace(first, start=min(start, len(head)))
        end = self._take_beyond(start)
        if start == len(head) and self.limit <= end:
            del self.damages[0]  # nothing is missing, and nothing too much
        self._account(end, is_header_lost=first.start < HEADER_BYTES)
        head = codec.encode_header(end - start + len(head)) + head[HEADER_BYTES:]
        if len(self.runs) == 1 and start == len(head):
            return [Patch(self.source.name, 0, self.file.read_at(0, start), head, what)]
        name = self.source.name
        spans = tuple(run.span for run in self.runs)
        head = codec.encode_header(len(head) + sum(span.size for span in spans)) + head[HEADER_BYTES:]
        return self._replaced(first.reason, Create(name + _SUFFIX, name, spans, what, inserts=((0, head),)))

    def _find_metadata(self, start: int) -> tuple[Metadata, str]:
        """The metadata of a journal whose entries begin at `start`, and how it was found.

        A bit is restored if no other one makes it whole. Else the journal began when the archive before it ended. If
        there is none, the state is known from the last entry on at least: entries before it may be copies.
        """
        data = bytearray(self.file.read_at(0, start))
        found = [metadata for metadata in _with_one_bit_changed(data) if metadata is not None]
        if len(found) == 1:
            return found[0], "the metadata: no other bit makes it whole"
        begun, known_by = self.source.before, "when the archive before it ended"
        if not begun or self.reader.is_single_file:
            begun, known_by = max(run.largest for run in self.runs), "the time of its last entry"
            self.is_begin_known = False
        return Metadata(begun), f"the header and the metadata, with a guess of when it began: {known_by}"

    def _drop_shortened(self) -> None:
        """Take out the entry before bad bytes that are too few for one: it may be what they belong to."""
        for number, damage in enumerate(self.damages):
            for index, run in enumerate(self.runs[:-1]):
                if run.span.end != damage.start or damage.size >= LEAST_ENTRY_BYTES:
                    continue
                data = self.file.read_at(run.span.start, run.span.size)
                size, count, _, _, _ = kernel.walk(data, 0, len(data))
                starts = kernel.spans(data, 0, size, count)
                _, _, _, smallest, largest = kernel.walk(data, 0, starts[-2])
                end = run.span.start + starts[-2]
                self.damages[number] = replace(damage, start=end)
                self.runs[index] = _Run(Span(run.span.start, end), smallest, largest)
        self.runs = [run for run in self.runs if run.span.size]

    def _take_beyond(self, start: int) -> int:
        """Take the whole entries that follow the last ones that count, where the position may be wrong; their end.

        That is so where it cannot be right, and where bytes before it were damaged: they may be more than they were.
        """
        end = self.runs[-1].span.end if self.runs else start
        wrong = self.damages[-1]
        is_moved = wrong.start >= HEADER_BYTES and self.limit == end
        if wrong.kind == "torn_tail" or not (wrong.start in (POSITION_AT, end) or is_moved):
            return end
        last = max((run.largest for run in self.runs), default=0)
        while True:
            data = self.file.read_at(end, 1 << 20)
            size, count, _, smallest, largest = kernel.walk(data, 0, len(data))
            if count and smallest >= last:
                self._take(Span(end, end + size), smallest, largest)
                end, last = end + size, largest
                continue
            beyond = find_beyond(self.file, end, self.limit, last) if wrong.start == end else None
            if beyond is None:
                return end
            self.damages[-1] = replace(wrong, end=beyond.start)
            end = beyond.start

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
        return self._replaced(self.damages[0].reason, create, *self._patched(replacement, end, "the entries end here"))

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
        name, first = self.source.name, self.damages[0]
        if stream.is_refused:
            self.left.append(f"{name} @ 0: {stream.problem}")
            return []
        if stream.problem and not stream.end:
            return self._unproven_archive(stream)
        if len(self.damages) == 1 and stream.problem:
            return [Cut(name, stream.end, self.size, stream.problem)]
        if self.head is None or self.head.metadata is None:
            return self._lost_archive(first.reason)
        if self.content_bytes > _MOST_ARCHIVE_BYTES:
            self.left.append(f"{name} @ {first.start}: {first.reason}; it is too large to be remade")
            return []
        self._account(self.runs[-1].span.end if self.runs else self.head.span.end)
        body = codec.encode(self.head.metadata) + b"".join(self.content)
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
        what = f"one bit of the archive that ended at {shown_time(self.source.ended or 0)}"
        reason = f"{stream.problem}; with the bit 0x{mask:02x} of this byte changed, and no other, it is whole"
        self.losses.append(Loss(name, position, 1, 0, 0, what, reason, "restored"))
        return [Patch(name, position, old, new, reason)]

    def _lost_archive(self, reason: str) -> list[Step]:
        """Take an archive out, with all changes of its time.

        Its name and the other journals say what that is, for what it says itself is not proven. It ended when the
        journal after it began, which has a later name, or is the newest. Where none began when it ended by its name, it
        may have been any before the newest one.
        """
        others = [file for file in self.reader.files() if file.name != self.source.name]
        ended = self.source.ended or 0
        begins = [(file, begun) for file in others if (begun := self.reader.begun(file)) is not None]
        later = [begun for file, begun in begins if file.ended is None or file.ended > ended]
        newest = max((begun for _, begun in begins if begun >= ended), default=NEVER)
        stop = min((begun for begun in later if agree(ended, begun)), default=newest)
        before = [file.ended for file in others if file.ended is not None and file.ended < min(ended, stop)]
        start = max(before, default=0)
        what = f"every change {_times(start, stop)}"
        if self.entries:
            names = listed(map(repr, self.keys), len(self.keys))
            what += f" (what can be read there, unproven, are {self.entries} entries of the keys {names})"
        fields = loss_fields(self.reader.store, start, stop)
        self.losses.append(Loss(self.source.name, 0, self.size, 0, None, what, reason, fields=fields))
        return [Remove(self.source.name, reason)]

    # --- what is lost -----------------------------------------------------------------------------------------------

    def _account(self, end: int, *, is_header_lost: bool = False) -> None:
        """Account for what the damages cost, where the entries are going to end at `end`.

        A torn tail costs nothing that was durable. But no crash makes a file shorter than its position: that is in the
        account, although it looks like a torn tail.
        """
        for damage in self.damages:
            if damage.kind == "torn_tail" and self.limit <= self.size:
                continue
            if damage.start in _FIELDS and damage.end <= HEADER_BYTES:
                self._account_field(damage)
            else:
                self._account_range(damage, end, is_header_lost=is_header_lost)

    def _account_field(self, damage: Damage) -> None:
        what = f"{_FIELDS[damage.start]} in the header"
        self.losses.append(Loss(damage.file, damage.start, damage.size, 0, 0, what, damage.reason, "restored"))

    def _account_range(self, damage: Damage, end: int, *, is_header_lost: bool = False) -> None:
        """Bytes that go. Where entries end before the position, they were moved up by bytes that are gone as well.

        Without the header nothing says how many these are.
        """
        limit = self.limit if not self.source.compressed else 0
        is_within = any(run.span.start >= damage.end for run in self.runs)
        if not is_within and damage.start < end:  # it was the position that was wrong
            self.losses.append(
                Loss(damage.file, POSITION_AT, 8, 0, 0, "the position in the header", damage.reason, "restored")
            )
            return
        gone = max(0, limit - end) if is_within else max(damage.end, limit) - damage.end
        most = (damage.size + gone) // LEAST_ENTRY_BYTES
        has_bytes = self.source.compressed or any(self.file.read_at(damage.start, min(damage.size, 1 << 20)))
        least = 1 if has_bytes and end <= limit and most and not is_header_lost else 0
        before = [run for run in self.runs if run.span.end <= damage.start]
        after = [run for run in self.runs if run.span.start >= damage.end]
        begun = 0 if self.head is None or self.head.metadata is None else self.head.metadata.initialized
        begun = begun if self.is_begin_known else 0
        start = max((run.largest for run in before), default=begun)
        start = min(start, begun) if not before else start
        until = min((run.smallest for run in after), default=None)
        what = f"changes {_times(start, until)}: any key may have an older value, or be there again, until it changes"
        if not before and until is not None and until <= start:
            what = f"entries of the state that the journal began with at {shown_time(start)}"
            what += ": keys that have not changed since may be missing"
        stop = self._known_again(is_within=is_within)
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

    def _known_again(self, *, is_within: bool) -> int | None:
        """From when on the state is known: an archive's at its end, the active one's after what it has by now.

        None if it has lost something at its end, which may be of any time until it is repaired.
        """
        if self.source.timestamp is not None and not self.reader.is_single_file:
            return self.source.timestamp
        last = max((run.largest for run in self.runs), default=0)
        return min(MAX_TIMESTAMP, last) + 1 if is_within else None


def _times(start: int, stop: int | None) -> str:
    """A range of times, for people."""
    if stop is None or stop == NEVER:
        return f"from {shown_time(start)} on"
    if not start:
        return f"until {shown_time(stop)}"
    return f"from {shown_time(start)} to {shown_time(stop)}"


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
        header = codec.decode_header(content)
        if not isinstance(header, tuple) or not HEADER_BYTES < header[0].position <= len(content):
            return None
        stop = header[0].position
        metadata = codec.decode_metadata(content, HEADER_BYTES, stop)
    except Malformed:
        return None
    if not isinstance(metadata, tuple):
        return None
    end, _, _, _, _ = kernel.walk(content, metadata[1].end, stop)
    return content if end == stop else None


# --- the verbs ------------------------------------------------------------------------------------------------------


def lost_at_end(disk: Disk, path: Path) -> list[Loss]:
    """The account that is due for an active journal which is shorter than its position, for those who open it."""
    reader = Reader(path, disk=disk)
    source = next(file for file in reader.files() if file.name == path.name)
    with closing(disk.open(path, "read")) as file:
        salvage = _Salvage(reader, source, file)
        salvage.walk()
        salvage.steps()
    return [replace(loss, part=reader.part) for loss in settled(salvage.losses)]


def _missing(reader: Reader, files: Snapshot[JournalFile]) -> list[str]:
    """The journals that are missing between two others."""
    if reader.is_single_file:
        return []
    found = []
    for number in range(len(files.files)):
        with suppress(StorageFailed):  # a file that cannot be read is reported when its turn comes
            gap = reader.gap_before(files, number)
            found += [] if gap is None else [f"{gap.file} @ {gap.start}: {gap.reason}"]
    return found


class _Repairs(SideBySideRepair):
    def apply(self, path: Path | str, plan: Plan, *, disk: Disk = REAL_DISK) -> Repair | None:
        return super().apply(path, replace(plan, losses=settled(plan.losses)), disk=disk)


REPAIRS: Final = _Repairs(
    "versioned",
    list_stores,
    "no journal of a store is here",
    _readers,
    FileByFile("versioned", _Salvage, lock_name, _missing),
)
plan, apply, undo = REPAIRS.plan, REPAIRS.apply, REPAIRS.undo
