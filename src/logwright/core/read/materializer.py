"""Materializers: the tables of a part of a journal, made from its records in order.

A format has a record table, with a row for every record in typed columns, and state tables, which show the state that
the records describe: the items of queues, the versions of keys, segments, transactions. A `Materializer` makes the rows
of all of them in one pass over the records of one part (a shard, queue or store; the only part has the empty name).

A row is *closed* if no later record can change it: an item that is done, a version that was superseded. Closed rows are
given out once, as soon as they are known. All other rows are *live*: they are given out again after each increment, and
replace those given out before. A materializer that was saved after some records and opened again continues as if it had
never stopped. So an increment costs what is new and what is live, not the history.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


class Rows(NamedTuple):
    """Rows of a table, in the columns of its schema. Texts may be dictionaries."""

    table: str
    batch: pa.RecordBatch


class PartRows(NamedTuple):
    """Rows of a table that are of several parts; `parts` has the number of the part of each row, in their order."""

    table: str
    batch: pa.RecordBatch
    parts: pa.Array


class Materializer(ABC):
    """Makes the tables of one part of a journal. It is used with `with`, which removes its temporary files."""

    @abstractmethod
    def add(self, batch: pa.RecordBatch) -> Iterator[Rows]:
        """Take the next records, in the format's own columns; the rows that are closed now.

        The iterator must be used up before the next call.
        """

    @abstractmethod
    def live(self, now_ns: int) -> Iterator[Rows]:
        """All live rows at a time, in nanoseconds since the epoch. Records can be added afterwards."""

    @abstractmethod
    def save(self, sink: pa.NativeFile) -> None:
        """Write the state to a file, from which `Materials.materializer` continues."""

    @property
    def due_ns(self) -> int | None:
        """When live rows change without any new record, as by expiry; None if they do not."""
        return None

    def close(self) -> None:
        """Remove temporary files."""
        return

    def __enter__(self) -> Materializer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Continued:
    """Where a materializer continues: the state that was saved, and the directory for temporary files.

    `moment_ns` is the time of tables that show the state at a fixed time; None for the state after all records.
    Without `has_records` the rows of the record table are not made.
    """

    part: str
    saved: pa.NativeFile | None
    scratch: Path
    moment_ns: int | None = None
    has_records: bool = True


class Materials(ABC):
    """The tables of a format, and how they are made."""

    record_table: ClassVar[str]
    """The table with a row for every record."""
    is_ordered: ClassVar[bool] = True
    """Whether one materializer must take all records of a part in order. If not, several tasks may share a part, and
    several journals a materializer: there is no state, and all rows are closed, one for each record of a batch."""

    @property
    @abstractmethod
    def schemas(self) -> Mapping[str, pa.Schema]:
        """The columns of each table, the record table first. The pipeline adds the column `journal` before them."""

    @property
    @abstractmethod
    def sources(self) -> Sequence[str]:
        """The format's own columns that batches for `Materializer.add` must have."""

    @abstractmethod
    def materializer(self, continued: Continued) -> Materializer:
        """Open a materializer for a part, at its beginning or where an earlier one was saved."""

    @property
    def is_joining(self) -> bool:
        """Whether `joined` makes the tables of many small parts at once, which costs less than one at a time."""
        return False

    def joined(
        self, batch: pa.RecordBatch, counts: Sequence[int], now_ns: int, moment_ns: int | None
    ) -> Iterator[PartRows]:
        """All rows of several parts, closed and live. The next `counts[n]` records are all records of part n."""
        raise NotImplementedError
