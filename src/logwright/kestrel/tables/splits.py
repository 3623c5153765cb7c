"""The splits of journals of queues: a split is a range of one file, and its part is the queue.

Operations can only be found by reading from one to the next. A rotated file that is small enough is one split, and is
not read for planning. Damage belongs to the split in which it begins. The file of a split is found by the numbers of
its operations, so it may be rotated in the meantime.

Streams use `extent`, the range of complete operations, `reach`, the number after some bytes, and `advance`, the number
after some operations.

An operation keeps its number when its file is rotated. But a pack, and a newest file that was rewritten because the
queue was empty, have other operations under the numbers of those that they replace. So a stream records a `mark` where
it stops, a digest of the bytes right before that position, and `resume` compares it with the present bytes. The `mark`
of a split shows whether its bytes have changed since it was planned.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import replace
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
from ..files.cursor import Chunk
from ..files.reader import Reader

_MARKED_BYTES: Final = 4096
_SPLIT_MARK_BYTES: Final = 64
_POSITION: Final = (1 << POSITION_BITS) - 1


class QueueSplits(FileSplits):
    """The splits of queues."""

    def mark(self, reader: AnyReader, part: str, number: int) -> str:
        """A digest of the bytes of the file right before a number; empty at the beginning of a file."""
        with part_of(reader, part).snapshot() as files:
            source = source_of(files.files, number)
            return "" if source is None else _mark(files.file(source), number & _POSITION)

    def resume(self, reader: AnyReader, part: str, number: int, mark: str) -> tuple[int, str]:
        """The number to continue with instead of `number`, and the reason if it differs.

        Operations that were packed before they were read are gone: the stream continues with the file after the pack. A
        newest file that was rewritten is read from its beginning. Without a mark, changes are not detected.
        """
        journal = part_of(reader, part)
        with journal.snapshot() as files:
            source = source_of(files.files, number)
            position = number & _POSITION
            if source is None:
                later = [file.first_number for file in files.files if file.first_number > number]
                last = (files.files[-1].timestamp or 0) << POSITION_BITS if files.files else 0
                if number == last:  # it was read to the end, and the next file does not exist yet
                    return number, ""
                following = min(later, default=last)
                return following, _gone(number, following, "was packed")
            file = files.file(source)
            if file.size() >= position and mark in ("", _mark(file, position)):
                return number, ""
            following = source.first_number if source.timestamp is None else source.timestamp << POSITION_BITS
            return following, _gone(number, following, "was rewritten" if source.timestamp is None else "was packed")

    def plan_part(self, reader: Reader, wanted: Wanted) -> list[Split]:
        target_bytes, start, stop, resumed, _ = wanted
        found: list[Split] = []
        with reader.snapshot() as files:
            for _, source, _ in reader.files_between(files, start, stop):
                file = files.file(source)
                planned = whole_file(source, file.size(), target_bytes, start, stop) if source.flaw is None else None
                if planned is None:
                    items = reader.file_chunks(source, file, start, stop, "permissive", resumed=resumed, load=False)
                    planned = cut_file(source, items, target_bytes, start, resumed=resumed)
                found += [replace(split, mark=_split_mark(file, split)) for split in planned]
        return found

    def chunks(self, reader: AnyReader, split: Split, mode: Mode = "failfast") -> Iterator[Chunk | Damage]:
        """The operations of a split. A chunk's buffer is valid until the next chunk is requested."""
        check_mode(mode)
        journal = part_of(reader, split.part)
        with journal.snapshot() as files:
            source = source_of(files.files, split.start)
            if source is None:
                raise NotFound(f"{journal.path}: {split.file} was packed: its operations no longer exist")
            file = files.file(source)
            if split.mark is not None and _split_mark(file, split) != split.mark:
                raise NotFound(f"{journal.path}: {split.file} was packed or rewritten: its operations no longer exist")
            found = journal.file_chunks(source, file, split.start, split.stop, "permissive", at=split.position)
            yield from split_items(journal, split, found, mode)


def _mark(file: File, position: int) -> str:
    if position == 0:
        return ""
    begin = max(0, position - _MARKED_BYTES)
    return hashlib.blake2b(file.read_at(begin, position - begin), digest_size=12).hexdigest()


def _gone(number: int, following: int, why: str) -> str:
    before, position = number >> POSITION_BITS, number & _POSITION
    place = f"position {position} of the file {'after number ' + str(before) if before else 'that was the first'}"
    return f"records from {number} on ({place}) were removed before they were read, because their file {why}; " + (
        f"it continues with {following}"
    )


def _split_mark(file: File, split: Split) -> int:
    """A checksum of the first bytes of a split, as far as they existed when it was planned."""
    size = min(_SPLIT_MARK_BYTES, split.stop - split.start)
    return zlib.crc32(file.read_at(split.position, size))


SPLITS: Final = QueueSplits()
