"""Repair: a plan of small steps that can be shown, done, resumed after a crash, and undone.

A format examines a damaged journal and makes a `Plan`. This module carries it out, in the same way for every format:

1. take the locks that the plan names, and check that the journal has not changed since the plan was made;
2. copy every byte that will be removed to `.logwright/cut/`, and sync the copies;
3. write and sync the log, `.logwright/cut/repair-TIME.json`: the steps, the names of the copies, and the progress;
4. add the losses of the repair to the account of losses (see `losses.py`);
5. do the steps in order, and sync each one before the log counts it.

A crash before 3 has changed nothing. After it the log says which step was interrupted. Each step can be repeated or
undone from any point, so `apply` finishes an interrupted repair and `undo` reverts it. A step first compares the bytes:
if they are neither those before the step nor those after it, another program has changed the file. Then the repair is
undone at once, with an error that names the file. The same happens if this user may not change the file. Only if the
step may have been begun before, by a repair that was interrupted, nothing more is changed.

`undo` reverts the latest repair that is not undone yet. It refuses if a file of the repair has changed since, because
the change would be lost. The copies stay; the lines in the account of losses are removed.
"""

from __future__ import annotations

import errno
import json
import re
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ...errors import DamagedJournal, NotFound, StorageFailed, WrongUse, is_no_access
from ..bytes.outcome import Span
from ..bytes.text import why_invalid
from ..io.disk import REAL_DISK, Disk, File, replace_file, write_all
from ..io.lock import Lock
from ..io.quarantine import cut_directory, keep_range, make_cut_directory
from .losses import Loss, add_losses, remove_losses
from .steps import Create, Cut, Patch, Remove, Rename, Step, Zeros, check_steps, step_from_json

__all__ = ["Create", "Cut", "Patch", "Plan", "Remove", "Rename", "Repair", "Repairs", "Step", "Zeros"]

_COPY_BYTES: Final = 1 << 20
_MOST_CHECKED_BYTES: Final = 1 << 30
"""A copy of up to this size has a checksum in the log. A larger one, often a hole, is checked by its size only."""
_LOG_NAME: Final = re.compile(r"repair-([0-9]{1,20})\.json")
TEMPORARY_SUFFIX: Final = ".repairing"
"""The suffix of a file that is being written; a leftover has no meaning."""

_TEXTS: Final = ("left", "locks", "derived", "accounts", "guarded")
"""The fields of a plan that are tuples of texts."""

APPLYING, DONE, UNDOING, UNDONE = "applying", "done", "undoing", "undone"
_STATES: Final = (APPLYING, DONE, UNDOING, UNDONE)


# --- the plan -------------------------------------------------------------------------------------------------------


class Repairs(ABC):
    """How journals of a format are repaired."""

    @abstractmethod
    def plan(self, path: Path | str, *, disk: Disk = REAL_DISK) -> Plan:
        """What a repair would do. This changes nothing."""

    @abstractmethod
    def apply(self, path: Path | str, plan: Plan, *, disk: Disk = REAL_DISK) -> Repair | None:
        """Carry out a plan, holding the locks of writers; None when there was nothing to do."""

    @abstractmethod
    def undo(self, path: Path | str, *, disk: Disk = REAL_DISK) -> Repair:
        """Take back the latest repair, holding the locks of writers."""

    def with_flags(self, flags: Collection[str]) -> Repairs:
        """The same, and with what these flags of the format allow: see `Format.repair_flags`."""
        return self


