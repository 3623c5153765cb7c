"""The hub's wire format: our encoding is that of the protobuf package, and that of other encoders is understood.

Kernel and plain Python must return the same results on any bytes.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings, strategies

from logwright.core.bytes.compiled import COMPILED
from logwright.core.bytes.outcome import Malformed
from logwright.errors import LogwrightError, TooLarge, WrongUse
from logwright.sej.bytes import codec, protobuf, wire
from logwright.sej.bytes.layout import MAX_OFFSET, MAX_TIMESTAMP, NO_TIMESTAMP
from logwright.sej.bytes.protobuf import bytes_field, number_field
from logwright.sej.bytes.records import PlainMessage
from tests.servers.hub.wire_messages import GetResponse, Message, PutRequest
from tests.support.counts import COUNTS

compiled = pytest.importorskip("logwright.sej.bytes._protobuf", reason="the kernel is not built")
PROPERTY = settings(derandomize=True, deadline=None, database=None, max_examples=300)
MOST = 1 << 20

MESSAGES = strategies.lists(
    strategies.tuples(
        strategies.one_of(strategies.none(), strategies.integers(NO_TIMESTAMP + 1, MAX_TIMESTAMP)),
        strategies.integers(0, 255),
        strategies.binary(max_size=127),
        strategies.binary(max_size=300),
    ),
    max_size=12,
)
OFFSETS = strategies.one_of(strategies.integers(0, 1000), strategies.integers(0, MAX_OFFSET - 20))


def made(first: int, rows: list[Any]) -> list[PlainMessage]:
    return [PlainMessage(first + number, *row) for number, row in enumerate(rows)]


def frames_of(messages: list[PlainMessage]) -> bytes:
    return b"".join(codec.encode(message) for message in messages)


def as_protobuf(message: PlainMessage) -> Any:
    timestamp = NO_TIMESTAMP if message.timestamp is None else message.timestamp
    return Message(Offset=message.offset, Timestamp=timestamp, Type=message.type, Key=message.key, Value=message.value)


def frames_in(parsed: Any) -> bytes:
    """Messages that the protobuf package has decoded, as stored in a segment."""
    return b"".join(codec._encode(m.Offset, m.Timestamp, m.Type, m.Key, m.Value) for m in parsed.Messages)


def both(function: str, *arguments: Any) -> Any:
    """The result of both twins: the same, or an error of the same type and message."""
    answers = []
    for twin in (protobuf, compiled):
        try:
            answers.append(getattr(twin, function)(*arguments))
        except (LogwrightError, Malformed) as error:
            answers.append((type(error), str(error)))
    assert answers[0] == answers[1]
    return answers[1]


@PROPERTY
@given(OFFSETS, MESSAGES, strategies.sampled_from([1, 3]))
def test_messages_are_encoded_like_protobuf(first: int, rows: list[Any], field: int) -> None:
    messages = made(first, rows)
    frames = frames_of(messages)
    kind = GetResponse if field == 1 else PutRequest
    expected = kind(Messages=map(as_protobuf, messages)).SerializeToString()
    assert both("to_wire", frames, 0, len(frames), len(messages), field) == expected
    found = both("from_wire", expected, field, MOST)
    times = [message.timestamp for message in messages if message.timestamp is not None]
    assert found == (
        frames,
        first if messages else 0,
        len(messages),
        min(times, default=MAX_TIMESTAMP),
        max(times, default=NO_TIMESTAMP),
        {},
    )


def test_fields_of_a_request_are_read_by_number_and_the_last_wins() -> None:
    request = PutRequest(ClientID="web", JournalDir="orders", Messages=[Message(Offset=7)]).SerializeToString()
    frames, first, count, *_, others = both("from_wire", request + number_field(30, 5) + bytes_field(1, b"x"), 3, MOST)
    assert (first, count, others) == (7, 1, {1: b"x", 2: b"orders", 30: 5})
    assert frames == frames_of([PlainMessage(7, 0, 0, b"", b"")])


# --- what others may send -------------------------------------------------------------------------------------------


def varint(chance: random.Random, number: int) -> bytes:
    """A number as any encoder may write it: sometimes with more bytes than necessary."""
    out = bytearray(protobuf._varint(number))
    while chance.random() < 0.1 and len(out) < 10:
        out[-1] |= 128
        out.append(0)
    return bytes(out)


def odd_field(chance: random.Random, kinds: tuple[int, ...] = (0, 1, 2, 3, 5)) -> bytes:
    """A field that no message has."""
    kind = chance.choice(kinds)
    number = chance.choice([6, 9, 15, 16, 100, 2**29 - 1])
    tag = protobuf._varint(number << 3 | kind)
    if kind == 3:
        inner = b"".join(odd_field(chance) for _ in range(chance.randrange(3)))
        return tag + inner + protobuf._varint(number << 3 | 4)
    body = {0: varint(chance, chance.getrandbits(chance.choice([3, 30, 64]))), 1: bytes(8), 5: bytes(4)}
    return tag + body.get(kind, protobuf._varint(3) + b"abc")


def scrambled(chance: random.Random, message: PlainMessage, kinds: tuple[int, ...] = (0, 1, 2, 3, 5)) -> bytes:
    """A message in any order of fields, with doubled and unknown ones."""
    timestamp = NO_TIMESTAMP if message.timestamp is None else message.timestamp
    fields = [
        (b"\x08", varint(chance, message.offset)),
        (b"\x10", varint(chance, timestamp & 2**64 - 1)),
        (b"\x18", varint(chance, message.type)),
        (b"\x22", varint(chance, len(message.key)) + message.key),
        (b"\x2a", varint(chance, len(message.value)) + message.value),
    ]
    noise = [tag + (b"\x05" if tag < b"\x20" else b"\x02zz") for tag, _ in fields if chance.random() < 0.2]
    noise += [odd_field(chance, kinds) for _ in range(chance.randrange(3))]
    chance.shuffle(noise)
    chance.shuffle(fields)
    return b"".join(noise) + b"".join(tag + body for tag, body in fields)


def test_fields_in_any_order_repeated_unknown_or_overlong_are_parsed() -> None:
    chance = random.Random(5)
    for _ in range(400):
        first = chance.choice([0, 1, 127, 128, 2**40])
        rows = [
            (
                chance.choice([None, 0, -1, 2**62]),
                chance.randrange(256),
                chance.randbytes(chance.choice([0, 1, 127])),
                chance.randbytes(chance.randrange(200)),
            )
            for _ in range(chance.randrange(1, 5))
        ]
        messages = made(first, rows)
        parts = [bytes_field(3, scrambled(chance, message)) for message in messages]
        data = b"".join(part + (odd_field(chance) if chance.random() < 0.5 else b"") for part in parts)
        parsed = PutRequest.FromString(data)
        assert frames_in(parsed) == frames_of(messages), "the test's own encoder is right"
        assert both("from_wire", data, 3, MOST)[:3] == (frames_of(messages), first, len(messages))


def test_both_twins_agree_with_protobuf_on_any_bytes() -> None:
    chance = random.Random(11)
    taken = refused = 0
    for _ in range(6000):
        messages = made(3, [(chance.randrange(9), 1, b"key", chance.randbytes(chance.randrange(40)))] * 3)
        # Without groups: in unknown ones the package also accepts fields of number 0, which are invalid.
        parts = [bytes_field(3, scrambled(chance, message, (0, 1, 2, 5))) for message in messages]
        data = bytearray(b"".join(parts))
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(data))
            choice = chance.randrange(3)
            if choice == 0:
                data[place] ^= 1 << chance.randrange(8)
            elif choice == 1:
                del data[place : place + chance.randrange(1, 9)]
            else:
                data[place:place] = chance.randbytes(chance.randrange(1, 9))
            if not data:
                data = bytearray(b"\x1a")
        found = both("from_wire", bytes(data), 3, MOST)
        if isinstance(found[0], type):
            refused += 1
            if "no protobuf" in found[1]:
                with pytest.raises(DecodeError):
                    PutRequest.FromString(bytes(data))
            continue
        taken += 1
        try:
            parsed = PutRequest.FromString(bytes(data))
        except DecodeError:
            # It checks that names are UTF-8, and how tags are written, which does not concern messages.
            continue
        assert found[0] == frames_in(parsed)
    assert taken > 500
    assert refused > 500
    COUNTS.add("fuzzed inputs", 6000, "sej wire")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x1a", "no protobuf"),
        (b"\x1a\xff\xff\xff\xff\x0f", "no protobuf"),
        (b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "no protobuf"),
        (b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "no protobuf"),
        (b"\x00\x00", "no protobuf"),
        (b"\x1e", "no protobuf"),
        (b"\x34\x00", "no protobuf"),
        (b"\x33" * 65, "no protobuf"),
        (b"\x33\x3c", "no protobuf"),
        (b"\x1a\x03\x18\x80\x02", "type 256 is not within 0 and 255"),
        (b"\x1a\x04\x08\x05\x10\x01\x1a\x02\x08\x07", "@ 8: the offset is 7 where 6 was expected"),
        (b"\x1a\x04\x08\x05\x10\x01\x1a\x02\x08\x05", "the offset is 5 where 6 was expected"),
    ],
)
def test_invalid_request_is_refused_with_its_position(data: bytes, words: str) -> None:
    kind, message = both("from_wire", data, 3, MOST)
    assert kind is WrongUse
    assert words in message


def test_message_that_a_segment_cannot_hold_is_too_large() -> None:
    assert both("from_wire", bytes_field(3, bytes_field(4, bytes(128))), 3, MOST)[0] is TooLarge
    many = b"".join(bytes_field(3, number_field(1, number)) for number in range(1, 100))
    assert both("from_wire", many, 3, 99 * 26)[2] == 99
    assert both("from_wire", many, 3, 99 * 26 - 1)[0] is TooLarge


def test_unwalked_bytes_are_not_encoded() -> None:
    frames = frames_of(made(0, [(1, 2, b"k", b"v")] * 3))
    assert both("to_wire", frames, 0, len(frames) - 1, 3, 3)[0] is Malformed
    assert both("to_wire", frames, 0, len(frames), 4, 3)[0] is Malformed
    assert both("to_wire", frames, 0, len(frames) + 1, 3, 3)[0] is WrongUse
    assert both("to_wire", frames, 0, len(frames), 3, 16)[0] is WrongUse
    assert both("from_wire", b"", 0, MOST)[0] is WrongUse


def test_kernel_is_used_where_it_is_built() -> None:
    assert wire.to_wire is (compiled.to_wire if COMPILED else protobuf.to_wire)
