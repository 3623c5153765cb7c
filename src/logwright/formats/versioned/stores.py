"""Stores: several stores in one directory, read as one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...core.disk import REAL_DISK, Disk
from ...core.errors import NotFound, WrongUse
from ...core.format import Located
from ...core.outcome import Damage, Mode
from ...core.parts import Bound, PartsReader, bound_of
from .archives import DEFAULT_LIMITS, ArchiveLimits
from .files import active_name, list_stores, parse_name
from .reader import ROW_FIELDS, Reader, record_as_json
from .records import Entry


class StoresReader(PartsReader):
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
        if not self.stores():
            raise NotFound(f"{self.path}: no journal of a store is here")

    def stores(self) -> list[str]:
        """The names of the stores there are now."""
        return list_stores(self.disk, self.path)

    def open(self, store: str) -> Reader:
        """The reader of one store."""
        return Reader(self.path / active_name(store), limits=self.limits, disk=self.disk)

    def parts(self) -> list[tuple[str, Reader]]:
        """The stores, each with its reader."""
        return [(store, self.open(store)) for store in self.stores()]

    def within(self, part: str, file: str) -> str:
        """Files of all stores are in the same directory."""
        return file

    def entries(self, start: Bound = None, stop: Bound = None, *, mode: Mode = "failfast") -> Iterator[Entry | Damage]:
        """The changes of every store with `start` <= number < `stop`, each once."""
        for store, reader in self._each():
            yield from reader.entries(bound_of(store, start), bound_of(store, stop), mode=mode)

    def last(self, count: int) -> list[Located]:
        """The last entries of each store: there is no order between stores. At most `count` of them in all."""
        ends = [reader.last(count) for _, reader in self._each()]
        share = [len(end) for end in ends]
        while sum(share) > count:
            share[share.index(max(share))] -= 1
        return [item for end, kept in zip(ends, share, strict=True) for item in end[len(end) - kept :]]

    def find_place(self, text: str) -> dict[str, int]:
        """The number that `FILE@POSITION` stands for, in the store of that file only."""
        parsed = parse_name(text.rpartition("@")[0].strip())
        if parsed is None or parsed[0] not in self.stores():
            raise WrongUse(f"{text!r} is no place in these stores: write FILE@POSITION")
        return {parsed[0]: self.open(parsed[0]).find_place(text)}

    def state(self, at: int | None = None) -> dict[str, Any]:
        """The state of each store under its name."""
        self.damages = []
        found = {}
        for store, reader in self._each():
            found[store] = reader.state(at)
            self.damages += reader.damages
        return {"stores": found}

    def diff(self, start: int, stop: int) -> dict[str, Any]:
        """What changed between two times in all stores; a key is told as STORE/KEY."""
        self.damages = []
        whole: dict[str, dict[str, Any]] = {"added": {}, "changed": {}, "removed": {}}
        for store, reader in self._each():
            for kind, changes in reader.diff(start, stop).items():
                whole[kind].update({f"{store}/{key}": change for key, change in changes.items()})
            self.damages += reader.damages
        return whole

    def history(self, key: str) -> list[dict[str, Any]]:
        """Every change of a key, which is told as STORE/KEY."""
        store, _, rest = key.partition("/")
        if store not in self.stores():
            raise WrongUse(f"{self.path} holds the stores {', '.join(self.stores())}: write STORE/KEY")
        return self.open(store).history(rest)

    def number_of(self, located: Located) -> tuple[str, int]:
        """The store that an entry belongs to, and its number there."""
        parsed = parse_name(located.file)
        return self.open(parsed[0] if parsed else located.file).number_of(located)

    def as_json(self, located: Located) -> dict[str, Any]:
        """A record as `dump --json` prints it, with its store."""
        parsed = parse_name(located.file)
        return {**record_as_json(located), "store": parsed[0] if parsed else located.file}
