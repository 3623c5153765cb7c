"""Random accidents to whole files and whole entries of a store: what is there was written, the rest is accounted for.

The stores are as our writer leaves them, closed or killed, with archives, some with an `.old` and with Logwright's own
files; or as another program leaves them, without a mark. Such accidents leave every remaining entry intact, so only
what the files say about each other can show them. `Trial.unnoticed` says which ones nothing can show.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from logwright.core.repair.losses import Loss
from logwright.errors import DamagedJournal, HistoryUnavailable, NotFound
from logwright.versioned import Entry, Reader, VersionedKVStore, VersionedRecovery
from logwright.versioned.bytes import codec, kernel
from logwright.versioned.bytes.layout import HEADER_BYTES
from logwright.versioned.files import repair
from logwright.versioned.files.buffer import MARK_TAIL_BYTES, find_mark
from logwright.versioned.files.files import archive_name
from logwright.versioned.model.replay import difference, replay
from tests.support.counts import COUNTS
from tests.support.damage import cut, drop, files_accident, flip_bit, insert, overwrite
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import Tree, read_tree, write_tree
from tests.versioned.stores import HOME, Clock, decode_journal

PATH = HOME / "cars.jrn"
OLD = "cars.jrn.old"
STATES = ("closed", "killed", "killed and synced", "another program")


def opened(disk: SimulatedDisk, clock: Clock, **options: Any) -> VersionedKVStore:
    return VersionedKVStore(HOME, "cars", 1 << 12, disk=disk, background=False, clock=clock, **options)


def written_by(state: str, dice: random.Random, has_old: bool) -> tuple[list[Entry], Tree]:
    """The changes of a store, and all files of its directory."""
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    changes: list[Entry] = []
    clock = Clock()
    rotations = dice.randrange(4)
    store = opened(disk, clock)
    for rotation in range(rotations + 1):
        for number in range(dice.randrange(1, 9)):
            key, value = dice.choice("abcd"), dice.choice([number, f"value {number}", "long " * 12, None])
            value = value if changes else "first"
            clock.now += dice.choice((0, 1, 40, 100, 1000, 10**6))
            t = store.remove(key) if value is None else store.insert(key, value)
            if t is not None:
                changes.append(Entry(t, key, value))
        if rotation < rotations:
            store.rotate()
    if state == "killed and synced":
        store.sync()
    tree = read_tree(disk, HOME)
    store.close()
    if state in ("closed", "another program"):
        tree = read_tree(disk, HOME)
    if state == "another program":
        tree["cars.jrn"] = without_mark(tree["cars.jrn"] or b"")
    archives = sorted(name for name in tree if name.endswith(".zz"))
    if has_old and archives:
        tree[OLD] = zlib.decompress(tree.pop(archives[-1]) or b"")
    return changes, tree


def without_mark(data: bytes) -> bytes:
    return data[:-16] + bytes(16)


def boundaries(name: str, data: bytes) -> Sequence[int]:
    """Where the entries of a journal begin and the last one ends; both ends of an archive."""
    if name.endswith(".zz"):
        return [0, len(data)]
    header, metadata = codec.decode_header(data), codec.decode_metadata(data, HEADER_BYTES)
    assert isinstance(header, tuple)
    assert isinstance(metadata, tuple)
    start, stop = metadata[1].end, header[0].position
    return kernel.spans(data, start, stop, kernel.walk(data, start, stop)[1]) or [start]


def in_order_of_time(name: str) -> tuple[int, int]:
    order = {OLD: 1, "cars.jrn": 2}.get(name, 0)
    return order, 0 if order else int(name.removeprefix("cars.jrn.t").removesuffix(".zz"))


def disk_with(tree: Tree) -> SimulatedDisk:
    disk = SimulatedDisk()
    write_tree(disk, HOME, tree)
    return disk


def files_on(disk: SimulatedDisk) -> Tree:
    return {name: data for name, data in read_tree(disk, HOME).items() if not name.startswith(".logwright")}


# --- accidents --------------------------------------------------------------------------------------------------------


class Accident(NamedTuple):
    """What happened, the files that are left, and the journals of which nothing is left, by their first names."""

    what: str
    left: dict[str, bytes]
    gone: set[str]


def to_files(whole: dict[str, bytes], dice: random.Random) -> Accident:
    """One accident to whole files or entries."""
    what, left = files_accident(whole, boundaries, dice)
    return Accident(what, {**left}, whole.keys() - left.keys())


def to_entries(whole: dict[str, bytes], dice: random.Random) -> Accident:
    """Entries of a journal that is not compressed are repeated, removed, exchanged or overwritten with each other."""
    name = dice.choice([name for name in whole if not name.endswith(".zz")])
    what, data = entries_accident(whole[name], boundaries(name, whole[name]), dice)
    return Accident(f"{what} of {name}", {**whole, name: data}, set())


def entries_accident(data: bytes, ends: Sequence[int], dice: random.Random) -> tuple[str, bytes]:
    count = len(ends) - 1
    if not count:
        return "nothing", data
    first = dice.randrange(count)
    last = min(first + dice.choice((1, 1, 2, 3)), count)
    start, end = ends[first], ends[last]
    kind = dice.choice(("repeat", "repeat and keep the size", "remove", "remove and pad", "swap", "overwrite"))
    changed: bytes | None = None
    match kind:
        case "repeat":
            changed = insert(data, end, data[start:end])
        case "repeat and keep the size" if is_closed_with_space(data, ends[-1], end - start):
            changed = drop(insert(data, end, data[start:end]), ends[-1] + end - start, ends[-1] + 2 * (end - start))
        case "remove":
            changed = drop(data, start, end)
        case "remove and pad" if is_padding_shown(data, ends, start, end):
            changed = insert(drop(data, start, end), ends[-1] - (end - start), bytes(end - start))
        case "swap" if first + 1 < count:
            other = dice.randrange(first + 1, count)
            between = data[ends[first + 1] : ends[other]]
            both = data[ends[other] : ends[other + 1]], data[ends[first] : ends[first + 1]]
            changed = overwrite(data, ends[first], both[0] + between + both[1])
        case _:
            places = overwritten_places(data, ends, first)
            if places:
                at = ends[dice.choice(places)]
                changed, end = overwrite(data, at, data[start : ends[first + 1]]), ends[first + 1]
                kind = f"overwrite {at} with"
    return (f"{kind} {start} to {end}", changed) if changed is not None else ("nothing", data)


def is_closed_with_space(data: bytes, end: int, size: int) -> bool:
    """Whether a journal was closed, and at least this number of zeros follows its entries."""
    return b"lw-close" in data[-32:] and not any(data[end : end + size])


def is_padding_shown(data: bytes, ends: Sequence[int], start: int, end: int) -> bool:
    """Whether zeros in the place of removed entries are known not to be the work of a power cut.

    They are in a store that was closed, or has no mark, or whose mark is within an entry or among the zeros then. If
    the mark is between two entries, the file is that of a store in which the removed entries were never written, and
    the last ones were not synced.
    """
    found = find_mark(data[-MARK_TAIL_BYTES:], len(data))
    if found is None or found[1].is_closed:
        return True
    synced = found[1].synced
    return synced > ends[-1] - (end - start) or (start < synced and synced + end - start not in ends)


def overwritten_places(data: bytes, ends: Sequence[int], row: int) -> list[int]:
    """The entries that a copy of another one can replace so that times show it.

    They do not if the two are neighbours, or if both are copies of the state that the journal begins with.
    """
    begun, entries = decode_journal(data)
    found = []
    for other in range(len(entries)):
        times = [entry.t for entry in entries]
        times[other] = times[row]
        is_shown = any(time > later and time > begun for time, later in pairwise(times))
        if is_shown and ends[other + 1] - ends[other] == ends[row + 1] - ends[row]:
            found.append(other)
    return found


def to_swapped_archives(whole: dict[str, bytes], dice: random.Random) -> Accident:
    """Two archives have each other's names, and something else happens as well."""
    archives = [name for name in whole if name.endswith(".zz")]
    if len(archives) < 2:
        return to_entries(whole, dice)
    one, other = dice.sample(archives, 2)
    if abs(in_order_of_time(one)[1] - in_order_of_time(other)[1]) <= 64:
        return to_entries(whole, dice)  # without the other one, a later name is that of an archive whose name was taken
    names = {one: other, other: one}
    swapped = {name: whole[names.get(name, name)] for name in whole}
    name = dice.choice(archives)
    data = swapped[name]
    kind = dice.choice(("remove", "empty", "half", "bit", "entries", "files"))
    match kind:
        case "remove":
            found = Accident(f"remove {name}", {key: data for key, data in swapped.items() if key != name}, {name})
        case "empty":
            found = Accident(f"empty {name}", {**swapped, name: b""}, set())
        case "half":
            found = Accident(f"cut {name}", {**swapped, name: cut(data, dice.randrange(1, len(data)))}, set())
        case "bit":
            found = Accident(f"bit of {name}", {**swapped, name: flip_bit(data, dice.randrange(8 * len(data)))}, set())
        case _:
            found = (to_entries if kind == "entries" else to_files)(swapped, dice)
    what = f"swap {one} and {other}, {found.what}"
    return Accident(what, found.left, {names.get(name, name) for name in found.gone})


