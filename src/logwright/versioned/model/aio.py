"""AsyncVersionedKVStore: a store for the tasks of an event loop. What its calls mean is said in `store.py`.

    async with AsyncVersionedKVStore.open("state", "settings", sync="always") as store:
        await store.insert("limits", {"per_hour": 100})
        await store.get("limits")

`store = await AsyncVersionedKVStore.open(…)` does the same, to be closed by `await store.close()`.

With `sync="always"` all tasks that change something at the same time share one sync, which is done in a thread while
the loop continues. So are a rotation and whatever else takes its time. A change that is cancelled while its sync runs
is done all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from ...core.io.disk import REAL_DISK, Disk
from ...core.io.durability import ALWAYS, AsyncGroupCommit, SyncLike, parse_sync
from ...core.write.aio import AsyncOpening, opened, to_the_end
from ...errors import Closed
from ..bytes.records import Entry
from .recovery import RecoveredState
from .retention import KEEP_ALL, Retention
from .store import VersionedKVStore


class _Slow(NamedTuple):
    """A change that would hold up the loop."""

    key: str
    tail: bytes
    value: Any


class _LoopStore(VersionedKVStore):
    """A store that leaves its syncs to the loop, and hands slow changes back."""

    def _change(self, key: str, tail: bytes, value: Any) -> Any:
        return _Slow(key, tail, value)

    def leave_syncs(self) -> None:
        """Wait for no sync: the loop does."""
        with self._writing:
            self.always = False
            self._give_way()

    def change_slowly(self, slow: _Slow) -> int | None:
        """Do what was handed back; in a thread."""
        return super()._change(*slow)


class AsyncVersionedKVStore(AsyncOpening):
    """The store `name` in a directory, opened by `async with` or `await`. The options are those of the other one."""

    def __init__(
        self,
        directory: Path | str,
        name: str,
        capacity: int = 1 << 20,
        high_water_mark: float = 0.8,
        *,
        max_capacity: int | None = None,
        sync: SyncLike = "none",
        retention: Retention = KEEP_ALL,
        background: bool = True,
        clock: Callable[[], int] | None = None,
        disk: Disk = REAL_DISK,
    ) -> None:
        self.policy = parse_sync(sync)
        self.name = name
        self._open_store = partial(
            _LoopStore,
            directory,
            name,
            capacity,
            high_water_mark,
            max_capacity=max_capacity,
            sync=sync,
            retention=retention,
            background=background,
            clock=clock,
            disk=disk,
        )
        self._store: _LoopStore | None = None
        self._group: AsyncGroupCommit | None = None

    @property
    def store(self) -> VersionedKVStore:
        """The store beneath. `Closed` unless this one is open."""
        return self._opened()

    def _opened(self) -> _LoopStore:
        if self._store is None:
            raise Closed(f"{self.name}: this store is not open")
        return self._store

    # --- changes ----------------------------------------------------------------------------------------------------

    async def insert(self, key: str, value: Any) -> int:
        """Let a key have a value; see `VersionedKVStore.insert`."""
        store = self._opened()
        t: Any = store.insert(key, value)
        if type(t) is not int:
            t = await to_the_end(asyncio.to_thread(store.change_slowly, t))
        if self._group is not None:
            await self._group.wait()
        return int(t)

    async def remove(self, key: str) -> int | None:
        """Remove a key; see `VersionedKVStore.remove`."""
        store = self._opened()
        t: Any = store.remove(key)
        if type(t) is _Slow:
            t = await to_the_end(asyncio.to_thread(store.change_slowly, t))
        if self._group is not None and t is not None:
            await self._group.wait()
        return None if t is None else int(t)

    # --- reading, from memory -----------------------------------------------------------------------------------------

    async def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default. It is the store's own: copy it before you change it."""
        return self._opened().get(key, default)

    async def get_with_timestamp(self, key: str) -> tuple[Any, int] | None:
        """The value of a key and when it was written; None when there is no such key."""
        return self._opened().get_with_timestamp(key)

    def __contains__(self, key: object) -> bool:
        return key in self._opened()

    def __len__(self) -> int:
        return len(self._opened())

    def __bool__(self) -> bool:
        """A store is a store, even when it is empty."""
        return True

    def __getitem__(self, key: str) -> Any:
        return self._opened()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> list[str]:
        """All keys, as they are now."""
        return self._opened().keys()

    def values(self) -> list[Any]:
        """All values, as they are now."""
        return self._opened().values()

    def items(self) -> list[tuple[str, Any]]:
        """All keys and values, as they are now."""
        return self._opened().items()

    # --- the past, from the files -------------------------------------------------------------------------------------

    async def at(self, time: int | datetime) -> RecoveredState:
        """The state at a time; see `VersionedKVStore.at`."""
        return await asyncio.to_thread(self._opened().at, time)

    async def history(self, key: str) -> list[Entry]:
        """Every change of a key that is kept; see `VersionedKVStore.history`."""
        return await asyncio.to_thread(self._opened().history, key)

    # --- durability, and the end --------------------------------------------------------------------------------------

    async def rotate(self) -> int:
        """Let a new journal begin, and make the archive of this one; see `VersionedKVStore.rotate`."""
        return await to_the_end(asyncio.to_thread(self._opened().rotate))

    async def sync(self) -> None:
        """Make all changes so far durable."""
        await asyncio.to_thread(self._opened().sync)

    async def earliest(self) -> int:
        """How far back the state can be recovered."""
        return await asyncio.to_thread(self._opened().earliest)

    async def close(self) -> None:
        """Sync, and let others open the store. A second call does nothing."""
        store, self._store = self._store, None
        if store is not None:
            await to_the_end(self._close(store))

    async def _close(self, store: _LoopStore) -> None:
        group, self._group = self._group, None
        try:
            if group is not None:
                await group.close()
        finally:
            await asyncio.to_thread(store.close)

    async def __aenter__(self) -> Self:
        if self._store is None:
            self._store = await opened(self._open_store)
            self._store.leave_syncs()
            if self.policy == ALWAYS:
                self._group = AsyncGroupCommit(self._store.sync)
        return self
