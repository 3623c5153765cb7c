"""Journals as datasets and in SQL: DuckDB, Polars, Arrow and plain Python agree on every filter and projection."""

from __future__ import annotations

import gc
import itertools
import math
import os
import random
import shutil
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import logwright
from logwright import appendfile, kestrel, sej, versioned
from logwright.arrow import query
from logwright.arrow.bounds import Bounds, Filter
from logwright.arrow.dataset import JournalDataset
from logwright.arrow.discovery import Journal, find_journals
from logwright.arrow.moment import Moment, Opened
from logwright.arrow.query import sql
from logwright.arrow.rows import read_split
from logwright.arrow.tables import table_names
from logwright.cli import main
from logwright.core.bytes.outcome import Damage
from logwright.errors import DamagedJournal, HistoryUnavailable, NotFound, UnknownFormat, WrongUse
from tests.cli.random_journals import FIRST_NS, write_sej, write_versioned
from tests.support.counting_disk import CountingDisk
from tests.support.damage import overwrite
from tests.support.golden_journals import write_golden

START_NS = 1_768_464_000_000_000_000
JOURNALS = ["orders", "events", "queues", "queues/jobs", "readings", "stores", "pages"]
Row = dict[str, Any]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample journals: all five formats, and damaged ones."""
    path = tmp_path_factory.mktemp("dataset") / "demo"
    assert main(["demo", str(path)]) == 0
    return path


# --- filters ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    """A filter in the words of each program."""

    sql: str
    polars: polars.Expr
    arrow: ds.Expression
    matches: Callable[[Row], bool]


def compared(name: str, operator: str, value: Any) -> Condition:
    field, column = ds.field(name), polars.col(name)
    compare: dict[str, Callable[[Any, Any], Any]] = {
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        "=": lambda a, b: a == b,
        ">=": lambda a, b: a >= b,
        ">": lambda a, b: a > b,
        "<>": lambda a, b: a != b,
    }
    do = compare[operator]
    return Condition(
        f'"{name}" {operator} {literal(value)}',
        do(column, value),
        do(field, value if not isinstance(value, datetime) else pa.scalar(value, pa.timestamp("us", tz="UTC"))),
        lambda row: row[name] is not None and do(row[name], value),
    )


def is_null(name: str) -> Condition:
    return Condition(
        f'"{name}" IS NULL', polars.col(name).is_null(), ds.field(name).is_null(), lambda row: row[name] is None
    )


def both(one: Condition, other: Condition) -> Condition:
    return Condition(
        f"({one.sql} AND {other.sql})",
        one.polars & other.polars,
        one.arrow & other.arrow,
        lambda row: one.matches(row) and other.matches(row),
    )


def either(one: Condition, other: Condition) -> Condition:
    return Condition(
        f"({one.sql} OR {other.sql})",
        one.polars | other.polars,
        one.arrow | other.arrow,
        lambda row: one.matches(row) or other.matches(row),
    )


def literal(value: Any) -> str:
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{byte:02x}" for byte in value) + "'::BLOB"
    if isinstance(value, datetime):
        return f"TIMESTAMPTZ '{value.isoformat()}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)


def random_condition(dice: random.Random, rows: list[Row], schema: pa.Schema, depth: int = 2) -> Condition:
    if depth and dice.random() < 0.6:
        join = dice.choice([both, either])
        return join(random_condition(dice, rows, schema, depth - 1), random_condition(dice, rows, schema, depth - 1))
    simple = [field.name for field in schema if not pa.types.is_nested(field.type)]
    name = dice.choice(simple)
    values = [row[name] for row in rows if row[name] is not None]
    if not values or dice.random() < 0.1:
        return is_null(name)
    value = dice.choice(values)
    if isinstance(value, bool):
        return compared(name, "=", value)
    if isinstance(value, int) and pa.types.is_integer(schema.field(name).type) and dice.random() < 0.3:
        value = max(0, value + dice.randrange(-3, 4))
    if isinstance(value, datetime):
        value += timedelta(microseconds=dice.randrange(-2, 3))
    return compared(name, dice.choice(["<", "<=", "=", ">=", ">", "<>"]), value)


def as_rows(table: pa.Table) -> list[Row]:
    return list(table.to_pylist())


def in_polars(found: JournalDataset, condition: Condition, names: list[str]) -> list[Row]:
    frame = polars.scan_pyarrow_dataset(found).filter(condition.polars).select(names).collect()
    return [{name: _utc(value) for name, value in row.items()} for row in frame.to_dicts()]


def _utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def in_duckdb(found: JournalDataset, condition: Condition, names: list[str]) -> list[Row]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("journal", found)
        columns = ", ".join(f'"{name}"' for name in names)
        return as_rows(connection.sql(f"SELECT {columns} FROM journal WHERE {condition.sql}").to_arrow_table())


def key_of(row: Row) -> str:
    return repr(sorted(row.items()))


def assert_agreement(found: JournalDataset, dice: random.Random) -> None:
    """A random filter and projection, in all programs."""
    rows = as_rows(found.to_table())
    condition = random_condition(dice, rows, found.schema)
    names = dice.sample(found.schema.names, dice.randrange(1, len(found.schema.names) + 1))
    wanted = [{name: row[name] for name in names} for row in rows if condition.matches(row)]
    assert as_rows(found.to_table(columns=names, filter=condition.arrow)) == wanted, condition.sql
    assert found.count_rows(filter=condition.arrow) == len(wanted)
    assert sorted(in_duckdb(found, condition, names), key=key_of) == sorted(wanted, key=key_of), condition.sql
    if not any(pa.types.is_nested(found.schema.field(name).type) for name in names):
        assert in_polars(found, condition, names) == wanted, condition.sql


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", [*JOURNALS, "."])
def test_programs_agree_on_random_filters_and_projections(demo: Path, name: str, seed: int) -> None:
    dice = random.Random(f"{name} {seed}")
    mode: Any = "permissive" if name == "." else "failfast"
    found = logwright.dataset(demo / name, mode=mode).table
    tables = ["records"] if found.format is None else sorted(set(table_names(found.format)))
    for _ in range(4):
        assert_agreement(logwright.dataset(demo / name, dice.choice(tables), mode=mode), dice)


@pytest.mark.parametrize("seed", range(4))
def test_programs_agree_on_random_journals(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    times = [None, START_NS, START_NS + 999, START_NS + 10**9, 0, 2**62]
    with sej.ShardedWriter(tmp_path / "web", "web", dice.choice([1, 2]), segment_size=2000) as writer:
        for number in range(dice.randrange(1, 120)):
            writer.append(dice.randbytes(dice.choice([0, 1, 30])), b"%d" % (number % 7), number % 3, dice.choice(times))
    with versioned.VersionedKVStore(tmp_path / "stores", "s'1", 2048, background=False) as store:
        for number in range(dice.randrange(1, 120)):
            store.insert(f"key {dice.randrange(9)}", {"n": number})
    with kestrel.Queue(tmp_path / "queues", "jobs") as queue:
        for number in range(dice.randrange(1, 60)):
            queue.put(b"%d" % number, expires=dice.choice([None, 60.0]))
            if dice.random() < 0.5:
                queue.get()
    with appendfile.Writer(tmp_path / "log", file_bytes=300) as log:
        for _ in range(dice.randrange(1, 60)):
            log.append(dice.randbytes(20))
            if dice.random() < 0.2:
                log.register_checkpoint()
    for name in ("web", "stores", "queues", "log"):
        found = logwright.dataset(tmp_path / name).table
        assert found.format is not None
        for table in sorted(set(table_names(found.format))):
            assert_agreement(logwright.dataset(tmp_path / name, table), dice)
    for _ in range(4):
        assert_agreement(logwright.dataset(tmp_path), dice)


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("golden")
    write_golden(path)
    return path


@pytest.mark.parametrize("format", ["sej", "kestrel", "appendfile", "yeltsin", None])
def test_programs_agree_on_golden_journals(golden: Path, format: str | None) -> None:
    """Each journal in some of its tables, and all of them in the columns that formats share."""
    dice = random.Random(f"golden {format}")
    if format is None:
        for _ in range(6):
            assert_agreement(logwright.dataset(golden, mode="permissive"), dice)
        return
    journals = find_journals(str(golden), format)
    for journal in itertools.islice(itertools.cycle(journals), max(6, len(journals))):
        table = dice.choice(sorted(set(table_names(format))))
        assert_agreement(logwright.dataset(journal.location, table, mode="dropmalformed"), dice)


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", JOURNALS)
def test_records_are_those_of_the_reader_in_its_order(demo: Path, name: str) -> None:
    rows = as_rows(logwright.dataset(demo / name).to_table(columns=["file", "position", "size"]))
    with logwright.open(demo / name) as reader:
        scanned = [(one.file, one.span.start, one.span.end - one.span.start) for one in reader.scan()]
    if name == "stores":  # the reader returns the header of each journal as well
        scanned = [place for place in scanned if place in {tuple(row.values()) for row in rows}]
    if name == "pages":  # a row for each operation of a transaction
        assert {row["file"] for row in rows} == {place[0] for place in scanned}
        return
    assert [tuple(row.values()) for row in rows] == scanned


def test_tables_have_what_a_journal_stands_for(demo: Path) -> None:
    def count(name: str, table: str) -> int:
        return int(logwright.dataset(demo / name, table).count_rows())

    assert count("queues", "items") == count("queues", "queue_items") == 180
    assert count("queues", "operations") == count("queues", "records") == 430
    assert count("stores", "history") == count("stores", "changes") == 400
    assert count("readings", "segments") == 7
    assert count("pages", "transactions") == 123
    assert count("orders", "messages") == 3000
    state = as_rows(logwright.dataset(demo / "stores", "state").to_table())
    with versioned.VersionedKVStore(demo / "stores", "fleet") as store:
        assert {row["k"] for row in state} == set(store.keys())


def test_state_is_that_at_a_time(tmp_path: Path) -> None:
    clock = iter(range(1000, 10_000, 1000))
    with versioned.VersionedKVStore(tmp_path, "s", clock=lambda: next(clock), background=False) as store:
        store.insert("a", 1)
        store.insert("b", 2)
        store.remove("a")
    tables = {at: logwright.dataset(tmp_path, "state", at=at).to_table().to_pydict() for at in (2000, 3000, 4000)}
    assert [(found["k"], found["o"]) for found in tables.values()] == [
        (["a"], ["1"]),
        (["a", "b"], ["1", "2"]),
        (["b"], ["2"]),
    ]
    with pytest.raises(HistoryUnavailable):
        logwright.dataset(tmp_path, "state", at=1).to_table()


def test_a_dataset_shows_one_moment(tmp_path: Path) -> None:
    with sej.Writer(tmp_path) as writer:
        writer.append(b"first")
        writer.flush()
        found = logwright.dataset(tmp_path)
        assert found.count_rows() == 1
        writer.append(b"second")
        writer.flush()
        assert found.to_table(columns=["value"]).to_pydict() == {"value": [b"first"]}
        assert found.count_rows(filter=ds.field("offset") >= 1) == 0
        assert logwright.dataset(tmp_path).count_rows() == 2


def test_first_rows_are_read_without_the_rest(demo: Path) -> None:
    found = logwright.dataset(demo / "orders")
    assert found.head(3, columns=["offset"]).to_pydict() == {"offset": [0, 1, 2]}
    assert found.take([1, 5], columns=["offset"]).to_pydict() == {"offset": [1, 5]}
    assert found.filter(ds.field("offset") < 2).count_rows() == 2
    assert found.sort_by([("offset", "descending")]).head(1)["offset"].to_pylist() == [2999]
    other = found.replace_schema(pa.schema([("offset", pa.int64()), ("price", pa.float64())]))
    assert other.head(1).to_pydict() == {"offset": [0], "price": [None]}


def test_functions_of_arrow_that_scan_by_themselves_see_the_rows(demo: Path) -> None:
    orders, events = logwright.dataset(demo / "orders"), logwright.dataset(demo / "events")
    some = ds.Scanner.from_dataset(orders, columns=["offset", "value"], filter=ds.field("offset") < 100).to_table()
    assert some == orders.to_table(columns=["offset", "value"], filter=ds.field("offset") < 100)
    assert ds.dataset([orders, events]).count_rows() == 3600
    assert [fragment.count_rows() for fragment in orders.get_fragments()] == [3000]
    assert ds.Scanner.from_dataset(logwright.dataset(demo / "orders")).count_rows() == 3000
    joined = events.join(orders, "offset", join_type="inner", right_suffix=" of the order")
    assert joined.count_rows() == 600
    assert joined.to_table(columns=["value of the order"]).num_rows == 600
    with pytest.raises(DamagedJournal, match=r"damaged/jnl/0000000000000442\.jnl @ 49388"):
        ds.Scanner.from_dataset(logwright.dataset(demo / "damaged")).count_rows()
    with pytest.raises(TypeError, match="Scanner"):
        ds.write_dataset(orders, demo / "written", format="parquet")
    ds.write_dataset(orders.scanner().to_reader(), demo / "written", format="parquet")
    assert ds.dataset(demo / "written").count_rows() == 3000


def test_dataset_is_freed_with_its_last_reference(demo: Path) -> None:
    found = logwright.dataset(demo / "orders")
    table = weakref.ref(found.table)
    found.head(1)
    del found
    gc.collect()
    assert table() is None


@pytest.mark.parametrize(
    "tables",
    [
        ["'queues'", "'queues/jobs'", "'queues:items'", "'./queues/jobs:items'", "'link'"],
        ["'queues/jobs:items'", "'link' WHERE queue = 'jobs'", "'.' WHERE file = 'jobs'"],
        ["'.' WHERE format = 'kestrel'", "'queues'"],
        ["'stores'", "'stores:state'", "'stores/fleet.jrn:history'"],
        ["'stores:state'", "'stores'", "'.' WHERE format = 'versioned'"],
        ["'web'", "(FROM 'web/web.1.000' UNION ALL FROM 'web/web.1.001')", "'web:messages'"],
    ],
)
def test_all_names_of_a_query_show_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: list[str]
) -> None:
    """Writers append whenever a journal has been opened: so between all scans of the query.

    A queue is made whenever all queues of a directory have been opened: other names of the directory do not show it.
    """
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to("queues")
    queue = kestrel.Queue(Path("queues"), "jobs")
    store = versioned.VersionedKVStore(Path("stores"), "fleet", background=False)
    shards = sej.ShardedWriter(Path("web"), "web", 1)
    numbers = itertools.count()
    plain = Moment.open

    def append() -> None:
        number = next(numbers)
        queue.put(b"%d" % number)
        store.insert(f"key {number}", number)
        shards.append(b"%d" % number, b"%d" % number)
        shards.flush()

    def opened(self: Moment, journal: Journal) -> Opened:
        found = plain(self, journal)
        append()
        if found.format.name == "kestrel" and found.reader.has_parts:
            with kestrel.Queue(Path("queues"), f"later {next(numbers)}") as later:
                later.put(b"1")
        return found

    with queue, store, shards, kestrel.Queue(Path("queues"), "mail"):
        for _ in range(5):
            append()
        monkeypatch.setattr(Moment, "open", opened)
        counts = ", ".join(f"(SELECT count(*) FROM {table})" for table in tables)
        assert pairs(f"SELECT {counts}") == [(5,) * len(tables)]


# --- what is not read -------------------------------------------------------------------------------------------------


def test_bounds_are_those_of_the_filter() -> None:
    schema = pa.schema([("offset", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC")), ("shard", pa.string())])
    offset, when = ds.field("offset"), ds.field("timestamp")
    moment = pa.scalar(datetime(2026, 1, 1, tzinfo=UTC), schema.field("timestamp").type)
    nanoseconds = 1_767_225_600_000_000_000

    def bounds(expression: ds.Expression | None) -> Bounds:
        return Filter(expression, schema).bounds

    assert bounds(None) == bounds(ds.field("shard") == "a") == bounds(offset != 3) == Bounds()
    assert bounds(offset.is_null()) == bounds(when.is_null()) == bounds((offset > 5) | (when > moment)) == Bounds()
    assert bounds((offset >= 7) & (offset <= 9)) == Bounds(7, 10)
    assert bounds((offset == 3) | (offset.isin([8, 5]))) == Bounds(3, 9)
    assert bounds(when >= moment) == Bounds(earliest_ns=nanoseconds)
    assert bounds(when <= moment) == Bounds(latest_ns=nanoseconds + 999)
    both_ways = bounds((when >= moment) & (offset < 4))
    assert (both_ways.start, both_ways.stop, both_ways.earliest_ns) == (None, 5, nanoseconds)


@pytest.mark.parametrize("column", ["offset", "sequence", "timestamp", "timestamp_ns"])
def test_filter_that_keeps_little_reads_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str) -> None:
    count, step = 200_000, 10**6
    batch = pa.table({"value": [b"x" * 100] * count, "timestamp": [START_NS + step * n for n in range(count)]})
    with sej.Writer(tmp_path, segment_size=1 << 20) as writer:
        logwright.arrow.append(writer, batch)
    disk = CountingDisk(".jnl")
    monkeypatch.setattr("logwright.arrow.discovery.locate", lambda location: (disk, Path(location)))
    total = sum(path.stat().st_size for path in (tmp_path / "jnl").iterdir())
    start = {"timestamp": START_NS // 1000 + 120_000 * step // 1000, "timestamp_ns": START_NS + 120_000 * step}
    first = start.get(column, 120_000)
    last = first + count // 100 * (
        1 if column in ("offset", "sequence") else step // (1000 if column == "timestamp" else 1)
    )
    found = logwright.dataset(tmp_path)
    type = found.schema.field(column).type
    field = ds.field(column)
    chosen = (field >= pa.scalar(first, type)) & (field < pa.scalar(last, type))
    offsets = found.to_table(columns=["offset"], filter=chosen)["offset"].to_pylist()
    assert offsets == list(range(120_000, 122_000))
    assert disk.bytes_read < total / 20


def test_other_journals_and_parts_are_not_opened(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = logwright.dataset(demo, mode="permissive")
    some = everything.to_table(filter=ds.field("journal") == "orders")
    assert set(some["journal"].to_pylist()) == {"orders"}
    read: list[str] = []
    plain = read_split

    def noted(journal: Any, *arguments: Any, **options: Any) -> Iterator[Any]:
        read.append(journal.name)
        return plain(journal, *arguments, **options)

    monkeypatch.setattr("logwright.arrow.tables.read_split", noted)
    assert everything.count_rows(filter=pc.field("journal").isin(["orders", "pages"])) == 3246
    assert set(read) == {"orders", "pages"}
    read.clear()
    assert everything.count_rows(filter=ds.field("format") == "appendfile") == 133
    assert set(read) == {"readings"}
    shards = logwright.dataset(demo / "events")
    name = shards.to_table(columns=["shard"])["shard"][0].as_py()
    read.clear()
    assert 0 < shards.count_rows(filter=ds.field("shard") == name) < 600
    assert len(read) == len(list((demo / "events" / name / "jnl").glob("*.jnl")))


# --- SQL --------------------------------------------------------------------------------------------------------------


def pairs(query: str, **options: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in sql(query, **options).to_arrow_table().to_pylist()]


def test_quoted_paths_are_tables(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(demo)
    assert pairs("SELECT count(*) FROM 'orders'") == [(3000,)]
    assert pairs("""SELECT count(*) FROM "queues/jobs:items" WHERE state = 'done' -- it's a comment""") == [(40,)]
    assert pairs("SELECT min(sequence), max(sequence) FROM 'orders' WHERE sequence BETWEEN 5 AND 7") == [(5, 7)]
    assert pairs("SELECT count(*) FROM 'orders' WHERE timestamp < TIMESTAMPTZ '2026-01-15 08:00:30+00'") == [(2,)]
    assert pairs("SELECT count(*) FROM 'orders' WHERE timestamp < TIMESTAMPTZ '2026-01-15 10:00:30+02'") == [(2,)]
    assert pairs("SELECT count(*) FROM './stores:state@2026-01-15T11:00:00Z'")[0][0] > 0
    joined = "SELECT count(*) FROM 'orders' o JOIN 'orders:messages' m ON o.sequence = m.sequence, 'stores:state' s"
    assert pairs(joined) == [(3000 * 10,)]
    assert pairs("SELECT DISTINCT format FROM '.' ORDER BY ALL", mode="permissive") == [
        (name,) for name in ("appendfile", "kestrel", "sej", "versioned", "yeltsin")
    ]
    assert pairs("WITH orders AS (SELECT 1 AS n) SELECT n FROM orders WHERE 'orders' <> ''") == [(1,)]


