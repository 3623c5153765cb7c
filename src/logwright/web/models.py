"""The state that journals describe, as JSON for its views: queues, stores, segments, pages, and consumers."""

from __future__ import annotations

import base64
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator
from datetime import datetime
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from ..arrow.bounds import Filter
from ..arrow.tables import JournalTable
from ..core.format import Format, Reader, find_format
from ..core.times import parse_time, shown_time
from ..errors import WrongUse
from .catalog import Entry, depth_of
from .outline import AnyReader, DamagedRange, Outline
from .records import readable

_SHOWN_ITEMS: Final = 50
_SHOWN_KEYS: Final = 2000
_SHOWN_SEGMENTS: Final = 5000
_SHOWN_VERSIONS: Final = 500
_SHOWN_RANGES: Final = 2000
_FREED_BYTES: Final = 64 << 20
"""Queues up to this size are replayed to show which of their bytes are not needed any more."""
_DONE: Final = "operations of items that are done: packing the queue removes them"
_LEAST_ZEROS: Final = 16
_MOST_ZEROS: Final = 16 << 20


def _rows(reader: Reader, table: str, names: list[str]) -> Iterator[dict[str, Any]]:
    """The rows of a table that is made of the records of a journal."""
    found = JournalTable(str(reader.path), table, mode="permissive", format=reader.format, on_damage=lambda _: None)
    wanted = pa.schema([found.schema.field(name) for name in names])
    for batch in found.batches(wanted, Filter(None, found.schema)):
        yield from batch.to_pylist()


# --- queues ---------------------------------------------------------------------------------------------------------

_ITEM: Final = [
    *("item", "state", "data", "added", "expires", "xid", "attempts"),
    *("added_file", "added_position", "reserved_file", "reserved_position"),
]


def queue(reader: AnyReader, outline: Outline, delayed: int | None = None) -> dict[str, Any]:
    """A queue: its items by state, its head and its tail, the open items, and its depth so far.

    `delayed` is the number of the items in its holding queue, None if it has none.
    """
    states: Counter[str] = Counter()
    head: list[dict[str, Any]] = []
    tail: deque[dict[str, Any]] = deque(maxlen=_SHOWN_ITEMS)
    open_items: list[dict[str, Any]] = []
    series = _thinned(outline.series())
    times = list(accumulate((counts["time"] or 0 for counts in series), max))
    expired = [0] * (len(series) + 1)
    for item in _rows(reader, "items", _ITEM):
        states[item["state"]] += 1
        if item["state"] == "waiting":
            if len(head) < _SHOWN_ITEMS:
                head.append(_item(item))
            tail.append(item)
        elif item["state"] == "expired":
            expired[bisect_left(times, _nanoseconds(item["expires"]))] += 1
        elif item["state"] == "open" and len(open_items) < _SHOWN_ITEMS:
            open_items.append(_item(item))
    if series:
        expired[len(series) - 1] += expired.pop()  # since the last item was added
    return {
        "states": dict(states),
        "delayed": delayed,
        "head": head,
        "tail": [_item(item) for item in tail],
        "open": open_items,
        "depth": [
            _depth(counts, when, gone) for counts, when, gone in zip(series, times, accumulate(expired), strict=False)
        ],
    }


