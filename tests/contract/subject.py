"""Subject: a format in the contract tests.

A format joins the contract tests by a subclass of `Subject` in `tests/NAME/subject.py` and a line in `subjects.py`. The
subject defines the differences between formats; the tests define the expected results once.

A subject needs at least these members; `SejSubject` would also pass with them alone:

    class SejSubject(Subject):
        name = "sej"                                    # also of the package, logwright.sej
        file = "jnl/0000000000000000.jnl"               # the first file of a journal

        def record(self, seed, index):                  # the same record every time, so that a child process and its
            return Message(index, ...)                  # parent agree on the issued records

        def scan(self, twin, data):                     # the records of a file, by the codec or by the kernel
            ...

        def claiming(self, size):                       # a file whose last record claims a size that it does not have
            ...

        def open_session(self, disk, home, *, sync="always", **options):
            return SejSession(Writer(home, sync=sync, disk=disk, **options))

All other members have defaults. They suit a format whose file consists of consecutive records, with the functions
`encode` and `decode` in its codec, and `Reader` and `recover` in its package. Override them

- if the format differs: `encode`, `ends`, `encode_record`, `decode_record`, `path`, `read`, `recover`, `content` …;
- to test more: `strategy`, `assert_twins_agree`, `decoders`, `fuzz_seeds`, `length_fields`, `options`, `more_verbs`,
  `hostile_journals`, `scenarios`, `mutants`, `flip_samples`.

A journal of the contract tests has only `records`, in order from the first one on, so that the records that are read
can be compared with a prefix of that list.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Protocol

from hypothesis import strategies
from hypothesis.strategies import SearchStrategy

from logwright.core.bytes.compiled import COMPILED
from logwright.core.bytes.outcome import Damage, Ending, Malformed, Mode, NeedMore, Span
from logwright.core.format import FORMATS
from logwright.core.io.disk import Disk, make_directories
from logwright.errors import LogwrightError
from tests.contract.twins import Twins
from tests.support.hostile import Make
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import Tree, write_file

Record = Any
"""A record of the format, as its reader returns it. Compared with `==`."""

HOME = Path("/journal")
"""The path of the journal on a simulated disk."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """The records at the beginning of some bytes, the position of their end, and the outcome there."""

    records: list[Record]
    end: int
    ending: Ending


@dataclass(frozen=True, slots=True)
class Recovered:
    """The report of a recovery: the bytes that it cut off and the path of their copy; None if it cut nothing."""

    cut: Damage | None = None
    kept: Path | None = None


class Session(Protocol):
    """A journal opened for writing."""

    def append(self, record: Record, /) -> object:
        """Append one record; when this returns, it is acknowledged by the rules of the sync policy."""

    def flush(self) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Scenario(Protocol):
    """Operations on a journal, with marks for its promises, and a check after a crash at any point."""

    name: str

    def prepare(self, disk: SimulatedDisk) -> None:
        """The initial contents, all of them durable."""

    def run(self, disk: Disk, mark: Callable[[Any], None]) -> None:
        """Run the operations, and `mark` each promise."""

    def check(self, disk: SimulatedDisk, *, killed: bool = False) -> None:
        """Recover a disk after a crash; raise `AssertionError` unless everything promised in `disk.marks` is there.

        `killed` means that only the process died, which flushed records must survive as well.
        """


@dataclass(frozen=True)
class Mutant:
    """A step that is left out: syncs that are not done. `scenario` is the one that must detect this."""

    name: str
    scenario: str
    forgets: Callable[[str, Path], bool]
    """Given `sync` or `sync directory` and the path, whether that sync is left out."""


@dataclass(frozen=True)
class FlipSample:
    """A journal for the figure of undetected bit flips: its records, and the published percentage."""

    label: str
    records: list[Record]
    missed_percent: float


class Subject(ABC):
    """One format."""

    name: str
    file: str
    """The first file of a journal, relative to its directory."""
    is_directory = True
    """Whether a journal is opened by its directory; otherwise by its file."""
    options: ClassVar[dict[str, dict[str, Any]]] = {"plain": {}}
    """Kinds of journals by name, with the options of their sessions: small segments, checksums."""
    head_bytes = 0
    """The number of bytes of a new file that a writer makes durable before it adds more: no crash tears those."""
    notices_torn_values = True
    """Whether a record shows that some of its bytes never arrived.

    If it does not, bytes that were never synced may be read as any record, and only synced records are compared.
    """
    whole_before_torn = 0
    """The number of records at the beginning of a file without which the rest is not considered a torn tail."""

    full_is_final = True
    """Whether a writer accepts nothing more after a full disk.

    If not, a call that needs space raises and changes nothing, and the same writer continues once there is space.
    """

    # --- what every subject has -------------------------------------------------------------------------------------

    @abstractmethod
    def record(self, seed: int, index: int) -> Record:
        """The `index`-th record of a journal, random but fixed by the seed."""

    @abstractmethod
    def scan(self, twin: str, data: bytes) -> Scanned:
        """The records of a whole file, by one of the twins."""

    @abstractmethod
    def claiming(self, size: int) -> bytes:
        """A file whose last record claims about `size` bytes, and has only a few of them."""

    @abstractmethod
    def open_session(self, disk: Disk, home: Path, *, sync: str = "always", **options: Any) -> Session:
        """Open the journal for writing; create it if it does not exist."""

    # --- records and bytes ------------------------------------------------------------------------------------------

    @cached_property
    def both(self) -> Twins:
        """The implementations of the hot loops: the codec, and the kernel if it is built."""
        return Twins(f"logwright.{self.name}", compiled=COMPILED)

    def twins(self) -> tuple[str, ...]:
        """Their names."""
        return self.both.names()

    def records(self, seed: int, count: int) -> list[Record]:
        return [self.record(seed, index) for index in range(count)]

    def filling_record(self, seed: int, index: int) -> Record:
        """The `index`-th record of a journal whose one file grows without end."""
        return self.record(seed, index)

    def strategy(self) -> SearchStrategy[list[Record]]:
        """Any records with which a journal can begin, including the extremes of every field; at least one."""
        return strategies.builds(self.records, strategies.integers(0, 1000), strategies.integers(1, 12))

    def encode(self, records: list[Record]) -> bytes:
        """A whole file with these records, from the beginning of the journal on."""
        return b"".join(map(self.encode_record, records))

    def ends(self, records: list[Record]) -> list[int]:
        """The position in `encode(records)` where the records begin, and the end of each of them."""
        return [0, *accumulate(len(self.encode_record(record)) for record in records)]

    def encode_record(self, record: Record) -> bytes:
        """One record alone."""
        data: bytes = self.both["codec"].encode(record)
        return data

    def decode_record(self, data: bytes) -> tuple[Record, Span] | NeedMore:
        """The record at the beginning, `NEED_MORE`, or `Malformed`."""
        found: tuple[Record, Span] | NeedMore = self.both["codec"].decode(data)
        return found

    def whole(self, data: bytes) -> Scanned:
        """The records that a reader finds in a file that has only whole records, and perhaps a torn tail."""
        return self.scan("codec", data)

    def assert_twins_agree(self, data: bytes, chance: random.Random) -> None:
        """Make every possible call on these bytes to the twins, and assert that they return the same."""
        plain = self.scan("codec", data)
        assert all(self.scan(twin, data) == plain for twin in self.twins())

    def decoders(self) -> dict[str, Callable[[bytes], object]]:
        """Every function that reads bytes, by name. Each must return a result or `Malformed`, or raise our error."""
        scans = {f"{twin}.scan": partial(self.scan, twin) for twin in self.twins()}
        return {"codec.decode": self.decode_record, **scans}

    def fuzz_seeds(self) -> list[bytes]:
        """Valid inputs of the decoders, to be mutated."""
        return [self.encode(self.records(seed, 1 + seed % 5)) for seed in range(6)]

    def length_fields(self, records: list[Record]) -> list[tuple[int, int]]:
        """Position and size of every length and link in `encode(records)`, or of all fields that may be one."""
        start, end = self.ends(records)[:2]
        return [(at, 4) for at in range(start, end - 3)]

    def flip_samples(self) -> list[FlipSample]:
        """The journals for which the share of undetected bit flips is published."""
        return []

    # --- a journal on a disk ----------------------------------------------------------------------------------------

    def path(self, home: Path) -> Path:
        """The path by which the journal in a directory is opened."""
        return home if self.is_directory else home / self.file

    def lay_out(self, disk: Disk, home: Path, data: bytes) -> Path:
        """Write a journal of one file with these bytes to a disk; the path of the file."""
        path = home / self.file
        make_directories(disk, path.parent)
        write_file(disk, path, data)
        return path

    def torn_file(self, data: bytes) -> bytes:
        """A file after a crash in which the last write had this result: the same, unless its head has its length."""
        return data

    def content(self, data: bytes) -> bytes:
        """The bytes of a file that are compared: all of them, unless the file ends with reserved space."""
        return data

    def of_kept(self, kept: bytes, cut: Damage) -> bytes:
        """The bytes that were cut, from the kept copy: all of it, unless more is kept."""
        return kept

    def recover(self, disk: Disk, home: Path) -> Recovered:
        """Bring the journal into the state that a writer leaves. `NotFound` if it does not exist."""
        found = self._package.recover(self.path(home), disk=disk)
        return Recovered(found.cut, found.kept)

    def read(self, disk: Disk, home: Path, mode: Mode = "failfast") -> Iterator[Record | Damage]:
        """The records in order. With `permissive`, a torn tail is returned as a `Damage` as well."""
        return iter(self.reader(disk, home).records(mode=mode))

    def reader(self, disk: Disk, home: Path) -> Any:
        """A reader of the journal."""
        return self._package.Reader(self.path(home), disk=disk)

    @cached_property
    def _package(self) -> Any:
        return import_module(f"logwright.{self.name}")

    def is_journal_file(self, name: str) -> bool:
        """Whether a path below the journal's directory belongs to the format, and is not a side file of ours."""
        return name == self.file

    def before_rotation(self, before: dict[str, bytes], after: dict[str, bytes]) -> dict[str, bytes]:
        """The files `after` an opening, without a rotation that their contents have caused."""
        return after

    def verbs(self, disk: Disk, home: Path) -> dict[str, Callable[[], object]]:
        """Every verb on a journal that may be hostile, those that write last.

        Whatever the journal contains, only our own errors may be raised.
        """
        format, path = FORMATS[self.name], self.path(home)
        other = home / self.file if self.is_directory else home  # one of its files, or all journals of the directory
        return {
            **reader_verbs(lambda: self.reader(disk, home), *self.middle),
            "looks_like": lambda: format.looks_like(disk, home),
            "looks_like a file": lambda: format.looks_like(disk, home / self.file),
            "by another path": lambda: list(format.open(other, disk=disk).scan(mode="permissive")),
            **self.more_verbs(disk, home),
            "plan a repair": lambda: format.repairs.plan(path, disk=disk).as_json(),
            "recover": lambda: self.recover(disk, home),
            "write": lambda: self.open_session(disk, home).close(),
            **self.more_writing_verbs(disk, home),
        }

    middle = (30, 200)
    """Two numbers of records that are somewhere in the middle."""

    def more_verbs(self, disk: Disk, home: Path) -> dict[str, Callable[[], object]]:
        """Additional verbs of this format that only read."""
        return {}

    def more_writing_verbs(self, disk: Disk, home: Path) -> dict[str, Callable[[], object]]:
        """Additional verbs of this format that write, or replacements for those of the same name."""
        return {}

    def hostile_journals(self) -> dict[str, Make]:
        """Hostile directories by name, with the function that makes each of them on the real disk."""
        return {}

    # --- what is peculiar -------------------------------------------------------------------------------------------

    def scenarios(self) -> list[Scenario]:
        """The scenarios that run on a simulated disk and are crashed at every point."""
        from tests.contract.scenarios import AppendScenario, torn_tails

        return [
            AppendScenario("always", self, ["append 4"]),
            AppendScenario("always, reopened", self, ["append 2", "reopen", "append 2"], prior=3),
            AppendScenario("none", self, ["append 3", "flush", "append 2", "sync", "append 2", "flush"], "none"),
            *torn_tails(self),
        ]

    def mutants(self) -> list[Mutant]:
        """Omitted steps that some scenario must detect."""
        return [
            Mutant("no sync after an append", "always", self.is_sync_of_journal),
            Mutant("no sync by sync()", "none", self.is_sync_of_journal),
        ]

    def is_sync_of_journal(self, kind: str, path: Path) -> bool:
        """Whether this is the sync of a file of the journal."""
        return kind == "sync" and path.is_relative_to(HOME) and self.is_journal_file(str(path.relative_to(HOME)))

    def __repr__(self) -> str:
        return self.name


