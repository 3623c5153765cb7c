"""A Spark source that decodes nothing: the upper limit for a source in Python.

It returns a prepared batch repeatedly, until a task has as many rows as the same task of another source. The batch is
read from an Arrow file, so it has that source's schema, rows and bytes. No journal is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


def prepare(batch: pa.RecordBatch, path: Path) -> Path:
    """Write the batch that the source returns."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    return path


class PreparedReader(DataSourceReader):
    """Returns the batch; reads no journal."""

    def __init__(self, path: str, rows_of_tasks: list[int]) -> None:
        self.path = path
        self.rows_of_tasks = rows_of_tasks

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(rows) for rows in self.rows_of_tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(self.path) as file:
            batch = pa.ipc.open_file(file).get_batch(0)
        left: int = partition.value
        while left:
            part = batch if left >= batch.num_rows else batch.slice(0, left)
            yield part
            left -= part.num_rows


class PreparedSource(DataSource):
    """Options: `path` of the prepared batch, and `rows`, a JSON list with the number of rows of each task."""

    @classmethod
    def name(cls) -> str:
        return "prepared"

    def reader(self, schema: StructType) -> PreparedReader:
        return PreparedReader(self.options["path"], json.loads(self.options["rows"]))
