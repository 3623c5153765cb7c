"""Whatever an operator does to a sej journal, a repair leaves what was written, in order, and accounts for the rest.

The model knows every message that was written and where its bytes were. After a random accident and a repair:

- a message that is there is the one that was written: bytes may differ only where the accident has put other ones, in
  timestamp, type, key or value, which break no rule; or in a message that the account calls suspect or restored;
- a message that is not there is in the account by its offset, or was in the torn tail;
- the account says exactly how many messages are lost, and is there when the journal is opened again;
- `undo` brings every byte back.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from logwright.core.io.disk import Disk
from logwright.core.repair.plan import Plan
from logwright.sej.bytes.codec import encode
from logwright.sej.bytes.layout import segment_name
from logwright.sej.bytes.records import Message
from logwright.sej.files import fixes, salvage
from logwright.sej.files.lost import lost_messages
from logwright.sej.files.reader import Reader
from logwright.sej.files.repair import apply, plan, undo
from tests.support.counts import COUNTS
from tests.support.damage import cut, drop, flip_bit, insert, overwrite
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import differences, read_tree, write_file

JOURNAL = Path("/journal")
DAMAGES = 2200
NESTED_DAMAGES = 900
_MOST_BYTES = 4096


@dataclass(frozen=True)
class Written:
    """A journal as it was written: its messages, and how many are in each segment."""

    messages: list[Message]
    per_segment: int

    def segments(self) -> dict[int, list[Message]]:
        numbers = range(0, len(self.messages), self.per_segment)
        return {first: self.messages[first : first + self.per_segment] for first in numbers}

    def disk(self) -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.make_directory(JOURNAL)
        disk.make_directory(JOURNAL / "jnl")
        for first, messages in self.segments().items():
            write_file(disk, JOURNAL / "jnl" / segment_name(first), b"".join(map(encode, messages)))
        return disk


@dataclass(frozen=True)
class Accident:
    """One segment with other bytes. `changed` is where bytes were put in the place of others, and nothing moved."""

    label: str
    first: int
    data: bytes
    changed: range


def some_messages(chance: random.Random, nested: float = 0.05) -> list[Message]:
    """Messages of many sizes or of one; some values hold zeros, and a part of them whole messages: see `nested`."""
    sizes = chance.choice([(0, 1, 30, 300), (24,), (100, 101)])
    moment = 1_760_000_000_000_000_000
    found = []
    for offset in range(chance.choice([12, 30])):
        value = chance.randbytes(chance.choice(sizes))
        if chance.random() < nested:
            value = inner_messages(chance, offset)
        elif chance.random() < 0.1:
            value = bytes(len(value))
        key = chance.randbytes(chance.choice([0, 0, 8]))
        found.append(Message(offset, moment + offset * 1000, chance.randrange(256), key, value))
    return found


def inner_messages(chance: random.Random, offset: int) -> bytes:
    """A value with a piece of another journal in it, whose offsets are near the one of its message, or its own."""
    first = max(0, offset + chance.choice([-3, -1, 0, 0, 1, 1, 2]))
    sizes = [chance.choice([0, 5, 40]) for _ in range(chance.choice([1, 3, 6]))]
    inner = [encode(Message(first + n, 1, 0, b"", chance.randbytes(size))) for n, size in enumerate(sizes)]
    before, after = chance.choice([0, 0, 7]), chance.choice([0, 0, 7])
    value = chance.randbytes(before) + b"".join(inner) + chance.randbytes(after)
    return value[: len(value) - chance.choice([0, 0, 3])]


def some_accident(chance: random.Random, written: Written) -> Accident:
    """What an operator, or a disk, does to one file: up to 4 KiB of it."""
    first = chance.choice(list(written.segments()))
    data = b"".join(map(encode, written.segments()[first]))
    start = chance.randrange(len(data))
    size = min(chance.choice([1, 2, 5, 20, 100, 512, _MOST_BYTES]), len(data) - start)
    noise = chance.randbytes(size)
    what = chance.choice(["flip", "zero", "overwrite", "insert", "delete", "truncate", "append"])
    nothing = range(0)
    match what:
        case "flip":
            return Accident(what, first, flip_bit(data, 8 * start + chance.randrange(8)), range(start, start + 1))
        case "zero":
            return Accident(what, first, overwrite(data, start, bytes(size)), range(start, start + size))
        case "overwrite":
            return Accident(what, first, overwrite(data, start, noise), range(start, start + size))
        case "insert":
            return Accident(what, first, insert(data, start, noise), nothing)
        case "delete":
            return Accident(what, first, drop(data, start, start + size), nothing)
        case "truncate":
            return Accident(what, first, cut(data, start), nothing)
        case _:
            return Accident(what, first, data + noise, nothing)


def offsets_named(found: Plan, total: int) -> tuple[set[int], set[int]]:
    """What a plan's account names of `total` messages: the offsets that are lost, and those that nothing proves."""
    lost: set[int] = set()
    unproven: set[int] = set()
    for loss in found.losses:
        fields = loss.fields
        if "suspect" in fields:
            unproven.add(fields["suspect"])
        if loss.kind == "lost" and fields["next"] is None:
            assert loss.at_least == 0
            assert loss.at_most is None or loss.at_most >= total - fields["first"]
            lost.update(range(fields["first"], total))
        elif loss.kind == "lost":
            assert loss.at_least == loss.at_most == fields["next"] - fields["first"]
            assert lost.isdisjoint(range(fields["first"], fields["next"]))
            lost.update(range(fields["first"], fields["next"]))
        elif "first" in fields:
            unproven.update(range(fields["first"], fields["next"]))
    return lost, unproven


