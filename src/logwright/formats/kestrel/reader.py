"""Reader: the journal of a queue opened for reading. It needs no lock, changes nothing, and works beside a writer.

Four ways through the same chunks: `operations` for objects, `scan` for objects with their places, `chunks` for whoever
makes columns of them, `replay` for the queue that they stand for. `mode` says what happens at damage:

    failfast        raise `DamagedJournal` where it is (the default)
    permissive      go on behind it, with a `Damage` in the place of what is damaged
    dropmalformed   go on behind it

Where reading goes on behind damage is told in `cursor.py`. A torn tail of the newest file is not damage: it is what a
crash leaves and what a writer's next open removes. Reading ends before it, and `torn_tail` tells about it (in
`permissive` it also comes as a `Damage`).
"""

from __future__ import annotations

import base64
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Final

from ...core.closing import Closing
from ...core.disk import REAL_DISK, Disk, File
from ...core.errors import DamagedJournal, HistoryUnavailable, NotFound, TooLarge, WrongUse
from ...core.format import Located
from ...core.outcome import Damage, Mode, Span, check_mode
from ...core.report import Progress, Report, Summary
from . import codec, kernel
from .cursor import Chunk, Cursor, judge
from .dialect import Verdict
from .files import POSITION_BITS, JournalFile, Listing, list_files
from .layout import LONGEST_HEAD_BYTES, parse_name
from .records import DIALECTS, Dialect, Operation, check_dialect
from .replay import EVENTS, FINISHED, REMOVED, RESERVED, Item, QueueItem, QueueState, difference
from .snapshot import Snapshot, snapshot

ROW_FIELDS: Final = ("op", "xid", "count", "added", "expires", "data")
"""What a table of operations has; no operation has all of it."""
_PLACE: Final = re.compile(r"(.*?) ?@ ?([0-9]{1,20})", re.DOTALL)
_READ_ITEM_BYTES: Final = 512


