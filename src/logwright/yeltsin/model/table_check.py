"""Following the lists of a table, and checking all of it.

A walk along pages in use always ends: each page must link back to the one before it, so none can occur twice. The free
list has no links back; it is followed no further than there are pages.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...core.read.report import Problem, Report
from ...errors import DamagedJournal
from ..bytes.table_layout import FIRST_PAGE, LINKS_AT, NO_PAGE, PAGE_BYTES, is_page, page_count
from .page_links import Space

_UNSEEN, _IN_USE, _FREE = range(3)


def walk_pages(space: Space) -> Iterator[int]:
    """The pages in use from the first to the last; `DamagedJournal` if the list is broken."""
    previous, page = NO_PAGE, space.links.first
    while True:
        if not is_page(page, space.end):
            at = previous or LINKS_AT
            raise DamagedJournal(space.path, at, f"the next page is said to be at {page}, where no page is")
        head = space.head(page)
        if head.deleted:
            raise DamagedJournal(space.path, page, "a page of the list was removed")
        if head.previous != previous:
            raise DamagedJournal(space.path, page, f"the page names {head.previous} before it, and {previous} is")
        yield page
        previous, page = page, head.next
        if page == NO_PAGE:
            break
    if previous != space.links.last:
        raise DamagedJournal(space.path, previous, f"the list ends here, and not at {space.links.last}")


def walk_free(space: Space) -> Iterator[int]:
    """The free pages, the one removed last first; `DamagedJournal` if the list is broken."""
    previous, page = LINKS_AT, space.links.last_free
    left = page_count(space.end)
    while page != NO_PAGE:
        if not is_page(page, space.end):
            raise DamagedJournal(space.path, previous, f"the next free page is said to be at {page}, where no page is")
        if left == 0:
            raise DamagedJournal(space.path, previous, "the free list goes in a circle")
        head = space.head(page)
        if not head.deleted:
            raise DamagedJournal(space.path, page, "the free list leads to a page in use")
        yield page
        left -= 1
        previous, page = page, head.next


def check_table(space: Space) -> Report:
    """Every problem of both lists. Pages that are in neither list are anomalies."""
    report = Report("yeltsin table", bytes=space.end)
    count = page_count(space.end)
    seen = bytearray(count)
    for kind, pages in ((_IN_USE, walk_pages(space)), (_FREE, walk_free(space))):
        try:
            for page in pages:
                number = (page - FIRST_PAGE) // PAGE_BYTES
                if seen[number] == kind:
                    raise DamagedJournal(space.path, page, "the free list goes in a circle")
                seen[number] = kind
                report.records += kind == _IN_USE
        except DamagedJournal as damage:
            report.problems.append(Problem(space.path.name, damage.position, "broken_list", damage.reason))
    if not report.problems:
        for number in range(count):
            if seen[number] == _UNSEEN:
                page = FIRST_PAGE + number * PAGE_BYTES
                kind_of = "free" if space.head(page).deleted else "used"
                report.anomalies.append(
                    Problem(space.path.name, page, "lost_page", f"the page looks {kind_of}, and is in neither list")
                )
    return report
