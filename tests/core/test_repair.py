"""Repair plans are executed, interrupted at any point, finished or undone, and never lose a byte."""

from __future__ import annotations

import errno
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logwright.core.bytes.outcome import Span
from logwright.core.format import concerns
from logwright.core.io.disk import Disk
from logwright.core.io.lock import Lock
from logwright.core.io.quarantine import cut_directory
from logwright.core.repair import plan as repair
from logwright.core.repair.losses import Loss, read_losses
from logwright.core.repair.plan import Create, Cut, Patch, Plan, Remove, Rename, Step
from logwright.errors import DamagedJournal, Locked, LogwrightError, NotFound, StorageFailed, WrongUse
from tests.support.damage import noise
from tests.support.faulty_disk import NEEDS_SPACE, SHORT_WRITE, WRITES, Fault, every_fault, forgotten_syncs
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import Tree, differences, read_file, read_tree, write_file

HOME = Path("/journal")
A, B, C, INDEX = noise(2100, seed=1), noise(300, seed=2), noise(700, seed=3), noise(90, seed=4)
FAULTS = (
    Fault(errno.EIO),
    Fault(errno.EIO, forever=True),
    Fault(errno.ENOSPC, forever=True, partial=True, only=NEEDS_SPACE),
    Fault(SHORT_WRITE, forever=True, only=WRITES),
)

PLAN = Plan(
    "test",
    (
        Create("d/new", "a", (Span(500, 900), Span(1000, 1900)), "whole records behind the damage"),
        Patch("d/new", 508, A[1108:1116], b"12345678", "a field was wrong"),
        Patch("a", 20, A[20:24], b"abcd", "another field was wrong"),
        Cut("a", 450, len(A), "no records"),
        Remove("b", "it cannot be read"),
        Create("b", "", (), "a better one", b"new b"),
        Rename("d/c", "d/e", "it belongs there"),
        Remove("index", "it is wrong"),
    ),
    left=("a @ 900: a record is lost",),
    locks=("lock",),
    derived=("index",),
)
BEFORE: Tree = {"a": A, "b": B, "d": None, "d/c": C, "index": INDEX}
AFTER: Tree = {
    "a": A[:20] + b"abcd" + A[24:450],
    "b": b"new b",
    "d": None,
    "d/new": A[500:900] + A[1000:1108] + b"12345678" + A[1116:1900],
    "d/e": C,
}


@pytest.fixture
def disk(simulated_disk: SimulatedDisk) -> SimulatedDisk:
    """A disk with a damaged journal, all of it durable."""
    simulated_disk.make_directory(HOME / "d")
    for name, content in BEFORE.items():
        if content is not None:
            write_file(simulated_disk, HOME / name, content)
    simulated_disk.settle()
    return simulated_disk


def journal(disk: Disk) -> Tree:
    """The files of the journal, without the lock and the kept copies."""
    tree = read_tree(disk, HOME)
    return {name: content for name, content in tree.items() if name != "lock" and not name.startswith(".logwright")}


def is_settled(disk: Disk) -> bool:
    """Whether no repair is in progress."""
    return repair.find_interrupted(disk, HOME) is None


# --- executing and undoing -----------------------------------------------------------------------------------------


def test_plan_is_executed_and_the_log_records_every_location(disk: SimulatedDisk) -> None:
    done = repair.apply(disk, HOME, PLAN)
    assert differences(AFTER, journal(disk)) == []
    assert (done.state, done.done, done.log.parent) == ("done", 8, cut_directory(HOME))
    assert [read_file(disk, path) for path in done.kept] == [A[450:], B, INDEX]
    assert [path.name.rpartition(".")[0] for path in done.kept] == ["a.@450", "b.@0", "index.@0"]
    assert json.loads(read_file(disk, done.log))["steps"][3] == {
        "do": "cut",
        "file": "a",
        "start": 450,
        "end": 2100,
        "reason": "no records",
        "kept": done.kept[0].name,
        "size": 1650,
        "crc": zlib.crc32(A[450:]),
    }


