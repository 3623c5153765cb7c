"""Inventory: which files a journal consists of and how far its consumers have come, without reading its records.

What the room `inventory` of a format offers:

    take(reader)      -> Inventory      of a reader that the format's `open_reader` gave

Files are called what the columns `file` of tables call them: relative to the journal, the part's name included. Record
numbers are those of `splits.extent`. Damage is not told here, and stops nothing; a number that cannot be known is None.
A format without consumers gives none.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file with the records `first` <= n < `next` of a part; it may hold fewer where some are damaged or missing."""

    part: str
    file: str
    bytes: int
    first: int | None
    next: int | None


@dataclass(frozen=True, slots=True)
class ConsumerEntry:
    """A consumer of a part: the number of the next record it wants, and of the first and the next one that there are.

    Without an offset it has not committed anything yet, or `problem` says why its offset cannot be read.
    """

    part: str
    consumer: str
    offset: int | None
    first: int | None
    next: int | None
    problem: str | None = None


@dataclass(slots=True)
class Inventory:
    """What was found, in the order of parts and files."""

    files: list[FileEntry] = field(default_factory=list)
    consumers: list[ConsumerEntry] = field(default_factory=list)
