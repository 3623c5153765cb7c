"""Bytes <-> header, metadata and entries, in plain Python: the reference for the kernel, used if it is not built.

A header is valid if and only if it has 17 bytes, the version is 2, the position is at least 17, and an array begins at
its last byte. Metadata is valid if and only if it is a BONJSON object with `initialized`, an integer from 0 to 2^64-1,
and `format_version`, which is 2. An entry is valid if and only if it is a BONJSON object with `t`, an integer from 0 to
2^64-1, `k`, a string, and `o`, any value. Fields may be in any order, and there may be others.

A row of columns is packed if and only if its key is UTF-8 and its value is JSON that BONJSON can hold: no number beyond
64 bits, no NaN or infinity, no half of a surrogate pair.

BONJSON is read as bd-bonjson reads it: of equal keys the last one wins, and NaN and infinities are numbers. It is
always written in the smallest form, with `t`, `k` and `o` in this order, and never with a NaN.

Strategy: read a whole document, then check its fields. If the bytes end before the document does, more bytes are
needed; only the caller knows whether there are more. Nothing here opens a file. Every length is checked against the
bytes in the buffer before it is used.
"""

from __future__ import annotations

import json
import math
from array import array
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ...core.bytes.buffers import check_count, check_ends, column_bytes, column_items, column_part, not_walked
from ...core.bytes.outcome import NEED_MORE, Malformed, NeedMore, Span
from ...errors import TooLarge, WrongUse
from .bonjson.codec import decode_prefix, size_of
from .bonjson.codec import encode as encode_value
from .bonjson.errors import DecodeError, Incomplete
from .bonjson.layout import END_CODE, OBJECT_CODE
from .layout import (
    ARRAY_AT,
    ARRAY_START,
    FORMAT_VERSION,
    HEADER,
    HEADER_BYTES,
    INITIALIZED,
    KEY,
    LEAST_ENTRY_BYTES,
    MAX_TIMESTAMP,
    NEWER_ARRAY_START,
    POSITION_AT,
    TIMESTAMP,
    VALUE,
    VERSION,
    VERSION_AT,
)
from .records import ENTRY_FIELDS, METADATA_FIELDS, Entry, Extra, Header, Metadata, Record, check_key, check_timestamp

Buffer: TypeAlias = bytes | bytearray | memoryview

CLEAN, INCOMPLETE, MALFORMED, EARLY = range(4)
"""How a walk ends: at the end of its bytes, inside an entry, at bytes that are not an entry, at an entry that is too
early.
"""


# --- the header -------------------------------------------------------------------------------------------------------


def encode_header(position: int) -> bytes:
    """The first 17 bytes of a journal whose next entry goes to `position`."""
    if not HEADER_BYTES <= position <= 2**64 - 1:
        raise WrongUse(f"the next entry of a journal cannot be at {position}")
    return HEADER.pack(VERSION, position, ARRAY_START)


def decode_header(buffer: Buffer, position: int = 0, end: int | None = None) -> tuple[Header, Span] | NeedMore:
    """The header at a position, `NEED_MORE`, or `Malformed`. Bytes from `end` on are not looked at."""
    end = _end(buffer, position, end)
    if end - position < HEADER_BYTES:
        return NEED_MORE
    version, next_entry, array_start = HEADER.unpack_from(buffer, position)
    if version != VERSION:
        raise Malformed(position + VERSION_AT, f"the version is {version}, and only {VERSION} is known")
    if next_entry < HEADER_BYTES:
        raise Malformed(position + POSITION_AT, f"the position is {next_entry}, and {HEADER_BYTES} is the least")
    if array_start != ARRAY_START:
        newer = ", which is of the BONJSON of 2026: not supported" if array_start == NEWER_ARRAY_START else ""
        raise Malformed(position + ARRAY_AT, f"an array begins with {ARRAY_START:#04x}, not {array_start:#04x}{newer}")
    return Header(next_entry, version), Span(position, position + HEADER_BYTES)


# --- metadata and entries ---------------------------------------------------------------------------------------------


def encode(record: Record) -> bytes:
    """The bytes of metadata or of an entry."""
    return encode_metadata(record) if isinstance(record, Metadata) else encode_entry(record)


def encode_metadata(metadata: Metadata) -> bytes:
    """The bytes of the first object of a journal."""
    metadata.validate()
    return encode_value(metadata.as_json())


def encode_entry(entry: Entry) -> bytes:
    """The bytes of an entry."""
    return pack_entry(entry.t, entry.k, entry.o, entry.extra)


