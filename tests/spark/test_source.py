"""Journals on Spark equal the journals, record for record."""

from __future__ import annotations

import datetime
import os
import random
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import datasource as filters
from pyspark.sql.types import LongType, StructType

from logwright.arrow.discovery import find_journals
from logwright.core.bytes.outcome import Damage
from logwright.errors import LogwrightError, UnknownFormat, WrongUse
from logwright.sej import Reader, ShardedWriter, Writer
from logwright.spark import session
from logwright.spark.filters import keep, understood
from logwright.spark.schemas import spark_schema
from logwright.spark.source import FilteredJournalReader, JournalReader, SejSource
from tests.support.counting_disk import CountingDisk

GOLDEN = Path(__file__).parents[1] / "golden" / "sej"
KEYS = [b"%d" % number for number in range(7)]
SOUND = ["empty", "one", "fifty", "types256", "zero_timestamp", "multi", "multi_exact", "first_deleted", "torn_25"]


def make(
    directory: Path, count: int, *, segment_size: int = 1 << 30, seed: int = 1, keys: Sequence[bytes] = KEYS
) -> Path:
    dice = random.Random(seed)
    with Writer(directory, segment_size=segment_size) as writer:
        for number in range(count):
            timestamp = dice.choice([None, -1, number * 1_000_000_007])
            writer.append(dice.randbytes(dice.randrange(3000)), keys[number % 7], number % 256, timestamp)
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
def test_golden_journal_is_the_same_on_spark_and_in_python(spark: Any, case: str) -> None:
    directory = GOLDEN / case / "sej"
    assert on_spark(spark, directory) == in_python(directory)


@pytest.mark.parametrize(("segment_size", "split_bytes"), [(1 << 30, "300k"), (50_000, "64m"), (50_000, "1k")])
def test_every_split_into_tasks_reads_the_same(spark: Any, tmp_path: Path, segment_size: int, split_bytes: str) -> None:
    directory = make(tmp_path / "journal", 1000, segment_size=segment_size)
    assert on_spark(spark, directory, splitBytes=split_bytes) == in_python(directory)


def test_large_file_is_many_tasks_and_many_small_ones_are_few(spark: Any, tmp_path: Path) -> None:
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


def test_schema_is_a_projection_in_its_order(spark: Any, tmp_path: Path) -> None:
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
def test_invalid_schema_is_refused_with_the_column(spark: Any, tmp_path: Path, schema: str) -> None:
    directory = make(tmp_path / "journal", 5)
    with pytest.raises(PySparkException, match=schema.split()[0]):
        spark.read.schema(schema).format("sej").load(str(directory)).collect()


def test_mixed_formats_below_a_root_have_the_common_columns(spark: Any, tmp_path: Path) -> None:
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


CONDITIONS = [
    "offset >= 300 and offset < 320",
    "offset in (3, 500, 999)",
    "offset <=> 7",
    "offset < 0",
    "not (offset = 5) and offset < 20",
    "timestamp_ns > 300000002100 and timestamp_ns <= 310000002170",
    "timestamp > timestamp_micros(500000003) and timestamp <= timestamp_micros(520000003)",
    "timestamp = timestamp_micros(-1)",
    "timestamp in (timestamp_micros(-1), timestamp_micros(600000004))",
    "timestamp is null",
    "type in (3, 4) and offset < 600",
    "key > X'33'",
    "key in (X'33', X'80FF', X'')",
    "startswith(key, X'80')",
    "_position >= 300000 and _position < 400000",
    "_file like '%.jnl' and _journal = 'journal' and shard is null and offset < 10",
]