def flip_samples_of(what: str, uniform: Callable[[int], list[Record]], missed: dict[int, float]) -> list[FlipSample]:
    """Samples of records of one size each; `missed` has the published percentage for each size."""
    return [FlipSample(f"{what} of {size} bytes", uniform(size), percent) for size, percent in missed.items()]


def reader_verbs(reader: Callable[[], Any], start: int, stop: int) -> dict[str, Callable[[], object]]:
    """The verbs that every reader has; `start` and `stop` are numbers somewhere in the middle."""
    return {
        "failfast": lambda: list(reader()),
        "permissive": lambda: list(reader().records(mode="permissive")),
        "dropmalformed": lambda: list(reader().scan(mode="dropmalformed")),
        "from the middle": lambda: list(reader().records(start, stop, mode="permissive")),
        "last": lambda: reader().last(3),
        "count": lambda: reader().count(),
        "ends": lambda: (reader().first, reader().next),
        "summary": lambda: reader().summary().as_json(),
        "verify": lambda: reader().verify().as_json(),
        "state": lambda: reader().state(),
    }


def cut_mutants(is_file: Callable[[str, Path], bool]) -> list[Mutant]:
    """The steps of cutting off a tail, each left out; `is_file` says whether a sync is one of the cut file."""
    scenario = "recover a cut tail"
    return [
        Mutant("no sync of the copy", scenario, lambda kind, path: path.parent.name == "cut"),
        Mutant("no sync of the copy's name", scenario, lambda kind, path: path.name == "cut"),
        Mutant("no sync of the directory cut", scenario, lambda kind, path: path.name == ".logwright"),
        Mutant("no sync of the directory .logwright", scenario, is_home),
        Mutant("no sync of the cut itself", scenario, is_file),
    ]


def is_home(kind: str, path: Path) -> bool:
    """Whether a sync is one of the names in the journal's directory."""
    return kind == "sync directory" and path == HOME


def read_prefix(subject: Subject, disk: Disk, home: Path) -> tuple[list[Record], LogwrightError | None]:
    """The records that can be read with `failfast`, and the error that ended the reading."""
    found: list[Record] = []
    try:
        for record in subject.read(disk, home):
            found.append(record)
    except LogwrightError as error:
        return found, error
    return found, None


def error_of(call: Callable[[], object]) -> str | None:
    """The message of an error of ours that a call raised, or None if it raised none. Any other error is raised."""
    try:
        call()
    except (Malformed, LogwrightError) as error:
        return str(error)
    return None


def journal_files(subject: Subject, tree: Tree) -> dict[str, bytes]:
    """The files of a tree that belong to the format."""
    there = {name: data for name, data in tree.items() if data is not None and subject.is_journal_file(name)}
    return {name: subject.content(data) for name, data in there.items()}
