"""Records as JSON for the page: the rows of a table, one record in full, and the matches of a filter.

JavaScript cannot represent all record numbers and times, so they are strings; times for drawing are milliseconds.
"""

from __future__ import annotations

import base64
import json
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from ..arrow.selection import Selection
from ..core.bytes.outcome import Damage
from ..core.format import Format, Located, Reader
from ..core.read.chunk_reader import located
from ..core.times import shown_time
from ..errors import NotFound, WrongUse
from ..values import Undecodable, decoder, plain
from .outline import AnyReader, Outline, time_in

MOST_ROWS: Final = 500
_MOST_PAGE_BYTES: Final = 8 << 20
_MOST_SHOWN_CHARACTERS: Final = 240
_MOST_DECODED_BYTES: Final = 1 << 20
_HEX_BYTES: Final = 4096
_BACK_ROWS: Final = (2, 64, 4096)
_SEARCH_SECONDS: Final = 1.0
"""How long a search reads before it answers with what it has found."""
_GUESSED: Final = ("json", "bonjson", "msgpack", "text")


# --- rows -----------------------------------------------------------------------------------------------------------


def row_of(reader: Reader, item: Located | Damage, row: int | None = None) -> dict[str, Any]:
    """A record, or damage, as a row of a table."""
    if isinstance(item, Damage):
        place = {"file": item.file, "position": item.start, "size": item.size}
        return {"row": row, "damage": item.kind, "text": item.reason, **place}
    fields = reader.as_json(item)
    when = time_in(fields, reader.time_scale)
    part, number = reader.number_of(item)
    return {
        "row": row,
        "number": str(number),
        "part": part,
        "time": None if when is None else shown_time(when),
        "ms": None if when is None else when // 1_000_000,
        "kind": _kind(fields),
        "key": _key(fields),
        "text": _text(fields),
        "file": fields["file"],
        "position": fields["position"],
        "size": fields["size"],
    }


def _kind(fields: dict[str, Any]) -> str:
    for name in ("op", "kind", "outcome"):
        if fields.get(name) is not None:
            return str(fields[name])
    if "type" in fields:
        return f"type {fields['type']}" if fields["type"] else ""
    if "initialized" in fields:
        return "beginning"
    return "deleted" if "o" in fields and fields["o"] is None else ""


def _key(fields: dict[str, Any]) -> str:
    if fields.get("key") is not None:
        return readable(base64.b64decode(fields["key"]))
    if "operations" in fields:
        pages = dict.fromkeys(str(operation["page"]) for operation in fields["operations"] if "page" in operation)
        return f"page {', '.join(list(pages)[:4])}"
    found = fields.get("k", fields.get("segment", fields.get("xid")))
    return "" if found is None else _cut(str(found))


def _text(fields: dict[str, Any]) -> str:
    contents = _contents(fields)
    if contents is not None:
        return readable(contents)
    if "o" in fields:
        return _cut(json.dumps(fields["o"], ensure_ascii=False))
    if "operations" in fields:
        return f"{len(fields['operations'])} operations"
    if "checked" in fields:
        return f"checked {fields['checked']}, current {fields['current']}"
    return ""


