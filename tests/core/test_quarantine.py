"""Bytes that are cut off a journal are kept: at every moment they are in the journal, in the copy, or in both."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK, Disk
from logwright.core.io.quarantine import cut_directory, cut_tail, keep_file, keep_range, kept_bytes
from logwright.errors import StorageFailed
from tests.support.damage import noise
from tests.support.faulty_disk import FaultyDisk, every_fault, forgotten_syncs
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file, read_tree, write_file

JOURNAL = Path("/journal")
PATH = JOURNAL / "file"
WHOLE = noise(1300, seed=1)
TAIL = noise(900, seed=2)


@pytest.fixture
def disk(simulated_disk: SimulatedDisk) -> SimulatedDisk:
    """A disk with a journal of whole records and a torn tail, all of it durable."""
    write_file(simulated_disk, PATH, WHOLE + TAIL)
    simulated_disk.settle()
    return simulated_disk


def cut(disk: Disk) -> Path | None:
    file = disk.open(PATH, "update")
    try:
        return cut_tail(disk, JOURNAL, file, len(WHOLE))
    finally:
        file.close()


def copies(disk: Disk) -> list[bytes]:
    directory = cut_directory(JOURNAL)
    names = disk.list_directory(directory) if disk.is_directory(directory) else []
    return [read_file(disk, directory / name) for name in names]


def nothing_is_lost(state: SimulatedDisk) -> bool:
    """The whole records are in the journal. The tail is there too, or in a copy. Once acknowledged, it is cut off."""
    content = read_file(state, PATH)
    if content == WHOLE:
        return TAIL in copies(state)
    return content == WHOLE + TAIL and "cut" not in state.marks


def test_tail_is_in_the_journal_the_copy_or_both_after_every_crash(disk: SimulatedDisk) -> None:
    cut(disk)
    disk.mark("cut")
    seen = set()
    for state in disk.crash_states(seed=3):
        assert nothing_is_lost(state)
        seen.add((len(read_file(state, PATH)) > len(WHOLE), TAIL in copies(state)))
    assert seen == {(True, False), (True, True), (False, True)}


def test_cut_can_be_repeated_after_every_crash_and_kill(disk: SimulatedDisk) -> None:
    cut(disk)
    for state in [*disk.crash_states(most=8), *disk.process_kills()]:
        if cut(state):
            state.mark("cut")
        assert read_file(state, PATH) == WHOLE
        assert nothing_is_lost(state)
        assert all(map(nothing_is_lost, state.crash_states(most=6)))


def test_failure_of_any_call_loses_nothing(disk: SimulatedDisk) -> None:
    for faulty in every_fault(disk.copy):
        try:
            cut(faulty)
        except StorageFailed:
            assert faulty.failures
        else:
            faulty.inner.mark("cut")
        assert faulty.inner.open_files == 0
        assert nothing_is_lost(faulty.inner)
        assert all(map(nothing_is_lost, faulty.inner.crash_states(most=3)))


def test_every_missing_sync_of_a_cut_is_detected(disk: SimulatedDisk) -> None:
    found_out = []
    for faulty in forgotten_syncs(disk.copy):
        copy = cut(faulty)
        faulty.inner.mark("cut")
        found_out.append((faulty.failed, not all(map(nothing_is_lost, faulty.inner.crash_states(format="")))))
    assert copy is not None
    names = [name.rpartition(".")[0] if "@" in name else name for name, _ in found_out]
    assert names == [
        "sync directory /",  # needed only if the creator of the journal was killed
        f"sync directory {JOURNAL}",
        f"sync directory {JOURNAL / '.logwright'}",
        f"sync {cut_directory(JOURNAL)}/file.@{len(WHOLE)}",
        f"sync directory {cut_directory(JOURNAL)}",
        f"sync {PATH}",
        "",
    ]
    assert [found for _, found in found_out] == [False, True, True, True, True, True, False]


def test_copy_is_named_by_file_position_and_time(journal_directory: Path) -> None:
    path = journal_directory / "file"
    path.write_bytes(WHOLE + TAIL)
    file = REAL_DISK.open(path, "update")
    first = cut_tail(REAL_DISK, journal_directory, file, len(WHOLE))
    second = keep_range(REAL_DISK, journal_directory, file, 100, 300)
    assert cut_tail(REAL_DISK, journal_directory, file, len(WHOLE)) is None, "there is nothing to cut any more"
    assert cut_tail(REAL_DISK, journal_directory, file, len(WHOLE) + 1) is None
    file.close()
    assert first is not None
    for copy, position, content in ((first, len(WHOLE), TAIL), (second, 100, WHOLE[100:300])):
        assert copy.parent == journal_directory / ".logwright" / "cut"
        name, at, time_ns = copy.name.rsplit(".", 2)
        assert (name, at, time_ns.isdigit()) == ("file", f"@{position}", True)
        assert copy.read_bytes() == content
    assert path.read_bytes() == WHOLE
    assert len(read_tree(REAL_DISK, journal_directory)) == 5


def test_long_range_is_copied_piece_by_piece(simulated_disk: SimulatedDisk) -> None:
    data = noise(3_000_000)
    write_file(simulated_disk, PATH, data)
    counting = FaultyDisk(simulated_disk, only=["read"])
    file = counting.open(PATH, "read")
    copy = keep_range(counting, JOURNAL, file, 1000, len(data))
    assert read_file(simulated_disk, copy) == data[1000:]
    assert counting.calls == 3


def test_whole_file_is_moved_to_the_copies_and_a_long_name_is_shortened(journal_directory: Path) -> None:
    for name in ("file", "ö" * 120 + ".1234567890123"):
        (journal_directory / name).write_bytes(WHOLE)
        kept = keep_file(REAL_DISK, journal_directory, journal_directory / name)
        assert not (journal_directory / name).exists()
        assert kept.parent == cut_directory(journal_directory)
        assert kept.read_bytes() == WHOLE
        beginning, at, _ = kept.name.rsplit(".", 2)
        assert at == "@0"
        assert name.startswith(beginning)
        assert len(kept.name.encode()) <= 255


def test_moved_file_is_durable_in_its_new_place(disk: SimulatedDisk) -> None:
    keep_file(disk, JOURNAL, PATH)
    assert disk.unsynced() == [f"name {PATH}"], "only that the old name is gone may still be on its way"


def test_hole_takes_no_space_in_the_copy_either(journal_directory: Path) -> None:
    path = journal_directory / "file"
    with path.open("wb") as sparse:
        sparse.write(WHOLE)
        sparse.truncate(8 << 20)
    file = REAL_DISK.open(path, "read")
    whole = keep_range(REAL_DISK, journal_directory, file, 0, 8 << 20)
    hole = keep_range(REAL_DISK, journal_directory, file, 4 << 20, 8 << 20)
    file.close()
    assert whole.read_bytes() == path.read_bytes()
    assert hole.read_bytes() == bytes(4 << 20)
    assert hole.stat().st_blocks == 0
    assert whole.stat().st_blocks * 512 < 4 << 20


def test_range_past_the_end_is_copied_up_to_the_end(disk: SimulatedDisk) -> None:
    file = disk.open(PATH, "read")
    copy = keep_range(disk, JOURNAL, file, len(WHOLE), len(WHOLE) + 5000)
    file.close()
    assert read_file(disk, copy) == TAIL


def test_copies_are_counted_by_name_prefix(disk: SimulatedDisk) -> None:
    assert kept_bytes(disk, JOURNAL) == 0
    cut(disk)
    assert [kept_bytes(disk, JOURNAL, name) for name in ("", "file.@", "other")] == [len(TAIL), len(TAIL), 0]


@pytest.mark.parametrize("link", [".logwright", ".logwright/cut"])
def test_copies_are_not_written_through_a_link(journal_directory: Path, tmp_path: Path, link: str) -> None:
    (tmp_path / "elsewhere" / "cut").mkdir(parents=True)
    (journal_directory / link).parent.mkdir(exist_ok=True)
    (journal_directory / link).symlink_to(tmp_path / "elsewhere")
    (journal_directory / "file").write_bytes(WHOLE)
    with pytest.raises(StorageFailed, match="links in a journal are not followed"):
        keep_file(REAL_DISK, journal_directory, journal_directory / "file")
    assert list((tmp_path / "elsewhere" / "cut").iterdir()) == []
    assert (journal_directory / "file").read_bytes() == WHOLE


@pytest.mark.parametrize(("longest", "left"), [(232, 232), (233, 232)])
def test_only_a_long_name_is_shortened(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch, longest: int, left: int
) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1763241600123456789)
    write_file(disk, JOURNAL / ("n" * longest), WHOLE)
    assert keep_file(disk, JOURNAL, JOURNAL / ("n" * longest)).name == "n" * left + ".@0.1763241600123456789"


@pytest.mark.parametrize("partial", [False, True])
def test_copy_without_enough_space_leaves_no_file(disk: SimulatedDisk, partial: bool) -> None:
    full = FaultyDisk(disk, 1, errno.ENOSPC, forever=True, partial=partial, only=["write"])
    for _ in range(2):
        with pytest.raises(StorageFailed):
            cut(full)
    assert disk.list_directory(cut_directory(JOURNAL)) == []
    assert read_file(disk, PATH) == WHOLE + TAIL
