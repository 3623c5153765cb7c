"""The bytes of a message, in both directions: one table of cases, and the errors for other bytes."""

from __future__ import annotations

import pickle
import struct
from array import array

import pytest

from logwright.core.bytes.outcome import NEED_MORE, Malformed, Span
from logwright.errors import TooLarge, WrongUse
from logwright.sej.bytes import codec
from logwright.sej.bytes.codec import CLEAN, INCOMPLETE, MALFORMED, UNEXPECTED_OFFSET
from logwright.sej.bytes.layout import (
    MAX_MESSAGE_BYTES,
    MAX_OFFSET,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    parse_segment_name,
    segment_name,
)
from logwright.sej.bytes.records import NOW, Message, PlainMessage
from tests.support.damage import overwrite

CASES = {
    "nothing but the frame": (
        Message(0, 0, 0, b"", b""),
        "0000000000000000 0000000000000000 00 00 00000000 0000001a",
    ),
    "key and value": (
        Message(1, 1_526_476_240_350_126_680, 67, b"key-1", b"hello, journal"),
        "0000000000000001 152f220d9024a258 43 05 6b65792d31 0000000e 68656c6c6f2c206a6f75726e616c 0000002d",
    ),
    "no timestamp": (
        Message(2, None, 1, b"", b"v"),
        "0000000000000002 8000000000000000 01 00 00000001 76 0000001b",
    ),
    "before the epoch": (
        Message(3, -1, 255, b"k", b""),
        "0000000000000003 ffffffffffffffff ff 01 6b 00000000 0000001b",
    ),
    "every field at its largest": (
        Message(MAX_OFFSET, 2**63 - 1, 255, b"\xff" * 127, b"\xff" * 300),
        f"ffffffffffffffff 7fffffffffffffff ff 7f {'ff' * 127} 0000012c {'ff' * 300} 000001c5",
    ),
    "the earliest time there is": (
        Message(4, NO_TIMESTAMP + 1, 0, b"", b""),
        "0000000000000004 8000000000000001 00 00 00000000 0000001a",
    ),
}
EACH_CASE = pytest.mark.parametrize(
    ("message", "data"), [(message, bytes.fromhex(text)) for message, text in CASES.values()], ids=CASES
)


@EACH_CASE
def test_message_is_encoded(message: Message, data: bytes) -> None:
    assert codec.encode(message) == data
    assert message.size == len(data)


@EACH_CASE
def test_message_is_decoded(message: Message, data: bytes) -> None:
    assert codec.decode(data) == (message, Span(0, len(data)))
    assert codec.decode(data, expected=message.offset) == (message, Span(0, len(data)))


@EACH_CASE
def test_message_is_decoded_from_the_middle_of_a_buffer(message: Message, data: bytes) -> None:
    span = Span(3, 3 + len(data))
    for buffer in (b"abc" + data + b"def", bytearray(b"abc" + data), memoryview(b"abc" + data + b"def")):
        assert codec.decode(buffer, 3) == (message, span)
        assert codec.decode(buffer, 3, span.end) == (message, span)


@EACH_CASE
def test_message_fed_byte_by_byte_needs_more_until_complete(message: Message, data: bytes) -> None:
    for end in range(len(data)):
        assert codec.decode(data + b"more", 0, end) is NEED_MORE
    assert codec.decode(data + b"more", 0, len(data)) == (message, Span(0, len(data)))


WHOLE = codec.encode(Message(7, 1, 2, b"key", b"value"))
BAD = {
    "another offset": (0, struct.pack(">Q", 9), "the offset is 9 where 7 was expected"),
    "a negative key size": (17, b"\x80", "the key size is -128"),
    "a negative value size": (21, struct.pack(">i", -1), "the value size is -1"),
    "a value too large for a message": (
        21,
        struct.pack(">i", MAX_MESSAGE_BYTES - 28),
        "a value size of 2147483619 does not fit a message",
    ),
    "another size at the end": (30, struct.pack(">i", 35), "size 35 does not match the 34 bytes read"),
    "a negative size at the end": (30, struct.pack(">i", -34), "size -34 does not match the 34 bytes read"),
    "a shorter value": (21, struct.pack(">i", 1), "size 1634497893 does not match the 30 bytes read"),
}


@pytest.mark.parametrize(("position", "patch", "reason"), BAD.values(), ids=BAD)
def test_malformed_message_is_reported_with_the_reason(position: int, patch: bytes, reason: str) -> None:
    data = b"ab" + overwrite(WHOLE, position, patch)
    with pytest.raises(Malformed) as failure:
        codec.decode(data, 2, expected=7)
    assert (failure.value.position, failure.value.reason) == (2, reason)
    assert str(failure.value) == f"@ 2: {reason}"
    assert codec.explain(data, 2, len(data), 7) == reason


