"""Sizes and durations as people write them; `core/times.py` parses times."""

from __future__ import annotations

import re
from typing import Final

from ..core.times import UNITS
from ..errors import WrongUse

MILLISECONDS: Final = {"added": 1_000_000, "expires": 1_000_000}
"""Fields of records in milliseconds, and that unit in nanoseconds."""
_SIZES: Final[dict[str, int]] = {"": 1, "b": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for ending, base in (("", 1024), ("ib", 1024), ("b", 1000))
}
_SIZE: Final = re.compile(r"(\d+)\s*([a-z]*)", re.ASCII | re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes of a size such as `4096`, `64k`, `10 MiB`, `2GB`: k, M, G, T and KiB… count by 1024, KB… by 1000."""
    match = _SIZE.fullmatch(text.strip())
    scale = _SIZES.get(match[2].lower()) if match is not None else None
    if match is None or scale is None:
        raise WrongUse(f"{text!r} is not a size: give bytes, or a number with a unit, such as 64k, 10MiB, 2GB")
    return int(match[1]) * scale


def format_duration(nanoseconds: int) -> str:
    """A duration in its two largest units: `3h 12m`, `850ms`."""
    if nanoseconds < 0:
        return f"-{format_duration(-nanoseconds)}"
    parts = []
    rest = nanoseconds
    for name in ("d", "h", "m", "s", "ms", "us", "ns"):
        count, rest = divmod(rest, UNITS[name])
        if count:
            parts.append(f"{count}{name}")
        if len(parts) == 2 or (parts and not count):
            break
    return " ".join(parts) or "0s"


def format_size(size: int) -> str:
    """A number of bytes with three significant digits: `512 B`, `1.50 KiB`, `23.4 MiB`."""
    if size < 1024:
        return f"{size} B"
    amount = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        amount /= 1024
        if amount < 1000 or unit == "PiB":
            break
    digits = 2 if amount < 10 else 1 if amount < 100 else 0
    return f"{amount:.{digits}f} {unit}"
