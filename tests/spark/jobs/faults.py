"""A driver for failures of a sink: failing tasks, traps in commits, full disks.

    python faults.py DIRECTORY

See `serving.py` for its requests. A failing task is tried four times.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from serving import serve
from trapped import LimitedSource, TrappedQueueSource, TrappedSource, TrappedStoreSource

from logwright.spark import session


def processes() -> list[int]:
    """The driver's own processes: its JVM, and this one."""
    jvm: Any = spark._jvm
    return [int(jvm.java.lang.ProcessHandle.current().pid()), os.getpid()]


SHARDED = ("value", "value AS key")


def shards_of(sink: str) -> dict[str, int]:
    """Messages go to two shards; queues have none."""
    return {"shardBit": 1} if sink in ("sej", "trapped") else {}


def stream(
    source: str, target: str, checkpoint: str, sink: str = "trapped", columns: Sequence[str] = SHARDED, **options: Any
) -> str:
    """Write the lines of all new files to journals, a batch for each file; the error, if any."""
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(source)
    frame = lines.selectExpr(*columns)
    writing = frame.writeStream.format(sink).options(**shards_of(sink), **options)
    query = writing.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(target)
    try:
        query.awaitTermination()
    except Exception as error:
        return str(error)
    return ""


def save(source: str, target: str, sink: str = "sej", **options: Any) -> None:
    """Write the messages of a journal to another one."""
    frame = spark.read.format("sej").load(source)
    frame.write.format(sink).options(**options).mode("append").save(target)


def save_range(target: str, sink: str, rows: int, parts: int, columns: Sequence[str], **options: Any) -> str:
    """Write rows made of the numbers from 0 on; the error, if any."""
    frame = spark.range(0, rows, 1, parts).selectExpr(*columns)
    try:
        frame.write.format(sink).options(**options).mode("append").save(target)
    except Exception as error:
        return str(error)
    return ""


def save_failing(
    target: str,
    rows: int,
    parts: int,
    failing_part: int,
    after: int,
    attempts: int,
    by: str,
    sink: str = "sej",
    columns: Sequence[str] = ("*",),
) -> None:
    """Write `count` rows, while a task fails after some of them, in its first `attempts` attempts."""

    def step(part: int, numbers: Iterable[int]) -> Iterator[tuple[bytes, bytes]]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        fails = part == failing_part and context.attemptNumber() < attempts
        for count, number in enumerate(numbers):
            if fails and count == after:
                break
            yield b"value %d" % number, b"key %d" % number
        if fails:
            if by == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("this task fails")

    values = spark.sparkContext.parallelize(range(rows), parts).mapPartitionsWithIndex(step)
    frame = spark.createDataFrame(values, "value BINARY, key BINARY")
    frame.selectExpr(*columns).write.format(sink).options(**shards_of(sink)).mode("append").save(target)


if __name__ == "__main__":
    (directory,) = sys.argv[1:]
    spark = session(
        "local[2,4]",
        spark_ui_enabled="false",
        spark_driver_host="127.0.0.1",
        spark_driver_bindAddress="127.0.0.1",
        spark_driver_memory="512m",
        spark_driver_extraJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        spark_sql_warehouse_dir=f"{directory}/warehouse",
        spark_log_level="OFF",
    )
    for trap in (TrappedSource, TrappedQueueSource, TrappedStoreSource, LimitedSource):
        spark.dataSource.register(trap)
    serve(
        {
            "processes": processes,
            "stream": stream,
            "save": save,
            "save_failing": save_failing,
            "save_range": save_range,
        }
    )
    spark.stop()
