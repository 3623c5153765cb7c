"""The parts of staging that only stores have; `tests/contract` covers the common parts.

A bulk load is compared with the simplest definition: all rows of a store, sorted by their times, as one journal made by
hand.
"""

from __future__ import annotations

import json
import random
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.core.publish.manifest import Staged
from logwright.core.publish.staging import publish, recover_staging
from logwright.errors import DamagedJournal, Locked, WrongUse
from logwright.versioned import Entry, VersionedKVStore, VersionedRecovery
from logwright.versioned.bytes import codec
from logwright.versioned.bytes.records import Metadata
from logwright.versioned.model.merge import Run, merge
from logwright.versioned.tables.staging import MAX_NAME_BYTES, Stage, StoresTarget
from tests.contract.staging import QUERY, ROOT, STAGING
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file, read_tree, write_file
from tests.versioned.samples import START, journal
from tests.versioned.staging_subject import VersionedStaging

STORES = VersionedStaging()
Change = tuple[str, str, str | None, int]
"""store, key, JSON, time"""


def changes_of(dice: random.Random, count: int, times: int) -> list[Change]:
    """Changes of a few stores, with this number of different times."""
    return [
        (
            f"store {dice.randrange(3)}",
            f"key {dice.randrange(5)}",
            None if dice.random() < 0.1 else json.dumps([number, "x" * dice.choice((0, 3, 40, 5000))]),
            START + dice.randrange(times),
        )
        for number in range(count)
    ]


def expected_files(changes: list[Change]) -> dict[str, bytes]:
    """The journal of each store, made by hand."""
    found: dict[str, list[Entry]] = {}
    for store, key, value, t in changes:
        found.setdefault(f"{store}.jrn", []).append(Entry(t, key, None if value is None else json.loads(value)))
    for entries in found.values():
        entries.sort(key=lambda entry: entry.t)
    return {name: journal(entries[0].t, entries) for name, entries in found.items()}


def files_of(disk: SimulatedDisk) -> dict[str, Any]:
    return {name: data for name, data in read_tree(disk, ROOT).items() if name.endswith(".jrn")}


def publish_rows(disk: SimulatedDisk, target: StoresTarget, *batches: dict[str, Any]) -> None:
    task = Stage(ROOT, "run", 0, target, disk=disk)
    for batch in batches:
        task.append_batch(pa.record_batch(batch))
    publish(ROOT, "run", [task.finish()], target, disk=disk)


def test_merged_changes_are_durable_when_their_task_finishes() -> None:
    disk = STORES.empty()
    task = Stage(ROOT, "run", 0, StoresTarget("cars"), gathered_bytes=1, disk=disk)
    for t in (START + 1, START):
        task.append_batch(pa.record_batch({"k": ["a"], "o": ["1"], "t": [t]}))
    task.finish()
    assert [change for change in disk.unsynced() if change.startswith("contents")] == []


# --- what is published ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_rows_in_any_order_over_any_tasks_become_the_journal_of_the_sorted_rows(seed: int) -> None:
    """Memory is so small that a task writes many runs, and pieces are so small that entries do not fit them."""
    dice = random.Random(seed)
    changes = changes_of(dice, dice.randrange(1, 120), dice.choice((2, 30, 10**6)))
    if dice.random() < 0.3:
        changes.sort(key=lambda change: change[3])
    disk = STORES.empty()
    tasks = sorted(dice.sample(range(20), dice.choice((1, 2, 5))))
    cuts = sorted([0, len(changes), *(dice.randrange(len(changes) + 1) for _ in tasks[1:])])
    staged: list[Staged] = []
    for order, start, stop in zip(tasks, cuts, cuts[1:], strict=False):
        task = Stage(ROOT, "run", order, StoresTarget(), gathered_bytes=dice.choice((1, 2000, 1 << 20)), disk=disk)
        while start < stop:
            rows = changes[start : min(stop, start + dice.choice((1, 3, 50)))]
            task.append_batch(STORES.as_batch(list(rows)))
            start += len(rows)
        staged.append(task.finish())
    dice.shuffle(staged)
    done = publish(ROOT, "run", staged, StoresTarget(), disk=disk)
    assert files_of(disk) == expected_files(changes)
    assert (done.records, set(done.starts)) == (len(changes), {change[0] for change in changes})
    assert disk.list_directory(STAGING) == ["sink.lck"]
    assert disk.open_files == 0


