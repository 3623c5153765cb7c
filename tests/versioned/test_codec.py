"""Bytes and their meaning: one table of cases, read in both directions, whole, byte by byte, and followed by bytes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from logwright.core.bytes.outcome import NEED_MORE, Malformed, Span
from logwright.errors import TooLarge, WrongUse
from logwright.versioned.bytes import codec
from logwright.versioned.bytes.bonjson import EncodeError, encode
from logwright.versioned.bytes.layout import HEADER_BYTES
from logwright.versioned.bytes.records import Entry, Header, Metadata

T = bytes.fromhex("7f00ca5c8c2e119617")
"""The time 1699564801000000000."""

ENTRIES = {
    "9a817405 816b80 816f6d 9b": Entry(5, "", None),
    "9a8174" + T.hex() + "816b846b657931816f8676616c7565319b": Entry(1699564801000000000, "key1", "value1"),
    "9a8174 77ffffffffffffffff 816b8161 816f6f 9b": Entry(2**64 - 1, "a", True),
    "9a8174 00 816b 82c3a4 816f 9a8161 99 01 02 9b 9b 9b": Entry(0, "ä", {"a": [1, 2]}),
    "9a8174 64 816b 684168" + "69" * 15 + "816f6a203f9b": Entry(100, "h" + "i" * 15, 0.625),
    "9a8174 01 816b 8161 816f 6c 9a9999999999b93f 9b": Entry(1, "a", 0.1),
}
METADATA = {
    "9a8b696e697469616c697a6564 7f0000c2502e119617 8e666f726d61745f76657273696f6e 02 9b": Metadata(1699564800000000000),
    "9a8b696e697469616c697a6564 00 8e666f726d61745f76657273696f6e 02 8162 01 9b": Metadata(0, extra={"b": 1}),
}


def hexed(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


@pytest.mark.parametrize(("text", "entry"), ENTRIES.items())
def test_entry_is_encoded_and_decoded(text: str, entry: Entry) -> None:
    data = hexed(text)
    assert codec.encode(entry) == data
    assert codec.pack_entry(entry.t, entry.k, entry.o) == data
    assert codec.pack_encoded(entry.t, entry.k, encode(entry.o)) == data
    assert codec.decode_entry(data) == (entry, Span(0, len(data)))
    assert codec.decode_entry(b"xyz" + data + b"more", 3) == (entry, Span(3, 3 + len(data)))
    for size in range(len(data)):
        assert codec.decode_entry(data[:size]) is NEED_MORE
        assert codec.decode_entry(data, 0, size) is NEED_MORE


@pytest.mark.parametrize(("text", "metadata"), METADATA.items())
def test_metadata_is_encoded_and_decoded(text: str, metadata: Metadata) -> None:
    data = hexed(text)
    assert codec.encode(metadata) == data
    assert codec.decode_metadata(data + b"\x9a") == (metadata, Span(0, len(data)))
    for size in range(len(data)):
        assert codec.decode_metadata(data[:size]) is NEED_MORE


def test_header_is_encoded_and_decoded() -> None:
    data = hexed("0200000000000000 8400000000000000 99")
    assert codec.encode_header(132) == data
    assert codec.decode_header(data + b"more") == (Header(132), Span(0, HEADER_BYTES))
    for size in range(HEADER_BYTES):
        assert codec.decode_header(data[:size]) is NEED_MORE


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("0300000000000000 1100000000000000 99", 0, "the version is 3, and only 2 is known"),
        ("0200000000000000 1000000000000000 99", 8, "the position is 16, and 17 is the least"),
        ("0200000000000000 1100000000000000 9a", 16, "an array begins with 0x99, not 0x9a"),
        ("0200000000000000 1100000000000000 b7", 16, "of the BONJSON of 2026: not supported"),
    ],
)
def test_invalid_header_is_refused(text: str, position: int, reason: str) -> None:
    with pytest.raises(Malformed, match=reason) as caught:
        codec.decode_header(hexed(text))
    assert caught.value.position == position


FIELDS_IN_ANY_ORDER = {
    "9a 816f01 816b8161 817405 9b": Entry(5, "a", 1),
    "9a 817406 816b8162 816f01 817405 816b8161 9b": Entry(5, "a", 1),  # the last one of equal names wins
    "9a 817405 816b8161 816f01 827878 99 9b 9b": Entry(5, "a", 1, {"xx": []}),
    "9a 680574 05 816b8161 816f01 9b": Entry(5, "a", 1),  # a long string of one byte
    "9a 8174 7805 816b 6807 61 0562 816f 7101 00 9b": Entry(5, "ab", 1),  # wider than necessary, and in chunks
}


@pytest.mark.parametrize(("text", "entry"), FIELDS_IN_ANY_ORDER.items())
def test_entries_of_other_programs_are_read(text: str, entry: Entry) -> None:
    data = hexed(text)
    assert codec.decode_entry(data) == (entry, Span(0, len(data)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("00", "an object begins with 0x9a, not 0x00"),
        ("9b", "an object begins with 0x9a, not 0x9b"),
        ("9a9b", "the entry has no 't'"),
        ("9a 817405 816f01 9b", "the entry has no 'k'"),
        ("9a 817405 816b8161 9b", "the entry has no 'o'"),
        ("9a 8174ff 816b8161 816f01 9b", "'t' is not an integer from 0 to"),
        ("9a 81746f 816b8161 816f01 9b", "'t' is not an integer from 0 to"),
        ("9a 81746a803f 816b8161 816f01 9b", "'t' is not an integer from 0 to"),
        ("9a 817405 816b01 816f01 9b", "'k' is not a string"),
        ("9a 817405 816b81ff", "at its byte 6, the string is not UTF-8"),
        ("9a 817465", "at its byte 3, the type code 0x65 is reserved"),
        ("9a 01", "at its byte 1, the key of an object must be a string"),
    ],
)
def test_invalid_entry_is_refused(text: str, reason: str) -> None:
    with pytest.raises(Malformed, match=reason) as caught:
        codec.decode_entry(b"xx" + hexed(text), 2)
    assert caught.value.position == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("9a9b", "the metadata has no 'initialized'"),
        ("9a 8b696e697469616c697a6564 05 9b", "the metadata has no 'format_version'"),
        ("9a 8b696e697469616c697a6564 ff 8e666f726d61745f76657273696f6e 02 9b", "'initialized' is not an integer"),
        ("9a 8b696e697469616c697a6564 05 8e666f726d61745f76657273696f6e 03 9b", "the format version of the metadata"),
    ],
)
def test_invalid_metadata_is_refused(text: str, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        codec.decode_metadata(hexed(text))


@pytest.mark.parametrize(
    ("t", "k", "o"),
    [
        (-1, "a", 1),
        (2**64, "a", 1),
        (True, "a", 1),
        (1.0, "a", 1),
        (1, b"a", 1),
        (1, "\ud800", 1),
        (1, "a", math.nan),
        (1, "a", {1: 2}),
        (1, "a", 2**64),
    ],
)
def test_values_that_the_format_cannot_hold_are_refused(t: Any, k: Any, o: Any) -> None:
    with pytest.raises(WrongUse):
        codec.pack_entry(t, k, o)


def test_invalid_value_is_reported_by_its_path() -> None:
    with pytest.raises(EncodeError, match=r"\$\.o\.deep\[1\]"):
        codec.pack_entry(1, "a", {"deep": [1, math.inf]})


def test_extra_fields_must_not_replace_standard_fields() -> None:
    with pytest.raises(WrongUse, match="'t' is a field of its own"):
        codec.encode(Entry(1, "a", 1, {"t": 2}))
    with pytest.raises(WrongUse, match="only 2 is known"):
        codec.encode(Metadata(1, 3))


def test_non_finite_numbers_are_strings_in_json() -> None:
    assert codec.to_json([math.nan, {"x": -math.inf}, math.inf, 1.5]) == '["NaN",{"x":"-Infinity"},"Infinity",1.5]'


def test_smallest_entry_has_eleven_bytes() -> None:
    assert len(codec.pack_entry(0, "", None)) == 11


def test_column_of_more_than_two_gibibytes_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_COLUMN_BYTES", 3)
    data = codec.pack_entry(1, "long key", None)
    with pytest.raises(TooLarge):
        codec.columns(data, 0, len(data), 1, codec.KEYS)
