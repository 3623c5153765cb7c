"""Table: the pages of a YeltsinDB table file, each named by its offset in the file.

    with Table("t.ydb") as table:                 # creates it with one empty page
        page = table.allocate()                   # from the free list first, else at the end of the file; empty
        table.modify(page, 0, b"hello")
        table.read(page, 0, 5)
        table.remove(page)                        # to the free list; the only page stays and has no rows then

Before a change the signature becomes `TBL?`, afterwards `TBL!`. A process that dies during a change leaves `TBL?`, and
such a table cannot be opened. A table alone cannot be repaired, and after a power cut `TBL!` guarantees nothing unless
`sync` was called. A `Database`, which also has a journal, recovers from both.

Differences to the original, both on purpose: a page that comes from the free list is linked again, and is empty; and
the lists are right after any number of changes in one session, where the original loses pages.

Links come from the file. An impossible link is `DamagedJournal` with the position, and no list is followed further than
there are pages.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ...core.io.disk import REAL_DISK, Buffer, Disk, Mappable, make_directories, replace_file
from ...core.io.lock import Lock
from ...core.read.report import Report
from ...core.write.closing import Closing
from ...errors import Closed, DamagedJournal, Poisoned, StorageFailed, WrongUse
from ..bytes.layout import lock_name
from ..bytes.table_layout import (
    LINKS_AT,
    MAX_ROWS,
    PAGE_BYTES,
    PAGE_DATA_BYTES,
    PAGE_HEAD,
    PAGE_HEAD_BYTES,
    SIGNATURE_BYTES,
    TABLE_HEAD,
    TABLE_HEAD_BYTES,
    UNFINISHED,
    VERSION,
    VERSION_AT,
    WHOLE,
    PageHead,
    TableLinks,
    new_table,
    page_count,
    pages_end,
)
from ..files.area import Area, HeldArea
from .page_links import append_page, check_page, remove_page
from .table_check import check_table, walk_free, walk_pages

Result = TypeVar("Result")
_EMPTY_PAGE = bytes(PAGE_BYTES)
_EMPTY_DATA = bytes(PAGE_DATA_BYTES)


def create_table(path: Path | str, *, disk: Disk = REAL_DISK) -> None:
    """Create a table of one empty page atomically; the name must be free."""
    path = Path(os.path.abspath(path))
    if disk.exists(path):
        raise WrongUse(f"{path} exists already")
    home = path.parent / lock_name(path.name)
    make_directories(disk, home.parent)
    replace_file(disk, path, new_table(), home.with_suffix(".tmp"))


class TableFile:
    """A table's file and its lists, without locking and without the signature of a change."""

    def __init__(self, path: Path, area: Area) -> None:
        self.path = path
        self.area = area
        self.end = 0
        self.links = TableLinks()
        self.signature = b""
        self.refresh()

    def refresh(self) -> None:
        """Read the table's head; `DamagedJournal` if it is invalid."""
        self.area.size = self.area.file.size()
        self.end = pages_end(self.area.size)
        head = self.area.load(0, TABLE_HEAD_BYTES)
        if head[:SIGNATURE_BYTES] not in (WHOLE, UNFINISHED):
            raise DamagedJournal(self.path, 0, f"a table begins with {WHOLE!r}, and not with {head[:4]!r}")
        if len(head) < TABLE_HEAD_BYTES or page_count(self.area.size) == 0:
            raise DamagedJournal(self.path, len(head), "the table ends before its first page does")
        self.signature, major, minor, *links = TABLE_HEAD.unpack(head)
        if (major, minor) != VERSION:
            raise DamagedJournal(self.path, VERSION_AT, f"tables of the version {major}.{minor} are not known")
        self.links = TableLinks(*links)

    @property
    def is_whole(self) -> bool:
        """Whether no change is unfinished."""
        return self.signature == WHOLE

    # --- the heads of pages: see page_links.Space ---------------------------------------------------------------------

    def head(self, page: int) -> PageHead:
        return PageHead(*PAGE_HEAD.unpack(self.area.load(page, PAGE_HEAD_BYTES)))

    def set_head(self, page: int, head: PageHead) -> None:
        if page + PAGE_BYTES > self.area.size:
            self.area.store(page, _EMPTY_PAGE)
        self.area.store(page, PAGE_HEAD.pack(*head))

    def store_links(self, links: TableLinks) -> None:
        self.links = links.copy()
        self.area.store(LINKS_AT, links.encode())
        self.end = pages_end(self.area.size)

    def is_blank(self, page: int) -> bool:
        """Whether the page from here on is all zeros."""
        return not self.area.load(page, PAGE_BYTES).strip(b"\0")

    # --- what pages hold ----------------------------------------------------------------------------------------------

    def load(self, page: int, offset: int, size: int) -> bytes:
        return self.area.load(page + PAGE_HEAD_BYTES + offset, size)

    def store(self, page: int, offset: int, data: Buffer) -> None:
        self.area.store(page + PAGE_HEAD_BYTES + offset, data)

    def clear(self, page: int) -> None:
        """Fill a page's data with zeros."""
        self.store(page, 0, _EMPTY_DATA)

    # --- the signature ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Mark the table as being changed."""
        if self.signature != UNFINISHED:
            self.area.put(0, UNFINISHED)
            self.signature = UNFINISHED

    def finish(self) -> None:
        """Mark the table as whole."""
        if self.signature != WHOLE:
            self.area.put(0, WHOLE)
            self.signature = WHOLE


