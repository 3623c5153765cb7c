"""CRC32C (Castagnoli) of bytes: compiled where that was built, in plain Python elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .buffers import Buffer, as_bytes
from .compiled import COMPILED

POLYNOMIAL: Final = 0x82F63B78
"""Reflected: the lowest bit is the highest power."""
_MASK: Final = 0xFFFFFFFF


def _make_table() -> tuple[int, ...]:
    table = []
    for state in range(256):
        for _ in range(8):
            state = (state >> 1) ^ (POLYNOMIAL if state & 1 else 0)
        table.append(state)
    return tuple(table)


_TABLE: Final = _make_table()


def crc32c_in_python(data: Buffer, value: int = 0) -> int:
    """The CRC32C of `data`, continued from `value`, the checksum of the preceding bytes. A thousand times slower."""
    table = _TABLE
    state = (value & _MASK) ^ _MASK
    for byte in as_bytes(data):
        state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state ^ _MASK


if TYPE_CHECKING or not COMPILED:
    crc32c = crc32c_in_python
else:
    from . import _crc32c

    crc32c = _crc32c.crc32c


def find_flipped_bit(size: int, difference: int) -> tuple[int, int] | None:
    """Which single bit of `size` bytes, flipped, changes their checksum by `difference`: its byte and its mask.

    None when no single bit does. Up to 2^31 bits no two bits have the same difference, and no two flips together look
    like one; of wholly different bytes one in 2^32 / (8 * size) does.
    """
    state = POLYNOMIAL
    for bit in range(8 * size - 1, -1, -1):
        if state == difference:
            return bit // 8, 1 << (bit % 8)
        state = (state >> 1) ^ (POLYNOMIAL if state & 1 else 0)
    return None
