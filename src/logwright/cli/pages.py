"""Pages as people read them: ranges of bytes, in hex, with what can be read of them beside it."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from .output import Column, Table, escape

_LINE_BYTES: Final = 16

Ranges = Sequence[Mapping[str, Any]]
"""Ranges of a page, as `state --json` has them."""


def is_ranges(value: Any) -> bool:
    """Whether a value of a state, a change or a difference is a page's ranges."""
    return isinstance(value, list) and all(isinstance(item, dict) and set(item) == {"offset", "data"} for item in value)


def print_pages(pages: Mapping[str, Ranges]) -> None:
    """Every page with what is known of it, sixteen bytes in a line."""
    columns = [Column("page", right=True), Column("offset", right=True), Column("bytes"), Column("text", flexible=True)]
    with Table(columns) as table:
        for page, ranges in pages.items():
            if not ranges:
                table.add(page, "-", "-", "nothing is known of its bytes")
            for offset, data in _lines(ranges):
                table.add(page, str(offset), data.hex(" "), escape(data))


def _lines(ranges: Ranges) -> Iterator[tuple[int, bytes]]:
    for item in ranges:
        data = base64.b64decode(item["data"])
        for start in range(0, len(data), _LINE_BYTES):
            yield item["offset"] + start, data[start : start + _LINE_BYTES]


def in_hex(ranges: Ranges) -> str:
    """Ranges in one line: each with its offset, in hex."""
    texts = (f"@{item['offset']}: {base64.b64decode(item['data']).hex(' ')}" for item in ranges)
    return ", ".join(texts) or "nothing is known of its bytes"
