"""The bytes of a document, in both directions: one table of cases, and the errors for other bytes.

Every test runs for the codec and for its compiled twin, if that is built.
"""

from __future__ import annotations

import enum
import pickle
import struct
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from logwright.core.bytes.outcome import NEED_MORE
from logwright.errors import LogwrightError, WrongUse
from logwright.versioned.bytes import bonjson
from logwright.versioned.bytes.bonjson import layout
from logwright.versioned.bytes.bonjson.errors import DecodeError, EncodeError, Incomplete
from logwright.versioned.bytes.bonjson.layout import Limits
from tests.support.counts import COUNTS
from tests.support.damage import hostile_integers
from tests.versioned.bonjson.samples import EACH_TWIN, TWINS, answer_of

PROPERTY = settings(derandomize=True, deadline=None, database=None, max_examples=200)

CASES: dict[str, tuple[Any, str]] = {
    "null": (None, "6d"),
    "false": (False, "6e"),
    "true": (True, "6f"),
    "0": (0, "00"),
    "the largest integer in a code": (100, "64"),
    "one more": (101, "78 65"),
    "-1": (-1, "ff"),
    "the smallest integer in a code": (-100, "9c"),
    "one less": (-101, "78 9b"),
    "127": (127, "78 7f"),
    "128": (128, "70 80"),
    "255": (255, "70 ff"),
    "256": (256, "79 00 01"),
    "32767": (32767, "79 ff 7f"),
    "32768": (32768, "71 00 80"),
    "65280": (65280, "71 00 ff"),
    "65535": (65535, "71 ff ff"),
    "-128": (-128, "78 80"),
    "-129": (-129, "79 7f ff"),
    "-32768": (-32768, "79 00 80"),
    "-32769": (-32769, "7a ff 7f ff"),
    "a time in nanoseconds": (1_699_564_801_000_000_000, "7f 00 ca 5c 8c 2e 11 96 17"),
    "2**63 - 1": (2**63 - 1, "7f ff ff ff ff ff ff ff 7f"),
    "2**63": (2**63, "77 00 00 00 00 00 00 00 80"),
    "2**64 - 1": (2**64 - 1, "77 ff ff ff ff ff ff ff ff"),
    "-2**63": (-(2**63), "7f 00 00 00 00 00 00 00 80"),
    "0.0": (0.0, "6a 00 00"),
    "-0.0": (-0.0, "6a 00 80"),
    "1.0 stays a float": (1.0, "6a 80 3f"),
    "-1.5": (-1.5, "6a c0 bf"),
    "a float of 32 bits": (1 + 2.0**-20, "6b 08 00 80 3f"),
    "the smallest float of 32 bits": (2.0**-149, "6b 01 00 00 00"),
    "the largest float of 32 bits": (2.0**128 - 2.0**104, "6b ff ff 7f 7f"),
    "what would round to infinity in 32 bits": (2.0**128 - 2.0**103, "6c 00 00 00 f0 ff ff ef 47"),
    "0.1": (0.1, "6c 9a 99 99 99 99 99 b9 3f"),
    "the smallest float": (5e-324, "6c 01 00 00 00 00 00 00 00"),
    "the largest float": (1.7976931348623157e308, "6c ff ff ff ff ff ff ef 7f"),
    "an empty string": ("", "80"),
    "one letter": ("A", "81 41"),
    "a string of 8 bytes": ("a string", "88 61 20 73 74 72 69 6e 67"),
    "the longest short string": ("15 byte string!", f"8f {b'15 byte string!'.hex()}"),
    "the shortest long string": ("x" * 16, f"68 41 {'78' * 16}"),
    "the longest with a length of one byte": ("x" * 63, f"68 fd {'78' * 63}"),
    "a length of two bytes": ("x" * 64, f"68 02 02 {'78' * 64}"),
    "the longest with a length of two bytes": ("x" * 8191, f"68 fa ff {'78' * 8191}"),
    "a length of three bytes": ("x" * 8192, f"68 04 00 02 {'78' * 8192}"),
    "NUL": ("a\0b", "83 61 00 62"),
    "letters of three bytes": ("おはよう", "8c e3 81 8a e3 81 af e3 82 88 e3 81 86"),
    "the end of Unicode": ("\U0010ffff", "84 f4 8f bf bf"),
    "bytes count, not letters": ("ü" * 8, f"68 41 {'c3bc' * 8}"),
    "an empty array": ([], "99 9b"),
    "an empty object": ({}, "9a 9b"),
    "an array": ([1, "x", None, [], {}], "99 01 81 78 6d 99 9b 9a 9b 9b"),
    "an object": ({"b": 1, "a": {"c": [2.0]}}, "9a 81 62 01 81 61 9a 81 63 99 6a 00 40 9b 9b 9b"),
    "an empty key": ({"": 1}, "9a 80 01 9b"),
    "keys that differ only by NUL": ({"a": 1, "a\0": 2}, "9a 81 61 01 82 61 00 02 9b"),
    "a long key": ({"k" * 16: -1}, f"9a 68 41 {'6b' * 16} ff 9b"),
    "an entry of a journal": (
        {"t": 1_699_564_801_000_000_000, "k": "key1", "o": "value1"},
        "9a 81 74 7f 00 ca 5c 8c 2e 11 96 17 81 6b 84 6b 65 79 31 81 6f 86 76 61 6c 75 65 31 9b",
    ),
}
EACH_CASE = pytest.mark.parametrize(
    ("value", "data"), [(value, bytes.fromhex(text)) for value, text in CASES.values()], ids=CASES
)


