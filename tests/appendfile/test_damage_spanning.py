"""Damage to journals whose segments span several files: a repair changes no file that is intact.

The model knows which files an accident has changed, and every record that was written. It knows nothing of how damage
is found.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from logwright.appendfile import Data, Reader, Writer
from logwright.appendfile.bytes import codec
from logwright.appendfile.bytes.layout import CHECKPOINT, CHECKPOINT_BYTES, HEADER_BYTES
from logwright.appendfile.files import boundaries
from logwright.appendfile.files import repair as repairs
from tests.appendfile.test_damage import HOME, Written, check_complete
from tests.support.counts import COUNTS
from tests.support.damage import Files, accident, files_accident, flip_bit, overwrite
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_tree

ROUNDS = 16
DAMAGES = 60


@dataclass
class Accident:
    """The files of a journal after an accident; `in_ids` is the file of which only the first ids have changed."""

    label: str
    files: dict[str, bytes]
    in_ids: str = ""


def spanning(chance: random.Random) -> Written:
    """Segments of many files each, in one to three generations; the first files may be gone."""
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    numbers = iter(range(10**6))
    rare = chance.choice((8, 16, 40))
    for _ in range(chance.choice((1, 1, 2, 3))):
        recovering, file_bytes = chance.randrange(3) == 0, chance.choice((70, 100, 150))
        with Writer(HOME, disk=disk, recovering=recovering, file_bytes=file_bytes) as writer:
            for _ in range(chance.choice((4, 12, 30))):
                write_one(writer, chance, numbers, rare)
    return Written.of(disk)


def write_one(writer: Writer, chance: random.Random, numbers: Iterator[int], rare: int) -> None:
    choice = chance.randrange(rare)
    if choice == 0:
        writer.register_checkpoint()
    elif choice == 1 and writer.checked < writer.current:
        writer.check_checkpoint()
    else:
        writer.append(b"%d:" % next(numbers) + bytes(chance.choices(b"abcdefgh", k=chance.randrange(60))))


def damaged(written: Written, chance: random.Random) -> Accident:
    """One accident, or two: to first ids, to bytes, to whole files."""
    name = chance.choice([name for name, data in written.files.items() if data])
    content = written.files[name]
    match chance.randrange(6):
        case 0 | 1:
            bit = 8 * HEADER_BYTES + chance.randrange(8 * (CHECKPOINT_BYTES - HEADER_BYTES))
            return Accident(f"flip bit {bit} of {name}", {**written.files, name: flip_bit(content, bit)}, name)
        case 2:
            at = HEADER_BYTES + chance.choice((0, 0, 1, 7, 8, 8, 9, 15))
            wrong = overwrite(content, at, chance.choice((b"\0", b"\x01", b"\x02", b"\xff")))
            return Accident(f"overwrite {at} of {name}", {**written.files, name: wrong}, name)
        case 3:
            other = accident(content, chance)
            return Accident(f"{other.label} in {name}", {**written.files, name: other.data})
        case 4:
            whole: Files = files_accident(written.files, written.boundaries, chance)
            return Accident(*whole)
        case _:
            whole = files_accident(written.files, written.boundaries, chance)
            left = [one for one, data in whole.files.items() if data]
            if not left:
                return Accident(*whole)
            name = chance.choice(left)
            other = accident(whole.files[name], chance)
            return Accident(f"{whole.label}, {other.label} in {name}", {**whole.files, name: other.data})


def numbers_of(data: bytes) -> set[bytes]:
    """The data of the whole records at the beginning of a file."""
    stop, count, _, _ = codec.walk(data, 0, len(data))
    return {record.data for record in codec.records(data, 0, stop, count) if isinstance(record, Data)}


def check(written: Written, harm: Accident) -> bool:
    """Repair a journal after an accident, and compare it with what was written; whether there was damage."""
    disk = written.lay_out(harm.files)
    if not harm.files and not any("recovery/" in name for name in written.directories):
        return False
    report = Reader(HOME, disk=disk).verify()
    before = read_tree(disk, HOME)
    plan = repairs.plan(HOME, disk=disk)
    if plan.left:
        assert not any(map(has_ids, harm.files.values())), "some ids are left to replace missing files with"
        return True
    assert plan.empty == report.sound
    repairs.apply(HOME, plan, disk=disk)
    reader = Reader(HOME, disk=disk)
    assert reader.verify().problems == []
    assert repairs.plan(HOME, disk=disk).empty, "a second repair changes something, or adds to the account"
    after = read_tree(disk, HOME)
    is_exchanged = any("exchanged" in loss.what for loss in plan.losses)
    for name, data in harm.files.items():
        if data == written.files[name] and not is_exchanged:
            assert after[name] == data, f"the intact file {name} was changed"
    check_records(written, harm, reader, [problem.kind for problem in report.problems])
    if harm.in_ids:
        check_ids(written.files[harm.in_ids], before[harm.in_ids] or b"", after[harm.in_ids] or b"")
    if not plan.empty:
        repairs.undo(HOME, disk=disk)
        undone = read_tree(disk, HOME)
        assert {name: undone.get(name) for name in harm.files} == {name: before[name] for name in harm.files}
        assert Reader(HOME, disk=disk).losses() == []
    return not plan.empty


def has_ids(data: bytes) -> bool:
    """Whether a file begins with a checkpoint record."""
    return codec.walk(data, 0, len(data), most=1)[1] == 1 and data[0] == CHECKPOINT


def check_ids(written: bytes, damaged: bytes, repaired: bytes) -> None:
    """The first ids of a file are those that were written, or the wrong ones, or the next ones if these say as much."""
    head = repaired[:CHECKPOINT_BYTES]
    is_next = repaired == written[CHECKPOINT_BYTES:] and written[CHECKPOINT_BYTES] == CHECKPOINT
    assert head in (written[:CHECKPOINT_BYTES], damaged[:CHECKPOINT_BYTES]) or is_next, "other ids were restored"


def check_records(written: Written, harm: Accident, reader: Reader, kinds: list[str]) -> None:
    """What is there was written, in this order, and what is not there is in the account."""
    place: dict[bytes, int] = {}
    for data in written.files.values():
        stop, count, _, _ = codec.walk(data, 0, len(data))
        for record in codec.records(data, 0, stop, count):
            if isinstance(record, Data):
                place[record.data] = len(place)
    found = [item for item in reader.scan() if isinstance(item.record, Data)]
    rows = [place[item.record.data] for item in found if item.record.data in place]
    assert rows == sorted(set(rows)) or "swap" in harm.label, "out of order, or there twice"
    for item in found:
        is_touched = harm.files.get(item.file) != written.files.get(item.file)
        assert item.record.data in place or is_touched, f"{item.file} @ {item.span.start} was never written"
    losses = [loss for loss in reader.losses() if loss.kind == "lost"]
    gone = len(place) - len(rows)
    if harm.in_ids:
        assert gone == 0 or losses, "damage of ids loses no data"
    is_traced = not any(word in harm.label for word in ("delete", "cut", "copy", "remove"))
    if gone and is_traced and "torn_tail" not in kinds and kinds:
        assert losses or gone <= len(found) - len(rows)
    still = set().union(*map(numbers_of, harm.files.values())) & set(place)
    is_kept = still <= {item.record.data for item in found}
    assert losses or is_kept or "torn_tail" in kinds, "a whole record was removed without a loss"
    if losses and harm.in_ids:
        check_complete(written, reader, Files(harm.label, harm.files))


def seeded(seed: int, number: int) -> tuple[Written, Accident] | None:
    chance = random.Random(f"appendfile spanning/{seed}/{number}")
    written = spanning(chance)
    return (written, damaged(written, chance)) if any(written.files.values()) else None


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_after_damage_to_spanning_segments_intact_files_are_not_changed(seed: int) -> None:
    repaired = 0
    for number in range(DAMAGES):
        case = seeded(seed, number)
        if case is None:
            continue
        try:
            repaired += check(*case)
        except BaseException as error:
            error.add_note(f"seeded({seed}, {number}): {case[1].label}")
            raise
    COUNTS.add("damages repaired", repaired, "appendfile")
    assert repaired > DAMAGES // 2


def test_repair_that_believes_the_file_before_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundaries.Boundaries, "_next_ids", lambda self, row: self.files[row].following)
    failed = 0
    for number in range(DAMAGES):
        case = seeded(0, number)
        try:
            failed += case is not None and check(*case) is None
        except AssertionError:
            failed += 1
    assert failed > 0
