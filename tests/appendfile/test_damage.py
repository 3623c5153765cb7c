"""Damage as an operator makes it, repaired: what is there was written, and what is not there is in the account.

The model knows every record that was written, and of every byte of a damaged file where it was written. It knows
nothing of how damage is found. A record that holds a damaged byte may have come out different, as the format has no
checksums; so may those after it, up to the next range that the repair has removed. No other record may.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest

from logwright.appendfile import Checkpoint, Data, Reader, Segment, Writer
from logwright.appendfile.bytes import codec, kernel
from logwright.appendfile.bytes.layout import CHECKPOINT, HEADER, HEADER_BYTES, LOCK_NAME, NOTE_NAME
from logwright.appendfile.bytes.records import Record
from logwright.appendfile.files import files
from logwright.appendfile.files import repair as repairs
from logwright.appendfile.files.files import list_files
from logwright.appendfile.model.replay import replay
from logwright.core.bytes.outcome import Span
from logwright.core.repair.losses import Loss
from logwright.core.repair.plan import Create, Cut, Patch, Plan
from logwright.errors import DamagedJournal, Gap
from tests.support.counts import COUNTS
from tests.support.damage import Files, Traced, accident, drop, files_accident, insert
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_tree, write_file

HOME = Path("/journal")
ROUNDS = 20
DAMAGES = 145
PAYLOADS: dict[str, Callable[[random.Random], bytes]] = {
    "text": lambda chance: b"an order of %d pieces" % chance.randrange(10**6),
    "noise": lambda chance: chance.randbytes(1 + chance.randrange(60)),
    "numbers": lambda chance: b"".join(
        chance.randrange(5000).to_bytes(4, "little") for _ in range(1 + chance.randrange(9))
    ),
    "zeros": lambda chance: bytes(chance.randrange(40)) + b"\x01",
}


@dataclass
class Journal:
    """A journal of one generation: its files, and the position of each record."""

    files: list[list[Record]]
    starts: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.starts = [[0] for _ in self.files]
        for starts, records in zip(self.starts, self.files, strict=True):
            for record in records:
                starts.append(starts[-1] + len(codec.encode(record)))

    @classmethod
    def random(cls, chance: random.Random) -> Journal:
        """Segments of a few records each, some of them checked, in one to three files."""
        payload = PAYLOADS[chance.choice(sorted(PAYLOADS))]
        checked = current = 0
        has_data = False
        files: list[list[Record]] = []
        for _ in range(chance.randrange(1, 4)):
            records: list[Record] = [Checkpoint(checked, current)]
            for _ in range(chance.choice((3, 10, 30))):
                choice = chance.randrange(8)
                if choice == 0 and has_data:
                    current, has_data = current + 1, False
                    records.append(Checkpoint(checked, current))
                elif choice == 1 and checked < current:
                    checked += 1
                    records.append(Checkpoint(checked, current))
                else:
                    has_data = True
                    records.append(Data(payload(chance)))
            files.append(records)
        return cls(files)

    def content(self, number: int) -> bytes:
        return b"".join(map(codec.encode, self.files[number]))

    def lay_out(self) -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.make_directory(HOME)
        for number in range(len(self.files)):
            write_file(disk, HOME / f"{number}.journal", self.content(number))
        return disk

    def segments(self) -> dict[int, Segment]:
        return {segment.id: segment for segment in replay([record for file in self.files for record in file])}


# --- the naive model --------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What has become of the records of the damaged file."""

    kept: set[int] = field(default_factory=set)
    """The written records that are there, by their number in the file."""
    touched: set[int] = field(default_factory=set)
    """Those that are there with other bytes."""
    is_astray: bool = False
    """Whether a damaged size has led to another position, up to the next removed range."""
    went_astray: bool = False
    """Whether a damaged size or a damaged checkpoint has been read, and nothing showed that it is wrong."""


