"""What a run of the pipeline writes, done here without Spark: it plans, reads and writes in plain Python."""

from __future__ import annotations

import datetime
import errno
import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from logwright import arrow, kestrel
from logwright.arrow.discovery import find_journals
from logwright.cli import main
from logwright.cli.pipeline import speed
from logwright.core.bytes.outcome import Damage
from logwright.core.format import FORMATS, find_format
from logwright.core.io.disk import RealFile
from logwright.core.times import shown_time
from logwright.errors import DamagedJournal, HistoryUnavailable, LogwrightError, StorageFailed, UnknownFormat, WrongUse
from logwright.pipeline import parquet, task
from logwright.pipeline.plan import PipelineStream, Seen, chosen_journals, everything, works_of
from logwright.pipeline.publish.parquet import read_checkpoint, table_files
from logwright.pipeline.run import Result, run, to_parquet
from logwright.pipeline.settings import Expectation, JournalRule, Settings, TableRule, load
from logwright.pipeline.tables import DAMAGE, EVENTS, TABLES
from logwright.sej import Reader, ShardedWriter, Writer
from logwright.versioned import VersionedKVStore
from tests.pipeline.journals import damage, fill, tear, unreadable
from tests.pipeline.worlds import read_table, tables_of
from tests.support.access import open_to_all, without_access

ROWS = [column.name for column in EVENTS]


def settings_for(root: Path, tmp_path: Path, **options: Any) -> Settings:
    return Settings(str(root), str(tmp_path / "out"), **options)


def no_spark() -> Any:
    pytest.fail("Spark was started")


def work(settings: Settings) -> Result:
    return run(settings, no_spark)


def rows(settings: Settings, table: str = "events") -> pa.Table:
    return read_table(Path(settings.out), table)


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
        found.append((*where, message.offset, micros, ns, "message", message.key))
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
    plan = settings_for(tmp_path / "root", tmp_path, split_bytes=split_bytes)
    done = work(plan)
    found = rows(plan)
    assert found.schema.remove_metadata() == EVENTS
    values = sorted(message.value for name in ("a", "deep/b") for message in Reader(tmp_path / "root" / name))
    assert sorted(rows(plan, "messages")["value"].to_pylist()) == values
    wanted = [*expected(tmp_path / "root" / "a", "a"), *expected(tmp_path / "root" / "deep" / "b", "deep/b")]
    assert sorted(tuples(found), key=str) == sorted(wanted, key=str)
    assert {name: one.records for name, one in done.journals.items()} == {"a": 500, "deep/b": 300}
    assert sum(one.bytes for one in done.journals.values()) == sum(row[4] for row in wanted)
    assert done.tables["events"].rows == 800
    sizes = [(tmp_path / "out" / name).stat().st_size for name in table_files(tmp_path / "out", "events")]
    assert (done.tables["events"].files, done.tables["events"].bytes) == (len(sizes), sum(sizes))
    assert rows(plan, "damage").num_rows == 0


def test_journals_of_every_format_become_rows_equal_to_their_columns(tmp_path: Path) -> None:
    assert main(["demo", str(tmp_path / "demo")]) == 0
    plan = settings_for(tmp_path / "demo", tmp_path)
    done = work(plan)
    found = rows(plan)
    assert {journal.format for journal in find_journals(str(tmp_path / "demo"), None)} == set(FORMATS)
    for journal in find_journals(str(tmp_path / "demo"), None):
        own = find_format(journal.format).columns
        ours = found.filter(pc.equal(found["journal"], journal.name))
        assert ours.num_rows == done.journals[journal.name].records > 0, journal
        names = own.sources(["op", "position"], sharded=False)
        wanted: Counter[tuple[Any, ...]] = Counter()
        for batch in arrow.batches(Path(journal.location), names, mode="dropmalformed", format=journal.format):
            columns = [own.column(batch, name) for name in ("op", "position")]
            wanted.update(zip(*(column.to_pylist() for column in columns if column is not None), strict=True))
        assert Counter(zip(ours["op"].to_pylist(), ours["position"].to_pylist(), strict=True)) == wanted, journal
        table = next(name for name, one in TABLES.items() if one.is_record_table and one.format == journal.format)
        own_rows = rows(plan, table)
        assert pc.sum(pc.equal(own_rows["journal"], journal.name)).as_py() == ours.num_rows


