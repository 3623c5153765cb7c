"""BONJSON <-> Python values, in plain Python: the reference for the kernel, used if the kernel is not built.

A document is valid if and only if its type codes are known and not reserved, every payload and length is within the
buffer, strings are UTF-8, numbers are finite, keys are strings and occur once in their object, every container
that begins ends, nothing is beyond the limits, and, for `decode`, nothing follows it.

A reader accepts any width of integers and floats, length fields that are longer than necessary, and strings in several
chunks, whose bytes are joined before they are decoded as UTF-8; a chunk may be empty. NUL is a character like any
other. A writer always uses the smallest form, in one chunk; a Python float is always written as a float (1.0 is `6a 80
3f`), as bd-bonjson does.

Where the two originals disagree: bytes after the value are refused by `decode` and ignored by `decode_prefix`; no
bytes at all are an incomplete document; the second of two equal keys is refused unless `last_key_wins`, which is how
bd-bonjson reads them; NaN and infinities, which bd-bonjson writes and reads, are refused unless `allow_nan`, and never
written; big numbers are refused. For a journal of bd-bonjson that may hold such values, give both options.

Known defect of bd-bonjson: its writer of signed integers drops leading bytes 00 or ff without checking the sign of
the rest: 65535 becomes the bytes of 255, -129 those of 127, and 65280 those of 0. The result is a valid document of
another number, so no reader can detect this, or restore the number. Timestamps are written by its other function, and
are safe.

Strategy: a loop over type codes with the open containers in a list. A container is put into its parent when it begins,
so nothing recurses and nothing is left to do when it ends. A length is checked against the buffer before it is used.
Nothing here opens a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, Final, TypeAlias

from ....core.bytes.outcome import NEED_MORE, NeedMore
from ....errors import WrongUse
from . import errors, layout
from .errors import DecodeError, EncodeError, Incomplete, decode_error
from .layout import DEFAULT_LIMITS, KINDS, NO_LIMIT, Limits

Buffer = bytes | bytearray | memoryview
Value: TypeAlias = Any
"""What JSON can represent: None, bool, int, float, str, list or dict of such values."""

_SINGLE: Final = Struct("<f")
_DOUBLE: Final = Struct("<d")


# --- reading --------------------------------------------------------------------------------------------------------


def decode(
    data: Buffer, *, limits: Limits = DEFAULT_LIMITS, last_key_wins: bool = False, allow_nan: bool = False
) -> Value:
    """The value of a document that fills `data`. Raises `DecodeError`."""
    value, end = decode_prefix(data, limits=limits, last_key_wins=last_key_wins, allow_nan=allow_nan)
    size = memoryview(data).nbytes
    if end != size:
        raise decode_error(errors.TRAILING_BYTES, end, size - end)
    return value


def decode_prefix(
    data: Buffer,
    start: int = 0,
    end: int | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
    last_key_wins: bool = False,
    allow_nan: bool = False,
) -> tuple[Value, int]:
    """The value of the document at `start`, and where it ends. Bytes from `end` on are not looked at.

    Raises `DecodeError`, of which `Incomplete` says that the bytes end before the document does.
    """
    source = _Source(data, start, end, limits, last_key_wins, allow_nan)
    return _read(source), source.position


def size_of(
    data: Buffer, start: int = 0, end: int | None = None, *, limits: Limits = DEFAULT_LIMITS, allow_nan: bool = False
) -> int | NeedMore:
    """How many bytes the document at `start` has, or `NEED_MORE`. Raises `DecodeError` where it can be none.

    Everything is checked as `decode_prefix` does, but for keys that occur twice.
    """
    source = _Source(data, start, end, limits, True, allow_nan)
    try:
        _read(source)
    except Incomplete:
        return NEED_MORE
    return source.position - start


class _Source:
    """The bytes of a document, how far they have been read, and what is allowed."""

    __slots__ = ("_end", "_start", "_view", "allow_nan", "last_key_wins", "limits", "position")

    def __init__(
        self, data: Buffer, start: int, end: int | None, limits: Limits, last_key_wins: bool, allow_nan: bool
    ) -> None:
        self._view = memoryview(data).cast("B")
        size = len(self._view)
        end = size if end is None else end
        if not 0 <= start <= end <= size:
            raise WrongUse(f"the range {start}..{end} is not within a buffer of {size} bytes")
        self._start = self.position = start
        self._end = min(end, start + limits.document_bytes)
        self.limits = limits
        self.last_key_wins = last_key_wins
        self.allow_nan = allow_nan

    def take(self, count: int) -> memoryview:
        """The next bytes."""
        position = self.position
        if count > self._end - position:
            raise self._ended(count)
        self.position = position + count
        return self._view[position : self.position]

    def take_byte(self) -> int:
        """The next byte."""
        position = self.position
        if position >= self._end:
            raise self._ended(1)
        self.position = position + 1
        return self._view[position]

    def _ended(self, count: int) -> DecodeError:
        """The error for missing bytes, or for a size that is not allowed."""
        position, limit = self.position, self.limits.document_bytes
        if limit != NO_LIMIT and count > self._start + limit - position:
            return decode_error(errors.DOCUMENT_TOO_LARGE, position, second=limit)
        return decode_error(errors.TRUNCATED, position, count, self._end - position)


def _read(source: _Source) -> Value:
    """Read the document at the source's position, and move the position past it."""
    document: list[Value] = []
    container: list[Value] | dict[str, Value] = document
    outer: list[tuple[list[Value] | dict[str, Value], int]] = []
    count = 0  # of values or pairs in `container`: an object that has a key twice has fewer
    key: str | None = None
    key_at = 0
    while True:
        at = source.position
        code = source.take_byte()
        kind = KINDS[code]
        if kind == layout.CONTAINER_END:
            if not outer:
                raise decode_error(errors.STRAY_END, at)
            if key is not None:
                raise decode_error(errors.END_FOR_VALUE, at)
            container, count = outer.pop()
        elif isinstance(container, dict) and key is None:
            if kind not in (layout.SHORT_STRING, layout.LONG_STRING):
                raise decode_error(errors.KEY_NOT_STRING, at, code)
            count = _counted(source, at, count)
            key = _READERS[kind](source, code, at)
            key_at = at
            continue
        else:
            if container is not document and key is None:
                count = _counted(source, at, count)
            value = _begin(source, kind, at, len(outer)) if kind in _CONTAINERS else _READERS[kind](source, code, at)
            if isinstance(container, list):
                container.append(value)
            elif key is not None:
                if key in container and not source.last_key_wins:
                    raise decode_error(errors.DUPLICATE_KEY, key_at)
                container[key] = value
                key = None
            if kind in _CONTAINERS:
                outer.append((container, count))
                container, count = value, 0
        if not outer:
            return document[0]


