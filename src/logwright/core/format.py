"""Format: a format's name, traits and rooms, and how to tell from names and bytes which format a path holds.

A format registers one `Format` here, by its name and package only: nothing of it is imported before it is used. Its
package has the same rooms as every other (`layout records codec replay journal columns`), reached by `room(name)`.

What the rooms of a format offer to the rest of the house, the command line and Spark:

    journal.looks_like(disk, path)   -> Evidence | None    does this path hold such a journal?
    journal.open_reader(path, ...)   -> Reader              read-only, without the writer's lock
    journal.follow(path, ends, ...)  -> something with `located`, of formats with the trait `follow`
    journal.names_journal(disk, path) -> whether a path without a file names a journal of which other files are there;
                                        only formats that have such journals have this
    journal.journal_of(name)         -> of a flat format the journal that a file of this name belongs to
    repair.plan(path), …             see core/repair.py
    splits.plan(reader, ...), …      see core/split.py
    inventory.take(reader)           -> Inventory           see core/inventory.py
    restore.FileWriter(...), …       see core/restore.py
    staging.Target(...), …           see core/manifest.py, and spark/sink.py
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Protocol, Self

from .disk import REAL_DISK, Disk
from .errors import NotFound, UnknownFormat
from .losses import Loss
from .outcome import Damage, Mode, Span
from .report import Progress, Report, Summary


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a path looks like a format. `score`: 1 the name alone, 2 the bytes as well, 3 names and bytes of several."""

    score: int
    reason: str


@dataclass(frozen=True, slots=True)
class Located:
    """A record and where its bytes are. `file` is relative to the journal that was opened."""

    record: Any
    file: str
    span: Span


class Reader(Protocol):
    """A journal opened for reading: the verbs that every format has. It changes nothing and needs no lock."""

    path: Path

    @property
    def torn_tail(self) -> Damage | None:
        """The torn tail that the last pass met, if it met one."""

    def scan(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        mode: Mode = "failfast",
        progress: Progress | None = None,
    ) -> Iterator[Located | Damage]:
        """Every record in journal order with its place; `start` and `stop` are record numbers of the format."""

    def last(self, count: int) -> list[Located]:
        """The last records, oldest first, without reading the others where the format allows it."""

    def count(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        progress: Progress | None = None,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> int:
        """How many whole records there are in a range. What is damaged is not counted; `on_damage` gets to know it."""

    def summary(self) -> Summary:
        """What this is, quickly."""

    def verify(self, *, progress: Progress | None = None) -> Report:
        """Check everything."""

    def losses(self) -> list[Loss]:
        """What the journal is known to have lost; see `core/losses.py`."""

    def state(self, at: int | None = None) -> Any:
        """What the journal stands for, now or at a point; as JSON."""

    def as_json(self, located: Located) -> dict[str, Any]:
        """A record as `dump --json` prints it."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Format:
    """What the house knows of a format before any of its code is loaded.

    Traits that others ask for: `consumers` (their offsets are kept), `flat` (a journal is files in a directory: what is
    in directories in there is no part of it), `follow` (it can be followed), `park` (its items can be parked, and put
    back), `prune_numbers` (the column `sequence` on Spark is the record number that splits are planned by),
    `prune_times` (splits are planned by time as well), `states` (the state at a time is a table, by its room `states`).
    """

    name: str
    title: str
    package: str
    traits: frozenset[str] = frozenset()

    def room(self, name: str) -> ModuleType:
        """A module of this format, imported on first use."""
        return importlib.import_module(f"{self.package}.{name}")

    def looks_like(self, disk: Disk, path: Path) -> Evidence | None:
        evidence: Evidence | None = self.room("journal").looks_like(disk, path)
        return evidence

    def names_journal(self, disk: Disk, path: Path) -> bool:
        """Whether there is a file at a path, or at least a journal of this name without that file."""
        if disk.exists(path):
            return True
        names: Callable[[Disk, Path], bool] | None = getattr(self.room("journal"), "names_journal", None)
        return names is not None and names(disk, path)

    def open(self, path: Path, *, disk: Disk = REAL_DISK) -> Reader:
        reader: Reader = self.room("journal").open_reader(path, disk=disk)
        return reader


FORMATS: dict[str, Format] = {
    format.name: format
    for format in (
        Format(
            "sej",
            "segmented message journal",
            "logwright.formats.sej",
            frozenset({"consumers", "follow", "prune_numbers", "prune_times"}),
        ),
        Format(
            "kestrel",
            "queue journal of Kestrel",
            "logwright.formats.kestrel",
            frozenset({"flat", "follow", "park"}),
        ),
        Format(
            "versioned",
            "key-value journal with its whole history",
            "logwright.formats.versioned",
            frozenset({"flat", "follow", "prune_times", "states"}),
        ),
        Format(
            "appendfile",
            "rotating journal with checkpoints",
            "logwright.formats.appendfile",
            frozenset({"follow"}),
        ),
        Format(
            "yeltsin",
            "page-transaction journal of YeltsinDB",
            "logwright.formats.yeltsin",
            frozenset({"flat", "follow"}),
        ),
    )
}


def find_format(name: str) -> Format:
    """The format of this name."""
    try:
        return FORMATS[name]
    except KeyError:
        raise UnknownFormat(f"there is no format {name!r}; known are {', '.join(FORMATS)}") from None


def is_there(disk: Disk, path: Path) -> bool:
    """Whether something is at a path, or at least a journal of this name whose own file is missing."""
    return any(format.names_journal(disk, path) for format in FORMATS.values())


def detect(path: Path | str, *, disk: Disk = REAL_DISK) -> Format:
    """The format of what is at a path, by names and bytes. `UnknownFormat` when none fits, or two fit as well."""
    path = Path(path)
    named = [format for format in FORMATS.values() if format.names_journal(disk, path)]
    if not named:
        raise NotFound(f"{path}: no such file or directory")
    found = []
    for format in named:
        evidence = format.looks_like(disk, path)
        if evidence is not None:
            found.append((evidence, format))
    if not found and disk.is_link(path):
        raise UnknownFormat(f"{path} is a link, and links are not followed: say what it leads to")
    if not found:
        hint = "if it is a damaged one, name its format with --format: verify and repair may still read it"
        raise UnknownFormat(f"{path} is not a journal of any known format ({', '.join(FORMATS)}); {hint}")
    best = max(evidence.score for evidence, _ in found)
    winners = [(evidence, format) for evidence, format in found if evidence.score == best]
    if len(winners) > 1:
        reasons = "; ".join(f"{format.name}: {evidence.reason}" for evidence, format in winners)
        raise UnknownFormat(f"{path} could be several formats, say which one it is: {reasons}")
    return winners[0][1]


def open_journal(path: Path | str, format: str | None = None, *, disk: Disk = REAL_DISK) -> Reader:
    """Open a journal of any format for reading. Detects the format when it is not given."""
    path = Path(path)
    chosen = detect(path, disk=disk) if format is None else find_format(format)
    if not chosen.names_journal(disk, path):
        raise NotFound(f"{path}: no such file or directory")
    return chosen.open(path, disk=disk)
