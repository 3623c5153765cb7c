"""The states of a simulated disk after a crash: the model of a power cut, and of the death of a process.

After a power cut at a given point, the preceding operations have these effects:

- Everything that was synced is there: contents whose file, and names whose directory, was synced after the change.
- Of the other writes and truncations of a file, any may have reached the disk and any may not (`subset`).
- Such a write may be torn between sectors of 512 bytes: each sector is new or old, and past the old end of the file it
  is zeros or noise. The file's length may be the old or the new one, independently of the bytes (`torn`).
- Of the other changes of names in a directory, the first n have happened, in their order (journaling file systems keep
  it within a directory); n is independent for each directory. A rename within a directory happens or does not. A rename
  between two directories may add the new name before it removes the old one, but the file is not lost. A directory,
  which has one name in every file system, has the old name or the new one.
- Or everything up to some operation is there, as if each operation had been synced (`order`).

If there are few combinations, all of them are tried; otherwise a sample that depends only on the seed.

The death of a process (`process_kills`) loses nothing: the system has all operations. But unsynced operations are still
not durable, and a later power cut may lose them. The last write may be partly done.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.support.counts import COUNTS
from tests.support.replay import each
from tests.support.simulated_disk import (
    Contents,
    Directories,
    Link,
    Mark,
    Operation,
    Rename,
    SimulatedDisk,
    Sync,
    SyncDirectory,
    Truncate,
    Unlink,
    Write,
    apply_to_file,
)

SECTOR_BYTES = 512
KINDS = ("order", "subset", "torn")
FILLS = ("zeros", "noise")
_EXHAUSTIVE_WRITES = 5
"""Up to this number of unsynced writes of one file, all subsets are tried."""
_SAMPLED_SUBSETS = 40
_TEARS = 8


@dataclass(frozen=True, slots=True)
class Crash:
    """The crash that left a disk: its label for `--replay`, its point, and what reached the disk."""

    label: str
    point: int
    last: Operation | None
    outcomes: tuple[tuple[str, str], ...]
    earlier: Crash | None

    def __str__(self) -> str:
        story = "" if self.earlier is None else f"{self.earlier}\n"
        story += f"crash {self.label}: after {self.point} operations, the last one: {self.last or 'none'}"
        return story + "".join(f"\n  {name}: {outcome}" for name, outcome in self.outcomes)


def crash_states(
    disk: SimulatedDisk,
    *,
    first: int | None = None,
    last: int | None = None,
    most: int = 48,
    seed: int = 0,
    kinds: Iterable[str] = KINDS,
    fills: Iterable[str] = FILLS,
    reorder_names: bool = False,
    format: str = "core",
) -> Iterator[SimulatedDisk]:
    """The disks that a power cut could leave, after each number of operations from `first` to `last`.

    No two of them are equal in contents and marks. `most` limits the combinations that are tried at each point. With
    `reorder_names`, changes of names within one directory may also happen in any order. Each disk for which the test
    passes is counted for `format`; with an empty format, for negative controls, nothing is counted.
    """
    operations = list(disk.operations)
    start = disk.inherited if first is None else first
    stop = len(operations) if last is None else min(last, len(operations))
    model = _Model(disk, seed, tuple(kinds), tuple(fills), reorder_names, most)
    for state in each(_crash_states(disk, model, operations, start, stop)):
        yield state
        if format:
            COUNTS.add("crash states", 1, format)


def process_kills(disk: SimulatedDisk, *, seed: int = 0, format: str = "core") -> Iterator[SimulatedDisk]:
    """The disks that the death of the process would leave after each operation, and within each write."""
    for state in each(_process_kills(disk, seed)):
        yield state
        if format:
            COUNTS.add("crash states", 1, format)


def unsynced(disk: SimulatedDisk, named: set[int]) -> list[str]:
    """The changes that are not durable yet, in words: contents of files that have a name, and names."""
    model = _after_all(disk)
    found = {f"contents of {pending[-1][1].path}" for inode, pending in model.writes.items() if inode in named}
    return sorted(found | {f"name {change.path}" for changes in model.names.values() for change in changes})


def moved_unnamed(disk: SimulatedDisk) -> list[str]:
    """The files that moved to another directory, and whose old names were durably removed before the new ones were
    added.

    The crashes here do not lose them. Journaling file systems do not either; others may.
    """
    return _after_all(disk).moved_unnamed


def _after_all(disk: SimulatedDisk) -> _Model:
    model = _Model(disk, 0, (), (), False, 1)
    for number, operation in enumerate(disk.operations, 1):
        model.advance(number, operation)
    return model


def _crash_states(
    disk: SimulatedDisk, model: _Model, operations: list[Operation], start: int, stop: int
) -> Iterator[tuple[str, SimulatedDisk]]:
    seen: set[int] = set()
    marks = _marks_at_start(disk)
    for point in range(stop + 1):
        latest = operations[point - 1] if point else None
        if latest is not None:
            model.advance(point, latest)
            if isinstance(latest, Mark):
                marks.append(latest.label)
        if point < start:
            continue
        number = 0
        for files, directories, outcomes in model.states(point):
            key = hash((len(marks), fingerprint(files, directories)))
            if key in seen:
                continue
            seen.add(key)
            label = f"{point}.{number}"
            number += 1
            state = SimulatedDisk.restore(files, directories, disk.next_inode)
            state.capacity_bytes = disk.capacity_bytes
            state.marks = list(marks)
            state.crash = Crash(label, point, latest, outcomes, disk.crash)
            yield label, state


def _marks_at_start(disk: SimulatedDisk) -> list[Any]:
    """The marks that a disk had before its first operation, from before the crash that left it."""
    return disk.marks[: len(disk.marks) - sum(isinstance(operation, Mark) for operation in disk.operations)]


def fingerprint(files: Mapping[int, bytes | bytearray], directories: Directories) -> int:
    """A number that is the same for disks with the same names and contents."""
    return hash(tuple(_contents(files, directories)))


def _contents(files: Mapping[int, bytes | bytearray], directories: Directories) -> Iterator[Any]:
    """Everything that can be reached from the root, in a fixed order: the same for equal disks."""
    todo = [1]
    while todo:
        names = directories[todo.pop()]
        for name in sorted(names):
            inode = names[name]
            yield name
            if inode in directories:
                todo.append(inode)
                yield len(todo)
            else:
                yield bytes(files[inode])
        yield None


# --- what is durable, and what may be -------------------------------------------------------------------------------


class _NameChange(NamedTuple):
    """One change of one directory. A rename between directories is two; `other` is the directory of the second."""

    number: int
    sets: str | None
    clears: str | None
    inode: int
    other: int = 0
    path: str = ""


class _Outcome(NamedTuple):
    content: bytes
    note: str


State = tuple[Contents, Directories, tuple[tuple[str, str], ...]]
NameChoice = dict[int, tuple[int, ...]]
"""For each directory with unsynced changes, the numbers of those that have happened."""


class _Model:
    """The durable contents of a disk after some of its operations, and the operations that are not durable yet."""

    def __init__(
        self,
        disk: SimulatedDisk,
        seed: int,
        kinds: tuple[str, ...],
        fills: tuple[str, ...],
        reorder_names: bool,
        most: int,
    ) -> None:
        unknown = {*kinds} - {*KINDS} | {*fills} - {*FILLS}
        if unknown:
            raise ValueError(f"{', '.join(sorted(unknown))}: known are the kinds {KINDS} and the fills {FILLS}")
        self.files = dict(disk.durable_files)
        self.directories = dict(disk.durable_directories)
        self.writes: dict[int, list[tuple[int, Write | Truncate]]] = {}
        self.names: dict[int, list[_NameChange]] = {}
        self._seed = seed
        self._kinds = kinds
        self._fills = fills
        self._reorder_names = reorder_names
        self._most = most
        self._outcomes: dict[int, list[_Outcome]] = {}
        self.moved_unnamed: list[str] = []

    # forwards, one operation at a time

    def advance(self, number: int, operation: Operation) -> None:
        match operation:
            case Write() | Truncate():
                self.writes.setdefault(operation.inode, []).append((number, operation))
                self._outcomes.pop(operation.inode, None)
            case Sync():
                self._sync_file(operation.inode)
            case Link(path, directory, name, inode, is_directory):
                if is_directory:
                    self.directories[inode] = {}
                else:
                    self.files[inode] = b""
                self._change(directory, _NameChange(number, name, None, inode, 0, path))
            case Unlink(path, directory, name, inode):
                self._change(directory, _NameChange(number, None, name, inode, 0, path))
            case Rename():
                self._rename(number, operation)
            case SyncDirectory(_, directory):
                self._sync_names(directory, number)

    def _change(self, directory: int, change: _NameChange) -> None:
        self.names.setdefault(directory, []).append(change)

    def _rename(self, number: int, rename: Rename) -> None:
        source, target, inode, path = rename.directory, rename.target_directory, rename.inode, rename.target_path
        if source == target:
            self._change(source, _NameChange(number, rename.target_name, rename.name, inode, 0, path))
        else:
            self._change(target, _NameChange(number, rename.target_name, None, inode, source, path))
            self._change(source, _NameChange(number, None, rename.name, inode, target, rename.path))

    def _sync_file(self, inode: int) -> None:
        pending = self.writes.pop(inode, [])
        self._outcomes.pop(inode, None)
        if pending:
            self.files[inode] = _with_writes(self.files[inode], (operation for _, operation in pending))

    def _sync_names(self, directory: int, last: int) -> None:
        """Make the changes of a directory durable up to a number, and the new names of files that were moved away."""
        pending = self.names.pop(directory, [])
        later = [change for change in pending if change.number > last]
        if later:
            self.names[directory] = later
        done = pending[: len(pending) - len(later)]
        self.directories[directory] = _with_names(self.directories[directory], done)
        for change in done:
            if self._takes_along(change):
                self._note_move(change)
                self._sync_names(change.other, change.number)

    def _note_move(self, gone: _NameChange) -> None:
        is_file = gone.inode not in self.directories
        if is_file and any(change.number == gone.number for change in self.names.get(gone.other, [])):
            self.moved_unnamed.append(gone.path)

    def _takes_along(self, change: _NameChange) -> bool:
        """Whether the other half of a rename must have happened with this one."""
        return bool(change.other) and (change.clears is not None or change.inode in self.directories)

    # sideways: the states that a crash could leave here

    def states(self, point: int) -> Iterator[State]:
        if "order" in self._kinds:
            yield from self._states_in_order()
        if "subset" in self._kinds or "torn" in self._kinds:
            yield from self._states_in_any_order(point)

    def _states_in_order(self) -> Iterator[State]:
        numbers = {number for pending in self.writes.values() for number, _ in pending}
        numbers.update(change.number for pending in self.names.values() for change in pending)
        for last in (0, *sorted(numbers)):
            files = dict(self.files)
            for inode, pending in self.writes.items():
                done = [operation for number, operation in pending if number <= last]
                if done:
                    files[inode] = _with_writes(files[inode], done)
            names = {
                directory: tuple(change.number for change in pending if change.number <= last)
                for directory, pending in self.names.items()
            }
            note = f"all operations up to {last}" if last else "only what was synced"
            yield files, self._directories(names), (("in order", note),)

    def _states_in_any_order(self, point: int) -> Iterator[State]:
        inodes = list(self.writes)
        directories = list(self.names)
        axes: list[list[Any]] = [self._file_outcomes(inode) for inode in inodes]
        axes += [self._name_choices(directory) for directory in directories]
        for combination in _combinations(axes, self._most, random.Random(f"{self._seed}/{point}")):
            files = dict(self.files)
            notes = []
            for inode, outcome in zip(inodes, combination, strict=False):
                files[inode] = outcome.content
                notes.append((self.writes[inode][0][1].path, outcome.note))
            names = dict(zip(directories, combination[len(inodes) :], strict=True))
            self._keep_every_file(names)
            notes += [self._note(directory, done) for directory, done in names.items()]
            yield files, self._directories(names), tuple(notes)

    def _note(self, directory: int, done: tuple[int, ...]) -> tuple[str, str]:
        changes = [f"{change.number} ({change.path})" for change in self.names[directory]]
        return f"directory {directory}", f"{', '.join(map(str, done)) or 'none'} of {', '.join(changes)}"

    def _directories(self, names: NameChoice) -> Directories:
        directories = dict(self.directories)
        for directory, done in names.items():
            if done:
                changes = [change for change in self.names[directory] if change.number in done]
                directories[directory] = _with_names(directories[directory], changes)
        return directories

    def _name_choices(self, directory: int) -> list[tuple[int, ...]]:
        numbers = [change.number for change in self.names[directory]]
        if self._reorder_names:
            chance = random.Random(f"{self._seed}/{directory}/{numbers[-1]}")
            return [tuple(itertools.compress(numbers, subset)) for subset in _subsets(len(numbers), chance)]
        return [tuple(numbers[:count]) for count in range(len(numbers) + 1)]

    def _keep_every_file(self, names: NameChoice) -> None:
        """If a file has lost its name in one directory, give it the one that it got in another.

        A directory is moved as a whole.
        """
        changed = True
        while changed:
            changed = False
            for directory, done in list(names.items()):
                for change in self.names[directory]:
                    if change.number not in done or not self._takes_along(change):
                        continue
                    pending = self.names.get(change.other, [])
                    needed = tuple(other.number for other in pending if other.number <= change.number)
                    if change.number in needed and change.number not in names[change.other]:
                        names[change.other] = tuple(sorted({*names[change.other], *needed}))
                        changed = True

    def _file_outcomes(self, inode: int) -> list[_Outcome]:
        """The possible contents of one file; computed again only if the file has changed."""
        known = self._outcomes.get(inode)
        if known is not None:
            return known
        pending = self.writes[inode]
        durable = self.files[inode]
        chance = random.Random(f"{self._seed}/{inode}/{pending[-1][0]}")
        outcomes: dict[bytes, str] = {}
        if "subset" in self._kinds:
            for subset in _subsets(len(pending), chance):
                done = list(itertools.compress(pending, subset))
                note = f"{', '.join(str(number) for number, _ in done) or 'none'} of {len(pending)} operations"
                outcomes.setdefault(_with_writes(durable, (operation for _, operation in done)), note)
        if "torn" in self._kinds:
            operations = [operation for _, operation in pending]
            for content, note in _tears(durable, operations, self._fills, chance):
                outcomes.setdefault(content, note)
        result = self._outcomes[inode] = [_Outcome(content, note) for content, note in outcomes.items()]
        return result


# --- the choices, as plain functions --------------------------------------------------------------------------------


def _with_writes(durable: bytes, operations: Iterable[Write | Truncate]) -> bytes:
    content = bytearray(durable)
    for operation in operations:
        apply_to_file(content, operation)
    return bytes(content)


def _with_names(names: dict[str, int], changes: Iterable[_NameChange]) -> dict[str, int]:
    names = dict(names)
    for change in changes:
        if change.clears is not None and names.get(change.clears) == change.inode:
            del names[change.clears]
        if change.sets is not None:
            names[change.sets] = change.inode
    return names


def _combinations(axes: list[list[Any]], most: int, chance: random.Random) -> Iterator[tuple[Any, ...]]:
    """All combinations of one choice from each axis if there are few, otherwise a random sample of `most`."""
    if math.prod(map(len, axes)) <= most:
        yield from itertools.product(*axes)
        return
    for _ in range(most):
        yield tuple(chance.choice(axis) for axis in axes)


def _subsets(size: int, chance: random.Random) -> Iterator[tuple[bool, ...]]:
    """Which of `size` operations happened: every subset if there are few, otherwise the extreme ones and a sample."""
    if size <= _EXHAUSTIVE_WRITES:
        yield from itertools.product((False, True), repeat=size)
        return
    yield (False,) * size
    yield (True,) * size
    for left_out in chance.sample(range(size), min(size, _SAMPLED_SUBSETS // 4)):
        yield tuple(number != left_out for number in range(size))
    for alone in chance.sample(range(size), min(size, _SAMPLED_SUBSETS // 4)):
        yield tuple(number == alone for number in range(size))
    for _ in range(_SAMPLED_SUBSETS // 2):
        yield tuple(chance.random() < 0.5 for _ in range(size))


def _tears(
    durable: bytes, operations: list[Write | Truncate], fills: tuple[str, ...], chance: random.Random
) -> Iterator[tuple[bytes, str]]:
    """Contents after torn writes. The first ones have the new lengths without the new bytes."""
    end = len(_with_writes(durable, operations))
    for fill in fills:
        if end > len(durable):
            yield durable + _filling(fill, end - len(durable), chance), f"the new length, and {fill}"
    if any(isinstance(operation, Write) for operation in operations):
        for _ in range(_TEARS):
            yield _torn(durable, operations, end, fills, chance)


def _torn(
    durable: bytes, operations: list[Write | Truncate], end: int, fills: tuple[str, ...], chance: random.Random
) -> tuple[bytes, str]:
    content = bytearray(durable)
    notes = []
    for operation in operations:
        choice = chance.random()
        if choice < 0.25:
            continue
        if choice < 0.5 or isinstance(operation, Truncate):
            apply_to_file(content, operation)
            notes.append(str(operation))
        else:
            sectors = _tear_write(content, len(durable), operation, fills, chance)
            notes.append(f"{operation} with its sectors {'/'.join(sectors)}")
    length = chance.choice(("as written", "old", "new"))
    if length == "old":
        del content[len(durable) :]
    elif length == "new" and fills:
        content += _filling(chance.choice(fills), end - len(content), chance)
    notes.append(f"length {length}")
    return bytes(content), "; ".join(notes)


def _tear_write(
    content: bytearray, durable_bytes: int, write: Write, fills: tuple[str, ...], chance: random.Random
) -> list[str]:
    """Write each sector or leave it unchanged; past the durable end it may also become zeros or noise."""
    sectors = []
    start, end = write.position, write.position + len(write.data)
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        choice = chance.choice(("new", "old", *fills) if stop > durable_bytes else ("new", "old"))
        if choice == "new":
            fresh = write.data[start - write.position : stop - write.position]
            apply_to_file(content, Write(write.path, write.inode, start, fresh))
        elif choice != "old":
            new_from = max(start, durable_bytes)
            fresh = _filling(choice, stop - new_from, chance)
            apply_to_file(content, Write(write.path, write.inode, new_from, fresh))
        sectors.append(choice)
        start = stop
    return sectors


def _filling(fill: str, size: int, chance: random.Random) -> bytes:
    return bytes(max(0, size)) if fill == "zeros" else chance.randbytes(max(0, size))


# --- the death of the process ---------------------------------------------------------------------------------------


def _process_kills(disk: SimulatedDisk, seed: int) -> Iterator[tuple[str, SimulatedDisk]]:
    files = dict(disk.durable_files)
    directories = dict(disk.durable_directories)
    marks = _marks_at_start(disk)
    for point in range(len(disk.operations) + 1):
        latest = disk.operations[point - 1] if point else None
        before = disk.operations[: point - 1] if point else []
        if latest is not None and point > disk.inherited:
            for part in _parts(latest, random.Random(f"{seed}/{point}")):
                content = {**files, part.inode: _with_writes(files[part.inode], [part])}
                label = f"kill {point - 1}+{len(part.data)}"
                yield label, _killed(disk, label, [*before, part], content, directories, marks)
        if isinstance(latest, Mark):
            marks.append(latest.label)
        elif latest is not None:
            _apply(files, directories, latest)
        if point >= disk.inherited:
            label = f"kill {point}"
            yield label, _killed(disk, label, disk.operations[:point], files, directories, marks)


def _parts(operation: Operation, chance: random.Random) -> list[Write]:
    """A write that was done only in part, from its beginning. An aligned word of eight bytes is written at once."""
    if not isinstance(operation, Write) or len(operation.data) < 2:
        return []
    if len(operation.data) == 8 and operation.position % 8 == 0:
        return []
    return [operation._replace(data=operation.data[: chance.randrange(1, len(operation.data))])]


def _apply(files: Contents, directories: Directories, operation: Operation) -> None:
    """Apply an operation to contents as the running system saw it."""
    match operation:
        case Write() | Truncate():
            files[operation.inode] = _with_writes(files[operation.inode], [operation])
        case Link(_, directory, name, inode, is_directory):
            if is_directory:
                directories[inode] = {}
            else:
                files[inode] = b""
            directories[directory] = {**directories[directory], name: inode}
        case Unlink(_, directory, name, inode):
            directories[directory] = _with_names(directories[directory], [_NameChange(0, None, name, inode)])
        case Rename():
            away = _NameChange(0, None, operation.name, operation.inode)
            here = _NameChange(0, operation.target_name, None, operation.inode)
            source, target = operation.directory, operation.target_directory
            directories[source] = _with_names(directories[source], [away])
            directories[target] = _with_names(directories[target], [here])


def _killed(
    disk: SimulatedDisk,
    label: str,
    operations: list[Operation],
    files: Contents,
    directories: Directories,
    marks: list[Any],
) -> SimulatedDisk:
    state = SimulatedDisk.restore(
        disk.durable_files, disk.durable_directories, disk.next_inode, operations, dict(files), dict(directories)
    )
    state.capacity_bytes = disk.capacity_bytes
    state.marks = list(marks)
    state.crash = Crash(label, len(operations), operations[-1] if operations else None, (), disk.crash)
    return state
