"""The tables of stores: kv_changes, kv_history and kv_state.

`kv_changes` has a row for every record, as the journal has it:

    store, k                        which key
    t, timestamp                    its time, in nanoseconds and as a timestamp
    t_exact                         the time if it has more than 63 bits; then `t` and `timestamp` are null
    o, deleted                      its new value as JSON; null if it was deleted
    file, position, size            where it is
    sequence                        when its journal became the active one; null beyond 63 bits

`kv_history` has a row for every change of a key. The row of a change is closed when the next change of the key comes:

    store, k                        which key
    version                         the number of the change of the key, from 1
    o, deleted                      its new value as JSON; null if it was deleted
    valid_from, valid_to            from when until when; valid_to is null for the last change
    valid_from_ns, valid_to_ns      the same in nanoseconds
    sequence, position              where the change is in the store; the order of changes

`kv_state` has a row for every key that exists: store, k, o, timestamp, timestamp_ns, sequence, position of its last
change. With a moment it is the last change that is not later, and a store that began later has no rows. The state
before the first journal that was read is unknown.

Changes have the order of the journals; on equal times the later record wins. Copies that compaction left among the
records count once (`model/versions.py`): as a copy stands for a change that the tables have, its place is that of this
change. Times of more than 63 bits are null, and later than all others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrow.columns import (
    binary_array,
    bitmap,
    bytes_of,
    ends_and_bytes,
    filled,
    fixed_array,
    fixed_memory,
    signed,
)
from ...core.bytes.compiled import COMPILED
from ...core.read.columns import BATCH_BYTES
from ...core.read.materializer import Continued, Materializer, Materials, Rows
from ...errors import WrongUse
from ..model.versions import NO_SEQUENCE, Changes
from .spark_columns import COLUMNS

if TYPE_CHECKING or not COMPILED:
    from ..model.versions import Versions
else:
    from ..model._versions import Versions

_TIME: Final = pa.timestamp("us", tz="UTC")
_EXACT: Final = pa.decimal128(20)
_SCHEMAS: Final = {
    "kv_changes": pa.schema(
        [
            ("store", pa.string()),
            ("t", pa.int64()),
            ("timestamp", _TIME),
            ("t_exact", _EXACT),
            ("k", pa.string()),
            ("o", pa.string()),
            ("deleted", pa.bool_()),
            ("file", pa.string()),
            ("position", pa.int64()),
            ("size", pa.int32()),
            ("sequence", pa.int64()),
        ]
    ),
    "kv_history": pa.schema(
        [
            ("store", pa.string()),
            ("k", pa.string()),
            ("version", pa.int64()),
            ("o", pa.string()),
            ("deleted", pa.bool_()),
            ("valid_from", _TIME),
            ("valid_to", _TIME),
            ("valid_from_ns", pa.int64()),
            ("valid_to_ns", pa.int64()),
            ("sequence", pa.int64()),
            ("position", pa.int64()),
        ]
    ),
    "kv_state": pa.schema(
        [
            ("store", pa.string()),
            ("k", pa.string()),
            ("o", pa.string()),
            ("timestamp", _TIME),
            ("timestamp_ns", pa.int64()),
            ("sequence", pa.int64()),
            ("position", pa.int64()),
        ]
    ),
}
_SOURCES: Final = ("store", "t", "k", "o", "deleted", "file", "position", "size", "before")
_SAVED: Final = pa.schema(
    [
        ("k", pa.string()),
        ("o", pa.string()),
        ("deleted", pa.uint8()),
        ("t", pa.uint64()),
        ("sequence", pa.int64()),
        ("position", pa.int64()),
        ("number", pa.int64()),
        ("is_here", pa.uint8()),
    ]
)
_STATE: Final = b"logwright"
"""The name of what a saved state has besides rows, in the metadata of its schema."""


class ChangeMaterials(Materials):
    """The tables of stores."""

    record_table = "kv_changes"

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return _SCHEMAS

    @property
    def sources(self) -> Sequence[str]:
        return _SOURCES

    def materializer(self, continued: Continued) -> ChangeMaterializer:
        return ChangeMaterializer(continued)


MATERIALS: Final = ChangeMaterials()


class ChangeMaterializer(Materializer):
    """Makes the tables of one store."""

    def __init__(self, continued: Continued) -> None:
        moment = continued.moment_ns
        self._moment = moment
        self._store: str | None = None
        self._begins: int | None = None
        """The earliest time since which a journal was the active one."""
        self._last = Versions()
        self._at_moment = None if moment is None else Versions(max(0, moment), closes=False)
        self._all = [self._last] if self._at_moment is None else [self._last, self._at_moment]
        if continued.saved is not None:
            self._load(continued.saved)

    def add(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        if not batch.num_rows:
            return
        self._store = batch.column("store")[0].as_py()
        begins = pc.min(batch.column("before")).as_py()
        if begins is not None:
            self._begins = begins if self._begins is None else min(self._begins, begins)
        yield Rows("kv_changes", _records(batch))
        changes = _changes(batch)
        for versions in self._all:
            row = 0
            while row < changes.count:
                row, closed = versions.add(changes, row, BATCH_BYTES)
                if closed.count:
                    yield Rows("kv_history", _history(self._store, closed))

    def live(self, now_ns: int) -> Iterator[Rows]:
        for rows in _rows(self._last):
            yield Rows("kv_history", _history(self._store, rows))
            if self._at_moment is None:
                yield from self._state(rows)
        if self._at_moment is not None and self._begins is not None and self._begins <= (self._moment or 0):
            for rows in _rows(self._at_moment):
                yield from self._state(rows)

    def _state(self, rows: Changes) -> Iterator[Rows]:
        found = _state(self._store, rows)
        if found.num_rows:
            yield Rows("kv_state", found)

    def save(self, sink: pa.NativeFile) -> None:
        state = {"store": self._store, "moment": self._moment, "begins": self._begins}
        for versions in self._all:
            state |= {"sequence": versions.sequence, "head": versions.head}
            schema = _SAVED.with_metadata({_STATE: json.dumps(state)})
            with pa.ipc.new_stream(sink, schema) as stream:
                for rows in _rows(versions):
                    stream.write_batch(_saved(rows, schema))

    def _load(self, saved: pa.NativeFile) -> None:
        for versions in self._all:
            with pa.ipc.open_stream(saved) as stream:
                state = json.loads(stream.schema.metadata[_STATE])
                if state["moment"] != self._moment:
                    raise WrongUse(
                        f"the state was saved for the time {state['moment']}, and is continued for {self._moment}: "
                        "make the tables again"
                    )
                for batch in stream:
                    versions.load(_loaded(batch))
            self._store, self._begins = state["store"], state["begins"]
            versions.sequence, versions.head = state["sequence"], state["head"]


# --- records ----------------------------------------------------------------------------------------------------------


def _records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of kv_changes."""
    schema = _SCHEMAS["kv_changes"]
    made = {"t_exact": _exact(batch.column("t")), "o": _values(batch)}
    arrays = [made[name] if name in made else COLUMNS.column(batch, name) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _exact(times: pa.Array) -> pa.Array:
    """The times that have more than 63 bits."""
    is_lost = pc.is_null(signed(times))
    if not pc.any(is_lost).as_py():
        return pa.nulls(len(times), _EXACT)
    return pc.if_else(is_lost, times, pa.scalar(None, pa.uint64())).cast(_EXACT)


def _values(batch: pa.RecordBatch) -> pa.Array:
    """The values, null for deletions."""
    values, deleted = batch.column("o"), batch.column("deleted")
    if not pc.any(deleted).as_py():
        return values
    return pc.if_else(deleted, pa.scalar(None, pa.string()), values)


def _changes(batch: pa.RecordBatch) -> Changes:
    """The records of a batch as the kernel takes them."""
    return Changes(
        batch.num_rows,
        *ends_and_bytes(bytes_of("k", batch.column("k"))),
        *ends_and_bytes(bytes_of("o", batch.column("o"))),
        fixed_memory(batch.column("deleted").cast(pa.uint8()), 1),
        fixed_memory(batch.column("t"), 8),
        fixed_memory(filled(batch.column("before"), NO_SEQUENCE), 8),
        fixed_memory(batch.column("position"), 8),
    )


# --- versions ---------------------------------------------------------------------------------------------------------


def _rows(versions: Versions) -> Iterator[Changes]:
    """The last changes of all keys, in pieces."""
    number = 0
    while number < len(versions):
        number, rows = versions.rows(number, BATCH_BYTES)
        yield rows


def _history(store: str | None, rows: Changes) -> pa.RecordBatch:
    """The rows of kv_history."""
    count = rows.count
    there = _is_zero(rows.deleted, count)
    valid_from = signed(fixed_array(pa.uint64(), rows.times, count))
    valid_to = signed(fixed_array(pa.uint64(), rows.next_times, count, bitmap(_is_zero(rows.is_last, count))))
    arrays = [
        pa.repeat(pa.scalar(store, pa.string()), count),
        _texts(rows.key_ends, rows.keys, count),
        fixed_array(pa.int64(), rows.numbers, count),
        _texts(rows.value_ends, rows.values, count, bitmap(there)),
        pc.invert(there),
        _timestamps(valid_from),
        _timestamps(valid_to),
        valid_from,
        valid_to,
        _sequences(rows),
        fixed_array(pa.int64(), rows.positions, count),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMAS["kv_history"])


def _state(store: str | None, rows: Changes) -> pa.RecordBatch:
    """The rows of kv_state: the last changes that are no deletions."""
    count = rows.count
    times = signed(fixed_array(pa.uint64(), rows.times, count))
    arrays = [
        pa.repeat(pa.scalar(store, pa.string()), count),
        _texts(rows.key_ends, rows.keys, count),
        _texts(rows.value_ends, rows.values, count),
        _timestamps(times),
        times,
        _sequences(rows),
        fixed_array(pa.int64(), rows.positions, count),
    ]
    found = pa.RecordBatch.from_arrays(arrays, schema=_SCHEMAS["kv_state"])
    exist = pc.and_not(_is_zero(rows.deleted, count), _is_zero(rows.is_last, count))
    return found if pc.all(exist).as_py() else found.filter(exist)


def _is_zero(flags: Any, count: int) -> pa.Array:
    return pc.equal(fixed_array(pa.uint8(), flags, count), 0)


def _texts(ends: Any, data: Any, count: int, validity: pa.Buffer | None = None) -> pa.Array:
    return binary_array(ends, data, count, validity).view(pa.string())


def _timestamps(nanoseconds: pa.Array) -> pa.Array:
    return pc.divide(nanoseconds, 1000).view(_TIME)


def _sequences(rows: Changes) -> pa.Array:
    found = fixed_array(pa.int64(), rows.sequences, rows.count)
    is_known = pc.greater_equal(found, 0)
    return found if pc.all(is_known).as_py() else pc.if_else(is_known, found, pa.scalar(None, pa.int64()))


# --- the saved state --------------------------------------------------------------------------------------------------


def _saved(rows: Changes, schema: pa.Schema) -> pa.RecordBatch:
    count = rows.count
    arrays = [
        _texts(rows.key_ends, rows.keys, count),
        _texts(rows.value_ends, rows.values, count),
        fixed_array(pa.uint8(), rows.deleted, count),
        fixed_array(pa.uint64(), rows.times, count),
        fixed_array(pa.int64(), rows.sequences, count),
        fixed_array(pa.int64(), rows.positions, count),
        fixed_array(pa.int64(), rows.numbers, count),
        fixed_array(pa.uint8(), rows.is_here, count),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _loaded(batch: pa.RecordBatch) -> Changes:
    return Changes(
        batch.num_rows,
        *ends_and_bytes(bytes_of("k", batch.column("k"))),
        *ends_and_bytes(bytes_of("o", batch.column("o"))),
        fixed_memory(batch.column("deleted"), 1),
        fixed_memory(batch.column("t"), 8),
        fixed_memory(batch.column("sequence"), 8),
        fixed_memory(batch.column("position"), 8),
        fixed_memory(batch.column("number"), 8),
        is_here=fixed_memory(batch.column("is_here"), 1),
    )