def _depth(counts: dict[str, Any], when: int, expired: int) -> dict[str, Any]:
    """The items of a queue after some operations. `ms` is the time of the last item that was added until then."""
    waiting, is_open, done = depth_of(counts)
    known = {"row": counts["row"], "ms": when // 1_000_000 or None}
    return {**known, "waiting": max(0, waiting - expired), "open": is_open, "expired": expired, "done": done}


def _nanoseconds(when: datetime) -> int:
    return int(when.timestamp() * 1_000_000) * 1000


def _iso(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat().replace("+00:00", "Z")


def _thinned(series: list[dict[str, Any]], most: int = 400) -> list[dict[str, Any]]:
    step = max(1, -(-len(series) // most))
    return [*series[:-1:step], *series[-1:]]


def _item(item: dict[str, Any]) -> dict[str, Any]:
    times = {name: _iso(item[name]) for name in ("added", "expires")}
    place, reserved = (
        f"{item[f'{what}_file']}@{item[f'{what}_position']}" if item[f"{what}_file"] is not None else None
        for what in ("added", "reserved")
    )
    kept = {name: item[name] for name in ("item", "state", "xid", "attempts")}
    return {**kept, **times, "text": readable(item["data"] or b""), "place": place, "reserved": reserved}


# --- stores ---------------------------------------------------------------------------------------------------------


def store(reader: AnyReader, at: str | None, prefix: str) -> dict[str, Any]:
    """The keys of a store at a time, or now. `total` counts those that are not listed as well."""
    moment = None if at is None else parse_time(at)
    found = reader.state(moment)
    chosen = sorted(key for key in found if key.startswith(prefix))
    keys = [
        {
            "key": key,
            "value": found[key]["value"],
            "time": shown_time(found[key]["timestamp"]),
            "ms": found[key]["timestamp"] // 1_000_000,
        }
        for key in chosen[:_SHOWN_KEYS]
    ]
    return {"keys": keys, "total": len(chosen), "damages": [str(damage) for damage in reader.damages]}


def history(reader: Reader, key: str) -> dict[str, Any]:
    """All changes of a key, item or page."""
    found = reader.history(key)
    changes = [{**change, **_when(change, reader)} for change in found[-_SHOWN_VERSIONS:]]
    return {"changes": changes, "total": len(found)}


def _when(change: dict[str, Any], reader: Reader) -> dict[str, Any]:
    """The time of a change. In a queue `t` is the number of an operation, which has no time."""
    if not reader.states_by_time and "transaction" not in change:
        return {"t": str(change["t"])}
    when = change["t"] * (1 if reader.states_by_time else reader.time_scale)
    return {"t": str(when), "time": shown_time(when), "ms": when // 1_000_000}


def difference(reader: Reader, start: str, stop: str) -> dict[str, Any]:
    """What changed between two times."""
    if not reader.states_by_time:
        raise WrongUse(f"{reader.path}: only stores are compared by time here")
    found = reader.diff(parse_time(start), parse_time(stop))
    shown = {what: dict(islice(sorted(keys.items()), _SHOWN_KEYS)) for what, keys in found.items()}
    return {**shown, "total": sum(len(keys) for keys in found.values())}


# --- segments -------------------------------------------------------------------------------------------------------


def segments(reader: Reader) -> dict[str, Any]:
    """The segments of a journal with checkpoints, and which of them a recovery returns."""
    names = ["generation", "segment", "complete", "checked", "records", "bytes", "first_file", "first_position"]
    found: list[dict[str, Any]] = []
    for row in _rows(reader, "segments", names):
        if len(found) >= _SHOWN_SEGMENTS:
            break
        found.append({**row, "recovered": bool(row["complete"]) and not row["checked"]})
    return {"segments": found}


# --- pages ----------------------------------------------------------------------------------------------------------


def pages(reader: Reader) -> dict[str, Any]:
    """The pages that transactions changed, with the number of their versions."""
    versions: Counter[int] = Counter()
    latest: dict[int, str] = {}
    for row in _rows(reader, "page_versions", ["page", "op", "timestamp", "deleted"]):
        versions[row["page"]] += 1
        latest[row["page"]] = _iso(row["timestamp"]) or ""
    outcomes = Counter(str(row["outcome"]) for row in _rows(reader, "transactions", ["outcome"]))
    listed = [{"page": page, "versions": count, "time": latest[page]} for page, count in sorted(versions.items())]
    return {"pages": listed[:_SHOWN_RANGES], "total": len(listed), "outcomes": dict(outcomes)}


def page_versions(reader: Reader, page: str) -> dict[str, Any]:
    """The versions of a page, each with the bytes that are known, as hex with their places."""
    found = history(reader, page)
    for change in found["changes"]:
        value = change.pop("value", None) or []
        change["ranges"] = [{"offset": one["offset"], "hex": base64.b64decode(one["data"]).hex()} for one in value]
    return found


# --- consumers and files ----------------------------------------------------------------------------------------------


def shards(format: Format, reader: Reader) -> dict[str, Any]:
    """The parts of a journal with their consumers and how far behind they are."""
    inventory = format.splits.inventory(reader)
    extents = format.splits.extent(reader)
    parts = []
    for part, (first, after) in extents.items():
        consumers = [
            {
                "consumer": found.consumer,
                "offset": found.offset,
                "lag": after - (first if found.offset is None else found.offset),
                "problem": found.problem,
            }
            for found in inventory.consumers
            if found.part == part
        ]
        size = sum(file.bytes for file in inventory.files if file.part == part)
        numbers = {"first": first, "next": after, "records": after - first}
        parts.append({"part": part, **numbers, "bytes": size, "consumers": consumers})
    return {"parts": parts}


def files(entry: Entry, reader: Reader, damages: list[DamagedRange]) -> dict[str, Any]:
    """The files of a journal, each with the ranges of its bytes that are not records, or that are not needed."""
    inventory = entry.format.splits.inventory(reader)
    free = _freed(reader) if entry.format.items is not None and reader.total_bytes() <= _FREED_BYTES else {}
    base = reader.path if reader.path.is_dir() else reader.path.parent
    found = []
    for file in inventory.files:
        ranges = [_range(0, free[file.file], "free", _DONE)] if free.get(file.file) else []
        for one in (one.damage for one in damages if one.damage.file == file.file):
            end = min(max(one.end, one.start + 1), max(file.bytes, 1))
            zeros = _zeros_before(base / file.file, one.start, end) if one.kind == "torn_tail" else 0
            if end - zeros > one.start:
                ranges.append(_range(one.start, end - zeros, one.kind, one.reason))
            if zeros:
                ranges.append(_range(end - zeros, end, "free", "zeros after the last record"))
        found.append({"file": file.file, "part": file.part, "bytes": file.bytes, "ranges": ranges})
    return {"files": found, "verified": entry.report is not None}


def _range(start: int, end: int, kind: str, reason: str) -> dict[str, Any]:
    return {"start": start, "end": end, "kind": kind, "reason": reason}


def _freed(reader: Reader) -> dict[str, int]:
    """For each file of queues, the bytes at its beginning that only concern items that are done."""
    found: dict[str, int] = {}
    for part in [one for _, one in reader.parts()] if reader.has_parts else [reader]:
        files = [(file.file, file.bytes) for file in find_format(reader.format).splits.inventory(part).files]
        rows = _rows(part, "items", ["state", "added_file", "added_position"])
        oldest = next((row for row in rows if row["state"] != "done" and row["added_file"] is not None), None)
        for name, size in files:
            if oldest is not None and Path(name).name == Path(oldest["added_file"]).name:
                found[name] = oldest["added_position"]
                break
            found[name] = size
    return found


def _zeros_before(path: Path, start: int, end: int) -> int:
    """How many zeros a range of a file ends with; a few may belong to a record."""
    try:
        with path.open("rb") as file:
            file.seek(max(start, end - _MOST_ZEROS))
            data = file.read(end - file.tell())
    except OSError:
        return 0
    zeros = len(data) - len(data.rstrip(b"\0"))
    return zeros if zeros >= _LEAST_ZEROS else 0