@EACH_TWIN
@EACH_CASE
def test_value_is_encoded_in_its_smallest_form(twin: ModuleType, value: Any, data: bytes) -> None:
    assert twin.encode(value) == data


@EACH_TWIN
@EACH_CASE
def test_complete_document_is_decoded(twin: ModuleType, value: Any, data: bytes) -> None:
    for buffer in (data, bytearray(data), memoryview(data)):
        assert repr(twin.decode(buffer)) == repr(value)
    assert twin.size_of(data) == len(data)


@EACH_TWIN
@EACH_CASE
def test_document_is_decoded_with_other_bytes_around_it(twin: ModuleType, value: Any, data: bytes) -> None:
    buffer = b"abc" + data + b"\x9b\xff\x68"
    end = 3 + len(data)
    assert repr(twin.decode_prefix(buffer, 3)) == repr((value, end))
    assert repr(twin.decode_prefix(memoryview(buffer), 3, end)) == repr((value, end))
    assert twin.size_of(buffer, 3) == twin.size_of(buffer, 3, end) == len(data)


@EACH_TWIN
@EACH_CASE
def test_bytes_after_a_complete_document_are_refused(twin: ModuleType, value: Any, data: bytes) -> None:
    with pytest.raises(DecodeError) as failure:
        twin.decode(data + b"\0\0")
    assert (failure.value.position, failure.value.reason) == (len(data), "2 bytes follow the document")
    assert not isinstance(failure.value, Incomplete)


@EACH_TWIN
@EACH_CASE
def test_truncated_document_needs_more(twin: ModuleType, value: Any, data: bytes) -> None:
    buffer = b"abc" + data + b"more"
    for end in range(3, 3 + len(data)):
        assert twin.size_of(buffer, 3, end) is NEED_MORE
        with pytest.raises(Incomplete) as failure:
            twin.decode_prefix(buffer, 3, end)
        assert 3 <= failure.value.position <= end
    with pytest.raises(Incomplete):
        twin.decode(data[:-1])
    COUNTS.add("torn tails", len(data), "bonjson")


# --- encodings that are read but not written --------------------------------------------------------------------------

