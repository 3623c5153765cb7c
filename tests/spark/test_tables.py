"""The tables of the pipeline are what one would compute by hand from the journals."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from logwright.core.bytes.outcome import Damage
from logwright.errors import WrongUse
from logwright.pipeline import tables
from logwright.pipeline.listing import list_journals
from logwright.pipeline.settings import JournalRule
from logwright.sej import Reader, ShardedWriter, Writer, open_reader, reset
from logwright.spark.reader import find_journals

JOURNALS = ("orders/eu", "orders/old", "plain", "sensors", "web")
SCHEMA = {"type": "record", "name": "Reading", "fields": [{"name": "bar", "type": "int"}]}
MINUTE_NS = 60_000_000_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Journals of every kind that sej knows, one of them damaged in two places."""
    root = tmp_path_factory.mktemp("journals")
    dice = random.Random("tables")
    for name in ("orders/eu", "orders/old", "plain", "sensors"):
        with Writer(root / name, segment_size=3000) as writer:
            for number in range(dice.randrange(80, 120)):
                writer.append(value_of(dice, name, number), dice.randbytes(number % 5), number % 256, time_of(dice))
    with ShardedWriter(root / "web", "jnl", 1) as shards:  # a prefix that looks like the segments' directory
        for number in range(60):
            shards.append(b"\xffv", b"%d" % number, number, time_of(dice))
    first = root / "orders" / "eu" / "jnl" / f"{0:016x}.jnl"
    data = bytearray(first.read_bytes())
    data[500:520] = b"\xff" * 20
    first.write_bytes(data)
    last = Reader(root / "orders" / "eu").segments()[-1].path
    last.write_bytes(last.read_bytes()[:-3])
    return root


def value_of(dice: random.Random, name: str, number: int) -> bytes:
    if name.startswith("orders"):
        return b"{not json" if number % 10 == 3 else json.dumps({"n": number, "who": "Zoë"}).encode()
    if name == "sensors":
        return b"" if number % 10 == 4 else bytes([2 * (number % 60)])
    return dice.randbytes(30)


def time_of(dice: random.Random) -> int | None:
    minute = dice.choice((0, 1, 2, 29_463_000)) * MINUTE_NS
    return dice.choice((None, -1, -minute - 1, minute, minute + 999, minute + dice.randrange(MINUTE_NS)))


Place = tuple[str, str, int]


def in_python(root: Path) -> tuple[list[tuple[Place, Any, int]], list[tuple[Any, ...]]]:
    """Every message with its place and size, and every damaged range, read without Spark."""
    messages, damaged = [], []
    for name in JOURNALS:
        with open_reader(root / name) as reader:
            for item in reader.scan(mode="permissive"):
                if isinstance(item, Damage):
                    place = ("sej", name, item.file, item.start, item.size)
                    damaged.append((*place, item.kind, item.reason))
                else:
                    messages.append(((name, item.file, item.span.start), item.record, item.span.size))
    return messages, damaged


@pytest.fixture(scope="module")
def records(spark: Any, root: Path) -> Any:
    """The records of all journals, read once."""
    return spark.read.format("logwright").option("mode", "permissive").load(str(root)).cache()


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return [tuple(bytes(cell) if isinstance(cell, bytearray) else cell for cell in row) for row in frame.collect()]


def test_every_record_is_in_events_or_damage(records: Any, root: Path) -> None:
    messages, damaged = in_python(root)
    events = tables.events(records)
    assert events.schema == from_arrow_schema(tables.EVENTS)
    wanted = [
        ("sej", *place, size, record.offset, record.timestamp, record.key, record.value)
        for place, record, size in messages
    ]
    columns = ("format", "journal", "file", "position", "size", "sequence", "timestamp_ns", "key", "value")
    assert sorted(rows(events.select(*columns)), key=str) == sorted(wanted, key=str)
    found = tables.damage(records)
    assert found.schema == from_arrow_schema(tables.DAMAGE)
    assert sorted(rows(found.drop("detail"))) == sorted(damaged)
    assert {row[5] for row in damaged} == {"malformed", "torn_tail"}
    assert tables.split_damage("gap: 3 records: gone") == ("gap", "3 records: gone")


def test_messages_are_decoded_by_the_rule_of_their_journal(records: Any, root: Path, tmp_path: Path) -> None:
    (tmp_path / "reading.avsc").write_text(json.dumps(SCHEMA))
    rules = [
        JournalRule("orders/o?d"),
        JournalRule("orders/*", decode="json"),
        JournalRule("sens[o]rs", decode="avro", schema=str(tmp_path / "reading.avsc")),
        JournalRule("w*", decode="text"),
    ]
    plain = tables.messages(tables.events(records), rules[:1])
    assert plain.columns == ["journal", "shard", "offset", "timestamp", "timestamp_ns", "type", "key", "value"]
    assert dict(plain.dtypes)["type"] == "smallint"
    decoded = tables.messages(tables.events(records), rules)
    found = rows(decoded.selectExpr("*", "unix_micros(timestamp)").drop("timestamp"))
    wanted = []
    for (journal, file, _), record, _ in in_python(root)[0]:
        shard = file.split("/")[0] if journal == "web" else None
        micros = None if record.timestamp is None else record.timestamp // 1000
        fields = (journal, shard, record.offset, record.timestamp, record.type, record.key, record.value)
        wanted.append((*fields, *expected(journal, record.value), micros))
    assert sorted(found, key=str) == sorted(wanted, key=str)
    assert {row[1] for row in found if row[0] == "web"} == {"jnl.1.000", "jnl.1.001"}


