"""AsyncVersionedKVStore: a store for the tasks of an event loop. See `store.py` for what its calls do.

    async with AsyncVersionedKVStore.open("state", "settings", sync="always") as store:
        await store.insert("limits", {"per_hour": 100})
        await store.get("limits")

`store = await AsyncVersionedKVStore.open(…)` does the same, to be closed by `await store.close()`.

With `sync="always"` all tasks that change something at the same time share one sync, which runs in a thread while the
loop continues. Rotations and other slow work also run in a thread. A change that is cancelled while its sync runs is
still made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, Unpack

from ...core.io.durability import parse_sync
from ...core.write.aio import AsyncWrapper, at_once, in_thread, to_the_end
from .store import StoreOptions, VersionedKVStore


class _Slow(NamedTuple):
    """A change that would block the loop."""

    key: str
    tail: bytes
    value: Any


class _LoopStore(VersionedKVStore):
    """A store that leaves its syncs to the loop, and returns slow changes instead of making them."""

    def _change(self, key: str, tail: bytes, value: Any) -> Any:
        return _Slow(key, tail, value)

    def leave_syncs(self) -> None:
        """Let changes return without a sync, which the loop waits for."""
        with self._writing:
            self.always = False
            self._update_attention()

    def change_slowly(self, slow: _Slow) -> int | None:
        """Make a slow change; to be called in a thread."""
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
        **options: Unpack[StoreOptions],
    ) -> None:
        self.name = name
        open_store = partial(_LoopStore, directory, name, capacity, high_water_mark, **options)
        super().__init__(name, parse_sync(options.get("sync", "none")), open_store)

    @property
    def store(self) -> VersionedKVStore:
        """The store beneath. `Closed` unless this one is open."""
        return self.inner

    # --- changes ----------------------------------------------------------------------------------------------------

    async def insert(self, key: str, value: Any) -> int:
        """Set the value of a key; see `VersionedKVStore.insert`."""
        store = self.inner
        t: Any = store.insert(key, value)
        if type(t) is not int:
            t = await to_the_end(asyncio.to_thread(store.change_slowly, t))
        if self._group is not None:  # avoids a call that would not wait
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
        """The value of a key, or the default. It belongs to the store: copy it before you change it."""
        return self.inner.get(key, default)

    async def get_with_timestamp(self, key: str) -> tuple[Any, int] | None:
        """The value of a key and when it was written; None when there is no such key."""
        return self.inner.get_with_timestamp(key)

    def __contains__(self, key: object) -> bool:
        return key in self.inner

    def __len__(self) -> int:
        return len(self.inner)

    def __bool__(self) -> bool:
        """True, also for an empty store."""
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
        """Begin a new journal, and archive this one; see `VersionedKVStore.rotate`."""
        return await to_the_end(asyncio.to_thread(self.inner.rotate))

    async def __aenter__(self) -> Self:
        is_new = self._inner is None
        await super().__aenter__()
        if is_new:
            self.inner.leave_syncs()
        return self
