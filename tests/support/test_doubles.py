"""The simulated disks behave like the real one, and detect the faults for which they were made."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK, Buffer, Disk, File, RealDisk, write_all
from logwright.errors import Locked, LogwrightError, NotFound, StorageFailed
from tests.support import replay
from tests.support.counts import Counts
from tests.support.crashes import SECTOR_BYTES
from tests.support.damage import (
    bit_flips,
    byte_increments,
    cut,
    damage_file,
    drop,
    flip_bit,
    fuzzed,
    garbage_after,
    hostile_fields,
    hostile_integers,
    increment_byte,
    insert,
    noise,
    noise_after,
    overwrite,
    repeat,
    shrink,
    swap,
    torn_tails,
    zeros_after,
)
from tests.support.faulty_disk import (
    FORGOTTEN,
    NEEDS_SPACE,
    RENAMES,
    SHORT_WRITE,
    SYNCS,
    WRITES,
    FaultyDisk,
    failing_calls,
    forgotten_syncs,
)
from tests.support.interrupts import Interrupt, at_every_moment
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import Tree, differences, load_directory, read_file, read_tree, write_file, write_tree

JOURNAL = Path("/journal")
FILE = JOURNAL / "file"
OTHER = JOURNAL / "other"


@pytest.fixture
def disk(simulated_disk: SimulatedDisk) -> SimulatedDisk:
    return simulated_disk


def contents(disk: Disk, path: Path = FILE) -> bytes | None:
    return read_file(disk, path) if disk.exists(path) else None


def possible(disk: SimulatedDisk, path: Path = FILE, **choices: object) -> set[bytes | None]:
    """The possible contents of a file after a crash now; None means that there is no file."""
    end = len(disk.operations)
    return {contents(state, path) for state in disk.crash_states(first=end, **choices)}


# --- the simulated disk is a disk -----------------------------------------------------------------------------------


def the_real_one(root: Path) -> Disk:
    return REAL_DISK


def the_simulated_one(root: Path) -> Disk:
    disk = SimulatedDisk()
    write_tree(disk, root, {})
    return disk


def one_that_never_fails(root: Path) -> Disk:
    return FaultyDisk(REAL_DISK)


@pytest.mark.parametrize("make", [the_real_one, the_simulated_one, one_that_never_fails])
def test_every_disk_returns_the_same_results(make: Callable[[Path], Disk], tmp_path: Path) -> None:
    disk = make(tmp_path)
    directory, path, other = tmp_path / "d", tmp_path / "d" / "a", tmp_path / "d" / "b"
    assert not disk.exists(directory)
    disk.make_directory(directory)
    disk.make_directory(directory)
    assert disk.is_directory(directory)
    file = disk.open(path, "create")
    assert file.write_at(3, b"abc") == 3
    assert file.write_at(0, memoryview(b"xy")) == 2
    assert (file.size(), disk.file_size(path), disk.free_bytes(directory) > 0) == (6, 6, True)
    buffer = bytearray(4)
    assert (file.read_into(4, memoryview(buffer)), bytes(buffer)) == (2, b"bc\0\0")
    file.truncate(4)
    file.sync()
    assert disk.identity(path) == file.identity()
    disk.rename(path, other)
    assert disk.list_directory(directory) == ["b"]
    assert disk.identity(path) is None
    disk.remove(other)
    disk.remove(other)
    assert (disk.exists(other), file.read_at(0, 99)) == (False, b"xy\0a"), "an open file outlives its name"
    disk.sync_directory(directory)
    file.close()
    file.close()
    assert disk.list_directory(directory) == []
    disk.remove_directory(directory)
    disk.remove_directory(directory)
    assert not disk.exists(directory)
    assert getattr(disk, "open_files", 0) == 0


@pytest.mark.parametrize("make", [the_real_one, the_simulated_one, one_that_never_fails])
def test_every_disk_raises_the_same_errors(make: Callable[[Path], Disk], tmp_path: Path) -> None:
    disk = make(tmp_path)
    path, directory = tmp_path / "a", tmp_path / "d"
    disk.make_directory(directory)
    write_file(disk, path, b"abc")

    def number(action: Callable[[], object]) -> int | None:
        with pytest.raises(StorageFailed) as caught:
            action()
        return caught.value.errno

    assert number(lambda: disk.open(path, "create")) == errno.EEXIST
    assert number(lambda: disk.open(directory, "read")) == errno.EINVAL
    assert number(lambda: disk.open(directory, "update")) == errno.EISDIR
    assert number(lambda: disk.open(path / "x", "update")) == errno.ENOTDIR
    assert number(lambda: disk.list_directory(path)) == errno.ENOTDIR
    assert number(lambda: disk.make_directory(path)) == errno.EEXIST
    assert number(lambda: disk.remove(directory)) == errno.EISDIR
    assert number(lambda: disk.remove_directory(path)) == errno.ENOTDIR
    assert number(lambda: disk.remove_directory(tmp_path)) == errno.ENOTEMPTY
    assert number(lambda: disk.rename(path, directory)) == errno.EISDIR
    for action in (
        lambda: disk.open(tmp_path / "none", "read"),
        lambda: disk.open(tmp_path / "none" / "x", "create"),
        lambda: disk.list_directory(tmp_path / "none"),
        lambda: disk.file_size(tmp_path / "none"),
        lambda: disk.make_directory(tmp_path / "none" / "x"),
        lambda: disk.rename(tmp_path / "none", path),
        lambda: disk.sync_directory(tmp_path / "none"),
    ):
        with pytest.raises(NotFound, match="none"):
            action()
    reader = disk.open(path, "read")
    assert number(lambda: reader.write_at(0, b"x")) == errno.EBADF
    assert number(lambda: reader.truncate(0)) == errno.EINVAL
    assert number(lambda: reader.read_at(-1, 1)) == errno.EINVAL
    reader.close()
    assert number(reader.size) == errno.EBADF
    assert read_file(disk, path) == b"abc"


@pytest.mark.parametrize("seed", range(40))
def test_simulated_disk_behaves_like_the_real_one(seed: int, tmp_path: Path) -> None:
    real, simulated = RealDisk(), SimulatedDisk()
    write_tree(simulated, tmp_path, {})
    chance, twin = random.Random(seed), random.Random(seed)
    for _ in range(60):
        assert random_step(real, tmp_path, chance) == random_step(simulated, tmp_path, twin)
    assert differences(read_tree(real, tmp_path), read_tree(simulated, tmp_path)) == []


def random_step(disk: Disk, root: Path, chance: random.Random) -> object:
    """Do one random operation; return its result or its error."""

    def path() -> Path:
        return root.joinpath(*(chance.choice("abc") for _ in range(chance.choice((1, 1, 2)))))

    def with_file(use: Callable[[File], object]) -> object:
        file = disk.open(path(), chance.choice(("read", "update", "update", "create")))
        try:
            return use(file)
        finally:
            file.close()

    steps: list[Callable[[], object]] = [
        lambda: with_file(lambda file: file.write_at(chance.randrange(40), chance.randbytes(chance.randrange(30)))),
        lambda: with_file(lambda file: file.truncate(chance.randrange(60))),
        lambda: with_file(lambda file: file.read_at(chance.randrange(40), chance.randrange(40))),
        lambda: with_file(lambda file: file.size()),
        lambda: with_file(lambda file: file.sync()),
        lambda: with_file(lambda file: file.lock()),
        lambda: disk.rename(path(), path()),
        lambda: disk.remove(path()),
        lambda: disk.remove_directory(path()),
        lambda: disk.make_directory(path()),
        lambda: disk.list_directory(path()),
        lambda: (disk.exists(place := path()), disk.is_directory(place), disk.identity(place) is None),
    ]
    step = chance.choice(steps)
    before = chance.getstate()
    try:
        return step()
    except LogwrightError as error:
        return type(error), getattr(error, "errno", None)
    finally:
        chance.setstate(before)  # a step that failed early has drawn fewer random numbers
        chance.random()


def test_lock_belongs_to_an_open_file_and_ends_with_a_crash(disk: SimulatedDisk) -> None:
    first, second = disk.open(FILE, "update"), disk.open(FILE, "update")
    first.lock()
    first.lock()
    with pytest.raises(Locked):
        second.lock()
    disk.sync_directory(JOURNAL)
    for state in disk.crash_states(first=len(disk.operations)):
        state.open(FILE, "update").lock()
    for state in disk.process_kills():
        state.open(FILE, "update").lock()
    first.close()
    second.lock()


def test_full_disk_writes_what_fits_and_then_nothing(disk: SimulatedDisk) -> None:
    disk.capacity_bytes = 10
    file = disk.open(FILE, "create")
    assert file.write_at(0, b"1234567") == 7
    assert file.write_at(7, b"1234567") == 3
    assert disk.free_bytes(JOURNAL) == 0
    with pytest.raises(StorageFailed, match="No space left") as caught:
        file.write_at(10, b"1")
    assert caught.value.errno == errno.ENOSPC
    assert file.write_at(4, b"abc") == 3, "existing bytes can be overwritten"
    file.truncate(2)
    assert (disk.free_bytes(JOURNAL), file.write_at(2, b"xy")) == (8, 2)


def test_watch_reports_changes_and_never_waits(disk: SimulatedDisk) -> None:
    watch = disk.watch(JOURNAL)
    assert watch.wait(3600) is False
    write_file(disk, FILE, b"x")
    assert (watch.wait(0), watch.wait(3600), watch.descriptor()) == (True, False, None)
    disk.remove(FILE)
    watch.drain()
    assert watch.wait(0) is False


def test_copy_shares_no_contents_that_change(disk: SimulatedDisk) -> None:
    write_file(disk, FILE, b"before")
    copy = disk.copy()
    write_file(disk, FILE, b"after")
    disk.remove(FILE)
    write_file(copy, OTHER, b"more")
    assert read_tree(disk, JOURNAL) == {}
    assert read_tree(copy, JOURNAL) == {"file": b"before", "other": b"more"}
    assert possible(copy) == {b"before"}


# --- a crash keeps synced bytes; the rest may be anything -------------------------------------------------------------


def test_synced_file_without_a_synced_name_can_be_lost(disk: SimulatedDisk) -> None:
    file = disk.open(FILE, "create")
    file.write_at(0, b"abc")
    file.sync()
    assert possible(disk) == {None, b"abc"}
    disk.sync_directory(JOURNAL)
    assert possible(disk) == {b"abc"}


def test_synced_name_without_synced_contents_can_have_any_contents(disk: SimulatedDisk) -> None:
    file = disk.open(FILE, "create")
    file.write_at(0, b"abc")
    disk.sync_directory(JOURNAL)
    assert possible(disk, kinds=["order"]) == {b"", b"abc"}
    assert possible(disk, fills=["zeros"]) == {b"", b"abc", b"\0\0\0"}
    with_noise = possible(disk)
    assert with_noise > {b"", b"abc", b"\0\0\0"}
    assert {len(content or b"") for content in with_noise} == {0, 3}


def test_every_subset_of_unsynced_writes_can_survive(disk: SimulatedDisk) -> None:
    write_file(disk, FILE, b"....")
    disk.settle()
    file = disk.open(FILE, "update")
    for position in range(4):
        file.write_at(position, b"x")
    every = {bytes(b"x"[0] if mask >> bit & 1 else b"."[0] for bit in range(4)) for mask in range(16)}
    assert possible(disk, kinds=["subset"]) == every
    assert possible(disk, kinds=["order"]) == {b"....", b"x...", b"xx..", b"xxx.", b"xxxx"}
    file.sync()
    assert possible(disk) == {b"xxxx"}


def test_sample_of_many_unsynced_writes_is_reproducible(disk: SimulatedDisk) -> None:
    file = disk.open(FILE, "create")
    disk.sync_directory(JOURNAL)
    for position in range(40):
        file.write_at(position, b"x")
    found = possible(disk, kinds=["subset"])
    assert found == possible(disk, kinds=["subset"])
    assert found != possible(disk, kinds=["subset"], seed=1)
    assert {b"", b"x" * 40} < found
    assert len(found) > 30
    assert any(b"\0" in content and b"x" in content for content in found if content)


def test_write_is_torn_only_between_sectors(disk: SimulatedDisk) -> None:
    old, new = b"o" * 3 * SECTOR_BYTES, b"n" * 2 * SECTOR_BYTES
    write_file(disk, FILE, old)
    disk.settle()
    file = disk.open(FILE, "update")
    start = SECTOR_BYTES // 2
    file.write_at(start, new)
    found = set()
    for seed in range(20):
        found |= possible(disk, kinds=["torn"], seed=seed)
    edges = (0, start, SECTOR_BYTES, 2 * SECTOR_BYTES, start + len(new), len(old))
    for content in found:
        assert content is not None
        parts = [content[a:b] for a, b in itertools.pairwise(edges)]
        assert all(len(set(part)) == 1 for part in parts), "a sector is old or new, never half of each"
        assert (parts[0][:1], parts[-1][:1]) == (b"o", b"o"), "what was not written does not change"
    assert len(found) == 8, "each of the three sectors can be old or new"


def test_torn_write_past_the_old_end_leaves_zeros_or_noise_with_either_length(disk: SimulatedDisk) -> None:
    write_file(disk, FILE, b"o" * 100)
    disk.settle()
    disk.open(FILE, "update").write_at(100, b"n" * 1000)
    found = set()
    for seed in range(20):
        found |= {content for content in possible(disk, kinds=["torn"], seed=seed) if content is not None}
    assert all(content[:100] == b"o" * 100 for content in found), "what was durable does not change"
    assert {len(content) for content in found} == {100, SECTOR_BYTES, 2 * SECTOR_BYTES, 1100}
    assert b"o" * 100 + bytes(1000) in found
    assert b"o" * 100 + bytes(SECTOR_BYTES - 100) + b"n" * (1100 - SECTOR_BYTES) in found
    assert any(set(content[100:SECTOR_BYTES]) - {ord("n"), 0} for content in found), "noise"


def test_unsynced_truncation_may_not_have_happened(disk: SimulatedDisk) -> None:
    write_file(disk, FILE, b"abcdef")
    disk.settle()
    file = disk.open(FILE, "update")
    file.truncate(2)
    assert possible(disk) == {b"ab", b"abcdef"}
    file.write_at(2, b"X")
    assert possible(disk, kinds=["subset"]) == {b"ab", b"abcdef", b"abX", b"abXdef"}
    file.sync()
    assert possible(disk) == {b"abX"}


def test_names_within_a_directory_change_in_order(disk: SimulatedDisk) -> None:
    write_tree(disk, JOURNAL, {"a": b"a", "b": b"b"})
    disk.settle()
    disk.remove(JOURNAL / "a")
    disk.remove(JOURNAL / "b")
    end = len(disk.operations)
    assert {tuple(read_tree(state, JOURNAL)) for state in disk.crash_states(first=end)} == {("a", "b"), ("b",), ()}
    any_order = disk.crash_states(first=end, reorder_names=True)
    assert {tuple(read_tree(state, JOURNAL)) for state in any_order} == {("a", "b"), ("b",), ("a",), ()}


def test_names_in_different_directories_change_in_any_order(disk: SimulatedDisk) -> None:
    write_tree(disk, JOURNAL, {"x/a": b"a", "y/b": b"b"})
    disk.settle()
    disk.remove(JOURNAL / "x" / "a")
    disk.remove(JOURNAL / "y" / "b")
    end = len(disk.operations)
    files = {tuple(sorted({*read_tree(state, JOURNAL)} - {"x", "y"})) for state in disk.crash_states(first=end)}
    assert files == {("x/a", "y/b"), ("y/b",), ("x/a",), ()}
    disk.sync_directory(JOURNAL / "y")
    end = len(disk.operations)
    files = {tuple(sorted({*read_tree(state, JOURNAL)} - {"x", "y"})) for state in disk.crash_states(first=end)}
    assert files == {("x/a",), ()}


def test_rename_within_a_directory_happens_or_does_not(disk: SimulatedDisk) -> None:
    write_tree(disk, JOURNAL, {"file": b"old", "other": b"new"})
    disk.settle()
    disk.rename(OTHER, FILE)
    end = len(disk.operations)
    trees = [read_tree(state, JOURNAL) for state in disk.crash_states(first=end)]
    assert sorted(trees, key=len) == [{"file": b"new"}, {"file": b"old", "other": b"new"}]


@pytest.mark.parametrize("synced", [None, "x", "y"])
def test_rename_between_directories_may_leave_both_names_but_never_none(
    disk: SimulatedDisk, synced: str | None
) -> None:
    write_tree(disk, JOURNAL, {"x/a": b"a", "y": None})
    disk.settle()
    disk.rename(JOURNAL / "x" / "a", JOURNAL / "y" / "b")
    if synced:
        disk.sync_directory(JOURNAL / synced)
    end = len(disk.operations)
    files = {tuple(sorted({*read_tree(state, JOURNAL)} - {"x", "y"})) for state in disk.crash_states(first=end)}
    assert (
        files == {None: {("x/a",), ("x/a", "y/b"), ("y/b",)}, "x": {("y/b",)}, "y": {("x/a", "y/b"), ("y/b",)}}[synced]
    )


@pytest.mark.parametrize(("synced", "moved"), [("", []), ("y", []), ("x", ["/journal/x/a"]), ("yx", [])])
def test_file_whose_old_name_is_durably_removed_first_is_reported(
    disk: SimulatedDisk, synced: str, moved: list[str]
) -> None:
    write_tree(disk, JOURNAL, {"x/a": b"a", "y": None})
    disk.settle()
    disk.rename(JOURNAL / "x" / "a", JOURNAL / "y" / "b")
    for name in synced:
        disk.sync_directory(JOURNAL / name)
    assert disk.moved_unnamed() == moved


def test_unsynced_changes_are_reported_until_they_are_synced(disk: SimulatedDisk) -> None:
    file = disk.open(FILE, "create")
    file.write_at(0, b"abc")
    assert disk.unsynced() == [f"contents of {FILE}", f"name {FILE}"]
    file.sync()
    assert disk.unsynced() == [f"name {FILE}"]
    disk.sync_directory(JOURNAL)
    assert disk.unsynced() == []
    file.write_at(0, b"abc")
    disk.remove(FILE)
    assert disk.unsynced() == [f"name {FILE}"], "no one reads what was written to a file without a name"


@pytest.mark.parametrize("synced", [None, "x", "y"])
def test_moved_directory_has_its_old_name_or_its_new_name(disk: SimulatedDisk, synced: str | None) -> None:
    write_tree(disk, JOURNAL, {"x/a/file": b"a", "y": None})
    disk.settle()
    disk.rename(JOURNAL / "x" / "a", JOURNAL / "y" / "b")
    if synced:
        disk.sync_directory(JOURNAL / synced)
    end = len(disk.operations)
    found = {tuple(sorted({*read_tree(state, JOURNAL)} - {"x", "y"})) for state in disk.crash_states(first=end)}
    before, after = ("x/a", "x/a/file"), ("y/b", "y/b/file")
    assert found == ({after} if synced else {before, after})


def test_files_in_a_directory_without_a_synced_name_can_be_lost(disk: SimulatedDisk) -> None:
    directory = JOURNAL / "sub"
    disk.make_directory(directory)
    file = disk.open(directory / "a", "create")
    file.write_at(0, b"abc")
    file.sync()
    disk.sync_directory(directory)
    end = len(disk.operations)
    trees = [read_tree(state, JOURNAL) for state in disk.crash_states(first=end)]
    assert sorted(trees, key=len) == [{}, {"sub": None, "sub/a": b"abc"}]


def test_marks_show_how_far_the_test_got(disk: SimulatedDisk) -> None:
    file = disk.open(FILE, "create")
    disk.sync_directory(JOURNAL)
    for number in range(3):
        file.write_at(number, b"%d" % number)
        file.sync()
        disk.mark(number)
    lengths: dict[int, set[int]] = {}
    for state in disk.crash_states(kinds=["order"]):
        lengths.setdefault(len(state.marks), set()).add(len(contents(state) or b""))
    assert lengths == {0: {0, 1}, 1: {1, 2}, 2: {2, 3}, 3: {3}}


def test_every_crash_state_is_unique_and_has_a_story(disk: SimulatedDisk) -> None:
    for name in ("a", "b"):
        file = disk.open(JOURNAL / name, "create")
        file.write_at(0, name.encode() * 700)
        file.sync()
    disk.sync_directory(JOURNAL)
    states = list(disk.crash_states())
    trees = [tuple(sorted(read_tree(state, JOURNAL).items())) for state in states]
    assert len(trees) == len(set(trees)) > 10
    assert len({state.story for state in states}) == len(states)
    assert "after 0 operations" in states[0].story
    torn = next(state for state in states if "sectors" in state.story)
    assert "write 700 bytes at 0 of /journal/" in torn.story


def test_crash_during_recovery_is_a_crash_of_the_crashed_disk(disk: SimulatedDisk) -> None:
    file = disk.open(FILE, "create")
    disk.sync_directory(JOURNAL)
    disk.settle()
    file = disk.open(FILE, "update")
    file.write_at(0, b"abc")
    disk.mark("written")
    seen = set()
    for state in disk.crash_states(kinds=["order"]):
        left = contents(state)
        state.open(FILE, "update").truncate(1)
        for second in state.crash_states(kinds=["order"]):
            assert second.marks[: len(state.marks)] == state.marks
            assert second.story.startswith(state.story)
            seen.add((left, contents(second)))
    assert seen == {(b"", b""), (b"", b"\0"), (b"abc", b"abc"), (b"abc", b"a")}


def test_killed_process_leaves_its_writes_but_makes_none_durable(disk: SimulatedDisk) -> None:
    file = disk.open(FILE, "create")
    file.write_at(0, b"abc")
    disk.mark("written")
    left = [(contents(state), state.marks, possible(state, kinds=["order"])) for state in disk.process_kills()]
    partial = left.pop(2)
    assert left == [
        (None, [], {None}),
        (b"", [], {None, b""}),
        (b"abc", [], {None, b"", b"abc"}),
        (b"abc", ["written"], {None, b"", b"abc"}),
    ]
    assert partial[0] in (b"a", b"ab")
    assert partial[1:] == ([], {None, b"", partial[0]})


def test_crash_states_begin_where_the_killed_process_ended(disk: SimulatedDisk) -> None:
    disk.open(FILE, "create").write_at(0, b"abc")
    *_, killed = disk.process_kills()
    killed.sync_directory(JOURNAL)
    assert {contents(state) for state in killed.crash_states(kinds=["order"])} == {None, b"", b"abc"}
    assert {state.crash.point for state in killed.crash_states() if state.crash} == {2}, "the sync only takes away"
    assert {state.crash.point for state in killed.crash_states(first=0) if state.crash} == {0, 1, 2}
    assert possible(killed, kinds=["order"]) == {b"", b"abc"}


# --- negative controls: what is wrong must be found -------------------------------------------------------------------


def append_acknowledged(disk: Disk, mark: Callable[[int], None], *, sync: bool = True, sync_name: bool = True) -> None:
    """A minimal journal: bytes in a file, each acknowledged once it is synced."""
    file = disk.open(FILE, "update")
    if sync_name:
        disk.sync_directory(JOURNAL)
    for number in range(4):
        write_all(file, number, b"%d" % number)
        if sync:
            file.sync()
        mark(number)
    file.close()


def acknowledged_are_there(state: SimulatedDisk) -> bool:
    return (contents(state) or b"")[: len(state.marks)] == b"0123"[: len(state.marks)]


@pytest.mark.parametrize(
    ("sync", "sync_name", "sound"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_forgotten_sync_loses_acknowledged_records(
    disk: SimulatedDisk, sync: bool, sync_name: bool, sound: bool
) -> None:
    append_acknowledged(disk, disk.mark, sync=sync, sync_name=sync_name)
    assert all(map(acknowledged_are_there, disk.crash_states())) is sound


def test_name_left_by_a_killed_process_must_be_synced_by_the_next(disk: SimulatedDisk) -> None:
    disk.open(FILE, "create")
    *_, killed = disk.process_kills()
    careless, careful = killed, list(disk.process_kills())[-1]
    append_acknowledged(careless, careless.mark, sync_name=False)
    append_acknowledged(careful, careful.mark)
    assert not all(map(acknowledged_are_there, careless.crash_states()))
    assert all(map(acknowledged_are_there, careful.crash_states()))


def test_every_forgotten_sync_is_detected(disk: SimulatedDisk) -> None:
    forgotten = []
    for faulty in forgotten_syncs(disk.copy):
        append_acknowledged(faulty, faulty.inner.mark)
        states = faulty.inner.crash_states(format="")
        assert all(map(acknowledged_are_there, states)) is (faulty.failures == 0)
        forgotten.append(faulty.failed)
    assert forgotten == [f"sync directory {JOURNAL}", *[f"sync {FILE}"] * 4, ""]


# --- the faulty disk ------------------------------------------------------------------------------------------------


def three_writes(disk: Disk) -> None:
    file = disk.open(FILE, "update")
    try:
        for number in range(3):
            write_all(file, 4 * number, b"abcd")
        file.sync()
    finally:
        file.close()


def test_each_call_fails_in_turn_until_no_call_fails(disk: SimulatedDisk) -> None:
    failed: list[str] = []
    for faulty in failing_calls(disk.copy):
        if len(failed) < 6:
            with pytest.raises(StorageFailed, match="Input/output error") as caught:
                three_writes(faulty)
            assert caught.value.errno == errno.EIO
            failed.append(faulty.failed)
        else:
            three_writes(faulty)
            assert (faulty.calls, faulty.failures, faulty.failed) == (6, 0, "")
            failed.append("clean")
    assert failed == [f"create {FILE}", *[f"write {FILE}"] * 3, f"sync {FILE}", f"close {FILE}", "clean"]


def test_fault_happens_once_or_forever(disk: SimulatedDisk) -> None:
    once, forever = FaultyDisk(disk.copy(), 2), FaultyDisk(disk.copy(), 2, forever=True)
    for faulty, later_fails in ((once, False), (forever, True)):
        assert not faulty.exists(FILE)
        with pytest.raises(StorageFailed):
            faulty.exists(FILE)
        for _ in range(2):
            if later_fails:
                with pytest.raises(StorageFailed):
                    faulty.exists(FILE)
            else:
                assert not faulty.exists(FILE)
    assert (once.failures, forever.failures) == (1, 3)


def test_only_the_chosen_kinds_are_counted_and_fail(disk: SimulatedDisk) -> None:
    for only, calls in ((WRITES, 3), (SYNCS, 1), (RENAMES, 0), (NEEDS_SPACE, 4)):
        faulty = FaultyDisk(disk.copy(), only=only)
        three_writes(faulty)
        assert faulty.calls == calls
    faulty = FaultyDisk(disk.copy(), 1, only=SYNCS)
    with pytest.raises(StorageFailed, match="sync"):
        three_writes(faulty)
    assert contents(faulty.inner) == b"abcd" * 3
    with pytest.raises(ValueError, match="flush"):
        FaultyDisk(disk, only=["flush"])
    with pytest.raises(ValueError, match="only a sync"):
        FaultyDisk(disk, 1, FORGOTTEN)


def test_full_disk_writes_half_of_a_write_and_refuses_the_next(disk: SimulatedDisk) -> None:
    left: list[bytes | None] = []
    for faulty in failing_calls(disk.copy, error=errno.ENOSPC, partial=True, only=WRITES):
        if faulty.failures == 0 and len(left) == 3:
            three_writes(faulty)
        else:
            with pytest.raises(StorageFailed, match="No space left"):
                three_writes(faulty)
        left.append(contents(faulty.inner))
    assert left == [b"ab", b"abcdab", b"abcdabcdab", b"abcd" * 3]


def test_short_write_is_no_failure_if_the_rest_is_written(disk: SimulatedDisk) -> None:
    rounds = 0
    for faulty in failing_calls(disk.copy, error=SHORT_WRITE, only=WRITES):
        three_writes(faulty)
        assert contents(faulty.inner) == b"abcd" * 3
        rounds += 1
    assert rounds == 4, "one for each write, and the clean one"


def test_file_is_closed_even_if_closing_fails(disk: SimulatedDisk) -> None:
    faulty = FaultyDisk(disk, 1, only=["close"])
    file = faulty.open(FILE, "update")
    file.lock()
    with pytest.raises(StorageFailed, match="close"):
        file.close()
    disk.open(FILE, "update").lock()


# --- the language of damage -----------------------------------------------------------------------------------------


def test_each_damage_function_does_what_its_name_says(tmp_path: Path) -> None:
    data = b"abcdef"
    assert cut(data, 2) == b"ab"
    assert shrink(data, 2) == b"abcd"
    assert shrink(data, 9) == b""
    assert zeros_after(data, 4) == b"abcd\0\0"
    assert noise_after(data, 4)[:4] == b"abcd"
    assert noise_after(data, 4) == noise_after(data, 4) != noise_after(data, 4, seed=1)
    assert len(noise_after(data, 4)) == 6
    assert flip_bit(data, 9) == b"a\x60cdef"
    assert increment_byte(b"a\xff", 1) == b"a\0"
    assert overwrite(data, 1, b"XY") == b"aXYdef"
    assert insert(data, 1, b"XY") == b"aXYbcdef"
    assert drop(data, 1, 3) == b"adef"
    assert repeat(data, 1, 3) == b"abcbcdef"
    assert swap(data, 1, 2, 4) == b"acdbef"
    with pytest.raises(ValueError, match="do not fit"):
        overwrite(data, 5, b"XY")
    path = tmp_path / "file"
    path.write_bytes(data)
    damage_file(path, cut, 3)
    assert path.read_bytes() == b"abc"


def test_torn_tails_cover_every_byte_cut_zeroed_and_noisy() -> None:
    torn = list(torn_tails(b"abcd", 2))
    assert [(case.label, case.data[:2], case.position) for case in torn] == [
        (f"{kind} {position}", b"ab", position)
        for position in (2, 3)
        for kind in ("cut at", "zeros from", "noise from")
    ]
    assert [case.data for case in torn if not case.label.startswith("noise")] == [b"ab", b"ab\0\0", b"abc", b"abc\0"]
    assert [case.data for case in torn_tails(b"a\0", 1) if "zeros" in case.label] == [], "zeros would change nothing"


def test_generators_return_every_case_once_and_never_the_original() -> None:
    data = bytes(range(20))
    flips = [case.data for case in bit_flips(data, 2, 4)]
    assert len(set(flips)) == 16
    assert all(sum(a != b for a, b in zip(data, flip, strict=True)) == 1 for flip in flips)
    assert [case.data[1] for case in byte_increments(data, 1, 2, by=255)] == [0]
    assert [len(case.data) for case in garbage_after(data, [1, 30])] == [21, 21, 50, 50]
    assert all(case.data[:20] == data for case in garbage_after(data, [1, 30]))
    fields = [case.data for case in hostile_fields(data, [(0, 4), (8, 1)])]
    assert len(set(fields)) == len(fields) > 20
    assert data not in fields
    assert {b"\xff\xff", b"\x80\0", b"\0\x80", b"\x7f\xff", b"\0\0", b"\0\1"} <= set(hostile_integers(2))


def test_fuzzing_is_reproducible_and_knows_its_first_changed_byte() -> None:
    data = noise(300)
    cases = list(fuzzed(data, 400))
    assert cases == list(fuzzed(data, 400))
    assert cases != list(fuzzed(data, 400, seed=1))
    assert len({case.data for case in cases}) > 350
    assert all(case.data[: case.position] == data[: case.position] for case in cases)


# --- counting, replaying, comparing -----------------------------------------------------------------------------------


def test_counts_of_processes_are_added_and_printed_per_format() -> None:
    worker, controller = Counts(), Counts()
    worker.add("torn tails", 1200, format="sej")
    worker.add("bit flips", 5)
    controller.add("torn tails", 34)
    controller.load(worker.dump())
    assert controller.total("torn tails") == 1234
    table = [line.split() for line in controller.table()]
    assert table[0] == ["fault", "core", "sej", "total"]
    assert table[1] == ["torn", "tails", "34", "1,200", "1,234"]
    assert ["bit", "flips", "5", "-", "5"] in table
    assert Counts().table() == []
    with pytest.raises(ValueError, match="torn tales"):
        worker.add("torn tales")


def test_passed_cases_are_counted(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counts()
    monkeypatch.setattr("tests.support.crashes.COUNTS", counts)
    monkeypatch.setattr("tests.support.faulty_disk.COUNTS", counts)
    three_writes(disk)
    states = len(list(disk.crash_states(format="sej")))
    for faulty in failing_calls(disk.copy, format="sej", only=WRITES, error=SHORT_WRITE):
        three_writes(faulty)
    assert counts.dump() == [("crash states", "sej", states), ("k-th call fails", "sej", 3)]


def run_pytest(directory: Path, code: str, *options: str) -> str:
    """Run one test file with our conftest in a separate process; its output."""
    (directory / "conftest.py").write_text("from tests.conftest import *\n")
    (directory / "test_it.py").write_text(textwrap.dedent(code))
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:hypothesispytest",
            "--color=no",
            *options,
            "test_it.py",
        ],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.stderr == ""
    return result.stdout


def test_failing_case_can_be_run_alone(tmp_path: Path) -> None:
    code = """
        from tests.support.damage import torn_tails
        from tests.support.replay import each

        def test_loops():
            tried = []
            for case in torn_tails(b"abcdef"):
                for number in each((str(number), number) for number in range(4)):
                    tried.append((case.label, number))
                    assert case.label != "zeros from 4" or number != 2, f"{len(tried)} tried"
        """
    command = "pytest test_it.py::test_loops --replay='zeros from 4 > 2'"
    printed = run_pytest(tmp_path, code)
    assert command in printed
    assert "AssertionError: 55 tried" in printed
    alone = run_pytest(tmp_path, code, "--replay=zeros from 4 > 2")
    assert command in alone
    assert "AssertionError: 1 tried" in alone
    assert "1 passed" in run_pytest(tmp_path, code, "--replay=zeros from 4 > 3")


def test_failure_report_contains_the_story_of_the_disk(disk: SimulatedDisk) -> None:
    three_writes(disk)
    replay.forget()
    state = next(state for state in disk.crash_states() if "sectors" in state.story)
    assert state.crash is not None
    assert replay.report("test") == f"pytest test --replay={state.crash.label}\n{state.story}"
    replay.forget()
    faulty = next(failing_calls(disk.copy))
    with pytest.raises(StorageFailed):
        three_writes(faulty)
    story = f"1 of 1 calls failed, the first one: open {FILE}"
    assert replay.report("test") == f"pytest test --replay='call 1 EIO once'\n{story}"
    replay.forget()


def test_crash_state_can_be_found_again_by_its_label(disk: SimulatedDisk) -> None:
    three_writes(disk)
    states = list(disk.crash_states())
    chosen = states[len(states) // 2]
    assert chosen.crash is not None
    replay.choose(chosen.crash.label)
    try:
        [again] = disk.crash_states()
    finally:
        replay.choose("")
    assert again.story == chosen.story
    assert read_tree(again, JOURNAL) == read_tree(chosen, JOURNAL)


@pytest.mark.parametrize("workers", [0, 2])
def test_counts_of_all_workers_are_printed(tmp_path: Path, workers: int) -> None:
    code = """
        import pytest
        from tests.support.counts import COUNTS

        @pytest.mark.parametrize("number", range(8))
        def test_count(number):
            COUNTS.add("hostile inputs", 100, format="sej")
        """
    printed = run_pytest(tmp_path, code, "-n", str(workers))
    assert "8 passed" in printed
    assert ["hostile", "inputs", "800", "800"] in [line.split() for line in printed.splitlines()]


def test_trees_are_copied_and_compared(tmp_path: Path) -> None:
    tree: Tree = {"a": b"1", "sub": None, "sub/b": b"23", "empty": None}
    write_tree(REAL_DISK, tmp_path, tree)
    disk = SimulatedDisk()
    load_directory(tmp_path, disk, Path("/copy"))
    assert read_tree(disk, Path("/copy")) == tree
    assert differences(tree, tree) == []
    assert differences(tree, {"a": b"2", "sub": None, "c": b"", "empty": None}) == [
        "a: 1 bytes became 1 bytes, different from byte 0 on",
        "c: new, 0 bytes",
        "sub/b: gone",
    ]


def test_written_buffers_of_every_kind_are_copied(disk: SimulatedDisk) -> None:
    file = disk.open(FILE, "create")
    buffers: list[Buffer] = [b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3]]
    for number, buffer in enumerate(buffers):
        file.write_at(2 * number, buffer)
        if isinstance(buffer, bytearray):
            buffer[:] = b"??"
    assert contents(disk) == b"abcdef"
    assert b"abcdef" in possible(disk, kinds=["order"])


def test_interrupts_are_not_raised_in_callbacks_of_the_collector() -> None:
    code = "def call():\n    list(map(str, range(3)))\n    collect(0)\n\ndef callback(phase, info):\n    str(phase)\n"
    names: dict[str, Any] = {"collect": gc.collect}
    exec(compile(code, "elsewhere.py", "exec"), names)
    places: set[str | None] = set()

    def trial(interrupt: Interrupt) -> None:
        interrupt(names["call"])
        places.add(interrupt.at)

    gc.callbacks.append(names["callback"])
    try:
        at_every_moment(trial, most=100)  # an exception in a callback would be an unraisable one, which fails a test
    finally:
        gc.callbacks.remove(names["callback"])
    assert {place and place.partition(" ")[2] for place in places} == {None, "(call)"}
