"""Packing: replace rotated files of a queue by one file with the same state. Every step is crash safe.

The rotated files up to the number T become one. What a crash right after each step leaves:

    1. write and sync `NAME~~T`                         the old files, and a temporary one, which readers ignore
    2. note which files it replaces, and sync           the same (see `note.py`)
    3. rename it to `NAME.T.pack`, and sync             the pack is read; the files up to T are dead
    4. remove the dead files before T, and sync         the same, with fewer dead files
    5. rename the pack to `NAME.T`                      only the pack, under one of the two names

If a dead file was not noted, the pack is not ours. Step 4 then moves the file to `.logwright/cut/`.

At each point the files that are read have the same state. Step 4 precedes step 5, and is synced before it: a dead file
beside a pack without its suffix would be read again.

A pack begins with operations that rebuild the state. In the dialect `documented`: SAVE_XID; ADD_XID and
REMOVE_TENTATIVE for each reserved item; then all items of the queue. In `kestrel2`: ADDX and REMOVE_TENTATIVE_XID for
each reserved item; then SAVE_XID, because these change the last used id; then all items.

The attempts of an item are recorded as in any journal: the item is reserved and put back that many times. Such items
are at the head of the queue. All of them are reserved in order, and then put back, the last one first; the other items
follow. Most of a queue is copied as it is, piece by piece, so packing needs little memory.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ...core.io.disk import Disk, File, write_all
from ...core.io.quarantine import keep_file
from ...core.read.snapshot import snapshot
from ...errors import LogwrightError
from ..bytes import codec, kernel
from ..bytes.ids import preceding
from ..bytes.layout import KESTREL2, PACK_SUFFIX, TEMPORARY, rotated_name
from ..bytes.records import Operation
from ..files.files import Listing, known_dead, list_files
from ..files.note import note_rotated, write_note
from ..files.reader import Reader
from ..files.survey import Survey

logger = logging.getLogger("logwright.kestrel")

_PIECE_BYTES: Final = 1 << 20
MOST_ATTEMPTS: Final = 1000
"""The most attempts of an item that a pack records: an item that always fails must not fill it."""


def next_timestamp(last: int) -> int:
    """The number for a file that is rotated now: greater than all previous ones, even if the clock was set back."""
    return max(time.time_ns() // 1_000_000, last + 1)


@dataclass(slots=True)
class Packed:
    """A pack that was written: its number, its size, and the positions of some items of the run."""

    timestamp: int
    size_bytes: int = 0
    run_items: int = 0
    _items: array[int] = field(default_factory=lambda: array("q"))
    _positions: array[int] = field(default_factory=lambda: array("q"))

    def begin_piece(self) -> None:
        """The next item of the run begins here."""
        self._items.append(self.run_items)
        self._positions.append(self.size_bytes)

    def near(self, item: int) -> tuple[int, int]:
        """An item of the run at or shortly before another one, and its position."""
        piece = bisect_right(self._items, item) - 1
        return self._items[piece], self._positions[piece]


def pack(disk: Disk, reader: Reader, upto: int) -> bool:
    """Replace all rotated files up to a number by one with their state; False if there are none.

    The caller holds the queue's lock. Damage in one of the files is raised, and nothing is changed.
    """
    if write_pack(disk, reader, upto) is None:
        return False
    finish_pack(disk, reader.directory, list_files(disk, reader.directory, reader.queue))
    return True


def write_pack(
    disk: Disk,
    reader: Reader,
    upto: int,
    first: Sequence[tuple[Operation, int]] = (),
    *,
    go_on: Callable[[], None] = lambda: None,
) -> Packed | None:
    """Do the first three steps; None if there is nothing to pack. The dead files still exist.

    `first` are items, with their attempts, that are at the head although the files do not show it. `go_on` is called
    from time to time; it may raise to stop the packing, and then nothing has changed.
    """
    directory, queue = reader.directory, reader.queue
    finish_pack(disk, directory, list_files(disk, directory, queue))  # of an earlier attempt that failed
    listing = list_files(disk, directory, queue)
    packed = [file for file in listing.files if file.timestamp is not None and file.timestamp <= upto]
    if not packed:
        return None
    found = Packed(packed[-1].timestamp or 0)
    temporary = directory / f"{queue}{TEMPORARY}{found.timestamp}"
    with snapshot(disk, lambda: packed, directory / queue) as files:
        survey = Survey(reader, files, go_on=go_on)
        write_temporary(disk, temporary, _state_of(survey, found, first, go_on))
    write_note(disk, directory, queue, found.timestamp, found.size_bytes, (file.name for file in packed))
    disk.rename(temporary, directory / (rotated_name(queue, found.timestamp) + PACK_SUFFIX))
    disk.sync_directory(directory)
    return found


def finish_pack(disk: Disk, directory: Path, listing: Listing) -> None:
    """Remove the files that a pack has replaced, and rename it. Files that were not noted are kept."""
    pack = listing.pack
    if pack is None:
        return
    assert pack.timestamp is not None
    name = rotated_name(pack.queue, pack.timestamp)
    known = known_dead(disk, directory, listing)
    for dead in listing.dead:
        if dead not in known and disk.file_size(directory / dead):
            kept = keep_file(disk, directory, directory / dead)
            logger.warning("%s: a pack of another program replaces %s, which is kept in %s", pack.path, dead, kept)
        elif dead != name:  # the pack replaces that one
            disk.remove(directory / dead)
    disk.sync_directory(directory)
    size = disk.file_size(pack.path)
    disk.rename(pack.path, directory / name)
    if not disk.exists(directory / pack.queue):  # after a crash in a rotation; a noted file implies a newest file
        disk.open(directory / pack.queue, "create").close()
    disk.sync_directory(directory)  # before the note: a noted file must exist
    note_rotated(disk, directory, pack.queue, name, size, upto=pack.timestamp)


def remove_temporary(disk: Disk, directory: Path, listing: Listing) -> None:
    """Remove temporary files that a crash has left."""
    for name in listing.temporary:
        if not disk.is_directory(directory / name):
            disk.remove(directory / name)


def write_temporary(disk: Disk, path: Path, pieces: Iterable[bytes]) -> None:
    """Write a temporary file, and sync it. If that fails, it is removed."""
    disk.remove(path)
    file = disk.open(path, "create")
    try:
        _write_pieces(file, pieces)
        file.sync()
    except BaseException:
        with contextlib.suppress(LogwrightError):
            disk.remove(path)
        raise
    finally:
        file.close()


def _write_pieces(file: File, pieces: Iterable[bytes]) -> None:
    position = 0
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        if len(waiting) >= _PIECE_BYTES:
            write_all(file, position, waiting)
            position += len(waiting)
            waiting = bytearray()
    write_all(file, position, waiting)


def _state_of(
    survey: Survey, packed: Packed, first: Sequence[tuple[Operation, int]], go_on: Callable[[], None]
) -> Iterator[bytes]:
    """The operations that rebuild the state of some files, piece by piece."""
    replay = survey.replay
    reserved, front = replay.open(), replay.front()
    loaded = survey.load([item for _, item, _ in reserved] + [item for item, _ in front])
    operations = state_operations(
        replay.xid,
        [(xid, loaded[item], attempts) for xid, item, attempts in reserved],
        [one for one in first if one[1]] + [(loaded[item], attempts) for item, attempts in front],
        survey.dialect,
    )
    # In `documented` a pack always begins with a SAVE_XID. In kestrel2 it may be empty, as that of the original.
    mark = [] if replay.xid or survey.dialect == KESTREL2 else [codec.encode(Operation("save_xid", 0))]
    untried = [codec.encode(item) for item, attempts in first if not attempts]
    for piece in itertools.chain(mark, operations, untried):
        packed.size_bytes += len(piece)
        yield piece
    for chunk, effects in survey.run():
        go_on()
        packed.begin_piece()
        copied, count = kernel.copy_adds(chunk.data, chunk.base, effects.kinds, effects.positions, effects.end, 0)
        packed.size_bytes += len(copied)
        packed.run_items += count
        yield copied


def state_operations(
    xid: int, reserved: list[tuple[int, Operation, int]], front: list[tuple[Operation, int]], dialect: int
) -> Iterator[bytes]:
    """The bytes of operations that build this state in an empty queue.

    `reserved` are the open transactions: id, the item, its attempts. `front` are the items that were put back, from the
    head on, with their attempts.
    """
    comes_last = dialect == KESTREL2  # whose reservations change the last used id
    if xid and not comes_last:
        yield codec.encode(Operation("save_xid", xid))
    for name, item, attempts in reserved:
        yield _reserve(dialect, name, item, attempts)
        comes_last |= attempts > 0
    names = _unused_ids({name for name, _, _ in reserved}, len(front))
    for name, (item, attempts) in zip(names, front, strict=True):
        yield _reserve(dialect, name, item, attempts - 1)
        comes_last |= attempts > 1
    for name in reversed(names):
        yield codec.encode(Operation("unremove", name))
    if comes_last and (xid or reserved or front):
        yield codec.encode(Operation("save_xid", xid))


def _reserve(dialect: int, xid: int, item: Operation, attempts: int) -> bytes:
    """The operations that add an item to an empty queue and reserve it under an id, with this number of attempts."""
    if dialect == KESTREL2:
        added, reserve = plain(item), [Operation("remove_tentative_xid", xid)]
        again = [Operation("unremove", xid), *reserve]
    else:
        added = Operation("add_xid", xid, added=item.added or 0, expires=item.expires, data=item.data)
        reserve = [Operation("remove_tentative")]
        # An item that was put back gets the next id: make that the same one.
        again = [Operation("unremove", xid), Operation("save_xid", preceding(xid)), *reserve]
    first, repeated = (b"".join(map(codec.encode, operations)) for operations in ([added, *reserve], again))
    return first + repeated * min(attempts, MOST_ATTEMPTS)


def plain(operation: Operation) -> Operation:
    """The operation that adds the same item without an id. An `add` stays as it is: its time is unknown."""
    return operation if operation.op == "add" else replace(operation, op="addx", xid=None)


def _unused_ids(taken: set[int], count: int) -> list[int]:
    """The first `count` ids that are not in use."""
    return list(itertools.islice((xid for xid in itertools.count(1) if xid not in taken), count))