def readable(data: bytes) -> str:
    """The beginning of bytes as text, with escapes for characters that cannot be printed."""
    text = data[: 4 * _MOST_SHOWN_CHARACTERS].decode("utf-8", "backslashreplace")
    return _cut("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN_CHARACTERS else text[:_MOST_SHOWN_CHARACTERS] + "…"


# --- pages ----------------------------------------------------------------------------------------------------------


def page(reader: AnyReader, outline: Outline, row: int, count: int) -> dict[str, Any]:
    """The records of some rows; fewer if they are large. `next` is the row after them."""
    rows: list[dict[str, Any]] = []
    read, after = 0, row
    for at, item in outline.items(reader, row):
        if at >= row + min(count, MOST_ROWS) or (read > _MOST_PAGE_BYTES and not isinstance(item, Damage)):
            break
        rows.append(row_of(reader, item, at))
        after = at if isinstance(item, Damage) else at + 1
        read += rows[-1]["size"]
    return {"rows": rows, "next": after, "complete": outline.is_complete, "total": outline.rows}


def search(
    reader: AnyReader,
    outline: Outline,
    choice: Selection,
    start: int | None,
    stop: int | None,
    limit: int,
) -> dict[str, Any]:
    """The records that match from a number on. `next` is where to continue, None at the end."""
    rows: list[dict[str, Any]] = []
    deadline = time.monotonic() + _SEARCH_SECONDS
    own = choice.within(reader.part) if reader.part else choice
    reached = start
    for low, high in outline.windows(start):
        if stop is not None and low >= stop:
            break
        end = stop if high is None or (stop is not None and stop < high) else high
        for item in _chosen(reader, own, low, end, resumed=start is not None):
            rows.append(row_of(reader, item))
            if isinstance(item, Damage):
                continue
            reached = reader.number_of(item)[1] + (
                1 if outline.number_at(1) - outline.number_at(0) == 1 else item.span.size
            )
            if len(rows) >= min(limit, MOST_ROWS):
                return {"rows": rows, "next": str(reached)}
        if end is None or end == stop:
            break
        reached = end
        if time.monotonic() > deadline:
            return {"rows": rows, "next": str(reached)}
    return {"rows": rows, "next": None}


def _chosen(
    reader: AnyReader, choice: Selection, start: int, stop: int | None, *, resumed: bool
) -> Iterator[Located | Damage]:
    """The records that match, each once: a copy of a record that compaction made is not another record."""
    for low, high in choice.ranges(reader, start, stop):
        how = dict(reader.resumed_by) if resumed else {}
        for item in choice.through(reader.chunks(low, high, mode="permissive", **how)):
            if isinstance(item, Damage):
                yield item
            elif item[1]:
                yield from located(item[0], reader.decoded(item[0]), item[1])


def selection(format: Format, key: str | None, grep: str | None, where: str | None, decode: str | None) -> Selection:
    """What a filter chooses."""
    known = None if decode is None else decoder(decode)
    return Selection(format, key=key, grep=grep, where=where, decode=known, is_json=decode == "json")


# --- one record -----------------------------------------------------------------------------------------------------


def in_full(
    reader: AnyReader, outline: Outline, number: int, decode: str | None, schema: str | None, offset: int
) -> dict[str, Any]:
    """One record with all fields, its value decoded and as hex, and its neighbours."""
    row = outline.row_of(reader, number)
    for back in _BACK_ROWS:  # further if records before it are lost
        before, found, after = _around(reader, outline, row, back)
        if row <= back or any(not isinstance(item, Damage) for _, item in before):
            break
    if found is None or reader.number_of(found)[1] != number:
        raise NotFound(f"{reader.path} has no record {number} any more")
    fields = reader.as_json(found)
    contents = _contents(fields)
    around = [row_of(reader, item, at) for at, item in [*before, (row, found), *after]]
    answer: dict[str, Any] = {
        **around[len(before)],
        "fields": {name: _shown(value) for name, value in fields.items() if name not in ("value", "data", "o")},
        "neighbours": around,
        "value_bytes": None if contents is None else len(contents),
    }
    if "o" in fields:
        answer |= {"decoding": "bonjson", "decoded": json.dumps(fields["o"], ensure_ascii=False, indent=2)}
    if contents is not None:
        answer |= _decoded(contents, decode, schema)
        answer |= {"hex": contents[offset : offset + _HEX_BYTES].hex(), "hex_offset": offset}
    return answer


def _around(
    reader: AnyReader, outline: Outline, row: int, back: int
) -> tuple[list[tuple[int, Located | Damage]], Located | None, list[tuple[int, Located | Damage]]]:
    """A record and its two neighbours on each side, read from some rows before it on. Damage is a neighbour too."""
    before: deque[tuple[int, Located | Damage]] = deque(maxlen=2)
    found: Located | None = None
    after: list[tuple[int, Located | Damage]] = []
    for at, item in outline.items(reader, max(0, row - back)):
        if found is not None:
            after.append((at, item))
        elif at == row and not isinstance(item, Damage):
            found = item
        else:
            before.append((at, item))
        if len(after) == 2 or at > row + back:
            break
    return list(before), found, after


def _contents(fields: dict[str, Any]) -> bytes | None:
    for name in ("value", "data"):
        if fields.get(name) is not None:
            return base64.b64decode(fields[name])
    return None


def _shown(value: Any) -> Any:
    """A field as JSON that JavaScript reads exactly."""
    if isinstance(value, int) and abs(value) >= 1 << 53:
        return str(value)
    if isinstance(value, list):
        return [_shown(item) for item in value[:200]]
    if isinstance(value, dict):
        return {name: _shown(item) for name, item in value.items()}
    return value


def _decoded(contents: bytes, decode: str | None, schema: str | None) -> dict[str, Any]:
    """A value in a given decoding, or in the first one that fits."""
    if len(contents) > _MOST_DECODED_BYTES:
        return {"decoding": None, "decoded": None, "undecoded": f"{len(contents):,} bytes are too many to decode here"}
    reason = ""
    for name in _GUESSED if decode is None else (decode,):
        try:
            value = decoder(name, schema if name == "avro" else None)(contents)
        except Undecodable as error:
            reason = str(error)
            continue
        except WrongUse as error:
            reason = str(error)
            if decode is not None:
                break
            continue
        if decode is None and name in ("bonjson", "msgpack") and not isinstance(value, dict | list):
            continue  # almost any byte is a number in these
        text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False, indent=2)
        return {"decoding": name, "decoded": text}
    return {"decoding": decode, "decoded": None, "undecoded": reason}
