"""Values decoded: JSON, MessagePack or text, made ready to be printed as JSON.

JSON has no bytes, no NaN, and strings only as keys, MessagePack has; what JSON cannot hold is shown as what comes
nearest: bytes as base64, NaN and infinities by name, keys as text.
"""

from __future__ import annotations

import base64
import importlib
import json
import math
from collections.abc import Callable
from typing import Any, Final

from ..core.errors import WrongUse

DECODINGS: Final = ("json", "msgpack", "text")


class Undecodable(Exception):
    """These bytes are not what they were said to be."""


def decoder(name: str) -> Callable[[bytes], Any]:
    """What decodes values of this kind; it raises `Undecodable` for others."""
    if name == "text":
        return _decode_text
    return _decode_json if name == "json" else _msgpack_decoder()


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
