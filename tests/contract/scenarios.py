"""Operations on a journal before a crash, and the invariants after it: the same for every format.

`check_after_crash` asserts these invariants:

- Ack: promised records are there.
- Prefix: the recovered records are a prefix of those that were issued.
- No silent loss: bytes leave the journal only after a copy of them is kept, and the loss is reported. Reading changes
  nothing. Damage that is not a torn tail cuts nothing.
- Idempotent: recovering twice has the same result as recovering once.
- Continuation: the next record follows the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from logwright.core.io.disk import Disk
from logwright.errors import DamagedJournal, NotFound
from tests.contract.subject import HOME, Record, Recovered, Scenario, Subject, journal_files, read_prefix
from tests.support.damage import cut, zeros_after
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import Tree, differences, read_file, read_tree


class Durable(NamedTuple):
    """A mark: this number of records survives a power cut."""

    records: int


class Flushed(NamedTuple):
    """A mark: this number of records survives the death of the process."""

    records: int


def promised(marks: list[Any], *, killed: bool = False) -> int:
    """The number of records that must be there."""
    counts = [mark.records for mark in marks if isinstance(mark, Durable) or (killed and isinstance(mark, Flushed))]
    return max(counts, default=0)


# --- the checks -----------------------------------------------------------------------------------------------------


def check_after_crash(
    subject: Subject, disk: SimulatedDisk, issued: list[Record], least: int, *, may_be_damaged: bool = False
) -> None:
    """Recover, and assert the invariants. `least` is the number of promised records.

    `may_be_damaged`: several records were being written without a sync between them, so later ones may have reached the
    disk before earlier ones. Then, and only then, a recovery may find damage, and must not change it.
    """
    found, error = _read_unchanged(subject, disk)
    _assert_beginning(found, issued, least)
    before = read_tree(disk, HOME)
    if isinstance(error, NotFound):
        assert least == 0, f"the journal is gone with {least} promised records in it"
        _assert_writing_continues(subject, disk, issued, 0)
        return
    assert error is None or (may_be_damaged and isinstance(error, DamagedJournal)), error
    try:
        recovered = subject.recover(disk, HOME)
    except DamagedJournal:
        assert may_be_damaged, "a crash within one record must leave no damage"
        after = read_tree(disk, HOME)
        assert journal_files(subject, after) == journal_files(subject, before), "damage was cut"
        return
    after = read_tree(disk, HOME)
    assert_nothing_lost(subject, disk, before, after, recovered)
    again, error_again = _read_unchanged(subject, disk)
    assert again == found, "recovery changed which records can be read"
    assert type(error_again) is type(error)
    assert subject.recover(disk, HOME) == Recovered(), "the second recovery found something to do"
    assert journal_files(subject, read_tree(disk, HOME)) == journal_files(subject, after)
    if error is None:
        _assert_writing_continues(subject, disk, issued, len(found))


class Checked:
    """The disks that a test has checked: many failures and crashes leave one that others have left before."""

    def __init__(self) -> None:
        self._seen: set[tuple[object, ...]] = set()

    def is_new(self, disk: SimulatedDisk, *expected: object) -> bool:
        """Whether no disk with the same names, contents and expectations was passed before."""
        key = (disk.fingerprint(), *expected)
        is_new = key not in self._seen
        self._seen.add(key)
        return is_new


def check_promised(subject: Subject, disk: SimulatedDisk, issued: list[Record], least: int) -> None:
    """The promised records are there as they were issued. Bytes that were never synced may be anything."""
    found, error = _read_unchanged(subject, disk)
    assert len(found) >= least, f"{least} records were promised, {len(found)} are there ({error})"
    assert found[:least] == issued[:least], "a promised record has changed"


def _read_unchanged(subject: Subject, disk: SimulatedDisk) -> tuple[list[Record], Exception | None]:
    operations = len(disk.operations)
    answer = read_prefix(subject, disk, HOME)
    assert len(disk.operations) == operations, f"reading did {disk.operations[operations:]}"
    return answer


def _assert_beginning(found: list[Record], issued: list[Record], least: int) -> None:
    assert len(found) >= least, f"{least} records were promised, {len(found)} are there"
    assert found == issued[: len(found)], "what is there was never issued like this"


def _assert_writing_continues(subject: Subject, disk: SimulatedDisk, issued: list[Record], count: int) -> None:
    """Append the next record, and read all of them."""
    following = issued[: count + 1]
    if len(following) == count:
        return
    session = subject.open_session(disk, HOME)
    session.append(following[-1])
    session.close()
    assert list(subject.read(disk, HOME)) == following


def assert_nothing_lost(subject: Subject, disk: Disk, before: Tree, after: Tree, recovered: Recovered) -> None:
    """A recovery changed at most the end of one file, reported this, and kept the bytes that it cut off."""
    old = journal_files(subject, before)
    new = subject.before_rotation(old, journal_files(subject, after))
    changed = [name for name in old if new.get(name) != old[name]]
    if recovered.cut is None:
        assert not changed, differences(before, after)
        return
    assert changed == [recovered.cut.file], differences(before, after)
    data = old[recovered.cut.file]
    assert recovered.cut.end == len(data)
    assert new[recovered.cut.file] == data[: recovered.cut.start]
    assert recovered.cut.kind == "torn_tail"
    assert recovered.cut.reason
    assert recovered.kept is not None
    assert recovered.kept.parent == HOME / ".logwright" / "cut"
    assert subject.of_kept(read_file(disk, recovered.kept), recovered.cut) == data[recovered.cut.start :]


# --- scenarios ------------------------------------------------------------------------------------------------------


@dataclass
class AppendScenario:
    """Records appended in one or several sessions.

    `steps` are `append` (or `append 3`), `flush`, `sync`, `reopen`. The journal begins with `prior` records.
    """

    name: str
    subject: Subject
    steps: list[str]
    sync: str = "always"
    options: dict[str, Any] = field(default_factory=dict)
    prior: int = 0
    seed: int = 1

    def __post_init__(self) -> None:
        appended = sum(int(step.partition(" ")[2] or 1) for step in self.steps if step.startswith("append"))
        self.issued = self.subject.records(self.seed, self.prior + appended + 1)
        """One more than is appended, for the check that writing continues."""

    def prepare(self, disk: SimulatedDisk) -> None:
        if self.prior:
            session = self.subject.open_session(disk, HOME, **self.options)
            for record in self.issued[: self.prior]:
                session.append(record)
            session.close()

    def run(self, disk: Disk, mark: Callable[[Any], None]) -> None:
        count = self.prior
        mark(Durable(count))
        session = self.subject.open_session(disk, HOME, sync=self.sync, **self.options)
        try:
            for step in self.steps:
                verb, _, times = step.partition(" ")
                for _ in range(int(times or 1)):
                    if verb == "append":
                        session.append(self.issued[count])
                        count += 1
                        if self.sync == "always":
                            mark(Durable(count))
                    elif verb == "flush":
                        session.flush()
                        mark(Flushed(count))
                    elif verb == "sync":
                        session.sync()
                        mark(Durable(count))
                    elif verb == "reopen":
                        session.close()
                        mark(Durable(count))
                        session = self.subject.open_session(disk, HOME, sync=self.sync, **self.options)
        finally:
            session.close()
        mark(Durable(count))

    def check(self, disk: SimulatedDisk, *, killed: bool = False) -> None:
        least = promised(disk.marks, killed=killed)
        check_after_crash(self.subject, disk, self.issued, least, may_be_damaged=self.sync != "always" and not killed)


@dataclass
class RecoverScenario:
    """A torn tail, and a recovery that is itself interrupted. `tear` makes the tail from the bytes of a journal."""

    name: str
    subject: Subject
    tear: Callable[[bytes], bytes]
    count: int = 4
    seed: int = 2

    def __post_init__(self) -> None:
        self.issued = self.subject.records(self.seed, self.count + 1)
        whole = self.subject.encode(self.issued[: self.count])
        self.torn = self.subject.torn_file(self.tear(whole))
        scanned = self.subject.whole(self.torn)
        self.whole_records, self.end = len(scanned.records), scanned.end
        assert self.end < len(self.torn), "nothing is torn here"

    def prepare(self, disk: SimulatedDisk) -> None:
        self.file = self.subject.lay_out(disk, HOME, self.torn)

    def run(self, disk: Disk, mark: Callable[[Any], None]) -> None:
        self.subject.recover(disk, HOME)
        mark("recovered")

    def check(self, disk: SimulatedDisk, *, killed: bool = False) -> None:
        tail = self.torn[self.end :]
        data = self.subject.content(read_file(disk, self.file))
        torn = self.subject.content(self.torn)
        if data != torn:
            assert data == torn[: self.end], "the recovery left another end than the last whole record's"
            assert tail in _kept(disk), "the tail is cut, and no copy of it is left"
        elif "recovered" in disk.marks:
            raise AssertionError("the recovery had returned, and the tail is back")
        check_after_crash(self.subject, disk, self.issued, self.whole_records)


def _kept(disk: Disk) -> list[bytes]:
    folder = HOME / ".logwright" / "cut"
    if not disk.is_directory(folder):
        return []
    return [read_file(disk, folder / name) for name in disk.list_directory(folder)]


# --- leaving syncs out ----------------------------------------------------------------------------------------------


class ForgetfulDisk:
    """Passes every call to another disk, except for the chosen syncs, which are not done."""

    def __init__(self, inner: Disk, forgets: Callable[[str, Path], bool]) -> None:
        self.inner = inner
        self._forgets = forgets
        self.forgotten = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def forget(self, kind: str, path: Path) -> bool:
        answer = self._forgets(kind, path)
        self.forgotten += answer
        return answer

    def open(self, path: Path, mode: Any) -> ForgetfulFile:
        return ForgetfulFile(self, self.inner.open(path, mode))

    def sync_directory(self, path: Path) -> None:
        if not self.forget("sync directory", path):
            self.inner.sync_directory(path)


class ForgetfulFile:
    """A file of a `ForgetfulDisk`."""

    def __init__(self, disk: ForgetfulDisk, inner: Any) -> None:
        self._disk = disk
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def sync(self) -> None:
        if not self._disk.forget("sync", self._inner.path):
            self._inner.sync()


def torn_tails(subject: Subject) -> list[Scenario]:
    """Recoveries after a crash: a last record that was cut short, followed by zeros."""
    return [
        RecoverScenario("recover a cut tail", subject, lambda data: cut(data, len(data) - 3)),
        RecoverScenario("recover a zeroed tail", subject, lambda data: zeros_after(data + bytes(60), len(data))),
    ]