def test_pushed_down_filter_returns_the_same_rows(spark: Any, tmp_path: Path) -> None:
    directory = make(tmp_path / "journal", 1000, keys=[b"", b"3", b"33", b"4", b"\x7f", b"\x80", b"\x80\xff"])
    schema = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in spark_schema("sej"))
    schema += ", _position bigint, _size int, _file string, _journal string"
    source = spark.read.schema(schema).format("sej").option("splitBytes", "200k")
    frame = source.load(str(directory))
    everything = spark.createDataFrame(frame.collect(), frame.schema)
    # One query for all filters, each with its own table: the answer has the numbers of the filters that a row matches.
    pushed = [
        source.option("pushFilters", True).load(str(directory)).filter(condition).selectExpr(f"{n} as n", "offset")
        for n, condition in enumerate(CONDITIONS)
    ]
    found = {tuple(row) for row in reduce(lambda one, other: one.unionAll(other), pushed).collect()}
    numbers = ", ".join(f"if({condition}, {n}, null)" for n, condition in enumerate(CONDITIONS))
    rows = everything.selectExpr(f"explode(array_compact(array({numbers}))) as n", "offset").collect()
    for number, condition in enumerate(CONDITIONS):
        expected = sorted(row.offset for row in rows if row.n == number)
        assert sorted(offset for n, offset in found if n == number) == expected, condition


def test_one_table_can_be_used_with_many_filters(spark: Any, tmp_path: Path) -> None:
    """Spark reads with the filters that it pushed last, so a filter is used only if the query requests it."""
    frame = spark.read.format("sej").load(str(make(tmp_path / "journal", 1000)))
    assert frame.filter("offset < 10").count() == 10
    assert frame.filter("offset < 10").unionAll(frame.filter("offset >= 980")).unionAll(frame).count() == 1030


@pytest.mark.parametrize("session", ["spark", "connect"])
def test_spark_reads_every_query_of_a_table_with_the_filters_it_pushed_last(
    request: pytest.FixtureRequest, tmp_path: Path, session: str
) -> None:
    """The fault of Spark 4.3 for which `pushFilters` is off by default; if this fails, it need not be off any more."""
    source = request.getfixturevalue(session).read.format("sej").option("pushFilters", True)
    journal = str(make(tmp_path / "journal", 1000))
    table = source.load(journal)
    assert table.filter("offset < 10").count() == 10
    assert table.count() == 10, "there are 1000"
    table = source.load(journal)
    assert table.filter("offset < 10").unionAll(table.filter("offset >= 995")).count() == 5, "there are 15"


def plan(directory: Path, *pushed: filters.Filter, format: str | None = "sej") -> list[Any]:
    reader = FilteredJournalReader(spark_schema(format), {"path": str(directory), "splitbytes": "1"}, format)
    assert list(reader.pushFilters(list(pushed))) == list(pushed), "Spark applies them again"
    return [split for partition in reader.partitions() for _, split in partition.parts]  # type: ignore[attr-defined]


def test_bounds_of_offset_and_time_skip_files(tmp_path: Path) -> None:
    with Writer(tmp_path / "journal", segment_size=1000) as writer:
        for number in range(100):
            writer.append(b"v" * 74, timestamp=number * 1_000_000)
    assert [split.start for split in plan(tmp_path / "journal")] == list(range(0, 100, 10))
    low = filters.GreaterThanOrEqual(("offset",), 45)
    assert [(split.start, split.stop) for split in plan(tmp_path / "journal", low)][:2] == [(45, 50), (50, 60)]
    high = filters.LessThan(("offset",), 52)
    assert [(split.start, split.stop) for split in plan(tmp_path / "journal", low, high)] == [(45, 50), (50, 52)]
    late = filters.GreaterThan(("timestamp_ns",), 78_000_000)
    assert [split.start for split in plan(tmp_path / "journal", late)] == [70, 80, 90]
    early = filters.LessThanOrEqual(("timestamp_ns",), 81_000_000)
    assert [split.start for split in plan(tmp_path / "journal", late, early)] == [70, 80]
    one = filters.In(("timestamp_ns",), (31_000_000, 31_500_000, 42_000_000))
    assert [split.start for split in plan(tmp_path / "journal", one)] == [30, 40]
    beyond = filters.GreaterThan(("_position",), 1000)
    assert plan(tmp_path / "journal", beyond) == []


