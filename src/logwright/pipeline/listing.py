"""The lists of files and consumers of journals, which the driver makes, as small tables.

One pass over the directories of all journals; no records are read. A journal that cannot be listed is left out and
named in `problems`; the run reports it and continues.

For incremental runs `tails_of` reports the bytes after the last complete record of each journal. These bytes are in no
table, because the record may be completed later.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from ..arrow.discovery import Journal
from ..arrow.rows import file_of
from ..core.format import find_format
from ..core.io.file_names import as_text, printed
from ..core.read.splits import ConsumerEntry, FileEntry, Inventory, Split
from ..errors import LogwrightError
from .tables import CONSUMERS, FILES

_MOST_BIGINT = (1 << 63) - 1


@dataclass(slots=True)
class Listing:
    """Rows in the columns of `tables.FILES` and `tables.CONSUMERS`, and the errors of journals that could not be
    listed.
    """

    files: list[dict[str, Any]] = field(default_factory=list)
    consumers: list[dict[str, Any]] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)

    def tables(self) -> dict[str, pa.RecordBatch]:
        """The rows by the name of their table."""
        found = {"consumers": (self.consumers, CONSUMERS), "files": (self.files, FILES)}
        return {name: pa.RecordBatch.from_pylist(rows, schema) for name, (rows, schema) in found.items()}

    def digests(self) -> dict[str, str]:
        """What changes with the rows of each table, whatever their order."""
        return {name: _digest(rows) for name, rows in (("consumers", self.consumers), ("files", self.files))}


def _digest(rows: list[dict[str, Any]]) -> str:
    return hashlib.sha256("\n".join(sorted(json.dumps(row, sort_keys=True) for row in rows)).encode()).hexdigest()


Extents: TypeAlias = Mapping[str, Mapping[str, tuple[int, int]]]
"""The first record number and the next one of the parts of journals, as they were found."""


def list_journals(
    opened: Iterable[tuple[Journal, Any]],
    parts: Mapping[str, Collection[str]] | None = None,
    extents: Extents | None = None,
) -> Listing:
    """List the files and consumers of journals, each given with its reader, in their order.

    With `parts` those of these parts of each journal only. Extents that are known are not looked up.
    """
    found = Listing()
    for journal, reader in opened:
        named = None if parts is None else parts.get(journal.name)
        try:
            inventory: Inventory = find_format(journal.format).splits.inventory(
                reader, named, None if extents is None else extents.get(journal.name)
            )
        except (LogwrightError, OSError) as error:
            found.problems[journal.name] = str(error)
            continue
        found.files += [_file_row(journal, entry) for entry in inventory.files]
        found.consumers += [_consumer_row(journal, entry) for entry in inventory.consumers]
    return found


def tails_of(
    opened: Iterable[tuple[Journal, Any]],
    parts: Mapping[str, Collection[str]] | None = None,
    extents: Extents | None = None,
) -> dict[tuple[str, str], list[str]]:
    """A sentence for each part of a journal that ends with an incomplete record, by journal and part."""
    found: dict[tuple[str, str], list[str]] = {}
    for journal, reader in opened:
        named = None if parts is None else parts.get(journal.name)
        with contextlib.suppress(LogwrightError, OSError):  # unreadable journals are reported elsewhere
            splits = find_format(journal.format).splits
            extent = splits.extent(reader, named) if extents is None else extents.get(journal.name, {})
            ends = {part: following for part, (_, following) in extent.items()}
            unread = [split for split in splits.plan(reader, start=ends, resumed=True) if split.bytes or split.after]
            if unread and splits.extent(reader, named) == extent:  # otherwise it has grown in the meantime
                for split in unread:
                    for sentence in _tails(journal, [split]):
                        found.setdefault((journal.name, split.part), []).append(sentence)
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


def _consumer_row(journal: Journal, entry: ConsumerEntry) -> dict[str, Any]:
    problem = entry.problem
    if entry.offset is not None and entry.offset > _MOST_BIGINT:
        problem = f"the offset {entry.offset} does not fit a BIGINT"
    offset, first, following = _bigint(entry.offset), _bigint(entry.first), _bigint(entry.next)
    return {
        "format": journal.format,
        "journal": journal.name,
        "shard": printed(entry.part) or None,
        "consumer": printed(entry.consumer),
        "offset": offset,
        "first": first,
        "next": following,
        "lag": None if offset is None or following is None else max(0, following - offset),
        "missed": None if offset is None or first is None else max(0, first - offset),
        "status": "unreadable" if problem is not None else _status(offset, first, following),
        "problem": None if problem is None else as_text(problem),
    }


def _status(offset: int | None, first: int | None, following: int | None) -> str:
    if offset is None:
        return "new"
    if following is not None and offset > following:
        return "ahead"
    if first is not None and offset < first:
        return "overtaken"
    return "behind" if following is not None and offset < following else "current"


def _bigint(number: int | None) -> int | None:
    """A number, or None if it does not fit a BIGINT."""
    return number if number is not None and number <= _MOST_BIGINT else None
