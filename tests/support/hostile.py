"""Hostile directories that do not arise by accident: functions that make them, given the path of a journal `journal`.

Each function returns a function that makes an entry at a path, so they can be nested:

    beside(files({"queue": data}), "queue.904", link_out(data))
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

Make = Callable[[Path], object]


def files(contents: Mapping[str, bytes]) -> Make:
    """A directory with these files, given by their relative paths."""

    def make(home: Path) -> None:
        home.mkdir(parents=True)
        for name, data in contents.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_bytes(data)

    return make


def beside(make_home: Make, name: str, make_entry: Make) -> Make:
    """A directory with one more entry."""

    def make(home: Path) -> None:
        make_home(home)
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        make_entry(home / name)

    return make


def alone(name: str, make_entry: Make) -> Make:
    """A directory with only this entry."""
    return beside(Path.mkdir, name, make_entry)


def link_to(target: str) -> Make:
    """A link."""
    return lambda path: path.symlink_to(target)


def link_out(data: bytes) -> Make:
    """A link to a file outside of the journal, which must not be changed."""

    def make(path: Path) -> None:
        outside = _outside(path) / "outside"
        outside.write_bytes(data)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(outside)

    return make


def link_directory_out(contents: Mapping[str, bytes]) -> Make:
    """A link to a directory outside of the journal, where nothing may appear or change."""

    def make(path: Path) -> None:
        outside = _outside(path) / "elsewhere"
        files(contents)(outside)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(outside)

    return make


def home_entries(make_home: Callable[[bytes], Make], whole: bytes, torn: bytes, lock: str) -> dict[str, Make]:
    """Entries that may obstruct locks and cuts, by name. `make_home` makes a journal of one file."""
    lock_path, elsewhere = f".logwright/{lock}", link_directory_out({lock: b""})
    return {
        "a lock that is a directory": beside(make_home(whole), lock_path, lambda path: path.mkdir()),
        "a lock that is a link": beside(make_home(whole), lock_path, link_out(torn)),
        "a lock that is a fifo": beside(make_home(whole), lock_path, os.mkfifo),
        "the place for cuts is a file": beside(make_home(torn), ".logwright", lambda path: path.write_bytes(b"")),
        "the place for cuts is a link": beside(make_home(torn), ".logwright", link_to(".")),
        "the place for cuts is elsewhere": beside(make_home(torn), ".logwright", elsewhere),
        "the cuts are elsewhere": beside(make_home(torn), ".logwright/cut", elsewhere),
    }


def _outside(path: Path) -> Path:
    """The directory of the journal."""
    return next(above.parent for above in path.parents if above.name == "journal")