def test_path_below_the_home_directory_is_found(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(demo))
    assert pairs("SELECT count(*) FROM '~/orders' JOIN '~/orders:damage' ON true") == [(0,)]
    assert pairs("SELECT count(*) FROM '~/orders'") == [(3000,)]


def test_columns_need_no_quotes(demo: Path) -> None:
    for name in JOURNALS:
        found = logwright.dataset(demo / name).table
        assert found.format is not None
        for table in sorted(set(table_names(found.format))):
            names = [one for one in logwright.dataset(demo / name, table).schema.names if one != "offset"]
            sql(f"SELECT {', '.join(names)} FROM '{demo / name}:{table}' LIMIT 0")


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
def test_times_compare_in_any_time_zone(demo: Path, zone: str) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"SET TimeZone = '{zone}'")
        for when in ("2026-01-15 08:00:30+00", "2026-01-15 10:00:30+02", "2026-01-15T03:00:30-05:00"):
            query_ = f"SELECT count(*) FROM '{demo / 'orders'}' WHERE timestamp < TIMESTAMPTZ '{when}'"
            assert sql(query_, connection=connection).fetchall() == [(2,)]


def test_journals_of_different_formats_are_joined(demo: Path) -> None:
    orders, trucks = logwright.dataset(demo / "orders"), logwright.dataset(demo / "stores", "state")
    times = orders.to_table(columns=["timestamp"])["timestamp"].to_pylist()
    wanted = [
        (row["k"], sum(time <= row["timestamp"] for time in times))
        for row in as_rows(trucks.to_table(columns=["k", "timestamp"]))
    ]
    on = "o.timestamp <= s.timestamp GROUP BY s.k"
    found = pairs(f"SELECT s.k, count(*) FROM '{demo}/stores:state' s JOIN '{demo}/orders' o ON {on}")
    assert sorted(found) == sorted(wanted)


