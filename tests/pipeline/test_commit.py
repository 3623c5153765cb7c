"""All tables of a batch appear together or not at all, whatever fails and whenever."""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from logwright.core.io.disk import Disk, make_directories, write_all
from logwright.errors import DamagedJournal, Locked, LogwrightError, NotFound, StorageFailed, WrongUse
from logwright.pipeline import commit
from logwright.pipeline.commit import Move, Output, Staging, is_being_changed, read_checkpoint, table_files
from tests.support.faulty_disk import FAULTS, RENAMES, FaultyDisk, every_fault, forgotten_syncs
from tests.support.simulated_disk import SimulatedDisk

OUT = Path("/out/tables")
View = dict[str, bytes]


def write(disk: Disk, path: Path, data: bytes) -> None:
    """A file as Spark leaves it: neither its contents nor its name are synced."""
    make_directories(disk, path.parent)
    file = disk.open(path, "create")
    try:
        write_all(file, 0, data)
    finally:
        file.close()


def stage(disk: Disk, staging: Staging, files: dict[str, tuple[str, bytes]]) -> list[Move]:
    """Stage files by where they go: the name that each has meanwhile, and its contents."""
    for source, data in files.values():
        write(disk, staging.path / source, data)
    return [Move(source, target, len(data)) for target, (source, data) in files.items()]


def first_batch(disk: Disk) -> None:
    with Output(OUT, disk=disk) as output:
        staging = output.stage()
        moves = stage(
            disk,
            staging,
            {
                "events/part-00000001-00000.parquet": ("events/a", b"events one"),
                "activity/part-00000001-00000.parquet": ("tables/activity/b", b"activity one"),
                "messages/date=2026-01-01/part-00000001-00000.parquet": ("m/date=2026-01-01/c", b"messages one"),
                "report.html": ("report.html", b"report one"),
            },
        )
        staging.publish(moves, [], {"offsets": {"orders": {"": 10}}})


def second_batch(disk: Disk) -> None:
    """Adds to one table, replaces two others and the report, and leaves a folder empty."""
    with Output(OUT, disk=disk) as output:
        staging = output.stage()
        moves = stage(
            disk,
            staging,
            {
                "events/part-00000002-00000.parquet": ("events/a", b"events two"),
                "activity/part-00000002-00000.parquet": ("tables/activity/b", b"activity two"),
                "messages/date=2026-01-02/part-00000002-00000.parquet": ("m/date=2026-01-02/c", b"messages two"),
                "report.html": ("report.html", b"report two"),
            },
        )
        replaced = [*table_files(OUT, "activity", disk=disk), *table_files(OUT, "messages", disk=disk)]
        staging.publish(moves, replaced, {"offsets": {"orders": {"": 20}}})


def contents(disk: Disk, path: Path) -> bytes:
    file = disk.open(path, "read")
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def view(disk: Disk) -> View:
    """What a reader finds: the files of all tables, the report, and the checkpoint."""
    names = [name for table in ("events", "activity", "messages") for name in table_files(OUT, table, disk=disk)]
    found = {name: contents(disk, OUT / name) for name in [*names, "report.html"] if disk.exists(OUT / name)}
    checkpoint = read_checkpoint(OUT, disk=disk)
    return {**found, "checkpoint": json.dumps(None if checkpoint is None else checkpoint.state).encode()}


OLD = {
    "events/part-00000001-00000.parquet": b"events one",
    "activity/part-00000001-00000.parquet": b"activity one",
    "messages/date=2026-01-01/part-00000001-00000.parquet": b"messages one",
    "report.html": b"report one",
    "checkpoint": b'{"offsets": {"orders": {"": 10}}}',
}
NEW = {
    "events/part-00000001-00000.parquet": b"events one",
    "events/part-00000002-00000.parquet": b"events two",
    "activity/part-00000002-00000.parquet": b"activity two",
    "messages/date=2026-01-02/part-00000002-00000.parquet": b"messages two",
    "report.html": b"report two",
    "checkpoint": b'{"offsets": {"orders": {"": 20}}}',
}


