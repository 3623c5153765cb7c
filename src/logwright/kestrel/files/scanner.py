"""Scanner: follows queues, operation by operation, across rotated files, while writers append.

    for operation in Scanner("queues/cars", timeout=5):
        ...

The iteration ends when nothing new came for `timeout` seconds (default 1; None waits for ever, 0 never waits); another
loop over the same scanner continues where the last one ended. Each operation is seen once, in order; of a directory of
queues each queue is, and queues that appear later are followed from their beginning.

An incomplete last operation is waited for, and so is a tail that a crash left: the next writer cuts it off and
continues there. Bad bytes with items after them are damage, handled by `mode` as in `Reader`. A file that becomes
shorter than what was read of it is `Truncated`. When files were packed before they were read to their end, what was not
read of them is a `Gap`: a pack holds the state of a queue, not how it came there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Unpack, overload

from ...core.bytes.outcome import Damage, Mode
from ...core.format import Located
from ...core.read.chunk import POSITION_BITS, Bound, Choice
from ...core.read.chunk_reader import chosen_in
from ...core.read.files_scanner import FilesScanner, Following, FollowingAll, FollowingRecords, Item
from ...errors import Truncated
from ..bytes.records import Operation
from .continuation import judge
from .cursor import Cursor
from .files import JournalFile, OpenFiles, list_queues
from .reader import Reader


class Scanner(FilesScanner[Item]):
    """An iterator over the operations from a number on, waiting for more.

    `path` is a queue or a directory of queues. `start` is a number, for a directory one for each queue by its name;
    None, and a queue that is not named, begins with the first operation that there is.
    """

    format = "kestrel"
    nothing_here = "no queues are here"

    @overload
    def __init__(
        self: Scanner[Operation], path: Path | str, start: Bound = ..., **options: Unpack[FollowingRecords]
    ) -> None: ...

    @overload
    def __init__(
        self: Scanner[Operation | Damage], path: Path | str, start: Bound = ..., **options: Unpack[FollowingAll]
    ) -> None: ...

    def __init__(self, path: Path | str, start: Bound = None, **options: Unpack[Following]) -> None:
        super().__init__(path, start, **options)

    def names(self) -> list[str]:
        """The queues that the directory has now."""
        return list_queues(self.disk, self.path)

    def path_of(self, part: str) -> Path:
        """The path of one queue."""
        return self.path / part

    def follow(self, path: Path, start: int | None) -> _Queue:
        """Begin to follow one queue."""
        return _Queue(Reader(path, disk=self.disk), start)


class _Queue:
    """One queue, and how far it was read: to a position in the file that follows the one named `before`."""

    def __init__(self, reader: Reader, start: int | None) -> None:
        self._reader = reader
        self._before, self._position = divmod(reader.first if start is None else start, 1 << POSITION_BITS)
        self._reported: set[Damage] = set()

    def read(self, mode: Mode, choice: Choice | None = None) -> Iterator[Located | Damage]:
        with self._reader.snapshot() as files:
            yield from self._report_gap(files, mode)
            for source in files.files:
                if source.before < self._before:
                    continue
                if source.before > self._before:
                    self._before, self._position = source.before, 0
                yield from self._read_file(files, source, mode, choice)

    def _report_gap(self, files: OpenFiles, mode: Mode) -> Iterator[Damage]:
        """Report if the file that was being read is gone, and others follow it."""
        behind = [source for source in files.files if source.before > self._before]
        if behind and not any(source.before == self._before for source in files.files):
            reason = "the files before this were packed before they were read to their end"
            yield from self._reader.report(Damage(behind[0].name, 0, 0, reason, "gap"), mode)

    def _read_file(
        self, files: OpenFiles, source: JournalFile, mode: Mode, choice: Choice | None
    ) -> Iterator[Located | Damage]:
        file = files.file(source)
        if source.flaw is not None and self._position == 0 and source.flaw not in self._reported:
            self._reported.add(source.flaw)
            yield from self._reader.report(source.flaw, mode)
        if file.size() < self._position:
            reason = f"it has {file.size()} bytes, and {self._position} of it were read"
            raise Truncated(f"{source.path} was cut short: {reason}")
        verdict = self._reader.verdict
        cursor = Cursor(file, source, self._position, dialect=verdict.dialect, settle=verdict.settle)
        while True:
            while (chunk := cursor.read()) is not None:
                self._position = cursor.position
                yield from chosen_in(chunk, self._reader.decoded, choice)
            damage, _ = judge(cursor)
            if damage is None or damage.kind == "torn_tail":
                return  # a writer may be writing it
            self._position = cursor.position
            yield from self._reader.report(damage, mode)
