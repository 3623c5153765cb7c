"""The columns for Spark are made from those of the format, whatever a batch contains."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from logwright.errors import TooLarge
from logwright.sej.tables.spark_columns import COLUMNS


def of(name: str, data: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([data], [name])


def names(*rows: str) -> pa.Array:
    return pa.array(rows, pa.dictionary(pa.int32(), pa.string()))


@pytest.mark.parametrize("types", [[], [0], [255], [9, 9, 9], [9, 0, 255, 9], list(range(256))])
def test_detail_of_a_message_is_its_type_in_json(types: list[int]) -> None:
    found = COLUMNS.column(of("type", pa.array(types, pa.uint8())), "detail")
    assert found is not None
    assert found.type == pa.string()
    assert found.to_pylist() == [f'{{"type":{number}}}' for number in types]


@pytest.mark.parametrize("rows", [[], ["a", "a", "a"], ["a", "b", "b", "a"]])
@pytest.mark.parametrize("name", ["file", "shard"])
def test_names_are_valid_text_for_spark(name: str, rows: list[str]) -> None:
    found = COLUMNS.column(of(name, names(*rows)), name)
    assert found is not None
    assert found.type == pa.string()
    assert found.to_pylist() == rows


@pytest.mark.parametrize("name", ["offset", "sequence"])
def test_offset_that_a_bigint_cannot_hold_is_an_error(name: str) -> None:
    largest = (1 << 63) - 1
    fits = of("offset", pa.array([largest - 1, largest], pa.uint64()))
    found = COLUMNS.column(fits, name)
    assert found is not None
    assert found.to_pylist() == [largest - 1, largest]
    with pytest.raises(TooLarge, match="does not fit a BIGINT"):
        COLUMNS.column(of("offset", pa.array([largest, largest + 1], pa.uint64())), name)
    none = COLUMNS.column(of("offset", pa.array([], pa.uint64())), name)
    assert none is not None
    assert none.to_pylist() == []