def pieces_of(plan: Plan, file: str, size: int) -> tuple[int, list[Span]]:
    """What a plan leaves of a file: how many bytes it writes before that, and the ranges."""
    for step in plan.steps:
        if isinstance(step, Create) and step.file == f"{file}.repair":
            head = [data for _, data in step.inserts] or [step.data]
            return len(b"".join(head)), [span for span in step.spans if isinstance(span, Span)]
        if isinstance(step, Cut) and step.file == file:
            return 0, [Span(0, step.start)]
    return 0, [Span(0, size)]


def compare(journal: Journal, number: int, damaged: Traced, plan: Plan, found: list[int]) -> Outcome:
    """Compare what was found, which begins at these places of the repaired file, with what was written."""
    head, pieces = pieces_of(plan, f"{number}.journal", len(damaged.data))
    starts = journal.starts[number]
    rows = {start: row for row, start in enumerate(starts[:-1])}
    outcome = Outcome()
    if head:
        assert Checkpoint(*restored_pair(plan)) == journal.files[number][0], "the first checkpoint is another one"
        outcome.kept.add(0)
    last = -1
    for begin, end, is_first in _in_damaged(pieces, [place - head for place in found if place >= head]):
        outcome.is_astray = outcome.is_astray and not is_first
        origins = damaged.origins[begin:end]
        first = origins[0]
        known = [origin for origin in origins if origin is not None]
        is_whole = len(known) == len(origins) and all(other == one + 1 for one, other in pairwise(known))
        row = rows.get(-1 if first is None else first, -1)
        fits = row >= 0 and starts[row + 1] - starts[row] == end - begin
        if is_whole and fits:
            assert row > last, "a record is there twice, or out of order"
            outcome.kept.add(row)
            outcome.is_astray = False
            last = row
        elif is_whole:
            assert outcome.is_astray, f"the record at {begin} was never written, and its bytes are not damaged"
        else:
            outcome.is_astray = True
            in_place = fits and all(origin in (None, starts[row] + at) for at, origin in enumerate(origins))
            outcome.went_astray |= not in_place or damaged.data[begin] == CHECKPOINT
            outcome.touched.update(_rows_of(starts, origins))
    return outcome


def restored_pair(plan: Plan) -> tuple[int, int]:
    """The ids of the first checkpoint that a plan writes again."""
    (data,) = [step.data or step.inserts[0][1] for step in plan.steps if isinstance(step, Create)]
    (record,) = codec.records(data, 0, len(data), 1)
    assert isinstance(record, Checkpoint)
    return record.checked, record.current


def _in_damaged(pieces: list[Span], found: list[int]) -> Iterator[tuple[int, int, bool]]:
    """Where records of a repaired file were in the damaged one, and whether a range was removed right before."""
    base = 0
    for piece in pieces:
        is_first = piece.start > 0
        for begin, end in pairwise(found):
            if base <= begin < base + piece.size:
                yield piece.start + begin - base, piece.start + end - base, is_first
                is_first = False
        base += piece.size


def _rows_of(starts: list[int], origins: list[int | None]) -> Iterator[int]:
    """The written records that bytes come from."""
    known = [origin for origin in origins if origin is not None]
    for row, (start, end) in enumerate(pairwise(starts)):
        if any(start <= origin < end for origin in known):
            yield row


# --- one damage -------------------------------------------------------------------------------------------------------


def check(journal: Journal, number: int, damaged: Traced) -> bool:
    """Damage one file, repair the journal, compare it with what was written, and take the repair back.

    Whether there was something to repair.
    """
    name = f"{number}.journal"
    disk = journal.lay_out()
    write_file(disk, HOME / name, damaged.data)
    before = {file: data for file, data in read_tree(disk, HOME).items() if file.endswith(".journal")}
    plan = repairs.plan(HOME, disk=disk)
    assert plan.left == ()
    repair = repairs.apply(HOME, plan, disk=disk)
    reader = Reader(HOME, disk=disk)
    report = reader.verify()
    assert report.sound
    assert list(report.losses) == list(reader.losses())
    assert [loss.as_json() for loss in reader.losses()] == [loss.as_json() for loss in plan.losses]
    assert repairs.plan(HOME, disk=disk).empty
    found = [item.span for item in reader.scan() if item.file == name]
    places = [span.start for span in found] + [span.end for span in found[-1:]]
    outcome = compare(journal, number, damaged, plan, places)
    check_account(journal, number, plan, outcome)
    if plan.losses and not outcome.went_astray:
        check_segments(journal, number, reader, outcome)
    if plan.losses and None not in damaged.origins:
        assert Data(b"") not in list(reader), "no empty record was written"
    if repair is None:
        return False
    with Writer(HOME, disk=disk):
        pass
    assert len(reader.losses()) == len(plan.losses)
    repairs.undo(HOME, disk=disk)
    after = {file: data for file, data in read_tree(disk, HOME).items() if file.endswith(".journal")}
    assert after == before
    assert reader.losses() == []
    return True


