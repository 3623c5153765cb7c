"""The inventory of a sej journal: its segments with their sizes and offsets, and its consumers; shard by shard.

A segment is there for the messages up to the first one of the segment behind it. Only of the last one the end has to
be looked for. What is removed while we look is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from ...core.errors import DamagedJournal, NotFound, StorageFailed
from ...core.inventory import ConsumerEntry, FileEntry, Inventory
from .offset import list_consumers, stored_offset
from .reader import Reader
from .splits import AnyReader, extent, parts


def take(reader: AnyReader) -> Inventory:
    """Files and consumers of a journal, or of all shards below a root."""
    found = Inventory()
    for part, journal in parts(reader):
        with suppress(NotFound):  # the shard was removed while we looked
            for first, following in extent(journal).values():  # one, or none for the same reason
                found.files += _files(part, journal, following)
                found.consumers += _consumers(part, journal, first, following)
    return found


def _files(part: str, reader: Reader, following: int) -> Iterator[FileEntry]:
    segments = reader.segments()
    for number, segment in enumerate(segments):
        stop = max(segment.first_offset, following)  # the last one may have come after the end was looked for
        if number + 1 < len(segments):
            stop = segments[number + 1].first_offset
        with suppress(NotFound):
            size = reader.disk.file_size(segment.path)
            file = f"{part}/{segment.name}" if part else segment.name
            yield FileEntry(part, file, size, segment.first_offset, stop)


def _consumers(part: str, reader: Reader, first: int, following: int) -> Iterator[ConsumerEntry]:
    if reader.is_single_file:
        return
    for name in list_consumers(reader.disk, reader.directory):
        try:
            offset = stored_offset(reader.disk, reader.directory, name)
        except NotFound:
            continue
        except (DamagedJournal, StorageFailed) as error:
            yield ConsumerEntry(part, name, None, first, following, str(error))
        else:
            yield ConsumerEntry(part, name, offset, first, following)
