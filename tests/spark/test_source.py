"""Journals on Spark are the journals, record for record."""

from __future__ import annotations

import datetime
import os
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import datasource as filters
from pyspark.sql.types import StructType

from logwright.core.disk import RealFile
from logwright.core.errors import LogwrightError, UnknownFormat, WrongUse
from logwright.core.outcome import Damage
from logwright.formats.sej import Reader, ShardedWriter, Writer
from logwright.spark import session
from logwright.spark.reading import find_journals
from logwright.spark.schemas import spark_schema
from logwright.spark.source import JournalReader

GOLDEN = Path(__file__).parents[1] / "golden" / "sej"
SOUND = ["empty", "one", "fifty", "types256", "zero_timestamp", "multi", "multi_exact", "first_deleted", "torn_25"]


def make(directory: Path, count: int, *, segment_size: int = 1 << 30, seed: int = 1) -> Path:
    dice = random.Random(seed)
    with Writer(directory, segment_size=segment_size) as writer:
        for number in range(count):
            timestamp = dice.choice([None, -1, number * 1_000_000_007])
            writer.append(dice.randbytes(dice.randrange(3000)), b"%d" % (number % 7), number % 256, timestamp)
    return directory


def in_python(directory: Path) -> list[tuple[Any, ...]]:
    """Offset, timestamp in ns, type, key and value of every message, read without Spark."""
    return [(m.offset, m.timestamp, m.type, m.key, m.value) for m in Reader(directory)]


def on_spark(spark: Any, directory: Path, **options: str) -> list[tuple[Any, ...]]:
    frame = spark.read.format("sej").options(**options).load(str(directory))
    rows = frame.select("offset", "timestamp_ns", "type", "key", "value").collect()
    return sorted((row[0], row[1], row[2], bytes(row[3]), bytes(row[4])) for row in rows)


# --- the same records -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", SOUND)
def test_a_golden_journal_is_the_same_on_spark_and_in_python(spark: Any, case: str) -> None:
    directory = GOLDEN / case / "sej"
    assert on_spark(spark, directory) == in_python(directory)


@pytest.mark.parametrize(("segment_size", "split_bytes"), [(1 << 30, "300k"), (50_000, "64m"), (50_000, "1k")])
def test_however_it_is_cut_into_tasks_it_is_the_same(
    spark: Any, tmp_path: Path, segment_size: int, split_bytes: str
) -> None:
    directory = make(tmp_path / "journal", 1000, segment_size=segment_size)
    assert on_spark(spark, directory, splitBytes=split_bytes) == in_python(directory)


def test_one_large_file_is_many_tasks_and_many_small_ones_are_few(spark: Any, tmp_path: Path) -> None:
    large = make(tmp_path / "large", 1000)
    frame = spark.read.format("sej").option("splitBytes", "300k").load(str(large))
    assert frame.rdd.getNumPartitions() == 3
    small = make(tmp_path / "small", 1000, segment_size=20_000)
    assert len(Reader(small).segments()) > 50
    assert spark.read.format("sej").load(str(small)).rdd.getNumPartitions() == 1


def test_timestamps_are_cut_to_microseconds_and_missing_ones_are_null(spark: Any, tmp_path: Path) -> None:
    with Writer(tmp_path / "journal") as writer:
        for timestamp in (1_500_000_000_123_456_789, -1, None, 0):
            writer.append(b"", timestamp=timestamp)
    frame = spark.read.format("sej").load(str(tmp_path / "journal"))
    rows = frame.selectExpr("timestamp_ns", "unix_micros(timestamp)").orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [
        (1_500_000_000_123_456_789, 1_500_000_000_123_456),
        (-1, -1),
        (None, None),
        (0, 0),
    ]


def test_shards_are_one_table_with_the_shard_in_a_column(spark: Any, tmp_path: Path) -> None:
    with ShardedWriter(tmp_path / "root", "web", 2) as writer:
        for number in range(300):
            writer.append(b"v", b"%d" % number)
    frame = spark.read.format("sej").load(str(tmp_path / "root"))
    assert frame.count() == 300
    assert {row[0] for row in frame.select("shard").distinct().collect()} == {f"web.2.00{index}" for index in range(4)}


