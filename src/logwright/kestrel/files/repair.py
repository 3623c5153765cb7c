"""Repairing the journal of a queue: what to do about each kind of damage. `core.repair` does it, and takes it back.

    a torn tail                     is cut off
    an opcode or a size of an item  is restored where nothing else explains the bytes (see `salvage.py`)
    other bad bytes                 are taken out: the file is rebuilt from the whole operations around them, with
                                    placeholders where items are missing (see `account.py`)
    an empty pack from elsewhere,   is removed: what it would replace counts again
      or a damaged one of ours
    a rotated file that is missing  its loss is accepted, so that the queue can be opened again
    one that has another size       the same, with placeholders where items are missing
    files whose names were          get their own names again, if their sizes show which they are
      exchanged
    a newest file that is missing   an empty one is created
    a file that cannot be read      stays, and so does the whole queue: what its operations did is unknown
    a directory instead of a note   stays, and so does the whole queue: no writer could open it
    a rotated file of another size  stays, and so does the whole queue, if the newest one has the noted size: nothing
                                    proves that their names were exchanged
    two files of one number         stay: a person who knows where they came from must move one away

Every byte that is taken out is kept in `.logwright/cut/`, and the account of losses says what that concerns.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from ...core.io.disk import Disk
from ...core.repair.losses import Loss
from ...core.repair.plan import Create, Cut, Patch, Plan, Remove, Rename, Repair, Step
from ...core.repair.side_by_side import SideBySideRepair
from ...errors import DamagedJournal, LogwrightError, WrongUse, is_refusal
from ..bytes.layout import PACK_SUFFIX, TEMPORARY, lock_name, parse_name, rotated_note_name
from .account import MOST_PLACES, Account
from .files import BAD_PACKS, JournalFile, Lost, list_queues
from .note import blocked_notes, pack_note, packed_note, rotated_files
from .reader import Reader
from .salvage import FileSalvage

__all__ = ["Plan", "Repair", "apply", "plan", "undo"]

_ORDER: Final = {Remove: 1, Rename: 2}
"""The order of the steps for exchanged files: all contents are copied before a file is removed."""
_OWN_SIZE: Final = "only with these names each of the files has the size that it had when it was rotated"


def _readers(path: Path, disk: Disk) -> list[Reader]:
    if disk.is_directory(path):
        return [Reader(path / queue, disk=disk) for queue in list_queues(disk, path)]
    reader = Reader(path, disk=disk)
    parsed = parse_name(path.name)
    if reader.is_single_file and parsed is not None and disk.exists(path.with_name(parsed[0])):
        raise WrongUse(f"{path} is a part of the queue {path.with_name(parsed[0])}: repair that")
    return [reader]


def _plan(reader: Reader) -> Plan:
    """What to do about one queue."""
    pack = reader.listing().pack
    reason = "" if pack is None else _useless(reader, pack)
    if pack is None or not reason:
        return _plan_files(reader)
    found = _plan_files(reader.without(pack.name))
    is_blocked = bool(found.left) and not found.steps
    return found if is_blocked else replace(found, steps=(Remove(pack.name, reason), *found.steps))


def _useless(reader: Reader, pack: JournalFile) -> str:
    """Why a pack is removed: it is damaged, and all that it would replace is there. Empty if it is kept."""
    if pack.flaw is not None and pack.flaw.kind in BAD_PACKS:
        return pack.flaw.reason
    note = pack_note(reader.disk, reader.directory, reader.queue)
    if note.timestamp != pack.timestamp or not note.replaces <= set(reader.listing().dead):
        return ""
    try:
        with reader.snapshot() as files:
            for _ in reader.for_check().file_chunks(pack, files.file(pack), None, None, "failfast", load=False):
                pass
    except DamagedJournal as damage:
        return f"{damage.reason}; the files that it would replace are there"
    except LogwrightError:
        pass  # it cannot be read
    return ""


def _plan_files(reader: Reader) -> Plan:
    """What to do about the files of one queue. They are looked at together, as they are replayed."""
    left: list[str] = []
    salvages: list[FileSalvage] = []
    steps: list[Step] = []
    disk, directory = reader.disk, reader.directory
    locks = () if reader.is_single_file else (lock_name(reader.part),)
    lost = {one.name: one for one in reader.lost_files()}
    blocked = {} if reader.is_single_file else blocked_notes(disk, directory, reader.queue)
    blocking = [f"{name} @ 0: {reason}" for name, reason in blocked.items()]
    origins = {one.exchanged_with: one.name for one in lost.values() if one.exchanged_with}
    reader = reader.for_check()
    with reader.snapshot() as files:
        sources = {source.name: source for source in files.files}
        for source in files.files:
            flaw = source.flaw
            if flaw is not None:
                left.append(f"{flaw.file} @ {flaw.start}: {flaw.reason}")
            contents = sources[origins.get(source.name, source.name)]
            try:
                salvage = FileSalvage(source, files.file(contents), reader.verdict)
                salvage.walk()
                salvages.append(salvage)
            except LogwrightError as error:
                if is_refusal(error):
                    raise
                blocking.append(f"{contents.name} @ 0: {error}")
        if not origins:
            damaged = {salvage.source.name for salvage in salvages if salvage.gaps}
            lost = {one.name: one for one in reader.lost_files(damaged)}
        blocking += [f"{one.name} @ 0: {one.reason}; {one.consequence}" for one in lost.values() if one.newest]
        if blocking:
            return Plan("kestrel", left=(*left, *blocking), locks=locks)
        for salvage in salvages:
            if salvage.source.name in lost.keys() - origins.keys():
                salvage.note_size(lost[salvage.source.name])
        account = Account(salvages)
        losses = tuple(replace(loss, part=reader.part) for loss in account.settle())
    steps += _steps_of_all(salvages, account, origins)
    losses += (_exchange([one for one in lost.values() if one.name in origins], reader.part),) if origins else ()
    missing = [one for one in lost.values() if one.size is None]
    losses += tuple(_missing(one, reader) for one in missing)
    if any(one.name == reader.queue for one in missing):
        steps.append(Create(reader.queue, "", (), "an empty file to continue with"))
    if not reader.is_single_file:
        sizes = {one.source.name: _new_size(one, number, account) for number, one in enumerate(salvages)}
        changed = [one.source.name for one in salvages if one.source.name in lost or sizes[one.source.name] != one.size]
        steps += _note_steps(reader, missing, {name.removesuffix(PACK_SUFFIX): sizes[name] for name in changed})
    return Plan("kestrel", tuple(steps), left=tuple(left), locks=locks, losses=losses)


def _missing(lost: Lost, reader: Reader) -> Loss:
    """The loss of a file that is not there."""
    state = reader.queue_state()
    live = [*state.open, *state.items]
    what = (
        f"all operations of this file: any of the {len(live)} live items may be finished already, any other may be live"
    )
    fields = {"live": len(live), "again": [item.place for item in live[:MOST_PLACES]]}
    size = lost.noted or 0
    return Loss(lost.name, 0, size, lost.at_least, lost.at_most, what, lost.reason, part=reader.part, fields=fields)


def _note_steps(reader: Reader, missing: list[Lost], sizes: dict[str, int]) -> list[Step]:
    """The steps that let the note of rotated files have their sizes after the repair."""
    name = rotated_note_name(reader.queue)
    noted = rotated_files(reader.disk, reader.directory, reader.queue)
    gone = {one.name for one in missing}
    new = {file: sizes.get(file, size) for file, size in noted.items() if file not in gone}
    if new == noted:
        return []
    return [
        Remove(name, "the rotated files are others now"),
        Create(name, "", (), "the rotated files with their sizes", packed_note(new)),
    ]


def _new_size(salvage: FileSalvage, file: int, account: Account) -> int:
    """The size of a file after the steps."""
    inserted = sum(len(account.inserted(file, number)) for number in range(len(salvage.gaps)))
    return sum(span.size for span in salvage.stretches) + inserted


def _exchange(files: list[Lost], part: str) -> Loss:
    """The account of files that get their own names again."""
    *names, last = [one.name for one in files]
    what = f"the names of {', '.join(names)} and {last}, which were exchanged"
    contents = {one.name: one.exchanged_with for one in files}
    size = sum(one.size or 0 for one in files)
    return Loss(names[0], 0, size, 0, 0, what, _OWN_SIZE, "restored", part=part, fields={"contents": contents})


def _steps_of_all(salvages: list[FileSalvage], account: Account, origins: dict[str, str]) -> list[Step]:
    """The steps for all files. `origins` has the file with the contents of each one that was exchanged."""
    steps: list[Step] = []
    moves: list[Step] = []
    for number, salvage in enumerate(salvages):
        origin = origins.get(salvage.source.name, "")
        (moves if origin else steps).extend(_steps(salvage, number, account, origin))
    return steps + sorted(moves, key=lambda step: _ORDER.get(type(step), 0))


def _steps(salvage: FileSalvage, file: int, account: Account, origin: str = "") -> list[Step]:
    """The steps that leave whole operations only. `origin` is the file that has the contents, if it is another one."""
    name, gaps, stretches = salvage.source.name, salvage.gaps, salvage.stretches
    inserts = [(number + 1, account.inserted(file, number)) for number in range(len(gaps))]
    inserts = [(number, data) for number, data in inserts if data]
    at_end = b"".join(data for number, data in inserts if number == len(stretches))
    if len(stretches) == 1 and not at_end and not origin:
        end, reason = stretches[0].end, salvage.torn.reason if salvage.torn else gaps[0].damage.reason if gaps else ""
        return [
            *_patches(salvage, name, inserts),
            *([Cut(name, end, salvage.size, reason)] if end < salvage.size else []),
        ]
    replacement = f"{salvage.source.queue}{TEMPORARY}repair-{name}"
    between = tuple((number, data) for number, data in inserts if number < len(stretches))
    if origin:
        why, reason, place = f"the contents of {origin}: {_OWN_SIZE}", _OWN_SIZE, "the other file"
    else:
        why, reason = "the whole operations before and after the damage", gaps[0].damage.reason
        place = "the damaged file"
    return [
        Create(replacement, origin or name, tuple(stretches), why, at_end, between),
        *_patches(salvage, replacement, inserts),
        Remove(name, reason),
        Rename(replacement, name, f"it takes the place of {place}"),
    ]


def _patches(salvage: FileSalvage, name: str, inserts: list[tuple[int, bytes]]) -> list[Step]:
    """The restored field, where its bytes are in a file that is rebuilt from the stretches."""
    fix = salvage.fix
    if fix is None:
        return []
    number = next(number for number, span in enumerate(salvage.stretches) if span.start <= fix.position < span.end)
    before = sum(span.size for span in salvage.stretches[:number])
    at = before + sum(len(data) for preceding, data in inserts if preceding <= number) - salvage.stretches[number].start
    return [Patch(name, at + fix.position, fix.old, fix.new, fix.reason)]


# --- the verbs ------------------------------------------------------------------------------------------------------


REPAIRS: Final = SideBySideRepair("kestrel", list_queues, "no queues are here", _readers, _plan)
plan, apply, undo = REPAIRS.plan, REPAIRS.apply, REPAIRS.undo