@dataclass(frozen=True, slots=True)
class Plan:
    """What a repair would do. Names are relative to the journal's directory, with forward slashes.

    `losses` are the records that it removes and the fields that it restores by inference. `left` describes what it
    cannot repair. `locks` are the lock files to hold; those of an empty plan must be free. `derived` are files that can
    be rebuilt from the journal at any time, such as indexes: changes to them do not prevent `undo`. `interrupted` is
    set for a repair that was interrupted and is to be finished. `accounts` are the directories below this one with an
    account of their own: losses in their files go there. `guarded` are other files that must be unchanged for `undo`.
    """

    format: str
    steps: tuple[Step, ...] = ()
    left: tuple[str, ...] = ()
    locks: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    interrupted: bool = False
    losses: tuple[Loss, ...] = ()
    accounts: tuple[str, ...] = ()
    guarded: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_steps(self.steps)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do. Losses without steps, of missing files, are only recorded."""
        return not self.steps and not self.losses

    @property
    def costs_nothing(self) -> bool:
        """Whether nothing is lost, inferred, or left as it is."""
        return not self.losses and not self.left

    @property
    def kept_bytes(self) -> int:
        """The number of bytes that are cut from files, apart from files that are removed."""
        return sum(step.end - step.start for step in self.steps if isinstance(step, Cut))

    def describe(self) -> list[str]:
        """The account of losses, then a line for each step, and for each thing that cannot be repaired."""
        lines = [step.describe() for step in self.steps]
        if self.interrupted:
            lines.insert(0, "finish the repair that was interrupted:")
        lines = [loss.describe() for loss in self.losses] + lines
        return lines + [f"cannot be repaired: {line}" for line in self.left]

    def as_json(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "losses": [loss.as_json() for loss in self.losses],
            "steps": [step.as_json() for step in self.steps],
            "left": list(self.left),
            "interrupted": self.interrupted,
        }

    def __add__(self, other: Plan) -> Plan:
        """Both plans as one, for journals of one format in one directory."""
        locks = self.locks + other.locks if self.empty == other.empty else (other if self.empty else self).locks
        joined = {name: getattr(self, name) + getattr(other, name) for name in ("steps", "losses", *_TEXTS)}
        return replace(self, **{**joined, "locks": locks})

    def within(self, directory: str) -> Plan:
        """The same plan, relative to the parent directory."""
        texts: dict[str, Any] = {name: tuple(f"{directory}/{text}" for text in getattr(self, name)) for name in _TEXTS}
        steps = tuple(_step_within(step, directory) for step in self.steps)
        losses = tuple(replace(loss, file=f"{directory}/{loss.file}") for loss in self.losses)
        return replace(self, **{**texts, "steps": steps, "losses": losses, "accounts": (directory,)})

    def losses_by_account(self) -> dict[str, list[Loss]]:
        """The losses by the directory of their account, empty for this one, with files relative to it."""
        found: dict[str, list[Loss]] = {"": [], **{name: [] for name in self.accounts}}
        for loss in self.losses:
            name = next((name for name in self.accounts if loss.file.startswith(f"{name}/")), "")
            found[name].append(replace(loss, file=loss.file[len(name) + 1 :]) if name else loss)
        return found


def _step_within(step: Step, directory: str) -> Step:
    moved = replace(step, file=f"{directory}/{step.file}")
    if isinstance(moved, Create) and moved.source:
        return replace(moved, source=f"{directory}/{moved.source}")
    if isinstance(moved, Rename):
        return replace(moved, target=f"{directory}/{moved.target}")
    return moved


# --- the log --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entry:
    """A step with the name of its copy, and the size and checksum of the file that it creates."""

    step: Step
    kept: str = ""
    size: int = 0
    crc: int = 0

    def as_json(self) -> dict[str, Any]:
        return {**self.step.as_json(), "kept": self.kept, "size": self.size, "crc": self.crc}

    @classmethod
    def from_json(cls, item: dict[str, Any]) -> _Entry:
        kept = str(item["kept"])
        if "/" in kept or kept in (".", ".."):
            raise ValueError(f"{kept!r} is not the name of a copy")
        return cls(step_from_json(item), kept, int(item["size"]), int(item["crc"]))


@dataclass(slots=True)
class Repair:
    """A repair and its progress: `done` steps are complete. `state`: applying, done, undoing, undone."""

    log: Path
    plan: Plan
    entries: list[_Entry]
    state: str = APPLYING
    done: int = 0
    after: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    _steps_text: str = ""

    @property
    def kept(self) -> list[Path]:
        """The paths of the copies, beside the log."""
        return [self.log.parent / entry.kept for entry in self.entries if entry.kept]

    @property
    def home(self) -> Path:
        """The directory of what is repaired."""
        return self.log.parents[2]

    def describe(self) -> str:
        """That it is half done, in words."""
        what = "undoing a repair" if self.state == UNDOING else "a repair"
        return f"{what} was interrupted after {self.done} of {len(self.entries)} steps"

    def next_steps(self) -> str:
        """The commands that finish it."""
        undo = f"`logwright repair {self.home} --undo`"
        if self.state == UNDOING:
            return f"{undo} finishes that"
        return f"`logwright repair {self.home}` finishes it, {undo} undoes it"

    def with_file_away(self) -> DamagedJournal:
        """The error for a journal that cannot be opened, because the repair has moved a file away."""
        return DamagedJournal(
            self.log, 0, f"{self.describe()}, and a file of the journal is missing until then; {self.next_steps()}"
        )

    def as_json(self) -> dict[str, Any]:
        return {**self._progress(), "steps": [entry.as_json() for entry in self.entries]}

    def _progress(self) -> dict[str, Any]:
        return {
            "version": 1,
            "format": self.plan.format,
            "state": self.state,
            "done": self.done,
            **{name: list(getattr(self.plan, name)) for name in _TEXTS},
            "losses": [loss.as_json() for loss in self.plan.losses],
            "after": self.after,
        }

    def save(self, disk: Disk) -> None:
        """Write the log, durably."""
        if not self._steps_text:  # they never change, and there may be thousands
            self._steps_text = ",\n".join(json.dumps(entry.as_json()) for entry in self.entries)
        text = f'{json.dumps(self._progress(), indent=1)[:-2]},\n "steps": [\n{self._steps_text}\n]}}\n'
        replace_file(disk, self.log, text.encode(), self.log.with_suffix(".tmp"))

    @classmethod
    def load(cls, disk: Disk, path: Path) -> Repair:
        """The repair that a log describes. `DamagedJournal` if the log is damaged."""
        with closing(disk.open(path, "read")) as file:
            text = file.read_at(0, file.size())
        try:
            return cls._from_json(path, json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            hint = "restore it from a copy, or move it away: then that repair cannot be finished or undone; run verify"
            raise DamagedJournal(path, 0, f"this log of a repair is damaged: {why_invalid(error)}; {hint}") from None

    @classmethod
    def _from_json(cls, path: Path, content: dict[str, Any]) -> Repair:
        if content["version"] != 1 or content["state"] not in _STATES:
            raise ValueError("its version or state is not known here")
        entries = [_Entry.from_json(item) for item in content["steps"]]
        steps = tuple(entry.step for entry in entries)
        losses = tuple(map(Loss.from_json, content.get("losses", ())))
        content = {"accounts": (), "guarded": (), **content}  # which the first logs did not have
        texts: dict[str, Any] = {name: tuple(map(str, content[name])) for name in _TEXTS}
        plan = Plan(str(content["format"]), steps, losses=losses, **texts)
        done = int(content["done"])
        if not 0 <= done <= len(entries):
            raise ValueError(f"{done} of {len(entries)} steps cannot have been done")
        after = {
            name: None if mark is None else (int(mark[0]), int(mark[1])) for name, mark in content["after"].items()
        }
        return cls(path, plan, entries, str(content["state"]), done, after)


def _list_logs(disk: Disk, home: Path) -> list[tuple[int, Path]]:
    """The logs of repairs with their start times, oldest first."""
    directory = cut_directory(home)
    names = disk.list_directory(directory) if disk.is_directory(directory) else []
    matches = [match for match in map(_LOG_NAME.fullmatch, names) if match]
    return sorted((int(match[1]), directory / match[0]) for match in matches)


def list_repairs(disk: Disk, home: Path) -> list[Repair]:
    """All repairs of the journals in a directory, oldest first."""
    return [Repair.load(disk, path) for _, path in _list_logs(disk, home)]


def _latest(disk: Disk, home: Path) -> Repair | None:
    """The latest repair that is not undone."""
    for _, path in reversed(_list_logs(disk, home)):
        repair = Repair.load(disk, path)
        if repair.state != UNDONE:
            return repair
    return None


def find_interrupted(disk: Disk, home: Path) -> Repair | None:
    """The repair or undo that was begun and not finished."""
    latest = _latest(disk, home)
    return latest if latest is not None and latest.state in (APPLYING, UNDOING) else None


def resume_plan(disk: Disk, home: Path) -> Plan | None:
    """The plan of an interrupted repair, for `apply` to finish; None if there is none.

    `WrongUse` if an undo was interrupted: only `undo` can finish that.
    """
    repair = find_interrupted(disk, home)
    if repair is None:
        return None
    _refuse_half_undone(repair)
    return replace(repair.plan, interrupted=True)


def _refuse_half_undone(repair: Repair) -> None:
    if repair.state == UNDOING:
        raise WrongUse(f"{repair.log}: taking this repair back was interrupted; undo it again first")


# --- doing it -------------------------------------------------------------------------------------------------------


def apply(disk: Disk, home: Path, plan: Plan) -> Repair:
    """Carry out a plan, or finish it if it was interrupted. `WrongUse` if the journal has changed since."""
    with _locked(disk, home, plan.locks):
        repair = find_interrupted(disk, home)
        is_resumed = repair is not None
        if repair is None:
            _check_fits(disk, home, plan)
            repair = _prepare(disk, home, plan)
        else:
            _refuse_half_undone(repair)
            if (repair.plan.steps, repair.plan.losses) != (plan.steps, plan.losses):
                raise WrongUse(f"{repair.log}: this repair was interrupted; finish it, or undo it, before another one")
        for name, losses in repair.plan.losses_by_account().items():
            if losses:
                add_losses(disk, _at(home, name) if name else home, losses, repair=repair.log.name)
        may_be_begun = is_resumed
        while repair.done < len(repair.entries):
            end = _end_of_run(repair.entries, repair.done)
            try:
                _do(disk, home, repair.entries[repair.done : end])
            except (WrongUse, StorageFailed) as error:
                if may_be_begun or not (isinstance(error, WrongUse) or is_no_access(error)):
                    raise
                _revert(disk, home, repair)
                if not isinstance(error, WrongUse):
                    raise
                raise WrongUse(f"{error}, and the steps before it were undone") from error
            may_be_begun = False
            repair.done = end
            repair.save(disk)
        repair.after = _look(disk, home, repair)
        repair.state = DONE
        repair.save(disk)
    return repair


def check_unlocked(disk: Disk, home: Path, plan: Plan) -> None:
    """Raise `Locked` if a writer is active: what an empty plan is based on may be incomplete."""
    for path in [_at(home, name) for name in plan.locks]:
        if disk.exists(path):
            Lock.acquire(disk, path).release()


def undo(disk: Disk, home: Path) -> Repair:
    """Undo the latest repair. `NotFound` if there is none, `WrongUse` if the journal has changed since."""
    repair = _latest(disk, home)
    if repair is None:
        raise NotFound(f"{home}: no repair of this journal is left to be taken back")
    with _locked(disk, home, repair.plan.locks):
        repair = Repair.load(disk, repair.log)
        if repair.state == DONE:
            _check_unchanged(disk, home, repair)
        if repair.state == APPLYING:
            repair.done = _end_of_run(repair.entries, repair.done)  # the interrupted steps may be complete or partial
        _check_copies(disk, home, repair.entries[: repair.done])
        _revert(disk, home, repair)
    return repair


def _check_copies(disk: Disk, home: Path, entries: list[_Entry]) -> None:
    """Raise `DamagedJournal` if a copy that undoing these steps needs is not as it was made. Nothing is changed yet."""
    for entry in entries:
        if entry.kept:
            path = cut_directory(home) / entry.kept
            is_missing = not disk.exists(path)
            if (
                is_missing
                or disk.file_size(path) != entry.size
                or (entry.crc and _mark(disk, path) != (entry.size, entry.crc))
            ):
                what = "is missing" if is_missing else "has changed since"
                hint = "restore it to undo the repair; nothing was changed"
                raise DamagedJournal(path, 0, f"this copy of bytes that a repair has removed {what}; {hint}")


def _revert(disk: Disk, home: Path, repair: Repair) -> None:
    """Undo the steps that are done."""
    repair.state = UNDOING
    repair.save(disk)
    while repair.done > 0:
        start = _start_of_run(repair.entries, repair.done)
        _take_back(disk, home, repair.entries[start : repair.done], repair.plan.derived)
        repair.done = start
        repair.save(disk)
    for path in [_at(home, name) for name in repair.plan.derived if name not in _removed(repair.plan)]:
        if disk.exists(path):
            disk.remove(path)
            disk.sync_directory(path.parent)  # or it would be a file of something that is not there any more
    for name in repair.plan.losses_by_account():
        remove_losses(disk, _at(home, name) if name else home, repair.log.name)
    repair.state = UNDONE
    repair.save(disk)


def _end_of_run(entries: list[_Entry], start: int) -> int:
    """The end of the steps that are done together: patches of one file, with one sync and one log entry."""
    end = min(start + 1, len(entries))
    while end < len(entries) and _belong_together(entries[end - 1].step, entries[end].step):
        end += 1
    return end


def _start_of_run(entries: list[_Entry], end: int) -> int:
    start = end - 1
    while start > 0 and _belong_together(entries[start - 1].step, entries[start].step):
        start -= 1
    return start


def _belong_together(one: Step, other: Step) -> bool:
    return isinstance(one, Patch) and isinstance(other, Patch) and one.file == other.file


@contextmanager
def _locked(disk: Disk, home: Path, names: tuple[str, ...]) -> Iterator[None]:
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(Lock.acquire(disk, _at(home, name)))
        yield


def _at(home: Path, name: str) -> Path:
    """The path of a file of the journal. `WrongUse` for a name that could refer to a file outside its directory."""
    parts = name.split("/")
    if not all(parts) or any(part in (".", "..") or "\\" in part or "\0" in part for part in parts):
        raise WrongUse(f"{name!r} is not the name of a file within {home}")
    return home.joinpath(*parts)


def _changed(path: Path, what: str) -> WrongUse:
    return WrongUse(f"{path} is not what this repair left or expected: {what}; nothing more was changed")


def _removed(plan: Plan) -> set[str]:
    return {step.file for step in plan.steps if isinstance(step, Remove)}


# --- before the first change ----------------------------------------------------------------------------------------


def _check_fits(disk: Disk, home: Path, plan: Plan) -> None:
    """Raise `WrongUse` if the journal has changed since the plan, `StorageFailed` if the copies do not fit."""
    new = {step.file for step in plan.steps if isinstance(step, Create)}
    needed = 0
    for step in plan.steps:
        path = _find_misfit(disk, home, step, new, _removed(plan))
        if path is not None:
            raise WrongUse(f"{path} is not what it was when this repair was planned; plan it again")
        match step:
            case Create():
                needed += step.size
            case Remove():
                needed += disk.file_size(_at(home, step.file))
            case Cut():
                needed += step.end - step.start
    free = disk.free_bytes(home)
    if free < needed:
        reason = f"{needed} bytes are needed for copies, {free} are free"
        raise StorageFailed("repair", home, OSError(errno.ENOSPC, reason))


def _find_misfit(disk: Disk, home: Path, step: Step, new: set[str], gone: set[str]) -> Path | None:
    """The path that prevents a step, or None. `new` and `gone` are files that the plan creates and removes."""
    path = _at(home, step.file)
    match step:
        case Create():
            ends = [span.end for span in step.spans if isinstance(span, Span)]
            if ends and max(ends) > _size(disk, home, step.source):
                return _at(home, step.source)
            return path if step.file not in gone and disk.exists(path) else None
        case Rename():
            target = _at(home, step.target)
            return target if step.target not in gone and disk.exists(target) else None
        case Remove():
            return None if disk.exists(path) else path
        case Cut():
            return None if _size(disk, home, step.file) == step.end else path
        case Patch():
            fits = step.file in new or (disk.exists(path) and _holds(disk, path, step.position, step.old))
            return None if fits else path


def _size(disk: Disk, home: Path, name: str) -> int:
    path = _at(home, name)
    return disk.file_size(path) if disk.exists(path) else -1


def _holds(disk: Disk, path: Path, position: int, expected: bytes) -> bool:
    with closing(disk.open(path, "read")) as file:
        return file.read_at(position, len(expected)) == expected


def _prepare(disk: Disk, home: Path, plan: Plan) -> Repair:
    """Copy every byte that will be removed, and write the log. After this the repair can be finished or undone."""
    directory = make_cut_directory(disk, home)
    entries = [_prepare_step(disk, home, step) for step in plan.steps]
    newest = max((time_ns for time_ns, _ in _list_logs(disk, home)), default=0)
    log = directory / f"repair-{max(time.time_ns(), newest + 1)}.json"
    repair = Repair(log, replace(plan, interrupted=False), entries)
    repair.save(disk)
    return repair


def _prepare_step(disk: Disk, home: Path, step: Step) -> _Entry:
    if isinstance(step, Create):
        size, crc = 0, 0
        for data in _contents(disk, home, step):
            size, crc = size + len(data), zlib.crc32(data, crc)
        return _Entry(step, size=size, crc=crc)
    if isinstance(step, Cut | Remove):
        with closing(disk.open(_at(home, step.file), "read")) as file:
            start, end = (step.start, step.end) if isinstance(step, Cut) else (0, file.size())
            kept = keep_range(disk, home, file, start, end)
            mark = _mark(disk, kept) if end - start <= _MOST_CHECKED_BYTES else None
            return _Entry(step, kept.name, end - start, mark[1] if mark is not None else 0)
    return _Entry(step)


def _contents(disk: Disk, home: Path, step: Create) -> Generator[bytes, None, None]:
    """The bytes of a file to create, in pieces."""
    if step.spans:
        with closing(disk.open(_at(home, step.source), "read")) as file:
            for number, span in enumerate(step.spans):
                yield from (data for before, data in step.inserts if before == number)
                if isinstance(span, Span):
                    yield from _pieces(file, span.start, span.end)
                    continue
                for at in range(0, span.size, _COPY_BYTES):
                    yield bytes(min(_COPY_BYTES, span.size - at))
    if step.data:
        yield step.data


def _pieces(file: File, start: int, end: int) -> Generator[bytes, None, None]:
    while start < end and (data := file.read_at(start, min(_COPY_BYTES, end - start))):
        yield data
        start += len(data)


# --- one step forward -----------------------------------------------------------------------------------------------


def _do(disk: Disk, home: Path, entries: list[_Entry]) -> None:
    """Do a step, or a run of patches. It may be new, partial, or complete already."""
    entry = entries[0]
    step = entry.step
    path = _at(home, step.file)
    match step:
        case Cut():
            with _opened(disk, path) as file:
                size = file.size()
                if size not in (step.start, step.end) or not _is_kept(disk, home, entry, file, step.start, size):
                    raise _changed(path, f"it has {size} bytes")
                file.truncate(step.start)
                file.sync()
        case Patch():
            _overwrite(disk, path, [(one.step, one.step.new) for one in entries if isinstance(one.step, Patch)])
        case Create():
            if not disk.exists(path):
                _put(disk, path, _contents(disk, home, step))
            elif _mark(disk, path, entry.size) != (entry.size, entry.crc):
                raise _changed(path, "a file of this name has come up")
        case Remove():
            if disk.exists(path):
                with _opened(disk, path) as file:
                    if file.size() != entry.size or not _is_kept(disk, home, entry, file, 0, entry.size):
                        raise _changed(path, "it has other contents than were kept")
                disk.remove(path)
            disk.sync_directory(path.parent)
        case Rename():
            _rename(disk, path, _at(home, step.target))


def _overwrite(disk: Disk, path: Path, patches: list[tuple[Patch, bytes]]) -> None:
    """Write the old or the new bytes of patches. A torn write may have left a mixture of both."""
    with _opened(disk, path) as file:
        for step, _ in patches:
            now = file.read_at(step.position, len(step.old))
            known = zip(now, step.old, step.new, strict=False)
            if len(now) < len(step.old) or any(byte not in (old, new) for byte, old, new in known):
                raise _changed(path, f"{now.hex()} is at {step.position}")
        for step, data in patches:
            write_all(file, step.position, data)
        file.sync()


def _rename(disk: Disk, path: Path, target: Path) -> None:
    if disk.exists(path):
        if disk.exists(target):
            raise _changed(target, "a file of this name has come up")
        disk.rename(path, target)
    elif not disk.exists(target):
        raise _changed(path, "it is gone")
    disk.sync_directory(target.parent)


def _put(disk: Disk, path: Path, pieces: Generator[bytes, None, None]) -> None:
    """Create a file with these bytes, atomically and durably."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    disk.remove(temporary)
    with closing(disk.open(temporary, "create")) as file:
        position = 0
        with closing(pieces):
            for data in pieces:
                write_all(file, position, data)
                position += len(data)
        file.sync()
    disk.rename(temporary, path)
    disk.sync_directory(path.parent)