# --- columns --------------------------------------------------------------------------------------------------------


def test_a_schema_is_the_projection_in_its_own_order(spark: Any, tmp_path: Path) -> None:
    directory = make(tmp_path / "journal", 50)
    schema = "_size INT, value BINARY, offset BIGINT, _position BIGINT, _file STRING, _journal STRING"
    frame = spark.read.schema(schema).format("sej").load(str(directory))
    places = list(Reader(directory).scan())
    rows = frame.orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [
        (place.span.size, place.record.value, place.record.offset, place.span.start, place.file, "journal")
        for place in places
        if not isinstance(place, Damage)
    ]


@pytest.mark.parametrize("schema", ["nonsense STRING", "offset STRING", "value STRING"])
def test_a_schema_that_cannot_be_given_is_refused_with_the_column(spark: Any, tmp_path: Path, schema: str) -> None:
    directory = make(tmp_path / "journal", 5)
    with pytest.raises(PySparkException, match=schema.split()[0]):
        spark.read.schema(schema).format("sej").load(str(directory)).collect()


def test_any_mix_below_a_root_comes_in_the_columns_that_all_share(spark: Any, tmp_path: Path) -> None:
    make(tmp_path / "root" / "a", 20)
    make(tmp_path / "root" / "deep" / "b", 30)
    with ShardedWriter(tmp_path / "root" / "c", bit=1) as writer:
        for number in range(40):
            writer.append(b"v", b"%d" % number, type=9)
    (tmp_path / "root" / "notes.txt").write_text("no journal")
    frame = spark.read.format("logwright").load(str(tmp_path / "root"))
    counts = {row["journal"]: row["count"] for row in frame.groupBy("journal").count().collect()}
    assert counts == {"a": 20, "deep/b": 30, "c": 40}
    row = frame.filter("journal = 'c'").orderBy("file", "sequence").first()
    assert (row.format, row.file, row.position, row.sequence, row.op, row.detail, row.damage) == (
        "sej",
        "1.000/jnl/0000000000000000.jnl",
        0,
        0,
        "message",
        '{"type":9}',
        None,
    )


# --- filters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition",
    [
        "offset >= 300 and offset < 320",
        "offset = 7",
        "offset in (3, 500, 999)",
        "offset > 995",
        "timestamp_ns >= 900000000000",
        "timestamp >= timestamp_micros(900000000)",
        "timestamp < timestamp_micros(5000000)",
        "type = 3 and offset < 600",
        "key = X'33'",
        "timestamp is null",
        "offset < 0",
        "not (offset = 5)",
    ],
)
def test_a_filter_gives_what_it_gives_without_pushing_it_down(spark: Any, tmp_path: Path, condition: str) -> None:
    directory = make(tmp_path / "journal", 1000)
    frame = spark.read.format("sej").option("splitBytes", "200k").load(str(directory))
    pushed = sorted(row.offset for row in frame.filter(condition).collect())
    everything = spark.createDataFrame(frame.collect(), frame.schema)
    assert pushed == sorted(row.offset for row in everything.filter(condition).collect())


def plan(directory: Path, *pushed: filters.Filter) -> list[Any]:
    reader = JournalReader(spark_schema("sej"), {"path": str(directory), "splitbytes": "1"}, "sej")
    assert list(reader.pushFilters(list(pushed))) == list(pushed), "Spark applies them again"
    return [split for partition in reader.partitions() for _, split in partition.parts]  # type: ignore[attr-defined]


