"""A consumer's offset: its file, its lock, and the effects of a crash."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from logwright.core.io.disk import REAL_DISK, Disk
from logwright.errors import Closed, DamagedJournal, Locked, NotFound, Poisoned, StorageFailed, Truncated, WrongUse
from logwright.sej.bytes.layout import segment_name
from logwright.sej.files.offset_file import forget_ahead, note_ahead, passed_from, stored_offset
from logwright.sej.files.reader import Reader
from logwright.sej.model.consumer import Consumer
from logwright.sej.model.offset import Offset, list_offsets, read_offset, reset
from tests.sej.samples import GOLDEN, MESSAGE_BYTES, golden_case, make_journal
from tests.support.damage import cut, damage_file
from tests.support.faulty_disk import FaultyDisk, every_fault, forgotten_syncs
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file, read_tree, write_file

JOURNAL = Path("/journal")


@pytest.fixture
def journal(journal_directory: Path) -> Path:
    """A journal of 25 messages in segments of 10, with the timestamps 0 to 24."""
    return make_journal(journal_directory, 25)


@pytest.fixture
def disk(simulated_disk: SimulatedDisk) -> SimulatedDisk:
    """A disk with such a journal, whose consumer `reader` has committed 3."""
    make_journal(JOURNAL, 25, disk=simulated_disk)
    with Offset(JOURNAL, "reader", disk=simulated_disk) as offset:
        offset.commit(3)
    simulated_disk.settle()
    return simulated_disk


# --- the original's files -------------------------------------------------------------------------------------------


def test_offsets_that_the_original_stored_are_read() -> None:
    directory = GOLDEN / "offsets" / "sej"
    values = golden_case("offsets")["offset_values_in_memory"]
    assert read_offset(directory, "reader1") == values["reader1"] == 17
    assert read_offset(directory, "reader2") == values["reader2"] == 0x123201FCE1D4C4DB
    assert read_offset(directory, "never_committed_first", "first") == values["never_committed_first"] == 0
    assert read_offset(directory, "never_committed_last", "last") == values["never_committed_last"] == 40
    assert list_offsets(REAL_DISK, directory) == {
        "committed_same_value": None,
        "never_committed_first": None,
        "never_committed_last": None,
        "reader1": 17,
        "reader2": 0x123201FCE1D4C4DB,
    }


def test_our_commit_makes_the_file_that_the_original_made(tmp_path: Path) -> None:
    directory = tmp_path / "sej"
    shutil.copytree(GOLDEN / "offsets" / "sej", directory)
    for name, stored in golden_case("offsets")["ofs_files_hex"].items():
        path = directory / "ofs" / name
        path.unlink()
        with Offset(directory, path.stem) as offset:
            if stored:
                offset.commit(int(stored, 16))
        assert path.read_bytes().hex() == stored


# --- values ---------------------------------------------------------------------------------------------------------


def test_commit_is_8_bytes_big_endian_and_read_by_the_next_holder(journal: Path) -> None:
    with Offset(journal, "reader") as offset:
        offset.commit(0x0102030405060708)
        assert offset.value == 0x0102030405060708
    assert (journal / "ofs" / "reader.ofs").read_bytes() == bytes(range(1, 9))
    assert read_offset(journal, "reader") == 0x0102030405060708
    with Offset(journal, "other") as offset:
        offset.commit(2**64 - 1)
        offset.commit(7)
    with Offset(journal, "other", "last") as offset:
        assert offset.value == 7


def test_new_consumer_starts_at_its_default_and_is_registered(journal: Path) -> None:
    (journal / "jnl" / "0000000000000000.jnl").unlink()
    with Offset(journal, "a") as first, Offset(journal, "b", "last") as last:
        assert (first.value, first.committed) == (10, False)
        assert (last.value, last.committed) == (25, False)
    assert list_offsets(REAL_DISK, journal) == {"a": None, "b": None}
    assert read_offset(journal, "a", "last") == 25
    make_journal(journal, 5)
    with Offset(journal, "b", "last") as last:
        assert last.value == 30, "it had not committed, so its default is looked up again"


def test_new_consumer_is_known_after_a_power_cut(disk: SimulatedDisk) -> None:
    with Offset(JOURNAL, "new", disk=disk):
        assert f"name {JOURNAL / 'ofs' / 'new.ofs'}" not in disk.unsynced()


def test_default_counts_as_committed_only_after_a_commit_of_it(journal: Path) -> None:
    with Offset(journal, "reader", "last") as offset:
        offset.commit(25)
        assert offset.committed
    assert read_offset(journal, "reader", "first") == 25


def test_commit_of_the_same_value_writes_nothing(disk: SimulatedDisk) -> None:
    with Offset(JOURNAL, "reader", disk=disk) as offset:
        before = len(disk.operations)
        offset.commit(3)
        assert list(map(str, disk.operations[before:])) == ["sync directory /journal/ofs"], (
            "its name may not be durable"
        )
        offset.commit(3)
        assert len(disk.operations) == before + 1
        offset.commit(4)
        assert len(disk.operations) > before + 1


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 9, 4096])
def test_file_of_another_length_is_damage(journal: Path, size: int) -> None:
    (journal / "ofs").mkdir()
    (journal / "ofs" / "reader.ofs").write_bytes(bytes(size))
    reason = rf"ofs/reader\.ofs @ 0: an offset file has 0 or 8 bytes, this one has {size}"
    with pytest.raises(DamagedJournal, match=reason):
        read_offset(journal, "reader")
    with pytest.raises(DamagedJournal, match=reason):
        Offset(journal, "reader")
    with pytest.raises(DamagedJournal, match=reason):
        list_offsets(REAL_DISK, journal)
    assert reset(journal, "reader", 4) == 4, "the way out of it"
    assert read_offset(journal, "reader") == 4


@pytest.mark.parametrize("value", [-1, 2**64, 1.5, "7", None])
def test_invalid_offset_is_refused_and_the_next_commit_succeeds(journal: Path, value: Any) -> None:
    with Offset(journal, "reader") as offset:
        with pytest.raises(WrongUse):
            offset.commit(value)
        assert (read_offset(journal, "reader"), offset.committed) == (0, False)
        offset.commit(7)
    assert read_offset(journal, "reader") == 7


def test_invalid_default_registers_no_consumer(journal: Path) -> None:
    middle: Any = "middle"
    with pytest.raises(WrongUse, match="default 'middle' is neither 'first' nor 'last'"):
        Offset(journal, "reader", middle)
    assert list_offsets(REAL_DISK, journal) == {}
    assert not (journal / "ofs").exists()


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["r", "reader-1", "reader_1", "billing.eu", "0", "-", "x" * 200])
def test_name_is_letters_digits_and_a_few_signs(journal: Path, name: str) -> None:
    with Offset(journal, name) as offset:
        offset.commit(7)
    assert list_offsets(REAL_DISK, journal) == {name: 7}
    assert sorted(path.name for path in (journal / "ofs").iterdir()) == sorted([f"{name}.lck", f"{name}.ofs"])


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "../up", "a/b", "a\\b", "a b", "a\n", "ä", "a\0", "x" * 201, "/etc/passwd"]
)
def test_other_names_are_refused_and_create_nothing(journal: Path, name: str) -> None:
    before = read_tree(REAL_DISK, journal.parent)
    for action in (
        lambda: Offset(journal, name),
        lambda: read_offset(journal, name),
        lambda: reset(journal, name, 0, create=True),
    ):
        with pytest.raises(WrongUse, match="consumer name"):
            action()
    assert read_tree(REAL_DISK, journal.parent) == before


def test_consumer_with_a_foreign_name_is_listed(journal: Path) -> None:
    (journal / "ofs").mkdir()
    (journal / "ofs" / "my reader.ofs").write_bytes(bytes(7) + b"\x05")
    (journal / "ofs" / "my reader.lck").write_bytes(b"")
    (journal / "ofs" / "my reader.ofs.tmp").write_bytes(b"half")
    assert list_offsets(REAL_DISK, journal) == {"my reader": 5}


def test_link_in_place_of_the_file_is_not_followed(journal: Path) -> None:
    target = journal.parent / "elsewhere"
    target.write_bytes(bytes(8))
    (journal / "ofs").mkdir()
    (journal / "ofs" / "reader.ofs").symlink_to(target)
    with pytest.raises(StorageFailed, match="symbolic link"):
        Offset(journal, "reader")


# --- one holder at a time -------------------------------------------------------------------------------------------


def test_second_holder_is_refused_and_readers_need_no_lock(journal: Path) -> None:
    with Offset(journal, "reader") as offset, Offset(journal, "other"):
        offset.commit(5)
        with pytest.raises(Locked, match="the consumer 'reader' is running elsewhere"):
            Offset(journal, "reader")
        with pytest.raises(Locked):
            reset(journal, "reader", "first")
        assert read_offset(journal, "reader") == 5
    with Offset(journal, "reader") as offset:
        assert offset.value == 5


def test_closed_offset_refuses_commits(journal: Path) -> None:
    offset = Offset(journal, "reader")
    offset.commit(1)
    offset.close()
    offset.close()
    with pytest.raises(Closed):
        offset.commit(2)
    assert read_offset(journal, "reader") == 1


def test_missing_journal_has_no_offset(tmp_path: Path, journal: Path) -> None:
    with pytest.raises(NotFound, match="no sej journal"):
        Offset(tmp_path / "nowhere", "reader")
    with pytest.raises(NotFound, match="there is no consumer 'reader'"):
        read_offset(journal, "reader")
    assert list_offsets(REAL_DISK, journal) == {}
    assert not (journal / "ofs").exists(), "reading changes nothing"


# --- moving it ------------------------------------------------------------------------------------------------------


def test_reset_accepts_an_offset_an_end_or_a_time(journal: Path) -> None:
    (journal / "jnl" / "0000000000000000.jnl").unlink()
    Offset(journal, "reader").close()
    assert reset(journal, "reader", 17) == read_offset(journal, "reader") == 17
    assert reset(journal, "reader", "last") == read_offset(journal, "reader") == 25
    assert reset(journal, "reader", "first") == read_offset(journal, "reader") == 10
    assert reset(journal, "reader", time=12) == read_offset(journal, "reader") == 12
    assert reset(journal, "reader", time=99) == read_offset(journal, "reader") == 25
    assert reset(journal, "reader", 25) == 25
    assert reset(journal, "reader", 0) == 0, "what is gone may be asked for: reading begins with what is left"


def test_reset_beyond_the_end_is_refused(journal: Path) -> None:
    Offset(journal, "reader").close()
    with pytest.raises(WrongUse, match="the next message gets 25"):
        reset(journal, "reader", 26)
    assert stored_offset(REAL_DISK, journal, "reader") is None


def test_reset_of_an_unknown_consumer_lists_the_existing_ones(journal: Path) -> None:
    Offset(journal, "billing").close()
    with pytest.raises(NotFound, match="no consumer 'biling'; there are: billing"):
        reset(journal, "biling", 0)
    assert reset(journal, "biling", 3, create=True) == read_offset(journal, "biling") == 3


def test_reset_requires_one_target(journal: Path) -> None:
    Offset(journal, "reader").close()
    for to, time in ((None, None), (3, 4), ("middle", None)):
        with pytest.raises(WrongUse):
            reset(journal, "reader", to, time=time)  # type: ignore[arg-type]


# --- crashes and failures -------------------------------------------------------------------------------------------


def commit_twice(disk: Disk, marks: SimulatedDisk) -> None:
    with Offset(JOURNAL, "reader", disk=disk) as offset:
        for value in (0x1111, 0x2222):
            marks.mark(("begin", value))
            offset.commit(value)
            marks.mark(("done", value))


def is_old_or_new(state: SimulatedDisk) -> bool:
    """The stored offset is the last committed one, or the one that was being committed."""
    done = [value for what, value in state.marks if what == "done"]
    begun = [value for what, value in state.marks if what == "begin"]
    return stored_offset(state, JOURNAL, "reader") in {*(done[-1:] or [3]), *begun[-1:]}


def test_after_a_power_cut_the_offset_is_the_old_or_the_new_one(disk: SimulatedDisk) -> None:
    commit_twice(disk, disk)
    seen = set()
    for state in [*disk.crash_states(format="sej"), *disk.process_kills(format="sej")]:
        assert is_old_or_new(state)
        seen.add(stored_offset(state, JOURNAL, "reader"))
        with Offset(JOURNAL, "reader", ahead="end", disk=state) as offset:
            offset.commit(77)
        assert stored_offset(state, JOURNAL, "reader") == 77
    assert seen == {3, 0x1111, 0x2222}


def test_every_missing_sync_of_a_commit_is_detected(disk: SimulatedDisk) -> None:
    found_out: dict[str, list[bool]] = {}
    for faulty in forgotten_syncs(disk.copy):
        commit_twice(faulty, faulty.inner)
        states = faulty.inner.crash_states(format="")
        found_out.setdefault(faulty.failed, []).append(not all(map(sound, states)))
    assert found_out == {
        "sync directory /journal": [False],  # for a holder that was killed after making the directory; none was here
        "sync /journal/ofs/reader.ofs.tmp": [True, True],
        "sync directory /journal/ofs": [True, True],
        "": [False],
    }


def sound(state: SimulatedDisk) -> bool:
    try:
        return is_old_or_new(state)
    except DamagedJournal:
        return False


def test_failure_of_any_call_leaves_the_old_or_the_new_offset(disk: SimulatedDisk) -> None:
    for faulty in every_fault(disk.copy, format="sej"):
        try:
            commit_twice(faulty, faulty.inner)
        except StorageFailed:
            assert faulty.failures
        assert faulty.inner.open_files == 0
        assert is_old_or_new(faulty.inner)
        assert all(map(is_old_or_new, faulty.inner.crash_states(most=3, format="sej")))


def test_failed_commit_is_final(disk: SimulatedDisk) -> None:
    faulty = FaultyDisk(disk, fail_at=2, only={"sync directory"})  # after that of opening
    with Offset(JOURNAL, "reader", disk=faulty) as offset:
        with pytest.raises(StorageFailed):
            offset.commit(20)
        with pytest.raises(Poisoned, match="an earlier commit failed"):
            offset.commit(21)
        assert offset.value == 3
    with Offset(JOURNAL, "reader", disk=disk) as offset:
        assert offset.value == 20, "the rename had been done"
    assert read_file(disk, JOURNAL / "ofs" / "reader.ofs") == (20).to_bytes(8, "big")


# --- ahead of the journal -------------------------------------------------------------------------------------------


def shortened(directory: Path) -> Path:
    """A journal that has lost its last messages after a consumer had read them."""
    make_journal(directory, 25)
    with Offset(directory, "reader") as offset:
        offset.commit(25)
    damage_file(directory / "jnl" / segment_name(20), cut, 2 * MESSAGE_BYTES)
    return directory


def test_note_on_a_consumer_that_was_moved_does_not_return_after_a_power_cut(disk: SimulatedDisk) -> None:
    note_ahead(disk, JOURNAL, 2)
    assert passed_from(disk, JOURNAL, "reader", 3) == 2
    disk.settle()
    forget_ahead(disk, JOURNAL, "reader")
    disk.mark("forgotten")
    found = [passed_from(state, JOURNAL, "reader", 3) for state in disk.crash_states() if state.marks]
    assert set(found) == {None}


def test_consumer_ahead_of_its_journal_is_refused_with_both_offsets(journal_directory: Path) -> None:
    shortened(journal_directory)
    with pytest.raises(Truncated) as refused:
        Offset(journal_directory, "reader")
    assert str(refused.value) == (
        f"{journal_directory}: the consumer reader had come to offset 25, but the journal ends with 22: its last "
        "messages were lost, and new ones would be skipped. To continue with the next message: "
        f"`logwright reset {journal_directory} reader --to last`, or open it with ahead='end'"
    )
    assert reset(journal_directory, "reader", "last") == 22
    with Offset(journal_directory, "reader") as offset:
        assert offset.value == 22


def test_consumer_ahead_of_its_journal_can_continue_at_the_end(
    journal_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shortened(journal_directory)
    seen: list[int] = []
    with Consumer(
        journal_directory, "reader", lambda message: seen.append(message.offset), timeout=0, ahead="end"
    ) as consumer:
        make_journal(journal_directory, 3)
        consumer.run()
    assert seen == [22, 23, 24]
    assert "had come to offset 25, but the journal ends with 22" in caplog.text
    with pytest.raises(WrongUse, match="ahead 'on' is neither"):
        Offset(journal_directory, "reader", ahead="on")  # type: ignore[arg-type]


def test_verify_names_a_consumer_that_is_ahead(journal_directory: Path) -> None:
    report = Reader(shortened(journal_directory)).verify()
    assert [(odd.file, odd.kind, odd.message) for odd in report.anomalies if odd.kind == "consumer_ahead"] == [
        ("ofs/reader.ofs", "consumer_ahead", "the consumer is at 25, but the next message gets 22")
    ]


def overtaken(directory: Path) -> Path:
    """The same, and a writer has continued past the consumer: the messages 22 to 29 are new."""
    shortened(directory)
    return make_journal(directory, 8)


def test_consumer_does_not_skip_messages_rewritten_after_it_passed_them(journal_directory: Path) -> None:
    overtaken(journal_directory)
    for _ in range(2):
        with pytest.raises(Truncated) as refused:
            Offset(journal_directory, "reader")
        assert str(refused.value) == (
            f"{journal_directory}: the consumer reader had come to offset 25, but the journal ended with 22: its last "
            "messages were lost, and new ones would be skipped. To continue with message 22: "
            f"`logwright reset {journal_directory} reader --to 22`, or open it with ahead='end'"
        )
    seen: list[int] = []
    with Consumer(
        journal_directory, "reader", lambda message: seen.append(message.offset), timeout=0, ahead="end"
    ) as consumer:
        consumer.run()
    assert seen == list(range(22, 30))
    assert not (journal_directory / ".logwright" / "ahead" / "reader.ofs").exists()


def test_writer_names_the_consumers_that_are_ahead_once(
    journal_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shortened(journal_directory)
    with Offset(journal_directory, "other") as offset:
        offset.commit(22)
    make_journal(journal_directory, 1)
    make_journal(journal_directory, 1)
    logged = [record.getMessage() for record in caplog.records if "is to be reset" in record.getMessage()]
    reason = "the consumer reader has come to offset 25, but the journal ends with 22: it is to be reset"
    assert logged == [f"{journal_directory}: {reason}"]
    with Offset(journal_directory, "other") as offset:
        assert offset.value == 22


def test_consumer_continues_at_the_end_after_further_loss(journal_directory: Path) -> None:
    overtaken(journal_directory)
    for file in journal_directory.rglob(f"{Path(segment_name(30)).stem}.*"):  # its index, or it would be missed
        file.unlink()
    shutil.rmtree(journal_directory / "idx")  # and that of the other one, which shows where it ended
    damage_file(journal_directory / "jnl" / segment_name(20), cut, MESSAGE_BYTES)
    make_journal(journal_directory, 10)
    with Offset(journal_directory, "reader", ahead="end") as offset:
        assert (offset.value, offset.committed) == (21, False)


@pytest.mark.parametrize("to", [22, 25])
def test_reset_consumer_keeps_its_target(journal_directory: Path, to: int) -> None:
    overtaken(journal_directory)
    assert reset(journal_directory, "reader", to) == to
    with Offset(journal_directory, "reader") as offset:
        assert offset.value == to
        offset.commit(25)
    with Offset(journal_directory, "reader") as offset:
        assert offset.value == 25


def test_consumer_that_accepts_the_loss_may_commit_its_old_offset(journal_directory: Path) -> None:
    overtaken(journal_directory)
    with Offset(journal_directory, "reader", ahead="end") as offset:
        offset.commit(25)
    with Offset(journal_directory, "reader") as offset:
        assert offset.value == 25


def test_consumer_moved_by_the_original_keeps_that_offset(journal_directory: Path) -> None:
    overtaken(journal_directory)
    (journal_directory / "ofs" / "reader.ofs").write_bytes((27).to_bytes(8, "big"))
    with Offset(journal_directory, "reader") as offset:
        assert offset.value == 27


def test_damaged_note_on_a_consumer_is_damage(journal_directory: Path) -> None:
    overtaken(journal_directory)
    note = journal_directory / ".logwright" / "ahead" / "reader.ofs"
    note.write_bytes(b"123")
    with pytest.raises(DamagedJournal, match="a note on a consumer has 16 bytes, not 3; remove it after"):
        Offset(journal_directory, "reader")
    report = Reader(journal_directory).verify()
    assert [(problem.file, problem.kind) for problem in report.problems] == [("ofs/reader.ofs", "offset_file")]


def test_verify_names_a_consumer_that_new_messages_have_passed(journal_directory: Path) -> None:
    report = Reader(overtaken(journal_directory)).verify()
    assert [(odd.file, odd.kind, odd.message) for odd in report.anomalies if odd.kind == "consumer_ahead"] == [
        (
            "ofs/reader.ofs",
            "consumer_ahead",
            "the consumer is at 25, but messages from 22 on were written after it had passed them",
        )
    ]


def test_note_is_durable_before_a_message_is_appended(simulated_disk: SimulatedDisk) -> None:
    make_journal(JOURNAL, 25, disk=simulated_disk)
    with Offset(JOURNAL, "reader", disk=simulated_disk) as offset:
        offset.commit(25)
    last = JOURNAL / "jnl" / segment_name(20)
    write_file(simulated_disk, last, read_file(simulated_disk, last)[: 2 * MESSAGE_BYTES])
    simulated_disk.settle()
    make_journal(JOURNAL, 8, disk=simulated_disk)
    for state in simulated_disk.crash_states(format="sej"):
        with pytest.raises(Truncated):
            Offset(JOURNAL, "reader", disk=state)
