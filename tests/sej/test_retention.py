"""Retention: which segments are removed, which consumers keep segments, and the effects of a crash."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK, Disk
from logwright.errors import DamagedJournal, Gap, NotFound, StorageFailed, WrongUse
from logwright.sej.bytes.layout import segment_name
from logwright.sej.files.reader import Reader
from logwright.sej.files.scanner import Scanner
from logwright.sej.files.writer import Writer
from logwright.sej.model.offset import Offset
from logwright.sej.model.retention import clean, plan
from tests.sej.samples import MESSAGE_BYTES, make_journal, offsets_of
from tests.support.faulty_disk import every_fault, forgotten_syncs
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_tree

JOURNAL = Path("/journal")
SECOND_NS = 10**9
SEGMENT_BYTES = 10 * MESSAGE_BYTES


@pytest.fixture
def journal(journal_directory: Path) -> Path:
    """A journal of 55 messages in segments of 10, a second apart."""
    return make_journal(journal_directory, 55, timestamps=[n * SECOND_NS for n in range(55)])


def commit(directory: Path, name: str, offset: int | None, disk: Disk = REAL_DISK) -> None:
    with Offset(directory, name, disk=disk) as consumer:
        if offset is not None:
            consumer.commit(offset)


def first_offsets(directory: Path, disk: Disk = REAL_DISK) -> list[int]:
    return [segment.first_offset for segment in Reader(directory, disk=disk).segments()]


# --- consumers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("committed", "left"),
    [
        (0, [0, 10, 20, 30, 40, 50]),
        (9, [0, 10, 20, 30, 40, 50]),
        (10, [10, 20, 30, 40, 50]),
        (49, [40, 50]),
        (50, [50]),
        (55, [50]),
        (10**12, [50]),
    ],
)
def test_consumed_segments_are_removed_but_not_the_last(journal: Path, committed: int, left: list[int]) -> None:
    commit(journal, "reader", committed)
    assert [verdict.segment.first_offset for verdict in clean(journal).removed] == [*range(0, left[0], 10)]
    assert first_offsets(journal) == left
    assert offsets_of(Reader(journal)) == list(range(left[0], 55))
    assert not clean(journal).removed


def test_slowest_consumer_decides_and_the_plan_names_the_blocking_consumers(journal: Path) -> None:
    commit(journal, "fast", 55)
    commit(journal, "slow", 25)
    commit(journal, "slower", 12)
    found = plan(journal)
    assert [(v.segment.first_offset, v.next_offset, v.removed, v.consumers) for v in found.verdicts] == [
        (0, 10, True, ()),
        (10, 20, False, ("slower",)),
        (20, 30, False, ("slow", "slower")),
        (30, 40, False, ("slow", "slower")),
        (40, 50, False, ("slow", "slower")),
        (50, None, False, ()),
    ]
    assert [verdict.reason for verdict in found.verdicts] == [
        "every consumer has passed it",
        "needed by slower",
        "needed by slow, slower",
        "needed by slow, slower",
        "needed by slow, slower",
        "it is the last one",
    ]
    assert found.consumers == {"fast": 55, "slow": 25, "slower": 12}
    assert found.removed_bytes == SEGMENT_BYTES
    assert first_offsets(journal) == [0, 10, 20, 30, 40, 50], "a plan does nothing"


def test_plan_can_be_printed(journal: Path) -> None:
    commit(journal, "reader", 12)
    printed = plan(journal).as_json()
    assert printed["removed"] == 1
    assert printed["removed_bytes"] == SEGMENT_BYTES
    assert printed["consumers"] == {"reader": 12}
    assert printed["segments"][1] == {
        "file": "jnl/000000000000000a.jnl",
        "first": 10,
        "next": 20,
        "bytes": SEGMENT_BYTES,
        "remove": False,
        "reason": "needed by reader",
        "consumers": ["reader"],
    }


def test_consumer_without_a_commit_keeps_every_segment(journal: Path) -> None:
    commit(journal, "fast", 55)
    commit(journal, "new", None)
    assert not clean(journal, max_age_seconds=0).removed
    assert len(clean(journal, ignore_consumers=["new"]).removed) == 5


def test_consumer_with_a_foreign_name_counts(journal: Path) -> None:
    commit(journal, "fast", 55)
    (journal / "ofs" / "my reader.ofs").write_bytes((10).to_bytes(8, "big"))
    assert [verdict.segment.first_offset for verdict in clean(journal).removed] == [0]


def test_consumer_with_an_unreadable_offset_blocks_and_is_reported(journal: Path) -> None:
    commit(journal, "good", 55)
    (journal / "ofs" / "bad.ofs").write_bytes(b"123")
    with pytest.raises(DamagedJournal, match="where the consumer 'bad' is cannot be known: reset it or ignore it"):
        clean(journal, max_bytes=0)
    assert first_offsets(journal) == [0, 10, 20, 30, 40, 50]
    assert len(clean(journal, ignore_consumers=["bad"]).removed) == 5


def test_ignoring_an_unknown_consumer_is_an_error(journal: Path) -> None:
    commit(journal, "reader", 55)
    with pytest.raises(NotFound, match="no consumer 'raeder' to ignore"):
        clean(journal, ignore_consumers=["raeder"])


def test_single_string_is_refused_as_a_collection_of_names(journal: Path) -> None:
    for name in ("c", "1"):
        commit(journal, name, 0)
    with pytest.raises(WrongUse, match=r"ignore_consumers is a collection of names: \['c1'\], not 'c1'"):
        clean(journal, max_bytes=1, ignore_consumers="c1")
    assert first_offsets(journal) == [0, 10, 20, 30, 40, 50]


def test_without_consumers_and_limits_nothing_is_removed(journal: Path) -> None:
    with pytest.raises(WrongUse, match="no consumer to go by"):
        clean(journal)
    commit(journal, "reader", 55)
    with pytest.raises(WrongUse, match="no consumer to go by"):
        clean(journal, ignore_consumers=["reader"])
    assert first_offsets(journal) == [0, 10, 20, 30, 40, 50]


# --- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "left"), [(100, 0), (45, 10), (44.9, 10), (35.5, 10), (34.9, 20), (5.1, 40), (4.9, 50), (0, 50)]
)
def test_segment_stays_until_its_newest_message_is_too_old(journal: Path, seconds: float, left: int) -> None:
    clean(journal, max_age_seconds=seconds, now_ns=54 * SECOND_NS + 1)
    assert first_offsets(journal)[0] == left


def test_age_is_that_of_the_newest_message_even_with_decreasing_times(journal_directory: Path) -> None:
    stamps = [100, 999, *range(101, 109), *range(200, 210), 300]
    journal = make_journal(journal_directory, 21, timestamps=[n * SECOND_NS for n in stamps])
    assert [v.reason for v in plan(journal, max_age_seconds=500, now_ns=1000 * SECOND_NS).verdicts] == [
        "within the limits",
        "an older segment stays",
        "it is the last one",
    ]
    assert len(plan(journal, max_age_seconds=500, now_ns=2000 * SECOND_NS).removed) == 2


def test_without_an_index_the_age_is_that_of_the_last_message(journal: Path) -> None:
    for path in (journal / "idx").iterdir():
        path.unlink()
    clean(journal, max_age_seconds=34.9, now_ns=54 * SECOND_NS)
    assert first_offsets(journal)[0] == 20


def test_segment_without_timestamps_has_no_age(journal_directory: Path) -> None:
    journal = make_journal(journal_directory, 25, timestamps=[None] * 25)
    assert not clean(journal, max_age_seconds=0).removed
    assert len(clean(journal, max_bytes=0).removed) == 2


@pytest.mark.parametrize(
    ("most", "left"),
    [(10**9, 0), (55 * MESSAGE_BYTES, 0), (55 * MESSAGE_BYTES - 1, 10), (3 * SEGMENT_BYTES, 30), (1, 50), (0, 50)],
)
def test_only_enough_segments_are_removed_to_reach_the_limit(journal: Path, most: int, left: int) -> None:
    clean(journal, max_bytes=most)
    assert first_offsets(journal)[0] == left


def test_segment_is_removed_if_either_limit_applies(journal: Path) -> None:
    now = 54 * SECOND_NS
    assert len(plan(journal, max_age_seconds=30, max_bytes=10**9, now_ns=now).removed) == 2
    assert len(plan(journal, max_age_seconds=1000, max_bytes=3 * SEGMENT_BYTES, now_ns=now).removed) == 3
    assert len(plan(journal, max_age_seconds=30, max_bytes=3 * SEGMENT_BYTES, now_ns=now).removed) == 3


def test_newest_segments_are_always_kept(journal: Path) -> None:
    commit(journal, "reader", 55)
    assert [v.reason for v in plan(journal, max_bytes=0, keep_segments=4).verdicts][2:] == [
        "the newest 4 are kept",
        "the newest 4 are kept",
        "the newest 4 are kept",
        "it is the last one",
    ]
    clean(journal, keep_segments=4)
    assert first_offsets(journal) == [20, 30, 40, 50]


def test_consumers_override_limits(journal: Path) -> None:
    commit(journal, "reader", 20)
    clean(journal, max_bytes=0, max_age_seconds=0)
    assert first_offsets(journal) == [20, 30, 40, 50]


@pytest.mark.parametrize("wrong", [{"keep_segments": 0}, {"max_bytes": -1}, {"max_age_seconds": -1.0}])
def test_invalid_limits_are_refused(journal: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(WrongUse):
        clean(journal, **wrong)  # type: ignore[arg-type]


def test_missing_journal_cannot_be_cleaned(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no sej journal"):
        clean(tmp_path, max_bytes=0)


# --- files ----------------------------------------------------------------------------------------------------------


def test_index_and_checksums_are_removed_with_their_segment(journal_directory: Path) -> None:
    with Writer(journal_directory, segment_size=SEGMENT_BYTES, checksums=True) as writer:
        for number in range(25):
            writer.append(f"value {number:08d}".encode())
    commit(journal_directory, "reader", 20)
    before = read_tree(REAL_DISK, journal_directory)
    clean(journal_directory)
    gone = set(before) - set(read_tree(REAL_DISK, journal_directory))
    assert gone == {
        f"{kind}{stem}{suffix}"
        for stem in ("0000000000000000", "000000000000000a")
        for kind, suffix in (("jnl/", ".jnl"), ("jnl/", ".jnl.crc"), ("idx/", ".idx"))
    }


def test_journal_can_be_cleaned_while_it_is_written_and_followed(journal: Path) -> None:
    commit(journal, "reader", 55)
    with Scanner(journal, timeout=0) as scanner, Writer(journal, segment_size=SEGMENT_BYTES) as writer:
        assert offsets_of([next(scanner)]) == [0]
        for _ in range(15):
            writer.append(b"value 00000000")
        writer.flush()
        clean(journal, keep_segments=3)
        assert offsets_of(next(scanner) for _ in range(9)) == list(range(1, 10)), "what it has open it still reads"
        with pytest.raises(Gap, match="begins with offset 50 where 10 was expected"):
            next(scanner)
        for _ in range(15):
            writer.append(b"value 00000000")
    assert first_offsets(journal)[0] == 50
    assert offsets_of(Reader(journal)) == list(range(50, 85))


def test_writing_continues_after_everything_but_an_empty_segment_is_removed(journal_directory: Path) -> None:
    journal = make_journal(journal_directory, 20)
    assert first_offsets(journal) == [0, 10, 20]
    commit(journal, "reader", 20)
    clean(journal)
    assert first_offsets(journal) == [20]
    make_journal(journal, 3)
    assert offsets_of(Reader(journal)) == [20, 21, 22]


def test_side_files_of_removed_segments_are_removed_and_nothing_else(journal: Path) -> None:
    for name in ("jnl/0000000000000000.jnl", "jnl/000000000000000a.jnl"):
        (journal / name).unlink()
    strays = ["jnl/0000000000000000.jnl.crc", "idx/00ff.idx", "idx/note.txt", "jnl/00.jnl.crc.old", "idx/x.idx"]
    for name in strays:
        (journal / name).write_bytes(b"")
    clean(journal, max_bytes=10**9)
    left = {name for name in read_tree(REAL_DISK, journal) if not name.endswith(".jnl")}
    indexes = {f"idx/{offset:016x}.idx" for offset in (20, 30, 40, 50)}
    assert left == {"jnl", "idx", "jnl.lck", *indexes, *strays[1:]}, "the stray index is ahead"


def test_segments_reached_through_a_link_are_not_removed(journal: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "jnl").symlink_to(journal / "jnl")
    before = read_tree(REAL_DISK, journal)
    for question in (plan, clean):
        with pytest.raises(StorageFailed, match=rf"clean {linked / 'jnl'}: this is a link"):
            question(linked, max_bytes=1)
    assert read_tree(REAL_DISK, journal) == before


def test_indexes_reached_through_a_link_are_not_removed(journal: Path, tmp_path: Path) -> None:
    others = make_journal(tmp_path / "others", 55) / "idx"
    shutil.rmtree(journal / "idx")
    (journal / "idx").symlink_to(others)
    before = read_tree(REAL_DISK, others)
    assert f"{segment_name(0).removesuffix('.jnl')}.idx" in before
    clean(journal, max_bytes=1)
    assert first_offsets(journal) == [50]
    assert read_tree(REAL_DISK, others) == before


def test_segment_with_a_short_name_is_removed(journal: Path) -> None:
    (journal / "jnl" / segment_name(0)).rename(journal / "jnl" / "0.jnl")
    clean(journal, max_bytes=3 * SEGMENT_BYTES)
    assert first_offsets(journal) == [30, 40, 50]


# --- two at once, crashes, failures ---------------------------------------------------------------------------------


class Meddling:
    """A disk that does something else right before a segment is removed for the n-th time."""

    def __init__(self, inner: Disk, number: int, action: object) -> None:
        self._inner = inner
        self._left = number
        self._action = action

    def remove(self, path: Path) -> None:
        if path.suffix == ".jnl":
            self._left -= 1
            if self._left == 0:
                self._action()  # type: ignore[operator]
        self._inner.remove(path)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_concurrent_cleaners_do_not_conflict(journal: Path, number: int) -> None:
    commit(journal, "reader", 45)
    disk = Meddling(REAL_DISK, number, lambda: clean(journal))
    assert len(clean(journal, disk=disk).removed) == 4  # type: ignore[arg-type]
    assert first_offsets(journal) == [40, 50]


def test_consumer_reset_during_cleaning_keeps_the_rest(journal: Path) -> None:
    commit(journal, "reader", 55)
    disk = Meddling(REAL_DISK, 2, lambda: commit(journal, "reader", 20))
    found = clean(journal, disk=disk)  # type: ignore[arg-type]
    assert [verdict.segment.first_offset for verdict in found.removed] == [0, 10]
    assert found.verdicts[2].reason == "needed by reader meanwhile"
    assert first_offsets(journal) == [20, 30, 40, 50]


@pytest.fixture
def disk(simulated_disk: SimulatedDisk) -> SimulatedDisk:
    """A disk with a journal of 45 messages in segments of 10, whose consumer has reached 40."""
    make_journal(JOURNAL, 45, disk=simulated_disk)
    commit(JOURNAL, "reader", 40, simulated_disk)
    simulated_disk.settle()
    return simulated_disk


def has_no_hole(state: SimulatedDisk) -> bool:
    """Whether the journal is whole from its first segment on."""
    left = first_offsets(JOURNAL, state)
    return left == list(range(left[0], 50, 10))


def test_crash_leaves_no_hole_and_the_next_cleaning_leaves_no_orphans(disk: SimulatedDisk) -> None:
    clean(JOURNAL, disk=disk)
    seen = set()
    for state in [*disk.crash_states(reorder_names=True, format="sej"), *disk.process_kills(format="sej")]:
        seen.add(first_offsets(JOURNAL, state)[0])
        assert has_no_hole(state)
        clean(JOURNAL, disk=state)
        assert first_offsets(JOURNAL, state) == [40]
        assert state.list_directory(JOURNAL / "idx") == ["0000000000000028.idx"]
        assert offsets_of(Reader(JOURNAL, disk=state)) == list(range(40, 45))
    assert seen == {0, 10, 20, 30, 40}


def test_missing_sync_after_each_segment_could_leave_a_hole(disk: SimulatedDisk) -> None:
    holes = []
    for faulty in forgotten_syncs(disk.copy):
        clean(JOURNAL, disk=faulty)
        states = faulty.inner.crash_states(reorder_names=True, format="")
        holes.append((faulty.failed, not all(map(has_no_hole, states))))
    synced = f"sync directory {JOURNAL / 'jnl'}"
    assert holes == [(synced, True)] * 3 + [(synced, False), ("", False)], "nothing follows the last one"


def test_failure_of_any_call_leaves_no_hole(disk: SimulatedDisk) -> None:
    for faulty in every_fault(disk.copy, format="sej"):
        try:
            clean(JOURNAL, disk=faulty)
        except StorageFailed:
            assert faulty.failures
        assert faulty.inner.open_files == 0
        assert has_no_hole(faulty.inner)
