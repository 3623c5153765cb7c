"""Random damage as an operator makes it: a repair invents nothing, and its account names every item that it concerns.

A naive model knows what was written. A file of a small queue is damaged in one place, repaired, and compared:

- every operation that is left is one that was written, in order, or an item that the account names as suspect;
- every item that is live in one of the two and not in the other, or at another place in it, is in the account;
- the number of operations that are missing is within the bounds of the account;
- the account is there after opening the queue again, and `undo` brings every byte back.

The same for accidents to whole files and whole operations of a queue with all files that a writer leaves. Only what the
files say about each other can show these. Whatever that contradicts is a problem, the queue does not open, and the
account has it; `FilesCase.shows` says what nothing on the disk shows. Rotated files that were exchanged are as they
were after a repair. As long as a file cannot be read, nothing is repaired.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from logwright.core.bytes.outcome import Span
from logwright.core.repair.losses import Loss
from logwright.core.repair.plan import Create, Plan
from logwright.errors import DamagedJournal, LogwrightError
from logwright.kestrel.bytes.records import Operation
from logwright.kestrel.files import account, continuation, files, repair, salvage
from logwright.kestrel.files.files import list_queues
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.model.queue import Queue
from tests.kestrel.samples import (
    ADDED,
    REMOVE,
    RESERVE,
    addx,
    confirm,
    continue_,
    encoded,
    reserve_as,
    unremove,
)
from tests.support.access import guarded
from tests.support.counts import COUNTS
from tests.support.damage import cut, drop, files_accident, flip_bit, insert, overwrite
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_tree, write_tree

HOME = Path("/queues")
CASES = 3120
PART = 390
KINDS = ("truncate", "flip", "zero", "overwrite", "insert", "delete", "garbage")
Place = tuple[str, int]


# --- the queue ------------------------------------------------------------------------------------------------------


class Naive:
    """A queue as lists: what is waiting, and what is open by id. Items are whatever was put."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []
        self.open: dict[int, Any] = {}
        self.xid = 0

    def apply(self, operation: Operation, item: Any) -> None:
        match operation.op:
            case "addx":
                self.waiting.append(item)
            case "remove" if self.waiting:
                self.waiting.pop(0)
            case "remove_tentative" | "remove_tentative_xid" if self.waiting:
                self.xid = operation.xid or self.xid + 1
                if self.xid not in self.open:
                    self.open[self.xid] = self.waiting.pop(0)
            case "unremove" if operation.xid in self.open:
                self.waiting.insert(0, self.open.pop(operation.xid))
            case "confirm_remove":
                self.open.pop(operation.xid or 0, None)
            case "continue":
                self.open.pop(operation.xid or 0, None)
                self.waiting.append(item)


