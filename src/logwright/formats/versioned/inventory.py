"""The inventory of stores: their files with their sizes and the numbers of their entries. Stores have no consumers.

What is temporary is not among the files, and what is removed while we look is left out.
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
    """The files of a store, or of all stores of a directory."""
    found = Inventory()
    for store, journal in parts(reader):
        with suppress(NotFound):
            found.files += _files(store, journal)
    return found


def _files(store: str, reader: Reader) -> Iterator[FileEntry]:
    for source in reader.files():
        with suppress(NotFound):
            size = reader.disk.file_size(source.path)
            following = reader.next if source.timestamp is None else source.timestamp << POSITION_BITS
            yield FileEntry(store, source.name, size, source.first_number, following)
