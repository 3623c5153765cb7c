"""Paths are those of Spark's own sources: relative, several, with wildcards; every journal is read once."""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from pyspark.errors import PySparkException

import logwright
from logwright import kestrel, sej
from logwright.arrow.discovery import find_journals
from logwright.errors import NotFound, StorageFailed, UnknownFormat, WrongUse
from logwright.location import locate
from logwright.spark.paths import Paths, absolute, paths_of
from tests.spark.streams import following, read_batch, stream_of
from tests.spark.test_discovery import make


def refuse(name: str, error: StorageFailed) -> None:
    raise error


def names(root: Path, *paths: str, format: str | None = None) -> list[str]:
    given = Paths(tuple(str(root / path) for path in paths))
    return [journal.name for journal in given.find_journals(format, refuse)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number, name in enumerate(["a/orders", "a/events", "b/orders", "b/deep/orders", ".c/orders"], 1):
        make(tmp_path / name, number)
    for queue in ("jobs", "mails"):
        with kestrel.Queue(tmp_path / "queues", queue) as writer:
            writer.put(b"x")
    return tmp_path


# --- wildcards --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pattern", "wanted"), [
    ("*/orders", ["a/orders", "b/orders"]),
    ("?/orders", ["a/orders", "b/orders"]),
    ("[b-z]/orders", ["b/orders"]),
    ("[^b]/orders", ["a/orders"]),
    ("{a,b}/{orders,events}", ["a/events", "a/orders", "b/orders"]),
    ("{a,b/deep}/orders", ["a/orders", "b/deep/orders"]),
    ("*/*/orders", ["b/deep/orders"]),
    ("*/ev*", ["a/events"]),
    (".*/orders", [".c/orders"]),
    ("b*", ["b/deep/orders", "b/orders"]),
    ("a/*", ["events", "orders"]),
    ("queues/*", ["jobs", "mails"]),
    ("queue*", ["queues"]),
])  # fmt: skip
def test_wildcards_match_as_in_hadoop(root: Path, pattern: str, wanted: list[str]) -> None:
    assert names(root, pattern) == wanted


def test_wildcards_match_in_a_store(root: Path, s3_server: str) -> None:
    store = fs.S3FileSystem(endpoint_override=s3_server, scheme="http", allow_bucket_creation=True)
    store.create_dir("wild")
    fs.copy_files(str(root), "wild/top", destination_filesystem=store)
    options = f"?scheme=http&endpoint_override={s3_server}"

    def found(*patterns: str) -> list[str]:
        given = Paths(tuple(f"s3://key:secret@{pattern}{options}" for pattern in patterns))
        return [journal.name for journal in given.find_journals(None, refuse)]

    assert found("wild/top/*/orders") == ["a/orders", "b/orders"]
    assert found("wild/t*/{a,b/deep}/orders") == ["top/a/orders", "top/b/deep/orders"]
    assert found("wild/top/[b-z]/*") == ["b/deep/orders", "b/orders"]
    assert found("wild/top/a/*", "wild/top/queues") == ["a/events", "a/orders", "queues"]
    assert found("wild/*") == [f"top/{name}" for name in found("wild/top/")]
    with pytest.raises(NotFound, match="no path matches these wildcards") as raised:
        found("wild/none/*")
    assert "secret" not in str(raised.value)
    with pytest.raises(UnknownFormat, match=r"^s3://wild/top/a/orders/jnl/: no journal of kestrel is at"):
        find_journals(f"s3://key:secret@wild/top/a/orders/jnl/{options}", "kestrel")
    disk, path = locate(f"s3://key:secret@wild/top/a/orders/jnl/0000000000000000.jnl{options}")
    with closing(disk.open(path, "read")) as file:
        assert file.read_at(file.size() + 10, 5) == b"", "as a local file does"
    with pytest.raises(NotFound, match=r"^wild/none: no such file or directory"):
        logwright.dataset(f"s3://key:secret@wild/none{options}")
    with pytest.raises(WrongUse, match="the name of a bucket cannot have wildcards"):
        found("wi*/top")


def test_path_that_exists_is_no_pattern(root: Path) -> None:
    for name in ("x[1]", "x{2,3}", "x*"):
        make(root / name)
        assert names(root, name) == [name]
    assert names(root, r"x\*") == ["x*"], "a wildcard can be escaped"
    with pytest.raises(NotFound, match=r"y\*: no such file or directory; no path matches these wildcards"):
        names(root, "y*")


