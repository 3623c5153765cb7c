"""Damage as an operator makes it, repaired: what is there was written, and what is not there is in the account.

The model knows every transaction that was written, and of every byte of a damaged file where it was written. It knows
nothing of how damage is found. A transaction that has lost or changed bytes may have come out different, as the format
has no checksums; no other one may.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from logwright.core.bytes.outcome import Damage
from logwright.core.repair.plan import Plan
from logwright.errors import DamagedJournal
from logwright.yeltsin.bytes.records import Allocate, Modify, Operation, Remove, Transaction
from logwright.yeltsin.files import repair as repairs
from logwright.yeltsin.files.reader import Reader
from logwright.yeltsin.files.salvage import Run, Search
from logwright.yeltsin.files.writer import TransactionJournal
from logwright.yeltsin.model.database import Database
from tests.support.counts import COUNTS
from tests.support.damage import Traced, accident, files_accident, repeat
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_file, write_file
from tests.yeltsin.samples import CREATED, PAGE, journal, linked

HOME = Path("/journal")
FILE = HOME / "t.jrnl"
ROUNDS = 20
DAMAGES = 175


@dataclass(frozen=True)
class Written:
    """A journal: its transactions without their links, where they begin, and its bytes."""

    items: list[Transaction]
    starts: list[int]
    data: bytes

    @classmethod
    def of(cls, items: list[Transaction]) -> Written:
        return cls(items, linked(items)[1], journal(items))

    def is_touched(self, number: int, damaged: Traced) -> bool:
        """Whether the bytes of a transaction are incomplete or not consecutive."""
        start = self.starts[number]
        end = [*self.starts, len(self.data)][number + 1]
        wanted = list(range(start, end))
        origins = damaged.origins
        place = next((place for place, origin in enumerate(origins) if origin == start), None)
        return place is None or origins[place : place + len(wanted)] != wanted


def alone(item: Transaction) -> Transaction:
    """A transaction without what a repair may set: its links, and a seal that covers them."""
    return replace(item, previous=0, next=0, end_data=item.end_data[:4] + item.end_data[8:])


# --- journals -------------------------------------------------------------------------------------------------------


def random_journal(chance: random.Random) -> Written:
    """Transactions of all kinds; a page of some of them holds the bytes of another journal."""
    makers = (plain_operations, plain_operations, operations_on_zeros, operations_with_a_journal)
    make = chance.choice(makers)
    items = []
    for number in range(chance.choice((0, 1, 2, 3, 10, 40))):
        end = 0xFE if chance.randrange(8) == 0 else 0xFF
        data = chance.randbytes(chance.choice((0, 0, 0, 5)))
        items.append(Transaction(0, 0, CREATED + number, 1, tuple(make(chance)), end, data))
    return Written.of(items)


def plain_operations(chance: random.Random) -> list[Operation]:
    return [one_operation(chance, chance.randbytes) for _ in range(chance.choice((0, 1, 1, 2, 4)))]


def operations_on_zeros(chance: random.Random) -> list[Operation]:
    return [one_operation(chance, bytes) for _ in range(chance.choice((1, 2, 4)))]


def operations_with_a_journal(chance: random.Random) -> list[Operation]:
    inner = journal([replace(item, timestamp=item.timestamp + 10**6) for item in inner_items(chance.randrange(3))])
    rest = bytes(chance.choice((0, 7)))
    holds = Modify(PAGE, 0, bytes(len(inner + rest)), inner + rest)
    return [holds] if chance.randrange(3) == 0 else plain_operations(chance)


@functools.cache
def inner_items(seed: int) -> list[Transaction]:
    chance = random.Random(f"inner {seed}")
    return [Transaction(0, 0, CREATED + number, 1, tuple(plain_operations(chance))) for number in range(4)]


def one_operation(chance: random.Random, image: Callable[[int], bytes]) -> Operation:
    page = PAGE + 65536 * chance.randrange(5)
    match chance.randrange(5):
        case 0:
            return Allocate(page, chance.randrange(2**20), chance.choice((0, page)))
        case 1:
            return Remove(page, chance.randrange(2**20))
        case _:
            size = chance.choice((0, 3, 20, 120))
            return Modify(page, chance.randrange(200), image(size), image(size))


@functools.cache
def database_journal() -> Written:
    """What a database has written: its completions are sealed."""
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    chance = random.Random("database")
    with Database(HOME / "t.ydb", FILE, disk=disk) as db:
        for _ in range(12):
            with db.transaction() as tx:
                page = tx.allocate() if chance.randrange(3) == 0 else PAGE
                tx.modify(page, chance.randrange(200), chance.randbytes(20))
    found = [item for item in Reader(FILE, disk=disk).scan() if not isinstance(item, Damage)]
    return Written([item.record for item in found], [item.span.start for item in found], read_file(disk, FILE))


# --- the naive model ------------------------------------------------------------------------------------------------


def found_of(written: Written, damaged: Traced, items: list[Transaction]) -> tuple[set[int], bool]:
    """Which of the written transactions are there, in order, and whether any came out different."""
    found: set[int] = set()
    is_changed = False
    last = -1
    all_written = list(map(alone, written.items))
    for item in map(alone, items):
        later = range(last + 1, len(all_written))
        number = next((number for number in later if all_written[number] == item), None)
        if number is None:
            assert item not in all_written, f"{item} is there twice, or out of order"
            number = next((number for number in later if written.is_touched(number, damaged)), None)
            is_changed = True
        assert number is not None, f"{item} was never written here"
        found.add(number)
        last = number
    return found, is_changed


def check_account(plan: Plan, lost: set[int], unfinished: set[int]) -> None:
    """The number of lost transactions is within the bounds; one that was not finished is a torn tail, and no loss."""
    losses = [loss for loss in plan.losses if loss.kind == "lost"]
    at_least = sum(loss.at_least for loss in losses)
    at_most = sum(float("inf") if loss.at_most is None else loss.at_most for loss in losses)
    assert at_least <= len(lost), f"{at_least} > {len(lost)}: {plan.describe()}"
    assert len(lost - unfinished) <= at_most, f"{len(lost)} > {at_most}: {plan.describe()}"


def check_pages(written: Written, last: int, reader: Reader) -> None:
    """Each byte that is known of a page is what it was after the last transaction that is there."""
    pages: dict[int, dict[int, int]] = {}
    for item in written.items[: last + 1]:
        for operation in item.operations if item.outcome == "completed" else ():
            if isinstance(operation, Modify):
                page = pages.setdefault(operation.page, {})
                page.update(enumerate(operation.after, operation.page_offset))
            else:
                pages[operation.page] = {}
    for number, ranges in reader.pages().pages.items():
        for start, data in ranges.items():
            for at, byte in enumerate(data, start):
                assert pages.get(number, {}).get(at) == byte, f"page {number} @ {at}"


def check(written: Written, damaged: Traced) -> bool:
    """Repair a damaged journal, compare it with what was written, and take the repair back; whether it was repaired."""
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    write_file(disk, FILE, damaged.data)
    reader = Reader(FILE, disk=disk)
    problems = reader.verify().problems
    plan = repairs.plan(FILE, disk=disk)
    assert plan.empty <= (not problems or bool(plan.left))
    if plan.empty:
        items = [item for item in reader.transactions(mode="dropmalformed") if not isinstance(item, Damage)]
        found_of(written, damaged, items)
        return False
    repairs.apply(FILE, plan, disk=disk)
    assert reader.verify().problems == []
    assert repairs.plan(FILE, disk=disk).empty, "a second repair changes something"
    items = [item for item in reader.transactions() if not isinstance(item, Damage)]
    found, is_changed = found_of(written, damaged, items)
    is_torn = any(problem.kind == "torn_tail" for problem in problems)
    check_account(plan, set(range(len(written.items))) - found, {len(written.items) - 1} if is_torn else set())
    assert [replace(loss, repair="") for loss in Reader(FILE, disk=disk).losses()] == [
        replace(loss, part="t.jrnl") for loss in plan.losses
    ]
    if not is_changed:
        check_pages(written, max(found, default=-1), reader)
    repairs.undo(FILE, disk=disk)
    assert read_file(disk, FILE) == damaged.data
    assert reader.losses() == []
    return True


def check_damages(round: int, damages: int) -> int:
    """Check `damages` damages; how many of them were repaired."""
    repaired = 0
    for case in range(damages):
        seed = f"{round}/{case}"
        chance = random.Random(seed)
        written = database_journal() if case % 10 == 0 else random_journal(chance)
        damaged = accident(written.data, chance)
        try:
            repaired += check(written, damaged)
        except AssertionError as error:
            raise AssertionError(f"seed {seed!r}, {damaged.label}: {error}") from error
    return repaired


@pytest.mark.parametrize("round", range(ROUNDS))
def test_after_damage_remaining_bytes_are_genuine_and_losses_accounted_for(round: int) -> None:
    repaired = check_damages(round, DAMAGES)
    assert repaired >= 110
    COUNTS.add("damages repaired", repaired, "yeltsin")


# --- accidents to whole files and whole transactions ------------------------------------------------------------------


def traced(written: Written, label: str, data: bytes) -> Traced:
    """The origins of bytes of which one range is missing."""
    pairs = enumerate(zip(written.data, data, strict=False))
    same = next((place for place, (one, other) in pairs if one != other), min(len(data), len(written.data)))
    rest = len(written.data) - (len(data) - same)
    assert data == written.data[:same] + written.data[rest:]
    return Traced(label, data, [*range(same), *range(rest, len(written.data))])


def check_files(chance: random.Random) -> bool:
    """One accident to two journals side by side; whether one was repaired."""
    journals = {"t.jrnl": random_journal(chance), "u.jrnl": database_journal()}
    before = {name: written.data for name, written in journals.items()}
    label, after = files_accident(
        before, lambda name, data: [0, *journals[name].starts, len(data)] if data else [0], chance
    )
    repaired = False
    if label.startswith("swap"):
        journals["t.jrnl"], journals["u.jrnl"] = journals["u.jrnl"], journals["t.jrnl"]  # nothing in them has a name
    for name, written in journals.items():
        if name not in after:
            continue  # each file is a journal of its own: nothing says that there was another one
        damaged = traced(written, label, after[name])
        repaired |= check(written, damaged)
        if damaged.data != written.data:
            check_opening(written, damaged)
    return repaired


def check_opening(written: Written, damaged: Traced) -> None:
    """A writer refuses what is damaged; where it opens the journal, what is missing was not finished, or is known."""
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    write_file(disk, FILE, damaged.data)
    try:
        with TransactionJournal(FILE, disk=disk):
            pass
    except DamagedJournal:
        assert read_file(disk, FILE) == damaged.data
        return
    reader = Reader(FILE, disk=disk)
    found, _ = found_of(written, damaged, [item for item in reader.transactions() if not isinstance(item, Damage)])
    lost = set(range(len(written.items))) - found
    assert not lost or reader.losses() or is_cut_after_the_last_but_one(written, damaged, lost), lost


def is_cut_after_the_last_but_one(written: Written, damaged: Traced, lost: set[int]) -> bool:
    """Whether only the last transaction is gone, and the file ends there: that is what a crash leaves."""
    last = len(written.items) - 1
    return lost == {last} and damaged.data == written.data[: len(damaged.data)]


@pytest.mark.parametrize("round", range(ROUNDS))
def test_after_accidents_to_files_and_whole_transactions_losses_are_accounted_for(round: int) -> None:
    repaired = 0
    for case in range(DAMAGES // 7):
        seed = f"files {round}/{case}"
        try:
            repaired += check_files(random.Random(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed!r}: {error}") from error
    assert repaired >= 5
    COUNTS.add("damages repaired", repaired, "yeltsin")


# --- repairs that are wrong in one place ----------------------------------------------------------------------------


def test_repair_that_does_not_report_losses_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repairs, "lost_between", lambda *arguments: None)
    with pytest.raises(AssertionError, match="seed"):
        check_damages(0, DAMAGES)


def test_repair_that_accepts_foreign_runs_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def tied(search: Search, before: Run, run: Run, *, reaches: bool) -> Run | None:
        return run.after(before.end)

    monkeypatch.setattr(Search, "_tied", tied)
    with pytest.raises(AssertionError, match="was never written here"):
        check_damages(0, DAMAGES)


def test_repair_that_mixes_two_transactions_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items = [Transaction(0, 0, CREATED, 1, (Modify(PAGE, number, b"a", b"b"),)) for number in range(30)]
    written = Written.of(items)
    start, end = written.starts[10] + 5, written.starts[20] + 5
    origins: list[int | None] = [*range(end), *range(start, len(written.data))]
    damaged = Traced("repeat", repeat(written.data, start, end), origins)
    check(written, damaged)
    monkeypatch.setattr(Search, "_drop_doubtful", lambda *arguments: None)
    with pytest.raises(AssertionError, match="is there twice, or out of order"):
        check(written, damaged)
