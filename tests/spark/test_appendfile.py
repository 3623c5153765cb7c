"""Journals with checkpoints on Spark: read as a table and as a stream, written by batches, and their segments."""

from __future__ import annotations

import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from logwright.appendfile import Checkpoint, Data, Reader, Segment, Writer
from logwright.errors import HistoryUnavailable
from logwright.pipeline import Settings
from logwright.pipeline.run import run
from logwright.spark.stream import JournalStream
from tests.appendfile.samples import add_lost

ASIDE = ".logwright/recovery/2"


def make_journal(directory: Path) -> Path:
    """Two files that were set aside, with a checked segment, and a new file."""
    with Writer(directory, file_bytes=120) as writer:
        for number in range(8):
            writer.append(b"record %d" % number)
            if number in (1, 4, 6):
                writer.register_checkpoint()
        writer.check_checkpoint()
    with Writer(directory, file_bytes=120, recovering=True) as writer:
        writer.append(b"new")
        writer.register_checkpoint()
    return directory


def test_records_are_rows_in_both_kinds_of_columns_and_segments_are_a_table(spark: Any, tmp_path: Path) -> None:
    journal = make_journal(tmp_path / "readings")
    add_lost(journal, 0, 1)
    assert not next(segment for segment in Reader(journal).segments() if segment.id == 1).complete
    records = [item for item in Reader(journal).scan() if hasattr(item, "record")]
    assert {item.file for item in records} == {f"{ASIDE}/0.journal", f"{ASIDE}/1.journal", "2.journal"}

    rows = spark.read.format("appendfile").load(str(journal)).collect()
    assert sorted(
        (row.kind, row.segment, row.data, row.checked, row.current) for row in rows if row.kind == "data"
    ) == [
        ("data", item.record.segment, item.record.data, None, None)
        for item in sorted(records, key=lambda item: (item.record.segment, getattr(item.record, "data", b"")))
        if isinstance(item.record, Data)
    ]
    checkpoints = [item.record for item in records if isinstance(item.record, Checkpoint)]
    assert sorted((row.checked, row.current) for row in rows if row.kind == "checkpoint") == sorted(
        (record.checked, record.current) for record in checkpoints
    )

    shared = spark.read.format("logwright").load(str(tmp_path)).orderBy("sequence", "position")
    assert [(row.file, row.position, row.op, row.value) for row in shared.collect()] == [
        (item.file, item.span.start, item.record.kind, getattr(item.record, "data", None)) for item in records
    ]
    run(Settings(str(tmp_path / "readings"), str(tmp_path / "out"), tables=("segments",)), spark)
    found = spark.read.parquet(str(tmp_path / "out" / "segments"))
    expected = Reader(journal).segments()
    assert [
        (row.generation, row.segment, row.complete, row.checked, row.records, row.bytes)
        for row in found.orderBy("generation", "segment").collect()
    ] == [
        (
            generation,
            segment.id,
            segment.complete,
            segment.checked,
            len(segment.records),
            sum(map(len, segment.records)),
        )
        for generation, segment in zip([None, 2, 2, 2, 2], [expected[-1], *expected[:-1]], strict=True)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_every_record_is_delivered_once_whatever_happens_between_triggers(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    schema = StructType().add("kind", "string").add("data", "binary")
    stream = JournalStream(schema, {"path": str(tmp_path), "maxbytespertrigger": "300"}, "appendfile")
    issued: list[bytes] = []
    seen: list[bytes] = []
    offset: dict[str, Any] | None = None
    for _ in range(12):
        opened = (
            Writer(tmp_path, file_bytes=200, recovering=True)
            if chance.random() < 0.4
            else Writer(tmp_path, file_bytes=200)
        )
        with opened as writer:
            for _ in range(chance.randrange(12)):
                issued.append(b"%d" % len(issued))
                writer.append(issued[-1])
                if chance.random() < 0.3:
                    writer.register_checkpoint()
        offset = offset or json.loads(json.dumps(stream.initialOffset()))
        for _ in range(chance.randrange(4)):
            following = json.loads(json.dumps(stream.latestOffset(offset, stream.getDefaultReadLimit())))
            seen += rows_between(stream, offset, following)
            offset = following
    while (following := stream.latestOffset(offset or {}, stream.getDefaultReadLimit())) != offset:
        seen += rows_between(stream, offset or {}, following)
        offset = following
    assert seen == issued


def test_restarted_writer_does_not_stop_a_stream_that_has_read_everything(tmp_path: Path) -> None:
    schema = StructType().add("kind", "string").add("data", "binary")
    stream = JournalStream(schema, {"path": str(tmp_path)}, "appendfile")
    offset: dict[str, Any] = {}
    for records in ([b"a", b"b"], [], [b"c"], [], []):
        with Writer(tmp_path, recovering=True) as writer:
            recovery = writer.recovery()
            list(recovery)
            writer.append_many(records)
        offset = offset or stream.initialOffset()
        following = stream.latestOffset(offset, stream.getDefaultReadLimit())
        assert rows_between(stream, offset, following) == records
        offset = following
    for _ in range(2):
        with Writer(tmp_path, recovering=True) as writer:
            recovery = writer.recovery()
            list(recovery)
            writer.append(b"nobody reads this in time")
    with pytest.raises(HistoryUnavailable, match="perhaps before all was read"):
        stream.latestOffset(offset, stream.getDefaultReadLimit())


def rows_between(stream: JournalStream, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    """The data of one batch, read by tasks whose state was pickled."""
    found = []
    for partition in stream.partitions(start, end) if start != end else []:
        reader, task = pickle.loads(pickle.dumps((stream, partition)))
        for batch in reader.read(task):
            found += [row["data"] for row in batch.to_pylist() if row["kind"] == "data"]
    return found


def test_stream_reads_each_record_once_and_writes_a_segment_per_batch(spark: Any, tmp_path: Path) -> None:
    source, target = make_journal(tmp_path / "source"), tmp_path / "target"

    def catch_up() -> None:
        read = spark.readStream.format("appendfile").load(str(source)).where("kind = 'data'").select("data")
        write = read.writeStream.format("appendfile").option("checkpointLocation", str(tmp_path / "checkpoint"))
        write.trigger(availableNow=True).start(str(target)).awaitTermination()

    catch_up()
    first = [b"record %d" % number for number in range(8)] + [b"new"]
    (segment,) = Reader(target).segments()
    assert sorted(segment.records) == sorted(first)
    assert segment.complete
    with Writer(source, recovering=True) as writer:  # sets aside files that were already read
        writer.append(b"later")
    catch_up()
    catch_up()
    assert Reader(target).segments()[1:] == [Segment(1, [b"later"], True)]
    assert Reader(target).verify().sound
