"""Overlay: changes of pages that are not in the table yet, over a table or over another overlay.

A transaction has one. A database has one for committed changes that have not been written to the table. Reading sees
the changes; the pages below do not change until `write_to` applies them.

A page that was changed a few times is stored as a list of its changes, one that was changed often as a copy of its
data, and an emptied one as a mark. So the memory used grows with the changes, not with the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

from ...core.io.disk import Buffer
from ..bytes.table_layout import PAGE_BYTES, PAGE_DATA_BYTES, PageHead, TableLinks
from .page_links import Space

_MOST_CHANGES: Final = 8
"""The most changes of a page that are kept as a list; more would make reading slow."""


class Pages(Space, Protocol):
    """Pages that can be read: heads and data."""

    def load(self, page: int, offset: int, size: int) -> bytes: ...


class Changeable(Pages, Protocol):
    """Pages that can be read and changed."""

    def store(self, page: int, offset: int, data: Buffer) -> None: ...

    def clear(self, page: int) -> None:
        """Fill a page's data with zeros. A page that begins at the end of the pages is added."""

    def store_links(self, links: TableLinks) -> None: ...


class _Page:
    """The data of one page: the page below or zeros, and changes to it; or a copy and the range that was changed."""

    __slots__ = ("changes", "data", "is_empty", "start", "stop")

    def __init__(self) -> None:
        self.changes: list[tuple[int, bytes]] = []
        self.data: bytearray | None = None
        self.is_empty = False
        self.start = PAGE_DATA_BYTES
        self.stop = 0

    def clear(self) -> None:
        self.changes.clear()
        self.data = None
        self.is_empty = True

    def store(self, below: Pages, page: int, offset: int, data: bytes) -> None:
        if self.data is None:
            if len(self.changes) < _MOST_CHANGES:
                self.changes.append((offset, data))
                return
            self._copy(below, page)
        assert self.data is not None
        stop = offset + len(data)
        self.data[offset:stop] = data
        self.start = min(self.start, offset)
        self.stop = max(self.stop, stop)

    def _copy(self, below: Pages, page: int) -> None:
        self.data = bytearray(PAGE_DATA_BYTES) if self.is_empty else bytearray(below.load(page, 0, PAGE_DATA_BYTES))
        self.start, self.stop = (0, PAGE_DATA_BYTES) if self.is_empty else (PAGE_DATA_BYTES, 0)
        for offset, data in self.changes:
            self.data[offset : offset + len(data)] = data
            self.start = min(self.start, offset)
            self.stop = max(self.stop, offset + len(data))
        self.changes.clear()

    def load(self, below: Pages, page: int, offset: int, size: int) -> bytes:
        if self.data is not None:
            return bytes(self.data[offset : offset + size])
        found = bytearray(size) if self.is_empty else bytearray(below.load(page, offset, size))
        for start, data in self.changes:
            first, last = max(start, offset), min(start + len(data), offset + size)
            if first < last:
                found[first - offset : last - offset] = data[first - start : last - start]
        return bytes(found)

    def write_to(self, target: Changeable, page: int) -> None:
        if self.data is not None:
            if self.start < self.stop:
                target.store(page, self.start, memoryview(self.data)[self.start : self.stop])
            return
        if self.is_empty:
            target.clear(page)
        for offset, data in self.changes:
            target.store(page, offset, data)


class Overlay:
    """Changed pages over others."""

    __slots__ = ("_below", "_heads", "_links", "_pages", "end", "path")

    def __init__(self, below: Pages) -> None:
        self.path: Path = below.path
        self._below = below
        self._heads: dict[int, PageHead] = {}
        self._pages: dict[int, _Page] = {}
        self._links: TableLinks | None = None
        self.end = below.end

    @property
    def links(self) -> TableLinks:
        """The links of the table; the same object as below unless they were changed here."""
        return self._below.links if self._links is None else self._links

    @property
    def is_empty(self) -> bool:
        return not self._pages and not self._heads

    @property
    def heads(self) -> dict[int, PageHead]:
        """The heads that have changed."""
        return self._heads

    def changes(self, page: int) -> bool:
        """Whether a page has changed."""
        return page in self._pages or page in self._heads

    def own_links(self) -> None:
        """Copy the links, so that they can be changed without those below."""
        if self._links is None:
            self._links = self._below.links.copy()

    def head(self, page: int) -> PageHead:
        found = self._heads.get(page)
        return self._below.head(page) if found is None else found

    def set_head(self, page: int, head: PageHead) -> None:
        self._heads[page] = head

    def store_links(self, links: TableLinks) -> None:
        self._links = links.copy()

    def load(self, page: int, offset: int, size: int) -> bytes:
        found = self._pages.get(page)
        return self._below.load(page, offset, size) if found is None else found.load(self._below, page, offset, size)

    def store(self, page: int, offset: int, data: Buffer) -> None:
        found = self._pages.get(page)
        if found is None:
            found = self._pages[page] = _Page()
        found.store(self._below, page, offset, bytes(data))

    def clear(self, page: int) -> None:
        found = self._pages.get(page)
        if found is None:
            found = self._pages[page] = _Page()
        found.clear()
        self.end = max(self.end, page + PAGE_BYTES)

    def write_to(self, target: Changeable) -> None:
        """Apply all changes to the pages of `target`; new pages are added in their order."""
        for page in sorted(self._pages):
            self._pages[page].write_to(target, page)
        for page, head in self._heads.items():
            target.set_head(page, head)
        if self._links is not None:
            target.store_links(self._links)

    def forget(self) -> None:
        """Forget the changes: the pages below have them now."""
        self._heads.clear()
        self._pages.clear()
        self._links = None
        self.end = self._below.end
