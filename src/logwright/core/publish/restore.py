"""Restoring: journals are written again from tables, and published all or none.

Tables hold records, not bytes. The `Restore` of a format encodes them into files.

A file gets the name that it has in the tables. Tables may come from anywhere, so a name that no file of such a journal
can have is `WrongUse`, as is a path outside the directory.

The files of a restore:

    OUT/.logwright/restore/lock             one restore at a time
    OUT/.logwright/restore/RUN/…            journals that are being written; readers ignore them
    OUT/.logwright/restore/manifest.json    the commit: all journals are on the disk, and are being moved into place

After a crash (`protocol.py`) each journal is complete or missing, and the next restore first moves the missing ones of
a committed restore into place. An existing journal is never changed.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from ...errors import DamagedJournal, LogwrightError, NotFound, UnknownFormat, WrongUse
from ..format import detect
from ..io.disk import REAL_DISK, Disk, make_directories, write_all
from ..io.file_names import name_of
from ..io.quarantine import DIRECTORY, make_own_directories
from ..read.chunk import POSITION_BITS
from ..write.closing import Closing
from .protocol import Commit, clear, is_moved, lock_alone, move_into_place, read_json

RESTORE_DIRECTORY: Final = "restore"
MANIFEST_NAME: Final = "manifest.json"
LOCK_NAME: Final = "lock"
_JOURNALS: Final = "journals"
_RUN: Final = re.compile(r"[0-9a-f]{16}")
_MOVED: Final = re.compile(rf"{_JOURNALS}/\d+(/[^/]+)?")


# --- what a format offers -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was written, with the records `first` <= n < `next`. Names are relative to the journal.

    `beside` names files without records that belong to it, such as an index. `gaps` are ranges of records within it
    that are not in the tables, each as (first, next). `problems` describes other differences from the original.
    """

    file: str
    first: int
    next: int
    records: int
    bytes: int
    beside: tuple[str, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()
    problems: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Written:
        gaps = tuple((first, following) for first, following in found["gaps"])
        lists = {name: tuple(found[name]) for name in ("beside", "problems")}
        return cls(**{**found, **lists, "gaps": gaps})


@dataclass(frozen=True, slots=True)
class Missing:
    """Records `first` <= n < `next` of a part that were in the journal but are not in the tables."""

    part: str
    first: int
    next: int

    @property
    def records(self) -> int:
        return self.next - self.first


class FileWriter(Protocol):
    """Writes one file of a journal below a temporary directory."""

    def append_batch(self, batch: Any) -> None:
        """Add rows of the record table of the format: those of this file, in the order of their positions."""

    def finish(self) -> list[Written]:
        """Sync the file, and return what was written. Also works without any rows."""

    def discard(self) -> None:
        """Close the file, if the restore failed."""


class Restore(ABC):
    """How journals of a format are written again from tables: the same bytes, or equivalent ones."""

    renames_files: ClassVar[bool] = False
    """Whether files are renamed by writers, so that tables may have one file under several names."""

    @abstractmethod
    def part_of(self, file: str) -> str:
        """The part of a journal that a file belongs to."""

    @abstractmethod
    def writer(self, directory: Path, file: str, *, disk: Disk, listed: Sequence[str] = ()) -> FileWriter:
        """A writer of one file. In a format with `unit_of`, `listed` are the files of the unit in the table `files`."""

    def is_single_file(self, file: str) -> bool:
        """Whether the journal is this file, and not a directory that contains it."""
        self.part_of(file)
        return False

    def settled(self, names: Iterable[tuple[str, int | None]]) -> dict[tuple[str, int | None], str]:
        """The last name of each file, by each name and `sequence` that tables have of it."""
        return {(file, sequence): file for file, sequence in names}

    def unit_of(self, file: str) -> str | None:
        """The unit that a file belongs to, in a format whose files must be written together by one writer.

        `settled` returns the same; the writer gets rows by `sequence` and position.
        """
        return None

    def missing(self, written: Sequence[Written], extents: Mapping[str, int]) -> list[Missing]:
        """The records that are not in the tables; `extents` is {part: next} for parts whose extent is known."""
        return numbered_missing(written, extents, self.part_of)

    def write_consumers(
        self, directory: Path, part: str, offsets: Mapping[str, int | None], *, disk: Disk = REAL_DISK
    ) -> None:
        """Write the offsets of the consumers of a part; None for one that has not committed yet."""
        if offsets:
            raise WrongUse(f"{part or 'the journal'} has consumers in these tables, but its format knows none")


def numbered_missing(
    written: Sequence[Written], extents: Mapping[str, int], part_of: Callable[[str], str]
) -> list[Missing]:
    """The gaps within files, and the end of a part whose last file was longer."""
    found = [Missing(part_of(one.file), *gap) for one in written for gap in one.gaps]
    ends: dict[str, int] = {}
    for one in written:
        ends[part_of(one.file)] = max(one.next, ends.get(part_of(one.file), 0))
    found += [
        Missing(part, ends[part], end)
        for part, end in extents.items()
        if part in ends and ends[part] >> POSITION_BITS == end >> POSITION_BITS and ends[part] < end
    ]
    return sorted(found, key=lambda gap: (gap.part, gap.first))


class RestoredFile:
    """A `FileWriter` for formats whose records are numbered by file and position.

    The rows of a file come in the order of their positions. If bytes between two records were damaged, or are not in
    the tables, the records are written without them, and the range is reported as a gap. A format has `_encoded`, which
    returns the bytes of rows, and checks the name.
    """

    records_name: ClassVar[str] = "records"

    def __init__(self, directory: Path, file: str, *, disk: Disk = REAL_DISK) -> None:
        self._disk = disk
        self._name = file
        path = directory / file
        self._directory = path.parent
        make_directories(disk, self._directory)
        self._file = disk.open(path, "create")
        self._size = 0
        self._records = 0
        self._sequence: int | None = None
        self._end = 0
        """Where the records so far ended in the original file."""
        self._gaps: list[tuple[int, int]] = []

    def _encoded(self, batch: Any) -> Iterator[bytes]:
        """The bytes of the records of a batch of the format's record table, one piece after the other."""
        raise NotImplementedError

    def append_batch(self, batch: Any) -> None:
        if not batch.num_rows:
            return
        self._check_file(batch.column("sequence").to_pylist())
        positions, sizes = batch.column("position").to_pylist(), batch.column("size").to_pylist()
        encoded = self._encoded(batch)
        for position, size in zip(positions, sizes, strict=True):
            if position < self._end:
                reason = f"the tables have two {self.records_name} here, one of them ends at {self._end}"
                raise DamagedJournal(self._name, position, reason)
            if position > self._end:
                self._gaps.append((self._end, position))
            self._end = position + size
        before = self._size
        for data in encoded:
            write_all(self._file, self._size, data)
            self._size += len(data)
        if self._size - before != sum(sizes):
            have, grown = sum(sizes), self._size - before
            reason = f"the tables say that {self.records_name} from here on have {have} bytes, and they have {grown}"
            raise DamagedJournal(self._name, positions[0], reason)
        self._records += batch.num_rows

    def _check_file(self, sequences: list[int | None]) -> None:
        found = set(sequences)
        if self._records:
            found.add(self._sequence)
        if len(found) > 1:
            reason = f"the tables have {self.records_name} of several files under this name"
            raise DamagedJournal(self._name, self._end, reason)
        self._sequence = sequences[0]

    def finish(self) -> list[Written]:
        """Sync and close the file."""
        self._file.sync()
        self._file.close()
        self._disk.sync_directory(self._directory)
        first = (self._sequence or 0) << POSITION_BITS
        gaps = tuple((first + start, first + end) for start, end in self._gaps)
        return [Written(self._name, first, first + self._end, self._records, self._size, gaps=gaps)]

    def discard(self) -> None:
        """Close what is open."""
        with contextlib.suppress(LogwrightError):
            self._file.close()


# --- the result -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RestoredJournal:
    """A journal that was restored.

    `gaps` are records that it had and has lost, `missing_bytes` the bytes of its files that are not in the tables
    (damage, a torn tail, later records), and `problems` describes other differences from the original.
    """

    format: str
    journal: str
    records: int
    files: int
    bytes: int
    gaps: tuple[Missing, ...] = ()
    missing_bytes: int = 0
    problems: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether everything was restored."""
        return not (self.gaps or self.missing_bytes or self.problems)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "whole": self.whole}


@dataclass(frozen=True, slots=True)
class Restored:
    """The journals that were restored. `completed` says that an earlier restore, which was interrupted, wrote them."""

    out: str
    journals: tuple[RestoredJournal, ...]
    completed: bool = False

    @property
    def records(self) -> int:
        return sum(journal.records for journal in self.journals)

    @property
    def files(self) -> int:
        return sum(journal.files for journal in self.journals)

    @property
    def bytes(self) -> int:
        return sum(journal.bytes for journal in self.journals)

    @property
    def whole(self) -> bool:
        return all(journal.whole for journal in self.journals)

    def as_json(self) -> dict[str, Any]:
        return {
            "out": self.out,
            "records": self.records,
            "files": self.files,
            "bytes": self.bytes,
            "whole": self.whole,
            "completed": self.completed,
            "journals": [journal.as_json() for journal in self.journals],
        }


# --- names ----------------------------------------------------------------------------------------------------------


def check_journals(names: Iterable[str], flat: Collection[str] = ()) -> None:
    """Raise `WrongUse` for journals that cannot be below one directory under these names.

    Other journals may be in the directory of one that is `flat`, because it has no directories of its own.
    """
    known = set(names)
    check_names(known)
    for name in sorted(known):
        for length in range(1, name.count("/") + 1):
            above = "/".join(name.split("/")[:length])
            if above in known and above not in flat:
                raise WrongUse(f"the journal {name} is within another one, {above}")


def check_names(names: Iterable[str]) -> None:
    """Raise `WrongUse` for a name that no journal below a directory can have."""
    for name in sorted(names):
        parts = name.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts) or parts[0] == DIRECTORY:
            raise WrongUse(f"{name!r} cannot be the name of a journal: it is not a path below a directory")


# --- writing journals -----------------------------------------------------------------------------------------------


class Restoring(Closing):
    """The hidden directory below `out` where journals are written, locked by one restore at a time.

    `request` identifies the restore. `completed` is the result of an earlier restore with the same request that was
    interrupted after its commit, and is in place now: then nothing is left to do. Writers of files may use `directory`
    as they like, and hand over their files with `take`.
    """

    def __init__(self, disk: Disk, out: Path, request: Any) -> None:
        self.disk = disk
        self.out = out
        self._request = request
        self._home = out / DIRECTORY / RESTORE_DIRECTORY
        note = f"All journals are written, but not all are in place in {out}: restore again to complete it."
        self._commit = Commit(disk, self._home / MANIFEST_NAME, lambda name: name != LOCK_NAME, note)
        make_own_directories(disk, self._home)
        self._lock = lock_alone(disk, self._home / LOCK_NAME, f"{out}: another restore is at work here")
        try:
            self.completed = self._recover()
            self.run = secrets.token_hex(8)
            self.directory = self._home / self.run
            make_directories(disk, self.directory / _JOURNALS)
        except BaseException:
            self._lock.release()
            raise
        self._numbers: dict[str, int] = {}
        self._made: set[Path] = set()
        self._closed = False

    def close(self) -> None:
        """Release the lock, and remove what was not committed. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self._commit.discard()
        self._lock.release()

    def refuse_existing(self, journals: Iterable[str]) -> None:
        """Raise `WrongUse` for journals that exist, or that would be within another journal."""
        self._refuse_existing(map(name_of, journals))

    def _refuse_existing(self, names: Iterable[str]) -> None:
        seen: set[Path] = set()
        for name in names:
            target = self.out / name
            if self.disk.exists(target):
                raise WrongUse(f"{target} already exists, and is not overwritten: restore to another directory")
            for above in [self.out.joinpath(*name.split("/")[:length]) for length in range(name.count("/") + 1)]:
                if above not in seen and self.disk.exists(above) and _is_closed(self.disk, above):
                    raise WrongUse(f"{above} is a journal: {name} cannot be restored into it")
                seen.add(above)

    def home_of(self, journal: str) -> Path:
        """The temporary directory of a journal."""
        number = self._numbers.setdefault(journal, len(self._numbers))
        return self.directory / _JOURNALS / str(number)

    def take(self, journal: str, source: Path, written: Iterable[Written]) -> None:
        """Move files that were written below `source` to the temporary directory of a journal."""
        home = self.home_of(journal)
        for one in written:
            for name in (one.file, *one.beside):
                target = home / name_of(name)
                if self.disk.exists(target):
                    raise DamagedJournal(journal, 0, f"the tables have two files that would both become {name}")
                if target.parent not in self._made:
                    make_directories(self.disk, target.parent)
                    self._made.add(target.parent)
                self.disk.rename(source / name, target)

    # --- publishing -------------------------------------------------------------------------------------------------

    def publish(self, journals: Mapping[str, RestoredJournal], single_files: Mapping[str, Sequence[str]]) -> Restored:
        """Sync everything, commit, and move the journals into place.

        `single_files` has the journals that are not directories, each with its files: the first one is the journal
        itself; there are more if records are missing.
        """
        moves: list[tuple[str, str]] = []
        for name in journals:
            home = self.home_of(name)
            _sync_tree(self.disk, home)
            source = home.relative_to(self.directory).as_posix()
            if name in single_files:
                target = name_of(name)
                beside = target.rpartition("/")[0]
                files = [name_of(file) for file in single_files[name]]
                targets = [target, *(f"{beside}/{file}" if beside else file for file in files[1:])]
                moves += [(f"{source}/{file}", to) for file, to in zip(files, targets, strict=True)]
            else:
                moves.append((source, name_of(name)))
        self._refuse_existing(target for _, target in moves)
        manifest = {"run": self.run, "request": self._request, "moves": moves}
        manifest["journals"] = [asdict(journal) for journal in journals.values()]
        put = partial(self._put, self.run, moves)
        self._commit.publish(manifest, put, self.directory / MANIFEST_NAME)
        return Restored(str(self.out), tuple(journals.values()))

    def _put(self, run: str, moves: Iterable[Sequence[str]]) -> None:
        """Move the committed journals that are not in place yet."""
        disk = self.disk
        for name, goal in moves:
            source, target = self._home / run / name, self.out / goal
            if not is_moved(disk, source, [target]):
                if disk.exists(target):
                    raise WrongUse(f"{target} already exists, and is not overwritten: move it away and restore again")
                for directory in list(reversed(target.relative_to(self.out).parents))[1:]:
                    disk.make_directory(self.out / directory)  # never through a link
                    disk.sync_directory((self.out / directory).parent)
            move_into_place(disk, source, target)
            disk.sync_directory(target.parent)

    # --- after a crash ----------------------------------------------------------------------------------------------

    def _recover(self) -> Restored | None:
        """Complete what was committed, and remove what was not."""
        completed = None
        hint = "restore again, into an empty directory"
        found = read_json(self.disk, self._commit.path, _parse_manifest, "manifest of a restore", hint)
        if found is not None:
            run, request, moves, journals = found
            self._commit.resume(partial(self._put, run, moves))
            if request == json.loads(json.dumps(self._request)):
                completed = Restored(str(self.out), journals, completed=True)
        clear(self.disk, self._home, self._commit.is_staged)
        return completed


def _is_closed(disk: Disk, path: Path) -> bool:
    """Whether a path is a journal whose directory may hold nothing else."""
    try:
        return not detect(path, disk=disk).flat
    except (UnknownFormat, NotFound):
        return False


def _sync_tree(disk: Disk, directory: Path) -> None:
    """Sync all names below a directory."""
    for name in disk.list_directory(directory):
        if disk.is_directory(directory / name):
            _sync_tree(disk, directory / name)
    disk.sync_directory(directory)


def _parse_manifest(found: Any) -> tuple[str, Any, list[list[str]], tuple[RestoredJournal, ...]]:
    moves = [[str(source), str(target)] for source, target in found["moves"]]
    if not _RUN.fullmatch(found["run"]) or not all(_MOVED.fullmatch(source) for source, _ in moves):
        raise ValueError("it names files of another run")
    check_names(target for _, target in moves)
    return str(found["run"]), found["request"], moves, tuple(_journal_of(journal) for journal in found["journals"])


def _journal_of(found: dict[str, Any]) -> RestoredJournal:
    gaps = tuple(Missing(**gap) for gap in found["gaps"])
    return replace(RestoredJournal(**found), gaps=gaps, problems=tuple(found["problems"]))