def test_shards_and_their_files_are_distinguished(tmp_path: Path) -> None:
    with ShardedWriter(tmp_path / "root" / "web", bit=1) as writer:
        for number in range(100):
            writer.append(b"v", b"%d" % number)
    plan = settings_for(tmp_path / "root", tmp_path)
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
    plan = settings_for(tmp_path / "root", tmp_path, local_bytes=1 << 30)
    work(plan)
    (name,) = table_files(tmp_path / "out", "messages")
    file_ = pq.ParquetFile(tmp_path / "out" / name)
    sizes = [file_.metadata.row_group(number).num_rows for number in range(file_.num_row_groups)]
    assert sum(sizes) == 2000
    assert 2 <= len(sizes) <= 4
    assert rows(plan, "messages").num_rows == 2000


def test_few_small_journals_share_a_row_group(tmp_path: Path) -> None:
    for number in range(20):
        fill(tmp_path / "root" / str(number), 10, seed=number)
    plan = settings_for(tmp_path / "root", tmp_path)
    work(plan)
    (name,) = table_files(tmp_path / "out", "messages")
    file_ = pq.ParquetFile(tmp_path / "out" / name)
    assert file_.num_row_groups == 1
    assert file_.metadata.row_group(0).column(0).encodings[-1] == "RLE_DICTIONARY"
    assert set(rows(plan)["journal"].to_pylist()) == {str(number) for number in range(20)}


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_bytes", [1, 3000, 4 << 20])
def test_journals_that_share_batches_stay_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    monkeypatch.setattr(task, "_BATCH_BYTES", batch_bytes)
    monkeypatch.setattr("logwright.core.arrow.columns.LEAST_ROWS", 1)
    root = tmp_path / "root"
    names = [f"{kind}{number}" for number in range(4) for kind in ("a", "text", "b")]
    for number, name in enumerate(names):
        fill(root / name, 5 * number % 23 + 1, segment_size=700, seed=number)
    found = damage(root / "a2", 3)
    rules = (JournalRule("text*", decode="text"), JournalRule("b*", decode="json"))
    odd = Expectation("messages", '"offset" % 2 = 0', "quarantine", "odd")
    settings = settings_for(root, tmp_path, journal_rules=rules, expectations=(odd,))
    result = work(settings)
    events, kept, apart, minutes = (
        rows(settings, table).to_pylist() for table in ("events", "messages", "quarantine", "activity")
    )
    for name in names:
        plain = [item for item in Reader(root / name).messages(mode="dropmalformed") if not isinstance(item, Damage)]
        offsets = [message.offset for message in plain]
        assert [row["sequence"] for row in events if row["journal"] == name] == offsets
        own = [row for row in kept if row["journal"] == name]
        even = [message for message in plain if message.offset % 2 == 0]
        assert [(row["offset"], row["value"], row["key"]) for row in own] == [
            (message.offset, message.value, message.key) for message in even
        ]
        assert sum(row["journal"] == name for row in apart) == len(plain) - len(even)
        assert (result.journals[name].records, result.journals[name].damage) == (
            len(plain),
            {found.kind: 1} if name == "a2" else {},
        )
        assert sum(row["records"] for row in minutes if row["journal"] == name) == len(plain)
        sizes = [row["size"] for row in events if row["journal"] == name]
        assert (
            result.journals[name].bytes == sum(sizes) == sum(row["bytes"] for row in minutes if row["journal"] == name)
        )
        if name.startswith("a"):
            assert all(row["decoded"] is None and row["decode_error"] is None for row in own)
        else:
            assert all((row["decoded"] is None) == (row["decode_error"] is not None) for row in own)
    (figures,) = result.expectations
    assert figures.failed == len(apart) == sum(row["sequence"] % 2 for row in events)


