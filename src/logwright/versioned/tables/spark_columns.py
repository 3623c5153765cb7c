"""versioned on Spark: its typed columns, and the same changes in the columns that all formats share.

    store STRING, t BIGINT, timestamp TIMESTAMP, k STRING, o STRING (JSON), deleted BOOLEAN

Each change is one row, however often compaction has copied it. A time of more than 63 bits is null. Of the shared
columns `op` is `set` or `delete`, `key` the key, `value` the JSON of the value, null for a deletion, and `detail` has
the store, and `t` where `timestamp_ns` cannot hold it.

`sequence` is when the journal of an entry became the active one, and with 2^64 as its unit, plus `position`, the number
of the entry, as long as the archive before it has the name that it should have. So changes of a store are in order by
(`sequence`, `position`), whatever their files are called meanwhile.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrow.columns import bytes_of, column_of, left_out, numbers_of, signed, times_of
from ...core.arrow.spark_columns import OwnColumns, details, named_detail, number_detail, sizes, texts
from ...errors import WrongUse
from ..bytes import kernel
from ..bytes.records import check_timestamp
from . import columns
from .columns import packed_entries

TYPED: Final = pa.schema(
    [
        ("store", pa.string()),
        ("t", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("k", pa.string()),
        ("o", pa.string()),
        ("deleted", pa.bool_()),
    ]
)

_SOURCES: Final = {
    "timestamp": ("t",),
    "timestamp_ns": ("t",),
    "op": ("deleted",),
    "key": ("k",),
    "value": ("o", "deleted"),
    "detail": ("store", "t"),
    "sequence": ("before",),
}
"""The own columns that a column is made from, if their names differ."""
_WRITTEN: Final = ("store", "t", "timestamp", "k", "o", "deleted")
"""The columns that a sink writes as a change of a store."""
_OWN: Final = ("store", "t", "k", "o", "deleted", "file", "position", "size", "before")


class ChangeColumns(OwnColumns):
    """The columns of the changes of stores."""

    make_schema = columns.schema
    make_collector = columns.Collector
    typed = TYPED
    key = "k"
    contents = ("k", "o")
    payload = "o"
    json_fields: ClassVar = {"t": pa.uint64(), "k": pa.string(), "o": pa.json_(), "store": pa.string()}
    own = _OWN
    made_from = _SOURCES
    conversions: ClassVar = {
        **dict.fromkeys(("store", "file"), texts),
        **dict.fromkeys(("t", "timestamp_ns"), signed),
        "timestamp": lambda data: pc.divide(signed(data), 1000).view(pa.timestamp("us", tz="UTC")),
        "op": lambda data: pc.if_else(data, "delete", "set"),
        "key": lambda data: data.cast(pa.binary()),
        "position": lambda data: data.view(pa.int64()),
        "size": sizes("an entry"),
    }

    def column(self, batch: pa.RecordBatch, name: str) -> pa.Array | None:
        if name == "value":
            return pc.if_else(batch.column("deleted"), pa.scalar(None, pa.string()), batch.column("o")).cast(
                pa.binary()
            )
        return super().column(batch, name)

    def detail(self, batch: pa.RecordBatch) -> pa.Array:
        fields = [named_detail("store", batch.column("store"))]
        times = batch.column("t")
        lost = pc.is_null(signed(times))
        if pc.any(lost).as_py():
            fields.append(number_detail("t", pc.if_else(lost, times, pa.scalar(None, pa.uint64()))))
        return details(fields)

    def check(self, batch: pa.RecordBatch) -> None:
        next(columns.from_arrow(batch), None)

    def json_rows(self) -> Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]:
        """Without the heads of files, and without copies: the last change of a key again, with its time and value."""
        latest: dict[tuple[str, str], tuple[int, str]] = {}

        def rows(fields: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
            if "initialized" in fields:
                return ()
            store, key, time = fields.get("store") or "", fields.get("k"), fields.get("t")
            if isinstance(store, str) and isinstance(key, str) and isinstance(time, int):
                change = time, json.dumps(fields.get("o"))
                if latest.get((store, key)) == change:
                    return ()
                latest[store, key] = change
            return [fields]

        return rows

    as_messages = staticmethod(columns.as_messages)

    def left_out(self, messages: pa.RecordBatch) -> dict[str, int]:
        return left_out(messages, "type", "expiry")


COLUMNS: Final = ChangeColumns()


# --- restoring --------------------------------------------------------------------------------------------------------


def changes(batch: pa.RecordBatch) -> list[tuple[int, int, int, int, str, bool, bytes]]:
    """The rows of a batch of the table `kv_changes` as entries again.

    Of each its `sequence`, -1 for none, position, size, time, key, whether it is a deletion, and its bytes.
    """
    for name in ("position", "size", "k", "deleted"):
        if batch.column(name).null_count:
            raise WrongUse(f"column {name} is null in a row that is to become an entry")
    names = ("sequence", "position", "size", "t", "t_exact", "k", "o", "deleted")
    return [_change(*row) for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True)]


def _change(
    sequence: int | None,
    position: int,
    size: int,
    time: int | None,
    exact_time: Decimal | None,
    key: str,
    value: str | None,
    is_deleted: bool,
) -> tuple[int, int, int, int, str, bool, bytes]:
    try:
        if time is None:
            if exact_time is None:
                raise ValueError("it has no time")
            time = int(exact_time)
        o = None if is_deleted else json.loads(value or "")
        if o is None and not is_deleted:
            raise ValueError("null cannot be set")
    except (ValueError, TypeError, RecursionError) as error:
        raise WrongUse(f"the entry @ {position} is none of a store: {error}") from None
    entry = kernel.pack_entry(time, key, o)
    return -1 if sequence is None else sequence, position, size, time, key, o is None, entry


def packed(batch: pa.RecordBatch, now: int) -> tuple[list[tuple[int, bytes]], int]:
    """The rows of one store as entries, each with its time, in their order; and the time for the next that has none.

    The first row without a time gets `now`, and each further one a time that is 1 ns later.
    """
    times: list[int] = []
    for row, time in enumerate(_times_of(batch)):
        if time is None:
            time, now = now, now + 1
        elif time < 0:
            _refuse_time(batch, row, time)
        times.append(time)
    return list(zip(times, packed_entries(batch, array("Q", times)), strict=True)), now


def _refuse_time(batch: pa.RecordBatch, row: int, time: int) -> None:
    try:
        check_timestamp(time)
    except WrongUse as error:
        raise WrongUse(f"the key {batch.column('k')[row].as_py()!r}: {error}") from error


def _times_of(batch: pa.RecordBatch) -> list[int | None]:
    """The times of rows in nanoseconds: `t`, or where that is null `timestamp`, or None."""
    exact, rough = column_of(batch, "t"), column_of(batch, "timestamp")
    found: list[int | None] = [None] * batch.num_rows
    if rough is not None:
        found = times_of("timestamp", rough, "ns").to_pylist()
    if exact is not None and exact.type != pa.uint64():
        exact = numbers_of("t", exact, pa.int64(), "be nanoseconds of 64 bits")
    if exact is not None:
        found = [time if given is None else given for given, time in zip(exact.to_pylist(), found, strict=True)]
    return found


# --- writing ------------------------------------------------------------------------------------------------------


def check_writable(schema: pa.Schema, store: str | None) -> None:
    """Raise `WrongUse` for columns that cannot be written, before there are any rows. `store` is the option."""
    unknown = [name for name in schema.names if name not in _WRITTEN]
    if unknown:
        known = "store, k, o, t or timestamp, and deleted"
        raise WrongUse(f"a change of a store has no {', '.join(unknown)}: select {known}, as far as you have them")
    for name, what in (("k", "the key"), ("o", "the value, as JSON")):
        if name not in schema.names:
            raise WrongUse(f"there is no column {name}, which is {what}")
    if "store" not in schema.names and store is None:
        raise WrongUse("say which store the changes are of: in a column store, or by option('store', NAME)")
    if "deleted" in schema.names and not pa.types.is_boolean(schema.field("deleted").type):
        raise WrongUse(f"column deleted is {schema.field('deleted').type}, and must be boolean")
    empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    for name in ("store", "k", "o"):
        bytes_of(name, pa.nulls(0) if name not in schema.names else empty.column(name))
    _times_of(empty)