OTHER_FORMS: dict[str, tuple[str, Any]] = {
    "a small integer with a byte": ("78 05", 5),
    "an unsigned byte": ("70 05", 5),
    "an unsigned integer of 8 bytes": ("77 05 00 00 00 00 00 00 00", 5),
    "a signed integer of 3 bytes": ("7a c8 00 00", 200),
    "-1 in 8 bytes": ("7f ff ff ff ff ff ff ff ff", -1),
    "1.0 in 4 bytes": ("6b 00 00 80 3f", 1.0),
    "1.0 in 8 bytes": ("6c 00 00 00 00 00 00 f0 3f", 1.0),
    "a short string in the long form": ("68 05 61", "a"),
    "an empty string in the long form": ("68 01", ""),
    "a length in 2 bytes": ("68 0a 00 61", "a"),
    "a length in 8 bytes": ("68 80 02 00 00 00 00 00 00 61", "a"),
    "a length in 9 bytes": ("68 00 02 00 00 00 00 00 00 00 61", "a"),
    "three chunks": ("68 07 61 13 20 73 74 72 0d 69 6e 67", "a string"),
    "an empty last chunk": ("68 07 61 01", "a"),
    "an empty first chunk": ("68 03 05 61", "a"),
    "a letter in two chunks": ("68 07 c3 05 bc", "ü"),
    "a key in two chunks": ("9a 68 07 61 05 62 01 9b", {"ab": 1}),
}


@EACH_TWIN
@pytest.mark.parametrize(("text", "value"), OTHER_FORMS.values(), ids=OTHER_FORMS)
def test_other_encodings_are_read(twin: ModuleType, text: str, value: Any) -> None:
    data = bytes.fromhex(text)
    assert repr(twin.decode(data)) == repr(value)
    assert twin.size_of(data + b"\0") == len(data)
    for end in range(len(data)):
        assert twin.size_of(data, 0, end) is NEED_MORE


@EACH_TWIN
def test_second_value_of_a_key_is_refused_or_wins(twin: ModuleType) -> None:
    data = bytes.fromhex("9a 81 61 01 81 62 02 68 05 61 03 9b")
    with pytest.raises(DecodeError, match=r"^@ 7: the object has this key already$"):
        twin.decode(data)
    found = twin.decode(data, last_key_wins=True)
    assert found == {"a": 3, "b": 2}
    assert list(found) == ["a", "b"]
    assert twin.size_of(data) == len(data)


@EACH_TWIN
def test_same_key_in_two_objects_is_not_a_duplicate(twin: ModuleType) -> None:
    value = {"a": {"a": [{"a": 1}, {"a": 2}]}}
    assert twin.decode(twin.encode(value)) == value


@EACH_TWIN
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("6a 80 7f", "inf"),
        ("6a 80 ff", "-inf"),
        ("6a c0 7f", "nan"),
        ("6b 00 00 80 ff", "-inf"),
        ("6c 01 00 00 00 00 00 f0 7f", "nan"),
    ],
)
def test_non_finite_numbers_are_read_on_request(twin: ModuleType, text: str, number: str) -> None:
    data = b"\x99" + bytes.fromhex(text) + b"\x9b"
    assert repr(twin.decode(data, allow_nan=True)) == f"[{number}]"
    assert twin.size_of(data, allow_nan=True) == len(data)
    for read in (twin.decode, twin.size_of):
        with pytest.raises(DecodeError, match=r"^@ 1: the number is infinite or NaN"):
            read(data)


# --- bytes that are no document ---------------------------------------------------------------------------------------

