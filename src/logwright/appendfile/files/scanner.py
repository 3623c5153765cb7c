"""Scanner: follows a journal, record by record, from file to file, while a writer appends.

    for record in Scanner("orders", timeout=5):
        ...

The iteration ends when nothing new came for `timeout` seconds (default 1; None waits for ever, 0 never waits); another
loop over the same scanner continues where the last one ended. Each record is returned once, in order, even if a
recovery moves its file meanwhile.

The scanner waits at an incomplete last record, also at a torn tail: the next writer cuts it off and continues there.
Bad bytes followed by checkpoints are damage, handled by `mode` as in `Reader`. The file that is being read is kept
open, so that none of its records are missed when it is removed. Other files that were removed before they were read are
a `Gap`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Unpack, overload
from weakref import finalize

from ...core.bytes.outcome import Damage, Mode
from ...core.format import Located
from ...core.io.disk import File
from ...core.read.chunk import POSITION_BITS, Bound, Choice
from ...core.read.chunk_reader import chosen_in
from ...core.read.files_scanner import FilesScanner, Following, FollowingAll, FollowingRecords, Item
from ...errors import LogwrightError
from ..bytes.records import Record
from .cursor import Chunk
from .files import Files, JournalFile, gone_between
from .reader import Reader


class Scanner(FilesScanner[Item]):
    """An iterator over the records from a number on, waiting for more.

    `path` is the directory of a journal, or one file of it. `start` is a number; None begins with the first record.
    """

    format = "appendfile"
    nothing_here = "no files of a journal are here"

    @overload
    def __init__(
        self: Scanner[Record], path: Path | str, start: Bound = ..., **options: Unpack[FollowingRecords]
    ) -> None: ...

    @overload
    def __init__(
        self: Scanner[Record | Damage], path: Path | str, start: Bound = ..., **options: Unpack[FollowingAll]
    ) -> None: ...

    def __init__(self, path: Path | str, start: Bound = None, **options: Unpack[Following]) -> None:
        super().__init__(path, start, **options)

    def names(self) -> list[str]:
        """A directory is one journal."""
        return [""]

    def path_of(self, part: str) -> Path:
        """The journal itself."""
        return self.path

    def follow(self, path: Path, start: int | None) -> _Journal:
        """Begin to follow the journal."""
        return _Journal(Reader(path, disk=self.disk), start)

    def close(self) -> None:
        """Stop watching, and close the file that was read last. A second call does nothing."""
        for followed in self._followed.values():
            assert isinstance(followed, _Journal)
            followed.close()
        super().close()


class _Journal:
    """The journal, and the number up to which it was read.

    The file that is being read is kept open: if it is removed, the rest of it can still be read. Its id shows whether
    files after it are missing, because ids are consecutive.
    """

    def __init__(self, reader: Reader, start: int | None) -> None:
        self._reader = reader
        listing = reader.listing()
        self._number = listing.first_number if start is None else start
        self._never = [gone_between(*pair) for pair in pairwise(listing.files)] if start is None else []
        """The ids of files that were gone when we began with the first that there was: nothing of ours."""
        self._held: tuple[JournalFile, File] | None = None
        self._release: Callable[[], object] = int

    def read(self, mode: Mode, choice: Choice | None = None) -> Iterator[Located | Damage]:
        """The records that were not returned yet, and a gap if files are missing."""
        with self._reader.snapshot() as files:
            try:
                yield from self._read_held(files, choice)
                before: JournalFile | None = None
                for _, source, _ in self._reader.files_between(files, self._number, None):
                    yield from self._report_gap(before, source, mode)
                    if self._number <= source.first_number:
                        yield from self._reader.report_names(source, mode)
                    file = files.file(source)
                    chunks = self._reader.file_chunks(source, file, self._number, None, mode)
                    yield from self._given(source, chunks, choice)
                    before = source
            finally:
                self._hold(files)

    def _given(
        self, source: JournalFile, items: Iterator[Chunk | Damage], choice: Choice | None
    ) -> Iterator[Located | Damage]:
        """The records that were not returned yet. A torn tail is ignored: a writer may be writing it."""
        for item in items:
            if not isinstance(item, Damage):
                for found in chosen_in(item, self._reader.decoded, choice):
                    self._number = source.first_number + found.span.end
                    yield found
                self._number = source.first_number + item.end
            elif item.kind != "torn_tail":
                self._number = max(self._number, source.first_number + item.end)
                yield item

    def _read_held(self, files: Files, choice: Choice | None) -> Iterator[Located | Damage]:
        """The rest of the file that the next record belongs to, if it is gone."""
        file_id = self._number >> POSITION_BITS
        if self._held is None or self._held[0].file_id != file_id or _find(files, file_id) is not None:
            return
        source, file = self._held
        chunks = self._reader.file_chunks(source, file, self._number, None, "dropmalformed")
        yield from self._given(source, chunks, choice)
        self._number = source.first_number + (1 << POSITION_BITS)

    def _report_gap(self, before: JournalFile | None, source: JournalFile, mode: Mode) -> Iterator[Damage]:
        """Report a gap if files between the preceding file and this one were removed before they were read."""
        if source.first_number <= self._number:
            return
        if before is not None:
            gone = gone_between(before, source)
        elif self._reader.listing().has_read_all(self._number, source.file_id):
            return
        else:
            gone = range(self._number >> POSITION_BITS, source.file_id)
        if gone and gone not in self._never:
            reason = "the files before this were checked and removed before they were read to their end"
            self._number = source.first_number
            yield from self._reader.report(Damage(source.name, 0, 0, reason, "gap"), mode)

    def _hold(self, files: Files) -> None:
        """Keep the file open that the next record belongs to."""
        file_id = self._number >> POSITION_BITS
        if self._held is not None and self._held[0].file_id == file_id:
            return
        self.close()
        source = _find(files, file_id)
        if source is not None:
            with contextlib.suppress(LogwrightError):  # reading it reports the error
                file = files.keep(source)
                self._held = replace(source, timestamp=file_id + 1), file
                self._release = finalize(self, file.close)  # also if the scanner is never closed

    def close(self) -> None:
        """Close the file."""
        self._held = None
        self._release()


def _find(files: Files, file_id: int) -> JournalFile | None:
    return next((source for source in files.files if source.file_id == file_id), None)
