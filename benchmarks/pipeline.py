"""The pipeline: full runs, increments, tables beside window functions of Spark's, many journals, many batches.

The mix is 2 M messages, 0.83 M operations of a queue and 0.5 M changes of a store. Spark's start is not counted. Peers:
two plain processes that do the same tasks (decode, replay, write Parquet) without Spark and without publishing; and the
same tables written as window functions in Spark SQL over the Parquet files of the records. A queue is replayed there as
if every removal took the next item, which is less than what the pipeline does.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pyarrow import fs

from benchmarks.journals import BATCH_ROWS, batch_of
from benchmarks.measure import Figure, Plan, Turns
from benchmarks.spark import two_cores
from logwright import kestrel, sej, versioned
from logwright.pipeline.parquet import Target
from logwright.pipeline.plan import Seen, chosen_journals, everything, works_of
from logwright.pipeline.run import Result
from logwright.pipeline.run import run as run_pipeline
from logwright.pipeline.settings import Settings
from logwright.pipeline.tables import TABLES, schema_of
from logwright.pipeline.task import Assignment, perform

KEYS = 20_000
RECENT_SECONDS = 2.5
"""After this time a file that was written has a stamp: see `logwright/pipeline/stamps.py`."""


# --- journals ---------------------------------------------------------------------------------------------------------


def write_messages(directory: Path, rows: int) -> None:
    with sej.Writer(directory, segment_size=64 << 20) as writer:
        for first in range(0, rows, BATCH_ROWS):
            writer.append_batch(batch_of(first, min(BATCH_ROWS, rows - first)))


def write_operations(path: Path, rows: int) -> None:
    """A queue whose items are removed as they are added, but for a few that wait."""
    with kestrel.Writer(path) as writer:
        for number in range(rows // 2):
            writer.addx(b"v" * 100, added=1_700_000_000_000 + number)
            if number >= 1000:
                writer.remove()


def write_changes(directory: Path, rows: int) -> None:
    chance = random.Random(1)
    with versioned.VersionedKVStore(directory, "store", 64 << 20, background=False, sync="none") as store:
        for number in range(rows):
            store.insert(f"key {chance.randrange(KEYS)}", {"number": number, "text": "v" * 60})


def write_mix(root: Path, share: float) -> None:
    write_messages(root / "messages", int(2_000_000 * share))
    write_operations(root / "queues" / "queue", int(830_000 * share))
    write_changes(root / "stores", int(500_000 * share))


# --- runs -------------------------------------------------------------------------------------------------------------


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def full(root: Path, out: Path, spark: Any, **more: Any) -> Result:
    shutil.rmtree(out, ignore_errors=True)
    return run_pipeline(Settings(str(root), str(out), **more), spark)


def increment(root: Path, out: Path, spark: Any = None) -> Result:
    return run_pipeline(Settings(str(root), str(out), incremental=True), spark)


def plainly(root: Path, out: Path) -> None:
    """The tasks of a full run in two plain processes."""
    shutil.rmtree(out, ignore_errors=True)
    settings = Settings(str(root), str(out))
    works = works_of(everything(settings, chosen_journals(settings), Seen()), settings.split_bytes, (), ())
    filesystem = fs.LocalFileSystem()
    targets = {
        table: Target(table, filesystem, str(out / table), schema_of(table, settings), (), 1) for table in TABLES
    }
    assignment = Assignment(settings, (), targets, False, time.time_ns(), None)
    with ProcessPoolExecutor(2, get_context("fork")) as pool:
        list(pool.map(partial(perform, assignment), works))


def runs(plan: Plan, spark: Any, root: Path) -> list[Figure]:
    share = plan.amount(100, 5) / 100
    plan.log(f"pipeline: writing {int(2_000_000 * share):,} messages, and queues and stores")
    write_mix(root, share)
    out, other = plan.place / "tables", plan.place / "plain"
    full(root, out, spark, local_bytes=1)
    turns = Turns(plan.rounds).run(
        {
            "full": lambda: seconds(lambda: full(root, out, spark, local_bytes=1)),
            "plain": lambda: seconds(lambda: plainly(root, other)),
        }
    )
    growing = plan.place / "growing"
    increment(root, growing, spark)
    took = []
    for _ in range(max(3, plan.rounds)):
        write_mix(root, share / 100)
        took.append(seconds(lambda: increment(root, growing, spark)))
    whole = turns.median("full")
    return [
        Figure("pipeline", "full run of the mix", whole, turns.median("plain"), "s", "two plain processes", 0.5,
               spread=turns.results["full"]),
        Figure("pipeline", "increment of 1 %", sorted(took)[len(took) // 2], whole, "s", "full run", 20.0, spread=took),
    ]  # fmt: skip


# --- tables -----------------------------------------------------------------------------------------------------------

QUEUE_SQL = """
    WITH adds AS (
        SELECT *, row_number() OVER (ORDER BY sequence, position) AS item FROM operations WHERE op LIKE 'add%'
    ), removals AS (
        SELECT position AS done_position, row_number() OVER (ORDER BY sequence, position) AS item
        FROM operations WHERE op = 'remove'
    )
    SELECT a.queue, a.item, if(r.item IS NULL, 'waiting', 'done') AS state, a.data, a.added, a.position, r.done_position
    FROM adds a LEFT JOIN removals r USING (item)