def started() -> SimulatedDisk:
    """A disk on which one batch was published and is durable."""
    disk = SimulatedDisk()
    disk.make_directory(OUT.parent)
    first_batch(disk)
    disk.settle()
    return disk


def recover(disk: Disk) -> View:
    """What is there once another run has begun, which must leave nothing half done."""
    Output(OUT, disk=disk).close()
    assert not is_being_changed(OUT, disk=disk)
    assert not disk.exists(OUT / commit.HOME / "staging")
    return view(disk)


# --- without faults -------------------------------------------------------------------------------------------------


def test_a_batch_is_published_with_its_checkpoint() -> None:
    disk = started()
    assert view(disk) == OLD
    second_batch(disk)
    assert view(disk) == NEW
    assert disk.list_directory(OUT / "messages") == ["date=2026-01-02"]
    assert disk.list_directory(OUT / commit.HOME) == ["lock", "pipeline.json"]
    checkpoint = read_checkpoint(OUT, disk=disk)
    assert checkpoint is not None
    assert checkpoint.batch == 2


def test_discarded_batch_leaves_no_files() -> None:
    disk = started()
    with Output(OUT, disk=disk) as output:
        staging = output.stage()
        write(disk, staging.path / "events/a", b"never")
        staging.discard()
        assert output.batch == 2
    assert view(disk) == OLD
    assert not disk.exists(staging.path)


def test_only_one_run_works_at_a_time() -> None:
    disk = started()
    with Output(OUT, disk=disk), pytest.raises(Locked, match="another run of the pipeline"):
        Output(OUT, disk=disk)
    Output(OUT, disk=disk).close()


def test_directory_with_foreign_files_is_refused() -> None:
    disk = SimulatedDisk()
    make_directories(disk, OUT)
    write(disk, OUT / "thesis.txt", b"precious")
    with pytest.raises(WrongUse, match=r"contains other files \(thesis.txt"):
        Output(OUT, disk=disk)
    assert disk.list_directory(OUT) == ["thesis.txt"]
    write(disk, Path("/file"), b"")
    with pytest.raises(WrongUse, match="/file is not a directory"):
        Output(Path("/file"), disk=disk)


def test_foreign_files_in_a_table_are_ignored() -> None:
    disk = started()
    write(disk, OUT / "activity" / "notes.txt", b"mine")
    write(disk, OUT / "activity" / "part-0.parquet", b"mine too")
    assert table_files(OUT, "activity", disk=disk) == ["activity/part-00000001-00000.parquet"]
    second_batch(disk)
    assert disk.list_directory(OUT / "activity") == ["notes.txt", "part-0.parquet", "part-00000002-00000.parquet"]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("a", "../events/part-00000002-00000.parquet"),
        ("a", "events/../../part-00000002-00000.parquet"),
        ("a", "/events/part-00000002-00000.parquet"),
        ("a", "_logwright/part-00000002-00000.parquet"),
        ("a", "events/below/part-00000002-00000.parquet"),
        ("a", "part-00000002-00000.parquet"),
        ("a", "events/other.parquet"),
        ("../a", "events/part-00000002-00000.parquet"),
        ("/a", "events/part-00000002-00000.parquet"),
    ],
)
def test_names_outside_their_directory_are_refused(source: str, target: str) -> None:
    disk = started()
    with Output(OUT, disk=disk) as output:
        staging = output.stage()
        with pytest.raises(WrongUse):
            staging.publish([Move(source, target, 0)], [], {})
        with pytest.raises(WrongUse):
            staging.publish([], ["events/../../thesis.txt"], {})
    assert view(disk) == OLD


