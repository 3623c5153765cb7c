"""Batch, stream and plain Python agree record for record, on every golden journal and on random ones, with damage.

Most of it runs without the JVM, with the same objects by which Spark plans and reads. So thousands of tiny splits and
batches can be tried. A few queries over all journals show that Spark itself changes nothing.
"""

from __future__ import annotations

import json
import pickle
import random
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from logwright import arrow
from logwright.arrow.discovery import find_journals
from logwright.core.bytes.outcome import Damage
from logwright.core.format import find_format, open_journal
from logwright.core.io.disk import REAL_DISK
from logwright.errors import DamagedJournal
from logwright.sej import ShardedReader, ShardedWriter, Writer, find_shards
from logwright.spark.schemas import METADATA, spark_schema
from logwright.spark.source import FilteredJournalReader
from logwright.spark.stream import JournalStream
from tests.sej.samples import GOLDEN
from tests.sej.test_golden import DAMAGED, OTHERS, SHARDED, TORN, WHOLE
from tests.support import damage

MODES = ("permissive", "dropmalformed")
RANDOM = 24
SCHEMA = (
    "_journal STRING, _file STRING, _position BIGINT, _size INT, offset BIGINT, timestamp_ns BIGINT, type SMALLINT, "
    "key BINARY, value BINARY, _damage STRING"
)
"""The source `sej` in the columns of `Row`."""
UNIFIED = ("journal", "file", "position", "size", "sequence", "timestamp_ns", "detail", "key", "value", "damage")
"""The source `logwright` in the columns of `Row`."""
TIMES = [None, 0, -1, 2**62, -(2**62), 1_500_000_000_123_456_789]


class Row(NamedTuple):
    """A record, or a range of bytes that is not a record, however it was read."""

    journal: str
    file: str
    position: int
    size: int
    offset: int | None
    timestamp_ns: int | None
    type: int | None
    key: bytes | None
    value: bytes | None
    damage: str | None

    @property
    def place(self) -> tuple[Any, ...]:
        """Its place; a gap, which has no bytes, precedes the record that begins there."""
        return self.journal, self.file, self.position, self.offset is not None, self.size


Rows = dict[str, list[Row]]
"""The rows of every journal, in the order of their places."""


def by_journal(rows: Iterable[Row], names: Iterable[str]) -> Rows:
    found: Rows = {name: [] for name in names}
    for row in rows:
        found[row.journal].append(row)
    return {name: sorted(some, key=lambda row: row.place) for name, some in found.items()}


# --- journals -------------------------------------------------------------------------------------------------------


def write_random(root: Path, dice: random.Random) -> list[Path]:
    """A journal, or a root of shards; the directories of its journals."""
    segment_size, checksums = dice.choice([700, 3000, 20_000, 1 << 30]), dice.random() < 0.25
    bit = dice.choice([0, 0, 0, 1, 2])
    sizes = [0, 1, 20, 20, 200]
    if dice.random() < 0.15:  # files that are cut into several splits
        bit, segment_size, sizes = 0, 1 << 20, [0, 300, 3000, 30_000]
    with (
        ShardedWriter(root, "web", bit, segment_size=segment_size, checksums=checksums)
        if bit
        else Writer(root, segment_size=segment_size, checksums=checksums)
    ) as writer:
        for number in range(dice.randrange(20, 250)):
            value = dice.randbytes(dice.choice(sizes))
            writer.append(value, b"%d" % dice.randrange(30), number % 256, dice.choice(TIMES))
    return [shard.path for shard in find_shards(REAL_DISK, root)] if bit else [root]


def damage_segment(path: Path, dice: random.Random, *, is_last: bool) -> None:
    """One accident to one segment."""
    data = path.read_bytes()
    if not data:
        return
    at = dice.randrange(len(data))
    end = min(len(data), at + dice.choice([1, 8, 30, 200]))
    accidents = [
        lambda: damage.flip_bit(data, 8 * at + dice.randrange(8)),
        lambda: damage.overwrite(data, at, dice.randbytes(end - at)),
        lambda: damage.overwrite(data, at, bytes(end - at)),
        lambda: damage.drop(data, at, end),
        lambda: damage.insert(data, at, dice.randbytes(end - at)),
        lambda: damage.repeat(data, at, end),
        lambda: damage.zeros_after(data, at),
        lambda: damage.noise_after(data, at, dice.randrange(100)),
        lambda: damage.cut(data, at),
        lambda: data + dice.randbytes(end - at),
    ]
    path.write_bytes(dice.choice(accidents[6:] if is_last and dice.random() < 0.5 else accidents)())


