"""Stores: several stores in one directory, read as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...core.bytes.outcome import Damage
from ...core.format import Located
from ...core.io.disk import REAL_DISK, Disk
from ...core.read.parts import SideBySideReader
from ...errors import NotFound, WrongUse
from ..bytes.records import Entry
from .archive_stream import DEFAULT_LIMITS, ArchiveLimits
from .files import Listing, active_name, list_all, parse_name
from .reader import ROW_FIELDS, Reader, record_as_json


class StoresReader(SideBySideReader[Entry, Reader]):
    """All stores of a directory opened for reading. The verbs are those of `Reader`; stores come by name.

    `start` and `stop` are numbers within each store. Stores that appear later are found by the next call.
    """

    format = "versioned"
    part_name = "store"
    row_fields = ROW_FIELDS
    states_by_time = True

    def __init__(
        self, directory: Path | str, *, limits: ArchiveLimits = DEFAULT_LIMITS, disk: Disk = REAL_DISK
    ) -> None:
        super().__init__()
        self.path = Path(directory)
        self.disk = disk
        self.limits = limits
        self.damages: list[Damage] = []
        self._listed: dict[str, Listing] = {}
        if not self.stores():
            raise NotFound(f"{self.path}: no journal of a store is here")

    def stores(self) -> list[str]:
        """The names of the stores there are now."""
        self._listed = list_all(self.disk, self.path)
        return list(self._listed)

    def open(self, store: str) -> Reader:
        """The reader of one store. As long as nothing happens to that, the directory is not listed again for it."""
        path = self.path / active_name(store)
        return Reader(path, limits=self.limits, disk=self.disk, listed=self._listed.get(store))

    def look_up(self, store: str) -> Reader:
        """The same, for who has a file of the store already: nothing is listed."""
        return Reader(self.path / active_name(store), limits=self.limits, disk=self.disk, is_to_be_there=False)

    def names(self) -> list[str]:
        """The same, as all readers of several journals call it."""
        return self.stores()

    def part_of(self, file: str) -> str | None:
        """The store that a file belongs to by its name."""
        parsed = parse_name(file)
        return None if parsed is None else parsed[0]

    entries = SideBySideReader.records

    def state(self, at: int | None = None) -> dict[str, Any]:
        """The state of each store under its name."""
        self.damages = []
        found = {}
        for store, reader in self._each():
            found[store] = reader.state(at)
            self.damages += reader.damages
        return {"stores": found}

    def diff(self, start: int, stop: int) -> dict[str, Any]:
        """What changed between two times in all stores; a key is named STORE/KEY."""
        self.damages = []
        whole: dict[str, dict[str, Any]] = {"added": {}, "changed": {}, "removed": {}}
        for store, reader in self._each():
            for kind, changes in reader.diff(start, stop).items():
                whole[kind].update({f"{store}/{key}": change for key, change in changes.items()})
            self.damages += reader.damages
        return whole

    def history(self, key: str) -> list[dict[str, Any]]:
        """Every change of a key, which is named STORE/KEY."""
        store, _, rest = key.partition("/")
        if store not in self.stores():
            raise WrongUse(f"{self.path} holds the stores {', '.join(self.stores())}: write STORE/KEY")
        reader = self.open(store)
        found = reader.history(rest)
        self.damages = reader.damages
        return found

    def as_json(self, located: Located) -> dict[str, Any]:
        """A record as `dump --json` prints it, with its store."""
        return {**record_as_json(located), "store": self.part_of(located.file) or located.file}
