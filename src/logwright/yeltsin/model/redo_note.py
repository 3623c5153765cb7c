"""RedoNote: the links that result from redoing another program's transaction, on the disk until the redo is done.

Such a transaction has no seal, so its links are computed from the table. That is correct for a table that has none or
all of the transaction, but a redo that is killed leaves a mixture. So before the redo changes anything, the seal that
the transaction would have if it were ours is written to a file beside the table:

    0                      8
    | transaction's offset | seal, see `seal.py` |

The next opening redoes the transaction with that seal, like one of ours: from any mixture, and any number of times.

A note is valid if and only if it names the transaction that is redone, and its checksum matches the transaction's bytes
and the links in the note. If the lists are broken after a redo with it, it was made for another table of this name, and
the links are computed from the table. Any other note is a leftover, and is removed.

    1. the note is written, synced, and gets its name     nothing has happened to the table
    2. the table is changed and synced                    the next opening does it again, by the note
    3. the transaction is flagged in the journal          the same, if the table is `TBL?` still
    4. the table is `TBL!`, synced                        the note is left over
    5. the note goes
"""

from __future__ import annotations

from pathlib import Path

from ...core.io.disk import Disk, replace_file
from ..bytes.layout import HOME_DIRECTORY, LINK
from ..bytes.table_layout import NOTE_SUFFIX
from ..files.files import Readable
from ..files.operations import MOST_SEAL_BYTES, seal_of
from ..files.seal import SEAL_HEAD, Heads, sealed_heads
from .redo import Redone


class RedoNote:
    """The note of one table. Nothing is written before `settle`."""

    def __init__(self, disk: Disk, table: Path) -> None:
        self._disk = disk
        self._path = table.parent / HOME_DIRECTORY / f"{table.name}{NOTE_SUFFIX}"
        self._found = self._read()
        self._wanted = b""

    @property
    def is_there(self) -> bool:
        return self._found is not None

    def _read(self) -> bytes | None:
        """The contents of the note, None if there is none. Of a file that is too large only the beginning is read."""
        if not self._disk.exists(self._path):
            return None
        file = self._disk.open(self._path, "read")
        try:
            return file.read_at(0, min(file.size(), LINK.size + MOST_SEAL_BYTES))
        finally:
            file.close()

    def sealed(self, journal: Readable, due: Redone) -> Redone | None:
        """The transaction with the seal in the note; None if the note is invalid."""
        if self._found is None or self._found[: LINK.size] != LINK.pack(due.position):
            return None
        data = self._found[LINK.size :]
        if sealed_heads(data) is None:
            return None
        if data != seal_of(journal, due.position, due.end.position, data[SEAL_HEAD.size :]):
            return None
        return due._replace(end=due.end._replace(seal=data))

    def prepare(self, journal: Readable, due: Redone, heads: Heads) -> None:
        """Prepare a note of the heads that a transaction results in."""
        sealed = seal_of(journal, due.position, due.end.position, heads.encode())
        self._wanted = LINK.pack(due.position) + sealed

    def settle(self) -> None:
        """Write the prepared note, or remove an old one, before the table is changed."""
        if not self._wanted:
            self.remove()
        elif self._found == self._wanted:
            self._disk.sync_directory(self._path.parent)  # its writer may have been killed before that sync
        else:
            replace_file(self._disk, self._path, self._wanted, self._path.with_name(f"{self._path.name}.new"))
            self._found = self._wanted

    def remove(self) -> None:
        """Remove the note. If a power cut brings it back, it is a leftover."""
        if self.is_there:
            self._disk.remove(self._path)
            self._found = None
