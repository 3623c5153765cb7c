"""Writer: appends operations to the journal of a queue, alone and safely. It knows nothing of the queue's state.

What an append guarantees when it returns, by the sync policy:

    none            the operation is in the writer's buffer; `flush` gives it to the system, `sync` to the disk
    interval(ms)    the same, and a background thread syncs that often
    always          the operation is on the disk; threads that append at the same time share one sync

What a crash leaves: a beginning of what was appended, and then at most one operation that is cut short, which the next
writer cuts off and keeps (`recovered`, `kept`). The format has no checksums: where a file system makes a file longer
before its new bytes are there, the last operations, none of which was acknowledged, may be left with wrong bytes in
them. A file is synced before it is rotated, so only the newest can ever be torn.

A failed write or sync is final: the writer takes nothing more (`Poisoned`), the partial operation is rolled back, and
what was acknowledged before stays. Open a new writer to continue.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.io.disk import REAL_DISK, Disk
from ...core.io.durability import SyncLike
from ...errors import WrongUse
from ..bytes import codec, kernel
from ..bytes.records import DIALECT_OF, DIALECTS, OP_NAMES, OPS, Dialect, Operation
from .queue_files import OperationBuffer, QueueFiles

if TYPE_CHECKING:
    from ..bytes.codec import Columns

BUFFER_BYTES = 256 * 1024
"""How much is gathered before it is written: few enough calls, and still in the processor's cache."""


class Writer(QueueFiles, kernel.AppendBuffer):
    """Appends operations to the journal of the queue at `directory / name`, creating it when there is none.

    One writer at a time: a second one gets `Locked` at once. Safe to use from many threads. `addx`, `remove` and the
    others append one operation and return its position in the newest file. With `max_file_bytes` a file that has grown
    so large is rotated.

    `recovered` says what was cut off the end on opening, None when it was whole; `kept` is where those bytes are now.
    `dialect` is the one that the journal is in; a new one is documented, until an operation of kestrel2 is appended.
    """

    format = "kestrel"
    refusing: bool

    def __init__(
        self,
        path: Path | str,
        *,
        sync: SyncLike = "none",
        dialect: Dialect = "auto",
        max_file_bytes: int | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        disk: Disk = REAL_DISK,
    ) -> None:
        for name, size in (("file", max_file_bytes), ("buffer", buffer_bytes)):
            if size is not None and (not isinstance(size, int) or not 0 < size < 2**62):
                raise WrongUse(f"a {name} of {size} bytes makes no sense")
        if max_file_bytes is not None:
            self._max_file_bytes = max_file_bytes
        self._open_files(path, sync, dialect, disk)
        kernel.AppendBuffer.__init__(self, self._file_size, 1 if self._always else buffer_bytes, self._dialect)
        self._own(self)
        self.on_other_dialect = self._check_kind
        self._begin()

    @property
    def _operations(self) -> OperationBuffer:  # type: ignore[override]
        """The writer is its own buffer. A writer that owns its buffer took 11 % longer for `addx` and `remove`.

        No attribute, for CPython 3.11 finds the methods of an object with more than 30 attributes more slowly.
        """
        return self

    # --- appending --------------------------------------------------------------------------------------------------

    def append(self, operation: Operation) -> int:
        """Append an operation; its position in the newest file."""
        data = codec.encode(operation)
        self._check_kind(operation.number)
        return self.append_encoded(data, 1)

    def _check_kind(self, kind: int) -> None:
        """Raise `WrongUse` for an operation of the other dialect. Where nothing has settled it yet, this one does."""
        needed = DIALECT_OF.get(OP_NAMES[kind])
        if needed is None:
            return
        if self._is_settled and DIALECTS[needed] != self.dialect:
            raise WrongUse(f"the operation {OP_NAMES[kind]} is of the dialect {needed}, which this journal is not in")
        self.dialect, self._is_settled = DIALECTS[needed], True

    def append_batch(self, batch: Any) -> int:
        """Append the rows of an Arrow record batch or table; how many those were.

        Columns: `op`, and of `xid`, `count`, `added`, `expires` and `data` those that the operations have. Without `op`
        every row is an item to be added: `data` or `value`, and if present `added` or `timestamp`, and `expires`. Other
        columns are ignored. Everything is checked before anything is written.
        """
        from ..tables.columns import from_arrow

        columns = from_arrow(batch)
        return self.append_columns(columns)

    def append_columns(self, parts: list[Columns]) -> int:
        """Append operations that are columns of plain buffers; how many those were. See `append_batch`."""
        now = time.time_ns() // 1_000_000
        for part in parts:
            for kind in {*bytes(part.kinds or b"")[: part.count]} & {OPS[op] for op in DIALECT_OF}:
                self._check_kind(kind)
            row = 0
            while row < part.count:  # in vain, but for the errors
                _, _, row = kernel.pack(part, row, BUFFER_BYTES, self.dialect, now)
        for part in parts:
            row = 0
            while row < part.count:
                data, count, row = kernel.pack(part, row, BUFFER_BYTES, self.dialect, now)
                self.append_encoded(data, count)
        return sum(part.count for part in parts)