def to_names(whole: dict[str, bytes], dice: random.Random) -> Accident:
    """One to three files are copied, renamed, left over or damaged."""
    left, gone, labels = dict(whole), set[str](), []
    for _ in range(dice.choice((1, 1, 2, 3))):
        kind = dice.choice(("duplicate", "rename", "copy to .old", "rename to .old", "temporary", "archive", "remove"))
        archives = [name for name in left if name.endswith(".zz")]
        match kind:
            case "duplicate" | "rename" if archives:
                name = dice.choice(archives)
                other = archive_name("cars", in_order_of_time(name)[1] + dice.choice((-333_333, -50, 1, 100, 333_333)))
                if other not in left:
                    left[other] = left[name] if kind == "duplicate" else left.pop(name)
                    labels.append(f"{kind} {name} to {other}")
            case "copy to .old" | "rename to .old" if "cars.jrn" in left and OLD not in left:
                left[OLD] = left["cars.jrn"] if kind.startswith("copy") else left.pop("cars.jrn")
                labels.append(kind)
            case "temporary":
                name = dice.choice(["cars.jrn", *archives])
                data = left.get(name, b"")
                left[f"{name}.tmp"] = dice.choice((b"", data, data[: len(data) // 2], dice.randbytes(100)))
                labels.append(f"{name}.tmp")
            case "archive" if archives:
                name = dice.choice(archives)
                damage = dice.choice((flip_any_bit, append_garbage, zero_bytes, cut_anywhere))
                left[name] = damage(left[name], dice)
                labels.append(f"{damage.__name__} of {name}")
            case "remove" if left:
                name = dice.choice(list(left))
                del left[name]
                gone |= {name} & whole.keys()
                labels.append(f"remove {name}")
    return Accident(", ".join(labels), left, gone)


def to_heads(whole: dict[str, bytes], dice: random.Random) -> Accident:
    """The beginnings of all journals that are not compressed are overwritten, some of them completely."""
    left, labels = dict(whole), []
    for name in left:
        if not name.endswith(".zz"):
            size = min(dice.choice((8, 17, 30, 60, 100, 100, 1 << 20)), len(left[name]))
            left[name] = overwrite(left[name], 0, dice.choice((bytes(size), dice.randbytes(size))))
            labels.append(f"{size} bytes of {name}")
    return Accident(", ".join(labels), left, set())


def flip_any_bit(data: bytes, dice: random.Random) -> bytes:
    return flip_bit(data, dice.randrange(8 * len(data)))


def append_garbage(data: bytes, dice: random.Random) -> bytes:
    return data + dice.randbytes(dice.choice((1, 40, 4096)))


def zero_bytes(data: bytes, dice: random.Random) -> bytes:
    start = dice.randrange(len(data))
    return overwrite(data, start, bytes(min(40, len(data) - start)))


def cut_anywhere(data: bytes, dice: random.Random) -> bytes:
    return cut(data, dice.randrange(1, len(data)))


class Trial:
    """One store and one accident."""

    def __init__(self, seed: int, happens: Callable[[dict[str, bytes], random.Random], Accident] = to_files) -> None:
        dice = random.Random(seed)
        self.state = dice.choice(STATES)
        self.changes, tree = written_by(self.state, dice, dice.random() < 0.3)
        names = sorted((name for name in tree if name.startswith("cars.jrn")), key=in_order_of_time)
        self.whole = {name: tree[name] or b"" for name in names}
        self.accident, left, self.gone = happens(self.whole, dice)
        others = {name: data for name, data in tree.items() if name not in self.whole}
        self.damaged: Tree = {**others, **left}
        self.left: Tree = {**left}
        self.dice = dice
        self.noticed = False

    def unnoticed(self) -> set[str]:
        """What may be missing though nothing shows it: the changes of journals before the first one that is left."""
        whole = Reader(PATH, disk=disk_with({**self.whole}))
        kept = next((file for file in whole.files() if file.name not in self.gone), None)
        begun = None if kept is None else whole.begun(kept)
        return {repr(entry) for entry in self.changes if begun is None or entry.t <= begun}

    def run(self) -> None:
        if all(name.endswith(".tmp") for name in self.left):
            return  # nothing is there that could show it
        self.check_verify()
        self.check_opening()
        self.check_repair()

    # --- each verb --------------------------------------------------------------------------------------------------

    def check_verify(self) -> None:
        disk = disk_with(self.damaged)
        problems = Reader(PATH, disk=disk).verify().problems
        self.noticed = bool(problems)
        if not problems:
            self.check_entries(disk, [])
            assert dict(self.current(disk)) == self.state_at(None), "verify says that this is sound"
        assert read_tree(disk, HOME) == self.damaged, "verify has changed something"

    def check_opening(self) -> None:
        disk = disk_with(self.damaged)
        try:
            store = opened(disk, Clock(self.changes[-1].t + 10**9))
        except DamagedJournal:
            assert files_on(disk) == self.left, "a store that was not opened is unchanged"
            return
        with store:
            found = dict(store.items())
        losses = Reader(PATH, disk=disk).losses()
        if not losses:
            assert found == {key: value for key, (value, _) in self.state_at(None).items()}, "lost in silence"
        if not any(problem.kind != "torn_tail" for problem in Reader(PATH, disk=disk).verify().problems):
            self.check_entries(disk, losses)

    def check_repair(self) -> None:
        disk = disk_with(self.damaged)
        plan = repair.plan(PATH, disk=disk)
        assert not self.noticed or plan.steps or plan.losses or plan.left
        done = repair.apply(PATH, plan, disk=disk)
        losses = Reader(PATH, disk=disk).losses()
        assert [loss.what for loss in losses] == [loss.what for loss in plan.losses]
        after = read_tree(disk, HOME)
        again = repair.plan(PATH, disk=disk)
        assert again.empty, f"a second repair: {again.describe()}"
        assert again.left == plan.left
        if not plan.left:
            assert Reader(PATH, disk=disk).verify().sound
            self.check_entries(disk, losses)
            self.check_answers(disk, losses)
            with opened(disk_with(after), Clock(self.changes[-1].t + 10**9)) as store:
                found = dict(store.items())
            assert found == {key: value for key, (value, _) in self.current(disk).items()}, "opened after a repair"
        assert read_tree(disk, HOME) == after
        if done is not None:
            repair.undo(PATH, disk=disk)
            assert Reader(PATH, disk=disk).losses() == []
        assert files_on(disk) == self.left, "undo"

    # --- what is there ----------------------------------------------------------------------------------------------

    def state_at(self, at: int | None) -> dict[str, tuple[Any, int]]:
        return replay(self.changes, at)

    def current(self, disk: SimulatedDisk) -> dict[str, tuple[Any, int]]:
        return VersionedRecovery.load(PATH, disk=disk).recover_current().with_timestamps()

    def check_entries(self, disk: SimulatedDisk, losses: list[Loss]) -> None:
        """What is there was written, in order; what is not there is in the account."""
        written = {repr(entry): entry for entry in self.changes}
        read = [repr(entry) for entry in Reader(PATH, disk=disk).entries() if isinstance(entry, Entry)]
        found = list(dict.fromkeys(read))  # after a loss, what the next journal begins with is read again
        assert set(found) <= set(written), "never written"
        ranges = [(loss.fields["from"], loss.fields["to"]) for loss in losses if loss.kind == "lost"]
        in_order = [name for name in found if not is_within(written[name].t, ranges)]  # lost ones: as the next has them
        assert in_order == [name for name in written if name in set(in_order)], "not in order"
        missing = {name: entry for name, entry in written.items() if name not in set(found)}
        unnoticed = self.unnoticed()
        for name, entry in missing.items():
            assert is_within(entry.t, ranges) or name in unnoticed, (
                f"{entry} is missing, and not in the account {ranges}"
            )

    def check_answers(self, disk: SimulatedDisk, losses: list[Loss]) -> None:
        """Each answer is refused, or is what it was before the accident."""
        recovery = VersionedRecovery.load(PATH, disk=disk)
        times = sorted({entry.t + step for entry in self.changes for step in (-1, 0)})
        for at in self.dice.sample(times, min(4, len(times))):
            found = refused_or(lambda at=at: recovery.recover_at(at).with_timestamps())
            assert found in (None, self.state_at(at)), f"the state at {at}"
        start, stop = sorted(self.dice.choice(times) for _ in range(2))
        found = refused_or(lambda: recovery.diff(start, stop))
        wanted = difference(self.state_at(start), self.state_at(stop))
        assert found in (None, wanted), f"diff {start} {stop}"
        earliest = recovery.earliest()
        for key in "abcd":
            found = refused_or(lambda key=key: [(entry.t, entry.o) for entry in recovery.history(key)])
            history = [(entry.t, entry.o) for entry in self.changes if entry.k == key]
            if found is not None:
                assert all(one in history for one in found)
                assert [one for one in found if one[0] > earliest] == [one for one in history if one[0] > earliest], key
        if not any(loss.kind == "lost" for loss in losses):
            assert self.current(disk) == self.state_at(None)


def is_within(t: int, ranges: list[tuple[int, int]]) -> bool:
    return any(start <= t <= stop for start, stop in ranges)


def refused_or(ask: Any) -> Any:
    try:
        return ask()
    except HistoryUnavailable:
        return None


def try_seeds(seeds: Iterable[int], happens: Callable[[dict[str, bytes], random.Random], Accident] = to_files) -> int:
    """Try each seed; how many accidents were noticed."""
    noticed = 0
    for seed in seeds:
        trial = Trial(seed, happens)
        try:
            trial.run()
        except (AssertionError, NotFound, DamagedJournal) as error:
            raise AssertionError(f"seed {seed}: {trial.accident} ({trial.state}): {error}") from error
        noticed += trial.noticed
    return noticed


@pytest.mark.parametrize("block", range(4))
def test_after_any_accident_to_files_what_is_missing_is_in_the_account(block: int) -> None:
    noticed = try_seeds(range(150 * block, 150 * (block + 1)))
    assert noticed >= 60
    COUNTS.add("damages repaired", noticed, "versioned")


@pytest.mark.parametrize("block", range(4))
def test_after_any_accident_to_entries_what_is_missing_is_in_the_account(block: int) -> None:
    noticed = try_seeds(range(150 * block, 150 * (block + 1)), to_entries)
    assert noticed >= 60
    COUNTS.add("damages repaired", noticed, "versioned")


@pytest.mark.parametrize("block", range(4))
def test_after_two_archives_were_swapped_and_another_accident_one_repair_is_enough(block: int) -> None:
    noticed = try_seeds(range(150 * block, 150 * (block + 1)), to_swapped_archives)
    assert noticed >= 60
    COUNTS.add("damages repaired", noticed, "versioned")


@pytest.mark.parametrize("block", range(4))
def test_after_files_were_copied_renamed_and_damaged_one_repair_is_enough(block: int) -> None:
    noticed = try_seeds(range(100 * block, 100 * (block + 1)), to_names)
    assert noticed >= 25
    COUNTS.add("damages repaired", noticed, "versioned")


@pytest.mark.parametrize("block", range(2))
def test_after_all_beginnings_were_overwritten_one_repair_is_enough(block: int) -> None:
    noticed = try_seeds(range(100 * block, 100 * (block + 1)), to_heads)
    assert noticed >= 60
    COUNTS.add("damages repaired", noticed, "versioned")


def test_a_missing_journal_that_is_passed_over_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reader, "gap_after", lambda reader, files: None)
    with pytest.raises(AssertionError, match=r"seed \d+"):
        try_seeds(range(100))


def test_a_writer_that_begins_again_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logwright.versioned.model.opening.refuse_to_lose", lambda disk, listing: None)
    with pytest.raises(AssertionError, match="lost in silence"):
        try_seeds(range(100))
