"""Sample journals, written by hand, without a store."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logwright.versioned.bytes import codec
from logwright.versioned.bytes.layout import ARCHIVE_LEVEL, HEADER_BYTES
from logwright.versioned.bytes.records import Entry, Metadata
from logwright.versioned.files.files import active_name, archive_name
from logwright.versioned.model.replay import State, replay

START = 1_699_564_800_000_000_000
"""The time of the examples in the description of the format."""


def journal(initialized: int, entries: Iterable[Entry], *, spare: int = 0, **extra: Any) -> bytes:
    """A whole journal, with some bytes of zeros after its position."""
    body = codec.encode(Metadata(initialized, extra=extra or None)) + b"".join(map(codec.encode, entries))
    return codec.encode_header(HEADER_BYTES + len(body)) + body + bytes(spare)


def with_position(data: bytes, position: int) -> bytes:
    """A journal whose header has another position of the next entry."""
    return data[:8] + position.to_bytes(8, "little") + data[16:]


@dataclass
class Model:
    """A store in its simplest form: every change, and the journals that contain them."""

    initialized: int = START
    changes: list[Entry] = field(default_factory=list)
    archives: list[tuple[int, bytes]] = field(default_factory=list)
    _begun: int = START
    _entries: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._begun = self.initialized

    def change(self, entry: Entry) -> None:
        self.changes.append(entry)
        self._entries.append(entry)

    def rotate(self) -> None:
        """Rotate as a store does at its high-water mark; T counts up if the name is taken."""
        last = max([self._begun, *(entry.t for entry in self._entries)])
        while any(last == taken for taken, _ in self.archives):
            last += 1
        self.archives.append((last, journal(self._begun, self._entries)))
        state = replay(self._entries)
        copies = [Entry(t, key, value) for key, (value, t) in state.items()]
        self._entries = sorted(copies, key=lambda entry: entry.t)
        self._begun = last

    @property
    def now(self) -> int:
        """The least time that the next change may have."""
        return max([self._begun, *(entry.t for entry in self._entries)])

    def state(self, at: int | None = None) -> State:
        return replay(self.changes, at)

    def journal(self, *, spare: int = 64) -> bytes:
        """The active journal."""
        return journal(self._begun, self._entries, spare=spare)

    def write(self, directory: Path, store: str = "cars", *, spare: int = 64) -> Path:
        """Write the files; the path of the active one."""
        directory.mkdir(parents=True, exist_ok=True)
        for timestamp, data in self.archives:
            (directory / archive_name(store, timestamp)).write_bytes(zlib.compress(data, ARCHIVE_LEVEL))
        path = directory / active_name(store)
        path.write_bytes(self.journal(spare=spare))
        return path
