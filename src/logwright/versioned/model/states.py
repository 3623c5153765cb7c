"""The states of many stores at one time: choosing one file of each store by its name, and reading it.

Planning lists every directory once, and opens no file, unless a rotation has left an `.old` file. Reading gets the
chosen file and the one before it, which shows whether the time is in a gap; if files were renamed meanwhile, the
directory is listed again. So planning costs one listing for each directory and one file size for each store, and
reading opens one file for each store, however many archives there are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ...core.bytes.outcome import Damage, Mode
from ...core.io.disk import Disk
from ...errors import HistoryUnavailable, NotFound
from ..bytes import kernel
from ..files.files import MOST_TAKEN_NS, JournalFile, Kind, active_name, arrange, list_files, parse_name
from ..files.reader import Reader
from ..files.surroundings import counting_files
from ..files.timeline import Timeline

UNAVAILABLE: Final = "history_unavailable"
"""The kind of damage of a store whose history does not reach back to the requested time."""


@dataclass(frozen=True, slots=True)
class StatePart:
    """A store, and the file to read for its state: the last of `files`, unless names are close to each other.

    `bytes` is the size of the last one. `alone` says that a single file was requested by its name.
    """

    store: str
    files: tuple[JournalFile, ...]
    bytes: int = 0
    alone: bool = False

    @property
    def name(self) -> str:
        return self.store


@dataclass(frozen=True, slots=True)
class StoreState:
    """The last entry of each key at a time, the file that it was read from, and the damage in it."""

    latest: kernel.Latest | None
    source: JournalFile
    damages: tuple[Damage, ...] = ()


# --- planning ---------------------------------------------------------------------------------------------------------


def plan(disk: Disk, path: Path, at: int) -> Iterator[StatePart]:
    """The file of each store at a path that has its state at a time: a directory, one store, or one file."""
    if disk.is_directory(path):
        for store, names in _by_store(disk.list_directory(path)).items():
            yield from _part(disk, StatePart(store, tuple(counting_files(disk, arrange(path, store, names)))), at)
        return
    parsed = parse_name(path.name)
    if parsed is not None and parsed[1] is Kind.ACTIVE:
        files = counting_files(disk, list_files(disk, path.parent, parsed[0]))
        yield from _part(disk, StatePart(parsed[0], tuple(files)), at)
    else:
        reader = Reader(path, disk=disk)
        yield from _part(disk, StatePart(reader.store, tuple(reader.files()), alone=True), at)


def _part(disk: Disk, store: StatePart, at: int) -> Iterator[StatePart]:
    """The part of a store with these files; none if there are no files."""
    chosen = _chosen(store.files, at)
    if not chosen:
        return
    size = 0
    with suppress(NotFound):  # it was renamed or removed meanwhile: the reader will find out
        size = disk.file_size(chosen[-1].path)
    yield replace(store, files=chosen, bytes=size)


def _by_store(names: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        parsed = parse_name(name)
        if parsed is not None and parsed[1] not in (Kind.TEMPORARY, Kind.TEMPORARY_ARCHIVE):
            found.setdefault(parsed[0], []).append(name)
    return dict(sorted(found.items()))


def _chosen(files: tuple[JournalFile, ...], at: int) -> tuple[JournalFile, ...]:
    """The file that covers a time by its name, after the preceding file.

    If the time is so close to the end of that one that the name of the archive may be too late, the following files are
    included: `Timeline` finds out which one it is.
    """
    ends = [file.timestamp for file in files if file.timestamp is not None]
    first = min(bisect_right(ends, at), len(files) - 1)
    last = min(bisect_right(ends, at + MOST_TAKEN_NS), len(files) - 1)
    return files[max(0, first - 1) : last + 1]


# --- reading ----------------------------------------------------------------------------------------------------------


def read(disk: Disk, part: StatePart, at: int, mode: Mode) -> StoreState:
    """The state of one store at a time.

    A history that does not reach back is an error in `failfast`, a `Damage` without bytes in `permissive`, and ignored
    in `dropmalformed`.
    """
    timeline = _PlannedTimeline(disk, part, mode)
    try:
        latest = timeline.latest(at)
    except HistoryUnavailable as error:
        if mode == "failfast":
            raise
        damage = Damage(part.files[-1].name, 0, 0, str(error), UNAVAILABLE)
        return StoreState(None, part.files[-1], _reported(mode, damage))
    return StoreState(latest, timeline.source, _reported(mode, *timeline.damages))


def _reported(mode: Mode, *damages: Damage) -> tuple[Damage, ...]:
    return damages if mode == "permissive" else ()


class _PlannedTimeline(Timeline):
    """The journals of a store as planned; if these are gone, as they are now. `source` is the file that was read."""

    def __init__(self, disk: Disk, part: StatePart, mode: Mode) -> None:
        self.source = part.files[-1]
        self._planned = part
        self._is_planned = True
        where = self.source.path if part.alone else self.source.path.parent / active_name(part.store)
        super().__init__(disk, where, self._list, is_store=not part.alone, mode=mode)

    def _list(self) -> list[JournalFile]:
        if self._is_planned or self._planned.alone:
            self._is_planned = False
            return list(self._planned.files)
        return counting_files(self.disk, list_files(self.disk, self.where.parent, self._planned.store))

    def _fold(self, source: JournalFile, at: int | None) -> kernel.Latest:
        self.source = source
        return super()._fold(source, at)