def test_truncated_message_reports_the_available_bytes() -> None:
    assert codec.explain(WHOLE, 0, 10, 7) == "only 10 bytes are there"
    assert codec.explain(WHOLE, 0, 20, 7) == "only 20 bytes are there"
    assert codec.explain(WHOLE, 0, 30, 7) == "only 30 of the message's 34 bytes are there"
    assert codec.explain(WHOLE, 0, 34, 7) == "the message is whole"


def test_largest_claim_that_fits_needs_more_and_the_next_is_malformed() -> None:
    fits = overwrite(WHOLE, 21, struct.pack(">i", MAX_MESSAGE_BYTES - 29))
    assert codec.decode(fits) is NEED_MORE
    assert codec.claimed_size(fits, 0, len(fits)) == MAX_MESSAGE_BYTES


# --- going from message to message ----------------------------------------------------------------------------------

FIRST, SECOND, THIRD = (
    codec.encode(Message(offset, stamp, 0, b"", b"v")) for offset, stamp in ((5, 9), (6, None), (7, 3))
)
ALL = FIRST + SECOND + THIRD
SIZE = len(FIRST)
WALKS = {
    "to the end": (ALL, (3 * SIZE, 3, CLEAN, 3, 9)),
    "nothing": (b"", (0, 0, CLEAN, MAX_TIMESTAMP, NO_TIMESTAMP)),
    "cut in a value": (ALL[:-6], (2 * SIZE, 2, INCOMPLETE, 9, 9)),
    "cut in a head": (ALL[: SIZE + 17], (SIZE, 1, INCOMPLETE, 9, 9)),
    "zeros after": (FIRST + bytes(40), (SIZE, 1, MALFORMED, 9, 9)),
    "few zeros after": (FIRST + bytes(17), (SIZE, 1, INCOMPLETE, 9, 9)),
    "noise after": (FIRST + b"\xf0" * 22, (SIZE, 1, MALFORMED, 9, 9)),
    "a message left out": (FIRST + THIRD, (SIZE, 1, UNEXPECTED_OFFSET, 9, 9)),
    "a message twice": (FIRST + FIRST, (SIZE, 1, UNEXPECTED_OFFSET, 9, 9)),
    "another offset, cut short": (FIRST + THIRD[:-1], (SIZE, 1, MALFORMED, 9, 9)),
    "a negative key size": (FIRST + overwrite(SECOND, 17, b"\xff"), (SIZE, 1, MALFORMED, 9, 9)),
    "a negative value size": (FIRST + overwrite(SECOND, 18, b"\xff"), (SIZE, 1, MALFORMED, 9, 9)),
    "another size at the end": (FIRST + overwrite(SECOND, SIZE - 1, b"\x00") + THIRD, (SIZE, 1, MALFORMED, 9, 9)),
    "no timestamps": (SECOND, (0, 0, UNEXPECTED_OFFSET, MAX_TIMESTAMP, NO_TIMESTAMP)),
}


@pytest.mark.parametrize(("data", "answer"), WALKS.values(), ids=WALKS)
def test_walk_ends_after_the_last_message_and_returns_the_reason(
    data: bytes, answer: tuple[int, int, int, int, int]
) -> None:
    assert codec.walk(data, 0, len(data), 5) == answer


def test_walk_stops_at_the_given_end() -> None:
    assert codec.walk(ALL, 0, len(ALL), 5, 2) == (2 * SIZE, 2, CLEAN, 9, 9)
    assert codec.walk(ALL, 0, len(ALL), 5, 0) == (0, 0, CLEAN, MAX_TIMESTAMP, NO_TIMESTAMP)
    assert codec.walk(ALL, SIZE, len(ALL), 6, 1) == (2 * SIZE, 1, CLEAN, MAX_TIMESTAMP, NO_TIMESTAMP)


def test_walked_messages_are_returned_as_objects_spans_and_columns() -> None:
    assert [message.offset for message in codec.messages(ALL, 0, len(ALL), 3)] == [5, 6, 7]
    assert list(codec.spans(ALL, 0, len(ALL), 3)) == [0, SIZE, 2 * SIZE, 3 * SIZE]
    columns = codec.columns(ALL, 0, len(ALL), 3, base=1000)
    assert columns.count == 3
    assert array("Q", bytes(columns.offsets or b"")).tolist() == [5, 6, 7]
    assert array("q", bytes(columns.timestamps or b"")).tolist() == [9, NO_TIMESTAMP, 3]
    assert columns.untimed == 1
    assert array("i", bytes(columns.value_ends or b"")).tolist() == [0, 1, 2, 3]
    assert bytes(columns.values or b"") == b"vvv"
    assert array("i", bytes(columns.key_ends or b"")).tolist() == [0, 0, 0, 0]
    assert array("Q", bytes(columns.positions or b"")).tolist() == [1000, 1000 + SIZE, 1000 + 2 * SIZE]
    assert array("i", bytes(columns.sizes or b"")).tolist() == [SIZE] * 3


def test_only_requested_columns_are_built() -> None:
    columns = codec.columns(ALL, 0, len(ALL), 3, codec.TYPES)
    assert columns.types is not None
    assert columns.offsets is columns.timestamps is columns.keys is columns.values is columns.positions is None


