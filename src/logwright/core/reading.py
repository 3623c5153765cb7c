"""Reading: the verbs that the readers of all formats share, over the chunks that each format makes.

A chunk holds whole records as they lie in a file. What is made of chunks (objects, places, columns, counts) is the same
everywhere, and so is what becomes of damage by the mode of reading:

    failfast        raise `DamagedJournal` where it is (the default)
    permissive      go on behind it, with a `Damage` in the place of what is damaged
    dropmalformed   go on behind it

A torn tail is no damage: it is what a crash leaves and what a writer's next open removes. Reading ends before it, and
`torn_tail` tells about it (in `permissive` it also comes as a `Damage`).

A format's reader is a `ChunkReader`, or a `FilesReader` where its records are numbered by file and position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from .chunk import POSITION_BITS
from .closing import Closing
from .disk import Disk
from .errors import DamagedJournal, Gap, NotFound, WrongUse
from .format import Located
from .outcome import Damage, Mode, Span
from .report import Progress, Report, Summary
from .snapshot import Listed, Snapshot, snapshot

_PLACE: Final = re.compile(r"(.*?) ?@ ?([0-9]{1,20})", re.DOTALL)


class AnyChunk(Protocol):
    """What every format's chunk has."""

    count: int

    @property
    def file(self) -> str: ...

    def starts(self) -> Sequence[int]: ...


C = TypeVar("C", bound=AnyChunk)


