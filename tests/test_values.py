"""Decoded values are valid JSON, and any other bytes raise only `Undecodable`."""

from __future__ import annotations

import datetime
import importlib
import io
import json
import random
import struct
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import msgpack
import pytest

from logwright.core.io.disk import REAL_DISK
from logwright.errors import NotFound, WrongUse
from logwright.sej.bytes.records import Message
from logwright.values import DECODINGS, MOST_DEPTH, Undecodable, decoder, payload, read_schema, to_json
from logwright.versioned.bytes import bonjson
from tests.support.counts import COUNTS

READING = {
    "type": "record",
    "name": "Reading",
    "namespace": "plant",
    "fields": [
        {"name": "sensor", "type": "string"},
        {"name": "bar", "type": ["null", "double"]},
        {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["ON", "OFF"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


def avro(schema: Any) -> Callable[[bytes], Any]:
    return decoder("avro", json.dumps(schema))


def avro_bytes(schema: Any, value: Any) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def a_reading() -> bytes:
    at = datetime.datetime(2026, 1, 15, 10, 0, tzinfo=datetime.UTC)
    tags = {"größe": [1, -2, 3]}
    price = Decimal("12.30")
    fields = {"sensor": "p7", "bar": 2.5, "raw": b"\x00\xff", "state": "OFF", "at": at, "tags": tags, "price": price}
    return avro_bytes(READING, fields)


# --- what comes out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("json", b'{"a": [1, 2.5, null, true]}', {"a": [1, 2.5, None, True]}),
        ("json", b"[NaN, -Infinity]", ["nan", "-inf"]),
        ("text", "größe".encode(), "größe"),
        ("text", b"a\xff", r"a\xff"),
        ("msgpack", msgpack.packb({"a": b"\x00\xff", 1: [None, float("nan")]}), {"a": "AP8=", "1": [None, "nan"]}),
        ("msgpack", msgpack.packb(msgpack.ExtType(5, b"x")), [5, "eA=="]),
        ("msgpack", msgpack.packb({True: 1, None: 2}), {"true": 1, "null": 2}),
        ("msgpack", msgpack.packb(["x" * 2000] * 3), ["x" * 2000] * 3),
        ("bonjson", bonjson.encode({"k": [1, -2.5, None, "ü"]}), {"k": [1, -2.5, None, "ü"]}),
    ],
)
def test_value_becomes_valid_json(kind: str, data: bytes, value: Any) -> None:
    assert decoder(kind)(data) == value


def test_avro_is_decoded_by_its_schema() -> None:
    assert avro(READING)(a_reading()) == {
        "sensor": "p7",
        "bar": 2.5,
        "raw": "AP8=",
        "state": "OFF",
        "at": "2026-01-15T10:00:00+00:00",
        "tags": {"größe": [1, -2, 3]},
        "price": "12.30",
    }
    chain = {"next": {"next": {"next": None}}}
    assert avro(NODE)(avro_bytes(NODE, chain)) == chain


def test_json_text_is_valid_whatever_it_contains() -> None:
    assert to_json(decoder("json"), '{"n": 1, "ü": "€"}'.encode()) == ('{"n": 1, "ü": "€"}', None)
    text, error = to_json(decoder("json"), b'["\\ud800", "\xc3\xbc"]')
    assert (text, error) == ('["\\ud800", "\\u00fc"]', None), "half a pair of surrogates is no UTF-8"
    assert to_json(decoder("text"), b"a\nb") == ('"a\\nb"', None)
    text, error = to_json(decoder("json"), b"{")
    assert text is None
    assert error is not None
    assert "line 1 column 2" in error


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("json", b""),
        ("json", b"{"),
        ("json", b"\xff\xfe\xfd"),
        ("json", b"[" * 100_000),
        ("json", b"[" * 600 + b"]" * 600),
        ("json", b"9" * 5000),
        ("msgpack", b""),
        ("msgpack", b"\xc1"),
        ("msgpack", b"\xdd\xff\xff\xff\xff"),
        ("msgpack", b"\x01\x02"),
        ("msgpack", b"\x91" * 100_000),
        ("msgpack", b"\x91" * 600 + b"\x01"),
        ("msgpack", b"\x81\x81\x01\x02\x03"),
        ("msgpack", b"\xa1\xff"),
        ("bonjson", b""),
        ("bonjson", b"\x99" * 100_000),
        ("bonjson", bonjson.encode([1]) + b"\x00"),
    ],
)
def test_bytes_of_another_encoding_are_refused(kind: str, data: bytes) -> None:
    with pytest.raises(Undecodable):
        decoder(kind)(data)


