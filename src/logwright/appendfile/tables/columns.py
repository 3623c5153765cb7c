"""Records <-> Arrow: the schema of appendfile, the kernel's columns as record batches, and record batches as columns.

    kind       dictionary of string: data, checkpoint
    segment    uint64: the segment of the record; for a checkpoint the one that it begins
    data       binary                      checked    uint64                      current    uint64
    generation uint64: the boundary after files that wait to be recovered, null for current files
    lost       bool: whether a repair has removed other records of its segment

and on request

    file       dictionary of string        position   uint64, in that file        size       int64, of the record
    file_id    uint64, the number in the name of that file
    boundary   uint64, the boundary before the generation of that file: the id of its first file; 0 if it is not known

Fields that a record does not have are null. When written, rows without a column `kind` are data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrow.columns import (
    NAMES,
    SAMPLE_ROWS,
    GatheringCollector,
    allocate,
    batch_of,
    binary_array,
    bitmap,
    bytes_of,
    chosen_schema,
    column_of,
    ends_and_bytes,
    filled,
    fitting,
    fixed_array,
    fixed_memory,
    kind_numbers_of,
    kinds_of,
    numbers_of,
    record_batches,
    row_without,
)
from ...core.read.columns import BATCH_BYTES
from ...errors import WrongUse
from ..bytes import codec, kernel
from ..bytes.codec import Columns
from ..bytes.layout import CHECKPOINT, DATA
from ..bytes.records import KINDS
from ..files.cursor import Chunk
from ..files.files import CURRENT

_FIELDS: Final = {
    "kind": pa.field("kind", NAMES, nullable=False),
    "segment": pa.field("segment", pa.uint64(), nullable=False),
    "data": pa.field("data", pa.binary()),
    "checked": pa.field("checked", pa.uint64()),
    "current": pa.field("current", pa.uint64()),
    "generation": pa.field("generation", pa.uint64()),
    "lost": pa.field("lost", pa.bool_(), nullable=False),
    "file": pa.field("file", NAMES, nullable=False),
    "position": pa.field("position", pa.uint64(), nullable=False),
    "size": pa.field("size", pa.int64(), nullable=False),
    "file_id": pa.field("file_id", pa.uint64(), nullable=False),
    "boundary": pa.field("boundary", pa.uint64(), nullable=False),
}
COLUMN_NAMES: Final = tuple(_FIELDS)
DEFAULT_NAMES: Final = ("kind", "segment", "data", "checked", "current", "generation", "lost")

_WANT: Final = {
    "kind": codec.KINDS,
    "segment": codec.SEGMENTS,
    "data": codec.KINDS | codec.PAYLOADS,
    "checked": codec.KINDS | codec.CHECKED,
    "current": codec.KINDS | codec.CURRENT,
    "position": codec.POSITIONS,
    "size": codec.SIZES,
    "generation": codec.SIZES,
    "lost": codec.SEGMENTS,
    "file": codec.SIZES,
    "file_id": codec.SIZES,
    "boundary": codec.SIZES,
}
"""What to decode for a column: which record has it, its kind says."""
_ROW_BYTES: Final = {
    "kind": 1, "segment": 8, "data": 5, "checked": 9, "current": 9, "generation": 9, "lost": 1,
    "file": 4, "position": 8, "size": 8, "file_id": 8, "boundary": 8,
}  # fmt: skip
Lost: TypeAlias = tuple[tuple[int, int], ...]
"""The segments of a generation that have lost records: the first and the last of each range."""
_KIND_OF: Final = {"data": DATA, "checked": CHECKPOINT, "current": CHECKPOINT}


def schema(names: Sequence[str] | None = None, *, sharded: bool = False) -> pa.Schema:
    """The Arrow schema of these columns, in this order; of the default columns without names."""
    return chosen_schema("appendfile", _FIELDS, DEFAULT_NAMES if names is None else names)


# --- columns to batches -----------------------------------------------------------------------------------------------


def to_batch(columns: Columns, wanted: pa.Schema, names: dict[str, pa.Array] | None = None) -> pa.RecordBatch:
    """The kernel's columns as a record batch, without copying; `names` has the columns that are not from records."""
    kinds = None if columns.kinds is None else fixed_array(pa.int8(), columns.kinds, columns.count)
    return batch_of(wanted, names or {}, lambda name: _array(columns, kinds, name))


def _array(columns: Columns, kinds: pa.Array | None, name: str) -> pa.Array:
    count, kind = columns.count, _FIELDS[name].type
    plain = {"segment": columns.segments, "position": columns.positions, "size": columns.sizes}
    if name in plain:
        return fixed_array(kind, plain[name], count)
    if kinds is None:
        raise WrongUse(f"column {name} was not decoded")
    if name == "kind":
        return pa.DictionaryArray.from_arrays(kinds.cast(pa.int32()), pa.array(KINDS, pa.string()))
    validity = bitmap(pc.equal(kinds, _KIND_OF[name]))
    if name == "data":
        return binary_array(columns.data_ends, columns.data, count, validity)
    return fixed_array(kind, columns.checked if name == "checked" else columns.current, count, validity)


def _lost(columns: Columns, losses: list[tuple[Lost, int]]) -> pa.Array:
    """Which rows belong to segments that have lost records, by their files."""
    if not any(lost for lost, _ in losses):  # as nearly always
        return pa.repeat(False, columns.count)
    segments, row = fixed_array(pa.uint64(), columns.segments, columns.count), 0
    found = []
    for lost, count in losses:
        own = segments.slice(row, count)
        is_lost = pa.repeat(False, count)
        for first, last in lost:
            is_lost = pc.or_(is_lost, pc.and_(pc.greater_equal(own, _id(first)), pc.less_equal(own, _id(last))))
        found.append(is_lost)
        row += count
    return pa.concat_arrays(found)


