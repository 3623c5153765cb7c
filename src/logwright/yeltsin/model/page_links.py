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

from ...errors import DamagedJournal, WrongUse
from ..bytes.table_layout import DELETED, LINKS_AT, NO_PAGE, PAGE_BYTES, PageHead, TableLinks, is_page


class Space(Protocol):
    """The heads of the pages of a table."""

    path: Path
    end: int
    """Where the pages end: a new one begins here."""

    @property
    def links(self) -> TableLinks:
        """Where the lists begin and end. Adding and removing pages changes them in place."""

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
    """Take a page out of the list and make it the first of the free ones; what the free list began with before.

    The only page of a table stays: its head becomes that of an empty page.
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
    """Put a page that is not in the list at its end. Its head becomes that of an empty page."""
    last = _check_last(space)
    space.set_head(page, PageHead(previous=space.links.last))
    space.set_head(space.links.last, last._replace(next=page))
    space.links.last = page


def unlink(space: Space, page: int) -> None:
    """Let the neighbours of a page, which is not the only one, and the ends of the list pass it over."""
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
    else:  # read only now: in a list that is damaged both neighbours may be the same page
        space.set_head(head.next, space.head(head.next)._replace(previous=head.previous))


def _check_last(space: Space) -> PageHead:
    """The head of the last page, which must be in use and have none after it."""
    last = _neighbour(space, space.links.last, "the last page")
    if last.next != NO_PAGE:
        raise DamagedJournal(space.path, space.links.last, f"the last page names {last.next} as its next one")
    return last


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
    """The free page after the first one, which must be a free page itself."""
    if not is_page(page, space.end):
        raise DamagedJournal(space.path, LINKS_AT, f"the last free page is said to be at {page}, where no page is")
    head = space.head(page)
    if not head.deleted:
        raise DamagedJournal(space.path, page, "the last free page is a page in use")
    if head.next != NO_PAGE and not is_page(head.next, space.end):
        raise DamagedJournal(space.path, page, f"the next free page is said to be at {head.next}, where no page is")
    return head.next
