"""Format: the interface of a format to the rest of the package, and detection of the format of a path.

Each format implements `Format` in its `format.py` and is registered in `FORMATS` by `logwright.registry`. Methods
import the modules that they need. A property is None if the format does not have it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, TypedDict, Unpack, overload

from ..errors import AmbiguousFormat, LogwrightError, NotFound, UnknownFormat, WrongUse
from .bytes.outcome import Damage, Mode, RecordsOnly, Span
from .io.disk import REAL_DISK, Disk
from .options import suggest
from .read.chunk import Bound, Choice
from .read.report import Progress, Report, Summary
from .repair.losses import Loss
from .repair.plan import Repair, Repairs, find_interrupted
from .write.closing import Closing

if TYPE_CHECKING:
    import pyarrow as pa

    from .io.durability import SyncLike
    from .publish.manifest import Target
    from .publish.restore import Restore
    from .read.columns import Columns
    from .read.materializer import Materials
    from .read.splits import Splits


ResetTarget = int | Literal["first", "last"] | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a path looks like a format. `score`: 1 by name, 2 also by bytes, 3 by names and bytes of several files."""

    score: int
    reason: str


@dataclass(frozen=True, slots=True)
class Located:
    """A record and where its bytes are. `file` is relative to the journal that was opened."""

    record: Any
    file: str
    span: Span


