"""Opening for writing: cut, redone and refused transactions; and a crash at every step of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from logwright.core.io.disk import REAL_DISK, write_all
from logwright.core.io.lock import Lock
from logwright.errors import DamagedJournal, Locked, NotFound, Poisoned, StorageFailed, WrongUse
from logwright.yeltsin.bytes import codec
from logwright.yeltsin.bytes.layout import lock_name
from logwright.yeltsin.bytes.records import Transaction
from logwright.yeltsin.files import repair
from logwright.yeltsin.files.opening import open_journal
from logwright.yeltsin.files.operations import End
from logwright.yeltsin.files.reader import Reader
from logwright.yeltsin.files.seal import seal
from logwright.yeltsin.files.writer import TransactionJournal
from logwright.yeltsin.format import recover
from tests.support.faulty_disk import failing_calls
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file, write_file
from tests.yeltsin.samples import CREATED, GOLDEN, journal, linked, modify, numbered, sealed, transaction
from tests.yeltsin.test_reader import DATA, HOSTILE, STARTS, with_link

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


def test_new_journal_equals_that_of_the_original(tmp_path: Path) -> None:
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


def test_flushed_transactions_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jrnl"
    with TransactionJournal(path) as writer:
        for number, item in enumerate(numbered(4)):
            writer.append_transaction(item)
            assert Reader(path).count() == number
            writer.flush()
            assert Reader(path).count() == number + 1


def test_append_takes_operations_and_returns_the_time(tmp_path: Path) -> None:
    with TransactionJournal(tmp_path / "t.jrnl") as writer:
        writer.append([modify(b"a", b"b")], timestamp=7, end=0xFE, end_data=b"why", flags=0x80)
        writer.append([])
    first, second = Reader(tmp_path / "t.jrnl")
    assert first == Transaction(0, 72, 7, 0x80, (modify(b"a", b"b"),), 0xFE, b"why")
    assert second.timestamp >= CREATED
    assert (second.previous, second.next, second.operations, second.end) == (20, 0, (), 0xFF)


def test_redo_is_due_until_a_transaction_is_flagged(tmp_path: Path) -> None:
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


def test_transaction_without_an_end_is_refused(tmp_path: Path) -> None:
    with TransactionJournal(tmp_path / "t.jrnl") as writer, pytest.raises(WrongUse, match="without an end"):
        writer.append_transaction(transaction(end=None))


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with TransactionJournal(tmp_path / "t.jrnl"), pytest.raises(Locked):
        TransactionJournal(tmp_path / "t.jrnl")
    TransactionJournal(tmp_path / "t.jrnl").close()


def test_missing_journal_needs_no_recovery(tmp_path: Path) -> None:
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
def test_unfinished_transaction_is_cut_kept_and_reported(data: bytes) -> None:
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
def test_cutting_the_only_transaction_leaves_a_header(size: int) -> None:
    whole = journal([transaction(modify(b"abcdef", b"ghijkl"), flags=0)])
    for data in (whole, with_link(4, 0, whole), with_link(4, 0, with_link(12, 0, whole))):
        disk = laid_out(data[:size])
        recover(FILE, disk=disk)
        assert content(disk) == codec.encode_header(0, 0)


def test_incomplete_header_is_rewritten() -> None:
    for size in range(20):
        disk = laid_out(codec.encode_header(0, 0)[:size])
        found = recover(FILE, disk=disk)
        assert content(disk) == codec.encode_header(0, 0)
        assert found.cut is not None
        assert (found.cut.size, found.cut.kind, found.kept is None) == (size, "torn_tail", size == 0)


@pytest.mark.parametrize("size", [0, 4, 19])
def test_opening_a_file_cut_within_its_header_writes_the_same_account_as_repair(size: int) -> None:
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


def test_settling_an_opened_journal_twice_changes_nothing() -> None:
    disk = laid_out(with_link(12, STARTS[4], journal(UNFLAGGED)))
    opened = open_journal(disk, FILE, settles=False)
    opened.ends[LAST] = End(0xFF, LAST, LAST + 1, b"")
    opened.settle()
    assert opened.ends == {}, "they may be many"
    settled = content(disk)
    write_file(disk, FILE, settled + b"more")
    opened.settle()
    opened.close()
    assert content(disk) == settled + b"more"


def test_half_written_offset_in_the_header_is_completed() -> None:
    data = journal(UNFLAGGED)
    assert LAST > 0xFF
    disk = laid_out(with_link(12, LAST & 0xFF, data))
    opened = open_journal(disk, FILE)
    opened.close()
    assert (opened.last, opened.count, opened.cut) == (LAST, 6, None)
    assert content(disk) == data


def test_unsynced_writes_of_a_killed_process_are_synced() -> None:
    disk = laid_out(DATA)
    open_journal(disk, FILE).close()
    disk.remove(FILE)
    disk.settle()
    write_file(disk, FILE, DATA)
    assert disk.unsynced() == [f"contents of {FILE}", f"name {FILE}"]
    open_journal(disk, FILE).close()
    assert [what for what in disk.unsynced() if what.endswith(FILE.name)] == []


def test_sound_journal_is_only_synced() -> None:
    disk = laid_out(DATA)
    opened = open_journal(disk, FILE, settles=False)
    opened.close()
    assert (len(opened.steps), opened.keeps) == (1, None)


def test_last_transaction_is_unreachable_only_if_both_ends_disagree() -> None:
    for data in (DATA, journal(numbered(1)), journal([])):
        opened = open_journal(laid_out(data), FILE, counts=False)
        opened.close()
        assert (opened.count, opened.cut) == (0, None)


def test_bytes_similar_to_the_second_last_transaction_are_not_mistaken_for_it() -> None:
    items = [transaction(modify(bytes(40), bytes(40))), *numbered(2)]
    starts = linked(items)[1]
    fake = starts[0] + 25 + 5 + 12
    data = with_link(fake + 8, starts[2], with_link(starts[2], fake, journal(items)))
    for counts in (False, True):
        with pytest.raises(DamagedJournal, match="nothing was changed"):
            open_journal(laid_out(data), FILE, counts=counts)


def test_header_with_a_first_transaction_and_no_last_one_is_damage() -> None:
    data = codec.encode_header(20, 0) + b"x" * 30
    disk = laid_out(data)
    with pytest.raises(DamagedJournal, match="nothing was changed"):
        open_journal(disk, FILE)
    assert content(disk) == data


@pytest.mark.parametrize("last", [2**64 - 1, 2**63, 5])
def test_missing_last_transaction_is_damage(tmp_path: Path, last: int) -> None:
    path = tmp_path / "t.jrnl"
    path.write_bytes(with_link(12, last, DATA))
    with pytest.raises(DamagedJournal, match="nothing was changed"):
        open_journal(REAL_DISK, path)


def test_flag_of_a_torn_transaction_with_a_garbage_head_is_ignored() -> None:
    data = bytearray(with_link(LAST, 0x1234, TORN))
    data[LAST + 24] = 1
    disk = laid_out(bytes(data))
    opened = open_journal(disk, FILE)
    opened.close()
    assert (opened.last, opened.count) == (STARTS[4], 5)
    assert content(disk) == journal(numbered(5))


def test_flagged_torn_transaction_after_the_last_one_is_cut() -> None:
    items = numbered(6)
    disk = laid_out(with_link(12, STARTS[4], with_link(STARTS[4] + 8, 0, journal(items)))[:-3])
    opened = open_journal(disk, FILE)
    opened.close()
    assert (opened.last, opened.count) == (STARTS[4], 5)
    assert content(disk) == journal(items[:5])


# --- transactions that are sealed -------------------------------------------------------------------------------------

SEALED = [replace(item, flags=0) for item in numbered(4)]
SEALED_DATA = sealed(*SEALED)
SEALED_STARTS = linked([replace(item, end_data=bytes(8)) for item in SEALED])[1]


OPERATIONS = b"".join(map(codec.encode_operation, SEALED[3].operations))


def test_sealed_transactions_are_linked_named_and_counted() -> None:
    for named in range(4):
        data = with_link(12, SEALED_STARTS[named], SEALED_DATA)
        for start in SEALED_STARTS[named:3]:
            data = with_link(start + 8, 0, data)
        disk = laid_out(data)
        opened = open_journal(disk, FILE)
        opened.close()
        assert (opened.first, opened.last, opened.end, opened.count) == (20, SEALED_STARTS[3], len(data), 4)
        assert content(disk) == SEALED_DATA


def test_sealed_transactions_are_named_in_an_empty_header() -> None:
    data = with_link(4, 0, with_link(12, 0, SEALED_DATA))
    disk = laid_out(data)
    opened = open_journal(disk, FILE)
    opened.close()
    assert (opened.first, opened.last, opened.count) == (20, SEALED_STARTS[3], 4)
    assert content(disk) == SEALED_DATA


def test_transaction_with_another_predecessor_is_not_adopted() -> None:
    data = sealed(*SEALED[:2])
    other = sealed(*SEALED)[SEALED_STARTS[3] :]
    disk = laid_out(data + other)
    opened = open_journal(disk, FILE)
    opened.close()
    assert (opened.last, opened.count, opened.end) == (SEALED_STARTS[1], 2, len(data))
    assert content(disk) == data


def test_missing_link_to_a_sealed_last_transaction_is_written() -> None:
    last, before = SEALED_STARTS[3], SEALED_STARTS[2]
    for torn in (0, last & 0xFF):
        disk = laid_out(with_link(before + 8, torn, SEALED_DATA))
        opened = open_journal(disk, FILE)
        opened.close()
        assert (opened.last, opened.count, opened.cut) == (last, 4, None)
        assert content(disk) == SEALED_DATA


def test_zeros_after_a_sealed_transaction_are_cut_without_a_copy() -> None:
    disk = laid_out(SEALED_DATA + bytes(100))
    opened = open_journal(disk, FILE)
    opened.close()
    assert (opened.last, opened.cut, opened.kept) == (SEALED_STARTS[3], None, None)
    assert content(disk) == SEALED_DATA


def test_directory_is_not_recovered_as_a_journal(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.jrnl"):
        with pytest.raises(NotFound, match="no journal is here"):
            recover(path)


def without_link(data: bytes, starts: list[int], value: int = 0) -> bytes:
    """A journal whose last transaction is not named by the preceding one, but by the header."""
    return with_link(starts[-2] + 8, value, data)


@pytest.mark.parametrize(
    "data",
    [
        without_link(SEALED_DATA, SEALED_STARTS, 0x7777),
        without_link(
            sealed(*SEALED, gap_bytes=9), linked([replace(item, end_data=bytes(8)) for item in SEALED], gap_bytes=9)[1]
        ),
        without_link(sealed(*numbered(4)), SEALED_STARTS),
        without_link(journal(SEALED), linked(SEALED)[1]),
        without_link(SEALED_DATA, SEALED_STARTS)[: SEALED_STARTS[3]]
        + codec.encode(
            replace(SEALED[3], previous=SEALED_STARTS[1], end_data=seal(SEALED_STARTS[1], CREATED + 3, OPERATIONS))
        ),
    ],
    ids=["another link", "not the next", "in the storage", "not sealed", "another previous"],
)
def test_other_missing_links_are_not_written(data: bytes) -> None:
    disk = laid_out(data)
    with pytest.raises(DamagedJournal, match="nothing was changed"):
        open_journal(disk, FILE)
    assert content(disk) == data


@pytest.mark.parametrize(
    ("offset", "value"),
    [(4, STARTS[-1]), (4, 19), (STARTS[-1], 0), (STARTS[-1], STARTS[-1] + 5), (STARTS[-1], 3), (12, len(DATA) + 9)],
    ids=["first is last", "first in the header", "no previous", "previous is later", "previous in header", "past end"],
)
def test_contradictory_ends_of_a_chain_are_damage(offset: int, value: int) -> None:
    data = with_link(offset, value, DATA)
    disk = laid_out(data)
    for counts in (False, True):
        with pytest.raises(DamagedJournal, match="nothing was changed"):
            open_journal(disk, FILE, counts=counts)
    assert content(disk) == data


def test_half_repaired_journal_is_not_opened() -> None:
    disk = laid_out(with_link(STARTS[2] + 8, 5, DATA))
    done = repair.apply(FILE, repair.plan(FILE, disk=disk), disk=disk)
    assert done is not None
    done.state, done.done = "applying", 0
    done.save(disk)
    with pytest.raises(WrongUse, match="a repair of this journal was interrupted; `logwright repair` finishes it"):
        open_journal(disk, FILE)
    open_journal(disk, HOME / "another.jrnl").close()
    repair.undo(FILE, disk=disk)


def test_journal_is_not_opened_while_another_process_has_its_lock() -> None:
    disk = laid_out(DATA)
    disk.make_directory(HOME / ".logwright")
    with Lock.acquire(disk, HOME / lock_name(FILE.name)), pytest.raises(Locked):
        open_journal(disk, FILE)
    open_journal(disk, FILE).close()


def test_account_of_a_file_cut_within_its_header_is_written_before_the_header() -> None:
    disk = laid_out(DATA[:7])
    opened = open_journal(disk, FILE, settles=False)
    assert len(opened.steps) == 3
    opened.keep()
    opened.steps[0]()
    opened.close()
    assert content(disk) == DATA[:7]
    (loss,) = Reader(FILE, disk=disk).losses()
    recover(FILE, disk=disk)
    assert Reader(FILE, disk=disk).losses() == [loss]


def test_complete_transactions_after_the_last_one_are_not_a_torn_tail() -> None:
    data = DATA + DATA
    disk = laid_out(data)
    with pytest.raises(DamagedJournal, match="whole transactions follow the last one, and no link leads to them"):
        recover(FILE, disk=disk)
    assert content(disk) == data


@pytest.mark.parametrize(("at", "target", "expected"), HOSTILE.values(), ids=HOSTILE)
def test_damage_is_reported_and_nothing_is_cut(at: int, target: int, expected: list[object]) -> None:
    data = with_link(at, target)
    disk = laid_out(data)
    if "malformed" in str(expected):  # seen by a reader of the operations; the links around it are correct
        return
    with pytest.raises(DamagedJournal) as raised:
        recover(FILE, disk=disk)
    (damage,) = (piece for piece in expected if isinstance(piece, tuple))
    assert raised.value.position == damage[0]
    assert "logwright repair" in raised.value.reason
    assert content(disk) == data


def test_durable_last_transaction_without_an_end_is_not_cut() -> None:
    disk = laid_out(DATA[:-1])
    with pytest.raises(DamagedJournal):
        recover(FILE, disk=disk)
    assert content(disk) == DATA[:-1]


@pytest.mark.parametrize("target", [2**63 - 1, 2**63, 2**64 - 1], ids=str)
def test_impossible_offsets_are_damage(target: int, tmp_path: Path) -> None:
    data = with_link(4, target, with_link(12, target))
    path = tmp_path / "t.jrnl"
    path.write_bytes(data)
    with pytest.raises(DamagedJournal):
        recover(path)
    assert path.read_bytes() == data
    assert not Reader(path).verify().sound


def test_last_transaction_that_does_not_follow_directly_is_not_cut() -> None:
    torn = journal(UNFLAGGED, gap_bytes=9)[:-1]
    start = linked(UNFLAGGED, gap_bytes=9)[1][-1]
    unsealed = bytearray(sealed(*SEALED, gap_bytes=9))
    unsealed[-1] ^= 1  # a byte of its seal
    last = linked([replace(item, end_data=bytes(8)) for item in SEALED], gap_bytes=9)[1][-1]
    expected = {
        torn: (start, f"the transaction has no end within the {len(torn) - start} bytes that are there"),
        bytes(unsealed): (12, f"the header names {last} as the last transaction, which it is not"),
    }
    for data, (position, reason) in expected.items():
        disk = laid_out(data)
        with pytest.raises(DamagedJournal) as raised:
            recover(FILE, disk=disk)
        assert raised.value.position == position
        assert raised.value.reason.startswith(f"{reason}; nothing was changed: run `logwright verify")
        assert content(disk) == data


def test_transaction_without_an_end_followed_by_another_is_not_cut() -> None:
    data = bytearray(with_link(12, STARTS[1]))
    data[STARTS[1] + 25] = 0x77
    disk = laid_out(bytes(data))
    with pytest.raises(DamagedJournal):
        recover(FILE, disk=disk)
    assert content(disk) == data


# --- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", CUT.values(), ids=CUT)
def test_recovery_survives_a_crash_at_every_step(data: bytes) -> None:
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


@pytest.mark.parametrize("data", [*CUT.values(), DATA[:7]], ids=[*CUT, "a part of the header"])
def test_cut_is_durable_when_the_journal_is_open(data: bytes) -> None:
    disk = laid_out(data)
    open_journal(disk, FILE).close()
    assert f"contents of {FILE}" not in disk.unsynced(), "what was cut off could be back where the next one is written"


def test_sealed_transactions_are_durable_before_they_are_named() -> None:
    disk = laid_out(sealed(*SEALED[:2]))
    file = disk.open(FILE, "update")
    write_all(file, SEALED_STARTS[2], SEALED_DATA[SEALED_STARTS[2] :])  # and the process that did this is killed
    file.close()
    opened = open_journal(disk, FILE)
    opened.close()
    assert opened.count == 4
    for after in disk.crash_states(most=400):
        opened = open_journal(after, FILE)
        opened.close()
        assert content(after) == sealed(*SEALED[: opened.count])


def _kept(disk: SimulatedDisk) -> list[str]:
    folder = HOME / ".logwright" / "cut"
    return disk.list_directory(folder) if disk.is_directory(folder) else []


def test_append_survives_a_crash_at_every_step() -> None:
    large = transaction(modify(bytes(700), b"x" * 700), modify(bytes(900), b"y" * 900, 900), timestamp=CREATED + 3)
    unflagged = replace(large, flags=0)
    expected = [journal([*numbered(3), *more]) for more in ([], [unflagged], [large])]
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


def test_first_append_and_flag_survive_a_crash_at_every_step() -> None:
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


def test_failed_call_is_final_and_loses_nothing_acknowledged() -> None:
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