@contextmanager
def _opened(disk: Disk, path: Path) -> Iterator[File]:
    """An existing file of the journal, opened for changes."""
    if not disk.exists(path):
        raise _changed(path, "it is gone")
    with closing(disk.open(path, "update")) as file:
        yield file


def _is_kept(disk: Disk, home: Path, entry: _Entry, file: File, start: int, end: int) -> bool:
    """Whether a range of a file equals the beginning of the copy of a step."""
    with closing(disk.open(cut_directory(home) / entry.kept, "read")) as copy:
        position = 0
        for data in _pieces(file, start, end):
            if copy.read_at(position, len(data)) != data:
                return False
            position += len(data)
        return position == end - start


# --- one step back --------------------------------------------------------------------------------------------------


def _take_back(disk: Disk, home: Path, entries: list[_Entry], derived: tuple[str, ...]) -> None:
    """Undo a step, or a run of patches. It may be complete, partial, or not begun."""
    entry = entries[0]
    step = entry.step
    path = _at(home, step.file)
    match step:
        case Cut():
            _restore_tail(disk, home, entry, step)
        case Patch():
            _overwrite(disk, path, [(one.step, one.step.old) for one in entries if isinstance(one.step, Patch)])
        case Create():
            if disk.exists(path):
                if step.file not in derived and not _same_contents(disk, home, path, step):
                    raise _changed(path, "it was written to")
                disk.remove(path)
            disk.remove(path.with_name(path.name + TEMPORARY_SUFFIX))
            disk.sync_directory(path.parent)
        case Remove():
            if disk.exists(path) and step.file not in derived:
                with _opened(disk, path) as file:
                    if file.size() != entry.size or not _is_kept(disk, home, entry, file, 0, entry.size):
                        raise _changed(path, "a file of this name has come up")
            _put(disk, path, _kept_pieces(disk, home, entry))
        case Rename():
            if not disk.exists(path):
                _rename(disk, _at(home, step.target), path)


