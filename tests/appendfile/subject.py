"""Journals of appendfile in the contract tests: the hint of the first file is their first record."""

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

from logwright.appendfile.bytes import codec
from logwright.appendfile.bytes.layout import CHECKPOINT, CHECKPOINT_BYTES
from logwright.appendfile.bytes.records import Checkpoint, Data, Record
from logwright.appendfile.files.reader import Reader
from logwright.appendfile.files.writer import Writer
from logwright.core.bytes.compiled import COMPILED
from logwright.core.bytes.outcome import Damage, Ending, Mode
from logwright.core.io.disk import Disk
from tests.appendfile.scenarios import GenerationsScenario, ReopenScenario, RetireScenario
from tests.contract.scenarios import AppendScenario, torn_tails
from tests.contract.subject import (
    FlipSample,
    Mutant,
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

FILE = "0.journal"
_TWINS = Twins("logwright.appendfile", compiled=COMPILED)
answers = _TWINS.answers
_ENDINGS = (Ending.CLEAN, Ending.INCOMPLETE, Ending.MALFORMED, Ending.INCOMPLETE)
_SEGMENT_RECORDS = 5
"""One of this number of records closes the segment."""


class AppendfileSubject(Subject):
    name = "appendfile"
    file = FILE
    options = {"plain": {}, "small segments": {"file_bytes": 700}}  # noqa: RUF012
    notices_torn_values = False
    head_bytes = CHECKPOINT_BYTES

    # --- records and bytes ------------------------------------------------------------------------------------------

    @lru_cache(maxsize=20_000)  # noqa: B019 - subjects live as long as the run
    def record(self, seed: int, index: int) -> Record:
        chance = random.Random(f"appendfile/{seed}/{index}")
        if index % _SEGMENT_RECORDS == 0:
            return Checkpoint(0, index // _SEGMENT_RECORDS)
        return Data(chance.randbytes(chance.choice((1, 2, 16, 40, 100, 1 + chance.randrange(300)))))

    def strategy(self) -> strategies.SearchStrategy[list[Record]]:
        pairs = strategies.tuples(strategies.integers(0, 2**64 - 1), strategies.integers(0, 2**64 - 1))
        checkpoints = pairs.map(lambda pair: Checkpoint(min(pair), max(pair)))
        any_record = strategies.binary(min_size=1, max_size=300).map(Data) | checkpoints
        return strategies.tuples(checkpoints, strategies.lists(any_record, max_size=12)).map(
            lambda found: [found[0], *found[1]]
        )

    def scan(self, twin: str, data: bytes) -> Scanned:
        """The records of the only file of a journal: it begins with a checkpoint, and zeros may not be records."""
        module = _TWINS[twin]
        if len(data) >= 4 and data[0] != CHECKPOINT:
            return Scanned([], 0, Ending.MALFORMED)
        stop, count, ending, _ = module.walk(data, 0, len(data))
        records = module.records(data, 0, stop, count)
        starts = list(module.spans(data, 0, stop, count))
        is_bad_after = ending != codec.CLEAN
        for row, record in enumerate(records):
            following = next((at for at in range(row, count) if records[at] != Data(b"")), count)
            is_hole = len(data[starts[row] :]) - len(data[starts[row] :].lstrip(b"\0")) >= 32
            if record == Data(b"") and (is_hole or (following == count and (is_bad_after or stop == len(data)))):
                return Scanned(records[:row], starts[row], Ending.INCOMPLETE)
        return Scanned(records, stop, _ENDINGS[ending])

    def whole(self, data: bytes) -> Scanned:
        """Without a checkpoint whose ids cannot follow the preceding ones, and without everything after it."""
        scanned = self.scan("codec", data)
        stop, count, _, _ = codec.follow(data, 0, scanned.end, len(scanned.records), 0, 0, 0, CHECKPOINT_BYTES)
        return scanned if stop == scanned.end else Scanned(scanned.records[:count], stop, Ending.MALFORMED)

    def assert_twins_agree(self, data: bytes, chance: random.Random) -> None:
        start = chance.choice((0, 0, 0, chance.randrange(len(data) + 1)))
        end = chance.choice((len(data), len(data), chance.randrange(start, len(data) + 1)))
        segment = chance.choice((0, 7, 2**64 - 1))
        answers("walk", data, start, end, segment, -1, True)
        stop, count, _, _ = answers("walk", data, start, end, segment, chance.choice((-1, -1, 0, 1, 2, 7)))
        answers("find_checkpoint", data, start, end)
        answers("find_chain", data, start, end)
        answers("find_chain", data, start, end, chance.randrange(3), chance.randrange(5))
        answers("find_checkpoint", data, start, end, chance.randrange(3), chance.randrange(3), chance.randrange(5))
        _assert_same_records(data, start, stop, count, chance)
        # and where no walk has been
        _assert_same_records(data, start, end, chance.choice((0, 1, 2, count + 1, end)), chance)
        found = codec.columns(data, start, stop, count)
        answers("pack", found, chance.randrange(count + 1), chance.choice((1, 50, 10**6)))
        answers("check_columns", found)
        _assert_same_buffers(codec.records(data, start, stop, count), found, chance)

    def decoders(self) -> dict[str, Callable[[bytes], object]]:
        found: dict[str, Callable[[bytes], object]] = {
            "codec.decode": codec.decode,
            "codec.explain": lambda data: codec.explain(data, 0, len(data)),
        }
        for name, twin in _TWINS.items():
            found[f"{name}.walk"] = _walker(twin)
            found[f"{name}.columns"] = _unwalked(twin)
            found[f"{name}.find_checkpoint"] = _finder(twin)
            found[f"{name}.find_chain"] = _chain_finder(twin)
        return found

    def fuzz_seeds(self) -> list[bytes]:
        described = [Checkpoint(0, 0, 0), Data(b"a"), Data(b""), Checkpoint(0, 1, 0), Data(b"b")]
        return [*super().fuzz_seeds(), self.encode(described)]

    def length_fields(self, records: list[Record]) -> list[tuple[int, int]]:
        found = []
        for start, record in zip(self.ends(records), records, strict=False):
            found.append((start, 4))
            if isinstance(record, Checkpoint):
                found += [(start + 4, 8), (start + 12, 8)]
        return found

    def claiming(self, size: int) -> bytes:
        return self.encode(self.records(3, 3)) + struct.pack("<I", min(size, 2**24 - 1) << 8) + b"not much"

    def flip_samples(self) -> list[FlipSample]:
        return flip_samples_of("records", _uniform, {16: 80.0, 100: 96, 1000: 99.6})

    # --- a journal on a disk ----------------------------------------------------------------------------------------

    def open_session(self, disk: Disk, home: Path, *, sync: str = "always", **options: Any) -> Session:
        return Session(Writer(home, sync=sync, disk=disk, **options))

    def read(self, disk: Disk, home: Path, mode: Mode = "failfast") -> Iterator[Record | Damage]:
        """The records, without the hints of files following the first one."""
        for item in Reader(home, disk=disk).scan(mode=mode):
            if isinstance(item, Damage):
                yield item
            elif item.span.start or item.file == FILE:
                yield item.record

    def is_journal_file(self, name: str) -> bool:
        return name.endswith(".journal") and "/" not in name

    def more_verbs(self, disk: Disk, home: Path) -> dict[str, Callable[[], object]]:
        return {"state at": lambda: Reader(home, disk=disk).state(40)}

    def more_writing_verbs(self, disk: Disk, home: Path) -> dict[str, Callable[[], object]]:
        return {"write": lambda: _append_one(disk, home), "recovery": lambda: _walk(disk, home)}

    def hostile_journals(self) -> dict[str, Make]:
        return _hostile_journals(self)

    # --- what is peculiar -------------------------------------------------------------------------------------------

    def scenarios(self) -> list[Scenario]:
        small = {"file_bytes": 200}
        return [
            AppendScenario("always", self, ["append 4"]),
            AppendScenario("always, small files", self, ["append 7"], options=small),
            AppendScenario("always, reopened", self, ["append 2", "reopen", "append 4"], prior=3, options=small),
            AppendScenario("none", self, ["append 3", "flush", "append 2", "sync", "append 2", "flush"], "none"),
            AppendScenario(
                "none, small files", self, ["append 5", "flush", "append 3", "sync", "append 2"], "none", small
            ),
            AppendScenario("none, small buffer", self, ["append 9", "sync"], "none", {"buffer_bytes": 300}, prior=2),
            *torn_tails(self),
            RetireScenario("retire"),
            ReopenScenario("reopen"),
            ReopenScenario("reopen, walks left half-way", leaves=True),
            GenerationsScenario("generations begun during a walk"),
        ]

    def mutants(self) -> list[Mutant]:
        is_journal = self.is_sync_of_journal
        return [
            *super().mutants(),
            Mutant("no sync of a new file's name", "always", is_home),
            Mutant("no sync of a file before the next one", "none, small files", is_journal),
            Mutant("no sync of the next file's name", "always, small files", is_home),
            *cut_mutants(is_journal),
            Mutant("no sync of what was checked", "retire", is_journal),
            Mutant("no sync of what a walk replayed", "reopen", is_journal),
            Mutant(
                "no sync of what goes beside newer generations",
                "generations begun during a walk",
                lambda kind, path: kind == "sync directory" and path.name == "recovery",
            ),
        ]


class Session:
    """A writer that gets records: the hint of the first file, data, and checkpoints that close a segment."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.flush, self.sync, self.close = writer.flush, writer.sync, writer.close

    def append(self, record: Record) -> None:
        if isinstance(record, Data):
            self._writer.append(record.data)
        elif record.current == 0:
            self._writer.begin()
        else:
            assert self._writer.register_checkpoint() == record.current


def _uniform(data_size: int) -> list[Record]:
    chance = random.Random(data_size)
    return [Checkpoint(0, 0), *(Data(chance.randbytes(data_size)) for _ in range(8)), Checkpoint(0, 1)]


# --- comparing the twins --------------------------------------------------------------------------------------------


def _assert_same_records(data: bytes, start: int, stop: int, count: int, chance: random.Random) -> None:
    segment = chance.choice((0, 5))
    found = answers("records", data, start, stop, count, segment)
    if isinstance(found, list) and COMPILED:
        twins = [module.records(data, start, stop, count, segment) for _, module in _TWINS.items()]
        assert [record.segment for record in twins[0]] == [record.segment for record in twins[1]]
    answers("payloads", data, start, stop, count)
    _assert_same_pieces(data, start, stop, count)
    answers("spans", data, start, stop, count)
    answers("checkpoints", data, start, stop, count)
    pair = chance.choice(((0, 0), (0, 1), (2, 7), (2**64 - 1, 2**64 - 1)))
    answers(
        "follow", data, start, stop, count, *pair, chance.choice((-1, 0, 1, 1, 2, 200_000)), chance.choice((-1, 20))
    )
    want = chance.choice((codec.ALL_COLUMNS, chance.randrange(128)))
    answers("columns", data, start, stop, count, segment, want, chance.choice((0, 4096, 2**40)))


def _assert_same_pieces(data: bytes, start: int, stop: int, count: int) -> None:
    """Compare the visible contents of the pieces of the twins; each iterates over its runs twice."""
    found: list[Any] = []
    for _, module in _TWINS.items():
        try:
            closed, rest = module.pieces(data, start, stop, count)
            runs = [*(run for run, _, _ in closed), rest]
            found.append(([pair for _, *pair in closed], [(len(run), list(run), list(run)) for run in runs]))
        except Exception as error:
            found.append((type(error), str(error)))
    assert all(one == found[0] for one in found)


def _assert_same_buffers(records: list[Record], columns: codec.Columns, chance: random.Random) -> None:
    """Fill a buffer of each twin with the same records, and compare everything visible."""
    steps = [chance.choice(("append", "register", "check", "begin", "extend")) for _ in records]
    sizes = (chance.choice((50, 200, 4 << 20)), chance.choice((0, 0, 40)))
    found = []
    for _, module in _TWINS.items():
        buffer = module.AppendBuffer(1 << 30, 3, sizes[1], sizes[0], 0, 1, False, [(0, 2)])
        answered: list[Any] = []
        for step, record in zip(steps, records, strict=True):
            try:
                if step == "append":
                    buffer.append(record.data if isinstance(record, Data) else b"data")
                elif step == "extend":
                    answered.append(buffer.extend(columns, 0, 300))
                else:
                    answered.append(getattr(buffer, step)())
            except Exception as error:
                answered.append(type(error))
        data, used, cuts, needed = buffer.take()
        state = (buffer.file_id, buffer.position, buffer.checked, buffer.current, buffer.has_data, buffer.added)
        found.append((answered, bytes(data[:used]), cuts, needed, state))
    assert all(one == found[0] for one in found)


# --- decoders -------------------------------------------------------------------------------------------------------


def _walker(twin: ModuleType) -> Callable[[bytes], object]:
    def walk(data: bytes) -> object:
        stop, count, ending, _ = twin.walk(data, 0, len(data))
        assert 0 <= count <= stop <= len(data)
        records = twin.records(data, 0, stop, count)
        assert b"".join(map(codec.encode, records)) == data[:stop]
        return twin.spans(data, 0, stop, count), twin.checkpoints(data, 0, stop, count), records, ending

    return walk


def _unwalked(twin: ModuleType) -> Callable[[bytes], object]:
    return lambda data: twin.columns(data, 0, len(data), len(data) % 7)


def _finder(twin: ModuleType) -> Callable[[bytes], object]:
    def find(data: bytes) -> object:
        at = twin.find_checkpoint(data, 0, len(data))
        assert -1 <= at <= len(data) - 20 or at == -1
        return at

    return find


def _chain_finder(twin: ModuleType) -> Callable[[bytes], object]:
    def find(data: bytes) -> object:
        start, count = twin.find_chain(data, 0, len(data))
        assert twin.walk(data, start, len(data), 0, -1, True)[:3] == (len(data), count, codec.CLEAN)
        return start, count

    return find


# --- verbs ----------------------------------------------------------------------------------------------------------


def _append_one(disk: Disk, home: Path) -> None:
    with Writer(home, disk=disk) as writer:
        writer.append(b"one more")
        writer.register_checkpoint()
        writer.check_checkpoint()


def _walk(disk: Disk, home: Path) -> None:
    with Writer(home, disk=disk, recovering=True) as writer:
        recovery = writer.recovery(mode="dropmalformed")
        for _ in recovery:
            pass


# --- hostile journals -----------------------------------------------------------------------------------------------


def _hostile_journals(subject: AppendfileSubject) -> dict[str, Make]:
    whole = subject.encode(subject.records(3, 7))
    torn = whole[:-3]

    def file(name: str, data: bytes = whole) -> Make:
        return hostile.files({name: data})

    def beside(name: str, make_entry: Make, data: bytes = whole) -> Make:
        return hostile.beside(file(FILE, data), name, make_entry)

    def write(path: Path) -> None:
        path.write_bytes(whole)

    link_out = hostile.link_out(torn)
    linked_directory = hostile.link_directory_out({"0.journal": whole, "6/0.journal": whole})
    aside = ".logwright/recovery"
    return {
        "the largest id": file(f"{2**64 - 1}.journal"),
        "the largest id and a torn tail": file(f"{2**64 - 1}.journal", torn),
        "an id of many digits": beside(f"{'9' * 60}.journal", write),
        "a negative id": beside("-1.journal", write),
        "an id twice": beside("00.journal", write),
        "an id missing": beside("2.journal", write),
        "a very large id": beside("18446744073709551615.journal", write),
        "a torn file before the last": hostile.files({"0.journal": torn, "1.journal": whole}),
        "a file of no bytes": file(FILE, b""),
        "files of no bytes": hostile.files({"0.journal": b"", "1.journal": b"", "2.journal": b""}),
        "a directory named like a file": beside("1.journal", lambda path: path.mkdir()),
        "a fifo named like a file": beside("1.journal", os.mkfifo),
        "a link named like a file": beside("1.journal", link_out),
        "the only file is a link": lambda home: link_out(home / FILE),
        "the only file is a directory": lambda home: (home / FILE).mkdir(parents=True),
        "the only file is a fifo": hostile.alone(FILE, os.mkfifo),
        "a link to itself": beside("1.journal", hostile.link_to("1.journal")),
        "a link that leads nowhere": beside("1.journal", hostile.link_to("nowhere")),
        **hostile.home_entries(lambda data: file(FILE, data), whole, torn, "appendfile.lck"),
        "old files are elsewhere": beside(aside, linked_directory),
        "old files of a generation are elsewhere": beside(f"{aside}/6", linked_directory),
        "old files are a file": beside(aside, lambda path: path.write_bytes(b"")),
        "old files of a generation are a file": beside(f"{aside}/6", lambda path: path.write_bytes(b"")),
        "an old file is a link": beside(f"{aside}/6/1.journal", link_out),
        "an old file is there twice": beside(f"{aside}/6/0.journal", write),
        "an old file of a later id": beside(f"{aside}/1/7.journal", write),
        "an old file that is torn": beside(f"{aside}/6/5.journal", lambda path: path.write_bytes(torn)),
        "the largest boundary": beside(f"{aside}/{2**64 - 1}", lambda path: path.mkdir()),
        "a boundary too large": beside(f"{aside}/{2**64}", lambda path: path.mkdir()),
        "what is done with is elsewhere": beside(".logwright/recovered-1-0-0-0", linked_directory),
        "a name with a new line": beside("1.journal\n", write),
        "digits of another script": beside("٩.journal", write),
        "all zeros": file(FILE, bytes(300_000)),
        "all ones": file(FILE, b"\xff" * 300_000),
        "nothing but checkpoints": file(FILE, subject.encode([Checkpoint(0, 0)]) * 9_000),
        "ids that leap": file(
            FILE, subject.encode([Checkpoint(0, 0), Data(b"a"), Checkpoint(0, 2**64 - 1), Data(b"b")])
        ),
        "ids that go back": file(FILE, subject.encode([Checkpoint(5, 9), Data(b"a"), Checkpoint(0, 3), Data(b"b")])),
        "no hint": file(FILE, subject.encode([Data(b"a"), Checkpoint(0, 1), Data(b"b")])),
        "empty records": file(FILE, subject.encode([Checkpoint(0, 0)]) + bytes(40_000) + subject.encode([Data(b"a")])),
    }
