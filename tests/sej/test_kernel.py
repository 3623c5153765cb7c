"""The compiled kernel compared with the codec: gathering messages, columns in both directions, and working without it.

The contract tests check that walks, messages, spans, columns and searches agree on any bytes.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from logwright.core.bytes.compiled import COMPILED
from logwright.core.bytes.outcome import Malformed
from logwright.errors import LogwrightError, TooLarge, WrongUse
from logwright.sej.bytes import codec, kernel
from logwright.sej.bytes.codec import Columns
from logwright.sej.bytes.layout import MAX_OFFSET, MAX_TIMESTAMP, NO_TIMESTAMP
from tests.sej.subject import SejSubject

ROOT = Path(__file__).resolve().parents[2]
SUBJECT = SejSubject()
NO_TIMES = (MAX_TIMESTAMP, NO_TIMESTAMP)

compiled = pytest.importorskip("logwright.sej.bytes._kernel", reason="the kernel is not built")
TWINS: tuple[ModuleType, ...] = (codec, compiled)
EACH_TWIN = pytest.mark.parametrize("twin", TWINS, ids=["codec", "kernel"])
PROPERTY = settings(derandomize=True, deadline=None, database=None, max_examples=200)


def test_kernel_is_used_where_it_is_built() -> None:
    pure = bool(os.environ.get("LOGWRIGHT_PURE"))
    assert COMPILED is not pure
    assert kernel.walk is (codec.walk if pure else compiled.walk)


def test_kernel_has_everything_that_the_choice_offers() -> None:
    for name in ("AppendBuffer", "BatchBuilder", "check_columns", "columns", "find_head", "messages", "spans", "walk"):
        assert getattr(kernel, name) is getattr(compiled if COMPILED else codec, name)


# --- gathering messages for a segment -------------------------------------------------------------------------------


class Both:
    """Two buffers, of the codec and of the kernel, that get the same calls and must return the same."""

    def __init__(self, *arguments: int) -> None:
        self.attended = [0, 0]
        self.buffers = [twin.AppendBuffer(*arguments) for twin in TWINS]
        for number, buffer in enumerate(self.buffers):
            buffer.attend = partial(self._count, number)

    def _count(self, number: int) -> None:
        self.attended[number] += 1

    def ask(self, name: str, *arguments: Any) -> Any:
        answers = [answer_of(getattr(buffer, name), *arguments) for buffer in self.buffers]
        assert answers[0] == answers[1], f"{name}{arguments}"
        assert self.attended[0] == self.attended[1]
        for state in ("next_offset", "segment_used", "smallest_timestamp", "largest_timestamp", "buffered_bytes"):
            assert getattr(self.buffers[0], state) == getattr(self.buffers[1], state)
        return answers[0]

    def take(self) -> tuple[bytes, list[tuple[int, int, int, int]], tuple[int, int]]:
        found = []
        for buffer in self.buffers:
            data, used, cuts, smallest, largest = buffer.take()
            found.append((bytes(data[:used]), cuts, (smallest, largest)))
        assert found[0] == found[1]
        return found[0]


def answer_of(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (LogwrightError, Malformed, TypeError, BufferError) as error:
        return type(error).__name__


ROWS = strategies.tuples(
    strategies.binary(max_size=200),
    strategies.binary(max_size=140),
    strategies.integers(-2, 257),
    strategies.none() | strategies.integers(NO_TIMESTAMP - 1, 2**63),
)


@PROPERTY
@given(
    rows=strategies.lists(ROWS, max_size=30),
    segment_bytes=strategies.integers(1, 500),
    attention_bytes=strategies.integers(1, 2000),
    taken_at=strategies.sets(strategies.integers(0, 30), max_size=5),
)
def test_appends_gather_the_same_bytes(
    rows: list[tuple[bytes, bytes, int, int | None]], segment_bytes: int, attention_bytes: int, taken_at: set[int]
) -> None:
    both = Both(5, 3, segment_bytes, attention_bytes)
    for number, row in enumerate(rows):
        both.ask("append", *row)
        if number in taken_at:
            both.take()
    both.take()
    assert both.take() == (b"", [], NO_TIMES)


def test_gathered_bytes_are_messages_with_cuts_after_full_segments() -> None:
    both = Both(10, 0, 60, 1 << 20)
    for number in range(5):
        assert both.ask("append", b"v" * number, b"k", 1, 100 - number) == 10 + number
    data, cuts, times = both.take()
    sizes = [27 + number for number in range(5)]
    assert [message.offset for message in codec.messages(data, 0, len(data), 5)] == [10, 11, 12, 13, 14]
    assert cuts == [(sum(sizes[:3]), 13, 98, 100), (sum(sizes), 15, 96, 97)]
    assert times == NO_TIMES


def test_smallest_and_largest_time_are_those_of_the_taken_messages() -> None:
    both = Both(0, 0, 10 * 27, 1 << 20)
    for stamps, expected in (
        ([5, None, -7, 9], (-7, 9)),
        ([None, None], NO_TIMES),
        ([MAX_TIMESTAMP], (MAX_TIMESTAMP, MAX_TIMESTAMP)),
        ([], NO_TIMES),
        ([NO_TIMESTAMP + 1, None], (NO_TIMESTAMP + 1, NO_TIMESTAMP + 1)),
    ):
        for stamp in stamps:
            both.ask("append", b"v", b"", 0, stamp)
        assert both.take()[1:] == ([], expected)
    both.ask("append", b"v", b"", 0, 3)
    assert both.take()[1:] == ([(27, 10, 3, 3)], NO_TIMES)
    timestamps = [4, NO_TIMESTAMP, 2]
    columns = Columns(3, timestamps=array("q", timestamps).tobytes(), value_ends=bytes(16), values=b"")
    both.ask("extend", columns, 0, 0, 1 << 20)
    assert both.take()[1:] == ([], (2, 4))


@pytest.mark.parametrize(
    ("value", "key", "type", "timestamp"),
    [
        ("text", b"", 0, 1),
        (5, b"", 0, 1),
        ([1, 2], b"", 0, 1),
        (None, b"", 0, 1),
        (b"", "text", 0, 1),
        (b"", b"", 1.5, 1),
        (b"", b"", None, 1),
        (b"", b"", 2**70, 1),
        (b"", b"", 0, 1.5),
        (b"", b"", 0, "1"),
        (b"", b"", 0, NO_TIMESTAMP),
        (b"", b"", 0, 2**63),
        (memoryview(b"abcdef")[::2], b"", 0, 1),
        (b"", bytes(128), 0, 1),
    ],
)
def test_invalid_message_is_refused_equally_and_leaves_no_trace(
    value: Any, key: Any, type: Any, timestamp: Any
) -> None:
    both = Both(0, 0, 1000, 1 << 20)
    assert isinstance(both.ask("append", value, key, type, timestamp), str)
    assert both.ask("append", b"fine", b"", 0, 1) == 0


@pytest.mark.parametrize(
    "value", [bytearray(b"abc"), memoryview(b"abc"), array("H", [1, 2]), memoryview(b"abcd").cast("H")]
)
def test_any_buffer_is_a_value(value: Any) -> None:
    both = Both(0, 0, 1000, 1 << 20)
    assert both.ask("append", value, value, 0, 1) == 0
    (message,) = codec.messages(both.take()[0], 0, 26 + 2 * memoryview(value).nbytes, 1)
    assert message.key == message.value == memoryview(value).tobytes()


def test_last_offset_is_not_used() -> None:
    both = Both(MAX_OFFSET - 1, 0, 1000, 1 << 20)
    assert both.ask("append", b"", b"", 0, 1) == MAX_OFFSET - 1
    assert both.ask("append", b"", b"", 0, 1) == "TooLarge"
    assert both.take()[0] != b""


@EACH_TWIN
def test_refusing_buffer_accepts_nothing(twin: ModuleType) -> None:
    buffer = twin.AppendBuffer(0, 0, 1000, 1 << 20)
    buffer.refusing = True
    uses: list[Callable[[], object]] = [
        lambda: buffer.append(b""),
        lambda: buffer.extend(columns_of([]), 0, 1, 100),
    ]
    for use in uses:
        with pytest.raises(WrongUse, match="takes no more records"):
            use()


@EACH_TWIN
def test_message_without_a_time_gets_that_of_its_append(twin: ModuleType) -> None:
    buffer = twin.AppendBuffer(0, 0, 1000, 1 << 20)
    buffer.append(b"")
    assert buffer.smallest_timestamp == buffer.largest_timestamp > 1_700_000_000_000_000_000


@EACH_TWIN
def test_large_message_is_gathered_and_its_memory_released(twin: ModuleType) -> None:
    buffer = twin.AppendBuffer(0, 0, 1 << 40, 1000)
    for size in (5_000_000, 10, 20):
        buffer.append(bytes(size))
        assert buffer.take()[1] == 26 + size
    assert len(buffer.take()[0]) < 5_000_000


@EACH_TWIN
def test_threads_gather_each_message_once(twin: ModuleType) -> None:
    buffer = twin.AppendBuffer(0, 0, 1 << 40, 1 << 40)
    offsets: list[list[int]] = [[] for _ in range(4)]

    def append(mine: list[int]) -> None:
        for _ in range(500):
            mine.append(buffer.append(b"value", b"key", 1, 2))

    threads = [threading.Thread(target=append, args=(mine,)) for mine in offsets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    data, used, *_ = buffer.take()
    assert sorted(chain(*offsets)) == list(range(2000))
    assert codec.walk(data, 0, used, 0)[:3] == (used, 2000, codec.CLEAN)


# --- columns --------------------------------------------------------------------------------------------------------


def columns_of(rows: list[tuple[int, int, bytes, bytes]]) -> Columns:
    """Columns of time, type, key, value."""
    key_ends, value_ends = array("i", [0]), array("i", [0])
    for _, _, key, value in rows:
        key_ends.append(key_ends[-1] + len(key))
        value_ends.append(value_ends[-1] + len(value))
    return Columns(
        len(rows),
        timestamps=array("q", [row[0] for row in rows]).tobytes(),
        types=bytes(row[1] for row in rows),
        key_ends=key_ends.tobytes(),
        keys=b"".join(row[2] for row in rows),
        value_ends=value_ends.tobytes(),
        values=b"".join(row[3] for row in rows),
    )


COLUMN_ROWS = strategies.lists(
    strategies.tuples(
        strategies.integers(NO_TIMESTAMP, 2**63 - 1),
        strategies.integers(0, 255),
        strategies.binary(max_size=127),
        strategies.binary(max_size=200),
    ),
    max_size=20,
)


@PROPERTY
@given(
    rows=COLUMN_ROWS,
    missing=strategies.sets(strategies.sampled_from(["timestamps", "types", "keys", "values"])),
    enough_bytes=strategies.integers(1, 3000),
    segment_bytes=strategies.integers(1, 800),
)
def test_columns_are_gathered_equally(
    rows: list[tuple[int, int, bytes, bytes]], missing: set[str], enough_bytes: int, segment_bytes: int
) -> None:
    columns = columns_of(rows)
    for name in missing:
        setattr(columns, name, None)
        if name in ("keys", "values"):
            setattr(columns, name[:-1] + "_ends", None)
    assert check_both(columns) is None
    both = Both(0, 0, segment_bytes, 1 << 30)
    row = 0
    while row < columns.count:
        following = both.ask("extend", columns, row, 77, enough_bytes)
        assert row < following <= columns.count
        row = following
        both.take()
    assert both.buffers[0].next_offset == columns.count


@PROPERTY
@given(rows=COLUMN_ROWS)
def test_columns_of_messages_round_trip(rows: list[tuple[int, int, bytes, bytes]]) -> None:
    both = Both(0, 0, 1 << 40, 1 << 30)
    both.ask("extend", columns_of(rows), 0, 0, 1 << 30)
    data, _, _ = both.take()
    for twin in TWINS:
        found = twin.messages(data, 0, len(data), len(rows))
        assert [(m.type, m.key, m.value) for m in found] == [row[1:] for row in rows]
        columns = twin.columns(data, 0, len(data), len(rows))
        again = Both(0, 0, 1 << 40, 1 << 30)
        again.ask("extend", columns, 0, 0, 1 << 30)
        assert again.take()[0] == data


def check_both(columns: Columns) -> str | None:
    """The kind of error that both raise for some columns; a value that is too large is a wrong use as well."""
    found: list[str | None] = []
    for twin in TWINS:
        try:
            twin.check_columns(columns)
            found.append(None)
        except TooLarge:
            found.append("TooLarge")
        except WrongUse:
            found.append("WrongUse")
    assert (found[0] is None) == (found[1] is None), found
    return found[0]


GOOD = columns_of([(1, 2, b"key", b"value"), (3, 4, b"", b"more")])
BAD_COLUMNS = {
    "a negative count": replace(GOOD, count=-1),
    "more rows than timestamps": replace(GOOD, count=3),
    "timestamps too short": replace(GOOD, timestamps=b"1234567"),
    "types too short": replace(GOOD, types=b"1"),
    "key ends too short": replace(GOOD, key_ends=array("i", [0, 3]).tobytes()),
    "value ends too short": replace(GOOD, value_ends=array("i", [0, 5]).tobytes()),
    "ends that fall": replace(GOOD, value_ends=array("i", [0, 9, 5]).tobytes()),
    "ends before the beginning": replace(GOOD, value_ends=array("i", [-1, 5, 9]).tobytes()),
    "ends after the data": replace(GOOD, value_ends=array("i", [0, 5, 10]).tobytes()),
    "ends without data": replace(GOOD, values=None),
    "ends far after the data": replace(GOOD, key_ends=array("i", [0, 3, 2**31 - 1]).tobytes()),
    "an end in the middle after the data": replace(GOOD, value_ends=array("i", [0, 2**31 - 1, 9]).tobytes()),
    "a key too long": replace(GOOD, key_ends=array("i", [0, 128, 128]).tobytes(), keys=bytes(128)),
}


@pytest.mark.parametrize("columns", BAD_COLUMNS.values(), ids=BAD_COLUMNS)
def test_invalid_columns_of_messages_are_refused(columns: Columns) -> None:
    assert check_both(columns) is not None


def test_columns_of_noise_are_refused_or_gathered_within_their_buffers() -> None:
    chance = random.Random(9)
    refused = 0
    for _ in range(3000):
        count = chance.randrange(4)
        ends = array("i", [chance.choice((0, 1, 5, 9, -1, 2**31 - 1, -(2**31), 300)) for _ in range(count + 1)])
        columns = replace(GOOD, count=count, value_ends=ends.tobytes(), values=bytes(chance.choice((0, 5, 9, 400))))
        columns.timestamps, columns.types = bytes(8 * count), bytes(count)
        columns.key_ends = columns.keys = None
        if check_both(columns) is not None:
            refused += 1
            continue
        both = Both(0, 0, 1000, 1 << 30)
        both.ask("extend", columns, 0, 1, 1 << 30)
        both.take()
    assert 1000 < refused < 3000


@pytest.mark.parametrize("columns", [columns for columns in BAD_COLUMNS.values() if columns.count > 0])
def test_kernel_checks_each_row_again_before_it_copies(columns: Columns) -> None:
    with pytest.raises(WrongUse):
        compiled.AppendBuffer(0, 0, 1000, 1 << 30).extend(columns, 0, 1, 1 << 30)


# --- gathering columns of many ranges -------------------------------------------------------------------------------


@PROPERTY
@given(
    want=strategies.integers(0, 127),
    rows=strategies.integers(0, 12),
    key_bytes=strategies.integers(0, 400),
    value_bytes=strategies.integers(0, 900),
    parts=strategies.lists(strategies.integers(0, 4), max_size=6),
)
def test_ranges_are_gathered_equally_until_the_buffer_is_full(
    want: int, rows: int, key_bytes: int, value_bytes: int, parts: list[int]
) -> None:
    builders = [twin.BatchBuilder(want, rows, key_bytes, value_bytes) for twin in TWINS]
    for seed, count in enumerate(parts):
        data = b"pad" + SUBJECT.encode(SUBJECT.records(seed, count))
        plain, other = (builder.add(data, 3, len(data), count, 1000 * seed) for builder in builders)
        assert plain == other
        assert builders[0].count == builders[1].count
    plain, other = (used_part(builder.take()) for builder in builders)
    assert plain == other


def used_part(columns: Columns) -> dict[str, Any]:
    """The columns without the bytes after their rows."""
    found: dict[str, Any] = {field.name: getattr(columns, field.name) for field in fields(columns)}
    widths = {"offsets": 8, "timestamps": 8, "types": 1, "positions": 8, "sizes": 4}
    for name, width in widths.items():
        if found[name] is not None:
            found[name] = bytes(found[name][: width * columns.count])
    for ends, data in (("key_ends", "keys"), ("value_ends", "values")):
        if found[ends] is not None:
            found[ends] = bytes(found[ends][: 4 * columns.count + 4])
            found[data] = bytes(found[data][: int.from_bytes(found[ends][-4:], sys.byteorder)])
    return found


@EACH_TWIN
def test_gatherer_returns_its_columns_once(twin: ModuleType) -> None:
    builder = twin.BatchBuilder(codec.ALL_COLUMNS, 1, 10, 10)
    builder.take()
    for use in (builder.take, lambda: builder.add(b"", 0, 0, 0)):
        with pytest.raises(WrongUse, match="have been taken"):
            use()


@EACH_TWIN
def test_gatherer_is_not_larger_than_the_largest_batch(twin: ModuleType) -> None:
    for key_bytes, value_bytes in ((2**31, 1), (1, 2**31), (-1, 1), (1, -1)):
        with pytest.raises(TooLarge):
            twin.BatchBuilder(codec.ALL_COLUMNS, 1, key_bytes, value_bytes, lambda size: bytearray(1))


@EACH_TWIN
def test_buffer_smaller_than_requested_is_refused(twin: ModuleType) -> None:
    with pytest.raises(WrongUse, match="was asked for"):
        twin.BatchBuilder(codec.ALL_COLUMNS, 3, 10, 10, lambda size: bytearray(max(0, size - 1)))


# --- ranges and buffers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (5, 4), (0, 101), (2**62, 2**62), (-(2**62), 1)])
def test_kernel_reads_nothing_outside_its_buffer(start: int, end: int) -> None:
    data = bytes(100)
    uses: list[Callable[[], object]] = [
        lambda: compiled.walk(data, start, end, 0),
        lambda: compiled.messages(data, start, end, 1),
        lambda: compiled.spans(data, start, end, 1),
        lambda: compiled.columns(data, start, end, 1),
        lambda: compiled.find_head(data, start, end, 0, 1, 100),
        lambda: compiled.BatchBuilder(127, 1, 10, 10).add(data, start, end, 1),
    ]
    for use in uses:
        with pytest.raises(WrongUse):
            use()


@EACH_TWIN
def test_buffer_in_use_is_not_moved(twin: ModuleType) -> None:
    data = bytearray(SUBJECT.encode(SUBJECT.records(1, 3)))
    assert twin.walk(data, 0, len(data), 0)[1] == 3
    data += b"x"  # would be refused if the walk still held it
    assert twin.walk(memoryview(data), 0, len(data), 0)[1] == 3


# --- without the kernel ---------------------------------------------------------------------------------------------


def test_everything_works_without_the_kernel() -> None:
    """The journals of the original, again, by an interpreter that may not use compiled code."""
    golden = "tests/sej/test_golden.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", golden],
        cwd=ROOT,
        env={**os.environ, "LOGWRIGHT_PURE": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_environment_selects_the_implementation() -> None:
    code = (
        "from logwright.sej.bytes import kernel, codec, records; "
        "assert kernel.walk is codec.walk and records.Message is records.PlainMessage"
    )
    subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "LOGWRIGHT_PURE": "1"}, check=True, timeout=60
    )
