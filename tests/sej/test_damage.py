"""Whatever an operator does to a sej journal, a repair leaves what was written, in order, and accounts for the rest.

The model knows every message that was written and where its bytes were. After a random accident and a repair:

- a message that is there is the one that was written: bytes may differ only where the accident has put other ones, in
  timestamp, type, key or value, which break no rule; or in a message that the account calls suspect or restored;
- a message that is not there is in the account by its offset, or was in the torn tail;
- the account says exactly how many messages are lost, and is there when the journal is opened again;
- `undo` brings every byte back.

The same for accidents to whole files and whole messages of a journal with all files that a writer leaves. Only what the
files say about each other can show these; `FilesCase.end_shows` says what nothing on the disk shows. A repair while a
segment cannot be read, and another one after that, leave as much.

A writer that opens a damaged journal takes nothing away, and every message that it appends can be read: it does not
open a segment whose last block does not match its checksum.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import pytest

from logwright.core.io.disk import Disk
from logwright.core.repair.plan import Plan
from logwright.errors import DamagedJournal
from logwright.sej.bytes.codec import encode
from logwright.sej.bytes.layout import segment_name
from logwright.sej.bytes.records import Message
from logwright.sej.files import check as check_module
from logwright.sej.files import ending, fixes, missing, repair, salvage, scanner
from logwright.sej.files.checksums import ChecksumWriter
from logwright.sej.files.lost import lost_messages
from logwright.sej.files.reader import Reader
from logwright.sej.files.repair import apply, plan, undo
from logwright.sej.files.writer import Writer
from logwright.sej.model.offset import Offset
from tests.support.access import guarded
from tests.support.counts import COUNTS
from tests.support.damage import cut, drop, files_accident, flip_bit, insert, overwrite
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import differences, read_tree, write_file, write_tree

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
    what = chance.choice(["flip", "zero", "overwrite", "insert", "delete", "truncate", "append", "copy", "repeat"])
    source = chance.randrange(len(data))
    copied = data[source : source + min(size, len(data) - start)]
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
        case "copy":
            return Accident(what, first, overwrite(data, start, copied)[: len(data)], range(start, start + size))
        case "repeat":
            return Accident(what, first, insert(data, start, copied), nothing)
        case _:
            return Accident(what, first, data + noise, nothing)


def offsets_named(found: Plan, total: int, *, exact: bool = True) -> tuple[set[int], set[int]]:
    """What a plan's account names of `total` messages: the offsets that are lost, and those that nothing proves.

    If it is not `exact`, the end of the journal may seem to be lost, as when checksums are those of another segment.
    """
    lost: set[int] = set()
    unproven: set[int] = set()
    for loss in found.losses:
        fields = loss.fields
        if "suspect" in fields:
            unproven.add(fields["suspect"])
        if loss.kind == "lost" and fields["next"] is None:
            assert loss.at_least <= max(0, total - fields["first"]) or not exact
            last = total if loss.at_most is None else min(total, fields["first"] + loss.at_most)
            lost.update(range(fields["first"], last))
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


def is_spliced(written: Written, accident: Accident, message: Message) -> bool:
    """Whether a message ends with the bytes of the last one that was written: those between were deleted."""
    return (
        accident.label == "delete"
        and accident.data.endswith(encode(message))
        and accident.first == max(written.segments())
    )


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
        same = same or (found.empty and is_spliced(written, accident, message))
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


# --- accidents to whole files and whole messages ----------------------------------------------------------------------


FILE_CASES = 600
FILE_PART = 150


class FilesCase:
    """A journal with all files that a writer leaves, and an accident to whole files or whole messages of it."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(f"sej files/{seed}")
        self.seed = seed
        self.written, disk = write_journal(chance)
        self.before = files_of(disk)
        self.segments = sorted(int(name[4:20], 16) for name in self.before if name.endswith(".jnl"))
        folders = chance.choice([("jnl", "idx", "ofs"), ("idx", "jnl", "ofs"), ("ofs", "idx", "jnl")])
        by_folder = chance.random() < 0.5  # the order in which a copy comes to them
        names = sorted(self.before, key=lambda name: (by_folder or name[4:20], folders.index(name[:3]), name))
        if chance.random() < 0.5:  # a segment
            names = [name for name in names if name.endswith(".jnl")]
        victims = {name: self.before[name] for name in names}
        self.label, left = files_accident(victims, self._boundaries, chance)
        self.after = {name: data for name, data in self.before.items() if name not in names} | left
        self.disk = SimulatedDisk()
        write_tree(self.disk, JOURNAL, {"jnl": None, **self.after})
        self.there = [first for first in self.segments if f"jnl/{segment_name(first)}" in self.after]
        self.is_swapped = self.label.startswith("swap")

    def _boundaries(self, name: str, data: bytes) -> list[int]:
        if not name.endswith(".jnl"):
            return [0, len(data)]
        first = int(name[4:20], 16)
        messages = [message for message in self.written if first <= message.offset < self._after(first)]
        return list(accumulate((message.size for message in messages), initial=0))

    def _after(self, first: int) -> int:
        """The offset after the last message of a segment."""
        return next((other for other in self.segments if other > first), len(self.written))

    def _has(self, name: str) -> bool:
        return self.after.get(name) == self.before.get(name) is not None

    def end_shows(self, end: int) -> bool:
        """Whether anything beside the segments shows that messages from `end` on, the last ones, are missing.

        The docs list what does not: see "Losses that cannot be detected".
        """
        last = max(self.there, default=-1)
        later = [first for first in self.segments if first > last]
        if any(self._has(f"idx/{first:016x}.idx") or self._has(f"jnl/{segment_name(first)}.crc") for first in later):
            return True
        if last < 0:
            return False
        if later and self._has(f"idx/{last:016x}.idx"):
            return end < later[0]
        return self._has(f"jnl/{segment_name(last)}.crc") and end < self._after(last)

    def may_end_short(self) -> bool:
        """Whether the last segment is followed by other files, or has fewer bytes than its checksums have covered."""
        last = max(self.there, default=-1)
        name = f"jnl/{segment_name(last)}" if self.there else ""
        later = any(first > last for first in map(self._first_of, self.after) if first is not None)
        return later or (f"{name}.crc" in self.after and len(self.after[name]) < len(self.before[name]))

    def _first_of(self, name: str) -> int | None:
        return None if name.startswith("ofs") else int(name[4:20], 16)

    def check(self) -> bool:
        """Check all verbs; whether the accident has cost messages that are in the account."""
        written = {message.offset: message for message in self.written}
        report = Reader(JOURNAL, disk=self.disk).verify()
        found = {message.offset for message in readable(self.disk)}
        end = max([*(offset + 1 for offset in found), *self.there], default=0)
        ending = set(range(end, len(written)))
        first = min(self.there, default=0)
        silent = set(range(first)) | (set() if self.end_shows(end) else ending)
        shown = written.keys() - found - silent
        assert not (shown and report.sound), f"{shown} are missing, and this is sound"
        self.check_writer(found, bool(ending - silent))
        self.check_unreadable(silent)
        planned = plan(JOURNAL, disk=self.disk)
        apply(JOURNAL, planned, disk=self.disk)
        left = readable(self.disk)
        offsets = [message.offset for message in left]
        assert offsets == sorted(set(offsets)), "in order, and none twice"
        assert all(written[message.offset] == message for message in left), "no message is what was written"
        if planned.left:  # files with other names: they stay, and remain a problem
            assert self.is_swapped
            assert not Reader(JOURNAL, disk=self.disk).verify().sound
        else:
            assert Reader(JOURNAL, disk=self.disk).verify().problems == []
            lost, _ = offsets_named(planned, len(written), exact=not self.is_swapped)
            assert lost >= written.keys() - set(offsets) - silent, "what is missing is in the account"
            assert lost.isdisjoint(offsets), "what is lost is not there"
        again = plan(JOURNAL, disk=self.disk)
        assert (again.steps, again.losses) == ((), ())
        if not planned.empty:
            undo(JOURNAL, disk=self.disk)
        assert files_of(self.disk) == self.after
        return bool(planned.losses)

    def check_unreadable(self, silent: set[int]) -> None:
        """A repair while a segment cannot be read changes nothing that the next one needs."""
        if not self.there or self.is_swapped:
            return
        disk = self.disk.copy()
        name = f"jnl/{segment_name(self.there[self.seed % len(self.there)])}"
        denied = guarded(JOURNAL / name, disk=disk)
        report = Reader(JOURNAL, disk=denied).verify()
        assert [one.position for one in report.problems if (one.file, one.kind) == (name, "unreadable")] == [0]
        first = plan(JOURNAL, disk=denied)
        assert first.left[0].startswith("jnl/")
        assert f"{name} @ 0: open" in "".join(first.left)
        assert not any(name in step.describe() for step in first.steps)
        apply(JOURNAL, first, disk=denied)
        second = plan(JOURNAL, disk=disk)
        apply(JOURNAL, second, disk=disk)
        assert Reader(JOURNAL, disk=disk).verify().problems == []
        offsets = [message.offset for message in readable(disk)]
        lost, _ = offsets_named(Plan("sej", losses=(*first.losses, *second.losses)), len(self.written))
        assert lost >= set(range(len(self.written))) - set(offsets) - silent, "what is missing is in the account"
        assert lost.isdisjoint(offsets), "what is lost is not there"

    def check_writer(self, found: set[int], ends_short: bool) -> None:
        """A writer refuses a journal whose end is known to be lost, and else drops no whole message."""
        disk = self.disk.copy()
        try:
            Writer(JOURNAL, disk=disk).close()
        except DamagedJournal:
            assert ends_short or self.is_swapped or self.may_end_short()
            assert files_of(disk) == self.after
        else:
            assert not ends_short, "the writer would use the lost offsets again"
            assert {message.offset for message in readable(disk)} == found