def test_bounds_of_time_skip_shards_and_journals(tmp_path: Path) -> None:
    with ShardedWriter(tmp_path / "root" / "sharded", bit=1, segment_size=1000) as writer:
        for number in range(200):
            writer.append(b"v" * 74, b"%d" % number, timestamp=number * 1_000_000)
    middle = filters.GreaterThan(("timestamp_ns",), 100_000_000), filters.LessThan(("timestamp_ns",), 110_000_000)
    planned = plan(tmp_path / "root" / "sharded", *middle)
    assert {split.part for split in planned} == {"1.000", "1.001"}
    assert len(planned) < 6 < len(plan(tmp_path / "root" / "sharded"))
    shard = filters.EqualTo(("shard",), "1.001")
    assert {split.part for split in plan(tmp_path / "root" / "sharded", shard)} == {"1.001"}
    make(tmp_path / "root" / "plain", 10)
    assert {split.part for split in plan(tmp_path / "root", format=None)} == {"", "1.000", "1.001"}
    journal = filters.In(("journal",), ("plain", "nothing"))
    assert {split.part for split in plan(tmp_path / "root", journal, format=None)} == {""}


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        (filters.LessThan, [999_999]),
        (filters.LessThanOrEqual, [999_999, 1_000_000, 1_000_999]),
        (filters.EqualTo, [1_000_000, 1_000_999]),
        (filters.GreaterThanOrEqual, [1_000_000, 1_000_999, 1_001_000]),
        (filters.GreaterThan, [1_001_000]),
    ],
)
def test_microsecond_filters_cover_a_thousand_nanoseconds(tmp_path: Path, kind: type[Any], kept: list[int]) -> None:
    """Each message is a separate segment, so the plan shows which messages the bounds admit."""
    with Writer(tmp_path / "journal", segment_size=1) as writer:
        stamps = [999_999, 1_000_000, 1_000_999, 1_001_000]
        for timestamp in stamps:
            writer.append(b"", timestamp=timestamp)
    moment = datetime.datetime(1970, 1, 1, 0, 0, 0, 1000, datetime.UTC)
    planned = plan(tmp_path / "journal", kind(("timestamp",), moment))
    assert [stamps[split.start] for split in planned] == kept
    if kind is filters.EqualTo:
        assert plan(tmp_path / "journal", filters.EqualNullSafe(("timestamp",), moment)) == planned
        assert plan(tmp_path / "journal", filters.In(("timestamp",), (moment,))) == planned


def test_unsupported_filters_are_left_to_spark(tmp_path: Path) -> None:
    directory = make(tmp_path / "journal", 20)
    everything = plan(directory)
    for pushed in (
        filters.Not(filters.EqualTo(("offset",), 5)),
        filters.EqualTo(("offset", "nested"), 5),
        filters.EqualTo(("offset",), None),
        filters.EqualNullSafe(("offset",), None),
        filters.In(("offset",), (5, None)),
        filters.EqualTo(("offset",), 2.5),
        filters.EqualTo(("offset",), True),
        filters.StringStartsWith(("key",), "3"),
        filters.IsNotNull(("timestamp",)),
        filters.IsNull(("timestamp",)),
    ):
        assert plan(directory, pushed) == everything, pushed
    batch = pa.record_batch({"offset": pa.array([1, 2]), "key": pa.array([b"a", b"b"])})
    for column, value in (("offset", 2.5), ("offset", 2**70), ("offset", "x"), ("key", 5), ("missing", 1)):
        for filter in (filters.EqualTo((column,), value), filters.In((column,), (value,))):
            assert keep(batch, understood([filter])) == batch, filter


