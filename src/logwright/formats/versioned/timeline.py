"""Timeline: the journals of one store in their order, and what they know about any time.

State at a time: the latest journal that was initialized by then, and its entries that are not later. Which journal that
is follows from names alone, for each was initialized at the time in the name of the archive before it; only that one is
opened, however many there are. Its own metadata must confirm it: where an archive is missing in between, or the time is
before the first journal, the answer is `HistoryUnavailable`, never a guess.

Changes are found by going through the journals one after the other; the copies that compaction made count once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from ...core.disk import Disk
from ...core.errors import DamagedJournal, HistoryUnavailable, NotFound, WrongUse
from ...core.outcome import Damage, Mode, check_mode
from . import codec, kernel
from .archives import DEFAULT_LIMITS, ArchiveLimits
from .cursor import Chunk, Cursor, Head
from .files import JournalFile
from .layout import MAX_TIMESTAMP
from .records import Entry, Metadata
from .replay import Copies

_ATTEMPTS: Final = 20


class Timeline:
    """The journals that `listed` tells of, oldest first. Damage is handled by `mode`, and noted in `damages`."""

    def __init__(
        self,
        disk: Disk,
        where: Path,
        listed: Callable[[], list[JournalFile]],
        *,
        mode: Mode = "failfast",
        limits: ArchiveLimits = DEFAULT_LIMITS,
    ) -> None:
        self.disk = disk
        self.where = where
        self.listed = listed
        self.mode = check_mode(mode)
        self.limits = limits
        self.damages: list[Damage] = []

    # --- one journal --------------------------------------------------------------------------------------------------

    def latest(self, at: int | None = None) -> kernel.Latest:
        """The last entry of each key at a time, or now."""
        if at is not None and (not isinstance(at, int) or at < 0):
            raise WrongUse(f"{at!r} is no time: give nanoseconds since the epoch")
        self.damages = []
        files = self._files()
        for _ in range(_ATTEMPTS):
            try:
                return self._fold(self._choose(files, at), at)
            except (NotFound, HistoryUnavailable):
                again = self._files()
                if again == files:
                    raise
                files = again  # a rotation came in between
        raise NotFound(f"{self.where}: its files change faster than they can be read")

    def _files(self) -> list[JournalFile]:
        files = self.listed()
        if not files:
            raise NotFound(f"{self.where}: no journal of a store is here")
        return files

    def _choose(self, files: list[JournalFile], at: int | None) -> JournalFile:
        """The journal that knows the state at a time, by names; its metadata is read to confirm it."""
        if at is None:
            return files[-1]
        ends = [file.timestamp for file in files if file.timestamp is not None]
        index = min(bisect_right(ends, at), len(files) - 1)
        metadata = self.metadata(files[index])
        if metadata is None or metadata.initialized <= at:
            return files[index]
        if index and files[index - 1].timestamp == at:
            return files[index - 1]
        kept = f"the state is known from {metadata.initialized} on"
        if index:
            raise HistoryUnavailable(
                f"{self.where}: nothing is kept of the time between {files[index - 1].timestamp} and "
                f"{metadata.initialized}, and {at} lies there; {kept}"
            )
        raise HistoryUnavailable(f"{self.where}: {at} is before what is kept; {kept}")

    def _fold(self, source: JournalFile, at: int | None) -> kernel.Latest:
        found = kernel.Latest(None if at is None else min(at, MAX_TIMESTAMP))
        for item in self._items(source, found):
            if isinstance(item, Chunk) and not item.folded and (at is None or item.smallest <= at):
                found.add(item.data, item.start, item.stop, item.count)
        return found

    def metadata(self, source: JournalFile) -> Metadata | None:
        """The metadata of a journal; None where it is damaged, and the mode lets that pass."""
        file = self.disk.open(source.path, "read")
        with closing(file):
            for item in Cursor(file, source, limits=self.limits).items():
                if isinstance(item, Head) and item.metadata is not None:
                    return item.metadata
                if isinstance(item, Damage):
                    self._note(item)
                elif isinstance(item, Chunk):
                    break
        return None

    def _items(self, source: JournalFile, latest: kernel.Latest | None = None) -> Iterator[Head | Chunk]:
        """What is whole in a journal; `latest` is applied it on the way, where that can be done."""
        file = self.disk.open(source.path, "read")
        with closing(file):
            for item in Cursor(file, source, latest=latest, limits=self.limits).items():
                if isinstance(item, Damage):
                    self._note(item)
                else:
                    yield item

    def _note(self, damage: Damage) -> None:
        if damage.kind != "torn_tail" and self.mode == "failfast":
            raise DamagedJournal(damage.file, damage.start, damage.reason)
        if damage not in self.damages:
            self.damages.append(damage)

    def earliest(self) -> int:
        """The earliest time whose state is known."""
        metadata = self.metadata(self._files()[0])
        if metadata is None:
            raise HistoryUnavailable(f"{self.where}: the metadata of its first journal is damaged")
        return metadata.initialized

    # --- from journal to journal --------------------------------------------------------------------------------------

    def changes(self, start: int, stop: int) -> Iterator[Entry]:
        """Every change after `start`, up to and with `stop`, in order: those that make the one state the other."""
        if not 0 <= start <= stop:
            raise WrongUse(f"changes go from a time to a later one, not from {start} to {stop}")
        self.damages = []
        files = self._files()
        low, high = files.index(self._choose(files, start)), files.index(self._choose(files, stop))
        copies = Copies()
        for source in files[low : high + 1]:
            for entry in self._changes_of(source, copies, None):
                if start < entry.t <= stop:
                    yield entry

    def history(self, key: str) -> Iterator[Entry]:
        """Every change of a key that is kept, oldest first."""
        self.damages = []
        copies = Copies()
        for source in self._files():
            yield from self._changes_of(source, copies, key)

    def _changes_of(self, source: JournalFile, copies: Copies, key: str | None) -> Iterator[Entry]:
        """The changes of one journal, or those of one key."""
        for item in self._items(source):
            if isinstance(item, Head):
                copies.begin(item.metadata.initialized if item.metadata is not None else 0)
                continue
            entries = (
                kernel.entries(item.data, item.start, item.stop, item.count) if key is None else entries_of(item, key)
            )
            for entry in entries:
                if copies.is_change(entry):
                    yield entry


def entries_of(chunk: Chunk, key: str) -> list[Entry]:
    """The entries of a chunk that have a key."""
    rows = rows_of(kernel.columns(chunk.data, chunk.start, chunk.stop, chunk.count, codec.KEYS), key)
    if not rows:
        return []
    starts = kernel.spans(chunk.data, chunk.start, chunk.stop, chunk.count)
    return [kernel.entries(chunk.data, starts[row], starts[row + 1], 1)[0] for row in rows]


def rows_of(columns: Any, key: str) -> list[int]:
    """The rows of columns that have a key."""
    wanted = key.encode()
    ends = memoryview(columns.key_ends).cast("i")
    if not wanted:
        return [row for row in range(columns.count) if ends[row] == ends[row + 1]]
    found = []
    at = columns.keys.find(wanted)
    while at >= 0:
        row = bisect_right(ends, at) - 1
        if ends[row] == at and ends[row + 1] == at + len(wanted):
            found.append(row)
            at = columns.keys.find(wanted, at + len(wanted))
        else:
            at = columns.keys.find(wanted, at + 1)
    return found
