"""Columns: the records of a format as Arrow data.

A format has its own columns (`schema`), which its readers fill (`collector`) and its writers take. On Spark it has
typed columns (`typed`) and the columns that all formats share: `column` makes one of either kind from a batch of the
format's own columns, and `sources` names the columns that it needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES: Final = 4 << 20
"""The default size of a batch. It fits the cache of a processor."""


class Collector(Protocol):
    """Makes record batches of a bounded size from the chunks that a reader gives."""

    schema: pa.Schema

    def add(self, chunk: Any, part: str = "") -> Iterator[pa.RecordBatch]:
        """Add a chunk of a part; the batches that became full."""

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The last batch, if any rows are left."""


class Columns(ABC):
    """The records of a format as Arrow data."""

    typed: pa.Schema
    """The columns of the format's source on Spark."""
    key: ClassVar[str]
    """The typed column that says what a record is about: its key, queue, segment or page."""
    contents: ClassVar[Sequence[str]]
    """The typed columns with what users stored, for searching."""
    payload: ClassVar[str | None] = None
    """The typed column whose values can be decoded."""

    json_fields: ClassVar[Mapping[str, pa.DataType]]
    """The fields of `dump --json` that a writer needs, with the types of their columns: bytes are base64 there."""
    json_ignored: ClassVar[Sequence[str]] = ()
    """Other fields of `dump --json`, which the journal determines."""
    part_field: ClassVar[str | None] = None
    """The field that names the shard, queue or store of a record, if there are several."""

    def json_rows(self) -> Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]]:
        """A function that returns the rows of each record of `dump --json` in turn; none if it need not be written."""
        return lambda fields: [fields]

    make_schema: ClassVar[Callable[..., pa.Schema]]
    make_collector: ClassVar[Callable[..., Collector]]

    def schema(self, names: Sequence[str] | None = None, *, sharded: bool = False) -> pa.Schema:
        """The Arrow schema of these columns, in this order; of the default columns without names."""
        return type(self).make_schema(names, sharded=sharded)

    def collector(
        self, names: Sequence[str] | None = None, *, sharded: bool = False, batch_bytes: int = BATCH_BYTES
    ) -> Collector:
        """Makes batches of these columns, of about `batch_bytes` each."""
        return type(self).make_collector(names, sharded=sharded, batch_bytes=batch_bytes)

    @abstractmethod
    def sources(self, names: Sequence[str], *, sharded: bool) -> list[str]:
        """The format's own columns that must be decoded for these columns on Spark; at least one."""

    @abstractmethod
    def column(self, batch: pa.RecordBatch, name: str) -> pa.Array | None:
        """One column on Spark from a batch of the format's own columns; None if the format does not have it."""

    @abstractmethod
    def check(self, batch: pa.RecordBatch) -> None:
        """Raise `WrongUse` for a batch that cannot become records of this format."""

    @abstractmethod
    def record_batches(self, data: Any) -> Iterator[pa.RecordBatch]:
        """Arrow data of any kind as record batches that a writer of this format takes."""

    def as_messages(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch in the form that every other format takes: `value`, and if the format has them `key` and `timestamp`.

        Records without a value, such as the removals of a queue, are left out.
        """
        return batch

    def left_out(self, messages: pa.RecordBatch) -> Mapping[str, int]:
        """Fields that records of this format cannot hold, each with the number of messages that have it."""
        return {}