def may_differ(written: Written, accident: Accident, message: Message) -> bool:
    """Whether a message differs from what was written only in bytes that break no rule, where the accident was."""
    segment = written.segments()[accident.first]
    right = next((other for other in segment if other.offset == message.offset), None)
    if right is None:
        return False
    start = sum(other.size for other in segment[: segment.index(right)])
    one, other = encode(message), encode(right)
    if len(one) != len(other):
        return False
    return all(start + at in accident.changed for at in range(len(one)) if one[at] != other[at])


def check(written: Written, accident: Accident) -> bool:
    """Repair after an accident, and compare with what was written; whether there was anything to repair."""
    disk = written.disk()
    path = JOURNAL / "jnl" / segment_name(accident.first)
    write_file(disk, path, accident.data)
    before = journal_files(disk)
    found = plan(JOURNAL, disk=disk)
    assert journal_files(disk) == before, "planning changes nothing"
    apply(JOURNAL, found, disk=disk)
    lost, unproven = offsets_named(found, len(written.messages))
    report = Reader(JOURNAL, disk=disk).verify()
    assert report.problems == []
    assert report.losses == [*found.losses] or [loss.as_json() for loss in report.losses] == [
        loss.as_json() for loss in found.losses
    ]
    left = [item for item in Reader(JOURNAL, disk=disk) if isinstance(item, Message)]
    offsets = [message.offset for message in left]
    assert offsets == sorted(set(offsets)), "in order, and none twice"
    for message in left:
        same = message in written.messages or message.offset in unproven or may_differ(written, accident, message)
        assert same, f"message {message.offset} is not what was written"
    missing = {message.offset for message in written.messages} - set(offsets)
    assert lost.isdisjoint(offsets), "what is lost is not there"
    torn = missing - lost
    is_last = accident.first == max(written.segments())
    assert not torn or is_last, f"{sorted(torn)} are missing and not in the account"
    if torn:
        assert torn == set(range(min(torn), len(written.messages))), "a torn tail has no whole message after it"
        assert not accident.data.endswith(encode(written.messages[-1])), "nor at its end"
    if not found.empty:
        undo(JOURNAL, disk=disk)
        assert Reader(JOURNAL, disk=disk).losses() == []
    assert differences(before, journal_files(disk)) == []
    return not found.empty


def journal_files(disk: Disk) -> dict[str, bytes | None]:
    return {name: data for name, data in read_tree(disk, JOURNAL).items() if name.startswith("jnl/")}


def check_many(number: int, seed: int = 0, nested: float = 0.05) -> int:
    """Check a number of accidents; how many of them had something to repair."""
    repaired = 0
    for case in range(number):
        written, accident = some_case(seed, case, nested)
        try:
            repaired += check(written, accident)
        except AssertionError as error:
            error.add_note(f"replay with check(*some_case({seed}, {case}, {nested}))")
            error.add_note(f"{accident.label} in segment {accident.first}")
            raise
    return repaired


def some_case(seed: int, case: int, nested: float) -> tuple[Written, Accident]:
    """One case of `check_many`: a journal, and an accident."""
    chance = random.Random(f"sej/{seed}/{case}")
    messages = some_messages(chance, nested)
    written = Written(messages, chance.choice([5, 10, len(messages)]))
    return written, some_accident(chance, written)


def test_after_repair_of_any_damage_entries_are_genuine_and_losses_accounted_for() -> None:
    repaired = check_many(DAMAGES)
    COUNTS.add("damages repaired", repaired, "sej")
    assert repaired > DAMAGES // 2


def test_messages_within_values_are_never_recovered_after_any_damage() -> None:
    repaired = check_many(NESTED_DAMAGES, seed=1, nested=0.7)
    COUNTS.add("damages repaired", repaired, "sej")
    assert repaired > NESTED_DAMAGES // 2


# --- repairs that are wrong on purpose ------------------------------------------------------------------------------


def take_the_first(self: salvage.Salvage, position: int, expected: int) -> fixes.Fix | None:
    """Restore a field wherever one change makes a message whole, whatever follows it."""
    return next(fixes.find_fixes(self.view, position, expected, self.following), None)


def forget_losses(self: salvage.Salvage, *_: object) -> None:
    """Note nothing."""


def off_by_one(original: Callable[..., object]) -> Callable[..., object]:
    def lost_messages(*arguments: object, first: int, after: int, **rest: object) -> object:
        return original(*arguments, first=first, after=max(first + 1, after - 1), **rest)

    return lost_messages


def test_repair_that_omits_removed_messages_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salvage.Salvage, "_note", forget_losses)
    with pytest.raises(AssertionError):
        check_many(200)


def test_repair_that_accounts_for_too_few_messages_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salvage, "lost_messages", off_by_one(lost_messages))
    with pytest.raises(AssertionError):
        check_many(200)


def test_repair_that_guesses_a_field_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salvage.Salvage, "_find_fix", take_the_first)
    with pytest.raises(AssertionError):
        check_many(500)
