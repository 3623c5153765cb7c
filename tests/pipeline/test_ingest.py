"""What a task of the pipeline writes, done here without Spark: it plans, reads and writes in plain Python."""

from __future__ import annotations

import errno
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from logwright import arrow
from logwright.cli import main
from logwright.core.bytes.outcome import Damage
from logwright.core.format import FORMATS, find_format
from logwright.core.io.disk import RealDisk, RealFile
from logwright.core.times import shown_time
from logwright.errors import DamagedJournal, HistoryUnavailable, LogwrightError, StorageFailed, UnknownFormat
from logwright.pipeline import ingest, parquet
from logwright.pipeline.ingest import Ingested, IngestReader
from logwright.pipeline.plan import PipelineStream, Plan, everything
from logwright.pipeline.settings import JournalRule, Settings
from logwright.pipeline.tables import DAMAGE, EVENTS
from logwright.sej import Reader, ShardedWriter, Writer
from logwright.spark.discovery import find_journals
from logwright.versioned import VersionedKVStore
from tests.pipeline.journals import damage, fill, tear, unreadable
from tests.support.access import open_to_all, without_access

ROWS = [column.name for column in EVENTS]


def plan_for(root: Path, tmp_path: Path, **options: Any) -> Plan:
    staging = tmp_path / "staging"
    for table in ("events", "damage"):
        (staging / table).mkdir(parents=True, exist_ok=True)
    return Plan(Settings(str(root), str(tmp_path / "out"), **options), str(staging))


def work(plan: Plan) -> Ingested:
    """Do all tasks of a plan, each as a worker would: with what has been through JSON."""
    reader = IngestReader(Plan.from_json(plan.as_json()))
    done = Ingested()
    for partition in reader.partitions():
        for (reported,) in reader.read(partition):
            done.add(Ingested.from_json(reported))
    return done


def rows(plan: Plan, table: str = "events") -> pa.Table:
    paths = sorted((Path(plan.staging) / table).iterdir())
    return pa.concat_tables([pq.read_table(path) for path in paths]) if paths else EVENTS.empty_table()


def expected(directory: Path, name: str) -> list[tuple[Any, ...]]:
    """The columns of `events` as a reader returns them."""
    found = []
    for place in Reader(directory).scan(mode="permissive"):
        if isinstance(place, Damage):
            continue
        message = place.record
        ns = message.timestamp
        micros = None if ns is None else ns // 1000
        where = ("sej", name, place.file, place.span.start, place.span.size)
        detail = f'{{"type":{message.type}}}'
        found.append((*where, message.offset, micros, ns, "message", message.key, message.value, detail))
    return found


def tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    table = table.set_column(
        table.schema.get_field_index("timestamp"), "timestamp", table["timestamp"].cast(pa.int64())
    )
    return list(zip(*(table[name].to_pylist() for name in ROWS), strict=True))


# --- events -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split_bytes", [1, 30_000, 64 << 20])
def test_every_record_is_written_as_a_reader_returns_it(tmp_path: Path, split_bytes: int) -> None:
    fill(tmp_path / "root" / "a", 500)
    fill(tmp_path / "root" / "deep" / "b", 300, seed=2)
    plan = plan_for(tmp_path / "root", tmp_path, split_bytes=split_bytes)
    done = work(plan)
    found = rows(plan)
    assert found.schema.remove_metadata() == EVENTS
    wanted = [*expected(tmp_path / "root" / "a", "a"), *expected(tmp_path / "root" / "deep" / "b", "deep/b")]
    assert sorted(tuples(found), key=str) == sorted(wanted, key=str)
    assert {name: one.records for name, one in done.journals.items()} == {"a": 500, "deep/b": 300}
    assert sum(one.bytes for one in done.journals.values()) == sum(row[4] for row in wanted)
    assert sum(file.rows for file in done.files) == 800
    assert {file.name: file.bytes for file in done.files} == {
        path.name: path.stat().st_size for path in (tmp_path / "staging" / "events").iterdir()
    }
    assert rows(plan, "damage").num_rows == 0


