"""Columns that are initialized twice, or with numbers that overflow: refused; no memory is written out of bounds."""

from __future__ import annotations

import pytest

from logwright.core.bytes.compiled import COMPILED
from logwright.errors import TooLarge, WrongUse
from logwright.sej.bytes import kernel
from tests.support.reentry import in_threads, run_apart


def test_columns_in_use_cannot_be_initialized_again() -> None:
    if not COMPILED:
        pytest.skip("in Python memory is freed when nothing uses it")
    builder = kernel.BatchBuilder(127, 10, 100, 100)
    with pytest.raises(WrongUse, match="already begun"):
        builder.__init__(127, 10, 100, 100)  # type: ignore[misc]
    assert builder.take().count == 0


@pytest.mark.parametrize("rows", [2**31, 2**61, 2**61 + 1, 2**63 - 1])
def test_batch_with_too_many_rows_is_refused(rows: int) -> None:
    with pytest.raises(TooLarge):
        kernel.BatchBuilder(127, rows, 100, 100)


@pytest.mark.parametrize("count", [2**61, 2**62, 2**63 - 1])
def test_columns_larger_than_memory_are_refused(count: int) -> None:
    columns = kernel.columns(b"", 0, 0, 0)
    columns.count = count
    with pytest.raises((TooLarge, WrongUse)):
        kernel.check_columns(columns)


def adding_to_one_batch_by_threads() -> None:
    """One thread adds at a time; another one is refused, and the added rows are counted."""
    buffer = kernel.AppendBuffer(0, 0, 1 << 40, 1 << 40)
    for number in range(2000):
        buffer.append(b"v" * (number % 60), b"k")
    data, used = buffer.take()[:2]
    builder = kernel.BatchBuilder(127, 60_000, 60_000, 6_000_000)
    added = []

    def add() -> None:
        for _ in range(10):
            try:
                added.append(builder.add(data, 0, used, 2000)[1])
            except WrongUse:
                added.append(0)

    in_threads(add, add, add)
    columns = builder.take()
    assert columns.count == sum(added)
    offsets = memoryview(columns.offsets).cast("B").cast("Q")  # type: ignore[arg-type]
    assert [offsets[row] for row in range(columns.count)] == list(range(2000)) * (columns.count // 2000)


def test_one_thread_adds_to_a_batch_at_a_time() -> None:
    run_apart(adding_to_one_batch_by_threads)
