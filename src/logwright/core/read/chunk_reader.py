"""ChunkReader: the base of the readers of all formats, over the chunks that each format makes.

A chunk holds whole records as they are stored in a file. All readers make objects, places, columns and counts from
chunks in the same way. The mode of reading says what happens at damage:

    failfast        raise `DamagedJournal` (the default)
    permissive      return a `Damage`, and continue after it
    dropmalformed   continue after it

Records that the account of losses names (see `losses.py`) are not damage: reading logs a warning and continues, or in
`permissive` returns a `Damage` of the kind `lost`.

A repair of the journal that was interrupted is reported first, as a `Damage` of the kind `repair`: until it is finished
or undone, records may be missing.

A torn tail is not damage: a crash leaves it, and the next writer cuts it off. Reading ends before it and sets
`torn_tail`; in `permissive` it is also returned as a `Damage`.

A format's reader is a `ChunkReader`, or a `FilesReader` where its records are numbered by file and position.
"""

from __future__ import annotations

import logging
import re
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar, Unpack, overload

from ...errors import DamagedJournal, Gap, LogwrightError, NotFound, WrongUse
from ..bytes.outcome import Damage, Mode, RecordsOnly, Span, check_mode
from ..format import Located, Reader, concerns, half_done_damage
from ..repair.losses import Loss, read_losses
from ..repair.plan import find_interrupted
from .chunk import POSITION_BITS, Bound, Choice
from .report import SOUND_SO_FAR, Progress, Summary
from .snapshot import Listed, Snapshot, snapshot

if TYPE_CHECKING:
    import pyarrow as pa

    from ..arrow.batches import Batches, BatchOptions

logger = logging.getLogger("logwright")

_PLACE: Final = re.compile(r"(.*?) ?@ ?([0-9]{1,20})", re.DOTALL)


class AnyChunk(Protocol):
    """The chunk of any format."""

    count: int

    @property
    def file(self) -> str: ...

    def starts(self) -> Sequence[int]: ...


C = TypeVar("C", bound=AnyChunk)
R = TypeVar("R")


class AnyCursor(Protocol):
    """Reads one file of a journal chunk by chunk."""

    position: int

    def read(self) -> Any: ...


class RecordsReader(Reader, Generic[R]):
    """A reader whose records have the type `R`. A format gives `records` the name of its records as well."""

    def __iter__(self) -> Iterator[R]:
        return self.records()

    @overload
    def records(self, start: Bound = ..., stop: Bound = ..., *, mode: RecordsOnly = ...) -> Iterator[R]: ...

    @overload
    def records(self, start: Bound = ..., stop: Bound = ..., *, mode: Mode) -> Iterator[R | Damage]: ...

    def records(self, start: Bound = None, stop: Bound = None, *, mode: Mode = "failfast") -> Iterator[R | Damage]:
        """The records with `start` <= number < `stop`; without `start` from the first one."""
        return self._records(start, stop, mode)

    @abstractmethod
    def _records(self, start: Any, stop: Any, mode: Mode) -> Iterator[R | Damage]:
        """What `records` returns."""


