"""Notes beside a queue: which pack was written here last, and which rotated files there are.

A pack that is found beside the files that it replaces comes from a crash of ours, which is no danger: it got its name
when all of it was on the disk. Or it comes from elsewhere, and its bytes do not show whether it is whole: one
that ends too early, but after an operation, reads like any other. So packing notes beside the queue what the
pack replaces, durably, before the pack gets its name. Files that the note names may go; others are kept.

    .logwright/cars.packed      {"pack": 950, "bytes": 4711, "replaces": ["cars.904", "cars.950"]}

There is one note for each queue, that of its latest pack. One that is missing, or cannot be read, names nothing.

A rotated file that is gone leaves no trace in the others. So writers note the rotated files with their sizes. One that
is missing, and that no pack of ours has replaced, is lost, unless another program has changed the queue since: then a
file of a greater number is not noted, or has another size.

    .logwright/cars.rotated     {"cars.904": 4711, "cars.950": 120}
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from ...core.io.disk import Disk, make_directories, replace_file
from ...errors import LogwrightError
from ..bytes.layout import HOME_DIRECTORY, TEMPORARY, note_name, parse_name, rotated_note_name

_MOST_BYTES: Final = 64 << 20


_CHANGING: Final = threading.Lock()
"""Held while a note of rotated files changes: a queue may be rotated while a thread packs it."""


def write_note(disk: Disk, directory: Path, queue: str, timestamp: int, size: int, replaces: Iterable[str]) -> None:
    """Note a pack that is about to get its name.

    What the pack before it has replaced is named again as long as it is noted as a rotated file: a crash can come
    between the last two steps of packing.
    """
    make_directories(disk, directory / HOME_DIRECTORY)
    path = directory / note_name(queue)
    gone = _replaced(disk, path) & rotated_files(disk, directory, queue).keys()
    note = {"pack": timestamp, "bytes": size, "replaces": sorted(gone.union(replaces), key=_number)}
    replace_file(disk, path, json.dumps(note).encode(), path.with_name(path.name + TEMPORARY))


def replaced_files(disk: Disk, directory: Path, queue: str, timestamp: int, pack: Path) -> frozenset[str]:
    """The files that a pack is known to replace: none, unless it is the one that was noted, and as large."""
    try:
        note = _read(disk, directory / note_name(queue))
        if note["pack"] == timestamp and note["bytes"] == disk.file_size(pack):
            return frozenset(map(str, note["replaces"]))
    except (LogwrightError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return frozenset()


def note_rotated(disk: Disk, directory: Path, queue: str, name: str, size: int, upto: int = -1) -> None:
    """Note a rotated file. With `upto` those up to this number are gone: it replaces them."""
    path = directory / rotated_note_name(queue)
    with _CHANGING:
        noted = {one: bytes_ for one, bytes_ in rotated_files(disk, directory, queue).items() if _number(one) > upto}
        text = json.dumps({**noted, name: size})
        replace_file(disk, path, text.encode(), path.with_name(path.name + TEMPORARY))


def rotated_files(disk: Disk, directory: Path, queue: str) -> dict[str, int]:
    """The rotated files that were noted, with their sizes."""
    try:
        noted = _read(disk, directory / rotated_note_name(queue))
        return {name: int(size) for name, size in noted.items() if _number(name) >= 0}
    except (LogwrightError, ValueError, TypeError, RecursionError):
        return {}


def missing_files(disk: Disk, directory: Path, queue: str, present: dict[str, int]) -> dict[str, int]:
    """The rotated files that are lost, with their sizes, given those that are there with theirs."""
    noted = rotated_files(disk, directory, queue)
    missing = {name: size for name, size in noted.items() if name not in present}
    if not missing:
        return {}
    replaced = _replaced(disk, directory / note_name(queue))
    foreign = max((_number(name) for name, size in present.items() if noted.get(name) != size), default=-1)
    return {name: size for name, size in missing.items() if name not in replaced and _number(name) > foreign}


def _replaced(disk: Disk, path: Path) -> set[str]:
    """The files that a note says a pack has replaced."""
    try:
        return set(map(str, _read(disk, path).get("replaces", ())))
    except (LogwrightError, ValueError, TypeError, RecursionError):
        return set()


def _number(name: str) -> int:
    """The number in the name of a rotated file, -1 for any other."""
    parsed = parse_name(name)
    return -1 if parsed is None or parsed[1] is None else parsed[1]


def _read(disk: Disk, path: Path) -> dict[str, Any]:
    file = disk.open(path, "read")
    try:
        found = json.loads(file.read_at(0, min(file.size(), _MOST_BYTES)))
    finally:
        file.close()
    return found if isinstance(found, dict) else {}
