"""Scanner: follows queues, operation by operation, across rotated files, while writers append.

    for operation in Scanner("queues/cars", timeout=5):
        ...

The iteration ends when nothing new came for `timeout` seconds (default 1; None waits for ever, 0 never waits); another
loop over the same scanner goes on where the last one ended. Each operation is seen once, in order; of a directory of
queues each queue is, and queues that appear later are followed from their beginning.

An incomplete last operation is waited for, and so is a tail that a crash left: the next writer cuts it off and goes on
behind it. Bad bytes with items behind them are damage, handled by `mode` as in `Reader`. A file that becomes shorter
than what was read of it is `Truncated`. When files were packed before they were read to their end, what was not read of
them is a `Gap`: a pack holds the state of a queue, not how it came there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ...core.closing import Closing
from ...core.disk import REAL_DISK, Disk
from ...core.errors import Closed, DamagedJournal, Gap, NotFound, Truncated
from ...core.format import Located
from ...core.outcome import Damage, Mode, check_mode
from ...core.watch import POLL_SECONDS
from . import codec
from .cursor import Cursor, judge
from .files import POSITION_BITS, JournalFile, OpenFiles, list_queues
from .reader import Reader, located
from .records import Operation

DEFAULT_TIMEOUT_SECONDS: Final = 1.0


class Scanner(Closing):
    """An iterator over the operations from a number on, waiting for more.

    `path` is a queue or a directory of queues. `start` is a number, for a directory one for each queue by its name;
    None, and a queue that is not named, begins with the first operation that there is.
    """

    def __init__(
        self,
        path: Path | str,
        start: int | Mapping[str, int] | None = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT_SECONDS,
        mode: Mode = "failfast",
        disk: Disk = REAL_DISK,
    ) -> None:
        self.path = Path(path).absolute()
        self.timeout = timeout
        self.mode = check_mode(mode)
        self.disk = disk
        self._is_directory = disk.is_directory(self.path)
        self._starts: Mapping[str, int] = start if isinstance(start, Mapping) else {}
        self._queues: dict[str, _Queue] = {}
        if self._is_directory:
            queues = list_queues(disk, self.path)
            if not queues:
                raise NotFound(f"{path}: no queues are here")
            if isinstance(start, int) and len(queues) == 1:
                self._starts = {queues[0]: start}
        else:
            reader = Reader(self.path, disk=disk)
            self._queues[reader.queue] = _Queue(reader, start if isinstance(start, int) else None)
        self._watch = disk.watch(self.path if self._is_directory else self.path.parent)
        self._closed = False

    def __iter__(self) -> Iterator[Operation]:
        for item in self.located():
            if not isinstance(item, Damage):
                yield item.record

    def located(self) -> Iterator[Located | Damage]:
        """The operations with their places, and in the mode `permissive` what is damaged."""
        if self._closed:
            raise Closed(f"{self.path}: this scanner is closed")
        since = time.monotonic()
        while True:
            for item in self._poll():
                yield item
                since = time.monotonic()
            left = POLL_SECONDS if self.timeout is None else since + self.timeout - time.monotonic()
            if left <= 0:
                return
            self._watch.wait(min(left, POLL_SECONDS))

    def _poll(self) -> Iterator[Located | Damage]:
        """What is there now and was not given yet."""
        if self._is_directory:
            for queue in list_queues(self.disk, self.path):
                if queue not in self._queues:
                    reader = Reader(self.path / queue, disk=self.disk)
                    self._queues[queue] = _Queue(reader, self._starts.get(queue))
        for followed in list(self._queues.values()):
            yield from followed.read(self.mode)

    def close(self) -> None:
        """Stop watching. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self._watch.close()


class _Queue:
    """One queue, and how far it was read: to a position in the file that follows the one named `before`."""

    def __init__(self, reader: Reader, start: int | None) -> None:
        self._reader = reader
        self._before, self._position = divmod(reader.first if start is None else start, 1 << POSITION_BITS)

    def read(self, mode: Mode) -> Iterator[Located | Damage]:
        with self._reader.snapshot() as files:
            yield from self._tell_gap(files, mode)
            for source in files.files:
                if source.before < self._before:
                    continue
                if source.before > self._before:
                    self._before, self._position = source.before, 0
                yield from self._read_file(files, source, mode)

    def _tell_gap(self, files: OpenFiles, mode: Mode) -> Iterator[Damage]:
        """Tell if the file that was being read is gone, and others have come behind it."""
        behind = [source for source in files.files if source.before > self._before]
        if behind and not any(source.before == self._before for source in files.files):
            reason = "the files before this were packed before they were read to their end"
            if mode == "failfast":
                raise Gap(behind[0].name, 0, reason)
            if mode == "permissive":
                yield Damage(behind[0].name, 0, 0, reason, "gap")

    def _read_file(self, files: OpenFiles, source: JournalFile, mode: Mode) -> Iterator[Located | Damage]:
        file = files.file(source)
        if file.size() < self._position:
            reason = f"it has {file.size()} bytes, and {self._position} of it were read"
            raise Truncated(f"{source.path} was cut short: {reason}")
        verdict = self._reader.verdict
        cursor = Cursor(file, source, self._position, dialect=verdict.dialect, settle=verdict.settle)
        while True:
            while (chunk := cursor.read()) is not None:
                self._position = cursor.position
                yield from located(chunk)
            if cursor.ending == codec.CLEAN:
                return
            damage, _ = judge(cursor)
            if damage.kind == "torn_tail":
                return  # somebody may be writing it
            self._position = cursor.position
            if mode == "failfast":
                raise DamagedJournal(damage.file, damage.start, damage.reason)
            if mode == "permissive":
                yield damage
