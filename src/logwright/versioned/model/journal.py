"""The journals of a store as a whole: recognising them, opening them for reading, following and recovering them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ...core.bytes.outcome import Damage, Malformed, Mode
from ...core.format import Evidence
from ...core.io.disk import REAL_DISK, Disk
from ...core.io.quarantine import Recovery
from ...errors import LogwrightError, NotFound
from ..bytes.codec import decode_header
from ..bytes.layout import HEADER_BYTES
from ..bytes.records import Entry
from ..files.archive_stream import is_compressed, open_stream
from ..files.files import Kind, active_name, list_files, parse_name
from ..files.reader import Reader
from ..files.scanner import Scanner
from ..files.stores import StoresReader
from .store import VersionedKVStore

_READ: Final = (Kind.ACTIVE, Kind.ARCHIVE, Kind.OLD)


def looks_like(disk: Disk, path: Path) -> Evidence | None:
    """Whether a path is the journal of a store, a file of one, or a directory of stores.

    The version and the beginning of an array in the first 17 bytes show it. What the system does not let us see is its
    error, not a "no".
    """
    try:
        if disk.is_directory(path):
            return _directory_looks_like(disk, path)
        parsed = parse_name(path.name)
        if names_journal(disk, path) and not disk.exists(path):
            return Evidence(2, "other journals of a store of this name are there")
        if _begins_like_one(disk, path):
            return Evidence(2, "it begins like the journal of a store")
        if parsed is not None and parsed[1] in _READ:
            return Evidence(1, "it is named like the journal of a store")
    except NotFound:  # removed while we looked
        pass
    return None


def names_journal(disk: Disk, path: Path) -> bool:
    """Whether a path is that of the active journal of a store that has any journals, whether or not that one is there.

    For a moment of each rotation it is not, and a crash may leave it so.
    """
    parsed = parse_name(path.name)
    if parsed is None or parsed[1] is not Kind.ACTIVE:
        return False
    try:
        return not list_files(disk, path.parent, parsed[0]).is_empty
    except NotFound:
        return False


def _directory_looks_like(disk: Disk, path: Path) -> Evidence | None:
    named: list[str] = []
    good: list[str] = []
    for name in disk.list_directory(path):
        parsed = parse_name(name)
        if parsed is None or parsed[1] not in _READ or disk.is_directory(path / name):
            continue
        named.append(name)
        if len(good) < 2 and _begins_like_one(disk, path / name):
            good.append(name)
    if len(good) > 1:
        return Evidence(3, f"{good[0]} and others begin like journals of stores")
    if good:
        return Evidence(2, f"{good[0]} begins like the journal of a store")
    return Evidence(1, f"{named[0]} is named like the journal of a store") if named else None


def _begins_like_one(disk: Disk, path: Path) -> bool:
    try:
        compressed = is_compressed(disk, path)
        file = disk.open(path, "read")
        try:
            head = bytearray(HEADER_BYTES)
            have = open_stream(file, compressed=compressed).read_into(memoryview(head))
        finally:
            file.close()
        return isinstance(decode_header(head[:have]), tuple)
    except (LogwrightError, Malformed):
        return False


def journal_of(name: str) -> str:
    """The name of the active journal that a file belongs to: with it all files of the store are opened."""
    parsed = parse_name(name)
    return name if parsed is None else active_name(parsed[0])


def open_reader(path: Path, *, disk: Disk = REAL_DISK) -> Reader | StoresReader:
    """A reader of a store, of one file, or of all stores of a directory."""
    return StoresReader(path, disk=disk).one_or_all() if disk.is_directory(path) else Reader(path, disk=disk)


def follow(path: Path, ends: Any, *, timeout: float | None, mode: Mode) -> Scanner[Entry | Damage]:
    """A scanner of a store from a number on, or of all stores of a directory, from a number of each."""
    return Scanner(path, ends, timeout=timeout, mode=mode)


def recover(path: Path | str, *, disk: Disk = REAL_DISK) -> Recovery:
    """Recover a store: lock it, finish a rotation, cut off a torn tail, and keep that in quarantine."""
    reader = Reader(path, disk=disk)
    newest = reader.files()[-1]
    capacity = max(1 << 12, 0 if newest.compressed else disk.file_size(newest.path))
    with VersionedKVStore(reader.directory, reader.store, capacity, background=False, disk=disk) as store:
        return Recovery(store.recovered, store.kept if store.recovered is not None else None)
