"""Data files are written with bounded memory, however many partitions a table has, and their rows can be counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from logwright.pipeline import parquet, progress
from logwright.pipeline.parquet import TableSink, Target
from logwright.pipeline.progress import WrittenRows

SCHEMA = pa.schema([("number", pa.int64()), ("data", pa.binary())])


def test_rows_that_wait_are_limited_for_all_partitions_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 10_000)
    sink = TableSink(Target("numbers", fs.LocalFileSystem(), str(tmp_path), SCHEMA, ("number",), 1))
    most = 0
    for turn in range(50):
        numbers = list(range(turn % 7, 100))
        sink.add(pa.RecordBatch.from_arrays([pa.array(numbers), pa.array([b"v" * 20] * len(numbers))], schema=SCHEMA))
        most = max(most, sum(file.waiting_bytes for file in sink._files.values()))
    assert 5_000 < most < 10_000
    files = sink.finish()
    assert (len(files), sum(file.rows for file in files.values())) == (100, sum(100 - turn % 7 for turn in range(50)))
    for (number,), file in files.items():
        read = pq.read_table(tmp_path / file.name, partitioning=None)
        assert (read.num_rows, file.partition) == (file.rows, {"number": number})


def test_progress_counts_the_rows_of_files_that_are_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LIST_SECONDS", 0.0)
    target = Target("numbers", fs.LocalFileSystem(), str(tmp_path / "numbers"), SCHEMA, (), 2)
    written = WrittenRows(target)
    assert written.count() is None, "the directory does not exist yet"
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2, 3]), pa.array([b"v"] * 3)], schema=SCHEMA)
    first, second, other = TableSink(target), TableSink(target), TableSink(replace(target, batch=1))
    for sink in (first, second, other):
        sink.add(rows)
        (file,) = sink._files.values()
        file.write()
    assert written.count() is None, "no file is complete"
    first.finish()
    other.finish()
    assert written.count() == 3
    second.finish()
    assert written.count() == 6