BAD: dict[str, tuple[str, int, str]] = {
    "a reserved code": ("65", 0, "the type code 0x65 is reserved"),
    "a reserved code in an array": ("99 01 98 9b", 2, "the type code 0x98 is reserved"),
    "a reserved code as a value": ("9a 81 61 90", 3, "the type code 0x90 is reserved"),
    "a big number": ("99 69 0a ff 0f", 1, "big numbers are not supported"),
    "an end without a beginning": ("9b", 0, "the end of a container, and none is open"),
    "an end where a value is due": ("9a 81 61 9b", 3, "the object ends where the value of a key is due"),
    "a number as a key": ("9a 01", 1, "the key of an object must be a string, and the type code is 0x01"),
    "null as a key": ("99 9a 6d", 2, "the key of an object must be a string, and the type code is 0x6d"),
    "an array as a key": ("9a 99 9b", 1, "the key of an object must be a string, and the type code is 0x99"),
    "a reserved code as a key": ("9a 90", 1, "the key of an object must be a string, and the type code is 0x90"),
    "infinity": ("6b 00 00 80 7f", 0, "the number is infinite or NaN"),
    "a lone continuation byte": ("81 80", 0, "the string is not UTF-8 from its byte 0 on"),
    "a letter without its end": ("83 61 62 c3", 0, "the string is not UTF-8 from its byte 2 on"),
    "an overlong NUL": ("99 82 c0 80", 1, "the string is not UTF-8 from its byte 0 on"),
    "an overlong letter of three bytes": ("83 e0 9f bf", 0, "the string is not UTF-8 from its byte 0 on"),
    "an overlong letter of four bytes": ("85 61 f0 8f bf bf", 0, "the string is not UTF-8 from its byte 1 on"),
    "a surrogate": ("83 ed a0 80", 0, "the string is not UTF-8 from its byte 0 on"),
    "beyond Unicode": ("84 f4 90 80 80", 0, "the string is not UTF-8 from its byte 0 on"),
    "a wrong third byte": ("83 e2 82 41", 0, "the string is not UTF-8 from its byte 0 on"),
    "noise deep in a long string": (f"68 a1 {'61' * 39} ff", 0, "the string is not UTF-8 from its byte 39 on"),
    "half a letter in the last chunk": ("68 07 61 05 c3", 0, "the string is not UTF-8 from its byte 1 on"),
    "a key that is no text": ("9a 81 ff 01", 1, "the string is not UTF-8 from its byte 0 on"),
}


@EACH_TWIN
@pytest.mark.parametrize(("text", "position", "reason"), BAD.values(), ids=BAD)
def test_invalid_document_is_reported_with_position_and_reason(
    twin: ModuleType, text: str, position: int, reason: str
) -> None:
    data = bytes.fromhex(text)
    for read, start in ((twin.decode, 0), (twin.decode_prefix, 3), (twin.size_of, 3)):
        with pytest.raises(DecodeError) as failure:
            read(bytes(start) + data, start) if start else read(data)
        assert (failure.value.position, failure.value.reason) == (start + position, reason)
        assert str(failure.value) == f"@ {start + position}: {reason}"
        assert not isinstance(failure.value, Incomplete)


@EACH_TWIN
def test_truncated_bytes_report_how_many_are_missing(twin: ModuleType) -> None:
    for text, position, reason in (
        ("", 0, "1 more bytes are due here, and only 0 are there"),
        ("99", 1, "1 more bytes are due here, and only 0 are there"),
        ("7c 11 11", 1, "5 more bytes are due here, and only 2 are there"),
        ("68 80 01", 2, "7 more bytes are due here, and only 1 are there"),
        ("68 00 fe ff ff ff ff ff ff ff 61", 10, "9223372036854775807 more bytes are due here, and only 1 are there"),
    ):
        with pytest.raises(Incomplete) as failure:
            twin.decode(bytes.fromhex(text))
        assert (failure.value.position, failure.value.reason) == (position, reason)


def test_errors_are_logwright_errors_and_can_be_pickled() -> None:
    for error in (DecodeError(3, "why"), Incomplete(4, "why"), EncodeError(("a", 1), "why")):
        assert isinstance(error, LogwrightError)
        assert isinstance(error, ValueError)
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), again.args, str(again)) == (type(error), error.args, str(error))
    assert isinstance(EncodeError((), "why"), WrongUse)


@EACH_TWIN
@pytest.mark.parametrize(("start", "end"), [(-1, None), (4, None), (0, 4), (2, 1), (0, -1)])
def test_range_outside_of_the_bytes_is_wrong_use(twin: ModuleType, start: int, end: int | None) -> None:
    for read in (twin.decode_prefix, twin.size_of):
        with pytest.raises(WrongUse, match="is not within a buffer of 3 bytes"):
            read(b"\x81a\0", start, end)


@EACH_TWIN
def test_text_is_not_accepted_as_bytes(twin: ModuleType) -> None:
    for read in (twin.decode, twin.decode_prefix, twin.size_of):
        with pytest.raises(TypeError):
            read("\x00")