@dataclass
class Written:
    """What was written: the operations with their places, and the bytes of each file."""

    operations: list[tuple[Place, Operation]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    @cached_property
    def by_place(self) -> dict[Place, Operation]:
        return dict(self.operations)


def random_data(dice: random.Random) -> bytes:
    kind = dice.randrange(4)
    if kind == 0:
        return b"text %d" % dice.randrange(1000)
    return bytes(kind * 7) if kind == 1 else dice.randbytes(dice.choice((0, 1, 10, 60)))


def random_history(dice: random.Random, kestrel2: bool, count: int) -> list[Operation]:
    """Operations as a writer writes them: each fits the queue as it is then."""
    queue = Naive()
    found = []
    for number in range(count):
        choices = ["addx", "addx"]
        if queue.waiting:
            choices += ["remove", "remove", "reserve"]
        if queue.open:
            choices += ["confirm", "confirm", "unremove"] + ["continue"] * kestrel2
        xid = dice.choice(list(queue.open) or [0])
        following = replace(addx(random_data(dice)), added=ADDED + number)
        operation = {
            "addx": following,
            "remove": REMOVE,
            "reserve": reserve_as(queue.xid + 1) if kestrel2 else RESERVE,
            "confirm": confirm(xid),
            "unremove": unremove(xid),
            "continue": replace(continue_(xid, following.data or b""), added=following.added),
        }[dice.choice(choices)]
        queue.apply(operation, number)
        found.append(operation)
    return found


def random_queue(dice: random.Random) -> Written:
    written = Written()
    operations = random_history(dice, dice.random() < 0.5, dice.choice((10, 40, 120)))
    names = ["cars.900", "cars.950", "cars"][dice.randrange(3) :]
    cuts = sorted(dice.randrange(len(operations) + 1) for _ in names[1:])
    for name, first, last in zip(names, [0, *cuts], [*cuts, len(operations)], strict=True):
        position = 0
        for operation in operations[first:last]:
            written.operations.append(((name, position), operation))
            position += len(encoded([operation]))
        written.files[name] = encoded(operations[first:last])
    return written


# --- the damage -----------------------------------------------------------------------------------------------------


@dataclass
class Accident:
    """What happened to a file: bytes from `start` to `end` were changed or deleted, and `added` ones pushed in."""

    kind: str
    name: str
    start: int
    end: int
    added: int
    data: bytes

    def original(self, position: int) -> int | None:
        """Where the byte at a position of the damaged file was; None for one that was pushed in."""
        if position < self.start or self.kind in ("truncate", "flip", "zero", "overwrite", "garbage"):
            return position
        if self.kind == "insert":
            return None if position < self.start + self.added else position - self.added
        return position + self.end - self.start


def random_accident(dice: random.Random, written: Written) -> Accident:
    kind = dice.choice(KINDS)
    name = dice.choice([name for name, data in written.files.items() if len(data) > 1])
    data = written.files[name]
    start = dice.randrange(len(data))
    size = min(dice.choice((1, 3, 16, 100, 512, 4096)), len(data) - start)
    end = start + size
    noise = dice.randbytes(dice.choice((1, 3, 16, 100, 4096)))
    if kind == "truncate":
        return Accident(kind, name, start, len(data), 0, cut(data, start))
    if kind == "flip":
        return Accident(kind, name, start, start + 1, 0, flip_bit(data, 8 * start + dice.randrange(8)))
    if kind == "zero":
        return Accident(kind, name, start, end, 0, overwrite(data, start, bytes(size)))
    if kind == "overwrite":
        return Accident(kind, name, start, end, 0, overwrite(data, start, dice.randbytes(size)))
    if kind == "insert":
        return Accident(kind, name, start, start, len(noise), insert(data, start, noise))
    if kind == "delete":
        return Accident(kind, name, start, end, 0, drop(data, start, end))
    return Accident(kind, name, len(data), len(data), len(noise), data + noise)


# --- comparing ------------------------------------------------------------------------------------------------------


def is_placeholder(operation: Operation) -> bool:
    return (operation.added, operation.expires, operation.data) == (0, 1, b"")


def sources_of(plan: Plan, name: str, size: int) -> list[tuple[int, int, int | None]]:
    """What a repaired file is made of: position, size, and where that was in the damaged one; None for what is new."""
    for step in plan.steps:
        if isinstance(step, Create) and step.source == name:
            found: list[tuple[int, int, int | None]] = []
            at = 0
            for number, span in enumerate(step.spans):
                for before, data in step.inserts:
                    if before == number:
                        found.append((at, len(data), None))
                        at += len(data)
                found.append((at, span.size, span.start if isinstance(span, Span) else None))
                at += span.size
            return [*found, (at, len(step.data), None)]
    return [(0, size, 0)]


def left_of(plan: Plan, disk: SimulatedDisk) -> list[tuple[Place, Operation]]:
    """The operations after a repair, each with where it was in the damaged file; placeholders have -1."""
    tree = read_tree(disk, HOME)
    found = []
    for located in Reader(HOME / "cars", disk=disk).scan():
        start = located.span.start
        for at, size, source in sources_of(plan, located.file, len(tree[located.file] or b"")):
            if at <= start < at + size:
                old = -1 if source is None else source + start - at
                assert (old == -1) == is_placeholder(located.record), "a placeholder is not where one was put in"
                found.append(((located.file, old), located.record))
    return found


class Case:
    """One accident and its repair, for the checks."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(f"kestrel/{seed}")
        self.written = random_queue(dice)
        self.accident = random_accident(dice, self.written)
        self.disk = SimulatedDisk()
        files: dict[str, bytes | None] = {**self.written.files, self.accident.name: self.accident.data}
        write_tree(self.disk, HOME, files)
        self.before = files
        self.plan = repair.plan(HOME, disk=self.disk)
        self.repair = repair.apply(HOME, self.plan, disk=self.disk)
        self.left = left_of(self.plan, self.disk)
        self.lost = [loss for loss in self.plan.losses if loss.kind == "lost"]
        self.torn = self._torn_at()

    def _torn_at(self) -> int | None:
        """Where a torn tail was cut off."""
        cuts = [step for step in self.plan.steps if type(step).__name__ == "Cut" and step.file == "cars"]
        if not cuts or any(loss.file == "cars" and loss.position + loss.bytes >= cuts[0].end for loss in self.lost):  # type: ignore[union-attr]
            return None
        return cuts[0].start  # type: ignore[union-attr]

    def place(self, name: str, position: int) -> Place | None:
        """A place of the damaged queue, as it was before."""
        if position < 0:
            return None
        original = self.accident.original(position) if name == self.accident.name else position
        return None if original is None else (name, original)

    @property
    def suspects(self) -> set[str]:
        return {str(loss.fields["suspect"]) for loss in self.plan.losses if "suspect" in loss.fields}

    def expected(self) -> list[tuple[Place, Operation]]:
        """What was written, but for what a torn tail, or a file that ends too early, may have had."""
        name, start = "cars", self.torn
        if self.accident.kind == "truncate":
            name, start = self.accident.name, min(self.accident.start, self.torn or self.accident.start)
        if start is None:
            return self.written.operations
        ends = {place: place[1] + len(encoded([operation])) for place, operation in self.written.operations}
        return [one for one in self.written.operations if one[0][0] != name or ends[one[0]] <= start]

    def check_nothing_is_invented(self) -> int:
        """How many operations are as they were written."""
        same = 0
        last = -1
        order = {place: number for number, (place, _) in enumerate(self.written.operations)}
        for (name, position), operation in self.left:
            if position < 0:
                continue
            place = self.place(name, position)
            if not self.plan.losses and name == self.accident.name and position >= self.accident.start:
                continue  # bytes that read like operations, before a torn tail or without any: no one can know that
            assert place is not None, f"{operation} at {name}@{position} was never written"
            assert place in order, f"{operation} at {name}@{position} was never written"
            assert order[place] > last, "the order has changed"
            last = order[place]
            if self.written.by_place.get(place) == operation:
                same += 1
            elif self.plan.losses:
                assert f"{name}@{position}" in self.suspects, f"{operation} at {name}@{position} was written otherwise"
            else:  # no one can know that
                assert place[0] == self.accident.name
                assert place[1] <= self.accident.end, f"{operation} at {name}@{position} was changed by no accident"
        return same

    def check_bounds(self, same: int) -> None:
        missing = len(self.expected()) - same
        altered = len(self.suspects)
        assert missing >= sum(loss.at_least for loss in self.lost)
        if all(loss.at_most is not None for loss in self.lost):
            assert missing <= sum(loss.at_most or 0 for loss in self.lost) + altered

    def check_live_items(self) -> None:
        before, after = Naive(), Naive()
        for place, operation in self.expected():
            before.apply(operation, place)
        for (name, position), operation in self.left:
            after.apply(operation, self.place(name, position))
        named = {place for loss in self.lost for place in self._named(loss)}
        old, new = standings(before), standings(after)
        for place in old.keys() | new.keys():
            if place is not None and old.get(place) != new.get(place):
                assert place in named or self._is_lost(place), f"{place} was {old.get(place)}, is {new.get(place)}"
        shared = [item for item in before.waiting if item in after.waiting]
        kept = [item for item in after.waiting if item in before.waiting]
        assert shared == kept or set(shared) <= named

    def _named(self, loss: Loss) -> list[Place | None]:
        places = [*loss.fields.get("again", ()), *loss.fields.get("gone", ())]
        found = []
        for place in places:
            name, _, position = str(place).rpartition("@")
            found.append(self.place(name, int(position)))
        return found

    def _is_lost(self, place: Place) -> bool:
        """Whether an item is within a range that was lost, or was deleted from the file."""
        name, position = place
        if name != self.accident.name:
            return False
        if self.accident.kind == "delete" and self.accident.start - 4200 <= position < self.accident.end:
            return bool(self.lost)
        for loss in self.lost:
            ends = self.place(loss.file, loss.position), self.place(loss.file, loss.position + loss.bytes)
            first = ends[0][1] if ends[0] else self.accident.start
            last = ends[1][1] if ends[1] else self.accident.start
            if loss.file == name and first <= position < max(last, first + 1):
                return True
        return False

    def check_the_account_stays(self) -> None:
        reader = Reader(HOME / "cars", disk=self.disk)
        report = reader.verify()
        assert report.sound, report.problems
        if self.repair is not None:
            assert [replace(loss, repair="") for loss in reader.losses()] == list(self.plan.losses)
            repair.undo(HOME, disk=self.disk)
        tree = read_tree(self.disk, HOME)
        assert {name: data for name, data in tree.items() if not name.startswith(".logwright")} == self.before

    def check_torn(self) -> None:
        """A tail is torn only if no item that is whole follows the accident."""
        if self.torn is not None and self.accident.kind not in ("truncate", "garbage"):
            follows = [one for one in self.written.operations if one[0][0] == "cars" and one[0][1] >= self.accident.end]
            assert all(operation.data is None for _, operation in follows)

    def check(self) -> None:
        same = self.check_nothing_is_invented()
        if self.plan.losses:  # else it does not show
            self.check_bounds(same)
            self.check_live_items()
        self.check_torn()
        self.check_the_account_stays()


def standings(queue: Naive) -> dict[Any, str]:
    return {**dict.fromkeys(queue.waiting, "waiting"), **{item: f"open {xid}" for xid, item in queue.open.items()}}


def check_cases(first: int, count: int) -> tuple[int, int]:
    """Run cases; how many of them needed a repair, and how many a repair with losses."""
    repaired = losses = 0
    for seed in range(first, first + count):
        try:
            case = Case(seed)
            case.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        repaired += case.repair is not None
        losses += bool(case.plan.losses)
    return repaired, losses


@pytest.mark.parametrize("first", range(0, CASES, PART))
def test_a_repair_invents_nothing_and_accounts_for_every_live_item(first: int) -> None:
    repaired, losses = check_cases(first, PART)
    COUNTS.add("damages repaired", repaired, "kestrel")
    assert repaired >= PART * 5 // 8
    assert losses >= PART * 3 // 8


# --- accidents to whole files and whole records -----------------------------------------------------------------------


NOTES = (".logwright/cars.rotated", ".logwright/cars.packed")
FILE_CASES = 600
FILE_PART = 150


class FilesCase:
    """A queue with all files that a writer leaves, and an accident to whole files or whole operations of it."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(f"kestrel files/{seed}")
        self.seed = seed
        disk = write_queue(dice)
        self.standings = standings_on(disk)
        self.before = {name: data for name, data in read_tree(disk, HOME).items() if data is not None}
        self.written = operations_of(disk)
        names = [*self.written, *(name for name in NOTES if name in self.before)]
        if dice.random() < 0.5:  # the order in which a copy comes to them
            names = names[len(self.written) :] + names[: len(self.written)]
        victims = {name: self.before[name] for name in names}
        self.label, self.victims = files_accident(victims, self._boundaries, dice)
        self.after = {name: data for name, data in self.before.items() if name not in names} | self.victims
        self.disk = SimulatedDisk()
        write_tree(self.disk, HOME, self.after)
        self.found = operations_of(self.disk)
        self.changed = [name for name in names if self.before[name] != self.after.get(name)]

    def _boundaries(self, name: str, data: bytes) -> list[int]:
        return [*(position for position, _ in self.written.get(name, [(0, None)])), len(data)]

    def shows(self, name: str) -> bool:
        """Whether anything on the disk shows that a file of the queue has changed; the docs list what does not."""
        if name in NOTES:
            return False  # a note that is missing says nothing
        data, is_newest = self.after.get(name), name == "cars"
        if data is not None and b"".join(encoded([one]) for _, one in self.found.get(name, [])) != data:
            return True  # bad bytes, or a torn tail
        if NOTES[0] in self.changed or NOTES[0] not in self.before:
            return False  # no size is noted
        if is_newest:
            return data is None
        return data is None or len(data) != len(self.before[name])

    def check(self) -> bool:
        """Check all verbs; whether the accident showed."""
        if not list_queues(self.disk, HOME):  # no file is left, and no note
            return False
        expected = {name for name in self.changed if self.shows(name)}
        report = Reader(HOME / "cars", disk=self.disk).verify()
        assert {problem.file for problem in report.problems} == expected, report.problems
        self.check_writer({problem.kind for problem in report.problems})
        self.check_unreadable()
        plan = repair.plan(HOME, disk=self.disk)
        if plan.left:
            self.check_left_alone(plan, expected)
            return True
        repair.apply(HOME, plan, disk=self.disk)
        if self.is_exchange(expected):
            self.check_exchange(plan)
        else:
            self.check_losses(plan, expected)
            self.check_left(plan, expected)
        after = Reader(HOME / "cars", disk=self.disk).verify()
        assert after.sound, after.problems
        assert [replace(loss, repair="") for loss in after.losses] == list(plan.losses)
        again = repair.plan(HOME, disk=self.disk)
        assert (again.steps, again.losses) == ((), ())
        if not plan.empty:
            repair.undo(HOME, disk=self.disk)
        tree = read_tree(self.disk, HOME)
        assert {name: tree.get(name) for name in (*self.after, *self.before)} == {
            name: self.after.get(name) for name in (*self.after, *self.before)
        }
        return bool(expected)

    def check_writer(self, kinds: set[str]) -> None:
        """A queue opens only if there is nothing but a torn tail, and drops no item."""
        disk = self.disk.copy()
        try:
            Queue(HOME, "cars", disk=disk).close()
        except DamagedJournal:
            assert kinds - {"torn_tail"}
            assert read_tree(disk, HOME).items() >= self.after.items()
        else:
            assert not kinds - {"torn_tail"}
            assert items_of(disk) == items_of(self.disk)

    def check_unreadable(self) -> None:
        """A file that cannot be read is one problem, and all of the queue stays as it is."""
        listed = Reader(HOME / "cars", disk=self.disk).files()
        for file in listed[self.seed % 3 :: 3]:
            disk = guarded(file.path, disk=self.disk)
            report = Reader(HOME / "cars", disk=disk).verify()
            found = [(problem.position, problem.kind) for problem in report.problems if problem.file == file.name]
            assert found[0] == (0, "unreadable")
            assert {kind for _, kind in found[1:]} <= (
                {"truncated", "changed_file"} if self.shows(file.name) else set()
            )
            plan = repair.plan(HOME, disk=disk)
            assert [line for line in plan.left if line.startswith(f"{file.name} @ 0: open ")]
            assert plan.empty

    def check_left_alone(self, plan: Plan, expected: set[str]) -> None:
        """The newest file has the size of another one, and may have changed places with it: nothing proves that."""
        assert plan.empty
        size = len(self.after["cars"])
        alike = {name for name in expected - {"cars"} if len(self.before[name]) == size and name in self.after}
        assert {line.split(" @ ")[0] for line in plan.left} == alike

    def is_exchange(self, expected: set[str]) -> bool:
        """Whether two rotated files have changed places, and their sizes show it."""
        return self.label.startswith("swap") and len(expected) == 2 and "cars" not in expected

    def check_exchange(self, plan: Plan) -> None:
        """Both files have their own names again, and the account says so."""
        one, other = sorted(self.changed)
        found = [(loss.kind, loss.at_most, loss.fields) for loss in plan.losses]
        assert found == [("restored", 0, {"contents": {one: other, other: one}})]
        tree = read_tree(self.disk, HOME)
        assert {name: tree.get(name) for name in self.before} == self.before
        assert (operations_of(self.disk), standings_on(self.disk)) == (self.written, self.standings)

    def check_losses(self, plan: Plan, expected: set[str]) -> None:
        """The account has every file that shows damage, except a torn tail, and the right number of operations."""
        lost = {loss.file: loss for loss in plan.losses}
        assert len(lost) == len(plan.losses)
        is_torn = "cars" in expected and "cars" in self.after and "cars" not in lost
        assert lost.keys() == expected - ({"cars"} if is_torn else set())
        left = operations_of(self.disk)
        for name, loss in lost.items():
            missing = len(self.written[name]) - common(self.written[name], left.get(name, []))
            assert loss.at_least <= missing, f"{name}: {missing} operations are missing"
            if loss.at_most is not None and not self.label.startswith("swap"):
                assert missing <= loss.at_most, f"{name}: {missing} operations are missing"

    def check_left(self, plan: Plan, expected: set[str]) -> None:
        """What is left was written, in order, except in files that were swapped; and live items are accounted for."""
        left = operations_of(self.disk)
        for name, found in left.items():
            real = [one for one in found if not is_placeholder(one[1])]
            if name not in self.changed or not self.label.startswith("swap"):
                assert common(self.written[name], real) == len(real), f"{name} has operations that were not written"
            else:
                assert common(self.found[name], real) == len(real)
        if not plan.losses:
            return
        before, after = self.standings, standings_on(self.disk)
        named = {self.item_at(place) for loss in plan.losses for place in loss.fields.get("again", ())}
        gone = {self.item_at(place) for loss in plan.losses for place in loss.fields.get("gone", ())}
        anything = any(loss.file not in self.after for loss in plan.losses)
        there = {one.added for found in left.values() for _, one in found}
        for item in (before.keys() | after.keys()) - {None}:  # placeholders have no time
            if item in after and before.get(item) != after[item]:
                assert item in named, f"the item {item} is {after[item]}"
            elif item not in after:
                assert item not in there or item in gone or anything, f"the item {item} was {before[item]}"

    def item_at(self, place: str) -> int:
        name, _, position = place.rpartition("@")
        return next(one.added or 0 for at, one in self.found[name] if at == int(position))


Found = dict[str, list[tuple[int, Operation]]]


def operations_of(disk: SimulatedDisk) -> Found:
    """The whole operations of each file, with their positions, oldest file first."""
    if not list_queues(disk, HOME):
        return {}
    reader = Reader(HOME / "cars", disk=disk)
    found: Found = {file.name: [] for file in reader.files()}
    for located in reader.scan(mode="dropmalformed"):
        found[located.file].append((located.span.start, located.record))
    return found


def items_of(disk: SimulatedDisk) -> list[tuple[int | None, bytes]]:
    """The live items, reserved or not."""
    state = Reader(HOME / "cars", disk=disk).queue_state()
    return sorted((item.added, item.data) for item in (*state.open, *state.items))


def write_queue(dice: random.Random) -> SimulatedDisk:
    """A queue with rotated files, and perhaps a pack among them."""
    disk = SimulatedDisk()
    kestrel2 = dice.random() < 0.5
    with Writer(HOME / "cars", dialect="kestrel2" if kestrel2 else "documented", disk=disk) as writer:
        for operation in random_history(dice, kestrel2, dice.choice((20, 60))):
            writer.append(operation)
            if dice.random() < 0.08:
                writer.rotate()
                if dice.random() < 0.2:
                    writer.pack()
    return disk


def common(one: list[tuple[int, Operation]], other: list[tuple[int, Operation]]) -> int:
    """The length of the longest sequence of operations that both have."""
    row = [0] * (len(other) + 1)
    for _, first in one:
        previous = row
        row = [0]
        for number, (_, second) in enumerate(other):
            row.append(previous[number] + 1 if first == second else max(previous[number + 1], row[number]))
    return row[-1]


def standings_on(disk: SimulatedDisk) -> dict[int | None, str]:
    """What each live item is; it is known by the time at which it was added."""
    state = Reader(HOME / "cars", disk=disk).queue_state()
    waiting: dict[int | None, str] = {item.added: "waiting" for item in state.items}
    return waiting | {item.added: f"open {item.xid}" for item in state.open}


def check_files_cases(first: int, count: int) -> int:
    """Run cases; how many accidents showed."""
    shown = 0
    for seed in range(first, first + count):
        case = FilesCase(seed)
        try:
            shown += case.check()
        except Exception as error:
            error.add_note(f"FilesCase({seed}).check(): {case.label}")
            raise
    return shown


@pytest.mark.parametrize("first", range(0, FILE_CASES, FILE_PART))
def test_accidents_to_whole_files_and_operations_are_accounted_for(first: int) -> None:
    shown = check_files_cases(first, FILE_PART)
    COUNTS.add("damages repaired", shown, "kestrel")
    assert shown > FILE_PART * 3 // 8


# --- negative controls ----------------------------------------------------------------------------------------------


def wrong_cases(count: int) -> int:
    """How many of some cases are found to be wrong."""
    wrong = 0
    for seed in range(count):
        try:
            Case(seed).check()
        except (AssertionError, LogwrightError):
            wrong += 1
    return wrong


def test_harness_detects_a_repair_that_invents_a_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account.Account, "inserted", lambda *_: encoded([REMOVE]))
    assert wrong_cases(40) > 5