def test_file_that_differs_from_its_report_is_not_published() -> None:
    disk = started()
    with Output(OUT, disk=disk) as output:
        staging = output.stage()
        write(disk, staging.path / "a", b"short")
        with pytest.raises(DamagedJournal, match="the file has 5 bytes, but 50 were staged"):
            staging.publish([Move("a", "events/part-00000002-00000.parquet", 50)], [], {})
        with pytest.raises(NotFound):
            staging.publish([Move("b", "events/part-00000002-00000.parquet", 1)], [], {})
        staging.discard()
    assert view(disk) == OLD


@pytest.mark.parametrize("name", ["manifest.json", "pipeline.json"])
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version": 2}', b'{"version": 1}', b'{"version": 1, "run": 5}'])
def test_invalid_control_file_is_an_error_that_names_it(name: str, data: bytes) -> None:
    disk = started()
    disk.remove(OUT / commit.HOME / name)
    write(disk, OUT / commit.HOME / name, data)
    with pytest.raises(DamagedJournal, match=name):
        Output(OUT, disk=disk)


def test_a_manifest_of_this_form_is_completed() -> None:
    """The form of a manifest does not change: a later release completes what an earlier one has committed."""
    disk = started()
    write(disk, OUT / commit.HOME / "staging" / "0123456789abcdef" / "events" / "a", b"events two")
    manifest = {
        "version": 1,
        "run": "0123456789abcdef",
        "batch": 2,
        "moves": [{"source": "events/a", "target": "events/part-00000002-00000.parquet", "bytes": 10}],
        "removals": ["activity/part-00000001-00000.parquet"],
        "state": {"offsets": {"orders": {"": 20}}},
    }
    write(disk, OUT / commit.HOME / "manifest.json", json.dumps(manifest).encode())
    assert recover(disk) == {
        "events/part-00000001-00000.parquet": b"events one",
        "events/part-00000002-00000.parquet": b"events two",
        "messages/date=2026-01-01/part-00000001-00000.parquet": b"messages one",
        "report.html": b"report one",
        "checkpoint": b'{"offsets": {"orders": {"": 20}}}',
    }
    checkpoint = read_checkpoint(OUT, disk=disk)
    assert checkpoint is not None
    assert checkpoint.batch == 2


# --- power cuts and kills -------------------------------------------------------------------------------------------


def published(run: Callable[[SimulatedDisk], None] = second_batch) -> SimulatedDisk:
    """A disk that remembers what publishing did."""
    disk = started()
    run(disk)
    disk.mark("published")
    return disk


def check(disk: SimulatedDisk) -> None:
    found = recover(disk)
    expected = (NEW,) if "published" in disk.marks else (OLD, NEW)
    assert found in expected, disk.story


def test_power_cut_at_any_moment_leaves_the_old_or_the_new_state() -> None:
    for after in published().crash_states(most=24, format="pipeline"):
        check(after)


def test_power_cut_during_recovery_leaves_the_old_or_the_new_state() -> None:
    for after in published().crash_states(most=4, format=""):
        decided = is_being_changed(OUT, disk=after)
        recovered = after.copy()
        recovered.marks = list(after.marks)
        first = recover(recovered)
        if decided:
            assert first == NEW
        for again in recovered.crash_states(most=3, kinds=("order", "subset"), format="pipeline"):
            assert recover(again) == first, f"{after.story}\n{again.story}"


def test_kill_and_power_cut_leave_the_old_or_the_new_state() -> None:
    for after in published().process_kills(format="pipeline"):
        check(after)
    for after in published().process_kills(format=""):
        before = recover(after)
        for again in after.crash_states(most=3, kinds=("order",), format="pipeline"):
            found = recover(again)
            assert found in (OLD, NEW), again.story
            if "published" in after.marks:
                assert found == before == NEW


def test_first_batch_is_complete_or_absent() -> None:
    disk = SimulatedDisk()
    disk.make_directory(OUT.parent)
    disk.settle()
    first_batch(disk)
    disk.mark("published")
    for after in disk.crash_states(most=16, format="pipeline"):
        found = recover(after)
        assert found == OLD or (found == {"checkpoint": b"null"} and "published" not in after.marks), after.story


