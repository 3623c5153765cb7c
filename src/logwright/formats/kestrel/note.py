"""The note of a pack: which one was written here last, how large it is, and which files it stands for.

A pack that is found beside the files that it replaces comes from a crash of ours, which is no danger: it got its name
when all of it was on the disk. Or it comes from elsewhere, and nobody can tell by its bytes whether it is whole: one
that ends too early, but behind an operation, reads like any other. So whoever packs notes beside the queue what the
pack replaces, durably, before the pack gets its name. Files that the note names may go; others are kept.

    .logwright/cars.packed      {"pack": 950, "bytes": 4711, "replaces": ["cars.904", "cars.950"]}

There is one note for each queue, that of its latest pack. One that is missing, or cannot be read, names nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from ...core.disk import Disk, make_directories, replace_file
from ...core.errors import LogwrightError
from .layout import HOME_DIRECTORY, TEMPORARY, note_name

_MOST_BYTES: Final = 64 << 20


def write_note(disk: Disk, directory: Path, queue: str, timestamp: int, size: int, replaces: Iterable[str]) -> None:
    """Note a pack that is about to get its name."""
    make_directories(disk, directory / HOME_DIRECTORY)
    path = directory / note_name(queue)
    note = {"pack": timestamp, "bytes": size, "replaces": list(replaces)}
    replace_file(disk, path, json.dumps(note).encode(), path.with_name(path.name + TEMPORARY))


def replaced_files(disk: Disk, directory: Path, queue: str, timestamp: int, pack: Path) -> frozenset[str]:
    """The files that a pack is known to stand for: none, unless it is the one that was noted, and as large."""
    try:
        note = _read(disk, directory / note_name(queue))
        if note["pack"] == timestamp and note["bytes"] == disk.file_size(pack):
            return frozenset(map(str, note["replaces"]))
    except (LogwrightError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return frozenset()


def _read(disk: Disk, path: Path) -> dict[str, Any]:
    file = disk.open(path, "read")
    try:
        found = json.loads(file.read_at(0, min(file.size(), _MOST_BYTES)))
    finally:
        file.close()
    return found if isinstance(found, dict) else {}