class ChunkReader(Closing, Generic[C]):
    """A journal opened for reading. It needs no lock, changes nothing, and works while a writer appends.

    A subclass has `files`, `chunks` and `decoded`, and what only its format has. Its room `check` has `summarize` and
    `verify`.
    """

    package: ClassVar[str]
    """The format's, where its other rooms are."""
    counted_by: ClassVar[Mapping[str, Any]] = {}
    """What `chunks` is told where records are counted and nobody looks at them."""
    skimmed_by: ClassVar[Mapping[str, Any]] = {}
    """What `chunks` is told where only the places of records matter."""
    path: Path
    disk: Disk
    torn_tail: Damage | None = None

    # --- what a format has ------------------------------------------------------------------------------------------

    def files(self) -> Sequence[Listed]:
        """The files that count, oldest first."""
        raise NotImplementedError

    def chunks(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        mode: Mode = "failfast",
        progress: Progress | None = None,
    ) -> Iterator[C | Damage]:
        """Whole records as they lie in the files. A chunk's buffer is valid until the next one is asked for."""
        raise NotImplementedError

    def decoded(self, chunk: C) -> list[Any]:
        """The records of a chunk."""
        raise NotImplementedError

    # --- going through it -------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        return self.records()

    def records(
        self, start: int | None = None, stop: int | None = None, *, mode: Mode = "failfast"
    ) -> Iterator[Any | Damage]:
        """The records with `start` <= number < `stop`; without `start` from the first there is."""
        return chain.from_iterable(self._lists(start, stop, mode))

    def _lists(self, start: int | None, stop: int | None, mode: Mode) -> Iterator[list[Any]]:
        """The records chunk by chunk: a generator that is asked for each record costs a quarter more."""
        for item in self.chunks(start, stop, mode=mode):
            yield [item] if isinstance(item, Damage) else self.decoded(item)

    def scan(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        mode: Mode = "failfast",
        progress: Progress | None = None,
    ) -> Iterator[Located | Damage]:
        """Every record with the place of its bytes."""
        for item in self.chunks(start, stop, mode=mode, progress=progress):
            if isinstance(item, Damage):
                yield item
            else:
                yield from located(item, self.decoded(item))

    def batches(self, columns: Sequence[str] | None = None, **options: Any) -> Any:
        """The records as Arrow record batches; see `logwright.arrow.batches`."""
        return import_module("logwright.arrow").batches(self, columns, **options)

    def to_arrow(self, columns: Sequence[str] | None = None, **options: Any) -> Any:
        """The records as an Arrow table; see `logwright.arrow.to_arrow`."""
        return import_module("logwright.arrow").to_arrow(self, columns, **options)

    def count(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        progress: Progress | None = None,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> int:
        """How many whole records there are in a range of numbers; `on_damage` is called with what is not one."""
        records = 0
        for item in self.chunks(start, stop, mode="permissive", progress=progress, **self.counted_by):
            if not isinstance(item, Damage):
                records += item.count
            elif on_damage is not None:
                on_damage(item)
        return records

    def report(self, damage: Damage, mode: Mode) -> Iterator[Damage]:
        """Tell of damage as `mode` has it."""
        if damage.kind == "torn_tail":
            self.torn_tail = damage
        elif mode == "failfast":
            kind = Gap if damage.kind == "gap" else DamagedJournal
            raise kind(damage.file, damage.start, damage.reason)
        if mode == "permissive":
            yield damage

    # --- what it is -------------------------------------------------------------------------------------------------

    def total_bytes(self) -> int:
        """How large the files are together."""
        return sum(self.disk.file_size(file.path) for file in self.files())

    def summary(self) -> Summary:
        """What this is, quickly: names, sizes, both ends; of what can only be read from its beginning on, not all."""
        found: Summary = import_module(f"{self.package}.check").summarize(self)
        return found

    def verify(self, *, progress: Progress | None = None) -> Report:
        """Check everything: every record of every file, and what is around them."""
        report: Report = import_module(f"{self.package}.check").verify(self, progress=progress)
        return report

    def close(self) -> None:
        """Nothing is held between calls."""


class NumberedListed(Listed, Protocol):
    """A file with the number of the record at its beginning; see `NumberedFile`."""

    @property
    def first_number(self) -> int: ...


F = TypeVar("F", bound=NumberedListed)


class FilesReader(ChunkReader[C], Generic[C, F]):
    """A journal whose records are numbered by their file and their position in it: see `core/chunk.py`.

    It is one of several in its directory, and `part` is its name: of a queue, of a store.
    """

    part_name: ClassVar[str]
    first_position: ClassVar[int] = 0
    """Where the first record of a file begins."""
    _single: bool

    @property
    def part(self) -> str:
        """The name of what this is the journal of."""
        raise NotImplementedError

    def files(self) -> list[F]:
        """The files that count, oldest first."""
        raise NotImplementedError

    @property
    def is_single_file(self) -> bool:
        """Whether this is one file, and not a journal with all of its files."""
        return self._single

    @property
    def directory(self) -> Path:
        """The directory that the files are in."""
        return self.path.parent

    def snapshot(self) -> Any:
        """The files as they are now, opened together; a context manager."""
        return snapshot(self.disk, self.files, self.path)

    def files_between(
        self, files: Snapshot[F], start: int | None, stop: int | None, progress: Progress | None = None
    ) -> Iterator[tuple[int, F, Callable[[int], None] | None]]:
        """The files that may hold records with `start` <= number < `stop`, each with its index, and what to report to.

        A file that may be closed again is, once the next one is asked for. The pass meets its own torn tail.
        """
        self.torn_tail = None
        shares = Shares(progress, (files.size(source) for source in files.files) if progress else ())
        for index, source in enumerate(files.files):
            if stop is not None and source.first_number >= stop:
                return
            if start is None or start - source.first_number < 1 << POSITION_BITS:
                yield index, source, shares.of(index)
                files.done_with(source)

    @property
    def first(self) -> int:
        """The number of the first record there is, or will be."""
        files = self.files()
        return files[0].first_number if files else 0

    @property
    def next(self) -> int:
        """The number behind the last record: the one that the next record will get."""
        raise NotImplementedError

    def number_of(self, located: Located) -> tuple[str, int]:
        """The part that a record belongs to, and its number there."""
        for source in self.files():
            if source.name == located.file:
                return self.part, source.first_number + located.span.start
        return self.part, located.span.start  # its file has gone meanwhile

    def find_place(self, text: str) -> int:
        """The number that a place stands for: `FILE@POSITION`, or a position in the only file."""
        match = _PLACE.fullmatch(text)
        name, position = (match[1], match[2]) if match else ("", text)
        files = self.files()
        if not position.isascii() or not position.isdigit():
            example = f"{files[-1].name if files else 'FILE'}@{self.first_position}"
            raise WrongUse(f"{text!r} is no place: write FILE@POSITION, such as {example}, or a number")
        if not name:
            return int(position)
        for source in files:
            if source.name == name:
                return source.first_number + int(position)
        raise NotFound(f"{self.directory / name}: no such file of the {self.part_name} {self.part}")


# --- chunks to objects, and how far one has come ----------------------------------------------------------------------


def located(chunk: AnyChunk, records: Iterable[Any]) -> Iterator[Located]:
    """The records of a chunk with their places."""
    starts = chunk.starts()
    for row, record in enumerate(records):
        yield Located(record, chunk.file, Span(starts[row], starts[row + 1]))


class Shares:
    """What each file reports its progress to, so that the whole goes from nothing to all bytes once."""

    def __init__(self, progress: Progress | None, sizes: Iterable[int]) -> None:
        self._progress = progress
        self._sizes = list(sizes)

    def of(self, index: int) -> Callable[[int], None] | None:
        """What the file of this index reports its position to; an archive gives more bytes than it has."""
        progress, sizes = self._progress, self._sizes
        if progress is None:
            return None
        before, size, total = sum(sizes[:index]), sizes[index], sum(sizes)
        return lambda position: progress(before + min(position, size), total)