def test_damage_torn_tails_and_unreadable_journals_are_rows(tmp_path: Path) -> None:
    wrong = damage(fill(tmp_path / "root" / "bad", 200), 100)
    tear(fill(tmp_path / "root" / "torn", 50))
    unreadable(tmp_path / "root" / "mixed")
    plan = settings_for(tmp_path / "root", tmp_path)
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
    plan = settings_for(tmp_path / "root", tmp_path)
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
    plan = settings_for(tmp_path / "root", tmp_path, journal_rules=rules)
    done = work(plan)
    assert sorted(done.journals) == ["dropped", "kept"]
    assert rows(plan, "damage")["journal"].to_pylist() == ["kept"]
    strict = replace(plan, journal_rules=(JournalRule("kept", mode="failfast"),))
    with pytest.raises(DamagedJournal, match=r"kept/jnl/0000000000000000\.jnl @ \d+"):
        work(strict)


def test_unreadable_journal_fails_a_failfast_run(tmp_path: Path) -> None:
    unreadable(tmp_path / "root" / "mixed")
    with pytest.raises(LogwrightError, match="mixed"):
        work(settings_for(tmp_path / "root", tmp_path, mode="failfast"))


def test_parts_that_are_replayed_begin_first(tmp_path: Path) -> None:
    fill(tmp_path / "root" / "messages", 400, segment_size=1 << 20)
    (tmp_path / "root" / "queues").mkdir()
    with kestrel.Writer(tmp_path / "root" / "queues" / "queue") as writer:
        for _ in range(500):
            writer.addx(bytes(60), added=1)
    plan = settings_for(tmp_path / "root", tmp_path)
    units = everything(plan, chosen_journals(plan), Seen())
    by_name = {unit.journal.name: unit.bytes for unit in units}
    assert by_name["messages"] > by_name["queues"]
    works = works_of(units, 30_000, (), ())
    assert [[unit.journal.name for unit in work.units] for work in works] == [["queues"], ["messages"]]


def test_without_journals_the_plan_is_empty(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with pytest.raises(UnknownFormat, match="no journal of any known format is at or below this path"):
        work(settings_for(tmp_path / "root", tmp_path))


def test_tables_below_the_root_are_not_searched(tmp_path: Path) -> None:
    fill(tmp_path / "root" / "a", 5)
    fill(tmp_path / "root" / "out" / "restored", 5)
    plan = settings_for(tmp_path / "root", tmp_path)
    assert sorted(work(plan).journals) == ["a", "out/restored"]
    inside = [journal.name for journal in chosen_journals(replace(plan, out=str(tmp_path / "root" / "out")))]
    assert inside == ["a"]


def test_unreadable_file_is_reported_by_a_full_run_and_fails_an_increment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = fill(tmp_path / "root" / "a", 200)
    segments = Reader(journal).segments()
    plan = settings_for(tmp_path / "root", tmp_path, split_bytes=1)
    read_into, was_planned = RealFile.read_into, False

    def failing(file: RealFile, position: int, buffer: memoryview) -> int:
        if file.path == segments[1].path and was_planned:
            raise StorageFailed("read", file.path, OSError(errno.EIO, "Input/output error"))
        return read_into(file, position, buffer)

    def perform(*arguments: Any) -> Any:
        nonlocal was_planned
        was_planned = True
        return task.perform(*arguments)

    monkeypatch.setattr("logwright.pipeline.job.perform", perform)
    monkeypatch.setattr(RealFile, "read_into", failing)
    monkeypatch.setattr(RealFile, "read_at", lambda file, position, size: _bytes(failing, file, position, size))
    done = work(plan)
    assert done.journals["a"].damage["unreadable"] >= 1
    assert {row["file"] for row in rows(plan, "damage").to_pylist()} == {segments[1].name}
    assert "Input/output error" in rows(plan, "damage")["reason"][0].as_py()
    was_planned = False
    with pytest.raises(StorageFailed, match="Input/output error"):
        work(replace(plan, incremental=True, out=str(tmp_path / "growing")))


def _bytes(read: Any, file: RealFile, position: int, size: int) -> bytes:
    buffer = bytearray(size)
    return bytes(buffer[: read(file, position, memoryview(buffer))])


@pytest.mark.parametrize("format", ["sej", "kestrel"])
def test_a_task_that_fails_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    if format == "sej":
        damage(fill(tmp_path / "root" / "a", 500), 400)
    else:
        damaged_queue(tmp_path / "root" / "queue")
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1)
    monkeypatch.setattr(task, "_BATCH_BYTES", 1 << 10)
    plan = settings_for(tmp_path / "root", tmp_path, mode="failfast")
    with pytest.raises(DamagedJournal):
        work(plan)
    assert left_in(tmp_path / "out") == ["_logwright", "_logwright/lock"]