def make_random(root: Path, seed: int) -> None:
    dice = random.Random(seed)
    for directory in write_random(root, dice):
        segments = sorted((directory / "jnl").glob("*.jnl"))
        if dice.random() < 0.5:
            shutil.rmtree(directory / "idx")
        for _ in range(dice.choice([0, 1, 1, 2])):
            path = dice.choice(segments)
            damage_segment(path, dice, is_last=path == segments[-1])
        if len(segments) > 3 and dice.random() < 0.2:
            segments[dice.randrange(1, len(segments) - 1)].unlink()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("agreement")
    for name in [*WHOLE, *TORN, *DAMAGED, *OTHERS, *SHARDED]:
        shutil.copytree(GOLDEN / name / ("root" if name in SHARDED else "sej"), root / "golden" / name)
    for seed in range(RANDOM):
        make_random(root / "random" / str(seed), seed)
    return root


def names_of(root: Path) -> list[str]:
    return [journal.name for journal in find_journals(str(root), "sej")]


# --- plain Python ---------------------------------------------------------------------------------------------------


def damage_row(journal: str, found: Damage) -> Row:
    text = f"{found.kind}: {found.reason}"
    return Row(journal, found.file, found.start, found.size, None, None, None, None, None, text)


def scanned(root: Path, name: str, mode: Any) -> Iterator[Row]:
    """A journal, read by `Reader.scan`."""
    for item in open_journal(root / name).scan(mode=mode):
        if isinstance(item, Damage):
            yield damage_row(name, item)
        else:
            one = item.record
            place = (name, item.file, item.span.start, item.span.size)
            yield Row(*place, one.offset, one.timestamp, one.type, one.key, one.value, None)


def from_arrow(root: Path, name: str, mode: Any) -> Iterator[Row]:
    """A journal, read by `arrow.batches`."""
    columns = ["file", "position", "size", "offset", "timestamp", "type", "key", "value"]
    found = arrow.batches(root / name, columns, mode=mode, batch_bytes=5000)
    for batch in found:
        batch = batch.set_column(4, "timestamp", batch.column("timestamp").view("int64"))
        for row in batch.to_pylist():
            yield Row._make([name, *row.values(), None])
    if mode == "permissive":
        for wrong in found.damages:
            yield damage_row(name, wrong)


@pytest.fixture(scope="module")
def expected(root: Path) -> dict[str, Rows]:
    """The rows of plain Python, in each mode."""
    names = names_of(root)
    return {mode: by_journal((row for name in names for row in scanned(root, name, mode)), names) for mode in MODES}


def for_a_stream(root: Path, rows: Rows) -> Rows:
    """The rows of a stream: without a torn tail, and without a message that may still be incomplete."""
    found: Rows = {}
    part_of = find_format("sej").restore.part_of
    for name, some in rows.items():
        extents = find_format("sej").splits.extent(open_journal(root / name))
        found[name] = []
        following = {row.file: int(Path(row.file).stem, 16) for row in some}
        for row in some:
            if row.offset is not None:
                following[row.file] = row.offset + 1
            reached = following[row.file] if row.offset is None else row.offset
            if reached < extents[part_of(row.file)][1] and not (row.damage or "").startswith("torn_tail"):
                found[name].append(row)
    return found


def test_samples_cover_every_kind_of_damage(expected: dict[str, Rows]) -> None:
    rows = [row for some in expected["permissive"].values() for row in some]
    kinds = {row.damage.partition(":")[0] for row in rows if row.damage is not None}
    assert kinds == {"torn_tail", "malformed", "unexpected_offset", "gap", "checksum"}
    assert sum(row.damage is None for row in rows) > 5000
    assert len(expected["permissive"]) == len([*WHOLE, *TORN, *DAMAGED, *OTHERS, *SHARDED]) + RANDOM
    assert sum(any(row.damage for row in some) for some in expected["permissive"].values()) > 25