def test_journals_of_every_format_become_rows_equal_to_their_columns(tmp_path: Path) -> None:
    assert main(["demo", str(tmp_path / "demo")]) == 0
    plan = plan_for(tmp_path / "demo", tmp_path)
    done = work(plan)
    found = rows(plan)
    assert {journal.format for journal in find_journals(str(tmp_path / "demo"), None)} == set(FORMATS)
    for journal in find_journals(str(tmp_path / "demo"), None):
        own = find_format(journal.format).columns
        ours = found.filter(pc.equal(found["journal"], journal.name))
        assert ours.num_rows == done.journals[journal.name].records > 0, journal
        names = own.sources(["op", "key", "detail"], sharded=False)
        columns = [
            [
                column.to_pylist()
                for column in (own.column(batch, name) for name in ("op", "detail"))
                if column is not None
            ]
            for batch in arrow.batches(Path(journal.location), names, mode="dropmalformed", format=journal.format)
        ]
        wanted = Counter(row for batch in columns for row in zip(*batch, strict=True))
        assert Counter(zip(ours["op"].to_pylist(), ours["detail"].to_pylist(), strict=True)) == wanted, journal


def test_shards_and_their_files_are_distinguished(tmp_path: Path) -> None:
    with ShardedWriter(tmp_path / "root" / "web", bit=1) as writer:
        for number in range(100):
            writer.append(b"v", b"%d" % number)
    plan = plan_for(tmp_path / "root", tmp_path)
    assert work(plan).journals["web"].records == 100
    assert set(rows(plan)["file"].to_pylist()) == {
        "1.000/jnl/0000000000000000.jnl",
        "1.001/jnl/0000000000000000.jnl",
    }


def test_a_task_holds_one_row_group_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Writer(tmp_path / "root" / "a") as writer:
        for _ in range(2000):
            writer.append(bytes(10_000))
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 6 << 20)
    plan = plan_for(tmp_path / "root", tmp_path)
    (file,) = work(plan).files
    file_ = pq.ParquetFile(tmp_path / "staging" / "events" / file.name)
    sizes = [file_.metadata.row_group(number).num_rows for number in range(file_.num_row_groups)]
    assert sum(sizes) == 2000
    assert 2 <= len(sizes) <= 4


def test_few_small_journals_share_a_row_group(tmp_path: Path) -> None:
    for number in range(20):
        fill(tmp_path / "root" / str(number), 10, seed=number)
    plan = plan_for(tmp_path / "root", tmp_path)
    (file,) = work(plan).files
    file_ = pq.ParquetFile(tmp_path / "staging" / "events" / file.name)
    assert file_.num_row_groups == 1
    assert file_.metadata.row_group(0).column(1).encodings[-1] == "RLE_DICTIONARY"
    assert set(rows(plan)["journal"].to_pylist()) == {str(number) for number in range(20)}


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_damage_torn_tails_and_unreadable_journals_are_rows(tmp_path: Path) -> None:
    wrong = damage(fill(tmp_path / "root" / "bad", 200), 100)
    tear(fill(tmp_path / "root" / "torn", 50))
    unreadable(tmp_path / "root" / "mixed")
    plan = plan_for(tmp_path / "root", tmp_path)
    done = work(plan)
    found = rows(plan, "damage")
    assert found.schema.remove_metadata() == DAMAGE
    (first, mixed, torn) = sorted(found.to_pylist(), key=lambda row: row["journal"])
    place = ("sej", "bad", wrong.file, wrong.start, wrong.size)
    assert tuple(first.values()) == (*place, wrong.kind, wrong.reason, None)
    assert (torn["journal"], torn["kind"]) == ("torn", "torn_tail")
    assert (mixed["file"], mixed["position"], mixed["size"], mixed["kind"]) == (None, None, None, "unreadable")
    assert "mixes" in mixed["reason"] or "bit" in mixed["reason"]
    assert {name: one.damage for name, one in done.journals.items()} == {
        "bad": {"malformed": 1},
        "torn": {"torn_tail": 1},
        "mixed": {"unreadable": 1},
    }
    assert {name: one.records for name, one in done.journals.items()} == {"bad": 199, "torn": 49, "mixed": 0}


