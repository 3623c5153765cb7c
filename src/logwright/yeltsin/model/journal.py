"""The journal as a whole: recognising one, opening it for reading and for writing, recovering it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.bytes.outcome import Damage, Mode
from ...core.format import Evidence
from ...core.io.disk import REAL_DISK, Disk
from ...errors import LogwrightError, NotFound
from ..bytes.layout import HEADER_BYTES, JOURNAL_SUFFIX, SIGNATURE
from ..bytes.records import Transaction
from ..files.files import has_first_transaction, list_journals
from ..files.journals import JournalsReader
from ..files.opening import check_is_journal
from ..files.reader import Reader
from ..files.scanner import Scanner
from ..files.writer import TransactionJournal


def looks_like(disk: Disk, path: Path) -> Evidence | None:
    """Whether a path is a journal, or a directory of journals: the first bytes say, or the first transaction.

    What the system does not let us see is its error, not a "no".
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
    """Why a file begins like a journal: by its signature, or by the rest of a header and the first transaction."""
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


def follow(path: Path, ends: Any, *, timeout: float | None, mode: Mode) -> Scanner[Transaction | Damage]:
    """A scanner of a journal from a number on, or of all journals of a directory, from a number of each."""
    return Scanner(path, ends, timeout=timeout, mode=mode)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening for writing did to a journal: what it cut off, where that is kept, and the redo that is due."""

    cut: Damage | None
    kept: Path | None
    redo: tuple[int, Transaction] | None = None


def recover(path: Path | str, *, disk: Disk = REAL_DISK) -> Recovery:
    """Recover a journal: lock it, cut off what was not finished, and keep that in quarantine.

    A redo that is due is only reported: the table is not known here. `Database` does it.
    """
    path = Path(path)
    check_is_journal(disk, path)
    with TransactionJournal(path, disk=disk) as writer:
        return Recovery(writer.recovered, writer.kept, writer.redo)
