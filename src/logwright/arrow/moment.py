"""The moment that a query shows: each journal as it is when it is first read, under all of its names.

A queue may be named alone, and be among all queues of a directory: `queues/jobs` and `queues`. Both end at the same
record, whatever is appended meanwhile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

from ..core.bytes.outcome import Damage
from ..core.format import Format, find_format
from ..errors import Closed
from ..location import is_local
from .discovery import Journal, open_journal

_Place: TypeAlias = tuple[str, str, str]
"""What identifies a part of a journal: its format, the directory that it is in, and its name there."""
_ALL: Final = ""
"""The name in the place of a journal as a whole."""


@dataclass(slots=True)
class Opened:
    """A journal with its reader. `stops` are the numbers that the next records of its parts will get.

    `missing` is set if all of its files are missing.
    """

    journal: Journal
    format: Format
    reader: Any
    stops: dict[str, int]
    missing: Damage | None = None


class Moment:
    """The journals that were read, with the ends that every scan stops at."""

    def __init__(self) -> None:
        self._stops: dict[_Place, int] = {}
        self._wholes: dict[_Place, set[str]] = {}
        """The parts of journals that have several."""
        self.is_over = False
        """Whether scans are to end, because the query was interrupted."""

    @cached_property
    def now(self) -> int:
        """The time of tables that depend on it."""
        return time.time_ns()

    def check(self) -> None:
        """Raise `Closed` if the query was interrupted."""
        if self.is_over:
            raise Closed("the query was interrupted")

    def open(self, journal: Journal) -> Opened:
        """Open a journal as it was at this moment."""
        format, reader = find_format(journal.format), open_journal(journal)
        extent = format.splits.extent(reader)
        found = {}
        for part, place in _places(reader, extent):
            found[part] = self._stops.setdefault(place, extent[part][1])
        if reader.has_parts:
            known = self._wholes.setdefault((reader.format, _real(reader, reader.path), _ALL), set(found))
            found = {part: stop for part, stop in found.items() if part in known}
        return Opened(journal, format, reader, found)


def _places(reader: Any, parts: Any) -> Iterator[tuple[str, _Place]]:
    path = reader.path
    for part in parts:
        if reader.has_parts:
            yield part, (reader.format, _real(reader, path), part)
        elif reader.is_single_file:
            yield part, (reader.format, _real(reader, path), _ALL)
        else:
            yield part, (reader.format, _real(reader, path.parent), part or path.name)


def _real(reader: Any, path: Path) -> str:
    """A path under its own name, if links lead to it."""
    return os.path.realpath(path) if is_local(reader.disk) else str(path)
