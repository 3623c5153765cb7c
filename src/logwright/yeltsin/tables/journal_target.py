"""JournalTarget: the rows of tables become transactions of a journal again.

Consecutive rows with one number are one transaction, up to the next first operation. A table has a row for each
operation, and a row `end` for a transaction without any. What the end of a transaction carries comes from its last row,
if the table has the column `end_data`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from ...core.io.disk import REAL_DISK, Disk, make_directories
from ...core.io.durability import SyncLike
from ...core.write.closing import Closing
from ...errors import WrongUse
from ..bytes.layout import COMPLETE, COMPLETION, JOURNAL_SUFFIX
from ..bytes.records import END, OUTCOMES, Allocate, Modify, Operation, Remove, Transaction
from ..files.seal import without_wrong_seal
from ..files.writer import TransactionJournal

_FIELDS: Final[dict[str, tuple[Callable[..., Operation], tuple[str, ...]]]] = {
    "allocate": (Allocate, ("page", "free_before", "free_after")),
    "modify": (Modify, ("page", "page_offset", "before", "after")),
    "remove": (Remove, ("page", "free_before")),
}
"""What an operation is made of."""
ENDS: Final = {outcome: end for end, outcome in OUTCOMES.items() if end is not None}


class JournalTarget(Closing):
    """Appends the operations of rows to the journal `name` of a directory.

    Columns: `op` and `page`, and of `page_offset`, `before`, `after`, `free_before` and `free_after` those that the
    operations have; `transaction`, whose numbers part one from the next, and if present `operation`, which is 0 for the
    first of a transaction, `timestamp`, `flags`, `outcome` and `end_data`. Without `transaction` every row is one.
    """

    format = "yeltsin"

    def __init__(
        self, directory: Path | str, name: str, *, sync: SyncLike = "none", whole: bool = False, disk: Disk = REAL_DISK
    ) -> None:
        """`whole` says that no transaction continues in the next batch."""
        directory = Path(directory)
        make_directories(disk, directory)
        file = name if name.endswith(JOURNAL_SUFFIX) else name + JOURNAL_SUFFIX
        self._journal = TransactionJournal(directory / file, sync=sync, disk=disk)
        self._whole = whole
        self._rows = 0
        self._number: int | None = None
        self._operations: list[Operation] = []
        self._head: dict[str, Any] = {}
        self._end_data = b""

    def append_batch(self, batch: Any) -> int:
        """Take the rows of an Arrow record batch; how many those were."""
        names = batch.schema.names
        check_names(names)
        times = batch.column("timestamp").cast("timestamp[s]").cast("int64").to_pylist() if "timestamp" in names else []
        kept = [name for name in names if name != "timestamp"]
        for number, row in enumerate(batch.select(kept).to_pylist()):
            index = row.get("transaction", self._rows)
            if index is None:
                raise WrongUse(f"row {number} does not say which transaction it is of")
            if index != self._number or row.get("operation") == 0:  # several journals may have the same number
                self._finish()
                self._number = index
                self._head = {**row, "timestamp": times[number] if times else None}
            if row["op"] != END:
                self._operations.append(operation_of(number, row))
            self._end_data = row.get("end_data") or b""
            self._rows += 1
        if self._whole:
            self._finish()
            self._number = None
        return int(batch.num_rows)

    def _finish(self) -> None:
        if not self._head:
            return
        head, operations, end_data = self._head, tuple(self._operations), self._end_data
        self._head, self._operations = {}, []
        outcome = head.get("outcome") or OUTCOMES[COMPLETION]
        if outcome not in ENDS:
            raise WrongUse(f"a transaction that is {outcome} cannot be written: it would be cut off")
        flags = COMPLETE if head.get("flags") is None else head["flags"]
        created = int(time.time()) if head["timestamp"] is None else head["timestamp"]
        last = self._journal.last or 0
        record = Transaction(last, 0, created, flags, operations, ENDS[outcome], end_data)
        self._journal.append_transaction(without_wrong_seal(record))

    def close(self) -> None:
        """Append the last transaction, and close the journal."""
        try:
            self._finish()
        finally:
            self._journal.close()


def check_names(names: Sequence[str]) -> None:
    """Raise `WrongUse` for columns that cannot become operations."""
    if "op" not in names or "page" not in names:
        raise WrongUse(f"there is no op, or no page, among {', '.join(names) or 'no columns'}")


def check_rows(batch: Any) -> None:
    """Raise `WrongUse` for rows that cannot become operations, or a transaction that cannot be written."""
    for number, row in enumerate(batch.to_pylist()):
        if row["op"] != END:
            operation_of(number, row).validate()
        if (row.get("outcome") or OUTCOMES[COMPLETION]) not in ENDS:
            raise WrongUse(f"a transaction that is {row['outcome']} cannot be written: it would be cut off")


def operation_of(number: int, row: dict[str, Any]) -> Operation:
    """The operation that the fields of a row are of."""
    try:
        kind, fields = _FIELDS[row["op"]]
    except KeyError:
        names = ", ".join(_FIELDS)
        raise WrongUse(f"row {number}: {row['op']!r} is no operation; there are {names}") from None
    missing = [name for name in fields if row.get(name) is None]
    if missing:
        raise WrongUse(f"row {number}: the operation {row['op']} needs {', '.join(missing)}")
    operation: Operation = kind(*(row[name] for name in fields))
    return operation
