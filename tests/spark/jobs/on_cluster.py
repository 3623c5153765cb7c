"""A driver whose tasks run on a cluster, with the package in an environment that it has shipped there.

python on_cluster.py MASTER ARCHIVE
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from serving import serve

from logwright.spark import session

SECONDS = 300
PAUSE_BEFORE_ROW = 60


def where() -> list[list[Any]]:
    """The properties of the package in two tasks on different machines."""

    def look(_: Iterable[int]) -> Iterator[list[Any]]:
        import logwright
        from logwright.core.bytes.compiled import COMPILED

        yield [logwright.__file__, COMPILED, sys.executable]

    found: list[list[Any]] = spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(look).collect()
    return found


def read(path: str, result: str, split: str) -> int:
    """Store a journal's rows as Spark reads them; the number of tasks."""
    frame = spark.read.format("sej").option("splitBytes", split).load(path)
    Path(result).write_bytes(pickle.dumps([tuple(row) for row in frame.collect()]))
    tasks: int = frame.rdd.getNumPartitions()
    return tasks


def stream(path: str, table: str, checkpoint: str, limit: int) -> list[int]:
    """Read all existing records as a stream into Parquet; the number of rows of each batch."""
    rows = spark.readStream.format("sej").option("maxRecordsPerTrigger", limit).load(path)
    writing = rows.writeStream.format("parquet").option("path", table).option("checkpointLocation", checkpoint)
    query = writing.trigger(availableNow=True).start()
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def write(source: str, target: str, split: str, bit: int, marker: str = "") -> None:
    """Write a journal's messages to another one. With a marker the second task pauses while it is staging."""
    frame = spark.read.format("sej").option("splitBytes", split).load(source)
    if marker:
        frame = spark.createDataFrame(frame.rdd.mapPartitions(pausing(target, marker)), frame.schema)
    frame.write.format("sej").option("shardBit", bit).option("segmentSize", "64k").mode("append").save(target)


def pausing(target: str, marker: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A step whose second task, at the first attempt, waits to be killed once the following sink has begun to stage.

    By then it has returned enough rows for some of them to have left the buffers in between.
    """

    def step(rows: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        waiting = context.partitionId() == 1 and context.attemptNumber() == 0
        staging = Path(target, ".logwright", "staging")
        for number, row in enumerate(rows):
            if waiting and number == PAUSE_BEFORE_ROW:
                wait_until(lambda: any(staging.glob("*.000001-*.staged")))
                wait_to_be_killed(marker)
            yield row
        assert not waiting, "there were too few rows"

    return step


def wait_to_be_killed(marker: str) -> None:
    """Wait, and name the process to kill in the marker: this process is the child of a child of the executor."""
    status = Path(f"/proc/{os.getppid()}/stat").read_text()
    Path(marker + ".new").write_text(status.rpartition(")")[2].split()[1])
    Path(marker + ".new").rename(marker)
    wait_until(lambda: False)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("nothing has happened")
        time.sleep(0.05)


def pipeline(journals: str, out: str, marker: str) -> int:
    """Run the pipeline; the number of records. The first attempt of a task waits after it has written its files."""
    from logwright.pipeline import Settings, job
    from logwright.pipeline.run import run

    class PausingReader(job.IngestReader):
        def read(self, partition: Any) -> Iterator[tuple[bytes]]:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            for row in super().read(partition):
                if context.partitionId() == 1 and context.attemptNumber() == 0:
                    wait_to_be_killed(marker)
                yield row

    class PausingSource(job.IngestSource):
        def reader(self, schema: Any) -> PausingReader:
            return PausingReader(self.options["assignment"], self.options["works"])

    with mock.patch.object(job, "IngestSource", PausingSource):
        return run(Settings(journals, out, split_bytes=2000, local_bytes=1), spark).records


if __name__ == "__main__":
    master, archive, settings = sys.argv[1:]
    spark = session(
        master,
        spark_archives=f"{archive}#environment",
        spark_sql_execution_arrow_maxRecordsPerBatch="20",
        spark_sql_session_timeZone="UTC",
        **json.loads(settings),
    )
    serve({"where": where, "read": read, "stream": stream, "write": write, "pipeline": pipeline})
    spark.stop()