def _counted(source: _Source, at: int, count: int) -> int:
    if count >= source.limits.container_items:
        raise decode_error(errors.CONTAINER_TOO_LARGE, at, second=source.limits.container_items)
    return count + 1


_CONTAINERS: Final = (layout.ARRAY, layout.OBJECT)


def _begin(source: _Source, kind: int, at: int, depth: int) -> list[Value] | dict[str, Value]:
    if depth >= source.limits.depth:
        raise decode_error(errors.TOO_DEEP, at, second=source.limits.depth)
    return [] if kind == layout.ARRAY else {}


def _read_unsigned(source: _Source, code: int, at: int) -> int:
    return int.from_bytes(source.take((code & 7) + 1), "little")


def _read_signed(source: _Source, code: int, at: int) -> int:
    return int.from_bytes(source.take((code & 7) + 1), "little", signed=True)


def _read_float16(source: _Source, code: int, at: int) -> float:
    return _finite(source, _SINGLE.unpack(b"\0\0" + source.take(2))[0], at)


def _read_float32(source: _Source, code: int, at: int) -> float:
    return _finite(source, _SINGLE.unpack(source.take(4))[0], at)


def _read_float64(source: _Source, code: int, at: int) -> float:
    return _finite(source, _DOUBLE.unpack(source.take(8))[0], at)


def _finite(source: _Source, value: float, at: int) -> float:
    if not (source.allow_nan or math.isfinite(value)):
        raise decode_error(errors.NOT_FINITE, at)
    return value


