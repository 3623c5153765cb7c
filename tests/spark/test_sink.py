"""Rows that Spark writes into journals are there completely and once."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from logwright.core.io.disk import REAL_DISK
from logwright.errors import WrongUse
from logwright.sej import Reader, ShardedReader, ShardedWriter, Writer, find_shards
from logwright.sej.tables.staging import ShardsTarget
from logwright.spark import sink
from logwright.spark.sink import JournalStreamWriter, JournalWriter

SCHEMA = "value BINARY, key BINARY, type INT, timestamp_ns BIGINT"
Row = tuple[bytes, bytes, int, int | None]


def rows_of(seed: int, count: int) -> list[Row]:
    dice = random.Random(seed)
    return [
        (dice.randbytes(dice.randrange(300)), b"key %d" % dice.randrange(40), dice.randrange(256), 10**18 + number)
        for number in range(count)
    ]


def frame_of(spark: Any, rows: list[Row], parts: int = 1) -> Any:
    """The rows in this order, in `parts` tasks."""
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, parts), SCHEMA)


def save(frame: Any, path: Path, **options: Any) -> None:
    frame.write.format("sej").options(**options).mode("append").save(str(path))


def in_journal(directory: Path) -> list[Row]:
    messages = list(Reader(directory))
    assert [message.offset for message in messages] == list(range(len(messages)))
    return [(message.value, message.key, message.type, message.timestamp) for message in messages]


def staged(root: Path) -> list[str]:
    directory = root / ".logwright" / "staging"
    return sorted(path.name for path in directory.iterdir() if path.name != "sink.lck") if directory.exists() else []


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until a condition on another process holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


# --- tables ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 3])
def test_written_rows_are_read_in_order(spark: Any, tmp_path: Path, parts: int) -> None:
    rows = rows_of(1, 500)
    save(frame_of(spark, rows, parts), tmp_path / "out", segmentSize="20k")
    assert in_journal(tmp_path / "out") == rows
    assert len(Reader(tmp_path / "out").segments()) > 3
    assert staged(tmp_path / "out") == []
    frame = spark.read.format("sej").load(str(tmp_path / "out"))
    read = frame.orderBy("offset").select("value", "key", "type", "timestamp_ns").collect()
    assert [(bytes(row[0]), bytes(row[1]), row[2], row[3]) for row in read] == rows


def test_each_batch_continues_at_the_end_of_the_previous_one(spark: Any, tmp_path: Path) -> None:
    with Writer(tmp_path / "out") as writer:
        writer.append(b"first", b"", 0, 7)
    for seed in (1, 2, 3):
        save(frame_of(spark, rows_of(seed, 40), 2), tmp_path / "out")
    assert in_journal(tmp_path / "out") == [(b"first", b"", 0, 7), *rows_of(1, 40), *rows_of(2, 40), *rows_of(3, 40)]


def test_messages_are_in_the_shards_of_a_sharded_writer(spark: Any, tmp_path: Path) -> None:
    rows = rows_of(4, 400)
    save(frame_of(spark, rows, 2), tmp_path / "out", shardBit=3, prefix="web", segmentSize="4k", checksums="true")
    with ShardedWriter(tmp_path / "written", "web", 3, segment_size=4096, checksums=True) as writer:
        for row in rows:
            writer.append(*row)
    written = files(tmp_path / "written")
    assert files(tmp_path / "out") == written
    assert len(written) > 16
    assert ShardedReader(tmp_path / "out").verify().sound


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.glob("*/jnl/*"))}


def test_table_of_messages_round_trips(spark: Any, tmp_path: Path) -> None:
    with Writer(tmp_path / "in") as writer:
        for value, key, type, timestamp in rows_of(5, 100):
            writer.append(value, key, type, None if type % 5 == 0 else timestamp)
    save(spark.read.format("sej").load(str(tmp_path / "in")), tmp_path / "out")
    assert files_of_journal(tmp_path / "out") == files_of_journal(tmp_path / "in")


def files_of_journal(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((directory / "jnl").iterdir())}


def test_texts_times_and_missing_columns_are_accepted(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql("SELECT 'text' AS value, 'a key' AS key, timestamp_micros(1234567) AS timestamp")
    save(frame.coalesce(1), tmp_path / "out")
    assert in_journal(tmp_path / "out") == [(b"text", b"a key", 0, 1_234_567_000)]
    before = time.time_ns()
    save(spark.sql("SELECT 'now' AS value"), tmp_path / "out")
    value, key, type, timestamp = in_journal(tmp_path / "out")[1]
    assert (value, key, type) == (b"now", b"", 0)
    assert timestamp is not None
    assert before <= timestamp <= time.time_ns()


def test_table_with_a_name_and_a_number_is_written_once(spark: Any, tmp_path: Path) -> None:
    first, second = rows_of(1, 20), rows_of(2, 20)
    for number, rows in ((3, first), (3, first), (4, second), (3, first)):
        save(frame_of(spark, rows), tmp_path / "out", txnAppId="a copy", txnVersion=number)
    save(frame_of(spark, first), tmp_path / "out", txnAppId="another", txnVersion=0)
    assert in_journal(tmp_path / "out") == [*first, *second, *first]
    assert staged(tmp_path / "out") == []
    options = {"path": str(tmp_path), "txnappid": "a", "txnversion": "1"}
    with pytest.raises(WrongUse, match="txnAppId is for tables"):
        JournalStreamWriter(StructType().add("value", "binary"), options, "sej", False)


def test_empty_table_writes_nothing(spark: Any, tmp_path: Path) -> None:
    save(frame_of(spark, [], 2), tmp_path / "out")
    assert not (tmp_path / "out").exists()


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT 'v' AS value, 1 AS colour, 2 AS size", "a sej message has no colour, size"),
        ("SELECT 'k' AS key", "there is no column value"),
        ("SELECT 1 AS value", "column value is int32, and must be binary or string"),
        ("SELECT 'v' AS value, 'x' AS type", "column type is string"),
        ("SELECT 'v' AS value, 300 AS type", "column type must be within 0 and 255"),
        ("SELECT 'v' AS value, 1 AS timestamp", "column timestamp is int32"),
        ("SELECT CAST(NULL AS STRING) AS value", "column value is null in row 0"),
        ("SELECT 'v' AS value, repeat('k', 128) AS key", "a key of 128 bytes does not fit|a key has 128 bytes"),
    ],
)
def test_invalid_message_columns_are_refused(spark: Any, tmp_path: Path, query: str, reason: str) -> None:
    with pytest.raises(PySparkException, match=reason):
        save(spark.sql(query), tmp_path / "out")
    wait_for(lambda: staged(tmp_path / "out") == [])
    assert not (tmp_path / "out" / "jnl").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"shardBit": "11"}, "shard bit 11 is not within 0 and 10"),
        ({"shardBit": "many"}, "'many' is not a number"),
        ({"prefix": "a/b"}, "has other characters"),
        ({"segmentSize": "0"}, "is not a size"),
        ({"checksums": "perhaps"}, "neither true nor false"),
        ({"txnAppId": "copy"}, "give both txnAppId and txnVersion"),
        ({"txnAppId": "copy", "txnVersion": "-1"}, "'-1' is not a number"),
    ],
)
def test_invalid_options_are_refused(tmp_path: Path, options: dict[str, str], reason: str) -> None:
    schema = StructType().add("value", "binary")
    given = {name.lower(): value for name, value in options.items()}
    with pytest.raises(WrongUse, match=reason):
        JournalWriter(schema, {"path": str(tmp_path), **given}, "sej", False)


def test_path_and_format_are_required(tmp_path: Path) -> None:
    schema = StructType().add("value", "binary")
    with pytest.raises(WrongUse, match="give the path to write to"):
        JournalWriter(schema, {}, "sej", False)
    with pytest.raises(WrongUse, match="give the format to write"):
        JournalWriter(schema, {"path": str(tmp_path)}, None, False)
    with pytest.raises(WrongUse, match="not to a remote store"):
        JournalWriter(
            schema, {"path": "s3://key:secret@bucket/journal?region=here&endpoint_override=127.0.0.1:9"}, "sej", False
        )


def test_journal_is_never_overwritten(spark: Any, tmp_path: Path) -> None:
    save(frame_of(spark, rows_of(1, 10)), tmp_path / "out")
    with pytest.raises(PySparkException, match="a journal is never overwritten"):
        frame_of(spark, rows_of(2, 10)).write.format("sej").mode("overwrite").save(str(tmp_path / "out"))
    for mode in ("errorifexists", "ignore"):
        with pytest.raises(PySparkException, match='Please use either the "Append" or "Overwrite" mode'):
            frame_of(spark, rows_of(2, 10)).write.format("sej").mode(mode).save(str(tmp_path / "out"))
    assert in_journal(tmp_path / "out") == rows_of(1, 10)


def test_journal_with_a_live_writer_is_refused(spark: Any, tmp_path: Path) -> None:
    with Writer(tmp_path / "out") as writer:
        writer.append(b"mine", b"", 0, 1)
        with pytest.raises(PySparkException, match="is open in a writer: close it"):
            save(frame_of(spark, rows_of(1, 10)), tmp_path / "out")
    assert in_journal(tmp_path / "out") == [(b"mine", b"", 0, 1)]
    save(frame_of(spark, rows_of(1, 10)), tmp_path / "out")
    assert len(in_journal(tmp_path / "out")) == 11


def test_another_number_of_shards_is_refused(spark: Any, tmp_path: Path) -> None:
    save(frame_of(spark, rows_of(1, 50)), tmp_path / "out", shardBit=1)
    with pytest.raises(PySparkException, match="has shards of bit 1"):
        save(frame_of(spark, rows_of(1, 50)), tmp_path / "out", shardBit=2)
    assert len(list(ShardedReader(tmp_path / "out"))) == 50


# --- what fails -----------------------------------------------------------------------------------------------------


def ending_after(count: int, by: str) -> Any:
    """A step that fails in the last task, after `count` rows."""

    def step(part: int, rows: Iterator[Row]) -> Iterator[Row]:
        for number, row in enumerate(rows):
            if part == 2 and number == count:
                if by == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("this task fails")
            yield row

    return step


@pytest.mark.parametrize(("count", "by"), [(0, "error"), (1, "error"), (30, "error"), (30, "kill")])
def test_unfinished_task_leaves_no_rows(spark: Any, tmp_path: Path, count: int, by: str) -> None:
    save(frame_of(spark, rows_of(1, 10)), tmp_path / "out", shardBit=1)
    before = files(tmp_path / "out")
    rows = spark.sparkContext.parallelize(rows_of(2, 100), 3).mapPartitionsWithIndex(ending_after(count, by))
    with pytest.raises((PySparkException, Py4JJavaError), match="this task fails" if by == "error" else "crashed"):
        save(spark.createDataFrame(rows, SCHEMA), tmp_path / "out", shardBit=1)
    assert files(tmp_path / "out") == before
    if by == "error":  # after a kill only the next writer notices it, once this Spark is gone
        wait_for(lambda: staged(tmp_path / "out") == [])
    save(frame_of(spark, rows_of(2, 100), 3), tmp_path / "out", shardBit=1)
    assert len(list(ShardedReader(tmp_path / "out"))) == 110


def test_staged_files_of_dead_runs_are_removed_and_of_live_runs_kept(spark: Any, tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    own = sink.new_run()
    began, machine, _, token = own.split("-")
    old = f"{time.time_ns() - 90_000 * 10**9:016x}"
    dead, ours, elsewhere, stale = (
        f"{began}-{machine}-{child.pid}-{token}",
        f"{began}-{machine}-{os.getpid()}-{token}",
        f"{began}-other-{child.pid}-{token}",
        f"{old}-other-{os.getpid()}-{token}",
    )
    for run in (dead, ours, elsewhere, stale):
        task = ShardsTarget().stage(tmp_path / "out", run, 0)
        task.append_batch(pa.record_batch({"value": [b"never published"]}))
        task.finish()
    save(frame_of(spark, rows_of(1, 10)), tmp_path / "out")
    assert in_journal(tmp_path / "out") == rows_of(1, 10)
    assert {name.partition(".")[0] for name in staged(tmp_path / "out")} == {ours, elsewhere}
    assert not sink.is_dead("no run at all")


# --- streams --------------------------------------------------------------------------------------------------------


def drop(directory: Path, name: str, lines: list[str]) -> None:
    """Put a file where a stream finds it, atomically."""
    directory.mkdir(exist_ok=True)
    hidden = directory.parent / name
    hidden.write_text("".join(f"{line}\n" for line in lines))
    hidden.rename(directory / name)


def run_stream(spark: Any, source: Path, target: Path, checkpoint: Path, **options: Any) -> Any:
    """All existing rows, in batches of one file each."""
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(source))
    frame = lines.selectExpr("value", "substring(value, 1, 3) AS key")
    writing = frame.writeStream.format("sej").options(**options).option("checkpointLocation", str(checkpoint))
    query = writing.trigger(availableNow=True).start(str(target))
    query.awaitTermination()
    return query


def lines_of(number: int) -> list[str]:
    return [f"{number:03d} line {line}" for line in range(20)]


def values(directory: Path) -> list[str]:
    return sorted(
        message.value.decode() for shard in find_shards(REAL_DISK, directory) for message in Reader(shard.path)
    )


def forget_last_batch(checkpoint: Path) -> int:
    """Make Spark believe that the last batch was not committed: it will be repeated."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    return last


