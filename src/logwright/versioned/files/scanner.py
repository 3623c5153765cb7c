"""Scanner: follows stores, change by change, across rotations, while writers continue.

    for entry in Scanner("stores/cars.jrn", timeout=5):
        ...

The iteration ends when nothing new came for `timeout` seconds (default 1; None waits for ever, 0 never waits); another
loop over the same scanner continues where the last one ended. Each change is seen once, in order, however often it was
copied; of a directory of stores each store is followed, and stores that appear later from their beginning.

A torn tail is waited for: the next writer cuts it off and continues. Bad bytes with entries after them are damage,
handled by `mode` as in `Reader`. When archives were removed before they were read to their end, what was not read of
them is a `Gap`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Unpack, overload

from ...core.bytes.outcome import Damage, Mode
from ...core.format import Located
from ...core.read.chunk import POSITION_BITS, Bound, Choice
from ...core.read.chunk_reader import chosen_in
from ...core.read.files_scanner import FilesScanner, Following, FollowingAll, FollowingRecords, Item
from ...errors import Gap
from ..bytes.records import Entry
from .files import active_name, list_stores
from .places import find, mark_of
from .reader import Reader


class Scanner(FilesScanner[Item]):
    """An iterator over the changes from a number on, waiting for more.

    `path` is a store's active journal, or a directory of stores. `start` is a number, for a directory one for each
    store by its name; None, and a store that is not named, begins with the first change that there is.
    """

    format = "versioned"
    nothing_here = "no journal of a store is here"

    @overload
    def __init__(
        self: Scanner[Entry], path: Path | str, start: Bound = ..., **options: Unpack[FollowingRecords]
    ) -> None: ...

    @overload
    def __init__(
        self: Scanner[Entry | Damage], path: Path | str, start: Bound = ..., **options: Unpack[FollowingAll]
    ) -> None: ...

    def __init__(self, path: Path | str, start: Bound = None, **options: Unpack[Following]) -> None:
        super().__init__(path, start, **options)

    def names(self) -> list[str]:
        """The stores that the directory has now."""
        return list_stores(self.disk, self.path)

    def path_of(self, part: str) -> Path:
        """The path of one store."""
        return self.path / active_name(part)

    def follow(self, path: Path, start: int | None) -> _Store:
        """Begin to follow one store."""
        return _Store(Reader(path, disk=self.disk), start)


class _Store:
    """One store, and the number up to which it was read, with what that place is known by."""

    def __init__(self, reader: Reader, start: int | None) -> None:
        self._reader = reader
        self._number = reader.first if start is None else start
        self._mark = mark_of(reader, self._number)

    def read(self, mode: Mode, choice: Choice | None = None) -> Iterator[Located | Damage]:
        self._number, reason = find(self._reader, self._number, self._mark)
        yield from self._report_gap(mode, reason)
        number = self._number
        try:
            yield from self._read(mode, choice)
        finally:
            if self._number != number:
                self._mark = mark_of(self._reader, self._number)

    def _read(self, mode: Mode, choice: Choice | None) -> Iterator[Located | Damage]:
        for item in self._reader.chunks(self._number, mode=mode):
            if isinstance(item, Damage):
                if item.kind == "torn_tail":
                    continue  # a writer may be writing it
                base = self._number >> POSITION_BITS << POSITION_BITS
                for source in self._reader.files():
                    base = source.first_number if source.name == item.file else base
                self._number = max(self._number, base + item.end)
                yield item
            else:
                base = item.source.first_number
                for found in chosen_in(item, self._reader.decoded, choice):
                    self._number = base + found.span.end
                    yield found
                self._number = base + item.end
        self._leave_finished()

    def _leave_finished(self) -> None:
        """Go on to the next journal when the one that was read has ended: it is an archive, and would be read again."""
        for source in self._reader.files():
            if source.before == self._number >> POSITION_BITS and source.timestamp is not None:
                if not self._reader.is_single_file:
                    self._number = source.timestamp << POSITION_BITS
                return

    def _report_gap(self, mode: Mode, reason: str) -> Iterator[Damage]:
        """Report if the journal that was being read is gone, or why it is another one."""
        files = self._reader.files()
        if files and files[0].first_number > self._number:
            reason = "the archives before this were removed before they were read to their end"
            self._number = files[0].first_number
        if not files or not reason:
            return
        self._mark = mark_of(self._reader, self._number)
        if mode == "failfast":
            raise Gap(files[0].name, 0, reason)
        if mode == "permissive":
            yield Damage(files[0].name, 0, 0, reason, "gap")
