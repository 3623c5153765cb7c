"""Columns on Spark, for all formats: numbers and times as Spark has them, and details as JSON.

Spark has no unsigned numbers, and its times are microseconds in 64 bits: values that do not fit are null.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import TooLarge
from ..read.columns import Columns
from .columns import MOST_SIGNED, record_batches


class OwnColumns(Columns):
    """The columns of a format whose columns on Spark are made from its own columns."""

    own: ClassVar[Sequence[str]]
    """The format's own columns that others are made from."""
    made_from: ClassVar[Mapping[str, Sequence[str]]]
    """The own columns that a column on Spark is made from, where the names differ."""
    conversions: ClassVar[Mapping[str, Callable[[pa.Array], pa.Array]]]
    """How a column on Spark is made from its first own column, where it is another one."""

    def sources(self, names: Sequence[str], *, sharded: bool) -> list[str]:
        """The own columns that must be decoded for these; at least one, because a batch without columns has no rows."""
        wanted = {source for name in names for source in self.made_from.get(name, (name,))}
        return [name for name in self.own if name in wanted] or ["size"]

    def record_batches(self, data: Any) -> Iterator[pa.RecordBatch]:
        return record_batches(data)

    def column(self, batch: pa.RecordBatch, name: str) -> pa.Array | None:
        if name == "detail":
            return self.detail(batch)
        source = self.made_from.get(name, (name,))[0]
        if source not in self.own:
            return None
        convert = self.conversions.get(name)
        return batch.column(source) if convert is None else convert(batch.column(source))

    @abstractmethod
    def detail(self, batch: pa.RecordBatch) -> pa.Array:
        """The rest of each record, as a JSON object."""


def texts(data: pa.Array) -> pa.Array:
    """Names as STRING."""
    return data.cast(pa.string())


def sizes(record: str) -> Callable[[pa.Array], pa.Array]:
    """A function that makes sizes an INT; `record` names the record in its error."""

    def converted(data: pa.Array) -> pa.Array:
        try:
            return data.cast(pa.int32())
        except pa.ArrowInvalid:
            raise TooLarge(f"{record} of more than 2^31 - 1 bytes does not fit an INT") from None

    return converted


def scaled(data: pa.Array, factor: int) -> pa.Array:
    """Times in a unit that is `factor` times smaller; null where they do not fit."""
    times = data.view(pa.int64())
    most = MOST_SIGNED // factor
    extremes = pc.min_max(times).as_py()
    if len(times) > times.null_count and max(-extremes["min"], extremes["max"]) > most:
        fits = pc.and_(pc.less_equal(times, most), pc.greater_equal(times, -most))
        times = pc.if_else(fits, times, pa.scalar(None, pa.int64()))
    return pc.multiply(times, factor)


def microseconds(data: pa.Array, factor: int) -> pa.Array:
    """Times as TIMESTAMP; their unit is `factor` microseconds."""
    return scaled(data, factor).view(pa.timestamp("us", tz="UTC"))


def named_detail(name: str, names: pa.DictionaryArray) -> pa.Array:
    """A field of a JSON object with a string, for each row."""
    escaped = pa.array([f'"{name}":{json.dumps(each)}' for each in names.dictionary.to_pylist()], pa.string())
    return escaped.take(names.indices)


def number_detail(name: str, numbers: pa.Array) -> pa.Array:
    """A field of a JSON object with a number, for each row that is not null."""
    return pc.binary_join_element_wise(f'"{name}":', numbers.cast(pa.string()), "")


def details(fields: Sequence[pa.Array]) -> pa.Array:
    """The fields of each row as a JSON object, without nulls."""
    joined = pc.binary_join_element_wise(*fields, ",", null_handling="skip")
    return pc.binary_join_element_wise("{", joined, "}", "")
