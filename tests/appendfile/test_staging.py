"""Publishing batches to a journal that ends within a segment."""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright.appendfile import Reader, Segment, Writer
from logwright.core.io.disk import Disk, OpenMode
from tests.appendfile.staging_subject import AppendfileStaging
from tests.contract.staging import ROOT
from tests.support.simulated_disk import SimulatedDisk, SimulatedFile

SUBJECT = AppendfileStaging()


def left_open(disk: Disk) -> None:
    with Writer(ROOT, disk=disk) as writer:
        writer.append(b"closed")
        writer.register_checkpoint()
        writer.append(b"open")


def publish(disk: Disk, run: str, *rows: bytes) -> None:
    SUBJECT.publish(disk, run, [SUBJECT.stage(disk, run, 0, [(row,) for row in rows])])


def test_batch_after_an_open_segment_is_a_new_segment() -> None:
    disk = SimulatedDisk()
    left_open(disk)
    publish(disk, "one", b"a", b"b")
    publish(disk, "two", b"c")
    expected = [Segment(0, [b"closed"], True), Segment(1, [b"open"], False)]
    expected += [Segment(1, [b"a", b"b"], True), Segment(2, [b"c"], True)]
    assert Reader(ROOT, disk=disk).segments() == expected
    assert Reader(ROOT, disk=disk).verify().sound
    with Writer(ROOT, disk=disk, recovering=True) as writer:
        recovery = writer.recovery()
        assert list(recovery) == expected


def test_power_cut_while_such_a_batch_is_published_loses_no_existing_record() -> None:
    disk = SimulatedDisk()
    left_open(disk)
    disk.settle()
    publish(disk, "one", b"a", b"b")
    seen = set()
    for state in disk.crash_states(format="appendfile"):
        with Writer(Path(ROOT), disk=state):  # completes the committed batch
            pass
        found = Reader(ROOT, disk=state).segments()
        assert [segment.records for segment in found[:2]] == [[b"closed"], [b"open"]]
        assert [segment.complete for segment in found[:2]] == [True, False]
        assert found[2:] in ([], [Segment(1, [b"a", b"b"], True)])
        seen.add(len(found))
    assert seen == {2, 3}


class NotingDisk(SimulatedDisk):
    """A disk that records the order of locks, renames, syncs and removals of names. A sync can kill it."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, str]] = []
        self.is_killed_after = ("", "")

    def open(self, path: Path, mode: OpenMode) -> SimulatedFile:
        if mode == "create":
            self.events.append(("create", path.suffix))
        return super().open(path, mode)

    def sync_directory(self, path: Path) -> None:
        if self.events[-1:] == [self.is_killed_after]:
            raise KeyboardInterrupt
        self.events.append(("sync", path.name))
        super().sync_directory(path)

    def take_lock(self, file: SimulatedFile, inode: int) -> None:
        super().take_lock(file, inode)
        self.events.append(("lock", file.path.suffix))

    def rename(self, source: Path, target: Path) -> None:
        self.events.append(("rename", target.suffix))
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self.events.append(("remove", path.suffix))
        super().remove(path)


def test_files_of_a_batch_have_durable_names_before_it_is_committed() -> None:
    disk = NotingDisk()
    staged = SUBJECT.stage(disk, "one", 0, [(b"a",)])
    disk.events.clear()
    SUBJECT.publish(disk, "one", [staged])
    created = disk.events.index(("create", ".staged"))
    assert disk.events[created + 1] == ("sync", "staging")
    assert ("rename", ".manifest") in disk.events[created:]


def test_names_made_by_a_killed_publisher_are_durable_before_the_batch_is_forgotten() -> None:
    disk = NotingDisk()
    staged = SUBJECT.stage(disk, "one", 0, [(b"a",)])
    disk.is_killed_after = ("rename", ".journal")
    with pytest.raises(KeyboardInterrupt):
        SUBJECT.publish(disk, "one", [staged])
    disk.is_killed_after = ("", "")
    disk.events.clear()
    with Writer(ROOT, disk=disk):
        before = disk.events[: disk.events.index(("remove", ".manifest"))]
    locked = max(at for at, (what, _) in enumerate(before) if what == "lock")
    assert ("sync", ROOT.name) in before[locked:], "before the lock another program may give names"
