"""Inventory: which files a journal consists of and how far its consumers have come, without reading its records.

Record numbers are those of `Splits.extent`; a number that cannot be known is None. See `Splits.inventory`.
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
