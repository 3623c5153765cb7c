"""A batch of many tasks is published completely or not at all, and once, whatever crashes or fails."""

from __future__ import annotations

import contextlib
import errno
import json
import random
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK, make_directories
from logwright.core.io.lock import Lock
from logwright.core.publish.manifest import Batch
from logwright.core.publish.staging import discard, is_published, recover_staging
from logwright.errors import DamagedJournal, Locked, LogwrightError, NotFound, StorageFailed, WrongUse
from tests.contract.scenarios import Checked
from tests.contract.staging import ROOT, STAGING, Contents, StagingSubject
from tests.contract.staging_subjects import STAGING_SUBJECTS
from tests.support.children import Child
from tests.support.counts import COUNTS
from tests.support.faulty_disk import every_fault, failing_calls, forgotten_syncs
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file, read_tree, write_file

SPARE_BYTES = 16 << 10
"""The free space that publishing requires besides the records: this much, and this much again for each journal."""


@pytest.fixture(params=STAGING_SUBJECTS.values(), ids=list(STAGING_SUBJECTS))
def staging(request: pytest.FixtureRequest) -> StagingSubject:
    found: StagingSubject = request.param
    return found


@pytest.fixture(params=["there", "new"])
def start(request: pytest.FixtureRequest, staging: StagingSubject) -> tuple[Callable[[], SimulatedDisk], Contents, Any]:
    """A root with journals, or an empty one; its contents before and after the batch."""
    if request.param == "there":
        return staging.with_journals, staging.none, staging.everything
    return staging.empty, {}, staging.alone


# --- what is published ----------------------------------------------------------------------------------------------


def test_empty_batch_publishes_nothing_and_creates_nothing(staging: StagingSubject) -> None:
    disk = staging.empty()
    task = staging.target.stage(ROOT, "run", 0, disk=disk)
    done = staging.publish(disk, "run", [task.finish()], Batch("query", 0))
    assert not done.already
    task = staging.target.stage(ROOT, "run", 1, disk=disk)
    task.append_batch(staging.as_batch(staging.first).slice(0, 0))
    assert staging.publish(disk, "run", [task.finish()], Batch("query", 0)) == done
    assert read_tree(disk, ROOT) == {}


def test_only_reported_files_are_published(staging: StagingSubject) -> None:
    disk = staging.with_journals()
    handed_over = staging.stage_two(disk)
    staging.stage(disk, "run", 0, staging.rows(9, 5))  # another attempt of the same task
    staging.stage(disk, "other", 0, staging.rows(9, 5))
    staging.publish(disk, "run", handed_over)
    assert staging.contents(disk) == staging.everything
    assert {name.partition(".")[0] for name in disk.list_directory(STAGING)} == {"other", "sink"}


def test_slices_of_a_large_batch_are_staged_correctly(staging: StagingSubject) -> None:
    disk = staging.with_journals()
    whole = staging.as_batch(staging.first + staging.second)
    task = staging.target.stage(ROOT, "run", 0, disk=disk)
    for first in range(0, whole.num_rows, 3):
        task.append_batch(whole.slice(first, 3))
    staging.publish(disk, "run", [task.finish()])
    assert staging.contents(disk) == staging.everything


def test_batch_of_a_query_is_published_once(staging: StagingSubject) -> None:
    disk = staging.with_journals()
    staging.publish_two(disk, Batch("query", 7))
    for number in (7, 6, 0):
        assert is_published(ROOT, Batch("query", number), disk=disk)
        assert staging.publish_two(disk, Batch("query", number), "again").already
    assert staging.contents(disk) == staging.everything
    assert disk.list_directory(STAGING) == ["sink.lck"]
    batches = [staging.rows(4, 9, batch) for batch in (1, 2)]
    for rows, batch in zip(batches, (Batch("query", 8), Batch("another/../query", 0)), strict=True):
        assert not is_published(ROOT, batch, disk=disk)
        assert not staging.publish(disk, "run", [staging.stage(disk, "run", 0, rows)], batch).already
    assert staging.contents(disk) == staging.placed(staging.everything, *batches)
    assert len(disk.list_directory(ROOT / ".logwright" / "published")) == 2
    assert not is_published(ROOT, None, disk=disk)