def write_journal(chance: random.Random) -> tuple[list[Message], SimulatedDisk]:
    """A journal of several segments, perhaps with checksums, and a consumer."""
    disk = SimulatedDisk()
    messages = some_messages(chance, nested=0)
    segment_size, checksums = chance.choice((100, 400, 1200)), chance.random() < 0.4
    with Writer(JOURNAL, segment_size=segment_size, checksums=checksums, disk=disk) as writer:
        for message in messages:
            writer.append(message.value, message.key, message.type, message.timestamp)
    with Offset(JOURNAL, "reader", disk=disk) as offset:
        offset.commit(chance.randrange(len(messages) + 1))
    return messages, disk


def files_of(disk: Disk) -> dict[str, bytes]:
    """The files of the journal and those beside them, without locks."""
    folders = ("jnl/", "idx/", "ofs/")
    tree = read_tree(disk, JOURNAL)
    return {
        name: data for name, data in tree.items() if data is not None and name[:4] in folders and ".lck" not in name
    }


def readable(disk: Disk) -> list[Message]:
    return [item for item in Reader(JOURNAL, disk=disk).messages(mode="dropmalformed") if isinstance(item, Message)]


@pytest.mark.parametrize("first", range(0, FILE_CASES, FILE_PART))
def test_accidents_to_whole_files_and_messages_are_accounted_for(first: int) -> None:
    lost = 0
    for seed in range(first, first + FILE_PART):
        case = FilesCase(seed)
        try:
            lost += case.check()
        except Exception as error:
            error.add_note(f"FilesCase({seed}).check(): {case.label}")
            raise
    COUNTS.add("damages repaired", lost, "sej")
    assert lost > FILE_PART // 4


