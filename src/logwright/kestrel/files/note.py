"""Notes beside a queue: which pack was written here last, and which rotated files there are.

A pack that is found beside the files that it replaces comes from a crash of ours, which is no danger: it got its name
when all of it was on the disk. Or it comes from elsewhere, and its bytes do not show whether it is whole: one
that ends too early, but after an operation, reads like any other. So packing notes beside the queue what the
pack replaces, durably, before the pack gets its name. Files that the note names may go; others are kept.

    .logwright/cars.packed      {"pack": 950, "bytes": 4711, "replaces": ["cars.904", "cars.950"]}

There is one note for each queue, that of its latest pack. One that is missing, or cannot be read, names nothing.

A rotated file that is gone leaves no trace in the others, and one that is cut between two operations looks whole. So
writers note the rotated files with their sizes, after the next newest file was created. A noted file that is missing
or has another size is damage, unless a pack has replaced it. A pack of another program is the first rotated file that
is left: it has a number that is not noted, or another size than the noted file, and all files of lower numbers are
gone.

    .logwright/cars.rotated     {"cars.904": 4711, "cars.950": 120}
"""

from __future__ import annotations

import json
import threading
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...core.io.disk import Disk, make_directories, replace_file
from ...errors import LogwrightError
from ..bytes.layout import (
    HOME_DIRECTORY,
    ROTATED_SUFFIX,
    TEMPORARY,
    note_name,
    parse_name,
    rotated_name,
    rotated_note_name,
)

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
    gone = pack_note(disk, directory, queue).replaces & rotated_files(disk, directory, queue).keys()
    note = {"pack": timestamp, "bytes": size, "replaces": sorted(gone.union(replaces), key=number_of)}
    replace_file(disk, path, json.dumps(note).encode(), path.with_name(path.name + TEMPORARY))


class PackNote(NamedTuple):
    """The note of the latest pack: its number, its size, and the files that it replaces."""

    timestamp: int = -1
    size: int = 0
    replaces: frozenset[str] = frozenset()


def pack_note(disk: Disk, directory: Path, queue: str) -> PackNote:
    """The note of the latest pack; that of no pack if there is none."""
    try:
        note = _read(disk, directory / note_name(queue))
        return PackNote(int(note["pack"]), int(note["bytes"]), frozenset(map(str, note["replaces"])))
    except (LogwrightError, ValueError, KeyError, TypeError, RecursionError):
        return PackNote()


def note_rotated(disk: Disk, directory: Path, queue: str, name: str, size: int, upto: int = -1) -> None:
    """Note a rotated file. With `upto` those up to this number are gone: it replaces them."""
    path = directory / rotated_note_name(queue)
    with _CHANGING:
        noted = {one: bytes_ for one, bytes_ in rotated_files(disk, directory, queue).items() if number_of(one) > upto}
        replace_file(disk, path, packed_note({**noted, name: size}), path.with_name(path.name + TEMPORARY))


def rotated_files(disk: Disk, directory: Path, queue: str) -> dict[str, int]:
    """The rotated files that were noted, with their sizes."""
    try:
        noted = _read(disk, directory / rotated_note_name(queue))
        return {name: int(size) for name, size in noted.items() if number_of(name) >= 0}
    except (LogwrightError, ValueError, TypeError, RecursionError):
        return {}


def noted_queues(disk: Disk, directory: Path) -> set[str]:
    """The queues of which rotated files were noted in a directory."""
    home = directory / HOME_DIRECTORY
    names = disk.list_directory(home) if disk.is_directory(home) else []
    queues = {name.removesuffix(ROTATED_SUFFIX) for name in names if name.endswith(ROTATED_SUFFIX)}
    return {queue for queue in queues if rotated_files(disk, directory, queue)}


def note_present(disk: Disk, directory: Path, queue: str, present: Mapping[str, int]) -> None:
    """Note exactly these rotated files, with their sizes: another program, or a crash, may have left some unnoted."""
    path = directory / rotated_note_name(queue)
    with _CHANGING:
        if rotated_files(disk, directory, queue) != present:
            replace_file(disk, path, packed_note(present), path.with_name(path.name + TEMPORARY))


def blocked_notes(disk: Disk, directory: Path, queue: str) -> dict[str, str]:
    """The notes that no writer can replace, because a directory is in their place, each with the reason."""
    names = (rotated_note_name(queue), note_name(queue))
    reason = "a directory is in the place of this note, and no writer can replace it; move it away"
    return {name: reason for name in names if disk.is_directory(directory / name)}


def packed_note(files: Mapping[str, int]) -> bytes:
    """The contents of a note of rotated files."""
    return json.dumps({**files}).encode()


def contradicted(
    disk: Disk,
    directory: Path,
    queue: str,
    noted: Mapping[str, int],
    present: Mapping[str, int],
    damaged: Container[str] = (),
) -> dict[str, int]:
    """The noted files that are missing or have another size, with the noted sizes, given the rotated ones there are.

    The first one may have another size because it is a pack of another program, but not if it is `damaged`.
    """
    packed = pack_note(disk, directory, queue)
    replaced = packed.replaces - {rotated_name(queue, packed.timestamp)}  # the pack has this name
    missing = {name for name in noted if name not in present and name not in replaced}
    changed = {name for name in noted if present.get(name, noted[name]) != noted[name]}
    changed -= {name for name in changed if (number_of(name), present[name]) == packed[:2]}  # it is about to be noted
    first = min(present, key=number_of, default="")
    has_predecessor = any(number_of(name) < number_of(first) for name in missing)
    if first and (first not in noted or (first in changed and has_predecessor and first not in damaged)):
        changed.discard(first)  # it may be a pack of another program
        missing = {name for name in missing if number_of(name) > number_of(first)}
    return {name: size for name, size in noted.items() if name in missing or name in changed}


def number_of(name: str) -> int:
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