# --- what is refused ------------------------------------------------------------------------------------------------


def test_record_of_the_last_batch_without_a_version_is_valid(staging: StagingSubject) -> None:
    """The first releases wrote it without a version."""
    disk = staging.with_journals()
    path = ROOT / ".logwright" / "published" / "query.json"
    make_directories(disk, path.parent)
    write_file(disk, path, b'{"query": "query", "batch": 5}')
    assert [is_published(ROOT, Batch("query", number), disk=disk) for number in (4, 5, 6)] == [True, True, False]


def test_journal_with_a_live_writer_is_refused_and_nothing_is_published(staging: StagingSubject) -> None:
    disk = staging.with_journals()
    staged = staging.stage_two(disk)
    for part, hold in staging.holders:
        with hold(disk):
            with pytest.raises(Locked, match=rf"{re.escape(part)}\S* is open in a writer: close it"):
                staging.publish(disk, "run", staged, Batch("query", 0))
            with pytest.raises(Locked, match=rf"{re.escape(part)}\S* is open in a writer"):
                staging.target_of(part).refuse_live_writers(ROOT, disk=disk)
            assert staging.contents(disk) == staging.none
        staging.target_of(part).refuse_live_writers(ROOT, disk=disk)
    with staging.bystander(disk):
        staging.publish(disk, "run", staged, Batch("query", 0))
    assert staging.contents(disk) == staging.everything


def test_two_jobs_do_not_publish_at_the_same_time(staging: StagingSubject) -> None:
    disk = staging.with_journals()
    staged = staging.stage_two(disk)
    other = disk.open(STAGING / "sink.lck", "update")
    other.lock()
    with pytest.raises(Locked, match="another job is publishing here"):
        staging.publish(disk, "run", staged)
    other.close()
    staging.publish(disk, "run", staged)
    assert staging.contents(disk) == staging.everything


def test_nothing_is_committed_without_enough_space(staging: StagingSubject) -> None:
    disk = staging.with_journals()
    staged = staging.stage_two(disk)
    disk.capacity_bytes = 1 << 40
    used = disk.capacity_bytes - disk.free_bytes(ROOT)
    size = sum(file.bytes for task in staged for file in task.files)
    spare = SPARE_BYTES * (1 + len({file.part for task in staged for file in task.files}))
    disk.capacity_bytes = used + size + spare - 1
    wanted = rf"the batch needs {size + spare} bytes and {size + spare - 1} are free; nothing was published"
    with pytest.raises(StorageFailed, match=wanted) as caught:
        staging.publish(disk, "run", staged)
    assert caught.value.errno == errno.ENOSPC
    assert staging.contents(disk) == staging.none
    if staging.renames:  # files that only one task has staged need no more space
        disk.capacity_bytes = used + spare
        staging.publish(disk, "run", staged[1:])
        assert staging.contents(disk) == staging.placed(staging.none, staging.first)
        return
    disk.capacity_bytes = None
    staging.recover(disk)
    assert staging.contents(disk) == staging.none


def test_missing_or_shortened_staged_files_are_refused(staging: StagingSubject) -> None:
    disk = staging.with_journals()
    staged = staging.stage_two(disk)
    path = STAGING / staged[0].files[0].name
    write_file(disk, path, b"short")
    with pytest.raises(DamagedJournal, match="5 bytes are here"):
        staging.publish(disk, "run", staged)
    disk.remove(path)
    with pytest.raises(NotFound, match="this staged file is gone; nothing was published"):
        staging.publish(disk, "run", staged)
    assert staging.contents(disk) == staging.none


@pytest.mark.parametrize("run", ["", "a.b", "a/b", "..", "a b"])
def test_run_name_outside_its_directory_is_refused(staging: StagingSubject, run: str) -> None:
    with pytest.raises(WrongUse, match="cannot be the name of a run"):
        staging.target.stage(ROOT, run, 0, disk=staging.empty())


