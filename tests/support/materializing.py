"""Journals as the rows of tables, by a materializer that is stopped and continued at random places."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from logwright.core.arrow.columns import without_dictionaries
from logwright.core.bytes.outcome import Damage
from logwright.core.format import Format
from logwright.core.io.disk import REAL_DISK, Disk
from logwright.core.read.materializer import Continued, Materializer, Materials, Rows

Row = dict[str, Any]
Tables = dict[str, list[Row]]


def materials_of(format: Format) -> Materials:
    found = format.materials
    assert found is not None
    assert next(iter(found.schemas)) == found.record_table
    return found


def batches_of(
    format: Format,
    path: Path,
    part: str = "",
    start: int | None = None,
    stop: int | None = None,
    *,
    batch_bytes: int = 1 << 20,
) -> list[pa.RecordBatch]:
    """The records of a part, in the columns that the format's materializer accepts."""
    reader, collector = (
        format.open(path),
        format.columns.collector(materials_of(format).sources, batch_bytes=batch_bytes),
    )
    found: list[pa.RecordBatch] = []
    low, high = (None if bound is None else {part: bound} for bound in (start, stop))
    for split in format.splits.plan(reader, start=low, stop=high, resumed=start is not None):
        for item in format.splits.chunks(reader, split, "permissive") if split.part == part else ():
            if not isinstance(item, Damage):
                found += collector.add(item, part)
    return [*found, *collector.finish()]


def record_rows(format: Format, path: Path, *, disk: Disk = REAL_DISK, batch_bytes: int = 1 << 20) -> pa.Table:
    """The rows of the record table of a journal, of all its parts."""
    reader, materials = format.open(path, disk=disk), materials_of(format)
    collector = format.columns.collector(materials.sources, batch_bytes=batch_bytes)
    found: list[pa.RecordBatch] = []
    for split in format.splits.plan(reader):
        batches = [
            batch
            for item in format.splits.chunks(reader, split, "dropmalformed")
            for batch in collector.add(item, split.part)
        ]
        with materials.materializer(Continued(split.part, None, path)) as materializer:
            for batch in (*batches, *collector.finish()):
                found += [rows for table, rows in materializer.add(batch) if table == materials.record_table]
    schema = materials.schemas[materials.record_table]
    return pa.Table.from_batches([without_dictionaries(rows, schema) for rows in found], schema)


def sliced(batches: Iterable[pa.RecordBatch], rng: random.Random) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of random sizes, some of them empty."""
    for batch in batches:
        row = 0
        while row < batch.num_rows:
            rows = rng.choice((0, 1, 2, 3, 10, 100, 10_000))
            yield batch.slice(row, rows)
            row += rows


class Increments:
    """Processes the rows of a part in increments, each by a materializer that continues from the last saved state."""

    def __init__(self, materials: Materials, scratch: Path, part: str = "", moment_ns: int | None = None) -> None:
        self.materials = materials
        self.closed: Tables = defaultdict(list)
        self._scratch = scratch
        self._part = part
        self._moment_ns = moment_ns
        self._saved: pa.Buffer | None = None

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Process an increment of final records, and collect their closed rows."""
        with self.open() as materializer:
            for batch in batches:
                self._gather(materializer.add(batch), self.closed)
            sink = pa.BufferOutputStream()
            materializer.save(sink)
            self._saved = sink.getvalue()

    def tables(self, now_ns: int = 0, provisional: Iterable[pa.RecordBatch] = ()) -> Tables:
        """The closed rows so far, and the live rows, including those of provisional records."""
        found = {table: list(rows) for table, rows in self.closed.items()}
        for table in self.materials.schemas:
            found.setdefault(table, [])
        with self.open() as materializer:
            for batch in provisional:
                self._gather(materializer.add(batch), found)
            self._gather(materializer.live(now_ns), found)
        return found

    def open(self) -> Materializer:
        """A materializer that continues from the last saved state."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        saved = None if self._saved is None else pa.BufferReader(self._saved)
        return self.materials.materializer(Continued(self._part, saved, self._scratch, self._moment_ns))

    def _gather(self, rows: Iterable[Rows], into: Tables) -> None:
        for table, batch in rows:
            assert batch.schema.names == self.materials.schemas[table].names
            batch = without_dictionaries(batch, self.materials.schemas[table])  # checks the types
            batch.validate(full=True)
            into.setdefault(table, []).extend(batch.to_pylist())


def check_increments(
    materials: Materials,
    batches: list[pa.RecordBatch],
    scratch: Path,
    rng: random.Random,
    expected: Callable[[int], Tables],
    part: str = "",
) -> None:
    """Check the tables after each of some random cuts; `expected` returns those of the first n rows of batches.

    Rows are compared without order, and each closed row must also exist at the end.
    """
    increments = Increments(materials, scratch, part)
    rows = 0
    gathered: list[pa.RecordBatch] = []
    pieces = [*sliced(batches, rng), None]
    for piece in pieces:
        if piece is not None:
            gathered.append(piece)
            rows += piece.num_rows
            if rng.random() < 0.7:
                continue
        increments.add(gathered)
        gathered = []
        assert sorted_tables(increments.tables()) == sorted_tables(expected(rows)), f"after {rows} rows"
    last = sorted_tables(expected(rows))
    for table, closed in sorted_tables(increments.closed).items():
        assert all(row in last[table] for row in closed), table


def sorted_tables(tables: Tables) -> Tables:
    """Tables whose rows are sorted by their contents."""
    return {table: sorted(rows, key=lambda row: repr(sorted(row.items()))) for table, rows in tables.items()}
