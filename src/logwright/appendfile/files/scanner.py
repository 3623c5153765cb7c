"""Scanner: follows a journal, record by record, from file to file, while a writer appends.

    for record in Scanner("orders", timeout=5):
        ...

The iteration ends when nothing new came for `timeout` seconds (default 1; None waits for ever, 0 never waits); another
loop over the same scanner goes on where the last one ended. Each record is seen once, in order, also when a recovery
has moved its file meanwhile.

An incomplete last record is waited for, and so is a tail that a crash left: the next writer cuts it off and goes on
behind it. Bad bytes with checkpoints behind them are damage, handled by `mode` as in `Reader`. The file that is being
read is kept open, so nothing of it is missed when it is checked or recovered, and removed. Other files that went before
they were read are a `Gap`, also behind older ones that wait to be recovered.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from weakref import finalize

from ...core.bytes.outcome import Damage, Mode
from ...core.format import Located
from ...core.io.disk import File
from ...core.read.files_scanner import FilesScanner
from ...errors import LogwrightError
from .cursor import Chunk
from .files import POSITION_BITS, Files, JournalFile, gone_between
from .reader import Reader, located


class Scanner(FilesScanner):
    """An iterator over the records from a number on, waiting for more.

    `path` is the directory of a journal, or one file of it. `start` is a number; None begins with the first record that
    there is.
    """

    nothing_here = "no files of a journal are here"

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

    The file that has come to be read last is kept open: when it goes, what was not read of it can still be, and whether
    something is missing behind it follows from its id, because ids are consecutive.
    """

    def __init__(self, reader: Reader, start: int | None) -> None:
        self._reader = reader
        listing = reader.listing()
        self._number = listing.first_number if start is None else start
        self._never = [gone_between(*pair) for pair in pairwise(listing.files)] if start is None else []
        """The ids of files that were gone when we began with the first that there was: nothing of ours."""
        self._held: tuple[JournalFile, File] | None = None
        self._release: Callable[[], object] = int

    def read(self, mode: Mode) -> Iterator[Located | Damage]:
        """What is there and was not given yet. What is missing is judged by the same files that are read."""
        with self._reader.snapshot() as files:
            try:
                yield from self._read_held(files)
                before: JournalFile | None = None
                for _, source, _ in self._reader.files_between(files, self._number, None):
                    yield from self._tell_gap(before, source, mode)
                    if self._number <= source.first_number:
                        yield from self._reader.names_told(source, mode)
                    file = files.file(source)
                    yield from self._given(source, self._reader.file_chunks(source, file, self._number, None, mode))
                    before = source
            finally:
                self._hold(files)

    def _given(self, source: JournalFile, items: Iterator[Chunk | Damage]) -> Iterator[Located | Damage]:
        """What was not given yet; a torn tail is none: somebody may be writing it."""
        for item in items:
            if not isinstance(item, Damage):
                for found in located(item):
                    self._number = source.first_number + found.span.end
                    yield found
            elif item.kind != "torn_tail":
                self._number = max(self._number, source.first_number + item.end)
                yield item

    def _read_held(self, files: Files) -> Iterator[Located | Damage]:
        """The rest of the file that the next record belongs to, if it is gone."""
        file_id = self._number >> POSITION_BITS
        if self._held is None or self._held[0].file_id != file_id or _find(files, file_id) is not None:
            return
        source, file = self._held
        yield from self._given(source, self._reader.file_chunks(source, file, self._number, None, "dropmalformed"))
        self._number = source.first_number + (1 << POSITION_BITS)

    def _tell_gap(self, before: JournalFile | None, source: JournalFile, mode: Mode) -> Iterator[Damage]:
        """Tell if files are gone that were not read to their end, before this one and behind the one before it."""
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
            with contextlib.suppress(LogwrightError):  # whoever reads it is told
                file = files.keep(source)
                self._held = replace(source, timestamp=file_id + 1), file
                self._release = finalize(self, file.close)  # also of a scanner that nobody closes

    def close(self) -> None:
        """Close the file."""
        self._held = None
        self._release()


def _find(files: Files, file_id: int) -> JournalFile | None:
    return next((source for source in files.files if source.file_id == file_id), None)
