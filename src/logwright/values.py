"""Values decoded: JSON, MessagePack, BONJSON, Avro or text, made ready to be printed as JSON.

A decoder takes the bytes of one value and gives what JSON can hold, or raises `Undecodable`: whatever the bytes are,
nothing else, and never more memory or time than so many bytes can ask for. JSON has no bytes, no NaN, no times, and
texts only as keys; what it cannot hold is shown as what comes nearest: bytes as base64, NaN and infinities by name,
times as ISO 8601 has them, keys as text.
"""

from __future__ import annotations

import base64
import importlib
import json
import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from .core.errors import WrongUse

Decoder: TypeAlias = Callable[[bytes], Any]

DECODINGS: Final = ("json", "msgpack", "bonjson", "avro", "text")
MOST_DEPTH: Final = 500
"""How deeply a value may be nested: as deep as BONJSON goes, and less than what Python's stack takes."""


class Undecodable(Exception):
    """These bytes are not what they were said to be."""


def decoder(name: str, schema: str | None = None) -> Decoder:
    """What decodes values of this kind; `schema` is the text of the Avro schema that `avro` needs."""
    if (name == "avro") != (schema is not None):
        raise WrongUse("avro and a schema belong together: values of avro cannot be read without one, others have none")
    match name:
        case "text":
            return _decode_text
        case "json":
            return _decode_json
        case "msgpack":
            return _msgpack_decoder()
        case "bonjson":
            return _bonjson_decoder()
        case "avro":
            assert schema is not None
            return _avro_decoder(schema)
    raise WrongUse(f"values cannot be decoded as {name!r}; known are {', '.join(DECODINGS)}")


def payload(record: Any) -> bytes | None:
    """The bytes of a record that its user put in, in whichever field its format has them."""
    for name in ("value", "data"):
        found = getattr(record, name, None)
        if isinstance(found, bytes):
            return found
    return None


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _decode_json(data: bytes) -> Any:
    try:
        return plain(json.loads(data))
    except RecursionError:
        raise Undecodable("it is nested too deeply") from None
    except ValueError as error:
        raise Undecodable(str(error)) from None


def _msgpack_decoder() -> Callable[[bytes], Any]:
    try:
        msgpack = importlib.import_module("msgpack")
    except ImportError:
        raise WrongUse("to decode msgpack, install the package msgpack (pip install 'logwright[msgpack]')") from None

    def decode(data: bytes) -> Any:
        try:
            return plain(msgpack.unpackb(data, strict_map_key=False))
        except RecursionError:
            raise Undecodable("it is nested too deeply") from None
        except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
            raise Undecodable(str(error) or type(error).__name__) from None

    return decode


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key if isinstance(key, str) else _key_text(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value)


def _key_text(key: Any) -> str:
    converted = plain(key)
    return converted if isinstance(converted, str) else json.dumps(converted)


def _bonjson_decoder() -> Decoder:
    raise WrongUse("bonjson is not there yet")


def _avro_decoder(schema: str) -> Decoder:
    raise WrongUse("avro is not there yet")


def to_json(decode: Decoder, data: bytes) -> tuple[str | None, str | None]:
    """A value as JSON text, or why it is none."""
    try:
        return json.dumps(decode(data), ensure_ascii=False), None
    except Undecodable as error:
        return None, str(error)