def test_every_missing_sync_is_detected() -> None:
    """The negative control: every sync of a file or of a table's folder is there for a crash that needs it."""
    tried = []
    for disk in forgotten_syncs(started):
        second_batch(disk)
        disk.inner.mark("published")
        if disk.failed.startswith("sync /") or any(table in disk.failed for table in ("events", "activity", "date=")):
            tried.append(disk.failed)
            assert _is_noticed(disk.inner), disk.failed
    assert len(tried) >= 12


def _is_noticed(disk: SimulatedDisk) -> bool:
    for after in disk.crash_states(most=24, format=""):
        try:
            check(after)
        except (AssertionError, LogwrightError):
            return True
    return False


# --- calls that fail ------------------------------------------------------------------------------------------------


def test_whichever_call_fails_the_old_or_the_new_state_remains() -> None:
    for disk in every_fault(started, FAULTS, format="pipeline"):
        done = False
        with contextlib.suppress(LogwrightError):
            second_batch(disk)
            done = True
        found = recover(disk.inner)
        assert found in ((NEW,) if done else (OLD, NEW)), disk.story
        assert disk.inner.open_files == 0, disk.story


def test_rolled_back_decision_does_not_reappear_after_a_power_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = started()
    sync_directory = disk.sync_directory

    def fails_once_decided(path: Path) -> None:
        if is_being_changed(OUT, disk=disk):
            raise StorageFailed("sync directory", path, OSError(errno.EIO, "Input/output error"))
        sync_directory(path)

    monkeypatch.setattr(disk, "sync_directory", fails_once_decided)
    with Output(OUT, disk=disk) as output:
        staging = output.stage()
        moves = stage(disk, staging, {"events/part-00000002-00000.parquet": ("events/a", b"events two")})
        with pytest.raises(StorageFailed, match="Input/output error"):
            staging.publish(moves, [], {})
        staging.discard()
    assert view(disk) == OLD
    for after in disk.crash_states(most=24, kinds=("order", "subset"), format="pipeline"):
        decided = is_being_changed(OUT, disk=after)
        found = recover(after)
        assert found.pop("events/part-00000002-00000.parquet", None) == (b"events two" if decided else None)
        assert found == (OLD | {"checkpoint": b"{}"} if decided else OLD), after.story


def test_failure_after_the_decision_says_that_the_next_run_completes_it() -> None:
    disk = FaultyDisk(started(), 2, only=RENAMES)  # the first one is that of the manifest
    with pytest.raises(StorageFailed) as raised:
        second_batch(disk)
    assert "the next run completes it" in raised.value.__notes__[0]
    with Output(OUT, disk=disk.inner) as output:
        assert output.completed
    assert view(disk.inner) == NEW


def test_whichever_call_of_recovery_fails_the_next_recovery_completes_it() -> None:
    for disk in every_fault(_interrupted, FAULTS, format="pipeline"):
        with contextlib.suppress(LogwrightError):
            Output(OUT, disk=disk).close()
        assert recover(disk.inner) == NEW, disk.story


def _interrupted() -> SimulatedDisk:
    """A disk on which a batch was decided, and the process killed right then."""
    kills = published().process_kills(format="")
    return next(after.copy() for after in kills if is_being_changed(OUT, disk=after))


def test_failed_run_discards_staged_files_but_nothing_decided() -> None:
    for disk in every_fault(started, FAULTS, format="pipeline"):
        try:
            with Output(OUT, disk=disk) as output:
                staging = output.stage()
                moves = stage(disk, staging, {"events/part-00000002-00000.parquet": ("events/a", b"events two")})
                try:
                    staging.publish(moves, [], {})
                except LogwrightError:
                    staging.discard()
        except LogwrightError:
            continue
        found = recover(disk.inner)
        assert found["events/part-00000001-00000.parquet"] == b"events one", disk.story
        if found != OLD:
            assert found["events/part-00000002-00000.parquet"] == b"events two", disk.story
