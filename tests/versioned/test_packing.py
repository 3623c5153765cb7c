"""Rows of columns become the same entries in the kernel and in plain Python, and the same errors."""

from __future__ import annotations

import json
import random
from array import array
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies

from logwright.errors import LogwrightError, TooLarge, WrongUse
from logwright.versioned.bytes import codec, kernel
from logwright.versioned.bytes.codec import Columns
from logwright.versioned.tables.columns import packed_entries
from tests.versioned.test_kernel import VALUES

PLAIN = [
    '{"a":1}', ' { "a" : [ 1 , 2 ] , "b" : { } } ', "[]", "{}", "[[],[{}]]", '"x"', '""', "true", "false", "null",
    "0", "-0", "-1", "100", "101", "-100", "-101", "255", "256", "65535", "999999999999999999", "-999999999999999999",
    "0.1", "2.5", "-0.0", "0.0", "1.0", "123456.789012345", "0.00000000000001", "-12.50", "1e3", "1.5E-7",
    "9223372036854775808", "18446744073709551615", "-9223372036854775808", "1.7976931348623157e308",
    '"\\u00e9\\n\\"\\ud83d\\ude00"', '"é€😀"', '{"a":1,"a":2}', '{"a":1,"b":2,"a":[3]}', "[" * 40 + "]" * 40,
    "\n\t\r[1]\n", f'"{"x" * 15}"', f'"{"x" * 16}"', f'{{"{"k" * 300}":"{"v" * 70000}"}}', '"\x7f"',
    json.dumps({f"key {number}": number for number in range(500)}), json.dumps([number / 7 for number in range(50)]),
]  # fmt: skip
NO_JSON = [
    "", " ", "nul", "nulll", "tru", "[1,]", "[,1]", "[1", "]", '{"a"}', '{"a":}', '{"a":1,}', "{1:2}", "{", '{"a"1}',
    "[1 2]", "01", "-", "1.", ".5", "+1", "1..2", "0x1", "1 2", '"', '"\n"', '"\x1f"', '"\\x"', "'a'", "[1]]", "{}{}",
    "\ufeff1", "--1", "1-",
]  # fmt: skip
NOT_FOR_US = [
    "NaN", "Infinity", "-Infinity", "[NaN]", "18446744073709551616", "-9223372036854775809", '"\\ud800"',
    '{"\\udc00":1}', "1e999",
]  # fmt: skip


def columns_of(rows: list[tuple[int, bytes, bytes, bool]]) -> Columns:
    keys, values = [key for _, key, _, _ in rows], [value for _, _, value, _ in rows]
    found = Columns(len(rows), array("Q", [row[0] for row in rows]).tobytes(), deleted=bytes(row[3] for row in rows))
    found.key_ends, found.keys = ends_of(keys), b"".join(keys)
    found.value_ends, found.values = ends_of(values), b"".join(values)
    return found


def ends_of(items: list[bytes]) -> bytes:
    ends = array("i", [0])
    for item in items:
        ends.append(ends[-1] + len(item))
    return ends.tobytes()


def both(rows: list[tuple[int, bytes, bytes, bool]]) -> list[Any]:
    """The result of both for some rows: bytes and starts, or the error."""
    found: list[Any] = []
    for pack in (codec.pack, kernel.pack):
        try:
            data, starts = pack(columns_of(rows))
            found.append((data, list(starts)))
        except LogwrightError as error:
            found.append((type(error), str(error)))
    return found


@pytest.mark.parametrize("text", [*PLAIN, *NO_JSON, *NOT_FOR_US])
def test_every_text_is_the_same_entry_or_the_same_error(text: str) -> None:
    one, other = both([(5, b"first", b"1", False), (2**63, "é".encode(), text.encode(), False), (7, b"", b"2", False)])
    assert one == other
    if text in PLAIN:
        assert one[0][: one[1][1]] == codec.pack_entry(5, "first", 1)
        assert one[0][one[1][1] : one[1][2]] == codec.pack_entry(2**63, "é", json.loads(text))
        assert one[0][one[1][2] :] == codec.pack_entry(7, "", 2)
    else:
        assert one[0] is WrongUse
        assert ("is no JSON" if text in NO_JSON else "the key 'é'") in one[1]


@settings(derandomize=True, deadline=None, database=None, max_examples=150)
@given(value=VALUES, key=strategies.text(max_size=40), t=strategies.integers(0, 2**64 - 1), ascii=strategies.booleans())
def test_any_value_is_packed_like_its_fields(value: Any, key: str, t: int, ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii).encode()
    wanted = codec.pack_entry(t, key, value)
    assert both([(t, key.encode(), text, False)]) == [(wanted, [0, len(wanted)])] * 2


def test_deletion_has_no_value_whatever_is_there() -> None:
    wanted = codec.pack_entry(1, "a", None)
    assert both([(1, b"a", b"no JSON", True)]) == [(wanted, [0, len(wanted)])] * 2
    assert both([]) == [(b"", [0])] * 2


def test_texts_with_changed_bytes_get_the_same_results() -> None:
    chance = random.Random(11)
    signs = b'{}[]",:0123456789.-+eEtrufalsn\\ \x00\x1f\x7f\xc3\xa9\xff'
    for _ in range(6000):
        text = bytearray(chance.choice(PLAIN[:36]).encode())
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(text) + 1)
            text[at : at + chance.randrange(2)] = bytes(chance.choices(signs, k=chance.randrange(1, 3)))
        one, other = both([(1, b"k", bytes(text), False)])
        assert one == other, bytes(text)


@pytest.mark.parametrize("pack", [codec.pack, kernel.pack])
def test_inconsistent_columns_are_refused(pack: Any) -> None:
    good = columns_of([(1, b"a", b"1", False), (2, b"b", b"2", False)])
    wrong: list[dict[str, object]] = [
        {"timestamps": None},
        {"key_ends": None},
        {"values": b""},
        {"keys": None},
        {"count": -1},
        {"deleted": b"\0"},
        {"count": 3},
        {"key_ends": array("i", [0, 2, 1]).tobytes()},
        {"value_ends": array("i", [-1, 1, 2]).tobytes()},
    ]
    for change in wrong:
        columns = columns_of([(1, b"a", b"1", False), (2, b"b", b"2", False)])
        for name, value in change.items():
            setattr(columns, name, value)
        with pytest.raises((WrongUse, TooLarge)):
            pack(columns)
    with pytest.raises(WrongUse, match="the key of row 1 is no UTF-8"):
        pack(columns_of([(1, b"a", b"1", False), (2, b"\xff", b"2", False)]))
    assert pack(good)[0] == codec.pack_entry(1, "a", 1) + codec.pack_entry(2, "b", 2)


def test_arrow_data_of_every_type_becomes_entries() -> None:
    wanted = [codec.pack_entry(1, "a", None), codec.pack_entry(2, "b", {"x": 1}), codec.pack_entry(3, "c", None)]
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())):
        batch = pa.record_batch(
            {
                "k": pa.array(["-", "a", "b", "c"], pa.string()).cast(kind),
                "o": pa.array(["-", None, '{"x":1}', "3"], pa.string()).cast(kind),
                "deleted": pa.array([None, None, False, True]),
            }
        ).slice(1)
        assert packed_entries(batch, array("Q", [1, 2, 3])) == wanted
    with pytest.raises(WrongUse, match="row 1 has no key"):
        packed_entries(pa.record_batch({"k": ["a", None], "o": ["1", "2"]}), array("Q", [1, 2]))
