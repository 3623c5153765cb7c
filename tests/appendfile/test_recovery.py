"""Opening a journal: the places of files, the completion of interrupted moves, and refused ids."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import random
import shutil
from pathlib import Path

import pytest

from logwright.appendfile import AppendJournal, Reader, Segment, Writer
from logwright.appendfile.bytes.records import Checkpoint
from logwright.appendfile.files import repair as repairs
from logwright.core.io.disk import REAL_DISK, OpenMode, RealDisk, RealFile
from logwright.errors import DamagedJournal, Gap, Locked, NotFound, StorageFailed, TooLarge, WrongUse
from tests.appendfile.model import read_view
from tests.appendfile.samples import HINT, data, encoded, write
from tests.support.children import Child
from tests.support.counts import COUNTS
from tests.support.simulated_disk import SimulatedDisk

ASIDE = Path(".logwright/recovery")


def three_files(directory: Path) -> Path:
    return write(
        directory,
        {
            3: [Checkpoint(0, 1), *data("a")],
            4: [Checkpoint(0, 1), *data("b"), Checkpoint(0, 2)],
            5: [Checkpoint(0, 2), *data("c")],
        },
    )


THREE = [(1, (b"a", b"b"), True), (2, (b"c",), False)]


def names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.glob("**/*.journal"))


def test_opening_moves_the_old_files_and_the_walk_removes_them(tmp_path: Path) -> None:
    three_files(tmp_path)
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        assert names(tmp_path) == [f"{ASIDE}/6/{number}.journal" for number in (3, 4, 5)]
        assert next(recovery) == Segment(1, [b"a", b"b"], True)
        assert len(names(tmp_path)) == 3
        assert list(recovery) == [Segment(2, [b"c"], False)]
        assert names(tmp_path) == ["6.journal"]
        assert not (tmp_path / ASIDE).exists()
    assert (tmp_path / "6.journal").read_bytes() == encoded(Checkpoint(2, 2))


def test_records_of_a_segment_are_used_like_a_list(tmp_path: Path) -> None:
    write(tmp_path, {0: [HINT, *data("a", "b")], 1: [HINT, *data("c"), Checkpoint(0, 1)]})
    (segment,) = Reader(tmp_path).segments()
    records, wanted = segment.records, [b"a", b"b", b"c"]
    assert [list(records), list(records)] == [wanted, wanted]
    assert (len(records), repr(records)) == (3, repr(wanted))
    assert (records[0], records[-1], records[1:]) == (b"a", b"c", [b"b", b"c"])
    assert (b"b" in records, b"d" in records, records.index(b"c")) == (True, False, 2)
    assert records == wanted
    assert wanted == records
    for other in ([b"a", b"b"], [b"a", b"b", b"d"], [1, 2, 3], (b"a", b"b", b"c"), b"abc"):
        assert records != other
    with pytest.raises(IndexError):
        records[3]
    assert ([b"0"] + records, records + [b"d"], records + records) == ([b"0", *wanted], [*wanted, b"d"], wanted * 2)  # noqa: RUF005


def test_segment_can_be_copied_and_sent_to_another_process(tmp_path: Path) -> None:
    write(tmp_path, {0: [HINT, *data("a", "b")], 1: [HINT, *data("c"), Checkpoint(0, 1)]})
    segments = Reader(tmp_path).segments()
    assert [found.records for found in segments] == [[b"a", b"b", b"c"]]
    assert pickle.loads(pickle.dumps(segments)) == copy.deepcopy(segments) == segments


class HoldingDisk(RealDisk):
    """The real disk with this much free space; it counts the files that are open for reading."""

    def __init__(self, free_bytes: int) -> None:
        self._free_bytes = free_bytes
        self._opened: list[RealFile] = []
        self.held: list[int] = []
        """The number of open files when each of the old files was removed."""

    def free_bytes(self, path: Path) -> int:
        return self._free_bytes

    def open(self, path: Path, mode: OpenMode) -> RealFile:
        file = super().open(path, mode)
        if mode == "read":
            self._opened.append(file)
        return file

    def remove(self, path: Path) -> None:
        if path.suffix == ".journal":
            self.held.append(self.open_count())
        super().remove(path)

    def open_count(self) -> int:
        return sum(file.descriptor >= 0 for file in self._opened)


@pytest.mark.parametrize(("free_bytes", "held"), [(1 << 40, 3), (1 << 20, 0)], ids=["space", "little space"])
@pytest.mark.parametrize("with_asyncio", [False, True], ids=["blocking", "asyncio"])
def test_space_of_old_files_is_released_after_the_walk_unless_needed(
    free_bytes: int, held: int, with_asyncio: bool, tmp_path: Path
) -> None:
    three_files(tmp_path)
    disk = HoldingDisk(free_bytes)

    async def walk() -> None:
        journal, recovery = await AppendJournal.open(tmp_path, disk=disk)
        assert [segment.id async for segment in recovery] == [1, 2]
        assert names(tmp_path) == ["6.journal"]
        await journal.close()

    if with_asyncio:
        asyncio.run(walk())
    else:
        with Writer(tmp_path, disk=disk, recovering=True) as writer:
            recovery = writer.recovery()
            assert [segment.id for segment in recovery] == [1, 2]
            assert names(tmp_path) == ["6.journal"]
    assert (disk.held, disk.open_count()) == ([held] * 3, 0)


def test_segment_does_not_keep_the_read_buffer_of_its_file(tmp_path: Path) -> None:
    write(tmp_path, {number: [Checkpoint(0, number), *data(f"of {number}")] for number in range(3)})
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        assert [segment.records for segment in list(recovery)] == [[b"of 0"], [b"of 1"], [b"of 2"]]


@pytest.mark.parametrize("moved", range(4))
@pytest.mark.parametrize("both", [False, True], ids=["", "one by both names"])
def test_interrupted_move_is_finished(tmp_path: Path, moved: int, both: bool) -> None:
    three_files(tmp_path)
    folder = tmp_path / ASIDE / "6"
    folder.mkdir(parents=True)
    for number in (3, 4, 5)[:moved]:
        (tmp_path / f"{number}.journal").rename(folder / f"{number}.journal")
    if both and moved < 3:
        os.link(tmp_path / f"{3 + moved}.journal", folder / f"{3 + moved}.journal")
    assert read_view(REAL_DISK, tmp_path) == THREE
    assert Reader(tmp_path).verify().sound
    with Writer(tmp_path):
        assert names(tmp_path) == [f"{ASIDE}/6/{number}.journal" for number in (3, 4, 5)]
        assert read_view(REAL_DISK, tmp_path) == THREE


def test_generations_keep_their_segments_apart(tmp_path: Path) -> None:
    """The pair 2, 2 of the new files does not concern segment 1 of the old ones."""
    three_files(tmp_path)
    for record in (b"x", b"y"):
        with Writer(tmp_path, recovering=True) as writer:
            writer.append(record)
            assert writer.register_checkpoint() == writer.current
            writer.check_checkpoint()
    assert read_view(REAL_DISK, tmp_path) == THREE
    found = Reader(tmp_path).segments()
    assert [(segment.id, segment.checked) for segment in found] == [(1, False), (2, False), (2, True), (3, True)]
    old = [f"{ASIDE}/6/{number}.journal" for number in (3, 4, 5)]
    assert names(tmp_path) == [*old, f"{ASIDE}/7/6.journal", "7.journal"]


def test_segments_with_the_same_id_differ_by_generation(tmp_path: Path) -> None:
    three_files(tmp_path)
    before = Reader(tmp_path)
    number = before.find_place("4.journal@20")
    assert [sorted(segment) for segment in before.state()["segments"]] == [["checked", "complete", "id", "records"]] * 2
    with Writer(tmp_path, recovering=True) as writer:
        writer.append(b"x")
    reader = Reader(tmp_path)
    assert [(found["generation"], found["id"]) for found in reader.state()["segments"]] == [(6, 1), (6, 2), (None, 2)]
    assert reader.find_place("4.journal@20") == reader.find_place(f"{ASIDE}/6/4.journal@20") == number
    assert [(found["generation"], found["id"]) for found in reader.state(number)["segments"]] == [(6, 1)]
    with pytest.raises(NotFound, match=r"/9\.journal: no such file of the journal$"):
        reader.find_place("9.journal@20")
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        assert [(segment.generation, segment.id) for segment in recovery] == [(6, 1), (6, 2), (7, 2)]


@pytest.mark.parametrize("wrong", [Checkpoint(3, 3), Checkpoint(2, 5 + 2**40)], ids=["back", "far ahead, and back"])
def test_wrong_id_does_not_mark_a_segment_as_checked(tmp_path: Path, wrong: Checkpoint) -> None:
    """The last but one checkpoint was 2, 5; the records after it are not checked."""
    records = [Checkpoint(2, 4), *data("a"), wrong, *data("b"), Checkpoint(2, 6), *data("c")]
    write(tmp_path / ASIDE / "6", {5: records})
    for _ in range(2):
        writer = Writer(tmp_path, recovering=True)
        recovery = writer.recovery()
        with writer, pytest.raises(DamagedJournal, match="cannot follow"):
            list(recovery)
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery(mode="dropmalformed")
        found = list(recovery)
    assert [segment.records for segment in found] == [[b"a", b"b"], [b"c"]]
    assert not any(segment.complete for segment in found)
    assert len(recovery.damages) == 1


def test_segment_is_not_complete_when_the_next_checkpoint_is_missing(tmp_path: Path) -> None:
    write(tmp_path, {0: [HINT, *data("a"), Checkpoint(0, 2), *data("b"), Checkpoint(0, 3)]})
    assert Reader(tmp_path).segments() == [Segment(0, [b"a"], False), Segment(2, [b"b"], True)]


def test_finished_recovery_does_not_reappear(tmp_path: Path) -> None:
    three_files(tmp_path / "journal")
    done = tmp_path / "journal" / ".logwright" / "recovered-3-1-2-28" / "3"
    write(done, {2: [HINT, *data("old news")]})
    assert read_view(REAL_DISK, tmp_path / "journal") == THREE
    with Writer(tmp_path / "journal"):
        assert list(done.parent.iterdir()) == [], "only its name is of use"
    with Writer(tmp_path / "journal", recovering=True) as writer:
        recovery = writer.recovery()
        list(recovery)
        assert not done.parent.exists()


@pytest.mark.parametrize("left", [[], [b""]], ids=["no file", "an empty file"])
def test_recovery_marker_keeps_the_ids_until_a_file_contains_them(tmp_path: Path, left: list[bytes]) -> None:
    done = tmp_path / ".logwright" / "recovered-6-2-5-28"
    write(done / "6", {5: [HINT, *data("old news")]})
    for content in left:
        (tmp_path / "6.journal").write_bytes(content)
    for _ in range(2):
        with Writer(tmp_path) as writer:
            assert (writer.file_id, writer.checked, writer.current) == (6, 2, 2)
            assert list(done.iterdir()) == []
    with Writer(tmp_path) as writer:
        writer.append(b"a")
    with Writer(tmp_path) as writer:
        assert writer.register_checkpoint() == 3
        assert names(tmp_path) == ["6.journal"]
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        assert list(recovery) == [Segment(2, [b"a"], True)]
        assert not done.exists()


def test_generation_begun_during_a_walk_belongs_to_the_next_walk(tmp_path: Path) -> None:
    three_files(tmp_path)
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        assert next(recovery).records == [b"a", b"b"]
        writer.append(b"new")
        writer.begin_generation()
        writer.append(b"newer")
        assert [segment.records for segment in recovery] == [[b"c"]]
        assert names(tmp_path) == [f"{ASIDE}/7/6.journal", "7.journal"]
    assert read_view(REAL_DISK, tmp_path) == [(2, (b"new",), False), (2, (b"newer",), False)]
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        assert [segment.records for segment in recovery] == [[b"new"], [b"newer"]]
        assert names(tmp_path) == ["8.journal"]
    assert read_view(REAL_DISK, tmp_path) == []


@pytest.mark.parametrize("with_asyncio", [False, True], ids=["blocking", "asyncio"])
def test_walk_that_found_damage_raises_it_each_time(with_asyncio: bool, tmp_path: Path) -> None:
    three_files(tmp_path)
    (tmp_path / "4.journal").write_bytes(encoded(Checkpoint(0, 1), *data("b"))[:-1])

    async def walk() -> None:
        journal, recovery = await AppendJournal.open(tmp_path)
        for _ in range(3):
            with pytest.raises(DamagedJournal):
                await anext(recovery)
        await journal.close()

    if with_asyncio:
        asyncio.run(walk())
    else:
        with Writer(tmp_path, recovering=True) as writer:
            recovery = writer.recovery()
            for _ in range(2):
                with pytest.raises(DamagedJournal):
                    list(recovery)
                with pytest.raises(DamagedJournal):
                    recovery.step()
    assert len(names(tmp_path)) == 3


def test_end_of_an_empty_walk_syncs_appended_records() -> None:
    disk, home = SimulatedDisk(), Path("/journal")
    writer = Writer(home, disk=disk, recovering=True)
    recovery = writer.recovery()
    writer.append(b"a")
    assert list(recovery) == []
    (state,) = disk.crash_states(first=len(disk.operations), most=1, kinds=["subset"], format="")
    assert read_view(state, home) == [(0, (b"a",), False)]
    writer.close()


def test_walk_over_empty_files_needs_no_space() -> None:
    disk, home = SimulatedDisk(capacity_bytes=10), Path("/journal")
    with pytest.raises(StorageFailed), Writer(home, disk=disk) as writer:
        writer.append(b"x")
    assert (disk.exists(home / "0.journal"), disk.free_bytes(home)) == (True, 10)
    for _ in range(2):
        with Writer(home, disk=disk, recovering=True) as writer:
            recovery = writer.recovery()
            assert list(recovery) == []
            assert not disk.exists(home / ASIDE)
            assert (writer.file_id, writer.current) == (1, 0)


def test_walk_on_a_full_disk_frees_space() -> None:
    disk, home = SimulatedDisk(capacity_bytes=500), Path("/journal")

    def fill() -> None:
        with Writer(home, sync="always", file_bytes=100, disk=disk) as writer:
            for _ in range(100):
                writer.append(b"x" * 20)
                writer.register_checkpoint()

    with pytest.raises(StorageFailed):
        fill()
    assert disk.free_bytes(home) < 20
    with Writer(home, sync="always", disk=disk, recovering=True) as writer:
        recovery = writer.recovery()
        found = list(recovery)
        assert [segment.records for segment in found] == [[b"x" * 20]] * len(found)
        assert len(found) >= 4
        assert writer.current == found[-1].id + found[-1].complete
        writer.append(b"y" * 200)
    assert read_view(disk, home) == [(writer.current, (b"y" * 200,), False)]


@pytest.mark.parametrize("recovering", [False, True])
def test_missing_or_doubled_id_is_an_error_that_names_it(tmp_path: Path, recovering: bool) -> None:
    three_files(tmp_path)
    (tmp_path / "4.journal").unlink()
    with pytest.raises(Gap, match="file 4 is missing before this one"):
        Writer(tmp_path, recovering=recovering)
    with pytest.raises(Gap, match="file 4 is missing"):
        list(Reader(tmp_path))
    (tmp_path / "004.journal").write_bytes(encoded(HINT))
    (tmp_path / "4.journal").write_bytes(encoded(HINT))
    with pytest.raises(DamagedJournal, match=r"its id 4 is also that of 004\.journal"):
        Writer(tmp_path, recovering=recovering)
    with pytest.raises(DamagedJournal, match=r"004\.journal"):
        list(Reader(tmp_path))
    assert [problem.kind for problem in Reader(tmp_path).verify().problems] == ["doubled_id"]


def test_leading_zeros_are_read_and_recovered(tmp_path: Path) -> None:
    write(tmp_path, {7: [HINT, *data("a")]})
    (tmp_path / "7.journal").rename(tmp_path / "007.journal")
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        assert list(recovery) == [Segment(0, [b"a"], False)]
    assert names(tmp_path) == ["8.journal"]


@pytest.mark.parametrize("is_beside_another", [False, True], ids=["", "beside another generation"])
def test_generation_restored_by_hand_is_recovered_again(tmp_path: Path, is_beside_another: bool) -> None:
    journal = three_files(tmp_path / "journal")
    with Writer(journal, recovering=True) as writer:
        recovery = writer.recovery()
        shutil.copytree(journal / ASIDE / "6", tmp_path / "kept")
        if is_beside_another:
            writer.append(b"d")
            writer.begin_generation()
        assert [segment.records for segment in recovery] == [[b"a", b"b"], [b"c"]]
    shutil.copytree(tmp_path / "kept", journal / ASIDE / "6")
    assert Reader(journal).verify().sound
    with Writer(journal, recovering=True) as writer:
        recovery = writer.recovery()
        expected = [[b"a", b"b"], [b"c"], *([[b"d"]] if is_beside_another else [])]
        assert [segment.records for segment in recovery] == expected
        assert not (journal / ASIDE).exists()


def test_last_file_may_be_empty(tmp_path: Path) -> None:
    three_files(tmp_path)
    (tmp_path / "6.journal").write_bytes(b"")
    with Writer(tmp_path) as writer:
        assert (writer.checked, writer.current, writer.has_data) == (0, 2, True)
        writer.append(b"d")
    assert (tmp_path / "6.journal").read_bytes() == encoded(Checkpoint(0, 2), *data("d"))
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        assert list(recovery) == [Segment(1, [b"a", b"b"], True), Segment(2, [b"c", b"d"], False)]


def test_exhausted_ids_are_reported(tmp_path: Path) -> None:
    write(tmp_path, {2**64 - 1: [HINT, *data("a")]})
    with pytest.raises(TooLarge, match="ids of files"):
        Writer(tmp_path, recovering=True)
    assert read_view(REAL_DISK, tmp_path) == [(0, (b"a",), False)]


def test_torn_tail_is_cut_kept_and_reported(tmp_path: Path) -> None:
    write(tmp_path, {0: [HINT, *data("a")]}, tail=b"\x00\x09\x00\x00torn")
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        assert writer.recovered is not None
        assert writer.kept is not None
        assert (writer.recovered.start, writer.recovered.end) == (25, 33)
        assert writer.kept.read_bytes() == b"\x00\x09\x00\x00torn"
        assert list(recovery) == [Segment(0, [b"a"], False)]


def test_reading_beside_a_writer_changes_nothing_and_needs_no_lock(tmp_path: Path) -> None:
    three_files(tmp_path)
    with Writer(tmp_path, recovering=True) as writer:
        writer.append(b"d")
        writer.flush()
        assert read_view(REAL_DISK, tmp_path) == [*THREE, (2, (b"d",), False)]
        with pytest.raises(Locked):
            Writer(tmp_path)


# --- killed -----------------------------------------------------------------------------------------------------------

KILLED = """
import asyncio, sys
from logwright.appendfile import AppendJournal