def _restore_tail(disk: Disk, home: Path, entry: _Entry, step: Cut) -> None:
    """Rebuild a file from what is left of it and the bytes that were cut off.

    The bytes are not appended in place: a power cut could leave noise there, which the next attempt could not
    distinguish from bytes that another program appended.
    """
    path = _at(home, step.file)
    with _opened(disk, path) as file:
        size = file.size()
        if size not in (step.start, step.end) or not _is_kept(disk, home, entry, file, step.start, size):
            raise _changed(path, f"it has {size} bytes, and others than were cut off")
        if size < step.end:
            _put(disk, path, _rejoined(disk, home, entry, file, step.start))


def _rejoined(disk: Disk, home: Path, entry: _Entry, file: File, end: int) -> Generator[bytes, None, None]:
    yield from _pieces(file, 0, end)
    yield from _kept_pieces(disk, home, entry)


def _kept_pieces(disk: Disk, home: Path, entry: _Entry) -> Generator[bytes, None, None]:
    with closing(disk.open(cut_directory(home) / entry.kept, "read")) as copy:
        if copy.size() != entry.size:
            raise DamagedJournal(copy.path, copy.size(), f"this copy had {entry.size} bytes when it was made")
        yield from _pieces(copy, 0, entry.size)


def _same_contents(disk: Disk, home: Path, path: Path, step: Create) -> bool:
    """Whether a file that a step created still has the contents of that step."""
    with closing(disk.open(path, "read")) as file:
        position = 0
        with closing(_contents(disk, home, step)) as pieces:
            for data in pieces:
                if file.read_at(position, len(data)) != data:
                    return False
                position += len(data)
        return position == file.size()


