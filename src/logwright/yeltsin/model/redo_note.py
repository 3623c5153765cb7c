"""RedoNote: what the redo of another program's transaction makes of links, on the disk until the redo is done.

Such a transaction carries no seal, so its links are worked out from the table, which is right for a table that has none
of it or all of it. A redo that is killed leaves a mixture. Before it changes anything, the seal that the transaction
would have if it were ours goes to a file beside the table:

    0                      8
    | transaction's offset | seal, see `seal.py` |

The next opening redoes the transaction with that seal, as it would one of ours: from any mixture, as often as need be.

A note is believed if and only if it names the transaction that is to be redone, and its checksum is that of the
transaction's bytes and of the links in the note. If the lists are broken after a redo by it, it was made for another
table under this name, and links are worked out as if there were none. A note of anything else is left over, and goes.

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
from ..files.seal import SEAL_HEAD, Heads, sealed_heads
from ..files.stretch import MOST_SEAL_BYTES, seal_of
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
        """What is in the note, None if there is none; of one that is too large, what a note can have."""
        if not self._disk.exists(self._path):
            return None
        file = self._disk.open(self._path, "read")
        try:
            return file.read_at(0, min(file.size(), LINK.size + MOST_SEAL_BYTES))
        finally:
            file.close()

    def sealed(self, journal: Readable, due: Redone) -> Redone | None:
        """The transaction with the seal that the note has for it; None if the note is not to be believed."""
        if self._found is None or self._found[: LINK.size] != LINK.pack(due.position):
            return None
        data = self._found[LINK.size :]
        if sealed_heads(data) is None:
            return None
        if data != seal_of(journal, due.position, due.end.position, data[SEAL_HEAD.size :]):
            return None
        return due._replace(end=due.end._replace(seal=data))

    def want(self, journal: Readable, due: Redone, heads: Heads) -> None:
        """Have a note that this is what a transaction leaves."""
        sealed = seal_of(journal, due.position, due.end.position, heads.encode())
        self._wanted = LINK.pack(due.position) + sealed

    def settle(self) -> None:
        """Have on the disk what is wanted, and nothing else: the table is about to be changed."""
        if not self._wanted:
            self.remove()
        elif self._found == self._wanted:
            self._disk.sync_directory(self._path.parent)  # its writer may have been killed before that
        else:
            replace_file(self._disk, self._path, self._wanted, self._path.with_name(f"{self._path.name}.new"))
            self._found = self._wanted

    def remove(self) -> None:
        """Have no note any more: nothing is to be redone by it. One that a power cut brings back is left over."""
        if self.is_there:
            self._disk.remove(self._path)
            self._found = None
