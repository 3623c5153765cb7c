"""ShardedScanner: follows all shards below a root, also those that appear while it runs.

    for shard, message in ShardedScanner("events", prefix="orders", timeout=None):
        ...

Each message of each shard is returned once and in the order of its shard; the shards take turns. See `scanner.py` for
what waiting, damage and truncation mean within one.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...core.bytes.outcome import Damage, Mode, check_mode
from ...core.format import Located
from ...core.io.disk import REAL_DISK, Disk
from ...core.io.watch import POLL_SECONDS, Watch
from ...core.read.chunk import Choice
from ...core.read.files_scanner import DEFAULT_TIMEOUT_SECONDS
from ...core.write.closing import Closing
from ...errors import Closed, NotFound
from ..bytes import kernel
from ..bytes.layout import SEGMENT_DIRECTORY
from ..bytes.records import Message
from ..files.reader import located
from ..files.scanner import Scanner
from ..files.segment import Chunk
from ..files.shard import Shard, check_bits, check_prefix, find_shards, in_shard, naming


class ShardedScanner(Closing):
    """An iterator over pairs of a shard's directory name and a message, waiting for more.

    `offsets` says where to begin in which shard, by directory name; the others begin with their first message. The
    root must exist, shards need not. A root that mixes bits is refused (`WrongUse`).
    """

    _closed = True  # until it is open

    def __init__(
        self,
        root: Path | str,
        offsets: Mapping[str, int] | None = None,
        *,
        prefix: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT_SECONDS,
        mode: Mode = "failfast",
        disk: Disk = REAL_DISK,
    ) -> None:
        self.path = Path(root)
        self.prefix = prefix
        self.mode = check_mode(mode)
        self.timeout = timeout
        self.disk = disk
        if prefix is not None:
            check_prefix(prefix)
        if not disk.is_directory(self.path):
            raise NotFound(f"{self.path}: no such directory")
        self._starts = dict(offsets or {})
        self._scanners: dict[Shard, Scanner[Message | Damage]] = {}
        self._turn: deque[Shard] = deque()
        self._pending: deque[tuple[Shard, Message | Damage]] = deque()
        self._closed = False
        self._watch: Watch = disk.watch(self.path)
        try:
            self._find_new()
        except BaseException:
            self.close()
            raise

    @property
    def offsets(self) -> dict[str, int]:
        """For each known shard, the offset of the next message that the iteration returns."""
        found = {shard.name: scanner.offset for shard, scanner in self._scanners.items()}
        for shard, item in reversed(self._pending):
            if isinstance(item, Message):
                found[shard.name] = item.offset
        return found

    # --- iterating --------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[tuple[str, Message | Damage]]:
        return self

    def __next__(self) -> tuple[str, Message | Damage]:
        if not self._pending:
            found = self._wait_for(self.timeout)
            if found is None:
                raise StopIteration
            shard, item = found
            if isinstance(item, Damage):
                return shard.name, item
            messages = kernel.messages(item.data, item.start, item.stop, item.count)
            self._pending.extend((shard, message) for message in messages)
        shard, next_item = self._pending.popleft()
        return shard.name, next_item

    def located(self, choice: Choice | None = None) -> Iterator[Located | Damage]:
        """The same messages with their places, relative to the root; of those that a choice chooses."""
        while (found := self._wait_for(self.timeout)) is not None:
            shard, item = found
            if isinstance(item, Damage):
                yield item
                continue
            own = None if choice is None else choice.within(shard.name)
            for place in located(item, None if own is None else own.rows(item)):
                yield in_shard(shard, place)

    def _wait_for(self, timeout: float | None) -> tuple[Shard, Chunk | Damage] | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self.poll()
            if found is not None:
                return found
            remaining = POLL_SECONDS if deadline is None else deadline - time.monotonic()
            if remaining <= 0:
                return self.poll(stalled=True) if timeout else None
            self._watch.wait(remaining)

    def poll(self, *, stalled: bool = False) -> tuple[Shard, Chunk | Damage] | None:
        """The next messages of one of the shards, without waiting; None if there are none. See `Scanner.poll`."""
        if self._closed:
            raise Closed(f"{self.path}: this scanner is closed")
        asked = 0
        while asked <= len(self._scanners):
            if not self._turn:
                self._find_new()
                self._turn.extend(self._scanners)
                if not self._turn:
                    return None
            shard = self._turn.popleft()
            with naming(shard):
                item = self._scanners[shard].poll(stalled=stalled)
            if item is not None:
                return shard, in_shard(shard, item) if isinstance(item, Damage) else item
            asked += 1
        return None

    # --- shards -----------------------------------------------------------------------------------------------------

    def _find_new(self) -> None:
        shards = find_shards(self.disk, self.path, self.prefix)
        if len(shards) != len(self._scanners):
            check_bits(self.path, shards)
        for shard in shards:
            if shard not in self._scanners:
                self._also_watch(shard.path / SEGMENT_DIRECTORY)
                self._scanners[shard] = Scanner(
                    shard.path,
                    self._starts.get(shard.name),
                    timeout=self.timeout,
                    mode=self.mode,
                    disk=self.disk,
                    watch=self._watch,
                )

    def _also_watch(self, directory: Path) -> None:
        # The system limits the number of watches. Shards without a watch are still polled every POLL_SECONDS.
        with contextlib.suppress(OSError):
            self._watch.add(directory)

    @property
    def watch(self) -> Watch:
        """The watch of this scanner, for event loops."""
        return self._watch

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        for scanner in self._scanners.values():
            scanner.close()
        self._watch.close()

    def __del__(self) -> None:
        if not self._closed:
            self.close()
