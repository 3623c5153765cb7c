"""Scanner: follows stores, change by change, across rotations, while writers go on.

    for entry in Scanner("stores/cars.jrn", timeout=5):
        ...

The iteration ends when nothing new came for `timeout` seconds (default 1; None waits for ever, 0 never waits); another
loop over the same scanner goes on where the last one ended. Each change is seen once, in order, however often it was
copied; of a directory of stores each store is followed, and stores that appear later from their beginning.

A torn tail is waited for: the next writer cuts it off and goes on. Bad bytes with entries behind them are damage,
handled by `mode` as in `Reader`. When archives were removed before they were read to their end, what was not read of
them is a `Gap`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ...core.closing import Closing
from ...core.disk import REAL_DISK, Disk
from ...core.errors import Closed, Gap, NotFound
from ...core.format import Located
from ...core.outcome import Damage, Mode, check_mode
from ...core.watch import POLL_SECONDS
from .files import POSITION_BITS, active_name, list_stores
from .reader import Reader, located
from .records import Entry

DEFAULT_TIMEOUT_SECONDS: Final = 1.0


class Scanner(Closing):
    """An iterator over the changes from a number on, waiting for more.

    `path` is a store's active journal, or a directory of stores. `start` is a number, for a directory one for each
    store by its name; None, and a store that is not named, begins with the first change that there is.
    """

    def __init__(
        self,
        path: Path | str,
        start: int | Mapping[str, int] | None = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT_SECONDS,
        mode: Mode = "failfast",
        disk: Disk = REAL_DISK,
    ) -> None:
        self.path = Path(path).absolute()
        self.timeout = timeout
        self.mode = check_mode(mode)
        self.disk = disk
        self._is_directory = disk.is_directory(self.path)
        self._starts: Mapping[str, int] = start if isinstance(start, Mapping) else {}
        self._stores: dict[str, _Store] = {}
        if self._is_directory:
            stores = list_stores(disk, self.path)
            if not stores:
                raise NotFound(f"{path}: no journal of a store is here")
            if isinstance(start, int) and len(stores) == 1:
                self._starts = {stores[0]: start}
        else:
            reader = Reader(self.path, disk=disk)
            self._stores[reader.store] = _Store(reader, start if isinstance(start, int) else None)
        self._watch = disk.watch(self.path if self._is_directory else self.path.parent)
        self._closed = False

    def __iter__(self) -> Iterator[Entry]:
        for item in self.located():
            if not isinstance(item, Damage):
                yield item.record

    def located(self) -> Iterator[Located | Damage]:
        """The changes with their places, and in the mode `permissive` what is damaged."""
        if self._closed:
            raise Closed(f"{self.path}: this scanner is closed")
        since = time.monotonic()
        while True:
            for item in self._poll():
                yield item
                since = time.monotonic()
            left = POLL_SECONDS if self.timeout is None else since + self.timeout - time.monotonic()
            if left <= 0:
                return
            self._watch.wait(min(left, POLL_SECONDS))

    def _poll(self) -> Iterator[Located | Damage]:
        """What is there now and was not given yet."""
        if self._is_directory:
            for store in list_stores(self.disk, self.path):
                if store not in self._stores:
                    reader = Reader(self.path / active_name(store), disk=self.disk)
                    self._stores[store] = _Store(reader, self._starts.get(store))
        for followed in list(self._stores.values()):
            yield from followed.read(self.mode)

    def close(self) -> None:
        """Stop watching. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self._watch.close()


class _Store:
    """One store, and the number up to which it was read."""

    def __init__(self, reader: Reader, start: int | None) -> None:
        self._reader = reader
        self._number = reader.first if start is None else start

    def read(self, mode: Mode) -> Iterator[Located | Damage]:
        yield from self._tell_gap(mode)
        for item in self._reader.chunks(self._number, mode=mode):
            if isinstance(item, Damage):
                if item.kind == "torn_tail":
                    continue  # somebody may be writing it
                base = self._number >> POSITION_BITS << POSITION_BITS
                for source in self._reader.files():
                    base = source.first_number if source.name == item.file else base
                self._number = max(self._number, base + item.end)
                yield item
            else:
                base = item.source.first_number
                for found in located(item):
                    self._number = base + found.span.end
                    yield found
        self._leave_finished()

    def _leave_finished(self) -> None:
        """Go on to the next journal when the one that was read has ended: it is an archive, and would be read again."""
        for source in self._reader.files():
            if source.before == self._number >> POSITION_BITS and source.timestamp is not None:
                if not self._reader.is_single_file:
                    self._number = source.timestamp << POSITION_BITS
                return

    def _tell_gap(self, mode: Mode) -> Iterator[Damage]:
        """Tell if the journal that was being read is gone."""
        files = self._reader.files()
        if not files or files[0].first_number <= self._number:
            return
        reason = "the archives before this were removed before they were read to their end"
        self._number = files[0].first_number
        if mode == "failfast":
            raise Gap(files[0].name, 0, reason)
        if mode == "permissive":
            yield Damage(files[0].name, 0, 0, reason, "gap")
