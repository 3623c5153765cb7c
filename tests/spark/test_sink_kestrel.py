"""Rows that Spark writes to queues are there completely and once, whatever fails or is killed."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from logwright.core.io.disk import REAL_DISK
from logwright.errors import WrongUse
from logwright.kestrel import Queue, Reader
from logwright.kestrel.files.files import list_files, list_queues
from logwright.spark.sink import JournalWriter
from tests.spark.driver import is_alive, wait_for
from tests.spark.test_sink_faults import Query, new_driver
from tests.support.counts import COUNTS

SCHEMA = "queue STRING, data BINARY, added TIMESTAMP, expires TIMESTAMP"
NOON = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)
LATER = datetime.datetime(2099, 5, 1, 12, tzinfo=datetime.UTC)
Row = tuple[str, bytes, datetime.datetime, datetime.datetime | None]
Item = tuple[bytes, int | None, int | None]
"""data, added and expires in milliseconds"""


def rows_of(seed: int, count: int) -> list[Row]:
    """Rows for two queues; every third one expires, but far in the future."""
    return [
        (
            ("cars", "cats+tom")[number % 2],
            b"%d/%d" % (seed, number),
            NOON + datetime.timedelta(milliseconds=number),
            None if number % 3 else LATER,
        )
        for number in range(count)
    ]


def milliseconds(moment: datetime.datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def expected_of(*batches: list[Row]) -> dict[str, list[Item]]:
    """The items of each queue."""
    found: dict[str, list[Item]] = {}
    for rows in batches:
        for queue, data, added, expires in rows:
            found.setdefault(queue, []).append((data, milliseconds(added), milliseconds(expires)))
    return found


def in_queues(root: Path) -> dict[str, list[Item]]:
    found = {}
    for queue in list_queues(REAL_DISK, root):
        reader = Reader(root / queue)
        report = reader.verify()
        assert report.sound, report.problems
        assert report.anomalies == []
        found[queue] = [(item.data, item.added, item.expires) for item in reader.queue_state().items]
    return found


def frame_of(spark: Any, rows: list[Row], parts: int = 1) -> Any:
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, parts), SCHEMA)


def save(frame: Any, path: Path, **options: Any) -> None:
    frame.write.format("kestrel").options(**options).mode("append").save(str(path))


def staged(root: Path) -> list[str]:
    directory = root / ".logwright" / "staging"
    return sorted(path.name for path in directory.iterdir() if path.name != "sink.lck") if directory.exists() else []


# --- tables ---------------------------------------------------------------------------------------------------------


def test_rows_are_appended_to_their_queues_once(spark: Any, tmp_path: Path) -> None:
    first, second = rows_of(1, 60), rows_of(2, 20)
    with Queue(tmp_path / "out", "cars") as queue:
        queue.put(b"there before")
    (before,) = in_queues(tmp_path / "out")["cars"]
    for number, rows in ((1, first), (1, first), (2, second), (1, first)):
        save(frame_of(spark, rows, 3), tmp_path / "out", txnAppId="a copy", txnVersion=number)
    expected = expected_of(first, second)
    expected["cars"].insert(0, before)
    assert in_queues(tmp_path / "out") == expected
    assert len(list_files(REAL_DISK, tmp_path / "out", "cats+tom").files) == 2, "one for each batch"
    assert staged(tmp_path / "out") == []
    table = spark.read.format("kestrel").load(str(tmp_path / "out")).filter("queue = 'cats+tom' AND op = 'addx'")
    read = table.selectExpr("data", "unix_millis(added)", "unix_millis(expires)").collect()
    assert [(bytes(row[0]), row[1], row[2]) for row in read] == expected["cats+tom"]
    with Queue(tmp_path / "out", "cars") as queue:
        assert queue.get_many(3) == [b"there before", b"1/0", b"1/2"]


def test_items_without_a_queue_go_to_the_queue_of_the_option(spark: Any, tmp_path: Path) -> None:
    before = time.time_ns() // 1_000_000
    save(spark.sql("SELECT 'text' AS data"), tmp_path, queue="rest")
    named = spark.sql("SELECT * FROM VALUES ('a', 'one'), (NULL, 'two') AS (queue, data)")
    save(named.coalesce(1), tmp_path, queue="rest")
    found = in_queues(tmp_path)
    assert {queue: [item[0] for item in items] for queue, items in found.items()} == {
        "a": [b"one"],
        "rest": [b"text", b"two"],
    }
    assert all(before <= (item[1] or 0) <= time.time_ns() // 1_000_000 for items in found.values() for item in items)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "options", "reason"),
    [
        (
            "queue STRING, data BINARY, op STRING, xid INTEGER",
            {},
            "an item of a queue has no op, xid: select",
        ),
        ("queue STRING, added TIMESTAMP", {}, "there is no column data"),
        ("data BINARY", {}, "name the queue of the items"),
        ("queue STRING, data INTEGER", {}, "column data is int32, and must be binary or string"),
        ("queue INTEGER, data BINARY", {}, "column queue is int32, and must be binary or string"),
        ("queue STRING, data BINARY, expires INTEGER", {}, "column expires is int32, and must be timestamps"),
        ("data BINARY", {"queue": "../cars"}, r"'\.\./cars' is not a valid queue name"),
        ("data BINARY", {"queue": ""}, "'' is not a valid queue name"),
        ("data BINARY", {"queue": "cars", "txnappid": "copy"}, "give both txnAppId and txnVersion"),
    ],
)
def test_invalid_columns_and_options_are_refused(
    tmp_path: Path, schema: str, options: dict[str, str], reason: str
) -> None:
    columns = StructType()
    for column in schema.split(", "):
        name, kind = column.lower().split()
        columns.add(name, kind)
    with pytest.raises(WrongUse, match=reason):
        JournalWriter(columns, {"path": str(tmp_path), **options}, "kestrel", False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT 'a.b' AS queue, 'x' AS data", r"'a\.b' is not a valid queue name: it must not contain / ~ \+ \."),
        ("SELECT CAST(NULL AS STRING) AS queue, 'x' AS data", "a row names no queue"),
        ("SELECT 'q' AS queue, CAST(NULL AS STRING) AS data", "the operation addx needs data"),
        ("SELECT 'q' AS queue, 'x' AS data, timestamp_micros(999) AS expires", "an item cannot expire at 1970-01-01"),
    ],
)
def test_invalid_item_rows_are_refused(spark: Any, tmp_path: Path, query: str, reason: str) -> None:
    with pytest.raises(PySparkException, match=reason):
        save(spark.sql(query), tmp_path)
    wait_for(lambda: staged(tmp_path) == [])
    assert list_queues(REAL_DISK, tmp_path) == []


def test_open_queue_is_refused(spark: Any, tmp_path: Path) -> None:
    frame = frame_of(spark, rows_of(1, 10))
    with Queue(tmp_path, "cars"):
        with pytest.raises(PySparkException, match="cars is open in a writer: close it, then write again"):
            save(frame, tmp_path)
        with pytest.raises(PySparkException, match="cars is open in a writer"):
            save(frame.select("data"), tmp_path, queue="cars")
        assert in_queues(tmp_path) == {"cars": []}
    save(frame, tmp_path)
    assert in_queues(tmp_path) == expected_of(rows_of(1, 10))


# --- what fails -----------------------------------------------------------------------------------------------------


def failing_after(count: int) -> Callable[[int, Iterator[Row]], Iterator[Row]]:
    """A step that fails in the first task, after `count` rows."""

    def step(part: int, rows: Iterator[Row]) -> Iterator[Row]:
        for number, row in enumerate(rows):
            if part == 0 and number == count:
                raise RuntimeError("this task fails")
            yield row

    return step


def test_failed_task_leaves_no_rows(spark: Any, tmp_path: Path) -> None:
    first, second = rows_of(1, 10), rows_of(2, 90)
    save(frame_of(spark, first), tmp_path)
    for count, parts in ((0, 1), (25, 1), (25, 3)):
        rows = spark.sparkContext.parallelize(second, parts).mapPartitionsWithIndex(failing_after(count))
        with pytest.raises((PySparkException, Py4JJavaError), match="this task fails"):
            save(spark.createDataFrame(rows, SCHEMA), tmp_path)
        assert in_queues(tmp_path) == expected_of(first)
        if parts == 1:  # Spark kills the processes of other tasks: the next driver removes their files
            wait_for(lambda: staged(tmp_path) == [])
    save(frame_of(spark, second, 3), tmp_path)
    assert in_queues(tmp_path) == expected_of(first, second)


# --- streams --------------------------------------------------------------------------------------------------------

COLUMNS = ("value AS data", "if(length(value) % 2 = 0, 'even', 'odd') AS queue")


def run_stream(spark: Any, query: Query) -> None:
    """All existing rows, in batches of one file each."""
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(query.home / "lines"))
    writing = lines.selectExpr(*COLUMNS).writeStream.format("kestrel")
    writing = writing.option("checkpointLocation", str(query.home / "checkpoint"))
    writing.trigger(availableNow=True).start(str(query.target)).awaitTermination()


def data_of(query: Query) -> list[bytes]:
    return sorted(item[0] for items in in_queues(query.target).values() for item in items)


def test_stream_is_written_exactly_once_when_a_batch_is_repeated(spark: Any, tmp_path: Path) -> None:
    query = Query(tmp_path)
    for _ in range(3):
        query.add_file()
    run_stream(spark, query)
    assert data_of(query) == query.expected
    before = {path.name: path.read_bytes() for path in query.target.iterdir() if path.is_file()}
    assert len(before) == 6, "a file for each batch and queue"
    for name in ("2", ".2.crc"):  # Spark must believe that the last batch was not committed
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    run_stream(spark, query)
    assert query.is_noted(2), "the batch was done again"
    assert {path.name: path.read_bytes() for path in query.target.iterdir() if path.is_file()} == before
    assert staged(query.target) == []
    with Queue(query.target, "even") as queue:
        first = queue.get()
    assert first is not None
    query.add_file()
    run_stream(spark, query)
    assert sorted([*data_of(query), first]) == query.expected


def test_kill_at_any_commit_step_leaves_each_item_once(spark: Any, tmp_path: Path) -> None:
    """First only the process that commits, then the whole driver; a task fails twice."""
    query = Query(tmp_path)
    steps = [r"rename .*\.manifest", r"rename even\..*", r"rename odd\..*", r"remove .*\.manifest", "nothing"]
    with new_driver(tmp_path / "driver") as doomed:
        fault = {"rows": 90, "parts": 3, "failing_part": 1, "after": 20, "attempts": 2, "by": "error"}
        columns = ["value AS data", "'retried' AS queue"]
        doomed.ask("save_failing", target=str(tmp_path / "retried"), sink="kestrel", columns=columns, **fault)
        found = in_queues(tmp_path / "retried")["retried"]
        assert sorted(item[0] for item in found) == sorted(b"value %d" % number for number in range(90))
        for step in steps:
            batch = query.add_file()
            trap = {"trap": "kill", "trapStep": step, "trapNumber": 1, "trapBatch": batch}
            options = query.options(sink="trapped_queues", columns=COLUMNS, **trap)
            assert "crashed" in doomed.ask("stream", **options), step
            assert not query.is_noted(batch)
            assert set(query.expected[:-15]) <= set(data_of(query)), step
            COUNTS.add("kill -9", 1, "kestrel")
        batch = query.add_file()
        victims = doomed.ask("processes")
        trap = {"trap": "kill", "trapStep": steps[2], "trapNumber": 1, "trapBatch": batch}
        trap["victims"] = ",".join(map(str, victims))
        doomed.say("stream", **query.options(sink="trapped_queues", columns=COLUMNS, **trap))
        with pytest.raises(EOFError):
            doomed.answer()
        wait_for(lambda: not any(map(is_alive, victims)), "the death of the driver")
        COUNTS.add("kill -9", 1, "kestrel")
    assert any(name.endswith(".manifest") for name in staged(query.target))
    assert data_of(query) != query.expected
    with Queue(query.target, "odd"):  # opening one of the queues completes the batch
        assert data_of(query) == query.expected
    query.add_file()
    run_stream(spark, query)
    assert data_of(query) == query.expected
    assert staged(query.target) == [], "what the dead driver had staged is removed"
