"""Opening for writing: what is cut, what is redone, what is refused; and a crash at every step of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from logwright.core.errors import DamagedJournal, Locked, NotFound, Poisoned, StorageFailed, WrongUse
from logwright.formats.yeltsin import codec, repair
from logwright.formats.yeltsin.journal import TransactionJournal, recover
from logwright.formats.yeltsin.opening import open_for_writing
from logwright.formats.yeltsin.reader import Reader
from logwright.formats.yeltsin.records import Transaction
from tests.formats.yeltsin.samples import CREATED, GOLDEN, journal, linked, modify, numbered, transaction
from tests.formats.yeltsin.test_reader import DATA, HOSTILE, STARTS, with_link
from tests.support.faulty_disk import failing_calls
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file, write_file

HOME = Path("/journal")
FILE = HOME / "t.jrnl"
UNFLAGGED = [*numbered(5), transaction(modify(b"abc", b"def"), timestamp=CREATED + 5, flags=0)]
TORN = journal(UNFLAGGED)[:-1]
"""A journal whose last transaction is cut off."""


def laid_out(data: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    write_file(disk, FILE, data)
    disk.settle()
    return disk


def content(disk: SimulatedDisk) -> bytes:
    return read_file(disk, FILE)


# --- appending --------------------------------------------------------------------------------------------------------


def test_a_new_journal_is_what_the_original_creates(tmp_path: Path) -> None:
    TransactionJournal(tmp_path / "t.jrnl").close()
    assert (tmp_path / "t.jrnl").read_bytes() == (GOLDEN / "journal_empty.jrnl").read_bytes()


@pytest.mark.parametrize("sync", ["none", "always", "interval(5)"])
def test_appended_transactions_are_linked_both_ways(tmp_path: Path, sync: str) -> None:
    path = tmp_path / "t.jrnl"
    items, starts = linked(numbered(40))
    for part in (slice(0, 1), slice(1, 15), slice(15, 40)):
        with TransactionJournal(path, sync=sync, buffer_bytes=200) as writer:
            assert [writer.append_transaction(item) for item in items[part]] == starts[part]
            assert (writer.last, writer.recovered) == (starts[part][-1], None)
        assert path.read_bytes() == journal(numbered(part.stop))
    assert list(Reader(path)) == items


def test_what_was_flushed_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    with TransactionJournal(path) as writer:
        for number, item in enumerate(numbered(4)):
            writer.append_transaction(item)
            assert Reader(path).count() == number
            writer.flush()
            assert Reader(path).count() == number + 1


def test_append_takes_operations_and_says_when(tmp_path: Path) -> None:
    with TransactionJournal(tmp_path / "t.jrnl") as writer:
        writer.append([modify(b"a", b"b")], timestamp=7, end=0xFE, end_data=b"why", flags=0x80)
        writer.append([])
    first, second = Reader(tmp_path / "t.jrnl")
    assert first == Transaction(0, 72, 7, 0x80, (modify(b"a", b"b"),), 0xFE, b"why")
    assert second.timestamp >= CREATED
    assert (second.previous, second.next, second.operations, second.end) == (20, 0, (), 0xFF)


def test_a_transaction_is_flagged_and_a_redo_is_due_until_then(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    with TransactionJournal(path) as writer:
        writer.append([], flags=1)
        offset = writer.append([modify(b"a", b"b")], flags=0x10)
    assert Reader(path).state()["redo"]
    with TransactionJournal(path) as writer:
        assert writer.redo is not None
        assert (writer.redo[0], writer.redo[1].operations) == (offset, (modify(b"a", b"b"),))
        writer.complete(offset)
        assert writer.redo is None
        with pytest.raises(WrongUse, match="there is no transaction at 999"):
            writer.complete(999)
    assert [item.flags for item in Reader(path)] == [1, 0x11]
    with TransactionJournal(path) as writer:
        assert writer.redo is None


def test_a_transaction_without_an_end_is_refused(tmp_path: Path) -> None:
    with TransactionJournal(tmp_path / "t.jrnl") as writer, pytest.raises(WrongUse, match="without an end"):
        writer.append_transaction(transaction(end=None))


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with TransactionJournal(tmp_path / "t.jrnl"), pytest.raises(Locked):
        TransactionJournal(tmp_path / "t.jrnl")
    TransactionJournal(tmp_path / "t.jrnl").close()


def test_there_is_nothing_to_recover_where_no_journal_is(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        recover(tmp_path / "t.jrnl")
    assert list(tmp_path.iterdir()) == []


# --- cutting ----------------------------------------------------------------------------------------------------------

LAST = linked(UNFLAGGED)[1][-1]
CUT = {
    "the last byte": TORN,
    "all but the head": TORN[: LAST + 25],
    "all": TORN[:LAST],
    "all, and it was not linked": with_link(STARTS[4] + 8, 0, TORN[:LAST]),
    "the link to it is half there": with_link(STARTS[4] + 8, LAST & 0xFF, TORN),
    "zeros in its place": TORN[:LAST] + bytes(50),
    "the header does not know it": with_link(12, STARTS[4], TORN),
    "the header does not know it, and it is whole": with_link(12, STARTS[4], journal(UNFLAGGED)),
}


@pytest.mark.parametrize("data", CUT.values(), ids=CUT)
def test_a_transaction_that_was_not_finished_is_cut_kept_and_reported(data: bytes) -> None:
    disk = laid_out(data)
    found = recover(FILE, disk=disk)
    assert content(disk) == journal(numbered(5))
    if len(data) == LAST:
        assert (found.cut, found.kept) == (None, None)
    else:
        assert found.cut is not None
        assert (found.cut.start, found.cut.end, found.cut.kind) == (LAST, len(data), "torn_tail")
        assert found.kept is not None
        assert read_file(disk, found.kept) == data[LAST:]
    assert recover(FILE, disk=disk).cut is None


@pytest.mark.parametrize("size", [20, 21, 30, 45, 60])
def test_the_only_transaction_leaves_a_header_and_nothing_else(size: int) -> None:
    whole = journal([transaction(modify(b"abcdef", b"ghijkl"), flags=0)])
    for data in (whole, with_link(4, 0, whole), with_link(4, 0, with_link(12, 0, whole))):
        disk = laid_out(data[:size])
        recover(FILE, disk=disk)
        assert content(disk) == codec.encode_header(0, 0)


def test_a_header_that_is_not_there_as_a_whole_is_written_anew() -> None:
    for size in range(20):
        disk = laid_out(codec.encode_header(0, 0)[:size])
        found = recover(FILE, disk=disk)
        assert content(disk) == codec.encode_header(0, 0)
        assert found.cut is not None
        assert (found.cut.size, found.cut.kind, found.kept is None) == (size, "torn_tail", size == 0)


@pytest.mark.parametrize("size", [0, 4, 19])
def test_opening_a_file_that_was_cut_within_its_header_writes_the_account_that_repair_writes(size: int) -> None:
    disk, repaired = laid_out(DATA[:size]), laid_out(DATA[:size])
    repair.apply(FILE, repair.plan(FILE, disk=repaired), disk=repaired)
    recover(FILE, disk=disk)
    assert [loss.as_json() for loss in Reader(FILE, disk=disk).losses()] == [
        loss.as_json() for loss in Reader(FILE, disk=repaired).losses()
    ]
    (loss,) = Reader(FILE, disk=disk).losses()
    assert (loss.at_least, loss.at_most, loss.bytes) == (0, None, size)
    assert loss.what == "all that the journal held, if anything"
    recover(FILE, disk=disk)
    assert Reader(FILE, disk=disk).losses() == [loss]


def test_the_account_of_a_file_that_was_cut_within_its_header_is_there_before_that_is_written() -> None:
    disk = laid_out(DATA[:7])
    opened = open_for_writing(disk, FILE, settles=False)
    assert len(opened.steps) == 3
    opened.keep()
    opened.steps[0]()
    opened.close()
    assert content(disk) == DATA[:7]
    (loss,) = Reader(FILE, disk=disk).losses()
    recover(FILE, disk=disk)
    assert Reader(FILE, disk=disk).losses() == [loss]


def test_whole_transactions_after_the_last_one_are_no_torn_tail() -> None:
    data = DATA + DATA
    disk = laid_out(data)
    with pytest.raises(DamagedJournal, match="whole transactions follow the last one, and no link leads to them"):
        recover(FILE, disk=disk)
    assert content(disk) == data


@pytest.mark.parametrize(("at", "target", "expected"), HOSTILE.values(), ids=HOSTILE)
def test_damage_is_told_and_cuts_nothing(at: int, target: int, expected: list[object]) -> None:
    data = with_link(at, target)
    disk = laid_out(data)
    if "malformed" in str(expected):  # seen by whoever reads the operations; the links around it are right
        return
    with pytest.raises(DamagedJournal) as raised:
        recover(FILE, disk=disk)
    (damage,) = (piece for piece in expected if isinstance(piece, tuple))
    assert raised.value.position == damage[0]
    assert "logwright repair" in raised.value.reason
    assert content(disk) == data


def test_a_last_transaction_without_an_end_that_is_in_the_storage_is_not_cut() -> None:
    disk = laid_out(DATA[:-1])
    with pytest.raises(DamagedJournal):
        recover(FILE, disk=disk)
    assert content(disk) == DATA[:-1]


@pytest.mark.parametrize("target", [2**63 - 1, 2**63, 2**64 - 1], ids=str)
def test_offsets_that_no_file_has_are_damage(target: int, tmp_path: Path) -> None:
    data = with_link(4, target, with_link(12, target))
    path = tmp_path / "t.jrnl"
    path.write_bytes(data)
    with pytest.raises(DamagedJournal):
        recover(path)
    assert path.read_bytes() == data
    assert not Reader(path).verify().sound


def test_a_transaction_without_an_end_that_another_one_follows_is_not_cut_off() -> None:
    data = bytearray(with_link(12, STARTS[1]))
    data[STARTS[1] + 25] = 0x77
    disk = laid_out(bytes(data))
    with pytest.raises(DamagedJournal):
        recover(FILE, disk=disk)
    assert content(disk) == data


# --- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", CUT.values(), ids=CUT)
def test_recovery_can_be_crashed_at_every_step(data: bytes) -> None:
    disk = laid_out(data)
    recover(FILE, disk=disk)
    number = 0
    for after in disk.crash_states(most=60):
        recover(FILE, disk=after)
        assert content(after) == journal(numbered(5))
        kept = [read_file(after, HOME / ".logwright/cut" / name) for name in _kept(after)]
        assert len(data) == LAST or data[LAST:] in kept
        number += 1
    assert number > 3


def _kept(disk: SimulatedDisk) -> list[str]:
    folder = HOME / ".logwright" / "cut"
    return disk.list_directory(folder) if disk.is_directory(folder) else []


def test_an_append_can_be_crashed_at_every_step() -> None:
    large = transaction(modify(bytes(700), b"x" * 700), modify(bytes(900), b"y" * 900, 900), timestamp=CREATED + 3)
    unflagged = replace(large, flags=0)
    expected = [journal([*numbered(3), *behind]) for behind in ([], [unflagged], [large])]
    disk = laid_out(journal(numbered(3)))
    with TransactionJournal(FILE, sync="always", disk=disk) as writer:
        writer.append_transaction(large)
        disk.mark("appended")
    for after in disk.crash_states(most=400):
        recover(FILE, disk=after)
        assert content(after) in expected[2 if "appended" in after.marks else 0 :]
    for after in disk.process_kills():
        recover(FILE, disk=after)
        assert content(after) in expected[2 if "appended" in after.marks else 0 :]


def test_the_first_append_and_the_flag_can_be_crashed_at_every_step() -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    disk.settle()
    with TransactionJournal(FILE, sync="always", disk=disk) as writer:
        disk.mark("created")
        writer.append_transaction(transaction(modify(b"a", b"b"), flags=0))
        disk.mark("appended")
        writer.complete(20)
        writer.sync()
        disk.mark("flagged")
    for after in disk.crash_states(most=200):
        if "created" not in after.marks and not after.exists(FILE):
            continue
        found = recover(FILE, disk=after)
        flags = [item.flags for item in Reader(FILE, disk=after)]
        assert flags in ([], [0], [1])
        assert flags or "appended" not in after.marks
        assert flags == [1] or "flagged" not in after.marks
        assert (found.redo is not None) == (flags == [0])


def test_a_failed_call_is_final_and_takes_nothing_that_was_acknowledged() -> None:
    failed = 0
    items = [*numbered(3), *numbered(6, flags=0)[3:]]
    for faulty in failing_calls(lambda: laid_out(journal(numbered(3)))):
        acknowledged = 3
        try:
            writer = TransactionJournal(FILE, sync="always", disk=faulty)
            try:
                for item in items[3:]:
                    writer.append_transaction(item)
                    acknowledged += 1
            except StorageFailed:
                failed += 1
                with pytest.raises(Poisoned):
                    writer.append([])
            finally:
                writer.close()
        except StorageFailed:
            failed += 1
        recover(FILE, disk=faulty.inner)
        assert content(faulty.inner) in [journal(items[:count]) for count in range(acknowledged, 7)]
    assert failed > 10