def check_account(journal: Journal, number: int, plan: Plan, outcome: Outcome) -> None:
    """The records that are gone are as many as the account says, unless nothing shows that a size has changed."""
    gone = len(journal.files[number]) - len(outcome.kept)
    assert sum(loss.at_least for loss in plan.losses) <= gone
    most = [loss.at_most for loss in plan.losses if loss.kind == "lost"]
    if plan.losses and not outcome.went_astray:
        assert None in most or gone - len(outcome.touched) <= sum(filter(None, most))


def check_segments(journal: Journal, number: int, reader: Reader, outcome: Outcome) -> None:
    """A segment that is complete has all of its records, unless nothing shows that their sizes have changed."""
    records = journal.files[number]
    changed = {record.data for row in outcome.touched if isinstance(record := records[row], Data)}
    for segment in reader.segments(mode="failfast"):
        if segment.complete:
            written = journal.segments()[segment.id].records
            assert len(segment.records) == len(written), f"segment {segment.id} is complete and has lost records"
            differing = [one for one, other in zip(written, segment.records, strict=True) if one != other]
            assert set(differing) <= changed


def near_checkpoint(journal: Journal, file: int, chance: random.Random) -> Traced:
    """A few bytes that were deleted or inserted close to the beginning of a checkpoint record, or within one."""
    starts, records = journal.starts[file], journal.files[file]
    places = [start for start, record in zip(starts, records, strict=False) if isinstance(record, Checkpoint)]
    content = journal.content(file)
    at = min(len(content), max(0, chance.choice(places) + chance.randrange(-12, 20)))
    size = chance.randrange(1, 9)
    origins: list[int | None] = list(range(len(content)))
    if chance.randrange(2):
        return Traced(f"delete {size} at {at}", drop(content, at, at + size), origins[:at] + origins[at + size :])
    other = chance.choice((bytes(size), chance.randbytes(size)))
    return Traced(
        f"insert {other.hex()} at {at}", insert(content, at, other), origins[:at] + [None] * size + origins[at:]
    )


def seeded(seed: int, number: int) -> tuple[Journal, int, Traced]:
    chance = random.Random(f"appendfile/{seed}/{number}")
    journal = Journal.random(chance)
    file = chance.randrange(len(journal.files))
    if number % 4 == 0:
        return journal, file, near_checkpoint(journal, file, chance)
    return journal, file, accident(journal.content(file), chance)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_after_repair_records_are_genuine_and_losses_accounted_for(seed: int) -> None:
    repaired = 0
    for number in range(DAMAGES):
        journal, file, damaged = seeded(seed, number)
        try:
            repaired += check(journal, file, damaged)
        except BaseException as error:
            error.add_note(f"seeded({seed}, {number}): {damaged.label} in {file}.journal")
            raise
    COUNTS.add("damages repaired", repaired, "appendfile")
    assert repaired > 2 * DAMAGES // 3


# --- accidents to whole files and whole records -----------------------------------------------------------------------