def test_columns_equal_the_objects(root: Path, expected: dict[str, Rows]) -> None:
    names = names_of(root)
    for mode in MODES:
        found = by_journal((row for name in names for row in from_arrow(root, name, mode)), names)
        for name in names:
            assert found[name] == expected[mode][name], name


# --- what Spark plans and reads by ------------------------------------------------------------------------------------


def rows_of(reader: Any, tasks: Iterable[Any]) -> Iterator[Row]:
    """The rows of tasks whose state was pickled."""
    for task in tasks:
        theirs, partition = pickle.loads(pickle.dumps((reader, task)))
        for batch in theirs.read(partition):
            for row in batch.to_pylist():
                yield Row(*row.values())


def typed_schema() -> StructType:
    known = {field.name: field for field in [*spark_schema("sej"), *from_arrow_schema(METADATA)]}
    return StructType([known[column.split()[0]] for column in SCHEMA.split(", ")])


def given(root: Path, options: dict[str, str]) -> dict[str, str]:
    return {"path": str(root), **{name.lower(): value for name, value in options.items()}}


def in_batch(root: Path, *filters: Any, **options: str) -> Iterator[Row]:
    """All rows, task by task."""
    reader = FilteredJournalReader(typed_schema(), given(root, options), "sej")
    reader.pushFilters(list(filters))
    yield from rows_of(reader, reader.partitions())


def in_stream(root: Path, **options: str) -> Iterator[Row]:
    """All rows, batch by batch, as Spark requests them."""
    stream = JournalStream(typed_schema(), given(root, options), "sej")
    start = json.loads(json.dumps(stream.initialOffset()))
    while (end := json.loads(json.dumps(stream.latestOffset(start, stream.getDefaultReadLimit())))) != start:
        yield from rows_of(stream, stream.partitions(start, end))
        start = end


def compare(found: Iterable[Row], wanted: Rows) -> None:
    rows = by_journal(found, wanted)
    for name, some in wanted.items():
        assert rows[name] == some, name


@pytest.mark.parametrize("mode", MODES)
def test_tasks_of_any_size_read_the_same_as_a_reader(root: Path, expected: dict[str, Rows], mode: str) -> None:
    for split_bytes in ("1", "300k", "1g"):
        compare(in_batch(root, mode=mode, splitBytes=split_bytes, batchBytes="10k"), expected[mode])


@pytest.mark.parametrize("mode", MODES)
def test_one_large_batch_reads_the_same_as_a_reader(root: Path, expected: dict[str, Rows], mode: str) -> None:
    compare(in_stream(root, mode=mode), for_a_stream(root, expected[mode]))


