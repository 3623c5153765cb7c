"""The pipeline on a real Spark: the tables equal the journals, however often it runs and is interrupted."""

from __future__ import annotations

import datetime
import shlex
import shutil
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logwright import kestrel
from logwright.cli import every_verb
from logwright.core.format import FORMATS
from logwright.errors import DamagedJournal, ExpectationFailed, WrongUse
from logwright.pipeline import Expectation, Settings, TableRule
from logwright.pipeline.publish.parquet import is_being_changed, read_checkpoint, table_files
from logwright.pipeline.restore import restore
from logwright.pipeline.run import Result
from logwright.pipeline.run import run as run_pipeline
from logwright.pipeline.tables import TABLES
from logwright.sej import Offset, Reader, ShardedWriter, Writer
from logwright.versioned import VersionedKVStore, VersionedRecovery
from tests.cli.support import assert_one_error_line
from tests.cli.support import run as command
from tests.pipeline.journals import damage, fill, tear, unreadable
from tests.pipeline.worlds import World as RandomWorld
from tests.pipeline.worlds import read_table, rows_of, tables_of
from tests.spark import killed_pipeline
from tests.support.counts import COUNTS
from tests.support.threads import DEADLINE_SECONDS

ALL = tuple(TABLES)


def run(settings: Settings, spark: Any, **more: Any) -> Result:
    """Run the pipeline such that even the smallest batch is a job of Spark's."""
    return run_pipeline(replace(settings, local_bytes=0), spark, **more)


def content(out: Path, table: str) -> list[tuple[Any, ...]]:
    """The rows of a Parquet table in a fixed order, read without Spark."""
    files = table_files(out, table)
    assert files, f"{table} is not there"
    found = pa.concat_tables([pq.read_table(out / name, partitioning=None) for name in files])
    for number, column in enumerate(found.schema):
        if pa.types.is_timestamp(column.type):
            found = found.set_column(number, column.name, found[column.name].cast(pa.int64()))
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def contents(out: Path) -> dict[str, list[tuple[Any, ...]]]:
    return {table: content(out, table) for table in ALL}


def rows(frame: Any) -> list[tuple[Any, ...]]:
    """The rows of a DataFrame, in the same order and types as `content` has them."""
    columns = [f"unix_micros({name})" if name in ("timestamp", "minute") else name for name in frame.columns]
    return sorted((_plain(row) for row in frame.selectExpr(*columns).collect()), key=repr)


def _plain(row: Any) -> tuple[Any, ...]:
    return tuple(bytes(value) if isinstance(value, bytearray) else value for value in row)


# --- all that there is ------------------------------------------------------------------------------------------------


class World(NamedTuple):
    """Journals, and the tables made from them."""

    root: Path
    out: Path
    result: Result


@pytest.fixture(scope="module")
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> World:
    place = tmp_path_factory.mktemp("pipeline")
    root = place / "journals"
    fill(root / "a", 400)
    fill(root / "deep" / "b", 300, seed=2)
    with Offset(root / "a", "billing") as offset:
        offset.commit(390)
    with ShardedWriter(root / "web", bit=1) as writer:
        for number in range(100):
            writer.append(b"v", b"%d" % number, timestamp=number)
    damage(fill(root / "bad", 200, seed=3), 100)
    tear(fill(root / "torn", 50, seed=4))
    (root / "empty" / "jnl").mkdir(parents=True)
    (root / "empty" / "jnl" / "0000000000000000.jnl").touch()
    return World(root, place / "tables", run(Settings(str(root), str(place / "tables"), split_bytes=30_000), spark))


def test_events_and_damage_equal_the_source_row_for_row(spark: Any, world: World) -> None:
    records = spark.read.format("logwright").option("mode", "permissive").load(str(world.root))
    events = spark.read.parquet(str(world.out / "events"))
    wanted = records.where("damage is null").select(*TABLES["events"].schema.names)
    assert events.schema == wanted.schema
    assert rows(events) == content(world.out, "events") == rows(wanted)
    damaged = records.where("damage is not null").select("journal", "file", "position", "damage").collect()
    assert sorted((row[1], row[2], row[3], f"{row[5]}: {row[6]}") for row in content(world.out, "damage")) == sorted(
        tuple(row) for row in damaged
    )