def hostile_lengths() -> Iterator[bytes]:
    """Long strings, alone and as values and keys, whose lengths are wrong."""
    fields = [b"\0" + pattern for pattern in hostile_integers(8)]
    for width in range(1, 9):
        for pattern in hostile_integers(8):
            number = int.from_bytes(pattern, "little") >> (64 - 7 * width)
            fields.append((number << width | 1 << (width - 1)).to_bytes(width, "little"))
    for field in fields:
        for tail in (b"", b"a", b"\x03" * 20):
            yield b"\x68" + field + tail
            yield b"\x99\x68" + field + tail
            yield b"\x9a\x68" + field + tail
            yield b"\x68\x07a" + field + tail


@EACH_TWIN
def test_claimed_lengths_are_checked(twin: ModuleType) -> None:
    count = 0
    for data in hostile_lengths():
        try:
            value, end = twin.decode_prefix(data)
        except DecodeError:
            pass
        else:
            assert end <= len(data)
            assert len(value) <= len(data)
        count += 1
    COUNTS.add("hostile inputs", count, "bonjson")
    assert count > 1000


# --- limits -----------------------------------------------------------------------------------------------------------


def depth_of(value: Any) -> int:
    """The depth of nested containers that have at most one value each."""
    depth = 0
    while isinstance(value, list | dict):
        depth += 1
        if not value:
            break
        value = value[0] if isinstance(value, list) else next(iter(value.values()))
    return depth


@EACH_TWIN
@pytest.mark.parametrize(("begin", "end"), [(b"\x99", b"\x9b"), (b"\x9a\x81a", b"\x9b")], ids=["arrays", "objects"])
def test_nesting_ends_at_the_limit(twin: ModuleType, begin: bytes, end: bytes) -> None:
    deepest = begin * 500 + b"\0" + end * 500
    assert depth_of(twin.decode(deepest)) == 500
    assert twin.size_of(deepest) == len(deepest)
    assert twin.encode(twin.decode(deepest)) == deepest
    deeper = begin * 501 + b"\0" + end * 501
    for read in (twin.decode, twin.size_of):
        with pytest.raises(DecodeError, match=f"^@ {500 * len(begin)}: nested deeper than the limit of 500$"):
            read(deeper)


@EACH_TWIN
def test_depth_does_not_use_the_stack(twin: ModuleType) -> None:
    limits = Limits(depth=20_000)
    data = b"\x99" * 20_000 + b"\x9b" * 20_000
    assert twin.size_of(data, limits=limits) == 40_000
    value = twin.decode(data, limits=limits)
    assert depth_of(value) == 20_000
    assert twin.encode(value, limits=limits) == data
    while value:
        value = value.pop()
    assert twin.size_of(b"\x99" * 20_000, limits=limits) is NEED_MORE
    with pytest.raises(Incomplete):
        twin.decode(b"\x9a\x80" * 20_000, limits=limits)


@EACH_TWIN
def test_document_ends_at_its_limit(twin: ModuleType) -> None:
    data = twin.encode(["abc", 1.1, {"k": [1000]}])
    assert twin.decode(data, limits=Limits(document_bytes=len(data))) == ["abc", 1.1, {"k": [1000]}]
    for size in range(len(data)):
        limits = Limits(document_bytes=size)
        reason = f"the document is larger than the limit of {size} bytes"
        for read in (twin.decode, twin.size_of):
            with pytest.raises(DecodeError, match=reason):
                read(data, limits=limits)
        with pytest.raises(DecodeError, match=reason):
            twin.decode_prefix(b"abc" + data, 3, limits=limits)
        with pytest.raises(EncodeError, match=reason):
            twin.encode(["abc", 1.1, {"k": [1000]}], limits=limits)


@EACH_TWIN
@pytest.mark.parametrize("text", ["85 61 61 61 61 61", "68 15 61 61 61 61 61", "68 0b 61 61 0d 61 61 61"])
def test_string_ends_at_its_limit(twin: ModuleType, text: str) -> None:
    data = b"\x9a" + bytes.fromhex(text) + b"\0\x9b"
    assert twin.decode(data, limits=Limits(string_bytes=5)) == {"aaaaa": 0}
    for read in (twin.decode, twin.size_of):
        with pytest.raises(DecodeError, match=r"^@ 1: a string of 5 bytes is larger than the limit of 4$"):
            read(data, limits=Limits(string_bytes=4))
    assert twin.encode("ü", limits=Limits(string_bytes=2)) == b"\x82\xc3\xbc"
    with pytest.raises(EncodeError, match="the string of 2 bytes is larger than the limit of 1"):
        twin.encode(["ü"], limits=Limits(string_bytes=1))


