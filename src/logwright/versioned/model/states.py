"""The states of many stores at one time: which file of each is read for it, by names alone, and what is in that.

Who plans lists every directory once, and opens nothing, unless a rotation has left an `.old` file. Who reads gets the
file that was chosen, with the one before it, which says whether the time is in a gap; should files have got other
names meanwhile, the directory is listed again. So planning costs a listing for a directory and a look at the size of a
file for a store, and reading opens one file for a store, however many archives there are.
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
"""The kind of damage of a store whose history does not reach back to the time that is asked for."""


@dataclass(frozen=True, slots=True)
class StatePart:
    """A store, and the file to read for its state: the last of these, but for names that are close to each other.

    `bytes` is how large the last one is.
    `alone` says that it is one file that was asked for by its name, whatever is beside it.
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
    """The last entry of each key at a time, the file that it was read from, and what was wrong in that."""

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
    """What is left to read of all files of a store; nothing where it has none."""
    chosen = _chosen(store.files, at)
    if not chosen:
        return
    size = 0
    with suppress(NotFound):  # it got another name while we looked, or is gone: who reads it will see
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
    """The file that a time falls into by names, behind the one before it.

    Where it is so close to the end of that one that the name of the archive may be too late, those that follow come
    with them: `Timeline` finds out which one it is.
    """
    ends = [file.timestamp for file in files if file.timestamp is not None]
    first = min(bisect_right(ends, at), len(files) - 1)
    last = min(bisect_right(ends, at + MOST_TAKEN_NS), len(files) - 1)
    return files[max(0, first - 1) : last + 1]


# --- reading ----------------------------------------------------------------------------------------------------------


def read(disk: Disk, part: StatePart, at: int, mode: Mode) -> StoreState:
    """The state of one store at a time.

    A history that does not reach back is an error in `failfast`, a damage without bytes in `permissive`, and nothing in
    `dropmalformed`.
    """
    timeline = _PlannedTimeline(disk, part, mode)
    try:
        latest = timeline.latest(at)
    except HistoryUnavailable as error:
        if mode == "failfast":
            raise
        return StoreState(None, part.files[-1], _told(mode, Damage(part.files[-1].name, 0, 0, str(error), UNAVAILABLE)))
    return StoreState(latest, timeline.source, _told(mode, *timeline.damages))


def _told(mode: Mode, *damages: Damage) -> tuple[Damage, ...]:
    return damages if mode == "permissive" else ()


class _PlannedTimeline(Timeline):
    """The journals of a store as they were planned; should these not answer, as they are now. `source` is what did."""

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
