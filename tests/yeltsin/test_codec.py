"""Bytes and transactions: one table of cases for both directions, and the results of a walk along links."""

from __future__ import annotations

from typing import Any

import pytest

from logwright.core.bytes.outcome import NEED_MORE, Malformed, Span
from logwright.errors import TooLarge, WrongUse
from logwright.yeltsin.bytes import codec
from logwright.yeltsin.bytes.records import Allocate, Modify, Remove, Transaction
from tests.yeltsin.samples import CREATED, GOLDEN, journal, linked, modify, numbered, transaction

HEAD = "0000000000000000" + "0000000000000000" + "00f1536500000000"
COMPLETION = "ff00000000"
CASES: dict[str, tuple[Transaction, str]] = {
    "nothing": (transaction(), HEAD + "01" + COMPLETION),
    "not in the storage": (transaction(flags=0), HEAD + "00" + COMPLETION),
    "unknown flags": (transaction(flags=0xFF), HEAD + "ff" + COMPLETION),
    "rolled back": (transaction(end=0xFE), HEAD + "01" + "fe00000000"),
    "an end with data": (transaction(data=b"bye"), HEAD + "01" + "ff03000000627965"),
    "an allocation": (
        transaction(Allocate(30, 1, 2**64 - 1)),
        HEAD + "01" + "0118000000" + "1e00000000000000" + "0100000000000000" + "ffffffffffffffff" + COMPLETION,
    ),
    "a modification": (
        transaction(Modify(30, 258, b"ab", b"cd")),
        HEAD + "01" + "0210000000" + "1e00000000000000" + "0201" + "0200" + "6162" + "6364" + COMPLETION,
    ),
    "a modification of nothing": (
        transaction(Modify(30, 0, b"", b"")),
        HEAD + "01" + "020c000000" + "1e00000000000000" + "0000" + "0000" + COMPLETION,
    ),
    "a removal": (
        transaction(Remove(30, 7)),
        HEAD + "01" + "0310000000" + "1e00000000000000" + "0700000000000000" + COMPLETION,
    ),
    "linked, before 1970": (
        Transaction(20, 512, -1, 1, ()),
        "1400000000000000" + "0002000000000000" + "ffffffffffffffff" + "01" + COMPLETION,
    ),
}
MALFORMED = {
    "an operation that there is not": ("00", "there is no operation 0x00"),
    "an allocation of another size": ("0117000000", "an allocation has 24 bytes of data, and not 23"),
    "a removal of another size": ("0311000000", "a removal has 16 bytes of data, and not 17"),
    "a small modification": ("020b000000", "a modification has at least 12 bytes, and not 11"),
    "images of another size": (
        "020e000000" + "1e00000000000000" + "0000" + "0200",
        "a modification of 2 bytes has not 14 bytes of data",
    ),
}
CASE = pytest.mark.parametrize(("record", "encoded"), CASES.values(), ids=CASES)