class Reader(Closing, ABC):
    """A journal opened for reading. It changes nothing and needs no lock.

    Records are addressed by their numbers. Several journals under one path are read as one: they are its `parts`, and a
    bound is one number for all of them, or one for each by its name.
    """

    format: ClassVar[str]
    path: Path
    disk: Disk
    row_fields: ClassVar[tuple[str, ...] | None] = None
    """The fields of `as_json` that are columns of a printed table, if not every record has all."""
    time_scale: ClassVar[int] = 1
    """The unit of the field `timestamp` in nanoseconds."""
    has_times: ClassVar[bool] = True
    """Whether records can be found by their times."""
    states_by_time: ClassVar[bool] = False
    """Whether `state`, `diff` and `history` take times and report damage in `damages`, instead of record numbers."""
    damages: Sequence[Damage] = ()
    """The damage that the last call of a reader with `states_by_time` found."""

    @property
    def is_single_file(self) -> bool:
        """Whether this is one file of a journal, opened by its name."""
        return False

    @property
    @abstractmethod
    def torn_tail(self) -> Damage | None:
        """The torn tail that the last pass found, or None."""

    def all_torn_tails(self) -> list[Damage]:
        """The torn tails that the last pass found: at most one for each part."""
        return [] if self.torn_tail is None else [self.torn_tail]

    part_name: ClassVar[str] = ""
    """What a part is called: shard, queue, store or journal."""

    @property
    def part(self) -> str:
        """The name of this journal in its directory; empty if it is the only one."""
        return ""

    def parts(self) -> list[tuple[str, Any]]:
        """The journals that are read as one, each with its name and its reader; none if this is a single journal."""
        return []

    @property
    def has_parts(self) -> bool:
        """Whether several journals are read as one."""
        return False

    # --- records ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Every record in journal order."""

    @overload
    def scan(
        self,
        start: Bound = ...,
        stop: Bound = ...,
        *,
        mode: RecordsOnly = ...,
        progress: Progress | None = ...,
        choice: Choice | None = ...,
    ) -> Iterator[Located]: ...

    @overload
    def scan(
        self,
        start: Bound = ...,
        stop: Bound = ...,
        *,
        mode: Mode,
        progress: Progress | None = ...,
        choice: Choice | None = ...,
    ) -> Iterator[Located | Damage]: ...

    def scan(
        self,
        start: Bound = None,
        stop: Bound = None,
        *,
        mode: Mode = "failfast",
        progress: Progress | None = None,
        choice: Choice | None = None,
    ) -> Iterator[Located | Damage]:
        """Every record in journal order with its place; `start` and `stop` are record numbers of the format.

        With a `choice` only the records that it chooses; ranges that it excludes are not read.
        """
        return self._scan(start, stop, mode, progress, choice)

    @abstractmethod
    def _scan(
        self, start: Any, stop: Any, mode: Mode, progress: Progress | None, choice: Choice | None
    ) -> Iterator[Located | Damage]:
        """What `scan` returns."""

    @abstractmethod
    def last(self, count: int, choice: Choice | None = None) -> list[Located]:
        """The last records, oldest first, without reading the others where the format allows it."""

    @abstractmethod
    def count(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        progress: Progress | None = None,
        on_damage: Callable[[Damage], None] | None = None,
        choice: Choice | None = None,
    ) -> int:
        """The number of whole records in a range; `on_damage` is called with damage."""

    @abstractmethod
    def number_of(self, located: Located) -> tuple[str, int]:
        """The part that a record belongs to, and its number there."""

    @property
    @abstractmethod
    def end(self) -> int | dict[str, int]:
        """The number that the next record will get; with parts, that of each part by its name."""

    @abstractmethod
    def as_json(self, located: Located) -> dict[str, Any]:
        """A record as `dump --json` prints it."""

    def find_index(self, index: int) -> int:
        """The record number for a number on the command line."""
        return index

    def find_place(self, text: str) -> int | dict[str, int]:
        """The record number of `FILE@POSITION`; with parts, in each of them."""
        raise WrongUse(f"{self.path}: places cannot be looked up in this journal; give offsets")

    def find_time(self, timestamp: int) -> int | dict[str, int]:
        """The number of the first record that is not earlier than a time; with parts, in each of them."""
        raise WrongUse(f"{self.path}: times cannot be looked up in this journal; give offsets")

    def find_moment(self, timestamp: int) -> int | dict[str, int]:
        """The argument of `state` for a time."""
        return self.find_time(timestamp)

    # --- what it is ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def total_bytes(self) -> int:
        """The total size of the files."""

    @abstractmethod
    def summary(self) -> Summary:
        """What this is, quickly."""

    @abstractmethod
    def verify(self, *, progress: Progress | None = None) -> Report:
        """Check everything."""

    @abstractmethod
    def losses(self) -> list[Loss]:
        """What the journal is known to have lost; see `core/repair/losses.py`."""

    @abstractmethod
    def state(self, at: int | None = None) -> Any:
        """The state that the journal describes, now or at a point, as JSON."""

    def diff(self, start: int, stop: int) -> dict[str, Any]:
        """What changed between two points, as JSON."""
        raise WrongUse(f"{self.path} has no state that could differ between two points; see dump --from --to")

    def history(self, key: str) -> list[dict[str, Any]]:
        """Every change of one key, oldest first, as JSON."""
        raise WrongUse(f"{self.path}: records of this journal do not change, so they have no history; see dump")

    def close(self) -> None:
        """Nothing is held between calls."""
        return


class Follower(AbstractContextManager["Follower", None], Protocol):
    """A journal that is followed while writers append to it."""

    def located(self, choice: Choice | None = None) -> Iterator[Located | Damage]:
        """The records with their places as they appear, until none appeared for the timeout."""


