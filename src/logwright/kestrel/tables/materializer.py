"""The tables of kestrel: `queue_operations`, a row for every operation, and `queue_items`, a row for every item.

queue_operations:

    queue, op, xid, count, added, expires, data     as in the source `kestrel` on Spark
    added_ms, expires_ms    the time in milliseconds, if it does not fit a TIMESTAMP; null otherwise
    file, position, size    where the operation is; the file has the name that it had when it was read
    sequence                the number in the name of the file before that one; rotation does not change it

queue_items, for every item that ever was in the queue:

    queue               the queue
    item                its number in the queue, in the order in which items were added, from 1
    state               waiting; open: reserved by a consumer; done: removed or finished; expired: waiting too long
    data, added, expires    its data, when it was added and when it expires; null if unknown, or if it never expires
    xid                 the transaction that reserved it
    attempts            how often it was put back
    added_file, added_position, reserved_file, reserved_position, done_file, done_position
                        where it was added, last reserved, and removed or finished
    changes             all operations, in order: op (added, reserved, put_back, removed, finished), file, position, xid

Items are made by a replay of the queue (see `kestrel/model/replay.py`): operations that do not fit the queue change
nothing, and nothing expires during the replay. A waiting item whose time is over is `expired`: an open queue would
drop it. The rows of items that are done are closed, all others are live. An item that a pack or a rewritten file
carries over begins there, because its earlier operations are gone.

A file begins where `sequence` changes, and where the position is not greater than that of the preceding operation:
there the newest file was rewritten.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrow.columns import constant, fixed_memory, numbered
from ...core.arrow.spark_columns import microseconds
from ...core.read.materializer import Continued, Materializer, Materials, PartRows, Rows
from ..bytes.records import OP_NAMES
from ..model.replay import EVENTS, Replay
from .backlog import CHANGE, ITEMS, MEMORY_BYTES, SEGMENT_BYTES, Backlog, last_changes
from .columns import COLUMN_NAMES
from .spark_columns import RECORDED, recorded

OPERATIONS: Final = "queue_operations"
QUEUE_ITEMS: Final = "queue_items"
_PLACES: Final = [
    field
    for name in ("added", "reserved", "done")
    for field in (pa.field(f"{name}_file", pa.string()), pa.field(f"{name}_position", pa.int64()))
]
_CHANGE: Final = pa.struct(
    [("op", pa.string()), ("file", pa.string()), ("position", pa.int64()), ("xid", pa.int32())],
)
_ITEMS: Final = pa.schema(
    [
        ("queue", pa.string()),
        ("item", pa.int64()),
        ("state", pa.string()),
        ("data", pa.binary()),
        ("added", pa.timestamp("us", tz="UTC")),
        ("expires", pa.timestamp("us", tz="UTC")),
        ("xid", pa.int32()),
        ("attempts", pa.int32()),
        *_PLACES,
        ("changes", pa.list_(_CHANGE)),
    ]
)
_ADDED, _RESERVED, _PUT_BACK, _REMOVED, _FINISHED = range(len(EVENTS))
_STATES: Final = pa.array(["waiting", "open", "expired"], pa.string())
_OPEN: Final = 1
_NONE: Final = pa.scalar(None, pa.int32())
_BEFORE: Final = pa.scalar(-1, pa.int32())
_EVENTS: Final = pa.array(EVENTS, pa.string())
_OPS: Final = pa.array(OP_NAMES, pa.string())
_COMPRESSED_BYTES: Final = 1 << 20
"""Larger states are compressed. For others, starting the threads that do it would take longer than all else."""
_STATE: Final = b"replay"
"""Where the state of the replay is in the metadata of a saved stream."""


class QueueMaterials(Materials):
    """The tables of queues."""

    record_table = OPERATIONS

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {OPERATIONS: RECORDED, QUEUE_ITEMS: _ITEMS}

    @property
    def sources(self) -> Sequence[str]:
        return COLUMN_NAMES

    def materializer(self, continued: Continued) -> QueueMaterializer:
        return QueueMaterializer(continued)

    @property
    def is_joining(self) -> bool:
        return True

    def joined(
        self, batch: pa.RecordBatch, counts: Sequence[int], now_ns: int, moment_ns: int | None
    ) -> Iterator[PartRows]:
        yield PartRows(OPERATIONS, recorded(batch), numbered(counts))
        rows, items, whats, xids, added = _changes_of_queues(batch, counts)
        is_added = pc.equal(whats, _ADDED)
        later = _Changes(batch, *(column.filter(pc.invert(is_added)) for column in (rows, items, whats, xids)))
        added_rows = rows.filter(is_added)
        if not len(added_rows):
            return
        found = later.applied_to(_fresh(batch, added_rows, 0))
        queues = numbered(added)
        firsts = pa.array([0, *accumulate(added)][:-1], pa.int64())
        numbers = pc.subtract(found.column("item"), firsts.take(queues))
        found = found.set_column(0, ITEMS.field(0), numbers)
        names = batch.column("queue").take(pa.array([0, *accumulate(counts)][:-1], pa.int64()))
        state = _state(found, (now_ns if moment_ns is None else moment_ns) // 1_000_000)
        is_done = pc.greater_equal(last_changes(found.column("changes")), _REMOVED)
        for chosen, states in ((is_done, None), (pc.invert(is_done), state)):
            places = pc.indices_nonzero(chosen)
            if len(places):
                parts = queues.take(places)
                states = None if states is None else states.take(places)
                yield PartRows(QUEUE_ITEMS, _item_rows(names.take(parts), found.take(places), states), parts)


class QueueMaterializer(Materializer):
    """Makes the rows of one queue."""

    def __init__(
        self, continued: Continued, *, memory_bytes: int = MEMORY_BYTES, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        self._queue = continued.part
        self._moment_ns = continued.moment_ns
        self._live_ms: int | None = None
        self._replay = Replay()
        self._last: tuple[int | None, int] | None = None
        """Sequence and position of the last operation."""
        self._backlog = Backlog(continued.scratch, memory_bytes, segment_bytes)
        self._has_records = continued.has_records
        if continued.saved is not None:
            self._load(continued.saved)

    def add(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        if not batch.num_rows:
            return
        self._queue = batch.column("queue")[0].as_py()
        if self._has_records:
            yield Rows(OPERATIONS, recorded(batch))
        was_first, was_added = self._replay.first, self._replay.added
        rows, items, whats, xids = self._changes(batch)
        is_added = pc.equal(whats, _ADDED)
        popped = min(self._replay.first, was_added) - was_first
        later = _Changes(batch, *(column.filter(pc.invert(is_added)) for column in (rows, items, whats, xids)))
        for found in self._backlog.take(later.items, popped):
            yield from self._advance(found, later)
        added_rows = rows.filter(is_added)
        left = self._replay.first - was_first - popped
        if left:
            yield from self._advance(_fresh(batch, added_rows.slice(0, left), was_added), later)
        if left < len(added_rows):
            self._backlog.push(_fresh(batch, added_rows.slice(left), was_added + left))

    def live(self, now_ns: int) -> Iterator[Rows]:
        moment_ns = now_ns if self._moment_ns is None else self._moment_ns
        self._live_ms = moment_ns // 1_000_000
        for items in self._backlog:
            yield Rows(QUEUE_ITEMS, self._rows(items, _state(items, self._live_ms)))

    @property
    def due_ns(self) -> int | None:
        """The earliest expiry of a waiting item after the time of the last live rows."""
        found = self._backlog.expiry_after(self._live_ms) if self._moment_ns is None else None
        return None if found is None else found * 1_000_000

    def save(self, sink: pa.NativeFile) -> None:
        state = {"queue": self._queue, "last": self._last, "replay": self._replay.state()}
        is_large = self._backlog.bytes > _COMPRESSED_BYTES and pa.Codec.is_available("lz4")
        options = pa.ipc.IpcWriteOptions(compression="lz4" if is_large else None)
        schema = ITEMS.with_metadata({_STATE: json.dumps(state)})
        with pa.ipc.new_stream(sink, schema, options=options) as writer:
            for items in self._backlog:
                writer.write_batch(items)

    def _load(self, saved: pa.NativeFile) -> None:
        reader = pa.ipc.open_stream(saved)
        state = json.loads(reader.schema.metadata[_STATE])
        self._queue = state["queue"]
        self._last = None if state["last"] is None else tuple(state["last"])
        self._replay.resume(state["replay"])
        for batch in reader:
            items = batch.replace_schema_metadata(None)
            held = pc.search_sorted(items.column("item"), self._replay.first).as_py()
            self._backlog.hold(items.slice(0, held))
            self._backlog.push(items.slice(held))

    def close(self) -> None:
        self._backlog.close()

    # --- changes ----------------------------------------------------------------------------------------------------

    def _changes(self, batch: pa.RecordBatch) -> Iterator[pa.Array]:
        """The changes that the operations of a batch make, in columns."""
        begins = self._begins(batch.column("before"), batch.column("position").view(pa.int64()))
        return _columns(self._replay.changes(*_operations(batch), begins))

    def _begins(self, sequences: pa.Array, positions: pa.Array) -> list[int]:
        """The rows where a file begins; the first row only if the file differs from that of the preceding batch."""
        numbers = sequences.fill_null(-1)
        found = _new_files(numbers, positions)
        first, last = (numbers[0].as_py(), positions[0].as_py()), (numbers[-1].as_py(), positions[-1].as_py())
        is_next = self._last is not None and first[0] == self._last[0] and first[1] > self._last[1]
        self._last = last
        return found if is_next else [0, *found]

    def _advance(self, items: pa.RecordBatch, later: _Changes) -> Iterator[Rows]:
        """Apply changes to items; the rows of those that are done, while the others are held."""
        items = later.applied_to(items)
        is_done = pc.greater_equal(last_changes(items.column("changes")), _REMOVED)
        done = pc.indices_nonzero(is_done)
        if len(done) == items.num_rows:
            yield Rows(QUEUE_ITEMS, self._rows(items, None))
            return
        self._backlog.hold(items.take(pc.indices_nonzero(pc.invert(is_done))))
        if len(done):
            yield Rows(QUEUE_ITEMS, self._rows(items.take(done), None))

    def _rows(self, items: pa.RecordBatch, state: pa.Array | None) -> pa.RecordBatch:
        return _item_rows(constant(self._queue, items.num_rows), items, state)


def _operations(batch: pa.RecordBatch) -> tuple[memoryview, memoryview]:
    """The operations of a batch as a replay takes them: their kinds and numbers."""
    ops = batch.column("op")
    kinds = pc.index_in(ops.dictionary, _OPS).take(ops.indices).cast(pa.int8())
    numbers = pc.coalesce(batch.column("count"), batch.column("xid"), pa.scalar(0, pa.int32()))
    return fixed_memory(kinds, 1), fixed_memory(numbers, 4).cast("i")


def _columns(changes: Sequence[Any]) -> Iterator[pa.Array]:
    """The changes that a replay has returned: rows, items, whats and xids."""
    kinds = (pa.int64(), pa.int64(), pa.int8(), pa.int32())
    for each, kind in zip(changes, kinds, strict=True):
        buffer = pa.py_buffer(each)
        yield pa.Array.from_buffers(pa.int64(), buffer.size // 8, [None, buffer]).cast(kind)


def _new_files(sequences: pa.Array, positions: pa.Array) -> list[int]:
    """The rows, except the first one, where a file begins."""
    same = pc.and_(pc.equal(sequences[1:], sequences[:-1]), pc.greater(positions[1:], positions[:-1]))
    return [row + 1 for row in pc.indices_nonzero(pc.invert(same)).to_pylist()]


def _changes_of_queues(
    batch: pa.RecordBatch, counts: Sequence[int]
) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array, list[int]]:
    """The changes of items of whole queues, numbered as if they were one queue; how many items each queue had."""
    kinds, numbers = _operations(batch)
    begins = _new_files(batch.column("before").fill_null(-1), batch.column("position").view(pa.int64()))
    joined: tuple[list[Any], ...] = ([], [], [], [])
    changes, added = [], []
    start = 0
    for count in counts:
        stop = start + count
        replay = Replay()
        own = begins[bisect_right(begins, start) : bisect_left(begins, stop)]
        found = replay.changes(kinds[start:stop], numbers[start:stop], [0, *(row - start for row in own)])
        for column, each in zip(joined, found, strict=True):
            column.append(each)
        changes.append(len(found[0]))
        added.append(replay.added)
        start = stop
    rows, items, whats, xids = _columns([b"".join(column) for column in joined])
    queues = numbered(changes)
    first_rows = pa.array([0, *accumulate(counts)][:-1], pa.int64())
    first_items = pa.array([0, *accumulate(added)][:-1], pa.int64())
    return pc.add(rows, first_rows.take(queues)), pc.add(items, first_items.take(queues)), whats, xids, added


def _item_rows(queues: pa.Array, items: pa.RecordBatch, state: pa.Array | None) -> pa.RecordBatch:
    """Items as rows, each with its queue; all are done if no state is given. Names are dictionaries."""
    count = items.num_rows
    changes = items.column("changes")
    flat = changes.flatten()
    whats, files, positions, xids = flat.flatten()
    encoded = files.dictionary_encode()
    offsets = changes.offsets
    offsets = pc.subtract(offsets, offsets[0])
    starts, lasts = offsets[:-1], pc.subtract(offsets[1:], 1)
    given = pc.if_else(pc.equal(xids, 0), _NONE, xids)
    done = lasts if state is None else pa.nulls(count, pa.int32())
    if len(flat) == count:
        reserved, attempts = pa.nulls(count, pa.int32()), pa.repeat(pa.scalar(0, pa.int32()), count)
    else:
        reserved, attempts = _last_reserved(whats, starts, lasts), _put_back(whats, starts, lasts)
    is_open = None if state is None else pc.equal(state.indices, _OPEN)
    listed = pa.StructArray.from_arrays([_EVENTS.take(whats), files, positions, given], fields=list(_CHANGE))
    arrays = [
        queues,
        pc.add(items.column("item"), 1),
        constant("done", count) if state is None else state,
        items.column("data"),
        microseconds(items.column("added"), 1000),
        microseconds(items.column("expires"), 1000),
        pa.nulls(count, pa.int32()) if is_open is None else pc.if_else(is_open, given.take(lasts), _NONE),
        attempts,
        *(column.take(found) for found in (starts, reserved, done) for column in (encoded, positions)),
        pa.ListArray.from_arrays(offsets, listed, type=_ITEMS.field("changes").type),
    ]
    return pa.RecordBatch.from_arrays(arrays, names=_ITEMS.names)


class _Changes:
    """Changes of items by operations of a batch, in the order of the numbers of the items and then in that of time."""

    def __init__(self, batch: pa.RecordBatch, rows: pa.Array, items: pa.Array, whats: pa.Array, xids: pa.Array) -> None:
        order = pc.array_sort_indices(items)  # the sort is stable
        self.items = items.take(order)
        self._changes = _changes_of(batch, rows.take(order), whats.take(order), xids.take(order))

    def applied_to(self, items: pa.RecordBatch) -> pa.RecordBatch:
        """Items with the changes of them added."""
        numbers, changes = items.column("item"), items.column("changes")
        first, last = numbers[0].as_py(), numbers[-1].as_py()
        start = pc.search_sorted(self.items, first, side="left").as_py()
        found = self.items.slice(start, pc.search_sorted(self.items, last, side="right").as_py() - start)
        if last - first + 1 == len(numbers):
            indices = pc.subtract(found, first)
        else:
            indices = pc.search_sorted(numbers, found).cast(pa.int64())
        of_items = pa.concat_arrays([pc.list_parent_indices(changes), indices])
        order = pc.array_sort_indices(of_items)
        flat = pa.concat_arrays([changes.flatten(), self._changes.slice(start, len(found))]).take(order)
        ends = pc.run_end_encode(of_items.take(order)).run_ends  # each item was added, so it has a change
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        return items.set_column(4, ITEMS.field(4), pa.ListArray.from_arrays(offsets, flat))


def _changes_of(batch: pa.RecordBatch, rows: pa.Array, whats: pa.Array, xids: pa.Array) -> pa.StructArray:
    files = batch.column("file").take(rows).cast(pa.string())
    positions = batch.column("position").take(rows).view(pa.int64())
    return pa.StructArray.from_arrays([whats, files, positions, xids], fields=list(CHANGE))


def _fresh(batch: pa.RecordBatch, rows: pa.Array, first: int) -> pa.RecordBatch:
    """The items that rows of a batch add; `first` is the number of the first one."""
    count = len(rows)
    whats, xids = pa.repeat(pa.scalar(_ADDED, pa.int8()), count), pa.repeat(pa.scalar(0, pa.int32()), count)
    arrays = [
        pa.arange(first, first + count),
        batch.column("data").take(rows),
        *(batch.column(name).take(rows).view(pa.int64()) for name in ("added", "expires")),
        pa.ListArray.from_arrays(pa.arange(0, count + 1).cast(pa.int32()), _changes_of(batch, rows, whats, xids)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ITEMS)


def _state(items: pa.RecordBatch, now_ms: int) -> pa.Array:
    is_open = pc.equal(last_changes(items.column("changes")), _RESERVED)
    is_expired = pc.fill_null(pc.less_equal(items.column("expires"), now_ms), False)
    return pa.DictionaryArray.from_arrays(
        pc.if_else(is_open, _OPEN, pc.if_else(is_expired, 2, 0)).cast(pa.int32()), _STATES
    )


def _last_reserved(whats: pa.Array, starts: pa.Array, lasts: pa.Array) -> pa.Array:
    """Which change reserved each item last; null if none did. The changes of an item are between start and last."""
    reserving = pc.if_else(pc.equal(whats, _RESERVED), pa.arange(0, len(whats)).cast(pa.int32()), _BEFORE)
    found = pc.cumulative_max(reserving).take(lasts)
    return pc.if_else(pc.greater_equal(found, starts), found, _NONE)


def _put_back(whats: pa.Array, starts: pa.Array, lasts: pa.Array) -> pa.Array:
    """How often each item was put back. Its first change is another one."""
    total = pc.cumulative_sum(pc.equal(whats, _PUT_BACK).cast(pa.int32()))
    return pc.subtract(total.take(lasts), total.take(starts))


MATERIALS: Final = QueueMaterials()
