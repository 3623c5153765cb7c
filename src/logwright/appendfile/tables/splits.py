"""The splits of a journal: each is a file, or a part of one.

Record boundaries are found by reading from record to record. A small file that is not written any more is one split and
is not read; files have at most 4 MiB, so nearly all are. The `mark` of a split that does not begin with its file is
the last pair of ids before it, as one number.
Damage belongs to the split that it begins in. The file of a split is found by its id, so a recovery may move it
meanwhile.

Streams use `extent`, the range of whole records, `reach`, how far a number of bytes goes, and `advance`, how far a
number of records goes. If files were checked and removed before they were read, `resume` reports that, and where the
stream continues; but not if a finished recovery removed them after all of their data was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Final

from ...core.bytes.outcome import Damage, Mode, check_mode
from ...core.io.disk import File
from ...core.read.chunk import POSITION_BITS
from ...core.read.file_splits import (
    AnyReader,
    FileSplits,
    Wanted,
    cut_file,
    part_of,
    source_of,
    split_items,
    whole_file,
)
from ...core.read.splits import Split
from ...errors import NotFound
from ..bytes.layout import MAX_ID
from ..files.cursor import Chunk
from ..files.files import JournalFile, Listing, gone_between
from ..files.reader import Reader

_PAIR: Final = MAX_ID + 1
"""What the first of two ids is multiplied by to make one number of them."""


class SegmentSplits(FileSplits):
    """The splits of a journal with checkpoints."""

    def mark(self, reader: AnyReader, part: str, number: int) -> str:
        """The ids of files after a number that were already removed: a stream without them missed nothing."""
        return ",".join(map(_named, _holes(part_of(reader, part).listing(), number)))

    def resume(self, reader: AnyReader, part: str, number: int, mark: str) -> tuple[int, str]:
        """Where a stream at a number continues, and the files that are missing from there on."""
        journal = part_of(reader, part)
        listing = journal.listing()
        file_id = number >> POSITION_BITS
        source = next((file for file in listing.files if file.file_id == file_id), None)
        following = next((file.file_id for file in listing.files if file.file_id > file_id), None)
        if listing.first_number > number:
            following = listing.first_number >> POSITION_BITS
        elif source is not None:
            new = [gone for gone in _holes(listing, number) if _named(gone) not in mark.split(",")]
            if not new:
                return number, ""
            if new[0].stop != following or number - source.first_number < journal.disk.file_size(source.path):
                return number, _gone(new[0].start, new[0].stop)
        if following is None:
            return number, ""
        if listing.has_read_all(number, following):
            return following << POSITION_BITS, ""
        return following << POSITION_BITS, _gone(file_id, following)

    def plan_part(self, reader: Reader, wanted: Wanted) -> list[Split]:
        target_bytes, start, stop, resumed, _ = wanted
        found: list[Split] = []
        with reader.snapshot() as files:
            for _, source, _ in reader.files_between(files, start, stop):
                file = files.file(source)
                planned = _plan_file(reader, source, file, target_bytes, start, stop, resumed)
                if planned and (start is None or start <= source.first_number):
                    planned[0] = replace(planned[0], before=next(reader.report_names(source, "permissive"), None))
                found += planned
        return found

    def chunks(self, reader: AnyReader, split: Split, mode: Mode = "failfast") -> Iterator[Chunk | Damage]:
        """The records of a split. A chunk's buffer is valid until the next chunk is requested."""
        check_mode(mode)
        journal = part_of(reader, split.part)
        with journal.snapshot() as files:
            source = source_of(files.files, split.start)
            if source is None:
                raise NotFound(f"{journal.path}: {split.file} was checked and removed: it is not kept any more")
            if mode != "failfast":
                source = replace(source, damaged=journal.damaged_segments(files, [source]))
            found = journal.file_chunks(
                source,
                files.file(source),
                split.start,
                split.stop,
                "permissive",
                at=split.position,
                pair=None if split.mark is None else divmod(split.mark, _PAIR),
            )
            yield from split_items(journal, split, found, mode)


def _holes(listing: Listing, number: int) -> list[range]:
    """The ids that are missing between generations after a number."""
    pairs = [pair for pair in pairwise(listing.files) if pair[1].first_number > number]
    return [gone for pair in pairs if (gone := gone_between(*pair))]


def _named(gone: range) -> str:
    return f"{gone.start}-{gone.stop - 1}"


def _gone(first: int, following: int) -> str:
    gone = f"file {first}" if first + 1 == following else f"the files {first} to {following - 1}"
    return f"{gone}: removed after a check or recovery, perhaps before all was read; continuing with file {following}"


def _plan_file(
    reader: Reader,
    source: JournalFile,
    file: File,
    target_bytes: int,
    start: int | None,
    stop: int | None,
    resumed: bool,
) -> list[Split]:
    planned = whole_file(source, file.size(), target_bytes, start, stop)
    if planned is not None:
        return planned
    marks: dict[int, int] = {}
    items = _noting(reader.file_chunks(source, file, start, stop, "permissive"), marks)
    planned = cut_file(source, items, target_bytes, start, resumed=resumed)
    return [replace(split, mark=marks.get(split.position)) for split in planned]


def _noting(items: Iterator[Chunk | Damage], marks: dict[int, int]) -> Iterator[Chunk | Damage]:
    """The items, and the mark where each chunk begins."""
    for item in items:
        if not isinstance(item, Damage) and item.position and item.pair is not None:
            marks[item.position] = item.pair[0] * _PAIR + item.pair[1]
        yield item


SPLITS: Final = SegmentSplits()