# --- has it changed since? ------------------------------------------------------------------------------------------


def _mark(disk: Disk, path: Path, most: int | None = None) -> tuple[int, int] | None:
    """Size and CRC-32 of a file, or of its first `most` bytes; None if it does not exist."""
    if not disk.exists(path):
        return None
    with closing(disk.open(path, "read")) as file:
        size = file.size() if most is None else min(most, file.size())
        crc = 0
        for data in _pieces(file, 0, size):
            crc = zlib.crc32(data, crc)
        return size, crc


def _look(disk: Disk, home: Path, repair: Repair) -> dict[str, tuple[int, int] | None]:
    """The current size and checksum of the files of a repair, apart from derived ones."""
    names = {step.file for step in repair.plan.steps} | set(repair.plan.guarded)
    names |= {step.target for step in repair.plan.steps if isinstance(step, Rename)}
    marks = {name: _mark(disk, _at(home, name)) for name in sorted(names.difference(repair.plan.derived))}
    for entry in repair.entries:
        made = marks.get(entry.step.file) if isinstance(entry.step, Create) else None
        if made is not None:
            marks[entry.step.file] = (entry.size, made[1])  # a longer file was appended to: then it has changed
    return marks


def _check_unchanged(disk: Disk, home: Path, repair: Repair) -> None:
    for name, mark in repair.after.items():
        if _mark(disk, _at(home, name)) != mark:
            raise WrongUse(
                f"{_at(home, name)} was changed since the repair in {repair.log.name}; taking that back would lose it"
            )
