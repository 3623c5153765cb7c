"""The kernel says what the codec says, to whatever it is asked; the contract tests do the same with damaged bytes."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from logwright.core.errors import LogwrightError, WrongUse
from logwright.core.outcome import Malformed
from logwright.formats.versioned import codec, kernel
from tests.formats.versioned.test_codec import ENTRIES, FIELDS_IN_ANY_ORDER, hexed

pytestmark = pytest.mark.skipif(not kernel.COMPILED, reason="the kernel is not built: there is nothing to compare")

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
def test_any_entry_is_packed_and_read_alike(t: int, key: str, value: Any) -> None:
    data = codec.pack_entry(t, key, value)
    assert kernel.pack_entry(t, key, value) == data
    assert kernel.walk(data, 0, len(data)) == codec.walk(data, 0, len(data))
    assert kernel.entries(data, 0, len(data), 1) == codec.entries(data, 0, len(data), 1)
    found = kernel.columns(data, 0, len(data), 1)
    assert columns_of(found) == columns_of(codec.columns(data, 0, len(data), 1))
    assert found.values is not None
    assert json.loads(bytes(found.values)) == value


@pytest.mark.parametrize("text", [*ENTRIES, *FIELDS_IN_ANY_ORDER])
def test_every_form_of_an_entry_gives_the_same_columns(text: str) -> None:
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
        "82 0122",  # what JSON escapes
        "99" * 40 + "9b" * 40,  # deeper than the fast way goes
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


def test_an_object_of_many_keys_is_the_same_json() -> None:
    for count in (10, 100, 1000):
        value = {f"key {number}": number for number in range(count)}
        data = codec.pack_entry(1, "a", value)
        found = kernel.columns(data, 0, len(data), 1, codec.VALUES)
        assert json.loads(bytes(found.values or b"")) == value


def test_what_cannot_be_packed_is_the_same_error() -> None:
    for arguments in ((-1, "a", 1), (2**64, "a", 1), (1, "\ud800", 1), (1, "a", {1: 2}), (True, "a", 1), (1, b"", 1)):
        errors = []
        for twin in (codec, kernel):
            with pytest.raises(WrongUse) as caught:
                twin.pack_entry(*arguments)  # type: ignore[arg-type]
            errors.append(str(caught.value))
        assert errors[0] == errors[1]


def test_a_range_that_was_not_walked_is_refused() -> None:
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


def test_what_entries_stand_for_is_the_same() -> None:
    chance = random.Random(1)
    for _ in range(200):
        data = b"".join(
            codec.pack_entry(chance.randrange(9), f"k{chance.randrange(5)}" * chance.choice((1, 9)), value)
            for value in (chance.choice((None, 1, "x" * chance.randrange(40), [{}])) for _ in range(12))
        )
        at = chance.choice((None, 0, 3, 8))
        found = []
        for make in (codec.Latest, kernel.Latest):
            latest = make(at)
            latest.add(data, 0, len(data), 12)
            found.append((list(latest.state().items()), len(latest), columns_of(latest.columns(codec.ALL_COLUMNS))))
        assert found[0] == found[1]


def test_very_many_keys_are_kept_apart() -> None:
    latest = kernel.Latest()
    data = b"".join(kernel.pack_entry(number, f"key {number}", number) for number in range(20_000))
    latest.add(data, 0, len(data), 20_000)
    latest.add(data, 0, len(data), 20_000)
    assert latest.state() == {f"key {number}": (number, number) for number in range(20_000)}
    with pytest.raises(LogwrightError):
        kernel.Latest(-1)
