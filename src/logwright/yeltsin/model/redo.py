"""Redo: applying a transaction of the journal to the pages of a table, again or for the first time.

Why redo is correct from any state that a crash can leave. A table may then be a mixture: each sector that transactions
from some point on have written has the bytes from before or after any of them.

- A transaction that we have written carries a seal with the heads of all pages whose links it changes, and the table's
  links. With the images of its operations, and the zeros of the pages that it allocates, these are all bytes that
  applying it writes, and none of them depends on what is in the table. Redoing such transactions from the earliest that
  may be missing to the last one, in their order, writes every byte that any of them has written, the last one's bytes
  last. So the mixture is gone, whatever it was. Redo twice equals redo once for the same reason.
- A transaction of another program has operations only, which do not say how the pages next to one that is added or
  removed change. Those links are rebuilt from the table: a page that is allocated goes to the end of the list, and
  leaves it first if it is there already; a page that is removed leaves the list if it is still there. That is right for
  a table that has none of the transaction, or all of it. What comes out is noted beside the table before that is
  changed, so a redo that was killed is done again as if the transaction had a seal (see `redo_note.py`). For a table
  that is anything else the lists are checked afterwards, and if they are broken that is reported and the table left as
  it was.

Operations come from a file: missing pages, and ranges beyond a page, are `DamagedJournal`. Everything is applied to an
overlay first, so a transaction that cannot be redone completely never changes the table.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ...errors import DamagedJournal, LogwrightError
from ..bytes.layout import (
    ALLOCATION,
    ALLOCATION_DATA,
    COMPLETE,
    COMPLETION,
    MODIFICATION,
    MODIFICATION_HEAD,
    REMOVAL,
    REMOVAL_DATA,
    ROLLBACK,
)
from ..bytes.table_layout import DELETED, PAGE_BYTES, PAGE_DATA_BYTES, PageHead, is_page
from ..files.files import Readable, read_head
from ..files.operations import End, Part, find_end, read_operations
from ..files.seal import Heads, sealed_heads
from .overlay import Changeable, Overlay
from .page_links import link_last, unlink
from .table_check import check_table


def store_heads(target: Changeable, heads: Heads) -> None:
    """Set the heads of pages and the links of the table to those after a transaction."""
    for page, head in heads.pages.items():
        target.set_head(page, head)
    target.store_links(heads.links)


class Redone(NamedTuple):
    """A transaction of the journal that is to be redone, and its flags."""

    position: int
    end: End
    flags: int


def find_due(file: Readable, last: int, size: int, ends: Mapping[int, End]) -> list[Redone]:
    """The transactions at the end that may be missing in the table, earliest first; `last` is the last one of the
    journal.

    `ends` are the known ends of transactions. These are the last one, if the journal has all of it and it is not
    flagged, and before it our own transactions that are not flagged either. Transactions that were rolled back are
    skipped.
    """
    found: list[Redone] = []
    for position, flags in _backwards(file, last):
        end = ends.get(position) or find_end(file, position, size)
        if end is not None and end.kind == ROLLBACK:
            continue
        if end is None or flags & COMPLETE or (found and not end.seal):
            break
        found.append(Redone(position, end, flags))
    return found[::-1]


def find_last_completed(file: Readable, last: int, size: int) -> Redone | None:
    """The last transaction that was not rolled back, flagged or not."""
    for position, flags in _backwards(file, last):
        end = find_end(file, position, size)
        if end is not None and end.kind == COMPLETION:
            return Redone(position, end, flags)
    return None


def _backwards(file: Readable, last: int) -> Iterator[tuple[int, int]]:
    """The offsets of transactions, the last one first, and their flags."""
    position = last
    while position:
        head = read_head(file, position)
        if head is None or head.previous >= position:
            raise DamagedJournal(file.path, position, "the transaction names none before it as its previous")
        yield position, head.flags
        position = head.previous


def redo(file: Readable, due: Redone, size: int, target: Overlay) -> None:
    """Apply a transaction to the pages of an overlay."""
    heads = sealed_heads(due.end.seal)
    worker = _Redo(file.path, target, is_sealed=bool(due.end.seal))
    for part in read_operations(file, due.position, size):
        worker.do(part)
    if heads is not None:
        _check_heads(file.path, due.end.position, heads, target)
        store_heads(target, heads)
    elif not due.end.seal:
        worker.finish()


def _check_heads(path: Path, position: int, heads: Heads, target: Overlay) -> None:
    links = heads.links
    wanted = [*heads.pages, links.first, links.last, *([links.last_free] if links.last_free else [])]
    if not all(is_page(page, target.end) for page in wanted):
        raise DamagedJournal(path, position, "the completion names a page that is not in the table")


class _Redo:
    """Applies operations one by one; for a transaction without a seal it also changes the links."""

    def __init__(self, path: Path, target: Overlay, *, is_sealed: bool) -> None:
        self._path = path
        self._target = target
        self._is_sealed = is_sealed
        self._removal: tuple[int, int, int] | None = None
        self._relinked = False

    def do(self, part: Part) -> None:
        if part.kind == MODIFICATION:
            page, offset, size = MODIFICATION_HEAD.unpack_from(part.data)
            self._check(part, page)
            if offset + size > PAGE_DATA_BYTES:
                raise DamagedJournal(self._path, part.position, f"no page has {size} bytes from {offset} on")
            self._target.store(page, offset, part.data[MODIFICATION_HEAD.size + size :])
        elif part.kind == ALLOCATION:
            self._allocate(part, *ALLOCATION_DATA.unpack(part.data))
        elif part.kind == REMOVAL:
            page, before = REMOVAL_DATA.unpack(part.data)
            self._check(part, page)
            if not self._is_sealed:
                self._finish_removal(before)
                self._removal = part.position, page, before

    def finish(self) -> None:
        """Finish the transaction."""
        self._finish_removal(None)
        if self._relinked:
            problems = check_table(self._target).problems
            if problems:
                raise DamagedJournal(
                    self._target.path,
                    problems[0].position,
                    f"the lists of the table are broken, and its journal cannot repair them: {problems[0].message}",
                )

    def _check(self, part: Part, page: int) -> None:
        if not is_page(page, self._target.end):
            raise DamagedJournal(self._path, part.position, f"the operation is on {page}, where no page is")

    def _allocate(self, part: Part, page: int, before: int, after: int) -> None:
        target = self._target
        is_new = page == target.end
        if not is_new:
            self._check(part, page)
        if not self._is_sealed:
            self._finish_removal(before)
            self._relinked = True
            with _naming_operation(self._path, part.position):
                target.own_links()
                if is_new:
                    target.end += PAGE_BYTES
                    target.set_head(page, PageHead(DELETED))
                if target.links.last != page:
                    if not target.head(page).deleted:
                        unlink(target, page)
                    link_last(target, page)
                target.links.last_free = after
        target.clear(page)

    def _finish_removal(self, following_before: int | None) -> None:
        """Apply the removal before this operation. The first free page shows whether that was done already."""
        if self._removal is None:
            return
        position, page, before = self._removal
        self._removal = None
        self._relinked = True
        target = self._target
        target.own_links()
        links, head = target.links, target.head(page)
        has_left = following_before in (None, page)
        if not head.deleted:
            if links.first == links.last == page or not has_left:  # the only page: it stays, and becomes empty
                target.set_head(page, head._replace(flags=0, rows=0))
                return
            with _naming_operation(self._path, position):
                unlink(target, page)
        target.set_head(page, target.head(page)._replace(flags=head.flags | DELETED, next=before))
        links.last_free = page


@contextlib.contextmanager
def _naming_operation(path: Path, position: int) -> Iterator[None]:
    """Add to damage of a table which operation of the journal cannot be redone because of it."""
    try:
        yield
    except LogwrightError as error:
        raise DamagedJournal(path, position, f"it cannot be redone: {error}") from error
