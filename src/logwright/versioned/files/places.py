"""Places: where a reader is in a store, described so that it is found again whatever its files are called by then.

The number of an entry is made of the name of the archive before its journal, or where that is gone, of the journal's
own beginning (see `files.py`). These are the same time, unless the archive got a later name, because the one that it
should have was taken: then numbers change when it is made, and again when it is removed. What stays is the journal
itself. So a mark says since when that is the active one, and has a digest of the bytes right before the place:

    1699564800000000000-5f3759df

A journal that begins at that time and has these bytes there is the one that is meant, under whatever name. Of two that
do, which there are when a store is rotated before its clock advances, the earlier one is: what the later one has there
are copies of it.
"""

from __future__ import annotations

import re
import zlib
from typing import Final

from ...core.read.chunk import POSITION_BITS
from ...core.read.file_splits import source_of
from ...core.read.snapshot import Snapshot
from ...errors import LogwrightError
from ..bytes.layout import HEADER_BYTES
from .archive_stream import READ_BYTES, open_stream
from .cursor import Cursor, Head
from .files import MOST_TAKEN_NS, JournalFile
from .reader import Reader

_POSITION: Final = (1 << POSITION_BITS) - 1
_DIGEST_BYTES: Final = 4 << 10
_MARK: Final = re.compile(r"(0|[1-9][0-9]{0,19})-([0-9a-f]{8}|)")


def mark_of(reader: Reader, number: int) -> str:
    """What a place is known by; empty where nothing is known of it."""
    if reader.is_single_file:
        return ""
    position = number & _POSITION
    with reader.snapshot() as files:
        source = source_of(files.files, number)
        if source is None:  # the journal behind the last archive is yet to come
            return "" if position else f"{number >> POSITION_BITS}-"
        since = _since(reader, files, source)
        return "" if since is None else f"{since}-{_digest(reader, files, source, position)}"


def find(reader: Reader, number: int, mark: str) -> tuple[int, str]:
    """The number that a place has now, which had this one and was known by a mark; and why it cannot be that place.

    Without a mark, or where the journal is gone that is meant, it is the same number.
    """
    match = _MARK.fullmatch(mark)
    if match is None or reader.is_single_file:
        return number, ""
    since, digest, position = int(match[1]), match[2], number & _POSITION
    changed: JournalFile | None = None
    with reader.snapshot() as files:
        for source in files.files:
            if not _may_begin_at(source, since) or _since(reader, files, source) != since:
                continue
            if _digest(reader, files, source, position) == digest:
                return source.first_number + position, ""
            changed = changed or source
    if changed is None:
        return number, ""
    reason = f"{changed.name} is not what it was before the position {position}: it was cut short or rebuilt"
    return changed.first_number, f"{reason}; it is read from its beginning"


def _may_begin_at(source: JournalFile, time: int) -> bool:
    """Whether a journal may have been the active one since a time, by names."""
    return source.before - MOST_TAKEN_NS <= time and (source.timestamp is None or time <= source.timestamp)


def _since(reader: Reader, files: Snapshot[JournalFile], source: JournalFile) -> int | None:
    """Since when a journal is the active one, as it says itself."""
    try:
        for item in Cursor(files.file(source), source, limits=reader.limits).items():
            if isinstance(item, Head):
                return None if item.metadata is None else item.metadata.initialized
    except LogwrightError:
        pass
    return None


def _digest(reader: Reader, files: Snapshot[JournalFile], source: JournalFile, position: int) -> str:
    """Of the last bytes before a position; empty where there are none but the header, which changes."""
    start = max(HEADER_BYTES, position - _DIGEST_BYTES)
    if position <= start:
        return ""
    if not source.compressed:
        return f"{zlib.crc32(files.file(source).read_at(start, position - start)):08x}"
    stream = open_stream(files.file(source), compressed=True, limits=reader.limits)
    piece = memoryview(bytearray(READ_BYTES))
    digest = at = 0
    while at < position and (count := stream.read_into(piece[: min(READ_BYTES, position - at)])):
        if at + count > start:
            digest = zlib.crc32(piece[max(0, start - at) : count], digest)
        at += count
    return f"{digest:08x}"