def test_undo_restores_every_byte_of_every_file(disk: SimulatedDisk) -> None:
    repair.apply(disk, HOME, PLAN)
    undone = repair.undo(disk, HOME)
    assert differences(BEFORE, journal(disk)) == []
    assert (undone.state, undone.done) == ("undone", 0)
    with pytest.raises(NotFound, match="no repair"):
        repair.undo(disk, HOME)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("content", [None, b"", lambda data: data[:-1], lambda data: bytes([data[0] ^ 1]) + data[1:]])
def test_undo_changes_nothing_if_a_copy_was_modified(
    disk: SimulatedDisk, number: int, content: bytes | Callable[[bytes], bytes] | None
) -> None:
    copy = repair.apply(disk, HOME, PLAN).kept[number]
    kept = read_file(disk, copy)
    disk.remove(copy)
    if content is not None:
        write_file(disk, copy, content if isinstance(content, bytes) else content(kept))
    with pytest.raises(DamagedJournal, match=f"{re.escape(str(copy))} @ 0: .* restore it .* nothing was changed"):
        repair.undo(disk, HOME)
    assert differences(AFTER, journal(disk)) == []
    assert is_settled(disk)
    write_file(disk, copy, kept)
    repair.undo(disk, HOME)
    assert differences(BEFORE, journal(disk)) == []


def test_repair_can_be_repeated_after_undo(disk: SimulatedDisk) -> None:
    first = repair.apply(disk, HOME, PLAN)
    repair.undo(disk, HOME)
    second = repair.apply(disk, HOME, PLAN)
    assert differences(AFTER, journal(disk)) == []
    assert second.log.name > first.log.name
    assert [one.state for one in repair.list_repairs(disk, HOME)] == ["undone", "done"]


def test_repairs_are_undone_one_by_one_latest_first(disk: SimulatedDisk) -> None:
    one = Plan("test", (Patch("a", 0, A[:1], b"!", "first"),))
    two = Plan("test", (Patch("a", 0, b"!", b"?", "second"),))
    repair.apply(disk, HOME, one)
    repair.apply(disk, HOME, two)
    assert repair.undo(disk, HOME).plan.steps == two.steps
    assert journal(disk)["a"] == b"!" + A[1:]
    assert repair.undo(disk, HOME).plan.steps == one.steps
    assert journal(disk) == BEFORE


def test_plan_is_printed_as_text_and_as_json() -> None:
    assert PLAN.describe() == [
        "d/new: create with 1300 bytes from a @ 500 (400 bytes), @ 1000 (900 bytes): whole records behind the damage",
        f"d/new @ 508: change {A[1108:1116].hex()} to 3132333435363738: a field was wrong",
        f"a @ 20: change {A[20:24].hex()} to 61626364: another field was wrong",
        "a @ 450: cut off 1650 bytes: no records",
        "b: move away: it cannot be read",
        "b: create with 5 bytes: a better one",
        "d/c: rename to d/e: it belongs there",
        "index: move away: it is wrong",
        "cannot be repaired: a @ 900: a record is lost",
    ]
    document = PLAN.as_json()
    assert json.loads(json.dumps(document)) == document
    assert (document["format"], document["left"], document["interrupted"]) == (
        "test",
        ["a @ 900: a record is lost"],
        False,
    )
    assert [step["do"] for step in document["steps"]] == [
        "create", "patch", "patch", "cut", "remove", "create", "rename", "remove",
    ]  # fmt: skip
    assert (PLAN.empty, PLAN.kept_bytes, Plan("test").empty) == (False, 1650, True)


def test_plan_can_be_printed_relative_to_the_parent_directory(disk: SimulatedDisk) -> None:
    seen = PLAN.within("journal")
    assert [step.file for step in seen.steps[:3]] == ["journal/d/new", "journal/d/new", "journal/a"]
    assert (seen.locks, seen.derived) == (("journal/lock",), ("journal/index",))
    assert seen.left == ("journal/a @ 900: a record is lost",)
    repair.apply(disk, Path("/"), seen)
    assert differences(AFTER, journal(disk)) == []
    repair.undo(disk, Path("/"))
    assert differences(BEFORE, journal(disk)) == []