class ChunkReader(RecordsReader[R], Generic[C, R]):
    """A journal opened for reading. It needs no lock, changes nothing, and works while a writer appends.

    A subclass has `files`, `chunks` and `decoded`, and what only its format has.
    """

    counted_by: ClassVar[Mapping[str, Any]] = {}
    """The arguments of `chunks` when records are only counted."""
    scanned_by: ClassVar[Mapping[str, Any]] = {}
    """The arguments of `chunks` for the same records as `scan`."""
    skimmed_by: ClassVar[Mapping[str, Any]] = {}
    """The arguments of `chunks` when only the places of records are needed."""
    batched_by: ClassVar[Mapping[str, Any]] = {}
    """The arguments of `chunks` when columns are made of the records."""
    resumed_by: ClassVar[Mapping[str, Any]] = {}
    """The arguments of `chunks` when `start` is known to be the number of a record, or of the next one: what precedes
    it in its file is not read then."""
    torn_tail: Damage | None = None

    # --- implemented by a format ------------------------------------------------------------------------------------

    def files(self) -> Sequence[Listed]:
        """The files of the journal, oldest first."""
        raise NotImplementedError

    def chunks(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        mode: Mode = "failfast",
        progress: Progress | None = None,
    ) -> Iterator[C | Damage]:
        """Whole records as they are stored. The buffer of a chunk is valid until the next chunk is requested."""
        raise NotImplementedError

    def decoded(self, chunk: C) -> list[R]:
        """The records of a chunk."""
        raise NotImplementedError

    @property
    @abstractmethod
    def next(self) -> int:
        """The number that the next record will get."""

    @property
    def end(self) -> int:
        return self.next

    # --- going through it -------------------------------------------------------------------------------------------

    def _records(self, start: int | None, stop: int | None, mode: Mode) -> Iterator[R | Damage]:
        return chain.from_iterable(self._lists(start, stop, mode))

    def _lists(self, start: int | None, stop: int | None, mode: Mode) -> Iterator[Sequence[R | Damage]]:
        """The records chunk by chunk, which is a quarter faster than a generator of single records."""
        for item in self.chunks(start, stop, mode=mode):
            yield [item] if isinstance(item, Damage) else self.decoded(item)

    def _scan(
        self, start: int | None, stop: int | None, mode: Mode, progress: Progress | None, choice: Choice | None
    ) -> Iterator[Located | Damage]:
        if choice is not None:
            yield from self._scan_chosen(start, stop, mode, progress, choice)
            return
        for item in self.chunks(start, stop, mode=mode, progress=progress):
            if isinstance(item, Damage):
                yield item
            else:
                yield from located(item, self.decoded(item))

    def _scan_chosen(
        self, start: int | None, stop: int | None, mode: Mode, progress: Progress | None, choice: Choice
    ) -> Iterator[Located | Damage]:
        for item in self._chosen(start, stop, mode, progress, choice):
            if isinstance(item, Damage):
                yield item
                continue
            chunk, rows = item
            if rows:
                yield from located(chunk, self.decoded(chunk), rows)

    def _chosen(
        self, start: int | None, stop: int | None, mode: Mode, progress: Progress | None, choice: Choice
    ) -> Iterator[tuple[C, Sequence[int]] | Damage]:
        """The chunks of a range with their chosen rows. Damage of the journal as a whole is reported once."""
        seen: set[Damage] = set()
        for low, high in choice.ranges(self, start, stop):
            for item in choice.through(self.chunks(low, high, mode=mode, progress=progress, **self.scanned_by)):
                if not isinstance(item, Damage):
                    yield item
                elif item not in seen:
                    seen.add(item)
                    yield item

    def batches(self, columns: Sequence[str] | None = None, **options: Unpack[BatchOptions]) -> Batches:
        """The records as Arrow record batches; see `logwright.arrow.batches`."""
        from ..arrow.batches import batches

        return batches(self, columns, **options)

    def to_arrow(self, columns: Sequence[str] | None = None, **options: Unpack[BatchOptions]) -> pa.Table:
        """The records as an Arrow table; see `logwright.arrow.to_arrow`."""
        from ..arrow.batches import to_arrow

        return to_arrow(self, columns, **options)

    def count(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        progress: Progress | None = None,
        on_damage: Callable[[Damage], None] | None = None,
        choice: Choice | None = None,
    ) -> int:
        counts: Iterator[int | Damage]
        if choice is None:
            chunks = self.chunks(start, stop, mode="permissive", progress=progress, **self.counted_by)
            counts = (item if isinstance(item, Damage) else item.count for item in chunks)
        else:
            chosen = self._chosen(start, stop, "permissive", progress, choice)
            counts = (item if isinstance(item, Damage) else len(item[1]) for item in chosen)
        records = 0
        for found in counts:
            if not isinstance(found, Damage):
                records += found
            elif on_damage is not None:
                on_damage(found)
        return records

    def report(self, damage: Damage, mode: Mode) -> Iterator[Damage]:
        """Raise, return or skip damage, as `mode` says."""
        if damage.kind == "torn_tail":
            self.torn_tail = damage
        elif damage.kind == "lost":
            if mode != "permissive":
                logger.warning("%s: %s @ %d: %s", self.path, damage.file, damage.start, damage.reason)
        elif mode == "failfast":
            kind = Gap if damage.kind == "gap" else DamagedJournal
            raise kind(damage.file, damage.start, damage.reason)
        if mode == "permissive":
            yield damage

    def half_repaired(self, mode: Mode) -> Iterator[Damage]:
        """Raise, return or skip an interrupted repair of this journal: until it is finished, records may be missing."""
        damage = half_done_damage(self.path, disk=self.disk)
        if damage is not None:
            yield from self.report(damage, mode)

    def missing(self) -> list[Damage]:
        """The files that are missing and leave no gap between records that exist, as far as other files show it."""
        return []

    def whole_damage(self, *, resumed: bool) -> list[Damage]:
        """Damage of the journal as a whole, which a plan of splits reports: see `report_first`.

        `resumed` says that missing files were reported earlier.
        """
        half_done = half_done_damage(self.path, disk=self.disk)
        return [*([] if half_done is None else [half_done]), *([] if resumed else self.missing())]

    # --- what it is -------------------------------------------------------------------------------------------------

    def total_bytes(self) -> int:
        return sum(self.disk.file_size(file.path) for file in self.files())

    def summary(self) -> Summary:
        """What this is, quickly: names, sizes and both ends; the beginning if it cannot be read backwards."""
        found = self.summarize()
        try:
            found.losses = self.losses()
            half_done = find_interrupted(self.disk, self.directory)
        except LogwrightError as error:
            found.damaged, found.health = True, str(error)
        else:
            if half_done is not None and concerns(half_done, self.part):
                found.damaged, found.health = True, half_done.describe()
        if found.losses and found.health == SOUND_SO_FAR:
            found.health = f"{SOUND_SO_FAR}, with known losses"
        return found

    @abstractmethod
    def summarize(self) -> Summary:
        """The summary without the losses."""

    @property
    def directory(self) -> Path:
        """The journal's directory, which contains `.logwright`."""
        raise NotImplementedError

    def losses(self) -> list[Loss]:
        return read_losses(self.disk, self.directory, self.part)