def as_bytes(data: Buffer) -> bytes:
    """The bytes of a buffer. A view of wider items has more bytes than its length."""
    return data if type(data) is bytes else bytes(memoryview(data))


def check_range(path: Path, page: int, offset: int, size: int) -> None:
    """Raise `WrongUse` for a range that does not lie in the data of a page."""
    if offset < 0 or size < 0 or offset + size > PAGE_DATA_BYTES:
        raise WrongUse(
            f"{path}: the page at {page} has {PAGE_DATA_BYTES:,} bytes of data, and not {size:,} from {offset:,} on"
        )


class Table(Closing):
    """The pages of a table file, for one process at a time. It is created with one empty page if there is none.

    For reading only, nothing is created, locked or changed, and changes of another process are visible.
    """

    def __init__(
        self, path: Path | str, *, read_only: bool = False, create: bool = True, disk: Disk = REAL_DISK
    ) -> None:
        path = Path(os.path.abspath(path))
        self._lock: Lock | None = None
        self._closed = False
        self._failure: BaseException | None = None
        stack = contextlib.ExitStack()
        try:  # no `with`: an interrupt while it exits would leave everything open
            stack.callback(self._release_lock)
            if not read_only and (create or disk.exists(path)):
                self._lock = lock_table(disk, path)
                if not disk.exists(path):
                    create_table(path, disk=disk)
            self._file = open_file(path, read_only=read_only, disk=disk)
            stack.callback(self._file.area.close)
            if not self._file.is_whole:
                raise DamagedJournal(
                    path, 0, "a change of this table was not finished (TBL?); open it with its journal to finish that"
                )
        except BaseException:
            stack.close()
            raise

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.release()

    @property
    def path(self) -> Path:
        return self._file.path

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        return self._links().first

    @property
    def last(self) -> int:
        return self._links().last

    @property
    def last_free(self) -> int:
        """The free page that will be used next, 0 for none."""
        return self._links().last_free

    def _links(self) -> TableLinks:
        return self._opened().links

    def _opened(self) -> TableFile:
        if self._closed:
            raise Closed(f"{self.path}: this table is closed")
        if self._lock is None:
            self._file.refresh()  # another process may have changed it
        return self._file

    def pages(self) -> list[int]:
        """The pages in use, from the first to the last. They may be changed during the iteration."""
        return list(walk_pages(self._opened()))

    def free_pages(self) -> list[int]:
        """The removed pages, the one removed last first."""
        return list(walk_free(self._opened()))

    def read(self, page: int, offset: int = 0, size: int | None = None) -> bytes:
        """The data of a page in use, or a range of it."""
        size = PAGE_DATA_BYTES - offset if size is None else size
        check_range(self.path, page, offset, size)
        file = self._opened()
        check_page(file, page)
        return file.load(page, offset, size)

    def rows(self, page: int) -> int:
        """The number of rows in the head of a page."""
        return check_page(self._opened(), page).rows

    def verify(self) -> Report:
        """Check every link of every page."""
        return check_table(self._opened())

    # --- changing -----------------------------------------------------------------------------------------------------

    def allocate(self) -> int:
        """Allocate a page from the free list, or a new one at the end of the file. It is empty, and the last of the
        list.
        """

        def change(file: TableFile) -> int:
            page = append_page(file).page
            file.clear(page)
            file.store_links(file.links)
            return page

        return self._change(change)

    def modify(self, page: int, offset: int, data: Buffer) -> None:
        """Replace bytes of a page's data."""
        after = as_bytes(data)
        check_range(self.path, page, offset, len(after))
        self._change(lambda file: file.store(page, offset, after), page)

    def replace(self, page: int, rows: int, data: Buffer) -> None:
        """Replace the row count and all data of a page; the rest of its data becomes zeros."""
        after = as_bytes(data)
        check_range(self.path, page, 0, len(after))
        if not 0 <= rows <= MAX_ROWS:
            raise WrongUse(f"{self.path}: a page cannot have {rows} rows")

        def change(file: TableFile) -> None:
            file.set_head(page, file.head(page)._replace(rows=rows))
            file.store(page, 0, after.ljust(PAGE_DATA_BYTES, b"\0"))

        self._change(change, page)

    def remove(self, page: int) -> None:
        """Remove a page to the free list. The only page stays with its data, but has no rows then."""

        def change(file: TableFile) -> None:
            remove_page(file, page)
            file.store_links(file.links)

        self._change(change, page)

    def _change(self, change: Callable[[TableFile], Result], page: int | None = None) -> Result:
        if self._failure is not None:
            raise Poisoned(f"{self.path}: this table failed earlier ({self._failure})") from self._failure
        file = self._opened()
        if self._lock is None:
            raise WrongUse(f"{self.path} was opened for reading only")
        if page is not None:
            check_page(file, page)
        try:
            file.begin()
            found = change(file)
            file.finish()
        except DamagedJournal:
            file.finish()  # raised before anything was changed
            raise
        except BaseException as error:
            self._failure = error
            raise
        return found

    def sync(self) -> None:
        """Make all changes so far durable."""
        file = self._opened()
        if self._failure is not None:
            raise Poisoned(f"{self.path}: this table failed earlier ({self._failure})") from self._failure
        try:
            file.area.sync()
        except BaseException as error:
            self._failure = error
            raise

    def close(self) -> None:
        """Sync all changes, and release the lock. A second call does nothing."""
        if self._closed:
            return
        try:
            if self._lock is not None and self._failure is None:
                self.sync()
        finally:
            self._closed = True
            try:
                self._file.area.close()
            finally:
                self._release_lock()


def lock_table(disk: Disk, path: Path) -> Lock:
    """Lock a table; the directory of the lock is created if it is missing."""
    lock_path = path.parent / lock_name(path.name)
    make_directories(disk, lock_path.parent)
    return Lock.acquire(disk, lock_path)


def open_file(
    path: Path, *, read_only: bool = False, written: bool = False, held: bool = False, disk: Disk = REAL_DISK
) -> TableFile:
    """The file of an existing table, whole or not. See `Area` for `written`. If it is `held` and the system can map
    files, stored bytes wait in memory.
    """
    if not read_only and not disk.exists(path):
        disk.open(path, "read")  # raises if it is missing; opening it for update would create it
    file = disk.open(path, "read" if read_only else "update")
    try:
        if not read_only:
            file.lock()  # it may have other names, which have other locks
        if held and isinstance(file, Mappable):
            with contextlib.suppress(StorageFailed):  # the system may refuse to reserve memory for all of it
                return TableFile(path, HeldArea(file))
        return TableFile(path, Area(file, mapped=not read_only, written=written))
    except BaseException:
        file.close()
        raise
