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
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from ...core.io.disk import REAL_DISK, Disk
from ...core.io.durability import SyncLike, parse_sync
from ...core.write.aio import AsyncWrapper, at_once, in_thread, to_the_end
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


class AsyncVersionedKVStore(AsyncWrapper[_LoopStore]):
    """The store `name` in a directory, opened by `async with` or `await`. It has the options of `VersionedKVStore`."""

    what = "store"

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
        self.name = name
        open_store = partial(
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
        super().__init__(name, parse_sync(sync), open_store)

    @property
    def store(self) -> VersionedKVStore:
        """The store beneath. `Closed` unless this one is open."""
        return self.inner

    # --- changes ----------------------------------------------------------------------------------------------------

    async def insert(self, key: str, value: Any) -> int:
        """Let a key have a value; see `VersionedKVStore.insert`."""
        store = self.inner
        t: Any = store.insert(key, value)
        if type(t) is not int:
            t = await to_the_end(asyncio.to_thread(store.change_slowly, t))
        if self._group is not None:  # a call that has nothing to wait for would cost time
            await self._commit()
        return int(t)

    async def remove(self, key: str) -> int | None:
        """Remove a key; see `VersionedKVStore.remove`."""
        store = self.inner
        t: Any = store.remove(key)
        if type(t) is _Slow:
            t = await to_the_end(asyncio.to_thread(store.change_slowly, t))
        if self._group is not None and t is not None:
            await self._commit()
        return None if t is None else int(t)

    # --- reading, from memory -----------------------------------------------------------------------------------------

    async def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default. It is the store's own: copy it before you change it."""
        return self.inner.get(key, default)

    async def get_with_timestamp(self, key: str) -> tuple[Any, int] | None:
        """The value of a key and when it was written; None when there is no such key."""
        return self.inner.get_with_timestamp(key)

    def __contains__(self, key: object) -> bool:
        return key in self.inner

    def __len__(self) -> int:
        return len(self.inner)

    def __bool__(self) -> bool:
        """A store is a store, even when it is empty."""
        return True

    def __getitem__(self, key: str) -> Any:
        return self.inner[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    keys = at_once(VersionedKVStore.keys)
    values = at_once(VersionedKVStore.values)
    items = at_once(VersionedKVStore.items)

    # --- the past, and durability -----------------------------------------------------------------------------------

    at = in_thread(VersionedKVStore.at)
    history = in_thread(VersionedKVStore.history)
    earliest = in_thread(VersionedKVStore.earliest)
    sync = in_thread(VersionedKVStore.sync)

    async def rotate(self) -> int:
        """Let a new journal begin, and make the archive of this one; see `VersionedKVStore.rotate`."""
        return await to_the_end(asyncio.to_thread(self.inner.rotate))

    async def __aenter__(self) -> Self:
        is_new = self._inner is None
        await super().__aenter__()
        if is_new:
            self.inner.leave_syncs()
        return self
