"""Journals of page transactions in splits: a split is within one file, and the part that it belongs to is that file.

Where transactions begin is found by going from one to the next along their links, without loading large images. Damage
belongs to the split that it begins in. A split knows by its `mark` how many transactions come before it.

For streams, which go on where they stopped: `extent` says what there is, up to the last transaction that is whole, and
`reach` how far a number of bytes goes. A transaction that was cut off when a writer opened its journal is none that a
reader was ever given: it was not the last one, or had no end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ...core.bytes.outcome import Damage, Mode, check_mode
from ...core.read.file_splits import AnyReader, FileSplits, Wanted, cut_file, part_of, split_items
from ...core.read.splits import Split
from ...errors import NotFound
from ..files.cursor import Chunk
from ..files.files import JournalFile, OpenFiles
from ..files.reader import Reader


class TransactionSplits(FileSplits):
    """The splits of journals of page transactions."""

    def plan_part(self, reader: Reader, wanted: Wanted) -> list[Split]:
        target_bytes, start, stop, resumed, _ = wanted
        found: list[Split] = []
        with reader.snapshot() as files:
            for source in files.files:
                indices: dict[int, int] = {}
                items = _items(reader, files, source, start, stop, indices)
                splits = cut_file(source, items, target_bytes, start, resumed=resumed)
                found += [replace(split, mark=indices.get(split.position)) for split in splits]
        return found

    def chunks(self, reader: AnyReader, split: Split, mode: Mode = "failfast") -> Iterator[Chunk | Damage]:
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


SPLITS: Final = TransactionSplits()
