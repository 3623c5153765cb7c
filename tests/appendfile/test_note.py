"""The note of a writer: what it shows that the bytes of the files do not, and that it never says too much."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from logwright.appendfile import Checkpoint, Data, Reader, Writer
from logwright.appendfile.bytes import codec
from logwright.appendfile.bytes.layout import CHECKPOINT_BYTES, NOTE_NAME
from logwright.appendfile.files import repair as repairs
from logwright.appendfile.files.note import Note, Noted, packed_note, read_note
from logwright.core.io.disk import REAL_DISK
from logwright.errors import DamagedJournal, Gap, LogwrightError
from tests.appendfile.samples import HINT, data, encoded
from tests.support.damage import damage_file, drop, flip_bit, insert, overwrite
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_tree

HOME = Path("/journal")


def journal(directory: Path, files: int = 4) -> Path:
    """Files of three records each, after their ids; in each the first record closes a segment."""
    with Writer(directory, file_bytes=70) as writer:
        for number in range(files):
            writer.append(b"order %d" % number)
            writer.register_checkpoint()
            writer.append(b"more %d" % number)
    assert sorted(path.name for path in directory.glob("*.journal")) == [f"{number}.journal" for number in range(files)]
    return directory


def kinds(directory: Path) -> list[tuple[str, str]]:
    return [(problem.file, problem.kind) for problem in Reader(directory).verify().problems]


def records(directory: Path) -> list[bytes]:
    found = Reader(directory).records(mode="dropmalformed")
    return [record.data for record in found if isinstance(record, Data)]


def tree(directory: Path) -> dict[str, bytes]:
    found = (
        path for path in directory.rglob("*") if path.is_file() and "cut" not in path.parts and path.suffix != ".lck"
    )
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in found}


def check_repair(directory: Path) -> list[tuple[str, int, int | None, list[int] | None]]:
    """Repair a journal, open it again, and take the repair back; the losses."""
    before = tree(directory)
    plan = repairs.plan(directory)
    assert plan.left == ()
    repairs.apply(directory, plan)
    reader = Reader(directory)
    assert reader.verify().problems == []
    assert repairs.plan(directory).empty
    with Writer(directory):
        pass
    assert Reader(directory).verify().problems == []
    repairs.undo(directory)
    assert tree(directory) == before
    return [(loss.file, loss.at_least, loss.at_most, loss.fields.get("segments")) for loss in plan.losses]


# --- what it shows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, CHECKPOINT_BYTES, 31])
def test_last_file_that_was_emptied_or_cut_between_records_is_damage(tmp_path: Path, size: int) -> None:
    journal(tmp_path)
    (tmp_path / "3.journal").write_bytes((tmp_path / "3.journal").read_bytes()[:size])
    assert kinds(tmp_path) == [("3.journal", "truncated")]
    with pytest.raises(DamagedJournal, match="records are missing"):
        list(Reader(tmp_path))
    for recovering in (False, True):
        with pytest.raises(DamagedJournal, match="records are missing"):
            Writer(tmp_path, recovering=recovering)
    assert check_repair(tmp_path) == [("3.journal", 1, None, [3, 3])]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_file_cut_between_records_is_damage_and_none_of_its_segments_is_complete(tmp_path: Path, number: int) -> None:
    journal(tmp_path)
    damage_file(tmp_path / f"{number}.journal", lambda content: content[:-10])
    assert kinds(tmp_path) == [(f"{number}.journal", "truncated")]
    assert [segment.id for segment in Reader(tmp_path).segments() if segment.complete] == [
        one for one in (0, 1, 2, 3) if one not in (number, number + 1)
    ]
    ((file, least, most, segments),) = check_repair(tmp_path)
    assert (file, least, most, segments) == (f"{number}.journal", 1, None, [number, number + 1])


@pytest.mark.parametrize("number", [1, 2, 3])
def test_missing_first_files_with_segments_that_are_not_checked_are_damage(tmp_path: Path, number: int) -> None:
    journal(tmp_path)
    for missing in range(number):
        (tmp_path / f"{missing}.journal").unlink()
    assert kinds(tmp_path) == [(f"{number}.journal", "gap")]
    with pytest.raises(Gap, match=f"they held the segments 0 to {number}, which are not checked"):
        list(Reader(tmp_path))
    for recovering in (False, True):
        with pytest.raises(Gap, match="files before this one are missing"):
            Writer(tmp_path, recovering=recovering)
    complete = [segment.id for segment in Reader(tmp_path).segments() if segment.complete]
    assert complete == [segment for segment in range(4) if segment > number]
    assert check_repair(tmp_path) == [(f"{number - 1}.journal", 1, None, [0, number])]
    repairs.apply(tmp_path, repairs.plan(tmp_path))
    assert [segment.id for segment in Reader(tmp_path).segments() if segment.complete] == complete


@pytest.mark.parametrize("checked", range(5))
def test_only_as_many_first_files_may_be_missing_as_are_checked(tmp_path: Path, checked: int) -> None:
    journal(tmp_path)
    with Writer(tmp_path, file_bytes=70) as writer:
        for _ in range(checked):
            writer.check_checkpoint()
    left = min(int(path.stem) for path in tmp_path.glob("*.journal"))
    assert left == max(0, min(checked - 1, 3))  # a file ends with the beginning of the next segment
    assert kinds(tmp_path) == []
    if left < 3:
        (tmp_path / f"{left}.journal").unlink()
        assert kinds(tmp_path) == [(f"{left + 1}.journal", "gap")]


def test_checks_that_damage_has_taken_do_not_make_first_files_missing_after_the_repair(tmp_path: Path) -> None:
    journal(tmp_path)
    with Writer(tmp_path, file_bytes=200) as writer:
        for _ in range(3):
            writer.check_checkpoint()
    assert not (tmp_path / "0.journal").exists()
    damage_file(tmp_path / "3.journal", lambda content: content[:CHECKPOINT_BYTES])
    assert ("3.journal", "truncated") in kinds(tmp_path)
    check_repair(tmp_path)


def test_first_ids_are_written_again_if_those_that_follow_them_are_bad_bytes(tmp_path: Path) -> None:
    journal(tmp_path, files=2)
    whole = (tmp_path / "1.journal").read_bytes()
    (tmp_path / "1.journal").write_bytes(insert(whole, 12, b"\xd1\xe3\x37\x24\x69\x6c\x00\x81"))
    assert kinds(tmp_path) == [("1.journal", "malformed")]
    check_repair(tmp_path)
    repairs.apply(tmp_path, repairs.plan(tmp_path))
    assert (tmp_path / "1.journal").read_bytes() == whole


def test_records_deleted_from_a_file_are_missing_from_any_of_its_segments(tmp_path: Path) -> None:
    journal(tmp_path)
    damage_file(tmp_path / "1.journal", drop, CHECKPOINT_BYTES, CHECKPOINT_BYTES + 11)
    assert kinds(tmp_path) == [("1.journal", "truncated")]
    assert check_repair(tmp_path) == [("1.journal", 1, None, [1, 2])]


def test_records_inserted_into_a_finished_file_are_damage(tmp_path: Path) -> None:
    journal(tmp_path)
    damage_file(tmp_path / "1.journal", insert, CHECKPOINT_BYTES, encoded(*data("never written")))
    assert kinds(tmp_path) == [("1.journal", "changed_file")]
    assert check_repair(tmp_path) == [("1.journal", 0, None, [1, 2])]


@pytest.mark.parametrize("size", [51, 61])
@pytest.mark.parametrize("number", [2, 3])
def test_file_overwritten_by_an_earlier_one_is_repaired_at_once(tmp_path: Path, number: int, size: int) -> None:
    journal(tmp_path)
    (tmp_path / f"{number}.journal").write_bytes((tmp_path / "0.journal").read_bytes()[:size])
    assert kinds(tmp_path)
    assert check_repair(tmp_path)


@pytest.mark.parametrize("missing", [[3], [2, 3], [1, 2, 3]])
def test_last_files_that_are_missing_are_damage(tmp_path: Path, missing: list[int]) -> None:
    journal(tmp_path)
    for number in missing:
        (tmp_path / f"{number}.journal").unlink()
    assert kinds(tmp_path) == [(f"{missing[0] - 1}.journal", "gap")]
    with pytest.raises(Gap, match="missing after this one"):
        Writer(tmp_path)
    losses = check_repair(tmp_path)
    assert [file for file, *_ in losses] == [f"{number}.journal" for number in missing]
    assert all(least == 1 for _, least, *_ in losses)


def test_journal_without_any_of_its_files_is_damage_and_continues_with_later_ids(tmp_path: Path) -> None:
    journal(tmp_path)
    for path in tmp_path.glob("*.journal"):
        path.unlink()
    assert kinds(tmp_path) == [("3.journal", "gap")]
    with pytest.raises(Gap, match=r"file 3 is missing, which \.logwright/appendfile\.files names"):
        Writer(tmp_path)
    with pytest.raises(Gap):
        list(Reader(tmp_path))
    assert check_repair(tmp_path) == [("3.journal", 1, None, [0, 3])]
    repairs.apply(tmp_path, repairs.plan(tmp_path))
    with Writer(tmp_path) as writer:
        assert (writer.file_id, writer.current) == (3, 3)


def test_files_written_since_a_recovery_began_that_are_all_missing_are_damage(tmp_path: Path) -> None:
    journal(tmp_path, 2)
    with Writer(tmp_path, recovering=True) as writer:
        writer.append(b"since then")
    (tmp_path / "2.journal").unlink()
    assert kinds(tmp_path) == [(".logwright/recovery/2/1.journal", "gap")]
    with pytest.raises(Gap, match="since the last recovery"):
        Writer(tmp_path)
    assert check_repair(tmp_path) == [("2.journal", 1, None, [2, 2])]


def remove_first_files(directory: Path) -> Path:
    """Check the segments of the first two files, which removes them."""
    with Writer(journal(directory), file_bytes=70) as writer:
        for _ in range(3):
            writer.check_checkpoint()
    return directory


def test_wrong_but_possible_ids_of_a_first_file_are_restored(tmp_path: Path) -> None:
    remove_first_files(tmp_path)
    first = min(tmp_path.glob("*.journal"), key=lambda path: int(path.stem))
    content = first.read_bytes()
    for bit in range(8 * 4, 8 * CHECKPOINT_BYTES):
        first.write_bytes(flip_bit(content, bit))
        assert kinds(tmp_path) != [], bit
        repairs.apply(tmp_path, repairs.plan(tmp_path))
        assert first.read_bytes() == content, bit
        repairs.undo(tmp_path)
    first.write_bytes(overwrite(content, 4, codec.encode(Checkpoint(0, 1))[4:]))
    assert kinds(tmp_path) == [(first.name, "malformed")]
    repairs.apply(tmp_path, repairs.plan(tmp_path))
    assert first.read_bytes() == content


def test_exchanged_files_with_the_same_ids_get_their_own_names_again(tmp_path: Path) -> None:
    with Writer(tmp_path, file_bytes=70) as writer:
        for size in (40, 50, 45, 30):
            writer.append(b"%d" % size * (size // 2))
    before = tree(tmp_path)
    one, other = tmp_path / "1.journal", tmp_path / "2.journal"
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])
    assert kinds(tmp_path) == [("1.journal", "truncated"), ("2.journal", "changed_file")]
    plan = repairs.plan(tmp_path)
    assert [loss.kind for loss in plan.losses] == ["restored"]
    repairs.apply(tmp_path, plan)
    assert {name: data for name, data in tree(tmp_path).items() if name.endswith(".journal")} == {
        name: data for name, data in before.items() if name.endswith(".journal")
    }
    assert kinds(tmp_path) == []


@pytest.mark.parametrize("has_note", [True, False])
@pytest.mark.parametrize("is_waiting", [False, True])
@pytest.mark.parametrize(("number", "name"), [(0, 4), (0, 99), (1, 3), (1, 5), (2, 99)])
def test_renamed_file_is_left_until_it_has_its_own_name_again(
    tmp_path: Path, number: int, name: int, is_waiting: bool, has_note: bool
) -> None:
    journal(tmp_path)
    folder = tmp_path
    if is_waiting:
        Writer(tmp_path, recovering=True).close()
        folder = tmp_path / ".logwright/recovery/4"
    if not has_note:
        (tmp_path / NOTE_NAME).unlink()
    (folder / f"{name}.journal").unlink(missing_ok=True)
    whole = records(tmp_path)
    (folder / f"{number}.journal").rename(folder / f"{name}.journal")
    before = tree(tmp_path)
    assert not Reader(tmp_path).verify().sound
    plan = repairs.plan(tmp_path)
    place = (folder / f"{name}.journal").relative_to(tmp_path).as_posix()
    assert plan.left == (f"{place} @ 0: it seems to be {number}.journal, renamed: rename it back",)
    assert plan.empty
    assert repairs.apply(tmp_path, plan) is None
    assert tree(tmp_path) == before
    (folder / f"{name}.journal").rename(folder / f"{number}.journal")
    plan = repairs.plan(tmp_path)
    assert plan.left == ()
    repairs.apply(tmp_path, plan)
    assert Reader(tmp_path).verify().problems == []
    assert records(tmp_path) == whole


@pytest.mark.parametrize("harm", [lambda content: content[:-1], lambda content: content[:-20] + b"\xff" * 20])
def test_end_of_the_last_file_that_was_synced_is_not_a_torn_tail(
    tmp_path: Path, harm: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "journal").mkdir()
    journal(tmp_path / "journal")
    with Writer(tmp_path / "journal") as writer:
        writer.append(bytes(30))
        writer.register_checkpoint()
    damage_file(tmp_path / "journal" / "3.journal", harm)
    assert ("3.journal", "malformed") in kinds(tmp_path / "journal")
    assert check_repair(tmp_path / "journal")


# --- what it does not say ---------------------------------------------------------------------------------------------


def test_journal_of_another_program_has_no_note_and_ends_anywhere(tmp_path: Path) -> None:
    (tmp_path / "0.journal").write_bytes(encoded(HINT, *data("a", "b")))
    assert kinds(tmp_path) == []
    (tmp_path / "0.journal").write_bytes(encoded(HINT))
    assert kinds(tmp_path) == []
    assert not (tmp_path / NOTE_NAME).exists()


def test_note_that_is_damaged_or_missing_says_nothing(tmp_path: Path) -> None:
    journal(tmp_path)
    note = tmp_path / NOTE_NAME
    content = note.read_bytes()
    for bit in range(8 * len(content)):
        note.write_bytes(flip_bit(content, bit))
        assert len(read_note(REAL_DISK, tmp_path)) == 3, bit
    note.write_bytes(flip_bit(content, 70))
    assert kinds(tmp_path) == []
    for harm in (b"", b"text", bytes(4096), content[:100]):
        note.write_bytes(harm)
        assert kinds(tmp_path) == []
    note.unlink()
    note.mkdir()
    assert kinds(tmp_path) == []
    with Writer(tmp_path) as writer:
        writer.append(b"it is written all the same")
    assert records(tmp_path)[-1] == b"it is written all the same"


def test_rows_of_removed_files_are_used_again(tmp_path: Path) -> None:
    with Writer(tmp_path, file_bytes=70) as writer:
        for number in range(200):
            writer.append(b"order %d" % number)
            writer.register_checkpoint()
            writer.check_checkpoint()
            writer.flush()
    assert (tmp_path / NOTE_NAME).stat().st_size <= 64 * 4
    for _ in range(5):
        with Writer(tmp_path, file_bytes=70, recovering=True) as writer:
            assert list(writer.recovery()) == []
            writer.append(b"more than fits into one file, so that another one is begun")
            writer.append(b"more than fits into one file, so that another one is begun")
            writer.register_checkpoint()
            writer.check_checkpoint()
    assert (tmp_path / NOTE_NAME).stat().st_size <= 64 * 5
    assert kinds(tmp_path) == []


def test_late_sync_does_not_take_back_what_is_noted(tmp_path: Path) -> None:
    (tmp_path / ".logwright").mkdir()
    note = Note(REAL_DISK, tmp_path)
    note.read()
    note.put(3, Noted(200, (0, 1)))
    note.put(3, Noted(100, (0, 1)))
    assert read_note(REAL_DISK, tmp_path) == {3: Noted(200, (0, 1))}
    note.put(3, Noted(200, (0, 1), is_finished=True))
    note.close()
    assert read_note(REAL_DISK, tmp_path) == {3: Noted(200, (0, 1), is_finished=True)}
    assert (tmp_path / NOTE_NAME).read_bytes() == packed_note({3: Noted(200, (0, 1), is_finished=True)})


def test_sync_is_noted_without_a_sync_of_its_own() -> None:
    disk = SimulatedDisk()
    with Writer(HOME, disk=disk, sync="always") as writer:
        for number in range(5):
            writer.append(b"%d" % number)
            size = len(read_tree(disk, HOME)["0.journal"] or b"")
            assert read_note(disk, HOME) == {0: Noted(size, (0, 0))}
    assert f"contents of {HOME / NOTE_NAME}" in disk.unsynced()


@pytest.mark.parametrize("sync", ["none", "always"])
def test_no_crash_leaves_a_note_that_contradicts_the_files(sync: str) -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    for _ in range(2):
        with Writer(HOME, disk=disk, file_bytes=70, sync=sync) as writer:
            for number in range(4):
                writer.append(b"order %d" % number)
                writer.register_checkpoint()
                if number % 2:
                    writer.check_checkpoint()
    with Writer(HOME, disk=disk, file_bytes=70, recovering=True) as writer:
        list(writer.recovery())
        writer.append(b"after it")
    states = 0
    for crashed in disk.crash_states():
        states += 1
        if crashed.is_directory(HOME) and crashed.exists(HOME / ".logwright"):
            try:
                found = Reader(HOME, disk=crashed).verify().problems
            except LogwrightError:
                continue
            assert {problem.kind for problem in found} <= {"torn_tail"}, (found, crashed.story)
    assert states > 100


def test_directory_in_the_place_of_the_note_does_not_prevent_a_repair(tmp_path: Path) -> None:
    journal(tmp_path)
    (tmp_path / NOTE_NAME).unlink()
    (tmp_path / NOTE_NAME).mkdir()
    damage_file(tmp_path / "1.journal", overwrite, CHECKPOINT_BYTES, b"\x80")
    assert check_repair(tmp_path)
    assert (tmp_path / NOTE_NAME).is_dir()