@dataclass
class Written:
    """What writers have left: the files in order, and each data record, by its number, with its segment."""

    files: dict[str, bytes]
    segments: dict[int, tuple[str, int]]
    """The generation and the segment of each number."""
    checked: dict[str, int]
    """The oldest segment of each generation that is not checked."""
    directories: list[str]
    note: bytes = b""
    """The note of the writers, which journals of other programs do not have."""

    @classmethod
    def random(cls, chance: random.Random) -> Written:
        """Some openings: a few continue, others begin a recovery and leave it, or finish it."""
        disk = SimulatedDisk()
        disk.make_directory(HOME)
        numbers = iter(range(10**6))
        for _ in range(chance.choice((1, 1, 2, 3, 5))):
            recovering = chance.randrange(2) == 1
            with Writer(HOME, disk=disk, recovering=recovering, file_bytes=chance.choice((90, 150, 300))) as writer:
                if recovering and chance.randrange(4) == 0:
                    recovery = writer.recovery()
                    list(recovery)
                for _ in range(chance.choice((0, 3, 15, 15))):
                    write_one(writer, chance, numbers)
        return cls.of(disk)

    @classmethod
    def of(cls, disk: SimulatedDisk) -> Written:
        tree = read_tree(disk, HOME)
        names = [file.name for file in list_files(disk, HOME).files]
        found: dict[str, bytes] = {name: tree[name] or b"" for name in names}
        directories = sorted(name for name, data in tree.items() if data is None)
        written = cls(found, {}, {}, directories, tree.get(NOTE_NAME) or b"")
        for name, data in found.items():
            generation = generation_of(name)
            segment = 0
            for record in codec.records(data, 0, len(data), codec.walk(data, 0, len(data))[1]):
                if isinstance(record, Checkpoint):
                    segment, written.checked[generation] = record.current, record.checked
                else:
                    written.segments[number_of(record.data)] = generation, segment
        return written

    def lay_out(self, files: Mapping[str, bytes], *, has_note: bool = False) -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.make_directory(HOME)
        for name in self.directories:
            disk.make_directory(HOME / name)
        for name, data in files.items():
            write_file(disk, HOME / name, data)
        if not disk.exists(HOME / LOCK_NAME):
            write_file(disk, HOME / LOCK_NAME, b"")
        if has_note:
            write_file(disk, HOME / NOTE_NAME, self.note)
        return disk

    def boundaries(self, name: str, data: bytes) -> list[int]:
        return list(codec.spans(data, 0, len(data), codec.walk(data, 0, len(data))[1])) if data else [0]


def write_one(writer: Writer, chance: random.Random, numbers: Iterator[int]) -> None:
    match chance.randrange(10):
        case 0 | 1:
            writer.register_checkpoint()
        case 2 if writer.checked < writer.current:
            writer.check_checkpoint()
        case 3 if chance.randrange(10) == 0:
            writer.begin_generation()
        case _:
            writer.append(b"%d:" % next(numbers) + chance.randbytes(chance.randrange(30)))


def generation_of(name: str) -> str:
    return name.rpartition("/")[0]


def number_of(data: bytes) -> int:
    return int(data.partition(b":")[0])


def numbers_in(reader: Reader) -> list[int]:
    found = reader.records(mode="dropmalformed")
    return [number_of(record.data) for record in found if isinstance(record, Data)]


def contradiction(files: Mapping[str, bytes], directories: list[str]) -> str:
    """Why these files cannot be what writers have left, by their ids alone; empty if they can.

    That is all that the format shows of whole files and records. Losses that leave no contradiction are not detected:
    data, first files, and all at the end of the journal.
    """
    waiting = sorted((int(name.rpartition("/")[2]), name) for name in directories if "recovery/" in name)
    before: tuple[int, int] | None = None
    """The last file id and segment of the generation before."""
    for boundary, generation in [*waiting, (0, "")]:
        ids = {int(Path(name).stem): name for name in files if generation_of(name) == generation}
        if generation and (boundary - 1) not in ids:
            return f"{generation} has no last file"
        if ids and sorted(ids) != list(range(min(ids), max(ids) + 1)):
            return f"a file of {generation or 'the journal'} is missing"
        last: tuple[int, int] | None = None
        for file_id in sorted(ids):
            data = files[ids[file_id]]
            is_last, is_newest = file_id == max(ids), file_id == max(ids) and not generation
            stop, count, _, _ = codec.walk(data, 0, len(data))
            if stop < len(data) and not is_newest:
                return f"{ids[file_id]} ends within a record"
            records = codec.records(data, 0, stop, count)
            if not records:
                if not is_last:
                    return f"{ids[file_id]} is empty"
                continue
            for row, record in enumerate(records):
                if isinstance(record, Data):
                    if row == 0:
                        return f"{ids[file_id]} begins with data"
                    continue
                pair = (record.checked, record.current)
                if row == 0 and last is None:
                    begins = before is not None and before[0] + 1 == file_id
                    expected = {(before[1], before[1])} if before is not None and begins else {pair}
                    if file_id == 0:
                        expected = {(0, 0)}
                else:
                    assert last is not None
                    expected = {(last[0] + 1, last[1]), (last[0], last[1] + 1), *([last] if row < 2 else [])}
                if pair not in expected:
                    return f"{ids[file_id]}: {pair} is not one of {expected}"
                last = pair
        if generation and last is None and ids and 0 in ids:
            last = (0, 0)
        if generation and last is None and before is not None and ids and min(ids) == before[0] + 1:
            last = (before[1], before[1])  # its only file is empty
        if generation:
            before = None if last is None else (boundary - 1, last[1])
    return ""


