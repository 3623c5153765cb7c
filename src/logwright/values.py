"""Decoding of values: JSON, MessagePack, BONJSON, Avro or text, converted to what JSON can represent.

A decoder takes the bytes of one value and returns a value that JSON can represent. For any other bytes it raises
`Undecodable` and nothing else; its memory and time are bounded by the number of bytes. JSON has no bytes, NaN or times,
and its keys are strings: bytes become base64, NaN and infinities their names, times ISO 8601, keys strings.

The packages that a decoder needs (msgpack, fastavro) are imported on first use.
"""

from __future__ import annotations

import base64
import datetime
import importlib
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from .core.io.disk import Disk
from .errors import WrongUse

Decoder: TypeAlias = Callable[[bytes], Any]

DECODINGS: Final = ("json", "msgpack", "bonjson", "avro", "text")
MOST_DEPTH: Final = 500
"""The deepest nesting of a value: that of BONJSON, and less than Python's stack allows."""
_MOST_BYTES_OF_A_SCHEMA: Final = 16 << 20
_CHECKED_FROM_BYTES: Final = 1 << 10
"""Smaller values are not checked for false lengths before they are decoded: they cannot request much memory."""


class Undecodable(Exception):
    """The bytes are not a value of the expected kind."""


def decoder(name: str, schema: str | None = None) -> Decoder:
    """The decoder for values of a kind; `schema` is the text of the Avro schema that `avro` needs."""
    if name not in DECODINGS:
        raise WrongUse(f"values cannot be decoded as {name!r}; choose one of {', '.join(DECODINGS)}")
    if name == "avro" and schema is None:
        raise WrongUse("avro values can only be decoded with their schema")
    if name != "avro" and schema is not None:
        raise WrongUse(f"a schema is for avro only, not for {name}")
    if schema is not None:
        return _avro_decoder(schema)
    if name == "msgpack":
        return _msgpack_decoder()
    if name == "bonjson":
        return _bonjson_decoder()
    return _decode_json if name == "json" else _decode_text


def read_schema(disk: Disk, path: Path) -> str:
    """The text of a schema file, for `decoder`."""
    file = disk.open(path, "read")
    try:
        return file.read_at(0, _MOST_BYTES_OF_A_SCHEMA).decode()
    except UnicodeDecodeError as error:
        raise WrongUse(f"{path}: a schema must be text: {error}") from None
    finally:
        file.close()


def to_json(decode: Decoder, data: bytes) -> tuple[str | None, str | None]:
    """A value as JSON text, or None and the reason."""
    try:
        value = decode(data)
        text = _ENCODE(value)
        return (text if _is_text(text) else json.dumps(value)), None
    except Undecodable as error:
        return None, str(error)
    except RecursionError:
        return None, _TOO_DEEP


def payload(record: Any) -> bytes | None:
    """The bytes that the user stored in a record: its field `value` or `data`."""
    for name in ("value", "data"):
        found = getattr(record, name, None)
        if isinstance(found, bytes):
            return found
    return None


def _is_text(text: str) -> bool:
    """Whether a text can be encoded as UTF-8: not if it has a lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- conversion to JSON ---------------------------------------------------------------------------------------------

_TOO_DEEP: Final = "it is nested too deeply"
_JSON_TYPES: Final = frozenset((type(None), bool, int, str))
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False).encode


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON can represent it; `Undecodable` if it is nested too deeply."""
    if type(value) in _JSON_TYPES:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (bytes, bytearray)):  # a tuple is several times as fast as a union here
        return base64.b64encode(value).decode()
    if isinstance(value, (dict, list, tuple)):
        if depth >= MOST_DEPTH:
            raise Undecodable(_TOO_DEEP)
        if not isinstance(value, dict):
            items: list[Any] = []
            for item in value:  # no comprehension, here and below: it would take a second frame for each level
                items.append(plain(item, depth + 1))
            return items
        fields: dict[str, Any] = {}
        for key, item in value.items():
            fields[key if isinstance(key, str) else _key_text(key, depth + 1)] = plain(item, depth + 1)
        return fields
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    return str(value)


def _key_text(key: Any, depth: int) -> str:
    converted = plain(key, depth)
    return converted if isinstance(converted, str) else json.dumps(converted)


# --- the decoders ---------------------------------------------------------------------------------------------------


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _decode_json(data: bytes) -> Any:
    try:
        return plain(json.loads(data))
    except RecursionError:
        raise Undecodable(_TOO_DEEP) from None
    except ValueError as error:
        raise Undecodable(str(error)) from None


