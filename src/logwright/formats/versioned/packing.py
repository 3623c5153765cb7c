"""Rows of columns -> the bytes of entries, in plain Python: the reference for `_packing.pyx`, and its stand-in.

A row is valid if and only if its key is UTF-8, and its value JSON that BONJSON can hold: no number beyond 64 bits, none
that is no number, no half of a surrogate pair. It is packed as `codec.pack_entry` packs its fields.
"""

from __future__ import annotations

import json
from array import array
from typing import Any

from ...core.buffers import check_ends, column_bytes, column_items, column_part
from ...core.errors import WrongUse
from .codec import MAX_COLUMN_BYTES, Columns, pack_entry


def pack(columns: Columns) -> tuple[bytes, array[int]]:
    """Rows as entries, one behind the other, and where each of them begins and the last one ends.

    Columns must have `timestamps`, `keys` and `values`. A row is a deletion where `deleted` says so, whatever its value
    is, or where that is the JSON null.
    """
    rows = Rows(columns)
    found = bytearray()
    starts = array("q", [0])
    for row in range(columns.count):
        found += rows.packed(row)
        starts.append(len(found))
    return bytes(found), starts


class Rows:
    """Rows out of columns."""

    def __init__(self, columns: Columns) -> None:
        count = columns.count
        if count < 0:
            raise WrongUse("columns cannot have a negative number of rows")
        times = column_items("Q", columns.timestamps, count, "timestamps")
        self._key_ends = column_items("i", columns.key_ends, count + 1, "key_ends")
        self._value_ends = column_items("i", columns.value_ends, count + 1, "value_ends")
        self._deleted = column_items("B", columns.deleted, count, "deleted")
        self._keys, self._values = column_bytes(columns.keys), column_bytes(columns.values)
        if times is None or self._key_ends is None or self._value_ends is None:
            raise WrongUse("entries have times, keys and values, and not all of these columns are there")
        self._times = times
        check_ends(self._key_ends, count, len(self._keys), MAX_COLUMN_BYTES, "key")
        check_ends(self._value_ends, count, len(self._values), MAX_COLUMN_BYTES, "value")

    def packed(self, row: int) -> bytes:
        """The entry of a row."""
        try:
            key = column_part(self._keys, self._key_ends, row).decode()
        except UnicodeDecodeError:
            raise WrongUse(f"the key of row {row} is no UTF-8") from None
        value = None
        if self._deleted is None or not self._deleted[row]:
            value = parsed(key, column_part(self._values, self._value_ends, row))
        try:
            return pack_entry(self._times[row], key, value)
        except WrongUse as error:
            raise WrongUse(f"the key {key!r}: {error}") from error


def parsed(key: str, text: bytes | str) -> Any:
    """The value that a key is given as JSON."""
    try:
        return json.loads(text.decode() if isinstance(text, bytes) else text)
    except (ValueError, RecursionError) as error:
        raise WrongUse(f"the value of the key {key!r} is no JSON: {error}") from None
