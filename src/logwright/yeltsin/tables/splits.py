"""Journals of page transactions in splits: a split is within one file, and the part that it belongs to is that file.

The beginnings of transactions are found by following their links, without loading large images. Damage belongs to the
split that it begins in. The `mark` of a split says how many transactions come before it.

Streams use `extent`, the range of whole transactions, and `reach`, how far a number of bytes goes. A transaction that
was cut off when a writer opened its journal was never given to a reader: it was not the last one, or had no end.

Transactions change in place once: their flag is set when they are in the storage. `final` says from where on that may
still happen: from the first one after the last that is flagged. Writers set the flags in the order of the transactions:
a database those of all transactions since its last checkpoint, an opening those that it has redone, which are the last
ones, and a program that follows the format that of the last transaction before it appends another. So one that is not
flagged stays so once a later one is: it was rolled back, is another program's, or lost its flag in a power cut. If a
writer sets no flags, all transactions of its journal stay provisional, because they look like transactions that are
about to be flagged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ...core.bytes.outcome import Damage, Malformed, Mode, check_mode
from ...core.io.disk import File
from ...core.read.file_splits import AnyReader, FileSplits, Wanted, cut_file, part_of, split_items
from ...core.read.splits import Split
from ...errors import NotFound
from ..bytes.layout import COMPLETE, FLAGS_AT
from ..files.cursor import Chunk
from ..files.files import JournalFile, Nearby, OpenFiles, read_head, read_header
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
        """The transactions of a split. A chunk's buffer is valid until the next chunk is requested."""
        check_mode(mode)
        journal: Reader = part_of(reader, split.part)
        with journal.snapshot() as files:
            if not files.files:
                raise NotFound(f"{journal.path}: {split.file} is gone")
            source = files.files[0]
            at = None if split.mark is None else (split.position, split.mark)
            found = journal.file_chunks(source, files.file(source), split.start, split.stop, "permissive", at=at)
            yield from split_items(journal, split, found, mode)

    def final(self, reader: AnyReader, part: str, start: int, stop: int) -> int:
        journal: Reader = part_of(reader, part)
        with journal.snapshot() as files:
            for source in files.files:
                found = _first_unsettled(journal, source, files.file(source), start)
                if found is not None:
                    return min(found, stop)
        return stop


def _first_unsettled(reader: Reader, source: JournalFile, file: File, start: int) -> int | None:
    """The first transaction from `start` on that no flagged one follows, itself included; None if there is none."""
    flagged = _find_flagged(file, start)
    low, at = (start, None) if flagged is None else (flagged, (flagged, 0))
    found: int | None = None
    for item in reader.file_chunks(source, file, low, None, "dropmalformed", at=at, load=False):
        assert not isinstance(item, Damage)
        starts, base = item.starts(), item.base
        rows = range(item.count - 1, -1, -1)
        last = next((row for row in rows if item.data[starts[row] - base + FLAGS_AT] & COMPLETE), -1)
        if last + 1 == item.count:
            found = None
        elif found is None or last >= 0:
            found = starts[last + 1]
    return found


def _find_flagged(file: File, start: int) -> int | None:
    """The last flagged transaction from `start` on, by the links backwards from the one that the header names.

    None if there is none, or if the links forwards do not confirm the way.
    """
    try:
        header = read_header(file)
    except Malformed:
        return None
    at, nearby = 0 if header is None else header.last, Nearby(file)
    head = read_head(nearby, at)
    while header is not None and head is not None and at >= start:
        before = read_head(nearby, head.previous) if head.previous else None
        if head.previous >= at or at != (header.first if before is None else before.next):
            return None
        if head.complete:
            return at
        at, head = head.previous, before
    return None


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
