"""Reader: the journal of a queue opened for reading. It needs no lock, changes nothing, and works beside a writer.

Four ways through the same chunks: `operations` for objects, `scan` for objects with their places, `chunks` for
columns, `queue_state` for the state of the queue. What happens at damage, and at a torn tail of the newest
file, is described in `core/read/chunk_reader.py`; where reading continues after damage, in `continuation.py`.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Container, Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from ...core.bytes.outcome import Damage, Mode
from ...core.format import Located
from ...core.io.disk import REAL_DISK, Disk, File
from ...core.read.chunk import POSITION_BITS
from ...core.read.chunk_reader import FilesReader
from ...core.read.chunk_reader import located as located_in
from ...errors import HistoryUnavailable, NotFound, TooLarge, WrongUse
from ..bytes import codec, kernel
from ..bytes.layout import parse_name
from ..bytes.records import DIALECTS, Dialect, Operation, check_dialect
from ..model.replay import EVENTS, QueueItem, QueueState, difference
from . import check
from .continuation import judge
from .cursor import Chunk, Cursor
from .dialect import Verdict
from .files import JournalFile, Listing, Lost, OpenFiles, list_files, lost_files
from .note import rotated_files
from .survey import Survey, read_operation

ROW_FIELDS: Final = ("op", "xid", "count", "added", "expires", "data")
"""What a table of operations has; no operation has all of it."""


class Reader(FilesReader[Chunk, JournalFile, Operation]):
    """The journal of a queue, or one file of it, opened for reading.

    `path` is the queue's directory followed by the queue's name, which is the path of its newest file; the rotated
    ones beside it belong to it. A path with a rotated file's name, or any other, is that file alone.
    """

    format = "kestrel"
    part_name = "queue"
    records_name = "operations"
    row_fields = ROW_FIELDS
    counted_by: ClassVar = {"load": False}
    skimmed_by: ClassVar = counted_by
    resumed_by: ClassVar = {"resumed": True}

    summarize = check.summarize
    verify = check.verify

    def __init__(self, path: Path | str, *, dialect: Dialect = "auto", disk: Disk = REAL_DISK) -> None:
        self.path = Path(path)
        self.disk = disk
        parsed = parse_name(self.path.name)
        self._single = parsed is None or parsed[1] is not None
        self._timestamp = None if parsed is None else parsed[1]
        self.queue = self.path.name if parsed is None else parsed[0]
        self._without = ""
        self._verdict = Verdict(DIALECTS[check_dialect(dialect)], self.files, disk)
        if not self.files() and (self._single or not rotated_files(disk, self.directory, self.queue)):
            raise NotFound(f"{self.path}: no journal of a queue is here")

    @property
    def part(self) -> str:
        """The queue."""
        return self.queue

    def listing(self) -> Listing:
        """What is there of the queue now, dead and temporary files included."""
        if self._single:
            there = self.disk.exists(self.path) and not self.disk.is_directory(self.path)
            alone = JournalFile(self.queue, self.path.name, self.path, self._timestamp)
            return Listing([alone] if there else [])
        try:
            listing = list_files(self.disk, self.directory, self.queue, self._without)
        except NotFound:
            return Listing()
        if self.disk.is_directory(self.path) and all(file.is_newest for file in listing.files):
            listing.files = []  # it is no queue; rotated files would show that a newest one belongs there
        return listing

    def files(self) -> list[JournalFile]:
        """The files that count, oldest first."""
        return self.listing().files

    @property
    def dialect(self) -> Dialect:
        """The dialect of the journal, as far as it is known by now; `auto` before anything has decided."""
        return self._verdict.name

    @property
    def verdict(self) -> Verdict:
        """What is known of the dialect."""
        return self._verdict

    def for_check(self) -> Self:
        """The same journal, with a dialect of its own, for a check: it is decided without files that cannot be read."""
        found = copy(self)
        found._verdict = replace(self._verdict, skips_unreadable=True)
        return found

    def without(self, name: str) -> Self:
        """The same journal as if one of its files were not there."""
        found = copy(self)
        found._without = name
        found._verdict = replace(self._verdict, files=found.files)
        return found

    def lost_files(self, damaged: Container[str] = ()) -> list[Lost]:
        """The files that are missing or have another size than was noted, if those with bad bytes are `damaged`."""
        return [] if self._single else lost_files(self.disk, self.directory, self.queue, self._without, damaged)

    # --- going through it -------------------------------------------------------------------------------------------

    operations = FilesReader.records

    def half_repaired(self, mode: Mode) -> Iterator[Damage]:
        """An interrupted repair, and files that the note contradicts: operations are missing."""
        yield from super().half_repaired(mode)
        for damage in self.missing():
            yield from self.report(damage, mode)

    def missing(self) -> list[Damage]:
        """The files that the note contradicts: they are missing, or have another size."""
        found = self.lost_files()
        return [Damage(lost.name, lost.size or 0, lost.size or 0, lost.reason, lost.kind) for lost in found]

    def decoded(self, chunk: Chunk) -> list[Operation]:
        """The operations of a chunk."""
        return decoded(chunk)

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
        resumed: bool = False,
        load: bool = True,
    ) -> Iterator[Chunk | Damage]:
        """The chunks of one file; `at` is where an operation is known to begin, not behind `start`.

        With `resumed` one is known to begin at `start`. Without `load` the data of very large operations is not read:
        their chunks are hollow.
        """
        low, high = source.positions(start, stop)
        at = low if resumed else at
        if source.flaw is not None and low == at == 0:
            yield from self.report(source.flaw, mode)
        cursor = Cursor(file, source, at, dialect=self._verdict.dialect, settle=self._verdict.settle)
        yield from self.cursor_chunks(cursor, judge, low, high, mode, report, load=load)

    # --- finding a place --------------------------------------------------------------------------------------------

    def find_time(self, timestamp: int) -> int:
        """The number of the first operation that adds an item not earlier than `timestamp` (ns); `next` if none does.

        Times need not rise, and most operations have none, so this reads the journal.
        """
        milliseconds = -(-timestamp // 1_000_000)
        for item in self.chunks(mode="dropmalformed", load=False):
            if not isinstance(item, Damage) and item.latest_added >= milliseconds:
                return _first_added(item, milliseconds)
        return self.next

    def last_of(self, files: OpenFiles, number: int, count: int) -> list[Located]:
        """The last operations of one file: where they begin is found first, so that few are decoded."""
        source = files.files[number]
        file = files.file(source)
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

    # --- the state of the queue ---------------------------------------------------------------------------------------

    def queue_state(self, at: int | None = None, *, mode: Mode = "dropmalformed") -> QueueState:
        """Items, reserved items and the last used id: now, or before the operation with the number `at`."""
        with self.snapshot() as files:
            self._check_kept(files, at)
            survey = Survey(self, files, at, mode=mode)
            return QueueState(list(survey.waiting()), survey.reserved(), survey.replay.xid)

    def _check_kept(self, files: OpenFiles, at: int | None) -> None:
        """Raise `HistoryUnavailable` for a number in a file that a pack has replaced, `WrongUse` for one to come."""
        if at is None:
            return
        following = self.next_of(files)
        source = _source_of(files, at)
        is_behind = source is not None and not source.is_newest and at - source.first_number > files.size(source)
        if is_behind or not 0 <= at <= following:
            places = _place(files, at), _place(files, following)
            raise WrongUse(f"{self.path}: there is no operation at {places[0]}; the next one gets {places[1]}")
        if source is None and at != following:
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
            events = Survey(self, files, mode="dropmalformed", watch=(file, position)).replay.events
            source = files.files[file]
            if not events:
                raise NotFound(f"{source.path} @ {position}: no item was added here")
            operation = read_operation(files.file(source), source, position, self._verdict.dialect)
            item = QueueItem(operation.data or b"", operation.added or None, operation.expires, 0).as_json()
            return [_change(files.files[event[0]], event, item) for event in events]

    def _place_of(self, files: OpenFiles, number: int) -> tuple[int, int]:
        """The file and the position there of the operation with this number."""
        for file, source in enumerate(files.files):
            if 0 <= number - source.first_number < 1 << POSITION_BITS:
                return file, number - source.first_number
        raise NotFound(f"{self.path}: there is no operation {number}")

    def as_json(self, located: Located) -> dict[str, Any]:
        """An operation as `dump --json` prints it."""
        return operation_as_json(located)


# --- chunks to objects ----------------------------------------------------------------------------------------------


def decoded(chunk: Chunk) -> list[Operation]:
    """The operations of a chunk."""
    try:
        return kernel.operations(chunk.data, chunk.start, chunk.stop, chunk.count, chunk.dialect)
    except MemoryError:
        raise TooLarge(f"{chunk.source.path} @ {chunk.position}: there is no memory for these operations") from None


def located(chunk: Chunk) -> Iterator[Located]:
    """The operations of a chunk with their places."""
    return located_in(chunk, decoded(chunk))


def operation_as_json(located: Located) -> dict[str, Any]:
    """An operation and its place, ready to be printed as JSON; bytes are base64."""
    fields = located.record.as_json()
    if fields.get("data") is not None:
        fields["data"] = base64.b64encode(fields["data"]).decode()
    return {"file": located.file, "position": located.span.start, "size": located.span.size, **fields}


def _source_of(files: OpenFiles, number: int) -> JournalFile | None:
    """The file of the operation with this number, None when it is not there."""
    return next((source for source in files.files if source.before == number >> POSITION_BITS), None)


def _place(files: OpenFiles, number: int) -> str:
    """A number as people write it."""
    source = _source_of(files, number)
    return str(number) if source is None else f"{source.name}@{number - source.first_number}"


def _first_added(chunk: Chunk, milliseconds: int) -> int:
    """The number of the first operation of a chunk that adds an item not earlier than this; there is one."""
    if chunk.hollow:
        return chunk.first_number
    starts = chunk.starts()
    for row, start in enumerate(starts[:-1]):
        if codec.added_at(chunk.data, start - chunk.base, chunk.dialect) >= milliseconds:
            return chunk.source.first_number + starts[row]
    return chunk.first_number


def _change(source: JournalFile, event: tuple[int, int, int, int], item: dict[str, Any]) -> dict[str, Any]:
    """A change of an item as `history --json` prints it."""
    _, position, number, xid = event
    name = EVENTS[number]
    change = {"t": source.first_number + position, "file": source.name, "position": position, "event": name}
    if name in ("removed", "finished"):
        return {**change, "deleted": True}
    is_open = name == "reserved"
    return {**change, "value": {**item, "xid": xid if is_open else 0, "state": "open" if is_open else "queued"}}
