"""Journals: several journals in one directory, read as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...core.format import Located
from ...core.io.disk import REAL_DISK, Disk
from ...core.read.parts import SideBySideReader
from ...core.times import NANOSECONDS
from ...errors import NotFound, WrongUse
from ..bytes.records import Transaction
from .files import list_journals
from .reader import ROW_FIELDS, Reader, transaction_as_json


class JournalsReader(SideBySideReader[Transaction, Reader]):
    """All journals of a directory opened for reading. The verbs are those of `Reader`; journals come by name.

    `start` and `stop` are numbers within each journal. Journals that appear later are found by the next call.
    """

    format = "yeltsin"
    part_name = "journal"
    row_fields = ROW_FIELDS
    time_scale = NANOSECONDS
    """The timestamps of transactions are in seconds."""

    def __init__(self, directory: Path | str, *, disk: Disk = REAL_DISK) -> None:
        super().__init__()
        self.path = Path(directory)
        self.disk = disk
        if not self.names():
            raise NotFound(f"{self.path}: no journal is here")

    def names(self) -> list[str]:
        """The names of the journals there are now."""
        return list_journals(self.disk, self.path)

    def open(self, part: str) -> Reader:
        """The reader of one journal."""
        return Reader(self.path / part, disk=self.disk)

    def part_of(self, file: str) -> str | None:
        """The journal that a file is."""
        return file

    transactions = SideBySideReader.records

    def state(self, at: int | None = None) -> dict[str, Any]:
        """The pages of each journal under its name."""
        if at is not None:
            raise WrongUse(f"{self.path} holds the journals {', '.join(self.names())}: ask for one of them")
        return {"journals": {name: reader.state() for name, reader in self._each()}}

    def as_json(self, located: Located) -> dict[str, Any]:
        """A transaction as `dump --json` prints it."""
        return transaction_as_json(located)
