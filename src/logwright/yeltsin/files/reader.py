"""Reader: a journal of page transactions opened for reading. It needs no lock, changes nothing, and works beside a
writer.

`transactions` returns objects, `scan` objects with their places, `chunks` the buffers that columns are made of, and
`pages` the resulting pages. The number of a transaction is its offset in the file; `find_index` returns that of the
n-th one. See `core/read/chunk_reader.py` for damage and torn tails, and `continuation.py` for where reading continues
after damage.
"""

from __future__ import annotations

import base64
import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Final

from ...core.bytes.outcome import Damage, Malformed, Mode
from ...core.format import Located
from ...core.io.disk import REAL_DISK, Disk, File
from ...core.read.chunk_reader import FilesReader, located, reaches
from ...core.read.parts import SideBySideReader
from ...core.repair.losses import Loss
from ...core.times import NANOSECONDS
from ...errors import DamagedJournal, HistoryUnavailable, NotFound, WrongUse
from ..bytes import codec
from ..bytes.layout import HEADER, HEADER_BYTES, LINK
from ..bytes.records import Transaction
from ..model.replay import Pages, PagesState, Ranges, change, difference, gap_of
from . import check
from .continuation import judge
from .cursor import Chunk, Cursor, decoded, timestamp_at
from .files import (
    Head,
    Header,
    JournalFile,
    OpenFiles,
    has_first_transaction,
    hop,
    list_journals,
    measure,
    read_head,
    read_header,
)

ROW_FIELDS: Final = ("previous", "next", "timestamp", "flags", "complete", "outcome", "operations")