# --- mismatches are refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a", A + b"!"),
        ("a", A[:-1]),
        ("a", A[:20] + b"?" + A[21:]),
        ("d/new", b""),
        ("d/e", b""),
    ],
)
def test_outdated_plan_changes_nothing(disk: SimulatedDisk, name: str, content: bytes) -> None:
    write_file(disk, HOME / name, content)
    now = journal(disk)
    with pytest.raises(WrongUse, match="plan it again"):
        repair.apply(disk, HOME, PLAN)
    assert journal(disk) == now
    assert repair.list_repairs(disk, HOME) == []


@pytest.mark.parametrize("name", ["a", "b"])
def test_plan_for_missing_files_changes_nothing(disk: SimulatedDisk, name: str) -> None:
    disk.remove(HOME / name)
    with pytest.raises(WrongUse, match=f"/journal/{name} "):
        repair.apply(disk, HOME, PLAN)
    assert repair.list_repairs(disk, HOME) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a", A[:20] + b"abcd" + A[24:450] + b"appended"),
        ("a", A[:450]),
        ("b", b"other"),
        ("d/new", b""),
        ("d/c", b"another process made it again"),
    ],
)
def test_undo_is_refused_if_a_file_changed_since_and_names_it(disk: SimulatedDisk, name: str, content: bytes) -> None:
    repair.apply(disk, HOME, PLAN)
    write_file(disk, HOME / name, content)
    now = journal(disk)
    with pytest.raises(WrongUse, match=f"/journal/{name} was changed since"):
        repair.undo(disk, HOME)
    assert journal(disk) == now
    assert is_settled(disk)


def test_changed_derived_file_does_not_prevent_undo(disk: SimulatedDisk) -> None:
    repair.apply(disk, HOME, PLAN)
    write_file(disk, HOME / "index", b"made again")
    repair.undo(disk, HOME)
    assert differences(BEFORE, journal(disk)) == []


def test_undo_removes_a_derived_file_that_did_not_exist_before(disk: SimulatedDisk) -> None:
    repair.apply(disk, HOME, replace(PLAN, derived=("index", "d/new.index")))
    write_file(disk, HOME / "d/new.index", b"made")
    disk.settle()
    repair.undo(disk, HOME)
    assert differences(BEFORE, journal(disk)) == []
    for state in disk.crash_states(most=4):
        if repair.list_repairs(state, HOME)[0].state == "undone":
            assert not state.exists(HOME / "d/new.index")


def test_empty_plan_is_refused_while_the_journal_is_being_written(disk: SimulatedDisk) -> None:
    empty = Plan("test", locks=("lock",))
    repair.check_unlocked(disk, HOME, empty)
    assert not disk.exists(HOME / "lock")
    with Lock.acquire(disk, HOME / "lock"), pytest.raises(Locked):
        repair.check_unlocked(disk, HOME, empty)
    repair.check_unlocked(disk, HOME, empty)


def test_journal_that_is_being_written_is_not_repaired(disk: SimulatedDisk) -> None:
    with Lock.acquire(disk, HOME / "lock"):
        with pytest.raises(Locked):
            repair.apply(disk, HOME, PLAN)
        assert journal(disk) == BEFORE
    repair.apply(disk, HOME, PLAN)
    with Lock.acquire(disk, HOME / "lock"), pytest.raises(Locked):
        repair.undo(disk, HOME)
    assert differences(AFTER, journal(disk)) == []


def test_repair_does_not_start_without_space_for_the_copies(disk: SimulatedDisk) -> None:
    disk.capacity_bytes = sum(len(content or b"") for content in BEFORE.values()) + 1000
    with pytest.raises(StorageFailed, match="3345 bytes are needed for copies, 1000 are free") as caught:
        repair.apply(disk, HOME, PLAN)
    assert caught.value.errno == errno.ENOSPC
    assert journal(disk) == BEFORE
    assert repair.list_repairs(disk, HOME) == []


