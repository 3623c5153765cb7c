"""Scanner: follows a journal, record by record, from file to file, while a writer appends.

    for record in Scanner("orders", timeout=5):
        ...

The iteration ends when nothing new came for `timeout` seconds (default 1; None waits for ever, 0 never waits); another
loop over the same scanner goes on where the last one ended. Each record is seen once, in order, also when a recovery
has moved its file meanwhile.

An incomplete last record is waited for, and so is a tail that a crash left: the next writer cuts it off and goes on
behind it. Bad bytes with checkpoints behind them are damage, handled by `mode` as in `Reader`. When files were checked
and removed before they were read to their end, what was not read of them is a `Gap`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...core.following import FilesScanner
from ...core.format import Located
from ...core.outcome import Damage, Mode
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


class _Journal:
    """The journal, and the number up to which it was read."""

    def __init__(self, reader: Reader, start: int | None) -> None:
        self._reader = reader
        self._number = reader.first if start is None else start

    def read(self, mode: Mode) -> Iterator[Located | Damage]:
        yield from self._tell_gap(mode)
        for item in self._reader.chunks(self._number, mode=mode):
            if isinstance(item, Damage):
                if item.kind == "torn_tail":
                    continue  # somebody may be writing it
                self._number = max(self._number, self._first_number(item.file) + item.end)
                yield item
            else:
                first = item.source.first_number
                for found in located(item):
                    self._number = first + found.span.end
                    yield found

    def _first_number(self, file: str) -> int:
        return next((source.first_number for source in self._reader.files() if source.name == file), 0)

    def _tell_gap(self, mode: Mode) -> Iterator[Damage]:
        """Tell if the file that was being read is gone."""
        files = self._reader.files()
        if not files or files[0].first_number <= self._number:
            return
        reason = "the files before this were checked and removed before they were read to their end"
        self._number = files[0].first_number
        yield from self._reader.report(Damage(files[0].name, 0, 0, reason, "gap"), mode)
