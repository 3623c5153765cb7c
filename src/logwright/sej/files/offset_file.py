"""The files with the offsets of consumers; see `model/offset.py`. Reading them needs no lock.

    ofs/NAME.ofs                    the offset, 8 bytes
    .logwright/ahead/NAME.ofs       the offset of a consumer that was ahead, and where the journal ended then: 16 bytes

If the end of a journal is lost, a consumer may be ahead of it. The messages that are written then get offsets that the
consumer has passed, and once there are enough of them nothing shows it. So a writer that opens the journal notes such
consumers before it appends (`note_ahead`). The note counts as long as the consumer has that offset; what moves the
consumer removes it.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...core.io.disk import Disk, make_directories, replace_file
from ...core.io.quarantine import DIRECTORY
from ...errors import DamagedJournal, LogwrightError, NotFound, StorageFailed
from ..bytes.layout import OFFSET, OFFSET_DIRECTORY, OFFSET_SUFFIX

if TYPE_CHECKING:
    from .reader import Reader

logger = logging.getLogger("logwright.sej")

_AHEAD_DIRECTORY: Final = "ahead"
_AHEAD: Final = struct.Struct(">QQ")
"""offset of the consumer, next offset of the journal"""


def offset_path(directory: Path, name: str) -> Path:
    """Where the offset of a consumer is."""
    return directory / OFFSET_DIRECTORY / (name + OFFSET_SUFFIX)


def stored_offset(disk: Disk, directory: Path, name: str) -> int | None:
    """The offset that a consumer has committed; None before its first commit. `NotFound` if it does not exist."""
    path = offset_path(directory, name)
    try:
        file = disk.open(path, "read")
    except NotFound:
        raise NotFound(f"{directory}: there is no consumer {name!r}") from None
    try:
        data = file.read_at(0, OFFSET.size + 1)
    finally:
        file.close()
    if not data:
        return None
    if len(data) != OFFSET.size:
        size = len(data) if len(data) < OFFSET.size else disk.file_size(path)
        raise DamagedJournal(
            f"{OFFSET_DIRECTORY}/{path.name}", 0, f"an offset file has 0 or {OFFSET.size} bytes, this one has {size}"
        )
    value: int = OFFSET.unpack(data)[0]
    return value


def list_consumers(disk: Disk, directory: Path) -> list[str]:
    """The names of all consumers of a journal, in order, including names that only other programs use."""
    try:
        names = disk.list_directory(directory / OFFSET_DIRECTORY)
    except NotFound:
        return []
    return [name.removesuffix(OFFSET_SUFFIX) for name in names if name.endswith(OFFSET_SUFFIX)]


def read_consumers(reader: Reader) -> dict[str, int | None]:
    """Where each consumer is; None for one that has not committed, and for one whose offset cannot be read."""
    if reader.is_single_file:
        return {}
    found: dict[str, int | None] = {}
    for name in list_consumers(reader.disk, reader.directory):
        try:
            found[name] = stored_offset(reader.disk, reader.directory, name)
        except (DamagedJournal, StorageFailed):
            found[name] = None
    return found


# --- consumers that were ahead --------------------------------------------------------------------------------------


def _ahead_path(directory: Path, name: str) -> Path:
    return directory / DIRECTORY / _AHEAD_DIRECTORY / (name + OFFSET_SUFFIX)


def passed_from(disk: Disk, directory: Path, name: str, offset: int) -> int | None:
    """The first offset below `offset`, that of a consumer, whose message was written after the consumer had passed it.

    None if no writer has noted such a message.
    """
    path = _ahead_path(directory, name)
    try:
        file = disk.open(path, "read")
    except NotFound:
        return None
    try:
        data = file.read_at(0, _AHEAD.size + 1)
    finally:
        file.close()
    if len(data) != _AHEAD.size:
        hint = "remove it after you have reset the consumer"
        raise DamagedJournal(path, 0, f"a note on a consumer has {_AHEAD.size} bytes, not {len(data)}; {hint}")
    noted, end = _AHEAD.unpack(data)
    return end if noted == offset else None


def note_ahead(disk: Disk, directory: Path, end: int) -> None:
    """Note durably which consumers are ahead of a journal whose next message gets the offset `end`."""
    for name in list_consumers(disk, directory):
        offset = None
        with contextlib.suppress(LogwrightError):  # unreadable: opening the consumer reports that
            offset = stored_offset(disk, directory, name)
        if offset is None or offset <= end:
            continue
        noted = passed_from(disk, directory, name, offset)
        if noted is not None and noted <= end:
            continue
        logger.warning(
            "%s: the consumer %s has come to offset %d, but the journal ends with %d: it is to be reset",
            directory,
            name,
            offset,
            end,
        )
        path = _ahead_path(directory, name)
        make_directories(disk, path.parent)
        replace_file(disk, path, _AHEAD.pack(offset, end), path.with_name(path.name + ".tmp"))


def forget_ahead(disk: Disk, directory: Path, name: str) -> None:
    """Remove the note on a consumer, after it was moved."""
    path = _ahead_path(directory, name)
    if disk.exists(path):
        disk.remove(path)
        disk.sync_directory(path.parent)