class Reader(Closing):
    """The journal of a queue, or one file of it, opened for reading.

    `path` is the queue's directory with the queue's name behind it, which is the path of its newest file; the rotated
    ones beside it belong to it. A path with a rotated file's name, or any other, is that file alone.
    """

    row_fields = ROW_FIELDS

    def __init__(self, path: Path | str, *, dialect: Dialect = "auto", disk: Disk = REAL_DISK) -> None:
        self.path = Path(path)
        self.disk = disk
        self.torn_tail: Damage | None = None
        parsed = parse_name(self.path.name)
        self._single = parsed is None or parsed[1] is not None
        self._timestamp = None if parsed is None else parsed[1]
        self.queue = self.path.name if parsed is None else parsed[0]
        self._verdict = Verdict(DIALECTS[check_dialect(dialect)], self.files, disk)
        if not self.files():
            raise NotFound(f"{self.path}: no journal of a queue is here")

    @property
    def is_single_file(self) -> bool:
        """Whether this is one file, and not a queue with all of its files."""
        return self._single

    @property
    def directory(self) -> Path:
        """The queue's directory."""
        return self.path.parent

    def listing(self) -> Listing:
        """What is there of the queue now, dead and temporary files included."""
        if self._single:
            there = self.disk.exists(self.path) and not self.disk.is_directory(self.path)
            alone = JournalFile(self.queue, self.path.name, self.path, self._timestamp)
            return Listing([alone] if there else [])
        try:
            listing = list_files(self.disk, self.directory, self.queue)
        except NotFound:
            return Listing()
        if self.disk.is_directory(self.path):
            listing.files = [file for file in listing.files if not file.is_newest]
        return listing

    def files(self) -> list[JournalFile]:
        """The files that count, oldest first."""
        return self.listing().files

    def total_bytes(self) -> int:
        """How large the files are together."""
        return sum(self.disk.file_size(file.path) for file in self.files())

    @property
    def dialect(self) -> Dialect:
        """The dialect of the journal, as far as it is known by now; `auto` before anything has decided."""
        return self._verdict.name

    @property
    def verdict(self) -> Verdict:
        """What is known of the dialect."""
        return self._verdict

    def snapshot(self) -> Any:
        """The files as they are now, opened together; a context manager."""
        return snapshot(self.disk, self.files)

    # --- going through it -------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Operation]:
        return chain.from_iterable(self._lists())

    def operations(
        self, start: int | None = None, stop: int | None = None, *, mode: Mode = "failfast"
    ) -> Iterator[Operation | Damage]:
        """The operations with `start` <= number < `stop`; without `start` from the first there is."""
        return chain.from_iterable(self._lists(start, stop, mode))

    def _lists(self, start: int | None = None, stop: int | None = None, mode: Mode = "failfast") -> Iterator[list[Any]]:
        """The operations chunk by chunk: a generator that is asked for each operation costs more."""
        for item in self.chunks(start, stop, mode=mode):
            yield [item] if isinstance(item, Damage) else decoded(item)

    def batches(self, columns: Sequence[str] | None = None, **options: Any) -> Any:
        """The operations as Arrow record batches; see `logwright.arrow.batches`."""
        return import_module("logwright.arrow").batches(self, columns, **options)

    def to_arrow(self, columns: Sequence[str] | None = None, **options: Any) -> Any:
        """The operations as an Arrow table; see `logwright.arrow.to_arrow`."""
        return import_module("logwright.arrow").to_arrow(self, columns, **options)

    def scan(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        mode: Mode = "failfast",
        progress: Progress | None = None,
    ) -> Iterator[Located | Damage]:
        """Every operation with the place of its bytes."""
        for item in self.chunks(start, stop, mode=mode, progress=progress):
            if isinstance(item, Damage):
                yield item
            else:
                yield from located(item)

    def chunks(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        mode: Mode = "failfast",
        progress: Progress | None = None,
        load: bool = True,
    ) -> Iterator[Chunk | Damage]:
        """Whole operations as they lie in the files. A chunk's buffer is valid until the next one is asked for.

        Without `load` the data of very large operations is not read: their chunks are hollow.
        """
        check_mode(mode)
        with self.snapshot() as files:
            yield from self.snapshot_chunks(files, start, stop, mode, progress, load=load)

    def snapshot_chunks(
        self,
        files: Snapshot,
        start: int | None,
        stop: int | None,
        mode: Mode,
        progress: Progress | None = None,
        *,
        load: bool = True,
    ) -> Iterator[Chunk | Damage]:
        """The chunks of files that are open."""
        self.torn_tail = None
        sizes = {source.name: files.size(source) for source in files.files} if progress else {}
        done = 0
        for source in files.files:
            if stop is not None and source.first_number >= stop:
                return
            report = _part_of(progress, done, sum(sizes.values())) if progress else None
            done += sizes.get(source.name, 0)
            if start is None or start - source.first_number < 1 << POSITION_BITS:
                yield from self.file_chunks(source, files.file(source), start, stop, mode, report, load=load)
                files.done_with(source)

    def file_chunks(
        self,
        source: JournalFile,
        file: File,
        start: int | None,
        stop: int | None,
        mode: Mode,
        report: Callable[[int], None] | None = None,
        *,
        at: int = 0,
        load: bool = True,
    ) -> Iterator[Chunk | Damage]:
        """The chunks of one file; `at` is where an operation is known to begin, not behind `start`."""
        low = 0 if start is None else max(0, start - source.first_number)
        high = None if stop is None else stop - source.first_number
        cursor = Cursor(file, source, at, dialect=self._verdict.dialect, settle=self._verdict.settle)
        while high is None or cursor.position < high:
            chunk = cursor.read(load=load)
            if chunk is not None:
                part = chunk.without_before(low)
                part = part if part is None or high is None else part.without_from(high)
                if part is not None:
                    yield part
                if report is not None:
                    report(cursor.position)
                continue
            if cursor.ending == codec.CLEAN:
                return
            damage, goes_on = judge(cursor)
            if damage.end > low and (high is None or damage.start < high):
                yield from self.report(damage, mode)
            if not goes_on:
                return

    def report(self, damage: Damage, mode: Mode) -> Iterator[Damage]:
        """Tell of damage as `mode` has it."""
        if damage.kind == "torn_tail":
            self.torn_tail = damage
        elif mode == "failfast":
            raise DamagedJournal(damage.file, damage.start, damage.reason)
        if mode == "permissive":
            yield damage

    # --- finding a place --------------------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """The number of the first operation there is, or will be."""
        files = self.files()
        return files[0].first_number if files else 0

    @property
    def next(self) -> int:
        """The number behind the last operation: the one that the next operation will get."""
        with self.snapshot() as files:
            return self._next(files)

    def _next(self, files: Snapshot) -> int:
        if not files.files:
            return 0
        source = files.files[-1]
        if not source.is_newest:
            return (source.timestamp or 0) << POSITION_BITS
        end = 0
        for item in self.file_chunks(source, files.file(source), None, None, "dropmalformed", load=False):
            end = item.end
        return source.first_number + end

    def find_time(self, timestamp: int) -> int:
        """The number of the first operation that adds an item not earlier than `timestamp` (ns); `next` if none does.

        Times need not rise, and most operations have none, so this reads the journal.
        """
        milliseconds = -(-timestamp // 1_000_000)
        for item in self.chunks(mode="dropmalformed", load=False):
            if not isinstance(item, Damage) and item.latest_added >= milliseconds:
                return _first_added(item, milliseconds)
        return self.next

    def find_place(self, text: str) -> int:
        """The number that a place stands for: `FILE@POSITION`, or a position in the only file."""
        match = _PLACE.fullmatch(text)
        name, position = (match[1], match[2]) if match else ("", text)
        files = self.files()
        if not position.isascii() or not position.isdigit():
            raise WrongUse(f"{text!r} is no place: write FILE@POSITION, such as {files[-1].name}@0, or a number")
        if not name:
            return int(position)
        for source in files:
            if source.name == name:
                return source.first_number + int(position)
        raise NotFound(f"{self.directory / name}: no such file of the queue {self.queue}")

    def last(self, count: int) -> list[Located]:
        """The last `count` operations, oldest first. The format has no way back, so the last file is gone through."""
        if count < 0:
            raise WrongUse(f"cannot give the last {count} operations")
        self.torn_tail = None
        found: list[Located] = []
        with self.snapshot() as files:
            for source in reversed(files.files):
                if len(found) >= count:
                    break
                found = self._last_of(source, files.file(source), count - len(found)) + found
                files.done_with(source)
        return found

    def _last_of(self, source: JournalFile, file: File, count: int) -> list[Located]:
        """The last operations of one file: where they begin is found first, so that few are decoded."""
        passed: deque[tuple[int, int]] = deque()
        held = 0
        for item in self.file_chunks(source, file, None, None, "failfast", load=False):
            assert not isinstance(item, Damage)
            passed.append((item.position, item.count))
            held += item.count
            while held - passed[0][1] >= count:
                held -= passed.popleft()[1]
        if not passed:
            return []
        cursor = Cursor(file, source, passed[0][0], dialect=self._verdict.dialect, settle=self._verdict.settle)
        found: deque[Located] = deque(maxlen=count)
        while held > 0 and (chunk := cursor.read(held)) is not None:
            held -= chunk.count
            found.extend(located(chunk))
        return list(found)

    def count(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        progress: Progress | None = None,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> int:
        """How many whole operations there are in a range of numbers; `on_damage` is called with what is not one."""
        records = 0
        for item in self.chunks(start, stop, mode="permissive", progress=progress, load=False):
            if not isinstance(item, Damage):
                records += item.count
            elif on_damage is not None:
                on_damage(item)
        return records

    # --- what it stands for -----------------------------------------------------------------------------------------

    def replay(
        self,
        files: Snapshot,
        at: int | None = None,
        *,
        mode: Mode = "failfast",
        watch: tuple[int, int] | None = None,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> kernel.Replay:
        """The queue after all operations before the number `at`. Items are places: see `load`."""
        replay = kernel.Replay(watch)
        numbers = {source.name: number for number, source in enumerate(files.files)}
        current = ""
        for item in self.snapshot_chunks(files, None, at, mode, load=False):
            if isinstance(item, Damage):
                if on_damage is not None:
                    on_damage(item)
                continue
            if item.file != current:
                current = item.file
                replay.begin_file(numbers[current])
            replay.add(*item.turns())
        return replay

    def load(self, files: Snapshot, item: Item) -> QueueItem:
        """The item that a place of a replay stands for."""
        source = files.files[item.file]
        operation = read_operation(files.file(source), source, item.position, self._verdict.dialect)
        place = f"{source.name}@{item.position}"
        return QueueItem(operation.data or b"", operation.added or None, operation.expires, item.xid, place)

    def queue_state(self, at: int | None = None, *, mode: Mode = "dropmalformed") -> QueueState:
        """Items, reserved items and the last used id: now, or before the operation with the number `at`."""
        with self.snapshot() as files:
            self._check_kept(files, at)
            replay = self.replay(files, at, mode=mode)
            items = [self.load(files, item) for item in replay.items()]
            reserved = [self.load(files, item) for item in replay.open()]
            return QueueState(items, reserved, replay.xid)

    def _check_kept(self, files: Snapshot, at: int | None) -> None:
        """Raise `HistoryUnavailable` for a number in a file that a pack has replaced, `WrongUse` for one to come."""
        if at is None:
            return
        following = self._next(files)
        if not 0 <= at <= following:
            raise WrongUse(f"{self.path}: there is no operation {at}; the next one gets {following}")
        if at >> POSITION_BITS not in {source.before for source in files.files} and at != following:
            raise HistoryUnavailable(f"{self.path}: what was at {at} was packed: how the queue came there is not kept")

    def state(self, at: int | None = None) -> dict[str, Any]:
        """The queue as JSON, now or before the operation with the number `at`. Nothing expires in it."""
        return self.queue_state(at).as_json()

    def diff(self, start: int, stop: int) -> dict[str, Any]:
        """What changed in the queue between two numbers, by the places of the items."""
        return difference(self.queue_state(start), self.queue_state(stop))

    def history(self, key: str) -> list[dict[str, Any]]:
        """What happened to the item that was added at a place (`FILE@POSITION`, or a number), change by change."""
        number = self.find_place(key)
        with self.snapshot() as files:
            file, position = self._place_of(files, number)
            replay = self.replay(files, mode="dropmalformed", watch=(file, position))
            if not replay.events:
                raise NotFound(f"{files.files[file].path} @ {position}: no item was added here")
            item = self.load(files, Item(file, position, 0)).as_json()
            return [_change(files.files[event.file], event, item) for event in replay.events]

    def _place_of(self, files: Snapshot, number: int) -> tuple[int, int]:
        """The file and the position there that a number stands for."""
        for file, source in enumerate(files.files):
            if 0 <= number - source.first_number < 1 << POSITION_BITS:
                return file, number - source.first_number
        raise NotFound(f"{self.path}: there is no operation {number}")

    # --- what it is -------------------------------------------------------------------------------------------------

    def summary(self) -> Summary:
        """What this is: names, sizes, dialect, both ends; of a large journal only its beginning is read."""
        from .check import summarize

        return summarize(self)

    def verify(self, *, progress: Progress | None = None) -> Report:
        """Check every operation of every file, and whether each fits the queue as it was then."""
        from .check import verify

        return verify(self, progress=progress)

    def number_of(self, located: Located) -> tuple[str, int]:
        """The queue that an operation belongs to, and its number there."""
        for source in self.files():
            if source.name == located.file:
                return self.queue, source.first_number + located.span.start
        return self.queue, located.span.start  # its file was packed meanwhile

    def as_json(self, located: Located) -> dict[str, Any]:
        """An operation as `dump --json` prints it."""
        return operation_as_json(located)

    def close(self) -> None:
        """Nothing is held between calls."""


# --- chunks to objects ----------------------------------------------------------------------------------------------


def decoded(chunk: Chunk) -> list[Operation]:
    """The operations of a chunk."""
    try:
        return kernel.operations(chunk.data, chunk.start, chunk.stop, chunk.count, chunk.dialect)
    except MemoryError:
        raise TooLarge(f"{chunk.source.path} @ {chunk.position}: there is no memory for these operations") from None


def located(chunk: Chunk) -> Iterator[Located]:
    """The operations of a chunk with their places."""
    starts = chunk.starts()
    for row, operation in enumerate(decoded(chunk)):
        yield Located(operation, chunk.file, Span(starts[row], starts[row + 1]))


def operation_as_json(located: Located) -> dict[str, Any]:
    """An operation and its place, ready to be printed as JSON; bytes are base64."""
    fields = located.record.as_json()
    if fields.get("data") is not None:
        fields["data"] = base64.b64encode(fields["data"]).decode()
    return {"file": located.file, "position": located.span.start, "size": located.span.size, **fields}


def read_operation(file: File, source: JournalFile, position: int, dialect: int) -> Operation:
    """The operation at a position that a walk has passed."""
    data = file.read_at(position, _READ_ITEM_BYTES)
    size = codec.claimed_size(data, 0, len(data), dialect)
    if size is not None and size > len(data) and position + size <= file.size():
        try:
            data = file.read_at(position, size)
        except MemoryError:
            raise TooLarge(f"{source.path} @ {position}: there is no memory for an item of {size} bytes") from None
    if size is None or size > len(data):
        raise DamagedJournal(source.name, position, "the file has changed while it was read")
    return kernel.operations(data, 0, size, 1, dialect)[0]


def _first_added(chunk: Chunk, milliseconds: int) -> int:
    """The number of the first operation of a chunk that adds an item not earlier than this; there is one."""
    if chunk.hollow:
        return chunk.first_number
    starts = chunk.starts()
    for row, start in enumerate(starts[:-1]):
        if codec.added_at(chunk.data, start - chunk.base, chunk.dialect) >= milliseconds:
            return chunk.source.first_number + starts[row]
    return chunk.first_number


def _change(source: JournalFile, event: Any, item: dict[str, Any]) -> dict[str, Any]:
    """A change of an item as `history --json` prints it."""
    place = {"t": source.first_number + event.position, "file": source.name, "position": event.position}
    if event.what in (REMOVED, FINISHED):
        return {**place, "event": EVENTS[event.what], "deleted": True}
    state, xid = ("open", event.xid) if event.what == RESERVED else ("queued", 0)
    return {**place, "event": EVENTS[event.what], "value": {**item, "xid": xid, "state": state}}


def _part_of(progress: Progress, before: int, total: int) -> Callable[[int], None]:
    return lambda position: progress(before + position, total)


assert LONGEST_HEAD_BYTES < _READ_ITEM_BYTES