def test_other_tables_of_a_connection_are_seen(demo: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE wanted AS SELECT 5 AS sequence")
        query_ = f"SELECT count(*) FROM '{demo / 'orders'}' JOIN wanted USING (sequence)"
        assert sql(query_, connection=connection).to_arrow_table().to_pydict() == {"count_star()": [1]}
        sql(f"CREATE TABLE copied AS FROM '{demo / 'orders'}'", connection=connection).fetchall()
        assert sql("SELECT count(*) AS n FROM copied", connection=connection).to_arrow_table().to_pydict() == {
            "n": [3000]
        }


HOSTILE = [
    *(b"a'; DROP TABLE x; --", b'b"c', b"d:items", b"e.f", b"g:state@now", "ü n\u202e".encode(), b"h)", b"new\nline"),
    *(b"$(touch evil)", b"`id`", b"range(10)", b"read_csv('x')", b"select", b"main.orders", b"C:\\data\\x", b"$1"),
    *(b"bad\xff\xfe", b"\\xff", b"%s {} ?", b" lead", b"a--b", b"a[*b*]", b"\\", b"information_schema.tables"),
    *(b"duckdb_tables()", b"sqlite_master", b"x.parquet", b"y.csv", b"glob*", b"tab\t"),
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_name_of_a_journal_is_never_sql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: bytes) -> None:
    monkeypatch.chdir(tmp_path)
    path = os.fsdecode(name)
    with sej.Writer(Path(path)) as writer:
        writer.append(b"1")
    single, double = path.replace("'", "''"), path.replace('"', '""')
    with duckdb.connect() as connection:
        for quoted in (f"'{single}'", f'"{double}"', f"'{single}:messages'", f"'./{single}'", f"'{tmp_path}/{single}'"):
            assert pairs(f"SELECT count(*) FROM {quoted}", connection=connection) == [(1,)], quoted
    assert os.listdir(os.fsencode(tmp_path)) == [name]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT price FROM 'orders'", r"\"price\" not found.*; 'orders' has offset, timestamp, .*, size$"),
        ("SELEC 1", 'syntax error at or near "SELEC"$'),
        ("SELECT offset FROM 'orders'", 'write sequence, or "offset" in double quotes$'),
        ("SELECT max(offset) FROM 'orders'", 'write sequence, or "offset" in double quotes$'),
        ("SELECT key FROM 'orders' ORDER BY offset", 'write sequence, or "offset" in double quotes$'),
        ("SELEC key FROM 'orders' LIMIT 1 OFFSET 2", 'syntax error at or near "SELEC"$'),
        ("SELECT o.price FROM 'orders' o", r"column named \"price\"; 'orders' has offset, timestamp, .*, size$"),
        ("SELECT * FROM 'ordrs'", "^there is no table, journal or file 'ordrs'; did you mean 'orders'\\?$"),
        ("SELECT * FROM './ordrs:messages'", "journal or file './ordrs:messages'; did you mean './orders'\\?$"),
        ("SELECT * FROM 'none/x'", "^there is no table, journal or file 'none/x'$"),
        ("SELECT * FROM orders", "^there is no table orders; to query the journal .* quote it: 'orders'$"),
        ("SELECT * FROM 'notes'", "^'notes' is neither a journal nor a file that DuckDB reads$"),
        ("SELECT * FROM ./queues:items", "; a path needs quotes: './queues:items'$"),
        ("SELECT * FROM 'orders' WHERE key LIKE 'a%'", r"decode\(key\) is text$"),
        ("INSERT INTO 'orders' VALUES (1)", "^'orders' is no table of DuckDB, and SQL only reads journals; see "),
        ("SELECT timestamp + 1 FROM 'orders'", r"explicit type casts\.?$"),
        ("FROM 'nothing://x/y'", "; as a journal: nothing://x/y: "),
        ("SELECT * FROM query", "^there is no table, journal or file 'query'$"),
        ("SELECT cout(*) FROM 'orders'", 'name cout does not exist! Did you mean "count'),
        ("SELECT * FROM 'orders:itms'", "journals of sej have no table 'itms'; there are records, damage, messages"),
        ("SELECT * FROM 'queues:items@now'", "only the table state of stores has a time"),
        ("SELECT * FROM 'stores:state@yesterday'", "yesterday"),
    ],
)
def test_wrong_query_is_one_clear_line(demo: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str) -> None:
    monkeypatch.chdir(demo)
    (demo / "notes").mkdir(exist_ok=True)
    with pytest.raises(WrongUse, match=reason) as raised:
        sql(text)
    assert "\n" not in str(raised.value)


