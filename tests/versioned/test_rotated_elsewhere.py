"""Stores that another program has rotated are sound, and answer every question."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.errors import DamagedJournal, HistoryUnavailable
from logwright.versioned import Entry, Reader, Scanner, VersionedKVStore, VersionedRecovery
from logwright.versioned.files.cursor import Chunk
from logwright.versioned.files.files import archive_name
from logwright.versioned.files.repair import plan
from logwright.versioned.model import states
from logwright.versioned.tables.splits import SPLITS
from tests.versioned.rotated_elsewhere import Elsewhere, random_store
from tests.versioned.samples import START


def test_time_is_answered_from_an_archive_with_entries_later_than_its_name(tmp_path: Path) -> None:
    store = Elsewhere(random.Random(0))
    first = store.change("a", 1)
    second = store.change("b", 2)
    store.change("b", None)
    assert store.rotate() == first
    store.change("c", 3)
    store.write(tmp_path)
    recovery = VersionedRecovery.load(tmp_path)
    assert dict(recovery.recover_at(second)) == {"a": 1, "b": 2}
    assert dict(recovery.recover_at(second + 1500)) == {"a": 1}
    assert [entry.o for entry in recovery.history("b")] == [2, None]


def test_archive_of_an_empty_state_keeps_its_order(tmp_path: Path) -> None:
    store = Elsewhere(random.Random(0))
    store.change("a", 1)
    store.rotate()
    removed = store.change("a", None)
    assert store.rotate() == 0
    store.change("b", 2)
    path = store.write(tmp_path)
    assert [file.name for file in Reader(path).files()][1] == archive_name("cars", 0)
    assert dict(VersionedRecovery.load(tmp_path).recover_at(removed)) == {}
    assert [entry.k for entry in Reader(path)] == ["a", "a", "b"]
    assert Reader(path).verify().problems == []


@pytest.mark.parametrize("seed", range(200))
def test_every_query_matches_the_model(tmp_path: Path, seed: int) -> None:
    store = random_store(random.Random(seed))
    path = store.write(tmp_path)
    reader, recovery = Reader(path), VersionedRecovery.load(tmp_path)
    report = reader.verify()
    assert (report.problems, report.anomalies) == ([], [])
    assert plan(path).left == ()
    assert list(reader) == store.changes
    planned = SPLITS.plan(reader)
    chunks = [chunk for split in planned for chunk in SPLITS.chunks(reader, split) if isinstance(chunk, Chunk)]
    read = [entry for chunk in chunks for entry in reader.decoded(chunk)]
    assert read == store.changes
    assert list(Scanner(path, timeout=0)) == store.changes
    for at in range(START, store.now + 1000, 500):
        assert recovery.recover_at(at).with_timestamps() == store.state(at), at
        (part,) = states.plan(REAL_DISK, path, at)
        latest = states.read(REAL_DISK, part, at, "failfast").latest
        assert latest is not None
        assert latest.state() == store.state(at), at
    with pytest.raises(HistoryUnavailable):
        recovery.recover_at(START - 1)
    for key in "abcde":
        assert recovery.history(key) == [entry for entry in store.changes if entry.k == key]
    middle = store.now - store.tick_ns * 12
    assert list(recovery.changes(middle, store.now)) == [entry for entry in store.changes if entry.t > middle]


@pytest.mark.parametrize("seed", range(40))
def test_queries_match_the_model_after_logwright_continues_the_store(tmp_path: Path, seed: int) -> None:
    store = random_store(random.Random(seed))
    path = store.write(tmp_path)
    made = list(store.changes)
    with VersionedKVStore(tmp_path, "cars", 1 << 14, background=False, clock=lambda: store.now + 5000) as opened:
        for number in range(4):
            made.append(Entry(opened.insert("z", number), "z", number))
            opened.rotate()
    assert Reader(path).verify().problems == []
    assert list(Reader(path)) == made
    assert VersionedRecovery.load(tmp_path).history("z") == made[-4:]


@pytest.mark.parametrize("seed", range(40))
def test_removed_archive_is_a_gap_if_the_states_differ(tmp_path: Path, seed: int) -> None:
    store = random_store(random.Random(seed), 60)
    path = store.write(tmp_path)
    files = Reader(path).files()
    number = random.Random(seed).randrange(1, len(files) - 1)
    gone, after = files[number], files[number + 1]
    gone.path.unlink()
    if store.state(gone.before) == store.state(after.before):
        assert Reader(path).verify().problems == []
        return
    (problem,) = Reader(path).verify().problems
    assert (problem.file, problem.kind) == (after.name, "gap")
    recovery = VersionedRecovery.load(tmp_path)
    with pytest.raises(DamagedJournal, match="one is missing"):
        recovery.history("a")
    last = max(entry.t for entry in store.changes if entry.t < gone.before)
    for at in range(START, store.now + 1000, 500):
        if last < at < after.before:
            with pytest.raises(HistoryUnavailable):
                recovery.recover_at(at)
        else:
            assert recovery.recover_at(at).with_timestamps() == store.state(at), at


def test_decreasing_names_do_not_change_the_order(tmp_path: Path) -> None:
    store = Elsewhere(random.Random(0))
    store.change("a", 1)
    store.change("b", 2)
    names = [store.rotate()]
    store.change("b", None)
    names.append(store.rotate())
    store.change("c", 3)
    names.append(store.rotate())
    assert names[1] < names[0] < names[2]
    path = store.write(tmp_path)
    files = Reader(path).files()
    assert [file.name for file in files[:-1]] == [archive_name("cars", name) for name in names]
    assert all(one.timestamp == other.before for one, other in pairwise(files))