def test_missing_archive_of_a_store_is_a_damage_row(tmp_path: Path) -> None:
    with VersionedKVStore(tmp_path / "root", "cars", background=False) as store:
        ends = []
        for value in (1, 2, 3):
            store.insert("key", value)
            ends.append(store.rotate())
    (tmp_path / "root" / f"cars.jrn.t{ends[1]}.zz").unlink()
    plan = plan_for(tmp_path / "root", tmp_path)
    done = work(plan)
    assert done.journals["root"].damage == {"gap": 1}
    (reported,) = rows(plan, "damage").to_pylist()
    assert (reported["file"], reported["kind"], reported["size"]) == (f"cars.jrn.t{ends[2]}.zz", "gap", 0)
    before = f"cars.jrn.t{ends[0]}.zz, which ended at {shown_time(ends[0])}: one is missing"
    assert reported["reason"] == f"it begins at {shown_time(ends[1])}, and not with what was at the end of {before}"


def test_each_journal_has_its_own_mode_and_excluded_ones_are_skipped(tmp_path: Path) -> None:
    for name in ("kept", "dropped", "scratch"):
        damage(fill(tmp_path / "root" / name, 20), 10)
    rules = (JournalRule("dropped", mode="dropmalformed"), JournalRule("scr*", exclude=True))
    plan = plan_for(tmp_path / "root", tmp_path, journal_rules=rules)
    done = work(plan)
    assert sorted(done.journals) == ["dropped", "kept"]
    assert rows(plan, "damage")["journal"].to_pylist() == ["kept"]
    strict = replace(plan, settings=replace(plan.settings, journal_rules=(JournalRule("kept", mode="failfast"),)))
    with pytest.raises(DamagedJournal, match=r"kept/jnl/0000000000000000\.jnl @ \d+"):
        work(strict)


def test_unreadable_journal_fails_a_failfast_run(tmp_path: Path) -> None:
    unreadable(tmp_path / "root" / "mixed")
    with pytest.raises(LogwrightError, match="mixed"):
        work(plan_for(tmp_path / "root", tmp_path, mode="failfast"))


def test_without_journals_the_plan_is_empty(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with pytest.raises(UnknownFormat, match="no journal of any known format is at or below this path"):
        work(plan_for(tmp_path / "root", tmp_path))


def test_tables_below_the_root_are_not_searched(tmp_path: Path) -> None:
    fill(tmp_path / "root" / "a", 5)
    fill(tmp_path / "root" / "out" / "restored", 5)
    plan = plan_for(tmp_path / "root", tmp_path)
    assert sorted(work(plan).journals) == ["a", "out/restored"]
    inside = replace(plan, settings=replace(plan.settings, out=str(tmp_path / "root" / "out")))
    assert sorted(work(inside).journals) == ["a"]


def test_unreadable_file_is_reported_by_a_full_run_and_fails_an_increment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = fill(tmp_path / "root" / "a", 200)
    segments = Reader(journal).segments()
    plan = plan_for(tmp_path / "root", tmp_path, split_bytes=1)
    parts = IngestReader(plan).partitions()
    read_into = RealFile.read_into

    def failing(file: RealFile, position: int, buffer: memoryview) -> int:
        if file.path == segments[1].path:
            raise StorageFailed("read", file.path, OSError(errno.EIO, "Input/output error"))
        return read_into(file, position, buffer)

    monkeypatch.setattr(RealFile, "read_into", failing)
    monkeypatch.setattr(RealFile, "read_at", lambda file, position, size: _bytes(failing, file, position, size))
    done = Ingested()
    for part in parts:
        for (reported,) in IngestReader(plan).read(part):
            done.add(Ingested.from_json(reported))
    assert done.journals["a"].damage["unreadable"] >= 1
    assert {row["file"] for row in rows(plan, "damage").to_pylist()} == {segments[1].name}
    assert "Input/output error" in rows(plan, "damage")["reason"][0].as_py()
    increment = IngestReader(replace(plan, end={"a": {"": 200}}))
    with pytest.raises(StorageFailed, match="Input/output error"):
        [list(increment.read(part)) for part in parts]


def _bytes(read: Any, file: RealFile, position: int, size: int) -> bytes:
    buffer = bytearray(size)
    return bytes(buffer[: read(file, position, memoryview(buffer))])


def test_a_task_that_fails_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage(fill(tmp_path / "root" / "a", 500), 400)
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1)
    plan = plan_for(tmp_path / "root", tmp_path, mode="failfast")
    with pytest.raises(DamagedJournal):
        work(plan)
    assert list((tmp_path / "staging" / "events").iterdir()) == []


