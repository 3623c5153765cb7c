"""Values decoded for `--decode`."""

from __future__ import annotations

import importlib
from typing import Any

import msgpack
import pytest

from logwright.cli.decode import Undecodable, decoder, payload
from logwright.core.errors import WrongUse
from logwright.formats.sej.records import Message


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
    ],
)
def test_a_value_becomes_what_json_can_hold(kind: str, data: bytes, value: Any) -> None:
    assert decoder(kind)(data) == value


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("json", b""),
        ("json", b"{"),
        ("json", b"\xff\xfe\xfd"),
        ("json", b"[" * 100_000),
        ("json", b"9" * 5000),
        ("msgpack", b""),
        ("msgpack", b"\xc1"),
        ("msgpack", b"\xdd\xff\xff\xff\xff"),
        ("msgpack", b"\x01\x02"),
        ("msgpack", b"\x91" * 100_000),
        ("msgpack", b"\x81\x81\x01\x02\x03"),
        ("msgpack", b"\xa1\xff"),
    ],
)
def test_bytes_that_are_something_else_are_refused(kind: str, data: bytes) -> None:
    with pytest.raises(Undecodable):
        decoder(kind)(data)


def test_without_msgpack_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(WrongUse, match=r"pip install 'logwright\[msgpack\]'"):
        decoder("msgpack")


def test_the_payload_of_a_message_is_its_value() -> None:
    assert payload(Message(0, None, 0, b"key", b"value")) == b"value"
    assert payload(object()) is None
