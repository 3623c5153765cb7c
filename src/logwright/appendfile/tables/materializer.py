"""The tables of appendfile: `segment_records`, a row for every record, and `segments`, what the records add up to.

`segment_records` has the columns

    kind, segment, data, checked, current       as in the source `appendfile` on Spark
    lost                            whether a repair had removed other records of the segment
    file, position, size            where the record was when it was read; a recovery may move the file later
    sequence                        the id of the file

An id of 2^63 or more is the negative number with the same 64 bits.

`segments` has the columns

    generation, segment             which one
    complete                        whether a checkpoint has closed it, and none of its records are known to be missing
    checked                         whether it was checked, so that a recovery does not return it
    records, bytes                  the number of its data records, and of their bytes
    first_file, first_position      where it begins
    last_file, last_position        its last record

`generation` is null for segments written since the journal was last opened. For segments that a recovery has put aside
together it is the id of the file after them; a segment that was checked before stays without. Ids of segments keep
increasing across generations, but the last segment of a generation, which no checkpoint has closed, may have the same
id as the first one of the next.

A segment never changes again once a checkpoint says that it was checked, or records of a later generation have been
read: then its row is closed. It does not matter whether its files are removed before or after that. If its first files
were removed before they were read, the row describes the remaining ones. If others were, it is not complete. Segments
without data are left out unless the next one has closed them, and so are segments with ids of more than 63 bits.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...core.arrow.columns import MOST_SIGNED, batch_of_rows
from ...core.read.materializer import Continued, Materializer, Materials, Rows
from .columns import COLUMN_NAMES
from .spark_columns import COLUMNS, TYPED

RECORDS: Final = "segment_records"
SEGMENTS: Final = "segments"
_IDS: Final = {"segment": "segment", "checked": "checked", "current": "current", "sequence": "file_id"}
"""Ids, and the own columns that have them."""
_RECORDS: Final = pa.schema(
    [
        *TYPED,
        ("lost", pa.bool_()),
        ("file", pa.string()),
        ("position", pa.int64()),
        ("size", pa.int32()),
        ("sequence", pa.int64()),
    ]
)
_SEGMENTS: Final = pa.schema(
    [
        ("generation", pa.int64()),
        ("segment", pa.int64()),
        ("complete", pa.bool_()),
        ("checked", pa.bool_()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("first_file", pa.string()),
        ("first_position", pa.int64()),
        ("last_file", pa.string()),
        ("last_position", pa.int64()),
    ]
)


class SegmentMaterials(Materials):
    """The tables of journals with checkpoints."""

    record_table = RECORDS

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {RECORDS: _RECORDS, SEGMENTS: _SEGMENTS}

    @property
    def sources(self) -> Sequence[str]:
        return COLUMN_NAMES

    def materializer(self, continued: Continued) -> SegmentMaterializer:
        return SegmentMaterializer(continued.saved)


MATERIALS: Final = SegmentMaterials()


# --- segments ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Segment:
    """What is known of a segment."""

    id: int
    records: int
    bytes: int
    is_complete: bool
    """Whether no records are known to be missing so far."""
    is_open: bool
    first_file: str
    first_position: int
    last_file: str
    last_position: int


_SAVED: Final = pa.schema(
    [
        ("id", pa.uint64()),
        *(_SEGMENTS.field(name) for name in ("records", "bytes")),
        ("is_complete", pa.bool_()),
        ("is_open", pa.bool_()),
        *(_SEGMENTS.field(name) for name in ("first_file", "first_position", "last_file", "last_position")),
    ]
)
"""The columns of a saved state: the fields of segments."""
_fields_of: Final = attrgetter(*_SAVED.names)
assert _SAVED.names == [field.name for field in fields(_Segment)]


class _Piece(NamedTuple):
    """Consecutive records of one segment in one file."""

    segment: int
    generation: int | None
    boundary: int
    file_id: int
    file: str
    first_position: int
    last_position: int
    records: int
    bytes: int
    lost: int
    checked: int
    """The largest id up to which segments are checked by the checkpoints among them; 0 for none."""


def _pieces(batch: pa.RecordBatch) -> Iterator[_Piece]:
    """The records of a batch in pieces."""
    rows = batch.num_rows
    if not rows:
        return
    segments, files = batch.column("segment"), batch.column("file_id")
    ends = pa.concat_arrays([_changes(segments, files), pa.array([rows], pa.uint64())])
    lasts = pc.subtract(ends, pa.scalar(1, pa.uint64()))
    firsts = pa.concat_arrays([pa.array([0], pa.uint64()), ends.slice(0, len(ends) - 1)])
    sizes = pc.fill_null(pc.binary_length(batch.column("data")), 0)
    totals = (_totals(array, lasts) for array in (batch.column("data").is_valid(), sizes, batch.column("lost")))
    taken = (batch.column(name).take(lasts).to_pylist() for name in ("generation", "boundary", "file_id"))
    names = batch.column("file")
    names_taken = map(names.dictionary.to_pylist().__getitem__, names.indices.take(lasts).to_pylist())
    places = (batch.column("position").take(index).to_pylist() for index in (firsts, lasts))
    checks = _checks(batch.column("checked"), lasts.to_pylist())
    columns = zip(segments.take(lasts).to_pylist(), *taken, names_taken, *places, *totals, checks, strict=True)
    yield from map(_Piece._make, columns)


def _changes(*columns: pa.Array) -> pa.Array:
    """The rows that differ from the preceding one in any of these columns."""
    found = [pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)) for column in columns]
    differs = found[0]
    for each in found[1:]:
        differs = pc.or_(differs, each)
    return pc.add(pc.indices_nonzero(differs), pa.scalar(1, pa.uint64()))


def _totals(numbers: pa.Array, lasts: pa.Array) -> Iterator[int]:
    """The sum of numbers in each piece."""
    before = 0
    for total in pc.cumulative_sum(numbers.cast(pa.int64())).take(lasts).to_pylist():
        yield total - before
        before = total


def _checks(checked: pa.Array, lasts: list[int]) -> Iterator[int]:
    """The largest of these ids in each piece."""
    is_checkpoint = checked.is_valid()
    rows = pc.indices_nonzero(is_checkpoint).to_pylist()
    ids = checked.filter(is_checkpoint).to_pylist()
    at = 0
    for last in lasts:
        largest = 0
        while at < len(rows) and rows[at] <= last:
            largest = max(largest, ids[at])
            at += 1
        yield largest


class _Generation:
    """The segments of the generation that is being read, as far as they may change.

    Ids only grow. If they do not, because some are wrong, a segment is what is between two changes of the id, and it
    is checked if any checkpoint of the generation says so.
    """

    def __init__(self) -> None:
        self.label: int | None = None
        """The boundary after it; None for the one that is being written."""
        self.checked = 0
        self.last_file: int | None = None
        self.open: _Segment | None = None
        self._closed: list[tuple[int, int, _Segment]] = []
        """Segments that are not checked, as a heap, by their ids and then in order."""
        self._count = 0

    def __iter__(self) -> Iterator[_Segment]:
        """All segments, in order."""
        yield from (segment for _, _, segment in sorted(self._closed, key=lambda item: item[1]))
        if self.open is not None:
            yield self.open

    def add(self, piece: _Piece) -> Iterator[_Segment]:
        """Take the next records; the segments that are checked now."""
        found = self.open
        if found is not None and self.last_file is not None and piece.file_id > self.last_file + 1:
            found.is_complete = False  # the files in between were removed before they were read
        if found is None or found.id != piece.segment:
            if found is not None:
                self.close(found, piece.segment)
            place = (piece.file, piece.first_position)
            found = self.open = _Segment(piece.segment, 0, 0, True, True, *place, *place)
        found.records += piece.records
        found.bytes += piece.bytes
        found.is_complete &= not piece.lost
        found.last_file, found.last_position = piece.file, piece.last_position
        self.last_file, self.label = piece.file_id, piece.generation
        self.checked = max(self.checked, piece.checked)
        while self._closed and self._closed[0][0] < self.checked:
            yield heapq.heappop(self._closed)[2]

    def close(self, segment: _Segment, following: int) -> None:
        """The next segment begins after a segment."""
        segment.is_open = False
        if following != segment.id + 1:
            segment.is_complete = False
            if not segment.records:
                return
        self.keep(segment)

    def keep(self, segment: _Segment) -> None:
        """Keep a closed segment until it is checked."""
        heapq.heappush(self._closed, (segment.id, self._count, segment))
        self._count += 1


# --- tables -----------------------------------------------------------------------------------------------------------


class SegmentMaterializer(Materializer):
    """Makes the tables of one journal."""

    def __init__(self, saved: pa.NativeFile | None) -> None:
        self._generation = _Generation()
        if saved is not None:
            self._load(saved)

    def add(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        if not batch.num_rows:
            return
        yield Rows(RECORDS, _record_rows(batch))
        closed = [row for piece in _pieces(batch) for row in self._closed_by(piece)]
        if closed:
            yield Rows(SEGMENTS, _segment_rows(closed))

    def _closed_by(self, piece: _Piece) -> Iterator[_Row]:
        """The rows that are closed by the next records."""
        old = self._generation
        if old.last_file is not None and piece.boundary > old.last_file:
            label = piece.boundary if old.label is None else old.label
            yield from (_Row(label, segment, False) for segment in old)
            self._generation = _Generation()
        for segment in self._generation.add(piece):
            yield _Row(piece.generation, segment, True)

    def live(self, now_ns: int) -> Iterator[Rows]:
        generation = self._generation
        rows = [_Row(generation.label, segment, False) for segment in generation]
        if rows:
            yield Rows(SEGMENTS, _segment_rows(rows))

    def save(self, sink: pa.NativeFile) -> None:
        generation = self._generation
        numbers = {"label": generation.label, "checked": generation.checked, "last_file": generation.last_file}
        schema = _SAVED.with_metadata({"state": json.dumps(numbers)})
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(batch_of_rows(schema, list(map(_fields_of, generation))))

    def _load(self, saved: pa.NativeFile) -> None:
        generation = self._generation
        with pa.ipc.open_stream(saved) as reader:
            numbers = json.loads(reader.schema.metadata[b"state"])
            generation.label, generation.checked = numbers["label"], numbers["checked"]
            generation.last_file = numbers["last_file"]
            for batch in reader:
                for fields in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    segment = _Segment(*fields)
                    if segment.is_open:
                        generation.open = segment
                    else:
                        generation.keep(segment)


class _Row(NamedTuple):
    """A row of the table of segments."""

    generation: int | None
    segment: _Segment
    is_checked: bool


def _segment_rows(rows: Iterable[_Row]) -> pa.RecordBatch:
    found = [
        (
            generation if generation is None or generation <= MOST_SIGNED else None,
            segment.id,
            segment.is_complete and not segment.is_open,
            is_checked,
            segment.records,
            segment.bytes,
            segment.first_file,
            segment.first_position,
            segment.last_file,
            segment.last_position,
        )
        for generation, segment, is_checked in rows
        if segment.id <= MOST_SIGNED and (segment.records or not segment.is_open)
    ]
    return batch_of_rows(_SEGMENTS, found)


def _record_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_column(batch, name) for name in _RECORDS.names], schema=_RECORDS)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name in _IDS:
        return batch.column(_IDS[name]).view(pa.int64())
    return batch.column(name) if name == "lost" else COLUMNS.column(batch, name)
