"""Packing: the state of a queue in place of the files that led to it, crash safe at every step.

The rotated files up to the number T become one. What a crash right after each step leaves:

    1. `NAME~~T` is written and synced                  the old files, and a temporary one that does not count
    2. it becomes `NAME.T.pack`, and that is synced     the pack counts, and the files up to T are dead
    3. the dead files before T are removed, synced      the same, with fewer of them
    4. the pack becomes `NAME.T`, and that is synced    the pack alone

At each point the files that count stand for the same queue. Step 3 comes before step 4, and is synced before it: a dead
file beside a pack that has lost its suffix would count again.

A pack begins with what rebuilds the state. In the dialect `documented`: SAVE_XID; for every reserved item ADD_XID and
REMOVE_TENTATIVE; then every item of the queue. In `kestrel2`: for every reserved item ADDX and REMOVE_TENTATIVE_XID,
which moves the last used id, so SAVE_XID comes behind these; then every item.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...core.disk import Disk, File, write_all
from ...core.errors import LogwrightError
from . import codec
from .files import JournalFile, Listing, list_files
from .layout import KESTREL2, PACK_SUFFIX, TEMPORARY, rotated_name
from .reader import Reader, read_operation
from .records import Operation
from .replay import Item
from .snapshot import Snapshot, snapshot

_PIECE_BYTES: Final = 1 << 20


def next_timestamp(last: int) -> int:
    """The number for a file that is rotated now: greater than any before it, also when the clock has gone back."""
    return max(time.time_ns() // 1_000_000, last + 1)


def pack(disk: Disk, reader: Reader, upto: int) -> bool:
    """Put the state of all rotated files up to a number in their place; False when there is nothing to be gained.

    The caller holds the queue's lock. Damage in one of the files is raised, and nothing is changed.
    """
    directory, queue = reader.directory, reader.queue
    listing = list_files(disk, directory, queue)
    if listing.pack is not None:
        finish_pack(disk, directory, listing)
        listing = list_files(disk, directory, queue)
    packed = [file for file in listing.files if file.timestamp is not None and file.timestamp <= upto]
    if not packed:
        return False
    temporary = directory / f"{queue}{TEMPORARY}{packed[-1].timestamp}"
    with snapshot(disk, lambda: packed) as files:
        _write(disk, temporary, _state_of(reader, files))
    target = directory / (rotated_name(queue, packed[-1].timestamp or 0) + PACK_SUFFIX)
    disk.rename(temporary, target)
    disk.sync_directory(directory)
    finish_pack(disk, directory, list_files(disk, directory, queue))
    return True


def finish_pack(disk: Disk, directory: Path, listing: Listing) -> None:
    """Remove what a pack has replaced, and let it have its name."""
    pack = listing.pack
    if pack is None or pack.timestamp is None:
        return
    name = rotated_name(pack.queue, pack.timestamp)
    for dead in listing.dead:
        if dead != name:  # the pack takes its place at once
            disk.remove(directory / dead)
    disk.sync_directory(directory)
    disk.rename(pack.path, directory / name)
    disk.sync_directory(directory)


def remove_temporary(disk: Disk, directory: Path, listing: Listing) -> None:
    """Remove what a crash has left under a temporary name."""
    for name in listing.temporary:
        if not disk.is_directory(directory / name):
            disk.remove(directory / name)


def _write(disk: Disk, path: Path, pieces: Iterator[bytes]) -> None:
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


def _write_pieces(file: File, pieces: Iterator[bytes]) -> None:
    position = 0
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        if len(waiting) >= _PIECE_BYTES:
            write_all(file, position, waiting)
            position += len(waiting)
            waiting = bytearray()
    write_all(file, position, waiting)


def _state_of(reader: Reader, files: Snapshot) -> Iterator[bytes]:
    """The operations that rebuild the queue after the operations of some files, item by item."""
    replay = reader.replay(files, mode="failfast")
    dialect = reader.verdict.dialect

    def load(item: Item) -> Operation:
        source: JournalFile = files.files[item.file]
        return read_operation(files.file(source), source, item.position, dialect)

    return state_operations(replay.xid, replay.open(), replay.items(), load, dialect)


def state_operations(
    xid: int, reserved: list[Item], items: list[Item], load: Callable[[Item], Operation], dialect: int
) -> Iterator[bytes]:
    """The bytes of a file that stands for a queue in this state."""
    if dialect != KESTREL2:
        yield codec.encode(Operation("save_xid", xid))
    for item in reserved:
        found = load(item)
        if dialect == KESTREL2:
            yield codec.encode(_plain(found))
            yield codec.encode(Operation("remove_tentative_xid", item.xid))
        else:
            yield codec.encode(_named(found, item.xid))
            yield codec.encode(Operation("remove_tentative"))
    if dialect == KESTREL2:
        yield codec.encode(Operation("save_xid", xid))
    for item in items:
        found = load(item)
        yield codec.encode(_named(found, item.xid) if item.xid else _plain(found))


def _plain(operation: Operation) -> Operation:
    """The item of an operation as an item without an id. One of `add` stays what it is: nobody knows when it came."""
    return operation if operation.op == "add" else replace(operation, op="addx", xid=None)


def _named(operation: Operation, xid: int) -> Operation:
    """The item of an operation with an id of its own."""
    return Operation("add_xid", xid, added=operation.added or 0, expires=operation.expires, data=operation.data)