def test_other_tables_describe_the_same_records(world: World) -> None:
    messages = content(world.out, "messages")
    events = content(world.out, "events")
    assert sorted((row[0], row[2], row[6]) for row in messages) == sorted((row[1], row[5], row[9]) for row in events)
    assert {row[1] for row in messages if row[0] == "web"} == {"1.000", "1.001"}
    activity = content(world.out, "activity")
    assert sum(row[3] for row in activity) == len(events)
    assert sum(row[4] for row in activity) == sum(row[4] for row in events)
    files = {row[3]: row[4] for row in content(world.out, "files") if row[1] == "deep/b"}
    assert files == {s.name: s.path.stat().st_size for s in Reader(world.root / "deep" / "b").segments()}
    assert [row[:5] for row in content(world.out, "consumers")] == [("sej", "a", None, "billing", 390)]


def test_result_describes_the_tables(world: World) -> None:
    result = world.result
    assert {name: (one.records, one.damage) for name, one in result.journals.items()} == {
        "a": (400, {}),
        "bad": (199, {"malformed": 1}),
        "deep/b": (300, {}),
        "torn": (49, {"torn_tail": 1}),
        "web": (100, {}),
    }
    assert result.is_damaged
    for name, totals in result.tables.items():
        files = table_files(world.out, name)
        sizes = sum((world.out / file).stat().st_size for file in files)
        assert (totals.rows, totals.files, totals.bytes) == (len(content(world.out, name)), len(files), sizes)
    assert list(result.tables) == list(ALL)
    assert result.report == str(world.out / "report.html")
    assert "deep/b" in (world.out / "report.html").read_text()
    assert [path.name for path in (world.out / "_logwright").iterdir() if path.name != "lock"] == ["pipeline.json"]


def test_second_run_replaces_the_first_and_removes_unrequested_tables(spark: Any, world: World, tmp_path: Path) -> None:
    out = tmp_path / "tables"
    shutil.copytree(world.out, out)
    result = run(Settings(str(world.root), str(out), tables=("events", "activity")), spark)
    assert content(out, "events") == content(world.out, "events")
    assert content(out, "activity") == content(world.out, "activity")
    assert {name: bool(table_files(out, name)) for name in ALL} == {
        name: name in ("events", "activity") for name in ALL
    }
    assert list(result.tables) == ["events", "activity"]
    assert {Path(name).name[:13] for name in table_files(out, "events")} == {"part-00000002"}


def test_spark_and_plain_python_make_the_same_tables(spark: Any, tmp_path: Path) -> None:
    """Full runs on either, and increments on both by turns, from random journals of all formats."""
    world = RandomWorld(tmp_path / "root", "with and without Spark")
    moment = datetime.datetime(2023, 11, 14, 22, 30, tzinfo=datetime.UTC)

    def tables(name: str, local_bytes: int, **more: Any) -> dict[str, list[tuple[Any, ...]]]:
        out = tmp_path / name
        run_pipeline(Settings(str(world.root), str(out), moment=moment, local_bytes=local_bytes, **more), spark)
        return tables_of(out, with_files=False)

    for number in range(3):
        world.everything()
        plain = tables("plain", 1 << 40)
        assert tables("on Spark", 1) == plain
        by_turns = tables("by turns", 1 if number % 2 else 1 << 40, incremental=True)
        for table, rows in plain.items():
            assert by_turns[table] == rows, (table, number)


def test_expectations_are_the_same_with_and_without_spark(spark: Any, world: World, tmp_path: Path) -> None:
    small = Expectation("events", "size % 3 <> 0 OR journal = 'a'", "quarantine", "small")
    keyed = Expectation("messages", "octet_length(key) > 0")
    found = []
    for local_bytes in (1, 1 << 40):
        out = tmp_path / str(local_bytes)
        settings = Settings(str(world.root), str(out), expectations=(small, keyed), local_bytes=local_bytes)
        result = run_pipeline(settings, spark)
        tables = {table: sorted(map(repr, read_table(out, table).to_pylist())) for table in ("events", "quarantine")}
        found.append((result.expectations, tables))
    assert found[0] == found[1]
    failed = sum(row["size"] % 3 == 0 and row["journal"] != "a" for row in events_of(world))
    assert next((each.failed, each.new) for each in found[0][0]) == (failed, failed)
    assert len(found[0][1]["quarantine"]) == failed > 0
    strict = Expectation("events", "size < 0", "fail")
    with pytest.raises(ExpectationFailed, match=r"events: 1,048 rows do not meet the expectation size < 0"):
        run_pipeline(Settings(str(world.root), str(out), expectations=(strict,), local_bytes=1), spark)


