"""The kernel returns the same results as the codec; the contract tests do the same with damaged bytes."""

from __future__ import annotations

import ctypes
import json
import math
import mmap
import os
import random
import resource
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from logwright.core.bytes.compiled import COMPILED
from logwright.core.bytes.outcome import Malformed
from logwright.errors import LogwrightError, WrongUse
from logwright.versioned.bytes import codec, kernel
from tests.versioned.test_codec import ENTRIES, FIELDS_IN_ANY_ORDER, hexed

pytestmark = pytest.mark.skipif(not COMPILED, reason="the kernel is not built: there is nothing to compare")

VALUES = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers(-(2**63), 2**64 - 1)
    | strategies.floats(allow_nan=False, allow_infinity=False)
    | strategies.text(max_size=30),
    lambda inner: strategies.lists(inner, max_size=5) | strategies.dictionaries(strategies.text(max_size=20), inner),
    max_leaves=12,
)


def columns_of(found: codec.Columns) -> list[Any]:
    return [found.count, found.timestamps, found.keys, found.values, found.raw_values, found.deleted, found.sizes]


@settings(derandomize=True, deadline=None, database=None, max_examples=300)
@given(t=strategies.integers(0, 2**64 - 1), key=strategies.text(max_size=40), value=VALUES)
def test_any_entry_is_packed_and_read_equally(t: int, key: str, value: Any) -> None:
    data = codec.pack_entry(t, key, value)
    assert kernel.pack_entry(t, key, value) == data
    assert kernel.walk(data, 0, len(data)) == codec.walk(data, 0, len(data))
    assert kernel.entries(data, 0, len(data), 1) == codec.entries(data, 0, len(data), 1)
    found = kernel.columns(data, 0, len(data), 1)
    assert columns_of(found) == columns_of(codec.columns(data, 0, len(data), 1))
    assert found.values is not None
    assert json.loads(bytes(found.values)) == value


@pytest.mark.parametrize("text", [*ENTRIES, *FIELDS_IN_ANY_ORDER])
def test_every_form_of_an_entry_has_the_same_columns(text: str) -> None:
    data = hexed(text)
    assert columns_of(kernel.columns(data, 0, len(data), 1)) == columns_of(codec.columns(data, 0, len(data), 1))
    assert kernel.entries(data, 0, len(data), 1) == codec.entries(data, 0, len(data), 1)


@pytest.mark.parametrize(
    "text",
    [
        "9a 8161 01 8161 02 9b",  # a key twice
        "99 9a 8161 01 9b 9a 8161 02 9b 9b",  # the same key in two objects
        "6a c07f",  # NaN
        "6b 0000807f",  # an infinity
        "6a 00ff",
        "68 07 61 0562",  # chunks
        "82 0122",  # characters that JSON escapes
        "99" * 40 + "9b" * 40,  # deeper than the fast path supports
        "".join(f"99{number:02x}9b" for number in range(3)).join(("99", "9b")),
        "77 ffffffffffffffff",
        "7f 0000000000000080",
        "9c",
    ],
)
def test_every_value_is_the_same_json(text: str) -> None:
    data = hexed("9a 817405 816b8161 816f") + hexed(text) + b"\x9b"
    one, other = (twin.columns(data, 0, len(data), 1, codec.VALUES) for twin in (codec, kernel))
    assert one.values == other.values
    json.loads(bytes(one.values or b""))


def test_object_of_many_keys_is_the_same_json() -> None:
    for count in (10, 100, 1000):
        value = {f"key {number}": number for number in range(count)}
        data = codec.pack_entry(1, "a", value)
        found = kernel.columns(data, 0, len(data), 1, codec.VALUES)
        assert json.loads(bytes(found.values or b"")) == value


def test_invalid_entry_raises_the_same_error() -> None:
    for arguments in ((-1, "a", 1), (2**64, "a", 1), (1, "\ud800", 1), (1, "a", {1: 2}), (True, "a", 1), (1, b"", 1)):
        errors = []
        for twin in (codec, kernel):
            with pytest.raises(WrongUse) as caught:
                twin.pack_entry(*arguments)
            errors.append(str(caught.value))
        assert errors[0] == errors[1]


