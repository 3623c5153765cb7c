"""StoresWriter: the rows of tables become changes of the stores of a directory, each with its time."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from ...core.closing import Closing
from ...core.disk import REAL_DISK, Disk
from ...core.errors import WrongUse
from ...core.format import find_format
from .files import check_store_name
from .store import VersionedKVStore


class StoresWriter(Closing):
    """Makes the changes that rows tell of, in the store that the column `store` names.

    A change keeps its time, unless an earlier row of its store has a later one: times never go back. Without a time it
    is made now.
    """

    def __init__(self, directory: Path | str, default: str, *, disk: Disk = REAL_DISK) -> None:
        """Rows without a store go to `default`, which is there in any case."""
        self._directory = Path(directory)
        self._default = default
        self._disk = disk
        self._stores: dict[str, VersionedKVStore] = {}
        self._now = 0

    def append_batch(self, batch: Any) -> int:
        """Make the changes of an Arrow record batch; how many those were. See `columns.from_arrow`."""
        columns = find_format("versioned").room("columns")
        for name, rows in columns.by_store(batch, self._default):
            entries = list(columns.from_arrow(rows))
            store = self._store(name, entries[0].t if entries else 0)
            for entry in entries:
                self._now = entry.t or time.time_ns()
                if entry.o is None:
                    store.remove(entry.k)
                else:
                    store.insert(entry.k, entry.o)
        return int(batch.num_rows)

    def _store(self, name: str, first: int) -> VersionedKVStore:
        found = self._stores.get(name)
        if found is None:
            if len(self._stores) > 500:
                raise WrongUse(f"{self._directory}: more than 500 stores cannot be written at once")
            self._now = first or time.time_ns()  # so that the journal is initialized when its first change is made
            found = self._stores[name] = VersionedKVStore.open(
                self._directory, check_store_name(name), clock=self._tell, disk=self._disk
            )
        return found

    def _tell(self) -> int:
        return self._now

    def close(self) -> None:
        """Close all stores."""
        if not self._stores:
            self._store(self._default, 0)
        with contextlib.ExitStack() as stack:
            for store in self._stores.values():
                stack.callback(store.close)