def _read_short_string(source: _Source, code: int, at: int) -> str:
    size = code & 15
    _check_string(source, at, size)
    return _text(source.take(size), at)


def _read_long_string(source: _Source, code: int, at: int) -> str:
    chunks = []
    size = 0
    more = 1
    while more:
        length, more = divmod(_read_length(source), 2)
        size += length
        _check_string(source, at, size)
        chunks.append(source.take(length))
    return _text(b"".join(chunks), at)


def _read_length(source: _Source) -> int:
    """The payload of a length field."""
    first = source.take_byte()
    if first == 0:
        return int.from_bytes(source.take(8), "little")
    zeros = (first & -first).bit_length() - 1
    return (first | int.from_bytes(source.take(zeros), "little") << 8) >> (zeros + 1)


def _check_string(source: _Source, at: int, size: int) -> None:
    if size > source.limits.string_bytes:
        raise decode_error(errors.STRING_TOO_LARGE, at, size, source.limits.string_bytes)


def _text(data: bytes | memoryview, at: int) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise decode_error(errors.NOT_UTF8, at, error.start) from None


def _refuse_big_number(source: _Source, code: int, at: int) -> Value:
    raise decode_error(errors.BIG_NUMBER_CODE, at)


def _refuse_reserved(source: _Source, code: int, at: int) -> Value:
    raise decode_error(errors.RESERVED_CODE, at, code)


_READERS: Final[dict[int, Callable[[_Source, int, int], Any]]] = {
    layout.INTEGER_IN_CODE: lambda source, code, at: code if code < 0x80 else code - 0x100,
    layout.UNSIGNED: _read_unsigned,
    layout.SIGNED: _read_signed,
    layout.FLOAT16: _read_float16,
    layout.FLOAT32: _read_float32,
    layout.FLOAT64: _read_float64,
    layout.NULL: lambda source, code, at: None,
    layout.FALSE: lambda source, code, at: False,
    layout.TRUE: lambda source, code, at: True,
    layout.SHORT_STRING: _read_short_string,
    layout.LONG_STRING: _read_long_string,
    layout.BIG_NUMBER: _refuse_big_number,
    layout.RESERVED: _refuse_reserved,
}


# --- writing --------------------------------------------------------------------------------------------------------