def test_form_of_a_manifest_does_not_change(staging: StagingSubject) -> None:
    """A later release completes the commit of an earlier one."""
    disk = staging.committed()
    manifest = json.loads(read_file(disk, STAGING / "run.manifest"))
    assert manifest | {"parts": []} == {
        "version": 1,
        "format": staging.name,
        "run": "run",
        "batch": {"query": "query", "number": 0},
        "target": asdict(staging.target),
        "parts": [],
    }
    for part in manifest["parts"]:
        assert list(part) == ["name", "start", "files"]
        for file in part["files"]:
            size = disk.file_size(STAGING / file["name"])
            assert file == {"name": file["name"], "part": part["name"], "records": file["records"], "bytes": size}


def with_file(found: dict[str, Any], **file: Any) -> dict[str, Any]:
    part = found["parts"][0]
    return found | {"parts": [part | {"files": [part["files"][0] | file]}]}


WRONG_MANIFESTS: list[Callable[[dict[str, Any]], object]] = [
    lambda found: found | {"version": 2},
    lambda found: found | {"run": "other"},
    lambda found: found | {"format": "nothing"},
    lambda found: {name: value for name, value in found.items() if name != "parts"},
    lambda found: {name: value for name, value in found.items() if name != "version"},
    lambda found: found | {"parts": [found["parts"][0] | {"name": "../x"}]},
    lambda found: found | {"parts": [found["parts"][0] | {"files": [{"name": "run.manifest"}]}]},
    lambda found: with_file(found, name="../x"),
    lambda found: with_file(found, name="other.000000-00.000.staged"),
    lambda found: [],
    lambda found: {},
]


def test_invalid_manifest_is_reported_and_nothing_is_done(staging: StagingSubject) -> None:
    disk = staging.committed()
    path = STAGING / "run.manifest"
    manifest = json.loads(read_file(disk, path))
    part = next(iter(staging.everything))
    for number, change in enumerate([*WRONG_MANIFESTS, *staging.wrong_manifests]):
        write_file(disk, path, json.dumps(change(manifest)).encode())
        before = read_tree(disk, ROOT)
        with pytest.raises(DamagedJournal, match="this manifest of a batch is damaged"):
            staging.recover(disk)
        with pytest.raises(DamagedJournal, match=r"staging/run\.manifest @ 0: this manifest of a batch is damaged"):
            staging.open_writer(disk, part)
        assert read_tree(disk, ROOT) == before, number
        assert disk.open_files == 0


def test_writer_reports_an_invalid_manifest(staging: StagingSubject) -> None:
    disk = staging.with_journals()
    make_directories(disk, STAGING)
    write_file(disk, STAGING / "run.manifest", b"{}")
    with pytest.raises(DamagedJournal, match=r"staging/run\.manifest @ 0: this manifest of a batch is damaged"):
        staging.open_writer(disk, next(iter(staging.none)))
    assert disk.open_files == 0


# --- leftovers ------------------------------------------------------------------------------------------------------


def test_files_of_dead_runs_are_removed_and_of_live_runs_kept(staging: StagingSubject) -> None:
    disk = staging.with_journals()
    staging.stage(disk, "dead", 0, staging.first)
    staged = staging.stage(disk, "at-work", 0, staging.first + staging.second)
    recovered = recover_staging(ROOT, disk=disk, is_dead=lambda run: run == "dead")
    assert recovered.removed_files == len(staged.files) == len(staging.alone)
    assert staging.contents(disk) == staging.none
    staging.publish(disk, "at-work", [staged])
    assert staging.contents(disk) == staging.everything


def test_aborted_run_leaves_no_files(staging: StagingSubject) -> None:
    disk = staging.with_journals()
    before = set(disk.list_directory(ROOT))
    staging.stage_two(disk, "run")
    staging.stage(disk, "other", 0, staging.first)
    discard(ROOT, ["run"], disk=disk)
    assert {name.partition(".")[0] for name in disk.list_directory(STAGING)} == {"other", "sink"}
    task = staging.target.stage(ROOT, "third", 0, disk=disk)
    task.append_batch(staging.as_batch(staging.first))
    task.discard()
    assert {name.partition(".")[0] for name in disk.list_directory(STAGING)} == {"other", "sink"}
    assert set(disk.list_directory(ROOT)) == before | {".logwright"}
    assert staging.contents(disk) == staging.none


