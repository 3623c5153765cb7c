"""VersionedRecovery: the state of a store at any time, from its files alone.

    recovery = VersionedRecovery.load("stores")            # a directory, a file, or a list of files
    recovery = await VersionedRecovery.load("stores")      # the same for asyncio: files are listed in a thread

    recovery.recover_at(1699564850000000000)["name"]       # the value of a key at a time
    recovery.recover_current().timestamps["name"]          # and the time of that value
    recovery.history("name"), recovery.diff(t1, t2), recovery.changes(t1, t2)

No store is opened and no lock is needed; a writer may be active. For one time, one journal is read, chosen by its name,
however many archives there are. Archives are decompressed as streams, and too large ones are refused. Times before the
first journal are `HistoryUnavailable`, with the earliest known time.

The same methods for asyncio, each in a thread: `recover_at_async`, `recover_current_async`, `history_async`,
`diff_async`, `changes_async`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from ...core.bytes.outcome import Damage, Mode
from ...core.io.disk import REAL_DISK, Disk
from ...errors import NotFound, UnknownFormat, WrongUse
from ..bytes.kernel import Latest
from ..bytes.records import Entry, Value
from ..files.archive_stream import DEFAULT_LIMITS, ArchiveLimits, is_compressed
from ..files.files import JournalFile, Kind, active_name, check_store_name, list_files, list_stores, parse_name
from ..files.surroundings import counting_files
from ..files.timeline import Timeline, check_time

Paths: TypeAlias = str | Path | Iterable[str | Path]


class RecoveredState(dict[str, Value]):
    """The value of each key at a time. `timestamps` has the time of the entry that set it, `at` the requested time."""

    def __init__(self, latest: Latest, at: int | None) -> None:
        super().__init__()
        self.timestamps: dict[str, int] = {}
        self.at = at
        latest.fill(self, self.timestamps)

    def with_timestamps(self) -> dict[str, tuple[Value, int]]:
        """Value and timestamp of each key."""
        return {key: (value, self.timestamps[key]) for key, value in self.items()}


class VersionedRecovery:
    """The journals of one store, for questions about its past; created by `load`."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    @classmethod
    def load(
        cls,
        paths: Paths,
        *,
        store: str | None = None,
        mode: Mode = "failfast",
        limits: ArchiveLimits = DEFAULT_LIMITS,
        disk: Disk = REAL_DISK,
    ) -> VersionedRecovery:
        """The journals in a directory, or these files. `store` selects one if a directory has several.

        Files may have any names; those that are not named like files of a store are sorted by their metadata.
        """
        timeline = _timeline_of(paths, store, mode, limits, disk)
        if not timeline.listed():
            raise NotFound(f"{timeline.where}: no journal of a store is here")
        return cls(timeline)

    def __await__(self) -> Generator[Any, None, VersionedRecovery]:
        """For `await VersionedRecovery.load(…)`: the files are listed in a thread."""
        yield from asyncio.to_thread(self._timeline.listed).__await__()
        return self

    # --- what was -----------------------------------------------------------------------------------------------------

    def recover_at(self, timestamp: int | datetime) -> RecoveredState:
        """The state at a time, in nanoseconds or as a datetime with a zone: after all changes that are not later."""
        timestamp = check_time(timestamp)
        return RecoveredState(self._timeline.latest(timestamp), timestamp)

    def recover_current(self) -> RecoveredState:
        """The state after all changes."""
        return RecoveredState(self._timeline.latest(), None)

    def to_arrow(self, timestamp: int | datetime | None = None) -> Any:
        """The state at a time, or now, as an Arrow table: `k`, `t`, `o` as JSON."""
        from ..tables.columns import state_table

        return state_table(self._timeline.latest(timestamp))

    def history(self, key: str) -> list[Entry]:
        """Every change of a key that is kept, oldest first; a deletion has the value None."""
        return self._timeline.history(key)

    def diff(self, start: int | datetime, stop: int | datetime) -> dict[str, dict[str, Any]]:
        """What changed between two times: `added`, `changed` (with `before` and `after`) and `removed`, by key."""
        return self._timeline.diff(start, stop)

    def changes(self, start: int | datetime, stop: int | datetime) -> Iterator[Entry]:
        """Every change after `start`, up to and with `stop`, in order."""
        return self._timeline.changes(start, stop)

    def earliest(self) -> int:
        """The earliest time whose state is known."""
        return self._timeline.earliest()

    def files(self) -> list[Path]:
        """The files of the journals, oldest first."""
        return [file.path for file in self._timeline.listed()]

    @property
    def damages(self) -> list[Damage]:
        """The damage that the last call skipped, including torn tails."""
        return self._timeline.damages

    # --- the same for asyncio -----------------------------------------------------------------------------------------

    async def recover_at_async(self, timestamp: int | datetime) -> RecoveredState:
        """See `recover_at`."""
        return await asyncio.to_thread(self.recover_at, timestamp)

    async def recover_current_async(self) -> RecoveredState:
        """See `recover_current`."""
        return await asyncio.to_thread(self.recover_current)

    async def history_async(self, key: str) -> list[Entry]:
        """See `history`."""
        return await asyncio.to_thread(self.history, key)

    async def diff_async(self, start: int | datetime, stop: int | datetime) -> dict[str, dict[str, Any]]:
        """See `diff`."""
        return await asyncio.to_thread(self.diff, start, stop)

    async def changes_async(self, start: int | datetime, stop: int | datetime) -> list[Entry]:
        """See `changes`; returns a list."""
        return await asyncio.to_thread(lambda: list(self.changes(start, stop)))