# --- writers on damaged journals --------------------------------------------------------------------------------------


CHECKED_CASES = 800


def check_opening(seed: int) -> bool:
    """Open a damaged journal with checksums for writing, or repair it first; whether the writer refused it."""
    chance = random.Random(f"sej checked/{seed}")
    disk = SimulatedDisk()
    messages = some_messages(chance, nested=0)
    whole = Written(messages, chance.choice([5, 10, len(messages)]))
    write_tree(disk, JOURNAL, {"jnl": None, "jnl/" + segment_name(0): b""})
    if whole.per_segment == len(messages):
        ChecksumWriter(disk, JOURNAL / "jnl" / segment_name(0), 512).close()
    size = 1 << 20
    for first, part in whole.segments().items():
        with Writer(JOURNAL, segment_size=size, checksums=True, disk=disk) as writer:
            for message in part:
                writer.append(message.value, message.key, message.type, message.timestamp)
        if first + len(part) < len(messages):
            write_file(disk, JOURNAL / "jnl" / segment_name(first + len(part)), b"")
    accident = some_accident(chance, whole)
    write_file(disk, JOURNAL / "jnl" / segment_name(accident.first), accident.data)
    before, found = files_of(disk), readable(disk)
    checksums = chance.random() < 0.7
    refused = ""
    try:
        Writer(JOURNAL, checksums=checksums, disk=disk).close()
    except DamagedJournal as damage:
        refused = damage.reason
    lost: set[int] = set()
    if refused:
        assert "see logwright repair" in refused
        assert files_of(disk) == before
        assert not Reader(JOURNAL, disk=disk).verify().sound
        planned = plan(JOURNAL, disk=disk, accept_checksums=True)
        apply(JOURNAL, planned, disk=disk)
        lost, _ = offsets_named(planned, len(messages))
    with Writer(JOURNAL, checksums=checksums, disk=disk) as writer:
        new = [writer.append(b"new %d" % number) for number in range(3)]
    left = readable(disk)
    taken = {message.offset for message in found} - {message.offset for message in left}
    assert taken <= lost, "none is taken away without an account"
    assert [message.value for message in left if message.offset in new] == [b"new 0", b"new 1", b"new 2"]
    return bool(refused)


def test_messages_that_a_writer_appends_after_any_damage_can_be_read() -> None:
    refused = 0
    for seed in range(CHECKED_CASES):
        try:
            refused += check_opening(seed)
        except Exception as error:
            error.add_note(f"check_opening({seed})")
            raise
    COUNTS.add("damages repaired", refused, "sej")
    assert CHECKED_CASES // 4 < refused < CHECKED_CASES


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


def wrong_files_cases(seeds: Iterable[int]) -> int:
    """How many of some accidents to whole files are found to be handled wrongly."""
    wrong = 0
    for seed in seeds:
        try:
            FilesCase(seed).check()
        except AssertionError:
            wrong += 1
    return wrong


def test_end_that_is_not_compared_with_the_index_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ending, scanner):
        monkeypatch.setattr(module, "indexed_end", lambda *_: 0)
    monkeypatch.setattr(missing, "read_end", lambda *_: None)
    assert wrong_files_cases((269, 433, 463)) == 3  # only the index of the cut segment is there


def test_cut_segment_before_a_missing_one_that_is_taken_for_the_last_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (check_module, repair):
        monkeypatch.setattr(module, "find_following", lambda *_: None)
    assert wrong_files_cases(range(60)) > 2
