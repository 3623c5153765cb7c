"""Bytes <-> header, metadata and entries, in plain Python: the reference for the kernel, and its stand-in.

A header is valid if and only if it has 17 bytes, the version is 2, the position is 17 at least, and an array begins at
its last byte. Metadata is valid if and only if it is a BONJSON object with `initialized`, an integer from 0 to 2^64-1,
and `format_version`, which is 2. An entry is valid if and only if it is a BONJSON object with `t`, an integer from 0 to
2^64-1, `k`, a string, and `o`, any value. Fields in any order, and others beside them, are valid as well.

BONJSON is read as bd-bonjson does it: the last one of equal keys counts, NaN and infinities are numbers. What is
written is always the smallest form, `t`, `k` and `o` in this order, and never a NaN.

Strategy: a document is read as a whole, then its fields are looked at. Where the bytes end before the document does,
more are needed: whether more can come, only who has the file knows. Nothing here opens a file, and no length is
believed before the bytes that it counts have been seen.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from ...core.errors import WrongUse
from ...core.outcome import NEED_MORE, Malformed, NeedMore, Span
from .bonjson import codec as bonjson
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
    MAX_TIMESTAMP,
    NEWER_ARRAY_START,
    POSITION,
    POSITION_AT,
    TIMESTAMP,
    VALUE,
    VERSION,
    VERSION_AT,
)
from .records import ENTRY_FIELDS, METADATA_FIELDS, Entry, Extra, Header, Metadata, Record, check_key, check_timestamp

Buffer: TypeAlias = bytes | bytearray | memoryview

CLEAN, INCOMPLETE, MALFORMED = range(3)
"""How a walk ends: at the end of its bytes, inside an entry, at bytes that are none."""


# --- the header -------------------------------------------------------------------------------------------------------


def encode_header(position: int) -> bytes:
    """The first 17 bytes of a journal whose next entry goes to `position`."""
    if not HEADER_BYTES <= position <= 2**64 - 1:
        raise WrongUse(f"the next entry of a journal cannot be at {position}")
    return HEADER.pack(VERSION, position, ARRAY_START)


def encode_position(position: int) -> bytes:
    """The 8 bytes that go to `POSITION_AT`."""
    return encode_header(position)[POSITION_AT : POSITION_AT + POSITION.size]


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
    return bonjson.encode(metadata.as_json())


def encode_entry(entry: Entry) -> bytes:
    """The bytes of an entry."""
    return pack_entry(entry.t, entry.k, entry.o, entry.extra)


def pack_entry(t: int, k: str, o: Any, extra: Extra = None) -> bytes:
    """The bytes of an entry that is given by its fields."""
    check_timestamp(t)
    check_key(k)
    if extra:
        Entry(t, k, o, extra).validate()
    return bonjson.encode({TIMESTAMP: t, KEY: k, VALUE: o, **(extra or {})})


def pack_encoded(t: int, k: str, value: bytes) -> bytes:
    """The bytes of an entry whose value is BONJSON already."""
    check_timestamp(t)
    check_key(k)
    head = bonjson.encode({TIMESTAMP: t, KEY: k})[:-1]
    return b"".join((head, bonjson.encode(VALUE), value, bytes([END_CODE])))


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
        return bonjson.decode_prefix(buffer, position, end, last_key_wins=True, allow_nan=True)
    except Incomplete:
        return NEED_MORE
    except DecodeError as error:
        raise Malformed(position, _within(position, error)) from None


def _within(position: int, error: DecodeError) -> str:
    """What is wrong inside an object, and at which of its bytes."""
    return f"at its byte {error.position - position}, {error.reason}"


def _wrong_in_metadata(fields: dict[str, Any]) -> str:
    """Why these fields are no metadata; empty if they are."""
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
    """Why these fields are no entry; empty if they are."""
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


EMPTY_ENTRY: Final = pack_entry(0, "", None)
"""The smallest entry there is."""