def test_stream_is_written_exactly_once_across_restarts(spark: Any, tmp_path: Path) -> None:
    source, target, checkpoint = tmp_path / "lines", tmp_path / "out", tmp_path / "checkpoint"
    for number in range(3):
        drop(source, f"{number}.txt", lines_of(number))
    run_stream(spark, source, target, checkpoint, shardBit=2)
    expected = sorted(line for number in range(3) for line in lines_of(number))
    assert values(target) == expected
    before = files(target)
    assert forget_last_batch(checkpoint) == 2
    run_stream(spark, source, target, checkpoint, shardBit=2)
    assert (checkpoint / "commits" / "2").exists(), "the batch was done again"
    assert files(target) == before
    assert staged(target) == []
    drop(source, "3.txt", lines_of(3))
    run_stream(spark, source, target, checkpoint, shardBit=2)
    assert values(target) == sorted([*expected, *lines_of(3)])
    for shard in find_shards(REAL_DISK, target):
        assert [message.offset for message in Reader(shard.path)] == list(range(Reader(shard.path).count()))


def test_new_query_over_the_same_files_writes_them_again(spark: Any, tmp_path: Path) -> None:
    """Also with the checkpoint in the same place: it is another query, and its batches begin at 0."""
    source, target, checkpoint = tmp_path / "lines", tmp_path / "out", tmp_path / "checkpoint"
    drop(source, "0.txt", lines_of(0))
    run_stream(spark, source, target, checkpoint)
    shutil.rmtree(checkpoint)
    run_stream(spark, source, target, checkpoint)
    assert values(target) == sorted(lines_of(0) * 2)


def test_stream_into_a_locked_journal_fails_and_resumes_later(spark: Any, tmp_path: Path) -> None:
    source, target, checkpoint = tmp_path / "lines", tmp_path / "out", tmp_path / "checkpoint"
    drop(source, "0.txt", lines_of(0))
    with Writer(target), pytest.raises(PySparkException, match="is open in a writer"):
        run_stream(spark, source, target, checkpoint)
    assert values(target) == []
    assert staged(target) == []
    run_stream(spark, source, target, checkpoint)
    assert values(target) == sorted(lines_of(0))


def test_stream_in_complete_mode_is_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="a journal is never overwritten"):
        JournalStreamWriter(StructType().add("value", "binary"), {"path": str(tmp_path)}, "sej", True)