class NumberedListed(Listed, Protocol):
    """A file with the number of its first record; see `NumberedFile`."""

    @property
    def timestamp(self) -> int | None: ...

    @property
    def first_number(self) -> int: ...


F = TypeVar("F", bound=NumberedListed)


class FilesReader(ChunkReader[C, R], Generic[C, F, R]):
    """A journal whose records are numbered by file and position: see `core/read/chunk.py`.

    It is one of several in its directory, and `part` is its name. A subclass has `file_chunks`.
    """

    records_name: ClassVar[str] = "records"
    first_position: ClassVar[int] = 0
    """Where the first record of a file begins."""
    _single: bool

    @property
    def part(self) -> str:
        """The name of the queue, store or database."""
        raise NotImplementedError

    def files(self) -> list[F]:
        raise NotImplementedError

    @property
    def is_single_file(self) -> bool:
        return self._single

    @property
    def directory(self) -> Path:
        """The directory that the files are in."""
        return self.path.parent

    def snapshot(self) -> Any:
        """A context manager with the current files, opened together."""
        return snapshot(self.disk, self.files, self.path)

    # --- going through it -------------------------------------------------------------------------------------------

    def chunks(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        mode: Mode = "failfast",
        progress: Progress | None = None,
        **how: Any,
    ) -> Iterator[C | Damage]:
        """Whole records as they are stored. The buffer of a chunk is valid until the next chunk is requested.

        `how` is passed to `file_chunks`. With `load=False`, where a format has it, very large records are not read:
        their chunk has no data.
        """
        check_mode(mode)
        yield from self.half_repaired(mode)
        with self.snapshot() as files:
            yield from self.snapshot_chunks(files, start, stop, mode, progress, **how)

    def snapshot_chunks(
        self,
        files: Snapshot[F],
        start: int | None,
        stop: int | None,
        mode: Mode,
        progress: Progress | None = None,
        **how: Any,
    ) -> Iterator[C | Damage]:
        """The chunks of files that are open."""
        for _, source, report in self.files_between(files, start, stop, progress):
            yield from self.file_chunks(source, files.file(source), start, stop, mode, report, **how)

    def file_chunks(self, *what: Any, **how: Any) -> Iterator[Any]:
        """The chunks of one file: `(source, file, start, stop, mode, report)`, and options of the format."""
        raise NotImplementedError

    def cursor_chunks(
        self,
        cursor: AnyCursor,
        judge: Callable[[Any], tuple[Damage | None, bool]],
        low: int,
        high: int | None,
        mode: Mode,
        report: Callable[[int], None] | None = None,
        **how: Any,
    ) -> Iterator[C | Damage]:
        """The chunks that a cursor reads, limited to positions; `how` is passed to its `read`.

        If that returns None, `judge` returns the damage, if any, and whether the cursor can continue.
        """
        read = partial(cursor.read, **how)
        while high is None or cursor.position < high:
            chunk = read()
            if chunk is not None:
                part = chunk.within(low, high)
                if part is not None:
                    yield part
                if report is not None:
                    report(cursor.position)
                continue
            damage, can_continue = judge(cursor)
            if damage is not None and reaches(damage, low) and (high is None or damage.start < high):
                yield from self.report(damage, mode)
            if not can_continue:
                return

    def files_between(
        self, files: Snapshot[F], start: int | None, stop: int | None, progress: Progress | None = None
    ) -> Iterator[tuple[int, F, Callable[[int], None] | None]]:
        """The files that may hold records with `start` <= number < `stop`, each with its index and progress callback.

        Resets `torn_tail`. A file that need not stay open is closed when the next one is requested.
        """
        self.torn_tail = None
        shares = Shares(progress, (files.size(source) for source in files.files) if progress else ())
        for index, source in enumerate(files.files):
            if stop is not None and source.first_number >= stop:
                return
            if start is None or start - source.first_number < 1 << POSITION_BITS:
                yield index, source, shares.of(index)
                files.done_with(source)

    # --- finding a place --------------------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """The number of the first record, or of the next one if there is none."""
        files = self.files()
        return files[0].first_number if files else 0

    @property
    def next(self) -> int:
        """The number that the next record will get."""
        with self.snapshot() as files:
            return self.next_of(files)

    def next_of(self, files: Snapshot[F]) -> int:
        """The number that the next record after these files will get."""
        if not files.files:
            return 0
        source = files.files[-1]
        if source.timestamp is not None:
            return source.timestamp << POSITION_BITS
        end = 0
        for item in self.file_chunks(source, files.file(source), None, None, "dropmalformed", **self.skimmed_by):
            end = item.end
        return source.first_number + end

    def last(self, count: int, choice: Choice | None = None) -> list[Located]:
        """The last `count` records, oldest first. A format that cannot be read backwards reads its last file."""
        if count < 0:
            raise WrongUse(f"cannot give the last {count} {self.records_name}")
        list(self.half_repaired("failfast"))
        self.torn_tail = None
        found: list[Located] = []
        with self.snapshot() as files:
            for number in range(len(files.files) - 1, -1, -1):
                if len(found) >= count:
                    break
                rest = count - len(found)
                chosen = None if choice is None else self._last_chosen(files, number, rest, choice)
                found = (self.last_of(files, number, rest) if chosen is None else chosen) + found
                files.done_with(files.files[number])
        return found

    def last_of(self, files: Snapshot[F], number: int, count: int) -> list[Located]:
        """The last records of one file."""
        found: deque[Located] = deque(maxlen=count)
        for item in self.last_chunks(files, number):
            found.extend(located(item, self.decoded(item)))
        return list(found)

    def last_chunks(self, files: Snapshot[F], number: int) -> Iterator[Any]:
        """The chunks of one file whose records may be among the last ones."""
        source = files.files[number]
        return self.file_chunks(source, files.file(source), None, None, "failfast")

    def _last_chosen(self, files: Snapshot[F], number: int, count: int, choice: Choice) -> list[Located]:
        """The last chosen records of one file."""
        found: deque[Located] = deque(maxlen=count)
        for item in choice.through(self.last_chunks(files, number)):
            if not isinstance(item, Damage) and item[1]:
                found.extend(located(item[0], self.decoded(item[0]), item[1]))
        return list(found)

    def number_of(self, located: Located) -> tuple[str, int]:
        for source in self.files():
            if source.name == located.file:
                return self.part, source.first_number + located.span.start
        return self.part, located.span.start  # its file was removed meanwhile

    def find_place(self, text: str) -> int:
        """The record number of a place: `FILE@POSITION`, or a position in the only file."""
        match = _PLACE.fullmatch(text)
        name, position = (match[1], match[2]) if match else ("", text)
        files = self.files()
        if not position.isascii() or not position.isdigit():
            example = f"{files[-1].name if files else 'FILE'}@{self.first_position}"
            raise WrongUse(f"{text!r} is not a place: write FILE@POSITION, such as {example}, or a number")
        if not name:
            return int(position)
        for source in files:
            if source.name == name:
                return source.first_number + int(position)
        raise NotFound(f"{self.directory / name}: no such file of the {self.part_name} {self.part}".rstrip())