class Reader(FilesReader[Chunk, JournalFile, Transaction]):
    """A journal, which is one file of any name, opened for reading."""

    format = "yeltsin"
    part_name = "journal"
    records_name = "transactions"
    first_position = HEADER_BYTES
    row_fields = ROW_FIELDS
    time_scale = NANOSECONDS
    """The timestamps of transactions are in seconds."""
    counted_by: ClassVar = {"load": False}
    skimmed_by: ClassVar = counted_by
    _single = False

    summarize = check.summarize
    verify = check.verify

    def __init__(self, path: Path | str, *, disk: Disk = REAL_DISK) -> None:
        self.path = Path(path)
        self.disk = disk
        if not self.files():
            raise NotFound(f"{self.path}: no journal is here")

    @property
    def part(self) -> str:
        """The name of the file."""
        return self.path.name

    def files(self) -> list[JournalFile]:
        """The file, if it exists."""
        if not self.disk.exists(self.path) or self.disk.is_directory(self.path):
            return []
        gaps: tuple[int, ...] = ()
        with contextlib.suppress(DamagedJournal):  # the account is broken: `verify` and the table of damage report that
            gaps = tuple(map(gap_of, self._lost()))
        return [JournalFile(self.path.name, self.path, gaps=gaps)]

    # --- going through it --------------------------------------------------------------------------------------------

    transactions = FilesReader.records

    def decoded(self, chunk: Chunk) -> list[Transaction]:
        """The transactions of a chunk."""
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
        at: tuple[int, int] | None = None,
        load: bool = True,
    ) -> Iterator[Chunk | Damage]:
        """The chunks of the file; `at` is the offset and the index of a transaction, not after `start`.

        Without `load` the images of very large transactions are not read: their chunks are hollow.
        """
        low, high = source.positions(start, stop)
        header, damage = _header_and_damage(source, file)
        if damage is not None and reaches(damage, low):
            yield from self.report(damage, mode)
        if header is None:
            return
        position, index = _at_start(file, header, low) if at is None else at
        cursor = Cursor(file, source, header, position=position, index=index)
        yield from self.cursor_chunks(cursor, judge, low, high, mode, report, load=load)

    # --- finding a place ---------------------------------------------------------------------------------------------

    @property
    def next(self) -> int:
        """The number after the last transaction: the one that the next transaction will get."""
        end = HEADER_BYTES
        with self.snapshot() as files:
            for source in files.files:
                file = files.file(source)
                found = _end_of_last(file)
                if found is not None:
                    return found
                at = _start_of_last(file, 2)  # start there: others may follow the one that the header names
                for item in self.file_chunks(source, file, None, None, "dropmalformed", at=at, load=False):
                    assert not isinstance(item, Damage)
                    end = item.end
        return end

    def find_index(self, index: int) -> int:
        """The number of the transaction with this index; after the last one it is `next`."""
        following, end = 0, HEADER_BYTES
        for item in self.chunks(mode="dropmalformed", load=False):
            assert not isinstance(item, Damage)
            if index < item.index:
                raise WrongUse(f"{self.path}: the transaction {index} cannot be read; see verify")
            if index < item.index + item.count:
                return item.starts()[index - item.index]
            following, end = item.index + item.count, item.end
        if index != following:
            raise WrongUse(f"{self.path}: there is no transaction {index}; there are {following}, counted from 0")
        return end

    def find_time(self, timestamp: int) -> int:
        """The number of the first transaction not created before `timestamp` (ns); `next` if there is none.

        Times need not rise, so this reads the journal from its beginning.
        """
        return self._first_from(-(-timestamp // NANOSECONDS))

    def find_moment(self, timestamp: int) -> int:
        """The number of the first transaction created after `timestamp` (ns); `next` if there is none.

        `HistoryUnavailable` if transactions are lost that may have been created by then.
        """
        return self._first_from(timestamp // NANOSECONDS + 1, gaps=[gap_of(loss) for loss in self._lost()])

    def _first_from(self, seconds: int, *, gaps: Sequence[int] = ()) -> int:
        end = HEADER_BYTES
        for item in self.chunks(mode="dropmalformed", load=False):
            assert not isinstance(item, Damage)
            starts = item.starts()
            for start, following in pairwise(starts):
                if timestamp_at(item, start) >= seconds:
                    self._refuse_lost(end, start, gaps)
                    return start
                end = following
        self._refuse_lost(end, end, gaps)
        return end

    def _refuse_lost(self, start: int, stop: int, gaps: Sequence[int]) -> None:
        if any(start <= gap <= stop for gap in gaps):
            reason = "transactions of that time are lost; name a transaction that is left by its number"
            raise HistoryUnavailable(f"{self.path} @ {start}: {reason} (see `logwright verify {self.path}`)")

    def _lost(self) -> list[Loss]:
        """The losses in the order of the journal, without restored fields."""
        found = [loss for loss in self.losses() if loss.kind == "lost" and loss.at_most != 0]
        return sorted(found, key=gap_of)

    def last_of(self, files: OpenFiles, number: int, count: int) -> list[Located]:
        """The last transactions of the file, found backwards from the last one if its links are intact."""
        source = files.files[number]
        file = files.file(source)
        found: deque[Located] = deque(maxlen=count)
        for item in self.file_chunks(source, file, None, None, "failfast", at=_start_of_last(file, count)):
            assert not isinstance(item, Damage)
            found.extend(located(item, decoded(item)))
        return list(found)

    # --- the pages --------------------------------------------------------------------------------------------------

    def pages(self, at: int | None = None, *, mode: Mode = "dropmalformed") -> PagesState:
        """The known bytes of the pages: now, or before the transaction with the number `at`."""
        if at is not None and at < 0:
            raise WrongUse(f"{self.path}: there is no transaction {at}")
        pages = Pages()
        last: int | None = None
        redo = False
        for item in self._with_gaps(mode):
            if isinstance(item, int):
                if at is None or item < at:
                    pages.forget()
                else:
                    pages.stop_looking_back()
            elif at is None or item.span.start < at:
                pages.apply(item.record)
                last = item.span.start
                if item.record.outcome != "rolled_back":  # it is void: the state before it still holds
                    redo = item.record.redo_is_due
            else:
                pages.look_back(item.record)
        losses = tuple(loss for loss in self._lost() if at is None or gap_of(loss) < at)
        return PagesState(pages.transactions, last, redo, pages.known, losses)

    def _with_gaps(self, mode: Mode) -> Iterator[Located | int]:
        """The transactions, and the offsets where others between them are lost or cannot be read."""
        gaps = deque(map(gap_of, self._lost()))
        for item in self.scan(mode="failfast" if mode == "failfast" else "permissive"):
            if isinstance(item, Damage):
                is_gap = item.kind == "malformed" or (item.kind == "link" and item.size > LINK.size)
                if is_gap and item.end > HEADER_BYTES:
                    gaps.appendleft(item.start)
                continue
            while gaps and gaps[0] <= item.span.start:
                yield gaps.popleft()
            yield item

    def state(self, at: int | None = None) -> dict[str, Any]:
        """The pages as JSON, now or before the transaction with the number `at`."""
        return self.pages(at).as_json()

    def diff(self, start: int, stop: int) -> dict[str, Any]:
        """Which bytes of which pages differ before two transactions.

        `HistoryUnavailable` if transactions between them are lost.
        """
        for loss in self._lost():
            if min(start, stop) <= gap_of(loss) < max(start, stop):
                raise HistoryUnavailable(f"{self.path} @ {gap_of(loss)}: what changed is not known: {loss.describe()}")
        return difference(self.pages(start).pages, self.pages(stop).pages)

    def history(self, key: str) -> list[dict[str, Any]]:
        """The changes of a page, which is named by its offset in the table, transaction by transaction.

        If transactions are lost, the page is unknown from there on: the event is `lost`.
        """
        if not key.isascii() or not key.isdigit():
            raise WrongUse(f"{key!r} is no page: give its offset in the table, such as 30")
        page = int(key)
        known: dict[int, Ranges] = {}
        found: list[dict[str, Any]] = []
        index = 0
        time: int | None = None
        for item in self._with_gaps("dropmalformed"):
            if isinstance(item, int):
                known.clear()
                place = {"t": time, "transaction": index, "file": self.path.name, "position": item}
                found.append({**place, "event": "lost", "value": []})
                continue
            time = item.record.timestamp
            operations = [operation for operation in item.record.operations if operation.page == page]
            if operations and item.record.outcome == "completed":
                for operation in operations:
                    change(known, operation)
                found.append(_change(item, index, operations[-1].op, known.get(page)))
            index += 1
        if all(item["event"] == "lost" for item in found):
            raise NotFound(f"{self.path}: no transaction has changed the page {page}")
        return found

    def as_json(self, located: Located) -> dict[str, Any]:
        """A transaction as `dump --json` prints it."""
        return transaction_as_json(located)


def transaction_as_json(located: Located) -> dict[str, Any]:
    """A transaction and its place, ready to be printed as JSON; bytes are base64."""
    fields = located.record.as_json()
    fields["operations"] = [_encoded(operation) for operation in fields["operations"]]
    place = {"file": located.file, "position": located.span.start, "size": located.span.size}
    return {**place, **_encoded(fields)}


def _encoded(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value for name, value in fields.items()
    }


def _change(item: Located, index: int, event: str, ranges: Ranges | None) -> dict[str, Any]:
    """A change of a page as `history --json` prints it."""
    place = {"t": item.record.timestamp, "transaction": index, "file": item.file, "position": item.span.start}
    if ranges is None:
        return {**place, "event": event, "deleted": True}
    return {**place, "event": event, "value": ranges.as_json()}


# --- both ends ------------------------------------------------------------------------------------------------------


def _header_and_damage(source: JournalFile, file: File) -> tuple[Header | None, Damage | None]:
    """The header, if it can be used, and its damage."""
    size = file.size()
    try:
        header = read_header(file)
    except Malformed as malformed:
        if has_first_transaction(file):
            _, first, last = HEADER.unpack(file.read_at(0, HEADER_BYTES))
            return Header(first, last), Damage(source.name, 0, HEADER_BYTES, malformed.reason)
        return None, Damage(source.name, 0, size, malformed.reason)
    if header is not None:
        return header, None
    reason = f"only {size} of the {HEADER_BYTES} bytes of the header are there"
    return None, Damage(source.name, 0, size, reason, "torn_tail")


def _at_start(file: File, header: Header, start: int) -> tuple[int | None, int]:
    """The transaction at an offset and its index, if links lead to it; otherwise the beginning of the file."""
    if start <= HEADER_BYTES:
        return None, 0
    hopped = hop(file, header, before=start)
    arrived = hopped.ending == codec.CLEAN and hopped.following == start and hopped.last != header.last
    return (start, hopped.count) if arrived else (None, 0)


def _end_of_last(file: File) -> int | None:
    """The end of the last transaction, if it is whole, in the storage, and nothing follows that must be checked."""
    try:
        header = read_header(file)
        head = None if header is None else read_head(file, header.last)
        if header is None or head is None or not head.complete:
            return None
        size = file.size()
        end = measure(file, header.last, size, follow_next=False) if _is_linked(file, header, head) else None
        return end if end == size else None
    except Malformed:
        return None


def _is_linked(file: File, header: Header, last: Head) -> bool:
    """Whether the transaction before the last one, or the header, names it, and nothing follows it."""
    before = read_head(file, last.previous) if last.previous else None
    named = header.first if before is None else before.next
    return last.next == 0 and named == header.last


def _start_of_last(file: File, count: int) -> tuple[int, int] | None:
    """Where to begin reading to find the last `count` transactions; None for the beginning.

    It is found by going backwards, and accepted only if the links agree in both directions.
    """
    try:
        header = read_header(file)
    except Malformed:
        return None
    at = 0 if header is None else header.last
    head = read_head(file, at)
    for _ in range(count - 1):
        if head is None or not HEADER_BYTES <= head.previous < at:
            return None
        before = read_head(file, head.previous)
        if before is None or before.next != at:
            return None
        at, head = head.previous, before
    try:
        whole = measure(file, at, file.size()) is not None if head is not None else False
    except Malformed:
        whole = False
    return (at, 0) if whole else None


class JournalsReader(SideBySideReader[Transaction, Reader]):
    """All journals of a directory opened for reading, in the order of their names. The methods are those of `Reader`.

    `start` and `stop` are numbers within each journal. Journals that appear later are found by the next call.
    """

    format = "yeltsin"
    part_name = "journal"
    row_fields = ROW_FIELDS
    time_scale = NANOSECONDS
    """The timestamps of transactions are in seconds."""

    def __init__(self, directory: Path | str, *, disk: Disk = REAL_DISK) -> None:
        super().__init__()
        self.path = Path(directory)
        self.disk = disk
        if not self.names():
            raise NotFound(f"{self.path}: no journal is here")

    def names(self) -> list[str]:
        """The names of the existing journals."""
        return list_journals(self.disk, self.path)

    def open(self, part: str) -> Reader:
        """The reader of one journal."""
        return Reader(self.path / part, disk=self.disk)

    def part_of(self, file: str) -> str | None:
        """The journal of a file: the file itself."""
        return file

    transactions = SideBySideReader.records

    def state(self, at: int | None = None) -> dict[str, Any]:
        """The pages of each journal under its name."""
        if at is not None:
            raise WrongUse(f"{self.path} holds the journals {', '.join(self.names())}: ask for one of them")
        return {"journals": {name: reader.state() for name, reader in self._each()}}

    def as_json(self, located: Located) -> dict[str, Any]:
        """A transaction as `dump --json` prints it."""
        return transaction_as_json(located)
