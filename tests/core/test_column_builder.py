"""Columns that are filled row by row until a row does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from logwright.core.bytes.column_builder import Bytes, ColumnBuilder, Numbers
from logwright.errors import TooLarge, WrongUse

NUMBERS, NAMES, DATA = 1, 2, 4
LAYOUT = (Numbers(NUMBERS, "numbers", "i"), Bytes(NAMES, "names", "name_ends"), Bytes(DATA, "data", "data_ends"))


@dataclass
class Columns:
    count: int
    numbers: Any = None
    names: Any = None
    name_ends: Any = None
    data: Any = None
    data_ends: Any = None


def builder(
    want: int, rows: int = 3, names: int = 10, data: int = 6, allocate: Any = bytearray
) -> ColumnBuilder[Columns]:
    return ColumnBuilder(Columns(0), LAYOUT, want, rows, {"names": names, "data": data}, allocate)


def put(found: ColumnBuilder[Columns], number: int, name: bytes, data: bytes) -> bool:
    return found._put({"numbers": number}, {"names": name, "data": data})


def ints(buffer: bytearray) -> list[int]:
    return list(memoryview(buffer).cast("i"))


def test_rows_are_added_until_one_does_not_fit_and_that_one_leaves_no_trace() -> None:
    found = builder(NUMBERS | NAMES | DATA)
    assert put(found, 7, b"one", b"1234")
    assert not put(found, 8, b"two", b"345")
    assert put(found, 9, b"", b"56")
    columns = found.take()
    assert columns.count == 2
    assert ints(columns.numbers)[:2] == [7, 9]
    assert ints(columns.name_ends)[:3] == [0, 3, 3]
    assert ints(columns.data_ends)[:3] == [0, 4, 6]
    assert (bytes(columns.names[:3]), bytes(columns.data)) == (b"one", b"123456")


def test_rows_are_limited_to_the_allocated_number() -> None:
    found = builder(NUMBERS, rows=1)
    assert put(found, 1, b"", b"")
    assert not put(found, 2, b"", b"")


def test_unrequested_column_takes_no_memory() -> None:
    found = builder(NUMBERS, data=0)
    assert put(found, 1, b"a name that is much too long", b"and data")
    assert found.take() == Columns(1, numbers=bytearray([1, 0, 0, 0, *bytes(8)]))


def test_columns_can_be_taken_only_once() -> None:
    found = builder(NUMBERS)
    found.take()
    with pytest.raises(WrongUse, match="have been taken"):
        found.take()


@pytest.mark.parametrize("sizes", [{"rows": -1}, {"names": -1}, {"data": 2**31}])
def test_oversized_batch_is_refused_before_allocation(sizes: dict[str, int]) -> None:
    def allocate(size: int) -> bytearray:
        raise AssertionError(f"{size} bytes were allocated")

    with pytest.raises(TooLarge, match="less than 2 GiB"):
        builder(NUMBERS | NAMES | DATA, **sizes, allocate=allocate)


def test_short_buffer_is_refused() -> None:
    with pytest.raises(WrongUse, match="a buffer of 12 bytes was asked for, not of 11"):
        builder(NUMBERS, allocate=lambda size: bytearray(size - 1))
