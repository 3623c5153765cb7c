"""StoresWriter: the rows of tables become changes of the stores of a directory, each with its time.

Rows are packed by columns, and each store takes those of a batch at once. However many stores there are, few are open
at a time: where rows name more of them, rows gather, so that each store is opened for a good many of them, and those
are closed that were not needed for longest.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any, Final

from ...core.io.disk import REAL_DISK, Disk
from ...core.io.durability import SyncLike
from ...core.write.closing import Closing
from ..files.files import check_store_name
from ..model.store import VersionedKVStore

_MOST_OPEN: Final = 64
_MOST_GATHERED_BYTES: Final = 64 << 20


class StoresWriter(Closing):
    """Makes the changes that rows describe, in the store that the column `store` names.

    A change keeps its time, unless an earlier row of its store has a later one: times never go back. Without a time it
    is made now. What `append_batch` took is in its store when this is closed, and with few stores at once.
    """

    format = "versioned"

    def __init__(
        self,
        directory: Path | str,
        default: str,
        *,
        most_open: int = _MOST_OPEN,
        gathered_bytes: int = _MOST_GATHERED_BYTES,
        sync: SyncLike = "none",
        disk: Disk = REAL_DISK,
    ) -> None:
        """Rows without a store go to `default`, which is there in any case."""
        self._directory = Path(directory)
        self._default = default
        self._disk = disk
        self._sync = sync
        self._most_open = most_open
        self._most_gathered_bytes = gathered_bytes
        self._stores: dict[str, VersionedKVStore] = {}  # the one used last comes last
        self._names: set[str] = set()
        self._gathered: dict[str, list[Any]] = {}
        self._gathered_bytes = 0
        self._now = 0

    def append_batch(self, batch: Any) -> int:
        """Make the changes of an Arrow record batch; how many those were. See `columns.from_arrow`."""
        from . import columns

        columns.check_texts(batch)
        parts = columns.by_store(batch, self._default)
        for name, _ in parts:
            self._names.add(check_store_name(name))
        for name, rows in parts:
            self._gathered.setdefault(name, []).append(rows)
        self._gathered_bytes += batch.nbytes
        if len(self._names) <= self._most_open or self._gathered_bytes >= self._most_gathered_bytes:
            self._write()
        return int(batch.num_rows)

    def _write(self) -> None:
        """Make the changes that have gathered."""
        gathered, self._gathered, self._gathered_bytes = self._gathered, {}, 0
        from . import columns

        for name, batches in gathered.items():
            for batch in batches:
                times = columns.change_times(batch, time.time_ns())
                self._now = times[0].as_py() if len(times) else time.time_ns()
                store = self._store(name)
                for data, starts in columns.packed(batch, columns.rising(times, store.last_timestamp)):
                    store.append_packed(data, starts)

    def _store(self, name: str) -> VersionedKVStore:
        """A store, created if there is none, and initialized by its first change."""
        found = self._stores.pop(name, None)
        if found is None:
            if len(self._stores) >= self._most_open:
                self._stores.pop(next(iter(self._stores))).close()
            found = VersionedKVStore(self._directory, name, sync=self._sync, clock=self._tell, disk=self._disk)
        self._stores[name] = found
        return found

    def _tell(self) -> int:
        return self._now

    def close(self) -> None:
        """Write the collected changes, and close all stores. A second call does nothing."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._close_stores)
            self._write()
            if not self._names:
                self._now = time.time_ns()
                self._names.add(self._default)
                self._store(self._default)

    def _close_stores(self) -> None:
        stores, self._stores = self._stores, {}
        with contextlib.ExitStack() as stack:
            for store in stores.values():
                stack.callback(store.close)
