"""queue_items: the items of queues, each with its state and the place of everything that happened to it.

    events = tables.events(spark.read.format("logwright").load("journals"))
    queue_items(events).where("state = 'open'").show()

A row for every item that the operations speak of, whether it is still there or not:

    journal, queue      where it is
    item                its number in the queue, in the order in which items were added, from 1 on
    state               waiting; open: reserved by somebody; done: removed or finished; expired: waiting in vain
    data, added, expires    what was added, when, and until when it counts; null for what nobody knows, and for never
    xid                 the transaction that it is open under
    attempts            how often it was put back
    added_file, added_position, reserved_file, reserved_position, done_file, done_position
                        where it was added, last reserved, and removed or finished
    changes             all of it, in order: op (added, reserved, put_back, removed, finished), file, position, xid

It is a replay of each queue (see `kestrel/model/replay.py`): what does not fit the queue changes nothing, and nothing
expires while it goes. Only at its end, an item that waits and whose time is over at the moment that is asked for is
`expired` instead: a queue that is open would drop it. Operations are in the order of the columns (`sequence`,
`position`), which rotation does not change. Files are called what the events call them (see `with_last_names`).

Which item is which: what a pack, or a file that was written anew, carries over, is an item that begins there, since
what was before is gone. In tables that grow by increments a pack is not read when what it replaces has been, so there
an item stays the one that it was, with its whole history. After a loss that was let pass (`fail_on_data_loss = false`)
it is a replay of what was read, which then is not all.

One queue is one task, which needs memory for the items that are open or were put back, and not for those that wait.
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

from ..kestrel.bytes.records import OP_NAMES
from ..kestrel.model.replay import EVENTS, Replay

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
    """The items of all queues. `at` is the moment that tells what has expired: that of the query when not given."""
    changes = _told(_operations(events))
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
    """Where the last of these was; null when there is none."""
    last = F.try_element_at(changes, F.lit(-1))
    return last["file"].alias(f"{name}_file"), last["position"].alias(f"{name}_position")


def _operations(events: DataFrame) -> DataFrame:
    """The operations of queues, in columns of their own."""
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
    """Events that were read at different times, with the files of queues called what they were rotated to.

    A file that was read before it was rotated is there under the name of the newest, and what came later may be there
    under its own. The file behind it has the number that is in its last name, in all of its operations.
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


def _told(operations: DataFrame) -> DataFrame:
    """What each operation does to which item."""
    tell: Any = F.arrow_udtf(Telling, returnType=_CHANGE)
    order = (F.col("sequence").asc_nulls_last(), F.col("position").asc())
    changes: DataFrame = tell(operations.asTable().partitionBy("journal", "queue").orderBy(*order))
    return changes


class Telling:
    """What a task does with the operations of one queue, which come in order, a batch at a time."""

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
            if changes:
                yield self._told(batch.slice(start, stop - start), changes)
            start = stop

    @staticmethod
    def _end_of_file(sequences: list[int | None], start: int) -> int:
        sequence = sequences[start]
        if sequences[-1] == sequence:
            return len(sequences)
        return next(row for row in range(start, len(sequences)) if sequences[row] != sequence)

    def _told(self, batch: pa.RecordBatch, changes: list[tuple[int, int, int, int]]) -> pa.RecordBatch:
        rows, items, whats, xids = (pa.array(column, pa.int64()) for column in zip(*changes, strict=True))
        is_added = pc.equal(whats, 0)
        arrays = {name: batch.column(name).take(rows) for name in _PLACE}
        for name in _OF_ITEMS:
            column = batch.column(name)
            arrays[name] = pc.if_else(is_added, column.take(rows), pa.scalar(None, column.type))
        arrays["item"] = pc.add(items, 1)
        arrays["what"] = self._whats.take(whats)
        arrays["xid"] = pc.if_else(pc.equal(xids, 0), pa.scalar(None, pa.int32()), xids.cast(pa.int32()))
        return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))
