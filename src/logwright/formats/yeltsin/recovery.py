"""Recovery: what a database finds in its two files, and what it makes of it before it is open.

Everything is looked at before anything is changed: the journal is read up to its end, and what the table may be missing
is done to it in memory. An opening that is refused, whatever is wrong with one of the files, leaves both as they were.
A file that is missing is created when nothing can be wrong with the other one any more.

What is to be redone are the transactions at the end of the journal that are not flagged (see `redo.py`). A table that
is `TBL?` is mended by doing the last transaction again, flagged or not; if its lists are broken after that, it was
changed without the journal, and is refused.

Before the redo a table may be any mixture of old and new, and what it says of itself means nothing: which pages are in
use is asked when the redo is done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ...core.disk import Disk
from ...core.errors import DamagedJournal, NotFound
from .layout import HEADER_BYTES
from .nearby import Nearby
from .opening import Opened, open_for_writing
from .overlay import Overlay
from .redo import Redone, find_due, find_last_completed, redo
from .table import TableFile, create_table
from .table_check import check_table
from .table_layout import FIRST_PAGE, PAGE_BYTES, pages_end


class Found(NamedTuple):
    """Both files of a database, open and as they were found, and what was redone in memory."""

    table: TableFile
    journal: Opened
    overlay: Overlay
    used_end: int
    due: list[Redone]
    again: list[Redone]

    def settle(self) -> None:
        """Bring the files in order, up to what was redone: that is for the database to give to the table."""
        self.journal.settle()
        self.table.area.cut(self.used_end)


def open_both(
    path: Path, journal_path: Path, open_table: Callable[[], TableFile], disk: Disk, stack: contextlib.ExitStack
) -> Found:
    """Open a table and its journal, which `stack` closes, and do in memory what the table may be missing."""
    table = open_table() if disk.exists(path) else None
    if table is not None:
        stack.callback(table.area.close)
        if not table.is_whole and not disk.exists(journal_path):
            raise _unknown_change(path)
    journal = open_for_writing(disk, journal_path, counts=False, settles=False)
    stack.callback(journal.close)
    if table is None:
        if journal.end > HEADER_BYTES:
            raise NotFound(f"{path}: the table of the transactions in {journal_path} is missing")
        journal.keep()
        create_table(path, disk=disk)
        table = open_table()
        stack.callback(table.area.close)
    overlay = Overlay(table)
    due, again = _redo(journal, table, overlay)
    has_torn_page = not table.is_blank(pages_end(table.area.size))
    return Found(table, journal, overlay, table.area.size if has_torn_page else table.end, due, again)


def _redo(journal: Opened, table: TableFile, overlay: Overlay) -> tuple[list[Redone], list[Redone]]:
    """Do to an overlay what its table may be missing; which transactions are due, and which were done again.

    Both end before the pages that are not used then.
    """
    file, size = Nearby(journal.file), journal.end
    due = find_due(file, journal.last, size, journal.ends)
    again = due
    if not due and not table.is_whole:
        last = find_last_completed(file, journal.last, size)
        if last is None:
            raise _unknown_change(table.path)
        again = [last]
    for redone in again:
        if not redone.end.seal:  # of another program, and the only one: it was written for a table that has its links
            _pass_over_unused(table, overlay)
        redo(file, redone, size, overlay)
    _pass_over_unused(table, overlay)
    if not table.is_whole:
        problems = check_table(overlay).problems
        if problems:
            reason = f"the table is broken after the redo: {problems[0].message}"
            raise DamagedJournal(table.path, problems[0].position, reason)
    return due, again


def _pass_over_unused(table: TableFile, overlay: Overlay) -> None:
    """Let the pages end before those that were made for a transaction that never came, and are all zeros.

    A page in use names the one before it, unless it is the first one; and a free page is marked. One that a redo has
    changed is not asked.
    """
    if overlay.end > table.end or not table.is_blank(table.end):
        return  # the redo has new pages at the end; or there is the beginning of one
    end = table.end
    while (page := end - PAGE_BYTES) > max(FIRST_PAGE, overlay.links.first):
        if overlay.changes(page) or not table.is_blank(page):
            break
        end = page
    table.end = overlay.end = end


def _unknown_change(path: Path) -> DamagedJournal:
    return DamagedJournal(path, 0, "a change was not finished (TBL?), and the journal does not know it")
