"""The chapters of the report about the contents of journals: queues, stores, segments and pages.

Each is a table of the largest entries, with a bar for the most important figure. A chapter without rows is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import plots, units
from .figures import Figures, QueueFigures
from .markup import DASH, NOTHING, Content, Markup, element, label, row, section, table
from .reducing import PageRow, SegmentRow, StoreRow

_Columns = Sequence[tuple[str, str]]


def queues(figures: Figures) -> Markup:
    if not figures.queues:
        return NOTHING
    columns = [("Queue", "name"), ("Journal", "name"), ("Waiting", "number"), ("Open", "number")]
    columns += [("Expired", "number"), ("Done", "number"), ("Not done", "wide")]
    highest = max(queue.waiting + queue.open + queue.expired for queue in figures.queues)
    rows = [_queue_row(columns, queue, highest) for queue in figures.queues]
    says = "The items of queues; those with most that are not done first."
    return _chapter("Queues", columns, rows, figures.queue_count, says, "items that are not done")


def _queue_row(columns: _Columns, queue: QueueFigures, highest: int) -> Markup:
    left = queue.waiting + queue.open + queue.expired
    return row(
        columns,
        label(queue.queue),
        label(queue.journal),
        units.whole(queue.waiting),
        units.whole(queue.open),
        _warned(queue.expired),
        units.whole(queue.done),
        plots.bar(left, highest, "c0", describe=f"{units.counted(left, 'item')} not done"),
    )


def expectations(figures: Figures) -> Markup:
    if not figures.expectations:
        return NOTHING
    columns = [("Expectation", "name"), ("Table", ""), ("Condition", "name"), ("Action", "")]
    columns += [("Rows that do not meet it", "number")]
    rows = [
        row(columns, label(each.name), each.table, label(each.condition), each.action, _warned(each.failed))
        for each in figures.expectations
    ]
    return section("Expectations", "Conditions on the rows of tables.", table(columns, rows))


def stores(figures: Figures) -> Markup:
    if not figures.stores:
        return NOTHING
    columns = [("Store", "name"), ("Journal", "name"), ("Changes", "number"), ("Deletions", "number")]
    columns += [("Keys", "number"), ("Keys that are there", "wide")]
    highest = max(store.keys or 0 for store in figures.stores)
    rows = [_store_row(columns, store, highest) for store in figures.stores]
    says = "The stores; those with most keys first."
    return _chapter("Stores", columns, rows, figures.store_count, says, "keys")


def _store_row(columns: _Columns, store: StoreRow, highest: int) -> Markup:
    counts = (store.changes, store.deletions, store.keys)
    return row(
        columns,
        label(store.store),
        label(store.journal),
        *map(_known, counts),
        plots.bar(store.keys or 0, highest, "c0", describe=units.counted(store.keys or 0, "key")),
    )


def segments(figures: Figures) -> Markup:
    if not figures.segmented:
        return NOTHING
    columns = [("Journal", "name"), ("Segments", "number"), ("Checked", "number"), ("Not checked", "number")]
    columns += [("Open", "number"), ("Records", "number"), ("Data", "number"), ("Not checked", "wide")]
    highest = max(one.segments - one.checked for one in figures.segmented)
    rows = [_segment_row(columns, one, highest) for one in figures.segmented]
    says = "Journals with checkpoints; those with most segments that a recovery would give back first."
    return _chapter("Segments", columns, rows, figures.segmented_count, says, "segments that are not checked")


def _segment_row(columns: _Columns, one: SegmentRow, highest: int) -> Markup:
    left = one.segments - one.checked
    return row(
        columns,
        label(one.journal),
        units.whole(one.segments),
        units.whole(one.checked),
        units.whole(left),
        units.whole(one.segments - one.complete),
        units.whole(one.records),
        units.size(one.bytes),
        plots.bar(left, highest, "c0", describe=f"{units.counted(left, 'segment')} not checked"),
    )


def pages(figures: Figures) -> Markup:
    if not figures.paged:
        return NOTHING
    columns = [("File", "name"), ("Completed", "number"), ("Rolled back", "number"), ("Without an end", "number")]
    columns += [("Changed", "number"), ("Pages", "number"), ("Versions", "number"), ("Removals", "number")]
    columns += [("Transactions", "wide")]
    highest = max(sum(one.outcomes.values()) for one in figures.paged)
    rows = [_page_row(columns, one, highest) for one in figures.paged]
    says = "Files of page transactions; those with most of them first."
    return _chapter("Pages", columns, rows, figures.paged_count, says, "transactions")


def _page_row(columns: _Columns, one: PageRow, highest: int) -> Markup:
    total = sum(one.outcomes.values())
    completed, back, open_ = (one.outcomes.get(name, 0) for name in ("completed", "rolled_back", "incomplete"))
    is_known = one.bytes is not None
    return row(
        columns,
        [label(one.journal), element("span", " / ", label(one.file), class_="part")],
        units.whole(completed) if is_known else DASH,
        units.whole(back) if is_known else DASH,
        _warned(open_) if is_known else DASH,
        DASH if one.bytes is None else units.size(one.bytes),
        *map(_known, (one.pages, one.versions, one.removals)),
        plots.bar(total, highest, "c0", describe=units.counted(total, "transaction")),
    )


def _chapter(name: str, columns: _Columns, rows: Sequence[Content], count: int, says: str, most: str) -> Markup:
    """A table of the largest entries; `says` describes them unless some of `count` are left out."""
    if count > len(rows):
        says = f"The {len(rows)} with most {most}, of {units.whole(count)}."
    return section(name, says, table(columns, rows))


def _known(count: int | None) -> str:
    return DASH if count is None else units.whole(count)


def _warned(count: int) -> Content:
    """A count that should be zero."""
    return element("span", units.whole(count), class_="badge warn") if count else units.whole(count)
