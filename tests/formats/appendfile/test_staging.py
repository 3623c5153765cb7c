"""Publishing batches to a journal that somebody has left in the middle of a segment."""

from __future__ import annotations

from pathlib import Path

from logwright.core.disk import Disk
from logwright.formats.appendfile import Reader, Segment, Writer
from tests.contract.staging import ROOT
from tests.formats.appendfile.staging_subject import AppendfileStaging
from tests.support.simulated_disk import SimulatedDisk

SUBJECT = AppendfileStaging()


def left_open(disk: Disk) -> None:
    with Writer(ROOT, disk=disk) as writer:
        writer.append(b"closed")
        writer.register_checkpoint()
        writer.append(b"open")


def publish(disk: Disk, run: str, *rows: bytes) -> None:
    SUBJECT.publish(disk, run, [SUBJECT.stage(disk, run, 0, [(row,) for row in rows])])


def test_a_batch_follows_a_segment_that_was_left_open_and_is_none_of_it() -> None:
    disk = SimulatedDisk()
    left_open(disk)
    publish(disk, "one", b"a", b"b")
    publish(disk, "two", b"c")
    expected = [Segment(0, [b"closed"], True), Segment(1, [b"open"], False)]
    expected += [Segment(1, [b"a", b"b"], True), Segment(2, [b"c"], True)]
    assert Reader(ROOT, disk=disk).segments() == expected
    assert Reader(ROOT, disk=disk).verify().sound
    writer, recovery = Writer.open(ROOT, disk=disk)
    with writer:
        assert list(recovery) == expected


def test_a_power_cut_while_such_a_batch_is_published_loses_nothing_that_was_there() -> None:
    disk = SimulatedDisk()
    left_open(disk)
    disk.settle()
    publish(disk, "one", b"a", b"b")
    seen = set()
    for state in disk.crash_states(format="appendfile"):
        with Writer(Path(ROOT), disk=state):  # completes what was committed
            pass
        found = Reader(ROOT, disk=state).segments()
        assert [segment.records for segment in found[:2]] == [[b"closed"], [b"open"]]
        assert [segment.complete for segment in found[:2]] == [True, False]
        assert found[2:] in ([], [Segment(1, [b"a", b"b"], True)])
        seen.add(len(found))
    assert seen == {2, 3}
