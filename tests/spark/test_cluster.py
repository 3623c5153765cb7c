"""On a real cluster of several processes: the package as users ship it, reading, writing, and executors that die.

The tests that share a driver are independent of each other.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from logwright.pipeline import Settings
from logwright.pipeline.run import run
from logwright.sej import Reader, ShardedReader, ShardedWriter, Writer
from tests.pipeline.worlds import World, tables_of
from tests.spark import quick
from tests.spark.cluster import (
    ROOT,
    SHARE,
    SPARK_HOME,
    Cluster,
    build_wheel,
    make_environment,
    pack_environment,
    running_cluster,
    spark_environment,
)
from tests.spark.driver import DEADLINE_SECONDS, Driver, is_alive, run_to_the_end, wait_for
from tests.support.counts import COUNTS

MESSAGES = 1200
SPLIT = "60k"


@dataclass(frozen=True)
class Shipped:
    """The files that are shipped to the cluster: an environment, also packed, and its wheel."""

    wheel: Path
    environment: Path
    archive: Path


def ship(directory: Path) -> Shipped:
    wheel = build_wheel(directory / "wheel")
    environment = make_environment(directory / "environment", wheel)
    return Shipped(wheel, environment, pack_environment(environment, directory / "environment.tar.gz"))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Shipped]]:
    """A cluster, and the shipped files, which are made while the cluster starts."""
    directory = tmp_path_factory.mktemp("cluster")
    with ThreadPoolExecutor(1) as other:
        shipping = other.submit(ship, directory / "shipped")
        with running_cluster(directory / "spark") as cluster:
            yield cluster, shipping.result(DEADLINE_SECONDS)


@pytest.fixture(scope="module")
def driver(places: tuple[Cluster, Shipped]) -> Iterator[Driver]:
    """A driver in the shipped environment. Spark plans on the driver, and calls Python by the same name."""
    cluster, shipped = places
    libraries = sorted(str(path) for path in (SPARK_HOME / "python" / "lib").glob("*.zip"))
    environment = spark_environment() | {"PYSPARK_PYTHON": "./environment/bin/python"}
    environment["PYTHONPATH"] = os.pathsep.join(libraries)
    python = str(shipped.environment / "bin" / "python")
    home = shipped.environment.parent
    settings = json.dumps(SHARE | {"spark.driver.extraJavaOptions": quick.java_options()})
    arguments = (cluster.url, shipped.archive, settings)
    with Driver("jobs/on_cluster.py", home, *arguments, python=python, environment=environment) as running:
        yield running


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal of about a megabyte in twenty segments."""
    directory = tmp_path_factory.mktemp("journals") / "orders"
    dice = random.Random(11)
    with Writer(directory, segment_size=50_000) as writer:
        for number in range(MESSAGES):
            timestamp = None if number % 10 == 0 else 10**18 + number
            value = dice.randbytes(dice.randrange(1800))
            writer.append(value, b"customer %d" % dice.randrange(50), dice.randrange(256), timestamp)
    return directory


def rows_of(journal: Path) -> list[tuple[Any, ...]]:
    """The records read by plain Python, in the columns that Spark does not change."""
    return [(m.offset, m.timestamp, m.type, m.key, m.value) for m in Reader(journal)]


def copied(journal: Path, root: Path) -> dict[str, bytes]:
    """The files that a sharded writer makes from a journal's messages."""
    with ShardedWriter(root, "", 1, segment_size=64 << 10) as writer:
        for message in Reader(journal):
            writer.append(message.value, message.key, message.type, message.timestamp)
    return files(root)


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.glob("*/jnl/*"))}


def staged(root: Path) -> list[str]:
    return sorted(path.name for path in (root / ".logwright" / "staging").iterdir() if path.name != "sink.lck")


# --- a packed environment ---------------------------------------------------------------------------------------------


def test_executors_use_the_shipped_package(places: tuple[Cluster, Shipped], driver: Driver) -> None:
    cluster, _ = places
    found = driver.ask("where")
    assert len(found) == 2
    for number, (file, compiled, python) in enumerate(sorted(found)):
        home = cluster.directory / "work" / str(number)
        assert Path(file).is_relative_to(home), "each from the archive that its own worker has unpacked"
        assert Path(python).is_relative_to(home)
        assert compiled, "with its kernels"
        assert not Path(file).is_relative_to(ROOT)


def test_table_of_many_splits_equals_plain_python(driver: Driver, journal: Path, tmp_path: Path) -> None:
    tasks = driver.ask("read", path=str(journal), result=str(tmp_path / "rows"), split=SPLIT)
    rows = pickle.loads((tmp_path / "rows").read_bytes())
    assert tasks > 10
    found = sorted((offset, nanoseconds, type, key, value) for offset, _, nanoseconds, type, key, value, _ in rows)
    assert [(o, n, t, bytes(k), bytes(v)) for o, n, t, k, v in found] == rows_of(journal)


