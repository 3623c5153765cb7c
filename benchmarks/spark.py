"""Journals on Spark with two cores: as tables, as Parquet, by time, in one file or several, and planning.

The peers are a Python source of the same shape that decodes nothing, which is the limit, and the same messages as lines
of JSON, with keys and values as text. This is the best case for JSON: arbitrary bytes would need base64. Spark parses
only the JSON columns that a query needs, so the peer of the full scan parses two of five columns.

Each query runs once before it is measured, and reads from the page cache. The figure for one hundredth of the time
counts all bytes that this process reads from files, for planning and for reading. The memory of planning is the peak of
a process that does nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.journals import BATCH_ROWS, batch_of, time_of
from benchmarks.measure import MESSAGE_BYTES, VALUE, Figure, Plan, Turns, bytes_read_by
from logwright.sej.files.writer import Writer

ROOT = Path(__file__).parents[1]
JSON_COLUMNS = "offset BIGINT, timestamp BIGINT, type SMALLINT, key STRING, value STRING"
QUESTION = ("sum(octet_length(value))", "max(offset)")
KEPT = 0.01
MOST_BYTES = 0.05


# --- the messages -----------------------------------------------------------------------------------------------------


def write_journal(directory: Path, rows: int, files: int = 1) -> Path:
    """A journal with this many messages in this many equal files."""
    segment_size = rows * MESSAGE_BYTES // files if files > 1 else 1 << 40
    with Writer(directory, segment_size=segment_size) as writer:
        for first in range(0, rows, BATCH_ROWS):
            writer.append_batch(batch_of(first, min(BATCH_ROWS, rows - first)))
    return directory


def write_json(path: Path, rows: int) -> Path:
    """The same messages as lines of JSON."""
    line = '{"offset":%d,"timestamp":%d,"type":0,"key":"key-%09d","value":"' + VALUE.decode() + '"}\n'
    with path.open("w") as file:
        for first in range(0, rows, BATCH_ROWS):
            numbers = range(first, min(first + BATCH_ROWS, rows))
            file.write("".join(line % (number, time_of(number), number) for number in numbers))
    return path


# --- the session ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def two_cores(place: Path) -> Iterator[Any]:
    """A Spark session whose workers find this package."""
    from logwright.spark import session

    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    spark = session(
        "local[2]",
        spark_ui_enabled="false",
        spark_ui_showConsoleProgress="false",
        spark_driver_bindAddress="127.0.0.1",
        spark_driver_host="127.0.0.1",
        spark_sql_session_timeZone="UTC",
        spark_sql_warehouse_dir=str(place / "warehouse"),
        spark_local_dir=str(place / "spark-local"),
    )
    try:
        spark.sparkContext.setLogLevel("ERROR")
        yield spark
    finally:
        spark.stop()


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def asked(load: Callable[[], Any], *questions: str, answer: tuple[int, ...] | None = None) -> Callable[[], float]:
    """The time for Spark to plan and answer a query on a table. A wrong answer is an error."""

    def measure() -> float:
        found: list[Any] = []
        took = seconds(lambda: found.extend(load().selectExpr(*questions).collect()))
        assert answer is None or tuple(found[0]) == answer
        return took

    return measure


def of_the_same_shape(spark: Any, journal: Path, place: Path) -> Callable[[], Any]:
    """The source that decodes nothing, with the tasks, batches and bytes of the typed columns of a journal."""
    from benchmarks.prepared import PreparedSource, prepare
    from logwright.spark.schemas import spark_schema
    from logwright.spark.source import JournalReader

    schema = spark_schema("sej")
    reader = JournalReader(schema, {"path": str(journal)}, "sej")
    partitions: list[Any] = list(reader.partitions())
    rows = [sum(split.stop - split.start for _, split in partition.parts) for partition in partitions]
    path = prepare(next(reader.read(partitions[0])), place / "batch.arrow")
    spark.dataSource.register(PreparedSource)
    prepared = spark.read.schema(schema).format("prepared").options(path=str(path), rows=json.dumps(rows))
    return lambda: prepared.load()


# --- reading ----------------------------------------------------------------------------------------------------------


def reading(plan: Plan, spark: Any, one: Path, four: Path, lines: Path, rows: int) -> list[Figure]:
    """Tables: all columns, one column, one file and four."""
    sej, sej_offset = spark.read.format("sej"), spark.read.schema("offset BIGINT").format("sej")
    answer, offset = (rows * len(VALUE), rows - 1), ("max(offset)",)

    def in_json(schema: str) -> Callable[[], Any]:
        return lambda: spark.read.schema(schema).json(str(lines))

    things = {
        "full": asked(lambda: sej.load(str(one)), *QUESTION, answer=answer),
        "prepared": asked(of_the_same_shape(spark, one, plan.place), *QUESTION),
        "four": asked(lambda: sej.load(str(four)), *QUESTION, answer=answer),
        "json": asked(in_json(JSON_COLUMNS), *QUESTION, answer=answer),
        "offset": asked(lambda: sej_offset.load(str(one)), *offset, answer=answer[1:]),
        "json offset": asked(in_json("offset BIGINT"), *offset, answer=answer[1:]),
    }
    turns = measured(plan, things)
    size = f"{rows / 1e6:g} M messages"
    full, spread = turns.median("full"), turns.results["full"]
    slower, faster = sorted(("full", "four"), key=turns.median, reverse=True)
    return [
        Figure("spark", f"all columns, {size}", full, turns.median("prepared"), "s", "a source that decodes nothing",
               0.87, spread=spread),
        Figure("spark", f"all columns, {size}", full, turns.median("json"), "s", "JSON lines", 2.0, spread=spread),
        Figure("spark", f"one column, {size}", turns.median("offset"), turns.median("json offset"), "s", "JSON lines",
               4.0, spread=turns.results["offset"]),
        Figure("spark", f"one file or four: the {'one' if slower == 'full' else 'four'}", turns.median(slower),
               turns.median(faster), "s", "the faster", 0.83, spread=turns.results[slower]),
    ]  # fmt: skip


def measured(plan: Plan, things: dict[str, Callable[[], float]]) -> Turns:
    """Measure all of them in turns, after one run of each."""
    for name, thing in things.items():
        plan.log(f"spark: {name} {thing():.2f} s, to warm up")
    return Turns(plan.rounds).run(things)


# --- to Parquet -------------------------------------------------------------------------------------------------------


def to_parquet(plan: Plan, spark: Any, one: Path, lines: Path, rows: int) -> list[Figure]:
    """The same messages as Parquet files, out of a journal and out of JSON."""
    from logwright.pipeline.run import to_parquet as write_tables

    target = plan.place / "parquet"

    def ours() -> float:
        took = seconds(lambda: write_tables(spark, str(one), target))
        return written(took)

    def json_lines() -> float:
        frame = spark.read.schema(JSON_COLUMNS).json(str(lines))
        took = seconds(lambda: frame.write.parquet(str(target)))
        return written(took)

    def written(took: float) -> float:
        messages = target / "messages"
        assert spark.read.parquet(str(messages if messages.exists() else target)).count() == rows
        shutil.rmtree(target)
        return took

    turns = measured(plan, {"to Parquet": ours, "JSON to Parquet": json_lines})
    return [
        Figure("spark", f"journal to Parquet, {rows / 1e6:g} M messages", turns.median("to Parquet"),
               turns.median("JSON to Parquet"), "s", "JSON lines to Parquet", 5.0, spread=turns.results["to Parquet"])
    ]  # fmt: skip


# --- by time ----------------------------------------------------------------------------------------------------------


def by_time(plan: Plan, journal: Path, rows: int) -> list[Figure]:
    """The bytes that are read if `since` and `until` select one message in a hundred."""
    first = rows // 2
    last = first + int(rows * KEPT)

    def kept() -> None:
        assert kept_between(journal, first, last) == last - first

    found = bytes_read_by(kept)
    if found is None:
        plan.log("spark: this system does not count the bytes that a process reads")
        return []
    size = rows * MESSAGE_BYTES
    return [
        Figure("spark", f"{KEPT:.0%} of a journal by time", found / 2**20, size * MOST_BYTES / 2**20, "MiB",
               f"limit of {MOST_BYTES:.0%} of its bytes", 1.0, spread=[found / 2**20])
    ]  # fmt: skip


def kept_between(journal: Path, first: int, last: int) -> int:
    """Plan and read the messages between two times, as Spark does it; their number."""
    from logwright.spark.schemas import spark_schema
    from logwright.spark.source import JournalReader

    options = {"path": str(journal), "since": str(time_of(first)), "until": str(time_of(last))}
    reader = JournalReader(spark_schema("sej"), options, "sej")
    return sum(batch.num_rows for partition in reader.partitions() for batch in reader.read(partition))


# --- planning ---------------------------------------------------------------------------------------------------------

PLANNING = """
import sys
from benchmarks.measure import peak_bytes
from logwright.spark.schemas import spark_schema
from logwright.spark.source import JournalReader
assert JournalReader(spark_schema("sej"), {"path": sys.argv[1]}, "sej").partitions()
print(peak_bytes())
"""


def planning(few: Path, few_rows: int, many: Path, rows: int) -> list[Figure]:
    """The memory for planning a read, which is the same for any number of messages."""
    peaks = []
    for journal in (few, many):
        command = [sys.executable, "-c", PLANNING, str(journal)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, cwd=ROOT)
        peaks.append(int(done.stdout) / 2**20)
    return [
        Figure("spark", f"memory to plan {rows / 1e6:g} M messages", peaks[1], peaks[0], "MiB",
               f"to plan {few_rows / 1e6:g} M", 0.95, spread=[peaks[1]])
    ]  # fmt: skip


def run(plan: Plan) -> list[Figure]:
    """Everything about Spark; nothing if Spark or Java is missing."""
    if find_spec("pyspark") is None or not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        plan.log("spark: left out, because pyspark or Java is not installed")
        return []
    rows = plan.amount(8_000_000, 1_000_000)
    few_rows = rows // 8
    place = plan.place / "spark"
    place.mkdir()
    plan.log(f"spark: writing {rows / 1e6:g} M messages as journals and as JSON")
    one, four = write_journal(place / "one", rows), write_journal(place / "four", rows, 4)
    few, lines = write_journal(place / "few", few_rows), write_json(place / "messages.json", rows)
    with two_cores(place) as spark:
        figures = reading(plan, spark, one, four, lines, rows)
        figures += to_parquet(plan, spark, one, lines, rows)
    figures += by_time(plan, one, rows)
    figures += planning(few, few_rows, one, rows)
    shutil.rmtree(place)
    return figures