@pytest.mark.parametrize("name", ["../out", "/etc/passwd", "d/../../out", "d//x", "", ".", "a\\b", "a\0b"])
def test_names_outside_the_directory_are_refused(disk: SimulatedDisk, name: str) -> None:
    source = Create("x", name, (Span(0, 1),), "")
    for step in (Remove(name, ""), Create(name, "", (), "", b"x"), Rename("a", name, ""), source):
        with pytest.raises(WrongUse, match="not the name of a file"):
            repair.apply(disk, HOME, Plan("test", (step,)))
    assert journal(disk) == BEFORE


def _replace_word(word: bytes, other: bytes) -> Callable[[bytes], bytes]:
    return lambda text: text.replace(word, other)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: b"",
        lambda text: b"[]",
        lambda text: b"7",
        lambda text: b"[" * 100_000,
        _replace_word(b'"version": 1', b'"version": 2'),
        _replace_word(b'"do": "cut"', b'"do": "burn"'),
        _replace_word(b'"kept": "', b'"kept": "../'),
        _replace_word(b'"done": 8', b'"done": 9'),
        _replace_word(b'"state": "done"', b'"state": "?"'),
        _replace_word(b'"old": "', b'"old": "zz'),
    ],
)
def test_damaged_log_is_reported_and_changes_nothing(disk: SimulatedDisk, damage: Callable[[bytes], bytes]) -> None:
    done = repair.apply(disk, HOME, PLAN)
    write_file(disk, done.log, damage(read_file(disk, done.log)))
    for verb in (repair.undo, repair.resume_plan):
        with pytest.raises(DamagedJournal, match="this log of a repair is damaged") as caught:
            verb(disk, HOME)
        assert caught.value.file == done.log
    assert differences(AFTER, journal(disk)) == []


def test_log_with_a_name_outside_the_directory_is_refused(disk: SimulatedDisk) -> None:
    done = repair.apply(disk, HOME, PLAN)
    write_file(disk, done.log, read_file(disk, done.log).replace(b'"file": "a"', b'"file": "../a"'))
    with pytest.raises(WrongUse, match="not the name of a file"):
        repair.undo(disk, HOME)


# --- interrupted ----------------------------------------------------------------------------------------------------


def finished(disk: SimulatedDisk) -> Tree:
    """The journal after the interrupted repair was finished, or started again if it had not begun."""
    plan = repair.resume_plan(disk, HOME)
    standing = [one for one in repair.list_repairs(disk, HOME) if one.state == "done"]
    if not standing:
        repair.apply(disk, HOME, plan or PLAN)
    assert is_settled(disk)
    return journal(disk)


def taken_back(disk: SimulatedDisk) -> Tree:
    """The journal after the repair was undone, if it had begun."""
    if any(one.state != "undone" for one in repair.list_repairs(disk, HOME)):
        repair.undo(disk, HOME)
    assert is_settled(disk)
    return journal(disk)


def nothing_is_lost(state: SimulatedDisk) -> bool:
    """After a crash the repair can be finished, and it can be undone, to the last byte."""
    if "repaired" in state.marks and differences(AFTER, journal(state)):
        return False
    if "undone" in state.marks and differences(BEFORE, journal(state)):
        return False
    try:
        done = "undone" in state.marks or not differences(AFTER, finished(state.copy()))
        return done and not differences(BEFORE, taken_back(state.copy()))
    except LogwrightError:
        return False


def test_repair_can_be_finished_or_undone_after_every_crash(disk: SimulatedDisk) -> None:
    repair.apply(disk, HOME, PLAN)
    disk.mark("repaired")
    seen = set()
    for state in disk.crash_states(most=10):
        seen.add(tuple((one.state, one.done) for one in repair.list_repairs(state, HOME)))
        assert nothing_is_lost(state)
    assert seen == {(), *((("applying", done),) for done in range(9)), (("done", 8),)}


def test_undo_can_be_finished_after_every_crash(disk: SimulatedDisk) -> None:
    repair.apply(disk, HOME, PLAN)
    disk.settle()
    repair.undo(disk, HOME)
    disk.mark("undone")
    seen = set()
    for state in disk.crash_states(most=10):
        (one,) = repair.list_repairs(state, HOME)
        seen.add((one.state, one.done))
        if one.state == "undoing":
            with pytest.raises(WrongUse, match="was interrupted; undo it again first"):
                repair.resume_plan(state, HOME)
        assert differences(BEFORE, taken_back(state)) == []
    assert seen == {("done", 8), *(("undoing", done) for done in range(9)), ("undone", 0)}


