"""Functions that damage bytes, one for each kind of accident.

The functions take bytes and return other bytes, so a test reads like the accident that it describes:

    journal_of(cut(data, 100))                       the file ends after byte 100
    journal_of(zeros_after(data, 100))               its length survived, the bytes from 100 on did not
    journal_of(flip_bit(data, 803))                  one bit is flipped

The generators return every accident of a kind, each as a `Damaged` with a label; they do not count faults. Noise is the
same in every run: it depends only on its seed.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.replay import each

# --- one accident ---------------------------------------------------------------------------------------------------


def cut(data: bytes, size: int) -> bytes:
    """Keep only the first `size` bytes."""
    return data[:size]


def shrink(data: bytes, by: int) -> bytes:
    """Remove the last `by` bytes."""
    return data[: max(0, len(data) - by)]


def zeros_after(data: bytes, position: int) -> bytes:
    """Replace the bytes from `position` on by zeros."""
    return data[:position] + bytes(len(data) - position)


def noise_after(data: bytes, position: int, seed: int = 0) -> bytes:
    """Replace the bytes from `position` on by noise."""
    return data[:position] + noise(len(data), seed)[position:]


def flip_bit(data: bytes, bit: int) -> bytes:
    """Flip one bit; bit 0 is the lowest of the first byte."""
    return flip_bits(data, bit // 8, 1 << (bit % 8))


def flip_bits(data: bytes, position: int, mask: int) -> bytes:
    """Flip the bits of a mask in one byte."""
    return overwrite(data, position, bytes([data[position] ^ mask]))


def increment_byte(data: bytes, position: int, by: int = 1) -> bytes:
    """Add a number to one byte, wrapping around."""
    return overwrite(data, position, bytes([(data[position] + by) % 256]))


def overwrite(data: bytes, position: int, other: bytes) -> bytes:
    """Replace the bytes at a position by others, all of which must fit."""
    if position < 0 or position + len(other) > len(data):
        raise ValueError(f"{len(other)} bytes at {position} do not fit into {len(data)}")
    return data[:position] + other + data[position + len(other) :]


def insert(data: bytes, position: int, other: bytes) -> bytes:
    """Insert bytes at a position."""
    return data[:position] + other + data[position:]


def drop(data: bytes, start: int, end: int) -> bytes:
    """Remove the bytes of a range."""
    return data[:start] + data[end:]


def repeat(data: bytes, start: int, end: int) -> bytes:
    """Duplicate the bytes of a range."""
    return data[:end] + data[start:]


def swap(data: bytes, start: int, middle: int, end: int) -> bytes:
    """Swap two neighbouring ranges."""
    return data[:start] + data[middle:end] + data[start:middle] + data[end:]


@functools.lru_cache(maxsize=256)
def noise(size: int, seed: int = 0) -> bytes:
    """Random bytes, the same for the same seed."""
    return random.Random(seed).randbytes(size)


def damage_file(path: Path, damage: Callable[..., bytes], *arguments: int | bytes) -> None:
    """Damage the bytes of a file: `damage_file(path, cut, 100)`."""
    path.write_bytes(damage(path.read_bytes(), *arguments))


# --- every accident of a kind ---------------------------------------------------------------------------------------


class Damaged(NamedTuple):
    """Bytes after an accident: its label, and the first byte that may differ from the original."""

    label: str
    position: int
    data: bytes


def torn_tails(data: bytes, start: int = 0, seed: int = 0) -> Iterator[Damaged]:
    """A last write, of the bytes from `start` on, that was torn at each byte: cut there, or followed by zeros or noise.

    This includes the write that did not happen at all (cut at `start`), but not the complete one.
    """
    return _each(_torn_tails(data, start, seed))


def _torn_tails(data: bytes, start: int, seed: int) -> Iterator[Damaged]:
    for position in range(start, len(data)):
        yield Damaged(f"cut at {position}", position, cut(data, position))
        for name, torn in (("zeros", zeros_after(data, position)), ("noise", noise_after(data, position, seed))):
            if torn != data:  # a tail of zeros is not torn by zeros
                yield Damaged(f"{name} from {position}", position, torn)


def garbage_after(data: bytes, sizes: Iterable[int], seed: int = 0) -> Iterator[Damaged]:
    """Intact bytes, followed by zeros or noise that no write put there."""
    return _each(
        Damaged(f"{size} {name} after", len(data), data + garbage)
        for size in sizes
        for name, garbage in (("zeros", bytes(size)), ("noise", noise(size, seed)))
    )


def bit_flips(data: bytes, start: int = 0, end: int | None = None) -> Iterator[Damaged]:
    """Each bit of a range, flipped alone."""
    stop = len(data) if end is None else end
    return _each(Damaged(f"bit {bit}", bit // 8, flip_bit(data, bit)) for bit in range(8 * start, 8 * stop))


def byte_increments(data: bytes, start: int = 0, end: int | None = None, by: int = 1) -> Iterator[Damaged]:
    """Add a number to each byte of a range, one at a time."""
    stop = len(data) if end is None else end
    return _each(
        Damaged(f"byte {position} + {by}", position, increment_byte(data, position, by))
        for position in range(start, stop)
    )


def hostile_integers(size_bytes: int) -> list[bytes]:
    """Values of a length field that break careless code, in both byte orders.

    They are zero, one, the largest and the smallest signed value and their neighbours, minus one, and a plausible
    number of gigabytes.
    """
    bits = 8 * size_bytes
    half = 1 << (bits - 1)
    values = {0, 1, half - 2, half - 1, half, half + 1, 2 * half - 2, 2 * half - 1, half >> 1, half >> 2, half // 3}
    patterns = {value.to_bytes(size_bytes, order) for value in values for order in ("big", "little")}
    return sorted(patterns)


def hostile_fields(data: bytes, fields: Iterable[tuple[int, int]]) -> Iterator[Damaged]:
    """Each field, given as position and size, with each hostile value in turn."""
    return _each(
        Damaged(f"field at {position} = {pattern.hex()}", position, overwrite(data, position, pattern))
        for position, size in fields
        for pattern in hostile_integers(size)
        if pattern != data[position : position + size]
    )


def fuzzed(data: bytes, number: int, seed: int = 0) -> Iterator[Damaged]:
    """`number` random combinations of accidents, the same for the same seed. `data` must not be empty."""
    return _each(_fuzzed(data, number, seed))


def _fuzzed(data: bytes, number: int, seed: int) -> Iterator[Damaged]:
    for case in range(number):
        chance = random.Random(f"{seed}/{case}")
        changed, first = data, len(data)
        for _ in range(chance.choice((1, 1, 1, 2, 3, 5))):
            changed, position = _one_random_accident(changed, chance)
            first = min(first, position)
        yield Damaged(f"fuzz {seed}/{case}", first, changed)


def _one_random_accident(data: bytes, chance: random.Random) -> tuple[bytes, int]:
    if not data:
        return chance.randbytes(chance.randrange(1, 64)), 0
    start, end = sorted((chance.randrange(len(data)), chance.randrange(len(data) + 1)))
    end = min(end, start + 64)
    match chance.randrange(8):
        case 0:
            return flip_bit(data, 8 * start + chance.randrange(8)), start
        case 1:
            return increment_byte(data, start, chance.randrange(1, 256)), start
        case 2:
            return cut(data, start), start
        case 3:
            return drop(data, start, end), start
        case 4:
            return repeat(data, start, end), end
        case 5:
            return insert(data, start, chance.randbytes(chance.randrange(1, 32))), start
        case 6:
            return overwrite(data, start, bytes(end - start)), start
        case _:
            return overwrite(data, start, chance.randbytes(end - start)), start


def _each(cases: Iterable[Damaged]) -> Iterator[Damaged]:
    return each((case.label, case) for case in cases)


# --- what an operator does to a file, and where its bytes come from ---------------------------------------------------


class Traced(NamedTuple):
    """Bytes after an accident, and for each byte its original position; None for a foreign byte."""

    label: str
    data: bytes
    origins: list[int | None]


def accident(data: bytes, chance: random.Random, most: int = 4096) -> Traced:
    """One accident of limited size, as caused by an operator, a disk or a file system. `data` is not empty."""
    at = chance.randrange(len(data))
    size = min(chance.choice((1, 2, 3, 4, 7, 16, 16, 64, 512, most)), len(data) - at)
    before: list[int | None] = list(range(len(data)))
    kind = chance.choice(("truncate", "flip", "zero", "overwrite", "text", "insert", "delete", "append"))
    label = f"{kind} {size} at {at}"
    match kind:
        case "truncate":
            return Traced(f"truncate to {at}", data[:at], before[:at])
        case "flip":
            bit = 8 * at + chance.randrange(8)
            return Traced(f"flip bit {bit}", flip_bit(data, bit), [*before[:at], None, *before[at + 1 :]])
        case "insert" | "append":
            at = len(data) if kind == "append" else at
            noise = chance.choice((bytes(size), chance.randbytes(size), b"text " * size))
            return Traced(f"{kind} {len(noise)} at {at}", insert(data, at, noise), _inserted(before, at, len(noise)))
        case "delete":
            return Traced(label, drop(data, at, at + size), before[:at] + before[at + size :])
        case _:
            other = {"zero": bytes(size), "text": (b"some text, " * size)[:size]}.get(kind) or chance.randbytes(size)
            kept = [None if data[origin] != byte else origin for origin, byte in enumerate(other, at)]
            return Traced(label, overwrite(data, at, other), [*before[:at], *kept, *before[at + size :]])


def _inserted(origins: list[int | None], at: int, size: int) -> list[int | None]:
    return [*origins[:at], *[None] * size, *origins[at:]]


# --- what an operator does to the files of a journal ------------------------------------------------------------------


class Files(NamedTuple):
    """The files of a journal after an accident, by name."""

    label: str
    files: dict[str, bytes]


def files_accident(
    files: Mapping[str, bytes], boundaries: Callable[[str, bytes], Sequence[int]], chance: random.Random
) -> Files:
    """One accident to whole files or whole records. `files` are in the order in which they were written.

    `boundaries` returns the positions in a file at which records begin, and the end of the last one. Such accidents
    leave every remaining record intact, so only the relations between files can show them.
    """
    left = dict(files)
    names = list(files)
    name = chance.choice(names)
    ends = boundaries(name, files[name])
    kind = chance.choice(("remove", "empty", "half a copy", "swap", "cut", "delete"))
    match kind:
        case "remove":
            del left[name]
            return Files(f"remove {name}", left)
        case "empty":
            left[name] = b""
            return Files(f"empty {name}", left)
        case "half a copy":
            for later in names[names.index(name) + 1 :]:
                del left[later]
            at = chance.randrange(len(files[name]) + 1)
            left[name] = cut(files[name], at)
            return Files(f"copy up to byte {at} of {name}", left)
        case "swap" if len(names) > 1:
            other = chance.choice([one for one in names if one != name])
            left[name], left[other] = files[other], files[name]
            return Files(f"swap {name} and {other}", left)
        case "delete" if len(ends) > 1:
            first = chance.randrange(len(ends) - 1)
            last = min(first + chance.choice((1, 1, 2, 5)), len(ends) - 1)
            left[name] = drop(files[name], ends[first], ends[last])
            return Files(f"delete {ends[first]} to {ends[last]} of {name}", left)
        case _:
            at = chance.choice(ends) if ends else 0
            left[name] = cut(files[name], at)
            return Files(f"cut {name} at the boundary {at}", left)
