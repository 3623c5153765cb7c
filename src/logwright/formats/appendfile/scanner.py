"""Scanner: follows a journal, record by record, from file to file, while a writer appends.

    for record in Scanner("orders", timeout=5):
        ...

The iteration ends when nothing new came for `timeout` seconds (default 1; None waits for ever, 0 never waits); another
loop over the same scanner goes on where the last one ended. Each record is seen once, in order, also when a recovery
has moved its file meanwhile.

An incomplete last record is waited for, and so is a tail that a crash left: the next writer cuts it off and goes on
behind it. Bad bytes with checkpoints behind them are damage, handled by `mode` as in `Reader`. The file that is being
read is kept open, so nothing of it is missed when it is checked or recovered, and removed. Other files that went before
they were read are a `Gap`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from weakref import finalize

from ...core.disk import File
from ...core.errors import LogwrightError
from ...core.following import FilesScanner
from ...core.format import Located
from ...core.outcome import Damage, Mode
from .cursor import Chunk
from .files import POSITION_BITS, JournalFile
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
        self._number = reader.first if start is None else start
        self._held: tuple[JournalFile, File] | None = None
        self._release: Callable[[], object] = int

    def read(self, mode: Mode) -> Iterator[Located | Damage]:
        files = self._reader.files()
        if files and files[0].first_number > self._number:
            yield from self._read_held()
            yield from self._tell_gap(files[0], mode)
        self._hold()
        yield from self._given(self._reader.chunks(self._number, mode=mode))
        self._hold()

    def _given(self, items: Iterator[Chunk | Damage]) -> Iterator[Located | Damage]:
        """What was not given yet; a torn tail is none: somebody may be writing it."""
        for item in items:
            if not isinstance(item, Damage):
                first = item.source.first_number
                for found in located(item):
                    self._number = first + found.span.end
                    yield found
            elif item.kind != "torn_tail":
                self._number = max(self._number, self._first_number(item.file) + item.end)
                yield item

    def _first_number(self, file: str) -> int:
        return next((source.first_number for source in self._reader.files() if source.name == file), 0)

    def _read_held(self) -> Iterator[Located | Damage]:
        """The rest of a file that is gone."""
        if self._held is not None and self._held[0].first_number <= self._number:
            source, file = self._held
            yield from self._given(self._reader.file_chunks(source, file, self._number, None, "dropmalformed"))
            self._number = source.first_number + (1 << POSITION_BITS)

    def _tell_gap(self, first: JournalFile, mode: Mode) -> Iterator[Damage]:
        """Tell if a file is gone that was not read to its end."""
        if first.first_number <= self._number:
            return
        reason = "the files before this were checked and removed before they were read to their end"
        self._number = first.first_number
        yield from self._reader.report(Damage(first.name, 0, 0, reason, "gap"), mode)

    def _hold(self) -> None:
        """Open the file that the next record belongs to, unless it is open."""
        file_id = self._number >> POSITION_BITS
        if self._held is not None and self._held[0].file_id == file_id:
            return
        self.close()
        source = next((source for source in self._reader.files() if source.file_id == file_id), None)
        if source is None:
            return
        try:
            file = self._reader.disk.open(source.path, "read")
        except LogwrightError:  # gone just now, or moved: the next round finds it
            return
        self._held = replace(source, timestamp=file_id + 1), file
        self._release = finalize(self, file.close)  # also of a scanner that nobody closes

    def close(self) -> None:
        """Close the file."""
        self._held = None
        self._release()