def events_of(world: World) -> list[dict[str, Any]]:
    return list(read_table(world.out, "events").to_pylist())


def test_files_of_a_failed_attempt_are_removed(spark: Any, world: World, tmp_path: Path) -> None:
    """A file that no task has reported is not published: another attempt may have left it."""

    def with_other_file() -> Any:
        (staging,) = (tmp_path / "out" / "_logwright" / "staging").iterdir()
        (staging / "events" / "part-00000001-0123456789abcdef.parquet").write_bytes(b"half of a file")
        return spark

    run(Settings(str(world.root / "a"), str(tmp_path / "out")), with_other_file)
    assert len(table_files(tmp_path / "out", "events")) == 1
    assert len(content(tmp_path / "out", "events")) == 400


# --- increments -------------------------------------------------------------------------------------------------------


def grow(root: Path, step: int) -> None:
    """Changes of journals between runs: they grow and roll over, journals and shards are added, tails are torn."""
    if step == 0:
        fill(root / "a", 300, segment_size=20_000)
        damage(fill(root / "bad", 60, seed=3), 20)
        with Writer(root / "web" / "2.001") as writer:
            writer.append(b"first")
        unreadable(root / "mixed")
    elif step == 1:
        fill(root / "a", 150, segment_size=20_000, seed=5)
        fill(root / "web" / "2.003", 20, seed=6)
        fill(root / "late", 30, seed=7)
        tear(root / "late")
        with Offset(root / "a", "billing") as offset:
            offset.commit(12)
    else:
        fill(root / "late", 1, seed=8)  # the writer cuts off the torn tail, and writes its own
        fill(root / "bad", 10, seed=9)


def increment(spark: Any, root: Path, out: Path, **options: Any) -> Result:
    return run(Settings(str(root), str(out), incremental=True, **options), spark)