"""
HISTORY_SQL = """
    SELECT store, k, row_number() OVER w AS version, o, deleted, timestamp AS valid_from,
        lead(timestamp) OVER w AS valid_to, sequence, position
    FROM changes WINDOW w AS (PARTITION BY store, k ORDER BY sequence, position)
"""
STATE_SQL = """
    SELECT store, k, o, timestamp, sequence, position
    FROM (SELECT *, row_number() OVER (PARTITION BY store, k ORDER BY sequence DESC, position DESC) AS n FROM changes)
    WHERE n = 1 AND NOT deleted
"""


def tables(plan: Plan, spark: Any) -> list[Figure]:
    """The state tables of one queue and one store, and the same by window functions."""
    rows = plan.amount(1_000_000, 50_000)
    place = plan.place / "states"
    write_operations(place / "queues" / "queue", rows)
    write_changes(place / "stores", rows)
    records = plan.place / "records"
    full(place, records, spark, tables=("queue_operations", "kv_changes"))
    spark.read.parquet(str(records / "queue_operations")).createOrReplaceTempView("operations")
    spark.read.parquet(str(records / "kv_changes")).createOrReplaceTempView("changes")
    out = plan.place / "made"

    def by_sql(*queries: str) -> float:
        return seconds(
            lambda: [spark.sql(query).write.mode("overwrite").parquet(str(out / "sql")) for query in queries]
        )

    def by_us(journal: str, *names: str) -> float:
        return seconds(lambda: full(place / journal, out / journal, spark, tables=names, local_bytes=1 << 40))

    turns = Turns(plan.rounds).run(
        {
            "queue": lambda: by_us("queues", "queue_items"),
            "queue by SQL": lambda: by_sql(QUEUE_SQL),
            "store": lambda: by_us("stores", "kv_history", "kv_state"),
            "store by SQL": lambda: by_sql(HISTORY_SQL, STATE_SQL),
        }
    )
    return [
        Figure("pipeline", f"queue_items of {rows:,} operations", turns.median("queue"),
               turns.median("queue by SQL"), "s", "window functions in Spark SQL", 5.0, spread=turns.results["queue"]),
        Figure("pipeline", f"kv_history and kv_state of {rows:,} changes", turns.median("store"),
               turns.median("store by SQL"), "s", "window functions in Spark SQL", 3.0, spread=turns.results["store"]),
    ]  # fmt: skip


# --- many journals, many batches --------------------------------------------------------------------------------------


def write_journals(root: Path, count: int) -> None:
    for number in range(count):
        with sej.Writer(root / str(number)) as writer:
            writer.append(b"value")


def write_queues(root: Path, count: int) -> None:
    root.mkdir(parents=True)
    for number in range(count):
        with kestrel.Writer(root / f"queue{number}") as writer:
            writer.addx(b"value", added=1_700_000_000_000 + number)


def write_stores(root: Path, count: int) -> None:
    for number in range(count):
        with versioned.VersionedKVStore(root, f"store{number}", 4096, background=False, sync="none") as store:
            store.insert("key", number)


def many(plan: Plan) -> list[Figure]:
    """What each of many small journals costs, beyond the run of one, and beside each of a tenth as many."""
    figures = []
    subjects = (
        ("small journals", write_journals, plan.amount(3000, 200)),
        ("queues in one directory", write_queues, plan.amount(3000, 200)),
        ("stores in one directory", write_stores, plan.amount(2000, 200)),
    )
    for what, write, most in subjects:
        plan.log(f"pipeline: writing {most:,} {what}")
        took = {}
        for count in (1, most // 10, most):
            root = plan.place / "many" / what / str(count)
            write(root, count)
            took[count] = seconds(partial(full, root, plan.place / "of many", None, local_bytes=1 << 40))
        each, each_of_few = ((took[count] - took[1]) / (count - 1) * 1000 for count in (most, most // 10))
        figures.append(Figure("pipeline", f"each of {most:,} {what}", each, 3.0, "ms", "limit", 1.0))
        name = f"each of {most:,} {what}, growth"
        figures.append(Figure("pipeline", name, each, each_of_few, "ms", f"each of {most // 10:,}", 1 / 1.5))
    return [*figures, new_among_many(plan, plan.place / "many" / subjects[-1][0] / str(subjects[-1][2]))]


def new_among_many(plan: Plan, root: Path) -> Figure:
    """One new record among many stores that have not changed."""
    out = plan.place / "of stores"
    stores = int(root.name)
    time.sleep(RECENT_SECONDS)  # a store that was written just now is read again
    increment(root, out)
    took = []
    for number in range(3):
        with versioned.VersionedKVStore(root, "store7", 4096, background=False) as store:
            store.insert("key", number)
        took.append(seconds(lambda: increment(root, out)))
    name = f"one new record among {stores:,} stores"
    return Figure("pipeline", name, sorted(took)[1], 1.0, "s", "limit", 1.0, spread=took)


def batches(plan: Plan) -> list[Figure]:
    """Many small increments: the last cost what the first ones did, and leave few files."""
    count = plan.amount(200, 60)
    root, out = plan.place / "batches", plan.place / "of batches"
    took = []
    files = 0
    for _ in range(count):
        write_mix(root, 0.0005)
        started = time.perf_counter()
        result = increment(root, out)
        took.append(time.perf_counter() - started)
        files = max(files, *(table.files for table in result.tables.values()))
    first, last = sorted(took[1:12])[5], sorted(took[-11:])[5]
    return [
        Figure("pipeline", f"the last of {count} increments", last, first, "s", "the first ones", 1 / 1.2,
               spread=took[-11:]),
        Figure("pipeline", f"most files of a table after {count} increments", files, 20, "files", "limit", 1.0),
    ]  # fmt: skip


def run(plan: Plan) -> list[Figure]:
    """Everything about the pipeline; nothing where Spark or Java is missing."""
    if find_spec("pyspark") is None or not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        plan.log("pipeline: left out, because pyspark or Java is not installed")
        return []
    place = plan.place / "pipeline"
    place.mkdir()
    own = Plan(place, plan.rounds, plan.quick, plan.log, plan.results)
    figures = [*many(own), *batches(own)]
    with two_cores(place) as spark:
        figures += runs(own, spark, place / "mix")
        figures += tables(own, spark)
    shutil.rmtree(place)
    return figures
