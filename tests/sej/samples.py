"""Sample journals, and those that the original has written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from logwright.core.io.disk import REAL_DISK, Disk
from logwright.sej.bytes.records import Message
from logwright.sej.files.checksums import Checksums
from logwright.sej.files.writer import Writer

GOLDEN = Path(__file__).parents[1] / "golden" / "sej"
MESSAGE_BYTES = 40
"""The size of each message that `make_journal` writes."""


def covered_bytes(checksums: Checksums, size: int) -> int:
    """How many of the first `size` bytes of a file its checksums can judge."""
    entries = [(index * checksums.block_bytes, checksums.entry(index)[1]) for index in range(len(checksums))]
    return sum(covered for start, covered in entries if start < size and start + covered <= size)


def golden_case(name: str) -> dict[str, Any]:
    """The original's description of one of its journals."""
    case: dict[str, Any] = json.loads((GOLDEN / name / "case.json").read_text())
    return case


def golden_lines(name: str) -> list[dict[str, Any]]:
    """The messages of a golden journal as the original lists them."""
    return [json.loads(line) for line in (GOLDEN / name / "expected.jsonl").read_text().splitlines()]


def value_of(offset: int) -> bytes:
    """The value of the message with this offset in a journal of `make_journal`."""
    return f"value {offset:08d}".encode()


def make_journal(
    directory: Path,
    count: int,
    *,
    per_segment: int = 10,
    timestamps: Iterable[int | None] | None = None,
    disk: Disk = REAL_DISK,
) -> Path:
    """Append `count` messages of `MESSAGE_BYTES` bytes, `per_segment` to a segment; the n-th has timestamp n."""
    with Writer(directory, segment_size=per_segment * MESSAGE_BYTES, disk=disk) as writer:
        first = writer.next_offset
        stamps = range(first, first + count) if timestamps is None else timestamps
        for offset, timestamp in zip(range(first, first + count), stamps, strict=True):
            assert writer.append(value_of(offset), timestamp=timestamp) == offset
    return directory


def offsets_of(items: Iterable[object]) -> list[int]:
    """The offsets of messages; anything else among them fails the test."""
    found = []
    for item in items:
        assert isinstance(item, Message), item
        found.append(item.offset)
    return found
