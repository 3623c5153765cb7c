"""The inventory of queues: their files with their sizes and the numbers of their operations. Queues have no consumers.

What is dead or temporary is not among the files, and what is removed while we look is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from ...core.errors import NotFound
from ...core.inventory import FileEntry, Inventory
from .files import POSITION_BITS
from .reader import Reader
from .splits import AnyReader, parts


def take(reader: AnyReader) -> Inventory:
    """The files of a queue, or of all queues of a directory."""
    found = Inventory()
    for queue, journal in parts(reader):
        with suppress(NotFound):
            found.files += _files(queue, journal)
    return found


def _files(queue: str, reader: Reader) -> Iterator[FileEntry]:
    for source in reader.files():
        with suppress(NotFound):
            size = reader.disk.file_size(source.path)
            following = reader.next if source.timestamp is None else source.timestamp << POSITION_BITS
            yield FileEntry(queue, source.name, size, source.first_number, following)