def check_files(written: Written, damaged: Files) -> bool:
    """Verify, open and repair a journal after an accident; whether it was repaired."""
    disk = written.lay_out(damaged.files)
    wrong = contradiction(damaged.files, written.directories)
    there = surviving(damaged.files)
    report = Reader(HOME, disk=disk).verify()
    problems = [problem.kind for problem in report.problems if problem.kind != "torn_tail"]
    assert bool(problems) == bool(wrong), f"{wrong or 'no contradiction'}: {report.problems}"
    check_recovery(written, damaged, bool(wrong))
    if not damaged.files and not wrong:
        return False  # a journal that nothing was written to yet looks the same
    plan = repairs.plan(HOME, disk=disk)
    assert plan.left == ()
    assert plan.empty == report.sound
    if plan.empty:
        return False
    before = read_tree(disk, HOME)
    repairs.apply(HOME, plan, disk=disk)
    reader = Reader(HOME, disk=disk)
    assert reader.verify().problems == []
    assert repairs.plan(HOME, disk=disk).empty, "a second repair changes something, or adds to the account"
    found = numbers_in(reader)
    is_hint = damaged.label.startswith("swap") and is_explained_by_a_hint(written, damaged.files)
    assert found == sorted(set(found)) or is_hint, "out of order"
    gone = set(written.segments) - set(found)
    losses = [loss for loss in plan.losses if loss.kind == "lost"]
    assert not set(there) - set(found) or losses, "a record that was there is gone, and not in the account"
    is_exchanged = any("exchanged" in loss.what for loss in plan.losses)
    assert losses or is_hint or is_exchanged or not wrong
    assert not is_exchanged or not (gone or losses)
    assert sum(loss.at_least for loss in losses) <= gone_records(written, reader)
    if losses and None not in (most := [loss.at_most for loss in losses]):
        assert len(set(there) - set(found)) <= sum(filter(None, most))
    if not is_hint:
        check_complete(written, reader, damaged)
    repairs.undo(HOME, disk=disk)
    after = read_tree(disk, HOME)
    assert {name: after.get(name) for name in damaged.files} == {name: before[name] for name in damaged.files}
    assert reader.losses() == []
    return True


def is_explained_by_a_hint(written: Written, files: Mapping[str, bytes]) -> bool:
    """Whether other first ids of one file would explain as much as two exchanged files: nothing proves which it was."""
    segments = range(2 + max(segment for _, segment in written.segments.values()))
    hints = [codec.encode(Checkpoint(one, other)) for one in segments for other in segments if one <= other]
    return any(
        not contradiction({**files, name: hint + data[len(hint) :]}, written.directories)
        for name, data in files.items()
        for hint in hints
    )


def surviving(files: Mapping[str, bytes]) -> list[int]:
    """The numbers that are still in the files."""
    found = []
    for data in files.values():
        stop, count, _, _ = codec.walk(data, 0, len(data))
        records = codec.records(data, 0, stop, count)
        found += [number_of(record.data) for record in records if isinstance(record, Data)]
    return found


