"""Adding pages to a table's list and removing them: which heads of pages change, and how.

The functions take a `Space`, which has the heads of pages: those of a table, or of a transaction that has not been
written yet. They change only heads, never the data of pages.

Links come from a file and may have any value. A page is linked or unlinked only if its neighbours link to it, and taken
from the free list only if it is marked as free. Otherwise nothing is changed, and `DamagedJournal` is raised with the
position. No list is followed here, so none can be endless.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

from ...errors import DamagedJournal, WrongUse
from ..bytes.table_layout import DELETED, LINKS_AT, NO_PAGE, PAGE_BYTES, PageHead, TableLinks, is_page


class Space(Protocol):
    """The heads of the pages of a table."""

    path: Path
    end: int
    """The end of the pages, where a new one begins."""

    @property
    def links(self) -> TableLinks:
        """The links of the table. Adding and removing pages changes them in place."""

    def head(self, page: int) -> PageHead:
        """The head of an existing page."""

    def set_head(self, page: int, head: PageHead) -> None: ...


class Allocated(NamedTuple):
    """An allocated page, and the first page of the free list before and after."""

    page: int
    free_before: int
    free_after: int


def check_page(space: Space, page: int) -> PageHead:
    """The head of a page that is in use, or `WrongUse`."""
    if not is_page(page, space.end):
        raise WrongUse(f"{space.path}: there is no page at {page}")
    head = space.head(page)
    if head.deleted:
        raise WrongUse(f"{space.path}: the page at {page} was removed")
    return head


def append_page(space: Space) -> Allocated:
    """Allocate a free page, or a new one, and add it to the end of the list. Its head becomes that of an empty page."""
    links = space.links
    before = links.last_free
    _check_last(space)
    if before == NO_PAGE:
        page, after = space.end, NO_PAGE
        space.end += PAGE_BYTES
    else:
        page, after = before, _following_free(space, before)
    link_last(space, page)
    links.last_free = after
    return Allocated(page, before, after)


def remove_page(space: Space, page: int) -> int:
    """Remove a page from the list and make it the first free page; returns the former first one.

    The only page of a table is not removed: its head becomes that of an empty page.
    """
    head = check_page(space, page)
    before = space.links.last_free
    if space.links.first == space.links.last == page:
        space.set_head(page, PageHead())
        return before
    unlink(space, page)
    space.set_head(page, head._replace(flags=head.flags | DELETED, next=before))
    space.links.last_free = page
    return before


def link_last(space: Space, page: int) -> None:
    """Add a page to the end of the list. Its head becomes that of an empty page."""
    last = _check_last(space)
    space.set_head(page, PageHead(previous=space.links.last))
    space.set_head(space.links.last, last._replace(next=page))
    space.links.last = page


def unlink(space: Space, page: int) -> None:
    """Link the neighbours of a page, which is not the only one, to each other."""
    links, head = space.links, space.head(page)
    is_first, is_last = links.first == page, links.last == page
    if is_first != (head.previous == NO_PAGE) or is_last != (head.next == NO_PAGE) or (is_first and is_last):
        raise DamagedJournal(space.path, page, "the page is not where the table's list begins or ends")
    previous = None if is_first else _neighbour(space, head.previous, "the previous page", next=page)
    if not is_last:
        _neighbour(space, head.next, "the next page", previous=page)
    if previous is None:
        links.first = head.next
    else:
        space.set_head(head.previous, previous._replace(next=head.next))
    if is_last:
        links.last = head.previous
    else:  # read only now: in a damaged list both neighbours may be the same page
        space.set_head(head.next, space.head(head.next)._replace(previous=head.previous))


def _check_last(space: Space) -> PageHead:
    """The head of the last page, which must be in use and have no next page."""
    last = _neighbour(space, space.links.last, "the last page")
    if last.next != NO_PAGE:
        raise DamagedJournal(space.path, space.links.last, f"the last page names {last.next} as its next one")
    return last


def _neighbour(space: Space, page: int, what: str, next: int | None = None, previous: int | None = None) -> PageHead:
    """The head of a page that a link names, if it is in use and links back."""
    if not is_page(page, space.end):
        raise DamagedJournal(space.path, LINKS_AT, f"{what} is said to be at {page}, where no page is")
    head = space.head(page)
    if head.deleted:
        raise DamagedJournal(space.path, page, f"{what} is a page that was removed")
    if next not in (None, head.next) or previous not in (None, head.previous):
        raise DamagedJournal(space.path, page, f"{what} does not name the page beside it")
    return head


def _following_free(space: Space, page: int) -> int:
    """The free page after the first one, which must be a free page itself."""
    if not is_page(page, space.end):
        raise DamagedJournal(space.path, LINKS_AT, f"the last free page is said to be at {page}, where no page is")
    head = space.head(page)
    if not head.deleted:
        raise DamagedJournal(space.path, page, "the last free page is a page in use")
    if head.next != NO_PAGE and not is_page(head.next, space.end):
        raise DamagedJournal(space.path, page, f"the next free page is said to be at {head.next}, where no page is")
    return head.next