@CASE
def test_transaction_is_encoded_and_decoded(record: Transaction, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert codec.encode(record) == data
    assert codec.decode(data) == (record, Span(0, len(data)))


@CASE
def test_decoding_byte_by_byte_needs_more_until_complete(record: Transaction, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    for size in range(len(data)):
        assert codec.decode(data[:size]) is NEED_MORE


@CASE
def test_bytes_before_and_after_are_ignored(record: Transaction, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert codec.decode(b"\x7f\x7f" + data + b"\x7f", 2) == (record, Span(2, 2 + len(data)))


@pytest.mark.parametrize(("operation", "reason"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_operation_is_reported_with_its_position(operation: str, reason: str) -> None:
    with pytest.raises(Malformed) as raised:
        codec.decode(b"\x7f" + bytes.fromhex(HEAD + "01" + operation) + bytes(32), 1)
    assert (raised.value.position, raised.value.reason) == (26, reason)


WRONG: dict[str, tuple[Transaction, type[Exception]]] = {
    "a page beyond 64 bits": (transaction(Remove(2**64, 0)), WrongUse),
    "a negative free page": (transaction(Allocate(30, -1, 0)), WrongUse),
    "a place beyond the page": (transaction(Modify(30, 2**16, b"", b"")), WrongUse),
    "images that differ in size": (transaction(modify(b"a", b"bc")), WrongUse),
    "an image too large": (transaction(modify(bytes(65536), bytes(65536))), TooLarge),
    "flags beyond a byte": (transaction(flags=256), WrongUse),
    "a time beyond 64 bits": (transaction(timestamp=2**63), WrongUse),
    "an end that is none": (transaction(end=1), WrongUse),
    "data without an end": (transaction(end=None, data=b"x"), WrongUse),
    "a link beyond 64 bits": (Transaction(0, 2**64, 0, 0, ()), WrongUse),
}


@pytest.mark.parametrize(("record", "error"), WRONG.values(), ids=WRONG)
def test_values_that_the_format_cannot_hold_are_refused(record: Transaction, error: type[Exception]) -> None:
    with pytest.raises(error):
        codec.encode(record)


def test_largest_modification_has_131_082_bytes() -> None:
    data = codec.encode(transaction(modify(bytes(65535), bytes(65535))))
    assert int.from_bytes(data[26:30], "little") == 131_082


def test_end_shows_the_outcome_and_flag_shows_the_redo() -> None:
    ends: list[Any] = [(0xFF, 1), (0xFF, 0), (0xFE, 0), (None, 0)]
    found = [transaction(end=end, flags=flags) for end, flags in ends]
    assert [item.outcome for item in found] == ["completed", "completed", "rolled_back", "incomplete"]
    assert [item.redo_is_due for item in found] == [False, True, False, False]


# --- the header -------------------------------------------------------------------------------------------------------


def test_empty_journal_equals_that_of_the_original() -> None:
    data = (GOLDEN / "journal_empty.jrnl").read_bytes()
    assert codec.encode_header(0, 0) == data == journal([])
    assert codec.decode_header(data) == (0, 0)


def test_header_has_the_first_and_the_last_offset() -> None:
    data = codec.encode_header(20, 2**40)
    assert data.hex() == "4a524e4c" + "1400000000000000" + "0000000000010000"
    assert codec.decode_header(data) == (20, 2**40)
    assert all(codec.decode_header(data[:size]) is NEED_MORE for size in range(20))


def test_other_bytes_are_not_a_header() -> None:
    with pytest.raises(Malformed, match="begins with b'JRNL'"):
        codec.decode_header(b"JRNK" + bytes(16))
    with pytest.raises(Malformed, match="begins with b'JRNL'"):
        codec.decode_header(b"T")


# --- links ------------------------------------------------------------------------------------------------------------


def test_operations_up_to_the_next_transaction_without_an_end_are_incomplete() -> None:
    items, starts = linked([transaction(modify(b"a", b"b"), end=None), transaction()])
    data = journal(items)
    record, span = codec.decode(data, starts[0])  # type: ignore[misc]
    assert (record.outcome, record.operations, span) == ("incomplete", (modify(b"a", b"b"),), Span(*starts))
    assert codec.decode(data[20:], 0, base=20) == (record, Span(0, starts[1] - 20))


def test_no_operation_extends_beyond_the_next_transaction() -> None:
    data = codec.encode(Transaction(0, 40, CREATED, 0, (modify(b"abc", b"def"),)))
    with pytest.raises(Malformed, match="beyond 40, where the next transaction begins"):
        codec.decode(data)


def test_walk_reads_consecutive_transactions() -> None:
    data = journal(numbered(20))
    _, starts = linked(numbered(20))
    size, last = len(data), starts[-1]
    assert codec.walk(data, 20, size, 0, 0, last) == (size, 20, codec.JUMP, last)
    assert codec.walk(data, 20, size, 0, 0, starts[7]) == (starts[8], 8, codec.JUMP, starts[7])
    assert codec.walk(data, 20, size, 0, 0, last, 5) == (starts[5], 5, codec.CLEAN, starts[4])
    window = data[20:]
    assert codec.walk(window, starts[5] - 20, size - 20, 20, starts[4], last) == (size - 20, 15, codec.JUMP, last)
    assert codec.walk(data, 20, starts[5], 0, 0, last) == (starts[5], 5, codec.CLEAN, starts[4])
    assert codec.walk(data, 20, starts[5] + 30, 0, 0, last) == (starts[5], 5, codec.INCOMPLETE, starts[4])
    assert codec.walk(data, starts[5], size, 0, 0, last) == (starts[5], 0, codec.ASTRAY, 0)


def test_walk_stops_after_a_transaction_without_a_successor() -> None:
    data = journal(numbered(3), gap_bytes=8)
    _, starts = linked(numbered(3), gap_bytes=8)
    assert codec.walk(data, 20, len(data), 0, 0, starts[-1]) == (starts[1] - 8, 1, codec.JUMP, starts[0])


def test_hopping_moves_from_head_to_head() -> None:
    for gap_bytes in (0, 8):
        data = journal(numbered(20), gap_bytes=gap_bytes)
        _, starts = linked(numbered(20), gap_bytes=gap_bytes)
        size, last = len(data), starts[-1]
        assert codec.hop(data, 20, size, 0, 0, last) == (0, 20, codec.JUMP, last)
        assert codec.hop(data, 20, size, 0, 0, last, 3) == (starts[3], 3, codec.CLEAN, starts[2])
        assert codec.hop(data, 20, starts[7] + 24, 0, 0, last) == (starts[7], 7, codec.CLEAN, starts[6])
        assert codec.hop(data, 20, size, 0, 0, starts[7]) == (starts[8], 8, codec.JUMP, starts[7])
        window = data[starts[7] - 3 :]
        assert codec.hop(window, 3, len(window), starts[7] - 3, starts[6], last) == (0, 13, codec.JUMP, last)


@pytest.mark.parametrize("target", [1, 19, 20, 2**64 - 1], ids=str)
def test_hopping_never_moves_backwards_or_beyond_the_end(target: int) -> None:
    items, starts = linked(numbered(3))
    data = bytearray(journal(items))
    data[starts[1] + 8 : starts[1] + 16] = target.to_bytes(8, "little")
    assert codec.hop(data, 20, len(data), 0, 0, starts[2]) == (target, 2, codec.JUMP, starts[1])
    assert codec.walk(data, 20, len(data), 0, 0, starts[2])[1:] == (2, codec.JUMP, starts[1])


def test_end_of_the_last_transaction_does_not_depend_on_its_next_link() -> None:
    items, starts = linked([*numbered(2), transaction(modify(b"a", b"b"), modify(b"b", b"c"))])
    data = bytearray(journal(items))
    data[starts[2] + 8 : starts[2] + 16] = (starts[2] + 25 + 19).to_bytes(8, "little")
    assert codec.walk(data, 20, len(data), 0, 0, starts[2]) == (starts[2], 2, codec.MALFORMED, starts[1])
    assert codec.walk(data, 20, len(data), 0, 0, 2**64 - 1) == (starts[2] + 44, 3, codec.INCOMPLETE, starts[2])
    data[starts[2] + 8 : starts[2] + 16] = len(data).to_bytes(8, "little")
    assert codec.walk(data, 20, len(data), 0, 0, starts[2]) == (len(data), 3, codec.JUMP, starts[2])


def test_operations_are_skimmed_up_to_the_last_available_head() -> None:
    data = codec.encode(transaction(modify(bytes(50), bytes(50)), Remove(30, 0), data=b"bye"))
    second = 25 + 117
    assert codec.skim(data, 25, len(data), -1) == (len(data), codec.CLEAN, 0xFF, second + 21)
    assert codec.skim(data, 25, 60, -1) == (second, codec.INCOMPLETE, 0, second)
    assert codec.skim(data, 25, second + 5, -1) == (second + 21, codec.INCOMPLETE, 0, second + 21)
    assert codec.skim(data, 25, len(data), second) == (second, codec.CLEAN, 0, second)
    assert codec.skim(data, 25, len(data), second - 1) == (25, codec.MALFORMED, 0, 25)
    assert codec.skim(data, 24, len(data), -1)[1] == codec.MALFORMED


def test_range_is_decoded_that_was_walked() -> None:
    data = journal(numbered(12))
    items, starts = linked(numbered(12))
    assert codec.transactions(data, 20, len(data), 12, 0) == items
    assert list(codec.spans(data, 20, len(data), 12, 0)) == [*starts, len(data)]
    with pytest.raises(Malformed, match="not walked"):
        codec.spans(data, 21, len(data), 1, 0)
    with pytest.raises(Malformed, match="not walked"):
        codec.transactions(data, 20, len(data), 13, 0)
