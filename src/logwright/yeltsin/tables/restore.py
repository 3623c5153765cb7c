"""Restoring journals of page transactions from tables: the same transactions, with the same operations and outcomes.

A table has a row for each operation, and one for a transaction without any. Every transaction is restored with its
time, its flags, its end and what that carries (such as a seal, see `seal.py`), consecutively, with new links. So a
journal whose transactions are consecutive is restored byte for byte. Transactions that are missing between others are
counted and reported.

A journal is restored to a directory, under the name of its file. Locks and what was cut off and kept (`.logwright/`)
are not restored, and no table of pages is. Journals have no consumers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ...core.io.disk import REAL_DISK, Disk, make_directories, write_all
from ...core.publish.restore import Missing, Restore, Written
from ...errors import DamagedJournal, LogwrightError, WrongUse
from ..bytes import codec
from ..bytes.layout import HEADER_BYTES, LINK, NEXT_AT
from ..bytes.records import END, Operation, Transaction
from ..files.seal import without_wrong_seal
from .journal_target import ENDS, operation_of

_BUFFER_BYTES: Final = 256 * 1024
_MAX_NAME_BYTES: Final = 255
_MICROSECONDS: Final = 1_000_000
_PLACES: Final = ("page", "free_before", "free_after")
_MOST_PLACE: Final = (1 << 64) - 1
_NAMES: Final = (
    "sequence",
    "position",
    "flags",
    "outcome",
    "op",
    "page_offset",
    "before",
    "after",
    "end_data",
    *_PLACES,
)


def part_of(file: str) -> str:
    """A journal is a part of its own, and called like its file."""
    if not file or file.startswith(".") or {"/", "\0"} & set(file) or len(file.encode()) > _MAX_NAME_BYTES:
        raise WrongUse(f"{file!r} cannot be the name of a journal")
    return file


class FileWriter:
    """Writes one journal. Its header is written last, when everything that it names is there."""

    def __init__(self, directory: Path, file: str, *, disk: Disk = REAL_DISK) -> None:
        self._name = part_of(file)
        self._disk = disk
        self._directory = directory
        make_directories(disk, directory)
        self._file = disk.open(directory / file, "create")
        self._written = HEADER_BYTES
        self._buffer = bytearray()
        self._last = 0
        self._head: dict[str, Any] = {}
        self._end_data = b""
        self._operations: list[Operation] = []
        self._rows = 0
        self._next = 0
        self._unknown = 0

    def append_batch(self, batch: Any) -> None:
        """Add rows of the table `page_operations`, which must be of this file and in the order of their positions."""
        times = batch.column("timestamp").cast("int64").to_pylist()
        rest = (batch.column(name).to_pylist() for name in _NAMES)
        for time, *row in zip(times, *rest, strict=True):
            fields = dict(zip(_NAMES, row, strict=True))
            number = fields["sequence"]
            if number is None or number < self._next - 1:
                reason = f"the transaction {number} comes after {self._next - 1} in the tables"
                raise DamagedJournal(self._name, fields["position"] or 0, reason)
            if number >= self._next:
                self._finish_transaction()
                self._unknown += number - self._next
                self._next = number + 1
                self._head = {**fields, "timestamp_us": time}
            if fields["op"] != END:
                for name in _PLACES:
                    if fields[name] is not None:
                        fields[name] &= _MOST_PLACE
                self._operations.append(operation_of(self._rows, fields))
            self._end_data = fields["end_data"] or b""
            self._rows += 1

    def _finish_transaction(self) -> None:
        if not self._head:
            return
        head, operations = self._head, tuple(self._operations)
        self._head, self._operations = {}, []
        outcome, flags = head.get("outcome"), head.get("flags")
        if outcome not in ENDS or not isinstance(flags, int) or head["timestamp_us"] is None:
            raise WrongUse(f"the transaction {self._next - 1} has no outcome, no flags or no time that can be written")
        timestamp = head["timestamp_us"] // _MICROSECONDS
        position = self._written + len(self._buffer)
        record = Transaction(self._last, 0, timestamp, flags, operations, ENDS[outcome], self._end_data)
        data = bytearray(codec.encode(without_wrong_seal(record)))
        LINK.pack_into(data, NEXT_AT, position + len(data))
        self._buffer += data
        self._last = position
        if len(self._buffer) >= _BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        write_all(self._file, self._written, self._buffer)
        self._written += len(self._buffer)
        self._buffer.clear()

    def finish(self) -> list[Written]:
        """The journal, on the disk."""
        self._finish_transaction()
        self._flush()
        if self._last:
            write_all(self._file, self._last + NEXT_AT, bytes(LINK.size))
        write_all(self._file, 0, codec.encode_header(HEADER_BYTES if self._last else 0, self._last))
        self._file.sync()
        self._file.close()
        self._disk.sync_directory(self._directory)
        problem = f"{self._unknown} transactions between these are not in the tables"
        problems = (problem,) if self._unknown else ()
        return [Written(self._name, 0, self._written, self._rows, self._written, problems=problems)]

    def discard(self) -> None:
        """Close what is open."""
        with contextlib.suppress(LogwrightError):
            self._file.close()


class TransactionRestore(Restore):
    """Journals of page transactions."""

    def part_of(self, file: str) -> str:
        return part_of(file)

    def writer(self, directory: Path, file: str, *, disk: Disk, listed: Sequence[str] = ()) -> FileWriter:
        return FileWriter(directory, file, disk=disk)

    def missing(self, written: Sequence[Written], extents: Mapping[str, int]) -> list[Missing]:
        """Nothing that positions could describe: transactions get new ones. What is missing is reported in words."""
        return []


RESTORE: Final = TransactionRestore()
