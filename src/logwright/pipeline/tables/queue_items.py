"""The table queue_items: the items of queues, each with its state and the place of every operation on it.

    events = tables.events(spark.read.format("logwright").load("journals"))
    queue_items(events).where("state = 'open'").show()

A row for every item that ever was in a queue:

    journal, queue      where it is
    item                its number in the queue, in the order in which items were added, from 1
    state               waiting; open: reserved by a consumer; done: removed or finished; expired: waiting too long
    data, added, expires    its data, when it was added and when it expires; null if unknown, or if it never expires
    xid                 the transaction that reserved it
    attempts            how often it was put back
    added_file, added_position, reserved_file, reserved_position, done_file, done_position
                        where it was added, last reserved, and removed or finished
    changes             all operations, in order: op (added, reserved, put_back, removed, finished), file, position, xid

It is made by a replay of each queue (see `kestrel/model/replay.py`): operations that do not fit the queue change
nothing, and nothing expires during the replay. At its end, a waiting item whose time is over at the given moment
becomes `expired`: an open queue would drop it. Operations are ordered by (`sequence`, `position`), which rotation does
not change. Files have the names that they have in the events (see `with_last_names`).

An item that a pack or a rewritten file carries over begins there, because its earlier operations are gone. An
incremental run does not read a pack if it has read the files that the pack replaces, so the item keeps its whole
history. After an accepted loss (`fail_on_data_loss = false`) only the operations that were read are replayed.

One task replays one queue. It needs memory for the items that are open or were put back, not for waiting ones.
"""

from __future__ import annotations

import datetime
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812  # as everywhere with Spark

from ...kestrel.bytes.records import OP_NAMES
from ...kestrel.model.replay import EVENTS, Changes, Replay

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DETAIL: Final = "queue STRING, xid INT, count INT, expires BIGINT"
_PLACE: Final = ("journal", "queue", "file", "sequence", "position")
_OF_ITEMS: Final = ("value", "timestamp", "expires")
_CHANGE: Final = (
    "journal STRING, queue STRING, file STRING, sequence BIGINT, position BIGINT, "
    "value BINARY, timestamp TIMESTAMP, expires BIGINT, item BIGINT, what STRING, xid INT"
)
_MOST_MILLISECONDS: Final = (2**63 - 1) // 1000


def queue_items(events: DataFrame, at: datetime.datetime | None = None) -> DataFrame:
    """The items of all queues. `at` is the moment for which items are expired or not: by default that of the query."""
    changes = _changes_of(_operations(events))
    change = F.struct("sequence", "position", F.col("what").alias("op"), "file", "xid")
    items = changes.groupBy("journal", "queue", "item").agg(
        *(F.first(name, ignorenulls=True).alias(name) for name in _OF_ITEMS),
        F.array_sort(F.collect_list(change)).alias("changes"),
    )
    last = F.element_at("changes", -1)
    fits = F.col("expires").between(-_MOST_MILLISECONDS, _MOST_MILLISECONDS)
    expires = F.when(fits, F.timestamp_millis("expires"))
    return items.select(
        "journal",
        "queue",
        "item",
        _state(last["op"], expires, at).alias("state"),
        F.col("value").alias("data"),
        F.col("timestamp").alias("added"),
        expires.alias("expires"),
        F.when(last["op"] == "reserved", last["xid"]).alias("xid"),
        F.size(_only("put_back")).alias("attempts"),
        *_places("added", _only("added")),
        *_places("reserved", _only("reserved")),
        *_places("done", _only("removed", "finished")),
        F.transform("changes", lambda one: F.struct(one["op"], one["file"], one["position"], one["xid"])).alias(
            "changes"
        ),
    )


def _state(op: Column, expires: Column, at: datetime.datetime | None) -> Column:
    moment = F.current_timestamp() if at is None else F.timestamp_micros(F.lit(_micros(at)))
    return (
        F.when(op.isin("removed", "finished"), "done")
        .when(op == "reserved", "open")
        .when(expires <= moment, "expired")
        .otherwise("waiting")
    )


def _micros(at: datetime.datetime) -> int:
    if at.tzinfo is None:
        at = at.replace(tzinfo=datetime.UTC)
    return (at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)


def _only(*ops: str) -> Column:
    """The changes of some kinds."""
    return F.filter("changes", lambda one: one["op"].isin(*ops))