# --- chunks to objects, and progress ----------------------------------------------------------------------------------


def located(chunk: AnyChunk, records: Sequence[Any], rows: Sequence[int] | None = None) -> Iterator[Located]:
    """The records of a chunk with their places, or those of some rows."""
    starts = chunk.starts()
    for row in range(len(records)) if rows is None else rows:
        yield Located(records[row], chunk.file, Span(starts[row], starts[row + 1]))


def chosen_in(chunk: AnyChunk, decoded: Callable[[Any], Sequence[Any]], choice: Choice | None) -> Iterator[Located]:
    """The records of a chunk with their places, as far as they are chosen."""
    rows = None if choice is None else choice.rows(chunk)
    if rows is None or rows:
        yield from located(chunk, decoded(chunk), rows)


def reaches(damage: Damage, position: int) -> bool:
    """Whether damage is at a position or after it; it may have no bytes."""
    return damage.end > position or damage.start >= position


class Shares:
    """The progress callbacks of several files; together they count from 0 to all bytes once."""

    def __init__(self, progress: Progress | None, sizes: Iterable[int]) -> None:
        self._progress = progress
        self._sizes = list(sizes)

    def of(self, index: int) -> Callable[[int], None] | None:
        """The callback of one file. Positions in an archive may exceed its size."""
        progress, sizes = self._progress, self._sizes
        if progress is None:
            return None
        before, size, total = sum(sizes[:index]), sizes[index], sum(sizes)
        return lambda position: progress(before + min(position, size), total)
