"""A job for `spark-submit`, with the package as a zip: prints its path, and copies a journal, then again speculatively.

    spark-submit --py-files logwright.zip submitted.py SOURCE COPY SLOW_COPY EVENTS RESULT

EVENTS is a directory in which the attempts of the slow task report their progress to each other.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from logwright.spark import register

SECONDS = 300


def look(_: Iterable[int]) -> Iterator[list[Any]]:
    import logwright
    from logwright.core.bytes.compiled import COMPILED

    yield [logwright.__file__, COMPILED]


def save(frame: Any, target: str) -> None:
    frame.write.format("sej").option("shardBit", 1).mode("append").save(target)


def late(rows: Iterable[Any]) -> Iterator[Any]:
    """A step that delays the last row of the last task until another attempt of that task has reached it."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    held = None
    for row in rows:
        if held is not None:
            yield held
        held = row
    if context.partitionId() == last:
        Path(events, f"attempt {context.attemptNumber()}").touch()
        deadline = time.monotonic() + SECONDS
        while not Path(events, "attempt 1").exists():
            if time.monotonic() > deadline:
                raise TimeoutError("there was no second attempt")
            time.sleep(0.05)
    if held is not None:
        yield held


if __name__ == "__main__":
    source, copy, slow_copy, events, result = sys.argv[1:]
    spark = register(SparkSession.builder.getOrCreate())
    places = spark.sparkContext.parallelize(range(2), 2).mapPartitions(look).collect()
    frame = spark.read.format("sej").option("splitBytes", "150k").load(source)
    last = frame.rdd.getNumPartitions() - 1
    save(frame, copy)
    save(spark.createDataFrame(frame.rdd.mapPartitions(late), frame.schema), slow_copy)
    Path(result).write_text(json.dumps({"places": places, "tasks": last + 1}))
    spark.stop()
