"""Restoring journals: names stay below the directory, one restore runs at a time, and its result is kept."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK, Disk, make_directories, write_all
from logwright.core.publish.restore import Missing, Restored, RestoredJournal, Restoring, Written, check_journals
from logwright.errors import DamagedJournal, Locked, NotFound, StorageFailed, WrongUse
from logwright.sej import Writer
from tests.support.faulty_disk import SYNCS, Fault, every_fault
from tests.support.simulated_disk import Rename, SimulatedDisk
from tests.support.trees import read_tree

MADE = RestoredJournal("sej", "a/b", 3, 1, 120, (Missing("", 3, 5),), 80, ("a consumer is lost",))


def put_together(restoring: Restoring, journal: str, file: str = "jnl/0000000000000000.jnl") -> None:
    """A journal of one empty file."""
    task = restoring.directory / "task"
    (task / file).parent.mkdir(parents=True, exist_ok=True)
    (task / file).touch()
    restoring.take(journal, task, [Written(file, 0, 0, 0, 0)])


def state_of(out: Path) -> list[str]:
    return sorted(name for name, data in read_tree(REAL_DISK, out).items() if data is not None)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/../b", "/a", "a/", "a//b", "a/.", "a\0", ".logwright", ".logwright/a"]
)
def test_journal_outside_its_directory_is_refused(name: str) -> None:
    with pytest.raises(WrongUse, match="cannot be the name of a journal"):
        check_journals(["fine", name])


def test_journal_within_another_one_is_refused() -> None:
    check_journals(["a", "ab", "b/c", "b/d", ".hidden", "a.b"])
    with pytest.raises(WrongUse, match="the journal a/b/c is within another one, a"):
        check_journals(["a", "ab", "a/b/c"])


def test_only_published_journals_are_visible(tmp_path: Path) -> None:
    with Restoring(REAL_DISK, tmp_path / "out", "request") as restoring:
        put_together(restoring, "a/b")
        assert all(name.startswith(".logwright/") for name in state_of(tmp_path / "out"))
        assert restoring.publish({"a/b": MADE}, {}) == Restored(str(tmp_path / "out"), (MADE,))
        assert state_of(tmp_path / "out") == [".logwright/restore/lock", "a/b/jnl/0000000000000000.jnl"]
    with Restoring(REAL_DISK, tmp_path / "out", "request") as restoring:
        assert restoring.completed is None, "what is done is forgotten"
        put_together(restoring, "c")
    assert state_of(tmp_path / "out") == [".logwright/restore/lock", "a/b/jnl/0000000000000000.jnl"]


def test_undecodable_name_is_restored_as_its_bytes(tmp_path: Path) -> None:
    names = {rb"a/\xff\xfe": b"a/\xff\xfe", rb"a/\\xff": rb"a/\xff", rb"b\c": rb"b\c"}
    printed = {text.decode(): os.fsdecode(name) for text, name in names.items()}
    with Restoring(REAL_DISK, tmp_path, "request") as restoring:
        restoring.refuse_existing(printed)
        put_together(restoring, r"a/\xff\xfe")
        put_together(restoring, r"a/\\xff")
        put_together(restoring, r"b\c", r"\xff.50")
        restoring.publish(dict.fromkeys(printed, MADE), {r"b\c": [r"\xff.50"]})
        with pytest.raises(WrongUse, match="already exists"):
            restoring.refuse_existing([r"a/\xff\xfe"])
    assert {os.fsencode(path.name) for path in (tmp_path / "a").iterdir()} == {b"\xff\xfe", rb"\xff"}
    assert (tmp_path / r"b\c").is_file()


def test_only_one_restore_runs_at_a_time(tmp_path: Path) -> None:
    with (
        Restoring(REAL_DISK, tmp_path, "request"),
        pytest.raises(Locked, match="another restore is at work here"),
    ):
        Restoring(REAL_DISK, tmp_path, "request")
    Restoring(REAL_DISK, tmp_path, "request").close()


def test_restore_neither_overwrites_files_nor_nests_journals(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    Writer(tmp_path / "journal").close()
    with Restoring(REAL_DISK, tmp_path, "request") as restoring:
        restoring.refuse_existing(["free", "taken/free", "new/deep"])
        for name in ("taken", "link", "journal"):
            with pytest.raises(WrongUse, match=f"/{name} already exists, and is not overwritten"):
                restoring.refuse_existing(["free", name])
        with pytest.raises(WrongUse, match=r"/journal is a journal: journal/a/b cannot be restored into it"):
            restoring.refuse_existing(["journal/a/b"])
    with (
        Restoring(REAL_DISK, tmp_path / "journal", "request") as restoring,
        pytest.raises(WrongUse, match="/journal is a journal: a cannot be restored into it"),
    ):
        restoring.refuse_existing(["a"])


def test_restore_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").symlink_to(tmp_path / "outside")
    with Restoring(REAL_DISK, tmp_path / "out", "request") as restoring:
        put_together(restoring, "a/b")
        with pytest.raises(StorageFailed, match="symbolic link") as caught:
            restoring.publish({"a/b": MADE}, {})
    assert "restore again to complete it" in caught.value.__notes__[0]
    assert list((tmp_path / "outside").iterdir()) == []
    (tmp_path / "out" / "a").unlink()
    with Restoring(REAL_DISK, tmp_path / "out", "request") as restoring:
        assert restoring.completed == Restored(str(tmp_path / "out"), (MADE,), completed=True)
    assert (tmp_path / "out" / "a" / "b" / "jnl").is_dir()


def interrupted(out: Path) -> None:
    """Leave a restore that is committed but not in place."""
    with Restoring(REAL_DISK, out, ["tables", None]) as restoring:
        put_together(restoring, "a/b")
        (out / "a").touch()
        with pytest.raises(StorageFailed):
            restoring.publish({"a/b": MADE}, {})
    (out / "a").unlink()


@pytest.mark.parametrize("request_", [["tables", None], ("tables", None), "another"])
def test_next_restore_of_any_journal_completes_an_interrupted_one(tmp_path: Path, request_: object) -> None:
    interrupted(tmp_path)
    assert (tmp_path / ".logwright" / "restore" / "manifest.json").exists()
    with Restoring(REAL_DISK, tmp_path, request_) as restoring:
        same = Restored(str(tmp_path), (MADE,), completed=True)
        assert restoring.completed == (None if request_ == "another" else same)
    assert state_of(tmp_path) == [".logwright/restore/lock", "a/b/jnl/0000000000000000.jnl"]


def test_manifest_of_this_form_is_completed(tmp_path: Path) -> None:
    """The form of a manifest does not change: a later release completes the commit of an earlier one."""
    home = tmp_path / ".logwright" / "restore"
    (home / "0123456789abcdef" / "journals" / "0").mkdir(parents=True)
    (home / "0123456789abcdef" / "journals" / "0" / "z").write_bytes(b"third")
    journal = {
        "format": "sej",
        "journal": "c/z",
        "records": 3,
        "files": 1,
        "bytes": 120,
        "gaps": [{"part": "", "first": 3, "next": 5}],
        "missing_bytes": 80,
        "problems": ["a consumer is lost"],
    }
    manifest = {
        "version": 1,
        "run": "0123456789abcdef",
        "request": ["tables", None],
        "moves": [["journals/0/z", "c/z"]],
        "journals": [journal],
    }
    (home / "manifest.json").write_text(json.dumps(manifest))
    with Restoring(REAL_DISK, tmp_path, ["tables", None]) as restoring:
        made = RestoredJournal("sej", "c/z", 3, 1, 120, (Missing("", 3, 5),), 80, ("a consumer is lost",))
        assert restoring.completed == Restored(str(tmp_path), (made,), completed=True)
    assert state_of(tmp_path) == [".logwright/restore/lock", "c/z"]
    assert (tmp_path / "c" / "z").read_bytes() == b"third"


@pytest.mark.parametrize("change", [
    {"version": 2},
    {"moves": [["../../a", "b"]]},
    {"moves": [["journals/0", "../b"]]},
    {"moves": [["journals/0"]]},
    {"run": "../.."},
    {"journals": [{"what": 1}]},
])  # fmt: skip
def test_foreign_manifest_is_reported_and_not_followed(tmp_path: Path, change: dict[str, object]) -> None:
    interrupted(tmp_path)
    path = tmp_path / ".logwright" / "restore" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    before = state_of(tmp_path)
    with pytest.raises(DamagedJournal, match=r"manifest\.json @ 0: this manifest of a restore is damaged"):
        Restoring(REAL_DISK, tmp_path, "request")
    assert state_of(tmp_path) == before


def test_missing_committed_file_is_reported(tmp_path: Path) -> None:
    interrupted(tmp_path)
    (run,) = [path for path in (tmp_path / ".logwright" / "restore").iterdir() if path.is_dir()]
    (run / "journals" / "0").rename(tmp_path / "moved away")
    with pytest.raises(NotFound, match="a/b: the staged copy is gone"):
        Restoring(REAL_DISK, tmp_path, "request")


def test_two_files_with_the_same_name_are_refused(tmp_path: Path) -> None:
    with Restoring(REAL_DISK, tmp_path, "request") as restoring:
        put_together(restoring, "a")
        with pytest.raises(DamagedJournal, match="two files that would both become jnl/0000000000000000"):
            put_together(restoring, "a")


def test_result_lists_missing_records() -> None:
    assert not MADE.whole
    assert RestoredJournal("sej", "a", 1, 1, 1).whole
    assert Restored("out", (MADE, RestoredJournal("sej", "c", 2, 1, 60))).as_json() == {
        "out": "out",
        "records": 5,
        "files": 2,
        "bytes": 180,
        "whole": False,
        "completed": False,
        "journals": [
            {
                "format": "sej",
                "journal": "a/b",
                "records": 3,
                "files": 1,
                "bytes": 120,
                "gaps": ({"part": "", "first": 3, "next": 5},),
                "missing_bytes": 80,
                "problems": ("a consumer is lost",),
                "whole": False,
            },
            {
                "format": "sej",
                "journal": "c",
                "records": 2,
                "files": 1,
                "bytes": 60,
                "gaps": (),
                "missing_bytes": 0,
                "problems": (),
                "whole": True,
            },
        ],
    }


# --- all or nothing ---------------------------------------------------------------------------------------------------

OUT = Path("/out")
FILES = {"a/b/jnl/x": b"first", "a/b/jnl/y": b"second", "c/z": b"third"}
JOURNALS = {"a/b": MADE, "c/z": MADE}


def restore_all(disk: Disk) -> bool:
    """Restore a journal that is a directory and one that is a file; whether an earlier restore had committed them."""
    with Restoring(disk, OUT, "request") as restoring:
        if restoring.completed is not None:
            return True
        restoring.refuse_existing(JOURNALS)
        for number, (path, data) in enumerate(FILES.items()):
            journal, name = ("c/z", "z") if path == "c/z" else ("a/b", path.removeprefix("a/b/"))
            task = restoring.directory / str(number)
            make_directories(disk, (task / name).parent)
            with contextlib.closing(disk.open(task / name, "create")) as file:
                write_all(file, 0, data)
                file.sync()
            restoring.take(journal, task, [Written(name, 0, 1, 1, len(data))])
        restoring.publish(JOURNALS, {"c/z": ["z"]})
        return False


def prepared() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(OUT)
    disk.settle()
    return disk


def check(state: SimulatedDisk) -> None:
    """Each journal is complete or absent; after another restore all of them are complete, and nothing else is left."""

    def visible() -> dict[str, bytes]:
        return {name: data for name, data in read_tree(state, OUT).items() if data is not None and name[0] != "."}

    found, is_waiting = visible(), state.exists(OUT / ".logwright" / "restore" / "manifest.json")
    assert found in ({}, {"c/z": b"third"}, {name: FILES[name] for name in FILES if name != "c/z"}, FILES)
    assert (found == FILES and not is_waiting) or "restored" not in state.marks
    if found and not is_waiting:
        assert found == FILES
        with pytest.raises(WrongUse, match="already exists"):
            restore_all(state)
    else:
        restore_all(state)
    assert visible() == FILES
    assert state.list_directory(OUT / ".logwright" / "restore") == ["lock"]


@pytest.mark.parametrize("reorder_names", [False, True])
def test_power_cut_leaves_each_journal_complete_or_absent(reorder_names: bool) -> None:
    disk = prepared()
    assert not restore_all(disk)
    disk.mark("restored")
    for state in disk.crash_states(most=12, fills=(), reorder_names=reorder_names):
        check(state)


def is_committed(disk: SimulatedDisk) -> bool:
    return any(isinstance(one, Rename) and one.target_path.endswith("manifest.json") for one in disk.operations)


def test_power_cut_after_a_kill_and_completion_leaves_each_journal_complete_or_absent() -> None:
    disk = prepared()
    restore_all(disk)
    for killed in filter(is_committed, disk.process_kills()):
        with contextlib.suppress(WrongUse):  # everything is in place
            restore_all(killed)
            killed.mark("restored")
        for state in killed.crash_states(most=2, kinds=("subset",), last=killed.inherited + 30):
            check(state)


def test_power_cut_after_a_failed_commit_leaves_each_journal_complete_or_absent() -> None:
    for disk in every_fault(prepared, [Fault(only=SYNCS), Fault(only=SYNCS, forever=True)]):
        with contextlib.suppress(StorageFailed):
            restore_all(disk)
        if not disk.failures or not is_committed(disk.inner):
            continue
        failed = len(disk.inner.operations)
        for state in disk.inner.crash_states(first=failed, most=24, kinds=("subset",)):
            check(state)
        with contextlib.suppress(WrongUse):
            restore_all(disk.inner)
        for state in disk.inner.crash_states(first=failed, last=failed + 30, most=2, kinds=("subset",)):
            check(state)
