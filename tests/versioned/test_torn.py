"""The torn tail of a journal that was not closed, as opposed to damage: `verify`, opening and `repair` agree."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest

from logwright.core.bytes.outcome import Span
from logwright.core.repair.losses import Loss
from logwright.errors import DamagedJournal
from logwright.versioned import Reader, VersionedKVStore
from logwright.versioned.bytes import codec, kernel
from logwright.versioned.bytes.layout import HEADER_BYTES, POSITION_AT
from logwright.versioned.files import repair
from logwright.versioned.files.buffer import CLOSED_MAGIC, MARK, SECTOR_BYTES, Mark, mark_at, read_mark
from tests.support.damage import cut, drop, flip_bits, insert, overwrite
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file, write_file
from tests.versioned.stores import HOME, Clock

PATH = HOME / "cars.jrn"
COUNT = 40
START = Clock()()
"""When the store was begun; its changes follow, one at each nanosecond."""


def opened(disk: SimulatedDisk) -> VersionedKVStore:
    return VersionedKVStore(HOME, "cars", 1 << 14, disk=disk, background=False, clock=Clock())


def killed(*, synced: bool = True) -> SimulatedDisk:
    """A store of a process that was killed after it had synced all of its entries, or none of them."""
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    store = opened(disk)
    for number in range(COUNT):
        store.insert(f"key {number}", "x" * 60)
    if synced:
        store.sync()
    data = read_file(disk, PATH)
    found = SimulatedDisk()
    found.make_directory(HOME)
    write_file(found, PATH, data)
    store.close()
    return found


def spans(data: bytes) -> list[Span]:
    """The positions of the entries."""
    metadata = codec.decode_metadata(data, HEADER_BYTES)
    assert isinstance(metadata, tuple)
    stop = int.from_bytes(data[POSITION_AT : POSITION_AT + 8], "little")
    starts = kernel.spans(data, metadata[1].end, stop, COUNT)
    return [Span(start, end) for start, end in itertools.pairwise(starts)]


def damage(disk: SimulatedDisk, data: bytes) -> None:
    disk.remove(PATH)
    write_file(disk, PATH, data)


def kinds(disk: SimulatedDisk) -> list[str]:
    return [problem.kind for problem in Reader(PATH, disk=disk).verify().problems]


def keys(disk: SimulatedDisk) -> list[str]:
    with opened(disk) as store:
        return sorted((key for key, _ in store.items()), key=lambda key: int(key.split()[1]))


def all_but(*gone: int) -> list[str]:
    return [f"key {number}" for number in range(COUNT) if number not in gone]


def account(disk: SimulatedDisk) -> list[Loss]:
    return Reader(PATH, disk=disk).losses()


@pytest.mark.parametrize("number", [1, 17, 38])
def test_changed_bytes_followed_by_intact_entries_are_damage_in_an_unclosed_journal(number: int) -> None:
    disk = killed()
    whole = read_file(disk, PATH)
    span = spans(whole)[number]
    damage(disk, flip_bits(whole, span.start + 3, 0xFF))
    damaged = read_file(disk, PATH)
    assert kinds(disk) == ["malformed"]
    with pytest.raises(DamagedJournal, match="logwright repair"):
        opened(disk)
    assert read_file(disk, PATH) == damaged
    plan = repair.plan(PATH, disk=disk)
    assert [(loss.position, loss.bytes, loss.at_least) for loss in plan.losses] == [(span.start, span.size, 1)]
    repair.apply(PATH, plan, disk=disk)
    assert keys(disk) == all_but(number)


def test_zeros_within_a_sector_are_damage() -> None:
    disk = killed()
    whole = read_file(disk, PATH)
    span = next(span for span in spans(whole)[5:] if span.start % SECTOR_BYTES < 256)
    damage(disk, overwrite(whole, span.start, bytes(40)))
    assert kinds(disk) == ["malformed"]
    with pytest.raises(DamagedJournal, match="no torn tail"):
        opened(disk)


@pytest.mark.parametrize("sectors", [1, 3])
def test_missing_sectors_are_a_torn_tail_whatever_follows(sectors: int) -> None:
    disk = killed(synced=False)
    whole = read_file(disk, PATH)
    start = 3 * SECTOR_BYTES
    damage(disk, overwrite(whole, start, bytes(sectors * SECTOR_BYTES)))
    first = next(number for number, span in enumerate(spans(whole)) if span.end > start)
    assert kinds(disk) == ["torn_tail"]
    assert repair.plan(PATH, disk=disk).losses == ()
    assert keys(disk) == all_but(*range(first, COUNT))


def test_changed_entry_before_missing_sectors_is_damage() -> None:
    disk = killed(synced=False)
    whole = read_file(disk, PATH)
    data = overwrite(whole, 5 * SECTOR_BYTES, bytes(SECTOR_BYTES))
    damage(disk, flip_bits(data, spans(whole)[2].start + 3, 0xFF))
    assert kinds(disk)[0] == "malformed"
    with pytest.raises(DamagedJournal, match="no torn tail"):
        opened(disk)


def test_missing_sector_that_ends_at_the_mark_is_a_torn_tail() -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    store = VersionedKVStore(HOME, "cars", 1024, 1.0, disk=disk, background=False, clock=Clock())
    while store.position < mark_at(1024) - 120:
        store.insert("a", "x" * 20)
    whole = read_file(disk, PATH)
    assert len(whole) == 1024
    damaged = SimulatedDisk()
    damaged.make_directory(HOME)
    write_file(damaged, PATH, overwrite(whole, 512, bytes(mark_at(1024) - 512)))
    store.close()
    assert kinds(damaged) == ["torn_tail"]
    with VersionedKVStore(HOME, "cars", 1024, 1.0, disk=damaged, background=False, clock=Clock()) as again:
        assert again.get("a") == "x" * 20


# --- a position that is wrong -----------------------------------------------------------------------------------------


def closed() -> SimulatedDisk:
    """A store that was closed."""
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    with opened(disk) as store:
        for number in range(COUNT):
            store.insert(f"key {number}", "x" * 60)
    return disk


def without_mark() -> SimulatedDisk:
    """A store that another program has closed."""
    disk = closed()
    whole = read_file(disk, PATH)
    damage(disk, overwrite(whole, mark_at(len(whole)), bytes(MARK.size)))
    return disk


def damage_position(disk: SimulatedDisk, position: int) -> bytes:
    damage(disk, overwrite(read_file(disk, PATH), POSITION_AT, position.to_bytes(8, "little")))
    return read_file(disk, PATH)


def position_of(disk: SimulatedDisk) -> int:
    return int.from_bytes(read_file(disk, PATH)[POSITION_AT : POSITION_AT + 8], "little")


def check_position_is_restored(disk: SimulatedDisk, data: bytes) -> None:
    """Opening refuses a wrong position and changes nothing; a repair restores it, and no entry is lost."""
    assert kinds(disk) == ["malformed"]
    with pytest.raises(DamagedJournal, match="logwright repair"):
        opened(disk)
    assert read_file(disk, PATH) == data
    repair.apply(PATH, repair.plan(PATH, disk=disk), disk=disk)
    assert [(loss.kind, loss.what) for loss in account(disk)] == [("restored", "the position in the header")]
    assert keys(disk) == all_but()


@pytest.mark.parametrize("was_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("less", [1, 5, 60, 200, 1024, 2100])
def test_position_within_an_entry_is_damage_and_the_entry_is_not_cut(less: int, was_closed: bool) -> None:
    disk = closed() if was_closed else killed()
    position = position_of(disk) - less
    assert position not in [span.end for span in spans(read_file(disk, PATH))]
    data = damage_position(disk, position)
    check_position_is_restored(disk, data)


@pytest.mark.parametrize("before", [130, 200, 500])
@pytest.mark.parametrize("inserted", [bytes(512), bytes(1000), b"\xff" * 700])
@pytest.mark.parametrize("make", [closed, killed, without_mark], ids=["closed", "killed", "no mark"])
def test_entries_moved_past_the_position_by_inserted_bytes_are_not_cut(
    make: Callable[[], SimulatedDisk], inserted: bytes, before: int
) -> None:
    disk = make()
    whole = read_file(disk, PATH)
    at = position_of(disk) - before
    split = [number for number, span in enumerate(spans(whole)) if span.start < at < span.end]
    damage(disk, insert(whole, at, inserted))
    damaged = read_file(disk, PATH)
    assert kinds(disk) == ["malformed"]
    with pytest.raises(DamagedJournal, match="logwright repair"):
        opened(disk)
    assert read_file(disk, PATH) == damaged
    repair.apply(PATH, repair.plan(PATH, disk=disk), disk=disk)
    assert [loss.kind for loss in account(disk)] == ["lost"]
    assert keys(disk) == all_but(*split)


# --- what was synced --------------------------------------------------------------------------------------------------


def killed_while_always() -> SimulatedDisk:
    """A store whose process was killed after each change was synced by itself."""
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    store = VersionedKVStore(HOME, "cars", 1 << 14, disk=disk, background=False, clock=Clock(), sync="always")
    for number in range(COUNT):
        store.insert(f"key {number}", "x" * 60)
    *_, found = disk.process_kills(format="")
    store.close()
    return found


@pytest.mark.parametrize("sectors", [1, 3])
@pytest.mark.parametrize("at", ["middle", "end"])
@pytest.mark.parametrize("make", [closed, killed_while_always], ids=["closed", "killed"])
def test_zeros_in_place_of_synced_sectors_are_damage(make: Callable[[], SimulatedDisk], at: str, sectors: int) -> None:
    disk = make()
    whole = read_file(disk, PATH)
    mark = read_mark(bytearray(whole), len(whole))
    assert mark is not None
    position = position_of(disk)
    stop = (mark.synced - 1) // SECTOR_BYTES * SECTOR_BYTES
    start = 2 * SECTOR_BYTES if at == "middle" else stop - (sectors - 1) * SECTOR_BYTES
    end = start + sectors * SECTOR_BYTES if at == "middle" else position
    gone = [number for number, span in enumerate(spans(whole)) if span.end > start and span.start < end]
    damage(disk, overwrite(whole, start, bytes(end - start)))
    damaged = read_file(disk, PATH)
    assert kinds(disk) == ["malformed"]
    with pytest.raises(DamagedJournal, match="logwright repair"):
        opened(disk)
    assert read_file(disk, PATH) == damaged
    repair.apply(PATH, repair.plan(PATH, disk=disk), disk=disk)
    assert [(loss.kind, loss.at_least) for loss in account(disk)] == [("lost", 1)]
    assert keys(disk) == all_but(*gone)


def test_noise_in_the_last_entry_of_a_closed_store_is_damage() -> None:
    disk = closed()
    whole = read_file(disk, PATH)
    damage(disk, flip_bits(whole, spans(whole)[-1].start + 3, 0xFF))
    assert kinds(disk) == ["malformed"]
    with pytest.raises(DamagedJournal, match="no torn tail"):
        opened(disk)


def test_every_fourth_sync_raises_the_mark_without_an_extra_sync() -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    with VersionedKVStore(HOME, "cars", 1 << 14, disk=disk, background=False, clock=Clock(), sync="always") as store:
        before = len(disk.operations)
        ends = []
        for number in range(COUNT):
            store.insert(f"key {number}", "x" * 60)
            ends.append(store.position)
            mark = read_mark(bytearray(read_file(disk, PATH)), 1 << 14)
            assert mark is not None
            assert not mark.is_closed
            assert mark.synced <= store.position
            assert mark.synced // SECTOR_BYTES >= (ends[-4] if number > 3 else 0) // SECTOR_BYTES
        calls = [str(operation) for operation in disk.operations[before:]]
        assert sum(call.startswith("sync") for call in calls) == COUNT
        marks = sum(f"at {mark_at(1 << 14)} " in call for call in calls)
        assert marks == len({end // SECTOR_BYTES for end in ends[3::4]} - {0}) == 6
    assert read_mark(bytearray(read_file(disk, PATH)), 1 << 14) == Mark(ends[-1], is_closed=True)


@pytest.mark.parametrize("make", [closed, killed_while_always], ids=["closed", "killed"])
def test_position_before_synced_entries_is_damage(make: Callable[[], SimulatedDisk]) -> None:
    disk = make()
    ends = [span.end for span in spans(read_file(disk, PATH))]
    data = damage_position(disk, ends[20])
    check_position_is_restored(disk, data)


@pytest.mark.parametrize("bit", range(0, 64, 7))
def test_wrong_mark_loses_no_entry(bit: int) -> None:
    disk = closed()
    whole = read_file(disk, PATH)
    damage(disk, flip_bits(whole, mark_at(len(whole)) + 8 + bit // 8, 1 << bit % 8))
    assert kinds(disk) == []
    assert keys(disk) == all_but()


def test_entries_appended_by_another_program_after_closing_count() -> None:
    disk = closed()
    whole = bytearray(read_file(disk, PATH))
    position = position_of(disk)
    entry = codec.pack_entry(2 * 10**18, "zeros", "\0" * 2000)
    whole[position : position + len(entry)] = entry
    damage(disk, overwrite(bytes(whole), POSITION_AT, (position + len(entry)).to_bytes(8, "little")))
    assert kinds(disk) == []
    with opened(disk) as store:
        assert store.get("zeros") == "\0" * 2000
    damage(disk, overwrite(read_file(disk, PATH), spans(bytes(whole))[5].start + 3, b"\xff"))
    assert kinds(disk) == ["malformed"]


# --- a file that is shorter than its position -------------------------------------------------------------------------


def shortened(size: int) -> SimulatedDisk:
    disk = killed()
    damage(disk, cut(read_file(disk, PATH), size))
    return disk


@pytest.mark.parametrize("value", ["\0" * 2000, [0] * 1500, {"a": "x" * 300, "b": "\0" * 1100}])
def test_entries_of_another_program_after_a_kill_are_not_cut_off_for_their_zeros(value: object) -> None:
    disk = killed()
    mark = read_file(disk, PATH)[mark_at(1 << 14) :]
    with opened(disk) as store:  # like the other program, which does not change the mark
        store.insert("zeros", value)
        store.insert("key 40", "after them")
        whole = overwrite(read_file(disk, PATH), mark_at(1 << 14), mark)
    damage(disk, whole)
    assert kinds(disk) == ["malformed"]
    with pytest.raises(DamagedJournal, match=r"another program wrote it, or a power cut .* nothing is cut off"):
        opened(disk)
    assert read_file(disk, PATH) == whole
    plan = repair.plan(PATH, disk=disk)
    assert [loss.at_least for loss in plan.losses] == [1]
    repair.apply(PATH, plan, disk=disk)
    assert keys(disk) == [f"key {number}" for number in range(COUNT + 1)]


def test_missing_sector_of_a_value_is_a_torn_tail() -> None:
    disk = killed()
    mark = read_file(disk, PATH)[mark_at(1 << 14) :]
    with opened(disk) as store:
        start = store.position
        store.insert("long", "x" * 2000)
        store.insert("key 40", "after it")
        whole = overwrite(read_file(disk, PATH), mark_at(1 << 14), mark)
    damage(disk, overwrite(whole, start + -start % SECTOR_BYTES + SECTOR_BYTES, bytes(SECTOR_BYTES)))
    assert kinds(disk) == ["torn_tail"]
    assert keys(disk) == all_but()


@pytest.mark.parametrize("within", [True, False], ids=["within an entry", "between two entries"])
def test_truncated_file_is_damage_and_repair_accounts_for_it(within: bool) -> None:
    whole = read_file(killed(), PATH)
    span = spans(whole)[30]
    disk = shortened(span.start + 20 * within)
    damaged = read_file(disk, PATH)
    assert kinds(disk) == ["malformed"]
    with pytest.raises(DamagedJournal, match="no torn tail"):
        opened(disk)
    assert read_file(disk, PATH) == damaged
    repair.apply(PATH, repair.plan(PATH, disk=disk), disk=disk)
    (loss,) = account(disk)
    assert (loss.position, loss.bytes, loss.at_least) == (span.start, 20 * within, int(within))
    assert loss.fields["from"] == (START + 30 if within else START), "whole entries may have been removed anywhere"
    assert loss.fields["from"] < loss.fields["to"] <= time.time_ns() + 1
    assert keys(disk) == all_but(*range(30, COUNT))
    assert account(disk) == [loss]


# --- whole entries that are missing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 20, COUNT - 1])
@pytest.mark.parametrize("make", [closed, killed, killed_while_always], ids=["closed", "killed", "always"])
def test_entry_removed_from_a_journal_with_a_mark_is_damage(make: Callable[[], SimulatedDisk], number: int) -> None:
    disk = make()
    whole = read_file(disk, PATH)
    span = spans(whole)[number]
    damage(disk, drop(whole, span.start, span.end))
    damaged = read_file(disk, PATH)
    assert kinds(disk) == ["malformed"]
    with pytest.raises(DamagedJournal, match=r"bytes of the file are missing.*no torn tail"):
        opened(disk)
    assert read_file(disk, PATH) == damaged
    repair.apply(PATH, repair.plan(PATH, disk=disk), disk=disk)
    (loss,) = account(disk)
    assert (loss.kind, loss.at_least, loss.fields["from"]) == ("lost", 0, START)
    assert loss.at_most is not None
    assert loss.at_most >= 1
    assert keys(disk) == all_but(number)
    assert account(disk) == [loss]


def entry_value(size: int) -> str:
    """The value of an entry with this number of bytes."""
    return next("x" * count for count in range(size) if len(codec.pack_entry(START, "k", "x" * count)) == size)


@pytest.mark.parametrize("sizes", [(80,), (32, 48), (160,)])
@pytest.mark.parametrize("synced", [True, False])
def test_removed_bytes_that_leave_the_mark_aligned_are_damage(sizes: tuple[int, ...], synced: bool) -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    store = opened(disk)
    ends = [store.position]
    for size in (40, *sizes, 40):
        store.insert("k", entry_value(size))
        ends.append(store.position)
    if synced:
        store.sync()
    data = drop(read_file(disk, PATH), ends[1], ends[-2])
    assert (ends[-2] - ends[1]) % MARK.size == 0
    found = SimulatedDisk()
    found.make_directory(HOME)
    write_file(found, PATH, data)
    store.close()
    assert kinds(found) == ["malformed"]
    with pytest.raises(DamagedJournal, match="bytes of the file are missing"):
        opened(found)


def test_mark_of_an_earlier_version_is_read() -> None:
    disk = closed()
    whole = read_file(disk, PATH)
    place = mark_at(len(whole))
    old = MARK.pack(CLOSED_MAGIC, position_of(disk))
    damage(disk, overwrite(whole, place, old))
    assert read_mark(bytearray(read_file(disk, PATH)), len(whole)) == Mark(position_of(disk), is_closed=True)
    assert kinds(disk) == []
    damage(disk, flip_bits(read_file(disk, PATH), spans(whole)[-1].start + 3, 0xFF))
    assert kinds(disk) == ["malformed"]


@pytest.mark.parametrize("number", [0, 20, COUNT - 1])
def test_entry_removed_from_a_journal_of_another_program_is_in_the_account(number: int) -> None:
    disk, repaired = without_mark(), without_mark()
    whole = read_file(disk, PATH)
    span = spans(whole)[number]
    for one in (disk, repaired):
        damage(one, drop(whole, span.start, span.end))
    assert kinds(disk) == ["torn_tail"]
    assert keys(disk) == all_but(number)
    repair.apply(PATH, repair.plan(PATH, disk=repaired), disk=repaired)
    (found,), (wanted,) = account(disk), account(repaired)
    assert (found.at_least, found.fields["from"]) == (0, START)
    assert found.fields["from"] == wanted.fields["from"]
    assert {**found.as_json(), "fields": {}} == {**wanted.as_json(), "fields": {}}
    assert keys(disk) == all_but(number)
    assert account(disk) == [found]


def test_loss_at_the_end_is_open_in_a_plan_and_bounded_by_the_repair() -> None:
    disk = shortened(spans(read_file(killed(), PATH))[30].start)
    plan = repair.plan(PATH, disk=disk)
    assert plan == repair.plan(PATH, disk=disk)
    (planned,) = plan.losses
    assert planned.fields["to"] is None
    before = time.time_ns()
    repair.apply(PATH, plan, disk=disk)
    (written,) = account(disk)
    assert before < written.fields["to"] <= time.time_ns() + 1
    assert account(disk) == [written]


def test_account_of_a_torn_tail_is_written_before_the_position_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = without_mark()
    span = spans(read_file(disk, PATH))[30]
    damage(disk, overwrite(read_file(disk, PATH), span.start, bytes(position_of(disk) - span.start)))
    before = read_file(disk, PATH)

    def fails(*arguments: object) -> None:
        raise OSError("killed")

    with monkeypatch.context() as patched:
        patched.setattr("logwright.versioned.files.buffer.Buffer.set_position", fails)
        with pytest.raises(OSError, match="killed"):
            opened(disk)
    assert read_file(disk, PATH) == before
    assert len(account(disk)) == 1
    assert keys(disk) == all_but(*range(30, COUNT))
    assert len(account(disk)) == 1


def test_opening_after_a_missing_sector_writes_no_account() -> None:
    disk = killed(synced=False)
    whole = read_file(disk, PATH)
    start = (position_of(disk) - 1) // SECTOR_BYTES * SECTOR_BYTES
    damage(disk, overwrite(whole, start, bytes(position_of(disk) - start)))
    assert keys(disk) == all_but(*(number for number, span in enumerate(spans(whole)) if span.end > start))
    assert account(disk) == []


def test_noise_at_the_end_that_no_power_cut_leaves_is_in_the_account() -> None:
    disk = killed(synced=False)
    whole = read_file(disk, PATH)
    span = spans(whole)[-1]
    damage(disk, overwrite(whole, span.start + 10, bytes(span.size - 10)))
    assert kinds(disk) == ["torn_tail"]
    assert keys(disk) == all_but(COUNT - 1)
    assert [(loss.position, loss.at_least, loss.fields["from"]) for loss in account(disk)] == [
        (span.start, 0, START + COUNT - 1)
    ]


def test_file_truncated_within_its_metadata_is_not_opened() -> None:
    disk = shortened(HEADER_BYTES + 5)
    with pytest.raises(DamagedJournal, match="metadata"):
        opened(disk)
