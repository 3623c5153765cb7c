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
change. If the record of a deletion is lost, the journal that begins without the key shows it: the key is deleted when
that begins, at the position 0. Times of more than 63 bits are null, and later than all others.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrow.columns import (
    binary_array,
    bitmap,
    bytes_of,
    constant,
    ends_and_bytes,
    filled,
    fixed_array,
    fixed_memory,
    numbered,
    signed,
)
from ...core.bytes.compiled import COMPILED
from ...core.read.columns import BATCH_BYTES
from ...core.read.materializer import Continued, Materializer, Materials, PartRows, Rows
from ...errors import WrongUse
from ..bytes.codec import encode_metadata
from ..bytes.layout import HEADER_BYTES
from ..bytes.records import Metadata
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

    @property
    def is_joining(self) -> bool:
        return True

    def joined(
        self, batch: pa.RecordBatch, counts: Sequence[int], now_ns: int, moment_ns: int | None
    ) -> Iterator[PartRows]:
        yield PartRows("kv_changes", _records(batch), numbered(counts))
        changes, befores = _changes(batch), batch.column("before")
        history, state = _Joined(), _Joined()
        follows, _ = _follows(batch, *_NO_END, [0, *accumulate(counts)][:-1])
        start = 0
        for part, count in enumerate(counts):
            versions = Versions()
            own = _some(changes, start, count)
            own.follows = follows[start : start + count]
            for closed in _closed(versions, own):
                history.add(part, closed)
            for rows in _rows(versions):
                history.add(part, rows)
                if moment_ns is None:
                    state.add(part, rows)
            if moment_ns is not None and _has_begun(pc.min(befores.slice(start, count)).as_py(), moment_ns):
                at_moment = Versions(max(0, moment_ns), closes=False)
                list(_closed(at_moment, own))
                for rows in _rows(at_moment):
                    state.add(part, rows)
            start += count
        names = batch.column("store").take(pa.array([0, *accumulate(counts)][:-1], pa.int64()))
        for table, joined, make in (("kv_history", history, _history), ("kv_state", state, _state)):
            if joined.count:
                parts, rows = joined.parts(), joined.changes()
                exist = None if table == "kv_history" else _exist(rows)
                found = make(names.take(parts), rows)
                yield PartRows(table, found, parts if exist is None else parts.filter(exist))


MATERIALS: Final = ChangeMaterials()

_NO_END: Final = (NO_SEQUENCE, 0)
"""The end of the record before the first one."""


class ChangeMaterializer(Materializer):
    """Makes the tables of one store."""

    def __init__(self, continued: Continued) -> None:
        moment = continued.moment_ns
        self._moment = moment
        self._has_records = continued.has_records
        self._store: str | None = None
        self._begins: int | None = None
        """The earliest time since which a journal was the active one."""
        self._end = _NO_END
        """The journal of the last record, and where that record ends."""
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
        if self._has_records:
            yield Rows("kv_changes", _records(batch))
        follows, self._end = _follows(batch, *self._end)
        changes = _changes(batch)
        changes.follows = follows
        for versions in self._all:
            for closed in _closed(versions, changes):
                yield Rows("kv_history", _history(self._stores(closed), closed))

    def _stores(self, rows: Changes) -> pa.Array:
        return constant(self._store, rows.count)

    def live(self, now_ns: int) -> Iterator[Rows]:
        for rows in _rows(self._last):
            yield Rows("kv_history", _history(self._stores(rows), rows))
            if self._at_moment is None:
                yield from self._state(rows)
        if self._at_moment is not None and _has_begun(self._begins, self._moment or 0):
            for rows in _rows(self._at_moment):
                yield from self._state(rows)

    def _state(self, rows: Changes) -> Iterator[Rows]:
        found = _state(self._stores(rows), rows)
        if found.num_rows:
            yield Rows("kv_state", found)

    def save(self, sink: pa.NativeFile) -> None:
        state = {"store": self._store, "moment": self._moment, "begins": self._begins, "end": self._end}
        for versions in self._all:
            state |= {"sequence": versions.sequence, "head": versions.head, "is_complete": versions.is_complete}
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
            self._end = tuple(state.get("end", self._end))
            versions.sequence, versions.head = state["sequence"], state["head"]
            versions.is_complete = state.get("is_complete", False)


# --- records ----------------------------------------------------------------------------------------------------------