@EACH_TWIN
@pytest.mark.parametrize("value", [[0, [], 0], {"a": 0, "b": {}, "c": 0}], ids=["array", "object"])
def test_container_ends_at_its_limit(twin: ModuleType, value: Any) -> None:
    data = twin.encode(value, limits=Limits(container_items=3))
    assert twin.decode(data, limits=Limits(container_items=3)) == value
    for read in (twin.decode, twin.size_of):
        with pytest.raises(DecodeError, match="the container has more items than the limit of 2"):
            read(data, limits=Limits(container_items=2))
    with pytest.raises(EncodeError, match="3 items are more than the limit of 2 in a container"):
        twin.encode(value, limits=Limits(container_items=2))


@pytest.mark.parametrize("wrong", [-1, 2**63, 1.5, None])
def test_limit_is_a_number_from_0_on(wrong: Any) -> None:
    with pytest.raises(WrongUse, match="the limit depth is"):
        Limits(depth=wrong)


# --- values that cannot be written ------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Any, str]] = {
    "bytes": (b"abc", "$: a bytes cannot be stored as JSON"),
    "a set in an object": ({"a": [0, {"b c": {1}}]}, '$.a[1]["b c"]: a set cannot be stored as JSON'),
    "a complex number": ([1, 2j], "$[1]: a complex cannot be stored as JSON"),
    "NaN": ({"a": float("nan")}, "$.a: nan cannot be stored as JSON"),
    "infinity": ([[float("-inf")]], "$[0][0]: -inf cannot be stored as JSON"),
    "2**64": ({"n": 2**64}, "$.n: the integer is outside of -2**63..2**64-1"),
    "below -2**63": ([-(2**63) - 1], "$[0]: the integer is outside of -2**63..2**64-1"),
    "an enormous integer": (10**400, "$: the integer is outside of -2**63..2**64-1"),
    "a key that is a number": ({"a": {1: 2}}, "$.a: the key 1 of an object is not a string"),
    "a key that is None": ([{None: 2}], "$[0]: the key None of an object is not a string"),
    "a lone surrogate": (["x", "\ud800"], "$[1]: the string has a lone surrogate, which UTF-8 cannot hold"),
    "a lone surrogate in a key": (
        {"a": {"\udc80": 1}},
        r"$.a: the key '\udc80' has a lone surrogate, which UTF-8 cannot hold",
    ),
    "a key that is no name": ({'quo"te': object}, r'$["quo\"te"]: a type cannot be stored as JSON'),
}


@EACH_TWIN
@pytest.mark.parametrize(("value", "message"), REFUSED.values(), ids=REFUSED)
def test_unsupported_value_is_named_by_its_path(twin: ModuleType, value: Any, message: str) -> None:
    with pytest.raises(EncodeError) as failure:
        twin.encode(value)
    assert str(failure.value) == message


@EACH_TWIN
def test_recursive_value_is_too_deep(twin: ModuleType) -> None:
    value: list[Any] = [1]
    value += [value, value]
    with pytest.raises(EncodeError, match=r"nested deeper than the limit of 500$") as failure:
        twin.encode({"a": value})
    assert failure.value.path == ("a", *[1] * 499)
    assert str(failure.value).startswith("$.a[1][1]")
    assert len(str(failure.value)) < 200


class Colour(enum.IntEnum):
    RED = 300


class Word(str):
    """A string with a misleading `__str__`."""

    def __str__(self) -> str:
        return "another"


class Twice(dict[str, int]):
    """A dict that returns its items twice."""

    def items(self) -> Any:
        return [*super().items(), *super().items()]


Point = namedtuple("Point", "x y")


