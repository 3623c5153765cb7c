"""The lists of files and consumers of journals, which the driver makes, as small tables.

One pass over the directories of all journals; no records are read. A journal that cannot be listed is left out and
named in `problems`; the run reports it and continues.

For incremental runs `tails_of` reports the bytes after the last complete record of each journal. These bytes are in no
table, because the record may be completed later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ..core.format import find_format
from ..core.io.file_names import as_text, printed
from ..core.read.splits import ConsumerEntry, FileEntry, Inventory, Split
from ..errors import LogwrightError
from ..spark.reader import Journal, file_of, open_journal
from .tables import FILES, OFFSETS

_MOST_BIGINT = (1 << 63) - 1


@dataclass(slots=True)
class Listing:
    """Rows in the columns of `tables.FILES` and `tables.OFFSETS`, and the errors of journals that could not be
    listed.
    """

    files: list[dict[str, Any]] = field(default_factory=list)
    offsets: list[dict[str, Any]] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)

    def file_table(self) -> pa.Table:
        return pa.Table.from_pylist(self.files, schema=FILES)

    def offset_table(self) -> pa.Table:
        return pa.Table.from_pylist(self.offsets, schema=OFFSETS)


def list_journals(journals: Iterable[Journal]) -> Listing:
    """List the files and consumers of journals, in the order of the journals."""
    found = Listing()
    for journal in journals:
        try:
            inventory: Inventory = find_format(journal.format).splits.inventory(open_journal(journal))
        except (LogwrightError, OSError) as error:
            found.problems[journal.name] = str(error)
            continue
        found.files += [_file_row(journal, entry) for entry in inventory.files]
        found.offsets += [_offset_row(journal, entry) for entry in inventory.consumers]
    return found


def tails_of(journals: Iterable[Journal]) -> list[str]:
    """A sentence for each part of a journal that ends with an incomplete record."""
    found: list[str] = []
    for journal in journals:
        with contextlib.suppress(LogwrightError, OSError):  # unreadable journals are reported elsewhere
            splits = find_format(journal.format).splits
            reader = open_journal(journal)
            extent = splits.extent(reader)
            ends = {part: following for part, (_, following) in extent.items()}
            unread = [split for split in splits.plan(reader, start=ends, resumed=True) if split.bytes or split.after]
            if unread and splits.extent(reader) == extent:  # otherwise it has grown in the meantime
                found += _tails(journal, unread)
    return found


def _tails(journal: Journal, splits: Iterable[Split]) -> Iterator[str]:
    for split in splits:
        torn = split.after
        start, end = split.position, split.position + split.bytes
        file, start, end = (torn.file, torn.start, torn.end) if torn is not None else (split.file, start, end)
        if end > start:
            why = "a record that is still being written, or was cut short" if torn is None else torn.reason
            place = f"{journal.name}: {printed(file_of(journal.format, split.part, file))} @ {start}"
            size = "1 byte at the end is" if end - start == 1 else f"{end - start:,} bytes at the end are"
            yield f"{place}: {size} not a complete record, and in no table ({as_text(why)})"


def _file_row(journal: Journal, entry: FileEntry) -> dict[str, Any]:
    return {
        "format": journal.format,
        "journal": journal.name,
        "part": printed(entry.part),
        "file": printed(entry.file),
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
        "part": printed(entry.part),
        "consumer": printed(entry.consumer),
        "offset": _bigint(entry.offset),
        "first": _bigint(entry.first),
        "next": _bigint(entry.next),
        "problem": None if problem is None else as_text(problem),
    }


def _bigint(number: int | None) -> int | None:
    """A number, or None if it does not fit a BIGINT."""
    return number if number is not None and number <= _MOST_BIGINT else None