def test_files_of_a_queue_are_one_journal(root: Path) -> None:
    with kestrel.Queue(root / "queues", "jobs") as queue:
        for _ in range(3):
            queue.put(b"more")
    (root / "queues" / "jobs").rename(root / "queues" / "jobs.904")
    make_again = kestrel.Queue(root / "queues", "jobs")
    make_again.close()
    assert names(root, "queues/jobs*") == ["jobs"]


# --- several paths ----------------------------------------------------------------------------------------------------


def test_names_below_several_paths_are_unique(root: Path) -> None:
    assert names(root, "a", "b") == ["a/events", "a/orders", "b/deep/orders", "b/orders"]
    assert names(root, "a/orders", "b/orders") == ["a/orders", "b/orders"]
    assert names(root, "a/*", "queues") == ["a/events", "a/orders", "queues"]


def test_journal_is_read_once_whatever_leads_to_it(root: Path) -> None:
    (root / "link").symlink_to("a/orders")
    assert names(root, "a/orders", "a/orders") == ["orders"]
    assert names(root, "a", "a/orders", "*/orders", "link") == ["a/events", "a/orders", "b/orders"]
    assert names(root, "queues", "queues/jobs") == ["queues"]
    assert names(root, "a/orders", "a/orders/jnl") == ["orders"]


def test_missing_path_among_several_is_named(root: Path) -> None:
    with pytest.raises(NotFound, match="nothing: no such file"):
        names(root, "a", "nothing")
    with pytest.raises(UnknownFormat, match=r"a, .*/b: no journal of kestrel is at or below"):
        names(root, "a", "b", format="kestrel")


def test_options_give_the_paths() -> None:
    assert paths_of({"path": "/a"}, "") == Paths(("/a",))
    assert paths_of({"paths": json.dumps(["/a", "s3://b/c", "file:/d"])}, "") == Paths(("/a", "s3://b/c", "file:///d"))
    for empty in ({}, {"path": ""}, {"paths": "[]"}):
        with pytest.raises(WrongUse, match="give one"):
            paths_of(empty, "give one")


def test_relative_path_is_below_the_directory_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert absolute("a/b") == f"{os.getcwd()}/a/b"
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", "0e3c")
    parent = os.readlink(f"/proc/{os.getppid()}/cwd")
    monkeypatch.chdir(tmp_path)
    assert absolute("a/b") == f"{parent}/a/b"


# --- on Spark ---------------------------------------------------------------------------------------------------------


def test_stream_reads_what_begins_to_match(root: Path) -> None:
    stream = stream_of("sej", root / "*" / "orders")
    first = following(stream, stream.initialOffset())
    assert first == {"a/orders": {"": 1}, "b/orders": {"": 3}}
    make(root / "z" / "orders", 7)
    second = following(stream, first)
    assert second == {**first, "z/orders": {"": 7}}
    assert sum(batch.num_rows for batch in read_batch(stream, first, second)) == 7


def test_stream_waits_for_the_first_match(root: Path) -> None:
    stream = stream_of("sej", root / "later*")
    assert stream.initialOffset() == {}
    with pytest.raises(NotFound):
        stream_of("sej", root / "nowhere" / "*").initialOffset()


def test_spark_reads_several_paths_and_wildcards(spark: Any, connect: Any, root: Path) -> None:
    for each in (spark, connect):
        several = each.read.format("SEJ").option("SPLITBYTES", "1m").load([str(root / "a"), str(root / "b")])
        assert several.count() == 1 + 2 + 3 + 4
        each.sql(
            f"CREATE OR REPLACE TEMP VIEW wild USING logwright OPTIONS (PATH '{root}/*/orders', Mode 'PERMISSIVE')"
        )
        found = each.sql("SELECT journal, count(*) FROM wild GROUP BY journal ORDER BY journal").collect()
        assert [tuple(row) for row in found] == [("a/orders", 1), ("b/orders", 3)]
        each.catalog.dropTempView("wild")
    with pytest.raises(PySparkException, match="no path matches these wildcards"):
        spark.read.format("sej").load(f"{root}/none*").count()


def test_relative_path_on_spark_is_that_of_its_own_sources(spark: Any, connect: Any, root: Path) -> None:
    relative = os.path.relpath(root, os.getcwd())
    for each in (spark, connect):
        assert each.read.format("sej").load(f"{relative}/a/events").count() == 2
    frame = spark.read.format("sej").load(f"{relative}/a/events").select("value")
    frame.write.format("sej").mode("append").save(f"{relative}/copy")
    frame.write.mode("append").parquet(f"{relative}/copy.parquet")
    assert sej.Reader(root / "copy").count() == 2
    assert (root / "copy.parquet").is_dir()