def test_wrong_columns_and_paths_are_refused(demo: Path, tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="there is no column 'price'; the columns are offset, timestamp"):
        logwright.dataset(demo / "orders").to_table(columns=["price"])
    with pytest.raises(NotFound):
        logwright.dataset(tmp_path / "nothing")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(UnknownFormat):
        logwright.dataset(tmp_path / "text")


# --- damage -----------------------------------------------------------------------------------------------------------


def test_damage_behaves_by_the_mode(demo: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = demo / "damaged"
    session = query.Session()
    with pytest.raises(DamagedJournal, match=r"damaged/jnl/0000000000000442\.jnl @ 49388: size 65535 does not match"):
        list((session.batches(f"SELECT count(value) FROM '{path}'") or ((), ()))[1])
    assert pairs(f"SELECT count(*) FROM '{path}'", mode="dropmalformed") == [(2999,)]
    assert not caplog.records
    assert pairs(f"SELECT count(*) FROM '{path}'", mode="permissive") == [(2999,)]
    assert "jnl/0000000000000442.jnl @ 49388: skipped: size 65535 does not match" in caplog.text
    reported: list[Damage] = []
    logwright.dataset(path, mode="permissive", on_damage=reported.append).count_rows()
    assert [(one.file, one.start) for one in reported] == [("jnl/0000000000000442.jnl", 49388)]
    assert pairs(f"SELECT file, position, kind FROM '{path}:damage'") == [
        ("jnl/0000000000000442.jnl", 49388, "malformed")
    ]
    rows = pairs(f"SELECT journal, damage FROM '{demo}' WHERE damage IS NOT NULL ORDER BY ALL", mode="permissive")
    assert [row[0] for row in rows] == ["damaged", "torn"]


def test_damage_outside_of_the_filter_is_not_met(demo: Path) -> None:
    assert pairs(f"SELECT count(*) FROM '{demo / 'damaged'}' WHERE sequence < 100") == [(100,)]


DAMAGED_AT = {"first": slice(0, 30), "amid": slice(9000, 9200), "last": slice(-200, -60)}


@pytest.mark.parametrize("place", DAMAGED_AT)
@pytest.mark.parametrize("column", ["sequence", "timestamp", "timestamp_ns"])
def test_damaged_first_segment_is_excluded_by_number_and_by_time(tmp_path: Path, place: str, column: str) -> None:
    """By time only if its last message is intact: otherwise the index, which has the times, may be that of another."""
    with sej.Writer(tmp_path, segment_size=20_000) as writer:
        for number in range(400):
            writer.append(b"v" * 100, timestamp=START_NS + number * 10**9)
    file = tmp_path / "jnl" / f"{0:016x}.jnl"
    data = bytearray(file.read_bytes())
    data[DAMAGED_AT[place]] = b"\xff" * len(data[DAMAGED_AT[place]])
    file.write_bytes(data)
    first: Any = {"sequence": 300, "timestamp_ns": START_NS + 300 * 10**9}.get(column)
    if first is None:
        first = pa.scalar(START_NS // 1000 + 300 * 10**6, pa.timestamp("us", tz="UTC"))
    found = logwright.dataset(tmp_path)
    with pytest.raises(DamagedJournal):
        found.count_rows()
    if place == "last" and column != "sequence":
        with pytest.raises(DamagedJournal):
            found.count_rows(filter=ds.field(column) >= first)
    else:
        assert found.count_rows(filter=ds.field(column) >= first) == 100


def matching(path: Path, low: int, high: int, column: str) -> tuple[set[Any], list[Damage]]:
    """The numbers of the records between two times, and the damage that was met."""
    met: list[Damage] = []
    chosen = (ds.field(column) >= low) & (ds.field(column) <= high)
    names = ["file", "position"] if column == "t" else ["sequence"]
    rows = logwright.dataset(path, mode="permissive", on_damage=met.append).to_table(columns=names, filter=chosen)
    return {tuple(row.values()) for row in rows.to_pylist()}, met


@pytest.mark.parametrize("kind", ["with an index", "without an index", "versioned"])
def test_filter_by_time_never_hides_damage_of_the_times_that_it_keeps(tmp_path: Path, kind: str) -> None:
    """Whatever is damaged in the first file: no row is missing unless damage is reported."""
    dice = random.Random(kind)
    if kind == "versioned":
        write_versioned(tmp_path, dice)
        column, files = "t", sorted(tmp_path.glob("*.jrn*"), key=lambda file: file.stat().st_mtime_ns)
    else:
        write_sej(tmp_path, dice)
        column, files = "timestamp_ns", sorted((tmp_path / "jnl").glob("*.jnl"))
        if kind == "without an index":
            shutil.rmtree(tmp_path / "idx")
    ranges = [(FIRST_NS + low * 10**9, FIRST_NS + high * 10**9) for low, high in ((0, 12), (14, 30), (60, 90))]
    intact = [matching(tmp_path, *times, column)[0] for times in ranges]
    assert all(intact)
    data = files[0].read_bytes()
    for position in range(0, len(data), 149):
        for size in (1, 30, len(data)):
            files[0].write_bytes((data[:position] + b"\xff" * size + data[position + size :])[: len(data)])
            everything, _ = matching(tmp_path, -(2**63) + 1, 2**63 - 1, column)
            for times, before in zip(ranges, intact, strict=True):
                found, met = matching(tmp_path, *times, column)
                assert met or before <= everything, (position, size, times)
                assert found <= everything


def test_known_losses_are_in_the_table_of_damage(tmp_path: Path) -> None:
    with sej.Writer(tmp_path) as writer:
        for number in range(50):
            writer.append(b"%d" % number)
    (file,) = (tmp_path / "jnl").iterdir()
    file.write_bytes(overwrite(file.read_bytes(), 60, b"?" * 20))
    assert main(["repair", str(tmp_path), "--yes"]) == 1
    (row,) = as_rows(logwright.dataset(tmp_path, "damage").to_table())
    assert row["kind"] == "lost"
    assert math.isfinite(row["position"])
    assert 40 < logwright.dataset(tmp_path).count_rows() < 50


def test_strings_that_are_not_tables_are_not_looked_up(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(demo)
    looked: list[str] = []
    plain = query.Session._journal

    def noted(self: query.Session, name: str) -> JournalDataset | None:
        looked.append(name)
        return plain(self, name)

    monkeypatch.setattr(query.Session, "_journal", noted)
    columns = "split_part(decode(key), '/', 1), 'orders:closed' AS \"pages\""
    assert pairs(f"SELECT {columns} FROM 'orders' o, 'stores' WHERE k IN ('.', '..')") == []
    assert looked == ["orders", "stores"]


def test_journal_whose_files_are_all_missing_is_damage(tmp_path: Path) -> None:
    with sej.Writer(tmp_path) as writer:
        writer.append(b"1")
    for file in (tmp_path / "jnl").iterdir():
        file.unlink()
    with pytest.raises(DamagedJournal):
        logwright.dataset(tmp_path, format="sej").to_table()
    assert logwright.dataset(tmp_path, "damage", format="sej").count_rows() == 1


def test_excluded_journal_may_be_unreadable(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with sej.Writer(tmp_path / name) as writer:
            writer.append(b"1")
    (segment,) = (tmp_path / "a" / "jnl").iterdir()
    segment.unlink()
    segment.mkdir()
    assert pairs(f"SELECT count(*) FROM '{tmp_path}' WHERE journal = 'b'") == [(1,)]