def test_full_disk_is_not_reported_as_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "root" / "a", 50)
    plan = plan_for(tmp_path / "root", tmp_path)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(StorageFailed, match="No space left on device"):
        work(plan)
    assert list((tmp_path / "staging" / "events").iterdir()) == []


# --- increments -------------------------------------------------------------------------------------------------------


def increments(plan: Plan) -> tuple[list[dict[str, Any]], Plan]:
    """Read all there is batch by batch; the offsets of every batch, and the last plan."""
    stream = PipelineStream(plan.settings)
    stream.note_target()
    offsets = []
    while (end := stream.following(plan.start)) != plan.start:
        plan = replace(plan, end=end)
        work(plan)
        offsets.append(end)
        plan = replace(plan, start=end)
    return offsets, plan


def test_batches_of_limited_size_contain_every_record_once(tmp_path: Path) -> None:
    journal = fill(tmp_path / "root" / "a", 500)
    plan = plan_for(tmp_path / "root", tmp_path, batch_bytes=20_000)
    offsets, plan = increments(plan)
    assert len(offsets) >= 4
    assert tuples(rows(plan).sort_by("sequence")) == expected(journal, "a")
    with Writer(journal) as writer:
        writer.append(b"late")
    more, plan = increments(plan)
    assert more == [{"a": {"": 501}}]
    assert rows(plan).num_rows == 501


def test_torn_tail_is_not_read_until_it_is_complete(tmp_path: Path) -> None:
    journal = fill(tmp_path / "root" / "a", 10)
    last = Reader(journal).segments()[-1].path
    whole = last.read_bytes()
    tear(journal)
    offsets, plan = increments(plan_for(tmp_path / "root", tmp_path))
    assert offsets == [{"a": {"": 9}}]
    assert rows(plan, "damage").num_rows == 0
    last.write_bytes(whole)
    offsets, plan = increments(plan)
    assert offsets == [{"a": {"": 10}}]
    assert rows(plan).num_rows == 10


def test_messages_after_an_oversized_record_are_read_as_by_a_full_run(tmp_path: Path) -> None:
    with Writer(tmp_path / "root" / "a") as writer:
        for number in range(100):
            writer.append(b"%d" % (100 + number), b"")
    path = tmp_path / "root" / "a" / "jnl" / "0000000000000000.jnl"
    data = bytearray(path.read_bytes())
    data[33 * 29 + 19 : 34 * 29] = b"\xff" * 10  # all but the first byte of a value_size, and what follows it
    path.write_bytes(data)
    offsets, plan = increments(plan_for(tmp_path / "root", tmp_path))
    assert offsets == [{"a": {"": 100}}]
    assert sorted(rows(plan)["sequence"].to_pylist()) == [*range(33), *range(34, 100)]
    assert [(row["position"], row["size"], row["kind"]) for row in rows(plan, "damage").to_pylist()] == [
        (33 * 29, 29, "malformed")
    ]


def test_journals_with_similar_names_are_all_read(tmp_path: Path) -> None:
    names = {b"\xff": 3, rb"\xff": 5, rb"a\b": 7}
    for name, count in names.items():
        fill(tmp_path / "root" / os.fsdecode(name), count)
    offsets, plan = increments(plan_for(tmp_path / "root", tmp_path))
    assert offsets == [{r"\\xff": {"": 5}, r"\xff": {"": 3}, r"a\b": {"": 7}}]
    assert Counter(rows(plan)["journal"].to_pylist()) == {r"\\xff": 5, r"\xff": 3, r"a\b": 7}