@pytest.mark.parametrize("count", [-1, 4, 10**12])
def test_impossible_number_of_messages_is_refused(count: int) -> None:
    for function in (codec.messages, codec.spans, codec.columns):
        with pytest.raises(Malformed, match="was not walked"):
            function(ALL, 0, len(ALL), count)


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (5, 4), (0, len(ALL) + 1)])
def test_range_outside_of_its_buffer_is_refused(start: int, end: int) -> None:
    for use in (
        lambda: codec.walk(ALL, start, end, 5),
        lambda: codec.spans(ALL, start, end, 1),
        lambda: codec.find_head(ALL, start, end, 0, 9, 9),
    ):
        with pytest.raises(WrongUse, match="not within a buffer"):
            use()


def test_next_message_after_bad_bytes_is_found() -> None:
    data = b"\x00bad bytes" + ALL
    assert codec.find_head(data, 0, len(data), 5, 100, len(data)) == 10
    assert codec.find_head(data, 11, len(data), 5, 100, len(data)) == 10 + SIZE
    assert codec.find_head(data, 0, len(data), 7, 100, len(data)) == 10 + 2 * SIZE
    assert codec.find_head(data, 0, len(data), 8, 100, len(data)) == -1


def test_zeros_are_not_the_beginning_of_a_message() -> None:
    data = bytes(1000) + codec.encode(Message(0, 1, 1, b"", b"v"))
    assert codec.find_head(data, 0, len(data), 0, 100, len(data)) == 1000


def test_head_without_its_end_is_a_candidate_if_it_fits() -> None:
    large = codec.encode(Message(5, 1, 1, b"", bytes(500)))[:100]
    assert codec.find_head(large, 0, 100, 5, 5, 1000) == 0
    assert codec.find_head(large, 0, 100, 5, 5, 525) == -1


# --- what a message is ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Message, PlainMessage], ids=["compiled", "plain"])
def test_message_is_a_value(kind: type[Message]) -> None:
    message, same = kind(1, 2, 3, b"k", b"v"), kind(1, 2, 3, b"k", b"v")
    assert message == same
    assert hash(message) == hash(same)
    assert message != kind(1, 2, 3, b"k", b"w")
    other: object = "a message"
    assert message != other
    assert repr(message) == "Message(offset=1, timestamp=2, type=3, key=b'k', value=b'v')"
    with pytest.raises(AttributeError):
        message.offset = 5  # type: ignore[misc]
    match message:
        case kind(offset, timestamp, type, key, value):
            assert (offset, timestamp, type, key, value) == (1, 2, 3, b"k", b"v")


def test_message_can_be_sent_to_another_process() -> None:
    message = Message(1, None, 3, b"k", b"v")
    assert pickle.loads(pickle.dumps(message)) == message


WRONG = {
    "an offset below 0": (-1, 0, 0, b"", b""),
    "an offset beyond 64 bits": (MAX_OFFSET + 1, 0, 0, b"", b""),
    "the time that means none": (0, NO_TIMESTAMP, 0, b"", b""),
    "a time beyond 64 bits": (0, 2**63, 0, b"", b""),
    "a type below 0": (0, 0, -1, b"", b""),
    "a type beyond 8 bits": (0, 0, 256, b"", b""),
    "a key of 128 bytes": (0, 0, 0, bytes(128), b""),
}


@pytest.mark.parametrize("fields", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("kind", [Message, PlainMessage], ids=["compiled", "plain"])
def test_message_that_the_format_cannot_hold_is_not_encoded(kind: type[Message], fields: tuple[object, ...]) -> None:
    with pytest.raises(WrongUse):
        codec.encode(kind(*fields))  # type: ignore[arg-type]


def test_too_long_key_is_refused_with_its_length() -> None:
    with pytest.raises(TooLarge, match="the key has 128 bytes, a sej key has at most 127"):
        codec.encode(Message(0, 0, 0, bytes(128), b""))


def test_now_has_a_readable_repr() -> None:
    assert repr(NOW) == "NOW"


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("0000000000000000.jnl", 0),
        ("000000000000000a.jnl", 10),
        ("000000000000000A.jnl", 10),
        ("ffffffffffffffff.jnl", MAX_OFFSET),
        ("a.jnl", 10),
        ("00000000000000000a.jnl", 10),
    ],
)
def test_name_of_a_segment_is_its_first_offset(name: str, offset: int) -> None:
    assert parse_segment_name(name) == offset
    assert parse_segment_name(segment_name(offset)) == offset


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".jnl",
        "..jnl",
        "0000000000000000",
        "0000000000000000.jnl~",
        "0000000000000000.jnl.crc",
        "0000000000000000.jnl\n",
        "../0000000000000000.jnl",
        "-1.jnl",
        "0x10.jnl",
        "g.jnl",
        "10000000000000000.jnl",
        "٠.jnl",
    ],
)
def test_other_names_are_not_segments(name: str) -> None:
    assert parse_segment_name(name) is None