def test_increments_equal_one_full_run(spark: Any, tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "growing"
    batches = []
    for step, batch_bytes in enumerate((35_000, 1 << 30, 1 << 30)):
        grow(root, step)
        batches.append(increment(spark, root, out, batch_bytes=batch_bytes).batches)
    assert batches[0] >= 2
    assert batches[1:] == [1, 1]
    run(Settings(str(root), str(tmp_path / "at once")), spark)
    growing, at_once = contents(out), contents(tmp_path / "at once")
    assert growing == at_once
    assert [row[5] for row in growing["damage"]] == ["malformed", "unreadable"]
    files = table_files(out, "events")
    assert increment(spark, root, out).batches == 0
    with Offset(root / "a", "billing") as offset:
        offset.commit(13)
    result = increment(spark, root, out)
    assert (result.batches, result.records) == (1, 0)
    assert table_files(out, "events") == files
    assert content(out, "consumers")[0][4] == 13
    with pytest.raises(WrongUse, match="were made with tables"):
        increment(spark, root, out, tables=("events",))


def use(root: Path, step: int) -> None:
    """Changes of a queue between runs: it is used, and its file is rotated."""
    with kestrel.Writer(root / "queues" / "cars") as writer:
        for number in range(20):
            writer.addx(b"%d/%d" % (step, number), added=number, expires=number * 1000 or None)
            if number % 3 == step:
                writer.remove_tentative()
            if number % 4 == step:
                writer.confirm_remove(5 * step + number // 4)
            if number == 5 + 5 * step:
                writer.rotate()
    with kestrel.Writer(root / "queues" / "bikes") as writer:
        writer.addx(b"bike", added=0)
        writer.unremove(1)
    ticks = iter(range((1 + 4 * step) * 10**9, 20 * 10**9, 10**8))
    with VersionedKVStore(root / "stores", "prices", background=False, clock=lambda: next(ticks)) as store:
        for number in range(30):
            key = f"item {number % 7}"
            if number % 5 == step and key in store:
                store.remove(key)
            else:
                store.insert(key, {"step": step, "number": number})
            if number == 20 - step:
                store.rotate()


def test_increments_have_the_items_and_keys_of_one_run_and_restore_the_same_queues(spark: Any, tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "root" / "queues" / "growing"  # a directory there is not part of a queue
    fill(root / "a", 5)
    moment = datetime.datetime(1970, 1, 1, 0, 0, 9, tzinfo=datetime.UTC)
    for step in range(3):
        use(root, step)
        increment(spark, root, out, moment=moment)
    run(Settings(str(root), str(tmp_path / "at once"), moment=moment), spark)
    assert rows_of(out, "queue_items", with_files=False) == rows_of(
        tmp_path / "at once", "queue_items", with_files=False
    )
    states = Counter(row[3] for row in content(out, "queue_items") if row[1] == "cars")
    assert (states["expired"] > 0, states["waiting"] > 0, states["open"] > 0, sum(states.values())) == (
        True,
        True,
        True,
        60,
    )
    assert len(list((root / "queues").glob("cars.*"))) == 3
    for name in ("events", "queue_operations"):
        growing, at_once = (rows_of(place, name, with_files=False) for place in (out, tmp_path / "at once"))
        assert growing == at_once
    for name in ("kv_history", "kv_state"):
        assert content(out, name) == content(tmp_path / "at once", name)
    recovery = VersionedRecovery.load(root / "stores")
    assert {row[2] for row in content(out, "kv_state")} == set(recovery.recover_at(9 * 10**9))
    assert len(content(out, "kv_history")) == sum(len(recovery.history(f"item {number}")) for number in range(7)) == 90
    whole = ("queue_items", "kv_history", "kv_state")
    files = [table_files(out, name) for name in whole]
    fill(root / "a", 5)
    increment(spark, root, out, moment=moment)
    assert [table_files(out, name) for name in whole] == files, "no queue and no store has changed"
    restored = restore(str(out), str(tmp_path / "again"), journals=["queues"], spark=spark)
    assert restored.whole, restored
    for path in (root / "queues").iterdir():
        if path.is_file():
            assert (tmp_path / "again" / "queues" / path.name).read_bytes() == path.read_bytes(), path
    with kestrel.Writer(root / "queues" / "cars") as writer:
        writer.pack()  # the tables keep what the journal has discarded
        writer.addx(b"last", added=0)
    increment(spark, root, out, moment=moment)
    kept, left = content(out, "queue_items"), kestrel.Reader(root / "queues" / "cars").queue_state()
    waiting = [row[4] for row in kept if row[1] == "cars" and row[3] in ("waiting", "expired")]
    assert sorted(waiting) == sorted(item.data for item in left.items)
    assert sum(row[1] == "cars" for row in kept) == 61


@pytest.fixture(scope="module")
def half_way(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Journals, tables that lag one step, and the expected tables."""
    place = tmp_path_factory.mktemp("killed")
    grow(place / "root", 0)
    increment(spark, place / "root", place / "tables")
    grow(place / "root", 1)
    increment(spark, place / "root", place / "expected")
    return place


@pytest.mark.parametrize("moment", killed_pipeline.MOMENTS)
def test_killed_run_publishes_its_batch_completely_or_not_at_all(
    spark: Any, half_way: Path, tmp_path: Path, moment: str
) -> None:
    out = tmp_path / "tables"
    shutil.copytree(half_way / "tables", out)
    before = contents(out)
    arguments = ["pipeline", "run", "--journals", half_way / "root", "--out", out, "--incremental"]
    arguments += ["--master", "local[1]", "--spark", "spark.driver.memory=512m"]
    child = [sys.executable, killed_pipeline.__file__, moment, *map(str, arguments)]
    with (tmp_path / "log").open("wb") as log:  # no pipes: its JVM would hold them for a while
        done = subprocess.run(child, stdout=log, stderr=log, timeout=4 * DEADLINE_SECONDS, check=False)
    assert done.returncode == -9, (tmp_path / "log").read_text()
    assert is_being_changed(out) == (moment != killed_pipeline.BEFORE)
    if moment == killed_pipeline.BEFORE:
        assert contents(out) == before
    result = increment(spark, half_way / "root", out)
    assert result.completed == (moment != killed_pipeline.BEFORE)
    assert result.batches == (1 if moment == killed_pipeline.BEFORE else 0)
    assert contents(out) == contents(half_way / "expected")
    assert not is_being_changed(out)
    COUNTS.add("kill -9", 1, "pipeline")


def test_following_run_continues_until_it_is_stopped(spark: Any, tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "tables"
    fill(root / "a", 10)
    stop, results, reported = threading.Event(), [], [""]
    settings = Settings(str(root), str(out), follow=True, tables=("events",))

    def follow() -> None:
        results.append(run(settings, spark, stop=stop, progress=lambda what, *_: reported.append(what)))

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        wait_until(lambda: _rows_of(out) == 10)
        fill(root / "b", 5)
        wait_until(lambda: _rows_of(out) == 15)
        wait_until(lambda: reported[-1] == "waiting for more")
    finally:
        stop.set()
        thread.join(DEADLINE_SECONDS)
    (result,) = results
    assert (result.batches, result.records) == (2, 15)
    assert len(content(out, "events")) == 15


def _rows_of(out: Path) -> int:
    checkpoint = read_checkpoint(out)
    return 0 if checkpoint is None else int(checkpoint.state["tables"]["events"]["rows"])


def wait_until(true: Any) -> None:
    pause = threading.Event()
    for _ in range(int(DEADLINE_SECONDS / 0.05)):
        if true():
            return
        pause.wait(0.05)
    pytest.fail("it did not happen in time")


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_errors_of_tasks_and_of_spark_are_one_error(spark: Any, world: World, tmp_path: Path) -> None:
    with pytest.raises(DamagedJournal, match=r"^bad/jnl/0000000000000000\.jnl @ \d+: .+$") as raised:
        run(Settings(str(world.root), str(tmp_path / "out"), mode="failfast"), spark)
    assert raised.value.position > 0
    assert not (tmp_path / "out" / "_logwright" / "staging").exists()
    assert read_checkpoint(tmp_path / "out") is None
    wrong = {"activity": TableRule(("colour",))}
    with pytest.raises(WrongUse, match=r"table\.activity\.partition_by: there is no 'colour'"):
        run(Settings(str(world.root), str(tmp_path / "out"), tables=("activity",), table_rules=wrong), spark)


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    assert command("demo", tmp_path / "demo").code == 0
    monkeypatch.chdir(tmp_path / "demo")
    return tmp_path / "demo"


def test_examples_run_on_the_sample_journals(spark: Any, demo: Path) -> None:
    examples = [line for name, verb in every_verb() if name.startswith("pipeline ") for _, line in verb.examples]
    outcomes = {line: command(*shlex.split(line)[1:]) for line in examples}
    assert {line: outcome.code for line, outcome in outcomes.items()} == {
        "logwright pipeline run --journals . --out tables": 1,
        "logwright pipeline run --journals . --out growing --incremental": 1,
        "logwright pipeline run --journals orders --out few --tables events,activity --json": 0,
        "logwright pipeline restore --tables tables --out again": 1,
        "logwright pipeline restore --tables tables --out some --journal 'ord*' --json": 0,
        "logwright pipeline compact --tables growing": 0,
    }
    first = outcomes["logwright pipeline run --journals . --out tables"]
    lines = [line.split() for line in first.lines]
    read = [int(line[2]) for line in lines if line[1:2] and line[1] in FORMATS]
    assert lines[1][:3] == ["events", str(sum(read)), "1"]
    assert next(line for line in lines if line[:1] == ["queues"])[:3] == ["queues", "kestrel", "430"]
    assert next(line for line in lines if line[:1] == ["queue_items"])[1] == "180"
    assert next(line for line in lines if line[:1] == ["damaged"])[:3] == ["damaged", "sej", "2999"]
    assert first.lines[-1] == "report: tables/report.html"
    assert "logwright: warning: torn: 1 torn tail" in first.err.splitlines()
    reported = outcomes["logwright pipeline run --journals orders --out few --tables events,activity --json"].object
    assert (reported["records"], reported["tables"]["events"]["rows"], reported["batches"]) == (3000, 3000, 1)
    for path in (demo / "orders" / "jnl").iterdir():
        if path.suffix == ".jnl":
            assert (demo / "some" / "orders" / "jnl" / path.name).read_bytes() == path.read_bytes()
    for path in (demo / "queues").iterdir():
        if path.is_file():
            assert (demo / "again" / "queues" / path.name).read_bytes() == path.read_bytes()
    for name in ("again", "some"):  # journals below the root, which the next run would find
        shutil.rmtree(demo / name)
    again = command("pipeline", "run", "--journals", ".", "--out", "growing", "--incremental")
    assert again.code == 0
    assert "logwright: no new records" in again.err.splitlines()
    failing = command("pipeline", "run", "--journals", "damaged", "--out", "never", "--mode", "failfast")
    assert failing.code == 1
    assert failing.err.splitlines()[-1].startswith("logwright: error: damaged/jnl/")
    assert_one_error_line(
        command("pipeline", "restore", "--tables", "orders", "--out", "no"), 2, "there is no table of records here"
    )