def _records(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of kv_changes. Names are dictionaries."""
    names = _SCHEMAS["kv_changes"].names
    made = {"t_exact": _exact(batch.column("t")), "o": _values(batch)}
    made |= {name: batch.column(name) for name in ("store", "file")}
    arrays = [made[name] if name in made else COLUMNS.column(batch, name) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=names)


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


def _follows(
    batch: pa.RecordBatch, sequence: int, end: int, stores: Sequence[int] = ()
) -> tuple[memoryview, tuple[int, int]]:
    """For each record, whether it follows the preceding record of its journal, or the beginning of the journal, without
    a gap. Also the journal and the end of the last record.

    `sequence` is the journal of the record before this batch, and `end` is where that record ended; the rows in
    `stores` have no record before them, because another store begins there.
    """
    sequences = filled(batch.column("before"), NO_SEQUENCE)
    positions = batch.column("position").cast(pa.int64())
    ends = pc.add(positions, batch.column("size"))
    sequences_before, ends_before = _shifted(sequences, sequence), _shifted(ends, end)
    if len(stores) > 1:
        begins = pc.is_in(pa.arange(0, len(sequences)), pa.array(stores, pa.int64()))
        no_sequence, no_end = (pa.scalar(number, pa.int64()) for number in _NO_END)
        sequences_before = pc.if_else(begins, no_sequence, sequences_before)
        ends_before = pc.if_else(begins, no_end, ends_before)
    is_first = pc.not_equal(sequences, sequences_before)
    firsts = [_first_position(time) for time in sequences.filter(is_first).to_pylist()]
    wanted = pc.replace_with_mask(ends_before, is_first, pa.array(firsts, pa.int64()))
    follows = fixed_memory(pc.equal(positions, wanted).cast(pa.uint8()), 1)
    return follows, (sequences[-1].as_py(), ends[-1].as_py())


def _shifted(array: pa.Array, first: int) -> pa.Array:
    """The items of an array, each one place later."""
    return pa.concat_arrays([pa.array([first], pa.int64()), array[:-1]])


def _first_position(sequence: int) -> int:
    """Where the first entry of a journal is that became the active one at a time."""
    return HEADER_BYTES + len(encode_metadata(Metadata(max(0, sequence))))


# --- versions ---------------------------------------------------------------------------------------------------------


def _rows(versions: Versions) -> Iterator[Changes]:
    """The last changes of all keys, in pieces."""
    number = 0
    while number < len(versions):
        number, rows = versions.rows(number, BATCH_BYTES)
        yield rows


def _closed(versions: Versions, changes: Changes) -> Iterator[Changes]:
    """Add changes; those that they supersede, in pieces."""
    row = 0
    while row < changes.count:
        row, closed = versions.add(changes, row, BATCH_BYTES)
        if closed.count:
            yield closed


def _has_begun(begins: int | None, moment: int) -> bool:
    """Whether a store existed at a moment, by the earliest time since which a journal was the active one."""
    return begins is not None and begins <= moment


def _some(changes: Changes, start: int, count: int) -> Changes:
    """Some rows of changes that have the columns of records."""

    def part(column: Any, width: int, more: int = 0) -> memoryview:
        return memoryview(column)[width * start : width * (start + count + more)]

    return Changes(
        count,
        part(changes.key_ends, 4, 1),
        changes.keys,
        part(changes.value_ends, 4, 1),
        changes.values,
        part(changes.deleted, 1),
        *(part(column, 8) for column in (changes.times, changes.sequences, changes.positions)),
    )


class _Joined:
    """Changes of several stores, as the columns of one."""

    def __init__(self) -> None:
        self.count = 0
        self._counts: list[int] = []
        self._rows: list[Changes] = []

    def add(self, part: int, rows: Changes) -> None:
        """Add changes of the store of this number, which is not less than those before."""
        self._counts += [0] * (part + 1 - len(self._counts))
        self._counts[part] += rows.count
        self._rows.append(rows)
        self.count += rows.count

    def parts(self) -> pa.Array:
        """The number of the store of each row."""
        return numbered(self._counts)

    def changes(self) -> Changes:
        (key_ends, keys), (value_ends, values) = (
            _joined_texts([(rows.key_ends, rows.keys, rows.count) for rows in self._rows]),
            _joined_texts([(rows.value_ends, rows.values, rows.count) for rows in self._rows]),
        )
        names = ("deleted", "times", "sequences", "positions", "numbers", "next_times", "is_last")
        columns = [b"".join(memoryview(getattr(rows, name)) for rows in self._rows) for name in names]
        return Changes(self.count, key_ends, keys, value_ends, values, *columns)


def _joined_texts(columns: Sequence[tuple[Any, Any, int]]) -> tuple[bytes, bytes]:
    """The ends and bytes of columns of texts, one after the other."""
    ends = array("i", [0])
    for column, _, count in columns:
        before = ends[-1]
        with memoryview(column).cast("B") as view, view[4 : 4 * (count + 1)].cast("i") as own:
            ends.extend([before + end for end in own])
    return ends.tobytes(), b"".join(memoryview(data) for _, data, _ in columns)


def _history(stores: pa.Array, rows: Changes) -> pa.RecordBatch:
    """The rows of kv_history."""
    count = rows.count
    there = _is_zero(rows.deleted, count)
    valid_from = signed(fixed_array(pa.uint64(), rows.times, count))
    valid_to = signed(fixed_array(pa.uint64(), rows.next_times, count, bitmap(_is_zero(rows.is_last, count))))
    arrays = [
        stores,
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
    return pa.RecordBatch.from_arrays(arrays, names=_SCHEMAS["kv_history"].names)


def _state(stores: pa.Array, rows: Changes) -> pa.RecordBatch:
    """The rows of kv_state: the last changes that are no deletions."""
    count = rows.count
    times = signed(fixed_array(pa.uint64(), rows.times, count))
    arrays = [
        stores,
        _texts(rows.key_ends, rows.keys, count),
        _texts(rows.value_ends, rows.values, count),
        _timestamps(times),
        times,
        _sequences(rows),
        fixed_array(pa.int64(), rows.positions, count),
    ]
    found = pa.RecordBatch.from_arrays(arrays, names=_SCHEMAS["kv_state"].names)
    exist = _exist(rows)
    return found if pc.all(exist).as_py() else found.filter(exist)


def _exist(rows: Changes) -> pa.Array:
    """Which rows are those of keys that exist."""
    return pc.and_not(_is_zero(rows.deleted, rows.count), _is_zero(rows.is_last, rows.count))


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