class BatchWriter(AbstractContextManager["BatchWriter", None], Protocol):
    """A writer that takes record batches."""

    @property
    def format(self) -> str: ...

    def append_batch(self, batch: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class ConsumedJournal:
    """A journal whose directory holds the offsets of its consumers; `shard` is None when it is not below a root."""

    shard: str | None
    directory: Path
    reader: Any

    def named(self, fields: dict[str, Any]) -> dict[str, Any]:
        """A JSON object about this journal, with the name of the shard if it is one."""
        return fields if self.shard is None else {"shard": self.shard, **fields}


class Fate(Protocol):
    """Whether one file is removed when a journal is cleaned, and why."""

    @property
    def name(self) -> str: ...
    @property
    def first(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def removed(self) -> bool: ...
    @property
    def reason(self) -> str: ...


class Cleaning(Protocol):
    """What cleaning a journal would remove, or has removed."""

    @property
    def directory(self) -> Path: ...
    @property
    def verdicts(self) -> Sequence[Fate]: ...
    @property
    def removed(self) -> Sequence[Fate]: ...
    @property
    def removed_bytes(self) -> int: ...

    def as_json(self) -> dict[str, Any]: ...


class CleaningRules(TypedDict, total=False):
    """Which files are removed when a journal is cleaned."""

    max_age_seconds: float | None
    max_bytes: int | None
    keep_segments: int
    ignore_consumers: Collection[str]


class ResetOptions(TypedDict, total=False):
    """Where a consumer is moved, if not to an offset, and whether it is created."""

    time: int | None
    create: bool


class Consumers(ABC):
    """The consumers of journals: their offsets, and the files that all of them have passed."""

    @abstractmethod
    def journals(self, reader: Any) -> list[ConsumedJournal]:
        """The journal that was opened, or each of its shards."""

    @abstractmethod
    def names(self, directory: Path) -> list[str]:
        """The consumers of a journal."""

    @abstractmethod
    def offset(self, directory: Path, name: str) -> int | None:
        """The offset that a consumer has committed; None before its first commit."""

    @abstractmethod
    def plan_reset(self, directory: Path, name: str, to: ResetTarget = None, **options: Unpack[ResetOptions]) -> int:
        """The offset that `reset` would move a consumer to."""

    @abstractmethod
    def reset(
        self, directories: Sequence[Path], name: str, to: ResetTarget = None, **options: Unpack[ResetOptions]
    ) -> list[int]:
        """Move a consumer in all of these journals, or in none; the new offset in each."""

    @abstractmethod
    def clean(self, directory: Path, *, only_plan: bool, **rules: Unpack[CleaningRules]) -> Cleaning:
        """Remove old files that every consumer has passed, or return which would be removed."""


@dataclass(frozen=True, slots=True)
class Unparked:
    """What was, or would be, put back from a parked queue.

    `source` and `target` are the queues, by the paths of their newest files; `left` is the number of items that stay
    parked. `doubled` of the items were in the target already, because a crash had interrupted an earlier call.
    """

    source: Path
    target: Path
    items: int
    left: int
    doubled: int = 0


class Items(ABC):
    """The items that wait in queues."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of `batches`."""

    @abstractmethod
    def batches(self, reader: Any, mode: Mode, on_damage: Callable[[Damage], None]) -> Iterator[pa.RecordBatch]:
        """The items of one queue as a consumer finds them after opening it: reserved ones first."""

    @abstractmethod
    def named_by_key(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Messages whose keys name the queues that they go to."""

    @abstractmethod
    def unpark(self, path: Path, to: str | None, *, most: int | None, only_plan: bool) -> Unparked:
        """Move the items of a parked queue to the tail of another one, or return what that would do."""


class ChangeFeed(Protocol):
    """The changes that the records of one queue or store make, in order."""

    def add(self, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The changes that a record makes, which is given as `dump --json` prints it."""


class StatePart(Protocol):
    """A part of a journal whose state one task reads."""

    @property
    def name(self) -> str: ...
    @property
    def bytes(self) -> int: ...


class States(ABC):
    """The state of journals at a time, as a table."""

    @abstractmethod
    def plan(self, disk: Disk, path: Path, at: int) -> Iterator[Any]:
        """The parts at a path, each a `StatePart` that can be pickled. No file is opened."""

    @abstractmethod
    def read(
        self, disk: Disk, part: Any, at: int, mode: Mode, names: Sequence[str]
    ) -> tuple[Sequence[Damage], pa.RecordBatch | None]:
        """The damage found, and the format's own columns of these names with a row for each existing key."""


class Format(ABC):
    """A journal format. There is one object of each: see `FORMATS`."""

    name: ClassVar[str]
    title: ClassVar[str]
    flat: ClassVar[bool] = False
    """Whether a journal consists of files only: directories in its directory do not belong to it."""
    mapped_bytes: ClassVar[int | None] = 0
    """How many bytes at the beginning of a file show the changes that its size and times do not show, because a writer
    has mapped it into memory. None if no bytes show all of them."""
    repair_flags: ClassVar[Mapping[str, str]] = {}
    """Flags that allow a repair to do more than it does by default, with their help text: see `Repairs.with_flags`."""

    # --- files --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def looks_like(self, disk: Disk, path: Path) -> Evidence | None:
        """Why a path looks like a journal of this format; None if it does not."""

    def names_journal(self, disk: Disk, path: Path) -> bool:
        """Whether a path exists, or other files of a journal of this name do."""
        return disk.exists(path)

    def journal_of(self, name: str) -> str:
        """The name of the journal that a file of this name belongs to."""
        return name

    @staticmethod
    def owns(journal: str, file: str) -> bool:
        """Whether a file belongs to the journal of a name. File names are relative to the directory of the journal."""
        is_beside = file.startswith(f"{journal}.") and "/" not in file
        return file == journal or is_beside or file.startswith(f"{journal}/")

    @abstractmethod
    def open(self, path: Path, *, disk: Disk = REAL_DISK) -> Reader:
        """Open a journal for reading. This changes nothing and needs no lock."""

    @abstractmethod
    def follow(self, path: Path, ends: Any, *, timeout: float | None, mode: Mode) -> Follower:
        """Follow a journal from the record number `ends`; with parts, from one number for each by its name."""

    @abstractmethod
    def open_writer(self, path: Path, *, disk: Disk = REAL_DISK, **options: Any) -> BatchWriter:
        """Open the journal at a path for writing record batches; it is created if there is none."""

    def open_target(self, directory: Path, name: str, *, disk: Disk = REAL_DISK) -> BatchWriter:
        """Open a writer for the rows of tables that become journals in a directory.

        If a directory holds several journals, rows that name none go to `name`.
        """
        return self.open_writer(directory, disk=disk)

    def open_appender(self, path: Path, part: str, *, sync: SyncLike) -> BatchWriter:
        """Open the journal at a path, or the shard or queue `part` of it, for rows of whole records."""
        return self.open_writer(path / part if part else path, sync=sync)

    @property
    @abstractmethod
    def repairs(self) -> Repairs:
        """How journals are repaired."""

    # --- tables -------------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def splits(self) -> Splits[Any]:
        """How journals are cut into splits that tasks read."""

    @property
    @abstractmethod
    def columns(self) -> Columns:
        """The records as Arrow data."""

    @property
    @abstractmethod
    def restore(self) -> Restore:
        """How journals are written again from tables."""

    @property
    def materials(self) -> Materials | None:
        """The tables that the pipeline makes of journals."""
        return None

    @property
    def target(self) -> type[Target] | None:
        """How several tasks write journals together; None if they cannot."""
        return None

    # --- not in all formats -------------------------------------------------------------------------------------------

    @property
    def consumers(self) -> Consumers | None:
        """The consumers whose offsets are kept beside a journal."""
        return None

    @property
    def items(self) -> Items | None:
        """The items that wait in queues."""
        return None

    def change_feed(self) -> ChangeFeed | None:
        """A new feed of the changes of one queue or store."""
        return None

    @property
    def states(self) -> States | None:
        """The state of key-value stores at a time."""
        return None


class Registry(Mapping[str, Format]):
    """The formats by name. A format is imported when it is first looked up; names alone import nothing."""

    def __init__(self) -> None:
        self._loaders: dict[str, Callable[[], Format]] = {}
        self._loaded: dict[str, Format] = {}

    def register(self, name: str, load: Callable[[], Format]) -> None:
        """Make a format known under a name. `load` imports it."""
        self._loaders[name] = load

    def __getitem__(self, name: str) -> Format:
        if name not in self._loaded:
            self._loaded[name] = self._loaders[name]()
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaders)

    def __len__(self) -> int:
        return len(self._loaders)


FORMATS: Final = Registry()


def find_format(name: str) -> Format:
    """The format of this name."""
    try:
        return FORMATS[name]
    except KeyError:
        raise UnknownFormat(f"there is no format {name!r}; {suggest(name, FORMATS)}") from None


def is_there(disk: Disk, path: Path) -> bool:
    """Whether a path exists, or other files of a journal of this name do."""
    return any(format.names_journal(disk, path) for format in FORMATS.values())


def find_half_done(path: Path, *, disk: Disk = REAL_DISK, format: str | None = None) -> Repair | None:
    """The interrupted repair of the journal at a path, or its undoing: files may be missing until it is done.

    With `format` a repair of another format, which can be in the same directory, does not count.
    """
    homes = [(path, "")] if disk.is_directory(path) else []
    for home, name in [*homes, (path.parent, path.name)]:
        try:
            repair = find_interrupted(disk, home)
        except LogwrightError:  # `verify` reports a log that cannot be read
            continue
        if repair is not None and repair.plan.format in (FORMATS if format is None else (format,)):
            journal = FORMATS[repair.plan.format].journal_of(name)
            if concerns(repair, name) or concerns(repair, journal):
                return repair
    return None


def concerns(repair: Repair, part: str) -> bool:
    """Whether a repair changes files of a part; an empty part is all files."""
    format = FORMATS.get(repair.plan.format)
    owns = Format.owns if format is None else format.owns
    return not part or any(owns(part, step.file) for step in repair.plan.steps)


def half_done_damage(path: Path, *, disk: Disk = REAL_DISK, format: str | None = None) -> Damage | None:
    """The interrupted repair of the journal at a path as damage that readers report; None if there is none."""
    half_done = find_half_done(path, disk=disk, format=format)
    if half_done is None:
        return None
    log = half_done.log.relative_to(half_done.home).as_posix()
    return Damage(log, 0, 0, f"{half_done.describe()}; {half_done.next_steps()}", "repair")


def detect(path: Path | str, *, disk: Disk = REAL_DISK) -> Format:
    """The format of a path, by names and bytes. `UnknownFormat` if none fits, or if two fit equally well.

    The log of an interrupted repair names the format of what it repairs.
    """
    path = Path(path)
    half_done = find_half_done(path, disk=disk)
    if half_done is not None:
        return FORMATS[half_done.plan.format]
    named = [format for format in FORMATS.values() if format.names_journal(disk, path)]
    if not named:
        raise NotFound(f"{path}: no such file or directory")
    found = []
    for format in named:
        evidence = format.looks_like(disk, path)
        if evidence is not None:
            found.append((evidence, format))
    if not found and disk.is_link(path):
        raise UnknownFormat(f"{path} is a link, and links are not followed: give its target")
    if not found:
        hint = "if it is a damaged one, name its format with --format: verify and repair may still read it"
        raise UnknownFormat(f"{path} is not a journal of any known format ({', '.join(FORMATS)}); {hint}")
    best = max(evidence.score for evidence, _ in found)
    winners = [(evidence, format) for evidence, format in found if evidence.score == best]
    if len(winners) > 1:
        reasons = "; ".join(f"{format.name}: {evidence.reason}" for evidence, format in winners)
        raise AmbiguousFormat(f"{path} could be several formats: name one with --format: {reasons}")
    return winners[0][1]


def open_journal(path: Path | str, format: str | None = None, *, disk: Disk = REAL_DISK) -> Reader:
    """Open a journal of any format for reading; the format is detected if it is not given.

    The `Reader` is used with `with`, and iterating over it returns every record of the journal in order, as the type of
    its format has it: `sej.Message`, `kestrel.Operation`, `versioned.Entry`, `appendfile.Record` or
    `yeltsin.Transaction`. `scan` also returns the place of each record, and takes a range and a mode.

    `UnknownFormat` if no format fits, or if several do; `NotFound` if there is no journal at this path.
    """
    path = Path(path)
    chosen = detect(path, disk=disk) if format is None else find_format(format)
    try:
        if not chosen.names_journal(disk, path):
            raise NotFound(f"{path}: no such file or directory")
        return chosen.open(path, disk=disk)
    except NotFound as error:
        half_done = find_half_done(path, disk=disk)
        if half_done is None:
            raise
        raise half_done.with_file_away() from error