def test_repair_can_be_finished_or_undone_after_a_kill_and_a_crash(disk: SimulatedDisk) -> None:
    repair.apply(disk, HOME, PLAN)
    for number, state in enumerate(disk.process_kills()):
        assert nothing_is_lost(state)
        if number % 8 == 0:
            taken_back(state)
            for again in state.crash_states(most=2):
                assert differences(BEFORE, taken_back(again)) == []


def test_repair_can_be_finished_or_undone_after_a_failure_of_any_call(disk: SimulatedDisk) -> None:
    for faulty in every_fault(disk.copy, FAULTS):
        try:
            repair.apply(faulty, HOME, PLAN)
        except StorageFailed:
            assert faulty.failures
        else:
            faulty.inner.mark("repaired")
        assert faulty.inner.open_files == 0
        assert nothing_is_lost(faulty.inner)


def test_undo_can_be_finished_after_a_failure_of_any_call(disk: SimulatedDisk) -> None:
    repair.apply(disk, HOME, PLAN)
    for faulty in every_fault(disk.copy, FAULTS):
        try:
            repair.undo(faulty, HOME)
        except StorageFailed:
            assert faulty.failures
        assert faulty.inner.open_files == 0
        assert differences(BEFORE, taken_back(faulty.inner)) == []


def test_every_missing_sync_of_a_repair_is_detected(disk: SimulatedDisk) -> None:
    plan = Plan("test", (Create("new", "a", (Span(500, 2100),), ""), Cut("a", 450, len(A), "")))
    before, after = {"a": A}, {"a": A[:450], "new": A[500:]}

    def holds(state: SimulatedDisk) -> bool:
        files = {name: content for name, content in journal(state).items() if name in ("a", "new")}
        if "repaired" in state.marks and files != after:
            return False
        try:
            repair.undo(state, HOME)
        except NotFound:
            return files == before
        except LogwrightError:
            return False
        return {name: content for name, content in journal(state).items() if name in ("a", "new")} == before

    found_out = []
    for faulty in forgotten_syncs(disk.copy):
        repair.apply(faulty, HOME, plan)
        faulty.inner.mark("repaired")
        name = re.sub(r"\d{5,}", "TIME", faulty.failed.replace(f"{cut_directory(HOME)}", "CUT"))
        found_out.append((name, not all(map(holds, faulty.inner.crash_states(format="", most=12)))))
    assert found_out == [
        ("sync directory /", False),  # needed only if the creator of the journal was killed
        ("sync directory /journal", False),  # these names are synced again before the first change
        ("sync directory /journal/.logwright", False),
        ("sync directory /journal/.logwright", False),
        ("sync CUT/a.@450.TIME", True),
        ("sync directory CUT", False),  # as is the name of the copy, with that of the log
        ("sync CUT/repair-TIME.tmp", True),
        ("sync directory CUT", True),
        ("sync /journal/new.repairing", True),
        ("sync directory /journal", True),
        ("sync CUT/repair-TIME.tmp", True),
        ("sync directory CUT", True),
        ("sync /journal/a", True),
        ("sync CUT/repair-TIME.tmp", True),
        ("sync directory CUT", False),  # the last steps of the log may be lost: they are already done
        ("sync CUT/repair-TIME.tmp", True),
        ("sync directory CUT", False),
        ("", False),
    ]


def test_many_patches_of_a_file_are_finished_or_undone_as_one_step(disk: SimulatedDisk) -> None:
    patches = tuple(Patch("a", at, A[at : at + 8], noise(8, at), "") for at in range(500, 2000, 150))
    plan = Plan("test", (Patch("b", 0, B[:2], b"??", ""), *patches, Cut("a", 2050, len(A), "")))
    repair.apply(disk, HOME, plan)
    after = journal(disk)
    seen = set()
    for state in [*disk.crash_states(most=10), *disk.process_kills()]:
        logs = repair.list_repairs(state, HOME)
        seen |= {one.done for one in logs}
        undone = state.copy()
        if logs:
            repair.undo(undone, HOME)
        assert differences(BEFORE, journal(undone)) == []
        if not logs or logs[0].state == "applying":
            repair.apply(state, HOME, plan)
        assert differences(after, journal(state)) == []
    assert seen == {0, 1, 11, 12}


