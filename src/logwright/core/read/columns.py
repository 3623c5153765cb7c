"""Columns: what the rest of the package may ask of a format's records as Arrow data.

A format has columns of its own (`schema`), which its readers fill (`collector`) and its writers take. On Spark it has
typed columns (`typed`), and it takes part in the columns that all formats share: `column` makes one column of either
kind from a batch of the format's own, and `sources` says which of those it needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES: Final = 4 << 20
"""How much one batch holds by default: enough for its consumer, and still in a processor's cache."""


class Collector(Protocol):
    """Makes record batches of a bounded size from the chunks that a reader gives."""

    schema: pa.Schema

    def add(self, chunk: Any, part: str = "") -> Iterator[pa.RecordBatch]:
        """Take a chunk of a part; the batches that are full."""

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The last batch, if any rows are left."""


class Columns(ABC):
    """The records of a format as Arrow data."""

    typed: pa.Schema
    """The columns of the format's source on Spark."""

    @abstractmethod
    def schema(self, names: Sequence[str] | None = None, *, sharded: bool = False) -> pa.Schema:
        """The Arrow schema of these columns, in this order; without names of the usual ones."""

    @abstractmethod
    def collector(
        self, names: Sequence[str] | None = None, *, sharded: bool = False, batch_bytes: int = BATCH_BYTES
    ) -> Collector:
        """Makes batches of these columns, of about `batch_bytes` each."""

    @abstractmethod
    def sources(self, names: Sequence[str], *, sharded: bool) -> list[str]:
        """The format's own columns that must be decoded for these columns on Spark; at least one."""

    @abstractmethod
    def column(self, batch: pa.RecordBatch, name: str) -> pa.Array | None:
        """One column on Spark from a batch of the format's own columns; None for what the format does not have."""

    @abstractmethod
    def check(self, batch: pa.RecordBatch) -> None:
        """Raise `WrongUse` for a batch that cannot become records of this format."""

    @abstractmethod
    def record_batches(self, data: Any) -> Iterator[pa.RecordBatch]:
        """Arrow data of any kind as record batches that a writer of this format takes."""

    def as_messages(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch as every other format takes it: `value`, and if the format has them `key` and `timestamp`.

        Records without a value, such as the removals of a queue, are left out.
        """
        return batch

    def left_out(self, messages: pa.RecordBatch) -> Mapping[str, int]:
        """What messages have that records of this format cannot hold: what it is, and how many messages have it."""
        return {}