# --- which files ------------------------------------------------------------------------------------------------------


def _timeline_of(paths: Paths, store: str | None, mode: Mode, limits: ArchiveLimits, disk: Disk) -> Timeline:
    if store is not None:
        check_store_name(store)
    if isinstance(paths, str | os.PathLike):
        path = Path(paths)
        if disk.is_directory(path):
            return _of_directory(path, store, mode, limits, disk)
        parsed = parse_name(path.name)
        if parsed is not None and parsed[1] is Kind.ACTIVE and (store is None or store == parsed[0]):
            return _of_directory(path.parent, parsed[0], mode, limits, disk)
        paths = [path]
    try:
        found = [Path(path) for path in paths]
    except TypeError:
        raise WrongUse(f"{paths!r} is neither a path nor a list of paths") from None
    for path in found:
        if not disk.exists(path):
            raise NotFound(f"{path}: no such file or directory")
    where = found[0].parent if found else Path(".")
    arranged = arrange_files(found, disk, limits)
    return Timeline(disk, where, lambda: arranged, mode=mode, limits=limits)


def _of_directory(directory: Path, store: str | None, mode: Mode, limits: ArchiveLimits, disk: Disk) -> Timeline:
    if store is None:
        stores = list_stores(disk, directory)
        if not stores:
            raise NotFound(f"{directory}: no journal of a store is here")
        if len(stores) > 1:
            raise WrongUse(f"{directory} holds the stores {', '.join(stores)}: say which one is meant")
        store = stores[0]
    where = directory / active_name(store)
    return Timeline(
        disk,
        where,
        lambda: counting_files(disk, list_files(disk, directory, store)),
        is_store=True,
        mode=mode,
        limits=limits,
    )


def arrange_files(paths: list[Path], disk: Disk, limits: ArchiveLimits = DEFAULT_LIMITS) -> list[JournalFile]:
    """These files as the journals of one store, in the order in which they were initialized.

    If all files are named like those of a store, the names give that order; otherwise the files are opened.
    """
    by_name = _arranged_by_name(paths)
    if by_name is not None:
        return by_name
    heads = []
    for path in paths:
        parsed = parse_name(path.name)
        store, ended = (parsed[0], parsed[2]) if parsed is not None else (path.name, None)
        source = JournalFile(store, path.name, path, ended, 0, is_compressed(disk, path))
        metadata = Timeline(disk, path, list, limits=limits).metadata(source)
        if metadata is None:
            raise UnknownFormat(f"{path} does not begin like the journal of a store")
        heads.append((metadata.initialized, source))
    heads.sort(key=lambda head: (head[0], head[1].timestamp is None, head[1].timestamp or 0))
    found: list[JournalFile] = []
    before = 0
    for number, (_, source) in enumerate(heads):
        following = heads[number + 1][0] if number + 1 < len(heads) else None
        ended = source.timestamp if source.timestamp is not None or following is None else following
        found.append(JournalFile(source.store, source.name, source.path, ended, before, source.compressed))
        before = ended or before
    return found


def _arranged_by_name(paths: list[Path]) -> list[JournalFile] | None:
    """The archives of one store, then its active journal; None if the names do not show this."""
    named = [(parse_name(path.name), path) for path in paths]
    archives: dict[int, Path] = {}
    active: list[Path] = []
    for parsed, path in named:
        if parsed is None or parsed[0] != named[0][0][0]:  # type: ignore[index]  # the first one has been looked at
            return None
        if parsed[1] is Kind.ARCHIVE and parsed[2] is not None:
            archives[parsed[2]] = path
        elif parsed[1] is Kind.ACTIVE:
            active.append(path)
    if len(archives) + len(active) < len(paths) or len(active) > 1:
        return None
    found = []
    before = 0
    for timestamp, path in sorted(archives.items()):
        found.append(JournalFile(path.name, path.name, path, timestamp, before, compressed=True))
        before = timestamp
    return found + [JournalFile(path.name, path.name, path, None, before) for path in active]