def _places(name: str, changes: Column) -> tuple[Column, Column]:
    """The place of the last of these changes; null if there is none."""
    last = F.try_element_at(changes, F.lit(-1))
    return last["file"].alias(f"{name}_file"), last["position"].alias(f"{name}_position")


def _operations(events: DataFrame) -> DataFrame:
    """The operations of queues, with their fields as columns."""
    found = events.where("format = 'kestrel'").withColumn("_detail", F.from_json("detail", _DETAIL))
    return found.select(
        "journal",
        F.col("_detail.queue").alias("queue"),
        "file",
        "sequence",
        "position",
        "op",
        F.coalesce("_detail.count", "_detail.xid").alias("number"),
        "value",
        "timestamp",
        F.col("_detail.expires").alias("expires"),
    )


def with_last_names(events: DataFrame) -> DataFrame:
    """Events that were read at different times, with files of queues named by their final names.

    A file that was partly read before its rotation occurs with the name of the newest file and with its own. All
    operations of the file after it have the number that is in its final name.
    """
    stem = F.substring_index("file", ".", 1)
    by_queue = Window.partitionBy("journal", "_stem").orderBy("sequence")
    following = F.lead("sequence").over(by_queue)
    rotated = F.when(F.col("_longest") != F.col("_stem"), F.col("_longest")).when(
        following.isNotNull(), F.concat_ws(".", "_stem", following)
    )
    known = (
        events.where("format = 'kestrel' and sequence is not null")
        .groupBy("format", "journal", stem.alias("_stem"), "sequence")
        .agg(F.max("file").alias("_longest"))
        .select("format", "journal", F.col("_stem").alias("file"), "sequence", rotated.alias("_rotated"))
        .where("_rotated is not null")
    )
    placed = events.join(F.broadcast(known), ["format", "journal", "file", "sequence"], "left")
    return placed.withColumn("file", F.coalesce("_rotated", "file")).select(*events.columns)


def _changes_of(operations: DataFrame) -> DataFrame:
    """The change that each operation makes, and its item."""
    replay: Any = F.arrow_udtf(Replaying, returnType=_CHANGE)
    order = (F.col("sequence").asc_nulls_last(), F.col("position").asc())
    changes: DataFrame = replay(operations.asTable().partitionBy("journal", "queue").orderBy(*order))
    return changes


class Replaying:
    """Replays the operations of one queue, which arrive in order, one batch at a time."""

    def __init__(self) -> None:
        self._replay = Replay()
        self._ops = pa.array(OP_NAMES, pa.string())
        self._whats = pa.array(EVENTS, pa.string())
        self._sequence: Any = ()

    def eval(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The changes of a batch of operations."""
        kinds = pc.index_in(batch.column("op"), self._ops).to_pylist()
        numbers = batch.column("number").fill_null(0).to_pylist()
        sequences = batch.column("sequence").to_pylist()
        start = 0
        while start < len(kinds):
            stop = self._end_of_file(sequences, start)
            if sequences[start] != self._sequence:
                self._sequence = sequences[start]
                self._replay.begin_file()
            changes = self._replay.changes(bytes(kinds[start:stop]), array("i", numbers[start:stop]))
            if len(changes[0]):
                yield self._batch_of(batch.slice(start, stop - start), changes)
            start = stop

    @staticmethod
    def _end_of_file(sequences: list[int | None], start: int) -> int:
        sequence = sequences[start]
        if sequences[-1] == sequence:
            return len(sequences)
        return next(row for row in range(start, len(sequences)) if sequences[row] != sequence)

    def _batch_of(self, batch: pa.RecordBatch, changes: Changes) -> pa.RecordBatch:
        rows, items, whats, xids = (
            pa.Array.from_buffers(pa.int64(), len(column), [None, pa.py_buffer(column)]) for column in changes
        )
        is_added = pc.equal(whats, 0)
        arrays = {name: batch.column(name).take(rows) for name in _PLACE}
        for name in _OF_ITEMS:
            column = batch.column(name)
            arrays[name] = pc.if_else(is_added, column.take(rows), pa.scalar(None, column.type))
        arrays["item"] = pc.add(items, 1)
        arrays["what"] = self._whats.take(whats)
        arrays["xid"] = pc.if_else(pc.equal(xids, 0), pa.scalar(None, pa.int32()), xids.cast(pa.int32()))
        return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))
