"""The compiled kernel compared with the codec: the same results for the same calls on 50,000 damaged documents."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logwright.core.bytes.compiled import COMPILED
from logwright.versioned.bytes.bonjson import codec, kernel
from logwright.versioned.bytes.bonjson.layout import DEFAULT_LIMITS, Limits
from tests.support.counts import COUNTS
from tests.support.damage import fuzzed
from tests.support.replay import each
from tests.versioned.bonjson.samples import answer_of, golden_documents

ROOT = Path(__file__).resolve().parents[3]
INPUTS = 50_000
PARTS = 4

compiled = pytest.importorskip("logwright.versioned.bytes.bonjson._kernel", reason="the kernel is not built")

SEEDS = [
    codec.encode({"t": 1_699_564_801_000_000_000, "k": "sensor/12", "o": {"value": 21.53, "ok": True, "at": None}}),
    codec.encode([[], {}, [1, [2, [3, {"deep": [-1, 1e300, 2.0**-130, "größer als 15 Bytes"]}]]], 2**64 - 1]),
    codec.encode({"a": 1, "b": {"a": 2, "b": 3}, "ab": ["a", "b", "日本語", "x" * 70], "a key of many bytes": 300}),
    bytes.fromhex("99 68 07 61 13 20 73 74 72 0d 69 6e 67 68 00 02 00 00 00 00 00 00 00 61 6a c0 7f 7f 05 00 00 00")
    + bytes.fromhex("00 00 00 00 9a 81 61 01 81 61 02 9b 9b"),
]
CODES = bytes.fromhex("68 69 6a 6b 6c 70 77 78 7f 80 81 8f 90 99 9a 9b 00 61 c3 bc")
LIMITS = (
    DEFAULT_LIMITS,
    Limits(depth=3),
    Limits(document_bytes=40),
    Limits(string_bytes=9),
    Limits(container_items=3),
    Limits(depth=0, document_bytes=0),
)


def test_kernel_is_used_where_it_is_built() -> None:
    pure = bool(os.environ.get("LOGWRIGHT_PURE"))
    assert COMPILED is not pure
    for name in ("decode", "decode_prefix", "encode", "size_of"):
        assert getattr(kernel, name) is getattr(codec if pure else compiled, name)


def test_environment_selects_the_implementation() -> None:
    code = (
        "from logwright.versioned import bonjson; "
        "from logwright.versioned.bytes.bonjson import codec; "
        "assert bonjson.decode is codec.decode and bonjson.encode is codec.encode"
    )
    subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "LOGWRIGHT_PURE": "1"}, check=True, timeout=60
    )


def assert_same(data: bytes, chance: random.Random) -> None:
    """Both return the same for every call on some bytes, and write what they read in the same way."""
    limits = chance.choice(LIMITS)
    allow_nan, last_key_wins = chance.random() < 0.5, chance.random() < 0.5
    start = chance.choice((0, 0, 0, chance.randrange(len(data) + 1)))
    end = chance.choice((None, None, chance.randrange(start, len(data) + 1)))
    options: dict[str, Any] = {"limits": limits, "allow_nan": allow_nan}
    for name, arguments, more in (
        ("decode", (), {"last_key_wins": last_key_wins}),
        ("decode_prefix", (start, end), {"last_key_wins": last_key_wins}),
        ("size_of", (start, end), {}),
    ):
        answers = [answer_of(getattr(twin, name), data, *arguments, **options, **more) for twin in (codec, compiled)]
        assert answers[0] == answers[1], f"{name} of {data.hex()} {arguments} {options} {more}"


def sequences(number: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Consecutive type codes, which are decoded further than noise."""
    chance = random.Random(seed)
    for case in range(number):
        yield f"codes {seed}/{case}", bytes(chance.choices(CODES, k=chance.randrange(40)))


