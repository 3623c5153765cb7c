"""Stamps: which parts of a journal have changed since they were read, without opening them.

The stamp of a part is a digest of the names, sizes and times of its files, and of the first bytes of files that a
writer may have mapped into memory (`Format.mapped_bytes`). A part whose stamp is the one that was saved with the tables
has nothing new. A part with a file that was written within the last two seconds has no stamp: it may be written again
without another time.

    stamps_of(journal)      {part: stamp}; OWN has the files of no part: offsets, indexes, accounts of losses
    tree_of(root, journals) all files and directories, for runs that follow: `changed` compares their sizes and times
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from ..arrow.discovery import Journal
from ..core.format import Format, detect, find_format
from ..core.io.quarantine import DIRECTORY
from ..errors import LogwrightError, WrongUse
from ..location import is_local, locate

OWN: Final = "\0own"
_RECENT_NS: Final = 2_000_000_000


def stamps_of(journal: Journal) -> dict[str, str] | None:
    """The stamps of the parts of a journal, or None if it has none.

    It has none if it is not a directory of this machine, contains links, or may change without a trace.
    """
    disk, path = locate(journal.location)
    format = find_format(journal.format)
    mapped_bytes = format.mapped_bytes
    if mapped_bytes is None or not is_local(disk) or not os.path.isdir(path):
        return None
    places: dict[str, list[str]] = {OWN: []}
    recent: set[str] = set()
    recent_ns = time.time_ns() - _RECENT_NS
    try:
        for name, found in sorted(_files(path, "", is_flat=format.flat)):
            part = _part_of(format, name)
            beginning = _beginning(path / name, mapped_bytes) if mapped_bytes and part != OWN else b""
            place = (name, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, beginning)
            places.setdefault(part, []).append(repr(place))
            if max(found.st_mtime_ns, found.st_ctime_ns) > recent_ns:
                recent.add(part)
    except OSError:
        return None
    return {part: "" if part in recent else _digest(each) for part, each in places.items()}


_Mark: TypeAlias = tuple[tuple[int, ...], bytes]
"""The times, size and identity of a file, and its first bytes."""
_ABSENT: Final[_Mark] = (), b""


class Tree:
    """All files and directories at and below a directory, each with what changes whenever it does.

    That is its size, its times and its identity, and the first bytes of a file that a writer may have mapped into
    memory. What may change without a trace counts as changed: files of a format that changes bytes in place, and
    anything that was written within the last two seconds before it was looked at. Links are followed, after everything
    else: each directory is listed once, under its own name if that is below the first one.
    """

    def __init__(self, root: str, journals: Collection[Journal], left_out: str) -> None:
        self._left_out = left_out
        self._mapped: dict[tuple[int, int], int | None] = {}
        """How many of the first bytes of files count, by the identity of the directory that they are in or below."""
        self._inner: dict[str, int | None] = {}
        """The same for the files in each directory."""
        self._places: dict[tuple[int, int], str] = {}
        """Under which path each directory was listed: several links may lead to it."""
        self._links: dict[str, set[str]] = {}
        """The other paths of a directory, by that path."""
        self._closed = {str(locate(each.location)[1]) for each in journals if not find_format(each.format).flat}
        """The directories that are journals, with their contents."""
        self._reads: dict[str, int | None] = {}
        self._marks: dict[str, _Mark | None] = {}
        """Of each path; None counts as changed."""
        for journal in journals:
            mapped_bytes = find_format(journal.format).mapped_bytes
            if mapped_bytes != 0:
                self._note_mapped(locate(journal.location)[1], mapped_bytes)
        self._add(str(locate(root)[1]), 0, time.time_ns() - _RECENT_NS)

    def _note_mapped(self, path: Path, mapped_bytes: int | None) -> None:
        """Note how many bytes count in a journal's directory, which a journal of single files may share."""
        status = os.stat(path if path.is_dir() else path.parent)
        identity = status.st_dev, status.st_ino
        before = self._mapped.get(identity, 0)
        self._mapped[identity] = None if before is None or mapped_bytes is None else max(before, mapped_bytes)

    def _add(self, directory: str, outer: int | None, recent_ns: int) -> list[str]:
        """Add a directory, and everything in it that is not known; returns the paths."""
        found = []
        waiting = [(directory, outer)]
        while waiting:
            directory, outer = waiting.pop()
            status = os.stat(directory)
            identity = status.st_dev, status.st_ino
            self._inner[directory] = read = self._mapped.get(identity, outer)
            self._take(directory, 0, (_marked(status), b""), recent_ns)
            found.append(directory)
            place = self._places.setdefault(identity, directory)
            if place != directory:
                self._links.setdefault(place, set()).add(directory)
                continue
            with os.scandir(directory) as entries:
                for entry in entries:
                    path = entry.path
                    if path in self._marks or path == self._left_out:
                        continue
                    if entry.is_dir():
                        waiting.insert(0 if entry.is_symlink() else len(waiting), (path, read))
                        continue
                    self._take(path, read, _mark_of(path, read), recent_ns)
                    found.append(path)
        return found

    def _take(self, path: str, read: int | None, mark: _Mark | None, recent_ns: int) -> None:
        is_recent = mark is not None and max(mark[0][:2], default=0) > recent_ns
        self._reads[path], self._marks[path] = read, None if is_recent else mark

    def changed(self) -> list[str] | None:
        """The paths that have changed since the last call, or since the tree was made, and links in journals to them.

        None if a directory is gone, or has another identity: then the tree must be made again.
        """
        recent_ns = time.time_ns() - _RECENT_NS
        found = []
        try:
            for path, before in list(self._marks.items()):
                read = self._reads[path]
                mark = _mark_of(path, read)
                if mark is not None and mark == before:
                    continue
                if path not in self._inner:
                    if os.path.isdir(path):
                        return None
                    found.append(path)
                    if mark == _ABSENT:
                        del self._marks[path], self._reads[path]
                    else:
                        self._take(path, read, mark, recent_ns)
                elif before is None or mark is None or mark[0][-2:] == before[0][-2:]:
                    found += self._add(path, self._inner[path], recent_ns)
                else:
                    return None
        except OSError:
            return None
        return [*found, *self._links_to(found)]

    def _links_to(self, paths: list[str]) -> list[str]:
        """The links in journals that lead to paths, or to directories that they are in."""
        found: set[str] = set()
        waiting = list(paths) if self._links else []
        while waiting:
            more = {link for each in _and_above(waiting.pop()) for link in self._links.get(each, ())} - found
            found |= more
            waiting += more
        return [link for link in found if not self._closed.isdisjoint(_and_above(link))]


