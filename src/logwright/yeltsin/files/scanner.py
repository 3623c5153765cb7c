"""Scanner: follows journals, transaction by transaction, while writers append.

    for transaction in Scanner("t.jrnl", timeout=5):
        ...

The iteration ends when nothing new came for `timeout` seconds (default 1; None waits for ever, 0 never waits); another
loop over the same scanner continues where the last one ended. Each transaction is returned once, in order, as it is at
that moment: `next` and the flag are written later. In a directory each journal is followed; those that appear later are
followed from their beginning. The scanner waits at bytes after the last transaction. Damage is handled by `mode` as in
`Reader`. A file that becomes shorter than what was read of it is `Truncated`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Unpack, overload

from ...core.bytes.outcome import Damage, Mode
from ...core.format import Located
from ...core.read.chunk import Bound, Choice
from ...core.read.chunk_reader import located
from ...core.read.files_scanner import FilesScanner, Following, FollowingAll, FollowingRecords, Item
from ...errors import Truncated
from ..bytes.records import Transaction
from .cursor import decoded
from .files import list_journals
from .reader import Reader


class Scanner(FilesScanner[Item]):
    """An iterator over the transactions from a number on, waiting for more.

    `path` is a journal or a directory of journals. `start` is a number, or for a directory a number for each journal by
    its name. Without one, a journal is followed from its first transaction.
    """

    format = "yeltsin"
    nothing_here = "no journal is here"

    @overload
    def __init__(
        self: Scanner[Transaction], path: Path | str, start: Bound = ..., **options: Unpack[FollowingRecords]
    ) -> None: ...

    @overload
    def __init__(
        self: Scanner[Transaction | Damage], path: Path | str, start: Bound = ..., **options: Unpack[FollowingAll]
    ) -> None: ...

    def __init__(self, path: Path | str, start: Bound = None, **options: Unpack[Following]) -> None:
        super().__init__(path, start, **options)

    def names(self) -> list[str]:
        """The journals that are in the directory now."""
        return list_journals(self.disk, self.path)

    def path_of(self, part: str) -> Path:
        """The path of one journal."""
        return self.path / part

    def follow(self, path: Path, start: int | None) -> _Journal:
        """Begin to follow one journal."""
        return _Journal(Reader(path, disk=self.disk), start)


class _Journal:
    """One journal, and the number up to which it was read."""

    def __init__(self, reader: Reader, start: int | None) -> None:
        self._reader = reader
        self._number = reader.first if start is None else start
        self._passed: tuple[int, int] | None = None
        """The last transaction that was returned, and its index: reading continues there."""

    def read(self, mode: Mode, choice: Choice | None = None) -> Iterator[Located | Damage]:
        with self._reader.snapshot() as files:
            for source in files.files:
                file = files.file(source)
                if file.size() < self._number:
                    reason = f"it has {file.size()} bytes, and {self._number} of it were read"
                    raise Truncated(f"{source.path} was cut short: {reason}")
                chunks = self._reader.file_chunks(source, file, self._number, None, mode, at=self._passed)
                for item in chunks:
                    if isinstance(item, Damage):
                        if item.kind != "torn_tail":  # a writer may be writing that
                            self._number = max(self._number, item.end)
                            yield item
                        continue
                    starts = item.starts()
                    rows = range(item.count) if choice is None else choice.rows(item)
                    for row, found in zip(rows, located(item, decoded(item), rows), strict=True):
                        self._number, self._passed = starts[row + 1], (starts[row], item.index + row)
                        yield found
                    self._number, self._passed = starts[-1], (starts[-2], item.index + item.count - 1)
