"""KnownPages: the known bytes of the pages of a journal, with at most some megabytes in memory.

The pages that were used last are in memory. The bytes of the others are in a temporary file, in slots whose sizes are
powers of two, which are used again.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...core.io.disk import REAL_DISK, File, write_all
from ..model.replay import Ranges

MEMORY_BYTES: Final = 64 << 20
_LEAST_SLOT_BITS: Final = 9


@dataclass(slots=True)
class Page:
    """The number of changes of a page so far, and its known bytes."""

    version: int = 0
    ranges: Ranges = field(default_factory=Ranges)

    def copy(self) -> Page:
        return Page(self.version, self.ranges.copy())


@dataclass(frozen=True, slots=True)
class _Stored:
    """A page whose bytes are in a slot of the file: where its ranges begin, and how long they are."""

    version: int
    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    position: int
    bits: int


class KnownPages:
    """The pages by their numbers. `gaps` is how often transactions are lost so far: then all bytes are forgotten."""

    def __init__(self, scratch: Path, memory_bytes: int = MEMORY_BYTES) -> None:
        self.gaps = 0
        self._path = scratch / f"pages-{secrets.token_hex(8)}"
        self._memory_bytes = memory_bytes
        self._recent: OrderedDict[int, Page] = OrderedDict()
        self._used: dict[int, int] = {}
        """The numbers of known bytes of the pages in memory."""
        self._used_bytes = 0
        self._stored: dict[int, _Stored] = {}
        self._file: File | None = None
        self._end = 0
        self._free: dict[int, list[int]] = defaultdict(list)
        """The slots that are free, by the number of bits of their size."""

    def take(self, page: int) -> Page:
        """A page, to be changed until `settle` is called with it."""
        found = self._recent.get(page)
        if found is None:
            found = self._recent[page] = self._load(page)
        self._recent.move_to_end(page)
        return found

    def look(self, page: int) -> Page:
        """A copy of a page."""
        if page in self._recent:
            return self._recent[page].copy()
        return self._read(self._stored[page]) if page in self._stored else Page()

    def put(self, page: int, known: Page) -> None:
        """Set the known bytes of a page."""
        self._recent[page] = known
        self.settle([page])

    def settle(self, taken: Iterable[int]) -> None:
        """Store pages in the file if there are too many in memory. Those that were taken are not changed any more."""
        for page in taken:
            used = self._recent[page].ranges.size
            self._used_bytes += used - self._used.get(page, 0)
            self._used[page] = used
        while self._used_bytes > self._memory_bytes and len(self._recent) > 1:
            page, known = self._recent.popitem(last=False)
            self._used_bytes -= self._used.pop(page, 0)
            self._stored[page] = self._store(known)

    def forget(self, gaps: int) -> None:
        """Transactions are lost here: of no page any bytes are known."""
        self.gaps = gaps
        versions = {page: found.version for page, found in self}
        self.close()
        self._stored.clear()
        self._free.clear()
        self._used.clear()
        self._end = self._used_bytes = 0
        self._recent = OrderedDict((page, Page(version)) for page, version in versions.items())

    def __iter__(self) -> Iterator[tuple[int, Page]]:
        """All pages that were ever changed."""
        for page, stored in self._stored.items():
            yield page, self._read(stored)
        yield from self._recent.items()

    def close(self) -> None:
        """Remove the temporary file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
            REAL_DISK.remove(self._path)

    # --- the temporary file -------------------------------------------------------------------------------------------

    def _store(self, known: Page) -> _Stored:
        items = known.ranges.items()
        data = b"".join(piece for _, piece in items)
        bits = max(_LEAST_SLOT_BITS, (len(data) - 1).bit_length())
        if self._free[bits]:
            position = self._free[bits].pop()
        else:
            position, self._end = self._end, self._end + (1 << bits)
        if self._file is None:
            self._file = REAL_DISK.open(self._path, "create")
        write_all(self._file, position, data)
        starts, sizes = tuple(start for start, _ in items), tuple(len(piece) for _, piece in items)
        return _Stored(known.version, starts, sizes, position, bits)

    def _load(self, page: int) -> Page:
        stored = self._stored.pop(page, None)
        if stored is None:
            return Page()
        self._free[stored.bits].append(stored.position)
        return self._read(stored)

    def _read(self, stored: _Stored) -> Page:
        assert self._file is not None
        found, at = Ranges(), stored.position
        for start, size in zip(stored.starts, stored.sizes, strict=True):
            found.put(start, self._file.read_at(at, size))
            at += size
        return Page(stored.version, found)
