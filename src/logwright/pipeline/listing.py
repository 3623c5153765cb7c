"""What the driver lists beside the records: the files of journals and their consumers, as small tables.

One pass over the directories of all journals; nothing of the records is read. A journal of which no list can be made is
left out and named in `problems`: the run tells of it, and goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ..core.errors import LogwrightError
from ..core.format import find_format
from ..core.inventory import ConsumerEntry, FileEntry, Inventory
from ..spark.reading import Journal, open_journal, readable
from .tables import FILES, OFFSETS

_MOST_BIGINT = (1 << 63) - 1


@dataclass(slots=True)
class Listing:
    """Rows in the columns of `tables.FILES` and `tables.OFFSETS`, and why a journal has none."""

    files: list[dict[str, Any]] = field(default_factory=list)
    offsets: list[dict[str, Any]] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)

    def file_table(self) -> pa.Table:
        return pa.Table.from_pylist(self.files, schema=FILES)

    def offset_table(self) -> pa.Table:
        return pa.Table.from_pylist(self.offsets, schema=OFFSETS)


def list_journals(journals: Iterable[Journal]) -> Listing:
    """Files and consumers of journals, as they are now, in the order of the journals."""
    found = Listing()
    for journal in journals:
        try:
            inventory: Inventory = find_format(journal.format).room("inventory").take(open_journal(journal))
        except (LogwrightError, OSError) as error:
            found.problems[journal.name] = str(error)
            continue
        found.files += [_file_row(journal, entry) for entry in inventory.files]
        found.offsets += [_offset_row(journal, entry) for entry in inventory.consumers]
    return found


def _file_row(journal: Journal, entry: FileEntry) -> dict[str, Any]:
    return {
        "format": journal.format,
        "journal": journal.name,
        "part": entry.part,
        "file": readable(entry.file),
        "bytes": entry.bytes,
        "first": _bigint(entry.first),
        "next": _bigint(entry.next),
    }


def _offset_row(journal: Journal, entry: ConsumerEntry) -> dict[str, Any]:
    problem = entry.problem
    if entry.offset is not None and entry.offset > _MOST_BIGINT:
        problem = f"the offset {entry.offset} does not fit a BIGINT"
    return {
        "format": journal.format,
        "journal": journal.name,
        "part": entry.part,
        "consumer": readable(entry.consumer),
        "offset": _bigint(entry.offset),
        "first": _bigint(entry.first),
        "next": _bigint(entry.next),
        "problem": None if problem is None else readable(problem),
    }


def _bigint(number: int | None) -> int | None:
    """A number as a table can hold it; null for one beyond, never another number."""
    return number if number is not None and number <= _MOST_BIGINT else None