def test_one_percent_by_time_reads_less_than_five_percent_of_the_bytes(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a journal whose clock sometimes goes backwards: the bytes of driver and tasks are counted."""
    directory, count = tmp_path / "journal", 150_000
    dice = random.Random(7)
    with Writer(directory, segment_size=8 << 20) as writer:
        for number in range(count):
            late = dice.randrange(500_000_000) if number % 50 == 0 else 0
            writer.append(bytes(100), b"customer-%04d" % (number % 7), timestamp=number * 1_000_000 - late)
    size = sum(path.stat().st_size for path in (directory / "jnl").iterdir())
    disk = CountingDisk()
    monkeypatch.setattr("logwright.arrow.discovery.locate", lambda location: (disk, Path(location)))
    low, high = (datetime.datetime.fromtimestamp(seconds, datetime.UTC) for seconds in (75.0, 76.5))
    for pushed in (
        (filters.GreaterThanOrEqual(("timestamp",), low), filters.LessThan(("timestamp",), high)),
        (filters.LessThan(("timestamp_ns",), 1_500_000_000),),
        (filters.GreaterThanOrEqual(("timestamp_ns",), (count - 1500) * 1_000_000),),
    ):
        disk.bytes_read = 0
        reader = FilteredJournalReader(spark_schema("sej"), {"path": str(directory)}, "sej")
        reader.pushFilters(list(pushed))
        rows = sum(batch.num_rows for partition in reader.partitions() for batch in reader.read(partition))
        assert 1480 < rows < 1520
        assert disk.bytes_read < 0.05 * size
    disk.bytes_read = 0
    options = {"path": str(directory), "since": "1970-01-01T00:01:15", "until": "76500000000"}
    plain = JournalReader(StructType().add("offset", LongType()), options, "sej")
    batches = [batch for partition in plain.partitions() for batch in plain.read(partition)]
    assert disk.bytes_read < 0.05 * size
    monkeypatch.undo()
    stamps = [message.timestamp or 0 for message in Reader(directory)]
    expected = [number for number in range(count) if 75_000_000_000 <= stamps[number] < 76_500_000_000]
    assert batches[0].schema.names == ["offset"]
    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == expected
    source = spark.read.format("sej").option("pushFilters", True)
    found = source.load(str(directory)).filter("timestamp >= timestamp_seconds(75) and timestamp_ns < 76500000000")
    assert sorted(row.offset for row in found.select("offset").collect()) == expected


# --- options that choose records ------------------------------------------------------------------------------------


def offsets(directory: Path, schema: str = "offset BIGINT", **options: str) -> list[int]:
    wanted = StructType.fromDDL(schema)
    assert isinstance(wanted, StructType)
    reader = JournalReader(wanted, {"path": str(directory), **options}, "sej")
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert all(batch.schema.names == reader.names for batch in batches)
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_numbers_and_times_select_records_for_any_columns(tmp_path: Path) -> None:
    directory = make(tmp_path / "journal", 300, segment_size=50_000)
    stamps = [message.timestamp for message in Reader(directory)]
    assert offsets(directory, **{"from": "100", "to": "120"}) == list(range(100, 120))
    assert offsets(directory, **{"from": "290"}) == list(range(290, 300))
    chosen = [n for n, stamp in enumerate(stamps) if stamp is not None and 50_000_000_350 <= stamp < 60_000_000_420]
    assert 3 < len(chosen) < 9
    assert offsets(directory, since="50000000350", until="60000000420") == chosen
    assert offsets(directory, "timestamp TIMESTAMP, offset BIGINT", since="50000000350", until="60000000420") == chosen
    assert offsets(directory, since="50000000350", until="60000000420", to="55") == [n for n in chosen if n < 55]
    before = [n for n, stamp in enumerate(stamps) if stamp is not None and stamp < 0]
    assert offsets(directory, until="1970-01-01") == before
    assert offsets(directory, until="1970-01-01T01:00:00+01:00", **{"from": "100"}) == [n for n in before if n >= 100]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"from": "-1"}, "option from: '-1' is not a number of at least 0"),
        ({"to": "x"}, "option to: 'x' is not a number"),
        ({"since": "yesterday"}, "option since: 'yesterday' is not a time: give nanoseconds"),
    ],
)
def test_invalid_selection_is_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(WrongUse, match=reason):
        JournalReader(spark_schema("sej"), {"path": str(GOLDEN / "one" / "sej"), **options}, "sej")


def test_records_without_a_time_cannot_be_selected_by_time() -> None:
    with pytest.raises(WrongUse, match="option since: these records have no column timestamp_ns"):
        JournalReader(spark_schema("kestrel"), {"path": "queues", "since": "5"}, "kestrel")


def test_selection_options_are_refused_for_a_stream() -> None:
    for name in ("from", "to", "since", "until"):
        with pytest.raises(WrongUse, match=f"option {name} is for tables"):
            SejSource({"path": str(GOLDEN / "one" / "sej"), name: "5"}).streamReader(spark_schema("sej"))


# --- what is wrong --------------------------------------------------------------------------------------------------


def test_damaged_range_larger_than_an_int_is_reported_in_pieces(tmp_path: Path) -> None:
    with Writer(tmp_path / "journal") as writer:
        writer.append(b"value")
        writer.append(b"value")
        writer.append(b"value")
    (segment,) = (tmp_path / "journal" / "jnl").glob("*.jnl")
    first, second, third = (segment.read_bytes()[at : at + 31] for at in (0, 31, 62))
    with segment.open("r+b") as file:
        file.write(first)
        file.seek(5 << 29)  # a hole of 2.5 GiB, which takes no space on the disk
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


def test_undecodable_name_is_escaped(tmp_path: Path) -> None:
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


def test_dropmalformed_skips_damage_and_permissive_returns_a_row(spark: Any, tmp_path: Path) -> None:
    directory = damaged(tmp_path / "journal")
    found = [item for item in Reader(directory).messages(mode="permissive") if not isinstance(item, Damage)]
    assert len(on_spark(spark, directory, mode="dropmalformed")) == len(found) < 200
    schema = "offset BIGINT, _file STRING, _position BIGINT, _size INT, _damage STRING"
    frame = spark.read.schema(schema).format("sej").option("mode", "permissive").load(str(directory))
    (wrong,) = [item for item in Reader(directory).messages(mode="permissive") if isinstance(item, Damage)]
    (row,) = frame.filter("_damage is not null").collect()
    assert tuple(row) == (None, wrong.file, wrong.start, wrong.size, f"{wrong.kind}: {wrong.reason}")
    assert frame.filter("offset is not null").count() == len(found)


def test_missing_path_or_other_file_is_reported(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="no such file"):
        spark.read.format("sej").load(str(tmp_path / "missing")).collect()
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UnknownFormat, match="no journal of any known format is at or below this path"):
        find_journals(str(tmp_path / "nothing"), None)
    with pytest.raises(PySparkException, match="is not a size"):
        spark.read.format("sej").option("splitBytes", "many").load(str(GOLDEN / "one" / "sej")).collect()
    with pytest.raises(WrongUse, match="give the path of a journal"):
        JournalReader(StructType(), {}, "sej")


def test_missing_java_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LogwrightError, match="Spark needs Java 17 or later"):
        session()


# --- other places ---------------------------------------------------------------------------------------------------


def test_journal_on_s3_is_read_by_its_uri(spark: Any, s3_server: str, tmp_path: Path) -> None:
    from pyarrow import fs

    directory = make(tmp_path / "journal", 600, segment_size=100_000)
    store = fs.S3FileSystem(endpoint_override=s3_server, scheme="http", allow_bucket_creation=True)
    store.create_dir("bucket")
    fs.copy_files(str(directory), "bucket/here/journal", destination_filesystem=store)
    uri = f"s3://key:secret@bucket/here/journal?scheme=http&endpoint_override={s3_server}"
    frame = spark.read.format("sej").option("splitBytes", "200k").load(uri)
    rows = frame.select("offset", "timestamp_ns", "type", "key", "value").collect()
    assert sorted((r[0], r[1], r[2], bytes(r[3]), bytes(r[4])) for r in rows) == in_python(directory)
