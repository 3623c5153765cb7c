"""Journals restored from the tables of the pipeline equal the originals; damage is reported."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from logwright import kestrel
from logwright.core.format import open_journal
from logwright.core.io.disk import REAL_DISK
from logwright.errors import DamagedJournal, Locked, LogwrightError, NotFound, WrongUse
from logwright.pipeline import Expectation, Settings
from logwright.pipeline.publish import open_publisher
from logwright.pipeline.restore import Restored, restore
from logwright.pipeline.run import run
from logwright.sej import Offset, Reader, ShardedWriter, Writer
from logwright.versioned import Entry, VersionedKVStore, VersionedRecovery
from logwright.versioned.files.files import list_stores
from tests.kestrel.journals import random_queue
from tests.kestrel.samples import FACTS, REMOVE, addx, encoded, scenario_operations, write
from tests.sej.samples import GOLDEN, make_journal
from tests.sej.test_golden import DAMAGED, OTHERS, SHARDED, TORN, WHOLE
from tests.sej.test_restore import random_journal
from tests.support.damage import cut, damage_file, noise_after, overwrite
from tests.versioned.samples import START
from tests.versioned.samples import journal as store_journal
from tests.versioned.stores import Clock
from tests.versioned.test_restore import journals_of

RANDOM = ["one file", "many files", "cleaned", "deep/er/still"]
STRAY = "stray/0000000000000000.jnl"


class World(NamedTuple):
    """Journals, the tables made of them, and the journals restored from those."""

    journals: Path
    tables: Path
    out: Path
    restored: Restored

    def result_of(self, name: str) -> Any:
        (found,) = [journal for journal in self.restored.journals if journal.journal == name]
        return found


def make_journals(root: Path) -> None:
    for name in [*WHOLE, *TORN, *DAMAGED, *OTHERS, *SHARDED]:
        shutil.copytree(GOLDEN / name / ("root" if name in SHARDED else "sej"), root / "golden" / name)
    for number, name in enumerate(RANDOM):
        random_journal(root / name, number, segment_size={"one file": 1 << 30, "cleaned": 900}.get(name, 2000))
        for consumer in ("billing", "audit.2"):
            with Offset(root / name, consumer) as offset:
                offset.commit(number + len(consumer))
    Offset(root / "many files", "fresh").close()
    for path in sorted((root / "cleaned" / "jnl").iterdir())[:2]:
        path.unlink()
    with ShardedWriter(root / "sharded", "web", 3, segment_size=2000) as writer:
        for number in range(300):
            writer.append(b"v" * (number % 90), b"%d" % (number % 50), type=number % 256, timestamp=-number)
    with Offset(root / "sharded" / "web.3.005", "billing") as offset:
        offset.commit(2)
    make_journal(root / "whole", 5)
    (root / STRAY).parent.mkdir()
    (root / "whole" / "jnl" / "0000000000000000.jnl").rename(root / STRAY)
    shutil.rmtree(root / "whole")
    make_damaged(root / "damaged")
    make_queues(root / "queues")
    make_stores(root / "stores")
    with Offset(make_journal(root / "broken", 3), "fine") as offset:
        offset.commit(2)
    (root / "broken" / "ofs" / "lost.ofs").write_bytes(b"123")


def make_damaged(root: Path) -> None:
    """Ten messages of 40 bytes in each of three segments, before they are damaged."""
    accidents: dict[str, tuple[int, Callable[..., bytes], tuple[Any, ...]]] = {
        "the beginning": (0, overwrite, (0, b"\xff" * 100)),
        "the middle": (10, overwrite, (200, b"\xff" * 20)),
        "the end": (10, cut, (370,)),
        "a whole segment": (10, noise_after, (0,)),
        "the last segment": (20, noise_after, (0,)),
    }
    for name, (first, accident, arguments) in accidents.items():
        make_journal(root / name, 30, per_segment=10)
        for path in sorted((root / name / "jnl").iterdir())[3:]:
            path.unlink()  # the empty one that follows a full one
        damage_file(root / name / "jnl" / f"{first:016x}.jnl", accident, *arguments)


def make_queues(root: Path) -> None:
    """Queues of both dialects, with every kind of operation, some of them irregular."""
    for number, scenario in enumerate(FACTS["scenarios"]):
        write(root / f"golden{number}" / "cars", *scenario_operations(scenario))
    for number in range(6):
        dialect = ("documented", "kestrel2")[number % 2]
        for name in ("cars", "bikes+spare"):
            random_queue(root / f"random{number}", name, random.Random(number), dialect)
    make_journal(root / "random0" / "orders", 5)  # beside files of queues there may be journals of other formats
    write(root / "empty" / "cars.5", addx(b"A"))
    write(root / "empty" / "cars")
    (root / "damaged").mkdir()
    (root / "damaged" / "cars.7").write_bytes(encoded([addx(b"A")]) + b"\xee" * 5 + encoded([addx(b"B"), addx(b"C")]))
    write(root / "damaged" / "cars", REMOVE, tail=b"\x02")


def make_stores(root: Path) -> None:
    """Stores with archives, some in one directory, and one with changed bytes."""
    for number in range(4):
        directory = root / ("", "deeper")[number % 2]
        clock, dice = Clock(START + number), random.Random(number)
        with VersionedKVStore(directory, f"store {number}", 4096, background=False, clock=clock) as store:
            for change in range(300):
                clock.now += dice.choice((0, 10**6))
                store.insert(f"key {dice.randrange(5)}", {"change": change, "text": "ü" * dice.randrange(30)})
                store.remove(f"key {dice.randrange(20)}")
            for _ in range(number):
                store.rotate()
    entries = [Entry(START + number, f"key {number}", number) for number in range(20)]
    (root / "damaged").mkdir()
    (root / "damaged" / "cars.jrn").write_bytes(store_journal(START, entries))
    damage_file(root / "damaged" / "cars.jrn", overwrite, 200, b"\xff" * 4)


@pytest.fixture(scope="module")
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> World:
    home = tmp_path_factory.mktemp("restore")
    make_journals(home / "journals")
    chosen = ("messages", "queue_operations", "kv_changes", "files", "consumers", "damage")
    run(Settings(str(home / "journals"), str(home / "tables"), tables=chosen, split_bytes=100_000), spark)
    seen: list[tuple[int, int]] = []
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(name, 50)  # so that files arrive in many batches
    try:
        restored = restore(
            str(home / "tables"), str(home / "out"), spark=spark, progress=lambda *bytes: seen.append(bytes)
        )
    finally:
        spark.conf.unset(name)
    total = sum(
        pc.sum(pq.read_table(home / "tables" / table, columns=["size"])["size"]).as_py() for table in chosen[:3]
    )
    assert seen[-1] == (total, total)
    return World(home / "journals", home / "tables", home / "out", restored)


def hashes_of(directory: Path) -> dict[str, str]:
    """The segments and the offset files of a journal, of all shards of one, or of a single file."""
    paths = [path for path in directory.rglob("*") if path.suffix in (".jnl", ".ofs")] or [directory]
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


# --- what is whole --------------------------------------------------------------------------------------------------


def test_intact_golden_journals_are_restored_byte_for_byte(world: World) -> None:
    for name in (*WHOLE, *SHARDED, "midflip_value"):
        name = f"golden/{name}"
        assert hashes_of(world.out / name) == hashes_of(world.journals / name), name
        assert world.result_of(name).whole, name


def test_random_journals_are_restored_byte_for_byte_with_their_consumers(world: World) -> None:
    for name in [*RANDOM, "sharded", STRAY]:
        assert hashes_of(world.out / name) == hashes_of(world.journals / name), name
        assert world.result_of(name).whole, name
    assert len(hashes_of(world.out / "many files")) > 10
    assert (world.out / "many files" / "ofs" / "fresh.ofs").read_bytes() == b""
    assert len(hashes_of(world.out / "sharded")) > 10


def test_queues_are_restored_byte_for_byte_beside_another_format(world: World) -> None:
    queues = [journal for journal in world.restored.journals if journal.format == "kestrel"]
    assert len(queues) > 15
    for journal in queues:
        if journal.journal != "queues/damaged":
            assert files_of(world.out / journal.journal) == files_of(world.journals / journal.journal), journal
            assert journal.whole, journal
    assert hashes_of(world.out / "queues/random0/orders") == hashes_of(world.journals / "queues/random0/orders")
    result = world.result_of("queues/damaged")
    assert [(gap.part, gap.first, gap.next) for gap in result.gaps] == [("cars", 22, 27)]
    assert result.missing_bytes == 6
    states = [kestrel.Reader(root / "queues/damaged/cars").state() for root in (world.journals, world.out)]
    assert states[0] == states[1]


def test_stores_are_restored_with_their_journals_and_history(world: World) -> None:
    for name in ("stores", "stores/deeper"):
        assert journals_of(world.out / name) == journals_of(world.journals / name), name
        assert len(journals_of(world.out / name)) > 6, name
        assert world.result_of(name).whole, name
        assert world.result_of(name).files == len(journals_of(world.out / name)), name
        for store in list_stores(REAL_DISK, world.journals / name):
            before, after = (VersionedRecovery.load(root / name, store=store) for root in (world.journals, world.out))
            assert list(after.history("key 3")) == list(before.history("key 3")), store
            for entry in before.history("key 2"):
                assert dict(after.recover_at(entry.t)) == dict(before.recover_at(entry.t)), (store, entry.t)
    result = world.result_of("stores/damaged")
    assert [gap.part for gap in result.gaps] == ["cars"]
    assert [problem.partition(" was damaged (")[0] for problem in result.problems] == [
        f"cars.jrn @ {result.gaps[0].first & (1 << 64) - 1}"
    ]
    assert not result.whole


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def test_incremental_tables_restore_changes_that_a_store_removed(spark: Any, tmp_path: Path) -> None:
    """Between two runs a journal is renamed, and archives that were read are removed."""
    stores, clock = tmp_path / "journals" / "stores", Clock(START)
    settings = Settings(
        str(tmp_path / "journals"), str(tmp_path / "tables"), tables=("kv_changes", "files"), incremental=True
    )
    expected: dict[str, bytes] = {}
    for number in range(2):
        with VersionedKVStore(stores, "cars", 4096, background=False, clock=clock) as store:
            for change in range(30):
                clock.now += 1000
                store.insert(f"key {change % 4}", [number, change])
                if change == 10 * number:
                    store.rotate()
        expected.update(journals_of(stores))
        run(settings, spark)
        min(stores.glob("*.zz")).unlink()
    restored = restore(str(tmp_path / "tables"), str(tmp_path / "out"), spark=spark)
    assert journals_of(tmp_path / "out" / "stores") == expected
    assert (len(expected), restored.records, restored.whole) == (3, 60, True)


def test_result_describes_the_restored_journals(world: World) -> None:
    names = {str(path.parent.parent.relative_to(world.journals)) for path in world.journals.rglob("jnl/*.jnl")}
    names = {name.rpartition("/")[0] if name.rpartition(".")[2][:1].isdigit() else name for name in names}
    messages = [journal for journal in world.restored.journals if journal.format == "sej"]
    assert {journal.journal for journal in messages} == {*names, STRAY}
    for journal in messages:
        reader = open_journal(world.out / journal.journal)
        hashes = [name for name in hashes_of(world.out / journal.journal) if not name.endswith(".ofs")]
        assert (journal.format, journal.files) == ("sej", len(hashes))
        assert journal.records == reader.count()
        assert journal.bytes == sum((world.out / journal.journal / name).stat().st_size for name in hashes)
    assert world.restored.out == str(world.out)
    assert not world.restored.completed


def test_restored_journal_continues_at_its_end(world: World, tmp_path: Path) -> None:
    shutil.copytree(world.out / "many files", tmp_path / "copy")
    following = Reader(world.journals / "many files").next
    with Writer(tmp_path / "copy") as writer:
        assert (writer.recovered, writer.append(b"next")) == (None, following)
    with Offset(tmp_path / "copy", "billing") as offset:
        assert offset.value == 1 + len("billing")


# --- what is not ----------------------------------------------------------------------------------------------------


def test_damaged_journals_are_restored_sound_except_reported_gaps(world: World) -> None:
    names = [f"golden/{name}" for name in (*TORN, *DAMAGED, *OTHERS)]
    names += [f"damaged/{path.name}" for path in (world.journals / "damaged").iterdir()]
    for name in names:
        before, after = Reader(world.journals / name), Reader(world.out / name)
        whole = list(before.messages(mode="dropmalformed"))
        assert list(after.messages(mode="dropmalformed")) == whole, name
        problems = after.verify().problems
        gaps = [
            f"the segment begins with offset {gap.next} where {gap.first} was"
            for gap in world.result_of(name).gaps
            if gap.next <= after.next  # records missing at the end leave no trace
        ]
        assert [problem.kind for problem in problems] == ["gap"] * len(gaps), name
        assert all(problem.message.startswith(gap) for problem, gap in zip(problems, gaps, strict=True)), name
        size = sum(path.stat().st_size for path in (world.journals / name / "jnl").iterdir())
        assert world.result_of(name).missing_bytes == size - world.result_of(name).bytes, name


def test_missing_records_are_reported_for_each_journal(world: World) -> None:
    result = {path.name: world.result_of(f"damaged/{path.name}") for path in (world.journals / "damaged").iterdir()}
    assert {name: ([(gap.first, gap.next) for gap in one.gaps], one.missing_bytes) for name, one in result.items()} == {
        "the beginning": ([(0, 3)], 120),
        "the middle": ([(15, 16)], 40),
        "the end": ([(19, 20)], 10),
        "a whole segment": ([(10, 20)], 400),
        "the last segment": ([], 400),
    }
    assert result["the middle"].files == 4
    assert not result["the last segment"].whole
    gap = world.result_of("golden/gap")
    assert ([(one.first, one.next) for one in gap.gaps], gap.missing_bytes) == ([(12, 16)], 0)


def test_consumer_with_an_unreadable_offset_is_reported(world: World) -> None:
    assert sorted(path.name for path in (world.out / "broken" / "ofs").iterdir()) == ["fine.ofs"]
    assert world.result_of("broken").problems == (
        "the consumer lost is not restored: ofs/lost.ofs @ 0: an offset file has 0 or 8 bytes, this one has 3",
    )
    assert not world.result_of("broken").whole


# --- what is refused ------------------------------------------------------------------------------------------------


def visible(out: Path) -> list[str]:
    return sorted(path.name for path in out.iterdir() if path.name != ".logwright") if out.exists() else []


def test_existing_journals_are_not_overwritten_and_patterns_select(spark: Any, world: World, tmp_path: Path) -> None:
    before = hashes_of(world.out)
    with pytest.raises(WrongUse, match="/out/broken already exists, and is not overwritten"):
        restore(str(world.tables), str(world.out), spark=spark)
    assert hashes_of(world.out) == before
    with pytest.raises(WrongUse, match=r"no journal matches 'nothing/\*'"):
        restore(str(world.tables), str(tmp_path / "out"), journals=["golden/*", "nothing/*"], spark=spark)
    assert not (tmp_path / "out").exists()
    chosen = restore(str(world.tables), str(tmp_path / "out"), journals=["golden/one", "deep/*"], spark=spark)
    assert [journal.journal for journal in chosen.journals] == ["deep/er/still", "golden/one"]
    assert visible(tmp_path / "out") == ["deep", "golden"]
    assert visible(tmp_path / "out" / "golden") == ["one"]


def test_tables_being_changed_are_not_read(spark: Any, world: World, tmp_path: Path) -> None:
    with (
        open_publisher(world.tables),
        pytest.raises(Locked, match="another run of the pipeline is writing there"),
    ):
        restore(str(world.tables), str(tmp_path / "out"), spark=spark)
    assert not (tmp_path / "out").exists()


def test_missing_tables_are_reported(spark: Any, world: World, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no table of records here"):
        restore(str(tmp_path / "none"), str(tmp_path / "out"), spark=spark)
    for inside in (world.tables, world.tables / "below"):
        with pytest.raises(WrongUse, match="is where the tables are"):
            restore(str(world.tables), str(inside), spark=spark)
    with pytest.raises(WrongUse, match="not to a remote store"):
        restore(str(world.tables), "s3://bucket/out?region=here&endpoint_override=127.0.0.1:9", spark=spark)


def messages_of(world: World, journal: str) -> pa.Table:
    rows = pq.read_table(world.tables / "messages")
    return rows.filter(pc.equal(rows["journal"], journal))


def save(rows: pa.Table, tables: Path, name: str = "messages") -> Path:
    (tables / name).mkdir(parents=True)
    pq.write_table(rows, tables / name / "part.parquet")
    return tables


def renamed(rows: pa.Table, column: str, value: Any) -> pa.Table:
    field = rows.schema.field(column)
    return rows.set_column(
        rows.schema.get_field_index(column), field, pa.repeat(pa.scalar(value, field.type), rows.num_rows)
    )


def test_rows_in_any_order_and_with_partitions_can_be_restored(spark: Any, world: World, tmp_path: Path) -> None:
    rows = messages_of(world, "one file")
    order = list(range(rows.num_rows))
    random.Random(1).shuffle(order)
    shuffled = spark.createDataFrame(rows.take(pa.array(order)))
    shuffled.repartition(3).write.partitionBy("journal").parquet(str(tmp_path / "tables" / "messages"))
    restored = restore(str(tmp_path / "tables"), str(tmp_path / "out"), spark=spark)
    assert (tmp_path / "out/one file/jnl/0000000000000000.jnl").read_bytes() == (
        world.journals / "one file/jnl/0000000000000000.jnl"
    ).read_bytes()
    (journal,) = restored.journals
    assert journal.problems == (
        "there is no table files: files without records are not restored",
        "there is no table consumers: how far they had come is not restored",
    )
    assert not journal.whole


def doubled(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(3, 1)])


@pytest.mark.parametrize(("change", "kind", "message"), [
    (doubled, DamagedJournal, r"one file/jnl/0{16}\.jnl @ \d+: the tables have offset 3 where 4 was expected"),
    (lambda rows: renamed(rows, "type", 300), WrongUse, "one file: column type has what is no type of a message"),
    (lambda rows: renamed(rows, "journal", "../elsewhere"), WrongUse, "'../elsewhere' cannot be the name of a journal"),
    (lambda rows: renamed(rows, "file", "../0.jnl"), WrongUse, "'../0.jnl' cannot be the name of a segment"),
    (lambda rows: renamed(rows, "file", None), WrongUse, "rows without a journal or a file"),
    (lambda rows: rows.drop_columns("file"), WrongUse, "the table messages has no column file"),
])  # fmt: skip
def test_invalid_tables_are_refused_and_leave_no_files(
    spark: Any, world: World, tmp_path: Path, change: Any, kind: type[LogwrightError], message: str
) -> None:
    tables = save(change(messages_of(world, "one file")), tmp_path / "tables")
    with pytest.raises(kind, match=message):
        restore(str(tables), str(tmp_path / "out"), spark=spark)
    assert visible(tmp_path / "out") == []
    assert not list((tmp_path / "out").glob(".logwright/restore/*/*"))


def test_records_in_quarantine_are_restored_as_well(spark: Any, tmp_path: Path) -> None:
    root, tables = tmp_path / "root", tmp_path / "tables"
    random_journal(root / "orders", 7, segment_size=2000)
    random_queue(root / "queues", "cars", random.Random(7), "kestrel2")
    with VersionedKVStore(root / "stores", "cars", 4096, background=False) as store:
        for number in range(20):
            store.insert(f"key {number % 3}", {"a \u00e9": [number, None, 0.1]})
    parity = {"messages": '"offset" % 3 = 0', "queue_operations": "position % 2 = 0", "kv_changes": "false"}
    expectations = tuple(Expectation(table, condition, "quarantine") for table, condition in parity.items())
    result = run(Settings(str(root), str(tables), expectations=expectations), spark)
    assert all(each.failed for each in result.expectations)
    assert result.tables["messages"].rows < result.journals["orders"].records
    found = restore(str(tables), str(tmp_path / "out"), spark=spark)
    assert [(journal.problems, journal.gaps) for journal in found.journals] == [((), ())] * 3
    queues = [path for path in (root / "queues").iterdir() if path.name.startswith("cars") and path.suffix != ".lck"]
    for path in (*(root / "orders" / "jnl").iterdir(), *queues):
        assert path.read_bytes() == (tmp_path / "out" / path.relative_to(root)).read_bytes(), path
    states = [open_journal(directory / "stores").state(None) for directory in (root, tmp_path / "out")]
    assert states[0] == states[1]
