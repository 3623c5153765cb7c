"""Repairing the journal of a queue: what to do about each kind of damage. `core.repair` does it, and takes it back.

    a torn tail                     is cut off
    an opcode or a size of an item  is restored where nothing else explains the bytes (see `salvage.py`)
    other bad bytes                 are taken out: the file is rebuilt from the whole operations around them, with
                                    placeholders where items are missing (see `account.py`)
    an empty pack from elsewhere    is removed: what it would replace counts again
    a rotated file that is missing  its loss is accepted, so that the queue can be opened again
    two files of one number         stay: a person who knows where they came from must move one away

Every byte that is taken out is kept in `.logwright/cut/`, and the account of losses says what that concerns.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from ...core.bytes.outcome import Span
from ...core.io.disk import Disk
from ...core.repair.losses import Loss
from ...core.repair.plan import Create, Cut, Patch, Plan, Remove, Rename, Repair, Step
from ...core.repair.side_by_side import SideBySideRepair
from ...errors import LogwrightError, WrongUse, is_refusal
from ..bytes.layout import TEMPORARY, lock_name, parse_name, rotated_note_name
from .account import MOST_PLACES, Account
from .files import list_queues, lost_files
from .reader import Reader
from .salvage import FileSalvage

__all__ = ["Plan", "Repair", "apply", "plan", "undo"]


def _readers(path: Path, disk: Disk) -> list[Reader]:
    if disk.is_directory(path):
        return [Reader(path / queue, disk=disk) for queue in list_queues(disk, path)]
    reader = Reader(path, disk=disk)
    parsed = parse_name(path.name)
    if reader.is_single_file and parsed is not None and disk.exists(path.with_name(parsed[0])):
        raise WrongUse(f"{path} is a part of the queue {path.with_name(parsed[0])}: repair that")
    return [reader]


def _plan(reader: Reader) -> Plan:
    """What to do about one queue. Its files are looked at together, as they are replayed."""
    left: list[str] = []
    salvages: list[FileSalvage] = []
    steps: list[Step] = []
    with reader.snapshot() as files:
        for source in files.files:
            flaw = source.flaw
            if flaw is not None and flaw.kind == "empty_pack":
                steps.append(Remove(source.name, flaw.reason))
                continue
            if flaw is not None:
                left.append(f"{flaw.file} @ {flaw.start}: {flaw.reason}")
            try:
                salvage = FileSalvage(source, files.file(source), reader.verdict)
                salvage.walk()
                salvages.append(salvage)
            except LogwrightError as error:
                if is_refusal(error):
                    raise
                left.append(f"{source.name} @ 0: {error}")
        account = Account(salvages)
        losses = tuple(replace(loss, part=reader.part) for loss in account.settle())
    for number, salvage in enumerate(salvages):
        steps += _steps(salvage, number, account)
    lost = {} if reader.is_single_file else lost_files(reader.disk, reader.directory, reader.queue, reader.listing())
    if lost:
        losses += tuple(_missing(name, size, reader) for name, size in lost.items())
        steps.append(Remove(rotated_note_name(reader.queue), "it names files that are missing"))
    locks = () if reader.is_single_file else (lock_name(reader.part),)
    return Plan("kestrel", tuple(steps), left=tuple(left), locks=locks, losses=losses)


def _missing(name: str, size: int, reader: Reader) -> Loss:
    """The loss of a rotated file that is not there."""
    state = reader.queue_state()
    live = [*state.open, *state.items]
    what = (
        f"all operations of this file: any of the {len(live)} live items may be finished already, any other may be live"
    )
    fields = {"live": len(live), "again": [item.place for item in live[:MOST_PLACES]]}
    return Loss(name, 0, size, 1, size, what, "the file is missing", part=reader.part, fields=fields)


def _steps(salvage: FileSalvage, file: int, account: Account) -> list[Step]:
    """The steps that leave whole operations only."""
    name, gaps, stretches = salvage.source.name, salvage.gaps, salvage.stretches
    inserts = [(number + 1, account.inserted(file, number)) for number in range(len(gaps))]
    inserts = [(number, data) for number, data in inserts if data]
    at_end = b"".join(data for number, data in inserts if number == len(stretches))
    if len(stretches) == 1 and not at_end:
        end, reason = stretches[0].end, salvage.torn.reason if salvage.torn else gaps[0].damage.reason if gaps else ""
        return [
            *_patches(salvage, name, inserts),
            *([Cut(name, end, salvage.size, reason)] if end < salvage.size else []),
        ]
    replacement = f"{salvage.source.queue}{TEMPORARY}repair-{name}"
    between = tuple((number, data) for number, data in inserts if number < len(stretches))
    why = "the whole operations before and after the damage"
    return [
        Create(replacement, name, tuple(stretches), why, at_end, between),
        *_patches(salvage, replacement, inserts),
        Remove(name, gaps[0].damage.reason),
        Rename(replacement, name, "it takes the place of the damaged file"),
    ]


def _patches(salvage: FileSalvage, name: str, inserts: list[tuple[int, bytes]]) -> list[Step]:
    """The restored field, where its bytes are in a file that is rebuilt from the stretches."""
    fix = salvage.fix
    if fix is None:
        return []
    before: list[Span] = salvage.stretches[:-1]
    at = sum(span.size for span in before) + sum(len(data) for _, data in inserts) - salvage.stretches[-1].start
    return [Patch(name, at + fix.position, fix.old, fix.new, fix.reason)]


# --- the verbs ------------------------------------------------------------------------------------------------------


REPAIRS: Final = SideBySideRepair("kestrel", list_queues, "no queues are here", _readers, _plan)
plan, apply, undo = REPAIRS.plan, REPAIRS.apply, REPAIRS.undo