def test_bounds_of_offset_and_time_keep_files_from_being_read(tmp_path: Path) -> None:
    with Writer(tmp_path / "journal", segment_size=1000) as writer:
        for number in range(100):
            writer.append(b"v" * 74, timestamp=number * 1_000_000)
    assert [split.start for split in plan(tmp_path / "journal")] == list(range(0, 100, 10))
    low = filters.GreaterThanOrEqual(("offset",), 45)
    assert [(split.start, split.stop) for split in plan(tmp_path / "journal", low)][:2] == [(45, 50), (50, 60)]
    high = filters.LessThan(("offset",), 52)
    assert [(split.start, split.stop) for split in plan(tmp_path / "journal", low, high)] == [(45, 50), (50, 53)]
    late = filters.GreaterThan(("timestamp_ns",), 88_000_000)
    assert [(split.start, split.stop) for split in plan(tmp_path / "journal", late)] == [(80, 90), (90, 100)]
    early = filters.LessThanOrEqual(("timestamp_ns",), 19_999_999)
    assert [split.start for split in plan(tmp_path / "journal", early)] == [0, 10]
    behind = filters.GreaterThan(("_position",), 899)
    assert [split.start for split in plan(tmp_path / "journal", behind)] == list(range(0, 100, 10))
    assert plan(tmp_path / "journal", filters.GreaterThanOrEqual(("_position",), 1000)) == []


def test_a_time_is_compared_as_it_is_shown_in_microseconds(tmp_path: Path) -> None:
    """999 ns behind a microsecond still are that microsecond for Spark."""
    second = datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)
    with Writer(tmp_path / "journal", segment_size=100) as writer:
        for nanoseconds in (-1, 0, 999, 1000):
            writer.append(b"v" * 74, timestamp=1_000_000_000 + nanoseconds)
        writer.append(b"behind")
    for condition, numbers in (
        (filters.EqualTo(("timestamp",), second), [1, 2]),
        (filters.LessThanOrEqual(("timestamp",), second), [0, 1, 2]),
        (filters.GreaterThanOrEqual(("timestamp",), second), [1, 2, 3]),
        (filters.EqualTo(("timestamp_ns",), 1_000_000_000), [1]),
        (filters.In(("timestamp_ns",), (999_999_999, 1_000_000_000)), [0, 1]),
    ):
        assert [split.start for split in plan(tmp_path / "journal", condition)][: len(numbers)] == numbers
        assert len(plan(tmp_path / "journal", condition)) == len(numbers) + 1, "and the last one, which has no index"