@pytest.mark.parametrize("seed", range(10))
def test_merging_is_a_stable_sort_for_any_piece_size(seed: int) -> None:
    dice = random.Random(seed)
    disk = STORES.empty()
    runs, everything = [], []
    for number in range(dice.randrange(1, 9)):
        entries = sorted((START + dice.randrange(9), number, row) for row in range(dice.randrange(40)))
        data = b"".join(codec.pack_entry(t, str(number), [row, "x" * dice.choice((1, 9000))]) for t, _, row in entries)
        write_file(disk, ROOT / str(number), b"before" + data + b"behind")
        runs.append(Run(ROOT / str(number), 6, 6 + len(data)))
        everything += entries
    found = bytearray()
    merge(disk, runs, found.extend, memory_bytes=1)
    rows = [entry.o[0] for entry in codec.entries(found, 0, len(found), len(everything))]
    assert rows == [row for _, _, row in sorted(everything)]


def test_loaded_store_is_an_ordinary_store(tmp_path: Path) -> None:
    dice = random.Random(1)
    changes = changes_of(dice, 500, 10**9)
    for order in (0, 1):
        task = Stage(tmp_path, f"run-{order}", 0, StoresTarget())
        chosen = [change for change in changes if (change[0] == "store 0") == (order == 0)]
        task.append_batch(STORES.as_batch(list(chosen)))
        publish(tmp_path, f"run-{order}", [task.finish()], StoresTarget())
    for store in sorted({change[0] for change in changes}):
        ordered = sorted((change for change in changes if change[0] == store), key=lambda change: change[3])
        middle = ordered[len(ordered) // 2][3]
        states: list[dict[str, Any]] = [{}, {}]
        for _, key, value, t in ordered:
            for state in states if t <= middle else states[1:]:
                state.pop(key, None)
                if value is not None:
                    state[key] = json.loads(value)
        with VersionedKVStore(tmp_path, store) as opened:
            assert dict(opened.items()) == states[1]
            assert opened.recovered is None
            assert opened.earliest() == ordered[0][3]
            opened.insert("new", 1)
            opened.rotate()
        recovery = VersionedRecovery.load(tmp_path, store=store)
        assert dict(recovery.recover_at(middle)) == states[0]
        assert dict(recovery.recover_current()) == {**states[1], "new": 1}
        history = [(entry.t, entry.o) for entry in recovery.history("key 0")]
        wanted = [(t, None if value is None else json.loads(value)) for _, key, value, t in ordered if key == "key 0"]
        assert history == wanted


def test_changes_without_a_time_get_distinct_write_times() -> None:
    disk = STORES.empty()
    before = time.time_ns()
    moment = pa.timestamp("us", tz="UTC")
    publish_rows(
        disk,
        StoresTarget("cars"),
        {"k": ["a"] * 100, "o": [str(number) for number in range(100)]},
        {"k": ["b"], "o": ["1"], "timestamp": pa.array([1_700_000_000_000_001], moment)},
        {"k": ["c", "d"], "o": ["1", "1"], "timestamp": pa.array([5, 5], moment), "t": pa.array([None, 7], pa.int64())},
        {"k": ["e"], "o": ["1"], "t": pa.array([0], pa.int64())},
        {"k": ["f"], "o": ["1"], "t": pa.array([None], pa.int64())},
    )
    changes = STORES.contents(disk)["cars"]
    assert [change[::2] for change in changes[:4]] == [
        ("e", 0),
        ("d", 7),
        ("c", 5000),
        ("b", 1_700_000_000_000_001_000),
    ]
    assert [change[:2] for change in changes[4:]] == [*(("a", number) for number in range(100)), ("f", 1)]
    times = [change[2] for change in changes[4:]]
    assert times == sorted(set(times))
    assert before <= times[0]
    assert times[-1] <= time.time_ns() + 101


def test_null_in_any_form_is_a_deletion_and_keys_may_be_anything() -> None:
    disk = STORES.empty()
    keys = ["", "a/b", "\0", "ü", "k" * 3000]
    publish_rows(
        disk,
        StoresTarget("cars"),
        {"k": keys, "o": ["1", None, "null", "2", " [ ] "], "deleted": [True, False, None, False, None]},
    )
    assert [change[:2] for change in STORES.contents(disk)["cars"]] == list(
        zip(keys, [None, None, None, 2, []], strict=True)
    )


def test_rows_go_to_their_store_or_the_default() -> None:
    disk = STORES.empty()
    publish_rows(
        disk, StoresTarget("rest"), {"store": ["cars", None, "cars"], "k": ["a", "b", "c"], "o": ["1", "2", "3"]}
    )
    found = STORES.contents(disk)
    assert {store: [change[:2] for change in changes] for store, changes in found.items()} == {
        "cars": [("a", 1), ("c", 3)],
        "rest": [("b", 2)],
    }


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"o": "{"}, r"the store cars: the value of the key 'wheels' is no JSON"),
        ({"o": ""}, r"the store cars: the value of the key 'wheels' is no JSON"),
        ({"o": "[" * 100_000}, r"the store cars: the value of the key 'wheels' is no JSON"),
        ({"o": "NaN"}, r"the store cars: the key 'wheels': \$\.o: "),
        ({"o": '{"a": [1, -Infinity]}'}, r"the store cars: the key 'wheels': \$\.o\.a\[1\]: "),
        ({"o": "123456789012345678901234567890"}, r"the store cars: the key 'wheels': \$\.o: "),
        ({"o": '"\\ud800"'}, r"the store cars: the key 'wheels': \$\.o: "),
        ({"o": "1", "t": -5}, r"the store cars: the key 'wheels': t is -5"),
        ({"o": "1", "k": None}, r"the store cars: row 0 has no key"),
    ],
)
def test_invalid_row_is_refused_with_its_store_and_key(row: dict[str, Any], reason: str) -> None:
    disk = STORES.empty()
    task = Stage(ROOT, "run", 0, StoresTarget(), disk=disk)
    whole = {"store": "cars", "k": "wheels", "t": 5, **row}
    columns = {name: pa.array([value], pa.int64() if name == "t" else pa.string()) for name, value in whole.items()}
    with pytest.raises(WrongUse, match=reason):
        task.append_batch(pa.record_batch(columns))
    task.discard()
    assert files_of(disk) == {}


