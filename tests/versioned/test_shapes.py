"""Entries that resemble the preceding ones are decoded by their shape, with the same results as the codec."""

from __future__ import annotations

import random
import resource
from typing import Any

import pytest

from logwright.core.bytes.compiled import COMPILED
from logwright.versioned.bytes import codec, kernel

pytestmark = pytest.mark.skipif(not COMPILED, reason="the kernel is not built: there is nothing to compare")

TIME = 1_700_000_000_000_000_000
SHAPES: dict[str, tuple[int, str, Any]] = {
    "an object": (TIME, "key-000000001", {"id": 4711, "bar": 2.5, "on": True, "tags": ["hall 3", "new", ""]}),
    "a long text": (TIME, "a key of many more letters", {"a name of many more letters": "x" * 90, "n": -3}),
    "numbers": (TIME, "k", [0, 100, 101, -100, -101, 70_000, -70_000, 2**40, 0.1, 1.5, 2**64 - 1, -(2**63), None]),
    "a large time": (2**64 - 1, "k", 0.3),
    "a small time": (200, "a", "twelve bytes"),
    "a removal": (TIME, "some key", None),
    "nested": (TIME, "", [[[[{"a": {"b": [{}, []]}}]]]]),
    "just short enough": (TIME, "k", ["x" * 200, 7, "y" * 29]),
    "too long": (TIME, "k", ["x" * 200, 7, "y" * 60]),
}


def answers(twin: Any, data: bytes) -> list[Any]:
    """The results of a twin for some bytes: the walk, the state, and the complete entries."""
    walked = twin.walk(data, 0, len(data))
    latest = twin.Latest(TIME)
    folded = latest.walk(data, 0, len(data))
    found = twin.columns(data, 0, walked[0], walked[1])
    columns = [found.timestamps, found.key_ends, found.keys, found.values, found.raw_values, found.deleted, found.sizes]
    return [walked, folded, latest.state(), list(twin.spans(data, 0, walked[0], walked[1])), columns]


def test_entries_of_these_tests_have_their_nominal_length() -> None:
    sizes = {name: len(codec.pack_entry(*fields)) for name, fields in SHAPES.items()}
    assert sizes["just short enough"] == 256
    assert sizes["too long"] > 256


@pytest.mark.parametrize("name", SHAPES)
def test_entry_that_differs_in_one_bit_is_checked_completely(name: str) -> None:
    entry = codec.pack_entry(*SHAPES[name])
    following = codec.pack_entry(TIME, "behind", [1, "two"])
    chance = random.Random(name)
    for at in range(len(entry)):
        for bit in chance.sample(range(8), 3):
            other = bytearray(entry)
            other[at] ^= 1 << bit
            data = b"".join((entry, entry, other, following, entry, following))
            assert answers(kernel, data) == answers(codec, data), (at, bit)


@pytest.mark.parametrize("name", SHAPES)
def test_truncated_entry_of_the_same_shape_is_not_accepted(name: str) -> None:
    entry = codec.pack_entry(*SHAPES[name])
    for size in range(len(entry)):
        data = entry * 2 + entry[:size]
        assert kernel.walk(data, 0, len(data)) == codec.walk(data, 0, len(data))
        data += b"\x9b" * 300
        assert kernel.walk(data, 0, len(data)) == codec.walk(data, 0, len(data))


@pytest.mark.parametrize("kinds", [1, 2, 5, 60])
def test_alternating_shapes_change_no_result(kinds: int) -> None:
    chance = random.Random(kinds)
    texts = ("", "plain", "löwe", "\u20ac" * 5, 'say "x"\n', "y" * 40, "ü" * 30)

    def value(kind: int) -> Any:
        which = random.Random(kind)
        text = which.choice(texts) if which.random() < 0.5 else chance.choice(texts)
        return {
            "n": chance.randrange(2 ** (8 * which.randrange(1, 8))),
            "text": text,
            "x": [chance.random()] * (kind % 4),
        }

    for _ in range(3):
        runs = [(chance.randrange(kinds), chance.choice((1, 2, 40, 300))) for _ in range(12)]
        data = b"".join(
            codec.pack_entry(TIME - chance.randrange(2), f"key {chance.randrange(50)}", value(kind))
            for kind, count in runs
            for _ in range(count)
        )
        assert answers(kernel, data) == answers(codec, data)


# --- the state after it -----------------------------------------------------------------------------------------------


def test_keys_of_every_length_are_distinguished() -> None:
    names = [letter * size + tail for size in range(70) for letter in "ab" for tail in ("", "x", "y", "\0")]
    data = b"".join(codec.pack_entry(number, name, number) for number, name in enumerate(names))
    latest = kernel.Latest()
    latest.walk(data, 0, len(data))
    assert latest.state() == {name: (number, number) for number, name in enumerate(names)}


def test_memory_follows_values_that_grow_and_shrink() -> None:
    chance = random.Random(5)
    latest = kernel.Latest()
    model: dict[str, tuple[Any, int]] = {}
    before = 0
    for turn in range(400):
        entries = []
        for _ in range(40):
            name = f"key {chance.randrange(20)}" * chance.choice((1, 1, 10))
            value = chance.choice((None, "x" * chance.randrange(20_000), [turn] * chance.randrange(200)))
            entries.append(codec.pack_entry(turn, name, value))
            model.pop(name, None) if value is None else model.update({name: (value, turn)})
        data = b"".join(entries)
        latest.add(data, 0, len(data), len(entries))
        if turn == 40:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if turn % 80 == 0:
            assert latest.state() == model
            assert list(latest.state()) == list(model)
    assert latest.state() == model
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024  # of 50 MB allocated in total