async def work(directory, count):
    journal, recovery = await AppendJournal.open(directory, sync="always", file_bytes=300)
    async for segment in recovery:
        for record in segment.records:
            journal.append(record)
    while True:
        done = [journal.append(b"%d" % number) for number in range(count, count + 5)]
        await asyncio.gather(*done)
        count += 5
        print(count, flush=True)

asyncio.run(work(sys.argv[1], int(sys.argv[2])))
"""


def test_killed_program_loses_nothing_and_catches_up(tmp_path: Path) -> None:
    """It replays existing records and continues; records may appear twice, but none is missing or out of order."""
    chance = random.Random(7)
    count = 0
    for _ in range(12):
        with Child(KILLED, tmp_path, count) as child:
            for _ in range(chance.choice((0, 1, 3, 8))):
                count = int(child.line())
            child.kill()
            while True:
                try:
                    count = int(child.line())
                except EOFError:
                    break
        records = [int(record) for _, records, _ in read_view(REAL_DISK, tmp_path) for record in records]
        assert set(range(count)) <= set(records)
        once = sorted(set(records))
        assert once == [*range(len(once))]
        assert len(once) <= count + 5
        count = len(once)
        COUNTS.add("kill -9", 1, "appendfile")
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        assert {int(record) for segment in recovery for record in segment.records} == set(range(count))


def test_writer_waits_until_a_repair_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {0: [HINT, *data("a")]}, tail=b"\xff" + encoded(*data("b")))
    plan = repairs.plan(tmp_path)
    monkeypatch.setattr("logwright.core.repair.plan._rename", power_cut)
    with pytest.raises(OSError, match="the power is gone"):
        repairs.apply(tmp_path, plan)
    monkeypatch.undo()
    for recovering in (False, True):
        with pytest.raises(WrongUse, match="a repair of this journal was interrupted; `logwright repair` finishes it"):
            Writer(tmp_path, recovering=recovering)
    repairs.undo(tmp_path)
    repairs.apply(tmp_path, repairs.plan(tmp_path))
    with Writer(tmp_path):
        assert list(Reader(tmp_path)) == [HINT, *data("a", "b")]


def power_cut(*arguments: object) -> None:
    raise OSError("the power is gone")
