"""The end of the entries of a journal: how far they are whole, and what follows them.

Entries end at the position, or before the first incomplete one. See `buffer.py` for what a power cut can leave, and
`cursor.py` for how that differs from damage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...core.bytes.outcome import Damage, Malformed
from ...core.io.disk import Disk
from ...errors import DamagedJournal
from ..bytes import codec, kernel
from ..bytes.layout import ENTRY_START, HEADER_BYTES
from ..bytes.records import Entry
from ..files.buffer import Buffer, Mark, last_byte, read_mark
from ..files.cursor import Cursor
from ..files.files import JournalFile
from .kernel import Table

_MOST_ATTEMPTS: Final = 1000
"""The number of places after damage where a whole entry is searched for."""


@dataclass(slots=True)
class Ending:
    """Where the whole entries of a journal end, and why, if that is not at its position."""

    initialized: int
    position: int
    mark: Mark | None
    end: int
    count: int
    reason: str = ""
    is_odd: bool = False
    """Whether a time is earlier than the one before it, or a whole entry follows the position."""

    @property
    def is_doubtful(self) -> bool:
        """Whether `judge` must be asked before anything is changed."""
        return bool(self.reason) or self.is_odd or (self.mark is not None and self.mark.synced > self.position)


def find_ending(buffer: Buffer, table: Table) -> Ending:
    """Load the whole entries of a journal. `Malformed` if it does not begin like a journal."""
    memory, size = buffer.memory, buffer.size
    head = bytes(memory[:HEADER_BYTES])
    header = codec.decode_header(head)
    if not isinstance(header, tuple):
        raise Malformed(0, f"the file has {size} bytes, and a journal begins with {HEADER_BYTES}")
    position = header[0].position
    stop = min(position, size)
    metadata = codec.decode_metadata(memory, HEADER_BYTES, max(stop, HEADER_BYTES))
    if not isinstance(metadata, tuple):
        raise Malformed(HEADER_BYTES, "the metadata is not there, or not all of it")
    start = metadata[1].end
    mark = read_mark(memory, size, position)
    table.attach(memory, start)
    table.last_timestamp = max(table.last_timestamp, metadata[0].initialized)
    torn_from = None if mark is None else mark.torn_from
    end, count, is_rising = table.scan(start, stop, size if torn_from is None else torn_from)
    ending = Ending(metadata[0].initialized, position, mark, end, count)
    ending.is_odd = not is_rising or (end == position < size and entry_at(buffer, position, size) is not None)
    if end < stop:
        whole = entry_at(buffer, end, stop) is not None
        why = "a sector of it is missing" if whole else codec.explain(memory, end, stop)
        ending.reason = f"entries end before the position, {position}: {why}"
    elif position > size:
        ending.reason = f"the position is {position}, and the file has {size} bytes"
    return ending


@contextlib.contextmanager
def opened_ending(disk: Disk, path: Path) -> Iterator[tuple[Buffer, Table, Ending | None]]:
    """A journal, its keys, and the end of its entries, which is None if it does not begin like a journal."""
    buffer = Buffer.open(disk, path)
    table = Table()
    try:
        ending: Ending | None = None
        with contextlib.suppress(Malformed):
            ending = find_ending(buffer, table)
        yield buffer, table, ending
    finally:
        buffer.close()


def read_ending(disk: Disk, path: Path) -> Ending | None:
    """The end of the entries of a journal; None if it does not begin like a journal."""
    with opened_ending(disk, path) as (_, _, ending):
        return ending


def is_blank(disk: Disk, path: Path) -> bool:
    """Whether a journal is empty: its position does not even cover zeros."""
    buffer = Buffer.open(disk, path)
    try:
        return not any(buffer.memory[:HEADER_BYTES]) and last_byte(buffer.memory, 0, buffer.size) == 0
    finally:
        buffer.close()


def entry_at(buffer: Buffer, start: int, end: int) -> tuple[Entry, int] | None:
    """The entry at a position, and its end; None if there is no entry."""
    stop, count, *_ = kernel.walk(buffer.memory, start, end, 1)
    return (kernel.entries(buffer.memory, start, stop, 1)[0], stop) if count else None


def later_entries(buffer: Buffer, start: int, end: int) -> Iterator[Entry | None]:
    """The whole entries after a position that begin as every known writer begins one; None if too many places must be
    checked.

    That is so if too many places only look like the beginning of an entry.
    """
    at, misses = start + 1, 0
    while (at := buffer.memory.find(ENTRY_START, at, end)) != -1:
        found = entry_at(buffer, at, end)
        if found is not None:
            yield found[0]
            at = found[1]
            continue
        at += 1
        misses += 1
        if misses == _MOST_ATTEMPTS:
            yield None
            return


def refuse_damage(buffer: Buffer, ending: Ending) -> bool:
    """Raise `DamagedJournal` if an active journal has damage that is not a torn tail.

    Returns True if it is whole, or known to be torn by a power cut: then nothing that was durable is missing.
    """
    damages, is_by_power_cut = judge(buffer) if ending.is_doubtful else ([], True)
    for damage in damages:
        if damage.kind != "torn_tail":
            reason = f"{damage.reason}; this is no torn tail, so nothing is cut off (see logwright repair)"
            raise DamagedJournal(buffer.file.path, damage.start, reason)
    return is_by_power_cut


def judge(buffer: Buffer) -> tuple[list[Damage], bool]:
    """The damage of an active journal, as `verify` and `repair` find it; and whether a power cut caused it."""
    path = buffer.file.path
    cursor = Cursor(buffer.file, JournalFile("", path.name, path))
    return [item for item in cursor.items() if isinstance(item, Damage)], cursor.is_by_power_cut
