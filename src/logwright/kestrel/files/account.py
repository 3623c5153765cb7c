"""The account of a damaged queue: what its gaps may have held, which items that concerns, and what keeps it aligned.

A queue is replayed by position: a REMOVE takes whatever is at the head. Where an item is lost, a later removal would
take the item after it, which may be live. So a repair puts placeholders where items are missing: as many as the gap has
room for, and no more than later removals take. A placeholder is an empty ADDX of 1970 that has expired, so that it is
never delivered. With them no item is taken by a removal that was meant for a lost one; instead finished items may
be delivered again.

What is known of a gap decides what is said of it:

    exactly one damaged item    it is lost, and one placeholder keeps all others as they were
    only missing bytes          (see `note.py`) at least one operation is lost, and at most one for each byte, anywhere
                                in the file. For the items it is as below, from the beginning of the file on
    anything else               it is not known how many operations are lost, nor which. Any live item may be
                                finished already, the first ones most likely; any item that was finished after the gap
                                may be live, as an operation that closes a transaction may have closed another one, and
                                bytes may be missing that no one can count

Fields of a loss, with places as `FILE@POSITION` before the repair:

    item            place, added and xid of a damaged item, and its state: waiting, reserved or finished
    suspect         the item before the range: its last bytes may be damaged
    placeholders    how many were put in
    live, again     how many items are live, and the places of those that may be finished already, from the head on
    finished, gone  how many were finished after the gap, and the places of those that may be live, the latest first
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ...core.repair.losses import MOST_LISTED, Loss, listed
from ..bytes import codec
from ..bytes.layout import (
    ADD_HEAD,
    ADD_XID,
    ADDX,
    ADDX_HEAD,
    DOCUMENTED,
    PLACEHOLDER_ADDED,
    PLACEHOLDER_EXPIRES,
    REMOVE,
    REMOVE_TENTATIVE,
    REMOVE_TENTATIVE_XID,
)
from ..bytes.records import OPS, Operation
from ..model.replay import EVENTS, Replay
from .salvage import FileSalvage, Gap
from .survey import read_operation

MOST_PLACES: Final = 1000
"""How many places a list of a loss has."""
PLACEHOLDER: Final = Operation("addx", added=PLACEHOLDER_ADDED, expires=PLACEHOLDER_EXPIRES, data=b"")
_TAKES: Final = (REMOVE, REMOVE_TENTATIVE, REMOVE_TENTATIVE_XID)
_PREVIEW_BYTES: Final = 32
_SHORT_BYTES: Final = 16
"""How much of its data names an item in a list."""
_MOST_NAMED: Final = MOST_LISTED // 2
"""How many items a list of a text has: there are two of them."""
_GAP_BITS: Final = 32


class _Item(NamedTuple):
    """Where an item was added: the file by its index, and the position there, which is negative for a placeholder."""

    file: int
    position: int


class _Ledger:
    """A replay that knows where its items are, and which of them were finished since `is_noting` was set."""

    def __init__(self) -> None:
        self._replay = Replay()
        self._file = 0
        self._files, self._positions = array("i"), array("q")
        self.is_noting = False
        self.finished = 0
        self.taken: set[int] = set()
        """The placeholders, by their positions, that were removed or reserved, even if they were put back."""
        self.latest: deque[_Item] = deque(maxlen=MOST_PLACES)

    def begin_file(self, file: int) -> None:
        self._file = file
        self._replay.begin_file(file)

    def add(self, kinds: bytes, numbers: Sequence[int], positions: Sequence[int]) -> None:
        for row, number, what, _ in zip(*self._replay.changes(kinds, numbers), strict=True):
            if EVENTS[what] == "added":
                self._files.append(self._file)
                self._positions.append(positions[row])
            elif self._positions[number] < 0:
                self.taken.add(self._positions[number])
            elif self.is_noting and EVENTS[what] in ("removed", "finished"):
                self.finished += 1
                self.latest.append(self._item(number))

    def items(self) -> list[_Item]:
        """The items that wait, from head to tail."""
        return [self._item(number) for number in self._replay.items()]

    def open(self) -> list[_Item]:
        """The reserved items, in the order in which they were reserved."""
        return [self._item(number) for _, number, _ in self._replay.open()]

    def _item(self, number: int) -> _Item:
        return _Item(self._files[number], self._positions[number])


@dataclass(slots=True)
class _Placed:
    """A gap with its file, how many placeholders it can take, and how many it gets."""

    file: int
    gap: Gap
    salvage: FileSalvage
    room: int = 0
    used: int = 0
    state: str = "finished"
    """What became of a placeholder for a single item."""

    @property
    def is_exact(self) -> bool:
        """Whether exactly one item is missing, and nothing else."""
        return self.gap.is_one_item and (self.gap.xid is None or self.salvage.dialect == DOCUMENTED)

    @property
    def placeholder(self) -> Operation:
        xid = self.gap.xid
        if self.is_exact and xid is not None:
            return Operation("add_xid", xid, added=PLACEHOLDER_ADDED, expires=PLACEHOLDER_EXPIRES, data=b"")
        return PLACEHOLDER


@dataclass(slots=True)
class Account:
    """The files of a queue, gone through, and what is to be said of them."""

    salvages: Sequence[FileSalvage]
    placed: list[_Placed] = field(default_factory=list)

    def __post_init__(self) -> None:
        for file, salvage in enumerate(self.salvages):
            self.placed += [_Placed(file, gap, salvage) for gap in salvage.gaps]

    def inserted(self, file: int, number: int) -> bytes:
        """What stands in the place of a gap of a file."""
        gap = self.salvages[file].gaps[number]
        (placed,) = (one for one in self.placed if one.gap is gap)
        return codec.encode(placed.placeholder) * placed.used

    def settle(self) -> list[Loss]:
        """Decide on the placeholders; the losses."""
        if self.placed:
            self._find_room()
            ledger = self._replay()
            waiting = {_gap_of(item.position) for item in ledger.items()}
            opened = {_gap_of(item.position) for item in ledger.open()}
            for number, placed in enumerate(self.placed):
                placed.used = sum(_gap_of(position) == number for position in ledger.taken)
                if number in waiting or not placed.used:
                    placed.state = "waiting"
                elif number in opened:
                    placed.state = "reserved"
            losses = [self._loss(placed) for placed in self.placed]
            unsure = [number for number, placed in enumerate(self.placed) if not placed.is_exact]
            if unsure:
                losses[unsure[0]] = self._with_effect(losses[unsure[0]], ledger)
        else:
            losses = []
        return losses + [_restored(salvage) for salvage in self.salvages if salvage.fix is not None]

    def _find_room(self) -> None:
        least = ADD_HEAD.size if any(salvage.has_adds for salvage in self.salvages) else ADDX_HEAD.size
        takes = 0
        following = len(self.placed)
        for file in reversed(range(len(self.salvages))):
            salvage = self.salvages[file]
            for number in reversed(range(len(salvage.stretches))):
                if number < len(salvage.gaps):
                    following -= 1
                    placed = self.placed[following]
                    room = 1 if placed.gap.is_one_item else placed.gap.most_bytes // least
                    placed.room = min(room, takes)
                for chunk in salvage.chunks(salvage.stretches[number]):
                    kinds = chunk.effects()[0]
                    takes += sum(kinds.count(kind) for kind in _TAKES)

    def _replay(self) -> _Ledger:
        ledger = _Ledger()
        gap = 0
        for file, salvage in enumerate(self.salvages):
            ledger.begin_file(file)
            ledger.is_noting = ledger.is_noting or any(one.missing for one in salvage.gaps)
            for number, stretch in enumerate(salvage.stretches):
                for chunk in salvage.chunks(stretch):
                    ledger.add(*chunk.effects())
                if number < len(salvage.gaps):
                    placed = self.placed[gap]
                    ledger.is_noting = ledger.is_noting or not placed.is_exact
                    kind, xid = OPS[placed.placeholder.op], placed.placeholder.xid or 0
                    places = [-1 - (gap << _GAP_BITS) - one for one in range(placed.room)]
                    ledger.add(bytes([kind]) * placed.room, array("i", [xid]) * placed.room, places)
                    gap += 1
        return ledger

    # --- in words -----------------------------------------------------------------------------------------------------

    def _loss(self, placed: _Placed) -> Loss:
        gap, name = placed.gap, placed.salvage.source.name
        fields: dict[str, Any] = {"placeholders": placed.used}
        if gap.is_one_item:
            at_most: int | None = 1
            what = f"the item {self._damaged_item(placed)}, which was {placed.state}"
            fields["item"] = {"place": f"{name}@{gap.start}", "added": gap.added, "xid": gap.xid, "state": placed.state}
        elif gap.missing:
            at_most = gap.most_bytes if gap.missing > 0 and len(placed.salvage.gaps) == 1 else None
            what = f"operations in {gap.missing} missing bytes: {_room_of(gap.most_bytes)}"
            if gap.missing < 0:
                what = f"an unknown number of operations: {-gap.missing} bytes too many are in the file"
        else:
            at_most = None
            bad = gap.damage.size
            doubted = f" and {gap.doubted} operations before them that cannot be trusted" if gap.doubted else ""
            what = f"operations in {bad} bytes that cannot be read{doubted}: {_room_of(bad)}"
            if gap.size == placed.salvage.size and placed.salvage.is_zeros():
                what += "; all of it is zeros: if the file was never synced, as before a crash, nothing durable is lost"
        what += self._suspect(placed.salvage, gap.suspect, fields)
        at_least = 1 if gap.is_one_item or at_most is not None else 0
        return Loss(name, gap.start, gap.size, at_least, at_most, what, gap.damage.reason, fields=fields)

    def _damaged_item(self, placed: _Placed) -> str:
        gap = placed.gap
        head = ADDX_HEAD.size if gap.xid is None else ADDX_HEAD.size + 4
        size = min(_PREVIEW_BYTES, max(0, gap.damage.end - gap.damage.start - head))
        data = placed.salvage.view.read_at(gap.damage.start + head, size)
        return _in_words(data, gap.added, gap.xid or 0)

    def _suspect(self, salvage: FileSalvage, suspect: int | None, fields: dict[str, Any]) -> str:
        if suspect is None:
            return ""
        fields["suspect"] = f"{salvage.source.name}@{suspect}"
        return f"; the item before it, {self._item_at(salvage, suspect)}, may have damaged data"

    def _with_effect(self, loss: Loss, ledger: _Ledger) -> Loss:
        """A loss with the items that it may concern."""
        live = [item for item in (*ledger.open(), *ledger.items()) if item.position >= 0]
        unsure = [placed for placed in self.placed if not placed.is_exact]
        removals = sum(one.gap.damage.size + abs(one.gap.missing) + one.gap.doubted + one.used for one in unsure)
        likely = live[: min(len(live), removals + len(ledger.open()))]
        texts = [loss.what]
        if likely:
            names = listed(map(self._name, likely), len(likely), _MOST_NAMED)
            texts.append(f"of {len(live)} live items these may be finished already: {names}")
        if ledger.finished:
            latest = list(ledger.latest)[::-1]
            names = listed(map(self._name, latest), ledger.finished, _MOST_NAMED)
            texts.append(f"if bytes are missing, items that were finished after it may be live: {names}")
        fields = {
            **loss.fields,
            "live": len(live),
            "again": [self._place(item) for item in live[:MOST_PLACES]],
            "finished": ledger.finished,
            "gone": [self._place(item) for item in list(ledger.latest)[::-1]],
        }
        return Loss(
            loss.file, loss.position, loss.bytes, loss.at_least, loss.at_most, "; ".join(texts), loss.reason,
            fields=fields,
        )  # fmt: skip

    def _place(self, item: _Item) -> str:
        return f"{self.salvages[item.file].source.name}@{item.position}"

    def _name(self, item: _Item) -> str:
        """An item in a list: the beginning of its data where that is text, else its place."""
        salvage = self.salvages[item.file]
        found = read_operation(salvage.view, salvage.source, item.position, salvage.dialect)
        data = found.data or b""
        is_text = data[:_SHORT_BYTES].isascii() and data[:_SHORT_BYTES].decode("ascii").isprintable()
        return _shown(data, _SHORT_BYTES) if is_text else f"{len(data)} bytes at {self._place(item)}"

    def _item_at(self, salvage: FileSalvage, position: int) -> str:
        found = read_operation(salvage.view, salvage.source, position, salvage.dialect)
        return _in_words((found.data or b"")[: _PREVIEW_BYTES + 1], found.added or None, 0)


def _gap_of(position: int) -> int:
    return (-1 - position) >> _GAP_BITS


def _room_of(size: int) -> str:
    items = size // ADDX_HEAD.size
    removed = f"the removal of up to {size} item{'' if size == 1 else 's'}"
    return removed if not items else f"up to {items} item{'' if items == 1 else 's'}, or {removed}"


def _shown(data: bytes, most: int) -> str:
    return repr(data[:most])[1:] + ("…" if len(data) > most else "")


def _in_words(data: bytes, added: int | None, xid: int) -> str:
    when = ""
    if added is not None and codec.is_plausible(added, 0, anytime=True):
        moment = datetime.fromtimestamp(added / 1000, UTC)
        when = f" added {moment:%Y-%m-%dT%H:%M:%S}.{added % 1000:03}Z"
    return f"{_shown(data, _PREVIEW_BYTES)}{when}{f' (xid {xid})' if xid else ''}"


def _restored(salvage: FileSalvage) -> Loss:
    fix = salvage.fix
    assert fix is not None
    name = salvage.source.name
    fields: dict[str, Any] = {"item": {"place": f"{name}@{fix.start}"}, "old": fix.old.hex(), "new": fix.new.hex()}
    what = f"the {fix.field} of the item at {fix.start}"
    if fix.field == "size":
        what += ", whose time may be damaged"
    if salvage.suspect is not None:
        fields["suspect"] = f"{name}@{salvage.suspect}"
        what += f"; the item before it, at {salvage.suspect}, may have damaged data"
    reason = f"no other change of one field explains the bytes from {fix.start} to the end of the file"
    return Loss(name, fix.position, len(fix.new), 0, 0, what, reason, kind="restored", fields=fields)


assert len(codec.encode(PLACEHOLDER)) == ADDX_HEAD.size
assert (OPS["addx"], OPS["add_xid"]) == (ADDX, ADD_XID)