def test_unreadable_directory_is_damage_and_the_rest_is_read(tmp_path: Path) -> None:
    with open_to_all() as root:
        fill(root / "a", 10)
        fill(root / "private" / "b", 10)
        _, begun = increments(plan_for(root, tmp_path))
        assert begun.start == {"a": {"": 10}, "private/b": {"": 10}}
        plan = plan_for(root, tmp_path / "again")
        with without_access(root / "private"):
            parts, unreadable, _ = everything(plan.settings)
            stream = PipelineStream(plan.settings)
            assert stream.following(begun.start) == begun.start, "what was read of it rests"
            assert stream.unreadable == unreadable
            excluded = replace(plan.settings, journal_rules=(JournalRule("private/*", exclude=True),))
            assert everything(excluded)[1] == []
            with pytest.raises(StorageFailed, match="private"):
                everything(replace(plan.settings, mode="failfast"))
    assert {journal.name for journal, _ in parts} == {"a"}
    ((format, name, reason),) = unreadable
    assert (format, name) == ("", "private")
    assert reason.endswith("Permission denied; give this user access to it, then run this again")
    done = work(
        replace(plan, settings=replace(plan.settings, journals=str(tmp_path)), end={}, unreadable=tuple(unreadable))
    )
    assert done.journals["private"].damage == {"unreadable": 1}
    assert rows(plan, "damage").to_pylist()[0]["journal"] == "private"


def test_excluded_or_unreadable_journals_pause_and_resume_later(tmp_path: Path) -> None:
    root = tmp_path / "root"
    fill(root / "a", 10)
    fill(root / "web" / "1.000", 10)
    offsets, plan = increments(plan_for(root, tmp_path))
    assert offsets == [{"a": {"": 10}, "web": {"1.000": 10}}]
    fill(root / "web" / "2.000", 10)  # now the number of shards is ambiguous
    stream = PipelineStream(plan.settings)
    assert stream.following(plan.start) == plan.start
    assert [(format, name) for format, name, _ in stream.unreadable] == [("sej", "web")]
    without = replace(plan.settings, journal_rules=(JournalRule("web", exclude=True),))
    assert PipelineStream(without).following(plan.start) == plan.start
    failing = PipelineStream(replace(plan.settings, mode="failfast"))
    with pytest.raises(LogwrightError, match="web"):
        failing.following(plan.start)
    for path in (root / "web" / "2.000" / "jnl").iterdir():
        path.unlink()
    (root / "web" / "2.000" / "jnl").rmdir()
    with Writer(root / "web" / "1.000") as writer:
        writer.append(b"again")
    assert PipelineStream(plan.settings).following(plan.start) == {"a": {"": 10}, "web": {"1.000": 11}}


def test_missing_journal_is_an_error_unless_it_is_allowed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    fill(root / "a", 10)
    fill(root / "b", 10)
    _, plan = increments(plan_for(root, tmp_path))
    for path in sorted((root / "b").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (root / "b").rmdir()
    with pytest.raises(HistoryUnavailable, match=r"b is gone.*fail_on_data_loss = false"):
        PipelineStream(plan.settings).following(plan.start)
    stream = PipelineStream(replace(plan.settings, fail_on_data_loss=False))
    assert stream.following(plan.start) == {"a": {"": 10}}
    assert stream.lost == ["b is gone; records up to 9 were read, any after that were not"]


def test_a_file_is_on_the_disk_when_it_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(RealFile, "sync", lambda file: synced.append(file.path))
    file = parquet.ParquetFile(tmp_path, "events", 1, pa.schema([("position", pa.int64())]), "zstd")
    file.add(pa.RecordBatch.from_pydict({"position": [1, 2, 3]}))
    written = file.finish()
    assert (written.rows, written.bytes) == (3, (tmp_path / written.name).stat().st_size)
    assert synced == [tmp_path / written.name]


def test_names_of_new_parquet_files_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "journals" / "a", 10)
    target, synced = tmp_path / "out", []
    sync_directory = RealDisk.sync_directory

    def noted(disk: RealDisk, path: Path) -> None:
        synced.append((path, [file.name for file in target.iterdir() if file.is_file()]))
        sync_directory(disk, path)

    def without_spark(_: Any, plan: Plan) -> Ingested:
        for table in ("events", "damage"):
            (Path(plan.staging) / table).mkdir(parents=True)
        return work(plan)

    monkeypatch.setattr(RealDisk, "sync_directory", noted)
    monkeypatch.setattr(ingest, "ingest", without_spark)
    spark: Any = None
    ingest.to_parquet(spark, str(tmp_path / "journals"), target)
    assert synced == [(target, ["part-00000001-00000.parquet"])]
    assert pq.read_table(target).column("sequence").to_pylist() == list(range(10))
