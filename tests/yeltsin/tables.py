"""Tables for tests: those that the original has written, and the expected contents of a table."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

from logwright.yeltsin.bytes.table_layout import PAGE_BYTES, TABLE_HEAD_BYTES

GOLDEN = Path(__file__).parents[1] / "golden" / "yeltsin"
CASES: dict[str, dict[str, Any]] = {
    case["file"].removesuffix(".tbl.gz"): case for case in json.loads((GOLDEN / "tables.json").read_text())["tables"]
}


def golden(name: str) -> bytes:
    """The bytes of a table of the original."""
    return gzip.decompress((GOLDEN / f"{name}.tbl.gz").read_bytes())


def page_at(number: int) -> int:
    """The offset of a page by its number."""
    return TABLE_HEAD_BYTES + number * PAGE_BYTES


def patched(data: bytes, position: int, value: int, kind: str = "<Q") -> bytes:
    """The same bytes with another number at a position."""
    found = bytearray(data)
    struct.pack_into(kind, found, position, value)
    return bytes(found)
