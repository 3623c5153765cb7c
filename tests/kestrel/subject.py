"""Kestrel's journals in the contract tests."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from hypothesis import strategies

from logwright.core.bytes.compiled import COMPILED
from logwright.core.bytes.outcome import Damage, Ending, Mode
from logwright.core.io.disk import Disk
from logwright.kestrel.bytes import codec
from logwright.kestrel.bytes.layout import DOCUMENTED, KESTREL2, UNDECIDED
from logwright.kestrel.bytes.records import DIALECT_OF, FIELDS, OP_NAMES, OPS, Operation
from logwright.kestrel.files.reader import Reader
from logwright.kestrel.files.writer import Writer
from logwright.kestrel.format import recover
from logwright.kestrel.model import rules
from logwright.kestrel.model.replay import Replay
from tests.contract.scenarios import AppendScenario, torn_tails
from tests.contract.subject import (
    HOME,
    FlipSample,
    Mutant,
    Recovered,
    Scanned,
    Scenario,
    Subject,
    cut_mutants,
    flip_samples_of,
    is_home,
)
from tests.contract.twins import Twins
from tests.support import hostile
from tests.support.hostile import Make
from tests.support.simulated_disk import SimulatedDisk
from tests.support.trees import write_file

QUEUE = "queue"
_TWINS = Twins("logwright.kestrel", compiled=COMPILED)
answers = _TWINS.answers
_REPLAYS: dict[str, Any] = {"rules": rules.Replay, "replay": Replay}
_ENDINGS = (Ending.CLEAN, Ending.INCOMPLETE, Ending.MALFORMED, Ending.MALFORMED)
_START_MS = 1_700_000_000_000
_DIALECTS = (DOCUMENTED, KESTREL2, UNDECIDED)
_WRITTEN = ("addx", "addx", "addx", "remove", "remove_tentative", "unremove", "confirm_remove", "save_xid", "add_xid")


class KestrelSubject(Subject):
    name = "kestrel"
    file = QUEUE
    is_directory = False
    options = {"plain": {}, "small segments": {"max_file_bytes": 700}}  # noqa: RUF012
    notices_torn_values = False
    whole_before_torn = 1

    # --- records and bytes ------------------------------------------------------------------------------------------

    @lru_cache(maxsize=20_000)  # noqa: B019 - subjects live as long as the run
    def record(self, seed: int, index: int) -> Operation:
        chance = random.Random(f"kestrel/{seed}/{index}")
        op = chance.choice(_WRITTEN)
        data = chance.randbytes(chance.choice((0, 1, 16, 40, 100, chance.randrange(300))))
        expires = chance.choice((None, None, _START_MS + chance.randrange(10**9)))
        return _operation(op, chance.randrange(1, 9), 0, _START_MS + index, expires, data)

    def strategy(self) -> strategies.SearchStrategy[list[Operation]]:
        small, large = strategies.integers(-(2**31), 2**31 - 1), strategies.integers(-(2**63), 2**63 - 1)
        names = [op for op in OPS if DIALECT_OF.get(op, "documented") == "documented"]
        expires = strategies.none() | large.filter(bool)
        row = strategies.tuples(
            strategies.sampled_from(names),
            small,
            strategies.integers(0, 2**31 - 1),
            large,
            expires,
            strategies.binary(max_size=300),
        )
        return strategies.lists(row.map(lambda found: _operation(*found)), min_size=1, max_size=12)

    def scan(self, twin: str, data: bytes) -> Scanned:
        module = _TWINS[twin]
        stop, count, ending, _ = module.walk(data, 0, len(data), DOCUMENTED)
        return Scanned(module.operations(data, 0, stop, count, DOCUMENTED), stop, _ENDINGS[ending])

    def assert_twins_agree(self, data: bytes, chance: random.Random) -> None:
        start = chance.choice((0, 0, 0, chance.randrange(len(data) + 1)))
        end = chance.choice((len(data), len(data), chance.randrange(start, len(data) + 1)))
        dialect = chance.choice((*_DIALECTS, DOCUMENTED, chance.choice((-1, 3))))
        walked = answers("walk", data, start, end, dialect, chance.choice((-1, -1, 0, 1, 2, 7)))
        limit, anytime = chance.choice((end, len(data), len(data) + 1000)), chance.random() < 0.5
        answers("find_add", data, start, end, limit, dialect, anytime)
        if not isinstance(walked, tuple):
            return
        stop, count = walked[0], walked[1]
        _assert_same_operations(data, start, stop, count, dialect, chance)
        # and where no walk has been
        _assert_same_operations(data, start, end, chance.choice((0, 1, 2, count + 1, end)), dialect, chance)
        _assert_same_replay(codec.effects(data, start, stop, count, dialect), chance)
        found = codec.columns(data, start, stop, count, dialect)
        answers("pack", found, chance.randrange(count + 1), chance.choice((1, 50, 10**6)), chance.choice(_DIALECTS), 5)

    def decoders(self) -> dict[str, Callable[[bytes], object]]:
        found: dict[str, Callable[[bytes], object]] = {
            "codec.decode": codec.decode,
            "codec.decode kestrel2": lambda data: codec.decode(data, dialect=KESTREL2),
            "codec.explain": lambda data: codec.explain(data, 0, len(data), UNDECIDED) if data else None,
            "dialect": _settle,
        }
        for name, twin in _TWINS.items():
            found[f"{name}.walk"] = _walker(twin)
            found[f"{name}.columns"] = _unwalked(twin)
            found[f"{name}.find_add"] = _finder(twin)
        return found

    def fuzz_seeds(self) -> list[bytes]:
        later = [_operation(op, 5, 0, _START_MS, None, b"item") for op in ("continue", "remove_tentative_xid", "addx")]
        earlier = [_operation(op, 5, 2, _START_MS, None, b"item") for op in ("add", "state_dump", "add_xid", "add_xid")]
        return [*super().fuzz_seeds(), self.encode(later), self.encode(earlier)]

    def length_fields(self, records: list[Operation]) -> list[tuple[int, int]]:
        found = []
        for start, operation in zip(self.ends(records), records, strict=False):
            found.append((start, 1))
            if operation.xid is not None:
                found.append((start + 1, 4))
            if operation.data is not None:
                found.append((start + (1 if operation.op in ("add", "addx") else 5), 4))
        return found

    def claiming(self, size: int) -> bytes:
        head = struct.pack("<Biqq", 2, size - 5, _START_MS, 0)
        return self.encode(self.records(3, 3)) + head + b"not much"

    def flip_samples(self) -> list[FlipSample]:
        return flip_samples_of("items", _uniform, {16: 87, 100: 96, 1000: 99.5})

    # --- a journal on a disk ----------------------------------------------------------------------------------------

    def open_session(self, disk: Disk, home: Path, *, sync: str = "always", **options: Any) -> Writer:
        return Writer(home / QUEUE, sync=sync, dialect="documented", disk=disk, **options)

    def recover(self, disk: Disk, home: Path) -> Recovered:
        recovery = recover(home / QUEUE, dialect="documented", disk=disk)
        return Recovered(recovery.cut, recovery.kept)

    def read(self, disk: Disk, home: Path, mode: Mode = "failfast") -> Iterator[Operation | Damage]:
        return Reader(home / QUEUE, dialect="documented", disk=disk).operations(mode=mode)

    def is_journal_file(self, name: str) -> bool:
        return name == QUEUE or name.startswith(QUEUE + ".")

    def before_rotation(self, before: dict[str, bytes], after: dict[str, bytes]) -> dict[str, bytes]:
        """Noise may begin with a whole state dump, which ends a file, so the next writer begins another one."""
        rotated = [name for name in after if name not in before]
        if list(before) == [QUEUE] and len(rotated) == 1 and not after[QUEUE] and b"\x08" in after[rotated[0]]:
            return {QUEUE: after[rotated[0]]}
        return after

    def more_verbs(self, disk: Disk, home: Path) -> dict[str, Callable[[], object]]:
        def reader() -> Reader:
            return Reader(home / QUEUE, disk=disk)

        return {
            "find_time": lambda: [reader().find_time(t * 10**6) for t in (-1, 0, _START_MS, 2**62)],
            "state at": lambda: reader().state(40),
            "diff": lambda: reader().diff(0, 60),
            "history": lambda: reader().history("0"),
        }

    def more_writing_verbs(self, disk: Disk, home: Path) -> dict[str, Callable[[], object]]:
        return {
            "recover": lambda: recover(home / QUEUE, disk=disk),
            "write": lambda: _append_one(disk, home),
            "pack": lambda: _rewrite(disk, home),
        }

    def hostile_journals(self) -> dict[str, Make]:
        return _hostile_journals(self)

    # --- what is peculiar -------------------------------------------------------------------------------------------

    def scenarios(self) -> list[Scenario]:
        small = self.options["small segments"]
        return [
            AppendScenario("always", self, ["append 4"]),
            AppendScenario("always, small files", self, ["append 6"], options={"max_file_bytes": 200}),
            AppendScenario("always, reopened", self, ["append 2", "reopen", "append 2"], prior=3, options=small),
            AppendScenario("none", self, ["append 3", "flush", "append 2", "sync", "append 2", "flush"], "none"),
            AppendScenario(
                "none, small files",
                self,
                ["append 5", "flush", "append 3", "sync", "append 2"],
                "none",
                {"max_file_bytes": 200},
            ),
            AppendScenario("none, small buffer", self, ["append 9", "sync"], "none", {"buffer_bytes": 300}, prior=2),
            *torn_tails(self),
            PackScenario("pack", ["rotate", "pack"]),
            PackScenario("rewrite", ["rewrite", "rewrite"]),
            PackScenario("rewrite in kestrel2", ["rewrite", "rewrite"], "kestrel2"),
        ]

    def mutants(self) -> list[Mutant]:
        def is_queue(kind: str, path: Path) -> bool:
            return kind == "sync" and path.name == QUEUE

        return [
            Mutant("no sync after an append", "always", is_queue),
            Mutant("no sync of a new file's name", "always", is_home),
            Mutant("no sync of a file that is rotated", "none, small files", is_queue),
            Mutant("no sync of the next file's name", "always, small files", is_home),
            Mutant("no sync by sync()", "none", is_queue),
            *cut_mutants(is_queue),
            Mutant("no sync of a pack", "rewrite", lambda kind, path: "~~" in path.name),
            Mutant("no sync of a pack's names", "rewrite", is_home),
        ]


def _operation(op: str, xid: int, count: int, added: int, expires: int | None, data: bytes) -> Operation:
    """An operation with those of these fields that it has."""
    given = {"xid": xid, "count": count, "added": added, "expires": expires, "data": data}
    if op == "add" and expires is not None:
        given["expires"] = (expires // 1000 % 2**31) * 1000 or None
    return Operation(op, **{name: given[name] for name in FIELDS[op]})  # type: ignore[arg-type]


def _uniform(data_size: int) -> list[Operation]:
    chance = random.Random(data_size)
    return [_operation("addx", 0, 0, _START_MS + index, None, chance.randbytes(data_size)) for index in range(8)]


# --- a queue whose files are packed ---------------------------------------------------------------------------------


class PackScenario:
    """A queue that is written to while its files are rotated and packed. At every point, it is the same queue."""

    def __init__(self, name: str, steps: list[str], dialect: Any = "documented") -> None:
        self.name = name
        self._steps = steps
        self._dialect = dialect
        reserve = "remove_tentative_xid" if dialect == "kestrel2" else "remove_tentative"
        ops = ["addx", "addx", reserve, "addx", reserve, "confirm_remove", "addx", "remove", "addx", "unremove", "addx"]
        ids = iter((1, 2) if dialect == "kestrel2" else ())
        self._operations = [
            _operation(op, self._xid(op, ids), 0, _START_MS, None, b"item %d" % index) for index, op in enumerate(ops)
        ]
        self._states = self._every_state()

    @staticmethod
    def _xid(op: str, ids: Iterator[int]) -> int:
        return next(ids) if op == "remove_tentative_xid" else 2 if op == "unremove" else 1

    def _every_state(self) -> list[dict[str, Any]]:
        """The queue after each number of operations, from a journal that is never packed."""
        disk = SimulatedDisk()
        disk.make_directory(HOME)
        found = []
        for count in range(len(self._operations) + 1):
            write_file(disk, HOME / QUEUE, b"".join(map(codec.encode, self._operations[:count])))
            found.append(self._state(disk))
        return found

    def _state(self, disk: Disk) -> dict[str, Any]:
        return Reader(HOME / QUEUE, dialect=self._dialect, disk=disk).state()

    def prepare(self, disk: SimulatedDisk) -> None:
        with Writer(HOME / QUEUE, dialect=self._dialect, disk=disk) as writer:
            for operation in self._operations[:3]:
                writer.append(operation)

    def run(self, disk: Disk, mark: Callable[[Any], None]) -> None:
        mark(3)
        with Writer(HOME / QUEUE, dialect=self._dialect, sync="always", disk=disk) as writer:
            for count in range(3, len(self._operations)):
                writer.append(self._operations[count])
                mark(count + 1)
                if count % 2:
                    getattr(writer, self._steps[count // 2 % len(self._steps)])()

    def check(self, disk: SimulatedDisk, *, killed: bool = False) -> None:
        operations = len(disk.operations)
        found = self._state(disk)
        assert len(disk.operations) == operations, "reading changed something"
        least = max(disk.marks, default=3)
        assert found in self._states[least : least + 2], f"{least} operations were promised, and this is left: {found}"
        with Writer(HOME / QUEUE, dialect=self._dialect, disk=disk) as writer:
            assert writer.recovered is None or writer.kept is not None
        assert self._state(disk) == found, "opening it made another queue of it"
        names = disk.list_directory(HOME)
        assert not [name for name in names if "~~" in name or name.endswith(".pack")], names
        with Writer(HOME / QUEUE, dialect=self._dialect, disk=disk) as writer:
            writer.rewrite()
            writer.append(self._operations[0])
        assert self._state(disk)["items"][:-1] == found["items"]


# --- comparing the twins --------------------------------------------------------------------------------------------


def _assert_same_operations(
    data: bytes, start: int, stop: int, count: int, dialect: int, chance: random.Random
) -> None:
    answers("operations", data, start, stop, count, dialect)
    answers("spans", data, start, stop, count, dialect)
    answers("effects", data, start, stop, count, dialect, chance.choice((0, 4096)))
    want = chance.choice((codec.ALL_COLUMNS, chance.randrange(256)))
    answers("columns", data, start, stop, count, dialect, want, chance.choice((0, 4096, 2**40)))


def _assert_same_replay(effects: Any, chance: random.Random) -> None:
    watch = chance.choice((None, (0, 0), (1, chance.choice([0, *effects[2]]))))
    queues = [make(watch) for make in _REPLAYS.values()]
    for queue in queues:
        for file in (0, 1):
            queue.begin_file(file)
            queue.add(*effects, 10**6)
    plain, *others = (
        (queue.items(), queue.open(), queue.xid, queue.anomalies, queue.anomaly_count, queue.events, len(queue))
        for queue in queues
    )
    for other in others:
        assert other == plain


# --- decoders -------------------------------------------------------------------------------------------------------


def _walker(twin: ModuleType) -> Callable[[bytes], object]:
    def walk(data: bytes) -> object:
        found = []
        for dialect in _DIALECTS:
            stop, count, ending, _ = twin.walk(data, 0, len(data), dialect)
            assert 0 <= count <= stop <= len(data)
            operations = twin.operations(data, 0, stop, count, dialect)
            assert b"".join(map(codec.encode, operations)) == data[:stop]
            queue = Replay()
            kinds, numbers, positions = twin.effects(data, 0, stop, count, dialect)
            queue.add(kinds, numbers, positions, stop)
            assert len(queue) <= count
            found.append((twin.spans(data, 0, stop, count, dialect), operations, ending))
        return found

    return walk


def _unwalked(twin: ModuleType) -> Callable[[bytes], object]:
    return lambda data: twin.columns(data, 0, len(data), len(data) % 7, KESTREL2)


def _finder(twin: ModuleType) -> Callable[[bytes], object]:
    def find(data: bytes) -> object:
        at = twin.find_add(data, 0, len(data), len(data), UNDECIDED)
        assert -1 <= at < max(1, len(data))
        return at

    return find


def _settle(data: bytes) -> object:
    disk = SimulatedDisk()
    write_file(disk, Path("/queue"), data)
    verdict = Reader(Path("/queue"), disk=disk).verdict
    assert verdict.settle() in (DOCUMENTED, KESTREL2)
    return verdict.both_fit


# --- verbs ----------------------------------------------------------------------------------------------------------


def _append_one(disk: Disk, home: Path) -> None:
    with Writer(home / QUEUE, disk=disk) as writer:
        writer.addx(b"one more")


def _rewrite(disk: Disk, home: Path) -> None:
    with Writer(home / QUEUE, disk=disk) as writer:
        writer.rewrite()


# --- hostile journals -----------------------------------------------------------------------------------------------


def _hostile_journals(subject: KestrelSubject) -> dict[str, Make]:
    whole = subject.encode(subject.records(3, 5))

    def file(name: str, data: bytes = whole) -> Make:
        return hostile.files({name: data})

    def beside(name: str, make_entry: Make, data: bytes = whole) -> Make:
        return hostile.beside(file(QUEUE, data), name, make_entry)

    link_out = hostile.link_out(whole[:-3])

    def write(path: Path) -> None:
        path.write_bytes(whole)

    def write_two(other: str) -> Make:
        def make(path: Path) -> None:
            write(path)
            write(path.with_name(other))

        return make

    torn = whole[:-3]
    return {
        "only a rotated file": file(f"{QUEUE}.904"),
        "only a pack": file(f"{QUEUE}.904.pack"),
        "only a torn pack": file(f"{QUEUE}.904.pack", torn),
        "a number of twenty digits": beside(f"{QUEUE}.99999999999999999999", write),
        "a number of many digits": beside(f"{QUEUE}.{'9' * 60}", write),
        "a negative number": beside(f"{QUEUE}.-904", write),
        "the number 0": beside(f"{QUEUE}.0", write),
        "a number twice": beside(f"{QUEUE}.0904", write_two(f"{QUEUE}.904")),
        "a torn rotated file": beside(f"{QUEUE}.904", lambda path: path.write_bytes(torn)),
        "two packs": beside(f"{QUEUE}.904.pack", write_two(f"{QUEUE}.9.pack")),
        "a directory named like a rotated file": beside(f"{QUEUE}.904", lambda path: path.mkdir()),
        "a directory named like a pack": beside(f"{QUEUE}.904.pack", lambda path: path.mkdir()),
        "a directory named like a temporary file": beside(f"{QUEUE}~~904", lambda path: path.mkdir()),
        "a fifo named like a rotated file": beside(f"{QUEUE}.904", os.mkfifo),
        "a fifo named like another queue": beside("other", os.mkfifo),
        "a link named like a rotated file": beside(f"{QUEUE}.904", link_out),
        "a link named like a pack": beside(f"{QUEUE}.904.pack", link_out),
        "a link named like a temporary file": beside(f"{QUEUE}~~904", link_out),
        "the newest file is a link": lambda home: link_out(home / QUEUE),
        "the newest file is a directory": lambda home: (home / QUEUE).mkdir(parents=True),
        "the newest file is a fifo": hostile.alone(QUEUE, os.mkfifo),
        "a link to itself": beside(f"{QUEUE}.905", hostile.link_to(f"{QUEUE}.905")),
        "a link that leads nowhere": beside(f"{QUEUE}.905", hostile.link_to("nowhere")),
        **hostile.home_entries(lambda data: file(QUEUE, data), whole, torn, f"{QUEUE}.lck"),
        "a name with a new line": beside(f"{QUEUE}.904\n", write),
        "digits of another script": beside(f"{QUEUE}.٩٠٤", write),
        "a name that is not text": beside(
            "x", lambda path: open(os.fsencode(path.parent) + b"/\xff\xfe", "wb").close()
        ),
        "all zeros": file(QUEUE, bytes(300_000)),
        "all ones": file(QUEUE, b"\xff" * 300_000),
        "nothing but removals": file(QUEUE, b"\x01" * 40_000),
        "nothing but reservations": file(QUEUE, b"\x03" * 40_000),
        "heads of items without end": file(QUEUE, struct.pack("<Biqq", 2, 2**30, _START_MS, 0) * 9_000),
        "items of 1970 without end": file(QUEUE, b"\x7f" + struct.pack("<Biqq", 2, 16, 0, 0) * 9_000 + b"\x7f"),
        "state dumps within state dumps": file(QUEUE, struct.pack("<Bii", 8, 1, 16) * 9_000),
    }


assert set(_WRITTEN) <= set(OP_NAMES)
