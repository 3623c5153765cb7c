"""Increments open only the parts of journals that have changed, and notice every change."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from logwright import kestrel, sej, versioned, yeltsin
from logwright.arrow.discovery import Journal, list_journals, open_journal
from logwright.errors import NotFound
from logwright.pipeline import Settings, job, plan, stamps
from logwright.pipeline.run import Result, _Idle, run
from tests.cli.support import run as run_command
from tests.pipeline.worlds import read_table


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stamp files at once, however recently they were written."""
    monkeypatch.setattr(stamps, "_RECENT_NS", 0)


def increment(root: Path, out: Path) -> Result:
    return run(Settings(str(root), str(out), incremental=True), lambda: pytest.fail("Spark was started"))


def column(out: Path, table: str, name: str) -> list[Any]:
    found = read_table(out, table)[name].to_pylist()
    return sorted(found, key=repr)


def test_changes_of_an_open_store_are_read(tmp_path: Path) -> None:
    """Its writer stores them through a mapping of the file, which has the same size and may have the same time."""
    root, out = tmp_path / "root", tmp_path / "out"
    with versioned.VersionedKVStore(root / "stores", "cars") as store:
        for number in range(4):
            found = os.stat(store.path)
            store.insert("key", number)
            os.utime(store.path, ns=(found.st_atime_ns, found.st_mtime_ns))
            assert increment(root, out).records == 1
        assert increment(root, out).records == 0
    assert column(out, "kv_state", "o") == ["3"]