@EACH_TWIN
def test_subclasses_are_written_as_their_base_type(twin: ModuleType) -> None:
    ordered = OrderedDict(a=1, b=2)
    ordered.move_to_end("a")
    assert twin.decode(twin.encode((1, (2,)))) == [1, [2]]
    assert twin.decode(twin.encode([Colour.RED, Word("word"), Point(1, 2)])) == [300, "word", [1, 2]]
    assert twin.decode(twin.encode({Word("key"): 1})) == {"key": 1}
    assert list(twin.decode(twin.encode(ordered)).items()) == [("b", 2), ("a", 1)]
    with pytest.raises(EncodeError, match="a Twice that gives the same key twice cannot be written"):
        twin.encode([Twice(a=1)])


@EACH_TWIN
def test_large_document_is_written_and_read(twin: ModuleType) -> None:
    value = {f"key {number}": [number, str(number) * 9, number / 7] for number in range(5000)}
    data = twin.encode(value)
    assert twin.size_of(data) == len(data)
    assert twin.decode(data) == value
    assert list(twin.decode(data)) == list(value)


# --- any value --------------------------------------------------------------------------------------------------------

SCALARS = (
    strategies.none()
    | strategies.booleans()
    | strategies.integers(-(2**63), 2**64 - 1)
    | strategies.integers(-300, 300)
    | strategies.floats(allow_nan=False, allow_infinity=False)
    | strategies.floats(allow_nan=False, allow_infinity=False, width=32)
    | strategies.text()
)
VALUES = strategies.recursive(
    SCALARS,
    lambda inner: strategies.lists(inner, max_size=6) | strategies.dictionaries(strategies.text(), inner, max_size=6),
    max_leaves=30,
)


@PROPERTY
@given(value=VALUES, tail=strategies.binary(max_size=20))
def test_every_json_value_round_trips(value: Any, tail: bytes) -> None:
    documents = {twin.encode(value) for twin in TWINS.values()}
    assert len(documents) == 1
    data = documents.pop()
    for twin in TWINS.values():
        assert repr(twin.decode(data)) == repr(value)
        assert repr(twin.decode_prefix(data + tail)) == repr((value, len(data)))
        assert twin.size_of(data + tail) == len(data)


@PROPERTY
@given(number=strategies.integers(-(2**63), 2**64 - 1))
def test_integers_have_their_smallest_form(number: int) -> None:
    shorter = [
        number.to_bytes(size, "little", signed=signed)
        for size in range(1, 9)
        for signed in (False, True)
        if -(2 ** (8 * size - 1)) * signed <= number < 2 ** (8 * size - signed)
    ]
    smallest = 1 if -100 <= number <= 100 else 1 + min(map(len, shorter))
    for twin in TWINS.values():
        assert len(twin.encode(number)) == smallest


@PROPERTY
@given(bits=strategies.integers(0, 2**64 - 1))
def test_every_float_round_trips_bit_for_bit(bits: int) -> None:
    (number,) = struct.unpack("<d", struct.pack("<Q", bits))
    for twin in TWINS.values():
        answers = {answer_of(twin.encode, number)}
        if number - number == 0:
            assert struct.pack("<d", twin.decode(twin.encode(number))) == struct.pack("<Q", bits)
        else:
            assert answers == {("EncodeError", (), f"{number} cannot be stored as JSON")}


# --- the package ------------------------------------------------------------------------------------------------------


def test_package_offers_both_families_of_names() -> None:
    assert bonjson.loads(bonjson.dumps({"a": 1})) == bonjson.decode(bonjson.encode({"a": 1})) == {"a": 1}
    assert bonjson.decode_at(b"\0\x81a", 1) == bonjson.decode_prefix(b"\0\x81a", 1) == ("a", 3)
    assert bonjson.size_of(b"\x82a") is bonjson.NEED_MORE
    for name in bonjson.__all__:
        assert hasattr(bonjson, name)


def test_every_type_code_has_its_kind() -> None:
    counts = {kind: layout.KINDS.count(kind) for kind in range(16)}
    assert counts[layout.INTEGER_IN_CODE] == 201
    assert counts[layout.RESERVED] == 12
    assert counts[layout.SHORT_STRING] == 16
    assert counts[layout.UNSIGNED] == counts[layout.SIGNED] == 8
    assert sum(counts.values()) == 256
