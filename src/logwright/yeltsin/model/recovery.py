"""Recovery: how a database is brought into a consistent state from its two files when it is opened.

Everything is checked before anything is changed: the journal is read to its end, and transactions that the table may be
missing are redone in memory. If opening fails, neither file has changed. A missing file is created after the other one
was checked.

The transactions at the end of the journal that are not flagged are redone (see `redo.py`). The links that a transaction
of another program results in are noted before the table is changed (see `redo_note.py`). A table that is `TBL?` is
repaired by redoing the last transaction, flagged or not. If its lists are broken after that, it was changed without the
journal, and opening fails.

Before the redo a table may be any mixture of old and new bytes. So its pages are checked only after the redo.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ...core.io.disk import Disk
from ...errors import DamagedJournal, NotFound
from ..bytes.layout import HEADER_BYTES
from ..bytes.table_layout import FIRST_PAGE, PAGE_BYTES, pages_end
from ..files.files import Nearby
from ..files.opening import Opened, open_journal
from ..files.seal import Heads
from .overlay import Overlay
from .redo import Redone, find_due, find_last_completed, redo
from .redo_note import RedoNote
from .table import TableFile, create_table
from .table_check import check_table


class Found(NamedTuple):
    """Both files of a database, open and unchanged, and what was redone in memory."""

    table: TableFile
    journal: Opened
    overlay: Overlay
    used_end: int
    due: list[Redone]
    again: list[Redone]
    note: RedoNote

    def settle(self) -> None:
        """Recover the files, except for what was redone: the database applies that to the table."""
        self.journal.settle()
        self.note.settle()
        self.table.area.cut(self.used_end)

    def finish(self) -> None:
        """Remove the note: the redone transactions are in the table, and their flags are durable."""
        if self.note.is_there:
            self.table.area.sync()  # after a power cut the table may be `TBL?` again and need it
            self.note.remove()


def open_both(
    path: Path, journal_path: Path, open_table: Callable[[], TableFile], disk: Disk, stack: contextlib.ExitStack
) -> Found:
    """Open a table and its journal, which `stack` closes, and redo in memory what the table may be missing."""
    table = open_table() if disk.exists(path) else None
    if table is not None:
        stack.callback(table.area.close)
        if not table.is_whole and not disk.exists(journal_path):
            raise _unknown_change(path)
    journal = open_journal(disk, journal_path, counts=False, settles=False)
    stack.callback(journal.close)
    if table is None:
        if journal.end > HEADER_BYTES:
            raise NotFound(f"{path}: the table of the transactions in {journal_path} is missing")
        journal.keep()
        create_table(path, disk=disk)
        table = open_table()
        stack.callback(table.area.close)
    note = RedoNote(disk, path)
    overlay, due, again = _redo(journal, table, note)
    has_torn_page = not table.is_blank(pages_end(table.area.size))
    return Found(table, journal, overlay, table.area.size if has_torn_page else table.end, due, again, note)


def _redo(journal: Opened, table: TableFile, note: RedoNote) -> tuple[Overlay, list[Redone], list[Redone]]:
    """Redo in an overlay what its table may be missing; which transactions are due, and which were redone.

    Pages at the end that are unused after that are dropped from the table and the overlay.
    """
    file, size = Nearby(journal.file), journal.end
    due = find_due(file, journal.last, size, journal.ends)
    again = due
    if not due and not table.is_whole:
        last = find_last_completed(file, journal.last, size)
        if last is None:
            raise _unknown_change(table.path)
        again = [last]
    has_unsealed = bool(again) and not again[-1].end.seal
    overlay = _redo_noted(file, again, size, table, note) if has_unsealed else None
    if overlay is None:
        overlay = _redo_all(file, again, size, table)
    if has_unsealed and overlay.heads:
        note.prepare(file, again[-1], Heads(overlay.links, overlay.heads))
    _drop_unused_pages(table, overlay)
    if not table.is_whole:
        problems = check_table(overlay).problems
        if problems:
            reason = f"the table is broken after the redo: {problems[0].message}"
            raise DamagedJournal(table.path, problems[0].position, reason)
    return overlay, due, again


def _redo_all(file: Nearby, again: list[Redone], size: int, table: TableFile) -> Overlay:
    """Redo transactions, of which only the last may be another program's."""
    overlay = Overlay(table)
    for redone in again:
        if not redone.end.seal:  # its links depend on the table
            _drop_unused_pages(table, overlay)
        redo(file, redone, size, overlay)
    return overlay


def _redo_noted(file: Nearby, again: list[Redone], size: int, table: TableFile, note: RedoNote) -> Overlay | None:
    """Redo transactions, the last one with the seal in the note; None if there is none, or if it does not fit the
    table.
    """
    sealed = note.sealed(file, again[-1])
    if sealed is None:
        return None
    try:
        overlay = _redo_all(file, [*again[:-1], sealed], size, table)
    except DamagedJournal:
        return None
    return None if check_table(overlay).problems else overlay


def _drop_unused_pages(table: TableFile, overlay: Overlay) -> None:
    """Drop the pages at the end that were reserved for a transaction that was never written, and are all zeros.

    A page in use has a previous page, unless it is the first one, and a free page is marked as free. Pages that a redo
    has changed are not checked.
    """
    if overlay.end > table.end or not table.is_blank(table.end):
        return  # the redo has added pages, or a part of a page is at the end
    end = table.end
    while (page := end - PAGE_BYTES) > max(FIRST_PAGE, overlay.links.first):
        if overlay.changes(page) or not table.is_blank(page):
            break
        end = page
    table.end = overlay.end = end


def _unknown_change(path: Path) -> DamagedJournal:
    return DamagedJournal(path, 0, "a change was not finished (TBL?), and the journal does not know it")