def _and_above(path: str) -> list[str]:
    return [path, *map(str, Path(path).parents)]


def _mark_of(path: str, read: int | None) -> _Mark | None:
    """The mark of a file or directory; None if it may change without a trace, or cannot be looked at."""
    if read is None:
        return None
    try:
        return _marked(os.stat(path)), _beginning(path, read) if read else b""
    except (FileNotFoundError, NotADirectoryError):
        return _ABSENT
    except OSError:
        return None


def _marked(status: os.stat_result) -> tuple[int, ...]:
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev


def tree_of(root: str, journals: Collection[Journal], left_out: str) -> Tree | None:
    """What is at and below a directory of this machine; `left_out` is skipped. None if it cannot be seen."""
    if not is_local(locate(root)[0]):
        return None
    try:
        return Tree(root, journals, left_out)
    except OSError:
        return None


def touched_by(changed: Iterable[str], journals: Iterable[Journal]) -> set[Journal] | None:
    """The journals to which changed paths belong; None if there may be journals that are not known."""
    known = {str(locate(journal.location)[1]): journal for journal in journals}
    found: set[Journal] = set()
    for path in changed:
        place = next((each for each in _and_above(path) if each in known), None)
        if place is None:
            return None
        is_flat = find_format(known[place].format).flat
        if is_flat and os.path.isdir(path) and Path(path).relative_to(place).parts[:1] != (DIRECTORY,):
            return None  # a directory beside its files may be a journal
        found.add(known[place])
    return found if all(map(_is_of_its_format, found)) else None


def _is_of_its_format(journal: Journal) -> bool:
    disk, path = locate(journal.location)
    try:
        return detect(path, disk=disk).name == journal.format
    except LogwrightError:
        return False


def _beginning(path: Path | str, size: int) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.read(file, size)
    finally:
        os.close(file)


def _digest(places: list[str]) -> str:
    return hashlib.blake2b("\n".join(places).encode(), digest_size=12).hexdigest()


def _files(directory: Path, folder: str, *, is_flat: bool) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            name = f"{folder}{entry.name}"
            if entry.is_symlink():
                raise OSError(f"{entry.path} is a link")  # the times of what it names are not its own
            if not entry.is_dir(follow_symlinks=False):
                yield name, entry.stat(follow_symlinks=False)
            elif not is_flat or entry.name == DIRECTORY or folder.startswith(DIRECTORY):
                yield from _files(Path(entry.path), f"{name}/", is_flat=is_flat)


def _part_of(format: Format, name: str) -> str:
    """The part that a file belongs to; `OWN` for files that belong to no part."""
    if name.startswith(f"{DIRECTORY}/"):
        return OWN
    try:
        return format.restore.part_of(name)
    except WrongUse:
        return OWN