@pytest.mark.parametrize("name", ["a/b", "/etc/passwd", "..", ".", ".hidden", "a\0b", "ö" * (MAX_NAME_BYTES // 2 + 1)])
def test_invalid_store_names_are_refused(name: str) -> None:
    disk = STORES.empty()
    task = Stage(ROOT, "run", 0, StoresTarget(), disk=disk)
    with pytest.raises(WrongUse, match=r"a store cannot be called|is too long for the name of a store"):
        task.append_batch(pa.record_batch({"store": [name], "k": ["k"], "o": ["1"]}))
    with pytest.raises(WrongUse, match=r"a store cannot be called|is too long for the name of a store"):
        StoresTarget(name)
    assert read_tree(disk, ROOT) == {}


def test_longest_accepted_name_allows_rotation(tmp_path: Path) -> None:
    name = "ö" * (MAX_NAME_BYTES // 2)
    task = Stage(tmp_path, "run", 0, StoresTarget(name))
    task.append_batch(pa.record_batch({"k": ["k"], "o": ["1"], "t": pa.array([2**64 - 1], pa.uint64())}))
    publish(tmp_path, "run", [task.finish()], StoresTarget(name))
    with VersionedKVStore(tmp_path, name) as store:
        assert store.rotate() == 2**64 - 1


@pytest.mark.parametrize("store", [None, ""])
def test_row_without_a_store_is_refused_without_a_default(store: str | None) -> None:
    task = Stage(ROOT, "run", 0, StoresTarget(), disk=STORES.empty())
    with pytest.raises(WrongUse, match="a row names no store"):
        task.append_batch(pa.record_batch({"store": pa.array([store], pa.string()), "k": ["k"], "o": ["1"]}))
    with pytest.raises(WrongUse, match="a row names no store"):
        task.append_batch(pa.record_batch({"k": ["k"], "o": ["1"]}))


@pytest.mark.parametrize("name", ["cars 0.jrn", "cars 0.jrn.old", "cars 0.jrn.t5.zz"])
def test_existing_store_in_any_form_is_refused_and_not_changed(name: str) -> None:
    disk = STORES.with_journals()
    write_file(disk, ROOT / name, journal(1, [Entry(1, "k", 1)]))
    before = {path: data for path, data in read_tree(disk, ROOT).items() if not path.startswith(".logwright")}
    staged = STORES.stage_two(disk)
    with pytest.raises(WrongUse, match="/target has these stores already: cars 0; only new stores are written"):
        publish(ROOT, "run", staged, StoresTarget(), QUERY, disk=disk)
    with pytest.raises(WrongUse, match="has these stores already: cars 0"):
        StoresTarget("cars 0").refuse_live_writers(ROOT, disk=disk)
    StoresTarget("cats 0").refuse_live_writers(ROOT, disk=disk)
    recover_staging(ROOT, disk=disk)
    assert {path: data for path, data in read_tree(disk, ROOT).items() if not path.startswith(".logwright")} == before


def test_staged_journal_whose_bytes_have_changed_is_not_merged() -> None:
    disk = STORES.empty()
    staged = STORES.stage_two(disk)
    name = staged[0].files[0].name
    data = bytearray(read_file(disk, STAGING / name))
    for at, reason in ((17, "this does not begin as it was staged"), (len(data) - 4, "what was staged is no entry")):
        changed = bytearray(data)
        changed[at : at + 4] = b"\xff" * 4
        write_file(disk, STAGING / name, bytes(changed))
        with pytest.raises(DamagedJournal, match=reason):
            publish(ROOT, "run", staged, StoresTarget(), disk=disk)
        assert files_of(disk) == {}


# --- a program that knows nothing of manifests ------------------------------------------------------------------------


def test_store_made_by_another_program_after_the_commit_is_never_changed() -> None:
    disk = STORES.committed()
    foreign = journal(5, [Entry(6, "k", "of another")])
    write_file(disk, ROOT / "cats 0.jrn", foreign)
    for _ in range(2):
        with pytest.raises(WrongUse, match="has these stores already: cats 0") as caught:
            recover_staging(ROOT, disk=disk)
        assert f"To continue without it move {STAGING}/run.manifest away" in caught.value.__notes__[0]
        assert read_file(disk, ROOT / "cats 0.jrn") == foreign
    with pytest.raises(WrongUse, match="has these stores already: cats 0"):
        STORES.open_writer(disk, "cats 0")
    disk.rename(ROOT / "cats 0.jrn", ROOT / "moved.jrn")
    assert recover_staging(ROOT, disk=disk).rolled_forward == ["run"]
    assert STORES.contents(disk) == {**STORES.everything, "moved": [("k", "of another", 6)]}


def test_published_store_may_be_used_before_the_batch_is_complete() -> None:
    """By a program that rotates it, so no staged file has its final name."""
    disk = STORES.with_journals()
    STORES.publish_two(disk)
    used = 0
    for state in disk.process_kills(format="versioned"):
        if not state.exists(STAGING / "run.manifest") or not state.exists(ROOT / "cars 0.jrn"):
            continue
        state.rename(ROOT / "cars 0.jrn", ROOT / "cars 0.jrn.old")
        write_file(state, ROOT / "cars 0.jrn", codec.encode_header(17 + len(METADATA)) + METADATA)
        recover_staging(ROOT, disk=state)
        assert read_file(state, ROOT / "cars 0.jrn")[17:] == METADATA, state.story
        assert set(STORES.contents(state)) == {"cars 0", "cats 0", "dogs"}, state.story
        used += 1
    assert used > 2


METADATA = codec.encode(Metadata(START + 8))


def test_opening_a_store_of_a_committed_batch_shows_all_of_it(tmp_path: Path) -> None:
    disk = STORES.committed()
    with pytest.raises(Locked), STORES.open_writer(disk, "cars 0"):
        STORES.open_writer(disk, "cars 0")
    assert STORES.contents(disk) == STORES.everything
    assert REAL_DISK.list_directory(tmp_path) == []


def test_merging_long_runs_takes_no_more_memory(tmp_path: Path) -> None:
    """Eight runs of four megabytes, whose entries alternate."""
    runs = []
    for number in range(8):
        data = b"".join(codec.pack_entry(START + row, "k", "x" * 4000) for row in range(1000))
        (tmp_path / str(number)).write_bytes(data)
        runs.append(Run(tmp_path / str(number), 0, len(data)))
    counted = 0

    def count(data: Any) -> None:
        nonlocal counted
        counted += len(data)

    tracemalloc.start()
    try:
        merge(REAL_DISK, runs, count, memory_bytes=1 << 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert counted == sum(run.bytes for run in runs) > 32_000_000
    assert peak < 4 << 20
