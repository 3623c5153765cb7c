"""Opening a journal for writing: its end, the syncs, and discarded state."""

from __future__ import annotations

from pathlib import Path

import pytest

from logwright.appendfile import Reader, Writer
from logwright.appendfile.bytes.layout import MAX_ID, NOTE_NAME
from logwright.appendfile.bytes.records import Checkpoint, Record
from logwright.appendfile.files.boundaries import last_pair, lost_end
from logwright.appendfile.files.files import JournalFile, list_files
from logwright.appendfile.files.opening import forget_done
from logwright.core.io.disk import REAL_DISK, Buffer, OpenMode, RealDisk, RealFile
from logwright.errors import DamagedJournal, Gap, LogwrightError, WrongUse
from tests.appendfile.samples import HINT, data, encoded, write
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import write_file

HOME = Path(".logwright")
ASIDE = HOME / "recovery"
NOTE = Path(NOTE_NAME).name


class RecordingFile(RealFile):
    """A file that records its writes and syncs, once the journal is locked."""

    events: list[tuple[str, str]]

    def write_at(self, position: int, data: Buffer) -> int:
        self.events.append(("write", self.path.name))
        return super().write_at(position, data)

    def sync(self) -> None:
        self.events.append(("sync", self.path.name))
        super().sync()

    def lock(self) -> None:
        super().lock()
        self.events.clear()  # earlier calls may have come too early: another program had the lock


