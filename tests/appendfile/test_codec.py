"""Bytes and records: one table of cases for both directions, and bytes that are not a record."""

from __future__ import annotations

import pytest

from logwright.appendfile.bytes import codec, kernel
from logwright.appendfile.bytes.layout import MAX_DATA_BYTES, parse_name
from logwright.appendfile.bytes.records import Checkpoint, Data, Record
from logwright.core.bytes.outcome import NEED_MORE, Malformed, Span
from logwright.errors import TooLarge, WrongUse
from tests.appendfile.samples import DERIVED, encoded

LARGEST = 2**64 - 1
CASES: dict[str, tuple[Record, str]] = {
    "data": (Data(b"Hello World"), DERIVED["data_header_example_hex"] + b"Hello World".hex()),
    "one byte": (Data(b"a"), "0001000061"),
    "data of no bytes": (Data(b""), "00000000"),
    "256 bytes": (Data(bytes(256)), "00000100" + "00" * 256),
    "the hint of a new journal": (Checkpoint(0, 0), DERIVED["check_header_hex"] + "00" * 16),
    "a checkpoint": (Checkpoint(1, 2), "01100000" + "0100000000000000" + "0200000000000000"),
    "the largest ids": (Checkpoint(LARGEST, LARGEST), "01100000" + "ff" * 16),
    "a checkpoint as it is described": (Checkpoint(1, 2, 0), "01000000" + "0100000000000000" + "0200000000000000"),
}
BAD = {
    "another type": ("02000000", "there are no records of type 2"),
    "the largest type": ("ff000000", "there are no records of type 255"),
    "data of more than 1 MiB": ("00fdff0f", "the size is 1048573, and data has at most 1048572 bytes"),
    "a checkpoint of another size": ("01110000", "the size of a checkpoint record is 16, not 17"),
    "a checkpoint of a future segment": (
        "01100000" + "0100000000000000" + "0000000000000000",
        "the oldest unchecked segment is 1, and only 0 is being written",
    ),
}
CASE = pytest.mark.parametrize(("record", "text"), CASES.values(), ids=CASES)


@CASE
def test_record_is_encoded_and_decoded(record: Record, text: str) -> None:
    whole = bytes.fromhex(text)
    assert codec.encode(record) == whole
    assert codec.decode(whole) == (record, Span(0, len(whole)))
    assert codec.decode(b"xyz" + whole + b"behind", 3) == (record, Span(3, 3 + len(whole)))


@CASE
def test_record_is_decoded_byte_by_byte(record: Record, text: str) -> None:
    whole = bytes.fromhex(text)
    for end in range(len(whole)):
        assert codec.decode(whole, 0, end) is NEED_MORE


@pytest.mark.parametrize(("text", "reason"), BAD.values(), ids=BAD)
def test_invalid_record_is_malformed_whatever_follows(text: str, reason: str) -> None:
    with pytest.raises(Malformed) as caught:
        codec.decode(bytes.fromhex(text) + bytes(40))
    assert (caught.value.position, caught.value.reason) == (0, reason)


def test_largest_record_has_one_mebibyte() -> None:
    assert len(codec.encode(Data(bytes(MAX_DATA_BYTES)))) == 1 << 20
    with pytest.raises(TooLarge):
        codec.encode(Data(bytes(MAX_DATA_BYTES + 1)))


def test_walk_returns_its_last_segment() -> None:
    whole = encoded(Checkpoint(0, 3), Data(b"a"), Checkpoint(0, 4), Data(b"b"))
    for walk in (codec.walk, kernel.walk):
        assert walk(whole, 0, len(whole)) == (len(whole), 4, codec.CLEAN, 4)
        assert walk(whole, 0, len(whole), 0, 2) == (25, 2, codec.CLEAN, 3)
        assert walk(whole, 20, 24, 3) == (20, 0, codec.INCOMPLETE, 3)


def test_records_have_their_segment() -> None:
    whole = encoded(Data(b"a"), Checkpoint(0, 4), Data(b"b"))
    for records in (codec.records, kernel.records):
        assert [record.segment for record in records(whole, 0, len(whole), 3, 3)] == [3, 4, 4]


def test_empty_data_ends_a_walk_on_request() -> None:
    whole = encoded(Data(b"a"), Data(b""), Data(b"b"))
    for walk in (codec.walk, kernel.walk):
        assert walk(whole, 0, len(whole), 0, -1, True) == (5, 1, codec.EMPTY, 0)


def test_names_of_files_are_decimal_ids() -> None:
    assert [parse_name(name) for name in ("0.journal", "007.journal", f"{LARGEST}.journal")] == [0, 7, LARGEST]
    for name in (
        f"{LARGEST + 1}.journal",
        "-1.journal",
        "x.journal",
        ".journal",
        "1.journal.bak",
        "1.Journal",
        "١.journal",
    ):
        assert parse_name(name) is None


@pytest.mark.parametrize("twin", [codec.AppendBuffer, kernel.AppendBuffer], ids=["codec", "kernel"])
def test_impossible_appends_are_refused(twin: type[codec.AppendBuffer]) -> None:
    buffer = twin(1 << 20)
    with pytest.raises(WrongUse, match="zeros"):
        buffer.append(b"")
    with pytest.raises(TooLarge):
        buffer.append(bytes(MAX_DATA_BYTES + 1))
    with pytest.raises(WrongUse, match="no checkpoint"):
        buffer.check()
    with pytest.raises(TypeError):
        buffer.append("text")  # type: ignore[arg-type]
    assert buffer.buffered_bytes == 0