def left_in(out: Path) -> list[str]:
    return sorted(path.relative_to(out).as_posix() for path in out.rglob("*"))


def damaged_queue(path: Path) -> None:
    """A queue of 2,000 items and about 110 KB whose middle is damaged."""
    path.parent.mkdir()
    with kestrel.Writer(path) as writer:
        for number in range(2000):
            writer.addx(b"%040d" % number, added=1_700_000_000_000 + number)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 20] = b"\xff" * 20
    path.write_bytes(data)


def test_records_that_are_read_ahead_make_the_same_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged_queue(tmp_path / "root" / "queue")
    for name, batch_bytes in (("at once", 4 << 20), ("ahead", 1 << 10)):
        monkeypatch.setattr(task, "_BATCH_BYTES", batch_bytes)
        work(Settings(str(tmp_path / "root"), str(tmp_path / name)))
    tables = tables_of(tmp_path / "ahead")
    assert tables == tables_of(tmp_path / "at once")
    assert (len(tables["damage"]), len(tables["queue_items"])) == (1, 1999)


@pytest.mark.parametrize("row_group_bytes", [1, 1 << 20])
def test_full_disk_is_not_reported_as_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row_group_bytes: int
) -> None:
    """Row groups are written in the background, the last one of each file at its end."""
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", row_group_bytes)
    fill(tmp_path / "root" / "a", 50)
    plan = settings_for(tmp_path / "root", tmp_path)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(StorageFailed, match="No space left on device"):
        work(plan)
    assert left_in(tmp_path / "out") == ["_logwright", "_logwright/lock"]


# --- increments -------------------------------------------------------------------------------------------------------


def offsets_of(settings: Settings) -> Any:
    checkpoint = read_checkpoint(Path(settings.out))
    return {} if checkpoint is None else checkpoint.state["offsets"]


def increments(settings: Settings) -> tuple[Any, Result]:
    """Read all there is batch by batch; the offset after it."""
    result = work(replace(settings, incremental=True))
    return offsets_of(settings), result


def test_batches_of_limited_size_contain_every_record_once(tmp_path: Path) -> None:
    journal = fill(tmp_path / "root" / "a", 500)
    plan = settings_for(tmp_path / "root", tmp_path, batch_bytes=20_000)
    _, result = increments(plan)
    assert result.batches >= 4
    assert tuples(rows(plan).sort_by("sequence")) == expected(journal, "a")
    with Writer(journal) as writer:
        writer.append(b"late")
    offsets, result = increments(plan)
    assert (offsets, result.batches, result.records) == ({"a": {"": 501}}, 1, 1)
    assert rows(plan).num_rows == 501


def test_torn_tail_is_not_read_until_it_is_complete(tmp_path: Path) -> None:
    journal = fill(tmp_path / "root" / "a", 10)
    last = Reader(journal).segments()[-1].path
    whole = last.read_bytes()
    tear(journal)
    plan = settings_for(tmp_path / "root", tmp_path)
    offsets, _ = increments(plan)
    assert offsets == {"a": {"": 9}}
    assert rows(plan, "damage").num_rows == 0
    last.write_bytes(whole)
    offsets, _ = increments(plan)
    assert offsets == {"a": {"": 10}}
    assert rows(plan).num_rows == 10


