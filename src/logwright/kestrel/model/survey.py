"""Survey: the files of a queue gone through once, so that it is known what is in the queue and where.

Going through them costs no memory but a few numbers for every 256 KiB (see `tally.py`). An item is then found by its
number: the piece of a file that it is in is gone through again. The items of the run, which come one behind the other,
are handed out piece by piece.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from ...core.bytes.outcome import Damage
from ...errors import DamagedJournal
from ..bytes.layout import ADD_XID, DATA_HEAD_BYTES, REMOVE_TENTATIVE, STATE_DUMP
from ..bytes.records import Operation
from ..files.cursor import Chunk, Cursor
from ..files.files import OpenFiles
from ..files.reader import Reader, read_operation
from . import quick


class Turns(NamedTuple):
    """The operations of a chunk as far as they count. `is_last` says that a state dump ends the file behind them."""

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


def turns_of(chunk: Chunk) -> Turns:
    """The operations of a chunk up to a state dump."""
    kinds, numbers, positions = chunk.turns()
    dump = kinds.find(STATE_DUMP)
    if dump < 0:
        return Turns(kinds, numbers, positions, chunk.end, False)
    return Turns(kinds[:dump], numbers[:dump], positions[:dump], positions[dump], True)


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

    def __init__(self, reader: Reader, files: OpenFiles, go_on: Callable[[], None] = lambda: None) -> None:
        """Go through the files; damage is raised, but for a torn tail of the newest, where it ends.

        `go_on` is called for every chunk.
        """
        self.tally = quick.Tally()
        self.reserves_by_position = False
        """Whether something shows the dialect `documented` although there is no 8."""
        self.files = files
        self.ends = [0] * len(files.files)
        """Where the operations of each file end."""
        self._reader = reader
        self._items, self._bytes = array("q"), array("q")
        self._files, self._positions = array("q"), array("q")
        indexes = {source.name: index for index, source in enumerate(files.files)}
        current = ""
        for chunk in reader.snapshot_chunks(files, None, None, "failfast", load=False):
            assert not isinstance(chunk, Damage)
            if chunk.file != current:
                current = chunk.file
                self.tally.begin_file()
            index = indexes[current]
            self._items.append(self.tally.added)
            self._bytes.append(self.tally.added_bytes)
            self._files.append(index)
            self._positions.append(chunk.position)
            turns = chunk.turns()
            self.reserves_by_position = self.reserves_by_position or _reserves_by_position(turns[0])
            self.tally.add(*turns, chunk.end)
            self.ends[index] = chunk.end
            go_on()
        self.dialect = reader.verdict.dialect

    # --- finding items ----------------------------------------------------------------------------------------------

    def find(self, item: int) -> Place:
        """Where an item is."""
        ((_, place),) = self._find_all([item])
        return place

    def load(self, items: Iterable[int]) -> dict[int, Operation]:
        """The operations that have added these items."""
        found = {}
        for item, place in self._find_all(sorted(items)):
            source = self.files.files[place.file]
            found[item] = read_operation(self.files.file(source), source, place.position, self.dialect)
        return found

    def _find_all(self, items: list[int]) -> Iterator[tuple[int, Place]]:
        """Each item with its place; the items are in order."""
        for piece, group in groupby(items, lambda item: bisect_right(self._items, item) - 1):
            file = self._files[piece]
            turns = turns_of(self._read(file, self._positions[piece]))
            rows = turns.adds()
            before = self._bytes[piece]
            passed = 0
            for item in group:
                row = item - self._items[piece]
                before += sum(turns.data_bytes(at) for at in rows[passed:row])
                passed = row
                yield item, Place(file, turns.positions[rows[row]], before)

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

    def run(self) -> Iterator[tuple[Chunk, Turns]]:
        """The chunks that hold the items of the run, from the first item on. A chunk is valid until the next."""
        if self.tally.first == self.tally.added:
            return
        place = self.find(self.tally.first)
        for index in range(place.file, len(self.files.files)):
            cursor = self._cursor(index, place.position if index == place.file else 0)
            while (chunk := cursor.read()) is not None:
                turns = turns_of(chunk)
                yield chunk, turns
                if turns.is_last:
                    break
            self.files.done_with(self.files.files[index])