def expected(journal: str, value: bytes) -> tuple[str | None, str | None]:
    """What `decoded` and `decode_error` are to be."""
    if journal == "orders/eu":
        if value == b"{not json":
            return None, "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
        return json.dumps(json.loads(value), ensure_ascii=False), None
    if journal == "sensors":
        return (json.dumps({"bar": value[0] // 2}), None) if value else (None, "the bytes end before the value does")
    return ('"\\\\xffv"', None) if journal == "web" else (None, None)


def test_activity_counts_each_minute_and_halves_merge_to_the_whole(spark: Any, records: Any, root: Path) -> None:
    counts: Counter[tuple[str, int | None]] = Counter()
    sizes: Counter[tuple[str, int | None]] = Counter()
    for (journal, _, _), record, size in in_python(root)[0]:
        minute = None if record.timestamp is None else record.timestamp // MINUTE_NS * 60_000_000
        counts[journal, minute] += 1
        sizes[journal, minute] += size
    wanted = {("sej", *key, counts[key], sizes[key]) for key in counts}
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Africa/Monrovia")  # 44 minutes and 30 seconds off, until 1972
    try:
        events = tables.events(records)
        whole = tables.activity(events)
        assert whole.dtypes[2:] == [("minute", "timestamp"), ("records", "bigint"), ("bytes", "bigint")]
        halves = [tables.activity(events.where(f"sequence % 2 = {rest}")) for rest in (0, 1)]
        for found in (whole, tables.merge_activity(*halves)):
            micros = found.selectExpr("format", "journal", "unix_micros(minute)", "records", "bytes")
            assert set(rows(micros)) == wanted
            assert found.schema.names == whole.schema.names
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_consumers_lag_and_files_match_the_listing(spark: Any, root: Path) -> None:
    plain = root / "plain"
    reset(plain, "done", "last", create=True)
    reset(plain, "slow", 5, create=True)
    (plain / "ofs" / "new.ofs").write_bytes(b"")
    (plain / "ofs" / "torn.ofs").write_bytes(b"123")
    (plain / "ofs" / "ahead.ofs").write_bytes((10**6).to_bytes(8, "big"))
    (root / "orders" / "old" / "jnl" / f"{0:016x}.jnl").unlink()
    reset(root / "orders" / "old", "late", 1, create=True)
    reset(root / "web" / "jnl.1.000", "shop", "last", create=True)
    listing = list_journals(find_journals(str(root), None))
    files = tables.TABLES["files"].make(spark.createDataFrame(listing.file_table()))
    assert files.schema == from_arrow_schema(tables.FILES)
    assert [row.asDict() for row in files.collect()] == listing.files
    ends = {journal: Reader(root / journal) for journal in ("plain", "orders/old", "web/jnl.1.000")}
    next_plain, old, web = ends["plain"].next, ends["orders/old"], ends["web/jnl.1.000"].next
    columns = ("journal", "shard", "consumer", "offset", "next", "lag", "missed", "status")
    found = tables.TABLES["consumers"].make(spark.createDataFrame(listing.offset_table()))
    assert rows(found.select(*columns)) == [
        ("orders/old", None, "late", 1, old.next, old.next - 1, old.first - 1, "overtaken"),
        ("plain", None, "ahead", 10**6, next_plain, 0, 0, "ahead"),
        ("plain", None, "done", next_plain, next_plain, 0, 0, "current"),
        ("plain", None, "new", None, next_plain, None, None, "new"),
        ("plain", None, "slow", 5, next_plain, next_plain - 5, 0, "behind"),
        ("plain", None, "torn", None, next_plain, None, None, "unreadable"),
        ("web", "jnl.1.000", "shop", web, web, 0, 0, "current"),
    ]


def test_registry_names_its_tables_and_how_they_are_updated() -> None:
    for name, table in tables.TABLES.items():
        assert table.name == name
        assert (table.kind == "merge") == (table.merged is not None)
    assert [name for name, table in tables.TABLES.items() if table.kind == "whole"] == [
        "queue_items",
        "kv_history",
        "kv_state",
        "segments",
        "transactions",
        "page_versions",
        "consumers",
        "files",
    ]


def test_invalid_rules_are_refused_before_anything_runs(records: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.avsc").write_text("{")
    rule = JournalRule("*", decode="avro", schema=str(tmp_path / "bad.avsc"))
    with pytest.raises(WrongUse, match="no Avro schema"):
        tables.messages(tables.events(records), [rule])