def test_committed_batch_is_completed_and_not_discarded(staging: StagingSubject) -> None:
    disk = staging.committed()
    assert staging.contents(disk) == staging.none
    discard(ROOT, ["run"], disk=disk)
    assert staging.recover(disk).rolled_forward == ["run"]
    assert staging.contents(disk) == staging.everything
    assert disk.list_directory(STAGING) == ["sink.lck"]
    assert staging.recover(disk).rolled_forward == []


def test_recovery_creates_nothing_if_nothing_was_staged(staging: StagingSubject) -> None:
    disk = staging.empty()
    assert staging.recover(disk).removed_files == 0
    discard(ROOT, ["run"], disk=disk)
    for part in staging.alone:
        staging.target_of(part).refuse_live_writers(ROOT, disk=disk)
    assert read_tree(disk, ROOT) == {}


def test_incomplete_batch_is_reported_as_committed(staging: StagingSubject) -> None:
    disk = staging.committed()
    first, *others = staging.alone
    with Lock.acquire(disk, staging.lock_path(first)):
        with pytest.raises(Locked, match="is open in a writer") as caught:
            staging.recover(disk)
        assert "The batch is committed" in caught.value.__notes__[0]
        assert f"To continue without it move {STAGING}/run.manifest away" in caught.value.__notes__[0]
        for other in others:
            with pytest.raises(Locked, match=rf"{re.escape(first)}\S* is open in a writer"):
                staging.open_writer(disk, other)
    assert staging.recover(disk).rolled_forward == ["run"]
    assert staging.contents(disk) == staging.everything


# --- writers that come after a crash --------------------------------------------------------------------------------


def test_next_writer_of_any_journal_completes_the_batch_first(staging: StagingSubject) -> None:
    """Even if it writes the same records that were missing: a comparison could not distinguish the two."""
    for write in staging.writers:
        for part, records in staging.everything.items():
            if part not in staging.alone:
                continue
            disk = staging.with_journals()
            staging.publish_two(disk)
            for state in disk.process_kills(format=staging.name):
                was_committed = state.exists(STAGING / "run.manifest")
                before = staging.contents(state)
                missing = records[min(len(before.get(part, [])), len(records) - 1)]
                write(state, part, missing)
                assert not state.exists(STAGING / "run.manifest"), state.story
                found = staging.contents(state)
                found[part].pop()
                expected = staging.everything if was_committed else before
                assert {name: left for name, left in found.items() if left} == expected, state.story
                assert staging.recover(state).rolled_forward == []
                assert state.open_files == 0


def test_power_cut_while_the_next_writer_opens_leaves_all_or_none(staging: StagingSubject) -> None:
    disk = staging.committed()
    staging.open_writer(disk, list(staging.alone)[-1]).close()
    for state in disk.crash_states(most=8, format=staging.name):
        staging.check(state)


def test_whichever_call_of_the_next_writer_fails_it_leaves_all_or_none(staging: StagingSubject) -> None:
    for disk in failing_calls(staging.committed, error=errno.EIO, format=staging.name):
        with contextlib.suppress(LogwrightError):
            staging.open_writer(disk, next(iter(staging.alone))).close()
        staging.check(disk.inner.copy())


def test_no_writer_can_open_while_a_batch_is_published(staging: StagingSubject) -> None:
    disk = staging.committed()
    publisher = disk.open(STAGING / "sink.lck", "update")
    publisher.lock()
    for part in staging.alone:
        with pytest.raises(Locked, match="another job is publishing here"):
            staging.open_writer(disk, part)
    for other in staging.strangers:
        staging.open_writer(disk, other).close()
    publisher.close()
    staging.open_writer(disk, next(iter(staging.alone))).close()
    found = staging.contents(disk)
    assert {part: found[part] for part in staging.everything} == staging.everything


# --- crashes --------------------------------------------------------------------------------------------------------