def test_messages_after_an_oversized_record_are_read_as_by_a_full_run(tmp_path: Path) -> None:
    with Writer(tmp_path / "root" / "a") as writer:
        for number in range(100):
            writer.append(b"%d" % (100 + number), b"")
    path = tmp_path / "root" / "a" / "jnl" / "0000000000000000.jnl"
    data = bytearray(path.read_bytes())
    data[33 * 29 + 19 : 34 * 29] = b"\xff" * 10  # all but the first byte of a value_size, and what follows it
    path.write_bytes(data)
    plan = settings_for(tmp_path / "root", tmp_path)
    offsets, _ = increments(plan)
    assert offsets == {"a": {"": 100}}
    assert sorted(rows(plan)["sequence"].to_pylist()) == [*range(33), *range(34, 100)]
    assert [(row["position"], row["size"], row["kind"]) for row in rows(plan, "damage").to_pylist()] == [
        (33 * 29, 29, "malformed")
    ]


def test_journals_with_similar_names_are_all_read(tmp_path: Path) -> None:
    names = {b"\xff": 3, rb"\xff": 5, rb"a\b": 7}
    for name, count in names.items():
        fill(tmp_path / "root" / os.fsdecode(name), count)
    plan = settings_for(tmp_path / "root", tmp_path)
    offsets, _ = increments(plan)
    assert offsets == {r"\\xff": {"": 5}, r"\xff": {"": 3}, r"a\b": {"": 7}}
    assert Counter(rows(plan)["journal"].to_pylist()) == {r"\\xff": 5, r"\xff": 3, r"a\b": 7}


def test_unreadable_directory_is_damage_and_the_rest_is_read(tmp_path: Path) -> None:
    with open_to_all() as root:
        fill(root / "a", 10)
        fill(root / "private" / "b", 10)
        begun, _ = increments(settings_for(root, tmp_path))
        assert begun == {"a": {"": 10}, "private/b": {"": 10}}
        settings = replace(settings_for(root, tmp_path), out=str(root / "tables"))
        (root / "tables").mkdir()
        (root / "tables").chmod(0o777)
        with without_access(root / "private"):
            done = work(settings)
            stream = PipelineStream(settings)
            assert stream.following(begun) == begun, "what was read of it rests"
            ((format, name, reason),) = stream.seen.unreadable
            excluded, seen = replace(settings, journal_rules=(JournalRule("private/*", exclude=True),)), Seen()
            chosen_journals(excluded, seen.unreadable)
            assert seen.unreadable == []
            with pytest.raises(StorageFailed, match="private"):
                chosen_journals(replace(settings, mode="failfast"))
        assert rows(settings, "damage").to_pylist()[0]["journal"] == "private"
    assert (format, name) == ("", "private")
    assert reason.endswith("Permission denied; give this user access to it, then run this again")
    assert {name: (one.records, one.damage) for name, one in done.journals.items()} == {
        "a": (10, {}),
        "private": (0, {"unreadable": 1}),
    }


def test_excluded_or_unreadable_journals_pause_and_resume_later(tmp_path: Path) -> None:
    root = tmp_path / "root"
    fill(root / "a", 10)
    fill(root / "web" / "1.000", 10)
    plan = settings_for(root, tmp_path)
    offsets, _ = increments(plan)
    assert offsets == {"a": {"": 10}, "web": {"1.000": 10}}
    fill(root / "web" / "2.000", 10)  # now the number of shards is ambiguous
    stream = PipelineStream(plan)
    assert stream.following(offsets) == offsets
    assert [(format, name) for format, name, _ in stream.seen.unreadable] == [("sej", "web")]
    without = replace(plan, journal_rules=(JournalRule("web", exclude=True),))
    assert PipelineStream(without).following(offsets) == offsets
    failing = PipelineStream(replace(plan, mode="failfast"))
    with pytest.raises(LogwrightError, match="web"):
        failing.following(offsets)
    for path in (root / "web" / "2.000" / "jnl").iterdir():
        path.unlink()
    (root / "web" / "2.000" / "jnl").rmdir()
    with Writer(root / "web" / "1.000") as writer:
        writer.append(b"again")
    assert PipelineStream(plan).following(offsets) == {"a": {"": 10}, "web": {"1.000": 11}}


