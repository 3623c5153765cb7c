"""Times between units: a sink accepts the times that a source has rounded down for Spark."""

from __future__ import annotations

import importlib
from array import array
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from logwright.core.arrow.columns import floored, times_of
from logwright.core.bytes.compiled import COMPILED
from logwright.errors import WrongUse
from logwright.sej.tables.columns import from_arrow
from logwright.sej.tables.spark_columns import COLUMNS

LEAST, MOST = -(1 << 63), (1 << 63) - 1
NANOSECONDS = [
    LEAST + 1,
    LEAST + 807,
    LEAST + 808,
    LEAST + 809,
    -1001,
    -1000,
    -999,
    -1,
    0,
    1,
    999,
    1000,
    MOST - 1,
    MOST,
]


def times(values: list[int | None], unit: str) -> pa.Array:
    return pa.array(values, pa.int64()).view(pa.timestamp(unit, tz="UTC"))


@pytest.mark.parametrize("exact", NANOSECONDS)
def test_every_timestamp_read_from_sej_can_be_written(exact: int) -> None:
    batch = pa.record_batch({"timestamp": times([exact], "ns"), "value": pa.array([b"v"])})
    delivered = COLUMNS.column(batch, "timestamp")
    assert delivered is not None
    assert delivered.view(pa.int64()).to_pylist() == [exact // 1000]
    (columns,) = from_arrow(pa.record_batch({"timestamp": delivered, "value": pa.array([b"v"])}))
    assert columns.timestamps is not None
    assert memoryview(columns.timestamps).cast("q").tolist() == [max(exact // 1000 * 1000, LEAST + 1)]


@pytest.mark.parametrize("exact", [LEAST, LEAST + 1, LEAST + 999, -1001, -1, 0, 999, MOST])
def test_finer_unit_is_rounded_down(exact: int) -> None:
    assert times_of("added", times([exact, None], "us"), "ms").to_pylist() == [exact // 1000, None]


@pytest.mark.parametrize("start", [0, 1])
def test_thousandths_are_rounded_down_as_in_python(start: int) -> None:
    numbers = [LEAST, LEAST + 1, -1001, -1000, -999, -1, None, 0, 1, 999, 1000, MOST]
    found = floored(pa.array(numbers).slice(start), 1000)
    assert found.to_pylist() == [None if number is None else number // 1000 for number in numbers[start:]]
    assert floored(pa.array([], pa.int64()), 1000).to_pylist() == []


TWINS = ["division", *(["_division"] if COMPILED else [])]


@pytest.mark.parametrize("name", TWINS)
def test_buffers_of_thousandths_are_checked_and_filled(name: str) -> None:
    divide = importlib.import_module(f"logwright.core.bytes.{name}").floor_thousandths
    numbers = array("q", [LEAST, -1, 0, 1999, MOST])
    target = bytearray(48)
    divide(numbers.tobytes(), target, 5)
    assert list(memoryview(target).cast("q")) == [*(number // 1000 for number in numbers), 0]
    for source, room, count in ((bytes(8), 16, 2), (bytes(16), 15, 2), (bytes(8), 8, -1)):
        with pytest.raises(WrongUse, match="a buffer is shorter than"):
            divide(source, bytearray(room), count)


def test_rounding_down_divides_like_python() -> None:
    assert floored(pa.array([LEAST, -7, -6, 0, 6, MOST, None]), 7).to_pylist() == [
        LEAST // 7, -1, -1, 0, 0, MOST // 7, None
    ]  # fmt: skip


@pytest.mark.parametrize("value", [LEAST // 1000 - 1, MOST // 1000 + 1])
def test_time_beyond_64_bits_is_refused(value: int) -> None:
    with pytest.raises(WrongUse, match="does not fit 64 bits of nanoseconds"):
        times_of("timestamp", times([value], "us"), "ns")


def test_time_of_the_same_unit_is_unchanged() -> None:
    now = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 10**9 + 123_456_789
    assert times_of("timestamp", times([now, LEAST, None], "ns"), "ns").to_pylist() == [now, LEAST, None]