def test_power_cut_at_any_point_leaves_all_or_none(staging: StagingSubject, start: Any) -> None:
    make, none, everything = start
    outcomes = set()
    for state in staging.published(make()).crash_states(most=staging.most_states, format=staging.name):
        staging.check(state, none, everything)
        outcomes.add(len(state.marks))
    assert outcomes == {0, 1}


def test_staged_files_are_durable_when_the_task_finishes(staging: StagingSubject) -> None:
    disk = staging.with_journals()
    staging.stage_two(disk)
    assert [what for what in disk.unsynced() if what.endswith(".staged")] == []


def test_reordered_name_changes_leave_all_or_none(staging: StagingSubject) -> None:
    disk = staging.published(staging.with_journals())
    for state in disk.crash_states(most=4, kinds=("subset",), reorder_names=True, seed=1, format=staging.name):
        staging.check(state)


def test_power_cut_after_a_kill_restores_no_manifest_without_its_files(staging: StagingSubject) -> None:
    disk = staging.with_journals()
    staging.publish_two(disk, batch=None)
    for killed in disk.process_kills(format=""):
        renamed = any(str(operation).endswith("to " + str(STAGING / "run.manifest")) for operation in killed.operations)
        if not renamed or killed.exists(STAGING / "run.manifest"):
            continue
        staging.recover(killed)
        for state in killed.crash_states(most=12, kinds=("subset",), reorder_names=True, format=staging.name):
            staging.recover(state)
            assert staging.contents(state) == staging.everything, state.story


def test_power_cut_after_a_kill_does_not_forget_a_published_batch(staging: StagingSubject) -> None:
    disk, batch = staging.with_journals(), Batch("query", 7)
    staging.publish_two(disk, batch)
    for killed in disk.process_kills(format=""):
        if is_published(ROOT, batch, disk=killed) and killed.exists(STAGING / "run.manifest"):
            staging.recover(killed)
            done = len(killed.operations)
            for state in killed.crash_states(first=done, most=12, kinds=("subset",), format=staging.name):
                staging.recover(state)
                assert is_published(ROOT, batch, disk=state), state.story


def test_moved_file_has_its_new_name_before_the_old_one_is_removed_after_a_kill(
    staging: StagingSubject,
) -> None:
    disk = staging.with_journals()
    staging.publish_two(disk)
    for killed in disk.process_kills(format=staging.name):
        staging.recover(killed)
        assert killed.moved_unnamed() == [], killed.story


def test_power_cut_after_a_failed_commit_leaves_nothing(staging: StagingSubject) -> None:
    for disk in failing_calls(staging.with_journals, only=["sync directory"], format=staging.name):
        try:
            staging.publish_two(disk, batch=None)
        except StorageFailed as error:
            if getattr(error, "__notes__", []):
                continue  # committed
            done = len(disk.inner.operations)
            for state in disk.inner.crash_states(first=done, most=24, kinds=("subset",), format=staging.name):
                staging.recover(state)
                assert staging.contents(state) == staging.none, state.story


def test_kill_at_any_point_leaves_all_or_none(staging: StagingSubject, start: Any) -> None:
    make, none, everything = start
    for state in staging.published(make()).process_kills(format=staging.name):
        staging.check(state, none, everything)


def test_power_cut_within_the_recovery_leaves_all_or_none(staging: StagingSubject, start: Any) -> None:
    make, none, everything = start
    checked = Checked()
    for number, killed in enumerate(staging.published(make()).process_kills(format="")):
        if number % staging.killed_stride:
            continue
        staging.recover(killed)
        for state in killed.crash_states(most=staging.killed_states, format=staging.name):
            if checked.is_new(state, "published" in state.marks):
                staging.check(state, none, everything)


def test_batch_without_a_query_is_all_or_none(staging: StagingSubject) -> None:
    disk = staging.with_journals()
    staging.publish_two(disk, batch=None)
    disk.mark("published")
    for state in disk.crash_states(most=8, format=staging.name):
        staging.recover(state)
        found = staging.contents(state)
        assert found in (staging.none, staging.everything), state.story
        assert found == staging.everything or "published" not in state.marks, state.story
        staging.recover(state)
        assert staging.contents(state) == found