def test_missing_journal_is_an_error_unless_it_is_allowed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    fill(root / "a", 10)
    fill(root / "b", 10)
    plan = settings_for(root, tmp_path)
    offsets, _ = increments(plan)
    for path in sorted((root / "b").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (root / "b").rmdir()
    with pytest.raises(HistoryUnavailable, match=r"b is gone.*fail_on_data_loss = false"):
        PipelineStream(plan).following(offsets)
    stream = PipelineStream(replace(plan, fail_on_data_loss=False))
    assert stream.following(offsets) == {"a": {"": 10}}
    assert stream.lost == ["b is gone; records up to 9 were read, any after that were not"]


# --- forms of tables --------------------------------------------------------------------------------------------------


def test_tables_can_have_partitions_and_decoding(tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    with Writer(root / "orders") as writer:
        for number in range(20):
            writer.append(b'{"n": %d}' % number, timestamp=number * 3_600_000_000_000)
        writer.append(b"{}", timestamp=-1)
    fill(root / "other", 5)
    settings = settings_for(
        root,
        tmp_path,
        incremental=True,
        tables=("events", "messages", "activity"),
        table_rules={"messages": TableRule(("journal", "date")), "events": TableRule(("hour",))},
        journal_rules=(JournalRule("orders", decode="json"),),
    )
    work(settings)
    with Writer(root / "orders") as writer:
        writer.append(b"no JSON", timestamp=0)
    result = work(settings)
    assert result.tables["messages"].rows == 27
    messages = rows(settings, "messages")
    assert messages.schema.names[-2:] == ["journal", "date"]
    found = messages.filter(pc.equal(messages["journal"], "orders")).sort_by("offset").to_pylist()
    assert [(row["offset"], row["decoded"], str(row["date"])) for row in found] == [
        *((number, f'{{"n": {number}}}', "1970-01-01") for number in range(20)),
        (20, "{}", "1969-12-31"),
        (21, None, "1970-01-01"),
    ]
    assert found[-1]["decode_error"].startswith("Expecting value")
    events = rows(settings)
    assert set(events.filter(pc.equal(events["journal"], "orders"))["hour"].to_pylist()) == set(range(24)) - {
        20,
        21,
        22,
    }
    assert all(name.startswith("events/hour=") for name in table_files(out, "events"))
    totals = rows(settings, "activity").group_by("journal").aggregate([("records", "sum")]).to_pylist()
    assert {row["journal"]: row["records_sum"] for row in totals} == {"orders": 22, "other": 5}
    with pytest.raises(WrongUse, match="were made with partition_by = "):
        work(replace(settings, table_rules={}))


def test_records_become_parquet_without_the_tables_made_of_them(tmp_path: Path) -> None:
    fill(tmp_path / "root" / "a", 20)
    result = to_parquet(no_spark, str(tmp_path / "root"), tmp_path / "out")
    assert (result.tables["messages"].rows, result.tables["events"].rows) == (20, 20)
    assert sorted(result.tables) == sorted(
        ("events", "damage", "messages", "queue_operations", "kv_changes", "segment_records", "page_operations")
    )


def test_tables_of_an_earlier_release_are_rebuilt_by_a_full_run_only(tmp_path: Path) -> None:
    fill(tmp_path / "root" / "a", 20)
    settings = settings_for(tmp_path / "root", tmp_path, incremental=True)
    work(settings)
    path = tmp_path / "out" / "_logwright" / "pipeline.json"
    checkpoint = json.loads(path.read_bytes())
    del checkpoint["state"]["layout"], checkpoint["files"]
    path.write_text(json.dumps(checkpoint))
    with pytest.raises(WrongUse, match="an earlier release has made these tables; rebuild them by a run that is not"):
        work(settings)
    assert work(replace(settings, incremental=False)).tables["events"].rows == 20
    assert rows(settings).num_rows == 20


def test_fields_of_decoded_values_become_typed_columns(tmp_path: Path) -> None:
    values = [
        b'{"price": 1.5, "count": 3, "paid": true, "item": "bolt", "at": "2026-01-15T10:00:00Z"}',
        b'{"price": 2, "count": 9223372036854775807, "at": "2026-01-15T10:00:00+01:00"}',
        b'{"price": "2", "count": 1.5, "paid": 1, "item": ["bolt"], "at": "noon"}',
        b'{"count": 9223372036854775808}',
        b"[1]",
        b"nonsense",
    ]
    with Writer(tmp_path / "root" / "orders") as writer:
        for value in values:
            writer.append(value)
    fill(tmp_path / "root" / "other", 2)
    kinds = {"price": "double", "count": "bigint", "paid": "boolean", "item": "string", "at": "timestamp"}
    path = tmp_path / "pipeline.toml"
    columns = ", ".join(f"{name} = '{kind}'" for name, kind in kinds.items())
    path.write_text(
        f"journals = 'root'\nout = 'out'\n[[journal]]\nmatch = 'ord*'\ndecode = 'json'\ncolumns = {{{columns}}}"
    )
    settings = load(path, incremental=True)
    work(settings)
    found = rows(settings, "messages").sort_by("offset")
    assert [str(found.schema.field(name).type) for name in kinds] == [
        "double",
        "int64",
        "bool",
        "string",
        "timestamp[us, tz=UTC]",
    ]
    assert (
        found.filter(pc.equal(found["journal"], "other")).select(list(kinds)).to_pylist() == [dict.fromkeys(kinds)] * 2
    )
    orders = found.filter(pc.equal(found["journal"], "orders"))
    ten = datetime.datetime(2026, 1, 15, 10, tzinfo=datetime.UTC)
    assert [tuple(row.values()) for row in orders.select(list(kinds)).to_pylist()] == [
        (1.5, 3, True, "bolt", ten),
        (2.0, 2**63 - 1, None, None, ten - datetime.timedelta(hours=1)),
        *[(None,) * 5] * 4,
    ]
    errors = orders["decode_error"].to_pylist()
    assert errors[:2] == [None, None]
    assert errors[2] == (
        'price is no double: "2"; count is no bigint: 1.5; paid is no boolean: 1; item is no string: ["bolt"]; '
        'at is no timestamp: "noon"'
    )
    assert errors[3:5] == ["count is no bigint: 9223372036854775808", "the value is not an object, so it has no fields"]
    assert errors[5] is not None
    for column, reason in (
        (("value", "string"), "columns.value: the table messages has a column value already"),
        (("price", "bigint"), "columns.price: another rule says double, not bigint"),
    ):
        wrong = JournalRule("other", decode="json", columns=(column,))
        with pytest.raises(WrongUse, match=reason):
            work(replace(settings, journal_rules=(*settings.journal_rules, wrong)))
    with pytest.raises(WrongUse, match="there is no 'money'; there are string, bigint"):
        JournalRule("a", decode="json", columns=(("price", "money"),))


def test_progress_has_the_bytes_and_records_that_were_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with Writer(tmp_path / "root" / name) as writer:
            for _ in range(10):
                writer.append(bytes(100))
    seen: list[tuple[int, int, int | None]] = []

    def progress(what: str, done: int, total: int, records: int | None = None, /) -> None:
        if what == "reading 2 journals":
            seen.append((done, total, records))

    result = run(Settings(str(tmp_path / "root"), str(tmp_path / "out")), progress=progress)
    size = sum(found.bytes for found in result.found.values())
    assert seen == [(0, 0, None), (size // 2, size, 10), (size, size, 20)]
    assert result.seconds > 0


@pytest.mark.parametrize(
    ("done", "records", "seconds", "wanted"),
    [
        (0, None, 5.0, ""),
        (10, 5, 0.0, ""),
        (5 << 20, None, 2.0, "2.50 MiB/s"),
        (5 << 20, 123_456, 2.0, "61,728 records/s"),
    ],
)
def test_speed_is_in_records_where_they_are_known(done: int, records: int | None, seconds: float, wanted: str) -> None:
    assert speed(done, records, seconds) == wanted
