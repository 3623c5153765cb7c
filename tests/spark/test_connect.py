"""Spark Connect: sources, streams, sinks and the pipeline work without a JVM or a SparkContext in the client."""

from __future__ import annotations

import datetime
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logwright import kestrel, sej
from logwright.cli import main
from logwright.errors import DamagedJournal, LogwrightError, WrongUse
from logwright.pipeline import Settings
from logwright.pipeline.restore import restore
from logwright.pipeline.run import run
from logwright.pipeline.tables import TABLES
from logwright.spark import register, session
from logwright.spark.stream import lag_of
from tests.pipeline.journals import damage, fill
from tests.spark.driver import run_to_the_end
from tests.spark.test_pipeline import content

MOMENT = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
PLACES = {
    "sej": "orders",
    "kestrel": "queues",
    "appendfile": "readings",
    "versioned": "stores",
    "yeltsin": "pages",
    "logwright": ".",
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("connect") / "demo"
    assert main(["demo", str(path)]) == 0
    return path


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(_plain(value) for value in row) for row in frame.collect()), key=repr)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


# --- tables, streams and sinks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", PLACES)
def test_every_format_is_the_same_table(spark: Any, connect: Any, demo: Path, format: str) -> None:
    frames = [
        each.read.format(format).option("mode", "permissive").load(str(demo / PLACES[format]))
        for each in (spark, connect)
    ]
    assert frames[0].schema == frames[1].schema
    found, wanted = rows(frames[1]), rows(frames[0])
    assert found == wanted
    assert len(found) > 100


def test_view_in_sql_and_its_description(spark: Any, connect: Any, demo: Path) -> None:
    statement = f"CREATE OR REPLACE TEMPORARY VIEW some_orders USING sej OPTIONS (path '{demo / 'orders'}')"
    query = "SELECT type, count(*), min(timestamp) FROM some_orders WHERE offset >= 100 GROUP BY type"
    found = []
    for each in (spark, connect):
        each.sql(statement)
        found.append([rows(each.sql(query)), rows(each.sql("DESCRIBE some_orders"))])
        each.catalog.dropTempView("some_orders")
    assert found[0] == found[1]
    assert ("offset", "bigint", None) in found[0][1]


def test_stream_and_sink_write_every_record_once(connect: Any, demo: Path, tmp_path: Path) -> None:
    stream = connect.readStream.format("sej").option("maxRecordsPerTrigger", 1000).load(str(demo / "orders"))
    writer = stream.select("key", "value", "type", "timestamp_ns").writeStream.format("sej")
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "copy"))
    )
    query.awaitTermination(120)
    assert query.exception() is None
    assert [lag_of(each) for each in query.recentProgress] == [
        {"orders": {"": 2000}},
        {"orders": {"": 1000}},
        {"orders": {"": 0}},
    ]
    assert list(sej.Reader(tmp_path / "copy")) == list(sej.Reader(demo / "orders"))


def test_sink_appends_items_to_a_queue(connect: Any, tmp_path: Path) -> None:
    frame = connect.createDataFrame([("first",), ("second",)], "data STRING").coalesce(1)
    frame.write.format("kestrel").option("queue", "work").mode("append").save(str(tmp_path))
    with kestrel.Queue(tmp_path, "work") as queue:
        assert queue.get_many(10) == [b"first", b"second"]


def test_registered_session_pushes_filters(connect: Any, demo: Path) -> None:
    assert register(connect) is connect
    table = connect.read.format("sej").option("pushFilters", True).load(str(demo / "orders"))
    assert table.filter("offset >= 2990").count() == 10


# --- the pipeline -----------------------------------------------------------------------------------------------------


def tables_of(out: Path) -> dict[str, list[tuple[Any, ...]]]:
    return {table: content(out, table) for table in TABLES}


@pytest.fixture(scope="module")
def tables(spark: Any, demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables that a session without Spark Connect makes of the sample journals."""
    out = tmp_path_factory.mktemp("tables") / "out"
    run(Settings(str(demo), str(out), local_bytes=0, moment=MOMENT), spark)
    return out


def test_pipeline_makes_the_same_tables_and_restores_from_them(
    connect: Any, demo: Path, tables: Path, tmp_path: Path
) -> None:
    steps: list[tuple[str, int, int]] = []
    settings = Settings(str(demo), str(tmp_path / "out"), local_bytes=0, moment=MOMENT)
    run(settings, connect, progress=lambda what, done, total, records=None: steps.append((what, done, total)))
    assert tables_of(tmp_path / "out") == tables_of(tables)
    assert any(total for _, _, total in steps), "the server reports the progress of tasks"
    restored = restore(str(tmp_path / "out"), str(tmp_path / "again"), journals=("orders",), spark=connect)
    assert [journal.journal for journal in restored.journals] == ["orders"]
    assert list(sej.Reader(tmp_path / "again" / "orders")) == list(sej.Reader(demo / "orders"))


def test_damage_is_the_same_error_as_without_connect(connect: Any, tmp_path: Path) -> None:
    damage(fill(tmp_path / "bad", 200, seed=3), 100)
    with pytest.raises(DamagedJournal) as plain:
        list(sej.Reader(tmp_path / "bad"))
    settings = Settings(str(tmp_path / "bad"), str(tmp_path / "out"), mode="failfast", local_bytes=0)
    with pytest.raises(DamagedJournal) as found:
        run(settings, connect)
    assert found.value.position == plain.value.position
    assert Path(found.value.file).name == Path(plain.value.file).name


def test_command_uses_a_server_and_needs_no_java(server: str, demo: Path, tables: Path, tmp_path: Path) -> None:
    config = tmp_path / "pipeline.toml"
    config.write_text(f'journals = "{demo}"\nout = "tables"\nlocal = "1"\nmoment = {MOMENT.isoformat()}\n')
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    code, printed = run_to_the_end(
        [sys.executable, "-m", "logwright", "pipeline", "run", "--config", str(config), "--remote", server],
        tmp_path,
        environment | {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)},
    )
    assert code == 1, printed  # there are damaged journals
    assert "report: " in printed
    assert tables_of(tmp_path / "tables") == tables_of(tables)


# --- servers that are not there ---------------------------------------------------------------------------------------


@pytest.fixture
def unused_address() -> Iterator[str]:
    """The address of a port at which no one listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"sc://127.0.0.1:{bound.getsockname()[1]}"


def test_server_that_cannot_be_reached_is_a_clear_error(unused_address: str, demo: Path, tmp_path: Path) -> None:
    with pytest.raises(LogwrightError, match=f"{unused_address}: no server of Spark Connect can be reached"):
        session(remote=unused_address)
    config = tmp_path / "pipeline.toml"
    config.write_text(f'journals = "{demo}"\nout = "tables"\nlocal = "1"\n')
    code, printed = run_to_the_end(
        [sys.executable, "-m", "logwright", "pipeline", "run", "--config", str(config), "--remote", unused_address],
        tmp_path,
        os.environ,
    )
    assert code == 2
    assert f"logwright: error: {unused_address}: no server of Spark Connect can be reached" in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize("remote", ["host:15002", "http://host", "sc://", "sc://host:port", "spark://host:7077"])
def test_address_that_is_no_server_is_refused(remote: str) -> None:
    with pytest.raises(WrongUse, match=r"write the URL of a server of Spark Connect as sc://HOST:PORT"):
        session(remote=remote)