def mutations(number: int, seed: int) -> Iterator[bytes]:
    for which, document in enumerate(SEEDS):
        for damaged in fuzzed(document, number // len(SEEDS), seed=100 * seed + which):
            yield damaged.data


@pytest.mark.parametrize("part", range(PARTS))
def test_fuzzed_documents_get_the_same_results(part: int) -> None:
    chance = random.Random(part)
    count = 0
    for data in mutations(INPUTS * 8 // 10 // PARTS, part):
        assert_same(data, chance)
        count += 1
    for data in each(sequences(INPUTS // PARTS - count, part)):
        assert_same(data, chance)
        count += 1
    assert count == INPUTS // PARTS
    COUNTS.add("fuzzed inputs", count, "bonjson")


def test_documents_of_the_originals_with_every_bit_flipped_get_the_same_results() -> None:
    chance = random.Random(7)
    count = 0
    for document in golden_documents():
        for bit in range(8 * min(len(document), 12)):
            changed = bytearray(document)
            changed[bit // 8] ^= 1 << bit % 8
            assert_same(bytes(changed), chance)
            count += 1
    COUNTS.add("bit flips", count, "bonjson")


def test_sequences_of_two_bytes_get_the_same_results() -> None:
    for number in range(1 << 16):
        data = number.to_bytes(2, "little")
        assert answer_of(codec.decode_prefix, data) == answer_of(compiled.decode_prefix, data)
        assert answer_of(codec.size_of, data) == answer_of(compiled.size_of, data)


def odd_values(chance: random.Random, depth: int = 0) -> Any:
    """Values of all kinds; some cannot be written."""
    kinds = 15 if depth < 4 else 11
    match chance.randrange(kinds):
        case 0:
            return chance.choice((None, True, False, "", [], {}, ()))
        case 1:
            return chance.randrange(-300, 300)
        case 2:
            return chance.randrange(-(2**64), 2**65) >> chance.randrange(64)
        case 3:
            return chance.uniform(-1e9, 1e9)
        case 4:
            return float(chance.randrange(-(2**30), 2**30)) / 2 ** chance.randrange(40)
        case 5:
            return chance.choice(("ascii", "größe", "日本語", "\U0001f600", "\0", "\ud800"))
        case 6:
            return "x" * chance.choice((1, 15, 16, 63, 64, 200))
        case 7:
            return "ü" * chance.choice((1, 7, 8, 31, 32, 100))
        case 8:
            return chance.choice((1.5, float("inf"), 2**64, -(2**63) - 1, b"bytes", {1, 2}, 1j, object))
        case 9 | 10:
            return chance.randrange(100)
        case 11 | 12:
            kind = chance.choice((list, tuple))
            return kind(odd_values(chance, depth + 1) for _ in range(chance.randrange(5)))
        case _:
            pairs = [
                (chance.choice(("a", "b", "ü", "a longer key of it", 5)), odd_values(chance, depth + 1))
                for _ in range(chance.randrange(5))
            ]
            return chance.choice((dict, OrderedDict, lambda items: defaultdict(list, items)))(pairs)


def test_odd_values_are_written_or_refused_the_same() -> None:
    chance = random.Random(8)
    written = 0
    for _ in range(5000):
        value = odd_values(chance)
        limits = chance.choice(LIMITS)
        answers = [answer_of(twin.encode, value, limits=limits) for twin in (codec, compiled)]
        assert answers[0] == answers[1]
        written += isinstance(answers[0], str)
    assert 1500 < written < 4500


def test_any_number_of_keys_is_distinguished() -> None:
    keys = [f"{prefix}{number}" for number in range(4000) for prefix in ("", "key", "k\0", "ключ", "twelve bytes")]
    value = {key: number for number, key in enumerate(keys)}
    assert len(value) == len(keys)
    data = codec.encode(value)
    for _ in range(2):
        assert compiled.decode(data) == value
    for key in keys:
        assert compiled.decode(codec.encode({key: 1})) == {key: 1}


def test_containers_changed_during_a_write_do_no_harm() -> None:
    class Meddling(list[int]):
        def __iter__(self) -> Iterator[int]:
            outer.clear()
            return iter((7,))

    outer: list[Any] = [1, Meddling(), 2, 3]
    assert compiled.encode(outer) == bytes.fromhex("99 01 99 07 9b 9b")
