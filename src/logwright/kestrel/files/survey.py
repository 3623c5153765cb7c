"""Survey: the files of a queue read once, so that it is known what is in the queue and where.

Reading them costs no memory but a few numbers for every 256 KiB, and what the replay remembers (see `model/rules.py`).
An item is then found by its number: the piece of a file that it is in is read again. The items of the run, which are
consecutive, are returned piece by piece.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from ...core.bytes.outcome import Damage, Mode
from ...core.io.disk import File
from ...errors import DamagedJournal, TooLarge, WrongUse
from ..bytes import codec, kernel
from ..bytes.layout import ADD_XID, DATA_HEAD_BYTES, LONGEST_HEAD_BYTES, REMOVE_TENTATIVE, STATE_DUMP
from ..bytes.records import Operation
from ..model.replay import QueueItem, Replay
from .cursor import Chunk, Cursor
from .files import JournalFile, OpenFiles

if TYPE_CHECKING:
    from .reader import Reader

_READ_ITEM_BYTES: Final = 512


class Effects(NamedTuple):
    """The operations of a chunk as far as they count. `is_last` says that a state dump ends the file after them."""

    kinds: bytes
    numbers: array[int]
    positions: array[int]
    end: int
    is_last: bool

    def adds(self) -> list[int]:
        """The rows that add an item."""
        return [row for row, kind in enumerate(self.kinds) if kind in DATA_HEAD_BYTES]

    def data_bytes(self, row: int) -> int:
        """How much data the item of a row has."""
        stop = self.positions[row + 1] if row + 1 < len(self.positions) else self.end
        return stop - self.positions[row] - DATA_HEAD_BYTES[self.kinds[row]]


def effects_of(chunk: Chunk) -> Effects:
    """The operations of a chunk up to a state dump."""
    kinds, numbers, positions = chunk.effects()
    dump = kinds.find(STATE_DUMP)
    if dump < 0:
        return Effects(kinds, numbers, positions, chunk.end, False)
    return Effects(kinds[:dump], numbers[:dump], positions[:dump], positions[dump], True)


def _reserves_by_position(kinds: bytes) -> bool:
    """Whether an item is reserved as the dialect `documented` does it: our writers of kestrel2 never do."""
    return REMOVE_TENTATIVE in kinds or ADD_XID in kinds


class Place(NamedTuple):
    """Where an item is: the file by its index, the position there, and how much data was added before it."""

    file: int
    position: int
    bytes_before: int


class Survey:
    """The files as they were when this was made. They must stay open for as long as items are asked for."""

    def __init__(
        self,
        reader: Reader,
        files: OpenFiles,
        at: int | None = None,
        *,
        mode: Mode = "failfast",
        watch: tuple[int, int] | None = None,
        on_damage: Callable[[Damage], None] | None = None,
        go_on: Callable[[], None] = lambda: None,
    ) -> None:
        """Read the operations before the number `at`. What becomes of damage is a question of the mode.

        `watch` is the place of an item whose events are wanted. `go_on` is called for every chunk.
        """
        self.replay = Replay(watch)
        self.reserves_by_position = False
        """Whether something shows the dialect `documented` although there is no 8."""
        self.files = files
        self.ends = [0] * len(files.files)
        """Where the operations of each file end."""
        self._items, self._bytes = array("q"), array("q")
        self._files, self._positions = array("q"), array("q")
        indexes = {source.name: index for index, source in enumerate(files.files)}
        current = ""
        for chunk in chain(reader.half_repaired(mode), reader.snapshot_chunks(files, None, at, mode, load=False)):
            if isinstance(chunk, Damage):
                if on_damage is not None:
                    on_damage(chunk)
                continue
            if chunk.file != current:
                current = chunk.file
                self.replay.begin_file(indexes[current])
            self._add(indexes[current], chunk)
            if at is not None and chunk.source.first_number + chunk.end > at:
                start, position = chunk.starts()[-2], at - chunk.source.first_number
                raise WrongUse(f"{chunk.file}@{position} is within an operation: that begins at {chunk.file}@{start}")
            go_on()
        self.dialect = reader.verdict.dialect

    def _add(self, index: int, chunk: Chunk) -> None:
        self._items.append(self.replay.added)
        self._bytes.append(self.replay.added_bytes)
        self._files.append(index)
        self._positions.append(chunk.position)
        kinds, numbers, positions = chunk.effects()
        self.reserves_by_position = self.reserves_by_position or _reserves_by_position(kinds)
        self.replay.add(kinds, numbers, positions, chunk.end)
        self.ends[index] = chunk.end

    # --- finding items ----------------------------------------------------------------------------------------------

    def find(self, item: int) -> Place:
        """Where an item is."""
        ((_, place),) = self._find_all([item])
        return place

    def load(self, items: Iterable[int]) -> dict[int, Operation]:
        """The operations that have added these items."""
        return {item: self._operation(place) for item, place in self._find_all(sorted(items))}

    def waiting(self) -> Iterator[QueueItem]:
        """The items of the queue from head to tail."""
        front = [item for item, _ in self.replay.front()]
        places = dict(self._find_all(sorted(front)))
        for item in front:
            yield self._item(places[item], 0)
        for _, place in self._find_all(range(self.replay.first, self.replay.added)):
            yield self._item(place, None)

    def reserved(self) -> list[QueueItem]:
        """The reserved items in the order in which they were reserved."""
        found = self.replay.open()
        places = dict(self._find_all(sorted(item for _, item, _ in found)))
        return [self._item(places[item], xid) for xid, item, _ in found]

    def _item(self, place: Place, xid: int | None) -> QueueItem:
        """An item; without `xid` it is the one that it is to be reserved under."""
        operation = self._operation(place)
        if xid is None:
            xid = (operation.xid or 0) if operation.op == "add_xid" else 0
        name = f"{self.files.files[place.file].name}@{place.position}"
        return QueueItem(operation.data or b"", operation.added or None, operation.expires, xid, name)

    def _operation(self, place: Place) -> Operation:
        source = self.files.files[place.file]
        return read_operation(self.files.file(source), source, place.position, self.dialect)

    def _find_all(self, items: Iterable[int]) -> Iterator[tuple[int, Place]]:
        """Each item with its place; the items are in order."""
        for piece, group in groupby(items, lambda item: bisect_right(self._items, item) - 1):
            file = self._files[piece]
            effects = effects_of(self._read(file, self._positions[piece]))
            rows = effects.adds()
            before = self._bytes[piece]
            passed = 0
            for item in group:
                row = item - self._items[piece]
                before += sum(effects.data_bytes(at) for at in rows[passed:row])
                passed = row
                yield item, Place(file, effects.positions[rows[row]], before)

    def _read(self, file: int, position: int) -> Chunk:
        source = self.files.files[file]
        chunk = self._cursor(file, position).read(load=False)
        if chunk is None:
            raise DamagedJournal(source.name, position, "the file has changed while it was read")
        return chunk

    def _cursor(self, file: int, position: int) -> Cursor:
        source = self.files.files[file]
        return Cursor(self.files.file(source), source, position, dialect=self.dialect, end=self.ends[file])

    # --- the run ----------------------------------------------------------------------------------------------------

    def run(self) -> Iterator[tuple[Chunk, Effects]]:
        """The chunks that hold the items of the run, from the first item on. A chunk is valid until the next."""
        if self.replay.first == self.replay.added:
            return
        place = self.find(self.replay.first)
        for index in range(place.file, len(self.files.files)):
            cursor = self._cursor(index, place.position if index == place.file else 0)
            while (chunk := cursor.read()) is not None:
                effects = effects_of(chunk)
                yield chunk, effects
                if effects.is_last:
                    break
            self.files.done_with(self.files.files[index])


def read_operation(file: File, source: JournalFile, position: int, dialect: int) -> Operation:
    """The operation at a position that a walk has passed."""
    data = file.read_at(position, _READ_ITEM_BYTES)
    size = codec.claimed_size(data, 0, len(data), dialect)
    if size is not None and size > len(data) and position + size <= file.size():
        try:
            data = file.read_at(position, size)
        except MemoryError:
            raise TooLarge(f"{source.path} @ {position}: there is no memory for an item of {size} bytes") from None
    if size is None or size > len(data):
        raise DamagedJournal(source.name, position, "the file has changed while it was read")
    return kernel.operations(data, 0, size, 1, dialect)[0]


assert LONGEST_HEAD_BYTES < _READ_ITEM_BYTES
