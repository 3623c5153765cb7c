"""YeltsinFormat: what the rest of the package may ask of this format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..core.bytes.outcome import Damage, Mode
from ..core.format import BatchWriter, Evidence, Follower, Format
from ..core.io.disk import REAL_DISK, Disk
from ..core.io.durability import SyncLike
from ..core.publish.restore import Restore
from ..core.read.splits import Splits
from ..core.repair.plan import Repairs
from ..errors import LogwrightError, NotFound
from .bytes.layout import HEADER_BYTES, JOURNAL_SUFFIX, SIGNATURE
from .bytes.records import Transaction
from .files.files import has_first_transaction, list_journals
from .files.opening import check_is_journal
from .files.reader import JournalsReader, Reader
from .files.scanner import Scanner
from .files.writer import TransactionJournal
from .tables.journal_target import JournalTarget

if TYPE_CHECKING:
    from ..core.read.columns import Columns
    from ..core.read.materializer import Materials


class YeltsinFormat(Format):
    """Journals of page transactions, as YeltsinDB writes them."""

    name: ClassVar[str] = "yeltsin"
    title: ClassVar[str] = "page-transaction journal of YeltsinDB"
    flat: ClassVar[bool] = True
    mapped_bytes: ClassVar[int | None] = None  # flags and links are changed in place

    def looks_like(self, disk: Disk, path: Path) -> Evidence | None:
        return looks_like(disk, path)

    @staticmethod
    def owns(journal: str, file: str) -> bool:
        return file == journal

    def open(self, path: Path, *, disk: Disk = REAL_DISK) -> Reader | JournalsReader:
        return open_reader(path, disk=disk)

    def follow(self, path: Path, ends: Any, *, timeout: float | None, mode: Mode) -> Follower:
        return Scanner(path, ends, timeout=timeout, mode=mode)

    def open_writer(self, path: Path, *, disk: Disk = REAL_DISK, **options: Any) -> BatchWriter:
        return self.open_target(path, path.name, disk=disk, **options)

    def open_target(self, directory: Path, name: str, *, disk: Disk = REAL_DISK) -> BatchWriter:
        return JournalTarget(directory, name, disk=disk)

    def open_appender(self, path: Path, part: str, *, sync: SyncLike) -> BatchWriter:
        """Open a journal by its path, or the journal of a directory that has its name."""
        directory = path if path.suffix != JOURNAL_SUFFIX else path.parent
        return JournalTarget(directory, path.name, sync=sync, whole=True)

    @property
    def repairs(self) -> Repairs:
        from .files.repair import REPAIRS

        return REPAIRS

    @property
    def splits(self) -> Splits[Any]:
        from .tables.splits import SPLITS

        return SPLITS

    @property
    def columns(self) -> Columns:
        from .tables.spark_columns import COLUMNS

        return COLUMNS

    @property
    def restore(self) -> Restore:
        from .tables.restore import RESTORE

        return RESTORE

    @property
    def materials(self) -> Materials:
        from .tables.materializer import MATERIALS

        return MATERIALS


def looks_like(disk: Disk, path: Path) -> Evidence | None:
    """Whether a path is a journal or a directory of journals, by its first bytes or its first transaction.

    A path that cannot be read raises an error.
    """
    try:
        if disk.is_directory(path):
            return _directory_looks_like(disk, path)
        reason = _begins_like_one(disk, path)
    except NotFound:  # removed while we looked
        return None
    is_named = path.name.endswith(JOURNAL_SUFFIX)
    if reason is not None:
        return Evidence(3 if is_named else 2, reason)
    return Evidence(1, "it is named like a journal") if is_named and not disk.is_link(path) else None


def _directory_looks_like(disk: Disk, path: Path) -> Evidence | None:
    names = list_journals(disk, path)
    good = [(name, reason) for name in names if (reason := _begins_like_one(disk, path / name)) is not None]
    if good:
        name, reason = good[0]
        return Evidence(3 if len(good) > 1 else 2, f"of {name}{' and others' if len(good) > 1 else ''}, {reason}")
    return Evidence(1, f"{names[0]} is named like a journal") if names else None


def _begins_like_one(disk: Disk, path: Path) -> str | None:
    """Why a file looks like a journal: its signature, or the rest of a header and a first transaction."""
    try:
        file = disk.open(path, "read")
    except LogwrightError:
        return None
    try:
        data = file.read_at(0, HEADER_BYTES)
        if data.startswith(SIGNATURE):
            return f"it begins with {SIGNATURE.decode()}"
        return "its signature is damaged, and a first transaction follows it" if has_first_transaction(file) else None
    finally:
        file.close()


def open_reader(path: Path, *, disk: Disk = REAL_DISK) -> Reader | JournalsReader:
    """A reader of a journal, or of all journals of a directory."""
    return JournalsReader(path, disk=disk).one_or_all() if disk.is_directory(path) else Reader(path, disk=disk)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening for writing did to a journal: what it cut off, the path of the copy, and the redo that is due."""

    cut: Damage | None
    kept: Path | None
    redo: tuple[int, Transaction] | None = None


def recover(path: Path | str, *, disk: Disk = REAL_DISK) -> Recovery:
    """Recover a journal: lock it, cut off what was not finished, and keep a copy of that.

    A redo that is due is only reported: `Database` does it, because it has the table.
    """
    path = Path(path)
    check_is_journal(disk, path)
    with TransactionJournal(path, disk=disk) as writer:
        return Recovery(writer.recovered, writer.kept, writer.redo)
