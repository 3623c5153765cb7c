"""Shared by the tests of the store: a clock that is set, and the files of a store, read and made by hand."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from logwright.core.bytes.outcome import Malformed
from logwright.core.io.disk import REAL_DISK, Disk
from logwright.versioned.bytes import codec
from logwright.versioned.bytes.layout import HEADER_BYTES
from logwright.versioned.bytes.records import Entry, Metadata
from logwright.versioned.files.files import list_files
from logwright.versioned.model.store import VersionedKVStore
from tests.support.trees import read_file

HOME = Path("/stores")
Change = tuple[int, str, str]
"""Time, key, and value as JSON; null removes the key."""


class Clock:
    """A clock that returns the given times, then one more each time."""

    def __init__(self, start: int = 1_000_000_000_000_000_000, times: Iterable[int] = ()) -> None:
        self.now = start
        self._times = iter(times)

    def __call__(self) -> int:
        self.now = next(self._times, self.now + 1)
        return self.now


class HookedDisk:
    """The real disk, or another one, with a hook before a file is opened: for races that always happen."""

    def __init__(self, inner: Disk = REAL_DISK) -> None:
        self.inner = inner
        self.before_open: Callable[[Path], None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def open(self, path: Path, mode: Any) -> Any:
        if self.before_open is not None:
            self.before_open(path)
        return self.inner.open(path, mode)


def content_of(store: VersionedKVStore) -> dict[str, tuple[Any, int]]:
    """The contents of a store, with times."""
    found = {}
    for key, value in store.items():
        pair = store.get_with_timestamp(key)
        assert pair is not None
        assert pair[0] == value
        found[key] = pair
    return found


def journal(
    entries: Sequence[tuple[int, str, Any]],
    initialized: int = 1000,
    size: int | None = None,
    position: int | None = None,
) -> bytes:
    """A journal made by hand, as another program would have written it."""
    body = codec.encode_metadata(Metadata(initialized)) + b"".join(codec.pack_entry(*entry) for entry in entries)
    end = HEADER_BYTES + len(body)
    data = codec.encode_header(end if position is None else position) + body
    return data if size is None else data.ljust(size, b"\0")


def decode_journal(data: bytes) -> tuple[int, list[Entry]]:
    """The time since which a journal was active, and its entries up to its position. All of it must be whole."""
    header = codec.decode_header(data)
    assert isinstance(header, tuple)
    position = header[0].position
    assert position <= len(data)
    metadata = codec.decode_metadata(data, HEADER_BYTES, position)
    assert isinstance(metadata, tuple)
    entries, at = [], metadata[1].end
    while at < position:
        found = codec.decode_entry(data, at, position)
        assert isinstance(found, tuple), Malformed(at, "an entry is cut")
        entries.append(found[0])
        at = found[1].end
    return metadata[0].initialized, entries


def journals_of(directory: Path, name: str, disk: Disk = REAL_DISK) -> list[tuple[int, list[Entry]]]:
    """All journals of a store, archives first, the oldest first."""
    listing = list_files(disk, directory, name)
    found = [decode_journal(zlib.decompress(read_file(disk, file.path))) for file in listing.archive_files()]
    for name_of_file, is_there in ((f"{name}.jrn.old", listing.has_old), (f"{name}.jrn", listing.has_active)):
        if is_there:
            found.append(decode_journal(read_file(disk, directory / name_of_file)))
    return found


def changes_of(directory: Path, name: str, disk: Disk = REAL_DISK) -> list[Change]:
    """Every change in the journals of a store, once, in their order."""
    found: dict[Change, None] = {}
    for _, entries in journals_of(directory, name, disk):
        for entry in entries:
            found.setdefault((entry.t, entry.k, json.dumps(entry.o)))
    return list(found)


def state_of(entries: Iterable[Entry]) -> dict[str, tuple[Any, int]]:
    """The state that the entries of a journal result in."""
    state: dict[str, tuple[Any, int]] = {}
    for entry in entries:
        state.pop(entry.k, None)
        if entry.o is not None:
            state[entry.k] = (entry.o, entry.t)
    return state


class Renamed:
    """A store whose last archive gets a later name than usual, because another file has that name."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.taken = directory / "cars.jrn.t2000.zz"
        self.taken.write_bytes(b"no archive")
        (directory / "cars.jrn.old").write_bytes(journal([(1000, "a", 1), (2000, "b", 2)], 1000))
        (directory / "cars.jrn").write_bytes(journal([(1000, "a", 1), (2000, "b", 2), (2001, "c", 3)], 2000, 4096))

    def insert(self, key: str, value: int) -> None:
        """The next change; opening the store makes the archive first."""
        with VersionedKVStore(self.directory, "cars", 4096, clock=Clock(3000 + value), background=False) as store:
            store.insert(key, value)

    def remove_archives(self) -> None:
        """As retention does: from then on the journal is numbered by its own beginning."""
        self.taken.unlink()
        (self.directory / "cars.jrn.t2001.zz").unlink()
