"""New stores that many tasks write and one place publishes: `core.publish.staging` for the stores of a directory.

A task encodes its changes into files of its own, one for each store, and each of them is a whole journal: its entries
in the order of their times, equal ones in the order in which they came. It sorts as many as fit into its memory, and
writes them as a run; if there are several runs, it merges them at the end. So rows may come in any order, and rows that
come in the order of their times are written once.

The publisher makes one journal of those that several tasks have staged for a store, by merging them before it commits
(see `merge.py`). Then a batch is put in place by giving each journal its name, and the store is there:

    ROOT/.logwright/staging/RUN.….staged    ->      ROOT/cars.jrn

Only new stores are written: if one exists already, an error names it, and nothing is published.
A new store was initialized at the time of its first change.

After a crash: a staged journal is gone once it has its name; if a power cut has left both names, they are the same
file. A committed journal that has no name yet gets it, unless a program that does not know manifests has created a
store of that name in the meantime: that store is never changed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ...core.io.disk import REAL_DISK, Disk, File, make_directories
from ...core.io.lock import Lock
from ...core.publish.manifest import FilesOf, OpenedParts, Part, StagedFile, Target
from ...core.publish.staging import (
    PackedFile,
    StageFiles,
    bytes_to_put_together,
    give_name,
    has_name,
    put_together,
)
from ...errors import DamagedJournal, WrongUse
from ..bytes.layout import HOME_DIRECTORY, MAX_TIMESTAMP
from ..files.archiving import initialized_of
from ..files.files import active_name, check_store_name, list_stores, lock_name, old_name, temporary_archive_name
from ..model.merge import Run, write_head, write_merged
from ..model.opening import journal_to_write
from ..model.rotation import head_bytes

if TYPE_CHECKING:
    import pyarrow as pa

MAX_NAME_BYTES: Final = 255 - len(temporary_archive_name("", MAX_TIMESTAMP))
"""How long the name of a store can be, so that file systems take the longest name of one of its files."""
_MOST_NAMED: Final = 10
_GATHERED_BYTES: Final = 32 << 20
"""How much a task keeps in memory before it writes, for all stores together."""
_ENTRY_BYTES: Final = 150
"""What an entry that is kept takes besides its bytes, about."""


def check_store(name: str) -> None:
    """Raise `WrongUse` for what cannot be the name of a store; as a path it might lead out of the directory."""
    check_store_name(name)
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise WrongUse(f"{name!r} cannot be the name of a store: it is no text") from None
    if size > MAX_NAME_BYTES:
        raise WrongUse(f"{name[:40]!r}… is too long for the name of a store: {MAX_NAME_BYTES} bytes at most")


# --- where they go --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoresTarget(Target):
    """How the stores of a directory are written. Changes that name no store are those of `store`."""

    format: ClassVar[str] = "versioned"
    options: ClassVar = {"store": ("store", "text")}
    no_streams: ClassVar = (
        "a stream cannot be written to stores: Spark writes new stores, each from one table."
        " In foreachBatch every batch can be a store of its own, by option('store', NAME)"
    )

    store: str | None = None

    def __post_init__(self) -> None:
        if self.store is not None:
            check_store(self.store)

    def check_name(self, part: str) -> None:
        """Raise `WrongUse` for what cannot be the name of a store."""
        check_store(part)

    def needed_bytes(self, files_of: FilesOf) -> int:
        """Only files that must be joined are copied."""
        return bytes_to_put_together(files_of)

    @contextlib.contextmanager
    def open_parts(self, disk: Disk, root: Path, run: str, files_of: FilesOf) -> Iterator[OpenedParts]:
        """The new stores, locked, and for each of them one journal that will be renamed."""
        make_directories(disk, root / HOME_DIRECTORY)
        with contextlib.ExitStack() as stack:
            for store in files_of:
                stack.enter_context(_lock(disk, root, store))
            _refuse_existing(root, set(files_of) & set(list_stores(disk, root)))
            starts = dict.fromkeys(files_of, 0)
            parts = put_together(disk, root, run, files_of, starts, lambda files, path: _as_one(disk, files, path))

            def put(part: Part) -> None:
                for staged in part.files:
                    give_name(disk, root, staged, root / active_name(part.name))

            yield parts, put

    def complete_part(self, disk: Disk, root: Path, part: Part) -> None:
        """Give the journal its name unless it has it."""
        make_directories(disk, root / HOME_DIRECTORY)  # and syncs the names that a killed process has given
        with _lock(disk, root, part.name):
            paths = [root / name(part.name) for name in (active_name, old_name)]
            for staged in part.files:
                if not has_name(disk, root, staged, paths):
                    _refuse_existing(root, {part.name} if any(map(disk.exists, paths)) else ())
                    give_name(disk, root, staged, paths[0])

    def refuse_live_writers(self, root: Path, *, disk: Disk) -> None:
        """Raise early what publishing the target's own store would raise now.

        Other stores of a batch are known only from its rows.
        """
        store = self.store
        if store is None or not disk.is_directory(root):
            return
        if disk.exists(root / lock_name(store)):
            _lock(disk, root, store).release()
        _refuse_existing(root, {store} & set(list_stores(disk, root)))

    def check_writable(self, schema: pa.Schema) -> None:
        from .spark_columns import check_writable

        check_writable(schema, self.store)

    def stage(self, root: Path, run: str, order: int, *, disk: Disk = REAL_DISK) -> Stage:
        return Stage(root, run, order, self, disk=disk)


def _lock(disk: Disk, root: Path, store: str) -> Lock:
    return journal_to_write(disk, root, store).lock_to_publish()


def _refuse_existing(root: Path, stores: Collection[str]) -> None:
    if stores:
        names = ", ".join(sorted(stores)[:_MOST_NAMED]) + (", …" if len(stores) > _MOST_NAMED else "")
        reason = "only new stores are written, and none is changed: choose other names, or another directory"
        raise WrongUse(f"{root} has these stores already: {names}; {reason}")


# --- staging, in a task ---------------------------------------------------------------------------------------------


class _StageFile(PackedFile):
    """The changes of one store: those that are kept, and the runs that were written, in the file of a journal."""

    def __init__(self, disk: Disk, file: File) -> None:
        super().__init__(file)
        self._disk = disk
        self._kept: list[tuple[int, bytes]] = []
        self._initialized = MAX_TIMESTAMP
        self._last = 0
        self._starts: list[int] = []

    def append(self, entries: list[tuple[int, bytes]]) -> None:
        """Keep entries, each with its time."""
        self._kept += entries

    def write_kept(self) -> None:
        """Write what is kept, sorted: as a run of its own, unless it continues where the last one ended."""
        if not self._kept:
            return
        self._kept.sort(key=lambda entry: entry[0])  # which is stable
        first = self._kept[0][0]
        self._initialized = min(self._initialized, first)
        if not self._starts:
            self._size = write_head(self._file, first, head_bytes(first))
        if not self._starts or first < self._last:
            self._starts.append(self._size)
        self.write(b"".join([entry for _, entry in self._kept]), len(self._kept))
        self._last = self._kept[-1][0]
        self._kept = []

    def finish(self) -> tuple[int, int]:
        """How many changes and bytes there are, now that they are on the disk, and in order."""
        self.write_kept()
        if len(self._starts) == 1:
            write_head(self._file, self._initialized, self._size)
            return super().finish()
        self._file.close()
        path = self._file.path
        stops = [*self._starts[1:], self._size]
        runs = [Run(path, start, stop) for start, stop in zip(self._starts, stops, strict=True)]
        # Still a name of what this task stages, so that it is removed with the rest if it is left behind. No other file
        # has it: their numbers have no more than three digits, or do not begin with 0.
        merged = path.with_name(f"{path.stem.rpartition('.')[0]}.0{path.stem.rpartition('.')[2]}{path.suffix}")
        size = write_merged(self._disk, merged, self._initialized, runs)
        self._disk.rename(merged, path)
        return self._records, size


class Stage(StageFiles[_StageFile]):
    """What one task writes: see `core.publish.staging`."""

    def __init__(
        self,
        root: Path | str,
        run: str,
        order: int,
        target: StoresTarget,
        *,
        gathered_bytes: int = _GATHERED_BYTES,
        disk: Disk = REAL_DISK,
    ) -> None:
        super().__init__(root, run, order, lambda file: _StageFile(disk, file), disk)
        self._target = target
        self._most_bytes = gathered_bytes
        self._kept_bytes = 0
        self._now = 0

    def append_batch(self, batch: Any) -> None:
        """Take the rows of an Arrow record batch, each a change of its store.

        Columns: `k`, `o` (JSON), and if present `store`, `t` or `timestamp`, and `deleted`. A row is a deletion where
        `deleted` says so, or its value is null. One without a time gets that of its writing, and no two get the same.
        """
        from .columns import by_store
        from .spark_columns import packed

        for store, rows in by_store(batch, self._target.store or ""):
            if not store and self._target.store is None:
                raise WrongUse("a row names no store: give each one in the column store, or say option('store', NAME)")
            check_store(store)
            if not rows.num_rows:
                continue
            try:
                entries, self._now = packed(rows, max(self._now, time.time_ns()))
            except WrongUse as error:
                raise WrongUse(f"the store {store}: {error}") from error
            self._file_of(store).append(entries)
            self._kept_bytes += sum(len(entry) + _ENTRY_BYTES for _, entry in entries)
        if self._kept_bytes >= self._most_bytes:
            self._write()

    def _write(self) -> None:
        """Write the collected rows of all stores."""
        for _, file in self._open.values():
            file.write_kept()
        self._kept_bytes = 0


# --- what becomes of the files --------------------------------------------------------------------------------------


def _as_one(disk: Disk, files: Sequence[StagedFile], path: Path) -> int:
    """Make a journal with the changes of all, durable but for its name; how large it is."""
    begun = list(_begun(disk, path.parent, files))
    runs = [
        Run(path.with_name(file.name), head_bytes(initialized), file.bytes)
        for file, initialized in zip(files, begun, strict=True)
    ]
    return write_merged(disk, path, min(begun), runs)


def _begun(disk: Disk, directory: Path, files: Iterable[StagedFile]) -> Iterator[int]:
    """The time of the first change of each staged journal."""
    for file in files:
        initialized = initialized_of(disk, directory / file.name, compressed=False)
        if initialized is None:
            raise DamagedJournal(
                directory / file.name, 0, "this does not begin as it was staged; nothing was published"
            )
        yield initialized
