"""Journals of page transactions in splits: a split lies within one file, and the part that it belongs to is that file.

Where transactions begin is found by going from one to the next along their links, without loading large images. Damage
belongs to the split that it begins in. A split knows by its `mark` how many transactions come before it.

For streams, which go on where they stopped: `extent` says what there is, up to the last transaction that is whole, and
`reach` how far a number of bytes goes. A transaction that was cut off when a writer opened its journal is none that a
reader was ever given: it was not the last one, or had no end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...core.errors import NotFound
from ...core.outcome import Damage, Mode, check_mode
from ...core.split import TARGET_BYTES, Bound, Split, Times
from ...core.splitting import AnyReader as AnyReader
from ...core.splitting import advance as advance
from ...core.splitting import cut_file, part_of, plan_parts, split_items
from ...core.splitting import extent as extent
from ...core.splitting import file_of as file_of
from ...core.splitting import parts as parts
from ...core.splitting import reach as reach
from .cursor import Chunk
from .files import JournalFile, OpenFiles
from .reader import Reader


def plan(
    reader: AnyReader,
    target_bytes: int = TARGET_BYTES,
    start: Bound = None,
    stop: Bound = None,
    *,
    resumed: bool = False,
    times: Times | None = None,
) -> list[Split]:
    """The transactions with `start` <= number < `stop`, as they are now, in splits of about `target_bytes`.

    What is appended later is in none of them. Bounds are for every journal, or for each by its name; then those that
    are not named are left out. `resumed` says that what lies before `start` has been read before: damage that began
    there was told then. Times say nothing here: a journal has no order of them.
    """
    return plan_parts(reader, start, stop, lambda journal, low, high: _plan(journal, target_bytes, low, high, resumed))


def _plan(reader: Reader, target_bytes: int, start: int | None, stop: int | None, resumed: bool) -> list[Split]:
    found: list[Split] = []
    with reader.snapshot() as files:
        for source in files.files:
            indices: dict[int, int] = {}
            items = _items(reader, files, source, start, stop, indices)
            splits = cut_file(source, items, target_bytes, start, resumed=resumed)
            found += [replace(split, mark=indices.get(split.position)) for split in splits]
    return found


def _items(
    reader: Reader,
    files: OpenFiles,
    source: JournalFile,
    start: int | None,
    stop: int | None,
    indices: dict[int, int],
) -> Iterator[Chunk | Damage]:
    """The chunks and damages of one file; `indices` learns how many transactions come before each chunk."""
    for item in reader.file_chunks(source, files.file(source), start, stop, "permissive", load=False):
        if not isinstance(item, Damage):
            indices[item.position] = item.index
        yield item


def chunks(reader: AnyReader, split: Split, mode: Mode = "failfast") -> Iterator[Chunk | Damage]:
    """The transactions of a split. A chunk's buffer is valid until the next one is asked for."""
    check_mode(mode)
    journal: Reader = part_of(reader, split.part)
    with journal.snapshot() as files:
        if not files.files:
            raise NotFound(f"{journal.path}: {split.file} is gone")
        source = files.files[0]
        at = None if split.mark is None else (split.position, split.mark)
        found = journal.file_chunks(source, files.file(source), split.start, split.stop, "permissive", at=at)
        yield from split_items(journal, split, found, mode)
