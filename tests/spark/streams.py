"""Streams as Spark drives them: the contents of a batch without a query, and queries with a deadline."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from logwright.spark.schemas import spark_schema
from logwright.spark.stream import JournalStream

WAIT_SECONDS = 120

Offset = dict[str, Any]


def stream_of(format: str, path: Path, **options: str) -> JournalStream:
    """The stream of a path; names of options are in lower case, as Spark passes them."""
    given = {"path": str(path), **{name.lower(): value for name, value in options.items()}}
    return JournalStream(spark_schema(format), given, format)


def read_batch(stream: JournalStream, start: Offset, end: Offset) -> Iterator[pa.RecordBatch]:
    """The contents of one batch, read by tasks whose state was pickled."""
    for partition in stream.partitions(start, end):
        reader, task = pickle.loads(pickle.dumps((stream, partition)))
        yield from reader.read(task)


def following(stream: JournalStream, start: Offset) -> Offset:
    """The end of the next batch, in JSON, as Spark stores it."""
    end: Offset = json.loads(json.dumps(stream.latestOffset(start, stream.getDefaultReadLimit())))
    return end


def catch_up(query: Any) -> None:
    """Wait until a query has read everything or fails, up to a deadline."""
    deadline = threading.Timer(WAIT_SECONDS, query.stop)
    deadline.start()
    try:
        query.processAllAvailable()
    finally:
        deadline.cancel()
        deadline.join()
    assert query.isActive, "it has not caught up in time"
