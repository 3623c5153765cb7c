"""The driver's own Python, planning and committing, takes the same memory for ten times the records.

Allocations are counted, not the size of processes: they are the same on every machine. No Spark is needed.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from logwright.core.publish.manifest import Batch, Staged
from logwright.core.publish.staging import publish
from logwright.sej import Reader, Writer
from logwright.sej.tables.staging import ShardsTarget
from logwright.spark.schemas import spark_schema
from logwright.spark.source import JournalReader
from logwright.spark.stream import JournalStream

FEW = 1_000_000
MANY = 10 * FEW
PER_BATCH = 50_000
MOST_BYTES = 3 << 20
"""The memory that each may take: the buffers for one piece of a journal, and a list of tasks."""


@dataclass(frozen=True)
class Places:
    few: Path
    many: Path


def tiny(count: int) -> pa.RecordBatch:
    """Messages of 27 bytes."""
    return pa.record_batch({"value": pa.array([b"v"] * count, pa.binary())})


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Places:
    root = tmp_path_factory.mktemp("sizes")
    for name, count in (("few", FEW), ("many", MANY)):
        with Writer(root / name, segment_size=16 << 20) as writer:
            for _ in range(count // PER_BATCH):
                writer.append_batch(tiny(PER_BATCH))
    return Places(root / "few", root / "many")


def peak_bytes(work: Callable[[], object]) -> int:
    """The peak memory of a function. Call it once before: modules that it loads stay in memory."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def plan_table(journal: Path) -> int:
    options = {"path": str(journal), "splitbytes": "4m"}
    return len(JournalReader(spark_schema("sej"), options, "sej").partitions())


def plan_stream(journal: Path) -> int:
    stream = JournalStream(spark_schema("sej"), {"path": str(journal), "splitbytes": "4m"}, "sej")
    start = stream.initialOffset()
    return len(stream.partitions(start, stream.latestOffset(start, ReadAllAvailable())))


@pytest.mark.parametrize("plan", [plan_table, plan_stream])
def test_planning_ten_times_the_records_takes_no_more_memory(journals: Places, plan: Callable[[Path], int]) -> None:
    assert plan(journals.few) < plan(journals.many)
    few, many = (peak_bytes(lambda: plan(journal)) for journal in (journals.few, journals.many))  # noqa: B023
    assert max(few, many) < MOST_BYTES
    assert many < few + (64 << 10), (few, many)


def stage(root: Path, count: int) -> list[Staged]:
    """The files that four tasks stage."""
    staged = []
    for order in range(4):
        task = ShardsTarget().stage(root, "run", order)
        for _ in range(count // 4 // PER_BATCH):
            task.append_batch(tiny(PER_BATCH))
        staged.append(task.finish())
    return staged


def test_committing_ten_times_the_records_takes_no_more_memory(tmp_path: Path) -> None:
    peaks: dict[int, int] = {}
    for count in (FEW, FEW, MANY):
        root = tmp_path / f"{len(peaks)} {count}"
        staged = stage(root, count)
        peaks[count] = peak_bytes(lambda: publish(root, "run", staged, ShardsTarget(), Batch("query", 0)))  # noqa: B023
        assert Reader(root).count() == count
    assert max(peaks.values()) < MOST_BYTES
    assert peaks[MANY] < 1.1 * peaks[FEW], peaks
