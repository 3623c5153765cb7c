"""Random damage to the files of a store, as an operator makes it, and repair: what is there was written, and what is
not there is in the account.

The active journal has no checksum. An entry that was changed into another valid one cannot be detected, nor can bytes
that are missing between entries that still follow each other. Such damage is counted apart; it never happens to an
archive. Bytes at the end of the journal cannot be distinguished from a torn tail, which is in no account.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from logwright.core.bytes.outcome import Malformed
from logwright.core.repair.losses import Loss
from logwright.core.repair.plan import Create, Remove, Rename, Step
from logwright.errors import HistoryUnavailable
from logwright.versioned import Entry, Reader, VersionedKVStore, VersionedRecovery
from logwright.versioned.bytes import codec, kernel
from logwright.versioned.bytes.layout import ARCHIVE_LEVEL, HEADER_BYTES
from logwright.versioned.files import repair
from logwright.versioned.files.cursor import Chunk, Cursor
from logwright.versioned.files.files import active_name, archive_name
from logwright.versioned.model.replay import replay
from tests.support.counts import COUNTS
from tests.support.damage import cut, drop, flip_bit, insert, overwrite
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import read_tree, write_file
from tests.versioned.samples import Model
from tests.versioned.stores import HOME, Clock

PATH = HOME / "cars.jrn"
MOST_BYTES = 4096


class Accident(NamedTuple):
    """What an operator did, the range of the original bytes that it concerns, and what became of them."""

    what: str
    start: int
    end: int
    data: bytes


def truncated(data: bytes, start: int, size: int, dice: random.Random) -> Accident:
    return Accident("truncate", start, len(data), cut(data, max(start, len(data) - size)))


def flipped(data: bytes, start: int, size: int, dice: random.Random) -> Accident:
    return Accident("flip", start, start + 1, flip_bit(data, 8 * start + dice.randrange(8)))


def zeroed(data: bytes, start: int, size: int, dice: random.Random) -> Accident:
    return Accident("zero", start, start + size, overwrite(data, start, bytes(size)))


def overwritten(data: bytes, start: int, size: int, dice: random.Random) -> Accident:
    return Accident("overwrite", start, start + size, overwrite(data, start, dice.randbytes(size)))


def inserted(data: bytes, start: int, size: int, dice: random.Random) -> Accident:
    return Accident("insert", start, start, insert(data, start, dice.randbytes(size)))


def deleted(data: bytes, start: int, size: int, dice: random.Random) -> Accident:
    return Accident("delete", start, start + size, drop(data, start, start + size))


def appended(data: bytes, start: int, size: int, dice: random.Random) -> Accident:
    return Accident("append", len(data), len(data), data + dice.randbytes(size))


KINDS: list[Callable[[bytes, int, int, random.Random], Accident]] = [
    truncated, flipped, flipped, zeroed, overwritten, inserted, deleted, appended
]  # fmt: skip


def random_accident(data: bytes, dice: random.Random) -> Accident:
    start = dice.randrange(len(data))
    size = min(len(data) - start, dice.choice((1, 3, 8, 40, 200, MOST_BYTES)))
    return dice.choice(KINDS)(data, start, size, dice)


def random_model(dice: random.Random) -> Model:
    """A store with times that differ, and values that look like entries."""
    model = Model()
    for number in range(dice.randrange(8, 30)):
        inner = {"t": model.now + 1, "k": "inner", "o": number}
        value = dice.choice([number, number, None, f"value {number}", [inner, inner], "long " * 12])
        model.change(Entry(model.now + dice.choice((1, 1000, 10**6)), dice.choice("abcdef"), value))
        if dice.random() < 0.1:
            model.rotate()
    return model


def entries_in(data: bytes) -> dict[str, Entry]:
    """The whole entries of a journal by what they say."""
    header = codec.decode_header(data)
    assert isinstance(header, tuple)
    metadata = codec.decode_metadata(data, HEADER_BYTES, header[0].position)
    assert isinstance(metadata, tuple)
    start = metadata[1].end
    stop, count, _, _, _ = kernel.walk(data, start, header[0].position)
    assert stop == header[0].position
    return {repr(entry): entry for entry in kernel.entries(data, start, stop, count)}


def planned(loss: Loss) -> dict[str, Any]:
    """A loss as it is in a plan, apart from its end: only the account has that of a loss at the end of a journal."""
    return {**loss.as_json(), "fields": {**loss.fields, "to": None}}


@dataclass
class Trial:
    """One store, one file of it that is damaged, and what a repair makes of it."""

    seed: int

    def __post_init__(self) -> None:
        dice = random.Random(self.seed)
        self.model = random_model(dice)
        self.disk = SimulatedDisk()
        self.disk.make_directory(HOME)
        for timestamp, data in self.model.archives:
            write_file(self.disk, HOME / archive_name("cars", timestamp), zlib.compress(data, ARCHIVE_LEVEL))
        self.journal = self.model.journal(spare=dice.choice((0, 600)))
        write_file(self.disk, PATH, self.journal)
        self.whole = read_tree(self.disk, HOME)
        self.name = dice.choice(sorted(self.whole))
        self.is_active = self.name == active_name("cars")
        self.original = self.whole[self.name] or b""
        self.accident = random_accident(self.original, dice)
        self.is_undetected = self.is_repaired = False

    def run(self) -> None:
        self.disk.remove(HOME / self.name)
        write_file(self.disk, HOME / self.name, self.accident.data)
        damaged = self.files()
        problems = Reader(PATH, disk=self.disk).verify().problems
        is_torn = all(problem.kind == "torn_tail" for problem in problems)
        self.is_undetected = not problems or (is_torn and self.accident.what == "delete")
        plan = repair.plan(PATH, disk=self.disk)
        done = repair.apply(PATH, plan, disk=self.disk)
        self.is_repaired = done is not None
        losses = Reader(PATH, disk=self.disk).losses()
        assert [planned(loss) for loss in losses] == [planned(loss) for loss in plan.losses]
        if self.is_undetected:
            self.check_undetected()
        elif plan.left:
            assert plan.empty, "what cannot be repaired is left as it is"
        elif is_torn and not plan.losses:
            self.check_torn()
        else:
            assert Reader(PATH, disk=self.disk).verify().sound
            self.check_entries(losses)
            self.check_answers(losses)
            self.check_reopened(losses)
        if done is not None:
            repair.undo(PATH, disk=self.disk)
            assert Reader(PATH, disk=self.disk).losses() == []
        assert self.files() == damaged, "undo"

    def files(self) -> dict[str, bytes | None]:
        return {name: data for name, data in read_tree(self.disk, HOME).items() if not name.startswith(".logwright")}

    def check_undetected(self) -> None:
        assert self.is_active or zlib.decompress(self.accident.data) == zlib.decompress(self.original)

    def check_torn(self) -> None:
        """What is there is the beginning of what was there."""
        before, after = self.entries()
        self.is_undetected = list(after) != list(before)[: len(after)]
        assert self.is_active
        assert sum(name not in before for name in after) <= 1

    def check_entries(self, losses: list[Loss]) -> None:
        """What is there was written, in order; what is not there is in the account."""
        written = {repr(entry): entry for entry in self.model.changes}
        found = {repr(entry): entry for entry in Reader(PATH, disk=self.disk).entries() if isinstance(entry, Entry)}
        before, after = self.entries()
        changed = {name for name in [*found, *after] if name not in written and name not in before}
        assert len(changed) <= (2 if self.is_active else 0), f"{changed} were never written"
        self.is_undetected = bool(changed)
        if self.is_undetected:
            return
        assert list(found) == [name for name in written if name in found]
        ranges = [(loss.fields["from"], loss.fields["to"]) for loss in losses if loss.kind == "lost"]
        for name, entry in written.items():
            if name not in found:
                assert any(start <= entry.t <= stop for start, stop in ranges), f"{entry} is not in the account"
        self.check_counts(losses, before, after)

    def entries(self) -> tuple[dict[str, Entry], dict[str, Entry]]:
        """The entries of the file before the accident, and after the repair."""
        data = self.files().get(self.name)
        unpacked = bytes if self.is_active else zlib.decompress
        return entries_in(unpacked(self.original)), {} if data is None else entries_in(unpacked(data))

    def check_counts(self, losses: list[Loss], before: dict[str, Entry], after: dict[str, Entry]) -> None:
        """The number of entries that the file has lost is within the bounds of the account."""
        lost = sum(name not in after for name in before)
        least = sum(loss.at_least for loss in losses)
        most = [loss.at_most for loss in losses if loss.kind == "lost"]
        assert least <= lost, f"{lost} lost, and the account says at least {least}"
        assert None in most or lost <= sum(filter(None, most)), f"{lost} lost, and the account says at most {most}"

    def check_answers(self, losses: list[Loss]) -> None:
        """The state at every time is refused, or as it was."""
        if self.is_undetected:
            return
        recovery = VersionedRecovery.load(PATH, disk=self.disk)
        times = sorted({entry.t + step for entry in self.model.changes for step in (-1, 0)})
        for at in random.Random(self.seed).sample(times, 5):
            try:
                found = recovery.recover_at(at).with_timestamps()
            except HistoryUnavailable:
                assert losses or at < self.model.initialized
                continue
            assert found == self.model.state(at), at
        now = recovery.recover_current().with_timestamps()
        if not any(loss.kind == "lost" for loss in losses):
            assert now == replay(self.model.changes)

    def check_reopened(self, losses: list[Loss]) -> None:
        """The account is there after the store was opened, written to and rotated."""
        if self.seed % 20 or self.is_undetected:
            return
        before = read_tree(self.disk, HOME)
        account = Reader(PATH, disk=self.disk).losses()
        with VersionedKVStore(HOME, "cars", 1 << 14, disk=self.disk, background=False, clock=Clock()) as store:
            store.insert("more", 1)
            store.rotate()
        assert Reader(PATH, disk=self.disk).losses() == account
        for name in read_tree(self.disk, HOME):
            if name not in before:
                self.disk.remove(HOME / name)
        for name, data in before.items():
            if data is not None and read_tree(self.disk, HOME).get(name) != data:
                self.disk.remove(HOME / name)
                write_file(self.disk, HOME / name, data)


def try_seeds(seeds: range) -> tuple[int, int]:
    """Try each seed; how many damages were repaired, and how many cannot be noticed."""
    repaired = undetected = 0
    for seed in seeds:
        trial = Trial(seed)
        try:
            trial.run()
        except (AssertionError, Malformed) as error:
            raise AssertionError(f"seed {seed}: {trial.accident[:3]} of {trial.name}: {error}") from error
        repaired += trial.is_repaired
        undetected += trial.is_undetected
    return repaired, undetected


@pytest.mark.parametrize("block", range(8))
def test_after_repair_of_any_damage_entries_are_genuine_and_losses_accounted_for(block: int) -> None:
    repaired, undetected = try_seeds(range(410 * block, 410 * (block + 1)))
    assert repaired >= 275
    assert undetected < 164
    COUNTS.add("damages repaired", repaired, "versioned")


def test_repair_that_keeps_unproven_entries_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def remade(salvage: repair._Salvage, stream: object) -> list[Step]:
        if salvage.head is None or salvage.head.metadata is None:
            return salvage._lost_archive("no head")
        items = Cursor(salvage.file, salvage.source).items()
        chunks = [bytes(item.data[item.start : item.stop]) for item in items if isinstance(item, Chunk)]
        body = codec.encode(salvage.head.metadata) + b"".join(chunks)
        journal = codec.encode_header(HEADER_BYTES + len(body)) + body
        salvage._becomes(journal)
        data = zlib.compress(journal)
        name = salvage.source.name
        return [
            Create(name + ".x", "", (), "", data),
            Remove(name, ""),
            Rename(name + ".x", name, ""),
        ]

    monkeypatch.setattr(repair._Salvage, "_unproven_archive", remade)
    with pytest.raises(AssertionError, match=r"seed \d+"):
        try_seeds(range(200))


def test_repair_without_an_account_of_removals_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair._Salvage, "_account_range", lambda salvage, *arguments, **options: None)
    with pytest.raises(AssertionError, match=r"is not in the account|the account says at most"):
        try_seeds(range(200))