def test_run_that_finds_nothing_new_saves_stamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals that were written a moment before they were read have no stamps yet."""
    root, out = tmp_path / "root", tmp_path / "out"
    with kestrel.Writer(root / "queues" / "cars") as writer:
        writer.addx(b"one")
    opened: list[str] = []

    def noted(journal: Journal) -> Any:
        opened.append(journal.name)
        return open_journal(journal)

    monkeypatch.setattr(plan, "open_journal", noted)
    monkeypatch.setattr(stamps, "_RECENT_NS", 1 << 62)
    assert (increment(root, out).batches, opened) == (1, ["queues"])
    monkeypatch.setattr(stamps, "_RECENT_NS", 0)
    for format in ("parquet", "delta"):
        settings = Settings(str(root), f"{out} {format}", incremental=True, format=format)
        with monkeypatch.context() as patch:
            patch.setattr(stamps, "_RECENT_NS", 1 << 62)
            run(settings)
        opened.clear()
        found = [(run(settings).batches, len(opened)) for _ in range(3)]
        assert found == [(0, 1), (0, 1), (0, 1)], "the first run opens it, and notes that it rests"
        with kestrel.Writer(root / "queues" / "cars") as writer:
            writer.addx(b"two")
        assert (run(settings).records, len(opened)) == (1, 2)


def test_transactions_of_an_open_database_are_read(tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    (root / "pages").mkdir(parents=True)
    with yeltsin.Database(root / "pages" / "t.ydb", root / "pages" / "t.jrnl", sync="none") as database:
        page = database.pages()[0]
        for number in range(3):
            with database.transaction() as running:
                running.modify(page, 0, bytes([number]))
            assert increment(root, out).records == 1
    assert len(column(out, "transactions", "transaction")) == 3


def test_tables_beside_journals_of_pages_are_not_read_as_journals(tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    (root / "pages").mkdir(parents=True)
    for _ in range(2):
        for name in ("one", "two"):
            table, journal = root / "pages" / f"{name}.db", root / "pages" / f"{name}.jrnl"
            with yeltsin.Database(table, journal) as database, database.transaction() as running:
                running.modify(database.pages()[0], 0, b"x")
        increment(root, out)
    assert column(out, "files", "file") == ["one.jrnl", "two.jrnl"]
    assert column(out, "damage", "kind") == []


def test_offset_of_a_consumer_of_an_idle_journal_is_one_row(tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    with sej.Writer(root / "orders") as writer:
        for number in range(5):
            writer.append(b"%d" % number)
    for number in range(1, 5):
        with sej.Offset(root / "orders", "billing") as offset:
            offset.commit(number)
        increment(root, out)
        assert column(out, "consumers", "offset") == [number]
        assert len(column(out, "files", "file")) == 1


def test_losses_of_a_repaired_shard_are_rows(tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    with sej.ShardedWriter(root / "orders", bit=1) as writer:
        for number in range(40):
            writer.append(b"%d" % number, key=b"%d" % number)
    increment(root, out)
    segment = next((root / "orders").glob("*/jnl/*.jnl"))
    data = segment.read_bytes()
    segment.write_bytes(data[:60] + bytes(40) + data[100:])
    assert run_command("repair", segment.parent.parent, "--yes").code == 1
    increment(root, out)
    assert "lost" in column(out, "damage", "kind")


def test_messages_of_a_linked_shard_are_read(tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    with sej.ShardedWriter(root / "orders", bit=1) as writer:
        for number in range(20):
            writer.append(b"%d" % number, key=b"%d" % number)
    shard = next(path.parent.parent for path in (root / "orders").glob("*/jnl/*.jnl"))
    shard.rename(tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    before = increment(root, out).records
    with sej.Writer(tmp_path / "elsewhere") as shard_writer:
        shard_writer.append(b"more")
    assert increment(root, out).records == 1
    assert len(column(out, "messages", "value")) == before + 1


def test_queue_whose_files_are_all_missing_does_not_stop_increments(tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    for name in ("a", "b"):
        with kestrel.Writer(root / "queues" / name) as writer:
            writer.addx(b"item")
            writer.rotate()
    for path in (root / "queues").glob("b*"):
        path.unlink()
    increment(root, out)
    with kestrel.Writer(root / "queues" / "a") as writer:
        writer.addx(b"more")
    assert increment(root, out).records == 1


def test_batch_whose_files_disappear_is_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, out = tmp_path / "root", tmp_path / "out"
    with sej.Writer(root / "orders") as writer:
        writer.append(b"one")
    do, failures = job.do, iter([NotFound("a file is gone"), NotFound("another one is")])

    def failing(*arguments: Any) -> Any:
        for failure in failures:
            raise failure
        return do(*arguments)

    monkeypatch.setattr(job, "do", failing)
    assert increment(root, out).records == 1
    monkeypatch.setattr(job, "do", lambda *_: (_ for _ in ()).throw(NotFound("it stays away")))
    with sej.Writer(root / "orders") as writer:
        writer.append(b"two")
    with pytest.raises(NotFound, match="it stays away"):
        increment(root, out)


class Waits:
    """The event that ends a run with `follow`: it acts whenever the run waits, and never lets time pass."""

    def __init__(self, acts: Sequence[Callable[[], object]]) -> None:
        self._acts = list(acts)

    def is_set(self) -> bool:
        return not self._acts

    def wait(self, seconds: float) -> None:
        self._acts.pop(0)()


def test_run_that_follows_does_not_look_at_journals_while_no_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    for number in range(30):
        with sej.Writer(root / str(number)) as writer:
            writer.append(b"value")
    with versioned.VersionedKVStore(root / "stores", "store", 4096, background=False) as store:
        store.insert("key", 1)
    detected = mock.Mock(side_effect=list_journals)
    opened = mock.Mock(side_effect=open_journal)
    monkeypatch.setattr(plan, "list_journals", detected)
    monkeypatch.setattr(plan, "open_journal", opened)
    noted: list[tuple[int, int]] = []

    def note() -> None:
        noted.append((detected.call_count, opened.call_count))

    def grow() -> None:
        note()
        with sej.Writer(root / "7") as writer:
            writer.append(b"another")

    def insert() -> None:
        note()
        with versioned.VersionedKVStore(root / "stores", "store", 4096, background=False) as store:
            store.insert("key", 2)

    def create() -> None:
        note()
        with sej.Writer(root / "new") as writer:
            writer.append(b"first")

    stop: Any = Waits([*[note] * 9, grow, *[note] * 9, insert, *[note] * 9, create, *[note] * 9])
    result = run(Settings(str(root), str(tmp_path / "out"), follow=True, interval_seconds=60), stop=stop)
    assert (result.batches, result.records) == (4, 30 + 1 + 3)
    for first in (0, 10, 20, 30):
        assert len(set(noted[first + 4 : first + 9])) == 1, noted
    assert noted[-1][0] <= 4 * 4


def test_run_that_follows_looks_again_when_live_rows_change_by_time(tmp_path: Path) -> None:
    with sej.Writer(tmp_path / "root" / "a") as writer:
        writer.append(b"value")
    idle = _Idle(Settings(str(tmp_path / "root"), str(tmp_path / "out"), follow=True))
    journals = list_journals(str(tmp_path / "root"), None)

    def may_rest(*due_ns: int | None) -> bool:
        idle.touched([plan.PartState(due_ns=each) for each in due_ns])
        return idle.may_rest

    for _ in range(2):  # to see their files, and to find that they are unchanged
        assert not may_rest()
        idle.begin(journals)
        idle.end(journals, is_new=False)
    now_ns = time.time_ns()
    assert may_rest()
    assert may_rest(None, now_ns + 10**15)
    assert may_rest(idle._looked_ns)  # the last look was in time for it
    assert not may_rest(idle._looked_ns + 1)


def test_run_that_follows_looks_only_at_journals_whose_files_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that changes bytes in place is looked at whenever the run looks. Links are followed."""
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    for number in range(40):
        with sej.Writer(root / str(number)) as writer:
            writer.append(b"value")
    for name in ("one", "two"):
        with versioned.VersionedKVStore(elsewhere / "stores", name, 4096, background=False) as store:
            store.insert("key", 1)
    (elsewhere / "pages").mkdir()
    table, journal = elsewhere / "pages" / "t.ydb", elsewhere / "pages" / "t.jrnl"
    with yeltsin.Database(table, journal) as database, database.transaction() as running:
        running.modify(database.pages()[0], 0, b"x")
    for name in ("stores", "pages"):
        (root / name).symlink_to(elsewhere / name)
    detected = mock.Mock(side_effect=list_journals)
    opened = mock.Mock(side_effect=open_journal)
    stamped = mock.Mock(side_effect=stamps.stamps_of)
    monkeypatch.setattr(plan, "list_journals", detected)
    monkeypatch.setattr(plan, "open_journal", opened)
    monkeypatch.setattr(plan, "stamps_of", stamped)
    looks: list[tuple[int, set[str], set[str]]] = []
    """How often journals were searched for, and which were opened, and looked at, since the wait before."""

    def note() -> None:
        names_opened, names_stamped = (
            {call.args[0].name for call in mocked.call_args_list} for mocked in (opened, stamped)
        )
        looks.append((detected.call_count, names_opened, names_stamped))
        for mocked in (detected, opened, stamped):
            mocked.reset_mock()

    def grow() -> None:
        note()
        with sej.Writer(root / "7") as writer:
            writer.append(b"another")

    def insert() -> None:
        note()
        with versioned.VersionedKVStore(root / "stores", "two", 4096, background=False) as store:
            store.insert("key", 2)

    def rotate() -> None:
        note()
        with sej.Writer(root / "7", segment_size=1) as writer:
            writer.append(b"in a file of its own")
        assert len(list((root / "7" / "jnl").iterdir())) == 2

    stop: Any = Waits([*[note] * 4, grow, *[note] * 4, insert, *[note] * 4, rotate, *[note] * 4, grow, *[note] * 4])
    result = run(Settings(str(root), str(tmp_path / "out"), follow=True, interval_seconds=60), stop=stop)
    assert (result.batches, result.records) == (5, 40 + 2 + 1 + 1 + 1 + 1 + 1)
    assert looks[3] == looks[7] == looks[13] == (0, {"pages"}, {"pages"})
    assert looks[5] == looks[15] == looks[20] == (0, {"pages", "7"}, {"pages", "7"})
    assert looks[10] == (0, {"pages", "stores"}, {"pages", "stores"})


