"""The tables of yeltsin: `page_operations`, a row for every operation, `transactions` and `page_versions`.

`page_operations` has the columns

    transaction, offset, timestamp, flags, complete, outcome, operation, op, page, page_offset, before, after,
    free_before, free_after         as in the source `yeltsin` on Spark
    end_data                        what the end of the transaction carries, if anything: in its last row
    gaps                            how often transactions before this one are lost, by the account of losses
    file, position, size            where the operation is
    sequence                        the transaction

A transaction without operations has one row, whose `op` is `end`. A number of 2^63 or more is the negative number with
the same 64 bits.

`transactions` has a row for every transaction:

    file, transaction               the number of the transaction in its file, from 0
    offset, timestamp               where it begins in the file, and when it was created
    flags, complete, outcome        whether it is in the storage, and its outcome
    operations, pages, bytes        the numbers of its operations, of pages, and of bytes that they changed

`page_versions` has a row for every page and every completed transaction that changed it:

    file, page                      which page
    version                         the number of the change of the page, from 1
    transaction, timestamp          the transaction that made it
    op, deleted                     its last operation on the page, and whether that removed it
    ranges                          the known bytes of the page after it, as JSON: [{"offset", "data"}],
                                    the data in base64, as `logwright state` prints it; null if it was removed
    gaps                            how many losses of transactions precede this one, by the account of losses: bytes
                                    known before the last loss are unknown after it; 0 for none

Transactions that were rolled back or are incomplete make no versions of pages. Pages with offsets of more than 63 bits
are left out.

All rows are closed, except those of the last transaction: more of its operations may be in the next batch. Its rows
are kept, and are the state, together with what is known of the pages. Transactions that may still be changed in place
are not added before they are final (`Splits.final`), or only to a materializer that is not saved.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrow.columns import batch_of_rows
from ...core.read.columns import BATCH_BYTES
from ...core.read.materializer import Continued, Materializer, Materials, Rows
from ..bytes.records import END
from ..model.replay import Ranges
from .columns import COLUMN_NAMES
from .known_pages import KnownPages, Page
from .spark_columns import COLUMNS, TYPED

OPERATIONS: Final = "page_operations"
TRANSACTIONS: Final = "transactions"
VERSIONS: Final = "page_versions"
_PLACES: Final = ("page", "free_before", "free_after")
"""Offsets in a table, which may have 64 bits."""
_OPERATIONS: Final = pa.schema(
    [
        *TYPED,
        ("end_data", pa.binary()),
        ("gaps", pa.int32()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("size", pa.int32()),
        ("sequence", pa.int64()),
    ]
)
_TRANSACTIONS: Final = pa.schema(
    [
        ("file", pa.string()),
        *(TYPED.field(name) for name in ("transaction", "offset", "timestamp", "flags", "complete", "outcome")),
        ("operations", pa.int64()),
        ("pages", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
_VERSIONS: Final = pa.schema(
    [
        ("file", pa.string()),
        ("page", pa.int64()),
        ("version", pa.int64()),
        TYPED.field("transaction"),
        TYPED.field("timestamp"),
        ("op", pa.string()),
        ("deleted", pa.bool_()),
        ("ranges", pa.string()),
        ("gaps", pa.int32()),
    ]
)
_KEPT: Final = pa.schema(
    [_OPERATIONS.field(name) for name in (*_TRANSACTIONS.names[:7], "op", "page", "page_offset", "after", "gaps")]
)
"""The columns of operations that the other tables are made from."""
_PAGES: Final = pa.schema(
    [("page", pa.int64()), ("version", pa.int64()), ("starts", pa.list_(pa.int32())), ("data", pa.list_(pa.binary()))]
)
"""The columns of a saved state: pages, and their known ranges."""


class PageMaterials(Materials):
    """The tables of journals of page transactions."""

    record_table = OPERATIONS

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {OPERATIONS: _OPERATIONS, TRANSACTIONS: _TRANSACTIONS, VERSIONS: _VERSIONS}

    @property
    def sources(self) -> Sequence[str]:
        return [name for name in COLUMN_NAMES if name != "journal"]

    def materializer(self, continued: Continued) -> PageMaterializer:
        return PageMaterializer(continued)


MATERIALS: Final = PageMaterials()


class PageMaterializer(Materializer):
    """Makes the tables of one journal."""

    def __init__(self, continued: Continued) -> None:
        self._pages = KnownPages(continued.scratch)
        self._last: list[pa.RecordBatch] = []
        """The operations of the last transaction."""
        if continued.saved is not None:
            self._load(continued.saved)

    def add(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        if not batch.num_rows:
            return
        operations = _operation_rows(batch)
        yield Rows(OPERATIONS, operations)
        kept = operations.select(_KEPT.names)
        numbers = kept.column("transaction")
        first = pc.index(numbers, numbers[-1]).as_py()
        if self._last and (first or self._last[0].column("transaction")[0] != numbers[0]):
            whole, self._last = [*self._last, kept.slice(0, first)], []
        else:
            whole = [kept.slice(0, first)] if first else []
        self._last.append(kept.slice(first))
        if whole:
            yield from _rows(whole, self._pages)

    def live(self, now_ns: int) -> Iterator[Rows]:
        if self._last:
            yield from _rows(self._last, _PagesLater(self._pages))

    def close(self) -> None:
        self._pages.close()

    # --- the state ----------------------------------------------------------------------------------------------------

    def save(self, sink: pa.NativeFile) -> None:
        """Write the state: what is known of the pages, and after it the last transaction."""
        schema = _PAGES.with_metadata({"gaps": str(self._pages.gaps)})
        with pa.ipc.new_stream(sink, schema) as writer:
            rows: list[tuple[Any, ...]] = []
            used = 0
            for page, known in self._pages:
                items = known.ranges.items()
                rows.append((page, known.version, [start for start, _ in items], [data for _, data in items]))
                used += sum(len(data) for _, data in items)
                if used >= BATCH_BYTES:
                    writer.write_batch(batch_of_rows(schema, rows))
                    rows, used = [], 0
            writer.write_batch(batch_of_rows(schema, rows))
        with pa.ipc.new_stream(sink, _KEPT) as writer:
            for batch in self._last:
                writer.write_batch(batch)

    def _load(self, saved: pa.NativeFile) -> None:
        with pa.ipc.open_stream(saved) as reader:
            self._pages.gaps = int(reader.schema.metadata[b"gaps"])
            for batch in reader:
                for page, version, starts, pieces in zip(*(column.to_pylist() for column in batch), strict=True):
                    known = Ranges()
                    for start, data in zip(starts, pieces, strict=True):
                        known.put(start, data)
                    self._pages.put(page, Page(version, known))
        with pa.ipc.open_stream(saved) as reader:
            self._last = list(reader)


# --- rows -------------------------------------------------------------------------------------------------------------


def _operation_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_column(batch, name) for name in _OPERATIONS.names], schema=_OPERATIONS)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    return batch.column(name).view(pa.int64()) if name in _PLACES else COLUMNS.column(batch, name)


def _rows(operations: list[pa.RecordBatch], pages: KnownPages | _PagesLater) -> Iterator[Rows]:
    """The rows of whole transactions."""
    table = pa.Table.from_batches(operations)
    yield Rows(TRANSACTIONS, _transaction_rows(table))
    for rows in _bounded(_versions(table, pages)):
        yield Rows(VERSIONS, batch_of_rows(_VERSIONS, rows))


def _transaction_rows(operations: pa.Table) -> pa.RecordBatch:
    counted = operations.select(_TRANSACTIONS.names[:7]).append_column("page", operations["page"])
    counted = counted.append_column("is_operation", pc.not_equal(operations["op"], END).cast(pa.int64()))
    counted = counted.append_column("size", pc.binary_length(operations["after"]).cast(pa.int64()))
    common = [(name, "first") for name in _TRANSACTIONS.names[:7] if name != "transaction"]
    totals = [("is_operation", "sum"), ("page", "count_distinct"), ("size", "sum")]
    found = counted.group_by("transaction", use_threads=False).aggregate([*common, *totals])
    found = found.set_column(found.schema.get_field_index("size_sum"), "size_sum", pc.fill_null(found["size_sum"], 0))
    names = [name if name == "transaction" else f"{name}_first" for name in _TRANSACTIONS.names[:7]]
    chosen = found.select([*names, *("_".join(total) for total in totals)]).sort_by("transaction")
    arrays = [column.combine_chunks() for column in chosen.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=_TRANSACTIONS)


class _Change(NamedTuple):
    """An operation of a transaction that was completed."""

    transaction: int
    timestamp: Any
    file: str
    page: int
    op: str
    page_offset: int | None
    after: bytes | None
    gaps: int | None


def _versions(operations: pa.Table, pages: KnownPages | _PagesLater) -> Iterator[tuple[Any, ...]]:
    """The versions of pages that transactions have made."""
    is_change = pc.and_(pc.equal(operations["outcome"], "completed"), pc.greater_equal(operations["page"], 0))
    changes = operations.select(_Change._fields).filter(is_change)
    columns = [_plain(column) for column in changes.columns]
    for number, own in groupby(map(_Change._make, zip(*columns, strict=True)), key=itemgetter(0)):
        touched: dict[int, tuple[Page, _Change]] = {}
        for change in own:
            if (change.gaps or 0) > pages.gaps:
                pages.forget(change.gaps or 0)
            page = pages.take(change.page)
            if change.after is None:
                page.ranges = Ranges()
            else:
                page.ranges.put(change.page_offset or 0, change.after)
            touched[change.page] = (page, change)
        for page, last in touched.values():
            page.version += 1
            is_removed = last.op == "remove"
            text = None if is_removed else _as_json(page.ranges)
            place = (last.file, last.page, page.version, number, last.timestamp)
            yield (*place, last.op, is_removed, text, pages.gaps)
        pages.settle(touched)


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """The items of a column; times stay numbers, because Python's do not reach as far."""
    if pa.types.is_timestamp(column.type):
        return [item for chunk in column.chunks for item in chunk.view(pa.int64()).to_pylist()]
    found: list[Any] = column.to_pylist()
    return found


def _as_json(ranges: Ranges) -> str:
    found = [
        f'{{"offset":{start},"data":"{binascii.b2a_base64(data, newline=False).decode()}"}}'
        for start, data in ranges.items()
    ]
    return f"[{','.join(found)}]"


def _bounded(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """Rows in lists whose texts have about the size of a batch."""
    found: list[tuple[Any, ...]] = []
    used = 0
    for row in rows:
        found.append(row)
        used += 64 + len(row[7] or "")
        if used >= BATCH_BYTES:
            yield found
            found, used = [], 0
    if found:
        yield found


class _PagesLater:
    """Pages that become others than those they are copied from."""

    def __init__(self, pages: KnownPages) -> None:
        self.gaps = pages.gaps
        self._look: Callable[[int], Page] = pages.look
        self._changed: dict[int, Page] = {}

    def take(self, page: int) -> Page:
        found = self._changed.get(page)
        if found is None:
            found = self._changed[page] = self._look(page)
        return found

    def settle(self, taken: Iterable[int]) -> None:
        return

    def forget(self, gaps: int) -> None:
        self.gaps = gaps
        look = self._look
        self._look = lambda page: Page(look(page).version)
        self._changed = {page: Page(found.version) for page, found in self._changed.items()}
