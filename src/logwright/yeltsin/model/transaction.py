"""Transaction: changes of pages that are applied together or not at all.

    with database.transaction() as tx:
        page = tx.allocate()
        tx.modify(page, 0, b"hello")
        tx.remove(other)

Leaving the block commits, an exception rolls back, and so does `rollback()`. A transaction reads what it has written;
others see it when it is committed. Until then nothing of it is in a file: the operations, with the bytes before and
after each of them, are collected in memory.

A rollback therefore has nothing to restore in the table. The operations are still written to the journal, followed by
the operation 0xFE that makes them void, as a record of what was tried. A transaction without operations leaves no
trace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ...core.io.disk import Buffer
from ...errors import LogwrightError, WrongUse
from ..bytes.layout import (
    ALLOCATION,
    ALLOCATION_DATA,
    MODIFICATION,
    MODIFICATION_HEAD,
    OPERATION_HEAD,
    REMOVAL,
    REMOVAL_DATA,
)
from ..bytes.table_layout import FIRST_PAGE, PAGE_BYTES, PAGE_DATA_BYTES, PAGE_HEAD_BYTES
from ..files.seal import Heads
from .kernel import Changes, Ending
from .overlay import Changeable, Overlay
from .page_links import append_page, check_page, remove_page
from .table import as_bytes, check_range
from .table_check import walk_pages

if TYPE_CHECKING:
    from .database import Database

_ALLOCATION: Final = OPERATION_HEAD.pack(ALLOCATION, ALLOCATION_DATA.size)
_REMOVAL: Final = OPERATION_HEAD.pack(REMOVAL, REMOVAL_DATA.size)
MOST_SHORT_BYTES: Final = 256 << 10
"""The largest transaction on the fast path, where each modification searches all earlier ones."""


class Transaction(Ending):
    """One transaction of a database; made by `Database.transaction`."""

    _state = "new"
    _is_whole = True
    """False if a change was interrupted half-way: then the transaction cannot be committed."""
    _overlay: Overlay | None = None
    _short: Changes | None = None
    """The modifications on the fast path, until there are other changes."""
    _operations: list[bytes]
    _changes: list[tuple[int, int, bytes | None]]
    """The changes of data in order: page, offset, bytes; None for a page that is emptied."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # --- changing -----------------------------------------------------------------------------------------------------

    def allocate(self) -> int:
        """Allocate an empty page, from the free list if possible, and return its offset, which is its name."""
        overlay = self._running()
        with self._changing():
            overlay.own_links()
            found = append_page(overlay)
            overlay.clear(found.page)
            self._operations.append(_ALLOCATION + ALLOCATION_DATA.pack(*found))
            self._changes.append((found.page, 0, None))
        return found.page

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """A change that is atomic: if it is interrupted, the transaction will be rolled back."""
        self._is_whole = False
        try:
            yield
        except LogwrightError:  # raised before anything was changed
            self._is_whole = True
            raise
        self._is_whole = True

    def modify(self, page: int, offset: int, data: Buffer) -> None:
        """Replace bytes of a page's data."""
        if type(data) is not bytes:
            data = as_bytes(data)
        short = self._short
        if short is None or self._state != "running" or short.size > MOST_SHORT_BYTES:
            self._modify(page, offset, data)
            return
        size = len(data)
        if offset < 0 or offset + size > PAGE_DATA_BYTES or page not in self._database._known:
            self._database._check_in_use(page, offset, size)
        if size:
            short.modify(page, offset, data)

    def _modify(self, page: int, offset: int, after: bytes) -> None:
        overlay = self._running()
        size = len(after)
        check_range(overlay.path, page, offset, size)
        check_page(overlay, page)
        if not size:
            return
        before = overlay.load(page, offset, size)
        head = OPERATION_HEAD.pack(MODIFICATION, MODIFICATION_HEAD.size + 2 * size)
        with self._changing():
            self._operations += (head, MODIFICATION_HEAD.pack(page, offset, size), before, after)
            self._changes.append((page, offset, after))
            overlay.store(page, offset, after)

    def remove(self, page: int) -> None:
        """Remove a page to the free list. The only page stays with its data, but has no rows then."""
        overlay = self._running()
        with self._changing():
            overlay.own_links()
            self._operations.append(_REMOVAL + REMOVAL_DATA.pack(page, remove_page(overlay, page)))

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, page: int, offset: int = 0, size: int | None = None) -> bytes:
        """The data of a page, or a range of it, as this transaction sees it."""
        size = PAGE_DATA_BYTES - offset if size is None else size
        if self._short is not None and self._state == "running":
            self._database._check_in_use(page, offset, size)
            return self._short.load(page, offset, size)
        overlay = self._running()
        check_range(overlay.path, page, offset, size)
        check_page(overlay, page)
        return overlay.load(page, offset, size)

    def pages(self) -> list[int]:
        """The pages in use, from the first to the last. They may be changed during the iteration."""
        return list(walk_pages(self._running()))

    # --- the end ------------------------------------------------------------------------------------------------------

    def rollback(self) -> None:
        """Undo everything, and end the transaction; it cannot be used in the rest of its block."""
        self._check_running()
        self._state = "rolled back"
        self._database._roll_back(self)

    def _check_running(self) -> None:
        if self._state != "running":
            raise WrongUse(f"{self._database.path}: this transaction is {self._state}; use it within its `with` block")

    def _running(self) -> Overlay:
        """The overlay of this transaction; from now on it does not use the fast path."""
        self._check_running()
        if self._overlay is None:
            overlay = Overlay(self._database._pages)
            self._operations, self._changes = [], []
            short, self._short, self._overlay, self._is_whole = self._short, None, overlay, False
            for place, data in [] if short is None else short.items():
                page = place - (place - FIRST_PAGE) % PAGE_BYTES
                self._modify(page, place - page - PAGE_HEAD_BYTES, data)
            self._is_whole = True
        return self._overlay

    def __enter__(self) -> Transaction:
        if self._state != "new":
            raise WrongUse(f"{self._database.path}: this transaction is {self._state}; begin another one")
        try:
            self._short = self._database._enter(self)
            self._state = "running"
            return self
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        """Let other transactions run; a second call does nothing."""
        self._database._leave(self)

    def _end(self, error: BaseException | None) -> None:
        if error is None and not self._is_whole and self._state == "running":
            self.rollback()
            raise WrongUse(f"{self._database.path}: a call of this transaction was interrupted, so it was rolled back")
        if error is None and self._state == "running":
            self._state = "committed"
            if self._short is not None:
                self._database._commit_shortly(self, self._short)
            else:
                self._database._commit(self)
            return
        if error is None or self._state != "running":
            self._database._leave(self)
            return
        try:
            self.rollback()
        except LogwrightError as failure:  # the original error says why; this one poisons the database
            error.add_note(f"the rollback could not be written: {failure}")
        finally:
            self._database._leave(self)

    # --- for the database ---------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        if self._short is not None:
            return not self._short.operations
        return self._overlay is None or not self._operations

    @property
    def end(self) -> int:
        """The end of the pages, including new ones."""
        return 0 if self._overlay is None else self._overlay.end

    def operations(self) -> bytes:
        """The operations, encoded for the journal."""
        return b"".join(self._operations) if self._short is None else bytes(self._short.operations)

    def sealed(self) -> bytes:
        """The heads of pages for the seal; empty if no page was added or removed."""
        overlay = self._overlay
        return Heads(overlay.links, overlay.heads).encode() if overlay is not None and overlay.heads else b""

    def apply_to(self, target: Changeable) -> None:
        """Apply the changes to other pages."""
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