def _bonjson_decoder() -> Decoder:
    from .versioned.bytes import bonjson

    def decode(data: bytes) -> Any:
        try:
            return plain(bonjson.decode(data))
        except RecursionError:
            raise Undecodable(_TOO_DEEP) from None
        except bonjson.DecodeError as error:
            raise Undecodable(str(error)) from None

    return decode


def _msgpack_decoder() -> Decoder:
    msgpack = _package("msgpack", "msgpack")

    def decode(data: bytes) -> Any:
        try:
            if len(data) > _CHECKED_FROM_BYTES:
                # The decoder allocates a list of the given length before it reads the first item, and so do lists
                # within lists. A first pass that keeps nothing checks that the items exist.
                walker = msgpack.Unpacker(max_buffer_size=len(data))
                walker.feed(data)
                walker.skip()
            return plain(msgpack.unpackb(data, strict_map_key=False))
        except RecursionError:
            raise Undecodable(_TOO_DEEP) from None
        except msgpack.OutOfData:
            raise Undecodable(_TOO_SHORT) from None
        except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
            raise Undecodable(str(error) or type(error).__name__) from None

    return decode


_TOO_SHORT: Final = "the bytes end before the value does"


def _package(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        install = f"install the package {name} (pip install 'logwright[{extra}]')"
        raise WrongUse(f"to decode {extra}, {install}") from None


# --- Avro -----------------------------------------------------------------------------------------------------------


def _avro_decoder(schema: str) -> Decoder:
    """The decoder of single values, without a container, by a schema.

    The compiled reader of fastavro does not limit the depth of a value. A value can only be deep if a type of the
    schema refers to itself: then fastavro's reader in Python is used, which Python's recursion limit stops.
    """
    fastavro = _package("fastavro", "avro")
    try:
        parsed = fastavro.parse_schema(json.loads(schema))
        shape = _Shape(parsed)
    except Exception as error:  # any error means that it is not a schema
        raise WrongUse(f"this is not an Avro schema: {str(error) or type(error).__name__}") from None
    if shape.unbounded is not None:
        raise WrongUse(f"items of an array of {shape.unbounded} take no bytes, so its length cannot be checked")
    reader = importlib.import_module("fastavro._read_py") if shape.is_recursive else fastavro

    def decode(data: bytes) -> Any:
        file = io.BytesIO(data)
        try:
            value = plain(reader.schemaless_reader(file, parsed, None))
        except Undecodable:
            raise
        except EOFError:
            raise Undecodable(_TOO_SHORT) from None
        except RecursionError:
            raise Undecodable(_TOO_DEEP) from None
        except Exception as error:  # such as a missing branch of a union, or a month 13
            raise Undecodable(str(error) or type(error).__name__) from None
        if file.tell() != len(data):
            raise Undecodable(f"{len(data) - file.tell()} bytes follow the value")
        return value

    return decode


class _Shape:
    """What makes a schema dangerous: `is_recursive` if a type refers to itself, `unbounded` if items take no bytes.

    `unbounded` is the type of the items of an array that take no bytes.
    """

    def __init__(self, schema: Any) -> None:
        self.is_recursive = False
        self.unbounded: str | None = None
        self._known: dict[str, bool] = {}
        self._is_empty(schema, ())

    def _is_empty(self, schema: Any, within: tuple[str, ...]) -> bool:
        """Whether values of a schema may take no bytes; visits all of the schema."""
        if isinstance(schema, list):
            for branch in schema:
                self._is_empty(branch, within)
            return False
        if isinstance(schema, str):
            if schema in within:
                self.is_recursive = True
            return schema == "null" or self._known.get(schema, False)
        kind = schema["type"]
        if kind in ("record", "error"):
            inside = (*within, schema["name"])
            empty = [self._is_empty(field["type"], inside) for field in schema["fields"]]
            self._known[schema["name"]] = all(empty)
            return all(empty)
        if kind == "fixed":
            self._known[schema["name"]] = schema["size"] == 0
            return bool(schema["size"] == 0)
        if kind == "array" and self._is_empty(schema["items"], within) and self.unbounded is None:
            items = schema["items"]
            self.unbounded = items if isinstance(items, str) else items.get("name", items["type"])
        if kind == "map":
            self._is_empty(schema["values"], within)
        return kind not in ("array", "map", "enum") and self._is_empty(kind, within)