def gone_records(written: Written, reader: Reader) -> int:
    """How many records are not there any more; a repair may have added first checkpoints."""
    count = sum(len(written.boundaries(name, data)) - 1 for name, data in written.files.items())
    return (
        count
        - reader.verify().records
        + sum("restored" in (loss.kind, loss.reason) for loss in reader.losses())
        + (sum("missing" in loss.reason for loss in reader.losses()))
    )


def check_recovery(written: Written, damaged: Files, is_wrong: bool) -> None:
    """Opened as it is: refused, or everything that is there and was not checked is returned."""
    disk = written.lay_out(damaged.files)
    wanted = [
        number
        for number in surviving(damaged.files)
        if (place := written.segments[number]) and place[1] >= written.checked[place[0]]
    ]
    found: list[int] = []
    try:
        with Writer(HOME, disk=disk, recovering=True) as writer:
            recovery = writer.recovery()
            for segment in recovery:
                found += map(number_of, segment.records)
    except (DamagedJournal, Gap):
        assert is_wrong
        return
    assert not is_wrong, "files that contradict each other were recovered, and removed"
    assert not set(wanted) - set(found)
    assert found == sorted(set(found)) or damaged.label.startswith("swap")


def check_complete(written: Written, reader: Reader, damaged: Files) -> None:
    """A segment that is complete has all of its records that the accident has left a trace of."""
    whole: dict[tuple[str, int], list[int]] = {}
    for number, place in written.segments.items():
        whole.setdefault(place, []).append(number)
    for segment in reader.segments():
        home = "" if segment.generation is None else f".logwright/recovery/{segment.generation}"
        if segment.complete and not segment.checked and not is_untraced(damaged.label):
            assert [*map(number_of, segment.records)] == whole[home, segment.id], f"segment {segment.name}"


def check_noted(written: Written, damaged: Files) -> bool:
    """Verify and repair a journal that has its note; whether it was repaired.

    Whatever is missing is in the account, unless it was checked and in the first files; so is a file of another size.
    """
    disk = written.lay_out(damaged.files, has_note=True)
    assert Reader(HOME, disk=written.lay_out(written.files, has_note=True)).verify().problems == []
    first = {generation_of(name): name for name in reversed(damaged.files)}
    traced = [name for name in written.files if not may_be_checked(name, first.get(generation_of(name), ""))]
    changed = [name for name in traced if len(damaged.files.get(name, b"")) != len(written.files[name])]
    report = Reader(HOME, disk=disk).verify()
    assert report.problems or not changed, "nothing shows that a file is missing or has another size"
    left = set(surviving(damaged.files))
    needed = [number for number, place in written.segments.items() if place[1] >= written.checked[place[0]]]
    assert report.problems or left.issuperset(needed), "nothing shows that records of unchecked segments are missing"
    if not damaged.files and not any(written.files.values()):
        return False
    plan = repairs.plan(HOME, disk=disk)
    assert plan.left == ()
    assert plan.empty == report.sound
    if plan.empty:
        return False
    before = read_tree(disk, HOME)
    repairs.apply(HOME, plan, disk=disk)
    reader = Reader(HOME, disk=disk)
    assert reader.verify().problems == []
    assert repairs.plan(HOME, disk=disk).empty, "a second repair changes something, or adds to the account"
    found = numbers_in(reader)
    there = [number for number in surviving(damaged.files) if number in written.segments]
    losses = [loss for loss in plan.losses if loss.kind == "lost"]
    gone = set(surviving({name: written.files[name] for name in traced})) - set(found)
    assert losses or not gone, "records are missing, and not in the account"
    assert not set(there) - set(found) or losses
    whole: dict[tuple[str, int], list[int]] = {}
    for number, place in written.segments.items():
        whole.setdefault(place, []).append(number)
    for segment in reader.segments():
        home = "" if segment.generation is None else f".logwright/recovery/{segment.generation}"
        if segment.complete and not segment.checked:
            assert [*map(number_of, segment.records)] == whole[home, segment.id], f"segment {segment.name}"
    with Writer(HOME, disk=disk):
        pass
    assert Reader(HOME, disk=disk).verify().problems == []
    repairs.undo(HOME, disk=disk)
    after = read_tree(disk, HOME)
    assert {name: after.get(name) for name in damaged.files} == {name: before[name] for name in damaged.files}
    assert after.get(NOTE_NAME) == before[NOTE_NAME]
    return True


