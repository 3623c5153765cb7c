"""Values decoded: JSON, MessagePack, BONJSON, Avro or text, made ready to be printed as JSON.

A decoder takes the bytes of one value and gives what JSON can hold, or raises `Undecodable`: whatever the bytes are,
nothing else, and never for more memory or time than so many bytes can ask for. JSON has no bytes, no NaN, no times, and
texts only as keys; what it cannot hold is shown as what comes nearest: bytes as base64, NaN and infinities by name,
times as in ISO 8601, keys as text.

What a decoder needs (the packages msgpack and fastavro) is imported when it is asked for.
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
"""How deeply a value may be nested: as deep as BONJSON goes, and less than what Python's stack takes."""
_MOST_BYTES_OF_A_SCHEMA: Final = 16 << 20
_CHECKED_FROM_BYTES: Final = 1 << 10
"""Below this size, what the lengths in a value claim without being true is not worth a pass over it."""


class Undecodable(Exception):
    """These bytes are not what they were said to be."""


def decoder(name: str, schema: str | None = None) -> Decoder:
    """What decodes values of this kind; `schema` is the text of the Avro schema that `avro` needs."""
    if name not in DECODINGS:
        raise WrongUse(f"values cannot be decoded as {name!r}; known are {', '.join(DECODINGS)}")
    if name == "avro" and schema is None:
        raise WrongUse("values of avro can only be decoded with their schema")
    if name != "avro" and schema is not None:
        raise WrongUse(f"a schema is for avro: values of {name} need none")
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
        raise WrongUse(f"{path}: a schema is text, and this is not: {error}") from None
    finally:
        file.close()


def to_json(decode: Decoder, data: bytes) -> tuple[str | None, str | None]:
    """A value as JSON text, or None and why it is none."""
    try:
        value = decode(data)
        text = _ENCODE(value)
        return (text if _is_text(text) else json.dumps(value)), None
    except Undecodable as error:
        return None, str(error)
    except RecursionError:
        return None, _TOO_DEEP


def payload(record: Any) -> bytes | None:
    """The bytes of a record that its user put in, in whichever field its format has them."""
    for name in ("value", "data"):
        found = getattr(record, name, None)
        if isinstance(found, bytes):
            return found
    return None


def _is_text(text: str) -> bool:
    """Whether a text can be written as UTF-8: not when it has one half of a pair of surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- what JSON can hold ---------------------------------------------------------------------------------------------

_TOO_DEEP: Final = "it is nested too deeply"
_AS_THEY_ARE: Final = frozenset((type(None), bool, int, str))
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False).encode


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON can hold it; `Undecodable` when it is nested too deeply."""
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (bytes, bytearray)):  # a tuple is several times as fast, and this is per item
        return base64.b64encode(value).decode()
    if isinstance(value, (dict, list, tuple)):
        if depth >= MOST_DEPTH:
            raise Undecodable(_TOO_DEEP)
        if not isinstance(value, dict):
            items: list[Any] = []
            for item in value:  # no comprehension, here and below: a level is to take one frame, and not two
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
                # A length makes room for so many items before the first is read, and lists within lists all do:
                # a pass that keeps nothing finds out whether the items are there.
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
    """What decodes single values, without a container around them, by a schema.

    The compiled reader of fastavro has no limit to how deep it goes, and data can only lead it deep where a schema
    refers to itself: there its Python twin reads, which Python stops in time.
    """
    fastavro = _package("fastavro", "avro")
    try:
        parsed = fastavro.parse_schema(json.loads(schema))
        shape = _Shape(parsed)
    except Exception as error:  # whatever is wrong with it, it is no schema
        raise WrongUse(f"this is no Avro schema: {str(error) or type(error).__name__}") from None
    if shape.unbounded is not None:
        raise WrongUse(f"an array of {shape.unbounded} takes no bytes however long it is, and cannot be read safely")
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
        except Exception as error:  # a branch that a union does not have, a month 13, and whatever else there is
            raise Undecodable(str(error) or type(error).__name__) from None
        if file.tell() != len(data):
            raise Undecodable(f"{len(data) - file.tell()} bytes follow the value")
        return value

    return decode


class _Shape:
    """What a schema allows data to do to its reader.

    `is_recursive`: a type refers to itself. `unbounded`: the items of an array that take no bytes; None if there are
    none.
    """

    def __init__(self, schema: Any) -> None:
        self.is_recursive = False
        self.unbounded: str | None = None
        self._known: dict[str, bool] = {}
        self._is_empty(schema, ())

    def _is_empty(self, schema: Any, within: tuple[str, ...]) -> bool:
        """Whether values of a schema may take no bytes at all; looks at everything in it on the way."""
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