def test_harness_detects_a_repair_that_trusts_removals_next_to_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salvage, "MOST_DOUBTED", 0)
    monkeypatch.setattr(continuation, "MOST_DOUBTED", 0)
    monkeypatch.setattr(continuation, "_LEAST_BITS", 1)
    assert wrong_cases(200) > 0


def test_harness_detects_a_field_restored_without_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_fix(self: salvage.FileSalvage, stopped: int, _: object) -> salvage.Fix:
        return salvage.Fix(stopped, stopped, self.view.read_at(stopped, 1), encoded([REMOVE]), "opcode")

    monkeypatch.setattr(salvage.FileSalvage, "_find_fix", find_fix)
    assert wrong_cases(40) > 5


def test_harness_detects_an_account_without_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account.Account, "_with_effect", lambda self, loss, ledger: loss)
    assert wrong_cases(150) > 0


def wrong_files_cases(count: int) -> int:
    """How many of some accidents to whole files are found to be handled wrongly."""
    wrong = 0
    for seed in range(count):
        try:
            FilesCase(seed).check()
        except (AssertionError, LogwrightError):
            wrong += 1
    return wrong


def test_harness_detects_files_that_are_not_compared_with_their_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "contradicted", lambda *_: {})
    assert wrong_files_cases(60) > 5


def test_harness_detects_exchanged_files_that_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_find_exchanged", lambda *_: {})
    assert wrong_files_cases(120) > 2


def test_harness_detects_a_repair_that_leaves_the_note_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "_note_steps", lambda *_: [])
    assert wrong_files_cases(60) > 5