def may_be_checked(name: str, first: str) -> bool:
    """Whether a file precedes the first one that is left of its generation: then a check may have removed it."""
    return bool(first) and int(Path(name).stem) < int(Path(first).stem)


def is_untraced(label: str) -> bool:
    """Whether an accident takes away data records alone or first files, which no id shows.

    Without a note the bytes that are left are those of a journal in which these records were never written. With one
    only missing first files that were checked are like that: see `check_noted`.
    """
    return label.startswith(("delete", "cut", "copy", "remove"))


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_after_accidents_to_files_and_whole_records_losses_are_accounted_for(seed: int) -> None:
    repaired = 0
    for number in range(DAMAGES // 5):
        chance = random.Random(f"appendfile files/{seed}/{number}")
        written = Written.random(chance)
        if not written.files:
            continue
        damaged = files_accident(written.files, written.boundaries, chance)
        try:
            repaired += check_files(written, damaged)
        except BaseException as error:
            error.add_note(f"{seed}/{number}: {damaged.label}")
            raise
    COUNTS.add("damages repaired", repaired, "appendfile")
    assert repaired > DAMAGES // 20


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_accidents_to_the_files_of_our_writers_are_all_detected_and_accounted_for(seed: int) -> None:
    repaired = 0
    for number in range(DAMAGES // 5):
        chance = random.Random(f"appendfile note/{seed}/{number}")
        written = Written.random(chance)
        if not written.files:
            continue
        damaged = files_accident(written.files, written.boundaries, chance)
        try:
            repaired += check_noted(written, damaged)
        except BaseException as error:
            error.add_note(f"{seed}/{number}: {damaged.label}")
            raise
    COUNTS.add("damages repaired", repaired, "appendfile")
    assert repaired > DAMAGES // 12


# --- the harness notices a repair that is wrong -----------------------------------------------------------------------


def failures(damages: int = 60) -> int:
    """How many of some damages come out as they must not."""
    found = 0
    for number in range(damages):
        try:
            check(*seeded(0, number))
        except AssertionError:
            found += 1
    return found


def test_repair_that_continues_within_a_record_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def to_any_record(data: bytes, start: int, end: int, *segments: int) -> tuple[int, int]:
        for place in range(start, end - HEADER_BYTES):
            stop, count, ending, _ = codec.walk(data, place, end, stop_at_empty=True)
            if count and (stop == end or ending == codec.INCOMPLETE):
                return place, count
        return end, 0

    assert failures(100) == 0
    monkeypatch.setattr(kernel, "find_chain", to_any_record)
    assert failures(100) > 0


def test_repair_that_keeps_a_segment_complete_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "lost_range", lambda loss: None)
    assert failures() > 0


def test_overstated_account_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        repairs, "Loss", lambda *values, **fields: replace(Loss(*values, **fields), at_least=9, at_most=9)
    )
    assert failures() > 0


def test_guessed_size_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record before the damage gets a size that leads to the next whole record: an undamaged header changes."""
    real = repairs.REPAIRS.plan

    def guess(path: Path, *, disk: SimulatedDisk) -> Plan:
        found = real(path, disk=disk)
        for loss in found.losses:
            at = loss.fields.get("suspect")
            if at is not None and len(found.losses) == 1:
                data = read_tree(disk, path)[loss.file]
                assert data is not None
                size = loss.position + loss.bytes - at - HEADER_BYTES
                patch = Patch(loss.file, at, data[at : at + HEADER_BYTES], HEADER.pack(size << 8), "a guess")
                return replace(found, steps=(patch,))
        return found

    monkeypatch.setattr(repairs, "plan", guess)
    assert failures() > 0