def test_every_missing_sync_of_a_batch_is_detected(staging: StagingSubject) -> None:
    """Negative control: without any one of these syncs a power cut does damage, and the check detects it."""
    runs = []
    for disk in forgotten_syncs(staging.with_journals):
        staging.publish_two(disk)
        disk.inner.mark("published")
        runs.append((re.sub("-[0-9a-f]{16}", "", disk.failed.replace(f"{ROOT}/.logwright/", "")), disk))
    noticed: set[str] = set()
    for name, disk in reversed(runs):  # of several syncs of one name the last one matters most: the others are skipped
        if ".logwright/" in disk.failed and name not in noticed and harms(staging, disk.inner):
            noticed.add(name)
    files = {f"sync staging/run.{name}.staged" for name in staging.staged_syncs}
    manifest = {"sync staging/run.manifest.tmp", "sync directory staging"}
    assert noticed == {*files, *manifest, "sync published/query.tmp", "sync directory published"}


def harms(staging: StagingSubject, disk: SimulatedDisk) -> bool:
    for state in reversed(list(disk.crash_states(most=4, format=""))):  # most damage shows when all seems to be done
        try:
            staging.check(state)
        except (AssertionError, LogwrightError):
            return True
    return False


# --- failures -------------------------------------------------------------------------------------------------------


def test_whichever_call_fails_all_or_none_is_published(staging: StagingSubject) -> None:
    checked = Checked()
    for disk in every_fault(staging.with_journals, format=staging.name):
        failed = False
        try:
            staging.publish_two(disk)
        except StorageFailed:
            failed = True
        if checked.is_new(disk.inner, failed):
            assert failed or staging.contents(disk.inner) == staging.everything, disk.story
            staging.check(disk.inner.copy())


def test_whichever_call_of_the_recovery_fails_the_next_one_completes_it(staging: StagingSubject) -> None:
    checked = Checked()
    for disk in failing_calls(staging.committed, error=errno.EIO, format=staging.name):
        try:
            staging.recover(disk)
        except StorageFailed:
            assert disk.failures
        if checked.is_new(disk.inner):
            staging.check(disk.inner.copy())
        assert staging.contents(disk.inner) in (staging.none, staging.everything) or disk.failures


def test_full_disk_before_the_commit_leaves_nothing_without_recovery(staging: StagingSubject) -> None:
    disks = failing_calls(staging.with_journals, error=errno.ENOSPC, partial=True, only=["write"], format=staging.name)
    for disk in disks:
        try:
            staging.publish_two(disk)
        except StorageFailed as error:
            if getattr(error, "__notes__", []):
                continue  # committed
            assert staging.contents(disk.inner) == staging.none, disk.story
            discard(ROOT, ["run"], disk=disk.inner)
            assert staging.recover(disk.inner).rolled_forward == [], disk.story
            assert staging.contents(disk.inner) == staging.none, disk.story


# --- the death of real processes --------------------------------------------------------------------------------------


CHILD = (
    "import sys; from pathlib import Path; from tests.contract.staging_subjects import STAGING_SUBJECTS;"
    "STAGING_SUBJECTS[sys.argv[1]].publish_for_ever(Path(sys.argv[2]), int(sys.argv[3]))"
)


def test_query_publishes_each_batch_once_however_often_it_is_killed(staging: StagingSubject, tmp_path: Path) -> None:
    dice, done = random.Random(7), -1
    for _ in range(10):
        with Child(CHILD, staging.name, tmp_path, done + 1) as child:
            for _ in range(dice.randrange(1, 250)):
                line = child.line()
                done = int(line.split()[1]) if line.startswith("done") else done
            child.kill()
        COUNTS.add("kill -9", 1, staging.name)
    staging.publish_number(REAL_DISK, tmp_path, done + 1)
    assert recover_staging(tmp_path).rolled_forward == []
    # A process may have been killed after a batch was done, but before we have read this.
    last = json.loads((tmp_path / ".logwright" / "published" / "query.json").read_text())["batch"]
    assert last >= done + 1
    expected = staging.placed({}, *(staging.batch_of(number) for number in range(last + 1)))
    assert staging.contents(REAL_DISK, tmp_path) == expected
    assert last > 4