def test_a_filter_that_keeps_one_in_a_hundred_reads_less_than_five(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, size = 40_000, 1000
    with ShardedWriter(tmp_path / "journal", "s", 1, segment_size=16 << 20) as writer:
        for number in range(count):
            writer.append(bytes(size), key=b"%d" % number, timestamp=number * 1_000_000)
    total = sum(path.stat().st_size for path in (tmp_path / "journal").rglob("*.jnl"))
    read = 0

    def counted(function: Any) -> Any:
        def call(self: Any, position: int, what: Any) -> Any:
            nonlocal read
            found = function(self, position, what)
            read += found if isinstance(found, int) else len(found)
            return found

        return call

    for name in ("read_at", "read_into"):
        monkeypatch.setattr(RealFile, name, counted(getattr(RealFile, name)))
    low, high = 20_000 * 1_000_000, 20_399 * 1_000_000
    reader = JournalReader(spark_schema("sej"), {"path": str(tmp_path / "journal")}, "sej")
    reader.pushFilters(
        [filters.GreaterThanOrEqual(("timestamp_ns",), low), filters.LessThanOrEqual(("timestamp_ns",), high)]
    )
    rows = sum(batch.num_rows for partition in reader.partitions() for batch in reader.read(partition))
    assert rows == 400
    assert 400 * size < read < total / 20
    monkeypatch.undo()
    frame = spark.read.format("sej").load(str(tmp_path / "journal"))
    assert frame.filter(f"timestamp_ns between {low} and {high}").count() == 400


# --- what is wrong --------------------------------------------------------------------------------------------------


def test_a_damaged_range_that_no_int_can_hold_is_told_in_pieces(tmp_path: Path) -> None:
    with Writer(tmp_path / "journal") as writer:
        writer.append(b"value")
        writer.append(b"value")
        writer.append(b"value")
    (segment,) = (tmp_path / "journal" / "jnl").glob("*.jnl")
    first, second, third = (segment.read_bytes()[at : at + 31] for at in (0, 31, 62))
    with segment.open("r+b") as file:
        file.write(first)
        file.seek(5 << 29)  # a hole of 2.5 GiB, which takes no room on the disk
        file.write(second + third)
    schema = (
        StructType().add("_position", "long").add("_size", "integer").add("_damage", "string").add("offset", "long")
    )
    reader = JournalReader(schema, {"path": str(tmp_path / "journal"), "mode": "permissive"}, "sej")
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    wrong = [(row["_position"], row["_size"]) for row in rows if row["_damage"]]
    assert sum(size for _, size in wrong) == (5 << 29) - 31
    assert [position + size for position, size in wrong][:-1] == [position for position, _ in wrong][1:]
    assert [row["offset"] for row in rows if not row["_damage"]] == [0, 1, 2]


def test_a_name_that_is_no_text_is_written_out(tmp_path: Path) -> None:
    with Writer(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")) as writer:
        writer.append(b"value")
    (journal,) = find_journals(str(tmp_path), None)
    assert journal.name == "caf\\xe9"
    reader = JournalReader(spark_schema(None), {"path": str(tmp_path)}, None)
    assert [batch.to_pylist()[0]["journal"] for part in reader.partitions() for batch in reader.read(part)] == [
        "caf\\xe9"
    ]


def damaged(directory: Path) -> Path:
    make(directory, 200)
    place = list(Reader(directory).scan())[100]
    assert not isinstance(place, Damage)
    path = directory / place.file
    data = bytearray(path.read_bytes())
    data[place.span.start : place.span.start + 20] = b"\xff" * 20
    path.write_bytes(data)
    return directory


def test_failfast_names_the_file_and_the_position(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match=r"0000000000000000\.jnl @ \d+"):
        on_spark(spark, damaged(tmp_path / "journal"))


def test_dropmalformed_leaves_out_and_permissive_gives_a_row(spark: Any, tmp_path: Path) -> None:
    directory = damaged(tmp_path / "journal")
    found = [item for item in Reader(directory).messages(mode="permissive") if not isinstance(item, Damage)]
    assert len(on_spark(spark, directory, mode="dropmalformed")) == len(found) < 200
    schema = "offset BIGINT, _file STRING, _position BIGINT, _size INT, _damage STRING"
    frame = spark.read.schema(schema).format("sej").option("mode", "permissive").load(str(directory))
    (wrong,) = [item for item in Reader(directory).messages(mode="permissive") if isinstance(item, Damage)]
    (row,) = frame.filter("_damage is not null").collect()
    assert tuple(row) == (None, wrong.file, wrong.start, wrong.size, f"{wrong.kind}: {wrong.reason}")
    assert frame.filter("offset is not null").count() == len(found)


def test_what_is_not_there_or_no_journal_is_said(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="no such file"):
        spark.read.format("sej").load(str(tmp_path / "missing")).collect()
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UnknownFormat, match="no journal of any known format is here or below"):
        find_journals(str(tmp_path / "nothing"), None)
    with pytest.raises(PySparkException, match="is no size"):
        spark.read.format("sej").option("splitBytes", "many").load(str(GOLDEN / "one" / "sej")).collect()
    with pytest.raises(WrongUse, match="say which journal"):
        JournalReader(StructType(), {}, "sej")


def test_without_java_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LogwrightError, match="Spark needs Java 17 or later"):
        session()


# --- other places ---------------------------------------------------------------------------------------------------


def test_a_journal_on_s3_is_read_by_its_uri(spark: Any, s3_server: str, tmp_path: Path) -> None:
    from pyarrow import fs

    directory = make(tmp_path / "journal", 600, segment_size=100_000)
    store = fs.S3FileSystem(endpoint_override=s3_server, scheme="http", allow_bucket_creation=True)
    store.create_dir("bucket")
    fs.copy_files(str(directory), "bucket/here/journal", destination_filesystem=store)
    uri = f"s3://key:secret@bucket/here/journal?scheme=http&endpoint_override={s3_server}"
    frame = spark.read.format("sej").option("splitBytes", "200k").load(uri)
    rows = frame.select("offset", "timestamp_ns", "type", "key", "value").collect()
    assert sorted((r[0], r[1], r[2], bytes(r[3]), bytes(r[4])) for r in rows) == in_python(directory)