def test_change_of_a_journal_that_links_lead_to_is_a_change_of_that_journal(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with sej.Writer(root / "m") as writer:
        writer.append(b"one")
    for name in "abcdefghijklnopqrstuvwxyz":
        (root / name).symlink_to("m")
    journals = list_journals(str(root), None)
    assert [journal.name for journal in journals] == ["m"]
    tree = stamps.Tree(str(root), journals, "")
    with sej.Writer(root / "m") as writer:
        writer.append(b"two")
    assert stamps.touched_by(tree.changed() or (), journals) == set(journals)


def test_change_of_a_shared_shard_is_a_change_of_all_journals_that_have_it(tmp_path: Path) -> None:
    """A shard may be a journal by itself, and be linked into several; a link may lead to a directory above it."""
    root = tmp_path / "root"
    for name in ("one", "two", "three", "other"):
        with sej.ShardedWriter(root / name, bit=1) as writer:
            for number in range(20):
                writer.append(b"%d" % number, key=b"%d" % number)
    shard = next(path.parent.parent for path in (root / "one").glob("*/jnl/*.jnl"))
    shutil.rmtree(root / "two" / shard.name)
    shutil.rmtree(root / "three" / shard.name)
    shared = shard.rename(root / "shared")
    (root / "again").symlink_to(root)
    for name, target in (("one", shared), ("two", shared), ("three", root / "again" / "one" / shard.name)):
        (root / name / shard.name).symlink_to(target)
    journals = list_journals(str(root), None)
    assert {journal.name for journal in journals} == {"one", "two", "three", "other", "shared"}
    tree = stamps.Tree(str(root), journals, "")
    assert tree.changed() == []
    with sej.Writer(shared) as shard_writer:
        shard_writer.append(b"more")
    touched = stamps.touched_by(tree.changed() or (), journals) or ()
    assert {journal.name for journal in touched} == {"one", "two", "three", "shared"}
    with sej.ShardedWriter(root / "other", bit=1) as writer:
        writer.append(b"more", key=b"key")
    touched = stamps.touched_by(tree.changed() or (), journals) or ()
    assert {journal.name for journal in touched} == {"other"}


def test_run_that_follows_sees_changes_of_a_new_store_after_a_batch_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is changed through a mapping of its file, which need not change its size or its times."""
    root, out = tmp_path / "root", tmp_path / "out"
    with sej.Writer(root / "orders") as writer:
        writer.append(b"one")
    do, failures = job.do, [NotFound("a file is gone")]

    def failing(*arguments: Any) -> Any:
        if failures and (root / "stores").exists():
            raise failures.pop()
        return do(*arguments)

    monkeypatch.setattr(job, "do", failing)
    stores: list[versioned.VersionedKVStore] = []

    def create() -> None:
        stores.append(versioned.VersionedKVStore(root / "stores", "cars", 4096, background=False))
        stores[0].insert("key", 1)

    def insert() -> None:
        stores[0].insert("key", 2)

    def nothing() -> None:
        pass

    stop: Any = Waits([nothing, nothing, create, *[nothing] * 4, insert, *[nothing] * 3])
    try:
        result = run(Settings(str(root), str(out), follow=True, interval_seconds=60), stop=stop)
    finally:
        stores[0].close()
    assert (failures, result.records) == ([], 1 + 1 + 1)
    assert column(out, "kv_state", "o") == ["2"]
