"""Counts of the tables that show what records describe, as rows for the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Counts: TypeAlias = Mapping[tuple[str, ...], list[int]]
"""Numbers of rows of a table by journal and other columns, each followed by sums: see `COUNTED` in `tables.py`."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """The number of items of a queue in a state."""

    journal: str
    queue: str
    state: str
    items: int


@dataclass(frozen=True, slots=True)
class StoreRow:
    """The numbers of changes, deletions and keys of a store; None if no table has them."""

    journal: str
    store: str
    changes: int | None = None
    deletions: int | None = None
    keys: int | None = None


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """The numbers of segments of a journal with checkpoints: all, complete and checked; and of their records and
    bytes.
    """

    journal: str
    segments: int
    complete: int
    checked: int
    records: int
    bytes: int


@dataclass(slots=True)
class PageRow:
    """Outcomes of the transactions of a file of pages, and counts of its pages; None if no table has them."""

    journal: str
    file: str
    outcomes: dict[str, int] = field(default_factory=dict)
    bytes: int | None = None
    pages: int | None = None
    versions: int | None = None
    removals: int | None = None


def queue_rows(items: Counts) -> list[QueueRow]:
    """The number of items in `queue_items` of each queue and state."""
    return [QueueRow(journal, queue, state, count) for (journal, queue, state), (count,) in items.items()]


def store_rows(history: Counts | None, state: Counts | None) -> list[StoreRow]:
    """The counts of each store in `kv_history` and `kv_state`, either of which may be missing."""
    found = []
    for place in sorted({*(history or ()), *(state or ())}):
        changes, deletions = (None, None) if history is None else history.get(place, [0, 0])
        (there,) = (None,) if state is None else state.get(place, [0])
        found.append(StoreRow(place[0], place[1], changes, deletions, there))
    return found


def segment_rows(segments: Counts) -> list[SegmentRow]:
    """The counts of each journal in `segments`."""
    return [SegmentRow(journal, *numbers) for (journal,), numbers in segments.items()]


def page_rows(transactions: Counts | None, versions: Counts | None) -> list[PageRow]:
    """The counts of each file in `transactions` and `page_versions`, either of which may be missing."""
    found: dict[tuple[str, ...], PageRow] = {}
    for (journal, file, outcome), (count, size) in (transactions or {}).items():
        row = found.setdefault((journal, file), PageRow(journal, file))
        row.outcomes[outcome] = count
        row.bytes = (row.bytes or 0) + size
    for (journal, file), (count, removed, pages) in (versions or {}).items():
        row = found.setdefault((journal, file), PageRow(journal, file))
        row.versions, row.removals, row.pages = count, removed, pages
    return list(found.values())