def pack_entry(t: int, k: str, o: Any, extra: Extra = None) -> bytes:
    """The bytes of an entry that is given by its fields."""
    check_timestamp(t)
    check_key(k)
    if extra:
        Entry(t, k, o, extra).validate()
    return encode_value({TIMESTAMP: t, KEY: k, VALUE: o, **(extra or {})})


def pack_encoded(t: int, k: str, value: bytes) -> bytes:
    """The bytes of an entry whose value is BONJSON already."""
    check_timestamp(t)
    check_key(k)
    head = encode_value({TIMESTAMP: t, KEY: k})[:-1]
    return b"".join((head, encode_value(VALUE), value, bytes([END_CODE])))


def decode_metadata(buffer: Buffer, position: int = 0, end: int | None = None) -> tuple[Metadata, Span] | NeedMore:
    """The metadata at a position, `NEED_MORE`, or `Malformed`. Bytes from `end` on are not looked at."""
    found = _decode_object(buffer, position, end)
    if found is NEED_MORE:
        return NEED_MORE
    fields, stop = found
    reason = _wrong_in_metadata(fields)
    if reason:
        raise Malformed(position, reason)
    metadata = Metadata(fields[INITIALIZED], fields[FORMAT_VERSION], _extra_of(fields, METADATA_FIELDS))
    return metadata, Span(position, stop)


def decode_entry(buffer: Buffer, position: int = 0, end: int | None = None) -> tuple[Entry, Span] | NeedMore:
    """The entry at a position, `NEED_MORE`, or `Malformed`. Bytes from `end` on are not looked at."""
    found = _decode_object(buffer, position, end)
    if found is NEED_MORE:
        return NEED_MORE
    fields, stop = found
    reason = _wrong_in_entry(fields)
    if reason:
        raise Malformed(position, reason)
    extra = None if len(fields) == len(ENTRY_FIELDS) else _extra_of(fields, ENTRY_FIELDS)
    return Entry(fields[TIMESTAMP], fields[KEY], fields[VALUE], extra), Span(position, stop)


def _decode_object(buffer: Buffer, position: int, end: int | None) -> tuple[dict[str, Any], int] | NeedMore:
    end = _end(buffer, position, end)
    if end == position:
        return NEED_MORE
    if buffer[position] != OBJECT_CODE:
        raise Malformed(position, f"an object begins with {OBJECT_CODE:#04x}, not {buffer[position]:#04x}")
    try:
        return decode_prefix(buffer, position, end, last_key_wins=True, allow_nan=True)
    except Incomplete:
        return NEED_MORE
    except DecodeError as error:
        raise Malformed(position, _within(position, error)) from None


def _within(position: int, error: DecodeError) -> str:
    """The problem inside an object, and its position."""
    return f"at its byte {error.position - position}, {error.reason}"


def _wrong_in_metadata(fields: dict[str, Any]) -> str:
    """Why these fields are not metadata; empty if they are."""
    for name in METADATA_FIELDS:
        if name not in fields:
            return f"the metadata has no {name!r}"
    if not _is_timestamp(fields[INITIALIZED]):
        return f"{INITIALIZED!r} is not an integer from 0 to 2^64-1"
    version = fields[FORMAT_VERSION]
    if type(version) is not int or version != VERSION:
        return f"the format version of the metadata is not {VERSION}"
    return ""


def _wrong_in_entry(fields: dict[str, Any]) -> str:
    """Why these fields are not an entry; empty if they are."""
    for name in ENTRY_FIELDS:
        if name not in fields:
            return f"the entry has no {name!r}"
    if not _is_timestamp(fields[TIMESTAMP]):
        return f"{TIMESTAMP!r} is not an integer from 0 to 2^64-1"
    return "" if isinstance(fields[KEY], str) else f"{KEY!r} is not a string"


