"""The protocol by which files appear together or not at all: for the sinks on Spark, restore and the pipeline.

Files are staged in a directory that readers ignore. A manifest in that directory names them. The steps, and what a
crash after each of them leaves:

1. The staged files and their names are synced: nothing is visible; the next publisher removes them.
2. The manifest gets its name and is synced: the files are committed. The next publisher does the remaining steps.
3. The files are put in place, and that is synced: a file is staged or in place, or after a power cut both.
4. The manifest is removed, and that is synced: all is in place.
5. What is left of the staged files is removed.

Each user has its own step 3, which can be repeated from any point. One publisher at a time does this, under a lock in
the same directory. The removal of a manifest is always synced before staged files are removed: after a power cut it
must not reappear without its files.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from ...errors import DamagedJournal, Locked, LogwrightError, NotFound, UnknownFormat
from ..bytes.text import why_invalid
from ..io.disk import Disk, remove_tree, replace_file
from ..io.lock import Lock

_VERSION: Final = 1
_LOOK_SECONDS: Final = 0.05

Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class Commit:
    """Files that are committed by the manifest at `path`.

    `is_staged` says which names in the directory of the manifest belong to them. `note` is added to an error after the
    commit: it says what completes it.
    """

    disk: Disk
    path: Path
    is_staged: Callable[[str], bool]
    note: str

    def publish(self, contents: Mapping[str, Any], put: Callable[[], None], temporary: Path | None = None) -> None:
        """Commit files that are synced, and put them in place by `put`, which syncs that.

        If the commit fails, the manifest is removed if possible: nothing is in place yet.
        """
        try:
            replace_json(self.disk, self.path, contents, temporary)
        except BaseException:
            with contextlib.suppress(LogwrightError):
                self._remove()
            raise
        with self._noted():
            put()
            self._remove()
        self._clear()

    def resume(self, put: Callable[[], None]) -> None:
        """Complete what an interrupted publisher has committed: `put` does what is not done yet."""
        with self._noted():
            self.disk.sync_directory(self.path.parent)  # the publisher may have been killed before this sync
            put()
            self._remove()
        self._clear()

    def discard(self) -> None:
        """Remove what is staged unless it is committed. The next publisher removes what cannot be removed now."""
        with contextlib.suppress(LogwrightError):
            if not self.disk.exists(self.path):
                clear(self.disk, self.path.parent, self.is_staged)

    def _remove(self) -> None:
        self.disk.remove(self.path)
        self.disk.sync_directory(self.path.parent)

    def _clear(self) -> None:
        with contextlib.suppress(LogwrightError):  # the next publisher removes what cannot be removed now
            _remove_names(self.disk, self.path.parent, self.is_staged)

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            error.add_note(self.note)
            raise


def clear(disk: Disk, directory: Path, is_left: Callable[[str], bool]) -> int:
    """Remove staged files that are not committed; how many there were."""
    disk.sync_directory(directory)  # a removed manifest must not reappear without its files
    return _remove_names(disk, directory, is_left)


def _remove_names(disk: Disk, directory: Path, is_left: Callable[[str], bool]) -> int:
    names = [name for name in disk.list_directory(directory) if is_left(name)]
    for name in names:
        remove_tree(disk, directory / name)
    return len(names)


def is_moved(disk: Disk, source: Path, targets: Iterable[Path]) -> bool:
    """Whether a committed file was moved: nothing else removes it. A power cut may leave it with both names."""
    identity = disk.identity(source)
    return identity is None or any(disk.identity(target) == identity for target in targets)


def move_into_place(disk: Disk, source: Path, target: Path) -> None:
    """Move a committed file into place unless it is there. Replaces another one; the caller syncs the directory."""
    if not is_moved(disk, source, [target]):
        disk.rename(source, target)
    elif not disk.exists(target):
        raise NotFound(f"{target}: the staged copy is gone from {source}")
    elif disk.exists(source):
        disk.remove(source)


def lock_alone(disk: Disk, path: Path, busy: str, patience_seconds: float = 0) -> Lock:
    """The lock of publishers. `Locked` says that the place is `busy` if another one holds it for `patience_seconds`."""
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            return Lock.acquire(disk, path)
        except Locked as error:
            if time.monotonic() >= deadline:
                raise Locked(busy, error.holder) from None
            time.sleep(_LOOK_SECONDS)


def replace_json(disk: Disk, path: Path, contents: Mapping[str, Any], temporary: Path | None = None) -> None:
    """Replace a file of ours, durably."""
    data = json.dumps({"version": _VERSION, **contents}).encode()
    replace_file(disk, path, data, temporary or path.with_name(f"{path.name}.tmp"))


def read_json(
    disk: Disk, path: Path, parse: Callable[[Any], Parsed], what: str, hint: str, *, may_lack_version: bool = False
) -> Parsed | None:
    """A file of ours, parsed; None if there is none. `DamagedJournal` says what it is, and with `hint` what to do."""
    try:
        file = disk.open(path, "read")
    except NotFound:
        return None
    try:
        data = file.read_at(0, file.size())
    finally:
        file.close()
    try:
        found = json.loads(data)
        version = found.get("version", _VERSION) if may_lack_version else found["version"]
        if version != _VERSION:
            raise ValueError(f"version {version} is not known here")
        return parse(found)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, UnknownFormat) as error:
        raise DamagedJournal(path, 0, f"this {what} is damaged: {why_invalid(error)}; {hint}") from error
