"""Taking pages into a table's list and out of it: which heads of pages change, and how.

The functions here are given a `Space`, which has the heads of pages: a table's own, or those of a transaction that has
not been written yet. They change nothing else; what a page holds is not their business.

Links come from a file and may say anything. A page is only linked or unlinked when its neighbours name it, and only
taken from the free list when it is marked as free; otherwise nothing is changed, and `DamagedJournal` says where. No
list is walked here, so none can be endless.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

from ...core.errors import DamagedJournal, WrongUse
from .table_layout import (
    DELETED,
    LINKS_AT,
    NO_PAGE,
    PAGE_BYTES,
    PageHead,
    TableLinks,
    is_page,
)


class Space(Protocol):
    """The heads of the pages of a table."""

    path: Path
    links: TableLinks
    end: int
    """Where the pages end: a new one begins here."""

    def head(self, page: int) -> PageHead:
        """The head of a page that is there."""

    def set_head(self, page: int, head: PageHead) -> None: ...


class Allocated(NamedTuple):
    """A page that was taken, and what the free list began with before and after."""

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
    """Take a free page, or else a new one, and put it at the end of the list. Its head is that of an empty page."""
    links = space.links
    before = links.last_free
    last = _neighbour(space, links.last, "the last page")
    if last.next != NO_PAGE:
        raise DamagedJournal(space.path, links.last, f"the last page names {last.next} as its next one")
    if before == NO_PAGE:
        page, after = space.end, NO_PAGE
        space.end += PAGE_BYTES
    else:
        page, after = before, _following_free(space, before)
    space.set_head(page, PageHead(previous=links.last))
    space.set_head(links.last, last._replace(next=page))
    links.last = page
    links.last_free = after
    return Allocated(page, before, after)


def remove_page(space: Space, page: int) -> int:
    """Take a page out of the list and make it the first of the free ones; what the free list began with before.

    The only page of a table stays: its head becomes that of an empty page.
    """
    head = check_page(space, page)
    links = space.links
    before = links.last_free
    is_first, is_last = links.first == page, links.last == page
    if is_first != (head.previous == NO_PAGE) or is_last != (head.next == NO_PAGE):
        raise DamagedJournal(space.path, page, "the page is not where the table's list begins or ends")
    if is_first and is_last:
        space.set_head(page, PageHead())
        return before
    previous = None if is_first else _neighbour(space, head.previous, "the previous page", next=page)
    following = None if is_last else _neighbour(space, head.next, "the next page", previous=page)
    if previous is None:
        links.first = head.next
    else:
        space.set_head(head.previous, previous._replace(next=head.next))
    if following is None:
        links.last = head.previous
    else:  # read again: in a list that is damaged both neighbours may be the same page
        space.set_head(head.next, space.head(head.next)._replace(previous=head.previous))
    space.set_head(page, head._replace(flags=head.flags | DELETED, next=before))
    links.last_free = page
    return before


def _neighbour(space: Space, page: int, what: str, next: int | None = None, previous: int | None = None) -> PageHead:
    """The head of a page that a link names, if it is in use and names the page that we come from."""
    if not is_page(page, space.end):
        raise DamagedJournal(space.path, LINKS_AT, f"{what} is said to be at {page}, where no page is")
    head = space.head(page)
    if head.deleted:
        raise DamagedJournal(space.path, page, f"{what} is a page that was removed")
    if next not in (None, head.next) or previous not in (None, head.previous):
        raise DamagedJournal(space.path, page, f"{what} does not name the page beside it")
    return head


def _following_free(space: Space, page: int) -> int:
    """The free page behind the first one, which must be a free page itself."""
    if not is_page(page, space.end):
        raise DamagedJournal(space.path, LINKS_AT, f"the last free page is said to be at {page}, where no page is")
    head = space.head(page)
    if not head.deleted:
        raise DamagedJournal(space.path, page, "the last free page is a page in use")
    if head.next != NO_PAGE and not is_page(head.next, space.end):
        raise DamagedJournal(space.path, page, f"the next free page is said to be at {head.next}, where no page is")
    return head.next