def test_range_that_was_not_walked_is_refused() -> None:
    data = codec.pack_entry(1, "a", 1) * 3
    for twin in (codec, kernel):
        with pytest.raises(Malformed, match="the range was not walked"):
            twin.spans(data, 0, len(data), 4)
        with pytest.raises(Malformed, match="the range was not walked"):
            twin.entries(data, 1, len(data), 1)
        with pytest.raises(WrongUse, match="not within a buffer"):
            twin.walk(data, 0, len(data) + 1)
        with pytest.raises(Malformed):
            twin.columns(data, 0, 5, 2**40)


def latest_of(make: Any, data: bytes, count: int, at: int | None) -> list[Any]:
    """The state of entries, added in two parts, and walked over."""
    found: list[Any] = []
    middle = codec.spans(data, 0, len(data), count)[count // 2]
    added, walked = make(at), make(at)
    added.add(data, 0, middle, count // 2)
    added.add(data, middle, len(data), count - count // 2)
    found.append(walked.walk(data, 0, len(data)))
    for latest in (added, walked):
        values: dict[str, Any] = {}
        times: dict[str, int] = {}
        latest.fill(values, times)
        state = latest.state()
        assert [(key, (values[key], times[key])) for key in values] == list(state.items())
        found += [list(state.items()), len(latest), columns_of(latest.columns(codec.ALL_COLUMNS))]
    return found


@pytest.mark.parametrize("keys", [5, 40, 3000])
def test_replay_of_entries_is_the_same(keys: int) -> None:
    chance = random.Random(keys)
    count = 12 if keys == 5 else 3 * keys
    for _ in range(200 if keys == 5 else 4):
        values: list[Any] = [chance.choice((None, 1, "x" * chance.randrange(40), [{}])) for _ in range(count)]
        data = b"".join(
            codec.pack_entry(chance.randrange(9), f"k{chance.randrange(keys)}" * chance.choice((1, 9)), value)
            for value in values
        )
        at = chance.choice((None, 0, 3, 8))
        assert latest_of(codec.Latest, data, count, at) == latest_of(kernel.Latest, data, count, at)


def test_walk_that_ends_early_has_applied_the_entries_it_read() -> None:
    whole = [codec.pack_entry(number, f"k{number}", number) for number in range(100)]
    chunked = hexed("9a 817405 816b 68 07 61 0562 816f01 9b")  # a key in two chunks
    for tail, ending in ((b"", codec.CLEAN), (whole[0][:-1], codec.INCOMPLETE), (b"\x01" * 40, codec.MALFORMED)):
        data = b"".join((*whole[:40], chunked, *whole[40:], tail))
        found = []
        for make in (codec.Latest, kernel.Latest):
            latest = make()
            found.append((latest.walk(data, 0, len(data)), latest.state()))
        assert found[0] == found[1]
        assert found[0][0] == (len(data) - len(tail), 101, ending, 0, 99)
        assert found[0][1]["ab"] == (1, 5)


def test_repeatedly_added_and_removed_key_takes_no_more_memory() -> None:
    latest = kernel.Latest()
    for number in range(300):
        names = [f"{number} {which}" for which in range(100)]
        data = b"".join(
            [kernel.pack_entry(1, name, "x" * 1000) for name in names]
            + [kernel.pack_entry(1, name, None) for name in names]
        )
        assert latest.walk(data, 0, len(data))[1] == 200
        if number == 20:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert len(latest) == 0
    assert latest.state() == {}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024  # of 28 MB allocated in total


def test_very_many_keys_are_distinguished() -> None:
    latest = kernel.Latest()
    data = b"".join(kernel.pack_entry(number, f"key {number}", number) for number in range(20_000))
    latest.add(data, 0, len(data), 20_000)
    latest.add(data, 0, len(data), 20_000)
    assert latest.state() == {f"key {number}": (number, number) for number in range(20_000)}
    with pytest.raises(LogwrightError):
        kernel.Latest(-1)


# --- values as JSON ---------------------------------------------------------------------------------------------------


def json_of(twin: Any, value: Any) -> str:
    data = codec.pack_entry(1, "a", value) + codec.pack_entry(0, "", None)
    return bytes(twin.columns(data, 0, len(data), 2, codec.VALUES).values).decode()


@settings(derandomize=True, deadline=None, database=None, max_examples=300)
@given(number=strategies.floats(allow_nan=False, allow_infinity=False))
def test_any_float_is_the_same_json(number: float) -> None:
    assert json_of(kernel, number) == json_of(codec, number)


def test_floats_of_few_digits_are_the_same_json() -> None:
    chance = random.Random(3)
    near = [sign * base * 10**power for sign in (1, -1) for base in (1, 2.5, 9.999, 0.1) for power in range(-8, 18)]
    short = [round(chance.uniform(-1, 1) * 10 ** chance.randrange(12), chance.randrange(9)) for _ in range(3000)]
    values = near + short + [math.nextafter(number, chance.choice((-1e300, 1e300))) for number in short]
    assert json_of(kernel, values) == json_of(codec, values)


@pytest.mark.parametrize("size", range(1, 40))
def test_json_escapes_are_applied_at_any_position(size: int) -> None:
    for character in ('"', "\\", "\n", "\x01", "\x1f", " ", "\x7f", "é", "\u2028"):
        values = {"k" * 20: [("x" * at + character + "x" * size)[:size] for at in range(size)]}
        assert json_of(kernel, values) == json_of(codec, values)


# --- hostile bytes ----------------------------------------------------------------------------------------------------


def hostile_documents(chance: random.Random, count: int) -> Any:
    """Entries with a few changed bytes, most of them valid codes."""
    codes = [
        0x68,
        0x69,
        0x6A,
        0x6C,
        0x6D,
        0x70,
        0x77,
        0x7F,
        0x80,
        0x81,
        0x8F,
        0x90,
        0x99,
        0x9A,
        0x9B,
        0x9C,
        0xFF,
        0xC3,
        0,
    ]
    for _ in range(count):
        value = {
            "id": chance.randrange(1 << chance.randrange(1, 64)),
            "é": ["x" * chance.randrange(30), [], {}, 2.5, None],
        }
        data = bytearray(codec.pack_entry(chance.randrange(1 << 60), "key" * chance.randrange(8), value))
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.choice(codes)
        yield bytes(data)


def test_changed_entries_get_the_same_results_at_any_position() -> None:
    entry = codec.pack_entry(1, "a", 1)
    for data in hostile_documents(random.Random(5), 4000):
        for padded in (data, data + entry * 3, entry + data + b"\x9b" * 20):
            found = kernel.walk(padded, 0, len(padded))
            assert found == codec.walk(padded, 0, len(padded))
            assert kernel.entries(padded, 0, found[0], found[1]) == codec.entries(padded, 0, found[0], found[1])


def read_to_the_end(memory: mmap.mmap, place: int) -> None:
    page = mmap.PAGESIZE
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(place + page), ctypes.c_size_t(page), 0) == 0
    chance = random.Random(6)
    with memoryview(memory)[:page] as view:
        for data in hostile_documents(chance, 3000):
            for cut in (0, 1, chance.randrange(len(data))):
                start = page - len(data) + cut
                view[start:page] = data[: len(data) - cut]
                count = kernel.walk(view, start, page)[1]
                if not cut:
                    kernel.columns(view, start, page, count)
                kernel.Latest().walk(view, start, page)
        for size in range(200):  # entries of one shape, which is compared with more bytes than they have
            data = codec.pack_entry(1 << 60, "key", ["x" * size, 7]) * 3
            view[page - len(data) : page] = data
            assert kernel.walk(view, page - len(data), page)[1] == 3
            latest = kernel.Latest()
            latest.walk(view, page - len(data), page)
            assert latest.state() == {"key": (["x" * size, 7], 1 << 60)}


def test_no_byte_is_read_past_the_end() -> None:
    """Entries end right before a page that may not be read: a child that reads it is killed."""
    memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    child = os.fork()
    if child == 0:
        try:
            read_to_the_end(memory, place)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