class RecordingDisk(RealDisk):
    """The real disk; `events` are the writes, syncs and removals since the lock was taken, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def open(self, path: Path, mode: OpenMode) -> RealFile:
        file = super().open(path, mode)
        found = RecordingFile.__new__(RecordingFile)
        for name in RealFile.__slots__:
            setattr(found, name, getattr(file, name))
        found.events = self.events
        file.descriptor = -1
        return found

    def sync_directory(self, path: Path) -> None:
        self.events.append(("sync", path.name))
        super().sync_directory(path)

    def remove(self, path: Path) -> None:
        self.events.append(("remove", path.name))
        super().remove(path)


# --- what is found at the end -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "has_data"),
    [
        ([Checkpoint(1, 1)], False),
        ([Checkpoint(0, 1), *data("a")], True),
        ([Checkpoint(0, 1), *data("a"), Checkpoint(1, 1)], True),
        ([Checkpoint(0, 1), *data("a"), Checkpoint(0, 2)], False),
        ([Checkpoint(0, 1), Checkpoint(1, 1)], False),
    ],
    ids=["a hint", "data", "data and a check", "data and a register", "a check"],
)
def test_segment_is_registered_only_if_it_has_data(tmp_path: Path, records: list[Record], has_data: bool) -> None:
    current = max(record.current for record in records if isinstance(record, Checkpoint))
    with Writer(write(tmp_path, {4: records})) as writer:
        assert (writer.current, writer.register_checkpoint()) == (current, current + has_data)


def test_files_that_a_closed_segment_needs_are_known_after_a_reopening(tmp_path: Path) -> None:
    files = {
        0: [HINT, *data("a"), Checkpoint(0, 1), *data("b")],
        1: [Checkpoint(0, 1), *data("c"), Checkpoint(0, 2)],
        2: [Checkpoint(0, 2), *data("d"), Checkpoint(0, 3)],
        3: [Checkpoint(0, 3), *data("e")],
    }
    with Writer(write(tmp_path, files)) as writer:
        for first in (0, 1, 2):
            writer.check_checkpoint()
            assert sorted(tmp_path.glob("*.journal")) == [tmp_path / f"{each}.journal" for each in range(first, 4)]


def test_file_is_removed_once_all_segments_that_begin_in_it_or_before_are_checked(tmp_path: Path) -> None:
    files = {
        0: [HINT, *data("a")],
        1: [HINT, *data("b"), Checkpoint(0, 1), *data("c")],
        2: [Checkpoint(0, 1), *data("d")],
    }
    with Writer(write(tmp_path, files)) as writer:
        writer.check_checkpoint()
        assert sorted(path.name for path in tmp_path.glob("*.journal")) == ["1.journal", "2.journal"]


@pytest.mark.parametrize("wrong", [1, 2])
def test_hint_that_goes_backwards_removes_no_file_too_early(tmp_path: Path, wrong: int) -> None:
    files = {
        0: [HINT, *data("a"), Checkpoint(0, 1), *data("b"), Checkpoint(0, 2), *data("c"), Checkpoint(0, 3), *data("d")],
        1: [Checkpoint(0, 3), *data("e")],
        2: [Checkpoint(0, wrong), *data("f"), Checkpoint(0, 3), *data("g")],
        3: [Checkpoint(0, 3), *data("h")],
    }
    with Writer(write(tmp_path, files)) as writer:
        left = []
        for _ in range(3):
            writer.check_checkpoint()
            left.append(min(int(path.stem) for path in tmp_path.glob("*.journal")))
        assert left == [0, 0, 0]


def test_file_with_several_ids_may_begin_with_any(tmp_path: Path) -> None:
    files: dict[int, list[Record]] = {0: [HINT, *data("a")], 1: [Checkpoint(5, 5), *data("b")]}
    with pytest.raises(Gap, match="it begins with the ids 5, 5, and the file before ends with 0, 0"):
        Writer(write(tmp_path / "one", files))
    files[1] += [Checkpoint(5, 6), *data("c")]
    with Writer(write(tmp_path / "several", files)) as writer:
        assert (writer.checked, writer.current) == (5, 6)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (encoded(HINT, *data("a"), Checkpoint(0, 5), *data("b"), Checkpoint(0, 6), *data("c")), Gap),
        (encoded(HINT, *data("a")) + b"\xff\0\0\0" + encoded(Checkpoint(0, 1), *data("b")), DamagedJournal),
    ],
    ids=["a jump of ids", "bytes that are no record"],
)
def test_damage_in_the_last_file_is_raised_by_its_kind(
    tmp_path: Path, content: bytes, kind: type[DamagedJournal]
) -> None:
    (tmp_path / "0.journal").write_bytes(content)
    with pytest.raises(DamagedJournal, match="this is not what a crash leaves, so nothing is cut off") as raised:
        Writer(tmp_path)
    assert raised.type is kind
    assert (tmp_path / "0.journal").read_bytes() == content


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([[HINT, *data("a"), Checkpoint(0, 1)], [Checkpoint(0, 1), *data("b")]], (0, 1)),
        ([[HINT, *data("a"), Checkpoint(0, 1)], [Checkpoint(0, 2), *data("b")]], (0, 2)),
        ([[HINT, *data("a"), Checkpoint(0, 1)], [Checkpoint(0, 7), *data("b")]], (0, 1)),
        ([[HINT, *data("a"), Checkpoint(0, 1)], [Checkpoint(0, 7), *data("b"), Checkpoint(0, 8)]], (0, 8)),
        ([[HINT, *data("a"), Checkpoint(0, 1)], data("b"), [Checkpoint(0, 1)]], (0, 1)),
        ([[HINT, *data("a"), Checkpoint(0, 1)], data("b")], (0, 1)),
        ([data("a"), data("b")], (0, 0)),
        ([], None),
    ],
)
def test_ids_at_the_end_are_the_last_that_are_known_to_be_right(
    tmp_path: Path, files: list[list[Record]], found: tuple[int, int] | None
) -> None:
    write(tmp_path, dict(enumerate(files)))
    assert last_pair(REAL_DISK, list_files(REAL_DISK, tmp_path).files) == found


def test_journal_with_the_second_largest_id_can_be_moved_aside(tmp_path: Path) -> None:
    write(tmp_path, {MAX_ID - 1: [HINT, *data("a")]})
    with Writer(tmp_path, recovering=True) as writer:
        recovery = writer.recovery()
        assert [segment.records for segment in recovery] == [[b"a"]]
        assert (tmp_path / f"{MAX_ID}.journal").exists()


@pytest.mark.parametrize(
    ("before", "pair", "missing", "lost", "is_gap"),
    [
        ((2, 3), (2, 3), 0, (), False),
        ((2, 3), (2, 4), 0, (), False),
        ((2, 3), (2, 5), 0, (), True),
        ((1, 3), (3, 3), 0, (), True),
        ((2, 3), (1, 6), 0, (), True),
        ((2, 3), (1, 5), 0, (), True),
        ((2, 3), (3, 3), 0, (), False),
        ((0, 5), (4, 4), 0, (), True),
        ((2, 3), (2, 5), 1, (), False),
        ((2, 3), (2, 5), 0, ((3, 3),), False),
        ((2, 3), (2, 5), 0, ((4, 4),), True),
        ((2, 3), None, 0, (), False),
        (None, (2, 5), 0, (), False),
    ],
)
def test_first_ids_of_a_file_reveal_a_truncated_preceding_file(
    before: tuple[int, int] | None,
    pair: tuple[int, int] | None,
    missing: int,
    lost: tuple[tuple[int, int], ...],
    is_gap: bool,
) -> None:
    disk, path = SimulatedDisk(), Path("/7.journal")
    write_file(disk, path, b"no checkpoint" if pair is None else encoded(Checkpoint(*pair)))
    source = JournalFile(path.name, path, 8, 7, missing=missing, lost=lost)
    found = lost_end(disk.open(path, "read"), source, before)
    assert (found is not None) == is_gap
    if found is not None:
        assert (found.start, found.end, found.kind) == (0, 0, "gap")


# --- what is durable before what --------------------------------------------------------------------------------------


def test_checkpoint_is_durable_before_its_files_are_removed(tmp_path: Path) -> None:
    disk = RecordingDisk()
    with Writer(tmp_path, file_bytes=60, disk=disk) as writer:
        for record in (b"a" * 30, b"b" * 30):
            writer.append(record)
            writer.register_checkpoint()
        writer.flush()
        disk.events.clear()
        writer.check_checkpoint()
        last = disk.events.index(("remove", "0.journal"))
        assert disk.events[last - 1][0] == "sync"
        assert disk.events[last - 1] == ("sync", f"{writer.file_id}.journal")


def test_begin_file_syncs_the_previous_file(tmp_path: Path) -> None:
    disk = RecordingDisk()
    with Writer(tmp_path, disk=disk) as writer:
        writer.append(b"a")
        writer.flush()
        assert writer.begin_file() == 1
        assert [event for event in disk.events if event[1] != NOTE][-1] == ("sync", "0.journal")


def test_writes_of_a_killed_program_are_durable_before_new_ones(tmp_path: Path) -> None:
    write(tmp_path, {5: [HINT, *data("a")]})
    disk = RecordingDisk()
    with Writer(tmp_path, disk=disk):
        assert {("sync", "5.journal"), ("sync", tmp_path.name)} <= set(disk.events)
        assert [name for what, name in disk.events if what == "write"] == [NOTE]
        assert disk.events.index(("sync", "5.journal")) < disk.events.index(("write", NOTE))


def test_move_by_a_killed_program_is_durable_before_anything_is_written(tmp_path: Path) -> None:
    write(tmp_path, {5: [HINT, *data("a")]})
    (tmp_path / ASIDE / "6").mkdir(parents=True)
    (tmp_path / "5.journal").rename(tmp_path / ASIDE / "6" / "5.journal")
    disk = RecordingDisk()
    with Writer(tmp_path, disk=disk) as writer:
        synced = {name for what, name in disk.events if what == "sync"}
        assert {"6", "recovery", tmp_path.name} <= synced
        writer.append(b"b")
    assert [segment.records for segment in Reader(tmp_path).segments()] == [[b"a"], [b"b"]]


# --- links ------------------------------------------------------------------------------------------------------------


def test_files_are_not_moved_through_a_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    journal = write(tmp_path / "journal", {0: [HINT, *data("a")]})
    (journal / HOME).mkdir()
    (journal / ASIDE).symlink_to(elsewhere)
    with pytest.raises(LogwrightError):
        Writer(journal, recovering=True)
    assert list(elsewhere.iterdir()) == []
    assert (journal / "0.journal").exists()


def test_recovered_files_are_not_removed_through_a_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a letter").write_text("to somebody")
    journal = write(tmp_path / "journal", {9: [HINT, *data("a")]})
    (journal / HOME).mkdir()
    (journal / HOME / "recovered-9-0-0-0").symlink_to(elsewhere)
    (journal / HOME / "recovered-8-0-0-0").write_text("a file")
    Writer(journal).close()
    assert (elsewhere / "a letter").exists()


# --- what is forgotten ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "done", "is_forgotten"),
    [
        ({4: [Checkpoint(2, 2)]}, "recovered-3-2-2-25", True),
        ({4: [Checkpoint(2, 3)]}, "recovered-3-2-2-25", True),
        ({4: [Checkpoint(1, 1)]}, "recovered-3-2-2-25", False),
        ({3: [Checkpoint(2, 2)]}, "recovered-3-2-2-25", False),
        ({2: [Checkpoint(2, 2)]}, "recovered-3-2-2-25", False),
        ({2: [Checkpoint(2, 2)], 3: [Checkpoint(2, 2)]}, "recovered-3-2-2-25", True),
        ({}, "recovered-3-2-2-25", False),
    ],
    ids=["known", "known later", "a smaller segment", "the same file", "an earlier file", "from it on", "no file"],
)
def test_recovery_marker_is_removed_once_files_contain_its_ids(
    tmp_path: Path, files: dict[int, list[Record]], done: str, is_forgotten: bool
) -> None:
    write(tmp_path, files)
    (tmp_path / HOME / done).mkdir(parents=True)
    forget_done(REAL_DISK, tmp_path)
    assert (tmp_path / HOME / done).exists() != is_forgotten


def test_ids_after_damage_count(tmp_path: Path) -> None:
    bad = b"\xff\0\0\0"
    content = encoded(Checkpoint(1, 1), *data("a")) + bad + encoded(Checkpoint(1, 2), *data("b"))
    (tmp_path / "4.journal").write_bytes(content)
    (tmp_path / HOME / "recovered-3-2-2-25").mkdir(parents=True)
    forget_done(REAL_DISK, tmp_path)
    assert not (tmp_path / HOME / "recovered-3-2-2-25").exists()


def test_opening_removes_a_recovery_marker_whose_ids_are_in_files(tmp_path: Path) -> None:
    write(tmp_path, {4: [Checkpoint(2, 2)]})
    (tmp_path / HOME / "recovered-3-2-2-25").mkdir(parents=True)
    Writer(tmp_path).close()
    assert not (tmp_path / HOME / "recovered-3-2-2-25").exists()


def test_only_a_writer_that_was_opened_for_it_has_a_recovery(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer, pytest.raises(WrongUse, match=r"needs Writer\(…, recovering=True\)$"):
        writer.recovery()


def test_writer_has_one_recovery(tmp_path: Path) -> None:
    with Writer(tmp_path, recovering=True) as writer:
        writer.recovery()
        with pytest.raises(WrongUse, match="the recovery has begun already"):
            writer.recovery()