def test_interrupted_repair_must_be_finished_or_undone_before_another(disk: SimulatedDisk) -> None:
    repair.apply(disk, HOME, PLAN)
    other = Plan("test", (Patch("a", 0, A[:1], b"!", ""),))
    for state in disk.process_kills():
        if repair.find_interrupted(state, HOME) is not None:
            plan = repair.resume_plan(state, HOME)
            assert plan == replace(PLAN, interrupted=True)
            assert plan.describe()[0] == "finish the repair that was interrupted:"
            with pytest.raises(WrongUse, match="was interrupted; finish it, or undo it"):
                repair.apply(state, HOME, other)


def test_records_appended_during_an_interrupted_repair_are_not_lost(disk: SimulatedDisk) -> None:
    repair.apply(disk, HOME, PLAN)
    for state in disk.process_kills():
        one = repair.find_interrupted(state, HOME)
        if one is None or not state.exists(HOME / "d/new") or one.done < 2:
            continue
        write_file(state, HOME / "d/new", read_file(state, HOME / "d/new") + b"appended")
        again = state.copy()
        repair.apply(again, HOME, PLAN)
        assert read_file(again, HOME / "d/new") == (AFTER["d/new"] or b"") + b"appended"
        with pytest.raises(WrongUse, match="d/new was changed since"):
            repair.undo(again, HOME)
        with pytest.raises(WrongUse, match="d/new is not what this repair left"):
            repair.undo(state, HOME)
        assert read_file(state, HOME / "d/new").endswith(b"appended")


def test_bytes_after_a_cut_that_have_no_copy_are_never_cut(disk: SimulatedDisk) -> None:
    plan = Plan("test", (Cut("a", 450, len(A), ""),))
    repair.apply(disk, HOME, plan)
    for state in disk.process_kills():
        one = repair.find_interrupted(state, HOME)
        if one is None or one.done:
            continue
        other = noise(len(A), seed=9)
        write_file(state, HOME / "a", other)
        with pytest.raises(WrongUse, match="nothing more was changed"):
            repair.apply(state, HOME, plan)
        with pytest.raises(WrongUse, match="nothing more was changed"):
            repair.undo(state, HOME)
        assert journal(state)["a"] == other


# --- plans that cannot be carried out -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "what"),
    [
        ((Patch("a", 20, b"1234", b"abcd", ""), Patch("a", 23, b"4567", b"4568", "")), "two steps change a @ 23"),
        ((Patch("a", 20, b"1", b"2", ""), Remove("b", ""), Patch("a", 20, b"1", b"3", "")), "two steps change a @ 20"),
        ((Patch("a", 20, b"12", b"1", ""),), "prevents this one: a @ 20: change"),
        ((Patch("a", 20, b"12", b"13", ""), Cut("a", 21, 30, "")), "prevents this one: a @ 21: cut off"),
        ((Cut("a", 21, 30, ""), Patch("a", 20, b"12", b"13", "")), "prevents this one: a @ 20: change"),
        ((Cut("a", 21, 30, ""), Cut("a", 20, 21, "")), "prevents this one: a @ 20: cut off"),
        ((Cut("a", 21, 30, ""), Remove("a", "")), "prevents this one: a: move away"),
        ((Remove("a", ""), Remove("a", "")), "prevents this one: a: move away"),
        ((Remove("a", ""), Patch("a", 20, b"12", b"13", "")), "prevents this one: a @ 20: change"),
        ((Rename("a", "c", ""), Cut("a", 21, 30, "")), "prevents this one: a @ 21: cut off"),
        ((Cut("a", 21, 30, ""), Create("c", "a", (Span(0, 20),), "")), "prevents this one: c: create"),
    ],
)
def test_conflicting_steps_are_refused_at_planning(steps: tuple[Step, ...], what: str) -> None:
    with pytest.raises(LogwrightError, match=f"internal error in the plan of a repair: .*{what}.*nothing was changed"):
        Plan("test", steps)
    for number in range(len(steps)):
        with pytest.raises(LogwrightError, match="internal error"):
            Plan("test", steps[:number]) + Plan("test", steps[number:])


