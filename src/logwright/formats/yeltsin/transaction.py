"""Transaction: changes of pages that become all of them, or none.

    with database.transaction() as tx:
        page = tx.allocate()
        tx.modify(page, 0, b"hello")
        tx.remove(other)

Leaving the block commits, an exception rolls back, and so does `rollback()`. A transaction reads what it has written;
others see it when it is committed. Until then nothing of it is in a file: the operations, with the bytes before and
after each of them, gather in memory.

A rollback therefore has nothing to restore in the table. The journal gets the operations all the same, with the
operation 0xFE that makes them void, so that it tells what was tried. A transaction without operations leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Final

from ...core.disk import Buffer
from ...core.errors import LogwrightError, WrongUse
from .layout import (
    ALLOCATION,
    ALLOCATION_DATA,
    MODIFICATION,
    MODIFICATION_HEAD,
    OPERATION_HEAD,
    REMOVAL,
    REMOVAL_DATA,
)
from .overlay import Changeable, Overlay, Pages
from .page_links import append_page, check_page, remove_page
from .seal import Heads
from .table import check_range
from .table_check import walk_pages
from .table_layout import PAGE_DATA_BYTES

if TYPE_CHECKING:
    from .database import Database

_ALLOCATION: Final = OPERATION_HEAD.pack(ALLOCATION, ALLOCATION_DATA.size)
_REMOVAL: Final = OPERATION_HEAD.pack(REMOVAL, REMOVAL_DATA.size)


class Transaction:
    """One transaction of a database; made by `Database.transaction`."""

    __slots__ = ("_changes", "_database", "_operations", "_overlay", "_state")

    def __init__(self, database: Database) -> None:
        self._database = database
        self._overlay: Overlay | None = None
        self._operations: list[bytes] = []
        self._changes: list[tuple[int, int, bytes | None]] = []
        """What becomes of the data of pages, in order: page, offset, bytes; None for a page that is emptied."""
        self._state = "new"

    # --- changing -----------------------------------------------------------------------------------------------------

    def allocate(self) -> int:
        """Take an empty page, from the free list first; its offset, which is its name."""
        overlay = self._running()
        overlay.own_links()
        found = append_page(overlay)
        overlay.clear(found.page)
        self._operations.append(_ALLOCATION + ALLOCATION_DATA.pack(*found))
        self._changes.append((found.page, 0, None))
        return found.page

    def modify(self, page: int, offset: int, data: Buffer) -> None:
        """Replace bytes of a page's data."""
        overlay = self._running()
        after = bytes(data)
        size = len(after)
        check_range(overlay.path, page, offset, size)
        check_page(overlay, page)
        if not size:
            return
        before = overlay.load(page, offset, size)
        head = OPERATION_HEAD.pack(MODIFICATION, MODIFICATION_HEAD.size + 2 * size)
        self._operations += (head, MODIFICATION_HEAD.pack(page, offset, size), before, after)
        self._changes.append((page, offset, after))
        overlay.store(page, offset, after)

    def remove(self, page: int) -> None:
        """Put a page on the free list. The only page stays where it is, with its data, and has no rows then."""
        overlay = self._running()
        overlay.own_links()
        self._operations.append(_REMOVAL + REMOVAL_DATA.pack(page, remove_page(overlay, page)))

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, page: int, offset: int = 0, size: int | None = None) -> bytes:
        """The data of a page, or a range of it, as this transaction sees it."""
        overlay = self._running()
        size = PAGE_DATA_BYTES - offset if size is None else size
        check_range(overlay.path, page, offset, size)
        check_page(overlay, page)
        return overlay.load(page, offset, size)

    def pages(self) -> Iterator[int]:
        """The pages in use, from the first to the last."""
        return walk_pages(self._running())

    # --- the end ------------------------------------------------------------------------------------------------------

    def rollback(self) -> None:
        """Undo everything, and end the transaction; the rest of its block can use it no more."""
        self._running()
        self._state = "rolled back"
        self._database._roll_back(self)

    def _running(self) -> Overlay:
        overlay = self._overlay
        if overlay is None or self._state != "running":
            raise WrongUse(f"{self._database.path}: this transaction is {self._state}; use it within its `with` block")
        return overlay

    def _begin(self, below: Pages) -> None:
        self._overlay = Overlay(below)
        self._state = "running"

    def __enter__(self) -> Transaction:
        if self._state != "new":
            raise WrongUse(f"{self._database.path}: this transaction is {self._state}; begin another one")
        self._database._enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state != "running":
            self._database._leave(self)
            return
        if error is None:
            self._state = "committed"
            self._database._commit(self)
            return
        try:
            self.rollback()
        except LogwrightError as failure:  # the error that comes through says why; this one poisons the database
            error.add_note(f"the rollback could not be written: {failure}")
        finally:
            self._database._leave(self)

    # --- for the database ---------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self._operations

    def operations(self) -> bytes:
        """The operations as the journal has them."""
        return b"".join(self._operations)

    def sealed(self) -> bytes:
        """The heads of pages for the seal, empty when no page comes or goes."""
        overlay = self._overlay
        assert overlay is not None
        return Heads(overlay.links, overlay.heads).encode() if overlay.heads else b""

    def apply_to(self, target: Changeable) -> None:
        """Make the changes in other pages."""
        overlay = self._overlay
        assert overlay is not None
        for page, offset, data in self._changes:
            if data is None:
                target.clear(page)
            else:
                target.store(page, offset, data)
        if overlay.heads:
            for page, head in overlay.heads.items():
                target.set_head(page, head)
            target.store_links(overlay.links)