@pytest.mark.parametrize(
    ("schema", "data", "why"),
    [
        ("string", b"\x14abc", "end before the value does"),
        ("bytes", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7fabc", "end before the value does"),
        ("string", b"\x13abc", "end before the value does"),
        ("double", b"abc", "end before the value does"),
        ("string", b"\x02\xff", "utf-8"),
        ("string", b"\x02ab", "1 bytes follow the value"),
        (["null", "int"], b"\x08", "index out of range"),
        ({"type": "int", "logicalType": "date"}, b"\xfe\xff\xff\xff\x0f", "maximum"),
        ({"type": "string", "logicalType": "uuid"}, b"\x06abc", "UUID"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x02", "end before the value does"),
        (NODE, b"\x02" * 100_000 + b"\x00", "nested too deeply"),
        ({"type": "record", "name": "Loop", "fields": [{"name": "again", "type": "Loop"}]}, b"", "nested too deeply"),
    ],
)
def test_avro_that_does_not_match_its_schema_is_refused(schema: Any, data: bytes, why: str) -> None:
    with pytest.raises(Undecodable, match=why):
        avro(schema)(data)


def test_values_are_decoded_down_to_a_fixed_depth() -> None:
    for kind, data in (
        ("json", b"[" * MOST_DEPTH + b"]" * MOST_DEPTH),
        ("msgpack", b"\x91" * (MOST_DEPTH - 1) + b"\x90"),
        ("bonjson", b"\x99" * MOST_DEPTH + b"\x9b" * MOST_DEPTH),
    ):
        text, error = to_json(decoder(kind), data)
        assert (text, error) == ("[" * MOST_DEPTH + "]" * MOST_DEPTH, None)


def test_lists_with_a_false_length_allocate_no_memory_for_it() -> None:
    """Each of a hundred lists claims a million items: 8 MiB before the first one is read."""
    data = (b"\xdd" + struct.pack(">I", 1 << 20)) * 100 + bytes(1 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(Undecodable):
            decoder("msgpack")(data)
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most_bytes < 16 << 20


# --- schemas --------------------------------------------------------------------------------------------------------

EMPTY = {"type": "record", "name": "Empty", "fields": [{"name": "nothing", "type": "null"}]}


@pytest.mark.parametrize(
    ("schema", "items"),
    [
        ({"type": "array", "items": "null"}, "null"),
        ({"type": "map", "values": {"type": "array", "items": {"type": "null"}}}, "null"),
        (["null", {"type": "array", "items": EMPTY}], "Empty"),
        ([EMPTY, {"type": "array", "items": "Empty"}], "Empty"),
        ({"type": "array", "items": {"type": "fixed", "name": "None", "size": 0}}, "None"),
    ],
)
def test_schema_that_decodes_few_bytes_as_an_endless_list_is_refused(schema: Any, items: str) -> None:
    with pytest.raises(WrongUse, match=f"array of {items} take no bytes"):
        avro(schema)


@pytest.mark.parametrize("schema", ["", "{", '"strin"', '{"type": "record"}', "[" * 100_000, "7", "null"])
def test_invalid_schema_is_refused(schema: str) -> None:
    with pytest.raises(WrongUse, match="not an Avro schema"):
        decoder("avro", schema)


def test_avro_requires_a_schema_and_only_avro_accepts_one() -> None:
    with pytest.raises(WrongUse, match="only be decoded with their schema"):
        decoder("avro")
    with pytest.raises(WrongUse, match="a schema is for avro"):
        decoder("json", '"string"')
    with pytest.raises(WrongUse, match="cannot be decoded as 'xml'; choose one of json, msgpack, bonjson, avro, text"):
        decoder("xml")


def test_schema_file_is_text(tmp_path: Path) -> None:
    (tmp_path / "good.avsc").write_text('"string"')
    (tmp_path / "bad.avsc").write_bytes(b"\xff\xfe")
    assert read_schema(REAL_DISK, tmp_path / "good.avsc") == '"string"'
    with pytest.raises(WrongUse, match=r"bad\.avsc: a schema must be text"):
        read_schema(REAL_DISK, tmp_path / "bad.avsc")
    with pytest.raises(NotFound, match=r"none\.avsc"):
        read_schema(REAL_DISK, tmp_path / "none.avsc")


@pytest.mark.parametrize(("kind", "package"), [("msgpack", "msgpack"), ("avro", "fastavro")])
def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, kind: str, package: str) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(WrongUse, match=rf"install the package {package} \(pip install 'logwright\[{kind}\]'\)"):
        decoder(kind, '"string"' if kind == "avro" else None)


# --- any bytes ------------------------------------------------------------------------------------------------------

SEEDS = {
    "json": [b'{"a": [1, 2.5e7, null, true, "\\u00fc\\ud83d\\ude00"], "b": {"c": []}}', b"[[[[]]]]", b'"\\ud800"'],
    "msgpack": [msgpack.packb({"a": [1, -5, 1e9, b"x", "y" * 40, {"z": [None] * 20}], 7: msgpack.Timestamp(3, 4)})],
    "bonjson": [bonjson.encode({"a": [1, -5, 1e9, "y" * 40, {"z": [None] * 20}], "b": 1 << 60})],
    "text": ["größe €".encode()],
    "avro": [a_reading()],
    "avro of lists": [avro_bytes(NODE, {"next": {"next": {"next": None}}})],
}


@pytest.mark.parametrize("kind", SEEDS)
def test_any_bytes_are_decoded_or_refused(kind: str) -> None:
    """Valid values with bytes changed, removed, duplicated or inserted, and plain noise."""
    schema = {"avro": json.dumps(READING), "avro of lists": json.dumps(NODE)}.get(kind)
    decode = decoder(kind.partition(" ")[0], schema)
    dice = random.Random(f"values {kind}")
    refused = 0
    for _ in range(12_000):
        data = mutated(dice, dice.choice(SEEDS[kind])) if dice.random() < 0.9 else dice.randbytes(dice.randrange(40))
        text, error = to_json(decode, data)
        assert (text is None) != (error is None)
        if text is not None:
            text.encode()
            json.loads(text)
        refused += error is not None
    COUNTS.add("fuzzed inputs", 12_000, format="values")
    assert (refused == 0) == (kind == "text")


def mutated(dice: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 8))):
        at = dice.randrange(len(found) + 1)
        match dice.randrange(5):
            case 0:
                found[at : at + 1] = dice.randbytes(1)
            case 1:
                del found[at : at + dice.randrange(1, 9)]
            case 2:
                found[at:at] = found[at : at + dice.randrange(1, 9)]
            case 3:
                found[at:at] = dice.choice((b"\xff" * 9, b"\x00" * 4, b"\x80", b"\x7f\xff\xff\xff", b"[", b"\xdd"))
            case 4:
                found[at:at] = found[at:] * dice.choice((1, 1, 30))
    return bytes(found)


def test_list_of_decoders_is_complete() -> None:
    for name in DECODINGS:
        assert callable(decoder(name, '"string"' if name == "avro" else None))


def test_payload_of_a_message_is_its_value() -> None:
    assert payload(Message(0, None, 0, b"key", b"value")) == b"value"
    assert payload(object()) is None