def test_adjacent_patches_and_patches_in_a_new_file_do_not_conflict() -> None:
    steps = (
        Patch("a", 20, b"12", b"ab", ""),
        Patch("a", 22, b"34", b"cd", ""),
        Remove("b", ""),
        Create("b", "", (), "", b"other"),
        Patch("b", 0, b"o", b"O", ""),
        Rename("b", "c", ""),
        Patch("c", 1, b"t", b"T", ""),
    )
    assert Plan("test", steps).steps == steps


def test_repair_that_finds_a_changed_file_undoes_its_steps(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = disk.remove

    def meddle(path: Path) -> None:
        """Another program writes to a file and ignores the lock."""
        remove(path)
        if path == HOME / "b":
            write_file(disk, HOME / "d/e", b"meddled")

    monkeypatch.setattr(disk, "remove", meddle)
    with pytest.raises(WrongUse, match=r"d/e is not what this repair left .*, and the steps before it were undone"):
        repair.apply(disk, HOME, PLAN)
    assert differences({**BEFORE, "d/e": b"meddled"}, journal(disk)) == []
    assert is_settled(disk)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("open", "a"),
        ("open", "b"),
        ("open", "d/new.repairing"),
        ("remove", "b"),
        ("rename", "d/c"),
        ("remove", "index"),
    ],
)
def test_repair_without_access_to_a_file_undoes_its_steps(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch, call: str, name: str
) -> None:
    original = getattr(disk, call)

    def refuse(path: Path, *arguments: Any) -> Any:
        """Nothing is refused to a user who only reads."""
        if path == HOME / name and arguments != ("read",):
            raise StorageFailed(call, path, OSError(errno.EACCES, "Permission denied"))
        return original(path, *arguments)

    monkeypatch.setattr(disk, call, refuse)
    lost = replace(PLAN, losses=(Loss("a", 900, 100, 1, 1, "a record", "it was bad"),))
    with pytest.raises(StorageFailed, match=f"{call} .*{name}: Permission denied; give this user access to it"):
        repair.apply(disk, HOME, lost)
    assert differences(BEFORE, journal(disk)) == []
    assert is_settled(disk)
    assert read_losses(disk, HOME) == []
    monkeypatch.undo()
    repair.apply(disk, HOME, lost)
    assert differences(AFTER, journal(disk)) == []


@pytest.mark.parametrize(
    ("format", "file", "parts"),
    [
        ("versioned", "a.jrn", ["", "a", "a.jrn"]),
        ("versioned", "a.jrn.t5.zz", ["", "a", "a.jrn"]),
        ("versioned", "a.b.jrn", ["", "a.b"]),
        ("versioned", "a.b.jrn.old", ["", "a.b"]),
        ("versioned", "ab.jrn", [""]),
        ("kestrel", "a", ["", "a"]),
        ("kestrel", "a.17.pack", ["", "a"]),
        ("kestrel", "a~~17", ["", "a"]),
        ("sej", "a.b/jnl/0000000000000000.jnl", ["", "a.b"]),
        ("sej", "a/jnl/0000000000000000.jnl", ["", "a"]),
        ("yeltsin", "a", ["", "a"]),
        ("yeltsin", "a.jrn", ["", "a.jrn"]),
        ("unknown", "a.17", ["", "a"]),
    ],
)
def test_repair_concerns_the_parts_whose_files_it_changes(format: str, file: str, parts: list[str]) -> None:
    found = repair.Repair(Path("/home/.logwright/cut/log"), Plan(format, (Remove(file, ""),)), [])
    assert [part for part in ("", "a", "a.b", "a.jrn") if concerns(found, part)] == parts
