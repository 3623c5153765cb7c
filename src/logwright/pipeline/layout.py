"""The data files of a table after a batch: which are added, which are replaced, and which are merged.

Final rows are added in new files. Once there are more than `MOST_SMALL` small ones, the smallest are merged, such that
a row is copied about as often as the logarithm of the number of batches. Large files are left alone.

Live rows are in a few files as well. It is noted of which parts of journals the rows of each file are. A batch writes
the live rows of the parts that it has touched to a new file. The files that have older rows of these parts are written
again without them. So parts that change often come to be in small files, and those that rest in files that rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa

from .parquet import Source, Target, copied, rows_of
from .plan import Place
from .publish import TableFile
from .task import LiveFile

MOST_SMALL: Final = 8
MOST_LIVE: Final = 6
LARGE_BYTES: Final = 64 << 20
LARGE_ROWS: Final = 1 << 17
"""Files with as many bytes or rows are not merged: readers gain nothing, however well the rows were compressed."""

Places: TypeAlias = tuple[tuple[Place, int], ...]
PathOf: TypeAlias = Callable[[TableFile], str]


@dataclass(slots=True)
class TableChange:
    """What a batch changes in one table; `live` are the files of live rows after it, by name."""

    added: list[TableFile] = field(default_factory=list)
    removed: list[TableFile] = field(default_factory=list)
    live: dict[str, Places] = field(default_factory=dict)


@dataclass(slots=True)
class _Piece:
    """Rows of a data file that stay in the table. Without `ranges` these are all rows."""

    file: TableFile
    is_new: bool
    places: Places = ()
    ranges: tuple[tuple[int, int], ...] | None = None

    @property
    def bytes(self) -> int:
        return self.file.bytes

    @property
    def is_small(self) -> bool:
        return self.file.bytes < LARGE_BYTES and self.file.rows < LARGE_ROWS


class Layout:
    """The files of one table. `published` says where a file of an earlier batch is."""

    def __init__(
        self, target: Target, files: Iterable[TableFile], live: Mapping[str, Places], published: PathOf
    ) -> None:
        self._target = target
        self._files = list(files)
        self._live = dict(live)
        self._published = published

    # --- reading ------------------------------------------------------------------------------------------------------

    def live_source(self, place: Place) -> Source | None:
        """Where the live rows of a part are, if they are in one file."""
        for file in self._files:
            ranges = _ranges(self._live.get(file.name, ()), lambda each: each == place)
            if ranges:
                return Source(self._published(file), ranges)
        return None

    def live_rows(self, touched: Collection[Place]) -> list[pa.RecordBatch]:
        """The live rows of some parts, in all columns of the table."""
        found = []
        for file in self._files:
            ranges = _ranges(self._live.get(file.name, ()), touched.__contains__)
            if ranges:
                found += self._rows(file, Source(self._published(file), ranges))
        return found

    def final_files(self) -> list[TableFile]:
        return [file for file in self._files if file.name not in self._live]

    def rows(self, file: TableFile) -> list[pa.RecordBatch]:
        """All rows of a published file, in all columns of the table."""
        return self._rows(file, Source(self._published(file)))

    def _rows(self, file: TableFile, source: Source) -> list[pa.RecordBatch]:
        return [with_partition(batch, file, self._target.schema) for batch in rows_of(self._target.filesystem, source)]

    # --- changing -----------------------------------------------------------------------------------------------------

    def changed(
        self,
        new: Sequence[TableFile],
        new_live: Sequence[LiveFile] = (),
        touched: Collection[Place] = (),
        replaced: Collection[TableFile] = (),
    ) -> TableChange:
        """The files after a batch that adds files, replaces some, and has touched some parts."""
        change = TableChange()
        gone = {file.name for file in replaced}
        change.removed += replaced
        final: dict[tuple[Any, ...], list[_Piece]] = {}
        live: dict[tuple[Any, ...], list[_Piece]] = {}
        for file in self._files:
            if file.name in gone:
                continue
            if file.name not in self._live:
                final.setdefault(_key(file), []).append(_Piece(file, False))
                continue
            places = self._live[file.name]
            kept = tuple(each for each in places if each[0] not in touched)
            if len(kept) == len(places):
                live.setdefault(_key(file), []).append(_Piece(file, False, places))
            elif kept:
                ranges = _ranges(places, lambda place: place not in touched)
                live.setdefault(_key(file), []).append(_Piece(file, False, kept, ranges))
            else:
                change.removed.append(file)
        for file in new:
            final.setdefault(_key(file), []).append(_Piece(file, True))
        for each in new_live:
            live.setdefault(_key(each.file), []).append(_Piece(each.file, True, each.places))
        for pieces in final.values():
            self._settle(change, pieces, _smallest(pieces), is_live=False)
        for pieces in live.values():
            self._settle(change, pieces, _to_rewrite(pieces), is_live=True)
        return change

    def compacted(self) -> TableChange:
        """The files after all small ones were merged."""
        change = TableChange()
        for is_live in (False, True):
            groups: dict[tuple[Any, ...], list[_Piece]] = {}
            for file in self._files:
                if (file.name in self._live) == is_live:
                    groups.setdefault(_key(file), []).append(_Piece(file, False, self._live.get(file.name, ())))
            for pieces in groups.values():
                small = [piece for piece in pieces if piece.is_small]
                self._settle(change, pieces, small if len(small) > 1 else [], is_live=is_live)
        return change

    def _settle(self, change: TableChange, pieces: list[_Piece], merged: list[_Piece], *, is_live: bool) -> None:
        """Merge some pieces, and leave the others."""
        for piece in pieces:
            if piece in merged:
                continue
            if piece.is_new:
                change.added.append(piece.file)
            if is_live:
                change.live[piece.file.name] = piece.places
        if not merged:
            return
        merged = sorted(merged, key=lambda piece: piece.file.name)  # older rows first
        sources = [Source(self._path(piece), piece.ranges) for piece in merged]
        if any(piece.ranges is not None or piece.file.rows for piece in merged):
            made = copied(self._target, merged[0].file.partition, sources)
            change.added.append(made)
            if is_live:
                change.live[made.name] = tuple(place for piece in merged for place in piece.places)
        for piece in merged:
            if piece.is_new:
                self._target.filesystem.delete_file(self._path(piece))
            else:
                change.removed.append(piece.file)

    def _path(self, piece: _Piece) -> str:
        return f"{self._target.directory}/{piece.file.name}" if piece.is_new else self._published(piece.file)


def _key(file: TableFile) -> tuple[Any, ...]:
    return tuple(file.partition.items())


def _ranges(places: Places, is_wanted: Callable[[Place], bool]) -> tuple[tuple[int, int], ...]:
    """The rows of some parts: first row and number of rows, adjacent ones together."""
    found: list[tuple[int, int]] = []
    first = 0
    for place, rows in places:
        if is_wanted(place):
            if found and sum(found[-1]) == first:
                found[-1] = (found[-1][0], found[-1][1] + rows)
            else:
                found.append((first, rows))
        first += rows
    return tuple(found)


def _smallest(pieces: Sequence[_Piece]) -> list[_Piece]:
    """The files of final rows to merge: none, or the smallest up to one that is larger than all of these together.

    A file without rows goes with the next merge, or at once if there is any other.
    """
    small = sorted((piece for piece in pieces if piece.is_small), key=lambda piece: piece.bytes)
    if len(small) <= MOST_SMALL:
        empty = [piece for piece in pieces if not piece.file.rows]
        return empty if len(empty) < len(pieces) else empty[1:]
    total = 0
    for number, piece in enumerate(small):
        if number >= len(small) - MOST_SMALL // 2 and piece.bytes > total:
            return small[:number]
        total += piece.bytes
    return small


def _to_rewrite(pieces: Sequence[_Piece]) -> list[_Piece]:
    """The files of live rows to write again: those that lose rows, and if there are too many also the smallest."""
    partial = [piece for piece in pieces if piece.ranges is not None]
    whole = sorted((piece for piece in pieces if piece.ranges is None), key=lambda piece: piece.bytes)
    if len(whole) + bool(partial) <= MOST_LIVE:
        return partial
    return [*partial, *whole[: len(whole) - MOST_LIVE // 2]]


def with_partition(batch: pa.RecordBatch, file: TableFile, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a data file in all columns of the table: those that it is partitioned by are in its name."""
    arrays = []
    for each in schema:
        if each.name in file.partition:
            text = pa.scalar(file.partition[each.name], pa.string())
            arrays.append(pa.repeat(text, batch.num_rows).cast(each.type))
        else:
            arrays.append(batch.column(each.name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
