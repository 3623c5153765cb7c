"""CRC32C, compiled and in plain Python, and the flipped bit that a checksum reveals."""

from __future__ import annotations

import array
import importlib
import os
import random
import subprocess
import sys
from typing import Any, Protocol

import pytest

from logwright.core.bytes.buffers import Buffer
from logwright.core.bytes.crc32c import crc32c, crc32c_in_python, find_flipped_bit
from tests.support.damage import noise

kernel: Any
try:
    kernel = importlib.import_module("logwright.core.bytes._crc32c")
except ImportError:
    kernel = None

needs_kernel = pytest.mark.skipif(kernel is None, reason="the kernel was not built: there is no C compiler")
IMPLEMENTATIONS = [
    pytest.param("python", id="python"),
    pytest.param("kernel", id="kernel", marks=needs_kernel),
    pytest.param("tables", id="tables", marks=needs_kernel),
]


class Crc32c(Protocol):
    def __call__(self, data: Buffer, value: int = 0) -> int: ...


def implementation(name: str) -> Crc32c:
    if name == "python":
        return crc32c_in_python
    found: Crc32c = kernel.crc32c if name == "kernel" else kernel.crc32c_tables
    return found


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"\x00" * 32, 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
    ],
    ids=["empty", "zeros", "ones", "rising", "falling", "digits"],
)
def test_vectors_of_rfc_3720_match(name: str, data: bytes, expected: int) -> None:
    assert implementation(name)(data) == expected


@needs_kernel
@pytest.mark.parametrize("name", ["kernel", "tables"])
def test_kernel_agrees_with_python_on_all_lengths_and_alignments(name: str) -> None:
    function = implementation(name)
    source = memoryview(noise(5000))
    lengths = [*range(70), 511, 512, 513, 1535, 1536, 1537, 1543, 3071, 3072, 3079, 4608, 4700]
    for alignment in range(9):
        for length in lengths:
            part = source[alignment : alignment + length]
            assert function(part, alignment * 0x1234567) == crc32c_in_python(part, alignment * 0x1234567)


@needs_kernel
@pytest.mark.parametrize("name", ["kernel", "tables"])
def test_kernel_agrees_with_python_on_data_large_enough_to_release_the_gil(name: str) -> None:
    data = noise(131072 + 5)
    assert implementation(name)(data, 77) == crc32c_in_python(data, 77)


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_checksum_continues_from_the_previous_one(name: str) -> None:
    function = implementation(name)
    data = noise(4000)
    whole = function(data)
    for cut in (0, 1, 7, 8, 9, 1535, 1536, 3999, 4000):
        assert function(data[cut:], function(data[:cut])) == whole


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_any_bytes_like_object_is_accepted(name: str) -> None:
    function = implementation(name)
    numbers = array.array("I", [1, 2, 3])
    assert function(bytearray(b"123456789")) == 0xE3069283
    assert function(memoryview(b"x123456789")[1:]) == 0xE3069283
    assert function(memoryview(numbers)) == function(numbers.tobytes())
    assert function(memoryview(array.array("Q"))) == 0


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_only_the_lower_32_bits_of_the_initial_value_count(name: str) -> None:
    function = implementation(name)
    assert function(b"abc", (7 << 32) + 5) == function(b"abc", 5)
    assert function(b"abc", -1) == function(b"abc", 0xFFFFFFFF)


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_non_contiguous_buffers_are_refused(name: str) -> None:
    function = implementation(name)
    with pytest.raises(TypeError):
        function("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        function(12)  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        function(memoryview(b"abcdef")[::2])


@pytest.mark.parametrize(("pure", "expected"), [("1", "True"), ("", f"{kernel is None}")])
def test_environment_variable_selects_python(pure: str, expected: str) -> None:
    script = "from logwright.core.bytes import crc32c as c; print(c.crc32c is c.crc32c_in_python)"
    environment = {**os.environ, "LOGWRIGHT_PURE": pure}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_single_flipped_bit_is_found() -> None:
    data = noise(64, seed=5)
    right = crc32c(data)
    for bit in range(8 * len(data)):
        wrong = bytearray(data)
        wrong[bit // 8] ^= 1 << (bit % 8)
        assert find_flipped_bit(len(data), crc32c(wrong) ^ right) == (bit // 8, 1 << (bit % 8))


def test_single_flipped_bit_is_found_in_a_whole_block_and_two_are_not() -> None:
    data = noise(64 * 1024, seed=6)
    right, chance = crc32c(data), random.Random(7)
    for _ in range(5):
        first, second = chance.sample(range(8 * len(data)), 2)
        wrong = bytearray(data)
        wrong[first // 8] ^= 1 << (first % 8)
        assert find_flipped_bit(len(data), crc32c(wrong) ^ right) == (first // 8, 1 << (first % 8))
        wrong[second // 8] ^= 1 << (second % 8)
        assert find_flipped_bit(len(data), crc32c(wrong) ^ right) is None


def test_bytes_that_match_their_checksum_have_no_flipped_bit() -> None:
    assert find_flipped_bit(100, 0) is None
    assert find_flipped_bit(0, 1) is None