@pytest.mark.parametrize(("mode", "options"), [
    ("permissive", ["maxBytesPerTrigger"]),
    ("permissive", ["maxRecordsPerTrigger"]),
    ("dropmalformed", ["maxRecordsPerTrigger", "maxBytesPerTrigger"]),
])  # fmt: skip
def test_many_small_batches_read_the_same_as_a_reader(
    root: Path, expected: dict[str, Rows], mode: str, options: list[str]
) -> None:
    for name, rows in for_a_stream(root, expected[mode]).items():
        sizes = {"maxBytesPerTrigger": sum(row.size for row in rows), "maxRecordsPerTrigger": len(rows)}
        limits = {option: str(sizes[option] // 8 + 1) for option in options}
        found = in_stream(root / name, mode=mode, splitBytes="1", **limits)
        assert sorted(found, key=lambda row: row.place) == [row._replace(journal=Path(name).name) for row in rows], name


def test_range_of_offsets_equals_that_of_a_reader(root: Path, expected: dict[str, Rows]) -> None:
    dice = random.Random(7)
    for name in expected["permissive"]:
        reader = open_journal(root / name)
        if isinstance(reader, ShardedReader):
            continue
        start = dice.randrange(200)
        stop = start + dice.randrange(1, 100)
        bounds = (GreaterThanOrEqual(("offset",), start), LessThan(("offset",), stop))
        found = [row for row in in_batch(root / name, *bounds, mode="permissive", splitBytes="1") if row.damage is None]
        wanted = [row for row in expected["permissive"][name] if row.offset is not None and start <= row.offset < stop]
        assert sorted(found) == [row._replace(journal=Path(name).name) for row in wanted], name


# --- failfast -------------------------------------------------------------------------------------------------------


def first_failure(rows: Iterator[Row]) -> tuple[str, int] | None:
    """The file and the position at which reading fails."""
    try:
        for _ in rows:
            pass
    except DamagedJournal as error:
        return str(error.file), error.position
    return None


def parts_of(root: Path, name: str) -> list[str]:
    reader = open_journal(root / name)
    return [f"{name}/{shard.name}" for shard in reader.shards()] if isinstance(reader, ShardedReader) else [name]


def test_failfast_fails_at_the_same_position(root: Path, expected: dict[str, Rows]) -> None:
    refused = 0
    for name in expected["permissive"]:
        for part in parts_of(root, name):
            plain = first_failure(scanned(root, part, "failfast"))
            by_columns = first_failure(from_arrow(root, part, "failfast"))
            in_tasks = first_failure(in_batch(root / part, mode="failfast", splitBytes="1"))
            assert by_columns == plain, part
            assert in_tasks == (None if plain is None else (f"{Path(part).name}/{plain[0]}", plain[1])), part
            rows = for_a_stream(root, by_journal(scanned(root, part, "permissive"), [part]))
            in_batches = first_failure(in_stream(root / part, mode="failfast", maxRecordsPerTrigger="50"))
            assert in_batches == (in_tasks if any(row.damage for row in rows[part]) else None), part
            refused += plain is not None
    assert refused > 15


# --- Spark itself -----------------------------------------------------------------------------------------------------


def unified_row(row: Any) -> Row:
    kind = None if row.detail is None else json.loads(row.detail)["type"]
    return Row._make([*row[:6], kind, *map(as_bytes, row[7:9]), row.damage])


def typed_row(row: Any) -> Row:
    return Row._make([*row[:7], *map(as_bytes, row[7:9]), row[9]])


def as_bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


@pytest.mark.parametrize("mode", MODES)
def test_tables_of_spark_equal_those_of_a_reader(spark: Any, root: Path, expected: dict[str, Rows], mode: str) -> None:
    options = {"mode": mode, "splitBytes": "1m"}
    if mode == "permissive":
        frame = spark.read.format("logwright").options(**options).load(str(root))
        found = [unified_row(row) for row in frame.select(*UNIFIED).collect()]
    else:
        frame = spark.read.schema(SCHEMA).format("sej").options(**options).load(str(root))
        found = [typed_row(row) for row in frame.collect()]
    compare(found, expected[mode])


@pytest.mark.parametrize("mode", MODES)
def test_streams_of_spark_equal_those_of_a_reader(
    spark: Any, root: Path, expected: dict[str, Rows], mode: str, tmp_path: Path
) -> None:
    source = spark.readStream.format("logwright" if mode == "dropmalformed" else "sej").option("mode", mode)
    if mode == "permissive":
        frame, row_of = source.schema(SCHEMA).load(str(root)), typed_row
    else:
        limited = source.option("maxRecordsPerTrigger", 4000).option("splitBytes", "1m")
        frame, row_of = limited.load(str(root)).select(*UNIFIED), unified_row
    writer = frame.writeStream.format("memory").queryName(f"agreement_{mode}").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "progress")).start()
    try:
        query.awaitTermination(300)
        assert query.exception() is None
        found = [row_of(row) for row in spark.table(f"agreement_{mode}").collect()]
        batches = len([progress for progress in query.recentProgress if progress["numInputRows"]])
    finally:
        query.stop()
        spark.catalog.dropTempView(f"agreement_{mode}")
    assert (batches > 1) == (mode == "dropmalformed")
    compare(found, for_a_stream(root, expected[mode]))


def test_spark_error_names_file_and_position(spark: Any, root: Path) -> None:
    for name in ("golden/midflip_size", "golden/gap"):
        plain = first_failure(scanned(root, name, "failfast"))
        assert plain is not None
        place = f"{Path(name).name}/{plain[0]} @ {plain[1]}: "
        with pytest.raises(PySparkException, match=place.replace(".", r"\.")):
            spark.read.format("sej").load(str(root / name)).collect()