def _id(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint64())


_OF_FILES: Final[dict[str, Callable[[Chunk, str], Any]]] = {
    "generation": lambda chunk, _: chunk.source.put_aside,
    "file": lambda chunk, _: chunk.file,
    "file_id": lambda chunk, _: chunk.source.file_id,
    "boundary": lambda chunk, _: chunk.source.boundary,
}
"""Columns that all records of a file have in common."""


class Collector(GatheringCollector[Chunk, kernel.BatchBuilder]):
    """Makes record batches of about `batch_bytes` from chunks."""

    def __init__(
        self, names: Sequence[str] | None = None, *, sharded: bool = False, batch_bytes: int = BATCH_BYTES
    ) -> None:
        super().__init__(schema(names, sharded=sharded), _WANT, _ROW_BYTES, _OF_FILES, batch_bytes)
        self._segment = 0
        self._losses: list[tuple[Lost, int]] = []
        """The segments that have lost records in the file of rows that were gathered, and how many rows those are."""

    def _gather(self, builder: kernel.BatchBuilder, chunk: Chunk, position: int, left: int) -> tuple[int, int]:
        segment = chunk.segment if position == chunk.start else self._segment
        position, added, self._segment = builder.add(chunk.data, position, chunk.stop, left, segment, chunk.base)
        self._losses.append((chunk.source.lost + chunk.source.damaged, added))
        return position, added

    def _to_batch(self, columns: Columns, given: dict[str, pa.Array]) -> pa.RecordBatch:
        losses, self._losses = self._losses, []
        if "lost" in self.schema.names:
            given = {**given, "lost": _lost(columns, losses)}
        return to_batch(columns, self.schema, given)

    def _begin(self, chunk: Chunk, position: int, left: int) -> kernel.BatchBuilder:
        sampled = min(left, SAMPLE_ROWS)
        sample = kernel.columns(chunk.data, position, chunk.stop, sampled, 0, self._want & codec.PAYLOADS)
        return kernel.BatchBuilder(self._want, *self._sized(sample.data, sampled, chunk.stop - position), allocate)


# --- batches to columns -----------------------------------------------------------------------------------------------


def as_messages(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The data of a batch as what every format of messages takes: `value`, with no time. Checkpoints are left out."""
    items = batch.filter(pc.is_valid(batch.column("data")))
    return pa.RecordBatch.from_pydict(
        {"value": items.column("data"), "timestamp": pa.nulls(items.num_rows, pa.timestamp("ns", tz="UTC"))}
    )


def from_arrow(data: Any) -> list[Columns]:
    """Arrow data as columns for `Writer.append_columns`, without copying where the types fit.

    Data is in `data`, or in `value`; null in a row of data is an error. `kind` names what a row is; without it all are
    data. A checkpoint needs `checked` and `current`. Columns never hold rows of more than one `generation`, nor such
    with `lost` and others.
    """
    return [part for batch in record_batches(data) for part in _from_batch(batch)]


def _from_batch(batch: pa.RecordBatch) -> Iterator[Columns]:
    kinds = kinds_of(batch, "kind", KINDS, DATA, "is neither data nor checkpoint")

    def check(name: str, array: pa.Array) -> None:
        row = row_without(array, kinds, pa.array([_KIND_OF[name]], pa.int8()))
        if row is not None:
            raise WrongUse(f"row {row}: a record of kind {KINDS[_KIND_OF[name]]} needs {name}")

    found = column_of(batch, "data", "value")
    payloads = bytes_of("data", pa.nulls(batch.num_rows, pa.binary()) if found is None else found)
    check("data", payloads)
    payloads = filled(payloads, b"")
    ids = {
        name: kind_numbers_of(batch, name, pa.uint64(), "be an id of 64 bits", check) for name in ("checked", "current")
    }
    for row, count, generation, lost in _ranges(batch, payloads):
        columns = Columns(count, generation=generation, lost=lost)
        columns.kinds = fixed_memory(kinds.slice(row, count), 1)
        columns.data_ends, columns.data = ends_and_bytes(payloads.slice(row, count))
        for name, array in ids.items():
            if array is not None:
                setattr(columns, name, fixed_memory(array.slice(row, count), 8))
        yield columns


def _ranges(batch: pa.RecordBatch, payloads: pa.Array) -> Iterator[tuple[int, int, int | None, bool]]:
    """Ranges of rows that fit into columns: the first row, how many, their generation if known, and `lost`."""
    generations = column_of(batch, "generation")
    if generations is not None:
        generations = numbers_of("generation", generations, pa.uint64(), "be an id of 64 bits")
    lost = column_of(batch, "lost")
    if lost is not None and not pa.types.is_boolean(lost.type):
        raise WrongUse(f"column lost must be boolean, not {lost.type}")
    row = 0
    for end, (generation, is_lost) in _common_runs(batch.num_rows, generations, lost):
        known = None if generations is None else CURRENT if generation is None else generation
        while row < end:
            count = min(fitting(payloads, row), end - row)
            yield row, count, known, bool(is_lost)
            row += count


def _common_runs(rows: int, *columns: pa.Array | None) -> Iterator[tuple[int, list[Any]]]:
    """Ranges of rows in which no column changes: where each ends, and what the columns have there."""
    runs = [None if column is None or not rows else pc.run_end_encode(column) for column in columns]
    ends = sorted({rows, *(end for run in runs if run is not None for end in run.run_ends.to_pylist())})
    for end in ends:
        yield end, [None if run is None else run[end - 1].as_py() for run in runs]
