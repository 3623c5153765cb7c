"""BONJSON: JSON in binary, in the dialect that bd-bonjson writes and the journals of `versioned` are made of.

    from logwright.versioned.bytes import bonjson

    data = bonjson.encode({"name": "pump 7", "bar": 2.5})
    bonjson.decode(data)                            # the value of a document that fills its bytes
    value, end = bonjson.decode_prefix(buffer, 17)  # a document among others, and where it ends
    bonjson.size_of(buffer, 17)                     # its size without its value; NEED_MORE when it is not all there

All of them take `limits=Limits(depth=…, document_bytes=…, string_bytes=…, container_items=…)`; by default a document
is at most 500 containers deep, and otherwise limited by its own bytes only. The last three take `allow_nan=True`, and
both decoders `last_key_wins=True`, for what bd-bonjson writes and the specification forbids. See `codec` for what is
valid, and for integers that bd-bonjson writes wrongly.

Bytes that are no document are a `DecodeError` with position and reason; values that JSON does not have are an
`EncodeError` with the path to them. `dumps`, `loads` and `decode_at` are other names of the first three.
"""

from ....core.bytes.outcome import NEED_MORE
from .errors import DecodeError, EncodeError, Incomplete
from .kernel import decode, decode_prefix, encode, size_of
from .layout import DEFAULT_LIMITS, NO_LIMIT, Limits

dumps = encode
"""Another name of `encode`."""
loads = decode
"""Another name of `decode`."""
decode_at = decode_prefix
"""Another name of `decode_prefix`."""

__all__ = [
    "DEFAULT_LIMITS",
    "NEED_MORE",
    "NO_LIMIT",
    "DecodeError",
    "EncodeError",
    "Incomplete",
    "Limits",
    "decode",
    "decode_at",
    "decode_prefix",
    "dumps",
    "encode",
    "loads",
    "size_of",
]