def encode(value: Value, *, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The document of a value: None, bool, int, float, str, lists, tuples and dicts of such. Raises `EncodeError`."""
    out = bytearray()
    path: list[str | int] = []
    levels: list[Iterator[Value]] = []
    while value is not _NOTHING:
        if isinstance(value, list | tuple | dict):
            if len(levels) >= limits.depth:
                raise EncodeError(tuple(path), f"nested deeper than the limit of {limits.depth}")
            levels.append(_enter(out, value, path, limits))
        else:
            _put_scalar(out, value, path, limits)
        value = _next_value(out, levels, path)
        if len(out) > limits.document_bytes:
            raise EncodeError(tuple(path), f"the document is larger than the limit of {limits.document_bytes} bytes")
    return bytes(out)


_NOTHING: Final = object()


def _next_value(out: bytearray, levels: list[Iterator[Value]], path: list[str | int]) -> Value:
    """The next value to write, after writing the ends of finished containers; `_NOTHING` after the last one."""
    while levels:
        value = next(levels[-1], _NOTHING)
        if value is not _NOTHING:
            return value
        levels.pop()
        path.pop()
        out.append(layout.END_CODE)
    return _NOTHING


def _enter(
    out: bytearray,
    container: list[Value] | tuple[Value, ...] | dict[Any, Value],
    path: list[str | int],
    limits: Limits,
) -> Iterator[Value]:
    """Begin an array or object; returns an iterator over its values that has the last step of the path."""
    if len(container) > limits.container_items:
        raise EncodeError(
            tuple(path), f"{len(container)} items are more than the limit of {limits.container_items} in a container"
        )
    if isinstance(container, dict):
        out.append(layout.OBJECT_CODE)
        values = _members(out, _plain_dict(container, path), path, limits)
    else:
        out.append(layout.ARRAY_CODE)
        values = _elements(container, path)
    path.append("")
    return values


def _plain_dict(given: dict[Any, Value], path: list[str | int]) -> dict[Any, Value]:
    """A dict with each key once; `items` of a subclass may return a key twice."""
    if type(given) is dict:
        return given
    pairs = list(given.items())
    plain = dict(pairs)
    if len(plain) != len(pairs):
        raise EncodeError(tuple(path), f"a {type(given).__name__} that gives the same key twice cannot be written")
    return plain


def _elements(array: list[Value] | tuple[Value, ...], path: list[str | int]) -> Iterator[Value]:
    for index, value in enumerate(array):
        path[-1] = index
        yield value


def _members(out: bytearray, pairs: dict[Any, Value], path: list[str | int], limits: Limits) -> Iterator[Value]:
    for key, value in pairs.copy().items():  # it may change, if a value is of a subclass that runs code
        if not isinstance(key, str):
            raise EncodeError(tuple(path[:-1]), f"the key {_shown(key)} of an object is not a string")
        _put_string(out, key, path[:-1], limits, f"the key {_shown(key)}")
        path[-1] = key
        yield value


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:60] + "…"


def _put_scalar(out: bytearray, value: Value, path: list[str | int], limits: Limits) -> None:
    if value is None:
        out.append(layout.NULL_CODE)
    elif value is False:
        out.append(layout.FALSE_CODE)
    elif value is True:
        out.append(layout.TRUE_CODE)
    elif isinstance(value, str):
        _put_string(out, value, path, limits, "the string")
    elif isinstance(value, int):
        _put_integer(out, int.__index__(value), path)
    elif isinstance(value, float):
        _put_float(out, float.__float__(value), path)
    else:
        raise EncodeError(tuple(path), f"a {type(value).__name__} cannot be stored as JSON")


def _put_integer(out: bytearray, value: int, path: list[str | int]) -> None:
    if layout.SMALLEST_IN_CODE <= value <= layout.LARGEST_IN_CODE:
        out.append(value & 0xFF)
    elif 0 < value <= layout.MAX_INTEGER:
        size = (value.bit_length() + 7) // 8
        top_bit_set = value.bit_length() == 8 * size
        out.append((layout.UNSIGNED_CODE if top_bit_set else layout.SIGNED_CODE) + size - 1)
        out += value.to_bytes(size, "little")
    elif layout.MIN_INTEGER <= value < 0:
        size = (~value).bit_length() // 8 + 1
        out.append(layout.SIGNED_CODE + size - 1)
        out += value.to_bytes(size, "little", signed=True)
    else:
        raise EncodeError(tuple(path), "the integer is outside of -2**63..2**64-1")


def _put_float(out: bytearray, value: float, path: list[str | int]) -> None:
    if not math.isfinite(value):
        raise EncodeError(tuple(path), f"{value} cannot be stored as JSON")
    try:
        single = _SINGLE.pack(value)
    except OverflowError:
        single = b""
    if not single or _SINGLE.unpack(single)[0] != value:
        out.append(layout.FLOAT64_CODE)
        out += _DOUBLE.pack(value)
    elif single[:2] != b"\0\0":
        out.append(layout.FLOAT32_CODE)
        out += single
    else:
        out.append(layout.FLOAT16_CODE)
        out += single[2:]


def _put_string(out: bytearray, text: str, path: list[str | int], limits: Limits, name: str) -> None:
    try:
        data = str.encode(text, "utf-8")
    except UnicodeEncodeError:
        raise EncodeError(tuple(path), f"{name} has a lone surrogate, which UTF-8 cannot hold") from None
    if len(data) > limits.string_bytes:
        raise EncodeError(tuple(path), f"{name} of {len(data)} bytes is larger than the limit of {limits.string_bytes}")
    if len(data) <= layout.SHORT_STRING_BYTES:
        out.append(layout.SHORT_STRING_CODE + len(data))
    else:
        out.append(layout.LONG_STRING_CODE)
        out += _length_field(len(data))
    out += data


def _length_field(length: int) -> bytes:
    """The length field of a single chunk."""
    payload = 2 * length
    size = max(1, (payload.bit_length() + 6) // 7)
    if size > 8:
        return b"\0" + payload.to_bytes(8, "little")
    return (payload << size | 1 << (size - 1)).to_bytes(size, "little")