def _is_timestamp(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_TIMESTAMP


def _extra_of(fields: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any] | None:
    return {name: value for name, value in fields.items() if name not in known} or None


def _end(buffer: Buffer, position: int, end: int | None) -> int:
    end = len(buffer) if end is None else end
    if not 0 <= position <= end <= len(buffer):
        raise WrongUse(f"the range {position}..{end} is not within a buffer of {len(buffer)} bytes")
    return end


# --- many entries -----------------------------------------------------------------------------------------------------

TIMESTAMPS, KEYS, VALUES, DELETED, POSITIONS, SIZES, RAW_VALUES = (1 << bit for bit in range(7))
"""Which columns to decode, added up."""
ALL_COLUMNS: Final = (1 << 7) - 1
MAX_COLUMN_BYTES: Final = 2**31 - 1
"""The most bytes in a column of strings, because ends are i32."""


def walk(
    buffer: Buffer, start: int, end: int, most: int = -1, last: int = 0, begun: int = MAX_TIMESTAMP
) -> tuple[int, int, int, int, int]:
    """Walk over consecutive entries, at most `most` of them (-1: any number).

    It ends (`EARLY`) at an entry whose `t` is smaller than that of the entry before it, if that one is later than
    `begun`. `last` is the `t` of the entry before the first one.

    Returns where it stopped, how many entries it passed, how it ended (`CLEAN` …), and the smallest and largest `t` of
    those that it passed (0 and 0 when there was none).
    """
    _end(buffer, start, end)
    position, count, smallest, largest = start, 0, 0, 0
    while position < end and count != most:
        try:
            found = decode_entry(buffer, position, end)
        except Malformed:
            return position, count, MALFORMED, smallest, largest
        if found is NEED_MORE:
            return position, count, INCOMPLETE, smallest, largest
        entry, span = found
        if entry.t < last and last > begun:
            return position, count, EARLY, smallest, largest
        last = entry.t
        smallest = min(smallest, entry.t) if count else entry.t
        largest = max(largest, entry.t)
        position = span.end
        count += 1
    return position, count, CLEAN, smallest, largest


def explain(buffer: Buffer, position: int, end: int) -> str:
    """Why a walk ended here, in words."""
    try:
        found = decode_entry(buffer, position, end)
    except Malformed as malformed:
        return malformed.reason
    if found is not NEED_MORE:
        return "the entry is whole"
    have = end - position
    return f"only {have} byte{'' if have == 1 else 's'} of the entry {'is' if have == 1 else 'are'} there"


def _walked(buffer: Buffer, start: int, stop: int, count: int) -> list[tuple[Entry, Span]]:
    """The `count` entries of a walked range."""
    _end(buffer, start, stop)
    check_count(start, stop, count, LEAST_ENTRY_BYTES)
    found = []
    position = start
    for _ in range(count):
        try:
            item = decode_entry(buffer, position, stop)
        except Malformed:
            item = NEED_MORE
        if item is NEED_MORE:
            raise not_walked(position)
        found.append(item)
        position = item[1].end
    return found


def spans(buffer: Buffer, start: int, stop: int, count: int) -> array[int]:
    """Where each of the `count` entries of a walked range begins, and where the last one ends."""
    found = _walked(buffer, start, stop, count)
    return array("q", [start, *(span.end for _, span in found)])


def entries(buffer: Buffer, start: int, stop: int, count: int) -> list[Entry]:
    """The `count` entries of a range that `walk` has checked."""
    return [entry for entry, _ in _walked(buffer, start, stop, count)]


@dataclass(slots=True)
class Columns:
    """Entries as columns of plain buffers in the machine's byte order; a column that was not selected is None.

    `timestamps` and `positions` u64, `sizes` i64, `deleted` u8. Keys (UTF-8) are consecutive in `keys`; the n-th
    is between `key_ends[n]` and `key_ends[n + 1]` (i32). So do values: in `values` as JSON, in `raw_values` as the
    BONJSON that they are. A deletion has the value null.
    """

    count: int
    timestamps: Buffer | None = None
    key_ends: Buffer | None = None
    keys: Buffer | None = None
    value_ends: Buffer | None = None
    values: Buffer | None = None
    raw_value_ends: Buffer | None = None
    raw_values: Buffer | None = None
    deleted: Buffer | None = None
    positions: Buffer | None = None
    sizes: Buffer | None = None


def columns(buffer: Buffer, start: int, stop: int, count: int, want: int = ALL_COLUMNS, base: int = 0) -> Columns:
    """The `count` entries of a walked range as columns; `base` is where the buffer begins in its file."""
    walked = _walked(buffer, start, stop, count)
    found = Columns(count)
    if want & TIMESTAMPS:
        found.timestamps = array("Q", (entry.t for entry, _ in walked)).tobytes()
    if want & KEYS:
        found.key_ends, found.keys = _joined([entry.k.encode() for entry, _ in walked])
    if want & VALUES:
        found.value_ends, found.values = _joined([to_json(entry.o).encode() for entry, _ in walked])
    if want & RAW_VALUES:
        found.raw_value_ends, found.raw_values = _joined([raw_value(buffer, span) for _, span in walked])
    if want & DELETED:
        found.deleted = bytes(entry.deleted for entry, _ in walked)
    if want & POSITIONS:
        found.positions = array("Q", (base + span.start for _, span in walked)).tobytes()
    if want & SIZES:
        found.sizes = array("q", (span.size for _, span in walked)).tobytes()
    return found


class Latest:
    """The last entry of each key among those that are added: the state at a time or after all of them.

    Entries later than `at` are ignored, wherever they are; on equal times the one added later wins.
    """

    def __init__(self, at: int | None = None) -> None:
        if at is not None and at < 0:
            raise WrongUse(f"no entry has a time before {at}")
        self._at = MAX_TIMESTAMP if at is None else at
        self._found: dict[str, tuple[Entry, bytes]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def walk(
        self, buffer: Buffer, start: int, end: int, last: int = 0, begun: int = MAX_TIMESTAMP
    ) -> tuple[int, int, int, int, int]:
        """Walk over entries as `walk` does, and apply those that are not later than `at`."""
        found = walk(buffer, start, end, -1, last, begun)
        self.add(buffer, start, found[0], found[1])
        return found

    def add(self, buffer: Buffer, start: int, stop: int, count: int) -> None:
        """Apply the `count` entries of a walked range that are not later than `at`."""
        for entry, span in _walked(buffer, start, stop, count):
            if entry.t > self._at:
                continue
            if entry.deleted:
                self._found.pop(entry.k, None)
            else:
                self._found[entry.k] = (entry, raw_value(buffer, span))

    def state(self) -> dict[str, tuple[Any, int]]:
        """The existing keys, each with its value and its time."""
        return {key: (entry.o, entry.t) for key, (entry, _) in self._found.items()}

    def fill(self, values: dict[str, Any], times: dict[str, int] | None) -> None:
        """Put values into one dictionary and times into another; without the second, pairs of both into the first."""
        if times is None:
            values.update(self.state())
            return
        for key, (entry, _) in self._found.items():
            values[key] = entry.o
            times[key] = entry.t

    def columns(self, want: int) -> Columns:
        """The existing keys as columns."""
        found = Columns(len(self._found))
        kept = list(self._found.values())
        if want & TIMESTAMPS:
            found.timestamps = array("Q", (entry.t for entry, _ in kept)).tobytes()
        if want & KEYS:
            found.key_ends, found.keys = _joined([entry.k.encode() for entry, _ in kept])
        if want & VALUES:
            found.value_ends, found.values = _joined([to_json(entry.o).encode() for entry, _ in kept])
        if want & RAW_VALUES:
            found.raw_value_ends, found.raw_values = _joined([raw for _, raw in kept])
        if want & DELETED:
            found.deleted = bytes(len(kept))
        return found


def _joined(parts: list[bytes]) -> tuple[bytes, bytes]:
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    if ends[-1] > MAX_COLUMN_BYTES:
        raise TooLarge(f"a column of {ends[-1]} bytes does not fit 2^31 - 1")
    return array("i", ends).tobytes(), b"".join(parts)


def raw_value(buffer: Buffer, span: Span) -> bytes:
    """The BONJSON of the value of a whole entry: of the last field called `o`."""
    position = span.start + 1
    found = b""
    while buffer[position] != END_CODE:
        name, position = decode_prefix(buffer, position, span.end, last_key_wins=True, allow_nan=True)
        size = size_of(buffer, position, span.end, allow_nan=True)
        assert isinstance(size, int)
        if name == VALUE:
            found = bytes(buffer[position : position + size])
        position += size
    return found


def to_json(value: Any) -> str:
    """A value as compact JSON. Numbers that JSON does not have become strings: "NaN", "Infinity", "-Infinity"."""
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(plain_value(value))
    except RecursionError:  # json recurses, and values may be nested deeper than Python's stack allows
        raise TooLarge("a value is nested too deeply for JSON") from None


def plain_value(value: Any) -> Any:
    """A value with strings in place of NaN and the infinities."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    if isinstance(value, dict):
        return {key: plain_value(item) for key, item in value.items()}
    return value


# --- rows to bytes ----------------------------------------------------------------------------------------------------


def pack(columns: Columns) -> tuple[bytes, array[int]]:
    """Rows as consecutive entries; the start of each, and the end of the last one.

    Columns must have `timestamps`, `keys` and `values`. A row is a deletion if `deleted` is set, whatever its value is,
    or if the value is the JSON null.
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
    """The value of a row, parsed from JSON."""
    try:
        return json.loads(text.decode() if isinstance(text, bytes) else text)
    except (ValueError, RecursionError) as error:
        raise WrongUse(f"the value of the key {key!r} is no JSON: {error}") from None


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
