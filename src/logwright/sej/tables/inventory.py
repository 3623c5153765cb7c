"""The segments of a journal with their sizes and offsets, and its consumers, for `Splits.inventory`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from ...core.read.inventory import ConsumerEntry, FileEntry
from ...errors import DamagedJournal, NotFound, StorageFailed
from ..files import offset_file
from ..files.reader import Reader


def list_files(part: str, reader: Reader, following: int) -> Iterator[FileEntry]:
    """The segments of one journal, whose next offset is `following`."""
    segments = reader.segments()
    for number, segment in enumerate(segments):
        stop = max(segment.first_offset, following)  # the last one may have come after the end was looked for
        if number + 1 < len(segments):
            stop = segments[number + 1].first_offset
        with suppress(NotFound):
            size = reader.disk.file_size(segment.path)
            file = f"{part}/{segment.name}" if part else segment.name
            yield FileEntry(part, file, size, segment.first_offset, stop)


def list_consumers(part: str, reader: Reader, first: int, following: int) -> Iterator[ConsumerEntry]:
    """The consumers of one journal, which has the messages `first` <= offset < `following`."""
    if reader.is_single_file:
        return
    for name in offset_file.list_consumers(reader.disk, reader.directory):
        try:
            offset = offset_file.stored_offset(reader.disk, reader.directory, name)
        except NotFound:
            continue
        except (DamagedJournal, StorageFailed) as error:
            yield ConsumerEntry(part, name, None, first, following, str(error))
        else:
            yield ConsumerEntry(part, name, offset, first, following)