def test_stream_equals_plain_python(driver: Driver, journal: Path, tmp_path: Path) -> None:
    batches = driver.ask(
        "stream", path=str(journal), table=str(tmp_path / "table"), checkpoint=str(tmp_path / "checkpoint"), limit=500
    )
    assert batches == [500, 500, 200]
    table = pq.read_table(tmp_path / "table", columns=["offset", "timestamp_ns", "type", "key", "value"])
    rows = sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))
    assert rows == rows_of(journal)


def test_cluster_writes_the_same_as_a_single_writer(driver: Driver, journal: Path, tmp_path: Path) -> None:
    driver.ask("write", source=str(journal), target=str(tmp_path / "out"), split=SPLIT, bit=1)
    assert files(tmp_path / "out") == copied(journal, tmp_path / "one")
    assert staged(tmp_path / "out") == []


def test_executor_killed_while_staging_loses_nothing(driver: Driver, tmp_path: Path) -> None:
    journal, marker = tmp_path / "large", tmp_path / "staging"
    dice = random.Random(12)
    with Writer(journal, segment_size=2 << 20) as writer:
        for number in range(300):  # large ones: Spark buffers hundreds of kilobytes between two steps of a task
            writer.append(dice.randbytes(20_000), b"%d" % number, 0, number)
    driver.say("write", source=str(journal), target=str(tmp_path / "out"), split="2m", bit=1, marker=str(marker))
    wait_for(lambda: driver.is_busy() and marker.exists(), "that the task is staging")
    executor = int(marker.read_text())
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
    begun = {name for name in staged(tmp_path / "out") if ".000001-" in name}
    assert begun
    os.kill(executor, signal.SIGKILL)
    wait_for(lambda: not is_alive(executor), "the death of the executor")
    driver.answer()
    assert files(tmp_path / "out") == copied(journal, tmp_path / "one")
    assert staged(tmp_path / "out") == [], "also what the killed one had begun"
    COUNTS.add("kill -9", 1, "sej")


def test_tables_are_right_after_an_executor_of_the_pipeline_was_killed(driver: Driver, tmp_path: Path) -> None:
    world, out, marker = World(tmp_path / "journals", "on a cluster"), tmp_path / "out", tmp_path / "waiting"
    for _ in range(3):
        world.everything()
    driver.say("pipeline", journals=str(world.root), out=str(out), marker=str(marker))
    wait_for(lambda: driver.is_busy() and marker.exists(), "that a task has written its files")
    executor = int(marker.read_text())
    os.kill(executor, signal.SIGKILL)
    wait_for(lambda: not is_alive(executor), "the death of the executor")
    records = driver.answer()
    plain = run(Settings(str(world.root), str(tmp_path / "plain"), local_bytes=1 << 40))
    assert records == plain.records > 0
    assert tables_of(out, with_files=False) == tables_of(tmp_path / "plain", with_files=False)
    assert not list((out / "_logwright").glob("staging/*")), "also what the killed one had written"
    COUNTS.add("kill -9", 1, "pipeline")


# --- a zip of Python files --------------------------------------------------------------------------------------------


def test_zipped_package_works_without_kernels_and_speculative_tasks_are_counted_once(
    places: tuple[Cluster, Shipped], journal: Path, tmp_path: Path
) -> None:
    cluster, shipped = places
    python = make_environment(tmp_path / "python", None) / "bin" / "python"
    package = tmp_path / "logwright.zip"
    package.write_bytes(shipped.wheel.read_bytes())
    events, result = tmp_path / "events", tmp_path / "result.json"
    events.mkdir()
    settings = SHARE | {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.speculation.quantile": "0.5",
    }
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.url, "--py-files", str(package)]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    command += ["--driver-java-options", quick.java_options(), str(Path(__file__).parent / "jobs" / "submitted.py")]
    targets = [tmp_path / "out", tmp_path / "slow"]
    command += map(str, (journal, *targets, events, result))
    status, printed = run_to_the_end(command, tmp_path, spark_environment() | {"PYSPARK_PYTHON": str(python)})
    assert status == 0, printed
    result_json = json.loads(result.read_text())
    for file, compiled in result_json["places"]:
        assert "logwright.zip/logwright/__init__.py" in file
        assert not compiled
    assert result_json["tasks"] > 5
    assert sorted(path.name for path in events.iterdir()) == ["attempt 0", "attempt 1"]
    with ShardedWriter(tmp_path / "one", "", 1) as writer:
        for message in Reader(journal):
            writer.append(message.value, message.key, message.type, message.timestamp)
    for target in targets:
        assert files(target) == files(tmp_path / "one")
        assert ShardedReader(target).verify().sound
